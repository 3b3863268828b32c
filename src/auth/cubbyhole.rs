//! What a token keeps for itself, and nobody else sees: it goes with the token.
//!
//! An entry is the JSON object that was written; how many and how large they may be is the store's to hold, in the
//! commit that would pass it ([`CubbyholeRow::MOST`]).

use serde_json::{Map, Value};

use super::policies::WRAPPING;
use super::store::{AuthWrite, CubbyholeRow};
use super::{Auth, Caller};
use crate::error::{Error, Result};
use crate::secret::Secret;

/// Where the holder of a wrapping token finds the answer in its cubbyhole.
const RESPONSE: &str = "response";

impl Auth {
    /// What the caller keeps at a path, as JSON text; `None` for nothing.
    ///
    /// # Errors
    /// `Invalid` for a batch token; those of the store.
    pub async fn cubbyhole_read(&self, caller: &Caller, path: &str) -> Result<Option<Secret>> {
        has_one(caller)?;
        if path == RESPONSE
            && let Some(answer) = self.own_answer(caller).await?
        {
            let text = answer.body.expose_text().ok_or_else(|| Error::invalid("response: no text, unwrap it"))?;
            let member = serde_json::json!({ RESPONSE: text });
            return serde_json::to_vec(&member).map(Secret::new).map(Some).map_err(Error::internal);
        }
        let kept = self.store.cubbyhole(caller.token_hash(), path.to_owned()).await?;
        Ok(kept.map(|kept| Secret::new(kept.body)))
    }

    /// Whether the caller keeps something at a path; of an answer that was wrapped nobody hears by this.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn cubbyhole_has(&self, caller: &Caller, path: &str) -> Result<bool> {
        let kept = self.store.cubbyhole(caller.token_hash(), path.to_owned()).await?;
        Ok(kept.is_some() || (path == RESPONSE && caller.policies == [WRAPPING]))
    }

    /// Keeps something at a path, in the place of what was there.
    ///
    /// # Errors
    /// `Invalid` when it is nothing, or for a batch token; `Conflict` when it is too much, or the token has ended; those of the store.
    pub async fn cubbyhole_write(&self, caller: &Caller, path: &str, members: &Map<String, Value>) -> Result<()> {
        has_one(caller)?;
        if members.is_empty() {
            return Err(Error::invalid("missing data fields"));
        }
        let body = serde_json::to_vec(members).map_err(Error::internal)?;
        let row = CubbyholeRow { token: caller.token_hash(), path: path.to_owned(), body };
        self.store.commit(vec![AuthWrite::CubbyholePut(row)]).await.map(drop)
    }

    /// Removes what the caller keeps at a path; nothing, too.
    ///
    /// # Errors
    /// `Invalid` for a batch token; those of the store.
    pub async fn cubbyhole_delete(&self, caller: &Caller, path: &str) -> Result<()> {
        has_one(caller)?;
        let delete = AuthWrite::CubbyholeDelete { token: caller.token_hash(), path: path.to_owned() };
        self.store.commit(vec![delete]).await.map(drop)
    }

    /// What lies directly below a path (`""` for all), in byte order: names of entries, and those of folders with a
    /// `/` behind.
    ///
    /// # Errors
    /// `Invalid` for a batch token; those of the store.
    pub async fn cubbyhole_keys(&self, caller: &Caller, folder: &str) -> Result<Vec<String>> {
        has_one(caller)?;
        let paths = self.store.cubbyhole_paths(caller.token_hash()).await?;
        let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let below = paths.iter().filter_map(|path| path.strip_prefix(&folder));
        let mut keys: Vec<String> =
            below.map(|rest| rest.split_inclusive('/').next().unwrap_or(rest).to_owned()).collect();
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }
}

/// A token that is stored nowhere keeps nothing.
fn has_one(caller: &Caller) -> Result<()> {
    match caller.is_batch() {
        true => Err(Error::invalid("cubbyhole: only service tokens have one")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::auth::memory::Memory;
    use crate::clock::Clock;

    #[tokio::test]
    async fn a_folder_is_listed_once_and_an_entry_of_its_name_beside_it() {
        let auth = Auth::open(Arc::new(Memory::default()), Clock::system()).await.unwrap();
        let token = auth.root_token(None, "test").await.unwrap();
        let caller = auth.recognise(&token, None).await.unwrap();
        let members = Map::from_iter([("a".to_owned(), Value::from(1))]);
        for path in ["b", "b/c", "b/d/e", "b0", "a"] {
            auth.cubbyhole_write(&caller, path, &members).await.unwrap();
        }
        for (folder, keys) in [("", "a b b/ b0"), ("b", "c d/"), ("b/d", "e"), ("c", "")] {
            assert_eq!(auth.cubbyhole_keys(&caller, folder).await.unwrap().join(" "), keys, "{folder}");
        }
        assert!(auth.cubbyhole_read(&caller, "b").await.unwrap().unwrap().expose() == b"{\"a\":1}");
        auth.cubbyhole_delete(&caller, "b").await.unwrap();
        assert!(auth.cubbyhole_read(&caller, "b").await.unwrap().is_none());
        assert!(auth.cubbyhole_write(&caller, "b", &Map::new()).await.is_err());
    }
}

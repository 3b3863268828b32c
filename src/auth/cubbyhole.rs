//! The cubbyhole: private storage of one token, deleted together with the token.
//!
//! An entry is the JSON object that the client wrote. The store limits the number and size of a token's entries; a
//! commit that would exceed a limit ([`CubbyholeRow::LIMITS`]) fails.

use serde_json::{Map, Value};

use super::policies::WRAPPING_POLICY_NAME;
use super::store::{AuthWrite, CubbyholeRow};
use super::{Auth, Caller};
use crate::error::{Error, Result};
use crate::secret::Secret;

/// Path at which a request with a wrapping token reads the wrapped response. The response is stored under another path.
const WRAPPED_RESPONSE_PATH: &str = "response";

impl Auth {
    /// Returns the entry at `path` in the caller's cubbyhole, as JSON text; `None` if there is none.
    ///
    /// # Errors
    /// `Invalid` for a batch token; store errors.
    pub async fn cubbyhole_read(&self, caller: &Caller, path: &str) -> Result<Option<Secret>> {
        require_service_token(caller)?;
        if path == WRAPPED_RESPONSE_PATH
            && let Some(answer) = self.own_wrapped_response(caller).await?
        {
            let text = answer.body.expose_text().ok_or_else(|| {
                Error::invalid("cubbyhole/response: not valid UTF-8; fetch the response with sys/wrapping/unwrap")
            })?;
            let member = serde_json::json!({ WRAPPED_RESPONSE_PATH: text });
            return serde_json::to_vec(&member).map(Secret::new).map(Some).map_err(Error::internal);
        }
        let entry = self.store.cubbyhole(caller.token_hash(), path.to_owned()).await?;
        Ok(entry.map(|entry| Secret::new(entry.body)))
    }

    /// `true` if the caller's cubbyhole has an entry at `path`. In the cubbyhole of a wrapping token, the path `response`
    /// counts as an entry; the wrapped response is not fetched, so it stays available.
    ///
    /// # Errors
    /// Store errors.
    pub async fn cubbyhole_has(&self, caller: &Caller, path: &str) -> Result<bool> {
        let entry = self.store.cubbyhole(caller.token_hash(), path.to_owned()).await?;
        Ok(entry.is_some() || (path == WRAPPED_RESPONSE_PATH && caller.policies == [WRAPPING_POLICY_NAME]))
    }

    /// Creates or replaces an entry in the caller's cubbyhole.
    ///
    /// # Errors
    /// `Invalid` for an empty object or a batch token; `Conflict` when a limit would be exceeded or the token has
    /// ended; store errors.
    pub async fn cubbyhole_write(&self, caller: &Caller, path: &str, members: &Map<String, Value>) -> Result<()> {
        require_service_token(caller)?;
        if members.is_empty() {
            return Err(Error::invalid("missing data fields"));
        }
        let body = serde_json::to_vec(members).map_err(Error::internal)?;
        let row = CubbyholeRow { token: caller.token_hash(), path: path.to_owned(), body };
        self.store.commit(vec![AuthWrite::CubbyholePut(row)]).await.map(drop)
    }

    /// Deletes an entry of the caller's cubbyhole; succeeds if there is no such entry.
    ///
    /// # Errors
    /// `Invalid` for a batch token; store errors.
    pub async fn cubbyhole_delete(&self, caller: &Caller, path: &str) -> Result<()> {
        require_service_token(caller)?;
        let delete = AuthWrite::CubbyholeDelete { token: caller.token_hash(), path: path.to_owned() };
        self.store.commit(vec![delete]).await.map(drop)
    }

    /// Returns the names directly below `folder` (`""` for the top level) in the caller's cubbyhole, in byte order;
    /// names of folders end in `/`.
    ///
    /// # Errors
    /// `Invalid` for a batch token; store errors.
    pub async fn cubbyhole_keys(&self, caller: &Caller, folder: &str) -> Result<Vec<String>> {
        require_service_token(caller)?;
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

/// Rejects a batch token: it is not stored, so it has no cubbyhole.
fn require_service_token(caller: &Caller) -> Result<()> {
    match caller.is_batch() {
        true => Err(Error::invalid("cubbyhole: not available to batch tokens")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::TestStore;
    use crate::clock::Clock;

    #[tokio::test]
    async fn cubbyhole_lists_a_folder_and_an_entry_of_the_same_name() {
        let auth = Auth::open(TestStore::open(&Clock::system()).await, Clock::system()).await.unwrap();
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

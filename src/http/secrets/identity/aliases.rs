//! Aliases of entities: written, read, listed, removed.

use serde_json::{Map, Value, json};

use super::asked::{given, id, pairs};
use super::rendering;
use crate::auth::identity::AliasChange;
use crate::error::{Error, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::page::Page;
use crate::http::secrets::route::Call;
use crate::http::secrets::sys::to_the_end;

/// Aliases that are read at once for a list.
const STEP: usize = 1_000;

/// `POST identity/entity-alias`, and by id: a new alias, or a change of one.
pub(super) async fn write(call: Call) -> Result<Answer> {
    let entity = match given(&call, "canonical_id")? {
        None => given(&call, "entity_id")?,
        given => given,
    };
    let change = AliasChange {
        accessor: given(&call, "mount_accessor")?,
        name: given(&call, "name")?,
        entity,
        custom_metadata: pairs(&call, "custom_metadata")?,
    };
    let id = id(&call)?;
    to_the_end(async move {
        let written = match id {
            Some(id) => call.state.auth.alias_change(&id, change).await?,
            None => call.state.auth.alias_write(change).await?,
        };
        Ok(match written {
            Some(alias) => Answer::data(json!({ "id": alias.id, "canonical_id": alias.entity })),
            None => Answer::empty(),
        })
    })
    .await
}

/// `GET identity/entity-alias/id/:id`.
pub(super) async fn read(call: Call) -> Result<Answer> {
    let alias = call.state.auth.alias(call.param("id")).await?.ok_or_else(Error::not_found)?;
    Ok(Answer::data(rendering::alias(&alias, &call.state.auth.mounts())))
}

/// `LIST identity/entity-alias/id`.
pub(super) async fn list(call: Call) -> Result<Answer> {
    let Page { mut after, limit } = Page::of(&call.fields)?;
    let (mut keys, mut info, mut left) = (Vec::new(), Map::new(), limit.unwrap_or(usize::MAX));
    let mounts = call.state.auth.mounts();
    while left > 0 {
        let step = left.min(STEP);
        let found = call.state.auth.alias_page(after, u32::try_from(step).unwrap_or(u32::MAX)).await?;
        for alias in &found {
            info.insert(alias.id.clone(), rendering::alias_entry(alias, &mounts));
            keys.push(alias.id.clone());
        }
        left -= found.len();
        match found.last() {
            Some(last) if found.len() == step => after = last.id.clone(),
            _ => break,
        }
    }
    Answer::keys(keys, Some(Value::Object(info)))
}

/// `DELETE identity/entity-alias/id/:id`, of an absent one too.
pub(super) async fn delete(call: Call) -> Result<Answer> {
    to_the_end(async move {
        call.state.auth.alias_delete(call.param("id")).await?;
        Ok(Answer::empty())
    })
    .await
}

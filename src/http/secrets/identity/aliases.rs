//! Entity aliases: create, change, read, list, delete.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::json;

use super::asked::{given, id, pairs};
use super::rendering;
use crate::auth::Auth;
use crate::auth::identity::AliasChange;
use crate::auth::mounts::MountTable;
use crate::auth::store::AliasEntry;
use crate::error::{Error, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::listing::{self, Row, Source};
use crate::http::secrets::page::Page;
use crate::http::secrets::route::Call;
use crate::http::secrets::sys::to_the_end;

/// `POST identity/entity-alias`, with or without an id: creates or changes an alias.
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

pub(super) async fn read(call: Call) -> Result<Answer> {
    let alias = call.state.auth.alias(call.param("id")).await?.ok_or_else(Error::not_found)?;
    Ok(Answer::data(rendering::alias(&alias, &call.state.auth.mounts())))
}

pub(super) async fn list(call: Call) -> Result<Answer> {
    let Page { after, limit } = Page::of(&call.fields)?;
    let (auth, mounts) = (Arc::clone(&call.state.auth), call.state.auth.mounts());
    listing::answer(&call, Aliases { auth, mounts }, after, limit).await
}

struct Aliases {
    auth: Arc<Auth>,
    mounts: Arc<MountTable>,
}

impl Source for Aliases {
    type Place = String;

    fn page(&self, after: &String, most: usize, infos: bool) -> BoxFuture<'static, Result<listing::Page<String>>> {
        let (auth, mounts, after) = (Arc::clone(&self.auth), Arc::clone(&self.mounts), after.clone());
        let row = move |alias: AliasEntry| {
            let info = infos.then(|| rendering::alias_entry(&alias, &mounts));
            Row::named(alias.id.clone(), &alias.id, info)
        };
        listing::Page::read(async move { auth.alias_page(after, most as u32).await }, most, row)
    }

    fn most(&self) -> usize {
        listing::DETAILED
    }

    fn has_infos(&self) -> bool {
        true
    }
}

/// `DELETE identity/entity-alias/id/:id`; succeeds if the alias does not exist.
pub(super) async fn delete(call: Call) -> Result<Answer> {
    to_the_end(async move {
        call.state.auth.alias_delete(call.param("id")).await?;
        Ok(Answer::empty())
    })
    .await
}

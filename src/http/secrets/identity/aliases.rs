//! Entity aliases: create, change, read, list, delete.

use std::sync::Arc;

use serde_json::json;

use super::fields::requested_id;
use super::rendering;
use crate::auth::Auth;
use crate::auth::identity::AliasChange;
use crate::auth::mounts::MountTable;
use crate::auth::store::AliasEntry;
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::listing::{self, ListPageFuture, ListRow, RowSource};
use crate::http::secrets::page::PageParams;
use crate::http::secrets::route::Call;
use crate::http::secrets::sys::run_detached;

/// `POST identity/entity-alias`, with or without an id: creates or changes an alias.
pub(super) async fn write(call: Call) -> Result<HandlerResponse> {
    let entity = match call.fields.nonempty_text("canonical_id")? {
        None => call.fields.nonempty_text("entity_id")?,
        given => given,
    };
    let change = AliasChange {
        accessor: call.fields.nonempty_text("mount_accessor")?,
        name: call.fields.nonempty_text("name")?,
        entity,
        custom_metadata: call.fields.map("custom_metadata")?,
    };
    let id = requested_id(&call)?;
    run_detached(async move {
        let written = match id {
            Some(id) => call.state.auth.alias_change(&id, change).await?,
            None => call.state.auth.alias_write(change).await?,
        };
        Ok(match written {
            Some(alias) => HandlerResponse::data(json!({ "id": alias.id, "canonical_id": alias.entity })),
            None => HandlerResponse::empty(),
        })
    })
    .await
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let alias = call.state.auth.alias(call.param("id")).await?.ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(rendering::alias_json(&alias, &call.state.auth.mounts())))
}

pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    let PageParams { after, limit } = PageParams::of(&call.fields)?;
    let auth = Arc::clone(&call.state.auth);
    let mounts = call.state.auth.mounts();
    listing::build_response(&call, AliasSource { auth, mounts }, after, limit).await
}

struct AliasSource {
    auth: Arc<Auth>,
    mounts: Arc<MountTable>,
}

impl RowSource for AliasSource {
    type Position = String;

    fn page(&self, after: &String, max: usize, infos: bool) -> ListPageFuture<String> {
        let auth = Arc::clone(&self.auth);
        let mounts = Arc::clone(&self.mounts);
        let after = after.clone();
        let row = move |alias: AliasEntry| {
            let info = infos.then(|| rendering::alias_entry_json(&alias, &mounts));
            ListRow::named(alias.id.clone(), &alias.id, info)
        };
        listing::ListPage::read(async move { auth.alias_page(after, max as u32).await }, max, row)
    }

    fn has_details(&self) -> bool {
        true
    }
}

/// `DELETE identity/entity-alias/id/:id`; also succeeds if the alias does not exist.
pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.auth.alias_delete(call.param("id")).await.map(drop) }).await
}

//! Entities: create, change, read, list, look up, delete.

use std::sync::Arc;

use serde_json::json;

use super::fields::{exactly_one, requested_id};
use super::rendering;
use crate::auth::Auth;
use crate::auth::identity::EntityChange;
use crate::auth::mounts::MountTable;
use crate::auth::policy::lower;
use crate::auth::store::{EntityBy, EntityEntry, EntityPage};
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::listing::{self, ListPageFuture, ListRow, RowSource};
use crate::http::secrets::page::PageParams;
use crate::http::secrets::route::Call;
use crate::http::secrets::sys::run_detached;

/// `POST identity/entity`, with or without an id or a name: creates or changes an entity.
pub(super) async fn write(call: Call) -> Result<HandlerResponse> {
    let named = Some(call.param("name")).filter(|name| !name.is_empty()).map(str::to_owned);
    if named.is_some() && call.fields.nonempty_text("id")?.is_some() {
        // A caller who may access the path of one entity name must not reach another entity by its id.
        return Err(Error::invalid("id: must not be given on paths with an entity name"));
    }
    let change = EntityChange {
        name: if named.is_some() { named } else { call.fields.nonempty_text("name")? },
        metadata: call.fields.map("metadata")?,
        policies: call.fields.list("policies")?,
        disabled: call.fields.bool("disabled")?,
    };
    let id = requested_id(&call)?;
    run_detached(async move {
        let created = match id {
            Some(id) => call.state.auth.entity_change(&id, change).await.map(|()| None)?,
            None => call.state.auth.entity_write(change).await?,
        };
        Ok(match created {
            Some(entity) => HandlerResponse::data(json!({ "id": entity.id, "name": entity.name, "aliases": null })),
            None => HandlerResponse::empty(),
        })
    })
    .await
}

/// Returns the key of the entity in the path: its name or its id.
fn entity_in_path(call: &Call) -> EntityBy {
    match call.param("name") {
        "" => EntityBy::Id(call.param("id").to_owned()),
        name => EntityBy::Name(name.to_owned()),
    }
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    find(&call, entity_in_path(&call)).await?.ok_or_else(Error::not_found)
}

async fn find(call: &Call, by: EntityBy) -> Result<Option<HandlerResponse>> {
    let entity = call.state.auth.entity(by).await?;
    Ok(entity.map(|entity| HandlerResponse::data(rendering::entity_json(&entity, &call.state.auth.mounts()))))
}

/// `POST identity/lookup/entity`: finds an entity by exactly one of `id`, `name`, `alias_id`, or `alias_name` with
/// `alias_mount_accessor`. The response is empty if no entity matches.
pub(super) async fn lookup(call: Call) -> Result<HandlerResponse> {
    let alias = match (call.fields.nonempty_text("alias_name")?, call.fields.nonempty_text("alias_mount_accessor")?) {
        (Some(name), Some(accessor)) => Some(EntityBy::Alias { accessor, name }),
        (None, None) => None,
        _ => return Err(Error::invalid("both 'alias_name' and 'alias_mount_accessor' must be set")),
    };
    // Entity names are stored in lower case.
    let name = call.fields.nonempty_text("name")?.map(|name| lower(name.trim()).into_owned());
    let all = [
        call.fields.nonempty_text("id")?.map(EntityBy::Id),
        name.map(EntityBy::Name),
        call.fields.nonempty_text("alias_id")?.map(EntityBy::AliasId),
        alias,
    ];
    let rule = "exactly one of 'id', 'name', 'alias_id', and 'alias_name' with 'alias_mount_accessor' must be given";
    let by = exactly_one(all.into_iter().flatten().collect(), rule)?;
    Ok(find(&call, by).await?.unwrap_or_else(HandlerResponse::empty))
}

/// `LIST identity/entity/id` or `LIST identity/entity/name`: the ids or the names of all entities.
pub(super) async fn list<const BY_NAME: bool>(call: Call) -> Result<HandlerResponse> {
    let PageParams { after, limit } = PageParams::of(&call.fields)?;
    let auth = Arc::clone(&call.state.auth);
    let mounts = call.state.auth.mounts();
    listing::build_response(&call, EntitySource { auth, mounts, by_name: BY_NAME }, after, limit).await
}

struct EntitySource {
    auth: Arc<Auth>,
    mounts: Arc<MountTable>,
    by_name: bool,
}

impl RowSource for EntitySource {
    type Position = String;

    fn page(&self, after: &String, max: usize, infos: bool) -> ListPageFuture<String> {
        let auth = Arc::clone(&self.auth);
        let mounts = Arc::clone(&self.mounts);
        let by_name = self.by_name;
        let page = EntityPage { by_name, after: after.clone(), limit: max as u32 };
        let row = move |entry: EntityEntry| {
            let info = infos.then(|| {
                let aliases = entry.aliases.iter().map(|alias| rendering::alias_entry_json(alias, &mounts));
                json!({ "id": entry.id, "name": entry.name, "aliases": aliases.collect::<Vec<_>>() })
            });
            let key = if by_name { entry.name } else { entry.id };
            ListRow::named(key.clone(), &key, info)
        };
        listing::ListPage::read(async move { auth.entity_page(page).await }, max, row)
    }

    fn has_details(&self) -> bool {
        true
    }
}

/// `DELETE identity/entity/…`; also succeeds if the entity does not exist.
pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.auth.entity_delete(entity_in_path(&call)).await.map(drop) }).await
}

//! Renders entities and aliases.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::auth::identity::{Alias, Entity};
use crate::auth::mounts::MountTable;
use crate::auth::store::AliasEntry;
use crate::clock::format_rfc3339;

/// Renders an entity.
pub(in crate::http::secrets) fn entity_json(entity: &Entity, mounts: &MountTable) -> Value {
    json!({
        "id": entity.id,
        "name": entity.name,
        "metadata": pairs_or_null(&entity.metadata),
        "policies": entity.policies,
        "disabled": entity.disabled,
        "aliases": entity.aliases.iter().map(|one| alias_json(one, mounts)).collect::<Vec<_>>(),
        "creation_time": format_rfc3339(entity.created_at),
        "last_update_time": format_rfc3339(entity.updated_at),
        "namespace_id": "root",
        "merged_entity_ids": null,
        "direct_group_ids": [],
        "inherited_group_ids": [],
        "group_ids": [],
    })
}

/// Renders the external groups that the entity's latest logins named. Only the names of these groups are known.
pub(in crate::http::secrets) fn groups_json(entity: &Entity) -> Vec<Value> {
    let of = |alias: &Alias| {
        let accessor = alias.accessor.clone();
        alias.groups.clone().into_iter().map(move |name| json!({ "name": name, "mount_accessor": accessor }))
    };
    entity.aliases.iter().flat_map(of).collect()
}

pub(super) fn alias_json(alias: &Alias, mounts: &MountTable) -> Value {
    let (path, kind) = mount_path_and_type(mounts, &alias.accessor);
    json!({
        "id": alias.id,
        "canonical_id": alias.entity,
        "name": alias.name,
        "mount_accessor": alias.accessor,
        "mount_path": path,
        "mount_type": kind,
        "metadata": pairs_or_null(&alias.metadata),
        "custom_metadata": pairs_or_null(&alias.custom_metadata),
        "creation_time": format_rfc3339(alias.created_at),
        "last_update_time": format_rfc3339(alias.updated_at),
        "merged_from_canonical_ids": null,
        "namespace_id": "root",
        "local": false,
    })
}

pub(super) fn alias_entry_json(alias: &AliasEntry, mounts: &MountTable) -> Value {
    let (path, kind) = mount_path_and_type(mounts, &alias.accessor);
    json!({
        "id": alias.id,
        "canonical_id": alias.entity,
        "name": alias.name,
        "mount_accessor": alias.accessor,
        "mount_path": path,
        "mount_type": kind,
        "local": false,
    })
}

fn pairs_or_null(pairs: &BTreeMap<String, String>) -> Value {
    if pairs.is_empty() { Value::Null } else { json!(pairs) }
}

/// Returns the path and the type of the mount with an accessor; empty texts if the mount was removed.
fn mount_path_and_type<'m>(mounts: &'m MountTable, accessor: &str) -> (&'m str, &'m str) {
    let mount = mounts.iter().find(|mount| mount.accessor == accessor);
    mount.map_or(("", ""), |mount| (&mount.path, mount.kind.name()))
}

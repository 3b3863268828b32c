//! Identities (`identity/`): entities and their aliases. Groups, merging and the other paths below `identity/` are not
//! supported.

mod aliases;
mod entities;
mod fields;
pub(super) mod rendering;

use super::page::PAGE_FIELDS;
use super::route::{Route, routes};

const ENTITY_FIELDS: &[&str] = &["id", "name", "metadata", "policies", "disabled"];
const ALIAS_FIELDS: &[&str] = &["id", "name", "canonical_id", "entity_id", "mount_accessor", "custom_metadata"];
/// Deprecated names of fields, with their current names.
const DEPRECATED_FIELDS: &[(&str, &str)] = &[("entity_id", "canonical_id")];
const LOOKUP_FIELDS: &[&str] = &["id", "name", "alias_id", "alias_name", "alias_mount_accessor"];

/// The routes of the identity mount.
pub static ROUTES: &[Route] = routes! {
    token Update "entity" ENTITY_FIELDS => entities::write;
    token List "entity/id" PAGE_FIELDS => entities::list::<false>;
    (token.compressible()) Read "entity/id/:id" &[] => entities::read;
    token Update "entity/id/:id" ENTITY_FIELDS => entities::write;
    token Delete "entity/id/:id" &[] => entities::delete;
    token List "entity/name" PAGE_FIELDS => entities::list::<true>;
    (token.compressible()) Read "entity/name/*name" &[] => entities::read;
    token Update "entity/name/*name" ENTITY_FIELDS => entities::write;
    token Delete "entity/name/*name" &[] => entities::delete;
    (token.with_synonyms(DEPRECATED_FIELDS)) Update "entity-alias" ALIAS_FIELDS => aliases::write;
    token List "entity-alias/id" PAGE_FIELDS => aliases::list;
    (token.compressible()) Read "entity-alias/id/:id" &[] => aliases::read;
    (token.with_synonyms(DEPRECATED_FIELDS)) Update "entity-alias/id/:id" ALIAS_FIELDS => aliases::write;
    token Delete "entity-alias/id/:id" &[] => aliases::delete;
    token Update "lookup/entity" LOOKUP_FIELDS => entities::lookup;
};

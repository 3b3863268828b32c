//! Identities (`identity/`): entities and their aliases. Groups, merging and the other parts of that path are not
//! supported.

mod aliases;
mod entities;
mod fields;
pub(super) mod rendering;

use super::route::Operation::{Delete, List, Read, Update};
use super::route::Route;

const ENTITY_FIELDS: &[&str] = &["id", "name", "metadata", "policies", "disabled"];
const ALIAS_FIELDS: &[&str] = &["id", "name", "canonical_id", "entity_id", "mount_accessor", "custom_metadata"];
/// Deprecated field names and their current names.
const DEPRECATED_FIELDS: &[(&str, &str)] = &[("entity_id", "canonical_id")];
const LOOKUP_FIELDS: &[&str] = &["id", "name", "alias_id", "alias_name", "alias_mount_accessor"];
const PAGE_FIELDS: &[&str] = &["after", "limit"];

/// The routes of the identity mount.
pub static ROUTES: &[Route] = &[
    Route::token(Update, "entity", ENTITY_FIELDS, |call| Box::pin(entities::write(call))),
    Route::token(List, "entity/id", PAGE_FIELDS, |call| Box::pin(entities::list_by_id(call))),
    Route::token(Read, "entity/id/:id", &[], |call| Box::pin(entities::read_by_id(call))).compressible(),
    Route::token(Update, "entity/id/:id", ENTITY_FIELDS, |call| Box::pin(entities::write(call))),
    Route::token(Delete, "entity/id/:id", &[], |call| Box::pin(entities::delete_by_id(call))),
    Route::token(List, "entity/name", PAGE_FIELDS, |call| Box::pin(entities::list_by_name(call))),
    Route::token(Read, "entity/name/*name", &[], |call| Box::pin(entities::read_by_name(call))).compressible(),
    Route::token(Update, "entity/name/*name", ENTITY_FIELDS, |call| Box::pin(entities::write(call))),
    Route::token(Delete, "entity/name/*name", &[], |call| Box::pin(entities::delete_by_name(call))),
    Route::token(Update, "entity-alias", ALIAS_FIELDS, |call| Box::pin(aliases::write(call)))
        .with_synonyms(DEPRECATED_FIELDS),
    Route::token(List, "entity-alias/id", PAGE_FIELDS, |call| Box::pin(aliases::list(call))),
    Route::token(Read, "entity-alias/id/:id", &[], |call| Box::pin(aliases::read(call))).compressible(),
    Route::token(Update, "entity-alias/id/:id", ALIAS_FIELDS, |call| Box::pin(aliases::write(call)))
        .with_synonyms(DEPRECATED_FIELDS),
    Route::token(Delete, "entity-alias/id/:id", &[], |call| Box::pin(aliases::delete(call))),
    Route::token(Update, "lookup/entity", LOOKUP_FIELDS, |call| Box::pin(entities::lookup(call))),
];

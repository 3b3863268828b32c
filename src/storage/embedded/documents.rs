//! SQL of sealed documents, with compare-and-set on the version.

use rusqlite::{Connection, Row, params};

use super::query::{SqliteError, prepare};
use crate::documents::{DocumentWrite, MountId};
use crate::storage::backend::SealedDocument;
use crate::storage::statements::{conflict, documents as sql};

pub(super) fn write(db: &Connection, write: &DocumentWrite) -> Result<(), SqliteError> {
    let DocumentWrite { key, expected, body } = write;
    let mount = key.mount.0;
    let kind = key.kind;
    let name = &key.name;
    let holds = match (expected, body) {
        (0, Some(body)) => prepare(db, sql::INSERT)?.execute(params![mount, kind, name, body])? == 1,
        (_, Some(body)) => prepare(db, sql::UPDATE)?.execute(params![body, mount, kind, name, *expected as i64])? == 1,
        // Deleting a document that must be absent only checks the condition.
        (0, None) => !prepare(db, sql::EXISTS)?.exists(params![mount, kind, name])?,
        (_, None) => prepare(db, sql::DELETE)?.execute(params![mount, kind, name, *expected as i64])? == 1,
    };
    if holds { Ok(()) } else { Err(SqliteError::Conflict(conflict::DOCUMENT_CHANGED)) }
}

pub(super) fn list(
    db: &Connection,
    mount: MountId,
    kind: Option<&'static str>,
) -> rusqlite::Result<Vec<SealedDocument>> {
    match kind {
        None => prepare(db, sql::LIST)?.query_map([mount.0], read)?.collect(),
        Some(kind) => prepare(db, sql::LIST_KIND)?.query_map(params![mount.0, kind], read)?.collect(),
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<SealedDocument> {
    Ok(SealedDocument {
        kind: row.get(0)?,
        name: row.get(1)?,
        version: row.get::<_, i64>(2)? as u64,
        body: row.get(3)?,
    })
}

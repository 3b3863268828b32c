//! SQL of the sealed configuration documents: compare-and-set on the version.

use rusqlite::{Connection, Row, params};

use super::{Failure, prepared};
use crate::documents::{DocumentWrite, MountId};
use crate::storage::backend::{Outcome, SealedDocument};

const INSERT: &str = "INSERT INTO document (mount, kind, name, version, body) VALUES ($1, $2, $3, 1, $4)
    ON CONFLICT (mount, kind, name) DO NOTHING";
const UPDATE: &str = "UPDATE document SET version = version + 1, body = $1
    WHERE mount = $2 AND kind = $3 AND name = $4 AND version = $5";
const DELETE: &str = "DELETE FROM document WHERE mount = $1 AND kind = $2 AND name = $3 AND version = $4";
const EXISTS: &str = "SELECT 1 FROM document WHERE mount = $1 AND kind = $2 AND name = $3";
const LIST: &str = "SELECT kind, name, version, body FROM document WHERE mount = $1 ORDER BY kind, name";
const LIST_KIND: &str = "SELECT kind, name, version, body FROM document WHERE mount = $1 AND kind = $2 ORDER BY name";

pub(super) fn write(db: &Connection, write: &DocumentWrite) -> Result<Outcome, Failure> {
    let DocumentWrite { key, expected, body } = write;
    let (mount, kind, name) = (key.mount.0, key.kind, &key.name);
    let holds = match (expected, body) {
        (0, Some(body)) => prepared(db, INSERT)?.execute(params![mount, kind, name, body])? == 1,
        (_, Some(body)) => prepared(db, UPDATE)?.execute(params![body, mount, kind, name, *expected as i64])? == 1,
        // Deleting what must not exist: only the condition is left of it.
        (0, None) => !prepared(db, EXISTS)?.exists(params![mount, kind, name])?,
        (_, None) => prepared(db, DELETE)?.execute(params![mount, kind, name, *expected as i64])? == 1,
    };
    if holds { Ok(Outcome::Done) } else { Err(Failure::Conflict("storage: the document has changed meanwhile")) }
}

pub(super) fn list(
    db: &Connection,
    mount: MountId,
    kind: Option<&'static str>,
) -> rusqlite::Result<Vec<SealedDocument>> {
    match kind {
        None => prepared(db, LIST)?.query_map([mount.0], read)?.collect(),
        Some(kind) => prepared(db, LIST_KIND)?.query_map(params![mount.0, kind], read)?.collect(),
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

//! SQL of sealed documents, with compare-and-set on the version.

use super::query::{PostgresClient, PostgresError, execute, exists, rows};
use crate::documents::{DocumentWrite, MountId};
use crate::storage::backend::SealedDocument;
use crate::storage::statements::{conflict, documents as sql};

pub(super) async fn write(db: &PostgresClient, write: &DocumentWrite) -> Result<(), PostgresError> {
    let DocumentWrite { key, expected, body } = write;
    let mount = key.mount.0;
    let kind = key.kind;
    let name = &key.name;
    let version = *expected as i64;
    let holds = match (expected, body) {
        (0, Some(body)) => execute(db, sql::INSERT, &[&mount, &kind, name, body]).await? == 1,
        (_, Some(body)) => execute(db, sql::UPDATE, &[body, &mount, &kind, name, &version]).await? == 1,
        // Deleting a document that must be absent only checks the condition.
        (0, None) => !exists(db, sql::EXISTS, &[&mount, &kind, name]).await?,
        (_, None) => execute(db, sql::DELETE, &[&mount, &kind, name, &version]).await? == 1,
    };
    if holds { Ok(()) } else { Err(PostgresError::Conflict(conflict::DOCUMENT_CHANGED)) }
}

pub(super) async fn list(
    db: &PostgresClient,
    mount: MountId,
    kind: Option<&'static str>,
) -> Result<Vec<SealedDocument>, PostgresError> {
    let found = match kind {
        None => rows(db, sql::LIST, &[&mount.0]).await?,
        Some(kind) => rows(db, sql::LIST_KIND, &[&mount.0, &kind]).await?,
    };
    let read = |row: &tokio_postgres::Row| {
        Ok(SealedDocument {
            kind: row.try_get(0)?,
            name: row.try_get(1)?,
            version: row.try_get::<_, i64>(2)? as u64,
            body: row.try_get(3)?,
        })
    };
    found.iter().map(read).collect()
}

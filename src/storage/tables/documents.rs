//! Writes (with compare-and-set on the version) and reads of sealed documents.

use super::{TableConnection, TableError, TableResult, exists};
use crate::documents::{DocumentWrite, MountId};
use crate::sql::{SqlError, SqlRow, SqlValue};
use crate::storage::backend::SealedDocument;
use crate::storage::engine::{WriteResult, WriteTransaction};
use crate::storage::statements::{conflict, documents as sql};

/// Writes a document. First checks that the mount of the document exists, and prevents its removal until the
/// transaction ends.
pub(crate) async fn write_in<T: WriteTransaction>(tx: &mut T, write: &DocumentWrite) -> WriteResult<T, ()> {
    tx.require_mount(write.key.mount).await?;
    self::write(tx.db(), write).await?;
    tx.mark_documents(write.key.mount);
    Ok(())
}

async fn write<C: TableConnection>(db: &C, write: &DocumentWrite) -> TableResult<C, ()> {
    let DocumentWrite { key, expected, body } = write;
    let mount: SqlValue = key.mount.0.into();
    let kind: SqlValue = key.kind.into();
    let name: SqlValue = key.name.clone().into();
    let version: SqlValue = (*expected as i64).into();
    let holds = match (expected, body.clone().map(SqlValue::from)) {
        (0, Some(body)) => db.execute(sql::INSERT, &[mount, kind, name, body]).await? == 1,
        (_, Some(body)) => db.execute(sql::UPDATE, &[body, mount, kind, name, version]).await? == 1,
        // A deletion that expects version 0 only checks that the document does not exist.
        (0, None) => !exists(db, sql::EXISTS, &[mount, kind, name]).await?,
        (_, None) => db.execute(sql::DELETE, &[mount, kind, name, version]).await? == 1,
    };
    if holds { Ok(()) } else { Err(TableError::Conflict(conflict::DOCUMENT_CHANGED)) }
}

pub(crate) async fn list<C: TableConnection>(
    db: &C,
    mount: MountId,
    kind: Option<&'static str>,
) -> TableResult<C, Vec<SealedDocument>> {
    let found = match kind {
        None => db.rows(sql::LIST, &[mount.0.into()]).await?,
        Some(kind) => db.rows(sql::LIST_KIND, &[mount.0.into(), kind.into()]).await?,
    };
    Ok(found.into_iter().map(read_document).collect::<Result<_, _>>()?)
}

fn read_document(mut row: SqlRow) -> Result<SealedDocument, SqlError> {
    Ok(SealedDocument { kind: row.get()?, name: row.get()?, version: row.get()?, body: row.get()? })
}

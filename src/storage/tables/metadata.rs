//! Reads of certificate metadata. Each engine implements its insertion itself, together with the certificate.

use super::{TableConnection, TableResult, map_row};
use crate::documents::MountId;
use crate::pki::store::MetadataRow;
use crate::storage::statements::metadata as sql;
use crate::x509::serial::Serial;

pub(crate) async fn get<C: TableConnection>(
    db: &C,
    mount: MountId,
    serial: Serial,
) -> TableResult<C, Option<MetadataRow>> {
    map_row(db, sql::GET, &[mount.into(), serial.into()], |row| {
        Ok(MetadataRow { mount, serial, not_after: row.get()?, body: row.get()? })
    })
    .await
}

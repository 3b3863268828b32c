//! Lists of certificates, and lookups of certificates and revocations by serial number.

use std::collections::HashMap;

use super::{TableConnection, TableResult, column, map_rows, serial_list};
use crate::documents::MountId;
use crate::pki::store::{KnownSerial, SerialAndDer};
use crate::sql::{SqlError, SqlRow};
use crate::storage::statements::certificates as sql;
use crate::x509::serial::Serial;

/// Reads a page of the serial numbers that the query `sql` lists, starting after the serial number `after`.
pub(crate) async fn serials<C: TableConnection>(
    db: &C,
    sql: &'static str,
    mount: MountId,
    after: Option<Serial>,
    limit: u32,
) -> TableResult<C, Vec<Serial>> {
    column(db, sql, &[mount.into(), page_start(after).into(), i64::from(limit).into()]).await
}

pub(crate) async fn page_with_der<C: TableConnection>(
    db: &C,
    mount: MountId,
    after: Option<Serial>,
    limit: u32,
) -> TableResult<C, Vec<SerialAndDer>> {
    map_rows(db, sql::PAGE, &[mount.into(), page_start(after).into(), i64::from(limit).into()], read_serial_and_der)
        .await
}

pub(crate) async fn unexpired<C: TableConnection>(
    db: &C,
    mount: MountId,
    from: i64,
    limit: u32,
) -> TableResult<C, Vec<SerialAndDer>> {
    map_rows(db, sql::SELECT_UNEXPIRED, &[mount.into(), from.into(), i64::from(limit).into()], read_serial_and_der)
        .await
}

/// The first page starts after the empty string, which sorts before every serial number.
fn page_start(after: Option<Serial>) -> Vec<u8> {
    after.as_ref().map_or(&[][..], Serial::octets).to_vec()
}

fn read_serial_and_der(row: &mut SqlRow) -> Result<SerialAndDer, SqlError> {
    Ok((row.get()?, row.get()?))
}

pub(crate) async fn known_serials<C: TableConnection>(
    db: &C,
    mount: MountId,
    serials: Vec<Serial>,
) -> TableResult<C, Vec<KnownSerial>> {
    let mut known: HashMap<Serial, KnownSerial> = HashMap::new();
    for mut row in db.rows(sql::SELECT_KNOWN_SERIALS, &[mount.into(), serial_list(&serials)]).await? {
        let entry = known.entry(row.get()?).or_default();
        let issuer: String = row.get()?;
        match row.get()? {
            Some(not_after) => entry.certificate = Some((issuer, not_after)),
            None => entry.revocation = Some(issuer),
        }
    }
    Ok(serials.iter().map(|serial| known.get(serial).cloned().unwrap_or_default()).collect())
}

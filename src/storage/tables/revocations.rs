//! Changes of the issuer of a revocation. Each engine implements all other writes and reads of revocations itself.

use super::{TableConnection, TableResult, count};
use crate::documents::MountId;
use crate::storage::statements::revocations as sql;
use crate::x509::serial::Serial;

/// Changes the issuer of a revocation. Returns the number of changed rows.
pub(crate) async fn set_issuer<C: TableConnection>(
    db: &C,
    mount: MountId,
    serial: Serial,
    issuer: &str,
) -> TableResult<C, u32> {
    db.execute(sql::SET_ISSUER, &[issuer.into(), mount.into(), serial.into()]).await.map(count)
}

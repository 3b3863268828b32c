//! Reads and removal of recorded responses. Each engine implements their insertion itself, together with the
//! certificate.

use super::{TableConnection, TableResult, count, map_row};
use crate::pki::store::RecordedResponseRow;
use crate::storage::statements::recorded_responses as sql;

pub(crate) async fn sweep<C: TableConnection>(db: &C, now: i64, limit: u32) -> TableResult<C, u32> {
    db.execute(sql::SWEEP, &[now.into(), i64::from(limit).into()]).await.map(count)
}

pub(crate) async fn get<C: TableConnection>(db: &C, key: [u8; 32]) -> TableResult<C, Option<RecordedResponseRow>> {
    map_row(db, sql::GET, &[key.into()], |row| {
        Ok(RecordedResponseRow {
            key,
            request: row.get()?,
            serial: row.get()?,
            lease: row.get()?,
            expires_at: row.get()?,
        })
    })
    .await
}

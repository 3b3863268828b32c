//! Decrypts every sealed value with the associated data of its row. A value that was altered or moved to another row
//! does not decrypt.

use crate::error::Result;
use crate::projects::store::ProjectStore;
use crate::sql::SqlValue;
use crate::storage::keys::StoreKeys;
use crate::storage::scan;
use crate::storage::sealed_tables::{SEALED_TABLES, SealedTable};
use crate::storage::verify::findings::Findings;

const ROWS_PER_PAGE: usize = 500;

pub(super) async fn check_all(store: &dyn ProjectStore, keys: &StoreKeys, findings: &mut Findings) -> Result<()> {
    for table in &SEALED_TABLES {
        let mut columns = table.columns();
        columns.push("body");
        let mut after: Vec<SqlValue> = Vec::new();
        loop {
            let text = table.page_sql(&columns.join(", "), 1, !after.is_empty());
            let values = [after, vec![(ROWS_PER_PAGE as i64).into()]].concat();
            let rows = scan::query_rows(store, &text, values).await?;
            let full = rows.len() == ROWS_PER_PAGE;
            after = Vec::new();
            for mut row in rows {
                let row: Vec<SqlValue> =
                    columns.iter().map(|_| row.value()).collect::<Result<_, _>>().map_err(scan::query_error)?;
                after = row[..table.key.len()].to_vec();
                if !can_open(keys, table, &row) {
                    let key = format_key(table.key, &after);
                    findings.add(format!("{}: the body of the row with {key} cannot be decrypted", table.table));
                }
            }
            if !full {
                break;
            }
        }
    }
    Ok(())
}

fn can_open(keys: &StoreKeys, table: &SealedTable, row: &[SqlValue]) -> bool {
    let Some((SqlValue::Bytes(body), columns)) = row.split_last() else { return false };
    table.context(columns).is_some_and(|context| keys.open(&context, body).is_ok())
}

/// Formats a primary key with the names of its columns, for a finding. Keys contain no secrets.
pub(super) fn format_key(columns: &[&str], key: &[SqlValue]) -> String {
    let format_value = |value: &SqlValue| match value {
        SqlValue::Int(number) => number.to_string(),
        SqlValue::Text(text) => format!("{text:?}"),
        SqlValue::Bytes(bytes) => bytes.iter().take(20).map(|byte| format!("{byte:02x}")).collect(),
        _ => String::new(),
    };
    let labelled = columns.iter().zip(key).map(|(column, value)| format!("{column} {}", format_value(value)));
    labelled.collect::<Vec<_>>().join(", ")
}

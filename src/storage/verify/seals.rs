//! Check of every sealed value: each is opened with the associated data of its row. A value that was altered, moved to
//! another row or rolled back does not open.

use crate::error::Result;
use crate::projects::store::ProjectStore;
use crate::sql::Value;
use crate::storage::keys::Keys;
use crate::storage::scan;
use crate::storage::sealed::{Sealed, TABLES};
use crate::storage::verify::findings::Findings;

const PAGE: usize = 500;

pub(super) async fn open_all(store: &dyn ProjectStore, keys: &Keys, findings: &mut Findings) -> Result<()> {
    for table in &TABLES {
        let mut columns = table.columns();
        columns.push("body");
        let mut after: Vec<Value> = Vec::new();
        loop {
            let text = table.rows(&columns.join(", "), 1, !after.is_empty());
            let values = [after, vec![(PAGE as i64).into()]].concat();
            let rows = scan::rows(store, &text, values).await?;
            let full = rows.len() == PAGE;
            after = Vec::new();
            for mut row in rows {
                let row: Vec<Value> =
                    columns.iter().map(|_| row.value()).collect::<Result<_, _>>().map_err(scan::error)?;
                after = row[..table.key.len()].to_vec();
                if !opens(keys, table, &row) {
                    findings.add(format!("{}: the body of {} does not open", table.table, named(&after)));
                }
            }
            if !full {
                break;
            }
        }
    }
    Ok(())
}

fn opens(keys: &Keys, table: &Sealed, row: &[Value]) -> bool {
    let Some((Value::Bytes(body), columns)) = row.split_last() else { return false };
    table.context(columns).is_some_and(|context| keys.open(&context, body).is_ok())
}

/// Formats a primary key for a finding. Keys contain no secrets.
pub(super) fn named(key: &[Value]) -> String {
    let one = |value: &Value| match value {
        Value::Int(number) => number.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::Bytes(bytes) => bytes.iter().take(20).map(|byte| format!("{byte:02x}")).collect(),
        _ => String::new(),
    };
    key.iter().map(one).collect::<Vec<_>>().join(" ")
}

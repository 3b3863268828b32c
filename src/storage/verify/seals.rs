//! Every sealed value of a store: each is opened as the row that it stands in says. One that was altered, moved to
//! another row or put back from another time does not open.

use crate::auth::store::SecretIdRow;
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::Result;
use crate::projects::store::ProjectStore;
use crate::sql::Value;
use crate::storage::backend::from_micros;
use crate::storage::keys::Keys;
use crate::storage::scan;
use crate::storage::seal::{
    cubbyhole_context, document_context, identity_context, metadata_context, secret_id_context, token_context,
};
use crate::storage::verify::findings::Findings;
use crate::x509::serial::Serial;

/// Rows at a time.
const PAGE: usize = 500;

/// A table with a sealed body.
pub(super) struct Sealed {
    pub(super) table: &'static str,
    /// The columns that are its key, from the first one on; then come others that the seal binds.
    key: &'static [&'static str],
    others: &'static [&'static str],
    /// Below every key.
    least: fn() -> Vec<Value>,
    /// What a body is sealed to; `None` when the columns cannot be those of such a row.
    context: fn(&Columns<'_>) -> Option<Vec<u8>>,
}

/// Every table with sealed bodies.
pub(super) const TABLES: &[Sealed] = &[
    Sealed {
        table: "document",
        key: &["mount", "kind", "name"],
        others: &["version"],
        least: || vec![(-1).into(), "".into(), "".into()],
        context: |c| Some(document_context(MountId(c.int(0)?), c.text(1)?, c.text(2)?, c.int(3)? as u64)),
    },
    Sealed {
        table: "token",
        key: &["hash"],
        others: &["expires_at_micros"],
        least: || vec![Vec::<u8>::new().into()],
        context: |c| Some(token_context(&c.hash(0)?, c.end(1)?)),
    },
    Sealed {
        table: "cubbyhole",
        key: &["token", "path"],
        others: &[],
        least: || vec![Vec::<u8>::new().into(), "".into()],
        context: |c| Some(cubbyhole_context(&c.hash(0)?, c.text(1)?)),
    },
    Sealed {
        table: "certificate_metadata",
        key: &["mount", "serial"],
        others: &["not_after"],
        least: || vec![(-1).into(), Vec::<u8>::new().into()],
        context: |c| Some(metadata_context(MountId(c.int(0)?), Serial::from_octets(c.bytes(1)?).ok()?, c.int(2)?)),
    },
    Sealed {
        table: "secret_id",
        key: &["mount", "hash"],
        others: &["role", "accessor", "expires_at_micros"],
        least: || vec![(-1).into(), Vec::<u8>::new().into()],
        context: secret_id,
    },
    Sealed {
        table: "entity",
        key: &["id"],
        others: &["name", "version"],
        least: || vec!["".into()],
        context: |c| Some(identity_context("entity", &[c.text(0)?, c.text(1)?], c.int(2)? as u64)),
    },
    Sealed {
        table: "entity_alias",
        key: &["id"],
        others: &["accessor", "name", "entity", "version"],
        least: || vec!["".into()],
        context: |c| {
            let columns = [c.text(0)?, c.text(1)?, c.text(2)?, c.text(3)?];
            Some(identity_context("alias", &columns, c.int(4)? as u64))
        },
    },
];

fn secret_id(c: &Columns<'_>) -> Option<Vec<u8>> {
    let row = SecretIdRow {
        mount: MountId(c.int(0)?),
        hash: c.bytes(1)?.try_into().ok()?,
        role: c.int(2)?,
        accessor: c.text(3)?.to_owned(),
        expires_at: c.end(4)?,
        uses: None,
        updated_at: Time::UNIX_EPOCH,
        body: Vec::new(),
    };
    Some(secret_id_context(&row))
}

/// The columns of a row, in the order of the table's lists.
pub(super) struct Columns<'r>(&'r [Value]);

impl Columns<'_> {
    fn int(&self, n: usize) -> Option<i64> {
        if let Value::Int(value) = self.0.get(n)? { Some(*value) } else { None }
    }

    fn text(&self, n: usize) -> Option<&str> {
        if let Value::Text(value) = self.0.get(n)? { Some(value) } else { None }
    }

    fn bytes(&self, n: usize) -> Option<&[u8]> {
        if let Value::Bytes(value) = self.0.get(n)? { Some(value) } else { None }
    }

    fn hash(&self, n: usize) -> Option<[u8; 32]> {
        self.bytes(n)?.try_into().ok()
    }

    /// A time that may be none.
    fn end(&self, n: usize) -> Option<Option<Time>> {
        if *self.0.get(n)? == Value::Null { Some(None) } else { from_micros(self.int(n)?).map(Some) }
    }
}

/// Opens all of them.
pub(super) async fn open_all(store: &dyn ProjectStore, keys: &Keys, findings: &mut Findings) -> Result<()> {
    for table in TABLES {
        let columns = table.key.len() + table.others.len() + 1;
        let text = text(table);
        let mut after = (table.least)();
        loop {
            let mut values = after.clone();
            values.push((PAGE as i64).into());
            let rows = scan::rows(store, &text, values).await?;
            let full = rows.len() == PAGE;
            for mut row in rows {
                let row: Vec<Value> =
                    (0..columns).map(|_| row.value()).collect::<Result<_, _>>().map_err(scan::error)?;
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
    (table.context)(&Columns(columns)).is_some_and(|context| keys.open(&context, body).is_ok())
}

/// A page of a table, in the order of its key.
fn text(table: &Sealed) -> String {
    let key = table.key.join(", ");
    let places: Vec<_> = (1..=table.key.len()).map(|n| format!("${n}")).collect();
    let others: String = table.others.iter().map(|column| format!(", {column}")).collect();
    let limit = table.key.len() + 1;
    format!(
        "SELECT {key}{others}, body FROM {} WHERE ({key}) > ({}) ORDER BY {key} LIMIT ${limit}",
        table.table,
        places.join(", ")
    )
}

/// A key, as a finding names it: nothing of it is secret.
pub(super) fn named(key: &[Value]) -> String {
    let one = |value: &Value| match value {
        Value::Int(number) => number.to_string(),
        Value::Text(text) => format!("{text:?}"),
        Value::Bytes(bytes) => bytes.iter().take(20).map(|byte| format!("{byte:02x}")).collect(),
        _ => String::new(),
    };
    key.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_behind_its_key() {
        let of = |name: &str| text(TABLES.iter().find(|table| table.table == name).unwrap());
        assert_eq!(
            of("document"),
            "SELECT mount, kind, name, version, body FROM document WHERE (mount, kind, name) > ($1, $2, $3) \
             ORDER BY mount, kind, name LIMIT $4"
        );
        assert_eq!(
            of("token"),
            "SELECT hash, expires_at_micros, body FROM token WHERE (hash) > ($1) ORDER BY hash LIMIT $2"
        );
    }
}

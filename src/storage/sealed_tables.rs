//! The tables with sealed bodies and the associated data of their bodies. A test compares the list with the schemas.

use crate::auth::store::SecretIdRow;
use crate::clock::Time;
use crate::documents::MountId;
use crate::sql::SqlValue;
use crate::storage::backend::from_micros;
use crate::storage::seal::{
    api_token_context, cubbyhole_context, document_context, identity_context, metadata_context, secret_id_context,
    token_context,
};
use crate::x509::serial::Serial;

/// A table with a sealed column `body`.
pub(super) struct SealedTable {
    pub(super) table: &'static str,
    /// The columns of the primary key.
    pub(super) key: &'static [&'static str],
    /// Columns outside of the primary key that are part of the associated data.
    bound: &'static [&'static str],
    /// Builds the associated data from the values of `key` and `bound`, in this order.
    context: fn(&ColumnValues<'_>) -> Option<Vec<u8>>,
    /// Number of rows per step of resealing; lower for a table whose bodies may be large.
    pub(super) page_rows: i64,
}

/// All tables with sealed bodies. The progress of resealing stores an index into this list, so new tables are appended.
pub(super) static SEALED_TABLES: [SealedTable; 8] = [
    SealedTable {
        table: "document",
        key: &["mount", "kind", "name"],
        bound: &["version"],
        context: |c| Some(document_context(MountId(c.int(0)?), c.text(1)?, c.text(2)?, c.int(3)? as u64)),
        page_rows: 64,
    },
    SealedTable {
        table: "token",
        key: &["hash"],
        bound: &["expires_at_micros"],
        context: |c| Some(token_context(&c.hash(0)?, c.nullable_time(1)?)),
        page_rows: 128,
    },
    SealedTable {
        table: "cubbyhole",
        key: &["token", "path"],
        bound: &[],
        context: |c| Some(cubbyhole_context(&c.hash(0)?, c.text(1)?)),
        page_rows: 8,
    },
    SealedTable {
        table: "entity",
        key: &["id"],
        bound: &["name", "version"],
        context: |c| Some(identity_context("entity", &[c.text(0)?, c.text(1)?], c.int(2)? as u64)),
        page_rows: 64,
    },
    SealedTable {
        table: "entity_alias",
        key: &["id"],
        bound: &["accessor", "name", "entity", "version"],
        context: |c| {
            let columns = [c.text(0)?, c.text(1)?, c.text(2)?, c.text(3)?];
            Some(identity_context("alias", &columns, c.int(4)? as u64))
        },
        page_rows: 64,
    },
    SealedTable {
        table: "secret_id",
        key: &["mount", "hash"],
        bound: &["role", "accessor", "expires_at_micros"],
        context: secret_id_associated_data,
        page_rows: 64,
    },
    SealedTable {
        table: "certificate_metadata",
        key: &["mount", "serial"],
        bound: &["not_after"],
        context: |c| Some(metadata_context(MountId(c.int(0)?), Serial::from_octets(c.bytes(1)?).ok()?, c.int(2)?)),
        page_rows: 64,
    },
    SealedTable {
        table: "api_tokens",
        key: &["id"],
        bound: &["lookup", "secret_sha256", "user_id", "team_id", "org_id", "kind", "expired_at"],
        context: |c| {
            let holder = [c.nullable_int(3)?, c.nullable_int(4)?, c.nullable_int(5)?];
            Some(api_token_context(c.text(1)?, c.bytes(2)?, holder, c.text(6)?, c.nullable_int(7)?))
        },
        page_rows: 128,
    },
];

impl SealedTable {
    pub(super) fn columns(&self) -> Vec<&'static str> {
        [self.key, self.bound].concat()
    }

    /// Returns the associated data of a row with these columns; `None` if a column has an invalid value.
    pub(super) fn context(&self, columns: &[SqlValue]) -> Option<Vec<u8>> {
        (self.context)(&ColumnValues(columns))
    }

    /// Returns the query for `columns` of a page of rows, in the order of the primary key: the rows after a start key
    /// if `has_start_key`, else the first rows. Its parameters, from `$first` on, are the columns of the start key, if
    /// any, and the limit.
    pub(super) fn page_sql(&self, columns: &str, first: usize, has_start_key: bool) -> String {
        let key = self.key.join(", ");
        let parameters: Vec<_> = (first..).take(self.key.len()).map(|n| format!("${n}")).collect();
        let (behind, limit) = match has_start_key {
            true => (format!("WHERE ({key}) > ({}) ", parameters.join(", ")), first + self.key.len()),
            false => (String::new(), first),
        };
        format!("SELECT {columns} FROM {} {behind}ORDER BY {key} LIMIT ${limit}", self.table)
    }
}

fn secret_id_associated_data(c: &ColumnValues<'_>) -> Option<Vec<u8>> {
    let row = SecretIdRow {
        mount: MountId(c.int(0)?),
        hash: c.hash(1)?,
        role: c.int(2)?,
        accessor: c.text(3)?.to_owned(),
        expires_at: c.nullable_time(4)?,
        uses: None,
        updated_at: Time::UNIX_EPOCH,
        body: Vec::new(),
    };
    Some(secret_id_context(&row))
}

struct ColumnValues<'r>(&'r [SqlValue]);

impl ColumnValues<'_> {
    fn int(&self, n: usize) -> Option<i64> {
        if let SqlValue::Int(value) = self.0.get(n)? { Some(*value) } else { None }
    }

    fn text(&self, n: usize) -> Option<&str> {
        if let SqlValue::Text(value) = self.0.get(n)? { Some(value) } else { None }
    }

    fn bytes(&self, n: usize) -> Option<&[u8]> {
        if let SqlValue::Bytes(value) = self.0.get(n)? { Some(value) } else { None }
    }

    fn hash(&self, n: usize) -> Option<[u8; 32]> {
        self.bytes(n)?.try_into().ok()
    }

    /// Returns column `n` as a nullable number; the outer `None` means that it has another type.
    fn nullable_int(&self, n: usize) -> Option<Option<i64>> {
        if *self.0.get(n)? == SqlValue::Null { Some(None) } else { self.int(n).map(Some) }
    }

    /// Returns column `n` as a nullable time; the outer `None` means that it has another type.
    fn nullable_time(&self, n: usize) -> Option<Option<Time>> {
        if *self.0.get(n)? == SqlValue::Null { Some(None) } else { from_micros(self.int(n)?).map(Some) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches the schemas of both engines for tables with a column `body`. So far, all of these columns are sealed.
    #[test]
    fn every_table_with_a_sealed_body_is_known() {
        for engine in ["sqlite", "postgres"] {
            let folder = format!("{}/migrations/{engine}", env!("CARGO_MANIFEST_DIR"));
            let mut with_body = Vec::new();
            for file in std::fs::read_dir(folder).unwrap() {
                let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
                for table in text.split("CREATE TABLE ").skip(1) {
                    let (name, rest) = table.split_once(" (").unwrap();
                    let columns = rest.split("\n)").next().unwrap();
                    if columns.lines().any(|line| line.trim_start().starts_with("body ")) {
                        with_body.push(name.to_owned());
                    }
                }
                for table in text.split("ALTER TABLE ").skip(1) {
                    let (name, rest) = table.split_once(' ').unwrap();
                    if rest.starts_with("ADD COLUMN body ") {
                        with_body.push(name.to_owned());
                    }
                }
            }
            with_body.sort();
            let mut known: Vec<_> = SEALED_TABLES.iter().map(|table| table.table.to_owned()).collect();
            known.sort();
            assert_eq!(with_body, known, "{engine}");
        }
    }

    #[test]
    fn page_sql_continues_after_a_key() {
        let of = |name: &str| SEALED_TABLES.iter().find(|table| table.table == name).unwrap();
        assert_eq!(
            of("document").page_sql("name, body", 1, true),
            "SELECT name, body FROM document WHERE (mount, kind, name) > ($1, $2, $3) ORDER BY mount, kind, name \
             LIMIT $4"
        );
        assert_eq!(
            of("token").page_sql("hash", 2, true),
            "SELECT hash FROM token WHERE (hash) > ($2) ORDER BY hash LIMIT $3"
        );
        assert_eq!(of("token").page_sql("hash", 2, false), "SELECT hash FROM token ORDER BY hash LIMIT $2");
    }

    #[test]
    fn columns_of_wrong_type_or_length_have_no_associated_data() {
        let token = SEALED_TABLES.iter().find(|table| table.table == "token").unwrap();
        let hash = |bytes: usize| SqlValue::Bytes(vec![7; bytes]);
        assert_eq!(token.context(&[hash(32), SqlValue::Null]), Some(token_context(&[7; 32], None)));
        for columns in [
            vec![hash(31), SqlValue::Null],
            vec![hash(32), SqlValue::Int(i64::MAX)],
            vec![SqlValue::Int(1), SqlValue::Null],
            vec![hash(32)],
        ] {
            assert!(token.context(&columns).is_none(), "{columns:?}");
        }
    }
}

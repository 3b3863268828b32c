//! Sealing again what earlier data keys sealed: every table with sealed bodies, in pages by primary key.
//!
//! A page reads a few rows beside everything else, seals the old ones of them with the key in use, and writes those
//! whose body is still the one that was read, so that no newer write is lost. How far it has come is a fact of the
//! store that each page compares and sets in the same transaction: a process that ends in the middle leaves the rest
//! to the next one, and of two nodes with the same page one is too late. After the last table what is left is
//! counted, and as long as that is something, begun again.
//!
//! Owns which tables have sealed bodies, and which columns these are sealed to; a test holds that to the schema.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde::{Deserialize, Serialize};

use crate::auth::store::{SecretIdRow, TokenHash};
use crate::clock::Time;
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::sql::{Failure, Row, Session, Value};
use crate::storage::backend::from_micros;
use crate::storage::keys::Keys;
use crate::storage::seal::{
    cubbyhole_context, document_context, identity_context, metadata_context, secret_id_context, token_context,
};
use crate::storage::session::Sessions;
use crate::x509::serial::Serial;

/// A table with a column `body` that is sealed.
struct Table {
    name: &'static str,
    /// Its primary key.
    key: &'static [&'static str],
    /// What else the body is sealed to.
    bound: &'static [&'static str],
    /// The associated data, of the values of both.
    context: fn(Row) -> Result<Vec<u8>, Failure>,
    /// Rows in a page: fewer where a body can be large.
    rows: i64,
}

static TABLES: [Table; 7] = [
    Table { name: "document", key: &["mount", "kind", "name"], bound: &["version"], context: document, rows: 64 },
    Table { name: "token", key: &["hash"], bound: &["expires_at_micros"], context: token, rows: 128 },
    Table { name: "cubbyhole", key: &["token", "path"], bound: &[], context: cubbyhole, rows: 8 },
    Table { name: "entity", key: &["id"], bound: &["name", "version"], context: entity, rows: 64 },
    Table {
        name: "entity_alias",
        key: &["id"],
        bound: &["accessor", "name", "entity", "version"],
        context: alias,
        rows: 64,
    },
    Table {
        name: "secret_id",
        key: &["mount", "hash"],
        bound: &["role", "accessor", "expires_at_micros"],
        context: secret_id,
        rows: 64,
    },
    Table {
        name: "certificate_metadata",
        key: &["mount", "serial"],
        bound: &["not_after"],
        context: metadata,
        rows: 64,
    },
];

/// How far it has come: the fact.
const READ: &str = "SELECT value FROM meta WHERE name = 're-seal'";
const BEGIN: &str = "INSERT INTO meta (name, value) VALUES ('re-seal', $1) ON CONFLICT (name) DO NOTHING";
const MOVE: &str = "UPDATE meta SET value = $1 WHERE name = 're-seal' AND value = $2";

/// How far sealing with the key of a term has come.
#[derive(Serialize, Deserialize)]
pub(super) struct Progress {
    /// The term of the key.
    pub(super) term: u32,
    /// How many values are left, as they were counted and sealed again since.
    pub(super) left: u64,
    /// How many were sealed again since they were counted.
    pub(super) sealed: u64,
    /// The table it is at, by its place.
    table: usize,
    /// The primary key it has come to there.
    after: Vec<Mark>,
}

/// A value of a primary key, as it is noted.
#[derive(Clone, Serialize, Deserialize)]
enum Mark {
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Progress {
    pub(super) fn new(term: u32, left: u64) -> Self {
        Self { term, left, sealed: 0, table: 0, after: Vec::new() }
    }

    /// Of the stored fact; what does not read is as if it were not there.
    pub(super) fn read(fact: &[u8]) -> Option<Self> {
        serde_json::from_slice(fact).ok()
    }

    /// Whether it is behind the last table.
    pub(super) fn has_ended(&self) -> bool {
        self.table >= TABLES.len()
    }
}

/// A row of a page: its primary key, what its body is sealed to, and the body if it is sealed with an earlier key.
struct Old {
    key: Vec<Value>,
    context: Vec<u8>,
    body: Option<Vec<u8>>,
}

impl Table {
    /// `$1` is the first octets of the bodies of the term, then the key to go on after, then how many rows.
    fn page(&self, goes_on: bool) -> String {
        let (key, columns) = (self.key.join(", "), [self.key, self.bound].concat().join(", "));
        let places: Vec<_> = (2..).take(self.key.len()).map(|n| format!("${n}")).collect();
        let (after, limit) = match goes_on {
            true => (format!("WHERE ({key}) > ({})", places.join(", ")), 2 + self.key.len()),
            false => (String::new(), 2),
        };
        // The rows first, whatever they are sealed with: so a page is short however few of them are old.
        format!(
            "SELECT {columns}, CASE WHEN body < $1 THEN body END
            FROM (SELECT {columns}, body FROM {} {after} ORDER BY {key} LIMIT ${limit}) AS page ORDER BY {key}",
            self.name
        )
    }

    /// `$1` is the new body, `$2` the one that was read, then the primary key.
    fn update(&self) -> String {
        let is = self.key.iter().zip(3..).map(|(column, n)| format!(" AND {column} = ${n}")).collect::<String>();
        format!("UPDATE {} SET body = $1 WHERE body = $2{is}", self.name)
    }

    fn old(&self, mut row: Row) -> Result<Old, Failure> {
        let key = self.key.iter().map(|_| row.value()).collect::<Result<Vec<_>, _>>()?;
        let bound = self.bound.iter().map(|_| row.value()).collect::<Result<Vec<_>, _>>()?;
        let context = (self.context)(Row::new([key.clone(), bound].concat()))?;
        Ok(Old { key, context, body: row.get()? })
    }
}

/// The fact that says how far it has come, as it is stored.
pub(super) async fn progress(sessions: &Sessions) -> Result<Option<Vec<u8>>> {
    let read = sessions.read("re_seal", |session| {
        async move { session.query(READ, &[]).await?.into_iter().next().map(|mut row| row.get()).transpose() }
            .boxed_local()
    });
    read.await
}

/// Notes how far it has come, over what was read of that.
///
/// # Errors
/// `Conflict` when somebody else was faster.
pub(super) async fn store(sessions: &Sessions, stored: Option<Vec<u8>>, progress: Progress) -> Result<()> {
    let fact = serde_json::to_vec(&progress).map_err(Error::internal)?;
    sessions.write("re_seal", move |session| note(session, stored.clone(), fact.clone())).await
}

fn note(session: &mut dyn Session, stored: Option<Vec<u8>>, fact: Vec<u8>) -> LocalBoxFuture<'_, Result<(), Failure>> {
    async move {
        let changed = match stored {
            None => session.execute(BEGIN, &[fact.into()]).await?,
            Some(stored) => session.execute(MOVE, &[fact.into(), stored.into()]).await?,
        };
        if changed == 1 { Ok(()) } else { Err(Failure::Refused) }
    }
    .boxed_local()
}

/// How many values are sealed with keys before that of `term`, page by page: a value that is written meanwhile is
/// counted or not.
///
/// # Errors
/// Those of the store.
pub(super) async fn count(sessions: &Sessions, term: u32) -> Result<u64> {
    let mut older = 0;
    for at in 0..TABLES.len() {
        let mut after = Vec::new();
        loop {
            let rows = read_page(sessions, at, term, after).await?;
            older += rows.iter().filter(|row| row.body.is_some()).count() as u64;
            match rows.into_iter().next_back() {
                Some(last) => after = last.key,
                None => break,
            }
        }
    }
    Ok(older)
}

/// One page: seals its old values again and moves `progress` on, over what is `stored` of it. Returns how many
/// values it was.
///
/// # Errors
/// `Conflict` when another node was faster; those of the store.
pub(super) async fn page(
    keys: &Arc<Keys>,
    sessions: &Sessions,
    mut progress: Progress,
    stored: Vec<u8>,
) -> Result<u64> {
    let at = progress.table;
    let after = progress.after.iter().cloned().map(Value::from).collect();
    let rows = read_page(sessions, at, progress.term, after).await?;
    match rows.last() {
        Some(last) => progress.after = last.key.iter().filter_map(Mark::of).collect(),
        None => (progress.table, progress.after) = (at + 1, Vec::new()),
    }
    let changes = sealed_again(keys, at, rows).await?;
    if changes.is_empty() {
        store(sessions, Some(stored), progress).await?;
        return Ok(0);
    }
    let (update, changes, progress) = (TABLES[at].update(), Arc::new(changes), Arc::new(progress));
    let written = sessions.write("re_seal", move |session| {
        let (update, changes, stored) = (update.clone(), Arc::clone(&changes), stored.clone());
        let progress = Arc::clone(&progress);
        async move {
            let mut changed = 0;
            for values in changes.iter() {
                changed += session.execute(&update, values).await?;
            }
            let left = progress.left.saturating_sub(changed);
            // 0 is for what was counted: it is not said before.
            let left = left.max(1);
            let sealed = progress.sealed + changed;
            let moved = Progress { left, sealed, after: progress.after.clone(), ..*progress };
            let fact = serde_json::to_vec(&moved).map_err(|e| Failure::Engine(Error::internal(e)))?;
            note(session, Some(stored), fact).await?;
            Ok(changed)
        }
        .boxed_local()
    });
    written.await
}

async fn read_page(sessions: &Sessions, at: usize, term: u32, after: Vec<Value>) -> Result<Vec<Old>> {
    let table = &TABLES[at];
    let sql = table.page(!after.is_empty());
    let values = [vec![term.to_be_bytes().to_vec().into()], after, vec![table.rows.into()]].concat();
    let read = sessions.read("re_seal", move |session| {
        let (sql, values) = (sql.clone(), values.clone());
        async move { session.query(&sql, &values).await?.into_iter().map(|row| table.old(row)).collect() }.boxed_local()
    });
    read.await
}

/// For each old value that opens, what its update is asked with: body, body as it was read, primary key.
async fn sealed_again(keys: &Arc<Keys>, at: usize, rows: Vec<Old>) -> Result<Vec<Vec<Value>>> {
    keys.follow(rows.iter().filter_map(|row| row.body.as_deref())).await?;
    let mut changes = Vec::new();
    for Old { key, context, body } in rows {
        let Some(body) = body else { continue };
        let Ok(plain) = keys.open(&context, &body) else {
            tracing::warn!(table = TABLES[at].name, "a stored value does not open, and stays as it is");
            continue;
        };
        let sealed = keys.seal(&context, plain)?;
        changes.push([vec![sealed.into(), body.into()], key].concat());
    }
    Ok(changes)
}

impl Mark {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Int(number) => Some(Self::Int(*number)),
            Value::Text(text) => Some(Self::Text(text.clone())),
            Value::Bytes(bytes) => Some(Self::Bytes(bytes.clone())),
            _ => None,
        }
    }
}

impl From<Mark> for Value {
    fn from(mark: Mark) -> Self {
        match mark {
            Mark::Int(number) => Self::Int(number),
            Mark::Text(text) => Self::Text(text),
            Mark::Bytes(bytes) => Self::Bytes(bytes),
        }
    }
}

fn document(mut row: Row) -> Result<Vec<u8>, Failure> {
    let (mount, kind, name): (i64, String, String) = (row.get()?, row.get()?, row.get()?);
    Ok(document_context(MountId(mount), &kind, &name, row.get::<i64>()? as u64))
}

fn token(mut row: Row) -> Result<Vec<u8>, Failure> {
    let hash = hash(&mut row)?;
    Ok(token_context(&hash, end(&mut row)?))
}

fn cubbyhole(mut row: Row) -> Result<Vec<u8>, Failure> {
    let token = hash(&mut row)?;
    Ok(cubbyhole_context(&token, &row.get::<String>()?))
}

fn entity(mut row: Row) -> Result<Vec<u8>, Failure> {
    let (id, name): (String, String) = (row.get()?, row.get()?);
    Ok(identity_context("entity", &[&id, &name], row.get::<i64>()? as u64))
}

fn alias(mut row: Row) -> Result<Vec<u8>, Failure> {
    let (id, accessor, name, entity): (String, String, String, String) =
        (row.get()?, row.get()?, row.get()?, row.get()?);
    Ok(identity_context("alias", &[&id, &accessor, &name, &entity], row.get::<i64>()? as u64))
}

fn secret_id(mut row: Row) -> Result<Vec<u8>, Failure> {
    let (mount, hash) = (MountId(row.get()?), hash(&mut row)?);
    let (role, accessor, expires_at) = (row.get()?, row.get()?, end(&mut row)?);
    let (uses, updated_at, body) = (None, Time::UNIX_EPOCH, Vec::new());
    Ok(secret_id_context(&SecretIdRow { mount, role, hash, accessor, expires_at, uses, updated_at, body }))
}

fn metadata(mut row: Row) -> Result<Vec<u8>, Failure> {
    let mount = MountId(row.get()?);
    let serial = Serial::from_octets(&row.get::<Vec<u8>>()?).map_err(|_| unreadable("a serial"))?;
    Ok(metadata_context(mount, serial, row.get()?))
}

fn hash(row: &mut Row) -> Result<TokenHash, Failure> {
    row.get::<Vec<u8>>()?.try_into().map_err(|_| unreadable("a hash"))
}

fn end(row: &mut Row) -> Result<Option<Time>, Failure> {
    let micros = row.get::<Option<i64>>()?;
    micros.map(|micros| from_micros(micros).ok_or_else(|| unreadable("a time"))).transpose()
}

fn unreadable(what: &'static str) -> Failure {
    Failure::Engine(Error::internal(format!("{what} in the store cannot be read")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every table of both schemas that has a column `body`, but for those whose body is no sealed one: none so far.
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
            }
            with_body.sort();
            let mut known: Vec<_> = TABLES.iter().map(|table| table.name.to_owned()).collect();
            known.sort();
            assert_eq!(with_body, known, "{engine}");
        }
    }
}

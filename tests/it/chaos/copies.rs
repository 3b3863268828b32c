//! A backup of the store made under load, and its verification.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rusqlite::{Connection, OpenFlags};

use super::site::Node;
use crate::backup::backup;
use crate::cluster;
use crate::crash::place::Place;

/// A backup, and the serials that were acknowledged before it began.
pub struct Copy {
    store: Store,
    issued: BTreeSet<String>,
    revoked: BTreeSet<String>,
}

enum Store {
    Database(cluster::Database),
    File { file: PathBuf, _folder: tempfile::TempDir },
}

/// A serial number without colons, as the stores format it.
fn plain(serial: &str) -> String {
    serial.replace(':', "")
}

impl Copy {
    pub fn make(place: &Place, nodes: &[Node]) -> Self {
        let mut issued = BTreeSet::new();
        let mut revoked = BTreeSet::new();
        for node in nodes {
            let book = node.ledger.read();
            issued.extend(book.issued.keys().map(|serial| plain(serial)));
            revoked.extend(book.revoked.keys().map(|serial| plain(serial)));
        }
        let store = match place.database() {
            Some(database) => {
                let dump = database.dump();
                // On a database server that has no faults.
                let copy = cluster::shared().database();
                copy.load(&dump);
                Store::Database(copy)
            }
            None => {
                let folder = tempfile::tempdir().unwrap();
                let file = folder.path().join("copy.db");
                backup(&place.file(""), &file).unwrap();
                Store::File { file, _folder: folder }
            }
        };
        Self { store, issued, revoked }
    }

    pub fn judge(&self, place: &Place) {
        let said = match &self.store {
            Store::Database(database) => place.operator_on(database, &["verify-backup"]),
            Store::File { file, .. } => place.operator(&["verify-backup", file.to_str().unwrap()]),
        };
        assert!(said.ends_with(": ok\n"), "the copy: {said}");
        for (table, known) in [("certificate", &self.issued), ("revocation", &self.revoked)] {
            let missing: Vec<_> = known.difference(&self.serials(table)).cloned().collect();
            assert_eq!(missing, [""; 0], "{table}: acknowledged before the copy, and not in it");
        }
    }

    fn serials(&self, table: &str) -> BTreeSet<String> {
        match &self.store {
            Store::Database(database) => {
                let rows = database.psql(&format!("SELECT encode(serial, 'hex') FROM {table}"));
                rows.lines().map(str::to_owned).collect()
            }
            Store::File { file, .. } => {
                let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
                let mut rows = db.prepare(&format!("SELECT lower(hex(serial)) FROM {table}")).unwrap();
                rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
            }
        }
    }
}

//! Stores between intact and damaged: CRLs that cannot be rebuilt for a harmless reason, certificates that do not name
//! their issuer clearly, and stores that `copy-store` rejects.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::{Value, json};
use signet::x509::certificate::Certificate;
use signet::x509::pem;

use super::{backup, damages, operator, run};
use crate::cluster;
use crate::crash::place::Place;
use crate::process::Dev;
use crate::support::Client;
use crate::v1::pki::foreign::Ca;

async fn post(client: &Client, path: &str, body: Value) -> Value {
    let answer = client.post(path, body).await;
    assert!(answer.status < 300, "{path}: {}", answer.text);
    answer.body["data"].clone()
}

fn verify(folder: &Path, file: &Path) -> Result<String, String> {
    let output = operator(&["verify-backup"], folder).arg(file).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    if output.status.success() { Ok(said) } else { Err(said) }
}

fn carry(folder: &Path, more: &[&str]) -> (Result<String, String>, cluster::Database) {
    let database = cluster::shared().database();
    let mut command = operator(&["copy-store"], folder);
    (run(command.args(more).env("SIGNET_COPY_STORE_TO", database.url())), database)
}

struct Copies(tempfile::TempDir);

impl Copies {
    fn make(&self, name: &str, place: &Place) -> PathBuf {
        let file = self.0.path().join(name);
        backup(&place.file(""), &file).unwrap();
        file
    }
}

/// A server that builds CRLs on the timer only, with one revocation on its CRL.
async fn with_a_list(place: &Place) -> (Dev, String) {
    let dev = place.start();
    let client = dev.client();
    post(&client, "pki/config/crl", json!({ "auto_rebuild": true, "enable_delta": true, "expiry": "72h" })).await;
    let issued = post(&client, "pki/issue/dev", json!({ "common_name": "a.test" })).await;
    let serial = issued["serial_number"].as_str().unwrap().to_owned();
    post(&client, "pki/revoke", json!({ "serial_number": serial, "reason": "superseded" })).await;
    assert_eq!(client.get("pki/crl/rotate").await.status, 200);
    (dev, serial)
}

#[actix_web::test]
async fn amended_revocation_reason_is_not_damage() {
    let place = Place::embedded();
    let copies = Copies(tempfile::tempdir().unwrap());
    let folder = place.file("");
    let (dev, serial) = with_a_list(&place).await;
    let client = dev.client();
    let before = copies.make("before.db", &place);
    post(&client, "pki/revoke", json!({ "serial_number": serial, "reason": "keyCompromise" })).await;
    let amended = copies.make("amended.db", &place);
    assert_eq!(client.get("pki/crl/rotate-delta").await.status, 200);
    let on_the_delta = copies.make("delta.db", &place);
    assert_eq!(client.get("pki/crl/rotate").await.status, 200);
    let after = copies.make("after.db", &place);
    for file in [&before, &after] {
        let said = verify(&folder, file).unwrap();
        assert!(!said.contains("note") && said.ends_with(": ok\n"), "{said}");
    }
    for file in [&amended, &on_the_delta] {
        let said = verify(&folder, file).unwrap();
        assert!(
            said.contains("note: mount pki/: CRL ") && said.contains("reasons of 1 revocations were changed"),
            "{said}"
        );
        assert!(said.ends_with(": ok\n"), "{said}");
    }
    let (said, _) = carry(&folder, &["--from", amended.to_str().unwrap()]);
    let said = said.unwrap();
    assert!(said.contains("note: mount pki/: CRL ") && said.ends_with("the database: ok\n"), "{said}");
    dev.terminate();
}

#[actix_web::test]
async fn crl_of_other_settings_is_reported_and_copied() {
    let place = Place::embedded();
    let copies = Copies(tempfile::tempdir().unwrap());
    let folder = place.file("");
    let (dev, _) = with_a_list(&place).await;
    let urls = json!({ "delta_crl_distribution_points": "http://crl.test/delta" });
    post(&dev.client(), "pki/config/urls", urls).await;
    let file = copies.make("copy.db", &place);
    let said = verify(&folder, &file).unwrap_err();
    assert!(said.contains("cannot be reproduced from the stored revocations and settings (harmless if"), "{said}");
    let (said, database) = carry(&folder, &["--from", file.to_str().unwrap()]);
    let said = said.unwrap();
    assert!(said.contains("(harmless if") && said.contains("ok except for its CRLs"), "{said}");
    assert_ne!(database.psql("SELECT COUNT(*) FROM certificate"), "0");
    dev.terminate();
}

#[actix_web::test]
async fn copy_store_rejects_damaged_copy_and_other_version() {
    let place = Place::embedded();
    let copies = Copies(tempfile::tempdir().unwrap());
    let folder = place.file("");
    let dev = place.start();
    damages::fill(&dev).await;
    let copy = copies.make("copy.db", &place);
    dev.terminate();
    let damaged = |name: &str, damage: &dyn Fn(&Path)| {
        let file = copies.0.path().join(name);
        std::fs::copy(&copy, &file).unwrap();
        damage(&file);
        file
    };
    let old = damaged("old.db", &|file| {
        let db = Connection::open(file).unwrap();
        db.execute("UPDATE meta SET value = CAST('1' AS BLOB) WHERE name = 'schema'", []).unwrap();
    });
    let broken = damaged("broken.db", &damages::overwrite_page);
    for (file, says) in [(old, "schema: version 1,"), (broken, "file: ")] {
        let (said, database) = carry(&folder, &["--from", file.to_str().unwrap()]);
        // Findings are on standard output.
        assert!(said.unwrap_err().contains("findings"), "{says}");
        let tables = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema()";
        assert_eq!(database.psql(tables), "0", "nothing was made");
        assert!(verify(&folder, &file).unwrap_err().contains(says));
    }
    let (said, _) = carry(&folder, &["--from", copy.to_str().unwrap()]);
    assert!(said.unwrap().ends_with("the database: ok\n"));
}

fn replace_last(file: &Path, der: &[u8]) {
    let certificate = Certificate::parse(der).unwrap();
    let db = Connection::open(file).unwrap();
    db.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    let sql = "UPDATE certificate SET serial = $1, not_before = $2, not_after = $3, der = $4
        WHERE rowid = (SELECT MAX(rowid) FROM certificate)";
    let serial = certificate.serial();
    let values = (serial.octets(), certificate.not_before(), certificate.not_after(), der);
    assert_eq!(db.execute(sql, values).unwrap(), 1);
}

fn flip_last(file: &Path) -> Vec<u8> {
    let db = Connection::open(file).unwrap();
    let sql = "SELECT der FROM certificate WHERE rowid = (SELECT MAX(rowid) FROM certificate)";
    let mut der: Vec<u8> = db.query_row(sql, [], |row| row.get(0)).unwrap();
    *der.last_mut().unwrap() ^= 1;
    der
}

#[actix_web::test]
async fn certificate_issuer_is_verified_by_signature() {
    let place = Place::embedded();
    let copies = Copies(tempfile::tempdir().unwrap());
    let folder = place.file("");
    let dev = place.start();
    let client = dev.client();
    // A CA without a key identifier, and a certificate of it.
    let bare = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=none";
    let key = crate::v1::pki::foreign::new_key("ec-256");
    let ca = Ca::root_with(key, "/CN=bare", bare, &[]);
    let imported = post(&client, "pki/config/ca", json!({ "pem_bundle": ca.bundle() })).await;
    let id = imported["imported_issuers"][0].as_str().unwrap().to_owned();
    post(&client, &format!("pki/issuer/{id}/issue/dev"), json!({ "common_name": "a.test" })).await;
    let copy = copies.make("copy.db", &place);
    dev.terminate();
    assert!(verify(&folder, &copy).unwrap().ends_with(": ok\n"));
    let says = |name: &str, damage: &dyn Fn(&Path)| {
        let file = copies.0.path().join(name);
        std::fs::copy(&copy, &file).unwrap();
        damage(&file);
        let said = verify(&folder, &file).unwrap_err();
        assert!(said.contains("is not signed by its issuer"), "{name}: {said}");
    };
    let gone = |file: &Path| {
        let sql = "UPDATE certificate SET issuer = 'gone' WHERE rowid = (SELECT MAX(rowid) FROM certificate)";
        assert_eq!(Connection::open(file).unwrap().execute(sql, []).unwrap(), 1);
    };
    says("altered.db", &|file| replace_last(file, &flip_last(file)));
    says("altered-of-nobody.db", &|file| {
        replace_last(file, &flip_last(file));
        gone(file);
    });
    let foreign = Ca::root("/CN=somebody else").pem;
    let der = pem::parse_blocks(&foreign).unwrap().remove(0).1;
    says("foreign.db", &|file| replace_last(file, &der));
}

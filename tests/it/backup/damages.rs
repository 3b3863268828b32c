//! Damages a backup in one way at a time: `verify-backup` finds each, and nothing in an intact backup.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::json;

use super::{backup, operator, run};
use crate::cluster;
use crate::crash::place::Place;
use crate::process::Dev;

type Damage = fn(&Path);

/// A name, a damage, and the text of its finding.
const DAMAGES: &[(&str, Damage, &str)] = &[
    ("a page is overwritten", |file| overwrite_page(file), "file: "),
    ("the file is cut", |file| cut(file), "file: "),
    ("it is no database", |file| std::fs::write(file, "hello, hello, hello").unwrap(), "cannot be read as a database"),
    (
        "the schema is of another version",
        |file| change(file, "UPDATE meta SET value = CAST('1' AS BLOB) WHERE name = 'schema'"),
        "schema: version 1,",
    ),
    (
        "a data key is altered",
        |file| change(file, &flip("meta", "value", "name = 'data-key/1'")),
        "does not open the data keys",
    ),
    (
        "a data key is gone",
        |file| change(file, "DELETE FROM meta WHERE name = 'data-key/1'"),
        "data keys of this store",
    ),
    (
        "a sealed value is altered",
        |file| change(file, &flip("document", "body", "kind = 'role'")),
        "document: the body of",
    ),
    ("two sealed values have changed places", |file| swap(file), "document: the body of"),
    (
        "a document is put back to an earlier version",
        |file| change(file, "UPDATE document SET version = version + 1 WHERE kind = 'role'"),
        "document: the body of",
    ),
    (
        "a token is prolonged",
        |file| change(file, "UPDATE token SET expires_at_micros = expires_at_micros + 1 WHERE expires_at_micros > 0"),
        "token: the body of",
    ),
    (
        "what a token keeps is another token's",
        |file| {
            let other = "(SELECT hash FROM token WHERE hash NOT IN (SELECT token FROM cubbyhole) LIMIT 1)";
            change(file, &format!("UPDATE cubbyhole SET token = {other}"));
        },
        "cubbyhole: the body of",
    ),
    (
        "a revocation is gone",
        |file| change(file, "DELETE FROM revocation WHERE seq = (SELECT MIN(seq) FROM revocation)"),
        "counter: mount",
    ),
    (
        "a revocation is gone, and the counter knows",
        |file| {
            change(file, "DELETE FROM revocation WHERE seq = (SELECT MIN(seq) FROM revocation)");
            change(file, "UPDATE counter SET revocations = revocations - 1 WHERE revocations > 0");
        },
        "cannot be reproduced from the stored revocations",
    ),
    (
        "a revocation has a number that nobody gave out",
        |file| change(file, "UPDATE revocation SET seq = 1000000 WHERE seq = (SELECT MAX(seq) FROM revocation)"),
        "was never assigned",
    ),
    (
        "a counter is off",
        |file| change(file, "UPDATE counter SET certificates = certificates + 1"),
        "certificates, a scan finds",
    ),
    ("a certificate is gone", |file| change(file, &format!("DELETE FROM certificate WHERE {LEAF}")), "a scan finds"),
    (
        "a certificate is another one's",
        |file| change(file, &format!("UPDATE certificate SET serial = x'0102030405060708' WHERE {LEAF}")),
        "does not match its row",
    ),
    ("a certificate is altered", |file| change(file, &flip("certificate", "der", LEAF)), "is not signed by its issuer"),
    (
        "a CRL number is lowered",
        |file| change(file, "UPDATE crl SET number = number - 1"),
        "cannot be reproduced from the stored revocations",
    ),
    ("a CRL covers more than there is", |file| change(file, "UPDATE crl SET covers = covers + 5"), "revocations"),
    (
        "a CRL has another signature",
        |file| change(file, &flip("crl", "signature", "grp NOT LIKE '%/delta'")),
        "cannot be reproduced from the stored revocations",
    ),
    ("a key is gone", |file| change(file, "DELETE FROM document WHERE kind = 'key'"), "the key of issuer"),
    (
        "an issuer is gone",
        |file| change(file, "DELETE FROM document WHERE kind = 'issuer'"),
        "of stored certificates is missing",
    ),
    (
        "the document of a mount is gone",
        |file| change(file, "DELETE FROM document WHERE kind = 'mount' AND name = 'pki/'"),
        "has data but no mount document",
    ),
];

/// The last certificate, which the root issued.
const LEAF: &str = "rowid = (SELECT MAX(rowid) FROM certificate)";

fn change(file: &Path, sql: &str) {
    let db = Connection::open(file).unwrap();
    // A foreign program writes to the file without constraints.
    db.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    assert!(db.execute(sql, []).unwrap() > 0, "{sql}");
}

/// SQL that changes the last byte of a value.
fn flip(table: &str, column: &str, of: &str) -> String {
    let flipped = format!(
        "CAST(substr({column}, 1, length({column}) - 1) || \
         CASE hex(substr({column}, -1)) WHEN '2A' THEN x'2B' ELSE x'2A' END AS BLOB)"
    );
    format!("UPDATE {table} SET {column} = {flipped} WHERE {of}")
}

fn swap(file: &Path) {
    let db = Connection::open(file).unwrap();
    let body = |at: &str| -> Vec<u8> {
        let text = format!("SELECT body FROM document WHERE kind = 'role' ORDER BY name {at} LIMIT 1");
        db.query_row(&text, [], |row| row.get(0)).unwrap()
    };
    let first = body("ASC");
    let last = body("DESC");
    assert_ne!(first, last);
    let set = "UPDATE document SET body = $1 WHERE body = $2";
    db.execute(set, (&b"between"[..], &first)).unwrap();
    db.execute(set, (&first, &last)).unwrap();
    db.execute(set, (&last, &b"between"[..])).unwrap();
}

pub(super) fn overwrite_page(file: &Path) {
    let db = Connection::open(file).unwrap();
    let root = "SELECT rootpage FROM sqlite_master WHERE name = 'certificate_serial'";
    let page: u32 = db.query_row(root, [], |row| row.get(0)).unwrap();
    drop(db);
    let mut bytes = std::fs::read(file).unwrap();
    bytes[(page as usize - 1) * 4096..][..64].iter_mut().for_each(|byte| *byte ^= 0xff);
    std::fs::write(file, bytes).unwrap();
}

fn cut(file: &Path) {
    let len = std::fs::metadata(file).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(len / 2 / 4096 * 4096).unwrap();
}

/// Creates sealed documents of every kind, certificates, and revocations on a CRL.
pub(super) async fn fill(dev: &Dev) {
    let client = dev.client();
    let ok = |answer: crate::support::Answer| assert!(answer.status < 300, "{}: {}", answer.status, answer.text);
    for name in ["web", "other"] {
        ok(client.post(&format!("pki/roles/{name}"), json!({ "allow_any_name": true, "key_type": "ec" })).await);
    }
    for n in 0..6 {
        let issued =
            client.post("pki/issue/dev", json!({ "common_name": "a.test", "cert_metadata": "aGVsbG8=" })).await;
        let serial = issued.body["data"]["serial_number"].clone();
        ok(issued);
        if n % 2 == 0 {
            ok(client.post("pki/revoke", json!({ "serial_number": serial })).await);
        }
    }
    ok(client.post("auth/token/create", json!({ "ttl": "1h" })).await);
    ok(client.post("cubbyhole/mine", json!({ "a": "b" })).await);
    ok(client.post("sys/auth/approle", json!({ "type": "approle" })).await);
    ok(client.post("auth/approle/role/web", json!({ "token_policies": ["default"] })).await);
    let secret = client.post("auth/approle/role/web/secret-id", json!({})).await;
    let role = client.get("auth/approle/role/web/role-id").await;
    let login = json!({
        "role_id": role.body["data"]["role_id"], "secret_id": secret.body["data"]["secret_id"],
    });
    ok(client.with_token("").post("auth/approle/login", login).await);
    let issued = client.post("pki/issue/dev", json!({ "common_name": "last.test" })).await;
    ok(issued);
}

fn verify(folder: &Path, file: &Path) -> (bool, String) {
    let output = operator(&["verify-backup"], folder).arg(file).output().unwrap();
    let said = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), said(output.stdout) + &said(output.stderr))
}

struct Copy {
    place: Place,
    files: tempfile::TempDir,
}

impl Copy {
    async fn make() -> Self {
        let place = Place::embedded();
        let files = tempfile::tempdir().unwrap();
        let dev = place.start();
        fill(&dev).await;
        backup(&place.file(""), &files.path().join("copy.db")).unwrap();
        dev.terminate();
        Self { place, files }
    }

    fn file(&self) -> PathBuf {
        self.files.path().join("copy.db")
    }
}

#[actix_web::test]
async fn verify_backup_finds_every_damage_and_no_other() {
    let copy = Copy::make().await;
    let folder = copy.place.file("");
    let before = std::fs::read(copy.file()).unwrap();
    let (sound, said) = verify(&folder, &copy.file());
    assert!(sound && said.ends_with("copy.db: ok\n"), "{said}");
    assert_eq!(std::fs::read(copy.file()).unwrap(), before, "nothing is written");

    let sealed = ["document", "token", "cubbyhole", "certificate_metadata", "secret_id", "entity", "entity_alias"];
    let db = Connection::open(copy.file()).unwrap();
    for table in sealed {
        let rows: i64 = db.query_row(&format!("SELECT COUNT(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        assert!(rows > 0, "{table} is looked through for something");
    }
    drop(db);
    let damaged = copy.files.path().join("damaged.db");
    let mut wrong = Vec::new();
    let sealed =
        sealed.iter().map(|table| (format!("{table} is altered"), flip(table, "body", "TRUE"), format!("{table}: ")));
    for (what, sql, says) in sealed {
        std::fs::copy(copy.file(), &damaged).unwrap();
        change(&damaged, &sql);
        let (sound, said) = verify(&folder, &damaged);
        if sound || !said.contains(&says) {
            wrong.push(format!("{what}: {said}"));
        }
    }
    for (what, damage, says) in DAMAGES {
        std::fs::copy(copy.file(), &damaged).unwrap();
        damage(&damaged);
        let (sound, said) = verify(&folder, &damaged);
        if sound || !said.contains(says) || !said.contains("findings") {
            wrong.push(format!("{what}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[actix_web::test]
async fn the_seal_key_is_the_installations() {
    let copy = Copy::make().await;
    let other = copy.files.path().join("other");
    std::fs::create_dir(&other).unwrap();
    signet::storage::seal::SealKey::create_file(&other.join("seal.key")).unwrap();
    let (sound, said) = verify(&other, &copy.file());
    assert!(!sound && said.contains("does not open the data keys of this store"), "{said}");
    let (sound, said) = verify(&copy.place.file(""), &copy.files.path().join("none.db"));
    assert!(!sound && said.contains("FILE: file does not exist: ") && said.contains("none.db"), "{said}");
}

#[actix_web::test]
async fn verify_backup_checks_a_database_like_a_copy() {
    let place = Place::postgres(cluster::shared().database());
    let dev = place.start();
    fill(&dev).await;
    dev.terminate();
    let said = place.operator(&["verify-backup"]);
    assert_eq!(said, "the database: ok\n");
    place.scan("UPDATE counter SET certificates = certificates + 1");
    place.scan("UPDATE document SET version = version + 1 WHERE kind = 'role'");
    let said = place.refused(&["verify-backup"]);
    assert!(said.contains("certificates, a scan finds") && said.contains("document: the body of"), "{said}");
}

#[actix_web::test]
async fn copy_store_moves_the_whole_store_and_service_continues() {
    let place = Place::embedded();
    let database = cluster::shared().database();
    let folder = place.file("");
    let dev = place.start();
    fill(&dev).await;
    let client = dev.client();
    let number = |client: crate::support::Client| async move {
        let der = client.request("GET", "pki/crl").send().await.unwrap().bytes().await.unwrap();
        crate::crash::audit::number(&signet::x509::crl::Crl::parse(&der).unwrap())
    };
    let last = number(client.clone()).await;
    let listed = client.list("pki/certs").await.body["data"]["keys"].clone();
    let projects = "SELECT COUNT(*) FROM projects";
    let known = place.scan(projects);
    let url = database.url();
    let carry = |more: &[&str]| run(operator(&["copy-store", "--to", &url], &folder).args(more));
    assert!(carry(&[]).unwrap_err().contains("in use by another signet process"));
    dev.kill();
    let said = carry(&[]).unwrap();
    assert!(said.contains("certificate: 8 rows\n") && said.ends_with("the database: ok\n"), "{said}");
    assert!(carry(&[]).unwrap_err().contains("the database is not empty"));
    // The copied store is retired: no server starts on it until the operator re-enables it.
    let refused = run(crate::process::signet().args(["dev", "--data-dir"]).arg(&folder)).unwrap_err();
    assert!(refused.contains("was copied into a database by copy-store"), "{refused}");

    let place = place.with_database(database);
    assert_eq!(place.scan(projects), known);
    let dev = place.start();
    let client = dev.client();
    assert_eq!(client.list("pki/certs").await.body["data"]["keys"], listed);
    assert!(number(client.clone()).await > last);
    fill_again(&dev).await;
    dev.terminate();
    assert_eq!(place.operator(&["verify-backup"]), "the database: ok\n");
}

/// Uses sequences and counters of the database.
async fn fill_again(dev: &Dev) {
    dev.client().post("pki/issue/dev", json!({ "common_name": "b.test" })).await.assert_status(200);
    let http = crate::support::http_client();
    let projects = format!("{}/api/v2/organizations/dev/projects", dev.address);
    for name in ["one", "two"] {
        let body = json!({ "data": { "type": "projects", "attributes": { "name": format!("made-{name}") } } });
        let request = http.post(&projects).bearer_auth(&dev.token).header("Content-Type", "application/vnd.api+json");
        crate::support::send(request.body(body.to_string())).await.assert_status(201);
    }
}

#[actix_web::test]
async fn restore_rejects_damaged_copy() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new, copy] = ["old", "new", "copy.db"].map(|name| folder.path().join(name));
    let dev = crate::process::dev(&["--data-dir", old.to_str().unwrap()]);
    fill(&dev).await;
    backup(&old, &copy).unwrap();
    dev.terminate();
    let sound = std::fs::read(&copy).unwrap();
    overwrite_page(&copy);
    let refused = super::restore(&old, &copy, &new).unwrap_err();
    assert!(refused.contains("copy.db: ") && refused.contains("findings"), "{refused}");
    assert!(!new.join("signet.db").exists());
    std::fs::write(&copy, sound).unwrap();
    super::restore(&old, &copy, &new).unwrap();
}

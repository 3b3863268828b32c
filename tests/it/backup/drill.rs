//! The restore drill: a backup under load, more load, a crash, the restore, and further work on the restored store.
//!
//! `SIGNET_DRILL_ISSUES` sets the number of certificates issued after the restore.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::json;
use signet::storage::seal::SealKey;
use signet::x509::crl::Crl;

use super::{backup, operator, restore, run};
use crate::cluster;
use crate::crash::audit::{missing, number};
use crate::crash::load::{Ledger, Load, Unanswered};
use crate::crash::place::Place;
use crate::support::Client;

/// Certificates issued after the restore, by default.
const ISSUES: usize = 600;
const AT_ONCE: usize = 16;

/// Certificates and revocations acknowledged before the backup began.
struct Before {
    issued: HashMap<String, String>,
    revoked: HashMap<String, i64>,
}

/// Runs a server under load, backs it up in the middle and kills it later. Returns the records before the backup and
/// the last CRL number that a client saw.
async fn disaster(place: &Place, copy: impl FnOnce() + Send + 'static) -> (Ledger, String, Before, u64) {
    let ledger = Ledger::default();
    let dev = place.start();
    let token = place.client(&dev).await.token;
    let load = Load::start(&dev, &token, &ledger, Unanswered::IsWrong);
    ledger.wait_for(60, 10, 0);
    let before = {
        let book = ledger.read();
        Before { issued: book.issued.clone(), revoked: book.revoked.clone() }
    };
    let active_threads = ledger.clone();
    let after = std::thread::spawn(copy);
    after.join().unwrap();
    active_threads.wait_for(100, 20, 0);
    load.finish();
    let client = dev.client().with_token(&token);
    for _ in 0..20 {
        assert_eq!(client.get("pki/crl/rotate").await.status, 200);
    }
    let last = number(&crl(&client).await);
    assert!(last >= ledger.read().crl_number && ledger.read().wrong.is_empty(), "{:?}", ledger.read().wrong);
    dev.kill();
    (ledger, token, before, last)
}

async fn crl(client: &Client) -> Crl {
    let response = client.request("GET", "pki/crl").send().await.unwrap();
    assert_eq!(response.status(), 200);
    Crl::parse(&response.bytes().await.unwrap()).unwrap()
}

/// Asserts that a restored store has the contents of its backup, and reuses no serial or CRL number from after it.
async fn goes_on(place: &Place, (ledger, token, before, last): (Ledger, String, Before, u64)) {
    let dev = place.start();
    let client = dev.client().with_token(&token);
    for (serial, pem) in &before.issued {
        let answer = client.get(&format!("pki/cert/{serial}")).await;
        assert_eq!(answer.body["data"]["certificate"].as_str(), Some(pem.as_str()), "{serial}: {}", answer.text);
    }
    let list = crl(&client).await;
    assert_eq!(missing(&list, &before.revoked), [""; 0], "revoked before the copy, and not on the CRL");
    assert!(number(&list) > last, "CRL {} after {last}", number(&list));

    let wanted = std::env::var("SIGNET_DRILL_ISSUES").map_or(ISSUES, |count| count.parse().unwrap());
    let issues = (0..wanted).map(async |_| {
        let answer = client.post("pki/issue/dev", json!({ "common_name": "drill.test" })).await.assert_status(200);
        answer.body["data"]["serial_number"].as_str().unwrap().to_owned()
    });
    let serials: HashSet<String> = stream::iter(issues).buffer_unordered(AT_ONCE).collect().await;
    assert_eq!(serials.len(), wanted, "all differ");
    let lost = ledger.read().issued.keys().filter(|serial| serials.contains(*serial)).count();
    assert_eq!(lost, 0, "none is one of before, known or forgotten");

    let revoked = serials.iter().next().unwrap();
    client.post("pki/revoke", json!({ "serial_number": revoked })).await.assert_status(200);
    let next = number(&crl(&client).await);
    assert!(next > number(&list));
    dev.terminate();
    let dev = place.start();
    let served = number(&crl(&dev.client().with_token(&token)).await);
    assert_eq!(served, next, "a later start serves the list that it finds");
    dev.terminate();
}

fn place_of(folder: &Path) -> Place {
    Place::elsewhere(folder.to_owned(), folder.to_owned(), crate::process::signet)
}

#[actix_web::test]
async fn store_restored_from_copy_repeats_no_serial_or_crl_number() {
    let place = Place::embedded();
    let files = tempfile::tempdir().unwrap();
    let old = place.file("");
    let copy = files.path().join("copy.db");
    let new = files.path().join("new");
    let from = old.clone();
    let to = copy.clone();
    let known = disaster(&place, move || drop(backup(&from, &to).unwrap())).await;
    restore(&old, &copy, &new).unwrap();
    goes_on(&place_of(&new), known).await;
}

#[actix_web::test]
async fn database_restored_from_dump_repeats_no_serial_or_crl_number() {
    let cluster = cluster::shared();
    let old = cluster.database();
    let new = cluster.database();
    let name = old.name.clone();
    let place = Place::postgres(old);
    let dump = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let slot = dump.clone();
    let known = disaster(&place, move || *slot.lock().unwrap() = cluster.dump(&name)).await;
    new.load(&dump.lock().unwrap());
    let restored = place.with_database(new);
    let told = restored.operator(&["after-restore"]);
    assert!(told.contains("CRL numbers continue"), "{told}");
    goes_on(&restored, known).await;
}

#[test]
fn restore_requires_a_folder_without_store() {
    let place = Place::embedded();
    let files = tempfile::tempdir().unwrap();
    place.start().terminate();
    let old = place.file("");
    let copy = files.path().join("copy.db");
    backup(&old, &copy).unwrap();
    let told = run(operator(&["restore"], &old).arg(&copy)).unwrap_err();
    assert!(
        told.contains("signet.db: exists, and is never overwritten: move the files of the data folder away"),
        "{told}"
    );
    // SQLite would apply the write-ahead log of another database to the restored file.
    let new = files.path().join("new");
    std::fs::create_dir(&new).unwrap();
    std::fs::write(new.join("signet.db-wal"), "").unwrap();
    let told = restore(&old, &copy, &new).unwrap_err();
    assert!(told.contains("signet.db-wal: exists"), "{told}");
    std::fs::remove_file(new.join("signet.db-wal")).unwrap();
    let told = restore(&old, &old.join("seal.key"), &new).unwrap_err();
    assert!(told.contains("seal.key: ") && told.contains("file is not a database"), "{told}");
    assert!(!new.join("signet.db").exists() && std::fs::read_dir(&new).unwrap().count() == 2, "the key and the lock");
    restore(&old, &copy, &new).unwrap();
    place_of(&new).start().terminate();
}

#[test]
fn restore_requires_the_seal_key_of_the_copy() {
    let place = Place::embedded();
    let files = tempfile::tempdir().unwrap();
    place.start().terminate();
    let copy = files.path().join("copy.db");
    backup(&place.file(""), &copy).unwrap();
    let other = files.path().join("other");
    std::fs::create_dir(&other).unwrap();
    SealKey::create_file(&other.join("seal.key")).unwrap();
    let told = run(operator(&["restore"], &other).arg(&copy)).unwrap_err();
    assert!(told.contains("copy.db: seal key: does not open") && told.contains("SIGNET_SEAL_KEY_FILE=…"), "{told}");
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1, "nothing is written");
}

#[actix_web::test]
async fn restore_names_the_time_of_the_copy_and_status_notes_it() {
    let place = Place::embedded();
    let files = tempfile::tempdir().unwrap();
    let dev = place.start();
    let before = number(&crl(&dev.client()).await);
    dev.terminate();
    let old = place.file("");
    let copy = files.path().join("copy.db");
    let new = files.path().join("new");
    backup(&old, &copy).unwrap();
    let told = restore(&old, &copy, &new).unwrap();
    let (_, rest) = told.split_once("from a copy of ").unwrap();
    let copied_at = rest.lines().next().unwrap();
    signet::clock::parse_rfc3339("", copied_at).unwrap();
    assert!(rest.contains("What is lost"), "{told}");
    let restored = place_of(&new);
    let dev = restored.start();
    let mut status = crate::process::signet();
    status.arg("status").env("SIGNET_ADDR", &dev.address).env("SIGNET_TOKEN", &dev.token);
    let status = run(&mut status).unwrap();
    assert!(
        status.contains("\nworth a look\n") && status.contains(&format!("from a copy of {copied_at};")),
        "{status}"
    );
    // The CRL of the copy is replaced, which is expected and no warning.
    assert!(number(&crl(&dev.client()).await) > before);
    assert!(!restored.log().contains("stored CRL"), "{}", restored.log());
    dev.terminate();
}

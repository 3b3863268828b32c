//! Checks that everything acknowledged is there: over HTTP, with openssl, and in the database.

use std::collections::{BTreeSet, HashMap};

use futures_util::StreamExt as _;
use futures_util::stream;
use signet::x509::crl::Crl;
use signet::x509::serial::Serial;

use super::load::Ledger;
use super::place::Place;
use crate::support::Client;
use crate::v1::pki::foreign;

const READS: usize = 16;
/// Contents of the OID id-ce-cRLNumber, 2.5.29.20.
const CRL_NUMBER: [u8; 3] = [0x55, 0x1d, 0x14];

pub fn number(crl: &Crl) -> u64 {
    let extension = crl.extensions().iter().find(|e| e.oid == CRL_NUMBER).unwrap();
    let [2, len, octets @ ..] = extension.value.as_slice() else { panic!("not an INTEGER") };
    assert_eq!(usize::from(*len), octets.len());
    octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
}

pub fn missing(crl: &Crl, revoked: &HashMap<String, i64>) -> Vec<String> {
    let listed: BTreeSet<Serial> = crl.entries().iter().map(|entry| entry.serial).collect();
    revoked.keys().filter(|serial| !listed.contains(&Serial::parse(serial).unwrap())).cloned().collect()
}

/// Asserts that all acknowledged changes are there and that the database is consistent.
pub async fn audit(client: &Client, ledger: &Ledger, place: &Place) {
    assert_eq!(client.get("auth/token/lookup-self").await.status, 200, "the token still counts");
    let (wrong, issued, revoked, crl_number) = {
        let book = ledger.read();
        (book.wrong.clone(), book.issued.clone(), book.revoked.clone(), book.crl_number)
    };
    assert!(wrong.is_empty(), "{wrong:#?}");
    certificates(client, &issued, &revoked).await;
    let at_least = crl(client, &revoked, crl_number).await;
    ledger.read().crl_number = at_least;
    rows(place, issued.len(), revoked.len());
}

/// Each certificate is served byte for byte, with its revocation time.
async fn certificates(client: &Client, issued: &HashMap<String, String>, revoked: &HashMap<String, i64>) {
    let reads = issued.iter().map(async |(serial, pem)| {
        let answer = client.get(&format!("pki/cert/{serial}")).await;
        assert_eq!(answer.status, 200, "{serial}: {}", answer.text);
        assert_eq!(answer.body["data"]["certificate"].as_str(), Some(pem.as_str()), "{serial}");
        if let Some(time) = revoked.get(serial) {
            assert_eq!(answer.body["data"]["revocation_time"].as_i64(), Some(*time), "{serial}");
        }
    });
    stream::iter(reads).buffer_unordered(READS).collect::<Vec<()>>().await;
}

/// Both parsers find every revocation on the CRL exactly once, and its number is not below `last`.
async fn crl(client: &Client, revoked: &HashMap<String, i64>, last: u64) -> u64 {
    let response = client.request("GET", "pki/crl").send().await.unwrap();
    assert_eq!(response.status(), 200);
    let der = response.bytes().await.unwrap().to_vec();
    let crl = Crl::parse(&der).unwrap();
    assert_eq!(missing(&crl, revoked), [""; 0], "revoked, and not on the CRL");
    assert!(number(&crl) >= last, "CRL number {} after {last}", number(&crl));
    let foreign = foreign::Crl::new(der);
    assert_eq!(foreign.number(), number(&crl));
    let listed = foreign.serials();
    let unique: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(unique.len(), listed.len(), "nothing is listed twice");
    assert_eq!(listed.len(), crl.entries().len());
    assert!(revoked.keys().all(|serial| unique.contains(serial)), "openssl reads the same");
    number(&crl)
}

/// Serials are unique, counters match the rows, and sequences have neither gaps nor duplicates.
fn rows(place: &Place, issued: usize, revoked: usize) {
    let scan = |sql: &str| place.scan(sql);
    let number = |sql: &str| scan(sql).parse::<usize>().unwrap();
    let certificates = number("SELECT count(*) FROM certificate");
    assert!(certificates > issued, "{certificates} rows for {issued} certificates and the root");
    assert_eq!(number("SELECT count(*) FROM (SELECT DISTINCT mount, serial FROM certificate) AS a"), certificates);
    assert_eq!(number("SELECT sum(certificates) FROM counter"), certificates);
    let revocations = number("SELECT count(*) FROM revocation");
    assert!(revocations >= revoked, "{revocations} rows for {revoked} revocations");
    assert_eq!(number("SELECT sum(revocations) FROM counter"), revocations);
    assert_eq!(number("SELECT count(*) FROM (SELECT DISTINCT mount, serial FROM revocation) AS a"), revocations);
    assert_eq!(number("SELECT count(DISTINCT seq) FROM revocation"), revocations);
    assert_eq!(number("SELECT coalesce(max(seq), 0) FROM revocation"), revocations, "1, 2, 3 …");
    assert_eq!(number("SELECT max(rev_seq) FROM mount"), revocations);
    let without = "SELECT count(*) FROM revocation AS r LEFT JOIN certificate AS c \
        ON c.mount = r.mount AND c.serial = r.serial WHERE c.serial IS NULL";
    assert_eq!(number(without), 0, "every revocation has its certificate");
}

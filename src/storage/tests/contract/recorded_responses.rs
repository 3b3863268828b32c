//! Contract tests of recorded responses for requests that may be repeated.

use futures_util::future::join_all;

use super::*;
use crate::pki::store::{PkiOutcome, RecordedResponseRow};

fn key(n: u32) -> [u8; 32] {
    // The keys are spread, so that their order differs from that of `n`.
    let mut key = [n as u8; 32];
    key[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_be_bytes());
    key
}

fn row(n: u32, certificate: u32, at: i64) -> RecordedResponseRow {
    RecordedResponseRow {
        key: key(n),
        request: [7; 32],
        serial: serial(certificate),
        lease: certificate.is_multiple_of(2).then(|| format!("pki/issue/web/{certificate}")),
        expires_at: at + RecordedResponseRow::LIFETIME_SECONDS,
    }
}

fn unit(w: &ContractStore, n: u32, of: u32, at: i64) -> Vec<PkiWrite> {
    vec![PkiWrite::Certificate(certificate(w.mount, of)), PkiWrite::RecordedResponse(row(n, of, at))]
}

async fn is_stored(w: &ContractStore, n: u32) -> bool {
    w.pki.certificate(w.mount, serial(n)).await.unwrap().is_some()
}

pub(super) async fn idempotency_key_is_used_once_until_it_expires(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    assert_eq!(w.pki.recorded_response(key(1)).await.unwrap(), None);
    assert_eq!(w.pki.commit(unit(&w, 1, 10, NOW)).await.unwrap(), [PkiOutcome::Done, PkiOutcome::Done]);
    assert_eq!(w.pki.commit(unit(&w, 2, 11, NOW)).await.unwrap(), [PkiOutcome::Done, PkiOutcome::Done]);
    let taken = w.pki.commit(unit(&w, 1, 12, NOW + RecordedResponseRow::LIFETIME_SECONDS - 1)).await.unwrap();
    assert_eq!(taken, [PkiOutcome::SerialTaken, PkiOutcome::SerialTaken]);
    assert!(!is_stored(&w, 12).await, "nothing of its unit");
    for (n, of) in [(1, 10), (2, 11)] {
        assert_eq!(w.pki.recorded_response(key(n)).await.unwrap(), Some(row(n, of, NOW)));
    }
    let later = NOW + RecordedResponseRow::LIFETIME_SECONDS;
    assert!(!w.pki.commit(unit(&w, 1, 13, later)).await.unwrap().contains(&PkiOutcome::SerialTaken));
    assert_eq!(w.pki.recorded_response(key(1)).await.unwrap(), Some(row(1, 13, later)));
    assert!(w.pki.commit(unit(&w, 3, 13, NOW)).await.unwrap().contains(&PkiOutcome::SerialTaken));
    assert_eq!(w.pki.recorded_response(key(3)).await.unwrap(), None);
    assert_eq!(w.pki.counts(w.mount).await.unwrap(), (3, 0));
    w.storage.shutdown().await.unwrap();
    let w = ContractStore::reopen(fixture, w.mount).await;
    assert_eq!(w.pki.recorded_response(key(2)).await.unwrap(), Some(row(2, 11, NOW)));
}

pub(super) async fn idempotency_key_admits_one_of_many_units(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for round in 0..5 {
        // 16 units use each key, and other units have no key.
        let units = (0..64).map(|n| {
            let of = round * 1_000 + n;
            let plain = vec![PkiWrite::Certificate(certificate(w.mount, of))];
            w.pki.commit(if n < 48 { unit(&w, round * 10 + n % 3, of, NOW) } else { plain })
        });
        let outcomes = join_all(units).await;
        let stored = |outcome: &Result<Vec<PkiOutcome>>| !outcome.as_ref().unwrap().contains(&PkiOutcome::SerialTaken);
        assert_eq!(outcomes[..48].iter().filter(|outcome| stored(outcome)).count(), 3);
        assert!(outcomes[48..].iter().all(stored), "the others are stored");
        for (of, outcome) in (round * 1_000..).zip(&outcomes) {
            assert_eq!(is_stored(&w, of).await, stored(outcome), "{of}");
        }
        for n in 0..3 {
            let found = w.pki.recorded_response(key(round * 10 + n)).await.unwrap().unwrap();
            assert!(w.pki.certificate(w.mount, found.serial).await.unwrap().is_some());
        }
    }
    assert_eq!(w.pki.counts(w.mount).await.unwrap(), (5 * (3 + 16), 0));
}

pub(super) async fn expired_recorded_responses_are_swept(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    for n in 0..7 {
        w.put(unit(&w, n, n, NOW + i64::from(n))).await;
    }
    let end = |n: i64| NOW + n + RecordedResponseRow::LIFETIME_SECONDS;
    assert_eq!(w.pki.sweep_recorded_responses(end(-1), 10).await.unwrap(), 0);
    assert_eq!(w.pki.sweep_recorded_responses(end(4), 3).await.unwrap(), 3);
    assert_eq!(w.pki.sweep_recorded_responses(end(4), 3).await.unwrap(), 2, "ended: now >= its end");
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM answered_request"), 2);
    assert!(w.pki.recorded_response(key(5)).await.unwrap().is_some());
    assert_eq!(w.pki.counts(w.mount).await.unwrap(), (7, 0), "their certificates stay");
    // Recorded responses of a dropped mount stay until they expire.
    w.auth.commit(vec![AuthWrite::MountDelete(w.mount)]).await.unwrap();
    assert_eq!(w.pki.sweep_recorded_responses(end(9), 10).await.unwrap(), 2);
}

//! Contract tests of units and batches, of their admission, and of the state after a restart.

use futures_util::future::join_all;

use super::*;
use crate::pki::store::PkiOutcome;

pub(super) async fn unit_is_stored_completely_or_not_at_all(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    w.put(vec![PkiWrite::Certificate(certificate(m, 1))]).await;
    let unit = |taken| {
        vec![
            PkiWrite::Certificate(certificate(m, 2)),
            PkiWrite::Revocation(revocation(m, 2)),
            PkiWrite::Document(document(m, "a", 0, Some("{}"))),
            PkiWrite::Crl(crl(m, "g", 1)),
            PkiWrite::Certificate(certificate(m, taken)),
        ]
    };
    let outcomes = w.pki.commit(unit(1)).await.unwrap();
    assert_eq!(outcomes.len(), 5, "one outcome per write");
    assert!(outcomes.iter().all(|o| *o == PkiOutcome::SerialTaken), "nothing of the unit was stored: {outcomes:?}");
    assert!(w.pki.certificate(m, serial(2)).await.unwrap().is_none());
    assert!(w.pki.revocations(m, 0, 10).await.unwrap().is_empty());
    assert!(w.pki.documents(m).await.unwrap().is_empty());
    assert!(w.pki.crls(m).await.unwrap().is_empty());
    assert_eq!(w.pki.counts(m).await.unwrap(), (1, 0));

    let outcomes = w.pki.commit(unit(3)).await.unwrap();
    assert!(
        matches!(&outcomes[1], PkiOutcome::Revoked { stored, fresh: true } if stored.sequence == 1),
        "no number lost"
    );
    assert_eq!(w.pki.counts(m).await.unwrap(), (3, 1));
    // The unit contains the same serial number twice.
    let twice = vec![PkiWrite::Certificate(certificate(m, 9)), PkiWrite::Certificate(certificate(m, 9))];
    assert_eq!(w.pki.commit(twice).await.unwrap()[0], PkiOutcome::SerialTaken);
    assert_eq!(w.pki.counts(m).await.unwrap(), (3, 1));
}

pub(super) async fn taken_serial_fails_only_its_unit_of_a_batch(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    w.put(vec![PkiWrite::Certificate(certificate(m, 40))]).await;
    let before = w.storage.commits();
    let results = join_all((1..=64).map(|n| w.pki.commit(vec![PkiWrite::Certificate(certificate(m, n))]))).await;
    assert!(w.storage.commits() - before < 64, "they shared batches");
    for (n, result) in (1..).zip(results) {
        let expected = if n == 40 { PkiOutcome::SerialTaken } else { PkiOutcome::Done };
        assert_eq!(result.unwrap(), [expected], "{n}");
    }
    assert_eq!(w.pki.counts(m).await.unwrap(), (64, 0));
    assert_eq!(w.pki.serials(m, None, 100).await.unwrap().len(), 64);
}

pub(super) async fn concurrent_commits_share_transactions(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let before = w.storage.commits();
    let unit = |n| w.pki.commit(vec![PkiWrite::Certificate(certificate(w.mount, n))]);
    assert!(join_all((0..64).map(unit)).await.iter().all(Result::is_ok));
    assert!(w.storage.commits() - before < 64, "{}", w.storage.commits() - before);
}

pub(super) async fn full_commit_queue_rejects_units_as_busy(fixture: &impl Fixture) {
    let storage = fixture.open(1).await.unwrap();
    let auth = storage.auth();
    let mount = MountId::random();
    auth.commit(vec![AuthWrite::MountCreate(mount)]).await.unwrap();
    // This unit takes so long that the next ones are submitted before it ends.
    let long = (0..20_000).map(|n| PkiWrite::Certificate(certificate(mount, n))).collect();
    let first = storage.pki().commit(long);
    let second = storage.pki().commit(vec![PkiWrite::Certificate(certificate(mount, 50_000))]);
    assert_eq!(second.await.unwrap_err().kind(), Kind::Busy);
    assert!(first.await.is_ok());
    let third = storage.pki().commit(vec![PkiWrite::Certificate(certificate(mount, 50_000))]);
    assert_eq!(third.await.unwrap(), [PkiOutcome::Done]);
}

pub(super) async fn trial_write_leaves_no_rows(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let before = fixture.query_number("SELECT COUNT(*) FROM document");
    let trials = join_all((0..3).map(|_| w.auth.try_writing())).await;
    assert!(trials.iter().all(Result::is_ok) && !w.auth.writes_fail());
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM document"), before);
}

pub(super) async fn write_is_stored_after_its_caller_is_dropped(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    drop(w.pki.commit(vec![PkiWrite::Certificate(certificate(w.mount, 1))]));
    w.put(vec![PkiWrite::Certificate(certificate(w.mount, 2))]).await;
    assert!(w.pki.certificate(w.mount, serial(1)).await.unwrap().is_some());
}

pub(super) async fn reopened_store_has_all_rows(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    w.put(vec![
        PkiWrite::Certificate(certificate(m, 1)),
        PkiWrite::Revocation(revocation(m, 1)),
        PkiWrite::Document(document(m, "a", 0, Some("body"))),
        PkiWrite::Crl(crl(m, "g", 7)),
    ])
    .await;
    let token = super::auth::token(1, None);
    w.auth.commit(vec![AuthWrite::TokenInsert(token.clone())]).await.unwrap();
    w.storage.shutdown().await.unwrap();

    let w = ContractStore::reopen(fixture, m).await;
    let found = w.pki.certificate(m, serial(1)).await.unwrap().unwrap();
    assert_eq!(found.row, certificate(m, 1));
    assert_eq!(found.revocation.unwrap().row, revocation(m, 1));
    assert!(w.pki.documents(m).await.unwrap()[0].body == b"body");
    assert_eq!(w.pki.crls(m).await.unwrap(), [crl(m, "g", 7)]);
    assert_eq!(w.pki.counts(m).await.unwrap(), (1, 1));
    assert!(w.auth.token(token.hash).await.unwrap() == Some(token));
    let next = w.pki.commit(vec![PkiWrite::Revocation(revocation(m, 2))]).await.unwrap();
    assert!(matches!(&next[0], PkiOutcome::Revoked { stored, fresh: true } if stored.sequence == 2));
}

pub(super) async fn closed_store_rejects_reads_and_writes(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let last = w.pki.commit(vec![PkiWrite::Certificate(certificate(w.mount, 1))]);
    w.storage.shutdown().await.unwrap();
    assert!(last.await.is_ok(), "what was admitted is written");
    assert_eq!(w.rejection_kind(vec![PkiWrite::Certificate(certificate(w.mount, 2))]).await, Kind::Unavailable);
    assert_eq!(w.pki.counts(w.mount).await.unwrap_err().kind(), Kind::Unavailable);
    w.storage.shutdown().await.unwrap();
}

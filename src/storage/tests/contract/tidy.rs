//! Contract tests of tidy: at most one run at a time, and the rows that its steps remove.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use super::*;
use crate::pki::store::{MetadataRow, PkiOutcome, RemovableRevocations, Removal, RemovalResult, TidyRow};

fn rows_expiring_at(mount: MountId, n: u32, not_after: i64) -> (CertificateRow, RevocationRow, MetadataRow) {
    (
        CertificateRow { not_after, ..certificate(mount, n) },
        RevocationRow { not_after, ..revocation(mount, n) },
        MetadataRow { mount, serial: serial(n), not_after, body: b"attached".to_vec() },
    )
}

fn ended_before(before: i64) -> RemovableRevocations {
    RemovableRevocations { before, ..RemovableRevocations::ALL }
}

async fn run_step(w: &ContractStore, what: Removal, limit: u32) -> RemovalResult {
    let outcomes = w.pki.commit(vec![PkiWrite::Remove { mount: w.mount, what, limit }]).await.unwrap();
    match outcomes.into_iter().next() {
        Some(PkiOutcome::Removed(removed)) => removed,
        other => panic!("{other:?}"),
    }
}

/// Runs steps until a step finds no rows. Returns the number of removed rows by type, and the number of steps.
async fn run_steps(
    w: &ContractStore,
    limit: u32,
    what: impl Fn(Option<(i64, Serial)>) -> Removal,
) -> ([u32; 3], usize) {
    let mut sum = [0; 3];
    let mut last = None;
    let mut count = 0;
    loop {
        let removed = run_step(w, what(last), limit).await;
        assert!(removed.visited <= limit && removed.certificates + removed.metadata <= limit, "{removed:?}");
        for (sum, gone) in sum.iter_mut().zip([removed.certificates, removed.revocations, removed.metadata]) {
            *sum += gone;
        }
        (last, count) = (removed.last, count + 1);
        if removed.visited < limit {
            return (sum, count);
        }
    }
}

async fn assert_counted(w: &ContractStore, fixture: &impl Fixture) {
    let (certificates, revocations) = w.pki.counts(w.mount).await.unwrap();
    let rows = |table: &str| {
        let id = w.mount.0;
        fixture.query_number(&format!("SELECT COUNT(*) FROM {table} WHERE mount = {id}")) as u64
    };
    assert_eq!((certificates, revocations), (rows("certificate"), rows("revocation")));
}

pub(super) async fn tidy_removes_expired_certificates_in_steps(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    let other = MountId::random();
    w.create_mount(other).await;
    // Many certificates expire in the same second, and every fourth certificate is revoked.
    for n in 0..100 {
        let end = if n < 60 { NOW - 500 } else { NOW - 100 + i64::from(n) };
        for mount in [m, other] {
            let (certificate, revocation, _) = rows_expiring_at(mount, n, end);
            w.put(vec![PkiWrite::Certificate(certificate)]).await;
            if n % 4 == 0 {
                w.put(vec![PkiWrite::Revocation(revocation)]).await;
            }
        }
    }
    let ended = |revoked_before| move |after| Removal::Certificates { before: NOW - 10, revoked_before, after };
    // 90 certificates have expired. The 23 revoked ones among them stay, and the steps skip these.
    let (gone, count) = run_steps(&w, 7, ended(i64::MIN)).await;
    assert_eq!((gone, count), ([67, 0, 0], 13));
    assert_eq!(w.pki.counts(m).await.unwrap(), (33, 25));
    assert_counted(&w, fixture).await;
    // A second run from the beginning has nothing left to do.
    assert_eq!(run_steps(&w, 7, ended(i64::MIN)).await.0, [0, 0, 0]);
    // With this `revoked_before`, the revoked certificates that expired in that second are removed as well.
    assert_eq!(run_steps(&w, 500, ended(NOW - 400)).await, ([15, 0, 0], 1));
    assert_eq!(w.pki.counts(m).await.unwrap(), (18, 25), "their revocations stay");
    assert_counted(&w, fixture).await;
    assert_eq!(w.pki.counts(other).await.unwrap(), (100, 25), "of one mount only");
    assert!(w.pki.certificate(m, serial(95)).await.unwrap().is_some());
}

pub(super) async fn tidy_removes_expired_revocations_with_their_certificates(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    for n in 0..30 {
        let (certificate, revocation, _) = rows_expiring_at(m, n, NOW + i64::from(n));
        // Every third revocation has no stored certificate.
        if n % 3 != 0 {
            w.put(vec![PkiWrite::Certificate(certificate)]).await;
        }
        w.put(vec![PkiWrite::Revocation(revocation)]).await;
    }
    let before = NOW + 20;
    assert_eq!(run_steps(&w, 8, |_| Removal::Revocations(ended_before(before))).await, ([13, 20, 0], 3));
    assert_eq!(w.pki.counts(m).await.unwrap(), (7, 10));
    assert_counted(&w, fixture).await;
    let left: Vec<u64> = w.pki.revocations(m, 0, 100).await.unwrap().iter().map(|r| r.sequence).collect();
    assert_eq!(left, (21..=30).collect::<Vec<_>>());
    // Sequence numbers continue, even after the rows with the last numbers were removed.
    run_steps(&w, 500, |_| Removal::Revocations(ended_before(NOW + 999))).await;
    let outcomes = w.pki.commit(vec![PkiWrite::Revocation(revocation(m, 99))]).await.unwrap();
    assert!(matches!(&outcomes[0], PkiOutcome::Revoked { stored, fresh: true } if stored.sequence == 31));
    let covering = |number, covers| PkiWrite::Crl(CrlRow { covers, ..crl(m, "g", number) });
    w.put(vec![covering(1, 30)]).await;
    w.put(vec![covering(2, 31)]).await;
    assert_eq!(w.rejection_kind(vec![covering(3, 20)]).await, Kind::Conflict);
}

pub(super) async fn tidy_finds_expired_revocations_missing_on_a_crl(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    // The higher the sequence number of a revocation, the earlier its certificate expires.
    for n in 0..10 {
        w.put(vec![PkiWrite::Revocation(rows_expiring_at(m, n, NOW + 10 - i64::from(n)).1)]).await;
    }
    for (before, listed, unlisted) in [
        (NOW + 99, (NOW + 11, 10), false),
        (NOW + 99, (NOW + 10, 10), true),
        (NOW + 10, (NOW + 10, 10), false),
        (NOW + 6, (NOW + 99, 9), true),
        (NOW + 1, (NOW + 99, 9), false),
        (NOW + 2, (NOW + 99, 9), true),
        (NOW + 1, (i64::MIN, 0), false),
        (NOW + 99, (i64::MIN, 0), true),
    ] {
        let listed = RemovableRevocations { before: listed.0, up_to: listed.1 };
        assert_eq!(w.pki.has_unlisted_revocations(m, before, listed).await.unwrap(), unlisted, "{before} {listed:?}");
    }
    assert!(
        !w.pki.has_unlisted_revocations(MountId::random(), NOW + 99, RemovableRevocations::NONE).await.unwrap(),
        "of another mount"
    );
    let listed = RemovableRevocations { before: NOW + 9, up_to: 7 };
    assert_eq!(run_steps(&w, 3, |_| Removal::Revocations(listed)).await, ([0, 5, 0], 2));
    let left: Vec<u64> = w.pki.revocations(m, 0, 100).await.unwrap().iter().map(|r| r.sequence).collect();
    assert_eq!(left, [1, 2, 8, 9, 10]);
}

pub(super) async fn tidy_removes_expired_metadata_and_named_certificates(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    for n in 0..20 {
        let (certificate, revocation, metadata) = rows_expiring_at(m, n, NOW + i64::from(n));
        w.put(vec![PkiWrite::Certificate(certificate), PkiWrite::Metadata(metadata)]).await;
        if n % 5 == 0 {
            w.put(vec![PkiWrite::Revocation(revocation)]).await;
        }
    }
    assert_eq!(run_steps(&w, 5, |_| Removal::Metadata { before: NOW + 12 }).await, ([0, 0, 12], 3));
    assert_eq!(w.pki.metadata_serials(m, None, 100).await.unwrap(), (12..20).map(serial).collect::<Vec<_>>());
    // Certificates that are named and revoked are removed only if they expired before `revoked_before`.
    let serials = (0..20).map(serial).chain([serial(999)]).collect();
    let removed = run_step(&w, Removal::Named { serials, revoked_before: NOW + 10 }, 100).await;
    assert_eq!((removed.certificates, removed.revocations), (18, 0));
    assert_eq!(w.pki.serials(m, None, 100).await.unwrap(), [serial(10), serial(15)]);
    assert_counted(&w, fixture).await;
    let page = w.pki.certificates(m, Some(serial(10)), 5).await.unwrap();
    assert_eq!(page, [(serial(15), certificate(m, 15).der)]);
}

pub(super) async fn certificates_are_listed_in_the_order_of_expiry(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    // The higher the serial number of a certificate, the earlier it expires; two expire in the same second.
    for (n, end) in [(0, 50), (1, 40), (2, 30), (3, 30), (4, 20), (5, 10)] {
        let (certificate, revocation, _) = rows_expiring_at(m, n, NOW + end);
        w.put(vec![PkiWrite::Certificate(certificate)]).await;
        if n == 3 {
            w.put(vec![PkiWrite::Revocation(revocation)]).await;
        }
    }
    let found = async |from: i64, limit: u32| w.pki.certificates_by_expiry(m, NOW + from, limit).await.unwrap();
    let of = |numbers: &[u32]| numbers.iter().map(|n| (serial(*n), certificate(m, *n).der)).collect::<Vec<_>>();
    assert_eq!(found(0, 100).await, of(&[5, 4, 2, 3, 1, 0]));
    assert_eq!(found(20, 3).await, of(&[4, 2, 3]), "one that ends now has not ended");
    assert_eq!(found(51, 3).await, []);
}

fn tidy_row(mount: MountId, run: i64, valid_until: i64) -> TidyRow {
    TidyRow { mount, run, valid_until, cancelled: false, report: vec![run as u8] }
}

/// Starts a tidy run. Returns `true` if the store admits the run.
async fn start_run(w: &ContractStore, row: TidyRow, seen: i64, now: i64) -> bool {
    w.pki.commit(vec![PkiWrite::TidyBegin { row, seen, now }]).await.unwrap() == [PkiOutcome::Changed(1)]
}

fn renew_run(mount: MountId, run: i64, valid_until: i64) -> PkiWrite {
    PkiWrite::TidyRenew { mount, run, valid_until, report: b"so far".to_vec() }
}

pub(super) async fn tidy_admits_one_run_at_a_time(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    assert_eq!(w.pki.tidy(m).await.unwrap(), None);
    assert_eq!(w.rejection_kind(vec![renew_run(m, 1, NOW + 60)]).await, Kind::Conflict, "there is none");
    assert!(start_run(&w, tidy_row(m, 1, NOW + 60), 0, NOW).await);
    assert_eq!(w.pki.tidy(m).await.unwrap(), Some(tidy_row(m, 1, NOW + 60)));
    assert!(!start_run(&w, tidy_row(m, 2, NOW + 60), 1, NOW + 59).await, "one is under way");
    w.put(vec![PkiWrite::Certificate(rows_expiring_at(m, 1, NOW - 5).0)]).await;
    let what = || Removal::Certificates { before: NOW, revoked_before: NOW, after: None };
    let removal = || PkiWrite::Remove { mount: m, what: what(), limit: 10 };
    let cancel = |now| w.pki.commit(vec![PkiWrite::TidyCancel { mount: m, now }]);
    assert_eq!(cancel(NOW + 60).await.unwrap(), [PkiOutcome::Changed(0)], "its time was over");
    let outcomes = w.pki.commit(vec![renew_run(m, 1, NOW + 100), removal()]).await.unwrap();
    assert!(
        matches!(&outcomes[..], [PkiOutcome::TidyRenewed { cancelled: false }, PkiOutcome::Removed(r)] if r.certificates == 1)
    );
    assert_eq!(cancel(NOW + 99).await.unwrap(), [PkiOutcome::Changed(1)]);
    assert_eq!(
        w.pki.commit(vec![renew_run(m, 1, NOW + 100)]).await.unwrap(),
        [PkiOutcome::TidyRenewed { cancelled: true }]
    );
    // After the run has lapsed, another run may start, if it names the lapsed run as the last one that it has seen. The
    // first run can then no longer continue.
    assert!(!start_run(&w, tidy_row(m, 3, NOW + 200), 0, NOW + 100).await, "seen none");
    assert!(start_run(&w, tidy_row(m, 3, NOW + 200), 1, NOW + 100).await);
    w.put(vec![PkiWrite::Certificate(rows_expiring_at(m, 2, NOW - 5).0)]).await;
    assert_eq!(w.rejection_kind(vec![renew_run(m, 1, NOW + 300), removal()]).await, Kind::Conflict);
    assert_eq!(w.rejection_kind(vec![removal(), renew_run(m, 1, NOW + 300)]).await, Kind::Conflict);
    assert!(w.pki.certificate(m, serial(2)).await.unwrap().is_some(), "nothing went with it");
    assert_counted(&w, fixture).await;
    let row = w.pki.tidy(m).await.unwrap().unwrap();
    assert_eq!(row, tidy_row(m, 3, NOW + 200), "and no request asked the new run to end");
    w.put(vec![renew_run(m, 3, 0)]).await;
    assert!(start_run(&w, tidy_row(m, 4, NOW + 200), 3, NOW).await);
    w.put(vec![renew_run(m, 4, 0)]).await;
    let all = join_all((10..20).map(|run| start_run(&w, tidy_row(m, run, NOW + 200), 4, NOW))).await;
    assert_eq!(all.into_iter().filter(|began| *began).count(), 1);
    w.auth.commit(vec![AuthWrite::MountDelete(m)]).await.unwrap();
    assert_eq!(w.pki.tidy(m).await.unwrap(), None);
    assert_eq!(w.rejection_kind(vec![removal()]).await, Kind::Conflict);
}

/// The rows that the store must contain: the expiry by serial number, for each type of row.
#[derive(Default)]
struct TidyModel {
    certificates: BTreeMap<u32, i64>,
    revocations: BTreeMap<u32, i64>,
    metadata: BTreeMap<u32, i64>,
}

impl TidyModel {
    fn remove_certificates(&mut self, before: i64, revoked_before: i64) {
        let revoked = &self.revocations;
        self.certificates.retain(|n, end| *end >= before || (revoked.contains_key(n) && *end >= revoked_before));
    }

    fn remove_revocations(&mut self, before: i64) {
        let gone: BTreeSet<u32> = self.revocations.iter().filter(|(_, end)| **end < before).map(|(n, _)| *n).collect();
        self.revocations.retain(|n, _| !gone.contains(n));
        self.certificates.retain(|n, _| !gone.contains(n));
    }
}

pub(super) async fn tidy_removes_the_same_rows_as_a_model(fixture: &impl Fixture) {
    let mut w = ContractStore::new(fixture).await;
    let m = w.mount;
    let mut model = TidyModel::default();
    // The expiry of every certificate that was ever revoked. The revocation must not be removed before the certificate
    // expires.
    let mut revoked: BTreeMap<u32, i64> = BTreeMap::new();
    let mut next = 0;
    for round in 0..60 {
        let now = NOW + round * 10;
        let [issued, spread, kind, limit, buffer, revoked_buffer, chance] = crate::random::bytes::<7>();
        for _ in 0..issued % 12 {
            let n = next;
            next += 1;
            let end = now + i64::from(crate::random::bytes::<1>()[0] % (spread / 2 + 1)) + 1;
            let (certificate, revocation, metadata) = rows_expiring_at(m, n, end);
            let mut unit = Vec::new();
            if !n.is_multiple_of(7) {
                unit.push(PkiWrite::Certificate(certificate));
                model.certificates.insert(n, end);
            }
            if n.is_multiple_of(2) {
                unit.push(PkiWrite::Metadata(metadata));
                model.metadata.insert(n, end);
            }
            if n.is_multiple_of(7) || (u32::from(chance) + n).is_multiple_of(3) {
                unit.push(PkiWrite::Revocation(revocation));
                model.revocations.insert(n, end);
                revoked.insert(n, end);
            }
            w.put(unit).await;
        }
        let limit = u32::from(limit % 9) + 1;
        let before = now - i64::from(buffer % 90) - 1;
        let revoked_before = now - i64::from(revoked_buffer % 90) - 1;
        match kind % 3 {
            0 => {
                let what = |after| Removal::Certificates { before, revoked_before, after };
                // Sometimes a run is interrupted after one step, and the next run starts from the beginning.
                if chance.is_multiple_of(4) {
                    run_step(&w, what(None), limit).await;
                }
                run_steps(&w, limit, what).await;
                model.remove_certificates(before, revoked_before);
            }
            1 => {
                run_steps(&w, limit, |_| Removal::Revocations(ended_before(revoked_before))).await;
                model.remove_revocations(revoked_before);
            }
            _ => {
                run_steps(&w, limit, |_| Removal::Metadata { before }).await;
                model.metadata.retain(|_, end| *end >= before);
            }
        }
        if round % 20 == 19 {
            w.storage.shutdown().await.unwrap();
            w = ContractStore::reopen(fixture, m).await;
        }
        let keys = |rows: &BTreeMap<u32, i64>| rows.keys().map(|n| serial(*n)).collect::<Vec<_>>();
        assert_eq!(w.pki.serials(m, None, 10_000).await.unwrap(), keys(&model.certificates), "round {round}");
        assert_eq!(w.pki.revoked_serials(m, None, 10_000).await.unwrap(), keys(&model.revocations), "round {round}");
        assert_eq!(w.pki.metadata_serials(m, None, 10_000).await.unwrap(), keys(&model.metadata), "round {round}");
        assert!(revoked.iter().all(|(n, end)| *end < now || model.revocations.contains_key(n)), "round {round}");
        assert_counted(&w, fixture).await;
    }
    assert!(next > 100, "{next} certificates");
}

pub(super) async fn counters_stay_exact_during_tidy_and_issuing(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    let tidier = async {
        for _ in 0..40 {
            run_step(&w, Removal::Certificates { before: NOW, revoked_before: NOW, after: None }, 10).await;
            run_step(&w, Removal::Revocations(ended_before(NOW)), 10).await;
        }
    };
    let issuers = join_all((0..8u32).map(|task| {
        let w = &w;
        async move {
            for n in task * 100..task * 100 + 40 {
                let end = if n % 2 == 0 { NOW - 1 } else { NOW + 1 };
                let (certificate, revocation, _) = rows_expiring_at(m, n, end);
                w.put(vec![PkiWrite::Certificate(certificate)]).await;
                if n % 3 == 0 {
                    w.put(vec![PkiWrite::Revocation(revocation)]).await;
                }
            }
        }
    }));
    futures_util::future::join(tidier, issuers).await;
    assert_counted(&w, fixture).await;
    run_steps(&w, 500, |after| Removal::Certificates { before: NOW, revoked_before: NOW, after }).await;
    run_steps(&w, 500, |_| Removal::Revocations(ended_before(NOW))).await;
    assert_counted(&w, fixture).await;
    let kept: Vec<Serial> =
        (0..8).flat_map(|task| task * 100..task * 100 + 40).filter(|n| n % 2 == 1).map(serial).collect();
    assert_eq!(w.pki.serials(m, None, 1000).await.unwrap(), kept);
    let revoked = w.pki.revoked_serials(m, None, 1000).await.unwrap();
    assert!(!revoked.is_empty() && revoked.iter().all(|serial| kept.contains(serial)));
}

pub(super) async fn issuer_of_a_revocation_is_changed(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    w.put(vec![PkiWrite::Revocation(revocation(m, 1)), PkiWrite::Revocation(revocation(m, 2))]).await;
    let write = PkiWrite::RevocationIssuer { mount: m, serial: serial(2), issuer: "issuer-2".into() };
    assert_eq!(w.pki.commit(vec![write]).await.unwrap(), [PkiOutcome::Changed(1)]);
    let issuers: Vec<String> = w.pki.revocations(m, 0, 10).await.unwrap().into_iter().map(|r| r.row.issuer).collect();
    assert_eq!(issuers, ["issuer-1", "issuer-2"]);
}

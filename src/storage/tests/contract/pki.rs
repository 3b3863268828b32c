//! Contract tests of documents, certificates, revocations, CRLs, counters and mounts.

use std::collections::HashSet;

use futures_util::future::join_all;

use super::*;
use crate::clock::format_rfc3339;
use crate::documents::SYSTEM_MOUNT;
use crate::pki::store::{KnownSerial, PkiOutcome, SerialStatus, StoredRevocation};

pub(super) async fn document_write_requires_the_stored_version(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    let write = |expected, body| vec![PkiWrite::Document(document(m, "a", expected, body))];
    assert_eq!(w.rejection_kind(write(1, Some("x"))).await, Kind::Conflict, "update of what is not there");
    assert_eq!(w.rejection_kind(write(1, None)).await, Kind::Conflict, "delete of what is not there");
    w.put(write(0, None)).await;
    w.put(write(0, Some("one"))).await;
    assert_eq!(w.rejection_kind(write(0, Some("x"))).await, Kind::Conflict, "insert over an existing one");
    assert_eq!(w.rejection_kind(write(0, None)).await, Kind::Conflict, "must not be there");
    w.put(write(1, Some("two"))).await;
    assert_eq!(w.rejection_kind(write(1, Some("x"))).await, Kind::Conflict, "stale version");
    assert_eq!(w.rejection_kind(write(1, None)).await, Kind::Conflict, "delete of a stale version");
    let all = w.pki.documents(m).await.unwrap();
    assert!(all.len() == 1 && all[0].version == 2 && all[0].body == b"two");
    assert_eq!((all[0].key.kind, &all[0].key.name[..], all[0].key.mount), ("role", "a", m));
    w.put(write(2, None)).await;
    assert!(w.pki.documents(m).await.unwrap().is_empty());

    w.put(write(0, Some("one"))).await;
    let both = join_all((0..2).map(|_| w.pki.commit(write(1, Some("two"))))).await;
    assert_eq!(both.iter().filter(|r| r.is_ok()).count(), 1);
}

fn revocation_outcome(outcomes: Vec<PkiOutcome>) -> (StoredRevocation, bool) {
    match outcomes.into_iter().next() {
        Some(PkiOutcome::Revoked { stored, fresh }) => (stored, fresh),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn revocation_is_idempotent_and_the_first_one_is_kept(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let mut row = revocation(w.mount, 1);
    row.revoked_at += std::time::Duration::from_nanos(123_456_789);
    let (first, fresh) = revocation_outcome(w.pki.commit(vec![PkiWrite::Revocation(row.clone())]).await.unwrap());
    assert!(fresh && first.sequence == 1);
    assert_eq!(format_rfc3339(first.row.revoked_at), "2026-01-01T00:00:00.123456Z", "as it reads back");
    row.revoked_at += std::time::Duration::from_secs(60);
    row.reason = Some(3);
    let (again, fresh) = revocation_outcome(w.pki.commit(vec![PkiWrite::Revocation(row)]).await.unwrap());
    assert!(!fresh);
    assert_eq!(again, first);
    assert_eq!(w.pki.revocations(w.mount, 0, 10).await.unwrap(), [first]);
    assert_eq!(w.pki.counts(w.mount).await.unwrap(), (0, 1));
    let (next, _) = revocation_outcome(w.pki.commit(vec![PkiWrite::Revocation(revocation(w.mount, 2))]).await.unwrap());
    assert_eq!(next.sequence, 2, "the repetition used no number");
}

pub(super) async fn compromise_replaces_another_reason_once_with_a_new_number(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let row = |n: u32, reason, invalidity_date| RevocationRow { reason, invalidity_date, ..revocation(w.mount, n) };
    let commit =
        async |row: RevocationRow| revocation_outcome(w.pki.commit(vec![PkiWrite::Revocation(row)]).await.unwrap());
    for n in 1..=3 {
        assert!(commit(row(n, [None, Some(4), Some(1)][n as usize - 1], Some(NOW - 5))).await.1);
    }
    let later = |n, reason, date| {
        let row = row(n, reason, date);
        RevocationRow { revoked_at: row.revoked_at + std::time::Duration::from_secs(60), ..row }
    };
    let (stored, fresh) = commit(later(1, Some(1), Some(NOW - 9))).await;
    assert_eq!((stored.sequence, fresh, &stored.row), (4, false, &row(1, Some(1), Some(NOW - 9))));
    let (stored, _) = commit(later(2, Some(2), None)).await;
    assert_eq!((stored.sequence, &stored.row), (5, &row(2, Some(2), Some(NOW - 5))), "the date that is known stays");
    for (n, reason) in [(1, Some(1)), (1, Some(2)), (2, Some(1)), (2, None), (3, Some(1)), (3, Some(2)), (3, Some(9))] {
        let (stored, fresh) = commit(later(n, reason, Some(NOW - 1))).await;
        assert!(!fresh && stored.row.invalidity_date != Some(NOW - 1), "{n} {reason:?}");
    }
    // A reader that has read up to sequence number 3 gets exactly the amended revocations.
    let read = async |after| -> Vec<_> {
        let page = w.pki.revocations(w.mount, after, 10).await.unwrap();
        page.iter().map(|r| (r.sequence, r.row.serial, r.row.reason)).collect()
    };
    let changed = [(4, serial(1), Some(1)), (5, serial(2), Some(2))];
    assert_eq!(read(3).await, changed);
    assert_eq!(read(0).await, [&[(3, serial(3), Some(1))][..], &changed].concat());
    assert_eq!(w.pki.counts(w.mount).await.unwrap(), (0, 3));
    let unit = vec![PkiWrite::Revocation(row(4, Some(5), None)), PkiWrite::Revocation(later(4, Some(1), None))];
    let batch = join_all([w.pki.commit(unit), w.pki.commit(vec![PkiWrite::Revocation(later(4, Some(1), None))])]).await;
    assert!(batch.iter().all(Result::is_ok));
    let status = w.pki.serial_status(w.mount, serial(4)).await.unwrap().revocation.unwrap();
    assert_eq!((status.row.reason, status.row.revoked_at), (Some(1), now()));
    assert_eq!(w.pki.counts(w.mount).await.unwrap(), (0, 4));
}

pub(super) async fn status_of_a_serial_covers_certificate_and_revocation(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let status = async |n| w.pki.serial_status(w.mount, certificate(w.mount, n).serial).await.unwrap();
    assert_eq!(status(1).await, SerialStatus::default(), "never used");
    let row = certificate(w.mount, 1);
    w.put(vec![PkiWrite::Certificate(row.clone())]).await;
    assert_eq!(status(1).await, SerialStatus { issuer: Some(row.issuer.clone()), revocation: None });
    let (stored, _) =
        revocation_outcome(w.pki.commit(vec![PkiWrite::Revocation(revocation(w.mount, 1))]).await.unwrap());
    assert_eq!(status(1).await, SerialStatus { issuer: Some(row.issuer), revocation: Some(stored) });
    // Revokes a serial number without a stored certificate.
    let (alone, _) =
        revocation_outcome(w.pki.commit(vec![PkiWrite::Revocation(revocation(w.mount, 2))]).await.unwrap());
    assert_eq!(status(2).await, SerialStatus { issuer: None, revocation: Some(alone) });
    let other = MountId::random();
    w.create_mount(other).await;
    assert_eq!(w.pki.serial_status(other, certificate(other, 1).serial).await.unwrap(), SerialStatus::default());
}

pub(super) async fn known_serials_are_returned_in_the_requested_order(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let stored = certificate(w.mount, 1);
    let other = MountId::random();
    w.create_mount(other).await;
    w.put(vec![PkiWrite::Certificate(stored.clone()), PkiWrite::Revocation(revocation(w.mount, 1))]).await;
    w.put(vec![PkiWrite::Certificate(certificate(w.mount, 2))]).await;
    w.put(vec![PkiWrite::Revocation(revocation(w.mount, 3))]).await;
    let known = async |mount, numbers: &[u32]| {
        let serials = numbers.iter().map(|n| certificate(mount, *n).serial).collect();
        w.pki.known_serials(mount, serials).await.unwrap()
    };
    let certificate = Some((stored.issuer.clone(), stored.not_after));
    let revocation = Some(revocation(w.mount, 1).issuer);
    let both = KnownSerial { certificate: certificate.clone(), revocation: revocation.clone() };
    let alone = KnownSerial { certificate: None, revocation };
    let good = KnownSerial { certificate, revocation: None };
    let nothing = KnownSerial::default();
    let all = known(w.mount, &[3, 9, 1, 2, 3]).await;
    assert_eq!(all, [alone.clone(), nothing.clone(), both, good, alone]);
    assert_eq!(known(other, &[1, 2]).await, [nothing.clone(), nothing]);
    assert_eq!(known(w.mount, &[]).await, []);
}

pub(super) async fn revocation_sequences_have_no_gaps_under_8_tasks(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    let tasks = (0..8u32).map(|task| {
        let pki = w.pki.clone();
        tokio::spawn(async move {
            let mut last = 0;
            for n in 0..25 {
                let mut unit = vec![PkiWrite::Revocation(revocation(m, task * 100 + n))];
                if n % 5 == 4 {
                    // This write makes the unit fail after its revocation took a sequence number.
                    unit.push(PkiWrite::Document(document(m, "absent", 9, None)));
                    assert_eq!(pki.commit(unit).await.unwrap_err().kind(), Kind::Conflict);
                    continue;
                }
                let (stored, fresh) = revocation_outcome(pki.commit(unit).await.unwrap());
                assert!(fresh && stored.sequence > last);
                last = stored.sequence;
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    let sequences: Vec<u64> = w.pki.revocations(m, 0, 1000).await.unwrap().iter().map(|r| r.sequence).collect();
    assert_eq!(sequences, (1..=160).collect::<Vec<_>>());
}

pub(super) async fn counters_equal_a_full_scan_after_random_writes(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let other = MountId::random();
    w.create_mount(other).await;
    for _ in 0..20 {
        let units = (0..30).map(|_| {
            let [kind, n, m, fails] = crate::random::bytes::<4>();
            let mount = if m % 2 == 0 { w.mount } else { other };
            let n = u32::from(n);
            let mut unit = match kind % 3 {
                0 => vec![PkiWrite::Certificate(certificate(mount, n))],
                1 => vec![PkiWrite::Revocation(revocation(mount, n))],
                _ => vec![PkiWrite::Certificate(certificate(mount, n)), PkiWrite::Revocation(revocation(mount, n))],
            };
            if fails % 4 == 0 {
                unit.push(PkiWrite::Crl(crl(mount, "g", 0)));
                unit.push(PkiWrite::Crl(crl(mount, "g", 0)));
            }
            w.pki.commit(unit)
        });
        join_all(units).await;
    }
    for mount in [w.mount, other] {
        let certificates = w.pki.serials(mount, None, 10_000).await.unwrap().len() as u64;
        let revocations = w.pki.revocations(mount, 0, 10_000).await.unwrap().len() as u64;
        assert_eq!(w.pki.counts(mount).await.unwrap(), (certificates, revocations));
        assert!(certificates > 50 && revocations > 50);
    }
}

pub(super) async fn keyset_pages_are_complete_and_do_not_overlap(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    // Serial numbers of all lengths, which the database must order bytewise like `Serial`.
    let mut serials: Vec<Serial> = (1..=20usize)
        .flat_map(|len| (1..=5u8).map(move |first| Serial::from_octets(&vec![first; len]).unwrap()))
        .collect();
    let unit = |&serial: &Serial| {
        let certificate = CertificateRow { serial, ..certificate(m, 0) };
        vec![PkiWrite::Certificate(certificate), PkiWrite::Revocation(RevocationRow { serial, ..revocation(m, 0) })]
    };
    join_all(serials.iter().map(|s| w.pki.commit(unit(s)))).await;
    serials.sort();
    for limit in [1, 7, 100, 1000] {
        let mut issued = Vec::new();
        let mut revoked = Vec::new();
        let mut sequences = Vec::new();
        loop {
            let page = w.pki.serials(m, issued.last().copied(), limit).await.unwrap();
            assert!(page.len() <= limit as usize);
            revoked.extend(w.pki.revoked_serials(m, revoked.last().copied(), limit).await.unwrap());
            let after = sequences.last().copied().unwrap_or(0);
            sequences.extend(w.pki.revocations(m, after, limit).await.unwrap().iter().map(|r| r.sequence));
            if page.is_empty() {
                break;
            }
            issued.extend(page);
        }
        assert_eq!(issued, serials, "{limit}");
        assert_eq!(revoked, serials, "{limit}");
        assert_eq!(sequences, (1..=100).collect::<Vec<_>>(), "{limit}");
    }
    assert!(w.pki.revocations(m, u64::MAX, 10).await.unwrap().is_empty());
}

pub(super) async fn crl_number_must_increase(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    let publish = |group, number| vec![PkiWrite::Crl(crl(m, group, number))];
    w.put(publish("a", 5)).await;
    for number in [5, 4, 0] {
        assert_eq!(w.rejection_kind(publish("a", number)).await, Kind::Conflict, "{number}");
    }
    w.put(publish("a", 6)).await;
    w.put(publish("b", 1)).await;
    assert_eq!(w.pki.crls(m).await.unwrap(), [crl(m, "a", 6), crl(m, "b", 1)]);
}

pub(super) async fn certificate_is_read_with_its_revocation(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    for n in 0..6 {
        w.put(vec![PkiWrite::Certificate(certificate(m, n))]).await;
        let found = w.pki.certificate(m, serial(n)).await.unwrap().unwrap();
        assert_eq!((found.row, found.revocation), (certificate(m, n), None));
        w.put(vec![PkiWrite::Revocation(revocation(m, n))]).await;
        let found = w.pki.certificate(m, serial(n)).await.unwrap().unwrap();
        let stored = StoredRevocation { row: revocation(m, n), sequence: u64::from(n) + 1 };
        assert_eq!((found.row, found.revocation), (certificate(m, n), Some(stored)));
    }
    w.put(vec![PkiWrite::Revocation(revocation(m, 77))]).await;
    assert!(w.pki.certificate(m, serial(77)).await.unwrap().is_none());
    assert!(w.pki.certificate(MountId::random(), serial(1)).await.unwrap().is_none());
}

pub(super) async fn dropped_mount_loses_all_rows_and_other_mounts_none(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let gone = w.mount;
    let kept = MountId::random();
    w.create_mount(kept).await;
    for mount in [gone, kept] {
        w.put((0..700).map(|n| PkiWrite::Certificate(certificate(mount, n))).collect()).await;
        w.put((0..300).map(|n| PkiWrite::Revocation(revocation(mount, n))).collect()).await;
        w.put(vec![PkiWrite::Crl(crl(mount, "g", 1)), PkiWrite::Document(document(mount, "a", 0, Some("x")))]).await;
    }
    let auth = &w.auth;
    auth.commit(vec![AuthWrite::MountDelete(gone)]).await.unwrap();
    assert_eq!(w.pki.counts(gone).await.unwrap(), (0, 0));
    assert_eq!((w.pki.has_mount(gone).await.unwrap(), w.pki.has_mount(kept).await.unwrap()), (false, true));
    assert!(w.pki.serials(gone, None, 10).await.unwrap().is_empty());
    assert!(w.pki.revoked_serials(gone, None, 10).await.unwrap().is_empty());
    assert!(w.pki.revocations(gone, 0, 10).await.unwrap().is_empty());
    assert!(w.pki.certificate(gone, serial(1)).await.unwrap().is_none());
    assert!(w.pki.crls(gone).await.unwrap().is_empty());
    assert!(w.pki.documents(gone).await.unwrap().is_empty());
    let left = "SELECT (SELECT COUNT(*) FROM certificate) + (SELECT COUNT(*) FROM revocation)
        + (SELECT COUNT(*) FROM document) + (SELECT COUNT(*) FROM crl) + (SELECT COUNT(*) FROM dropped_mount)";
    for _ in 0..500 {
        if fixture.query_number(left) == 1002 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(fixture.query_number(left), 1002);
    assert_eq!(w.pki.counts(kept).await.unwrap(), (700, 300));
    assert_eq!(w.pki.serials(kept, None, 1000).await.unwrap().len(), 700);
    assert_eq!(w.pki.documents(kept).await.unwrap().len(), 1);
    assert_eq!(w.pki.crls(kept).await.unwrap().len(), 1);
}

pub(super) async fn writes_to_a_dropped_mount_are_rejected(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let auth = |write| w.auth.commit(vec![write]);
    assert_eq!(auth(AuthWrite::MountCreate(w.mount)).await.unwrap_err().kind(), Kind::Conflict, "an id is used once");
    assert_eq!(auth(AuthWrite::MountDelete(SYSTEM_MOUNT)).await.unwrap_err().kind(), Kind::Conflict);
    auth(AuthWrite::MountDelete(w.mount)).await.unwrap();
    assert_eq!(auth(AuthWrite::MountDelete(w.mount)).await.unwrap_err().kind(), Kind::Conflict);
    for write in [
        PkiWrite::Certificate(certificate(w.mount, 1)),
        PkiWrite::Revocation(revocation(w.mount, 1)),
        PkiWrite::Crl(crl(w.mount, "g", 1)),
        PkiWrite::Document(document(w.mount, "a", 0, Some("x"))),
    ] {
        assert_eq!(w.rejection_kind(vec![write]).await, Kind::Conflict);
    }
    // A mount that is created and dropped in one batch leaves no rows.
    let ids: HashSet<MountId> = (0..10).map(|_| MountId::random()).collect();
    join_all(ids.iter().flat_map(|&id| [AuthWrite::MountCreate(id), AuthWrite::MountDelete(id)]).map(auth)).await;
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM mount"), 1, "the server's own");
}

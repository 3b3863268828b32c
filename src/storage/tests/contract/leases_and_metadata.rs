//! Contract tests of the records that belong to certificates: leases and attached metadata.

use futures_util::future::join_all;

use super::auth::{hash, token};
use super::*;
use crate::auth::store::TokenRow;
use crate::pki::store::{LeaseRange, LeaseRow, MetadataRow, PkiOutcome};

/// A text that sorts after all lease ids in these tests.
const AFTER_ALL_LEASE_IDS: &str = "~";

fn lease(mount: MountId, n: u32, of: u32) -> LeaseRow {
    LeaseRow {
        id: format!("pki/issue/r{}/{n:06}", n % 3),
        mount,
        serial: serial(n),
        token: hash(of),
        issued_at: NOW,
        expires_at: NOW + 3600 + i64::from(n),
    }
}

fn certificate_with_lease(mount: MountId, n: u32, of: u32) -> Vec<PkiWrite> {
    vec![PkiWrite::Certificate(certificate(mount, n)), PkiWrite::Lease(lease(mount, n, of))]
}

fn metadata(mount: MountId, n: u32) -> MetadataRow {
    MetadataRow { mount, serial: serial(n), not_after: NOW + 60, body: format!("attached-to-{n}").into_bytes() }
}

async fn insert_tokens(w: &ContractStore, rows: impl IntoIterator<Item = TokenRow>) {
    w.auth.commit(rows.into_iter().map(AuthWrite::TokenInsert).collect()).await.unwrap();
}

/// Returns the ids of all leases that reads return.
async fn visible_leases(w: &ContractStore) -> Vec<String> {
    let range = LeaseRange {
        mount: None,
        excluded_mounts: Vec::new(),
        after: String::new(),
        below: AFTER_ALL_LEASE_IDS.into(),
    };
    w.pki.lease_ids(range, 10_000).await.unwrap()
}

/// Marks the leases of ended tokens, and returns the serial numbers of all leases that await revocation.
async fn serials_of_ending_leases(w: &ContractStore) -> Vec<Serial> {
    while w.pki.mark_leases_of_ended_tokens(2).await.unwrap() == 2 {}
    let mut rows = w.pki.ending_leases(String::new(), AFTER_ALL_LEASE_IDS.into(), 10_000).await.unwrap();
    rows.sort_by_key(|lease| lease.serial);
    rows.into_iter().map(|lease| lease.serial).collect()
}

pub(super) async fn lease_and_certificate_are_stored_together_or_not_at_all(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    insert_tokens(&w, [token(1, None)]).await;
    // The units are committed concurrently and share transactions. The serial number of one of them is taken.
    w.put(vec![PkiWrite::Certificate(certificate(m, 7))]).await;
    let outcomes = join_all((0..20).map(|n| w.pki.commit(certificate_with_lease(m, n, 1)))).await;
    for (n, outcome) in (0..20).zip(outcomes) {
        let taken = outcome.unwrap().contains(&PkiOutcome::SerialTaken);
        assert_eq!(taken, n == 7, "{n}");
        let found = w.pki.lease(lease(m, n, 1).id).await.unwrap();
        assert_eq!(found, (n != 7).then(|| lease(m, n, 1)), "{n}");
    }
    // The lease exists already. So the unit must not store the certificate either.
    let unit = vec![PkiWrite::Certificate(certificate(m, 30)), PkiWrite::Lease(lease(m, 3, 1))];
    assert!(w.pki.commit(unit).await.unwrap().iter().all(|o| *o == PkiOutcome::SerialTaken));
    assert!(w.pki.certificate(m, serial(30)).await.unwrap().is_none());
    assert_eq!(w.pki.counts(m).await.unwrap(), (20, 0));
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM lease"), 19);
    w.storage.shutdown().await.unwrap();
    let w = ContractStore::reopen(fixture, m).await;
    assert_eq!(visible_leases(&w).await.len(), 19, "and a restart finds them");
}

pub(super) async fn lease_of_a_revoked_or_used_up_token_is_rejected(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    insert_tokens(&w, [TokenRow { uses: Some(1), ..token(1, None) }, token(2, None)]).await;
    w.put(certificate_with_lease(w.mount, 1, 1)).await;
    w.auth.commit(vec![AuthWrite::TokenSpend(hash(1))]).await.unwrap();
    w.auth.commit(vec![AuthWrite::TokenRevoke(vec![hash(2)])]).await.unwrap();
    for of in [1, 2, 3] {
        let bad = w.pki.commit(certificate_with_lease(w.mount, 10 + of, of));
        let good = w.pki.commit(vec![PkiWrite::Certificate(certificate(w.mount, 100 + of))]);
        assert_eq!(bad.await.unwrap_err().kind(), Kind::Conflict, "{of}");
        assert!(good.await.is_ok());
        assert!(w.pki.certificate(w.mount, serial(10 + of)).await.unwrap().is_none());
    }
    assert_eq!(serials_of_ending_leases(&w).await, [serial(1)], "of the token that is used up");
}

pub(super) async fn units_of_a_missing_mount_fail_only_themselves(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let gone = MountId::random();
    let spent = TokenRow { uses: Some(1), ..token(2, None) };
    insert_tokens(&w, [token(1, None), spent]).await;
    let of = |n: u32| if n.is_multiple_of(5) { gone } else { w.mount };
    let unit = |n: u32| match n % 4 {
        0 => vec![PkiWrite::Certificate(certificate(of(n), n))],
        1 => certificate_with_lease(of(n), n, 1),
        2 => vec![PkiWrite::Certificate(certificate(of(n), n)), PkiWrite::Metadata(metadata(of(n), n))],
        _ => vec![PkiWrite::Certificate(certificate(of(n), n)), PkiWrite::Revocation(revocation(of(n), n))],
    };
    // The first round has no revocations, but the second one has. In the middle of the first round, a token ends. This
    // write must be stored after the leases that were submitted before it.
    for range in [0..60, 60..120] {
        let without = range.start == 0;
        let units: Vec<u32> = range.filter(|n| !without || n % 4 != 3).collect();
        let before = w.storage.commits();
        let first = join_all(units.iter().map(|&n| w.pki.commit(unit(n))));
        let end = w.auth.commit(vec![AuthWrite::TokenSpend(hash(2))]);
        let more = join_all((1..5).map(|n| w.pki.commit(unit(1000 + units[0] + n))));
        let (first, end, _) = tokio::join!(first, end, more);
        assert!(w.storage.commits() - before < 60, "they shared batches");
        assert_eq!(end.unwrap(), [if without { AuthOutcome::UsesLeft(0) } else { AuthOutcome::Absent }]);
        for (n, result) in units.into_iter().zip(first) {
            assert_eq!(result.err().map(|e| e.kind()), (of(n) == gone).then_some(Kind::Conflict), "{n}");
            let stored = of(n) != gone;
            assert_eq!(w.pki.certificate(w.mount, serial(n)).await.unwrap().is_some(), stored, "{n}");
            assert_eq!(w.pki.lease(lease(gone, n, 1).id).await.unwrap().is_some(), stored && n % 4 == 1, "{n}");
        }
    }
    let kept = |range: std::ops::Range<u32>| range.filter(|&n| of(n) != gone);
    let later_serials = (1001..1005).chain(1061..1065);
    let all: Vec<u32> = kept(0..60).filter(|n| n % 4 != 3).chain(kept(60..120)).chain(later_serials).collect();
    let revoked = all.iter().filter(|n| *n % 4 == 3).count() as u64;
    assert_eq!(w.pki.counts(w.mount).await.unwrap(), (all.len() as u64, revoked));
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM certificate"), all.len() as i64);
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM revocation"), revoked as i64);
}

pub(super) async fn leases_end_with_their_token(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    // Token 1 is the parent of token 2, and token 2 is the parent of token 3. Token 4 has no relatives, and token 5
    // expires.
    let expires_at = Some(now() + std::time::Duration::from_secs(10));
    insert_tokens(&w, [token(1, None), token(2, Some(1)), token(3, Some(2)), token(4, None)]).await;
    insert_tokens(&w, [TokenRow { expires_at, ..token(5, None) }]).await;
    for n in 0..10 {
        w.put(certificate_with_lease(m, n, n % 5 + 1)).await;
    }
    w.auth.commit(vec![AuthWrite::TokenRevoke(vec![hash(2)])]).await.unwrap();
    // The leases of the ended tokens disappear with the same commit, before any of them is marked.
    let left: Vec<_> = [0, 3, 4, 5, 8, 9].map(|n| lease(m, n, 0).id).to_vec();
    let mut found = visible_leases(&w).await;
    found.sort_by_key(|id| id.rsplit_once('/').unwrap().1.to_owned());
    assert_eq!(found, left);
    assert!(w.pki.lease(lease(m, 1, 2).id).await.unwrap().is_none());
    w.storage.shutdown().await.unwrap();
    let w = ContractStore::reopen(fixture, m).await;
    assert_eq!(serials_of_ending_leases(&w).await, [1, 2, 6, 7].map(serial), "and survives a restart");
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM ended_token"), 0);
    w.auth.sweep_tokens(now() + std::time::Duration::from_secs(20), 10).await.unwrap();
    assert_eq!(serials_of_ending_leases(&w).await, [1, 2, 4, 6, 7, 9].map(serial));
    // A token without leases is not recorded.
    w.auth.commit(vec![AuthWrite::TokenRevoke(vec![hash(1)])]).await.unwrap();
    insert_tokens(&w, [token(6, None)]).await;
    w.auth.commit(vec![AuthWrite::TokenRevoke(vec![hash(6)])]).await.unwrap();
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM ended_token"), 1);
}

pub(super) async fn leases_are_found_by_id_and_prefix_until_they_end(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    insert_tokens(&w, [token(1, None)]).await;
    join_all((0..30).map(|n| w.pki.commit(certificate_with_lease(m, n, 1)))).await;
    let mut pages = Vec::new();
    loop {
        let after = pages.last().cloned().unwrap_or_else(|| "pki/issue/r1/".to_owned());
        let range = LeaseRange { mount: None, excluded_mounts: Vec::new(), after, below: "pki/issue/r10".into() };
        let page = w.pki.lease_ids(range, 3).await.unwrap();
        if page.is_empty() {
            break;
        }
        pages.extend(page);
    }
    let expected: Vec<_> = (0..10).map(|n| lease(m, 3 * n + 1, 1).id).collect();
    assert_eq!(pages, expected);
    let mark = |n: u32| PkiWrite::LeasesMark(vec![lease(m, n, 1).id, "pki/none/000000".into()]);
    assert_eq!(w.pki.commit(vec![mark(1)]).await.unwrap(), [PkiOutcome::Changed(1)]);
    assert_eq!(w.pki.commit(vec![mark(1)]).await.unwrap(), [PkiOutcome::Changed(0)]);
    assert!(w.pki.lease(lease(m, 1, 1).id).await.unwrap().is_none(), "marked: not shown any more");
    assert_eq!(visible_leases(&w).await.len(), 29);
    assert_eq!(w.pki.ending_leases(String::new(), AFTER_ALL_LEASE_IDS.into(), 10).await.unwrap(), [lease(m, 1, 1)]);
    assert!(w.pki.ending_leases(lease(m, 1, 1).id, AFTER_ALL_LEASE_IDS.into(), 10).await.unwrap().is_empty());
    let end = vec![PkiWrite::Revocation(revocation(m, 1)), PkiWrite::LeasesEnd(vec![lease(m, 1, 1).id])];
    let outcomes = w.pki.commit(end).await.unwrap();
    assert!(matches!(outcomes[0], PkiOutcome::Revoked { fresh: true, .. }) && outcomes[1] == PkiOutcome::Changed(1));
    assert!(serials_of_ending_leases(&w).await.is_empty());
    assert_eq!(
        w.pki.commit(vec![PkiWrite::LeasesEnd(vec!["pki/none/1".into()])]).await.unwrap(),
        [PkiOutcome::Changed(0)]
    );
}

pub(super) async fn expired_leases_are_swept(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    insert_tokens(&w, [token(1, None)]).await;
    for n in 0..5 {
        w.put(certificate_with_lease(w.mount, n, 1)).await;
    }
    let at = |n| NOW + 3600 + n;
    assert_eq!(w.pki.sweep_leases(at(-1), 10).await.unwrap(), 0);
    assert_eq!(w.pki.sweep_leases(at(3), 3).await.unwrap(), 3);
    assert_eq!(w.pki.sweep_leases(at(3), 3).await.unwrap(), 1, "ended: now >= its end");
    assert_eq!(visible_leases(&w).await, [lease(w.mount, 4, 1).id]);
    assert_eq!(w.pki.counts(w.mount).await.unwrap(), (5, 0), "nothing was revoked");
}

pub(super) async fn lease_and_token_revocation_of_one_batch_keep_their_order(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    for n in 0..20 {
        insert_tokens(&w, [token(n, None)]).await;
        let before = w.pki.commit(certificate_with_lease(m, 2 * n, n));
        let end = w.auth.commit(vec![AuthWrite::TokenRevoke(vec![hash(n)])]);
        let after = w.pki.commit(certificate_with_lease(m, 2 * n + 1, n));
        assert!(before.await.is_ok() && end.await.is_ok());
        assert_eq!(after.await.unwrap_err().kind(), Kind::Conflict);
    }
    assert_eq!(serials_of_ending_leases(&w).await, (0..20).map(|n| serial(2 * n)).collect::<Vec<_>>());
}

pub(super) async fn metadata_reads_back_by_serial_and_in_pages(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    let unit = |n: u32| {
        let certificate = n.is_multiple_of(2).then(|| PkiWrite::Certificate(certificate(m, n)));
        certificate.into_iter().chain([PkiWrite::Metadata(metadata(m, n))]).collect()
    };
    join_all((0..10).map(|n| w.pki.commit(unit(n)))).await;
    for n in 0..10 {
        assert!(w.pki.metadata(m, serial(n)).await.unwrap() == Some(metadata(m, n)), "{n}");
        let outcomes = w.pki.commit(unit(n)).await.unwrap();
        assert!(outcomes.contains(&PkiOutcome::SerialTaken), "{n}");
    }
    assert!(w.pki.metadata(m, serial(99)).await.unwrap().is_none());
    assert!(w.pki.metadata(MountId::random(), serial(1)).await.unwrap().is_none());
    let mut serials = Vec::new();
    while serials.len() < 10 {
        let page = w.pki.metadata_serials(m, serials.last().copied(), 4).await.unwrap();
        assert!(!page.is_empty());
        serials.extend(page);
    }
    assert_eq!(serials, (0..10).map(serial).collect::<Vec<_>>());
    let unit = vec![PkiWrite::Certificate(certificate(m, 20)), PkiWrite::Metadata(metadata(m, 3))];
    w.pki.commit(unit).await.unwrap();
    assert!(w.pki.certificate(m, serial(20)).await.unwrap().is_none());
}

pub(super) async fn metadata_is_sealed_to_its_row(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let m = w.mount;
    w.put(vec![PkiWrite::Metadata(metadata(m, 1)), PkiWrite::Metadata(metadata(m, 2))]).await;
    let read = || w.pki.metadata(m, serial(1));
    let body =
        |n| fixture.query_bytes(&format!("SELECT body FROM certificate_metadata ORDER BY serial LIMIT 1 OFFSET {n}"));
    let one = body(0);
    let two = body(1);
    let set = |body: &[u8]| {
        let change = "UPDATE certificate_metadata SET body = $1 WHERE serial = $2";
        assert_eq!(fixture.execute(change, &[body, serial(1).octets()]), 1);
    };
    set(&two);
    assert!(read().await.is_err(), "of another row");
    let mut flipped = one.clone();
    flipped[20] ^= 1;
    set(&flipped);
    assert!(read().await.is_err());
    set(&one);
    assert!(read().await.is_ok());
    fixture
        .execute("UPDATE certificate_metadata SET not_after = not_after + 1 WHERE serial = $1", &[serial(1).octets()]);
    assert!(read().await.is_err(), "prolonged");
    let plain = b"attached-to-2";
    assert!(!fixture.files().iter().any(|(_, content)| content.windows(plain.len()).any(|part| part == plain)));
}

pub(super) async fn dropped_mount_loses_its_leases_and_metadata(fixture: &impl Fixture) {
    let w = ContractStore::new(fixture).await;
    let gone = w.mount;
    let kept = MountId::random();
    w.create_mount(kept).await;
    insert_tokens(&w, [token(1, None)]).await;
    for (mount, from) in [(gone, 0), (kept, 1000)] {
        w.put((from..from + 300).map(|n| PkiWrite::Lease(lease(mount, n, 1))).collect()).await;
        w.put((from..from + 300).map(|n| PkiWrite::Metadata(metadata(mount, n))).collect()).await;
    }
    w.put(vec![PkiWrite::LeasesMark(vec![lease(gone, 5, 1).id])]).await;
    w.auth.commit(vec![AuthWrite::MountDelete(gone)]).await.unwrap();
    assert_eq!(visible_leases(&w).await.len(), 300);
    assert!(w.pki.lease(lease(gone, 1, 1).id).await.unwrap().is_none());
    assert!(serials_of_ending_leases(&w).await.is_empty());
    assert!(w.pki.metadata(gone, serial(1)).await.unwrap().is_none());
    assert!(w.pki.metadata_serials(gone, None, 10).await.unwrap().is_empty());
    for write in [PkiWrite::Lease(lease(gone, 900, 1)), PkiWrite::Metadata(metadata(gone, 900))] {
        assert_eq!(w.rejection_kind(vec![write]).await, Kind::Conflict);
    }
    let left = "SELECT (SELECT COUNT(*) FROM lease) + (SELECT COUNT(*) FROM certificate_metadata)
        + (SELECT COUNT(*) FROM dropped_mount)";
    for _ in 0..500 {
        if fixture.query_number(left) == 600 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(fixture.query_number(left), 600);
    assert!(w.pki.metadata(kept, serial(1001)).await.unwrap().is_some());
}

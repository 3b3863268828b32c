//! Tests beyond the contract tests: outages, locks of other sessions, and several nodes.

mod servers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{join, join_all};

use super::fixture::cluster;
use super::*;
use crate::auth::store::{AuthOutcome, AuthWrite, TokenRow};
use crate::documents::{DocumentKey, DocumentWrite, MountId};
use crate::error::Kind;
use crate::keyring::store::ResealOutcome;
use crate::nodes::store::{LogPosition, LoggedMountChange};
use crate::pki::store::{CertificateRow, LeaseRow, PkiOutcome, PkiWrite, RevocationRow};
use crate::projects::store::{SERVER_CALLER, SessionAccess};
use crate::sql::SqlWork;
use crate::storage::backend::{FactWrite, StoreBackend as _, WriteUnit};
use crate::storage::backup::record_restore;
use crate::storage::seal::SealKey;
use crate::storage::statements as sql;
use crate::storage::tests::contract::{Fixture, now};
use crate::storage::{Database, IfMissing, Storage, StorageOptions};
use crate::x509::serial::Serial;

async fn start_node() -> (Postgres, Storage, MountId) {
    let fixture = Postgres::new();
    let storage = fixture.open(1000).await.unwrap();
    let mount = MountId::random();
    storage.auth().commit(vec![AuthWrite::MountCreate(mount)]).await.unwrap();
    (fixture, storage, mount)
}

fn certificate(mount: MountId) -> CertificateRow {
    CertificateRow {
        mount,
        serial: Serial::random(),
        issuer: "issuer-1".into(),
        role: None,
        common_name: None,
        not_before: 0,
        not_after: 1,
        issued_at: 0,
        requester: String::new(),
        der: vec![0x30],
    }
}

fn issue_unit(mount: MountId) -> Vec<PkiWrite> {
    vec![PkiWrite::Certificate(certificate(mount))]
}

fn revoke_unit(mount: MountId, serial: Serial) -> Vec<PkiWrite> {
    let issuer = "issuer-1".into();
    let row =
        RevocationRow { mount, serial, issuer, revoked_at: now(), not_after: 1, reason: None, invalidity_date: None };
    vec![PkiWrite::Revocation(row)]
}

fn document_unit(mount: MountId, name: &str) -> Vec<PkiWrite> {
    let key = DocumentKey { mount, kind: "role", name: name.to_owned() };
    vec![PkiWrite::Document(DocumentWrite { key, expected: 0, body: Some(b"{}".to_vec()) })]
}

async fn read_changes_of(storage: &Storage, position: LogPosition) -> (LogPosition, Vec<LoggedMountChange>) {
    let changes = storage.changes().unwrap().since(position).await.unwrap();
    (changes.position, changes.mounts)
}

#[tokio::test]
async fn change_committed_after_later_ones_is_not_skipped() {
    let (fixture, storage, mount) = start_node().await;
    storage.pki().commit(document_unit(mount, "a")).await.unwrap();
    let (client, _driver) = connect::open_client(&fixture.url()).await.unwrap();
    let early = "UPDATE mount SET version = version + 1, changed_by = pg_current_xact_id()::text::bigint WHERE id =";
    client.batch_execute(&format!("BEGIN; {early} {}", mount.0)).await.unwrap();
    let other = MountId::random();
    storage.auth().commit(vec![AuthWrite::MountCreate(other)]).await.unwrap();
    storage.pki().commit(document_unit(other, "b")).await.unwrap();
    let (position, seen) = read_changes_of(&storage, LogPosition::default()).await;
    let version = |seen: &[LoggedMountChange], mount| seen.iter().find(|c| c.mount == mount).map(|c| c.version);
    assert_eq!((version(&seen, mount), version(&seen, other)), (Some(1), Some(1)));
    client.batch_execute("COMMIT").await.unwrap();
    let (_, seen) = read_changes_of(&storage, position).await;
    assert_eq!(version(&seen, mount), Some(2));
}

#[tokio::test]
async fn server_with_reset_transaction_ids_hides_no_change() {
    let (fixture, storage, mount) = start_node().await;
    storage.pki().commit(document_unit(mount, "a")).await.unwrap();
    let (position, _) = read_changes_of(&storage, LogPosition::default()).await;
    // This position is from a lost server, which had higher transaction ids.
    let ahead = LogPosition { sequence: position.sequence + 1_000_000, ..position };
    assert_eq!(read_changes_of(&storage, ahead).await.1, []);
    fixture.database.end_connections();
    storage.pki().commit(document_unit(mount, "b")).await.unwrap();
    let (_, seen) = read_changes_of(&storage, ahead).await;
    assert!(seen.iter().any(|change| change.mount == mount && change.version == 2), "{seen:?}");
}

#[tokio::test]
async fn commit_without_a_synchronous_standby_is_unavailable() {
    let cluster = cluster::Cluster::new();
    let database = cluster.database();
    let (writer, reader) = open(PostgresUrl::parse(&database.url()).unwrap()).await.unwrap();
    // The deadline is longer than the server's own statement timeout.
    let mut writer = writer.with_deadline(Duration::from_secs(12));
    cluster.set(&["synchronous_standby_names = 'absent'"]);
    // The server applies the setting asynchronously, so tables are created until a commit waits for the standby.
    let probed = database.on(&cluster);
    let probes = std::thread::spawn(move || {
        let names = (0..).map(|n| format!("probe{n}"));
        names
            .take_while(|name| {
                probed.psql(&format!("CREATE TABLE {name} (n int)"));
                probed.psql("SHOW synchronous_standby_names") == "absent"
            })
            .count()
    });
    let started_at = Instant::now();
    while database.psql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "0" {
        assert!(started_at.elapsed() < Duration::from_secs(30), "no commit waits for the standby");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let unit = || vec![WriteUnit::Facts(vec![FactWrite::new(("one".to_owned(), Vec::new()))])];
    let work = || -> SqlWork {
        let sql = "CREATE TABLE made_by_a_session (n int)";
        Arc::new(move |session| async move { session.execute(sql, &[]).await.map(drop) }.boxed_local())
    };
    let (written, worked) =
        join(writer.apply(unit()), reader.run("test", SessionAccess::Write(SERVER_CALLER), work())).await;
    assert_eq!(written[0].as_ref().unwrap_err().kind(), Kind::Unavailable);
    assert!(worked.is_err());
    cluster.set(&["synchronous_standby_names = ''"]);
    let again = writer.apply(vec![WriteUnit::Facts(vec![FactWrite::new(("two".to_owned(), Vec::new()))])]).await;
    assert!(again[0].is_ok(), "on a new connection");
    probes.join().unwrap();
}

#[tokio::test]
async fn read_only_server_is_left_for_a_writable_one() {
    let primary = cluster::Cluster::new();
    let database = primary.database();
    let standby = primary.standby();
    let (mut writer, reader) = open(PostgresUrl::parse(&database.url_with(&standby)).unwrap()).await.unwrap();
    let unit = |name: &str| vec![WriteUnit::Facts(vec![FactWrite::new((name.to_owned(), Vec::new()))])];
    let work = |name: &'static str| -> SqlWork {
        let sql = "INSERT INTO meta (name, value) VALUES ($1, '')";
        Arc::new(move |session| async move { session.execute(sql, &[name.into()]).await.map(drop) }.boxed_local())
    };
    assert!(writer.apply(unit("one")).await[0].is_ok());
    assert!(reader.clone().run("test", SessionAccess::Write(SERVER_CALLER), work("two")).await.is_ok());
    let names = |cluster| database.on(cluster).psql("SELECT string_agg(name, ' ' ORDER BY name) FROM meta");
    // The standby receives the table with a delay.
    while database.on(&standby).psql("SELECT to_regclass('meta') IS NULL").contains('t') {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while !names(&standby).contains("two") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    primary.set(&["default_transaction_read_only = on"]);
    standby.promote();
    assert!(writer.apply(unit("three")).await[0].is_ok());
    assert!(reader.run("test", SessionAccess::Write(SERVER_CALLER), work("four")).await.is_ok());
    assert_eq!((names(&primary), names(&standby)), ("one schema two".into(), "four one schema three two".into()));
}

#[tokio::test]
async fn hanging_server_does_not_prevent_a_connection_to_another() {
    let primary = cluster::Cluster::new();
    let database = primary.database();
    // This server accepts connections but sends nothing.
    let folder = tempfile::tempdir().unwrap();
    let _mute = std::os::unix::net::UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
    let mute = folder.path().display();
    let started = Instant::now();
    let both = database.url().replace("host=", &format!("host={mute},"));
    assert!(open(PostgresUrl::parse(&both).unwrap()).await.is_ok());
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    let alone = PostgresUrl::parse(&format!("host={mute} user=signet")).unwrap();
    assert!(open(alone).await.err().unwrap().text().contains("no answer within 4 s"));
    let absent = format!("host={mute},/absent user=signet");
    let error = open(PostgresUrl::parse(&absent).unwrap()).await.err().unwrap();
    let says = format!("({mute}:5432: no answer within 4 s; /absent:5432: ");
    assert!(error.text().contains(&says), "{error}");
}

#[tokio::test]
async fn change_log_distinguishes_own_changes_from_others() {
    let (fixture, a, mount) = start_node().await;
    let b = fixture.open(1000).await.unwrap();
    let seen = async |node: &Storage| {
        let all = read_changes_of(node, LogPosition::default()).await.1;
        all.into_iter().find(|change| change.mount == mount).unwrap()
    };
    for (n, node) in [&a, &a, &b, &b, &a].into_iter().enumerate() {
        node.pki().commit(document_unit(mount, &format!("{n}"))).await.unwrap();
    }
    let by_a = seen(&a).await;
    let by_b = seen(&b).await;
    assert_eq!((by_a.version, by_a.own_from, by_b.version, by_b.own_from), (5, Some(5), 5, None));
    assert!(by_a.is_unseen(2) && by_a.is_unseen(3) && !by_a.is_unseen(4) && by_b.is_unseen(4));
    a.pki().commit(issue_unit(mount)).await.unwrap();
    assert!(b.pki().commit(document_unit(mount, "0")).await.is_err());
    assert_eq!(seen(&b).await, by_b);
    b.pki().commit(revoke_unit(mount, Serial::random())).await.unwrap();
    let later = seen(&a).await;
    assert_eq!((later.version, later.revocations, later.crls), (5, 1, 0));
}

#[tokio::test]
async fn only_documents_and_revocations_wake_other_nodes() {
    let (fixture, a, mount) = start_node().await;
    let b = fixture.open(1000).await.unwrap();
    let woken = b.changes().unwrap().listen();
    let wait_for_notification = async || tokio::time::timeout(Duration::from_secs(10), woken.notified()).await.unwrap();
    wait_for_notification().await;
    let pki = a.pki();
    pki.commit(issue_unit(mount)).await.unwrap();
    pki.commit(document_unit(mount, "a")).await.unwrap();
    wait_for_notification().await;
    pki.commit(revoke_unit(mount, Serial::random())).await.unwrap();
    wait_for_notification().await;
    // The server has sent notifications for the document changes. It must not send one for the issued certificate.
    pki.commit(issue_unit(mount)).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(200), woken.notified()).await.is_err());
}

#[tokio::test]
async fn store_is_unavailable_only_during_a_database_outage() {
    let (fixture, storage, mount) = start_node().await;
    let pki = storage.pki();
    pki.commit(issue_unit(mount)).await.unwrap();
    fixture.database.out_of_reach(true);
    let started = Instant::now();
    for result in join_all((0..20).map(|_| pki.commit(issue_unit(mount)))).await {
        assert_eq!(result.unwrap_err().kind(), Kind::Unavailable);
    }
    assert_eq!(pki.counts(mount).await.unwrap_err().kind(), Kind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    fixture.database.out_of_reach(false);
    tokio::time::sleep(Duration::from_millis(300)).await;
    pki.commit(issue_unit(mount)).await.unwrap();
    assert_eq!(pki.counts(mount).await.unwrap(), (2, 0));
}

#[tokio::test]
async fn connections_that_died_idle_are_replaced_unnoticed() {
    let (fixture, storage, mount) = start_node().await;
    let pki = storage.pki();
    for n in 1..4 {
        pki.commit(issue_unit(mount)).await.unwrap();
        assert_eq!(pki.counts(mount).await.unwrap(), (n, 0));
        fixture.database.end_connections();
    }
}

#[tokio::test]
async fn terminated_work_reports_a_failed_read_or_a_failed_write() {
    let (_fixture, storage, _) = start_node().await;
    let projects = storage.projects();
    let work: SqlWork = Arc::new(|session| {
        async move { session.query("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await.map(drop) }.boxed_local()
    });
    let read = projects.run("test", SessionAccess::Read(SERVER_CALLER), work.clone());
    let written = projects.run("test", SessionAccess::Write(SERVER_CALLER), work);
    for (outcome, text) in [(read.await, "storage: the read failed"), (written.await, "storage: the write failed")] {
        let Err(crate::sql::SqlError::Engine(error)) = outcome else { panic!("not the engine") };
        assert_eq!((error.kind(), error.text()), (Kind::Unavailable, text));
    }
}

#[tokio::test]
async fn hanging_server_is_unavailable_within_the_deadline() {
    let fixture = Postgres::new();
    let (writer, _reader) = open(fixture.url()).await.unwrap();
    let mut writer = writer.with_deadline(Duration::from_millis(500));
    let unit = |name: &str| vec![WriteUnit::Facts(vec![FactWrite::new((name.to_owned(), Vec::new()))])];
    assert!(writer.apply(unit("one")).await[0].is_ok());
    fixture.database.signal_connections("STOP");
    let hung = writer.apply(unit("two")).await;
    fixture.database.signal_connections("CONT");
    assert_eq!(hung[0].as_ref().unwrap_err().kind(), Kind::Unavailable);
    assert!(writer.apply(unit("three")).await[0].is_ok(), "on a new connection");
}

#[tokio::test]
async fn hanging_connection_is_not_reused_after_a_cancelled_read() {
    let (fixture, storage, mount) = start_node().await;
    let pki = storage.pki();
    pki.counts(mount).await.unwrap();
    fixture.database.signal_connections("STOP");
    let hung = tokio::time::timeout(Duration::from_millis(200), pki.counts(mount)).await;
    // This read uses another connection, while the first one still hangs.
    let next = tokio::time::timeout(Duration::from_secs(10), pki.counts(mount)).await;
    fixture.database.signal_connections("CONT");
    assert!(hung.is_err());
    assert_eq!(next.unwrap().unwrap(), (0, 0));
}

#[tokio::test]
async fn write_fails_instead_of_waiting_long_for_a_lock() {
    let (fixture, storage, mount) = start_node().await;
    let pki = storage.pki();
    let (client, _driver) = connect::open_client(&fixture.url()).await.unwrap();
    client.batch_execute("SET idle_in_transaction_session_timeout = 0").await.unwrap();
    client.batch_execute("BEGIN; LOCK TABLE certificate").await.unwrap();
    let started = Instant::now();
    assert_eq!(pki.commit(issue_unit(mount)).await.unwrap_err().kind(), Kind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(9), "{:?}", started.elapsed());
    client.batch_execute("ROLLBACK").await.unwrap();
    pki.commit(issue_unit(mount)).await.unwrap();
}

#[tokio::test]
async fn unstorable_value_fails_only_its_unit() {
    let (_fixture, storage, mount) = start_node().await;
    let pki = storage.pki();
    let with_name = |name: &str| {
        let row = CertificateRow { common_name: Some(name.to_owned()), ..certificate(mount) };
        pki.commit(vec![PkiWrite::Certificate(row)])
    };
    let results = join_all(["a", "b\0", "c"].map(with_name)).await;
    assert!(results[0].is_ok() && results[2].is_ok());
    assert_eq!(results[1].as_ref().unwrap_err().kind(), Kind::Invalid);
    assert_eq!(pki.counts(mount).await.unwrap(), (2, 0));
}

#[tokio::test]
async fn two_nodes_count_and_number_each_revocation_once() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(1000).await.unwrap();
    let serials: Vec<Serial> = (0..100).map(|_| Serial::random()).collect();
    let both = serials.iter().flat_map(|serial| {
        [&first, &second].map(|node| {
            let issued = node.pki().commit(issue_unit(mount));
            let revoked = node.pki().commit(revoke_unit(mount, *serial));
            async move {
                issued.await.unwrap();
                revoked.await.unwrap().remove(0)
            }
        })
    });
    let outcomes = join_all(both).await;
    let fresh = outcomes.iter().filter(|o| matches!(o, PkiOutcome::Revoked { fresh: true, .. })).count();
    assert_eq!(fresh, 100, "each serial was revoked by one of them");
    for node in [&first, &second] {
        assert_eq!(node.pki().counts(mount).await.unwrap(), (200, 100));
        let sequences: Vec<_> = node.pki().revocations(mount, 0, 1000).await.unwrap();
        assert!(sequences.iter().map(|r| r.sequence).eq(1..=100), "no gap");
    }
}

#[tokio::test]
async fn two_nodes_start_concurrently_on_an_empty_database() {
    let fixture = Postgres::new();
    let (first, second) = futures_util::future::join(fixture.open(10), fixture.open(10)).await;
    let (mount, key) = (MountId::random(), |mount| DocumentKey { mount, kind: "role", name: "web".into() });
    let write = DocumentWrite { key: key(mount), expected: 0, body: Some(b"body".to_vec()) };
    let unit = vec![AuthWrite::MountCreate(mount), AuthWrite::Document(write)];
    first.unwrap().auth().commit(unit).await.unwrap();
    assert!(second.unwrap().pki().documents(mount).await.unwrap()[0].body == b"body");
}

async fn write_document(node: &Storage, mount: MountId, name: &str) {
    node.pki().commit(document_unit(mount, name)).await.unwrap();
}

fn stored_term(fixture: &Postgres, name: &str) -> Vec<u8> {
    fixture.query_bytes(&format!("SELECT body FROM document WHERE name = '{name}'"))[..4].to_vec()
}

/// A node whose data keys are outdated loads the new key once, for the first value sealed with it.
#[tokio::test]
async fn node_with_outdated_data_keys_reads_the_keys_once() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(10).await.unwrap();
    write_document(&first, mount, "a").await;
    assert_eq!(first.keyring().rotate(1).await.unwrap(), 2);
    write_document(&first, mount, "b").await;
    assert_eq!(second.pki().documents(mount).await.unwrap().len(), 2, "one is sealed with a key it had not seen");
    // From now on, a node that tries to load the keys fails.
    fixture.execute("DELETE FROM meta WHERE name LIKE 'data-key/%'", &[]);
    write_document(&first, mount, "c").await;
    assert_eq!(second.pki().documents(mount).await.unwrap().len(), 3);
    write_document(&second, mount, "d").await;
    assert_eq!((stored_term(&fixture, "a"), stored_term(&fixture, "d")), (vec![0, 0, 0, 1], vec![0, 0, 0, 2]));
    // The stored value is changed to name a data key that does not exist.
    fixture.execute("UPDATE document SET body = $1 || substr(body, 5) WHERE name = 'd'", &[&[0, 0, 0, 9]]);
    assert!(second.pki().documents(mount).await.is_err());
}

#[tokio::test]
async fn other_node_seals_with_the_new_data_key() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(10).await.unwrap();
    let position = read_changes_of(&second, LogPosition::default()).await.0;
    assert_eq!(first.keyring().rotate(1).await.unwrap(), 2);
    let changed = read_changes_of(&second, position).await.1;
    assert!(changed.iter().any(|change| change.mount == crate::documents::SYSTEM_MOUNT && change.own_from.is_none()));
    write_document(&second, mount, "a").await;
    assert_eq!(stored_term(&fixture, "a"), [0, 0, 0, 2]);
    let (one, other) = futures_util::future::join(first.keyring().rotate(2), second.keyring().rotate(2)).await;
    assert_eq!((one.unwrap(), other.unwrap()), (3, 3));
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM meta WHERE name LIKE 'data-key/%'"), 3);
    for (node, name) in [(&first, "b"), (&second, "c")] {
        read_changes_of(node, position).await;
        write_document(node, mount, name).await;
        assert_eq!(stored_term(&fixture, name), [0, 0, 0, 3]);
    }
}

#[tokio::test]
async fn running_nodes_continue_after_a_seal_change() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(10).await.unwrap();
    let third = fixture.open(10).await.unwrap();
    write_document(&second, mount, "a").await;
    let seal = SealKey::random();
    first.change_seal(&seal).await.unwrap();
    write_document(&second, mount, "b").await;
    assert_eq!(first.keyring().rotate(1).await.unwrap(), 2);
    write_document(&first, mount, "c").await;
    assert_eq!(second.pki().documents(mount).await.unwrap().len(), 3, "the new key is wrapped by another root key");
    assert_eq!(third.keyring().rotate(2).await.unwrap(), 3, "without a look at anything before");
    write_document(&third, mount, "d").await;
    assert_eq!(second.keyring().rotate(3).await.unwrap(), 4);
    let fourth = fixture.open_with(seal, 10).await.unwrap();
    assert_eq!(fourth.pki().documents(mount).await.unwrap().len(), 4);
    assert_eq!(fourth.keyring().status().await.unwrap().term, 4);
    assert_eq!(fixture.open(10).await.err().unwrap().kind(), Kind::Invalid, "with the seal before");
}

#[tokio::test]
async fn seal_change_waits_until_every_node_has_the_data_key() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(10).await.unwrap();
    assert_eq!(first.keyring().rotate(1).await.unwrap(), 2);
    let seal = SealKey::random();
    fixture.clock().advance(Duration::from_secs(29));
    let error = first.change_seal(&seal).await.unwrap_err();
    assert_eq!((error.kind(), error.text().ends_with("retry in 2 seconds")), (Kind::Busy, true), "{error}");
    assert_eq!(first.seal_status().await.unwrap().since, None);
    fixture.clock().advance(Duration::from_secs(1));
    second.keyring().status().await.unwrap();
    first.change_seal(&seal).await.unwrap();
    assert_eq!(first.keyring().rotate(2).await.unwrap(), 3);
    write_document(&first, mount, "a").await;
    assert_eq!(second.pki().documents(mount).await.unwrap().len(), 1);
}

/// Changes the seal while other nodes are offline, creates a data key after the end of the handover, and writes with
/// that key.
async fn change_seal_for_offline_nodes(fixture: &Postgres, node: &Storage, mount: MountId, seal: &SealKey) {
    fixture.clock().advance(Duration::from_secs(31));
    node.change_seal(seal).await.unwrap();
    fixture.clock().advance(Duration::from_secs(61));
    let term = node.keyring().status().await.unwrap().term;
    assert_eq!(node.keyring().rotate(term).await.unwrap(), term + 1);
    write_document(node, mount, &format!("by {term}")).await;
}

#[tokio::test]
async fn node_that_missed_a_seal_change_is_unavailable() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(10).await.unwrap();
    change_seal_for_offline_nodes(&fixture, &first, mount, &SealKey::random()).await;
    for error in [
        second.pki().documents(mount).await.err().unwrap(),
        second.keyring().status().await.unwrap_err(),
        second.keyring().rotate(1).await.unwrap_err(),
        second.seal_challenge().await.err().unwrap(),
    ] {
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.text().starts_with("seal: the seal was changed while this node was offline"), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.starts_with("seal key: this store is sealed by the file key "), "{cause}");
    }
}

#[tokio::test]
async fn node_that_missed_seal_changes_continues_with_the_same_key() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(10).await.unwrap();
    for changes in 1..3 {
        change_seal_for_offline_nodes(&fixture, &first, mount, &fixture.seal_key()).await;
        assert_eq!(second.pki().documents(mount).await.unwrap().len(), changes);
        assert_eq!(second.keyring().status().await.unwrap().term as usize, changes + 1);
    }
    assert_eq!(second.keyring().rotate(3).await.unwrap(), 4);
    write_document(&second, mount, "b").await;
    assert_eq!(first.pki().documents(mount).await.unwrap().len(), 3);
    assert_eq!(fixture.open(10).await.unwrap().pki().documents(mount).await.unwrap().len(), 3);
}

#[tokio::test]
async fn node_that_missed_a_seal_change_continues_with_the_new_key() {
    let (fixture, first, mount) = start_node().await;
    let dir = tempfile::tempdir().unwrap();
    let [of_second, of_first] = ["second.key", "first.key"].map(|name| dir.path().join(name));
    first.change_seal(&SealKey::create_file(&of_second).unwrap()).await.unwrap();
    let second = fixture.open_with(SealKey::from_file(&of_second).unwrap(), 10).await.unwrap();
    change_seal_for_offline_nodes(&fixture, &first, mount, &SealKey::create_file(&of_first).unwrap()).await;
    assert_eq!(second.pki().documents(mount).await.err().unwrap().kind(), Kind::Unavailable);
    std::fs::copy(of_first, of_second).unwrap();
    let started = Instant::now();
    while second.pki().documents(mount).await.is_err() {
        assert!(started.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(second.keyring().rotate(2).await.unwrap(), 3);
}

#[tokio::test]
async fn data_keys_and_the_seal_are_changed_concurrently() {
    let (fixture, first, _) = start_node().await;
    let second = fixture.open(1000).await.unwrap();
    let mut seal = SealKey::random();
    for from in 1..20 {
        let next = SealKey::random();
        fixture.clock().advance(Duration::from_secs(31));
        let (rotated, changed) = join(first.keyring().rotate(from), second.change_seal(&next)).await;
        assert_eq!(rotated.unwrap(), from + 1);
        match changed {
            Ok(_) => seal = next,
            // The new data key was created first. The seal cannot be changed until all nodes are assumed to know that
            // key.
            Err(error) => assert_eq!(error.kind(), Kind::Busy),
        }
    }
    if first.seal_status().await.unwrap().since.is_none() {
        seal = fixture.seal_key();
    }
    assert_eq!(fixture.open_with(seal, 10).await.unwrap().keyring().status().await.unwrap().term, 20);
}

#[tokio::test]
async fn reseal_postpones_locked_rows_without_waiting() {
    let (fixture, storage, _) = start_node().await;
    for n in 0..40 {
        let row = TokenRow {
            hash: [n; 32],
            accessor_hash: [n ^ 0x80; 32],
            parent: None,
            expires_at: None,
            uses: None,
            mount: None,
            entity: None,
            body: vec![n],
        };
        storage.auth().commit(vec![AuthWrite::TokenInsert(row)]).await.unwrap();
    }
    storage.keyring().rotate(1).await.unwrap();
    fixture.clock().advance(Duration::from_secs(31));
    // Locks two token rows in the same way as a transaction that commits leases of these tokens.
    let (client, _driver) = connect::open_client(&fixture.url()).await.unwrap();
    client.batch_execute("SET idle_in_transaction_session_timeout = 0").await.unwrap();
    client.batch_execute("BEGIN; SELECT 1 FROM token WHERE get_byte(hash, 0) IN (3, 7) FOR SHARE").await.unwrap();
    let keyring = storage.keyring();
    let until = async |end: ResealOutcome| {
        for _ in 0..100 {
            match keyring.re_seal().await.unwrap() {
                ResealOutcome::More => {}
                step => return assert_eq!(step, end),
            }
        }
        panic!("it does not end");
    };
    until(ResealOutcome::Later).await;
    until(ResealOutcome::Later).await;
    assert_eq!(keyring.status().await.unwrap().older, Some(2), "what is held is left for later, and not given up");
    client.batch_execute("ROLLBACK").await.unwrap();
    until(ResealOutcome::Done).await;
    assert_eq!((keyring.status().await.unwrap().older, storage.count_old_values().await.unwrap()), (Some(0), 0));
    for n in 0..40 {
        assert!(storage.auth().token([n; 32]).await.unwrap().unwrap().body == [n]);
    }
}

#[tokio::test]
async fn nodes_share_the_count_of_remaining_values() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(1000).await.unwrap();
    for n in 0..5 {
        write_document(&first, mount, &format!("d{n}")).await;
    }
    first.keyring().rotate(1).await.unwrap();
    fixture.clock().advance(Duration::from_secs(31));
    let nodes = [first.keyring(), second.keyring()];
    // The first step starts the run, and each of the next eight steps counts one table; the two nodes alternate.
    for step in 0..9 {
        assert_eq!(nodes[0].status().await.unwrap().older, None, "step {step}");
        assert_eq!(nodes[step % 2].re_seal().await.unwrap(), ResealOutcome::More);
    }
    assert_eq!(nodes[0].status().await.unwrap().older, Some(5));
}

#[tokio::test]
async fn two_nodes_reseal_concurrently_to_completion() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(1000).await.unwrap();
    for n in 0..300 {
        write_document(&first, mount, &format!("d{n}")).await;
    }
    first.keyring().rotate(1).await.unwrap();
    let one = first.keyring();
    let other = second.keyring();
    assert_eq!(one.re_seal().await.unwrap(), ResealOutcome::Later, "not all nodes know the key yet");
    fixture.clock().advance(Duration::from_secs(31));
    for round in 0.. {
        let (one, other) = futures_util::future::join(one.re_seal(), other.re_seal()).await;
        if (one.unwrap(), other.unwrap()) == (ResealOutcome::Done, ResealOutcome::Done) {
            break;
        }
        assert!(round < 200, "it does not end");
    }
    assert_eq!(first.count_old_values().await.unwrap(), 0);
    assert_eq!(second.keyring().status().await.unwrap().older, Some(0));
    assert_eq!(second.pki().documents(mount).await.unwrap().len(), 300);
}

#[tokio::test]
async fn mount_drop_leaves_no_certificate_of_another_node() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(1000).await.unwrap();
    let issuing = join_all((0..200).map(|_| second.pki().commit(issue_unit(mount))));
    let dropping = first.auth().commit(vec![AuthWrite::MountDelete(mount)]);
    let (issued, dropped) = futures_util::future::join(issuing, dropping).await;
    dropped.unwrap();
    assert!(issued.iter().all(|result| result.as_ref().map_or_else(|e| e.kind() == Kind::Conflict, |_| true)));
    for _ in 0..500 {
        if fixture.query_number("SELECT COUNT(*) FROM dropped_mount") == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM certificate"), 0);
}

#[tokio::test]
async fn token_revoked_on_one_node_ends_leases_of_other_nodes() {
    let (fixture, first, mount) = start_node().await;
    let second = fixture.open(1000).await.unwrap();
    let token = |n: u8| TokenRow {
        hash: [n; 32],
        accessor_hash: [n ^ 0x80; 32],
        parent: None,
        expires_at: None,
        uses: n.is_multiple_of(2).then_some(1),
        mount: None,
        entity: None,
        body: Vec::new(),
    };
    for n in 0..40 {
        first.auth().commit(vec![AuthWrite::TokenInsert(token(n))]).await.unwrap();
    }
    let leased = |n: u8| {
        let row = certificate(mount);
        let id = format!("pki/issue/r/{n:03}-{}", crate::random::base62(8));
        let lease = LeaseRow { id, mount, serial: row.serial, token: [n; 32], issued_at: 0, expires_at: 9 };
        vec![PkiWrite::Certificate(row), PkiWrite::Lease(lease)]
    };
    // One node creates leases of each token. Concurrently, the other node revokes the token or spends its last use.
    let leasing = join_all((0..40).flat_map(|n| [n; 3]).map(|n| second.pki().commit(leased(n))));
    let ending = join_all((0..40).map(|n: u8| {
        let end =
            if n.is_multiple_of(2) { AuthWrite::TokenSpend([n; 32]) } else { AuthWrite::TokenRevoke(vec![[n; 32]]) };
        first.auth().commit(vec![end])
    }));
    let (leased, ended) = futures_util::future::join(leasing, ending).await;
    assert!(ended.iter().all(Result::is_ok));
    let stored = leased.iter().filter(|result| result.is_ok()).count();
    assert!(leased.iter().all(|result| result.as_ref().map_or_else(|e| e.kind() == Kind::Conflict, |_| true)));
    while first.pki().mark_leases_of_ended_tokens(7).await.unwrap() == 7 {}
    let marked = first.pki().ending_leases(String::new(), "~".into(), 1000).await.unwrap();
    assert_eq!(marked.len(), stored, "none is left behind");
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM lease WHERE ending = 0"), 0);
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM ended_token"), 0);
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM certificate"), stored as i64);
}

#[tokio::test]
async fn child_token_deleted_concurrently_does_not_stop_revocation() {
    let (fixture, node, _) = start_node().await;
    let token = |n: u16, parent: Option<u16>| {
        let hash = |n: u16| std::array::from_fn(|at| n.to_be_bytes()[at % 2]);
        let (hash, parent) = (hash(n), parent.map(hash));
        let accessor_hash = hash.map(|octet| !octet);
        AuthWrite::TokenInsert(TokenRow {
            hash,
            accessor_hash,
            parent,
            expires_at: None,
            uses: None,
            mount: None,
            entity: None,
            body: Vec::new(),
        })
    };
    node.auth().commit(vec![token(1, None)]).await.unwrap();
    node.auth().commit((2..702).map(|n| token(n, Some(1))).collect()).await.unwrap();
    let (client, _driver) = connect::open_client(&fixture.url()).await.unwrap();
    let remove = "BEGIN; DELETE FROM token WHERE hash IN (SELECT hash FROM token WHERE parent IS NOT NULL LIMIT 1)";
    client.batch_execute(remove).await.unwrap();
    let revoke = async {
        let mut left = vec![[0, 1].repeat(16).try_into().unwrap()];
        while !left.is_empty() {
            let outcomes = node.auth().commit(vec![AuthWrite::TokenRevoke(left)]).await.unwrap();
            let [AuthOutcome::Revoked(step)] = &outcomes[..] else { panic!() };
            left = step.left.clone();
        }
    };
    let commit = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        client.batch_execute("COMMIT").await.unwrap();
    };
    futures_util::future::join(revoke, commit).await;
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM token"), 0);
}

#[tokio::test]
async fn deadlock_between_nodes_is_retried() {
    let (fixture, storage, mount) = start_node().await;
    let other = MountId::random();
    storage.auth().commit(vec![AuthWrite::MountCreate(other)]).await.unwrap();
    let low = mount.min(other);
    let high = mount.max(other);
    // This client locks the rows in the opposite order, so that the server detects a deadlock.
    let (client, _driver) = connect::open_client(&fixture.url()).await.unwrap();
    client.batch_execute("SET deadlock_timeout = '2500ms'; BEGIN").await.unwrap();
    let lock = |mount: MountId| format!("SELECT FROM mount WHERE id = {} FOR UPDATE", mount.0);
    client.batch_execute(&lock(high)).await.unwrap();
    let both = [low, high].into_iter().flat_map(|mount| revoke_unit(mount, Serial::random())).collect();
    let revoked = storage.pki().commit(both);
    tokio::time::sleep(Duration::from_millis(200)).await;
    client.batch_execute(&lock(low)).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(revoked.await.unwrap().len(), 2);
}

#[tokio::test]
async fn start_without_database_reports_the_reason() {
    let fixture = Postgres::new();
    let url = fixture.database.url();
    for (url, says) in [
        (url.replace(&fixture.database.name, "absent"), "\"absent\" does not exist"),
        (url.replace("user=signet", "user=stranger"), "\"stranger\" does not exist"),
        (url.replace("host=", "host=/absent"), "No such file"),
    ] {
        let error = open(PostgresUrl::parse(&url).unwrap()).await.err().unwrap();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.text().contains(says), "{error}");
    }
}

#[tokio::test]
async fn database_with_a_newer_schema_is_rejected() {
    let (fixture, storage, _) = start_node().await;
    storage.shutdown().await.unwrap();
    fixture.execute("UPDATE meta SET value = $1 WHERE name = 'schema'", &[b"99"]);
    let error = open(fixture.url()).await.err().unwrap();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("schema version 99"), "{error}");
}

#[tokio::test]
async fn missing_schema_permission_is_reported_with_the_fix() {
    let (fixture, storage, _) = start_node().await;
    storage.shutdown().await.unwrap();
    let database = &fixture.database;
    let name = &fixture.database.name;
    let clerk = format!("clerk_{name}");
    database.psql(&format!(
        "CREATE ROLE {clerk} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {clerk}"
    ));
    let url = || PostgresUrl::parse(&database.url().replace("user=signet", &format!("user={clerk}"))).unwrap();
    let refused = |error: Option<Error>| {
        let error = error.unwrap();
        let mends = format!("ALTER DATABASE {name} OWNER TO {clerk}");
        assert!(error.kind() == Kind::Invalid && error.text().contains(&mends), "{error}");
    };
    refused(inspect(url()).await.err());
    refused(require_schema_permission(&url()).await.err());
    refused(require_no_other_node(&url()).await.err());
    // If no migration is to be run, the user needs no permission.
    assert!(open(url()).await.is_ok());
    fixture.execute("UPDATE meta SET value = $1 WHERE name = 'schema'", &[b"1"]);
    refused(open(url()).await.err());
    database.psql(&format!("ALTER DATABASE {name} OWNER TO {clerk}"));
    assert!(
        inspect(url()).await.is_ok()
            && require_schema_permission(&url()).await.is_ok()
            && require_no_other_node(&url()).await.is_ok()
    );
}

#[tokio::test]
async fn restore_is_recorded_only_while_no_node_runs() {
    let (fixture, node, _) = start_node().await;
    let another = fixture.open(1000).await.unwrap();
    let noted = async || {
        let seal_key = fixture.seal_key();
        let clock = fixture.clock().clone();
        let if_missing = IfMissing::Fail;
        record_restore(StorageOptions {
            database: Database::Postgres(fixture.url()),
            seal_key,
            clock,
            commit_queue: 10,
            if_missing,
        })
        .await
    };
    let wait = async |wanted: &str| {
        let started = Instant::now();
        loop {
            let message = noted().await.map_or_else(|error| error.to_string(), |()| "noted".to_owned());
            if message.contains(wanted) {
                return message;
            }
            assert!(started.elapsed() < Duration::from_secs(10), "{message}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // A command that opens the store is not a node, so it does not prevent `record_restore`.
    wait("noted").await;
    let listeners = [node.changes().unwrap().listen(), another.changes().unwrap().listen()];
    let text = wait("2 nodes run on the database (pid ").await;
    assert!(text.contains("stop every node first"), "{text}");
    node.shutdown().await.unwrap();
    wait("a node runs on the database (pid ").await;
    another.shutdown().await.unwrap();
    wait("noted").await;
    drop(listeners);
    let storage = fixture.open(1000).await.unwrap();
    let restore = storage.auth().condition().await.unwrap().restore.unwrap();
    assert_eq!((restore.restored_at, restore.copied_at), (fixture.clock().now(), None));
    storage.shutdown().await.unwrap();
}

#[tokio::test]
async fn database_that_may_lose_commits_is_refused() {
    let fixture = Postgres::new();
    let name = &fixture.database.name;
    fixture.database.psql(&format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    let error = open(fixture.url()).await.err().unwrap();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("synchronous_commit = off"), "{error}");
    fixture.database.psql(&format!("ALTER DATABASE {name} SET synchronous_commit = on"));
    assert!(open(fixture.url()).await.is_ok());
}

#[tokio::test]
async fn expired_rows_and_endless_tokens_are_found_by_an_index() {
    let (fixture, storage, _) = start_node().await;
    for (sql, fourth, index) in [
        (sql::tidy::EXPIRED_CERTIFICATES, "''::BYTEA", "certificate_end"),
        (sql::tidy::EXPIRED_REVOCATIONS, "250", "revocation_end"),
        (sql::tidy::UNLISTED_REVOCATION, "1", "revocation_end"),
        (sql::tidy::DELETE_METADATA, "", "certificate_metadata_end"),
        (sql::tokens::COUNT_NEVER_EXPIRING, "", "token_endless"),
    ] {
        let values = [("$1", "7"), ("$2", "9"), ("$3", "1"), ("$4", fourth), ("$5", "250")];
        let sql = values.iter().fold(sql.to_owned(), |sql, (name, value)| sql.replace(name, value));
        // Without these settings, PostgreSQL would scan the empty tables instead of using an index.
        let plan =
            fixture.database.psql(&format!("SET enable_seqscan = off; SET enable_bitmapscan = off; EXPLAIN {sql}"));
        assert!(plan.contains(&format!("using {index} on")), "{plan}");
        assert!(!plan.contains("Sort") && !plan.contains("Seq Scan"), "{plan}");
    }
    storage.shutdown().await.unwrap();
}

//! Tests of failover to another server, and of slow connections.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::{UnixListener, UnixStream};

use super::*;
use crate::nodes::store::Timeline;
use crate::projects::store::{SERVER_CALLER, SessionAccess};
use crate::storage::backend::StoreReader as _;

/// Starts a proxy to the database server. Returns its folder, its URL, and the delay in milliseconds of each
/// connection, which the test can change.
fn slow_proxy(fixture: &Postgres) -> (tempfile::TempDir, PostgresUrl, Arc<AtomicU64>) {
    let folder = tempfile::tempdir().unwrap();
    let delay = Arc::new(AtomicU64::new(0));
    let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
    let server = cluster::shared().folder();
    let configured_delay = Arc::clone(&delay);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let delay = Duration::from_millis(configured_delay.load(Ordering::Relaxed));
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                let mut far = UnixStream::connect(server.join(".s.PGSQL.5432")).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    let url = fixture.database.url().replace(server.to_str().unwrap(), folder.path().to_str().unwrap());
    let url = PostgresUrl::parse(&url).unwrap();
    (folder, url, delay)
}

#[tokio::test]
async fn slow_connection_of_a_timed_out_read_serves_the_next() {
    let fixture = Postgres::new();
    let (_folder, url, delay) = slow_proxy(&fixture);
    let (_writer, reader) = open(url).await.unwrap();
    delay.store(2_500, Ordering::Relaxed);
    let read = |patience| tokio::time::timeout(Duration::from_millis(patience), reader.facts());
    // Two seconds is the timeout of the task that reads the change log.
    assert!(read(2_000).await.is_err());
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert!(read(1_000).await.expect("on the connection that was made meanwhile").is_ok());
    assert!(read(1_000).await.expect("on the same").is_ok());
}

#[tokio::test]
async fn only_a_promoted_standby_is_another_timeline() {
    let primary = cluster::Cluster::new();
    let database = primary.database();
    let standby = primary.standby();
    let fixture = Postgres::new();
    let on = |server: &Arc<cluster::Cluster>| PostgresUrl::parse(&database.on(server).url()).unwrap();
    let options = crate::storage::StorageOptions {
        database: crate::storage::Database::Postgres(on(&primary)),
        seal_key: fixture.seal_key(),
        clock: fixture.clock().clone(),
        commit_queue: 10,
        if_missing: IfMissing::Create,
    };
    let node = crate::storage::open(options).await.unwrap();
    let mount = MountId::random();
    node.auth().commit(vec![AuthWrite::MountCreate(mount)]).await.unwrap();
    node.pki().commit(document_unit(mount, "a")).await.unwrap();
    let is_there = "SELECT COUNT(*) FROM document WHERE name = 'a'";
    while database.on(&standby).psql(is_there) != "1" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let ask = async |server: &Arc<cluster::Cluster>, position: LogPosition| {
        let (client, driver) = connect::open_client(&on(server)).await.unwrap();
        let opened_at = Instant::now();
        changes::read_changes(&query::PostgresClient::new(client, driver), opened_at, position, 7).await.ok().unwrap()
    };
    let first = ask(&primary, LogPosition::default()).await;
    assert!(!first.is_other_timeline && first.position.timeline.is_some(), "nothing was seen before");
    let again = ask(&primary, first.position).await;
    assert!(!again.is_other_timeline, "another connection to the same server");
    standby.promote();
    let moved = ask(&standby, again.position).await;
    assert!(moved.is_other_timeline);
    assert_eq!(moved.mounts.iter().find(|change| change.mount == mount).map(|change| change.version), Some(1));
    assert!(!ask(&standby, moved.position).await.is_other_timeline);
}

#[tokio::test]
async fn session_does_not_write_on_an_unsuitable_server() {
    let fixture = Postgres::new();
    let (mut writer, reader) = open(fixture.url()).await.unwrap();
    let work = |name: &'static str| -> SqlWork {
        let sql = "INSERT INTO meta (name, value) VALUES ($1, '')";
        Arc::new(move |session| async move { session.execute(sql, &[name.into()]).await.map(drop) }.boxed_local())
    };
    assert!(reader.clone().run("test", SessionAccess::Write(SERVER_CALLER), work("one")).await.is_ok());
    // Another server, after a failover, may have this setting.
    let name = &fixture.database.name;
    fixture.database.psql(&format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    fixture.database.end_connections();
    let written = writer.apply(vec![WriteUnit::Facts(vec![FactWrite::new(("two".to_owned(), Vec::new()))])]).await;
    assert_eq!(written[0].as_ref().unwrap_err().kind(), Kind::Unavailable);
    let Err(crate::sql::SqlError::Engine(error)) =
        reader.clone().run("test", SessionAccess::Write(SERVER_CALLER), work("three")).await
    else {
        panic!("acknowledged what could be lost")
    };
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(format!("{:?}", std::error::Error::source(&error)).contains("synchronous_commit = off"));
    fixture.database.psql(&format!("ALTER DATABASE {name} SET synchronous_commit = on"));
    assert!(reader.run("test", SessionAccess::Write(SERVER_CALLER), work("four")).await.is_ok());
    assert_eq!(fixture.query_number("SELECT COUNT(*) FROM meta WHERE name IN ('two', 'three')"), 0);
}

#[tokio::test]
async fn data_key_lost_in_a_failover_is_no_longer_used() {
    let early = Instant::now();
    let (fixture, storage, mount) = start_node().await;
    let of_another = Timeline { system: 1, timeline: 1 };
    let position = LogPosition { sequence: 0, read_at: Some(early), timeline: Some(of_another) };
    assert_eq!(storage.keyring().rotate(1).await.unwrap(), 2);
    write_document(&storage, mount, "before").await;
    fixture.execute("DELETE FROM meta WHERE name = 'data-key/2'", &[]);
    let found = storage.changes().unwrap().since(position).await.unwrap();
    assert!(found.is_other_timeline && found.position.timeline.is_some_and(|timeline| timeline != of_another));
    write_document(&storage, mount, "after").await;
    assert_eq!((stored_term(&fixture, "before"), stored_term(&fixture, "after")), (vec![0, 0, 0, 2], vec![0, 0, 0, 1]));
}

//! `copy-store` loses its connection at COMMIT: a server starts on at most one of the two stores.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{operator, run};
use crate::cluster::{Cluster, Database};
use crate::crash::place::Place;

/// The fate of the COMMIT.
#[derive(Clone, Copy, PartialEq)]
enum Commit {
    /// It arrives, and its response is lost.
    Arrives,
    /// It does not arrive.
    IsLost,
}

/// Starts a proxy to a database that closes the connection at COMMIT, and returns its port. With `again`, it accepts
/// later connections.
fn way(upstream: u16, commit: Commit, again: bool) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let over = Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || {
        for client in listener.incoming().map(Result::unwrap) {
            if over.load(Ordering::SeqCst) && !again {
                continue;
            }
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, upstream)).unwrap();
            let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let ended = Arc::new(AtomicBool::new(false));
            let seen = over.clone();
            let mute = ended.clone();
            std::thread::spawn(move || ask(client, server, commit, &ended, &seen));
            std::thread::spawn(move || answer(ends.0, ends.1, &mute));
        }
    });
    port
}

fn ask(mut client: TcpStream, mut server: TcpStream, commit: Commit, ended: &AtomicBool, over: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    let mut fills = false;
    let has = |sent: &[u8], text: &[u8]| sent.windows(text.len()).any(|part| part == text);
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let sent = &buffer[..read];
        fills |= has(sent, b"idle_in_transaction_session_timeout = '10min'");
        if fills && has(sent, b"COMMIT\0") {
            over.store(true, Ordering::SeqCst);
            ended.store(true, Ordering::SeqCst);
            if commit == Commit::IsLost {
                break;
            }
        }
        if server.write_all(sent).is_err() {
            break;
        }
    }
    end(&client, &server);
}

fn answer(mut client: TcpStream, mut server: TcpStream, ended: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = server.read(&mut buffer) {
        if ended.load(Ordering::SeqCst) || client.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    end(&client, &server);
}

fn end(client: &TcpStream, server: &TcpStream) {
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

fn copy_store(folder: &Path, url: &str) -> Result<String, String> {
    run(operator(&["copy-store", "--to", url], folder).env("SIGNET_LOG", "error"))
}

/// Copies a new store through such a proxy. Returns the store, the database and the output.
fn copied(cluster: &Arc<Cluster>, commit: Commit, again: bool) -> (Place, Database, Result<String, String>) {
    let place = Place::embedded();
    let database = cluster.database();
    place.start().terminate();
    let url = database.url_through(way(cluster.port(), commit, again));
    let said = copy_store(&place.file(""), &url);
    (place, database, said)
}

fn certificates(database: &Database) -> String {
    database.psql("SELECT COUNT(*) FROM certificate")
}

fn refused(place: &Place) -> String {
    run(crate::process::signet().args(["dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(place.file("")))
        .unwrap_err()
}

#[test]
fn copy_store_with_lost_commit_leaves_one_usable_store() {
    let cluster = Cluster::over_tcp();
    // The command checks the database, which has everything.
    let (place, database, said) = copied(&cluster, Commit::Arrives, true);
    assert_ne!(certificates(&database), "0", "{said:?}");
    assert!(said.unwrap().ends_with("the database: ok\n"));
    assert!(refused(&place).contains("by copy-store"));

    // The database is unreachable for the check. It has everything.
    let (place, database, said) = copied(&cluster, Commit::Arrives, false);
    assert_ne!(certificates(&database), "0");
    let said = said.unwrap_err();
    for part in ["either the whole store or nothing", "Run copy-store again", "not empty", "after-restore"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(refused(&place).contains("by copy-store"));
    let again = copy_store(&place.file(""), &database.url()).unwrap_err();
    assert!(again.contains("the database is not empty"), "{again}");
    assert!(refused(&place).contains("by copy-store"), "still");

    // The database is unreachable for the check. It has nothing.
    let (place, database, said) = copied(&cluster, Commit::IsLost, false);
    assert!(said.unwrap_err().contains("either the whole store or nothing"));
    assert_eq!(certificates(&database), "0");
    let error = refused(&place);
    assert!(error.contains("interrupted") && error.contains("Run copy-store again"), "{error}");
    assert!(copy_store(&place.file(""), &database.url()).unwrap().ends_with("the database: ok\n"));

    // The command checks the database, which has nothing: the server starts on the old store again.
    let (place, database, said) = copied(&cluster, Commit::IsLost, true);
    assert!(said.unwrap_err().contains("nothing was copied into the database"));
    assert_eq!(certificates(&database), "0");
    place.start().terminate();
}

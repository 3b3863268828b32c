//! Two nodes are upgraded to a newer program one after the other, under load.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::seed::{Seed, is_long};
use super::site::{Site, Way};
use crate::cluster;
use crate::crash::place::Place;
use crate::process::{refused, signet, signet_at};

/// The last commit before data keys, audit devices and idempotent requests.
const OLD_COMMIT: &str = "1594ec7";

/// Migrates the schema by one version, as a later program would: every table gets columns and an index, and there is a
/// new table. Locks one table at a time.
fn migrate(place: &Place) {
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'";
    for table in place.column(tables) {
        place.scan(&format!(
            "ALTER TABLE {table} ADD COLUMN later_text text, ADD COLUMN later_number bigint NOT NULL DEFAULT 0"
        ));
        place.scan(&format!("CREATE INDEX later_{table} ON {table} (later_number)"));
    }
    place.scan("CREATE TABLE later (id bigint PRIMARY KEY, of_mount bigint REFERENCES mount (id) ON DELETE CASCADE)");
    place.scan(FORTH);
}

const FORTH: &str = "UPDATE meta SET value = convert_to((convert_from(value, 'UTF8')::int + 1)::text, 'UTF8')
    WHERE name = 'schema'";
const BACK: &str = "UPDATE meta SET value = convert_to((convert_from(value, 'UTF8')::int - 1)::text, 'UTF8')
    WHERE name = 'schema'";

#[actix_web::test]
async fn nodes_work_under_newer_schema_and_restart_one_by_one() {
    let mut seed = Seed::new();
    let place = Place::postgres(cluster::shared().database());
    let mut site = Site::start(place, vec![Way::default(); 2]).await;
    site.works(20 + seed.below(40), 2);
    migrate(&site.place);
    site.works(20, 2);
    // Prepared statements are prepared again on new connections.
    site.place.database().unwrap().end_connections();
    site.works(20, 2);
    let url = site.place.database().unwrap().url();
    let folder = site.place.file("");
    let arguments = ["dev", "--listen", "127.0.0.1:0", "--database-url", &url, "--data-dir"];
    let text = refused(signet().args(arguments).arg(&folder));
    assert!(text.contains("start a newer version of signet"), "{text}");
    site.place.scan(BACK);
    site.copy();
    for at in seed.order(&[0, 1], 2) {
        site.rotate_meanwhile(1 - at);
        site.terminate(at);
        std::thread::sleep(seed.millis(0..500));
        site.restart(at);
        site.works(20, 2);
        site.rotated();
    }
    site.judge().await;
}

/// The older program: `SIGNET_FAULTS_OLD_BINARY`, or built from the history of this repository.
fn old_program() -> PathBuf {
    if let Some(binary) = std::env::var_os("SIGNET_FAULTS_OLD_BINARY") {
        return binary.into();
    }
    let commit = std::env::var("SIGNET_FAULTS_OLD_COMMIT").unwrap_or_else(|_| OLD_COMMIT.to_owned());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("target/faults").join(&commit);
    if !folder.join("Cargo.toml").exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let archive = folder.join("source.tar");
        let mut git = Command::new("git");
        git.current_dir(root).args(["archive", "--format=tar", "--output"]).arg(&archive).arg(&commit);
        assert!(git.status().unwrap().success(), "git archive {commit}");
        let unpacked = Command::new("tar").current_dir(&folder).arg("-xf").arg(&archive).status().unwrap();
        assert!(unpacked.success(), "tar -xf {}", archive.display());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = ["build", "--locked", "--bin", "signet"];
    let target = folder.join("target");
    let built = Command::new(cargo).current_dir(&folder).args(words).env("CARGO_TARGET_DIR", &target).status();
    assert!(built.unwrap().success(), "the older program does not build");
    target.join("debug/signet")
}

#[actix_web::test]
async fn two_nodes_of_an_older_program_are_replaced_one_by_one() {
    if !is_long() {
        return println!("SIGNET_FAULTS=long builds the older program");
    }
    let mut seed = Seed::new();
    let old = old_program();
    let place = Place::postgres(cluster::shared().database()).run_by(move || signet_at(&old));
    let mut site = Site::start(place, vec![Way::default(); 2]).await;
    site.works(100 + seed.below(200), 10);
    site.place.run_anew(signet);
    for at in seed.order(&[0, 1], 2) {
        site.terminate(at);
        site.restart(at);
        // Both programs work concurrently on the newer schema.
        site.works(200, 20);
    }
    // The older program does not know data keys.
    site.rotate_meanwhile(0);
    site.copy();
    site.works(100, 10);
    site.judge().await;
}

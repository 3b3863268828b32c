//! Commands of the real program on a missing store, as with an unmounted data volume, create no new store.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::cluster;
use crate::process::{refused, write_private};
use crate::serve::Site;

const WORDS: [&[&str]; 6] = [
    &["operator", "rotate-seal-key"],
    &["operator", "seal-status"],
    &["operator", "after-restore"],
    &["operator", "new-root-token"],
    &["operator", "new-user-token", "--user", "ada"],
    &["bootstrap", "--username", "ada", "--email", "ada@example.test"],
];

/// A site whose seal key is outside its data folder.
fn site() -> Site {
    let site = Site::new();
    site.configure(&format!("seal_key_file = \"{}\"\n", site.path("seal.key").display()));
    site
}

fn write_key(site: &Site, content: &str) {
    write_private(site.path("seal.key"), content);
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn no_command_makes_a_store_where_one_is_missed() {
    let site = site();
    site.init();
    let data = site.path("data");
    let key = std::fs::read(site.path("seal.key")).unwrap();
    std::fs::rename(&data, site.path("away")).unwrap();
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&data).unwrap();
            std::fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
        }
        let before = names(&site.path(""));
        for words in WORDS {
            let error = refused(&mut site.command(words));
            let expected = format!("no store in {}: is its volume mounted?", data.display());
            assert!(error.contains(&expected), "{words:?}: {error}");
            assert_eq!(names(&site.path("")), before, "{words:?}");
            assert!(!is_there || names(&data).is_empty(), "{words:?}");
        }
    }
    assert!(std::fs::read(site.path("seal.key")).unwrap() == key);
    // An interrupted creation of a store leaves an empty file.
    std::fs::write(data.join("signet.db"), "").unwrap();
    assert!(refused(&mut site.command(WORDS[1])).contains("no store in "));
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(site.path("away"), &data).unwrap();
    site.serve().terminate();
}

#[test]
fn no_command_makes_a_store_in_a_database_without_one() {
    let site = Site::new();
    let database = cluster::shared().database();
    write_key(&site, &"5a".repeat(32));
    site.configure_database(&database.url(), "seal.key", "");
    for words in WORDS {
        let error = refused(&mut site.command(words));
        assert!(
            error.contains("no store in the database: does database_url name the right one?"),
            "{words:?}: {error}"
        );
    }
    assert_eq!(database.psql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").trim(), "0");
    site.init();
    assert!(site.command(WORDS[2]).output().unwrap().status.success());
}

#[test]
fn a_store_that_its_key_does_not_open_names_the_keys_before() {
    let site = site();
    site.init();
    let before = std::fs::read(site.path("data/signet.db")).unwrap();
    assert!(site.command(&["operator", "rotate-seal-key"]).output().unwrap().status.success());
    let wrong = || refused(&mut site.command(&["serve"]));
    // A volume that was reset to an earlier state.
    std::fs::write(site.path("data/signet.db"), before).unwrap();
    let old = names(&site.path("")).into_iter().find(|name| name.starts_with("seal.key.old-")).unwrap();
    let named = format!("{} (from before a signet operator rotate-seal-key)", site.path(&old).display());
    let error = wrong();
    assert!(error.contains("seal key: does not open") && error.contains(&named), "{error}");
    // With the old key in place the server starts. A key from the environment has no sibling files to name.
    std::fs::copy(site.path(&old), site.path("seal.key")).unwrap();
    site.serve().terminate();
    let error = refused(site.command(&["serve"]).env("SIGNET_SEAL_KEY", "77".repeat(32)));
    assert!(error.contains("seal key: does not open") && !error.contains("key files next to"), "{error}");
}

//! `signet check` and `signet health` with the real program: the checks and their messages.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::json;

use crate::cluster;
use crate::process::{openssl, ran, refused, signet, write_private};
use crate::serve::Site;

/// Runs a check. Returns whether it succeeds, and its lines.
fn checked(command: &mut Command) -> (bool, Vec<String>) {
    let (well, out, _) = ran(command);
    (well, out.lines().map(str::to_owned).collect())
}

fn line<'l>(lines: &'l [String], what: &str) -> (&'l str, &'l str) {
    let found = lines.iter().filter_map(|line| {
        let (level, rest) = line.split_once(' ')?;
        let (name, text) = rest.trim_start().split_once(' ')?;
        (name == what).then(|| (level, text.trim_start()))
    });
    let found: Vec<_> = found.collect();
    assert_eq!(found.len(), 1, "{what}: {lines:?}");
    found[0]
}

fn check(site: &Site) -> Command {
    site.command(&["check"])
}

#[test]
fn check_inspects_installation_before_during_and_after_service() {
    let site = Site::new();
    let (well, told) = checked(&mut check(&site));
    assert!(well, "{told:?}");
    assert!(line(&told, "store").1.contains("signet operator init creates the store"), "{told:?}");
    assert_eq!(line(&told, "seal").0, "note");
    assert_eq!((line(&told, "listen").0, line(&told, "tls_certificate").0), ("ok", "note"));
    assert_eq!(line(&told, "environment").0, "ok");
    assert!(!site.path("data").exists(), "nothing is made");
    site.init();
    let before = names(&site);
    let (well, told) = checked(&mut check(&site));
    assert_eq!(names(&site), before, "nothing is left behind");
    assert!(well && line(&told, "seal").1.contains("opens the store"), "{told:?}");
    assert!(line(&told, "store").1.contains("schema version"), "{told:?}");
    let served = site.serve();
    let (well, told) = checked(&mut check(&site));
    assert!(well && line(&told, "store").1.contains("in use by a running server"), "{told:?}");
    served.terminate();
    // The checks changed nothing: the server starts.
    site.serve().terminate();
}

fn names(site: &Site) -> Vec<String> {
    let entries = std::fs::read_dir(site.path("data")).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Gives a site to an unprivileged user, and runs its commands as that user.
fn commands_of_user(site: &Site) -> impl Fn(&str) -> Command {
    const NOBODY: u32 = 65534;
    let is_root = rustix::process::geteuid().is_root();
    for path in ["", "data"].map(|name| site.path(name)).into_iter().filter(|_| is_root) {
        let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        for path in entries.chain([path]) {
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    move |word| {
        let mut command = site.command(&[word]);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}

#[test]
fn check_and_serve_report_paths_without_write_permission() {
    let site = Site::initialized();
    std::fs::write(site.path("data/signet.db-wal"), "").unwrap();
    let run = commands_of_user(&site);
    if run("check").arg("--file-only").output().is_err() {
        return crate::crash::left_out("other users do not reach the program");
    }
    let set_mode = |name: &str, mode| {
        std::fs::set_permissions(site.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, without, mode) in [
        ("data", 0o500, 0o700),
        ("data/signet.db", 0o400, 0o600),
        ("data/signet.db-wal", 0o400, 0o600),
        ("data/signet.lock", 0o400, 0o600),
    ] {
        set_mode(name, without);
        let before = names(&site);
        let named = format!("{}: cannot be written (permission denied)", site.path(name).display());
        let (well, told) = checked(&mut run("check"));
        assert!(!well, "{told:?}");
        assert_eq!(line(&told, "store"), ("wrong", named.as_str()), "{told:?}");
        let error = refused(&mut run("serve"));
        assert!(error.contains(&named), "{error}");
        assert_eq!(names(&site), before, "{name}");
        set_mode(name, mode);
    }
    let (well, told) = checked(&mut run("check"));
    assert!(well, "{told:?}");
    // A missing folder is acceptable if it can be created.
    std::fs::remove_dir_all(site.path("data")).unwrap();
    set_mode("", 0o500);
    let told = checked(&mut run("check")).1;
    assert_eq!(line(&told, "store").0, "wrong", "{told:?}");
    set_mode("", 0o700);
    assert_eq!(line(&checked(&mut run("check")).1, "store").0, "note");
}

#[test]
fn check_by_root_says_how_to_run_it_as_the_owner() {
    if !rustix::process::geteuid().is_root() {
        return crate::crash::left_out("only root can read files of other users");
    }
    let site = Site::initialized();
    assert!(checked(&mut check(&site)).1.iter().all(|line| !line.contains("checked as root")));
    let run = commands_of_user(&site);
    let told = checked(&mut check(&site)).1;
    let command = format!("runuser -u nobody -- signet check --config {}", site.path("signet.toml").display());
    assert!(line(&told, "user").0 == "note" && line(&told, "user").1.ends_with(&command), "{told:?}");
    let Ok(output) = run("check").output() else {
        return crate::crash::left_out("other users do not reach the program");
    };
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(!told.contains("checked as root"), "{told}");
}

#[test]
fn check_and_serve_name_the_owner_of_an_audit_file() {
    let site = Site::initialized();
    let file = site.path("audit.log");
    site.configure(&format!("[[audit]]\ntype = \"file\"\nfile_path = \"{}\"\n", file.display()));
    let run = commands_of_user(&site);
    if !rustix::process::geteuid().is_root() || run("check").arg("--file-only").output().is_err() {
        return crate::crash::left_out("it takes root, and a program that other users reach");
    }
    write_private(&file, "");
    let why = format!("permission denied: the file belongs to root; run chown nobody {} as root", file.display());
    let told = checked(&mut run("check")).1;
    assert!(line(&told, "audit").0 == "wrong" && line(&told, "audit").1.ends_with(&why), "{told:?}");
    let error = refused(&mut run("serve"));
    assert!(error.contains(&format!("cannot be opened ({why})")), "{error}");
}

#[test]
fn check_reports_seal_key_that_does_not_open_the_store() {
    let site = Site::initialized();
    let key = site.path("data/seal.key");
    let good = std::fs::read(&key).unwrap();
    let seal = |says: &str| {
        let (well, told) = checked(&mut check(&site));
        assert_eq!(line(&told, "seal").0, "wrong", "{told:?}");
        assert!(!well && line(&told, "seal").1.contains(says), "{told:?}");
    };
    std::fs::write(&key, "00".repeat(32)).unwrap();
    seal("seal key");
    std::fs::write(&key, &good).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    seal("set its mode to 0600");
    std::fs::remove_file(&key).unwrap();
    seal("restore the seal key");
    write_private(&key, &good);
    assert!(check(&site).output().unwrap().status.success());
}

fn certify(site: &Site, more: &[&str]) {
    let key = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=s"];
    let out = ["-keyout", "tls-key.pem", "-out", "tls.pem"];
    openssl(site.path("").as_path(), &[&key[..], more, &out].concat());
}

#[test]
fn check_opens_the_certificate_of_the_listener_and_its_key() {
    let site = Site::new().with_tls("7");
    let told = checked(&mut check(&site)).1;
    assert_eq!((line(&told, "tls_certificate").0, line(&told, "tls_key").0), ("ok", "ok"));
    assert!(line(&told, "tls_certificate").1.contains("valid until"), "{told:?}");
    let wrong = |what: &str, says: &str| {
        let (well, told) = checked(&mut check(&site));
        let told_so = told.iter().any(|line| line.starts_with(&format!("wrong  {what} ")) && line.contains(says));
        assert!(!well && told_so, "{says}: {told:?}");
        let once = told.iter().filter(|line| line.starts_with(&format!("wrong  {what} "))).count();
        assert_eq!(once, 1, "{says}: {told:?}");
    };
    let key = site.path("tls-key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    wrong("tls_key", "must not be open to group or others (set its mode to 0600, or 0640 when it is root's)");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    certify(&site, &[]);
    wrong("tls_certificate", "is the certificate of an authority");
    let leaf = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    let ended = KeyPair::generate().unwrap();
    let mut terms = CertificateParams::new(["s.test".to_owned()]).unwrap();
    (terms.not_before, terms.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    std::fs::write(site.path("tls.pem"), terms.self_signed(&ended).unwrap().pem()).unwrap();
    std::fs::write(&key, ended.serialize_pem()).unwrap();
    wrong("tls_certificate", "has expired on 2021-01-01");
    certify(&site, &leaf);
    std::fs::copy(site.path("ca-key.pem"), &key).unwrap();
    wrong("tls_key", "is not the key of the first certificate of tls_certificate_file");
    std::fs::write(site.path("tls.pem"), "no certificate").unwrap();
    wrong("tls_certificate", "must contain PEM certificates");
    std::fs::remove_file(site.path("tls.pem")).unwrap();
    wrong("tls_certificate", "tls_certificate_file: file does not exist: ");
}

#[test]
fn check_reports_unknown_variables_and_unusable_addresses() {
    let site = Site::new();
    let (well, told) = checked(check(&site).env("SIGNET_LISTNE", "127.0.0.1:1").env("SIGNET_NEW_SEAL_KEY", "x"));
    assert!(well, "a note: {told:?}");
    assert_eq!(line(&told, "environment"), ("note", "SIGNET_LISTNE: not a known variable (is SIGNET_LISTEN meant?)"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (well, told) = checked(check(&site).env("SIGNET_LISTEN", &address));
    assert!(!well && line(&told, "listen").1.contains("taken by another program"), "{told:?}");
    let (_, told) = checked(check(&site).env("SIGNET_METRICS_LISTEN", "192.0.2.1:9"));
    assert_eq!(line(&told, "metrics_listen"), ("wrong", "192.0.2.1:9: is not an address of this machine"));
    let (_, told) = checked(check(&site).env("SIGNET_PUBLIC_LISTEN", "192.0.2.1:9"));
    assert_eq!(line(&told, "public_listen"), ("wrong", "192.0.2.1:9: is not an address of this machine"));
    let (well, told) = checked(check(&site).env("SIGNET_AUDIT", site.path("no/such/folder/audit.log")));
    assert!(!well && line(&told, "audit").0 == "wrong", "{told:?}");
    // `--file-only` checks nothing but the file.
    let (well, told) = checked(check(&site).arg("--file-only").env("SIGNET_LISTEN", &address));
    assert_eq!((well, told.len()), (true, 1));
    let error = refused(check(&site).arg("--file-only").env("SIGNET_SEAL_KEY", "zz"));
    assert!(error.contains("seal key: must be 64 hexadecimal digits"), "{error}");
}

#[actix_web::test]
async fn check_reports_managed_keys_without_configured_library() {
    let site = Site::new();
    let token = site.init();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    site.configure(&format!("pkcs11_libraries = {{ hsm = \"{file}\" }}\n"));
    let served = site.serve();
    let key =
        json!({ "library": "HSM", "token_label": "one", "key_label": "web", "mechanism": "0x1041", "pin": "4711" });
    let written = served.client(&token).post("sys/managed-keys/pkcs11/web", key).await;
    assert!(written.status < 300, "{}", written.error());
    served.terminate();
    assert!(check(&site).output().unwrap().status.success());
    site.configure("");
    let (well, told) = checked(&mut check(&site));
    let text = "\"web\" cannot be used: pkcs11_libraries has no \"HSM\"";
    assert_eq!((well, line(&told, "managed_key")), (false, ("wrong", text)));
}

#[test]
fn check_tries_the_database() {
    let site = Site::new();
    let database = cluster::shared().database();
    let key = site.path("seal.key");
    write_private(&key, "5a".repeat(32));
    let configure = |url: &str| site.configure_database(url, "seal.key", "");
    configure(&database.url());
    let told = checked(&mut check(&site)).1;
    assert!(line(&told, "store").1.contains("is still empty"), "{told:?}");
    site.init();
    let told = checked(&mut check(&site)).1;
    assert_eq!((line(&told, "store").0, line(&told, "seal").0), ("ok", "ok"), "{told:?}");
    // A database user who owns no table cannot migrate the schema.
    let clerk = format!("clerk_{}", database.name);
    database.psql(&format!(
        "CREATE ROLE {clerk} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA public TO {clerk}"
    ));
    configure(&database.url().replace("user=signet", &format!("user={clerk}")));
    let mends = format!("ALTER DATABASE {} OWNER TO {clerk}", database.name);
    let (well, told) = checked(&mut check(&site));
    assert!(!well && line(&told, "store").0 == "wrong", "{told:?}");
    assert!(line(&told, "store").1.contains(&mends), "{told:?}");
    for word in ["verify-backup", "after-restore"] {
        let (well, out, err) = ran(&mut site.command(&["operator", word]));
        assert!(!well && [out, err].concat().contains(&mends), "{word}");
    }
    configure(&database.url());
    std::fs::write(&key, "00".repeat(32)).unwrap();
    let (well, told) = checked(&mut check(&site));
    assert!(!well && line(&told, "seal").0 == "wrong");
    configure("postgres://nobody@127.0.0.1:9/none");
    let (well, told) = checked(&mut check(&site));
    assert!(!well && line(&told, "store").1.contains("unreachable"), "{told:?}");
}

fn health(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn health_is_a_status_for_containers() {
    let site = Site::new().with_tls("7");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // Like a container: listens on all addresses, with a certificate for another name than the loopback.
    let asked =
        |words: &[&str]| health(site.command(&[&["health"], words].concat()).env("SIGNET_LISTEN", free.to_string()));
    let (code, text) = asked(&[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("no response"), "{text}");
    site.init();
    let mut serve = site.command(&["serve"]);
    let served = crate::serve::Served::start(serve.env("SIGNET_LISTEN", free.to_string()), &site.path("log"));
    assert_eq!(asked(&[]), (0, "ready\n".to_owned()));
    assert_eq!(asked(&["--live"]), (0, "live\n".to_owned()));
    // With an explicit address, the certificate is verified.
    let address = format!("https://{free}");
    let (code, _) = health(signet().args(["health"]).env("SIGNET_ADDR", &address));
    assert_eq!(code, 1);
    let ca = site.path("ca.pem");
    assert_eq!(health(signet().args(["health"]).env("SIGNET_ADDR", &address).env("SIGNET_CACERT", ca)).0, 0);
    // `check` names the program that has the address.
    let (well, told) = checked(check(&site).env("SIGNET_LISTEN", free.to_string()));
    assert!(line(&told, "listen").1.contains("signet") && well, "{told:?}");
    served.terminate();
}

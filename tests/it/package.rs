//! The Debian package on a temporary copy of this machine: installed, started as its unit does, upgraded, purged.
//!
//! [`deb`] builds it from the `cargo deb` table in Cargo.toml and the program under test; [`machine`] is the copy.

mod deb;
mod machine;
mod units;

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use crate::notify::Heard;
use crate::serve::Served;
use deb::Staged;
use machine::Machine;

const UNIT: &str = "/usr/lib/systemd/system/signet.service";
const CONFIG: &str = "/etc/signet/signet.toml";
const EXAMPLE_CONFIG: &str = "/usr/share/doc/signet/signet.example.toml";
/// Environment file of the unit, for example for secrets.
const VARIABLES: &str = "/etc/default/signet";
/// Runs a command as the unit does: as the package's user, without capabilities.
const AS_SIGNET: &[&str] = &[
    "setpriv",
    "--reuid=signet",
    "--regid=signet",
    "--clear-groups",
    "--no-new-privs",
    "--bounding-set=-all",
    "--inh-caps=-all",
];
/// Maximum exposure by `systemd-analyze security`, in tenths; Debian 12 computes 12.
const EXPOSURE: &str = "20";

/// Starts the server with the unit's ExecStart line and waits until it is ready.
fn start(machine: &Machine) -> Served {
    let unit = machine.read(UNIT);
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let name = format!("signet-package-{}-{}", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed));
    let heard = Heard::at_abstract(&name);
    let variable = format!("NOTIFY_SOCKET=@{name}");
    let words: Vec<&str> =
        [variable.as_str()].into_iter().chain(AS_SIGNET.iter().copied()).chain(line.split(' ')).collect();
    let mut command = machine.command(&words);
    let served = Served::start(&mut command, &machine.log());
    assert_eq!(heard.next(), "READY=1");
    served
}

#[actix_web::test]
async fn the_package_is_installed_started_upgraded_and_purged() {
    let Some(machine) = Machine::start() else { return };
    let staged = Staged::new();
    // Files that a removed package leaves on the machine.
    let left = || machine.run(&["find", "/etc", "/usr", "/var", "/run", "-name", "*signet*"]);
    assert_eq!(left(), "");

    machine.install(&staged.package("0.1.0-1"));
    assert_eq!(machine.run(&["dpkg", "--verify", "signet"]), "", "every file is as it was packed");
    let folders = ["/etc/signet", "/var/lib/signet", "/var/log/signet", "/var/backups/signet", "/etc/signet/renew"];
    let modes = machine.run(&[&["stat", "-c", "%U:%G %a"], &folders[..]].concat());
    assert_eq!(modes, format!("root:signet 750\n{}root:root 700\n", "signet:signet 700\n".repeat(3)));
    // The operator's configuration is no file of the package, so that no upgrade asks about it and no purge removes it.
    let conffiles = machine.run(&["dpkg-query", "-W", "-f", "${Conffiles}", "signet"]);
    assert!(conffiles.contains(VARIABLES) && !conffiles.contains("/etc/signet/"), "{conffiles}");
    machine.run(&["test", "!", "-e", CONFIG]);
    let suggested = machine.run(&["dpkg-query", "-W", "-f", "${Suggests}", "signet"]);
    for name in ["curl", "jq", "openssl"] {
        assert!(suggested.split(", ").any(|other| other == name), "the pages use {name}: {suggested}");
    }
    assert!(machine.read(UNIT).contains(&format!("\nAssertPathExists={CONFIG}\n")));
    machine.run(&["cp", EXAMPLE_CONFIG, CONFIG]);
    let variables =
        machine.read(UNIT).lines().find_map(|line| line.strip_prefix("EnvironmentFile=-").map(str::to_owned));
    assert_eq!(variables.as_deref(), Some(VARIABLES));
    assert_eq!(machine.run(&["stat", "-c", "%U:%G %a", VARIABLES]), "root:signet 640\n", "it is for secrets");
    assert!(machine.read(VARIABLES).lines().all(|line| line.starts_with('#')), "nothing is set");
    machine.run(&["sed", "-i", "$aSIGNET_DATABASE_URL=\"edited\"", VARIABLES]);
    let check = [AS_SIGNET, &["signet", "check", "--config", CONFIG]].concat();
    let refused = |rule: &str| {
        let output = machine.command(&check).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(rule), "{error}");
    };
    refused("database_url (SIGNET_DATABASE_URL of /etc/default/signet): must not be given with data_dir");
    machine.run(&["chmod", "600", VARIABLES]);
    machine.run(&["sed", "-i", "s/^data_dir/# data_dir/", CONFIG]);
    refused("/etc/default/signet: cannot be read (permission denied)");
    machine.run(&["sed", "-i", "s/^# data_dir/data_dir/", CONFIG]);
    machine.run(&["sed", "-i", "s/^SIGNET_DATABASE_URL=.*/SIGNET_COMMIT_QUEUE=4096/", VARIABLES]);
    machine.run(&["chmod", "640", VARIABLES]);
    assert_eq!(machine.run(&["systemd-analyze", "verify", UNIT]), "");
    let exposure = ["security", "--offline=true", "--threshold", EXPOSURE, UNIT];
    machine.run(&[&["systemd-analyze"], &exposure[..]].concat());
    machine.run(&["bash", "-n", "/usr/share/bash-completion/completions/signet"]);
    let page = machine.run(&["sh", "-c", "zcat /usr/share/man/man1/signet-operator-backup.1.gz"]);
    assert!(page.contains(r"\-\-folder"), "{page}");

    machine.run(&["sed", "-i", "s/^listen = .*/listen = \"127.0.0.1:0\"  # edited/", CONFIG]);
    let init = machine.run(&[AS_SIGNET, &["signet", "operator", "init", "--config", CONFIG]].concat());
    let token = init.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    let served = start(&machine);
    let client = served.client(token);
    assert_eq!(client.post("sys/mounts/pki", json!({ "type": "pki" })).await.status, 204);
    let root = json!({ "common_name": "packaged", "key_type": "ec" });
    assert_eq!(client.post("pki/root/generate/internal", root).await.status, 200);
    let ca = client.get("pki/ca/pem").await.text;
    assert!(ca.contains("BEGIN CERTIFICATE"), "{ca}");

    machine.install(&staged.package("0.2.0-1"));
    assert_eq!(
        machine.run(&["dpkg-query", "-W", "-f", "${Status} ${Version}", "signet"]),
        "install ok installed 0.2.0-1"
    );
    assert_eq!(client.get("pki/ca/pem").await.text, ca, "the old program goes on until it is told to stop");
    served.terminate();
    assert!(machine.read(CONFIG).contains("# edited"), "the operator's configuration stays");
    assert!(machine.read(VARIABLES).contains("=4096"), "and the variables, for nobody else");
    assert_eq!(machine.run(&["stat", "-c", "%U:%G %a", VARIABLES]), "root:signet 640\n");
    let served = start(&machine);
    assert_eq!(served.client(token).get("pki/ca/pem").await.text, ca, "and so do the data");
    served.terminate();

    // Purging removes the program, but neither the configuration nor the data of a CA.
    let said = machine.run(&["dpkg", "--purge", "signet"]);
    for folder in ["/var/lib/signet", "/etc/signet"] {
        assert!(said.contains(&format!("{folder} is not empty and stays")), "{said}");
    }
    let kept = left();
    let kept: Vec<&str> = kept.lines().filter(|path| !path.starts_with("/var/lib/signet")).collect();
    assert_eq!(kept, ["/etc/signet", CONFIG]);
    assert!(machine.read(CONFIG).contains("# edited"));
    machine.run(&["test", "-s", "/var/lib/signet/seal.key"]);

    machine.run(&["rm", "-r", "/var/lib/signet"]);
    machine.install(&staged.package("0.2.0-1"));
    machine.run(&["dpkg", "--purge", "signet"]);
    assert_eq!(left(), format!("/etc/signet\n{CONFIG}\n"));
    machine.run(&["getent", "passwd", "signet"]);

    machine.run(&["rm", "-r", "/etc/signet"]);
    machine.install(&staged.package("0.2.0-1"));
    machine.run(&["dpkg", "--purge", "signet"]);
    assert_eq!(left(), "");
    assert!(!machine.read("/etc/passwd").contains("signet:"), "nothing belongs to the user any more");

    // The data folder on another disk: the symbolic link and its target belong to the operator.
    machine.run(&["mkdir", "-p", "/srv/elsewhere"]);
    machine.run(&["ln", "-s", "/srv/elsewhere", "/var/lib/signet"]);
    machine.install(&staged.package("0.2.0-1"));
    assert_eq!(machine.run(&["stat", "-c", "%U:%G %a", "/srv/elsewhere"]), "signet:signet 700\n");
    machine.run(&["dpkg", "--purge", "signet"]);
    assert_eq!(machine.run(&["readlink", "/var/lib/signet"]), "/srv/elsewhere\n");
    assert_eq!(left().trim(), "/var/lib/signet");
}

#[test]
fn packaged_program_is_stripped_and_links_its_debug_file() {
    let staged = Staged::new();
    let sections = |file: &str| staged.run(&["objdump", "--section-headers", file]);
    let program = sections("signet");
    assert!(!program.contains(".debug_line") && !program.contains(".symtab"), "{program}");
    assert!(sections("signet.debug").contains(".debug_line"));
    assert!(staged.run(&["objdump", "--dwarf=links", "signet"]).contains("signet.debug"));
}

//! The units of the package: valid, sandboxed like the server, disabled at first, and working for an installation by
//! `signet setup`. [`run_unit`] replaces systemd, which does not run on the test machine.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;

use super::deb::Staged;
use super::machine::Machine;
use super::{AS_SIGNET, CONFIG, EXPOSURE, VARIABLES, start};
use crate::crash::left_out;
use crate::support::wait_until;

const UNITS: &str = "/usr/lib/systemd/system";
const COPIES: &str = "/var/backups/signet";
/// Makes everything read-only except some folders, as `ProtectSystem=strict` and `ReadWritePaths=` do, and runs an
/// `ExecStart=` line.
const SANDBOX: &str = r#"for path in $1; do mount --bind "$path" "$path"; done
mount -o remount,bind,ro /
line=$2
shift 2
exec "$@" sh -c "exec $line""#;
/// Services other than the server, and where their hardening differs from the server's.
const SERVICES: [(&str, &[&str]); 4] = [
    ("signet-backup.service", &[]),
    ("signet-verify-backup.service", &[]),
    ("signet-status.service", &[]),
    (
        "signet-renew@.service",
        &[
            "CapabilityBoundingSet=",
            "CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER",
            "PrivateUsers=yes",
            "SystemCallFilter=@chown",
        ],
    ),
];
/// Maximum exposure of a service that keeps three capabilities of root.
const EXPOSURE_OF_RENEWAL: &str = "30";
const TIMERS: [&str; 3] = ["signet-backup.timer", "signet-verify-backup.timer", "signet-status.timer"];

fn installed() -> Option<Machine> {
    let machine = Machine::start()?;
    machine.install(&Staged::new().package("0.1.0-1"));
    Some(machine)
}

/// Runs `signet setup` with the embedded store and adds an audit file.
fn set_up(machine: &Machine) {
    machine.run(&["chmod", "770", "/etc/signet"]);
    let setup = ["signet", "setup", "--yes", "--config", CONFIG, "--data-dir", "/var/lib/signet"];
    let wanted = ["--listen", "127.0.0.1:0", "--domain", "example.test", "--role", "web"];
    machine.run(&[AS_SIGNET, &setup, &wanted].concat());
    machine.run(&["chmod", "750", "/etc/signet"]);
    let audit = r#"printf '[[audit]]\ntype = "file"\nfile_path = "/var/log/signet/audit.log"\n' >>"$0""#;
    machine.run(&["sh", "-ec", audit, CONFIG]);
}

fn values<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

fn variables(text: &str) -> impl Iterator<Item = (String, String)> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.to_owned(), value.trim_matches(['\'', '"']).to_owned()))
}

/// The ExecStart command of a service with its variables, user and capabilities, in a read-only file system.
fn run_unit(machine: &Machine, name: &str, instance: &str) -> Command {
    let unit = machine.read(&format!("{UNITS}/{name}")).replace("%i", instance);
    let mut environment: BTreeMap<String, String> =
        values(&unit, "Environment").into_iter().flat_map(variables).collect();
    for file in values(&unit, "EnvironmentFile") {
        environment.extend(variables(&machine.read(file.trim_start_matches('-'))));
    }
    let variables: Vec<String> = environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let writable: Vec<&str> = values(&unit, "ReadWritePaths")
        .into_iter()
        .flat_map(str::split_whitespace)
        .map(|path| path.trim_start_matches('-'))
        .collect();
    let writable = writable.join(" ");
    let kept: Vec<String> = values(&unit, "CapabilityBoundingSet")
        .into_iter()
        .flat_map(str::split_whitespace)
        .map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let bounding = format!("--bounding-set=-all{}", kept.concat());
    let as_root = ["setpriv", "--no-new-privs", &bounding, "--inh-caps=-all"];
    let user: &[&str] = if values(&unit, "User") == ["signet"] { AS_SIGNET } else { &as_root };
    let line = values(&unit, "ExecStart");
    assert_eq!(line.len(), 1, "{name}");
    let mut words: Vec<&str> = variables.iter().map(String::as_str).collect();
    words.extend(["unshare", "-m", "sh", "-ec", SANDBOX, name, &writable, line[0]]);
    words.extend(user);
    machine.command(&words)
}

/// Runs a service to its end. Returns whether it succeeded, and both outputs.
fn finish(machine: &Machine, name: &str) -> (bool, String) {
    let Output { status, stdout, stderr } = run_unit(machine, name, "").output().unwrap();
    (status.success(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

fn copies(machine: &Machine) -> Vec<String> {
    machine.run(&["ls", COPIES]).lines().map(str::to_owned).collect()
}

fn damage(machine: &Machine, file: &str) {
    let of = format!("of={file}");
    machine.run(&["dd", "if=/dev/urandom", &of, "bs=4096", "seek=8", "count=8", "conv=notrunc"]);
}

#[test]
fn package_units_are_valid_and_sandboxed_like_the_server() {
    let Some(machine) = installed() else { return };
    let text = |name: &str| machine.read(&format!("{UNITS}/{name}"));
    let all = machine.run(&["sh", "-c", &format!("ls -d {UNITS}/signet*")]);
    assert_eq!(all.lines().count(), 1 + SERVICES.len() + TIMERS.len(), "{all}");
    for unit in all.lines() {
        assert_eq!(machine.run(&["systemd-analyze", "verify", unit]), "", "{unit}");
    }
    let hardening = |name: &str| {
        let text = text(name);
        let (_, section) = text.split_once("\nNoNewPrivileges=").unwrap();
        section.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let of_server = hardening("signet.service");
    assert!(of_server.contains("ProtectSystem=strict") && of_server.len() > 20, "{of_server:?}");
    for (name, differences) in SERVICES {
        let own = hardening(name);
        let found: Vec<&str> =
            own.symmetric_difference(&of_server).filter(|line| !line.starts_with('#')).map(String::as_str).collect();
        assert_eq!(found, differences, "{name}");
        let threshold = if differences.is_empty() { EXPOSURE } else { EXPOSURE_OF_RENEWAL };
        let path = format!("{UNITS}/{name}");
        machine.run(&["systemd-analyze", "security", "--offline=true", "--threshold", threshold, &path]);
    }
}

#[test]
fn package_timers_are_disabled_at_first_and_after_removal() {
    let Some(machine) = installed() else { return };
    let instance = "signet-renew@web.service";
    for unit in [&TIMERS[..], &["signet.service", instance]].concat() {
        let output = machine.command(&["systemctl", "is-enabled", unit]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "disabled", "{unit}");
        machine.run(&["systemctl", "enable", unit]);
        machine.run(&["systemctl", "is-enabled", unit]);
    }
    let links = || machine.run(&["find", "/etc/systemd/system", "-name", "signet*"]);
    assert_eq!(links().lines().count(), TIMERS.len() + 2, "{}", links());
    machine.run(&["dpkg", "--remove", "signet"]);
    assert_eq!(links(), "");
}

#[test]
fn backup_service_prunes_old_copies_unless_the_new_one_is_bad() {
    let Some(machine) = installed() else { return };
    set_up(&machine);
    machine.run(&["sed", "-i", "s/^# BACKUP_KEEP=.*/BACKUP_KEEP=2/", VARIABLES]);
    let backup = || finish(&machine, "signet-backup.service");
    let verify = || finish(&machine, "signet-verify-backup.service");
    let (succeeded, text) = verify();
    assert!(!succeeded && text.contains("/var/backups/signet: holds no backup"), "{text}");

    let served = start(&machine);
    let mut made = Vec::new();
    for _ in 0..3 {
        let (succeeded, text) = backup();
        assert!(succeeded && text.contains(": ok") && !text.contains("WARN"), "{text}");
        made.extend(copies(&machine).last().cloned());
        std::thread::sleep(Duration::from_millis(1100));
    }
    assert_eq!(copies(&machine), made[1..], "two of three, and the newest");
    let newest = format!("{COPIES}/{}", made[2]);
    assert_eq!(machine.run(&["stat", "-c", "%U:%G %a", COPIES, &newest]), "signet:signet 700\nsignet:signet 600\n");
    let (succeeded, text) = verify();
    assert!(succeeded && text == format!("{newest}: ok\n"), "{text}");
    damage(&machine, &newest);
    let (succeeded, text) = verify();
    assert!(!succeeded && text.contains(&newest), "{text}");
    assert!(backup().0 && verify().0, "a new copy is good again");
    let before = copies(&machine);
    assert_eq!((before.len(), &before[0]), (2, &made[2]));
    served.terminate();

    damage(&machine, "/var/lib/signet/signet.db");
    std::thread::sleep(Duration::from_millis(1100));
    let (succeeded, text) = backup();
    assert!(!succeeded, "{text}");
    assert!(before.iter().all(|copy| copies(&machine).contains(copy)), "nothing is removed: {text}");
}

#[test]
fn backup_services_fail_with_advice_on_postgresql() {
    let Some(machine) = installed() else { return };
    set_up(&machine);
    machine.run(&["sed", "-i", "s/^data_dir/# data_dir/", CONFIG]);
    machine.run(&["sed", "-i", "$aSIGNET_DATABASE_URL=postgres://signet@127.0.0.1/signet", VARIABLES]);
    for (unit, advice) in [
        ("signet-backup.service", "copy it with pg_dump or pg_basebackup (docs/backup-postgresql.md)"),
        ("signet-verify-backup.service", "restore its last copy into a database of its own"),
    ] {
        let (succeeded, text) = finish(&machine, unit);
        assert!(!succeeded, "{unit}: {text}");
        assert!(text.contains("the store is a PostgreSQL database: ") && text.contains(advice), "{unit}: {text}");
    }
    assert_eq!(copies(&machine), [""; 0]);
}

#[test]
fn status_service_renews_its_token_and_fails_without_a_server() {
    let Some(machine) = installed() else { return };
    set_up(&machine);
    let served = start(&machine);
    let address = served.url("");
    machine.run(&["sed", "-i", &format!("$aSIGNET_ADDR={}", address.trim_end_matches('/')), VARIABLES]);
    let token = "/etc/signet/status-token";
    machine.run(&["install", "-m", "640", "-g", "signet", "/etc/signet/admin-token", token]);
    let (succeeded, text) = finish(&machine, "signet-status.service");
    assert!(succeeded && text.contains("nothing is wrong"), "{text}");
    let requests = machine.read("/var/log/signet/audit.log");
    assert!(requests.contains(r#""path":"auth/token/renew-self""#), "{requests}");
    served.terminate();
    let (succeeded, text) = finish(&machine, "signet-status.service");
    assert!(!succeeded, "{text}");
}

#[test]
fn renewal_service_replaces_a_certificate_that_is_due() {
    let Some(machine) = installed() else { return };
    set_up(&machine);
    let served = start(&machine);
    let address = served.url("");
    let address = address.trim_end_matches('/');
    let client = [&format!("SIGNET_ADDR={address}"), "SIGNET_CACERT=/etc/signet/root-ca.pem"];
    machine.run(&["install", "-d", "-m", "700", "/etc/ssl/web"]);
    machine.run(&["install", "-m", "600", "/etc/signet/admin-token", "/etc/signet/renew/web.token"]);
    let token = ["--token-file", "/etc/signet/renew/web.token"];
    let issue = ["signet", "issue", "www.example.test", "--mount", "pki", "--role", "web", "--out", "/etc/ssl/web"];
    machine.run(&[&client[..], &issue, &token].concat());
    let file = "/etc/ssl/web/www.example.test.pem";
    machine.run(&["chown", "signet:signet", file]);
    // Due at most 10 seconds after issue.
    let more = format!("--mount pki --role web --before 2591990s {} {} {file}", token[0], token[1]);
    let text = format!("{}\n{}\nRENEW='{more}'\n", client[0], client[1]);
    machine.run(&["sh", "-ec", r#"printf '%s' "$1" >/etc/signet/renew/web"#, "sh", &text]);

    let old = machine.read(file);
    let mut renewal = run_unit(&machine, "signet-renew@.service", "web").spawn().unwrap();
    wait_until("a renewal", || {
        assert!(renewal.try_wait().unwrap().is_none(), "it has ended");
        machine.read(file) != old
    });
    rustix::process::kill_process(rustix::process::Pid::from_child(&renewal), Signal::TERM).unwrap();
    assert!(renewal.wait().unwrap().success());
    machine.run(&["openssl", "verify", "-x509_strict", "-CAfile", "/etc/ssl/web/ca.pem", "-untrusted", file, file]);
    assert_eq!(machine.run(&["stat", "-c", "%U", file]), "signet\n", "the owner stays");
    served.terminate();
}

#[test]
fn logrotate_rotates_audit_file_and_server_reopens_it() {
    let Some(machine) = installed() else { return };
    if !machine.command(&["logrotate", "--version"]).output().unwrap().status.success() {
        left_out("there is no logrotate");
        return;
    }
    set_up(&machine);
    let served = start(&machine);
    let log = |name: &str| machine.read(&format!("/var/log/signet/{name}"));
    let client = [&format!("SIGNET_ADDR={}", served.url("")), "SIGNET_CACERT=/etc/signet/root-ca.pem"];
    let issue = |name: &str| {
        let words = ["signet", "issue", name, "--mount", "pki", "--role", "web", "--out", "/tmp"];
        machine.run(&[&client[..], &words, &["--token-file", "/etc/signet/admin-token"]].concat());
    };
    issue("first.example.test");
    let before = log("audit.log");
    assert!(before.contains("pki/sign/web"), "{before}");

    let rules = "/etc/logrotate.d/signet";
    let tried = machine.run(&["logrotate", "--debug", rules]);
    assert!(!tried.contains("error:") && tried.contains("/var/log/signet/audit.log"), "{tried}");
    // Replaces `systemctl` with a signal to the server of this test.
    let systemctl =
        format!("#!/bin/sh\n[ \"$*\" = 'try-reload-or-restart signet.service' ] && exec kill -HUP {}\n", served.pid());
    machine.run(&["mkdir", "-p", "/run/systemd/system"]);
    machine.run(&["sh", "-ec", r#"printf '%s' "$1" >/usr/bin/systemctl"#, "sh", &systemctl]);
    machine.run(&["logrotate", "--force", "--state", "/tmp/state", rules]);
    let rotated = machine.run(&["sh", "-c", "cd /var/log/signet && ls audit.log-*"]);
    let rotated = rotated.trim();
    wait_until("a new file", || machine.run(&["ls", "/var/log/signet"]).lines().count() >= 2);
    issue("second.example.test");
    assert!(log(rotated).starts_with(&before), "nothing of it is lost");
    let old = log(rotated).lines().count();
    assert!(log("audit.log").contains("pki/sign/web"), "{}", log("audit.log"));
    issue("third.example.test");
    assert_eq!(log(rotated).lines().count(), old, "it grows no more");
    let modes = machine.run(&["sh", "-c", "stat -c '%U %a' /var/log/signet/*"]);
    assert!(modes.lines().all(|mode| mode == "signet 600"), "{modes}");

    // Without systemd, then without a server. The name of a rotated file has the second.
    machine.run(&["rm", "-r", "/run/systemd"]);
    let rotate = ["sh", "-ec", "sleep 1.1; logrotate --force --state /tmp/state \"$0\"", rules];
    machine.run(&rotate);
    wait_until("a new file", || machine.run(&["ls", "/var/log/signet"]).lines().any(|name| name == "audit.log"));
    issue("fourth.example.test");
    assert!(log("audit.log").contains("pki/sign/web"), "{}", log("audit.log"));
    served.terminate();
    machine.run(&rotate);
}

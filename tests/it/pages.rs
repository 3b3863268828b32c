//! Runs every command on the pages of `docs/`, in order.
//!
//! A page's `sh` blocks are one script, run under `bash -eu` with the program under test, SoftHSM and PostgreSQL
//! ([`stage`]). Blocks marked `sh not-run: REASON` are not run, for one of [`REASONS`], and are counted in [`NOT_RUN`].
//! Other blocks are not commands ([`page`]). A new page fails until [`run_pages`] lists it.

mod figures;
mod page;
pub(crate) mod stage;

use std::collections::{BTreeMap, BTreeSet};

use page::Use;
use stage::Stage;

const REASONS: &[(&str, &str)] = &[
    ("build", "an optimised build takes minutes; the package's own tests make one of the program under test"),
    ("package", "the package is installed by tests of its own, on a machine that is thrown away"),
    ("network", "it asks somebody elsewhere"),
    ("machine", "it takes another machine; the setup's own tests have another node"),
    ("cloud", "it takes a machine of the cloud; the method's tests have a provider of their own"),
    ("vendor", "the program of another vendor; what it sends is replayed by the tests of clients"),
    ("other way", "the page goes another way; a page of its own goes this one"),
];

const NOT_RUN: &[(&str, &str, usize)] = &[
    ("backup-embedded", "package", 1),
    ("client-commands", "package", 1),
    ("coming-from", "vendor", 1),
    ("getting-started", "other way", 2),
    ("logins", "cloud", 1),
    ("installation", "build", 1),
    ("installation", "machine", 2),
    ("installation", "network", 1),
    ("installation", "package", 2),
    ("performance", "build", 3),
    ("performance", "vendor", 1),
    ("production", "other way", 1),
    ("production", "package", 3),
];

/// Defines a test for each page: the script that prepares it, and lines that its commands must print.
macro_rules! run_pages {
    ($($test:ident $name:literal after $before:expr, writes $lines:expr;)*) => {
        const PAGES: &[&str] = &[$($name),*];
        $(#[test]
        fn $test() {
            run($name, &$before, &$lines);
        })*
    };
}

const NOTHING: &str = "";

run_pages! {
    the_index_of_pages "README" after NOTHING, writes [];
    the_page_about_the_audit "audit" after installed("", AUDITED), writes [r#""path":"pki/issue/listener""#];
    the_page_about_copies_of_the_embedded_store "backup-embedded" after installed("", ""),
        writes ["nothing is wrong", "bytes, from a copy of 20", "the store was restored on 20"];
    the_page_about_copies_of_postgresql "backup-postgresql" after format!("{DATABASE}{}", installed(POSTGRES, "")),
        writes ["the database: ok", "CRL numbers continue", "nothing is wrong"];
    the_page_about_the_commands_of_clients "client-commands" after installed("--role web", ""),
        writes ["nothing is wrong", "requested by token-administrator"];
    the_page_about_coming_from_elsewhere "coming-from" after NOTHING, writes [
        "web.pem: OK", "expiration is a number", "and of the contract a string", "the same role", "www.acme.test.pem: OK",
        "next/www.acme.test.pem: OK", "Serial Number: 0BAD", "no other engine", "no other login", "no namespaces",
    ];
    the_page_about_getting_started "getting-started" after NOTHING, writes ["www.example.test.pem: OK"];
    the_page_about_devices "hsm" after NOTHING, writes [
        "www.example.test.pem: OK", "signet_signer_sessions_open", "sealed by: pkcs11", "seal.example.test.pem: OK",
    ];
    the_page_about_incidents "incidents" after NOTHING, writes [];
    the_page_about_installation "installation" after NOTHING, writes [];
    the_page_about_keys_at_rest "keys-at-rest" after NOTHING, writes [];
    the_page_about_logins "logins" after NOTHING, writes [
        "the token is revoked", "the role allows other policies only", "unwrapped once, and not again",
        "a secret id for one use is used up", "another project is refused", "does not match", "invalid role or secret ID",
        "the entity is disabled, and its tokens with it", "job.example.test.pem: OK",
        "web.example.test.pem: OK", "last.example.test.pem: OK",
    ];
    the_page_about_monitoring "monitoring" after NOTHING, writes [];
    the_page_about_moving_to_postgresql "moving-to-postgresql" after installed("", ""), writes ["nothing is wrong"];
    the_page_about_nodes "nodes" after NOTHING, writes [];
    the_page_about_performance "performance" after NOTHING, writes [];
    the_page_about_postgresql "postgresql" after NOTHING, writes [];
    the_page_about_production "production" after NOTHING, writes [
        "nothing is wrong", "anything else: 404", "signet_store_up 1", "www.example.test.pem: OK",
    ];
    the_page_about_projects "projects" after NOTHING, writes [
        "the team has no access to change it", "the project has changed since", "a project with a workspace in it stays",
        "the team's token has ended",
    ];
    the_page_about_requests_that_are_sent_again "retries" after installed("--role web", ""), writes ["one certificate: "];
    the_page_about_revocation "revocation" after NOTHING, writes [
        "certificate revoked", "Cert Status: revoked", "Cert Status: good", "web: revoked", "api: revoked", "old: revoked",
        "lost: revoked", "new.example.test.pem: OK", "Serial Number: 77", "by the delta list",
    ];
    the_page_about_roles_and_policies "roles-and-policies" after NOTHING, writes [
        "www.example.test.pem: OK", "another domain is refused", "a wildcard is refused", "it is not for a server",
        "another lifetime than the policy's is refused", "it revokes nothing", "it issues nothing", "denied: ", "allowed: ",
        "another namespace is refused", "another team's role is refused", "a disabled entity is refused", "429",
        "certificate revoked", "www.other.test not allowed by this role", "*.example.test not allowed by this role",
        "job.bank.example.test not allowed by this role",
    ];
    the_page_about_security "security-model" after NOTHING, writes [];
    the_page_about_sizing "sizing-and-limits" after NOTHING, writes [];
}

const POSTGRES: &str = r#"--database-url "postgres:///signet?host=/run/postgresql&user=signet""#;

const DATABASE: &str = "runuser -u postgres -- createdb --owner signet --encoding UTF8 --template template0 signet\n";

/// Writes a configuration with an audit file.
const AUDITED: &str = r#"printf '[[audit]]\ntype = "file"\nfile_path = "/var/log/signet/audit.log"\n'"#;

/// The prerequisite of pages for operators: a running installation and its administrator's shell. `flags` are added to
/// the setup, the output of `more` to the configuration.
fn installed(flags: &str, more: &str) -> String {
    let store = if flags.contains("--database-url") { "" } else { "--data-dir /var/lib/signet" };
    format!(
        r#"
runuser -u signet -- signet setup --config /etc/signet/signet.toml {store} --listen 127.0.0.1:8200 --domain example.test --yes {flags} >setup.log
{more} >> /etc/signet/signet.toml
systemctl start signet
export SIGNET_ADDR=https://127.0.0.1:8200 SIGNET_CACERT=/etc/signet/root-ca.pem CURL_CA_BUNDLE=/etc/signet/root-ca.pem
export SIGNET_TOKEN=$(cat /etc/signet/admin-token)
curl -sS --fail-with-body -o /dev/null -H @<(printf "X-Service-Token: %s" "$SIGNET_TOKEN") $SIGNET_ADDR/v1/pki/issue/listener \
    -d '{{"common_name": "localhost"}}'
"#
    )
}

fn blocks(name: &str) -> Vec<page::Block> {
    page::blocks(&page::text(name)).unwrap_or_else(|problem| panic!("docs/{name}.md:{problem}"))
}

fn run(name: &str, before: &str, lines: &[&str]) {
    let commands = blocks(name).into_iter().filter(|block| block.is == Use::Run);
    let script: String = commands.map(|block| format!("AT={}\n{}", block.line, block.text)).collect();
    let out = Stage::new().run(&format!("{before}\n{script}"));
    for line in lines {
        assert!(out.lines().any(|written| written.contains(line)), "docs/{name}.md wrote no {line:?}: {out}");
    }
}

const QUESTIONS: [&str; 8] = [
    "signet issue ",
    "signet renew ",
    "signet revoke ",
    "signet status",
    "signet who ",
    "signet explain ",
    "signet import ",
    "$SIGNET_ADDR",
];
/// Lines that set the server's address, or end the script without one.
const SERVERS: [&str; 2] = ["export SIGNET_ADDR=", ": \"${SIGNET_ADDR:?"];

#[test]
fn pages_set_the_server_address_and_fail_without_it() {
    for name in page::names() {
        let run: Vec<_> = blocks(&name).into_iter().filter(|block| block.is == Use::Run).collect();
        let lines = run.iter().flat_map(|block| block.text.lines()).map(str::trim_start);
        let first = lines.clone().position(|line| QUESTIONS.iter().any(|question| line.contains(question)));
        let says = lines.clone().position(|line| SERVERS.iter().any(|server| line.starts_with(server)));
        let Some(first) = first else { continue };
        assert!(says.is_some_and(|says| says <= first), "docs/{name}.md asks before it says which server");
        for guard in lines.filter(|line| line.starts_with(SERVERS[1])) {
            let script = format!("{guard}\necho went on");
            let output = crate::process::bash(&script).env_remove("SIGNET_ADDR").output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && output.stdout.is_empty(), "docs/{name}.md: {guard}");
            assert!(text.contains("SIGNET_ADDR: is not set"), "docs/{name}.md: {text}");
        }
    }
}

#[test]
fn every_page_is_run_and_skipped_blocks_have_a_known_reason() {
    let names = page::names();
    assert_eq!(names.iter().map(String::as_str).collect::<BTreeSet<_>>(), PAGES.iter().copied().collect());
    let mut found = BTreeMap::new();
    for name in &names {
        for block in blocks(name) {
            if let Use::NotRun(reason) = block.is {
                assert!(REASONS.iter().any(|(known, _)| *known == reason), "docs/{name}.md:{}: {reason}", block.line);
                *found.entry((name.clone(), reason)).or_insert(0) += 1;
            }
        }
    }
    let told = NOT_RUN.iter().map(|(page, reason, blocks)| (((*page).to_owned(), (*reason).to_owned()), *blocks));
    assert_eq!(found, told.collect());
}

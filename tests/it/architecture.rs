//! Holds the directions between modules, the places of libraries, and the size of files.
//!
//! Who wants a new direction adds it to the table, where a reviewer sees it.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, sources};

/// Which modules each module may name. Each names only modules above it, so there are no circles.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("secret", &[]),
    ("random", &[]),
    ("clock", &["error"]),
    ("documents", &["random"]),
    ("telemetry", &["error"]),
    ("fields", &["clock", "error", "secret"]),
    ("x509", &["clock", "error", "random"]),
    ("keys", &["documents", "error", "random", "secret", "telemetry", "x509"]),
    ("auth", &["clock", "documents", "error", "fields", "random", "telemetry"]),
    ("pki", &["clock", "documents", "error", "fields", "keys", "random", "secret", "telemetry", "x509"]),
    ("nodes", &["auth", "clock", "documents", "error", "pki", "telemetry"]),
    ("projects", &["clock", "error", "random", "secret", "telemetry"]),
    (
        "storage",
        &["auth", "clock", "documents", "error", "nodes", "pki", "projects", "random", "secret", "telemetry", "x509"],
    ),
    (
        "http",
        &[
            "auth",
            "clock",
            "documents",
            "error",
            "fields",
            "nodes",
            "pki",
            "projects",
            "random",
            "secret",
            "telemetry",
            "x509",
        ],
    ),
    ("config", &["error", "fields", "http", "pki", "secret", "telemetry"]),
    (
        "server",
        &[
            "auth",
            "clock",
            "config",
            "documents",
            "error",
            "fields",
            "http",
            "nodes",
            "pki",
            "projects",
            "random",
            "secret",
            "storage",
            "telemetry",
            "x509",
        ],
    ),
];

/// Libraries, and the places (begins of paths) that may name them.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("actix_web", &["http", "server.rs", "server/expect.rs", "server/listener.rs"]),
    ("actix_http", &["server/expect.rs", "server/listener.rs"]),
    ("actix_service", &["server/expect.rs", "server/listener.rs"]),
    ("flate2", &["http/encoding.rs"]),
    ("actix_rt", &["server.rs", "server/listener.rs", "cli"]),
    ("rusqlite", &["storage/embedded"]),
    ("tokio_postgres", &["storage/postgres"]),
    ("deadpool_postgres", &["storage/postgres"]),
    ("p224", &["keys/local", "x509/public_key.rs"]),
    ("clap", &["cli", "main.rs"]),
    ("reqwest", &["cli/issue.rs", "pki/external_policy/call.rs"]),
    ("rustls", &["server/tls.rs", "server/listener.rs", "pki/external_policy/tls.rs"]),
    ("tokio_rustls", &["server/listener.rs", "server/stream.rs"]),
    ("metrics_exporter_prometheus", &["telemetry"]),
    ("tracing_subscriber", &["telemetry"]),
];

/// Longest file without its tests, lines.
const LONGEST: usize = 600;

/// The top-level module of a file; `""` for the command line.
fn module(path: &str) -> &str {
    match path.split(['/', '.']).next().unwrap() {
        "lib" | "main" | "cli" => "",
        module => module,
    }
}

/// The identifiers that follow `before` in code, where `before` begins a path.
fn after<'c>(code: &'c str, before: &'c str) -> impl Iterator<Item = &'c str> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(before).filter_map(move |(at, _)| {
        let begins = !code[..at].ends_with(|c: char| word(c) || c == ':');
        let rest = &code[at + before.len()..];
        begins.then(|| &rest[..rest.find(|c| !word(c)).unwrap_or(rest.len())])
    })
}

/// Whether code names a library.
fn names(code: &str, library: &str) -> bool {
    after(code, &format!("{library}::")).next().is_some()
}

fn violations(rule: impl Fn(&Source) -> Vec<String>) -> Vec<String> {
    let of = |source: &Source| rule(source).into_iter().map(|v| format!("{}: {v}", source.path)).collect::<Vec<_>>();
    sources().iter().flat_map(of).collect()
}

#[test]
fn modules_name_only_what_the_table_grants_them() {
    let table: BTreeMap<&str, &[&str]> = DIRECTIONS.iter().copied().collect();
    let found = violations(|source| {
        let own = module(&source.path);
        let Some(granted) = table.get(own) else {
            return if own.is_empty() { vec![] } else { vec!["a module without directions".to_owned()] };
        };
        let named: BTreeSet<&str> = after(&source.code, "crate::").collect();
        let wrong = named.into_iter().filter(|name| *name != own && !granted.contains(name));
        wrong.map(|name| format!("names crate::{name}")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_table_has_no_circles() {
    let mut above = BTreeSet::new();
    for (module, granted) in DIRECTIONS {
        for other in *granted {
            assert!(above.contains(other), "{module} names {other}, which is not above it");
        }
        assert!(above.insert(*module), "{module} is there twice");
    }
}

#[test]
fn nobody_climbs_to_the_root_of_the_crate_or_groups_its_modules() {
    let found = violations(|source| {
        let depth = source.path.split('/').count();
        let climbs = source.code.contains(&"super::".repeat(depth)) && !module(&source.path).is_empty();
        // A list of modules behind one `crate::` would hide from this test.
        let groups = source.code.contains("crate::{");
        [(climbs, "super:: reaches the root"), (groups, "use crate::{…}")]
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, what)| what.to_owned())
            .collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn storage_knows_domains_by_their_store_traits_only() {
    let found = violations(|source| {
        if module(&source.path) != "storage" {
            return vec![];
        }
        let named = ["crate::pki::", "crate::auth::", "crate::projects::"]
            .into_iter()
            .flat_map(|domain| after(&source.code, domain));
        named.filter(|name| *name != "store").map(|name| format!("names {name} of a domain")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn libraries_stay_in_their_places() {
    let found = violations(|source| {
        let elsewhere = |places: &[&str]| !places.iter().any(|place| source.path.starts_with(place));
        let mut wrong: Vec<String> = LIBRARIES
            .iter()
            .filter(|(library, places)| names(&source.code, library) && elsewhere(places))
            .map(|(library, _)| format!("names {library}"))
            .collect();
        let is_actor = source.path.ends_with("/actor.rs") || source.path == "server.rs";
        if names(&source.code, "actix") && !is_actor {
            wrong.push("names actix outside an actor".to_owned());
        }
        wrong
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let found = violations(|source| {
        let lines = source.text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        let mut wrong = Vec::new();
        if lines > LONGEST {
            wrong.push(format!("{lines} lines without tests"));
        }
        if !source.text.starts_with("//! ") {
            wrong.push("no module documentation".to_owned());
        }
        wrong
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_architecture_page_is_short_and_names_every_module() {
    let sources = sources();
    let lib = sources.iter().find(|source| source.path == "lib.rs").unwrap();
    let (page, _) = lib.text.split_once("\n\npub mod ").unwrap();
    assert!(page.lines().count() <= 150);
    for module in lib.code.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')) {
        assert!(page.contains(module), "{module}");
    }
}

#[test]
fn nothing_is_left_to_do_and_nothing_panics_for_want_of_care() {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), "todo!", "unimplemented!", "dbg!", ".unwrap()"];
    let found = violations(|source| {
        let in_code = words.iter().filter(|word| source.code.contains(**word));
        let in_comments = words[..2].iter().filter(|word| source.text.contains(**word));
        in_code.chain(in_comments).map(|word| format!("has {word}")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn these_tests_see_what_they_look_for() {
    let code =
        "use crate::http::x;\nlet a = signet_crate::no;\nactix_web::y;\nmyactix::z;\nfn f() -> crate::pki::View {}";
    assert_eq!(after(code, "crate::").collect::<Vec<_>>(), ["http", "pki"]);
    assert!(names(code, "actix_web") && !names(code, "actix"));
    assert_eq!(
        [module("pki/names/uri.rs"), module("pki.rs"), module("cli/dev.rs"), module("main.rs")],
        ["pki", "pki", "", ""]
    );
}

//! Enforces the directions between modules, the modules that may use a library, and the size of files.
//!
//! A new direction is added to the table, where a reviewer sees it.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, sources};

/// The modules that each module may name: only modules above it in the table, so there are no cycles.
const DIRECTIONS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("secret", &[]),
    ("derived_values", &[]),
    ("random", &[]),
    ("caller_network", &[]),
    ("users", &[]),
    ("files", &[]),
    ("clock", &["error"]),
    ("documents", &["error", "random"]),
    ("telemetry", &["error"]),
    ("rationing", &["clock", "error", "telemetry"]),
    ("sql", &["clock", "error"]),
    ("templates", &["error"]),
    ("fields", &["clock", "error", "secret"]),
    ("x509", &["clock", "error", "random"]),
    ("tls", &["error", "secret", "x509"]),
    ("jose", &["x509"]),
    ("outbound", &["error", "random", "rationing", "secret", "tls", "x509"]),
    (
        "keys",
        &["clock", "documents", "error", "fields", "outbound", "random", "rationing", "secret", "telemetry", "x509"],
    ),
    ("keyring", &["clock", "documents", "error", "telemetry"]),
    (
        "auth",
        &[
            "caller_network",
            "clock",
            "derived_values",
            "documents",
            "error",
            "fields",
            "jose",
            "outbound",
            "random",
            "rationing",
            "secret",
            "telemetry",
            "templates",
            "x509",
        ],
    ),
    ("audit", &["auth", "clock", "derived_values", "error", "fields", "secret", "telemetry", "users"]),
    (
        "pki",
        &[
            "clock",
            "derived_values",
            "documents",
            "error",
            "fields",
            "keys",
            "outbound",
            "random",
            "rationing",
            "secret",
            "telemetry",
            "templates",
            "tls",
            "x509",
        ],
    ),
    ("mounts", &["auth", "documents", "error", "fields", "keys", "pki", "telemetry", "x509"]),
    ("nodes", &["clock", "documents", "error", "mounts", "telemetry"]),
    ("projects", &["clock", "error", "random", "rationing", "secret", "sql", "telemetry"]),
    (
        "storage",
        &[
            "auth",
            "clock",
            "documents",
            "error",
            "files",
            "keyring",
            "keys",
            "nodes",
            "pki",
            "projects",
            "random",
            "rationing",
            "secret",
            "sql",
            "telemetry",
            "tls",
            "x509",
        ],
    ),
    (
        "http",
        &[
            "audit",
            "auth",
            "caller_network",
            "clock",
            "documents",
            "error",
            "fields",
            "keyring",
            "keys",
            "mounts",
            "nodes",
            "pki",
            "projects",
            "random",
            "rationing",
            "secret",
            "telemetry",
            "x509",
        ],
    ),
    ("config", &["audit", "auth", "error", "fields", "http", "keys", "outbound", "pki", "secret", "telemetry"]),
    (
        "server",
        &[
            "audit",
            "auth",
            "caller_network",
            "clock",
            "config",
            "documents",
            "error",
            "fields",
            "files",
            "http",
            "keyring",
            "keys",
            "mounts",
            "nodes",
            "pki",
            "projects",
            "random",
            "rationing",
            "secret",
            "storage",
            "telemetry",
            "tls",
            "x509",
        ],
    ),
];

/// The parts of `pki` that each part of it may name: only parts above it in the table, so there are no cycles.
const FLOORS: &[(&str, &[&str])] = &[
    ("store", &[]),
    ("serials", &[]),
    ("values", &[]),
    ("constraints", &[]),
    ("policy_engine", &[]),
    ("compromised", &["store", "values"]),
    ("mount", &["constraints", "policy_engine", "store", "values"]),
    ("check", &["constraints", "mount", "values"]),
    ("engine_deps", &["compromised", "serials", "store"]),
    ("crl", &["check", "mount", "store", "values"]),
    ("issue", &["check", "engine_deps", "mount", "policy_engine", "store", "values"]),
    ("actor", &["check", "crl", "engine_deps", "issue", "mount", "store"]),
    ("engine", &["actor", "compromised", "crl", "engine_deps", "mount", "serials", "store"]),
    ("revocation", &["actor", "check", "compromised", "crl", "engine", "mount", "store"]),
    ("tidy", &["actor", "engine", "mount", "store"]),
    ("ca", &["actor", "check", "engine", "mount", "policy_engine", "revocation", "store", "values"]),
];

/// Libraries, and the path prefixes that may name them.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("actix_web", &["http", "server.rs", "server/expect.rs", "server/listener"]),
    ("actix_http", &["server/expect.rs", "server/listener", "server/http2"]),
    ("actix_service", &["server/expect.rs", "server/listener.rs", "server/http2"]),
    ("h2", &["server/http2"]),
    ("http_types", &["server/http2"]),
    ("flate2", &["http/encoding.rs"]),
    ("actix_rt", &["server.rs", "server/listener.rs", "cli"]),
    ("rusqlite", &["storage/embedded"]),
    ("tokio_postgres", &["storage/postgres"]),
    ("deadpool_postgres", &["storage/postgres"]),
    ("p224", &["keys/local", "x509/public_key.rs"]),
    ("cryptoki", &["keys/pkcs11"]),
    ("sha3", &["keys/test_sign.rs"]),
    ("clap", &["cli", "main.rs"]),
    ("clap_complete", &["cli"]),
    ("reqwest", &["cli/client.rs", "cli/setup/api.rs", "outbound", "pki/policy_engine.rs"]),
    ("aws_config", &["keys/cloudakms"]),
    ("aws_credential_types", &["keys/cloudakms"]),
    ("aws_sigv4", &["keys/cloudakms"]),
    ("aws_smithy_http_client", &["keys/cloudakms"]),
    (
        "rustls",
        &[
            "cli/client.rs",
            "server/tls.rs",
            "server/listener",
            "pki/policy_engine",
            "storage/postgres/tls.rs",
            "tls.rs",
        ],
    ),
    ("rustls_native_certs", &["storage/postgres/tls.rs"]),
    ("tokio_rustls", &["server/listener/handshake.rs", "server/stream.rs", "storage/postgres/tls.rs"]),
    ("metrics_exporter_prometheus", &["telemetry"]),
    ("tracing_subscriber", &["telemetry"]),
];

/// Types of the HTTP layer, and the path prefixes in `pki` that may name them nevertheless. The domain takes and
/// returns its own types.
const WIRE_WORDS: &[(&str, &[&str])] = &[
    ("Fields", &[]),
    (
        "serde_json",
        &[
            // The protocol to the external policy engine.
            "pki/issue/external_policy/wire.rs",
            "pki/compromised.rs",
            "pki/issue/side_effects.rs",
            "pki/mount/role/policies.rs",
            "pki/mount/view.rs",
            "pki/tidy/report.rs",
        ],
    ),
    ("PartlySecret", &["pki/mount/view.rs"]),
    ("RawValue", &[]),
    ("http", &[]),
];

/// Maximum lines of a file without its tests.
const MAX_LINES_PER_FILE: usize = 600;

/// The top-level module of a file; `""` for the command line.
fn module(path: &str) -> &str {
    match path.split(['/', '.']).next().unwrap() {
        "lib" | "main" | "cli" => "",
        module => module,
    }
}

/// The identifiers that follow `before` where `before` starts a path.
fn after<'c>(code: &'c str, before: &'c str) -> impl Iterator<Item = &'c str> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(before).filter_map(move |(at, _)| {
        let begins = !code[..at].ends_with(|c: char| word(c) || c == ':');
        let rest = &code[at + before.len()..];
        begins.then(|| &rest[..rest.find(|c| !word(c)).unwrap_or(rest.len())])
    })
}

fn names(code: &str, library: &str) -> bool {
    after(code, &format!("{library}::")).next().is_some()
}

fn violations(rule: impl Fn(&Source) -> Vec<String>) -> Vec<String> {
    let of = |source: &Source| rule(source).into_iter().map(|v| format!("{}: {v}", source.path)).collect::<Vec<_>>();
    sources().iter().flat_map(of).collect()
}

#[test]
fn modules_use_only_allowed_modules() {
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
fn module_tables_have_no_cycles() {
    for table in [DIRECTIONS, FLOORS] {
        let mut above = BTreeSet::new();
        for (module, granted) in table {
            for other in *granted {
                assert!(above.contains(other), "{module} names {other}, which is not above it");
            }
            assert!(above.insert(*module), "{module} is there twice");
        }
    }
}

#[test]
fn pki_parts_use_only_allowed_parts() {
    let table: BTreeMap<&str, &[&str]> = FLOORS.iter().copied().collect();
    let found = violations(|source| {
        let Some(own) = source.path.strip_prefix("pki/").map(module) else { return vec![] };
        let Some(granted) = table.get(own) else { return vec!["a part of pki without a floor".to_owned()] };
        let wrong = parts_of_pki(source).into_iter().filter(|part| part != own && !granted.contains(&part.as_str()));
        // A name that is not a part is an item of `pki.rs`, which every part may use.
        wrong.map(|part| format!("names {part} of pki")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn pki_floors_cover_exactly_the_existing_parts() {
    let parts: BTreeSet<String> = sources()
        .iter()
        .filter_map(|source| source.path.strip_prefix("pki/").map(|path| module(path).to_owned()))
        .collect();
    assert_eq!(parts, FLOORS.iter().map(|(part, _)| (*part).to_owned()).collect());
}

#[test]
fn pki_uses_no_wire_types() {
    let found = violations(|source| {
        if module(&source.path) != "pki" {
            return vec![];
        }
        let granted = |places: &[&str]| places.iter().any(|place| source.path.starts_with(place));
        let wrong = WIRE_WORDS.iter().filter(|(word, places)| has_word(&source.code, word) && !granted(places));
        wrong.map(|(word, _)| format!("names {word}")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// `true` if code contains an identifier outside string literals.
fn has_word(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let outside = |line: &str| line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    code.lines().any(|line| outside(line).split(|c| !part(c)).any(|found| found == word))
}

/// The parts of `pki` that a file below it names, by paths from the crate root or by `super`.
fn parts_of_pki(source: &Source) -> BTreeSet<String> {
    // For `pki/mount/view.rs`: `super` is `mount`, `super::super` is `pki`.
    let climb = "super::".repeat(source.path.split('/').count() - 1);
    let mut parts = BTreeSet::new();
    for before in [climb.as_str(), "crate::pki::"] {
        for (at, _) in source.code.match_indices(before) {
            let rest = &source.code[at + before.len()..];
            let begins = !source.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            if begins && rest.starts_with('{') {
                parts.extend(heads(rest).into_iter().map(str::to_owned));
            }
        }
        if [";", " as "].iter().any(|end| source.code.contains(&format!("{}{end}", before.trim_end_matches(':')))) {
            parts.insert("all".to_owned());
        }
        parts.extend(after(&source.code, before).filter(|part| !part.is_empty()).map(str::to_owned));
    }
    parts
}

/// The first identifiers of the paths in a group that begins with `{`.
fn heads(list: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut begin = 1;
    let mut found = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (c == ',' && depth == 1) || depth == 0 {
            let path = list[begin..at].trim();
            found.extend(path.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|head| !head.is_empty()));
            begin = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

#[test]
fn modules_use_no_super_path_to_root_and_no_grouped_use() {
    let found = violations(|source| {
        let depth = source.path.split('/').count();
        let climbs = source.code.contains(&"super::".repeat(depth)) && !module(&source.path).is_empty();
        // A group behind one `crate::` would escape these checks.
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
fn storage_uses_only_store_traits_of_domains() {
    let found = violations(|source| {
        if module(&source.path) != "storage" {
            return vec![];
        }
        let named = ["crate::pki::", "crate::auth::", "crate::projects::", "crate::keys::", "crate::keyring::"]
            .into_iter()
            .flat_map(|domain| after(&source.code, domain));
        named.filter(|name| *name != "store").map(|name| format!("names {name} of a domain")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn only_one_module_opens_and_closes_mounts() {
    let life = [
        ".open_new(",
        ".close_others(",
        "engine.open(",
        "engine.close(",
        "pki.open(",
        "pki.close(",
        ".mount_enable(",
        ".mount_disable(",
        ".auth_enable(",
        ".auth_disable(",
        ".mount_move(",
    ];
    let found = violations(|source| {
        let elsewhere = !["mounts", "auth", "pki"].contains(&module(&source.path));
        let named = life.iter().filter(|call| elsewhere && source.code.contains(**call));
        named.map(|call| format!("calls {call}…)")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn libraries_are_used_only_in_allowed_modules() {
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
fn files_are_short_and_have_module_documentation() {
    let found = violations(|source| {
        let lines = source.text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        let mut wrong = Vec::new();
        if lines > MAX_LINES_PER_FILE {
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
fn source_has_no_todo_and_no_careless_panic() {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), "todo!", "unimplemented!", "dbg!", ".unwrap()"];
    let found = violations(|source| {
        let in_code = words.iter().filter(|word| source.code.contains(**word));
        let in_comments = words[..2].iter().filter(|word| source.text.contains(**word));
        in_code.chain(in_comments).map(|word| format!("has {word}")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn architecture_checks_detect_violations() {
    let code =
        "use crate::http::x;\nlet a = signet_crate::no;\nactix_web::y;\nmyactix::z;\nfn f() -> crate::pki::View {}";
    assert_eq!(after(code, "crate::").collect::<Vec<_>>(), ["http", "pki"]);
    assert!(names(code, "actix_web") && !names(code, "actix"));
    assert!(has_word("fn f(a: &Fields) {", "Fields") && !has_word("fn f(a: &OtherFields, b: \"Fields\") {", "Fields"));
    let source = |path: &str, code: &str| Source { path: path.to_owned(), text: String::new(), code: code.to_owned() };
    let list =
        "use super::{\n    b::{c, d},\n    e,\n};\nuse super::f::g;\nuse crate::pki::{h, i::J};\nuse self::k::l;";
    let parts = |path: &str, code: &str| parts_of_pki(&source(path, code)).into_iter().collect::<Vec<_>>();
    assert_eq!(parts("pki/a.rs", "use crate::pki as p;\nuse crate::pki::b;"), ["all", "b"]);
    assert_eq!(parts("pki/a.rs", list), ["b", "e", "f", "h", "i"]);
    assert_eq!(parts("pki/a/x.rs", list), ["h", "i"]);
    assert_eq!(parts("pki/a/x.rs", "use super::super::{b, c::D};\nfn f() -> super::super::e::F {}"), ["b", "c", "e"]);
    assert_eq!(
        [module("pki/names/uri.rs"), module("pki.rs"), module("cli/dev.rs"), module("main.rs")],
        ["pki", "pki", "", ""]
    );
}

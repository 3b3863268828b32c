//! Limits that pages quote, compared with the constants and files that set them.

use std::path::Path;

use signet::config::SETTINGS;

enum Source {
    Constant(&'static str, &'static str, u64),
    Default(&'static str),
    After(&'static str, &'static str),
}
use Source::{After, Constant, Default};

const MIB: u64 = 1 << 20;

/// A page, its words around the figure, which is `{}`, and the source.
const FIGURES: &[(&str, &str, Source)] = &[
    (
        "docs/backup-embedded.md",
        "is cut to {} MiB",
        Constant("src/storage/embedded/connection.rs", "MAX_LOG_BYTES", MIB),
    ),
    (
        "docs/incidents.md",
        "of the {} requests that a server admits",
        Constant("src/projects/admission.rs", "MAX_CONCURRENT_REQUESTS", 1),
    ),
    (
        "docs/incidents.md",
        "Beyond {} requests are answered 503",
        Constant("src/projects/admission.rs", "MAX_CONCURRENT_REQUESTS", 1),
    ),
    ("docs/postgresql.md", "`projects_connections`, {} by default", Default("projects_connections")),
    (
        "docs/sizing-and-limits.md",
        "the default of {} connections",
        Constant("src/server/capacity.rs", "DEFAULT_MAX_CONNECTIONS", 1),
    ),
    (
        "docs/sizing-and-limits.md",
        "their texts together ({} MiB at most)",
        Constant("src/auth/policies.rs", "MAX_TOTAL_POLICY_BYTES", MIB),
    ),
    ("docs/sizing-and-limits.md", "`rsa_key_stock` has {} made ahead", Default("rsa_key_stock.2048")),
    (
        "docs/sizing-and-limits.md",
        "the unit allows {} files",
        After("packaging/systemd/signet.service", "LimitNOFILE="),
    ),
];

fn text(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The value of a constant such as `64 << 20` or `10_000`.
fn constant(file: &str, name: &str) -> u64 {
    let text = text(file);
    let (_, rest) = text.split_once(&format!("const {name}: ")).unwrap_or_else(|| panic!("{file} has no {name}"));
    let value = rest.split_once("= ").unwrap().1.split_once(';').unwrap().0.replace('_', "");
    match value.split_once(" << ") {
        Some((number, by)) => number.parse::<u64>().unwrap() << by.parse::<u32>().unwrap(),
        None => value.parse().unwrap(),
    }
}

impl Source {
    fn value(&self) -> u64 {
        match self {
            Constant(file, name, unit) => constant(file, name) / unit,
            Default(name) => SETTINGS.iter().find(|setting| setting.name == *name).unwrap().default.parse().unwrap(),
            After(file, words) => {
                let text = text(file);
                let rest = text.split_once(words).unwrap().1;
                rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
            }
        }
    }
}

/// Formats a number as the pages do: with a thousands separator from 10,000 on.
fn written(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1000, number % 1000),
    }
}

#[test]
fn figures_in_pages_match_the_program() {
    for (page, words, source) in FIGURES {
        let figure = words.replace("{}", &written(source.value()));
        let text = text(page).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&figure), "{page} does not say {figure:?}");
    }
}

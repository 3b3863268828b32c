//! The parts of a folder depend on each other without cycles.
//!
//! The direct children of a folder are its parts: `x.rs` and everything below `x/` are one part. The folder's own
//! module (`foo.rs` of `foo/`) is a part, too. Only in the small [`FAMILIES`] may parts use their own module's types
//! although it names them.

mod paths;

use std::collections::{BTreeMap, BTreeSet};

use self::paths::{named, resolved};
use crate::source::{Source, sources, sources_below};

/// Folders whose parts may name their own module although it names them. Entries that are not needed must be removed.
const FAMILIES: &[&str] = &[
    "auth",
    "auth/mounts",
    "auth/policy",
    "config",
    "fields",
    "http/secrets",
    "http/secrets/pki",
    "http/secrets/sys",
    "pki/actor",
    "pki/crl",
    "pki/issue/external_policy",
    "pki/mount/role",
    "projects/project",
    "projects/workspace",
    "server",
    "x509/ocsp",
    "x509/profile",
];

/// The part that is the folder's own module.
const FRONT_DOOR: &str = "(front door)";

/// A reference from one module to another.
#[derive(Debug)]
struct Naming {
    from: String,
    to: String,
    path: String,
}

fn namings(sources: &[Source]) -> Vec<Naming> {
    let modules: BTreeSet<&str> = sources.iter().map(|source| source.path.trim_end_matches(".rs")).collect();
    let mut found = Vec::new();
    for source in sources {
        let from = source.path.trim_end_matches(".rs");
        for path in named(&source.code) {
            if let Some(to) = resolved(from, &path, &modules).filter(|to| to != from) {
                found.push(Naming { from: from.to_owned(), to, path });
            }
        }
    }
    found
}

fn part<'m>(folder: &str, module: &'m str) -> Option<&'m str> {
    if module == folder || (folder.is_empty() && module == "lib") {
        return Some(FRONT_DOOR);
    }
    let below = if folder.is_empty() { module } else { module.strip_prefix(folder)?.strip_prefix('/')? };
    below.split('/').next()
}

/// The references of a folder by their two parts, without those inside one part.
type Edges<'n> = BTreeMap<(&'n str, &'n str), Vec<&'n Naming>>;

fn edges<'n>(folder: &str, namings: &'n [Naming], front_door: bool) -> Edges<'n> {
    let mut edges = Edges::new();
    for naming in namings {
        let (Some(from), Some(to)) = (part(folder, &naming.from), part(folder, &naming.to)) else { continue };
        if from != to && (front_door || (from != FRONT_DOOR && to != FRONT_DOOR)) {
            edges.entry((from, to)).or_default().push(naming);
        }
    }
    edges
}

/// The parts that can be reached from `part` in at least one step.
fn reached<'n>(edges: &Edges<'n>, part: &'n str) -> BTreeSet<&'n str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![part];
    while let Some(part) = next.pop() {
        let steps = edges.keys().filter(|(from, _)| *from == part).map(|(_, to)| *to);
        next.extend(steps.filter(|to| reached.insert(*to)));
    }
    reached
}

/// Describes every cycle of a folder: its parts and the references that form it.
fn circles(folder: &str, namings: &[Naming], front_door: bool) -> Vec<String> {
    let edges = edges(folder, namings, front_door);
    let parts: BTreeSet<&str> = edges.keys().map(|(from, _)| *from).collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> = parts.iter().map(|part| (*part, reached(&edges, part))).collect();
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for part in &parts {
        if !reach[part].contains(part) || told.contains(part) {
            continue;
        }
        let circle: BTreeSet<&str> =
            parts.iter().copied().filter(|other| reach[part].contains(other) && reach[other].contains(part)).collect();
        let folder = if folder.is_empty() { "src" } else { folder };
        let mut text = format!("{folder}: {} parts name each other in a circle\n", circle.len());
        text.push_str(&edges_text(&edges, &circle));
        told.extend(circle);
        found.push(text);
    }
    found
}

/// Describes the edges inside a cycle, each with its first few references.
fn edges_text(edges: &Edges<'_>, circle: &BTreeSet<&str>) -> String {
    const MOST: usize = 3;
    let mut text = String::new();
    for ((from, to), namings) in edges.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to)) {
        text.push_str(&format!("  {from} -> {to}\n"));
        for naming in namings.iter().take(MOST) {
            text.push_str(&format!("      {}.rs names {}\n", naming.from, naming.path));
        }
        if namings.len() > MOST {
            text.push_str(&format!("      and {} more\n", namings.len() - MOST));
        }
    }
    text
}

/// Every folder with modules; the root is `""`.
fn folders(sources: &[Source]) -> BTreeSet<&str> {
    sources.iter().map(|source| source.path.rsplit_once('/').map_or("", |(folder, _)| folder)).collect()
}

#[test]
fn folder_parts_have_no_dependency_cycles() {
    let sources = sources();
    let namings = namings(&sources);
    let of = |folder: &&str| circles(folder, &namings, !FAMILIES.contains(folder));
    let wrong: Vec<String> = folders(&sources).iter().flat_map(of).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The root of the load generator declares the command line, which its modules may name.
#[test]
fn load_generator_modules_have_no_dependency_cycles() {
    let sources = sources_below("load/src");
    let namings = namings(&sources);
    let wrong: Vec<String> = folders(&sources).iter().flat_map(|folder| circles(folder, &namings, false)).collect();
    assert!(sources.len() > 30 && wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn families_list_exactly_the_folders_with_module_cycles() {
    let sources = sources();
    let namings = namings(&sources);
    let needless = FAMILIES.iter().filter(|folder| circles(folder, &namings, true).is_empty());
    let mut wrong: Vec<String> = needless.map(|folder| format!("{folder} is no family any more")).collect();
    wrong.extend(absent(&sources, FAMILIES));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn absent(sources: &[Source], list: &[&str]) -> Vec<String> {
    let folders = folders(sources);
    list.iter().filter(|folder| !folders.contains(**folder)).map(|folder| format!("{folder} is not a folder")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<Source> {
        let source = |(path, code): &(&str, &str)| Source {
            path: (*path).to_owned(),
            text: (*code).to_owned(),
            code: (*code).to_owned(),
        };
        files.iter().map(source).collect()
    }

    #[test]
    fn cycle_report_names_its_files() {
        let sources = crate_of(&[
            ("lib.rs", "pub mod a;"),
            ("a.rs", "mod one;\nmod two;\nmod three;\npub use one::X;"),
            ("a/one.rs", "use super::two::inner::Y;"),
            ("a/two.rs", "mod inner;"),
            ("a/two/inner.rs", "fn f() { crate::a::three::g(); }"),
            ("a/three.rs", "use super::{one::{self, X as Z}};"),
            ("a/four.rs", "use super::one::X;\nuse super::X;"),
        ]);
        let namings = namings(&sources);
        let found = circles("a", &namings, false);
        assert_eq!(found.len(), 1, "{found:?}");
        for line in [
            "a: 3 parts name each other in a circle\n",
            "  one -> two\n      a/one.rs names super::two::inner::Y\n",
            "  two -> three\n      a/two/inner.rs names crate::a::three::g\n",
            "  three -> one\n      a/three.rs names super::one\n      a/three.rs names super::one::X\n",
        ] {
            assert!(found[0].contains(line), "{}", found[0]);
        }
        assert!(!found[0].contains("four"), "{}", found[0]);
        assert!(circles("a/two", &namings, false).is_empty());
        assert!(circles("", &namings, false).is_empty());
    }

    #[test]
    fn folder_module_counts_in_cycles_only_outside_families() {
        let sources = crate_of(&[("a.rs", "mod one;\nuse one::X;"), ("a/one.rs", "use super::Y;")]);
        let namings = namings(&sources);
        assert!(circles("a", &namings, false).is_empty());
        assert_eq!(circles("a", &namings, true).len(), 1);
    }
}

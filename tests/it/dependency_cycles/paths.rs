//! Finds paths in code, and the module that each leads to.

use std::collections::BTreeSet;

/// Every path in code that may lead to another module: those of `use` items, and those that begin with `crate`,
/// `super`, `self` or a module declared in the file. The latter are prefixed with `self`.
pub fn named(code: &str) -> Vec<String> {
    let code = without_visibilities(code);
    let (uses, rest) = uses(&code);
    let children: BTreeSet<&str> = declared(&rest).collect();
    let mut paths: Vec<String> = uses.iter().flat_map(|tree| expanded(tree)).collect();
    paths.extend(rest_paths(&rest, &children));
    for path in &mut paths {
        let first = path.split("::").next().unwrap_or_default();
        if children.contains(first) {
            *path = format!("self::{path}");
        }
    }
    paths
}

/// The deepest module on a path that is used in the module `from`; `None` if the path is external or local. Modules are
/// paths below `src` without `.rs`.
pub fn resolved(from: &str, path: &str, modules: &BTreeSet<&str>) -> Option<String> {
    let mut segments = path.split("::").peekable();
    let mut at: Vec<&str> = if matches!(from, "lib" | "main") { vec![] } else { from.split('/').collect() };
    match segments.next()? {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop();
            while segments.next_if_eq(&"super").is_some() {
                at.pop();
            }
        }
        _ => return None,
    }
    for segment in segments {
        at.push(segment);
        if !modules.contains(&at.join("/")[..]) {
            at.pop();
            break;
        }
    }
    Some(if at.is_empty() { "lib".to_owned() } else { at.join("/") })
}

/// Removes `(in crate::a)`: a visibility is not a reference.
fn without_visibilities(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once("pub(in ") {
        kept.push_str(before);
        kept.push_str("pub");
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    kept + rest
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the trees of the `use` items, each on one line, and the remaining code.
fn uses(code: &str) -> (Vec<String>, String) {
    let mut trees = Vec::new();
    let mut left = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let before = &rest[..at];
        let after = &rest[at + 4..];
        left.push_str(before);
        match after.split_once(';') {
            Some((tree, behind)) if !before.ends_with(is_word) => {
                trees.push(tree.split_whitespace().collect::<Vec<_>>().join(" "));
                rest = behind;
            }
            _ => rest = after,
        }
    }
    left.push_str(rest);
    (trees, left)
}

/// Expands a tree: `a::{b, c::{self, d as e}}` is `a::b`, `a::c` and `a::c::d`.
fn expanded(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let group = tree.split_once('{').and_then(|(before, rest)| Some((before, rest.strip_suffix('}')?)));
    let Some((before, group)) = group else {
        return vec![tree.split(" as ").next().unwrap_or_default().to_owned()];
    };
    let below = branches(group).into_iter().filter(|branch| !branch.trim().is_empty()).flat_map(expanded);
    below
        .map(|path| if path == "self" { before.trim_end_matches("::").to_owned() } else { format!("{before}{path}") })
        .collect()
}

/// Splits at the commas outside braces.
fn branches(group: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut from = 0;
    let mut found = Vec::new();
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(&group[from..]);
    found
}

/// The modules that code declares in files of their own.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let (visibility, name) = line.trim().strip_suffix(';')?.split_once("mod ")?;
        (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
    })
}

/// The paths outside `use` items that begin with `crate`, `super`, `self` or a declared module.
fn rest_paths(code: &str, children: &BTreeSet<&str>) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::") {
        let begin = code[..at].rfind(|c| !is_word(c)).map_or(0, |before| before + 1);
        let first = &code[begin..at];
        let begins_a_path = !code[..begin].ends_with(':') && !first.is_empty();
        if begins_a_path && (matches!(first, "crate" | "super" | "self") || children.contains(first)) {
            let end = |rest: &str| rest.find(|c| !is_word(c) && c != ':').unwrap_or(rest.len());
            let path = &code[begin..at + end(&code[at..])];
            found.push(path.trim_end_matches(':').to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouped_use_paths_are_expanded() {
        assert_eq!(expanded("crate::a::b"), ["crate::a::b"]);
        assert_eq!(expanded("super::{ a, b as c }"), ["super::a", "super::b"]);
        assert_eq!(
            expanded("crate::{a::{self, b::{C, d}}, e}"),
            ["crate::a", "crate::a::b::C", "crate::a::b::d", "crate::e"]
        );
        assert_eq!(expanded("{super::a, super::b::{c,},}"), ["super::a", "super::b::c"]);
    }

    #[test]
    fn every_form_of_module_path_is_found() {
        let code = "mod child;\npub(crate) mod other;\nuse std::x;\npub use child::{\n    A,\n    b::C,\n};\n\
                    pub(in crate::no) fn f(because: u8) -> super::super::T {\n    other::g(crate::z::h::<super::U>());\n    \
                    my::other::k();\n    self::m::n!();\n}\n";
        assert_eq!(
            named(code),
            [
                "std::x",
                "self::child::A",
                "self::child::b::C",
                "super::super::T",
                "self::other::g",
                "crate::z::h",
                "super::U",
                "self::m::n"
            ]
        );
    }

    #[test]
    fn paths_resolve_to_their_deepest_module() {
        let modules = BTreeSet::from(["lib", "main", "a", "a/b", "a/b/c", "a/d", "e"]);
        for (from, path, to) in [
            ("a/b", "crate::a::d::f", Some("a/d")),
            ("a/b", "crate::a::X", Some("a")),
            ("a/b", "super::d::f", Some("a/d")),
            ("a/b/c", "super::super::d::F::g", Some("a/d")),
            ("a/b/c", "super::X", Some("a/b")),
            ("a/b", "self::c::X", Some("a/b/c")),
            ("a/b", "self::X", Some("a/b")),
            ("lib", "self::e::x", Some("e")),
            ("e", "crate::f", Some("lib")),
            ("e", "super::a::b", Some("a/b")),
            ("e", "std::a::b", None),
        ] {
            assert_eq!(resolved(from, path, &modules).as_deref(), to, "{path} in {from}");
        }
    }
}

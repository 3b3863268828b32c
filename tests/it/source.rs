//! The program's source files, for tests of its structure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub struct Source {
    /// Path below the root of the crate, with `/`.
    pub path: String,
    pub text: String,
    /// The code without tests, comments and blank lines.
    pub code: String,
}

/// The files of the program.
pub fn sources() -> Vec<Source> {
    sources_below("src")
}

/// The files of the crate whose root is in this folder of the project.
pub fn sources_below(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    let read: Vec<(String, String)> = paths
        .into_iter()
        .map(|path| {
            let below = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            (below, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    let of_tests: BTreeSet<String> = read.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_test = |path: &str| {
        let module = path.trim_end_matches(".rs");
        of_tests.iter().any(|test| module == test || module.starts_with(&format!("{test}/")))
    };
    let kept = read.into_iter().filter(|(path, _)| !is_test(path));
    kept.map(|(path, text)| Source { code: code(&text), path, text }).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    paths.sort();
}

/// The files and folders of the `#[cfg(test)]` modules in a file, without `.rs`.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let folder = match path.trim_end_matches(".rs") {
        "lib" | "main" => String::new(),
        module => format!("{module}/"),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let marked = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").map(|pair| pair[1]);
    let named = marked.filter_map(|line| line.trim_end_matches([';', ' ', '{']).split("mod ").nth(1));
    named.map(|name| format!("{folder}{name}")).collect()
}

/// Removes test items and comments. Requires the format of `rustfmt`: an item ends at the first closing brace with its
/// indentation.
fn code(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let indent = &line[..line.len() - line.trim_start().len()];
            let end = format!("{indent}}}");
            let one_line = |line: &str| line.ends_with(';') && line.starts_with(indent);
            let first = lines.by_ref().find(|line| !line.trim_start().starts_with("#["));
            if first.is_some_and(|line| !one_line(line)) {
                lines.by_ref().find(|line| *line == end);
            }
        } else if !line.trim().is_empty() && !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_comments_are_left_out() {
        let text = "//! doc\nuse a::b;\n\n#[cfg(test)]\nuse c::d;\n#[cfg(test)]\npub(crate) mod tests;\n\nfn f() {\n    // why\n    \
                    #[cfg(test)]\n    {\n        x();\n    }\n    g();\n}\n#[cfg(test)]\n#[allow(x)]\nmod t {\n    fn h() {\n    }\n}\nfn i() {}\n";
        assert_eq!(code(text), "use a::b;\nfn f() {\n    g();\n}\nfn i() {}\n");
        assert_eq!(test_modules("pki/names.rs", text), ["pki/names/tests"]);
        assert_eq!(test_modules("lib.rs", "#[cfg(test)]\nmod tests {\n}\n"), ["tests"]);
    }

    #[test]
    fn files_of_tests_are_left_out() {
        let paths: Vec<String> = sources().into_iter().map(|source| source.path).collect();
        assert!(paths.iter().any(|path| path == "storage/commit.rs"), "{paths:?}");
        for absent in
            ["storage/tests/contract.rs", "storage/tests/contract/pki.rs", "x509/testing.rs", "auth/token/tests.rs"]
        {
            assert!(!paths.iter().any(|path| path == absent), "{absent}");
        }
    }
}

//! Parses a page of `docs/` into its fenced blocks.

use std::path::PathBuf;

/// Languages of blocks without commands.
const SHOWN: [&str; 7] = ["text", "toml", "json", "hcl", "ini", "yaml", "terraform"];
/// Starts of commands, which may not occur in a block without commands.
const COMMANDS: [&str; 10] =
    ["signet ", "curl ", "openssl ", "systemctl ", "runuser ", "export ", "pg_dump ", "vault ", "bao ", "$ "];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Use {
    Run,
    NotRun(String),
    Shown,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) line: usize,
    pub(super) is: Use,
    pub(super) text: String,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs")
}

pub(super) fn names() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter_map(|name| name.strip_suffix(".md").map(str::to_owned)).collect();
    // The table of contents of the book is no page.
    names.retain(|name| name != "SUMMARY");
    names.sort();
    names
}

pub(super) fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{name}.md"))).unwrap()
}

/// The blocks of a text, or the first error with its line.
pub(super) fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut after_blank = true;
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        let Some(info) = bare.strip_prefix("```") else {
            if after_blank && indent >= 4 && !bare.is_empty() {
                return Err(format!("{number}: a block by its indent: fence it, and say what it is"));
            }
            after_blank = bare.is_empty();
            continue;
        };
        let is = use_of(info).ok_or_else(|| format!("{number}: no block is called {info:?}"))?;
        let mut text = String::new();
        loop {
            let (line, _) = lines.next().ok_or_else(|| format!("{number}: the block does not end"))?;
            if line.trim() == "```" {
                break;
            }
            let spaces = line.len() - line.trim_start().len();
            text.push_str(&line[spaces.min(indent)..]);
            text.push('\n');
        }
        let is_command = |line: &str| COMMANDS.iter().any(|command| line.trim_start().starts_with(command));
        if is == Use::Shown && text.lines().any(is_command) {
            return Err(format!("{number}: holds a command: it is of `sh`, or of `sh not-run: REASON`"));
        }
        after_blank = false;
        blocks.push(Block { line: number, is, text });
    }
    Ok(blocks)
}

fn use_of(info: &str) -> Option<Use> {
    match info.split_once(" not-run: ") {
        Some(("sh", reason)) => Some(Use::NotRun(reason.to_owned())),
        Some(_) => None,
        None if info == "sh" => Some(Use::Run),
        None => SHOWN.contains(&info).then_some(Use::Shown),
    }
}

#[test]
fn parser_reads_whether_a_block_is_run() {
    let text = "A page.\n\n1. A list\n   ```sh\n   one\n     two\n   ```\n\n```sh not-run: systemd\nthree\n```\n\n```toml\na = 1\n```\n";
    let found = blocks(text).unwrap();
    let uses: Vec<_> = found.iter().map(|block| (block.line, &block.is, block.text.as_str())).collect();
    let not_run = Use::NotRun("systemd".to_owned());
    assert_eq!(uses, [(4, &Use::Run, "one\n  two\n"), (9, &not_run, "three\n"), (13, &Use::Shown, "a = 1\n")]);
    for (text, problem) in [
        ("Text.\n\n    signet dev\n", "3: a block by its indent"),
        ("```\nsignet dev\n```\n", "1: no block is called"),
        ("```console\n$ signet dev\n```\n", "1: no block is called"),
        ("```text not-run: systemd\nx\n```\n", "1: no block is called"),
        ("```text\nx\nsignet dev\n```\n", "1: holds a command"),
        ("\n```sh\nsignet dev\n", "2: the block does not end"),
    ] {
        assert!(blocks(text).unwrap_err().starts_with(problem), "{text}: {:?}", blocks(text));
    }
}

//! A page of `docs/`, read: its fenced blocks and what each says of itself.

use std::path::PathBuf;

/// Blocks that are shown and are no commands.
const SHOWN: [&str; 7] = ["text", "toml", "json", "hcl", "ini", "yaml", "terraform"];
/// What a command begins with: none of it stands in a block that is only shown.
const COMMANDS: [&str; 10] =
    ["signet ", "curl ", "openssl ", "systemctl ", "runuser ", "export ", "pg_dump ", "vault ", "bao ", "$ "];

/// What is done with a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is run.
    Run,
    /// It is commands that cannot run in a test, for this reason.
    NotRun(String),
    /// It is not commands.
    Shown,
}

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of its fence, from 1.
    pub(super) line: usize,
    pub(super) is: Use,
    pub(super) text: String,
}

/// The folder of the pages.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// The names of all pages, in order.
pub(super) fn names() -> Vec<String> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter_map(|name| name.strip_suffix(".md").map(str::to_owned)).collect();
    names.sort();
    names
}

/// A page's text.
pub(super) fn text(name: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{name}.md"))).unwrap()
}

/// The blocks of a text, or what is wrong with how one is written, with its line.
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
fn a_block_says_whether_it_is_run() {
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

//! Help texts that clap does not derive from doc comments: command groups, examples, and the documentation page of each
//! command.

use std::fmt::Write as _;

use clap::Command;
use clap::builder::Styles;

/// The headings of `signet --help`, each with its commands in order.
const COMMAND_GROUPS: &[(&str, &[&str])] = &[
    ("Run a server", &["dev", "setup", "serve", "check", "health"]),
    ("Certificates", &["issue", "renew", "revoke", "import", "status", "who"]),
    ("Operate", &["operator", "bootstrap", "migrate"]),
    ("Other", &["explain", "completions", "man", "help"]),
];

/// Description of the `help` command. clap adds this command later, so its description cannot be looked up here.
const HELP_ABOUT: &str = "Print this message or the help of a command";

/// Examples and documentation page for the help of one command.
struct CommandHelp {
    /// The command line words that select the command, without `signet`: for example `operator init`.
    command: &'static str,
    examples: &'static [&'static str],
    /// Path of the documentation page, such as `docs/installation.md`.
    page: &'static str,
}

const COMMAND_HELP_ENTRIES: &[CommandHelp] = &[
    entry("setup", &["setup --config /etc/signet/signet.toml --domain example.com"], "docs/getting-started.md"),
    entry("dev", &["dev", "dev --data-dir data --root-token my-root"], "README.md"),
    entry("serve", &["serve --config /etc/signet/signet.toml"], "docs/getting-started.md"),
    entry("migrate", &["migrate --config /etc/signet/signet.toml"], "docs/installation.md"),
    entry("operator", &["operator seal-status --config /etc/signet/signet.toml"], "docs/installation.md"),
    entry("operator init", &["operator init --config /etc/signet/signet.toml"], "docs/installation.md"),
    entry(
        "operator new-root-token",
        &[
            "operator new-root-token --config /etc/signet/signet.toml",
            "operator new-root-token --config signet.toml --out root-token",
        ],
        "docs/production.md",
    ),
    entry(
        "operator new-user-token",
        &["operator new-user-token --config /etc/signet/signet.toml --user ada"],
        "docs/projects.md",
    ),
    entry("operator seal-status", &["operator seal-status --config /etc/signet/signet.toml"], "docs/hsm.md"),
    entry(
        "operator rotate-seal-key",
        &[
            "operator rotate-seal-key --config /etc/signet/signet.toml",
            "operator rotate-seal-key --config signet.toml --to new.toml",
        ],
        "docs/hsm.md",
    ),
    entry(
        "operator backup",
        &[
            "operator backup --config /etc/signet/signet.toml --to copy.db",
            "operator backup --config /etc/signet/signet.toml --folder /var/backups/signet --keep 14",
        ],
        "docs/backup-embedded.md",
    ),
    entry(
        "operator verify-backup",
        &["operator verify-backup --config /etc/signet/signet.toml copy.db"],
        "docs/backup-embedded.md",
    ),
    entry(
        "operator restore",
        &["operator restore --config /etc/signet/signet.toml copy.db"],
        "docs/backup-embedded.md",
    ),
    entry(
        "operator after-restore",
        &["operator after-restore --config /etc/signet/signet.toml"],
        "docs/backup-postgresql.md",
    ),
    entry(
        "operator copy-store",
        &["operator copy-store --config signet.toml --to postgres://signet@db/signet"],
        "docs/moving-to-postgresql.md",
    ),
    entry("bootstrap", &["bootstrap --config signet.toml --username ada --email ada@example.com"], "docs/projects.md"),
    entry(
        "check",
        &["check --config /etc/signet/signet.toml", "check --file-only --config signet.toml"],
        "docs/production.md",
    ),
    entry("health", &["health", "health --live --config /etc/signet/signet.toml"], "docs/installation.md"),
    entry(
        "issue",
        &["issue web.example.com --role web --out /etc/web", "issue --csr web.csr --role web --ttl 24h"],
        "docs/client-commands.md",
    ),
    entry("import", &["import ./old-ca --mount old"], "docs/coming-from.md"),
    entry(
        "renew",
        &[
            "renew /etc/web/web.example.com.pem --exec 'systemctl reload nginx'",
            "renew --service --token-file token web.example.com.pem",
        ],
        "docs/client-commands.md",
    ),
    entry(
        "revoke",
        &["revoke web.example.com.pem --reason keyCompromise", "revoke 67:f4:5e:01 --mount pki"],
        "docs/revocation.md",
    ),
    entry("status", &["status", "status --json"], "docs/client-commands.md"),
    entry("who", &["who web.example.com.pem", "who 67:f4:5e:01"], "docs/client-commands.md"),
    entry("explain", &["explain - POST pki/issue/web common_name=a.example.com"], "docs/roles-and-policies.md"),
    entry("completions", &["completions bash > signet.bash"], "docs/installation.md"),
    entry("man", &["man pages"], "docs/installation.md"),
];

const fn entry(command: &'static str, examples: &'static [&'static str], page: &'static str) -> CommandHelp {
    CommandHelp { command, examples, page }
}

pub(super) fn with_help(root: Command) -> Command {
    let template = root_help_template(&root);
    let root =
        root.help_template(template).after_help("Documentation: README.md and docs/. Examples: signet help COMMAND.");
    COMMAND_HELP_ENTRIES.iter().fold(root, |root, entry| {
        let mut words: Vec<&str> = entry.command.split(' ').collect();
        words.reverse();
        add_help(root, words, entry)
    })
}

/// Adds the examples and page of `entry` to the help of the subcommand that `words` selects below `command`. `words` is
/// in reverse order, the innermost subcommand first.
fn add_help(command: Command, mut words: Vec<&'static str>, entry: &'static CommandHelp) -> Command {
    match words.pop() {
        Some(word) => command.mut_subcommand(word, |command| add_help(command, words, entry)),
        None => command.after_help(render_examples(entry)),
    }
}

fn render_examples(entry: &CommandHelp) -> String {
    let header = *Styles::styled().get_header();
    let mut text = format!("{header}Examples:{header:#}\n");
    for example in entry.examples {
        let _ = writeln!(text, "  signet {example}");
    }
    let _ = write!(text, "\n{header}Documentation:{header:#} {}", entry.page);
    text
}

/// Renders clap's help template for `signet --help`, in which the commands are grouped.
fn root_help_template(root: &Command) -> String {
    let styles = Styles::styled();
    let header = *styles.get_header();
    let literal = *styles.get_literal();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, commands) in COMMAND_GROUPS {
        let _ = writeln!(text, "\n{header}{group}:{header:#}");
        for name in *commands {
            let found = root.find_subcommand(name).and_then(Command::get_about);
            let about = found.map_or_else(|| HELP_ABOUT.to_owned(), ToString::to_string);
            let _ = writeln!(text, "  {literal}{name:<11}{literal:#}  {about}");
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use clap::CommandFactory as _;

    use super::*;

    /// Adds the full names of all subcommands of `command` to `all`, each prefixed with `before`.
    fn words(command: &Command, before: &str, all: &mut BTreeSet<String>) {
        for sub in command.get_subcommands() {
            let name = format!("{before}{}", sub.get_name());
            words(sub, &format!("{name} "), all);
            all.insert(name);
        }
    }

    #[test]
    fn help_lists_every_command_in_one_group_within_80_columns() {
        let root = crate::cli::CommandLine::command();
        let mut grouped: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
        grouped.sort_unstable();
        let mut known: Vec<&str> = root.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        known.sort_unstable();
        assert_eq!(grouped, known);
        let help = crate::cli::CommandLine::definition().term_width(80).render_help().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for (group, _) in COMMAND_GROUPS {
            assert!(help.contains(&format!("\n{group}:\n")), "{help}");
        }
    }

    #[test]
    fn every_command_has_examples_that_parse_and_a_page() {
        let mut all = BTreeSet::new();
        words(&crate::cli::CommandLine::command(), "", &mut all);
        assert_eq!(COMMAND_HELP_ENTRIES.iter().map(|entry| entry.command.to_owned()).collect::<BTreeSet<_>>(), all);
        for CommandHelp { command, examples, page } in COMMAND_HELP_ENTRIES {
            let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
            let text = std::fs::read_to_string(&page).unwrap();
            assert!(text.contains(&format!("signet {command}")), "{command}: {}", page.display());
            for example in *examples {
                assert!(example.starts_with(command), "{command}: {example}");
                let (line, _) = example.split_once(" >").unwrap_or((example, ""));
                // This argument is quoted in one example; the test splits the line at blanks, so it must become one
                // word.
                let line = line.replace("'systemctl reload nginx'", "reload");
                let words = ["signet"].into_iter().chain(line.split(' ')).map(str::to_owned);
                let parsed = crate::cli::CommandLine::definition().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn long_help_groups_flags_under_headings() {
        for command in crate::cli::CommandLine::definition().get_subcommands() {
            let flags = command.get_arguments().filter(|flag| !flag.is_positional());
            let (headed, bare): (Vec<_>, Vec<_>) = flags.partition(|flag| flag.get_help_heading().is_some());
            assert!(
                bare.len() <= 8,
                "{}: {} flags, {} without a heading",
                command.get_name(),
                headed.len(),
                bare.len()
            );
        }
    }
}

//! `signet completions`: what a shell needs to complete this command line, made from its definition.

use std::io::Write as _;

use clap_complete::{Shell, generate};
use serde_json::json;
use signet::error::Result;

use super::output;

/// The arguments of `signet completions`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The shell.
    shell: Shell,
}

/// Writes the completions to standard output.
pub(crate) fn run(arguments: &Arguments, definition: &mut clap::Command) -> Result<()> {
    let mut script = Vec::new();
    generate(arguments.shell, definition, "signet", &mut script);
    if !output::is_json() {
        return output::told(std::io::stdout().write_all(&script));
    }
    let script = String::from_utf8_lossy(&script);
    output::result(&json!({ "shell": arguments.shell.to_string(), "script": script }), "")
}

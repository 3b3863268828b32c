//! `signet completions`: shell completions of this command line.

use std::io::Write as _;

use crate::error::Result;
use clap_complete::{Shell, generate};
use serde_json::json;

use super::output;

#[derive(clap::Args)]
pub(crate) struct CompletionsArguments {
    /// Shell to complete for.
    shell: Shell,
}

pub(crate) fn run(arguments: &CompletionsArguments, definition: &mut clap::Command) -> Result<()> {
    let mut script = Vec::new();
    generate(arguments.shell, definition, "signet", &mut script);
    if !output::is_json() {
        return output::ignore_broken_pipe(std::io::stdout().write_all(&script));
    }
    let script = String::from_utf8_lossy(&script);
    output::print_result(&json!({ "shell": arguments.shell.to_string(), "script": script }), "")
}

//! The `signet` command.

mod cli;

use std::io::Write as _;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = cli::Command::read().run();
    signet::telemetry::flush_logs();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Who runs the program may know what no caller is told.
            let cause = signet::storage::said(&error).map(|said| format!(" ({said})")).unwrap_or_default();
            let _ = writeln!(cli::output::stderr(), "signet: {error}{cause}");
            ExitCode::FAILURE
        }
    }
}

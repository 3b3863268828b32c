//! The `signet` command.

mod cli;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let done = cli::Command::parse().run();
    signet::telemetry::flush_logs();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "signet: {error}");
            ExitCode::FAILURE
        }
    }
}

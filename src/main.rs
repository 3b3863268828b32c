//! The `signet` command.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let result = cli::CommandLine::read().run();
    signet::telemetry::flush_logs();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let error = failure.error();
            // The operator may see the database's own message; HTTP responses never contain it.
            let cause = signet::storage::database_message(error).map(|said| format!(" ({said})")).unwrap_or_default();
            cli::output::print_error(&format!("{error}{cause}"), failure.exit_status());
            ExitCode::from(failure.exit_status())
        }
    }
}

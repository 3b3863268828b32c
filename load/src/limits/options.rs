//! The options of the command `limits`.

use clap::ValueEnum;

use crate::plan::CLIENTS;
use crate::report::Outputs;
use crate::server::Launch;

const POSTGRES_HELP: &str = "Use PostgreSQL for all parts: the folder of its programs, or `auto`. By default only the \
    projects API uses PostgreSQL, if it is installed";

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LimitPart {
    /// The start with the filled store, and the first CRL.
    Start,
    /// `issue` with P-256, stored and not stored.
    Issue,
    /// `sign` with P-256, stored and not stored.
    Sign,
    /// `issue` with P-256 while other clients request RSA-2048 keys.
    Mixed,
    /// OCSP, signed responses and cached ones.
    Ocsp,
    /// GET of a short CRL.
    CrlGet,
    /// Token look-up and authorization.
    Token,
    /// `revoke` at full rate.
    Revoke,
    /// Single revocations with a long CRL.
    Crl,
    /// Memory after a longer run.
    Memory,
    /// The projects API.
    Projects,
}

/// Arguments of `limits`.
#[derive(clap::Args, Debug)]
#[command(mut_arg("server", |arg| arg.required(true)))]
#[command(mut_arg("postgres", |arg| arg.help(POSTGRES_HELP)))]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    pub(super) launch: Launch,
    /// Number of stored certificates.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    pub(super) stored: u64,
    /// Number of revoked certificates (default: as many as stored, at most 1,000,000).
    #[arg(long, value_name = "N")]
    pub(super) revoked: Option<u64>,
    /// Number of projects (default: as many as certificates are stored, at most 1,000,000).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub(super) projects: Option<u64>,
    /// Number of connections.
    #[arg(long, default_value_t = CLIENTS, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) clients: u16,
    /// Duration of each part in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) seconds: u64,
    /// Measure only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub(super) only: Vec<LimitPart>,
    #[command(flatten)]
    pub(super) outputs: Outputs,
    /// No progress bar and no progress messages.
    #[arg(long)]
    pub(super) quiet: bool,
}

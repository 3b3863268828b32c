//! The flags of `signet setup`.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The mount that issues, unless another is named.
pub(super) const MOUNT: &str = "pki";

/// The arguments of `signet setup`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The configuration file. One that is there is kept, and its installation gets what it lacks.
    #[arg(long, value_name = "FILE", default_value = "signet.toml")]
    pub(super) config: PathBuf,
    /// Ask nothing: what no flag says has its default.
    #[arg(long)]
    pub(super) yes: bool,
    /// Make the listener's certificate and nothing else: for another node on a database, which has the configuration and
    /// the seal key of the first one, or where the certificate was lost.
    #[arg(long, conflicts_with_all = ["domain", "csr", "signed"])]
    pub(super) listener_only: bool,
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    pub(super) wanted: Wanted,
}

/// Where a new installation is; for one that is there, its configuration says it.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Installation")]
pub(super) struct Place {
    /// Folder of the embedded store; data beside the configuration, /var/lib/signet for one below /etc.
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// A PostgreSQL database instead of the embedded store. A password is better in the environment
    /// (SIGNET_DATABASE_URL), which stays out of the configuration file.
    #[arg(long, value_name = "URL", conflicts_with = "data_dir")]
    pub(super) database_url: Option<String>,
    /// File of the seal key, made unless it is there; seal.key beside the configuration.
    #[arg(long, value_name = "FILE")]
    pub(super) seal_key_file: Option<PathBuf>,
    /// Address and port to listen on, with TLS; 127.0.0.1:8200.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// Address and port at which CRLs, OCSP and CA certificates are, over plain HTTP and without anything else.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) public_listen: Option<SocketAddr>,
    /// A host name or IP address by which clients reach this server; may be given several times, or with commas
    /// between. It is in the listener's certificate. localhost, 127.0.0.1 and ::1 by default.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) name: Vec<String>,
    /// Folder of the listener's certificate and key, which the server must be able to write; that of the data. With a
    /// database it is that of the configuration, /var/lib/signet for one below /etc.
    #[arg(long, value_name = "DIR")]
    pub(super) tls_dir: Option<PathBuf>,
}

/// What the authority is to be.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Authority")]
pub(super) struct Wanted {
    /// A domain of which certificates may be issued, with everything below it; may be given several times.
    #[arg(long, value_name = "DOMAIN", value_delimiter = ',')]
    pub(super) domain: Vec<String>,
    /// The organization in the names of root and intermediate.
    #[arg(long, value_name = "TEXT")]
    pub(super) organization: Option<String>,
    /// Kind of the authorities' keys: ec (P-384 and P-256) or rsa (4096 and 3072 bits).
    #[arg(long, value_name = "TYPE", value_parser = ["ec", "rsa"], default_value = "ec")]
    pub(super) key_type: String,
    /// Mount of the root.
    #[arg(long, value_name = "PATH", default_value = "pki-root")]
    pub(super) root_mount: String,
    /// Life of the root.
    #[arg(long, value_name = "DURATION", default_value = "87600h")]
    pub(super) root_ttl: String,
    /// Mount of the intermediate, which issues.
    #[arg(long, value_name = "PATH", default_value = MOUNT)]
    pub(super) mount: String,
    /// Life of the intermediate.
    #[arg(long, value_name = "DURATION", default_value = "43800h")]
    pub(super) intermediate_ttl: String,
    /// No root here: write a request for an outside authority to this file. Run the setup again with --signed.
    #[arg(long, value_name = "FILE")]
    pub(super) csr: Option<PathBuf>,
    /// What the outside authority made of the request: PEM, the intermediate's certificate and those above it.
    #[arg(long, value_name = "FILE")]
    pub(super) signed: Option<PathBuf>,
    /// Base URL, plain http, at which CRLs, OCSP and CA certificates are found; it goes into certificates.
    #[arg(long, value_name = "URL")]
    pub(super) public_url: Option<String>,
    /// The role for servers and clients below the domains.
    #[arg(long, value_name = "NAME", default_value = "server")]
    pub(super) role: String,
    /// Life of what it issues when nobody asks for another; three times that is the longest.
    #[arg(long, value_name = "DURATION", default_value = "720h")]
    pub(super) role_ttl: String,
    /// File for the administrator's token, mode 0600; admin-token beside the configuration.
    #[arg(long, value_name = "FILE")]
    pub(super) admin_token_file: Option<PathBuf>,
}

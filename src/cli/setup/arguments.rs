//! The flags of `signet setup`.

use std::net::SocketAddr;
use std::path::PathBuf;

pub(super) const DEFAULT_MOUNT: &str = "pki";

#[derive(clap::Args)]
pub(crate) struct SetupArguments {
    /// Configuration file. An existing one is kept, and its installation is completed; the options of the installation
    /// may only repeat its values.
    #[arg(long, value_name = "FILE", default_value = "signet.toml")]
    pub(super) config: PathBuf,
    /// Do not ask: use defaults for what no flag sets.
    #[arg(long)]
    pub(super) yes: bool,
    /// Create only the listener's certificate: for another node on a database, which has the configuration and the seal
    /// key of the first one, or after the certificate was lost.
    #[arg(long, conflicts_with_all = ["domain", "csr", "signed"])]
    pub(super) listener_only: bool,
    #[command(flatten)]
    pub(super) installation: InstallationArguments,
    #[command(flatten)]
    pub(super) wanted: SetupAuthorityArguments,
}

/// The location of a new installation; an existing one has it in its configuration.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Installation")]
pub(super) struct InstallationArguments {
    /// Folder of the embedded store; default: data next to the configuration, or /var/lib/signet for one below /etc.
    #[arg(long, value_name = "DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// PostgreSQL database instead of the embedded store. A password is better in the environment
    /// (SIGNET_DATABASE_URL), which keeps it out of the configuration file.
    #[arg(long, value_name = "URL", conflicts_with = "data_dir")]
    pub(super) database_url: Option<String>,
    /// File of the seal key, created if it is missing; default: seal.key next to the configuration.
    #[arg(long, value_name = "FILE")]
    pub(super) seal_key_file: Option<PathBuf>,
    /// Address and port to listen on, with TLS; default: 127.0.0.1:8200.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// Address and port that serve only CRLs, OCSP and CA certificates, over plain HTTP.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) public_listen: Option<SocketAddr>,
    /// Address and port of the metrics, plain HTTP without a token; default: none.
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics_listen: Option<SocketAddr>,
    /// File of the audit log, which also records the requests of the setup; default: no audit log.
    #[arg(long, value_name = "FILE")]
    pub(super) audit_file: Option<PathBuf>,
    /// Host name or IP address by which clients reach this server, for the listener's certificate. May be repeated, or
    /// separated by commas. Default: localhost, 127.0.0.1 and ::1.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(super) name: Vec<String>,
    /// Folder of the listener's certificate and key, which the server must be able to write; default: that of the data.
    /// With a database: that of the configuration, or /var/lib/signet for one below /etc.
    #[arg(long, value_name = "DIR")]
    pub(super) tls_dir: Option<PathBuf>,
}

/// The properties of the authority.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Authority")]
pub(super) struct SetupAuthorityArguments {
    /// Domain for which certificates may be issued, including all names below it. May be repeated.
    #[arg(long, value_name = "DOMAIN", value_delimiter = ',')]
    pub(super) domain: Vec<String>,
    /// Organization in the names of root and intermediate.
    #[arg(long, value_name = "TEXT")]
    pub(super) organization: Option<String>,
    /// Type of the authorities' keys: ec (P-384 and P-256) or rsa (4096 and 3072 bits).
    #[arg(long, value_name = "TYPE", value_parser = ["ec", "rsa"], default_value = "ec")]
    pub(super) key_type: String,
    /// Mount of the root.
    #[arg(long, value_name = "PATH", default_value = "pki-root")]
    pub(super) root_mount: String,
    /// Lifetime of the root.
    #[arg(long, value_name = "DURATION", default_value = "87600h")]
    pub(super) root_ttl: String,
    /// Mount of the intermediate, which issues certificates.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_MOUNT)]
    pub(super) mount: String,
    /// Lifetime of the intermediate.
    #[arg(long, value_name = "DURATION", default_value = "43800h")]
    pub(super) intermediate_ttl: String,
    /// Create no root: write a request for an outside authority to this file. Run the setup again with --signed.
    #[arg(long, value_name = "FILE")]
    pub(super) csr: Option<PathBuf>,
    /// PEM file from the outside authority: the certificate of the intermediate and those above it.
    #[arg(long, value_name = "FILE")]
    pub(super) signed: Option<PathBuf>,
    /// Base URL, plain http, of CRLs, OCSP and CA certificates, which is written into certificates.
    #[arg(long, value_name = "URL")]
    pub(super) public_url: Option<String>,
    /// Role for servers and clients below the domains.
    #[arg(long, value_name = "NAME", default_value = "server")]
    pub(super) role: String,
    /// Default lifetime of certificates of that role; three times that is the maximum.
    #[arg(long, value_name = "DURATION", default_value = "720h")]
    pub(super) role_ttl: String,
    /// File for the administrator's token, mode 0600; default: admin-token next to the configuration.
    #[arg(long, value_name = "FILE")]
    pub(super) admin_token_file: Option<PathBuf>,
}

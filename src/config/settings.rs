//! The declarations of all settings: name, default and help text.

/// The declaration of a setting.
pub struct Setting {
    /// Name in the configuration file. A dot separates the name of a TOML table from that of its member.
    pub name: &'static str,
    /// Default value as text; empty if the setting has no default.
    pub default: &'static str,
    /// `true` if the setting is read from the environment only, and not allowed in the configuration file.
    pub env_only: bool,
    /// Help text, as in `signet.example.toml`.
    pub help: &'static str,
}

impl Setting {
    /// Returns the name of the setting's environment variable.
    pub fn variable_name(&self) -> String {
        format!("SIGNET_{}", self.name.to_uppercase().replace('.', "_"))
    }
}

/// Declares the settings, with their defaults. The doc comment of a setting is its help text. A setting with `in
/// environment` is a secret, which is not allowed in the configuration file.
macro_rules! settings {
    ($($(#[doc = $help:literal])+ $name:literal $(= $default:literal)? $(in $environment:ident)?;)+) => {
        /// All settings.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            name: $name,
            default: concat!($($default)?),
            env_only: !concat!($(stringify!($environment))?).is_empty(),
            // Each line of a doc comment begins with a blank.
            help: concat!($($help),+).split_at(1).1,
        }),+];
    };
}

settings! {
    /// Address and port to listen on; TLS is required except on the loopback.
    "listen" = "127.0.0.1:8200";
    /// PEM file of the TLS certificate chain, this server's certificate first.
    "tls_certificate_file";
    /// PEM file of the private key of the TLS certificate.
    "tls_key_file";
    /// Path of the mount on this server that renews its TLS certificate; the server replaces both files.
    "tls_renew.mount";
    /// Role of tls_renew.mount that issues the TLS certificate.
    "tls_renew.role";
    /// Names in the TLS certificate: host names and IP addresses by which clients reach this server.
    "tls_renew.names";
    /// Address and port that serve /metrics over plain HTTP without a token.
    "metrics_listen";
    /// Address and port that serve CRLs, OCSP and CA certificates over plain HTTP without a token.
    "public_listen";
    /// Scheme and authority by which relying parties reach public_listen, for URLs in certificates.
    "public_url";
    /// Folder of the embedded store. This or database_url is required.
    "data_dir";
    /// PostgreSQL database instead of the embedded store.
    "database_url";
    /// File of the seal key, mode 0600; by default seal.key in data_dir.
    "seal_key_file";
    /// Seal key, instead of seal_key_file: 64 hexadecimal digits or base64 of 32 bytes.
    "seal_key" in environment;
    /// Location of the seal key: file, pkcs11 or cloudakms.
    "seal.type" = "file";
    /// Name of the library of a pkcs11 seal, from pkcs11_libraries.
    "seal.library";
    /// Slot number of the token of a pkcs11 seal; this or seal.token_label.
    "seal.slot";
    /// Label of the token of a pkcs11 seal.
    "seal.token_label";
    /// Label of the key of a pkcs11 seal; this or seal.key_id, or both.
    "seal.key_label";
    /// Identifier of the key of a pkcs11 seal, hexadecimal.
    "seal.key_id";
    /// Wrapping mechanism of a pkcs11 seal: AES-GCM, RSA-OAEP (with SHA-256) or RSA-OAEP-SHA1.
    "seal.mechanism" = "AES-GCM";
    /// File of the PIN of a pkcs11 seal's token, mode 0600.
    "seal.pin_file";
    /// PIN of a pkcs11 seal's token, instead of seal.pin_file.
    "seal.pin" in environment;
    /// Identifier, ARN or alias of the symmetric key of a cloudakms seal.
    "seal.kms_key";
    /// Region of the key of a cloudakms seal; default: the region in the process's environment.
    "seal.region";
    /// URL of the key service of a cloudakms seal, instead of the region's own.
    "seal.endpoint";
    /// Identifier of the access key of a cloudakms seal; default: the credential in the process's environment.
    "seal.access_key";
    /// File of the secret of seal.access_key, mode 0600.
    "seal.secret_key_file";
    /// Secret of seal.access_key, instead of seal.secret_key_file.
    "seal.secret_key" in environment;
    /// Threads that serve requests; 0 is one per core.
    "workers" = "0";
    /// Maximum number of connections; 0 derives it from the limit of open files, at most 10000.
    "max_connections" = "0";
    /// Maximum number of connections from one address; 0 is half of the maximum number of connections.
    "max_connections_per_address" = "0";
    /// Maximum number of connections of public_listen; 0 is a quarter of all, at most 1000.
    "public_max_connections" = "0";
    /// Maximum number of writes in progress; further requests get 503.
    "commit_queue" = "4096";
    /// Maximum number of PostgreSQL connections for the projects API, at least 4; all workers share them.
    "projects_connections" = "8";
    /// Number of 2048-bit RSA keys to keep in stock, at most 4096 keys; 0 disables the stock.
    "rsa_key_stock.2048" = "512";
    /// Number of 3072-bit RSA keys to keep in stock.
    "rsa_key_stock.3072" = "0";
    /// Number of 4096-bit RSA keys to keep in stock.
    "rsa_key_stock.4096" = "0";
    /// Maximum size of a request body, bytes.
    "max_request_size" = "4194304";
    /// Maximum bytes of request bodies in memory; further requests get 503.
    "max_bodies_in_flight" = "268435456";
    /// Maximum time for handling a request.
    "max_request_duration" = "90s";
    /// Maximum time for a request body to arrive.
    "body_timeout" = "30s";
    /// Accept the header names and HTTP methods of compatible clients.
    "compat" = "true";
    /// Networks of the proxies whose X-Forwarded-For is trusted; none by default.
    "trusted_proxies";
    /// Scheme and authority by which clients reach this server, for absolute links.
    "external_url";
    /// Requests per second that a user of the projects API may make; 0 is no limit.
    "projects_rate_limit" = "0";
    /// First part of the serial numbers of certificates: time (of issue) or random.
    "serial_numbers" = "time";
    /// Audit devices, which record every request and response: tables, or the path of one file.
    "audit";
    /// Log filter: a level (off, error, warn, info, debug, trace), or target=level pairs joined by commas.
    "log" = "info";
    /// Log a line for every request, at level info with target signet::access.
    "log_access" = "true";
    /// Format of log lines: text or json.
    "log_format" = "text";
    /// PKCS#11 libraries by name: a table, or NAME=PATH pairs joined by commas.
    "pkcs11_libraries";
    /// Folder of the credential files that managed keys of type cloudckms may name.
    "google_credentials_dir";
    /// Base URL of the key service of cloudckms.
    "google_endpoint" = "https://cloudkms.googleapis.com";
    /// URL where a service account of cloudckms gets its access tokens.
    "google_token_url" = "https://oauth2.googleapis.com/token";
    /// Base URL of the service that issues the tokens of this machine's service account, for cloudckms.
    "google_metadata_url" = "http://metadata.google.internal";
    /// Generate keys of cloudckms in software instead of in a hardware module.
    "google_software_keys" = "false";
    /// Base URL of the directory that issues tokens for cloudbkeyvault; overrides that of a key's field environment.
    "azure_authority_url";
    /// Base URL of a key store of cloudbkeyvault; names in braces are fields of the managed key.
    "azure_vault_url_template" = "https://{vault_name}.{resource}";
    /// API version of the key stores of cloudbkeyvault.
    "azure_api_version" = "7.4";
    /// DNS suffixes that the resource of a cloudbkeyvault key may end in, in addition to the provider's.
    "azure_extra_suffixes";
    /// Base URL of the service that issues the tokens of this machine's identity, for cloudbkeyvault.
    "azure_imds_url" = "http://169.254.169.254";
    /// Allow auth methods, managed keys and policy engines to send requests to loopback addresses.
    "outbound_loopback" = "false";
    /// Base URL of the directory for cloudb auth methods; overrides the URL of their cloud.
    "cloudb.authority_url";
    /// Base URL of the resource API for cloudb auth methods; overrides the URL of their cloud.
    "cloudb.arm_url";
    /// Base URL of the application API for cloudb auth methods; overrides the URL of their cloud.
    "cloudb.graph_url";
    /// Base URL of the service that issues the tokens of this machine's identity, for cloudb auth methods.
    "cloudb.imds_url" = "http://169.254.169.254";
    /// PEM file of the trusted authorities for the services of cloudb, instead of those of the system.
    "cloudb.ca_file";
}

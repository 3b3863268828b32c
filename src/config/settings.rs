//! The table of all settings.

/// The description of a setting.
pub struct Setting {
    /// The name in the file.
    pub name: &'static str,
    /// The default as text; empty if there is none.
    pub default: &'static str,
    /// `true` if it is read from the environment only.
    pub env_only: bool,
    /// The help text.
    pub help: &'static str,
}

impl Setting {
    /// Returns the name of the environment variable.
    pub fn env(&self) -> String {
        format!("SIGNET_{}", self.name.to_uppercase().replace('.', "_"))
    }
}

const fn setting(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, default, env_only: false, help }
}

const fn secret(name: &'static str, help: &'static str) -> Setting {
    Setting { name, default: "", env_only: true, help }
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    setting("listen", "127.0.0.1:8200", "Address and port to listen on; TLS is required except on the loopback."),
    setting("tls_certificate_file", "", "PEM file of the certificate chain, the server's own first."),
    setting("tls_key_file", "", "PEM file of the private key of the certificate."),
    setting("tls_renew.mount", "", "Mount of this server that renews its certificate; the files are replaced."),
    setting("tls_renew.role", "", "Role of that mount that issues the certificate."),
    setting(
        "tls_renew.names",
        "",
        "Names in the certificate: host names and IP addresses by which clients reach this server.",
    ),
    setting("metrics_listen", "", "Address and port of /metrics without a token, plain HTTP."),
    setting("public_listen", "", "Address and port of CRLs, OCSP and CA certificates for everyone, plain HTTP."),
    setting(
        "public_url",
        "",
        "Scheme and authority that relying parties reach public_listen by, for URLs in certificates.",
    ),
    setting("data_dir", "", "Folder of the embedded store. This or database_url is required."),
    setting("database_url", "", "PostgreSQL database instead of the embedded store."),
    setting("seal_key_file", "", "File of the seal key, mode 0600; by default seal.key in data_dir."),
    secret("seal_key", "The seal key itself, instead of a file: 64 hexadecimal digits or base64 of 32 bytes."),
    setting("seal.type", "file", "Where the seal key is: file, pkcs11 or cloudakms."),
    setting("seal.library", "", "Name of the library of a pkcs11 seal, from pkcs11_libraries."),
    setting("seal.slot", "", "Number of the slot of its token; this or seal.token_label."),
    setting("seal.token_label", "", "Label of its token."),
    setting("seal.key_label", "", "Label of its key; this or seal.key_id, or both."),
    setting("seal.key_id", "", "Identifier of its key, hexadecimal."),
    setting(
        "seal.mechanism",
        "AES-GCM",
        "Its mechanism for wrapping: AES-GCM, RSA-OAEP (with SHA-256) or RSA-OAEP-SHA1.",
    ),
    setting("seal.pin_file", "", "File of the PIN of its token, mode 0600."),
    secret("seal.pin", "The PIN itself, instead of a file."),
    setting("seal.kms_key", "", "Identifier, ARN or alias of the symmetric key of a cloudakms seal."),
    setting("seal.region", "", "Its region; by default that of the process's environment."),
    setting("seal.endpoint", "", "URL of the service, instead of the region's own."),
    setting(
        "seal.access_key",
        "",
        "Identifier of its access key; without one the credential is that of the process's environment.",
    ),
    setting("seal.secret_key_file", "", "File of the secret of that access key, mode 0600."),
    secret("seal.secret_key", "The secret itself, instead of a file."),
    setting("workers", "0", "Threads that serve requests; 0 is one per core."),
    setting(
        "max_connections",
        "0",
        "Maximum number of connections; 0 derives it from the limit of open files, at most 10000.",
    ),
    setting("max_connections_per_address", "0", "Maximum number of connections from one address; 0 is half of all."),
    setting(
        "public_max_connections",
        "0",
        "Maximum number of connections of public_listen; 0 is a quarter of all, at most 1000.",
    ),
    setting("commit_queue", "4096", "Maximum number of writes in progress; further requests get 503."),
    setting(
        "rsa_key_stock.2048",
        "512",
        "Number of 2048-bit RSA keys to keep in stock, at most 4096 keys; 0 disables the stock.",
    ),
    setting("rsa_key_stock.3072", "0", "The same for 3072 bits."),
    setting("rsa_key_stock.4096", "0", "The same for 4096 bits."),
    setting("max_request_size", "4194304", "Largest request body, bytes."),
    setting(
        "max_bodies_in_flight",
        "268435456",
        "Maximum bytes of request bodies in memory; further requests get 503.",
    ),
    setting("max_request_duration", "90s", "Longest time a request may take."),
    setting("body_timeout", "30s", "Longest time a request body may take to arrive."),
    setting("compat", "true", "Accept the header names and verbs of known clients."),
    setting("trusted_proxies", "", "Networks of the proxies whose X-Forwarded-For is trusted; none by default."),
    setting("external_url", "", "Scheme and authority that clients reach the server by, for absolute links."),
    setting("projects_rate_limit", "0", "Requests per second that a user of the projects API may make; 0 is no limit."),
    setting("serial_numbers", "time", "Start of the serial numbers of certificates: time, or random."),
    setting("audit", "", "Audit devices, which record every request and response: tables, or the path of one file."),
    setting(
        "log",
        "info",
        "Log filter: a level (off, error, warn, info, debug, trace), or target=level pairs joined by commas.",
    ),
    setting("log_access", "true", "Log a line for every request, at level info with target signet::access."),
    setting("log_format", "text", "Format of log lines: text or json."),
    setting("pkcs11_libraries", "", "PKCS#11 libraries by name: a table, or NAME=PATH pairs joined by commas."),
    setting(
        "google_credentials_dir",
        "",
        "Folder of the credential files that managed keys of type cloudckms may name.",
    ),
    setting("google_endpoint", "https://cloudkms.googleapis.com", "Base URL of the key service of cloudckms."),
    setting(
        "google_token_url",
        "https://oauth2.googleapis.com/token",
        "URL where a service account of cloudckms gets its access tokens.",
    ),
    setting(
        "google_metadata_url",
        "http://metadata.google.internal",
        "Base URL of the service that issues the tokens of the machine's own account, for cloudckms.",
    ),
    setting("google_software_keys", "false", "Generate keys of cloudckms in software instead of in a hardware module."),
    setting(
        "azure_authority_url",
        "",
        "Base URL of the directory for cloudbkeyvault; overrides the URL of a key's environment.",
    ),
    setting(
        "azure_vault_url_template",
        "https://{vault_name}.{resource}",
        "Base URL of a key store of cloudbkeyvault, with parameters of the key in braces.",
    ),
    setting("azure_api_version", "7.4", "Version of the interface of the key stores of cloudbkeyvault."),
    setting(
        "azure_extra_suffixes",
        "",
        "DNS suffixes that the resource of a cloudbkeyvault key may end in, in addition to the provider's.",
    ),
    setting(
        "azure_imds_url",
        "http://169.254.169.254",
        "Base URL of the service that issues the tokens of the machine's own identity, for cloudbkeyvault.",
    ),
    setting("outbound_loopback", "false", "Allow auth methods, managed keys and policy engines to call this machine."),
    setting(
        "cloudb.authority_url",
        "",
        "Base URL of the directory for cloudb auth methods; overrides the URL of their cloud.",
    ),
    setting(
        "cloudb.arm_url",
        "",
        "Base URL of the resource API for cloudb auth methods; overrides the URL of their cloud.",
    ),
    setting(
        "cloudb.graph_url",
        "",
        "Base URL of the application API for cloudb auth methods; overrides the URL of their cloud.",
    ),
    setting(
        "cloudb.imds_url",
        "http://169.254.169.254",
        "Base URL of the service of the machine's own identity, for auth methods of type cloudb.",
    ),
    setting(
        "cloudb.ca_file",
        "",
        "PEM file of the certificate authorities of these four services, instead of the system's.",
    ),
];

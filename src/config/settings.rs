//! The table of all settings.

/// The description of a setting.
pub struct Setting {
    /// The name in the file.
    pub name: &'static str,
    /// The name of the environment variable.
    pub env: &'static str,
    /// The default as text; empty if there is none.
    pub default: &'static str,
    /// `true` if it is read from the environment only.
    pub env_only: bool,
    /// The help text.
    pub help: &'static str,
}

const fn setting(name: &'static str, env: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, env, default, env_only: false, help }
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    setting(
        "listen",
        "SIGNET_LISTEN",
        "127.0.0.1:8200",
        "Address and port to listen on; TLS is required except on the loopback.",
    ),
    setting(
        "tls_certificate_file",
        "SIGNET_TLS_CERTIFICATE_FILE",
        "",
        "PEM file of the certificate chain, the server's own first.",
    ),
    setting("tls_key_file", "SIGNET_TLS_KEY_FILE", "", "PEM file of the private key of the certificate."),
    setting(
        "tls_renew.mount",
        "SIGNET_TLS_RENEW_MOUNT",
        "",
        "Mount of this server that renews its certificate; the files are replaced.",
    ),
    setting("tls_renew.role", "SIGNET_TLS_RENEW_ROLE", "", "Role of that mount that issues the certificate."),
    setting(
        "tls_renew.names",
        "SIGNET_TLS_RENEW_NAMES",
        "",
        "Names in the certificate: host names and IP addresses by which clients reach this server.",
    ),
    setting("metrics_listen", "SIGNET_METRICS_LISTEN", "", "Address and port of /metrics without a token, plain HTTP."),
    setting(
        "public_listen",
        "SIGNET_PUBLIC_LISTEN",
        "",
        "Address and port of CRLs, OCSP and CA certificates for everyone, plain HTTP.",
    ),
    setting(
        "public_url",
        "SIGNET_PUBLIC_URL",
        "",
        "Scheme and authority that relying parties reach public_listen by, for URLs in certificates.",
    ),
    setting("data_dir", "SIGNET_DATA_DIR", "", "Folder of the embedded store. This or database_url is required."),
    setting("database_url", "SIGNET_DATABASE_URL", "", "PostgreSQL database instead of the embedded store."),
    setting(
        "seal_key_file",
        "SIGNET_SEAL_KEY_FILE",
        "",
        "File of the seal key, mode 0600; by default seal.key in data_dir.",
    ),
    Setting {
        name: "seal_key",
        env: "SIGNET_SEAL_KEY",
        default: "",
        env_only: true,
        help: "The seal key itself, instead of a file: 64 hexadecimal digits or base64 of 32 bytes.",
    },
    setting("seal.type", "SIGNET_SEAL_TYPE", "file", "Where the seal key is: file, pkcs11 or cloudakms."),
    setting("seal.library", "SIGNET_SEAL_LIBRARY", "", "Name of the library of a pkcs11 seal, from pkcs11_libraries."),
    setting("seal.slot", "SIGNET_SEAL_SLOT", "", "Number of the slot of its token; this or seal.token_label."),
    setting("seal.token_label", "SIGNET_SEAL_TOKEN_LABEL", "", "Label of its token."),
    setting("seal.key_label", "SIGNET_SEAL_KEY_LABEL", "", "Label of its key; this or seal.key_id, or both."),
    setting("seal.key_id", "SIGNET_SEAL_KEY_ID", "", "Identifier of its key, hexadecimal."),
    setting(
        "seal.mechanism",
        "SIGNET_SEAL_MECHANISM",
        "AES-GCM",
        "Its mechanism for wrapping: AES-GCM, RSA-OAEP (with SHA-256) or RSA-OAEP-SHA1.",
    ),
    setting("seal.pin_file", "SIGNET_SEAL_PIN_FILE", "", "File of the PIN of its token, mode 0600."),
    Setting {
        name: "seal.pin",
        env: "SIGNET_SEAL_PIN",
        default: "",
        env_only: true,
        help: "The PIN itself, instead of a file.",
    },
    setting(
        "seal.kms_key",
        "SIGNET_SEAL_KMS_KEY",
        "",
        "Identifier, ARN or alias of the symmetric key of a cloudakms seal.",
    ),
    setting("seal.region", "SIGNET_SEAL_REGION", "", "Its region; by default that of the process's environment."),
    setting("seal.endpoint", "SIGNET_SEAL_ENDPOINT", "", "URL of the service, instead of the region's own."),
    setting(
        "seal.access_key",
        "SIGNET_SEAL_ACCESS_KEY",
        "",
        "Identifier of its access key; without one the credential is that of the process's environment.",
    ),
    setting(
        "seal.secret_key_file",
        "SIGNET_SEAL_SECRET_KEY_FILE",
        "",
        "File of the secret of that access key, mode 0600.",
    ),
    Setting {
        name: "seal.secret_key",
        env: "SIGNET_SEAL_SECRET_KEY",
        default: "",
        env_only: true,
        help: "The secret itself, instead of a file.",
    },
    setting("workers", "SIGNET_WORKERS", "0", "Threads that serve requests; 0 is one per core."),
    setting(
        "max_connections",
        "SIGNET_MAX_CONNECTIONS",
        "0",
        "Maximum number of connections; 0 derives it from the limit of open files, at most 10000.",
    ),
    setting(
        "max_connections_per_address",
        "SIGNET_MAX_CONNECTIONS_PER_ADDRESS",
        "0",
        "Maximum number of connections from one address; 0 is half of all.",
    ),
    setting(
        "public_max_connections",
        "SIGNET_PUBLIC_MAX_CONNECTIONS",
        "0",
        "Maximum number of connections of public_listen; 0 is a quarter of all, at most 1000.",
    ),
    setting(
        "commit_queue",
        "SIGNET_COMMIT_QUEUE",
        "4096",
        "Maximum number of writes in progress; further requests get 503.",
    ),
    setting(
        "rsa_key_stock.2048",
        "SIGNET_RSA_KEY_STOCK_2048",
        "512",
        "Number of 2048-bit RSA keys to keep in stock, at most 4096 keys; 0 disables the stock.",
    ),
    setting("rsa_key_stock.3072", "SIGNET_RSA_KEY_STOCK_3072", "0", "The same for 3072 bits."),
    setting("rsa_key_stock.4096", "SIGNET_RSA_KEY_STOCK_4096", "0", "The same for 4096 bits."),
    setting("max_request_size", "SIGNET_MAX_REQUEST_SIZE", "4194304", "Largest request body, bytes."),
    setting(
        "max_bodies_in_flight",
        "SIGNET_MAX_BODIES_IN_FLIGHT",
        "268435456",
        "Maximum bytes of request bodies in memory; further requests get 503.",
    ),
    setting("max_request_duration", "SIGNET_MAX_REQUEST_DURATION", "90s", "Longest time a request may take."),
    setting("body_timeout", "SIGNET_BODY_TIMEOUT", "30s", "Longest time a request body may take to arrive."),
    setting("compat", "SIGNET_COMPAT", "true", "Accept the header names and verbs of known clients."),
    setting(
        "trusted_proxies",
        "SIGNET_TRUSTED_PROXIES",
        "",
        "Networks of the proxies whose X-Forwarded-For is trusted; none by default.",
    ),
    setting(
        "external_url",
        "SIGNET_EXTERNAL_URL",
        "",
        "Scheme and authority that clients reach the server by, for absolute links.",
    ),
    setting(
        "projects_rate_limit",
        "SIGNET_PROJECTS_RATE_LIMIT",
        "0",
        "Requests per second that a user of the projects API may make; 0 is no limit.",
    ),
    setting(
        "serial_numbers",
        "SIGNET_SERIAL_NUMBERS",
        "time",
        "Start of the serial numbers of certificates: time, or random.",
    ),
    setting(
        "audit",
        "SIGNET_AUDIT",
        "",
        "Audit devices, which record every request and response: tables, or the path of one file.",
    ),
    setting(
        "log",
        "SIGNET_LOG",
        "info",
        "Log filter: a level (off, error, warn, info, debug, trace), or target=level pairs joined by commas.",
    ),
    setting(
        "log_access",
        "SIGNET_LOG_ACCESS",
        "true",
        "Log a line for every request, at level info with target signet::access.",
    ),
    setting("log_format", "SIGNET_LOG_FORMAT", "text", "Format of log lines: text or json."),
    setting(
        "pkcs11_libraries",
        "SIGNET_PKCS11_LIBRARIES",
        "",
        "PKCS#11 libraries by name: a table, or NAME=PATH pairs joined by commas.",
    ),
    setting(
        "google_credentials_dir",
        "SIGNET_GOOGLE_CREDENTIALS_DIR",
        "",
        "Folder of the credential files that managed keys of type cloudckms may name.",
    ),
    setting(
        "google_endpoint",
        "SIGNET_GOOGLE_ENDPOINT",
        "https://cloudkms.googleapis.com",
        "Base URL of the key service of cloudckms.",
    ),
    setting(
        "google_token_url",
        "SIGNET_GOOGLE_TOKEN_URL",
        "https://oauth2.googleapis.com/token",
        "URL where a service account of cloudckms gets its access tokens.",
    ),
    setting(
        "google_metadata_url",
        "SIGNET_GOOGLE_METADATA_URL",
        "http://metadata.google.internal",
        "Base URL of the service that issues the tokens of the machine's own account, for cloudckms.",
    ),
    setting(
        "google_software_keys",
        "SIGNET_GOOGLE_SOFTWARE_KEYS",
        "false",
        "Generate keys of cloudckms in software instead of in a hardware module.",
    ),
    setting(
        "azure_authority_url",
        "SIGNET_AZURE_AUTHORITY_URL",
        "",
        "Base URL of the directory for cloudbkeyvault; overrides the URL of a key's environment.",
    ),
    setting(
        "azure_vault_url_template",
        "SIGNET_AZURE_VAULT_URL_TEMPLATE",
        "https://{vault_name}.{resource}",
        "Base URL of a key store of cloudbkeyvault, with parameters of the key in braces.",
    ),
    setting(
        "azure_api_version",
        "SIGNET_AZURE_API_VERSION",
        "7.4",
        "Version of the interface of the key stores of cloudbkeyvault.",
    ),
    setting(
        "azure_extra_suffixes",
        "SIGNET_AZURE_EXTRA_SUFFIXES",
        "",
        "DNS suffixes that the resource of a cloudbkeyvault key may end in, in addition to the provider's.",
    ),
    setting(
        "azure_imds_url",
        "SIGNET_AZURE_IMDS_URL",
        "http://169.254.169.254",
        "Base URL of the service that issues the tokens of the machine's own identity, for cloudbkeyvault.",
    ),
    setting(
        "outbound_loopback",
        "SIGNET_OUTBOUND_LOOPBACK",
        "false",
        "Allow auth methods, managed keys and policy engines to call this machine.",
    ),
    setting(
        "cloudb.authority_url",
        "SIGNET_CLOUDB_AUTHORITY_URL",
        "",
        "Base URL of the directory for cloudb auth methods; overrides the URL of their cloud.",
    ),
    setting(
        "cloudb.arm_url",
        "SIGNET_CLOUDB_ARM_URL",
        "",
        "Base URL of the resource API for cloudb auth methods; overrides the URL of their cloud.",
    ),
    setting(
        "cloudb.graph_url",
        "SIGNET_CLOUDB_GRAPH_URL",
        "",
        "Base URL of the application API for cloudb auth methods; overrides the URL of their cloud.",
    ),
    setting(
        "cloudb.imds_url",
        "SIGNET_CLOUDB_IMDS_URL",
        "http://169.254.169.254",
        "Base URL of the service of the machine's own identity, for auth methods of type cloudb.",
    ),
    setting(
        "cloudb.ca_file",
        "SIGNET_CLOUDB_CA_FILE",
        "",
        "PEM file of the certificate authorities of these four services, instead of the system's.",
    ),
];

//! `signet dev`: a development server with plain HTTP on the loopback and a root token on the screen.
//!
//! The same token is also valid in the projects API, for an owner of the organization `dev`.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::audit::AuditDeviceSettings;
use crate::auth::LoginSettings;
use crate::auth::mounts::Mount;
use crate::clock::Clock;
use crate::config;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::http::settings::HttpSettings;
use crate::keys::{CloudSettings, Libraries};
use crate::mounts::lifetime_limits;
use crate::nodes::SKEW_LIMIT;
use crate::outbound::EgressPolicy;
use crate::pki::Authority;
use crate::pki::ca::changes;
use crate::pki::ca::key::KeyRequest;
use crate::pki::ca::root::{self, RootRequest};
use crate::pki::check::request::{RequestedKey, RequestedNames, RequestedValidity};
use crate::pki::mount::role::{Role, RoleKeys, SignatureBits};
use crate::projects::store::SERVER_CALLER;
use crate::projects::{Projects, SessionAccess, setup, token};
use crate::random;
use crate::server::{ConnectionLimits, STORE_PROBE_INTERVAL, Server, ServerOptions, Signals};
use crate::storage::inspection::{StoreInspection, inspect};
use crate::storage::seal::SealKey;
use crate::storage::{self, Database, IfMissing, PostgresUrl};
use futures_util::FutureExt as _;
use serde_json::json;

use super::files::create_folder;
use super::output;

#[derive(clap::Args)]
pub(crate) struct DevArguments {
    /// Address to listen on, on the loopback; port 0 selects a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8200", help_heading = "Listeners")]
    listen: SocketAddr,
    /// Keep the data and the seal key in this folder; by default all data is deleted when the server stops.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Root token; default: a random one.
    #[arg(long, value_name = "TOKEN", env = "SIGNET_DEV_ROOT_TOKEN", hide_env_values = true)]
    root_token: Option<String>,
    /// PostgreSQL database instead of the embedded store, such as postgres://user@localhost/signet; needs
    /// --data-dir for the seal key.
    #[arg(long, value_name = "URL", env = "SIGNET_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// PKCS#11 library for managed keys, with a name. May be repeated; in the environment separated by commas.
    #[arg(long, value_name = "NAME=PATH", env = "SIGNET_PKCS11_LIBRARIES", value_delimiter = ',')]
    pkcs11_library: Vec<String>,
    /// File in which every request and response is recorded.
    #[arg(long, value_name = "FILE", env = "SIGNET_AUDIT")]
    audit_file: Option<PathBuf>,
    /// Address that serves only CRLs, OCSP and CA certificates, on the loopback; port 0 selects a free one.
    #[arg(long, value_name = "ADDRESS", env = "SIGNET_PUBLIC_LISTEN", help_heading = "Listeners")]
    public_listen: Option<SocketAddr>,
}

const TOKEN_NAME: &str = "dev";
const DEV_ORGANIZATION: &str = "dev";
/// Lifetime of the root certificate, and maximum lifetime of certificates in its mount.
const ROOT_TTL: Duration = Duration::from_secs(87_600 * 3_600);
/// Maximum number of pending writes to the store.
const MAX_PENDING_WRITES: usize = 4096;

pub(crate) async fn run(arguments: DevArguments) -> Result<()> {
    if arguments.database_url.is_some() && arguments.data_dir.is_none() {
        return Err(Error::invalid(
            "--database-url: needs --data-dir for the seal key, without which the database cannot be read",
        ));
    }
    if !arguments.listen.ip().is_loopback() {
        return Err(Error::invalid(
            "--listen: a development server listens on the loopback only, such as 127.0.0.1:8200",
        ));
    }
    if arguments.public_listen.is_some_and(|address| !address.ip().is_loopback()) {
        return Err(Error::invalid(
            "--public-listen: a development server listens on the loopback only, such as 127.0.0.1:8080",
        ));
    }
    // From here on, SIGTERM and SIGINT shut the server down in order, even while it starts.
    let signals = Signals::watch()?;
    let temporary = TemporaryFolder::new_unless(arguments.data_dir.is_some())?;
    let folder = arguments.data_dir.as_deref().unwrap_or(temporary.path());
    let database = match &arguments.database_url {
        Some(url) => Database::Postgres(PostgresUrl::parse(url)?),
        None => Database::Embedded(folder.to_owned()),
    };
    let data_location = match (&database, &arguments.data_dir) {
        (Database::Postgres(_), _) => format!("Data is kept in the database, the seal key in {}.", folder.display()),
        (Database::Embedded(_), Some(folder)) => format!("Data is kept in {}.", folder.display()),
        (Database::Embedded(_), None) => "Data is temporary and deleted when the server stops.".to_owned(),
    };
    let libraries = parse_libraries(&arguments.pkcs11_library)?;
    let audit = arguments.audit_file.map(|path| AuditDeviceSettings::file("file", path)).into_iter().collect();
    let options = dev_server_options(folder, database, arguments.listen, libraries.clone()).await?;
    let options = ServerOptions { audit, public_listen: arguments.public_listen, ..options };
    let server = Server::open(options).await?;
    let prepared = prepare_server(&server, arguments.root_token.as_deref()).await;
    let token = match prepared {
        Ok(token) => token,
        Err(error) => {
            server.close().await?;
            return Err(error);
        }
    };
    let running = server.start().await?;
    print_startup(running.address(), running.public_address(), &token, &data_location)?;
    running.run_until_stopped(signals, Arc::new(move || Ok(libraries.clone()))).await
}

fn parse_libraries(pairs: &[String]) -> Result<Libraries> {
    let pairs = pairs.iter().map(|pair| pair.trim()).filter(|pair| !pair.is_empty());
    let stanza = |pair: &str| match pair.split_once('=') {
        Some((name, path)) => Ok((name.trim().to_owned(), PathBuf::from(path.trim()))),
        None => Err(Error::invalid("--pkcs11-library: must be NAME=PATH")),
    };
    Libraries::new(pairs.map(stanza).collect::<Result<Vec<_>>>()?)
}

async fn dev_server_options(
    folder: &Path,
    database: Database,
    listen: SocketAddr,
    pkcs11_libraries: Libraries,
) -> Result<ServerOptions> {
    create_folder(format_args!("--data-dir: {}", folder.display()), folder, 0o700)?;
    let seal_key = read_or_create_seal_key(&folder.join("seal.key"), &database).await?;
    let clock = Clock::system();
    let storage = storage::StorageOptions {
        database,
        seal_key,
        clock: clock.clone(),
        commit_queue: MAX_PENDING_WRITES,
        if_missing: IfMissing::Create,
    };
    let settings = HttpSettings { open_metrics: true, ..HttpSettings::default() };
    let (cloud, cloudb) = config::cloud_settings_from_environment(|name| std::env::var(name).ok())?;
    let rsa_key_stock = config::rsa_key_stock_from_environment(|name| std::env::var(name).ok())?;
    let reach = EgressPolicy { loopback: true };
    Ok(ServerOptions {
        listen,
        tls: None,
        metrics_listen: None,
        public_listen: None,
        workers: 0,
        connections: ConnectionLimits::default(),
        clock,
        storage,
        pkcs11_libraries,
        cloud: CloudSettings { egress_policy: reach, ..cloud }.with_environment(),
        signers: None,
        rsa_key_stock,
        logins: LoginSettings { reach, cloudb }.with_environment(),
        settings,
        audit: Vec::new(),
        in_process_audit_devices: Vec::new(),
        skew_limit: SKEW_LIMIT,
        store_probe_interval: STORE_PROBE_INTERVAL,
    })
}

/// Reads the seal key from `file`. If the file is missing, creates a key for an empty store; for an existing store,
/// fails, because only its own key opens it.
async fn read_or_create_seal_key(file: &Path, database: &Database) -> Result<SealKey> {
    if file.exists() {
        return SealKey::from_file(file);
    }
    match inspect(database.clone(), &SealKey::random()).await {
        Ok(StoreInspection::Nothing) => SealKey::create_file(file),
        Err(error) if !error.text().starts_with("seal") => Err(error),
        _ => Err(Error::invalid(format!(
            "--data-dir: file does not exist: {}. The store is sealed by this key: restore the seal key",
            file.display()
        ))),
    }
}

/// Creates the root token (and revokes the previous one), a PKI mount with a certificate authority, and the
/// organization `dev`. Returns the root token.
async fn prepare_server(server: &Server, root_token: Option<&str>) -> Result<String> {
    let shared = server.shared();
    let token = shared.auth.root_token(root_token, TOKEN_NAME).await?;
    let mount = match shared.auth.mounts().get("pki") {
        Some(mount) => mount.clone(),
        None => {
            let wanted = parse_fields(json!({ "type": "pki", "config": { "max_lease_ttl": ROOT_TTL.as_secs() } }))?;
            shared.mounts.enable("pki", &wanted).await?
        }
    };
    prepare_authority(&*shared.mounts.authority(&mount).await?, &mount).await?;
    prepare_projects(&shared.projects, &token).await?;
    Ok(token)
}

/// Creates the organization `dev` and its owner, whose token is `token`. Revokes the owner's previous token.
async fn prepare_projects(projects: &Projects, token: &str) -> Result<()> {
    let token = token::from_text(token).ok_or_else(|| Error::invalid("--root-token: is too long"))?;
    let prepared = projects.run("dev", SessionAccess::Write(SERVER_CALLER), move |mut tx| {
        let token = token.clone();
        async move { setup::ensure_organization(&mut tx, DEV_ORGANIZATION, "dev@dev.test", &token).await }.boxed_local()
    });
    Ok(prepared.await?)
}

async fn prepare_authority(authority: &Authority, mount: &Mount) -> Result<()> {
    if authority.view().signer("default").is_none() {
        let limits = lifetime_limits(mount);
        let key = RequestedKey { key_type: Some("ec".to_owned()), bits: Some(256) };
        let root = RootRequest {
            key: KeyRequest { key, ..KeyRequest::default() },
            names: RequestedNames { common_name: "Signet dev root".to_owned(), ..RequestedNames::default() },
            validity: RequestedValidity { ttl: Some(ROOT_TTL), ..RequestedValidity::default() },
            ..RootRequest::default()
        };
        root::generate(authority, root, limits, TOKEN_NAME).await?;
    }
    if authority.view().role("dev").is_none() {
        let role = Role {
            allow_any_name: true,
            keys: RoleKeys::new("ec", 256)?,
            signature_bits: SignatureBits::ISSUER_DEFAULT,
            ttl: 72 * 3600,
            max_ttl: 720 * 3600,
            ..Role::default()
        };
        changes::write_role(authority, "dev", move |_| Ok(role.clone())).await?;
    }
    Ok(())
}

fn parse_fields(body: serde_json::Value) -> Result<Fields> {
    Fields::parse(body.to_string().as_bytes())
}

fn print_startup(address: SocketAddr, public: Option<SocketAddr>, token: &str, data_location: &str) -> Result<()> {
    let listener = public.map(|public| format!("public listener on http://{public}\n")).unwrap_or_default();
    let text = format!(
        "listening on http://{address}\n{listener}
This is a development server: no TLS, a root token on the screen, the seal key next to
the data. Never use it in production.
{data_location}

token: {token}

curl -H 'X-Service-Token: {token}' -d '{{\"common_name\":\"web.dev.test\"}}' \\
    http://{address}/v1/pki/issue/dev

In the projects API, the token belongs to an owner of the organization {DEV_ORGANIZATION}:

curl -H 'Authorization: Bearer {token}' \\
    http://{address}/api/v2/organizations/{DEV_ORGANIZATION}/projects"
    );
    let object = json!({
        "address": format!("http://{address}"),
        "public_address": public.map(|public| format!("http://{public}")),
        "token": token,
        "storage": data_location,
    });
    output::write_result(&object, text).map_err(Error::internal)
}

struct TemporaryFolder(Option<PathBuf>);

impl TemporaryFolder {
    fn new_unless(kept: bool) -> Result<Self> {
        if kept {
            return Ok(Self(None));
        }
        let path = std::env::temp_dir().join(format!("signet-dev-{}", random::base62(16)));
        // Not recursive, so that creation fails if the folder exists: another process may use it.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|e| Error::unavailable("cannot create a temporary folder", e))?;
        Ok(Self(Some(path)))
    }

    fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // An error is ignored, because the system cleans up its folder for temporary files.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

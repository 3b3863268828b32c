//! Test harness: starts a real server on a free port over a temporary folder, and a small HTTP client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use serde_json::{Value, json};
use signet::audit::{AuditDevice, AuditDeviceSettings};
use signet::auth::{CloudbSettings, LoginSettings};
use signet::clock::{Clock, Time};
use signet::config::TlsFiles;
use signet::error::Kind;
use signet::fields::Fields;
use signet::http::settings::HttpSettings;
use signet::http::state::ServerState;
use signet::keys::signing::Signers;
use signet::keys::{CloudSettings, Libraries, StockSizes};
use signet::nodes::SKEW_LIMIT;
use signet::outbound::EgressPolicy;
use signet::server::tls::ServerCertificate;
use signet::server::{ConnectionLimits, RunningServer, Server, ServerOptions};
use signet::storage::seal::SealKey;
use signet::storage::{self, Database, PostgresUrl};

use crate::cluster;
use crate::faults::double::Faults;

/// Interval of the store check: none runs during a test.
const NEVER: Duration = Duration::from_secs(86_400);

/// Defines a test in the module `$place` for each function `async fn name(server: &T)`, where `$start` yields a `T`.
/// The server is stopped after the test.
macro_rules! tests_on {
    ($($place:ident: $start:expr => $($name:ident),+ $(,)?);+ $(;)?) => {
        $(mod $place {
            use super::*;
            $(#[actix_web::test] async fn $name() {
                let server = $start.await;
                super::$name(&server).await;
                server.stop().await;
            })+
        })+
    };
}
pub(crate) use tests_on;

/// Defines a test on each store for each function `async fn name(app: &App)`.
macro_rules! tests_on_both_stores {
    ($($name:ident),+ $(,)?) => {
        $crate::support::tests_on!(embedded: App::start() => $($name),+);
        $crate::support::tests_on!(postgres: App::builder().postgres().start() => $($name),+);
    };
}
pub(crate) use tests_on_both_stores;

#[derive(Clone)]
pub struct Builder {
    clock: Clock,
    settings: HttpSettings,
    queue: usize,
    database: Option<Arc<cluster::Database>>,
    faults: Option<Arc<Faults>>,
    skew_limit: Duration,
    tls: Option<TlsFiles>,
    listeners: Vec<Arc<dyn AuditDevice>>,
    audit: Vec<AuditDeviceSettings>,
    libraries: Libraries,
    cloud: CloudSettings,
    signers: Option<Arc<dyn Signers>>,
    cloudb: CloudbSettings,
    public_listen: Option<SocketAddr>,
}

/// Name of the PKCS #11 library that every test server has. Its file is not a module: keys on it can be configured, but
/// not used.
pub const NO_MODULE: &str = "none";

impl Builder {
    pub fn libraries(mut self, libraries: Libraries) -> Self {
        self.libraries = libraries;
        self
    }

    /// Endpoints of the cloud services of managed keys.
    pub fn cloud(mut self, cloud: CloudSettings) -> Self {
        self.cloud = cloud;
        self
    }

    /// Server settings of the `cloudb` login method.
    pub fn cloudb(mut self, settings: CloudbSettings) -> Self {
        self.cloudb = settings;
        self
    }

    /// Replaces the registered managed keys as signers.
    pub fn signers(mut self, signers: Arc<dyn Signers>) -> Self {
        self.signers = Some(signers);
        self
    }

    /// TLS instead of plain HTTP. The clients of this module do not verify the certificate.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// Adds the public listener for relying parties.
    pub fn public(mut self) -> Self {
        self.public_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        self
    }

    pub fn manual_clock(mut self, now: Time) -> Self {
        self.clock = Clock::manual(now);
        // Such a clock differs from the database's on purpose.
        self.skew_limit = Duration::MAX;
        self
    }

    /// Maximum difference to the clock of PostgreSQL.
    pub fn skew_limit(mut self, limit: Duration) -> Self {
        self.skew_limit = limit;
        self
    }

    pub fn settings(mut self, change: impl FnOnce(&mut HttpSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// The server trusts the loopback as a proxy.
    pub fn behind_proxy(self) -> Self {
        self.settings(|settings| settings.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()])
    }

    pub fn postgres(self) -> Self {
        self.postgres_of(cluster::shared())
    }

    pub fn postgres_of(mut self, cluster: &Arc<cluster::Cluster>) -> Self {
        self.database = Some(Arc::new(cluster.database()));
        self
    }

    pub fn audit(mut self, devices: impl IntoIterator<Item = Arc<dyn AuditDevice>>) -> Self {
        self.listeners = devices.into_iter().collect();
        self
    }

    pub fn audit_devices(mut self, devices: impl IntoIterator<Item = AuditDeviceSettings>) -> Self {
        self.audit = devices.into_iter().collect();
        self
    }

    /// Injects store faults. Such a server cannot be restarted.
    pub fn faults(mut self, faults: &Arc<Faults>) -> Self {
        self.faults = Some(Arc::clone(faults));
        self
    }

    pub async fn start(self) -> App {
        let folder = tempfile::tempdir().unwrap();
        SealKey::create_file(&folder.path().join("seal.key")).unwrap();
        let server = self.open(&folder).await;
        let shared = server.shared().clone();
        let token = shared.auth.root_token(None, "test").await.unwrap();
        let fields = Fields::parse(br#"{"type":"pki"}"#).unwrap();
        shared.mounts.enable("pki", &fields).await.unwrap();
        let running = server.start().await.unwrap();
        let client = client_of(&running, &token);
        App { running, client, clock: self.clock.clone(), builder: self, folder }
    }

    /// Opens the server. Retries while the data folder is locked: a child process that another test starts inherits the
    /// lock until its exec.
    async fn open(&self, folder: &tempfile::TempDir) -> Server {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let options = self.options(folder);
            let opened = match &self.faults {
                Some(faults) => Server::open_with_stores(options, |stores| faults.between(stores)).await,
                None => Server::open(options).await,
            };
            match opened {
                Err(error) if error.kind() == Kind::Conflict && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                opened => return opened.unwrap(),
            }
        }
    }

    fn options(&self, folder: &tempfile::TempDir) -> ServerOptions {
        let database = match &self.database {
            Some(database) => Database::Postgres(PostgresUrl::parse(&database.url()).unwrap()),
            None => Database::Embedded(folder.path().to_owned()),
        };
        ServerOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: self.tls.clone().map(|files| ServerCertificate::load(files, self.clock.clone()).unwrap()),
            metrics_listen: None,
            public_listen: self.public_listen,
            workers: 2,
            connections: ConnectionLimits::default(),
            clock: self.clock.clone(),
            storage: storage::StorageOptions {
                database,
                seal_key: SealKey::from_file(&folder.path().join("seal.key")).unwrap(),
                clock: self.clock.clone(),
                commit_queue: self.queue,
                if_missing: storage::IfMissing::Create,
            },
            pkcs11_libraries: self.libraries.clone(),
            cloud: CloudSettings { egress_policy: EgressPolicy { loopback: true }, ..self.cloud.clone() },
            signers: self.signers.clone(),
            rsa_key_stock: StockSizes::default(),
            logins: LoginSettings { reach: EgressPolicy { loopback: true }, cloudb: self.cloudb.clone() },
            settings: self.settings.clone(),
            audit: self.audit.clone(),
            in_process_audit_devices: self.listeners.clone(),
            skew_limit: self.skew_limit,
            store_probe_interval: NEVER,
        }
    }
}

pub fn no_module() -> Libraries {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    Libraries::new([(NO_MODULE.to_owned(), file)]).unwrap()
}

pub const METHODS: [&str; 3] = ["approle", "jwt", "cloudb"];

pub fn place_of(kind: &str) -> String {
    match kind {
        "system" => "sys".to_owned(),
        "token" => "auth/token".to_owned(),
        method if METHODS.contains(&method) => format!("auth/{method}"),
        kind => kind.to_owned(),
    }
}

pub struct App {
    running: RunningServer,
    pub client: Client,
    pub clock: Clock,
    builder: Builder,
    folder: tempfile::TempDir,
}

impl App {
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub fn builder() -> Builder {
        let settings = HttpSettings { open_metrics: true, ..HttpSettings::default() };
        Builder {
            clock: Clock::system(),
            settings,
            queue: 1024,
            database: None,
            faults: None,
            skew_limit: SKEW_LIMIT,
            tls: None,
            listeners: Vec::new(),
            audit: Vec::new(),
            libraries: no_module(),
            cloud: CloudSettings::default(),
            signers: None,
            cloudb: CloudbSettings::default(),
            public_listen: None,
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn public(&self) -> Client {
        Client::new(self.running.public_address().unwrap(), &self.client.token)
    }

    pub fn shared(&self) -> &Arc<ServerState> {
        self.running.shared()
    }

    pub fn is_postgres(&self) -> bool {
        self.builder.database.is_some()
    }

    pub fn database(&self) -> &Arc<cluster::Database> {
        self.builder.database.as_ref().unwrap()
    }

    pub async fn with_policies(&self, policies: &[&str]) -> Client {
        self.client.with_new_token(json!({ "policies": policies })).await
    }

    pub async fn policy(&self, name: &str, text: &str) {
        self.client.post(&format!("sys/policies/acl/{name}"), json!({ "policy": text })).await.assert_status(204);
    }

    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Sends raw bytes and reads until the server closes the connection.
    pub async fn raw(&self, request: String) -> String {
        let address = self.running.address();
        tokio::task::spawn_blocking(move || exchange(address, request.as_bytes())).await.unwrap()
    }

    /// Sends a GET whose path no client normalizes.
    pub async fn raw_get(&self, path: &str) -> String {
        let token = &self.client.token;
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\nConnection: close\r\n\r\n"))
            .await
    }

    /// Stops the server and starts it again on the same data, with the same clock, settings and token.
    pub async fn restart(self) -> Self {
        self.restart_as(|builder| builder).await
    }

    /// Like [`App::restart`], with changed options.
    pub async fn restart_as(self, change: impl FnOnce(Builder) -> Builder) -> Self {
        let Self { running, client, clock, builder, folder } = self;
        let builder = change(builder);
        running.stop().await.unwrap();
        let running = builder.open(&folder).await.start().await.unwrap();
        let client = client_of(&running, &client.token);
        Self { running, client, clock, builder, folder }
    }

    /// Starts another node on the same database, with the same clock, settings and token.
    pub async fn another(&self) -> Self {
        let (builder, folder) = self.beside();
        let running = builder.open(&folder).await.start().await.unwrap();
        let client = client_of(&running, &self.client.token);
        Self { running, client, clock: builder.clock.clone(), builder, folder }
    }

    /// Returns the error with which another node on the same database fails to open.
    pub async fn refusal_of_another(&self) -> String {
        self.opening_of_another().await.unwrap()
    }

    /// Like [`App::refusal_of_another`]; `None` if the node opens.
    pub async fn opening_of_another(&self) -> Option<String> {
        let (builder, folder) = self.beside();
        Server::open(builder.options(&folder)).await.err().map(|error| error.text().to_owned())
    }

    fn beside(&self) -> (Builder, tempfile::TempDir) {
        assert!(self.is_postgres(), "nodes share a database");
        let builder = Builder {
            clock: self.clock.clone(),
            faults: None,
            tls: None,
            listeners: Vec::new(),
            public_listen: None,
            ..self.builder.clone()
        };
        let folder = tempfile::tempdir().unwrap();
        // A copied file keeps its mode.
        std::fs::copy(self.folder().join("seal.key"), folder.path().join("seal.key")).unwrap();
        (builder, folder)
    }

    pub async fn leave(self) -> Place {
        let Self { running, client, builder, folder, .. } = self;
        running.stop().await.unwrap();
        Place { token: client.token, builder, folder }
    }

    pub async fn stop(self) {
        self.running.stop().await.unwrap();
        self.folder.close().unwrap();
    }
}

fn client_of(running: &RunningServer, token: &str) -> Client {
    let scheme = running.shared().origin().split(':').next().unwrap();
    Client::with_scheme(scheme, running.address(), token)
}

pub fn http_client() -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60));
    builder.tls_danger_accept_invalid_certs(true).build().unwrap()
}

/// The data of a stopped server, for tests that start and stop servers themselves.
pub struct Place {
    pub token: String,
    builder: Builder,
    folder: tempfile::TempDir,
}

impl Place {
    /// Server options for these data, with the previous clock and settings.
    pub fn options(&self) -> ServerOptions {
        self.builder.options(&self.folder)
    }

    pub async fn start(self) -> App {
        let Self { token, builder, folder } = self;
        let running = builder.open(&folder).await.start().await.unwrap();
        let client = client_of(&running, &token);
        App { running, client, clock: builder.clock.clone(), builder, folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn database(&self) -> Option<&cluster::Database> {
        self.builder.database.as_deref()
    }
}

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    pub token: String,
    /// The value of `X-Forwarded-For`.
    forwarded: Option<String>,
}

pub struct Answer {
    pub url: reqwest::Url,
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
    /// The text as JSON; null if it is not JSON.
    pub body: Value,
}

impl Client {
    pub fn new(address: SocketAddr, token: &str) -> Self {
        Self::with_scheme("http", address, token)
    }

    fn with_scheme(scheme: &str, address: SocketAddr, token: &str) -> Self {
        let http = http_client();
        Self { http, base: format!("{scheme}://{address}"), token: token.to_owned(), forwarded: None }
    }

    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// A client whose requests come from this address through the proxy of [`Builder::behind_proxy`].
    pub fn at(&self, address: &str) -> Self {
        Self { forwarded: Some(address.to_owned()), ..self.clone() }
    }

    /// A client with the token of a response to a login or to the creation of a token.
    pub fn holder(&self, answer: &Answer) -> Self {
        let token = answer.body["auth"]["client_token"].as_str();
        self.with_token(token.unwrap_or_else(|| panic!("{}", answer.text)))
    }

    /// Creates a token, and returns a client with it.
    pub async fn with_new_token(&self, body: Value) -> Self {
        self.holder(&self.post("auth/token/create", body).await)
    }

    /// Enables a mount of this type, at a path such as `sys/mounts/team` or `sys/auth/jwt`.
    pub async fn enable(&self, path: &str, kind: &str) {
        self.post(path, json!({ "type": kind })).await.assert_status(204);
    }

    /// Creates a root in a mount, and a role `web` that permits every name, with these further fields.
    pub async fn authority(&self, mount: &str, fields: Value) {
        let root = json!({ "common_name": "Root", "key_type": "ec", "ttl": "8760h" });
        self.post(&format!("{mount}/root/generate/internal"), root).await.assert_status(200);
        let role = json!({ "allow_any_name": true, "key_type": "ec", "ttl": "24h" });
        self.post(&format!("{mount}/roles/web"), with(role, fields)).await.assert_status(200);
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}/v1/{path}", self.base));
        if let Some(address) = &self.forwarded {
            request = request.header("X-Forwarded-For", address);
        }
        if self.token.is_empty() { request } else { request.header("X-Service-Token", &self.token) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}/v1/{path}", self.base)
    }

    pub async fn get(&self, path: &str) -> Answer {
        send(self.request("GET", path)).await
    }

    pub async fn list(&self, path: &str) -> Answer {
        send(self.request("LIST", path)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        send(self.request("DELETE", path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        send(self.request("POST", path).json(&body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        let request = self.request("PATCH", path).header("Content-Type", "application/merge-patch+json");
        send(request.body(body.to_string())).await
    }

    pub async fn page(&self, path: &str) -> Answer {
        send(self.http.get(format!("{}{path}", self.base))).await
    }
}

pub async fn send(request: reqwest::RequestBuilder) -> Answer {
    read(request.send().await.unwrap()).await
}

async fn read(response: Response) -> Answer {
    let url = response.url().clone();
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    // Every 429 and 503 must carry `Retry-After`, in every test.
    let again = headers.get("retry-after").is_some_and(|value| value.to_str().unwrap().parse::<u64>().is_ok());
    assert!(again || !matches!(status, 429 | 503), "{status} without Retry-After from {url}");
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answer { url, status, headers, text, body }
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn error(&self) -> &str {
        self.body["errors"][0].as_str().unwrap_or_default()
    }

    pub fn assert_denied(&self) {
        assert_eq!((self.status, self.text.as_str()), (403, "{\"errors\":[\"permission denied\"]}"));
    }

    /// Asserts the status, and returns the response.
    #[track_caller]
    pub fn assert_status(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}: {}", self.url, self.text);
        self
    }

    /// Asserts the status and the error of a response of the secrets service.
    #[track_caller]
    pub fn assert_error(&self, status: u16, error: &str) {
        assert_eq!((self.status, self.error()), (status, error), "{}: {}", self.url, self.text);
    }

    #[track_caller]
    pub fn assert_error_begins(&self, status: u16, start: &str) {
        assert!(self.status == status && self.error().starts_with(start), "{}: {}", self.url, self.text);
    }

    #[track_caller]
    pub fn assert_error_has(&self, status: u16, part: &str) {
        assert!(self.status == status && self.error().contains(part), "{}: {}", self.url, self.text);
    }
}

/// The object with these members added or replaced.
pub fn with(mut object: Value, members: Value) -> Value {
    object.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    object
}

/// Asserts that an object has these members.
#[track_caller]
pub fn assert_has(object: &Value, members: Value) {
    for (name, value) in members.as_object().unwrap() {
        assert_eq!(&object[name], value, "{name} of {object}");
    }
}

/// Waits until the condition holds.
pub async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The value of a series on a page of metrics.
pub fn metric(page: &str, series: &str) -> usize {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} in {page}")).parse().unwrap()
}

/// Sends bytes to a server, and returns what it sends until it closes the connection.
pub fn exchange(address: impl std::net::ToSocketAddrs, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Like [`until`], outside a runtime.
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asserts that `work` takes less than `limit`, in at most three attempts. For work that does not depend on a server
/// timer: a busy machine may delay one attempt, a timer would delay all.
pub async fn quick(limit: Duration, mut work: impl AsyncFnMut()) {
    let mut took = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        work().await;
        took.push(started.elapsed());
        if started.elapsed() < limit {
            return;
        }
    }
    panic!("each try took longer than {limit:?}: {took:?}");
}

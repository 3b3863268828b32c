//! The test-app builder: a real server on a free port over a temporary folder, and a small client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use serde_json::{Value, json};
use signet::audit::{Device, DeviceSettings};
use signet::auth::{CloudbSettings, LoginSettings};
use signet::clock::{Clock, Time};
use signet::config::TlsFiles;
use signet::error::Kind;
use signet::fields::Fields;
use signet::http::settings::Settings;
use signet::http::state::Shared;
use signet::keys::signing::Signers;
use signet::keys::{CloudSettings, Libraries, StockSizes};
use signet::nodes::SKEW_LIMIT;
use signet::outbound::Reach;
use signet::server::tls::Certificate;
use signet::server::{ConnectionLimits, Options, Running, Server};
use signet::storage::seal::SealKey;
use signet::storage::{self, Database, PostgresUrl};

use crate::cluster;
use crate::faults::double::Faults;

/// Nobody but the test itself asks the store for anything.
const NEVER: Duration = Duration::from_secs(86_400);

/// How a test's server differs from the usual one.
pub struct Builder {
    clock: Clock,
    settings: Settings,
    queue: usize,
    database: Option<Arc<cluster::Database>>,
    faults: Option<Arc<Faults>>,
    skew_limit: Duration,
    tls: Option<TlsFiles>,
    listeners: Vec<Arc<dyn Device>>,
    audit: Vec<DeviceSettings>,
    libraries: Libraries,
    cloud: CloudSettings,
    signers: Option<Arc<dyn Signers>>,
    cloudb: CloudbSettings,
    public_listen: Option<SocketAddr>,
}

/// The name of the library that every server of tests has: a file that is no module, so that keys on it can be
/// configured and not used.
pub const NO_MODULE: &str = "none";

impl Builder {
    /// PKCS #11 libraries for managed keys.
    pub fn libraries(mut self, libraries: Libraries) -> Self {
        self.libraries = libraries;
        self
    }

    /// Where cloud services of managed keys are.
    pub fn cloud(mut self, cloud: CloudSettings) -> Self {
        self.cloud = cloud;
        self
    }

    /// What the server's configuration says of the method `cloudb`.
    pub fn cloudb(mut self, settings: CloudbSettings) -> Self {
        self.cloudb = settings;
        self
    }

    /// Who signs for mounts in place of the registered keys.
    pub fn signers(mut self, signers: Arc<dyn Signers>) -> Self {
        self.signers = Some(signers);
        self
    }

    /// TLS in place of plain HTTP. The clients of this module do not check the certificate.
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = Some(files);
        self
    }

    /// A listener for relying parties, beside the main one.
    pub fn public(mut self) -> Self {
        self.public_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        self
    }

    /// A clock that only the test moves.
    pub fn manual_clock(mut self, now: Time) -> Self {
        self.clock = Clock::manual(now);
        // Such a clock is another than the database's on purpose.
        self.skew_limit = Duration::MAX;
        self
    }

    /// How far the clock may be from that of PostgreSQL.
    pub fn skew_limit(mut self, limit: Duration) -> Self {
        self.skew_limit = limit;
        self
    }

    /// Other settings of the wire.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// PostgreSQL in place of the embedded store.
    pub fn postgres(self) -> Self {
        self.postgres_of(cluster::shared())
    }

    /// A database of this cluster.
    pub fn postgres_of(mut self, cluster: &Arc<cluster::Cluster>) -> Self {
        self.database = Some(Arc::new(cluster.database()));
        self
    }

    /// Devices that are told of every request.
    pub fn audit(mut self, devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Self {
        self.listeners = devices.into_iter().collect();
        self
    }

    /// Devices as a configuration has them.
    pub fn audit_devices(mut self, devices: impl IntoIterator<Item = DeviceSettings>) -> Self {
        self.audit = devices.into_iter().collect();
        self
    }

    /// A store that fails as `faults` says. Such a server cannot be started again.
    pub fn faults(mut self, faults: &Arc<Faults>) -> Self {
        self.faults = Some(Arc::clone(faults));
        self
    }

    /// Starts it, with a root token and a mount `pki`.
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

    /// Opens the server. Until the program of a child is loaded, it holds what this process had open when it
    /// was started: a data folder that was let go may stay locked while another test starts a command.
    async fn open(&self, folder: &tempfile::TempDir) -> Server {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let options = self.options(folder);
            let opened = match &self.faults {
                Some(faults) => Server::open_through(options, |stores| faults.between(stores)).await,
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

    fn options(&self, folder: &tempfile::TempDir) -> Options {
        let database = match &self.database {
            Some(database) => Database::Postgres(PostgresUrl::parse(&database.url()).unwrap()),
            None => Database::Embedded(folder.path().to_owned()),
        };
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: self.tls.clone().map(|files| Certificate::load(files, self.clock.clone()).unwrap()),
            metrics_listen: None,
            public_listen: self.public_listen,
            workers: 2,
            connections: ConnectionLimits::default(),
            clock: self.clock.clone(),
            storage: storage::Options {
                database,
                seal_key: SealKey::from_file(&folder.path().join("seal.key")).unwrap(),
                clock: self.clock.clone(),
                queue: self.queue,
                absent: storage::Absent::Made,
            },
            pkcs11_libraries: self.libraries.clone(),
            cloud: CloudSettings { reach: Reach { loopback: true }, ..self.cloud.clone() },
            signers: self.signers.clone(),
            rsa_key_stock: StockSizes::default(),
            logins: LoginSettings { reach: Reach { loopback: true }, cloudb: self.cloudb.clone() },
            settings: self.settings.clone(),
            audit: self.audit.clone(),
            listeners: self.listeners.clone(),
            skew_limit: self.skew_limit,
            store_watch: NEVER,
        }
    }
}

/// The libraries of every server of tests that asks for no others.
pub fn no_module() -> Libraries {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    Libraries::new([(NO_MODULE.to_owned(), file)]).unwrap()
}

/// The kinds of authentication methods that can be enabled.
pub const METHODS: [&str; 3] = ["approle", "jwt", "cloudb"];

/// Where the tests have a mount of this kind.
pub fn place_of(kind: &str) -> String {
    match kind {
        "system" => "sys".to_owned(),
        "token" => "auth/token".to_owned(),
        method if METHODS.contains(&method) => format!("auth/{method}"),
        kind => kind.to_owned(),
    }
}

/// A running server and a client that holds its root token.
pub struct App {
    running: Running,
    pub client: Client,
    /// The server's clock.
    pub clock: Clock,
    builder: Builder,
    folder: tempfile::TempDir,
}

impl App {
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    pub fn builder() -> Builder {
        let settings = Settings { open_metrics: true, ..Settings::default() };
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

    /// Its folder, with the data of the embedded store.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client of the public listener, with the same token.
    pub fn public(&self) -> Client {
        Client::new(self.running.public_address().unwrap(), &self.client.token)
    }

    /// Its domains.
    pub fn shared(&self) -> &Arc<Shared> {
        self.running.shared()
    }

    /// Whether the data is in PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        self.builder.database.is_some()
    }

    /// The database, when it is not the embedded one.
    pub fn database(&self) -> &Arc<cluster::Database> {
        self.builder.database.as_ref().unwrap()
    }

    /// A client with a fresh token of the given policies.
    pub async fn with_policies(&self, policies: &[&str]) -> Client {
        let answer = self.client.post("auth/token/create", json!({ "policies": policies })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        self.client.with_token(answer.body["auth"]["client_token"].as_str().unwrap())
    }

    /// Writes a policy.
    pub async fn policy(&self, name: &str, text: &str) {
        let answer = self.client.post(&format!("sys/policies/acl/{name}"), json!({ "policy": text })).await;
        assert_eq!(answer.status, 204, "{}", answer.text);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.running.address()
    }

    /// Sends bytes as they are and reads until the server closes; for what no client would send.
    pub async fn raw(&self, request: String) -> String {
        let address = self.running.address();
        tokio::task::spawn_blocking(move || {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            socket.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            socket.read_to_end(&mut answer).unwrap();
            String::from_utf8_lossy(&answer).into_owned()
        })
        .await
        .unwrap()
    }

    /// GETs a path without any client tidying it up first.
    pub async fn raw_get(&self, path: &str) -> String {
        let token = &self.client.token;
        self.raw(format!("GET {path} HTTP/1.1\r\nHost: t\r\nX-Service-Token: {token}\r\nConnection: close\r\n\r\n"))
            .await
    }

    /// Stops the server and starts another one on the same data, with the same clock, settings and token.
    pub async fn restart(self) -> Self {
        self.restart_as(|builder| builder).await
    }

    /// As [`App::restart`], otherwise built.
    pub async fn restart_as(self, change: impl FnOnce(Builder) -> Builder) -> Self {
        let Self { running, client, clock, builder, folder } = self;
        let builder = change(builder);
        running.stop().await.unwrap();
        let running = builder.open(&folder).await.start().await.unwrap();
        let client = client_of(&running, &client.token);
        Self { running, client, clock, builder, folder }
    }

    /// Another node on the same database, with the same clock, settings and token.
    pub async fn another(&self) -> Self {
        let (builder, folder) = self.beside();
        let running = builder.open(&folder).await.start().await.unwrap();
        let client = client_of(&running, &self.client.token);
        Self { running, client, clock: builder.clock.clone(), builder, folder }
    }

    /// Why another node on the same database does not start.
    pub async fn refusal_of_another(&self) -> String {
        self.opening_of_another().await.unwrap()
    }

    /// As [`App::refusal_of_another`]; `None` when it opens.
    pub async fn opening_of_another(&self) -> Option<String> {
        let (builder, folder) = self.beside();
        Server::open(builder.options(&folder)).await.err().map(|error| error.text().to_owned())
    }

    fn beside(&self) -> (Builder, tempfile::TempDir) {
        let Builder { settings, queue, skew_limit, libraries, cloud, signers, cloudb, audit, .. } = &self.builder;
        let (clock, settings) = (self.clock.clone(), settings.clone());
        let database = Some(Arc::clone(self.builder.database.as_ref().unwrap()));
        let (queue, skew_limit, libraries, signers) = (*queue, *skew_limit, libraries.clone(), signers.clone());
        let (faults, tls, listeners, cloud, cloudb) = (None, None, Vec::new(), cloud.clone(), cloudb.clone());
        let audit = audit.clone();
        let builder = Builder {
            clock,
            settings,
            queue,
            database,
            faults,
            skew_limit,
            tls,
            listeners,
            audit,
            libraries,
            cloud,
            signers,
            cloudb,
            public_listen: None,
        };
        let folder = tempfile::tempdir().unwrap();
        // A copied file keeps its mode.
        std::fs::copy(self.folder().join("seal.key"), folder.path().join("seal.key")).unwrap();
        (builder, folder)
    }

    /// Stops the server; its data and the way to open them again.
    pub async fn leave(self) -> Place {
        let Self { running, client, builder, folder, .. } = self;
        running.stop().await.unwrap();
        Place { token: client.token, builder, folder }
    }

    /// Stops the server and removes its data.
    pub async fn stop(self) {
        self.running.stop().await.unwrap();
        self.folder.close().unwrap();
    }
}

/// A client of a running server, whose certificate, if it has one, is not checked.
fn client_of(running: &Running, token: &str) -> Client {
    let scheme = running.shared().origin().split(':').next().unwrap();
    Client::with_scheme(scheme, running.address(), token)
}

/// What all clients of tests ask through.
pub fn http_client() -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60));
    builder.tls_danger_accept_invalid_certs(true).build().unwrap()
}

/// The data of a server that does not run, for whoever starts and ends servers in its own way.
pub struct Place {
    pub token: String,
    builder: Builder,
    folder: tempfile::TempDir,
}

impl Place {
    /// What a server on these data is made of, with the clock and the settings of the one that left them.
    pub fn options(&self) -> Options {
        self.builder.options(&self.folder)
    }

    /// Starts a server on these data again.
    pub async fn start(self) -> App {
        let Self { token, builder, folder } = self;
        let running = builder.open(&folder).await.start().await.unwrap();
        let client = client_of(&running, &token);
        App { running, client, clock: builder.clock.clone(), builder, folder }
    }

    /// The folder, with the data of the embedded store.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The database, when it is not the embedded one.
    pub fn database(&self) -> Option<&cluster::Database> {
        self.builder.database.as_deref()
    }
}

/// A small client of `/v1`.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    pub token: String,
}

/// What came back.
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
    /// The text as JSON; null when it is none.
    pub body: Value,
}

impl Client {
    /// A client of the server at `address`.
    pub fn new(address: SocketAddr, token: &str) -> Self {
        Self::with_scheme("http", address, token)
    }

    fn with_scheme(scheme: &str, address: SocketAddr, token: &str) -> Self {
        let http = http_client();
        Self { http, base: format!("{scheme}://{address}"), token: token.to_owned() }
    }

    /// The same client with another token; an empty one sends none.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// A request below `/v1` with the token, to be changed further.
    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = self.http.request(method, format!("{}/v1/{path}", self.base));
        if self.token.is_empty() { request } else { request.header("X-Service-Token", &self.token) }
    }

    /// The address of a path below `/v1`, for other clients.
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

    /// A page outside `/v1`.
    pub async fn page(&self, path: &str) -> Answer {
        send(self.http.get(format!("{}{path}", self.base))).await
    }
}

/// Sends a request and reads the answer.
pub async fn send(request: reqwest::RequestBuilder) -> Answer {
    read(request.send().await.unwrap()).await
}

async fn read(response: Response) -> Answer {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    // Whoever is told to come again is told when, whatever a test is about.
    let again = headers.get("retry-after").is_some_and(|value| value.to_str().unwrap().parse::<u64>().is_ok());
    assert!(again || !matches!(status, 429 | 503), "{status} without Retry-After from {}", response.url());
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answer { status, headers, text, body }
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The first error text.
    pub fn error(&self) -> &str {
        self.body["errors"][0].as_str().unwrap_or_default()
    }

    /// That it is the one refusal.
    pub fn assert_denied(&self) {
        assert_eq!((self.status, self.text.as_str()), (403, "{\"errors\":[\"permission denied\"]}"));
    }
}

/// Does something that does not wait for a timer of the server, until it takes less than `limit`, three times at most:
/// a busy machine may make one try late, and a wait would make all of them late.
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

//! PostgreSQL that accepts only TLS from the network: server and client certificates, and their errors.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P384_SHA384, date_time_ymd,
};
use serde_json::json;
use signet::clock::Clock;
use signet::error::Result;
use signet::storage::seal::SealKey;
use signet::storage::{self, Database, PostgresUrl};

use crate::cluster::Cluster;
use crate::process::{Dev, dev, dev_with, refused, signet};

/// The name in the servers' certificates.
const NAME: &str = "db.test";
const PASSWORD: &str = "pass:w?rd";
const RULES: &str = "local all all trust
hostssl all signet all scram-sha-256
hostssl all certified all cert
hostssl all twofold all scram-sha-256 clientcert=verify-full
";

const LIMIT: Duration = Duration::from_secs(20);

struct Pair {
    certificate: String,
    key: String,
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_after = date_time_ymd(2020, 1, 1);
    params
}

impl Authority {
    fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

fn self_made(params: &CertificateParams, key: &KeyPair) -> Pair {
    Pair { certificate: params.self_signed(key).unwrap().pem(), key: key.serialize_pem() }
}

struct World {
    cluster: Arc<Cluster>,
    authority: Authority,
    files: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let cluster = Cluster::over_tcp();
        let files = tempfile::tempdir().unwrap();
        let world = Self { cluster, authority: Authority::new("Authority"), files };
        let roles = format!(
            "SET password_encryption = 'scram-sha-256'; ALTER ROLE signet PASSWORD '{PASSWORD}';
            CREATE ROLE certified SUPERUSER LOGIN; CREATE ROLE twofold SUPERUSER LOGIN PASSWORD '{PASSWORD}'"
        );
        world.cluster.psql("postgres", &roles);
        world.cluster.file("data/pg_hba.conf", RULES);
        world.trusts(&world.authority);
        world.put(&world.authority.sign(&params(NAME)));
        let files = [("ssl_ca_file", "ca.pem"), ("ssl_cert_file", "server.pem"), ("ssl_key_file", "server-key.pem")];
        let folder = world.cluster.folder().display();
        let [a, b, c] = files.map(|(parameter, file)| format!("{parameter} = '{folder}/{file}'"));
        world.cluster.set(&[&a, &b, &c, "ssl = on"]);
        world.file("ca.pem", &world.authority.certificate);
        world
    }

    fn put(&self, pair: &Pair) {
        self.cluster.file("server.pem", &pair.certificate);
        self.cluster.file("server-key.pem", &pair.key);
    }

    /// Replaces the server's certificate.
    fn shows(&self, pair: &Pair) {
        self.put(pair);
        self.cluster.set(&[]);
    }

    /// Replaces the CA for client certificates, effective when the server reads the file.
    fn trusts(&self, authority: &Authority) {
        self.cluster.file("ca.pem", &authority.certificate);
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.files.path().join(name);
        std::fs::write(&path, content).unwrap();
        mode(&path, 0o600);
        path
    }

    /// Writes a client certificate as `name`, and returns the URL parameters for it.
    fn client(&self, name: &str, pair: &Pair) -> String {
        let certificate = self.file(&format!("{name}.pem"), &pair.certificate);
        let key = self.file(&format!("{name}-key.pem"), &pair.key);
        format!("sslcert={}&sslkey={}", certificate.display(), key.display())
    }

    /// The URL of the server under `name`.
    fn url_of(&self, name: &str, user: &str, database: &str, parameters: &str) -> String {
        let port = self.cluster.port();
        format!("postgres://{user}@{name}:{port}/{database}?hostaddr=127.0.0.1&{parameters}")
    }

    fn url(&self, user: &str, parameters: &str) -> String {
        self.url_of(NAME, user, "postgres", parameters)
    }

    /// The parameters of the strictest check.
    fn full(&self) -> String {
        format!("sslmode=verify-full&sslrootcert={}", self.files.path().join("ca.pem").display())
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The user with password, as in a URL.
fn with_password(user: &str) -> String {
    format!("{user}:{}", PASSWORD.replace('?', "%3F"))
}

async fn open(url: &str) -> Result<()> {
    let database = Database::Postgres(PostgresUrl::parse(url)?);
    let seal_key = SealKey::from_text(&"5a".repeat(32))?;
    storage::open(storage::StorageOptions {
        database,
        seal_key,
        clock: Clock::system(),
        commit_queue: 8,
        if_missing: storage::IfMissing::Create,
    })
    .await?
    .shutdown()
    .await
}

#[track_caller]
fn says(result: Result<()>, text: &str) {
    let error = result.err().unwrap_or_else(|| panic!("it starts: {text}"));
    assert!(error.text().contains(text), "{error}, and not: {text}");
    assert!(!error.text().contains(PASSWORD), "{error}");
}

async fn issue(dev: &Dev) -> u16 {
    dev.client().post("pki/issue/dev", json!({ "common_name": "a.test" })).await.status
}

/// The number of a server's connections, and how many of them use TLS.
fn connections(world: &World, database: &str) -> (usize, usize) {
    let sql = "SELECT count(*), count(*) FILTER (WHERE ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
        WHERE application_name = 'signet' AND datname = current_database()";
    let counts = world.cluster.psql(database, sql);
    let (all, secret) = counts.split_once('|').unwrap();
    (all.parse().unwrap(), secret.parse().unwrap())
}

#[actix_web::test]
async fn every_connection_of_a_server_is_under_tls() {
    let world = World::new();
    let client = world.client("client", &world.authority.sign(&params("certified")));
    let both = world.client("both", &world.authority.sign(&params("twofold")));
    for (user, parameters) in [
        (with_password("signet"), "channel_binding=require".to_owned()),
        ("certified".to_owned(), client),
        (with_password("twofold"), both + "&channel_binding=require"),
    ] {
        let database = world.cluster.database();
        let folder = tempfile::tempdir().unwrap();
        let url = world.url_of(NAME, &user, &database.name, &format!("{}&{parameters}", world.full()));
        let dev = dev(&["--data-dir", folder.path().to_str().unwrap(), "--database-url", &url]);
        assert_eq!(issue(&dev).await, 200);
        // One writes, one reads, one listens.
        let started = Instant::now();
        while connections(&world, &database.name).0 < 3 {
            assert!(started.elapsed() < LIMIT, "{:?}", connections(&world, &database.name));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (all, secret) = connections(&world, &database.name);
        assert_eq!(secret, all);
        dev.terminate();
    }
    let database = world.cluster.database();
    let folder = tempfile::tempdir().unwrap();
    let url = world.url_of(NAME, &with_password("signet"), &database.name, "sslrootcert=system");
    let arguments = ["--data-dir", folder.path().to_str().unwrap(), "--database-url", &url];
    let text = refused(signet().args(["dev", "--listen", "127.0.0.1:0"]).args(arguments));
    assert!(text.contains("sslrootcert"), "{text}");
    let dev = dev_with(signet().env("SSL_CERT_FILE", world.files.path().join("ca.pem")), &arguments);
    assert_eq!(issue(&dev).await, 200);
    dev.terminate();
}

#[actix_web::test]
async fn wrong_server_certificate_is_rejected_with_the_reason() {
    let world = World::new();
    let user = with_password("signet");
    let full = world.full();
    let ca = world.files.path().join("ca.pem").display().to_string();
    let good = world.url(&user, &full);
    open(&good).await.unwrap();
    let other_name = |parameters: &str| world.url_of("other.test", &user, "postgres", parameters);
    says(open(&other_name(&full)).await, "the server's certificate is for another name than other.test");
    says(open(&world.url_of("127.0.0.1", &user, "postgres", &full)).await, "for another name than 127.0.0.1");
    open(&other_name(&format!("sslmode=verify-ca&sslrootcert={ca}"))).await.unwrap();

    world.shows(&world.authority.sign(&expired(params(NAME))));
    says(open(&good).await, "the server's certificate has expired");
    let mut early = params(NAME);
    early.not_before = date_time_ymd(2200, 1, 1);
    world.shows(&world.authority.sign(&early));
    says(open(&good).await, "the server's certificate is not valid yet");
    // A CA with the same name but another key, and a self-signed certificate.
    world.shows(&Authority::new("Authority").sign(&params(NAME)));
    says(open(&good).await, "the server's certificate");
    let mut own = params(NAME);
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let pair = self_made(&own, &key);
    world.shows(&pair);
    for unknown in [good, world.url(&user, &format!("sslmode=require&sslrootcert={ca}"))] {
        says(open(&unknown).await, "the server's certificate is self-signed, or its issuer is not in");
    }
    // A self-signed certificate is accepted without verification, or if it is trusted and valid.
    open(&world.url(&user, "sslmode=require&channel_binding=require")).await.unwrap();
    let known = world.file("own.pem", &pair.certificate);
    let known = world.url(&user, &format!("sslmode=verify-full&sslrootcert={}", known.display()));
    open(&known).await.unwrap();
    let pair = self_made(&expired(own), &key);
    world.shows(&pair);
    world.file("own.pem", &pair.certificate);
    says(open(&known).await, "the server's certificate has expired");

    world.cluster.set(&["ssl = off"]);
    says(open(&known).await, "server does not support TLS");
}

#[actix_web::test]
async fn rejected_client_certificate_is_reported_with_the_reason() {
    let world = World::new();
    let full = world.full();
    let stranger = Authority::new("Stranger");
    let url = |user: &str, parameters: &str| world.url(user, &format!("{full}&{parameters}"));
    let client = |name: &str, pair: Pair| world.client(name, &pair);
    let good = client("good", world.authority.sign(&params("certified")));
    open(&url("certified", &good)).await.unwrap();
    says(open(&url("certified", "")).await, "connection requires a valid client certificate");
    says(open(&url(&with_password("twofold"), "")).await, "connection requires a valid client certificate");
    says(open(&url("twofold", &client("both", world.authority.sign(&params("twofold"))))).await, "password missing");
    let other = client("other", world.authority.sign(&params("signet")));
    says(open(&url("certified", &other)).await, "certificate authentication failed for user \"certified\"");
    // The server closes the connection; its error may be lost.
    let old = world.authority.sign(&expired(params("certified")));
    for (name, pair) in [("strange", stranger.sign(&params("certified"))), ("old", old)] {
        says(open(&url("certified", &client(name, pair))).await, "the client certificate");
    }
    says(open(&url("signet:wrong", "")).await, "password authentication failed for user \"signet\"");
    says(open(&url("certified", &format!("{good}&channel_binding=require"))).await, "channel binding");
    says(open(&world.url(&with_password("signet"), "sslmode=disable")).await, "no encryption");
    let path = |name: &str| world.files.path().join(name);
    mode(&path("good-key.pem"), 0o644);
    says(open(&url("certified", &good)).await, "good-key.pem: must not be open to group or others");
    let mixed = good.replace("good-key", "other-key");
    says(open(&url("certified", &mixed)).await, "other-key.pem: is not the key of the first certificate of sslcert");
    let absent = good.replace("good.pem", "absent.pem");
    says(open(&url("certified", &absent)).await, "sslcert: file does not exist: ");
    world.file("ca.pem", "hunter2");
    says(open(&url("certified", "")).await, "database URL: sslrootcert: ");
}

#[actix_web::test]
async fn password_is_read_from_a_file() {
    let world = World::new();
    let file = world.file("pass", &format!("other.test:*:*:*:wrong\n{NAME}:*:*:signet:pass\\:w?rd\n"));
    let url = world.url("signet", &format!("{}&passfile={}", world.full(), file.display()));
    open(&url).await.unwrap();
    says(open(&url.replace("signet@", "twofold@")).await, "certificate");
    says(open(&url.replace("signet@", "signet:wrong@")).await, "password authentication failed");
    mode(&file, 0o644);
    says(open(&url).await, "pass: must not be open to group or others (set its mode to 0600");
}

#[actix_web::test]
async fn certificates_that_were_renewed_are_used_without_a_restart() {
    let world = World::new();
    let client = world.client("client", &world.authority.sign(&params("certified")));
    let database = world.cluster.database();
    let folder = tempfile::tempdir().unwrap();
    let url = world.url_of(NAME, "certified", &database.name, &format!("{}&{client}", world.full()));
    let dev = dev(&["--data-dir", folder.path().to_str().unwrap(), "--database-url", &url]);
    assert_eq!(issue(&dev).await, 200);
    // Server and client change to another CA.
    let next = Authority::new("Next");
    world.trusts(&next);
    world.shows(&next.sign(&params(NAME)));
    database.end_connections();
    assert_eq!(issue(&dev).await, 503);
    world.client("client", &next.sign(&params("certified")));
    world.file("ca.pem", &next.certificate);
    // After a failed connection, the server waits a moment before the next one.
    let started = Instant::now();
    while issue(&dev).await != 200 {
        assert!(started.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    dev.terminate();
}

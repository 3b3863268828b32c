//! A policy engine under the tests' control: real TLS with client certificates, the questions it got, and
//! whatever answer a test wants.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde_json::{Value, json};
use signet::clock::{Clock, Time};
use signet::keys::local::{KeySpec, PrivateKey};
use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::csr::Csr;
use signet::x509::extension::{self, KeyUsage, SubjectAltNames};
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::pieces::{Extensions, Name};
use signet::x509::serial::Serial;
use signet::x509::tbs::{CertificateTbs, signed};
use signet::x509::{oid, pem};
use tokio::sync::Semaphore;

use crate::v1::pki::foreign::{Files, openssl};

/// What the engine says to a question.
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
    pub location: Option<String>,
}

impl Reply {
    /// 200 with JSON.
    pub fn json(body: Value) -> Self {
        Self { status: 200, body: body.to_string().into_bytes(), location: None }
    }

    /// Another status.
    pub fn status(status: u16) -> Self {
        Self { status, body: b"{\"error\":\"the remote's own words\"}".to_vec(), location: None }
    }
}

type Decide = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

struct Shared {
    decide: Mutex<Decide>,
    questions: Mutex<Vec<Vec<u8>>>,
    /// `traceparent` of each question.
    traces: Mutex<Vec<String>>,
    /// Answers leave through here; a test may close it.
    gate: Semaphore,
}

/// A running engine.
pub struct Engine {
    shared: Arc<Shared>,
    address: SocketAddr,
    handle: actix_web::dev::ServerHandle,
}

const OPEN: usize = 1 << 20;

impl Engine {
    /// Starts one that shows `site`'s server certificate and wants a client certificate of its authority.
    pub async fn start() -> Self {
        Self::showing("server").await
    }

    /// As [`Engine::start`], with another of the site's certificates.
    pub async fn showing(certificate: &str) -> Self {
        Self::showing_with(certificate, certificate).await
    }

    /// As [`Engine::showing`], with the key of perhaps another one.
    pub async fn showing_with(certificate: &str, key: &str) -> Self {
        let shared = Arc::new(Shared {
            decide: Mutex::new(Arc::new(consent)),
            questions: Mutex::default(),
            traces: Mutex::default(),
            gate: Semaphore::new(OPEN),
        });
        let state = Arc::clone(&shared);
        let app =
            move || App::new().app_data(web::PayloadConfig::new(8 << 20)).app_data(web::Data::from(state.clone()));
        let server = HttpServer::new(move || app().default_service(web::to(answer)))
            .workers(1)
            .disable_signals()
            .shutdown_timeout(0)
            .bind_rustls_0_23("127.0.0.1:0", server_config(certificate, key))
            .unwrap();
        let address = server.addrs()[0];
        let server = server.run();
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Self { shared, address, handle }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("https://{}/decide", self.address)
    }

    /// From now on it answers so.
    pub fn says(&self, decide: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        *self.shared.decide.lock().unwrap() = Arc::new(decide);
    }

    /// What it was asked so far, as it came.
    pub fn raw_questions(&self) -> Vec<Vec<u8>> {
        self.shared.questions.lock().unwrap().clone()
    }

    /// `traceparent` of each question so far; empty for a question without one.
    pub fn traces(&self) -> Vec<String> {
        self.shared.traces.lock().unwrap().clone()
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        self.shared.questions.lock().unwrap().len()
    }

    /// The last question.
    pub fn question(&self) -> Value {
        serde_json::from_slice(self.raw_questions().last().unwrap()).unwrap()
    }

    /// Waits until it was asked so often.
    pub async fn wait_for(&self, questions: usize) {
        for _ in 0..1000 {
            if self.asked() >= questions {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("only {} of {questions} questions came", self.asked());
    }

    /// From now on it takes questions and answers none.
    pub async fn hold(&self) {
        self.shared.gate.acquire_many(OPEN as u32).await.unwrap().forget();
    }

    /// Answers again, also what it was asked meanwhile.
    pub fn release(&self) {
        self.shared.gate.add_permits(OPEN);
    }

    pub async fn stop(self) {
        self.release();
        self.handle.stop(false).await;
    }
}

async fn answer(shared: web::Data<Shared>, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let trace = request.headers().get("traceparent").map_or("", |value| value.to_str().unwrap());
    shared.traces.lock().unwrap().push(trace.to_owned());
    let question = serde_json::from_slice(&body).unwrap();
    shared.questions.lock().unwrap().push(body.to_vec());
    let _turn = shared.gate.acquire().await.unwrap();
    let decide = Arc::clone(&shared.decide.lock().unwrap());
    let reply = decide(&question);
    let mut response = HttpResponse::build(StatusCode::from_u16(reply.status).unwrap());
    if let Some(location) = reply.location {
        response.insert_header(("location", location));
    }
    response.content_type("application/json").body(reply.body)
}

/// The engine's usual answer: a leaf for the key of the CSR, by the default issuer, not stored.
fn consent(question: &Value) -> Reply {
    Reply::json(consent_to(question, &Template::default()))
}

/// Consent with this template.
pub fn consent_to(question: &Value, template: &Template) -> Value {
    json!({
        "request_uuid": question["request_uuid"],
        "issuer_ref": "default",
        "certificate": template.pem(&csr_of(question)),
    })
}

/// The CSR in a question.
pub fn csr_of(question: &Value) -> Csr {
    let csr = Csr::from_pem(question["user_request_key_values"]["csr"].as_str().unwrap()).unwrap();
    csr.verify().unwrap();
    csr
}

/// A certificate as the engine wants it.
#[derive(Clone)]
pub struct Template {
    pub serial: Serial,
    pub subject: Name,
    pub not_before: i64,
    pub not_after: i64,
    pub extensions: Vec<Extensions>,
    /// Another key than the CSR's.
    pub other_key: bool,
}

/// An extension that nobody here knows, 1.3.6.1.4.1.99999.1.
pub fn unknown_extension() -> Extensions {
    extension::extension(&[0x2b, 6, 1, 4, 1, 0x86, 0x8d, 0x1f, 1], false, &[4, 3, 1, 2, 3])
}

impl Default for Template {
    fn default() -> Self {
        let now = Clock::system().now().unix_timestamp();
        Self {
            serial: Serial::random(),
            subject: common_name("policy.test"),
            not_before: now - 60,
            not_after: now + 3600,
            extensions: vec![
                dns("policy.test"),
                extension::key_usage(KeyUsage::DIGITAL_SIGNATURE),
                extension::authority_key_id(&[9; 20]),
                unknown_extension(),
            ],
            other_key: false,
        }
    }
}

/// A subject of one common name.
pub fn common_name(text: &str) -> Name {
    name::name(&[&rdn(Attribute::CommonName, &[text.to_owned()])])
}

/// subjectAltName of one DNS name.
pub fn dns(text: &str) -> Extensions {
    extension::subject_alt_name(&SubjectAltNames { dns: vec![text.into()], ..SubjectAltNames::default() }, false)
}

impl Template {
    /// An authority with this path length.
    pub fn authority(path_length: Option<u32>) -> Self {
        let extensions = vec![
            extension::key_usage(KeyUsage::CERT_SIGN.union(KeyUsage::CRL_SIGN)),
            extension::basic_constraints(true, path_length),
        ];
        Self { subject: common_name("policy CA"), extensions, ..Self::default() }
    }

    /// The template for the key of a CSR, signed by a key that means nothing.
    pub fn pem(&self, csr: &Csr) -> String {
        static SCRAP: LazyLock<PrivateKey> =
            LazyLock::new(|| PrivateKey::generate(KeySpec::new("ec", 256).unwrap()).unwrap());
        let algorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);
        let extensions: Vec<&Extensions> = self.extensions.iter().collect();
        let tbs = CertificateTbs {
            serial: &self.serial,
            algorithm,
            issuer: &common_name("the engine"),
            not_before: Time::from_unix_timestamp(self.not_before).unwrap(),
            not_after: Time::from_unix_timestamp(self.not_after).unwrap(),
            subject: &self.subject,
            spki: if self.other_key { SCRAP.public().spki() } else { csr.key.spki() },
            extensions: &extensions,
        }
        .encode();
        pem::encode("CERTIFICATE", &signed(&tbs, algorithm, &SCRAP.sign(algorithm, &tbs).unwrap()))
    }
}

/// Whether a certificate of the engine has this extension, byte for byte.
pub fn has(certificate: &signet::x509::certificate::Certificate, extension: &Extensions) -> bool {
    certificate.extensions().iter().any(|found| &found.raw == extension)
}

/// The AKI of a certificate, the whole extension.
pub fn authority_key_id(certificate: &signet::x509::certificate::Certificate) -> Extensions {
    certificate.extension(oid::AUTHORITY_KEY_ID).unwrap().raw.clone()
}

/// Certificates of the engine's site, made by openssl: an authority `ca`, a `server` and a `client` of it, a
/// server for another name (`misnamed`), and another authority with its server (`strange-ca`, `stranger`).
pub struct Site(Files);

impl Site {
    /// The one of this run.
    pub fn shared() -> &'static Self {
        static SITE: LazyLock<Site> = LazyLock::new(Site::new);
        &SITE
    }

    fn new() -> Self {
        let site = Self(Files::new());
        for (authority, certificates) in [
            ("ca", &[("server", "IP:127.0.0.1"), ("misnamed", "DNS:other.test"), ("client", "DNS:client.test")][..]),
            ("strange-ca", &[("stranger", "IP:127.0.0.1")]),
        ] {
            site.certify(authority, &["-addext", "keyUsage=critical,keyCertSign"]);
            for (name, alt_name) in certificates {
                let (ca, key) = (site.path(authority), site.path(&format!("{authority}-key")));
                let san = format!("subjectAltName={alt_name}");
                let constraints = "basicConstraints=critical,CA:FALSE";
                site.certify(name, &["-CA", &ca, "-CAkey", &key, "-addext", &san, "-addext", constraints]);
            }
        }
        site
    }

    fn path(&self, name: &str) -> String {
        self.0.path(&format!("{name}.pem")).to_str().unwrap().to_owned()
    }

    fn certify(&self, name: &str, more: &[&str]) {
        let subject = format!("/CN={name}");
        let (out, key) = (self.path(name), self.path(&format!("{name}-key")));
        let mut arguments = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        arguments.extend(["-days", "30", "-subj", &subject, "-out", &out, "-keyout", &key]);
        arguments.extend(more);
        openssl(&arguments, b"");
    }

    /// A PEM file of the site.
    pub fn pem(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// A certificate and its key.
    pub fn bundle(&self, name: &str) -> String {
        self.pem(name) + &self.pem(&format!("{name}-key"))
    }
}

fn server_config(certificate: &str, key: &str) -> ServerConfig {
    let site = Site::shared();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(site.pem("ca").as_bytes()).unwrap()).unwrap();
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let chain = vec![CertificateDer::from_pem_slice(site.pem(certificate).as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(site.pem(&format!("{key}-key")).as_bytes()).unwrap();
    // Unlike the usual way, this one does not look whether they belong together.
    let key = provider.key_provider.load_private_key(key).unwrap();
    let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(shown))
}

//! A policy engine controlled by the tests: real TLS with client certificates, recorded requests, and configurable
//! responses.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use signet::clock::{Clock, Time};
use signet::keys::local::{KeySpec, PrivateKey};
use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::csr::Csr;
use signet::x509::extension::{self, KeyUsage, SubjectAltNames};
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::pem;
use signet::x509::pieces::{Extensions, Name};
use signet::x509::serial::Serial;
use signet::x509::tbs::{CertificateTbs, encode_signed};
use tokio::sync::Semaphore;

use crate::v1::pki::foreign::{Files, openssl};
use crate::v1::pki::mount::with;

/// A response of the engine.
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
    pub location: Option<String>,
}

impl Reply {
    /// Returns status 200 with JSON.
    pub fn json(body: Value) -> Self {
        Self { status: 200, body: body.to_string().into_bytes(), location: None }
    }

    /// Returns another status with an error body.
    pub fn status(status: u16) -> Self {
        Self { status, body: b"{\"error\":\"the remote's own words\"}".to_vec(), location: None }
    }
}

type Decide = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

struct Shared {
    decide: Mutex<Decide>,
    questions: Mutex<Vec<Vec<u8>>>,
    /// `traceparent` of each request.
    traces: Mutex<Vec<String>>,
    /// Every response needs a permit; a test may take them all.
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
    /// Starts an engine with the site's server certificate, which requires a client certificate of the same CA.
    pub async fn start() -> Self {
        Self::showing("server", "server").await
    }

    /// Same as [`Engine::start`], with another certificate of the site and the key of this certificate.
    pub async fn showing(certificate: &str, key: &str) -> Self {
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

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("https://{}/decide", self.address)
    }

    /// Sets the response to all further requests.
    pub fn says(&self, decide: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        *self.shared.decide.lock().unwrap() = Arc::new(decide);
    }

    /// Consents to all further requests with this template and further members.
    pub fn consents(&self, template: &Template, more: Value) {
        let template = template.clone();
        self.says(move |question| Reply::json(with(&consent_to(question, &template), more.clone())));
    }

    /// Returns the bodies of all requests so far.
    pub fn raw_questions(&self) -> Vec<Vec<u8>> {
        self.shared.questions.lock().unwrap().clone()
    }

    /// Returns `traceparent` of each request so far; empty for a request without it.
    pub fn traces(&self) -> Vec<String> {
        self.shared.traces.lock().unwrap().clone()
    }

    /// Returns the number of requests so far.
    pub fn asked(&self) -> usize {
        self.shared.questions.lock().unwrap().len()
    }

    /// Returns the last request.
    pub fn question(&self) -> Value {
        serde_json::from_slice(self.raw_questions().last().unwrap()).unwrap()
    }

    /// Waits until this number of requests has arrived.
    pub async fn wait_for(&self, questions: usize) {
        for _ in 0..1000 {
            if self.asked() >= questions {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("only {} of {questions} questions came", self.asked());
    }

    /// Delays all further responses.
    pub async fn hold(&self) {
        self.shared.gate.acquire_many(OPEN as u32).await.unwrap().forget();
    }

    /// Sends the delayed responses, and all further ones.
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

/// The default response: a leaf for the key of the CSR, by the default issuer, not stored.
fn consent(question: &Value) -> Reply {
    Reply::json(consent_to(question, &Template::default()))
}

/// Returns a consent with this template.
pub fn consent_to(question: &Value, template: &Template) -> Value {
    json!({
        "request_uuid": question["request_uuid"],
        "issuer_ref": "default",
        "certificate": template.pem(&csr_of(question)),
    })
}

/// Returns the CSR of a request.
pub fn csr_of(question: &Value) -> Csr {
    let csr = Csr::from_pem(question["user_request_key_values"]["csr"].as_str().unwrap()).unwrap();
    csr.verify().unwrap();
    csr
}

/// The content of a certificate that the engine requests.
#[derive(Clone)]
pub struct Template {
    pub serial: Serial,
    pub subject: Name,
    pub not_before: i64,
    pub not_after: i64,
    pub extensions: Vec<Extensions>,
    /// `true`: it has another key than the CSR.
    pub other_key: bool,
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
                // An unknown extension, 1.3.6.1.4.1.99999.1.
                extension::extension(&[0x2b, 6, 1, 4, 1, 0x86, 0x8d, 0x1f, 1], false, &[4, 3, 1, 2, 3]),
            ],
            other_key: false,
        }
    }
}

/// Returns a subject with one common name.
pub fn common_name(text: &str) -> Name {
    name::name(&[&rdn(Attribute::CommonName, &[text.to_owned()])])
}

/// Returns a subjectAltName with one DNS name.
pub fn dns(text: &str) -> Extensions {
    extension::subject_alt_name(&SubjectAltNames { dns: vec![text.into()], ..SubjectAltNames::default() }, false)
}

impl Template {
    /// Returns the template of a CA with this path length.
    pub fn authority(path_length: Option<u32>) -> Self {
        let extensions = vec![
            extension::key_usage(KeyUsage::CERT_SIGN.union(KeyUsage::CRL_SIGN)),
            extension::basic_constraints(true, path_length),
        ];
        Self { subject: common_name("policy CA"), extensions, ..Self::default() }
    }

    /// Encodes the template for the key of a CSR, signed by a throwaway key.
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
        pem::encode("CERTIFICATE", &encode_signed(&tbs, algorithm, &SCRAP.sign(algorithm, &tbs).unwrap()))
    }
}

/// `true` if a certificate has this extension, byte for byte.
pub fn has(certificate: &signet::x509::certificate::Certificate, extension: &Extensions) -> bool {
    certificate.extensions().iter().any(|found| &found.raw == extension)
}

/// Certificates of the engine's site, created by openssl: a CA `ca` with a `server`, a `client` and a server for
/// another name (`misnamed`), and another CA with its server (`strange-ca`, `stranger`).
pub struct Site(Files);

impl Site {
    /// Returns the site of this test run.
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
                let ca = site.path(authority);
                let key = site.path(&format!("{authority}-key"));
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
        let out = self.path(name);
        let key = self.path(&format!("{name}-key"));
        let mut arguments = vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        arguments.extend(["-days", "30", "-subj", &subject, "-out", &out, "-keyout", &key]);
        arguments.extend(more);
        openssl(&arguments, b"");
    }

    /// Returns a PEM file of the site.
    pub fn pem(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns a certificate and its key.
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
    // Unlike rustls's usual constructor, this one does not check that they belong together.
    let key = provider.key_provider.load_private_key(key).unwrap();
    let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::new(shown))
}

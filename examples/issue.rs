//! A client of the secrets service: it requests a certificate for a key that stays on this machine.
//!
//! Start a server with `cargo run -- dev`. Then run this with the token that the server printed:
//!
//! ```text
//! SIGNET_TOKEN=… cargo run --example issue -- web.example.test
//! ```
//!
//! The example writes `NAME-key.pem` (mode 0600), `NAME.pem` and `NAME-ca.pem` to the current folder, and replaces no
//! existing file. `SIGNET_ADDR` is the server's address, `SIGNET_CACERT` a PEM file with the CAs to trust for its TLS
//! certificate. All attempts have one idempotency key, so that a retry gives no second certificate.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use rcgen::{CertificateParams, DnType, KeyPair};
use reqwest::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Certificate, Client, Response, StatusCode, redirect};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Mount and role of a development server.
const SIGN_PATH: &str = "pki/sign/dev";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "web.example.test".to_owned());
    let address = std::env::var("SIGNET_ADDR").unwrap_or_else(|_| "http://127.0.0.1:8200".to_owned());
    let token = std::env::var("SIGNET_TOKEN").map_err(|_| "SIGNET_TOKEN: is not set: the token of a client")?;

    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([name.clone()])?;
    params.distinguished_name.push(DnType::CommonName, name.as_str());
    let csr = params.serialize_request(&key)?.pem()?;
    write_new(&format!("{name}-key.pem"), 0o600, &key.serialize_pem())?;

    let url = format!("{}/v1/{SIGN_PATH}", address.trim_end_matches('/'));
    let issued = sign(&http_client()?, &url, &token, &csr).await?;
    write_new(&format!("{name}.pem"), 0o644, text(&issued, "certificate")?)?;
    write_new(&format!("{name}-ca.pem"), 0o644, text(&issued, "issuing_ca")?)?;
    println!("{name}: serial number {}", text(&issued, "serial_number")?);
    Ok(())
}

/// A client that does not follow redirects, because its requests contain a token.
fn http_client() -> Result<Client> {
    let mut client = Client::builder().timeout(REQUEST_TIMEOUT).no_proxy().redirect(redirect::Policy::none());
    if let Ok(file) = std::env::var("SIGNET_CACERT") {
        client = client.tls_certs_only(Certificate::from_pem_bundle(&std::fs::read(file)?)?);
    }
    Ok(client.build()?)
}

/// Sends the request until it succeeds or is rejected, at most [`MAX_ATTEMPTS`] times. Returns `data` of the response.
async fn sign(client: &Client, url: &str, token: &str, csr: &str) -> Result<Value> {
    let mut token = HeaderValue::from_str(token)?;
    token.set_sensitive(true);
    let idempotency_key = random_key()?;
    let body = json!({ "csr": csr });
    let request = || client.post(url).header("X-Service-Token", &token).header("Idempotency-Key", &idempotency_key);
    let mut pause = FIRST_PAUSE;
    for _ in 1..MAX_ATTEMPTS {
        let wait = match request().json(&body).send().await {
            Ok(response) if is_busy(&response) => retry_after(&response).max(pause),
            Ok(response) => return data(response).await,
            // The server may have received the request.
            Err(_) => pause,
        };
        tokio::time::sleep(wait).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
    data(request().json(&body).send().await?).await
}

fn is_busy(response: &Response) -> bool {
    [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&response.status())
}

/// The pause that the server requests, limited to [`MAX_PAUSE`].
fn retry_after(response: &Response) -> Duration {
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0)).min(MAX_PAUSE)
}

/// The member `data` of a response; for another status than 200, an error with the server's messages.
async fn data(response: Response) -> Result<Value> {
    let status = response.status();
    let mut body: Value = response.json().await?;
    match status {
        StatusCode::OK => Ok(body["data"].take()),
        _ => Err(format!("{status}: {}", body["errors"]).into()),
    }
}

fn text<'v>(data: &'v Value, member: &str) -> Result<&'v str> {
    data[member].as_str().ok_or_else(|| format!("{member}: is not in the response").into())
}

/// 128 random bits in hexadecimal.
fn random_key() -> Result<String> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn write_new(file: &str, mode: u32, text: &str) -> Result<()> {
    let mut created = OpenOptions::new().write(true).create_new(true).mode(mode).open(file)?;
    Ok(writeln!(created, "{}", text.trim_end())?)
}

//! The scenario `login`: cost of a JWT login, compared with the verification of its signature alone.
//!
//! The server verifies with a configured key, so it contacts no other server. Every login creates a token, which is
//! stored before the response is sent.

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::drive::{Class, Place, drive};
use crate::environment::now;
use crate::html::Run;
use crate::plan::Plan;
use crate::{Args, Scenario, anchors, report};

/// Default number of logins: enough for the embedded store's log to reach its full size and be reused, which is
/// cheaper.
const REQUESTS: u64 = 400_000;
/// CPU microseconds that a login may cost in addition to the verification, including the store.
const MAX_ADDED_CPU_MICROSECONDS: f64 = 45.0;

const AUDIENCE: &str = "https://signet.example";

/// A JWT and the key that verifies it.
struct Signed {
    token: String,
    pem: String,
    /// CPU microseconds of one verification while all cores verify.
    verify_us: f64,
}

/// Runs the scenario and prints the verdict. Fails if a login exceeds its limit.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let open = args.order()?.target.open(Scenario::Login).await?;
    let (class, verify) = prepare(&open.place(), args.clients.into()).await?;
    let requests = args.requests.unwrap_or(REQUESTS);
    let plan = Plan { requests, ..args.plan(Vec::new()) };
    open.settle()?;
    // A login needs no token, and the server ignores one.
    let place = Place { token: "", ..open.place() };
    let figures = drive(&place, vec![class], &plan.bounds(), open.watched).await?;
    let class = figures.only()?;
    if !class.errors.is_empty() || (class.count() == 0 && !figures.interrupted) {
        return Err(format!("some logins failed: {:?}", class.errors));
    }
    let cost = figures.per_request(figures.cpu.sum());
    let verdict = Verdict { cost, verify };
    let store = open.store()?;
    print(store.as_deref().unwrap_or("a running server"), &verdict, class.percentile(50.0), class.percentile(99.0));
    let mut json = verdict.json(store.as_deref(), class.count());
    json["figures"] = figures.json();
    let runs = vec![Run { title: "login".to_owned(), figures: &figures }];
    args.outputs.write(&json, || report::page("login", &plan, runs, 1))?;
    figures.outcome()?;
    if verdict.holds() == Some(false) { Err("the CPU time of a login exceeds the limit".to_owned()) } else { Ok(()) }
}

/// Creates a method with a role. Returns the clients that log in, and the CPU microseconds of verifying their JWT.
pub(crate) async fn prepare(admin: &Place<'_>, clients: usize) -> Result<(Class, f64), String> {
    let signed = signed()?;
    let provisioner = admin.provisioner;
    let method = provisioner.fresh_name();
    provisioner.auth_method(&method, &json!({ "type": "jwt" })).await?;
    let config = json!({ "jwt_validation_pubkeys": [signed.pem] });
    provisioner.must(&format!("/v1/auth/{method}/config"), &config).await?;
    let role = json!({ "role_type": "jwt", "user_claim": "sub", "bound_audiences": AUDIENCE, "token_ttl": "1h",
        "bound_claims": { "/kubernetes.io/namespace": "web" }, "token_policies": provisioner.name() });
    provisioner.must(&format!("/v1/auth/{method}/role/load"), &role).await?;
    let body = json!({ "role": "load", "jwt": signed.token }).to_string();
    let path = format!("/v1/auth/{method}/login");
    let has_token = |answer: &Value| answer["auth"]["client_token"].is_string();
    Ok((Class::post("login", clients, path, vec![Bytes::from(body)], has_token), signed.verify_us))
}

/// Creates a JWT like those of Kubernetes service accounts, with a new key.
fn signed() -> Result<Signed, String> {
    let key = KeyPair::generate(KeySize::Rsa2048).map_err(|e| e.to_string())?;
    let spki: PublicKeyX509Der<'_> = key.public_key().as_der().map_err(|e| e.to_string())?;
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(spki.as_ref()));
    let now = now();
    let header = json!({ "alg": "RS256", "kid": "load" });
    let claims = json!({
        "iss": "https://cluster.example", "aud": [AUDIENCE], "sub": "system:serviceaccount:web:builder",
        "iat": now, "nbf": now, "exp": now + 86_400, "jti": "0c3b2f8e-6f0c-4d5e-9a57-3f0d4f0f2d11",
        "kubernetes.io": { "namespace": "web", "node": { "name": "node-1", "uid": "b9c1" },
            "pod": { "name": "build-0", "uid": "5e0c" }, "serviceaccount": { "name": "builder", "uid": "14ee" } },
    });
    let message = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature).map_err(|e| e.to_string())?;
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let verify_us = anchors::busy_micros(cores, 1000, || Ok(|| public.verify(message.as_bytes(), &signature)))?;
    public.verify(message.as_bytes(), &signature).map_err(|e| e.to_string())?;
    Ok(Signed { token: format!("{message}.{}", URL_SAFE_NO_PAD.encode(&signature)), pem, verify_us })
}

/// Cost of a login and of the verification, in CPU microseconds.
struct Verdict {
    /// `None` if the server's process is unknown.
    cost: Option<f64>,
    verify: f64,
}

impl Verdict {
    fn max_cost(&self) -> f64 {
        self.verify + MAX_ADDED_CPU_MICROSECONDS
    }

    fn holds(&self) -> Option<bool> {
        self.cost.map(|cost| cost <= self.max_cost())
    }

    fn json(&self, store: Option<&str>, requests: u64) -> Value {
        json!({ "scenario": "login", "store": store, "requests": requests, "cpu_us_per_login": self.cost,
            "rs256_verify_us": self.verify, "at_most": self.max_cost(), "holds": self.holds() })
    }
}

fn print(store: &str, verdict: &Verdict, p50: f64, p99: f64) {
    println!("login on {store}");
    println!("  latency         p50 {p50:.2} ms, p99 {p99:.2} ms");
    let &Verdict { cost: Some(cost), verify } = verdict else { return };
    let holds = if verdict.holds() == Some(true) { "holds " } else { "MISSED" };
    println!("  {holds}  CPU per login, µs {cost:>8.2}  at most {:.2}: RS256 {verify:.2} and 45", verdict.max_cost());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_cost_limit_is_verification_plus_an_allowance() {
        assert_eq!(Verdict { cost: Some(70.0), verify: 25.0 }.holds(), Some(true));
        assert_eq!(Verdict { cost: Some(70.1), verify: 25.0 }.holds(), Some(false));
        let json = Verdict { cost: Some(70.0), verify: 25.0 }.json(Some("SQLite"), 7);
        assert_eq!((&json["at_most"], &json["requests"], &json["holds"]), (&json!(70.0), &json!(7), &json!(true)));
    }

    #[test]
    fn unmeasured_login_cost_has_no_verdict() {
        let json = Verdict { cost: None, verify: 25.0 }.json(None, 7);
        assert_eq!((&json["holds"], &json["cpu_us_per_login"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn the_token_is_of_three_parts_and_its_key_is_pem() {
        let signed = signed().unwrap();
        assert_eq!(signed.token.split('.').count(), 3);
        assert!(signed.pem.starts_with("-----BEGIN PUBLIC KEY-----\nMII") && signed.verify_us > 0.0);
    }
}

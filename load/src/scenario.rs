//! The scenarios: what they need on the server, and what their clients ask for.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::Scenario;
use crate::client::Client;
use crate::drive::{Bounds, Class, Figures, Place, Watched, drive};
use crate::preload;

/// CSRs made before a `sign` run; each is sent many times.
const CSRS: usize = 256;

/// A run.
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    /// Where it is signed; `pki` of most.
    pub(crate) mount: String,
    pub(crate) clients: usize,
    pub(crate) rsa_clients: usize,
    pub(crate) requests: u64,
    pub(crate) seconds: u64,
    pub(crate) key_type: String,
    pub(crate) key_bits: u32,
    pub(crate) no_store: bool,
    pub(crate) quiet: bool,
    /// Bodies of `revoke`.
    pub(crate) serials: Vec<Bytes>,
}

impl Plan {
    /// Whether the server makes RSA keys: then their generation is a limit of the run.
    pub(crate) fn makes_rsa(&self) -> bool {
        self.scenario == Scenario::Mixed || (self.scenario == Scenario::Issue && self.key_type == "rsa")
    }
}

/// Prepares the server and runs the plan.
pub(crate) async fn run(plan: &Plan, admin: &Place<'_>, watched: Watched) -> Result<Figures, String> {
    let token = prepare(plan, admin).await?;
    let place = Place { addr: admin.addr, token: &token };
    let bounds = Bounds { requests: plan.requests, time: Duration::from_secs(plan.seconds), quiet: plan.quiet };
    drive(&place, classes(plan)?, &bounds, watched).await
}

/// Roles, a policy of ten rules, and a token that has only that policy.
async fn prepare(plan: &Plan, admin: &Place<'_>) -> Result<String, String> {
    let mut client = Client::connect(admin.addr, admin.token).await?;
    let roles = format!("/v1/{}/roles", plan.mount);
    client.must(&format!("{roles}/load"), &role(&plan.key_type, plan.key_bits, plan.no_store)).await?;
    client.must(&format!("{roles}/load-rsa"), &role("rsa", 2048, plan.no_store)).await?;
    let mut policy = String::new();
    for i in 0..6 {
        policy.push_str(&format!("path \"secret/team{i}/*\" {{ capabilities = [\"read\", \"list\"] }}\n"));
    }
    policy.push_str("path \"pki/issue/load\" { capabilities = [\"update\"] }\n");
    policy.push_str("path \"pki/issue/load-rsa\" { capabilities = [\"update\"] }\n");
    policy.push_str("path \"pki/revoke\" { capabilities = [\"update\"] }\n");
    policy.push_str(&format!("path \"{}/sign/+\" {{ capabilities = [\"update\"] }}\n", plan.mount));
    client.must("/v1/sys/policies/acl/load", &json!({ "policy": policy })).await?;
    let created = client.must("/v1/auth/token/create", &json!({ "policies": ["load"], "ttl": "1h" })).await?;
    created["auth"]["client_token"].as_str().map(str::to_owned).ok_or_else(|| "no token was created".to_owned())
}

/// A role that allows the names asked for here.
pub(crate) fn role(key_type: &str, key_bits: u32, no_store: bool) -> Value {
    json!({
        "key_type": key_type,
        "key_bits": key_bits,
        "allowed_domains": ["example.test", "example.com"],
        "allow_subdomains": true,
        "no_store": no_store,
    })
}

/// The classes of clients; the first one bounds the run.
fn classes(plan: &Plan) -> Result<Vec<Class>, String> {
    let name = format!("{} {}", plan.key_type, plan.key_bits);
    Ok(match plan.scenario {
        Scenario::Preload
        | Scenario::Login
        | Scenario::Ocsp
        | Scenario::Oversize
        | Scenario::Projects
        | Scenario::SignManaged => vec![],
        Scenario::Revoke | Scenario::Crl => {
            vec![preload::revoking("revoke".to_owned(), plan.clients, plan.serials.clone())]
        }
        Scenario::Issue => vec![issuing(name, plan.clients, "load", "24h")],
        Scenario::Sign => {
            let bodies = (0..CSRS)
                .map(|i| csr(plan, i).map(|csr| Bytes::from(json!({ "csr": csr, "ttl": "24h" }).to_string())))
                .collect::<Result<_, _>>()?;
            let path = format!("/v1/{}/sign/load", plan.mount);
            vec![Class { name, clients: plan.clients, method: Method::POST, path, bodies, plausible: certified }]
        }
        Scenario::Mixed => vec![
            issuing(name, plan.clients, "load", "24h"),
            issuing("rsa 2048".to_owned(), plan.rsa_clients, "load-rsa", "24h"),
        ],
    })
}

/// Clients that ask for keys and certificates of a role.
pub(crate) fn issuing(name: String, clients: usize, role: &str, ttl: &str) -> Class {
    let body = json!({ "common_name": "load.example.test", "alt_names": "www.example.test", "ttl": ttl });
    let bodies = vec![Bytes::from(body.to_string())];
    let path = format!("/v1/pki/issue/{role}");
    Class { name, clients, method: Method::POST, path, bodies, plausible: certified }
}

/// Whether an answer holds a certificate and its serial.
fn certified(answer: &Value) -> bool {
    let certificate = answer["data"]["certificate"].as_str();
    certificate.is_some_and(|pem| pem.starts_with("-----BEGIN CERTIFICATE-----"))
        && answer["data"]["serial_number"].is_string()
}

fn csr(plan: &Plan, number: usize) -> Result<String, String> {
    let algorithm = match (plan.key_type.as_str(), plan.key_bits) {
        ("ec", 0 | 256) => &rcgen::PKCS_ECDSA_P256_SHA256,
        ("ec", 384) => &rcgen::PKCS_ECDSA_P384_SHA384,
        ("ed25519", _) => &rcgen::PKCS_ED25519,
        _ => return Err("sign: --key-type must be ec (256, 384) or ed25519".to_owned()),
    };
    let name = format!("load{number}.example.test");
    let key = rcgen::KeyPair::generate_for(algorithm).map_err(|e| e.to_string())?;
    let mut params = rcgen::CertificateParams::new(vec![name.clone()]).map_err(|e| e.to_string())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.serialize_request(&key).and_then(|csr| csr.pem()).map_err(|e| e.to_string())
}

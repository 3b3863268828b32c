//! The scenarios: what they need on the server, and what their clients ask for.

use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::Scenario;
use crate::drive::{Bounds, Class, Figures, Place, Watched, drive};
use crate::ocsp::Asked;
use crate::pace::Pace;
use crate::{login, preload};

/// CSRs made before a `sign` run; each is sent many times.
const CSRS: usize = 256;
/// Suffix of the role for RSA keys.
const RSA: &str = "-rsa";
/// Life of a root that is made here, and of the mount's certificates at most.
pub(crate) const ROOT_TTL: &str = "87600h";
/// Life of what is asked for from a root of somebody else's, which may itself not live for long.
const SHORT_TTL: &str = "24h";
/// How much longer than a run its token lives, seconds.
const TOKEN_BESIDE: u64 = 3600;

/// A run.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) clients: usize,
    pub(crate) rsa_clients: usize,
    pub(crate) requests: u64,
    pub(crate) seconds: u64,
    pub(crate) pace: Pace,
    pub(crate) key_type: String,
    pub(crate) key_bits: u32,
    pub(crate) no_store: bool,
    /// The mount builds its CRLs by the timer, not while somebody waits who revokes.
    pub(crate) auto_rebuild: bool,
    /// The role that is asked for.
    pub(crate) role: Option<String>,
    /// Mount, root and role exist, and the token may use them: nothing is made.
    pub(crate) prepared: bool,
    pub(crate) quiet: bool,
    /// Bodies of `revoke`; found, and made where they are missing, unless they are given.
    pub(crate) serials: Vec<Bytes>,
}

impl Plan {
    /// Whether the server makes RSA keys: then their generation is a limit of the run.
    pub(crate) fn makes_rsa(&self) -> bool {
        self.scenario == Scenario::Mixed || (self.scenario == Scenario::Issue && self.key_type == "rsa")
    }

    /// Whether it can be run at all, as far as that is known before.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.scenario == Scenario::Sign { algorithm(self).map(drop) } else { Ok(()) }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let time = Duration::from_secs(self.seconds);
        Bounds { requests: self.requests, time, pace: self.pace, quiet: self.quiet }
    }

    /// The role of the requests: the caller's, or the run's own.
    pub(crate) fn role<'a>(&'a self, admin: &Place<'a>) -> &'a str {
        self.role.as_deref().unwrap_or(admin.provisioner.name())
    }

    /// The role for certificates that are missing in the store; `None` creates one.
    pub(crate) fn preload_role(&self) -> Option<&str> {
        self.role.as_deref().filter(|_| self.prepared)
    }

    /// Life of the certificates: where the mount is made here, a run on the same store months later finds them valid,
    /// and can revoke them.
    fn ttl(&self) -> &'static str {
        if self.prepared { SHORT_TTL } else { preload::TTL }
    }

    /// Life of the token that asks: the run, and time enough for what is made before it and answered after it.
    fn token_ttl(&self) -> String {
        format!("{}s", self.seconds.saturating_add(TOKEN_BESIDE))
    }

    fn name(&self) -> String {
        format!("{} {}", self.key_type, self.key_bits)
    }
}

/// Prepares the server and runs the plan.
pub(crate) async fn run(plan: &Plan, admin: &Place<'_>, watched: Watched) -> Result<Figures, String> {
    let (token, classes) = workload(plan, admin).await?;
    let place = Place { token: &token, ..*admin };
    drive(&place, classes, &plan.bounds(), watched).await
}

/// Creates what the plan needs on the server; the token and the classes of its clients.
pub(crate) async fn workload(plan: &Plan, admin: &Place<'_>) -> Result<(String, Vec<Class>), String> {
    let open = |class: Class| (String::new(), vec![class]);
    let (clients, role) = (plan.clients, plan.role(admin));
    Ok(match plan.scenario {
        Scenario::Health => {
            let path = "/v1/sys/health".to_owned();
            open(Class { name: "health".to_owned(), clients, path, ..Class::default() })
        }
        Scenario::CrlGet => open(complete_crl(admin, clients)),
        Scenario::OcspGet | Scenario::OcspNonce => {
            let asked = Asked::find(admin, usize::MAX).await?;
            open(asked.class(&Method::GET, plan.scenario == Scenario::OcspNonce, clients))
        }
        Scenario::Login => open(login::prepare(admin, clients).await?.0),
        Scenario::Issue | Scenario::Mixed => {
            let mut classes = vec![issuing(plan.name(), clients, admin.mount, role, plan.ttl())];
            if plan.scenario == Scenario::Mixed {
                let role = format!("{role}{RSA}");
                classes.push(issuing("rsa 2048".to_owned(), plan.rsa_clients, admin.mount, &role, plan.ttl()));
            }
            (prepare(plan, admin).await?, classes)
        }
        Scenario::Sign => {
            let bodies = (0..CSRS)
                .map(|i| csr(plan, i).map(|csr| Bytes::from(json!({ "csr": csr, "ttl": plan.ttl() }).to_string())))
                .collect::<Result<_, _>>()?;
            let (name, path) = (plan.name(), admin.path(&format!("sign/{role}")));
            let method = Method::POST;
            let class = Class { name, clients, method, path, bodies, plausible: certified, ..Class::default() };
            (prepare(plan, admin).await?, vec![class])
        }
        Scenario::Revoke | Scenario::Crl => {
            let token = prepare(plan, admin).await?;
            let serials = if plan.serials.is_empty() { serials(plan, admin).await? } else { plan.serials.clone() };
            (token, vec![preload::revoking("revoke".to_owned(), clients, admin.mount, serials)])
        }
        Scenario::Preload
        | Scenario::Ocsp
        | Scenario::Oversize
        | Scenario::Crowd
        | Scenario::Attack
        | Scenario::Projects
        | Scenario::Nodes
        | Scenario::SignManaged => {
            return Err(format!("{}: it has a command of its own", plan.scenario.name()));
        }
    })
}

/// What a `revoke` run sends, after the mount was told when to build its CRLs.
async fn serials(plan: &Plan, admin: &Place<'_>) -> Result<Vec<Bytes>, String> {
    let (serials, _) = preload::to_revoke(admin, plan.requests, plan.preload_role(), plan.quiet).await?;
    if !plan.prepared {
        preload::auto_rebuild(admin, plan.auto_rebuild).await?;
    }
    Ok(serials)
}

/// Creates roles, a policy of ten rules, and a token that has only that policy.
pub(crate) async fn prepare(plan: &Plan, admin: &Place<'_>) -> Result<String, String> {
    if plan.prepared {
        return Ok(admin.token.to_owned());
    }
    let (mount, name, provisioner) = (admin.mount, plan.role(admin), admin.provisioner);
    provisioner.role(mount, name, &role(&plan.key_type, plan.key_bits, plan.no_store)).await?;
    if plan.scenario == Scenario::Mixed {
        provisioner.role(mount, &format!("{name}{RSA}"), &role("rsa", 2048, plan.no_store)).await?;
    }
    let mut policy = String::new();
    for i in 0..6 {
        policy.push_str(&format!("path \"secret/team{i}/*\" {{ capabilities = [\"read\", \"list\"] }}\n"));
    }
    for path in [format!("issue/{name}"), format!("issue/{name}{RSA}"), "revoke".to_owned(), "sign/+".to_owned()] {
        policy.push_str(&format!("path \"{mount}/{path}\" {{ capabilities = [\"update\"] }}\n"));
    }
    provisioner.policy(provisioner.name(), &policy).await?;
    provisioner.token(&json!({ "policies": [provisioner.name()], "ttl": plan.token_ttl() })).await
}

/// Looks the mount up: `true` when it exists.
pub(crate) async fn has_mount(admin: &Place<'_>) -> Result<bool, String> {
    let mounts = admin.connect().await?.send(Method::GET, "/v1/sys/mounts", Bytes::new()).await?;
    if mounts.status != StatusCode::OK {
        return Err(format!("sys/mounts: {}; --prepared uses a mount, root and role that exist", mounts.status));
    }
    let mounts: Value = serde_json::from_slice(&mounts.body).map_err(|e| format!("sys/mounts: {e}"))?;
    let name = format!("{}/", admin.mount);
    // Some servers list mounts in the envelope alone, others also next to it.
    Ok(mounts["data"].get(&name).or(mounts.get(&name)).is_some())
}

/// Creates the mount, with a root of P-256.
pub(crate) async fn make_mount(admin: &Place<'_>) -> Result<(), String> {
    let mount = json!({ "type": "pki", "config": { "max_lease_ttl": ROOT_TTL } });
    admin.provisioner.mount(admin.mount, &mount).await?;
    ensure_root(admin).await
}

/// Creates a root of P-256 if the mount has none.
pub(crate) async fn ensure_root(admin: &Place<'_>) -> Result<(), String> {
    let root = admin.connect().await?.send(Method::GET, &admin.path("ca"), Bytes::new()).await?;
    if root.status == StatusCode::OK && !root.body.is_empty() {
        return Ok(());
    }
    let root = json!({ "common_name": "Load root", "ttl": ROOT_TTL, "key_type": "ec", "key_bits": 256 });
    admin.provisioner.must(&admin.path("root/generate/internal"), &root).await.map(drop)
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

/// Clients that ask for the complete CRL.
pub(crate) fn complete_crl(place: &Place<'_>, clients: usize) -> Class {
    let (name, path) = ("complete CRL".to_owned(), place.path("crl"));
    Class { name, clients, path, plausible: |answer| answer[0] == 0x30, ..Class::default() }
}

/// Clients that ask for keys and certificates of a role.
pub(crate) fn issuing(name: String, clients: usize, mount: &str, role: &str, ttl: &str) -> Class {
    let body = json!({ "common_name": "load.example.test", "alt_names": "www.example.test", "ttl": ttl });
    let bodies = vec![Bytes::from(body.to_string())];
    let path = format!("/v1/{mount}/issue/{role}");
    Class { name, clients, method: Method::POST, path, bodies, plausible: certified, ..Class::default() }
}

/// Whether an answer holds a certificate and its serial.
fn certified(answer: &Value) -> bool {
    let certificate = answer["data"]["certificate"].as_str();
    certificate.is_some_and(|pem| pem.starts_with("-----BEGIN CERTIFICATE-----"))
        && answer["data"]["serial_number"].is_string()
}

/// What the keys of CSRs are for.
fn algorithm(plan: &Plan) -> Result<&'static rcgen::SignatureAlgorithm, String> {
    match (plan.key_type.as_str(), plan.key_bits) {
        ("ec", 0 | 256) => Ok(&rcgen::PKCS_ECDSA_P256_SHA256),
        ("ec", 384) => Ok(&rcgen::PKCS_ECDSA_P384_SHA384),
        ("ed25519", _) => Ok(&rcgen::PKCS_ED25519),
        (other, bits) => {
            Err(format!("sign: the key type must be ec of 256 or 384 bits, or ed25519, and is {other} of {bits}"))
        }
    }
}

fn csr(plan: &Plan, number: usize) -> Result<String, String> {
    let name = format!("load{number}.example.test");
    let key = rcgen::KeyPair::generate_for(algorithm(plan)?).map_err(|e| e.to_string())?;
    let mut params = rcgen::CertificateParams::new(vec![name.clone()]).map_err(|e| e.to_string())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.serialize_request(&key).and_then(|csr| csr.pem()).map_err(|e| e.to_string())
}

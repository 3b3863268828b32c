//! Parameters of a run, and the roles and requests that follow from them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::Scenario;
use crate::drive::{Bounds, Class, Place};
use crate::pace::Pace;

/// Lifetime of the certificates: a store that is reused later still holds valid ones.
pub(crate) const TTL: &str = "8760h";
/// Lifetime of certificates of an existing root, which may expire soon itself.
const SHORT_TTL: &str = "24h";
/// Lifetime of the token beyond the run, in seconds.
const TOKEN_BESIDE: u64 = 3600;

/// Parameters of a run.
#[derive(Clone, Default)]
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
    /// `true`: the timer builds the mount's CRLs, not each revocation.
    pub(crate) auto_rebuild: bool,
    /// Role of the requests; `None` for the run's own.
    pub(crate) role: Option<String>,
    /// `true`: an existing mount, root and role are used as they are.
    pub(crate) prepared: bool,
    pub(crate) quiet: bool,
    /// Request bodies of `revoke`; if empty, certificates are found or issued.
    pub(crate) serials: Vec<Bytes>,
}

impl Plan {
    /// `true` if the server generates RSA keys, which then limits the rate.
    pub(crate) fn makes_rsa(&self) -> bool {
        self.scenario == Scenario::Mixed || (self.scenario == Scenario::Issue && self.key_type == "rsa")
    }

    /// Rejects a plan that cannot be run.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.scenario == Scenario::Sign { algorithm(self).map(drop) } else { Ok(()) }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let time = Duration::from_secs(self.seconds);
        Bounds { requests: self.requests, time, pace: self.pace, quiet: self.quiet }
    }

    /// Returns the role of the requests: the user's, or the run's own.
    pub(crate) fn role<'a>(&'a self, admin: &Place<'a>) -> &'a str {
        self.role.as_deref().unwrap_or(admin.provisioner.name())
    }

    /// Returns the role for certificates missing in the store; `None` to create one.
    pub(crate) fn preload_role(&self) -> Option<&str> {
        self.role.as_deref().filter(|_| self.prepared)
    }

    /// Returns the lifetime of the certificates. In a mount created here it is long, so that a run on the same store
    /// months later can revoke them.
    pub(crate) fn ttl(&self) -> &'static str {
        if self.prepared { SHORT_TTL } else { TTL }
    }

    /// Returns the lifetime of the token: the run, and time for preparation and late responses.
    pub(crate) fn token_ttl(&self) -> String {
        format!("{}s", self.seconds.saturating_add(TOKEN_BESIDE))
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.key_type, self.key_bits)
    }
}

/// Required or actual contents of a mount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stock {
    pub(crate) certificates: u64,
    /// Number of revoked certificates among them.
    pub(crate) revoked: u64,
}

impl Stock {
    pub(crate) fn is_empty(self) -> bool {
        self.certificates == 0 && self.revoked == 0
    }

    /// Rejects more revoked certificates than certificates. `dashes` is the prefix of field names in errors.
    pub(crate) fn check(self, dashes: &str) -> Result<(), String> {
        if self.revoked <= self.certificates {
            return Ok(());
        }
        Err(format!("{dashes}revoked: must not be more than {dashes}preload, the certificates there are"))
    }
}

/// Returns a role that allows the names of the requests.
pub(crate) fn role(key_type: &str, key_bits: u32, no_store: bool) -> Value {
    json!({
        "key_type": key_type,
        "key_bits": key_bits,
        "allowed_domains": ["example.test", "example.com"],
        "allow_subdomains": true,
        "no_store": no_store,
    })
}

/// Returns clients that request keys and certificates by a role.
pub(crate) fn issuing(name: String, clients: usize, mount: &str, role: &str, ttl: &str) -> Class {
    let body = json!({ "common_name": "load.example.test", "alt_names": "www.example.test", "ttl": ttl });
    Class::post(name, clients, format!("/v1/{mount}/issue/{role}"), vec![Bytes::from(body.to_string())], certified)
}

/// `true` if the response has a certificate and a serial number.
pub(crate) fn certified(answer: &Value) -> bool {
    let certificate = answer["data"]["certificate"].as_str();
    certificate.is_some_and(|pem| pem.starts_with("-----BEGIN CERTIFICATE-----"))
        && answer["data"]["serial_number"].is_string()
}

pub(crate) fn algorithm(plan: &Plan) -> Result<&'static rcgen::SignatureAlgorithm, String> {
    match (plan.key_type.as_str(), plan.key_bits) {
        ("ec", 0 | 256) => Ok(&rcgen::PKCS_ECDSA_P256_SHA256),
        ("ec", 384) => Ok(&rcgen::PKCS_ECDSA_P384_SHA384),
        ("ed25519", _) => Ok(&rcgen::PKCS_ED25519),
        (other, bits) => {
            Err(format!("sign: the key type must be ec of 256 or 384 bits, or ed25519, and is {other} of {bits}"))
        }
    }
}

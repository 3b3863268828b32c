//! Parameters of a run, and the roles and requests that follow from them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::drive::{RequestClass, RunLimits, ServerAccess};
use crate::environment::Facts;
use crate::format::number;
use crate::pace::Pace;
use crate::scenario::Scenario;

/// Lifetime of the certificates. It is long, so that a store that is reused months later still holds valid ones.
pub(crate) const CERTIFICATE_TTL: &str = "8760h";
/// Lifetime of certificates of an existing root. It is short, because the root may expire soon.
const PREPARED_CERTIFICATE_TTL: &str = "24h";
/// Lifetime of the token beyond the run, in seconds.
const EXTRA_TOKEN_SECONDS: u64 = 3600;

/// Default number of connections.
pub(crate) const CLIENTS: u16 = 64;
/// Default number of requests.
pub(crate) const REQUESTS: u64 = 100_000;
/// Maximum duration of a run in seconds: one day.
const MAX_SECONDS: u64 = 86_400;

/// Parameters of a run. The fields are options of the command line and fields of plan files.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Plan {
    #[arg(skip)]
    pub(crate) scenario: Scenario,
    /// Connections, each with one request in flight.
    #[arg(long, default_value_t = CLIENTS, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) clients: u16,
    /// Connections of `mixed` that request RSA-2048 keys.
    #[arg(long, default_value_t = 8)]
    pub(crate) rsa_clients: u16,
    /// Number of requests (default: 100,000, or unlimited with `--rate`). `mixed` does not count the RSA requests.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: Option<u64>,
    #[command(flatten)]
    pub(crate) pace: Pace,
    /// Maximum duration of the run in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=MAX_SECONDS))]
    pub(crate) seconds: u64,
    /// Key type of the certificates.
    #[arg(long, default_value = "ec", value_parser = ["ec", "ed25519", "rsa"])]
    pub(crate) key_type: String,
    /// Key size of the certificates; 0 selects the default of the type.
    #[arg(long, default_value_t = 256)]
    pub(crate) key_bits: u32,
    /// For `revoke`: CRLs are built by the timer, not by each revocation.
    #[arg(long)]
    pub(crate) auto_rebuild: bool,
    /// Do not store the certificates.
    #[arg(long)]
    pub(crate) no_store: bool,
    /// No progress bar.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Role of the requests; `None` for the run's own.
    #[arg(skip)]
    pub(crate) role: Option<String>,
    /// `true`: an existing mount, root and role are used as they are.
    #[arg(skip)]
    pub(crate) prepared: bool,
    /// Request bodies of `revoke`; if empty, certificates are found or issued.
    #[arg(skip)]
    pub(crate) serials: Vec<Bytes>,
}

impl Plan {
    /// `true` if the requests make the server generate RSA keys. That limits the rate.
    pub(crate) fn makes_rsa(&self) -> bool {
        self.scenario == Scenario::Mixed || (self.scenario == Scenario::Issue && self.key_type == "rsa")
    }

    /// Rejects a plan that cannot be run.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.pace.ramp.as_secs() > self.seconds {
            return Err("--ramp: must not be more than --seconds".to_owned());
        }
        if self.scenario == Scenario::Sign { algorithm(self).map(drop) } else { Ok(()) }
    }

    /// Returns the maximum number of requests.
    pub(crate) fn max_requests(&self) -> u64 {
        // `revoke` needs a finite number: its certificates exist before the run.
        let is_finite = self.pace.rate.is_none() || self.scenario == Scenario::Revoke;
        self.requests.unwrap_or(if is_finite { REQUESTS } else { u64::MAX })
    }

    /// Returns scenario, load and limits for a report.
    pub(crate) fn facts(&self) -> Facts {
        let mut load = match self.pace.rate {
            Some(rate) => format!("{} a second by at most {} connections", number(rate), self.clients),
            None => format!("{} connections, each with one request in flight", self.clients),
        };
        if !self.pace.ramp.is_zero() {
            load.push_str(&format!(", within {} s", self.pace.ramp.as_secs()));
        }
        let mut most = format!("{} s", self.seconds);
        if self.max_requests() < u64::MAX {
            most.push_str(&format!(" or {} requests", number(self.max_requests() as f64)));
        }
        let facts = [("scenario", self.scenario.name()), ("load", load), ("at most", most)];
        facts.map(|(name, text)| (name.to_owned(), text)).to_vec()
    }

    pub(crate) fn bounds(&self) -> RunLimits {
        let time = Duration::from_secs(self.seconds);
        RunLimits { requests: self.max_requests(), time, pace: self.pace, quiet: self.quiet }
    }

    /// Returns the role of the requests: the user's, or the run's own.
    pub(crate) fn role<'a>(&'a self, admin: &ServerAccess<'a>) -> &'a str {
        self.role.as_deref().unwrap_or(admin.provisioner.name())
    }

    /// Returns the existing role with which missing certificates are issued to fill the store; `None` to create a role.
    pub(crate) fn preload_role(&self) -> Option<&str> {
        self.role.as_deref().filter(|_| self.prepared)
    }

    /// Returns the lifetime of the certificates. In a mount created here it is long, so that a run on the same store
    /// months later can revoke them.
    pub(crate) fn ttl(&self) -> &'static str {
        if self.prepared { PREPARED_CERTIFICATE_TTL } else { CERTIFICATE_TTL }
    }

    /// Returns the lifetime of the token: the run, and time for preparation and late responses.
    pub(crate) fn token_ttl(&self) -> String {
        format!("{}s", self.seconds.saturating_add(EXTRA_TOKEN_SECONDS))
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.key_type, self.key_bits)
    }
}

/// Required or actual contents of a mount. The fields are options of the command line and fields of plan files.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq)]
#[group(skip)]
pub(crate) struct MountContents {
    /// Before the run, issue certificates until the store holds this many.
    #[arg(long = "preload", value_name = "N", visible_alias = "certificates", default_value_t = 0)]
    pub(crate) certificates: u64,
    /// Before the run, revoke certificates until this many are revoked.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) revoked: u64,
}

impl std::fmt::Display for MountContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} of them revoked", self.certificates, self.revoked)
    }
}

impl MountContents {
    pub(crate) fn is_empty(self) -> bool {
        self.certificates == 0 && self.revoked == 0
    }

    /// Rejects more revoked certificates than certificates.
    pub(crate) fn check(self) -> Result<(), String> {
        if self.revoked <= self.certificates {
            return Ok(());
        }
        Err("--revoked: must not be more than --preload (the number of certificates)".to_owned())
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
pub(crate) fn issuing(name: String, clients: usize, mount: &str, role: &str, ttl: &str) -> RequestClass {
    let body = json!({ "common_name": "load.example.test", "alt_names": "www.example.test", "ttl": ttl });
    RequestClass::post(
        name,
        clients,
        format!("/v1/{mount}/issue/{role}"),
        vec![Bytes::from(body.to_string())],
        has_certificate,
    )
}

/// `true` if the response has a certificate and a serial number.
pub(crate) fn has_certificate(answer: &Value) -> bool {
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

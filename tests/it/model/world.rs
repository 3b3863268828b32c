//! The model: authorities, certificates, revocations, settings, and the required and permitted contents of each CRL.
//!
//! A revocation belongs on the CRL of the authority (name and key) that issued its certificate. While the mount has no
//! issuer of that authority, it belongs on the default issuer's CRL. It stays there, even if the certificate expires,
//! until tidy removes it or an operator's change (issuers, `disable`) moves it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde_json::{Value, json};
use signet::x509::certificate::Certificate;

use super::BACKDATING;

/// A name and a key. All its issuers share CRLs.
pub struct Authority {
    pub name: &'static str,
    pub certificate: Certificate,
    pub issuers: Vec<Issuer>,
    pub seen: Seen,
    /// Revocations that its CRLs may still contain, until the next complete CRL, although they no longer belong there.
    pub lingering: BTreeMap<String, Revocation>,
}

pub struct Issuer {
    pub pem: String,
    /// The id while it is in the mount.
    pub id: Option<String>,
}

impl Authority {
    pub fn ids(&self) -> impl Iterator<Item = &String> {
        self.issuers.iter().filter_map(|issuer| issuer.id.as_ref())
    }

    pub fn is_here(&self) -> bool {
        self.ids().next().is_some()
    }
}

#[derive(Default)]
pub struct Seen {
    pub complete: Option<(u64, Vec<u8>)>,
    pub delta: Option<(u64, Vec<u8>)>,
    pub highest: u64,
}

pub struct Cert {
    pub authority: usize,
    pub pem: String,
    pub not_after: i64,
    pub stored: bool,
    pub revocation: Option<Revocation>,
    /// The revocation that tidy removed.
    pub once: Option<Revocation>,
    /// Time and reason of revocations without a response.
    pub tried: Vec<(i64, Option<u8>)>,
}

#[derive(Clone, Debug)]
pub struct Revocation {
    pub at: i64,
    /// Its possible reasons: more than one after a race.
    pub reasons: Vec<Option<u8>>,
    /// Reasons that keyCompromise may have replaced; CRLs may still contain them.
    pub earlier: Vec<Option<u8>>,
    /// `true` if it must be on the complete CRL.
    pub complete: bool,
    /// `true` if it must be on the complete or the delta CRL.
    pub listed: bool,
}

pub const COMPROMISE: Option<u8> = Some(1);

impl Revocation {
    pub fn at(at: i64, reasons: Vec<Option<u8>>) -> Self {
        Self { at, reasons, earlier: Vec::new(), complete: false, listed: false }
    }

    pub fn is_compromised(&mut self) {
        self.earlier.append(&mut self.reasons);
        self.reasons.push(COMPROMISE);
    }

    /// Adds keyCompromise as a possible replacement.
    pub fn may_be_compromised(&mut self) {
        self.earlier.extend_from_slice(&self.reasons);
        self.reasons.push(COMPROMISE);
    }

    /// `true` if a CRL may contain such a reason. Narrows the possible reasons to these.
    pub fn may_tell(&mut self, fits: impl Fn(&Option<u8>) -> bool) -> bool {
        if self.earlier.is_empty() {
            self.reasons.retain(&fits);
        }
        self.reasons.iter().chain(&self.earlier).any(fits)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub auto: bool,
    pub delta: bool,
    pub disable: bool,
    pub expired_too: bool,
    /// Seconds.
    pub expiry: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { auto: false, delta: false, disable: false, expired_too: false, expiry: 72 * 3600 }
    }
}

impl Config {
    pub fn body(&self) -> Value {
        json!({
            "auto_rebuild": self.auto,
            "enable_delta": self.delta,
            "disable": self.disable,
            "allow_expired_cert_revocation": self.expired_too,
            "expiry": format!("{}s", self.expiry),
            "auto_rebuild_grace_period": "5m",
            "delta_rebuild_interval": "5m",
        })
    }

    /// `true` if the response to a change to `next` follows a build of complete CRLs.
    pub fn builds(&self, next: &Self) -> bool {
        self.disable != next.disable || self.delta != next.delta || (self.auto && !next.auto)
    }
}

pub struct World {
    pub authorities: Vec<Authority>,
    pub certs: BTreeMap<String, Cert>,
    /// Serials in order of issue, which is the same in every run of a seed.
    pub order: Vec<String>,
    /// Serials of the CA certificates, stored before the first step.
    pub roots: BTreeSet<String>,
    /// Index of the authority, and issuer id.
    pub default: Option<(usize, String)>,
    pub config: Config,
    /// Validity periods of CRLs so far, in seconds.
    pub expiries: BTreeSet<i64>,
    /// Unix seconds.
    pub now: i64,
    /// All times so far: a CRL stored without a response may be served much later.
    pub times: BTreeSet<i64>,
    /// `true` after a failed tidy that may have removed revocations: the server notices only after a restart.
    pub half_tidied: bool,
    /// Number of issue requests without a response.
    pub unanswered: usize,
}

/// Maximum lead of a revocation over the clock, in seconds, for it to date CRLs and OCSP responses. With a larger lead,
/// the clock was wrong at the revocation.
const MAX_CLOCK_ERROR: i64 = 12 * 3600;

/// The permitted thisUpdate of a CRL or OCSP response made at `now` with these revocation times. It is backdated, but
/// never before an earlier CRL's or the newest revocation, which may be ahead of a clock that was set back.
pub fn this_update(now: i64, revocations: impl Iterator<Item = i64>) -> RangeInclusive<i64> {
    let newest = revocations.filter(|at| *at <= now + MAX_CLOCK_ERROR).max().unwrap_or(i64::MIN);
    newest.max(now - BACKDATING)..=newest.max(now)
}

pub type Removable = (BTreeSet<String>, BTreeSet<String>);

impl World {
    /// The authority whose CRL contains the revocations of `authority`.
    pub fn home(&self, authority: usize) -> Option<usize> {
        let default = || self.default.as_ref().map(|(authority, _)| *authority);
        if self.authorities[authority].is_here() { Some(authority) } else { default() }
    }

    pub fn revocations(&self, authority: usize) -> impl Iterator<Item = (&String, &Revocation)> {
        let here = self.certs.iter().filter(move |(_, cert)| self.home(cert.authority) == Some(authority));
        here.filter_map(|(serial, cert)| Some((serial, cert.revocation.as_ref()?)))
    }

    pub fn revoked(&self) -> BTreeSet<String> {
        let all = self.certs.iter().filter(|(_, cert)| cert.revocation.is_some());
        all.map(|(serial, _)| serial.clone()).collect()
    }

    pub fn stored(&self) -> BTreeSet<String> {
        let all = self.certs.iter().filter(|(_, cert)| cert.stored).map(|(serial, _)| serial.clone());
        all.chain(self.roots.iter().cloned()).collect()
    }

    /// Records that complete CRLs with at least these revocations were built.
    pub fn published(&mut self, serials: &BTreeSet<String>) {
        if !self.half_tidied {
            self.authorities.iter_mut().for_each(|authority| authority.lingering.clear());
        }
        self.must_hold(serials, true);
    }

    /// Records that the CRLs contain at least these revocations; if `complete`, the complete CRL alone.
    pub fn must_hold(&mut self, serials: &BTreeSet<String>, complete: bool) {
        if self.config.disable {
            return;
        }
        for (serial, cert) in &mut self.certs {
            if let Some(revocation) = cert.revocation.as_mut().filter(|_| serials.contains(serial)) {
                revocation.listed = true;
                revocation.complete |= complete;
            }
        }
    }

    /// Changes issuers or the default. Moved revocations are required only on the next complete CRLs.
    pub fn moves(&mut self, change: impl FnOnce(&mut Self)) {
        let homes = |world: &Self| (0..world.authorities.len()).map(|n| world.home(n)).collect::<Vec<_>>();
        let before = homes(self);
        change(self);
        let after = homes(self);
        for (serial, cert) in &mut self.certs {
            let (Some(revocation), old) = (&mut cert.revocation, before[cert.authority]) else { continue };
            if old == after[cert.authority] {
                continue;
            }
            (revocation.complete, revocation.listed) = (false, false);
            if let Some(old) = old {
                self.authorities[old].lingering.insert(serial.clone(), revocation.clone());
            }
        }
    }

    /// The objects that a tidy run removes if it starts now.
    pub fn removable(&self, body: &Value) -> Removable {
        let seconds = |name: &str| body[name].as_i64();
        let buffer = seconds("safety_buffer").unwrap_or(72 * 3600);
        let before = self.now - buffer;
        let revoked_before = self.now - seconds("revoked_safety_buffer").unwrap_or(buffer);
        let has = |name: &str| body[name] == true;
        let mut certificates = BTreeSet::new();
        let mut revocations = BTreeSet::new();
        for (serial, cert) in &self.certs {
            let revoked_ends = cert.not_after < revoked_before;
            let revocation_goes = has("tidy_revoked_certs") && cert.revocation.is_some() && revoked_ends;
            let alone = cert.not_after < before && (cert.revocation.is_none() || revoked_ends);
            if cert.stored && (revocation_goes || (has("tidy_cert_store") && alone)) {
                certificates.insert(serial.clone());
            }
            if revocation_goes {
                revocations.insert(serial.clone());
            }
        }
        (certificates, revocations)
    }

    pub fn removed(&mut self, (certificates, revocations): &Removable) {
        for serial in certificates {
            self.certs.get_mut(serial).unwrap().stored = false;
        }
        for serial in revocations {
            let cert = self.certs.get_mut(serial).unwrap();
            let revocation = cert.revocation.take().unwrap();
            cert.once = Some(revocation.clone());
            let authority = cert.authority;
            if let Some(home) = self.home(authority) {
                self.authorities[home].lingering.insert(serial.clone(), revocation);
            }
        }
    }
}

//! The model: authorities, certificates, revocations, settings; what each list must hold, and what it may.
//!
//! A revocation belongs on the list of the authority, that is the name and the key, whose certificate it
//! revokes, and on that of the default issuer while no issuer with these is in the mount. It stays there until tidy removes it, whatever the end of its
//! certificate, or an operator's change (issuers, `disable`) moves it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde_json::{Value, json};
use signet::x509::certificate::Certificate;

use super::BACKDATING;

/// A name and a key. Its issuers share lists.
pub struct Authority {
    pub name: &'static str,
    pub certificate: Certificate,
    pub issuers: Vec<Issuer>,
    pub seen: Seen,
    /// What its lists may still hold although it belongs there no more: until the next complete list.
    pub lingering: BTreeMap<String, Revocation>,
}

/// An issuer that comes and goes, under another id each time.
pub struct Issuer {
    pub pem: String,
    /// While it is in the mount.
    pub id: Option<String>,
}

impl Authority {
    /// The ids of its issuers that are in the mount.
    pub fn ids(&self) -> impl Iterator<Item = &String> {
        self.issuers.iter().filter_map(|issuer| issuer.id.as_ref())
    }

    pub fn is_here(&self) -> bool {
        self.ids().next().is_some()
    }
}

/// The lists of an authority as they were seen last.
#[derive(Default)]
pub struct Seen {
    pub complete: Option<(u64, Vec<u8>)>,
    pub delta: Option<(u64, Vec<u8>)>,
    pub highest: u64,
}

/// A certificate that was issued.
pub struct Cert {
    pub authority: usize,
    pub pem: String,
    pub not_after: i64,
    /// Whether it is stored.
    pub stored: bool,
    pub revocation: Option<Revocation>,
    /// The revocation that tidy removed.
    pub once: Option<Revocation>,
    /// Revocations without an answer: when, and why.
    pub tried: Vec<(i64, Option<u8>)>,
}

/// A revocation that is stored.
#[derive(Clone, Debug)]
pub struct Revocation {
    pub at: i64,
    /// What its reason may be: one, but where requests raced.
    pub reasons: Vec<Option<u8>>,
    /// Reasons that a compromise may have replaced: lists may still tell them.
    pub earlier: Vec<Option<u8>>,
    /// It must be on the complete list.
    pub complete: bool,
    /// It must be on the complete list or on the delta list.
    pub listed: bool,
}

/// keyCompromise.
pub const COMPROMISE: Option<u8> = Some(1);

impl Revocation {
    /// One of now, or of when requests raced.
    pub fn at(at: i64, reasons: Vec<Option<u8>>) -> Self {
        Self { at, reasons, earlier: Vec::new(), complete: false, listed: false }
    }

    /// A compromise took the place of its reason.
    pub fn is_compromised(&mut self) {
        self.earlier.append(&mut self.reasons);
        self.reasons.push(COMPROMISE);
    }

    /// A compromise may have taken the place of its reason.
    pub fn may_be_compromised(&mut self) {
        self.earlier.extend_from_slice(&self.reasons);
        self.reasons.push(COMPROMISE);
    }

    /// Whether a list may tell such a reason; of several that it may have, only these are left.
    pub fn may_tell(&mut self, fits: impl Fn(&Option<u8>) -> bool) -> bool {
        if self.earlier.is_empty() {
            self.reasons.retain(&fits);
        }
        self.reasons.iter().chain(&self.earlier).any(fits)
    }
}

/// `config/crl`, as far as it is changed here.
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

    /// Whether a change to `next` is answered after complete lists were made.
    pub fn builds(&self, next: &Self) -> bool {
        self.disable != next.disable || self.delta != next.delta || (self.auto && !next.auto)
    }
}

pub struct World {
    pub authorities: Vec<Authority>,
    pub certs: BTreeMap<String, Cert>,
    /// Their serials in the order in which they were issued: serials differ each time, this does not.
    pub order: Vec<String>,
    /// Serials that were stored before the first step: those of the authorities.
    pub roots: BTreeSet<String>,
    /// Its authority and its id.
    pub default: Option<(usize, String)>,
    pub config: Config,
    /// Lives that lists were given.
    pub expiries: BTreeSet<i64>,
    /// Epoch seconds.
    pub now: i64,
    /// All times until now: a list that was stored without an answer may be served much later.
    pub times: BTreeSet<i64>,
    /// Tidy failed after it may have removed revocations: the server does not look for what is gone before
    /// it starts again.
    pub half_tidied: bool,
    /// Certificates that were asked for without an answer.
    pub unanswered: usize,
}

/// How far ahead of the clock a revocation may lie for lists and OCSP answers to be dated by it: further ahead, the
/// clock was wrong when it was made.
const MAX_CLOCK_ERROR: i64 = 12 * 3600;

/// Which thisUpdate a list or an OCSP answer may have that is made at `now`, when these are the times of the
/// revocations on it: backdated, unless a list before it was dated later, and never older than the newest revocation,
/// which lies ahead of a clock that was set back.
pub fn this_update(now: i64, revocations: impl Iterator<Item = i64>) -> RangeInclusive<i64> {
    let newest = revocations.filter(|at| *at <= now + MAX_CLOCK_ERROR).max().unwrap_or(i64::MIN);
    newest.max(now - BACKDATING)..=newest.max(now)
}

/// What tidy may remove: certificates, revocations.
pub type Removable = (BTreeSet<String>, BTreeSet<String>);

impl World {
    /// The authority whose list has the revocations of this one.
    pub fn home(&self, authority: usize) -> Option<usize> {
        let default = || self.default.as_ref().map(|(authority, _)| *authority);
        if self.authorities[authority].is_here() { Some(authority) } else { default() }
    }

    /// The revocations that belong on the lists of an authority.
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

    /// Complete lists were made that have at least these.
    pub fn published(&mut self, serials: &BTreeSet<String>) {
        if !self.half_tidied {
            self.authorities.iter_mut().for_each(|authority| authority.lingering.clear());
        }
        self.must_hold(serials, true);
    }

    /// The lists together have at least these; complete ones alone, if `complete`.
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

    /// A change of issuers or of the default; revocations that have another list by it are expected nowhere
    /// before the next complete lists.
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

    /// What a run of tidy that begins now removes.
    pub fn removable(&self, body: &Value) -> Removable {
        let seconds = |name: &str| body[name].as_i64();
        let buffer = seconds("safety_buffer").unwrap_or(72 * 3600);
        let before = self.now - buffer;
        let revoked_before = self.now - seconds("revoked_safety_buffer").unwrap_or(buffer);
        let has = |name: &str| body[name] == true;
        let (mut certificates, mut revocations) = (BTreeSet::new(), BTreeSet::new());
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

    /// Tidy removed these.
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

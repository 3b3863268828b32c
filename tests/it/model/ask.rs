//! Requests: drawn at random, sent, and their responses applied to the model.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use signet::x509::serial::Serial;

use super::random::Random;
use super::world::{Authority, COMPROMISE, Cert, Config, Revocation, World};
use crate::support::Client;
use crate::v1::pki::mount::parse;

#[derive(Clone, Debug)]
pub enum What {
    Issue { authority: usize, stored: bool },
    Revoke { serial: String, whole: bool, reason: Option<u8> },
    RevokeUnknown,
    Rotate,
    RotateDelta,
    Config(Config),
    Default(Place),
    Delete(Place),
    Import(Place),
}

/// An issuer: index of its authority, and its index there.
pub type Place = (usize, usize);

#[derive(Clone)]
pub struct Ask {
    pub what: What,
    method: &'static str,
    path: String,
    body: Value,
}

pub struct Reply {
    pub status: u16,
    pub body: Value,
}

/// Limits on what the model may conclude from a response.
pub struct Circumstances {
    pub before: BTreeSet<String>,
    pub raced: bool,
    /// `true` if the store may have failed: after an error, the outcome is unknown.
    pub faulty: bool,
}

impl Ask {
    fn new(what: What, method: &'static str, path: impl Into<String>, body: Value) -> Self {
        Self { what, method, path: path.into(), body }
    }

    pub fn config(config: Config) -> Self {
        let body = config.body();
        Self::new(What::Config(config), "POST", "config/crl", body)
    }

    pub fn rotate() -> Self {
        Self::new(What::Rotate, "GET", "crl/rotate", Value::Null)
    }

    /// Sends the request; `None` if the connection ended without a response.
    pub async fn send(&self, client: &Client) -> Option<Reply> {
        let request = client.request(self.method, &format!("pki/{}", self.path));
        let request = if self.body.is_null() { request } else { request.json(&self.body) };
        let response = request.send().await.ok()?;
        let status = response.status().as_u16();
        let text = response.text().await.ok()?;
        Some(Reply { status, body: serde_json::from_str(&text).unwrap_or(Value::Null) })
    }
}

/// Revocation reasons and their spellings in requests.
const REASONS: [(Option<u8>, &str); 4] =
    [(None, ""), (None, "unspecified"), (Some(1), "keyCompromise"), (Some(4), "4")];

impl World {
    /// Draws a request; with `plain`, one that leaves settings and issuers unchanged, so that requests may race.
    pub fn draw(&self, random: &mut Random, plain: bool) -> Ask {
        if plain && !self.authorities.iter().any(Authority::is_here) {
            return Ask::rotate();
        }
        match random.of(0..if plain { 74 } else { 100 }) {
            0..28 => self.issue(random),
            28..60 => self.revoke(random, plain),
            60..63 => {
                let body = json!({ "serial_number": Serial::random().to_string() });
                Ask::new(What::RevokeUnknown, "POST", "revoke", body)
            }
            63..69 => Ask::rotate(),
            69..74 => Ask::new(What::RotateDelta, "GET", "crl/rotate-delta", Value::Null),
            74..86 => Ask::config(self.any_config(random)),
            86..90 => self.change_default(random),
            90..94 => self.delete(random),
            _ => self.import(random),
        }
    }

    /// All issuers, with their ids while they are in the mount.
    fn issuers(&self) -> Vec<(Place, Option<&String>)> {
        let of = |(n, authority): (usize, &'_ Authority)| (0..authority.issuers.len()).map(move |m| (n, m));
        let all = self.authorities.iter().enumerate().flat_map(of);
        all.map(|(n, m)| ((n, m), self.authorities[n].issuers[m].id.as_ref())).collect()
    }

    fn here(&self, random: &mut Random) -> Option<(Place, &String)> {
        let here: Vec<_> = self.issuers().into_iter().filter_map(|(place, id)| Some((place, id?))).collect();
        (!here.is_empty()).then(|| *random.pick(&here))
    }

    fn issue(&self, random: &mut Random) -> Ask {
        let Some(((authority, _), id)) = self.here(random) else { return self.import(random) };
        let ttl = match random.of(0..10) {
            0..5 => random.of(5..600),
            5..8 => random.of(600..5 * 3600),
            _ => random.of(24 * 3600..500 * 3600),
        };
        let stored = !random.once_in(6);
        let path = format!("issuer/{id}/issue/{}", if stored { "stored" } else { "loose" });
        Ask::new(What::Issue { authority, stored }, "POST", path, json!({ "common_name": "a.test", "ttl": ttl }))
    }

    fn revoke(&self, random: &mut Random, plain: bool) -> Ask {
        let serials: Vec<&String> = self.order.iter().filter(|serial| self.certs[*serial].stored || !plain).collect();
        if serials.is_empty() {
            return self.issue(random);
        }
        // Prefers a certificate that is neither revoked nor expired.
        let mut serial = *random.pick(&serials);
        for _ in 0..random.of(0..6) {
            let cert = &self.certs[serial];
            if cert.revocation.is_some() || cert.not_after <= self.now {
                serial = *random.pick(&serials);
            }
        }
        let whole = random.once_in(if self.certs[serial].stored { 4 } else { 1 });
        let (reason, word) = *random.pick(&REASONS);
        let mut body = match whole {
            true => json!({ "certificate": self.certs[serial].pem }),
            false => json!({ "serial_number": serial }),
        };
        if !word.is_empty() {
            body["reason"] = word.into();
        }
        Ask::new(What::Revoke { serial: serial.clone(), whole, reason }, "POST", "revoke", body)
    }

    fn any_config(&self, random: &mut Random) -> Config {
        let mut next = self.config.clone();
        match random.of(0..8) {
            0..2 => next.auto ^= true,
            2..4 => next.delta ^= true,
            4 => next.disable ^= true,
            5 => next.expired_too ^= true,
            6 => next.expiry = *random.pick(&[1800, 7200, 72 * 3600]),
            _ => next = Config { expired_too: next.expired_too, ..Config::default() },
        }
        // Delta CRLs require automatic builds.
        next.auto |= next.delta && !self.config.delta;
        next.delta &= next.auto;
        next
    }

    fn change_default(&self, random: &mut Random) -> Ask {
        let Some((place, id)) = self.here(random) else { return self.import(random) };
        Ask::new(What::Default(place), "POST", "config/issuers", json!({ "default": id }))
    }

    fn delete(&self, random: &mut Random) -> Ask {
        let Some((place, id)) = self.here(random) else { return self.import(random) };
        // Prefers issuers other than the default.
        if self.default.as_ref().is_some_and(|(_, default)| default == id) && !random.once_in(3) {
            return self.change_default(random);
        }
        Ask::new(What::Delete(place), "DELETE", format!("issuer/{id}"), Value::Null)
    }

    fn import(&self, random: &mut Random) -> Ask {
        let gone: Vec<Place> =
            self.issuers().into_iter().filter(|(_, id)| id.is_none()).map(|(place, _)| place).collect();
        if gone.is_empty() {
            return self.issue(random);
        }
        let (n, m) = *random.pick(&gone);
        let body = json!({ "pem_bundle": self.authorities[n].issuers[m].pem });
        Ask::new(What::Import((n, m)), "POST", "issuers/import/cert", body)
    }

    /// Applies a response. Returns `false` if settings and issuers are unknown now, or if CRLs are missing.
    pub fn learn(&mut self, ask: &Ask, reply: Option<&Reply>, given: &Circumstances) -> bool {
        let status = reply.map_or(0, |reply| reply.status);
        let open = status == 0 || (given.faulty && status >= 500) || (given.raced && status == 503);
        let body = reply.map_or(&Value::Null, |reply| &reply.body);
        let expect =
            |wanted: u16| assert!(open || status == wanted, "{status} {body}, not {wanted}, for {:?}", ask.what);
        match &ask.what {
            What::Issue { .. } if open => self.unanswered += 1,
            What::Issue { authority, stored } => {
                expect(200);
                let pem = body["data"]["certificate"].as_str().unwrap();
                self.issued(*authority, pem, *stored);
            }
            What::Revoke { serial, whole, reason } => {
                self.learn_revocation(serial, *whole, *reason, reply, open, given)
            }
            What::RevokeUnknown => expect(400),
            What::Rotate | What::RotateDelta if open => {}
            What::Rotate => {
                expect(200);
                self.published(&given.before);
            }
            What::RotateDelta => {
                expect(200);
                if self.config.delta {
                    self.must_hold(&given.before, false);
                }
            }
            What::Config(_) | What::Default(_) | What::Delete(_) | What::Import(_) => {
                if open {
                    return false;
                }
                assert!(status == 200 || status == 204, "{status} {body} for {:?}", ask.what);
                // A warning reports CRLs that could not be built.
                let built = !given.faulty || body["warnings"].is_null();
                self.learn_change(&ask.what, body, built, given);
                return built;
            }
        }
        true
    }

    pub fn issued(&mut self, authority: usize, pem: &str, stored: bool) {
        let certificate = parse(pem);
        let from = &self.authorities[authority];
        assert!(certificate.is_signed_by(from.certificate.key()));
        let cert = Cert {
            authority,
            pem: pem.to_owned(),
            not_after: certificate.not_after(),
            stored,
            revocation: None,
            once: None,
            tried: Vec::new(),
        };
        let serial = certificate.serial().to_string();
        assert!(self.certs.insert(serial.clone(), cert).is_none(), "a serial number twice");
        self.order.push(serial);
    }

    fn learn_revocation(
        &mut self,
        serial: &str,
        whole: bool,
        reason: Option<u8>,
        reply: Option<&Reply>,
        open: bool,
        given: &Circumstances,
    ) {
        let now = self.now;
        let by_timer = self.config.auto || self.config.disable;
        let expired_too = self.config.expired_too;
        let cert = self.certs.get_mut(serial).unwrap();
        let here = self.authorities[cert.authority].is_here();
        if open {
            cert.tried.push((now, reason));
            return;
        }
        let Some(Reply { status, body }) = reply else { return };
        let data = &body["data"];
        if !cert.stored && (!whole || !here) {
            assert_eq!(*status, 400, "{serial} is not stored: {body}");
            return;
        }
        assert_eq!(*status, 200, "{serial}: {body}");
        let again = cert.revocation.is_some();
        if !again && cert.not_after < now + 2 && !expired_too {
            assert!(data.is_null() && body["warnings"].is_array(), "{serial} has expired: {body}");
            return;
        }
        assert_eq!(data["state"], "revoked", "{serial}");
        // A certificate that the caller sent is stored with its revocation.
        cert.stored = true;
        let raced = given.raced && !given.before.contains(serial);
        let fresh = cert.revocation.is_none();
        let revocation = cert.revocation.get_or_insert(Revocation::at(now, Vec::new()));
        if reason == COMPROMISE && !fresh {
            revocation.is_compromised();
        } else if fresh || raced {
            revocation.reasons.push(reason);
        }
        assert_eq!(data["revocation_time"], revocation.at, "{serial} was revoked then");
        if !by_timer {
            self.must_hold(&[serial.to_owned()].into(), true);
        }
    }

    fn learn_change(&mut self, what: &What, body: &Value, built: bool, given: &Circumstances) {
        let builds = match what {
            What::Config(next) => {
                let builds = self.config.builds(next);
                self.config = next.clone();
                self.expiries.insert(next.expiry);
                builds
            }
            What::Default((n, m)) => {
                let default = self.authorities[*n].issuers[*m].id.clone().map(|id| (*n, id));
                let builds = default != self.default;
                self.moves(|world| world.default = default);
                builds
            }
            What::Delete((n, m)) => {
                self.moves(|world| {
                    let gone = world.authorities[*n].issuers[*m].id.take();
                    world.default = world.default.take().filter(|(_, id)| Some(id) != gone.as_ref());
                });
                true
            }
            What::Import((n, m)) => {
                let ids = ["imported_issuers", "existing_issuers"].map(|name| body["data"][name][0].as_str());
                let id = ids.into_iter().flatten().next().expect("an issuer").to_owned();
                self.moves(|world| {
                    world.default = world.default.take().or(Some((*n, id.clone())));
                    world.authorities[*n].issuers[*m].id = Some(id);
                });
                true
            }
            _ => false,
        };
        if builds && built {
            self.published(&given.before);
        }
    }
}

//! The steps of a run, and the checks between them.

use std::collections::{BTreeSet, VecDeque};
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use signet::clock::{Clock, Time};
use time::macros::datetime;

use super::ask::{Ask, Circumstances};
use super::life::{End, Life};
use super::look::{keys, lists, look, look_at, look_at_lists};
use super::random::Random;
use super::world::{Authority, COMPROMISE, Config, Issuer, Removable, Revocation, World, this_update};
use crate::faults::double::Fault;
use crate::support::{App, Client, Place, until};
use crate::v1::pki::foreign;
use crate::v1::pki::mount::parse;

const START: Time = datetime!(2031-01-01 00:00:00.3 UTC);
const TOLD: usize = 25;

/// The latest steps, printed if the run fails.
struct Journal {
    seed: u64,
    postgres: bool,
    step: u64,
    last: VecDeque<String>,
}

impl Journal {
    fn note(&mut self, text: String) {
        if self.last.len() == TOLD {
            self.last.pop_front();
        }
        self.last.push_back(format!("{}: {text}", self.step));
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let store = if self.postgres { "PostgreSQL" } else { "the embedded store" };
            let last = self.last.make_contiguous().join("\n  ");
            let told = format!("MODEL_SEED={} on {store}, step {}; before that\n  {last}", self.seed, self.step);
            let _ = writeln!(std::io::stderr(), "{told}");
        }
    }
}

struct Run {
    world: World,
    random: Random,
    life: Option<Life>,
    place: Arc<Place>,
    clock: Clock,
    journal: Journal,
}

pub async fn run(seed: u64, steps: u64, postgres: bool) {
    let mut run = Run::start(seed, postgres).await;
    for step in 1..=steps {
        run.journal.step = step;
        run.step().await;
        run.look().await;
        if step % 10 == 0 {
            let client = run.client();
            look_at_lists(&client, &run.world).await;
        }
    }
    run.finish().await;
}

impl Run {
    async fn start(seed: u64, postgres: bool) -> Self {
        let builder = App::builder().manual_clock(START);
        let app = if postgres { builder.postgres() } else { builder }.start().await;
        let mut authorities = Vec::new();
        for (name, key_type) in [("first", "ec"), ("second", "ed25519"), ("third", "ec")] {
            let body = json!({ "common_name": name, "issuer_name": name, "key_type": key_type,
                "not_after": "2099-12-31T23:59:59Z" });
            let data = app.client.post("pki/root/generate/internal", body).await.body["data"].clone();
            let issuer = |data: &Value| Issuer {
                pem: data["certificate"].as_str().unwrap().to_owned(),
                id: Some(data["issuer_id"].as_str().unwrap().to_owned()),
            };
            let mut issuers = vec![issuer(&data)];
            if name == "second" {
                let body = json!({ "common_name": name, "key_ref": data["key_id"], "issuer_name": "twin",
                    "not_after": "2099-12-31T23:59:59Z" });
                issuers.push(issuer(&app.client.post("pki/root/generate/existing", body).await.body["data"]));
            }
            authorities.push(Authority {
                name,
                certificate: parse(&issuers[0].pem),
                issuers,
                seen: Default::default(),
                lingering: Default::default(),
            });
        }
        for (name, no_store) in [("stored", false), ("loose", true)] {
            let role = json!({ "allow_any_name": true, "key_type": "ec", "max_ttl": "9000h", "no_store": no_store });
            assert_eq!(app.client.post(&format!("pki/roles/{name}"), role).await.status, 200);
        }
        let counts = json!({ "maintain_stored_certificate_counts": true });
        assert_eq!(app.client.post("pki/config/auto-tidy", counts).await.status, 200);
        let now = START.unix_timestamp();
        let default = authorities[0].ids().next().map(|id| (0, id.clone()));
        let world = World {
            roots: keys(&app.client, "certs").await,
            default,
            authorities,
            certs: Default::default(),
            order: Vec::new(),
            config: Config::default(),
            expiries: BTreeSet::from([Config::default().expiry]),
            now,
            times: BTreeSet::from([now]),
            half_tidied: false,
            unanswered: 0,
        };
        let clock = app.clock.clone();
        let place = Arc::new(app.leave().await);
        let life = Some(Life::start(&place).await);
        let journal = Journal { seed, postgres, step: 0, last: VecDeque::new() };
        let mut run = Self { world, random: Random::new(seed), life, place, clock, journal };
        run.resend(&Ask::config(Config::default())).await;
        run.look().await;
        run
    }

    fn client(&self) -> Client {
        self.life.as_ref().unwrap().client.clone()
    }

    fn given(&self) -> Circumstances {
        Circumstances { before: self.world.revoked(), raced: false, faulty: false }
    }

    async fn step(&mut self) {
        match self.random.of(0..100) {
            0..58 => {
                let ask = self.world.draw(&mut self.random, false);
                self.send(&ask).await;
            }
            58..66 => self.race(false).await,
            66..76 => self.forwards(),
            76..79 => self.backwards(),
            79..85 => self.tidy().await,
            85..86 => self.tidy_with_a_fault().await,
            86..90 => self.race(true).await,
            90..92 => self.cut_tidy_short().await,
            92..93 => self.again(End::Stop).await,
            93..95 => self.again(End::Crash).await,
            _ => self.fault().await,
        }
    }

    async fn look(&mut self) {
        let client = self.client();
        look(&client, &mut self.world).await;
        if !self.world.order.is_empty() {
            let serial = self.random.pick(&self.world.order).clone();
            look_at(&client, &mut self.world, &serial).await;
        }
    }

    /// Sends a request whose response must match the model.
    async fn send(&mut self, ask: &Ask) {
        self.journal.note(format!("{:?}", ask.what));
        let reply = ask.send(&self.client()).await.expect("an answer");
        let given = self.given();
        assert!(self.world.learn(ask, Some(&reply), &given));
    }

    /// Like [`Run::send`], for a change that may already have been made.
    async fn resend(&mut self, ask: &Ask) {
        self.send(ask).await;
        self.send(&Ask::rotate()).await;
    }

    fn set_clock(&mut self, to: Time) {
        self.clock.set(to);
        self.world.now = to.unix_timestamp();
        self.world.times.insert(self.world.now);
        self.journal.note(format!("now {to}"));
    }

    fn forwards(&mut self) {
        let seconds = match self.random.of(0..20) {
            0..12 => self.random.of(1..90),
            12..18 => self.random.of(90..7200),
            _ => self.random.of(24 * 3600..80 * 3600),
        };
        self.set_clock(self.clock.now() + Duration::from_secs(seconds));
    }

    fn backwards(&mut self) {
        let seconds = self.random.of(1..20);
        self.set_clock(self.clock.now() - Duration::from_secs(seconds));
    }

    /// Sends requests concurrently, optionally with a crash among them.
    async fn race(&mut self, crash: bool) {
        let count = self.random.of(2..8);
        let asks: Vec<Ask> = (0..count).map(|_| self.world.draw(&mut self.random, true)).collect();
        let given = Circumstances { raced: true, ..self.given() };
        let client = self.client();
        let all = join_all(asks.iter().map(|ask| ask.send(&client)));
        let replies = if crash {
            let after = Duration::from_micros(self.random.of(0..30_000));
            let place = Arc::clone(&self.place);
            let life = self.life.take().unwrap();
            let end = async {
                tokio::time::sleep(after).await;
                life.end(End::Crash, &place).await;
            };
            futures_util::future::join(all, end).await.0
        } else {
            all.await
        };
        for (ask, reply) in asks.iter().zip(&replies) {
            let status = reply.as_ref().map_or(0, |reply| reply.status);
            self.journal.note(format!(
                "at once, answered {status}{}: {:?}",
                if crash { ", crash" } else { "" },
                ask.what
            ));
        }
        for (ask, reply) in asks.iter().zip(&replies) {
            assert!(crash || reply.is_some(), "no answer for {:?}", ask.what);
            self.world.learn(ask, reply.as_ref(), &given);
        }
        if crash {
            self.begin().await;
        }
        self.settle().await;
    }

    async fn again(&mut self, how: End) {
        self.journal.note(format!("{how:?}"));
        let life = self.life.take().unwrap();
        life.end(how, &self.place).await;
        if self.random.once_in(3) {
            self.forwards();
        }
        self.begin().await;
    }

    async fn begin(&mut self) {
        self.life = Some(Life::start(&self.place).await);
        self.world.half_tidied = false;
    }

    /// Finds out the effects of requests without a response.
    async fn settle(&mut self) {
        let client = self.client();
        let stored = keys(&client, "certs").await;
        for serial in stored.difference(&self.world.stored()) {
            let data = client.get(&format!("pki/cert/{serial}")).await.body["data"].clone();
            let pem = data["certificate"].as_str().unwrap();
            if let Some(cert) = self.world.certs.get_mut(serial) {
                assert!(!cert.tried.is_empty(), "{serial} is stored again");
                cert.stored = true;
                continue;
            }
            assert!(self.world.unanswered > 0, "{serial} was issued without a request");
            self.world.unanswered -= 1;
            let certificate = parse(pem);
            let from = |a: &Authority| certificate.is_signed_by(a.certificate.key());
            let authority = self.world.authorities.iter().position(from).unwrap();
            self.world.issued(authority, pem, true);
        }
        self.world.unanswered = 0;
        let revoked = keys(&client, "certs/revoked").await;
        for (serial, cert) in &mut self.world.certs {
            let tried = std::mem::take(&mut cert.tried);
            if let Some(revocation) = &mut cert.revocation {
                let raced = tried.iter().filter(|(at, _)| *at == revocation.at);
                revocation.reasons.extend(raced.map(|(_, reason)| *reason));
                if tried.iter().any(|(_, reason)| *reason == COMPROMISE) {
                    revocation.may_be_compromised();
                }
                continue;
            }
            if !revoked.contains(serial) {
                continue;
            }
            let data = client.get(&format!("pki/cert/{serial}")).await.body["data"].clone();
            let at = data["revocation_time"].as_i64().unwrap();
            let reasons: Vec<_> = tried.iter().filter(|(time, _)| *time == at).map(|(_, reason)| *reason).collect();
            assert!(!reasons.is_empty(), "{serial} was revoked at {at} without a request");
            let revocation = cert.revocation.insert(Revocation::at(at, reasons));
            if tried.iter().any(|(_, reason)| *reason == COMPROMISE) {
                revocation.may_be_compromised();
            }
        }
        look_at_lists(&client, &self.world).await;
    }

    /// Sends a request while the store fails.
    async fn fault(&mut self) {
        let ask = self.world.draw(&mut self.random, false);
        let fault = *self.random.pick(&[Fault::Before, Fault::After, Fault::Outage]);
        let n = self.random.of(1..9) as usize;
        let faults = Arc::clone(&self.life.as_ref().unwrap().faults);
        let given = Circumstances { faulty: true, ..self.given() };
        faults.arm(n, fault);
        let reply = ask.send(&self.client()).await;
        let met = faults.disarm();
        let status = reply.as_ref().map_or(0, |reply| reply.status);
        self.journal.note(format!("{fault:?} at call {n}, met {met:?}, answered {status}: {:?}", ask.what));
        if !self.world.learn(&ask, reply.as_ref(), &given) {
            self.until_answered(&ask).await;
        }
        self.settle().await;
    }

    /// Repeats a change with an unknown outcome.
    async fn until_answered(&mut self, ask: &Ask) {
        let started = Instant::now();
        let reply = loop {
            let reply = ask.send(&self.client()).await.expect("an answer");
            if reply.status < 500 {
                break reply;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{:?}: {}", ask.what, reply.body);
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let given = self.given();
        assert!(self.world.learn(ask, Some(&reply), &given));
        self.send(&Ask::rotate()).await;
    }

    fn tidy_body(&mut self) -> Value {
        let mut body = json!({ "safety_buffer": *self.random.pick(&[1, 600, 3600, 72 * 3600]) });
        for what in ["cert_store", "revoked_certs", "revoked_cert_issuer_associations", "invalid_certs"] {
            body[format!("tidy_{what}")] = self.random.once_in(2).into();
        }
        if self.random.once_in(2) {
            body["revoked_safety_buffer"] = (*self.random.pick(&[1, 3600, 36_000])).into();
        }
        body["page_size"] = (*self.random.pick(&[0, 5, 1000])).into();
        body
    }

    /// Starts a tidy run and returns what it removes.
    async fn begin_tidy(&mut self, body: &Value) -> Removable {
        self.journal.note(format!("tidy {body}"));
        for _ in 0..3 {
            let answer = self.client().post("pki/tidy", body.clone()).await;
            if answer.status == 202 {
                break;
            }
            // An interrupted run still holds its lock: let it expire.
            assert_eq!(answer.status, 200, "{}", answer.text);
            self.set_clock(self.clock.now() + Duration::from_secs(61));
        }
        self.world.removable(body)
    }

    async fn tidy(&mut self) {
        let body = self.tidy_body();
        let removable = self.begin_tidy(&body).await;
        if body.as_object().unwrap().iter().all(|(name, value)| !name.starts_with("tidy_") || value == false) {
            return;
        }
        let started = Instant::now();
        let status = loop {
            let status = self.client().get("pki/tidy-status").await.body["data"].clone();
            if status["state"] != "Running" {
                break status;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{status:#}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        assert_eq!(status["state"], "Finished", "{status:#}");
        let certificates = removable.0.len();
        let revocations = removable.1.len();
        assert_eq!(status["cert_store_deleted_count"], certificates, "{status:#}");
        assert_eq!(status["revoked_cert_deleted_count"], revocations, "{status:#}");
        self.world.removed(&removable);
        if revocations > 0 {
            self.world.half_tidied = false;
            let all = self.world.revoked();
            self.world.published(&all);
        }
        look_at_lists(&self.client(), &self.world).await;
    }

    /// Crashes the server during a tidy run, which may then be incomplete.
    async fn cut_tidy_short(&mut self) {
        let mut body = self.tidy_body();
        body["tidy_revoked_certs"] = true.into();
        body["tidy_revoked_cert_issuer_associations"] = false.into();
        body["page_size"] = 5.into();
        let removable = self.begin_tidy(&body).await;
        tokio::time::sleep(Duration::from_micros(self.random.of(0..40_000))).await;
        self.again(End::Crash).await;
        self.take_what_went(removable).await;
    }

    async fn tidy_with_a_fault(&mut self) {
        let mut body = self.tidy_body();
        body["tidy_revoked_certs"] = true.into();
        body["tidy_revoked_cert_issuer_associations"] = false.into();
        self.journal.note(format!("with a fault: tidy {body}"));
        let removable = self.world.removable(&body);
        let faults = Arc::clone(&self.life.as_ref().unwrap().faults);
        faults.arm(self.random.of(4..12) as usize, *self.random.pick(&[Fault::Before, Fault::After, Fault::Outage]));
        let begun = self.client().post("pki/tidy", body).await.status == 202;
        let started = Instant::now();
        while !faults.has_met() && started.elapsed() < Duration::from_millis(300) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let met = faults.disarm();
        self.journal.note(format!("begun {begun}, met {met:?}"));
        if !begun {
            // The lock may be stored although the request failed. It has no run and expires.
            self.set_clock(self.clock.now() + Duration::from_secs(61));
        }
        let state = async || self.client().get("pki/tidy-status").await.body["data"]["state"].clone();
        until("the end of tidy", async || state().await != "Running").await;
        self.world.half_tidied = true;
        self.take_what_went(removable).await;
    }

    /// Applies an incomplete tidy run: reads which objects are gone.
    async fn take_what_went(&mut self, removable: Removable) {
        let client = self.client();
        let stored = keys(&client, "certs").await;
        let revoked = keys(&client, "certs/revoked").await;
        let certificates = removable.0.into_iter().filter(|serial| !stored.contains(serial)).collect();
        let revocations = removable.1.into_iter().filter(|serial| !revoked.contains(serial)).collect();
        self.world.removed(&(certificates, revocations));
        look_at_lists(&client, &self.world).await;
    }

    /// Checks everything a last time, CRL signatures also with openssl.
    async fn finish(mut self) {
        if self.world.half_tidied {
            self.again(End::Stop).await;
        }
        let last = Config { expired_too: self.world.config.expired_too, ..Config::default() };
        self.resend(&Ask::config(last)).await;
        // The previous build may have reused a CRL that was stored without a response.
        self.send(&Ask::rotate()).await;
        self.look().await;
        let client = self.client();
        look_at_lists(&client, &self.world).await;
        for serial in self.world.order.clone() {
            look_at(&client, &mut self.world, &serial).await;
        }
        for (n, authority) in self.world.authorities.iter().enumerate() {
            let Some(id) = authority.ids().next() else { continue };
            let (complete, _) = lists(&client, id).await;
            let now = self.world.now;
            let dates = this_update(now, self.world.revocations(n).map(|(_, revocation)| revocation.at));
            let dated = complete.crl.this_update();
            assert!(dates.contains(&dated), "{}: thisUpdate {dated} is not in {dates:?}", authority.name);
            assert_eq!(complete.crl.entries().len(), self.world.revocations(n).count(), "{}", authority.name);
            assert!(foreign::Crl::new(complete.der).is_signed_by(&authority.issuers[0].pem), "{}", authority.name);
        }
        let status = client.get("pki/tidy-status").await.body["data"].clone();
        let counts = ["current_cert_store_count", "current_revoked_cert_count"].map(|name| status[name].clone());
        assert_eq!(counts, [self.world.stored().len(), self.world.revoked().len()].map(Value::from));
        self.life.take().unwrap().end(End::Stop, &self.place).await;
        match self.place.database() {
            Some(database) => {
                let counted = "SELECT sum(certificates), sum(revocations) FROM counter";
                let found = "SELECT (SELECT count(*) FROM certificate), (SELECT count(*) FROM revocation)";
                assert_eq!(database.psql(counted), database.psql(found));
            }
            None => crate::faults::stage::assert_counters(self.place.folder()),
        }
    }
}

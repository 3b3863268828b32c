//! Compares the server with the model: its CRLs, stored certificates and OCSP responses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use signet::x509::crl::Crl;
use signet::x509::ocsp::CertIdHash;
use signet::x509::oid;
use signet::x509::reader::DerReader;
use signet::x509::serial::Serial;
use signet::x509::writer::{GENERALIZED_TIME, INTEGER, OCTET_STRING, SEQUENCE, context, context_constructed};

use super::BACKDATING;
use super::world::{Authority, COMPROMISE, World, this_update};
use crate::crash::audit::number;
use crate::support::Client;
use crate::v1::pki::ocsp::{cert_id, request};

const TRIES: usize = 20;

pub struct List {
    pub der: Vec<u8>,
    pub crl: Crl,
}

async fn fetch(client: &Client, path: &str) -> Option<List> {
    let response = client.request("GET", &format!("pki/{path}")).send().await.unwrap();
    match response.status().as_u16() {
        204 => None,
        status => {
            assert_eq!(status, 200, "{path}");
            let der = response.bytes().await.unwrap().to_vec();
            Some(List { crl: Crl::parse(&der).unwrap(), der })
        }
    }
}

/// The base CRL number of a delta CRL.
fn base(list: &List) -> Option<u64> {
    let extension = list.crl.extensions().iter().find(|e| e.oid == oid::DELTA_CRL_INDICATOR)?;
    let octets = DerReader::read_single(&extension.value, INTEGER).unwrap().content;
    Some(octets.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)))
}

/// The complete and the delta CRL of an issuer.
pub async fn lists(client: &Client, id: &str) -> (List, Option<List>) {
    for _ in 0..TRIES {
        let complete = fetch(client, &format!("issuer/{id}/crl/der")).await.expect("a complete list");
        let delta = fetch(client, &format!("issuer/{id}/crl/delta/der")).await;
        assert_eq!(base(&complete), None);
        // The timer may publish between the two requests.
        if delta.as_ref().is_none_or(|delta| base(delta) == Some(number(&complete.crl))) {
            return (complete, delta);
        }
    }
    panic!("a delta list of another complete list")
}

pub async fn look(client: &Client, world: &mut World) {
    for n in 0..world.authorities.len() {
        for id in world.authorities[n].ids().cloned().collect::<Vec<_>>() {
            let (complete, delta) = lists(client, &id).await;
            world.take(n, &complete, delta.as_ref());
        }
    }
}

fn serials(list: &List) -> BTreeMap<String, (i64, bool)> {
    let entries = list.crl.entries();
    assert!(entries.windows(2).all(|pair| pair[0].serial < pair[1].serial), "in ascending order, each once");
    entries.iter().map(|e| (e.serial.to_string(), (e.revoked_at, e.has_extensions))).collect()
}

impl World {
    fn take(&mut self, n: usize, complete: &List, delta: Option<&List>) {
        let name = self.authorities[n].name;
        for list in [Some(complete), delta].into_iter().flatten() {
            self.check_frame(n, list);
        }
        self.authorities[n].take_numbers(complete, delta);
        let on_complete = serials(complete);
        let on_delta = delta.map(serials).unwrap_or_default();
        if self.config.disable {
            assert!(on_complete.is_empty() && on_delta.is_empty(), "{name}: lists are switched off");
            return;
        }
        for (serial, entry) in on_complete.iter().chain(&on_delta) {
            self.check_entry(n, serial, *entry);
        }
        // A delta CRL repeats an entry whose reason has changed since the complete CRL.
        let is_amended = |serial: &str| {
            let known = self.certs[serial].revocation.as_ref().or(self.authorities[n].lingering.get(serial));
            known.is_some_and(|revocation| !revocation.earlier.is_empty())
        };
        let both = on_delta.keys().filter(|serial| on_complete.contains_key(*serial));
        let twice: Vec<_> = both.filter(|serial| !is_amended(serial)).collect();
        assert!(twice.is_empty(), "{name}: on both lists: {twice:?}");
        for (serial, revocation) in self.revocations(n) {
            let whole = on_complete.contains_key(serial);
            let listed = on_delta.contains_key(serial);
            assert!(whole || !revocation.complete, "{name}: {serial} is missing on the complete list: {revocation:?}");
            assert!(whole || listed || !revocation.listed, "{name}: {serial} is on no list: {revocation:?}");
        }
        let own: BTreeSet<String> = self.revocations(n).map(|(serial, _)| serial.clone()).collect();
        let here = |serials: BTreeMap<String, _>| serials.into_keys().filter(|s| own.contains(s)).collect();
        let (complete, listed): (BTreeSet<String>, BTreeSet<String>) = (here(on_complete), here(on_delta));
        self.must_hold(&complete, true);
        self.must_hold(&listed, false);
    }

    fn check_frame(&self, n: usize, list: &List) {
        let Authority { name, certificate, seen, .. } = &self.authorities[n];
        assert!(list.crl.is_signed_by(certificate.key()), "{name}: signature");
        assert_eq!(list.crl.issuer(), certificate.subject(), "{name}: issuer");
        let this = list.crl.this_update();
        let next = list.crl.next_update().unwrap();
        // nextUpdate is relative to the build time, or to thisUpdate if that is ahead of the clock.
        let lives = |life: &i64| (*life..=life + BACKDATING).contains(&(next - this));
        assert!(self.expiries.iter().any(lives), "{name}: lives {} seconds", next - this);
        let old = [&seen.complete, &seen.delta].into_iter().flatten().any(|(_, der)| *der == list.der);
        // Backdated, or the time of the latest revocation.
        let is_time = self.times.contains(&this) || self.times.contains(&(this + BACKDATING));
        assert!(old || is_time, "{name}: thisUpdate {this} was never");
        let dates = this_update(this, list.crl.entries().iter().map(|entry| entry.revoked_at));
        assert!(dates.contains(&this), "{name}: thisUpdate {this} is before a revocation: {dates:?}");
    }

    /// Checks that an entry is permitted and has the right revocation time.
    fn check_entry(&mut self, n: usize, serial: &str, (at, has_reason): (i64, bool)) {
        let name = self.authorities[n].name;
        let authority = self.certs.get(serial).unwrap_or_else(|| panic!("{name}: {serial} was never issued")).authority;
        let belongs = self.home(authority) == Some(n);
        let cert = self.certs.get_mut(serial).unwrap();
        // A certificate that tidy removed and a client revoked again may keep its old entry for a while.
        let lingering = self.authorities[n].lingering.get_mut(serial);
        let again = lingering.as_ref().is_some_and(|old| old.at == at);
        let own = cert.revocation.as_mut().filter(|own| belongs && (own.at == at || !again));
        let revocation = own.or(lingering);
        match revocation {
            Some(revocation) => {
                assert_eq!(at, revocation.at, "{name}: {serial} was revoked then");
                let told = revocation.may_tell(|reason| reason.is_some() == has_reason);
                assert!(told, "{name}: {serial} has another reason");
            }
            None => assert!(
                cert.tried.iter().any(|(tried, _)| *tried == at)
                    && cert.tried.iter().any(|(tried, reason)| {
                        (*tried == at || *reason == COMPROMISE) && reason.is_some() == has_reason
                    }),
                "{name}: {serial} does not belong on its list"
            ),
        }
    }
}

impl Authority {
    /// A number means one CRL, and numbers increase; a complete CRL and the delta CRL published with it share a number.
    fn take_numbers(&mut self, complete: &List, delta: Option<&List>) {
        let name = self.name;
        let highest = self.seen.highest;
        let fresh = |seen: &Option<(u64, Vec<u8>)>, list: &List| match seen {
            Some((known, der)) if *known == number(&list.crl) => {
                assert!(*der == list.der, "{name}: two lists have the number {known}");
                false
            }
            _ => true,
        };
        let own = number(&complete.crl);
        if fresh(&self.seen.complete, complete) {
            assert!(own > highest, "{name}: complete list {own} after {highest}");
        }
        self.seen.complete = Some((own, complete.der.clone()));
        self.seen.highest = highest.max(own);
        let Some(delta) = delta else { return };
        let added = number(&delta.crl);
        assert!(added > own || (added == own && delta.crl.entries().is_empty()), "{name}: delta {added}, base {own}");
        if fresh(&self.seen.delta, delta) {
            assert!(added > highest, "{name}: delta list {added} after {highest}");
        }
        self.seen.delta = Some((added, delta.der.clone()));
        self.seen.highest = self.seen.highest.max(added);
    }
}

pub async fn keys(client: &Client, path: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    loop {
        let after = all.last().cloned().unwrap_or_default();
        let answer = client.list(&format!("pki/{path}?after={after}&limit=1000")).await;
        if answer.status == 404 {
            return all;
        }
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let page: Vec<String> = serde_json::from_value(answer.body["data"]["keys"].clone()).unwrap();
        let full = page.len() == 1000;
        all.extend(page);
        if !full {
            return all;
        }
    }
}

/// Compares the lists of certificates and revocations with the model.
pub async fn look_at_lists(client: &Client, world: &World) {
    let differences = |found: &BTreeSet<String>, known: &BTreeSet<String>| -> Vec<String> {
        let missing = known.difference(found).map(|serial| format!("{serial} is missing"));
        missing.chain(found.difference(known).map(|serial| format!("{serial} is there"))).collect()
    };
    assert_eq!(differences(&keys(client, "certs").await, &world.stored()), [""; 0], "certs");
    assert_eq!(differences(&keys(client, "certs/revoked").await, &world.revoked()), [""; 0], "certs/revoked");
}

/// Compares the record and the OCSP response of a certificate with the model.
pub async fn look_at(client: &Client, world: &mut World, serial: &str) {
    let cert = &world.certs[serial];
    let answer = client.get(&format!("pki/cert/{serial}")).await;
    assert_eq!(answer.status, if cert.stored { 200 } else { 404 }, "{serial}: {}", answer.text);
    if cert.stored {
        let at = cert.revocation.as_ref().map_or(0, |revocation| revocation.at);
        assert_eq!(answer.body["data"]["revocation_time"], at, "{serial}");
        assert_eq!(answer.body["data"]["certificate"], Value::from(cert.pem.trim_end()), "{serial}");
    }
    let authority = &world.authorities[cert.authority];
    if !authority.is_here() {
        return;
    }
    let der = request(&[cert_id(CertIdHash::Sha1, &authority.certificate, &Serial::parse(serial).unwrap())], None);
    let client = client.with_token("");
    let request = client.request("POST", "pki/ocsp").header("content-type", "application/ocsp-request").body(der);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200, "{serial}");
    let said = Said::read(&response.bytes().await.unwrap());
    assert!(said.next_update > world.now, "{serial}: an OCSP answer that has ended: {said:?}, now {}", world.now);
    let dates = this_update(world.now, said.revoked.map(|(at, _)| at).into_iter());
    // The response may be a cached one.
    assert!(said.this_update <= *dates.end(), "{serial}: an OCSP answer of tomorrow: {said:?}, now {}", world.now);
    let behind = said.revoked.is_some_and(|(at, _)| dates.contains(&at) && said.this_update < at);
    assert!(!behind, "{serial}: an OCSP answer before its revocation: {said:?}");
    let cert = world.certs.get_mut(serial).unwrap();
    // A cached response may show the previous state.
    let known = cert.revocation.as_mut().or(cert.once.as_mut().filter(|_| !cert.stored && said.revoked.is_some()));
    match (known, said.revoked) {
        (Some(revocation), Some((at, reason))) => {
            assert_eq!(at, revocation.at, "{serial}: OCSP");
            revocation.reasons.retain(|known| *known == reason);
            assert!(!revocation.reasons.is_empty(), "{serial}: OCSP says {reason:?}");
        }
        (None, None) if cert.stored => assert_eq!(said.status, context(0), "{serial}: good"),
        (None, None) => assert!([context(0), context(2)].contains(&said.status), "{serial}"),
        (revocation, said) => panic!("{serial}: OCSP says {said:?}, not {revocation:?}"),
    }
}

/// The single response of an OCSP response.
#[derive(Debug)]
struct Said {
    /// The tag of the certStatus.
    status: u8,
    revoked: Option<(i64, Option<u8>)>,
    this_update: i64,
    next_update: i64,
}

impl Said {
    fn read(der: &[u8]) -> Self {
        let mut outer = DerReader::read_single(der, SEQUENCE).unwrap().reader();
        outer.any().unwrap();
        let bytes = outer.expect(context_constructed(0)).unwrap();
        let mut bytes = DerReader::read_single(bytes.content, SEQUENCE).unwrap().reader();
        bytes.oid().unwrap();
        let basic = bytes.expect(OCTET_STRING).unwrap();
        let mut basic = DerReader::read_single(basic.content, SEQUENCE).unwrap().reader();
        let mut data = basic.sequence().unwrap();
        data.expect(context_constructed(1)).unwrap();
        data.any().unwrap();
        let mut single = data.sequence().unwrap().sequence().unwrap();
        single.any().unwrap();
        let status = single.any().unwrap();
        let revoked = (status.tag == context_constructed(1)).then(|| {
            let mut info = status.reader();
            let at = time(&mut info);
            let reason = info.optional(context_constructed(0)).unwrap();
            (at, reason.map(|reason| *reason.content.last().unwrap()))
        });
        let this_update = time(&mut single);
        let next_update = time(&mut single.expect(context_constructed(0)).unwrap().reader());
        Self { status: status.tag, revoked, this_update, next_update }
    }
}

fn time(fields: &mut DerReader<'_>) -> i64 {
    let text = std::str::from_utf8(fields.expect(GENERALIZED_TIME).unwrap().content).unwrap();
    let form = time::macros::format_description!("[year][month][day][hour][minute][second]Z");
    time::PrimitiveDateTime::parse(text, &form).unwrap().assume_utc().unix_timestamp()
}

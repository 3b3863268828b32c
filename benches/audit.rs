//! Cost of the two audit entries of a `sign` request for an HTTP worker: rendering, and the write. The
//! device discards the lines.

use std::collections::BTreeMap;
use std::io;

use futures_util::future::join_all;
use serde_json::json;
use signet::audit::{
    AuditCaller, AuditData, AuditDevice, AuditDeviceSettings, AuditEntry, AuditOutcome, AuditRequest, AuditResponse,
    AuditSink, AuditStep, AuditWriter, register_worker,
};
use signet::auth::mounts::Mount;
use signet::clock::Clock;
use signet::derived_values::DerivedValues;
use signet::fields::Fields;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Concurrent requests, whose entries are written together.
const REQUESTS: usize = 128;

struct DiscardingSink;

impl AuditSink for DiscardingSink {
    fn write(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn has_fast_writes(&self) -> bool {
        true
    }
}

fn main() {
    divan::main();
}

/// Returns a PEM text with this number of lines.
fn pem(label: &str, letter: char, lines: usize) -> String {
    let line = String::from(letter).repeat(64) + "\n";
    format!("-----BEGIN {label}-----\n{}-----END {label}-----\n", line.repeat(lines))
}

#[divan::bench]
fn sign(bencher: divan::Bencher<'_, '_>) {
    register_worker(2);
    let clock = Clock::system();
    let settings = AuditDeviceSettings::file("file", "unused");
    let writer = AuditWriter::start(settings, &[7; 32], Box::new(DiscardingSink), clock.clone()).expect("a thread");
    let mount: Mount = serde_json::from_value(json!({
        "id": 7, "path": "pki/", "kind": "pki", "accessor": "pki_1a2b3c4d", "uuid": "", "description": "",
        "default_lease_ttl": 0, "max_lease_ttl": 0, "force_no_cache": false, "options": null, "listing_visibility": "",
        "allowed_managed_keys": [], "audit_non_hmac_request_keys": [], "audit_non_hmac_response_keys": [],
        "passthrough_request_headers": [], "allowed_response_headers": [], "token_type": "", "local": false,
        "seal_wrap": false, "external_entropy_access": false,
    }))
    .expect("a mount");
    let body = json!({ "csr": pem("CERTIFICATE REQUEST", 'M', 6), "ttl": "24h" }).to_string();
    let fields = Fields::parse(body.as_bytes()).expect("fields");
    let authority = pem("CERTIFICATE", 'A', 9);
    let answer = json!({
        "ca_chain": [authority], "certificate": pem("CERTIFICATE", 'C', 11), "expiration": 1_900_000_000,
        "issuing_ca": authority, "renew_after": 1_890_000_000,
        "serial_number": "3a:6f:10:5c:77:21:99:08:4e:5b:6d:01:22:33:44:55:66:77:88:99",
    })
    .to_string();
    let (policies, derived, metadata) = (["root".to_owned()], DerivedValues::default(), BTreeMap::new());
    let request = || AuditRequest {
        id: "0f8fad5b-d9cb-469f-a165-70867728950e",
        trace_id: None,
        operation: "update",
        path: "pki/sign/load",
        mount: Some(&mount),
        remote_address: Some([127, 0, 0, 1].into()),
        token: Some("s.AbCdEfGhIjKlMnOpQrStUvWxYz0123"),
        caller: Some(AuditCaller {
            accessor: "AbCdEfGhIjKlMnOpQrStUvWx",
            policies: &policies,
            metadata: Some(&metadata),
            created_at: Some(clock.now()),
            derived: Some(&derived),
            ..AuditCaller::named("root")
        }),
        data: AuditData::Fields(&fields),
    };
    let outcome = AuditOutcome {
        status: 200,
        answer: Ok(AuditResponse { data: AuditData::JsonText(answer.as_bytes()), ..AuditResponse::default() }),
    };
    let one = async || {
        let request = request();
        let request_part = writer.render_request(&request);
        for step in [AuditStep::Intent, AuditStep::Outcome(&outcome)] {
            let entry = AuditEntry { time: clock.now(), request: &request, step };
            writer.record(&request_part, &entry).await.expect("taken");
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    bencher
        .counter(divan::counter::ItemsCount::new(REQUESTS))
        .bench_local(|| runtime.block_on(join_all((0..REQUESTS).map(|_| one()))));
}

//! The life of an authority: root and intermediate, every key type, a role with all fields, leaves in every format,
//! signed requests, revocation, CRLs, OCSP, tidy and deletion.

use std::time::Duration;

use serde_json::{Value, json};
use signet::x509::ocsp::CertIdHash;

use super::recorder::{Answer, Recorder};
use super::secrets::until_tidied;
use crate::faults::stage::Stage;
use crate::v1::pki::foreign::{Ca, csr};
use crate::v1::pki::mount::parse;
use crate::v1::pki::ocsp;

struct Walk<'w> {
    recorder: &'w mut Recorder,
    stage: &'w Stage,
}

impl Walk<'_> {
    async fn ask(&mut self, method: &str, path: &str) -> Answer {
        self.recorder.ask(self.stage.app.client.request(method, path)).await
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path).await
    }

    async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.recorder.ask(self.stage.app.client.request("POST", path).json(&body)).await
    }

    /// Sends several requests that are rejected, and records one line for each.
    async fn refused(&mut self, path: &str, bodies: &[Value]) {
        self.recorder.heading(&format!("refused: {path}"));
        for body in bodies {
            let request = self.stage.app.client.request("POST", path).json(body);
            self.recorder.ask_briefly(&body.to_string(), request).await;
        }
        self.recorder.blank();
    }

    async fn fetch(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let request = self.stage.app.client.with_token("").request("GET", path);
        self.recorder.ask(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await
    }

    fn heading(&mut self, text: &str) {
        self.recorder.heading(text);
    }
}

pub async fn walk(recorder: &mut Recorder) {
    let stage = Stage::start().await;
    let mut walk = Walk { recorder, stage: &stage };
    authorities(&mut walk).await;
    addresses(&mut walk).await;
    keys(&mut walk).await;
    roles(&mut walk).await;
    leaves(&mut walk).await;
    refusals(&mut walk).await;
    requests(&mut walk).await;
    revocation(&mut walk).await;
    lists(&mut walk).await;
    tidying(&mut walk).await;
    the_end(&mut walk).await;
    stage.stop().await;
}

async fn authorities(walk: &mut Walk<'_>) {
    walk.heading("a root with everything in its name");
    walk.post("sys/mounts/pki/tune", json!({ "max_lease_ttl": "262800h" })).await;
    let subject = json!({
        "common_name": "Recorded Root", "issuer_name": "root", "key_name": "root-key", "key_type": "ec", "key_bits": 384,
        "not_after": "2060-01-01T00:00:00Z", "max_path_length": 2, "organization": "One,Two", "ou": ["Unit"],
        "country": "DE", "locality": "Ort", "province": "Land", "street_address": "Weg 1", "postal_code": "12345",
        "serial_number": "r-1", "alt_names": "root.test", "permitted_dns_domains": "test",
        "excluded_dns_domains": "bad.test", "format": "pem_bundle",
    });
    walk.post("pki/root/generate/internal", subject).await;
    walk.heading("an intermediate in a mount of its own");
    let mount = json!({ "type": "pki", "description": "below", "config": { "max_lease_ttl": "90000h" } });
    walk.post("sys/mounts/below", mount).await;
    walk.get("sys/mounts/below").await;
    let wanted =
        json!({ "common_name": "Authority Below", "key_type": "ec", "ou": "Inner", "add_basic_constraints": true });
    let csr = walk.post("below/intermediate/generate/internal", wanted).await.text("/data/csr");
    let signing = json!({ "csr": csr, "common_name": "Authority Below", "ttl": "43800h", "max_path_length": 0,
        "permitted_dns_domains": ["in.test"], "format": "pem_bundle" });
    let signed = walk.post("pki/root/sign-intermediate", signing).await;
    let der = json!({ "csr": csr, "use_csr_values": true, "format": "der", "ttl": "1h" });
    walk.post("pki/root/sign-intermediate", der).await;
    walk.post("below/intermediate/set-signed", json!({ "certificate": signed.text("/data/certificate") })).await;
    walk.ask("LIST", "below/issuers").await;
    walk.fetch("below/ca_chain", &[]).await;
    walk.fetch("below/cert/ca_chain", &[]).await;
    walk.post("below/roles/in", json!({ "allow_any_name": true, "key_type": "ec", "ttl": "1h" })).await;
    walk.post("below/issue/in", json!({ "common_name": "leaf.in.test" })).await;
    walk.post("below/issue/in", json!({ "common_name": "leaf.in.test", "remove_roots_from_chain": true })).await;
    walk.post("below/issue/in", json!({ "common_name": "leaf.out.test" })).await;
    walk.heading("foreign authorities");
    let foreign = Ca::root("/CN=Foreign");
    let bundle = json!({ "pem_bundle": format!("{}\n{}", foreign.pem, foreign.key) });
    walk.post("pki/issuers/import/bundle", bundle.clone()).await;
    walk.post("pki/issuers/import/bundle", bundle).await;
    walk.post("pki/issuers/import/cert", json!({ "pem_bundle": Ca::root("/CN=Only Seen").pem })).await;
    walk.post("pki/intermediate/cross-sign", json!({ "common_name": "Recorded Root", "key_ref": "root-key" })).await;
    walk.post("pki/root/sign-self-issued", json!({ "certificate": foreign.pem })).await;
}

async fn addresses(walk: &mut Walk<'_>) {
    walk.heading("addresses");
    walk.post("pki/config/cluster", json!({ "path": "https://ca.test/v1/pki", "aia_path": "http://ca.test" })).await;
    let urls = json!({
        "issuing_certificates": "{{cluster_aia_path}}/issuer/{{issuer_id}}/der",
        "crl_distribution_points": ["{{cluster_aia_path}}/crl"], "ocsp_servers": "http://ocsp.test",
        "delta_crl_distribution_points": "http://delta.test/crl", "enable_templating": true,
    });
    walk.post("pki/config/urls", urls).await;
    walk.get("pki/config/urls").await;
    let issuer = json!({ "issuer_name": "root", "leaf_not_after_behavior": "truncate", "manual_chain": "root",
        "usage": "read-only,issuing-certificates,crl-signing,ocsp-signing", "ocsp_servers": "http://own.test" });
    walk.post("pki/issuer/root", issuer).await;
    let patch = walk.stage.app.client.request("PATCH", "pki/issuer/root");
    let patch = patch.header("content-type", "application/merge-patch+json").body(r#"{"manual_chain":[]}"#);
    walk.recorder.ask(patch).await;
    for path in
        ["issuer/root", "issuer/default/json", "issuer/root/pem", "issuer/root/der", "config/issuers", "cert/ca"]
    {
        walk.get(&format!("pki/{path}")).await;
    }
}

async fn keys(walk: &mut Walk<'_>) {
    walk.heading("keys of every kind");
    for (kind, bits) in [("rsa", 2048), ("ec", 224), ("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0)] {
        let name = format!("{kind}-{bits}");
        walk.post("pki/keys/generate/internal", json!({ "key_type": kind, "key_bits": bits, "key_name": name })).await;
        let root = json!({ "common_name": name, "issuer_name": name, "key_ref": name, "ttl": "8760h" });
        walk.post("pki/root/generate/existing", root).await;
    }
    let pss =
        json!({ "common_name": "pss", "key_ref": "rsa-2048", "use_pss": true, "signature_bits": 512, "ttl": "1h" });
    walk.post("pki/root/generate/existing", pss).await;
    walk.post("pki/keys/generate/exported", json!({ "key_type": "ec", "key_name": "shown" })).await;
    let exported =
        json!({ "common_name": "shown", "key_type": "ed25519", "format": "der", "private_key_format": "pkcs8" });
    walk.post("pki/root/generate/exported", exported).await;
    walk.ask("LIST", "pki/keys").await;
    walk.get("pki/key/shown").await;
    walk.post("pki/key/shown", json!({ "key_name": "seen" })).await;
    walk.ask("DELETE", "pki/key/seen").await;
    walk.ask("DELETE", "pki/key/root-key").await;
    walk.get("pki/key/seen").await;
    walk.get("pki/config/keys").await;
}

fn full_role() -> Value {
    json!({
        "issuer_ref": "root", "ttl": "72h", "max_ttl": "720h", "allow_localhost": false, "allowed_domains": "a.test,b.test",
        "allow_bare_domains": true, "allow_subdomains": true, "allow_glob_domains": true, "allow_ip_sans": true,
        "allowed_ip_sans_cidr": "10.0.0.0/8", "allowed_uri_sans": "spiffe://a.test/*", "allowed_other_sans": "1.2.3;UTF8:*",
        "allowed_serial_numbers": "s-*", "allowed_user_ids": "u-*", "server_flag": true, "client_flag": true,
        "code_signing_flag": true, "email_protection_flag": true, "key_type": "ec", "key_bits": 384, "signature_bits": 384,
        "key_usage": "DigitalSignature,ContentCommitment", "ext_key_usage": "TimeStamping", "ext_key_usage_oids": "1.3.6.1.4.1.311.20.2.2",
        "ou": "Unit", "organization": "One,Two", "country": "DE", "locality": "Ort", "province": "Land",
        "street_address": "Weg 1", "postal_code": "12345", "require_cn": false, "cn_validations": "hostname",
        "policy_identifiers": [r#"{"oid":"1.3.6.1.4.1.7.8","notice":"Notice","cps":"http://cps.test"}"#],
        "basic_constraints_valid_for_non_ca": true, "not_before_duration": "60s", "generate_lease": true,
    })
}

async fn roles(walk: &mut Walk<'_>) {
    walk.heading("roles");
    walk.post("pki/roles/full", full_role()).await;
    walk.get("pki/roles/full").await;
    let patch = walk.stage.app.client.request("PATCH", "pki/roles/full");
    let patch = patch.header("content-type", "application/merge-patch+json").body(r#"{"ttl":"36h","ou":null}"#);
    walk.recorder.ask(patch).await;
    for (name, role) in [
        (
            "any",
            json!({ "allow_any_name": true, "enforce_hostnames": false, "key_type": "any", "ttl": "1h",
            "allowed_uri_sans": "*", "allowed_other_sans": "*", "allowed_user_ids": "*", "allowed_serial_numbers": "*" }),
        ),
        ("rsa", json!({ "allow_any_name": true, "key_type": "rsa", "key_bits": 2048, "use_pss": true, "ttl": "1h" })),
        ("ed", json!({ "allow_any_name": true, "key_type": "ed25519", "ttl": "1h", "key_usage": [] })),
        ("ec-224", json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 224, "ttl": "1h" })),
        ("ec-521", json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 521, "ttl": "1h" })),
        ("unstored", json!({ "allow_any_name": true, "key_type": "ec", "no_store": true, "ttl": "1h" })),
        (
            "bounded",
            json!({ "allow_any_name": true, "key_type": "ec", "not_before": "2031-02-01T00:00:00Z",
            "not_after": "2031-03-01T00:00:00Z" }),
        ),
    ] {
        walk.post(&format!("pki/roles/{name}"), role).await;
    }
    walk.ask("LIST", "pki/roles").await;
    walk.ask("LIST", "pki/roles?limit=2").await;
    walk.ask("LIST", "pki/roles?limit=2&after=any").await;
    walk.get("pki/roles?list=true&limit=1").await;
    walk.ask("DELETE", "pki/roles/bounded").await;
    walk.refused(
        "pki/roles/bad",
        &[
            json!({ "key_type": "dsa" }),
            json!({ "key_type": "ec", "key_bits": 100 }),
            json!({ "ttl": "2h", "max_ttl": "1h" }),
            json!({ "allowed_domains": ["a b"] }),
            json!({ "allowed_ip_sans_cidr": "10.0.0.0/33" }),
            json!({ "policy_identifiers": "not-oid" }),
            json!({ "key_usage": "Nothing" }),
            json!({ "allowed_domains_template": true, "allowed_domains": "{{identity.entity.nme}}" }),
            json!({ "not_after": "yesterday" }),
        ],
    )
    .await;
}

async fn leaves(walk: &mut Walk<'_>) {
    walk.heading("leaves");
    let full = json!({
        "common_name": "www.a.test", "alt_names": "b.test, a.test", "ip_sans": "10.1.2.3", "uri_sans": "spiffe://a.test/x",
        "other_sans": "1.2.3;UTF8:o", "serial_number": "s-1", "user_ids": "u-1,u-2", "ttl": "10h", "format": "pem_bundle",
        "private_key_format": "pkcs8",
    });
    walk.post("pki/issue/full", full).await;
    for body in [
        json!({ "common_name": "a.test", "format": "der", "exclude_cn_from_sans": true }),
        json!({ "common_name": "a.test", "not_after": "2031-01-05T00:00:00Z", "ttl": "" }),
        json!({ "common_name": "a.test", "ttl": "9999h" }),
        json!({ "alt_names": "a.test" }),
    ] {
        walk.post("pki/issue/full", body).await;
    }
    for role in ["rsa", "ed", "ec-224", "ec-521", "unstored"] {
        walk.post(&format!("pki/issue/{role}"), json!({ "common_name": "x.test", "private_key_format": "der" })).await;
    }
    let wild = json!({ "key_type": "ec", "common_name": "*.x.test", "alt_names": "m@x.test,b\u{fc}cher.test", "uri_sans": "urn:x:y",
        "ip_sans": "::1,127.0.0.1", "other_sans": "1.2.3;UTF8:grüße", "serial_number": "1", "user_ids": "u" });
    walk.post("pki/issue/any", wild).await;
    for issuer in ["rsa-2048", "ec-224", "ec-384", "ec-521", "ed25519-0"] {
        walk.post(&format!("pki/issuer/{issuer}/issue/any"), json!({ "common_name": "x.test", "key_type": "ec" }))
            .await;
    }
}

async fn refusals(walk: &mut Walk<'_>) {
    walk.refused(
        "pki/issue/full",
        &[
            json!({}),
            json!({ "common_name": "c.test" }),
            json!({ "common_name": "a.test", "alt_names": "c.test" }),
            json!({ "common_name": "a.test", "ip_sans": "11.0.0.1" }),
            json!({ "common_name": "a.test", "ip_sans": "eleven" }),
            json!({ "common_name": "a.test", "uri_sans": "http://b.test" }),
            json!({ "common_name": "a.test", "other_sans": "1.2.4;UTF8:x" }),
            json!({ "common_name": "a.test", "serial_number": "x" }),
            json!({ "common_name": "a.test", "user_ids": "x" }),
            json!({ "common_name": "a.test", "ttl": "-1h" }),
            json!({ "common_name": "a.test", "ttl": "1h", "not_after": "2031-01-05T00:00:00Z" }),
            json!({ "common_name": "a.test", "not_after": "2030-01-05T00:00:00Z" }),
            json!({ "common_name": "a.test", "format": "xml" }),
            json!({ "common_name": "a.test", "private_key_format": "xml" }),
            json!({ "common_name": "a..test" }),
            json!({ "common_name": "x".repeat(65) }),
            json!({ "common_name": "user@a.test" }),
            json!({ "common_name": "a.test\u{0}" }),
        ],
    )
    .await;
    walk.post("pki/issue/absent", json!({ "common_name": "a.test" })).await;
    walk.post("pki/issuer/absent/issue/full", json!({ "common_name": "a.test" })).await;
    walk.post("pki/sign/full", json!({ "csr": "nothing", "common_name": "a.test" })).await;
    let twice = json!({ "Common_Name": "a.test", "bogus": 1, "name": "other" });
    walk.post("pki/issue/full", twice).await;
}

async fn requests(walk: &mut Walk<'_>) {
    walk.heading("requests from outside");
    let sans = "subjectAltName=DNS:san.a.test,DNS:a.test";
    for (kind, role) in [("ec-384", "full"), ("rsa-2048", "any"), ("ed25519", "any"), ("ec-256", "full")] {
        let csr = csr(kind, "/CN=www.a.test/O=Sent", sans);
        walk.post(&format!("pki/sign/{role}"), json!({ "csr": csr, "common_name": "a.test" })).await;
    }
    let named = csr(
        "ec-256",
        "/CN=verb.test/O=Sent/serialNumber=7",
        "subjectAltName=DNS:v.test,IP:1.2.3.4\nkeyUsage=digitalSignature\n1.2.3.4=ASN1:UTF8String:x",
    );
    for path in ["sign-verbatim", "sign-verbatim/any", "issuer/ec-256/sign-verbatim", "issuer/rsa-2048/sign/any"] {
        walk.post(&format!("pki/{path}"), json!({ "csr": named, "ttl": "2h", "key_usage": "KeyAgreement" })).await;
    }
}

async fn revocation(walk: &mut Walk<'_>) {
    walk.heading("revocation");
    let mut issued = Vec::new();
    for name in ["good", "revoked", "later"] {
        issued
            .push(walk.post("pki/issue/any", json!({ "common_name": format!("{name}.test"), "key_type": "ec" })).await);
    }
    let serial = |at: usize, issued: &[Answer]| issued[at].text("/data/serial_number");
    let delta =
        json!({ "auto_rebuild": true, "enable_delta": true, "expiry": "48h", "auto_rebuild_grace_period": "6h" });
    walk.post("pki/config/crl", delta).await;
    let reason = json!({ "serial_number": serial(1, &issued), "reason": "keyCompromise", "invalidity_date": "2030-12-31T00:00:00Z" });
    let revoked = walk.post("pki/revoke", reason.clone()).await;
    drop(revoked);
    walk.stage.app.clock.advance(Duration::from_secs(60));
    walk.post("pki/revoke", reason).await;
    walk.get("pki/crl/rotate-delta").await;
    walk.fetch("pki/crl/delta", &[]).await;
    walk.get("pki/crl/rotate").await;
    walk.fetch("pki/crl", &[]).await;
    walk.fetch("pki/crl/pem", &[]).await;
    walk.fetch("pki/cert/crl", &[]).await;
    walk.fetch("pki/issuer/root/crl", &[]).await;
    let crl = walk.fetch("pki/issuer/root/crl/der", &[]).await;
    let header = |name: &str| crl.headers[name].to_str().unwrap().to_owned();
    walk.fetch("pki/crl", &[("if-none-match", &header("etag"))]).await;
    walk.fetch("pki/crl", &[("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT")]).await;
    walk.post("pki/config/crl", json!({ "auto_rebuild": false, "enable_delta": false })).await;
    let key = json!({ "serial_number": serial(2, &issued), "private_key": issued[2].text("/data/private_key") });
    walk.post("pki/revoke-with-key", key).await;
    walk.get(&format!("pki/cert/{}", serial(2, &issued))).await;
    walk.get(&format!("pki/cert/{}/raw", serial(2, &issued).replace(':', "-"))).await;
    walk.refused(
        "pki/revoke",
        &[
            json!({}),
            json!({ "serial_number": "00:01" }),
            json!({ "serial_number": "xyz" }),
            json!({ "certificate": "xyz" }),
            json!({ "serial_number": serial(0, &issued), "certificate": issued[0].text("/data/certificate") }),
            json!({ "serial_number": serial(0, &issued), "reason": "mood" }),
        ],
    )
    .await;
    responses(walk, &issued).await;
    let signed = json!({ "crl_number": 9, "next_update": "24h", "format": "pem",
        "revoked_certs": [{ "serial_number": "01:02:03", "revocation_time": "2030-12-30T00:00:00Z" }],
        "extensions": [{ "id": "1.2.3.4", "critical": false, "value": "BAA=" }] });
    let list = walk.post("pki/issuer/root/sign-revocation-list", signed).await;
    if let Some(text) = list.body.pointer("/data/crl").and_then(Value::as_str) {
        walk.post("pki/issuer/root/resign-crls", json!({ "crls": [text], "crl_number": 10, "format": "der" })).await;
    }
    walk.post("pki/issuer/ec-521/revoke", json!({})).await;
    walk.post("pki/issuer/ec-521/issue/any", json!({ "common_name": "x.test", "key_type": "ec" })).await;
}

async fn responses(walk: &mut Walk<'_>, issued: &[Answer]) {
    walk.heading("OCSP");
    let client = walk.stage.app.client.with_token("");
    let mut ids = Vec::new();
    for answer in &issued[..2] {
        let issuer = parse(&answer.text("/data/issuing_ca"));
        ids.push(ocsp::cert_id(CertIdHash::Sha1, &issuer, &parse(&answer.text("/data/certificate")).serial()));
    }
    let mut bodies: Vec<Vec<u8>> =
        vec![ocsp::request(&ids, Some(&[3; 32])), ocsp::request(&[], None), b"nothing".to_vec()];
    bodies.extend(ids.iter().map(|id| ocsp::request(std::slice::from_ref(id), None)));
    for body in bodies {
        let request = client.request("POST", "pki/ocsp").header("content-type", "application/ocsp-request");
        walk.recorder.ask(request.body(body)).await;
    }
    walk.recorder.ask(client.request("POST", "pki/ocsp").header("content-type", "text/plain").body("x")).await;
}

async fn lists(walk: &mut Walk<'_>) {
    walk.heading("lists");
    for path in
        ["certs", "certs/revoked", "issuers", "certs/detailed?limit=1000", "certs/unified-revoked", "cert-metadata"]
    {
        walk.ask("LIST", &format!("pki/{path}")).await;
    }
    for query in ["limit=-1", "limit=x", "limit=0", "after=zz"] {
        walk.ask("LIST", &format!("pki/roles?{query}")).await;
    }
    walk.ask("LIST", "sys/leases/lookup/pki/issue").await;
}

async fn tidying(walk: &mut Walk<'_>) {
    walk.heading("tidying");
    walk.stage.app.clock.advance(Duration::from_secs(40 * 24 * 3600));
    let all = json!({ "tidy_cert_store": true, "tidy_revoked_certs": true, "tidy_expired_issuers": true, "safety_buffer": "1h",
        "issuer_safety_buffer": "1h", "tidy_revoked_cert_issuer_associations": true });
    walk.post("pki/tidy", all).await;
    until_tidied(&walk.stage.app.client).await;
    walk.get("pki/tidy-status").await;
    walk.post("pki/tidy-cancel", json!({})).await;
    walk.post("pki/config/auto-tidy", json!({ "enabled": true, "interval_duration": "5h", "tidy_cert_store": true }))
        .await;
    walk.get("pki/config/auto-tidy").await;
    walk.ask("LIST", "pki/certs").await;
    walk.get("pki/crl/rotate").await;
    walk.fetch("pki/crl", &[]).await;
}

async fn the_end(walk: &mut Walk<'_>) {
    walk.heading("the end");
    walk.ask("DELETE", "pki/issuer/rsa-2048").await;
    walk.ask("DELETE", "pki/issuer/rsa-2048").await;
    walk.post("pki/config/issuers", json!({ "default": "absent" })).await;
    walk.post("pki/root/replace", json!({ "default": "ec-384" })).await;
    walk.ask("DELETE", "pki/root").await;
    walk.post("pki/issue/any", json!({ "common_name": "x.test" })).await;
    walk.fetch("pki/ca", &[]).await;
    walk.fetch("pki/crl", &[]).await;
    walk.ask("DELETE", "sys/mounts/below").await;
    walk.get("below/roles/in").await;
    walk.get("sys/mounts").await;
}

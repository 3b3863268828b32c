//! Lists and texts of any length have limits, in every form; the error names the field and the limit.

use serde_json::{Value, json};

use super::pki::mount::Pki;
use crate::support::{App, Client, tests_on};

tests_on!(
    pki_mount: Pki::start() =>
        a_list_in_a_text_is_counted_before_it_is_split,
        role_lists_are_limited_in_count_and_entry_length,
        mount_configuration_lists_are_limited;
    server: App::start() =>
        mount_token_and_policy_lists_are_limited,
        managed_key_parameters_are_limited;
);

/// The forms in which a client may send a list: JSON, JSON in a text, joined by commas.
fn forms(entries: &[String]) -> [Value; 3] {
    [json!(entries), json!(json!(entries).to_string()), json!(entries.join(","))]
}

fn entries(count: usize, entry: impl Fn(usize) -> String) -> Vec<String> {
    (0..count).map(entry).collect()
}

async fn refused(client: &Client, path: &str, body: Value, field: &str, rule: &str) {
    let answer = client.post(path, body).await;
    assert_eq!(answer.status, 400, "{path}, {field}: {}", answer.text);
    let begins = answer.error().starts_with(&format!("{field}: "));
    assert!(begins && answer.error().contains(rule), "{path}, {field}: {} does not say {rule:?}", answer.text);
}

async fn a_list_in_a_text_is_counted_before_it_is_split(pki: &Pki) {
    pki.role(&json!({ "allow_any_name": true })).await;
    let commas = ",".repeat(1_000_000);
    let list = format!("[{}0]", "0,".repeat(500_000));
    let open = format!("[{}", "0,".repeat(500_000));
    let map = format!("{{{}\"a\":0}}", "\"a\":0,".repeat(150_000));
    for field in ["alt_names", "ip_sans", "uri_sans", "other_sans", "user_ids"] {
        for text in [&commas, &list, &open] {
            let body = json!({ "common_name": "a.test", field: text });
            refused(&pki.app.client, "pki/issue/r", body, field, "at most 1000 entries").await;
        }
    }
    for text in [&commas, &list] {
        let body = json!({ "allowed_domains": text });
        pki.refused("roles/new", body, "allowed_domains: at most 1000 entries are allowed").await;
    }
    for text in [&commas, &map] {
        refused(&pki.app.client, "auth/token/create", json!({ "meta": text }), "meta", "at most 1000 entries").await;
    }
    // Nesting is limited there, too.
    for text in ["[".repeat(1_000_000), "[[0]]".to_owned()] {
        let body = json!({ "allowed_domains": text });
        pki.refused("roles/new", body, "\"allowed_domains\": must be a list of strings").await;
    }
    for text in [format!("[{}", "{\"oid\":".repeat(100_000)), list.clone()] {
        pki.refused("roles/new", json!({ "policy_identifiers": text }), "policy_identifiers: not valid JSON").await;
    }
    let form =
        pki.app.client.request("POST", "pki/issue/r").header("Content-Type", "application/x-www-form-urlencoded");
    let answer = crate::support::send(form.body(format!("common_name=a.test&alt_names={commas}"))).await;
    answer.assert_error(400, "alt_names: at most 1000 entries are allowed");
}

const ROLE_LISTS: &[(&str, usize, &str)] = &[
    ("allowed_domains", 1_000, "a#.test"),
    ("allowed_uri_sans", 1_000, "https://a#.test/*"),
    ("allowed_other_sans", 1_000, "1.2.#;UTF8:a"),
    ("allowed_serial_numbers", 1_000, "a#"),
    ("allowed_user_ids", 1_000, "a#"),
    ("allowed_ip_sans_cidr", 1_000, "10.0.0.0/8"),
    ("key_usage", 64, "DigitalSignature"),
    ("ext_key_usage", 64, "ServerAuth"),
    ("ext_key_usage_oids", 64, "1.2.#"),
    ("policy_identifiers", 64, "1.2.#"),
    ("ou", 64, "a#"),
    ("organization", 64, "a#"),
    ("country", 64, "a#"),
    ("locality", 64, "a#"),
    ("province", 64, "a#"),
    ("street_address", 64, "a#"),
    ("postal_code", 64, "a#"),
];

async fn role_lists_are_limited_in_count_and_entry_length(pki: &Pki) {
    for (field, cap, pattern) in ROLE_LISTS {
        let list = |count| entries(count, |n| pattern.replace('#', &n.to_string()));
        // JSON in the text of `policy_identifiers` has another structure.
        for form in forms(&list(cap + 1)) {
            pki.refused("roles/new", json!({ *field: form }), &format!("{field}: at most {cap} entries")).await;
        }
        pki.post("roles/r", json!({ "key_type": "ec", *field: list(*cap) })).await;
        if *field != "policy_identifiers" {
            let long = pattern.replace('#', &"1".repeat(1_100));
            let long = if long.len() > 1_024 { long } else { "x".repeat(1_100) };
            pki.refused("roles/new", json!({ *field: [long] }), &format!("{field}: an entry is longer than")).await;
        }
    }
    pki.refused("roles/new", json!({ "issuer_ref": "x".repeat(129) }), "issuer_ref: longer than 128 bytes").await;
    let policy = json!([{ "oid": "1.2.3", "cps": format!("http://a/{}", "x".repeat(2_048)) }]).to_string();
    pki.refused("roles/new", json!({ "policy_identifiers": policy }), "policy_identifiers: an entry is longer").await;
    // A stored long list works, and a patch of another field does not touch it.
    pki.post("roles/r", json!({ "key_type": "ec", "allowed_domains": entries(1_000, |n| format!("a{n}.test")), "allow_bare_domains": true })).await;
    pki.ask("issue/r", json!({ "common_name": "a999.test" })).await;
}

async fn mount_configuration_lists_are_limited(pki: &Pki) {
    let urls = entries(17, |n| format!("http://a{n}.test/"));
    for field in ["issuing_certificates", "crl_distribution_points", "delta_crl_distribution_points", "ocsp_servers"] {
        for path in ["config/urls", "issuer/root"] {
            for form in forms(&urls) {
                pki.refused(path, json!({ field: form }), &format!("{field}: at most 16 entries are allowed")).await;
            }
            let long = format!("http://a.test/{}", "x".repeat(2_048));
            pki.refused(path, json!({ field: long }), &format!("{field}: an entry is longer than 1024 bytes")).await;
        }
        pki.post("config/urls", json!({ field: urls[..16] })).await;
    }
    for form in forms(&entries(65, |_| "self".to_owned())) {
        let rule = "manual_chain: at most 64 entries are allowed";
        pki.refused("issuer/root", json!({ "manual_chain": form }), rule).await;
    }
    let long = "http://a.test/".to_owned() + &"x".repeat(2_048);
    for (path, field, text, bytes) in [
        ("config/cluster", "path", &long, 2_048),
        ("config/external-policy", "external_service_url", &long, 2_048),
        ("config/external-policy", "entity_jmespath", &"a.".repeat(1_100), 2_048),
        ("config/external-policy", "trusted_ca", &"x".repeat(300_000), 256 << 10),
        ("config/external-policy", "trusted_leaf_certificate_bundle", &"x".repeat(300_000), 256 << 10),
        ("config/external-policy", "service_client_cert_bundle", &"x".repeat(300_000), 256 << 10),
        ("config/auto-tidy", "pause_duration", &format!("{}s", "0".repeat(64)), 64),
        ("tidy", "pause_duration", &format!("{}s", "0".repeat(64)), 64),
        ("config/crl", "expiry", &format!("{}72h", "0".repeat(64)), 64),
    ] {
        pki.refused(path, json!({ field: text }), &format!("{field}: longer than {bytes} bytes")).await;
    }
}

#[actix_web::test]
async fn ca_request_lists_and_verbatim_names_are_limited() {
    let pki = Pki::start().await;
    let root = |more: Value| super::pki::mount::with(&json!({ "common_name": "a", "key_type": "ec" }), more);
    for form in forms(&entries(65, |n| format!("a{n}"))) {
        pki.refused("root/generate/internal", root(json!({ "ou": form })), "ou: at most 64 entries are allowed").await;
    }
    for (field, most) in
        [("permitted_dns_domains", 1_000), ("excluded_ip_ranges", 1_000), ("ext_key_usage", 100), ("key_usage", 100)]
    {
        for form in forms(&entries(most + 1, |_| "10.0.0.0/8".to_owned())) {
            let rule = format!("{field}: at most {most} entries are allowed");
            pki.refused("root/generate/internal", root(json!({ field: form })), &rule).await;
        }
    }
    let csr = super::pki::foreign::csr("ec-256", "/CN=a.foo", "");
    let ids = entries(100, |n| format!("{n}{}", "x".repeat(1_000)));
    let body = json!({ "csr": csr, "user_ids": ids });
    pki.refused("sign-verbatim", body, "user_ids: together longer than 40960 bytes").await;
    pki.stop().await;
}

async fn mount_token_and_policy_lists_are_limited(app: &App) {
    let client = &app.client;
    let headers = ["allowed_managed_keys", "audit_non_hmac_request_keys", "audit_non_hmac_response_keys"];
    for field in headers.into_iter().chain(["passthrough_request_headers", "allowed_response_headers"]) {
        for form in forms(&entries(257, |n| format!("x-a{n}"))) {
            refused(client, "sys/mounts/pki/tune", json!({ field: form.clone() }), field, "at most 256 entries").await;
            let body = json!({ "type": "pki", "config": { field: form } });
            refused(client, "sys/mounts/new", body, field, "at most 256 entries").await;
        }
        let long = json!({ field: ["x".repeat(129)] });
        refused(client, "sys/mounts/pki/tune", long, field, "an entry is longer than 128 bytes").await;
    }
    let options: serde_json::Map<_, _> = (0..65).map(|n| (format!("a{n}"), json!("b"))).collect();
    refused(client, "sys/mounts/pki/tune", json!({ "options": options }), "options", "at most 64").await;
    let half = |from: usize| (from..from + 40).map(|n| format!("a{n}=b")).collect::<Vec<_>>().join(",");
    assert_eq!(client.post("sys/mounts/pki/tune", json!({ "options": half(0) })).await.status, 204);
    refused(client, "sys/mounts/pki/tune", json!({ "options": half(40) }), "options", "at most 64").await;
    let words = json!({ "type": "pki", "description": "x".repeat(4_097) });
    refused(client, "sys/mounts/new", words, "description", "longer than 4096 bytes").await;
    refused(client, "sys/mounts/pki/tune", json!({ "description": "x".repeat(4_097) }), "description", "longer").await;
    assert_eq!(client.get("sys/mounts/new").await.status, 400, "nothing was mounted");
    for form in forms(&entries(1_001, |n| format!("a{n}"))) {
        refused(client, "auth/token/create", json!({ "policies": form }), "policies", "at most 1000 entries").await;
    }
    let policy = format!("# {}\npath \"x\" {{ capabilities = [\"read\"] }}", "x".repeat(256 << 10));
    for field in ["policy", "rules"] {
        refused(client, "sys/policies/acl/new", json!({ field: policy }), field, "longer than 262144 bytes").await;
    }
    assert_eq!(client.get("sys/policies/acl/new").await.status, 404);
}

async fn managed_key_parameters_are_limited(app: &App) {
    let path = "sys/managed-keys/pkcs11/new";
    for form in forms(&entries(17, |_| "sign".to_owned())) {
        refused(&app.client, path, json!({ "usages": form }), "usages", "at most 16 entries").await;
    }
    refused(&app.client, path, json!({ "usages": ["x".repeat(65)] }), "usages", "an entry is longer than 64").await;
    for (field, most) in [
        ("library", 128),
        ("key_label", 255),
        ("token_label", 255),
        ("key_id", 512),
        ("mechanism", 32),
        ("slot", 32),
        ("curve", 32),
        ("pin", 4096),
    ] {
        let text = "1".repeat(most + 1);
        refused(&app.client, path, json!({ field: text }), field, &format!("longer than {most} bytes")).await;
    }
    assert_eq!(app.client.get(path).await.status, 404);
}

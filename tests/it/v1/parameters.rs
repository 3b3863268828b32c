//! Parameter rules of policies apply to the fields that an endpoint reads.

use serde_json::{Value, json};

use super::rights::{granted, only, rule};
use crate::support::{App, Client, tests_on, with};

tests_on!(server: App::start() =>
    required_parameters_count_only_fields_the_endpoint_reads,
    allowed_parameters_count_only_fields_the_endpoint_reads,
    denied_values_match_in_every_form_the_endpoint_reads,
    a_denied_value_is_denied_under_the_other_name_of_its_field,
    a_verbatim_body_has_no_member_that_is_not_read,
    denied_value_matches_in_every_spelling_of_the_value,
    denied_value_matches_in_every_json_structure,
    delete_is_checked_against_rules_of_the_fields_it_reads,
);

/// A client that may update this path, on these terms.
async fn updater(app: &App, path: &str, terms: &str) -> Client {
    only(app, "updater", &rule(path, &format!("capabilities = [\"update\"] {terms}"))).await
}

async fn required_parameters_count_only_fields_the_endpoint_reads(app: &App) {
    let client = updater(app, "auth/token/create", "required_parameters = [\"ttl\"]").await;
    for body in [json!({}), json!({ "TTL": "1h" }), json!({ "Ttl": "1h", "num_uses": 1 }), json!({ "ttl": null })] {
        client.post("auth/token/create", body).await.assert_denied();
    }
    for body in [json!({ "ttl": "1h" }), json!({ "lease": "1h" }), json!({ "ttl": "1h", "TTL": "9h" })] {
        let answer = client.post("auth/token/create", body.clone()).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
    }
    let client = updater(app, "auth/token/create", "required_parameters = [\"bogus\"]").await;
    client.post("auth/token/create", json!({ "bogus": 1 })).await.assert_denied();
    // Parameters in the path count, also if the body repeats them.
    let client = updater(app, "pki/roles/*", "required_parameters = [\"name\"]").await;
    for body in [json!({}), json!({ "name": "web" })] {
        assert_eq!(client.post("pki/roles/web", body).await.status, 200);
    }
}

async fn allowed_parameters_count_only_fields_the_endpoint_reads(app: &App) {
    let client = updater(app, "auth/token/create", "allowed_parameters = { \"ttl\" = [\"1h\"], \"bogus\" = [] }").await;
    for (body, allowed) in [
        (json!({}), true),
        (json!({ "ttl": "1h" }), true),
        (json!({ "lease": "1h" }), true),
        (json!({ "ttl": "2h" }), false),
        (json!({ "lease": "2h" }), false),
        (json!({ "TTL": "1h" }), false),
        (json!({ "bogus": 1 }), false),
        (json!({ "num_uses": 1 }), false),
    ] {
        let status = client.post("auth/token/create", body.clone()).await.status;
        assert_eq!(status, if allowed { 200 } else { 403 }, "{body}");
    }
    let client = updater(app, "auth/token/create", "allowed_parameters = { \"ttl\" = [\"1h\"], \"*\" = [] }").await;
    for (body, allowed) in [
        (json!({ "bogus": 1, "ttl": "1h" }), true),
        (json!({ "TTL": "1h" }), true),
        (json!({ "TTL": "2h" }), false),
        (json!({ "lease": "2h" }), false),
    ] {
        let status = client.post("auth/token/create", body.clone()).await.status;
        assert_eq!(status, if allowed { 200 } else { 403 }, "{body}");
    }
}

async fn denied_values_match_in_every_form_the_endpoint_reads(app: &App) {
    let root = json!({ "common_name": "Root", "key_type": "ec", "key_bits": 256 });
    assert_eq!(app.client.post("pki/root/generate/internal", root).await.status, 200);
    let role =
        json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 256, "allowed_other_sans": "*", "ttl": "1h" });
    assert_eq!(app.client.post("pki/roles/web", role).await.status, 200);
    let denied = json!({
        "alt_names": ["*.evil.com", "*.xn--bcher-kva.example"],
        "common_name": ["Evil.Com."],
        "ip_sans": ["10.0.0.1", "2001:db8::1"],
        "other_sans": ["1.3.6.1.4.1.311.20.2.3;UTF8:evil*"],
        "ttl": ["90m"],
    });
    let terms = format!("denied_parameters = {denied}").replace("\":", "\"=");
    let client = updater(app, "pki/issue/web", &terms).await;
    let issued = async |field: &str, value: &Value| {
        let body = with(json!({ "common_name": "good.test" }), json!({ field: value }));
        client.post("pki/issue/web", body).await.status
    };
    for (field, value) in [
        ("alt_names", json!("a.evil.com")),
        ("alt_names", json!("A.EVIL.COM.")),
        ("alt_names", json!(" A.Evil.com ")),
        ("alt_names", json!("good.test, a.evil.com")),
        ("alt_names", json!(["good.test", "a.evil.com."])),
        ("alt_names", json!("[\"a.evil.com\"]")),
        ("Alt_Names", json!("a.evil.com")),
        ("alt_names", json!("a.bücher.example")),
        ("alt_names", json!("a.BÜCHER.example.")),
        ("alt_names", json!("mail@a.bücher.example")),
        ("common_name", json!("evil.com")),
        ("common_name", json!("EVIL.COM ")),
        ("ip_sans", json!("::ffff:10.0.0.1")),
        ("ip_sans", json!("192.0.2.1,2001:DB8:0:0::1")),
        ("other_sans", json!("1.3.6.1.4.1.311.20.2.3;utf-8:evil@x")),
        ("ttl", json!(5400)),
        ("ttl", json!("1h30m")),
    ] {
        assert_eq!(issued(field, &value).await, 403, "{field}: {value}");
    }
    for (field, value) in [
        ("alt_names", json!("evil.com")),
        ("alt_names", json!("a.good.test")),
        ("ip_sans", json!("10.0.0.2")),
        ("ttl", json!("89m")),
    ] {
        assert_eq!(issued(field, &value).await, 200, "{field}: {value}");
    }
}

async fn a_denied_value_is_denied_under_the_other_name_of_its_field(app: &App) {
    let client = updater(app, "auth/token/create", "denied_parameters = { \"ttl\" = [\"9h\"] }").await;
    for body in [json!({ "ttl": "9h" }), json!({ "lease": "540m" }), json!({ "LEASE": 32400 })] {
        client.post("auth/token/create", body).await.assert_denied();
    }
    assert_eq!(client.post("auth/token/create", json!({ "lease": "8h" })).await.status, 200);
    let client = updater(app, "pki/revoke", "denied_parameters = { \"serial_number\" = [\"0a:0b:0c\"] }").await;
    for spelling in ["0a:0b:0c", "0A-0B-0C", " 00:0a:0b:0c "] {
        client.post("pki/revoke", json!({ "serial_number": spelling })).await.assert_denied();
    }
    let client = updater(app, "sys/policy/*", "denied_parameters = { \"policy\" = [] }").await;
    client.post("sys/policy/web", json!({ "rules": granted("x", &["read"]) })).await.assert_denied();
    let client = updater(app, "sys/capabilities-self", "denied_parameters = { \"paths\" = [\"secret\"] }").await;
    client.post("sys/capabilities-self", json!({ "path": "secret" })).await.assert_denied();
}

async fn a_verbatim_body_has_no_member_that_is_not_read(app: &App) {
    let terms = "required_parameters = [\"ticket\"] allowed_parameters = { \"ticket\" = [] }";
    let client = updater(app, "pki/external-policy/issue", terms).await;
    let answer = client.post("pki/external-policy/issue", json!({ "ticket": "x" })).await;
    assert_ne!(answer.status, 403, "{}", answer.text);
    // The external engine may read any spelling, so the case is not checked.
    assert_ne!(client.post("pki/external-policy/issue", json!({ "Ticket": "x" })).await.status, 403);
    client.post("pki/external-policy/issue", json!({ "ticket": "x", "other": 1 })).await.assert_denied();
}

async fn denied_value_matches_in_every_spelling_of_the_value(app: &App) {
    let client = updater(app, "pki/revoke", "denied_parameters = { \"reason\" = [\"keyCompromise\"] }").await;
    for reason in [json!("keyCompromise"), json!("KEY_COMPROMISE"), json!("1"), json!(1)] {
        client.post("pki/revoke", json!({ "serial_number": "01", "reason": reason })).await.assert_denied();
    }
    let other = client.post("pki/revoke", json!({ "serial_number": "01", "reason": "superseded" })).await;
    assert_ne!(other.status, 403, "{}", other.text);
    // A long list neither delays other requests nor bypasses the rule.
    let values: Vec<String> = (0..1_000).map(|n| format!("\"*.d{n}.test\"")).collect();
    let denied = format!("denied_parameters = {{ \"alt_names\" = [{}] }}", values.join(","));
    let client = updater(app, "pki/issue/web", &denied).await;
    let names: Vec<String> = (0..9_990).map(|n| format!("{n}.{}.test", "x".repeat(380))).collect();
    client.post("pki/issue/web", json!({ "common_name": "a.test", "alt_names": names })).await.assert_denied();
    let few = client.post("pki/issue/web", json!({ "common_name": "a.test", "alt_names": ["b.test"] })).await;
    assert_ne!(few.status, 403, "{}", few.text);
}

async fn denied_value_matches_in_every_json_structure(app: &App) {
    app.client.post("sys/mounts/other", json!({ "type": "pki" })).await;
    let oid = r#"{"oid":"1.2.3"}"#;
    let two = r#"["1.2.3",{"oid":"1.2.4"}]"#;
    let oids = vec![json!(format!("[{oid}]")), json!([{ "oid": "1.2.3" }]), json!([oid]), json!(two)];
    for (path, field, denied, values) in [
        ("pki/issue/web", "uri_sans", json!("http://a.test/a%20b"), vec![json!("http://a.test/a b")]),
        ("pki/issue/web", "uri_sans", json!("http://a.test/%c3%bc*"), vec![json!("http://a.test/ü/x")]),
        ("pki/root/sign-intermediate", "skid", json!("0a:0b"), vec![json!("0A0B"), json!("0a-0b")]),
        ("pki/roles/web", "policy_identifiers", json!("1.2.3"), oids),
        ("auth/token/create", "meta", json!("a=b"), vec![json!({ "a": "b" }), json!("a=b")]),
        ("sys/remount", "from", json!("other"), vec![json!("other/"), json!("/other")]),
        ("sys/quotas/rate-limit/q", "rate", json!(100), vec![json!("1e2"), json!("100.00"), json!(100.0)]),
        ("sys/quotas/rate-limit/q", "path", json!("pki/"), vec![json!("pki"), json!("/pki/")]),
        ("sys/capabilities-self", "paths", json!("sys/*"), vec![json!("/sys/x"), json!(["a", "sys/y"])]),
        ("sys/policies/acl/x", "policy", json!("path*"), vec![json!("cGF0aCAieCIge30="), json!("PATH \"x\" {}")]),
    ] {
        let list = json!({ field: [denied] });
        let text = format!("capabilities = [\"update\", \"create\", \"sudo\"] denied_parameters = {list}");
        let client = only(app, "some", &rule(path, &text.replace("\":[", "\"=["))).await;
        for value in values {
            let body = json!({ "common_name": "a.test", field: value });
            let answer = client.post(path, body.clone()).await;
            assert_eq!(answer.status, 403, "{path} {body}: {}", answer.text);
        }
        let other = json!({ "common_name": "a.test", field: "7777777" });
        assert_ne!(client.post(path, other).await.status, 403, "{path} {field}");
    }
}

async fn delete_is_checked_against_rules_of_the_fields_it_reads(app: &App) {
    app.client.enable("sys/auth/approle", "approle").await;
    app.client.post("auth/approle/role/machine", json!({ "bind_secret_id": true })).await;
    let made = app.client.post("auth/approle/role/machine/secret-id", json!({})).await.body["data"].clone();
    for (part, name) in [("secret-id-accessor", "secret_id_accessor"), ("secret-id", "secret_id")] {
        let path = format!("auth/approle/role/machine/{part}/destroy");
        let sent = made[name].as_str().unwrap();
        for terms in
            [format!("denied_parameters = {{ \"{name}\" = [] }}"), "allowed_parameters = { \"x\" = [] }".into()]
        {
            let text = format!("capabilities = [\"update\", \"delete\"] {terms}");
            let client = only(app, "destroys", &rule(&path, &text)).await;
            client.delete(&format!("{path}?{name}={sent}")).await.assert_denied();
            client.post(&path, json!({ name: sent })).await.assert_denied();
        }
        let answer = app.client.post(&format!("auth/approle/role/machine/{part}/lookup"), json!({ name: sent })).await;
        answer.assert_status(200);
    }
    // Fields that it does not read, and required parameters of writes, do not matter.
    let text = "capabilities = [\"delete\"] denied_parameters = { \"bogus\" = [] } required_parameters = [\"ttl\"]";
    let client = only(app, "deletes", &rule("auth/approle/role/machine", text)).await;
    assert_eq!(client.delete("auth/approle/role/machine?bogus=1").await.status, 204);
}

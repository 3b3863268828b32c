//! Tests of writing and reading roles.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::Warnings;
use crate::x509::algorithm::{Curve, KeyKind};

fn fields(body: &Value) -> Fields {
    Fields::parse(body.to_string().as_bytes()).unwrap()
}

fn written(body: &Value) -> Result<(Role, Warnings)> {
    read(&fields(body), None)?.checked()
}

fn write(body: Value) -> Result<Role> {
    written(&body).map(|(role, _)| role)
}

fn patched(role: &Role, body: Value) -> Result<Role> {
    read(&fields(&body), Some(role))?.checked_after(Some(role)).map(|(role, _)| role)
}

fn to_json(role: &Role) -> Value {
    role_json(role, Dialect::Contract)
}

#[test]
fn role_without_members_has_the_defaults() {
    let read = to_json(&write(json!({})).unwrap());
    let expected: Value = serde_json::from_str(
        r#"{
        "issuer_ref": "default", "ttl": "0s", "max_ttl": "0s", "allow_localhost": true, "allowed_domains": [],
        "allowed_domains_template": false, "allow_globs_in_identity_templates": false,
        "allow_bare_domains": false, "allow_subdomains": false, "allow_glob_domains": false,
        "allow_wildcard_certificates": true, "allow_any_name": false, "enforce_hostnames": true,
        "allow_ip_sans": true, "allowed_ip_sans_cidr": [], "allowed_uri_sans": [],
        "allowed_uri_sans_template": false, "allowed_other_sans": [], "allowed_serial_numbers": [],
        "allowed_user_ids": [], "allow_token_displayname": false, "server_flag": true, "client_flag": true,
        "code_signing_flag": false, "email_protection_flag": false, "key_type": "rsa", "key_bits": 2048,
        "signature_bits": 256, "use_pss": false,
        "key_usage": ["DigitalSignature", "KeyAgreement", "KeyEncipherment"], "ext_key_usage": [],
        "ext_key_usage_oids": [], "use_csr_common_name": true, "use_csr_sans": true, "ou": [],
        "organization": [], "country": [], "locality": [], "province": [], "street_address": [],
        "postal_code": [], "strict_subject": false, "separate_rdns": false, "require_cn": true, "cn_validations": ["email", "hostname"],
        "policy_identifiers": [], "basic_constraints_valid_for_non_ca": false, "not_before_duration": 30,
        "not_before": "", "not_before_bound": "permit", "not_after": "", "not_after_bound": "permit",
        "generate_lease": false, "no_store": false, "no_store_metadata": false,
        "serial_number_source": "json-csr"
    }"#,
    )
    .unwrap();
    assert_eq!(read, expected);
    assert_eq!(write(json!({})).unwrap(), Role::default());
}

#[test]
fn every_role_field_is_read_and_rendered() {
    let shown = to_json(&Role::default());
    let shown: Vec<&str> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    let mut named = FIELDS.to_vec();
    named.sort_unstable();
    assert_eq!(named, shown);
    for field in FIELDS {
        let error = write(json!({ *field: {} })).unwrap_err();
        assert!(error.text().contains(field), "{field}: {error}");
    }
}

#[test]
fn second_write_resets_omitted_fields_to_their_defaults() {
    assert_eq!(write(json!({"ttl": "1h"})).unwrap().ttl, 3600);
    assert_eq!(write(json!({"max_ttl": "2h"})).unwrap().ttl, 0);
}

#[test]
fn patch_changes_named_fields_and_null_resets_them() {
    let role = write(json!({
        "allow_any_name": true, "ttl": "1h", "key_type": "ec", "key_bits": 384, "ou": "a,b", "server_flag": false,
        "not_after": "2030-01-01T00:00:00Z", "not_after_bound": "forbid",
    }))
    .unwrap();
    assert_eq!(patched(&role, json!({})).unwrap(), role);
    assert_eq!(patched(&role, json!({"ttl": "2h"})).unwrap(), Role { ttl: 7200, ..role.clone() });
    let reset = patched(&role, json!({"ou": null, "server_flag": null, "key_bits": null, "not_after": null}));
    let keys = RoleKeys::new("ec", 256).unwrap();
    assert_eq!(reset.unwrap(), Role { ou: vec![], server_flag: true, keys, not_after: None, ..role.clone() });
    let bound = patched(&role, json!({"not_after_bound": null})).unwrap().not_after_bound;
    assert_eq!(bound, NotAfterBound::Permit);
    assert!(patched(&role, json!({"max_ttl": "30m"})).is_err());
    // The patch changes the key type from rsa to ec, but the stored size stays 2048 bits.
    let rsa = write(json!({})).unwrap();
    assert!(patched(&rsa, json!({"key_type": "ec"})).is_err());
    assert_eq!(patched(&rsa, json!({"key_type": "ec", "key_bits": 256})).unwrap().keys.bits(), 256);
}

#[test]
fn key_types_and_sizes_are_validated_and_rendered() {
    for (kind, bits, stored) in [
        ("rsa", 0, 2048),
        ("rsa", 3072, 3072),
        ("rsa", 4096, 4096),
        ("rsa", 8192, 8192),
        ("ec", 0, 256),
        ("ec", 224, 224),
        ("ec", 384, 384),
        ("ec", 521, 521),
        ("ed25519", 0, 0),
        ("ed25519", 256, 0),
        ("any", 0, 0),
        ("any", 2048, 0),
    ] {
        let role = write(json!({"key_type": kind, "key_bits": bits})).unwrap();
        assert_eq!(role.keys.bits(), stored, "{kind} {bits}");
        let echoed = if stored == 0 { bits } else { stored };
        assert_eq!(role_json(&role, Dialect::Contract)["key_bits"], echoed, "{kind} {bits}");
    }
    // A key size without effect does not carry over to another key type.
    let other = write(json!({"key_type": "ed25519", "key_bits": 2048})).unwrap();
    let shown_bits = |change| role_json(&patched(&other, change).unwrap(), Dialect::Contract)["key_bits"].clone();
    assert_eq!((shown_bits(json!({"key_type": "ec"})), shown_bits(json!({"ttl": 60}))), (json!(256), json!(2048)));
    assert_eq!(shown_bits(json!({"key_bits": null})), json!(0));
    for (kind, bits) in [("rsa", 1024), ("rsa", 2049), ("ec", 300), ("ec", 2048), ("foo", 0), ("", 0), ("RSA", 0)] {
        assert!(write(json!({"key_type": kind, "key_bits": bits})).is_err(), "{kind} {bits}");
    }
    assert!(write(json!({"key_bits": -1})).is_err());
}

#[test]
fn signature_bits_are_checked_and_stored_for_every_key_type() {
    for kind in ["rsa", "ec", "ed25519", "any"] {
        assert!(write(json!({"key_type": kind, "signature_bits": 100})).is_err(), "{kind}");
        let role = write(json!({"key_type": kind, "signature_bits": 384, "use_pss": true})).unwrap();
        assert_eq!((role.signature_bits.bits(), role.use_pss), (384, true), "{kind}");
        let default = if kind == "rsa" { 256 } else { 0 };
        assert_eq!(write(json!({"key_type": kind})).unwrap().signature_bits.bits(), default, "{kind}");
    }
}

#[test]
fn no_store_disables_generate_lease_with_a_warning() {
    let body = json!({"no_store": true, "generate_lease": true});
    let (role, warnings) = written(&body).unwrap();
    assert!(!role.generate_lease && role.no_store);
    assert!(warnings[0].contains("mutually exclusive"));
}

#[test]
fn texts_are_accepted_for_numbers_flags_and_durations() {
    let role = write(json!({"key_bits": "2048", "allow_any_name": "true", "ttl": "1h", "max_ttl": 3600})).unwrap();
    assert_eq!((role.keys.bits(), role.allow_any_name, role.ttl, role.max_ttl), (2048, true, 3600, 3600));
}

#[test]
fn role_null_field_counts_as_absent() {
    let body = json!({"allow_wildcard_certificates": null, "server_flag": null, "allow_localhost": null});
    assert_eq!(write(body).unwrap(), Role::default());
}

#[test]
fn role_durations_read_back_in_their_forms() {
    let role = write(json!({"ttl": "90m", "max_ttl": "24h", "not_before_duration": "1h"})).unwrap();
    let json = to_json(&role);
    assert_eq!((&json["ttl"], &json["max_ttl"]), (&json!("90m"), &json!("24h")));
    assert_eq!(json["not_before_duration"], json!(3600));
    assert_eq!(to_json(&write(json.clone()).unwrap()), json);
}

#[test]
fn unenforced_flag_is_refused_as_true_and_accepted_as_false() {
    let field = "allow_globs_in_identity_templates";
    let error = write(json!({field: true})).unwrap_err();
    assert!(error.text().starts_with(&format!("{field}: ")), "{error}");
    assert_eq!(to_json(&write(json!({field: false})).unwrap())[field], json!(false));
    for field in ["allowed_domains_template", "allowed_uri_sans_template"] {
        for flag in [true, false] {
            assert_eq!(to_json(&write(json!({field: flag})).unwrap())[field], json!(flag));
        }
    }
    assert!(write(json!({"allow_token_displayname": true})).unwrap().allow_token_displayname);
}

#[test]
fn role_that_issuance_could_not_honour_is_refused() {
    for (case, body, field) in [
        ("ttl above max_ttl", json!({"ttl": "8h", "max_ttl": "4h"}), "ttl"),
        ("other SAN without a semicolon", json!({"allowed_other_sans": "foo"}), "error parsing allowed_other_sans"),
        ("other SAN of another type", json!({"allowed_other_sans": "1.2;INT:5"}), "error parsing allowed_other_sans"),
        (
            "a star with other entries",
            json!({"allowed_other_sans": "*,1.2.3;UTF8:*"}),
            "error parsing allowed_other_sans",
        ),
        ("a policy that is no OID", json!({"policy_identifiers": "not-oid"}), "policy_identifiers"),
        ("an extended usage that is no OID", json!({"ext_key_usage_oids": "1.2.3,x"}), "ext_key_usage_oids"),
        ("an unknown usage", json!({"key_usage": "DigitalSignature,Bogus"}), "key_usage"),
        ("an unknown extended usage", json!({"ext_key_usage": ["ServerAuth", "1.2.3"]}), "ext_key_usage"),
        ("a network without prefix", json!({"allowed_ip_sans_cidr": "10.0.0.1"}), "allowed_ip_sans_cidr"),
        ("an unknown bound", json!({"not_after_bound": "maybe"}), "not_after_bound"),
        ("an unknown bound", json!({"not_before_bound": "ttl-limited"}), "not_before_bound"),
        ("a time without zone", json!({"not_after": "9999-12-31T23:59:59"}), "not_after"),
        ("a date", json!({"not_before": "2030-01-01"}), "not_before"),
        ("an unknown kind of name", json!({"cn_validations": "emails"}), "cn_validations"),
        ("a repeated kind", json!({"cn_validations": "email,email"}), "cn_validations"),
        ("disabled with others", json!({"cn_validations": "disabled,email"}), "cn_validations"),
        ("an unknown source", json!({"serial_number_source": "csr"}), "serial_number_source"),
        ("a control character in the subject", json!({"ou": ["a\u{0}b"]}), "ou"),
        ("a time below a second", json!({"ttl": "10ms"}), "ttl"),
    ] {
        let error = write(body).unwrap_err();
        assert!(error.text().starts_with(&format!("{field}: ")), "{case}: {error}");
    }
}

#[test]
fn role_values_are_stored_in_canonical_form() {
    let role = write(json!({
        "issuer_ref": "", "allowed_ip_sans_cidr": "10.1.2.3/8,::ffff:1.2.3.4/128", "cn_validations": [],
        "not_after_bound": "", "allowed_domains": "a.com, ,b.com,", "key_usage": "", "allowed_other_sans": "*",
    }))
    .unwrap();
    assert_eq!(role.issuer_ref, "default");
    assert_eq!(role.allowed_ip_sans_cidr, ["10.0.0.0/8", "1.2.3.4/32"]);
    assert_eq!(role.cn_validations, ["email", "hostname"]);
    assert_eq!(role.not_after_bound, NotAfterBound::Permit);
    assert_eq!(role.allowed_domains, ["a.com", "b.com"]);
    assert!(role.key_usage.is_empty());
}

#[test]
fn default_usages_fit_the_key_and_named_ones_are_unchanged() {
    let kinds = [KeyKind::Rsa { bits: 2048 }, KeyKind::Ec(Curve::P384), KeyKind::Ed25519];
    let of = |role: &Role| kinds.map(|kind| role.key_usage_for(kind).0);
    // The bits of the key usages: digitalSignature 1, keyEncipherment 4, keyAgreement 16.
    let fitting = [1 + 4, 1 + 16, 1];
    let all = [1 + 4 + 16; 3];
    let role = write(json!({})).unwrap();
    assert_eq!(of(&role), fitting);
    assert_eq!(to_json(&role).get("key_usage_is_named"), None);
    let same = write(to_json(&role)).unwrap();
    assert_eq!(of(&same), all, "the default, given explicitly");
    let patched = |role: &Role, body| patched(role, body).unwrap();
    assert_eq!(of(&patched(&same, json!({"ttl": "1h"}))), all);
    assert_eq!(of(&patched(&same, json!({"key_usage": null}))), fitting);
    assert_eq!(of(&patched(&role, json!({"ttl": "1h"}))), fitting);
    assert_eq!(of(&patched(&role, json!({"key_usage": "keyEncipherment"}))), [4; 3]);
    assert_eq!(of(&write(json!({"key_usage": []})).unwrap()), [0; 3]);
    // An older version stored this role with an unknown usage.
    let older: Role = serde_json::from_value(json!({"key_usage": ["KeyEncipherment", "bogus"]})).unwrap();
    assert_eq!(of(&patched(&older, json!({"ttl": "1h"}))), [4; 3]);
    assert!(read(&fields(&json!({"key_usage": ["KeyEncipherment", "bogus"]})), Some(&older)).is_err());
}

#[test]
fn role_write_reports_the_first_violated_rule() {
    let flag = json!({"allow_globs_in_identity_templates": true});
    let rest = json!({"ttl": "2h", "max_ttl": "1h", "key_type": "foo", "signature_bits": 1, "ext_key_usage_oids": "x",
        "not_before": "x", "not_before_bound": "x", "country": ["a\u{0}"]});
    let mut body = rest.as_object().unwrap().clone();
    body.extend(flag.as_object().unwrap().clone());
    for (field, rule) in [
        ("allow_globs_in_identity_templates", "allow_globs_in_identity_templates: "),
        ("ttl", "ttl: "),
        ("key_type", "key_type: "),
        ("signature_bits", "signature_bits: "),
        ("ext_key_usage_oids", "ext_key_usage_oids: "),
        ("country", "country: "),
        ("not_before", "not_before: "),
        ("not_before_bound", "not_before_bound: "),
    ] {
        let error = write(Value::Object(body.clone())).unwrap_err();
        assert!(error.text().starts_with(rule), "{error}");
        body.remove(field);
    }
}

#[test]
fn role_lifetimes_are_text_or_seconds_by_dialect() {
    let role = Role { ttl: 21_600, max_ttl: 86_400, ..Role::default() };
    let mut contract = role_json(&role, Dialect::Contract);
    let compat = role_json(&role, Dialect::Compat);
    assert_eq!((&contract["ttl"], &contract["max_ttl"]), (&json!("6h"), &json!("24h")));
    assert_eq!((&compat["ttl"], &compat["max_ttl"]), (&json!(21_600), &json!(86_400)));
    contract["ttl"] = json!(21_600);
    contract["max_ttl"] = json!(86_400);
    assert_eq!(contract, compat);
}

proptest! {
    #[test]
    fn role_fields_of_any_text_do_not_panic(text in "\\PC{0,30}", pick in 0..FIELDS.len()) {
        if let Ok(role) = write(json!({ FIELDS[pick]: text })) {
            // The rendered role can be written again. Its key usages are then stored as explicit, which changes no
            // response.
            prop_assert_eq!(to_json(&write(to_json(&role)).unwrap()), to_json(&role));
            let stored = serde_json::to_string(&role).unwrap();
            prop_assert_eq!(serde_json::from_str::<Role>(&stored).unwrap(), role);
        }
    }
}

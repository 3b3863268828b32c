//! Tests of the rules for roles; each case breaks one rule.

use super::*;
use crate::pki::mount::role::parse_role;
use crate::x509::algorithm::Curve;
use serde_json::json;

fn refusal(role: Role) -> String {
    role.checked().unwrap_err().text().to_owned()
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn roles_that_issuance_could_not_honour_are_refused() {
    let with = |change: fn(&mut Role)| {
        let mut role = Role::default();
        change(&mut role);
        role
    };
    for (role, field) in [
        (with(|r| (r.ttl, r.max_ttl) = (8, 4)), "ttl"),
        (
            with(|r| (r.allowed_domains_template, r.allowed_domains) = (true, texts(&["{{name}}.test"]))),
            "allowed_domains",
        ),
        (with(|r| r.allow_globs_in_identity_templates = true), "allow_globs_in_identity_templates"),
        (
            with(|r| (r.allowed_uri_sans_template, r.allowed_uri_sans) = (true, texts(&["spiffe://{{x"]))),
            "allowed_uri_sans",
        ),
        (with(|r| r.allowed_other_sans = texts(&["foo"])), "error parsing allowed_other_sans"),
        (with(|r| r.allowed_other_sans = texts(&["*", "1.2.3;UTF8:*"])), "error parsing allowed_other_sans"),
        (with(|r| r.ext_key_usage_oids = texts(&["1.2.3", "x"])), "ext_key_usage_oids"),
        (with(|r| r.key_usage = texts(&["Bogus"])), "key_usage"),
        (with(|r| r.ext_key_usage = texts(&["1.2.3"])), "ext_key_usage"),
        (with(|r| r.allowed_ip_sans_cidr = texts(&["10.0.0.1"])), "allowed_ip_sans_cidr"),
        (with(|r| r.cn_validations = texts(&["emails"])), "cn_validations"),
        (with(|r| r.cn_validations = texts(&["email", "EMAIL"])), "cn_validations"),
        (with(|r| r.cn_validations = texts(&["disabled", "email"])), "cn_validations"),
        (with(|r| r.ou = texts(&["a\u{0}b"])), "ou"),
        (with(|r| (r.strict_subject, r.country) = (true, texts(&["NZL"]))), "country"),
    ] {
        let text = refusal(role);
        assert!(text.starts_with(&format!("{field}: ")), "{text}");
    }
}

#[test]
fn role_is_normalized_before_storage() {
    let role = Role {
        issuer_ref: String::new(),
        allowed_ip_sans_cidr: texts(&["10.1.2.3/8", "::ffff:1.2.3.4/128"]),
        cn_validations: Vec::new(),
        signature_bits: SignatureBits::ISSUER_DEFAULT,
        ..Role::default()
    };
    let (role, warnings) = role.checked().unwrap();
    assert!(warnings.is_empty());
    assert_eq!((role.issuer_ref.as_str(), role.signature_bits), ("default", SignatureBits::SHA_256));
    assert_eq!(role.allowed_ip_sans_cidr, ["10.0.0.0/8", "1.2.3.4/32"]);
    assert_eq!(role.cn_validations, ["email", "hostname"]);
    let leases = Role { no_store: true, generate_lease: true, country: texts(&["NZL"]), ..Role::default() };
    let (role, warnings) = leases.checked().unwrap();
    assert!(!role.generate_lease && warnings[0].contains("mutually exclusive"));
    assert!(warnings[1].starts_with("country: "));
}

#[test]
fn list_limits_do_not_apply_to_stored_lists() {
    for ListFieldSlot { slot, limit } in Role::lists() {
        let mut long = Role::default();
        *(slot.get_mut)(&mut long) = vec!["a".to_owned(); limit.entries + 1];
        assert_eq!(refusal(long), format!("{}: at most {} entries are allowed", slot.name, limit.entries));
        let mut wide = Role::default();
        *(slot.get_mut)(&mut wide) = vec!["a".repeat(limit.bytes + 1)];
        assert_eq!(refusal(wide), format!("{}: an entry is longer than {} bytes", slot.name, limit.bytes));
    }
    let older = Role { allowed_domains: vec!["a".to_owned(); 1_001], key_usage: texts(&["Bogus"]), ..Role::default() };
    let later = Role { ttl: 60, ..older.clone() };
    assert_eq!(later.clone().checked_after(Some(&older)).unwrap().0, later);
}

#[test]
fn usages_unsupported_by_the_key_are_reported() {
    for (kind, named, expected) in [
        ("ed25519", &["DigitalSignature", "KeyAgreement"][..], "key_usage: KeyAgreement must not be"),
        ("ed25519", &["CRLSign", "keyEncipherment", "EncipherOnly"], "key_usage: keyEncipherment, EncipherOnly must"),
        ("ec", &["DigitalSignature", "KeyEncipherment"], "key_usage: KeyEncipherment must not be"),
        ("ec", &["DigitalSignature", "KeyAgreement"], ""),
        ("ed25519", &["DigitalSignature"], ""),
        ("rsa", &["KeyAgreement"], ""),
        ("any", &["KeyAgreement"], ""),
    ] {
        let keys = RoleKeys::new(kind, 0).unwrap();
        let (_, warnings) = Role { keys, key_usage: texts(named), ..Role::default() }.checked().unwrap();
        let found = warnings.first().map_or("", String::as_str);
        assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{kind} {named:?}: {found}");
    }
    let (_, warnings) = Role { keys: RoleKeys::new("ed25519", 0).unwrap(), ..Role::default() }.checked().unwrap();
    assert!(warnings.is_empty(), "the default usages fit the key");
}

#[test]
fn default_usages_fit_the_key() {
    let kinds = [KeyKind::Rsa { bits: 2048 }, KeyKind::Ec(Curve::P384), KeyKind::Ed25519];
    let of = |role: &Role| kinds.map(|kind| role.key_usage_for(kind).0);
    // Bits: digitalSignature 1, keyEncipherment 4, keyAgreement 16.
    assert_eq!(of(&Role::default()), [1 + 4, 1 + 16, 1]);
    assert_eq!(of(&Role { key_usage_is_named: true, ..Role::default() }), [1 + 4 + 16; 3]);
    assert_eq!(of(&parse_role(&json!({"key_usage": "keyEncipherment"}))), [4; 3]);
    // A role stored before `key_usage_is_named` existed, with an unknown usage name.
    let older: Role = serde_json::from_value(json!({"key_usage": ["KeyEncipherment", "bogus"]})).unwrap();
    assert_eq!(of(&older), [4; 3]);
}

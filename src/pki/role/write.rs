//! Writing roles: decoding the members, and the rules that a role must keep.
//!
//! One reader serves both kinds of write. What the body lacks comes from the base: the defaults for a
//! whole role, the stored role for a patch. An explicit `null` is the field's default in both.

use std::time::Duration;

use super::{Role, policies};
use crate::clock::parse_rfc3339;
use crate::error::{Error, Result};
use crate::fields::{Cap, Fields, MAX_NAME};
use crate::pki::ca_request;
use crate::pki::names::sans::{parse_network, parse_other};
use crate::pki::oid::{check_size, is_dotted_oid};
use crate::pki::subject_bounds;

type Slots<T> = &'static [(&'static str, fn(&mut Role) -> &mut T)];

const FLAGS: Slots<bool> = &[
    ("allow_localhost", |r| &mut r.allow_localhost),
    ("allowed_domains_template", |r| &mut r.allowed_domains_template),
    ("allow_globs_in_identity_templates", |r| &mut r.allow_globs_in_identity_templates),
    ("allow_bare_domains", |r| &mut r.allow_bare_domains),
    ("allow_subdomains", |r| &mut r.allow_subdomains),
    ("allow_glob_domains", |r| &mut r.allow_glob_domains),
    ("allow_wildcard_certificates", |r| &mut r.allow_wildcard_certificates),
    ("allow_any_name", |r| &mut r.allow_any_name),
    ("enforce_hostnames", |r| &mut r.enforce_hostnames),
    ("allow_ip_sans", |r| &mut r.allow_ip_sans),
    ("allowed_uri_sans_template", |r| &mut r.allowed_uri_sans_template),
    ("allow_token_displayname", |r| &mut r.allow_token_displayname),
    ("server_flag", |r| &mut r.server_flag),
    ("client_flag", |r| &mut r.client_flag),
    ("code_signing_flag", |r| &mut r.code_signing_flag),
    ("email_protection_flag", |r| &mut r.email_protection_flag),
    ("use_pss", |r| &mut r.use_pss),
    ("use_csr_common_name", |r| &mut r.use_csr_common_name),
    ("use_csr_sans", |r| &mut r.use_csr_sans),
    ("strict_subject", |r| &mut r.strict_subject),
    ("require_cn", |r| &mut r.require_cn),
    ("basic_constraints_valid_for_non_ca", |r| &mut r.basic_constraints_valid_for_non_ca),
    ("generate_lease", |r| &mut r.generate_lease),
    ("no_store", |r| &mut r.no_store),
    ("no_store_metadata", |r| &mut r.no_store_metadata),
];

const LISTS: Slots<Vec<String>> = &[
    ("allowed_domains", |r| &mut r.allowed_domains),
    ("allowed_ip_sans_cidr", |r| &mut r.allowed_ip_sans_cidr),
    ("allowed_uri_sans", |r| &mut r.allowed_uri_sans),
    ("allowed_other_sans", |r| &mut r.allowed_other_sans),
    ("allowed_serial_numbers", |r| &mut r.allowed_serial_numbers),
    ("allowed_user_ids", |r| &mut r.allowed_user_ids),
    ("key_usage", |r| &mut r.key_usage),
    ("ext_key_usage", |r| &mut r.ext_key_usage),
    ("ext_key_usage_oids", |r| &mut r.ext_key_usage_oids),
    ("cn_validations", |r| &mut r.cn_validations),
    ("ou", |r| &mut r.ou),
    ("organization", |r| &mut r.organization),
    ("country", |r| &mut r.country),
    ("locality", |r| &mut r.locality),
    ("province", |r| &mut r.province),
    ("street_address", |r| &mut r.street_address),
    ("postal_code", |r| &mut r.postal_code),
];

const TEXTS: Slots<String> = &[
    ("issuer_ref", |r| &mut r.issuer_ref),
    ("key_type", |r| &mut r.key_type),
    ("not_before", |r| &mut r.not_before),
    ("not_before_bound", |r| &mut r.not_before_bound),
    ("not_after", |r| &mut r.not_after),
    ("not_after_bound", |r| &mut r.not_after_bound),
    ("serial_number_source", |r| &mut r.serial_number_source),
];

const SECONDS: Slots<u64> = &[
    ("ttl", |r| &mut r.ttl),
    ("max_ttl", |r| &mut r.max_ttl),
    ("not_before_duration", |r| &mut r.not_before_duration),
];

const NUMBERS: Slots<u32> = &[("key_bits", |r| &mut r.key_bits), ("signature_bits", |r| &mut r.signature_bits)];

/// The most values of one attribute in a subject, and the longest: the largest upper bounds of RFC 5280
/// appendix A.1 are 256 characters.
pub(in crate::pki) const SUBJECT_VALUES: Cap = Cap::new(64, 1_024);

/// Subject values: they are encoded as they are.
const SUBJECT: &[&str] = &["ou", "organization", "country", "locality", "province", "street_address", "postal_code"];

impl Role {
    /// A whole role from a body; absent members are at their defaults. The second part of the answer
    /// are warnings for the caller.
    ///
    /// # Errors
    /// `Invalid` naming field and rule.
    pub fn from_fields(fields: &Fields) -> Result<(Role, Vec<String>)> {
        merged(Role::blank(), fields)
    }

    /// This role with the members of a body; absent ones keep their value, `null` sets the default.
    ///
    /// # Errors
    /// As [`Role::from_fields`], on the merged role: a new `key_type` meets the stored `key_bits`.
    pub fn patched(&self, fields: &Fields) -> Result<(Role, Vec<String>)> {
        merged(self.clone(), fields)
    }
}

fn merged(base: Role, fields: &Fields) -> Result<(Role, Vec<String>)> {
    let mut role = base;
    let mut reader = Reader { fields, role: &mut role, blank: Role::blank() };
    reader.read(FLAGS, |name| fields.bool(name))?;
    reader.read(LISTS, |name| fields.list_within(name, cap(name)))?;
    reader.read(TEXTS, |name| Ok(fields.text_within(name, MAX_NAME)?.map(|text| text.trim().to_owned())))?;
    reader.read(SECONDS, |name| fields.duration(name)?.map(|d| whole_seconds(name, d)).transpose())?;
    reader.read(NUMBERS, |name| fields.int(name)?.map(|n| size(name, n)).transpose())?;
    reader.read(&[("policy_identifiers", |r| &mut r.policy_identifiers)], |_| policies::read(fields))?;
    if fields.has("key_usage") {
        ca_request::check_key_usage(&role.key_usage)?;
        role.key_usage_is_named = true;
    } else if fields.is_null("key_usage") {
        role.key_usage_is_named = false;
    }
    if fields.has("ext_key_usage") {
        ca_request::check_ext_key_usage(&role.ext_key_usage)?;
    }
    let warnings = settle(&mut role)?;
    Ok((role, warnings))
}

/// What a list of a role may hold. Every request under the role walks its patterns, every certificate has
/// its subject values.
fn cap(field: &str) -> Cap {
    match field {
        "key_usage" | "ext_key_usage" | "ext_key_usage_oids" | "cn_validations" => Cap::new(64, MAX_NAME),
        _ if SUBJECT.contains(&field) => SUBJECT_VALUES,
        _ => Cap::new(1_000, 1_024),
    }
}

struct Reader<'a> {
    fields: &'a Fields,
    role: &'a mut Role,
    blank: Role,
}

impl Reader<'_> {
    fn read<T: Clone>(&mut self, slots: Slots<T>, value: impl Fn(&str) -> Result<Option<T>>) -> Result<()> {
        for (name, slot) in slots {
            if let Some(value) = value(name)? {
                *slot(self.role) = value;
            } else if self.fields.is_null(name) {
                *slot(self.role) = slot(&mut self.blank).clone();
            }
        }
        Ok(())
    }
}

/// The seconds of a duration. Below one second is refused: it would read as "unset".
pub(in crate::pki) fn whole_seconds(field: &str, duration: Duration) -> Result<u64> {
    if duration.as_secs() == 0 && !duration.is_zero() {
        return Err(Error::invalid(format!("{field}: must be zero, or at least one second")));
    }
    Ok(duration.as_secs())
}

fn size(field: &str, number: i64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::invalid(format!("{field}: unsupported size")))
}

/// Brings a role into its stored form, or refuses it.
fn settle(role: &mut Role) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    if role.no_store && role.generate_lease {
        role.generate_lease = false;
        warnings.push("generate_lease was set to false: no_store and generate_lease are mutually exclusive".to_owned());
    }
    if role.generate_lease {
        warnings
            .push("generate_lease: every certificate costs the store a lease too; prefer short lifetimes".to_owned());
    }
    refuse_unenforced(role)?;
    for (word, default) in [
        (&mut role.issuer_ref, "default"),
        (&mut role.not_before_bound, "permit"),
        (&mut role.not_after_bound, "permit"),
        (&mut role.serial_number_source, "json-csr"),
    ] {
        if word.is_empty() {
            *word = default.to_owned();
        }
    }
    if role.max_ttl > 0 && role.ttl > role.max_ttl {
        return Err(Error::invalid("ttl: ttl must not exceed max_ttl"));
    }
    settle_key(role)?;
    settle_lists(role)?;
    settle_times(role)?;
    let subject = [&role.country, &role.province, &role.locality, &role.organization, &role.ou];
    let broken = subject_bounds::of_role(subject.map(Vec::as_slice));
    warnings.extend(subject_bounds::settle(role.strict_subject, broken)?);
    Ok(warnings)
}

fn refuse_unenforced(role: &Role) -> Result<()> {
    for (field, value) in [
        ("allowed_domains_template", role.allowed_domains_template),
        ("allow_globs_in_identity_templates", role.allow_globs_in_identity_templates),
        ("allowed_uri_sans_template", role.allowed_uri_sans_template),
    ] {
        if value {
            return Err(Error::invalid(format!("{field}: true is not supported yet; only false is taken")));
        }
    }
    Ok(())
}

fn settle_key(role: &mut Role) -> Result<()> {
    role.key_bits = match (role.key_type.as_str(), role.key_bits) {
        ("rsa", 0) => 2048,
        ("rsa", bits @ (2048 | 3072 | 4096 | 8192)) => bits,
        ("rsa", 1..2048) => return Err(Error::invalid("key_bits: RSA keys below 2048 bits are not supported")),
        ("rsa", _) => return Err(Error::invalid("key_bits: unsupported bit length: must be 2048, 3072, 4096 or 8192")),
        ("ec", 0) => 256,
        ("ec", bits @ (224 | 256 | 384 | 521)) => bits,
        ("ec", _) => return Err(Error::invalid("key_bits: unsupported curve size: must be 224, 256, 384 or 521")),
        ("ed25519" | "any", _) => 0,
        _ => return Err(Error::invalid("key_type: unknown key type: must be rsa, ec, ed25519 or any")),
    };
    role.signature_bits = match (role.key_type.as_str(), role.signature_bits) {
        ("rsa", 0) => 256,
        (_, bits @ (0 | 256 | 384 | 512)) => bits,
        _ => return Err(Error::invalid("signature_bits: unsupported hash size: must be 0, 256, 384 or 512")),
    };
    Ok(())
}

fn settle_lists(role: &mut Role) -> Result<()> {
    if !role.ext_key_usage_oids.iter().all(|oid| is_dotted_oid(oid)) {
        return Err(Error::invalid("ext_key_usage_oids: every entry must be a dotted OID"));
    }
    role.ext_key_usage_oids.iter().try_for_each(|oid| check_size("ext_key_usage_oids", oid))?;
    role.policies()?.iter().try_for_each(|policy| check_size("policy_identifiers", &policy.oid))?;
    if role.allowed_other_sans != ["*"] {
        role.allowed_other_sans
            .iter()
            .try_for_each(|entry| parse_other("error parsing allowed_other_sans", entry).map(drop))?;
    }
    for network in &mut role.allowed_ip_sans_cidr {
        *network = parse_network(network)
            .ok_or_else(|| Error::invalid("allowed_ip_sans_cidr: every entry must be a network such as 10.0.0.0/8"))?
            .to_string();
    }
    role.policies()?;
    settle_cn_validations(&mut role.cn_validations)?;
    for (field, slot) in LISTS.iter().filter(|(field, _)| SUBJECT.contains(field)) {
        if slot(role).iter().any(|value| value.chars().any(char::is_control)) {
            return Err(Error::invalid(format!("{field}: control characters are not allowed")));
        }
    }
    Ok(())
}

fn settle_cn_validations(words: &mut Vec<String>) -> Result<()> {
    words.iter_mut().for_each(|word| word.make_ascii_lowercase());
    let refuse = |problem: &str| Err(Error::invalid(format!("cn_validations: {problem}")));
    if words.iter().any(|word| !["email", "hostname", "disabled"].contains(&word.as_str())) {
        return refuse("must be email and hostname, or disabled");
    }
    if words.iter().enumerate().any(|(at, word)| words[..at].contains(word)) {
        return refuse("an entry is given twice");
    }
    if words.len() > 1 && words.iter().any(|word| word == "disabled") {
        return refuse("disabled must stand alone");
    }
    if words.is_empty() {
        *words = Role::blank().cn_validations;
    }
    Ok(())
}

fn settle_times(role: &Role) -> Result<()> {
    for (field, text) in [("not_before", &role.not_before), ("not_after", &role.not_after)] {
        if !text.is_empty() {
            parse_rfc3339(field, text)?;
        }
    }
    if !["permit", "duration", "forbid"].contains(&role.not_before_bound.as_str()) {
        return Err(Error::invalid("not_before_bound: must be permit, duration or forbid"));
    }
    let bound = role.not_after_bound.as_str();
    if !["permit", "forbid", "ttl-limited"].contains(&bound) && parse_rfc3339("not_after_bound", bound).is_err() {
        return Err(Error::invalid("not_after_bound: must be permit, forbid, ttl-limited or an RFC 3339 time"));
    }
    if !["json-csr", "json"].contains(&role.serial_number_source.as_str()) {
        return Err(Error::invalid("serial_number_source: must be json-csr or json"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{DEFAULT_KEY_USAGE, FIELDS, NAMED};
    use super::*;
    use crate::x509::algorithm::{Curve, KeyKind};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn fields(body: &Value) -> Fields {
        Fields::parse(body.to_string().as_bytes()).unwrap()
    }

    fn write(body: Value) -> Result<Role> {
        Role::from_fields(&fields(&body)).map(|(role, _)| role)
    }

    #[test]
    fn h4_a_role_without_members_has_the_defaults() {
        let read = write(json!({})).unwrap().to_json();
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
            "postal_code": [], "strict_subject": false, "require_cn": true, "cn_validations": ["email", "hostname"],
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
    fn every_field_is_read_by_a_write() {
        let json = Role::default().to_json();
        let mut shown: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let mut read: Vec<&str> = FLAGS.iter().map(|s| s.0).collect();
        read.extend(LISTS.iter().map(|s| s.0));
        read.extend(TEXTS.iter().map(|s| s.0));
        read.extend(SECONDS.iter().map(|s| s.0));
        read.extend(NUMBERS.iter().map(|s| s.0));
        read.push("policy_identifiers");
        let mut named = FIELDS.to_vec();
        for list in [&mut shown, &mut read, &mut named] {
            list.sort_unstable();
        }
        assert_eq!(read, shown);
        assert_eq!(named, shown);
    }

    #[test]
    fn h5_a_second_write_without_a_field_puts_it_back_at_its_default() {
        assert_eq!(write(json!({"ttl": "1h"})).unwrap().ttl, 3600);
        assert_eq!(write(json!({"max_ttl": "2h"})).unwrap().ttl, 0);
    }

    #[test]
    fn h6_a_patch_changes_one_field_and_null_resets() {
        let (role, _) = Role::from_fields(&fields(&json!({
            "allow_any_name": true, "ttl": "1h", "key_type": "ec", "key_bits": 384, "ou": "a,b", "server_flag": false,
        })))
        .unwrap();
        let patch = |body: Value| role.patched(&fields(&body)).map(|(role, _)| role);
        assert_eq!(patch(json!({})).unwrap(), role);
        assert_eq!(patch(json!({"ttl": "2h"})).unwrap(), Role { ttl: 7200, ..role.clone() });
        let reset = patch(json!({"ou": null, "server_flag": null, "key_bits": null})).unwrap();
        assert_eq!(reset, Role { ou: vec![], server_flag: true, key_bits: 256, ..role.clone() });
        assert!(patch(json!({"max_ttl": "30m"})).is_err());
        // rsa to ec with the stored 2048
        let (rsa, _) = Role::from_fields(&Fields::default()).unwrap();
        assert!(rsa.patched(&fields(&json!({"key_type": "ec"}))).is_err());
        assert_eq!(rsa.patched(&fields(&json!({"key_type": "ec", "key_bits": 256}))).unwrap().0.key_bits, 256);
    }

    #[test]
    fn h7_key_types_and_sizes() {
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
        ] {
            assert_eq!(write(json!({"key_type": kind, "key_bits": bits})).unwrap().key_bits, stored, "{kind} {bits}");
        }
        for (kind, bits) in [("rsa", 1024), ("rsa", 2049), ("ec", 300), ("ec", 2048), ("foo", 0), ("", 0), ("RSA", 0)] {
            assert!(write(json!({"key_type": kind, "key_bits": bits})).is_err(), "{kind} {bits}");
        }
        assert!(write(json!({"key_bits": -1})).is_err());
    }

    #[test]
    fn h8_signature_bits_are_checked_and_kept_whatever_the_key_type() {
        for kind in ["rsa", "ec", "ed25519", "any"] {
            assert!(write(json!({"key_type": kind, "signature_bits": 100})).is_err(), "{kind}");
            let role = write(json!({"key_type": kind, "signature_bits": 384, "use_pss": true})).unwrap();
            assert_eq!((role.signature_bits, role.use_pss), (384, true), "{kind}");
            let default = if kind == "rsa" { 256 } else { 0 };
            assert_eq!(write(json!({"key_type": kind})).unwrap().signature_bits, default, "{kind}");
        }
    }

    #[test]
    fn h9_no_store_with_generate_lease_stores_a_false_lease_and_warns() {
        let body = json!({"no_store": true, "generate_lease": true});
        let (role, warnings) = Role::from_fields(&fields(&body)).unwrap();
        assert!(!role.generate_lease && role.no_store);
        assert!(warnings[0].contains("mutually exclusive"));
    }

    #[test]
    fn h12_texts_are_taken_for_numbers_flags_and_durations() {
        let role = write(json!({"key_bits": "2048", "allow_any_name": "true", "ttl": "1h", "max_ttl": 3600})).unwrap();
        assert_eq!((role.key_bits, role.allow_any_name, role.ttl, role.max_ttl), (2048, true, 3600, 3600));
    }

    #[test]
    fn h43_null_is_absent() {
        let body = json!({"allow_wildcard_certificates": null, "server_flag": null, "allow_localhost": null});
        assert_eq!(write(body).unwrap(), Role::default());
    }

    #[test]
    fn durations_read_back_in_their_forms() {
        let role = write(json!({"ttl": "90m", "max_ttl": "24h", "not_before_duration": "1h"})).unwrap();
        let json = role.to_json();
        assert_eq!((&json["ttl"], &json["max_ttl"]), (&json!("90m"), &json!("24h")));
        assert_eq!(json["not_before_duration"], json!(3600));
        assert_eq!(write(json.clone()).unwrap().to_json(), json);
    }

    #[test]
    fn what_nobody_enforces_is_refused_as_true_and_taken_as_false() {
        for field in ["allowed_domains_template", "allow_globs_in_identity_templates", "allowed_uri_sans_template"] {
            let error = write(json!({field: true})).unwrap_err();
            assert!(error.text().starts_with(&format!("{field}: ")), "{error}");
            assert_eq!(write(json!({field: false})).unwrap().to_json()[field], json!(false));
        }
        assert!(write(json!({"allow_token_displayname": true})).unwrap().allow_token_displayname);
    }

    #[test]
    fn writes_that_issuance_could_not_honour_are_refused() {
        for (case, body, field) in [
            ("T21: ttl above max_ttl", json!({"ttl": "8h", "max_ttl": "4h"}), "ttl"),
            (
                "S19: other SAN without a semicolon",
                json!({"allowed_other_sans": "foo"}),
                "error parsing allowed_other_sans",
            ),
            (
                "S19: other SAN of another type",
                json!({"allowed_other_sans": "1.2;INT:5"}),
                "error parsing allowed_other_sans",
            ),
            (
                "a star beside other entries",
                json!({"allowed_other_sans": "*,1.2.3;UTF8:*"}),
                "error parsing allowed_other_sans",
            ),
            ("S36: a policy that is no OID", json!({"policy_identifiers": "not-oid"}), "policy_identifiers"),
            ("an extended usage that is no OID", json!({"ext_key_usage_oids": "1.2.3,x"}), "ext_key_usage_oids"),
            ("a usage that nobody knows", json!({"key_usage": "DigitalSignature,Bogus"}), "key_usage"),
            ("an extended usage that nobody knows", json!({"ext_key_usage": ["ServerAuth", "1.2.3"]}), "ext_key_usage"),
            ("a network without prefix", json!({"allowed_ip_sans_cidr": "10.0.0.1"}), "allowed_ip_sans_cidr"),
            ("an unknown bound", json!({"not_after_bound": "maybe"}), "not_after_bound"),
            ("an unknown bound", json!({"not_before_bound": "ttl-limited"}), "not_before_bound"),
            ("a time without zone", json!({"not_after": "9999-12-31T23:59:59"}), "not_after"),
            ("a date", json!({"not_before": "2030-01-01"}), "not_before"),
            ("an unknown kind of name", json!({"cn_validations": "emails"}), "cn_validations"),
            ("a kind twice", json!({"cn_validations": "email,email"}), "cn_validations"),
            ("disabled beside others", json!({"cn_validations": "disabled,email"}), "cn_validations"),
            ("an unknown source", json!({"serial_number_source": "csr"}), "serial_number_source"),
            ("a control character in the subject", json!({"ou": ["a\u{0}b"]}), "ou"),
            ("a time below a second", json!({"ttl": "10ms"}), "ttl"),
        ] {
            let error = write(body).unwrap_err();
            assert!(error.text().starts_with(&format!("{field}: ")), "{case}: {error}");
        }
    }

    #[test]
    fn values_are_stored_in_canonical_form() {
        let role = write(json!({
            "issuer_ref": "", "allowed_ip_sans_cidr": "10.1.2.3/8,::ffff:1.2.3.4/128", "cn_validations": [],
            "not_after_bound": "", "allowed_domains": "a.com, ,b.com,", "key_usage": "", "allowed_other_sans": "*",
        }))
        .unwrap();
        assert_eq!(role.issuer_ref, "default");
        assert_eq!(role.allowed_ip_sans_cidr, ["10.0.0.0/8", "1.2.3.4/32"]);
        assert_eq!(role.cn_validations, ["email", "hostname"]);
        assert_eq!(role.not_after_bound, "permit");
        assert_eq!(role.allowed_domains, ["a.com", "b.com"]);
        assert!(role.key_usage.is_empty());
    }

    #[test]
    fn an_older_stored_role_reads_with_the_defaults_of_what_it_lacks() {
        let role: Role = serde_json::from_value(json!({"key_type": "ec", "key_bits": 256, "unknown": 1})).unwrap();
        assert_eq!(role, Role { key_type: "ec".into(), key_bits: 256, ..Role::default() });
        let stored = serde_json::to_string(&role).unwrap();
        assert_eq!(serde_json::from_str::<Role>(&stored).unwrap(), role);
    }

    #[test]
    fn default_usages_fit_the_key_and_named_ones_stand() {
        let kinds = [KeyKind::Rsa { bits: 2048 }, KeyKind::Ec(Curve::P384), KeyKind::Ed25519];
        let of = |role: &Role| kinds.map(|kind| role.key_usage_for(kind).0);
        // digitalSignature 1, keyEncipherment 4, keyAgreement 16.
        let (fitting, all) = ([1 + 4, 1 + 16, 1], [1 + 4 + 16; 3]);
        let role = write(json!({})).unwrap();
        assert_eq!(of(&role), fitting);
        assert_eq!(role.to_json().get(NAMED), None);
        let same = write(role.to_json()).unwrap();
        assert_eq!(of(&same), all, "the default, asked for by name");
        let patched = |role: &Role, body| role.patched(&fields(&body)).unwrap().0;
        assert_eq!(of(&patched(&same, json!({"ttl": "1h"}))), all);
        assert_eq!(of(&patched(&same, json!({"key_usage": null}))), fitting);
        assert_eq!(of(&patched(&role, json!({"ttl": "1h"}))), fitting);
        assert_eq!(of(&patched(&role, json!({"key_usage": "keyEncipherment"}))), [4; 3]);
        assert_eq!(of(&write(json!({"key_usage": []})).unwrap()), [0; 3]);
        for role in [role, same] {
            let stored = serde_json::to_string(&role).unwrap();
            assert_eq!(serde_json::from_str::<Role>(&stored).unwrap(), role);
        }
        // Stored before there was a difference, also with a name that nobody knows.
        let older = |usages: Value| serde_json::from_value::<Role>(json!({"key_usage": usages})).unwrap();
        assert_eq!(of(&older(json!(DEFAULT_KEY_USAGE))), fitting);
        let with_unknown = older(json!(["KeyEncipherment", "bogus"]));
        assert_eq!(of(&with_unknown), [4; 3]);
        assert_eq!(of(&patched(&with_unknown, json!({"ttl": "1h"}))), [4; 3]);
    }

    proptest! {
        #[test]
        fn any_text_in_any_field_is_taken_or_refused_without_a_panic(text in "\\PC{0,30}", pick in 0..FIELDS.len()) {
            let mut fields = Fields::default();
            fields.set(FIELDS[pick], text);
            if let Ok((role, _)) = Role::from_fields(&fields) {
                // What is read can be written again.
                let again = Fields::parse(role.to_json().to_string().as_bytes()).unwrap();
                // Its usages are named then, which nobody reads.
                prop_assert_eq!(Role::from_fields(&again).unwrap().0.to_json(), role.to_json());
            }
        }
    }
}

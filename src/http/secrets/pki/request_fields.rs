//! Parses fields that several certificate requests have in common. Only their syntax is checked here; whether the
//! values are allowed is checked later.

use std::time::Duration;

use crate::clock::{Time, parse_rfc3339};
use crate::error::{Error, Result};
use crate::fields::{Fields, ListLimit};
use crate::pki::check::ca_request::check_ascii;
use crate::pki::check::request::{
    RequestedKey, RequestedNames, RequestedSignature, RequestedSubject, RequestedUsages, RequestedValidity,
};
use crate::pki::check::validity::ttl_and_not_after_error;
use crate::pki::mount::role::SUBJECT_LIST_LIMITS;
use crate::pki::values::{check_ext_key_usage, check_key_usage, oid, parse_network, whole_seconds};
use crate::x509::csr::Csr;
use crate::x509::extension::{self, KeyUsage, MAX_SUBTREES, NameConstraints, Subtrees};

pub(super) const NAME_FIELDS: [&str; 6] =
    ["common_name", "alt_names", "ip_sans", "uri_sans", "other_sans", "exclude_cn_from_sans"];

/// Fields for the subject of a CA certificate.
pub(super) const SUBJECT_FIELDS: [&str; 9] = [
    "ou",
    "organization",
    "country",
    "locality",
    "province",
    "street_address",
    "postal_code",
    "serial_number",
    "separate_rdns",
];

pub(super) const CONSTRAINT_FIELDS: [&str; 8] = [
    "permitted_dns_domains",
    "permitted_email_addresses",
    "permitted_ip_ranges",
    "permitted_uri_domains",
    "excluded_dns_domains",
    "excluded_email_addresses",
    "excluded_ip_ranges",
    "excluded_uri_domains",
];

/// Limits on a list of key usages or extended key usages.
const USAGE_LIST_LIMIT: ListLimit = ListLimit::new(100, 128);
/// Limits on a list of name constraints.
const SUBTREE_LIST_LIMIT: ListLimit = ListLimit { entries: MAX_SUBTREES, ..ListLimit::LIST }.rejecting_only_empty();

fn trimmed(fields: &Fields, name: &str) -> Result<String> {
    Ok(fields.text(name)?.map(|text| text.trim().to_owned()).unwrap_or_default())
}

fn list(fields: &Fields, name: &str, limit: ListLimit) -> Result<Vec<String>> {
    Ok(fields.list_within(name, limit)?.unwrap_or_default())
}

pub(super) fn flag(fields: &Fields, name: &str) -> Result<bool> {
    Ok(fields.bool(name)?.unwrap_or_default())
}

/// Reads the requested names, including user ids.
pub(super) fn names(fields: &Fields) -> Result<RequestedNames> {
    Ok(RequestedNames {
        common_name: trimmed(fields, "common_name")?,
        alt_names: list(fields, "alt_names", ListLimit::LIST)?,
        ip_sans: list(fields, "ip_sans", ListLimit::LIST)?,
        uri_sans: list(fields, "uri_sans", ListLimit::LIST)?,
        other_sans: list(fields, "other_sans", ListLimit::LIST)?,
        serial_number: trimmed(fields, "serial_number")?,
        exclude_cn_from_sans: flag(fields, "exclude_cn_from_sans")?,
        user_ids: user_ids(fields)?,
    })
}

pub(super) fn user_ids(fields: &Fields) -> Result<Vec<String>> {
    list(fields, "user_ids", ListLimit::LIST)
}

/// Reads `ttl`. Zero counts as absent.
fn ttl(fields: &Fields) -> Result<Option<Duration>> {
    let ttl = fields.duration("ttl")?.map(|ttl| whole_seconds("ttl", ttl)).transpose()?;
    Ok(ttl.filter(|seconds| *seconds > 0).map(Duration::from_secs))
}

/// Reads `ttl`, `not_after` and `not_before`. Empty text and a zero `ttl` count as absent. By default, a `ttl` above
/// the limit will be rejected.
pub(super) fn validity(fields: &Fields) -> Result<RequestedValidity> {
    let time = |name: &str| -> Result<Option<Time>> {
        let text = trimmed(fields, name)?;
        (!text.is_empty()).then(|| parse_rfc3339(name, &text)).transpose()
    };
    Ok(RequestedValidity {
        ttl: ttl(fields)?,
        not_after: time("not_after")?,
        not_before: time("not_before")?,
        ..RequestedValidity::default()
    })
}

/// As [`validity`], for a root. A `ttl` together with `not_after` is rejected before `not_after` is parsed.
pub(super) fn validity_of_root(fields: &Fields) -> Result<RequestedValidity> {
    if ttl(fields)?.is_some() && !trimmed(fields, "not_after")?.is_empty() {
        return Err(ttl_and_not_after_error());
    }
    validity(fields)
}

pub(super) fn key(fields: &Fields) -> Result<RequestedKey> {
    Ok(RequestedKey { key_type: fields.text("key_type")?, bits: fields.int("key_bits")? })
}

/// Parses the CSR in `csr`, in PEM. Its signature is verified later.
pub(super) fn csr(fields: &Fields) -> Result<Csr> {
    Csr::from_pem(fields.str("csr")?.unwrap_or_default())
}

pub(super) fn metadata(fields: &Fields) -> Result<Option<String>> {
    Ok(fields.str("cert_metadata")?.map(str::to_owned))
}

pub(super) fn signature(fields: &Fields) -> Result<RequestedSignature> {
    let bits = match fields.int("signature_bits")?.unwrap_or(0) {
        bits @ (0 | 256 | 384 | 512) => bits as u32,
        _ => return Err(Error::invalid("signature_bits: must be 0, 256, 384 or 512")),
    };
    Ok(RequestedSignature { bits, pss: flag(fields, "use_pss")? })
}

/// Reads `max_path_length`; `None` when it is absent or -1.
pub(super) fn max_path_length(fields: &Fields) -> Result<Option<u8>> {
    match fields.int("max_path_length")?.unwrap_or(-1) {
        -1 => Ok(None),
        length => u8::try_from(length)
            .map(Some)
            .map_err(|_| Error::invalid("max_path_length: must be -1 (no limit) or 0 to 255")),
    }
}

pub(super) fn key_usage(fields: &Fields) -> Result<Option<KeyUsage>> {
    if !fields.has("key_usage") {
        return Ok(None);
    }
    let names = list(fields, "key_usage", USAGE_LIST_LIMIT)?;
    check_key_usage(&names)?;
    Ok(Some(KeyUsage::from_names(&names)))
}

/// Reads `key_usage`, and the union of `ext_key_usage` and `ext_key_usage_oids`.
pub(super) fn usages(fields: &Fields) -> Result<RequestedUsages> {
    let key_usage = key_usage(fields)?;
    let names = list(fields, "ext_key_usage", USAGE_LIST_LIMIT)?;
    let oids = list(fields, "ext_key_usage_oids", USAGE_LIST_LIMIT)?;
    check_ext_key_usage(&names)?;
    let ext_key_usage = extension::eku_oids(&names, false, false, false, false, &oids)?;
    oids.iter().try_for_each(|oid| oid::check_oid_size("ext_key_usage_oids", oid.trim()))?;
    Ok(RequestedUsages { key_usage, ext_key_usage })
}

/// Reads the fields for the subject of a CA certificate. `serial_number` is read with the names.
pub(super) fn subject(fields: &Fields) -> Result<RequestedSubject> {
    let values = |name: &str| list(fields, name, SUBJECT_LIST_LIMITS);
    Ok(RequestedSubject {
        country: values("country")?,
        province: values("province")?,
        locality: values("locality")?,
        street_address: values("street_address")?,
        postal_code: values("postal_code")?,
        organization: values("organization")?,
        ou: values("ou")?,
        separate_rdns: flag(fields, "separate_rdns")?,
    })
}

/// Reads the eight lists of name constraints, permitted and excluded.
pub(super) fn constraints(fields: &Fields) -> Result<NameConstraints> {
    let ranges = |field: &str| -> Result<Vec<ipnet::IpNet>> {
        let texts = list(fields, field, SUBTREE_LIST_LIMIT)?;
        check_ascii(field, &texts)?;
        let ranges = texts.iter().map(|text| parse_network(text)).collect::<Option<_>>();
        ranges.ok_or_else(|| Error::invalid(format!("{field}: every entry must be a CIDR range")))
    };
    let subtrees = |side: &str| -> Result<Subtrees> {
        Ok(Subtrees {
            dns: list(fields, &format!("{side}_dns_domains"), SUBTREE_LIST_LIMIT)?,
            emails: list(fields, &format!("{side}_email_addresses"), SUBTREE_LIST_LIMIT)?,
            ips: ranges(&format!("{side}_ip_ranges"))?,
            uris: list(fields, &format!("{side}_uri_domains"), SUBTREE_LIST_LIMIT)?,
        })
    };
    Ok(NameConstraints { permitted: subtrees("permitted")?, excluded: subtrees("excluded")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::secrets::route::concat_fields;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn fields(body: &Value) -> Fields {
        Fields::parse(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn empty_body_requests_the_defaults() {
        let empty = json!({"ttl": "", "not_after": "", "alt_names": "", "ip_sans": ""});
        for body in [json!({}), empty] {
            let fields = fields(&body);
            assert_eq!(names(&fields).unwrap(), RequestedNames::default());
            assert_eq!(validity(&fields).unwrap(), RequestedValidity::default());
            assert_eq!(key(&fields).unwrap(), RequestedKey::default());
            assert_eq!(usages(&fields).unwrap(), RequestedUsages::default());
            assert_eq!(subject(&fields).unwrap(), RequestedSubject::default());
            assert_eq!(signature(&fields).unwrap(), RequestedSignature::default());
            assert!(constraints(&fields).unwrap().is_empty() && max_path_length(&fields).unwrap().is_none());
        }
    }

    #[test]
    fn request_fields_are_read_leniently() {
        let fields = fields(&json!({
            "common_name": " a.foo ", "alt_names": ["b.foo", "c.foo "], "ip_sans": "1.2.3.4, ::1,",
            "other_sans": "1.2.3;UTF8:a,1.2.3;UTF8:b", "exclude_cn_from_sans": "true", "ttl": "1h30m",
            "key_bits": "2048", "user_ids": "x,y", "not_after": " 2030-01-02T03:04:05Z ",
        }));
        let names = names(&fields).unwrap();
        assert_eq!(names.common_name, "a.foo");
        assert_eq!(names.alt_names, ["b.foo", "c.foo"]);
        assert_eq!(names.ip_sans, ["1.2.3.4", "::1"]);
        assert_eq!(names.other_sans.len(), 2);
        assert!(names.exclude_cn_from_sans);
        assert_eq!(names.user_ids, ["x", "y"]);
        let validity = validity(&fields).unwrap();
        assert_eq!(validity.ttl, Some(Duration::from_secs(5400)));
        assert_eq!(validity.not_after.unwrap().unix_timestamp(), 1_893_553_445);
        assert_eq!(key(&fields).unwrap().bits, Some(2048));
    }

    #[test]
    fn request_fields_with_invalid_values_are_refused() {
        for (body, begin) in [
            (json!({"ttl": "500ms"}), "ttl: "),
            (json!({"ttl": -1}), "field validation failed"),
            (json!({"not_after": "2030-01-02T03:04:05"}), "not_after: "),
            (json!({"not_before": "yesterday"}), "not_before: "),
        ] {
            let error = validity(&fields(&body)).unwrap_err();
            assert!(error.text().starts_with(begin), "{error}");
        }
        assert!(signature(&fields(&json!({"signature_bits": 160}))).is_err());
        for length in [-2, 256, i64::MAX] {
            assert!(max_path_length(&fields(&json!({"max_path_length": length}))).is_err(), "{length}");
        }
        for range in ["10.0.0.1/33", "010.0.0.0/8", "::ffff:10.0.0.0/8"] {
            let ranges = json!({"permitted_ip_ranges": ["10.0.0.0/8", range]});
            assert!(constraints(&fields(&ranges)).unwrap_err().text().starts_with("permitted_ip_ranges: "));
        }
    }

    #[test]
    fn ranges_of_ipv4_in_the_form_of_ipv6_are_ipv4() {
        let ranges = json!({"excluded_ip_ranges": "::ffff:10.0.0.0/104,fd00::/8,::/0"});
        let shown: Vec<_> =
            constraints(&fields(&ranges)).unwrap().excluded.ips.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.0/8", "fd00::/8", "::/0"]);
    }

    proptest! {
        #[test]
        fn request_fields_of_any_text_do_not_panic(text in "\\PC{0,30}", pick in 0..40_usize) {
            let all = concat_fields::<34>(&[&NAME_FIELDS, &SUBJECT_FIELDS, &CONSTRAINT_FIELDS, &[
                "ttl", "not_after", "not_before", "key_type", "key_bits", "key_usage", "ext_key_usage",
                "ext_key_usage_oids", "signature_bits", "max_path_length", "user_ids",
            ]]);
            let mut fields = Fields::default();
            fields.set(all[pick % all.len()], text);
            let _ = (names(&fields), validity(&fields), key(&fields), usages(&fields), subject(&fields));
            let _ = (constraints(&fields), signature(&fields), max_path_length(&fields), csr(&fields));
        }
    }
}

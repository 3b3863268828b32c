//! Parses requests of `issue` and the sign endpoints.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::http::secrets::pki::rendering::PASSWORD_FIELD;
use crate::http::secrets::pki::request_fields::{self, flag};
use crate::http::secrets::route::Call;
use crate::http::secrets::route::concat_fields;
use crate::pki::ca::ca_profile;
use crate::pki::check::request::RequestedValidity;
use crate::pki::issue::request::{
    IntermediateRequest, LeafRequest, RequestedCaNames, RequestedSubjectKey, SelfIssuedRequest, VerbatimRequest,
};
use crate::pki::values::parse_hex;
use crate::x509::certificate::Certificate;
use crate::x509::pem;

/// Fields for names, validity and format, which `issue` and `sign` share.
const LEAF_FIELDS: &[&str] = &[
    "common_name",
    "alt_names",
    "ip_sans",
    "uri_sans",
    "other_sans",
    "serial_number",
    "ttl",
    "not_after",
    "not_before",
    "format",
];
/// Further fields that `issue` and `sign` share.
const MORE_LEAF_FIELDS: &[&str] = &["exclude_cn_from_sans", "remove_roots_from_chain", "user_ids"];

/// Fields of `issue`.
pub(in crate::http::secrets::pki) const ISSUE_FIELDS: &[&str] = &concat_fields::<18>(&[
    LEAF_FIELDS,
    &[PASSWORD_FIELD, "private_key_format"],
    MORE_LEAF_FIELDS,
    &["key_type", "key_bits", "cert_metadata"],
]);

/// Fields of `sign`.
pub(in crate::http::secrets::pki) const SIGN_FIELDS: &[&str] =
    &concat_fields::<15>(&[&["csr"], LEAF_FIELDS, MORE_LEAF_FIELDS, &["cert_metadata"]]);

/// Fields of `sign-verbatim`.
pub(in crate::http::secrets::pki) const VERBATIM_FIELDS: &[&str] = &[
    "csr",
    "key_usage",
    "ext_key_usage",
    "ext_key_usage_oids",
    "enforce_leaf_not_after_behavior",
    "ttl",
    "not_after",
    "not_before",
    "signature_bits",
    "use_pss",
    "format",
    "remove_roots_from_chain",
    "user_ids",
    "basic_constraints_valid_for_non_ca",
    "cert_metadata",
];

/// Fields of `sign-intermediate`.
pub(in crate::http::secrets::pki) const INTERMEDIATE_FIELDS: &[&str] = &concat_fields::<38>(&[
    &[
        "csr",
        "use_csr_values",
        "ttl",
        "not_after",
        "not_before",
        "not_before_duration",
        "enforce_leaf_not_after_behavior",
        "format",
        "max_path_length",
        "key_usage",
        "ext_key_usage",
        "ext_key_usage_oids",
        "signature_bits",
        "use_pss",
        "skid",
    ],
    &request_fields::NAME_FIELDS,
    &request_fields::CONSTRAINT_FIELDS,
    &request_fields::SUBJECT_FIELDS,
]);

/// Fields of `sign-self-issued`.
pub(in crate::http::secrets::pki) const SELF_ISSUED_FIELDS: &[&str] =
    &["certificate", "require_matching_certificate_algorithms"];

/// Reads the validity of a certificate. The caller's dialect decides whether an excessive `ttl` is capped or rejected.
fn validity(call: &Call) -> Result<RequestedValidity> {
    Ok(RequestedValidity { excessive_ttl: call.dialect.excessive_ttl(), ..request_fields::validity(&call.fields)? })
}

/// Parses a request to `issue` or `sign`. `key` reads the public key, or the parameters of the key pair to be
/// generated.
pub(super) fn leaf_request(
    call: &Call,
    key: impl FnOnce(&Fields) -> Result<RequestedSubjectKey>,
) -> Result<LeafRequest> {
    let fields = &call.fields;
    Ok(LeafRequest {
        role: call.param("name").to_owned(),
        validity: validity(call)?,
        names: request_fields::names(fields)?,
        key: key(fields)?,
        metadata: request_fields::metadata(fields)?,
    })
}

/// Parses a request to `sign-verbatim`. The path may name a role.
pub(super) fn verbatim_request(call: &Call) -> Result<VerbatimRequest> {
    let fields = &call.fields;
    Ok(VerbatimRequest {
        role: call.optional_param("name").map(str::to_owned),
        validity: validity(call)?,
        user_ids: request_fields::user_ids(fields)?,
        metadata: request_fields::metadata(fields)?,
        csr: request_fields::csr(fields)?,
        enforce_leaf_not_after_behavior: flag(fields, "enforce_leaf_not_after_behavior")?,
        signature: request_fields::signature(fields)?,
        usages: request_fields::usages(fields)?,
        basic_constraints_valid_for_non_ca: fields.bool("basic_constraints_valid_for_non_ca")?,
    })
}

pub(super) fn intermediate_request(call: &Call) -> Result<IntermediateRequest> {
    let fields = &call.fields;
    let validity = validity(call)?;
    let names = request_fields::names(fields)?;
    let csr = request_fields::csr(fields)?;
    let max_path_length = request_fields::max_path_length(fields)?;
    let names = if flag(fields, "use_csr_values")? {
        RequestedCaNames::FromCsr { other_sans: names.other_sans, ignored: overridden_fields(fields).collect() }
    } else {
        RequestedCaNames::Requested { names: Box::new(names), subject: Box::new(request_fields::subject(fields)?) }
    };
    Ok(IntermediateRequest {
        csr,
        names,
        validity,
        max_path_length,
        enforce_leaf_not_after_behavior: flag(fields, "enforce_leaf_not_after_behavior")?,
        not_before_duration: fields.duration("not_before_duration")?.unwrap_or(Duration::ZERO),
        constraints: request_fields::constraints(fields)?,
        key_id: read_skid(fields)?,
        usages: request_fields::usages(fields)?,
        signature: request_fields::signature(fields)?,
    })
}

/// Returns the names of the fields in the request that `use_csr_values` overrides. `other_sans` is not overridden.
fn overridden_fields(fields: &Fields) -> impl Iterator<Item = &'static str> {
    let names = request_fields::NAME_FIELDS
        .into_iter()
        .filter(|name| *name != "other_sans")
        .chain(request_fields::SUBJECT_FIELDS);
    names.filter(|name| fields.text(name).is_ok_and(|text| text.is_some_and(|text| !matches!(&*text, "" | "false"))))
}

/// Parses `skid`, the subject key identifier: hexadecimal bytes, with or without separators.
fn read_skid(fields: &Fields) -> Result<Option<Vec<u8>>> {
    let text = fields.text("skid")?.unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(|b| !b": -".contains(b)).collect();
    if digits.is_empty() {
        return Ok(None);
    }
    match parse_hex(&digits) {
        Some(octets) if octets.len() <= 64 => Ok(Some(octets)),
        _ => Err(Error::invalid("skid: must be at most 64 octets in hexadecimal digits")),
    }
}

pub(super) fn self_issued_request(call: &Call) -> Result<SelfIssuedRequest> {
    let fields = &call.fields;
    let certificate = parse_certificate(fields.str("certificate")?.unwrap_or_default())?;
    Ok(SelfIssuedRequest {
        warnings: ca_profile::profile_warnings(&certificate),
        certificate,
        require_matching_key_types: flag(fields, "require_matching_certificate_algorithms")?,
    })
}

fn parse_certificate(text: &str) -> Result<Certificate> {
    let refuse = |rule: &str| Err(Error::invalid(format!("certificate: {rule}")));
    if text.len() > pem::MAX_TEXT_BYTES {
        return refuse("longer than 64 KiB");
    }
    match pem::parse_first_block(text) {
        Ok(Some((label, der))) if label == "CERTIFICATE" => Certificate::parse_untrusted(&der),
        Ok(Some(_)) => refuse("the PEM block must be of type CERTIFICATE"),
        Ok(None) => refuse("must be a PEM block of type CERTIFICATE"),
        Err(error) => refuse(error.text()),
    }
}

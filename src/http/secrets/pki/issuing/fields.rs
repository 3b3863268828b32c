//! Parses requests of `issue` and the sign endpoints.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::http::secrets::pki::asked::{self, flag};
use crate::http::secrets::pki::rendering::PASSWORD;
use crate::http::secrets::route::Call;
use crate::http::secrets::route::joined;
use crate::pki::ca::readable;
use crate::pki::check::request::RequestedValidity;
use crate::pki::issue::request::{
    AuthorityNames, IntermediateRequest, IssueRequest, SelfIssuedRequest, SignRequest, VerbatimRequest,
};
use crate::x509::certificate::Certificate;
use crate::x509::pem;

/// Fields of `issue`.
pub(in crate::http::secrets::pki) const ISSUE: &[&str] = &[
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
    PASSWORD,
    "private_key_format",
    "exclude_cn_from_sans",
    "remove_roots_from_chain",
    "user_ids",
    "key_type",
    "key_bits",
    "cert_metadata",
];

/// Fields of `sign`.
pub(in crate::http::secrets::pki) const SIGN: &[&str] = &[
    "csr",
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
    "exclude_cn_from_sans",
    "remove_roots_from_chain",
    "user_ids",
    "cert_metadata",
];

/// Fields of `sign-verbatim`.
pub(in crate::http::secrets::pki) const VERBATIM: &[&str] = &[
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
pub(in crate::http::secrets::pki) const INTERMEDIATE: &[&str] = &joined::<38>(&[
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
    &asked::NAMES,
    &asked::CONSTRAINTS,
    &asked::SUBJECT,
]);

/// Fields of `sign-self-issued`.
pub(in crate::http::secrets::pki) const SELF_ISSUED: &[&str] =
    &["certificate", "require_matching_certificate_algorithms"];

/// Reads the validity of a certificate, with the caller's rule for an excessive `ttl`.
fn validity(call: &Call) -> Result<RequestedValidity> {
    Ok(RequestedValidity { excessive_ttl: call.dialect.excessive_ttl(), ..asked::validity(&call.fields)? })
}

pub(super) fn issue(call: &Call) -> Result<IssueRequest> {
    let fields = &call.fields;
    Ok(IssueRequest {
        role: call.param("name").to_owned(),
        validity: validity(call)?,
        names: asked::names(fields)?,
        key: asked::key(fields)?,
        metadata: asked::metadata(fields)?,
    })
}

pub(super) fn sign(call: &Call) -> Result<SignRequest> {
    let fields = &call.fields;
    Ok(SignRequest {
        role: call.param("name").to_owned(),
        validity: validity(call)?,
        names: asked::names(fields)?,
        metadata: asked::metadata(fields)?,
        csr: asked::csr(fields)?,
    })
}

/// Reads `sign-verbatim`. The path may contain a role.
pub(super) fn verbatim(call: &Call) -> Result<VerbatimRequest> {
    let fields = &call.fields;
    Ok(VerbatimRequest {
        role: Some(call.param("name")).filter(|name| !name.is_empty()).map(str::to_owned),
        validity: validity(call)?,
        user_ids: asked::user_ids(fields)?,
        metadata: asked::metadata(fields)?,
        csr: asked::csr(fields)?,
        enforce_leaf_not_after_behavior: flag(fields, "enforce_leaf_not_after_behavior")?,
        signature: asked::signature(fields)?,
        usages: asked::usages(fields)?,
        basic_constraints_valid_for_non_ca: fields.bool("basic_constraints_valid_for_non_ca")?,
    })
}

pub(super) fn intermediate(call: &Call) -> Result<IntermediateRequest> {
    let fields = &call.fields;
    let validity = validity(call)?;
    let names = asked::names(fields)?;
    let csr = asked::csr(fields)?;
    let max_path_length = asked::max_path_length(fields)?;
    let names = if flag(fields, "use_csr_values")? {
        AuthorityNames::OfCsr { other_sans: names.other_sans, ignored: overruled(fields).collect() }
    } else {
        AuthorityNames::Requested { names: Box::new(names), subject: Box::new(asked::subject(fields)?) }
    };
    Ok(IntermediateRequest {
        csr,
        names,
        validity,
        max_path_length,
        enforce_leaf_not_after_behavior: flag(fields, "enforce_leaf_not_after_behavior")?,
        not_before_duration: fields.duration("not_before_duration")?.unwrap_or(Duration::ZERO),
        constraints: asked::constraints(fields)?,
        key_id: skid(fields)?,
        usages: asked::usages(fields)?,
        signature: asked::signature(fields)?,
    })
}

/// Returns the given fields that `use_csr_values` overrides. `other_sans` is still used.
fn overruled(fields: &Fields) -> impl Iterator<Item = &'static str> {
    let names = asked::NAMES.into_iter().filter(|name| *name != "other_sans").chain(asked::SUBJECT);
    names.filter(|name| fields.text(name).is_ok_and(|text| text.is_some_and(|text| !matches!(&*text, "" | "false"))))
}

/// Parses `skid`: hexadecimal bytes, with or without separators.
fn skid(fields: &Fields) -> Result<Option<Vec<u8>>> {
    let text = fields.text("skid")?.unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(|b| !b": -".contains(b)).collect();
    if digits.is_empty() {
        return Ok(None);
    }
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let octets: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(value(*high)? << 4 | value(*low)?),
            _ => None,
        })
        .collect();
    match octets {
        Some(octets) if octets.len() <= 64 => Ok(Some(octets)),
        _ => Err(Error::invalid("skid: must be at most 64 octets in hexadecimal digits")),
    }
}

pub(super) fn self_issued(call: &Call) -> Result<SelfIssuedRequest> {
    let fields = &call.fields;
    let certificate = certificate(fields.str("certificate")?.unwrap_or_default())?;
    Ok(SelfIssuedRequest {
        warnings: readable::warnings(&certificate),
        certificate,
        matching_key_types: flag(fields, "require_matching_certificate_algorithms")?,
    })
}

fn certificate(text: &str) -> Result<Certificate> {
    let refuse = |rule: &str| Err(Error::invalid(format!("certificate: {rule}")));
    if text.len() > pem::MAX_TEXT {
        return refuse("longer than 64 KiB");
    }
    match pem::first(text) {
        Ok(Some((label, der))) if label == "CERTIFICATE" => Certificate::submitted(&der),
        Ok(Some(_)) => refuse("the PEM block must be a CERTIFICATE"),
        Ok(None) => refuse("must be a PEM block CERTIFICATE"),
        Err(error) => refuse(error.text()),
    }
}

//! Revocation: `revoke`, `revoke-with-key`. The request names the certificate by serial number, or contains it in PEM.

use serde_json::json;
use zeroize::Zeroizing;

use crate::clock::{format_rfc3339, parse_rfc3339};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::keys::local::PrivateKey;
use crate::pki::revocation::revoke::{
    self, CertificateRef, ReasonCode, RequestedReason, RevocationOutcome, RevocationRequest,
};
use crate::secret::Secret;
use crate::x509::certificate::Certificate;
use crate::x509::pem;
use crate::x509::serial::Serial;

pub(super) const FIELDS: &[&str] = &["serial_number", "certificate", "reason", "invalidity_date"];
/// Fields of `issuer/:issuer_ref/revoke`.
pub(super) const REVOKE_ISSUER_FIELDS: &[&str] = &["reason", "invalidity_date"];
/// Fields of `revoke-with-key`.
pub(super) const REVOKE_WITH_KEY_FIELDS: &[&str] =
    &["serial_number", "certificate", "private_key", "reason", "invalidity_date"];
/// Minimum length of a certificate in PEM, in bytes. A shorter text is usually a file name.
const MIN_CERTIFICATE_PEM_BYTES: usize = 75;
/// Minimum length of a private key in PEM, in bytes.
const MIN_PRIVATE_KEY_PEM_BYTES: usize = 64;

pub(super) async fn revoke(call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    revoke::revoke(&authority, read_revocation(&call.fields)?, call.requester_record()).await.map(render_outcome)
}

pub(super) async fn revoke_with_key(mut call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let private_key = call.fields.take_secret("private_key")?;
    let revocation = read_revocation(&call.fields)?;
    let other = revocation.why.reason.is_some_and(|reason| reason != ReasonCode::KeyCompromise);
    let warning =
        other.then(|| "reason: ignored; a revocation with the private key has the reason keyCompromise".to_owned());
    let proof = move || parse_private_key(private_key);
    let revoked =
        revoke::revoke_with_key(&authority, revocation, proof, call.requester_record()).await.map(render_outcome)?;
    Ok(revoked.with_warnings(warning))
}

fn read_revocation(fields: &Fields) -> Result<RevocationRequest> {
    let why = read_reason_and_date(fields)?;
    let certificate = match (fields.str("serial_number")?, fields.str("certificate")?) {
        (Some(_), Some(_)) | (None, None) => {
            return Err(Error::invalid("serial_number, certificate: exactly one of them must be given"));
        }
        (Some(text), None) => CertificateRef::Serial(Serial::parse(text)?),
        (None, Some(text)) => CertificateRef::Certificate(Box::new(parse_certificate(text)?)),
    };
    Ok(RevocationRequest { certificate, why })
}

pub(super) fn read_reason_and_date(fields: &Fields) -> Result<RequestedReason> {
    Ok(RequestedReason { reason: parse_reason(fields)?, invalidity_date: parse_invalidity_date(fields)? })
}

/// Parses the first certificate in a PEM text: the leaf of a chain or of a `pem_bundle`.
fn parse_certificate(text: &str) -> Result<Certificate> {
    if text.len() < MIN_CERTIFICATE_PEM_BYTES {
        return Err(Error::invalid("certificate: too short; was a path given instead of the certificate?"));
    }
    if text.len() > pem::MAX_TEXT_BYTES {
        return Err(Error::invalid("certificate: longer than 64 KiB"));
    }
    let named = |e: Error| Error::invalid(format!("certificate: {}", e.text().trim_start_matches("certificate: ")));
    // The text may contain a private key (`pem_bundle`), so the decoded blocks are overwritten on drop.
    let blocks = pem::parse_only_blocks(text).map_err(named)?;
    let blocks: Vec<_> = blocks.into_iter().map(|(label, content)| (label, Zeroizing::new(content))).collect();
    let certificate = blocks.iter().find(|(label, _)| label == "CERTIFICATE");
    let (_, der) =
        certificate.ok_or_else(|| Error::invalid("certificate: must contain a PEM block of type CERTIFICATE"))?;
    Certificate::parse_untrusted(der).map_err(named)
}

/// Parses the private key and checks its consistency, so that a forged key that has only the right public key is
/// rejected.
fn parse_private_key(text: Option<Secret>) -> Result<PrivateKey> {
    let refuse = |why: &str| Err(Error::invalid(format!("private_key: {why}")));
    let Some(text) = text else { return refuse("must be given") };
    let Ok(text) = std::str::from_utf8(text.expose()) else { return refuse("must be PEM") };
    if text.len() < MIN_PRIVATE_KEY_PEM_BYTES {
        return refuse("too short; was a path given instead of the key?");
    }
    if text.len() > pem::MAX_TEXT_BYTES {
        return refuse("longer than 64 KiB");
    }
    PrivateKey::from_pem(text).or_else(|error| refuse(error.text().trim_start_matches("private key: ")))
}

const REVOCATION_REASONS: [(&str, &str, Option<ReasonCode>); 7] = [
    ("unspecified", "0", None),
    ("keyCompromise", "1", Some(ReasonCode::KeyCompromise)),
    ("cACompromise", "2", Some(ReasonCode::CaCompromise)),
    ("affiliationChanged", "3", Some(ReasonCode::AffiliationChanged)),
    ("superseded", "4", Some(ReasonCode::Superseded)),
    ("cessationOfOperation", "5", Some(ReasonCode::CessationOfOperation)),
    ("privilegeWithdrawn", "9", Some(ReasonCode::PrivilegeWithdrawn)),
];

/// Returns the name of a stored reason code (RFC 5280 5.3.1).
pub(super) fn reason_name(code: Option<u8>) -> String {
    let number = code.unwrap_or_default().to_string();
    let named = REVOCATION_REASONS.iter().find(|(_, other, _)| *other == number);
    named.map_or(number.clone(), |(name, ..)| (*name).to_owned())
}

/// Reads the reason, by name or number; `None` for `unspecified`. Letter case and `_` in names are ignored, to accept
/// spellings such as `KEY_COMPROMISE`.
fn parse_reason(fields: &Fields) -> Result<Option<ReasonCode>> {
    let Some(text) = fields.text("reason")?.filter(|t| !t.is_empty()) else { return Ok(None) };
    let word = text.replace('_', "");
    let named = REVOCATION_REASONS.iter().find(|(name, number, _)| name.eq_ignore_ascii_case(&word) || *number == text);
    named.map(|(_, _, reason)| *reason).ok_or_else(|| Error::invalid(ReasonCode::RULE))
}

fn parse_invalidity_date(fields: &Fields) -> Result<Option<i64>> {
    let Some(text) = fields.text("invalidity_date")?.filter(|t| !t.is_empty()) else { return Ok(None) };
    parse_rfc3339("invalidity_date", &text).map(|t| Some(t.unix_timestamp()))
}

fn render_outcome(outcome: RevocationOutcome) -> HandlerResponse {
    match outcome {
        RevocationOutcome::Revoked { at, warnings } => HandlerResponse::data(json!({
            "revocation_time": at.unix_timestamp(),
            "revocation_time_rfc3339": format_rfc3339(at),
            "state": "revoked",
        }))
        .with_warnings(warnings),
        RevocationOutcome::Expired => {
            HandlerResponse::empty().with_warnings(["certificate already expired; not added to the CRL".to_owned()])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_named_by_word_or_number() {
        let read = |text: &str| {
            let mut fields = Fields::default();
            fields.set("reason", text);
            parse_reason(&fields)
        };
        for (name, number, reason) in REVOCATION_REASONS {
            for text in [name, number, &name.to_uppercase()] {
                assert_eq!(read(text).unwrap(), reason, "{text}");
            }
            assert_eq!(number, reason.map_or(0, ReasonCode::code).to_string());
        }
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("KEY_COMPROMISE").unwrap(), Some(ReasonCode::KeyCompromise));
        for other in ["certificateHold", "6", "removeFromCRL", "8", "10", "01"] {
            assert!(read(other).unwrap_err().text().starts_with("reason: must be"), "{other}");
        }
    }
}

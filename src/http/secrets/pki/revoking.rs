//! Revocation: `revoke`, `revoke-with-key`. The certificate is given by serial number or as PEM.

use serde_json::json;
use zeroize::Zeroizing;

use crate::clock::{parse_rfc3339, rfc3339};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::keys::local::PrivateKey;
use crate::pki::revocation::revoke::{self, Named, Outcome, Reason, Revocation, Why};
use crate::secret::Secret;
use crate::x509::certificate::Certificate;
use crate::x509::pem;
use crate::x509::serial::Serial;

pub(super) const FIELDS: &[&str] = &["serial_number", "certificate", "reason", "invalidity_date"];
/// Fields of `issuer/:issuer_ref/revoke`.
pub(super) const ISSUER_FIELDS: &[&str] = &["reason", "invalidity_date"];
/// Fields of `revoke-with-key`.
pub(super) const BY_KEY_FIELDS: &[&str] = &["serial_number", "certificate", "private_key", "reason", "invalidity_date"];
/// Minimum length of a PEM certificate. Shorter text is usually a file name.
const SHORTEST_PEM: usize = 75;
/// Minimum length of a PEM private key.
const SHORTEST_KEY: usize = 64;

pub(super) async fn revoke(call: Call) -> Result<Answer> {
    let authority = call.authority().await?;
    revoke::revoke(&authority, read(&call.fields)?, call.recorded_as()).await.map(revoked)
}

pub(super) async fn revoke_with_key(mut call: Call) -> Result<Answer> {
    let authority = call.authority().await?;
    let private_key = call.fields.take_secret("private_key")?;
    let revocation = read(&call.fields)?;
    let other = revocation.why.reason.is_some_and(|reason| reason != Reason::KeyCompromise);
    let warning = other.then(|| "reason: not used; a key that was shown is recorded as keyCompromise".to_owned());
    let proof = move || private_key_of(private_key);
    let revoked = revoke::revoke_with_key(&authority, revocation, proof, call.recorded_as()).await.map(revoked)?;
    Ok(revoked.with_warnings(warning))
}

fn read(fields: &Fields) -> Result<Revocation> {
    let why = why(fields)?;
    let certificate = match (fields.str("serial_number")?, fields.str("certificate")?) {
        (Some(_), Some(_)) | (None, None) => {
            return Err(Error::invalid("serial_number, certificate: exactly one of them must be given"));
        }
        (Some(text), None) => Named::Serial(Serial::parse(text)?),
        (None, Some(text)) => Named::Certificate(Box::new(certificate(text)?)),
    };
    Ok(Revocation { certificate, why })
}

pub(super) fn why(fields: &Fields) -> Result<Why> {
    Ok(Why { reason: reason(fields)?, invalidity_date: invalidity_date(fields)? })
}

/// Parses the first certificate of a text: the leaf of a chain or of a `pem_bundle`.
fn certificate(text: &str) -> Result<Certificate> {
    if text.len() < SHORTEST_PEM {
        return Err(Error::invalid("certificate: too short; was a path given instead of the certificate?"));
    }
    if text.len() > pem::MAX_TEXT {
        return Err(Error::invalid("certificate: longer than 64 KiB"));
    }
    let named = |e: Error| Error::invalid(format!("certificate: {}", e.text().trim_start_matches("certificate: ")));
    // The text may contain a private key (`pem_bundle`), so the decoded blocks are overwritten on drop.
    let blocks = pem::blocks_alone(text).map_err(named)?;
    let blocks: Vec<_> = blocks.into_iter().map(|(label, content)| (label, Zeroizing::new(content))).collect();
    let certificate = blocks.iter().find(|(label, _)| label == "CERTIFICATE");
    let (_, der) = certificate.ok_or_else(|| Error::invalid("certificate: must hold a PEM block CERTIFICATE"))?;
    Certificate::submitted(der).map_err(named)
}

/// Parses the private key and checks its consistency, so that a forged key with the right public part is rejected.
fn private_key_of(text: Option<Secret>) -> Result<PrivateKey> {
    let refuse = |why: &str| Err(Error::invalid(format!("private_key: {why}")));
    let Some(text) = text else { return refuse("must be given") };
    let Ok(text) = std::str::from_utf8(text.expose()) else { return refuse("must be PEM") };
    if text.len() < SHORTEST_KEY {
        return refuse("too short; was a path given instead of the key?");
    }
    if text.len() > pem::MAX_TEXT {
        return refuse("longer than 64 KiB");
    }
    PrivateKey::from_pem(text).or_else(|error| refuse(error.text().trim_start_matches("private key: ")))
}

const REASONS: [(&str, &str, Option<Reason>); 7] = [
    ("unspecified", "0", None),
    ("keyCompromise", "1", Some(Reason::KeyCompromise)),
    ("cACompromise", "2", Some(Reason::CaCompromise)),
    ("affiliationChanged", "3", Some(Reason::AffiliationChanged)),
    ("superseded", "4", Some(Reason::Superseded)),
    ("cessationOfOperation", "5", Some(Reason::CessationOfOperation)),
    ("privilegeWithdrawn", "9", Some(Reason::PrivilegeWithdrawn)),
];

/// Returns the name of a stored reason (RFC 5280 5.3.1).
pub(super) fn reason_word(code: Option<u8>) -> String {
    let number = code.unwrap_or_default().to_string();
    let named = REASONS.iter().find(|(_, other, _)| *other == number);
    named.map_or(number.clone(), |(name, ..)| (*name).to_owned())
}

/// Reads the reason by name or number; `unspecified` is `None`. Letter case and `_` in names are ignored, for other
/// spellings such as `KEY_COMPROMISE`.
fn reason(fields: &Fields) -> Result<Option<Reason>> {
    let Some(text) = fields.text("reason")?.filter(|t| !t.is_empty()) else { return Ok(None) };
    let word = text.replace('_', "");
    let named = REASONS.iter().find(|(name, number, _)| name.eq_ignore_ascii_case(&word) || *number == text);
    named.map(|(_, _, reason)| *reason).ok_or_else(|| Error::invalid(Reason::RULE))
}

fn invalidity_date(fields: &Fields) -> Result<Option<i64>> {
    let Some(text) = fields.text("invalidity_date")?.filter(|t| !t.is_empty()) else { return Ok(None) };
    parse_rfc3339("invalidity_date", &text).map(|t| Some(t.unix_timestamp()))
}

fn revoked(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Revoked { at, warnings } => Answer::data(json!({
            "revocation_time": at.unix_timestamp(),
            "revocation_time_rfc3339": rfc3339(at),
            "state": "revoked",
        }))
        .with_warnings(warnings),
        Outcome::Expired => {
            Answer::empty().with_warnings(["certificate already expired; not added to the CRL".to_owned()])
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
            reason(&fields)
        };
        for (name, number, reason) in REASONS {
            for text in [name, number, &name.to_uppercase()] {
                assert_eq!(read(text).unwrap(), reason, "{text}");
            }
            assert_eq!(number, reason.map_or(0, Reason::code).to_string());
        }
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("KEY_COMPROMISE").unwrap(), Some(Reason::KeyCompromise));
        for other in ["certificateHold", "6", "removeFromCRL", "8", "10", "01"] {
            assert!(read(other).unwrap_err().text().starts_with("reason: must be"), "{other}");
        }
    }
}

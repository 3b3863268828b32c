//! Rendering of issued certificates: PEM, DER and bundles, as JSON text.

use base64::Engine as _;
use serde::Serialize;
use serde_json::value::RawValue;

use super::release::Released;
use super::request::{Format, IssueRequest, PrivateKeyFormat};
use super::view::Signer;
use crate::error::{Error, Result};
use crate::keys::local::PrivateKey;
use crate::x509::pem;

#[derive(Serialize)]
struct IssuedData<'a> {
    /// The issuer's key identifier, as the certificate has it.
    authority_key_id: &'a str,
    ca_chain: &'a RawValue,
    certificate: &'a str,
    /// Epoch seconds, as text.
    expiration: String,
    issuing_ca: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private_key_type: Option<&'static str>,
    serial_number: String,
}

/// The `data` of an issue or sign answer; with a key it is an issue answer.
///
/// # Errors
/// `Internal` when the key cannot be encoded.
pub(super) fn issued(
    signer: &Signer,
    request: &IssueRequest,
    released: &Released,
    key: Option<&PrivateKey>,
) -> Result<String> {
    let pieces = signer.pieces()?;
    let texts = if request.format == Format::Der { &pieces.der } else { &pieces.pem };
    let key_text = key.map(|key| key_text(key, request.format, request.private_key_format)).transpose()?;
    let certificate = match request.format {
        Format::Pem => pem::encode("CERTIFICATE", &released.der),
        Format::Der => base64::engine::general_purpose::STANDARD.encode(&released.der),
        Format::PemBundle => bundle(key, &released.der, &pieces.pem.bundle_tail)?,
    };
    let data = IssuedData {
        authority_key_id: &pieces.key_id_text,
        ca_chain: if request.remove_roots_from_chain { &texts.ca_chain_without_roots } else { &texts.ca_chain },
        certificate: &certificate,
        expiration: released.not_after.to_string(),
        issuing_ca: &texts.issuing_ca,
        private_key: key_text.as_deref(),
        private_key_type: key.map(|key| key.kind().name()),
        serial_number: released.serial.to_string(),
    };
    serde_json::to_string(&data).map_err(Error::internal)
}

/// The `data` of a sign-intermediate answer: as of a leaf, but the chain begins with the new certificate.
///
/// # Errors
/// `Internal` when it cannot be rendered.
pub(super) fn issued_authority(signer: &Signer, request: &IssueRequest, released: &Released) -> Result<String> {
    let mut data: serde_json::Value =
        serde_json::from_str(&issued(signer, request, released, None)?).map_err(Error::internal)?;
    let own = match request.format {
        Format::Der => base64::engine::general_purpose::STANDARD.encode(&released.der),
        Format::Pem | Format::PemBundle => pem::encode("CERTIFICATE", &released.der),
    };
    if let Some(chain) = data["ca_chain"].as_array_mut() {
        chain.insert(0, own.into());
    }
    Ok(data.to_string())
}

/// The separate `private_key` member.
///
/// # Errors
/// `Internal` when the key cannot be encoded.
pub(super) fn key_text(key: &PrivateKey, format: Format, key_format: PrivateKeyFormat) -> Result<String> {
    let (label, der) = match key_format {
        PrivateKeyFormat::Traditional => key.traditional()?,
        PrivateKeyFormat::Pkcs8 => ("PRIVATE KEY", key.to_pkcs8()?),
    };
    Ok(match format {
        Format::Der => base64::engine::general_purpose::STANDARD.encode(der.expose()),
        Format::Pem | Format::PemBundle => pem::encode(label, der.expose()),
    })
}

/// `pem_bundle`: key (always in its traditional form), certificate, chain without self-signed certificates.
pub(super) fn bundle(key: Option<&PrivateKey>, der: &[u8], tail: &str) -> Result<String> {
    let certificate = pem::encode("CERTIFICATE", der);
    let Some(key) = key else { return Ok(certificate + tail) };
    let key = key_text(key, Format::PemBundle, PrivateKeyFormat::Traditional)?;
    Ok(format!("{key}\n{certificate}{tail}"))
}

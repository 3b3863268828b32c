//! Renders certificates and keys in JSON members: PEM, DER, bundles and PKCS #12. The
//! [dialect](crate::http::secrets::dialect) adds dates in the types that the client expects. A private key stays in a
//! [`Secret`] until it is written into the response.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::http::secrets::dialect::Dialect;
use crate::http::secrets::json_object::JsonObjectBuilder;
use crate::keys::local::PrivateKey;
use crate::pki::ca::key::CaKeyInfo;
use crate::pki::issue::issued::IssuedCertificate;
use crate::pki::mount::issuer::Issuer;
use crate::pki::mount::profile::{EncodedIssuerParts, certificate_pem};
use crate::rationing::cpu;
use crate::secret::{PartlySecret, Secret};
use crate::x509::certificate::Certificate;
use crate::x509::pem;
use crate::x509::pkcs12::{Pkcs12Entry, Pkcs12Keys, WrittenPassword};

/// Field that contains the password of a PKCS #12 file.
pub(super) const PASSWORD_FIELD: &str = "password";
/// Estimated size of a response without its certificates and keys, in bytes.
const ENVELOPE_BYTES: usize = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CertificateFormat {
    #[default]
    Pem,
    /// DER in standard base64.
    Der,
    /// PEM. The `certificate` member also contains the private key and the chain.
    PemBundle,
    /// PEM, and a PKCS #12 file with private key, certificate and chain in the member `p12`. No other member contains
    /// the key.
    Pkcs12,
}

impl CertificateFormat {
    /// Encodes DER as the text of a JSON member.
    pub(super) fn encode(self, label: &str, der: &[u8]) -> String {
        match self {
            Self::Der => STANDARD.encode(der),
            Self::Pem | Self::PemBundle | Self::Pkcs12 => pem::encode(label, der),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PrivateKeyFormat {
    /// PKCS#1 or SEC1; PKCS#8 for key types that have neither form.
    #[default]
    Traditional,
    Pkcs8,
}

#[derive(Clone, Default)]
pub(super) struct CertificateRendering {
    pub(super) format: CertificateFormat,
    pub(super) private_key_format: PrivateKeyFormat,
    /// `true` to omit self-signed certificates from `ca_chain`.
    remove_roots_from_chain: bool,
    /// The keys that encrypt the requested PKCS #12 file; `None` for other formats.
    protection: Option<Arc<Pkcs12Keys>>,
}

impl CertificateRendering {
    /// Reads `format`, `private_key_format` and `remove_roots_from_chain`. The format `p12` is rejected.
    ///
    /// # Errors
    /// `Invalid` naming the field.
    pub(super) fn of(fields: &Fields) -> Result<Self> {
        Self::read(fields, "must be pem, der or pem_bundle", || {
            Err(Error::invalid("format: p12 is supported by issue only"))
        })
    }

    /// As [`CertificateRendering::of`], but accepts the format `p12`.
    ///
    /// # Errors
    /// As [`CertificateRendering::of`].
    pub(super) fn of_issue(fields: &Fields) -> Result<Self> {
        Self::read(fields, "must be pem, der, pem_bundle or p12", || Ok(CertificateFormat::Pkcs12))
    }

    /// Reads the fields of a rendering. `rule` is the error text for an unknown format. For `p12`, the function
    /// `pkcs12` returns the format or an error.
    fn read(fields: &Fields, rule: &str, pkcs12: fn() -> Result<CertificateFormat>) -> Result<Self> {
        let format = match fields.text("format")?.as_deref() {
            None | Some("pem") => CertificateFormat::Pem,
            Some("der") => CertificateFormat::Der,
            Some("pem_bundle") => CertificateFormat::PemBundle,
            Some("p12") => pkcs12()?,
            Some(_) => return Err(Error::invalid(format!("format: {rule}"))),
        };
        let private_key_format = match fields.text("private_key_format")?.as_deref() {
            None | Some("" | "der" | "pem") => PrivateKeyFormat::Traditional,
            Some("pkcs8") => PrivateKeyFormat::Pkcs8,
            Some(_) => return Err(Error::invalid("private_key_format: must be der, pem or pkcs8")),
        };
        let remove_roots_from_chain = fields.bool("remove_roots_from_chain")?.unwrap_or_default();
        Ok(Self { format, private_key_format, remove_roots_from_chain, protection: None })
    }

    /// Derives the keys that encrypt a PKCS #12 file from the request's `password`, in the CPU queue.
    ///
    /// # Errors
    /// `Invalid` for a missing or invalid password, and for a password without format `p12`; `Busy` when the queue of
    /// the caller is full.
    pub(super) async fn derive_p12_keys(self, password: Option<Secret>) -> Result<Self> {
        match (self.format, password) {
            (CertificateFormat::Pkcs12, Some(password)) => {
                let password = WrittenPassword::new("password", password.expose())?;
                let protection = cpu::run(move || Pkcs12Keys::derive(&password)).await??;
                Ok(Self { protection: Some(Arc::new(protection)), ..self })
            }
            (CertificateFormat::Pkcs12, None) => Err(Error::invalid("password: must be given with format p12")),
            (_, Some(_)) => Err(Error::invalid("password: is allowed only with format p12")),
            (_, None) => Ok(self),
        }
    }
}

/// Response members that depend only on the issuer's chain. They are rendered once and cached with the chain.
struct IssuerTexts {
    authority_key_id: String,
    pem: ChainTexts,
    der: ChainTexts,
    /// The last part of a `pem_bundle`: the certificates of the chain, without self-signed ones. A line feed precedes
    /// each certificate.
    bundle_tail: String,
}

struct ChainTexts {
    issuing_ca: Box<RawValue>,
    ca_chain: Box<RawValue>,
    ca_chain_without_roots: Box<RawValue>,
}

impl IssuerTexts {
    /// Returns the texts of the chain that the issuer serves at the time of issuance. They are rendered on first use.
    fn of(issued: &IssuedCertificate) -> Result<&Self> {
        let signer = &issued.signer;
        let issuer_parts = issued.signer.encoded_parts()?;
        let path = signer.paths.served_at(issued.issued_at).ok_or_else(|| missing_chain_error(issued))?;
        Ok(path.rendered_chain.get(|| Self::new(&path.served, issuer_parts)))
    }

    fn new(chain: &[Arc<Issuer>], issuer_parts: &EncodedIssuerParts) -> Self {
        let tail = chain.iter().filter(|issuer| !issuer.self_signed);
        Self {
            authority_key_id: colon_hex(&issuer_parts.key_id),
            pem: ChainTexts::new(chain, certificate_pem),
            der: ChainTexts::new(chain, |issuer| STANDARD.encode(issuer.certificate.der())),
            bundle_tail: tail.map(|issuer| format!("\n{}", certificate_pem(issuer))).collect(),
        }
    }
}

impl ChainTexts {
    fn new(chain: &[Arc<Issuer>], text: fn(&Issuer) -> String) -> Self {
        let texts = |issuers: &mut dyn Iterator<Item = &Arc<Issuer>>| issuers.map(|i| text(i)).collect::<Vec<_>>();
        let all = texts(&mut chain.iter());
        Self {
            issuing_ca: raw_json(&all.first()),
            ca_chain_without_roots: raw_json(&texts(&mut chain.iter().filter(|issuer| !issuer.self_signed))),
            ca_chain: raw_json(&all),
        }
    }
}

fn raw_json(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("strings and lists of strings always serialize")
}

/// Formats a key identifier as hexadecimal bytes, separated by colons.
pub(super) fn colon_hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":")
}

/// Renders the `data` of a response with a certificate, without its dates. If `in_chain` is set, `ca_chain` begins with
/// the new certificate, as sign-intermediate requires.
///
/// # Errors
/// `Internal` when a member cannot be rendered, for example because a key cannot be encoded.
pub(super) fn render_certificate(
    issued: &IssuedCertificate,
    rendering: &CertificateRendering,
    in_chain: bool,
) -> Result<PartlySecret> {
    let &CertificateRendering { format, private_key_format, remove_roots_from_chain, ref protection } = rendering;
    let issuer = IssuerTexts::of(issued)?;
    let texts = if format == CertificateFormat::Der { &issuer.der } else { &issuer.pem };
    let ca_chain = if remove_roots_from_chain { &texts.ca_chain_without_roots } else { &texts.ca_chain };
    let key = issued.key.as_deref();
    let key_text = key.map(|key| key_text(key, format, private_key_format)).transpose()?;
    let text_bytes = ca_chain.get().len() + texts.issuing_ca.get().len() + 2 * issued.der.len();
    let mut data = JsonObjectBuilder::with_capacity(
        ENVELOPE_BYTES + text_bytes + key_text.as_ref().map_or(0, |key| key.expose().len()),
    );
    data.add("authority_key_id", &issuer.authority_key_id);
    let mut text = format.encode("CERTIFICATE", &issued.der);
    if in_chain {
        data.add_list_with_first("ca_chain", &text, ca_chain);
    } else {
        data.add("ca_chain", ca_chain);
    }
    if format == CertificateFormat::PemBundle {
        text += &issuer.bundle_tail;
    }
    match key {
        Some(key) if format == CertificateFormat::PemBundle => {
            data.add_secret("certificate", &pem_bundle(key, &text)?)?
        }
        _ => data.add("certificate", &text),
    }
    data.add("issuing_ca", &texts.issuing_ca);
    match (key.zip(key_text), protection) {
        (Some((key, _)), Some(protection)) => {
            data.add("p12", &STANDARD.encode(encode_pkcs12(issued, key, protection, remove_roots_from_chain)?));
            data.add("private_key_type", key.kind().name());
        }
        (Some((key, text)), None) => {
            data.add_secret("private_key", &text)?;
            data.add("private_key_type", key.kind().name());
        }
        (None, _) => {}
    }
    data.add("serial_number", &issued.serial.to_string());
    Ok(data.finish())
}

/// Returns the error for an issuer that has no certificate chain at the time of issuance.
fn missing_chain_error(issued: &IssuedCertificate) -> Error {
    Error::internal(format!("issuer {}: no certificate chain is known", issued.signer.issuer.record.id))
}

/// Encodes private key, certificate and chain as a PKCS #12 file. The common name of the certificate names the key in
/// the file.
fn encode_pkcs12(
    issued: &IssuedCertificate,
    key: &PrivateKey,
    protection: &Pkcs12Keys,
    without_roots: bool,
) -> Result<Vec<u8>> {
    let path = issued.signer.paths.served_at(issued.issued_at).ok_or_else(|| missing_chain_error(issued))?;
    let chain = path.served.iter().filter(|issuer| !(without_roots && issuer.self_signed));
    let chain = chain.map(|issuer| issuer.certificate.der());
    let certificates: Vec<_> = [issued.der.as_ref()].into_iter().chain(chain).collect();
    let name = Certificate::parse(&issued.der)?.common_name();
    let private_key = key.to_pkcs8()?;
    protection.encode(&Pkcs12Entry { name: &name, private_key: private_key.expose(), certificates: &certificates })
}

pub(super) fn render_self_issued(issued: &IssuedCertificate, dialect: Dialect) -> Value {
    json!({
        "certificate": pem::encode("CERTIFICATE", &issued.der),
        "issuing_ca": certificate_pem(&issued.signer.issuer),
        "renew_after": dialect.render_date(issued.renew_after),
    })
}

/// Adds a certificate or CSR in the requested format. In a `pem_bundle`, the exported private key precedes it.
///
/// # Errors
/// `Internal` when the key cannot be encoded.
pub(super) fn add_der(
    data: &mut JsonObjectBuilder,
    member: &str,
    (label, der): (&str, &[u8]),
    key: &CaKeyInfo,
    format: CertificateFormat,
) -> Result<()> {
    let text = format.encode(label, der);
    match (format, &key.exported) {
        (CertificateFormat::PemBundle, Some(key)) => data.add_secret(member, &pem_bundle(key, &text)?)?,
        _ => data.add(member, &text),
    }
    Ok(())
}

/// Adds `key_id` and `key_name`; for an exported private key also `private_key` and `private_key_type`.
///
/// # Errors
/// `Internal` when the key cannot be encoded.
pub(super) fn add_key(data: &mut JsonObjectBuilder, key: &CaKeyInfo, rendering: &CertificateRendering) -> Result<()> {
    data.add("key_id", &key.id);
    data.add("key_name", &key.name);
    if let Some(private) = &key.exported {
        data.add_secret("private_key", &key_text(private, rendering.format, rendering.private_key_format)?)?;
        data.add("private_key_type", key.kind.name());
    }
    Ok(())
}

/// Encodes a private key for the `private_key` member.
///
/// # Errors
/// `Internal` when the key cannot be encoded.
fn key_text(key: &PrivateKey, format: CertificateFormat, key_format: PrivateKeyFormat) -> Result<Secret> {
    let (label, der) = match key_format {
        PrivateKeyFormat::Traditional => key.to_traditional_form()?,
        PrivateKeyFormat::Pkcs8 => ("PRIVATE KEY", key.to_pkcs8()?),
    };
    // Both encoders allocate the full length first, so that no reallocation leaves a copy of the key in memory.
    Ok(Secret::new(format.encode(label, der.expose())))
}

/// Encodes a `pem_bundle`: a private key in its traditional form, followed by the PEM certificates in `text`.
///
/// # Errors
/// `Internal` when the key cannot be encoded.
fn pem_bundle(key: &PrivateKey, text: &str) -> Result<Secret> {
    let key = key_text(key, CertificateFormat::PemBundle, PrivateKeyFormat::Traditional)?;
    let mut both = Vec::with_capacity(key.expose().len() + 1 + text.len());
    both.extend_from_slice(key.expose());
    both.push(b'\n');
    both.extend_from_slice(text.as_bytes());
    Ok(Secret::new(both))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::MountId;
    use crate::keys::local::KeySpec;
    use crate::pki::mount::issuer::{IssuerRecord, IssuerUsage};
    use crate::pki::mount::view::MountView;
    use crate::x509::serial::Serial;
    use crate::x509::testing;

    /// Returns a mount with one issuer, named `a`.
    fn mount_with_issuer(der: &[u8]) -> MountView {
        let mut view = MountView::empty(MountId(1));
        let record = IssuerRecord {
            id: "a".to_owned(),
            name: String::new(),
            key_id: String::new(),
            certificate: STANDARD.encode(der),
            manual_chain: Vec::new(),
            leaf_not_after_behavior: Default::default(),
            usage: IssuerUsage::ALL,
            revocation_signature_algorithm: String::new(),
            urls: Default::default(),
            revoked_at: None,
            revoked_for: Default::default(),
            crl_number: 0,
            modified_at: 0,
            signatures: Default::default(),
            authority: None,
        };
        view.put_issuer(record).unwrap();
        view
    }

    fn certificate(view: &MountView, der: &[u8], key: Option<&Arc<PrivateKey>>) -> IssuedCertificate {
        IssuedCertificate {
            der: der.to_vec(),
            serial: Serial::random(),
            not_before: 0,
            not_after: 1,
            renew_after: 0,
            issued_at: 0,
            repeated: false,
            signer: Arc::clone(view.signer("a").unwrap()),
            key: key.cloned(),
            warnings: crate::error::Warnings::default(),
            lease: None,
        }
    }

    fn rendering(body: Value) -> Result<CertificateRendering> {
        CertificateRendering::of(&Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn format_is_case_sensitive_and_empty_text_is_an_error() {
        assert_eq!(rendering(json!({})).unwrap().format, CertificateFormat::Pem);
        assert_eq!(rendering(json!({"format": null})).unwrap().format, CertificateFormat::Pem);
        for (word, format) in [
            ("pem", CertificateFormat::Pem),
            ("der", CertificateFormat::Der),
            ("pem_bundle", CertificateFormat::PemBundle),
        ] {
            assert_eq!(rendering(json!({"format": word})).unwrap().format, format);
        }
        for word in ["", "PEM", "pkcs12", " pem"] {
            assert!(rendering(json!({"format": word})).err().unwrap().text().starts_with("format: "), "{word}");
        }
    }

    #[test]
    fn private_key_format_is_der_pem_or_pkcs8() {
        for word in ["", "der", "pem"] {
            let format = rendering(json!({"private_key_format": word})).unwrap().private_key_format;
            assert_eq!(format, PrivateKeyFormat::Traditional);
        }
        let format = rendering(json!({"private_key_format": "pkcs8"})).unwrap().private_key_format;
        assert_eq!(format, PrivateKeyFormat::Pkcs8);
        assert!(rendering(json!({"private_key_format": "PKCS8"})).is_err());
    }

    #[test]
    fn ca_chain_of_an_authority_begins_with_its_certificate() {
        let (_, root) = testing::root("ec", 256);
        let issued = certificate(&mount_with_issuer(root.der()), root.der(), None);
        let pem = pem::encode("CERTIFICATE", root.der());
        for (without_roots, chain) in [(false, json!([pem, pem])), (true, json!([pem]))] {
            let rendering =
                CertificateRendering { remove_roots_from_chain: without_roots, ..CertificateRendering::default() };
            let answer = render_certificate(&issued, &rendering, true).unwrap();
            let shown: Value = serde_json::from_slice(answer.expose()).unwrap();
            assert_eq!((&shown["ca_chain"], &shown["certificate"]), (&chain, &json!(pem)));
            let leaf: Value =
                serde_json::from_slice(render_certificate(&issued, &rendering, false).unwrap().expose()).unwrap();
            assert_eq!(leaf["ca_chain"], json!(chain.as_array().unwrap()[1..]));
        }
    }

    /// Returns base64 characters from the middle of a key's PEM. They differ from those of all other keys.
    fn middle_of_base64(text: &str) -> String {
        let base64: String = text.lines().filter(|line| !line.starts_with('-')).collect();
        base64[base64.len() / 2 - 12..base64.len() / 2 + 12].to_owned()
    }

    #[test]
    fn private_key_of_a_response_is_wiped_in_every_format() {
        let (_, root) = testing::root("ec", 256);
        let view = mount_with_issuer(root.der());
        for (key_type, bits) in [("ec", 256), ("ec", 224), ("ed25519", 0), ("rsa", 2048)] {
            let key = Arc::new(PrivateKey::generate(KeySpec::new(key_type, bits).unwrap()).unwrap());
            for (format, key_format) in ["pem", "der", "pem_bundle"].into_iter().zip(["der", "pkcs8", "der"]) {
                let mut fields = Fields::default();
                fields.set("format", format);
                fields.set("private_key_format", key_format);
                let rendering = CertificateRendering::of(&fields).unwrap();
                let answer =
                    render_certificate(&certificate(&view, root.der(), Some(&key)), &rendering, false).unwrap();
                let shown: Value = serde_json::from_slice(answer.expose()).unwrap();
                let text = key_text(&key, rendering.format, rendering.private_key_format).unwrap();
                assert!(shown["private_key"] == text.expose_text().unwrap(), "{key_type} {format}");
                assert_eq!(shown["private_key_type"], json!(key_type));
                let bundled = shown["certificate"].as_str().unwrap().contains("PRIVATE KEY");
                assert_eq!(bundled, format == "pem_bundle");
                // These characters may span two lines of PEM, so line ends are removed before the search.
                let core = middle_of_base64(text.expose_text().unwrap());
                let found = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\\n", "").contains(&core);
                assert!(found(answer.expose()));
                let remains = answer.into_wiped_bytes();
                assert!(!found(&remains), "{key_type} {format}");
                assert!(String::from_utf8_lossy(&remains).contains("ca_chain"), "only secrets are overwritten");
            }
        }
    }
}

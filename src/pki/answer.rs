//! Rendering of issued certificates: PEM, DER and bundles, as JSON text. Their dates are added by the wire,
//! which knows the type that the caller reads. A private key in it is a secret until the text is written into
//! the answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::release::Released;
use super::request::{Format, IssueRequest, PrivateKeyFormat};
use super::view::Signer;
use crate::error::{Error, Result};
use crate::keys::local::PrivateKey;
use crate::secret::{PartlySecret, Secret};
use crate::x509::pem;

/// Octets of an answer beside its certificates and keys.
const FRAME: usize = 512;

/// The `data` of an answer in the making: a JSON object.
#[derive(Default)]
pub(super) struct Data(PartlySecret);

impl Data {
    /// Without members, with room for `octets` of them.
    pub(super) fn with_capacity(octets: usize) -> Self {
        Self(PartlySecret::with_capacity(octets))
    }

    /// Adds a member.
    pub(super) fn add(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) {
        self.name(name);
        json(&mut self.0, value);
    }

    /// Adds a secret text.
    ///
    /// # Errors
    /// `Internal` when it is not text.
    pub(super) fn add_secret(&mut self, name: &'static str, value: &Secret) -> Result<()> {
        let text = value.expose_text().ok_or_else(|| Error::internal("a private key that is not text"))?;
        self.name(name);
        self.0.secretly(|out| json(out, text));
        Ok(())
    }

    fn name(&mut self, name: &'static str) {
        self.0.push(if self.0.is_empty() { b"{" } else { b"," });
        json(&mut self.0, name);
        self.0.push(b":");
    }

    /// The text of the object.
    pub(super) fn finish(mut self) -> PartlySecret {
        self.0.push(if self.0.is_empty() { b"{}" } else { b"}" });
        self.0
    }
}

/// Appends `value` as JSON. Values here have text keys only and the writer is memory: this cannot fail.
fn json(out: &mut PartlySecret, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).unwrap_or_default();
}

/// The `data` of an issue or sign answer, without its dates; with a key it is an issue answer.
///
/// # Errors
/// `Internal` when the key cannot be encoded.
pub(super) fn issued(
    signer: &Signer,
    request: &IssueRequest,
    released: &Released,
    key: Option<&PrivateKey>,
) -> Result<PartlySecret> {
    let pieces = signer.pieces()?;
    let texts = if request.format == Format::Der { &pieces.der } else { &pieces.pem };
    let ca_chain = if request.remove_roots_from_chain { &texts.ca_chain_without_roots } else { &texts.ca_chain };
    let key_text = key.map(|key| key_text(key, request.format, request.private_key_format)).transpose()?;
    let known = ca_chain.get().len() + texts.issuing_ca.get().len() + 2 * released.der.len();
    let mut data = Data::with_capacity(FRAME + known + key_text.as_ref().map_or(0, |key| key.expose().len()));
    data.add("authority_key_id", &pieces.key_id_text);
    data.add("ca_chain", ca_chain);
    match (request.format, key) {
        (Format::Pem, _) => data.add("certificate", &pem::encode("CERTIFICATE", &released.der)),
        (Format::Der, _) => data.add("certificate", &STANDARD.encode(&released.der)),
        (Format::PemBundle, Some(key)) => {
            let tail = &pieces.pem.bundle_tail;
            data.add_secret("certificate", &beside(key, &(pem::encode("CERTIFICATE", &released.der) + tail))?)?;
        }
        (Format::PemBundle, None) => {
            data.add("certificate", &(pem::encode("CERTIFICATE", &released.der) + &pieces.pem.bundle_tail));
        }
    }
    data.add("issuing_ca", &texts.issuing_ca);
    if let Some((key, text)) = key.zip(key_text) {
        data.add_secret("private_key", &text)?;
        data.add("private_key_type", key.kind().name());
    }
    data.add("serial_number", &released.serial.to_string());
    Ok(data.finish())
}

/// The `data` of a sign-intermediate answer: as of a leaf, but the chain begins with the new certificate.
///
/// # Errors
/// `Internal` when it cannot be rendered.
pub(super) fn issued_authority(signer: &Signer, request: &IssueRequest, released: &Released) -> Result<PartlySecret> {
    let issued = issued(signer, request, released, None)?;
    let mut data: serde_json::Value = serde_json::from_slice(issued.expose()).map_err(Error::internal)?;
    let own = match request.format {
        Format::Der => STANDARD.encode(&released.der),
        Format::Pem | Format::PemBundle => pem::encode("CERTIFICATE", &released.der),
    };
    if let Some(chain) = data["ca_chain"].as_array_mut() {
        chain.insert(0, own.into());
    }
    Ok(data.to_string().into())
}

/// The separate `private_key` member.
///
/// # Errors
/// `Internal` when the key cannot be encoded.
pub(super) fn key_text(key: &PrivateKey, format: Format, key_format: PrivateKeyFormat) -> Result<Secret> {
    let (label, der) = match key_format {
        PrivateKeyFormat::Traditional => key.traditional()?,
        PrivateKeyFormat::Pkcs8 => ("PRIVATE KEY", key.to_pkcs8()?),
    };
    // Both encoders know their length beforehand: no part is left behind where they grew.
    Ok(Secret::new(match format {
        Format::Der => STANDARD.encode(der.expose()),
        Format::Pem | Format::PemBundle => pem::encode(label, der.expose()),
    }))
}

/// What a `pem_bundle` holds: a key (always in its traditional form), and the PEM text that follows it.
///
/// # Errors
/// `Internal` when the key cannot be encoded.
pub(super) fn beside(key: &PrivateKey, text: &str) -> Result<Secret> {
    let key = key_text(key, Format::PemBundle, PrivateKeyFormat::Traditional)?;
    let mut both = Vec::with_capacity(key.expose().len() + 1 + text.len());
    both.extend_from_slice(key.expose());
    both.push(b'\n');
    both.extend_from_slice(text.as_bytes());
    Ok(Secret::new(both))
}

#[cfg(test)]
mod tests {
    use crate::pki::issue::Dates;
    use serde_json::{Value, json};

    use super::*;
    use crate::documents::MountId;
    use crate::fields::Fields;
    use crate::keys::local::KeySpec;
    use crate::pki::issuer::{IssuerRecord, Usage};
    use crate::pki::view::View;
    use crate::x509::serial::Serial;
    use crate::x509::testing;

    /// A mount with one issuer, called `a`.
    fn mount(der: &[u8]) -> View {
        let mut view = View::empty(MountId(1));
        let record = IssuerRecord {
            id: "a".to_owned(),
            name: String::new(),
            key_id: String::new(),
            certificate: STANDARD.encode(der),
            manual_chain: Vec::new(),
            leaf_not_after_behavior: Default::default(),
            usage: Usage::ALL,
            revocation_signature_algorithm: String::new(),
            urls: Default::default(),
            revoked_at: None,
            modified_at: 0,
        };
        view.put_issuer(record).unwrap();
        view
    }

    /// The characters in the middle of a key, which is where it is most its own.
    fn core(text: &str) -> String {
        let base64: String = text.lines().filter(|line| !line.starts_with('-')).collect();
        base64[base64.len() / 2 - 12..base64.len() / 2 + 12].to_owned()
    }

    #[test]
    fn the_private_key_of_an_answer_is_overwritten_with_it_in_every_form() {
        let (_, root) = testing::root("ec", 256);
        let view = mount(root.der());
        let signer = view.signer("a").unwrap();
        for (key_type, bits) in [("ec", 256), ("ec", 224), ("ed25519", 0), ("rsa", 2048)] {
            let key = PrivateKey::generate(KeySpec::new(key_type, bits).unwrap()).unwrap();
            for (format, key_format) in ["pem", "der", "pem_bundle"].into_iter().zip(["der", "pkcs8", "der"]) {
                let mut fields = Fields::default();
                fields.set("format", format);
                fields.set("private_key_format", key_format);
                let request = IssueRequest::rendering(&fields).unwrap();
                let dates = Dates { not_before: None, expiration: 1 };
                let released = Released { der: root.der().to_vec(), serial: Serial::random(), dates, lease: None };
                let answer = issued(signer, &request, &released, Some(&key)).unwrap();
                let shown: Value = serde_json::from_slice(answer.expose()).unwrap();
                let text = key_text(&key, request.format, request.private_key_format).unwrap();
                assert!(shown["private_key"] == text.expose_text().unwrap(), "{key_type} {format}");
                assert_eq!(shown["private_key_type"], json!(key_type));
                let bundled = shown["certificate"].as_str().unwrap().contains("PRIVATE KEY");
                assert_eq!(bundled, format == "pem_bundle");
                // One line of PEM is shorter than the core may be: both are looked for without line ends.
                let core = core(text.expose_text().unwrap());
                let found = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\\n", "").contains(&core);
                assert!(found(answer.expose()));
                let remains = answer.remains();
                assert!(!found(&remains), "{key_type} {format}");
                assert!(String::from_utf8_lossy(&remains).contains("ca_chain"), "all of it was overwritten");
            }
        }
    }

    #[test]
    fn members_are_one_object_and_secrets_read_back_as_they_were() {
        assert_eq!(Data::default().finish().expose(), b"{}");
        let mut data = Data::default();
        data.add("a", &1);
        data.add_secret("b", &Secret::new("x\n\"y\"")).unwrap();
        data.add("c", &["z"]);
        assert!(data.add_secret("d", &Secret::new([0xff])).is_err());
        let text = data.finish();
        assert_eq!(
            serde_json::from_slice::<Value>(text.expose()).unwrap(),
            json!({ "a": 1, "b": "x\n\"y\"", "c": ["z"] })
        );
        let remains = String::from_utf8(text.remains()).unwrap();
        assert!(remains.starts_with("{\"a\":1,\"b\":\0\0") && remains.ends_with(",\"c\":[\"z\"]}"), "{remains}");
    }
}

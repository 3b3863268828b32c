//! TLS 1.2 and 1.3 with rustls on aws-lc-rs: parsing of PEM certificates and keys, and client configurations with
//! custom verification of the server certificate.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use zeroize::Zeroizing;

use crate::error::{Error, Kind, Result};
use crate::secret::Secret;
use crate::x509::pem;

/// Maximum length of a PEM text, in bytes.
const MAX_PEM_BYTES: usize = 256 * 1024;

/// Returns the crypto provider (algorithms) of all TLS connections.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Parses the blocks of a PEM text, which may contain private keys, into pairs of label and DER. Error texts begin with
/// `field`.
///
/// # Errors
/// `Invalid` with the field and the rule, never quoting the text.
pub(crate) fn parse_blocks(field: &str, text: &str) -> Result<Vec<(String, Zeroizing<Vec<u8>>)>> {
    if text.len() > MAX_PEM_BYTES {
        return Err(Error::invalid(format!("{field}: longer than {MAX_PEM_BYTES} bytes")));
    }
    let blocks = pem::parse_blocks(text).map_err(|error| error.within(field))?;
    Ok(blocks.into_iter().map(|(label, der)| (label, Zeroizing::new(der))).collect())
}

/// Parses a PEM text that may contain only certificates. Returns an empty list for an empty text.
///
/// # Errors
/// As [`parse_blocks`].
pub(crate) fn parse_certificates(field: &str, text: &str) -> Result<Vec<CertificateDer<'static>>> {
    let only_certificate = |(label, der): (String, Zeroizing<Vec<u8>>)| match label.as_str() {
        "CERTIFICATE" => Ok(der.to_vec().into()),
        _ => Err(Error::invalid(format!("{field}: must contain only PEM blocks of type CERTIFICATE"))),
    };
    parse_blocks(field, text)?.into_iter().map(only_certificate).collect()
}

/// A file that a setting or argument names.
#[derive(Clone, Copy)]
pub struct NamedFile<'f> {
    /// The setting or argument that names the file.
    pub setting: &'f str,
    /// The path of the file.
    pub path: &'f Path,
}

impl NamedFile<'_> {
    /// Reads the certificates of a PEM file, in order.
    ///
    /// # Errors
    /// `Invalid`, naming setting and file, when the file cannot be read or contains no certificate.
    pub fn read_certificates(self) -> Result<Vec<CertificateDer<'static>>> {
        let bytes = std::fs::read(self.path).map_err(|e| self.unreadable(e))?;
        let found = pem::parse_certificate_file(&bytes).map_err(|error| self.error(error.text()))?;
        Ok(found.into_iter().map(CertificateDer::from).collect())
    }

    /// Combines the certificate chain in this file with the private key in the file `key`. `read_key` returns the PEM
    /// text of the key.
    ///
    /// # Errors
    /// `Invalid`, naming setting and file, when the chain or the key cannot be used, or the key does not match the
    /// first certificate; the errors of `read_key`.
    pub(crate) fn load_certified_key(
        self,
        key: NamedFile<'_>,
        read_key: impl FnOnce() -> Result<Secret>,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey> {
        let chain = self.read_certificates()?;
        let der = pem::parse_private_key_file(read_key()?.expose()).map_err(|error| key.error(error.text()))?;
        let der = PrivateKeyDer::try_from(der.to_vec()).map_err(|_| key.error("the private key cannot be read"))?;
        CertifiedKey::from_der(chain, der, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                key.error(&format!("is not the key of the first certificate of {}", self.setting))
            }
            rustls::Error::InvalidCertificate(_) => self.error("the first certificate cannot be read"),
            _ => key.error("must hold an RSA, ECDSA (P-256, P-384, P-521) or Ed25519 key"),
        })
    }

    pub(crate) fn error(self, problem: &str) -> Error {
        Error::invalid(format!("{}: {}: {problem}", self.setting, self.path.display()))
    }

    pub(crate) fn unreadable(self, error: io::Error) -> Error {
        Error::of_file(self.setting, self.path, "read", error).with_kind(Kind::Invalid)
    }
}

/// The certificate chain that a server presents in a handshake, with the context for its verification.
pub(crate) struct PresentedCertificate<'p> {
    pub(crate) leaf: &'p CertificateDer<'p>,
    pub(crate) intermediates: &'p [CertificateDer<'p>],
    /// The host name or IP address to which the client connects.
    pub(crate) name: &'p ServerName<'p>,
    pub(crate) ocsp: &'p [u8],
    pub(crate) now: UnixTime,
}

/// The rules by which a client verifies the server certificate.
pub(crate) trait ServerTrust: fmt::Debug + Send + Sync + 'static {
    /// Verifies the server certificate. rustls verifies separately that the key of the certificate signed the
    /// handshake.
    ///
    /// # Errors
    /// The reason why the certificate is rejected.
    fn verify(&self, presented: &PresentedCertificate<'_>) -> Result<(), rustls::Error>;
}

#[derive(Debug)]
struct TrustVerifier<T> {
    trust: T,
    provider: Arc<CryptoProvider>,
}

impl<T: ServerTrust> ServerCertVerifier for TrustVerifier<T> {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.trust.verify(&PresentedCertificate { leaf, intermediates, name, ocsp, now })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Builds the rustls configuration of a client. `client` is the certificate for client authentication, if any.
///
/// # Errors
/// `Internal` when the crypto provider lacks a required algorithm.
pub(crate) fn client_config(
    provider: Arc<CryptoProvider>,
    trust: impl ServerTrust,
    client: Option<CertifiedKey>,
) -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Error::internal)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustVerifier { trust, provider }));
    Ok(match client {
        Some(client) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(client))),
        None => builder.with_no_client_auth(),
    })
}

/// Checks that `now` is within the validity period of a certificate. `not_before` and `not_after` are in epoch seconds.
///
/// # Errors
/// `NotValidYet` and `Expired`.
pub(crate) fn check_validity_period(not_before: i64, not_after: i64, now: UnixTime) -> Result<(), CertificateError> {
    match i64::try_from(now.as_secs()).unwrap_or(i64::MAX) {
        now if now < not_before => Err(CertificateError::NotValidYet),
        now if now > not_after => Err(CertificateError::Expired),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::testing;

    #[test]
    fn parse_certificates_refuses_keys_and_invalid_pem() {
        let (key, certificate) = testing::root("ec", 256);
        let certificate = pem::encode("CERTIFICATE", certificate.der());
        let key = pem::encode("PRIVATE KEY", &key.pkcs8());
        assert_eq!(parse_certificates("ca_pem", "").unwrap().len(), 0);
        assert_eq!(parse_certificates("ca_pem", &format!("{certificate}\n{certificate}")).unwrap().len(), 2);
        for (text, rule) in [
            (key.clone(), "must contain only PEM blocks of type CERTIFICATE"),
            (format!("{certificate}\n{key}"), "must contain only PEM blocks of type CERTIFICATE"),
            ("hunter2".to_owned(), "invalid PEM block at index 0"),
            ("x".repeat(MAX_PEM_BYTES + 1), "longer than 262144 bytes"),
        ] {
            let error = parse_certificates("ca_pem", &text).map(drop).unwrap_err();
            assert!(error.text().starts_with("ca_pem: ") && !error.text().contains("hunter2"), "{error}");
            assert!(error.text().contains(rule), "{error}");
        }
    }
}

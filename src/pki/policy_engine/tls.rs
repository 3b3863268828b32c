//! TLS trust and client authentication for the policy engine, by rustls on aws-lc-rs with TLS 1.2 and 1.3.
//!
//! Only the configured CAs and pinned certificates are trusted, never the system's. If certificates are pinned, the
//! engine must present one of them. If CAs are configured as well, one of these CAs must also have issued that
//! certificate for the engine's host name.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, InconsistentKeys, RootCertStore};

use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::tls::{self, PresentedCertificate, ServerTrust, parse_blocks, parse_certificates};
use crate::x509::certificate::Certificate;
use crate::x509::pem;

/// Name of the field with the client's certificate chain and private key, which is secret.
pub(crate) const CLIENT_BUNDLE_FIELD: &str = "service_client_cert_bundle";

/// Certificates and keys parsed from the PEM fields of the settings.
pub(crate) struct EngineTlsMaterial {
    provider: Arc<CryptoProvider>,
    roots: RootCertStore,
    pinned: Vec<PinnedCertificate>,
    client: Option<CertifiedKey>,
}

impl EngineTlsMaterial {
    /// Parses the fields: trusted CAs, pinned server certificates, and the client certificate with its key.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule, never quoting the text.
    pub(crate) fn read(trusted_ca: &str, trusted_leaves: &str, client_bundle: &Secret) -> Result<Self> {
        Ok(Self {
            roots: parse_roots(trusted_ca)?,
            pinned: parse_pinned(trusted_leaves)?,
            client: parse_client(client_bundle)?,
            provider: tls::provider(),
        })
    }

    /// Builds the TLS client configuration.
    ///
    /// # Errors
    /// `Invalid` when nothing is trusted; `Internal` when the crypto provider lacks support.
    pub(crate) fn client_config(self) -> Result<ClientConfig> {
        let trust = EngineTlsTrust::new(self.roots, self.pinned, &self.provider)?;
        tls::client_config(self.provider, trust, self.client)
    }
}

fn parse_roots(text: &str) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for der in parse_certificates("trusted_ca", text)? {
        roots.add(der).map_err(|_| Error::invalid("trusted_ca: a certificate cannot be used as an authority"))?;
    }
    Ok(roots)
}

fn parse_pinned(text: &str) -> Result<Vec<PinnedCertificate>> {
    const FIELD: &str = "trusted_leaf_certificate_bundle";
    let read = |der: CertificateDer<'static>| {
        let certificate =
            Certificate::parse_untrusted(&der).map_err(|e| Error::invalid(format!("{FIELD}: {}", e.text())))?;
        Ok(PinnedCertificate { der, not_before: certificate.not_before(), not_after: certificate.not_after() })
    };
    parse_certificates(FIELD, text)?.into_iter().map(read).collect()
}

/// Parses the client's chain and its single private key, which must belong to the first certificate.
fn parse_client(bundle: &Secret) -> Result<Option<CertifiedKey>> {
    let refuse = |rule: &str| Err(Error::invalid(format!("{CLIENT_BUNDLE_FIELD}: {rule}")));
    let Some(text) = bundle.expose_text() else { return refuse("must be PEM") };
    let blocks = parse_blocks(CLIENT_BUNDLE_FIELD, text)?;
    if blocks.is_empty() {
        return Ok(None);
    }
    let mut chain = Vec::new();
    let mut keys = Vec::new();
    for (label, der) in &blocks {
        match label.as_str() {
            "CERTIFICATE" => chain.push(CertificateDer::from(der.to_vec())),
            // Borrow the key, because an owned copy would not be zeroized.
            "PRIVATE KEY" => keys.push(PrivateKeyDer::Pkcs8(der.as_slice().into())),
            "RSA PRIVATE KEY" => keys.push(PrivateKeyDer::Pkcs1(der.as_slice().into())),
            "EC PRIVATE KEY" => keys.push(PrivateKeyDer::Sec1(der.as_slice().into())),
            _ => return refuse("must not contain PEM blocks other than certificates and one private key"),
        }
    }
    let (Some(key), true, false) = (keys.pop(), keys.is_empty(), chain.is_empty()) else {
        return refuse("must hold a certificate chain and exactly one private key");
    };
    let Ok(key) = any_supported_type(&key) else {
        return refuse("the key must be RSA, ECDSA (P-256, P-384, P-521) or Ed25519");
    };
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Some(certified)),
        Err(rustls::Error::InconsistentKeys(_)) => refuse("the private key is not the first certificate's"),
        Err(_) => refuse("the first certificate cannot be read"),
    }
}

/// Returns the certificates of a bundle, without the key, for responses.
pub(crate) fn certificates_only(bundle: &Secret) -> String {
    let blocks = parse_blocks("", bundle.expose_text().unwrap_or_default()).unwrap_or_default();
    let certificates = blocks.iter().filter(|(label, _)| label == "CERTIFICATE");
    certificates.map(|(label, der)| pem::encode(label, der) + "\n").collect()
}

#[derive(Debug)]
struct PinnedCertificate {
    der: CertificateDer<'static>,
    not_before: i64,
    not_after: i64,
}

#[derive(Debug)]
struct EngineTlsTrust {
    chain: Option<Arc<WebPkiServerVerifier>>,
    pinned: Vec<PinnedCertificate>,
}

impl EngineTlsTrust {
    fn new(roots: RootCertStore, pinned: Vec<PinnedCertificate>, provider: &Arc<CryptoProvider>) -> Result<Self> {
        let chain = if roots.is_empty() {
            None
        } else {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
            Some(builder.build().map_err(Error::internal)?)
        };
        if chain.is_none() && pinned.is_empty() {
            return Err(Error::invalid("trusted_ca: set trusted_ca or trusted_leaf_certificate_bundle"));
        }
        Ok(Self { chain, pinned })
    }

    fn check_pinned(&self, shown: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
        let Some(pinned) = self.pinned.iter().find(|pinned| pinned.der == *shown) else {
            return Err(CertificateError::ApplicationVerificationFailure);
        };
        tls::check_validity_period(pinned.not_before, pinned.not_after, now)
    }
}

impl ServerTrust for EngineTlsTrust {
    fn verify(&self, presented: &PresentedCertificate<'_>) -> Result<(), rustls::Error> {
        let PresentedCertificate { leaf, intermediates, name, ocsp, now } = *presented;
        if !self.pinned.is_empty() {
            self.check_pinned(leaf, now)?;
        }
        match &self.chain {
            Some(chain) => chain.verify_server_cert(leaf, intermediates, name, ocsp, now).map(drop),
            // Without CAs, the check of the pinned certificates above is enough (`EngineTlsTrust::new` requires some).
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::testing;

    #[derive(Default)]
    struct EngineTlsFields {
        trusted_ca: String,
        trusted_leaves: String,
        client_bundle: Secret,
    }

    impl EngineTlsFields {
        fn read(&self) -> Result<EngineTlsMaterial> {
            EngineTlsMaterial::read(&self.trusted_ca, &self.trusted_leaves, &self.client_bundle)
        }
    }

    fn refusal(members: EngineTlsFields) -> String {
        members.read().err().unwrap().text().to_owned()
    }

    #[test]
    fn client_bundle_must_be_a_chain_and_one_key() {
        let (key, certificate) = testing::root("ec", 256);
        let (other, _) = testing::root("ec", 256);
        let certificate = pem::encode("CERTIFICATE", certificate.der());
        let pkcs8 = |key: &crate::keys::local::PrivateKey| pem::encode("PRIVATE KEY", key.to_pkcs8().unwrap().expose());
        let (label, sec1) = key.to_traditional_form().unwrap();
        let bundle = |text: String| EngineTlsFields { client_bundle: Secret::new(text), ..EngineTlsFields::default() };
        for own in [pkcs8(&key), pem::encode(label, sec1.expose())] {
            let both = bundle(format!("{certificate}\n{own}"));
            assert!(both.read().unwrap().client.is_some());
            assert_eq!(certificates_only(&both.client_bundle), format!("{certificate}\n"));
        }
        for (text, rule) in [
            (certificate.clone(), "exactly one private key"),
            (pkcs8(&key), "exactly one private key"),
            (format!("{certificate}\n{}\n{}", pkcs8(&key), pkcs8(&key)), "exactly one private key"),
            (format!("{certificate}\n{}", pkcs8(&other)), "not the first certificate's"),
            (format!("{certificate}\n{}", pem::encode("DH PARAMETERS", b"x")), "PEM blocks"),
            ("garbage".to_owned(), "index 0"),
        ] {
            let refusal = refusal(bundle(text));
            assert!(refusal.starts_with("service_client_cert_bundle: ") && refusal.contains(rule), "{refusal}");
        }
    }

    #[test]
    fn engine_trust_requires_at_least_one_certificate() {
        let (key, certificate) = testing::root("ec", 256);
        let certificate = pem::encode("CERTIFICATE", certificate.der());
        let key = pem::encode("PRIVATE KEY", key.to_pkcs8().unwrap().expose());
        let ca = |text: &str| EngineTlsFields { trusted_ca: text.to_owned(), ..EngineTlsFields::default() };
        let leaf = |text: &str| EngineTlsFields { trusted_leaves: text.to_owned(), ..EngineTlsFields::default() };
        assert!(ca(&certificate).read().unwrap().client_config().is_ok());
        assert!(leaf(&certificate).read().unwrap().client_config().is_ok());
        let none = EngineTlsFields::default().read().unwrap().client_config().err().unwrap();
        assert!(none.text().contains("trusted_ca: set trusted_ca or"));
        assert!(refusal(ca(&key)).starts_with("trusted_ca: must contain only PEM blocks of type CERTIFICATE"));
        assert!(refusal(leaf(&key)).starts_with("trusted_leaf_certificate_bundle: must contain only PEM blocks"));
        let broken = pem::encode("CERTIFICATE", b"hunter2");
        assert!(refusal(ca(&broken)).starts_with("trusted_ca: a certificate cannot be used"));
        assert!(refusal(leaf(&broken)).starts_with("trusted_leaf_certificate_bundle: certificate"));
        assert!(refusal(ca(&"x".repeat(256 * 1024 + 1))).contains("262144 bytes"));
    }

    #[test]
    fn pinned_certificate_is_trusted_while_valid() {
        let provider = tls::provider();
        let pinned = vec![PinnedCertificate { der: vec![1_u8].into(), not_before: 10, not_after: 20 }];
        let trust = EngineTlsTrust::new(RootCertStore::empty(), pinned, &provider).unwrap();
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        assert_eq!(trust.check_pinned(&vec![1_u8].into(), at(10)), Ok(()));
        assert_eq!(trust.check_pinned(&vec![1_u8].into(), at(20)), Ok(()));
        assert_eq!(trust.check_pinned(&vec![1_u8].into(), at(9)), Err(CertificateError::NotValidYet));
        assert_eq!(trust.check_pinned(&vec![1_u8].into(), at(21)), Err(CertificateError::Expired));
        assert_eq!(
            trust.check_pinned(&vec![2_u8].into(), at(15)),
            Err(CertificateError::ApplicationVerificationFailure)
        );
    }
}

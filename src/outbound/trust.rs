//! CA certificates for outbound TLS.

use reqwest::Certificate;

use crate::error::{Error, Result};
use crate::x509::pem;

/// Maximum length of the PEM text, in bytes.
const MAX_PEM_BYTES: usize = 256 * 1024;

/// Parses the certificates of a PEM text, which must not contain other blocks. An empty text has no certificates.
///
/// # Errors
/// `Invalid` with `field` and the rule, without quoting the text.
pub(super) fn certificates(field: &str, text: &str) -> Result<Vec<Certificate>> {
    if text.len() > MAX_PEM_BYTES {
        return Err(Error::invalid(format!("{field}: longer than {MAX_PEM_BYTES} bytes")));
    }
    let read = |(label, der): (String, Vec<u8>)| {
        if label != "CERTIFICATE" {
            return Err(Error::invalid(format!("{field}: must contain only PEM blocks of type CERTIFICATE")));
        }
        Certificate::from_der(&der)
            .map_err(|_| Error::invalid(format!("{field}: a certificate cannot be used as an authority")))
    };
    let certificates: Vec<_> =
        pem::parse_blocks(text).map_err(|error| error.within(field))?.into_iter().map(read).collect::<Result<_>>()?;
    if certificates.is_empty() && !text.trim().is_empty() {
        return Err(Error::invalid(format!("{field}: must contain PEM blocks of type CERTIFICATE")));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::testing;

    #[test]
    fn trust_roots_must_be_only_certificates() {
        let (key, certificate) = testing::root("ec", 256);
        let certificate = pem::encode("CERTIFICATE", certificate.der());
        let key = pem::encode("PRIVATE KEY", key.to_pkcs8().unwrap().expose());
        assert_eq!(certificates("ca_pem", "").unwrap().len(), 0);
        assert_eq!(certificates("ca_pem", &format!("{certificate}\n{certificate}")).unwrap().len(), 2);
        for (text, rule) in [
            (key.clone(), "must contain only PEM blocks of type CERTIFICATE"),
            (format!("{certificate}\n{key}"), "must contain only PEM blocks of type CERTIFICATE"),
            ("hunter2".to_owned(), "invalid PEM block at index 0"),
            ("x".repeat(MAX_PEM_BYTES + 1), "longer than 262144 bytes"),
        ] {
            let error = certificates("ca_pem", &text).map(drop).unwrap_err();
            assert!(error.text().starts_with("ca_pem: ") && !error.text().contains("hunter2"), "{error}");
            assert!(error.text().contains(rule), "{error}");
        }
        assert!(super::super::Outbound::configured("ca_pem", &certificate).is_ok());
    }

    #[test]
    fn broken_authority_certificate_is_refused() {
        let broken = pem::encode("CERTIFICATE", b"hunter2");
        let error = super::super::Outbound::configured("ca_pem", &broken).map(drop).unwrap_err();
        assert_eq!(error.text(), "ca_pem: a certificate cannot be used as an authority");
    }
}

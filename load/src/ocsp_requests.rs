//! OCSP requests (RFC 6960) for the certificates of a mount.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use x509_parser::parse_x509_certificate;

use crate::der::{INTEGER, OCTET_STRING, SEQUENCE, encode};
use crate::drive::{RequestClass, ServerAccess};
use crate::preload::for_each_serial;

/// Maximum number of certificates. It limits memory, because their requests are created before the run.
pub(crate) const MAX_CERTIFICATES: usize = 100_000;
/// Length of a nonce (RFC 9654).
const NONCE_BYTES: usize = 32;

const MEDIA_TYPE: &str = "application/ocsp-request";
/// SHA-1 as a complete AlgorithmIdentifier; nearly every client sends it.
const SHA1: &[u8] = &[SEQUENCE, 9, 0x06, 5, 0x2b, 0x0e, 3, 2, 0x1a, 5, 0];
/// id-pkix-ocsp-nonce as a complete OBJECT IDENTIFIER.
const NONCE_ID: &[u8] = &[0x06, 9, 0x2b, 6, 1, 5, 5, 7, 0x30, 1, 2];

/// Certificates for OCSP requests.
pub(crate) struct CertificateRequests {
    path: String,
    /// Hashes of the issuer's name and key, DER encoded.
    issuer: Vec<u8>,
    serials: Vec<Vec<u8>>,
}

impl CertificateRequests {
    /// Returns up to `max` certificates of the mount.
    pub(crate) async fn find(admin: &ServerAccess<'_>, max: usize) -> Result<Self, String> {
        let mut client = admin.connect().await?;
        let issuer = client.get(&admin.path("ca")).await?;
        let issuer =
            issuer_hashes(&issuer).ok_or("ocsp: the mount has no default issuer, or its certificate is unreadable")?;
        let mut serials: Vec<Vec<u8>> = Vec::new();
        for_each_serial(&mut client, admin.mount, "certs", |serial| {
            serials.extend(serial_octets(serial));
            serials.len() < max.min(MAX_CERTIFICATES)
        })
        .await?;
        if serials.is_empty() {
            return Err("ocsp: the mount holds no certificates; set --preload to issue some first".to_owned());
        }
        Ok(Self { path: admin.path("ocsp"), issuer, serials })
    }

    /// Returns clients that request the status of one certificate after the other.
    pub(crate) fn class(&self, method: &Method, nonce: bool, clients: usize) -> RequestClass {
        let with = if nonce { "with" } else { "without" };
        let name = format!("{method} {with} a nonce, {} certificates", self.serials.len());
        let body = |(number, serial): (usize, &Vec<u8>)| {
            let nonce = nonce.then(|| digest(&SHA256, &number.to_le_bytes()));
            let der = request(&self.issuer, serial, nonce.as_ref().map(|n| &n.as_ref()[..NONCE_BYTES]));
            if method == Method::GET { Bytes::from(get_path(&self.path, &der)) } else { Bytes::from(der) }
        };
        let bodies = self.serials.iter().enumerate().map(body).collect();
        let media_type = (method == Method::POST).then_some(MEDIA_TYPE);
        let class = RequestClass::post(name, clients, self.path.as_str(), bodies, successful);
        RequestClass { method: method.clone(), media_type, ..class }
    }
}

/// `true` if a response, passed as the list of its bytes, is an OCSPResponse with the status `successful`.
fn successful(answer: &Value) -> bool {
    let start: Vec<u64> = answer.as_array().into_iter().flatten().take(7).filter_map(Value::as_u64).collect();
    start.first() == Some(&u64::from(SEQUENCE)) && start.windows(3).any(|three| three == [0x0a, 1, 0])
}

/// Encodes a request for one certificate; `issuer` holds the DER encoded hashes of the issuer's name and key.
fn request(issuer: &[u8], serial: &[u8], nonce: Option<&[u8]>) -> Vec<u8> {
    let id = encode(SEQUENCE, &[SHA1, issuer, &encode(INTEGER, &[serial])]);
    let list = encode(SEQUENCE, &[&encode(SEQUENCE, &[&id])]);
    let extensions = nonce.map_or_else(Vec::new, |nonce| {
        let octets = encode(OCTET_STRING, &[&encode(OCTET_STRING, &[nonce])]);
        encode(0xa2, &[&encode(SEQUENCE, &[&encode(SEQUENCE, &[NONCE_ID, &octets])])])
    });
    encode(SEQUENCE, &[&encode(SEQUENCE, &[&list, &extensions])])
}

/// Returns the path of a GET: base64 with the reserved characters percent-encoded.
fn get_path(path: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der).replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("{path}/{text}")
}

/// Returns the content of a serial number's INTEGER from its text: hexadecimal, with colons or hyphens.
fn serial_octets(serial: &str) -> Option<Vec<u8>> {
    let octets: Vec<u8> =
        serial.split([':', '-']).map(|two| u8::from_str_radix(two, 16).ok()).collect::<Option<_>>()?;
    let sign = octets.first().is_some_and(|first| first & 0x80 != 0).then_some(0);
    Some(sign.into_iter().chain(octets).collect())
}

/// Returns SHA-1 hashes of an issuer's name and key from its certificate, DER encoded.
fn issuer_hashes(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let hash = |octets: &[u8]| encode(OCTET_STRING, &[digest(&SHA1_FOR_LEGACY_USE_ONLY, octets).as_ref()]);
    let key = &certificate.public_key().subject_public_key.data;
    Some([hash(certificate.subject().as_raw()), hash(key)].concat())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The expected bytes are those of `openssl ocsp -no_nonce -reqout` for these hashes and this serial number.
    #[test]
    fn ocsp_request_matches_that_of_openssl() {
        let issuer = [encode(OCTET_STRING, &[&[1; 20]]), encode(OCTET_STRING, &[&[2; 20]])].concat();
        let serial = serial_octets("f0:01").unwrap();
        let der = request(&issuer, &serial, None);
        let hashes = [&[4, 20][..], &[1; 20], &[4, 20], &[2; 20]].concat();
        let id = [SHA1, &hashes, &[2, 3, 0, 0xf0, 1]].concat();
        assert_eq!(der, [&[0x30, 68, 0x30, 66, 0x30, 64, 0x30, 62, 0x30, 60][..], &id].concat());
        let with_nonce = request(&issuer, &serial, Some(&[7; NONCE_BYTES]));
        assert_eq!(with_nonce.len(), der.len() + 53);
        assert!(with_nonce.ends_with(&[&[4, 34, 4, 32][..], &[7; NONCE_BYTES]].concat()));
        assert_eq!(serial_octets("7f:00:ff"), Some(vec![0x7f, 0, 0xff]));
        assert_eq!(serial_octets("7f-00-ff"), serial_octets("7f:00:ff"));
        assert_eq!(serial_octets("no"), None);
    }

    #[test]
    fn issuer_hashes_are_those_of_name_and_key() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "Root");
        let certificate = params.self_signed(&key).unwrap();
        let name =
            encode(SEQUENCE, &[&encode(0x31, &[&encode(SEQUENCE, &[&[6, 3, 0x55, 4, 3], &encode(0x0c, &[b"Root"])])])]);
        let sha1 = |octets: &[u8]| encode(OCTET_STRING, &[digest(&SHA1_FOR_LEGACY_USE_ONLY, octets).as_ref()]);
        let expected = [sha1(&name), sha1(key.public_key_raw())].concat();
        assert_eq!(issuer_hashes(certificate.der()), Some(expected));
        for cut in 0..40 {
            assert_eq!(issuer_hashes(&certificate.der()[..cut]), None);
        }
    }

    #[test]
    fn only_successful_ocsp_responses_pass() {
        for (octets, passes) in [
            (&[0x30, 0x81, 0xd0, 0x0a, 1, 0, 0xa0][..], true),
            (&[0x30, 0x82, 1, 0xd0, 0x0a, 1, 0, 0xa0], true),
            (&[0x30, 3, 0x0a, 1, 6], false),
            (b"{}", false),
        ] {
            assert_eq!(successful(&json!(octets)), passes, "{octets:x?}");
        }
        assert!(!successful(&json!({})));
    }

    #[test]
    fn base64_in_a_path_is_percent_encoded() {
        assert_eq!(get_path("/v1/pki/ocsp", &[0xfb, 0xff, 0xbe, 1]), "/v1/pki/ocsp/%2B%2F%2B%2BAQ%3D%3D");
    }
}

//! Object identifiers as DER content bytes, and their conversion from and to dotted text.

use super::reader::{DerError, DerResult, check_oid};

macro_rules! oids {
    ($($(#[$doc:meta])* $name:ident = $octets:expr;)*) => {
        $($(#[$doc])* pub const $name: &[u8] = &$octets;)*
    };
}

oids! {
    /// rsaEncryption, 1.2.840.113549.1.1.1 (RFC 3279 2.3.1).
    RSA_ENCRYPTION = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
    /// id-mgf1, 1.2.840.113549.1.1.8 (RFC 4055 2.2).
    MGF1 = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8];
    /// id-RSASSA-PSS, 1.2.840.113549.1.1.10 (RFC 4055 3.1).
    RSASSA_PSS = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
    /// md5WithRSAEncryption, known only to reject it with a specific error.
    MD5_WITH_RSA = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4];
    /// sha1WithRSAEncryption.
    SHA1_WITH_RSA = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5];
    /// ecdsa-with-SHA1.
    ECDSA_WITH_SHA1 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1];
    /// id-Ed25519 (RFC 8410 3).
    ED25519 = [0x2b, 0x65, 0x70];
    /// id-sha1, 1.3.14.3.2.26.
    SHA1 = [0x2b, 0x0e, 3, 2, 0x1a];
    /// id-sha256.
    SHA256 = [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
    /// id-sha384.
    SHA384 = [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2];
    /// id-sha512.
    SHA512 = [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3];
    /// id-ecPublicKey (RFC 5480 2.1.1).
    EC_PUBLIC_KEY = [0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
    /// secp224r1.
    P224 = [0x2b, 0x81, 4, 0, 33];
    /// secp256r1.
    P256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    /// secp384r1.
    P384 = [0x2b, 0x81, 4, 0, 34];
    /// secp521r1.
    P521 = [0x2b, 0x81, 4, 0, 35];
    /// extensionRequest, 1.2.840.113549.1.9.14 (RFC 2985 5.4.2).
    EXTENSION_REQUEST = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
    /// subjectDirectoryAttributes, 2.5.29.9.
    SUBJECT_DIRECTORY_ATTRIBUTES = [0x55, 0x1d, 9];
    /// subjectKeyIdentifier, 2.5.29.14.
    SUBJECT_KEY_ID = [0x55, 0x1d, 14];
    /// keyUsage, 2.5.29.15.
    KEY_USAGE = [0x55, 0x1d, 15];
    /// privateKeyUsagePeriod, 2.5.29.16.
    PRIVATE_KEY_USAGE_PERIOD = [0x55, 0x1d, 16];
    /// subjectAltName, 2.5.29.17.
    SUBJECT_ALT_NAME = [0x55, 0x1d, 17];
    /// issuerAltName, 2.5.29.18.
    ISSUER_ALT_NAME = [0x55, 0x1d, 18];
    /// basicConstraints, 2.5.29.19.
    BASIC_CONSTRAINTS = [0x55, 0x1d, 19];
    /// cRLNumber, 2.5.29.20.
    CRL_NUMBER = [0x55, 0x1d, 20];
    /// reasonCode, 2.5.29.21.
    REASON_CODE = [0x55, 0x1d, 21];
    /// invalidityDate, 2.5.29.24.
    INVALIDITY_DATE = [0x55, 0x1d, 24];
    /// deltaCRLIndicator, 2.5.29.27.
    DELTA_CRL_INDICATOR = [0x55, 0x1d, 27];
    /// issuingDistributionPoint, 2.5.29.28.
    ISSUING_DISTRIBUTION_POINT = [0x55, 0x1d, 28];
    /// certificateIssuer, 2.5.29.29.
    CERTIFICATE_ISSUER = [0x55, 0x1d, 29];
    /// nameConstraints, 2.5.29.30.
    NAME_CONSTRAINTS = [0x55, 0x1d, 30];
    /// cRLDistributionPoints, 2.5.29.31.
    CRL_DISTRIBUTION_POINTS = [0x55, 0x1d, 31];
    /// certificatePolicies, 2.5.29.32.
    CERTIFICATE_POLICIES = [0x55, 0x1d, 32];
    /// anyPolicy, 2.5.29.32.0.
    ANY_POLICY = [0x55, 0x1d, 32, 0];
    /// policyMappings, 2.5.29.33.
    POLICY_MAPPINGS = [0x55, 0x1d, 33];
    /// authorityKeyIdentifier, 2.5.29.35.
    AUTHORITY_KEY_ID = [0x55, 0x1d, 35];
    /// policyConstraints, 2.5.29.36.
    POLICY_CONSTRAINTS = [0x55, 0x1d, 36];
    /// extKeyUsage, 2.5.29.37.
    EXT_KEY_USAGE = [0x55, 0x1d, 37];
    /// anyExtendedKeyUsage, 2.5.29.37.0.
    ANY_EXT_KEY_USAGE = [0x55, 0x1d, 37, 0];
    /// id-kp-serverAuth, 1.3.6.1.5.5.7.3.1 (RFC 5280 4.2.1.12).
    SERVER_AUTH = [0x2b, 6, 1, 5, 5, 7, 3, 1];
    /// id-kp-timeStamping, 1.3.6.1.5.5.7.3.8 (RFC 3161 2.3).
    TIME_STAMPING = [0x2b, 6, 1, 5, 5, 7, 3, 8];
    /// freshestCRL, 2.5.29.46.
    FRESHEST_CRL = [0x55, 0x1d, 46];
    /// inhibitAnyPolicy, 2.5.29.54.
    INHIBIT_ANY_POLICY = [0x55, 0x1d, 54];
    /// authorityInfoAccess, 1.3.6.1.5.5.7.1.1.
    AUTHORITY_INFO_ACCESS = [0x2b, 6, 1, 5, 5, 7, 1, 1];
    /// subjectInfoAccess, 1.3.6.1.5.5.7.1.11.
    SUBJECT_INFO_ACCESS = [0x2b, 6, 1, 5, 5, 7, 1, 11];
    /// id-pe-ipAddrBlocks, 1.3.6.1.5.5.7.1.7 (RFC 3779 2.2.1), known only to reject it with a specific error.
    IP_ADDR_BLOCKS = [0x2b, 6, 1, 5, 5, 7, 1, 7];
    /// id-pe-autonomousSysIds, 1.3.6.1.5.5.7.1.8 (RFC 3779 3.2.1), known only to reject it with a specific error.
    AUTONOMOUS_SYS_IDS = [0x2b, 6, 1, 5, 5, 7, 1, 8];
    /// id-pe-proxyCertInfo, 1.3.6.1.5.5.7.1.14 (RFC 3820 3.8), known only to reject it with a specific error.
    PROXY_CERT_INFO = [0x2b, 6, 1, 5, 5, 7, 1, 14];
    /// nsCertType, 2.16.840.1.113730.1.1, the former netscape-cert-type.
    NS_CERT_TYPE = [0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 1, 1];
    /// id-pe-tlsfeature, 1.3.6.1.5.5.7.1.24 (RFC 7633).
    TLS_FEATURE = [0x2b, 6, 1, 5, 5, 7, 1, 24];
    /// The extension with signed certificate timestamps, 1.3.6.1.4.1.11129.2.4.2 (RFC 6962 3.3).
    SCT_LIST = [0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 2];
    /// The poison extension of precertificates, 1.3.6.1.4.1.11129.2.4.3 (RFC 6962 3.1).
    PRECERTIFICATE_POISON = [0x2b, 6, 1, 4, 1, 0xd6, 0x79, 2, 4, 3];
    /// Microsoft's certificate template extension, 1.3.6.1.4.1.311.21.7.
    CERTIFICATE_TEMPLATE = [0x2b, 6, 1, 4, 1, 0x82, 0x37, 21, 7];
    /// admission, 1.3.36.8.3.3 (Common PKI 2.0, part 1, table 29a).
    ADMISSION = [0x2b, 0x24, 8, 3, 3];
    /// id-qt-cps, 1.3.6.1.5.5.7.2.1.
    QUALIFIER_CPS = [0x2b, 6, 1, 5, 5, 7, 2, 1];
    /// id-qt-unotice, 1.3.6.1.5.5.7.2.2.
    QUALIFIER_NOTICE = [0x2b, 6, 1, 5, 5, 7, 2, 2];
    /// id-ad-ocsp, 1.3.6.1.5.5.7.48.1.
    ACCESS_OCSP = [0x2b, 6, 1, 5, 5, 7, 48, 1];
    /// id-pkix-ocsp-basic, 1.3.6.1.5.5.7.48.1.1.
    OCSP_BASIC = [0x2b, 6, 1, 5, 5, 7, 48, 1, 1];
    /// id-pkix-ocsp-nonce, 1.3.6.1.5.5.7.48.1.2.
    OCSP_NONCE = [0x2b, 6, 1, 5, 5, 7, 48, 1, 2];
    /// id-pkix-ocsp-nocheck, 1.3.6.1.5.5.7.48.1.5.
    OCSP_NO_CHECK = [0x2b, 6, 1, 5, 5, 7, 48, 1, 5];
    /// id-ad-caIssuers, 1.3.6.1.5.5.7.48.2.
    ACCESS_CA_ISSUERS = [0x2b, 6, 1, 5, 5, 7, 48, 2];
}

/// Maximum length of a dotted OID, in bytes.
const MAX_DOTTED_BYTES: usize = 256;

/// Parses a dotted OID (`1.2.840`) into DER content bytes. The text must have at least two decimal arcs without leading
/// zeros. The first arc must be 0 to 2; after 0 or 1, the second arc must be below 40. No arc may be above 2¹²⁸ − 1.
/// Returns `None` for any other text.
pub fn parse_oid(dotted: &str) -> Option<Vec<u8>> {
    if dotted.len() > MAX_DOTTED_BYTES {
        return None;
    }
    let mut arcs = dotted.split('.').map(parse_arc);
    let first = arcs.next()??;
    let second = arcs.next()??;
    if first > 2 || (first < 2 && second >= 40) {
        return None;
    }
    let mut content = Vec::with_capacity(dotted.len());
    push_arc(&mut content, second.checked_add(first * 40)?);
    for arc in arcs {
        push_arc(&mut content, arc?);
    }
    Some(content)
}

fn parse_arc(text: &str) -> Option<u128> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

fn push_arc(content: &mut Vec<u8>, arc: u128) {
    let septets = (128 - arc.leading_zeros()).div_ceil(7).max(1);
    for i in (0..septets).rev() {
        let more = if i == 0 { 0 } else { 0x80 };
        content.push((arc >> (7 * i)) as u8 & 0x7f | more);
    }
}

/// Limits of an OID in a certificate to be signed: the number of arcs, and the bytes of each arc after the first two
/// (RFC 5280 Appendix B).
const MAX_ARCS: usize = 20;
const MAX_ARC_OCTETS: usize = 4;
/// Maximum length of an OID in a certificate to be signed, in bytes. The 100 characters of Appendix B are at most 50
/// bytes; certificate readers accept at most 63.
const MAX_OID_OCTETS: usize = 63;

/// Rejects an OID (DER content bytes) that some certificate readers cannot process: RFC 5280 Appendix B limits the
/// arcs.
///
/// # Errors
/// The violated rule.
pub(crate) fn check_oid_size(content: &[u8]) -> DerResult<()> {
    const ARC_TOO_LARGE: DerError = DerError("an object identifier has an arc of 2^28 or above (RFC 5280 Appendix B)");
    const OID_TOO_LONG: DerError =
        DerError("an object identifier has more than 20 arcs or 63 octets (RFC 5280 Appendix B)");
    if content.len() > MAX_OID_OCTETS {
        return Err(OID_TOO_LONG);
    }
    // The first sub-identifier contains two arcs.
    let mut arcs = 1;
    let mut octets = 0;
    for &b in content {
        octets += 1;
        if octets > MAX_ARC_OCTETS {
            return Err(ARC_TOO_LARGE);
        }
        if b < 0x80 {
            (arcs, octets) = (arcs + 1, 0);
        }
    }
    if arcs > MAX_ARCS { Err(OID_TOO_LONG) } else { Ok(()) }
}

/// Returns the dotted text of an OID (DER content bytes). For bytes that have no such text, returns `0x` and hex
/// digits.
pub fn oid_text(content: &[u8]) -> String {
    to_dotted(content).unwrap_or_else(|| {
        let digits = content.iter().flat_map(|b| [b >> 4, b & 0xf]);
        "0x".chars().chain(digits.filter_map(|digit| char::from_digit(u32::from(digit), 16))).collect()
    })
}

fn to_dotted(content: &[u8]) -> Option<String> {
    check_oid(content).ok()?;
    let mut text = String::new();
    let mut arc: u128 = 0;
    for &b in content {
        if arc >> 121 != 0 {
            return None;
        }
        arc = arc << 7 | u128::from(b & 0x7f);
        if b >= 0x80 {
            continue;
        }
        if text.is_empty() {
            let first = (arc / 40).min(2);
            text = format!("{first}.{}", arc - first * 40);
        } else {
            text.push_str(&format!(".{arc}"));
        }
        arc = 0;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_oids_convert_to_and_from_text() {
        let cases: [(&[u8], &str); 6] = [
            (RSA_ENCRYPTION, "1.2.840.113549.1.1.1"),
            (P521, "1.3.132.0.35"),
            (EC_PUBLIC_KEY, "1.2.840.10045.2.1"),
            (SHA512, "2.16.840.1.101.3.4.2.3"),
            (FRESHEST_CRL, "2.5.29.46"),
            (ACCESS_CA_ISSUERS, "1.3.6.1.5.5.7.48.2"),
        ];
        for (content, text) in cases {
            assert_eq!(oid_text(content), text);
            assert_eq!(parse_oid(text).as_deref(), Some(content));
        }
        assert_eq!(parse_oid("2.999.1"), Some(vec![0x88, 0x37, 1]));
    }

    #[test]
    fn invalid_oid_texts_are_refused() {
        for text in ["", "1", "3.1", "1.40", "1..2", "1.2.", ".1.2", "1.02", "1.-2", "1.+2", "1.2 ", "a.b", "not-oid"] {
            assert_eq!(parse_oid(text), None, "{text}");
        }
        assert_eq!(oid_text(&[0x2a, 0x80]), "0x2a80");
    }

    #[test]
    fn oids_that_some_readers_reject_are_refused() {
        let check = |text: &str| check_oid_size(&parse_oid(text).unwrap());
        let arcs = |count: usize| format!("1.2{}", ".3".repeat(count - 2));
        for good in ["1.2.268435455", "2.268435375", "2.5.29.32.0", &arcs(20), &format!("1.2{}", ".99999999".repeat(8))]
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["1.2.268435456", "1.2.2147483648", "2.25.329800735698586629295641978511506172918", "2.268435376"] {
            assert!(check(bad).unwrap_err().0.contains("2^28"), "{bad}");
        }
        for bad in [arcs(21), format!("1.2{}", ".268435455".repeat(16))] {
            assert!(check(&bad).unwrap_err().0.contains("20 arcs"), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn oid_texts_read_back(first in 0_u128..3, second in 0_u128..40, rest in proptest::collection::vec(any::<u128>(), 0..5)) {
            let text = rest.iter().fold(format!("{first}.{second}"), |t, a| format!("{t}.{a}"));
            prop_assert_eq!(oid_text(&parse_oid(&text).unwrap()), text);
        }

        #[test]
        fn oid_of_any_text_or_bytes_does_not_panic(text in ".{0,40}", octets in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse_oid(&text);
            let _ = oid_text(&octets);
        }
    }
}

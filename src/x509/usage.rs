//! Key usages and extended key usages by name (RFC 5280 4.2.1.3, 4.2.1.12).

use super::oid::{oid_text, parse_oid};
use crate::error::{Error, Result};

/// A set of key usages. The usage with bit n in RFC 5280 4.2.1.3 is `1 << n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyUsage(pub(crate) u16);

/// Key usages by name, in lower case, without the optional prefix `KeyUsage`.
const KEY_USAGE_NAMES: [(&str, KeyUsage); 11] = [
    ("digitalsignature", KeyUsage::DIGITAL_SIGNATURE),
    ("contentcommitment", KeyUsage::CONTENT_COMMITMENT),
    ("nonrepudiation", KeyUsage::CONTENT_COMMITMENT),
    ("keyencipherment", KeyUsage::KEY_ENCIPHERMENT),
    ("dataencipherment", KeyUsage::DATA_ENCIPHERMENT),
    ("keyagreement", KeyUsage::KEY_AGREEMENT),
    ("certsign", KeyUsage::CERT_SIGN),
    ("crlsign", KeyUsage::CRL_SIGN),
    ("crl", KeyUsage::CRL_SIGN),
    ("encipheronly", KeyUsage::ENCIPHER_ONLY),
    ("decipheronly", KeyUsage::DECIPHER_ONLY),
];

impl KeyUsage {
    /// digitalSignature.
    pub const DIGITAL_SIGNATURE: Self = Self(1);
    /// nonRepudiation, renamed contentCommitment.
    pub const CONTENT_COMMITMENT: Self = Self(1 << 1);
    /// keyEncipherment.
    pub const KEY_ENCIPHERMENT: Self = Self(1 << 2);
    /// dataEncipherment.
    pub const DATA_ENCIPHERMENT: Self = Self(1 << 3);
    /// keyAgreement.
    pub const KEY_AGREEMENT: Self = Self(1 << 4);
    /// keyCertSign.
    pub const CERT_SIGN: Self = Self(1 << 5);
    /// cRLSign.
    pub const CRL_SIGN: Self = Self(1 << 6);
    /// encipherOnly.
    pub const ENCIPHER_ONLY: Self = Self(1 << 7);
    /// decipherOnly.
    pub const DECIPHER_ONLY: Self = Self(1 << 8);

    /// keyEncipherment and dataEncipherment.
    pub const ENCIPHERMENT: Self = Self::KEY_ENCIPHERMENT.union(Self::DATA_ENCIPHERMENT);
    /// keyAgreement, and encipherOnly and decipherOnly, which restrict it.
    pub const AGREEMENT: Self = Self::KEY_AGREEMENT.union(Self::ENCIPHER_ONLY).union(Self::DECIPHER_ONLY);

    /// Returns the set of usages with these names. Unknown names are ignored, see [`KeyUsage::first_unknown`].
    pub fn from_names(names: &[String]) -> Self {
        names.iter().filter_map(|name| Self::named(name)).fold(Self::default(), Self::union)
    }

    /// Returns the index of the first name that is no key usage.
    pub fn first_unknown(names: &[String]) -> Option<usize> {
        names.iter().position(|name| Self::named(name).is_none())
    }

    fn named(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        let name = name.strip_prefix("keyusage").unwrap_or(&name);
        KEY_USAGE_NAMES.iter().find(|(known, _)| *known == name).map(|(_, usage)| *usage)
    }

    /// `true` if this set contains every usage of `other`.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the usages in either set.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the usages in this set but not in `other`, by their names in RFC 5280 4.2.1.3.
    pub(crate) fn names_beyond(self, other: Self) -> Vec<&'static str> {
        const NAMES: [&str; 9] = [
            "digitalSignature",
            "nonRepudiation",
            "keyEncipherment",
            "dataEncipherment",
            "keyAgreement",
            "keyCertSign",
            "cRLSign",
            "encipherOnly",
            "decipherOnly",
        ];
        let is_missing = |bit: usize| (self.0 & !other.0) >> bit & 1 == 1;
        NAMES.iter().enumerate().filter(|(bit, _)| is_missing(*bit)).map(|(_, name)| *name).collect()
    }

    /// `true` if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the content of the BIT STRING that encodes the set, and its length. The content is the number of unused
    /// bits, then bytes without trailing zero bits (X.690 11.2.2).
    pub(crate) fn bit_string_content(self) -> ([u8; 3], usize) {
        // Bit 0 of the set is the most significant bit of the first byte.
        let bits = self.0.reverse_bits();
        let [first, second] = bits.to_be_bytes();
        let used = 16 - bits.trailing_zeros() as usize;
        let octets = used.div_ceil(8);
        ([(octets * 8 - used) as u8, first, second], 1 + octets)
    }

    /// Reads the content of a BIT STRING; returns `None` if it is malformed.
    pub(crate) fn from_bit_string_content(content: &[u8]) -> Option<Self> {
        let (&unused, octets) = content.split_first()?;
        if unused > 7 || octets.len() > 2 || (octets.is_empty() && unused != 0) {
            return None;
        }
        let first = octets.first().copied().unwrap_or(0);
        let second = octets.get(1).copied().unwrap_or(0);
        let bits = u16::from_be_bytes([first, second]);
        let padding = bits & ((1_u32 << (16 - octets.len() * 8 + usize::from(unused))) - 1) as u16;
        (padding == 0).then(|| Self(bits.reverse_bits()))
    }
}

const SERVER_AUTH: &str = "serverauth";
const CLIENT_AUTH: &str = "clientauth";
const CODE_SIGNING: &str = "codesigning";
const EMAIL_PROTECTION: &str = "emailprotection";

/// Names and OIDs (DER content bytes) of extended key usages, in the order of encoding.
const EXT_KEY_USAGE_NAMES: [(&str, &[u8]); 12] = [
    ("any", &[0x55, 0x1d, 37, 0]),
    (SERVER_AUTH, &id_kp(1)),
    (CLIENT_AUTH, &id_kp(2)),
    (CODE_SIGNING, &id_kp(3)),
    (EMAIL_PROTECTION, &id_kp(4)),
    ("ipsecendsystem", &id_kp(5)),
    ("ipsectunnel", &id_kp(6)),
    ("ipsecuser", &id_kp(7)),
    ("timestamping", &id_kp(8)),
    ("ocspsigning", OCSP_SIGNING),
    // 1.3.6.1.4.1.311.10.3.3
    ("microsoftservergatedcrypto", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    // 2.16.840.1.113730.4.1
    ("netscapeservergatedcrypto", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
];

/// The OID of OCSPSigning (RFC 6960 4.2.2.2), DER content bytes.
pub const OCSP_SIGNING: &[u8] = &id_kp(9);

/// Returns the OID 1.3.6.1.5.5.7.3.n (id-kp) as DER content bytes.
const fn id_kp(n: u8) -> [u8; 8] {
    [0x2b, 6, 1, 5, 5, 7, 3, n]
}

/// Returns the OIDs of an extKeyUsage extension as DER content bytes, without duplicates. The usages of `names` and
/// of the four flags come first, in a fixed order, then the dotted OIDs of `extra`. Names may have any letter case
/// and the prefix `ExtKeyUsage`; unknown names are ignored.
///
/// # Errors
/// `Invalid`, naming `ext_key_usage_oids`, for an invalid dotted OID in `extra`.
pub fn eku_oids(
    names: &[String],
    server: bool,
    client: bool,
    code_signing: bool,
    email_protection: bool,
    extra: &[String],
) -> Result<Vec<Vec<u8>>> {
    let named: Vec<String> = names.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    let flagged = |known: &str| match known {
        SERVER_AUTH => server,
        CLIENT_AUTH => client,
        CODE_SIGNING => code_signing,
        EMAIL_PROTECTION => email_protection,
        _ => false,
    };
    let mut oids: Vec<Vec<u8>> = EXT_KEY_USAGE_NAMES
        .iter()
        .filter(|(known, _)| {
            flagged(known) || named.iter().any(|name| name.strip_prefix("extkeyusage").unwrap_or(name) == *known)
        })
        .map(|(_, oid)| oid.to_vec())
        .collect();
    for dotted in extra {
        let oid = parse_oid(dotted.trim()).ok_or_else(|| {
            Error::invalid(format!("ext_key_usage_oids: {dotted:?} is not a dotted object identifier"))
        })?;
        if !oids.contains(&oid) {
            oids.push(oid);
        }
    }
    Ok(oids)
}

/// Formats an extended key usage for messages: its name, if known, and its dotted OID.
pub(crate) fn eku_text(oid: &[u8]) -> String {
    let dotted = oid_text(oid);
    match EXT_KEY_USAGE_NAMES.iter().find(|(_, known)| *known == oid) {
        Some((name, _)) => format!("{name} ({dotted})"),
        None => dotted,
    }
}

/// Returns the index of the first name that is no extended key usage.
pub fn first_unknown_eku(names: &[String]) -> Option<usize> {
    let known = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        EXT_KEY_USAGE_NAMES.iter().any(|(known, _)| *known == name.strip_prefix("extkeyusage").unwrap_or(&name))
    };
    names.iter().position(|name| !known(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(values: &[&str]) -> Vec<String> {
        values.iter().map(|&v| v.to_owned()).collect()
    }

    #[test]
    fn key_usage_names_ignore_case_and_unknown_names() {
        let names = list(&["digitalSIGNATURE", "KeyUsageKeyAgreement", " KeyEncipherment ", "bogus"]);
        let usage = KeyUsage::from_names(&names);
        assert!(usage.contains(KeyUsage::DIGITAL_SIGNATURE.union(KeyUsage::KEY_AGREEMENT)));
        assert_eq!(usage.bit_string_content(), ([3, 0b1010_1000, 0], 2));
        assert_eq!(KeyUsage::from_names(&list(&["CRL", "CertSign"])).0, 0b110_0000);
        assert_eq!(KeyUsage::from_names(&list(&["NonRepudiation"])), KeyUsage::CONTENT_COMMITMENT);
        assert!(KeyUsage::from_names(&[]).is_empty());
    }

    #[test]
    fn eku_oids_have_a_fixed_order_and_no_duplicates() {
        let oids = eku_oids(
            &list(&["OCSPSigning", "extkeyusageClientAuth", "unknown", "Any"]),
            true,
            true,
            false,
            true,
            &list(&["1.3.6.1.4.1.311.20.2.2", "1.3.6.1.5.5.7.3.1", "1.3.6.1.4.1.311.20.2.2"]),
        );
        let texts: Vec<String> = oids.unwrap().iter().map(|oid| oid_text(oid)).collect();
        assert_eq!(
            texts,
            [
                "2.5.29.37.0",
                "1.3.6.1.5.5.7.3.1",
                "1.3.6.1.5.5.7.3.2",
                "1.3.6.1.5.5.7.3.4",
                "1.3.6.1.5.5.7.3.9",
                "1.3.6.1.4.1.311.20.2.2"
            ]
        );
        assert_eq!(oid_text(EXT_KEY_USAGE_NAMES[10].1), "1.3.6.1.4.1.311.10.3.3");
        assert_eq!(oid_text(EXT_KEY_USAGE_NAMES[11].1), "2.16.840.1.113730.4.1");
        let error = eku_oids(&[], false, false, false, false, &list(&["not-oid"])).unwrap_err();
        assert!(error.text().starts_with("ext_key_usage_oids"), "{error}");
    }

    proptest! {
        #[test]
        fn key_usages_read_back(bits in 0_u16..512) {
            let usage = KeyUsage(bits);
            let (content, len) = usage.bit_string_content();
            prop_assert_eq!(KeyUsage::from_bit_string_content(&content[..len]), Some(usage));
        }

        #[test]
        fn key_usage_of_any_bytes_does_not_panic(content in proptest::collection::vec(any::<u8>(), 0..5)) {
            let _ = KeyUsage::from_bit_string_content(&content);
        }
    }
}

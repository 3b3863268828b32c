//! Encoders of certificate and CRL extensions. Each returns an `Extension` with the criticality of this server's
//! profile, or an empty piece for an empty list.
//!
//! Callers must validate that strings for IA5String (URLs, host names, mailboxes) are ASCII.

use ipnet::IpNet;

use super::general_name::{DNS_NAME, IP_ADDRESS, RFC822_NAME, URI_NAME};
pub use super::general_name::{OtherNameValue, ParsedSans, SubjectAltNames};
use super::oid;
pub use super::oid::{oid_text, parse_oid};
use super::pieces::Extensions;
pub use super::raw_extension::{BasicConstraints, MAX_EXTENSIONS, RawExtension};
pub use super::usage::{KeyUsage, eku_oids, first_unknown_eku};
use super::writer::{
    BIT_STRING, BOOLEAN, DerWriter, IA5_STRING, OCTET_STRING, OID, SEQUENCE, UTF8_STRING, build, context,
    context_constructed,
};

/// Encodes an extension (RFC 5280 4.2). `oid` has DER content bytes, `value` is the content of extnValue. `critical`
/// is omitted if FALSE, which is its default.
pub fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Extensions {
    build_extension(oid, critical, value.len() + 24, |w| w.raw(value))
}

fn build_extension(oid: &[u8], critical: bool, capacity: usize, value: impl FnOnce(&mut DerWriter)) -> Extensions {
    Extensions::encoded(build(SEQUENCE, capacity, |w| {
        w.tlv(OID, oid);
        if critical {
            w.tlv(BOOLEAN, &[0xff]);
        }
        w.nest(OCTET_STRING, value);
    }))
}

/// Like [`extension`], for a SEQUENCE whose content `fields` writes.
fn build_sequence(oid: &[u8], critical: bool, capacity: usize, fields: impl FnOnce(&mut DerWriter)) -> Extensions {
    build_extension(oid, critical, capacity, |w| w.nest(SEQUENCE, fields))
}

/// Encodes keyUsage (RFC 5280 4.2.1.3), critical. The result is empty if no usage is set.
pub fn key_usage(bits: KeyUsage) -> Extensions {
    if bits.is_empty() {
        return Extensions::default();
    }
    let (content, len) = bits.bit_string_content();
    build_extension(oid::KEY_USAGE, true, 24, |w| w.tlv(BIT_STRING, &content[..len]))
}

/// Encodes extKeyUsage (RFC 5280 4.2.1.12) from OIDs as DER content bytes. It is critical if id-kp-timeStamping is the
/// only usage, as RFC 3161 2.3 requires, otherwise not critical. The result is empty without OIDs.
pub fn ext_key_usage(oids: &[Vec<u8>]) -> Extensions {
    if oids.is_empty() {
        return Extensions::default();
    }
    build_sequence(oid::EXT_KEY_USAGE, oids == [oid::TIME_STAMPING], 24 + 12 * oids.len(), |w| {
        oids.iter().for_each(|oid| w.oid(oid));
    })
}

/// Encodes basicConstraints (RFC 5280 4.2.1.9), critical. The value is an empty SEQUENCE if `ca` is `false`; the path
/// length is written for a CA only.
pub fn basic_constraints(ca: bool, path_length: Option<u32>) -> Extensions {
    build_sequence(oid::BASIC_CONSTRAINTS, true, 24, |w| {
        if !ca {
            return;
        }
        w.tlv(BOOLEAN, &[0xff]);
        if let Some(length) = path_length {
            w.integer(u64::from(length));
        }
    })
}

/// Encodes subjectKeyIdentifier (RFC 5280 4.2.1.2), not critical.
pub fn subject_key_id(id: &[u8]) -> Extensions {
    build_extension(oid::SUBJECT_KEY_ID, false, id.len() + 16, |w| w.tlv(OCTET_STRING, id))
}

/// Encodes authorityKeyIdentifier (RFC 5280 4.2.1.1), not critical, with keyIdentifier only.
pub fn authority_key_id(id: &[u8]) -> Extensions {
    build_sequence(oid::AUTHORITY_KEY_ID, false, id.len() + 16, |w| w.tlv(context(0), id))
}

/// Encodes authorityInfoAccess (RFC 5280 4.2.2.1), not critical: URLs of OCSP responders, then of issuer certificates.
/// The result is empty without URLs.
pub fn authority_info_access(ocsp: &[String], ca_issuers: &[String]) -> Extensions {
    if ocsp.is_empty() && ca_issuers.is_empty() {
        return Extensions::default();
    }
    let methods = [(oid::ACCESS_OCSP, ocsp), (oid::ACCESS_CA_ISSUERS, ca_issuers)];
    build_sequence(oid::AUTHORITY_INFO_ACCESS, false, 64 * (1 + ocsp.len() + ca_issuers.len()), |w| {
        for (method, urls) in methods {
            for url in urls {
                w.nest(SEQUENCE, |w| {
                    w.oid(method);
                    w.tlv(URI_NAME, url.as_bytes());
                });
            }
        }
    })
}

/// Encodes cRLDistributionPoints (RFC 5280 4.2.1.13), not critical, with one point per URL. The result is empty without
/// URLs.
pub fn crl_distribution_points(urls: &[String]) -> Extensions {
    distribution_points(oid::CRL_DISTRIBUTION_POINTS, urls)
}

/// Encodes freshestCRL (RFC 5280 4.2.1.15, 5.2.6), not critical, like [`crl_distribution_points`].
pub fn freshest_crl(urls: &[String]) -> Extensions {
    distribution_points(oid::FRESHEST_CRL, urls)
}

fn distribution_points(oid: &[u8], urls: &[String]) -> Extensions {
    if urls.is_empty() {
        return Extensions::default();
    }
    build_sequence(oid, false, 64 * (1 + urls.len()), |w| {
        for url in urls {
            // distributionPoint [0] { fullName [0] { one name } }
            w.nest(SEQUENCE, |w| w.explicit(0, context_constructed(0), |w| w.tlv(URI_NAME, url.as_bytes())));
        }
    })
}

/// Encodes subjectAltName (RFC 5280 4.2.1.6): otherName, DNS, e-mail, IP, URI. It must be critical if the subject is
/// empty. The result is empty without names.
pub fn subject_alt_name(names: &SubjectAltNames, critical: bool) -> Extensions {
    if names.is_empty() {
        return Extensions::default();
    }
    build_sequence(oid::SUBJECT_ALT_NAME, critical, 128, |w| names.write(w))
}

/// A certificate policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePolicy {
    /// The policy's OID, DER content bytes.
    pub oid: Vec<u8>,
    /// The URI of its certification practice statement (CPS), in ASCII.
    pub cps: Option<String>,
    /// A notice to relying parties (explicitText of a userNotice).
    pub notice: Option<String>,
}

/// Encodes certificatePolicies (RFC 5280 4.2.1.4), not critical. The result is empty without policies.
pub fn certificate_policies(policies: &[CertificatePolicy]) -> Extensions {
    if policies.is_empty() {
        return Extensions::default();
    }
    build_sequence(oid::CERTIFICATE_POLICIES, false, 64 * policies.len(), |w| {
        policies.iter().for_each(|policy| w.nest(SEQUENCE, |w| write_policy(w, policy)));
    })
}

fn write_policy(w: &mut DerWriter, policy: &CertificatePolicy) {
    w.oid(&policy.oid);
    if policy.cps.is_none() && policy.notice.is_none() {
        return;
    }
    w.nest(SEQUENCE, |w| {
        if let Some(cps) = &policy.cps {
            w.nest(SEQUENCE, |w| {
                w.oid(oid::QUALIFIER_CPS);
                w.tlv(IA5_STRING, cps.as_bytes());
            });
        }
        if let Some(notice) = &policy.notice {
            w.nest(SEQUENCE, |w| {
                w.oid(oid::QUALIFIER_NOTICE);
                w.nest(SEQUENCE, |w| w.tlv(UTF8_STRING, notice.as_bytes()));
            });
        }
    });
}

/// Maximum number of permitted subtrees in name constraints, and also of excluded subtrees. Each list that configures
/// such subtrees has the same limit.
pub const MAX_SUBTREES: usize = 1000;

/// The names that name constraints permit or exclude.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subtrees {
    /// DNS names; a leading dot includes subdomains only.
    pub dns: Vec<String>,
    /// Mailboxes, hosts, or domains with a leading dot.
    pub emails: Vec<String>,
    /// IP networks.
    pub ips: Vec<IpNet>,
    /// Hosts of URIs, or domains with a leading dot.
    pub uris: Vec<String>,
}

impl Subtrees {
    fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.emails.is_empty() && self.ips.is_empty() && self.uris.is_empty()
    }

    /// Writes GeneralSubtrees with this tag. `minimum` is omitted because it has its default 0.
    fn write(&self, w: &mut DerWriter, tag: u8) {
        if self.is_empty() {
            return;
        }
        w.nest(tag, |w| {
            self.dns.iter().for_each(|name| w.nest(SEQUENCE, |w| w.tlv(DNS_NAME, name.as_bytes())));
            self.emails.iter().for_each(|name| w.nest(SEQUENCE, |w| w.tlv(RFC822_NAME, name.as_bytes())));
            for network in &self.ips {
                w.nest(SEQUENCE, |w| w.nest(IP_ADDRESS, |w| write_network(w, network)));
            }
            self.uris.iter().for_each(|name| w.nest(SEQUENCE, |w| w.tlv(URI_NAME, name.as_bytes())));
        });
    }
}

fn write_network(w: &mut DerWriter, network: &IpNet) {
    match network {
        IpNet::V4(v4) => {
            w.raw(&v4.network().octets());
            w.raw(&v4.netmask().octets());
        }
        IpNet::V6(v6) => {
            w.raw(&v6.network().octets());
            w.raw(&v6.netmask().octets());
        }
    }
}

/// The name constraints of a CA certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameConstraints {
    /// Permitted names. Kinds of names without an entry are unrestricted.
    pub permitted: Subtrees,
    /// Excluded names.
    pub excluded: Subtrees,
}

impl NameConstraints {
    /// `true` if there is no constraint.
    pub fn is_empty(&self) -> bool {
        self.permitted.is_empty() && self.excluded.is_empty()
    }
}

/// Encodes nameConstraints (RFC 5280 4.2.1.10), critical. The result is empty without constraints.
pub fn name_constraints(constraints: &NameConstraints) -> Extensions {
    if constraints.is_empty() {
        return Extensions::default();
    }
    build_sequence(oid::NAME_CONSTRAINTS, true, 128, |w| {
        constraints.permitted.write(w, context_constructed(0));
        constraints.excluded.write(w, context_constructed(1));
    })
}

/// Encodes cRLNumber (RFC 5280 5.2.3), not critical.
pub fn crl_number(number: u64) -> Extensions {
    build_extension(oid::CRL_NUMBER, false, 24, |w| w.integer(number))
}

/// Encodes deltaCRLIndicator (RFC 5280 5.2.4), critical, with the number of the base CRL of a delta CRL.
pub fn delta_crl_indicator(base_number: u64) -> Extensions {
    build_extension(oid::DELTA_CRL_INDICATOR, true, 24, |w| w.integer(base_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_encodings_match_rfc_5280() {
        let cases: [(&str, Extensions, &[u8]); 8] = [
            (
                "digitalSignature, keyEncipherment, keyAgreement; critical",
                key_usage(KeyUsage(0b1_0101)),
                &[0x30, 14, 6, 3, 0x55, 0x1d, 15, 1, 1, 0xff, 4, 4, 3, 2, 3, 0xa8],
            ),
            (
                "cA FALSE is the empty SEQUENCE",
                basic_constraints(false, Some(1)),
                &[0x30, 12, 6, 3, 0x55, 0x1d, 19, 1, 1, 0xff, 4, 2, 0x30, 0],
            ),
            (
                "path length zero is written",
                basic_constraints(true, Some(0)),
                &[0x30, 18, 6, 3, 0x55, 0x1d, 19, 1, 1, 0xff, 4, 8, 0x30, 6, 1, 1, 0xff, 2, 1, 0],
            ),
            (
                "keyIdentifier alone",
                authority_key_id(&[1, 2]),
                &[0x30, 13, 6, 3, 0x55, 0x1d, 35, 4, 6, 0x30, 4, 0x80, 2, 1, 2],
            ),
            (
                "one point per URL",
                crl_distribution_points(&["u:".into()]),
                &[0x30, 19, 6, 3, 0x55, 0x1d, 31, 4, 12, 0x30, 10, 0x30, 8, 0xa0, 6, 0xa0, 4, 0x86, 2, b'u', b':'],
            ),
            ("CRL number", crl_number(128), &[0x30, 11, 6, 3, 0x55, 0x1d, 20, 4, 4, 2, 2, 0, 128]),
            (
                "delta indicator is critical",
                delta_crl_indicator(1),
                &[0x30, 13, 6, 3, 0x55, 0x1d, 27, 1, 1, 0xff, 4, 3, 2, 1, 1],
            ),
            ("subject key identifier", subject_key_id(&[9]), &[0x30, 10, 6, 3, 0x55, 0x1d, 14, 4, 3, 4, 1, 9]),
        ];
        for (name, encoded, expected) in cases {
            assert_eq!(encoded.as_der(), expected, "{name}");
        }
    }

    #[test]
    fn empty_values_result_in_no_extension() {
        let empty = [
            key_usage(KeyUsage::default()),
            ext_key_usage(&[]),
            authority_info_access(&[], &[]),
            crl_distribution_points(&[]),
            freshest_crl(&[]),
            subject_alt_name(&SubjectAltNames::default(), true),
            certificate_policies(&[]),
            name_constraints(&NameConstraints::default()),
        ];
        assert!(empty.iter().all(Extensions::is_empty));
    }
}

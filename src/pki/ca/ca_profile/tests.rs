use super::*;
use crate::keys::local::PrivateKey;
use crate::keys::testing::root;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::extension;
use crate::x509::name::{self, Attribute};
use crate::x509::pieces::Extensions;
use crate::x509::testing::{ISSUER_KEY_KINDS, issue};

/// Returns a self-signed root certificate with one additional extension.
fn root_with_extension(key: &PrivateKey, oid: &[u8], critical: bool, value: &[u8]) -> Certificate {
    let subject = name::name(&[&name::rdn(Attribute::CommonName, &["Root".to_owned()])]);
    let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 0, false).unwrap();
    let more = [extension::basic_constraints(true, None), extension::extension(oid, critical, value)];
    Certificate::parse(&issue(key, algorithm, &subject, &subject, key.public().spki(), &more)).unwrap()
}

fn check_without_other_issuers(certificate: &Certificate) -> Result<Vec<String>> {
    check_ca_profile(certificate, std::iter::empty())
}

#[test]
fn extension_that_verifiers_reject_is_refused_by_name() {
    let key = root("ec", 256).0;
    // Extension values that Go, OpenSSL or `cryptography` rejects, such as NULL and an empty list.
    let (null, empty): (&[u8], &[u8]) = (&[5, 0], &[0x30, 0]);
    for (oid, critical, value, name) in [
        (oid::NAME_CONSTRAINTS, true, empty, "nameConstraints"),
        (oid::NAME_CONSTRAINTS, true, null, "nameConstraints"),
        (
            oid::NAME_CONSTRAINTS,
            true,
            &[0x30, 14, 0xa0, 12, 0x30, 10, 0x87, 8, 10, 0, 0, 0, 255, 0, 255, 0],
            "nameConstraints",
        ),
        (
            oid::NAME_CONSTRAINTS,
            true,
            &[0x30, 12, 0xa1, 10, 0x30, 8, 0x82, 6, b'a', b'.', b'c', b'o', b'm', b'.'],
            "nameConstraints",
        ),
        (oid::EXT_KEY_USAGE, false, null, "extKeyUsage"),
        (oid::EXT_KEY_USAGE, false, empty, "extKeyUsage"),
        (oid::SUBJECT_ALT_NAME, false, null, "subjectAltName"),
        (oid::SUBJECT_ALT_NAME, false, &[0x30, 4, 0x82, 2, b'a', 0xff], "subjectAltName"),
        (oid::SUBJECT_ALT_NAME, false, &[0x30, 7, 0x86, 5, b'u', b':', b'a', b' ', b'b'], "subjectAltName"),
        (oid::AUTHORITY_INFO_ACCESS, false, null, "authorityInfoAccess"),
        (oid::AUTHORITY_INFO_ACCESS, true, empty, "authorityInfoAccess"),
        (oid::CRL_DISTRIBUTION_POINTS, false, null, "cRLDistributionPoints"),
        (oid::CERTIFICATE_POLICIES, false, null, "certificatePolicies"),
        (oid::POLICY_CONSTRAINTS, true, empty, "policyConstraints"),
        (oid::POLICY_CONSTRAINTS, false, empty, "policyConstraints"),
        // Each list has an element that all verifiers accept, followed by an element that all verifiers reject.
        // nameConstraints: a wildcard, then a non-contiguous mask. subjectAltName: a host name with a space, then a URI
        // with a space.
        (
            oid::NAME_CONSTRAINTS,
            true,
            &[
                0x30, 25, 0xa1, 23, 0x30, 9, 0x82, 7, b'*', b'.', b'a', b'.', b'c', b'o', b'm', 0x30, 10, 0x87, 8, 10,
                0, 0, 0, 255, 0, 255, 0,
            ],
            "nameConstraints",
        ),
        (
            oid::SUBJECT_ALT_NAME,
            false,
            &[0x30, 12, 0x82, 3, b'a', b' ', b'b', 0x86, 5, b'u', b':', b'a', b' ', b'b'],
            "subjectAltName",
        ),
        // subjectAltName with an empty name, followed by a name that is longer than the list.
        (oid::SUBJECT_ALT_NAME, false, &[0x30, 5, 0x82, 0, 0x82, 9, b'a'], "subjectAltName"),
        (oid::PROXY_CERT_INFO, false, null, "proxyCertInfo"),
    ] {
        let error = check_without_other_issuers(&root_with_extension(&key, oid, critical, value)).expect_err(name);
        assert!(error.text().starts_with(&format!("certificate: {name}: ")), "{error}");
    }
}

#[test]
fn tolerated_rules_are_rules_of_the_profile() {
    let sources = [
        include_str!("../../../x509/general_name.rs"),
        include_str!("../../../x509/profile.rs"),
        include_str!("../../../x509/profile/general_name.rs"),
        include_str!("../../../x509/profile/points.rs"),
        include_str!("../../../x509/profile/policies.rs"),
        include_str!("../../../x509/profile/text.rs"),
    ];
    for rule in TOLERATED_RULES {
        assert!(sources.iter().any(|source| source.contains(rule)), "{rule}");
    }
}

#[test]
fn violation_that_verifiers_accept_is_a_warning() {
    let key = root("ec", 256).0;
    let aia = |uri: &[u8]| {
        let name = [&[0x86, uri.len() as u8][..], uri].concat();
        let description = [&[0x30, name.len() as u8 + 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 48, 2][..], &name].concat();
        [&[0x30, description.len() as u8][..], &description].concat()
    };
    let empty = vec![0x30, 0];
    for (oid, value) in [
        (oid::SUBJECT_ALT_NAME, empty.clone()),
        (oid::SUBJECT_ALT_NAME, vec![0x30, 7, 0x82, 5, b'M', b'y', b' ', b'C', b'A']),
        (oid::SUBJECT_ALT_NAME, vec![0x30, 2, 0x82, 0]),
        (oid::AUTHORITY_INFO_ACCESS, empty.clone()),
        (oid::AUTHORITY_INFO_ACCESS, aia(b"ldap:///CN=a b")),
        (oid::CRL_DISTRIBUTION_POINTS, empty.clone()),
        (oid::CERTIFICATE_POLICIES, empty.clone()),
        (oid::POLICY_MAPPINGS, empty),
        (oid::POLICY_CONSTRAINTS, vec![0x30, 3, 0x80, 1, 5]),
        (oid::SUBJECT_KEY_ID, vec![4, 0]),
        (oid::KEY_USAGE, vec![3, 2, 0, 6]),
        (oid::NAME_CONSTRAINTS, [&[0x30, 13, 0xa1, 11, 0x30, 9, 0x82, 7][..], b"*.a.com"].concat()),
    ] {
        let unusual = check_without_other_issuers(&root_with_extension(&key, oid, false, &value)).unwrap();
        assert_eq!(unusual.len(), 1, "{unusual:?}");
    }
    assert_eq!(
        check_without_other_issuers(&root_with_extension(&key, &[0x2a, 3, 4], false, &[0xff])).unwrap(),
        Vec::<String>::new(),
        "unknown extensions are not checked"
    );
    for (kind, bits) in ISSUER_KEY_KINDS {
        assert_eq!(check_without_other_issuers(&root(kind, i64::from(*bits)).1).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn self_issued_certificate_is_signed_by_itself_or_known_issuer() {
    let (before, _) = root("ec", 256);
    let (after, _) = root("ec", 256);
    let subject = name::name(&[&name::rdn(Attribute::CommonName, &["Root".to_owned()])]);
    let algorithm = SignatureAlgorithm::for_issuer(before.kind(), 0, false).unwrap();
    let ca = extension::basic_constraints(true, None);
    let signed = |by: &PrivateKey, of: &PrivateKey, more: &[Extensions]| {
        let all = [std::slice::from_ref(&ca), more].concat();
        Certificate::parse(&issue(by, algorithm, &subject, &subject, of.public().spki(), &all)).unwrap()
    };
    let crossed = signed(&before, &after, &[]);
    let error = check_without_other_issuers(&crossed).unwrap_err();
    assert!(error.text().contains("its signature does not verify"), "{error}");
    let own = signed(&before, &before, &[]);
    assert!(check_ca_profile(&crossed, [&own].into_iter()).is_ok(), "the signing key is known");
    let id = |n: u8| [extension::subject_key_id(&[1; 20]), extension::authority_key_id(&[n; 20])];
    assert!(check_without_other_issuers(&signed(&before, &after, &id(1))).is_err(), "it names its own key");
    assert!(check_without_other_issuers(&signed(&before, &after, &id(2))).is_ok(), "it names another");
}

#[test]
fn ca_properties_that_break_chains_are_reported() {
    let key = root("ec", 256).0;
    // The OID of a private extension, 1.3.9.9.9.
    let private: &[u8] = &[0x2b, 9, 9, 9];
    let text = |oid: &str| {
        format!(
            "certificate: the extension {oid} is critical; verifiers that do not support it reject the certificate \
             (RFC 5280 4.2); certificates below this CA may not verify"
        )
    };
    for (oid, critical, wanted) in [
        (private, true, vec![text("1.3.9.9.9")]),
        (private, false, vec![]),
        (oid::PRECERTIFICATE_POISON, true, vec![text("1.3.6.1.4.1.11129.2.4.3")]),
    ] {
        assert_eq!(
            check_without_other_issuers(&root_with_extension(&key, oid, critical, &[5, 0])).unwrap(),
            wanted,
            "{oid:?}"
        );
    }
    // nameConstraints with a dNSName, and with a directoryName without attributes.
    let (dns, directory): (&[u8], &[u8]) =
        (&[0x30, 7, 0xa1, 5, 0x30, 3, 0x82, 1, b'a'], &[0x30, 8, 0xa1, 6, 0x30, 4, 0xa4, 2, 0x30, 0]);
    let unread = "certificate: nameConstraints are critical and constrain other names than dNSName, iPAddress, rfc822Name \
                  and URI, which Go refuses (RFC 5280 4.2.1.10); certificates below this CA may not verify";
    for (value, wanted) in [(dns, vec![]), (directory, vec![unread.to_owned()])] {
        assert_eq!(
            check_without_other_issuers(&root_with_extension(&key, oid::NAME_CONSTRAINTS, true, value)).unwrap(),
            wanted,
            "{value:?}"
        );
    }
    // notBefore and notAfter are encoded with the same length, so they can be swapped.
    let sound = root_with_extension(&key, private, false, &[5, 0]);
    assert_eq!(path_problems(&sound).count(), 0);
    let der = sound.der();
    let at = der.windows(2).position(|pair| pair == [0x17, 13]).unwrap();
    let time = |at: usize| &der[at..at + 15];
    let inverted = [&der[..at], time(at + 15), time(at), &der[at + 30..]].concat();
    let unusual: Vec<_> = path_problems(&Certificate::parse(&inverted).unwrap()).collect();
    assert_eq!(unusual, ["certificate: notAfter is before notBefore: certificates below it may not verify"]);
}

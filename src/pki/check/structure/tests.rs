//! Each check must reject its specific defect, and valid certificates must pass all checks.

use super::*;
use crate::x509::crl::{CrlTbs, EncodedCrlTbs};
use crate::x509::extension::{self, NameConstraints};
use crate::x509::name::{self, Attribute, rdn};
use crate::x509::pieces::Extensions;
use crate::x509::serial::Serial;
use crate::x509::tbs::CertificateTbs;
use crate::x509::time;
use crate::x509::writer::{OCTET_STRING, build};

const KEY_ID: [u8; 2] = [7, 7];

/// The parts of a valid certificate that tests change.
struct TestCertificate {
    serial: Vec<u8>,
    issuer: Name,
    subject: Name,
    span: (i64, i64),
    extensions: Vec<Extensions>,
}

fn named(text: &str) -> Name {
    name::name(&[&rdn(Attribute::CommonName, &[text.to_owned()])])
}

fn leaf() -> TestCertificate {
    let sans = extension::SubjectAltNames { dns: vec!["a.test".into()], ..Default::default() };
    TestCertificate {
        serial: vec![0x7f; 20],
        issuer: named("CA"),
        subject: named("a.test"),
        span: (0, 1000),
        extensions: vec![
            extension::key_usage(KeyUsage::DIGITAL_SIGNATURE),
            extension::subject_key_id(&[1]),
            extension::authority_key_id(&KEY_ID),
            extension::subject_alt_name(&sans, false),
        ],
    }
}

fn authority() -> TestCertificate {
    TestCertificate {
        extensions: vec![
            extension::key_usage(KeyUsage::CERT_SIGN),
            extension::basic_constraints(true, Some(0)),
            extension::subject_key_id(&[1]),
            extension::authority_key_id(&KEY_ID),
        ],
        ..leaf()
    }
}

impl TestCertificate {
    fn tbs(&self) -> Vec<u8> {
        let extensions: Vec<&Extensions> = self.extensions.iter().collect();
        CertificateTbs {
            serial: &Serial::from_octets(&self.serial).unwrap(),
            algorithm: SignatureAlgorithm::Ed25519,
            issuer: &self.issuer,
            not_before: time::from_epoch(self.span.0),
            not_after: time::from_epoch(self.span.1),
            subject: &self.subject,
            spki: &[0x30, 0],
            extensions: &extensions,
        }
        .encode()
    }

    /// Replaces the extension with the same OID, else appends it.
    fn with(mut self, extension: Extensions) -> Self {
        let oid = |e: &Extensions| ExtensionRef::next(&mut DerReader::new(e.as_der())).unwrap().oid.to_vec();
        match self.extensions.iter().position(|e| oid(e) == oid(&extension)) {
            Some(at) => self.extensions[at] = extension,
            None => self.extensions.push(extension),
        }
        self
    }

    fn without(mut self, at: usize) -> Self {
        self.extensions.remove(at);
        self
    }

    fn check(&self, certificate_kind: CertificateKind) -> Result<()> {
        let issuer = named("CA");
        let expected = ExpectedIssuer {
            algorithm: SignatureAlgorithm::Ed25519,
            issuer: &issuer,
            key_id: &KEY_ID,
            sources: &CERTIFICATE_SOURCES,
        };
        lint_certificate_structure(&self.tbs(), certificate_kind, &expected)
    }
}

/// Sources that name the field `certificate` for every part.
const CERTIFICATE_SOURCES: FieldSources = FieldSources::all("certificate");

/// Encodes an extension with a value that the server's encoders do not produce.
fn custom_extension(oid: &[u8], critical: bool, value: &[u8]) -> Extensions {
    extension::extension(oid, critical, value)
}

#[test]
fn good_certificates_pass() {
    leaf().check(CertificateKind::Leaf).unwrap();
    authority().check(CertificateKind::Authority).unwrap();
    authority().check(CertificateKind::CrossSigned).unwrap();
    let policies = [
        custom_extension(oid::POLICY_CONSTRAINTS, true, &[0x30, 3, 0x80, 1, 0]),
        custom_extension(oid::INHIBIT_ANY_POLICY, true, &[2, 1, 0]),
    ];
    let policies = policies.into_iter().fold(authority().with(policy_mappings()), TestCertificate::with);
    policies.check(CertificateKind::Authority).unwrap();
    TestCertificate { span: (0, time::MAX_EPOCH_SECONDS), ..leaf() }.check(CertificateKind::Leaf).unwrap();
}

#[test]
fn each_rule_for_leaf_certificates_is_enforced() {
    let empty_name = || name::name(&[]);
    let cases: Vec<(&str, TestCertificate)> = vec![
        ("4.1.2.2", TestCertificate { serial: vec![0], ..leaf() }),
        ("7.1", TestCertificate { serial: vec![1; 7], ..leaf() }),
        ("4.1.2.4", TestCertificate { issuer: named("Other CA"), ..leaf() }),
        ("4.1.2.5", TestCertificate { span: (1000, 1000), ..leaf() }),
        (
            "RelativeDistinguishedName",
            TestCertificate { subject: Name::from_der(&[SEQUENCE, 2, 0x31, 0]).unwrap(), ..leaf() },
        ),
        ("control characters", TestCertificate { subject: named("a\u{0}b"), ..leaf() }),
        ("appears twice", {
            let mut certificate = leaf();
            certificate.extensions.push(extension::subject_key_id(&[2]));
            certificate
        }),
        ("4.1.2.9", TestCertificate { extensions: vec![custom_extension(oid::KEY_USAGE, true, &[])], ..leaf() }),
        ("authorityKeyIdentifier is missing", leaf().without(2)),
        ("authorityKeyIdentifier is not", leaf().with(extension::authority_key_id(&[9]))),
        (
            "authorityKeyIdentifier: must not be critical",
            leaf().with(custom_extension(oid::AUTHORITY_KEY_ID, true, &[0x30, 4, 0x80, 2, 7, 7])),
        ),
        ("subjectKeyIdentifier is missing", leaf().without(1)),
        ("subjectKeyIdentifier: must not be empty", leaf().with(custom_extension(oid::SUBJECT_KEY_ID, false, &[4, 0]))),
        (
            "subjectKeyIdentifier: must not be critical",
            leaf().with(custom_extension(oid::SUBJECT_KEY_ID, true, &[4, 1, 1])),
        ),
        ("at least one bit", leaf().with(custom_extension(oid::KEY_USAGE, true, &[3, 1, 0]))),
        ("X.690 11.2.2", leaf().with(custom_extension(oid::KEY_USAGE, true, &[3, 2, 0, 0x80]))),
        ("keyCertSign needs", leaf().with(extension::key_usage(KeyUsage::CERT_SIGN))),
        (
            "certificatePolicies: must not be empty",
            leaf().with(custom_extension(oid::CERTIFICATE_POLICIES, false, &[0x30, 0])),
        ),
        (
            "policy appears twice",
            leaf().with(custom_extension(
                oid::CERTIFICATE_POLICIES,
                false,
                &[0x30, 10, 0x30, 3, 6, 1, 42, 0x30, 3, 6, 1, 42],
            )),
        ),
        ("subjectAltName: must not be empty", leaf().with(custom_extension(oid::SUBJECT_ALT_NAME, false, &[0x30, 0]))),
        ("name is empty", leaf().with(custom_extension(oid::SUBJECT_ALT_NAME, false, &[0x30, 2, 0x82, 0]))),
        ("4 or 16 octets", leaf().with(custom_extension(oid::SUBJECT_ALT_NAME, false, &[0x30, 3, 0x87, 1, 1]))),
        ("must be critical when the subject is empty", TestCertificate { subject: empty_name(), ..leaf() }),
        ("has no name", TestCertificate { subject: empty_name(), ..leaf() }.without(3)),
        ("has no name", TestCertificate { subject: name_with_an_empty_value(), ..leaf() }.without(3)),
        ("value of an attribute is empty", TestCertificate { subject: empty_common_name(), ..leaf() }),
        (
            "directoryName is empty",
            leaf().with(custom_extension(oid::SUBJECT_ALT_NAME, false, &[0x30, 4, 0xa4, 2, 0x30, 0])),
        ),
        ("4.1.2.4", TestCertificate { issuer: empty_name(), ..leaf() }),
        (
            "more than 100 extensions",
            (0..97).fold(leaf(), |leaf, n| leaf.with(custom_extension(&[0x2a, 3, n], false, &[5, 0]))),
        ),
        ("longer than 46 KiB", leaf().with(custom_extension(&[0x2a, 3], false, &[0; 47 << 10]))),
        (
            "more than 1000 certificate policies",
            leaf().with(custom_extension(oid::CERTIFICATE_POLICIES, false, &policies(1001))),
        ),
        (
            "more than 1000 subject alternative",
            leaf().with(custom_extension(oid::SUBJECT_ALT_NAME, false, &host_names(1001))),
        ),
        ("cA must be TRUE for a CA", leaf().with(extension::basic_constraints(true, None))),
        ("a path length needs", leaf().with(custom_extension(oid::BASIC_CONSTRAINTS, true, &[0x30, 3, 2, 1, 0]))),
        ("nameConstraints need", leaf().with(extension::name_constraints(&dns_constraints()))),
        ("policyMappings need cA TRUE", leaf().with(policy_mappings())),
        (
            "policyConstraints need cA TRUE",
            leaf().with(custom_extension(oid::POLICY_CONSTRAINTS, true, &[0x30, 3, 0x80, 1, 0])),
        ),
        ("inhibitAnyPolicy needs cA TRUE", leaf().with(custom_extension(oid::INHIBIT_ANY_POLICY, true, &[2, 1, 0]))),
        ("extKeyUsage: must not be empty", leaf().with(custom_extension(oid::EXT_KEY_USAGE, false, &[0x30, 0]))),
        (
            "cRLDistributionPoints: must not be empty",
            leaf().with(custom_extension(oid::CRL_DISTRIBUTION_POINTS, false, &[0x30, 0])),
        ),
        ("freshestCRL: must not be empty", leaf().with(custom_extension(oid::FRESHEST_CRL, false, &[0x30, 0]))),
        (
            "authorityInfoAccess: truncated DER",
            leaf().with(custom_extension(oid::AUTHORITY_INFO_ACCESS, false, &[0x30, 2, 0x30, 0])),
        ),
        (
            "X.690 11.5",
            leaf().with({
                let explicit = build(SEQUENCE, 0, |w| {
                    w.oid(oid::SUBJECT_KEY_ID);
                    w.tlv(crate::x509::writer::BOOLEAN, &[0]);
                    w.tlv(OCTET_STRING, &[4, 1, 1]);
                });
                Extensions::from_der(&explicit).unwrap()
            }),
        ),
    ];
    for (rule, certificate) in cases {
        let refusal = certificate.check(CertificateKind::Leaf).expect_err(rule);
        let text = refusal.text();
        let found = text.contains(rule) || (rule == "4.1.2.9" && text.starts_with("certificate: "));
        assert!(found, "{rule}: {text}");
    }
}

/// A subject with a single attribute, which has an unknown type and an empty value.
fn name_with_an_empty_value() -> Name {
    Name::from_der(&[SEQUENCE, 10, 0x31, 8, 0x30, 6, 6, 2, 42, 3, 0x0c, 0]).unwrap()
}

fn empty_common_name() -> Name {
    Name::from_der(&[SEQUENCE, 11, 0x31, 9, 0x30, 7, 6, 3, 0x55, 4, 3, 0x0c, 0]).unwrap()
}

fn policies(count: u64) -> Vec<u8> {
    let oid = |n| extension::parse_oid(&format!("1.2.{n}")).unwrap();
    build(SEQUENCE, 0, |w| (0..count).for_each(|n| w.nest(SEQUENCE, |w| w.oid(&oid(n)))))
}

fn policy_mappings() -> Extensions {
    custom_extension(oid::POLICY_MAPPINGS, true, &[0x30, 10, 0x30, 8, 6, 2, 42, 3, 6, 2, 42, 4])
}

fn host_names(count: usize) -> Vec<u8> {
    build(SEQUENCE, 0, |w| (0..count).for_each(|_| w.tlv(context(2), b"a.test")))
}

fn dns_constraints() -> NameConstraints {
    let mut constraints = NameConstraints::default();
    constraints.permitted.dns.push("a.test".into());
    constraints
}

#[test]
fn each_rule_for_ca_certificates_is_enforced() {
    let many = |count| NameConstraints {
        permitted: extension::Subtrees { dns: vec!["a.test".into(); count], ..Default::default() },
        ..Default::default()
    };
    authority().with(extension::name_constraints(&many(1000))).check(CertificateKind::Authority).unwrap();
    let cases: Vec<(&str, TestCertificate)> = vec![
        ("more than 1000 permitted or excluded subtrees", authority().with(extension::name_constraints(&many(1001)))),
        ("a CA certificate must have a subject", TestCertificate { subject: name::name(&[]), ..authority() }),
        (
            "a CA certificate must have a subject",
            TestCertificate { subject: name_with_an_empty_value(), ..authority() },
        ),
        ("a CA certificate must have keyUsage", authority().without(0)),
        ("must have keyCertSign", authority().with(extension::key_usage(KeyUsage::CRL_SIGN))),
        ("cA must be TRUE for a CA", authority().without(1)),
        ("must be critical", authority().with(custom_extension(oid::BASIC_CONSTRAINTS, false, &[0x30, 3, 1, 1, 0xff]))),
        (
            "nameConstraints must be critical",
            authority().with(custom_extension(
                oid::NAME_CONSTRAINTS,
                false,
                &[0x30, 7, 0xa0, 5, 0x30, 3, 0x82, 1, b'a'],
            )),
        ),
        (
            "nameConstraints: must not be empty",
            authority().with(custom_extension(oid::NAME_CONSTRAINTS, true, &[0x30, 0])),
        ),
        (
            "nameConstraints: must not be empty",
            authority().with(custom_extension(oid::NAME_CONSTRAINTS, true, &[0x30, 2, 0xa0, 0])),
        ),
    ];
    for (rule, certificate) in cases {
        let refusal = certificate.check(CertificateKind::Authority).expect_err(rule);
        assert!(refusal.text().contains(rule), "{rule}: {}", refusal.text());
    }
}

#[test]
fn cross_signed_certificate_needs_only_the_structure_rules() {
    TestCertificate { serial: vec![1], ..authority() }.check(CertificateKind::CrossSigned).unwrap();
    authority().without(2).check(CertificateKind::CrossSigned).unwrap();
    authority().without(0).check(CertificateKind::CrossSigned).unwrap();
    assert!(TestCertificate { subject: name::name(&[]), ..authority() }.check(CertificateKind::CrossSigned).is_err());
    assert!(leaf().check(CertificateKind::CrossSigned).is_err());
    assert!(authority().without(3).check(CertificateKind::CrossSigned).is_err());
}

#[test]
fn template_may_change_only_the_serial_number() {
    for (certificate, plain, template) in [
        (leaf(), CertificateKind::Leaf, CertificateKind::TemplateLeaf),
        (authority(), CertificateKind::Authority, CertificateKind::TemplateAuthority),
    ] {
        certificate.check(template).unwrap();
        let short = TestCertificate { serial: vec![1], ..certificate };
        assert!(short.check(plain).is_err());
        short.check(template).unwrap();
    }
    assert!(authority().check(CertificateKind::TemplateLeaf).is_err());
    assert!(leaf().check(CertificateKind::TemplateAuthority).is_err());
    for at in 0..4 {
        let without = authority().without(at);
        assert_eq!(
            without.check(CertificateKind::Authority).is_err(),
            without.check(CertificateKind::TemplateAuthority).is_err(),
            "{at}"
        );
        assert!(without.check(CertificateKind::TemplateAuthority).is_err(), "{at}");
    }
}

#[test]
fn algorithm_version_and_time_form_are_read_from_the_bytes() {
    let issuer = named("CA");
    let expected = ExpectedIssuer {
        algorithm: SignatureAlgorithm::Ed25519,
        issuer: &issuer,
        key_id: &KEY_ID,
        sources: &CERTIFICATE_SOURCES,
    };
    let good = leaf().tbs();
    let other = ExpectedIssuer {
        algorithm: SignatureAlgorithm::Ecdsa(crate::x509::algorithm::Hash::Sha256),
        issuer: &issuer,
        key_id: &KEY_ID,
        sources: &CERTIFICATE_SOURCES,
    };
    assert!(lint_certificate_structure(&good, CertificateKind::Leaf, &other).unwrap_err().text().contains("4.1.2.3"));
    let mut version = good.clone();
    let at = version.windows(5).position(|w| w == [0xa0, 3, 2, 1, 2]).unwrap();
    version[at + 4] = 1;
    assert!(
        lint_certificate_structure(&version, CertificateKind::Leaf, &expected).unwrap_err().text().contains("4.1.2.1")
    );
    // Encode 1970 as GeneralizedTime, which is two bytes longer. So add 2 to the length of every enclosing value.
    let utc: &[u8] = b"\x17\x0d700101000000Z";
    let generalized: &[u8] = b"\x18\x0f19700101000000Z";
    let at = good.windows(utc.len()).position(|w| w == utc).unwrap();
    let mut form = [&good[..at], generalized, &good[at + utc.len()..]].concat();
    form[at - 1] += 2;
    assert_eq!(good[1], 0x81, "the length has one octet more");
    form[2] += 2;
    assert!(
        lint_certificate_structure(&form, CertificateKind::Leaf, &expected).unwrap_err().text().contains("UTCTime")
    );
}

#[test]
fn each_rule_for_crls_is_enforced() {
    let issuer = named("CA");
    let expected = ExpectedIssuer {
        algorithm: SignatureAlgorithm::Ed25519,
        issuer: &issuer,
        key_id: &KEY_ID,
        sources: &CERTIFICATE_SOURCES,
    };
    let tbs = |issuer: &Name, next_update, extensions: &[Extensions]| {
        let extensions: Vec<&Extensions> = extensions.iter().collect();
        let algorithm = SignatureAlgorithm::Ed25519;
        CrlTbs { algorithm, issuer, this_update: 0, next_update, extensions: &extensions }.encode(Vec::new())
    };
    let key_id = extension::authority_key_id(&KEY_ID);
    let number = extension::crl_number(1);
    let both = [key_id.clone(), number.clone()];
    let freshest = extension::freshest_crl(&["http://a.test/delta".to_owned()]);
    let delta = extension::delta_crl_indicator;
    lint_crl_structure(&tbs(&issuer, 9, &both), &expected).unwrap();
    lint_crl_structure(&tbs(&issuer, 9, &[&both[..], std::slice::from_ref(&freshest)].concat()), &expected).unwrap();
    lint_crl_structure(&tbs(&issuer, 9, &[&both[..], &[delta(1)]].concat()), &expected).unwrap();
    let cases = [
        ("5.1.2.3", tbs(&named("B"), 9, &both)),
        ("5.1.2.5", tbs(&issuer, 0, &both)),
        ("5.2.3", tbs(&issuer, 9, std::slice::from_ref(&key_id))),
        ("authorityKeyIdentifier", tbs(&issuer, 9, std::slice::from_ref(&number))),
        ("appears twice", tbs(&issuer, 9, &[key_id.clone(), number.clone(), number.clone()])),
        (
            "deltaCRLIndicator: must be critical",
            tbs(
                &issuer,
                9,
                &[key_id.clone(), number.clone(), custom_extension(oid::DELTA_CRL_INDICATOR, false, &[2, 1, 1])],
            ),
        ),
        ("base CRL number is above", tbs(&issuer, 9, &[key_id.clone(), number.clone(), delta(2)])),
        ("base CRL number is above", tbs(&issuer, 9, &[key_id.clone(), number.clone(), delta(256)])),
        ("freshestCRL must not be in a delta", tbs(&issuer, 9, &[&both[..], &[delta(1), freshest.clone()]].concat())),
        ("freshestCRL: must not be critical", {
            let critical = custom_extension(
                oid::FRESHEST_CRL,
                true,
                ExtensionRef::next(&mut DerReader::new(freshest.as_der())).unwrap().value,
            );
            tbs(&issuer, 9, &[&both[..], &[critical]].concat())
        }),
        (
            "issuingDistributionPoint: must not be empty",
            tbs(
                &issuer,
                9,
                &[&both[..], &[custom_extension(oid::ISSUING_DISTRIBUTION_POINT, true, &[0x30, 0])]].concat(),
            ),
        ),
    ];
    for (rule, list) in cases {
        let refusal = lint_crl_structure(&list, &expected).expect_err(rule);
        assert!(refusal.text().contains(rule), "{rule}: {}", refusal.text());
    }
    // Insert an empty revokedCertificates after the two times, or encode wrong lengths in the CRL.
    let good = tbs(&issuer, 9, &both);
    assert!(good.head()[1] < 0x7c, "the length has one octet");
    let refused = |more: u8, header: &[u8], entries: &[u8], rule: &str| {
        let mut head = [good.head(), header].concat();
        head[1] += more;
        let refusal =
            lint_crl_structure(&EncodedCrlTbs::from_parts(&head, entries, good.tail()), &expected).expect_err(rule);
        assert!(refusal.text().contains(rule), "{rule}: {}", refusal.text());
    };
    refused(2, &[SEQUENCE, 0], &[], "5.1.2.6");
    refused(4, &[SEQUENCE, 1], &[5, 0], "length of revokedCertificates is wrong");
    refused(2, &[], &[5, 0], "length of revokedCertificates is wrong");
    refused(3, &[SEQUENCE, 2], &[5, 0], "length of the CRL is wrong");
}

#[test]
fn lint_error_names_the_source_field() {
    let sources = FieldSources::all("csr").with_subject("common_name").with_extension(oid::KEY_USAGE, "key_usage");
    let issuer = named("CA");
    let expected =
        ExpectedIssuer { algorithm: SignatureAlgorithm::Ed25519, issuer: &issuer, key_id: &KEY_ID, sources: &sources };
    let refused = |certificate: TestCertificate| {
        lint_certificate_structure(&certificate.tbs(), CertificateKind::Leaf, &expected).unwrap_err().text().to_owned()
    };
    let usage = |bits: &[u8]| leaf().with(custom_extension(oid::KEY_USAGE, true, bits));
    for (certificate, text) in [
        (TestCertificate { subject: named("a\nb"), ..leaf() }, "common_name: subject: "),
        (usage(&[3, 1, 0]), "key_usage: keyUsage: "),
        (leaf().with(extension::key_usage(KeyUsage::CERT_SIGN)), "key_usage: keyCertSign needs cA TRUE"),
        (leaf().with(custom_extension(oid::EXT_KEY_USAGE, false, &[0x30, 0])), "csr: extKeyUsage: "),
        (leaf().with(policy_mappings()), "csr: policyMappings need cA TRUE"),
    ] {
        let refused = refused(certificate);
        assert!(refused.starts_with(text), "{refused} for {text}");
    }
}

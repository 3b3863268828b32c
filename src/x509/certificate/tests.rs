//! `openssl` reads certificates that the server's encoders wrote, and the server's parser reads certificates of
//! `openssl`.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::x509::algorithm::Hash;
use crate::x509::extension::{self, CertificatePolicy, NameConstraints, SubjectAltNames, Subtrees};
use crate::x509::name::{Attribute, rdn};
use crate::x509::tbs::{CertificateTbs, encode_signed};
use crate::x509::testing::{ISSUER_KEY_KINDS, OPENSSL_KEY_ARGUMENTS, OpenSsl, TestKey, TestSigner, issue, root};
use crate::x509::time;
use crate::x509::{name, oid, pem};

fn text_list(values: &[&str]) -> Vec<String> {
    values.iter().map(|&v| v.to_owned()).collect()
}

/// All extensions of a leaf, in the order of the profile.
fn leaf_extensions(leaf: &PublicKey, issuer: &Certificate) -> Vec<Extensions> {
    let names = SubjectAltNames {
        dns: text_list(&["a.example", "*.b.example"]),
        emails: text_list(&["m@example"]),
        ips: vec!["10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        uris: text_list(&["spiffe://a/b"]),
        other: vec![(extension::parse_oid("1.3.6.1.4.1.311.20.2.3").unwrap(), "u@example".into())],
    };
    let policy = |oid, cps: Option<&str>, notice: Option<&str>| CertificatePolicy {
        oid: extension::parse_oid(oid).unwrap(),
        cps: cps.map(Into::into),
        notice: notice.map(Into::into),
    };
    let policies = [
        policy("1.3.6.1.4.1.7.8", None, None),
        policy("1.3.6.1.4.1.7.9", Some("http://cps.example/"), Some("Hinweis ü")),
    ];
    vec![
        extension::key_usage(KeyUsage::from_names(&text_list(&["DigitalSignature", "KeyEncipherment"]))),
        extension::ext_key_usage(
            &extension::eku_oids(&[], true, true, false, false, &text_list(&["1.2.3.4"])).unwrap(),
        ),
        extension::basic_constraints(false, None),
        extension::subject_key_id(&leaf.key_id()),
        extension::authority_key_id(issuer.subject_key_id().unwrap()),
        extension::authority_info_access(&text_list(&["http://ocsp.example"]), &text_list(&["http://ca.example"])),
        extension::subject_alt_name(&names, false),
        extension::certificate_policies(&policies),
        extension::crl_distribution_points(&text_list(&["http://crl.example/1", "http://crl.example/2"])),
        extension::freshest_crl(&text_list(&["http://crl.example/delta"])),
    ]
}

fn leaf_subject() -> Name {
    name::name(&[
        &rdn(Attribute::Country, &text_list(&["DE"])),
        &rdn(Attribute::Organization, &text_list(&["Bücher & Co"])),
        &rdn(Attribute::OrganizationalUnit, &text_list(&["b", "a"])),
        &rdn(Attribute::CommonName, &text_list(&["a.example"])),
        &rdn(Attribute::UserId, &text_list(&["humanoid"])),
    ])
}

fn verify_leaf_strictly(openssl: &OpenSsl, root: &Certificate, leaf: &[u8]) -> String {
    let ca = openssl.file("ca.pem", pem::encode("CERTIFICATE", root.der()));
    let leaf = openssl.file("leaf.pem", pem::encode("CERTIFICATE", leaf));
    openssl.run(&["verify", "-x509_strict", "-check_ss_sig", "-CAfile", &ca, &ca]);
    openssl.run(&["verify", "-x509_strict", "-check_ss_sig", "-purpose", "sslserver", "-CAfile", &ca, &leaf]);
    openssl.text(&["x509", "-in", &leaf, "-noout", "-text", "-nameopt", "RFC2253"])
}

#[test]
fn roots_and_leaves_of_every_key_kind_satisfy_openssl() {
    let openssl = OpenSsl::new();
    let leaf_kinds = [("rsa", 2048), ("ec", 224), ("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0)];
    for ((key_type, bits), (leaf_type, leaf_bits)) in ISSUER_KEY_KINDS.iter().cycle().zip(leaf_kinds) {
        let (key, root) = root(key_type, *bits);
        assert!(root.is_ca() && root.is_signed_by(root.key()) && root.is_self_signed());
        let leaf = TestKey::generate(leaf_type, leaf_bits);
        let extensions = leaf_extensions(leaf.public_key(), &root);
        let algorithm = root.signature_algorithm().unwrap();
        let der = issue(&key, algorithm, root.subject(), &leaf_subject(), leaf.public_key().spki(), &extensions);
        let text = verify_leaf_strictly(&openssl, &root, &der);
        for expected in [
            "Version: 3",
            "UID=humanoid,CN=a.example,OU=b+OU=a",
            "DNS:a.example, DNS:*.b.example, email:m@example, IP Address:10.0.0.1, IP Address:2001:DB8:0:0:0:0:0:1, URI:spiffe://a/b",
            "othername: UPN::u@example",
            "OCSP - URI:http://ocsp.example",
            "CA Issuers - URI:http://ca.example",
            "TLS Web Server Authentication, TLS Web Client Authentication, 1.2.3.4",
            "X509v3 Key Usage: critical",
            "X509v3 Basic Constraints: critical\n                CA:FALSE",
            "CPS: http://cps.example/",
            "URI:http://crl.example/2",
            "X509v3 Freshest CRL:",
        ] {
            assert!(text.contains(expected), "{key_type} {leaf_type} {expected}: {text}");
        }
        let read = Certificate::parse(&der).unwrap();
        assert!(read.is_signed_by(root.key()) && !read.is_ca() && !read.is_self_signed());
        assert_eq!((read.subject(), read.issuer()), (&leaf_subject(), root.subject()));
        assert_eq!(read.key(), leaf.public_key());
        assert_eq!(read.extensions().iter().map(|e| e.raw.clone()).collect::<Vec<_>>(), extensions);
        assert_eq!(read.authority_key_id().as_deref(), root.subject_key_id());
        assert_eq!((read.not_before(), read.not_after()), (1_700_000_000, 2_500_000_000));
        assert_eq!(read.common_name(), "a.example");
    }
}

#[test]
fn every_rsa_algorithm_satisfies_openssl() {
    let openssl = OpenSsl::new();
    let (key, root) = root("rsa", 2048);
    for hash in [Hash::Sha256, Hash::Sha384, Hash::Sha512] {
        for algorithm in [SignatureAlgorithm::RsaPkcs1(hash), SignatureAlgorithm::RsaPss(hash)] {
            let extensions = leaf_extensions(key.public_key(), &root);
            let der = issue(&key, algorithm, root.subject(), &leaf_subject(), key.public_key().spki(), &extensions);
            let text = verify_leaf_strictly(&openssl, &root, &der);
            if let SignatureAlgorithm::RsaPss(_) = algorithm {
                assert!(
                    text.contains("rsassaPss") && text.contains(&format!("Salt Length: 0x{:02X}", hash.digest_len())),
                    "{text}"
                );
            }
            let read = Certificate::parse(&der).unwrap();
            assert_eq!(read.signature_algorithm(), Some(algorithm));
            assert!(read.is_signed_by(root.key()));
        }
    }
}

#[test]
fn name_constraints_and_far_dates_satisfy_openssl() {
    let openssl = OpenSsl::new();
    let (key, root) = root("ec", 256);
    let constraints = NameConstraints {
        permitted: Subtrees {
            dns: text_list(&[".a.com", "b.com"]),
            ips: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            ..Default::default()
        },
        excluded: Subtrees { emails: text_list(&["x.com"]), uris: text_list(&[".y.com"]), ..Default::default() },
    };
    let extensions = [
        extension::key_usage(KeyUsage::CERT_SIGN),
        extension::basic_constraints(true, Some(0)),
        extension::subject_key_id(&[0xaa, 0xbb]),
        extension::authority_key_id(root.subject_key_id().unwrap()),
        extension::name_constraints(&constraints),
    ];
    let pieces: Vec<&Extensions> = extensions.iter().collect();
    let algorithm = root.signature_algorithm().unwrap();
    let tbs = CertificateTbs {
        serial: &Serial::from_octets(&[0xff]).unwrap(),
        algorithm,
        issuer: root.subject(),
        not_before: time::from_epoch(0),
        not_after: time::from_epoch(time::MAX_EPOCH_SECONDS),
        subject: &leaf_subject(),
        spki: key.public_key().spki(),
        extensions: &pieces,
    }
    .encode();
    let der = encode_signed(&tbs, algorithm, &key.signature(algorithm, &tbs));
    let text = verify_ca_strictly(&openssl, &root, &der);
    for expected in [
        "Serial Number: 255 (0xff)",
        "Not After : Dec 31 23:59:59 9999 GMT",
        "pathlen:0",
        "X509v3 Name Constraints: critical",
        "DNS:.a.com",
        "IP:10.0.0.0/255.0.0.0",
        "IP:2001:DB8:0:0:0:0:0:0/FFFF:FFFF:0:0:0:0:0:0",
        "email:x.com",
        "URI:.y.com",
        "AA:BB",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(tbs.windows(17).any(|w| w == b"\x18\x0f99991231235959Z"));
    let read = Certificate::parse(&der).unwrap();
    assert_eq!((read.path_length(), read.subject_key_id()), (Some(0), Some(&[0xaa, 0xbb][..])));
}

fn verify_ca_strictly(openssl: &OpenSsl, root: &Certificate, der: &[u8]) -> String {
    let ca = openssl.file("ca.pem", pem::encode("CERTIFICATE", root.der()));
    let file = openssl.file("int.pem", pem::encode("CERTIFICATE", der));
    openssl.run(&["verify", "-x509_strict", "-CAfile", &ca, &file]);
    openssl.text(&["x509", "-in", &file, "-noout", "-text"])
}

#[test]
fn certificate_may_have_no_subject_and_no_extensions() {
    let (key, root) = root("ed25519", 0);
    let algorithm = SignatureAlgorithm::Ed25519;
    let der =
        issue(&key, algorithm, root.subject(), &name::name(&[]), key.public_key().spki(), &[Extensions::default()]);
    let openssl = OpenSsl::new();
    let file = openssl.file("a.der", &der);
    openssl.run(&["x509", "-in", &file, "-inform", "DER", "-noout"]);
    let read = Certificate::parse(&der).unwrap();
    assert!(read.subject().is_empty() && read.extensions().is_empty());
}

#[test]
fn certificates_of_openssl_are_read() {
    let openssl = OpenSsl::new();
    for (arguments, kind) in OPENSSL_KEY_ARGUMENTS {
        let key = openssl.key("key.pem", arguments);
        let der =
            openssl.run(&["req", "-x509", "-new", "-key", &key, "-subj", "/CN=r", "-outform", "DER", "-days", "9"]);
        let read = Certificate::parse(&der).unwrap();
        assert_eq!(read.key().kind(), *kind);
        assert!(read.is_signed_by(read.key()) && read.is_ca() && read.is_self_signed());
        // `openssl` reads the clock separately for each of the two times.
        assert!((0..=1).contains(&(read.not_after() - read.not_before() - 9 * 86_400)));
        let mut trailing = der.clone();
        trailing.push(0);
        assert!(Certificate::parse(&trailing).unwrap_err().text().contains("trailing data"));
    }
    let key = openssl.key("key.pem", OPENSSL_KEY_ARGUMENTS[0].0);
    let sha1 = openssl.run(&["req", "-x509", "-new", "-key", &key, "-subj", "/CN=r", "-sha1", "-outform", "DER"]);
    let read = Certificate::parse(&sha1).unwrap();
    assert_eq!(read.signature_algorithm(), None);
    assert!(!read.is_signed_by(read.key()), "SHA-1 never counts");
}

#[test]
fn reissued_certificate_keeps_all_other_bytes() {
    let (key, root) = root("ec", 256);
    let (_, other) = self::root("rsa", 2048);
    let kept = Extensions::joined(&other.extensions().iter().map(|e| &e.raw).collect::<Vec<_>>());
    let same = other.reissue_tbs(other.signature_algorithm().unwrap(), other.issuer(), &kept);
    assert_eq!(same, other.tbs());
    let algorithm = root.signature_algorithm().unwrap();
    let tbs = other.reissue_tbs(algorithm, root.subject(), &kept);
    let read = Certificate::parse(&encode_signed(&tbs, algorithm, &key.signature(algorithm, &tbs))).unwrap();
    assert!(read.is_signed_by(root.key()));
    assert_eq!((read.serial(), read.key()), (other.serial(), other.key()));
}

#[test]
fn certificate_with_invalid_structure_is_refused() {
    let (key, root) = root("ec", 256);
    let id = extension::subject_key_id(&[1]);
    let algorithm = root.signature_algorithm().unwrap();
    let der = issue(&key, algorithm, root.subject(), root.subject(), key.public_key().spki(), &[id.clone(), id]);
    assert!(Certificate::parse(&der).unwrap_err().text().contains("twice"));
    let mixed = encode_signed(root.tbs(), SignatureAlgorithm::Ed25519, &[0; 64]);
    assert!(Certificate::parse(&mixed).unwrap_err().text().contains("algorithms must be equal"));
    let zero_ski = extension::extension(oid::SUBJECT_KEY_ID, false, &[5, 0]);
    let der = issue(&key, algorithm, root.subject(), root.subject(), key.public_key().spki(), &[zero_ski]);
    assert!(Certificate::parse(&der).is_err());
}

static SAMPLE_CERTIFICATE_DER: LazyLock<Vec<u8>> = LazyLock::new(|| root("ec", 256).1.der().to_vec());

#[test]
fn truncated_certificate_is_refused() {
    for len in 0..SAMPLE_CERTIFICATE_DER.len() {
        assert!(Certificate::parse(&SAMPLE_CERTIFICATE_DER[..len]).is_err(), "{len}");
    }
}

proptest! {
    #[test]
    fn mutated_certificates_never_panic_and_never_verify(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut der = SAMPLE_CERTIFICATE_DER.clone();
        let at = at.index(der.len());
        der[at] = byte;
        let key = Certificate::parse(&SAMPLE_CERTIFICATE_DER).unwrap().key().clone();
        if der != *SAMPLE_CERTIFICATE_DER && let Ok(read) = Certificate::parse(&der) {
            prop_assert!(!read.is_signed_by(&key));
            prop_assert_eq!(read.der(), &der[..]);
        }
    }
}

//! Parses requests that `openssl` wrote, and requests that the tests encode.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::extension::SubjectAltNames;
use crate::x509::tbs::encode_signed;
use crate::x509::testing::{OPENSSL_KEY_ARGUMENTS, OpenSsl, TestKey, TestSigner};
use crate::x509::writer::DerWriter;

const EXTENSION_ARGUMENTS: &[&str] = &[
    "-addext",
    "subjectAltName=DNS:b.example,email:a@example,IP:1.2.3.4,IP:::1,URI:spiffe://a/b,RID:1.2.3,\
     otherName:1.2.3.4;UTF8:w,otherName:1.2.3.5;IA5STRING:v,dirName:dir",
    "-addext",
    "keyUsage=critical,digitalSignature,keyCertSign",
    "-addext",
    "basicConstraints=critical,CA:TRUE,pathlen:2",
    "-addext",
    "1.2.3.4.5=ASN1:UTF8String:x",
];

const OPENSSL_CONFIG: &str = "[req]\ndistinguished_name=dn\nstring_mask=utf8only\n[dn]\n[dir]\nCN=x\n";

fn openssl_request(openssl: &OpenSsl, key: &str, more: &[&str]) -> String {
    let config = openssl.file("req.cnf", OPENSSL_CONFIG);
    let subject = "/C=DE/O=Bücher/OU=a+OU=b/CN=first/CN=last/UID=humanoid/serialNumber=77";
    openssl.text(&[&["req", "-new", "-config", &config, "-key", key, "-utf8", "-subj", subject], more].concat())
}

#[test]
fn openssl_requests_with_every_key_type_are_read_and_verify() {
    let openssl = OpenSsl::new();
    for (arguments, kind) in OPENSSL_KEY_ARGUMENTS {
        let key = openssl.key("key.pem", arguments);
        let csr = Csr::from_pem(&openssl_request(&openssl, &key, EXTENSION_ARGUMENTS)).unwrap();
        csr.verify().unwrap();
        assert_eq!(csr.key.kind(), *kind);
        assert_eq!(csr.key.spki(), openssl.run(&["pkey", "-in", &key, "-pubout", "-outform", "DER"]));
    }
}

#[test]
fn csr_values_are_read_byte_for_byte() {
    let openssl = OpenSsl::new();
    let key = openssl.key("key.pem", OPENSSL_KEY_ARGUMENTS[1].0);
    let csr = Csr::from_pem(&openssl_request(&openssl, &key, EXTENSION_ARGUMENTS)).unwrap();
    assert_eq!(csr.common_name(), "last");
    assert_eq!(csr.subject_values(Attribute::UserId).unwrap(), ["humanoid"]);
    assert_eq!(csr.subject_values(Attribute::OrganizationalUnit).unwrap(), ["a", "b"]);
    assert_eq!(csr.subject_values(Attribute::Organization).unwrap(), ["Bücher"]);
    let sans = csr.sans().unwrap();
    assert_eq!((&sans.dns[..], &sans.emails[..]), (&["b.example".to_owned()][..], &["a@example".to_owned()][..]));
    assert_eq!(sans.ips.iter().map(ToString::to_string).collect::<Vec<_>>(), ["1.2.3.4", "::1"]);
    assert_eq!(sans.uris, ["spiffe://a/b"]);
    let other = [
        (extension::parse_oid("1.2.3.4").unwrap(), OtherNameValue::Text("w".into())),
        (extension::parse_oid("1.2.3.5").unwrap(), OtherNameValue::Other),
    ];
    assert_eq!(sans.other, other);
    assert!(csr.is_ca_request());
    assert_eq!(csr.basic_constraints(), Some(BasicConstraints { ca: true, path_length: Some(2) }));
    assert!(csr.key_usage().unwrap().contains(KeyUsage::CERT_SIGN));
    assert!(csr.extension(&extension::parse_oid("1.2.3.4.5").unwrap()).is_some());
    for extension in &csr.extensions {
        let raw = extension.raw.as_der();
        assert!(csr.der().windows(raw.len()).any(|w| w == raw), "{}", extension.oid_text());
    }
    let subject = csr.subject.as_der();
    assert!(csr.der().windows(subject.len()).any(|w| w == subject));
}

#[test]
fn csr_with_wrong_or_weak_signature_is_refused() {
    let openssl = OpenSsl::new();
    let rsa = openssl.key("rsa.pem", OPENSSL_KEY_ARGUMENTS[0].0);
    let refused = |arguments: &[&str], problem: &str| {
        let csr = Csr::from_pem(&openssl_request(&openssl, &rsa, arguments)).unwrap();
        let error = csr.verify().unwrap_err();
        assert!(
            error.text().starts_with("csr: request signature invalid") && error.text().contains(problem),
            "{error}"
        );
    };
    refused(&["-sha1"], "SHA-1");
    refused(&["-md5"], "MD5");
    refused(&["-sha256", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:20"], "salt");
    let pss = ["-sha384", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:-1"];
    Csr::from_pem(&openssl_request(&openssl, &rsa, &pss)).unwrap().verify().unwrap();

    for (arguments, _) in OPENSSL_KEY_ARGUMENTS {
        let key = openssl.key("key.pem", arguments);
        let der = Csr::from_pem(&openssl_request(&openssl, &key, &[])).unwrap().der().to_vec();
        for at in [der.len() - 1, der.len() / 2] {
            let mut tampered = der.clone();
            tampered[at] ^= 1;
            let verified = Csr::from_der(&tampered).and_then(|csr| csr.verify());
            assert!(verified.is_err(), "{arguments:?}");
        }
    }
    let p256 = openssl.key("p256.pem", OPENSSL_KEY_ARGUMENTS[1].0);
    Csr::from_pem(&openssl_request(&openssl, &p256, &["-sha512"])).unwrap().verify().unwrap();
    let p224 = openssl.key("p224.pem", OPENSSL_KEY_ARGUMENTS[2].0);
    Csr::from_pem(&openssl_request(&openssl, &p224, &["-sha384"])).unwrap().verify().unwrap();
}

#[test]
fn small_rsa_keys_are_read_but_never_verify() {
    let openssl = OpenSsl::new();
    let key = openssl.key("key.pem", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"]);
    let csr = Csr::from_pem(&openssl_request(&openssl, &key, &[])).unwrap();
    assert_eq!(csr.key.kind(), KeyKind::Rsa { bits: 1024 });
    assert!(csr.verify().is_err());
}

#[test]
fn csr_texts_without_a_request_are_refused_with_a_reason() {
    let pem = SAMPLE_CSR_PEM.clone();
    let der = pem::parse_first_block(&pem).unwrap().unwrap().1;
    let trailing = pem::encode("CERTIFICATE REQUEST", &[&der[..], &[0]].concat());
    let cases = [
        ("empty", String::new(), "must not be empty"),
        ("blanks", " \n".into(), "must not be empty"),
        ("garbage", "garbage".into(), "contains no data"),
        ("base64 DER alone", pem.lines().nth(1).unwrap().into(), "contains no data"),
        ("literal backslash n", pem.replace('\n', "\\n"), "contains no data"),
        ("another block", pem.replace("CERTIFICATE REQUEST", "CERTIFICATE"), "contains no data"),
        ("trailing data", trailing, "trailing data"),
        ("too long", format!("{pem}\n{}", "a".repeat(pem::MAX_TEXT_BYTES)), "64 KiB"),
    ];
    for (name, text, problem) in cases {
        let error = Csr::from_pem(&text).unwrap_err();
        assert!(error.text().starts_with("csr: ") && error.text().contains(problem), "{name}: {error}");
    }
    for text in [
        pem.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
        format!("\n  \r\n{}", pem.replace('\n', "\r\n")),
        format!("{pem}\n-----BEGIN X-----\n*\n-----END X-----\n"),
    ] {
        Csr::from_pem(&text).unwrap();
    }
}

/// Encodes a request for a P-256 key, with the attributes that `attributes` writes.
fn encode_signed_request(subject: &Name, attributes: impl FnOnce(&mut DerWriter)) -> Vec<u8> {
    let key = TestKey::generate("ec", 256);
    let info = build(SEQUENCE, 0, |w| {
        w.integer(0);
        w.raw(subject.as_der());
        w.raw(key.public_key().spki());
        attributes(w);
    });
    let algorithm = SignatureAlgorithm::for_issuer(key.public_key().kind(), 0, false).unwrap();
    encode_signed(&info, algorithm, &key.signature(algorithm, &info))
}

fn extension_request(w: &mut DerWriter, extensions: &[Extensions]) {
    w.nest(SEQUENCE, |w| {
        w.oid(oid::EXTENSION_REQUEST);
        w.nest(SET, |w| w.nest(SEQUENCE, |w| extensions.iter().for_each(|e| w.raw(e.as_der()))));
    });
}

#[test]
fn csr_with_duplicates_or_invalid_strings_is_refused() {
    let empty = name::name(&[]);
    let san = |value: &[u8]| {
        let value = build(SEQUENCE, 0, |w| w.tlv(0x82, value));
        extension::extension(oid::SUBJECT_ALT_NAME, false, &value)
    };
    let with = |extensions: &[Extensions]| {
        encode_signed_request(&empty, |w| w.nest(0xa0, |w| extension_request(w, extensions)))
    };
    let values = encode_signed_request(&empty, |w| {
        w.nest(0xa0, |w| {
            w.nest(SEQUENCE, |w| {
                w.oid(oid::EXTENSION_REQUEST);
                w.nest(SET, |w| (0..2).for_each(|_| w.tlv(SEQUENCE, san(b"a").as_der())));
            });
        });
    });
    let twice = encode_signed_request(&empty, |w| {
        w.nest(0xa0, |w| {
            extension_request(w, &[san(b"a")]);
            extension_request(w, &[extension::subject_key_id(&[1])]);
        });
    });
    let control = name::name(&[&name::rdn(Attribute::CommonName, &["a\0b".into()])]);
    let cases = [
        ("duplicate extension", with(&[san(b"a"), san(b"b")]), "twice"),
        (
            "two values of extensionRequest",
            values,
            "extensionRequest attribute has more than one value (RFC 2985 5.4.2)",
        ),
        ("duplicate extensionRequest", twice, "extensionRequest attribute appears twice"),
        ("IA5String above 0x7F", with(&[san(b"b\xc3\xbccher")]), "0x7F"),
        ("NUL in a name", with(&[san(b"a\0b")]), "control characters"),
        ("NUL in the subject", encode_signed_request(&control, |w| w.tlv(0xa0, &[])), "control characters"),
        ("malformed keyUsage", with(&[extension::extension(oid::KEY_USAGE, true, &[3, 0])]), "keyUsage"),
    ];
    for (name, der, problem) in cases {
        let error = Csr::from_der(&der).unwrap_err();
        assert!(error.text().contains(problem), "{name}: {error}");
    }
}

#[test]
fn csr_may_lack_attributes_and_encode_critical_false() {
    let empty = name::name(&[]);
    let csr = Csr::from_der(&encode_signed_request(&empty, |_| ())).unwrap();
    csr.verify().unwrap();
    assert!(csr.extensions.is_empty() && csr.sans().unwrap() == ParsedSans::default());
    let explicit = Extensions::from_der(&[0x30, 13, 6, 3, 0x55, 0x1d, 14, 1, 1, 0, 4, 3, 4, 1, 9]).unwrap();
    let csr =
        Csr::from_der(&encode_signed_request(&empty, |w| w.nest(0xa0, |w| extension_request(w, &[explicit])))).unwrap();
    csr.verify().unwrap();
    assert_eq!(csr.extensions[0].raw, extension::subject_key_id(&[9]));
}

#[test]
fn encoded_csrs_satisfy_openssl() {
    let openssl = OpenSsl::new();
    let subject = name::name(&[&name::rdn(Attribute::CommonName, &["Int CA".into()])]);
    let names = SubjectAltNames { dns: vec!["ca.example".into()], ..Default::default() };
    let extensions = [extension::basic_constraints(true, None), extension::subject_alt_name(&names, false)];
    let both = Extensions::joined(&[&extensions[0], &extensions[1]]);
    for (key_type, bits) in [("rsa", 2048), ("ec", 224), ("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0)] {
        let key = TestKey::generate(key_type, bits);
        let algorithm = match key.public_key().kind() {
            KeyKind::Ec(curve) => SignatureAlgorithm::Ecdsa(curve.hash()),
            kind => SignatureAlgorithm::for_issuer(kind, 0, false).unwrap(),
        };
        for (pieces, count) in [(&both, 2), (&Extensions::default(), 0)] {
            let info = encode_request_info(&subject, key.public_key().spki(), pieces);
            let der = encode_signed(&info, algorithm, &key.signature(algorithm, &info));
            let file = openssl.file("csr.pem", pem::encode("CERTIFICATE REQUEST", &der));
            openssl.run(&["req", "-in", &file, "-verify", "-noout"]);
            let csr = Csr::from_der(&der).unwrap();
            csr.verify().unwrap();
            assert_eq!(csr.extensions.len(), count);
        }
    }
}

static SAMPLE_CSR_PEM: LazyLock<String> = LazyLock::new(|| {
    let openssl = OpenSsl::new();
    let key = openssl.key("key.pem", OPENSSL_KEY_ARGUMENTS[1].0);
    openssl_request(&openssl, &key, EXTENSION_ARGUMENTS).trim_end().to_owned()
});

#[test]
fn truncated_csr_is_refused() {
    let der = pem::parse_first_block(&SAMPLE_CSR_PEM).unwrap().unwrap().1;
    for len in 0..der.len() {
        assert!(Csr::from_der(&der[..len]).is_err(), "{len}");
    }
}

proptest! {
    #[test]
    fn mutated_requests_never_panic_and_never_verify(at in any::<prop::sample::Index>(), byte in any::<u8>(), drop in 0_usize..3) {
        let mut der = pem::parse_first_block(&SAMPLE_CSR_PEM).unwrap().unwrap().1;
        let original = der.clone();
        let at = at.index(der.len());
        der[at] = byte;
        der.drain(at..(at + drop).min(der.len()));
        if der != original && let Ok(csr) = Csr::from_der(&der) {
            prop_assert!(csr.verify().is_err());
        }
    }

    #[test]
    fn csr_of_random_bytes_or_text_is_refused(
        der in proptest::collection::vec(any::<u8>(), 0..300),
        text in "\\PC{0,60}|(-----(BEGIN|END) (NEW )?CERTIFICATE REQUEST-----|[A-Za-z0-9+/=]{0,64}|\\r?\\n){0,8}",
    ) {
        prop_assert!(Csr::from_der(&der).is_err());
        prop_assert!(Csr::from_pem(&pem::encode("CERTIFICATE REQUEST", &der)).is_err());
        prop_assert!(Csr::from_pem(&text).is_err());
    }
}

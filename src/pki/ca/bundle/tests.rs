//! Tests of bundle parsing with PEM texts as operators paste them, and with arbitrary text.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::keys::local::KeySpec;
use crate::keys::testing::root;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::testing::{OPENSSL_KEY_ARGUMENTS, OpenSsl, issue};

const ALLOWED: PrivateKeyAcceptance = PrivateKeyAcceptance::Allowed;

fn certificate_and_key(key_type: &str, bits: i64) -> (String, String) {
    let (key, certificate) = root(key_type, bits);
    (pem::encode("CERTIFICATE", certificate.der()), pem::encode("PRIVATE KEY", key.to_pkcs8().unwrap().expose()))
}

fn parse_error_text(text: &str, private_keys: PrivateKeyAcceptance) -> String {
    let error = CaBundle::parse("pem_bundle", text, private_keys).err().expect("must be refused");
    assert!(error.text().starts_with("pem_bundle: "), "{error}");
    error.text().to_owned()
}

#[test]
fn bundle_blocks_in_any_order_are_parsed_without_duplicates() {
    let (one, one_key) = certificate_and_key("ec", 256);
    let (two, two_key) = certificate_and_key("ed25519", 0);
    let parameters = pem::encode("EC PARAMETERS", &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7]);
    let crl = pem::encode("X509 CRL", b"whatever");
    let text = format!("a note\n{two_key}\n{one}\n\n{parameters}\n{one_key}\nmore\n{crl}\n{two}\n{one}\n{two_key}\n\n");
    let bundle = CaBundle::parse("pem_bundle", &text, ALLOWED).unwrap();
    let certificates: Vec<String> = bundle.certificates.iter().map(|c| pem::encode("CERTIFICATE", c.der())).collect();
    assert_eq!(certificates, [one, two]);
    let kinds: Vec<&str> = bundle.keys.iter().map(|k| k.kind().name()).collect();
    assert_eq!(kinds, ["ed25519", "ec"]);
}

#[test]
fn invalid_ca_bundle_is_refused_with_the_reason() {
    let (certificate, key) = certificate_and_key("ec", 256);
    let many = format!("{certificate}\n").repeat(pem::MAX_BLOCKS + 1);
    let long = format!("{}\n{certificate}", " ".repeat(MAX_BUNDLE_TEXT_BYTES));
    let crl_only = pem::encode("X509 CRL", &[0; 100]);
    let broken = pem::encode("CERTIFICATE", &[0x30; 80]);
    for (text, rule) in [
        ("/etc/ssl/ca.pem", "too short"),
        (&*" ".repeat(100), "no data"),
        (&*"x".repeat(100), "index 0"),
        (&format!("{certificate}\n-----END CERTIFICATE-----"), "index 1"),
        (&certificate.replace('\n', "\\n"), "index 0"),
        (&many, "more than 100"),
        (&long, "longer than 512 KiB"),
        (&crl_only, "neither a certificate nor a private key"),
        (&broken, "block 0: certificate: "),
        (&format!("{certificate}\n{}", pem::encode("PUBLIC KEY", &[0; 80])), "block 1: unsupported PEM block type"),
        (&format!("{certificate}\n{}", pem::encode("ENCRYPTED PRIVATE KEY", &[0; 80])), "block 1: encrypted"),
        (&format!("{certificate}\n{}", pem::encode("EC PRIVATE KEY", &[0; 80])), "block 1: private key: "),
        (&key.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1), "encrypted"),
    ] {
        let text = parse_error_text(text, ALLOWED);
        assert!(text.contains(rule), "{rule}: {text}");
    }
    let both = format!("{certificate}\n{key}");
    assert!(parse_error_text(&both, PrivateKeyAcceptance::Refused).contains("private keys are not accepted here"));
    assert!(CaBundle::parse("pem_bundle", &both, ALLOWED).is_ok());
}

#[test]
fn certificates_unsuitable_for_issuers_are_refused() {
    let openssl = OpenSsl::new();
    let rsa: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
    let small: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"];
    let pss: &[&str] = &["-algorithm", "RSA-PSS", "-pkeyopt", "rsa_keygen_bits:2048"];
    let p224: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-224"];
    let ed448: &[&str] = &["-algorithm", "Ed448"];
    let explicit: &[&str] =
        &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:explicit"];
    let ca = "basicConstraints=critical,CA:TRUE";
    for (key, extension, rule) in [
        (rsa, "basicConstraints=CA:FALSE", "non-CA certificate"),
        (rsa, "keyUsage=keyCertSign", "non-CA certificate"),
        (small, ca, "below 2048 bits"),
        (pss, ca, "unsupported public key"),
        (p224, ca, "P-224"),
        (ed448, ca, "unsupported public key"),
        (explicit, ca, "unsupported public key"),
    ] {
        let key = openssl.key("key.pem", key);
        let config = openssl.file("req.cnf", "[req]\ndistinguished_name = dn\n[dn]\n");
        let mut arguments = vec!["req", "-x509", "-new", "-key", &key, "-subj", "/CN=x", "-config", &config];
        arguments.extend(["-addext", extension]);
        let text = parse_error_text(&openssl.text(&arguments), ALLOWED);
        assert!(text.contains(rule), "{rule}: {text}");
    }
}

#[test]
fn key_field_must_contain_exactly_one_key() {
    let openssl = OpenSsl::new();
    for (arguments, kind) in OPENSSL_KEY_ARGUMENTS.iter().filter(|(_, kind)| kind.bits() != 224) {
        let key = openssl.key("key.pem", arguments);
        let text = openssl.text(&["pkey", "-in", &key]);
        assert_eq!(parse_key("pem_bundle", &text).unwrap().kind(), *kind);
    }
    let with_parameters = openssl.text(&["ecparam", "-name", "prime256v1", "-genkey"]);
    assert!(with_parameters.contains("EC PARAMETERS"));
    assert!(parse_key("pem_bundle", &with_parameters).is_ok());
    let (certificate, key) = certificate_and_key("ec", 256);
    let p224 = PrivateKey::generate(KeySpec::new("ec", 224).unwrap()).unwrap();
    for (text, rule) in [
        (format!("{key}\n{}", certificate_and_key("ec", 256).1), "exactly one"),
        (format!("{key}\n{certificate}"), "exactly one"),
        (certificate, "not a private key"),
        ("/path/to/key".to_owned(), "too short"),
        (pem::encode("PRIVATE KEY", p224.to_pkcs8().unwrap().expose()), "P-224"),
        (pem::encode("ENCRYPTED PRIVATE KEY", &[0; 64]), "decrypt"),
    ] {
        let error = parse_key("pem_bundle", &text).err().expect("must be refused");
        assert!(error.text().starts_with("pem_bundle: ") && error.text().contains(rule), "{rule}: {error}");
    }
}

#[test]
fn keys_with_parts_of_two_keys_are_refused() {
    let one = certificate_and_key("rsa", 2048).1;
    let two = certificate_and_key("rsa", 2048).1;
    let numbers = |text: &str| pem::parse_first_block(text).unwrap().unwrap().1;
    let one = numbers(&one);
    let two = numbers(&two);
    // An RSA private key ends with its CRT values (RFC 8017 A.1.2). The test replaces them with the CRT values of
    // another key.
    let at = one.len() - 200;
    let mixed = [&one[..at], &two[two.len() - 200..]].concat();
    let error = parse_key("pem_bundle", &pem::encode("PRIVATE KEY", &mixed)).err().expect("must be refused");
    assert!(error.text().starts_with("pem_bundle: private key: "), "{error}");
}

/// Private keys of every kind, each in PKCS#8 and in its traditional encoding, with the PEM label of the encoding.
static ENCODED_KEYS: LazyLock<Vec<(&'static str, Vec<u8>)>> = LazyLock::new(|| {
    let mut forms = Vec::new();
    for (key_type, bits) in [("rsa", 2048), ("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0)] {
        let key = PrivateKey::generate(KeySpec::new(key_type, bits).unwrap()).unwrap();
        let (label, traditional) = key.to_traditional_form().unwrap();
        forms.push(("PRIVATE KEY", key.to_pkcs8().unwrap().expose().to_vec()));
        forms.push((label, traditional.expose().to_vec()));
    }
    forms
});

static CERTIFICATE_AND_KEY: LazyLock<(String, String)> = LazyLock::new(|| certificate_and_key("ec", 256));

proptest! {
    #[test]
    fn bundle_of_any_text_does_not_panic(
        text in "(-----(BEGIN|END) (CERTIFICATE|PRIVATE KEY|EC PRIVATE KEY|X509 CRL)-----\n|[A-Za-z0-9+/=]{0,64}\n){0,8}",
    ) {
        let _ = CaBundle::parse("pem_bundle", &text, ALLOWED);
        let _ = parse_key("pem_bundle", &text);
    }

    #[test]
    fn damaged_bundle_is_refused_or_parsed_correctly(at in any::<prop::sample::Index>(), byte in 0x20..0x7f_u8) {
        let (certificate, key) = &*CERTIFICATE_AND_KEY;
        let mut text = format!("{certificate}\n{key}\n").into_bytes();
        let at = at.index(text.len());
        text[at] = byte;
        let text = String::from_utf8(text).unwrap();
        if let Ok(bundle) = CaBundle::parse("pem_bundle", &text, ALLOWED) {
            // Every accepted certificate is a CA certificate, and every accepted key can sign.
            prop_assert!(bundle.certificates.iter().all(Certificate::is_ca));
            for key in &bundle.keys {
                let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 0, false).unwrap();
                let signature = key.sign(algorithm, b"m").unwrap();
                prop_assert!(key.public().verify(algorithm, b"m", &signature).is_ok());
            }
        }
    }

    #[test]
    fn damaged_key_is_refused_or_can_sign(which in 0..ENCODED_KEYS.len(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let (label, der) = &ENCODED_KEYS[which];
        prop_assert!(read_key(label, &der[..cut.index(der.len())]).is_err());
        let mut der = der.clone();
        let at = at.index(der.len());
        der[at] = byte;
        if let Ok(key) = read_key(label, &der) {
            let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 0, false).unwrap();
            let signature = key.sign(algorithm, b"m").unwrap();
            prop_assert!(key.public().verify(algorithm, b"m", &signature).is_ok());
        }
    }

    #[test]
    fn bundle_order_and_text_between_blocks_do_not_matter(order in Just(vec![0, 1, 2, 3]).prop_shuffle(), note in "[a-z \n]{0,40}") {
        let (key, authority) = root("ec", 256);
        let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 0, false).unwrap();
        let subject = authority.subject();
        let spki = key.public().spki();
        let ca = vec![crate::x509::extension::basic_constraints(true, None)];
        let again = issue(&key, algorithm, subject, subject, spki, &ca);
        let pieces = [
            pem::encode("CERTIFICATE", authority.der()),
            pem::encode("CERTIFICATE", &again),
            pem::encode("PRIVATE KEY", key.to_pkcs8().unwrap().expose()),
            pem::encode("X509 CRL", &[0]),
        ];
        let text: String = order.iter().map(|at| format!("{note}\n{}\n", pieces[*at])).collect();
        let bundle = CaBundle::parse("pem_bundle", &text, ALLOWED).unwrap();
        prop_assert_eq!((bundle.certificates.len(), bundle.keys.len()), (2, 1));
    }
}

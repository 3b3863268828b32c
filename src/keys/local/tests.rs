//! Interoperability tests with `openssl` in both directions.

use proptest::prelude::*;

use super::*;
use crate::x509::pem;
use crate::x509::testing::{OPENSSL_KEY_ARGUMENTS, OpenSsl};

const TESTED_KEYS: [(&str, i64); 6] =
    [("rsa", 2048), ("ec", 224), ("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0)];

fn generate(key_type: &str, bits: i64) -> PrivateKey {
    PrivateKey::generate(KeySpec::new(key_type, bits).unwrap()).unwrap()
}

fn default_algorithm(kind: KeyKind) -> SignatureAlgorithm {
    match kind {
        KeyKind::Ec(curve) => SignatureAlgorithm::Ecdsa(curve.hash()),
        kind => SignatureAlgorithm::for_issuer(kind, 0, false).unwrap(),
    }
}

#[test]
fn key_spec_accepts_only_the_listed_types_and_sizes() {
    let cases = [
        ("rsa", 0, Some(2048)),
        ("rsa", 2048, Some(2048)),
        ("rsa", 3072, Some(3072)),
        ("rsa", 4096, Some(4096)),
        ("rsa", 8192, Some(8192)),
        ("rsa", 1024, None),
        ("rsa", -1, None),
        ("rsa", 2049, None),
        ("ec", 0, Some(256)),
        ("ec", 224, Some(224)),
        ("ec", 384, Some(384)),
        ("ec", 521, Some(521)),
        ("ec", 300, None),
        ("ed25519", 0, Some(0)),
        ("ed25519", 256, Some(0)),
        ("foo", 0, None),
        ("any", 0, None),
        ("", 0, None),
    ];
    for (key_type, bits, expected) in cases {
        let spec = KeySpec::new(key_type, bits);
        assert_eq!(spec.as_ref().ok().map(|s| s.kind().bits()), expected, "{key_type} {bits}");
        if let Ok(spec) = spec {
            assert_eq!(spec.kind().name(), key_type);
        }
    }
    assert!(KeySpec::new("ec", 300).unwrap_err().text().starts_with("key_bits: unsupported curve size"));
}

#[test]
fn pem_must_contain_exactly_one_key_in_any_format() {
    let openssl = OpenSsl::new();
    for (key_type, bits) in TESTED_KEYS {
        let key = generate(key_type, bits);
        let (label, traditional) = key.to_traditional_form().unwrap();
        let texts = [
            pem::encode("PRIVATE KEY", key.to_pkcs8().unwrap().expose()),
            format!("some text\n{}\n", pem::encode(label, traditional.expose())),
        ];
        for text in &texts {
            assert_eq!(PrivateKey::from_pem(text).unwrap().public().spki(), key.public().spki(), "{key_type} {bits}");
            let parameters = openssl.text(&["ecparam", "-name", "prime256v1"]);
            assert!(PrivateKey::from_pem(&format!("{parameters}{text}")).is_ok());
            for wrong in [format!("{text}\n{text}"), format!("{text}\nafter"), text[..40].to_owned(), parameters] {
                let error = PrivateKey::from_pem(&wrong).err().unwrap();
                assert!(error.text().starts_with("private key: "), "{error}");
                let body = text.lines().rev().nth(1).unwrap();
                assert!(!error.text().contains(body), "{error}");
            }
        }
    }
}

#[test]
fn both_forms_of_every_key_satisfy_openssl_and_load_again() {
    let openssl = OpenSsl::new();
    for (key_type, bits) in TESTED_KEYS {
        let key = generate(key_type, bits);
        let pkcs8 = key.to_pkcs8().unwrap();
        let (label, traditional) = key.to_traditional_form().unwrap();
        let expected = match key_type {
            "rsa" => "RSA PRIVATE KEY",
            "ec" => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        assert_eq!(label, expected);
        for (label, der) in [("PRIVATE KEY", &pkcs8), (label, &traditional)] {
            let file = openssl.file("key.pem", pem::encode(label, der.expose()));
            openssl.run(&["pkey", "-in", &file, "-check", "-noout"]);
            let public = openssl.run(&["pkey", "-in", &file, "-pubout", "-outform", "DER"]);
            assert_eq!(public, key.public().spki(), "{key_type} {bits} {label}");
            let loaded = PrivateKey::from_block(label, der.expose()).unwrap();
            assert_eq!(loaded.public(), key.public());
            let signature = loaded.sign(default_algorithm(key.kind()), b"m").unwrap();
            key.public().verify(default_algorithm(key.kind()), b"m", &signature).unwrap();
        }
        let own = openssl.run(&["pkcs8", "-topk8", "-nocrypt", "-in", "key.pem", "-outform", "DER"]);
        assert!(own == pkcs8.expose(), "{key_type} {bits}: the same bytes as openssl writes");
    }
}

#[test]
fn keys_of_openssl_load_in_both_forms() {
    let openssl = OpenSsl::new();
    for (arguments, kind) in OPENSSL_KEY_ARGUMENTS {
        let key = openssl.key("key.pem", arguments);
        let mut texts = vec![openssl.text(&["pkey", "-in", &key])];
        if !matches!(kind, KeyKind::Ed25519) {
            texts.push(openssl.text(&["pkey", "-in", &key, "-traditional"]));
        }
        let spki = openssl.run(&["pkey", "-in", &key, "-pubout", "-outform", "DER"]);
        for text in texts {
            let (label, der) = pem::parse_first_block(&text).unwrap().unwrap();
            let loaded = PrivateKey::from_block(&label, &der).unwrap();
            assert_eq!((loaded.kind(), loaded.public().spki()), (*kind, &spki[..]));
            let trailing = [&der[..], &[0]].concat();
            assert!(PrivateKey::from_block(&label, &trailing).is_err());
        }
    }
}

#[test]
fn unsupported_keys_are_refused_without_quoting_them() {
    let openssl = OpenSsl::new();
    let block = |arguments: &[&str]| {
        let key = openssl.key("key.pem", arguments);
        pem::parse_first_block(&openssl.text(&["pkey", "-in", &key])).unwrap().unwrap().1
    };
    let cases = [
        (block(&["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"]), "below 2048"),
        (block(&["-algorithm", "RSA-PSS", "-pkeyopt", "rsa_keygen_bits:2048"]), "unsupported kind"),
        (block(&["-algorithm", "Ed448"]), "unsupported kind"),
        (block(&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1"]), "unsupported kind"),
        (b"garbage".to_vec(), "DER"),
    ];
    for (der, problem) in cases {
        let error = PrivateKey::from_pkcs8(&der).err().unwrap();
        assert!(error.text().starts_with("private key: ") && error.text().contains(problem), "{problem}: {error}");
    }
    assert!(PrivateKey::from_block("ENCRYPTED PRIVATE KEY", &[]).is_err());
    let (_, sec1) = generate("ec", 256).to_traditional_form().unwrap();
    let parts = local_der::EcPrivateKey::read(sec1.expose()).unwrap();
    let bare = crate::x509::writer::build(0x30, 0, |w| {
        w.integer(1);
        w.tlv(4, parts.scalar);
    });
    let error = PrivateKey::from_block("EC PRIVATE KEY", &bare).err().unwrap();
    assert!(error.text().contains("must name its curve"));
}

#[test]
fn keys_with_mismatched_parts_are_refused() {
    for bits in [224, 256, 384, 521] {
        let one = generate("ec", bits);
        let other = generate("ec", bits);
        let KeyKind::Ec(curve) = one.kind() else { unreachable!() };
        let sec1 = one.encode_sec1(true).unwrap();
        let scalar = local_der::EcPrivateKey::read(sec1.expose()).unwrap().scalar;
        let mixed = local_der::encode_sec1(Some(curve), scalar, other.public().bits());
        assert!(PrivateKey::from_block("EC PRIVATE KEY", mixed.expose()).is_err(), "{bits}");
    }
    let mut rsa = generate("rsa", 2048).to_pkcs8().unwrap().expose().to_vec();
    *rsa.last_mut().unwrap() ^= 1;
    assert!(PrivateKey::from_pkcs8(&rsa).is_err());
}

#[test]
fn signatures_satisfy_openssl_and_need_the_fitting_algorithm() {
    use SignatureAlgorithm as A;
    let openssl = OpenSsl::new();
    let message = openssl.file("m", b"message");
    for (key_type, bits) in TESTED_KEYS {
        let key = generate(key_type, bits);
        let spki = openssl.file("pub.der", key.public().spki());
        let algorithm = default_algorithm(key.kind());
        let signature = key.sign(algorithm, b"message").unwrap();
        key.public().verify(algorithm, b"message", &signature).unwrap();
        assert!(key.public().verify(algorithm, b"messagf", &signature).is_err());
        let file = openssl.file("sig", &signature);
        let mut arguments =
            vec!["pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER", "-inkey", &spki, "-in", &message];
        arguments.extend(["-sigfile", &file]);
        arguments.extend(match key.kind() {
            KeyKind::Ec(Curve::P384) => &["-digest", "sha384"][..],
            KeyKind::Ec(Curve::P521) => &["-digest", "sha512"],
            KeyKind::Ed25519 => &[],
            _ => &["-digest", "sha256"],
        });
        openssl.run(&arguments);
        for other in [A::RsaPkcs1(Hash::Sha256), A::Ecdsa(Hash::Sha256), A::Ecdsa(Hash::Sha512), A::Ed25519] {
            let signature = key.sign(other, b"message");
            assert_eq!(signature.is_ok(), other.fits(key.kind()), "{key_type} {bits} {other:?}");
        }
    }
}

#[test]
fn ec_keys_sign_with_every_hash_whole_and_in_pieces() {
    let openssl = OpenSsl::new();
    let message = openssl.file("m", b"message");
    for bits in [224, 256, 384, 521] {
        let key = generate("ec", bits);
        let spki = openssl.file("pub.der", key.public().spki());
        for (hash, name) in [(Hash::Sha256, "sha256"), (Hash::Sha384, "sha384"), (Hash::Sha512, "sha512")] {
            let algorithm = SignatureAlgorithm::Ecdsa(hash);
            let pieces = [&b"mess"[..], b"age"].into_iter();
            for signature in [key.sign(algorithm, b"message"), key.sign_pieces(algorithm, pieces)] {
                let signature = signature.unwrap();
                key.public().verify(algorithm, b"message", &signature).unwrap();
                let file = openssl.file("sig", &signature);
                let of = ["pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER", "-inkey", &spki];
                openssl.run(&[&of[..], &["-in", &message, "-sigfile", &file, "-digest", name]].concat());
            }
        }
    }
}

proptest! {
    #[test]
    fn mutated_keys_are_refused_or_sign(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(), which in 1..6_usize) {
        let (key_type, bits) = TESTED_KEYS[which];
        let key = generate(key_type, bits);
        let mut der = key.to_pkcs8().unwrap().expose().to_vec();
        prop_assert!(PrivateKey::from_pkcs8(&der[..cut.index(der.len())]).is_err());
        let at = at.index(der.len());
        der[at] = byte;
        if let Ok(loaded) = PrivateKey::from_pkcs8(&der) {
            let signature = loaded.sign(default_algorithm(loaded.kind()), b"m").unwrap();
            prop_assert!(loaded.public().verify(default_algorithm(loaded.kind()), b"m", &signature).is_ok());
        }
    }
}

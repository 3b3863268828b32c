//! SoftHSM: the suite on a real module, key addressing, and rejected configurations.

use signet::error::Kind;
use signet::keys::pkcs11::TokenAddress;
use signet::keys::{Libraries, Pkcs11Config, Pkcs11Key, SigningInputKind, TestHash, TestSign};
use signet::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};

use super::contract::{Subject, assert_error, assert_error_has, holds, signs, usual};
use super::hsm::{ECDSA, EDDSA, Hsm, RSA, RSA_PSS, SOFTHSM, actor, config, tests_alone, wide};

tests_alone!(
    ["one"] =>
    softhsm_rsa_keys_meet_the_contract,
    softhsm_ec_keys_meet_the_contract,
    softhsm_ed25519_key_meets_the_contract,
    a_key_is_found_by_slot_by_identifier_and_by_both_names,
    two_keys_and_two_tokens_of_one_label_are_ambiguous,
    two_tokens_of_one_label_are_ambiguous,
    keys_that_contradict_their_mechanism_or_are_weak_are_refused,
    hashing_mechanism_signs_messages_and_pss_signs_only_pss,
    libraries_are_named_and_never_paths,
    library_file_created_after_start_is_used,
    the_pin_is_in_no_error_and_no_log,
);

const RSA_2048: KeyKind = KeyKind::Rsa { bits: 2048 };
const P256: KeyKind = KeyKind::Ec(Curve::P256);
const SHA3: [TestHash; 4] = [TestHash::Sha3_224, TestHash::Sha3_256, TestHash::Sha3_384, TestHash::Sha3_512];

fn subject(libraries: &Libraries, mechanism: u64, kind: KeyKind, lacks: Vec<(TestHash, bool)>) -> Subject {
    let label = format!("{}-{}", kind.name(), kind.bits());
    Subject {
        kind,
        maker: wide(libraries, config(mechanism, &label, Some(kind)), 4),
        user: wide(libraries, config(mechanism, &label, None), 4),
        generates: true,
        refuses: vec![],
        lacks,
    }
}

async fn softhsm_rsa_keys_meet_the_contract(hsm: &Hsm) {
    // SoftHSM does not support PSS with SHA-3.
    let lacks = SHA3.into_iter().map(|hash| (hash, true)).collect();
    holds(subject(&hsm.libraries(), RSA, RSA_2048, lacks)).await;
}

async fn softhsm_ec_keys_meet_the_contract(hsm: &Hsm) {
    for curve in [Curve::P256, Curve::P384, Curve::P521] {
        holds(subject(&hsm.libraries(), ECDSA, KeyKind::Ec(curve), vec![])).await;
    }
}

async fn softhsm_ed25519_key_meets_the_contract(hsm: &Hsm) {
    hsm.import("one", "ed25519-0", "0a0b", &["-algorithm", "ED25519"]);
    let lacks = TestHash::all().flat_map(|hash| [(hash, false), (hash, true)]).collect();
    let subject = subject(&hsm.libraries(), EDDSA, KeyKind::Ed25519, lacks);
    holds(Subject { generates: false, ..subject }).await;
}

async fn a_key_is_found_by_slot_by_identifier_and_by_both_names(hsm: &Hsm) {
    hsm.import("one", "web", "0a0b", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    hsm.import("one", "mail", "0c0d", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    let libraries = hsm.libraries();
    let web = actor(&libraries, config(ECDSA, "web", None)).find_key(false).await.unwrap();
    let by = |token: TokenAddress, label: Option<&str>, id: Option<&[u8]>| {
        let key_label = label.map(str::to_owned);
        let key_id = id.map(<[u8]>::to_vec);
        actor(&libraries, Pkcs11Config { token, key_label, key_id, ..config(ECDSA, "web", Some(P256)) })
    };
    let slot = || TokenAddress::Slot(hsm.slot("one"));
    let label = || TokenAddress::Label("one".to_owned());
    for found in [
        by(slot(), Some("web"), None),
        by(slot(), None, Some(&[0x0a, 0x0b])),
        by(label(), Some("web"), Some(&[0x0a, 0x0b])),
    ] {
        assert_eq!(found.find_key(false).await.unwrap(), web);
        signs(&found.signer(web.clone()), usual(P256), b"message").await;
    }
    // Both have to match, and no key is generated for an identifier.
    for missing in [by(label(), Some("mail"), Some(&[0x0a, 0x0b])), by(label(), None, Some(&[0x0e]))] {
        assert_error_has(missing.find_key(true).await, Kind::Invalid, "which the module assigns");
        assert!(missing.find_key(false).await.is_err(), "nothing was made");
    }
    for absent in [
        by(TokenAddress::Slot(999_999), Some("web"), None),
        by(TokenAddress::Label("two".to_owned()), Some("web"), None),
    ] {
        assert_error_has(absent.find_key(false).await, Kind::Unavailable, "pkcs11 token: not found");
    }
}

async fn two_keys_and_two_tokens_of_one_label_are_ambiguous(hsm: &Hsm) {
    let p256 = ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    hsm.import("one", "web", "0a", &p256);
    hsm.import("one", "web", "0b", &p256);
    let libraries = hsm.libraries();
    let outcome = actor(&libraries, config(ECDSA, "web", Some(P256))).find_key(true).await;
    assert_error(outcome, Kind::Invalid, "key label is ambiguous");
}

async fn two_tokens_of_one_label_are_ambiguous(hsm: &Hsm) {
    hsm.token("one");
    let outcome = actor(&hsm.libraries(), config(ECDSA, "web", Some(P256))).find_key(true).await;
    assert_error(outcome, Kind::Invalid, "token label is ambiguous");
}

async fn keys_that_contradict_their_mechanism_or_are_weak_are_refused(hsm: &Hsm) {
    hsm.import("one", "weak", "0a", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:1024"]);
    hsm.import("one", "ec", "0b", &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    let libraries = hsm.libraries();
    let error = actor(&libraries, config(RSA, "weak", None)).find_key(false).await.unwrap_err();
    assert!(error.text().contains("below 2048 bits"), "{error}");
    let crossed = actor(&libraries, config(RSA, "ec", None));
    let signer = crossed.signer(crossed.find_key(false).await.unwrap());
    let error = signer.input_kind(SignatureAlgorithm::Ecdsa(Hash::Sha256)).unwrap_err();
    assert_eq!(error.text(), "mechanism 0x0001 is not for a key of type ec");
    let error = crossed.test_sign(TestSign::default()).await.unwrap_err();
    assert_eq!(error.text(), "configuration: mechanism 0x0001 is not for a key of type ec");
    for mechanism in [0x1087, 0x0101] {
        let error = actor(&libraries, config(mechanism, "ec", None)).test_sign(TestSign::default()).await.unwrap_err();
        assert_eq!(error.text(), format!("configuration: unsupported mechanism {mechanism:#06x}"));
    }
    // Keys without a known generation mechanism are not generated.
    let error = actor(&libraries, config(EDDSA, "new", Some(KeyKind::Ed25519))).find_key(true).await.unwrap_err();
    assert!(error.text().contains("no ed25519 key can be generated"), "{error}");
}

async fn hashing_mechanism_signs_messages_and_pss_signs_only_pss(hsm: &Hsm) {
    let libraries = hsm.libraries();
    let public = actor(&libraries, config(RSA, "rsa", Some(RSA_2048))).find_key(true).await.unwrap();
    for (mechanism, algorithm) in [
        (0x0040, SignatureAlgorithm::RsaPkcs1(Hash::Sha256)),
        (0x0042, SignatureAlgorithm::RsaPkcs1(Hash::Sha512)),
        (0x0044, SignatureAlgorithm::RsaPss(Hash::Sha384)),
    ] {
        let own = actor(&libraries, config(mechanism, "rsa", None));
        let signer = own.signer(public.clone());
        assert_eq!(signer.input_kind(algorithm).unwrap(), SigningInputKind::Message);
        signs(&signer, algorithm, b"message").await;
        own.test_sign(TestSign::default()).await.unwrap();
        let error = own.test_sign(TestSign { hash: Some(TestHash::Sha1), use_pss: None }).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
    }
    let pss = actor(&libraries, config(RSA_PSS, "rsa", None));
    let signer = pss.signer(public);
    signs(&signer, SignatureAlgorithm::RsaPss(Hash::Sha256), b"message").await;
    assert!(signer.input_kind(SignatureAlgorithm::RsaPkcs1(Hash::Sha256)).is_err());
    pss.test_sign(TestSign::default()).await.unwrap();
    let error = pss.test_sign(TestSign { hash: None, use_pss: Some(false) }).await.unwrap_err();
    assert!(error.text().contains("does not sign with RSASSA-PKCS1-v1_5: use_pss"), "{error}");
}

async fn libraries_are_named_and_never_paths(hsm: &Hsm) {
    let libraries = hsm.libraries();
    for library in ["other", "/usr/lib/softhsm/libsofthsm2.so", ""] {
        let config = Pkcs11Config { library: library.to_owned(), ..config(ECDSA, "web", None) };
        let error = Pkcs11Key::new(&libraries, config).err().unwrap();
        assert_eq!(error.text(), format!("no kms_library configured with name {library:?}"));
    }
    let file = hsm.folder().join("file");
    std::fs::write(&file, "no module").unwrap();
    let named = |name: &str, path: &std::path::Path| Libraries::new([(name.to_owned(), path.to_owned())]);
    for (name, path, rule) in [
        ("hsm", "relative.so", "absolute"),
        ("hsm", "/no/such.so", "does not exist"),
        ("hsm", "/usr", "regular"),
        ("h/m", "/usr/lib/softhsm/libsofthsm2.so", "letters"),
    ] {
        let error = named(name, path.as_ref()).err().unwrap();
        assert!(error.text().contains(rule), "{error}");
    }
    let twice = ["hsm", "HSM"].map(|name| (name.to_owned(), file.clone()));
    assert!(Libraries::new(twice).err().unwrap().text().contains("twice"));
    // A file that is not a module does not prevent a start.
    let none = actor(&named("hsm", &file).unwrap(), config(ECDSA, "web", None));
    let error = none.find_key(false).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(!error.text().contains("file"), "{error}");
}

async fn library_file_created_after_start_is_used(hsm: &Hsm) {
    let file = hsm.folder().join("late.so");
    let libraries = Libraries::new_allowing_missing([("hsm".to_owned(), file.clone())]).unwrap();
    let key = actor(&libraries, config(ECDSA, "web", Some(P256)));
    let missing = "pkcs11 library: the file of the module does not exist";
    for _ in 0..2 {
        assert_error(key.find_key(true).await, Kind::Unavailable, missing);
    }
    std::os::unix::fs::symlink(SOFTHSM, &file).unwrap();
    signs(&key.signer(key.find_key(true).await.unwrap()), usual(P256), b"message").await;
    // An invalid path is an error in any case.
    let named = |path: &str| Libraries::new_allowing_missing([("hsm".to_owned(), path.into())]).err().unwrap();
    assert!(named("relative.so").text().contains("absolute") && named("/usr").text().contains("regular"));
}

async fn the_pin_is_in_no_error_and_no_log(hsm: &Hsm) {
    let wrong = Pkcs11Config { pin: signet::secret::Secret::new("canary-4711"), ..config(ECDSA, "web", None) };
    let actor = actor(&hsm.libraries(), wrong);
    for error in [actor.find_key(false).await.unwrap_err(), actor.test_sign(TestSign::default()).await.unwrap_err()] {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(!format!("{error}{error:?}{cause}").contains("canary"), "{error}");
    }
}

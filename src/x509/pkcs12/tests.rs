use std::num::NonZeroU32;

use super::ber::to_definite_lengths;
use super::kdf::{Pkcs12KeyPurpose, Pkcs12Password, derive_pkcs12};
use super::*;
use crate::x509::algorithm::{Hash, HashFunction};

/// Expected values are from OpenSSL 3.0, `openssl kdf … PKCS12KDF`, for the password `smeg`.
#[test]
fn pkcs12_kdf_agrees_with_openssl() {
    let password = Pkcs12Password::new("password", b"smeg").unwrap();
    let first = [0x0a, 0x58, 0xcf, 0x64, 0x53, 0x0d, 0x82, 0x3f];
    let second = [0x3d, 0x83, 0xc0, 0xe4, 0x54, 0x6a, 0xc1, 0x40];
    for (digest, purpose, salt, iterations, key) in [
        (
            HashFunction::Sha1,
            Pkcs12KeyPurpose::Encryption,
            first,
            1,
            "8aaae6297b6cb04642ab5b077851284eb7128f1a2a7fbca3",
        ),
        (HashFunction::Sha1, Pkcs12KeyPurpose::InitializationVector, first, 1, "79993dfe048d3b76"),
        (
            HashFunction::Sha2(Hash::Sha256),
            Pkcs12KeyPurpose::Mac,
            second,
            2000,
            "50730563538e7e9d3490a929dbee46fc6f1d502d7ad8765ad6cad6c9e02437a7",
        ),
        // The derived key is longer than a digest.
        (
            HashFunction::Sha2(Hash::Sha256),
            Pkcs12KeyPurpose::Encryption,
            second,
            10,
            "81b767f390ef2d9aea9c260568c5e33f69bc2ba62d832d51bbb5baafd76a8529e2ec3e2f3a02309bafcd7d3b416b1b6c6228fbb829\
             d5124a8f4475ad4a4e4d2ebfa97849e1f25cf26a306f548800037d",
        ),
        // The block size of this digest is 128 bytes.
        (
            HashFunction::Sha2(Hash::Sha512),
            Pkcs12KeyPurpose::Mac,
            second,
            100,
            "3ab10a995502becae4cc141d786fc015d961e395b623b32e4b40290a3dfdfa32b1d4aca2d4a8c1a44e928b5de77f463267b429fbe8\
             b86e9cc3d73d818f4e57c7",
        ),
    ] {
        let derived =
            derive_pkcs12(&password, digest, purpose, &salt, NonZeroU32::new(iterations).unwrap(), key.len() / 2);
        let shown: String = derived.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(shown, key, "{digest:?}");
    }
}

#[test]
fn pkcs12_file_is_read_back_and_hides_its_contents() {
    let password = WrittenPassword::new("password", b"a password").unwrap();
    let protection = Pkcs12Keys::derive(&password).unwrap();
    let private_key: Vec<u8> = (0..200).collect();
    let leaf = vec![0x30, 2, 5, 0];
    let issuer = vec![0x30, 3, 2, 1, 9];
    let entry = Pkcs12Entry { name: "name", private_key: &private_key, certificates: &[&leaf, &issuer] };
    let file = protection.encode(&entry).unwrap();
    assert!(!file.windows(16).any(|part| part == &private_key[40..56]));
    let contents = read("p12", &file, b"a password").unwrap();
    assert_eq!(contents.private_keys.len(), 1);
    assert_eq!(contents.private_keys[0].as_slice(), private_key);
    assert_eq!(contents.certificates, [leaf, issuer]);
    assert!(contents.crls.is_empty());
    let wrong = read("p12", &file, b"a passwort").err().unwrap();
    assert_eq!(wrong.text(), "password: wrong, or the file is damaged: its MAC does not match");
}

#[test]
fn ber_is_converted_to_der_within_its_limits() {
    // SEQUENCE { OCTET STRING in two segments, [0] { INTEGER 5 } }, all with indefinite lengths.
    let ber = [0x30, 0x80, 0x24, 0x80, 4, 1, 0xaa, 4, 2, 0xbb, 0xcc, 0, 0, 0xa0, 0x80, 2, 1, 5, 0, 0, 0, 0, 0x77];
    let (der, rest) = to_definite_lengths(&ber).unwrap();
    assert_eq!(der, [0x30, 10, 4, 3, 0xaa, 0xbb, 0xcc, 0xa0, 3, 2, 1, 5]);
    assert_eq!(rest, [0x77]);
    // Non-minimal lengths.
    assert_eq!(to_definite_lengths(&[0x30, 0x83, 0, 0, 3, 2, 1, 5]).unwrap().0, [0x30, 3, 2, 1, 5]);
    for bad in [
        &[][..],
        &[0x30],
        &[0x30, 0x80],
        &[0x30, 0x80, 2, 1, 5],
        &[0x30, 0x80, 2, 1, 5, 0],
        &[0x04, 0x80, 0, 0],
        &[0x30, 5, 2, 1, 5],
        &[0x30, 0xff],
        &[0x30, 0x85, 1, 0, 0, 0, 0],
        &[0x1f, 0x81, 1, 0],
        &[0x24, 3, 2, 1, 5],
        &[0x30, 0x80].repeat(17),
    ] {
        assert!(to_definite_lengths(bad).is_err(), "{bad:02x?}");
    }
}

//! Rejection of public keys whose private key can be computed. Checked for every subject key in a request, not for
//! stored keys.

mod factors;

use num_bigint::BigUint;

use self::factors::remainder;
use super::algorithm::KeyKind;
use super::public_key::{PublicKey, read_rsa_numbers};
use crate::error::{Error, Result};

/// Rejects a weak key. `what` is the name of the field in errors.
///
/// # Errors
/// `Invalid`, naming field and rule, for an Ed25519 key that is a point of small order or not canonical; for an RSA
/// modulus vulnerable to CVE-2017-15361, or factored by small primes, a root or Fermat's method; and for an RSA
/// exponent that some readers do not support.
pub fn reject(what: &str, key: &PublicKey) -> Result<()> {
    let rule = match key.kind() {
        KeyKind::Ed25519 if !is_sound_point(key.bits()) => {
            Some("the Ed25519 key is a point of small order or not in its canonical form (RFC 8032 5.1.3)")
        }
        KeyKind::Rsa { .. } => {
            read_rsa_numbers(key.bits()).ok().and_then(|(modulus, exponent)| violated_rsa_rule(modulus, exponent))
        }
        _ => None,
    };
    rule.map_or(Ok(()), |rule| Err(Error::invalid(format!("{what}: {rule}"))))
}

/// The largest RSA exponent that every certificate reader supports: Go uses a signed 32-bit integer.
const MAX_READABLE_EXPONENT: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];

/// Returns the rule that an RSA key violates, if any. Modulus and exponent are big-endian without leading zeros.
fn violated_rsa_rule(modulus: &[u8], exponent: &[u8]) -> Option<&'static str> {
    if (exponent.len(), exponent) > (MAX_READABLE_EXPONENT.len(), &MAX_READABLE_EXPONENT) {
        return Some("the RSA public exponent is above 2^31 - 1, which some readers reject");
    }
    let modulus = BigUint::from_bytes_be(modulus);
    if has_guessable_primes(&modulus) {
        return Some("the RSA key's primes can be computed from its modulus (CVE-2017-15361)");
    }
    factors::violated_factor_rule(&modulus)
}

/// The prime of Curve25519, 2^255 − 19, little-endian.
const FIELD_PRIME: [u8; 32] = field_minus(0);

const fn field_minus(n: u8) -> [u8; 32] {
    let mut octets = [0xff; 32];
    octets[0] = 0xed - n;
    octets[31] = 0x7f;
    octets
}

/// The y coordinates of the eight points whose order divides 8, little-endian: 1 (the identity), −1, 0, and the two
/// of order 8.
const SMALL_ORDER_POINTS: [[u8; 32]; 5] = {
    let zero = [0; 32];
    let mut one = [0; 32];
    one[0] = 1;
    [
        zero,
        one,
        field_minus(1),
        [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
            0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
        ],
        [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
            0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
        ],
    ]
};

/// `true` if the y coordinate of an encoded Ed25519 point is below the field prime and not that of a point of small
/// order.
fn is_sound_point(encoded: &[u8]) -> bool {
    let Ok(mut y) = <[u8; 32]>::try_from(encoded) else { return false };
    y[31] &= 0x7f;
    y.iter().rev().lt(FIELD_PRIME.iter().rev()) && !SMALL_ORDER_POINTS.contains(&y)
}

/// The odd primes among the first 39 primes. The product of these 39 primes is the number `M` of the smallest
/// vulnerable moduli (see `has_guessable_primes`); the `M` of larger moduli has more prime factors. The primes that
/// exclude the most moduli come first; 3, 5 and 7 alone exclude none.
const FINGERPRINT_PRIMES: [u64; 38] = [
    11, 37, 13, 17, 19, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157, 53, 23, 29, 31, 41, 43, 47, 59, 67, 83, 89,
    101, 113, 131, 137, 139, 149, 163, 167, 3, 5, 7,
];
const FINGERPRINT_GENERATOR: u64 = 65537;

/// `true` if a modulus has the fingerprint of CVE-2017-15361 (Nemec et al., "The Return of Coppersmith's Attack",
/// 2.2).
///
/// Primes of the form `k·M + (65537^a mod M)`, with `M` a product of the first primes, produce a modulus that is a
/// power of 65537 modulo `M`. A modulus is such a power if it is a power modulo each prime factor of `M` and the
/// exponents are compatible. At most 1 in 2^150 other moduli has the fingerprint, and most other moduli fail at the
/// first prime.
fn has_guessable_primes(modulus: &BigUint) -> bool {
    let mut exponents: Vec<(u64, u64)> = Vec::new();
    for prime in FINGERPRINT_PRIMES {
        let Some(exponent) = discrete_logarithm(remainder(modulus, prime), prime) else { return false };
        exponents.push(exponent);
    }
    let fit = |(a, of_a): (u64, u64), (b, of_b): (u64, u64)| a.abs_diff(b) % gcd(of_a, of_b) == 0;
    exponents.iter().enumerate().all(|(at, &one)| exponents[..at].iter().all(|&other| fit(one, other)))
}

/// Returns the exponent `e` with `65537^e = value` modulo `prime`, and the order of 65537; `None` if there is no such
/// exponent.
fn discrete_logarithm(value: u64, prime: u64) -> Option<(u64, u64)> {
    let mut power = 1;
    let mut order = 0;
    let mut found = None;
    loop {
        if power == value {
            found = Some(order);
        }
        order += 1;
        power = power * FINGERPRINT_GENERATOR % prime;
        if power == 1 {
            return found.map(|exponent| (exponent, order));
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::public_key::rsa_spki;
    use crate::x509::testing::OpenSsl;

    #[test]
    fn ed25519_points_of_small_order_or_not_canonical_are_refused() {
        let mut refused: Vec<[u8; 32]> = SMALL_ORDER_POINTS.to_vec();
        // Encodings that are not canonical: the prime itself, and all values above it up to 2^255.
        refused.extend((0..19).map(|n| {
            let mut above = FIELD_PRIME;
            above[0] += n;
            above
        }));
        for mut point in refused {
            for sign in [0, 0x80] {
                point[31] ^= sign;
                assert!(!is_sound_point(&point), "{point:02x?}");
            }
        }
        // The base point of Ed25519.
        let mut base = [0x66; 32];
        base[0] = 0x58;
        assert!(is_sound_point(&base));
        assert!(is_sound_point(&field_minus(2)));
    }

    #[test]
    fn modulus_with_the_roca_fingerprint_is_refused() {
        let power = 65537_u128.pow(5).to_be_bytes();
        let error = reject("csr", &PublicKey::parse(&rsa_spki(&power[5..], &[1, 0, 1])).unwrap()).unwrap_err();
        assert!(error.text().starts_with("csr: ") && error.text().contains("CVE-2017-15361"), "{error}");
        assert!(!has_guessable_primes(&(65537_u128.pow(5) + 2).into()));
        let openssl = OpenSsl::new();
        for (arguments, _) in crate::x509::testing::OPENSSL_KEY_ARGUMENTS {
            let key = openssl.key("key.pem", arguments);
            let spki = openssl.run(&["pkey", "-in", &key, "-pubout", "-outform", "DER"]);
            assert!(reject("csr", &PublicKey::parse(&spki).unwrap()).is_ok());
        }
    }

    #[test]
    fn factorable_moduli_and_large_exponents_are_refused() {
        let openssl = OpenSsl::new();
        let rule = |modulus: &str, exponent: &[u8]| {
            let modulus = modulus.trim().as_bytes().chunks(2);
            let modulus = modulus.map(|octet| u8::from_str_radix(str::from_utf8(octet).unwrap(), 16).unwrap());
            let key = rsa_spki(&modulus.collect::<Vec<u8>>(), exponent);
            reject("csr", &PublicKey::parse(&key).unwrap()).map_err(|e| e.text().to_owned())
        };
        let key = openssl.key("key.pem", &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
        let sound = openssl.text(&["rsa", "-in", &key, "-noout", "-modulus"]);
        let sound = sound.split_once('=').unwrap().1;
        assert_eq!(rule(sound, &[0x7f, 0xff, 0xff, 0xff]), Ok(()));
        for (modulus, exponent, refused) in [
            (sound, &[0x80, 0, 0, 1][..], "csr: the RSA public exponent is above 2^31 - 1"),
            (sound, &[1, 0, 0, 0, 1], "csr: the RSA public exponent is above 2^31 - 1"),
            // Moduli from the prime p = 1000003: 751 · p, p², p³, p⁵, p⁷, and p · 1000033.
            ("2cc3628d", &[3], "csr: the RSA modulus has a factor below 752"),
            ("e8d5009d89", &[3], "csr: the RSA modulus is a perfect power"),
            ("0de0bee322cd8cdb", &[3], "csr: the RSA modulus is a perfect power"),
            ("0c9f390534c894208fe662b033", &[3], "csr: the RSA modulus is a perfect power"),
            ("0b7acc2eed91ded5e9c2b35d781f3fdf924b", &[3], "csr: the RSA modulus is a perfect power"),
            ("e8d6ca6163", &[3], "csr: the RSA modulus has two factors so close"),
        ] {
            let text = rule(modulus, exponent).unwrap_err();
            assert!(text.starts_with(refused), "{modulus}: {text}");
        }
    }

    #[test]
    fn roca_fingerprint_requires_compatible_exponents() {
        // 2 modulo 3, which is an odd power of 65537. 1 modulo every other prime, which is an even power where the
        // order of 65537 is even.
        #[rustfmt::skip]
        let number = BigUint::from_bytes_be(&[
            0x03, 0x0c, 0x43, 0xe2, 0x3a, 0x33, 0x4a, 0x8a, 0xd6, 0xc6, 0x7f, 0xe4, 0x41, 0xc3, 0x18, 0x4a, 0x59, 0x61, 0x48, 0xac, 0x19, 0xd9, 0x8e, 0xa0, 0x4f, 0x47, 0xc9, 0x43
        ]);
        assert_eq!(remainder(&number, 3), 2);
        assert!(FINGERPRINT_PRIMES.iter().filter(|prime| **prime != 3).all(|prime| remainder(&number, *prime) == 1));
        assert!(!has_guessable_primes(&number));
        assert!(has_guessable_primes(&1_u8.into()));
    }
}

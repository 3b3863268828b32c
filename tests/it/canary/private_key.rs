//! Reads the secret numbers of an encoded private key, independently of the server's code.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The secret numbers of a key in PEM or base64 DER: the scalar of an EC key, the seed of an Ed25519 key, all numbers
/// of an RSA key except modulus and exponent.
pub fn private_numbers(text: &str) -> Vec<Vec<u8>> {
    let body = match text.split_once("PRIVATE KEY-----") {
        Some((_, after)) => after.split("-----END").next().unwrap(),
        None => text,
    };
    let base64: String = body.split_whitespace().collect();
    numbers(&STANDARD.decode(base64).unwrap())
}

fn numbers(der: &[u8]) -> Vec<Vec<u8>> {
    let (tag, content, _) = element(der);
    assert_eq!(tag, 0x30);
    let fields = elements(content);
    match (fields[0].1, fields[1].0, fields.len()) {
        // PKCS #8: version, algorithm, key.
        ([0], 0x30, _) => match fields[2].1 {
            inner if inner[0] == 0x04 => vec![element(inner).1.to_vec()],
            inner => numbers(inner),
        },
        // PKCS #1: version, n, e, d, p, q, dp, dq, qinv.
        ([0], 0x02, 9) => fields[3..].iter().map(|(_, number)| without_sign(number)).collect(),
        // SEC 1: version, scalar, curve, public key.
        ([1], 0x04, _) => vec![fields[1].1.to_vec()],
        other => panic!("not a private key: {other:?}"),
    }
}

fn without_sign(number: &[u8]) -> Vec<u8> {
    number.strip_prefix(&[0]).unwrap_or(number).to_vec()
}

fn elements(mut der: &[u8]) -> Vec<(u8, &[u8])> {
    let mut all = Vec::new();
    while !der.is_empty() {
        let (tag, content, rest) = element(der);
        all.push((tag, content));
        der = rest;
    }
    all
}

/// Returns tag, content and the remaining bytes.
fn element(der: &[u8]) -> (u8, &[u8], &[u8]) {
    let (start, length) = match der[1] {
        short if short < 0x80 => (2, usize::from(short)),
        long => {
            let octets = usize::from(long & 0x7f);
            let length = der[2..2 + octets].iter().fold(0, |length, octet| length << 8 | usize::from(*octet));
            (2 + octets, length)
        }
    };
    (der[0], &der[start..start + length], &der[start + length..])
}

//! Keys that sign tokens, and their tokens.

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use signet::clock::Clock;
use signet::keys::{KeySpec, PrivateKey};
use signet::x509::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};
use signet::x509::pem;

/// RSA keys are slow to generate, so tests share these.
static RSA: LazyLock<[Arc<PrivateKey>; 3]> =
    LazyLock::new(|| [(); 3].map(|()| Arc::new(PrivateKey::generate(KeySpec::RSA_2048).unwrap())));

/// The current time in Unix seconds.
pub fn now() -> i64 {
    Clock::system().now().unix_timestamp()
}

#[derive(Clone)]
pub struct TokenKey {
    pub kid: String,
    pub algorithm: &'static str,
    pub key: Arc<PrivateKey>,
}

impl TokenKey {
    /// One of three RSA keys of 2048 bits.
    pub fn rsa(kid: &str, which: usize) -> Self {
        Self { kid: kid.to_owned(), algorithm: "RS256", key: Arc::clone(&RSA[which]) }
    }

    /// An RSA key that is the same in every run.
    pub fn fixed() -> Self {
        let key = PrivateKey::from_pem(include_str!("../fixtures/tokens.key.pem")).unwrap();
        Self { kid: "fixed".to_owned(), algorithm: "RS256", key: Arc::new(key) }
    }

    pub fn new(kid: &str, algorithm: &'static str) -> Self {
        let (kind, bits) = match algorithm {
            "ES256" => ("ec", 256),
            "ES384" => ("ec", 384),
            "ES512" => ("ec", 521),
            "EdDSA" => ("ed25519", 0),
            other => panic!("no key for {other}"),
        };
        let key = PrivateKey::generate(KeySpec::new(kind, bits).unwrap()).unwrap();
        Self { kid: kid.to_owned(), algorithm, key: Arc::new(key) }
    }

    /// The public key as a JWK (RFC 7517).
    pub fn public(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let bits = self.key.public().bits();
        let own = match self.key.kind() {
            KeyKind::Rsa { .. } => {
                let [modulus, exponent] = integers(bits);
                json!({"kty": "RSA", "n": text(&modulus), "e": text(&exponent)})
            }
            KeyKind::Ec(curve) => {
                let (x, y) = bits[1..].split_at(curve.coordinate_len());
                let name = match curve {
                    Curve::P256 => "P-256",
                    Curve::P384 => "P-384",
                    Curve::P521 => "P-521",
                    Curve::P224 => "P-224",
                };
                json!({"kty": "EC", "crv": name, "x": text(x), "y": text(y)})
            }
            KeyKind::Ed25519 => json!({"kty": "OKP", "crv": "Ed25519", "x": text(bits)}),
        };
        let mut key = json!({"kid": self.kid, "use": "sig"});
        key.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        key
    }

    pub fn pem(&self) -> String {
        pem::encode("PUBLIC KEY", self.key.public().spki())
    }

    pub fn token(&self, claims: &Value) -> String {
        self.token_with(json!({"alg": self.algorithm, "typ": "JWT", "kid": self.kid}), claims)
    }

    /// A token with this header, signed with the header's algorithm.
    pub fn token_with(&self, header: Value, claims: &Value) -> String {
        self.signed(&encoded(&header.to_string()), &encoded(&claims.to_string()), header["alg"].as_str().unwrap())
    }

    pub fn signed(&self, header: &str, claims: &str, algorithm: &str) -> String {
        let signed = format!("{header}.{claims}");
        let hash = match &algorithm[2..] {
            "256" => Hash::Sha256,
            "384" => Hash::Sha384,
            _ => Hash::Sha512,
        };
        let by = match &algorithm[..2] {
            "RS" => SignatureAlgorithm::RsaPkcs1(hash),
            "PS" => SignatureAlgorithm::RsaPss(hash),
            "ES" => SignatureAlgorithm::Ecdsa(hash),
            _ => SignatureAlgorithm::Ed25519,
        };
        let mut signature = self.key.sign(by, signed.as_bytes()).unwrap();
        if let KeyKind::Ec(curve) = self.key.kind() {
            let padded = |number: Vec<u8>| [vec![0; curve.coordinate_len() - number.len()], number].concat();
            signature = integers(&signature).map(padded).concat();
        }
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

pub fn encoded(part: &str) -> String {
    URL_SAFE_NO_PAD.encode(part)
}

pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}.", encoded(&header.to_string()), encoded(&claims.to_string()))
}

/// The two integers of a DER sequence, without leading zeros.
fn integers(der: &[u8]) -> [Vec<u8>; 2] {
    fn next(rest: &mut &[u8]) -> Vec<u8> {
        let [_, first, ..] = **rest else { panic!("cut") };
        let (head, octets) = match first {
            0x81 => (3, usize::from(rest[2])),
            0x82 => (4, usize::from(rest[2]) << 8 | usize::from(rest[3])),
            short => (2, usize::from(short)),
        };
        let value = &rest[head..head + octets];
        *rest = &rest[head + octets..];
        value[value.iter().take_while(|octet| **octet == 0).count()..].to_vec()
    }
    // The sequence has the same structure as an integer, and its content does not start with a zero.
    let both = next(&mut &der[..]);
    let mut rest = &both[..];
    [next(&mut rest), next(&mut rest)]
}

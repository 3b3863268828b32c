//! Local keys as signers of certificates in tests.

use super::local::{KeySpec, PrivateKey};
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::certificate::Certificate;
use crate::x509::public_key::PublicKey;
use crate::x509::testing::{TestSigner, root_of};

impl TestSigner for PrivateKey {
    fn public_key(&self) -> &PublicKey {
        self.public()
    }

    fn signature(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Vec<u8> {
        self.sign(algorithm, message).unwrap()
    }
}

/// Returns a new key and its self-signed root certificate, which is valid from 2023 to 2049.
pub(crate) fn root(key_type: &str, bits: i64) -> (PrivateKey, Certificate) {
    let key = PrivateKey::generate(KeySpec::new(key_type, bits).unwrap()).unwrap();
    let certificate = root_of(&key);
    (key, certificate)
}

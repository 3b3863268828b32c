//! Cost of the cryptography alone, the lower limit for any server.

use signet::keys::local::{KeySpec, PrivateKey};
use signet::x509::algorithm::SignatureAlgorithm;

fn main() {
    divan::main();
}

const MESSAGE: [u8; 700] = [7; 700];

fn key(key_type: &str, bits: i64) -> PrivateKey {
    PrivateKey::generate(KeySpec::new(key_type, bits).expect("benchmark inputs are sound"))
        .expect("benchmark inputs are sound")
}

fn algorithm(key: &PrivateKey) -> SignatureAlgorithm {
    SignatureAlgorithm::for_issuer(key.kind(), 0, false).expect("benchmark inputs are sound")
}

#[divan::bench(args = [("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0), ("rsa", 2048)])]
fn sign(bencher: divan::Bencher<'_, '_>, (key_type, bits): (&str, i64)) {
    let key = key(key_type, bits);
    let algorithm = algorithm(&key);
    bencher.bench(|| key.sign(algorithm, &MESSAGE).expect("benchmark inputs are sound"));
}

#[divan::bench(args = [("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0), ("rsa", 2048)])]
fn verify(bencher: divan::Bencher<'_, '_>, (key_type, bits): (&str, i64)) {
    let key = key(key_type, bits);
    let algorithm = algorithm(&key);
    let signature = key.sign(algorithm, &MESSAGE).expect("benchmark inputs are sound");
    bencher.bench(|| key.public().verify(algorithm, &MESSAGE, &signature).expect("benchmark inputs are sound"));
}

#[divan::bench(args = [("ec", 224), ("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0)])]
fn keygen(bencher: divan::Bencher<'_, '_>, (key_type, bits): (&str, i64)) {
    bencher.bench(|| key(key_type, bits));
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn keygen_rsa_2048() -> PrivateKey {
    key("rsa", 2048)
}

//! OCSP: parsing a request, and encoding and signing a response.

use signet::keys::local::{KeySpec, PrivateKey};
use signet::x509::algorithm::SignatureAlgorithm;
use signet::x509::name::{Attribute, name, rdn};
use signet::x509::ocsp::{self, CertIdHash, OcspCertStatus, OcspRequest, ResponseData, SingleResponse};
use signet::x509::tbs::encode_signed;
use signet::x509::writer::{OCTET_STRING, SEQUENCE, build};

fn main() {
    divan::main();
}

/// A CertID with SHA-1, which nearly all clients send.
fn cert_id() -> Vec<u8> {
    build(SEQUENCE, 128, |w| {
        w.nest(SEQUENCE, |w| w.oid(CertIdHash::Sha1.oid()));
        w.tlv(OCTET_STRING, &[1; 20]);
        w.tlv(OCTET_STRING, &[2; 20]);
        w.unsigned(&[3; 20]);
    })
}

#[divan::bench]
fn request(bencher: divan::Bencher<'_, '_>) {
    let id = cert_id();
    let list = |w: &mut signet::x509::writer::DerWriter| w.nest(SEQUENCE, |w| w.tlv(SEQUENCE, &id));
    let der = build(SEQUENCE, 128, |w| w.nest(SEQUENCE, list));
    bencher.bench(|| OcspRequest::parse(divan::black_box(&der)).is_ok());
}

fn answer(bencher: divan::Bencher<'_, '_>, key_type: &str, bits: i64) {
    let key = KeySpec::new(key_type, bits).and_then(PrivateKey::generate).expect("benchmark inputs are sound");
    let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 0, false).expect("benchmark inputs are sound");
    let id = cert_id();
    let name = name(&[&rdn(Attribute::CommonName, &["Root".to_owned()])]);
    bencher.bench(|| {
        let data = ResponseData {
            responder: &name,
            produced_at: 1_800_000_000,
            next_update: Some(1_800_043_200),
            responses: &[SingleResponse { cert_id: &id, status: OcspCertStatus::Good }],
            nonce: None,
        }
        .encode();
        let signature = key.sign(algorithm, &data).expect("the key signs");
        ocsp::encode_successful(&encode_signed(&data, algorithm, &signature))
    });
}

#[divan::bench]
fn answer_p256(bencher: divan::Bencher<'_, '_>) {
    answer(bencher, "ec", 256);
}

#[divan::bench]
fn answer_rsa_2048(bencher: divan::Bencher<'_, '_>) {
    answer(bencher, "rsa", 2048);
}

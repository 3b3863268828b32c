//! Encoding of certificates and CRLs from pre-encoded pieces, signatures left out.

use signet::clock::Clock;
use signet::keys::local::{KeySpec, PrivateKey};
use signet::x509::algorithm::SignatureAlgorithm;
use signet::x509::extension::{self, KeyUsage, SubjectAltNames};
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::serial::Serial;
use signet::x509::tbs::CertificateTbs;
use signet::x509::{crl, pem};

fn main() {
    divan::main();
}

#[divan::bench]
fn leaf(bencher: divan::Bencher<'_, '_>) {
    let key = PrivateKey::generate(KeySpec::new("ec", 256).expect("benchmark inputs are sound"))
        .expect("benchmark inputs are sound");
    let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 0, false).expect("benchmark inputs are sound");
    let issuer = name::name(&[&rdn(Attribute::CommonName, &["Bench Root".to_owned()])]);
    let head = extension::key_usage(KeyUsage::CERT_SIGN);
    let authority = extension::authority_key_id(&key.public().key_id());
    let serial = Serial::random();
    let at = Clock::system().now();
    bencher.bench(|| {
        let subject = name::name(&[&rdn(Attribute::CommonName, &["load.example.test".to_owned()])]);
        let names = SubjectAltNames {
            dns: vec!["load.example.test".to_owned(), "www.example.test".to_owned()],
            ..SubjectAltNames::default()
        };
        let san = extension::subject_alt_name(&names, false);
        let key_id = extension::subject_key_id(&key.public().key_id());
        CertificateTbs {
            serial: &serial,
            algorithm,
            issuer: &issuer,
            not_before: at,
            not_after: at,
            subject: &subject,
            spki: key.public().spki(),
            extensions: &[&head, &key_id, &authority, &san],
        }
        .encode()
    });
}

#[divan::bench]
fn crl_entry(bencher: divan::Bencher<'_, '_>) {
    let serial = Serial::random();
    bencher.bench(|| crl::encode_entry(&serial, 1_700_000_000, Some(1), None));
}

#[divan::bench]
fn certificate_pem(bencher: divan::Bencher<'_, '_>) {
    let der = [7; 680];
    bencher.bench(|| pem::encode("CERTIFICATE", &der));
}

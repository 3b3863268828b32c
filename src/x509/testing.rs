//! The `openssl` command as an independent reader and writer for tests.

use std::path::PathBuf;
use std::process::{Command, Output};

use super::algorithm::{Curve, KeyKind, SignatureAlgorithm};
use super::certificate::Certificate;
use super::extension::{self, KeyUsage};
use super::name;
use super::pieces::{Extensions, Name};
use super::serial::Serial;
use super::tbs::{CertificateTbs, encode_signed};
use super::time::from_epoch;
use crate::keys::{KeySpec, PrivateKey};

/// `openssl genpkey` arguments for all kinds of keys.
pub(crate) const OPENSSL_KEY_ARGUMENTS: &[(&[&str], KeyKind)] = &[
    (&["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], KeyKind::Rsa { bits: 2048 }),
    (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], KeyKind::Ec(Curve::P256)),
    (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-224"], KeyKind::Ec(Curve::P224)),
    (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"], KeyKind::Ec(Curve::P384)),
    (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"], KeyKind::Ec(Curve::P521)),
    (&["-algorithm", "ED25519"], KeyKind::Ed25519),
];

/// A temporary directory in which commands run.
pub(crate) struct OpenSsl(tempfile::TempDir);

impl OpenSsl {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its name.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).unwrap();
        name.to_owned()
    }

    /// Runs the command and returns its output, even if it fails.
    pub(crate) fn try_run(&self, arguments: &[&str]) -> Output {
        Command::new("openssl").args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    /// Runs the command, which must succeed, and returns its standard output.
    pub(crate) fn run(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.try_run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// As [`OpenSsl::run`], with the output as text.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.run(arguments)).unwrap()
    }

    /// Generates a private key in the file `name` and returns the name.
    pub(crate) fn key(&self, name: &str, arguments: &[&str]) -> String {
        self.run(&[&["genpkey", "-out", name], arguments].concat());
        name.to_owned()
    }
}

/// All kinds of issuer keys, as requests name them.
pub(crate) const ISSUER_KEY_KINDS: &[(&str, i64)] =
    &[("rsa", 2048), ("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0)];

/// A self-signed root, valid from 2023 to 2049, with its key.
pub(crate) fn root(key_type: &str, bits: i64) -> (PrivateKey, Certificate) {
    let key = PrivateKey::generate(KeySpec::new(key_type, bits).unwrap()).unwrap();
    let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 0, false).unwrap();
    let subject = name::name(&[&name::rdn(name::Attribute::CommonName, &["Test Root".into()])]);
    let id = key.public().key_id();
    let extensions = [
        extension::key_usage(KeyUsage::CERT_SIGN.union(KeyUsage::CRL_SIGN)),
        extension::basic_constraints(true, None),
        extension::subject_key_id(&id),
        extension::authority_key_id(&id),
    ];
    let der = issue(&key, algorithm, &subject, &subject, key.public().spki(), &extensions);
    (key, Certificate::parse(&der).unwrap())
}

/// A certificate with a random serial number, valid from 2023 to 2049.
pub(crate) fn issue(
    key: &PrivateKey,
    algorithm: SignatureAlgorithm,
    issuer: &Name,
    subject: &Name,
    spki: &[u8],
    extensions: &[Extensions],
) -> Vec<u8> {
    let pieces: Vec<&Extensions> = extensions.iter().collect();
    let tbs = CertificateTbs {
        serial: &Serial::random(),
        algorithm,
        issuer,
        not_before: from_epoch(1_700_000_000),
        not_after: from_epoch(2_500_000_000),
        subject,
        spki,
        extensions: &pieces,
    }
    .encode();
    encode_signed(&tbs, algorithm, &key.sign(algorithm, &tbs).unwrap())
}

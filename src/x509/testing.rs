//! The `openssl` command, with which tests read, write and sign independently of the server's code.

use std::path::PathBuf;
use std::process::{Command, Output};

use super::algorithm::{Curve, Hash, KeyKind, SignatureAlgorithm};
use super::certificate::Certificate;
use super::extension::{self, KeyUsage};
use super::name;
use super::pieces::{Extensions, Name};
use super::public_key::PublicKey;
use super::serial::Serial;
use super::tbs::{CertificateTbs, encode_signed};
use super::time::from_epoch;

/// Arguments of `openssl genpkey` for each kind of key.
pub(crate) const OPENSSL_KEY_ARGUMENTS: &[(&[&str], KeyKind)] = &[
    (&["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], KeyKind::Rsa { bits: 2048 }),
    (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], KeyKind::Ec(Curve::P256)),
    (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-224"], KeyKind::Ec(Curve::P224)),
    (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"], KeyKind::Ec(Curve::P384)),
    (&["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-521"], KeyKind::Ec(Curve::P521)),
    (&["-algorithm", "ED25519"], KeyKind::Ed25519),
];

/// The `openssl` command, run in a temporary directory of its own.
pub(crate) struct OpenSsl(tempfile::TempDir);

impl OpenSsl {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file to the directory and returns its name.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).unwrap();
        name.to_owned()
    }

    /// Runs `openssl` and returns its output, even if it fails.
    pub(crate) fn try_run(&self, arguments: &[&str]) -> Output {
        Command::new("openssl").args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    /// Runs `openssl`, which must succeed, and returns its standard output.
    pub(crate) fn run(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.try_run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// Like [`OpenSsl::run`], but returns the output as text.
    pub(crate) fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.run(arguments)).unwrap()
    }

    /// Generates a private key in the file `name` and returns the name.
    pub(crate) fn key(&self, name: &str, arguments: &[&str]) -> String {
        self.run(&[&["genpkey", "-out", name], arguments].concat());
        name.to_owned()
    }
}

/// All kinds of issuer keys: key type and bits, as in requests.
pub(crate) const ISSUER_KEY_KINDS: &[(&str, u32)] =
    &[("rsa", 2048), ("ec", 256), ("ec", 384), ("ec", 521), ("ed25519", 0)];

/// A private key that signs certificates in tests.
pub(crate) trait TestSigner {
    fn public_key(&self) -> &PublicKey;
    fn signature(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Vec<u8>;
}

/// A private key that `openssl` generated and signs with.
pub(crate) struct TestKey {
    openssl: OpenSsl,
    public: PublicKey,
}

impl TestKey {
    /// Generates a key of this type and size, which [`OPENSSL_KEY_ARGUMENTS`] must contain.
    pub(crate) fn generate(key_type: &str, bits: u32) -> Self {
        let openssl = OpenSsl::new();
        let is_kind = |known: &&(&[&str], KeyKind)| known.1.name() == key_type && known.1.bits() == bits;
        openssl.key("key.pem", OPENSSL_KEY_ARGUMENTS.iter().find(is_kind).unwrap().0);
        let spki = openssl.run(&["pkey", "-in", "key.pem", "-pubout", "-outform", "DER"]);
        Self { openssl, public: PublicKey::parse(&spki).unwrap() }
    }

    /// Returns the private key as PKCS #8.
    pub(crate) fn pkcs8(&self) -> Vec<u8> {
        self.openssl.run(&["pkcs8", "-topk8", "-nocrypt", "-in", "key.pem", "-outform", "DER"])
    }
}

impl TestSigner for TestKey {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn signature(&self, algorithm: SignatureAlgorithm, message: &[u8]) -> Vec<u8> {
        self.openssl.file("message", message);
        let Some(hash) = algorithm.hash() else {
            return self.openssl.run(&["pkeyutl", "-sign", "-rawin", "-inkey", "key.pem", "-in", "message"]);
        };
        let hash = match hash {
            Hash::Sha256 => "-sha256",
            Hash::Sha384 => "-sha384",
            Hash::Sha512 => "-sha512",
        };
        let padding: &[&str] = match algorithm {
            SignatureAlgorithm::RsaPss(_) => &["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"],
            _ => &[],
        };
        self.openssl.run(&[&["dgst", hash, "-sign", "key.pem"], padding, &["message"]].concat())
    }
}

/// Generates a key and returns it with a self-signed root certificate, valid from 2023 to 2049.
pub(crate) fn root(key_type: &str, bits: u32) -> (TestKey, Certificate) {
    let key = TestKey::generate(key_type, bits);
    let certificate = root_of(&key);
    (key, certificate)
}

/// Returns a self-signed root certificate of this key, valid from 2023 to 2049.
pub(crate) fn root_of(key: &impl TestSigner) -> Certificate {
    let public = key.public_key();
    let algorithm = SignatureAlgorithm::for_issuer(public.kind(), 0, false).unwrap();
    let subject = name::name(&[&name::rdn(name::Attribute::CommonName, &["Test Root".into()])]);
    let id = public.key_id();
    let extensions = [
        extension::key_usage(KeyUsage::CERT_SIGN.union(KeyUsage::CRL_SIGN)),
        extension::basic_constraints(true, None),
        extension::subject_key_id(&id),
        extension::authority_key_id(&id),
    ];
    let der = issue(key, algorithm, &subject, &subject, public.spki(), &extensions);
    Certificate::parse(&der).unwrap()
}

/// Issues a certificate with a random serial number, valid from 2023 to 2049.
pub(crate) fn issue(
    key: &impl TestSigner,
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
    encode_signed(&tbs, algorithm, &key.signature(algorithm, &tbs))
}

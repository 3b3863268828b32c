//! openssl and GnuTLS: keys and requests made outside of this server, and their reading of what it issues.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{LazyLock, Mutex};

use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::csr::request_info;
use signet::x509::pieces::{Extensions, Name};
use signet::x509::{pem, tbs};

/// Runs a program on `input`.
pub fn run(program: &str, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that reads nothing may have closed its end already.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// What `openssl` writes, which must be content with its input.
pub fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = run("openssl", arguments, input);
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// As [`openssl`], as text.
pub fn openssl_text(arguments: &[&str], input: &[u8]) -> String {
    String::from_utf8(openssl(arguments, input)).unwrap()
}

/// A private key as PEM, made by openssl once per kind and run: `rsa-2048`, `ec-256`, `ed25519` …
pub fn key(kind: &str) -> String {
    static KEYS: LazyLock<Mutex<HashMap<String, String>>> = LazyLock::new(Mutex::default);
    let mut keys = KEYS.lock().unwrap();
    keys.entry(kind.to_owned()).or_insert_with(|| new_key(kind)).clone()
}

/// As [`key`], a new one each time.
pub fn new_key(kind: &str) -> String {
    let (family, bits) = kind.split_once('-').unwrap_or((kind, ""));
    let option = match (family, bits) {
        ("ed25519", _) => return openssl_text(&["genpkey", "-algorithm", "ed25519"], b""),
        ("rsa", bits) => format!("rsa_keygen_bits:{bits}"),
        ("ec", "256") => "ec_paramgen_curve:P-256".to_owned(),
        ("ec", "224" | "384" | "521") => format!("ec_paramgen_curve:secp{bits}r1"),
        // Any other curve by its own name.
        ("curve", name) => format!("ec_paramgen_curve:{name}"),
        _ => panic!("no such kind of key: {kind}"),
    };
    let algorithm = if family == "rsa" { "RSA" } else { "EC" };
    openssl_text(&["genpkey", "-quiet", "-algorithm", algorithm, "-pkeyopt", &option], b"")
}

/// A certification request by openssl. `subject` is in its slash form (`/` for an empty one), `extensions`
/// are the lines of a configuration section (none without a line).
pub fn csr(key_kind: &str, subject: &str, extensions: &str) -> String {
    csr_with(key_kind, subject, extensions, &[])
}

/// As [`csr`], with more arguments for `openssl req`.
pub fn csr_with(key_kind: &str, subject: &str, extensions: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (key_path, config) = (path("key.pem"), path("req.cnf"));
    std::fs::write(&key_path, key(key_kind)).unwrap();
    std::fs::write(&config, format!("[req]\ndistinguished_name = dn\n[dn]\n[ext]\n{extensions}\n")).unwrap();
    let mut all = vec!["req", "-new", "-utf8", "-multivalue-rdn", "-key", &key_path, "-config", &config];
    all.extend(["-subj", subject]);
    if !extensions.is_empty() {
        all.extend(["-reqexts", "ext"]);
    }
    all.extend(arguments);
    openssl_text(&all, b"")
}

/// A request of whole DER pieces for the P-256 key, signed by openssl: for what `openssl req` would not write.
pub fn csr_of_pieces(subject: &Name, extensions: &[&Extensions]) -> String {
    let info = request_info(subject, &p256_spki(), &Extensions::joined(extensions));
    pem::encode("CERTIFICATE REQUEST", &signed_by_p256(&info))
}

/// The SubjectPublicKeyInfo of the P-256 key.
pub fn p256_spki() -> Vec<u8> {
    openssl(&["pkey", "-pubout", "-outform", "DER"], key("ec-256").as_bytes())
}

/// A request or certificate of these bytes to be signed, by the P-256 key.
pub fn signed_by_p256(info: &[u8]) -> Vec<u8> {
    let files = Files::new();
    let key = files.write("key.pem", key("ec-256").as_bytes());
    let signature = openssl(&["dgst", "-sha256", "-sign", key.to_str().unwrap()], info);
    tbs::signed(info, SignatureAlgorithm::Ecdsa(Hash::Sha256), &signature)
}

/// What a CA's certificate has, for [`Ca`].
pub const CA: &str = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n\
    subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid";

/// A certificate authority that openssl keeps.
pub struct Ca {
    /// The private key, PEM.
    pub key: String,
    /// The certificate, PEM, without a newline at its end.
    pub pem: String,
}

impl Ca {
    /// A self-signed root with this key. `subject` is in its slash form, `extensions` are the lines of a
    /// configuration section; `arguments` are further ones for `openssl req`.
    pub fn root_with(key: String, subject: &str, extensions: &str, arguments: &[&str]) -> Self {
        let files = Files::new();
        let key_path = files.write("key.pem", key.as_bytes());
        let section = format!("[req]\ndistinguished_name = dn\n[dn]\n[ext]\n{extensions}\n");
        let config = files.write("req.cnf", section.as_bytes());
        let mut all = vec!["req", "-x509", "-new", "-days", "3650", "-key", key_path.to_str().unwrap()];
        all.extend(["-config", config.to_str().unwrap(), "-extensions", "ext", "-subj", subject]);
        all.extend(arguments);
        let pem = openssl_text(&all, b"").trim().to_owned();
        Self { key, pem }
    }

    /// A self-signed P-256 root with a new key.
    pub fn root(subject: &str) -> Self {
        Self::root_with(new_key("ec-256"), subject, CA, &[])
    }

    /// The certificate that it makes of a request: of its subject and key, with these extensions.
    pub fn signs(&self, csr: &str, extensions: &str, arguments: &[&str]) -> String {
        let files = Files::new();
        let path = |name: &str, content: &str| files.write(name, content.as_bytes()).to_str().unwrap().to_owned();
        let (csr, pem, key) = (path("csr.pem", csr), path("ca.pem", &self.pem), path("key.pem", &self.key));
        let section = path("ext.cnf", extensions);
        let mut all = vec!["x509", "-req", "-days", "1000", "-in", &csr, "-CA", &pem, "-CAkey", &key];
        all.extend(["-extfile", &section]);
        all.extend(arguments);
        openssl_text(&all, b"").trim().to_owned()
    }

    /// An intermediate below it, with a new P-256 key.
    pub fn intermediate(&self, subject: &str, arguments: &[&str]) -> Self {
        let key = new_key("ec-256");
        let files = Files::new();
        let key_path = files.write("key.pem", key.as_bytes());
        let config = files.write("req.cnf", b"[req]\ndistinguished_name = dn\n[dn]\n");
        let (key_path, config) = (key_path.to_str().unwrap(), config.to_str().unwrap());
        let csr = openssl_text(&["req", "-new", "-key", key_path, "-config", config, "-subj", subject], b"");
        Self { key, pem: self.signs(&csr, CA, arguments) }
    }

    /// Certificate and key in one text.
    pub fn bundle(&self) -> String {
        format!("{}\n{}", self.pem, self.key)
    }
}

/// What openssl prints of a request whose signature it has verified.
pub fn csr_text(pem: &str) -> String {
    let arguments = ["req", "-noout", "-text", "-verify", "-nameopt", "sep_comma_plus,sname,utf8"];
    let output = run("openssl", &arguments, pem.as_bytes());
    let verdict = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && verdict.contains("verify OK"), "{verdict}");
    String::from_utf8(output.stdout).unwrap()
}

/// What openssl prints of a certificate.
pub fn certificate_text(pem: &str) -> String {
    openssl_text(&["x509", "-noout", "-text"], pem.as_bytes())
}

/// An extension as openssl prints it: whether it is critical, and its text. `None` when it is absent.
pub fn extension(pem: &str, name: &str) -> Option<(bool, String)> {
    let text = openssl_text(&["x509", "-noout", "-ext", name], pem.as_bytes());
    let (head, value) = text.split_once('\n')?;
    Some((head.trim().ends_with("critical"), value.trim().to_owned()))
}

/// The subject as openssl prints it: `C=NZ,O=a+O=b,CN=c`, RDNs in their order.
pub fn subject(pem: &str) -> String {
    let text = openssl_text(&["x509", "-noout", "-subject", "-nameopt", "sep_comma_plus,sname,utf8"], pem.as_bytes());
    text.trim().strip_prefix("subject=").unwrap().to_owned()
}

/// The algorithm that a certificate is signed with, and its parameters, as openssl prints them.
pub fn signature_algorithm(pem: &str) -> String {
    let text = certificate_text(pem);
    let (_, after) = text.split_once("Signature Algorithm: ").unwrap();
    after.split("Issuer:").next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Certificates as files, for tools that take nothing else.
pub struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file; its path.
    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// Whether openssl takes the leaf for one of the root, by all its strict rules.
pub fn openssl_verifies(root: &Path, leaf: &Path) -> Result<(), String> {
    let arguments = ["verify", "-x509_strict", "-CAfile", root.to_str().unwrap(), leaf.to_str().unwrap()];
    verdict(run("openssl", &arguments, b""))
}

/// Whether openssl finds a way from the leaf to the root over the certificates between, by all its strict
/// rules. All are PEM texts.
pub fn openssl_verifies_chain(root: &str, between: &[&str], leaf: &str) -> Result<(), String> {
    let files = Files::new();
    let (root, leaf) = (files.write("root", root.as_bytes()), files.write("leaf", leaf.as_bytes()));
    let between = files.write("between", between.join("\n").as_bytes());
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (root, between, leaf) = (path(&root), path(&between), path(&leaf));
    let mut arguments = vec!["verify", "-x509_strict", "-CAfile", &root];
    if std::fs::metadata(&between).unwrap().len() > 0 {
        arguments.extend(["-untrusted", &between]);
    }
    arguments.push(&leaf);
    verdict(run("openssl", &arguments, b""))
}

/// Which of the leaves openssl does not take for one of the root, by all its strict rules.
pub fn openssl_refuses(root: &str, leaves: &[&Path]) -> Vec<PathBuf> {
    let files = Files::new();
    let root = files.write("root", root.as_bytes());
    let mut arguments = vec!["verify", "-x509_strict", "-CAfile", root.to_str().unwrap()];
    arguments.extend(leaves.iter().map(|leaf| leaf.to_str().unwrap()));
    let output = run("openssl", &arguments, b"");
    let printed = String::from_utf8(output.stdout).unwrap();
    let accepted: Vec<&str> = printed.lines().filter_map(|line| line.strip_suffix(": OK")).collect();
    leaves.iter().filter(|leaf| !accepted.contains(&leaf.to_str().unwrap())).map(|leaf| leaf.to_path_buf()).collect()
}

/// Whether GnuTLS takes the leaf for one of the root.
pub fn gnutls_verifies(root: &Path, leaf: &Path) -> Result<(), String> {
    let (root, leaf) = (root.to_str().unwrap(), leaf.to_str().unwrap());
    verdict(run("certtool", &["--verify", "--load-ca-certificate", root, "--infile", leaf], b""))
}

fn verdict(output: Output) -> Result<(), String> {
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

/// A CRL as openssl reads it.
pub struct Crl {
    pub der: Vec<u8>,
    pub text: String,
}

impl Crl {
    pub fn new(der: Vec<u8>) -> Self {
        let text = openssl_text(&["crl", "-inform", "DER", "-noout", "-text"], &der);
        Self { der, text }
    }

    /// The CRL number.
    pub fn number(&self) -> u64 {
        let (_, after) = self.text.split_once("X509v3 CRL Number:").unwrap();
        after.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// The serials on it, as this server writes them.
    pub fn serials(&self) -> Vec<String> {
        self.entries().map(|entry| colons(entry.lines().next().unwrap().trim())).collect()
    }

    /// What is printed of the entry of a serial.
    pub fn entry(&self, serial: &str) -> Option<&str> {
        self.entries().find(|entry| colons(entry.lines().next().unwrap().trim()) == serial)
    }

    fn entries(&self) -> impl Iterator<Item = &str> {
        let list = self.text.split("Signature Algorithm:").nth(1).unwrap_or_default();
        let list = if list.contains("Serial Number: ") { list } else { &self.text };
        list.split("Serial Number: ").skip(1)
    }

    /// Whether the key of this certificate signed it.
    pub fn is_signed_by(&self, certificate: &str) -> bool {
        let files = Files::new();
        let ca = files.write("ca.pem", certificate.as_bytes());
        let arguments = ["crl", "-inform", "DER", "-noout", "-CAfile", ca.to_str().unwrap()];
        let output = run("openssl", &arguments, &self.der);
        String::from_utf8_lossy(&output.stderr).contains("verify OK")
    }
}

/// `0AFF` → `0a:ff`.
fn colons(hex: &str) -> String {
    let pairs: Vec<&str> = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap()).collect();
    pairs.join(":").to_lowercase()
}

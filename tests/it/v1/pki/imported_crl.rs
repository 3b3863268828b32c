//! CAs that have published CRLs elsewhere: `issuers/import/crl` and `signet import`. openssl and Python's
//! `cryptography`, which know the old CRL, check the new one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use signet::keys::local::PrivateKey;
use signet::x509::algorithm::SignatureAlgorithm;
use signet::x509::crl::{CrlTbs, encode_entry};
use signet::x509::extension;
use signet::x509::ocsp::CertIdHash;
use signet::x509::pem;
use signet::x509::serial::Serial;

use super::foreign::{CA, Ca, Crl, Files, csr_of_key, new_key, openssl_text, printed, run};
use super::mount::{Pki, parse, text, until};
use super::ocsp::{cert_id, request};
use crate::faults::double::{Fault, Faults};
use crate::judges::{judge, refusal};
use crate::process::{openssl, signet};
use crate::support::{Answer, App, Client, send};
use crate::v1::rights::{granted, only, rule};

/// A CA of `openssl ca`: a folder with its database of certificates.
struct Authority {
    files: Files,
}

const CONFIGURATION: &str = "
[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
serial = serial
crlnumber = crlnumber
certificate = ca.pem
private_key = ca-key.pem
default_md = sha256
default_days = 100
default_crl_days = 7
policy = any
crl_extensions = list
x509_extensions = leaf
unique_subject = no
[any]
commonName = supplied
[list]
authorityKeyIdentifier = keyid
[leaf]
basicConstraints = CA:false
authorityKeyIdentifier = keyid
[req]
distinguished_name = dn
[dn]
";

impl Authority {
    /// Creates a CA with this certificate. Its next serial number is 4096, and its next CRL number is 420.
    fn of(authority: &Ca) -> Self {
        let files = Files::new();
        for (name, text) in [
            ("ca.cnf", CONFIGURATION),
            ("index.txt", ""),
            ("serial", "1000\n"),
            ("crlnumber", "01A4\n"),
            ("ca.pem", &authority.pem),
            ("ca-key.pem", &authority.key),
        ] {
            files.save(name, text);
        }
        Self { files }
    }

    fn new(subject: &str) -> Self {
        Self::of(&Ca::root(subject))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn run(&self, arguments: &[&str]) {
        openssl(&self.path(""), &[&["ca", "-config", "ca.cnf", "-batch"][..], arguments].concat());
    }

    /// Issues the leaf `name`, in `name.pem`.
    fn issue(&self, name: &str) {
        let csr = csr_of_key(&new_key("ec-256"), &format!("/CN={name}"), "", &[]);
        let csr = self.files.save("csr.pem", csr);
        self.run(&["-in", &csr, "-out", &format!("{name}.pem"), "-notext"]);
    }

    /// Issues the leaf `name` and revokes it.
    fn issue_and_revoke(&self, name: &str, reason: &[&str]) {
        self.issue(name);
        self.revoke(name, reason);
    }

    fn revoke(&self, name: &str, reason: &[&str]) {
        let leaf = format!("{name}.pem");
        self.run(&[&["-revoke", &leaf][..], reason].concat());
    }

    /// Writes its next CRL to `crl.pem` and returns it.
    fn publish(&self) -> String {
        self.run(&["-gencrl", "-out", "crl.pem"]);
        self.text("crl.pem")
    }

    fn bundle(&self) -> String {
        format!("{}\n{}", self.text("ca.pem").trim(), self.text("ca-key.pem"))
    }

    fn serial(&self, name: &str) -> String {
        parse(&self.text(&format!("{name}.pem"))).serial().to_string()
    }

    /// `true` if openssl with this CRL accepts the leaf.
    fn is_good(&self, name: &str, crl: &Crl) -> bool {
        is_good(&self.text("ca.pem"), &self.text(&format!("{name}.pem")), crl)
    }
}

/// `true` if openssl with this CRL accepts the leaf.
fn is_good(ca: &str, leaf: &str, crl: &Crl) -> bool {
    let files = Files::new();
    let ca = files.save("ca.pem", ca);
    let leaf = files.save("leaf.pem", leaf);
    let list = files.save("crl.pem", crl.pem());
    let output = run("openssl", &["verify", "-crl_check", "-CAfile", &ca, "-CRLfile", &list, &leaf], b"");
    let said = printed(&output);
    assert!(output.status.success() || said.contains("certificate revoked"), "{said}");
    output.status.success()
}

/// Returns the first new issuer of an import.
fn first_issuer(answer: &Answer) -> String {
    answer.body["data"]["imported_issuers"][0].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
}

/// Returns the OCSP status of a serial number of a CA.
pub async fn status(pki: &Pki, ca: &str, serial: &str) -> String {
    let id = cert_id(CertIdHash::Sha1, &parse(ca), &Serial::parse(serial).unwrap());
    pki.ocsp(&request(&[id], None)).await.statuses().remove(0)
}

/// Asserts that Python's `cryptography` accepts `new` as the successor of the CRL in the file `old`, with the
/// additional entries `more`.
fn assert_follows(old: &Path, new: &Crl, ca: &str, more: &[&str]) {
    let files = Files::new();
    let new = files.save("new.crl", &new.der);
    let ca = files.save("ca.pem", ca);
    let more: Vec<String> = more.iter().map(|serial| serial.replace(':', "")).collect();
    let mut arguments = vec!["compare", old.to_str().unwrap(), &new, &ca];
    arguments.extend(more.iter().map(String::as_str));
    judge("peer_authority.py", &arguments);
}

#[actix_web::test]
async fn openssl_ca_continues_its_crl_numbers_and_entries() {
    for app in [App::start().await, App::builder().postgres().start().await] {
        let pki = Pki { app };
        let own = Authority::new("/CN=Own authority");
        own.issue_and_revoke("first", &["-crl_reason", "superseded"]);
        own.issue_and_revoke("second", &["-crl_compromise", "20250102030405Z"]);
        own.issue("third");
        let list = own.publish();
        let ca = own.text("ca.pem");
        let imported = pki.post("issuers/import/bundle", json!({ "pem_bundle": own.bundle() })).await;
        let id = first_issuer(&imported);
        let warning = format!("the CRLs of issuer {id} start at number 1");
        assert!(imported.warnings().contains(&warning), "{}", imported.text);
        // Without an import of the old CRL, clients that know it do not accept the new one.
        let before = pki.crl(&id).await;
        assert_eq!(before.number(), 1);
        let old = own.path("crl.pem");
        let bad = own.files.save("bad.crl", &before.der);
        let ca_file = own.path("ca.pem");
        let compare = ["compare", old.to_str().unwrap(), &bad, ca_file.to_str().unwrap()];
        let rejection = refusal("peer_authority.py", &compare);
        assert!(rejection.contains("number 420 -> 1") && rejection.contains("is gone"), "{rejection}");

        let answer = pki.post("issuers/import/crl", json!({ "crl": list })).await;
        let expected = json!({ "issuers": [id], "crl_number": 420, "published_crl_number": 421, "entries": 2,
            "imported_entries": 2, "existing_entries": 0 });
        assert_eq!(answer.body["data"], expected);
        assert_eq!(answer.warnings(), "");
        let crl = pki.crl(&id).await;
        assert_eq!(crl.number(), 421);
        assert_follows(&old, &crl, &ca, &[]);
        assert!(crl.is_signed_by(&ca));
        for (name, expected) in [("first", "revoked"), ("second", "revoked"), ("third", "unknown")] {
            assert_eq!(own.is_good(name, &crl), name == "third", "{name}");
            assert_eq!(status(&pki, &ca, &own.serial(name)).await, expected, "{name}");
        }
        // The revocation time is that of the old CRL, by certificate and by serial number.
        let listed = pki.list("certs/revoked").await;
        assert!(listed.contains(&own.serial("first")) && !listed.contains(&own.serial("third")), "{listed:?}");
        for (body, name) in [
            (json!({ "certificate": own.text("first.pem") }), "first"),
            (json!({ "serial_number": own.serial("second") }), "second"),
        ] {
            let data = pki.data("revoke", body).await;
            let entry = crl.entry(&own.serial(name)).unwrap();
            let at = text(&data, "revocation_time_rfc3339");
            assert!(entry.contains(&at[11..19]), "{name}: {at} {entry}");
        }
        // A valid certificate from elsewhere can be revoked here, but only by its PEM.
        pki.refused("revoke", json!({ "serial_number": own.serial("third") }), "not found").await;
        pki.post("revoke", json!({ "certificate": own.text("third.pem"), "reason": "keyCompromise" })).await;
        assert_eq!(status(&pki, &ca, &own.serial("third")).await, "revoked");
        let next = pki.crl(&id).await;
        assert!(next.number() > 421 && !own.is_good("third", &next));
        assert_follows(&old, &next, &ca, &[&own.serial("third")]);
        let repeated = pki.data("issuers/import/crl", json!({ "crl": list })).await;
        assert_eq!((&repeated["imported_entries"], &repeated["existing_entries"]), (&json!(0), &json!(2)));
        let last = pki.crl(&id).await;
        assert!(last.der == next.der);
        let pki = pki.restart().await;
        assert!(pki.crl(&id).await.der == last.der);
        assert_eq!(status(&pki, &ca, &own.serial("first")).await, "revoked");
        pki.stop().await;
    }
}

/// Runs `signet import` on a folder. Returns its success, standard output and standard error.
pub(super) async fn run_import(pki: &Pki, folder: &Path, arguments: &[&str]) -> (bool, String, String) {
    let mut command = signet();
    command.arg("import").arg(folder).args(arguments);
    command.env("SIGNET_ADDR", pki.app.client.url("").trim_end_matches("/v1/"));
    command.env("SIGNET_TOKEN", &pki.app.client.token);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.success(), out, err)
}

#[actix_web::test]
async fn the_export_of_a_peer_is_imported_from_its_folder() {
    let pki = Pki::empty().await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let serials = judge("peer_authority.py", &["make", folder.path().to_str().unwrap()]);
    std::fs::write(path("notes.txt"), "nothing for a server").unwrap();
    // Keys of the same types without a certificate.
    for (name, kind) in [("ec.key", &["EC", "-pkeyopt", "ec_paramgen_curve:P-256"][..]), ("rsa.key", &["RSA"])] {
        let key = run("openssl", &[&["genpkey", "-algorithm"], kind].concat(), b"").stdout;
        std::fs::write(path(name), key).unwrap();
    }
    let command = async |arguments: &[&str]| run_import(&pki, folder.path(), arguments).await;
    let (done, out, err) = command(&[]).await;
    assert!(done, "{out}{err}");
    assert!(out.contains(": new, with its key\n"), "{out}");
    assert!(out.contains("number 20261012000017, 4 entries, 4 of them new here"), "{out}");
    assert!(err.contains("good.pem: is not the certificate of an authority"), "{err}");
    assert!(err.contains("notes.txt: is neither PEM nor"), "{err}");
    let strangers = ["ec.key", "rsa.key"].map(|name| format!("{name}: is not the key of any of these authorities"));
    assert!(strangers.iter().all(|told| err.contains(told)), "{err}");
    assert_eq!(pki.list("keys").await.len(), 1);
    // The CRL numbers continue, and entries on hold are reported.
    assert!(!err.contains("start at number 1") && err.contains("1 entries have the reason certificateHold"), "{err}");
    let ca = openssl_text(&["x509"], &std::fs::read(path("bundle.pem")).unwrap());
    let crl = pki.crl("default").await;
    assert_eq!(crl.number(), 20_261_012_000_018);
    assert_follows(&path("issuing-ca.crl"), &crl, &ca, &[]);
    for serial in serials.lines() {
        assert_eq!(status(&pki, &ca, serial).await, "revoked", "{serial}");
    }
    let verify = |leaf: &str| is_good(&ca, &std::fs::read_to_string(path(leaf)).unwrap(), &crl);
    assert_eq!([verify("good.pem"), verify("revoked.pem")], [true, false]);
    // A second import of the folder finds nothing new.
    let (done, out, _) = command(&[]).await;
    assert!(done && out.contains(": existing, with its key\n"), "{out}");
    assert!(out.contains("4 entries, 0 of them new here"), "{out}");
    // An error names the request that the server rejected, and an unreadable file prevents all requests.
    let (done, _, err) = command(&["--mount", "none"]).await;
    assert!(!done && err.contains("status 404") && err.contains("(check --mount)"), "{err}");
    std::fs::write(path("broken.pem"), "-----BEGIN X509 CRL-----\nMAAA\n-----END X509 CRL-----\n").unwrap();
    let (done, _, err) = command(&[]).await;
    assert!(!done && err.contains("broken.pem: crl: "), "{err}");
    pki.stop().await;
}

/// Returns a CRL signed by this CA, with extensions in addition to its number.
pub fn list(
    ca: &Ca,
    number: u64,
    entries: &[Vec<u8>],
    this_update: i64,
    further: &[&signet::x509::pieces::Extensions],
) -> Vec<u8> {
    let key = PrivateKey::from_pem(&ca.key).unwrap();
    let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 256, false).unwrap();
    let certificate = parse(&ca.pem);
    let number = extension::crl_number(number);
    let extensions: Vec<_> = [&number].into_iter().chain(further.iter().copied()).collect();
    let tbs = CrlTbs {
        algorithm,
        issuer: certificate.subject(),
        this_update,
        next_update: this_update + 86_400,
        extensions: &extensions,
    };
    let tbs = tbs.encode(entries.iter().cloned().map(Bytes::from).collect());
    let signature = key.sign(algorithm, &tbs.pieces().collect::<Vec<_>>().concat()).unwrap();
    tbs.signed(algorithm, &signature).concat()
}

fn serial(n: u32) -> Serial {
    Serial::from_octets(&[&[0x31][..], &n.to_be_bytes()[..]].concat()).unwrap()
}

pub async fn sent(client: &Client, octets: Vec<u8>) -> Answer {
    let request = client.request("POST", "pki/issuers/import/crl").header("Content-Type", "application/pkix-crl");
    send(request.body(octets)).await
}

#[actix_web::test]
async fn crl_that_is_not_a_complete_one_of_an_issuer_is_rejected() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Own authority");
    let other = Ca::root("/CN=Own authority");
    let id = pki.import_one(&ca.bundle()).await;
    let without_crl_sign = "basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign";
    let silent = Ca::root_with(ca.key.clone(), "/CN=Silent", without_crl_sign, &[]);
    pki.import_one(&silent.pem).await;
    let before = pki.crl(&id).await;
    let one = [encode_entry(&serial(1), 1_700_000_000, None, None)];
    let at = pki.now();
    let good = list(&ca, 9, &one, at, &[]);
    let mut tampered = good.clone();
    let place = tampered.windows(2).position(|two| two == [0x31, 0]).unwrap();
    tampered[place + 4] ^= 1;
    let scope = extension::extension(&[0x55, 0x1d, 28], true, &[0x30, 3, 0x84, 1, 0xff]);
    let removed = [one[0].clone(), encode_entry(&serial(2), 1_700_000_000, Some(8), None)];
    let stranger = Ca { key: ca.key.clone(), pem: Ca::root("/CN=X").pem };
    for (octets, rule) in [
        (list(&other, 9, &one, at, &[]), "crl: its signature does not verify with any issuer"),
        (list(&stranger, 9, &one, at, &[]), "crl: no issuer of this mount has the name"),
        (list(&silent, 9, &one, at, &[]), "crl: its issuer may not sign CRLs"),
        (tampered, "crl: its signature does not verify"),
        (list(&ca, 9, &one, at + 3600, &[]), "crl: thisUpdate is in the future"),
        (list(&ca, 1 << 62, &one, at, &[]), "crl: CRL number must be below 2^62"),
        (list(&ca, 9, &one, at, &[&extension::delta_crl_indicator(3)]), "crl: delta CRLs are not supported"),
        (list(&ca, 9, &one, at, &[&scope]), "crl: indirect CRLs"),
        (list(&ca, 9, &removed, at, &[]), "crl: entry of serial number 31:00:00:00:02: removeFromCRL"),
        (ca.pem.clone().into_bytes(), "crl: must be exactly one PEM block"),
        (good[..good.len() - 1].to_vec(), "crl: "),
        (Vec::new(), "crl: must be given"),
    ] {
        let answer = sent(&pki.app.client, octets).await;
        assert!(answer.status == 400 && answer.error().starts_with(rule), "{rule}: {} {}", answer.status, answer.text);
    }
    assert_eq!(pki.list("certs/revoked").await, [""; 0]);
    assert!(pki.crl(&id).await.der == before.der);
    assert_eq!(sent(&pki.app.client, good).await.body["data"]["published_crl_number"], 10);
    pki.stop().await;
}

#[actix_web::test]
async fn imported_crl_without_number_or_signed_over_sha1_warns() {
    let numberless = CONFIGURATION.replace("crlnumber = crlnumber", "");
    let version_1 = numberless.replace("crl_extensions = list", "");
    for (configuration, arguments, number, warning) in [
        (version_1.as_str(), &[][..], None, "the imported CRL has no CRL number"),
        (numberless.as_str(), &[], None, "the imported CRL has no CRL number"),
        (CONFIGURATION, &["-md", "sha1"], Some(420), "the imported CRL is signed over SHA-1"),
    ] {
        for key in ["rsa-2048", "ec-256"] {
            let pki = Pki::empty().await;
            let own = Authority::of(&Ca::root_with(new_key(key), "/CN=Own authority", CA, &[]));
            own.issue_and_revoke("first", &[]);
            own.files.save("ca.cnf", configuration);
            own.run(&[&["-gencrl", "-out", "crl.pem"], arguments].concat());
            let id = pki.import_one(&own.bundle()).await;
            let answer = pki.warns("issuers/import/crl", json!({ "crl": own.text("crl.pem") }), warning).await;
            assert_eq!(answer.body["data"]["crl_number"], json!(number), "{key}");
            assert_eq!(answer.body["data"]["imported_entries"], 1, "{key}");
            let crl = pki.crl(&id).await;
            assert!(crl.number() > number.unwrap_or(0), "{key}: {}", crl.number());
            assert!(!own.is_good("first", &crl), "{key}");
            // A CRL that another key signed is rejected, also over SHA-1.
            let other = Authority::of(&Ca::root_with(new_key(key), "/CN=Own authority", CA, &[]));
            other.files.save("ca.cnf", configuration);
            other.run(&[&["-gencrl", "-out", "crl.pem"], arguments].concat());
            let rule = "crl: its signature does not verify with any issuer";
            pki.refused("issuers/import/crl", json!({ "crl": other.text("crl.pem") }), rule).await;
            pki.stop().await;
        }
    }
}

#[actix_web::test]
async fn import_command_refuses_mount_of_another_authority() {
    let pki = Pki::empty().await;
    let folders = ["One", "Two"].map(|name| {
        let ca = Ca::root(&format!("/CN={name}"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), format!("{}\n{}", ca.pem.trim(), ca.key)).unwrap();
        folder
    });
    let [one, two] = [&folders[0], &folders[1]].map(|folder| folder.path());
    let (done, out, err) = run_import(&pki, one, &[]).await;
    assert!(done && out.contains(": new, with its key\n"), "{out}{err}");
    let (done, _, err) = run_import(&pki, two, &[]).await;
    assert!(!done && err.contains("--mount: pki has another authority with its key"), "{err}");
    assert!(err.contains("POST sys/mounts/NAME") && err.contains("--into-existing"), "{err}");
    assert_eq!((pki.list("issuers").await.len(), pki.list("keys").await.len()), (1, 1));
    let (done, out, err) = run_import(&pki, two, &["--into-existing"]).await;
    assert!(done && out.contains(": new, with its key\n"), "{out}{err}");
    // An import is repeated in a mount that has both.
    for folder in [one, two] {
        let (done, out, err) = run_import(&pki, folder, &[]).await;
        assert!(done && out.contains(": existing, with its key\n"), "{out}{err}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn import_command_with_refused_crl_changes_nothing() {
    let pki = Pki::empty().await;
    let own = Authority::new("/CN=Own authority");
    own.issue_and_revoke("first", &[]);
    let good = own.publish();
    let other = Authority::new("/CN=Own authority").publish();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("ca.pem", &own.bundle());
    let command = async |arguments: &[&str]| {
        let (done, _, err) = run_import(&pki, folder.path(), arguments).await;
        (done, err)
    };
    let counts = async || (pki.list("issuers").await.len(), pki.list("keys").await.len());
    // The command itself detects the CRL of another CA.
    write("last.crl", &other);
    let (done, err) = command(&[]).await;
    assert!(!done && err.contains("last.crl: crl: its signature does not verify"), "{err}");
    assert_eq!(counts().await, (0, 0));
    // The server rejects the CRL, and the imported issuer is deleted again.
    write("last.crl", &good);
    pki.post("config/crl", json!({ "max_crl_entries": 1 })).await;
    own.issue_and_revoke("second", &[]);
    write("last.crl", &own.publish());
    let (done, err) = command(&[]).await;
    assert!(!done && err.contains("max_crl_entries") && err.contains("are deleted again"), "{err}");
    assert!(err.contains("--without-refused-crls"), "{err}");
    assert_eq!(counts().await, (0, 0));
    let (done, err) = command(&["--without-refused-crls"]).await;
    assert!(done && err.contains("max_crl_entries") && err.contains("skipped: "), "{err}");
    assert_eq!(counts().await, (1, 1));
    pki.stop().await;
}

#[actix_web::test]
async fn crl_entries_of_equal_serials_stay_with_their_issuer() {
    let pki = Pki::empty().await;
    let one = Authority::new("/CN=One");
    let two = Authority::new("/CN=Two");
    let mut ids = Vec::new();
    for authority in [&one, &two] {
        authority.issue_and_revoke("leaf", &[]);
        authority.publish();
        ids.push(pki.import_one(&authority.bundle()).await);
    }
    assert_eq!(one.serial("leaf"), two.serial("leaf"));
    pki.post("issuers/import/crl", json!({ "crl": one.text("crl.pem") })).await;
    let rule = format!("crl: serial number {} belongs to a certificate of another issuer", one.serial("leaf"));
    pki.refused("issuers/import/crl", json!({ "crl": two.text("crl.pem") }), &rule).await;
    assert_eq!((pki.crl(&ids[0]).await.number(), pki.crl(&ids[1]).await.number()), (421, 1));
    // Such a CRL does not revoke the certificate of another issuer either.
    pki.root(json!({ "issuer_name": "root" })).await;
    pki.role(&json!({})).await;
    let leaf = pki.leaf_of("root").await;
    let ca = Ca::root("/CN=Own authority");
    pki.import_one(&ca.bundle()).await;
    let before = pki.list("certs/revoked").await;
    let at = pki.now();
    let entries = [encode_entry(&leaf.certificate.serial(), at, None, None)];
    let answer = sent(&pki.app.client, list(&ca, 9, &entries, at, &[])).await;
    assert!(answer.status == 400 && answer.error().contains("of another issuer of this mount"), "{}", answer.text);
    assert_eq!(pki.list("certs/revoked").await, before);
    pki.stop().await;
}

#[actix_web::test]
async fn an_issuer_of_the_mount_that_is_on_the_list_signs_no_more() {
    let pki = Pki::empty().await;
    let root = Authority::new("/CN=Root");
    let ca = Ca { key: root.text("ca-key.pem"), pem: root.text("ca.pem").trim().to_owned() };
    let below = ca.intermediate("/CN=Below", &["-set_serial", "0x2000"]);
    pki.import_one(&root.bundle()).await;
    let id = pki.import_one(&below.bundle()).await;
    pki.role(&json!({})).await;
    pki.leaf_of(&id).await;
    let at = pki.now();
    let entries = [encode_entry(&Serial::parse("20:00").unwrap(), 1_700_000_000, Some(4), None)];
    let answer = sent(&pki.app.client, list(&ca, 9, &entries, at, &[])).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let warning = format!("issuer {id} (serial number 20:00) is revoked by the CRL");
    assert!(answer.text.contains(&warning), "{}", answer.text);
    pki.refused(&format!("issuer/{id}/issue/r"), json!({ "common_name": "localhost", "ttl": "1h" }), "").await;
    let issuer = pki.get(&format!("issuer/{id}")).await;
    assert_eq!((&issuer["revoked"], &issuer["revocation_time"]), (&json!(true), &json!(1_700_000_000)));
    pki.stop().await;
}

#[actix_web::test]
async fn long_crl_is_imported_in_steps_and_delta_crls_continue() {
    const COUNT: u32 = 20_000;
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Own authority");
    let id = pki.import_one(&ca.bundle()).await;
    pki.post("config/crl", json!({ "auto_rebuild": true, "enable_delta": true, "max_crl_entries": COUNT - 1 })).await;
    let at = pki.now();
    let entries: Vec<_> =
        (0..COUNT).map(|n| encode_entry(&serial(n), 1_600_000_000 + i64::from(n), Some((n % 6) as u8), None)).collect();
    let octets = list(&ca, 500, &entries, at, &[]);
    let refused = sent(&pki.app.client, octets.clone()).await;
    assert!(refused.error().contains("(limit 19999, max_crl_entries of config/crl)"), "{}", refused.text);
    assert_eq!(pki.list("certs/revoked").await, [""; 0]);
    pki.post("config/crl", json!({ "max_crl_entries": -1 })).await;
    // One import runs at a time; other requests are served concurrently.
    let (first, second, health) = futures_util::future::join3(
        sent(&pki.app.client, octets.clone()),
        sent(&pki.app.client, octets.clone()),
        pki.app.client.get("sys/health"),
    )
    .await;
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert!(matches!(statuses, [200, 503] | [200, 200]), "{statuses:?}");
    assert_eq!(health.status, 200);
    let crl = pki.crl(&id).await;
    assert!(crl.number() > 500);
    assert_eq!(crl.serials().len(), COUNT as usize);
    let files = Files::new();
    assert_follows(&files.write("old.crl", &octets), &crl, &ca.pem, &[]);
    pki.role(&json!({})).await;
    let leaf = pki.leaf_of("default").await;
    pki.revoke(&leaf).await;
    assert_eq!(pki.get("crl/rotate-delta").await["success"], true);
    let delta = Crl::new(pki.fetch("GET", "crl/delta", &[]).await.bytes().await.unwrap().to_vec());
    assert!(delta.number() > crl.number());
    assert_eq!(delta.serials(), [leaf.serial()]);
    // Tidying keeps entries of certificates whose expiry is unknown.
    let tidy = json!({ "tidy_revoked_certs": true, "tidy_cert_store": true, "safety_buffer": "1s" });
    assert_eq!(pki.app.client.post("pki/tidy", tidy).await.status, 202);
    until("the end of the run", async || pki.get("tidy-status").await["state"] == "Finished").await;
    assert_eq!(pki.get("crl/rotate").await["success"], true);
    assert_eq!(pki.crl(&id).await.serials().len(), COUNT as usize + 1);
    pki.stop().await;
}

/// A failed import stores at most some of the entries; the same CRL can be imported again and is then complete.
#[actix_web::test]
async fn imported_crl_is_complete_when_repeated_after_store_faults() {
    const COUNT: u32 = 1_200;
    let faults = Arc::new(Faults::default());
    let pki = Pki::on(App::builder().faults(&faults).start().await).await;
    let ca = Ca::root("/CN=Own authority");
    let id = pki.import_one(&ca.bundle()).await;
    let entries: Vec<_> = (0..COUNT).map(|n| encode_entry(&serial(n), 1_600_000_000, None, None)).collect();
    let old = list(&ca, 500, &entries, pki.now(), &[]);
    let mut failed = 0;
    for n in 1.. {
        faults.arm_among(&BTreeSet::from(["commit (pki)"]), n, Fault::Before);
        let answer = sent(&pki.app.client, old.clone()).await;
        if faults.disarm().is_none() {
            assert_eq!(answer.status, 200, "{}", answer.text);
            break;
        }
        // The CRL is built after the import is stored, so a fault there is a warning.
        assert!(answer.status == 503 || answer.warnings().contains("CRL"), "commit {n}: {}", answer.text);
        failed += usize::from(answer.status == 503);
    }
    assert!(failed >= 4, "three units of entries and the number are stored one after the other, {failed} failed");
    let crl = pki.crl(&id).await;
    assert_eq!(crl.serials().len(), COUNT as usize);
    assert_follows(&Files::new().write("old.crl", &old), &crl, &ca.pem, &[]);
    pki.stop().await;
}

#[actix_web::test]
async fn crl_import_accepts_every_form_as_its_right_allows() {
    let pki = Pki::empty().await;
    let ca = Ca::root("/CN=Own authority");
    pki.import_one(&ca.bundle()).await;
    let may = only(&pki.app, "crls", &granted("pki/issuers/import/crl", &["update"])).await;
    let at = pki.now();
    let lists: Vec<Vec<u8>> =
        (1..=5).map(|n| list(&ca, 10 * u64::from(n), &[encode_entry(&serial(n), at, None, None)], at, &[])).collect();
    let text = |n: usize| pem::encode(pem::CRL_LABEL, &lists[n]);
    let json = async |crl: Value| may.post("pki/issuers/import/crl", json!({ "crl": crl })).await;
    let base64 = |n: usize| text(n).lines().filter(|line| !line.starts_with("---")).collect::<Vec<_>>().join("\n");
    for (n, answer) in [
        (1, sent(&may, lists[0].clone()).await),
        (2, sent(&may, text(1).into_bytes()).await),
        (3, json(text(2).into()).await),
        (4, json(base64(3).into()).await),
        (5, json(base64(4).replace('\n', "").into()).await),
    ] {
        assert_eq!(answer.body["data"]["published_crl_number"], 10 * n + 1, "{}", answer.text);
        assert_eq!(answer.body["data"]["imported_entries"], 1, "{}", answer.text);
    }
    assert_eq!(pki.list("certs/revoked").await.len(), 5);
    // For policies, the body is the field `crl` in every form.
    for (terms, allowed) in [
        ("denied_parameters = { \"*\" = [] }", false),
        ("denied_parameters = { \"crl\" = [] }", false),
        ("denied_parameters = { \"crl\" = [\"x\"] }", false),
        ("allowed_parameters = { \"other\" = [] }", false),
        ("allowed_parameters = { \"crl\" = [\"x\"] }", false),
        ("required_parameters = [\"other\"]", false),
        ("required_parameters = [\"crl\"]", true),
        ("allowed_parameters = { \"crl\" = [] } denied_parameters = { \"other\" = [] }", true),
    ] {
        let policy = rule("pki/issuers/import/crl", &format!("capabilities = [\"update\"] {terms}"));
        let client = only(&pki.app, "import", &policy).await;
        let json = json!({ "crl": text(0) });
        let answers = [
            sent(&client, lists[0].clone()).await,
            sent(&client, text(0).into_bytes()).await,
            client.post("pki/issuers/import/crl", json).await,
        ];
        for answer in answers {
            assert_eq!(answer.status == 403, !allowed, "{terms}: {}", answer.text);
        }
    }
    pki.stop().await;
}

#[actix_web::test]
async fn keys_that_were_made_here_have_published_nothing_elsewhere() {
    let pki = Pki::start().await;
    let root = Ca::root("/CN=Above");
    let below = json!({ "common_name": "Below", "key_type": "ec" });
    let below = pki.data("intermediate/generate/internal", below).await;
    let extensions = "basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign";
    let signed = root.signs(text(&below, "csr"), extensions, &[]);
    let set = pki.post("intermediate/set-signed", json!({ "certificate": signed })).await;
    assert!(!set.text.contains("start at number 1"), "{}", set.text);
    // A renewed CA continues the CRLs that are already here.
    let key = Ca::root("/CN=Twice");
    assert!(pki.post("config/ca", json!({ "pem_bundle": key.bundle() })).await.text.contains("start at number 1"));
    let extensions = "basicConstraints=critical,CA:true\nsubjectKeyIdentifier=hash";
    let renewed = Ca::root_with(key.key.clone(), "/CN=Twice", extensions, &[]);
    let again = pki.post("config/ca", json!({ "pem_bundle": renewed.bundle() })).await;
    assert!(!again.text.contains("start at number 1"), "{}", again.text);
    // So does a CA that was deleted and is imported again.
    for id in pki.list("issuers").await {
        pki.app.client.delete(&format!("pki/issuer/{id}")).await;
    }
    let back = pki.post("config/ca", json!({ "pem_bundle": key.bundle() })).await;
    assert!(!back.text.contains("start at number 1"), "{}", back.text);
    assert!(pki.crl(&first_issuer(&back)).await.number() > 1);
    pki.stop().await;
}

#[actix_web::test]
async fn bundle_and_its_crls_are_imported_together_or_not_at_all() {
    for app in [App::start().await, App::builder().postgres().start().await] {
        let pki = Pki { app };
        let path = "issuers/import/bundle";
        let own = Authority::new("/CN=Bundled");
        own.issue_and_revoke("first", &["-crl_reason", "superseded"]);
        let list = own.publish();
        let other = Authority::new("/CN=Elsewhere");
        let foreign = other.publish();

        // An unreadable CRL, or a CRL of an unknown CA, rejects the whole text.
        let broken = "-----BEGIN X509 CRL-----\nMAAA\n-----END X509 CRL-----\n";
        for refused in [&foreign[..], broken] {
            let body = json!({ "pem_bundle": format!("{}{list}{refused}", own.bundle()) });
            let answer = pki.fails(path, body, 400, "pem_bundle: block 3: the CRL is rejected: ").await;
            assert!(answer.error().ends_with("(nothing is imported; set without_refused_crls to import the rest)"));
        }
        // The CRLs of two CAs have a serial number in common.
        other.issue_and_revoke("first", &[]);
        let both = json!({ "pem_bundle": format!("{}{list}{}{}", own.bundle(), other.bundle(), other.publish()) });
        pki.refused(path, both, "belongs to a certificate of another issuer").await;

        // `without_refused_crls` imports the rest, and the first CRL of this server continues the numbers.
        let text = format!("{}{list}{foreign}", own.bundle());
        let body = json!({ "pem_bundle": text, "without_refused_crls": true });
        let answer = pki.warns(path, body, "pem_bundle: block 3: the CRL is rejected").await;
        assert!(!answer.warnings().contains("start at number 1"), "{}", answer.text);
        let id = first_issuer(&answer);
        let expected = json!([{ "issuers": [id], "crl_number": 420, "published_crl_number": 421, "entries": 1,
            "imported_entries": 1, "existing_entries": 0 }]);
        assert_eq!(answer.body["data"]["imported_crls"], expected);
        let crl = pki.crl(&id).await;
        assert_eq!(crl.number(), 421);
        assert!(!own.is_good("first", &crl));
        assert_eq!(status(&pki, &own.text("ca.pem"), &own.serial("first")).await, "revoked");
        let again = pki.data(path, json!({ "pem_bundle": format!("{}{list}", own.bundle()) })).await;
        assert_eq!(again["imported_crls"][0]["imported_entries"], 0);
        assert_eq!(again["existing_issuers"], json!([id]));
        // A CA that is imported with the CRL of another CA also gets its first CRL.
        let third = Authority::new("/CN=Third");
        let id = pki.import_one(&format!("{}{list}{}", own.bundle(), third.bundle())).await;
        assert_eq!(pki.crl(&id).await.number(), 1);
        pki.stop().await;
    }
}

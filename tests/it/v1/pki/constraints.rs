//! Name constraints of the issuing chain (RFC 5280 section 4.2.1.10) apply to everything that an issuer signs.
//!
//! openssl issues the same certificate below the same CA and verifies it. Certificates that it rejects must be rejected
//! here, and it must accept all certificates that are signed here.

use serde_json::{Value, json};
use signet::x509::extension;
use signet::x509::name::{self, Attribute, rdn};
use signet::x509::oid;
use signet::x509::pieces::Rdns;
use signet::x509::writer::{SEQUENCE, build};

use super::foreign::{CA, Ca, Files, csr, csr_of_pieces, new_key, openssl_refuses, openssl_verifies_chain};
use super::mount::{Pki, text, with};
use super::ocsp::client::hex;

/// Tags of the two lists of subtrees.
const PERMITTED: u8 = 0xa0;
const EXCLUDED: u8 = 0xa1;

const OTHER: u8 = 0xa0;
const EMAIL: u8 = 0x81;
const DNS: u8 = 0x82;
const DIRECTORY: u8 = 0xa4;
const URI: u8 = 0x86;
const IP: u8 = 0x87;
const REGISTERED: u8 = 0x88;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    /// Signed, and openssl accepts it.
    Signed,
    /// Rejected, also by openssl.
    Refused,
    /// Rejected although openssl accepts it; the reason is next to the case.
    Stricter,
    /// Rejected before the constraints are checked, because it is not a valid name; openssl may accept it.
    Malformed,
}
use Verdict::{Malformed, Refused, Signed, Stricter};

/// An imported CA with name constraints, created by openssl.
struct Constrained {
    ca: Ca,
    id: String,
}

impl Constrained {
    async fn new(pki: &Pki, constraints: &str) -> Self {
        Self::if_readable(pki, constraints).await.unwrap_or_else(|| panic!("{constraints}: not imported"))
    }

    /// Returns `None` if the CA is not imported because relying parties could not read its constraints.
    async fn if_readable(pki: &Pki, constraints: &str) -> Option<Self> {
        let extensions = format!("{CA}\nnameConstraints=critical,{constraints}");
        let ca = Ca::root_with(new_key("ec-256"), "/O=Good/CN=Constrained", &extensions, &[]);
        let answer = pki.app.client.post("pki/issuers/import/bundle", json!({ "pem_bundle": ca.bundle() })).await;
        if answer.status == 400 && answer.error().contains("certificate: nameConstraints: ") {
            return None;
        }
        let id = answer.body["data"]["imported_issuers"][0].as_str().unwrap_or_else(|| panic!("{}", answer.text));
        Some(Self { id: id.to_owned(), ca })
    }

    fn path(&self, endpoint: &str) -> String {
        format!("issuer/{}/{endpoint}", self.id)
    }

    /// Compares the verdicts of openssl and of this server with the expected one.
    async fn judges(&self, pki: &Pki, csr: &str, expected: Verdict, shown: &str) {
        let openssl = openssl_verdict(&self.ca, csr);
        let agrees = expected == Malformed || openssl.is_ok() == (expected != Refused);
        assert!(agrees, "{shown}: openssl says {openssl:?}");
        let path = self.path("sign-verbatim");
        if expected == Signed {
            let leaf = pki.certify(&path, json!({ "csr": csr })).await;
            openssl_verifies_chain(&self.ca.pem, &[], &leaf.pem).unwrap_or_else(|e| panic!("{shown}: {e}"));
        } else {
            let answer = pki.app.client.post(&format!("pki/{path}"), json!({ "csr": csr })).await;
            assert_eq!(answer.status, 400, "{shown}: {}", answer.text);
            let rule = match expected {
                Malformed => "csr: subjectAltName: ",
                _ => "the name constraints of the issuing chain",
            };
            assert!(answer.error().contains(rule), "{shown}: {}", answer.text);
        }
    }
}

/// Returns openssl's verdict on a certificate of this CA with the extensions of the CSR.
fn openssl_verdict(ca: &Ca, csr: &str) -> Result<(), String> {
    let extensions = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid";
    openssl_verifies_chain(&ca.pem, &[], &ca.signs(csr, extensions, &["-copy_extensions", "copyall"]))
}

/// Cases of one CA: verdict, subject, and the subjectAltName of one certificate each.
type Cases<'a> = &'a [(Verdict, &'a str, &'a [&'a str])];

fn csr_of_names(subject: &str, san: &str) -> String {
    let extensions = if san.is_empty() { String::new() } else { format!("subjectAltName = {san}") };
    csr("ec-256", subject, &extensions)
}

async fn hold(pki: &Pki, constraints: &str, cases: Cases<'_>) {
    let issuer = Constrained::new(pki, constraints).await;
    for (expected, subject, sans) in cases {
        for san in *sans {
            let shown = format!("{constraints} {subject} {san}");
            issuer.judges(pki, &csr_of_names(subject, san), *expected, &shown).await;
        }
    }
}

const DNS_NAMES: [(&str, Cases<'static>); 3] = [
    (
        "permitted;DNS:good.com,permitted;DNS:.dot.test",
        &[
            (Signed, "/CN=x", &["DNS:good.com", "DNS:a.GOOD.com,DNS:b.c.good.com", "DNS:*.good.com"]),
            (Signed, "/CN=x", &["DNS:a.dot.test,DNS:*.dot.test"]),
            (Refused, "/CN=x", &["DNS:a.good.com,DNS:evil.com", "DNS:badgood.com", "DNS:com", "DNS:*.com"]),
            (Refused, "/CN=x", &["DNS:dot.test", "DNS:good.com.evil.com"]),
            (Malformed, "/CN=x", &["DNS:good.com."]),
            // Kinds of names without constraints are unrestricted.
            (Signed, "/CN=x", &["IP:10.0.0.1,email:a@evil.com,URI:https://evil.com/"]),
        ],
    ),
    (
        "excluded;DNS:foo.example.com,excluded;DNS:.below.test",
        &[
            (Signed, "/CN=x", &["DNS:bar.example.com,DNS:example.com,DNS:*.bar.example.com", "DNS:below.test"]),
            (Refused, "/CN=x", &["DNS:FOO.example.com", "DNS:a.foo.example.com", "DNS:a.below.test"]),
            // The wildcard matches the excluded name.
            (Stricter, "/CN=x", &["DNS:*.example.com"]),
            (Malformed, "/CN=x", &["DNS:foo.example.com."]),
        ],
    ),
    // Common names are compared if there is not a host name in the SAN.
    (
        "permitted;DNS:good.com",
        &[
            (Signed, "/CN=a.good.com", &[""]),
            (Signed, "/CN=A name of a person", &[""]),
            (Signed, "/CN=localhost", &[""]),
            (Refused, "/CN=a.evil.com", &["", "IP:10.0.0.1"]),
            (Refused, "/CN=a_b.evil.com", &[""]),
            // Each of several common names is checked, regardless of their order.
            (Refused, "/CN=a.evil.com/CN=a.good.com", &[""]),
            (Refused, "/CN=a.good.com/CN=a.evil.com", &[""]),
            (Signed, "/CN=a.evil.com", &["DNS:a.good.com"]),
            // Some relying parties still accept a wildcard in the common name.
            (Stricter, "/CN=*.evil.com", &[""]),
        ],
    ),
];

const MAILBOXES: [(&str, Cases<'static>); 2] = [
    (
        "permitted;email:root@a.test,permitted;email:b.test,permitted;email:.c.test",
        &[
            (Signed, "/CN=x", &["email:root@A.test,email:x@b.test,email:x@y.c.test"]),
            (Refused, "/CN=x", &["email:Root@a.test", "email:x@y.b.test", "email:x@c.test"]),
            (Signed, "/CN=x/emailAddress=x@b.test", &[""]),
            (Refused, "/CN=x/emailAddress=x@evil.com", &["", "email:x@b.test"]),
            // SmtpUTF8Mailbox (RFC 9598) is a mailbox as well.
            (Signed, "/CN=x", &["otherName:1.3.6.1.5.5.7.8.9;UTF8:ö@b.test", "otherName:1.2.3;UTF8:x@evil.com"]),
            (Refused, "/CN=x", &["otherName:1.3.6.1.5.5.7.8.9;UTF8:ö@evil.com"]),
        ],
    ),
    (
        "excluded;email:evil.com,excluded;email:at.test",
        &[
            (Signed, "/CN=x", &["email:x@good.com,email:x@y.evil.com"]),
            (Refused, "/CN=x", &["email:x@EVIL.com", "email:x@at.test", "otherName:1.3.6.1.5.5.7.8.9;UTF8:ö@evil.com"]),
            (Refused, "/CN=x/emailAddress=x@evil.com", &[""]),
            // Not a mailbox, so it has no domain.
            (Malformed, "/CN=x", &["email:nobody"]),
        ],
    ),
];

const ADDRESSES_AND_URIS: [(&str, Cases<'static>); 5] = [
    (
        "permitted;IP:10.0.0.0/255.0.0.0,excluded;IP:10.1.0.0/255.255.0.0",
        &[
            (Signed, "/CN=x", &["IP:10.2.3.4", "DNS:evil.com"]),
            (Refused, "/CN=x", &["IP:10.1.3.4", "IP:11.0.0.1", "IP:fd00::1"]),
            (Malformed, "/CN=x", &["IP:::ffff:10.2.3.4"]),
        ],
    ),
    // An IPv4-mapped address: Go reads it as 10.1.3.4, and openssl does not exclude it.
    (
        "excluded;IP:10.1.0.0/255.255.0.0",
        &[(Signed, "/CN=x", &["IP:10.2.3.4,IP:fd00::1"]), (Malformed, "/CN=x", &["IP:::ffff:10.1.3.4"])],
    ),
    (
        "permitted;IP:fd00:0:0:0:0:0:0:0/ff00:0:0:0:0:0:0:0",
        &[(Signed, "/CN=x", &["IP:fd12::1"]), (Refused, "/CN=x", &["IP:fe80::1", "IP:10.0.0.1"])],
    ),
    (
        "permitted;URI:a.test,permitted;URI:.b.test",
        &[
            (Signed, "/CN=x", &["URI:https://a.test/x,URI:spiffe://A.test/ns,URI:https://x.b.test:8443/"]),
            (Refused, "/CN=x", &["URI:https://x.a.test/", "URI:https://b.test/", "URI:https://evil.com/a.test"]),
            (Refused, "/CN=x", &["URI:urn:uuid:1", "URI:https://a.test@evil.com/", "URI:https://evil.com@a.test/"]),
            (Refused, "/CN=x", &["URI:https://a.test?evil.com"]),
        ],
    ),
    (
        "excluded;URI:evil.com,excluded;URI:.below.test",
        &[
            (Signed, "/CN=x", &["URI:https://good.com/,URI:https://x.evil.com/"]),
            (Refused, "/CN=x", &["URI:https://evil.com/", "URI:spiffe://EVIL.com/ns", "URI:https://a.below.test/"]),
            (Refused, "/CN=x", &["URI:urn:uuid:1"]),
            // The constraint applies to the host that clients connect to, not to the user before it.
            (Stricter, "/CN=x", &["URI:https://user@evil.com/", "URI:https://evil.com?x"]),
            (Malformed, "/CN=x", &["URI:https://evil.com./"]),
            // An address has no domain to compare (RFC 5280 section 4.2.1.10).
            (Stricter, "/CN=x", &["URI:https://10.0.0.1/"]),
        ],
    ),
];

const OTHER_NAMES: [(&str, Cases<'static>); 3] = [
    (
        "permitted;dirName:dir\n[dir]\nC = NZ\nO = Good  Org",
        &[
            (Signed, "/C=NZ/O=Good Org/CN=x", &[""]),
            (Signed, "/C=nz/O= GOOD org /OU=any/CN=x", &["DNS:evil.com"]),
            (Refused, "/C=NZ/O=Evil/CN=x", &[""]),
            (Refused, "/O=Good Org/C=NZ/CN=x", &[""]),
            (Refused, "/CN=x", &[""]),
            (Refused, "/C=NZ/O=Good Org/CN=x", &["dirName:two\n[two]\nO = Evil"]),
        ],
    ),
    (
        "excluded;dirName:dir\n[dir]\nO = Evil",
        &[
            (Signed, "/O=Good/CN=x", &[""]),
            (Signed, "/CN=x/O=Evil", &[""]),
            (Refused, "/O=EVIL/CN=x", &[""]),
            (Refused, "/O=Good/CN=x", &["dirName:two\n[two]\nO = Evil\nCN = y"]),
        ],
    ),
    // registeredID and otherName: names of these kinds are never signed, all other kinds always.
    (
        "permitted;RID:1.2.3,permitted;otherName:1.2.4;UTF8:x",
        &[(Signed, "/CN=x", &["DNS:a.test"]), (Refused, "/CN=x", &["RID:1.2.3", "otherName:1.2.4;UTF8:x"])],
    ),
];

#[actix_web::test]
async fn names_within_constraints_are_signed_and_others_refused() {
    let pki = Pki::empty().await;
    for (constraints, cases) in DNS_NAMES.iter().chain(&MAILBOXES).chain(&ADDRESSES_AND_URIS).chain(&OTHER_NAMES) {
        hold(&pki, constraints, cases).await;
    }
    // openssl compares letters beyond ASCII with their case, but an exclusion must not depend on that.
    let base = name::name(&[&rdn(Attribute::Organization, &["Bücher".to_owned()])]);
    for (side, same, upper) in [(PERMITTED, Signed, Refused), (EXCLUDED, Refused, Stricter)] {
        let constraint = subtree(side, DIRECTORY, base.as_der());
        hold(&pki, &constraint, &[(same, "/O=Bücher/CN=x", &[""]), (upper, "/O=BÜCHER/CN=x", &[""])]).await;
    }
    // Encodings that `openssl req` does not write.
    let pair = |attribute: Attribute, tag: u8, value: &[u8]| {
        let rdn = build(0x31, 0, |w| {
            w.nest(SEQUENCE, |w| {
                w.oid(attribute.oid());
                w.tlv(tag, value);
            });
        });
        Rdns::from_der(&rdn).unwrap()
    };
    let issuer = Constrained::new(&pki, "permitted;DNS:good.com,permitted;email:good.com").await;
    for (case, rdn, expected) in [
        ("a BMPString", pair(Attribute::CommonName, 0x1e, b"\0e\0.\0c"), Refused),
        ("a TeletexString", pair(Attribute::CommonName, 0x14, b"a.evil.com"), Refused),
        ("a mailbox as IA5String", pair(Attribute::EmailAddress, 0x16, b"x@good.com"), Signed),
        // RFC 2985 section 5.2.1 requires an IA5String, and openssl reads nothing else under constraints.
        ("a mailbox as UTF8String", pair(Attribute::EmailAddress, 0x0c, b"x@good.com"), Refused),
    ] {
        let csr = csr_of_pieces(&name::name(&[&rdn]), &[]);
        issuer.judges(&pki, &csr, expected, case).await;
    }
    pki.stop().await;
}

/// Every endpoint, with a constrained root and an unconstrained issuer.
#[actix_web::test]
async fn every_endpoint_holds_the_constraints_of_the_whole_chain() {
    let pki = Pki::empty().await;
    let extensions = format!(
        "{CA}\nnameConstraints=critical,permitted;DNS:good.com,permitted;email:good.com,\
         permitted;IP:10.0.0.0/255.0.0.0,permitted;URI:good.com,permitted;dirName:dir\n[dir]\nO = Good"
    );
    let root = Ca::root_with(new_key("ec-256"), "/O=Good/CN=Root", &extensions, &[]);
    let between = root.intermediate("/O=Good/CN=Between", &[]);
    let ids = pki.import(&[between.bundle(), root.pem.clone()].join("\n")).await;
    let path = |endpoint: &str| format!("issuer/{}/{endpoint}", ids[0]);
    pki.role(&json!({ "allow_any_name": true, "allowed_uri_sans": "*", "allowed_other_sans": "*",
        "use_csr_sans": false, "use_csr_common_name": false, "organization": "Good" }))
        .await;
    let ours = json!({ "common_name": "a.good.com", "organization": "Good" });
    let rule = "the name constraints of the issuing chain do not allow";
    let holds = async |endpoint: &str, body: Value, refused: Option<&str>| {
        if let Some(name) = refused {
            return pki.refused(&path(endpoint), body, &format!("{rule} {name}")).await;
        }
        let leaf = pki.certify(&path(endpoint), body).await;
        openssl_verifies_chain(&root.pem, &[&between.pem], &leaf.pem).unwrap_or_else(|e| panic!("{endpoint}: {e}"));
    };
    let by_request = json!({ "csr": csr("ec-256", "/O=Good/CN=a.good.com", "") });
    let requests = [("issue/r", json!({})), ("sign/r", by_request.clone()), ("sign-intermediate", by_request)];
    let names = [
        (json!({ "alt_names": "b.good.com,x@good.com", "ip_sans": "10.0.0.1", "uri_sans": "https://good.com/" }), None),
        (json!({ "alt_names": "evil.com" }), Some("evil.com")),
        (json!({ "alt_names": "*.evil.com" }), Some("*.evil.com")),
        (json!({ "alt_names": "x@evil.com" }), Some("x@evil.com")),
        (json!({ "ip_sans": "11.0.0.1" }), Some("11.0.0.1")),
        (json!({ "uri_sans": "https://evil.com/" }), Some("https://evil.com/")),
        (json!({ "other_sans": "1.3.6.1.5.5.7.8.9;UTF8:ö@evil.com" }), Some("ö@evil.com")),
        (json!({ "common_name": "evil.com" }), Some("evil.com")),
        (json!({ "common_name": "evil.com", "exclude_cn_from_sans": true }), Some("evil.com")),
    ];
    for (endpoint, request) in &requests {
        for (more, refused) in &names {
            holds(endpoint, with(&with(request, ours.clone()), more.clone()), *refused).await;
        }
    }
    for (subject, san, refused) in [
        ("/O=Good/CN=a.good.com", "DNS:b.good.com", None),
        ("/O=Good/CN=x", "DNS:evil.com", Some("evil.com")),
        ("/O=Good/CN=evil.com", "", Some("evil.com")),
        ("/O=Evil/CN=a.good.com", "", Some("the subject or a directoryName")),
    ] {
        let csr = csr_of_names(subject, san);
        let ca = json!({ "csr": csr, "use_csr_values": true, "common_name": "" });
        for (endpoint, body) in [
            ("sign-verbatim", json!({ "csr": csr })),
            ("sign-verbatim/r", json!({ "csr": csr })),
            ("sign-intermediate", ca),
        ] {
            holds(endpoint, body, refused).await;
        }
    }
    pki.role(&json!({ "allow_any_name": true, "organization": "Evil" })).await;
    pki.refused(&path("issue/r"), json!({ "common_name": "a.good.com" }), rule).await;
    let good = Ca::root("/O=Good/CN=Other").pem;
    pki.post(&path("sign-self-issued"), json!({ "certificate": good })).await;
    let evil = Ca::root("/O=Evil/CN=Other").pem;
    pki.refused(&path("sign-self-issued"), json!({ "certificate": evil }), rule).await;
    pki.stop().await;
}

/// No certificate below such a CA would verify, so it is not imported for signing.
#[actix_web::test]
async fn ca_with_a_minimum_in_a_subtree_is_not_imported() {
    let pki = Pki::empty().await;
    let subtree = build(SEQUENCE, 0, |w| {
        w.nest(PERMITTED, |w| {
            w.nest(SEQUENCE, |w| {
                w.tlv(DNS, b"good.com");
                w.tlv(0x80, &[1]);
            });
        });
    });
    let extensions = format!("{CA}\n2.5.29.30=critical,DER:{}", hex(&subtree));
    let ca = Ca::root_with(new_key("ec-256"), "/CN=Minimum", &extensions, &[]);
    let rule = "pem_bundle: certificate: nameConstraints: a subtree has a minimum or maximum";
    pki.refused("issuers/import/bundle", json!({ "pem_bundle": ca.bundle() }), rule).await;
    assert!(openssl_verdict(&ca, &csr_of_names("/CN=x", "DNS:good.com")).is_err());
    pki.stop().await;
}

/// Returns a subtree with one base, in the syntax of openssl's configuration.
fn subtree(side: u8, tag: u8, base: &[u8]) -> String {
    let subtrees = build(SEQUENCE, 0, |w| w.nest(side, |w| w.nest(SEQUENCE, |w| w.tlv(tag, base))));
    format!("DER:{}", hex(&subtrees))
}

/// Returns usual and unusual bases of subtrees.
fn bases() -> Vec<(u8, Vec<u8>)> {
    let organization = |text: &str| name::name(&[&rdn(Attribute::Organization, &[text.to_owned()])]);
    let mut all = vec![
        (IP, vec![10, 0, 0, 0, 255, 0, 0, 0]),
        (IP, vec![0; 8]),
        (IP, vec![10, 0, 0, 1, 255, 0, 0, 255]),
        (IP, vec![0; 32]),
        (DIRECTORY, organization("Good").as_der().to_vec()),
        (DIRECTORY, name::name(&[]).as_der().to_vec()),
        (OTHER, vec![6, 1, 0x2a, 0xa0, 2, 0x0c, 0]),
        (REGISTERED, vec![0x2a]),
    ];
    let domains = "good.com .good.com a.good.com GOOD.com good.com. com . *.good.com evil.com .evil.com b.a.good.com";
    for base in domains.split(' ').chain([""]) {
        all.extend([DNS, EMAIL, URI].map(|tag| (tag, base.as_bytes().to_vec())));
    }
    all.extend(["x@good.com", "@good.com", "X@GOOD.com", "x@"].map(|base| (EMAIL, base.as_bytes().to_vec())));
    all.extend(["good.com:443", "10.0.0.1"].map(|base| (URI, base.as_bytes().to_vec())));
    all
}

const HOSTS: [&str; 7] = ["good.com", "a.good.com", "*.good.com", "evilgood.com", ".good.com", "good.com.", "evil.com"];
/// Hosts for DNS names only.
const MORE_HOSTS: [&str; 7] = ["b.a.good.com", "*.com", "*", "GOOD.COM", "a..good.com", "com", "good.com:443"];
/// Forms of URIs; `H` is the host.
const URIS: [&str; 11] = [
    "https://H/",
    "spiffe://H",
    "https://u:p@H/",
    "https://H:1/",
    "https://evil.com@H/",
    "https:/H",
    "https://H?q",
    "https:\\\\H",
    "urn:H",
    "x://H:1@evil.com",
    "https://%67ood.com/H",
];

/// Returns alternative names, each with the kind of subtrees that applies to it.
fn alternative_names() -> Vec<(u8, u8, Vec<u8>)> {
    let organization = name::name(&[&rdn(Attribute::Organization, &["Good".to_owned()])]);
    let mut all: Vec<(u8, u8, Vec<u8>)> = vec![
        (IP, IP, vec![10, 0, 0, 1]),
        (IP, IP, vec![11, 0, 0, 1]),
        (IP, IP, [&[0; 10][..], &[0xff, 0xff, 10, 0, 0, 1]].concat()),
        (REGISTERED, REGISTERED, vec![0x2a]),
        (OTHER, OTHER, vec![6, 1, 0x2a, 0xa0, 2, 0x0c, 0]),
        (DIRECTORY, DIRECTORY, organization.as_der().to_vec()),
        (DIRECTORY, DIRECTORY, name::name(&[]).as_der().to_vec()),
    ];
    for host in HOSTS.iter().chain(&MORE_HOSTS) {
        all.push((DNS, DNS, host.as_bytes().to_vec()));
    }
    for host in HOSTS {
        for mailbox in [format!("x@{host}"), format!("x@y@{host}"), host.to_owned()] {
            let smtp = build(OTHER, 0, |w| {
                w.oid(&[0x2b, 6, 1, 5, 5, 7, 8, 9]);
                w.nest(0xa0, |w| w.tlv(0x0c, mailbox.replace('x', "ö").as_bytes()));
            });
            all.push((EMAIL, OTHER, smtp[2..].to_vec()));
            all.push((EMAIL, EMAIL, mailbox.into_bytes()));
        }
        all.extend(URIS.map(|uri| (URI, URI, uri.replace('H', host).into_bytes())));
    }
    all
}

/// Subjects, each with the kind of subtrees that applies to it.
const SUBJECTS: [(u8, Attribute, &str); 10] = [
    (DNS, Attribute::CommonName, "a.good.com"),
    (DNS, Attribute::CommonName, "evil.com"),
    (DNS, Attribute::CommonName, "a-.evil.com"),
    (DNS, Attribute::CommonName, "_.evil.com"),
    (EMAIL, Attribute::EmailAddress, "x@good.com"),
    (EMAIL, Attribute::EmailAddress, "x@evil.com"),
    (EMAIL, Attribute::EmailAddress, "evil.com"),
    (DIRECTORY, Attribute::Organization, "good"),
    (DIRECTORY, Attribute::Organization, " Good "),
    (DIRECTORY, Attribute::Organization, "Evil"),
];

/// Returns CSRs with one name each: the kind of subtrees, a description, the CSR.
fn requests() -> Vec<(u8, String, String)> {
    let plain = name::name(&[&rdn(Attribute::CommonName, &["A person".to_owned()])]);
    let of_san = |(kind, tag, content): (u8, u8, Vec<u8>)| {
        let value = build(SEQUENCE, 0, |w| w.tlv(tag, &content));
        let san = extension::extension(oid::SUBJECT_ALT_NAME, false, &value);
        (kind, format!("{tag:#x} {}", String::from_utf8_lossy(&content)), csr_of_pieces(&plain, &[&san]))
    };
    let of_subject = |(kind, attribute, text): (u8, Attribute, &str)| {
        let subject = name::name(&[&rdn(attribute, &[text.to_owned()])]);
        (kind, format!("{attribute:?} {text}"), csr_of_pieces(&subject, &[]))
    };
    alternative_names().into_iter().map(of_san).chain(SUBJECTS.map(of_subject)).collect()
}

/// Every name with every base of its kind: openssl accepts what is signed.
#[actix_web::test]
async fn nothing_is_signed_that_openssl_rejects() {
    let pki = Pki::empty().await;
    let requests = requests();
    let mut signed = 0;
    let mut refused = 0;
    let mut unreadable = Vec::new();
    for (tag, base) in bases() {
        for side in [PERMITTED, EXCLUDED] {
            let shown = format!("{side:#x} {tag:#x} {}", String::from_utf8_lossy(&base));
            let Some(issuer) = Constrained::if_readable(&pki, &subtree(side, tag, &base)).await else {
                unreadable.push(shown);
                continue;
            };
            let files = Files::new();
            let mut leaves = Vec::new();
            for (_, name, csr) in requests.iter().filter(|(kind, ..)| *kind == tag) {
                let path = format!("pki/{}", issuer.path("sign-verbatim"));
                let answer = pki.app.client.post(&path, json!({ "csr": csr })).await;
                match answer.status {
                    200 => {
                        let pem = text(&answer.body["data"], "certificate");
                        leaves.push((name, files.write(&leaves.len().to_string(), pem.as_bytes())));
                    }
                    400 => refused += 1,
                    status => panic!("{shown}: {name}: {status} {}", answer.text),
                }
            }
            signed += leaves.len();
            let paths: Vec<_> = leaves.iter().map(|(_, path)| path.as_path()).collect();
            let wrong = openssl_refuses(&issuer.ca.pem, &paths);
            let wrong: Vec<_> = leaves.iter().filter(|(_, path)| wrong.contains(path)).map(|(name, _)| name).collect();
            assert!(wrong.is_empty(), "{shown}: openssl refuses {wrong:?}");
        }
    }
    assert!(signed > 500 && refused > 500, "{signed} signed, {refused} refused: neither may be rare");
    assert!(unreadable.len() < bases().len(), "half of them at least are imported, not {unreadable:?}");
}

#[actix_web::test]
async fn dns_constraint_with_leading_dot_is_signed_with_a_warning() {
    let pki = Pki::start().await;
    let csr = csr("ec-256", "/CN=Below", "");
    for (field, value, told) in [
        ("permitted_dns_domains", ".foo.test", true),
        ("excluded_dns_domains", "a.test,.foo.test", true),
        ("permitted_dns_domains", "foo.test", false),
        // Here a leading dot means all hosts below the domain (RFC 5280 section 4.2.1.10).
        ("permitted_email_addresses", ".foo.test", false),
        ("permitted_uri_domains", ".foo.test", false),
    ] {
        let root = json!({ "common_name": "Dotted", "key_type": "ec", field: value });
        let below = json!({ "csr": csr, "common_name": "Below", field: value });
        for (path, body) in [("root/generate/internal", root), ("root/sign-intermediate", below)] {
            let warnings = pki.post(path, body).await.warnings();
            let is_told = warnings.contains(&format!("{field}: an entry begins with a dot"));
            assert_eq!(is_told, told, "{path} {field} {value}: {warnings}");
        }
    }
    pki.stop().await;
}

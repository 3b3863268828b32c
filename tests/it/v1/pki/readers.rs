//! Hostile input: independent parsers, Python's `cryptography` and webpki of rustls, must read every certificate, CRL
//! and OCSP response that such input produces on any path. Input that would lead to unreadable output must be rejected.
//!
//! The seed is printed; `READERS_SEED=7 READERS_ROUNDS=5000` runs another and longer series.

mod mutation;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use signet::keys::local::{KeySpec, PrivateKey};
use signet::x509::algorithm::{Hash, SignatureAlgorithm};
use signet::x509::csr::{Csr, encode_request_info};
use signet::x509::extension::{self, RawExtension, extension as any};
use signet::x509::ocsp::CertIdHash;
use signet::x509::pieces::{Extensions, Name};
use signet::x509::serial::Serial;
use signet::x509::writer::{SEQUENCE, build};
use signet::x509::{name, oid, pem, tbs};

use self::mutation::{mutated, text, tlv};
use super::external_policy::engine::{Engine, Reply, Template, consent_to};
use super::external_policy::settings;
use super::foreign::{Files, csr};
use super::mount::{Pki, parse, with};
use super::ocsp::{cert_id, request as ocsp_request};
use crate::judges::{judge, refusal};
use crate::model::random::Random;

const SEED: u64 = 20_261_122;
const ROUNDS: u64 = 120;
/// Time limit for the default rounds: a slow machine runs fewer.
const MAX_TIME: Duration = Duration::from_secs(15);
const ALGORITHM: SignatureAlgorithm = SignatureAlgorithm::Ecdsa(Hash::Sha256);

/// Returns valid extensions of every kind that a client may request, one each.
fn good_extensions() -> Vec<RawExtension> {
    let lines = "subjectAltName = DNS:*.a.test,email:a@b.test,URI:spiffe://a/b,IP:10.0.0.1,IP:::1,RID:1.2.3,dirName:dir,\
         otherName:1.2.3;UTF8:x\nissuerAltName = DNS:a.test\nkeyUsage = digitalSignature\n\
         extendedKeyUsage = serverAuth,1.2.3.4\nbasicConstraints = critical,CA:FALSE\nsubjectKeyIdentifier = 0102\n\
         certificatePolicies = 1.2.3,@policy\npolicyMappings = 1.2.3:1.2.4\ninhibitAnyPolicy = critical,1\n\
         policyConstraints = critical,requireExplicitPolicy:3,inhibitPolicyMapping:1\n\
         authorityInfoAccess = caIssuers;URI:ldap:///cn=a,OCSP;URI:http://a.test\n\
         subjectInfoAccess = 1.2.3;URI:http://a.test\ncrlDistributionPoints = point\nfreshestCRL = URI:http://a.test\n\
         tlsfeature = status_request\nnoCheck = x\n1.2.3.4 = DER:00ff\n\
         nameConstraints = critical,permitted;DNS:.a.test,permitted;email:a@b.test,permitted;URI:.a.test,\
         permitted;IP:10.0.0.0/255.0.0.0,excluded;dirName:dir,excluded;RID:1.2.3\n\
         2.5.29.16 = DER:3022800f32303230303130313030303030305a810f32303330303130313030303030305a\n\
         2.5.29.9 = DER:300a300806022a0331020500\n1.3.6.1.4.1.11129.2.4.3 = critical,DER:0500\n\
         1.3.6.1.4.1.311.21.7 = DER:300a06022a03020101020102\n\
         1.3.36.8.3.3 = DER:3023a4123010310e300c06035504030c05636861696e300d300b3009300730050c03646f63\n\
         [dir]\nO = Somebody\n[point]\nfullname = URI:http://a.test/crl\nCRLissuer = dirName:dir\nreasons = keyCompromise\n\
         [policy]\npolicyIdentifier = 1.2.4\nCPS.1 = http://a.test/cps\nuserNotice.1 = @notice\n\
         [notice]\nexplicitText = UTF8:a\norganization = Org\nnoticeNumbers = 1,2";
    let mut all = Csr::from_pem(&csr("ec-256", "/CN=a", lines)).unwrap().extensions;
    let stamp = [&[0; 41][..], &[0, 0, 4, 3, 0, 2, 1, 1]].concat();
    let sized = |content: &[u8]| [&[0, content.len() as u8], content].concat();
    let value = tlv(0x04, &[&sized(&sized(&stamp))]);
    let raw = any(oid::SCT_LIST, false, &value);
    all.push(RawExtension { oid: oid::SCT_LIST.to_vec(), critical: false, value, raw });
    all
}

struct Left {
    name: String,
    kind: &'static str,
    der: Vec<u8>,
}

struct Play {
    pki: Pki,
    engine: Engine,
    random: Random,
    key: PrivateKey,
    extensions: Vec<RawExtension>,
    subject: Name,
    left: Vec<Left>,
    /// Number of signed and of rejected requests per path.
    counts: [(u32, u32); PATHS.len()],
}

/// The paths to a signature.
const PATHS: [&str; 12] = [
    "sign-verbatim",
    "root/sign-intermediate of the CSR",
    "root/sign-intermediate of parameters",
    "external-policy/sign",
    "external-policy/sign-intermediate",
    "root/sign-self-issued",
    "sign/r",
    "issue/r",
    "a role and its leaf",
    "URLs and a leaf",
    "an imported authority and its leaf",
    "issuer/root/sign-revocation-list",
];

/// Fields of `sign-intermediate` that take texts.
const CA_FIELDS: &str = "permitted_dns_domains excluded_dns_domains permitted_email_addresses excluded_email_addresses \
    permitted_uri_domains excluded_uri_domains permitted_ip_ranges alt_names uri_sans other_sans ou country \
    ext_key_usage_oids";

impl Play {
    async fn start(seed: u64) -> Self {
        let pki = Pki::start().await;
        let engine = Engine::start().await;
        pki.post("config/external-policy", settings(&engine)).await;
        let role = json!({ "allow_any_name": true, "enforce_hostnames": false, "allowed_uri_sans": "*",
            "allowed_other_sans": "*", "allowed_user_ids": "*", "allowed_serial_numbers": "*", "require_cn": false,
            "cn_validations": "disabled" });
        pki.role(&role).await;
        let subject = Csr::from_pem(&csr("ec-256", "/C=NZ/O=Bücher+OU=One/CN=a.test", "")).unwrap().subject;
        let key = PrivateKey::generate(KeySpec::new("ec", 256).unwrap()).unwrap();
        let extensions = good_extensions();
        let counts = Default::default();
        Self { pki, engine, random: Random::new(seed), key, extensions, subject, left: Vec::new(), counts }
    }

    /// Returns a subject, which may be an invalid Name, and up to three extensions besides those of `own`. One part of
    /// these is changed.
    fn pieces(&mut self, own: &[&[u8]]) -> (Vec<u8>, Vec<Extensions>) {
        let random = &mut self.random;
        let mut chosen: Vec<RawExtension> = Vec::new();
        for _ in 0..random.of(1..4) {
            let one = random.pick(&self.extensions);
            if own.iter().all(|oid| **oid != one.oid) && chosen.iter().all(|known| known.oid != one.oid) {
                chosen.push(one.clone());
            }
        }
        let changed = random.of(0..4) as usize;
        let raw = |(at, one): (usize, &RawExtension), random: &mut Random| match at + 1 == changed {
            true => any(&one.oid, one.critical ^ random.once_in(6), &mutated(&one.value, random)),
            false => one.raw.clone(),
        };
        let extensions = chosen.iter().enumerate().map(|one| raw(one, random)).collect();
        let subject = self.subject.as_der();
        let subject = if changed == 0 { mutated(subject, random) } else { subject.to_vec() };
        (subject, extensions)
    }

    fn signed(&self, info: &[u8], label: &str) -> String {
        pem::encode(label, &tbs::encode_signed(info, ALGORITHM, &self.key.sign(ALGORITHM, info).unwrap()))
    }

    fn request(&mut self, own: &[&[u8]]) -> String {
        let (subject, extensions) = self.pieces(own);
        let info = build(SEQUENCE, 0, |w| {
            w.integer(0);
            w.raw(&subject);
            w.raw(self.key.public().spki());
            let requested = tlv(SEQUENCE, &extensions.iter().map(Extensions::as_der).collect::<Vec<_>>());
            w.raw(&tlv(0xa0, &[&tlv(SEQUENCE, &[&tlv(6, &[oid::EXTENSION_REQUEST]), &tlv(0x31, &[&requested])])]));
        });
        self.signed(&info, "CERTIFICATE REQUEST")
    }

    fn authority(&mut self) -> String {
        let own = [oid::BASIC_CONSTRAINTS, oid::KEY_USAGE, oid::SUBJECT_KEY_ID];
        let (subject, mut extensions) = self.pieces(&own);
        extensions.push(extension::basic_constraints(true, None));
        extensions.push(any(oid::KEY_USAGE, true, &[3, 2, 1, 6]));
        extensions.push(extension::subject_key_id(&self.key.public().key_id()));
        let tbs = build(SEQUENCE, 0, |w| {
            w.raw(&[0xa0, 3, 2, 1, 2, 2, 1, 77]);
            w.raw(ALGORITHM.der());
            w.raw(&subject);
            w.raw(&tlv(SEQUENCE, &[&tlv(0x17, &[b"250101000000Z"]), &tlv(0x18, &[b"20990101000000Z"])]));
            w.raw(&subject);
            w.raw(self.key.public().spki());
            w.nest(0xa3, |w| w.nest(SEQUENCE, |w| extensions.iter().for_each(|e| w.raw(e.as_der()))));
        });
        self.signed(&tbs, "CERTIFICATE")
    }

    fn text(&mut self) -> String {
        text(&mut self.random)
    }

    /// Returns a body with texts in some of these members, which are separated by blanks.
    fn texts(&mut self, fields: &str) -> Value {
        let fields: Vec<&str> = fields.split(' ').collect();
        let mut body = json!({});
        for _ in 0..self.random.of(1..3) {
            let field = *self.random.pick(&fields);
            body[field] = json!([self.text()]);
        }
        body
    }

    /// Sends a request and keeps the documents in the response. Returns `true` if it succeeded.
    async fn ask(&mut self, path: usize, endpoint: &str, body: Value) -> bool {
        let answer = self.pki.app.client.post(&format!("pki/{endpoint}"), body.clone()).await;
        let shown = body.to_string();
        assert!(matches!(answer.status, 200 | 204 | 400), "{endpoint} {shown}: {} {}", answer.status, answer.text);
        let done = answer.status != 400;
        let data = &answer.body["data"];
        for (member, kind) in [("certificate", "certificate"), ("crl", "crl")] {
            if let Some(pem) = data[member].as_str() {
                let der = pem::parse_first_block(pem).unwrap().unwrap().1;
                self.left.push(Left { name: format!("{}: {endpoint}", PATHS[path]), kind, der });
            }
        }
        let (signed, refused) = &mut self.counts[path];
        *(if done { signed } else { refused }) += 1;
        done
    }

    async fn step(&mut self, path: usize) {
        let (endpoint, body) = match path {
            0 => ("sign-verbatim", json!({ "csr": self.request(&[]) })),
            1 => {
                let csr = self.request(&[oid::KEY_USAGE]);
                ("root/sign-intermediate", json!({ "csr": csr, "use_csr_values": true }))
            }
            2 => {
                let texts = self.texts(CA_FIELDS);
                let request = json!({ "csr": csr_of(self), "common_name": "Below" });
                ("root/sign-intermediate", with(&request, texts))
            }
            3 | 4 => return self.decided(path).await,
            5 => ("root/sign-self-issued", json!({ "certificate": self.authority() })),
            6 => ("sign/r", json!({ "csr": self.request(&[]) })),
            7 => {
                let texts = self.texts("alt_names uri_sans other_sans user_ids ip_sans");
                let named = json!({ "common_name": self.text(), "serial_number": self.text() });
                ("issue/r", with(&named, texts))
            }
            8 => return self.role().await,
            9 => return self.urls(path).await,
            10 => return self.imported(path).await,
            _ => return self.worded(path).await,
        };
        self.ask(path, endpoint, body).await;
    }

    async fn urls(&mut self, path: usize) {
        let fields = "issuing_certificates crl_distribution_points ocsp_servers delta_crl_distribution_points";
        let mut urls = self.texts(fields);
        if self.random.once_in(3) {
            urls = json!({ "issuing_certificates": "http://a.test/ca", "ocsp_servers": "http://[::1]:80/" });
        }
        if self.ask(path, "config/urls", urls).await {
            self.ask(path, "issue/r", json!({ "common_name": "a.test" })).await;
        }
    }

    async fn decided(&mut self, path: usize) {
        let is_authority = path == 4;
        let own: &[&[u8]] = if is_authority { &[oid::BASIC_CONSTRAINTS, oid::KEY_USAGE] } else { &[] };
        let (subject, mut extensions) = self.pieces(own);
        if is_authority {
            extensions.push(extension::basic_constraints(true, None));
            extensions.push(any(oid::KEY_USAGE, true, &[3, 2, 1, 6]));
        }
        // A template needs a valid Name; the other paths test invalid subjects.
        let subject = Name::from_der(&subject).unwrap_or_else(|_| self.subject.clone());
        let template = Template { subject, extensions, ..Template::default() };
        self.engine.says(move |question| Reply::json(consent_to(question, &template)));
        let body = json!({ "csr": csr_of(self) });
        self.ask(path, PATHS[path], body).await;
    }

    async fn role(&mut self) {
        let texts = self.texts("ou country organization postal_code policy_identifiers ext_key_usage_oids");
        let policy = json!({ "oid": self.text(), "cps": self.text(), "notice": self.text() }).to_string();
        let mut role = with(&json!({ "allow_any_name": true, "key_type": "ec" }), texts);
        if self.random.once_in(3) {
            role["policy_identifiers"] = json!([policy]);
        }
        if self.ask(8, "roles/odd", role).await {
            self.ask(8, "issue/odd", json!({ "common_name": "a.test" })).await;
        }
    }

    async fn imported(&mut self, path: usize) {
        let body = json!({ "pem_bundle": self.authority() + "\n" + &private(&self.key) });
        let answer = self.pki.app.client.post("pki/issuers/import/bundle", body).await;
        assert!(matches!(answer.status, 200 | 400), "{}", answer.text);
        let Some(id) = answer.body["data"]["imported_issuers"][0].as_str().map(str::to_owned) else {
            self.counts[path].1 += 1;
            return;
        };
        let body = json!({ "csr": csr_of(self) });
        self.ask(path, &format!("issuer/{id}/sign-verbatim"), body).await;
        let list = json!({ "revoked_certs": [], "crl_number": 1 });
        self.ask(path, &format!("issuer/{id}/sign-revocation-list"), list).await;
        self.pki.app.client.delete(&format!("pki/issuer/{id}")).await;
    }

    /// Requests a CRL with extensions of the CRL and of an entry.
    async fn worded(&mut self, path: usize) {
        let point = tlv(0xa0, &[&tlv(0xa0, &[&tlv(0x86, &[b"http://a.test/"])])]);
        let list: [(&str, bool, Vec<u8>); 4] = [
            ("2.5.29.28", true, tlv(SEQUENCE, &[&point, &[0x81, 1, 0xff]])),
            ("2.5.29.46", false, tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&point])])),
            ("2.5.29.18", false, tlv(SEQUENCE, &[&tlv(0x82, &[b"a.test"])])),
            (
                "1.3.6.1.5.5.7.1.1",
                false,
                tlv(SEQUENCE, &[&tlv(SEQUENCE, &[&[6, 2, 42, 3], &tlv(0x86, &[b"http://a.test/"])])]),
            ),
        ];
        let entry: [(&str, bool, Vec<u8>); 3] = [
            ("2.5.29.21", false, vec![10, 1, 1]),
            ("2.5.29.24", false, tlv(0x18, &[b"20200101000000Z"])),
            ("2.5.29.29", true, tlv(SEQUENCE, &[&tlv(0x82, &[b"a.test"])])),
        ];
        let random = &mut self.random;
        let mut word = |(id, critical, value): &(&str, bool, Vec<u8>)| {
            let value = if random.once_in(3) { value.clone() } else { mutated(value, random) };
            let critical = *critical ^ random.once_in(8);
            json!([{ "id": id, "critical": critical, "value": STANDARD.encode(value) }])
        };
        let of_list = word(&list[0]);
        let of_entry = word(&entry[0]);
        let others = (word(&list[1]), word(&list[2]), word(&list[3]), word(&entry[1]), word(&entry[2]));
        let of_list = [of_list, others.0, others.1, others.2][self.random.of(0..4) as usize].clone();
        let of_entry = [of_entry, others.3, others.4][self.random.of(0..3) as usize].clone();
        let base = [-1, 3, 9, 10][self.random.of(0..4) as usize];
        let body = json!({ "crl_number": 9, "delta_crl_base_number": base, "extensions": of_list,
            "revoked_certs": [{ "serial_number": "0a:01", "revocation_time": 1, "extensions": of_entry }] });
        self.ask(path, PATHS[path], body).await;
    }

    /// Collects OCSP responses to a valid request and to changed ones, and the CRLs of the mount.
    async fn status(&mut self) {
        let root = parse(self.pki.get("cert/ca").await["certificate"].as_str().unwrap());
        let id = cert_id(CertIdHash::Sha1, &root, &Serial::random());
        let good = ocsp_request(&[id], Some(&[7; 16]));
        for n in 0..100 {
            let der = if n == 0 { good.clone() } else { mutated(&good, &mut self.random) };
            let client = self.pki.app.client.with_token("");
            let request = client.request("POST", "pki/ocsp").header("content-type", "application/ocsp-request");
            let response = request.body(der).send().await.unwrap();
            assert!(response.status().as_u16() < 500);
            let der = response.bytes().await.unwrap().to_vec();
            self.left.push(Left { name: "ocsp".into(), kind: "ocsp", der });
        }
        for path in ["crl", "crl/delta"] {
            let der = self.pki.fetch("GET", path, &[]).await.bytes().await.unwrap().to_vec();
            self.left.push(Left { name: path.into(), kind: "crl", der });
        }
    }
}

fn csr_of(play: &Play) -> String {
    play.signed(
        &encode_request_info(&name::name(&[]), play.key.public().spki(), &Extensions::default()),
        "CERTIFICATE REQUEST",
    )
}

fn private(key: &PrivateKey) -> String {
    pem::encode("PRIVATE KEY", key.to_pkcs8().unwrap().expose())
}

/// Returns webpki's error for a document. Unsupported content is not an error, because it has been read.
fn webpki_refuses(left: &Left) -> Option<String> {
    let refusal = match left.kind {
        "certificate" => webpki::EndEntityCert::try_from(&left.der.as_slice().into()).err(),
        "crl" => webpki::BorrowedCertRevocationList::from_der(&left.der).err(),
        _ => None,
    };
    refusal.map(|e| format!("{e:?}")).filter(|text| !text.starts_with("Unsupported"))
}

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

#[actix_web::test]
async fn output_for_hostile_input_is_read_by_independent_parsers() {
    let seed = setting("READERS_SEED", SEED);
    println!("READERS_SEED={seed}");
    let rounds = setting("READERS_ROUNDS", ROUNDS);
    let started = Instant::now();
    let mut play = Play::start(seed).await;
    for _ in 0..rounds {
        if rounds == ROUNDS && started.elapsed() > MAX_TIME {
            break;
        }
        for path in 0..PATHS.len() {
            play.step(path).await;
        }
    }
    play.status().await;
    let Play { pki, engine, left, counts, .. } = play;
    engine.stop().await;
    pki.stop().await;
    for (path, (signed, refused)) in PATHS.iter().zip(counts) {
        println!("{path}: {signed} signed, {refused} refused");
        assert!(signed > 0 && refused > 0, "{path}: {signed} signed, {refused} refused");
    }
    let unread: Vec<String> = left
        .iter()
        .filter_map(|left| Some(format!("{}: {}\n  {}", left.name, webpki_refuses(left)?, STANDARD.encode(&left.der))))
        .collect();
    assert!(unread.is_empty(), "READERS_SEED={seed}: webpki:\n{}", unread.join("\n"));
    let printed = judge("read.py", &[written(&left).path("").to_str().unwrap()]);
    assert!(printed.contains(&format!("{} documents read", left.len())), "{printed}");
}

fn written(left: &[Left]) -> Files {
    let files = Files::new();
    let case = |left: &Left| json!({ "name": left.name, "kind": left.kind, "der": STANDARD.encode(&left.der) });
    let cases: Vec<Value> = left.iter().map(case).collect();
    files.write("cases.json", Value::from(cases).to_string().as_bytes());
    files
}

#[actix_web::test]
async fn parsers_reject_malformed_documents() {
    let template = Template::default();
    let csr = Csr::from_pem(&csr("ec-256", "/CN=a", "")).unwrap();
    let der = |template: &Template| pem::parse_first_block(&template.pem(&csr)).unwrap().unwrap().1;
    let good = Left { name: "good".into(), kind: "certificate", der: der(&template) };
    let odd = Template { subject: Name::from_der(&[SEQUENCE, 2, 0x31, 0]).unwrap(), ..template };
    let odd = Left { name: "odd".into(), kind: "certificate", der: der(&odd) };
    let cut = |kind| Left { name: format!("cut {kind}"), kind, der: good.der[..40].to_vec() };
    let folder = |left: &[Left]| written(left);
    judge("read.py", &[folder(std::slice::from_ref(&good)).path("").to_str().unwrap()]);
    let printed = refusal("read.py", &[folder(&[odd, cut("crl"), cut("ocsp")]).path("").to_str().unwrap()]);
    for name in ["odd: ValueError", "cut crl: ", "cut ocsp: "] {
        assert!(printed.contains(name), "{name}: {printed}");
    }
    assert_eq!(webpki_refuses(&good), None);
    assert!(webpki_refuses(&cut("certificate")).is_some() && webpki_refuses(&cut("crl")).is_some());
}

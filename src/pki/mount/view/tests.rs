//! Tests that incremental changes produce the same view as loading the documents at startup.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use proptest::prelude::*;

use super::*;
use crate::keys::local::{KeySpec, PrivateKey};
use crate::keys::signing::{ManagedKey, SigningKey};
use crate::keys::testing::root;
use crate::pki::mount::issuer::IssuerUsage;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::extension;
use crate::x509::name::{self, Attribute, rdn};
use crate::x509::pieces::Name;
use crate::x509::testing::issue;

fn issuer_record(id: &str, der: &[u8]) -> IssuerRecord {
    IssuerRecord {
        id: id.to_owned(),
        name: String::new(),
        key_id: String::new(),
        certificate: base64::engine::general_purpose::STANDARD.encode(der),
        manual_chain: Vec::new(),
        leaf_not_after_behavior: Default::default(),
        usage: IssuerUsage::ALL,
        revocation_signature_algorithm: String::new(),
        urls: Urls::default(),
        revoked_at: None,
        revoked_for: Default::default(),
        crl_number: 0,
        modified_at: 0,
        signatures: Default::default(),
        authority: None,
    }
}

fn new_key() -> PrivateKey {
    PrivateKey::generate(KeySpec::new("ec", 256).unwrap()).unwrap()
}

fn common_name(text: &str) -> Name {
    name::name(&[&rdn(Attribute::CommonName, &[text.to_owned()])])
}

/// Returns the DER encoding of a CA certificate, self-signed or signed by another CA.
fn certify(issuer: (&str, &PrivateKey), subject: (&str, &PrivateKey)) -> Vec<u8> {
    let algorithm = SignatureAlgorithm::for_issuer(issuer.1.kind(), 0, false).unwrap();
    let extensions = [extension::basic_constraints(true, None)];
    let spki = subject.1.public().spki();
    issue(issuer.1, algorithm, &common_name(issuer.0), &common_name(subject.0), spki, &extensions)
}

/// Certificates by id: roots A and B, B certified by A, a second certificate of B, two intermediates below B, and an
/// unrelated CA with the name of A.
fn authorities() -> Vec<(&'static str, Vec<u8>)> {
    let a = new_key();
    let b = new_key();
    let c = new_key();
    let d = new_key();
    let stranger = new_key();
    vec![
        ("5-a", certify(("A", &a), ("A", &a))),
        ("3-b", certify(("B", &b), ("B", &b))),
        ("1-b-again", certify(("B", &b), ("B", &b))),
        ("0-b-by-a", certify(("A", &a), ("B", &b))),
        ("2-c", certify(("B", &b), ("C", &c))),
        ("4-d", certify(("C", &c), ("D", &d))),
        ("6-stranger", certify(("A", &stranger), ("A", &stranger))),
    ]
}

/// A time at which the certificates of [`authorities`] are valid.
fn now() -> i64 {
    let der = certify(("A", &new_key()), ("A", &new_key()));
    Certificate::parse(&der).unwrap().not_before()
}

fn chains(view: &MountView) -> BTreeMap<String, Vec<String>> {
    let ids = |signer: &Arc<IssuerSigner>| signer.chain(now()).iter().map(|i| i.record.id.clone()).collect();
    view.signers().map(|signer| (signer.issuer.record.id.clone(), ids(signer))).collect()
}

/// Loads a view from the documents that were written.
fn view_from_writes(writes: Vec<PkiWrite>) -> MountView {
    let mut documents: BTreeMap<String, Document> = BTreeMap::new();
    for write in writes {
        let PkiWrite::Document(write) = write else { unreachable!("only documents are written here") };
        match write.body {
            Some(body) => {
                let document = Document { key: write.key.clone(), version: write.expected + 1, body };
                documents.insert(write.key.name, document);
            }
            None => drop(documents.remove(&write.key.name)),
        }
    }
    MountView::load(MountId(1), documents.into_values().collect()).unwrap()
}

#[test]
fn chains_take_the_shortest_path_to_a_root() {
    let mut view = MountView::empty(MountId(1));
    for (id, der) in authorities() {
        view.put_issuer(issuer_record(id, &der)).unwrap();
    }
    let chains = chains(&view);
    assert_eq!(chains["4-d"], ["4-d", "2-c", "1-b-again"]);
    assert_eq!(chains["3-b"], ["3-b"]);
    assert_eq!(chains["0-b-by-a"], ["0-b-by-a", "5-a"]);
    assert_eq!(chains["6-stranger"], ["6-stranger"]);
    assert_eq!(view.parents("2-c"), ["1-b-again", "3-b", "0-b-by-a"]);
    assert_eq!(view.parents("unknown"), [""; 0]);
}

#[test]
fn issuers_of_one_subject_are_limited() {
    let mut view = MountView::empty(MountId(1));
    let put = |view: &mut MountView, id: String, key: &PrivateKey| {
        view.put_issuer(issuer_record(&id, &certify(("A", key), ("A", key)))).map(drop)
    };
    view.begin_batch();
    for n in 0..128 {
        put(&mut view, n.to_string(), &new_key()).unwrap();
    }
    view.end_batch();
    let refused = put(&mut view, "one-more".to_owned(), &new_key()).unwrap_err();
    assert!(refused.text().contains("128 issuers of this subject already"), "{refused}");
    assert_eq!(view.signers().count(), 128);
    // At the limit, existing issuers can still change, and issuers with another subject can be added.
    let known = view.signer("7").unwrap().issuer.record.clone();
    view.put_issuer(IssuerRecord { name: "seven".to_owned(), ..known }).unwrap();
    let key = new_key();
    view.put_issuer(issuer_record("b", &certify(("B", &key), ("B", &key)))).unwrap();
}

#[test]
fn batched_issuer_changes_equal_single_changes() {
    let mut one_by_one = MountView::empty(MountId(1));
    let mut together = MountView::empty(MountId(1));
    together.begin_batch();
    for (id, der) in authorities() {
        one_by_one.put_issuer(issuer_record(id, &der)).unwrap();
        together.put_issuer(issuer_record(id, &der)).unwrap();
    }
    assert_eq!((together.signers().count(), together.issuers().count()), (0, 7));
    together.end_batch();
    assert_eq!(chains(&together), chains(&one_by_one));
}

/// Returns the stored documents of these issuers, each with its body as JSON.
fn documents(authorities: &[(&str, Vec<u8>)]) -> Vec<(Document, serde_json::Value)> {
    let mut view = MountView::empty(MountId(1));
    let mut document = |(id, der): &(&str, Vec<u8>)| {
        let PkiWrite::Document(write) = view.put_issuer(issuer_record(id, der)).unwrap() else {
            unreachable!("put_issuer writes a document")
        };
        let body = write.body.unwrap();
        let value = serde_json::from_slice(&body).unwrap();
        (Document { key: write.key, version: 1, body }, value)
    };
    authorities.iter().map(&mut document).collect()
}

fn with_json_bodies(documents: Vec<(Document, serde_json::Value)>) -> Vec<Document> {
    let with = |(document, value)| Document { body: serde_json::to_vec(&value).unwrap(), ..document };
    documents.into_iter().map(with).collect()
}

#[test]
fn recorded_signature_results_are_not_checked_again() {
    let mut stored = documents(&authorities());
    let without = |stored: &mut Vec<(Document, serde_json::Value)>, which: &dyn Fn(usize) -> bool| {
        for (_, value) in stored.iter_mut().enumerate().filter(|(at, _)| which(*at)).map(|(_, one)| one) {
            value.as_object_mut().unwrap().remove("signatures");
        }
    };
    let right = chains(&MountView::load(MountId(1), with_json_bodies(stored.clone())).unwrap());
    // Records of an earlier version have no signature results, so the signatures are checked.
    let mut some = stored.clone();
    let mut none = stored.clone();
    without(&mut some, &|at| at % 2 == 0);
    without(&mut none, &|_| true);
    for stored in [some, none.clone()] {
        assert_eq!(chains(&MountView::load(MountId(1), with_json_bodies(stored)).unwrap()), right);
    }
    // A wrong result in a record proves that the record is used instead of a signature check.
    let (_, of_d) = stored.iter_mut().find(|(document, _)| document.key.name == "4-d").unwrap();
    assert_eq!(of_d["signatures"], serde_json::json!({ "checks": 1, "by": { "2-c": true } }));
    of_d["signatures"]["by"]["2-c"] = false.into();
    let loaded_view = MountView::load(MountId(1), with_json_bodies(stored)).unwrap();
    assert_eq!((loaded_view.parents("4-d"), loaded_view.parents("2-c").len()), (&[][..], 3));
    // Results that were computed before another node's change are used in the same way.
    assert_eq!(loaded_view.reloaded(with_json_bodies(none)).unwrap().parents("4-d"), [""; 0]);
}

#[test]
fn issuer_is_found_by_signature_for_any_authority_key_id() {
    let ca_key = new_key();
    let other = new_key();
    let certified = |subject: &str, of: &PrivateKey, more: Vec<crate::x509::pieces::Extensions>| {
        let algorithm = SignatureAlgorithm::for_issuer(ca_key.kind(), 0, false).unwrap();
        let name = common_name(subject);
        issue(&ca_key, algorithm, &common_name("A"), &name, of.public().spki(), &more)
    };
    let ca = |key: &PrivateKey, id: Vec<u8>| {
        let algorithm = SignatureAlgorithm::for_issuer(key.kind(), 0, false).unwrap();
        let more = [extension::basic_constraints(true, None), extension::subject_key_id(&id)];
        issue(key, algorithm, &common_name("A"), &common_name("A"), key.public().spki(), &more)
    };
    let mut view = MountView::empty(MountId(1));
    for (id, der) in [("1", ca(&other, vec![1])), ("2", ca(&ca_key, vec![2])), ("3", ca(&ca_key, vec![3]))] {
        view.put_issuer(issuer_record(id, &der)).unwrap();
    }
    for id in [None, Some(vec![1]), Some(vec![2]), Some(vec![3]), Some(vec![9])] {
        let more = id.iter().map(|id| extension::authority_key_id(id)).collect();
        let leaf = Certificate::parse(&certified("leaf", &other, more)).unwrap();
        assert_eq!(view.find_signing_issuer(&leaf).unwrap().record.id, "2", "{id:?}");
    }
    let strange = certify(("A", &new_key()), ("leaf", &other));
    assert!(view.find_signing_issuer(&Certificate::parse(&strange).unwrap()).is_none());
}

#[test]
fn issuers_of_a_mount_are_limited() {
    let mut view = MountView::empty(MountId(1));
    let key = new_key();
    view.begin_batch();
    let mut put = |n: usize| {
        let name = n.to_string();
        view.put_issuer(issuer_record(&name, &certify((&name, &key), (&name, &key)))).map(drop)
    };
    (0..1000).for_each(|n| put(n).unwrap());
    let refused = put(1000).unwrap_err();
    assert!(refused.text().contains("1000 issuers already"), "{refused}");
}

#[test]
fn new_serial_differs_from_issuer_serials() {
    let (_, certificate) = root("ec", 256);
    let mut view = MountView::empty(MountId(1));
    view.put_issuer(issuer_record("id", certificate.der())).unwrap();
    let taken = certificate.serial();
    let free = Serial::from_octets(&[1, 2, 3]).unwrap();
    let draws = AtomicUsize::new(0);
    let drawn = view.new_serial(&|| if draws.fetch_add(1, Ordering::Relaxed) < 3 { taken } else { free });
    assert_eq!(drawn.unwrap(), free);
    assert!(view.new_serial(&|| taken).is_err());
    assert_eq!(MountView::empty(MountId(1)).new_serial(&|| taken).unwrap(), taken);
}

#[test]
fn issuer_and_key_are_found_by_certificate_and_public_key() {
    let (key, certificate) = root("ec", 256);
    let mut view = MountView::empty(MountId(1));
    view.put_issuer(issuer_record("id", certificate.der())).unwrap();
    assert_eq!(view.issuer_with_der(certificate.der()).unwrap().record.id, "id");
    assert!(view.key_by_public_key(certificate.key()).is_none());
    view.put_key(MountKey {
        id: "key".to_owned(),
        name: String::new(),
        version: 0,
        signing: SigningKey::Local(Arc::new(key)),
    })
    .unwrap();
    assert_eq!(view.key_by_public_key(certificate.key()).unwrap().id, "key");
    let (_, other): (_, Certificate) = root("ec", 256);
    assert!(view.issuer_with_der(other.der()).is_none() && view.key_by_public_key(other.key()).is_none());
}

#[test]
fn key_record_names_the_key_location_with_local_as_default() {
    let key = |signing| MountKey { id: "id".to_owned(), name: "name".to_owned(), version: 0, signing };
    let shown = |key: &MountKey| serde_json::to_value(key.record().unwrap()).unwrap();
    let loaded = |record: &serde_json::Value| {
        MountKey::new(&serde_json::from_value::<KeyRecord>(record.clone()).unwrap(), 3, MountId(9))
    };
    let private = Arc::new(new_key());
    let mut record = shown(&key(SigningKey::Local(Arc::clone(&private))));
    assert_eq!((&record["kind"], record.get("managed")), (&"local".into(), None));
    record.as_object_mut().unwrap().remove("kind");
    let earlier = loaded(&record).unwrap();
    assert!(earlier.signing.local().is_some() && earlier.public() == private.public());

    let uuid = "u".to_owned();
    let name = "token".to_owned();
    let public = private.public().clone();
    let mut record = shown(&key(SigningKey::Managed(Arc::new(ManagedKey {
        mount: MountId(9),
        uuid,
        name,
        public,
        locator: "v1".into(),
    }))));
    assert_eq!((&record["kind"], record.get("pkcs8")), (&"managed".into(), None));
    let managed = loaded(&record).unwrap();
    assert_eq!(shown(&managed), record);
    let of = managed.signing.managed().unwrap();
    assert_eq!((of.mount, &*of.uuid, &*of.name, &of.public), (MountId(9), "u", "token", private.public()));
    record.as_object_mut().unwrap().remove("managed");
    assert!(loaded(&record).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn view_after_puts_and_removal_equals_a_reload(order in Just((0..7).collect::<Vec<usize>>()).prop_shuffle(), gone in 0..7_usize) {
        let authorities = authorities();
        let mut view = MountView::empty(MountId(1));
        let mut writes = Vec::new();
        for at in order {
            let (id, der) = &authorities[at];
            writes.push(view.put_issuer(issuer_record(id, der)).unwrap());
        }
        writes.extend(view.remove_issuers(&[authorities[gone].0.to_owned()], 0));
        prop_assert_eq!(chains(&view), chains(&view_from_writes(writes)));
    }
}

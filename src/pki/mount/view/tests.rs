//! Views that are built up change by change are those that a start would load.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use proptest::prelude::*;

use super::*;
use crate::keys::local::{KeySpec, PrivateKey};
use crate::keys::signing::{ManagedKey, SigningKey};
use crate::pki::mount::issuer::Usage;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::extension;
use crate::x509::name::{self, Attribute, rdn};
use crate::x509::pieces::Name;
use crate::x509::testing::{issue, root};

fn record(id: &str, der: &[u8]) -> IssuerRecord {
    IssuerRecord {
        id: id.to_owned(),
        name: String::new(),
        key_id: String::new(),
        certificate: base64::engine::general_purpose::STANDARD.encode(der),
        manual_chain: Vec::new(),
        leaf_not_after_behavior: Default::default(),
        usage: Usage::ALL,
        revocation_signature_algorithm: String::new(),
        urls: Urls::default(),
        revoked_at: None,
        revoked_for: Default::default(),
        crl_number: 0,
        modified_at: 0,
    }
}

fn new_key() -> PrivateKey {
    PrivateKey::generate(KeySpec::new("ec", 256).unwrap()).unwrap()
}

fn common_name(text: &str) -> Name {
    name::name(&[&rdn(Attribute::CommonName, &[text.to_owned()])])
}

/// The certificate of a CA: subject and key, by another or the same.
fn certify(issuer: (&str, &PrivateKey), subject: (&str, &PrivateKey)) -> Vec<u8> {
    let algorithm = SignatureAlgorithm::for_issuer(issuer.1.kind(), 0, false).unwrap();
    let extensions = [extension::basic_constraints(true, None)];
    let spki = subject.1.public().spki();
    issue(issuer.1, algorithm, &common_name(issuer.0), &common_name(subject.0), spki, &extensions)
}

/// Roots A and B, B certified by A, B issued a second time, two intermediates below B, and a stranger
/// with A's name. By id.
fn authorities() -> Vec<(&'static str, Vec<u8>)> {
    let (a, b, c, d, stranger) = (new_key(), new_key(), new_key(), new_key(), new_key());
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

fn chains(view: &View) -> BTreeMap<String, Vec<String>> {
    let ids = |signer: &Arc<Signer>| signer.chain.iter().map(|i| i.record.id.clone()).collect();
    view.signers().map(|signer| (signer.issuer.record.id.clone(), ids(signer))).collect()
}

/// As storage would give it back.
fn loaded(writes: Vec<PkiWrite>) -> View {
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
    View::load(MountId(1), documents.into_values().collect()).unwrap()
}

#[test]
fn chains_go_to_every_root_self_signed_parents_first() {
    let mut view = View::empty(MountId(1));
    for (id, der) in authorities() {
        view.put_issuer(record(id, &der)).unwrap();
    }
    let chains = chains(&view);
    assert_eq!(chains["4-d"], ["4-d", "2-c", "1-b-again", "3-b", "0-b-by-a", "5-a"]);
    assert_eq!(chains["3-b"], ["3-b", "1-b-again", "0-b-by-a", "5-a"]);
    assert_eq!(chains["0-b-by-a"], ["0-b-by-a", "5-a"]);
    assert_eq!(chains["6-stranger"], ["6-stranger"]);
    assert_eq!(view.parents("2-c"), ["1-b-again", "3-b", "0-b-by-a"]);
    assert_eq!(view.parents("unknown"), [""; 0]);
}

#[test]
fn a_mount_has_as_many_issuers_of_a_subject_as_can_be_held_against_each_other() {
    let mut view = View::empty(MountId(1));
    let put = |view: &mut View, id: String, key: &PrivateKey| {
        view.put_issuer(record(&id, &certify(("A", key), ("A", key)))).map(drop)
    };
    view.defer();
    for n in 0..128 {
        put(&mut view, n.to_string(), &new_key()).unwrap();
    }
    view.settle();
    let refused = put(&mut view, "one-more".to_owned(), &new_key()).unwrap_err();
    assert!(refused.text().contains("128 issuers of this subject already"), "{refused}");
    assert_eq!(view.signers().count(), 128);
    // What is there can still be written, and another subject be put beside it.
    let known = view.signer("7").unwrap().issuer.record.clone();
    view.put_issuer(IssuerRecord { name: "seven".to_owned(), ..known }).unwrap();
    let key = new_key();
    view.put_issuer(record("b", &certify(("B", &key), ("B", &key)))).unwrap();
}

#[test]
fn changes_that_are_settled_together_are_those_that_come_one_by_one() {
    let (mut one_by_one, mut together) = (View::empty(MountId(1)), View::empty(MountId(1)));
    together.defer();
    for (id, der) in authorities() {
        one_by_one.put_issuer(record(id, &der)).unwrap();
        together.put_issuer(record(id, &der)).unwrap();
    }
    assert_eq!((together.signers().count(), together.issuers().count()), (0, 7));
    together.settle();
    assert_eq!(chains(&together), chains(&one_by_one));
}

#[test]
fn a_new_serial_is_none_of_an_issuer() {
    let (_, certificate) = root("ec", 256);
    let mut view = View::empty(MountId(1));
    view.put_issuer(record("id", certificate.der())).unwrap();
    let taken = certificate.serial();
    let free = Serial::from_octets(&[1, 2, 3]).unwrap();
    let draws = AtomicUsize::new(0);
    let drawn = view.new_serial(&|| if draws.fetch_add(1, Ordering::Relaxed) < 3 { taken } else { free });
    assert_eq!(drawn.unwrap(), free);
    assert!(view.new_serial(&|| taken).is_err());
    assert_eq!(View::empty(MountId(1)).new_serial(&|| taken).unwrap(), taken);
}

#[test]
fn an_issuer_and_a_key_are_found_by_what_they_are() {
    let (key, certificate) = root("ec", 256);
    let mut view = View::empty(MountId(1));
    view.put_issuer(record("id", certificate.der())).unwrap();
    assert_eq!(view.issuer_with_der(certificate.der()).unwrap().record.id, "id");
    assert!(view.key_of(certificate.key()).is_none());
    view.put_key(Key {
        id: "key".to_owned(),
        name: String::new(),
        version: 0,
        signing: SigningKey::Local(Arc::new(key)),
    })
    .unwrap();
    assert_eq!(view.key_of(certificate.key()).unwrap().id, "key");
    let (_, other): (_, Certificate) = root("ec", 256);
    assert!(view.issuer_with_der(other.der()).is_none() && view.key_of(other.key()).is_none());
}

#[test]
fn a_key_record_says_where_the_key_is_and_one_that_does_not_has_it() {
    let key = |signing| Key { id: "id".to_owned(), name: "name".to_owned(), version: 0, signing };
    let shown = |key: &Key| serde_json::to_value(key.record().unwrap()).unwrap();
    let loaded = |record: &serde_json::Value| {
        Key::new(&serde_json::from_value::<KeyRecord>(record.clone()).unwrap(), 3, MountId(9))
    };
    let private = Arc::new(new_key());
    let mut record = shown(&key(SigningKey::Local(Arc::clone(&private))));
    assert_eq!((&record["kind"], record.get("managed")), (&"local".into(), None));
    record.as_object_mut().unwrap().remove("kind");
    let earlier = loaded(&record).unwrap();
    assert!(earlier.signing.local().is_some() && earlier.public() == private.public());

    let (uuid, name, public) = ("u".to_owned(), "token".to_owned(), private.public().clone());
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
    fn issuers_come_and_go_in_any_order(order in Just((0..7).collect::<Vec<usize>>()).prop_shuffle(), gone in 0..7_usize) {
        let authorities = authorities();
        let mut view = View::empty(MountId(1));
        let mut writes = Vec::new();
        for at in order {
            let (id, der) = &authorities[at];
            writes.push(view.put_issuer(record(id, der)).unwrap());
        }
        writes.extend(view.remove_issuers(&[authorities[gone].0.to_owned()], 0));
        prop_assert_eq!(chains(&view), chains(&loaded(writes)));
    }
}

//! OCSP requests in every form that clients send, and invalid ones.

use proptest::prelude::*;

use super::*;
use crate::x509::extension::extension;
use crate::x509::oid;
use crate::x509::writer::{BOOLEAN, DerWriter, INTEGER, NULL, OCTET_STRING, SEQUENCE, build, context_constructed};

/// The parts of a request, each of which a test can replace with invalid data.
#[derive(Clone)]
struct OcspRequestParts {
    before_list: Vec<u8>,
    hash: Vec<u8>,
    null: bool,
    hashes: [Vec<u8>; 2],
    serials: Vec<Vec<u8>>,
    single_extensions: Vec<u8>,
    extensions: Vec<u8>,
    after: Vec<u8>,
}

impl OcspRequestParts {
    fn of(hash: CertIdHash) -> Self {
        Self {
            before_list: Vec::new(),
            hash: hash.oid().to_vec(),
            null: true,
            hashes: [vec![7; hash.digest_len()], vec![9; hash.digest_len()]],
            serials: vec![vec![INTEGER, 2, 1, 2]],
            single_extensions: Vec::new(),
            extensions: Vec::new(),
            after: Vec::new(),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let one = |w: &mut DerWriter, serial: &Vec<u8>| {
            w.nest(SEQUENCE, |w| {
                w.nest(SEQUENCE, |w| {
                    w.nest(SEQUENCE, |w| {
                        w.oid(&self.hash);
                        if self.null {
                            w.tlv(NULL, &[]);
                        }
                    });
                    self.hashes.iter().for_each(|hash| w.tlv(OCTET_STRING, hash));
                    w.raw(serial);
                });
                if !self.single_extensions.is_empty() {
                    w.nest(context_constructed(0), |w| w.tlv(SEQUENCE, &self.single_extensions));
                }
            });
        };
        build(SEQUENCE, 256, |w| {
            w.nest(SEQUENCE, |w| {
                w.raw(&self.before_list);
                w.nest(SEQUENCE, |w| self.serials.iter().for_each(|serial| one(w, serial)));
                if !self.extensions.is_empty() {
                    w.nest(context_constructed(2), |w| w.tlv(SEQUENCE, &self.extensions));
                }
            });
            w.raw(&self.after);
        })
    }
}

fn encode_extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    extension(oid, critical, value).as_der().to_vec()
}

fn nonce_extension(octets: usize) -> Vec<u8> {
    encode_extension(oid::OCSP_NONCE, false, &build(OCTET_STRING, octets, |w| w.raw(&vec![5; octets])))
}

/// Encodes an extension with an unknown OID.
fn unknown_extension(critical: bool) -> Vec<u8> {
    encode_extension(&[0x2a, 3, 4], critical, &[5, 0])
}

fn encode_changed_request(change: impl FnOnce(&mut OcspRequestParts)) -> Vec<u8> {
    let mut parts = OcspRequestParts::of(CertIdHash::Sha1);
    change(&mut parts);
    parts.encode()
}

#[test]
fn ocsp_requests_are_read_in_every_client_form() {
    for hash in CertIdHash::ALL {
        for null in [true, false] {
            let der = OcspRequestParts { null, ..OcspRequestParts::of(hash) }.encode();
            let request = OcspRequest::parse(&der).unwrap();
            let [id] = request.certificates[..] else { panic!("one certificate") };
            assert_eq!((id.hash, id.serial.octets()), (hash, &[1, 2][..]));
            assert_eq!(id.issuer_hashes(), [vec![7; hash.digest_len()], vec![9; hash.digest_len()]].concat());
            assert!(request.nonce.is_none() && der.windows(id.raw.len()).any(|part| part == id.raw));
        }
    }
    let signature = build(context_constructed(0), 8, |w| w.tlv(SEQUENCE, &[1, 2, 3]));
    let taken: [Vec<u8>; 8] = [
        encode_changed_request(|p| p.before_list = vec![0xa0, 3, INTEGER, 1, 0]),
        encode_changed_request(|p| p.before_list = vec![0xa1, 4, 0xa4, 2, SEQUENCE, 0]),
        encode_changed_request(|p| p.after = signature),
        encode_changed_request(|p| p.extensions = unknown_extension(false)),
        encode_changed_request(|p| p.single_extensions = unknown_extension(false)),
        encode_changed_request(|p| p.serials = vec![vec![INTEGER, 1, 0]]),
        encode_changed_request(|p| p.serials = (0..21).map(|n| vec![INTEGER, 1, n]).collect()),
        encode_changed_request(|p| p.extensions = [unknown_extension(false), nonce_extension(128)].concat()),
    ];
    for der in &taken {
        OcspRequest::parse(der).unwrap();
    }
    assert_eq!(OcspRequest::parse(&taken[7]).unwrap().nonce, Some(&[5; 128][..]));
    let serials =
        |der: &[u8]| OcspRequest::parse(der).unwrap().certificates.iter().map(|c| c.serial).collect::<Vec<_>>();
    assert_eq!(serials(&taken[6]), (0..21).map(|n| Serial::from_octets(&[n]).unwrap()).collect::<Vec<_>>());
}

#[test]
fn invalid_ocsp_requests_are_refused_with_the_reason() {
    let small = |count: usize| {
        move |p: &mut OcspRequestParts| {
            p.null = false;
            p.serials = vec![vec![INTEGER, 1, 1]; count];
        }
    };
    let cases: [(&str, Vec<u8>, &str); 21] = [
        ("nothing", Vec::new(), "truncated"),
        ("garbage", vec![b'a'; 90], "DER"),
        ("bytes after it", [encode_changed_request(|_| ()), vec![0]].concat(), "trailing"),
        ("something after the signature", encode_changed_request(|p| p.after = vec![NULL, 0]), "trailing"),
        ("a signature of another form", encode_changed_request(|p| p.after = vec![0xa0, 2, NULL, 0]), "tag"),
        (
            "version 2",
            encode_changed_request(|p| p.before_list = vec![0xa0, 3, INTEGER, 1, 1]),
            "the version must be 1",
        ),
        ("two names", encode_changed_request(|p| p.before_list = vec![0xa1, 4, NULL, 0, NULL, 0]), "trailing"),
        ("no certificate", encode_changed_request(|p| p.serials.clear()), "must ask for a certificate"),
        ("many certificates", encode_changed_request(small(33)), "more than 32"),
        (
            "many octets",
            encode_changed_request(|p| {
                p.extensions = [nonce_extension(8), encode_extension(&[0x2a, 3], false, &[5; 2048])].concat()
            }),
            "2048",
        ),
        ("an unknown hash", encode_changed_request(|p| p.hash = oid::P256.to_vec()), "the hash of a CertID"),
        ("a short hash", encode_changed_request(|p| p.hashes[0].truncate(19)), "wrong length"),
        ("a hash of another algorithm", encode_changed_request(|p| p.hashes[1] = vec![9; 32]), "wrong length"),
        ("a negative serial", encode_changed_request(|p| p.serials = vec![vec![INTEGER, 1, 0x80]]), "negative"),
        (
            "a long serial",
            encode_changed_request(|p| p.serials = vec![[vec![INTEGER, 21], vec![1; 21]].concat()]),
            "20 octets",
        ),
        ("a critical extension", encode_changed_request(|p| p.extensions = unknown_extension(true)), "critical"),
        (
            "a critical extension of one",
            encode_changed_request(|p| p.single_extensions = unknown_extension(true)),
            "critical",
        ),
        ("a nonce without octets", encode_changed_request(|p| p.extensions = nonce_extension(0)), "RFC 9654"),
        ("a long nonce", encode_changed_request(|p| p.extensions = nonce_extension(129)), "RFC 9654"),
        (
            "two nonces",
            encode_changed_request(|p| p.extensions = [nonce_extension(8), nonce_extension(8)].concat()),
            "twice",
        ),
        (
            "a nonce without its OCTET STRING",
            encode_changed_request(|p| p.extensions = encode_extension(oid::OCSP_NONCE, false, &[1; 8])),
            "tag",
        ),
    ];
    for (name, der, rule) in cases {
        let error = OcspRequest::parse(&der).expect_err(name);
        assert!(error.text().starts_with("ocsp request: ") && error.text().contains(rule), "{name}: {error}");
    }
    let boolean = [vec![OCTET_STRING, 0], vec![BOOLEAN, 1, 1]].concat();
    assert!(OcspRequest::parse(&encode_changed_request(|p| p.extensions = boolean)).is_err());
    // A request with as many certificates as the size limit allows is accepted.
    let fits = (1..=MAX_CERTIFICATES_PER_REQUEST)
        .rfind(|&count| encode_changed_request(small(count)).len() < MAX_REQUEST_BYTES)
        .unwrap();
    assert_eq!(OcspRequest::parse(&encode_changed_request(small(fits))).unwrap().certificates.len(), fits);
}

#[test]
fn ocsp_failure_response_has_five_bytes() {
    assert_eq!(encode_failure(6), [0x30, 3, 0x0a, 1, 6]);
}

proptest! {
    #[test]
    fn ocsp_request_of_any_bytes_does_not_panic(der in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = OcspRequest::parse(&der);
    }

    #[test]
    fn mutated_or_truncated_ocsp_requests_do_not_panic(hash in 0..4_usize, at in any::<usize>(), byte in any::<u8>(), cut in any::<usize>()) {
        let mut parts = OcspRequestParts::of(CertIdHash::ALL[hash]);
        parts.extensions = nonce_extension(32);
        let mut der = parts.encode();
        let at = at % der.len();
        der[at] = byte;
        if let Ok(request) = OcspRequest::parse(&der) {
            prop_assert!(!request.certificates.is_empty());
        }
        prop_assert!(OcspRequest::parse(&der[..cut % der.len()]).is_err());
    }

    #[test]
    fn ocsp_requests_read_back(hash in 0..4_usize, serial in proptest::collection::vec(any::<u8>(), 1..=20), octets in 1_usize..=128) {
        let serial = Serial::from_octets(&serial).unwrap();
        let mut number = DerWriter::default();
        number.unsigned(serial.octets());
        let mut parts = OcspRequestParts::of(CertIdHash::ALL[hash]);
        (parts.serials, parts.extensions) = (vec![number.finish()], nonce_extension(octets));
        // A serial number of 20 bytes whose first bit is set takes 21 bytes in DER. It is accepted too.
        let der = parts.encode();
        let request = OcspRequest::parse(&der).unwrap();
        prop_assert_eq!(request.certificates[0].serial, serial);
        prop_assert_eq!(request.nonce.map(<[u8]>::len), Some(octets));
    }
}

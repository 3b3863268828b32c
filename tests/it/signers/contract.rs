//! The suite for every backend of managed keys. A [`Subject`] declares what its backend cannot do, and the suite fails
//! if a declared limitation does not exist.

use std::sync::Arc;

use futures_util::future::join_all;
use signet::error::{Kind, Result};
use signet::keys::{
    KeySpec, PrivateKey, RemoteSigner, SignerActor, SigningInput, SigningInputKind, TestHash, TestSign,
};
use signet::x509::algorithm::{Hash, KeyKind, SignatureAlgorithm};

/// A key at a backend.
pub struct Subject {
    pub kind: KeyKind,
    /// An actor that may generate the key, which does not exist yet if it can be generated.
    pub maker: SignerActor,
    /// An actor for the same key that may not generate it.
    pub user: SignerActor,
    /// `true` if the backend generates keys of this kind.
    pub generates: bool,
    /// Algorithms that fit the key, but that the backend does not support.
    pub refuses: Vec<SignatureAlgorithm>,
    /// Hashes of unsupported test signatures, with PSS or without.
    pub lacks: Vec<(TestHash, bool)>,
}

pub fn algorithms() -> impl Iterator<Item = SignatureAlgorithm> {
    use SignatureAlgorithm::{Ecdsa, Ed25519, RsaPkcs1, RsaPss};
    let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
    hashes.into_iter().flat_map(|hash| [RsaPkcs1(hash), RsaPss(hash), Ecdsa(hash)]).chain([Ed25519])
}

/// The input that a signer expects for a message.
pub fn input(signer: &dyn RemoteSigner, algorithm: SignatureAlgorithm, message: &[u8]) -> SigningInput {
    match (signer.input_kind(algorithm).unwrap(), algorithm.hash()) {
        (SigningInputKind::Digest, Some(hash)) => SigningInput::Digest(hash.digest(message).as_ref().to_vec()),
        _ => SigningInput::Message(message.to_vec()),
    }
}

pub async fn signs(signer: &Arc<dyn RemoteSigner>, algorithm: SignatureAlgorithm, message: &[u8]) {
    let signature = signer.sign(algorithm, input(&**signer, algorithm, message)).await.unwrap();
    signer.public().verify(algorithm, message, &signature.into_signature()).unwrap();
}

/// Signs a message. The signature is not verified.
pub async fn sign(signer: &Arc<dyn RemoteSigner>, algorithm: SignatureAlgorithm) -> Result<()> {
    signer.sign(algorithm, input(&**signer, algorithm, b"message")).await.map(drop)
}

/// Asserts the kind and the text of an error.
#[track_caller]
pub fn assert_error<T>(outcome: Result<T>, kind: Kind, text: &str) {
    let error = outcome.err().unwrap();
    assert_eq!((error.kind(), error.text()), (kind, text));
}

/// Asserts the kind of an error and a part of its text.
#[track_caller]
pub fn assert_error_has<T>(outcome: Result<T>, kind: Kind, part: &str) {
    let error = outcome.err().unwrap();
    assert!(error.kind() == kind && error.text().contains(part), "{error}");
}

/// The algorithm that signs certificates with a key of this kind.
pub fn usual(kind: KeyKind) -> SignatureAlgorithm {
    SignatureAlgorithm::for_issuer(kind, 0, false).unwrap()
}

/// The same, restricted to what this backend supports.
fn own(subject: &Subject) -> SignatureAlgorithm {
    let fits =
        |algorithm: &SignatureAlgorithm| algorithm.is_usual_for(subject.kind) && !subject.refuses.contains(algorithm);
    algorithms().find(fits).unwrap()
}

pub async fn holds(subject: Subject) {
    a_key_is_made_once_and_only_where_it_may(&subject).await;
    let signer = subject.user.signer(subject.user.find_key(false).await.unwrap());
    every_algorithm_that_fits_signs_and_no_other(&subject, &signer).await;
    many_sign_at_a_time(&subject, &signer).await;
    the_key_of_somebody_else_is_not_signed_for(&subject).await;
    test_signatures_are_made_as_asked_for(&subject).await;
}

async fn a_key_is_made_once_and_only_where_it_may(subject: &Subject) {
    if subject.generates {
        for create in [false, true] {
            let error = subject.user.find_key(create).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.text().starts_with("key does not exist in backend"), "{error}");
        }
        let error = subject.user.test_sign(TestSign::default()).await.unwrap_err();
        let text = "configuration: key does not exist in backend and allow_generate_key is false";
        assert_eq!((error.kind(), error.text()), (Kind::Invalid, text));
        assert!(subject.maker.find_key(false).await.is_err(), "not made by the way");
    }
    let made = join_all((0..4).map(|_| subject.maker.find_key(true))).await;
    let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
    assert_eq!(made[0].public.kind(), subject.kind);
    assert!(made.iter().all(|key| *key == made[0]), "one key");
    assert_eq!(subject.user.find_key(true).await.unwrap(), made[0]);
}

async fn every_algorithm_that_fits_signs_and_no_other(subject: &Subject, signer: &Arc<dyn RemoteSigner>) {
    // Longer than the maximum message of some services.
    let message: Vec<u8> = (0..9000_u32).map(|n| (n % 251) as u8).collect();
    for algorithm in algorithms() {
        if algorithm.fits(subject.kind) && !subject.refuses.contains(&algorithm) {
            signs(signer, algorithm, &message).await;
            if let (SigningInputKind::Digest, Some(hash)) = (signer.input_kind(algorithm).unwrap(), algorithm.hash()) {
                for octets in [0, 20, hash.digest_len() as usize - 1, hash.digest_len() as usize + 1] {
                    let error = signer.sign(algorithm, SigningInput::Digest(vec![7; octets])).await.unwrap_err();
                    assert_eq!(error.kind(), Kind::Invalid, "{octets}");
                }
                let error = signer.sign(algorithm, SigningInput::Message(message.clone())).await.unwrap_err();
                assert_eq!(error.kind(), Kind::Invalid);
            }
        } else {
            assert_eq!(signer.input_kind(algorithm).unwrap_err().kind(), Kind::Invalid);
            let error = signer.sign(algorithm, SigningInput::Digest(vec![7; 32])).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid);
        }
    }
}

async fn many_sign_at_a_time(subject: &Subject, signer: &Arc<dyn RemoteSigner>) {
    // Enough signatures for all lengths of ECDSA integers.
    let messages: Vec<String> = (0..96).map(|n| format!("message {n}")).collect();
    join_all(messages.iter().map(|message| signs(signer, own(subject), message.as_bytes()))).await;
}

async fn the_key_of_somebody_else_is_not_signed_for(subject: &Subject) {
    let spec = KeySpec::new(subject.kind.name(), i64::from(subject.kind.bits())).unwrap();
    let other = subject.user.signer(PrivateKey::generate(spec).unwrap().public().clone().into());
    let algorithm = own(subject);
    let error = other.sign(algorithm, input(&*other, algorithm, b"message")).await.unwrap_err();
    assert_eq!((error.kind(), error.text()), (Kind::BadGateway, "managed key changed in backend"));
}

async fn test_signatures_are_made_as_asked_for(subject: &Subject) {
    subject.user.test_sign(TestSign::default()).await.unwrap();
    let is_rsa = matches!(subject.kind, KeyKind::Rsa { .. });
    for hash in TestHash::all() {
        for pss in [false, true] {
            let test = TestSign { hash: Some(hash), use_pss: Some(pss) };
            let outcome = subject.user.test_sign(test).await;
            let possible = (is_rsa || !pss) && !subject.lacks.contains(&(hash, pss));
            assert_eq!(outcome.is_ok(), possible, "{:?} {} pss {pss}: {outcome:?}", subject.kind, hash.name());
            if let Err(error) = outcome {
                assert_eq!(error.kind(), Kind::Invalid, "{error}");
                assert!(error.text().starts_with("configuration: "), "{error}");
            }
        }
    }
}

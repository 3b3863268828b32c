//! A worker of a key's actor: a session, the key's handle in it, and their recovery.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::backoff::BackoffAdmission;
use super::generate;
use super::key::Pkcs11Key;
use super::mechanism::MechanismPlan;
use super::object::{self, LocatedKey, Pkcs11KeyPair};
use super::recovery::{Pkcs11Failure, Pkcs11FailureCause, RecoveryScope, rule_for};
use super::session::{self, Pkcs11Session};
use crate::error::{Error, Result};
use crate::keys::actor::{BackendRequest, BackendResponse, BackendSession, KeyMetrics};
use crate::keys::signer::{SigningInput, SigningInputKind};
use crate::keys::test_sign::TestSign;
use crate::telemetry::outage;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::public_key::PublicKey;

/// Size of the random message of a test signature, in bytes.
const TEST_MESSAGE_BYTES: usize = 64;

const PUBLIC_KEY_UNAVAILABLE: &str = "the token does not return the public key; set public_key, or import the \
                                      certificate of the key into a mount that may use the key";

/// A signature that identifies the public key of a private key.
struct ProbeSignature {
    algorithm: SignatureAlgorithm,
    message: Vec<u8>,
    signature: Vec<u8>,
}

impl ProbeSignature {
    fn verifies(&self, key: &PublicKey) -> bool {
        key.verify(self.algorithm, &self.message, &self.signature).is_ok()
    }
}

/// A worker with its session, which is opened when it is first needed.
pub(super) struct Pkcs11Worker {
    key: Arc<Pkcs11Key>,
    key_metrics: KeyMetrics,
    session: Option<Pkcs11Session>,
    /// The key, with its handle in `session`.
    key_pair: Option<Pkcs11KeyPair>,
}

impl BackendSession for Pkcs11Worker {
    fn call(&mut self, request: &BackendRequest) -> Result<BackendResponse> {
        let is_test = matches!(request, BackendRequest::TestSign(_));
        if is_test {
            // A test signature is an explicit request, so a rejected PIN may be tried again, and the backoff is
            // ignored.
            self.key.pin.permit();
        }
        let mut repeated_causes = Vec::new();
        let answer = loop {
            let (failure, is_out_of_reach) = match self.prepare(request, is_test) {
                Err(failure) => (failure, true),
                Ok(()) => match self.process(request) {
                    Ok(answer) => break answer,
                    Err(failure) => (failure, false),
                },
            };
            let rule = rule_for(failure.cause);
            let rebuilt = self.discard_scope(rule.rebuild);
            if repeated_causes.iter().filter(|cause| **cause == failure.cause).count() >= rule.repeats {
                if is_out_of_reach
                    && (failure.cause.is_token_unreachable() || failure.cause == Pkcs11FailureCause::KeyMissing)
                {
                    self.mark_unreachable(&failure);
                }
                return Err(failure.error);
            }
            if rule.metric_label.is_empty() {
                tracing::debug!(
                    key = self.key.config.name,
                    "the pkcs11 session of a managed key is opened again: {}",
                    failure.error
                );
            } else {
                let what = format!("managed key {:?}: its pkcs11 session is opened again", self.key.config.name);
                outage::warn_recurring_failure(&what, &failure.error);
                self.key_metrics.count_recovery(rule.metric_label);
            }
            repeated_causes.push(failure.cause);
            rebuilt?;
        };
        if self.session.as_ref().is_some_and(Pkcs11Session::is_session_awaited) {
            self.close_session();
        }
        Ok(answer)
    }

    fn on_idle(&mut self) {
        if self.session.as_ref().is_some_and(Pkcs11Session::is_session_awaited) {
            self.close_session();
        }
    }
}

impl Pkcs11Worker {
    pub(super) fn new(key: Arc<Pkcs11Key>, key_metrics: KeyMetrics) -> Self {
        Self { key, key_metrics, session: None, key_pair: None }
    }

    fn close_session(&mut self) {
        self.key_pair = None;
        self.session = None;
    }

    fn discard_scope(&mut self, rebuild: RecoveryScope) -> Result<()> {
        let epoch = self.session.as_ref().map(Pkcs11Session::epoch);
        match rebuild {
            RecoveryScope::Nothing => return Ok(()),
            RecoveryScope::Session | RecoveryScope::Module => {}
            RecoveryScope::Token => self.session.iter().for_each(Pkcs11Session::invalidate_token),
        }
        self.close_session();
        match (rebuild, epoch) {
            (RecoveryScope::Module, Some(epoch)) => {
                self.key.library.module.reinitialize(epoch).map_err(|failure| failure.error)
            }
            // Without an epoch, the failure occurred while a session was being opened.
            (RecoveryScope::Module, None) => self.reinitialize_module(),
            _ => Ok(()),
        }
    }

    fn reinitialize_module(&self) -> Result<()> {
        let epoch = match self.key.library.module.acquire_pass() {
            Ok(pass) => pass.epoch,
            Err(failure) => return Err(failure.error),
        };
        self.key.library.module.reinitialize(epoch).map_err(|failure| failure.error)
    }

    /// Starts the backoff: calls fail immediately from now on, except for occasional attempts.
    fn mark_unreachable(&self, failure: &Pkcs11Failure) {
        let now = Instant::now();
        if self.key.backoff.record_failure(now, &failure.error) && failure.cause.is_token_unreachable() {
            self.key.library.reinitialization_backoff.retry_now(now);
        }
    }

    /// Opens a session and finds the key in it, unless that is done already. While this fails, the backoff lets only
    /// occasional calls try again. Such a call searches all slots for the token. If it finds no token, it initializes
    /// the module again, subject to a second backoff, because some modules detect tokens only then.
    fn prepare(&mut self, request: &BackendRequest, is_test: bool) -> Result<(), Pkcs11Failure> {
        // Lookups and test signatures look up the key themselves, and it may be missing.
        let needs_key = matches!(request, BackendRequest::Sign { .. });
        if self.session.is_some() && (self.key_pair.is_some() || !needs_key) {
            return Ok(());
        }
        let now = Instant::now();
        let retries = match self.key.backoff.admit(now) {
            BackoffAdmission::NoBackoff => false,
            // This error triggers no further recovery, because recovery has failed already.
            BackoffAdmission::Refused(error) if !is_test => return Err(error.into()),
            BackoffAdmission::Retry | BackoffAdmission::Refused(_) => true,
        };
        let key = match request {
            BackendRequest::Sign { key, .. } => Some(&key.public),
            BackendRequest::Find { .. } | BackendRequest::TestSign(_) => None,
        };
        let mut reached = self.open_session_and_find_key(key);
        if retries
            && matches!(&reached, Err(failure) if failure.cause.is_token_unreachable())
            && self.key.library.reinitialization_backoff.admit(now)
        {
            self.close_session();
            // If the module cannot be initialized because another call hangs in it, the first result is returned.
            if self.reinitialize_module().is_ok() {
                reached = self.open_session_and_find_key(key);
            }
        }
        if reached.is_ok() {
            self.key.backoff.record_success();
        }
        reached
    }

    fn open_session_and_find_key(&mut self, key: Option<&PublicKey>) -> Result<(), Pkcs11Failure> {
        if self.session.is_none() {
            self.session = Some(Pkcs11Session::open(&self.key, false)?);
        }
        if key.is_some() && self.key_pair.is_none() {
            // The key existed when the signer was created. A lost login would look like a missing key.
            let missing = || {
                Pkcs11Failure::new(Pkcs11FailureCause::KeyMissing, "the managed key no longer exists in its backend")
            };
            self.key_pair = Some(self.look_up(key)?.ok_or_else(missing)?);
        }
        Ok(())
    }

    fn process(&mut self, request: &BackendRequest) -> Result<BackendResponse, Pkcs11Failure> {
        match request {
            BackendRequest::Find { create } => {
                self.find_or_generate(*create).map(|public| BackendResponse::Key(public.into()))
            }
            BackendRequest::Sign { algorithm, input, key } => self.sign(*algorithm, input, &key.public),
            BackendRequest::TestSign(test) => self.make_test_signature(*test),
        }
    }

    fn session(&self) -> Result<&Pkcs11Session, Pkcs11Failure> {
        self.session.as_ref().ok_or_else(session::session_ended_error)
    }

    /// Looks up the key, and generates a missing key if `create` is `true`.
    fn find_or_generate(&mut self, create: bool) -> Result<PublicKey, Pkcs11Failure> {
        self.key_pair = None;
        let mut found = self.look_up(None)?;
        if found.is_none() {
            if create {
                generate::generate_missing_key(&self.key)?;
                found = self.look_up(None)?;
            } else {
                return Err(Error::invalid("key does not exist in backend").into());
            }
        }
        let found = found.ok_or_else(|| Error::invalid("key does not exist in backend, though it was generated"))?;
        let public = found.public.clone();
        self.key_pair = Some(found);
        Ok(public)
    }

    /// Looks up the key on the token. `key` is the expected public key of a signature request.
    fn look_up(&self, key: Option<&PublicKey>) -> Result<Option<Pkcs11KeyPair>, Pkcs11Failure> {
        let session = self.session()?;
        let Some(located) = session.run(|raw| object::find_key(raw, &self.key.config))? else {
            if !session.is_token_present()? {
                return Err(Pkcs11Failure::new(Pkcs11FailureCause::Token, "pkcs11 token: not found"));
            }
            return Ok(None);
        };
        let public = match &located.public {
            Some(public) => public.clone(),
            None => self.identify_public_key(&located, key)?,
        };
        Ok(Some(Pkcs11KeyPair { private: located.private, public }))
    }

    /// Determines a public key that the token does not return: it is the candidate under which a signature of the
    /// private key verifies.
    ///
    /// # Errors
    /// `Invalid` when no candidate matches.
    fn identify_public_key(&self, located: &LocatedKey, key: Option<&PublicKey>) -> Result<PublicKey, Pkcs11Failure> {
        let mut candidates = self.key.candidates();
        candidates.extend(key.cloned());
        candidates.extend(located.assume_usual_exponent());
        candidates
            .retain(|candidate| located.may_have_public_key(candidate) && object::check_key_size(candidate).is_ok());
        let kinds: HashSet<KeyKind> = candidates.iter().map(PublicKey::kind).collect();
        for kind in kinds {
            let of_kind = |candidate: &&PublicKey| candidate.kind() == kind;
            let Some(signed) = self.sign_probe(located, kind)? else { continue };
            if let Some(public) = candidates.iter().filter(of_kind).find(|candidate| signed.verifies(candidate)) {
                return Ok(public.clone());
            }
        }
        Err(Error::invalid(PUBLIC_KEY_UNAVAILABLE).into())
    }

    /// Signs random bytes with a key whose type is assumed to be `kind`; `None` if the module refuses to sign.
    fn sign_probe(&self, located: &LocatedKey, kind: KeyKind) -> Result<Option<ProbeSignature>, Pkcs11Failure> {
        let plan = |algorithm| {
            MechanismPlan::for_signature(self.key.config.mechanism, kind, algorithm).ok().map(|plan| (algorithm, plan))
        };
        let Some((algorithm, plan)) = SignatureAlgorithm::all_for(kind).find_map(plan) else { return Ok(None) };
        let message = crate::random::bytes::<TEST_MESSAGE_BYTES>().to_vec();
        let input = match (plan.input_kind(), algorithm.hash()) {
            (SigningInputKind::Digest, Some(hash)) => hash.digest(&message).as_ref().to_vec(),
            _ => message.clone(),
        };
        match self.session()?.run(|raw| plan.sign(raw, located.private, &input)) {
            Ok(signature) => Ok(plan.encode_signature(signature).ok().map(|signature| ProbeSignature {
                algorithm,
                message,
                signature,
            })),
            Err(failure) if failure.cause == Pkcs11FailureCause::Request => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn sign(
        &mut self,
        algorithm: SignatureAlgorithm,
        input: &SigningInput,
        key: &PublicKey,
    ) -> Result<BackendResponse, Pkcs11Failure> {
        let Some(found) = &self.key_pair else { return Err(session::session_ended_error()) };
        if found.public != *key {
            self.key_pair = None;
            return Ok(BackendResponse::KeyChanged);
        }
        let plan = MechanismPlan::for_signature(self.key.config.mechanism, key.kind(), algorithm)?;
        let (SigningInput::Digest(input) | SigningInput::Message(input)) = input;
        let signature = self.session()?.run(|raw| plan.sign(raw, found.private, input))?;
        Ok(BackendResponse::Signature(plan.encode_signature(signature)?))
    }

    fn make_test_signature(&mut self, test: TestSign) -> Result<BackendResponse, Pkcs11Failure> {
        let public = self.find_or_generate(true)?;
        let Some(found) = &self.key_pair else { return Ok(BackendResponse::TestFailed) };
        let plan = MechanismPlan::for_test(self.key.config.mechanism, public.kind(), test)?;
        let message = crate::random::bytes::<TEST_MESSAGE_BYTES>();
        let digest = plan.hash.digest(&message);
        let input = if plan.input_kind() == SigningInputKind::Message { &message[..] } else { &digest };
        let signature = self.session()?.run(|raw| plan.sign(raw, found.private, input))?;
        let verifies = match (public.kind(), plan.verification_input(&digest)) {
            (KeyKind::Ed25519, _) => public.verify(SignatureAlgorithm::Ed25519, &message, &signature).is_ok(),
            (_, Some((algorithm, digest))) => {
                public.verify_digest(algorithm, &digest, &plan.encode_signature(signature)?).is_ok()
            }
            (_, None) => self.verify(&plan, found, input, &signature)?,
        };
        Ok(if verifies { BackendResponse::TestPassed } else { BackendResponse::TestFailed })
    }

    /// Lets the module verify a signature that the local crypto library cannot verify, in a second session.
    fn verify(
        &self,
        plan: &MechanismPlan,
        found: &Pkcs11KeyPair,
        input: &[u8],
        signature: &[u8],
    ) -> Result<bool, Pkcs11Failure> {
        let second = Pkcs11Session::open(&self.key, false)?;
        second.run(|raw| {
            let Some(public) = object::find_public_key_object(raw, found.private)? else {
                return Err(
                    Error::invalid("the token has no public key object to verify the test signature with").into()
                );
            };
            plan.verify(raw, public, input, signature)
        })
    }
}

//! The state of a token that all keys of this process share. A login applies to all sessions of the process, so the
//! login, rejected PINs and the number of sessions belong to the token and not to a key.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cryptoki::error::{Error as BindingError, RvError};
use cryptoki::session::{Session, SessionState};
use cryptoki::slot::{Slot, TokenInfo};

use super::module::ModulePass;
use super::pin::{Pin, PinFingerprint, next_pin_event};
use super::recovery::{Pkcs11Failure, Pkcs11FailureCause};
use crate::error::{Error, Kind};

/// Maximum wait for a free session if the token's session limit is reached.
const MAX_SESSION_WAIT: Duration = Duration::from_secs(5);
/// Maximum wait for sessions of an older configuration to end. They are logged in with the PIN of that configuration.
const MAX_OTHER_PIN_WAIT: Duration = Duration::from_millis(500);

/// The error message if a PIN is not tried, because the token has rejected it before.
pub(in crate::keys) const PIN_NOT_RETRIED: &str =
    "the token rejected the pin; it is not retried until the key is written or tested";

const TOKEN_NOT_FOUND: &str = "pkcs11 token: not found";

/// A slot with a token, and the token information if it can be read.
type TokenSlot = (Slot, Option<TokenInfo>);

/// A token in its slot, valid for one epoch of its module.
pub(super) struct Pkcs11Token {
    pub(super) slot: Slot,
    salt: [u8; 16],
    /// Incremented whenever the token is lost, with all its sessions.
    generation: AtomicU64,
    state: Mutex<Pkcs11TokenState>,
    changed: Condvar,
}

#[derive(Default)]
struct Pkcs11TokenState {
    open: usize,
    /// Maximum number of open sessions; `None` if the token does not report it.
    limit: Option<usize>,
    /// Number of threads that wait for a session.
    waiting: usize,
    /// Fingerprint of the PIN that is logged in.
    login: Option<PinFingerprint>,
    /// Fingerprint of the last rejected PIN, and the event number of the rejection.
    last_rejected_pin: Option<(PinFingerprint, u64)>,
}

/// A permit for one session of the token.
pub(super) struct SessionPermit {
    pub(super) token: Arc<Pkcs11Token>,
    generation: u64,
}

impl SessionPermit {
    /// `true` if the token has not been lost since the permit was issued.
    pub(super) fn is_current(&self) -> bool {
        self.generation == self.token.generation.load(Ordering::Acquire)
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        let mut state = self.token.lock();
        if self.is_current() {
            state.open -= 1;
            if state.open == 0 {
                // Closing the last session ends the login.
                state.login = None;
            }
            self.token.changed.notify_all();
        }
    }
}

impl Pkcs11TokenState {
    /// `true` if sessions are open that use another PIN.
    fn has_sessions_with_another_pin(&self, fingerprint: &PinFingerprint) -> bool {
        self.open > 0 && self.login.is_some_and(|login| login != *fingerprint)
    }
}

fn other_pin_error() -> Pkcs11Failure {
    Error::new(Kind::BadGateway, "a different pin is in use for this token").into()
}

/// The address of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenAddress {
    /// The token in the slot with this number.
    Slot(u64),
    /// The token with this label, in any slot.
    Label(String),
}

impl TokenAddress {
    /// Finds the token in the slots of the module and reads its information.
    ///
    /// A label also selects a token whose information cannot be read, but only if it is the only token of the module
    /// and this process has never read that label. Otherwise the PIN of one token could be sent to another. `seen`
    /// contains the labels that were read.
    ///
    /// # Errors
    /// `Invalid` when several tokens have the label, or may have it because their labels cannot be read.
    pub(super) fn find_token(
        &self,
        pass: &ModulePass<'_>,
        seen: &Mutex<HashSet<String>>,
    ) -> Result<TokenSlot, Pkcs11Failure> {
        match self {
            Self::Slot(number) => Self::find_in_slot(pass, *number),
            Self::Label(label) => Self::find_by_label(pass, label, seen),
        }
    }

    fn find_in_slot(pass: &ModulePass<'_>, number: u64) -> Result<TokenSlot, Pkcs11Failure> {
        let slot = pass.module.get_slots_with_token()?.into_iter().find(|slot| slot.id() == number);
        let slot = slot.ok_or_else(|| Pkcs11Failure::new(Pkcs11FailureCause::Token, TOKEN_NOT_FOUND))?;
        let info = read_token_info(pass, slot)?;
        // Some modules still list the slot of a removed token.
        if info.is_none() && !is_token_present(pass, slot)? {
            return Err(Pkcs11Failure::new(Pkcs11FailureCause::Token, TOKEN_NOT_FOUND));
        }
        Ok((slot, info))
    }

    fn find_by_label(
        pass: &ModulePass<'_>,
        label: &str,
        seen: &Mutex<HashSet<String>>,
    ) -> Result<TokenSlot, Pkcs11Failure> {
        let mut found = None;
        let mut unreadable = Vec::new();
        let mut readable = 0;
        for slot in pass.module.get_slots_with_token()? {
            let info = match pass.module.get_token_info(slot) {
                Ok(info) => info,
                Err(error) => {
                    // The token is present, but the binding cannot parse its information.
                    if !matches!(error, BindingError::Pkcs11(..)) {
                        unreadable.push(slot);
                    }
                    match Pkcs11Failure::from(error) {
                        failure if failure.cause == Pkcs11FailureCause::Module => return Err(failure),
                        _ => continue,
                    }
                }
            };
            if !info.token_initialized() {
                continue;
            }
            readable += 1;
            seen.lock().unwrap_or_else(PoisonError::into_inner).insert(info.label().trim().to_owned());
            if info.label().trim() == label && found.replace((slot, Some(info))).is_some() {
                return Err(Error::invalid("token label is ambiguous").into());
            }
        }
        if let Some(found) = found {
            return Ok(found);
        }
        let slots: Vec<String> = unreadable.iter().map(|slot| slot.id().to_string()).collect();
        let slots = slots.join(", ");
        let was_read = seen.lock().unwrap_or_else(PoisonError::into_inner).contains(label);
        match unreadable.as_slice() {
            [] => Err(Pkcs11Failure::new(Pkcs11FailureCause::Token, TOKEN_NOT_FOUND)),
            [slot] if readable == 0 && !was_read => {
                tracing::debug!(
                    slot = slot.id(),
                    "the only token with unreadable information is assumed to have the configured label"
                );
                Ok((*slot, None))
            }
            [_] => {
                let text = format!(
                    "{TOKEN_NOT_FOUND}, unless it is in slot {slots}, whose information cannot be read; set slot \
                     instead of token_label"
                );
                Err(Pkcs11Failure::new(Pkcs11FailureCause::Token, text))
            }
            _ => {
                let text = format!(
                    "token_label: the information of slots {slots} cannot be read; set slot instead of token_label"
                );
                Err(Error::invalid(text).into())
            }
        }
    }
}

/// Reads the token information. Returns `None` for most failures, because some modules report an invalid time, and a
/// slot that does not respond may hold a token of another key.
fn read_token_info(pass: &ModulePass<'_>, slot: Slot) -> Result<Option<TokenInfo>, Pkcs11Failure> {
    match pass.module.get_token_info(slot).map_err(Pkcs11Failure::from) {
        Err(failure) if failure.cause == Pkcs11FailureCause::Module => Err(failure),
        info => Ok(info.ok()),
    }
}

/// `true` if a token is present in a slot, even if its information cannot be parsed.
pub(super) fn is_token_present(pass: &ModulePass<'_>, slot: Slot) -> Result<bool, Pkcs11Failure> {
    match pass.module.get_token_info(slot) {
        Err(error @ BindingError::Pkcs11(RvError::CryptokiNotInitialized, _)) => Err(error.into()),
        Err(BindingError::Pkcs11(..)) => Ok(false),
        Ok(_) | Err(_) => Ok(true),
    }
}

impl Pkcs11Token {
    pub(super) fn new(slot: Slot, info: Option<&TokenInfo>) -> Self {
        let limit = info.and_then(|info| Option::<u64>::from(info.max_session_count()));
        // One session is left for the operator's tools.
        let limit = limit.filter(|n| *n > 0).map(|n| usize::try_from(n - 1).unwrap_or(usize::MAX).max(1));
        Self {
            slot,
            salt: crate::random::bytes(),
            generation: AtomicU64::new(0),
            state: Mutex::new(Pkcs11TokenState { limit, ..Pkcs11TokenState::default() }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pkcs11TokenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a permit for one more session with `pin`. Waits if the token has no free session. Also waits briefly for
    /// sessions with another PIN, such as that of an older configuration, to end. The caller must not hold a
    /// `ModulePass`.
    pub(super) fn reserve_session(self: &Arc<Self>, pin: &Pin) -> Result<SessionPermit, Pkcs11Failure> {
        let fingerprint = pin.fingerprint(&self.salt);
        let since = Instant::now();
        let mut state = self.lock();
        loop {
            let is_full = state.limit.is_some_and(|limit| state.open >= limit);
            let (max_wait, failure) = if state.has_sessions_with_another_pin(&fingerprint) {
                (MAX_OTHER_PIN_WAIT, other_pin_error())
            } else if is_full {
                (
                    MAX_SESSION_WAIT,
                    Pkcs11Failure::new(Pkcs11FailureCause::Capacity, "pkcs11 token: all its sessions are in use"),
                )
            } else {
                break;
            };
            let left = max_wait.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Err(failure);
            }
            // Counts only a wait for a free session: sessions do not close early for a thread with another PIN.
            let waiting = usize::from(is_full);
            state.waiting += waiting;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= waiting;
        }
        state.open += 1;
        let generation = self.generation.load(Ordering::Acquire);
        Ok(SessionPermit { token: Arc::clone(self), generation })
    }

    /// Lowers the session limit after the token refused a session. Returns `true` if another session of this process is
    /// open, whose end the caller can wait for.
    pub(super) fn lower_session_limit(&self) -> bool {
        let mut state = self.lock();
        let others = state.open.saturating_sub(1);
        if others > 0 {
            state.limit = Some(others);
        }
        others > 0
    }

    pub(super) fn is_session_awaited(&self) -> bool {
        self.lock().waiting > 0
    }

    pub(super) fn invalidate(&self) {
        let mut state = self.lock();
        self.generation.fetch_add(1, Ordering::AcqRel);
        (state.open, state.login) = (0, None);
        self.changed.notify_all();
    }

    pub(super) fn login(&self, pass: &ModulePass<'_>, session: &Session, pin: &Pin) -> Result<(), Pkcs11Failure> {
        let fingerprint = pin.fingerprint(&self.salt);
        let is_in = matches!(session.get_session_info()?.session_state(), SessionState::RoUser | SessionState::RwUser);
        let mut state = self.lock();
        if is_in {
            return if *state.login.get_or_insert(fingerprint) == fingerprint {
                Ok(())
            } else {
                Err(other_pin_error())
            };
        }
        let rejected_at = state.last_rejected_pin.and_then(|(pin, at)| (pin == fingerprint).then_some(at));
        if !pin.may_be_tried(rejected_at) {
            return Err(Error::new(Kind::BadGateway, PIN_NOT_RETRIED).into());
        }
        if read_token_info(pass, self.slot)?.is_some_and(|info| info.user_pin_final_try() || info.user_pin_locked()) {
            let text = "the token accepts at most one more pin attempt; log in with the vendor's tools first";
            return Err(Error::new(Kind::BadGateway, text).into());
        }
        match session.login_with_raw(cryptoki::session::UserType::User, &pin.to_auth_pin()) {
            Ok(()) => {
                (state.login, state.last_rejected_pin) = (Some(fingerprint), None);
                Ok(())
            }
            // Another component of this process has logged in, with a PIN that this code does not know.
            Err(BindingError::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
            Err(error) => {
                let failure = Pkcs11Failure::from(error);
                if failure.cause == Pkcs11FailureCause::Pin {
                    state.last_rejected_pin = Some((fingerprint, next_pin_event()));
                    pin.mark_rejected();
                }
                Err(failure)
            }
        }
    }
}

//! A token, as this process uses it: whoever is logged in is logged in with all sessions, so the login, the
//! PINs that were refused and the number of sessions belong to the token and not to a key.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cryptoki::error::{Error as BindingError, RvError};
use cryptoki::session::{Session, SessionState};
use cryptoki::slot::{Slot, TokenInfo};

use super::healing::{Cause, Failure};
use super::module::Pass;
use super::pin::{Fingerprint, Pin, event};
use crate::error::{Error, Kind};

/// Longest wait for a session that another key gives back.
const CAPACITY_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for sessions of an older configuration to end, which are logged in with its PIN.
const LOGIN_WAIT: Duration = Duration::from_millis(500);

/// What is answered where a PIN was refused before, and is not tried now.
pub(in crate::keys) const PIN_IS_KEPT: &str =
    "the token refused the pin: it is not tried again before the key is written or tested";

/// Error text for a token that is not found.
const ABSENT: &str = "pkcs11 token: is not present";

/// A slot with a token, and what the token says of itself where that can be read.
type Found = (Slot, Option<TokenInfo>);

/// A token in its slot, for one epoch of its library.
pub(super) struct Token {
    pub(super) slot: Slot,
    salt: [u8; 16],
    /// Grows when the token was lost with all its sessions.
    generation: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    open: usize,
    /// Most sessions at a time; none where the token does not say.
    limit: Option<usize>,
    /// Who wait for a session.
    waiting: usize,
    /// The PIN that is logged in.
    login: Option<Fingerprint>,
    /// The PIN that was refused last, and when.
    refused: Option<(Fingerprint, u64)>,
}

/// The right to one session of the token.
pub(super) struct Seat {
    pub(super) token: Arc<Token>,
    generation: u64,
}

impl Seat {
    /// Whether the token was lost since.
    pub(super) fn is_current(&self) -> bool {
        self.generation == self.token.generation.load(Ordering::Acquire)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.token.lock();
        if self.is_current() {
            state.open -= 1;
            if state.open == 0 {
                // With its last session a token loses its login.
                state.login = None;
            }
            self.token.changed.notify_all();
        }
    }
}

impl State {
    /// Whether sessions are open that another PIN has logged in.
    fn is_of_another(&self, own: &Fingerprint) -> bool {
        self.open > 0 && self.login.is_some_and(|login| login != *own)
    }
}

fn other_pin() -> Failure {
    Error::new(Kind::BadGateway, "a different pin is in use for this token").into()
}

/// Where the token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenAddress {
    /// In the slot with this number.
    Slot(u64),
    /// In whatever slot has the token with this label.
    Label(String),
}

impl TokenAddress {
    /// Finds the token in the slots of the module, and what it says of itself.
    ///
    /// A label also finds a token whose information cannot be read, if it is the only token of the module and no token
    /// with that label was read before in this process: the PIN of one token must not be sent to another one. `seen`
    /// are the labels that were read.
    ///
    /// # Errors
    /// `Invalid` when two tokens have the label, or may have it.
    pub(super) fn find(&self, pass: &Pass<'_>, seen: &Mutex<HashSet<String>>) -> Result<Found, Failure> {
        match self {
            Self::Slot(number) => Self::in_slot(pass, *number),
            Self::Label(label) => Self::by_label(pass, label, seen),
        }
    }

    fn in_slot(pass: &Pass<'_>, number: u64) -> Result<Found, Failure> {
        let slot = pass.module.get_slots_with_token()?.into_iter().find(|slot| slot.id() == number);
        let slot = slot.ok_or_else(|| Failure::new(Cause::Token, ABSENT))?;
        let info = info(pass, slot)?;
        // There are modules that go on naming the slot of a token that is gone.
        if info.is_none() && !is_there(pass, slot)? {
            return Err(Failure::new(Cause::Token, ABSENT));
        }
        Ok((slot, info))
    }

    fn by_label(pass: &Pass<'_>, label: &str, seen: &Mutex<HashSet<String>>) -> Result<Found, Failure> {
        let mut found = None;
        let mut unreadable = Vec::new();
        let mut readable = 0;
        for slot in pass.module.get_slots_with_token()? {
            let info = match pass.module.get_token_info(slot) {
                Ok(info) => info,
                Err(error) => {
                    // The token is there, and the binding cannot read what it says of itself.
                    if !matches!(error, BindingError::Pkcs11(..)) {
                        unreadable.push(slot);
                    }
                    match Failure::from(error) {
                        failure if failure.cause == Cause::Module => return Err(failure),
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
            [] => Err(Failure::new(Cause::Token, ABSENT)),
            [slot] if readable == 0 && !was_read => {
                tracing::debug!(slot = slot.id(), "a token whose information cannot be read is taken by its label");
                Ok((*slot, None))
            }
            [_] => {
                let text = format!("{ABSENT}, or is in slot {slots}, whose token information cannot be read: use slot");
                Err(Failure::new(Cause::Token, text))
            }
            _ => {
                let text = format!("token_label: the token information in slots {slots} cannot be read, use slot");
                Err(Error::invalid(text).into())
            }
        }
    }
}

/// What a token says of itself; `None` where that cannot be read: there are modules with a time that is none,
/// and a slot that does not answer may be another key's.
fn info(pass: &Pass<'_>, slot: Slot) -> Result<Option<TokenInfo>, Failure> {
    match pass.module.get_token_info(slot).map_err(Failure::from) {
        Err(failure) if failure.cause == Cause::Module => Err(failure),
        info => Ok(info.ok()),
    }
}

/// Whether the token in a slot is there: what cannot be read is said of one that is.
pub(super) fn is_there(pass: &Pass<'_>, slot: Slot) -> Result<bool, Failure> {
    match pass.module.get_token_info(slot) {
        Err(error @ BindingError::Pkcs11(RvError::CryptokiNotInitialized, _)) => Err(error.into()),
        Err(BindingError::Pkcs11(..)) => Ok(false),
        Ok(_) | Err(_) => Ok(true),
    }
}

impl Token {
    pub(super) fn new(slot: Slot, info: Option<&TokenInfo>) -> Self {
        let limit = info.and_then(|info| Option::<u64>::from(info.max_session_count()));
        // One is left for the tools of the operator.
        let limit = limit.filter(|n| *n > 0).map(|n| usize::try_from(n - 1).unwrap_or(usize::MAX).max(1));
        Self {
            slot,
            salt: crate::random::bytes(),
            generation: AtomicU64::new(0),
            state: Mutex::new(State { limit, ..State::default() }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to one more session, for whoever has `pin`; waits where the token has no more, and a little
    /// for sessions of another PIN to end: those of an older configuration do. The caller holds no pass.
    pub(super) fn seat(self: &Arc<Self>, pin: &Pin) -> Result<Seat, Failure> {
        let (own, since) = (pin.fingerprint(&self.salt), Instant::now());
        let mut state = self.lock();
        loop {
            let is_full = state.limit.is_some_and(|limit| state.open >= limit);
            let (longest, failure) = if state.is_of_another(&own) {
                (LOGIN_WAIT, other_pin())
            } else if is_full {
                (CAPACITY_WAIT, Failure::new(Cause::Capacity, "pkcs11 token: all its sessions are in use"))
            } else {
                break;
            };
            let left = longest.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Err(failure);
            }
            // For want of a session alone: nobody gives one up for another PIN.
            let wants = usize::from(is_full);
            state.waiting += wants;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= wants;
        }
        state.open += 1;
        let generation = self.generation.load(Ordering::Acquire);
        Ok(Seat { token: Arc::clone(self), generation })
    }

    /// The token had no more sessions than this process has, but for one that was just refused. Whether
    /// there is one to wait for.
    pub(super) fn is_full(&self) -> bool {
        let mut state = self.lock();
        let others = state.open.saturating_sub(1);
        if others > 0 {
            state.limit = Some(others);
        }
        others > 0
    }

    /// Whether somebody waits for a session.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().waiting > 0
    }

    /// The token is gone, and all its sessions with it.
    pub(super) fn lose(&self) {
        let mut state = self.lock();
        self.generation.fetch_add(1, Ordering::AcqRel);
        (state.open, state.login) = (0, None);
        self.changed.notify_all();
    }

    /// Logs a new session in, where the token is not.
    pub(super) fn login(&self, pass: &Pass<'_>, session: &Session, pin: &Pin) -> Result<(), Failure> {
        let own = pin.fingerprint(&self.salt);
        let is_in = matches!(session.get_session_info()?.session_state(), SessionState::RoUser | SessionState::RwUser);
        let mut state = self.lock();
        if is_in {
            return if *state.login.get_or_insert(own) == own { Ok(()) } else { Err(other_pin()) };
        }
        let refused_at = state.refused.and_then(|(pin, at)| (pin == own).then_some(at));
        if !pin.may_be_tried(refused_at) {
            return Err(Error::new(Kind::BadGateway, PIN_IS_KEPT).into());
        }
        if info(pass, self.slot)?.is_some_and(|info| info.user_pin_final_try() || info.user_pin_locked()) {
            let text = "the token takes one more try of its pin at most: log in by its own tools first";
            return Err(Error::new(Kind::BadGateway, text).into());
        }
        match session.login_with_raw(cryptoki::session::UserType::User, &pin.raw()) {
            Ok(()) => {
                (state.login, state.refused) = (Some(own), None);
                Ok(())
            }
            // By somebody else in this process, with a PIN that is not known.
            Err(BindingError::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
            Err(error) => {
                let failure = Failure::from(error);
                if failure.cause == Cause::Pin {
                    state.refused = Some((own, event()));
                    pin.refuse();
                }
                Err(failure)
            }
        }
    }
}

//! A PKCS #11 session, which logs in when it is opened and is closed on drop.

use std::sync::Arc;

use cryptoki::session::Session as RawSession;

use super::key::Pkcs11Key;
use super::library::Library;
use super::recovery::{Pkcs11Failure, Pkcs11FailureCause};
use super::token::{self, SessionPermit};

/// Maximum attempts to open a session on a token without free sessions.
const MAX_OPEN_ATTEMPTS: usize = 3;

/// An open session of one epoch of its module. It ends when the token is lost.
pub(super) struct Pkcs11Session {
    raw: Option<RawSession>,
    permit: SessionPermit,
    library: Arc<Library>,
    epoch: u64,
}

impl Pkcs11Session {
    pub(super) fn open(key: &Pkcs11Key, read_write: bool) -> Result<Self, Pkcs11Failure> {
        let library = &key.library;
        let mut last_failure = session_ended_error();
        for _ in 0..MAX_OPEN_ATTEMPTS {
            let (token, epoch) = {
                let pass = library.module.acquire_pass()?;
                (library.token(&pass, &key.config.token)?, pass.epoch)
            };
            let permit = token.reserve_session(&key.pin)?;
            let pass = library.module.acquire_pass()?;
            if pass.epoch != epoch || !permit.is_current() {
                last_failure = session_ended_error();
                continue;
            }
            // The binding must not close the session on drop, because its handle may belong to another session by then.
            let opened = if read_write || key.config.force_rw_session {
                pass.module.open_rw_session_no_drop(token.slot)
            } else {
                pass.module.open_ro_session_no_drop(token.slot)
            };
            let failure = match opened {
                Ok(raw) => {
                    let session = Self { raw: Some(raw), permit, library: Arc::clone(library), epoch };
                    let login = session.raw().and_then(|raw| token.login(&pass, raw, &key.pin));
                    drop(pass);
                    return login.map(|()| session);
                }
                Err(error) => Pkcs11Failure::from(error),
            };
            if failure.cause != Pkcs11FailureCause::Capacity || !token.lower_session_limit() {
                return Err(failure);
            }
            last_failure =
                Pkcs11Failure::new(Pkcs11FailureCause::Capacity, "pkcs11 token: all its sessions are in use");
        }
        Err(last_failure)
    }

    pub(super) fn run<T>(
        &self,
        call: impl FnOnce(&RawSession) -> Result<T, Pkcs11Failure>,
    ) -> Result<T, Pkcs11Failure> {
        let pass = self.library.module.acquire_pass()?;
        if pass.epoch != self.epoch || !self.permit.is_current() {
            return Err(session_ended_error());
        }
        call(self.raw()?)
    }

    /// `true` if the token is still present. In some modules, sessions of a removed token find no objects
    /// and return no error.
    pub(super) fn is_token_present(&self) -> Result<bool, Pkcs11Failure> {
        let pass = self.library.module.acquire_pass()?;
        if pass.epoch != self.epoch {
            return Err(session_ended_error());
        }
        token::is_token_present(&pass, self.permit.token.slot)
    }

    fn raw(&self) -> Result<&RawSession, Pkcs11Failure> {
        self.raw.as_ref().ok_or_else(session_ended_error)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// `true` if a thread waits for a session of this token.
    pub(super) fn is_session_awaited(&self) -> bool {
        self.permit.token.is_session_awaited()
    }

    pub(super) fn invalidate_token(&self) {
        if self.permit.is_current() {
            self.permit.token.invalidate();
        }
    }
}

pub(super) fn session_ended_error() -> Pkcs11Failure {
    Pkcs11Failure::new(Pkcs11FailureCause::SessionEnded, "pkcs11 session: has ended; retry shortly")
}

impl Drop for Pkcs11Session {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        // A session of an earlier epoch, or of a lost token, has ended already.
        if let Ok(pass) = self.library.module.acquire_pass()
            && pass.epoch == self.epoch
            && self.permit.is_current()
        {
            let _ = raw.close();
        }
    }
}

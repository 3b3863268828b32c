//! A session, logged in on opening and closed on drop.

use std::sync::Arc;

use cryptoki::session::Session as Raw;

use super::healing::{Cause, Failure};
use super::key::Pkcs11Key;
use super::library::Library;
use super::token::{self, Seat};

/// Maximum attempts to open a session on a token without free sessions.
const ATTEMPTS: usize = 3;

/// An open session of one epoch of its library. It ends when the token is lost.
pub(super) struct Session {
    raw: Option<Raw>,
    seat: Seat,
    library: Arc<Library>,
    epoch: u64,
}

impl Session {
    pub(super) fn open(key: &Pkcs11Key, read_write: bool) -> Result<Self, Failure> {
        let library = &key.library;
        let mut left_with = ended();
        for _ in 0..ATTEMPTS {
            let (token, epoch) = {
                let pass = library.module.enter()?;
                (library.token(&pass, &key.config.token)?, pass.epoch)
            };
            let seat = token.seat(&key.pin)?;
            let pass = library.module.enter()?;
            if pass.epoch != epoch || !seat.is_current() {
                left_with = ended();
                continue;
            }
            // Not closed by the binding on drop, because its handle may belong to another session by then.
            let opened = if read_write || key.config.force_rw_session {
                pass.module.open_rw_session_no_drop(token.slot)
            } else {
                pass.module.open_ro_session_no_drop(token.slot)
            };
            let failure = match opened {
                Ok(raw) => {
                    let session = Self { raw: Some(raw), seat, library: Arc::clone(library), epoch };
                    let login = session.raw().and_then(|raw| token.login(&pass, raw, &key.pin));
                    drop(pass);
                    return login.map(|()| session);
                }
                Err(error) => Failure::from(error),
            };
            if failure.cause != Cause::Capacity || !token.is_full() {
                return Err(failure);
            }
            left_with = Failure::new(Cause::Capacity, "pkcs11 token: all its sessions are in use");
        }
        Err(left_with)
    }

    pub(super) fn run<T>(&self, call: impl FnOnce(&Raw) -> Result<T, Failure>) -> Result<T, Failure> {
        let pass = self.library.module.enter()?;
        if pass.epoch != self.epoch || !self.seat.is_current() {
            return Err(ended());
        }
        call(self.raw()?)
    }

    /// `true` if the token is still present. In some modules, sessions of a removed token find no objects
    /// and return no error.
    pub(super) fn has_token(&self) -> Result<bool, Failure> {
        let pass = self.library.module.enter()?;
        if pass.epoch != self.epoch {
            return Err(ended());
        }
        token::is_there(&pass, self.seat.token.slot)
    }

    fn raw(&self) -> Result<&Raw, Failure> {
        self.raw.as_ref().ok_or_else(ended)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// `true` if another key waits for a session of this token.
    pub(super) fn is_wanted(&self) -> bool {
        self.seat.token.is_wanted()
    }

    pub(super) fn lose_token(&self) {
        if self.seat.is_current() {
            self.seat.token.lose();
        }
    }
}

pub(super) fn ended() -> Failure {
    Failure::new(Cause::Ended, "pkcs11 session: it has ended")
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        // A session of an earlier epoch, or of a lost token, has ended already.
        if let Ok(pass) = self.library.module.enter()
            && pass.epoch == self.epoch
            && self.seat.is_current()
        {
            let _ = raw.close();
        }
    }
}

//! Limits login attempts with a wrong PIN, because a token counts them and locks itself. A wrong PIN is tried once per
//! version of a configuration, and once more per test signature.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aws_lc_rs::digest;
use cryptoki::types::RawAuthPin;

use crate::secret::Secret;

/// Salted digest of a PIN.
pub(super) type PinFingerprint = [u8; 32];

/// Event counter. Its values show if a token rejected a PIN before or after the last permission to try that PIN again.
static PIN_EVENT_COUNTER: AtomicU64 = AtomicU64::new(0);

pub(super) fn next_pin_event() -> u64 {
    PIN_EVENT_COUNTER.fetch_add(1, Ordering::Relaxed)
}

/// The PIN of one version of a configuration.
pub(super) struct Pin {
    secret: Secret,
    /// Event number of the configuration write or test signature that last permitted a login attempt.
    permitted_at: AtomicU64,
    rejected: AtomicBool,
}

impl Pin {
    pub(super) fn new(secret: Secret) -> Self {
        Self { secret, permitted_at: AtomicU64::new(next_pin_event()), rejected: AtomicBool::new(false) }
    }

    /// Permits one more login attempt with this PIN.
    pub(super) fn permit(&self) {
        self.permitted_at.store(next_pin_event(), Ordering::Relaxed);
        self.rejected.store(false, Ordering::Relaxed);
    }

    pub(super) fn mark_rejected(&self) {
        self.rejected.store(true, Ordering::Relaxed);
    }

    /// `true` if a login with the PIN may be tried on a token that rejected the same PIN at event `rejected_at`.
    pub(super) fn may_be_tried(&self, rejected_at: Option<u64>) -> bool {
        let since = rejected_at.is_none_or(|at| self.permitted_at.load(Ordering::Relaxed) > at);
        since && !self.rejected.load(Ordering::Relaxed)
    }

    pub(super) fn fingerprint(&self, salt: &[u8]) -> PinFingerprint {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(salt);
        context.update(self.secret.expose());
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        fingerprint
    }

    /// Returns the PIN in the type that the `cryptoki` login takes; it is zeroized when dropped.
    pub(super) fn to_auth_pin(&self) -> RawAuthPin {
        RawAuthPin::new(Box::new(self.secret.expose().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_pin_is_retried_only_after_a_permission() {
        let pin = Pin::new(Secret::new("1234"));
        assert!(pin.may_be_tried(None));
        let rejected_at = next_pin_event();
        pin.mark_rejected();
        assert!(!pin.may_be_tried(Some(rejected_at)) && !pin.may_be_tried(None));
        pin.permit();
        assert!(pin.may_be_tried(Some(rejected_at)));
        // Two other configurations with the same PIN, one written before the rejection and one after it.
        let before = Pin::new(Secret::new("1234"));
        let after = next_pin_event();
        assert!(!before.may_be_tried(Some(after)) && Pin::new(Secret::new("1234")).may_be_tried(Some(after)));
    }
}

//! When a PIN is tried. A token counts wrong tries and locks itself, so a wrong PIN is tried once for each
//! version of a configuration, and once more for each test signature.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aws_lc_rs::digest;
use cryptoki::types::RawAuthPin;

use crate::secret::Secret;

/// Salted digest of a PIN.
pub(super) type Fingerprint = [u8; 32];

/// Counts refusals and permissions of the process, so that one is known to be later than the other.
static EVENTS: AtomicU64 = AtomicU64::new(0);

/// The number of an event that happens now.
pub(super) fn event() -> u64 {
    EVENTS.fetch_add(1, Ordering::Relaxed)
}

/// The PIN of one version of a configuration.
pub(super) struct Pin {
    secret: Secret,
    /// When it was last written or tested.
    permitted: AtomicU64,
    refused: AtomicBool,
}

impl Pin {
    pub(super) fn new(secret: Secret) -> Self {
        Self { secret, permitted: AtomicU64::new(event()), refused: AtomicBool::new(false) }
    }

    /// Allows one more try.
    pub(super) fn permit(&self) {
        self.permitted.store(event(), Ordering::Relaxed);
        self.refused.store(false, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// Whether it may be tried on a token that refused this same PIN at `refused_at`.
    pub(super) fn may_be_tried(&self, refused_at: Option<u64>) -> bool {
        let since = refused_at.is_none_or(|at| self.permitted.load(Ordering::Relaxed) > at);
        since && !self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn fingerprint(&self, salt: &[u8]) -> Fingerprint {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(salt);
        context.update(self.secret.expose());
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        fingerprint
    }

    /// For a login; overwritten when dropped.
    pub(super) fn raw(&self) -> RawAuthPin {
        RawAuthPin::new(Box::new(self.secret.expose().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_pin_is_tried_again_after_a_permission_alone() {
        let pin = Pin::new(Secret::new("1234"));
        assert!(pin.may_be_tried(None));
        let refused_at = event();
        pin.refuse();
        assert!(!pin.may_be_tried(Some(refused_at)) && !pin.may_be_tried(None));
        pin.permit();
        assert!(pin.may_be_tried(Some(refused_at)));
        // Another key's configuration with the same PIN, written before and after the refusal.
        let (before, after) = (Pin::new(Secret::new("1234")), event());
        assert!(!before.may_be_tried(Some(after)) && Pin::new(Secret::new("1234")).may_be_tried(Some(after)));
    }
}

//! State of the rotation of this service's client secret.
//!
//! The state is part of the configuration document, so a rotation survives a crash and all nodes see the same state;
//! each step changes it by compare-and-set. A `Requested` secret is abandoned after five minutes, and removed from the
//! directory. A `Created` secret is tested after a minute and then replaces the current one. Replaced secrets are
//! removed from the directory. A secret that an operator configured is not removed, because it may be in use elsewhere.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::instant;
use crate::clock::Time;
use crate::secret::{Secret, sealed};

/// Time that the directory needs to distribute a new secret to all its servers.
const SECRET_PROPAGATION_DELAY: Duration = Duration::from_secs(60);
/// Time after which a secret that was requested but never stored is abandoned.
const REQUESTED_SECRET_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SecretRotation {
    /// The directory's key id of the current secret; `None` if an operator configured the secret.
    pub(super) key_id: Option<String>,
    #[serde(with = "instant::option", default)]
    expires: Option<Time>,
    pub(super) next: Option<PendingSecret>,
    /// The directory's key ids of replaced secrets that must still be removed from the directory.
    #[serde(default)]
    pub(super) retired: Vec<String>,
}

/// The new secret of a rotation in progress, which is not used yet.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum PendingSecret {
    #[serde(rename = "Asked")]
    Requested {
        name: String,
        #[serde(with = "instant")]
        at: Time,
    },
    #[serde(rename = "Made")]
    Created {
        #[serde(with = "sealed")]
        secret: Secret,
        key_id: String,
        #[serde(with = "instant")]
        expires: Time,
        #[serde(with = "instant")]
        at: Time,
    },
}

#[derive(PartialEq)]
pub(super) enum DueRotationStep {
    /// Remove the abandoned secret with this name from the directory.
    RemoveAbandoned(String),
    /// Replace the current secret with this secret, which has this key id.
    Promote(Secret, String),
    /// Remove the replaced secret with this key id from the directory.
    RemoveReplaced(String),
}

impl SecretRotation {
    pub(super) fn expires(&self) -> Option<Time> {
        self.expires
    }

    pub(super) fn due_step(&self, now: Time) -> Option<DueRotationStep> {
        match &self.next {
            Some(PendingSecret::Requested { name, at }) if now >= *at + REQUESTED_SECRET_TIMEOUT => {
                Some(DueRotationStep::RemoveAbandoned(name.clone()))
            }
            Some(PendingSecret::Created { secret, key_id, at, .. }) if now >= *at + SECRET_PROPAGATION_DELAY => {
                Some(DueRotationStep::Promote(secret.clone(), key_id.clone()))
            }
            _ => self.retired.first().cloned().map(DueRotationStep::RemoveReplaced),
        }
    }

    /// `true` if the rotation in progress has requested a secret with this name and not stored it yet.
    pub(super) fn is_requesting(&self, requested: &str) -> bool {
        matches!(&self.next, Some(PendingSecret::Requested { name, .. }) if name == requested)
    }

    /// Makes the created secret with this key id the current one, and returns it; `None` if no such secret is waiting.
    pub(super) fn promote(&mut self, expected: &str) -> Option<Secret> {
        let is_created =
            |next: &mut PendingSecret| matches!(next, PendingSecret::Created { key_id, .. } if key_id == expected);
        let Some(PendingSecret::Created { secret, key_id, expires, .. }) = self.next.take_if(is_created) else {
            return None;
        };
        self.retired.extend(self.key_id.replace(key_id));
        self.expires = Some(expires);
        Some(secret)
    }

    #[cfg(test)]
    pub(super) fn expiring_at(at: Time) -> Self {
        Self { key_id: Some("k".to_owned()), expires: Some(at), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_step_is_due_after_its_delay() {
        let at = time::macros::datetime!(2030-01-01 00:00 UTC);
        let is_due = |rotation: &SecretRotation, seconds| rotation.due_step(at + Duration::from_secs(seconds));
        let requested = SecretRotation {
            next: Some(PendingSecret::Requested { name: "n".to_owned(), at }),
            ..SecretRotation::default()
        };
        assert!(
            is_due(&requested, 299).is_none()
                && is_due(&requested, 300) == Some(DueRotationStep::RemoveAbandoned("n".to_owned()))
        );
        assert!(
            requested.is_requesting("n")
                && !requested.is_requesting("m")
                && !SecretRotation::default().is_requesting("n")
        );
        let secret = Secret::new("hunter2");
        let created = PendingSecret::Created { secret: secret.clone(), key_id: "k2".to_owned(), expires: at, at };
        let created =
            SecretRotation { next: Some(created), retired: vec!["k0".to_owned()], ..SecretRotation::default() };
        assert!(is_due(&created, 59) == Some(DueRotationStep::RemoveReplaced("k0".to_owned())));
        assert!(is_due(&created, 60) == Some(DueRotationStep::Promote(secret, "k2".to_owned())));
        assert!(SecretRotation::default().due_step(at).is_none());
        let stored = serde_json::to_string(&created).unwrap();
        assert!(serde_json::from_str::<SecretRotation>(&stored).unwrap() == created);
    }
}

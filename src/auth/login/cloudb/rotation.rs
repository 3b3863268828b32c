//! How far the rotation of the service's own secret has come.
//!
//! What stands in the configuration's document is all there is, so that a rotation survives a crash and is one for
//! all nodes: each step is a compare-and-set on that document.
//!
//! | state | what happened | what comes next |
//! |---|---|---|
//! | `Asked` | a secret with this name is being asked for | it is kept, as `Made`; after five minutes it is nobody's, and removed |
//! | `Made` | the directory has made it | after a minute, when all of the directory knows it: it is tried, and takes the place of the current one |
//! | `retired` | secrets that were replaced | they are removed at the directory |
//!
//! A secret that no rotation made is not removed: another consumer may use it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::instant;
use crate::clock::Time;
use crate::secret::{Secret, sealed};

/// How long the directory takes until a secret is known everywhere.
const SPREAD: Duration = Duration::from_secs(60);
/// How long after a secret was asked for nobody keeps it any more.
const ABANDONED: Duration = Duration::from_secs(300);

/// What is known of rotated secrets.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Rotation {
    /// The key id of the current secret, when a rotation made it.
    pub(super) key_id: Option<String>,
    /// When it ends.
    #[serde(with = "instant::option", default)]
    expires: Option<Time>,
    /// The one that is under way.
    pub(super) next: Option<Next>,
    /// Key ids of secrets that were replaced and are still to be removed.
    #[serde(default)]
    pub(super) retired: Vec<String>,
}

/// A secret that is on its way.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Next {
    Asked {
        /// Its display name, which nothing else has.
        name: String,
        #[serde(with = "instant")]
        at: Time,
    },
    Made {
        #[serde(with = "sealed")]
        secret: Secret,
        key_id: String,
        #[serde(with = "instant")]
        expires: Time,
        #[serde(with = "instant")]
        at: Time,
    },
}

/// What is to be done now.
#[derive(PartialEq)]
pub(super) enum Due {
    /// A secret with this name is nobody's.
    Abandoned(String),
    /// This one, with this key id, takes the place of the current one.
    Promote(Secret, String),
    /// This key id is of a secret that is used no more.
    Retire(String),
}

impl Rotation {
    /// When the current secret ends, when a rotation made it.
    pub(super) fn expires(&self) -> Option<Time> {
        self.expires
    }

    /// The next step, once its time has come.
    pub(super) fn due(&self, now: Time) -> Option<Due> {
        match &self.next {
            Some(Next::Asked { name, at }) if now >= *at + ABANDONED => Some(Due::Abandoned(name.clone())),
            Some(Next::Made { secret, key_id, at, .. }) if now >= *at + SPREAD => {
                Some(Due::Promote(secret.clone(), key_id.clone()))
            }
            _ => self.retired.first().cloned().map(Due::Retire),
        }
    }

    /// Whether a secret with this name is being asked for.
    pub(super) fn asks_for(&self, asked: &str) -> bool {
        matches!(&self.next, Some(Next::Asked { name, .. }) if name == asked)
    }

    /// Takes the secret with this key id out, when it is the one that is on its way, and counts it as the current
    /// one.
    pub(super) fn promote(&mut self, made: &str) -> Option<Secret> {
        let is_it = |next: &mut Next| matches!(next, Next::Made { key_id, .. } if key_id == made);
        let Some(Next::Made { secret, key_id, expires, .. }) = self.next.take_if(is_it) else { return None };
        self.retired.extend(self.key_id.replace(key_id));
        self.expires = Some(expires);
        Some(secret)
    }

    #[cfg(test)]
    pub(super) fn ending(at: Time) -> Self {
        Self { key_id: Some("k".to_owned()), expires: Some(at), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_due_in_its_time() {
        let at = time::macros::datetime!(2030-01-01 00:00 UTC);
        let is_due = |rotation: &Rotation, seconds| rotation.due(at + Duration::from_secs(seconds));
        let asked = Rotation { next: Some(Next::Asked { name: "n".to_owned(), at }), ..Rotation::default() };
        assert!(is_due(&asked, 299).is_none() && is_due(&asked, 300) == Some(Due::Abandoned("n".to_owned())));
        assert!(asked.asks_for("n") && !asked.asks_for("m") && !Rotation::default().asks_for("n"));
        let secret = Secret::new("hunter2");
        let made = Next::Made { secret: secret.clone(), key_id: "k2".to_owned(), expires: at, at };
        let made = Rotation { next: Some(made), retired: vec!["k0".to_owned()], ..Rotation::default() };
        assert!(is_due(&made, 59) == Some(Due::Retire("k0".to_owned())));
        assert!(is_due(&made, 60) == Some(Due::Promote(secret, "k2".to_owned())));
        assert!(Rotation::default().due(at).is_none());
        let stored = serde_json::to_string(&made).unwrap();
        assert!(serde_json::from_str::<Rotation>(&stored).unwrap() == made);
    }
}

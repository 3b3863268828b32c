//! A role of `approle`, and its rules.

use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::login::role::Role;
use crate::auth::mounts::Mount;
use crate::auth::token::{Network, TokenTerms};
use crate::clock::compact;
use crate::error::{Error, Result};
use crate::fields::has_invisible;
use crate::secret::Secret;

/// Longest role id, bytes.
const MAX_ROLE_ID: usize = 512;
/// Characters of `[0-9A-Za-z]` that hold 256 random bits.
const KEY_CHARACTERS: usize = 43;

/// A role.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct AppRole {
    /// What names the role at logins; unique in its mount.
    role_id: String,
    /// Whether a login has to show a secret id.
    pub(crate) bind_secret_id: bool,
    /// Where a login may come from; anywhere when empty.
    pub(crate) secret_id_bound_cidrs: Vec<Network>,
    /// Uses of a secret id, and most of one that asks for a number; 0 without a limit.
    pub(crate) secret_id_num_uses: u32,
    /// Life of a secret id, and longest of one that asks for one, in whole seconds; zero for that of the mount.
    pub(crate) secret_id_ttl: Duration,
    /// Stored and read back: there is one cluster.
    pub(crate) local_secret_ids: bool,
    /// What it says of its tokens.
    pub(crate) terms: TokenTerms,
    /// Whose secret ids are its own: a random number, never used again.
    pub(super) number: i64,
    /// What its secret ids are hashed with.
    #[serde(with = "crate::secret::sealed")]
    pub(super) key: Secret,
}

impl Role for AppRole {
    fn terms(&self) -> &TokenTerms {
        &self.terms
    }
}

impl AppRole {
    /// One with nothing configured and a random role id.
    pub(crate) fn new() -> Self {
        Self {
            role_id: crate::random::uuid(),
            bind_secret_id: true,
            secret_id_bound_cidrs: Vec::new(),
            secret_id_num_uses: 0,
            secret_id_ttl: Duration::ZERO,
            local_secret_ids: false,
            terms: TokenTerms::default(),
            number: i64::from_le_bytes(crate::random::bytes()),
            key: Secret::new(crate::random::base62(KEY_CHARACTERS)),
        }
    }

    /// What names it at logins.
    pub(crate) fn role_id(&self) -> &str {
        &self.role_id
    }

    /// Gives it another role id; blanks at its ends do not count.
    ///
    /// # Errors
    /// `Invalid` when it is empty or too long.
    pub(crate) fn set_role_id(&mut self, text: &str) -> Result<()> {
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_ROLE_ID || has_invisible(text) {
            let rule = format!("role_id: must have 1 to {MAX_ROLE_ID} bytes and no control or invisible characters");
            return Err(Error::invalid(rule));
        }
        text.clone_into(&mut self.role_id);
        Ok(())
    }

    /// The warning that secret ids end earlier than the role says.
    pub(crate) fn secret_id_ttl_warning(&self, mount: &Mount) -> Option<String> {
        let asked = (!self.secret_id_ttl.is_zero()).then_some(self.secret_id_ttl);
        within(mount, "secret_id_ttl", asked).1
    }

    /// A stand-in for a role that is not there, which has no secret ids: a login with an unknown role id does the same
    /// work as one with a wrong secret id.
    pub(super) fn stand_in() -> &'static Self {
        static STAND_IN: LazyLock<AppRole> = LazyLock::new(AppRole::new);
        &STAND_IN
    }

    /// The rule of a whole role: somebody who only knows its role id, and nothing else, must not be let in from
    /// everywhere.
    ///
    /// # Errors
    /// `Invalid` with the rule.
    pub(crate) fn check(&self) -> Result<()> {
        let bound = !self.secret_id_bound_cidrs.is_empty() || !self.terms.bound_cidrs.is_empty();
        match self.bind_secret_id || bound {
            true => Ok(()),
            false => Err(Error::invalid("at least one constraint should be enabled on the role")),
        }
    }
}

/// The lifetime of secret ids in a mount where `asked` is asked for, zero for one without an end, and the warning that
/// it is shorter. Without a lifetime they have the longest.
pub(super) fn within(mount: &Mount, field: &str, asked: Option<Duration>) -> (Duration, Option<String>) {
    let max = mount.max_ttl();
    let shown = compact(max);
    match asked {
        Some(ttl) if !ttl.is_zero() && ttl <= max => (ttl, None),
        Some(ttl) if ttl.is_zero() => {
            (max, Some(format!("{field}: a secret ID always ends: the mount's max_lease_ttl, {shown}, is used")))
        }
        Some(ttl) => {
            let above = format!("{field}: {} is above the mount's max_lease_ttl: {shown} is used", compact(ttl));
            (max, Some(above))
        }
        None => (max, None),
    }
}

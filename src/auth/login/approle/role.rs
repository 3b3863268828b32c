//! Roles of `approle` and their validation.

use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::login::role::MethodRole;
use crate::auth::mounts::Mount;
use crate::auth::token::{Network, TokenTerms};
use crate::clock::format_duration;
use crate::error::{Error, Result};
use crate::fields::has_invisible;
use crate::secret::Secret;

const MAX_ROLE_ID_BYTES: usize = 512;
/// Length of the hash key in characters of `[0-9A-Za-z]`: 256 random bits.
const HASH_KEY_CHARS: usize = 43;

/// A role.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct AppRole {
    /// Names the role at logins; unique within the mount.
    role_id: String,
    /// `true` if a login requires a secret id.
    pub(crate) bind_secret_id: bool,
    /// Networks from which logins are accepted; empty for any.
    pub(crate) secret_id_bound_cidrs: Vec<Network>,
    /// Default and maximum number of uses of a secret id; 0 for no limit.
    pub(crate) secret_id_num_uses: u32,
    /// Default and maximum TTL of a secret id, in whole seconds; zero for the mount's.
    pub(crate) secret_id_ttl: Duration,
    /// Without effect, because there is one cluster; stored and returned.
    pub(crate) local_secret_ids: bool,
    /// Settings of its tokens.
    pub(crate) terms: TokenTerms,
    /// A random number, never reused, that identifies its secret ids.
    pub(super) number: i64,
    /// Key of the hashes of its secret ids.
    #[serde(with = "crate::secret::sealed")]
    pub(super) key: Secret,
}

impl MethodRole for AppRole {
    fn terms(&self) -> &TokenTerms {
        &self.terms
    }
}

impl AppRole {
    /// Creates a role with default settings and a random role id.
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
            key: Secret::new(crate::random::base62(HASH_KEY_CHARS)),
        }
    }

    /// Role id.
    pub(crate) fn role_id(&self) -> &str {
        &self.role_id
    }

    /// Sets the role id, trimmed.
    ///
    /// # Errors
    /// `Invalid` when it is empty or too long, or contains invisible characters.
    pub(crate) fn set_role_id(&mut self, text: &str) -> Result<()> {
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_ROLE_ID_BYTES || has_invisible(text) {
            let rule =
                format!("role_id: must have 1 to {MAX_ROLE_ID_BYTES} bytes and no control or invisible characters");
            return Err(Error::invalid(rule));
        }
        text.clone_into(&mut self.role_id);
        Ok(())
    }

    /// Returns a warning if secret ids end earlier than the role says.
    pub(crate) fn secret_id_ttl_warning(&self, mount: &Mount) -> Option<String> {
        let requested = (!self.secret_id_ttl.is_zero()).then_some(self.secret_id_ttl);
        cap_secret_id_ttl(mount, "secret_id_ttl", requested).1
    }

    /// A substitute for a missing role, without secret ids, so that a login with an unknown role id takes as long as
    /// one with a wrong secret id.
    pub(super) fn placeholder() -> &'static Self {
        static STAND_IN: LazyLock<AppRole> = LazyLock::new(AppRole::new);
        &STAND_IN
    }

    /// Validates the whole role: knowing only the role id must not be enough to log in from any address.
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

/// Returns the effective TTL of secret ids, at most the mount's maximum, and a warning if it is shorter than
/// `requested`.
/// Zero and `None` result in the maximum.
pub(super) fn cap_secret_id_ttl(mount: &Mount, field: &str, requested: Option<Duration>) -> (Duration, Option<String>) {
    let max = mount.max_ttl();
    let shown = format_duration(max);
    match requested {
        Some(ttl) if !ttl.is_zero() && ttl <= max => (ttl, None),
        Some(ttl) if ttl.is_zero() => {
            (max, Some(format!("{field}: a secret ID always ends: the mount's max_lease_ttl, {shown}, is used")))
        }
        Some(ttl) => {
            let above =
                format!("{field}: {} is above the mount's max_lease_ttl: {shown} is used", format_duration(ttl));
            (max, Some(above))
        }
        None => (max, None),
    }
}

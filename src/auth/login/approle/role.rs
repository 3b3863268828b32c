//! Roles of `approle` and their validation.

use std::sync::LazyLock;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::auth::login::role::MethodRole;
use crate::auth::mounts::Mount;
use crate::auth::token::{Network, TokenTerms};
use crate::clock::format_duration;
use crate::error::{Error, Result};
use crate::fields::{has_invisible, resource};
use crate::secret::Secret;

const MAX_ROLE_ID_BYTES: usize = 512;
/// Length of the key for hashes of secret ids, in characters of `[0-9A-Za-z]`: 256 random bits.
const HASH_KEY_CHARS: usize = 43;

resource! {
    /// A stored role of `approle`. The default is a new role with a random role id.
    #[derive(Clone, Serialize, Deserialize)]
    pub(crate) struct AppRole {
        /// Id by which a login names the role; unique within the mount.
        value role_id: String = crate::random::uuid();
        /// `true` if a login requires a secret id.
        flag bind_secret_id = true;
        /// Networks from which logins are accepted; empty for any.
        value secret_id_bound_cidrs: Vec<Network>;
        /// Default and maximum number of uses of the role's secret ids; 0 for no limit.
        value secret_id_num_uses: u32;
        /// Default and maximum TTL of the role's secret ids, in whole seconds; zero for the mount's maximum.
        timespan secret_id_ttl;
        /// Has no effect, because there is only one cluster; stored and returned for compatibility.
        flag local_secret_ids;
        /// Settings of the tokens that logins with the role receive.
        stored terms: TokenTerms;
        /// A random number that identifies the role in the rows of its secret ids. A role created again under the same
        /// name has another number.
        stored number: i64 = i64::from_le_bytes(crate::random::bytes());
        /// Key of the keyed hashes of the role's secret ids.
        #[serde(with = "crate::secret::sealed")]
        stored key: Secret = Secret::new(crate::random::base62(HASH_KEY_CHARS));
    }
}

impl MethodRole for AppRole {
    fn terms(&self) -> &TokenTerms {
        &self.terms
    }
}

impl AppRole {
    /// Sets the role id to `text`, trimmed.
    ///
    /// # Errors
    /// `Invalid` when the role id is empty or too long, or contains invisible characters.
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

    /// Returns a warning if the mount's maximum TTL shortens the role's `secret_id_ttl`.
    pub(crate) fn secret_id_ttl_warning(&self, mount: &Mount) -> Option<String> {
        let requested = (!self.secret_id_ttl.is_zero()).then_some(self.secret_id_ttl);
        cap_secret_id_ttl(mount, "secret_id_ttl", requested).1
    }

    /// A role without secret ids, used for a login with an unknown role id, so that the login takes as long as one with
    /// a wrong secret id.
    pub(super) fn placeholder() -> &'static Self {
        static PLACEHOLDER_ROLE: LazyLock<AppRole> = LazyLock::new(AppRole::default);
        &PLACEHOLDER_ROLE
    }

    /// Rejects a role that neither requires a secret id nor restricts the networks of clients: the role id, which is
    /// not secret, would then be enough to log in.
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

/// Returns the TTL of a new secret id, limited to the mount's maximum, and a warning if this TTL differs from
/// `requested`. Zero and `None` select the mount's maximum.
pub(super) fn cap_secret_id_ttl(mount: &Mount, field: &str, requested: Option<Duration>) -> (Duration, Option<String>) {
    let max = mount.max_ttl();
    let shown = format_duration(max);
    match requested {
        Some(ttl) if !ttl.is_zero() && ttl <= max => (ttl, None),
        Some(ttl) if ttl.is_zero() => {
            (max, Some(format!("{field}: secret IDs must expire; the mount's max_lease_ttl, {shown}, is used")))
        }
        Some(ttl) => {
            let above =
                format!("{field}: {} is above the mount's max_lease_ttl: {shown} is used", format_duration(ttl));
            (max, Some(above))
        }
        None => (max, None),
    }
}

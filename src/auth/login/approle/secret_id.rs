//! Secret ids: the stored form, and requests to create them.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

use super::role::{AppRole, cap_secret_id_ttl};
use crate::auth::mounts::Mount;
use crate::auth::store::{SecretIdHash, SecretIdRow};
use crate::auth::token::Network;
use crate::clock::Time;
use crate::error::{Error, Result, Warnings};
use crate::secret::Secret;

/// Maximum length of a secret id in bytes.
pub(super) const MAX_SECRET_ID_BYTES: usize = 4_096;

/// A request to create a secret id. The role's settings apply where the request has no value.
pub(crate) struct SecretIdRequest {
    /// Text of the secret id, if the client chooses it; `None` for a random text.
    pub(crate) text: Option<Secret>,
    /// Metadata of the tokens that logins with the secret id receive.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Networks from which clients may log in with the secret id; they must lie within the networks of the role.
    pub(crate) cidr_list: Vec<Network>,
    /// Networks from which the received tokens may be used. They replace the networks of the role, and must lie within
    /// them.
    pub(crate) token_bound_cidrs: Vec<Network>,
    /// Maximum number of uses of the secret id; 0 for no limit, `None` for the role's setting.
    pub(crate) num_uses: Option<u32>,
    /// TTL of the secret id in whole seconds; zero for the mount's maximum, `None` for the role's setting.
    pub(crate) ttl: Option<Duration>,
}

/// A newly created secret id. The text exists only in this result; the store has its hash.
pub(crate) struct IssuedSecretId {
    pub(crate) text: Secret,
    pub(crate) accessor: String,
    pub(crate) ttl: Duration,
    /// Maximum number of uses of the secret id; 0 for no limit.
    pub(crate) num_uses: u32,
    /// Warnings about requested values that were reduced.
    pub(crate) warnings: Warnings,
}

/// The body of a secret id's row, stored as JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct SecretIdSettings {
    /// Metadata of the tokens, see [`SecretIdRequest::metadata`].
    pub(crate) metadata: BTreeMap<String, String>,
    /// Networks for logins, see [`SecretIdRequest::cidr_list`].
    pub(crate) cidr_list: Vec<Network>,
    /// Networks for tokens, see [`SecretIdRequest::token_bound_cidrs`].
    pub(crate) token_bound_cidrs: Vec<Network>,
    /// TTL when the secret id was created; zero for unlimited, which only older releases stored.
    pub(crate) ttl: Duration,
    /// Time at which the secret id was created.
    #[serde(with = "crate::auth::instant")]
    pub(crate) created_at: Time,
}

/// A stored secret id that has not expired and has uses left.
pub(crate) struct SecretId {
    /// The stored row of the secret id.
    pub(crate) row: SecretIdRow,
    /// The settings in the body of the row.
    pub(crate) terms: SecretIdSettings,
}

impl SecretId {
    /// Parses a stored secret id; `None` when it has expired or has no use left.
    pub(super) fn parse_live(row: SecretIdRow, now: Time) -> Result<Option<Self>> {
        if row.expires_at.is_some_and(|end| end <= now) || row.uses == Some(0) {
            return Ok(None);
        }
        let terms = serde_json::from_slice(&row.body).map_err(Error::internal)?;
        Ok(Some(Self { row, terms }))
    }
}

/// Hashes a secret id with the role's key. An unkeyed hash would let a reader of the database guess secret ids that
/// clients chose.
pub(super) fn hash_secret_id(role: &AppRole, text: &[u8]) -> SecretIdHash {
    let key = hmac::Key::new(hmac::HMAC_SHA256, role.key.expose());
    let mut hash = SecretIdHash::default();
    hash.copy_from_slice(hmac::sign(&key, text.trim_ascii()).as_ref());
    hash
}

impl SecretIdRequest {
    /// Applies the limits of role and mount to the request. Returns the settings to store, the number of uses, and
    /// warnings.
    ///
    /// # Errors
    /// `Invalid` with the violated rule.
    pub(super) fn apply_limits(
        self,
        role: &AppRole,
        mount: &Mount,
        now: Time,
    ) -> Result<(SecretIdSettings, u32, Warnings)> {
        if !role.bind_secret_id {
            return Err(Error::invalid("bind_secret_id is not set on the role"));
        }
        for (name, inner, outer, of_role) in [
            ("cidr_list", &self.cidr_list, &role.secret_id_bound_cidrs, "secret_id_bound_cidrs"),
            ("token_bound_cidrs", &self.token_bound_cidrs, &role.terms.bound_cidrs, "token_bound_cidrs"),
        ] {
            if !Network::all_within(inner, outer) {
                return Err(Error::invalid(format!("{name}: must lie within the role's {of_role}")));
            }
        }
        let max = role.secret_id_num_uses;
        let num_uses = self.num_uses.unwrap_or(max);
        if max > 0 && !(1..=max).contains(&num_uses) {
            return Err(Error::invalid("num_uses cannot be higher than the role's secret_id_num_uses"));
        }
        let longest = role.secret_id_ttl;
        let ttl = self.ttl.unwrap_or(longest);
        if !longest.is_zero() && (ttl.is_zero() || ttl > longest) {
            return Err(Error::invalid("ttl cannot be longer than the role's secret_id_ttl"));
        }
        let field = if self.ttl.is_some() { "ttl" } else { "secret_id_ttl" };
        let requested = (self.ttl.is_some() || !ttl.is_zero()).then_some(ttl);
        let (ttl, cut) = cap_secret_id_ttl(mount, field, requested);
        let Self { metadata, cidr_list, token_bound_cidrs, .. } = self;
        Ok((
            SecretIdSettings { metadata, cidr_list, token_bound_cidrs, ttl, created_at: now },
            num_uses,
            cut.into_iter().collect(),
        ))
    }
}

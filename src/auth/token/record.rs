//! The record of a token, and the lookup response rendered from it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::network::Network;
use crate::auth::store::TokenRow;
use crate::clock::{Time, format_rfc3339};
use crate::documents::MountId;
use crate::error::{Error, Result};

/// The login that created a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenLogin {
    /// Mount of the authentication method.
    #[serde(with = "crate::auth::mounts::mount_id")]
    pub mount: MountId,
    /// Name of the role with which the client logged in.
    pub role: String,
}

/// The part of a token's row that the storage layer encrypts. It does not contain the text of the token.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::auth) struct TokenRecord {
    pub accessor: String,
    pub policies: Vec<String>,
    /// Path of the request that created the token.
    pub path: String,
    pub meta: BTreeMap<String, String>,
    pub display_name: String,
    #[serde(with = "crate::auth::instant")]
    pub created_at: Time,
    /// TTL that the token was granted at creation; zero for unlimited.
    pub creation_ttl: Duration,
    /// TTL that the creation or the last renewal granted. The next renewal grants the same TTL unless the client
    /// requests another one.
    pub grant: Duration,
    /// Maximum lifetime of the token since creation; zero if only the mount's maximum applies.
    pub explicit_max_ttl: Duration,
    /// TTL that every renewal grants; zero for a token that is not periodic.
    pub period: Duration,
    pub renewable: bool,
    pub entity_id: String,
    /// Networks from which the token may be used; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_cidrs: Vec<Network>,
    /// Name of the token role with which the token was created; `""` for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// The creator's [`Caller::limit_key`](crate::auth::Caller::limit_key), if per-caller limits count requests with
    /// this token as the creator's; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub counts_as: String,
    /// The login that created the token; `None` if no login created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<TokenLogin>,
    #[serde(default, with = "crate::auth::instant::option")]
    pub last_renewal: Option<Time>,
}

/// Properties of a token that its record does not contain.
pub(super) struct TokenAttributes {
    pub(super) expires_at: Option<Time>,
    /// Number of uses that the token has left; `None` without a limit.
    pub(super) uses: Option<u32>,
    pub(super) orphan: bool,
    /// `true` for a batch token.
    pub(super) batch: bool,
}

impl TokenAttributes {
    pub(super) fn of(row: &TokenRow) -> Self {
        Self { expires_at: row.expires_at, uses: row.uses, orphan: row.parent.is_none(), batch: false }
    }

    pub(super) fn token_type(&self) -> &'static str {
        if self.batch { "batch" } else { "service" }
    }
}

impl TokenRecord {
    pub(in crate::auth) fn of(row: &TokenRow) -> Result<Self> {
        serde_json::from_slice(&row.body).map_err(Error::internal)
    }

    pub(super) fn to_body(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(Error::internal)
    }

    /// Renders the lookup response at the time `now`. `id` is the text of the token, or `""` for a lookup by accessor.
    pub(super) fn lookup_json(&self, id: &str, attributes: &TokenAttributes, now: Time) -> Value {
        let mut shown = json!({
            "id": id,
            "accessor": self.accessor,
            "policies": self.policies,
            "path": self.path,
            "meta": Some(&self.meta).filter(|meta| !meta.is_empty()),
            "display_name": self.display_name,
            // In responses 0 means unlimited, so -1 is shown during the token's last use.
            "num_uses": attributes.uses.map_or(0, |left| if left == 0 { -1 } else { i64::from(left) }),
            "orphan": attributes.orphan,
            "creation_time": self.created_at.unix_timestamp(),
            "creation_ttl": self.creation_ttl.as_secs(),
            "issue_time": format_rfc3339(self.created_at),
            "expire_time": attributes.expires_at.map(format_rfc3339),
            "ttl": attributes.expires_at.map_or(0, |end| remaining_time(end, now).as_secs()),
            "explicit_max_ttl": self.explicit_max_ttl.as_secs(),
            "entity_id": self.entity_id,
            "renewable": self.renewable,
            "type": attributes.token_type(),
        });
        if !self.role.is_empty() {
            shown["role"] = self.role.as_str().into();
        }
        if !self.period.is_zero() {
            shown["period"] = self.period.as_secs().into();
        }
        if !self.bound_cidrs.is_empty() {
            shown["bound_cidrs"] = json!(self.bound_cidrs);
        }
        if let Some(at) = self.last_renewal {
            shown["last_renewal"] = format_rfc3339(at).into();
            shown["last_renewal_time"] = at.unix_timestamp().into();
        }
        shown
    }
}

/// Returns the time from `now` to `end`; zero if `end` is in the past.
pub(super) fn remaining_time(end: Time, now: Time) -> Duration {
    Duration::try_from(end - now).unwrap_or_default()
}

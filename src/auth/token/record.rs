//! What is known of a token, and how it is shown.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::network::Network;
use crate::auth::store::TokenRow;
use crate::clock::{Time, rfc3339};
use crate::documents::MountId;
use crate::error::{Error, Result};

/// The login that a token began with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedIn {
    /// The method's mount.
    #[serde(with = "crate::auth::mounts::mount_id")]
    pub mount: MountId,
    /// The role.
    pub role: String,
}

/// What is stored of a token beside its row's columns. The token itself is nowhere in it.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::auth) struct Record {
    pub accessor: String,
    pub policies: Vec<String>,
    /// The request path that made it.
    pub path: String,
    pub meta: BTreeMap<String, String>,
    pub display_name: String,
    #[serde(with = "crate::auth::instant")]
    pub created_at: Time,
    /// Life at creation; zero without an end.
    pub creation_ttl: Duration,
    /// Life that the last creation or renewal asked for and got; what a renewal repeats.
    pub grant: Duration,
    /// Longest life, counted from creation; zero for the mount's.
    pub explicit_max_ttl: Duration,
    /// Life that every renewal gives; zero for none.
    pub period: Duration,
    pub renewable: bool,
    pub entity_id: String,
    /// Where it may be used; anywhere when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_cidrs: Vec<Network>,
    /// The token role that made it; `""` for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Whose what is done with it counts as, where that is not its own: [`Caller::counts_as`] of who made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub counts_as: String,
    /// The login that it began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<LoggedIn>,
    #[serde(default, with = "crate::auth::instant::option")]
    pub last_renewal: Option<Time>,
}

/// What a token is at one moment, beside its record.
pub(super) struct Standing {
    /// When it ends.
    pub(super) expires_at: Option<Time>,
    /// Uses left; `None` without a limit.
    pub(super) uses: Option<u32>,
    /// Whether it has no parent.
    pub(super) orphan: bool,
    /// Whether it is stored nowhere.
    pub(super) batch: bool,
}

impl Standing {
    /// Of a stored token.
    pub(super) fn of(row: &TokenRow) -> Self {
        Self { expires_at: row.expires_at, uses: row.uses, orphan: row.parent.is_none(), batch: false }
    }

    pub(super) fn word(&self) -> &'static str {
        if self.batch { "batch" } else { "service" }
    }
}

impl Record {
    /// Opens the body of a row.
    pub(in crate::auth) fn of(row: &TokenRow) -> Result<Self> {
        serde_json::from_slice(&row.body).map_err(Error::internal)
    }

    pub(super) fn to_body(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(Error::internal)
    }

    /// What a look-up at `now` shows. `id` is `""` when the accessor was asked for.
    pub(super) fn lookup_json(&self, id: &str, standing: &Standing, now: Time) -> Value {
        let mut shown = json!({
            "id": id,
            "accessor": self.accessor,
            "policies": self.policies,
            "path": self.path,
            "meta": Some(&self.meta).filter(|meta| !meta.is_empty()),
            "display_name": self.display_name,
            // A limited token that is on its last use is not one without a limit, which shows 0.
            "num_uses": standing.uses.map_or(0, |left| if left == 0 { -1 } else { i64::from(left) }),
            "orphan": standing.orphan,
            "creation_time": self.created_at.unix_timestamp(),
            "creation_ttl": self.creation_ttl.as_secs(),
            "issue_time": rfc3339(self.created_at),
            "expire_time": standing.expires_at.map(rfc3339),
            "ttl": standing.expires_at.map_or(0, |end| remaining(end, now).as_secs()),
            "explicit_max_ttl": self.explicit_max_ttl.as_secs(),
            "entity_id": self.entity_id,
            "renewable": self.renewable,
            "type": standing.word(),
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
            shown["last_renewal"] = rfc3339(at).into();
            shown["last_renewal_time"] = at.unix_timestamp().into();
        }
        shown
    }
}

/// The time from `now` to `end`; zero when that has passed.
pub(super) fn remaining(end: Time, now: Time) -> Duration {
    Duration::try_from(end - now).unwrap_or_default()
}

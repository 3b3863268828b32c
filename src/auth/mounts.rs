//! PLACEHOLDER of the authentication branch.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::documents::MountId;

/// One mount.
pub struct Mount {
    /// Id.
    pub id: MountId,
    /// Path with a trailing slash.
    pub path: String,
    /// Kind.
    pub kind: String,
}

impl Mount {
    /// A mount.
    pub fn new(id: MountId, path: &str, kind: &str) -> Self {
        Self { id, path: path.to_owned(), kind: kind.to_owned() }
    }

    /// Default.
    pub fn default_ttl(&self) -> Duration {
        Duration::from_secs(2_764_800)
    }

    /// Maximum.
    pub fn max_ttl(&self) -> Duration {
        Duration::from_secs(2_764_800)
    }

    /// Entry.
    pub fn to_json(&self) -> Value {
        json!({ "type": self.kind, "accessor": "a", "config": { "default_lease_ttl": 0, "max_lease_ttl": 0 } })
    }

    /// Tune.
    pub fn tune_json(&self) -> Value {
        json!({ "default_lease_ttl": 2_764_800, "max_lease_ttl": 2_764_800 })
    }
}

/// All mounts.
pub struct MountTable(pub(crate) Vec<Arc<Mount>>);

impl MountTable {
    pub(super) fn builtin() -> Self {
        let mount = |id, path, kind| Arc::new(Mount::new(MountId(id), path, kind));
        Self(vec![
            mount(0, "sys/", "system"),
            mount(1, "auth/token/", "token"),
            mount(2, "cubbyhole/", "cubbyhole"),
            mount(3, "identity/", "identity"),
        ])
    }

    /// The mount of a path, and what follows.
    pub fn route<'p>(&self, path: &'p str) -> Option<(&Arc<Mount>, &'p str)> {
        self.0.iter().find_map(|m| path.strip_prefix(m.path.as_str()).map(|rest| (m, rest)))
    }

    /// PLACEHOLDER.
    pub fn get(&self, path: &str) -> Option<&Arc<Mount>> {
        self.0.iter().find(|m| m.path.trim_matches('/') == path.trim_matches('/'))
    }

    /// All mounts.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Mount>> {
        self.0.iter()
    }
}

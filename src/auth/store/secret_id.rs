//! Secret ids of the method `approle`, as stored.

use crate::clock::Time;
use crate::documents::MountId;

/// Keyed hash of a secret id, by which storage finds it.
pub type SecretIdHash = [u8; 32];

/// A stored secret id. The storage layer seals the body.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretIdRow {
    /// The mount.
    pub mount: MountId,
    /// Number of its role; numbers are never reused.
    pub role: i64,
    /// Hash under the key of its role.
    pub hash: SecretIdHash,
    /// Public handle.
    pub accessor: String,
    /// Time of expiry; `None` for never.
    pub expires_at: Option<Time>,
    /// Uses left; `None` without a limit.
    pub uses: Option<u32>,
    /// Time of creation or of the last counted use.
    pub updated_at: Time,
    /// Metadata, networks and other settings as JSON.
    pub body: Vec<u8>,
}

/// One change of secret ids.
pub enum SecretIdWrite {
    /// Creates a secret id at `updated_at`; `Absent` for a deleted role, `Conflict` when a live one has the hash.
    Insert(SecretIdRow),
    /// Takes a use of a live secret id with a limit; the last use deletes it.
    Spend {
        /// The mount.
        mount: MountId,
        /// The secret id.
        hash: SecretIdHash,
        /// Current time.
        now: Time,
    },
    /// Deletes a secret id; `Absent` when there is none.
    Remove {
        /// The mount.
        mount: MountId,
        /// The secret id.
        hash: SecretIdHash,
    },
    /// Marks a role as deleted: its secret ids are swept, and no new ones are accepted.
    DeleteRole {
        /// The mount.
        mount: MountId,
        /// Number of the role.
        role: i64,
    },
    /// Deletes up to `limit` expired secret ids, and up to `limit` of deleted roles.
    Sweep {
        /// Current time.
        now: Time,
        /// Maximum number of either kind.
        limit: u32,
    },
}

/// Key for looking up a secret id.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretIdKey {
    /// Its hash.
    Hash(SecretIdHash),
    /// Its accessor.
    Accessor(String),
}

//! Secret ids of the method `approle`, as stored.

use crate::clock::Time;
use crate::documents::MountId;

/// Keyed hash of a secret id, by which storage finds it.
pub type SecretIdHash = [u8; 32];

/// A stored secret id. The storage layer encrypts the body.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretIdRow {
    /// The mount.
    pub mount: MountId,
    /// Number of its role; numbers are never reused.
    pub role: i64,
    /// Hash of the secret id, keyed with the key of its role.
    pub hash: SecretIdHash,
    /// Public handle of the secret id, which does not reveal it.
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
    /// Creates a secret id; `updated_at` is the current time. `Absent` if the role is deleted, `Conflict` if a live
    /// secret id has the same hash.
    Insert(SecretIdRow),
    /// Decrements the uses left of a live secret id that has a limit. The last use deletes it.
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

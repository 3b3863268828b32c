//! Rows and writes of the secret ids of the method `approle`.

use crate::clock::Time;
use crate::documents::MountId;

/// Keyed hash of a secret id, by which the store finds its row.
pub type SecretIdHash = [u8; 32];

/// The row of a secret id. The storage layer encrypts the body.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretIdRow {
    /// Id of the mount to which the role belongs.
    pub mount: MountId,
    /// Number of the role to which the secret id belongs; numbers are never reused.
    pub role: i64,
    /// Hash of the secret id, keyed with the key of the role.
    pub hash: SecretIdHash,
    /// Public handle of the secret id, from which the secret id cannot be derived.
    pub accessor: String,
    /// Time at which the secret id expires; `None` for never.
    pub expires_at: Option<Time>,
    /// Number of uses that the secret id has left; `None` without a limit.
    pub uses: Option<u32>,
    /// Time at which the secret id was created or one of its limited uses was last taken.
    pub updated_at: Time,
    /// Metadata, networks and other settings of the secret id as JSON.
    pub body: Vec<u8>,
}

/// One write of a unit that concerns secret ids.
pub enum SecretIdWrite {
    /// Creates a secret id; `updated_at` is the current time. The outcome is `Absent` if the role is deleted. Fails
    /// with `Conflict` if a live secret id has the same hash.
    Insert(SecretIdRow),
    /// Takes one use of a live secret id whose uses are limited. Taking the last use deletes the secret id.
    Spend {
        /// Id of the mount.
        mount: MountId,
        /// Hash of the secret id.
        hash: SecretIdHash,
        /// Current time.
        now: Time,
    },
    /// Deletes a secret id; the outcome is `Absent` if the secret id does not exist.
    Remove {
        /// Id of the mount.
        mount: MountId,
        /// Hash of the secret id.
        hash: SecretIdHash,
    },
    /// Marks a role as deleted: sweeps delete its secret ids, and no new ones can be created.
    DeleteRole {
        /// Id of the mount.
        mount: MountId,
        /// Number of the role.
        role: i64,
    },
    /// Deletes up to `limit` expired secret ids, and up to `limit` secret ids of deleted roles.
    Sweep {
        /// Current time.
        now: Time,
        /// Maximum number of expired secret ids to delete, and separately of secret ids of deleted roles.
        limit: u32,
    },
}

/// The property by which a secret id is looked up.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretIdKey {
    /// Hash of the secret id.
    Hash(SecretIdHash),
    /// Accessor of the secret id.
    Accessor(String),
}

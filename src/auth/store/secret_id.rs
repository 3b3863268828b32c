//! Secret ids of the method `approle`, as storage sees them.

use crate::clock::Time;
use crate::documents::MountId;

/// The keyed hash of a secret id: the only form in which storage can look one up.
pub type SecretIdHash = [u8; 32];

/// A secret id as stored. The body is sealed by the storage layer.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretIdRow {
    /// The mount.
    pub mount: MountId,
    /// The number of its role, which no other role ever has.
    pub role: i64,
    /// The hash of the secret id, under its role's key.
    pub hash: SecretIdHash,
    /// Its public handle.
    pub accessor: String,
    /// When it ends; `None` never.
    pub expires_at: Option<Time>,
    /// Uses left; `None` without a limit.
    pub uses: Option<u32>,
    /// When it was made or used last, as far as uses are counted.
    pub updated_at: Time,
    /// Everything else (metadata, networks …), JSON.
    pub body: Vec<u8>,
}

/// One change of secret ids.
pub enum SecretIdWrite {
    /// A new one, made at its `updated_at`; `Absent` when its role has ended, `Conflict` when there is the same one
    /// that has not ended.
    Insert(SecretIdRow),
    /// Takes one use of one that has a limit and has not ended; the last one removes it.
    Spend {
        /// The mount.
        mount: MountId,
        /// Which one.
        hash: SecretIdHash,
        /// When.
        now: Time,
    },
    /// Removes one; `Absent` when there was none.
    Remove {
        /// The mount.
        mount: MountId,
        /// Which one.
        hash: SecretIdHash,
    },
    /// A role has ended: its secret ids are to be swept, and there are to be no new ones.
    EndRole {
        /// The mount.
        mount: MountId,
        /// The number of the role.
        role: i64,
        /// When.
        now: Time,
    },
    /// Removes at most `limit` that have ended, and as many whose role has.
    Sweep {
        /// The time.
        now: Time,
        /// Most that go, of either.
        limit: u32,
    },
}

/// How one is found.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretIdKey {
    /// By itself.
    Hash(SecretIdHash),
    /// By its handle.
    Accessor(String),
}

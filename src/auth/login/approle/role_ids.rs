//! Index of role ids, which are unique within a mount.
//!
//! Each role has a document named after the hash of its role id. If two nodes assign the same role id at the same time,
//! the second commit fails with a conflict on this document.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};

use super::role::AppRole;
use crate::auth::login::role::Roles;
use crate::auth::store::AuthWrite;
use crate::documents::{DocumentKey, DocumentWrite, MountId};
use crate::error::{Error, Kind, Result};

/// Kind of the documents that reserve role ids.
const ROLE_ID_DOCUMENT_KIND: &str = "role-id";

/// Names of roles by the SHA-256 of the role id. The lookup compares hashes, so its timing reveals nothing about how
/// much of a guessed role id is right.
pub(crate) struct RoleIdIndex(HashMap<[u8; 32], Arc<str>>);

impl RoleIdIndex {
    /// Builds the index of all roles of a mount.
    ///
    /// # Errors
    /// `Conflict` when two roles have the same role id.
    pub(super) fn of(roles: &Roles<AppRole>) -> Result<Self> {
        let mut names = HashMap::new();
        for (name, role) in roles.iter() {
            if names.insert(hash_role_id(&role.role_id), Arc::clone(name)).is_some() {
                return Err(Error::new(Kind::Conflict, "role_id already in use"));
            }
        }
        Ok(Self(names))
    }

    /// Returns the name of the role with this role id.
    pub(crate) fn role_name(&self, role_id: &str) -> Option<&str> {
        self.0.get(&hash_role_id(role_id)).map(|name| &**name)
    }
}

fn hash_role_id(role_id: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, role_id.as_bytes()).as_ref());
    hash
}

/// Returns the writes that reserve the role id of `after` and release the role id of `before`; none if the two are
/// equal.
pub(super) fn role_id_writes(
    mount: MountId,
    name: &str,
    before: Option<&AppRole>,
    after: Option<&AppRole>,
) -> Vec<AuthWrite> {
    let old = before.map(|role| &role.role_id);
    let new = after.map(|role| &role.role_id);
    if old == new {
        return Vec::new();
    }
    let write = |role_id: &str, expected: u64, body: Option<Vec<u8>>| {
        let hash: String = hash_role_id(role_id).iter().map(|octet| format!("{octet:02x}")).collect();
        AuthWrite::Document(DocumentWrite {
            key: DocumentKey { mount, kind: ROLE_ID_DOCUMENT_KIND, name: hash },
            expected,
            body,
        })
    };
    // A role id document is never updated, so its version is always 1.
    let created = new.map(|role_id| write(role_id, 0, Some(name.into())));
    created.into_iter().chain(old.map(|role_id| write(role_id, 1, None))).collect()
}

//! Role ids: each names one role of its mount.
//!
//! Beside every role lies a document that is named after the hash of its role id, so that two roles that are given
//! the same one at the same moment, on whatever nodes, meet there.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};

use super::role::AppRole;
use crate::auth::login::role::Roles;
use crate::auth::store::AuthWrite;
use crate::documents::{DocumentKey, DocumentWrite, MountId};
use crate::error::{Error, Kind, Result};

/// The kind of these documents.
const KIND: &str = "role-id";

/// Which role each role id names: by SHA-256, so that no comparison tells how much of a guess is right.
pub(crate) struct RoleIds(HashMap<[u8; 32], Arc<str>>);

impl RoleIds {
    /// Those of these roles.
    ///
    /// # Errors
    /// `Conflict` when two of them have the same one.
    pub(super) fn of(roles: &Roles<AppRole>) -> Result<Self> {
        let mut names = HashMap::new();
        for (name, role) in roles.iter() {
            if names.insert(hash(role.role_id()), Arc::clone(name)).is_some() {
                return Err(Error::new(Kind::Conflict, "role_id already in use"));
            }
        }
        Ok(Self(names))
    }

    /// The name of the role with this role id.
    pub(crate) fn name(&self, role_id: &str) -> Option<&str> {
        self.0.get(&hash(role_id)).map(|name| &**name)
    }
}

fn hash(role_id: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, role_id.as_bytes()).as_ref());
    hash
}

/// The documents of role ids that change when `before` becomes `after`.
pub(super) fn writes(mount: MountId, name: &str, before: Option<&AppRole>, after: Option<&AppRole>) -> Vec<AuthWrite> {
    let (old, new) = (before.map(AppRole::role_id), after.map(AppRole::role_id));
    if old == new {
        return Vec::new();
    }
    let write = |role_id: &str, expected: u64, body: Option<Vec<u8>>| {
        let hash: String = hash(role_id).iter().map(|octet| format!("{octet:02x}")).collect();
        AuthWrite::Document(DocumentWrite { key: DocumentKey { mount, kind: KIND, name: hash }, expected, body })
    };
    // They are never rewritten: each has version 1 from its begin to its end.
    let taken = new.map(|role_id| write(role_id, 0, Some(name.into())));
    taken.into_iter().chain(old.map(|role_id| write(role_id, 1, None))).collect()
}

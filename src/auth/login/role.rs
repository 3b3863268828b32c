//! Roles of authentication methods: stored documents with the settings of tokens.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::auth::policy::lower;
use crate::auth::token::TokenTerms;
use crate::documents::Document;
use crate::error::Result;

/// Maximum number of roles of a mount. Every node holds all roles in memory.
pub(crate) const MAX_ROLES_PER_MOUNT: usize = 10_000;

/// A stored role of an authentication method.
pub(crate) trait MethodRole: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Settings of the tokens that logins with the role receive.
    fn terms(&self) -> &TokenTerms;
}

/// Returns the name under which a role is stored: in lower case.
pub(crate) fn fold_role_name(name: &str) -> String {
    lower(name).into_owned()
}

/// A configuration or role with the version of its stored document.
pub(crate) struct Versioned<T> {
    pub(super) value: Arc<T>,
    pub(super) version: u64,
}

impl<T> Clone for Versioned<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), version: self.version }
    }
}

impl<T: DeserializeOwned> Versioned<T> {
    pub(super) fn of(document: &Document) -> Result<Self> {
        let value = document.parse()?;
        Ok(Self { value: Arc::new(value), version: document.version })
    }
}

/// The roles of a mount by their lower-case names.
pub(crate) struct Roles<R>(BTreeMap<Arc<str>, Versioned<R>>);

impl<R> Default for Roles<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R> Roles<R> {
    /// Finds a role by its name, in any letter case.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<R>> {
        self.versioned_role(&fold_role_name(name)).map(|stored| &stored.value)
    }

    /// Returns the names of all roles in byte order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// Returns all roles with their names, in byte order of the names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &R)> {
        self.0.iter().map(|(name, stored)| (name, &*stored.value))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn versioned_role(&self, folded: &str) -> Option<&Versioned<R>> {
        self.0.get(folded)
    }

    pub(super) fn put(&mut self, folded: &str, role: Versioned<R>) {
        self.0.insert(folded.into(), role);
    }

    pub(super) fn cloned(&self) -> Self {
        Self(self.0.clone())
    }

    /// Returns a copy in which the role `folded` is replaced by `role`, or removed if `role` is `None`.
    pub(super) fn with_role(&self, folded: &str, role: Option<Versioned<R>>) -> Self {
        let mut roles = self.0.clone();
        match role {
            Some(role) => drop(roles.insert(folded.into(), role)),
            None => drop(roles.remove(folded)),
        }
        Self(roles)
    }
}

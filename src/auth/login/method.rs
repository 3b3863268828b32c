//! The interface of authentication methods, and the in-memory view of a mount's configuration and roles.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::role::{MethodRole, Roles, Versioned};
use crate::auth::store::AuthWrite;
use crate::auth::token::TokenTerms;
use crate::documents::{Document, MountId};
use crate::error::Result;
use crate::fields::{Fields, MAX_NAME_LEN};

/// Kind of the stored documents of roles; a document is named after its role.
pub(super) const ROLE_DOCUMENT_KIND: &str = "role";
/// Kind and name of the stored configuration document of a mount.
pub(super) const CONFIG_DOCUMENT: (&str, &str) = ("config", "method");

/// An authentication method: the types of its configuration and roles, and its code for changes and logins.
pub(crate) trait AuthMethod: Sized + Send + Sync + 'static {
    /// The stored configuration of a mount; `()` for a method without configuration.
    type Config: Serialize + DeserializeOwned + Send + Sync + 'static;
    type Role: MethodRole;
    /// Data that [`AuthMethod::derive`] computes from configuration and roles after each change: indexes, parsed keys,
    /// caches.
    type Derived: Send + Sync + 'static;

    /// Computes the derived data of a new view. May reuse data of the view `before` the change.
    ///
    /// # Errors
    /// `Invalid` for unusable configuration or roles; the change is then rejected.
    fn derive(
        config: Option<&Self::Config>,
        roles: &Roles<Self::Role>,
        before: Option<&MethodView<Self>>,
    ) -> Result<Self::Derived>;

    /// Returns the writes to commit together with the document of the role `_name`. The role changes from `_before` to
    /// `_after`; `_before` is `None` for a new role, and `_after` is `None` for a deleted one.
    fn accompanying_writes(
        _mount: MountId,
        _name: &str,
        _before: Option<&Self::Role>,
        _after: Option<&Self::Role>,
    ) -> Vec<AuthWrite> {
        Vec::new()
    }

    /// Returns the role that a login request names; `None` if the request does not determine it. The role may not
    /// exist.
    fn login_role_name(_view: &MethodView<Self>, sent: &Fields) -> Option<String> {
        sent.text_within("role", MAX_NAME_LEN).ok().flatten()
    }
}

/// An immutable snapshot of a mount's configuration and roles, with the data derived from them.
pub(crate) struct MethodView<M: AuthMethod> {
    pub(super) config: Option<Versioned<M::Config>>,
    pub(super) roles: Roles<M::Role>,
    derived: M::Derived,
}

impl<M: AuthMethod> MethodView<M> {
    pub(super) fn empty() -> Result<Self> {
        Self::new(None, Roles::default(), None)
    }

    pub(super) fn load(documents: &[Document], before: &Self) -> Result<Self> {
        let mut config = None;
        let mut roles = Roles::default();
        for document in documents {
            match (document.key.kind, &document.key.name[..]) {
                (ROLE_DOCUMENT_KIND, name) => roles.put(name, Versioned::of(document)?),
                key if key == CONFIG_DOCUMENT => config = Some(Versioned::of(document)?),
                _ => {}
            }
        }
        Self::new(config, roles, Some(before))
    }

    /// Returns a view in which the role `folded` is replaced by `role`, or removed if `role` is `None`.
    pub(super) fn with_role(&self, folded: &str, role: Option<Versioned<M::Role>>) -> Result<Self> {
        Self::new(self.config.clone(), self.roles.with_role(folded, role), Some(self))
    }

    pub(super) fn with_config(&self, config: Option<Versioned<M::Config>>) -> Result<Self> {
        Self::new(config, self.roles.cloned(), Some(self))
    }

    fn new(config: Option<Versioned<M::Config>>, roles: Roles<M::Role>, before: Option<&Self>) -> Result<Self> {
        let derived = M::derive(config.as_ref().map(|config| &*config.value), &roles, before)?;
        Ok(Self { config, roles, derived })
    }

    /// The configuration of the mount; `None` if none was written.
    pub(crate) fn config(&self) -> Option<&M::Config> {
        self.config.as_ref().map(|config| &*config.value)
    }

    pub(crate) fn roles(&self) -> &Roles<M::Role> {
        &self.roles
    }

    pub(crate) fn derived(&self) -> &M::Derived {
        &self.derived
    }

    pub(super) fn terms(&self, role: &str) -> Option<TokenTerms> {
        self.roles.get(role).map(|role| role.terms().clone())
    }
}

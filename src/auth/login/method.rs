//! The interface of authentication methods, and the view of a mount's stored state.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::role::{MethodRole, Roles, Versioned};
use crate::auth::store::AuthWrite;
use crate::auth::token::TokenTerms;
use crate::documents::{Document, MountId};
use crate::error::Result;
use crate::fields::{Fields, MAX_NAME_LEN};

/// Kind of the documents of roles, which are named after the role.
pub(super) const ROLE_DOCUMENT_KIND: &str = "role";
/// Kind and name of the configuration document.
pub(super) const CONFIG_DOCUMENT: (&str, &str) = ("config", "method");

/// An authentication method.
pub(crate) trait AuthMethod: Sized + Send + Sync + 'static {
    /// Stored configuration; `()` for a method without one.
    type Config: Serialize + DeserializeOwned + Send + Sync + 'static;
    type Role: MethodRole;
    /// State derived from configuration and roles after each change: indexes, parsed keys, caches.
    type Derived: Send + Sync + 'static;

    /// Derives the state. Parts of the view `before` may be reused.
    ///
    /// # Errors
    /// `Invalid` for unusable configuration or roles; the change is then rejected.
    fn derive(
        config: Option<&Self::Config>,
        roles: &Roles<Self::Role>,
        before: Option<&MethodView<Self>>,
    ) -> Result<Self::Derived>;

    /// Returns the writes to commit together with a role's document. `before` and `after` are the role before and after
    /// the change; `None` if it does not exist.
    fn accompanying_writes(
        _mount: MountId,
        _name: &str,
        _before: Option<&Self::Role>,
        _after: Option<&Self::Role>,
    ) -> Vec<AuthWrite> {
        Vec::new()
    }

    /// Returns the role name of a login, as far as the request determines it. The role may not exist.
    fn login_role_name(_view: &MethodView<Self>, sent: &Fields) -> Option<String> {
        sent.text_within("role", MAX_NAME_LEN).ok().flatten()
    }
}

/// An immutable snapshot of a mount's stored state.
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

    /// Returns the next view, with a role replaced or, for `None`, removed.
    pub(super) fn with_role(&self, folded: &str, role: Option<Versioned<M::Role>>) -> Result<Self> {
        Self::new(self.config.clone(), self.roles.with(folded, role), Some(self))
    }

    pub(super) fn with_config(&self, config: Option<Versioned<M::Config>>) -> Result<Self> {
        Self::new(config, self.roles.unchanged(), Some(self))
    }

    fn new(config: Option<Versioned<M::Config>>, roles: Roles<M::Role>, before: Option<&Self>) -> Result<Self> {
        let derived = M::derive(config.as_ref().map(|config| &*config.value), &roles, before)?;
        Ok(Self { config, roles, derived })
    }

    /// The configuration; `None` if none was written.
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

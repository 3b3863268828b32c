//! What every authentication method is, and the view of what one mount of it has stored.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::role::{Role, Roles, Versioned};
use crate::auth::store::AuthWrite;
use crate::auth::token::TokenTerms;
use crate::documents::{Document, MountId};
use crate::error::Result;

/// The kind of the documents of roles; the name is that of the role.
pub(super) const ROLE: &str = "role";
/// The kind of the document of the configuration, and its name.
pub(super) const CONFIG: (&str, &str) = ("config", "method");

/// A kind of authentication method.
pub(crate) trait Method: Sized + Send + Sync + 'static {
    /// Its configuration, as it is stored; `()` for a method that has none.
    type Config: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// One of its roles.
    type Role: Role;
    /// What is made of both for logins, anew whenever one changes: indexes, keys that are read, caches.
    type Made: Send + Sync + 'static;

    /// Makes it. What is worth keeping of the view `before` is taken over from there.
    ///
    /// # Errors
    /// `Invalid` when something in them cannot be used, which refuses the change that would lead there.
    fn make(
        config: Option<&Self::Config>,
        roles: &Roles<Self::Role>,
        before: Option<&View<Self>>,
    ) -> Result<Self::Made>;

    /// What is written together with a role's document, or with its end: `before` and `after` are the role as it
    /// stands and as it shall.
    fn beside(
        _mount: MountId,
        _name: &str,
        _before: Option<&Self::Role>,
        _after: Option<&Self::Role>,
    ) -> Vec<AuthWrite> {
        Vec::new()
    }
}

/// What one mount has stored, at one moment: immutable, replaced whole.
pub(crate) struct View<M: Method> {
    pub(super) config: Option<Versioned<M::Config>>,
    pub(super) roles: Roles<M::Role>,
    made: M::Made,
}

impl<M: Method> View<M> {
    /// Of a mount with nothing stored.
    pub(super) fn empty() -> Result<Self> {
        Self::new(None, Roles::default(), None)
    }

    /// Of what is stored.
    pub(super) fn load(documents: &[Document], before: &Self) -> Result<Self> {
        let (mut config, mut roles) = (None, Roles::default());
        for document in documents {
            match (document.key.kind, &document.key.name[..]) {
                (ROLE, name) => roles.put(name, Versioned::of(document)?),
                place if place == CONFIG => config = Some(Versioned::of(document)?),
                _ => {}
            }
        }
        Self::new(config, roles, Some(before))
    }

    /// The next view, with another role under a folded name, or with none.
    pub(super) fn with_role(&self, folded: &str, role: Option<Versioned<M::Role>>) -> Result<Self> {
        Self::new(self.config.clone(), self.roles.with(folded, role), Some(self))
    }

    /// The next view, with another configuration.
    pub(super) fn with_config(&self, config: Option<Versioned<M::Config>>) -> Result<Self> {
        Self::new(config, self.roles.same(), Some(self))
    }

    fn new(config: Option<Versioned<M::Config>>, roles: Roles<M::Role>, before: Option<&Self>) -> Result<Self> {
        let made = M::make(config.as_ref().map(|config| &*config.value), &roles, before)?;
        Ok(Self { config, roles, made })
    }

    /// The configuration; `None` when none was written.
    pub(crate) fn config(&self) -> Option<&M::Config> {
        self.config.as_ref().map(|config| &*config.value)
    }

    /// The roles.
    pub(crate) fn roles(&self) -> &Roles<M::Role> {
        &self.roles
    }

    /// What the method made of both.
    pub(crate) fn made(&self) -> &M::Made {
        &self.made
    }

    /// What a role says of the tokens that it makes.
    pub(super) fn terms(&self, role: &str) -> Option<TokenTerms> {
        self.roles.get(role).map(|role| role.terms().clone())
    }
}

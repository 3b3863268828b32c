//! Keeping token roles: each is a document of its own, and all of them a published view.

use std::collections::BTreeMap;

use serde_json::Value;

use super::roles::TokenRole;
use crate::auth::Auth;
use crate::auth::mounts::TOKEN_MOUNT;
use crate::auth::store::{AuthStore, AuthWrite};
use crate::documents::{DocumentKey, DocumentWrite, SYSTEM, repeated};
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, MAX_NAME, is_name};

/// Most token roles.
const MAX_ROLES: usize = 1_000;

/// The kind of the stored documents; the name is the role's.
const KIND: &str = "token-role";

/// All token roles at one moment, with the versions of their documents.
#[derive(Clone, Default)]
pub(in crate::auth) struct RoleTable(BTreeMap<String, (u64, TokenRole)>);

impl RoleTable {
    /// Reads all of them.
    pub(in crate::auth) async fn load(store: &dyn AuthStore) -> Result<Self> {
        let read = store.documents(KIND).await?.into_iter().map(|document| {
            let role = document.parse()?;
            Ok((document.key.name, (document.version, role)))
        });
        read.collect::<Result<_>>().map(Self)
    }
}

impl Auth {
    /// The names of all token roles, sorted.
    pub fn token_roles(&self) -> Vec<String> {
        self.token_roles.load().0.keys().cloned().collect()
    }

    /// A token role as reading shows it.
    pub fn token_role_read(&self, name: &str) -> Option<Value> {
        self.token_role(name).map(|role| role.to_json(name))
    }

    /// The token role of this name.
    pub(super) fn token_role(&self, name: &str) -> Option<TokenRole> {
        self.token_roles.load().0.get(name).map(|(_, role)| role.clone())
    }

    /// Makes a token role, or changes what the fields name of one. Returns warnings.
    ///
    /// # Errors
    /// `Invalid` naming field and rule; those of the store.
    pub async fn token_role_write(&self, name: &str, fields: &Fields) -> Result<Warnings> {
        if !is_name(name) || name.len() > MAX_NAME {
            return Err(Error::invalid(format!("role name: must be a name of at most {MAX_NAME} characters")));
        }
        let _one_writer = self.writer().await?;
        let attempt = async || {
            self.reload_token_roles().await?;
            let roles = self.token_roles.load_full();
            let known = roles.0.get(name).cloned();
            if known.is_none() && roles.0.len() >= MAX_ROLES {
                return Err(Error::invalid(format!("role: there are at most {MAX_ROLES} token roles")));
            }
            let (version, role) = known.unwrap_or_default();
            let role = role.merged(fields)?;
            let warnings = self.mounts().get(TOKEN_MOUNT).map(|mount| role.warnings(fields, mount));
            self.commit_token_role(name, version, Some(role)).await?;
            Ok(warnings.unwrap_or_default())
        };
        repeated(format_args!("token role {name:?}"), attempt).await
    }

    /// Deletes a token role; one that is absent is deleted already. Its tokens live on, and are renewed no more.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn token_role_delete(&self, name: &str) -> Result<()> {
        let _one_writer = self.writer().await?;
        let attempt = async || {
            self.reload_token_roles().await?;
            let known = self.token_roles.load().0.get(name).map(|(version, _)| *version);
            match known {
                Some(version) => self.commit_token_role(name, version, None).await,
                None => Ok(()),
            }
        };
        repeated(format_args!("token role {name:?}"), attempt).await
    }

    /// Commits a change of one role and publishes the view with what it is now. Nothing can fail once it is stored.
    async fn commit_token_role(&self, name: &str, expected: u64, now: Option<TokenRole>) -> Result<()> {
        let body = now.as_ref().map(serde_json::to_vec).transpose().map_err(Error::internal)?;
        let key = DocumentKey { mount: SYSTEM, kind: KIND, name: name.to_owned() };
        let unit = vec![AuthWrite::Document(DocumentWrite { key, expected, body })];
        let Err(error) = self.store.commit(unit).await else {
            let mut next = RoleTable::clone(&self.token_roles.load());
            match now {
                Some(role) => drop(next.0.insert(name.to_owned(), (expected + 1, role))),
                None => drop(next.0.remove(name)),
            }
            self.token_roles.store(next.into());
            return Ok(());
        };
        self.recheck(&error).await;
        Err(error)
    }

    /// Reads all token roles again and publishes them.
    pub(in crate::auth) async fn reload_token_roles(&self) -> Result<()> {
        self.token_roles.store(RoleTable::load(&*self.store).await?.into());
        Ok(())
    }
}

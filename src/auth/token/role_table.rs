//! Stored token roles: one document per role, published together as one snapshot.

use std::collections::BTreeMap;

use serde_json::Value;

use super::roles::TokenRole;
use crate::auth::Auth;
use crate::auth::mounts::TOKEN_MOUNT_PATH;
use crate::auth::store::{AuthStore, AuthWrite};
use crate::documents::{DocumentKey, DocumentWrite, SYSTEM_MOUNT, retry_on_conflict};
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, MAX_NAME_LEN, is_name};

const MAX_TOKEN_ROLES: usize = 1_000;

/// Kind of the stored documents of token roles; a document is named after its role.
const TOKEN_ROLE_DOCUMENT_KIND: &str = "token-role";

/// An immutable snapshot of all token roles by name, each with the version of its document.
#[derive(Clone, Default)]
pub(in crate::auth) struct TokenRoleTable(BTreeMap<String, (u64, TokenRole)>);

impl TokenRoleTable {
    pub(in crate::auth) async fn load(store: &dyn AuthStore) -> Result<Self> {
        let read = store.documents(TOKEN_ROLE_DOCUMENT_KIND).await?.into_iter().map(|document| {
            let role = document.parse()?;
            Ok((document.key.name, (document.version, role)))
        });
        read.collect::<Result<_>>().map(Self)
    }
}

impl Auth {
    /// Returns the names of all token roles, sorted.
    pub fn token_roles(&self) -> Vec<String> {
        self.token_roles.load().0.keys().cloned().collect()
    }

    /// Returns a token role as shown by the API.
    pub fn token_role_read(&self, name: &str) -> Option<Value> {
        self.token_role(name).map(|role| role.to_json(name))
    }

    pub(super) fn token_role(&self, name: &str) -> Option<TokenRole> {
        self.token_roles.load().0.get(name).map(|(_, role)| role.clone())
    }

    /// Creates or changes a token role, and returns warnings.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule; store errors.
    pub async fn token_role_write(&self, name: &str, fields: &Fields) -> Result<Warnings> {
        if !is_name(name) || name.len() > MAX_NAME_LEN {
            return Err(Error::invalid(format!(
                "role name: must have 1 to {MAX_NAME_LEN} letters, digits, '_', '-' and '.', without '-' or '.' at \
                 either end"
            )));
        }
        let _one_writer = self.write_permit().await?;
        let attempt = async || {
            self.reload_token_roles().await?;
            let roles = self.token_roles.load_full();
            let known = roles.0.get(name).cloned();
            if known.is_none() && roles.0.len() >= MAX_TOKEN_ROLES {
                return Err(Error::invalid(format!(
                    "role: limit of {MAX_TOKEN_ROLES} token roles reached; delete a token role first"
                )));
            }
            let (version, role) = known.unwrap_or_default();
            let role = role.merged(fields)?;
            let warnings = self.mounts().get(TOKEN_MOUNT_PATH).map(|mount| role.warnings(fields, mount));
            self.commit_token_role(name, version, Some(role)).await?;
            Ok(warnings.unwrap_or_default())
        };
        retry_on_conflict(format_args!("token role {name:?}"), attempt).await
    }

    /// Deletes a token role; succeeds if the role does not exist. Tokens created with the role stay valid, but cannot
    /// be renewed.
    ///
    /// # Errors
    /// Store errors.
    pub async fn token_role_delete(&self, name: &str) -> Result<()> {
        let _one_writer = self.write_permit().await?;
        let attempt = async || {
            self.reload_token_roles().await?;
            let known = self.token_roles.load().0.get(name).map(|(version, _)| *version);
            match known {
                Some(version) => self.commit_token_role(name, version, None).await,
                None => Ok(()),
            }
        };
        retry_on_conflict(format_args!("token role {name:?}"), attempt).await
    }

    /// Commits a change of the role `name`, and publishes a snapshot in which the role is replaced by `now`, or removed
    /// if `now` is `None`. Publishing cannot fail.
    async fn commit_token_role(&self, name: &str, expected: u64, now: Option<TokenRole>) -> Result<()> {
        let body = now.as_ref().map(serde_json::to_vec).transpose().map_err(Error::internal)?;
        let key = DocumentKey { mount: SYSTEM_MOUNT, kind: TOKEN_ROLE_DOCUMENT_KIND, name: name.to_owned() };
        let unit = vec![AuthWrite::Document(DocumentWrite { key, expected, body })];
        self.commit_or_reload(unit).await?;
        let mut next = TokenRoleTable::clone(&self.token_roles.load());
        match now {
            Some(role) => drop(next.0.insert(name.to_owned(), (expected + 1, role))),
            None => drop(next.0.remove(name)),
        }
        self.token_roles.store(next.into());
        Ok(())
    }

    pub(in crate::auth) async fn reload_token_roles(&self) -> Result<()> {
        self.token_roles.store(TokenRoleTable::load(&*self.store).await?.into());
        Ok(())
    }
}

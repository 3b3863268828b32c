//! A token for somebody who has logged in.
//!
//! An authentication method finds out who they are and says so in a [`Login`]; what they get is worked out here
//! from the terms of the role and the settings of the mount. The token has no parent, and ends with the mount.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::given::Given;
use super::make::{New, Ties};
use super::network::Network;
use super::record::LoggedIn;
use super::terms::{TokenKind, TokenTerms, no_root};
use super::ttl::{Limits, after, lesser};
use crate::auth::identity::LoginAlias;
use crate::auth::mounts::Mount;
use crate::auth::names::{add, contains, sanitised};
use crate::auth::policies::DEFAULT;
use crate::auth::store::SecretIdWrite;
use crate::auth::{Auth, ROOT};
use crate::clock::Time;
use crate::error::{Error, Kind, Result, Warnings};

/// Somebody who has proved to an authentication method who they are.
pub struct Login {
    /// The method's mount.
    pub mount: Arc<Mount>,
    /// The role that they logged in with.
    pub role: String,
    /// Who they are; `None` where the method does not tell people apart.
    pub alias: Option<LoginAlias>,
    /// Their name; the token's has the mount's path in front.
    pub display_name: String,
    /// What is attached to the token.
    pub meta: BTreeMap<String, String>,
    /// What the role says of its tokens.
    pub terms: TokenTerms,
    /// Where they are.
    pub address: Option<IpAddr>,
    /// A use that the token takes, of what they have shown. A login that is refused takes none; one whose token the store
    /// did not take may have.
    pub spends: Option<SecretIdWrite>,
}

impl Auth {
    /// Makes the token of a login. Returns it and warnings.
    ///
    /// # Errors
    /// `Forbidden` for an address that the role does not admit, and when their entity is disabled; `Invalid` for
    /// policies or a type of token that logins cannot get; `NotFound` when the mount goes at this moment; those of the store.
    pub async fn log_in(&self, login: Login) -> Result<(Given, Warnings)> {
        let Login { mount, role, alias, display_name, meta, terms, address, spends } = login;
        if !terms.admits(address) {
            return Err(Error::forbidden());
        }
        let mut policies = sanitised("token_policies", terms.policies.clone())?;
        if contains(&policies, ROOT) {
            return Err(no_root());
        }
        if !terms.no_default_policy {
            add(&mut policies, DEFAULT);
        }
        let batch = kind(&terms, &mount) == TokenKind::Batch;
        if batch {
            // The role may have been written before the mount was set to make them.
            terms.check_batch()?;
        }
        let mut record = self.new_record(policies, named(&mount, &display_name), &format!("{}login", mount.path));
        record.meta = meta;
        record.explicit_max_ttl = terms.explicit_max_ttl;
        record.period = terms.period;
        record.bound_cidrs = match terms.strictly_bind_ip {
            false => terms.bound_cidrs.clone(),
            true => vec![Network::of(address.ok_or_else(Error::forbidden)?)],
        };
        let entity = match &alias {
            Some(alias) => Some(self.entity_of(&mount, alias).await?),
            None => None,
        };
        if let Some(entity) = &entity {
            record.entity_id.clone_from(&entity.id);
        }
        record.renewable = !batch;
        record.login = Some(LoggedIn { mount: mount.id, role });
        let grant = login_limits(&mount, &terms, record.created_at).grant(record.created_at, terms.ttl)?;
        if let Some(spends) = spends {
            self.take_use(spends).await?;
        }
        if let Some(entity) = entity.as_ref().filter(|_| batch) {
            self.keep_entity(entity, after(record.created_at, grant.ttl)).await?;
        }
        let uses = (terms.num_uses > 0).then_some(terms.num_uses);
        let ties = Ties { mount: Some(mount.id), ..Ties::default() };
        let made = self.make(New { record, ttl: Some(grant.ttl), uses, ties, batch }).await;
        let given = made.map_err(|error| match error.kind() {
            Kind::Conflict => Error::new(Kind::NotFound, "the authentication method was just disabled"),
            _ => error,
        })?;
        let identity_policies = entity.as_ref().map_or(&[][..], |entity| &entity.policies);
        Ok((given.with_identity(identity_policies), grant.warnings))
    }
}

/// The bounds of a life by the terms of a login's role, counted from `start`.
pub(super) fn login_limits(mount: &Mount, terms: &TokenTerms, start: Time) -> Limits {
    Limits {
        start,
        mount_default: mount.default_ttl(),
        mount_max: lesser(mount.max_ttl(), terms.max_ttl),
        explicit_max: terms.explicit_max_ttl,
        period: terms.period,
    }
}

/// The type of token that a login gets: a mount that names one has the last word, else the role.
fn kind(terms: &TokenTerms, mount: &Mount) -> TokenKind {
    match TokenKind::of(&mount.token_type) {
        Some(forced @ (TokenKind::Service | TokenKind::Batch)) => forced,
        usual => match terms.kind {
            TokenKind::Service | TokenKind::DefaultService => TokenKind::Service,
            TokenKind::Batch | TokenKind::DefaultBatch => TokenKind::Batch,
            TokenKind::Default if usual == Some(TokenKind::DefaultBatch) => TokenKind::Batch,
            TokenKind::Default => TokenKind::Service,
        },
    }
}

/// The mount's path below `auth/` and the name, joined by `-`.
fn named(mount: &Mount, name: &str) -> String {
    let path = mount.path.strip_prefix("auth/").unwrap_or(&mount.path).replace('/', "-");
    format!("{path}{name}").trim_end_matches('-').to_owned()
}

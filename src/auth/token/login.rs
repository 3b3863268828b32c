//! Tokens that clients receive for logins.
//!
//! An authentication method verifies the client and returns an [`AuthenticatedLogin`]; this module derives the token
//! from the settings of the role and of the mount. The token has no parent. It is revoked when the mount is disabled.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::issuance::{TokenDraft, TokenOwners};
use super::network::Network;
use super::record::TokenLogin;
use super::response::TokenResponse;
use super::terms::{TokenKind, TokenTerms, root_not_allowed_error};
use super::ttl::{TtlLimits, lesser_duration, saturating_add};
use crate::auth::identity::LoginAlias;
use crate::auth::mounts::Mount;
use crate::auth::names::{contains, insert_sorted, normalize_token_policies};
use crate::auth::policies::DEFAULT_POLICY;
use crate::auth::store::SecretIdWrite;
use crate::auth::{Auth, ROOT_POLICY};
use crate::clock::Time;
use crate::error::{Error, Kind, Result, Warnings};

/// The result of a successful authentication, from which a token is created.
pub struct AuthenticatedLogin {
    /// Mount of the authentication method.
    pub mount: Arc<Mount>,
    /// Name of the role with which the client logged in.
    pub role: String,
    /// Identity of the client; `None` if the method does not distinguish clients.
    pub alias: Option<LoginAlias>,
    /// Name of the client. The token's display name is this name after the mount path and a `-`.
    pub display_name: String,
    /// Metadata for the token.
    pub meta: BTreeMap<String, String>,
    /// Token settings of the role, perhaps restricted further by the client's credential.
    pub terms: TokenTerms,
    /// Address of the client; `None` if unknown.
    pub address: Option<IpAddr>,
    /// The write that takes a use of the client's secret id, if its uses are limited. It is committed just before the
    /// token is stored. So a rejected login takes no use, but a login whose token could not be stored may have taken
    /// one.
    pub consumed_use: Option<SecretIdWrite>,
}

impl Auth {
    /// Creates the token of a login, and returns it with warnings.
    ///
    /// # Errors
    /// `Forbidden` for an address that the role does not allow, and when the entity is disabled; `Invalid` for policies
    /// or a token type that logins cannot have; `NotFound` when the mount is disabled concurrently; store errors.
    pub async fn log_in(&self, login: AuthenticatedLogin) -> Result<(TokenResponse, Warnings)> {
        let AuthenticatedLogin { mount, role, alias, display_name, meta, terms, address, consumed_use } = login;
        if !terms.admits(address) {
            return Err(Error::forbidden());
        }
        let mut policies = normalize_token_policies("token_policies", terms.policies.clone())?;
        if contains(&policies, ROOT_POLICY) {
            return Err(root_not_allowed_error());
        }
        if !terms.no_default_policy {
            insert_sorted(&mut policies, DEFAULT_POLICY);
        }
        let batch = token_kind(&terms, &mount) == TokenKind::Batch;
        if batch {
            // An operator may have set the mount to issue batch tokens after the role was written.
            terms.check_allowed_for_batch()?;
        }
        let mut record =
            self.new_token_record(policies, token_display_name(&mount, &display_name), &format!("{}login", mount.path));
        record.meta = meta;
        record.explicit_max_ttl = terms.explicit_max_ttl;
        record.period = terms.period;
        record.bound_cidrs = match terms.strictly_bind_ip {
            false => terms.bound_cidrs.clone(),
            true => vec![Network::of(address.ok_or_else(Error::forbidden)?)],
        };
        let entity = match &alias {
            Some(alias) => Some(self.entity_of_login(&mount, alias).await?),
            None => None,
        };
        if let Some(entity) = &entity {
            record.entity_id.clone_from(&entity.id);
        }
        record.renewable = !batch;
        record.login = Some(TokenLogin { mount: mount.id, role });
        let grant = login_limits(&mount, &terms, record.created_at).grant(record.created_at, terms.ttl)?;
        if let Some(write) = consumed_use {
            self.spend_secret_id_use(write).await?;
        }
        if let Some(entity) = entity.as_ref().filter(|_| batch) {
            self.postpone_entity_removal(entity, saturating_add(record.created_at, grant.ttl)).await?;
        }
        let uses = (terms.num_uses > 0).then_some(terms.num_uses);
        let owners = TokenOwners { mount: Some(mount.id), ..TokenOwners::default() };
        let stored = self.store_token(TokenDraft { record, ttl: Some(grant.ttl), uses, owners, batch }).await;
        let response = stored.map_err(|error| match error.kind() {
            Kind::Conflict => Error::new(Kind::NotFound, "auth method: disabled during the login"),
            _ => error,
        })?;
        let identity_policies = entity.as_ref().map_or(&[][..], |entity| &entity.policies);
        Ok((response.with_identity(identity_policies), grant.warnings))
    }
}

/// Returns the limits on the lifetime of a login's token, counted from `start`.
pub(super) fn login_limits(mount: &Mount, terms: &TokenTerms, start: Time) -> TtlLimits {
    TtlLimits {
        start,
        mount_default: mount.default_ttl(),
        mount_max: lesser_duration(mount.max_ttl(), terms.max_ttl),
        explicit_max: terms.explicit_max_ttl,
        period: terms.period,
    }
}

/// Returns the type of a login's token. If the mount has a fixed type, the type in the role is ignored.
fn token_kind(terms: &TokenTerms, mount: &Mount) -> TokenKind {
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

/// Returns the display name of a login's token: the path of the mount below `auth/` and the client's name, joined by
/// `-`.
fn token_display_name(mount: &Mount, name: &str) -> String {
    let path = mount.path.strip_prefix("auth/").unwrap_or(&mount.path).replace('/', "-");
    format!("{path}{name}").trim_end_matches('-').to_owned()
}

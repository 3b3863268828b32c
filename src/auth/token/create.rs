//! Creating a token with another token.
//!
//! A child token has at most the rights of its parent. If the parent has `sudo` on the path of the request, the child
//! may have other policies, a period, no parent, and other addresses. A token role can allow such settings too. Only a
//! `root` token can create a `root` token.

use std::time::Duration;

use super::grants::PolicyGrant;
use super::issuance::{TokenDraft, TokenOwners};
use super::record::TokenRecord;
use super::request::TokenRequest;
use super::response::TokenResponse;
use super::roles::TokenRole;
use super::terms::TokenKind;
use super::ttl::{lesser_duration, saturating_add};
use crate::auth::identity::{EntityRef, LoginAlias};
use crate::auth::mounts::TOKEN_MOUNT_PATH;
use crate::auth::policy::lower;
use crate::auth::store::TokenRow;
use crate::auth::{Auth, Caller, ROOT_POLICY};
use crate::error::{Error, Kind, Result, Warnings};
use crate::fields::Fields;

/// The endpoint of a request to create a token, below `auth/token/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreatePath<'a> {
    /// `create`: the token is a child of the caller's token.
    Child,
    /// `create-orphan`: the token has no parent. This endpoint does not require `sudo`.
    Orphan,
    /// `create/<role>`: the token has the settings of a token role.
    Role(&'a str),
}

impl Auth {
    /// Creates a token with the token of `parent`, and returns the new token with warnings. `sudo` is `true` if the
    /// parent has this capability on the path of the request. `fields` are the request fields that `TokenRequest`
    /// parses.
    ///
    /// # Errors
    /// `Invalid` with the violated rule; store errors.
    pub async fn create_token(
        &self,
        parent: &Caller,
        sudo: bool,
        path: CreatePath<'_>,
        fields: &Fields,
    ) -> Result<(TokenResponse, Warnings)> {
        let sudo = sudo || parent.is_root();
        let parent_row = self.parent_row(parent).await?;
        let role = self.creation_role(path)?;
        let role = role.as_ref();
        let wanted = TokenRequest::parse(fields)?;
        let batch = wants_batch(&wanted, role);
        let mut warnings = Warnings::default();
        let limits = CreationLimits::of(&wanted, role, &mut warnings);
        limits.check(batch)?;
        check_alias(&wanted.entity_alias, role)?;
        let grants = PolicyGrant {
            requested: wanted.policies,
            no_default: wanted.no_default_policy,
            parent: &parent.policies,
            sudo,
            role,
        };
        let policies = grants.policy_names()?;
        if batch && policies == [ROOT_POLICY] {
            return Err(Error::invalid("batch tokens cannot be root tokens"));
        }
        let orphan = match (path, role) {
            (_, Some(role)) => role.orphan,
            (CreatePath::Orphan, _) => true,
            _ if wanted.no_parent && !sudo => {
                return Err(Error::invalid("root or sudo privileges required to create orphan token"));
            }
            _ => wanted.no_parent,
        };
        if !wanted.period.is_zero() && !sudo {
            return Err(Error::invalid("root or sudo privileges required to create periodic token"));
        }
        warnings.extend(
            policies
                .iter()
                .filter(|name| !self.policy_exists(name))
                .map(|name| format!("Policy {name:?} does not exist")),
        );
        let mut record = self.new_token_record(policies, wanted.display_name, &recorded_path(path, role));
        record.meta = wanted.meta;
        record.explicit_max_ttl = limits.explicit_max_ttl;
        record.period = limits.period;
        if let CreatePath::Role(name) = path {
            record.role = name.to_owned();
        }
        if !sudo {
            parent.limit_key().clone_into(&mut record.counts_as);
        }
        let ttl = self.initial_ttl(&record, wanted.ttl, &mut warnings)?;
        if ttl.is_none() && parent.expires_at.is_some() {
            return Err(Error::invalid("expiring root tokens cannot create non-expiring root tokens"));
        }
        record.renewable = !batch && wanted.renewable && ttl.is_some() && role.is_none_or(|role| role.renewable);
        if ttl.is_some() {
            record.bound_cidrs = match role.map(|role| &role.terms.bound_cidrs).filter(|cidrs| !cidrs.is_empty()) {
                Some(cidrs) => cidrs.clone(),
                // Without `sudo`, a token inherits the address restrictions of its parent and cannot remove them.
                None if orphan && sudo => Vec::new(),
                None => TokenRecord::of(&parent_row)?.bound_cidrs,
            };
        }
        let owners = match orphan {
            false => TokenOwners { parent: Some(parent_row.hash), mount: parent_row.mount },
            true => TokenOwners::default(),
        };
        // The entity is looked up after all checks, because the lookup may create it.
        let entity = match &wanted.entity_alias[..] {
            "" => parent.entity.clone().filter(|_| !orphan),
            alias => Some(self.entity_with_alias(alias).await?),
        };
        if let Some(entity) = &entity {
            record.entity_id.clone_from(&entity.id);
        }
        if let (true, Some(entity), Some(ttl)) = (batch, &entity, ttl) {
            self.postpone_entity_removal(entity, saturating_add(record.created_at, ttl)).await?;
        }
        let uses = (limits.uses > 0).then_some(limits.uses);
        let stored = self.store_token(TokenDraft { record, ttl, uses, owners, batch }).await;
        // `Conflict` means that the parent was revoked after its row was read.
        let response =
            stored.map_err(|error| if error.kind() == Kind::Conflict { no_parent_error() } else { error })?;
        let identity_policies = self.identity_policies(&response.entity_id).await?;
        Ok((response.with_identity(&identity_policies), warnings))
    }

    /// Returns the entity with the alias `alias`, in lower case, at the token mount; creates the entity if it does not
    /// exist.
    async fn entity_with_alias(&self, alias: &str) -> Result<EntityRef> {
        let mounts = self.mounts();
        let mount =
            mounts.get(TOKEN_MOUNT_PATH).ok_or_else(|| Error::internal("the mount table has no auth/token/"))?;
        let login = LoginAlias { name: lower(alias).into_owned(), ..LoginAlias::default() };
        self.entity_of_login(mount, &login).await.map_err(|error| match error.kind() {
            Kind::Forbidden => Error::invalid("entity from given entity alias is disabled"),
            Kind::Invalid => error.within("entity_alias"),
            _ => error,
        })
    }

    /// Reads the row of the parent from the store instead of the cache. Rejects a parent that is a batch token or has
    /// limited uses.
    async fn parent_row(&self, parent: &Caller) -> Result<TokenRow> {
        if parent.is_batch() {
            return Err(Error::invalid("batch tokens cannot create more tokens"));
        }
        let row = self.live_row(parent.hash).await?.ok_or_else(no_parent_error)?;
        match row.uses {
            Some(_) => Err(Error::invalid("restricted use token cannot generate child tokens")),
            None => Ok(row),
        }
    }

    fn creation_role(&self, path: CreatePath<'_>) -> Result<Option<TokenRole>> {
        let CreatePath::Role(name) = path else { return Ok(None) };
        let role = self.token_role(name).ok_or_else(|| Error::invalid(format!("unknown role {name}")))?;
        Ok(Some(role))
    }

    /// Returns the TTL that a new token is granted; `None` for a root token that never expires.
    fn initial_ttl(
        &self,
        record: &TokenRecord,
        requested: Duration,
        warnings: &mut Warnings,
    ) -> Result<Option<Duration>> {
        let endless = requested.is_zero() && record.period.is_zero() && record.explicit_max_ttl.is_zero();
        if endless && record.policies == [ROOT_POLICY] {
            return Ok(None);
        }
        let grant = self.token_limits(record).grant(record.created_at, requested)?;
        warnings.extend(grant.warnings);
        Ok(Some(grant.ttl))
    }
}

/// Limits of a new token, from the request and the token role; the lesser limit applies.
struct CreationLimits {
    explicit_max_ttl: Duration,
    period: Duration,
    /// Maximum number of uses of the token; 0 for no limit.
    uses: u32,
}

impl CreationLimits {
    fn of(wanted: &TokenRequest, role: Option<&TokenRole>, warnings: &mut Warnings) -> Self {
        let requested = Self { explicit_max_ttl: wanted.explicit_max_ttl, period: wanted.period, uses: wanted.uses };
        let Some(terms) = role.map(|role| &role.terms) else { return requested };
        let mut time = |what: &str, requested: Duration, role: Duration| {
            let least = lesser_duration(requested, role);
            if !requested.is_zero() && !role.is_zero() {
                warnings.add(format!(
                    "{what} specified both during creation call and in role; using the lesser value of {} seconds",
                    least.as_secs()
                ));
            }
            least
        };
        let explicit_max_ttl = time("Explicit max TTL", requested.explicit_max_ttl, terms.explicit_max_ttl);
        let period = time("Period", requested.period, terms.period);
        let uses = match (requested.uses, terms.num_uses) {
            (0, one) | (one, 0) => one,
            (requested, role) => {
                let least = requested.min(role);
                warnings.add(format!(
                    "Number of uses specified both during creation call and in role; using the lesser value of {least}"
                ));
                least
            }
        };
        Self { explicit_max_ttl, period, uses }
    }

    /// Rejects the limits if the token is a batch token, for which they cannot be enforced.
    fn check(&self, batch: bool) -> Result<()> {
        let set = [
            (!self.explicit_max_ttl.is_zero(), "explicit_max_ttl"),
            (self.uses > 0, "num_uses"),
            (!self.period.is_zero(), "period"),
        ];
        match set.iter().find(|(set, _)| batch && *set) {
            Some((_, field)) => Err(Error::invalid(format!("batch tokens cannot have {field:?} set"))),
            None => Ok(()),
        }
    }
}

/// `true` if the new token is a batch token. If the role has a fixed type, the type in the request is ignored.
fn wants_batch(wanted: &TokenRequest, role: Option<&TokenRole>) -> bool {
    match role.map_or(TokenKind::DefaultService, |role| role.terms.kind) {
        TokenKind::Service => false,
        TokenKind::Batch => true,
        TokenKind::Default | TokenKind::DefaultService => wanted.batch.unwrap_or(false),
        TokenKind::DefaultBatch => wanted.batch.unwrap_or(true),
    }
}

/// Returns the path that the token's record contains: the path of the request, with the suffix that the role defines.
fn recorded_path(path: CreatePath<'_>, role: Option<&TokenRole>) -> String {
    let suffix = role.map(|role| role.path_suffix.as_str()).filter(|suffix| !suffix.is_empty());
    match (path, suffix) {
        (CreatePath::Child, _) => "auth/token/create".to_owned(),
        (CreatePath::Orphan, _) => "auth/token/create-orphan".to_owned(),
        (CreatePath::Role(name), None) => format!("auth/token/create/{name}"),
        (CreatePath::Role(name), Some(suffix)) => format!("auth/token/create/{name}/{suffix}"),
    }
}

/// Checks that the token role allows this entity alias. An alias requires a role.
fn check_alias(alias: &str, role: Option<&TokenRole>) -> Result<()> {
    match role {
        _ if alias.is_empty() => Ok(()),
        None => Err(Error::invalid("'entity_alias' is only allowed in combination with token role")),
        Some(role) if !role.allows_entity_alias(alias) => Err(Error::invalid("invalid 'entity_alias' value")),
        Some(_) => Ok(()),
    }
}

fn no_parent_error() -> Error {
    Error::invalid("parent token lookup failed: no parent found")
}

//! Logins with a role id and a secret id. The use of the secret id is taken last, after all checks.

use std::net::IpAddr;
use std::sync::Arc;

use super::method::AppRoleMethod;
use super::role::AppRole;
use super::secret_id::{MAX_SECRET_ID_BYTES, SecretId};
use super::secret_ids::SecretIdRef;
use crate::auth::Auth;
use crate::auth::login::method_mount::MethodMount;
use crate::auth::mounts::Mount;
use crate::auth::store::{AuthOutcome, AuthWrite, SecretIdWrite};
use crate::auth::token::{AuthenticatedLogin, LoginAlias, Network};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// The error for a wrong role id or secret id. The text is the same in all cases, so it does not reveal which one is
/// wrong.
fn invalid_credentials() -> Error {
    Error::invalid("invalid role or secret ID")
}

impl Auth {
    /// Takes one use of a secret id.
    ///
    /// # Errors
    /// `Invalid` when the secret id has no use left or does not exist; store errors.
    pub(in crate::auth) async fn spend_secret_id_use(&self, write: SecretIdWrite) -> Result<()> {
        match self.store.commit(vec![AuthWrite::SecretId(write)]).await?.as_slice() {
            [AuthOutcome::UsesLeft(_)] => Ok(()),
            _ => Err(invalid_credentials()),
        }
    }
}

impl MethodMount<AppRoleMethod> {
    /// Authenticates a client with a role id and, if the role requires one, a secret id. Neither the duration nor the
    /// error reveals whether a role that requires a secret id exists under this role id. The use of the secret id is
    /// taken later, just before the token is created; of two concurrent logins only one gets the last use.
    ///
    /// # Errors
    /// `Invalid` for missing or wrong values; `Forbidden` when the role's tokens cannot be used from this address;
    /// store errors.
    pub(crate) async fn authenticate(
        &self,
        mount: Arc<Mount>,
        role_id: &str,
        secret_id: Option<Secret>,
        address: Option<IpAddr>,
        now: Time,
    ) -> Result<AuthenticatedLogin> {
        let view = self.view();
        let named = view.derived().role_name(role_id.trim());
        let known = named.and_then(|name| Some((name, view.roles().get(name)?)));
        let role = match known {
            Some((_, role)) => role,
            None => AppRole::placeholder(),
        };
        let secret_id = if role.bind_secret_id { Some(self.find_secret_id(role, secret_id, now).await?) } else { None };
        let (name, role) = known.ok_or_else(invalid_credentials)?;
        let login = authorize_login(mount, name, role, secret_id.as_ref(), address)?;
        let counted = secret_id.filter(|secret_id| secret_id.row.uses.is_some());
        let consumed_use = counted.map(|id| SecretIdWrite::Spend { mount: self.mount(), hash: id.row.hash, now });
        Ok(AuthenticatedLogin { consumed_use, ..login })
    }

    async fn find_secret_id(&self, role: &AppRole, secret_id: Option<Secret>, now: Time) -> Result<SecretId> {
        let text = secret_id.filter(|text| !text.expose().trim_ascii().is_empty());
        let text = text.ok_or_else(|| Error::invalid("missing secret_id"))?;
        if text.expose().len() > MAX_SECRET_ID_BYTES {
            return Err(invalid_credentials());
        }
        self.find_in_role(role, SecretIdRef::Text(text), now).await?.ok_or_else(invalid_credentials)
    }
}

/// Checks that the networks of the role and the secret id contain the client's address, and builds the login.
fn authorize_login(
    mount: Arc<Mount>,
    name: &str,
    role: &AppRole,
    secret_id: Option<&SecretId>,
    address: Option<IpAddr>,
) -> Result<AuthenticatedLogin> {
    let mut terms = role.terms.clone();
    let mut meta = std::collections::BTreeMap::new();
    if let Some(SecretId { terms: own, .. }) = secret_id {
        let within = Network::all_within(&own.cidr_list, &role.secret_id_bound_cidrs)
            && Network::all_within(&own.token_bound_cidrs, &role.terms.bound_cidrs);
        if !within {
            return Err(Error::invalid(
                "secret ID: its networks no longer lie within those of the role; create a new secret ID",
            ));
        }
        if !Network::list_allows_address(&own.cidr_list, address) {
            return Err(Error::invalid("source address unauthorized by CIDR restrictions on the secret ID"));
        }
        if !own.token_bound_cidrs.is_empty() {
            terms.bound_cidrs = own.token_bound_cidrs.iter().copied().map(Network::with_bare_address).collect();
        }
        meta.clone_from(&own.metadata);
    }
    if !Network::list_allows_address(&role.secret_id_bound_cidrs, address) {
        return Err(Error::invalid("source address unauthorized by CIDR restrictions on the role"));
    }
    if !terms.admits(address) {
        return Err(Error::forbidden());
    }
    meta.insert("role_name".to_owned(), name.to_owned());
    let alias = LoginAlias { name: role.role_id.clone(), metadata: meta.clone(), groups: Vec::new() };
    let role = name.to_owned();
    Ok(AuthenticatedLogin {
        mount,
        role,
        alias: Some(alias),
        display_name: String::new(),
        meta,
        terms,
        address,
        consumed_use: None,
    })
}

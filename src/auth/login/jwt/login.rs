//! The steps of a `jwt` login: find the role, verify the token, identify the client.

use std::net::IpAddr;
use std::sync::Arc;

use super::method;
use crate::auth::login::method_mount::MethodMount;
use crate::auth::login::role::fold_role_name;
use crate::auth::login::settings::LoginSettings;
use crate::auth::login::verifier::{JwtRules, parse_jwt};
use crate::auth::mounts::Mount;
use crate::auth::token::{AuthenticatedLogin, LoginAlias};
use crate::clock::Clock;
use crate::error::{Error, Kind, Result};
use crate::secret::Secret;

const MAX_ROLE_NAME_BYTES: usize = 128;

impl MethodMount<method::JwtMethod> {
    /// Authenticates a client with the token `jwt`; an empty `role` selects the default role. Cheap checks come first,
    /// so that an incomplete request does not cause a fetch of keys.
    ///
    /// # Errors
    /// `Invalid` for missing or malformed fields; `Forbidden` for a rejected token; `Unavailable` when keys cannot be
    /// fetched.
    pub(crate) async fn authenticate(
        &self,
        (settings, clock): (&LoginSettings, &Clock),
        mount: Arc<Mount>,
        role: &str,
        jwt: &Secret,
        address: Option<IpAddr>,
    ) -> Result<AuthenticatedLogin> {
        let view = self.view();
        let config = view.config().ok_or_else(|| Error::invalid("could not load configuration"))?;
        let name = if role.is_empty() { config.default_role.as_str() } else { role };
        if name.is_empty() {
            return Err(Error::invalid("missing role"));
        }
        if name.len() > MAX_ROLE_NAME_BYTES {
            return Err(Error::invalid(format!("role: longer than {MAX_ROLE_NAME_BYTES} bytes")));
        }
        let name = fold_role_name(name);
        let role =
            view.roles().get(&name).ok_or_else(|| Error::invalid(format!("role {name:?} could not be found")))?;
        let text = jwt.expose_text().unwrap_or_default();
        if text.is_empty() {
            return Err(Error::invalid("missing token"));
        }
        let token = parse_jwt(text)?;
        if !role.terms.admits(address) {
            return Err(Error::forbidden());
        }
        let rules = JwtRules {
            algorithms: config.algorithms(),
            needs_kid: false,
            issuer: Some(config.bound_issuer.as_str()).filter(|issuer| !issuer.is_empty()),
            audiences: &role.bound_audiences,
            times: role.time_rules(),
        };
        let claims = view.derived().verifier(config, settings, clock)?.verify(&token, &rules).await?;
        // Fetching keys may have been slow, and an operator may have changed the role or the configuration meanwhile.
        let now = self.view();
        let is_changed = || now.config() != Some(config) || now.roles().get(&name).is_none_or(|now| **now != **role);
        if !Arc::ptr_eq(&now, &view) && is_changed() {
            return Err(Error::new(
                Kind::Unavailable,
                "the role or the configuration changed during the login; log in again",
            ));
        }
        let identity = role.identity(&claims, &name, clock.now())?;
        let alias =
            LoginAlias { name: identity.name.clone(), metadata: identity.metadata.clone(), groups: identity.groups };
        let terms = role.terms.clone();
        let display_name = identity.name;
        let meta = identity.metadata;
        let alias = Some(alias);
        Ok(AuthenticatedLogin { mount, role: name, alias, display_name, meta, terms, address, consumed_use: None })
    }
}

//! What of a mount is kept from one login to the next.

use std::sync::{Arc, OnceLock};

use super::config::Config;
use super::directory::Directory;
use super::provider::Provider;
use super::role::CloudbRole;
use super::settings::Services;
use crate::auth::login::method::{Method, View};
use crate::auth::login::role::Roles;
use crate::error::Result;

/// The method.
pub(crate) struct Cloudb;

impl Method for Cloudb {
    type Config = Config;
    type Role = CloudbRole;
    type Made = Arc<Slot>;

    fn make(config: Option<&Config>, _roles: &Roles<CloudbRole>, before: Option<&View<Self>>) -> Result<Arc<Slot>> {
        let is_same = |before: &&View<Self>| match (before.config(), config) {
            (Some(before), Some(config)) => before.serves_as(config),
            (before, config) => before.is_none() && config.is_none(),
        };
        Ok(before.filter(is_same).map(|before| Arc::clone(before.made())).unwrap_or_default())
    }
}

/// The place of a tenant in a view: taken at the first login, and kept until the configuration changes. Logins that
/// are under way end with the one that they began with.
#[derive(Default)]
pub(crate) struct Slot(OnceLock<Arc<Tenant>>);

/// Directory and provider of a mount.
pub(super) struct Tenant {
    pub(super) directory: Directory,
    pub(super) provider: Provider,
}

impl Slot {
    /// The tenant of the configuration that this is the slot of.
    ///
    /// # Errors
    /// `Invalid`, naming the member that is missing.
    pub(super) fn tenant(&self, config: Option<&Config>, services: &Arc<Services>) -> Result<Arc<Tenant>> {
        if let Some(tenant) = self.0.get() {
            return Ok(Arc::clone(tenant));
        }
        let at = Config::effective(config, &services.fallback)?;
        let provider = Provider::new(Arc::clone(services), at);
        let (outbound, clock) = (services.outbound.clone(), services.clock.clone());
        let directory = Directory::new(provider.authority(), &provider.at, outbound, clock);
        Ok(Arc::clone(self.0.get_or_init(|| Arc::new(Tenant { directory, provider }))))
    }
}

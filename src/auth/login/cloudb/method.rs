//! The [`AuthMethod`] implementation of `cloudb`, and the HTTP clients that a mount keeps between logins.

use std::sync::{Arc, OnceLock};

use super::config::CloudbConfig;
use super::directory::CloudbDirectory;
use super::provider::CloudbProvider;
use super::role::CloudbRole;
use super::settings::CloudbServices;
use crate::auth::login::method::{AuthMethod, MethodView};
use crate::auth::login::role::Roles;
use crate::error::Result;

/// The authentication method `cloudb`.
pub(crate) struct CloudbMethod;

impl AuthMethod for CloudbMethod {
    type Config = CloudbConfig;
    type Role = CloudbRole;
    type Derived = Arc<LazyTenantClients>;

    fn derive(
        config: Option<&CloudbConfig>,
        _roles: &Roles<CloudbRole>,
        before: Option<&MethodView<Self>>,
    ) -> Result<Arc<LazyTenantClients>> {
        let is_same = |before: &&MethodView<Self>| match (before.config(), config) {
            (Some(before), Some(config)) => before.has_same_connection(config),
            (before, config) => before.is_none() && config.is_none(),
        };
        Ok(before.filter(is_same).map(|before| Arc::clone(before.derived())).unwrap_or_default())
    }
}

/// The clients for the tenant that a configuration names, created at the first login. Writing the configuration or
/// rotating the client secret replaces them; logins in progress finish with the old clients.
#[derive(Default)]
pub(crate) struct LazyTenantClients(OnceLock<Arc<TenantClients>>);

pub(super) struct TenantClients {
    pub(super) directory: CloudbDirectory,
    pub(super) provider: CloudbProvider,
}

impl LazyTenantClients {
    /// Returns the clients for the tenant, and creates them at the first call.
    ///
    /// # Errors
    /// `Invalid`, naming the missing setting.
    pub(super) fn clients(
        &self,
        config: Option<&CloudbConfig>,
        services: &Arc<CloudbServices>,
    ) -> Result<Arc<TenantClients>> {
        if let Some(tenant) = self.0.get() {
            return Ok(Arc::clone(tenant));
        }
        let effective = CloudbConfig::effective(config, &services.fallback)?;
        let provider = CloudbProvider::new(Arc::clone(services), effective);
        let outbound = services.outbound.clone();
        let clock = services.clock.clone();
        let directory = CloudbDirectory::new(provider.authority_url(), &provider.config, outbound, clock);
        Ok(Arc::clone(self.0.get_or_init(|| Arc::new(TenantClients { directory, provider }))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::login::method_mount::MethodMount;
    use crate::auth::tests::{TEST_MOUNT, TestStore};
    use crate::clock::Clock;
    use crate::error::Warnings;
    use crate::fields::Fields;

    #[tokio::test]
    async fn config_write_resets_every_node_and_a_rotation_does_not() {
        let store = TestStore::open(&Clock::system()).await;
        let node = || MethodMount::<CloudbMethod>::new(TEST_MOUNT, store.clone()).unwrap();
        let nodes = [node(), node()];
        let slots = async || {
            nodes[1].reload().await.unwrap();
            nodes.each_ref().map(|node| Arc::clone(node.view().derived()))
        };
        let write = async || {
            let same = |current: Option<&CloudbConfig>| -> Result<(CloudbConfig, Warnings)> {
                Ok((CloudbConfig::merged(current, &Fields::default(), None)?, Warnings::default()))
            };
            nodes[0].write_config(same).await.unwrap();
            slots().await
        };
        let is_same = |a: &[_; 2], b: &[_; 2]| [0, 1].map(|node| Arc::ptr_eq(&a[node], &b[node]));
        let first = write().await;
        let at = time::macros::datetime!(2030-01-02 03:04:05 UTC);
        let rotated =
            |current: Option<&CloudbConfig>| Ok((current.cloned().unwrap().with_expiry(at), Warnings::default()));
        nodes[0].write_config(rotated).await.unwrap();
        assert_eq!(is_same(&first, &slots().await), [true, true]);
        let second = write().await;
        assert_eq!(is_same(&first, &second), [false, false]);
        // Node 0 deletes the configuration and writes it again, before the other node has reloaded it.
        nodes[0].delete_config().await.unwrap();
        assert_eq!(is_same(&second, &write().await), [false, false]);
    }
}

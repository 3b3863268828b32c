//! The [`AuthMethod`] implementation of `jwt`, and the cached verifier of a configuration.

use std::sync::{Arc, OnceLock};

use super::config::JwtConfig;
use super::role::JwtRole;
use crate::auth::login::method::{AuthMethod, MethodView};
use crate::auth::login::method_mount::MethodMount;
use crate::auth::login::role::Roles;
use crate::auth::login::settings::LoginSettings;
use crate::auth::login::verifier::JwtVerifier;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::fields::Fields;

/// The authentication method `jwt`.
pub(crate) struct JwtMethod;

/// The verifier for one written configuration, created at the first login.
#[derive(Clone, Default)]
pub(crate) struct LazyVerifier(Arc<OnceLock<JwtVerifier>>);

impl AuthMethod for JwtMethod {
    type Config = JwtConfig;
    type Role = JwtRole;
    type Derived = LazyVerifier;

    fn derive(
        config: Option<&JwtConfig>,
        _: &Roles<JwtRole>,
        before: Option<&MethodView<Self>>,
    ) -> Result<LazyVerifier> {
        let same = before.filter(|before| before.config() == config);
        Ok(same.map(|before| before.derived().clone()).unwrap_or_default())
    }

    fn login_role_name(view: &MethodView<Self>, sent: &Fields) -> Option<String> {
        let requested = sent.text("role").ok()?.filter(|role| !role.is_empty());
        requested.or_else(|| Some(view.config()?.default_role.clone()).filter(|role| !role.is_empty()))
    }
}

impl LazyVerifier {
    pub(super) fn verifier(&self, config: &JwtConfig, settings: &LoginSettings, clock: &Clock) -> Result<&JwtVerifier> {
        if let Some(verifier) = self.0.get() {
            return Ok(verifier);
        }
        let created = config.verifier(settings, clock)?;
        Ok(self.0.get_or_init(|| created))
    }
}

impl MethodMount<JwtMethod> {
    /// Checks that the keys for verifying tokens are available with the current configuration.
    ///
    /// # Errors
    /// `NotFound` without a configuration; `Unavailable` with the reason why keys cannot be fetched.
    pub(crate) async fn check_keys_available(&self, settings: &LoginSettings, clock: &Clock) -> Result<()> {
        let view = self.view();
        let config = view.config().ok_or_else(Error::not_found)?;
        view.derived().verifier(config, settings, clock)?.check().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::{TEST_MOUNT, TestStore};
    use crate::error::Warnings;

    #[tokio::test]
    async fn config_write_resets_every_node_and_a_role_write_does_not() {
        let store = TestStore::open(&Clock::system()).await;
        let node = || MethodMount::<JwtMethod>::new(TEST_MOUNT, store.clone()).unwrap();
        let nodes = [node(), node()];
        let keys = async || {
            nodes[1].reload().await.unwrap();
            nodes.each_ref().map(|node| Arc::clone(&node.view().derived().0))
        };
        let write = async || {
            let same = |current: Option<&JwtConfig>| Ok((JwtConfig::for_write(current), Warnings::default()));
            nodes[0].write_config(same).await.unwrap();
            keys().await
        };
        let is_same = |a: &[_; 2], b: &[_; 2]| [0, 1].map(|node| Arc::ptr_eq(&a[node], &b[node]));
        let first = write().await;
        let role = |_: &MethodView<JwtMethod>, _: Option<&JwtRole>| Ok((JwtRole::default(), Warnings::default()));
        nodes[0].write_role("web", role).await.unwrap();
        assert_eq!(is_same(&first, &keys().await), [true, true]);
        nodes[0].reload().await.unwrap();
        assert_eq!(is_same(&first, &keys().await), [true, true]);
        let second = write().await;
        assert_eq!(is_same(&first, &second), [false, false]);
        // Node 0 deletes the configuration and writes it again, before the other node has reloaded it.
        nodes[0].delete_config().await.unwrap();
        assert_eq!(is_same(&second, &write().await), [false, false]);
    }
}

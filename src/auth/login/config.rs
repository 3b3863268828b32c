//! Changes of an authentication method's configuration: one document per mount, written by compare-and-set.

use serde::{Deserialize, Serialize};

use super::method::{AuthMethod, CONFIG_DOCUMENT, MethodView};
use super::method_mount::{MethodChangePlan, MethodMount};
use super::role::Versioned;
use crate::auth::store::AuthWrite;
use crate::documents::{DocumentKey, DocumentWrite};
use crate::error::{Error, Result, Warnings};

/// A random id for each write of a configuration. Cached data, such as an issuer's keys, is used only with the write
/// for which it was fetched. So an operator can drop a withdrawn key by writing the same configuration again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigWriteId(u64);

impl ConfigWriteId {
    pub(crate) fn random() -> Self {
        Self(u64::from_ne_bytes(crate::random::bytes()))
    }
}

impl<M: AuthMethod> MethodMount<M> {
    /// Stores the configuration that `merge` derives from the current one, and returns the warnings of `merge`. Calls
    /// `merge` again after a conflict with another node.
    ///
    /// # Errors
    /// The errors of `merge` and [`AuthMethod::derive`]; store errors.
    pub(crate) async fn write_config(
        &self,
        merge: impl Fn(Option<&M::Config>) -> Result<(M::Config, Warnings)>,
    ) -> Result<Warnings> {
        let plan = |view: &MethodView<M>| {
            let (config, warnings) = merge(view.config())?;
            let body = serde_json::to_vec(&config).map_err(Error::internal)?;
            let version = view.config.as_ref().map_or(0, |known| known.version);
            let next = Versioned { value: config.into(), version: version + 1 };
            Ok(MethodChangePlan::Write(
                vec![self.config_write(version, Some(body))],
                view.with_config(Some(next))?,
                warnings,
            ))
        };
        self.change(plan).await
    }

    /// Deletes the configuration of the mount. Returns `true` if there was one.
    ///
    /// # Errors
    /// Store errors.
    pub(crate) async fn delete_config(&self) -> Result<bool> {
        let plan = |view: &MethodView<M>| {
            let Some(known) = &view.config else { return Ok(MethodChangePlan::Unchanged(false)) };
            Ok(MethodChangePlan::Write(vec![self.config_write(known.version, None)], view.with_config(None)?, true))
        };
        self.change(plan).await
    }

    fn config_write(&self, expected: u64, body: Option<Vec<u8>>) -> AuthWrite {
        let (kind, name) = CONFIG_DOCUMENT;
        let key = DocumentKey { mount: self.mount(), kind, name: name.to_owned() };
        AuthWrite::Document(DocumentWrite { key, expected, body })
    }
}

//! The environment in which a certificate request is handled.

use std::sync::Arc;

use super::request::IssueContext;
use super::signer::find_signer;
use super::stages::IssuanceStages;
use crate::error::Result;
use crate::pki::engine_deps::EngineDeps;
use crate::pki::mount::role::Role;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::view::MountView;

/// The environment of a request: one published state of the mount, the server's dependencies, origin and metrics.
#[derive(Clone, Copy)]
pub(crate) struct Issuance<'a> {
    pub(crate) view: &'a MountView,
    pub(crate) deps: &'a EngineDeps,
    pub(crate) origin: &'a IssueContext,
    pub(crate) stages: &'a IssuanceStages,
}

impl Issuance<'_> {
    /// The issuer that the path names, else the role's, else the default issuer.
    pub(super) fn issuer_ref<'r>(&'r self, role: Option<&'r Role>) -> &'r str {
        let by_role = || role.map_or("default", |role| &role.issuer_ref);
        self.origin.issuer_ref.as_deref().unwrap_or_else(by_role)
    }

    /// Finds the issuer of a request under `role`.
    ///
    /// # Errors
    /// `Invalid` when it does not exist.
    pub(super) fn find_signer(&self, role: Option<&Role>) -> Result<Arc<IssuerSigner>> {
        find_signer(self.view, self.issuer_ref(role))
    }
}

//! The environment in which a certificate request is processed.

use std::sync::Arc;

use super::request::IssueContext;
use super::signer::find_signer;
use super::stages::IssuanceStages;
use crate::error::Result;
use crate::pki::engine_deps::EngineDeps;
use crate::pki::mount::role::Role;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::view::MountView;

/// The environment of a certificate request: one published state of the mount, the server's dependencies, and the
/// origin and metrics of the request.
#[derive(Clone, Copy)]
pub(crate) struct Issuance<'a> {
    pub(crate) view: &'a MountView,
    pub(crate) deps: &'a EngineDeps,
    pub(crate) origin: &'a IssueContext,
    pub(crate) stages: &'a IssuanceStages,
}

impl Issuance<'_> {
    /// Returns the reference to the issuer: the one in the request path, else the one in the role, else `default`.
    pub(super) fn issuer_ref<'r>(&'r self, role: Option<&'r Role>) -> &'r str {
        let by_role = || role.map_or("default", |role| &role.issuer_ref);
        self.origin.issuer_ref.as_deref().unwrap_or_else(by_role)
    }

    /// Finds the issuer for a request under `role`.
    ///
    /// # Errors
    /// `Invalid` when the issuer does not exist.
    pub(super) fn find_signer(&self, role: Option<&Role>) -> Result<Arc<IssuerSigner>> {
        find_signer(self.view, self.issuer_ref(role))
    }
}

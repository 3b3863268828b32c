//! Changes of roles: stored documents of a mount, written by compare-and-set.

use super::method::{AuthMethod, MethodView, ROLE_DOCUMENT_KIND};
use super::method_mount::{MethodChangePlan, MethodMount};
use super::role::{MAX_ROLES_PER_MOUNT, Versioned, fold_role_name};
use crate::auth::store::AuthWrite;
use crate::documents::{DocumentKey, DocumentWrite};
use crate::error::{Error, Result, Warnings};

impl<M: AuthMethod> MethodMount<M> {
    /// Stores the role that `merge` derives from the current one, and returns the warnings of `merge`. Calls `merge`
    /// again after a conflict with another node.
    ///
    /// # Errors
    /// The errors of `merge`; `Invalid` for too many roles; store errors.
    pub(crate) async fn write_role(
        &self,
        name: &str,
        merge: impl Fn(&MethodView<M>, Option<&M::Role>) -> Result<(M::Role, Warnings)>,
    ) -> Result<Warnings> {
        let name = fold_role_name(name);
        let plan = |view: &MethodView<M>| {
            let known = view.roles.versioned_role(&name);
            let (role, warnings) = merge(view, known.map(|known| &*known.value))?;
            if known.is_none() && view.roles.len() >= MAX_ROLES_PER_MOUNT {
                return Err(Error::invalid(format!(
                    "role: limit of {MAX_ROLES_PER_MOUNT} roles reached; delete a role first"
                )));
            }
            let body = serde_json::to_vec(&role).map_err(Error::internal)?;
            let version = known.map_or(0, |known| known.version);
            let mut unit = vec![self.role_write(&name, version, Some(body))];
            unit.extend(M::accompanying_writes(self.mount(), &name, known.map(|known| &*known.value), Some(&role)));
            let next = Versioned { value: role.into(), version: version + 1 };
            Ok(MethodChangePlan::Write(unit, view.with_role(&name, Some(next))?, warnings))
        };
        self.change(plan).await
    }

    /// Deletes a role. Returns `true` if it existed.
    ///
    /// # Errors
    /// Store errors.
    pub(crate) async fn delete_role(&self, name: &str) -> Result<bool> {
        let name = fold_role_name(name);
        let plan = |view: &MethodView<M>| {
            let Some(known) = view.roles.versioned_role(&name) else { return Ok(MethodChangePlan::Unchanged(false)) };
            let mut unit = vec![self.role_write(&name, known.version, None)];
            unit.extend(M::accompanying_writes(self.mount(), &name, Some(&known.value), None));
            Ok(MethodChangePlan::Write(unit, view.with_role(&name, None)?, true))
        };
        self.change(plan).await
    }

    fn role_write(&self, name: &str, expected: u64, body: Option<Vec<u8>>) -> AuthWrite {
        let key = DocumentKey { mount: self.mount(), kind: ROLE_DOCUMENT_KIND, name: name.to_owned() };
        AuthWrite::Document(DocumentWrite { key, expected, body })
    }
}

//! The [`AuthMethod`] implementation of `approle`: roles, no configuration, and an index of role ids.

use super::role::AppRole;
use super::role_ids::{self, RoleIdIndex};
use crate::auth::login::method::{AuthMethod, MethodView};
use crate::auth::login::role::Roles;
use crate::auth::store::{AuthWrite, SecretIdWrite};
use crate::documents::MountId;
use crate::error::Result;
use crate::fields::Fields;

/// The authentication method `approle`.
pub(crate) struct AppRoleMethod;

impl AuthMethod for AppRoleMethod {
    type Config = ();
    type Role = AppRole;
    type Derived = RoleIdIndex;

    fn derive(_: Option<&()>, roles: &Roles<AppRole>, _: Option<&MethodView<Self>>) -> Result<RoleIdIndex> {
        RoleIdIndex::of(roles)
    }

    fn accompanying_writes(
        mount: MountId,
        name: &str,
        before: Option<&AppRole>,
        after: Option<&AppRole>,
    ) -> Vec<AuthWrite> {
        let mut writes = role_ids::role_id_writes(mount, name, before, after);
        if let (Some(ended), None) = (before, after) {
            writes.push(AuthWrite::SecretId(SecretIdWrite::DeleteRole { mount, role: ended.number }));
        }
        writes
    }

    fn login_role_name(view: &MethodView<Self>, sent: &Fields) -> Option<String> {
        view.derived().role_name(sent.text("role_id").ok()??.trim()).map(str::to_owned)
    }
}

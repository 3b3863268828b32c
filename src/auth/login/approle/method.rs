//! The method `approle`: roles, no configuration, and an index of role ids.

use super::role::AppRole;
use super::role_ids::{self, RoleIds};
use crate::auth::login::method::{Method, View};
use crate::auth::login::role::Roles;
use crate::auth::store::{AuthWrite, SecretIdWrite};
use crate::documents::MountId;
use crate::error::Result;
use crate::fields::Fields;

/// The method.
pub(crate) struct AppRoles;

impl Method for AppRoles {
    type Config = ();
    type Role = AppRole;
    type Made = RoleIds;

    fn make(_: Option<&()>, roles: &Roles<AppRole>, _: Option<&View<Self>>) -> Result<RoleIds> {
        RoleIds::of(roles)
    }

    fn beside(mount: MountId, name: &str, before: Option<&AppRole>, after: Option<&AppRole>) -> Vec<AuthWrite> {
        let mut writes = role_ids::writes(mount, name, before, after);
        if let (Some(ended), None) = (before, after) {
            writes.push(AuthWrite::SecretId(SecretIdWrite::EndRole { mount, role: ended.number }));
        }
        writes
    }

    fn role_of(view: &View<Self>, sent: &Fields) -> Option<String> {
        view.made().name(sent.text("role_id").ok()??.trim()).map(str::to_owned)
    }
}

//! The restrictions of a `cloudb` role: the identities and resources that can log in.

use serde::{Deserialize, Serialize};

use crate::auth::login::verifier::forbidden;
use crate::error::{Error, Result};
use crate::fields::{ListLimit, resource};

/// The error for a role with which every identity of the tenant could log in.
const UNRESTRICTED_ROLE_ERROR: &str =
    "expected specific bound_group_ids or bound_service_principal_ids; both cannot be empty or '*'";

/// Limits of one `bound_…` list. A list of only empty entries is rejected, because an empty list restricts nothing.
const BOUND_LIST_LIMITS: ListLimit = ListLimit::LIST.rejecting_only_empty();

resource! {
    /// The `bound_…` lists of a `cloudb` role. Comparisons ignore letter case; an empty list does not restrict.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub(crate) struct CloudbRoleBounds {
        list(BOUND_LIST_LIMITS) bound_service_principal_ids;
        list(BOUND_LIST_LIMITS) bound_group_ids;
        list(BOUND_LIST_LIMITS) bound_subscription_ids;
        list(BOUND_LIST_LIMITS) bound_resource_groups;
        list(BOUND_LIST_LIMITS) bound_locations;
        list(BOUND_LIST_LIMITS) bound_scale_sets;
    }
}

impl CloudbRoleBounds {
    /// `true` if only the listed principals may log in.
    pub(super) fn restricts_principals(&self) -> bool {
        is_restricting(&self.bound_service_principal_ids)
    }

    /// `true` if only principals in the listed groups may log in.
    pub(super) fn restricts_groups(&self) -> bool {
        is_restricting(&self.bound_group_ids)
    }

    /// `true` if the client must prove that it runs on a resource that the role allows.
    pub(super) fn requires_resource(&self) -> bool {
        [&self.bound_subscription_ids, &self.bound_resource_groups, &self.bound_locations, &self.bound_scale_sets]
            .into_iter()
            .any(|list| !list.is_empty())
    }

    /// Validates the lists when an operator writes a role.
    ///
    /// # Errors
    /// `Invalid` for a role without any list, and for a role with which every identity of the tenant could log
    /// in.
    pub(super) fn check(&self) -> Result<()> {
        if *self == Self::default() {
            return Err(Error::invalid("must have at least one bound constraint when creating/updating a role"));
        }
        if self.are_sufficient() { Ok(()) } else { Err(Error::invalid(UNRESTRICTED_ROLE_ERROR)) }
    }

    /// Validates the lists of a role during a login, because an older version of Signet may have stored a role without
    /// sufficient restrictions.
    ///
    /// # Errors
    /// `Forbidden` if [`CloudbRoleBounds::check`] would reject the role.
    pub(super) fn require_sufficient(&self) -> Result<()> {
        if self.are_sufficient() { Ok(()) } else { Err(forbidden(UNRESTRICTED_ROLE_ERROR)) }
    }

    /// `true` if not every identity of the tenant can log in. A required resource is enough on its own, because only
    /// the identities of that resource can log in.
    fn are_sufficient(&self) -> bool {
        self.restricts_principals() || self.restricts_groups() || self.requires_resource()
    }

    /// Returns a warning if the role allows resources in every subscription of the tenant: names of resource groups and
    /// scale sets may repeat across subscriptions.
    pub(super) fn warning(&self) -> Option<String> {
        let is_open = self.requires_resource() && self.bound_subscription_ids.is_empty();
        let text = "bound_subscription_ids: is empty, so resources of every subscription of the tenant match";
        (is_open && !self.restricts_principals() && !self.restricts_groups()).then(|| text.to_owned())
    }
}

/// `true` if `list` contains `text`, in any letter case.
pub(super) fn contains_ignore_case(list: &[String], text: &str) -> bool {
    list.iter().any(|item| item.eq_ignore_ascii_case(text))
}

/// `true` if the list restricts the clients: it is not empty and not the single entry `*`. A `*` among other entries
/// has no special meaning.
fn is_restricting(list: &[String]) -> bool {
    !list.is_empty() && list != ["*"]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{Fields, Resource as _};

    fn bounds(principals: &[&str], groups: &[&str], locations: &[&str]) -> CloudbRoleBounds {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        CloudbRoleBounds {
            bound_service_principal_ids: list(principals),
            bound_group_ids: list(groups),
            bound_locations: list(locations),
            ..CloudbRoleBounds::default()
        }
    }

    #[test]
    fn role_bounds_require_a_specific_constraint() {
        let [none, any, one, two]: [&[&str]; 4] = [&[], &["*"], &["a"], &["*", "a"]];
        for specific in [one, two] {
            for other in [none, any, one] {
                for locations in [none, one] {
                    bounds(specific, other, locations).check().unwrap();
                    bounds(other, specific, locations).check().unwrap();
                }
            }
        }
        for (principals, groups) in [(none, none), (none, any), (any, none), (any, any)] {
            bounds(principals, groups, one).check().unwrap();
            bounds(principals, groups, one).require_sufficient().unwrap();
            let wide = bounds(principals, groups, none);
            assert_eq!(wide.require_sufficient().unwrap_err().text(), UNRESTRICTED_ROLE_ERROR);
            let empty = "must have at least one bound constraint when creating/updating a role";
            let text = if principals.is_empty() && groups.is_empty() { empty } else { UNRESTRICTED_ROLE_ERROR };
            assert_eq!(wide.check().unwrap_err().text(), text);
        }
    }

    #[test]
    fn role_for_any_subscription_gets_a_warning() {
        let warned = |bounds: CloudbRoleBounds| bounds.warning().is_some();
        assert!(warned(bounds(&[], &["*"], &["westus"])));
        assert!(!warned(bounds(&["a"], &[], &["westus"])) && !warned(bounds(&["a"], &[], &[])));
        let bound_subscription_ids = vec!["s".to_owned()];
        assert!(!warned(CloudbRoleBounds { bound_subscription_ids, ..bounds(&[], &[], &["westus"]) }));
    }

    #[test]
    fn absent_bound_keeps_the_stored_one() {
        let mut changed = bounds(&["*"], &["g"], &[]);
        changed.merge_lists(&Fields::parse(br#"{"bound_group_ids": []}"#).unwrap()).unwrap();
        assert_eq!(changed, bounds(&["*"], &[], &[]));
        assert_eq!(changed.check().unwrap_err().text(), UNRESTRICTED_ROLE_ERROR);
    }
}

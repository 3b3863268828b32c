//! What a role asks of who logs in, and which of it is enough.

use serde::{Deserialize, Serialize};

use super::refusal::denied;
use crate::error::{Error, Result};

/// The text of a role that would let everybody of the tenant in.
const TOO_WIDE: &str = "expected specific bound_group_ids or bound_service_principal_ids; both cannot be empty or '*'";

/// The lists of a role. All comparisons are without letter case; an empty list asks nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bounds {
    #[serde(rename = "bound_service_principal_ids")]
    pub(super) principals: Vec<String>,
    #[serde(rename = "bound_group_ids")]
    pub(super) groups: Vec<String>,
    #[serde(rename = "bound_subscription_ids")]
    pub(super) subscriptions: Vec<String>,
    #[serde(rename = "bound_resource_groups")]
    pub(super) resource_groups: Vec<String>,
    #[serde(rename = "bound_locations")]
    pub(super) locations: Vec<String>,
    #[serde(rename = "bound_scale_sets")]
    pub(super) scale_sets: Vec<String>,
}

/// What is written over the lists; `None` leaves what stands.
#[derive(Default)]
pub(crate) struct BoundsChange {
    pub(crate) principals: Option<Vec<String>>,
    pub(crate) groups: Option<Vec<String>>,
    pub(crate) subscriptions: Option<Vec<String>>,
    pub(crate) resource_groups: Option<Vec<String>>,
    pub(crate) locations: Option<Vec<String>>,
    pub(crate) scale_sets: Option<Vec<String>>,
}

impl Bounds {
    /// The lists by the names of their fields.
    pub(crate) fn named(&self) -> [(&'static str, &[String]); 6] {
        [
            ("bound_service_principal_ids", &self.principals),
            ("bound_group_ids", &self.groups),
            ("bound_subscription_ids", &self.subscriptions),
            ("bound_resource_groups", &self.resource_groups),
            ("bound_locations", &self.locations),
            ("bound_scale_sets", &self.scale_sets),
        ]
    }

    /// These lists with a change written over them.
    pub(super) fn changed(&self, change: &BoundsChange) -> Self {
        let over = |written: &Option<Vec<String>>, standing: &Vec<String>| written.as_ref().unwrap_or(standing).clone();
        Self {
            principals: over(&change.principals, &self.principals),
            groups: over(&change.groups, &self.groups),
            subscriptions: over(&change.subscriptions, &self.subscriptions),
            resource_groups: over(&change.resource_groups, &self.resource_groups),
            locations: over(&change.locations, &self.locations),
            scale_sets: over(&change.scale_sets, &self.scale_sets),
        }
    }

    /// Whether the principal has to be one of some.
    pub(super) fn names_principals(&self) -> bool {
        is_specific(&self.principals)
    }

    /// Whether the principal has to be in one of some groups.
    pub(super) fn names_groups(&self) -> bool {
        is_specific(&self.groups)
    }

    /// Whether the resource has to be proven.
    pub(super) fn name_resources(&self) -> bool {
        [&self.subscriptions, &self.resource_groups, &self.locations, &self.scale_sets]
            .into_iter()
            .any(|list| !list.is_empty())
    }

    /// Holds the lists of a role that is written.
    ///
    /// # Errors
    /// `Invalid` for a role that asks nothing, or lets every identity of the tenant in.
    pub(super) fn check(&self) -> Result<()> {
        if self.named().iter().all(|(_, list)| list.is_empty()) {
            return Err(Error::invalid("must have at least one bound constraint when creating/updating a role"));
        }
        if self.are_sufficient() { Ok(()) } else { Err(Error::invalid(TOO_WIDE)) }
    }

    /// Holds the lists of a role that somebody logs in with: an older program may have taken others.
    ///
    /// # Errors
    /// `Forbidden` as [`Bounds::check`].
    pub(super) fn suffice(&self) -> Result<()> {
        if self.are_sufficient() { Ok(()) } else { Err(denied(TOO_WIDE)) }
    }

    /// A resource ties the principal to itself, so that one is enough by itself.
    fn are_sufficient(&self) -> bool {
        self.names_principals() || self.names_groups() || self.name_resources()
    }

    /// What a role that is written should be told: groups, locations and scale sets are named the same in every
    /// subscription.
    pub(super) fn warning(&self) -> Option<String> {
        let is_open = self.name_resources() && self.subscriptions.is_empty();
        let text = "bound_subscription_ids: is empty, so resources of every subscription of the tenant match";
        (is_open && !self.names_principals() && !self.names_groups()).then(|| text.to_owned())
    }
}

/// Whether a list has a text, in any letter case.
pub(super) fn contains(list: &[String], text: &str) -> bool {
    list.iter().any(|item| item.eq_ignore_ascii_case(text))
}

/// Whether a list asks for something; the one entry `*` does not, one beside others is an entry like them.
fn is_specific(list: &[String]) -> bool {
    !list.is_empty() && list != ["*"]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(principals: &[&str], groups: &[&str], locations: &[&str]) -> Bounds {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        Bounds { principals: list(principals), groups: list(groups), locations: list(locations), ..Bounds::default() }
    }

    #[test]
    fn a_role_asks_for_somebody_or_some_resource() {
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
            bounds(principals, groups, one).suffice().unwrap();
            let wide = bounds(principals, groups, none);
            assert_eq!(wide.suffice().unwrap_err().text(), TOO_WIDE);
            let empty = "must have at least one bound constraint when creating/updating a role";
            let text = if principals.is_empty() && groups.is_empty() { empty } else { TOO_WIDE };
            assert_eq!(wide.check().unwrap_err().text(), text);
        }
    }

    #[test]
    fn a_role_of_any_subscription_is_told_so() {
        let warned = |bounds: Bounds| bounds.warning().is_some();
        assert!(warned(bounds(&[], &["*"], &["westus"])));
        assert!(!warned(bounds(&["a"], &[], &["westus"])) && !warned(bounds(&["a"], &[], &[])));
        let subscriptions = vec!["s".to_owned()];
        assert!(!warned(Bounds { subscriptions, ..bounds(&[], &[], &["westus"]) }));
    }

    #[test]
    fn r10_a_written_list_replaces_and_an_absent_one_stays() {
        let change = BoundsChange { groups: Some(Vec::new()), ..BoundsChange::default() };
        let changed = bounds(&["*"], &["g"], &[]).changed(&change);
        assert_eq!(changed, bounds(&["*"], &[], &[]));
        assert_eq!(changed.check().unwrap_err().text(), TOO_WIDE);
    }
}

//! Proof that a client runs on a resource that the role allows.
//!
//! Three things must agree: the resource in the login request, the resource in the token's claims, and the identities
//! that the provider reports for the resource. Without the check of the claims, a client could name another client's
//! machine (CVE-2025-3879). Ids are compared segment by segment, and the provider is called only when the claims agree.

use super::arm_id::ArmId;
use super::bounds::{CloudbRoleBounds, contains_ignore_case};
use super::claims::CloudbClaims;
use super::request::{ClaimedResource, ResourceSelector};
use crate::auth::login::verifier::forbidden;
use crate::error::{Error, Result};

/// Namespace of the resource types for virtual machines and scale sets.
pub(super) const COMPUTE_NAMESPACE: &str = "Microsoft.Compute";
pub(super) const MACHINE_TYPE: &str = "virtualMachines";
pub(super) const SCALE_SET_TYPE: &str = "virtualMachineScaleSets";

/// A resource in a login request that the token's claims confirm and the role allows. Only such resources are looked up
/// at the provider.
#[derive(Debug, PartialEq)]
pub(super) struct ProvenResource<'p> {
    pub(super) subscription: &'p str,
    pub(super) group: &'p str,
    pub(super) selector: &'p ResourceSelector,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct ResourceDetails {
    pub(super) location: String,
    pub(super) principals: Vec<String>,
}

impl<'p> ProvenResource<'p> {
    /// Validates the requested resource against the claims of the token and the lists of the role.
    ///
    /// # Errors
    /// `Invalid` if the request lacks the subscription, resource group or resource name; `Forbidden` for a mismatch.
    pub(super) fn new(claimed: &'p ClaimedResource, claims: &CloudbClaims, bounds: &CloudbRoleBounds) -> Result<Self> {
        let ClaimedResource { subscription, group, selector } = claimed;
        if subscription.is_empty() || group.is_empty() {
            return Err(Error::invalid("subscription_id and resource_group_name are required"));
        }
        let missing = || Error::invalid("one of vm_name, vmss_name or resource_id must be provided");
        let selector = selector.as_ref().ok_or_else(missing)?;
        let proven = Self { subscription, group, selector };
        proven.check_claims(claims)?;
        proven.check_bounds(bounds)?;
        Ok(proven)
    }

    /// Checks that subscription, resource group and resource name all match one of the claims `xms_az_rid` and
    /// `xms_mirid`. The other claim may differ, because an identity can be in another resource group than its machine.
    fn check_claims(&self, claims: &CloudbClaims) -> Result<()> {
        if !claims.names_resource {
            return Err(forbidden("xms_az_rid and xms_mirid claims are missing from token"));
        }
        let mut named: Vec<&ArmId> = claims.az_rid.iter().chain(&claims.mirid).collect();
        type Rule<'r> = (&'r str, &'r dyn Fn(&ArmId) -> bool);
        let rules: [Rule<'_>; 3] = [
            ("subscription_id", &|id| id.is_in_subscription(self.subscription)),
            ("resource_group_name", &|id| id.is_in_group(self.group)),
            (self.selector.parameter_name(), &|id| self.selector.matches(id)),
        ];
        for (field, holds) in rules {
            named.retain(|id| holds(id));
            if named.is_empty() {
                return Err(forbidden(format!("token claims do not match {field}")));
            }
        }
        Ok(())
    }

    /// Checks the scale set, subscription and resource group against the role's lists, without a call to the provider.
    fn check_bounds(&self, bounds: &CloudbRoleBounds) -> Result<()> {
        if !bounds.bound_scale_sets.is_empty() {
            match self.selector {
                ResourceSelector::ScaleSet(name) if contains_ignore_case(&bounds.bound_scale_sets, name) => {}
                ResourceSelector::ScaleSet(_) => return Err(forbidden("scale set not authorized")),
                ResourceSelector::Machine(_) => {
                    return Err(forbidden("bound scale set defined but this vm isn't in a scale set"));
                }
                ResourceSelector::Resource(_) => {
                    return Err(Error::invalid("scale set requires the vmss_name field to be set"));
                }
            }
        }
        if !bounds.bound_subscription_ids.is_empty()
            && !contains_ignore_case(&bounds.bound_subscription_ids, self.subscription)
        {
            return Err(forbidden("subscription not authorized"));
        }
        if !bounds.bound_resource_groups.is_empty() && !contains_ignore_case(&bounds.bound_resource_groups, self.group)
        {
            return Err(forbidden("resource group not authorized"));
        }
        Ok(())
    }

    /// Returns the name and value with which the resource is added to the token's metadata.
    pub(super) fn metadata_entry(&self) -> (&'static str, String) {
        let name = match self.selector {
            ResourceSelector::ScaleSet(name) | ResourceSelector::Machine(name) => name.clone(),
            ResourceSelector::Resource(id) => id.to_string(),
        };
        (self.selector.parameter_name(), name)
    }
}

impl ResourceSelector {
    /// Name of the request parameter that selects the resource.
    fn parameter_name(&self) -> &'static str {
        match self {
            Self::ScaleSet(_) => "vmss_name",
            Self::Machine(_) => "vm_name",
            Self::Resource(_) => "resource_id",
        }
    }

    /// `true` if `id` denotes the selected resource or, for a scale set, one of its machines.
    fn matches(&self, id: &ArmId) -> bool {
        match self {
            Self::Resource(own) => own == id,
            Self::Machine(own) => {
                id.names_of(COMPUTE_NAMESPACE, &[MACHINE_TYPE]).is_some_and(|names| names[0].eq_ignore_ascii_case(own))
            }
            Self::ScaleSet(own) => {
                let uniform = id
                    .names_of(COMPUTE_NAMESPACE, &[SCALE_SET_TYPE])
                    .or_else(|| id.names_of(COMPUTE_NAMESPACE, &[SCALE_SET_TYPE, MACHINE_TYPE]));
                let machine = id.names_of(COMPUTE_NAMESPACE, &[MACHINE_TYPE]).map(|names| names[0]);
                // The name of a machine in a flexible scale set is the name of the set, `_`, and a suffix without `_`.
                let flexible = machine.and_then(|name| name.rsplit_once('_')).filter(|(_, suffix)| !suffix.is_empty());
                uniform.is_some_and(|names| names[0].eq_ignore_ascii_case(own))
                    || flexible.is_some_and(|(set, _)| set.eq_ignore_ascii_case(own))
            }
        }
    }
}

impl ResourceDetails {
    pub(super) fn has_principal(&self, oid: &str) -> bool {
        !oid.is_empty() && contains_ignore_case(&self.principals, oid)
    }

    /// Validates the resource's location against the list of a role.
    ///
    /// # Errors
    /// `Forbidden` for a location that is unknown or not in the list.
    pub(super) fn check_location(&self, bounds: &CloudbRoleBounds) -> Result<()> {
        if bounds.bound_locations.is_empty() {
            return Ok(());
        }
        let plain = |text: &str| text.replace(' ', "").to_lowercase();
        match plain(&self.location) {
            own if own.is_empty() => Err(forbidden("location is empty")),
            own if bounds.bound_locations.iter().any(|location| plain(location) == own) => Ok(()),
            _ => Err(forbidden("location not authorized")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::request::CloudbLoginRequest;
    use super::*;

    const S1: &str = "00000000-0000-0000-0000-000000000001";
    const S2: &str = "00000000-0000-0000-0000-000000000002";

    fn id(subscription: &str, group: &str, rest: &str) -> String {
        format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/{rest}")
    }

    fn machine(group: &str, name: &str) -> String {
        id(S1, group, &format!("Microsoft.Compute/virtualMachines/{name}"))
    }

    fn claims(az_rid: &str, mirid: &str) -> CloudbClaims {
        let Value::Object(claims) = json!({"oid": "o1", "xms_az_rid": az_rid, "xms_mirid": mirid}) else {
            panic!("an object")
        };
        CloudbClaims::parse(&claims).unwrap()
    }

    fn claimed(group: &str, field: &str, value: &str) -> ClaimedResource {
        let mut request = CloudbLoginRequest {
            subscription_id: S1.to_owned(),
            resource_group_name: group.to_owned(),
            ..CloudbLoginRequest::default()
        };
        match field {
            "vm_name" => request.vm_name = value.to_owned(),
            "vmss_name" => request.vmss_name = value.to_owned(),
            _ => request.resource_id = value.to_owned(),
        }
        request.claimed_resource().unwrap()
    }

    fn outcome(claimed: &ClaimedResource, claims: &CloudbClaims, bounds: &CloudbRoleBounds) -> Result<(), String> {
        ProvenResource::new(claimed, claims, bounds).map(drop).map_err(|error| error.text().to_owned())
    }

    fn check_claims_agree(claimed: &ClaimedResource, az_rid: &str, mirid: &str) -> Result<(), String> {
        outcome(claimed, &claims(az_rid, mirid), &CloudbRoleBounds::default())
    }

    fn mismatch(field: &str) -> Result<(), String> {
        Err(format!("token claims do not match {field}"))
    }

    #[test]
    fn virtual_machine_name_must_match_the_claim_exactly() {
        let web = claimed("rg1", "vm_name", "web");
        assert_eq!(check_claims_agree(&web, "", &machine("rg1", "web")), Ok(()));
        assert_eq!(check_claims_agree(&web, &machine("RG1", "WEB"), ""), Ok(()));
        for other in ["web2", "we", "web_b"] {
            assert_eq!(check_claims_agree(&web, "", &machine("rg1", other)), mismatch("vm_name"), "{other}");
        }
        assert_eq!(
            check_claims_agree(&claimed("rg1", "vm_name", "web2"), "", &machine("rg1", "web")),
            mismatch("vm_name")
        );
        // The expected name or type occurs in the id, but at the wrong position.
        for rest in [
            "Microsoft.Compute/virtualMachines/web/extensions/a",
            "Evil.Compute/virtualMachines/web",
            "Microsoft.Compute/disks/virtualMachines",
            "Microsoft.Web/sites/virtualMachines/slots/web",
        ] {
            assert_eq!(check_claims_agree(&web, "", &id(S1, "rg1", rest)), mismatch("vm_name"), "{rest}");
        }
    }

    #[test]
    fn scale_set_name_matches_uniform_and_flexible_members() {
        let of = |rest: &str| id(S1, "rg1", &format!("Microsoft.Compute/{rest}"));
        let web = claimed("rg1", "vmss_name", "web");
        let web_b = claimed("rg1", "vmss_name", "web_b");
        for good in
            ["virtualMachineScaleSets/web", "virtualMachineScaleSets/web/virtualMachines/3", "virtualMachines/web_1a2b"]
        {
            assert_eq!(check_claims_agree(&web, "", &of(good)), Ok(()), "{good}");
        }
        for bad in [
            "virtualMachineScaleSets/web2",
            "virtualMachines/web_b_1a2b",
            "virtualMachines/web_",
            "virtualMachines/web",
            "virtualMachineScaleSets/web/disks/3",
        ] {
            assert_eq!(check_claims_agree(&web, "", &of(bad)), mismatch("vmss_name"), "{bad}");
        }
        assert_eq!(check_claims_agree(&web_b, "", &of("virtualMachines/web_b_1a2b")), Ok(()));
        assert_eq!(check_claims_agree(&web_b, "", &of("virtualMachines/web_b")), mismatch("vmss_name"));
    }

    #[test]
    fn group_and_subscription_must_match_the_claim() {
        let web = |group| claimed(group, "vm_name", "web");
        assert_eq!(check_claims_agree(&web("rg2"), "", &machine("rg1", "web")), mismatch("resource_group_name"));
        let elsewhere = id(S2, "rg1", "Microsoft.Compute/virtualMachines/web");
        assert_eq!(check_claims_agree(&web("rg1"), "", &elsewhere), mismatch("subscription_id"));
        assert_eq!(check_claims_agree(&web("RG1"), "", &machine("rg1", "web")), Ok(()));
    }

    #[test]
    fn resource_must_match_a_single_claim_in_all_parts() {
        let identity = id(S1, "rg-a", "Microsoft.ManagedIdentity/userAssignedIdentities/i");
        let vm = machine("rg-b", "web");
        assert_eq!(check_claims_agree(&claimed("rg-a", "vm_name", "web"), &vm, &identity), mismatch("vm_name"));
        assert_eq!(check_claims_agree(&claimed("rg-b", "vm_name", "web"), &vm, &identity), Ok(()));
    }

    #[test]
    fn resource_id_must_match_a_claim_exactly() {
        let site = id(S1, "rg1", "Microsoft.Web/sites/a");
        let of = |rest: &str| claimed("rg1", "resource_id", &id(S1, "rg1", rest));
        assert_eq!(check_claims_agree(&of("Microsoft.Web/sites/A"), "", &site), Ok(()));
        assert_eq!(check_claims_agree(&of("Microsoft.Web/sites/A"), &site, ""), Ok(()));
        for other in ["Microsoft.Web/sites/a2", "Microsoft.Web/sites/a/slots/b", "Microsoft.Web/other/a"] {
            assert_eq!(check_claims_agree(&of(other), "", &site), mismatch("resource_id"));
        }
        // The resource group in the request must match the claims too.
        assert_eq!(
            check_claims_agree(&claimed("rg2", "resource_id", &site), "", &site),
            mismatch("resource_group_name")
        );
    }

    #[test]
    fn missing_claims_and_fields_are_named() {
        let missing = Err("xms_az_rid and xms_mirid claims are missing from token".to_owned());
        assert_eq!(check_claims_agree(&claimed("rg1", "vm_name", "web"), "", ""), missing);
        assert_eq!(check_claims_agree(&claimed("rg1", "vm_name", "web"), "", "no id"), mismatch("subscription_id"));
        let required = Err("subscription_id and resource_group_name are required".to_owned());
        assert_eq!(check_claims_agree(&claimed("", "vm_name", "web"), "", &machine("rg1", "web")), required);
        let selector = Err("one of vm_name, vmss_name or resource_id must be provided".to_owned());
        assert_eq!(check_claims_agree(&claimed("rg1", "vm_name", ""), "", &machine("rg1", "web")), selector);
    }

    #[test]
    fn bounds_are_checked_before_the_provider_is_called() {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        let bounds = |subscriptions: &[&str], groups: &[&str], scale_sets: &[&str]| CloudbRoleBounds {
            bound_subscription_ids: list(subscriptions),
            bound_resource_groups: list(groups),
            bound_scale_sets: list(scale_sets),
            ..CloudbRoleBounds::default()
        };
        let vm = claimed("rg1", "vm_name", "web");
        let vmss = claimed("rg1", "vmss_name", "web");
        let site = id(S1, "rg1", "Microsoft.Web/sites/a");
        let resource = claimed("rg1", "resource_id", &site);
        let of_vm = claims("", &machine("rg1", "web"));
        let of_set = claims("", &machine("rg1", "web_1"));
        let of_site = claims("", &site);
        let sets = |names: &[&str]| bounds(&[], &[], names);
        assert_eq!(outcome(&vmss, &of_set, &sets(&["Web"])), Ok(()));
        for (claimed, claims, bounds, text) in [
            (&vmss, &of_set, sets(&["web2"]), "scale set not authorized"),
            (&vm, &of_vm, sets(&["web"]), "bound scale set defined but this vm isn't in a scale set"),
            (&resource, &of_site, sets(&["web"]), "scale set requires the vmss_name field to be set"),
            (&vm, &of_vm, bounds(&[S2], &[], &[]), "subscription not authorized"),
            (&vm, &of_vm, bounds(&[S1], &["rg2", "*"], &[]), "resource group not authorized"),
        ] {
            assert_eq!(outcome(claimed, claims, &bounds), Err(text.to_owned()));
        }
        assert_eq!(outcome(&vm, &of_vm, &bounds(&[S2, S1], &["RG1"], &[])), Ok(()));
    }

    #[test]
    fn locations_match_without_blanks_and_letter_case() {
        let bounds = |location: &str| CloudbRoleBounds {
            bound_locations: vec![location.to_owned()],
            ..CloudbRoleBounds::default()
        };
        let at = |location: &str| ResourceDetails { location: location.to_owned(), ..ResourceDetails::default() };
        for (bound, own) in [("West US", "westus"), ("westus", "West US"), ("westus", "westus")] {
            at(own).check_location(&bounds(bound)).unwrap();
        }
        assert_eq!(at("westus2").check_location(&bounds("westus")).unwrap_err().text(), "location not authorized");
        assert_eq!(at("").check_location(&bounds("westus")).unwrap_err().text(), "location is empty");
        at("").check_location(&CloudbRoleBounds::default()).unwrap();
    }

    #[test]
    fn empty_principal_matches_no_resource() {
        let resource =
            ResourceDetails { principals: vec![String::new(), "O1".to_owned()], ..ResourceDetails::default() };
        assert!(resource.has_principal("o1") && !resource.has_principal("") && !resource.has_principal("o2"));
    }
}

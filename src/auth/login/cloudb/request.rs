//! The fields of a `cloudb` login request, and the validation of their format.

use super::arm_id::ArmId;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// Maximum length of a resource group name in characters.
const MAX_GROUP_NAME_CHARS: usize = 90;
/// Maximum length of a virtual machine or scale set name in bytes.
const MAX_MACHINE_NAME_BYTES: usize = 64;

/// A login request; a missing field is `""`.
#[derive(Default)]
pub(crate) struct CloudbLoginRequest {
    pub(crate) role: String,
    pub(crate) jwt: Secret,
    pub(crate) subscription_id: String,
    pub(crate) resource_group_name: String,
    pub(crate) vm_name: String,
    pub(crate) vmss_name: String,
    pub(crate) resource_id: String,
}

/// The resource on which the client claims to run, with every field in a valid format. Missing fields are empty.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ClaimedResource {
    pub(super) subscription: String,
    pub(super) group: String,
    pub(super) selector: Option<ResourceSelector>,
}

/// The kind and name of the resource in a login request. If a request names several, a scale set takes precedence over
/// a machine, and a machine over a resource id.
#[derive(Debug, PartialEq)]
pub(super) enum ResourceSelector {
    ScaleSet(String),
    Machine(String),
    Resource(ArmId),
}

impl CloudbLoginRequest {
    /// Validates the format of the resource fields, and returns the resource that they name.
    ///
    /// # Errors
    /// `Invalid` for a malformed field, even if the role requires no resource.
    pub(super) fn claimed_resource(&self) -> Result<ClaimedResource> {
        check_field("subscription id", &self.subscription_id, is_guid)?;
        check_field("resource group name", &self.resource_group_name, is_resource_group_name)?;
        check_field("vmss_name", &self.vmss_name, is_machine_name)?;
        check_field("vm name", &self.vm_name, is_machine_name)?;
        let resource = match self.resource_id.as_str() {
            "" => None,
            text => Some(ArmId::parse(text)?),
        };
        let selector = match (self.vmss_name.as_str(), self.vm_name.as_str()) {
            ("", "") => resource.map(ResourceSelector::Resource),
            ("", name) => Some(ResourceSelector::Machine(name.to_owned())),
            (name, _) => Some(ResourceSelector::ScaleSet(name.to_owned())),
        };
        let subscription = self.subscription_id.clone();
        let group = self.resource_group_name.clone();
        Ok(ClaimedResource { subscription, group, selector })
    }
}

fn check_field(what: &str, text: &str, is: fn(&str) -> bool) -> Result<()> {
    if text.is_empty() || is(text) {
        return Ok(());
    }
    // The quoted value is truncated, so that the response does not grow with the request.
    let begin: String = text.chars().take(64).collect();
    Err(Error::invalid(format!("invalid {what} {begin:?}")))
}

/// `true` if the text has the form of a GUID.
pub(super) fn is_guid(text: &str) -> bool {
    let lengths = text.split('-').map(|part| if part.bytes().all(|b| b.is_ascii_hexdigit()) { part.len() } else { 0 });
    lengths.eq([8, 4, 4, 4, 12])
}

fn is_resource_group_name(text: &str) -> bool {
    let is_allowed_char = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')');
    text.chars().count() <= MAX_GROUP_NAME_CHARS && text.chars().all(is_allowed_char) && !text.ends_with('.')
}

fn is_machine_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let one = bytes.len() == 1;
    bytes.len() <= MAX_MACHINE_NAME_BYTES
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && (one || bytes.last().is_some_and(word))
        && bytes.iter().all(|b| word(b) || matches!(b, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: &str = "0b1f6471-1bf0-4dda-aec3-cb9272f09590";

    fn request_error(edit: impl FnOnce(&mut CloudbLoginRequest)) -> Option<String> {
        let mut request = CloudbLoginRequest::default();
        edit(&mut request);
        request.claimed_resource().err().map(|error| error.text().to_owned())
    }

    #[test]
    fn login_request_fields_are_validated() {
        for good in [GUID, "00000000-0000-0000-0000-00000000000A", ""] {
            assert_eq!(request_error(|r| r.subscription_id = good.to_owned()), None, "{good}");
        }
        for bad in
            ["s1", &GUID[1..], &format!("{GUID}\n"), &format!("{GUID}/x"), "0b1f6471-1bf0-4dda-aec3-cb9272f0959g"]
        {
            let text = format!("invalid subscription id {bad:?}");
            assert_eq!(request_error(|r| r.subscription_id = bad.to_owned()), Some(text));
        }
        for good in ["rg1", "RG_(ä).1", "-", &"a".repeat(MAX_GROUP_NAME_CHARS)] {
            assert_eq!(request_error(|r| r.resource_group_name = good.to_owned()), None, "{good}");
        }
        for bad in ["rg.", "r/g", "r g", "rg\n", "r%2fg", "..", "rg?"] {
            let text = format!("invalid resource group name {bad:?}");
            assert_eq!(request_error(|r| r.resource_group_name = bad.to_owned()), Some(text));
        }
        assert!(request_error(|r| r.resource_group_name = "a".repeat(MAX_GROUP_NAME_CHARS + 1)).is_some());
        for good in ["w", "web", "web-1.a_", "W9", &"a".repeat(MAX_MACHINE_NAME_BYTES)] {
            assert_eq!(request_error(|r| r.vm_name = good.to_owned()), None, "{good}");
            assert_eq!(request_error(|r| r.vmss_name = good.to_owned()), None, "{good}");
        }
        for bad in
            ["9", "1web", "web-", "web.", "_web", "we/b", "web\n", "wäb", "..", &"a".repeat(MAX_MACHINE_NAME_BYTES + 1)]
        {
            let begin: String = bad.chars().take(64).collect();
            assert_eq!(request_error(|r| r.vm_name = bad.to_owned()), Some(format!("invalid vm name {begin:?}")));
            assert_eq!(request_error(|r| r.vmss_name = bad.to_owned()), Some(format!("invalid vmss_name {begin:?}")));
        }
        assert_eq!(request_error(|r| r.resource_id = "/x".to_owned()).as_deref(), Some("invalid resource_id"));
    }

    #[test]
    fn resource_selectors_have_a_precedence() {
        let id = "/subscriptions/s/resourceGroups/g/providers/A.B/c/d";
        let mut request = CloudbLoginRequest { resource_id: id.to_owned(), ..CloudbLoginRequest::default() };
        assert_eq!(
            request.claimed_resource().unwrap().selector,
            Some(ResourceSelector::Resource(ArmId::parse(id).unwrap()))
        );
        request.vm_name = "vm".to_owned();
        assert_eq!(request.claimed_resource().unwrap().selector, Some(ResourceSelector::Machine("vm".to_owned())));
        request.vmss_name = "set".to_owned();
        assert_eq!(request.claimed_resource().unwrap().selector, Some(ResourceSelector::ScaleSet("set".to_owned())));
        assert_eq!(CloudbLoginRequest::default().claimed_resource().unwrap(), ClaimedResource::default());
    }
}

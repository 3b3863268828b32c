//! Queries of the provider's resource API: location and identities of a resource.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::arm_id::{ArmId, percent_encode};
use super::proof::{COMPUTE_NAMESPACE, MACHINE_TYPE, ProvenResource, ResourceDetails, SCALE_SET_TYPE};
use super::provider::{CloudbProvider, invalid_response};
use super::request::ResourceSelector;
use crate::auth::login::verifier::forbidden;
use crate::error::Result;

/// API versions for queries of machines and scale sets, of identities, and of the list of resource types.
const COMPUTE_API_VERSION: &str = "2023-03-01";
const IDENTITY_API_VERSION: &str = "2023-01-31";
const TYPES_API_VERSION: &str = "2021-04-01";
/// API version for resources whose type is missing from the list of resource types.
const FALLBACK_API_VERSION: &str = "2022-03-01";

/// Namespace and type of user-assigned identities, which are resources themselves.
const IDENTITY_NAMESPACE: &str = "Microsoft.ManagedIdentity";
const IDENTITY_TYPE: &str = "userAssignedIdentities";

const MAX_IDENTITY_PAGES: usize = 50;
/// Maximum number of a scale set's identities whose principals are queried one by one.
const MAX_IDENTITY_LOOKUPS: usize = 50;

#[derive(Deserialize)]
struct ResourceResponse {
    location: Option<String>,
    identity: Option<ResourceIdentity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceIdentity {
    principal_id: Option<String>,
    /// User-assigned identities of the resource, by the resource id of the identity.
    user_assigned_identities: Option<BTreeMap<String, Option<AssignedIdentity>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AssignedIdentity {
    principal_id: Option<String>,
}

/// The response to a query of a user-assigned identity.
#[derive(Deserialize)]
struct UserAssignedIdentity {
    properties: Option<UserAssignedIdentityProperties>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UserAssignedIdentityProperties {
    principal_id: Option<String>,
    client_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UserAssignedIdentityPage {
    #[serde(default)]
    value: Vec<UserAssignedIdentity>,
    next_link: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceTypeList {
    #[serde(default)]
    resource_types: Vec<ResourceTypeEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceTypeEntry {
    resource_type: String,
    #[serde(default)]
    api_versions: Vec<String>,
}

impl CloudbProvider {
    /// Queries the location and the identities' principals of a proven resource.
    ///
    /// # Errors
    /// `Forbidden` when the resource does not exist or has no identity; the errors of [`CloudbProvider::get`].
    pub(super) async fn query_resource(&self, proven: &ProvenResource<'_>) -> Result<ResourceDetails> {
        let of = |kind, name| ArmId::of(proven.subscription, proven.group, COMPUTE_NAMESPACE, kind, name).path();
        let (body, whose): (ResourceResponse, _) = match proven.selector {
            ResourceSelector::Machine(name) => {
                let query = format!("$expand=instanceView&api-version={COMPUTE_API_VERSION}");
                (self.get("vm", &format!("{}?{query}", of(MACHINE_TYPE, name))).await?, "vm client")
            }
            ResourceSelector::ScaleSet(name) => {
                let path = format!("{}?api-version={COMPUTE_API_VERSION}", of(SCALE_SET_TYPE, name));
                (self.get("vmss", &path).await?, "vmss client")
            }
            ResourceSelector::Resource(id) => {
                let version = self.api_version_of(id).await?;
                let path = format!("{}?api-version={}", id.path(), percent_encode(&version));
                (self.get("resource", &path).await?, "client")
            }
        };
        let missing = || forbidden(format!("{whose} did not return identity information"));
        let identity = body.identity.ok_or_else(missing)?;
        let looked_up = matches!(proven.selector, ResourceSelector::ScaleSet(_));
        let principals = self.principals(identity, looked_up).await?;
        Ok(ResourceDetails { location: body.location.unwrap_or_default(), principals })
    }

    /// Returns the principals of a resource's identities. For a flexible scale set, the API lists identities without
    /// principals. If `look_up` is `true`, the principals of these identities are queried one by one.
    async fn principals(&self, identity: ResourceIdentity, look_up: bool) -> Result<Vec<String>> {
        let mut principals: Vec<String> = identity.principal_id.into_iter().collect();
        let mut lookups = 0;
        for (id, assigned) in identity.user_assigned_identities.unwrap_or_default() {
            match assigned.and_then(|assigned| assigned.principal_id) {
                Some(principal) => principals.push(principal),
                None if look_up && lookups < MAX_IDENTITY_LOOKUPS => {
                    lookups += 1;
                    principals.extend(self.principal_of(&id).await?);
                }
                None => {}
            }
        }
        principals.retain(|principal| !principal.is_empty());
        Ok(principals)
    }

    async fn principal_of(&self, id: &str) -> Result<Option<String>> {
        let wrong = || invalid_response("cloudb: the provider: invalid identity id in the response");
        let id = ArmId::parse(id)
            .ok()
            .filter(|id| id.names_of(IDENTITY_NAMESPACE, &[IDENTITY_TYPE]).is_some())
            .ok_or_else(wrong)?;
        let path = format!("{}?api-version={IDENTITY_API_VERSION}", id.path());
        let identity: UserAssignedIdentity = self.get("identity", &path).await?;
        Ok(identity.properties.and_then(|properties| properties.principal_id))
    }

    /// `true` if `client_id` is the client id of a user-assigned identity in the resource group.
    ///
    /// # Errors
    /// `Unavailable` when the list of identities has too many pages; the errors of [`CloudbProvider::get`].
    pub(super) async fn has_identity_with_client_id(
        &self,
        proven: &ProvenResource<'_>,
        client_id: &str,
    ) -> Result<bool> {
        let group = [proven.subscription, proven.group].map(percent_encode);
        let path = format!(
            "/subscriptions/{}/resourceGroups/{}/providers/{IDENTITY_NAMESPACE}/{IDENTITY_TYPE}?api-version={IDENTITY_API_VERSION}",
            group[0], group[1]
        );
        let mut page: UserAssignedIdentityPage = self.get("identities", &path).await?;
        for _ in 1..MAX_IDENTITY_PAGES {
            if page.value.iter().any(|identity| identity.has_client_id(client_id)) {
                return Ok(true);
            }
            let Some(link) = page.next_link.filter(|link| !link.is_empty()) else { return Ok(false) };
            page = self.get_next_page("identities", &link).await?;
        }
        match page.value.iter().any(|identity| identity.has_client_id(client_id)) {
            true => Ok(true),
            false if page.next_link.is_none_or(|link| link.is_empty()) => Ok(false),
            false => Err(invalid_response(format!(
                "cloudb: the provider: the list of identities has more than {MAX_IDENTITY_PAGES} pages"
            ))),
        }
    }

    /// Returns the newest stable API version for the type of a resource, from the cache or from the provider's list of
    /// types.
    async fn api_version_of(&self, id: &ArmId) -> Result<String> {
        let kind = format!("{}/{}", id.namespace, id.kind());
        if let Some(known) = self.cached_api_version(&kind) {
            return Ok(known);
        }
        let subscription = percent_encode(&id.subscription);
        let namespace = percent_encode(&id.namespace);
        let path = format!("/subscriptions/{subscription}/providers/{namespace}?api-version={TYPES_API_VERSION}");
        let types: ResourceTypeList = self.get("types", &path).await?;
        let version = types.newest_stable_version(&id.kind()).unwrap_or(FALLBACK_API_VERSION);
        self.cache_api_version(&kind, version);
        Ok(version.to_owned())
    }
}

impl UserAssignedIdentity {
    fn has_client_id(&self, client_id: &str) -> bool {
        let own_client_id = self.properties.as_ref().and_then(|properties| properties.client_id.as_deref());
        own_client_id
            .is_some_and(|own_client_id| !own_client_id.is_empty() && own_client_id.eq_ignore_ascii_case(client_id))
    }
}

impl ResourceTypeList {
    /// Returns the newest API version of a type, ignoring preview versions. Versions are ISO dates, so they are
    /// compared as text.
    fn newest_stable_version(&self, kind: &str) -> Option<&str> {
        let entry = self.resource_types.iter().find(|known| known.resource_type.eq_ignore_ascii_case(kind))?;
        let stable_versions =
            entry.api_versions.iter().filter(|version| !version.contains("preview") && version.len() <= 32);
        stable_versions.max().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn newest_stable_api_version_is_selected() {
        let types: ResourceTypeList = serde_json::from_value(json!({"resourceTypes": [
            {"resourceType": "sites", "apiVersions": ["2021-01-01", "2023-12-01", "2024-05-01-preview", "2022-09-01"]},
            {"resourceType": "sites/slots", "apiVersions": ["2020-01-01-preview"]},
        ]}))
        .unwrap();
        assert_eq!(types.newest_stable_version("Sites"), Some("2023-12-01"));
        assert_eq!((types.newest_stable_version("sites/slots"), types.newest_stable_version("other")), (None, None));
    }

    #[test]
    fn identities_with_missing_members_are_parsed() {
        let body: ResourceResponse =
            serde_json::from_value(json!({"identity": {"principalId": null, "userAssignedIdentities":
            {"/a": null, "/b": {}, "/c": {"principalId": "p", "clientId": "c"}}}, "other": 1}))
            .unwrap();
        let identity = body.identity.unwrap();
        let assigned = identity.user_assigned_identities.unwrap();
        assert!(identity.principal_id.is_none() && body.location.is_none() && assigned["/a"].is_none());
        assert_eq!(assigned["/c"].as_ref().unwrap().principal_id.as_deref(), Some("p"));
        let identity: UserAssignedIdentity = serde_json::from_value(json!({"properties": {"clientId": ""}})).unwrap();
        assert!(!identity.has_client_id(""));
    }
}

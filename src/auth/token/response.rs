//! The `auth` object of a response: a token and its properties.

use std::collections::BTreeMap;

use serde::Serialize;

use super::record::{TokenAttributes, TokenRecord, remaining_time};
use crate::auth::identity::merge_policy_names;
use crate::clock::Time;
use crate::secret::Secret;

/// The `auth` object. Serializes the members that are not secret; token and accessor are rendered separately.
#[derive(Default, Serialize)]
pub struct TokenResponse {
    /// `client_token`; empty if the request used the accessor.
    #[serde(skip)]
    pub token: Secret,
    /// Accessor; empty for a batch token.
    #[serde(skip)]
    pub accessor: String,
    /// Id of its entity; `""` for none.
    pub entity_id: String,
    /// Policies of the entity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identity_policies: Vec<String>,
    /// Remaining lifetime in seconds; 0 for unlimited.
    pub lease_duration: u64,
    /// Metadata; `None` for none.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Always null: there is no multi-factor authentication.
    pub mfa_requirement: (),
    /// Uses left; 0 without a limit.
    pub num_uses: u32,
    /// `true` if it has no parent.
    pub orphan: bool,
    /// All policies, sorted.
    pub policies: Vec<String>,
    /// `true` if it can be renewed.
    pub renewable: bool,
    /// Policies of the token itself.
    pub token_policies: Vec<String>,
    /// `service` or `batch`.
    pub token_type: &'static str,
}

impl TokenResponse {
    /// Describes a token at `now`; `token` is empty if the request used the accessor.
    pub(super) fn new(token: Secret, record: TokenRecord, attributes: &TokenAttributes, now: Time) -> Self {
        let TokenRecord { accessor, policies, meta, renewable, entity_id, .. } = record;
        Self {
            token,
            accessor,
            entity_id,
            identity_policies: Vec::new(),
            lease_duration: attributes.expires_at.map_or(0, |end| remaining_time(end, now).as_secs()),
            metadata: Some(meta).filter(|meta| !meta.is_empty()),
            mfa_requirement: (),
            num_uses: attributes.uses.unwrap_or(0),
            orphan: attributes.orphan,
            policies: policies.clone(),
            renewable,
            token_policies: policies,
            token_type: attributes.token_type(),
        }
    }

    pub(super) fn with_identity(mut self, policies: &[String]) -> Self {
        if !policies.is_empty() {
            self.policies = merge_policy_names(&self.token_policies, policies);
            self.identity_policies = policies.to_vec();
        }
        self
    }

    /// Serializes all members except token and accessor as JSON, without the enclosing braces.
    pub fn members_json(&self) -> Vec<u8> {
        // Cannot fail, because all map keys are text.
        let mut members = serde_json::to_vec(self).unwrap_or_default();
        members.pop();
        members.drain(..1.min(members.len()));
        members
    }
}

#[cfg(test)]
impl From<TokenResponse> for serde_json::Value {
    fn from(given: TokenResponse) -> Self {
        let mut rendered = serde_json::to_value(&given).unwrap();
        rendered["client_token"] = given.token.expose_text().unwrap().into();
        rendered["accessor"] = given.accessor.into();
        rendered
    }
}

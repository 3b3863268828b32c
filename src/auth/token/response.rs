//! The `auth` object of a response: a token with its properties.

use std::collections::BTreeMap;

use serde::Serialize;

use super::record::{TokenAttributes, TokenRecord, remaining_time};
use crate::auth::identity::merge_policy_names;
use crate::clock::Time;
use crate::secret::Secret;

/// The `auth` object of a response. It serializes without token and accessor, which are secret and rendered separately.
#[derive(Default, Serialize)]
pub struct TokenResponse {
    /// Text of the token (`client_token`); empty if the request named the token by its accessor.
    #[serde(skip)]
    pub token: Secret,
    /// Accessor of the token; empty for a batch token.
    #[serde(skip)]
    pub accessor: String,
    /// Id of the token's entity; `""` for none.
    pub entity_id: String,
    /// Names of the policies of the token's entity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identity_policies: Vec<String>,
    /// Remaining lifetime of the token in seconds; 0 for unlimited.
    pub lease_duration: u64,
    /// Metadata of the token; `None` for none.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Always null, because this server has no multi-factor authentication.
    pub mfa_requirement: (),
    /// Number of uses that the token has left; 0 without a limit.
    pub num_uses: u32,
    /// `true` if the token has no parent.
    pub orphan: bool,
    /// Names of all policies of token and entity, sorted.
    pub policies: Vec<String>,
    /// `true` if the token can be renewed.
    pub renewable: bool,
    /// Names of the policies attached to the token itself.
    pub token_policies: Vec<String>,
    /// Type of the token: `service` or `batch`.
    pub token_type: &'static str,
}

impl TokenResponse {
    /// Describes a token at the time `now`; `token` is empty if the request named the token by its accessor.
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

    /// Renders all members except token and accessor as JSON, without the enclosing braces.
    pub fn members_json(&self) -> Vec<u8> {
        // Serialization cannot fail, because all map keys are text.
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

//! A token as it is given to somebody: the `auth` object of an answer.

use std::collections::BTreeMap;

use serde::Serialize;

use super::record::{Record, Standing, remaining};
use crate::auth::identity::together;
use crate::clock::Time;
use crate::secret::Secret;

/// The `auth` object. What is serialized are the members that hide nothing from whoever may read the answer's record:
/// all but the token and its accessor.
#[derive(Default, Serialize)]
pub struct Given {
    /// `client_token`; empty where the caller did not name it.
    #[serde(skip)]
    pub token: Secret,
    /// Its handle; empty for a batch token.
    #[serde(skip)]
    pub accessor: String,
    /// The entity that it is of; `""` for none.
    pub entity_id: String,
    /// What it may do as that entity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identity_policies: Vec<String>,
    /// Seconds that it lives from now; 0 without an end.
    pub lease_duration: u64,
    /// What is attached to it; `None` for nothing.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Always null: nobody is asked for a second proof.
    pub mfa_requirement: (),
    /// Uses left; 0 without a limit.
    pub num_uses: u32,
    /// Whether it has no parent.
    pub orphan: bool,
    /// All that it may do, sorted.
    pub policies: Vec<String>,
    /// Whether its life can be made longer.
    pub renewable: bool,
    /// What it may do of its own.
    pub token_policies: Vec<String>,
    /// `service` or `batch`.
    pub token_type: &'static str,
}

impl Given {
    /// A token at `now`; `token` is empty where the caller did not name it.
    pub(super) fn new(token: Secret, record: Record, standing: &Standing, now: Time) -> Self {
        let Record { accessor, policies, meta, renewable, entity_id, .. } = record;
        Self {
            token,
            accessor,
            entity_id,
            identity_policies: Vec::new(),
            lease_duration: standing.expires_at.map_or(0, |end| remaining(end, now).as_secs()),
            metadata: Some(meta).filter(|meta| !meta.is_empty()),
            mfa_requirement: (),
            num_uses: standing.uses.unwrap_or(0),
            orphan: standing.orphan,
            policies: policies.clone(),
            renewable,
            token_policies: policies,
            token_type: standing.word(),
        }
    }

    /// With the policies that it has by its entity.
    pub(super) fn with_identity(mut self, policies: &[String]) -> Self {
        if !policies.is_empty() {
            self.policies = together(&self.token_policies, policies);
            self.identity_policies = policies.to_vec();
        }
        self
    }

    /// The members but token and accessor as JSON text, without the braces around them.
    pub fn others(&self) -> Vec<u8> {
        // Values here have text keys only: this cannot fail.
        let mut members = serde_json::to_vec(self).unwrap_or_default();
        members.pop();
        members.drain(..1.min(members.len()));
        members
    }
}

#[cfg(test)]
impl From<Given> for serde_json::Value {
    fn from(given: Given) -> Self {
        let mut told = serde_json::to_value(&given).unwrap();
        told["client_token"] = given.token.expose_text().unwrap().into();
        told["accessor"] = given.accessor.into();
        told
    }
}

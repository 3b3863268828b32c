//! One secret id: what it was made with, and what is asked of a new one.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::hmac;
use serde::{Deserialize, Serialize};

use super::role::{AppRole, within};
use crate::auth::mounts::Mount;
use crate::auth::store::{SecretIdHash, SecretIdRow};
use crate::auth::token::Network;
use crate::clock::Time;
use crate::error::{Error, Result, Warnings};
use crate::secret::Secret;

/// Longest secret id, bytes.
pub(super) const MAX_TEXT: usize = 4_096;

/// What a new secret id is asked to be. What is not given is the role's.
pub(crate) struct Wanted {
    /// Its text, when that is chosen.
    pub(crate) text: Option<Secret>,
    /// What tokens of it get in their metadata.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Where it may be used; within the role's networks.
    pub(crate) cidr_list: Vec<Network>,
    /// Where tokens of it may be used, in place of the role's networks and within them.
    pub(crate) token_bound_cidrs: Vec<Network>,
    /// How often it may be used; 0 without a limit.
    pub(crate) num_uses: Option<u32>,
    /// How long it may be used, in whole seconds; zero for as long as its role and mount allow.
    pub(crate) ttl: Option<Duration>,
}

/// A new one, in the only answer that has its text.
pub(crate) struct Issued {
    /// The text.
    pub(crate) text: Secret,
    /// Its handle.
    pub(crate) accessor: String,
    /// How long it may be used.
    pub(crate) ttl: Duration,
    /// How often it may be used; 0 without a limit.
    pub(crate) num_uses: u32,
    /// What its caller asked for and did not get.
    pub(crate) warnings: Warnings,
}

/// What is stored of one beside its row's columns.
#[derive(Serialize, Deserialize)]
pub(crate) struct Terms {
    /// See [`Wanted`].
    pub(crate) metadata: BTreeMap<String, String>,
    /// See [`Wanted`].
    pub(crate) cidr_list: Vec<Network>,
    /// See [`Wanted`].
    pub(crate) token_bound_cidrs: Vec<Network>,
    /// How long it may be used from its making; zero without an end, as older releases stored it.
    pub(crate) ttl: Duration,
    /// When it was made.
    #[serde(with = "crate::auth::instant")]
    pub(crate) created_at: Time,
}

/// A secret id that lives.
pub(crate) struct SecretId {
    /// Its row.
    pub(crate) row: SecretIdRow,
    /// What is in the row's body.
    pub(crate) terms: Terms,
}

impl SecretId {
    /// One that is stored; `None` when it has ended.
    pub(super) fn live(row: SecretIdRow, now: Time) -> Result<Option<Self>> {
        if row.expires_at.is_some_and(|end| end <= now) || row.uses == Some(0) {
            return Ok(None);
        }
        let terms = serde_json::from_slice(&row.body).map_err(Error::internal)?;
        Ok(Some(Self { row, terms }))
    }
}

/// The hash of a secret id of this role. It is keyed: a chosen secret id may be a word that somebody who reads the
/// database could guess.
pub(super) fn hash(role: &AppRole, text: &[u8]) -> SecretIdHash {
    let key = hmac::Key::new(hmac::HMAC_SHA256, role.key.expose());
    let mut hash = SecretIdHash::default();
    hash.copy_from_slice(hmac::sign(&key, text.trim_ascii()).as_ref());
    hash
}

impl Wanted {
    /// What a secret id of this role becomes, made now: its terms, how often it may be used, and warnings.
    ///
    /// # Errors
    /// `Invalid` with the rule that it breaks.
    pub(super) fn under(self, role: &AppRole, mount: &Mount, now: Time) -> Result<(Terms, u32, Warnings)> {
        if !role.bind_secret_id {
            return Err(Error::invalid("bind_secret_id is not set on the role"));
        }
        for (name, inner, outer, of_role) in [
            ("cidr_list", &self.cidr_list, &role.secret_id_bound_cidrs, "secret_id_bound_cidrs"),
            ("token_bound_cidrs", &self.token_bound_cidrs, &role.terms.bound_cidrs, "token_bound_cidrs"),
        ] {
            if !Network::all_within(inner, outer) {
                return Err(Error::invalid(format!("{name}: must lie within the role's {of_role}")));
            }
        }
        let most = role.secret_id_num_uses;
        let num_uses = self.num_uses.unwrap_or(most);
        if most > 0 && !(1..=most).contains(&num_uses) {
            return Err(Error::invalid("num_uses cannot be higher than the role's secret_id_num_uses"));
        }
        let longest = role.secret_id_ttl;
        let ttl = self.ttl.unwrap_or(longest);
        if !longest.is_zero() && (ttl.is_zero() || ttl > longest) {
            return Err(Error::invalid("ttl cannot be longer than the role's secret_id_ttl"));
        }
        let field = if self.ttl.is_some() { "ttl" } else { "secret_id_ttl" };
        let asked = (self.ttl.is_some() || !ttl.is_zero()).then_some(ttl);
        let (ttl, cut) = within(mount, field, asked);
        let Self { metadata, cidr_list, token_bound_cidrs, .. } = self;
        Ok((
            Terms { metadata, cidr_list, token_bound_cidrs, ttl, created_at: now },
            num_uses,
            cut.into_iter().collect(),
        ))
    }
}

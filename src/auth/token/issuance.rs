//! The last step of creating a token: its text, and its row in the store.

use std::collections::BTreeMap;
use std::time::Duration;

use super::batch::BatchToken;
use super::encoding::{hash_of, new_accessor, new_token};
use super::record::{TokenAttributes, TokenRecord};
use super::response::TokenResponse;
use super::ttl::saturating_add;
use crate::auth::Auth;
use crate::auth::store::{AuthOutcome, AuthWrite, TokenHash, TokenRow};
use crate::documents::MountId;
use crate::error::{Error, Result};
use crate::secret::Secret;

/// The objects whose deletion or revocation also revokes the token.
#[derive(Clone, Copy, Default)]
pub(in crate::auth) struct TokenOwners {
    /// Hash of the token with which this token is created; `None` for an orphan.
    pub(super) parent: Option<TokenHash>,
    /// The authentication mount of the login that creates the token or created one of its ancestors.
    pub(super) mount: Option<MountId>,
}

pub(super) struct TokenDraft {
    pub(super) record: TokenRecord,
    /// Lifetime of the token; `None` for unlimited.
    pub(super) ttl: Option<Duration>,
    pub(super) uses: Option<u32>,
    pub(super) owners: TokenOwners,
    /// `true` for a batch token, which has no row in the store.
    pub(super) batch: bool,
}

impl Auth {
    /// Returns the record of a new token, with a random accessor, the current time, and default settings.
    pub(in crate::auth) fn new_token_record(
        &self,
        policies: Vec<String>,
        display_name: String,
        path: &str,
    ) -> TokenRecord {
        let created_at = self.clock.now();
        TokenRecord {
            accessor: new_accessor(created_at),
            policies,
            path: path.to_owned(),
            meta: BTreeMap::new(),
            display_name,
            created_at,
            creation_ttl: Duration::ZERO,
            grant: Duration::ZERO,
            explicit_max_ttl: Duration::ZERO,
            period: Duration::ZERO,
            renewable: false,
            entity_id: String::new(),
            bound_cidrs: Vec::new(),
            role: String::new(),
            counts_as: String::new(),
            login: None,
            last_renewal: None,
        }
    }

    /// Creates a token and stores it, unless it is a batch token. The text of the token exists only in the result.
    ///
    /// # Errors
    /// `Conflict` when parent or mount no longer exists; `Invalid` for a batch token that is too long; store errors.
    pub(super) async fn store_token(&self, new: TokenDraft) -> Result<TokenResponse> {
        let TokenDraft { mut record, ttl, uses, owners, batch } = new;
        record.creation_ttl = ttl.unwrap_or_default();
        record.grant = record.creation_ttl;
        let now = record.created_at;
        let expires_at = ttl.map(|ttl| saturating_add(record.created_at, ttl));
        if let Some(expires_at) = expires_at.filter(|_| batch) {
            record.accessor.clear();
            let batch =
                BatchToken { record, expires_at, parent: owners.parent, mount: owners.mount.map(|mount| mount.0) };
            let token = Secret::new(self.encrypt_batch_token(&batch)?);
            let attributes = batch.attributes();
            return Ok(TokenResponse::new(token, batch.record, &attributes, now));
        }
        let token = Secret::new(new_token(now));
        let row = token_row(token.expose_text().unwrap_or_default(), &record, ttl, uses, owners)?;
        let attributes = TokenAttributes { expires_at, ..TokenAttributes::of(&row) };
        match self.store.commit(vec![AuthWrite::TokenInsert(row)]).await?.as_slice() {
            [AuthOutcome::Done] => Ok(TokenResponse::new(token, record, &attributes, now)),
            _ => Err(Error::internal("the outcome does not belong to the committed write")),
        }
    }
}

pub(in crate::auth) fn token_row(
    token: &str,
    record: &TokenRecord,
    ttl: Option<Duration>,
    uses: Option<u32>,
    owners: TokenOwners,
) -> Result<TokenRow> {
    let hash = |text| hash_of(text).ok_or_else(|| Error::invalid("token: must have 1 to 512 bytes"));
    Ok(TokenRow {
        hash: hash(token)?,
        accessor_hash: hash(&record.accessor)?,
        parent: owners.parent,
        expires_at: ttl.map(|ttl| saturating_add(record.created_at, ttl)),
        uses,
        mount: owners.mount,
        entity: Some(record.entity_id.clone()).filter(|id| !id.is_empty()),
        body: record.to_body()?,
    })
}

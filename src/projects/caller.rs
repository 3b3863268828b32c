//! The caller of a request: the user, team or organization that owns its token. Module [`member`](super::member)
//! determines the caller's rights in an organization.

use super::rejection::{ApiRejection, WorkResult};
use super::store::BoundToken;
use super::token;
use super::tx::Tx;
use crate::clock::Time;
use crate::error::Kind;
use crate::sql::SqlError;

/// The owner of an API token, on whose behalf the request acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSubject {
    /// A user: the token has the union of the rights of the user's teams.
    User {
        /// Row id.
        id: i64,
        /// External id.
        ext_id: String,
        /// Username.
        username: String,
    },
    /// A team: the token has the team's rights.
    Team {
        /// Row id.
        id: i64,
        /// External id.
        ext_id: String,
        /// Row id of the organization.
        org_id: i64,
    },
    /// An organization: the token acts as an owner, without a user account.
    Organization {
        /// Row id.
        id: i64,
        /// External id.
        ext_id: String,
        /// `true` for a token of the kind `audit-trails`, which has no access to this API.
        audit: bool,
    },
}

/// A caller with a valid token.
#[derive(Clone, Debug)]
pub struct ProjectsCaller {
    /// Row id of the token.
    pub token: i64,
    /// The owner of the token.
    pub subject: TokenSubject,
    /// Time of the last recorded use of the token.
    pub last_used: Option<Time>,
}

const SELECT_TOKEN_BY_LOOKUP: &str =
    "SELECT t.id, t.secret_sha256, t.expired_at, t.last_used_at, t.user_id, u.ext_id, u.username,
    t.team_id, m.ext_id, m.org_id, t.org_id, o.ext_id, t.kind, t.body FROM api_tokens t
    LEFT JOIN users u ON u.id = t.user_id LEFT JOIN teams m ON m.id = t.team_id
    LEFT JOIN organizations o ON o.id = coalesce(t.org_id, m.org_id) WHERE t.lookup = $1 AND o.ended_at IS NULL";

/// Selects the expiry of a token by the row id that [`SELECT_TOKEN_BY_LOOKUP`] returned. Finds no row if the token, its
/// team or its organization was deleted.
const SELECT_VALID_TOKEN: &str = "SELECT t.expired_at FROM api_tokens t LEFT JOIN teams m ON m.id = t.team_id
    LEFT JOIN organizations o ON o.id = coalesce(t.org_id, m.org_id) WHERE t.id = $1 AND o.ended_at IS NULL";

impl ProjectsCaller {
    /// Returns the reference to this caller that rows store as their creator: `users/user-…`, `teams/team-…` or
    /// `organizations/org-…`. Rows keep the reference after the user, team or organization is deleted.
    pub fn reference(&self) -> String {
        match &self.subject {
            TokenSubject::User { ext_id, .. } => format!("users/{ext_id}"),
            TokenSubject::Team { ext_id, .. } => format!("teams/{ext_id}"),
            TokenSubject::Organization { ext_id, .. } => format!("organizations/{ext_id}"),
        }
    }

    /// Returns the display name: the username of a user, or the [reference](Self::reference) of a team or organization.
    pub fn name(&self) -> String {
        match &self.subject {
            TokenSubject::User { username, .. } => username.clone(),
            TokenSubject::Team { .. } | TokenSubject::Organization { .. } => self.reference(),
        }
    }

    /// Authenticates a request: returns the caller to whom the presented token belongs.
    ///
    /// # Errors
    /// `Unauthenticated`, always with the same text, when the token is malformed, unknown or expired, or its seal (a
    /// MAC over the stored row) is invalid.
    pub async fn identify(tx: &mut Tx<'_>, presented: &str) -> WorkResult<Self> {
        let (lookup, hash) = token::split(presented).ok_or_else(unauthenticated_error)?;
        let mut row = tx.row(SELECT_TOKEN_BY_LOOKUP, &[lookup[..].into()]).await?.ok_or_else(unauthenticated_error)?;
        let (id, stored, ends): (_, Vec<u8>, Option<Time>) = (row.get()?, row.get()?, row.get()?);
        if !token::constant_time_eq(&stored, &hash) || ends.is_some_and(|ends| ends <= tx.now) {
            return Err(unauthenticated_error().into());
        }
        let last_used = row.get()?;
        let user: (Option<i64>, Option<String>, Option<String>) = (row.get()?, row.get()?, row.get()?);
        let team: (Option<i64>, Option<String>, Option<i64>) = (row.get()?, row.get()?, row.get()?);
        let organization: (Option<i64>, Option<String>) = (row.get()?, row.get()?);
        let kind: String = row.get()?;
        let body: Option<Vec<u8>> = row.get()?;
        // The column `t.org_id` is null for a team token, so `org` is `None`.
        let bound = BoundToken {
            lookup: &lookup,
            secret_sha256: &stored,
            user: user.0,
            team: team.0,
            org: organization.0,
            kind: &kind,
            expired_at: ends,
        };
        let is_sealed = match &body {
            Some(body) => tx.token_seal().is_sealed(bound, body).await.map_err(SqlError::Engine)?,
            None => false,
        };
        if !is_sealed {
            return Err(unauthenticated_error().into());
        }
        let subject = match (user, team, organization) {
            ((Some(id), Some(ext_id), Some(username)), ..) => TokenSubject::User { id, ext_id, username },
            (_, (Some(id), Some(ext_id), Some(org_id)), _) => TokenSubject::Team { id, ext_id, org_id },
            (_, _, (Some(id), Some(ext_id))) => TokenSubject::Organization { id, ext_id, audit: kind != "standard" },
            _ => return Err(unauthenticated_error().into()),
        };
        Ok(Self { token: id, subject, last_used })
    }

    /// Checks that the token is still valid. A token may be deleted while the request body is being received.
    ///
    /// # Errors
    /// `Unauthenticated` when the token was deleted (alone or with its team or organization) or has expired.
    pub async fn check_still_valid(&self, tx: &mut Tx<'_>) -> WorkResult<()> {
        let mut row = tx.row(SELECT_VALID_TOKEN, &[self.token.into()]).await?.ok_or_else(unauthenticated_error)?;
        let ends: Option<Time> = row.get()?;
        if ends.is_some_and(|ends| ends <= tx.now) { Err(unauthenticated_error().into()) } else { Ok(()) }
    }
}

fn unauthenticated_error() -> ApiRejection {
    ApiRejection::new(Kind::Unauthenticated, "the token is missing, unknown or has expired")
}

//! Who asks: the subject behind a token. What it is in an organization stands in [`member`](super::member).

use super::refusal::{Outcome, Refusal};
use super::store::BoundToken;
use super::token;
use super::tx::Tx;
use crate::clock::Time;
use crate::error::Kind;
use crate::sql::Failure;

/// Whose token it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A user's: it acts as the user, with the union of their teams.
    User {
        /// Row.
        id: i64,
        /// External id.
        ext_id: String,
        /// The name.
        username: String,
    },
    /// A team's: it acts as the team.
    Team {
        /// Row.
        id: i64,
        /// External id.
        ext_id: String,
        /// The organization's row.
        org_id: i64,
    },
    /// An organization's: it acts as an owner there, and may not act as a person.
    Organization {
        /// Row.
        id: i64,
        /// External id.
        ext_id: String,
        /// Of the kind `audit-trails`: it is an outsider everywhere in this API.
        audit: bool,
    },
}

/// A caller with a token that stands.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Row of the token.
    pub token: i64,
    /// Whose it is.
    pub subject: Subject,
    /// When it was last noted that the token is in use.
    pub last_used: Option<Time>,
}

const IDENTIFY: &str = "SELECT t.id, t.secret_sha256, t.expired_at, t.last_used_at, t.user_id, u.ext_id, u.username,
    t.team_id, m.ext_id, m.org_id, t.org_id, o.ext_id, t.kind, t.body FROM api_tokens t
    LEFT JOIN users u ON u.id = t.user_id LEFT JOIN teams m ON m.id = t.team_id
    LEFT JOIN organizations o ON o.id = coalesce(t.org_id, m.org_id) WHERE t.lookup = $1 AND o.ended_at IS NULL";

/// Still there, by the row that [`IDENTIFY`] found.
const STANDS: &str = "SELECT t.expired_at FROM api_tokens t LEFT JOIN teams m ON m.id = t.team_id
    LEFT JOIN organizations o ON o.id = coalesce(t.org_id, m.org_id) WHERE t.id = $1 AND o.ended_at IS NULL";

impl Caller {
    /// Who it is, as rows name who made them: `users/user-…`, `teams/team-…`, `organizations/org-…`. That
    /// outlives its subject.
    pub fn reference(&self) -> String {
        match &self.subject {
            Subject::User { ext_id, .. } => format!("users/{ext_id}"),
            Subject::Team { ext_id, .. } => format!("teams/{ext_id}"),
            Subject::Organization { ext_id, .. } => format!("organizations/{ext_id}"),
        }
    }

    /// Who it is, for people: a user by the name.
    pub fn name(&self) -> String {
        match &self.subject {
            Subject::User { username, .. } => username.clone(),
            Subject::Team { .. } | Subject::Organization { .. } => self.reference(),
        }
    }

    /// The caller behind a presented token.
    ///
    /// # Errors
    /// `Unauthenticated`, always with the same text, when it is not of the form, unknown, has expired, or was stored by
    /// something else than a node of this installation.
    pub async fn identify(tx: &mut Tx<'_>, presented: &str) -> Outcome<Self> {
        let (lookup, hash) = token::split(presented).ok_or_else(refused)?;
        let mut row = tx.row(IDENTIFY, &[lookup[..].into()]).await?.ok_or_else(refused)?;
        let (id, stored, ends): (_, Vec<u8>, Option<Time>) = (row.get()?, row.get()?, row.get()?);
        if !token::same(&stored, &hash) || ends.is_some_and(|ends| ends <= tx.now) {
            return Err(refused().into());
        }
        let last_used = row.get()?;
        let user: (Option<i64>, Option<String>, Option<String>) = (row.get()?, row.get()?, row.get()?);
        let team: (Option<i64>, Option<String>, Option<i64>) = (row.get()?, row.get()?, row.get()?);
        let organization: (Option<i64>, Option<String>) = (row.get()?, row.get()?);
        let kind: String = row.get()?;
        let body: Option<Vec<u8>> = row.get()?;
        // Team and organization as the row names them: a team's token has no organization of its own.
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
            Some(body) => tx.token_seal().is_sealed(bound, body).await.map_err(Failure::Engine)?,
            None => false,
        };
        if !is_sealed {
            return Err(refused().into());
        }
        let subject = match (user, team, organization) {
            ((Some(id), Some(ext_id), Some(username)), ..) => Subject::User { id, ext_id, username },
            (_, (Some(id), Some(ext_id), Some(org_id)), _) => Subject::Team { id, ext_id, org_id },
            (_, _, (Some(id), Some(ext_id))) => Subject::Organization { id, ext_id, audit: kind != "standard" },
            _ => return Err(refused().into()),
        };
        Ok(Self { token: id, subject, last_used })
    }

    /// Lets pass a caller whose token still stands: what was found out before a body came may not be so behind it.
    ///
    /// # Errors
    /// `Unauthenticated` when the token is gone, with its team or organization or without, or has expired.
    pub async fn must_stand(&self, tx: &mut Tx<'_>) -> Outcome<()> {
        let mut row = tx.row(STANDS, &[self.token.into()]).await?.ok_or_else(refused)?;
        let ends: Option<Time> = row.get()?;
        if ends.is_some_and(|ends| ends <= tx.now) { Err(refused().into()) } else { Ok(()) }
    }
}

fn refused() -> Refusal {
    Refusal::new(Kind::Unauthenticated, "the token is missing, unknown or has expired")
}

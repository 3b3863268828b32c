//! Who asks: the subject behind a token, and what it is in an organization.

use super::organization::Organization;
use super::refusal::{Outcome, Refusal};
use super::rights::{OrganizationRights, ProjectRights};
use super::{Tx, token};
use crate::clock::Time;
use crate::error::Kind;

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
    t.team_id, m.ext_id, m.org_id, t.org_id, o.ext_id, t.kind FROM api_tokens t
    LEFT JOIN users u ON u.id = t.user_id LEFT JOIN teams m ON m.id = t.team_id
    LEFT JOIN organizations o ON o.id = t.org_id WHERE t.lookup = $1";

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

    /// The caller behind a presented token.
    ///
    /// # Errors
    /// `Unauthenticated`, always with the same text, when it is not of the form, unknown, or has expired.
    pub async fn identify(tx: &mut Tx<'_>, presented: &str) -> Outcome<Self> {
        let refused = || Refusal::new(Kind::Unauthenticated, "the token is missing, unknown or has expired");
        let (lookup, hash) = token::split(presented).ok_or_else(refused)?;
        let mut row = tx.row(IDENTIFY, &[lookup.into()]).await?.ok_or_else(refused)?;
        let (id, stored, ends): (_, Vec<u8>, Option<Time>) = (row.get()?, row.get()?, row.get()?);
        if !token::same(&stored, &hash) || ends.is_some_and(|ends| ends <= tx.now) {
            return Err(refused().into());
        }
        let last_used = row.get()?;
        let user: (Option<i64>, Option<String>, Option<String>) = (row.get()?, row.get()?, row.get()?);
        let team: (Option<i64>, Option<String>, Option<i64>) = (row.get()?, row.get()?, row.get()?);
        let organization: (Option<i64>, Option<String>) = (row.get()?, row.get()?);
        let kind: String = row.get()?;
        let subject = match (user, team, organization) {
            ((Some(id), Some(ext_id), Some(username)), ..) => Subject::User { id, ext_id, username },
            (_, (Some(id), Some(ext_id), Some(org_id)), _) => Subject::Team { id, ext_id, org_id },
            (_, _, (Some(id), Some(ext_id))) => Subject::Organization { id, ext_id, audit: kind != "standard" },
            _ => return Err(refused().into()),
        };
        Ok(Self { token: id, subject, last_used })
    }

    /// What the caller is in an organization.
    ///
    /// # Errors
    /// `NotFound` for an outsider; `Unauthenticated` for a user's token where the organization has switched
    /// those off.
    pub async fn member(&self, tx: &mut Tx<'_>, organization: Organization) -> Outcome<Member> {
        let org_id = organization.id;
        let rows = match &self.subject {
            Subject::Organization { id, audit: false, .. } if *id == org_id => {
                let member = Member::outside_teams(organization);
                return Ok(Member { owner: true, rights: OrganizationRights::ALL, ..member });
            }
            Subject::Organization { .. } => return Err(Refusal::not_found().into()),
            Subject::Team { id, org_id: own, .. } if *own == org_id => {
                tx.rows("SELECT id, is_owners, org_access FROM teams WHERE id = $1", &[(*id).into()]).await?
            }
            Subject::Team { .. } => return Err(Refusal::not_found().into()),
            Subject::User { id, .. } => {
                // A row for each team, or one without a team; teams elsewhere are rows without a team, too.
                let teams = "SELECT t.id, t.is_owners, t.org_access FROM organization_memberships m
                    LEFT JOIN team_memberships x ON x.user_id = m.user_id
                    LEFT JOIN teams t ON t.id = x.team_id AND t.org_id = m.org_id
                    WHERE m.user_id = $1 AND m.org_id = $2";
                let rows = tx.rows(teams, &[(*id).into(), org_id.into()]).await?;
                if rows.is_empty() {
                    return Err(Refusal::not_found().into());
                }
                if !organization.user_tokens_enabled {
                    return Err(Refusal::new(Kind::Unauthenticated, "user tokens are disabled here").into());
                }
                rows
            }
        };
        let mut member = Member::outside_teams(organization);
        for mut row in rows {
            if let Some(team) = row.get()? {
                member.joins(team, row.get()?, row.get()?);
            }
        }
        Ok(member)
    }

    /// What the caller is in organizations of which they are known to be a member.
    ///
    /// # Errors
    /// As [`Caller::member`].
    pub async fn members(&self, tx: &mut Tx<'_>, organizations: Vec<Organization>) -> Outcome<Vec<Member>> {
        let mut members = Vec::with_capacity(organizations.len());
        let Subject::User { id, .. } = &self.subject else {
            for organization in organizations {
                members.push(self.member(tx, organization).await?);
            }
            return Ok(members);
        };
        let rows: Vec<i64> = organizations.iter().map(|organization| organization.id).collect();
        members.extend(organizations.into_iter().map(Member::outside_teams));
        let teams = "SELECT t.org_id, t.id, t.is_owners, t.org_access FROM team_memberships m
            JOIN teams t ON t.id = m.team_id WHERE m.user_id = $1 AND t.org_id = ANY($2)";
        for mut row in tx.rows(teams, &[(*id).into(), rows.into()]).await? {
            let org: i64 = row.get()?;
            let (team, is_owners, access) = (row.get()?, row.get()?, row.get()?);
            if let Some(member) = members.iter_mut().find(|member| member.organization.id == org) {
                member.joins(team, is_owners, access);
            }
        }
        Ok(members)
    }
}

/// A caller in an organization.
#[derive(Clone, Debug)]
pub struct Member {
    /// Whether the caller is an owner: everything is granted then.
    pub owner: bool,
    /// What the caller's teams may do in the whole organization.
    pub rights: OrganizationRights,
    /// Rows of the caller's teams.
    pub teams: Vec<i64>,
    /// Where.
    pub organization: Organization,
}

impl Member {
    fn outside_teams(organization: Organization) -> Self {
        Self { owner: false, rights: OrganizationRights::NONE, teams: Vec::new(), organization }
    }

    /// Adds what one of the caller's teams grants.
    fn joins(&mut self, team: i64, is_owners: bool, access: i64) {
        self.teams.push(team);
        self.owner |= is_owners;
        self.rights |= if is_owners { OrganizationRights::ALL } else { OrganizationRights::from_bits(access) };
    }

    /// What is granted on a project, given what the caller's teams have on that project alone.
    pub fn on_project(&self, is_default: bool, of_teams: ProjectRights) -> ProjectRights {
        let on_default = if is_default { self.rights.on_default_project() } else { ProjectRights::NONE };
        of_teams | self.rights.on_projects() | on_default
    }
}

//! A caller in an organization: what the caller's teams grant there, and how the organizations that a caller
//! belongs to are found. To outsiders an organization looks as if it were not there.

use super::caller::{Caller, Subject};
use super::organization::{Organization, STANDING};
use super::page::{self, Filter, Listed, Order, Page, Source, containing};
use super::refusal::{Outcome, Refusal};
use super::rights::{OrganizationRights, ProjectRights};
use super::tx::Tx;
use crate::error::Kind;
use crate::sql::Value;

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

    /// Lets nobody but owners pass.
    ///
    /// # Errors
    /// `NotFound` for everybody else.
    pub fn must_own(&self) -> Outcome<()> {
        Refusal::hidden_unless(self.owner)
    }
}

/// The organization of a name, in any case, as the caller's.
///
/// # Errors
/// `NotFound` when it is absent or the caller is an outsider: both look the same. `Unauthenticated` for a user's
/// token where the organization has switched those off.
pub async fn named(tx: &mut Tx<'_>, caller: &Caller, name: &str) -> Outcome<Member> {
    found(tx, caller, "o.name_lc", name.to_lowercase().into()).await
}

/// The organization of a row, as the caller's.
///
/// # Errors
/// As [`named`].
pub async fn at(tx: &mut Tx<'_>, caller: &Caller, id: i64) -> Outcome<Member> {
    found(tx, caller, "o.id", id.into()).await
}

async fn found(tx: &mut Tx<'_>, caller: &Caller, column: &str, value: Value) -> Outcome<Member> {
    let organization = Organization::stored(tx, column, value).await?;
    of(tx, caller, organization).await
}

/// What the caller is in an organization.
async fn of(tx: &mut Tx<'_>, caller: &Caller, organization: Organization) -> Outcome<Member> {
    let org_id = organization.id;
    let rows = match &caller.subject {
        Subject::Organization { id, audit: false, .. } if *id == org_id => {
            let member = Member::outside_teams(organization);
            return Ok(Member { owner: true, rights: OrganizationRights::ALL, ..member });
        }
        Subject::Organization { .. } => return Err(Refusal::not_found().into()),
        Subject::Team { id, org_id: own, .. } if *own == org_id => {
            let team = "SELECT id, is_owners, org_access FROM teams WHERE id = $1 AND org_id = $2";
            tx.rows(team, &[(*id).into(), org_id.into()]).await?
        }
        Subject::Team { .. } => return Err(Refusal::not_found().into()),
        Subject::User { id, .. } => {
            // A row for each team, or one without a team; a team that was deleted is a row without one, too.
            let teams = "SELECT t.id, t.is_owners, t.org_access FROM organization_memberships m
                LEFT JOIN team_memberships x ON x.user_id = m.user_id AND x.org_id = m.org_id
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
/// As [`named`].
pub async fn of_all(tx: &mut Tx<'_>, caller: &Caller, organizations: Vec<Organization>) -> Outcome<Vec<Member>> {
    let mut members = Vec::with_capacity(organizations.len());
    let Subject::User { id, .. } = &caller.subject else {
        for organization in organizations {
            members.push(of(tx, caller, organization).await?);
        }
        return Ok(members);
    };
    let rows: Vec<i64> = organizations.iter().map(|organization| organization.id).collect();
    members.extend(organizations.into_iter().map(Member::outside_teams));
    let teams = "SELECT t.org_id, t.id, t.is_owners, t.org_access FROM team_memberships m
        JOIN teams t ON t.id = m.team_id AND t.org_id = m.org_id WHERE m.user_id = $1 AND m.org_id = ANY($2)";
    for mut row in tx.rows(teams, &[(*id).into(), rows.into()]).await? {
        let org: i64 = row.get()?;
        let (team, is_owners, access) = (row.get()?, row.get()?, row.get()?);
        if let Some(member) = members.iter_mut().find(|member| member.organization.id == org) {
            member.joins(team, is_owners, access);
        }
    }
    Ok(members)
}

/// What a list of organizations is asked for; without case.
#[derive(Clone, Debug, Default)]
pub struct OrganizationFilter {
    /// Part of the name or of the address; wins over the others.
    pub q: Option<String>,
    /// Part of the name.
    pub name: Option<String>,
    /// Part of the address.
    pub email: Option<String>,
}

/// A page of the organizations that the caller belongs to, newest first. Where tokens of users are switched off, they do
/// not find the organization either.
///
/// # Errors
/// Those of the store.
pub async fn list(
    tx: &mut Tx<'_>,
    caller: &Caller,
    wanted: &OrganizationFilter,
    page: Page,
) -> Outcome<Listed<Member>> {
    const ORGANIZATIONS: Source = Source { id: "o.id", from: "organizations o" };
    const ORDER: Order = Order { column: "o.id", descending: true };
    let mut filter = match &caller.subject {
        Subject::User { id, .. } => Filter::new(
            "o.user_tokens_enabled AND o.id IN (SELECT org_id FROM organization_memberships WHERE user_id = {})",
            *id,
        ),
        Subject::Team { org_id, .. } => Filter::new("o.id = {}", *org_id),
        Subject::Organization { audit: true, .. } => return Ok(Listed::none()),
        Subject::Organization { id, .. } => Filter::new("o.id = {}", *id),
    };
    filter.join(STANDING);
    const NAME: &str = r"o.name_lc LIKE {} ESCAPE '\'";
    const EMAIL: &str = r"lower(o.email) LIKE {} ESCAPE '\'";
    if let Some(q) = &wanted.q {
        filter.and(&format!("({NAME} OR {EMAIL})"), containing(q));
    } else {
        for (condition, part) in [(NAME, &wanted.name), (EMAIL, &wanted.email)] {
            if let Some(part) = part {
                filter.and(condition, containing(part));
            }
        }
    }
    let (ids, matching) = page::counted_ids(tx, ORGANIZATIONS, filter, ORDER, page).await?;
    let found = Organization::these(tx, &ids).await?;
    Ok(Listed { items: of_all(tx, caller, found).await?, matching })
}

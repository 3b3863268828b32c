//! Membership: the rights of a caller in an organization, which are the union of the rights of the caller's teams.
//!
//! Callers who are not members get the same response as if the organization did not exist.

use super::caller::{ProjectsCaller, TokenSubject};
use super::organization::{ORGANIZATION_NOT_ENDED, Organization};
use super::page::{self, ListCondition, ListOrder, ListSource, PageRequest, ResultPage, substring_pattern};
use super::rejection::{ApiRejection, WorkResult};
use super::rights::{OrganizationRights, ProjectRights};
use super::tx::Tx;
use crate::error::Kind;
use crate::sql::SqlValue;

/// The membership of a caller in an organization, with the caller's rights there.
#[derive(Clone, Debug)]
pub struct Member {
    /// `true` if the caller is an owner, who has all rights.
    pub is_owner: bool,
    /// The union of the organization-wide rights of the caller's teams.
    pub rights: OrganizationRights,
    /// Row ids of the caller's teams.
    pub teams: Vec<i64>,
    /// The organization.
    pub organization: Organization,
}

impl Member {
    fn without_teams(organization: Organization) -> Self {
        Self { is_owner: false, rights: OrganizationRights::NONE, teams: Vec::new(), organization }
    }

    fn add_team(&mut self, team: i64, is_owners: bool, access: i64) {
        self.teams.push(team);
        self.is_owner |= is_owners;
        self.rights |= if is_owners { OrganizationRights::ALL } else { OrganizationRights::from_bits(access) };
    }

    /// Returns the caller's rights on a project. `of_teams` are the rights on the project that were granted to the
    /// caller's teams.
    pub fn rights_on_project(&self, is_default: bool, of_teams: ProjectRights) -> ProjectRights {
        let on_default = if is_default { self.rights.on_default_project() } else { ProjectRights::NONE };
        of_teams | self.rights.on_projects() | on_default
    }

    /// Checks that the caller is an owner.
    ///
    /// # Errors
    /// `NotFound` when the caller is not an owner.
    pub fn require_owner(&self) -> WorkResult<()> {
        ApiRejection::not_found_unless(self.is_owner)
    }
}

/// Returns the caller's membership in the organization with this name, case-insensitive.
///
/// # Errors
/// `NotFound` when the organization is absent or the caller is not a member. `Unauthenticated` for a user token if the
/// organization has disabled user tokens.
pub async fn find_by_organization_name(tx: &mut Tx<'_>, caller: &ProjectsCaller, name: &str) -> WorkResult<Member> {
    find_by_column(tx, caller, "o.name_lc", name.to_lowercase().into()).await
}

/// Returns the caller's membership in the organization with a row id.
///
/// # Errors
/// As [`find_by_organization_name`].
pub async fn find_by_organization_row(tx: &mut Tx<'_>, caller: &ProjectsCaller, id: i64) -> WorkResult<Member> {
    find_by_column(tx, caller, "o.id", id.into()).await
}

async fn find_by_column(tx: &mut Tx<'_>, caller: &ProjectsCaller, column: &str, value: SqlValue) -> WorkResult<Member> {
    let organization = Organization::load_by_column(tx, column, value).await?;
    resolve(tx, caller, organization).await
}

async fn resolve(tx: &mut Tx<'_>, caller: &ProjectsCaller, organization: Organization) -> WorkResult<Member> {
    let org_id = organization.id;
    let rows = match &caller.subject {
        TokenSubject::Organization { id, audit: false, .. } if *id == org_id => {
            let member = Member::without_teams(organization);
            return Ok(Member { is_owner: true, rights: OrganizationRights::ALL, ..member });
        }
        TokenSubject::Organization { .. } => return Err(ApiRejection::not_found().into()),
        TokenSubject::Team { id, org_id: own, .. } if *own == org_id => {
            let team = "SELECT id, is_owners, org_access FROM teams WHERE id = $1 AND org_id = $2";
            tx.rows(team, &[(*id).into(), org_id.into()]).await?
        }
        TokenSubject::Team { .. } => return Err(ApiRejection::not_found().into()),
        TokenSubject::User { id, .. } => {
            // The query returns one row per team, or one row with null team columns for a member without teams. The
            // columns of a deleted team are null, too.
            let teams = "SELECT t.id, t.is_owners, t.org_access FROM organization_memberships m
                LEFT JOIN team_memberships x ON x.user_id = m.user_id AND x.org_id = m.org_id
                LEFT JOIN teams t ON t.id = x.team_id AND t.org_id = m.org_id
                WHERE m.user_id = $1 AND m.org_id = $2";
            let rows = tx.rows(teams, &[(*id).into(), org_id.into()]).await?;
            if rows.is_empty() {
                return Err(ApiRejection::not_found().into());
            }
            if !organization.user_tokens_enabled {
                return Err(
                    ApiRejection::new(Kind::Unauthenticated, "user tokens are disabled in this organization").into()
                );
            }
            rows
        }
    };
    let mut member = Member::without_teams(organization);
    for mut row in rows {
        if let Some(team) = row.get()? {
            member.add_team(team, row.get()?, row.get()?);
        }
    }
    Ok(member)
}

/// Returns the caller's membership in each of these organizations. The caller must belong to all of them.
///
/// # Errors
/// As [`find_by_organization_name`].
pub async fn resolve_all(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    organizations: Vec<Organization>,
) -> WorkResult<Vec<Member>> {
    let mut members = Vec::with_capacity(organizations.len());
    let TokenSubject::User { id, .. } = &caller.subject else {
        for organization in organizations {
            members.push(resolve(tx, caller, organization).await?);
        }
        return Ok(members);
    };
    let rows: Vec<i64> = organizations.iter().map(|organization| organization.id).collect();
    members.extend(organizations.into_iter().map(Member::without_teams));
    let teams = "SELECT t.org_id, t.id, t.is_owners, t.org_access FROM team_memberships m
        JOIN teams t ON t.id = m.team_id AND t.org_id = m.org_id WHERE m.user_id = $1 AND m.org_id = ANY($2)";
    for mut row in tx.rows(teams, &[(*id).into(), rows.into()]).await? {
        let org: i64 = row.get()?;
        let team = row.get()?;
        let is_owners = row.get()?;
        let access = row.get()?;
        if let Some(member) = members.iter_mut().find(|member| member.organization.id == org) {
            member.add_team(team, is_owners, access);
        }
    }
    Ok(members)
}

/// The filters of a list of organizations, case-insensitive.
#[derive(Clone, Debug, Default)]
pub struct OrganizationFilter {
    /// Text that the name or the email address must contain. If present, the other filters are ignored.
    pub q: Option<String>,
    /// Text that the name must contain.
    pub name: Option<String>,
    /// Text that the email address must contain.
    pub email: Option<String>,
}

/// Returns a page of the caller's organizations, newest first. For a user token, organizations that have disabled user
/// tokens are omitted.
///
/// # Errors
/// Those of the store.
pub async fn list(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    wanted: &OrganizationFilter,
    page: PageRequest,
) -> WorkResult<ResultPage<Member>> {
    const ORGANIZATIONS: ListSource = ListSource { id: "o.id", from: "organizations o" };
    const ORDER: ListOrder = ListOrder { column: "o.id", descending: true };
    let mut filter = match &caller.subject {
        TokenSubject::User { id, .. } => ListCondition::new(
            "o.user_tokens_enabled AND o.id IN (SELECT org_id FROM organization_memberships WHERE user_id = {})",
            *id,
        ),
        TokenSubject::Team { org_id, .. } => ListCondition::new("o.id = {}", *org_id),
        TokenSubject::Organization { audit: true, .. } => return Ok(ResultPage::empty()),
        TokenSubject::Organization { id, .. } => ListCondition::new("o.id = {}", *id),
    };
    filter.and_sql(ORGANIZATION_NOT_ENDED);
    const NAME: &str = r"o.name_lc LIKE {} ESCAPE '\'";
    const EMAIL: &str = r"lower(o.email) LIKE {} ESCAPE '\'";
    if let Some(q) = &wanted.q {
        filter.and(&format!("({NAME} OR {EMAIL})"), substring_pattern(q));
    } else {
        for (condition, part) in [(NAME, &wanted.name), (EMAIL, &wanted.email)] {
            if let Some(part) = part {
                filter.and(condition, substring_pattern(part));
            }
        }
    }
    let (ids, matching) = page::find_ids_and_count(tx, ORGANIZATIONS, filter, ORDER, page).await?;
    let found = Organization::load_by_ids(tx, &ids).await?;
    Ok(ResultPage { items: resolve_all(tx, caller, found).await?, matching })
}

//! Memberships of users in organizations and their teams.
//!
//! Inviting an unknown email address creates a user. The memberships of a user are `invited` until the user's first
//! request, which activates them in all organizations ([`super::last_use`]).

use std::collections::{HashMap, HashSet};

use super::caller::{ProjectsCaller, TokenSubject};
use super::member::{self, Member};
use super::organization::{self, Organization};
use super::page::{self, ListCondition, ListOrder, ListSource, PageRequest, ResultPage, substring_pattern};
use super::rejection::{ApiRejection, Fault, Faults, WorkResult, truncate_for_message};
use super::rights::OrganizationFlag;
use super::team::{self, members};
use super::tx::Tx;
use super::user::{self, User};
use super::{escalation, id};
use crate::clock::Time;
use crate::error::Kind;
use crate::sql::{SqlRow, SqlValue};

/// The status of a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipStatus {
    /// The user has made a request.
    Active,
    /// The user has not made a request yet.
    Invited,
}

impl MembershipStatus {
    /// Returns the name, as stored and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Invited => "invited",
        }
    }
}

/// A membership as stored, with the teams of the user that the caller sees.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Row id.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// The status.
    pub status: MembershipStatus,
    /// Creation time.
    pub created_at: Time,
    /// The user.
    pub user: User,
    /// Row ids and external ids of the user's teams, sorted by name.
    pub teams: Vec<(i64, String)>,
}

const MEMBERSHIPS_FROM: &str = "organization_memberships m JOIN users u ON u.id = m.user_id";

impl Membership {
    fn read(row: &mut SqlRow) -> WorkResult<Self> {
        let id = row.get()?;
        let ext_id = row.get()?;
        let status = row.get::<String>()?;
        let created_at = row.get()?;
        let status = if status == MembershipStatus::Invited.name() {
            MembershipStatus::Invited
        } else {
            MembershipStatus::Active
        };
        Ok(Self { id, ext_id, status, created_at, user: User::read(row)?, teams: Vec::new() })
    }
}

/// Maximum number of team memberships in a response that contains several members. Each membership costs as much memory
/// and time as a small resource.
const MAX_TEAM_MEMBERSHIPS: usize = 20_000;

/// Returns the memberships with these row ids, in the order of `ids`. If `parameter` is `Some`, also loads the users'
/// teams. The fault for too many teams names this query parameter.
///
/// # Errors
/// `Malformed` when several members are in more than `MAX_TEAM_MEMBERSHIPS` teams in total.
async fn load_by_rows(
    tx: &mut Tx<'_>,
    member: &Member,
    ids: &[i64],
    parameter: Option<&'static str>,
) -> WorkResult<Vec<Membership>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = load_without_teams(tx, ids).await?;
    let Some(parameter) = parameter else { return Ok(found) };
    let users = found.iter().map(|membership| membership.user.id).collect();
    let mut teams = load_visible_teams(tx, member, users, parameter).await?;
    for membership in &mut found {
        membership.teams = teams.remove(&membership.user.id).unwrap_or_default();
    }
    Ok(found)
}

async fn load_without_teams(tx: &mut Tx<'_>, ids: &[i64]) -> WorkResult<Vec<Membership>> {
    let columns = "m.id, m.ext_id, m.status, m.created_at, u.id, u.ext_id, u.username, u.email";
    let sql = format!("SELECT {columns} FROM {MEMBERSHIPS_FROM} WHERE m.id = ANY($1)");
    page::load_in_order(tx, &sql, ids, Membership::read, |membership| membership.id).await
}

async fn load_by_row(tx: &mut Tx<'_>, member: &Member, row: i64) -> WorkResult<Membership> {
    load_by_rows(tx, member, &[row], Some("page[size]")).await?.pop().ok_or_else(|| ApiRejection::not_found().into())
}

/// Returns the teams of users by user row id: only teams of the member's organization that the member sees.
async fn load_visible_teams(
    tx: &mut Tx<'_>,
    member: &Member,
    users: Vec<i64>,
    parameter: &'static str,
) -> WorkResult<HashMap<i64, Vec<(i64, String)>>> {
    let max = if users.len() > 1 { MAX_TEAM_MEMBERSHIPS } else { i32::MAX as usize };
    let mut filter = ListCondition::new("t.org_id = {}", member.organization.id);
    filter.and("x.user_id = ANY({})", users);
    filter.and("x.org_id = {}", member.organization.id);
    team::restrict_to_visible(member, &mut filter);
    // The inner query applies the limit before the outer query sorts, so at most `limit` rows are sorted.
    let condition = filter.text().to_owned();
    let limit = filter.parameter(max as i64 + 1);
    let sql = format!(
        "SELECT user_id, id, ext_id FROM (SELECT x.user_id, t.id, t.ext_id, t.name_lc FROM team_memberships x
         JOIN teams t ON t.id = x.team_id WHERE {condition} LIMIT {limit}) place ORDER BY name_lc"
    );
    let rows = tx.rows(&sql, &filter.values).await?;
    if rows.len() > max {
        let detail = format!("the members are in more than {max} teams in total; use a smaller page");
        return Err(ApiRejection::parameter(parameter, detail).into());
    }
    let mut teams: HashMap<i64, Vec<_>> = HashMap::new();
    for mut row in rows {
        let user: i64 = row.get()?;
        teams.entry(user).or_default().push((row.get()?, row.get()?));
    }
    Ok(teams)
}

/// Returns the memberships of users in the member's organization, with or without their teams.
///
/// # Errors
/// `Malformed` when the teams are requested and several users are in more than `MAX_TEAM_MEMBERSHIPS` teams in total.
pub async fn list_for_users(
    tx: &mut Tx<'_>,
    member: &Member,
    users: &[i64],
    with_teams: bool,
) -> WorkResult<Vec<Membership>> {
    if users.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT id FROM organization_memberships WHERE user_id = ANY($1) AND +org_id = $2 ORDER BY id";
    let ids: Vec<i64> = tx.column(sql, &[users.to_vec().into(), member.organization.id.into()]).await?;
    load_by_rows(tx, member, &ids, with_teams.then_some("include")).await
}

/// The filters and the sort order of a list of memberships.
#[derive(Clone, Debug, Default)]
pub struct MembershipFilter {
    /// Email addresses, case-insensitive: the user must have one of them. An empty list selects all users.
    pub emails: Vec<String>,
    /// The status, `active` or `invited`.
    pub status: Option<String>,
    /// Text that the email address or the username must contain, case-insensitive.
    pub q: Option<String>,
    /// Row id of a team of which the user must be a member.
    pub team: Option<i64>,
    /// Sorts by status instead of age: `Some(false)` lists active memberships first, `Some(true)` invited memberships
    /// first.
    pub by_status: Option<bool>,
}

/// Returns a page of the memberships of the member's organization, newest first by default.
///
/// # Errors
/// Those of the store.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    wanted: &MembershipFilter,
    page: PageRequest,
) -> WorkResult<ResultPage<Membership>> {
    const MEMBERSHIPS: ListSource = ListSource { id: "m.id", from: MEMBERSHIPS_FROM };
    // Sorts active before invited memberships, and by row id within each group. Row ids are far below 2^62, so the
    // groups do not overlap.
    const STATUS: &str = "(m.id + CASE m.status WHEN 'active' THEN 0 ELSE 4611686018427387904 END)";
    let order = match wanted.by_status {
        None => ListOrder { column: "m.id", descending: true },
        Some(descending) => ListOrder { column: STATUS, descending },
    };
    let mut filter = ListCondition::new("m.org_id = {}", member.organization.id);
    if !wanted.emails.is_empty() {
        let emails: Vec<String> = wanted.emails.iter().map(|email| email.to_lowercase()).collect();
        filter.and("u.email_lc = ANY({})", emails);
    }
    if let Some(status) = &wanted.status {
        filter.and("m.status = {}", &status[..]);
    }
    if let Some(q) = &wanted.q {
        filter.and(r"(u.email_lc LIKE {} ESCAPE '\' OR u.username_lc LIKE {} ESCAPE '\')", substring_pattern(q));
    }
    if let Some(team) = wanted.team {
        filter.and("m.user_id IN (SELECT user_id FROM team_memberships WHERE team_id = {})", team);
    }
    let (ids, matching) = page::find_ids_and_count(tx, MEMBERSHIPS, filter, order, page).await?;
    Ok(ResultPage { items: load_by_rows(tx, member, &ids, Some("page[size]")).await?, matching })
}

/// Returns a page of the caller's own memberships, newest first, each with the caller's rights in the organization.
/// Organizations that have disabled user tokens are omitted.
///
/// # Errors
/// `Malformed` when the caller is in too many teams.
pub async fn list_own(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    page: PageRequest,
) -> WorkResult<ResultPage<(Member, Membership)>> {
    const WITH_ORGANIZATION: ListSource =
        ListSource { id: "m.id", from: "organization_memberships m JOIN organizations o ON o.id = m.org_id" };
    const ORDER: ListOrder = ListOrder { column: "m.id", descending: true };
    let TokenSubject::User { id: user, .. } = caller.subject else { return Ok(ResultPage::empty()) };
    let mut filter = ListCondition::new("m.user_id = {} AND o.user_tokens_enabled", user);
    filter.and_sql(organization::ORGANIZATION_NOT_ENDED);
    let (ids, matching) = page::find_ids_and_count(tx, WITH_ORGANIZATION, filter, ORDER, page).await?;
    let mut memberships = load_without_teams(tx, &ids).await?;
    let sql = "SELECT id, org_id FROM organization_memberships WHERE id = ANY($1)";
    let mut membership_of: HashMap<i64, i64> = HashMap::new();
    for mut row in tx.rows(sql, &[ids.into()]).await? {
        let (membership, org): (i64, i64) = (row.get()?, row.get()?);
        membership_of.insert(org, membership);
    }
    let rows: Vec<i64> = membership_of.keys().copied().collect();
    let organizations = Organization::load_by_ids(tx, &rows).await?;
    let mut members: HashMap<i64, Member> = HashMap::new();
    for member in member::resolve_all(tx, caller, organizations).await? {
        if let Some(membership) = membership_of.get(&member.organization.id) {
            members.insert(*membership, member);
        }
    }
    let teams = "SELECT x.org_id, t.id, t.ext_id FROM team_memberships x
        JOIN teams t ON t.id = x.team_id AND t.org_id = x.org_id
        WHERE x.user_id = $1 AND x.org_id = ANY($2) ORDER BY t.name_lc LIMIT $3";
    let teams = tx.rows(teams, &[user.into(), rows.into(), (MAX_TEAM_MEMBERSHIPS as i64 + 1).into()]).await?;
    if teams.len() > MAX_TEAM_MEMBERSHIPS {
        let detail = format!("the user is in more than {MAX_TEAM_MEMBERSHIPS} teams in total; use a smaller page");
        return Err(ApiRejection::parameter("page[size]", detail).into());
    }
    let mut teams_of: HashMap<i64, Vec<(i64, String)>> = HashMap::new();
    for mut row in teams {
        let org: i64 = row.get()?;
        if let Some(membership) = membership_of.get(&org) {
            teams_of.entry(*membership).or_default().push((row.get()?, row.get()?));
        }
    }
    for membership in &mut memberships {
        membership.teams = teams_of.remove(&membership.id).unwrap_or_default();
    }
    let items = memberships.into_iter().filter_map(|one| Some((members.remove(&one.id)?, one))).collect();
    Ok(ResultPage { items, matching })
}

/// Returns the caller's own membership in an organization, and the membership in the same organization with the
/// external id `ext_id`. The second membership is locked until the end of the session if [`Tx::lock_lookups`] was
/// called.
///
/// # Errors
/// `NotFound` when the membership is absent or the caller is not a member.
pub async fn find_visible(tx: &mut Tx<'_>, caller: &ProjectsCaller, ext_id: &str) -> WorkResult<(Member, Membership)> {
    let found = tx.row("SELECT id, org_id FROM organization_memberships WHERE ext_id = $1", &[ext_id.into()]).await?;
    let mut found = found.ok_or_else(ApiRejection::not_found)?;
    let row = found.get()?;
    let org = found.get()?;
    let member = member::find_by_organization_row(tx, caller, org).await?;
    if tx.locks_lookups() {
        tx.lock_row("organization_memberships", row).await?;
    }
    let membership = load_by_row(tx, &member, row).await?;
    Ok((member, membership))
}

/// Checks that the member may invite and remove users.
///
/// # Errors
/// `NotFound` when the member may not.
pub fn require_may_manage(member: &Member) -> WorkResult<()> {
    ApiRejection::not_found_unless(member.is_owner || member.rights.has(OrganizationFlag::ManageMembership))
}

/// Adds the user with this email address to the organization and to these teams. Creates the user if necessary.
///
/// # Errors
/// `Invalid` when the user is a member already, or the member may not add people to a team.
pub async fn create(tx: &mut Tx<'_>, member: &Member, email: &str, teams: &[String]) -> WorkResult<Membership> {
    let teams = find_joinable_teams(tx, member, teams).await?;
    let (user, is_new) = user::find_or_create_by_email(tx, email).await?;
    let status =
        if is_new || !has_made_request(tx, user).await? { MembershipStatus::Invited } else { MembershipStatus::Active };
    let insert = "INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
        VALUES ($1, $2, $3, $4, $5) RETURNING id";
    let values: [SqlValue; 5] =
        [id::new("ou").into(), member.organization.id.into(), user.into(), status.name().into(), tx.now.into()];
    let row: i64 = tx.one(insert, &values).await?.get()?;
    members::add_to_teams(tx, &teams, user).await?;
    load_by_row(tx, member, row).await
}

/// `true` if the user has made a request: a membership is active, or a token has been used.
async fn has_made_request(tx: &mut Tx<'_>, user: i64) -> WorkResult<bool> {
    let sql = "SELECT 1 FROM organization_memberships WHERE user_id = $1 AND status = 'active'
        UNION ALL SELECT 1 FROM api_tokens WHERE user_id = $1 AND last_used_at IS NOT NULL LIMIT 1";
    Ok(tx.row(sql, &[user.into()]).await?.is_some())
}

/// Returns the row ids of the named teams, sorted. The member must be allowed to add people to each.
async fn find_joinable_teams(tx: &mut Tx<'_>, member: &Member, teams: &[String]) -> WorkResult<Vec<i64>> {
    let mut rows = Vec::new();
    if !teams.is_empty() {
        let sql = "SELECT id FROM teams WHERE ext_id = ANY($1) AND +org_id = $2";
        rows = tx.column(sql, &[teams.to_vec().into(), member.organization.id.into()]).await?;
    }
    let mut found = team::load_by_rows(tx, &rows).await?;
    found.retain(|team| team::sees(member, team) && team::may_change_members(member, team));
    let covered = escalation::find_covered_teams(tx, member, &found).await?;
    found.retain(|team| covered.contains(&team.id));
    let known: HashSet<&str> = found.iter().map(|team| &team.ext_id[..]).collect();
    let mut faults = Faults::default();
    for (n, ext_id) in teams.iter().enumerate().filter(|(_, id)| !known.contains(&id[..])) {
        let detail = format!("{} is not a team that you may add people to", truncate_for_message(ext_id));
        faults.push(Fault::at(format!("/data/relationships/teams/data/{n}/id"), detail));
    }
    faults.finish(Kind::Invalid)?;
    let mut rows: Vec<i64> = found.iter().map(|team| team.id).collect();
    rows.sort_unstable();
    Ok(rows)
}

/// Deletes a membership and removes the user from the organization's teams.
///
/// # Errors
/// `Forbidden` for owners who remove themselves; `NotFound` when the member may not remove an owner, or the
/// membership was deleted concurrently; `Conflict` when the owners team would become empty.
pub async fn delete(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    member: &Member,
    membership: &Membership,
) -> WorkResult<()> {
    let user = membership.user.id;
    let owners = "SELECT 1 FROM teams t JOIN team_memberships x ON x.team_id = t.id
        WHERE t.org_id = $1 AND t.is_owners AND x.user_id = $2";
    let values: [SqlValue; 2] = [member.organization.id.into(), user.into()];
    let is_owner = tx.row(owners, &values).await?.is_some();
    if is_owner && matches!(caller.subject, TokenSubject::User { id, .. } if id == user) {
        return Err(ApiRejection::forbidden("owners cannot remove themselves from their organization").into());
    }
    if is_owner && !member.is_owner {
        return Err(ApiRejection::not_found().into());
    }
    let gone = tx.execute("DELETE FROM organization_memberships WHERE id = $1", &[membership.id.into()]).await?;
    // If a concurrent request has already deleted the row, this request does not remove the user from the teams: the
    // user may be a member again, with a new row.
    ApiRejection::not_found_unless(gone > 0)?;
    members::remove_from_all_teams(tx, member.organization.id, user).await
}

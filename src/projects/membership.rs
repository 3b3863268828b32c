//! Memberships: who belongs to an organization, and in which of its teams.
//!
//! An address that is not known yet makes a user. The memberships of a user who has made no request yet are
//! `invited`, in every organization, until the first request ([`super::last_use`]).

use std::collections::{HashMap, HashSet};

use super::caller::{Caller, Subject};
use super::member::{self, Member};
use super::organization::{self, Organization};
use super::page::{self, Filter, Listed, Order, Page, Source, containing};
use super::refusal::{Fault, Faults, Outcome, Refusal, quoted};
use super::rights::Flag;
use super::team::{self, people};
use super::tx::Tx;
use super::user::{self, User};
use super::{escalation, id};
use crate::clock::Time;
use crate::error::Kind;
use crate::sql::{Row, Value};

/// Whether a member has come yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Has made a request.
    Active,
    /// Has made none.
    Invited,
}

impl Status {
    /// As stored and as documents show it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Invited => "invited",
        }
    }
}

/// A membership as stored, with the teams that the caller knows of.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Row.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// Whether the user has come yet.
    pub status: Status,
    /// When it was made.
    pub created_at: Time,
    /// Who.
    pub user: User,
    /// Rows and external ids of the user's teams, by name.
    pub teams: Vec<(i64, String)>,
}

/// What the queries go through.
const FROM: &str = "organization_memberships m JOIN users u ON u.id = m.user_id";

impl Membership {
    fn read(row: &mut Row) -> Outcome<Self> {
        let (id, ext_id, status, created_at) = (row.get()?, row.get()?, row.get::<String>()?, row.get()?);
        let status = if status == Status::Invited.word() { Status::Invited } else { Status::Active };
        Ok(Self { id, ext_id, status, created_at, user: User::read(row)?, teams: Vec::new() })
    }
}

/// Most places in teams that an answer tells of several members: each costs as much as a small document.
const MOST_PLACES: usize = 20_000;

/// The memberships of rows in the member's organization, in the order of the rows; with the users' teams where there is a
/// parameter `by` that says how many are asked for.
///
/// # Errors
/// `Malformed` for several members who are in more than `MOST_PLACES` teams, added up.
async fn these(tx: &mut Tx<'_>, member: &Member, ids: &[i64], by: Option<&'static str>) -> Outcome<Vec<Membership>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = without_teams(tx, ids).await?;
    let Some(by) = by else { return Ok(found) };
    let users = found.iter().map(|membership| membership.user.id).collect();
    let mut teams = teams_of(tx, member, users, by).await?;
    for membership in &mut found {
        membership.teams = teams.remove(&membership.user.id).unwrap_or_default();
    }
    Ok(found)
}

async fn without_teams(tx: &mut Tx<'_>, ids: &[i64]) -> Outcome<Vec<Membership>> {
    let columns = "m.id, m.ext_id, m.status, m.created_at, u.id, u.ext_id, u.username, u.email";
    let sql = format!("SELECT {columns} FROM {FROM} WHERE m.id = ANY($1)");
    page::these(tx, &sql, ids, Membership::read, |membership| membership.id).await
}

async fn one(tx: &mut Tx<'_>, member: &Member, row: i64) -> Outcome<Membership> {
    these(tx, member, &[row], Some("page[size]")).await?.pop().ok_or_else(|| Refusal::not_found().into())
}

/// The teams of users in the member's organization that the member knows of.
async fn teams_of(
    tx: &mut Tx<'_>,
    member: &Member,
    users: Vec<i64>,
    by: &'static str,
) -> Outcome<HashMap<i64, Vec<(i64, String)>>> {
    let most = if users.len() > 1 { MOST_PLACES } else { i32::MAX as usize };
    let mut filter = Filter::new("t.org_id = {}", member.organization.id);
    filter.and("x.user_id = ANY({})", users);
    filter.and("x.org_id = {}", member.organization.id);
    team::seen(member, &mut filter);
    // Counted before they are sorted.
    let (condition, limit) = (filter.text().to_owned(), filter.parameter(most as i64 + 1));
    let sql = format!(
        "SELECT user_id, id, ext_id FROM (SELECT x.user_id, t.id, t.ext_id, t.name_lc FROM team_memberships x
         JOIN teams t ON t.id = x.team_id WHERE {condition} LIMIT {limit}) place ORDER BY name_lc"
    );
    let rows = tx.rows(&sql, &filter.values).await?;
    if rows.len() > most {
        let detail = format!("the members are in more than {most} teams, added up: ask for fewer members");
        return Err(Refusal::parameter(by, detail).into());
    }
    let mut teams: HashMap<i64, Vec<_>> = HashMap::new();
    for mut row in rows {
        let user: i64 = row.get()?;
        teams.entry(user).or_default().push((row.get()?, row.get()?));
    }
    Ok(teams)
}

/// The memberships of users in the member's organization, by the user's row, with their teams or without.
///
/// # Errors
/// `Malformed` for several users who are in too many teams.
pub async fn of_users(tx: &mut Tx<'_>, member: &Member, users: &[i64], with_teams: bool) -> Outcome<Vec<Membership>> {
    if users.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT id FROM organization_memberships WHERE user_id = ANY($1) AND +org_id = $2 ORDER BY id";
    let ids: Vec<i64> = tx.column(sql, &[users.to_vec().into(), member.organization.id.into()]).await?;
    these(tx, member, &ids, with_teams.then_some("include")).await
}

/// What a list is asked for.
#[derive(Clone, Debug, Default)]
pub struct MembershipFilter {
    /// Addresses, any of them, without case.
    pub emails: Vec<String>,
    /// `active` or `invited`.
    pub status: Option<String>,
    /// Part of the address or the name, without case.
    pub q: Option<String>,
    /// Row of a team that they are in.
    pub team: Option<i64>,
    /// By their status and not by their age: active ones first, or, when this is true, invited ones.
    pub by_status: Option<bool>,
}

/// A page of the memberships of the member's organization, newest first unless they are sorted by their status.
///
/// # Errors
/// Those of the store.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    wanted: &MembershipFilter,
    page: Page,
) -> Outcome<Listed<Membership>> {
    const MEMBERSHIPS: Source = Source { id: "m.id", from: FROM };
    // Numbers of rows are far below the middle of their range.
    const STATUS: &str = "(m.id + CASE m.status WHEN 'active' THEN 0 ELSE 4611686018427387904 END)";
    let order = match wanted.by_status {
        None => Order { column: "m.id", descending: true },
        Some(descending) => Order { column: STATUS, descending },
    };
    let mut filter = Filter::new("m.org_id = {}", member.organization.id);
    if !wanted.emails.is_empty() {
        let emails: Vec<String> = wanted.emails.iter().map(|email| email.to_lowercase()).collect();
        filter.and("u.email_lc = ANY({})", emails);
    }
    if let Some(status) = &wanted.status {
        filter.and("m.status = {}", &status[..]);
    }
    if let Some(q) = &wanted.q {
        filter.and(r"(u.email_lc LIKE {} ESCAPE '\' OR u.username_lc LIKE {} ESCAPE '\')", containing(q));
    }
    if let Some(team) = wanted.team {
        filter.and("m.user_id IN (SELECT user_id FROM team_memberships WHERE team_id = {})", team);
    }
    let (ids, matching) = page::counted_ids(tx, MEMBERSHIPS, filter, order, page).await?;
    Ok(Listed { items: these(tx, member, &ids, Some("page[size]")).await?, matching })
}

/// A page of the caller's own memberships, newest first, each with the caller in its organization. Where tokens of users
/// are switched off, they do not find it.
///
/// # Errors
/// `Malformed` when the caller is in too many teams.
pub async fn own(tx: &mut Tx<'_>, caller: &Caller, page: Page) -> Outcome<Listed<(Member, Membership)>> {
    const OWN: Source =
        Source { id: "m.id", from: "organization_memberships m JOIN organizations o ON o.id = m.org_id" };
    const ORDER: Order = Order { column: "m.id", descending: true };
    let Subject::User { id: user, .. } = caller.subject else { return Ok(Listed::none()) };
    let mut filter = Filter::new("m.user_id = {} AND o.user_tokens_enabled", user);
    filter.join(organization::STANDING);
    let (ids, matching) = page::counted_ids(tx, OWN, filter, ORDER, page).await?;
    let mut memberships = without_teams(tx, &ids).await?;
    let sql = "SELECT id, org_id FROM organization_memberships WHERE id = ANY($1)";
    let mut places: HashMap<i64, i64> = HashMap::new();
    for mut row in tx.rows(sql, &[ids.into()]).await? {
        let (membership, org): (i64, i64) = (row.get()?, row.get()?);
        places.insert(org, membership);
    }
    let rows: Vec<i64> = places.keys().copied().collect();
    let organizations = Organization::these(tx, &rows).await?;
    let mut members: HashMap<i64, Member> = HashMap::new();
    for member in member::of_all(tx, caller, organizations).await? {
        if let Some(membership) = places.get(&member.organization.id) {
            members.insert(*membership, member);
        }
    }
    let teams = "SELECT x.org_id, t.id, t.ext_id FROM team_memberships x
        JOIN teams t ON t.id = x.team_id AND t.org_id = x.org_id
        WHERE x.user_id = $1 AND x.org_id = ANY($2) ORDER BY t.name_lc LIMIT $3";
    let teams = tx.rows(teams, &[user.into(), rows.into(), (MOST_PLACES as i64 + 1).into()]).await?;
    if teams.len() > MOST_PLACES {
        let detail = format!("the user is in more than {MOST_PLACES} teams, added up: ask for fewer memberships");
        return Err(Refusal::parameter("page[size]", detail).into());
    }
    let mut teams_of: HashMap<i64, Vec<(i64, String)>> = HashMap::new();
    for mut row in teams {
        let org: i64 = row.get()?;
        if let Some(membership) = places.get(&org) {
            teams_of.entry(*membership).or_default().push((row.get()?, row.get()?));
        }
    }
    for membership in &mut memberships {
        membership.teams = teams_of.remove(&membership.id).unwrap_or_default();
    }
    let items = memberships.into_iter().filter_map(|one| Some((members.remove(&one.id)?, one))).collect();
    Ok(Listed { items, matching })
}

/// A membership by its external id, with its organization as the caller's. Held until the end of the session when
/// [`Tx::hold`] was called.
///
/// # Errors
/// `NotFound` when it is absent or the caller is an outsider.
pub async fn visible(tx: &mut Tx<'_>, caller: &Caller, ext_id: &str) -> Outcome<(Member, Membership)> {
    let found = tx.row("SELECT id, org_id FROM organization_memberships WHERE ext_id = $1", &[ext_id.into()]).await?;
    let mut found = found.ok_or_else(Refusal::not_found)?;
    let (row, org) = (found.get()?, found.get()?);
    let member = member::at(tx, caller, org).await?;
    if tx.holds() {
        tx.take("organization_memberships", row).await?;
    }
    let membership = one(tx, &member, row).await?;
    Ok((member, membership))
}

/// Whether the member may invite and remove people.
///
/// # Errors
/// `NotFound` otherwise.
pub fn may_manage(member: &Member) -> Outcome<()> {
    Refusal::hidden_unless(member.owner || member.rights.has(Flag::ManageMembership))
}

/// Makes whoever has this address a member, in these teams.
///
/// # Errors
/// `Invalid` when they are one already, or a team is not one that the member may change.
pub async fn create(tx: &mut Tx<'_>, member: &Member, email: &str, teams: &[String]) -> Outcome<Membership> {
    let teams = joinable(tx, member, teams).await?;
    let (user, is_new) = user::of_address(tx, email).await?;
    let status = if is_new || !has_come(tx, user).await? { Status::Invited } else { Status::Active };
    let insert = "INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
        VALUES ($1, $2, $3, $4, $5) RETURNING id";
    let values: [Value; 5] =
        [id::new("ou").into(), member.organization.id.into(), user.into(), status.word().into(), tx.now.into()];
    let row: i64 = tx.one(insert, &values).await?.get()?;
    people::add_to_all(tx, &teams, user).await?;
    one(tx, member, row).await
}

/// Whether a user has made a request: then there is a membership that is active, or a token that was used.
async fn has_come(tx: &mut Tx<'_>, user: i64) -> Outcome<bool> {
    let sql = "SELECT 1 FROM organization_memberships WHERE user_id = $1 AND status = 'active'
        UNION ALL SELECT 1 FROM api_tokens WHERE user_id = $1 AND last_used_at IS NOT NULL LIMIT 1";
    Ok(tx.row(sql, &[user.into()]).await?.is_some())
}

/// Rows of teams, by external id, that the member may put people into, in the order of the rows.
async fn joinable(tx: &mut Tx<'_>, member: &Member, teams: &[String]) -> Outcome<Vec<i64>> {
    let mut rows = Vec::new();
    if !teams.is_empty() {
        let sql = "SELECT id FROM teams WHERE ext_id = ANY($1) AND +org_id = $2";
        rows = tx.column(sql, &[teams.to_vec().into(), member.organization.id.into()]).await?;
    }
    let mut found = team::these(tx, &rows).await?;
    found.retain(|team| team::sees(member, team) && team::may_change_people(member, team));
    let covered = escalation::covered(tx, member, &found).await?;
    found.retain(|team| covered.contains(&team.id));
    let known: HashSet<&str> = found.iter().map(|team| &team.ext_id[..]).collect();
    let mut faults = Faults::default();
    for (n, ext_id) in teams.iter().enumerate().filter(|(_, id)| !known.contains(&id[..])) {
        let detail = format!("{} is not a team that you may add people to", quoted(ext_id));
        faults.push(Fault::at(format!("/data/relationships/teams/data/{n}/id"), detail));
    }
    faults.finish(Kind::Invalid)?;
    let mut rows: Vec<i64> = found.iter().map(|team| team.id).collect();
    rows.sort_unstable();
    Ok(rows)
}

/// Ends a membership, and with it the user's place in the organization's teams.
///
/// # Errors
/// `Forbidden` for owners who remove themselves; `NotFound` for an owner whom the member may not remove, and when it has
/// gone meanwhile; `Conflict` when the owners team would be empty.
pub async fn delete(tx: &mut Tx<'_>, caller: &Caller, member: &Member, membership: &Membership) -> Outcome<()> {
    let user = membership.user.id;
    let owners = "SELECT 1 FROM teams t JOIN team_memberships x ON x.team_id = t.id
        WHERE t.org_id = $1 AND t.is_owners AND x.user_id = $2";
    let values: [Value; 2] = [member.organization.id.into(), user.into()];
    let is_owner = tx.row(owners, &values).await?.is_some();
    if is_owner && matches!(caller.subject, Subject::User { id, .. } if id == user) {
        return Err(Refusal::forbidden("owners cannot remove themselves from their organization").into());
    }
    if is_owner && !member.owner {
        return Err(Refusal::not_found().into());
    }
    let gone = tx.execute("DELETE FROM organization_memberships WHERE id = $1", &[membership.id.into()]).await?;
    // They may be a member anew, by another row.
    Refusal::hidden_unless(gone > 0)?;
    people::remove_everywhere(tx, member.organization.id, user).await
}

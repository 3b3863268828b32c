//! Teams: creation, lookup, change and deletion. Module [`access`] handles the flags of `organization-access`, and
//! [`members`] changes the members of teams.
//!
//! A secret team is visible to its members, to owners, and to holders of `access-secret-teams`. Only owners may
//! change the owners team.

pub mod access;
pub mod members;

use std::collections::HashSet;

use super::attributes::{AttributeReader, AttributeValue};
use super::caller::{ProjectsCaller, TokenSubject};
use super::id;
use super::member::{self, Member};
use super::organization::{self, removal};
use super::page::{self, ListCondition, ListOrder, ListSource, PageRequest, ResultPage, substring_pattern};
use super::rejection::{ApiRejection, WorkResult};
use super::rights::{OrganizationFlag, OrganizationRights};
use super::tx::{MAX_ROWS_PER_SESSION, Tx};
use crate::sql::{SqlRow, SqlValue};
use access::OrganizationFlagChanges;

/// Prefix of a stored reference to a team. The external id of the team follows.
const TEAM_REFERENCE_PREFIX: &str = "teams/";
/// Maximum length of the description of a team, in characters.
const MAX_DESCRIPTION_CHARS: usize = 256;
/// Maximum length of the id of a team at an identity provider, in characters.
const MAX_SSO_ID_CHARS: usize = 256;

/// The members of the organization to whom a team is visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TeamVisibility {
    /// The team's members, owners, and holders of `access-secret-teams`.
    #[default]
    Secret,
    /// Every member of the organization.
    Organization,
}

impl TeamVisibility {
    fn of(word: &str) -> Option<Self> {
        [Self::Secret, Self::Organization].into_iter().find(|one| one.name() == word)
    }

    /// Returns the name, as stored and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Organization => "organization",
        }
    }
}

/// A team as stored.
#[derive(Clone, Debug)]
pub struct Team {
    /// Row id.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// Row id of the organization.
    pub org_id: i64,
    /// The name, in its original case.
    pub name: String,
    /// `true` for the owners team of the organization.
    pub is_owners: bool,
    /// The members of the organization to whom the team is visible.
    pub visibility: TeamVisibility,
    /// The organization-wide rights that the team grants its members.
    pub access: OrganizationRights,
    /// The description.
    pub description: Option<String>,
    /// The id of the team at an identity provider. It has no effect.
    pub sso_team_id: Option<String>,
    /// `true` if every member of the team may manage the team's tokens.
    pub member_tokens: bool,
    /// Number of members.
    pub users: i64,
}

const TEAM_COLUMNS: &str =
    "t.id, t.ext_id, t.org_id, t.name, t.is_owners, t.visibility, t.org_access, t.description, t.sso_team_id,
    t.member_tokens, t.user_count FROM teams t";

impl Team {
    fn read(row: &mut SqlRow) -> WorkResult<Self> {
        Ok(Self {
            id: row.get()?,
            ext_id: row.get()?,
            org_id: row.get()?,
            name: row.get()?,
            is_owners: row.get()?,
            visibility: TeamVisibility::of(&row.get::<String>()?).unwrap_or_default(),
            access: OrganizationRights::from_bits(row.get()?),
            description: row.get()?,
            sso_team_id: row.get()?,
            member_tokens: row.get()?,
            users: row.get()?,
        })
    }
}

fn sees_all(member: &Member) -> bool {
    member.is_owner || member.rights.has(OrganizationFlag::AccessSecretTeams)
}

/// `true` if the member sees the team.
pub fn sees(member: &Member, team: &Team) -> bool {
    sees_all(member) || team.visibility == TeamVisibility::Organization || member.teams.contains(&team.id)
}

/// `true` if the team with this row id is in the member's organization and visible to the member.
///
/// # Errors
/// Those of the store.
pub(super) async fn sees_row(tx: &mut Tx<'_>, member: &Member, row: i64) -> WorkResult<bool> {
    let found = load_by_rows(tx, &[row]).await?;
    Ok(found.iter().any(|team| team.org_id == member.organization.id && sees(member, team)))
}

/// Returns those `references` of the form `teams/team-…` whose team is hidden from the member, or deleted. The result
/// is empty for members who see all teams.
///
/// # Errors
/// Those of the store.
pub(super) async fn find_hidden_references(
    tx: &mut Tx<'_>,
    member: &Member,
    references: impl Iterator<Item = &str>,
) -> WorkResult<HashSet<String>> {
    if sees_all(member) {
        return Ok(HashSet::new());
    }
    let mut named: HashSet<String> =
        references.filter(|reference| reference.starts_with(TEAM_REFERENCE_PREFIX)).map(str::to_owned).collect();
    if named.is_empty() {
        return Ok(named);
    }
    let ids: Vec<String> =
        named.iter().filter_map(|reference| reference.strip_prefix(TEAM_REFERENCE_PREFIX)).map(str::to_owned).collect();
    let mut filter = ListCondition::new("t.ext_id = ANY({})", ids);
    filter.and("+t.org_id = {}", member.organization.id);
    restrict_to_visible(member, &mut filter);
    let sql = format!("SELECT t.ext_id FROM teams t WHERE {}", filter.text());
    for ext_id in tx.column::<String>(&sql, &filter.values).await? {
        named.remove(&format!("{TEAM_REFERENCE_PREFIX}{ext_id}"));
    }
    Ok(named)
}

/// `true` if the member may change and delete a visible team.
pub fn may_manage(member: &Member, team: &Team) -> bool {
    member.is_owner || (member.rights.has(OrganizationFlag::ManageTeams) && !team.is_owners)
}

/// `true` if the member may change the members of a visible team.
pub fn may_change_members(member: &Member, team: &Team) -> bool {
    member.is_owner || (member.rights.has(OrganizationFlag::ManageMembership) && !team.is_owners)
}

/// `true` if the caller may manage the tokens of a visible team: either the caller may manage the team, or the caller
/// is a user in the team and [`Team::member_tokens`] is set. A team token thus needs the right to manage teams.
pub fn may_manage_tokens(caller: &ProjectsCaller, member: &Member, team: &Team) -> bool {
    let of_it = matches!(caller.subject, TokenSubject::User { .. }) && member.teams.contains(&team.id);
    may_manage(member, team) || (of_it && team.member_tokens)
}

/// Returns a team and the caller's membership in its organization. The team is locked until the end of the session if
/// [`Tx::lock_lookups`] was called.
///
/// # Errors
/// `NotFound` when the team is absent or hidden from the caller.
pub async fn find_visible(tx: &mut Tx<'_>, caller: &ProjectsCaller, ext_id: &str) -> WorkResult<(Member, Team)> {
    let found = tx.row("SELECT id FROM teams WHERE ext_id = $1", &[ext_id.into()]).await?;
    let row = found.ok_or_else(ApiRejection::not_found)?.get()?;
    find_visible_by_row(tx, caller, row).await
}

/// Like [`find_visible`], but finds the team by its row id.
///
/// # Errors
/// As [`find_visible`].
pub async fn find_visible_by_row(tx: &mut Tx<'_>, caller: &ProjectsCaller, row: i64) -> WorkResult<(Member, Team)> {
    let found = load_visible(tx, caller, row).await?;
    if !tx.locks_lookups() {
        return Ok(found);
    }
    // Visibility is checked before locking, so that callers who do not see the team cannot block others.
    tx.lock_row("teams", row).await?;
    load_visible(tx, caller, row).await
}

async fn load_visible(tx: &mut Tx<'_>, caller: &ProjectsCaller, row: i64) -> WorkResult<(Member, Team)> {
    let team = load_by_rows(tx, &[row]).await?.pop().ok_or_else(ApiRejection::not_found)?;
    let member = member::find_by_organization_row(tx, caller, team.org_id).await?;
    ApiRejection::not_found_unless(sees(&member, &team))?;
    Ok((member, team))
}

/// Returns a team and the caller's membership in its organization, if the caller sees the team and `may` returns
/// `true`.
///
/// # Errors
/// `NotFound` when the team is absent or hidden, or `may` returns `false`: a forbidden action looks like an absent
/// team.
pub async fn find_permitted(
    tx: &mut Tx<'_>,
    caller: &ProjectsCaller,
    ext_id: &str,
    may: fn(&Member, &Team) -> bool,
) -> WorkResult<(Member, Team)> {
    let (member, team) = find_visible(tx, caller, ext_id).await?;
    ApiRejection::not_found_unless(may(&member, &team))?;
    Ok((member, team))
}

/// Returns the teams in the order of `ids`.
///
/// # Errors
/// Those of the store.
pub async fn load_by_rows(tx: &mut Tx<'_>, ids: &[i64]) -> WorkResult<Vec<Team>> {
    page::load_in_order(tx, &format!("SELECT {TEAM_COLUMNS} WHERE t.id = ANY($1)"), ids, Team::read, |team| team.id)
        .await
}

/// The filters of a list of teams.
#[derive(Clone, Debug, Default)]
pub struct TeamFilter {
    /// Names, case-insensitive: a team must have one of them. An empty list selects all teams.
    pub names: Vec<String>,
    /// Text that the name must contain, case-insensitive.
    pub q: Option<String>,
}

/// Returns a page of the teams that the member sees, sorted by name.
///
/// # Errors
/// Those of the store.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    wanted: &TeamFilter,
    page: PageRequest,
) -> WorkResult<ResultPage<Team>> {
    const TEAMS: ListSource = ListSource { id: "t.id", from: "teams t" };
    const ORDER: ListOrder = ListOrder { column: "t.name_lc", descending: false };
    let mut filter = ListCondition::new("t.org_id = {}", member.organization.id);
    restrict_to_visible(member, &mut filter);
    if !wanted.names.is_empty() {
        let names: Vec<String> = wanted.names.iter().map(|name| name.to_lowercase()).collect();
        filter.and("t.name_lc = ANY({})", names);
    }
    if let Some(q) = &wanted.q {
        filter.and(r"t.name_lc LIKE {} ESCAPE '\'", substring_pattern(q));
    }
    let (ids, matching) = page::find_ids_and_count(tx, TEAMS, filter, ORDER, page).await?;
    Ok(ResultPage { items: load_by_rows(tx, &ids).await?, matching })
}

/// Restricts a filter on `teams t` to the teams that the member sees.
pub(super) fn restrict_to_visible(member: &Member, filter: &mut ListCondition) {
    if !sees_all(member) {
        filter.and("(t.visibility = 'organization' OR t.id = ANY({}))", member.teams.clone());
    }
}

/// The attributes of a request that creates or updates a team. An update does not change absent attributes.
pub struct TeamChange {
    name: Option<String>,
    visibility: Option<TeamVisibility>,
    flags: OrganizationFlagChanges,
    description: AttributeValue<String>,
    sso_team_id: AttributeValue<String>,
    member_tokens: Option<bool>,
}

impl TeamChange {
    /// Reads and validates the attributes. The flags are checked later, together with the stored flags of the team.
    pub fn read(attributes: &mut AttributeReader<'_>) -> Self {
        let name = attributes.text("name");
        match &name {
            AttributeValue::Null => attributes.fault("name", "Name can't be blank"),
            AttributeValue::Value(text) => check_name(attributes, text),
            AttributeValue::Absent => {}
        }
        let word = attributes.text("visibility").value();
        let visibility = word.as_deref().and_then(TeamVisibility::of);
        if word.is_some() && visibility.is_none() {
            attributes.fault("visibility", "Visibility must be secret or organization");
        }
        Self {
            name: name.value(),
            visibility,
            flags: OrganizationFlagChanges::read(attributes),
            description: attributes.short_text("description", MAX_DESCRIPTION_CHARS),
            sso_team_id: attributes.short_text("sso-team-id", MAX_SSO_ID_CHARS),
            member_tokens: attributes.flag("allow-member-token-management").value(),
        }
    }

    /// Reads the attributes of a create. Unlike [`TeamChange::read`], requires a name.
    pub fn read_new(attributes: &mut AttributeReader<'_>) -> Self {
        if !attributes.has("name") {
            attributes.fault("name", "Name can't be blank");
        }
        Self::read(attributes)
    }

    /// Applies the change to `before`, the organization-wide rights of the team, and returns the new rights.
    ///
    /// # Errors
    /// `Forbidden` when the member may not change the flags, or lacks a right that the team would get; `Invalid` when
    /// the flags contradict each other.
    fn access(&self, member: &Member, before: OrganizationRights) -> WorkResult<OrganizationRights> {
        if self.flags.is_empty() {
            return Ok(before);
        }
        if !member.is_owner && !member.rights.has(OrganizationFlag::ManageOrganizationAccess) {
            let detail = "you may not change the rights of teams in the organization";
            return Err(ApiRejection::forbidden(detail).into());
        }
        let access = self.flags.apply_to(before)?;
        access::reject_excess_flags(member, before, access)?;
        Ok(access)
    }
}

/// Adds a fault unless the name consists of 1 to 90 letters, digits, `-`, `_` and spaces, without a space at either
/// end.
fn check_name(attributes: &mut AttributeReader<'_>, name: &str) {
    if name.is_empty() {
        return attributes.fault("name", "Name can't be blank");
    }
    if name.chars().count() > 90 {
        attributes.fault("name", "Name is too long (maximum is 90 characters)");
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_');
    if !name.chars().all(legal) || name.starts_with(' ') || name.ends_with(' ') {
        let rule = "Name may only contain letters, numbers, spaces, - and _, and no space at its beginning or end";
        attributes.fault("name", rule);
    }
}

/// Checks that the member may create teams.
///
/// # Errors
/// `NotFound` when the member may not.
pub fn require_may_create(member: &Member) -> WorkResult<()> {
    ApiRejection::not_found_unless(member.is_owner || member.rights.has(OrganizationFlag::ManageTeams))
}

/// Creates a team in the member's organization.
///
/// # Errors
/// `Invalid` when the name is taken or the flags contradict each other; `Forbidden` when the member may not set flags,
/// or lacks a flag that the team would get.
pub async fn create(tx: &mut Tx<'_>, member: &Member, new: TeamChange) -> WorkResult<Team> {
    let access = new.access(member, OrganizationRights::NONE)?;
    let name = new.name.unwrap_or_default();
    let insert = "INSERT INTO teams (ext_id, org_id, name, name_lc, visibility, org_access, sso_team_id, member_tokens,
        description) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id";
    let values: [SqlValue; 9] = [
        id::new("team").into(),
        member.organization.id.into(),
        name[..].into(),
        name.to_lowercase().into(),
        new.visibility.unwrap_or_default().name().into(),
        access.bits().into(),
        new.sso_team_id.value().into(),
        new.member_tokens.unwrap_or(true).into(),
        new.description.value().into(),
    ];
    let row: i64 = tx.one(insert, &values).await?.get()?;
    load_by_rows(tx, &[row]).await?.pop().ok_or_else(|| ApiRejection::not_found().into())
}

/// Changes a team.
///
/// # Errors
/// As [`create`]; `Conflict` when the request changes the name or the rights of the owners team; `NotFound` when the
/// team was deleted concurrently.
pub async fn update(tx: &mut Tx<'_>, member: &Member, team: &Team, change: TeamChange) -> WorkResult<Team> {
    // The row lock serializes concurrent changes of flags, because each change keeps the stored flags that it does not
    // set.
    let sql = format!("SELECT {TEAM_COLUMNS} WHERE t.id = $1 FOR UPDATE");
    let mut row = tx.row(&sql, &[team.id.into()]).await?.ok_or_else(ApiRejection::not_found)?;
    let before = Team::read(&mut row)?;
    // A concurrent deletion may have moved the team to an ended organization.
    ApiRejection::not_found_unless(before.org_id == team.org_id)?;
    let access = change.access(member, before.access)?;
    let name = change.name.unwrap_or_else(|| before.name.clone());
    if before.is_owners && (name != before.name || access != before.access) {
        let detail = "the name and the rights of the owners team cannot be changed";
        return Err(ApiRejection::conflict(detail).into());
    }
    let sql = "UPDATE teams SET name = $1, name_lc = $2, visibility = $3, org_access = $4, sso_team_id = $5,
        member_tokens = $6, description = $7 WHERE id = $8";
    let values: [SqlValue; 8] = [
        name[..].into(),
        name.to_lowercase().into(),
        change.visibility.unwrap_or(before.visibility).name().into(),
        access.bits().into(),
        change.sso_team_id.or_stored(before.sso_team_id).into(),
        change.member_tokens.unwrap_or(before.member_tokens).into(),
        change.description.or_stored(before.description).into(),
        team.id.into(),
    ];
    tx.execute(sql, &values).await?;
    load_by_rows(tx, &[team.id]).await?.pop().ok_or_else(|| ApiRejection::not_found().into())
}

/// Deletes a team with its tokens, memberships and access. A team with many dependent rows only becomes invisible, and
/// [`removal`] removes the rows later.
///
/// # Errors
/// `Conflict` for the owners team; `NotFound` when the team was deleted concurrently.
pub async fn delete(tx: &mut Tx<'_>, team: &Team) -> WorkResult<()> {
    if team.is_owners {
        return Err(ApiRejection::conflict("the owners team of an organization cannot be deleted").into());
    }
    // A session that grants the team access locks the organization's row too, so no access can be added from here on.
    organization::lock(tx, team.org_id).await?;
    let row: SqlValue = team.id.into();
    let lock = "SELECT user_count FROM teams WHERE id = $1 AND org_id = $2 FOR UPDATE";
    let locked = tx.row(lock, &[row.clone(), team.org_id.into()]).await?;
    let users: i64 = locked.ok_or_else(ApiRejection::not_found)?.get()?;
    let some = "SELECT project_id FROM team_project_access WHERE team_id = $1 LIMIT $2";
    let projects: Vec<i64> = tx.column(some, &[row.clone(), (MAX_ROWS_PER_SESSION + 1).into()]).await?;
    let some = "SELECT count(*) FROM (SELECT 1 FROM team_workspace_access WHERE team_id = $1 LIMIT $2) a";
    let workspaces: i64 = tx.one(some, &[row.clone(), (MAX_ROWS_PER_SESSION + 1).into()]).await?.get()?;
    if users.max(projects.len() as i64).max(workspaces) > MAX_ROWS_PER_SESSION {
        // Nodes of older versions accept the tokens as long as their rows exist.
        tx.execute("DELETE FROM api_tokens WHERE team_id = $1", &[row]).await?;
        return removal::move_to_ended_organization(tx, "teams", team.id).await;
    }
    tx.rows("SELECT id FROM projects WHERE id = ANY($1) ORDER BY id FOR UPDATE", &[projects.into()]).await?;
    let access = "DELETE FROM team_project_access WHERE team_id = $1 RETURNING project_id";
    let left: Vec<i64> = tx.column(access, std::slice::from_ref(&row)).await?;
    tx.execute("UPDATE projects SET team_count = team_count - 1 WHERE id = ANY($1)", &[left.into()]).await?;
    tx.execute("DELETE FROM teams WHERE id = $1", &[row]).await?;
    Ok(())
}

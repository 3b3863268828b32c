//! Prevents privilege escalation through teams.
//!
//! A member who creates tokens of a team, changes its members or grants it access could use the rights of the team.
//! These actions therefore require that the member has all rights that the team has or gets: in the organization
//! ([`team::access`](super::team::access)), on projects and on workspaces. Owners have all rights. Revoking access
//! needs no such rights.

use std::collections::{HashMap, HashSet};

use super::member::Member;
use super::project::Project;
use super::project_access::extent::ProjectAccessExtent;
use super::rejection::{ApiRejection, WorkResult};
use super::rights::{GRANT_EXCEEDS_OWN_RIGHTS, OrganizationFlag};
use super::team::Team;
use super::tx::Tx;
use super::workspace;

/// Maximum number of grants on projects and workspaces that one request compares. The limit bounds the time that
/// concurrent changes wait for the request. Owners, members who manage all projects, and members of the team need no
/// comparison.
const MAX_COMPARED_GRANTS: i64 = 1000;

/// Rejects an action of the member on a team if the team has a right that the member lacks.
///
/// # Errors
/// `Forbidden` when the team has such a right, or too many grants to compare.
pub async fn reject_stronger_team(tx: &mut Tx<'_>, member: &Member, team: &Team) -> WorkResult<()> {
    if find_covered_teams(tx, member, std::slice::from_ref(team)).await?.contains(&team.id) {
        return Ok(());
    }
    Err(ApiRejection::forbidden("the team has rights that you lack; managing it requires all of its rights").into())
}

/// Returns the row ids of the teams that have no right beyond the member's own rights.
///
/// # Errors
/// Those of the store.
pub async fn find_covered_teams(tx: &mut Tx<'_>, member: &Member, teams: &[Team]) -> WorkResult<HashSet<i64>> {
    let known = |team: &Team| member.is_owner || member.teams.contains(&team.id);
    let within = |team: &Team| !team.is_owners && member.rights.covers(team.access);
    let mut covered: HashSet<i64> =
        teams.iter().filter(|team| known(team) || within(team)).map(|team| team.id).collect();
    if member.rights.has(OrganizationFlag::ManageProjects) {
        return Ok(covered);
    }
    let unknown: Vec<i64> = teams.iter().filter(|team| !known(team)).map(|team| team.id).collect();
    if unknown.is_empty() {
        return Ok(covered);
    }
    let sql = "SELECT a.team_id, a.project_id, p.is_default, a.access, a.custom FROM team_project_access a
        JOIN teams t ON t.id = a.team_id JOIN projects p ON p.id = a.project_id AND p.org_id = t.org_id
        WHERE a.team_id = ANY($1) ORDER BY a.team_id, a.project_id LIMIT $2";
    let mut given = Vec::new();
    for mut row in tx.rows(sql, &[unknown.clone().into(), (MAX_COMPARED_GRANTS + 1).into()]).await? {
        let (team, project, is_default): (i64, i64, bool) = (row.get()?, row.get()?, row.get()?);
        given.push((team, project, is_default, parse_extent(&row.get::<String>()?, row.get()?)));
    }
    if given.len() as i64 > MAX_COMPARED_GRANTS {
        // There are too many grants to compare, so these teams count as not covered.
        covered.retain(|team| !unknown.contains(team));
        return Ok(covered);
    }
    let access = workspace::load_team_workspace_grants(tx, unknown.clone(), MAX_COMPARED_GRANTS + 1).await?;
    if (given.len() + access.len()) as i64 > MAX_COMPARED_GRANTS {
        covered.retain(|team| !unknown.contains(team));
        return Ok(covered);
    }
    let project_of: Vec<(i64, i64)> = access.iter().map(|given| (given.workspace, given.project)).collect();
    let rights = workspace::load_workspace_rights(tx, member, &project_of).await?;
    for given in access {
        if !rights.get(&given.workspace).is_some_and(|rights| rights.has(given.rights)) {
            covered.remove(&given.team);
        }
    }
    let held = load_member_extents(tx, member, given.iter().map(|(_, project, ..)| *project).collect()).await?;
    for (team, project, is_default, extent) in given {
        let everywhere = ProjectAccessExtent::of_organization(member.rights, is_default);
        if !held.get(&project).copied().unwrap_or(ProjectAccessExtent::NONE).union(everywhere).covers(extent) {
            covered.remove(&team);
        }
    }
    Ok(covered)
}

/// Returns the union of the access of the member's teams to each of these projects, by project row id.
async fn load_member_extents(
    tx: &mut Tx<'_>,
    member: &Member,
    mut projects: Vec<i64>,
) -> WorkResult<HashMap<i64, ProjectAccessExtent>> {
    let mut held: HashMap<i64, ProjectAccessExtent> = HashMap::new();
    projects.sort_unstable();
    projects.dedup();
    if projects.is_empty() || member.teams.is_empty() {
        return Ok(held);
    }
    let sql = "SELECT project_id, access, custom FROM team_project_access
        WHERE project_id = ANY($1) AND team_id = ANY($2)";
    for mut row in tx.rows(sql, &[projects.into(), member.teams.clone().into()]).await? {
        let project: i64 = row.get()?;
        let extent = parse_extent(&row.get::<String>()?, row.get()?);
        let sum = held.entry(project).or_insert(ProjectAccessExtent::NONE);
        *sum = sum.union(extent);
    }
    Ok(held)
}

fn parse_extent(level: &str, custom: Option<String>) -> ProjectAccessExtent {
    ProjectAccessExtent::from_stored(level, custom.as_deref())
}

/// Rejects a grant of access to a project (`given`) that exceeds the union of the member's own access and the access
/// that the team already has (`before`).
///
/// # Errors
/// `Forbidden` when `given` exceeds this union.
pub async fn reject_excess_access(
    tx: &mut Tx<'_>,
    member: &Member,
    project: &Project,
    before: ProjectAccessExtent,
    given: ProjectAccessExtent,
) -> WorkResult<()> {
    if member.is_owner {
        return Ok(());
    }
    let held = load_member_extents(tx, member, vec![project.id])
        .await?
        .remove(&project.id)
        .unwrap_or(ProjectAccessExtent::NONE);
    let everywhere = ProjectAccessExtent::of_organization(member.rights, project.is_default);
    if held.union(everywhere).union(before).covers(given) {
        return Ok(());
    }
    Err(ApiRejection::forbidden(GRANT_EXCEEDS_OWN_RIGHTS).into())
}

//! Moves workspaces into a project, all of them or none.
//!
//! Workspaces are locked first, then projects, both in order of their row ids, so that concurrent moves cannot
//! deadlock.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::agent_scope::{self, PoolUser, UsablePool};
use super::{ApiRejection, Member, Project, ProjectRights, SqlValue, Tx, WorkResult, load_by_rows};

/// Moves workspaces into a project of the member's organization. Duplicates, and workspaces that are in the project
/// already, are ignored.
///
/// The caller must have checked that the member may move workspaces into `destination`.
///
/// # Errors
/// `Forbidden`, naming every workspace that is absent, in another organization, or in a project out of which the member
/// may not move workspaces; `Invalid`, naming every workspace that may not use its agent pool in the destination;
/// `NotFound` when the destination was deleted concurrently.
pub async fn move_workspaces(
    tx: &mut Tx<'_>,
    member: &Member,
    destination: &Project,
    ids: &[String],
) -> WorkResult<()> {
    let found = lock_workspaces(tx, member, ids).await?;
    let mut projects: Vec<i64> = found.values().map(|workspace| workspace.project).collect();
    projects.push(destination.id);
    projects.sort_unstable();
    projects.dedup();
    let lock = "SELECT id FROM projects WHERE id = ANY($1) AND +org_id = $2 ORDER BY id FOR UPDATE";
    if tx.rows(lock, &[projects.clone().into(), member.organization.id.into()]).await?.len() < projects.len() {
        // The source projects cannot have been deleted, because they contain locked workspaces. So the missing project
        // is the destination.
        return Err(ApiRejection::not_found().into());
    }
    let movable = |project: &Project| project.rights.has(ProjectRights::READ | ProjectRights::MOVE_WORKSPACE);
    let sources: HashSet<i64> = load_by_rows(tx, member, &projects)
        .await?
        .iter()
        .filter(|project| movable(project))
        .map(|project| project.id)
        .collect();
    reject_unmovable(ids, |id| found.get(id).is_some_and(|workspace| sources.contains(&workspace.project)))?;
    let moved: Vec<MovedWorkspace> =
        found.into_values().filter(|workspace| workspace.project != destination.id).collect();
    reject_unusable_pools(tx, member, destination, &moved).await?;
    move_locked(tx, destination, moved).await
}

/// Rejects workspaces that may not use their own or inherited agent pool in the destination.
async fn reject_unusable_pools(
    tx: &mut Tx<'_>,
    member: &Member,
    destination: &Project,
    moved: &[MovedWorkspace],
) -> WorkResult<()> {
    let rows: Vec<i64> = moved.iter().map(|workspace| workspace.row).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let mut refused: Vec<String> = Vec::new();
    let own = "SELECT w.ext_id, a.id, a.organization_scoped, a.scope FROM workspaces w
        JOIN agent_pools a ON a.id = w.agent_pool_id WHERE w.id = ANY($1) AND NOT a.organization_scoped ORDER BY w.id";
    for mut row in tx.rows(own, &[rows.clone().into()]).await? {
        let ext_id: String = row.get()?;
        let pool = UsablePool::read(&mut row)?;
        if !pool.admits(PoolUser::Workspace(Some(&ext_id), &destination.ext_id)) {
            refused.push(ext_id);
        }
    }
    if let Some(pool) = &destination.mode(member).pool {
        let pool = agent_scope::find_usable(tx, member.organization.id, pool).await?;
        let inheriting = "SELECT ext_id FROM workspaces WHERE id = ANY($1) AND execution_mode IS NULL ORDER BY id";
        let inheriting: Vec<String> = tx.column(inheriting, &[rows.into()]).await?;
        let is_excluded = |id: &String| pool.as_ref().is_some_and(|pool| pool.excludes(Some(id)));
        refused.extend(inheriting.into_iter().filter(is_excluded));
    }
    if refused.is_empty() {
        return Ok(());
    }
    let detail = format!("workspaces that may not use their agent pool in the project: {}", refused.join(", "));
    Err(ApiRejection::invalid_state(detail).into())
}

struct MovedWorkspace {
    row: i64,
    project: i64,
}

/// Locks workspaces of the member's organization and returns them by external id. The `+` before `org_id` keeps the
/// embedded store from scanning the organization's index.
async fn lock_workspaces(
    tx: &mut Tx<'_>,
    member: &Member,
    ids: &[String],
) -> WorkResult<HashMap<String, MovedWorkspace>> {
    let sql = "SELECT ext_id, id, project_id FROM workspaces WHERE +org_id = $1 AND ext_id = ANY($2)
        ORDER BY id FOR UPDATE";
    let mut found = HashMap::new();
    for mut row in tx.rows(sql, &[member.organization.id.into(), ids.to_vec().into()]).await? {
        found.insert(row.get()?, MovedWorkspace { row: row.get()?, project: row.get()? });
    }
    Ok(found)
}

/// Rejects the request if `may` returns `false` for any workspace id. The message lists these ids in the order of the
/// request, without duplicates.
fn reject_unmovable(ids: &[String], may: impl Fn(&str) -> bool) -> WorkResult<()> {
    let mut seen = HashSet::new();
    let refused: Vec<&str> = ids.iter().map(String::as_str).filter(|id| !may(id) && seen.insert(*id)).collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(ApiRejection::forbidden(format!("workspaces not found, or not authorized to be moved: {}", refused.join(", ")))
        .into())
}

/// Moves locked workspaces between locked projects and updates the counters.
async fn move_locked(tx: &mut Tx<'_>, destination: &Project, moved: Vec<MovedWorkspace>) -> WorkResult<()> {
    if moved.is_empty() {
        return Ok(());
    }
    let mut losses: HashMap<i64, i64> = HashMap::new();
    for workspace in &moved {
        *losses.entry(workspace.project).or_default() += 1;
    }
    // Groups the projects by the change of their workspace count, so that one statement updates all projects with the
    // same change.
    let mut changes: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    changes.insert(moved.len() as i64, vec![destination.id]);
    for (project, loss) in losses {
        changes.entry(-loss).or_default().push(project);
    }
    let update = "UPDATE workspaces SET project_id = $1, updated_at = $2 WHERE id = ANY($3)";
    let rows: Vec<i64> = moved.into_iter().map(|workspace| workspace.row).collect();
    tx.execute(update, &[destination.id.into(), tx.now.into(), rows.into()]).await?;
    for (change, projects) in changes {
        let count = "UPDATE projects SET workspace_count = workspace_count + $1 WHERE id = ANY($2)";
        let values: [SqlValue; 2] = [change.into(), projects.into()];
        tx.execute(count, &values).await?;
    }
    Ok(())
}

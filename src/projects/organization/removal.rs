//! Removes deleted organizations, a limited number of rows per transaction, so that other writers do not wait.
//!
//! A team or project with many dependent rows is deleted the same way: the deleting transaction moves it to an ended
//! organization that is created for this purpose ([`move_to_ended_organization`]). The team or project is invisible
//! from then on and its name is free. A periodic sweep removes the rows even if the request or the server fails.

use super::super::id;
use super::super::rejection::WorkResult;
use super::super::tx::{MAX_ROWS_PER_SESSION, Tx};

/// Maximum number of rows of an owned table, such as `teams`, that one transaction removes with their dependent rows.
const MAX_ROWS_PER_STEP: i64 = 100;

/// A table whose rows belong to an organization. `dependents` lists the tables with dependent rows, each with its name,
/// its key columns, and the column that references the row of the owned table.
struct OwnedTable {
    table: &'static str,
    dependents: &'static [(&'static str, &'static str, &'static str)],
}

/// The owned tables in order of deletion: rows are deleted before the rows that they reference. Teams with their tokens
/// come first because nodes of older versions still accept the tokens.
const OWNED_TABLES: &[OwnedTable] = &[
    OwnedTable {
        table: "teams",
        dependents: &[
            ("team_memberships", "team_id, user_id", "team_id"),
            ("api_tokens", "id", "team_id"),
            ("team_workspace_access", "id", "team_id"),
        ],
    },
    OwnedTable {
        table: "workspaces",
        dependents: &[("team_workspace_access", "id", "workspace_id"), ("tag_bindings", "id", "workspace_id")],
    },
    OwnedTable {
        table: "projects",
        dependents: &[("team_project_access", "id", "project_id"), ("tag_bindings", "id", "project_id")],
    },
    OwnedTable { table: "agent_pools", dependents: &[] },
    OwnedTable { table: "organization_memberships", dependents: &[] },
];

/// Moves a row, such as a team, to a new organization that is created as ended. The row becomes invisible, and a later
/// removal deletes it with its dependent rows.
///
/// # Errors
/// Those of the store.
pub async fn move_to_ended_organization(tx: &mut Tx<'_>, table: &str, row: i64) -> WorkResult<()> {
    let insert = "INSERT INTO organizations (ext_id, name, name_lc, email, created_at, ended_at)
        VALUES ($1, $2, $3, '', $4, $5) RETURNING id";
    let name = id::new("org");
    let key = format!("/{name}");
    let values = [name[..].into(), name[..].into(), key.into(), tx.now.into(), tx.now.into()];
    let organization: i64 = tx.one(insert, &values).await?.get()?;
    tx.execute(&format!("UPDATE {table} SET org_id = $1 WHERE id = $2"), &[organization.into(), row.into()]).await?;
    tx.set_pending_removal(organization);
    Ok(())
}

/// Removes some rows of the oldest ended organization, and the organization itself when it has no rows left. Returns
/// `true` if there was an ended organization.
///
/// # Errors
/// Those of the store.
pub async fn remove_next(tx: &mut Tx<'_>) -> WorkResult<bool> {
    let next = "SELECT id FROM organizations WHERE ended_at IS NOT NULL ORDER BY id LIMIT 1";
    match tx.column::<i64>(next, &[]).await?.pop() {
        Some(id) => remove_some_rows(tx, id).await.map(|_| true),
        None => Ok(false),
    }
}

/// Removes some rows of this ended organization, or the organization itself if it has no rows left. Returns `true` if
/// rows may be left.
///
/// # Errors
/// Those of the store.
pub async fn remove_some_rows(tx: &mut Tx<'_>, id: i64) -> WorkResult<bool> {
    for OwnedTable { table, dependents } in OWNED_TABLES {
        let some = format!("SELECT id FROM {table} WHERE org_id = $1 LIMIT $2");
        let rows: Vec<i64> = tx.column(&some, &[id.into(), MAX_ROWS_PER_STEP.into()]).await?;
        if rows.is_empty() {
            continue;
        }
        if *table == "teams" && remove_project_access(tx, id, &rows).await? {
            return Ok(true);
        }
        for (dependent, key, owner) in *dependents {
            let owned = format!("{owner} = ANY($1)");
            if tx.remove_some((dependent, key), &owned, &[rows.clone().into()]).await?.1 {
                return Ok(true);
            }
        }
        tx.execute(&format!("DELETE FROM {table} WHERE id = ANY($1)"), &[rows.into()]).await?;
        return Ok(true);
    }
    tx.execute("DELETE FROM organizations WHERE id = $1 AND ended_at IS NOT NULL", &[id.into()]).await?;
    Ok(false)
}

/// Removes some rows of `team_project_access` for the teams of an ended organization. Returns `true` if more rows may
/// be left. Only a team that was moved ([`move_to_ended_organization`]) has access to projects of another organization.
/// The team count of such a project decreases by exactly one, because the ended organization has only that team.
async fn remove_project_access(tx: &mut Tx<'_>, org_id: i64, teams: &[i64]) -> WorkResult<bool> {
    let some = "SELECT id, project_id FROM team_project_access WHERE team_id = ANY($1) LIMIT $2";
    let mut access = Vec::<i64>::new();
    let mut projects = Vec::<i64>::new();
    for mut row in tx.rows(some, &[teams.to_vec().into(), MAX_ROWS_PER_SESSION.into()]).await? {
        access.push(row.get()?);
        projects.push(row.get()?);
    }
    if access.is_empty() {
        return Ok(false);
    }
    let may_be_more = access.len() as i64 == MAX_ROWS_PER_SESSION;
    let lock = "SELECT id FROM projects WHERE id = ANY($1) AND org_id <> $2 ORDER BY id FOR UPDATE";
    tx.rows(lock, &[projects.into(), org_id.into()]).await?;
    // The statement returns only the projects of rows that this session deletes: a concurrent session may have deleted
    // some of the rows.
    let delete = "DELETE FROM team_project_access WHERE id = ANY($1) RETURNING project_id";
    let gone: Vec<i64> = tx.column(delete, &[access.into()]).await?;
    let count = "UPDATE projects SET team_count = team_count - 1 WHERE id = ANY($1) AND org_id <> $2";
    tx.execute(count, &[gone.into(), org_id.into()]).await?;
    Ok(may_be_more)
}

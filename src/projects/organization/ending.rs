//! What is left of deleted organizations, removed some rows at a time: nobody can ask for it any more, and a million
//! rows in one transaction would hold up every other.
//!
//! A team or a project to which much belongs ends the same way: it is put into an ended organization that is there for
//! nothing else ([`bury`]), in the transaction that decides about it. It is nowhere to be seen from then on, its name is
//! free, and whatever becomes of the request or the server, a sweep finds it.

use super::super::id;
use super::super::refusal::Outcome;
use super::super::tx::{PARTS_AT_ONCE, Tx};

/// Rows of a table of an organization's own that one step takes on.
const AT_ONCE: i64 = 100;

/// A table with rows of an organization, and where the rows are that belong to those: a table, its key, and the column
/// that names the owner.
struct Owned {
    table: &'static str,
    parts: &'static [(&'static str, &'static str, &'static str)],
}

/// Whatever names a row goes before it, and tokens first of all: an older node still takes them.
const OWNED: &[Owned] = &[
    Owned {
        table: "teams",
        parts: &[
            ("team_memberships", "team_id, user_id", "team_id"),
            ("api_tokens", "id", "team_id"),
            ("team_workspace_access", "id", "team_id"),
        ],
    },
    Owned {
        table: "workspaces",
        parts: &[("team_workspace_access", "id", "workspace_id"), ("tag_bindings", "id", "workspace_id")],
    },
    Owned {
        table: "projects",
        parts: &[("team_project_access", "id", "project_id"), ("tag_bindings", "id", "project_id")],
    },
    Owned { table: "agent_pools", parts: &[] },
    Owned { table: "organization_memberships", parts: &[] },
];

/// Puts a row of a table of an organization's own where it is gone: into an organization that has ended. Nothing but its
/// parts names it any more.
///
/// # Errors
/// Those of the store.
pub async fn bury(tx: &mut Tx<'_>, table: &str, row: i64) -> Outcome<()> {
    let insert = "INSERT INTO organizations (ext_id, name, name_lc, email, created_at, ended_at)
        VALUES ($1, $2, $3, '', $4, $5) RETURNING id";
    let name = id::new("org");
    let key = format!("/{name}");
    let values = [name[..].into(), name[..].into(), key.into(), tx.now.into(), tx.now.into()];
    let organization: i64 = tx.one(insert, &values).await?.get()?;
    tx.execute(&format!("UPDATE {table} SET org_id = $1 WHERE id = $2"), &[organization.into(), row.into()]).await?;
    tx.buries(organization);
    Ok(())
}

/// Removes some of what a deleted organization had, and at last the organization; whether there was anything left.
///
/// # Errors
/// Those of the store.
pub async fn step(tx: &mut Tx<'_>) -> Outcome<bool> {
    let next = "SELECT id FROM organizations WHERE ended_at IS NOT NULL ORDER BY id LIMIT 1";
    match tx.column::<i64>(next, &[]).await?.pop() {
        Some(id) => step_of(tx, id).await.map(|_| true),
        None => Ok(false),
    }
}

/// As [`step`], of one organization that has ended: whether something is left of it.
///
/// # Errors
/// Those of the store.
pub async fn step_of(tx: &mut Tx<'_>, id: i64) -> Outcome<bool> {
    for Owned { table, parts } in OWNED {
        let some = format!("SELECT id FROM {table} WHERE org_id = $1 LIMIT $2");
        let rows: Vec<i64> = tx.column(&some, &[id.into(), AT_ONCE.into()]).await?;
        if rows.is_empty() {
            continue;
        }
        if *table == "teams" && access_of(tx, id, &rows).await? {
            return Ok(true);
        }
        for (part, key, owner) in *parts {
            let owned = format!("{owner} = ANY($1)");
            if tx.remove_some((part, key), &owned, &[rows.clone().into()]).await?.1 {
                return Ok(true);
            }
        }
        tx.execute(&format!("DELETE FROM {table} WHERE id = ANY($1)"), &[rows.into()]).await?;
        return Ok(true);
    }
    tx.execute("DELETE FROM organizations WHERE id = $1 AND ended_at IS NOT NULL", &[id.into()]).await?;
    Ok(false)
}

/// Removes some of the access of an ended organization's teams to projects; whether there may be more. Projects elsewhere
/// count it no more: they are those of a team that was buried, one to an organization, so each has one.
async fn access_of(tx: &mut Tx<'_>, org_id: i64, teams: &[i64]) -> Outcome<bool> {
    let some = "SELECT id, project_id FROM team_project_access WHERE team_id = ANY($1) LIMIT $2";
    let (mut access, mut projects) = (Vec::<i64>::new(), Vec::<i64>::new());
    for mut row in tx.rows(some, &[teams.to_vec().into(), PARTS_AT_ONCE.into()]).await? {
        access.push(row.get()?);
        projects.push(row.get()?);
    }
    if access.is_empty() {
        return Ok(false);
    }
    let may_be_more = access.len() as i64 == PARTS_AT_ONCE;
    let lock = "SELECT id FROM projects WHERE id = ANY($1) AND org_id <> $2 ORDER BY id FOR UPDATE";
    tx.rows(lock, &[projects.into(), org_id.into()]).await?;
    // Others may have removed some of the same.
    let delete = "DELETE FROM team_project_access WHERE id = ANY($1) RETURNING project_id";
    let gone: Vec<i64> = tx.column(delete, &[access.into()]).await?;
    let count = "UPDATE projects SET team_count = team_count - 1 WHERE id = ANY($1) AND org_id <> $2";
    tx.execute(count, &[gone.into(), org_id.into()]).await?;
    Ok(may_be_more)
}

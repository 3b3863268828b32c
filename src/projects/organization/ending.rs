//! What is left of deleted organizations, removed some rows at a time: nobody can ask for it any more, and a million
//! rows in one transaction would hold up every other.

use super::super::refusal::Outcome;
use super::super::tx::Tx;

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
            ("team_project_access", "id", "team_id"),
            ("team_memberships", "team_id, user_id", "team_id"),
            ("api_tokens", "id", "team_id"),
        ],
    },
    Owned { table: "workspaces", parts: &[("tag_bindings", "id", "workspace_id")] },
    Owned { table: "projects", parts: &[("tag_bindings", "id", "project_id")] },
    Owned { table: "agent_pools", parts: &[] },
    Owned { table: "organization_memberships", parts: &[] },
];

/// Removes some of what a deleted organization had, and at last the organization; whether there was anything left.
///
/// # Errors
/// Those of the store.
pub async fn step(tx: &mut Tx<'_>) -> Outcome<bool> {
    let next = "SELECT id FROM organizations WHERE ended_at IS NOT NULL ORDER BY id LIMIT 1";
    let Some(id) = tx.column::<i64>(next, &[]).await?.pop() else { return Ok(false) };
    for Owned { table, parts } in OWNED {
        let some = format!("SELECT id FROM {table} WHERE org_id = $1 LIMIT $2");
        let rows: Vec<i64> = tx.column(&some, &[id.into(), AT_ONCE.into()]).await?;
        if rows.is_empty() {
            continue;
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
    tx.execute("DELETE FROM organizations WHERE id = $1", &[id.into()]).await?;
    Ok(true)
}

//! Organizations: everything else belongs to one.

use super::caller::{Caller, Member};
use super::refusal::{Outcome, Refusal};
use super::rights::OrganizationRights;
use super::store::{Row, Value};
use super::{Tx, id};
use crate::clock::Time;

/// An execution mode with the agent pool that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode {
    /// `remote`, `local` or `agent`.
    pub name: String,
    /// External id of the agent pool; there for `agent`, and only then.
    pub pool: Option<String>,
}

/// An organization as stored.
#[derive(Clone, Debug)]
pub struct Organization {
    /// Row.
    pub id: i64,
    /// External id: the id of documents is the name.
    pub ext_id: String,
    /// Its name, as it was written.
    pub name: String,
    /// Where it can be reached.
    pub email: String,
    /// What its projects and workspaces inherit.
    pub mode: Mode,
    /// Whether tokens of users count here.
    pub user_tokens_enabled: bool,
    /// Whether workspaces that hold state may be deleted by their admins.
    pub allow_force_delete: bool,
    /// The attributes without effect, a JSON object.
    pub settings: String,
    /// How many projects it has.
    pub projects: i64,
    /// How many workspaces it has.
    pub workspaces: i64,
    /// When it was made.
    pub created_at: Time,
}

/// The columns that [`Organization::read`] takes, from `organizations o` with its pool `a`.
pub const COLUMNS: &str = "o.id, o.ext_id, o.name, o.email, o.execution_mode, a.ext_id, o.user_tokens_enabled,
    o.allow_force_delete, o.settings, o.project_count, o.workspace_count, o.created_at
    FROM organizations o LEFT JOIN agent_pools a ON a.id = o.agent_pool_id";

impl Organization {
    /// Reads [`COLUMNS`].
    ///
    /// # Errors
    /// `Internal` when a column is not what the schema says.
    pub fn read(row: &mut Row) -> Outcome<Self> {
        Ok(Self {
            id: row.get()?,
            ext_id: row.get()?,
            name: row.get()?,
            email: row.get()?,
            mode: Mode { name: row.get()?, pool: row.get()? },
            user_tokens_enabled: row.get()?,
            allow_force_delete: row.get()?,
            settings: row.get()?,
            projects: row.get()?,
            workspaces: row.get()?,
            created_at: row.get()?,
        })
    }
}

/// The organization of a name, in any case, as the caller's.
///
/// # Errors
/// `NotFound` when it is absent or the caller is an outsider: both look the same.
pub async fn named(tx: &mut Tx<'_>, caller: &Caller, name: &str) -> Outcome<Member> {
    of(tx, caller, "o.name_lc", name.to_lowercase().into()).await
}

/// The organization of a row, as the caller's.
///
/// # Errors
/// As [`named`].
pub async fn at(tx: &mut Tx<'_>, caller: &Caller, id: i64) -> Outcome<Member> {
    of(tx, caller, "o.id", id.into()).await
}

async fn of(tx: &mut Tx<'_>, caller: &Caller, column: &str, value: Value) -> Outcome<Member> {
    let sql = format!("SELECT {COLUMNS} WHERE {column} = $1");
    let mut row = tx.row(&sql, &[value]).await?.ok_or_else(Refusal::not_found)?;
    let organization = Organization::read(&mut row)?;
    caller.member(tx, organization).await
}

/// Makes an organization with its owners team, of which `owner` is the first member, and its default
/// project.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn create(tx: &mut Tx<'_>, owner: i64, name: &str, email: &str, settings: &str) -> Outcome<i64> {
    let insert = "INSERT INTO organizations (ext_id, name, name_lc, email, settings, project_count, created_at)
        VALUES ($1, $2, $3, $4, $5, 1, $6) RETURNING id";
    let values: [Value; 6] =
        [id::new("org").into(), name.into(), name.to_lowercase().into(), email.into(), settings.into(), tx.now.into()];
    let org: i64 = tx.one(insert, &values).await?.get()?;
    let member = "INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
        VALUES ($1, $2, $3, 'active', $4)";
    tx.execute(member, &[id::new("ou").into(), org.into(), owner.into(), tx.now.into()]).await?;
    let team = "INSERT INTO teams (ext_id, org_id, name, name_lc, is_owners, org_access, user_count)
        VALUES ($1, $2, 'owners', 'owners', TRUE, $3, 1) RETURNING id";
    let values: [Value; 3] = [id::new("team").into(), org.into(), OrganizationRights::ALL.bits().into()];
    let team: i64 = tx.one(team, &values).await?.get()?;
    let joins = "INSERT INTO team_memberships (team_id, user_id) VALUES ($1, $2)";
    tx.execute(joins, &[team.into(), owner.into()]).await?;
    let project = "INSERT INTO projects (ext_id, org_id, name, name_lc, is_default, created_at)
        VALUES ($1, $2, 'Default Project', 'default project', TRUE, $3)";
    tx.execute(project, &[id::new("prj").into(), org.into(), tx.now.into()]).await?;
    Ok(org)
}

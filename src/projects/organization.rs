//! Organizations: everything else belongs to one. [`change`] has their rules, [`settings`] the attributes
//! without effect.

pub mod change;
pub mod settings;

use std::collections::HashMap;

use super::caller::{Caller, Member, Subject};
use super::page::{self, Filter, Listed, Order, Page, Source, containing};
use super::refusal::{Outcome, Refusal};
use super::rights::OrganizationRights;
use super::store::{Row, Value};
use super::team::people;
use super::token::NewToken;
use super::{Tx, id, user};
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
    let organization = stored(tx, column, value).await?;
    caller.member(tx, organization).await
}

/// The organization of a row, whoever asks.
///
/// # Errors
/// `NotFound` when it is absent.
pub async fn at_row(tx: &mut Tx<'_>, id: i64) -> Outcome<Organization> {
    stored(tx, "o.id", id.into()).await
}

async fn stored(tx: &mut Tx<'_>, column: &str, value: Value) -> Outcome<Organization> {
    let sql = format!("SELECT {COLUMNS} WHERE {column} = $1");
    let mut row = tx.row(&sql, &[value]).await?.ok_or_else(Refusal::not_found)?;
    Organization::read(&mut row)
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

/// Sees to it that there is an organization of this name with an owner of the same name, and that the owner's
/// one token of that description is `token`, which does not end.
///
/// # Errors
/// `Conflict` when the text of the token is that of another one.
pub async fn prepare(tx: &mut Tx<'_>, name: &str, email: &str, token: &NewToken) -> Outcome<()> {
    let user: i64 = match tx.row("SELECT id FROM users WHERE username_lc = $1", &[name.into()]).await? {
        Some(mut row) => row.get()?,
        None => user::create(tx, name, email).await?,
    };
    let owners = "SELECT t.org_id, t.id FROM teams t JOIN organizations o ON o.id = t.org_id
        WHERE o.name_lc = $1 AND t.is_owners";
    match tx.row(owners, &[name.into()]).await? {
        None => drop(create(tx, user, name, email, "{}").await?),
        Some(mut row) => {
            let (org, team): (i64, i64) = (row.get()?, row.get()?);
            let member = "INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
                VALUES ($1, $2, $3, 'active', $4) ON CONFLICT DO NOTHING";
            tx.execute(member, &[id::new("ou").into(), org.into(), user.into(), tx.now.into()]).await?;
            people::add(tx, team, &[user]).await?;
        }
    }
    let before = "DELETE FROM api_tokens WHERE user_id = $1 AND description = $2";
    tx.execute(before, &[user.into(), name.into()]).await?;
    user::give(tx, user, Some(name), token).await
}

/// Takes the organization's row until the end of the transaction: what must not happen beside each other in
/// one organization begins with it.
///
/// # Errors
/// `NotFound` when it is gone.
pub async fn lock(tx: &mut Tx<'_>, id: i64) -> Outcome<()> {
    let locked = tx.row("SELECT id FROM organizations WHERE id = $1 FOR UPDATE", &[id.into()]).await?;
    locked.map(drop).ok_or_else(|| Refusal::not_found().into())
}

/// A page of the organizations that the caller belongs to, newest first; `q` is part of the name or of the
/// address. Where tokens of users are switched off, they do not find the organization either.
///
/// # Errors
/// Those of the store.
pub async fn list(tx: &mut Tx<'_>, caller: &Caller, q: Option<&str>, page: Page) -> Outcome<Listed<Member>> {
    const ORGANIZATIONS: Source = Source { id: "o.id", from: "organizations o" };
    const ORDER: Order = Order { column: "o.id", descending: true };
    let mut filter = match &caller.subject {
        Subject::User { id, .. } => Filter::new(
            "o.user_tokens_enabled AND o.id IN (SELECT org_id FROM organization_memberships WHERE user_id = {})",
            *id,
        ),
        Subject::Team { org_id, .. } => Filter::new("o.id = {}", *org_id),
        Subject::Organization { audit: true, .. } => return Ok(Listed { items: Vec::new(), matching: 0 }),
        Subject::Organization { id, .. } => Filter::new("o.id = {}", *id),
    };
    if let Some(q) = q {
        filter.and(r"(o.name_lc LIKE {} ESCAPE '\' OR lower(o.email) LIKE {} ESCAPE '\')", containing(q));
    }
    let (ids, matching) = page::counted_ids(tx, ORGANIZATIONS, filter, ORDER, page).await?;
    let mut found = Vec::with_capacity(ids.len());
    for mut row in tx.rows(&format!("SELECT {COLUMNS} WHERE o.id = ANY($1)"), &[ids.clone().into()]).await? {
        found.push(Organization::read(&mut row)?);
    }
    let found = page::in_order(&ids, found, |organization| organization.id);
    Ok(Listed { items: caller.members(tx, found).await?, matching })
}

/// External ids of the default projects of organizations, by the organization's row.
///
/// # Errors
/// Those of the store.
pub async fn default_projects(tx: &mut Tx<'_>, organizations: Vec<i64>) -> Outcome<HashMap<i64, String>> {
    let mut projects = HashMap::new();
    let sql = "SELECT org_id, ext_id FROM projects WHERE org_id = ANY($1) AND is_default";
    for mut row in tx.rows(sql, &[organizations.into()]).await? {
        projects.insert(row.get()?, row.get()?);
    }
    Ok(projects)
}

/// Deletes an organization with everything that belongs to it. Its people stay.
///
/// # Errors
/// Those of the store.
pub async fn delete(tx: &mut Tx<'_>, id: i64) -> Outcome<()> {
    lock(tx, id).await?;
    // A project that holds workspaces is never deleted, not even with its organization.
    tx.execute("DELETE FROM workspaces WHERE org_id = $1", &[id.into()]).await?;
    tx.execute("DELETE FROM organizations WHERE id = $1", &[id.into()]).await?;
    Ok(())
}

//! Agent pools: what workspaces of the mode `agent` name. They are kept as data: no agents join them here.
//!
//! A pool is used only within its scope ([`agent_scope`](super::agent_scope)), and the scope is not narrowed below what
//! uses the pool.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use super::agent_scope::{Scope, naming};
use super::attributes::Attributes;
use super::caller::Caller;
use super::grants;
use super::id;
use super::member::{self, Member};
use super::page::{self, Filter, Listed, Order, Page, Source, containing};
use super::refusal::{Fault, Outcome, Refusal};
use super::rights::{Flag, ProjectRights};
use super::tx::Tx;
use super::workspace::{self, Workspace, WorkspaceRights};
use crate::clock::Time;
use crate::sql::{Row, Value};

/// Longest name, characters.
const LONGEST_NAME: usize = 90;
/// Most workspaces that are shown of one pool, and most that are included in one answer.
const MOST_SHOWN: i64 = 100;
/// Longest list of what a pool is for or not for, whoever has named its parts.
pub const LONGEST_LIST: usize = 1000;
/// Most resources that the lists of several pools in one answer name, added up: each is looked up, with the rights to it.
const MOST_NAMED: usize = 20_000;

/// An agent pool as stored.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Row.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// Its name, as it was written.
    pub name: String,
    /// Whether it is for the whole organization.
    pub organization_scoped: bool,
    /// For and not for which resources, as stored.
    scope: Scope,
    /// The same, as far as the caller sees them.
    pub seen: Scope,
    /// When it was made.
    pub created_at: Time,
    /// External ids of workspaces that name it, those that the caller sees; the first ones where there are
    /// many.
    pub workspaces: Vec<String>,
}

/// What a create or an update gives.
pub struct Fields {
    name: String,
    organization_scoped: bool,
    scope: Scope,
}

/// The lists of a request, each of which is `None` when it is absent: elements as they were sent, counted
/// before.
pub struct Lists<'a> {
    /// `excluded-workspaces`
    pub excluded_workspaces: Option<&'a [Json]>,
    /// `allowed-projects`
    pub allowed_projects: Option<&'a [Json]>,
    /// `allowed-workspaces`
    pub allowed_workspaces: Option<&'a [Json]>,
}

impl Fields {
    /// Reads and checks what a request gives over `stored`, or over the defaults on a create. Faults are
    /// left in `attributes`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read(
        tx: &mut Tx<'_>,
        member: &Member,
        attributes: &mut Attributes<'_>,
        lists: Lists<'_>,
        stored: Option<&Pool>,
    ) -> Outcome<Self> {
        let name = attributes.name(stored.is_none());
        attributes.at_most("name", &name, LONGEST_NAME);
        let scoped = attributes.flag("organization-scoped").value();
        let mut scope = stored.map(|stored| stored.scope.clone()).unwrap_or_default();
        for (name, kind, given, list) in [
            ("excluded-workspaces", Kind::Workspaces, lists.excluded_workspaces, &mut scope.excluded_workspaces),
            ("allowed-projects", Kind::Projects, lists.allowed_projects, &mut scope.allowed_projects),
            ("allowed-workspaces", Kind::Workspaces, lists.allowed_workspaces, &mut scope.allowed_workspaces),
        ] {
            if let Some(elements) = given {
                let mut named = read_list(tx, member, attributes, name, kind, elements).await?;
                let most = list.len().max(LONGEST_LIST);
                // What the member does not see is not theirs to take away.
                named.extend(kind.hidden(tx, member, std::mem::take(list)).await?);
                if named.len() > most {
                    let rule = format!("{name} may have at most {LONGEST_LIST} elements, those of others included");
                    attributes.push(Fault::at(format!("/data/relationships/{name}/data"), rule));
                }
                *list = named;
            }
        }
        Ok(Self {
            name: name.over(stored.map(|stored| stored.name.clone())).unwrap_or_default(),
            organization_scoped: scoped.unwrap_or_else(|| stored.is_none_or(|stored| stored.organization_scoped)),
            scope,
        })
    }
}

/// The ids of a list, each of a resource that the member sees.
async fn read_list(
    tx: &mut Tx<'_>,
    member: &Member,
    attributes: &mut Attributes<'_>,
    name: &str,
    kind: Kind,
    elements: &[Json],
) -> Outcome<Vec<String>> {
    let place = format!("/data/relationships/{name}/data");
    let ids: Vec<Option<&str>> = elements.iter().map(|element| element.get("id").and_then(Json::as_str)).collect();
    let named: Vec<String> = ids.iter().flatten().filter(|id| !id.contains('\0')).map(|id| (*id).to_owned()).collect();
    let seen_ids = kind.seen(tx, member, named).await?;
    let (mut kept, mut seen) = (Vec::new(), HashSet::new());
    for (n, id) in ids.into_iter().enumerate() {
        match id.filter(|id| seen_ids.contains(*id)) {
            Some(id) if seen.insert(id) => kept.push(id.to_owned()),
            Some(_) => {}
            None => {
                attributes.push(Fault::at(format!("{place}/{n}/id"), format!("id must be one of the {}", kind.table())))
            }
        }
    }
    Ok(kept)
}

/// What pools are for, or not for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Workspaces,
    Projects,
}

impl Kind {
    fn table(self) -> &'static str {
        match self {
            Self::Workspaces => "workspaces",
            Self::Projects => "projects",
        }
    }

    /// Those of `ids` that are in the organization and that the member sees, looked up by id and not among all of its
    /// own.
    async fn seen(self, tx: &mut Tx<'_>, member: &Member, mut ids: Vec<String>) -> Outcome<HashSet<String>> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        // Pools of one organization name the same ones.
        ids.sort_unstable();
        ids.dedup();
        self.seen_where(tx, member, "+org_id = $1 AND ext_id = ANY($2)", ids.into()).await
    }

    /// Those of `ids` that are in the organization and that the member does not see, in their order.
    async fn hidden(self, tx: &mut Tx<'_>, member: &Member, mut ids: Vec<String>) -> Outcome<Vec<String>> {
        if ids.is_empty() {
            return Ok(ids);
        }
        let sql = format!("SELECT ext_id FROM {} WHERE +org_id = $1 AND ext_id = ANY($2)", self.table());
        let there = tx.column(&sql, &[member.organization.id.into(), ids.clone().into()]).await?;
        let there: HashSet<String> = there.into_iter().collect();
        let seen = self.seen(tx, member, ids.clone()).await?;
        ids.retain(|id| there.contains(id) && !seen.contains(id));
        Ok(ids)
    }

    /// The external ids of those that meet a condition, with the organization as `$1` and a value as `$2`, and that the
    /// member sees.
    async fn seen_where(
        self,
        tx: &mut Tx<'_>,
        member: &Member,
        condition: &str,
        value: Value,
    ) -> Outcome<HashSet<String>> {
        let columns = match self {
            Self::Workspaces => "ext_id, id, FALSE, project_id",
            Self::Projects => "ext_id, id, is_default, id",
        };
        let sql = format!("SELECT {columns} FROM {} WHERE {condition}", self.table());
        let mut found: Vec<(String, i64, bool)> = Vec::new();
        let mut places: Vec<(i64, i64)> = Vec::new();
        for mut row in tx.rows(&sql, &[member.organization.id.into(), value]).await? {
            let (ext_id, id, is_default) = (row.get()?, row.get()?, row.get()?);
            found.push((ext_id, id, is_default));
            places.push((id, row.get()?));
        }
        match self {
            Self::Workspaces => {
                let rights = workspace::rights_of(tx, member, &places).await?;
                found.retain(|(_, id, _)| rights.get(id).is_some_and(|rights| rights.has(WorkspaceRights::READ)));
            }
            Self::Projects => {
                let projects: Vec<i64> = places.iter().map(|(_, project)| *project).collect();
                let granted = grants::on(tx, member, &projects).await?;
                found.retain(|(_, id, default)| member.on_project(*default, granted.on(*id)).has(ProjectRights::READ));
            }
        }
        Ok(found.into_iter().map(|(ext_id, ..)| ext_id).collect())
    }
}

/// Whether the member may make, change and delete pools.
///
/// # Errors
/// `NotFound`.
pub fn may_manage(member: &Member) -> Outcome<()> {
    Refusal::hidden_unless(member.rights.has(Flag::ManageAgentPools))
}

/// Makes a pool in the member's organization; its row.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn create(tx: &mut Tx<'_>, member: &Member, given: Fields) -> Outcome<i64> {
    let insert = "INSERT INTO agent_pools (ext_id, org_id, name, name_lc, organization_scoped, scope, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
    let values: [Value; 7] = [
        id::new("apool").into(),
        member.organization.id.into(),
        given.name[..].into(),
        given.name.to_lowercase().into(),
        given.organization_scoped.into(),
        given.scope.text().into(),
        tx.now.into(),
    ];
    Ok(tx.one(insert, &values).await?.get()?)
}

/// Changes a pool.
///
/// # Errors
/// `Invalid` when the name is taken; `Conflict` when something uses it that it would not be for any more.
pub async fn change(tx: &mut Tx<'_>, member: &Member, pool: &Pool, given: Fields) -> Outcome<()> {
    if given.organization_scoped != pool.organization_scoped || given.scope != pool.scope {
        refuse_use_outside(tx, member, pool, &given).await?;
    }
    let update = "UPDATE agent_pools SET name = $1, name_lc = $2, organization_scoped = $3, scope = $4 WHERE id = $5";
    let values: [Value; 5] = [
        given.name[..].into(),
        given.name.to_lowercase().into(),
        given.organization_scoped.into(),
        given.scope.text().into(),
        pool.id.into(),
    ];
    tx.execute(update, &values).await?;
    Ok(())
}

/// Refuses a scope outside of which the pool is in use. The pool is held: nothing begins to use it meanwhile.
async fn refuse_use_outside(tx: &mut Tx<'_>, member: &Member, pool: &Pool, given: &Fields) -> Outcome<()> {
    let refused = |user: &str| {
        let detail = format!("the agent pool is in use by {user}, which it would not be for any more");
        Err(Refusal::conflict(detail).into())
    };
    let row: Value = pool.id.into();
    let is_default = member.organization.mode.pool.as_ref() == Some(&pool.ext_id);
    if !given.organization_scoped {
        let Scope { allowed_projects, allowed_workspaces, .. } = &given.scope;
        if is_default {
            return refused("the organization");
        }
        let project = "SELECT 1 FROM projects WHERE agent_pool_id = $1 AND NOT (ext_id = ANY($2)) LIMIT 1";
        if tx.row(project, &[row.clone(), allowed_projects.clone().into()]).await?.is_some() {
            return refused("a project");
        }
        let workspace = "SELECT 1 FROM workspaces w JOIN projects p ON p.id = w.project_id WHERE w.agent_pool_id = $1
            AND NOT (w.ext_id = ANY($2)) AND NOT (p.ext_id = ANY($3)) LIMIT 1";
        let values = [row.clone(), allowed_workspaces.clone().into(), allowed_projects.clone().into()];
        if tx.row(workspace, &values).await?.is_some() {
            return refused("a workspace");
        }
    }
    let before = &pool.scope.excluded_workspaces;
    let excluded =
        given.scope.excluded_workspaces.iter().filter(|id| !before.contains(id)).cloned().collect::<Vec<_>>();
    // Also where the workspace's project or organization names the pool.
    let workspace = "SELECT 1 FROM workspaces w JOIN projects p ON p.id = w.project_id WHERE w.ext_id = ANY($1)
        AND (w.agent_pool_id = $2 OR (w.execution_mode IS NULL
        AND (p.agent_pool_id = $2 OR (p.execution_mode IS NULL AND $3)))) LIMIT 1";
    match tx.row(workspace, &[excluded.into(), row, is_default.into()]).await? {
        Some(_) => refused("a workspace"),
        None => Ok(()),
    }
}

/// Deletes a pool that nothing names.
///
/// # Errors
/// `Conflict` by the constraints of what names it: the organization, projects, workspaces.
pub async fn delete(tx: &mut Tx<'_>, row: i64) -> Outcome<()> {
    tx.execute("DELETE FROM agent_pools WHERE id = $1", &[row.into()]).await?;
    Ok(())
}

/// A pool by its external id, with its organization as the caller's: every member sees the pools. Held until
/// the end of the session when [`Tx::hold`] was called.
///
/// # Errors
/// `NotFound` when it is absent, or the caller is an outsider.
pub async fn visible(tx: &mut Tx<'_>, caller: &Caller, ext_id: &str) -> Outcome<(Member, Pool)> {
    let found = tx.row("SELECT id, org_id FROM agent_pools WHERE ext_id = $1", &[ext_id.into()]).await?;
    let mut found = found.ok_or_else(Refusal::not_found)?;
    let (row, org_id): (i64, i64) = (found.get()?, found.get()?);
    let member = member::at(tx, caller, org_id).await?;
    if tx.holds() {
        may_manage(&member)?;
        tx.row("SELECT id FROM agent_pools WHERE id = $1 FOR UPDATE", &[row.into()]).await?;
    }
    let pool = at(tx, &member, row).await?;
    Ok((member, pool))
}

/// The pool of a row.
///
/// # Errors
/// `NotFound` when there is none.
pub async fn at(tx: &mut Tx<'_>, member: &Member, row: i64) -> Outcome<Pool> {
    Ok(these(tx, member, vec![row]).await?.pop().ok_or_else(Refusal::not_found)?)
}

fn read(row: &mut Row) -> Outcome<Pool> {
    Ok(Pool {
        id: row.get()?,
        ext_id: row.get()?,
        name: row.get()?,
        organization_scoped: row.get()?,
        scope: Scope::parse(&row.get::<String>()?),
        seen: Scope::default(),
        created_at: row.get()?,
        workspaces: Vec::new(),
    })
}

/// The pools of rows, in the order of the rows, naming only what is still there and the member sees.
///
/// # Errors
/// `Malformed` for several pools that name more than `MOST_NAMED` resources, added up.
async fn these(tx: &mut Tx<'_>, member: &Member, rows: Vec<i64>) -> Outcome<Vec<Pool>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    if rows.len() > 1 && named_in_all(tx, &rows).await? > MOST_NAMED {
        let named = "workspaces and projects, added up: ask for fewer pools";
        return Err(Refusal::parameter("page[size]", format!("the pools name more than {MOST_NAMED} {named}")).into());
    }
    let sql = "SELECT id, ext_id, name, organization_scoped, scope, created_at FROM agent_pools WHERE id = ANY($1)";
    let mut found = page::these(tx, sql, &rows, read, |pool| pool.id).await?;
    let all = |list: fn(&Scope) -> &Vec<String>| found.iter().flat_map(move |pool: &Pool| list(&pool.scope).clone());
    let workspaces = all(|scope| &scope.allowed_workspaces).chain(all(|scope| &scope.excluded_workspaces)).collect();
    let projects = all(|scope| &scope.allowed_projects).collect();
    let mut seen = Kind::Workspaces.seen(tx, member, workspaces).await?;
    seen.extend(Kind::Projects.seen(tx, member, projects).await?);
    let mut naming = named_by(tx, member, rows).await?;
    for pool in &mut found {
        pool.seen = pool.scope.seen(&seen);
        pool.workspaces = naming.remove(&pool.id).unwrap_or_default();
    }
    Ok(found)
}

/// How many resources the lists of pools name, added up, counted where they are stored: each is in quotes, and so are the
/// names of the three lists.
async fn named_in_all(tx: &mut Tx<'_>, rows: &[i64]) -> Outcome<usize> {
    let sql = r#"SELECT CAST(sum(length(scope) - length(replace(scope, '"', ''))) AS bigint) FROM agent_pools
        WHERE id = ANY($1)"#;
    let quotes: Option<i64> = tx.one(sql, &[rows.to_vec().into()]).await?.get()?;
    let texts = usize::try_from(quotes.unwrap_or_default()).unwrap_or_default() / 2;
    Ok(texts.saturating_sub(3 * rows.len()))
}

/// The workspaces that name these pools, as far as the member sees them.
async fn named_by(tx: &mut Tx<'_>, member: &Member, pools: Vec<i64>) -> Outcome<HashMap<i64, Vec<String>>> {
    let mut naming: HashMap<i64, Vec<String>> = HashMap::new();
    let Some(seen) = workspace::seen(tx, member).await? else { return Ok(naming) };
    // One pool after the other: the index of each ends at the last one that is shown.
    for pool in pools {
        let mut filter = seen.filter.clone();
        filter.and("w.agent_pool_id = {}", pool);
        let condition = filter.text().to_owned();
        let most = filter.parameter(MOST_SHOWN);
        let sql = format!("SELECT w.ext_id FROM workspaces w WHERE {condition} ORDER BY w.id LIMIT {most}");
        naming.insert(pool, tx.column(&sql, &filter.values).await?);
    }
    Ok(naming)
}

/// The workspaces that pools show, each once; the first ones where there are many.
///
/// # Errors
/// Those of the store.
pub async fn workspaces(tx: &mut Tx<'_>, member: &Member, pools: &[Pool]) -> Outcome<Vec<Workspace>> {
    let ids: Vec<String> = pools.iter().flat_map(|pool| pool.workspaces.clone()).collect();
    let sql = "SELECT id FROM workspaces WHERE ext_id = ANY($1) ORDER BY id LIMIT $2";
    let rows: Vec<i64> = tx.column(sql, &[ids.into(), MOST_SHOWN.into()]).await?;
    workspace::these(tx, member, &rows).await
}

/// What a list is asked for.
#[derive(Clone, Debug, Default)]
pub struct PoolFilter {
    /// Part of the name, without case.
    pub q: Option<String>,
    /// Name of a workspace: pools that are for it, and those for the whole organization.
    pub for_workspace: Option<String>,
    /// Name of a project, likewise.
    pub for_project: Option<String>,
    /// The order.
    pub order: By,
}

/// The order of a list of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// When they were made.
    Age {
        /// Newest first.
        backwards: bool,
    },
    /// Their names.
    Name {
        /// From the last to the first.
        backwards: bool,
    },
}

impl Default for By {
    fn default() -> Self {
        Self::Age { backwards: true }
    }
}

/// A page of the organization's pools.
///
/// # Errors
/// `Malformed` for pools that name too many resources.
pub async fn list(tx: &mut Tx<'_>, member: &Member, wanted: &PoolFilter, page: Page) -> Outcome<Listed<Pool>> {
    let mut filter = Filter::new("a.org_id = {}", member.organization.id);
    if let Some(q) = &wanted.q {
        filter.and(r"a.name_lc LIKE {} ESCAPE '\'", containing(q));
    }
    for (kind, list, name) in [
        (Kind::Workspaces, "allowed-workspaces", &wanted.for_workspace),
        (Kind::Projects, "allowed-projects", &wanted.for_project),
    ] {
        let Some(name) = name else { continue };
        // There is one at most.
        match kind
            .seen_where(tx, member, "org_id = $1 AND name_lc = $2", name.to_lowercase().into())
            .await?
            .iter()
            .next()
        {
            Some(ext_id) => filter.and("(a.organization_scoped OR a.scope LIKE {})", naming(list, ext_id)),
            None => filter.join("a.organization_scoped"),
        }
    }
    let order = match wanted.order {
        By::Age { backwards } => Order { column: "a.id", descending: backwards },
        By::Name { backwards } => Order { column: "a.name_lc", descending: backwards },
    };
    const POOLS: Source = Source { id: "a.id", from: "agent_pools a" };
    let (rows, matching) = page::counted_ids(tx, POOLS, filter, order, page).await?;
    Ok(Listed { items: these(tx, member, rows).await?, matching })
}

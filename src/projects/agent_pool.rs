//! Agent pools. A workspace with the execution mode `agent` refers to a pool. Signet only stores pools; no agents
//! connect.
//!
//! Only resources in the scope of a pool may use the pool ([`agent_scope`](super::agent_scope)). The scope cannot be
//! changed to exclude a project or workspace that uses the pool.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;

use super::agent_scope::{AgentPoolScope, pattern_of_scopes_allowing};
use super::attributes::AttributeReader;
use super::caller::ProjectsCaller;
use super::grants;
use super::id;
use super::member::{self, Member};
use super::page::{self, ListCondition, ListOrder, ListSource, PageRequest, ResultPage, substring_pattern};
use super::rejection::{ApiRejection, Fault, WorkResult};
use super::rights::{OrganizationFlag, ProjectRights};
use super::tx::Tx;
use super::workspace::{self, Workspace, WorkspaceRights};
use crate::clock::Time;
use crate::sql::{SqlRow, SqlValue};

/// Maximum length of the name of a pool, in characters.
const MAX_POOL_NAME_CHARS: usize = 90;
/// Maximum number of workspace ids in the JSON of one pool, and of workspaces that one response includes in full.
const MAX_LISTED_WORKSPACES: i64 = 100;
/// Maximum number of elements of an `allowed-` or `excluded-` list, including elements that the caller does not see.
pub const MAX_SCOPE_LIST_ELEMENTS: usize = 1000;
/// Maximum number of projects and workspaces in the scopes of all pools of one response. The limit bounds the work of
/// checking whether the caller sees each of them.
const MAX_SCOPED_RESOURCES: usize = 20_000;

/// An agent pool as stored.
#[derive(Clone, Debug)]
pub struct AgentPool {
    /// Row id.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// The name, in its original case.
    pub name: String,
    /// `true` if the pool serves the whole organization.
    pub organization_scoped: bool,
    scope: AgentPoolScope,
    /// The scope without the projects and workspaces that are hidden from the caller.
    pub visible_scope: AgentPoolScope,
    /// Creation time.
    pub created_at: Time,
    /// External ids of the workspaces that the caller sees and for which this pool is set directly, not inherited; at
    /// most 100.
    pub workspaces: Vec<String>,
}

/// The attributes of a pool to be stored by a create or an update.
pub struct AgentPoolFields {
    name: String,
    organization_scoped: bool,
    scope: AgentPoolScope,
}

/// The unparsed scope lists of a request. The calling function has checked their lengths. A list is `None` if the
/// request does not contain it.
pub struct ScopeLists<'a> {
    /// The relationship `excluded-workspaces`.
    pub excluded_workspaces: Option<&'a [Json]>,
    /// The relationship `allowed-projects`.
    pub allowed_projects: Option<&'a [Json]>,
    /// The relationship `allowed-workspaces`.
    pub allowed_workspaces: Option<&'a [Json]>,
}

impl AgentPoolFields {
    /// Validates the attributes of a request. An absent attribute keeps its value in `stored`, or gets its default on a
    /// create. Faults are added to `attributes`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read(
        tx: &mut Tx<'_>,
        member: &Member,
        attributes: &mut AttributeReader<'_>,
        lists: ScopeLists<'_>,
        stored: Option<&AgentPool>,
    ) -> WorkResult<Self> {
        let name = attributes.name(stored.is_none());
        attributes.check_max_characters("name", &name, MAX_POOL_NAME_CHARS);
        let scoped = attributes.flag("organization-scoped").value();
        let mut scope = stored.map(|stored| stored.scope.clone()).unwrap_or_default();
        for (name, kind, requested, list) in [
            (
                "excluded-workspaces",
                ScopedResourceKind::Workspaces,
                lists.excluded_workspaces,
                &mut scope.excluded_workspaces,
            ),
            ("allowed-projects", ScopedResourceKind::Projects, lists.allowed_projects, &mut scope.allowed_projects),
            (
                "allowed-workspaces",
                ScopedResourceKind::Workspaces,
                lists.allowed_workspaces,
                &mut scope.allowed_workspaces,
            ),
        ] {
            if let Some(elements) = requested {
                let mut named = read_scope_list(tx, member, attributes, name, kind, elements).await?;
                let max = list.len().max(MAX_SCOPE_LIST_ELEMENTS);
                // A member cannot remove elements that are hidden from the member.
                named.extend(kind.find_hidden(tx, member, std::mem::take(list)).await?);
                if named.len() > max {
                    let rule = format!(
                        "{name} may have at most {MAX_SCOPE_LIST_ELEMENTS} elements, including those hidden from you"
                    );
                    attributes.push(Fault::at(format!("/data/relationships/{name}/data"), rule));
                }
                *list = named;
            }
        }
        Ok(Self {
            name: name.or_stored(stored.map(|stored| stored.name.clone())).unwrap_or_default(),
            organization_scoped: scoped.unwrap_or_else(|| stored.is_none_or(|stored| stored.organization_scoped)),
            scope,
        })
    }
}

async fn read_scope_list(
    tx: &mut Tx<'_>,
    member: &Member,
    attributes: &mut AttributeReader<'_>,
    name: &str,
    kind: ScopedResourceKind,
    elements: &[Json],
) -> WorkResult<Vec<String>> {
    let pointer = format!("/data/relationships/{name}/data");
    let ids: Vec<Option<&str>> = elements.iter().map(|element| element.get("id").and_then(Json::as_str)).collect();
    let named: Vec<String> = ids.iter().flatten().filter(|id| !id.contains('\0')).map(|id| (*id).to_owned()).collect();
    let visible_ids = kind.find_visible(tx, member, named).await?;
    let mut kept = Vec::new();
    let mut seen = HashSet::new();
    for (n, id) in ids.into_iter().enumerate() {
        match id.filter(|id| visible_ids.contains(*id)) {
            Some(id) if seen.insert(id) => kept.push(id.to_owned()),
            Some(_) => {}
            None => attributes
                .push(Fault::at(format!("{pointer}/{n}/id"), format!("id must be one of the {}", kind.table()))),
        }
    }
    Ok(kept)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScopedResourceKind {
    Workspaces,
    Projects,
}

impl ScopedResourceKind {
    fn table(self) -> &'static str {
        match self {
            Self::Workspaces => "workspaces",
            Self::Projects => "projects",
        }
    }

    /// Returns the `ids` that are in the organization and that the member sees. Looks up only these ids, not all
    /// resources of the organization.
    async fn find_visible(self, tx: &mut Tx<'_>, member: &Member, mut ids: Vec<String>) -> WorkResult<HashSet<String>> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        // The scopes of different pools often contain the same resource, so duplicates are removed.
        ids.sort_unstable();
        ids.dedup();
        self.select_visible_where(tx, member, "+org_id = $1 AND ext_id = ANY($2)", ids.into()).await
    }

    /// Returns the `ids` that are in the organization and hidden from the member, in the order of `ids`.
    async fn find_hidden(self, tx: &mut Tx<'_>, member: &Member, mut ids: Vec<String>) -> WorkResult<Vec<String>> {
        if ids.is_empty() {
            return Ok(ids);
        }
        let sql = format!("SELECT ext_id FROM {} WHERE +org_id = $1 AND ext_id = ANY($2)", self.table());
        let existing = tx.column(&sql, &[member.organization.id.into(), ids.clone().into()]).await?;
        let existing: HashSet<String> = existing.into_iter().collect();
        let seen = self.find_visible(tx, member, ids.clone()).await?;
        ids.retain(|id| existing.contains(id) && !seen.contains(id));
        Ok(ids)
    }

    /// Returns the external ids of the resources that match `condition` and that the member sees. In `condition`, `$1`
    /// is the organization and `$2` is `value`.
    async fn select_visible_where(
        self,
        tx: &mut Tx<'_>,
        member: &Member,
        condition: &str,
        value: SqlValue,
    ) -> WorkResult<HashSet<String>> {
        let columns = match self {
            Self::Workspaces => "ext_id, id, FALSE, project_id",
            Self::Projects => "ext_id, id, is_default, id",
        };
        let sql = format!("SELECT {columns} FROM {} WHERE {condition}", self.table());
        let mut found: Vec<(String, i64, bool)> = Vec::new();
        let mut project_of: Vec<(i64, i64)> = Vec::new();
        for mut row in tx.rows(&sql, &[member.organization.id.into(), value]).await? {
            let ext_id = row.get()?;
            let id = row.get()?;
            let is_default = row.get()?;
            found.push((ext_id, id, is_default));
            project_of.push((id, row.get()?));
        }
        match self {
            Self::Workspaces => {
                let rights = workspace::load_workspace_rights(tx, member, &project_of).await?;
                found.retain(|(_, id, _)| rights.get(id).is_some_and(|rights| rights.has(WorkspaceRights::READ)));
            }
            Self::Projects => {
                let projects: Vec<i64> = project_of.iter().map(|(_, project)| *project).collect();
                let granted = grants::load_for_projects(tx, member, &projects).await?;
                found.retain(|(_, id, default)| {
                    member.rights_on_project(*default, granted.rights_on(*id)).has(ProjectRights::READ)
                });
            }
        }
        Ok(found.into_iter().map(|(ext_id, ..)| ext_id).collect())
    }
}

/// Checks that the member may create, change and delete pools.
///
/// # Errors
/// `NotFound` when the member may not.
pub fn require_may_manage(member: &Member) -> WorkResult<()> {
    ApiRejection::not_found_unless(member.rights.has(OrganizationFlag::ManageAgentPools))
}

/// Creates a pool in the member's organization and returns its row id.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn create(tx: &mut Tx<'_>, member: &Member, fields: AgentPoolFields) -> WorkResult<i64> {
    let insert = "INSERT INTO agent_pools (ext_id, org_id, name, name_lc, organization_scoped, scope, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
    let values: [SqlValue; 7] = [
        id::new("apool").into(),
        member.organization.id.into(),
        fields.name[..].into(),
        fields.name.to_lowercase().into(),
        fields.organization_scoped.into(),
        fields.scope.text().into(),
        tx.now.into(),
    ];
    Ok(tx.one(insert, &values).await?.get()?)
}

/// Changes a pool.
///
/// # Errors
/// `Invalid` when the name is taken; `Conflict` when the new scope excludes a resource that uses the pool.
pub async fn change(tx: &mut Tx<'_>, member: &Member, pool: &AgentPool, fields: AgentPoolFields) -> WorkResult<()> {
    if fields.organization_scoped != pool.organization_scoped || fields.scope != pool.scope {
        reject_scope_excluding_dependents(tx, member, pool, &fields).await?;
    }
    let update = "UPDATE agent_pools SET name = $1, name_lc = $2, organization_scoped = $3, scope = $4 WHERE id = $5";
    let values: [SqlValue; 5] = [
        fields.name[..].into(),
        fields.name.to_lowercase().into(),
        fields.organization_scoped.into(),
        fields.scope.text().into(),
        pool.id.into(),
    ];
    tx.execute(update, &values).await?;
    Ok(())
}

/// Rejects a new scope if it excludes a project or workspace that uses the pool. The calling function has locked the
/// pool, so no other resource can start to use the pool meanwhile.
async fn reject_scope_excluding_dependents(
    tx: &mut Tx<'_>,
    member: &Member,
    pool: &AgentPool,
    fields: &AgentPoolFields,
) -> WorkResult<()> {
    let refused = |user: &str| {
        let detail = format!("the agent pool is in use by {user}, which the new scope would exclude");
        Err(ApiRejection::conflict(detail).into())
    };
    let row: SqlValue = pool.id.into();
    let is_default = member.organization.mode.pool.as_ref() == Some(&pool.ext_id);
    if !fields.organization_scoped {
        let AgentPoolScope { allowed_projects, allowed_workspaces, .. } = &fields.scope;
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
        fields.scope.excluded_workspaces.iter().filter(|id| !before.contains(id)).cloned().collect::<Vec<_>>();
    // Also finds workspaces that inherit the pool from their project or organization.
    let workspace = "SELECT 1 FROM workspaces w JOIN projects p ON p.id = w.project_id WHERE w.ext_id = ANY($1)
        AND (w.agent_pool_id = $2 OR (w.execution_mode IS NULL
        AND (p.agent_pool_id = $2 OR (p.execution_mode IS NULL AND $3)))) LIMIT 1";
    match tx.row(workspace, &[excluded.into(), row, is_default.into()]).await? {
        Some(_) => refused("a workspace"),
        None => Ok(()),
    }
}

/// Deletes a pool that is not in use.
///
/// # Errors
/// `Conflict` when an organization, project or workspace uses the pool. Their foreign keys prevent the deletion.
pub async fn delete(tx: &mut Tx<'_>, row: i64) -> WorkResult<()> {
    tx.execute("DELETE FROM agent_pools WHERE id = $1", &[row.into()]).await?;
    Ok(())
}

/// Returns a pool and the caller's membership in its organization. Every member sees the pools. The pool is locked
/// until the end of the session if [`Tx::lock_lookups`] was called.
///
/// # Errors
/// `NotFound` when the pool is absent or the caller is not a member.
pub async fn find_visible(tx: &mut Tx<'_>, caller: &ProjectsCaller, ext_id: &str) -> WorkResult<(Member, AgentPool)> {
    let found = tx.row("SELECT id, org_id FROM agent_pools WHERE ext_id = $1", &[ext_id.into()]).await?;
    let mut found = found.ok_or_else(ApiRejection::not_found)?;
    let (row, org_id): (i64, i64) = (found.get()?, found.get()?);
    let member = member::find_by_organization_row(tx, caller, org_id).await?;
    if tx.locks_lookups() {
        require_may_manage(&member)?;
        tx.row("SELECT id FROM agent_pools WHERE id = $1 FOR UPDATE", &[row.into()]).await?;
    }
    let pool = load_by_row(tx, &member, row).await?;
    Ok((member, pool))
}

/// Returns the pool with a row id.
///
/// # Errors
/// `NotFound` when there is none.
pub async fn load_by_row(tx: &mut Tx<'_>, member: &Member, row: i64) -> WorkResult<AgentPool> {
    Ok(load_by_rows(tx, member, vec![row]).await?.pop().ok_or_else(ApiRejection::not_found)?)
}

fn read_pool(row: &mut SqlRow) -> WorkResult<AgentPool> {
    Ok(AgentPool {
        id: row.get()?,
        ext_id: row.get()?,
        name: row.get()?,
        organization_scoped: row.get()?,
        scope: AgentPoolScope::parse(&row.get::<String>()?),
        visible_scope: AgentPoolScope::default(),
        created_at: row.get()?,
        workspaces: Vec::new(),
    })
}

/// Returns the pools with these row ids, in the order of `rows`. Their fields `visible_scope` and `workspaces` contain
/// only existing resources that the member sees.
///
/// # Errors
/// `Malformed` when the scopes of several pools contain more than `MAX_SCOPED_RESOURCES` resources in total.
async fn load_by_rows(tx: &mut Tx<'_>, member: &Member, rows: Vec<i64>) -> WorkResult<Vec<AgentPool>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    if rows.len() > 1 && count_scoped_resources(tx, &rows).await? > MAX_SCOPED_RESOURCES {
        let named = "workspaces and projects in total; use a smaller page";
        return Err(ApiRejection::parameter(
            "page[size]",
            format!("the scopes of the pools name more than {MAX_SCOPED_RESOURCES} {named}"),
        )
        .into());
    }
    let sql = "SELECT id, ext_id, name, organization_scoped, scope, created_at FROM agent_pools WHERE id = ANY($1)";
    let mut found = page::load_in_order(tx, sql, &rows, read_pool, |pool| pool.id).await?;
    let all = |list: fn(&AgentPoolScope) -> &Vec<String>| {
        found.iter().flat_map(move |pool: &AgentPool| list(&pool.scope).clone())
    };
    let workspaces = all(|scope| &scope.allowed_workspaces).chain(all(|scope| &scope.excluded_workspaces)).collect();
    let projects = all(|scope| &scope.allowed_projects).collect();
    let mut seen = ScopedResourceKind::Workspaces.find_visible(tx, member, workspaces).await?;
    seen.extend(ScopedResourceKind::Projects.find_visible(tx, member, projects).await?);
    let mut workspaces_of = list_workspaces_using(tx, member, rows).await?;
    for pool in &mut found {
        pool.visible_scope = pool.scope.restricted_to(&seen);
        pool.workspaces = workspaces_of.remove(&pool.id).unwrap_or_default();
    }
    Ok(found)
}

/// Counts the resources in the scopes of pools. The SQL counts the quotation marks in the stored JSON: two for each id,
/// and two for the name of each of the three lists.
async fn count_scoped_resources(tx: &mut Tx<'_>, rows: &[i64]) -> WorkResult<usize> {
    let sql = r#"SELECT CAST(sum(length(scope) - length(replace(scope, '"', ''))) AS bigint) FROM agent_pools
        WHERE id = ANY($1)"#;
    let quotes: Option<i64> = tx.one(sql, &[rows.to_vec().into()]).await?.get()?;
    let texts = usize::try_from(quotes.unwrap_or_default()).unwrap_or_default() / 2;
    Ok(texts.saturating_sub(3 * rows.len()))
}

async fn list_workspaces_using(
    tx: &mut Tx<'_>,
    member: &Member,
    pools: Vec<i64>,
) -> WorkResult<HashMap<i64, Vec<String>>> {
    let mut workspaces_of: HashMap<i64, Vec<String>> = HashMap::new();
    let Some(seen) = workspace::select_visible(tx, member).await? else { return Ok(workspaces_of) };
    // A separate query for each pool can stop its index scan at the limit.
    for pool in pools {
        let mut filter = seen.filter.clone();
        filter.and("w.agent_pool_id = {}", pool);
        let condition = filter.text().to_owned();
        let max = filter.parameter(MAX_LISTED_WORKSPACES);
        let sql = format!("SELECT w.ext_id FROM workspaces w WHERE {condition} ORDER BY w.id LIMIT {max}");
        workspaces_of.insert(pool, tx.column(&sql, &filter.values).await?);
    }
    Ok(workspaces_of)
}

/// Returns the workspaces whose ids are in [`AgentPool::workspaces`] of these pools, without duplicates, at most 100.
///
/// # Errors
/// Those of the store.
pub async fn load_workspaces(tx: &mut Tx<'_>, member: &Member, pools: &[AgentPool]) -> WorkResult<Vec<Workspace>> {
    let ids: Vec<String> = pools.iter().flat_map(|pool| pool.workspaces.clone()).collect();
    let sql = "SELECT id FROM workspaces WHERE ext_id = ANY($1) ORDER BY id LIMIT $2";
    let rows: Vec<i64> = tx.column(sql, &[ids.into(), MAX_LISTED_WORKSPACES.into()]).await?;
    workspace::load_by_rows(tx, member, &rows).await
}

/// The filters and the sort order of a list of pools.
#[derive(Clone, Debug, Default)]
pub struct PoolFilter {
    /// Text that the name of a pool must contain, case-insensitive.
    pub q: Option<String>,
    /// Name of a workspace: selects organization-scoped pools, and pools that allow the workspace itself.
    pub for_workspace: Option<String>,
    /// Name of a project: selects organization-scoped pools, and pools that allow the project.
    pub for_project: Option<String>,
    /// The sort order.
    pub order: AgentPoolOrder,
}

/// The sort order of a list of pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentPoolOrder {
    /// By creation time.
    Age {
        /// `true` for newest first.
        descending: bool,
    },
    /// By name.
    Name {
        /// `true` for descending.
        descending: bool,
    },
}

impl Default for AgentPoolOrder {
    fn default() -> Self {
        Self::Age { descending: true }
    }
}

/// Returns a page of the organization's pools.
///
/// # Errors
/// `Malformed` when the scopes of several pools of the page contain more than [`MAX_SCOPED_RESOURCES`] resources in
/// total.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    wanted: &PoolFilter,
    page: PageRequest,
) -> WorkResult<ResultPage<AgentPool>> {
    let mut filter = ListCondition::new("a.org_id = {}", member.organization.id);
    if let Some(q) = &wanted.q {
        filter.and(r"a.name_lc LIKE {} ESCAPE '\'", substring_pattern(q));
    }
    for (kind, list, name) in [
        (ScopedResourceKind::Workspaces, "allowed-workspaces", &wanted.for_workspace),
        (ScopedResourceKind::Projects, "allowed-projects", &wanted.for_project),
    ] {
        let Some(name) = name else { continue };
        // Names are unique in an organization, so at most one resource matches.
        match kind
            .select_visible_where(tx, member, "org_id = $1 AND name_lc = $2", name.to_lowercase().into())
            .await?
            .iter()
            .next()
        {
            Some(ext_id) => {
                filter.and("(a.organization_scoped OR a.scope LIKE {})", pattern_of_scopes_allowing(list, ext_id))
            }
            None => filter.and_sql("a.organization_scoped"),
        }
    }
    let order = match wanted.order {
        AgentPoolOrder::Age { descending } => ListOrder { column: "a.id", descending },
        AgentPoolOrder::Name { descending } => ListOrder { column: "a.name_lc", descending },
    };
    const POOLS: ListSource = ListSource { id: "a.id", from: "agent_pools a" };
    let (rows, matching) = page::find_ids_and_count(tx, POOLS, filter, order, page).await?;
    Ok(ResultPage { items: load_by_rows(tx, member, rows).await?, matching })
}

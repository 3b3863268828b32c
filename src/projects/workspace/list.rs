//! Lists of the workspaces that the caller sees, sorted by name.
//!
//! For callers who see all workspaces, the query uses the organization's indexes and a stored count. For other callers,
//! the grants (rights of their teams on single projects and workspaces) are loaded first, unless there are too many.

use super::super::grants;
use super::super::page::{self, ListCondition, ListOrder, ListSource, PageRequest, ResultPage, substring_pattern};
use super::super::rights::ProjectRights;
use super::super::tag::{self, TagFilter, TaggedResource};
use super::rights::{self, WorkspaceRights};
use super::{Member, Tx, WorkResult, Workspace, load_by_rows};

/// The filters and the sort order of a list of workspaces.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceFilter {
    /// Text that the name must contain, case-insensitive.
    pub name: Option<String>,
    /// Pattern that the whole name must match, case-insensitive. `*` matches any characters.
    pub wildcard: Option<String>,
    /// Keys of tags, all of which a workspace must have.
    pub tags: Vec<String>,
    /// Keys of tags, none of which a workspace may have.
    pub without_tags: Vec<String>,
    /// Tags, all of which a workspace must have.
    pub tagged: Vec<TagFilter>,
    /// External ids of projects: a workspace must be in one of them. An empty list selects all projects.
    pub projects: Vec<String>,
    /// `true` to sort by name in descending order.
    pub descending: bool,
}

const WORKSPACES: ListSource = ListSource { id: "w.id", from: "workspaces w" };

/// Returns a page of the workspaces that the member sees.
///
/// # Errors
/// Those of the store; `Unavailable` when the query takes too long.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    wanted: &WorkspaceFilter,
    page: PageRequest,
) -> WorkResult<ResultPage<Workspace>> {
    let everything = match &wanted.projects[..] {
        [] => select_visible(tx, member).await?,
        projects => select_visible_in_projects(tx, member, projects).await?,
    };
    let Some(everything) = everything else { return Ok(ResultPage::empty()) };
    let mut filter = everything.filter;
    let before = filter.values.len();
    narrow(&mut filter, wanted);
    if !wanted.tags.is_empty() || !wanted.tagged.is_empty() {
        tx.use_custom_plans();
        let org_id = member.organization.id;
        match tag::find_rows_with_rare_tag(tx, TaggedResource::Workspace, org_id, &wanted.tags, &wanted.tagged).await? {
            Some(few) if few.is_empty() => return Ok(ResultPage::empty()),
            Some(few) => {
                filter.avoid_index("w.org_id");
                filter.avoid_index("w.project_id");
                filter.and("w.id = ANY({})", few);
            }
            None => {}
        }
    }
    let matching = match everything.known {
        Some(known) if filter.values.len() == before => known,
        _ => {
            // A generic query plan, made without the parameter values, would scan all workspaces of the organization.
            tx.use_custom_plans();
            page::count(tx, WORKSPACES, &filter).await?
        }
    };
    let order = ListOrder { column: "w.name_lc", descending: wanted.descending };
    let rows = page::find_ids(tx, WORKSPACES, filter, order, page, matching).await?;
    Ok(ResultPage { items: load_by_rows(tx, member, &rows).await?, matching })
}

/// The workspaces that a member sees: an SQL condition on `workspaces w`, and their number if it is known.
pub struct VisibleWorkspaces {
    /// The SQL condition on `workspaces w`.
    pub filter: ListCondition,
    known: Option<i64>,
}

/// Maximum number of workspaces that a query selects by row id because the member's teams have access to them
/// individually.
const MAX_DIRECT_ACCESS_ROWS: usize = 1_000;

enum DirectAccess {
    /// The row ids of the workspaces to which the member's teams have access individually, not through the project.
    Few(Vec<i64>),
    /// There are more than [`MAX_DIRECT_ACCESS_ROWS`] such workspaces; a subquery selects them.
    Many,
}

impl DirectAccess {
    async fn of(tx: &mut Tx<'_>, member: &Member) -> WorkResult<Self> {
        if member.teams.is_empty() {
            return Ok(Self::Few(Vec::new()));
        }
        let sql = "SELECT workspace_id FROM team_workspace_access WHERE team_id = ANY($1) LIMIT $2";
        let rows: Vec<i64> =
            tx.column(sql, &[member.teams.clone().into(), (MAX_DIRECT_ACCESS_ROWS as i64 + 1).into()]).await?;
        Ok(if rows.len() > MAX_DIRECT_ACCESS_ROWS { Self::Many } else { Self::Few(rows) })
    }

    fn is_none(&self) -> bool {
        matches!(self, Self::Few(rows) if rows.is_empty())
    }

    fn or(self, other: Option<String>, member: &Member, filter: &mut ListCondition) -> String {
        let own = match self {
            Self::Few(rows) if rows.is_empty() => return other.unwrap_or_else(|| "FALSE".to_owned()),
            Self::Few(rows) => format!("w.id = ANY({})", filter.parameter(rows)),
            Self::Many => format!(
                "w.id IN (SELECT workspace_id FROM team_workspace_access WHERE team_id = ANY({}))",
                filter.parameter(member.teams.clone())
            ),
        };
        other.map_or(own.clone(), |other| format!("({other} OR {own})"))
    }
}

/// Returns the workspaces of the organization that the member sees, or `None` if there are none.
///
/// # Errors
/// Those of the store.
pub async fn select_visible(tx: &mut Tx<'_>, member: &Member) -> WorkResult<Option<VisibleWorkspaces>> {
    let mut filter = ListCondition::new("w.org_id = {}", member.organization.id);
    if rights::organization_wide_rights(member).has(WorkspaceRights::READ) {
        return Ok(Some(VisibleWorkspaces { filter, known: Some(member.organization.workspaces) }));
    }
    let direct = DirectAccess::of(tx, member).await?;
    let Some(grants) = grants::load_all(tx, member).await? else {
        let teams = filter.parameter(member.teams.clone());
        let granted = format!(
            "EXISTS (SELECT 1 FROM team_project_access a WHERE a.project_id = w.project_id AND a.team_id = ANY({teams}))"
        );
        let condition = direct.or(Some(granted), member, &mut filter);
        filter.and_sql(&condition);
        return Ok(Some(VisibleWorkspaces { filter, known: None }));
    };
    let projects = grants.newest_with(ProjectRights::NONE);
    if !direct.is_none() {
        let granted = (!projects.is_empty()).then(|| format!("w.project_id = ANY({})", filter.parameter(projects)));
        let condition = direct.or(granted, member, &mut filter);
        filter.and_sql(&condition);
        return Ok(Some(VisibleWorkspaces { filter, known: None }));
    }
    if projects.is_empty() {
        return Ok(None);
    }
    let sql = "SELECT CAST(sum(workspace_count) AS bigint) FROM projects WHERE id = ANY($1)";
    let known: i64 = tx.one(sql, &[projects.clone().into()]).await?.get()?;
    filter.and("w.project_id = ANY({})", projects);
    Ok(Some(VisibleWorkspaces { filter, known: Some(known) }))
}

async fn select_visible_in_projects(
    tx: &mut Tx<'_>,
    member: &Member,
    projects: &[String],
) -> WorkResult<Option<VisibleWorkspaces>> {
    let sql = "SELECT id, workspace_count FROM projects WHERE ext_id = ANY($1) AND +org_id = $2";
    let mut counts: Vec<(i64, i64)> = Vec::new();
    for mut row in tx.rows(sql, &[projects.to_vec().into(), member.organization.id.into()]).await? {
        counts.push((row.get()?, row.get()?));
    }
    let rights = rights::load_by_project(tx, member, counts.iter().map(|(id, _)| *id).collect()).await?;
    let requested: Vec<i64> = counts.iter().map(|(id, _)| *id).collect();
    counts.retain(|(id, _)| rights.get(id).is_some_and(|rights| rights.has(WorkspaceRights::READ)));
    if counts.len() < requested.len() {
        let direct = DirectAccess::of(tx, member).await?;
        if !direct.is_none() {
            let mut filter = ListCondition::new("w.project_id = ANY({})", requested);
            let readable: Vec<i64> = counts.iter().map(|(id, _)| *id).collect();
            let granted = format!("w.project_id = ANY({})", filter.parameter(readable));
            let condition = direct.or(Some(granted), member, &mut filter);
            filter.and_sql(&condition);
            return Ok(Some(VisibleWorkspaces { filter, known: None }));
        }
    }
    let known = Some(counts.iter().map(|(_, count)| count).sum());
    Ok(match &counts[..] {
        [] => None,
        [(id, _)] => Some(VisibleWorkspaces { filter: ListCondition::new("w.project_id = {}", *id), known }),
        several => {
            let ids: Vec<i64> = several.iter().map(|(id, _)| *id).collect();
            Some(VisibleWorkspaces { filter: ListCondition::new("w.project_id = ANY({})", ids), known })
        }
    })
}

fn narrow(filter: &mut ListCondition, wanted: &WorkspaceFilter) {
    if let Some(name) = &wanted.name {
        filter.and(r"w.name_lc LIKE {} ESCAPE '\'", substring_pattern(name));
    }
    if let Some(wildcard) = &wanted.wildcard {
        filter.and(r"w.name_lc LIKE {} ESCAPE '\'", wildcard_pattern(wildcard));
    }
    tag::narrow_workspaces(filter, &wanted.tags, &wanted.tagged);
    tag::exclude_workspaces(filter, &wanted.without_tags);
}

/// Converts a wildcard into a pattern for LIKE … ESCAPE '\': `*` matches anything, other characters are literal.
fn wildcard_pattern(wildcard: &str) -> String {
    let parts: Vec<String> = wildcard.split('*').map(substring_pattern).collect();
    parts
        .iter()
        .map(|part| part.strip_prefix('%').and_then(|part| part.strip_suffix('%')).unwrap_or(part))
        .collect::<Vec<_>>()
        .join("%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_star_matches_anything_and_the_rest_is_escaped() {
        assert_eq!(wildcard_pattern("*-Prod"), "%-prod");
        assert_eq!(wildcard_pattern("a_b%*"), r"a\_b\%%");
        assert_eq!(wildcard_pattern("plain"), "plain");
        assert_eq!(wildcard_pattern("**"), "%%");
    }
}

//! Lists of the projects that the caller sees.
//!
//! For callers who see all projects, the query uses the organization's indexes and a stored count. For other callers
//! the grants (rights of their teams on single projects) are read first. If there are few grants, the query selects
//! their projects by id, at a cost independent of the organization's size. If there are many, scanning all projects
//! finds visible ones quickly.

use super::super::grants::{self, ProjectGrants};
use super::super::page::{self, ListCondition, ListOrder, ListSource, PageRequest, ResultPage, substring_pattern};
use super::super::tag::{self, TagFilter, TaggedResource};
use super::{Member, Project, ProjectRights, Tx, WorkResult, load_by_rows, load_with_grants};

/// Maximum number of projects that the server sorts in memory when a list is filtered by part of the name. The store
/// sorts longer results.
const MAX_SORTED_MATCHES: usize = 500;

const PROJECTS: ListSource = ListSource { id: "p.id", from: "projects p" };

/// The filters and the sort order of a list of projects.
#[derive(Clone, Debug, Default)]
pub struct ProjectFilter {
    /// Names, case-insensitive: a project must have one of them. If there are any, `q` is ignored.
    pub names: Vec<String>,
    /// Text that the name must contain, case-insensitive.
    pub q: Option<String>,
    /// Rights that the caller must have on each listed project.
    pub granted: ProjectRights,
    /// Tags, all of which a project must have.
    pub tagged: Vec<TagFilter>,
    /// `Some` sorts by name, in descending order if `true`. `None` sorts newest first.
    pub by_name: Option<bool>,
}

impl ProjectFilter {
    fn has_filters(&self) -> bool {
        !self.names.is_empty() || self.q.is_some() || !self.tagged.is_empty()
    }
}

/// Returns a page of the projects that the member sees and that match `wanted`, and the number of all projects that the
/// member sees.
///
/// # Errors
/// Those of the store; `Unavailable` when the query takes too long.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    wanted: &ProjectFilter,
    page: PageRequest,
) -> WorkResult<(ResultPage<Project>, i64)> {
    let needed = ProjectRights::READ | wanted.granted;
    let grants = if member.rights.on_projects().has(needed) {
        LoadedGrants::None
    } else {
        LoadedGrants::read(tx, member).await?
    };
    if wanted.has_filters() || wanted.by_name.is_some() || matches!(grants, LoadedGrants::Many(_)) {
        tx.use_custom_plans();
    }
    let everything = select_visible(tx, member, &grants, ProjectRights::READ).await?;
    let total = everything.count(tx).await?;
    let mut seen = if wanted.granted == ProjectRights::NONE {
        VisibleProjects { known: Some(total), ..everything }
    } else {
        select_visible(tx, member, &grants, needed).await?
    };
    seen.narrow(member.organization.id, wanted);
    if !wanted.tagged.is_empty() {
        seen.narrow_to_tagged(tx, member.organization.id, wanted).await?;
    }
    if wanted.q.is_some() && wanted.by_name.is_none() {
        seen.load_if_few(tx).await?;
    }
    let matching = seen.count(tx).await?;
    let order = match wanted.by_name {
        None => ListOrder { column: "p.id", descending: true },
        Some(descending) => ListOrder { column: "p.name_lc", descending },
    };
    let rows = match seen.newest {
        Some(ids) if wanted.by_name.is_none() => page.slice(&ids),
        _ => page::find_ids(tx, PROJECTS, seen.filter, order, page, matching).await?,
    };
    let items = match &grants {
        _ if rows.is_empty() => Vec::new(),
        LoadedGrants::Few(few) => load_with_grants(tx, member, &rows, few).await?,
        _ => load_by_rows(tx, member, &rows).await?,
    };
    Ok((ResultPage { items, matching }, total))
}

/// The grants of the member's teams on single projects, in addition to the member's organization-wide rights.
enum LoadedGrants {
    /// The grants were not loaded, because the organization-wide rights are sufficient.
    None,
    /// All grants, by project. They include the member's organization-wide rights on the default project.
    Few(ProjectGrants),
    /// There are too many grants to load. The value is the row id of the default project with the member's
    /// organization-wide rights on it, if any.
    Many(Option<(i64, ProjectRights)>),
}

impl LoadedGrants {
    async fn read(tx: &mut Tx<'_>, member: &Member) -> WorkResult<Self> {
        let mut default = None;
        if member.rights.on_default_project() != ProjectRights::NONE {
            let sql = "SELECT id FROM projects WHERE org_id = $1 AND is_default";
            let row = tx.one(sql, &[member.organization.id.into()]).await?.get()?;
            default = Some((row, member.rights.on_default_project()));
        }
        Ok(match (grants::load_all(tx, member).await?, default) {
            (None, default) => Self::Many(default),
            (Some(few), None) => Self::Few(few),
            (Some(few), Some((project, rights))) => Self::Few(few.with_grant(project, rights)),
        })
    }
}

/// The projects that a list selects: an SQL condition on `projects p`, and their number if it is known.
struct VisibleProjects {
    filter: ListCondition,
    known: Option<i64>,
    /// Row ids of the projects, newest first, if they were loaded.
    newest: Option<Vec<i64>>,
}

/// Selects the projects on which the member has all of the rights `needed`.
async fn select_visible(
    tx: &mut Tx<'_>,
    member: &Member,
    grants: &LoadedGrants,
    needed: ProjectRights,
) -> WorkResult<VisibleProjects> {
    let everywhere = member.rights.on_projects();
    let missing = ProjectRights::from_bits(needed.bits() & !everywhere.bits());
    Ok(match grants {
        _ if everywhere.has(needed) => {
            let filter = ListCondition::new("p.org_id = {}", member.organization.id);
            VisibleProjects { filter, known: Some(member.organization.projects), newest: None }
        }
        LoadedGrants::Few(few) => {
            let ids = few.newest_with(missing);
            let known = Some(ids.len() as i64);
            VisibleProjects { filter: ListCondition::new("p.id = ANY({})", ids.clone()), known, newest: Some(ids) }
        }
        LoadedGrants::None => VisibleProjects { filter: filter_by_grants(member, missing), known: None, newest: None },
        LoadedGrants::Many(default) => {
            let known = count_granted(tx, member, missing, *default).await?;
            VisibleProjects { filter: filter_by_grants(member, missing), known, newest: None }
        }
    })
}

/// Counts the projects on which a grant contains the right `missing`. Returns `None` if `missing` consists of several
/// rights: different grants may contain them, and this query does not combine grants.
async fn count_granted(
    tx: &mut Tx<'_>,
    member: &Member,
    missing: ProjectRights,
    default: Option<(i64, ProjectRights)>,
) -> WorkResult<Option<i64>> {
    let mut each = missing.each();
    let (Some(right), None) = (each.next(), each.next()) else { return Ok(None) };
    let default = default.filter(|(_, rights)| rights.has(right));
    let mut filter = ListCondition::new("a.team_id = ANY({})", member.teams.clone());
    filter.and("a.perm_bits & {} <> 0", right.bits());
    let organization = filter.parameter(member.organization.id);
    filter.and_sql(&grants::on_existing_project(&organization));
    if let Some((project, _)) = default {
        filter.and("a.project_id <> {}", project);
    }
    let sql = format!("SELECT count(DISTINCT a.project_id) FROM team_project_access a WHERE {}", filter.text());
    let counted: i64 = tx.one(&sql, &filter.values).await?.get()?;
    Ok(Some(counted + i64::from(default.is_some())))
}

/// Returns a condition on `projects p` that looks up the grants on each project.
fn filter_by_grants(member: &Member, missing: ProjectRights) -> ListCondition {
    let mut filter = ListCondition::new("p.org_id = {}", member.organization.id);
    let teams = filter.parameter(member.teams.clone());
    let by_default = member.rights.on_default_project();
    // Different teams may contribute different rights, so each right has its own condition.
    for right in missing.each() {
        let bit = right.bits();
        let granted = format!(
            "EXISTS (SELECT 1 FROM team_project_access a WHERE a.project_id = p.id AND a.team_id = ANY({teams})
             AND a.perm_bits & {bit} <> 0)"
        );
        filter.and_sql(&if by_default.has(right) { format!("({granted} OR p.is_default)") } else { granted });
    }
    filter
}

impl VisibleProjects {
    fn narrow(&mut self, org_id: i64, wanted: &ProjectFilter) {
        let before = self.filter.values.len();
        if !wanted.names.is_empty() {
            let names: Vec<String> = wanted.names.iter().map(|name| name.to_lowercase()).collect();
            // With the organization in the condition, the planner uses the index on names instead of the ids of granted
            // projects.
            self.filter.and("p.org_id = {}", org_id);
            self.filter.and("p.name_lc = ANY({})", names);
        } else if let Some(q) = &wanted.q {
            self.filter.and(r"p.name_lc LIKE {} ESCAPE '\'", substring_pattern(q));
        }
        tag::narrow_projects(&mut self.filter, &wanted.tagged);
        if self.filter.values.len() > before {
            (self.known, self.newest) = (None, None);
        }
    }

    /// Loads and sorts the row ids if there are at most [`MAX_SORTED_MATCHES`]. If only few names contain the searched
    /// text, this query replaces both the count and the sorted query.
    async fn load_if_few(&mut self, tx: &mut Tx<'_>) -> WorkResult<()> {
        let mut values = self.filter.values.clone();
        values.push((MAX_SORTED_MATCHES as i64 + 1).into());
        let condition = self.filter.text();
        let limit = values.len();
        let sql = format!("SELECT p.id FROM projects p WHERE {condition} LIMIT ${limit}");
        let mut ids: Vec<i64> = tx.column(&sql, &values).await?;
        if ids.len() <= MAX_SORTED_MATCHES {
            ids.sort_unstable_by(|one, other| other.cmp(one));
            (self.known, self.newest) = (Some(ids.len() as i64), Some(ids));
        }
        Ok(())
    }

    async fn narrow_to_tagged(&mut self, tx: &mut Tx<'_>, org_id: i64, wanted: &ProjectFilter) -> WorkResult<()> {
        let few = tag::find_rows_with_rare_tag(tx, TaggedResource::Project, org_id, &[], &wanted.tagged).await?;
        if let Some(few) = few {
            self.filter.avoid_index("p.org_id");
            self.filter.and("p.id = ANY({})", few);
        }
        Ok(())
    }

    async fn count(&self, tx: &mut Tx<'_>) -> WorkResult<i64> {
        if let Some(known) = self.known {
            return Ok(known);
        }
        page::count(tx, PROJECTS, &self.filter).await
    }
}

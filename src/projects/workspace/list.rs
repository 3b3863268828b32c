//! Lists of workspaces: only what the caller sees, by name.
//!
//! Who sees every workspace of the organization is served from its indexes, and the counts are kept where
//! workspaces come and go. For others the projects of their teams' grants are read first, where there are
//! not too many.

use super::super::grants;
use super::super::page::{self, Filter, Listed, Order, Page, Source, containing};
use super::super::rights::ProjectRights;
use super::super::tag::{self, Holder, TagFilter};
use super::rights::{self, WorkspaceRights};
use super::{Member, Outcome, Tx, Workspace, these};

/// What a list is asked for.
#[derive(Clone, Debug, Default)]
pub struct WorkspaceFilter {
    /// Part of the name, without case.
    pub name: Option<String>,
    /// The whole name, where `*` stands for anything, without case.
    pub wildcard: Option<String>,
    /// Keys of tags, all of which hold.
    pub tags: Vec<String>,
    /// Keys of tags, none of which holds.
    pub without_tags: Vec<String>,
    /// Tags, all of which hold.
    pub tagged: Vec<TagFilter>,
    /// External ids of projects, any of them.
    pub projects: Vec<String>,
    /// Backwards by name.
    pub backwards: bool,
}

const WORKSPACES: Source = Source { id: "w.id", from: "workspaces w" };

/// A page of the workspaces that the member sees.
///
/// # Errors
/// Those of the store; `Unavailable` when too much must be looked at.
pub async fn list(
    tx: &mut Tx<'_>,
    member: &Member,
    wanted: &WorkspaceFilter,
    page: Page,
) -> Outcome<Listed<Workspace>> {
    let everything = match &wanted.projects[..] {
        [] => seen(tx, member).await?,
        projects => of_projects(tx, member, projects).await?,
    };
    let Some(everything) = everything else { return Ok(Listed::none()) };
    let mut filter = everything.filter;
    let before = filter.values.len();
    narrow(&mut filter, wanted);
    if !wanted.tags.is_empty() || !wanted.tagged.is_empty() {
        tx.fit();
        let org_id = member.organization.id;
        match tag::few(tx, Holder::Workspace, org_id, &wanted.tags, &wanted.tagged).await? {
            Some(few) if few.is_empty() => return Ok(Listed::none()),
            Some(few) => {
                filter.not_by("w.org_id");
                filter.not_by("w.project_id");
                filter.and("w.id = ANY({})", few);
            }
            None => {}
        }
    }
    let matching = match everything.known {
        Some(known) if filter.values.len() == before => known,
        _ => {
            // What is looked for decides how: a plan for any value would go through them all.
            tx.fit();
            page::count(tx, WORKSPACES, &filter).await?
        }
    };
    let order = Order { column: "w.name_lc", descending: wanted.backwards };
    let rows = page::ids(tx, WORKSPACES, filter, order, page, matching).await?;
    Ok(Listed { items: these(tx, member, &rows).await?, matching })
}

/// What a member sees: a condition on `workspaces w`, and how many there are when that is known.
pub struct Seen {
    /// The condition.
    pub filter: Filter,
    known: Option<i64>,
}

/// The workspaces of the organization that the member sees; `None` for none at all.
///
/// # Errors
/// Those of the store.
pub async fn seen(tx: &mut Tx<'_>, member: &Member) -> Outcome<Option<Seen>> {
    let mut filter = Filter::new("w.org_id = {}", member.organization.id);
    if rights::everywhere(member).has(WorkspaceRights::READ) {
        return Ok(Some(Seen { filter, known: Some(member.organization.workspaces) }));
    }
    let Some(grants) = grants::all(tx, member).await? else {
        let granted = "EXISTS (SELECT 1 FROM team_project_access a WHERE a.project_id = w.project_id
            AND a.team_id = ANY({}))";
        filter.and(granted, member.teams.clone());
        return Ok(Some(Seen { filter, known: None }));
    };
    let projects = grants.newest_with(ProjectRights::NONE);
    if projects.is_empty() {
        return Ok(None);
    }
    let sql = "SELECT CAST(sum(workspace_count) AS bigint) FROM projects WHERE id = ANY($1)";
    let known: i64 = tx.one(sql, &[projects.clone().into()]).await?.get()?;
    filter.and("w.project_id = ANY({})", projects);
    Ok(Some(Seen { filter, known: Some(known) }))
}

/// The workspaces of projects, of those whose workspaces the member sees.
async fn of_projects(tx: &mut Tx<'_>, member: &Member, projects: &[String]) -> Outcome<Option<Seen>> {
    let sql = "SELECT id, workspace_count FROM projects WHERE ext_id = ANY($1) AND +org_id = $2";
    let mut counts: Vec<(i64, i64)> = Vec::new();
    for mut row in tx.rows(sql, &[projects.to_vec().into(), member.organization.id.into()]).await? {
        counts.push((row.get()?, row.get()?));
    }
    let rights = rights::by_project(tx, member, counts.iter().map(|(id, _)| *id).collect()).await?;
    counts.retain(|(id, _)| rights.get(id).is_some_and(|rights| rights.has(WorkspaceRights::READ)));
    let known = Some(counts.iter().map(|(_, count)| count).sum());
    Ok(match &counts[..] {
        [] => None,
        [(id, _)] => Some(Seen { filter: Filter::new("w.project_id = {}", *id), known }),
        several => {
            let ids: Vec<i64> = several.iter().map(|(id, _)| *id).collect();
            Some(Seen { filter: Filter::new("w.project_id = ANY({})", ids), known })
        }
    })
}

fn narrow(filter: &mut Filter, wanted: &WorkspaceFilter) {
    if let Some(name) = &wanted.name {
        filter.and(r"w.name_lc LIKE {} ESCAPE '\'", containing(name));
    }
    if let Some(wildcard) = &wanted.wildcard {
        filter.and(r"w.name_lc LIKE {} ESCAPE '\'", pattern(wildcard));
    }
    tag::narrow_workspaces(filter, &wanted.tags, &wanted.tagged);
    tag::exclude_workspaces(filter, &wanted.without_tags);
}

/// A wildcard as a pattern of LIKE … ESCAPE '\': `*` is anything, all else is itself.
fn pattern(wildcard: &str) -> String {
    let parts: Vec<String> = wildcard.split('*').map(containing).collect();
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
    fn only_a_star_stands_for_anything() {
        assert_eq!(pattern("*-Prod"), "%-prod");
        assert_eq!(pattern("a_b%*"), r"a\_b\%%");
        assert_eq!(pattern("plain"), "plain");
        assert_eq!(pattern("**"), "%%");
    }
}

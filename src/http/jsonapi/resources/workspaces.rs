//! Workspaces: create, update, list, show, delete; by id, or by organization and name.

use std::collections::{HashMap, HashSet};

use super::super::body::{Resource, TypeRule};
use super::super::documents::workspaces::{TYPE, document, for_planning, naming_tags};
use super::super::documents::{organizations, projects, tags};
use super::super::list::ListRequest;
use super::super::query::{MOST_LISTED, MOST_TAGS, Query, TAGGED};
use super::super::reply::{Rendered, Reply, empty};
use super::super::request::Call;
use super::super::route::{Route, route};
use crate::error::Kind;
use crate::projects::attributes::Attributes;
use crate::projects::member::{self, Member};
use crate::projects::page::Listed;
use crate::projects::project::Project;
use crate::projects::refusal::{Fault, Outcome, Refusal};
use crate::projects::rights::ProjectRights;
use crate::projects::tag::{self, Binding, Holder};
use crate::projects::workspace::{self, Fields, Of, Workspace, WorkspaceFilter, WorkspaceRights};
use crate::projects::{Tx, organization, project};

pub(crate) const ROUTES: &[Route] = &[
    route!(POST "organizations/:organization_name/workspaces", "workspace_create", create => created),
    route!(GET "organizations/:organization_name/workspaces", "workspace_list", list => listed),
    route!(GET "organizations/:organization_name/workspaces/:workspace_name", "workspace_show_named", show => shown),
    route!(PATCH "organizations/:organization_name/workspaces/:workspace_name", "workspace_update_named", update => shown),
    route!(DELETE "organizations/:organization_name/workspaces/:workspace_name", "workspace_delete_named", delete => empty),
    route!(POST "organizations/:organization_name/workspaces/:workspace_name/actions/safe-delete",
        "workspace_safe_delete_named", safe_delete => empty),
    route!(GET "workspaces/:workspace_id", "workspace_show", show => shown),
    route!(PATCH "workspaces/:workspace_id", "workspace_update", update => shown),
    route!(DELETE "workspaces/:workspace_id", "workspace_delete", delete => empty),
    route!(POST "workspaces/:workspace_id/actions/safe-delete", "workspace_safe_delete", safe_delete => empty),
    route!(GET "workspaces/:workspace_id/current-state-version", "workspace_state", current_state_version => empty),
    route!(POST "workspaces/:workspace_id/configuration-versions", "workspace_run_refuse", refuse_run => empty),
];

/// Parameters that list links repeat.
const PARAMETERS: &[&str] = &[
    "search[name]",
    "search[wildcard-name]",
    "search[tags]",
    "search[exclude-tags]",
    "filter[project][id]",
    "filter[current-run][status]",
    TAGGED,
    "sort",
    "include",
];
/// Supported `include` values.
const INCLUDED: &[&str] = &["organization", "project", "effective_tag_bindings"];
/// `include` values that known clients send, accepted without effect.
const NEVER_THERE: &[&str] = &[
    "current_run",
    "current_run.plan",
    "current_run.configuration_version",
    "current_run.configuration_version.ingress_attributes",
    "current_configuration_version",
    "current_configuration_version.ingress_attributes",
    "current_state_version",
    "locked_by",
    "outputs",
    "readme",
];
/// Maximum length of a name pattern, in characters. Names have at most 90.
const LONGEST_WILDCARD: usize = 256;

struct One {
    member: Member,
    workspace: Workspace,
    beside: Option<Beside>,
    /// `true` for a client that plans and applies.
    plans: bool,
}

struct Beside {
    /// The default project of the organization, if the organization is included.
    organization: Option<Option<String>>,
    /// The projects that the caller may see.
    projects: Vec<Project>,
    /// The tags of projects, by the row of the project.
    tags: Option<HashMap<i64, Vec<Binding>>>,
}

async fn create(tx: &mut Tx<'_>, call: &Call) -> Outcome<(Member, Workspace)> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    let resource = Resource::read(&call.document, TypeRule::Exact(TYPE), None)?;
    let project = workspace::destination(tx, &member, resource.to_one("project")?.flatten()).await?;
    let mut attributes = Attributes::new(resource.attributes());
    let pool = resource.related("agent-pool")?;
    let given = Fields::read(tx, &member, &mut attributes, pool, Of::New(&project)).await?;
    let bindings = resource.tag_bindings(&mut attributes)?.unwrap_or_default();
    let flat = resource.flat_tags(&mut attributes)?;
    attributes.finish()?;
    let row = workspace::create(tx, &member, &project, given).await?;
    if !bindings.is_empty() {
        tag::merge(tx, Holder::Workspace, row, &bindings).await?;
    }
    tag::add_flat(tx, Holder::Workspace, row, &flat).await?;
    let made = workspace::held(tx, &member, row, WorkspaceRights::NONE).await?;
    Ok((member, made))
}

fn created((member, workspace): (Member, Workspace)) -> Reply {
    Reply::created(document(&member, &workspace))
}

struct Many {
    asked: ListRequest,
    member: Member,
    listed: Listed<Workspace>,
    beside: Option<Beside>,
}

async fn list(tx: &mut Tx<'_>, call: &Call) -> Outcome<Many> {
    let member = member::named(tx, &call.caller, call.param("organization_name")).await?;
    let (query, asked) = (&call.query, ListRequest::read(call, PARAMETERS)?);
    let include = query.include(INCLUDED, NEVER_THERE)?;
    // Accepted without effect: there are no runs.
    let sort = query.sort(&["name", "current-run.created-at"])?;
    let text = |name: &str| query.text(name).map(str::to_owned);
    let wanted = WorkspaceFilter {
        name: text("search[name]"),
        wildcard: wildcard(query)?,
        tags: query.list("search[tags]", MOST_TAGS)?,
        without_tags: query.list("search[exclude-tags]", MOST_TAGS)?,
        tagged: query.tagged()?,
        projects: query.list("filter[project][id]", MOST_LISTED)?,
        backwards: sort == Some(("name", true)),
    };
    let listed = if query.text("filter[current-run][status]").is_some() {
        Listed::none()
    } else {
        workspace::list(tx, &member, &wanted, asked.page).await?
    };
    let beside = beside(tx, &member, &listed.items, &include).await?;
    Ok(Many { asked, member, listed, beside })
}

fn listed(Many { asked, member, listed, beside }: Many) -> Reply {
    let (items, included) = rendered(&member, &listed.items, beside);
    asked.document(items, listed.matching, None).including(included)
}

fn wildcard(query: &Query) -> Result<Option<String>, Refusal> {
    const NAME: &str = "search[wildcard-name]";
    let pattern = query.text(NAME);
    if pattern.is_some_and(|pattern| pattern.chars().nth(LONGEST_WILDCARD).is_some()) {
        return Err(Refusal::parameter(NAME, format!("{NAME} may have at most {LONGEST_WILDCARD} characters")));
    }
    Ok(pattern.map(str::to_owned))
}

async fn show(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    let (member, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    let include = call.query.include(INCLUDED, NEVER_THERE)?;
    let beside = beside(tx, &member, std::slice::from_ref(&workspace), &include).await?;
    Ok(One { member, workspace, beside, plans: call.plans })
}

fn shown(One { member, workspace, beside, plans }: One) -> Reply {
    let (mut items, included) = rendered(&member, std::slice::from_ref(&workspace), beside);
    let item = items.pop().unwrap_or_else(|| document(&member, &workspace));
    // The first step of the client's run is then rejected by `refuse_run`.
    let item = if plans { for_planning(item) } else { item };
    Reply::resource(item).including(included)
}

async fn beside(
    tx: &mut Tx<'_>,
    member: &Member,
    workspaces: &[Workspace],
    include: &[&str],
) -> Outcome<Option<Beside>> {
    if include.is_empty() {
        return Ok(None);
    }
    let mut rows: Vec<i64> = workspaces.iter().map(|workspace| workspace.project).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut beside = Beside { organization: None, projects: Vec::new(), tags: None };
    if include.contains(&"organization") && !workspaces.is_empty() {
        beside.organization = Some(organization::default_project(tx, member.organization.id).await?);
    }
    if include.contains(&"project") {
        beside.projects = project::these(tx, member, &rows).await?;
        // A caller may see a workspace without its project.
        beside.projects.retain(|project| project.rights.has(ProjectRights::READ));
    }
    if include.contains(&"effective_tag_bindings") {
        beside.tags = Some(tag::of(tx, Holder::Project, rows).await?);
    }
    Ok(Some(beside))
}

fn rendered(
    member: &Member,
    workspaces: &[Workspace],
    beside: Option<Beside>,
) -> (Vec<Rendered>, Option<Vec<Rendered>>) {
    let plain = || workspaces.iter().map(|workspace| document(member, workspace));
    let Some(Beside { organization, projects, tags: of_projects }) = beside else { return (plain().collect(), None) };
    let organization = organization.map(|project| organizations::document(member, project.as_deref()));
    let mut included: Vec<Rendered> = organization.into_iter().collect();
    included.extend(projects.iter().map(|project| projects::document(member, project)));
    let Some(of_projects) = of_projects else { return (plain().collect(), Some(included)) };
    let (mut items, mut seen) = (Vec::with_capacity(workspaces.len()), HashSet::new());
    for (workspace, item) in workspaces.iter().zip(plain()) {
        let inherited = of_projects.get(&workspace.project).map_or(&[][..], Vec::as_slice);
        let effective = tag::effective(&workspace.tags, inherited);
        items.push(naming_tags(item, effective.iter().map(|(binding, _)| *binding)));
        let new = effective.into_iter().filter(|(binding, _)| seen.insert(binding.ext_id.clone()));
        included.extend(new.map(|(binding, is_inherited)| {
            tags::effective(binding, is_inherited.then_some(&workspace.project_ext_id[..]))
        }));
    }
    (items, Some(included))
}

async fn update(tx: &mut Tx<'_>, call: &Call) -> Outcome<One> {
    let (member, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    let manages = workspace.rights.has(WorkspaceRights::ADMIN);
    if !manages && !workspace::may_leave(tx, &member, &workspace).await? {
        return Err(Refusal::not_found().into());
    }
    let workspace = workspace::held(tx, &member, workspace.id, WorkspaceRights::READ).await?;
    let resource = Resource::read(&call.document, TypeRule::Exact(TYPE), Some(&workspace.ext_id))?;
    let project = match resource.to_one("project")? {
        Some(None) => return Err(Refusal::at("/data/relationships/project", "project must name a project").into()),
        // The workspace is in this project already.
        named => named.flatten().filter(|named| *named != workspace.project_ext_id),
    };
    let mut attributes = Attributes::new(resource.attributes());
    let pool = resource.related("agent-pool")?;
    let given = Fields::read(tx, &member, &mut attributes, pool, Of::Stored(&workspace)).await?;
    let bindings = resource.tag_bindings(&mut attributes)?;
    let changes = !resource.attributes().is_empty() || bindings.is_some() || given.mode.is_some();
    // A caller who may only move the workspace may change nothing else.
    if changes && !workspace.rights.has(WorkspaceRights::ADMIN) {
        return Err(Refusal::not_found().into());
    }
    attributes.finish()?;
    if let Some(project) = project {
        workspace::carry(tx, &member, &workspace, &project).await?;
    }
    if changes {
        workspace::change(tx, workspace.id, given).await?;
    }
    if let Some(bindings) = bindings {
        tag::replace(tx, Holder::Workspace, workspace.id, &bindings).await?;
    }
    let changed = workspace::held(tx, &member, workspace.id, WorkspaceRights::NONE).await?;
    Ok(One { member, workspace: changed, beside: None, plans: false })
}

async fn delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let (member, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::DESTROY).await?;
    workspace::delete(tx, &member, &workspace, false).await
}

async fn safe_delete(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    let (member, workspace) = workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::DESTROY).await?;
    Resource::read(&call.document, TypeRule::Any, None)?;
    workspace::delete(tx, &member, &workspace, true).await
}

/// This server stores no state, so clients start with an empty one.
async fn current_state_version(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    Err(Refusal::not_found().into())
}

/// Rejects the first step of a plan or an apply, before anything changes.
async fn refuse_run(tx: &mut Tx<'_>, call: &Call) -> Outcome<()> {
    workspace::visible(tx, &call.caller, call.workspace(), WorkspaceRights::READ).await?;
    Resource::read(&call.document, TypeRule::Any, None)?;
    let detail = "this server administers workspaces, it runs nothing and keeps no state: plan and apply where there \
        is a backend for the state";
    let fault = Fault { title: Some("plan and apply are not possible here"), detail: detail.into(), source: None };
    Err(Refusal::of(Kind::Invalid, vec![fault]).into())
}

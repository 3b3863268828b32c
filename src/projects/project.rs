//! Projects: their rules and rows.

use super::attributes::{Attributes, Given};
use super::caller::{Caller, Member};
use super::organization;
use super::page::{Filter, Listed, Page, containing};
use super::refusal::{Outcome, Refusal};
use super::rights::ProjectRights;
use super::store::{Row, Value};
use super::{Tx, id};
use crate::clock::Time;
use crate::error::Kind;

/// A project as stored, with what the caller may do with it.
#[derive(Clone, Debug)]
pub struct Project {
    /// Row.
    pub id: i64,
    /// External id.
    pub ext_id: String,
    /// Its name, as it was written.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// After how long without activity its workspaces destroy what they manage: `14d`, `24h`.
    pub auto_destroy: Option<String>,
    /// Its own execution mode; `None` takes the organization's.
    pub own_mode: Option<organization::Mode>,
    /// Whether it is the organization's default project.
    pub is_default: bool,
    /// How many workspaces it has.
    pub workspaces: i64,
    /// How many teams were given access to it.
    pub teams: i64,
    /// When it was made.
    pub created_at: Time,
    /// What the caller may do with it.
    pub rights: ProjectRights,
}

/// The columns that [`Project::read`] takes, from `projects p` with its pool `a`.
const COLUMNS: &str = "p.id, p.ext_id, p.name, p.description, p.auto_destroy, p.execution_mode, a.ext_id,
    p.is_default, p.workspace_count, p.team_count, p.created_at
    FROM projects p LEFT JOIN agent_pools a ON a.id = p.agent_pool_id";

impl Project {
    fn read(row: &mut Row) -> Outcome<Self> {
        let (id, ext_id, name, description, auto_destroy) =
            (row.get()?, row.get()?, row.get()?, row.get()?, row.get()?);
        let (mode, pool): (Option<String>, Option<String>) = (row.get()?, row.get()?);
        Ok(Self {
            id,
            ext_id,
            name,
            description,
            auto_destroy,
            own_mode: mode.map(|name| organization::Mode { name, pool }),
            is_default: row.get()?,
            workspaces: row.get()?,
            teams: row.get()?,
            created_at: row.get()?,
            rights: ProjectRights::NONE,
        })
    }

    /// The mode that counts: its own, or the organization's.
    pub fn mode<'m>(&'m self, member: &'m Member) -> &'m organization::Mode {
        self.own_mode.as_ref().unwrap_or(&member.organization.mode)
    }
}

/// Attributes of a create.
pub struct NewProject {
    name: String,
    description: Option<String>,
    auto_destroy: Option<String>,
}

impl NewProject {
    /// Reads and checks the attributes of a create, in the order name, description, duration.
    pub fn read(attributes: &mut Attributes<'_>) -> Self {
        let name = read_name(attributes);
        if !matches!(name, Given::Value(_)) && attributes.is_sound() {
            attributes.fault("name", "Name can't be blank");
        }
        let description = read_description(attributes);
        let auto_destroy = read_duration(attributes);
        let (description, auto_destroy) = (description.value(), auto_destroy.value());
        Self { name: name.value().unwrap_or_default(), description, auto_destroy }
    }
}

/// 3 to 40 letters, digits, spaces, `-`, `_`; no space at either end.
fn read_name(attributes: &mut Attributes<'_>) -> Given<String> {
    let name = attributes.text("name");
    let Given::Value(text) = &name else { return name };
    if text.is_empty() {
        attributes.fault("name", "Name can't be blank");
        return name;
    }
    let letters = text.chars().count();
    if letters < 3 {
        attributes.fault("name", "Name is too short (minimum is 3 characters)");
    }
    if letters > 40 {
        attributes.fault("name", "Name is too long (maximum is 40 characters)");
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_');
    if !text.chars().all(legal) || text.starts_with(' ') || text.ends_with(' ') {
        attributes.fault(
            "name",
            "Name may only contain letters, numbers, spaces, - and _, and no space at its beginning or end",
        );
    }
    name
}

fn read_description(attributes: &mut Attributes<'_>) -> Given<String> {
    let description = attributes.text("description");
    if description.as_value().is_some_and(|text| text.chars().count() > 256) {
        attributes.fault("description", "Description is too long (maximum is 256 characters)");
    }
    description
}

/// The attribute `auto-destroy-activity-duration` of projects and workspaces: one to four digits that are
/// not all zero, then `d` or `h`.
pub fn read_duration(attributes: &mut Attributes<'_>) -> Given<String> {
    const NAME: &str = "auto-destroy-activity-duration";
    let duration = attributes.text(NAME);
    if duration.as_value().is_some_and(|text| !is_duration(text)) {
        attributes.fault(
            NAME,
            "Auto destroy activity duration has an incorrect format, we expect up to 4 numeric digits and 1 unit ('d' or 'h')",
        );
    }
    duration
}

fn is_duration(text: &str) -> bool {
    let Some(digits) = text.strip_suffix(['d', 'h']) else { return false };
    (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()) && digits.bytes().any(|b| b != b'0')
}

/// Makes a project in the member's organization.
///
/// # Errors
/// `Invalid` when the name is taken.
pub async fn create(tx: &mut Tx<'_>, member: &Member, new: NewProject) -> Outcome<Project> {
    let org_id = member.organization.id;
    // Held until the end of the transaction: projects of one organization are made one after the other.
    tx.execute("UPDATE organizations SET project_count = project_count + 1 WHERE id = $1", &[org_id.into()]).await?;
    let insert = "INSERT INTO projects (ext_id, org_id, name, name_lc, description, auto_destroy, created_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING id";
    let values: [Value; 7] = [
        id::new("prj").into(),
        org_id.into(),
        new.name.as_str().into(),
        new.name.to_lowercase().into(),
        new.description.into(),
        new.auto_destroy.into(),
        tx.now.into(),
    ];
    let row: i64 = tx.one(insert, &values).await?.get()?;
    at(tx, member, row).await
}

/// Whether the member may make projects.
///
/// # Errors
/// `Forbidden`: a member hears so. An answer of 404 would make known clients put what belongs into the
/// project somewhere else.
pub fn may_create(member: &Member) -> Outcome<()> {
    if member.owner || member.rights.has("manage-projects") {
        return Ok(());
    }
    Err(Refusal::forbidden("you may not create projects in this organization").into())
}

/// A project by its external id, with its organization as the caller's; the caller has `needed` on it.
///
/// # Errors
/// `NotFound` when it is absent, hidden, or `needed` is not granted.
pub async fn visible(
    tx: &mut Tx<'_>,
    caller: &Caller,
    ext_id: &str,
    needed: ProjectRights,
) -> Outcome<(Member, Project)> {
    let (member, project) = of(tx, caller, ext_id).await?;
    if !project.rights.has(ProjectRights::READ | needed) {
        return Err(Refusal::not_found().into());
    }
    Ok((member, project))
}

/// A project by its external id, with its organization as the caller's, whether or not the caller sees it.
///
/// # Errors
/// `NotFound` when it is absent or the caller is an outsider of its organization.
pub async fn of(tx: &mut Tx<'_>, caller: &Caller, ext_id: &str) -> Outcome<(Member, Project)> {
    let found = tx.row("SELECT id, org_id FROM projects WHERE ext_id = $1", &[ext_id.into()]).await?;
    let mut found = found.ok_or_else(Refusal::not_found)?;
    let (row, org_id) = (found.get()?, found.get()?);
    let member = organization::at(tx, caller, org_id).await?;
    let project = at(tx, &member, row).await?;
    Ok((member, project))
}

/// The project of a row that is there.
async fn at(tx: &mut Tx<'_>, member: &Member, row: i64) -> Outcome<Project> {
    let found = these(tx, member, vec![row]).await?.into_iter().next();
    Ok(found.ok_or_else(Refusal::not_found)?)
}

/// The projects of rows, in the order of the rows, with what the member may do with each.
async fn these(tx: &mut Tx<'_>, member: &Member, rows: Vec<i64>) -> Outcome<Vec<Project>> {
    let sql = format!("SELECT {COLUMNS} WHERE p.id = ANY($1)");
    let mut found = Vec::with_capacity(rows.len());
    for mut row in tx.rows(&sql, &[rows.clone().into()]).await? {
        found.push(Project::read(&mut row)?);
    }
    let grants = if member.owner || member.teams.is_empty() {
        Vec::new()
    } else {
        let sql = "SELECT project_id, perm_bits FROM team_project_access
            WHERE project_id = ANY($1) AND team_id = ANY($2)";
        tx.rows(sql, &[rows.clone().into(), member.teams.clone().into()]).await?
    };
    let mut of_teams = std::collections::HashMap::new();
    for mut grant in grants {
        let (project, bits): (i64, i64) = (grant.get()?, grant.get()?);
        *of_teams.entry(project).or_default() |= ProjectRights::from_bits(bits);
    }
    for project in &mut found {
        let own: ProjectRights = of_teams.get(&project.id).copied().unwrap_or_default();
        project.rights = member.on_project(project.is_default, own);
    }
    found.sort_by_key(|project| rows.iter().position(|row| *row == project.id));
    Ok(found)
}

/// What a list is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Names, any of them, without case; wins over `q`.
    pub names: Vec<String>,
    /// Part of the name, without case.
    pub q: Option<String>,
    /// Only projects on which all of this is granted.
    pub granted: ProjectRights,
    /// By name, and whether backwards; newest first otherwise.
    pub by_name: Option<bool>,
}

/// A page of the projects that the member sees, and how many the member sees without any filter.
///
/// # Errors
/// Those of the store; `Unavailable` when too much must be looked at.
pub async fn list(tx: &mut Tx<'_>, member: &Member, wanted: &Wanted, page: Page) -> Outcome<(Listed<Project>, i64)> {
    let everything = seen(member, ProjectRights::READ);
    let total = count(tx, member, &everything).await?;
    let mut filter = seen(member, ProjectRights::READ | wanted.granted);
    if !wanted.names.is_empty() {
        let names: Vec<String> = wanted.names.iter().map(|name| name.to_lowercase()).collect();
        filter.and("p.name_lc = ANY({})", names);
    } else if let Some(q) = &wanted.q {
        filter.and(r"p.name_lc LIKE {} ESCAPE '\'", containing(q));
    }
    let matching = if filter.text() == everything.text() { total } else { count(tx, member, &filter).await? };
    let order = match wanted.by_name {
        None => "p.id DESC",
        Some(false) => "p.name_lc, p.id",
        Some(true) => "p.name_lc DESC, p.id DESC",
    };
    let (limit, offset) = (filter.parameter(page.size), filter.parameter(page.offset()));
    let condition = filter.text();
    let sql = format!("SELECT p.id FROM projects p WHERE {condition} ORDER BY {order} LIMIT {limit} OFFSET {offset}");
    let mut rows = Vec::new();
    for mut row in tx.rows(&sql, &filter.values).await? {
        rows.push(row.get()?);
    }
    let items = if rows.is_empty() { Vec::new() } else { these(tx, member, rows).await? };
    Ok((Listed { items, matching }, total))
}

/// The condition on `projects p` for what the member has all of `needed` on.
fn seen(member: &Member, needed: ProjectRights) -> Filter {
    let mut filter = Filter::new("p.org_id = {}", member.organization.id);
    if member.rights.on_projects().has(needed) {
        return filter;
    }
    // All rights of one project count together, over all of the caller's teams.
    let missing = needed.bits() & !member.rights.on_projects().bits();
    let by_default = member.rights.on_default_project().has(needed);
    let bits: Vec<i64> = (0..6).map(|bit| 1 << bit).filter(|bit| missing & bit != 0).collect();
    let teams = filter.parameter(member.teams.clone());
    let all = bits.iter().map(|bit| {
        format!(
            "EXISTS (SELECT 1 FROM team_project_access a WHERE a.project_id = p.id AND a.team_id = ANY({teams})
             AND a.perm_bits & {bit} <> 0)"
        )
    });
    let all = all.collect::<Vec<_>>().join(" AND ");
    filter.join(&if by_default { format!("(({all}) OR p.is_default)") } else { all });
    filter
}

async fn count(tx: &mut Tx<'_>, member: &Member, filter: &Filter) -> Outcome<i64> {
    if filter.values.len() == 1 {
        // The whole organization: counted when projects come and go.
        return Ok(member.organization.projects);
    }
    let sql = format!("SELECT count(*) FROM projects p WHERE {}", filter.text());
    Ok(tx.one(&sql, &filter.values).await?.get()?)
}

/// Deletes an empty project that is not the default one.
///
/// # Errors
/// `Conflict` when it holds workspaces or is the default project.
pub async fn delete(tx: &mut Tx<'_>, member: &Member, project: &Project) -> Outcome<()> {
    let locked = tx.row("SELECT workspace_count FROM projects WHERE id = $1 FOR UPDATE", &[project.id.into()]).await?;
    let workspaces: i64 = locked.ok_or_else(Refusal::not_found)?.get()?;
    if project.is_default {
        return Err(Refusal::conflict("the default project of an organization cannot be deleted").into());
    }
    if workspaces > 0 {
        let detail = format!("the project holds workspaces ({workspaces}); move or delete them first");
        return Err(Refusal::new(Kind::Conflict, detail).into());
    }
    tx.execute("DELETE FROM projects WHERE id = $1", &[project.id.into()]).await?;
    let count = "UPDATE organizations SET project_count = project_count - 1 WHERE id = $1";
    tx.execute(count, &[member.organization.id.into()]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_one_to_four_digits_that_are_not_zero_and_a_unit() {
        for good in ["1h", "24h", "14d", "9999d", "0014d"] {
            assert!(is_duration(good), "{good}");
        }
        for bad in ["", "d", "0d", "0000h", "20m", "14", "d14", "14D", " 14d", "14 d", "10000d", "-1d", "14d\n", "١d"]
        {
            assert!(!is_duration(bad), "{bad}");
        }
    }
}

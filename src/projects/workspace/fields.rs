//! Validates the attributes of a workspace.

use super::super::agent_scope::{self, PoolUser};
use super::super::attributes::{AttributeReader, AttributeValue};
use super::super::mode::{self, CurrentModes, ModeChange, ModeColumns};
use super::super::project::{self, Project};
use super::super::tx::Tx;
use super::settings::{self, WorkspaceSettingValues};
use super::{Member, WorkResult, Workspace};
use crate::clock::Time;

/// Maximum length of the name of a workspace, in characters.
const MAX_WORKSPACE_NAME_CHARS: usize = 90;

/// The validated attributes of a workspace, to be stored by a create or an update.
pub struct WorkspaceFields {
    /// The name: 1 to 90 letters, digits, `-`, `_`.
    pub name: String,
    /// The description.
    pub description: Option<String>,
    /// `true` if the workspace inherits the auto-destroy duration of its project.
    pub inherits_auto_destroy: bool,
    /// The auto-destroy duration set on the workspace: the time of inactivity after which its resources are destroyed.
    /// `None` means "never" unless the workspace inherits the duration.
    pub own_auto_destroy: Option<String>,
    /// The time at which the resources of the workspace are to be destroyed.
    pub auto_destroy_at: Option<Time>,
    /// `latest`, a version, or version constraints.
    pub terraform_version: String,
    /// The attributes that are stored but have no effect.
    pub settings: WorkspaceSettingValues,
    /// The execution mode to store; `None` for no change.
    pub mode: Option<ModeColumns>,
}

impl WorkspaceFields {
    /// Reads and validates attributes. An absent attribute keeps its stored value, or gets its default on a create.
    /// `pool` is the id in the relationship to the agent pool. Faults are added to `attributes`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read(
        tx: &mut Tx<'_>,
        member: &Member,
        attributes: &mut AttributeReader<'_>,
        pool: AttributeValue<String>,
        of: WorkspaceTarget<'_>,
    ) -> WorkResult<Self> {
        let stored = of.stored();
        let name = read_name(attributes, stored.is_none());
        let description = settings::read_text(attributes, "description");
        let (inherits_auto_destroy, own_auto_destroy) = read_auto_destroy(attributes, of);
        let auto_destroy_at = attributes.time("auto-destroy-at");
        let version = settings::read_version(attributes);
        let settings = stored.map(|stored| stored.settings.clone()).unwrap_or_default().with_changes(attributes);
        let own = stored.and_then(|stored| stored.own_mode.as_ref());
        let before = CurrentModes { own, effective: stored.map(|stored| stored.mode(member)) };
        let change = mode::read_change(attributes, &mode::WORKSPACE_LEVEL, pool, before);
        if change == ModeChange::Inherit && own.is_some() {
            reject_excluding_pool(tx, member, attributes, stored).await?;
        }
        let org_id = member.organization.id;
        let mode = change.columns(tx, org_id, &mode::WORKSPACE_LEVEL, attributes, (of.pool_user(), own)).await?;
        let stored_version = stored.map(|stored| stored.terraform_version.clone());
        Ok(Self {
            name: name.or_stored(stored.map(|stored| stored.name.clone())).unwrap_or_default(),
            description: description.or_stored(stored.and_then(|stored| stored.description.clone())),
            inherits_auto_destroy,
            own_auto_destroy,
            auto_destroy_at: auto_destroy_at.or_stored(stored.and_then(|stored| stored.auto_destroy_at)),
            terraform_version: version.or_stored(stored_version).unwrap_or_else(|| settings::LATEST_VERSION.to_owned()),
            settings,
            mode,
        })
    }
}

/// The workspace to which a request's attributes apply.
#[derive(Clone, Copy)]
pub enum WorkspaceTarget<'w> {
    /// A new workspace in this project.
    New(&'w Project),
    /// An existing workspace.
    Stored(&'w Workspace),
}

impl<'w> WorkspaceTarget<'w> {
    fn stored(self) -> Option<&'w Workspace> {
        if let Self::Stored(workspace) = self { Some(workspace) } else { None }
    }

    fn pool_user(self) -> PoolUser<'w> {
        match self {
            Self::New(project) => PoolUser::Workspace(None, &project.ext_id),
            Self::Stored(workspace) => PoolUser::Workspace(Some(&workspace.ext_id), &workspace.project_ext_id),
        }
    }

    fn matches_duration(self, duration: &str) -> bool {
        let shown = match self {
            Self::New(project) => [project.auto_destroy.as_deref(), None],
            Self::Stored(workspace) => [workspace.auto_destroy.as_deref(), workspace.project_auto_destroy.as_deref()],
        };
        shown.contains(&Some(duration))
    }
}

async fn reject_excluding_pool(
    tx: &mut Tx<'_>,
    member: &Member,
    attributes: &mut AttributeReader<'_>,
    stored: Option<&Workspace>,
) -> WorkResult<()> {
    let Some(workspace) = stored else { return Ok(()) };
    let inherited = workspace.project_mode.as_ref().unwrap_or(&member.organization.mode);
    let Some(pool) = &inherited.pool else { return Ok(()) };
    let found = agent_scope::find_usable(tx, member.organization.id, pool).await?;
    if found.is_some_and(|pool| pool.excludes(Some(&workspace.ext_id))) {
        let user = PoolUser::Workspace(Some(&workspace.ext_id), &workspace.project_ext_id);
        attributes.push(mode::WORKSPACE_LEVEL.pool_fault(mode::out_of_scope_text(user)));
    }
    Ok(())
}

fn read_name(attributes: &mut AttributeReader<'_>, required: bool) -> AttributeValue<String> {
    let name = attributes.name(required);
    attributes.check_max_characters("name", &name, MAX_WORKSPACE_NAME_CHARS);
    let AttributeValue::Value(text) = &name else { return name };
    if !text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        attributes.fault("name", "Name may only contain letters, numbers, - and _");
    }
    name
}

/// Reads the auto-destroy duration. Returns `true` if the workspace inherits the duration of its project, and the
/// duration set on the workspace.
///
/// A value in the request sets the duration of the workspace; null sets "never". If the request sets
/// `inherits-project-auto-destroy` to `true`, the workspace inherits the duration. In this case, a value is a fault
/// unless it equals the duration that responses already contain.
fn read_auto_destroy(attributes: &mut AttributeReader<'_>, of: WorkspaceTarget<'_>) -> (bool, Option<String>) {
    let stored = of.stored();
    let duration = project::read_duration(attributes);
    let inherits = attributes.flag("inherits-project-auto-destroy").value();
    if duration.as_value().is_some_and(|duration| !of.matches_duration(duration)) && inherits == Some(true) {
        attributes.fault(
            "inherits-project-auto-destroy",
            "Inherits project auto destroy must not be true when a duration is given",
        );
    }
    match (duration, inherits) {
        (_, Some(true)) => (true, None),
        (AttributeValue::Value(own), _) => (false, Some(own)),
        (AttributeValue::Null, _) => (false, None),
        (AttributeValue::Absent, Some(false)) => (false, own_duration(stored)),
        (AttributeValue::Absent, None) => {
            (stored.is_none_or(|stored| stored.inherits_auto_destroy), own_duration(stored))
        }
    }
}

fn own_duration(stored: Option<&Workspace>) -> Option<String> {
    stored.filter(|stored| !stored.inherits_auto_destroy).and_then(|stored| stored.auto_destroy.clone())
}

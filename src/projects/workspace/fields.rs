//! What a create or an update gives of a workspace, and its rules.

use super::super::attributes::{Attributes, Given};
use super::super::mode::{self, Columns};
use super::super::project;
use super::super::tx::Tx;
use super::settings::{self, Settings};
use super::{Member, Outcome, Workspace};
use crate::clock::Time;

/// Longest name, characters.
const LONGEST_NAME: usize = 90;

/// A workspace's attributes after a create or an update.
pub struct Fields {
    /// 1 to 90 letters, digits, `-`, `_`.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Whether the duration is the project's.
    pub inherits_auto_destroy: bool,
    /// Its own duration; `None` beside `false` is "never".
    pub own_auto_destroy: Option<String>,
    /// When it destroys what it manages.
    pub auto_destroy_at: Option<Time>,
    /// `latest`, a version, or constraints of versions.
    pub terraform_version: String,
    /// The attributes without effect.
    pub settings: Settings,
    /// The execution mode; `None` leaves it as it is.
    pub mode: Option<Columns>,
}

impl Fields {
    /// Reads and checks attributes over those of `stored`, or over the defaults on a create. Faults are left
    /// in `attributes`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read(
        tx: &mut Tx<'_>,
        member: &Member,
        attributes: &mut Attributes<'_>,
        stored: Option<&Workspace>,
    ) -> Outcome<Self> {
        let name = read_name(attributes, stored.is_none());
        let description = settings::short(attributes, "description");
        let (inherits_auto_destroy, own_auto_destroy) = read_auto_destroy(attributes, stored);
        let auto_destroy_at = attributes.time("auto-destroy-at");
        let version = settings::read_version(attributes);
        let settings = stored.map(|stored| stored.settings.clone()).unwrap_or_default().changed(attributes);
        let own_mode = stored.and_then(|stored| stored.own_mode.as_ref());
        let mode = mode::read(attributes, &mode::WORKSPACE, Given::Absent, own_mode);
        let mode = mode.columns(tx, member.organization.id, &mode::WORKSPACE, attributes).await?;
        let stored_version = stored.map(|stored| stored.terraform_version.clone());
        Ok(Self {
            name: name.over(stored.map(|stored| stored.name.clone())).unwrap_or_default(),
            description: description.over(stored.and_then(|stored| stored.description.clone())),
            inherits_auto_destroy,
            own_auto_destroy,
            auto_destroy_at: auto_destroy_at.over(stored.and_then(|stored| stored.auto_destroy_at)),
            terraform_version: version.over(stored_version).unwrap_or_else(|| settings::LATEST.to_owned()),
            settings,
            mode,
        })
    }
}

fn read_name(attributes: &mut Attributes<'_>, required: bool) -> Given<String> {
    let name = attributes.name(required);
    attributes.at_most("name", &name, LONGEST_NAME);
    let Given::Value(text) = &name else { return name };
    if !text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        attributes.fault("name", "Name may only contain letters, numbers, - and _");
    }
    name
}

/// The duration of a workspace: whether it is the project's, and its own one.
///
/// Naming one makes it the workspace's own; null makes "never" its own, unless it is to inherit.
fn read_auto_destroy(attributes: &mut Attributes<'_>, stored: Option<&Workspace>) -> (bool, Option<String>) {
    let duration = project::read_duration(attributes);
    let inherits = attributes.flag("inherits-project-auto-destroy").value();
    if duration.as_value().is_some() && inherits == Some(true) {
        attributes.fault(
            "inherits-project-auto-destroy",
            "Inherits project auto destroy must not be true where a duration is given",
        );
    }
    match (duration, inherits) {
        (_, Some(true)) => (true, None),
        (Given::Value(own), _) => (false, Some(own)),
        (Given::Null, _) => (false, None),
        (Given::Absent, Some(false)) => (false, own_duration(stored)),
        (Given::Absent, None) => (stored.is_none_or(|stored| stored.inherits_auto_destroy), own_duration(stored)),
    }
}

/// The duration that is the workspace's own so far.
fn own_duration(stored: Option<&Workspace>) -> Option<String> {
    stored.filter(|stored| !stored.inherits_auto_destroy).and_then(|stored| stored.auto_destroy.clone())
}

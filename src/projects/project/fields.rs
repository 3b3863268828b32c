//! Validates the attributes of a project.

use super::super::agent_scope::{self, PoolUser};
use super::super::attributes::{AttributeReader, AttributeValue};
use super::super::mode::{self, CurrentModes, EXCLUDES_INHERITING_WORKSPACE, ModeChange, ModeColumns};
use super::super::tag::Tag;
use super::{Member, Project, Tx, WorkResult};

/// Maximum length of the description of a project, in characters.
const MAX_DESCRIPTION_CHARS: usize = 256;

/// The validated attributes of a request that creates or updates a project.
pub struct ProjectFields {
    /// The name: 3 to 40 letters, digits, spaces, `-`, `_`; no space at either end.
    pub name: AttributeValue<String>,
    /// The description, of at most 256 characters.
    pub description: AttributeValue<String>,
    /// The time of inactivity after which resources of the project's workspaces are destroyed, such as `14d`.
    pub auto_destroy: AttributeValue<String>,
    /// The execution mode to store; `None` for no change.
    pub mode: Option<ModeColumns>,
    /// The tags that replace all stored tags; `None` for no change.
    pub tags: Option<Vec<Tag>>,
}

impl ProjectFields {
    /// Reads and validates the attributes, in the order name, description, duration, mode. `pool` is the id in the
    /// relationship to the agent pool. `stored` is the project to update, or `None` for a create, which requires a
    /// name. Faults are added to `attributes`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read(
        tx: &mut Tx<'_>,
        member: &Member,
        attributes: &mut AttributeReader<'_>,
        pool: AttributeValue<String>,
        stored: Option<&Project>,
    ) -> WorkResult<Self> {
        let name = read_name(attributes, stored.is_none());
        let description = attributes.short_text("description", MAX_DESCRIPTION_CHARS);
        let auto_destroy = read_duration(attributes);
        let own = stored.and_then(|stored| stored.own_mode.as_ref());
        let before = CurrentModes { own, effective: stored.map(|stored| stored.mode(member)) };
        let change = mode::read_change(attributes, &mode::PROJECT_LEVEL, pool, before);
        let user = PoolUser::Project(stored.map(|stored| &stored.ext_id[..]));
        let org_id = member.organization.id;
        if let (ModeChange::Inherit, Some(_), Some(pool)) = (&change, own, &member.organization.mode.pool)
            && let Some(pool) = agent_scope::find_usable(tx, org_id, pool).await?
            && pool.excludes_inheriting_workspace(tx, org_id, user).await?
        {
            attributes.push(mode::PROJECT_LEVEL.pool_fault(EXCLUDES_INHERITING_WORKSPACE));
        }
        let mode = change.columns(tx, org_id, &mode::PROJECT_LEVEL, attributes, (user, own)).await?;
        Ok(Self { name, description, auto_destroy, mode, tags: None })
    }
}

fn read_name(attributes: &mut AttributeReader<'_>, required: bool) -> AttributeValue<String> {
    let name = attributes.name(required);
    let AttributeValue::Value(text) = &name else { return name };
    let letters = text.chars().count();
    if letters < 3 {
        attributes.fault("name", "Name is too short (minimum is 3 characters)");
    }
    attributes.check_max_characters("name", &name, 40);
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_');
    if !text.chars().all(legal) || text.starts_with(' ') || text.ends_with(' ') {
        attributes.fault(
            "name",
            "Name may only contain letters, numbers, spaces, - and _, and no space at its beginning or end",
        );
    }
    name
}

/// Reads `auto-destroy-activity-duration`: one to four digits, not all zero, then `d` or `h`.
pub fn read_duration(attributes: &mut AttributeReader<'_>) -> AttributeValue<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_up_to_four_digits_above_zero_and_a_unit() {
        for good in ["1h", "24h", "14d", "9999d", "0014d"] {
            assert!(is_duration(good), "{good}");
        }
        for bad in ["", "d", "0d", "0000h", "20m", "14", "d14", "14D", " 14d", "14 d", "10000d", "-1d", "14d\n", "١d"]
        {
            assert!(!is_duration(bad), "{bad}");
        }
    }
}

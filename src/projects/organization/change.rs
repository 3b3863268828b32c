//! Validates and stores the attributes of an organization.

use super::super::agent_scope::PoolUser;
use super::super::attributes::{AttributeReader, AttributeValue};
use super::super::mode::{self, CurrentModes, ExecutionMode, ModeColumns, ORGANIZATION_LEVEL};
use super::super::rejection::WorkResult;
use super::super::tx::Tx;
use super::super::user::is_email_address;
use super::settings::OrganizationSettingsChange;
use super::{Organization, load_by_row};
use crate::sql::SqlValue;

/// The attributes of a request that creates or updates an organization. An update does not change absent attributes.
pub struct OrganizationChange {
    name: Option<String>,
    email: Option<String>,
    mode: mode::ModeChange,
    mode_before: Option<ExecutionMode>,
    columns: Option<ModeColumns>,
    user_tokens_enabled: Option<bool>,
    allow_force_delete: Option<bool>,
    settings: OrganizationSettingsChange,
}

impl OrganizationChange {
    /// Reads and validates the attributes of an update of `stored`, or of a create (`None`). `pool` is the id in the
    /// relationship `default-agent-pool`.
    pub fn read(
        attributes: &mut AttributeReader<'_>,
        pool: AttributeValue<String>,
        stored: Option<&Organization>,
    ) -> Self {
        let name = attributes.text("name");
        match &name {
            AttributeValue::Null => attributes.fault("name", "Name can't be blank"),
            AttributeValue::Value(text) => check_name(attributes, text),
            AttributeValue::Absent => {}
        }
        let email = attributes.text("email");
        match &email {
            AttributeValue::Null => attributes.fault("email", "Email can't be blank"),
            AttributeValue::Value(text) if text.is_empty() => attributes.fault("email", "Email can't be blank"),
            AttributeValue::Value(text) if !is_email_address(text) => {
                attributes.fault("email", "Email must be an address")
            }
            AttributeValue::Value(_) | AttributeValue::Absent => {}
        }
        let mode_before = stored.map(|stored| &stored.mode);
        Self {
            name: name.value(),
            email: email.value(),
            mode: mode::read_change(
                attributes,
                &ORGANIZATION_LEVEL,
                pool,
                CurrentModes { own: mode_before, effective: mode_before },
            ),
            mode_before: mode_before.cloned(),
            columns: None,
            user_tokens_enabled: attributes.flag("user-tokens-enabled").value(),
            allow_force_delete: attributes.flag("allow-force-delete-workspaces").value(),
            settings: OrganizationSettingsChange::read(attributes),
        }
    }

    /// Reads the attributes of a create. Unlike [`OrganizationChange::read`], requires the name and the email address.
    pub fn read_new(attributes: &mut AttributeReader<'_>, pool: AttributeValue<String>) -> Self {
        for (name, detail) in [("name", "Name can't be blank"), ("email", "Email can't be blank")] {
            if !attributes.has(name) {
                attributes.fault(name, detail);
            }
        }
        Self::read(attributes, pool, None)
    }

    /// Returns the name and the email address; empty if the request does not set them.
    pub fn name_and_email(&self) -> (&str, &str) {
        (self.name.as_deref().unwrap_or_default(), self.email.as_deref().unwrap_or_default())
    }

    /// Completes the validation: looks up the agent pool in the organization with row id `id`. A create passes 0,
    /// because a new organization has no pools.
    ///
    /// # Errors
    /// `Invalid` with all faults.
    pub async fn validate_pool(
        mut self,
        tx: &mut Tx<'_>,
        id: i64,
        mut attributes: AttributeReader<'_>,
    ) -> WorkResult<Self> {
        let mode = std::mem::replace(&mut self.mode, mode::ModeChange::Unchanged);
        self.columns = mode
            .columns(tx, id, &ORGANIZATION_LEVEL, &mut attributes, (PoolUser::Organization, self.mode_before.as_ref()))
            .await?;
        attributes.finish()?;
        Ok(self)
    }

    /// Stores the change. The session must already hold the lock of the organization's row.
    ///
    /// # Errors
    /// `Invalid` when the name is taken.
    pub async fn store(self, tx: &mut Tx<'_>, id: i64) -> WorkResult<()> {
        let stored = load_by_row(tx, id).await?;
        let name = self.name.unwrap_or(stored.name);
        let sql = "UPDATE organizations SET name = $1, name_lc = $2, email = $3, user_tokens_enabled = $4,
            allow_force_delete = $5, settings = $6 WHERE id = $7";
        let values: [SqlValue; 7] = [
            name[..].into(),
            name.to_lowercase().into(),
            self.email.unwrap_or(stored.email).into(),
            self.user_tokens_enabled.unwrap_or(stored.user_tokens_enabled).into(),
            self.allow_force_delete.unwrap_or(stored.allow_force_delete).into(),
            self.settings.apply_to(&stored.settings).into(),
            id.into(),
        ];
        tx.execute(sql, &values).await?;
        if let Some(columns) = self.columns {
            let sql = "UPDATE organizations SET execution_mode = $1, agent_pool_id = $2 WHERE id = $3";
            tx.execute(sql, &[columns.mode.into(), columns.pool.into(), id.into()]).await?;
        }
        Ok(())
    }
}

/// Adds a fault unless the name consists of 3 to 40 letters, digits, `-` and `_`.
fn check_name(attributes: &mut AttributeReader<'_>, name: &str) {
    let letters = name.chars().count();
    if letters == 0 {
        return attributes.fault("name", "Name can't be blank");
    }
    if letters < 3 {
        attributes.fault("name", "Name is too short (minimum is 3 characters)");
    }
    if letters > 40 {
        attributes.fault("name", "Name is too long (maximum is 40 characters)");
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')) {
        attributes.fault("name", "Name may only contain letters, numbers, - and _");
    }
}

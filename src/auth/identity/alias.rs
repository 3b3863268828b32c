//! Creation, changes and deletion of aliases by operators.

use std::collections::BTreeMap;

use super::cache::EntityRef;
use super::change::check_metadata;
use super::entity::{Alias, Entity};
use crate::auth::Auth;
use crate::auth::store::{AuthOutcome, AuthWrite, EntityBy};
use crate::clock::Time;
use crate::documents::retry_on_conflict;
use crate::error::{Error, Result};
use crate::fields::is_control_or_bidi;

const MAX_ALIAS_NAME_BYTES: usize = 1_024;

/// A change of an alias; a field that is `None` keeps its value.
#[derive(Clone, Debug, Default)]
pub struct AliasChange {
    /// Accessor of the mount at which the entity has this name.
    pub accessor: Option<String>,
    /// Name of the entity at the mount.
    pub name: Option<String>,
    /// Id of the entity to which the alias belongs.
    pub entity: Option<String>,
    /// Metadata set by operators; replaces all earlier operator metadata.
    pub custom_metadata: Option<BTreeMap<String, String>>,
}

impl Auth {
    /// Creates an alias (and its entity, if `change` names none) or changes the existing one. Returns the alias if it
    /// was created or changed.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule; store errors.
    pub async fn alias_write(&self, change: AliasChange) -> Result<Option<Alias>> {
        let change = change.validated()?;
        let (Some(accessor), Some(name)) = (&change.accessor, &change.name) else {
            return Err(Error::invalid("'id' or 'mount_accessor' and 'name' must be provided"));
        };
        self.check_accessor(accessor)?;
        let attempt = async || {
            let by = EntityBy::Alias { accessor: accessor.clone(), name: name.clone() };
            match self.entity(by).await? {
                Some(of) => match of.alias_at(accessor) {
                    Some(alias) => self.update_alias(alias, &change).await,
                    None => Err(Error::internal(format!(
                        "entity {}: was found by its alias at {accessor}, but has no such alias",
                        of.id
                    ))),
                },
                None => self.create_alias(accessor, name, &change).await.map(Some),
            }
        };
        retry_on_conflict("identity", attempt).await
    }

    /// Changes the alias with this id. Returns the alias if anything changed.
    ///
    /// # Errors
    /// `Invalid` when the alias does not exist, or naming the field and its rule; store errors.
    pub async fn alias_change(&self, id: &str, change: AliasChange) -> Result<Option<Alias>> {
        let change = change.validated()?;
        if let Some(accessor) = &change.accessor {
            self.check_accessor(accessor)?;
        }
        let attempt = async || {
            let known = self.alias(id).await?.ok_or_else(|| Error::invalid("invalid alias ID provided"))?;
            self.update_alias(&known, &change).await
        };
        retry_on_conflict("identity", attempt).await
    }

    async fn create_alias(&self, accessor: &str, name: &str, change: &AliasChange) -> Result<Alias> {
        let now = self.clock.now();
        let (mut unit, entity) = match &change.entity {
            Some(id) => {
                let entity = self.entity_without_alias(id, accessor).await?;
                (permanent_entity_write(&entity, now)?, entity.id.clone())
            }
            None => {
                let entity = Entity::new(now);
                (vec![AuthWrite::EntityPut(entity.row()?)], entity.id)
            }
        };
        let mut alias = Alias::new(accessor, name, &entity, now);
        alias.custom_metadata = change.custom_metadata.clone().unwrap_or_default();
        unit.push(AuthWrite::AliasPut(alias.row()?));
        let stored = self.store.commit(unit).await;
        self.entities.mark_changed(&entity);
        stored.map(|_| alias)
    }

    async fn update_alias(&self, known: &Alias, change: &AliasChange) -> Result<Option<Alias>> {
        let mut alias = known.clone();
        for (to, from) in [
            (&mut alias.accessor, &change.accessor),
            (&mut alias.name, &change.name),
            (&mut alias.entity, &change.entity),
        ] {
            if let Some(from) = from {
                to.clone_from(from);
            }
        }
        if let Some(metadata) = &change.custom_metadata {
            alias.custom_metadata.clone_from(metadata);
        }
        if alias == *known {
            return Ok(None);
        }
        let entity = match (&alias.accessor, &alias.entity) == (&known.accessor, &known.entity) {
            false => self.entity_without_alias(&alias.entity, &alias.accessor).await?,
            true => self.read_entity(EntityBy::Id(alias.entity.clone())).await?.ok_or_else(unknown_entity_error)?,
        };
        if (&alias.accessor, &alias.name) != (&known.accessor, &known.name) {
            let by = EntityBy::Alias { accessor: alias.accessor.clone(), name: alias.name.clone() };
            if self.entity(by).await?.is_some() {
                return Err(Error::invalid("alias with combination of mount accessor and name already exists"));
            }
        }
        alias.version += 1;
        alias.updated_at = self.clock.now();
        let mut unit = permanent_entity_write(&entity, alias.updated_at)?;
        unit.push(AuthWrite::AliasPut(alias.row()?));
        let stored = self.store.commit(unit).await;
        // The cached entities are marked as changed even if the commit failed, because the store may nevertheless have
        // committed the change.
        self.entities.mark_changed(&known.entity);
        self.entities.mark_changed(&alias.entity);
        stored.map(|_| Some(alias))
    }

    /// Returns the entity with this id; `Invalid` if it has an alias at the mount already.
    async fn entity_without_alias(&self, entity: &str, accessor: &str) -> Result<EntityRef> {
        let known = self.read_entity(EntityBy::Id(entity.to_owned())).await?.ok_or_else(unknown_entity_error)?;
        match known.alias_at(accessor) {
            Some(_) => Err(Error::invalid("Alias already exists for requested entity and mount accessor")),
            None => Ok(known),
        }
    }

    /// Deletes an alias. Returns `true` if it existed.
    ///
    /// # Errors
    /// Store errors.
    pub async fn alias_delete(&self, id: &str) -> Result<bool> {
        let Some(alias) = self.alias(id).await? else { return Ok(false) };
        let dropped = self.store.commit(vec![AuthWrite::AliasDelete(id.to_owned())]).await;
        self.entities.mark_changed(&alias.entity);
        Ok(dropped? == [AuthOutcome::Done])
    }

    fn check_accessor(&self, accessor: &str) -> Result<()> {
        match self.mounts().iter().any(|mount| mount.is_auth() && mount.accessor == *accessor) {
            true => Ok(()),
            false => Err(Error::invalid("mount_accessor: there is no authentication method with this accessor")),
        }
    }
}

fn unknown_entity_error() -> Error {
    Error::invalid("invalid canonical ID")
}

/// Returns the write that makes an entity permanent. It is used when an operator gives an alias to an entity that a
/// login created. Returns no write if the entity is permanent already.
fn permanent_entity_write(entity: &Entity, now: Time) -> Result<Vec<AuthWrite>> {
    if entity.kept_until.is_none() {
        return Ok(Vec::new());
    }
    let permanent = Entity { kept_until: None, version: entity.version + 1, updated_at: now, ..entity.clone() };
    Ok(vec![AuthWrite::EntityPut(permanent.row()?)])
}

impl AliasChange {
    fn validated(self) -> Result<Self> {
        if let Some(name) = &self.name
            && (name.is_empty() || name.len() > MAX_ALIAS_NAME_BYTES || name.contains(is_control_or_bidi))
        {
            return Err(Error::invalid(format!(
                "name: must have 1 to {MAX_ALIAS_NAME_BYTES} bytes and no control or bidirectional characters"
            )));
        }
        if let Some(pairs) = &self.custom_metadata {
            check_metadata("custom_metadata", pairs)?;
        }
        Ok(self)
    }
}

//! Creation, changes and deletion of entities by operators.

use std::collections::BTreeMap;

use super::cache::EntityRef;
use super::entity::Entity;
use crate::auth::names::{contains, normalize_token_policies};
use crate::auth::policies::{MAX_NAME_LEN, fold_policy_name};
use crate::auth::store::{AuthOutcome, AuthWrite, EntityBy};
use crate::auth::{Auth, ROOT_POLICY};
use crate::documents::retry_on_conflict;
use crate::error::{Error, Result};
use crate::fields::has_invisible;

const MAX_METADATA_PAIRS: usize = 64;
/// Maximum total length in bytes of all metadata keys and values of an entity or alias.
const MAX_METADATA_BYTES: usize = 4_096;

/// A change of an entity; a field that is `None` keeps its value.
#[derive(Clone, Debug, Default)]
pub struct EntityChange {
    /// Name of the entity.
    pub name: Option<String>,
    /// Metadata of the entity; replaces all earlier metadata.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Names of the entity's policies; replaces the whole list.
    pub policies: Option<Vec<String>>,
    /// `true` to reject the logins and tokens of the entity.
    pub disabled: Option<bool>,
}

impl EntityChange {
    fn validated(self) -> Result<Self> {
        let Self { name, metadata, policies, disabled } = self;
        if let Some(pairs) = &metadata {
            check_metadata("metadata", pairs)?;
        }
        let name = name.map(validate_entity_name).transpose()?;
        let policies = policies.map(validate_entity_policies).transpose()?;
        Ok(Self { name, metadata, policies, disabled })
    }

    /// Applies the change to `entity`. Returns `true` if that changed anything.
    fn apply(&self, entity: &mut Entity) -> bool {
        let before = entity.clone();
        if let Some(name) = &self.name {
            entity.name.clone_from(name);
        }
        if let Some(metadata) = &self.metadata {
            entity.metadata.clone_from(metadata);
        }
        if let Some(policies) = &self.policies {
            entity.policies.clone_from(policies);
        }
        entity.disabled = self.disabled.unwrap_or(entity.disabled);
        // An entity that a login created becomes permanent when an operator changes it.
        entity.kept_until = None;
        *entity != before
    }
}

impl Auth {
    /// Creates an entity with the given name or a random one, or changes the existing entity with that name. Returns
    /// the entity if it is new.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule; store errors.
    pub async fn entity_write(&self, change: EntityChange) -> Result<Option<EntityRef>> {
        let change = change.validated()?;
        let attempt = async || {
            let known = match &change.name {
                Some(name) => self.read_entity(EntityBy::Name(name.clone())).await?,
                None => None,
            };
            match known {
                Some(known) => self.update_entity(&known, &change).await.map(|()| None),
                None => self.create_entity(&change).await.map(Some),
            }
        };
        retry_on_conflict("identity", attempt).await
    }

    /// Changes the entity with this id.
    ///
    /// # Errors
    /// `Invalid` when the entity does not exist, or naming the field and its rule; store errors.
    pub async fn entity_change(&self, id: &str, change: EntityChange) -> Result<()> {
        let change = change.validated()?;
        let attempt = async || {
            let known = self.read_entity(EntityBy::Id(id.to_owned())).await?;
            let known = known.ok_or_else(|| Error::invalid("entity not found from id"))?;
            if let Some(name) = change.name.as_ref().filter(|name| **name != known.name)
                && self.read_entity(EntityBy::Name(name.clone())).await?.is_some()
            {
                return Err(Error::invalid("entity name is already in use"));
            }
            self.update_entity(&known, &change).await
        };
        retry_on_conflict("identity", attempt).await
    }

    async fn create_entity(&self, change: &EntityChange) -> Result<EntityRef> {
        let now = self.clock.now();
        let mut entity = Entity::new(now);
        change.apply(&mut entity);
        let epoch = self.entities.epoch();
        self.store.commit(vec![AuthWrite::EntityPut(entity.row()?)]).await?;
        Ok(self.entities.put(entity, now, epoch))
    }

    async fn update_entity(&self, known: &Entity, change: &EntityChange) -> Result<()> {
        let mut entity = known.clone();
        if !change.apply(&mut entity) {
            return Ok(());
        }
        entity.version += 1;
        entity.updated_at = self.clock.now();
        let stored = self.store.commit(vec![AuthWrite::EntityPut(entity.row()?)]).await;
        // The cached entity is marked as changed even if the commit failed, because the store may nevertheless have
        // committed the change.
        self.entities.mark_changed(&entity.id);
        stored.map(drop)
    }

    /// Deletes an entity with its aliases. The tokens of the entity are rejected from then on. Returns `true` if the
    /// entity existed.
    ///
    /// # Errors
    /// Store errors.
    pub async fn entity_delete(&self, by: EntityBy) -> Result<bool> {
        let id = match by {
            EntityBy::Id(id) => id,
            other => match self.read_entity(other).await? {
                Some(known) => known.id.clone(),
                None => return Ok(false),
            },
        };
        let dropped = self.store.commit(vec![AuthWrite::EntityDelete(id.clone())]).await;
        self.entities.mark_changed(&id);
        Ok(dropped? == [AuthOutcome::Done])
    }
}

fn validate_entity_name(name: String) -> Result<String> {
    let name = fold_policy_name(&name);
    if name.is_empty() || name.len() > MAX_NAME_LEN || name != name.trim() || has_invisible(&name) {
        return Err(Error::invalid(format!(
            "name: must have 1 to {MAX_NAME_LEN} bytes and no control or invisible characters"
        )));
    }
    Ok(name)
}

/// Normalizes the names of an entity's policies. Rejects policies that operators cannot assign, such as `root`.
fn validate_entity_policies(names: Vec<String>) -> Result<Vec<String>> {
    let names = normalize_token_policies("policies", names)?;
    match contains(&names, ROOT_POLICY) {
        true => Err(Error::invalid("policies cannot contain root")),
        false => Ok(names),
    }
}

pub(in crate::auth) fn check_metadata(field: &str, pairs: &BTreeMap<String, String>) -> Result<()> {
    let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if pairs.len() > MAX_METADATA_PAIRS || bytes > MAX_METADATA_BYTES {
        return Err(Error::invalid(format!(
            "{field}: more than {MAX_METADATA_PAIRS} pairs or {MAX_METADATA_BYTES} bytes"
        )));
    }
    Ok(())
}

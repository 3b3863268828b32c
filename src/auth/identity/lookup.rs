//! Finds or creates the entity of a login, and reads entities and aliases for tokens and operators.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::cache::EntityRef;
use super::entity::{Alias, Entity};
use crate::auth::Auth;
use crate::auth::mounts::Mount;
use crate::auth::store::{AliasEntry, AuthOutcome, AuthWrite, EntityBy, EntityEntry, EntityPage};
use crate::clock::Time;
use crate::documents::retry_on_conflict;
use crate::error::{Error, Kind, Result};
use crate::fields::is_control_or_bidi;

const MAX_LOGIN_NAME_BYTES: usize = 1_024;
/// Time for which an entity that a login created is kept, even if no token uses it.
const MIN_ENTITY_LIFETIME: Duration = Duration::from_secs(3_600);
/// If the entity of a login could be removed within this time, the login postpones the removal, so that the entity
/// exists when the token is stored.
const MIN_REMAINING_LIFETIME_AT_LOGIN: Duration = Duration::from_secs(600);

/// The identity of a client that logs in, as reported by the authentication method.
#[derive(Clone, Debug, Default)]
pub struct LoginAlias {
    /// Name of the client at the mount, case-sensitive.
    pub name: String,
    /// Metadata of the client, which policy templates can use.
    pub metadata: BTreeMap<String, String>,
    /// Names of the client's groups.
    pub groups: Vec<String>,
}

impl Auth {
    /// Returns the entity of a client that logs in, or creates the entity and its alias in one commit. Updates the
    /// alias if the login's metadata or groups differ from it. Concurrent first logins on several nodes create only one
    /// entity.
    ///
    /// # Errors
    /// `Forbidden` when the entity is disabled; `Invalid` for an unusable name; store errors.
    pub async fn entity_of_login(&self, mount: &Mount, login: &LoginAlias) -> Result<EntityRef> {
        // Names come from other systems, in which invisible characters such as joiners and soft hyphens are legal.
        let usable = (1..=MAX_LOGIN_NAME_BYTES).contains(&login.name.len()) && !login.name.contains(is_control_or_bidi);
        if !usable {
            let rule =
                format!("must have 1 to {MAX_LOGIN_NAME_BYTES} bytes and no control or bidirectional characters");
            return Err(Error::invalid(format!("login name: {rule}")));
        }
        let now = self.clock.now();
        if let Some(known) = self.entities.by_alias(&mount.accessor, &login.name, now) {
            let alias = known.alias_at(&mount.accessor);
            if alias.is_some_and(|alias| login.matches_alias(alias)) && is_retained_during_login(&known, now) {
                return require_enabled(known);
            }
        }
        retry_on_conflict("identity", async || self.find_or_create_entity(&mount.accessor, login, now).await).await
    }

    /// Makes one attempt to find or create the entity of a login; `Conflict` when the entity was created or removed
    /// concurrently.
    async fn find_or_create_entity(&self, accessor: &str, login: &LoginAlias, now: Time) -> Result<EntityRef> {
        let by = EntityBy::Alias { accessor: accessor.to_owned(), name: login.name.clone() };
        let Some(known) = self.read_entity(by.clone()).await? else {
            let mut entity = Entity::new(now);
            entity.kept_until = Some(now + MIN_ENTITY_LIFETIME);
            let alias = login.apply_to_alias(Alias::new(accessor, &login.name, &entity.id, now), now);
            let epoch = self.entities.epoch();
            self.store.commit(vec![AuthWrite::EntityPut(entity.row()?), AuthWrite::AliasPut(alias.row()?)]).await?;
            entity.aliases.push(alias);
            return Ok(self.entities.put(entity, now, epoch));
        };
        let known = require_enabled(known)?;
        let retained = is_retained_during_login(&known, now);
        if !retained {
            let keep = AuthWrite::EntityPostpone { id: known.id.clone(), until: now + MIN_ENTITY_LIFETIME };
            if self.store.commit(vec![keep]).await? == [AuthOutcome::Absent] {
                return Err(Error::new(Kind::Conflict, "the entity no longer exists"));
            }
        }
        let alias = known.alias_at(accessor).filter(|alias| !login.matches_alias(alias));
        if let Some(alias) = alias {
            let mut alias = login.apply_to_alias(alias.clone(), now);
            alias.version += 1;
            match self.store.commit(vec![AuthWrite::AliasPut(alias.row()?)]).await {
                // A concurrent login with the same alias was faster; the metadata of that login is kept.
                Err(error) if error.kind() == Kind::Conflict => {}
                stored => drop(stored?),
            }
        }
        if retained && alias.is_none() {
            return Ok(known);
        }
        self.entities.mark_changed(&known.id);
        let again =
            self.read_entity(by).await?.ok_or_else(|| Error::new(Kind::Conflict, "the entity no longer exists"))?;
        require_enabled(again)
    }

    /// Postpones the removal of an entity at least to `until`. Used for batch tokens, which are not stored, so the
    /// sweep cannot see that they use the entity.
    ///
    /// # Errors
    /// Store errors.
    pub async fn postpone_entity_removal(&self, entity: &EntityRef, until: Time) -> Result<()> {
        if entity.kept_until.is_some_and(|kept| kept < until) {
            // Postpones for twice the requested time, so that not every batch token of the entity causes a write.
            let until = until.checked_add((until - self.clock.now()).max(time::Duration::ZERO)).unwrap_or(until);
            self.store.commit(vec![AuthWrite::EntityPostpone { id: entity.id.clone(), until }]).await?;
            self.entities.mark_changed(&entity.id);
        }
        Ok(())
    }

    /// Returns the entity with the id in a token's record; `None` for an empty id.
    ///
    /// # Errors
    /// `Forbidden` when the entity is deleted or disabled; store errors.
    pub(crate) async fn enabled_entity(&self, id: &str) -> Result<Option<EntityRef>> {
        self.existing_entity(id).await?.map(require_enabled).transpose()
    }

    /// Returns the entity with this id, like [`Auth::enabled_entity`], but also returns a disabled entity.
    ///
    /// # Errors
    /// `Forbidden` when the entity is deleted; store errors.
    pub(in crate::auth) async fn existing_entity(&self, id: &str) -> Result<Option<EntityRef>> {
        if id.is_empty() {
            return Ok(None);
        }
        self.entity_by_id(id).await?.map(Some).ok_or_else(Error::forbidden)
    }

    /// Returns the policy names of an entity; an empty list if the id is empty or the entity is deleted.
    ///
    /// # Errors
    /// Store errors.
    pub(in crate::auth) async fn identity_policies(&self, id: &str) -> Result<Vec<String>> {
        let entity = if id.is_empty() { None } else { self.entity_by_id(id).await? };
        Ok(entity.map(|entity| entity.policies.clone()).unwrap_or_default())
    }

    async fn entity_by_id(&self, id: &str) -> Result<Option<EntityRef>> {
        match self.entities.by_id(id, self.clock.now()) {
            Some(known) => Ok(Some(known)),
            None => self.read_entity(EntityBy::Id(id.to_owned())).await,
        }
    }

    pub(super) async fn read_entity(&self, by: EntityBy) -> Result<Option<EntityRef>> {
        let now = self.clock.now();
        let epoch = self.entities.epoch();
        let Some(rows) = self.store.identity(by).await? else { return Ok(None) };
        Ok(Some(self.entities.put(Entity::of(rows)?, now, epoch)))
    }

    /// Reads an entity from the store, without using the cache.
    ///
    /// # Errors
    /// Store errors.
    pub async fn entity(&self, by: EntityBy) -> Result<Option<Arc<Entity>>> {
        Ok(self.read_entity(by).await?.map(|known| known.entity()))
    }

    /// Reads an alias by its id from the store.
    ///
    /// # Errors
    /// Store errors.
    pub async fn alias(&self, id: &str) -> Result<Option<Alias>> {
        let entity = self.entity(EntityBy::AliasId(id.to_owned())).await?;
        Ok(entity.and_then(|entity| entity.aliases.iter().find(|alias| alias.id == id).cloned()))
    }

    /// Returns one page of the list of all entities.
    ///
    /// # Errors
    /// Store errors.
    pub async fn entity_page(&self, page: EntityPage) -> Result<Vec<EntityEntry>> {
        self.store.entities(page).await
    }

    /// Returns up to `limit` aliases whose ids sort after `after`, sorted by id.
    ///
    /// # Errors
    /// Store errors.
    pub async fn alias_page(&self, after: String, limit: u32) -> Result<Vec<AliasEntry>> {
        self.store.aliases(after, limit).await
    }
}

impl LoginAlias {
    /// `true` if the alias has the metadata and groups of this login.
    fn matches_alias(&self, alias: &Alias) -> bool {
        alias.metadata == self.metadata && alias.groups == self.groups
    }

    fn apply_to_alias(&self, alias: Alias, now: Time) -> Alias {
        let metadata = self.metadata.clone();
        let groups = self.groups.clone();
        Alias { metadata, groups, updated_at: now, ..alias }
    }
}

/// `true` if the entity cannot be removed within the next [`MIN_REMAINING_LIFETIME_AT_LOGIN`].
fn is_retained_during_login(entity: &Entity, now: Time) -> bool {
    entity.kept_until.is_none_or(|until| now + MIN_REMAINING_LIFETIME_AT_LOGIN <= until)
}

fn require_enabled(entity: EntityRef) -> Result<EntityRef> {
    if entity.disabled { Err(Error::forbidden()) } else { Ok(entity) }
}

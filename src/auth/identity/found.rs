//! Finding an entity: by a login, behind a token, by whatever it is called, in a list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::cache::EntityRef;
use super::entity::{Alias, Entity};
use crate::auth::Auth;
use crate::auth::mounts::Mount;
use crate::auth::store::{AliasEntry, AuthOutcome, AuthWrite, EntityBy, EntityEntry, EntityPage};
use crate::clock::Time;
use crate::documents::repeated;
use crate::error::{Error, Kind, Result};
use crate::fields::is_control_or_bidi;

/// Longest name of an alias, bytes.
const MAX_ALIAS_NAME: usize = 1_024;
/// How long an entity that a login made is kept at least.
const KEPT: Duration = Duration::from_secs(3_600);
/// A login finds an entity that is kept for so long at least, so that it is there when the token is stored.
const AHEAD: Duration = Duration::from_secs(600);

/// Who has logged in, as the method of a mount knows him.
#[derive(Clone, Debug, Default)]
pub struct LoginAlias {
    /// His name there; letters of either case are different ones.
    pub name: String,
    /// What templates may take from the login.
    pub metadata: BTreeMap<String, String>,
    /// Names of his groups.
    pub groups: Vec<String>,
}

impl Auth {
    /// The entity of who has logged in: found, or made with its alias in one commit. The alias takes over what
    /// the login says, when that is something new. Nodes that meet somebody at the same moment make one entity.
    ///
    /// # Errors
    /// `Forbidden` when the entity is disabled; `Invalid` for a name that cannot be one; those of the store.
    pub async fn entity_of(&self, mount: &Mount, login: &LoginAlias) -> Result<EntityRef> {
        // Other systems choose these names: joiners, soft hyphens and the like are legal there.
        let usable = (1..=MAX_ALIAS_NAME).contains(&login.name.len()) && !login.name.contains(is_control_or_bidi);
        if !usable {
            let rule = format!("must have 1 to {MAX_ALIAS_NAME} bytes and no control or bidirectional characters");
            return Err(Error::invalid(format!("the name of who logs in {rule}")));
        }
        let now = self.clock.now();
        if let Some(known) = self.entities.by_alias(&mount.accessor, &login.name, now) {
            let alias = known.alias_at(&mount.accessor);
            if alias.is_some_and(|alias| login.is_told(alias)) && is_kept(&known, now) {
                return able(known);
            }
        }
        repeated("identity", async || self.meet(&mount.accessor, login, now).await).await
    }

    /// One attempt to find or make the entity of a login; `Conflict` when another one came first.
    async fn meet(&self, accessor: &str, login: &LoginAlias, now: Time) -> Result<EntityRef> {
        let by = EntityBy::Alias { accessor: accessor.to_owned(), name: login.name.clone() };
        let Some(known) = self.read_entity(by.clone()).await? else {
            let mut entity = Entity::new(now);
            entity.kept_until = Some(now + KEPT);
            let alias = login.tell(Alias::new(accessor, &login.name, &entity.id, now), now);
            let epoch = self.entities.epoch();
            self.store.commit(vec![AuthWrite::EntityPut(entity.row()?), AuthWrite::AliasPut(alias.row()?)]).await?;
            entity.aliases.push(alias);
            return Ok(self.entities.put(entity, now, epoch));
        };
        let known = able(known)?;
        let kept = is_kept(&known, now);
        if !kept {
            let keep = AuthWrite::EntityKeep { id: known.id.clone(), until: now + KEPT };
            if self.store.commit(vec![keep]).await? == [AuthOutcome::Absent] {
                return Err(Error::new(Kind::Conflict, "the entity is gone"));
            }
        }
        let alias = known.alias_at(accessor).filter(|alias| !login.is_told(alias));
        if let Some(alias) = alias {
            let mut alias = login.tell(alias.clone(), now);
            alias.version += 1;
            match self.store.commit(vec![AuthWrite::AliasPut(alias.row()?)]).await {
                // Another login of the same was faster: what it said stands.
                Err(error) if error.kind() == Kind::Conflict => {}
                stored => drop(stored?),
            }
        }
        if kept && alias.is_none() {
            return Ok(known);
        }
        self.entities.change(&known.id);
        let again = self.read_entity(by).await?.ok_or_else(|| Error::new(Kind::Conflict, "the entity is gone"))?;
        able(again)
    }

    /// Keeps an entity until then at least, for a token that is nowhere stored.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn keep_entity(&self, entity: &EntityRef, until: Time) -> Result<()> {
        if entity.kept_until.is_some_and(|kept| kept < until) {
            // Longer than asked for, so that not every such token is a write.
            let until = until.checked_add((until - self.clock.now()).max(time::Duration::ZERO)).unwrap_or(until);
            self.store.commit(vec![AuthWrite::EntityKeep { id: entity.id.clone(), until }]).await?;
            self.entities.change(&entity.id);
        }
        Ok(())
    }

    /// The entity behind a token that names one; `None` for the empty name.
    ///
    /// # Errors
    /// `Forbidden` when it is gone or disabled; those of the store.
    pub(crate) async fn entity_behind(&self, id: &str) -> Result<Option<EntityRef>> {
        self.entity_named(id).await?.map(able).transpose()
    }

    /// As [`Auth::entity_behind`], also one that is disabled.
    ///
    /// # Errors
    /// `Forbidden` when it is gone; those of the store.
    pub(in crate::auth) async fn entity_named(&self, id: &str) -> Result<Option<EntityRef>> {
        if id.is_empty() {
            return Ok(None);
        }
        self.with_id(id).await?.map(Some).ok_or_else(Error::forbidden)
    }

    /// The policies that a token has by its entity, if it has one and that is there.
    ///
    /// # Errors
    /// Those of the store.
    pub(in crate::auth) async fn identity_policies(&self, id: &str) -> Result<Vec<String>> {
        let entity = if id.is_empty() { None } else { self.with_id(id).await? };
        Ok(entity.map(|entity| entity.policies.clone()).unwrap_or_default())
    }

    async fn with_id(&self, id: &str) -> Result<Option<EntityRef>> {
        match self.entities.by_id(id, self.clock.now()) {
            Some(known) => Ok(Some(known)),
            None => self.read_entity(EntityBy::Id(id.to_owned())).await,
        }
    }

    /// Reads an entity.
    pub(super) async fn read_entity(&self, by: EntityBy) -> Result<Option<EntityRef>> {
        let (now, epoch) = (self.clock.now(), self.entities.epoch());
        let Some(rows) = self.store.identity(by).await? else { return Ok(None) };
        Ok(Some(self.entities.put(Entity::of(rows)?, now, epoch)))
    }

    /// An entity, as it is stored.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn entity(&self, by: EntityBy) -> Result<Option<Arc<Entity>>> {
        Ok(self.read_entity(by).await?.map(|known| known.entity()))
    }

    /// An alias by its id, as it is stored.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn alias(&self, id: &str) -> Result<Option<Alias>> {
        let entity = self.entity(EntityBy::AliasId(id.to_owned())).await?;
        Ok(entity.and_then(|entity| entity.aliases.iter().find(|alias| alias.id == id).cloned()))
    }

    /// A page of all entities.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn entity_page(&self, page: EntityPage) -> Result<Vec<EntityEntry>> {
        self.store.entities(page).await
    }

    /// At most `limit` of all aliases, by id, after this one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn alias_page(&self, after: String, limit: u32) -> Result<Vec<AliasEntry>> {
        self.store.aliases(after, limit).await
    }
}

impl LoginAlias {
    /// Whether an alias says what this login says.
    fn is_told(&self, alias: &Alias) -> bool {
        alias.metadata == self.metadata && alias.groups == self.groups
    }

    /// The alias with what this login says.
    fn tell(&self, alias: Alias, now: Time) -> Alias {
        let (metadata, groups) = (self.metadata.clone(), self.groups.clone());
        Alias { metadata, groups, updated_at: now, ..alias }
    }
}

/// Whether it is there for a while.
fn is_kept(entity: &Entity, now: Time) -> bool {
    entity.kept_until.is_none_or(|until| now + AHEAD <= until)
}

/// One that is not disabled.
fn able(entity: EntityRef) -> Result<EntityRef> {
    if entity.disabled { Err(Error::forbidden()) } else { Ok(entity) }
}

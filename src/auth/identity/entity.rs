//! Entities and aliases: their stored form, and the values with which they fill policy templates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::auth::instant;
use crate::auth::policies::VersionedTemplateValues;
use crate::auth::store::{AliasRow, EntityRow, IdentityRows};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::templates::{AliasSelector, IdentitySelector, TemplateValues};

/// A user or machine, independent of the authentication method with which it logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// Id of the entity, a UUID.
    pub id: String,
    /// Name of the entity, in lower case and trimmed.
    pub name: String,
    /// Version of the stored entity, incremented by every change.
    pub version: u64,
    /// Metadata that operators have set.
    pub metadata: BTreeMap<String, String>,
    /// Names of the policies that the entity's tokens have in addition to their own, sorted; never `root`.
    pub policies: Vec<String>,
    /// `true` if the logins and tokens of the entity are rejected.
    pub disabled: bool,
    /// Time at which the entity was created.
    pub created_at: Time,
    /// Time at which the entity was last changed.
    pub updated_at: Time,
    /// Earliest time at which the sweep may remove the entity if no token uses it; `None` for a permanent entity.
    pub kept_until: Option<Time>,
    /// Aliases of the entity, at most one per mount, sorted by the accessor of the mount.
    pub aliases: Vec<Alias>,
}

/// An alias: the name of an entity at one authentication mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Id of the alias, a UUID.
    pub id: String,
    /// Accessor of the mount at which the entity has this name.
    pub accessor: String,
    /// Name of the entity at the mount, spelled as the authentication method reports it.
    pub name: String,
    /// Id of the entity to which the alias belongs.
    pub entity: String,
    /// Version of the stored alias, incremented by every change.
    pub version: u64,
    /// Metadata that the authentication method reported at the last login.
    pub metadata: BTreeMap<String, String>,
    /// Metadata that operators have set.
    pub custom_metadata: BTreeMap<String, String>,
    /// Names of the groups that the authentication method reported at the last login.
    pub groups: Vec<String>,
    /// Time at which the alias was created.
    pub created_at: Time,
    /// Time at which the alias was last changed.
    pub updated_at: Time,
}

#[derive(Serialize, Deserialize)]
struct EntityBody {
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    policies: Vec<String>,
    #[serde(default)]
    disabled: bool,
    #[serde(with = "instant")]
    created_at: Time,
    #[serde(with = "instant")]
    updated_at: Time,
}

#[derive(Serialize, Deserialize)]
struct AliasBody {
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    custom_metadata: BTreeMap<String, String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(with = "instant")]
    created_at: Time,
    #[serde(with = "instant")]
    updated_at: Time,
}

impl Entity {
    /// Creates a permanent entity (`kept_until` is `None`) with a random name.
    pub(super) fn new(now: Time) -> Self {
        Self {
            id: crate::random::uuid(),
            name: format!("entity_{}", crate::random::bytes::<8>().map(|b| format!("{b:02x}")).concat()),
            version: 1,
            metadata: BTreeMap::new(),
            policies: Vec::new(),
            disabled: false,
            created_at: now,
            updated_at: now,
            kept_until: None,
            aliases: Vec::new(),
        }
    }

    pub(super) fn of(rows: IdentityRows) -> Result<Self> {
        let IdentityRows { entity: row, aliases } = rows;
        let body: EntityBody = serde_json::from_slice(&row.body).map_err(Error::internal)?;
        Ok(Self {
            id: row.id,
            name: row.name,
            version: row.version,
            metadata: body.metadata,
            policies: body.policies,
            disabled: body.disabled,
            created_at: body.created_at,
            updated_at: body.updated_at,
            kept_until: row.kept_until,
            aliases: aliases.into_iter().map(Alias::of).collect::<Result<_>>()?,
        })
    }

    pub(super) fn row(&self) -> Result<EntityRow> {
        let body = EntityBody {
            metadata: self.metadata.clone(),
            policies: self.policies.clone(),
            disabled: self.disabled,
            created_at: self.created_at,
            updated_at: self.updated_at,
        };
        Ok(EntityRow {
            id: self.id.clone(),
            name: self.name.clone(),
            version: self.version,
            body: serde_json::to_vec(&body).map_err(Error::internal)?,
            kept_until: self.kept_until,
        })
    }

    /// Returns the entity's alias at the mount with this accessor.
    pub fn alias_at(&self, accessor: &str) -> Option<&Alias> {
        self.aliases.iter().find(|alias| alias.accessor == accessor)
    }
}

impl Alias {
    pub(super) fn new(accessor: &str, name: &str, entity: &str, now: Time) -> Self {
        Self {
            id: crate::random::uuid(),
            accessor: accessor.to_owned(),
            name: name.to_owned(),
            entity: entity.to_owned(),
            version: 1,
            metadata: BTreeMap::new(),
            custom_metadata: BTreeMap::new(),
            groups: Vec::new(),
            created_at: now,
            updated_at: now,
        }
    }

    fn of(row: AliasRow) -> Result<Self> {
        let body: AliasBody = serde_json::from_slice(&row.body).map_err(Error::internal)?;
        Ok(Self {
            id: row.id,
            accessor: row.accessor,
            name: row.name,
            entity: row.entity,
            version: row.version,
            metadata: body.metadata,
            custom_metadata: body.custom_metadata,
            groups: body.groups,
            created_at: body.created_at,
            updated_at: body.updated_at,
        })
    }

    pub(super) fn row(&self) -> Result<AliasRow> {
        let body = AliasBody {
            metadata: self.metadata.clone(),
            custom_metadata: self.custom_metadata.clone(),
            groups: self.groups.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
        };
        Ok(AliasRow {
            id: self.id.clone(),
            accessor: self.accessor.clone(),
            name: self.name.clone(),
            entity: self.entity.clone(),
            version: self.version,
            body: serde_json::to_vec(&body).map_err(Error::internal)?,
        })
    }
}

impl TemplateValues for Entity {
    fn value(&self, of: &IdentitySelector) -> Option<&str> {
        match of {
            IdentitySelector::Id => Some(&self.id),
            IdentitySelector::Name => Some(&self.name),
            IdentitySelector::Metadata(key) => self.metadata.get(key).map(String::as_str),
            IdentitySelector::Alias { accessor, of } => {
                let alias = self.alias_at(accessor)?;
                match of {
                    AliasSelector::Id => Some(&alias.id),
                    AliasSelector::Name => Some(&alias.name),
                    AliasSelector::Metadata(key) => alias.metadata.get(key).map(String::as_str),
                }
            }
            IdentitySelector::Group => None,
        }
    }
}

impl VersionedTemplateValues for Entity {
    fn version_stamp(&self) -> String {
        let aliases = self.aliases.iter().map(|alias| format!(",{}:{}", alias.id, alias.version));
        std::iter::once(format!("{}:{}", self.id, self.version)).chain(aliases).collect()
    }
}

/// Merges two lists of policy names into one list that is sorted and without duplicates.
pub(in crate::auth) fn merge_policy_names(one: &[String], other: &[String]) -> Vec<String> {
    let mut names: Vec<String> = one.iter().chain(other).cloned().collect();
    names.sort();
    names.dedup();
    names
}

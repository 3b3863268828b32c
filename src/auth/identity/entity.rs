//! An entity and its aliases: what is stored of them, and what templates take from them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::auth::instant;
use crate::auth::policies::Filler;
use crate::auth::store::{AliasRow, EntityRow, IdentityRows};
use crate::clock::Time;
use crate::error::{Error, Result};
use crate::templates::{AliasSelector, Identity, Selector};

/// Somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    /// UUID.
    pub id: String,
    /// Its name: in lower case, without blanks at its ends.
    pub name: String,
    /// One more with every change.
    pub version: u64,
    /// What operators attached to it.
    pub metadata: BTreeMap<String, String>,
    /// Names of the policies that its tokens have beside their own, sorted; never `root`.
    pub policies: Vec<String>,
    /// Its logins and tokens are refused.
    pub disabled: bool,
    /// When it was made.
    pub created_at: Time,
    /// When it was changed last.
    pub updated_at: Time,
    /// When it goes unless a token is its; `None` stays.
    pub kept_until: Option<Time>,
    /// What it is called, in the order of accessors: one name at a mount.
    pub aliases: Vec<Alias>,
}

/// What an entity is called at one mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// UUID.
    pub id: String,
    /// The accessor of the mount.
    pub accessor: String,
    /// The name there, as the method spells it.
    pub name: String,
    /// The entity.
    pub entity: String,
    /// One more with every change.
    pub version: u64,
    /// What the last login said.
    pub metadata: BTreeMap<String, String>,
    /// What operators attached to it.
    pub custom_metadata: BTreeMap<String, String>,
    /// Names of the groups of the last login.
    pub groups: Vec<String>,
    /// When it was made.
    pub created_at: Time,
    /// When it was changed last.
    pub updated_at: Time,
}

/// What is stored of an entity beside its row's columns.
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

/// What is stored of an alias beside its row's columns.
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
    /// A new one, with a name that nobody else has; it stays.
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

    /// Opens what is stored.
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

    /// Its row, without its aliases.
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

    /// Its alias at the mount with exactly this accessor.
    pub fn alias_at(&self, accessor: &str) -> Option<&Alias> {
        self.aliases.iter().find(|alias| alias.accessor == accessor)
    }
}

impl Alias {
    /// A new one.
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

    /// Its row.
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

impl Identity for Entity {
    fn value(&self, of: &Selector) -> Option<&str> {
        match of {
            Selector::Id => Some(&self.id),
            Selector::Name => Some(&self.name),
            Selector::Metadata(key) => self.metadata.get(key).map(String::as_str),
            Selector::Alias { accessor, of } => {
                let alias = self.alias_at(accessor)?;
                match of {
                    AliasSelector::Id => Some(&alias.id),
                    AliasSelector::Name => Some(&alias.name),
                    AliasSelector::Metadata(key) => alias.metadata.get(key).map(String::as_str),
                }
            }
            Selector::Group => None,
        }
    }
}

impl Filler for Entity {
    fn stamp(&self) -> String {
        let aliases = self.aliases.iter().map(|alias| format!(",{}:{}", alias.id, alias.version));
        std::iter::once(format!("{}:{}", self.id, self.version)).chain(aliases).collect()
    }
}

/// Names of policies of both lists, sorted, each once.
pub(in crate::auth) fn together(one: &[String], other: &[String]) -> Vec<String> {
    let mut names: Vec<String> = one.iter().chain(other).cloned().collect();
    names.sort();
    names.dedup();
    names
}

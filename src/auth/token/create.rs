//! Making a token from another one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use zeroize::Zeroizing;

use super::names::{add, contains, sanitised};
use super::terms::uses;
use super::{ACCESSOR_CHARACTERS, Record, TOKEN_CHARACTERS, hash_of, ttl};
use crate::auth::identity::told_with;
use crate::auth::policies::DEFAULT;
use crate::auth::store::{AuthOutcome, AuthWrite, TokenHash, TokenRow};
use crate::auth::{Auth, Caller, ROOT};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result, Warnings};
use crate::fields::{Cap, Fields};

/// Most pairs of metadata, and bytes of all names and values.
const MAX_META: (usize, usize) = (64, 4_096);
/// Longest display name.
const MAX_DISPLAY_NAME: usize = 128;

/// What the body asks for; zero times and an empty list mean "not given".
struct TokenRequest {
    policies: Vec<String>,
    no_parent: bool,
    no_default_policy: bool,
    renewable: bool,
    ttl: Duration,
    explicit_max_ttl: Duration,
    period: Duration,
    uses: Option<u32>,
    display_name: String,
    meta: BTreeMap<String, String>,
}

impl Auth {
    /// Makes a child of `parent`, or an orphan with `no_parent`. `sudo` is whether the parent has sudo
    /// on the request's path. Takes `policies, meta, no_parent, no_default_policy, renewable, ttl`
    /// (or `lease`)`, type, explicit_max_ttl, period, num_uses, display_name`. Returns the `auth`
    /// object and warnings.
    ///
    /// # Errors
    /// `Invalid` with the rule that the request breaks; those of the store.
    pub async fn create_token(&self, parent: &Caller, sudo: bool, fields: &Fields) -> Result<(Value, Warnings)> {
        self.create(parent, sudo, false, fields).await
    }

    /// As [`Auth::create_token`]; the result is an orphan, which needs no sudo on this path.
    ///
    /// # Errors
    /// As [`Auth::create_token`].
    pub async fn create_orphan_token(&self, parent: &Caller, sudo: bool, fields: &Fields) -> Result<(Value, Warnings)> {
        self.create(parent, sudo, true, fields).await
    }

    async fn create(
        &self,
        parent: &Caller,
        sudo: bool,
        orphan_path: bool,
        fields: &Fields,
    ) -> Result<(Value, Warnings)> {
        let sudo = sudo || parent.is_root();
        let above = self.parent_row(parent).await?;
        let wanted = read(fields)?;
        let policies = policies_of(&wanted, parent, sudo)?;
        let orphan = orphan_path || wanted.no_parent;
        if orphan && !orphan_path && !sudo {
            return Err(Error::invalid("root or sudo privileges required to create orphan token"));
        }
        if !wanted.period.is_zero() && !sudo {
            return Err(Error::invalid("root or sudo privileges required to create periodic token"));
        }
        let mut warnings: Warnings = policies
            .iter()
            .filter(|name| !self.policy_exists(name))
            .map(|name| format!("Policy {name:?} does not exist"))
            .collect();
        let mut record = self.new_record(policies, wanted.display_name, "auth/token/create");
        record.meta = wanted.meta;
        record.explicit_max_ttl = wanted.explicit_max_ttl;
        record.period = wanted.period;
        record.orphan = orphan;
        record.entity_id.clone_from(&parent.entity_id);
        let ttl = self.first_ttl(&record, wanted.ttl, &mut warnings)?;
        if ttl.is_none() && parent.expires_at.is_some() {
            return Err(Error::invalid("expiring root tokens cannot create non-expiring root tokens"));
        }
        record.renewable = wanted.renewable && ttl.is_some();
        if !orphan && ttl.is_some() {
            record.bound_cidrs = Record::of(&above)?.bound_cidrs;
        }
        let ties = match orphan {
            false => Ties { parent: Some(above.hash), mount: above.mount },
            true => Ties::default(),
        };
        let inserted = self.insert(&mut record, ttl, wanted.uses, ties).await;
        // The store holds the parent to be there: it may have been revoked since it was read.
        let token = inserted.map_err(|error| if error.kind() == Kind::Conflict { no_parent() } else { error })?;
        let token = Zeroizing::new(token);
        let made = record.auth_json(&token, ttl.unwrap_or_default(), wanted.uses);
        Ok((told_with(made, parent.identity_policies()), warnings))
    }

    /// The parent must be live now, not a moment ago in some cache, and must not be limited in use.
    async fn parent_row(&self, parent: &Caller) -> Result<TokenRow> {
        let row = self.live_row(parent.hash).await?.ok_or_else(no_parent)?;
        match row.uses {
            Some(_) => Err(Error::invalid("restricted use token cannot generate child tokens")),
            None => Ok(row),
        }
    }

    /// The life of a new token; `None` for a root token without an end.
    fn first_ttl(&self, record: &Record, asked: Duration, warnings: &mut Warnings) -> Result<Option<Duration>> {
        let endless = asked.is_zero() && record.period.is_zero() && record.explicit_max_ttl.is_zero();
        if endless && record.policies == [ROOT] {
            return Ok(None);
        }
        let grant = self.token_limits(record).grant(record.created_at, asked)?;
        warnings.extend(grant.warnings);
        Ok(Some(grant.ttl))
    }

    /// A record made now, with a fresh accessor and nothing special.
    pub(super) fn new_record(&self, policies: Vec<String>, display_name: String, path: &str) -> Record {
        Record {
            accessor: crate::random::base62(ACCESSOR_CHARACTERS),
            policies,
            path: path.to_owned(),
            meta: BTreeMap::new(),
            display_name,
            created_at: self.clock.now(),
            creation_ttl: Duration::ZERO,
            grant: Duration::ZERO,
            explicit_max_ttl: Duration::ZERO,
            period: Duration::ZERO,
            renewable: false,
            orphan: true,
            entity_id: String::new(),
            bound_cidrs: Vec::new(),
            login: None,
            last_renewal: None,
        }
    }

    /// Stores a new token and returns its text, which exists nowhere else. `Conflict` when what it is tied to is
    /// gone.
    pub(super) async fn insert(
        &self,
        record: &mut Record,
        ttl: Option<Duration>,
        uses: Option<u32>,
        ties: Ties,
    ) -> Result<String> {
        record.creation_ttl = ttl.unwrap_or_default();
        record.grant = record.creation_ttl;
        let token = new_token();
        let row = token_row(&token, record, ttl, uses, ties)?;
        match self.store.commit(vec![AuthWrite::TokenInsert(row)]).await?.as_slice() {
            [AuthOutcome::Done] => Ok(token),
            _ => Err(Error::internal("the store answered another write")),
        }
    }
}

/// What a token ends with, beside its own end.
#[derive(Default)]
pub(super) struct Ties {
    /// The token that made it.
    pub(super) parent: Option<TokenHash>,
    /// The authentication method that it, or the token that it descends from, began with.
    pub(super) mount: Option<MountId>,
}

/// A token text with 256 random bits.
pub(super) fn new_token() -> String {
    format!("s.{}", crate::random::base62(TOKEN_CHARACTERS))
}

/// The row of a token.
pub(super) fn token_row(
    token: &str,
    record: &Record,
    ttl: Option<Duration>,
    uses: Option<u32>,
    ties: Ties,
) -> Result<TokenRow> {
    let hash = |text| hash_of(text).ok_or_else(|| Error::invalid("token: empty or too long"));
    Ok(TokenRow {
        hash: hash(token)?,
        accessor_hash: hash(&record.accessor)?,
        parent: ties.parent,
        mount: ties.mount,
        entity: Some(record.entity_id.clone()).filter(|id| !id.is_empty()),
        expires_at: ttl.map(|ttl| ttl::after(record.created_at, ttl)),
        uses,
        body: record.to_body()?,
    })
}

fn no_parent() -> Error {
    Error::invalid("parent token lookup failed: no parent found")
}

fn read(fields: &Fields) -> Result<TokenRequest> {
    match fields.text("type")?.unwrap_or_default().as_str() {
        "" | "service" => {}
        "batch" => return Err(Error::invalid("type: batch tokens are not supported; \"service\" is")),
        _ => return Err(Error::invalid("invalid 'token_type' value")),
    }
    if fields.text("entity_alias")?.is_some_and(|alias| !alias.is_empty()) {
        return Err(Error::invalid("entity_alias: not supported, as there are no token roles"));
    }
    if fields.text("id")?.is_some_and(|id| !id.is_empty()) {
        return Err(Error::invalid("id: tokens cannot be chosen, they are always random"));
    }
    let uses = uses(fields, "num_uses", "number of uses cannot be negative")?;
    let time = |name| Ok::<_, Error>(fields.duration(name)?.unwrap_or_default());
    let (ttl, lease) = (time("ttl")?, time("lease")?);
    Ok(TokenRequest {
        policies: sanitised("policies", fields.list("policies")?.unwrap_or_default())?,
        no_parent: fields.bool("no_parent")?.unwrap_or(false),
        no_default_policy: fields.bool("no_default_policy")?.unwrap_or(false),
        renewable: fields.bool("renewable")?.unwrap_or(true),
        ttl: if ttl.is_zero() { lease } else { ttl },
        explicit_max_ttl: time("explicit_max_ttl")?,
        period: time("period")?,
        uses: (uses > 0).then_some(uses),
        display_name: display_name(&fields.text("display_name")?.unwrap_or_default())?,
        meta: meta(fields)?,
    })
}

/// The policies of the new token, by what was asked for and what the parent may give.
fn policies_of(wanted: &TokenRequest, parent: &Caller, sudo: bool) -> Result<Vec<String>> {
    let mut names = if wanted.policies.is_empty() { parent.policies.clone() } else { wanted.policies.clone() };
    if !wanted.policies.is_empty() {
        if !sudo && !names.iter().all(|name| contains(&parent.policies, name)) {
            return Err(Error::invalid("child policies must be subset of parent"));
        }
        if (sudo || contains(&parent.policies, DEFAULT)) && !contains(&names, ROOT) {
            add(&mut names, DEFAULT);
        }
    }
    if wanted.no_default_policy {
        names.retain(|name| name != DEFAULT);
    }
    if contains(&names, ROOT) && !parent.is_root() {
        return Err(Error::invalid("root tokens may not be created without parent token being root"));
    }
    Ok(names)
}

/// `token-` and the name, in letters, digits and `-`; `token` without a name.
fn display_name(name: &str) -> Result<String> {
    if name.len() > MAX_DISPLAY_NAME {
        return Err(Error::invalid(format!("display_name: longer than {MAX_DISPLAY_NAME} bytes")));
    }
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Ok(format!("token-{plain}").trim_end_matches('-').to_owned())
}

fn meta(fields: &Fields) -> Result<BTreeMap<String, String>> {
    // Of any length: it is the sum that counts.
    let meta = fields.map_within("meta", Cap { bytes: usize::MAX, ..Cap::LIST })?.unwrap_or_default();
    let bytes: usize = meta.iter().map(|(name, value)| name.len() + value.len()).sum();
    if meta.len() > MAX_META.0 || bytes > MAX_META.1 {
        return Err(Error::invalid(format!("meta: more than {} pairs or {} bytes", MAX_META.0, MAX_META.1)));
    }
    Ok(meta)
}

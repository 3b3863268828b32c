//! An immutable snapshot of all rate-limit quotas, indexed by scope.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::limiter::{Limiter, RateDecision};
use super::rule::{QuotaConfig, RateLimit, canonical_role};
use crate::auth::mounts::Mount;
use crate::caller_network::CallerNetwork;
use crate::clock::Time;

/// The stored document with all quotas. No two quotas have the same scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredQuotas {
    pub(super) config: QuotaConfig,
    pub(super) rate_limits: BTreeMap<String, RateLimit>,
}

/// The properties of a request by which its quota is found and the request is counted.
#[derive(Clone, Copy, Debug)]
pub struct QuotaRequest<'r> {
    /// Full path of the request in canonical spelling.
    pub path: &'r str,
    /// The mount of the request, with the path relative to that mount, without the trailing `/` of a list request.
    pub mount: Option<(&'r Mount, &'r str)>,
    /// Role that the request names; `""` for none.
    pub role: &'r str,
    /// Address of the client; `None` if unknown.
    pub address: Option<IpAddr>,
}

/// An immutable snapshot of all rate-limit quotas.
pub struct Quotas {
    pub(super) version: u64,
    pub(super) stored: StoredQuotas,
    by_name: BTreeMap<String, Arc<ActiveQuota>>,
    global: Option<Arc<ActiveQuota>>,
    /// Quotas that apply to one mount or a part of it, by the accessor of the mount.
    mounts: HashMap<Box<str>, MountQuotas>,
}

struct ActiveQuota {
    rule: RateLimit,
    limiter: Limiter,
}

#[derive(Default)]
struct MountQuotas {
    whole_mount: Option<Arc<ActiveQuota>>,
    by_path: HashMap<Box<str>, Arc<ActiveQuota>>,
    /// Quotas for a path that ends in `*`, by the path before the `*`.
    by_prefix: HashMap<Box<str>, Arc<ActiveQuota>>,
    /// The different lengths of the keys in `by_prefix`, longest first.
    prefix_lengths: Vec<usize>,
    by_role: HashMap<Box<str>, Arc<ActiveQuota>>,
}

impl Quotas {
    /// Compiles the stored quotas. Quotas that are the same in the snapshot `before` keep their token buckets.
    pub(super) fn compile(stored: StoredQuotas, version: u64, before: Option<&Self>) -> Self {
        let mut quotas = Self {
            version,
            by_name: BTreeMap::new(),
            global: None,
            mounts: HashMap::new(),
            stored: StoredQuotas::default(),
        };
        for (name, rule) in &stored.rate_limits {
            let known = before.and_then(|before| before.by_name.get(name)).filter(|known| known.rule == *rule);
            let fresh = || Arc::new(ActiveQuota { rule: rule.clone(), limiter: Limiter::new(rule) });
            let quota = known.map_or_else(fresh, Arc::clone);
            match &rule.scope.mount {
                None => quotas.global = Some(Arc::clone(&quota)),
                Some(mount) => quotas.mounts.entry(mount[..].into()).or_default().add(&quota),
            }
            quotas.by_name.insert(name.clone(), quota);
        }
        quotas.stored = stored;
        quotas
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the settings that all quotas share.
    pub fn config(&self) -> &QuotaConfig {
        &self.stored.config
    }

    /// `true` if this mount has a quota for one of its roles, so the role of a request must be known.
    pub fn depends_on_role(&self, mount: &Mount) -> bool {
        self.mounts.get(&mount.accessor[..]).is_some_and(|quotas| !quotas.by_role.is_empty())
    }

    /// Counts a request against the most specific quota that applies to it; `None` if no quota applies or the path is
    /// exempt.
    pub fn count_request(&self, request: &QuotaRequest<'_>, now: Time) -> Option<RateDecision> {
        let quota = self.find(request).filter(|_| !self.stored.config.exempts(request.path))?;
        Some(quota.limiter.take_request(request.address.map(CallerNetwork::of), now))
    }

    /// Removes full buckets, so that an unused quota holds no memory.
    pub(super) fn remove_full_buckets(&self, now: Time) {
        self.by_name.values().for_each(|quota| quota.limiter.remove_full_buckets(now));
    }

    fn find(&self, request: &QuotaRequest<'_>) -> Option<&ActiveQuota> {
        let of_mount = request.mount.and_then(|(mount, below)| {
            let quotas = self.mounts.get(&mount.accessor[..])?;
            quotas.find(below, &canonical_role(&mount.kind, request.role))
        });
        of_mount.or(self.global.as_deref())
    }
}

impl MountQuotas {
    fn add(&mut self, quota: &Arc<ActiveQuota>) {
        let scope = &quota.rule.scope;
        let quota = Arc::clone(quota);
        if !scope.role.is_empty() {
            self.by_role.insert(scope.role[..].into(), quota);
        } else if let Some(begin) = scope.below.strip_suffix('*') {
            self.by_prefix.insert(begin.into(), quota);
            self.prefix_lengths.push(begin.len());
            self.prefix_lengths.sort_unstable_by(|a, b| b.cmp(a));
            self.prefix_lengths.dedup();
        } else if scope.below.is_empty() {
            self.whole_mount = Some(quota);
        } else {
            self.by_path.insert(scope.below[..].into(), quota);
        }
    }

    /// Returns the most specific quota that applies to a request: for its role, else its exact path, the longest
    /// prefix, or the whole mount.
    fn find(&self, below: &str, role: &str) -> Option<&ActiveQuota> {
        let by_prefix = || self.prefix_lengths.iter().find_map(|length| self.by_prefix.get(below.get(..*length)?));
        let found = self.by_role.get(role).or_else(|| self.by_path.get(below)).or_else(by_prefix);
        found.or(self.whole_mount.as_ref()).map(Arc::as_ref)
    }
}

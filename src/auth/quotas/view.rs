//! An immutable snapshot of all quotas, indexed by scope.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::bucket_slots::BucketSlots;
use super::limiter::{Limiter, RateDecision};
use super::network::ClientNetwork;
use super::rule::{QuotaConfig, RateLimit, canonical_role};
use crate::auth::mounts::Mount;
use crate::clock::Time;
use crate::random;
use crate::telemetry;

/// Maximum number of buckets of all quotas of a node, in both generations: about 20 MiB.
const MAX_BUCKETS: usize = 1 << 17;

/// The stored document. No two quotas have the same scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredQuotas {
    pub(super) config: QuotaConfig,
    pub(super) rate_limits: BTreeMap<String, RateLimit>,
}

/// The properties of a request that quotas need.
#[derive(Clone, Copy, Debug)]
pub struct QuotaRequest<'r> {
    /// Full path in canonical spelling.
    pub path: &'r str,
    /// The mount of the request, and the path below it without the `/` of a list.
    pub mount: Option<(&'r Mount, &'r str)>,
    /// Role of the request; `""` for none.
    pub role: &'r str,
    /// Address of the client.
    pub address: Option<IpAddr>,
}

/// An immutable snapshot of all quotas.
pub struct Quotas {
    pub(super) version: u64,
    pub(super) stored: StoredQuotas,
    slots: Arc<BucketSlots>,
    by_name: BTreeMap<String, Arc<ActiveQuota>>,
    everything: Option<Arc<ActiveQuota>>,
    /// By accessor.
    mounts: HashMap<Box<str>, MountQuotas>,
}

struct ActiveQuota {
    name: String,
    rule: RateLimit,
    limiter: Limiter,
}

#[derive(Default)]
struct MountQuotas {
    whole: Option<Arc<ActiveQuota>>,
    exact: HashMap<Box<str>, Arc<ActiveQuota>>,
    /// By path prefix.
    begins: HashMap<Box<str>, Arc<ActiveQuota>>,
    lengths: Vec<usize>,
    roles: HashMap<Box<str>, Arc<ActiveQuota>>,
}

impl Quotas {
    /// Compiles the stored quotas. Unchanged quotas keep their buckets.
    pub(super) fn compile(stored: StoredQuotas, version: u64, before: Option<&Self>) -> Self {
        let fresh = || Arc::new(BucketSlots::new(MAX_BUCKETS, u64::from_ne_bytes(random::bytes())));
        let slots = before.map_or_else(fresh, |before| Arc::clone(&before.slots));
        let mut quotas = Self {
            version,
            slots,
            by_name: BTreeMap::new(),
            everything: None,
            mounts: HashMap::new(),
            stored: StoredQuotas::default(),
        };
        for (name, rule) in &stored.rate_limits {
            let known = before.and_then(|before| before.by_name.get(name)).filter(|known| known.rule == *rule);
            let fresh = || {
                let limiter = Limiter::new(rule, Arc::clone(&quotas.slots));
                Arc::new(ActiveQuota { name: name.clone(), rule: rule.clone(), limiter })
            };
            let limited = known.map_or_else(fresh, Arc::clone);
            match &rule.scope.mount {
                None => quotas.everything = Some(Arc::clone(&limited)),
                Some(mount) => quotas.mounts.entry(mount[..].into()).or_default().add(&limited),
            }
            quotas.by_name.insert(name.clone(), limited);
        }
        quotas.stored = stored;
        quotas
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Settings of all quotas.
    pub fn config(&self) -> &QuotaConfig {
        &self.stored.config
    }

    /// `true` if a quota of this mount depends on the role of a request.
    pub fn depend_on_role(&self, mount: &Mount) -> bool {
        self.mounts.get(&mount.accessor[..]).is_some_and(|quotas| !quotas.roles.is_empty())
    }

    /// Counts a request against the most specific quota that applies; `None` if there is none.
    pub fn take(&self, request: &QuotaRequest<'_>, now: Time) -> Option<RateDecision> {
        let limited = self.find(request).filter(|_| !self.stored.config.exempts(request.path))?;
        let taken = limited.limiter.take(ClientNetwork::of(request.address), now);
        if taken.shared {
            metrics::counter!(telemetry::QUOTA_SHARED).increment(1);
            self.slots.warn_shared(&limited.name, now);
        }
        Some(taken)
    }

    /// Drops idle buckets, so that an unused quota holds no slots.
    pub(super) fn forget(&self, now: Time) {
        self.by_name.values().for_each(|limited| limited.limiter.forget(now));
    }

    fn find(&self, request: &QuotaRequest<'_>) -> Option<&ActiveQuota> {
        let of_mount = request.mount.and_then(|(mount, below)| {
            let quotas = self.mounts.get(&mount.accessor[..])?;
            quotas.find(below, &canonical_role(&mount.kind, request.role))
        });
        of_mount.or(self.everything.as_deref())
    }
}

impl MountQuotas {
    fn add(&mut self, limited: &Arc<ActiveQuota>) {
        let (limited, scope) = (Arc::clone(limited), &limited.rule.scope);
        if !scope.role.is_empty() {
            self.roles.insert(scope.role[..].into(), limited);
        } else if let Some(begin) = scope.below.strip_suffix('*') {
            self.begins.insert(begin.into(), limited);
            self.lengths.push(begin.len());
            self.lengths.sort_unstable_by(|a, b| b.cmp(a));
            self.lengths.dedup();
        } else if scope.below.is_empty() {
            self.whole = Some(limited);
        } else {
            self.exact.insert(scope.below[..].into(), limited);
        }
    }

    /// Precedence: role, exact path, longest prefix, mount.
    fn find(&self, below: &str, role: &str) -> Option<&ActiveQuota> {
        let begins = || self.lengths.iter().find_map(|length| self.begins.get(below.get(..*length)?));
        let found = self.roles.get(role).or_else(|| self.exact.get(below)).or_else(begins);
        found.or(self.whole.as_ref()).map(Arc::as_ref)
    }
}

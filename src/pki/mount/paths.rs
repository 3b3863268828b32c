//! Certification paths among the issuers of a mount: the chains that a verifier may build above an issuer, those that
//! every verifier rejects, and the requirements of each chain (RFC 5280 6.1).

mod policies;

use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::sync::Arc;

pub(crate) use self::policies::{RequiredPolicies, read_policies as policies_of};
use super::chains::{Issuers, MAX_CHAIN_LENGTH, Parents};
use super::issuer::Issuer;
use crate::derived_values::DerivedValues;
use crate::pki::constraints::{self, ChainConstraints, ConstrainedChainLink};
use crate::x509::usage::KeyUsage;

/// Maximum number of certification paths of an issuer; further paths are ignored.
const MAX_PATHS_PER_ISSUER: usize = 32;
/// Maximum number of steps of the search for an issuer's certification paths.
const MAX_SEARCH_STEPS: usize = 1_000;
/// Maximum length of a certificate's name in a message, characters.
const MAX_SHOWN_NAME_CHARS: usize = 200;

/// A certification path from an issuer toward a root.
pub struct CertificationPath {
    /// The issuer, followed by each issuer that certifies the previous one.
    issuers: Vec<Arc<Issuer>>,
    /// The chain sent to clients: `issuers`, or a chain set by the operator.
    pub served: Vec<Arc<Issuer>>,
    /// Period in which all certificates above the issuer are valid, epoch seconds.
    span: RangeInclusive<i64>,
    /// Reason why every verifier rejects the path, naming the certificate at fault.
    pub rejection: Option<String>,
    /// Maximum number of CAs below the issuer that this path allows; `None` is unlimited.
    path_length: Option<u32>,
    /// The certificate policies that the path requires of a certificate below the issuer.
    pub(crate) policy: Option<RequiredPolicies>,
    /// Cached renderings of the chain for responses.
    pub rendered_chain: DerivedValues,
}

impl CertificationPath {
    fn new(issuers: Vec<Arc<Issuer>>, all: &Issuers) -> Self {
        let above = || issuers.iter().skip(1).map(|issuer| &issuer.certificate);
        let start = above().map(|certificate| certificate.not_before()).max().unwrap_or(i64::MIN);
        let end = above().map(|certificate| certificate.not_after()).min().unwrap_or(i64::MAX);
        Self {
            served: served_chain(&issuers, all),
            span: start..=end,
            rejection: rejection_reason(&issuers),
            path_length: max_path_length(&issuers),
            policy: RequiredPolicies::of(&issuers),
            rendered_chain: DerivedValues::default(),
            issuers,
        }
    }

    fn is_complete(&self) -> bool {
        self.issuers.last().is_some_and(|top| top.self_signed)
    }

    fn constraints(&self) -> ChainConstraints {
        let link = |issuer: &Arc<Issuer>| {
            let constraints = issuer.constraints.as_ref().ok()?.as_ref()?;
            Some(ConstrainedChainLink { constraints: Arc::clone(constraints), description: describe_issuer(issuer) })
        };
        ChainConstraints { span: self.span.clone(), links: self.issuers.iter().filter_map(link).collect() }
    }
}

/// The certification paths of an issuer: at least one, the preferred path first.
pub struct CertificationPaths(Vec<CertificationPath>);

impl CertificationPaths {
    /// Finds the paths of `issuer` and sorts them by preference: accepted before rejected paths, then complete before
    /// incomplete paths (root unknown), then shorter before longer paths, then those that expire later.
    pub(super) fn of(issuer: &Arc<Issuer>, issuers: &Issuers, parents: &Parents) -> Self {
        let mut search = PathSearch { issuers, parents, steps: 0, found: Vec::new() };
        search.extend(&mut vec![Arc::clone(issuer)]);
        let mut paths: Vec<CertificationPath> =
            search.found.into_iter().map(|path| CertificationPath::new(path, issuers)).collect();
        let rank = |path: &CertificationPath| (path.rejection.is_some(), !path.is_complete(), path.issuers.len());
        // A stable sort keeps the search order of paths with the same rank.
        paths.sort_by_key(|path| (rank(path), Reverse(*path.span.end())));
        Self(paths)
    }

    /// Returns the path to serve at a time (epoch seconds): the first that is valid and not rejected, else the first
    /// that is not rejected, else the first.
    pub fn served_at(&self, now: i64) -> Option<&CertificationPath> {
        let mut accepted = self.accepted_paths();
        let valid = self.accepted_paths().find(|path| path.span.contains(&now));
        valid.or_else(|| accepted.next()).or_else(|| self.0.first())
    }

    /// Returns the last time, up to `now`, at which a path became valid or expired, so that the served path may have
    /// changed. In epoch seconds; 0 for never.
    pub fn served_path_changed_at(&self, now: i64) -> i64 {
        let bounds = self.0.iter().flat_map(|path| [*path.span.start(), path.span.end().saturating_add(1)]);
        bounds.filter(|at| *at <= now).max().unwrap_or(0).max(0)
    }

    /// Returns why no path verifies; `None` if some path does.
    pub fn rejection_reason(&self) -> Option<&str> {
        if self.accepted_paths().next().is_some() { None } else { self.0.first()?.rejection.as_deref() }
    }

    /// Returns the paths that are not rejected.
    pub(crate) fn accepted_paths(&self) -> impl Iterator<Item = &CertificationPath> {
        self.0.iter().filter(|path| path.rejection.is_none())
    }

    /// Returns the maximum number of CAs below the issuer. This maximum holds on every path that is not rejected,
    /// because a verifier may build any of them. Incomplete paths (root unknown) count only if no path is complete (RFC
    /// 5280 4.2.1.9).
    pub(super) fn path_length(&self) -> Option<u32> {
        let has_root = self.accepted_paths().any(CertificationPath::is_complete);
        let counted = self.accepted_paths().filter(|path| path.is_complete() || !has_root);
        counted.filter_map(|path| path.path_length).min()
    }

    /// Returns the name constraints of the paths that are not rejected; empty if none has any.
    pub(super) fn constraints(&self) -> Vec<ChainConstraints> {
        let all: Vec<_> = self.accepted_paths().map(CertificationPath::constraints).collect();
        if all.iter().all(|chain| chain.links.is_empty()) { Vec::new() } else { all }
    }
}

/// Depth-first search for certification paths; no CA occurs twice in a path.
struct PathSearch<'a> {
    issuers: &'a Issuers,
    parents: &'a Parents,
    steps: usize,
    found: Vec<Vec<Arc<Issuer>>>,
}

impl PathSearch<'_> {
    fn extend(&mut self, path: &mut Vec<Arc<Issuer>>) {
        self.steps += 1;
        let Some(last) = path.last() else { return };
        let is_same = |one: &Issuer, other: &Issuer| {
            one.subject == other.subject && one.certificate.key() == other.certificate.key()
        };
        let parents = self.parents.get(&last.record.id).into_iter().flatten().filter_map(|id| self.issuers.get(id));
        let mut next: Vec<_> = parents.filter(|parent| !path.iter().any(|one| is_same(one, parent))).cloned().collect();
        if last.self_signed || next.is_empty() || path.len() >= MAX_CHAIN_LENGTH {
            self.found.push(path.clone());
            return;
        }
        next.sort_by_key(|p| (!p.self_signed, Reverse(p.certificate.not_after()), p.record.id.clone()));
        for parent in next {
            if self.found.len() >= MAX_PATHS_PER_ISSUER || self.steps >= MAX_SEARCH_STEPS && !self.found.is_empty() {
                return;
            }
            path.push(parent);
            self.extend(path);
            path.pop();
        }
    }
}

/// Returns the chain to serve: the path up to the first issuer with a manual chain, followed by that chain.
fn served_chain(path: &[Arc<Issuer>], issuers: &Issuers) -> Vec<Arc<Issuer>> {
    let mut served: Vec<Arc<Issuer>> = Vec::new();
    for issuer in path {
        served.push(Arc::clone(issuer));
        if issuer.record.manual_chain.is_empty() {
            continue;
        }
        for listed in issuer.record.manual_chain.iter().filter_map(|id| issuers.get(id)) {
            if served.len() < MAX_CHAIN_LENGTH && !served.iter().any(|known| known.record.id == listed.record.id) {
                served.push(Arc::clone(listed));
            }
        }
        break;
    }
    served
}

fn describe_issuer(issuer: &Issuer) -> String {
    let name: String = issuer.certificate.subject().display().chars().take(MAX_SHOWN_NAME_CHARS).collect();
    format!("the certificate of {name:?} (serial number {})", issuer.certificate.serial())
}

/// Returns why every verifier rejects the path (RFC 5280 6.1.4).
fn rejection_reason(path: &[Arc<Issuer>]) -> Option<String> {
    const START: &str = "issuer_ref: no chain of the issuer verifies";
    for (at, issuer) in path.iter().enumerate() {
        let below = path.get(..at).unwrap_or_default();
        if at > 0 && issuer.certificate.key_usage().is_some_and(|usage| !usage.contains(KeyUsage::CERT_SIGN)) {
            let refusing = describe_issuer(issuer);
            return Some(format!("{START}: {refusing} has a keyUsage without keyCertSign (RFC 5280 4.2.1.3)"));
        }
        let authorities = below.iter().filter(|issuer| !issuer.is_self_issued()).count();
        if let Some(length) = issuer.certificate.path_length()
            && (length as usize) < authorities
        {
            let refusing = describe_issuer(issuer);
            return Some(format!(
                "{START}: {refusing} allows a path length of {length}, but {authorities} CAs are below it \
                 (RFC 5280 4.2.1.9)"
            ));
        }
        let constraints = match &issuer.constraints {
            Ok(Some(constraints)) => constraints,
            Ok(None) => continue,
            Err(unreadable) => return Some(unreadable.clone()),
        };
        for authority in below.iter().filter(|issuer| !issuer.is_self_issued()) {
            if let Err(error) = constraints::validate_ca_names(authority.certificate.tbs(), constraints) {
                let refusing = describe_issuer(issuer);
                let authority = describe_issuer(authority);
                return Some(format!("{START}: {refusing} does not allow {authority}: {}", error.text()));
            }
        }
    }
    None
}

/// Returns the maximum number of CAs below the first issuer (RFC 5280 4.2.1.9, 6.1.4): the minimum over all path
/// lengths, each reduced by the number of CAs between its CA and the first issuer. Self-issued CAs do not count.
fn max_path_length(path: &[Arc<Issuer>]) -> Option<u32> {
    let mut least: Option<u32> = None;
    let mut between = 0;
    for issuer in path {
        if let Some(length) = issuer.certificate.path_length() {
            let left = length.saturating_sub(between);
            least = Some(least.map_or(left, |least| least.min(left)));
        }
        between += u32::from(!issuer.is_self_issued());
    }
    least
}

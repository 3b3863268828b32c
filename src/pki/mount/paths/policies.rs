//! Certificate policies that a path requires of certificates below it (RFC 5280 6.1.2 to 6.1.5). Extensions that cannot
//! be parsed are ignored, because the result is only used for warnings.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::pki::mount::issuer::Issuer;
use crate::x509::certificate::Certificate;
use crate::x509::oid;
use crate::x509::reader::{DerReader, DerResult};
use crate::x509::writer::{SEQUENCE, context};

/// The certificate policies that a path accepts. A certificate below the path must have at least one of them; with
/// `None`, any policy suffices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequiredPolicies(Option<BTreeSet<Vec<u8>>>);

impl RequiredPolicies {
    /// Returns the policies that a path (issuer first) requires, if any. Roots are skipped: verifiers do not evaluate
    /// trust anchors.
    pub(super) fn of(path: &[Arc<Issuer>]) -> Option<Self> {
        let mut allowed: Option<BTreeSet<Vec<u8>>> = None;
        // Number of further certificates on the path before a policy is required (explicit_policy of 6.1.2).
        let mut left: Option<u64> = None;
        for issuer in path.iter().rev().skip_while(|issuer| issuer.self_signed) {
            let certificate = &issuer.certificate;
            let own = read_policies(certificate);
            if !own.contains(oid::ANY_POLICY) {
                allowed = Some(match allowed {
                    Some(allowed) => allowed.intersection(&own).cloned().collect(),
                    None => own,
                });
            }
            if let Some(allowed) = &mut allowed {
                apply_policy_mappings(certificate, allowed);
            }
            if !issuer.is_self_issued() {
                left = left.map(|left| left.saturating_sub(1));
            }
            let own = read_require_explicit(certificate);
            left = left.into_iter().chain(own).min();
        }
        // The certificate below the path decrements the counter once more (6.1.5).
        left.filter(|left| *left <= 1).map(|_| Self(allowed))
    }

    /// Returns `true` if a certificate with these policies meets the requirement.
    pub(crate) fn is_met_by(&self, own: &BTreeSet<Vec<u8>>) -> bool {
        let is_any = own.contains(oid::ANY_POLICY);
        match &self.0 {
            None => !own.is_empty(),
            Some(allowed) => !allowed.is_empty() && (is_any || !own.is_disjoint(allowed)),
        }
    }

    /// Returns the warning for a certificate, or a role, that does not meet the requirement.
    pub(crate) fn unmet_warning(&self) -> String {
        let required = match &self.0 {
            None => "any".to_owned(),
            Some(allowed) if allowed.is_empty() => "but the CAs of the chain have none in common".to_owned(),
            Some(allowed) => {
                let shown: Vec<_> = allowed.iter().take(5).map(|id| oid::oid_text(id)).collect();
                format!("one of {}", shown.join(", "))
            }
        };
        format!(
            "policy_identifiers: the issuing chain requires an explicit certificate policy, {required} (RFC 5280 4.2.1.11): \
             verifiers such as Go and Java reject a certificate without such a policy"
        )
    }
}

/// Returns the policies of a certificate, as DER contents of their OIDs; empty if the extension cannot be parsed.
pub(crate) fn read_policies(certificate: &Certificate) -> BTreeSet<Vec<u8>> {
    let read = |value: &[u8]| -> DerResult<BTreeSet<Vec<u8>>> {
        let mut list = DerReader::read_single(value, SEQUENCE)?.reader();
        let mut all = BTreeSet::new();
        while !list.is_empty() {
            all.insert(list.sequence()?.oid()?.to_vec());
        }
        Ok(all)
    };
    let extension = certificate.extension(oid::CERTIFICATE_POLICIES);
    extension.and_then(|extension| read(&extension.value).ok()).unwrap_or_default()
}

/// Reads requireExplicitPolicy of policyConstraints (4.2.1.11).
fn read_require_explicit(certificate: &Certificate) -> Option<u64> {
    let read = |value: &[u8]| -> DerResult<Option<u64>> {
        let explicit = DerReader::read_single(value, SEQUENCE)?.reader().optional(context(0))?;
        let number = |content: &[u8]| content.iter().fold(0_u64, |n, octet| n.saturating_mul(256) | u64::from(*octet));
        Ok(explicit.map(|explicit| number(explicit.content)))
    };
    read(&certificate.extension(oid::POLICY_CONSTRAINTS)?.value).ok().flatten()
}

/// Maps the policies of the issuer's domain to those of the subject's domain (4.2.1.5).
fn apply_policy_mappings(certificate: &Certificate, allowed: &mut BTreeSet<Vec<u8>>) {
    let read = |value: &[u8]| -> DerResult<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut list = DerReader::read_single(value, SEQUENCE)?.reader();
        let mut all = Vec::new();
        while !list.is_empty() {
            let mut pair = list.sequence()?;
            all.push((pair.oid()?.to_vec(), pair.oid()?.to_vec()));
        }
        Ok(all)
    };
    let extension = certificate.extension(oid::POLICY_MAPPINGS);
    let pairs = extension.and_then(|extension| read(&extension.value).ok()).unwrap_or_default();
    let mapped: Vec<_> = pairs.iter().filter(|(from, _)| allowed.contains(from)).map(|(_, to)| to.clone()).collect();
    for (from, _) in &pairs {
        allowed.remove(from);
    }
    allowed.extend(mapped);
}

//! Assigns issuers to the groups that share CRLs, and revocations to these groups.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::clock::Time;
use crate::pki::mount::issuer::Issuer;
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::view::MountView;
use crate::pki::store::{RevocationRow, StoredRevocation};
use crate::x509::serial::Serial;

/// Issuers with the same subject (compared by RFC 5280 7.1) and key; they share CRLs, CRL numbers and signer.
pub(super) struct IssuerGroup {
    pub(super) id: String,
    pub(super) issuers: Vec<String>,
    /// Issuer that signs the CRLs; `None` if no member has both its private key in this mount and the usage
    /// `crl-signing`.
    pub(super) signer: Option<Arc<IssuerSigner>>,
    /// Issuer whose name and key identifier are used to rebuild stored CRLs: the signer, or else another member.
    pub(super) rebuild_issuer: Option<Arc<IssuerSigner>>,
    /// `true` if the mount has a member's private key, even without the usage `crl-signing`.
    pub(super) has_key: bool,
    /// Highest CRL number that is known to be used elsewhere, which new CRL numbers must exceed; 0 if there is none.
    pub(super) floor: u64,
}

impl IssuerGroup {
    /// Returns a warning if no issuer can sign the group's CRLs. A CA without private key and entries needs no CRL from
    /// this mount, so there is no warning.
    pub(super) fn missing_signer_warning(&self, has_entries: impl FnOnce() -> bool) -> Option<String> {
        (self.signer.is_none() && (self.has_key || has_entries())).then(|| {
            let issuers = self.issuers.join(", ");
            format!(
                "no CRL for issuers {issuers}: none has both its private key in this mount and the usage crl-signing"
            )
        })
    }
}

/// Returns `true` if an issuer of the mount with the same subject and key as `issuer` signs CRLs.
pub fn has_crl_signer(view: &MountView, issuer: &Issuer) -> bool {
    let id = issuer.authority_id();
    let mut signing = view.signers().filter(|signer| signer.key.is_some() && signer.issuer.record.usage.crl);
    signing.any(|signer| signer.issuer.authority_id() == id)
}

pub(super) fn issuer_groups(view: &MountView) -> Vec<IssuerGroup> {
    let mut by_authority: BTreeMap<String, Vec<&Arc<IssuerSigner>>> = BTreeMap::new();
    for signer in view.signers() {
        by_authority.entry(signer.issuer.authority_id()).or_default().push(signer);
    }
    by_authority
        .into_iter()
        .map(|(id, members)| {
            let fit = |s: &&&Arc<IssuerSigner>| s.key.is_some() && s.issuer.record.usage.crl;
            let is_default = |s: &&&Arc<IssuerSigner>| view.is_default_issuer(&s.issuer.record.id);
            let signer = members.iter().filter(fit).find(is_default).or_else(|| members.iter().find(fit));
            IssuerGroup {
                id,
                issuers: members.iter().map(|s| s.issuer.record.id.clone()).collect(),
                signer: signer.map(|s| Arc::clone(s)),
                rebuild_issuer: signer
                    .or_else(|| members.iter().find(is_default))
                    .or(members.first())
                    .map(|s| Arc::clone(s)),
                has_key: members.iter().any(|s| s.key.is_some()),
                floor: members.iter().map(|s| s.issuer.record.crl_number).max().unwrap_or(0),
            }
        })
        .collect()
}

/// Assigns revocations to issuer groups.
#[derive(PartialEq, Default)]
pub(super) struct GroupLayout {
    /// Group id by issuer id. Includes deleted issuers if a group with their subject and key exists.
    group_of: BTreeMap<String, String>,
    /// Ids of the deleted issuers in `group_of`.
    former: Vec<String>,
    default_group: Option<String>,
    /// The group ids of each root, by the serial number of the root. They are needed because a root is not on its own
    /// CRL.
    roots: HashMap<Serial, Vec<String>>,
    /// Revocations of issuers. Each has the id of the group whose CRL lists it: the group of the issuer's parent. They
    /// are read from issuer records, because the issuers' certificates may have been issued elsewhere.
    revoked_issuers: Vec<(String, RevocationRow)>,
}

impl GroupLayout {
    pub(super) fn new(view: &MountView, groups: &[IssuerGroup]) -> Self {
        let here = groups.iter().flat_map(|g| g.issuers.iter().map(|i| (i.clone(), g.id.clone())));
        let config = &view.issuers_config.value;
        let former: BTreeMap<_, _> =
            config.former.clone().into_iter().filter(|(_, group)| groups.iter().any(|g| g.id == *group)).collect();
        let group_of: BTreeMap<_, _> = former.clone().into_iter().chain(here).collect();
        let default_group = group_of.get(&config.default).cloned();
        let issuers = || view.signers().map(|s| &s.issuer);
        let mut roots: HashMap<_, Vec<_>> = HashMap::new();
        for root in issuers().filter(|i| i.self_signed) {
            roots.entry(root.certificate.serial()).or_default().extend(group_of.get(&root.record.id).cloned());
        }
        Self {
            roots,
            former: former.into_keys().collect(),
            revoked_issuers: issuers().filter_map(|issuer| revoked_issuer(view, issuer, &group_of)).collect(),
            group_of,
            default_group,
        }
    }

    /// Returns the group whose CRL lists a revocation. This is the group of the certificate's issuer, or the group of
    /// the default issuer if the certificate's issuer is unknown. A root has no such group. The second value is `true`
    /// if the issuer is unknown: a change of the default issuer then moves the entry.
    pub(super) fn group(&self, revocation: &StoredRevocation) -> (Option<&String>, bool) {
        let row = &revocation.row;
        match self.group_of.get(&row.issuer) {
            Some(group) if self.roots.get(&row.serial).is_some_and(|groups| groups.contains(group)) => (None, false),
            Some(group) => (Some(group), false),
            None => (self.default_group.as_ref(), true),
        }
    }

    /// Returns `true` if every revocation that `old` assigns has the same group here. Issuer ids are never reused, so
    /// no earlier revocation has the id of a new issuer. But a new issuer may adopt the revocations of a deleted issuer
    /// with the same subject and key. `orphans` is `true` if there are revocations of unknown issuers.
    pub(super) fn is_compatible_with(&self, old: &Self, orphans: bool) -> bool {
        let kept = old.group_of.iter().all(|(issuer, group)| self.group_of.get(issuer) == Some(group));
        let come_back = self.former.iter().any(|id| !old.group_of.contains_key(id));
        kept && (!orphans || (self.default_group == old.default_group && !come_back))
    }

    pub(super) fn revoked_issuers<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a RevocationRow> {
        self.revoked_issuers.iter().filter(move |(of, _)| of == group).map(|(_, row)| row)
    }
}

/// Returns the revocation of a revoked issuer, with the id of the group that lists it. This is the group of the
/// issuer's first parent; all parents have the same name and key.
fn revoked_issuer(
    view: &MountView,
    issuer: &Issuer,
    group_of: &BTreeMap<String, String>,
) -> Option<(String, RevocationRow)> {
    let revoked_at = Time::from_unix_timestamp(issuer.record.revoked_at?).ok()?;
    let parent = view.parents(&issuer.record.id).first()?;
    let row = RevocationRow {
        mount: view.mount,
        serial: issuer.certificate.serial(),
        issuer: parent.clone(),
        revoked_at,
        not_after: issuer.certificate.not_after(),
        reason: issuer.record.revoked_for.reason,
        invalidity_date: issuer.record.revoked_for.invalidity_date,
    };
    Some((group_of.get(parent)?.clone(), row))
}

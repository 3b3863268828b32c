//! Complete certificate revocation lists (RFC 5280 5): which issuers share one, what is on it, its
//! number, and how it comes back after a restart.
//!
//! The revocations in storage are the truth; a CRL is a projection of them. A [`Builder`] keeps every
//! group's entries encoded and sorted, reads what was revoked since its last look, and signs. It is
//! owned by whoever builds: the mount's control actor hands it out for one build and gets it back, so
//! there is never more than one build running. A published CRL is stored as number, times, covered
//! sequence and signature; after a restart the same bytes are made again and checked against that
//! signature, and only when they differ is a new number published.

mod entries;
mod others;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;

use self::entries::Entries;
use super::issuer::Issuer;
use super::prepared::{Prepared, Signed};
use super::profile::issuer_key_id;
use super::store::{CrlRow, PkiStore, PkiWrite, RevocationRow, StoredRevocation};
use super::structure::Expected;
use super::view::{Signer, View};
use crate::clock::{Clock, Time};
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::crl::CrlTbs;
use crate::x509::serial::Serial;
use crate::x509::tbs::signed;
use crate::x509::{extension, pem};

/// Life of a CRL: nextUpdate − thisUpdate.
pub const EXPIRY: Duration = Duration::from_secs(72 * 3600);
/// A CRL is built again when less than this is left of its life, so that lists never lapse unattended.
pub const RENEW_BEFORE: Duration = Duration::from_secs(12 * 3600);
/// Revocations read from storage at a time.
const PAGE: u32 = 10_000;
/// Tries when another node published a number first.
const NUMBER_TRIES: usize = 50;

/// A published CRL, ready to serve without copying.
pub struct Published {
    /// CRL number (RFC 5280 5.2.3).
    pub number: u64,
    /// Epoch seconds.
    pub this_update: i64,
    /// Epoch seconds.
    pub next_update: i64,
    /// How many certificates it lists.
    pub entries: usize,
    /// The CRL, DER.
    pub der: Bytes,
    /// The CRL as PEM text, without a trailing newline.
    pub pem: Bytes,
}

/// The published CRLs of a mount.
#[derive(Default)]
pub struct Crls {
    /// By issuer id; issuers of one group share one.
    pub by_issuer: HashMap<String, Arc<Published>>,
    /// Every revocation up to this sequence is on them.
    pub covers: u64,
}

/// Issuers with one subject and key: they share a CRL, its numbers and its signer.
struct Group {
    id: String,
    issuers: Vec<String>,
    signer: Option<Arc<Signer>>,
}

fn groups(view: &View) -> Vec<Group> {
    let mut by_authority: BTreeMap<Vec<u8>, Vec<&Arc<Signer>>> = BTreeMap::new();
    for signer in view.signers() {
        let certificate = &signer.issuer.certificate;
        let authority = [certificate.subject(), certificate.key().spki()].concat();
        by_authority.entry(authority).or_default().push(signer);
    }
    by_authority
        .into_iter()
        .map(|(authority, members)| {
            let fit = |s: &&&Arc<Signer>| s.key.is_some() && s.issuer.record.usage.crl;
            let is_default = |s: &&&Arc<Signer>| view.is_default_issuer(&s.issuer.record.id);
            let signer = members.iter().filter(fit).find(is_default).or_else(|| members.iter().find(fit));
            Group {
                id: hex(&digest(&SHA256, &authority).as_ref()[..16]),
                issuers: members.iter().map(|s| s.issuer.record.id.clone()).collect(),
                signer: signer.map(|s| Arc::clone(s)),
            }
        })
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What decides which group an entry belongs to; when it changes, entries are sorted out anew.
#[derive(PartialEq, Default)]
struct Layout {
    group_of: BTreeMap<String, String>,
    default_group: Option<String>,
    /// Roots by id, with their serials: a root is not on its own list.
    roots: HashMap<String, Serial>,
    /// Revoked issuers with the group of those that certify them: from the issuers' records, because the
    /// certificate of an issuer may have been issued elsewhere.
    issuers: Vec<(String, RevocationRow)>,
}

impl Layout {
    fn new(view: &View, groups: &[Group]) -> Self {
        let group_of: BTreeMap<_, _> =
            groups.iter().flat_map(|g| g.issuers.iter().map(|i| (i.clone(), g.id.clone()))).collect();
        let default_group = group_of.get(&view.issuers_config.value.default).cloned();
        let issuers = || view.signers().map(|s| &s.issuer);
        let roots = issuers().filter(|i| i.self_signed);
        Self {
            roots: roots.map(|i| (i.record.id.clone(), i.certificate.serial())).collect(),
            issuers: issuers().filter_map(|issuer| revoked_issuer(view, issuer, &group_of)).collect(),
            group_of,
            default_group,
        }
    }

    /// The group of an entry: its issuer's, else the default issuer's, else none.
    fn group(&self, revocation: &StoredRevocation) -> Option<&String> {
        let row = &revocation.row;
        if self.roots.get(&row.issuer) == Some(&row.serial) {
            return None;
        }
        self.group_of.get(&row.issuer).or(self.default_group.as_ref())
    }
}

/// The entry of a revoked issuer, and the group that lists it. All that certify it made one signature
/// under one name, so they are one group.
fn revoked_issuer(
    view: &View,
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
        reason: None,
        invalidity_date: None,
    };
    Some((group_of.get(parent)?.clone(), row))
}

#[derive(Default)]
struct GroupState {
    entries: Entries,
    /// Entries were added since the last build.
    dirty: bool,
    published: Option<Arc<Published>>,
}

/// Builds the CRLs of one mount.
pub struct Builder {
    mount: MountId,
    store: Arc<dyn PkiStore>,
    clock: Clock,
    layout: Layout,
    /// Every revocation up to this sequence is in the entries.
    loaded: u64,
    states: HashMap<String, GroupState>,
    restored: bool,
    /// The next build looks at what other nodes published.
    look: bool,
    /// Every revocation up to this sequence is on the CRLs of the last build without a failure.
    covers: u64,
}

/// What a build came to.
pub struct Built {
    /// The CRLs to publish.
    pub crls: Crls,
    /// How many were made anew.
    pub made: usize,
    /// Entries of the largest one.
    pub entries: usize,
    /// Issuers that cannot have a CRL, for the caller.
    pub warnings: Vec<String>,
    /// Why some could not be made; the others were.
    pub failure: Option<Error>,
}

impl Builder {
    /// A builder that has read nothing yet.
    pub fn new(mount: MountId, store: Arc<dyn PkiStore>, clock: Clock) -> Self {
        Self {
            mount,
            store,
            clock,
            layout: Layout::default(),
            loaded: 0,
            states: HashMap::new(),
            restored: false,
            look: false,
            covers: 0,
        }
    }

    /// Forgets everything read; the next build starts from storage.
    pub fn reset(&mut self) {
        *self = Self::new(self.mount, Arc::clone(&self.store), self.clock.clone());
    }

    /// Brings every group's CRL up to date: groups with new entries, without a CRL, or close to
    /// nextUpdate get a new one; with `force` all do. A group that fails keeps its last CRL and does not
    /// keep the others from theirs.
    ///
    /// # Errors
    /// `Unavailable` when the revocations cannot be read. What was published stays.
    pub async fn build(&mut self, view: &View, force: bool) -> Result<Built> {
        let groups = groups(view);
        self.adopt(Layout::new(view, &groups));
        if !self.restored {
            self.restore(&groups).await?;
            self.restored = true;
        }
        if std::mem::take(&mut self.look) {
            self.take_over(&groups).await?;
        }
        self.load(u64::MAX).await?;
        let loaded = self.loaded;
        let mut built = Built { crls: Crls::default(), made: 0, entries: 0, warnings: Vec::new(), failure: None };
        for group in &groups {
            let state = self.states.entry(group.id.clone()).or_default();
            let due = state
                .published
                .as_ref()
                .is_none_or(|p| p.next_update - self.clock.now().unix_timestamp() < RENEW_BEFORE.as_secs() as i64);
            let wanted = force || state.dirty || due;
            match &group.signer {
                Some(signer) if wanted => match self.publish(group, signer).await {
                    Ok(()) => built.made += 1,
                    Err(error) => built.failure = Some(error),
                },
                Some(_) => {}
                None => built.warnings.push(format!(
                    "no CRL for issuers {}: none of them has its key here and the usage crl-signing",
                    group.issuers.join(", ")
                )),
            }
            if let Some(published) = self.states.get(&group.id).and_then(|s| s.published.as_ref()) {
                built.entries = built.entries.max(published.entries);
                built.crls.by_issuer.extend(group.issuers.iter().map(|i| (i.clone(), Arc::clone(published))));
            }
        }
        if built.failure.is_none() {
            // Not what was read since, for one of them: the others may lack it.
            self.covers = loaded;
        }
        built.crls.covers = self.covers;
        Ok(built)
    }

    /// A changed set of issuers or default sorts every entry out anew.
    fn adopt(&mut self, layout: Layout) {
        if layout == self.layout {
            return;
        }
        self.layout = layout;
        self.loaded = 0;
        for state in self.states.values_mut() {
            state.entries = Entries::default();
            state.dirty = true;
        }
    }

    /// Reads revocations up to `limit` (a sequence) into the entries.
    async fn load(&mut self, limit: u64) -> Result<()> {
        loop {
            let page = self.store.revocations(self.mount, self.loaded, PAGE).await?;
            let full = page.len() == PAGE as usize;
            let mut new: HashMap<&String, Vec<&StoredRevocation>> = HashMap::new();
            let mut beyond = false;
            for revocation in &page {
                if revocation.sequence > limit {
                    beyond = true;
                    break;
                }
                self.loaded = revocation.sequence;
                if let Some(group) = self.layout.group(revocation) {
                    new.entry(group).or_default().push(revocation);
                }
            }
            for (group, revocations) in new {
                let state = self.states.entry(group.clone()).or_default();
                state.entries.add(revocations.iter().map(|r| &r.row));
                state.dirty = true;
            }
            if beyond || !full {
                break;
            }
        }
        // After the rows, which know more (a reason), and in the same order after every start.
        for (group, row) in &self.layout.issuers {
            let state = self.states.entry(group.clone()).or_default();
            if !state.entries.has(&row.serial) {
                state.entries.add([row].into_iter());
                state.dirty = true;
            }
        }
        Ok(())
    }

    /// Makes the last published CRLs again, after a start.
    async fn restore(&mut self, groups: &[Group]) -> Result<()> {
        let rows = self.store.crls(self.mount).await?;
        let Some(covers) = rows.iter().map(|r| r.covers).max() else { return Ok(()) };
        self.load(covers).await?;
        for group in groups {
            let Some(row) = rows.iter().find(|r| r.group == group.id) else { continue };
            let Some(signer) = &group.signer else { continue };
            let state = self.states.entry(group.id.clone()).or_default();
            let plan = Plan::new(signer, state.entries.encoded(), row.number, row.this_update, row.next_update);
            let Ok(plan) = plan else { continue };
            let count = state.entries.len();
            if signer.issuer.certificate.key().verify(plan.algorithm, &plan.tbs, &row.signature).is_ok() {
                state.published = Some(Arc::new(plan.finish(&row.signature, count)));
                state.dirty = false;
            } else {
                tracing::warn!(group = %group.id, number = row.number, "stored CRL cannot be made again; publishing the next number");
                state.dirty = true;
            }
        }
        Ok(())
    }

    /// Signs and records the next CRL of a group.
    async fn publish(&mut self, group: &Group, signer: &Signer) -> Result<()> {
        let mut number = self.next_number(group).await?;
        for _ in 0..NUMBER_TRIES {
            let state = self.states.entry(group.id.clone()).or_default();
            let count = state.entries.len();
            let this_update = self.clock.now().unix_timestamp();
            let next_update = this_update + EXPIRY.as_secs() as i64;
            let plan = Plan::new(signer, state.entries.encoded(), number, this_update, next_update)?;
            let (plan, signature) = plan.sign(signer)?;
            let row = CrlRow {
                mount: self.mount,
                group: group.id.clone(),
                number,
                covers: self.loaded,
                this_update,
                next_update,
                signature: signature.clone(),
            };
            match self.store.commit(vec![PkiWrite::Crl(row)]).await {
                Ok(_) => {
                    state.published = Some(Arc::new(plan.finish(&signature, count)));
                    state.dirty = false;
                    return Ok(());
                }
                Err(e) if e.kind() == Kind::Conflict => {
                    let Some(stored) = self.stored(group).await?.filter(|row| row.number >= number) else {
                        // Not a matter of numbers: the mount is gone.
                        return Err(e);
                    };
                    // Another node was first. When its CRL holds all that this one would, it will do.
                    if stored.covers >= self.loaded && self.take_over_one(group, &stored).await? {
                        return Ok(());
                    }
                    number = stored.number + 1;
                    self.load(u64::MAX).await?;
                }
                Err(e) => return Err(e),
            }
        }
        Err(Error::new(Kind::Busy, "CRL number taken by another node too often"))
    }

    async fn next_number(&self, group: &Group) -> Result<u64> {
        match self.states.get(&group.id).and_then(|s| s.published.as_ref()) {
            Some(published) => Ok(published.number + 1),
            None => Ok(self.stored(group).await?.map_or(0, |row| row.number) + 1),
        }
    }

    async fn stored(&self, group: &Group) -> Result<Option<CrlRow>> {
        let rows = self.store.crls(self.mount).await?;
        Ok(rows.into_iter().find(|row| row.group == group.id))
    }
}

/// A CRL that waits for its signature.
struct Plan {
    algorithm: SignatureAlgorithm,
    tbs: Vec<u8>,
    number: u64,
    this_update: i64,
    next_update: i64,
}

impl Plan {
    fn new(signer: &Signer, entries: &[u8], number: u64, this_update: i64, next_update: i64) -> Result<Self> {
        let issuer = &signer.issuer;
        let algorithm = revocation_algorithm(signer)?;
        let key_id = extension::authority_key_id(&issuer_key_id(issuer));
        let crl_number = extension::crl_number(number);
        let tbs = CrlTbs {
            algorithm,
            issuer: issuer.certificate.subject(),
            this_update,
            next_update,
            entries,
            extensions: &[&key_id, &crl_number],
        }
        .encode();
        Ok(Self { algorithm, tbs, number, this_update, next_update })
    }

    /// Checks and signs the list, on the builder's own thread.
    fn sign(self, signer: &Signer) -> Result<(Self, Vec<u8>)> {
        let key = signer.key.as_ref().ok_or_else(|| Error::internal("a CRL signer has a key"))?;
        let issuer = &signer.issuer;
        let key_id = issuer_key_id(issuer);
        let expected = Expected { algorithm: self.algorithm, issuer: issuer.certificate.subject(), key_id: &key_id };
        let Signed { tbs, signature, .. } = Prepared::crl(self.tbs, &expected, &key.private)?.sign_here()?;
        Ok((Self { tbs, ..self }, signature))
    }

    fn finish(self, signature: &[u8], entries: usize) -> Published {
        let der = signed(&self.tbs, self.algorithm, signature);
        Published {
            number: self.number,
            this_update: self.this_update,
            next_update: self.next_update,
            entries,
            pem: Bytes::from(pem::encode("X509 CRL", &der)),
            der: Bytes::from(der),
        }
    }
}

/// The algorithm of an issuer's CRLs: its own setting, else what its key implies.
fn revocation_algorithm(signer: &Signer) -> Result<SignatureAlgorithm> {
    let setting = &signer.issuer.record.revocation_signature_algorithm;
    match SignatureAlgorithm::parse_name(setting) {
        Some(algorithm) => Ok(algorithm),
        None => SignatureAlgorithm::for_issuer(signer.issuer.certificate.key().kind(), 0, false),
    }
}

//! CRLs that an authority published before it came to this mount: `issuers/import/crl`.
//!
//! Whoever knows the old list must take the next one: its number goes on above, and every entry is still there. So the
//! entries become revocations like any other, of certificates that are not stored here, and then the number goes into
//! the issuer's record; a list that is made in between has a number that nobody takes who knows the old one. Nothing is
//! stored before the whole list was read and every serial number held against what the mount has: one that another
//! issuer of the mount has used is refused, because a mount knows certificates by their serial number alone.
//!
//! A list may have millions of entries. It is read off the workers and stored in units of [`PAGE`], so that others'
//! writes go on in between: one transaction would hold up every other write for seconds. A caller that leaves does not
//! end the import. When the store fails in the middle, the entries of earlier units stay revoked, as their issuer said;
//! the number of the list is not taken over, and no CRL is built for it. Sending the same list again goes on: entries
//! that are stored count as existing. One list of a mount is imported at a time.
//!
//! CRLs that come with imported certificates ([`AccompanyingLists`]) are checked against the mount as it will be,
//! before anything is stored.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::OwnedMutexGuard;

use crate::clock::Time;
use crate::error::{Error, Kind, Result, Warnings};
use crate::pki::actor::Planned;
use crate::pki::compromised::NewKey;
use crate::pki::crl::{Published, WantedCrls};
use crate::pki::engine::Authority;
use crate::pki::mount::issuer::{IssuerRecord, may_sign_crls};
use crate::pki::mount::signer::Signer;
use crate::pki::mount::view::View;
use crate::pki::store::{Grounds, KnownSerial, PkiOutcome, PkiWrite, RevocationRow, is_compromise};
use crate::turns::{Caller, cpu};
use crate::x509::foreign_crl::{ForeignCrl, ForeignEntry, ON_HOLD};
use crate::x509::serial::Serial;

/// Entries of one unit of writes.
const PAGE: usize = 500;
/// Tries when the queue of writes is full, and the pause between them.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// How far the clock of whoever made a list, or asks for a revocation, may be ahead, seconds.
pub(super) const SKEW: i64 = 300;
/// When a certificate ends that nobody here has seen: 9999-12-31T23:59:59Z (RFC 5280 4.1.2.5), so that its entry stays.
const UNKNOWN_END: i64 = 253_402_300_799;

/// What came of an import.
pub struct ImportedList {
    /// Ids of the issuers whose list it is: those of one subject and key.
    pub issuers: Vec<String>,
    /// The number of the list, where it has one.
    pub number: Option<u64>,
    /// The number of the list that was published here after it; `None` where the issuer cannot have one.
    pub published: Option<u64>,
    /// How many certificates it lists.
    pub entries: usize,
    /// How many of them were not revoked here before.
    pub imported: usize,
    /// Warnings for the caller.
    pub warnings: Warnings,
}

/// Takes over a list of an issuer of the mount.
///
/// # Errors
/// `Invalid` naming `crl` and the rule, and nothing is stored then; `Busy` while another one is imported; `Unavailable`
/// from storage, and what was stored stays.
pub async fn import(authority: &Arc<Authority>, list: ForeignCrl) -> Result<ImportedList> {
    let turn = import_turn(authority)?;
    let authority = Arc::clone(authority);
    // A task of its own: a caller that leaves must not leave half a list behind.
    let work = async move {
        let _turn = turn;
        let view = authority.view();
        let import = Import::of(authority, view, list).await?;
        let checked = import.check().await?;
        import.carry_out(checked).await
    };
    tokio::spawn(Caller::current().scope(work)).await.map_err(Error::internal)?
}

/// CRLs that come with the certificates of their issuers, checked and not stored yet.
pub struct AccompanyingLists {
    authority: Arc<Authority>,
    lists: Vec<(Import, Checked)>,
    /// The first issuer of the list that has a serial number.
    serials: HashMap<Serial, String>,
    _turn: OwnedMutexGuard<()>,
}

impl AccompanyingLists {
    /// None so far. As long as it lives no other list of the mount is imported.
    ///
    /// # Errors
    /// `Busy` while another one is imported.
    pub fn begin(authority: &Arc<Authority>) -> Result<Self> {
        let turn = import_turn(authority)?;
        Ok(Self { authority: Arc::clone(authority), lists: Vec::new(), serials: HashMap::new(), _turn: turn })
    }

    /// Adds a list of an issuer of `view`, which is the mount as it will be.
    ///
    /// # Errors
    /// `Invalid` naming `crl` and the rule; those of the store. The list is not added then.
    pub async fn add(&mut self, view: &Arc<View>, list: ForeignCrl) -> Result<()> {
        let import = Import::of(Arc::clone(&self.authority), Arc::clone(view), list).await?;
        let checked = import.check().await?;
        let issuer = import.issuers.first().cloned().unwrap_or_default();
        let (list, known) = (Arc::clone(&import.list), std::mem::take(&mut self.serials));
        let (known, added) = cpu::run(move || with_serials(known, &list, &issuer)).await?;
        self.serials = known;
        added?;
        self.lists.push((import, checked));
        Ok(())
    }

    /// Ids of the issuers that have a list here.
    pub fn issuers(&self) -> HashSet<String> {
        self.lists.iter().flat_map(|(import, _)| import.issuers.iter().cloned()).collect()
    }

    /// Stores the lists. Their issuers are in the mount by now.
    ///
    /// # Errors
    /// Those of the store: what was stored stays, and the same lists may be sent again.
    pub async fn carry_out(self) -> Result<Vec<ImportedList>> {
        let mut imported = Vec::with_capacity(self.lists.len());
        for (import, checked) in self.lists {
            imported.push(import.carry_out(checked).await?);
        }
        Ok(imported)
    }
}

/// The issuers by serial number, with those of a list of `issuer`; unchanged when one of them is that of another
/// issuer.
fn with_serials(
    mut known: HashMap<Serial, String>,
    list: &ForeignCrl,
    issuer: &str,
) -> (HashMap<Serial, String>, Result<()>) {
    let mut serials = Vec::new();
    let mut at = 0;
    loop {
        match list.page(at, PAGE) {
            Ok((page, _)) if page.is_empty() => break,
            Ok((page, next)) => {
                serials.extend(page.iter().map(|entry| entry.serial));
                at = next;
            }
            Err(error) => return (known, Err(error)),
        }
    }
    let is_of_another = |serial: &&Serial| known.get(*serial).is_some_and(|other| other != issuer);
    if let Some(serial) = serials.iter().find(is_of_another) {
        let refused = Err(used_by_another(*serial));
        return (known, refused);
    }
    known.extend(serials.into_iter().map(|serial| (serial, issuer.to_owned())));
    (known, Ok(()))
}

/// The lock for importing lists into a mount.
fn import_turn(authority: &Authority) -> Result<OwnedMutexGuard<()>> {
    let busy = |_| Error::new(Kind::Busy, "another CRL is being imported into this mount");
    Arc::clone(authority.importing()).try_lock_owned().map_err(busy)
}

fn used_by_another(serial: Serial) -> Error {
    Error::invalid(format!(
        "crl: serial number {serial} is that of a certificate of another issuer of this mount: give each authority \
         with serial numbers from elsewhere a mount of its own"
    ))
}

/// An import under way.
struct Import {
    authority: Arc<Authority>,
    list: Arc<ForeignCrl>,
    /// The issuers whose list it is.
    issuers: Vec<String>,
    /// All ids under which their certificates and revocations may be stored: those of deleted ones as well.
    same: HashSet<String>,
    /// The issuers of the mount that they certify.
    certified: HashMap<Serial, String>,
    entries: usize,
    on_hold: usize,
    /// The serial numbers of those that certify themselves: they are not on their own list.
    roots: HashSet<Serial>,
}

/// What a list means for the mount.
#[derive(Default)]
struct Checked {
    /// Entries that are not stored.
    fresh: usize,
    /// When the certificates end that are stored.
    ends: HashMap<Serial, i64>,
    /// Issuers of the mount that are on it.
    revoked: Vec<(String, ForeignEntry)>,
    /// Entries that a list made here does not have.
    unlisted: Vec<Serial>,
}

impl Import {
    /// Finds whose list it is, and reads all of it.
    async fn of(authority: Arc<Authority>, view: Arc<View>, list: ForeignCrl) -> Result<Self> {
        let now = authority.tools().clock.now().unix_timestamp();
        // Its signature covers all of it, and each entry is looked at.
        let read = move || {
            let issuers = issuers_of(&view, &list)?;
            if list.this_update > now + SKEW {
                return Err(Error::invalid("crl: its thisUpdate is still to come"));
            }
            let (mut entries, mut on_hold, mut at) = (0, 0, 0);
            loop {
                let (page, next) = list.page(at, PAGE)?;
                if page.is_empty() {
                    break;
                }
                (entries, at) = (entries + page.len(), next);
                on_hold += page.iter().filter(|entry| entry.reason == Some(ON_HOLD)).count();
            }
            Ok((view, list, issuers, entries, on_hold))
        };
        let (view, list, issuers, entries, on_hold) = cpu::run(read).await??;
        let group = issuers.first().and_then(|id| view.signer(id)).map(|signer| group(signer)).unwrap_or_default();
        let former = view.issuers_config.value.former.iter().filter(|(_, of)| **of == group).map(|(id, _)| id.clone());
        let same = issuers.iter().cloned().chain(former).collect();
        let is_certified = |signer: &&Arc<Signer>| {
            view.parents(&signer.issuer.record.id).iter().any(|parent| issuers.contains(parent))
        };
        let certified = view.signers().filter(is_certified);
        let certified = certified.map(|s| (s.issuer.certificate.serial(), s.issuer.record.id.clone())).collect();
        let of_it = |signer: &&Arc<Signer>| signer.issuer.self_signed && issuers.contains(&signer.issuer.record.id);
        let roots = view.signers().filter(of_it).map(|signer| signer.issuer.certificate.serial()).collect();
        Ok(Self { list: Arc::new(list), issuers, same, certified, entries, on_hold, roots, authority })
    }

    /// Holds every entry against what the mount has. Nothing is stored.
    async fn check(&self) -> Result<Checked> {
        let (mut checked, mut at) = (Checked::default(), 0);
        let (store, mount) = (&self.authority.tools().store, self.authority.mount());
        loop {
            let (page, next) = self.list.page(at, PAGE)?;
            if page.is_empty() {
                break;
            }
            at = next;
            let known = store.known(mount, page.iter().map(|entry| entry.serial).collect()).await?;
            for (entry, known) in page.into_iter().zip(known) {
                self.hold(entry.serial, &known)?;
                checked.fresh += usize::from(known.revocation.is_none());
                checked.ends.extend(known.certificate.map(|(_, end)| (entry.serial, end)));
                if self.roots.contains(&entry.serial) {
                    checked.unlisted.push(entry.serial);
                }
                if let Some(id) = self.certified.get(&entry.serial) {
                    checked.revoked.push((id.clone(), entry));
                }
            }
        }
        self.has_room(checked.fresh).await?;
        Ok(checked)
    }

    /// Whether a serial number is free for the certificates of this authority.
    fn hold(&self, serial: Serial, known: &KnownSerial) -> Result<()> {
        let of_certificate = known.certificate.iter().map(|(issuer, _)| issuer);
        if of_certificate.chain(&known.revocation).all(|issuer| self.same.contains(issuer)) {
            return Ok(());
        }
        Err(used_by_another(serial))
    }

    /// Whether the next list may be as long as it would be: otherwise there would be none at all.
    async fn has_room(&self, fresh: usize) -> Result<()> {
        let Some(most) = self.authority.view().crl_config.value.max_crl_entries() else { return Ok(()) };
        let published = self.published().await.map_or(0, |list| list.entries);
        if published + fresh > most {
            return Err(Error::invalid(format!(
                "crl: with its entries the CRL would have {} of them and may have {most} (max_crl_entries of config/crl)",
                published + fresh
            )));
        }
        Ok(())
    }

    async fn published(&self) -> Option<Arc<Published>> {
        let issuer = self.issuers.first()?;
        self.authority.crls(issuer).await.ok().flatten().map(|lists| lists.complete)
    }

    /// Stores the entries, then the number, then has the next list made.
    async fn carry_out(self, checked: Checked) -> Result<ImportedList> {
        let Checked { ends, revoked, unlisted, .. } = checked;
        let (imported, full) = self.store(&ends).await?;
        self.authority.answers().revoked();
        let mut warnings = self.warnings();
        warnings.extend(full);
        for (id, entry) in &revoked {
            let serial = entry.serial;
            warnings.add(format!(
                "the issuer {id} (serial number {serial}) is on the list: it signs no certificate any more"
            ));
        }
        for serial in &unlisted {
            warnings.add(format!(
                "serial number {serial} is that of the issuer itself, which is on no list of its own: if it stands for \
                 another certificate, no list made here has that"
            ));
        }
        let (issuers, now) = (self.issuers.clone(), self.authority.tools().clock.now());
        // Entries that are new make the next list due, whatever the settings say of revocations.
        let published = self.published().await.filter(|_| imported > 0).map_or(0, |list| list.number);
        let number = self.list.number.unwrap_or(0).max(published);
        let plan = move |view: &View| {
            let mut next = view.clone();
            let mut writes = Vec::new();
            let stay: Vec<&String> = issuers.iter().filter(|id| view.signer(id).is_some()).collect();
            if stay.is_empty() {
                return Err(Error::invalid("crl: its issuer was deleted meanwhile"));
            }
            for id in stay {
                let mut record = record_of(&next, id)?;
                if record.crl_number < number {
                    record.crl_number = number;
                    writes.push(next.put_issuer(record)?);
                }
            }
            for (id, entry) in revoked.iter().filter(|(id, _)| view.signer(id).is_some()) {
                let mut record = record_of(&next, id)?;
                if record.revoked_at.is_none() {
                    record.usage.issuing = false;
                    record.revoked_at = Some(entry.revoked_at);
                    record.revoked_for = Grounds { reason: entry.reason, invalidity_date: entry.invalidity_date };
                    record.modified_at = now.unix_timestamp();
                    writes.push(next.put_issuer(record)?);
                }
            }
            Ok((Planned { view: next, writes, crls: false }, ()))
        };
        self.authority.change(plan).await?;
        warnings.extend(self.authority.build_crls(WantedCrls::DUE).await?);
        let number = self.list.number;
        let published = self.published().await.map(|list| list.number);
        let published = published.filter(|published| *published > number.unwrap_or(0));
        Ok(ImportedList { issuers: self.issuers, number, published, entries: self.entries, imported, warnings })
    }

    /// Stores the entries, in units, with the keys that they show to be compromised; how many were new, and a warning
    /// when the list of compromised keys is full.
    async fn store(&self, ends: &HashMap<Serial, i64>) -> Result<(usize, Option<String>)> {
        let (mut imported, mut full, mut at) = (0, None, 0);
        loop {
            let (page, next) = self.list.page(at, PAGE)?;
            if page.is_empty() {
                return Ok((imported, full));
            }
            at = next;
            let keys = self.compromised_keys(&page, ends).await?;
            let unit: Vec<PkiWrite> = page.iter().map(|entry| self.revocation(entry, ends)).collect::<Result<_>>()?;
            let commit = |listing: Vec<PkiWrite>| {
                let unit = listing.into_iter().chain(unit.iter().cloned()).collect();
                self.commit(unit).map(|outcomes| outcomes.map(Some)).boxed()
            };
            let committed = self.authority.tools().compromised.add_with(&keys, commit).await?;
            full = full.or_else(|| committed.warning());
            for outcome in committed.stored.unwrap_or_default() {
                let PkiOutcome::Revoked { stored, fresh } = outcome else { continue };
                // Another request revoked it since it was looked at.
                let known = KnownSerial { certificate: None, revocation: Some(stored.row.issuer) };
                self.hold(stored.row.serial, &known)?;
                imported += usize::from(fresh);
            }
        }
    }

    /// The keys of certificates that are here and were revoked elsewhere because their key is compromised.
    async fn compromised_keys(&self, page: &[ForeignEntry], ends: &HashMap<Serial, i64>) -> Result<Vec<NewKey>> {
        let compromised = page.iter().filter(|entry| is_compromise(entry.reason));
        let mut keys = Vec::new();
        for entry in compromised.filter(|entry| ends.contains_key(&entry.serial)) {
            let stored = self.authority.tools().store.certificate(self.authority.mount(), entry.serial).await?;
            keys.extend(stored.and_then(|stored| NewKey::of_revoked(entry.serial, &stored.row.der)));
        }
        Ok(keys)
    }

    fn revocation(&self, entry: &ForeignEntry, ends: &HashMap<Serial, i64>) -> Result<PkiWrite> {
        let ForeignEntry { serial, revoked_at, reason, invalidity_date } = *entry;
        let revoked_at = Time::from_unix_timestamp(revoked_at).map_err(Error::internal)?;
        Ok(PkiWrite::Revocation(RevocationRow {
            mount: self.authority.mount(),
            serial,
            issuer: self.issuers.first().cloned().unwrap_or_default(),
            revoked_at,
            not_after: ends.get(&serial).copied().unwrap_or(UNKNOWN_END),
            reason,
            invalidity_date,
        }))
    }

    /// Stores a unit; waits where the queue of writes is full, which others fill as well.
    async fn commit(&self, unit: Vec<PkiWrite>) -> Result<Vec<PkiOutcome>> {
        for _ in 1..TRIES {
            match self.authority.tools().store.commit(unit.clone()).await {
                Err(error) if error.kind() == Kind::Busy => tokio::time::sleep(PAUSE).await,
                done => return done,
            }
        }
        self.authority.tools().store.commit(unit).await
    }

    fn warnings(&self) -> Warnings {
        let mut warnings = Warnings::default();
        if self.list.number.is_none() {
            warnings.add(
                "the list has no CRL number (RFC 5280 5.2.3): the numbers of the lists that are made here go on from those of \
                 this mount, or begin with 1",
            );
        }
        if self.list.is_signed_over_sha1() {
            warnings.add(
                "the list is signed over SHA-1, which is not accepted for new lists: make sure that it came from its issuer",
            );
        }
        if self.list.is_partial {
            warnings.add(
                "the list says that it does not hold all certificates of its issuer (issuingDistributionPoint): import the \
                 others, too",
            );
        }
        if self.on_hold > 0 {
            let count = self.on_hold;
            warnings
                .add(format!("{count} entries are on hold (certificateHold): they stay, nothing releases them here"));
        }
        let now = self.authority.tools().clock.now().unix_timestamp();
        if self.list.next_update.is_some_and(|next| next < now) {
            warnings.add("the nextUpdate of the list is past: if there is a later one, import it, too");
        }
        warnings
    }
}

fn group(signer: &Signer) -> String {
    signer.issuer.authority_id()
}

fn record_of(view: &View, id: &str) -> Result<IssuerRecord> {
    view.signer(id)
        .map(|signer| signer.issuer.record.clone())
        .ok_or_else(|| Error::internal("an issuer that was there"))
}

/// The issuers whose list this is, those with their key here first: they have its issuer's name, and one key that made
/// its signature.
fn issuers_of(view: &View, list: &ForeignCrl) -> Result<Vec<String>> {
    let name = list.issuer().canonical();
    let mut named: Vec<_> = view.signers().filter(|s| *s.issuer.subject == name).collect();
    named.sort_by_key(|s| s.issuer.certificate.subject() != list.issuer());
    if named.is_empty() {
        return Err(Error::invalid("crl: no issuer of this mount has the name of its issuer; import that one first"));
    }
    let mut groups = HashSet::new();
    // The signature is as long to check as the list is: once for each key.
    let made = named.iter().find(|s| groups.insert(group(s)) && list.is_signed_by(s.issuer.certificate.key()));
    let made = made.ok_or_else(|| {
        Error::invalid("crl: its signature was not made by the key of an issuer of this mount with that name")
    })?;
    let mut issuers: Vec<_> = named.iter().filter(|s| group(s) == group(made)).collect();
    if !issuers.iter().any(|signer| may_sign_crls(&signer.issuer.certificate)) {
        return Err(Error::invalid("crl: its issuer may not sign CRLs: no cRLSign in its keyUsage (RFC 5280 4.2.1.3)"));
    }
    issuers.sort_by_key(|signer| signer.key.is_none());
    Ok(issuers.iter().map(|signer| signer.issuer.record.id.clone()).collect())
}

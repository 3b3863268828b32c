//! Imports CRLs that a CA published before it was moved to this mount (`issuers/import/crl`).
//!
//! Relying parties that know the old CRL must accept the next one: its number must be higher and every entry must
//! remain. The entries are stored first, in transactions of [`ENTRIES_PER_PAGE`] so that other writes proceed. The
//! number is stored last, in the issuer's record. Nothing is stored before the whole CRL was read and its serials
//! checked: a serial that another issuer of the mount used is rejected. After a storage failure the same CRL can be
//! imported again. One CRL is imported into a mount at a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::OwnedMutexGuard;

use crate::clock::Time;
use crate::error::{Error, Kind, Result, Warnings};
use crate::pki::actor::PlannedChange;
use crate::pki::compromised::NewCompromisedKey;
use crate::pki::crl::{CrlBuildRequest, PublishedCrl};
use crate::pki::engine::Authority;
use crate::pki::mount::issuer::{IssuerRecord, may_sign_crls};
use crate::pki::mount::signer::IssuerSigner;
use crate::pki::mount::view::MountView;
use crate::pki::store::{KnownSerial, PkiOutcome, PkiWrite, RevocationReason, RevocationRow, is_compromise};
use crate::rationing::{QueueCaller, cpu};
use crate::x509::foreign_crl::{CERTIFICATE_HOLD, ForeignCrl, ForeignCrlEntry};
use crate::x509::serial::Serial;
use crate::x509::time::MAX_EPOCH_SECONDS;

const ENTRIES_PER_PAGE: usize = 500;
/// Maximum number of attempts to store a page while the write queue is full.
const MAX_COMMIT_ATTEMPTS: usize = 20;
/// Pause between two attempts to store a page.
const COMMIT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Maximum number of seconds by which the clock of a CRL's issuer or of a caller may be ahead of this node's clock.
pub(super) const MAX_CLOCK_SKEW_SECONDS: i64 = 300;
/// notAfter that is assumed for revoked certificates that are not stored: 9999-12-31T23:59:59Z (RFC 5280 4.1.2.5).
/// Their entries thus stay on the CRLs.
const UNKNOWN_NOT_AFTER: i64 = MAX_EPOCH_SECONDS;

/// Result of a CRL import.
pub struct ImportedCrl {
    /// Ids of the CRL's issuers; all of them have the same subject and key.
    pub issuers: Vec<String>,
    /// Number of the imported CRL, if present.
    pub number: Option<u64>,
    /// Number of the CRL that this mount has published for these issuers after the import; `None` if that number is not
    /// above the number of the imported CRL.
    pub published: Option<u64>,
    /// Number of entries of the imported CRL.
    pub entries: usize,
    /// Number of entries whose serial numbers were not yet revoked in this mount.
    pub imported: usize,
    /// Warnings for the caller.
    pub warnings: Warnings,
}

/// Imports a CRL of an issuer of the mount.
///
/// # Errors
/// `Invalid` naming `crl` and the rule, with nothing stored; `Busy` while another CRL is imported; `Unavailable` from
/// storage, with earlier pages stored.
pub async fn import_crl(authority: &Arc<Authority>, list: ForeignCrl) -> Result<ImportedCrl> {
    let import_lock = lock_crl_import(authority)?;
    let authority = Arc::clone(authority);
    // Runs as a task of its own, so that a client disconnect does not leave a partial import.
    let work = async move {
        let _import_lock = import_lock;
        let view = authority.view();
        let import = CrlImport::of(authority, view, list).await?;
        let checked = import.check().await?;
        import.store_and_publish(checked).await
    };
    tokio::spawn(QueueCaller::current().scope(work)).await.map_err(Error::internal)?
}

/// CRLs that were submitted together with certificates to import: checked, but not stored yet.
pub struct AccompanyingCrls {
    authority: Arc<Authority>,
    lists: Vec<(CrlImport, CheckedCrlEntries)>,
    /// Serial numbers on the added CRLs, each with the id of an issuer of the CRL.
    serials: HashMap<Serial, String>,
    _import_lock: OwnedMutexGuard<()>,
}

impl AccompanyingCrls {
    /// Starts an import without CRLs. Other CRL imports into the mount fail until this value is dropped.
    ///
    /// # Errors
    /// `Busy` while another CRL is imported.
    pub fn begin(authority: &Arc<Authority>) -> Result<Self> {
        let import_lock = lock_crl_import(authority)?;
        Ok(Self {
            authority: Arc::clone(authority),
            lists: Vec::new(),
            serials: HashMap::new(),
            _import_lock: import_lock,
        })
    }

    /// Checks and adds a CRL. Its issuer is looked up in `view`, the state of the mount after the import.
    ///
    /// # Errors
    /// `Invalid` naming `crl` and the rule; those of the store. After an error the CRL is not added.
    pub async fn add(&mut self, view: &Arc<MountView>, list: ForeignCrl) -> Result<()> {
        let import = CrlImport::of(Arc::clone(&self.authority), Arc::clone(view), list).await?;
        let checked = import.check().await?;
        let issuer = import.issuers.first().cloned().unwrap_or_default();
        let list = Arc::clone(&import.list);
        let known = std::mem::take(&mut self.serials);
        let (known, added) = cpu::run(move || add_serials(known, &list, &issuer)).await?;
        self.serials = known;
        added?;
        self.lists.push((import, checked));
        Ok(())
    }

    /// Returns the ids of the issuers of all added CRLs.
    pub fn issuers(&self) -> HashSet<String> {
        self.lists.iter().flat_map(|(import, _)| import.issuers.iter().cloned()).collect()
    }

    /// Imports the added CRLs. Their issuers must be in the mount.
    ///
    /// # Errors
    /// Those of the store. Entries that are already stored remain, and the import can be repeated.
    pub async fn import(self) -> Result<Vec<ImportedCrl>> {
        let mut imported = Vec::with_capacity(self.lists.len());
        for (import, checked) in self.lists {
            imported.push(import.store_and_publish(checked).await?);
        }
        Ok(imported)
    }
}

/// Adds the serial numbers of a CRL to `known`, a map from serial number to issuer. Adds nothing if `known` maps one of
/// these serial numbers to another issuer.
fn add_serials(
    mut known: HashMap<Serial, String>,
    list: &ForeignCrl,
    issuer: &str,
) -> (HashMap<Serial, String>, Result<()>) {
    let mut serials = Vec::new();
    for page in list.pages(ENTRIES_PER_PAGE) {
        match page {
            Ok(page) => serials.extend(page.iter().map(|entry| entry.serial)),
            Err(error) => return (known, Err(error)),
        }
    }
    let is_of_another = |serial: &&Serial| known.get(*serial).is_some_and(|other| other != issuer);
    if let Some(serial) = serials.iter().find(is_of_another) {
        let refused = Err(serial_in_use_error(*serial));
        return (known, refused);
    }
    known.extend(serials.into_iter().map(|serial| (serial, issuer.to_owned())));
    (known, Ok(()))
}

fn lock_crl_import(authority: &Authority) -> Result<OwnedMutexGuard<()>> {
    let busy = |_| Error::new(Kind::Busy, "another CRL is being imported into this mount; retry later");
    Arc::clone(authority.crl_import_lock()).try_lock_owned().map_err(busy)
}

fn serial_in_use_error(serial: Serial) -> Error {
    Error::invalid(format!(
        "crl: serial number {serial} belongs to a certificate of another issuer of this mount; use a separate mount \
         for each CA with serial numbers from elsewhere"
    ))
}

struct CrlImport {
    authority: Arc<Authority>,
    list: Arc<ForeignCrl>,
    issuers: Vec<String>,
    /// Ids under which certificates and revocations of the CRL's issuers may be stored, including ids of deleted
    /// issuers.
    own_issuer_ids: HashSet<String>,
    /// Issuers of the mount whose certificates the CRL's issuers have signed: serial number of the certificate and
    /// issuer id.
    certified_issuers: HashMap<Serial, String>,
    entries: usize,
    held_entries: usize,
    /// Serial numbers of the self-signed certificates of `issuers`. The CRL of an issuer does not list the issuer's own
    /// self-signed certificate.
    roots: HashSet<Serial>,
}

#[derive(Default)]
struct CheckedCrlEntries {
    fresh: usize,
    /// notAfter (epoch seconds) of each revoked certificate that is stored.
    ends: HashMap<Serial, i64>,
    revoked: Vec<(String, ForeignCrlEntry)>,
    /// Serial numbers on the imported CRL that the CRLs of this mount will not contain.
    unlisted: Vec<Serial>,
}

impl CrlImport {
    async fn of(authority: Arc<Authority>, view: Arc<MountView>, list: ForeignCrl) -> Result<Self> {
        let now = authority.deps().clock.now().unix_timestamp();
        // Read the CRL in the CPU queue, because its signature covers the whole CRL and every entry is parsed.
        let read = move || {
            let issuers = find_issuers(&view, &list)?;
            if list.this_update > now + MAX_CLOCK_SKEW_SECONDS {
                return Err(Error::invalid("crl: thisUpdate is in the future"));
            }
            let mut entries = 0;
            let mut held_entries = 0;
            for page in list.pages(ENTRIES_PER_PAGE) {
                let page = page?;
                entries += page.len();
                held_entries += page.iter().filter(|entry| entry.reason == Some(CERTIFICATE_HOLD)).count();
            }
            Ok((view, list, issuers, entries, held_entries))
        };
        let (view, list, issuers, entries, held_entries) = cpu::run(read).await??;
        let group =
            issuers.first().and_then(|id| view.signer(id)).map(|signer| authority_id(signer)).unwrap_or_default();
        let former = view.issuers_config.value.former.iter().filter(|(_, of)| **of == group).map(|(id, _)| id.clone());
        let own_issuer_ids = issuers.iter().cloned().chain(former).collect();
        let is_certified = |signer: &&Arc<IssuerSigner>| {
            view.parents(&signer.issuer.record.id).iter().any(|parent| issuers.contains(parent))
        };
        let certified_issuers = view.signers().filter(is_certified);
        let certified_issuers =
            certified_issuers.map(|s| (s.issuer.certificate.serial(), s.issuer.record.id.clone())).collect();
        let is_root_of_list =
            |signer: &&Arc<IssuerSigner>| signer.issuer.self_signed && issuers.contains(&signer.issuer.record.id);
        let roots = view.signers().filter(is_root_of_list).map(|signer| signer.issuer.certificate.serial()).collect();
        Ok(Self {
            list: Arc::new(list),
            issuers,
            own_issuer_ids,
            certified_issuers,
            entries,
            held_entries,
            roots,
            authority,
        })
    }

    /// Checks every entry of the CRL against the stored certificates and revocations of the mount. Stores nothing.
    async fn check(&self) -> Result<CheckedCrlEntries> {
        let mut checked = CheckedCrlEntries::default();
        let store = &self.authority.deps().store;
        let mount = self.authority.mount();
        for page in self.list.pages(ENTRIES_PER_PAGE) {
            let page = page?;
            let known = store.known_serials(mount, page.iter().map(|entry| entry.serial).collect()).await?;
            for (entry, known) in page.into_iter().zip(known) {
                self.require_own_serial(entry.serial, &known)?;
                checked.fresh += usize::from(known.revocation.is_none());
                checked.ends.extend(known.certificate.map(|(_, end)| (entry.serial, end)));
                if self.roots.contains(&entry.serial) {
                    checked.unlisted.push(entry.serial);
                }
                if let Some(id) = self.certified_issuers.get(&entry.serial) {
                    checked.revoked.push((id.clone(), entry));
                }
            }
        }
        self.check_crl_length(checked.fresh).await?;
        Ok(checked)
    }

    /// Rejects a serial number that an issuer with another name or key has used in this mount.
    fn require_own_serial(&self, serial: Serial, known: &KnownSerial) -> Result<()> {
        let of_certificate = known.certificate.iter().map(|(issuer, _)| issuer);
        if of_certificate.chain(&known.revocation).all(|issuer| self.own_issuer_ids.contains(issuer)) {
            return Ok(());
        }
        Err(serial_in_use_error(serial))
    }

    /// Rejects the import if the next CRL would exceed `max_crl_entries` and could thus not be published at all.
    async fn check_crl_length(&self, fresh: usize) -> Result<()> {
        let Some(max) = self.authority.view().crl_config.value.max_crl_entries() else { return Ok(()) };
        let published = self.published().await.map_or(0, |list| list.entries);
        if published + fresh > max {
            return Err(Error::invalid(format!(
                "crl: the next CRL would have {} entries (limit {max}, max_crl_entries of config/crl)",
                published + fresh
            )));
        }
        Ok(())
    }

    async fn published(&self) -> Option<Arc<PublishedCrl>> {
        let issuer = self.issuers.first()?;
        self.authority.crls(issuer).await.ok().flatten().map(|lists| lists.complete)
    }

    /// Stores the entries and then the CRL number, and builds the next CRL of this mount.
    async fn store_and_publish(self, checked: CheckedCrlEntries) -> Result<ImportedCrl> {
        let CheckedCrlEntries { ends, revoked, unlisted, .. } = checked;
        let (imported, full) = self.store(&ends).await?;
        self.authority.ocsp_cache().record_revocation();
        let mut warnings = self.warnings();
        warnings.extend(full);
        for (id, entry) in &revoked {
            let serial = entry.serial;
            warnings.add(format!(
                "issuer {id} (serial number {serial}) is revoked by the CRL and can no longer sign certificates"
            ));
        }
        for serial in &unlisted {
            warnings.add(format!(
                "serial number {serial} is the issuer's own: CRLs made here will not contain it, even if another \
                 certificate has it"
            ));
        }
        let issuers = self.issuers.clone();
        let now = self.authority.deps().clock.now();
        // New entries require a new CRL under any settings, so its number must also exceed that of the published CRL.
        let published = self.published().await.filter(|_| imported > 0).map_or(0, |list| list.number);
        let number = self.list.number.unwrap_or(0).max(published);
        let plan = move |view: &MountView| {
            let mut next = view.clone();
            let mut writes = Vec::new();
            let stay: Vec<&String> = issuers.iter().filter(|id| view.signer(id).is_some()).collect();
            if stay.is_empty() {
                return Err(Error::invalid("crl: its issuer was deleted during the import"));
            }
            for id in stay {
                let mut record = find_record(&next, id)?;
                if record.crl_number < number {
                    record.crl_number = number;
                    writes.push(next.put_issuer(record)?);
                }
            }
            for (id, entry) in revoked.iter().filter(|(id, _)| view.signer(id).is_some()) {
                let mut record = find_record(&next, id)?;
                if record.revoked_at.is_none() {
                    record.usage.issuing = false;
                    record.revoked_at = Some(entry.revoked_at);
                    record.revoked_for =
                        RevocationReason { reason: entry.reason, invalidity_date: entry.invalidity_date };
                    record.modified_at = now.unix_timestamp();
                    writes.push(next.put_issuer(record)?);
                }
            }
            Ok((PlannedChange { view: next, writes, rebuild_crls: false }, ()))
        };
        self.authority.change(plan).await?;
        warnings.extend(self.authority.build_crls(CrlBuildRequest::DUE).await?);
        let number = self.list.number;
        let published = self.published().await.map(|list| list.number);
        let published = published.filter(|published| *published > number.unwrap_or(0));
        Ok(ImportedCrl { issuers: self.issuers, number, published, entries: self.entries, imported, warnings })
    }

    /// Stores the entries page by page. Each commit also stores the keys of the page's certificates that are
    /// compromised. Returns the number of new entries, and a warning if the list of compromised keys is full.
    async fn store(&self, ends: &HashMap<Serial, i64>) -> Result<(usize, Option<String>)> {
        let mut imported = 0;
        let mut full = None;
        for page in self.list.pages(ENTRIES_PER_PAGE) {
            let page = page?;
            let keys = self.compromised_keys(&page, ends).await?;
            let unit: Vec<PkiWrite> =
                page.iter().map(|entry| self.revocation_write(entry, ends)).collect::<Result<_>>()?;
            let commit = |listing: Vec<PkiWrite>| {
                let unit = listing.into_iter().chain(unit.iter().cloned()).collect();
                self.commit(unit).map(|outcomes| outcomes.map(Some)).boxed()
            };
            let committed = self.authority.deps().compromised.add_with(&keys, commit).await?;
            full = full.or_else(|| committed.warning());
            for outcome in committed.stored.unwrap_or_default() {
                let PkiOutcome::Revoked { stored, fresh } = outcome else { continue };
                // A concurrent request may have revoked the serial number since the check.
                let known = KnownSerial { certificate: None, revocation: Some(stored.row.issuer) };
                self.require_own_serial(stored.row.serial, &known)?;
                imported += usize::from(fresh);
            }
        }
        Ok((imported, full))
    }

    /// Returns the keys of stored certificates that the CRL revokes because of a key compromise.
    async fn compromised_keys(
        &self,
        page: &[ForeignCrlEntry],
        ends: &HashMap<Serial, i64>,
    ) -> Result<Vec<NewCompromisedKey>> {
        let compromised = page.iter().filter(|entry| is_compromise(entry.reason));
        let mut keys = Vec::new();
        for entry in compromised.filter(|entry| ends.contains_key(&entry.serial)) {
            let stored = self.authority.deps().store.certificate(self.authority.mount(), entry.serial).await?;
            keys.extend(stored.and_then(|stored| NewCompromisedKey::of_revoked(entry.serial, &stored.row.der)));
        }
        Ok(keys)
    }

    fn revocation_write(&self, entry: &ForeignCrlEntry, ends: &HashMap<Serial, i64>) -> Result<PkiWrite> {
        let ForeignCrlEntry { serial, revoked_at, reason, invalidity_date } = *entry;
        let revoked_at = Time::from_unix_timestamp(revoked_at).map_err(Error::internal)?;
        Ok(PkiWrite::Revocation(RevocationRow {
            mount: self.authority.mount(),
            serial,
            issuer: self.issuers.first().cloned().unwrap_or_default(),
            revoked_at,
            not_after: ends.get(&serial).copied().unwrap_or(UNKNOWN_NOT_AFTER),
            reason,
            invalidity_date,
        }))
    }

    async fn commit(&self, unit: Vec<PkiWrite>) -> Result<Vec<PkiOutcome>> {
        for _ in 1..MAX_COMMIT_ATTEMPTS {
            match self.authority.deps().store.commit(unit.clone()).await {
                Err(error) if error.kind() == Kind::Busy => tokio::time::sleep(COMMIT_RETRY_DELAY).await,
                done => return done,
            }
        }
        self.authority.deps().store.commit(unit).await
    }

    fn warnings(&self) -> Warnings {
        let mut warnings = Warnings::default();
        if self.list.number.is_none() {
            warnings.add(
                "the imported CRL has no CRL number (RFC 5280 5.2.3): the next CRL continues this mount's numbers, or \
                 starts at 1",
            );
        }
        if self.list.is_signed_over_sha1() {
            warnings.add(
                "the imported CRL is signed over SHA-1, which is not accepted for new CRLs: make sure that it came \
                 from its issuer",
            );
        }
        if self.list.is_partial {
            warnings.add(
                "the imported CRL does not cover all certificates of its issuer (issuingDistributionPoint): import \
                 its other CRLs too",
            );
        }
        if self.held_entries > 0 {
            let count = self.held_entries;
            warnings.add(format!("{count} entries have the reason certificateHold; holds cannot be released here"));
        }
        let now = self.authority.deps().clock.now().unix_timestamp();
        if self.list.next_update.is_some_and(|next| next < now) {
            warnings.add("nextUpdate of the imported CRL is in the past: if a later CRL exists, import it too");
        }
        warnings
    }
}

fn authority_id(signer: &IssuerSigner) -> String {
    signer.issuer.authority_id()
}

fn find_record(view: &MountView, id: &str) -> Result<IssuerRecord> {
    view.signer(id)
        .map(|signer| signer.issuer.record.clone())
        .ok_or_else(|| Error::internal("an issuer of the imported CRL is missing in the mount"))
}

/// Returns the ids of a CRL's issuers, found by name and signing key; those with a private key in this mount come
/// first.
fn find_issuers(view: &MountView, list: &ForeignCrl) -> Result<Vec<String>> {
    let name = list.issuer().canonical();
    let mut named: Vec<_> = view.signers().filter(|s| *s.issuer.subject == name).collect();
    named.sort_by_key(|s| s.issuer.certificate.subject() != list.issuer());
    if named.is_empty() {
        return Err(Error::invalid(
            "crl: no issuer of this mount has the name of the CRL's issuer; import its certificate first",
        ));
    }
    let mut groups = HashSet::new();
    // Verification takes time proportional to the CRL's length, so each key is tried once.
    let made = named.iter().find(|s| groups.insert(authority_id(s)) && list.is_signed_by(s.issuer.certificate.key()));
    let made = made.ok_or_else(|| {
        Error::invalid(
            "crl: its signature does not verify with any issuer of this mount that has the name of the CRL's issuer",
        )
    })?;
    let mut issuers: Vec<_> = named.iter().filter(|s| authority_id(s) == authority_id(made)).collect();
    if !issuers.iter().any(|signer| may_sign_crls(&signer.issuer.certificate)) {
        return Err(Error::invalid("crl: its issuer may not sign CRLs: no cRLSign in its keyUsage (RFC 5280 4.2.1.3)"));
    }
    issuers.sort_by_key(|signer| signer.key.is_none());
    Ok(issuers.iter().map(|signer| signer.issuer.record.id.clone()).collect())
}

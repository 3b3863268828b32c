//! Imports CA certificates and private keys in one change. New certificates become issuers, new private keys become
//! keys of the mount, and both are linked by public key.
//!
//! Issuer name and serial number identify a certificate (RFC 5280 4.1.2.2); an import of a second certificate with the
//! same identity is rejected. Imported certificates are not stored with the issued ones, so `cert/:serial` and
//! revocation apply only to certificates issued here.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;

pub use super::bundle::PrivateKeyAcceptance;
use super::bundle::{BundledCrl, CaBundle, parse_key};
use super::ca_profile;
use super::key::put::put_key;
use crate::error::{Error, Kind, Result, Warnings};
use crate::keys::local::PrivateKey;
use crate::keys::signing::{Signers, SigningKey};
use crate::pki::actor::PlannedChange;
use crate::pki::engine::Authority;
use crate::pki::mount::issuer::{
    Issuer, IssuerRecord, IssuerUsage, LeafNotAfterBehavior, MountKey, check_name, may_sign_crls,
};
use crate::pki::mount::profile::issuer_key_id;
use crate::pki::mount::signatures::IssuerSignatures;
use crate::pki::mount::signer::{IssuerSigner, default_revocation_algorithm};
use crate::pki::mount::urls::NO_URLS_WARNING;
use crate::pki::mount::view::MountView;
use crate::pki::revocation::crl_import::{AccompanyingCrls, ImportedCrl};
use crate::pki::store::PkiWrite;
use crate::rationing::{QueueCaller, cpu};
use crate::secret::Secret;
use crate::x509::algorithm::KeyKind;
use crate::x509::certificate::Certificate;
use crate::x509::foreign_crl::ForeignCrl;

/// Result of an import. Ids are in the order of the imported text.
#[derive(Default)]
pub struct ImportedBundle {
    /// Ids of the new issuers.
    pub imported_issuers: Vec<String>,
    /// Ids of the new keys.
    pub imported_keys: Vec<String>,
    /// Ids of existing issuers of the mount whose certificates are in the imported text.
    pub existing_issuers: Vec<String>,
    /// Ids of existing keys of the mount that are in the imported text.
    pub existing_keys: Vec<String>,
    /// Maps the id of each issuer in this result to the id of its key; the key id is empty if the mount lacks the key.
    pub mapping: BTreeMap<String, String>,
    /// Imported CRLs in text order.
    pub imported_crls: Vec<ImportedCrl>,
    /// Warnings for the caller.
    pub warnings: Warnings,
}

/// Options of an import.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BundleImportOptions {
    /// Controls whether private keys are accepted.
    pub private_keys: PrivateKeyAcceptance,
    /// Treatment of CRLs that cannot be imported.
    pub invalid_crls: InvalidCrlHandling,
}

/// Treatment of a bundle with a CRL that cannot be imported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum InvalidCrlHandling {
    /// Nothing is imported, because a CA that is imported without its CRL would have no revocations.
    RefuseAll,
    /// The CRL is skipped with a warning, and everything else is imported.
    Skip,
}

/// Result of a key import: the new key, or the existing key of the mount with the same public key.
pub struct ImportedKey {
    /// Id of the key.
    pub id: String,
    /// Name of the key, or empty.
    pub name: String,
    /// Type and size of the key.
    pub kind: KeyKind,
    /// Warnings for the caller.
    pub warnings: Warnings,
}

/// Imports the PEM text `text`, the value of the request field `field`, including its CRLs.
///
/// # Errors
/// `Invalid` naming field, block and rule; nothing is imported then. `Busy` while another CRL is imported. If storage
/// fails when the issuers are imported but some of their CRLs are not, the error says so, and the import can be
/// repeated.
pub async fn import_pem_bundle(
    authority: &Arc<Authority>,
    field: &'static str,
    text: Secret,
    options: BundleImportOptions,
) -> Result<ImportedBundle> {
    let bundle = cpu::run(move || CaBundle::parse(field, expose_pem(field, &text)?, options.private_keys)).await??;
    if bundle.crls.is_empty() {
        return import_bundle(authority, field, bundle, options).await;
    }
    let authority = Arc::clone(authority);
    // The import runs in its own task. If the caller disconnects, the task continues and imports the CRLs of the new
    // issuers too.
    let work = async move { import_bundle(&authority, field, bundle, options).await };
    tokio::spawn(QueueCaller::current().scope(work)).await.map_err(Error::internal)?
}

async fn import_bundle(
    authority: &Arc<Authority>,
    field: &'static str,
    mut bundle: CaBundle,
    options: BundleImportOptions,
) -> Result<ImportedBundle> {
    let compromised = &authority.deps().compromised;
    bundle.keys.iter().try_for_each(|key| compromised.refuse(field, key.public()))?;
    bundle.certificates.iter().try_for_each(|certificate| compromised.refuse(field, certificate.key()))?;
    let revoked = find_revocations(authority, field, &bundle.certificates).await?;
    let lists = std::mem::take(&mut bundle.crls);
    let incoming = PendingImport::new(field, bundle, revoked);
    let signers = Arc::clone(&authority.deps().signers);
    let now = authority.deps().clock.now().unix_timestamp();
    let published = published_authorities(authority).await?;
    let mut accompanying = if lists.is_empty() { None } else { Some(AccompanyingCrls::begin(authority)?) };
    // A mount runs one import at a time, because each import is checked against the result of the previous one.
    let import_lock = Arc::clone(authority.issuer_import_lock()).lock_owned().await;
    let view = authority.view();
    let dry_run_signers = Arc::clone(&signers);
    let rehearse = move || Ok::<_, Error>((incoming.dry_run(&view, &*dry_run_signers, now)?, import_lock));
    let ((incoming, after_import), import_lock) = cpu::run(rehearse).await??;
    let mut skipped = Warnings::default();
    if let Some(accompanying) = &mut accompanying {
        skipped = check_crls(accompanying, field, Arc::new(after_import), lists, options.invalid_crls).await?;
    }
    let issuers_with_crl = accompanying.as_ref().map(AccompanyingCrls::issuers).unwrap_or_default();
    let (mut imported, crls) = authority
        .change_with_crl_warnings(move |view| {
            let _until_the_change_ends = &import_lock;
            let mut import = BundleImport::new(view, &*signers, now);
            import.issuers_with_crl.clone_from(&issuers_with_crl);
            import.add_all(&incoming)?;
            // An endpoint that refuses private keys imports certificates of keys that this server generated. Such keys
            // have signed no CRLs elsewhere.
            let may_have_published_crls = options.private_keys == PrivateKeyAcceptance::Allowed;
            import.finish(view, may_have_published_crls.then_some(&published))
        })
        .await?;
    imported.warnings.extend(crls);
    imported.warnings.extend(skipped);
    if let Some(accompanying) = accompanying {
        imported.imported_crls = accompanying.import().await.map_err(|error| {
            let text = format!(
                "{field}: the issuers were imported, but some of their CRLs were not; repeat the import ({})",
                error.text()
            );
            Error::new(error.kind(), text)
        })?;
    }
    for list in &mut imported.imported_crls {
        imported.warnings.extend(std::mem::take(&mut list.warnings));
    }
    Ok(imported)
}

/// Checks the CRLs of a bundle against `after_import`, the state of the mount with the imported issuers; returns
/// warnings about skipped CRLs.
///
/// # Errors
/// `Invalid` for a CRL that cannot be imported, unless it is skipped; those of the store.
async fn check_crls(
    accompanying: &mut AccompanyingCrls,
    field: &'static str,
    after_import: Arc<MountView>,
    lists: Vec<BundledCrl>,
    refused: InvalidCrlHandling,
) -> Result<Warnings> {
    let mut skipped = Warnings::default();
    for BundledCrl { block, der } in lists {
        let added = match cpu::run(move || ForeignCrl::read(der)).await? {
            Ok(list) => accompanying.add(&after_import, list).await,
            Err(error) => Err(error),
        };
        match added {
            Err(error) if error.kind() == Kind::Invalid => {
                let rule = error.text().trim_start_matches("crl: ");
                let text = format!("{field}: block {block}: the CRL is rejected: {rule}");
                if refused == InvalidCrlHandling::RefuseAll {
                    let remedy = "nothing is imported; set without_refused_crls to import the rest";
                    return Err(Error::invalid(format!("{text} ({remedy})")));
                }
                skipped.add(format!("{text}; skipped, so its entries are not revoked in this mount"));
            }
            added => added?,
        }
    }
    Ok(skipped)
}

struct PendingImport {
    field: &'static str,
    keys: Vec<Arc<PrivateKey>>,
    certificates: Vec<IssuerCandidate>,
}

/// An imported certificate, which becomes an issuer unless the mount already has it.
struct IssuerCandidate {
    id: String,
    certificate: Certificate,
    /// Revocation time of the certificate, epoch seconds, if it was issued and revoked in this mount.
    revoked_at: Option<i64>,
    signatures: IssuerSignatures,
}

impl PendingImport {
    fn new(field: &'static str, bundle: CaBundle, revoked: Vec<Option<i64>>) -> Self {
        let candidate = |(certificate, revoked_at)| {
            let id = crate::random::uuid();
            let signatures = IssuerSignatures::default();
            IssuerCandidate { id, certificate, revoked_at, signatures }
        };
        let certificates = bundle.certificates.into_iter().zip(revoked).map(candidate).collect();
        Self { field, keys: bundle.keys, certificates }
    }

    /// Performs the import on a copy of the mount's state, without storing it. This rejects invalid bundles and
    /// determines which key made each signature. Returns the import with these results, and the state of the mount
    /// after the import. Checking many signatures takes seconds, so this runs before the change.
    fn dry_run(mut self, view: &MountView, signers: &dyn Signers, now: i64) -> Result<(Self, MountView)> {
        let mut import = BundleImport::new(view, signers, now);
        import.add_all(&self)?;
        for candidate in &mut self.certificates {
            candidate.signatures = import.next.signatures(&candidate.id);
        }
        import.next.end_batch();
        Ok((self, import.next))
    }
}

/// Returns the ids of the authorities (issuers with the same subject and key) whose CRLs this mount has published,
/// including those of deleted issuers.
async fn published_authorities(authority: &Authority) -> Result<HashSet<String>> {
    let rows = authority.deps().store.crls(authority.mount()).await?;
    Ok(rows.into_iter().map(|row| row.group).collect())
}

/// Implements `keys/import`: imports the single private key in `text`, the value of `field`, and links it to the
/// issuers with its public key. A new key gets the name `name` unless that is empty.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is imported then.
pub async fn import_key(authority: &Authority, field: &'static str, text: Secret, name: String) -> Result<ImportedKey> {
    check_name("key_name", &name)?;
    let parse = move || parse_key(field, expose_pem(field, &text)?).map(Arc::new);
    let key = cpu::run(parse).await??;
    authority.deps().compromised.refuse(field, key.public())?;
    let signers = Arc::clone(&authority.deps().signers);
    let now = authority.deps().clock.now().unix_timestamp();
    let published = published_authorities(authority).await?;
    let (mut imported, crls) = authority
        .change_with_crl_warnings(move |view| {
            let mut import = BundleImport::new(view, &*signers, now);
            let public = key.public().clone();
            import.add_key(Arc::clone(&key), &name)?;
            let known = !import.result.existing_keys.is_empty();
            let stored = import
                .next
                .key_by_public_key(&public)
                .ok_or_else(|| Error::internal("the imported key is missing in the planned state of the mount"))?;
            let id = stored.id.clone();
            let name = stored.name.clone();
            let kind = stored.public().kind();
            let (planned, imported) = import.finish(view, Some(&published))?;
            let mut warnings = imported.warnings;
            warnings.extend(known.then(|| "key already imported: its name is unchanged".to_owned()));
            Ok((planned, ImportedKey { id, name, kind, warnings }))
        })
        .await?;
    imported.warnings.extend(crls);
    Ok(imported)
}

fn expose_pem<'s>(field: &str, text: &'s Secret) -> Result<&'s str> {
    text.expose_text().ok_or_else(|| Error::invalid(format!("{field}: must be PEM")))
}

/// Returns one value for each certificate: its revocation time (epoch seconds) if this mount issued and revoked it,
/// else `None`.
///
/// # Errors
/// `Invalid` when this mount issued a different certificate with the same issuer name and serial number.
async fn find_revocations(
    authority: &Authority,
    field: &'static str,
    certificates: &[Certificate],
) -> Result<Vec<Option<i64>>> {
    let mut all = Vec::with_capacity(certificates.len());
    for certificate in certificates {
        let found = authority.deps().store.certificate(authority.mount(), certificate.serial()).await?;
        all.push(match found {
            Some(stored) if stored.row.der == certificate.der() => {
                stored.revocation.map(|r| r.row.revoked_at.unix_timestamp())
            }
            Some(stored) => {
                let other = Certificate::parse(&stored.row.der)?;
                refuse_same_identity(field, certificate, &other)?;
                None
            }
            None => None,
        });
    }
    Ok(all)
}

fn refuse_same_identity(field: &str, certificate: &Certificate, other: &Certificate) -> Result<()> {
    if certificate.serial() == other.serial() && certificate.issuer().matches(other.issuer()) {
        return Err(Error::invalid(format!(
            "{field}: serial number {} collides with another certificate of this mount and of the same issuer",
            certificate.serial()
        )));
    }
    Ok(())
}

struct BundleImport<'a> {
    next: MountView,
    signers: &'a dyn Signers,
    now: i64,
    writes: Vec<PkiWrite>,
    result: ImportedBundle,
    /// Ids of existing issuers that this import links to their key.
    linked: Vec<String>,
    /// Ids of the issuers whose CRL is imported after this change. If there are any, the import of the CRLs rebuilds
    /// the mount's CRLs, and this change does not.
    issuers_with_crl: HashSet<String>,
}

impl<'a> BundleImport<'a> {
    fn new(view: &MountView, signers: &'a dyn Signers, now: i64) -> Self {
        let mut next = view.clone();
        next.begin_batch();
        Self {
            next,
            signers,
            now,
            writes: Vec::new(),
            result: ImportedBundle::default(),
            linked: Vec::new(),
            issuers_with_crl: HashSet::new(),
        }
    }

    fn add_all(&mut self, incoming: &PendingImport) -> Result<()> {
        for key in &incoming.keys {
            self.add_key(Arc::clone(key), "")?;
        }
        incoming.certificates.iter().try_for_each(|candidate| self.add_certificate(candidate, incoming))
    }

    fn add_key(&mut self, private: Arc<PrivateKey>, name: &str) -> Result<()> {
        let id = crate::random::uuid();
        let signing = SigningKey::Local(private);
        let key = MountKey { id, name: name.to_owned(), version: 0, signing };
        let put = put_key(&mut self.next, key, self.signers, self.now)?;
        let keys = if put.known { &mut self.result.existing_keys } else { &mut self.result.imported_keys };
        keys.push(put.key.id.clone());
        self.writes.extend(put.writes);
        self.linked.extend(put.linked);
        Ok(())
    }

    fn add_certificate(&mut self, candidate: &IssuerCandidate, incoming: &PendingImport) -> Result<()> {
        let IssuerCandidate { id, certificate, revoked_at, signatures } = candidate;
        let field = incoming.field;
        if let Some(known) = self.next.issuer_with_der(certificate.der()) {
            self.result.existing_issuers.push(known.record.id.clone());
            return Ok(());
        }
        for issuer in self.next.issuers() {
            refuse_same_identity(field, certificate, &issuer.certificate)?;
        }
        self.check_imported_profile(candidate, incoming)?;
        let key = self.next.key_by_public_key(certificate.key());
        let key_id = key.map(|key| key.id.clone()).unwrap_or_default();
        let algorithm = key.map(|key| default_revocation_algorithm(&key.signing, self.signers));
        let crl = may_sign_crls(certificate);
        if !crl {
            let serial = certificate.serial();
            self.result
                .warnings
                .add(format!("the issuer with serial number {serial} may not sign CRLs: no cRLSign in its keyUsage"));
        }
        if revoked_at.is_some() {
            let serial = certificate.serial();
            self.result.warnings.add(format!("the issuer with serial number {serial} remains revoked in this mount"));
        }
        let record = IssuerRecord {
            id: id.clone(),
            name: String::new(),
            key_id,
            certificate: base64::engine::general_purpose::STANDARD.encode(certificate.der()),
            manual_chain: Vec::new(),
            leaf_not_after_behavior: LeafNotAfterBehavior::Err,
            usage: IssuerUsage { issuing: revoked_at.is_none(), crl, ocsp: true },
            revocation_signature_algorithm: algorithm.unwrap_or_default(),
            urls: Default::default(),
            revoked_at: *revoked_at,
            revoked_for: Default::default(),
            crl_number: 0,
            modified_at: self.now,
            signatures: signatures.clone(),
            authority: None,
        };
        self.result.imported_issuers.push(record.id.clone());
        self.next.check_issuer_limits(certificate).map_err(|e| Error::invalid(format!("{field}: {}", e.text())))?;
        self.writes.push(self.next.put_issuer(record)?);
        Ok(())
    }

    /// Checks that relying parties can read an imported CA certificate. A violation is an error if the mount has the
    /// private key, because the issuer could sign certificates. Without the key the issuer only completes chains, so it
    /// is accepted with a warning.
    fn check_imported_profile(&mut self, candidate: &IssuerCandidate, incoming: &PendingImport) -> Result<()> {
        let IssuerCandidate { certificate, signatures, .. } = candidate;
        let here = self.next.issuers().map(|issuer| (&issuer.record.id, &issuer.certificate));
        let other_candidates =
            incoming.certificates.iter().filter(|other| self.next.issuer_with_der(other.certificate.der()).is_none());
        let others = here.chain(other_candidates.map(|other| (&other.id, &other.certificate)));
        let others = others.filter(|(id, _)| signatures.signed_by.get(*id) != Some(&false)).map(|(_, other)| other);
        let problems = match ca_profile::check_ca_profile(certificate, others) {
            Err(error) if self.next.key_by_public_key(certificate.key()).is_some() => {
                return Err(error.within(incoming.field));
            }
            Err(error) => vec![format!("{}; certificates below it may not verify", error.text())],
            Ok(unusual) => unusual,
        };
        let serial = certificate.serial();
        self.result
            .warnings
            .extend(problems.into_iter().map(|text| format!("the issuer with serial number {serial}: {text}")));
        Ok(())
    }

    /// Chooses the default issuer; returns the planned change and the result with warnings. `published` has the ids of
    /// the authorities whose CRLs this mount has published; it is `None` if the imported keys cannot have signed CRLs
    /// elsewhere.
    fn finish(
        mut self,
        before: &MountView,
        published: Option<&HashSet<String>>,
    ) -> Result<(PlannedChange, ImportedBundle)> {
        self.next.end_batch();
        ca_profile::check_linked_issuers(&self.next, &self.linked).map_err(|e| e.within("pem_bundle"))?;
        self.choose_default_issuer();
        self.warn_of_missing_key_and_urls(before);
        if let Some(published) = published {
            self.warn_of_crl_numbers(before, published);
        }
        self.warn_of_shared_crls();
        self.warn_of_unverifiable_chains(before);
        let issuers = self.result.imported_issuers.iter().chain(&self.result.existing_issuers);
        let key_of = |id: &String| Some((id.clone(), self.next.signer(id)?.issuer.record.key_id.clone()));
        self.result.mapping = issuers.filter_map(key_of).collect();
        let changes = !self.result.imported_issuers.is_empty() || !self.linked.is_empty();
        // If CRLs are imported next, their import rebuilds the mount's CRLs, with the imported entries and numbers.
        let rebuild_crls = changes && self.issuers_with_crl.is_empty();
        Ok((PlannedChange { view: self.next, writes: self.writes, rebuild_crls }, self.result))
    }

    /// If the mount has no default issuer, chooses the first new issuer with a key, or else the first newly linked
    /// issuer. If `default_follows_latest_issuer` is set and the import adds exactly one new issuer with a key, that
    /// issuer becomes the default.
    fn choose_default_issuer(&mut self) {
        let has_key = |id: &&String| self.next.signer(id).is_some_and(|s| s.key.is_some());
        let new: Vec<&String> = self.result.imported_issuers.iter().filter(has_key).collect();
        let mut config = self.next.issuers_config.value.clone();
        let chosen = match (new.as_slice(), config.default.is_empty(), config.default_follows_latest_issuer) {
            (_, true, _) => new.first().copied().or_else(|| self.linked.first()),
            ([only], false, true) => Some(*only),
            ([_, _, ..], false, true) => {
                self.result.warnings.add("several issuers imported: the default issuer is unchanged".to_owned());
                None
            }
            _ => None,
        };
        let Some(chosen) = chosen.cloned() else { return };
        config.default = chosen;
        self.writes.push(self.next.set_issuers_config(config));
    }

    /// Warns that the CRL numbers of a newly imported CA start at 1, although the CA may have published CRLs elsewhere.
    fn warn_of_crl_numbers(&mut self, before: &MountView, published: &HashSet<String>) {
        let here = before.signers().filter(|signer| signer.key.is_some());
        let here = here.map(|signer| signer.issuer.authority_id());
        let mut named: HashSet<String> = here.chain(published.iter().cloned()).collect();
        for id in self.result.imported_issuers.iter().chain(&self.linked) {
            let Some(signer) = self.next.signer(id).filter(|s| s.key.is_some() && s.issuer.record.usage.crl) else {
                continue;
            };
            let has_list = self.issuers_with_crl.contains(id);
            if signer.issuer.record.crl_number == 0 && !has_list && named.insert(signer.issuer.authority_id()) {
                self.result.warnings.add(format!(
                    "the CRLs of issuer {id} start at number 1 without entries: if it published CRLs elsewhere, import \
                     the last one (issuers/import/crl) before clients fetch CRLs from here"
                ));
            }
        }
    }

    /// Warns about each new issuer that shares a CRL with an issuer with a different key identifier, because a CRL
    /// contains only one key identifier.
    fn warn_of_shared_crls(&mut self) {
        for id in &self.result.imported_issuers {
            let Some(IssuerSigner { issuer: new, .. }) = self.next.signer(id).map(|signer| &**signer) else { continue };
            let is_twin =
                |other: &&Arc<Issuer>| other.is_same_authority(new) && issuer_key_id(other) != issuer_key_id(new);
            if let Some(twin) = self.next.issuers().find(is_twin) {
                self.result.warnings.add(format!(
                    "issuers {id} and {} have the same subject and key but different subjectKeyIdentifiers: they share \
                     one CRL, which has the identifier of the issuer that signs it, and verifiers may reject it for \
                     certificates of the other",
                    twin.record.id
                ));
            }
        }
    }

    /// Warns about each issuer that has no verifiable chain, if the issuer is new or had such a chain before the
    /// import.
    fn warn_of_unverifiable_chains(&mut self, before: &MountView) {
        let could_issue = |id: &str| before.signer(id).is_none_or(|signer| signer.paths.rejection_reason().is_none());
        for signer in self.next.signers() {
            let id = &signer.issuer.record.id;
            if let Some(refusal) = signer.paths.rejection_reason().filter(|_| could_issue(id)) {
                let refusal = refusal.trim_start_matches("issuer_ref: ");
                self.result.warnings.add(format!("issuer {id} cannot issue certificates: {refusal}"));
            }
        }
    }

    fn warn_of_missing_key_and_urls(&mut self, before: &MountView) {
        if self.result.imported_issuers.is_empty() {
            return;
        }
        if self.next.signer("default").is_some_and(|s| s.key.is_none()) {
            self.result.warnings.add("the default issuer has no private key in this mount".to_owned());
        }
        if before.urls.value.is_empty() {
            self.result.warnings.add(NO_URLS_WARNING.to_owned());
        }
    }
}

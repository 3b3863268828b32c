//! Importing CA certificates and keys: what is new becomes issuers and keys, what belongs together is
//! linked by its public key in both directions, and all of it is one change.
//!
//! A certificate's identity is its issuer's name and serial number (RFC 5280 4.1.2.2): an import that
//! would give one identity to two certificates is refused. The certificate itself is not stored beside
//! the issued ones, so `cert/:serial` and the revocations are of certificates that were issued here.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;

pub use super::bundle::PrivateKeys;
use super::bundle::{Bundle, parse_key};
use super::key::put::put_key;
use super::readable;
use crate::error::{Error, Result, Warnings};
use crate::keys::local::PrivateKey;
use crate::keys::signing::{Signers, SigningKey};
use crate::pki::actor::Planned;
use crate::pki::engine::Authority;
use crate::pki::mount::issuer::{IssuerRecord, Key, LeafNotAfter, Usage, authority_id, check_name, may_sign_crls};
use crate::pki::mount::signer::unchosen_revocation_algorithm;
use crate::pki::mount::urls::NO_URLS;
use crate::pki::mount::view::View;
use crate::pki::store::PkiWrite;
use crate::secret::Secret;
use crate::x509::algorithm::KeyKind;
use crate::x509::certificate::Certificate;

/// An import that was done: ids, in the order of the text.
pub struct Imported {
    /// Issuers that are new.
    pub imported_issuers: Vec<String>,
    /// Keys that are new.
    pub imported_keys: Vec<String>,
    /// Issuers that were there before.
    pub existing_issuers: Vec<String>,
    /// Keys that were there before.
    pub existing_keys: Vec<String>,
    /// The keys of all these issuers, by the issuer; empty for one whose key is not here.
    pub mapping: BTreeMap<String, String>,
    /// Warnings for the caller.
    pub warnings: Warnings,
}

/// A key that is here, imported now or before.
pub struct ImportedKey {
    /// Its id.
    pub id: String,
    /// Its name, or empty.
    pub name: String,
    /// Its kind.
    pub kind: KeyKind,
    /// Warnings for the caller.
    pub warnings: Warnings,
}

/// Imports the PEM bundle that was `given` in `field`.
///
/// # Errors
/// `Invalid` naming field, block and rule; nothing is imported then.
pub async fn bundle(
    authority: &Authority,
    field: &'static str,
    text: Secret,
    private_keys: PrivateKeys,
) -> Result<Imported> {
    let bundle = off_worker(move || Bundle::parse(field, exposed(field, &text)?, private_keys)).await?;
    let stored = stored_before(authority, field, &bundle.certificates).await?;
    let (signers, now) = (Arc::clone(&authority.tools().signers), authority.tools().clock.now().unix_timestamp());
    let (mut imported, crls) = authority
        .change_and_crls(move |view| {
            let mut import = Import::new(view, &*signers, now);
            for key in &bundle.keys {
                import.key(Arc::clone(key), "")?;
            }
            for (certificate, revoked_at) in bundle.certificates.iter().zip(&stored) {
                import.certificate(field, certificate, &bundle.certificates, *revoked_at)?;
            }
            // A key that was made here has signed nothing elsewhere.
            import.foreign_keys = private_keys == PrivateKeys::Allowed;
            import.finish(view)
        })
        .await?;
    imported.warnings.extend(crls);
    Ok(imported)
}

/// `keys/import`: one private key, the text that was given in `pem_bundle`, called `name` when it is new and that
/// is not empty; linked to the issuers that have its public half.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is imported then.
pub async fn key(authority: &Authority, text: Secret, name: String) -> Result<ImportedKey> {
    check_name("key_name", &name)?;
    let parse = move || parse_key("pem_bundle", exposed("pem_bundle", &text)?).map(Arc::new);
    let key = off_worker(parse).await?;
    let (signers, now) = (Arc::clone(&authority.tools().signers), authority.tools().clock.now().unix_timestamp());
    let (mut imported, crls) = authority
        .change_and_crls(move |view| {
            let mut import = Import::new(view, &*signers, now);
            let public = key.public().clone();
            import.foreign_keys = true;
            import.key(Arc::clone(&key), &name)?;
            let known = !import.existing_keys.is_empty();
            let stored = import.next.key_of(&public).ok_or_else(|| Error::internal("an imported key is there"))?;
            let (id, name, kind) = (stored.id.clone(), stored.name.clone(), stored.public().kind());
            let (planned, imported) = import.finish(view)?;
            let mut warnings = imported.warnings;
            warnings.extend(known.then(|| "key already imported: its name is unchanged".to_owned()));
            Ok((planned, ImportedKey { id, name, kind, warnings }))
        })
        .await?;
    imported.warnings.extend(crls);
    Ok(imported)
}

fn exposed<'s>(field: &str, text: &'s Secret) -> Result<&'s str> {
    text.expose_text().ok_or_else(|| Error::invalid(format!("{field}: must be PEM")))
}

/// Checking many large keys takes a while: not on a worker.
async fn off_worker<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}

/// For every certificate, when it was revoked, should it be one that was issued here and revoked.
///
/// # Errors
/// `Invalid` when a certificate issued here has the issuer name and serial number of another one.
async fn stored_before(
    authority: &Authority,
    field: &'static str,
    certificates: &[Certificate],
) -> Result<Vec<Option<i64>>> {
    let mut all = Vec::with_capacity(certificates.len());
    for certificate in certificates {
        let found = authority.tools().store.certificate(authority.mount(), certificate.serial()).await?;
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
    if certificate.issuer() == other.issuer() && certificate.serial() == other.serial() {
        return Err(Error::invalid(format!(
            "{field}: serial number {} collides with another certificate of this mount and of the same issuer",
            certificate.serial()
        )));
    }
    Ok(())
}

/// An import in the making.
struct Import<'a> {
    next: View,
    signers: &'a dyn Signers,
    now: i64,
    writes: Vec<PkiWrite>,
    imported_issuers: Vec<String>,
    existing_issuers: Vec<String>,
    imported_keys: Vec<String>,
    existing_keys: Vec<String>,
    /// Issuers that were there before and have their key from now on.
    linked: Vec<String>,
    /// Whether the keys may have been used elsewhere.
    foreign_keys: bool,
    warnings: Warnings,
}

impl<'a> Import<'a> {
    fn new(view: &View, signers: &'a dyn Signers, now: i64) -> Self {
        let mut next = view.clone();
        next.defer();
        Self {
            next,
            signers,
            now,
            writes: Vec::new(),
            imported_issuers: Vec::new(),
            existing_issuers: Vec::new(),
            imported_keys: Vec::new(),
            existing_keys: Vec::new(),
            linked: Vec::new(),
            foreign_keys: false,
            warnings: Warnings::default(),
        }
    }

    /// Adds a key, and links the issuers that have waited for it.
    fn key(&mut self, private: Arc<PrivateKey>, name: &str) -> Result<()> {
        let (id, signing) = (crate::random::uuid(), SigningKey::Local(private));
        let key = Key { id, name: name.to_owned(), version: 0, signing };
        let put = put_key(&mut self.next, key, self.signers, self.now)?;
        let keys = if put.known { &mut self.existing_keys } else { &mut self.imported_keys };
        keys.push(put.key.id.clone());
        self.writes.extend(put.writes);
        self.linked.extend(put.linked);
        Ok(())
    }

    /// Adds an issuer, linked to its key where the mount has it. `bundle` is what it came with.
    fn certificate(
        &mut self,
        field: &str,
        certificate: &Certificate,
        bundle: &[Certificate],
        revoked_at: Option<i64>,
    ) -> Result<()> {
        if let Some(known) = self.next.issuer_with_der(certificate.der()) {
            self.existing_issuers.push(known.record.id.clone());
            return Ok(());
        }
        for issuer in self.next.issuers() {
            refuse_same_identity(field, certificate, &issuer.certificate)?;
        }
        self.check_readable(field, certificate, bundle)?;
        let key = self.next.key_of(certificate.key());
        let key_id = key.map(|key| key.id.clone()).unwrap_or_default();
        let algorithm = key.map(|key| unchosen_revocation_algorithm(&key.signing, self.signers));
        let crl = may_sign_crls(certificate);
        if !crl {
            let serial = certificate.serial();
            self.warnings
                .add(format!("the issuer with serial number {serial} may not sign CRLs: no cRLSign in its keyUsage"));
        }
        if revoked_at.is_some() {
            let serial = certificate.serial();
            self.warnings.add(format!("the issuer with serial number {serial} was revoked in this mount and stays so"));
        }
        let record = IssuerRecord {
            id: crate::random::uuid(),
            name: String::new(),
            key_id,
            certificate: base64::engine::general_purpose::STANDARD.encode(certificate.der()),
            manual_chain: Vec::new(),
            leaf_not_after_behavior: LeafNotAfter::Err,
            usage: Usage { issuing: revoked_at.is_none(), crl, ocsp: true },
            revocation_signature_algorithm: algorithm.unwrap_or_default(),
            urls: Default::default(),
            revoked_at,
            revoked_for: Default::default(),
            crl_number: 0,
            modified_at: self.now,
        };
        self.imported_issuers.push(record.id.clone());
        self.next.check_room(certificate).map_err(|e| Error::invalid(format!("{field}: {}", e.text())))?;
        self.writes.push(self.next.put_issuer(record)?);
        Ok(())
    }

    /// Refuses a certificate that others cannot read where its key is here and could sign below it; without, it may be
    /// of use to a chain, and the caller is told.
    fn check_readable(&mut self, field: &str, certificate: &Certificate, bundle: &[Certificate]) -> Result<()> {
        let here = self.next.issuers().map(|issuer| &issuer.certificate);
        let told = match readable::check(certificate, here.chain(bundle)) {
            Err(error) if self.next.key_of(certificate.key()).is_some() => return Err(error.within(field)),
            Err(error) => vec![format!("{}; what is signed below it may not verify", error.text())],
            Ok(unusual) => unusual,
        };
        let serial = certificate.serial();
        self.warnings.extend(told.into_iter().map(|text| format!("the issuer with serial number {serial}: {text}")));
        Ok(())
    }

    /// Settles the default issuer, and says what was done.
    fn finish(mut self, before: &View) -> Result<(Planned, Imported)> {
        self.next.settle();
        readable::check_linked(&self.next, &self.linked).map_err(|e| e.within("pem_bundle"))?;
        self.choose_default();
        self.warn(before);
        if self.foreign_keys {
            self.warn_of_numbers(before);
        }
        let issuers = self.imported_issuers.iter().chain(&self.existing_issuers);
        let mapping =
            issuers.filter_map(|id| Some((id.clone(), self.next.signer(id)?.issuer.record.key_id.clone()))).collect();
        let crls = !self.imported_issuers.is_empty() || !self.linked.is_empty();
        let imported = Imported {
            imported_issuers: self.imported_issuers,
            imported_keys: self.imported_keys,
            existing_issuers: self.existing_issuers,
            existing_keys: self.existing_keys,
            mapping,
            warnings: self.warnings,
        };
        Ok((Planned { view: self.next, writes: self.writes, crls }, imported))
    }

    /// Without a default, the first new issuer with a key becomes it, else the first that has got its
    /// key by this import. A mount that follows the latest issuer does so when there is only one.
    fn choose_default(&mut self) {
        let has_key = |id: &&String| self.next.signer(id).is_some_and(|s| s.key.is_some());
        let new: Vec<&String> = self.imported_issuers.iter().filter(has_key).collect();
        let mut config = self.next.issuers_config.value.clone();
        let chosen = match (new.as_slice(), config.default.is_empty(), config.default_follows_latest_issuer) {
            (_, true, _) => new.first().copied().or_else(|| self.linked.first()),
            ([only], false, true) => Some(*only),
            ([_, _, ..], false, true) => {
                self.warnings.add("several issuers imported: the default issuer is unchanged".to_owned());
                None
            }
            _ => None,
        };
        let Some(chosen) = chosen.cloned() else { return };
        config.default = chosen;
        self.writes.push(self.next.set_issuers_config(config));
    }

    /// Says of authorities that are new here, and may have published CRLs elsewhere, that their numbers begin anew.
    fn warn_of_numbers(&mut self, before: &View) {
        let here = before.signers().filter(|signer| signer.key.is_some());
        let mut told: HashSet<String> = here.map(|signer| authority_id(&signer.issuer.certificate)).collect();
        for id in self.imported_issuers.iter().chain(&self.linked) {
            let Some(signer) = self.next.signer(id).filter(|s| s.key.is_some() && s.issuer.record.usage.crl) else {
                continue;
            };
            if signer.issuer.record.crl_number == 0 && told.insert(authority_id(&signer.issuer.certificate)) {
                self.warnings.add(format!(
                    "the CRLs of issuer {id} begin with number 1 and without entries: if it published CRLs elsewhere, \
                     import the last one (issuers/import/crl) before anybody fetches one from here"
                ));
            }
        }
    }

    fn warn(&mut self, before: &View) {
        if self.imported_issuers.is_empty() {
            return;
        }
        if self.next.signer("default").is_some_and(|s| s.key.is_none()) {
            self.warnings.add("the default issuer has no private key in this mount".to_owned());
        }
        if before.urls.value.is_empty() {
            self.warnings.add(NO_URLS.to_owned());
        }
    }
}

//! Verifies a store that no server uses, for example a backup or a restored database.
//!
//! [`crate::storage::verify`] checks the rows; this module checks what the documents in them mean: each issuer has its
//! key, each stored certificate was signed by its issuer, and the published CRLs can be reproduced byte for byte from
//! the stored revocations. Nothing is written, and the devices and services of managed keys are not called.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::auth::Auth;
use crate::auth::mounts::{Mount, MountKind};
use crate::clock::Clock;
use crate::documents::SYSTEM_MOUNT;
use crate::error::{Error, Kind, Result};
use crate::keys::signing::NoSigners;
use crate::pki::crl::{CrlBuilder, UnreproducibleCrl};
use crate::pki::mount::issuer::Issuer;
use crate::pki::mount::profile::issuer_key_id;
use crate::pki::mount::view::MountView;
use crate::pki::store::PkiStore;
use crate::storage::seal::SealKey;
use crate::storage::verify::{self, CertificateRecord, Findings, MountIssuers, VerifyTarget};
use crate::storage::{ProgressCounters, Storage};
use crate::x509::certificate::Certificate;

const CERTIFICATES_PER_PAGE: usize = 500;

/// Verifies a store. Returns the defects that were found.
///
/// # Errors
/// `Unavailable` when the store cannot be reached or read, so that nothing is known about its contents.
pub async fn verify(
    subject: VerifyTarget,
    seal_key: SealKey,
    clock: Clock,
    progress: &ProgressCounters,
) -> Result<Findings> {
    let mut findings = Findings::default();
    if !verify::check_file(&subject, &mut findings).await? {
        return Ok(findings);
    }
    let storage = match verify::open(subject.clone(), seal_key, clock.clone()).await {
        Err(error) if error.kind() == Kind::Invalid => {
            findings.add(error.to_string());
            return Ok(findings);
        }
        opened => opened?,
    };
    let checked = async {
        match verify::check_upgrade_permission(&subject).await {
            Err(error) if error.kind() == Kind::Invalid => findings.add(error.to_string()),
            held => held?,
        }
        verify_contents(&storage, clock, &mut findings, progress).await
    };
    let checked = checked.await;
    storage.shutdown().await.and(checked)?;
    Ok(findings)
}

async fn verify_contents(
    storage: &Storage,
    clock: Clock,
    findings: &mut Findings,
    progress: &ProgressCounters,
) -> Result<()> {
    let stored = verify::check_rows(storage, findings).await?;
    verify_domains(storage, &stored, clock, findings, progress).await
}

/// Verifies the documents of the authentication domain and of all PKI mounts.
async fn verify_domains(
    storage: &Storage,
    stored: &[MountIssuers],
    clock: Clock,
    findings: &mut Findings,
    progress: &ProgressCounters,
) -> Result<()> {
    let auth = match Auth::open(storage.auth(), clock.clone()).await {
        Ok(auth) => auth,
        Err(error) => {
            let error = attribute_to_contents(storage, error).await?;
            findings.add(format!("authentication: the mounts and policies cannot be loaded ({error})"));
            return Ok(());
        }
    };
    let mounts = auth.mounts();
    for (id, _) in stored {
        if *id != SYSTEM_MOUNT && mounts.by_id(*id).is_none() {
            findings.add(format!("mount id {}: has data but no mount document", id.0));
        }
    }
    for mount in mounts.iter().filter(|mount| mount.kind == MountKind::Pki) {
        let Some((_, issuers)) = stored.iter().find(|(id, _)| *id == mount.id) else {
            findings.add(format!("mount {}: has a mount document but no data", mount.path));
            continue;
        };
        let mut authority = AuthorityVerifier { mount, storage, findings, progress };
        if let Err(error) = authority.verify(issuers, clock.clone()).await {
            let error = attribute_to_contents(storage, error).await?;
            findings.add(format!("mount {}: cannot be opened ({error})", mount.path));
        }
    }
    Ok(())
}

/// Returns `error` as a value if the contents of the store have caused it, so that it can be reported as a finding.
///
/// # Errors
/// `error` when the store cannot be read any more, so that its contents are not the cause.
async fn attribute_to_contents(storage: &Storage, error: Error) -> Result<Error> {
    let is_lost = error.kind() == Kind::Unavailable && verify::check_readable(storage).await.is_err();
    if is_lost { Err(error) } else { Ok(error) }
}

struct AuthorityVerifier<'a> {
    mount: &'a Mount,
    storage: &'a Storage,
    findings: &'a mut Findings,
    progress: &'a ProgressCounters,
}

impl AuthorityVerifier<'_> {
    fn add(&mut self, text: &str) {
        self.findings.add(format!("mount {}: {text}", self.mount.path));
    }

    /// Checks the documents, certificates and CRLs of the mount. `referenced_issuers` are the ids of the issuers in the
    /// rows of its certificates.
    async fn verify(&mut self, referenced_issuers: &BTreeSet<String>, clock: Clock) -> Result<()> {
        let mount = self.mount.id;
        let store = self.storage.pki();
        let view = MountView::load(mount, store.documents(mount).await?)?;
        self.check_documents(&view, referenced_issuers);
        self.check_certificates(&view).await?;
        self.check_crls(&view, store, clock).await
    }

    /// Checks that each published CRL can be reproduced from the stored revocations.
    async fn check_crls(&mut self, view: &MountView, store: Arc<dyn PkiStore>, clock: Clock) -> Result<()> {
        let mut crl_builder = CrlBuilder::new(self.mount.id, store, Arc::new(NoSigners), clock);
        for UnreproducibleCrl { list, amended } in crl_builder.verify(view).await? {
            let path = &self.mount.path;
            match amended {
                0 => self.findings.add_doubtful(format!(
                    "mount {path}: {list} cannot be reproduced from the stored revocations and settings (harmless if \
                     CRL settings were changed after it was signed; run crl/rotate before the copy to rule that out)"
                )),
                some => self.findings.note(format!(
                    "mount {path}: {list} cannot be checked: reasons of {some} revocations were changed after it was \
                     signed (run crl/rotate before the copy to rule that out)"
                )),
            }
        }
        Ok(())
    }

    /// Checks that the issuers, keys and defaults exist to which the documents and certificates of the mount refer.
    fn check_documents(&mut self, view: &MountView, referenced_issuers: &BTreeSet<String>) {
        for signer in view.signers() {
            let record = &signer.issuer.record;
            if signer.key.is_none() && !record.key_id.is_empty() {
                self.add(&format!("the key of issuer {} is missing", record.id));
            }
        }
        let issuers = &view.issuers_config.value;
        if !issuers.default.is_empty() && view.signer("default").is_none() {
            self.add(&format!("the default issuer {} is missing", issuers.default));
        }
        if !view.keys_config.value.default.is_empty() && view.key("default").is_none() {
            self.add(&format!("the default key {} is missing", view.keys_config.value.default));
        }
        for id in referenced_issuers {
            if view.signer(id).is_none() && !issuers.former.contains_key(id) {
                self.add(&format!("issuer {id} of stored certificates is missing"));
            }
        }
    }

    /// Checks that each certificate was signed by the issuer whose id is in its row. If that issuer was deleted, see
    /// [`is_signed`].
    async fn check_certificates(&mut self, view: &MountView) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let page = verify::read_certificates(self.storage, self.mount.id, &after, CERTIFICATES_PER_PAGE).await?;
            let full = page.len() == CERTIFICATES_PER_PAGE;
            self.progress.add(page.len() as u64);
            for CertificateRecord { serial, issuer, der } in page {
                // `check_rows` has already reported a certificate that cannot be parsed.
                if let Ok(certificate) = Certificate::parse(&der)
                    && !is_signed(view, &issuer, &certificate)
                {
                    self.add(&format!("certificate {} is not signed by its issuer", certificate.serial()));
                }
                after = serial;
            }
            if !full {
                return Ok(());
            }
        }
    }
}

/// `true` if a certificate was signed by the issuer with this id. If that issuer was deleted, but the mount has an
/// issuer with the issuer name and authority key id of the certificate, such an issuer must have signed it. If the
/// mount has none, the result is `true`.
fn is_signed(view: &MountView, id: &str, certificate: &Certificate) -> bool {
    let by = |issuer: &Issuer| {
        let issuer = &issuer.certificate;
        issuer.subject().matches(certificate.issuer()) && certificate.is_signed_by_allowing_sha1(issuer.key())
    };
    // `signer` also finds issuers by name, but only the id counts here.
    let issuer = view.signer(id).filter(|signer| signer.issuer.record.id == id);
    issuer.map_or_else(
        || !has_named_issuer(view, certificate) || view.find_signing_issuer(certificate).is_some(),
        |signer| by(&signer.issuer),
    )
}

/// `true` if the mount has an issuer with the issuer name and authority key id of the certificate.
fn has_named_issuer(view: &MountView, certificate: &Certificate) -> bool {
    let Some(key) = certificate.authority_key_id() else { return false };
    view.signers()
        .map(|signer| &signer.issuer)
        .any(|issuer| issuer.certificate.subject().matches(certificate.issuer()) && issuer_key_id(issuer) == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Database, IfMissing, StorageOptions};

    async fn store(folder: &std::path::Path) -> Storage {
        let database = Database::Embedded(folder.to_owned());
        let options = StorageOptions {
            database,
            seal_key: SealKey::random(),
            clock: Clock::system(),
            commit_queue: 10,
            if_missing: IfMissing::Create,
        };
        crate::storage::open(options).await.unwrap()
    }

    #[tokio::test]
    async fn store_lost_during_verify_is_an_error_and_not_a_finding() {
        let folder = tempfile::tempdir().unwrap();
        let storage = store(folder.path()).await;
        let mut findings = Findings::default();
        verify_domains(&storage, &[], Clock::system(), &mut findings, &ProgressCounters::default()).await.unwrap();
        let damaged = Error::unavailable("storage: the read failed", "a stored serial");
        assert!(attribute_to_contents(&storage, damaged).await.is_ok(), "a store that can be read");
        storage.shutdown().await.unwrap();
        let error = verify_domains(&storage, &[], Clock::system(), &mut findings, &ProgressCounters::default())
            .await
            .unwrap_err();
        assert_eq!((error.kind(), findings.count()), (Kind::Unavailable, 0));
        assert!(attribute_to_contents(&storage, Error::internal("damaged")).await.is_ok());
    }
}

//! Looking through a whole installation that nobody works on: a copy before it is needed, a database that was restored
//! elsewhere. The store's own part is [`storage::verify`]; here its documents are read as the domains read them: each
//! mount's issuers have their keys, stored certificates verify under the issuers, and the published CRLs come out of the
//! stored revocations byte for byte, under their signatures.
//!
//! Nothing is written and nothing is asked of anybody else: devices and services of managed keys are not.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::auth::Auth;
use crate::auth::mounts::{Mount, MountKind};
use crate::clock::Clock;
use crate::documents::{MountId, SYSTEM};
use crate::error::{Kind, Result};
use crate::keys::signing::NoSigners;
use crate::pki::crl::Builder;
use crate::pki::mount::view::View;
use crate::pki::store::PkiStore;
use crate::storage::Storage;
use crate::storage::seal::SealKey;
use crate::storage::verify::{self, Findings, Subject};
use crate::x509::certificate::Certificate;

/// Certificates at a time.
const PAGE: u32 = 500;

/// Looks through a store; what is wrong with it.
///
/// # Errors
/// `Unavailable` when it cannot be reached or read, which says nothing about what it holds.
pub async fn verify(subject: Subject, seal_key: SealKey, clock: Clock) -> Result<Findings> {
    let mut findings = Findings::default();
    if !verify::file(&subject, &mut findings).await? {
        return Ok(findings);
    }
    let storage = match verify::open(subject, seal_key, clock.clone()).await {
        Err(error) if error.kind() == Kind::Invalid => {
            findings.add(error.to_string());
            return Ok(findings);
        }
        opened => opened?,
    };
    let looked = look(&storage, clock, &mut findings).await;
    storage.shutdown().await.and(looked)?;
    Ok(findings)
}

async fn look(storage: &Storage, clock: Clock, findings: &mut Findings) -> Result<()> {
    let stored = verify::rows(storage, findings).await?;
    let auth = match Auth::open(storage.auth(), clock.clone()).await {
        Ok(auth) => auth,
        Err(error) => {
            findings.add(format!("authentication: mounts and policies do not open ({error})"));
            return Ok(());
        }
    };
    let mounts = auth.mounts();
    for (id, _) in &stored {
        if *id != SYSTEM && mounts.by_id(*id).is_none() {
            findings.add(format!("mount: {} has rows and no document", id.0));
        }
    }
    for mount in mounts.iter().filter(|mount| mount.kind == MountKind::Pki) {
        let Some((_, issuers)) = stored.iter().find(|(id, _)| *id == mount.id) else {
            findings.add(format!("mount: {} has a document and no rows", mount.path));
            continue;
        };
        let mut authority = Authority { mount, store: storage.pki(), findings };
        if let Err(error) = authority.look(issuers, clock.clone()).await {
            findings.add(format!("{}: does not open ({error})", mount.path));
        }
    }
    Ok(())
}

/// A certificate authority that is looked at.
struct Authority<'a> {
    mount: &'a Mount,
    store: Arc<dyn PkiStore>,
    findings: &'a mut Findings,
}

impl Authority<'_> {
    fn add(&mut self, text: &str) {
        self.findings.add(format!("{}: {text}", self.mount.path));
    }

    /// Looks at its documents, its certificates and its lists. `named` are the issuers of its certificates.
    async fn look(&mut self, named: &BTreeSet<String>, clock: Clock) -> Result<()> {
        let view = View::load(self.mount.id, self.store.documents(self.mount.id).await?)?;
        self.documents(&view, named);
        self.certificates(&view, self.mount.id).await?;
        let mut lists = Builder::new(self.mount.id, Arc::clone(&self.store), Arc::new(NoSigners), clock);
        for text in lists.verify(&view).await? {
            self.add(&text);
        }
        Ok(())
    }

    /// What one document names is in another one.
    fn documents(&mut self, view: &View, named: &BTreeSet<String>) {
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
        for id in named {
            if view.signer(id).is_none() && !issuers.former.contains_key(id) {
                self.add(&format!("issuer {id} of stored certificates is missing"));
            }
        }
    }

    /// Each certificate that says that an issuer here signed it was signed by that.
    async fn certificates(&mut self, view: &View, mount: MountId) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.store.certificates(mount, after, PAGE).await?;
            let full = page.len() == PAGE as usize;
            for (serial, der) in page {
                after = Some(serial);
                // One that cannot be read was told of with its row.
                let Ok(certificate) = Certificate::parse(&der) else { continue };
                if claims_an_issuer(view, &certificate) && view.signed_by(&certificate).is_none() {
                    self.add(&format!("certificate {serial} is not signed by its issuer"));
                }
            }
            if !full {
                return Ok(());
            }
        }
    }
}

/// Whether an issuer here has the name and the key that a certificate says it is issued by.
fn claims_an_issuer(view: &View, certificate: &Certificate) -> bool {
    let Some(key) = certificate.authority_key_id() else { return false };
    view.signers()
        .map(|signer| &signer.issuer.certificate)
        .any(|issuer| issuer.subject() == certificate.issuer() && issuer.subject_key_id() == Some(key.as_slice()))
}

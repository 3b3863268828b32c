//! Changes the settings of an issuer.

use std::sync::Arc;

use crate::error::{Error, Result, Warnings};
use crate::keys::signing::{Signers, SigningKey};
use crate::pki::actor::PlannedChange;
use crate::pki::engine::Authority;
use crate::pki::mount::issuer::{IssuerUsage, LeafNotAfterBehavior};
use crate::pki::mount::signer::{IssuerSigner, default_revocation_algorithm};
use crate::pki::mount::urls::Urls;
use crate::pki::mount::view::MountView;
use crate::x509::algorithm::SignatureAlgorithm;

/// The settings of an issuer that an operator can change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IssuerSettings {
    /// Name of the issuer, or empty.
    pub name: String,
    /// Chain set by the operator; empty if the server computes the chain.
    pub manual_chain: ManualChain,
    /// Treatment of leaf certificates that would outlive the issuer.
    pub leaf_not_after_behavior: LeafNotAfterBehavior,
    /// Permitted uses of the issuer.
    pub usage: IssuerUsage,
    /// Signature algorithm of CRLs and OCSP responses; if empty, it is derived from the issuer's key.
    pub revocation_signature_algorithm: String,
    /// Authority information URLs of the issuer; if empty, the mount's URLs apply.
    pub urls: Urls,
}

/// Ids of the issuers of a manual chain, starting with the issuer itself. Created only by
/// [`CurrentIssuer::resolve_chain`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManualChain(Vec<String>);

/// An issuer before a write changes it, with the state of its mount.
pub struct CurrentIssuer<'a> {
    view: &'a MountView,
    signer: &'a IssuerSigner,
}

impl CurrentIssuer<'_> {
    /// Returns the issuer's current settings.
    pub fn settings(&self) -> IssuerSettings {
        let record = &self.signer.issuer.record;
        IssuerSettings {
            name: record.name.clone(),
            manual_chain: ManualChain(record.manual_chain.clone()),
            leaf_not_after_behavior: record.leaf_not_after_behavior,
            usage: record.usage,
            revocation_signature_algorithm: record.revocation_signature_algorithm.clone(),
            urls: record.urls.clone(),
        }
    }

    /// Returns the issuer's default settings: its usage includes everything that its certificate and revocation status
    /// allow.
    pub fn defaults(&self) -> IssuerSettings {
        let issuer = &self.signer.issuer;
        let usage =
            IssuerUsage { issuing: issuer.record.revoked_at.is_none(), crl: issuer.may_sign_crls(), ocsp: true };
        IssuerSettings { usage, ..IssuerSettings::default() }
    }

    /// Resolves references (ids or names of issuers of the mount, or the word `self`) to a manual chain. An empty list
    /// means that the server computes the chain.
    ///
    /// # Errors
    /// `Invalid` when an entry is unknown, or the first entry is not the issuer itself.
    pub fn resolve_chain(&self, references: &[String]) -> Result<ManualChain> {
        let own = &self.signer.issuer.record.id;
        let id = |reference: &String| match reference.as_str() {
            "self" => Ok(own.clone()),
            other => self
                .view
                .signer(other)
                .map(|s| s.issuer.record.id.clone())
                .ok_or_else(|| Error::invalid("manual_chain: every entry must name an issuer of this mount")),
        };
        let ids = references.iter().map(id).collect::<Result<Vec<_>>>()?;
        if ids.first().is_some_and(|first| first != own) {
            return Err(Error::invalid("manual_chain: the first entry must be the issuer itself"));
        }
        Ok(ManualChain(ids))
    }

    /// Checks that the issuer may have these usages.
    ///
    /// # Errors
    /// `Invalid` when the issuer is revoked and would be allowed to sign certificates.
    pub fn check_usage(&self, usage: IssuerUsage) -> Result<IssuerUsage> {
        if usage.issuing && self.signer.issuer.record.revoked_at.is_some() {
            return Err(Error::invalid("usage: a revoked issuer must not have the usage issuing-certificates"));
        }
        Ok(usage)
    }
}

/// Writes an issuer's settings; returns its id and warnings.
///
/// # Errors
/// `NotFound` for an unknown issuer; those of `merge`; `Invalid` naming field and rule.
pub async fn write_issuer(
    authority: &Authority,
    reference: &str,
    merge: impl Fn(&CurrentIssuer<'_>) -> Result<IssuerSettings> + Send + 'static,
) -> Result<(String, Warnings)> {
    let reference = reference.to_owned();
    let signers = Arc::clone(&authority.deps().signers);
    let now = authority.deps().clock.now().unix_timestamp();
    let ((id, mut warnings), crls) = authority
        .change_with_crl_warnings(move |view| {
            let signer = view.signer(&reference).ok_or_else(Error::not_found)?;
            let old = &signer.issuer.record;
            let current = CurrentIssuer { view, signer };
            let settings = merge(&current)?;
            let urls = settings.urls.checked_after(&old.urls)?;
            let usage = current.check_usage(settings.usage)?;
            if usage.crl && !old.usage.crl && !signer.issuer.may_sign_crls() {
                return Err(Error::invalid("usage: crl-signing needs cRLSign in the certificate's keyUsage"));
            }
            let mut warnings = Warnings::default();
            if settings.name != old.name && !old.name.is_empty() {
                let roles = view.roles_using(&old.name, 10);
                if !roles.is_empty() {
                    warnings.add(format!("roles still name the issuer by its old name: {}", roles.join(", ")));
                }
            }
            let algorithm = resolve_revocation_algorithm(&settings.revocation_signature_algorithm, signer, &*signers)?;
            let rebuild_crls = usage.crl != old.usage.crl || algorithm != old.revocation_signature_algorithm;
            let mut record = old.clone();
            record.name = settings.name;
            record.manual_chain = settings.manual_chain.0;
            record.leaf_not_after_behavior = settings.leaf_not_after_behavior;
            record.usage = usage;
            record.revocation_signature_algorithm = algorithm;
            record.urls = urls;
            record.modified_at = now;
            let id = record.id.clone();
            let mut next = view.clone();
            let writes = vec![next.put_issuer(record)?];
            Ok((PlannedChange { view: next, writes, rebuild_crls }, (id, warnings)))
        })
        .await?;
    warnings.extend(crls);
    Ok((id, warnings))
}

/// Validates the requested signature algorithm of CRLs and OCSP responses, or chooses the default if it is empty;
/// returns the value to store. A managed key is checked for support of the algorithm only when the setting changes, and
/// only if the mount may use the key at that moment.
fn resolve_revocation_algorithm(requested: &str, signer: &IssuerSigner, signers: &dyn Signers) -> Result<String> {
    const FIELD: &str = "revocation_signature_algorithm";
    let key = signer.key.as_ref().map(|key| &key.signing);
    if requested.is_empty() {
        return Ok(key.map(|key| default_revocation_algorithm(key, signers)).unwrap_or_default());
    }
    let algorithm = SignatureAlgorithm::parse_name(requested)
        .ok_or_else(|| Error::invalid(format!("{FIELD}: unknown signature algorithm")))?;
    if !algorithm.fits(signer.issuer.certificate.key().kind()) {
        return Err(Error::invalid(format!("{FIELD}: incompatible with the issuer's key type")));
    }
    if requested != signer.issuer.record.revocation_signature_algorithm
        && let Some(managed) = key.and_then(SigningKey::managed)
        && let Ok(signer) = signers.signer(managed)
    {
        signer.input_kind(algorithm).map_err(|e| e.within(FIELD))?;
    }
    Ok(requested.to_owned())
}

//! Generates a root CA: its key, self-signed certificate and issuer, stored in one change.

use std::sync::Arc;
use std::time::Duration;

use super::key::{CaKey, CaKeyInfo, CaKeySource, KeyRequest};
use crate::error::{Error, Result, Warnings};
use crate::keys::pool::CallerWatch;
use crate::keys::signing::{Signers, SigningKey};
use crate::pki::actor::PlannedChange;
use crate::pki::check::ca_request;
use crate::pki::check::linted_tbs::{self, LintedTbs};
use crate::pki::check::names::{self, subject_alt_names};
use crate::pki::check::request::{
    RequestedNames, RequestedSignature, RequestedSubject, RequestedUsages, RequestedValidity,
};
use crate::pki::check::structure::{CertificateKind, ExpectedIssuer};
use crate::pki::check::validity::{self, MountLifetimes, Validity};
use crate::pki::engine::Authority;
use crate::pki::mount::issuer::{IssuerRecord, IssuerUsage, LeafNotAfterBehavior, check_name};
use crate::pki::mount::profile::UrlExtensions;
use crate::pki::mount::urls::{NO_URLS_WARNING, Urls};
use crate::pki::mount::view::MountView;
use crate::pki::store::{CertificateRow, PkiWrite};
use crate::pki::values::{renewal, subject_bounds};
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::extension::{self, NameConstraints};
use crate::x509::pieces::{Extensions, Name};
use crate::x509::public_key::PublicKey;
use crate::x509::serial::Serial;
use crate::x509::tbs::CertificateTbs;

/// A request to generate a root CA.
#[derive(Clone, Debug, Default)]
pub struct RootRequest {
    /// The CA's key: a new or an existing one.
    pub key: KeyRequest,
    /// Name of the new issuer, or empty.
    pub issuer_name: String,
    /// Default name of the issuer, used if `issuer_name` is empty.
    pub naming: DefaultIssuerName,
    /// Names in the subject and subjectAltName.
    pub names: RequestedNames,
    /// Other subject attributes.
    pub subject: RequestedSubject,
    /// Requested validity of the certificate.
    pub validity: RequestedValidity,
    /// Time by which notBefore precedes the current time; `None` means 30 seconds.
    pub not_before_duration: Option<Duration>,
    /// pathLenConstraint of basicConstraints; `None` sets no limit.
    pub max_path_length: Option<u8>,
    /// Key usages and extended key usages in addition to those of every CA.
    pub usages: RequestedUsages,
    /// nameConstraints of the certificate.
    pub constraints: NameConstraints,
    /// Requested signature algorithm of the certificate.
    pub signature: RequestedSignature,
}

/// A generated root CA.
pub struct GeneratedRoot {
    /// DER encoding of the certificate.
    pub der: Vec<u8>,
    /// Serial number of the certificate.
    pub serial: Serial,
    /// notAfter of the certificate, epoch seconds.
    pub not_after: i64,
    /// Recommended time to renew the certificate, epoch seconds.
    pub renew_after: i64,
    /// Id of the issuer.
    pub issuer_id: String,
    /// Name of the issuer, or empty.
    pub issuer_name: String,
    /// The CA's key.
    pub key: CaKeyInfo,
    /// Warnings for the caller.
    pub warnings: Warnings,
}

/// Default name of an issuer for which the request sets no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultIssuerName {
    /// The issuer gets no name.
    #[default]
    Unnamed,
    /// The issuer gets the name `next` if that is free, as root rotation requires.
    NextIfFree,
}

/// Generates a root CA. Its issuer becomes the default if there is none, or if `default_follows_latest_issuer` is set.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is stored then.
pub async fn generate(
    authority: &Authority,
    request: RootRequest,
    limits: MountLifetimes,
    requester: &str,
) -> Result<GeneratedRoot> {
    let view = authority.view();
    let mut warnings = Warnings::default();
    let key = CaKeySource::new(request.key.clone(), &view, &mut warnings)?;
    let mut draft = RootDraft::new(request, limits, authority)?;
    warnings.extend(std::mem::take(&mut draft.warnings));
    draft.warnings = warnings;
    // The name is checked before the expensive key generation, and again when the change is planned.
    draft.check_name_free(&view)?;
    if let Some(placeholder) = key.placeholder() {
        draft.check_with_placeholder(&view, &placeholder)?;
    }
    let key = key.obtain(authority).await?;
    authority.deps().compromised.refuse("key", key.key.public())?;
    let root = draft.sign(authority, &key).await?;
    let signers = Arc::clone(&authority.deps().signers);
    let now = authority.deps().clock.now().unix_timestamp();
    let requester = requester.to_owned();
    let plan = move |view: &MountView| draft.clone().plan_change(view, &key, &root, &*signers, now, &requester);
    let (mut generated, crls) = authority.change_with_crl_warnings(plan).await?;
    generated.warnings.extend(crls);
    Ok(generated)
}

struct SignedRoot {
    serial: Serial,
    der: Vec<u8>,
    algorithm: SignatureAlgorithm,
}

/// Contents of a root certificate that follow from the request alone, without key and serial number.
#[derive(Clone)]
struct RootDraft {
    naming: DefaultIssuerName,
    issuer_name: String,
    subject: Name,
    common_name: String,
    validity: Validity,
    signature: RequestedSignature,
    /// keyUsage, extKeyUsage and basicConstraints, in this order.
    leading_extensions: Extensions,
    san: Extensions,
    name_constraints: Extensions,
    warnings: Warnings,
}

impl RootDraft {
    fn new(request: RootRequest, limits: MountLifetimes, authority: &Authority) -> Result<Self> {
        check_name("issuer_name", &request.issuer_name)?;
        let (names, mut warnings) = names::collect_for_ca(&request.names)?;
        let subject = ca_request::encode_ca_subject(&request.subject, &names.common_name, &names.serial_number)?;
        ca_request::check_subject("common_name", &subject)?;
        warnings.extend(subject_bounds::subject_violations(None, &subject));
        let san = extension::subject_alt_name(&subject_alt_names(&names)?, false);
        let (validity, more) = validity::for_root(
            &request.validity,
            request.not_before_duration.unwrap_or(Duration::from_secs(30)),
            limits,
            authority.deps().clock.synchronized_now()?,
        )?;
        warnings.extend(more);
        warnings.extend(ca_request::constraint_warnings(&request.constraints));
        Ok(Self {
            leading_extensions: ca_leading_extensions(&request, &mut warnings),
            name_constraints: ca_request::encode_name_constraints(&request.constraints)?,
            common_name: names.common_name.clone(),
            naming: request.naming,
            issuer_name: request.issuer_name,
            subject,
            validity,
            signature: request.signature,
            san,
            warnings,
        })
    }

    fn check_name_free(&self, view: &MountView) -> Result<()> {
        if !self.issuer_name.is_empty() && view.signer(&self.issuer_name).is_some() {
            return Err(Error::invalid("issuer_name: issuer name already in use"));
        }
        Ok(())
    }

    /// Signs the root certificate before the change starts, so that changes of the mount do not wait for a slow signer.
    async fn sign(&mut self, authority: &Authority, key: &CaKey) -> Result<SignedRoot> {
        let view = authority.view();
        let deps = authority.deps();
        let serial = view.new_serial(&*deps.serials)?;
        let algorithm = self.signature.algorithm(&key.key.signing, &*deps.signers)?;
        let prepared = self.linted_tbs(&view, &key.key.signing, algorithm, &serial)?;
        let der = prepared.sign(&*deps.signers, &CallerWatch::ALWAYS).await?.der();
        Ok(SignedRoot { serial, der, algorithm })
    }

    /// Plans the change that adds the signed root as an issuer. Fails if, since the first check, the name was taken,
    /// the key was deleted or the mount reached its limit of issuers.
    fn plan_change(
        mut self,
        view: &MountView,
        key: &CaKey,
        root: &SignedRoot,
        signers: &dyn Signers,
        now: i64,
        requester: &str,
    ) -> Result<(PlannedChange, GeneratedRoot)> {
        if self.naming == DefaultIssuerName::NextIfFree && self.issuer_name.is_empty() && view.signer("next").is_none()
        {
            self.issuer_name = "next".to_owned();
        }
        let serial = root.serial;
        let der = root.der.clone();
        if view.issuers().any(|issuer| issuer.certificate.serial() == serial) {
            return Err(Error::internal(format!("root: an issuer of the mount already has serial number {serial}")));
        }
        let mut next = view.clone();
        let put = key.put(&mut next, signers, now)?;
        let record = self.issuer_record(&put.key.id, root, now);
        let Validity { not_before, not_after } = self.validity;
        let not_before = not_before.unix_timestamp();
        let not_after = not_after.unix_timestamp();
        let mut writes = vec![PkiWrite::Certificate(CertificateRow {
            mount: view.mount,
            serial,
            issuer: record.id.clone(),
            role: None,
            common_name: (!self.common_name.is_empty()).then(|| self.common_name.clone()),
            not_before,
            not_after,
            issued_at: now,
            requester: requester.to_owned(),
            der: der.clone(),
        })];
        self.warnings.extend(put.warnings);
        let generated = GeneratedRoot {
            der,
            serial,
            not_after,
            renew_after: renewal::renewal_time(&serial, now, not_before, not_after),
            issuer_id: record.id.clone(),
            issuer_name: record.name.clone(),
            key: key.info(&put.key),
            warnings: self.warnings,
        };
        writes.extend(put.writes);
        writes.extend(update_default_issuer(&mut next, &generated.issuer_id));
        writes.push(next.put_issuer(record)?);
        Ok((PlannedChange { view: next, writes, rebuild_crls: true }, generated))
    }

    /// Validates the root certificate with a placeholder key, before its own key is generated.
    fn check_with_placeholder(&self, view: &MountView, placeholder: &PublicKey) -> Result<()> {
        let algorithm = self.signature.local_algorithm(placeholder.kind())?;
        let tbs = self.clone().encode_tbs(view, placeholder, algorithm, &Serial::PLACEHOLDER)?;
        let sources = &ca_request::ca_field_sources();
        let expected = ExpectedIssuer { algorithm, issuer: &self.subject, key_id: &placeholder.key_id(), sources };
        linted_tbs::lint_certificate(&tbs, CertificateKind::Authority, &expected, &[])
    }

    fn linted_tbs(
        &mut self,
        view: &MountView,
        key: &SigningKey,
        algorithm: SignatureAlgorithm,
        serial: &Serial,
    ) -> Result<LintedTbs> {
        let tbs = self.encode_tbs(view, key.public(), algorithm, serial)?;
        let key_id = key.public().key_id();
        let sources = &ca_request::ca_field_sources();
        let expected = ExpectedIssuer { algorithm, issuer: &self.subject, key_id: &key_id, sources };
        LintedTbs::for_certificate(tbs, CertificateKind::Authority, &expected, &[], key)
    }

    fn encode_tbs(
        &mut self,
        view: &MountView,
        key: &PublicKey,
        algorithm: SignatureAlgorithm,
        serial: &Serial,
    ) -> Result<Vec<u8>> {
        let key_id = key.key_id();
        let locations = self.url_extensions(&view.global_urls())?;
        let trailing_extensions = Extensions::joined(&[
            &extension::authority_key_id(&key_id),
            &locations.authority_info,
            &self.san,
            &self.name_constraints,
            &locations.distribution_points,
            &locations.freshest_crl,
        ]);
        let tbs = CertificateTbs {
            serial,
            algorithm,
            issuer: &self.subject,
            not_before: self.validity.not_before,
            not_after: self.validity.not_after,
            subject: &self.subject,
            spki: key.spki(),
            extensions: &[&self.leading_extensions, &extension::subject_key_id(&key_id), &trailing_extensions],
        };
        Ok(tbs.encode())
    }

    /// Returns the extensions with the mount's URLs; empty if a URL contains the id of the issuer, which is assigned
    /// after signing.
    fn url_extensions(&mut self, urls: &Urls) -> Result<UrlExtensions> {
        if urls.is_empty() {
            self.warnings.add(NO_URLS_WARNING.to_owned());
        } else if urls.contains_issuer_id() {
            self.warnings.add(
                "authorityInfoAccess and CRL URLs omitted from the root: their templates need the issuer's id, which \
                 is assigned after signing"
                    .to_owned(),
            );
            return Ok(UrlExtensions::new(&Urls::default()));
        }
        Ok(UrlExtensions::new(&urls.for_issuer("")?))
    }

    fn issuer_record(&self, key_id: &str, root: &SignedRoot, now: i64) -> IssuerRecord {
        use base64::Engine as _;
        IssuerRecord {
            id: crate::random::uuid(),
            name: self.issuer_name.clone(),
            key_id: key_id.to_owned(),
            certificate: base64::engine::general_purpose::STANDARD.encode(&root.der),
            manual_chain: Vec::new(),
            leaf_not_after_behavior: LeafNotAfterBehavior::Err,
            usage: IssuerUsage::ALL,
            revocation_signature_algorithm: root.algorithm.name().to_owned(),
            urls: Default::default(),
            revoked_at: None,
            revoked_for: Default::default(),
            crl_number: 0,
            modified_at: now,
            signatures: Default::default(),
            authority: None,
        }
    }
}

/// Makes the new issuer the default if the mount has no default issuer, or if `default_follows_latest_issuer` is set.
fn update_default_issuer(view: &mut MountView, issuer_id: &str) -> Option<PkiWrite> {
    let mut config = view.issuers_config.value.clone();
    if !config.default.is_empty() && !config.default_follows_latest_issuer {
        return None;
    }
    config.default = issuer_id.to_owned();
    Some(view.set_issuers_config(config))
}

fn ca_leading_extensions(request: &RootRequest, warnings: &mut Warnings) -> Extensions {
    let path_length = request.max_path_length.map(u32::from);
    if path_length == Some(0) {
        warnings.add("max_path_length is 0: this CA can sign leaf certificates only".to_owned());
    }
    let mut leading_extensions = extension::key_usage(ca_request::ca_key_usage(&request.usages));
    leading_extensions.extend(&extension::ext_key_usage(&request.usages.ext_key_usage));
    leading_extensions.extend(&extension::basic_constraints(true, path_length));
    leading_extensions
}

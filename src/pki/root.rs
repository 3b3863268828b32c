//! Generating a root: key (or one that the mount has), self-signed certificate, issuer, all in one change.

use std::sync::Arc;
use std::time::Duration;

use super::actor::Planned;
use super::answer::{self, Data};
use super::ca_key::{CaKey, KeyOrder, KeyOrigin};
use super::issue::subject_alt_names;
use super::issuer::{IssuerRecord, Usage, check_name};
use super::names;
use super::prepared::Prepared;
use super::profile::Locations;
use super::request::{Format, IssueRequest};
use super::store::{CertificateRow, PkiWrite};
use super::structure::{Expected, Shape};
use super::subject_bounds;
use super::urls::{NO_URLS, Urls};
use super::validity::{self, LeafNotAfter, Limits, Validity};
use super::view::View;
use super::{Authority, ca_request};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::keys::local::PrivateKey;
use crate::secret::PartlySecret;
use crate::x509::algorithm::{KeyKind, SignatureAlgorithm};
use crate::x509::extension;
use crate::x509::pem;
use crate::x509::serial::Serial;
use crate::x509::tbs::CertificateTbs;

/// Fields of `root/generate/:type`.
pub const FIELDS: &[&str] = &ca_request::joined::<41>(&[
    &[
        "issuer_name",
        "key_name",
        "key_ref",
        "managed_key_name",
        "managed_key_id",
        "ttl",
        "not_after",
        "not_before",
        "not_before_duration",
        "format",
        "private_key_format",
        "key_type",
        "key_bits",
        "signature_bits",
        "use_pss",
        "max_path_length",
        "key_usage",
        "ext_key_usage",
        "ext_key_usage_oids",
    ],
    &ca_request::NAME_FIELDS,
    &ca_request::CONSTRAINT_FIELDS,
    &ca_request::SUBJECT_FIELDS,
]);

/// A root that was generated.
pub struct Generated {
    /// The answer's `data` without its dates: JSON text of an object with members.
    pub data: PartlySecret,
    /// notAfter, epoch seconds.
    pub expiration: i64,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

/// What an issuer without a name is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// It stays without one.
    AsGiven,
    /// `next`, while that is free (root rotation).
    NextIfFree,
}

/// Generates a root CA from the request's fields and makes it the default issuer when there is none.
///
/// # Errors
/// `Invalid` naming field and rule; nothing is stored then.
pub async fn generate(
    authority: &Authority,
    origin: KeyOrigin,
    naming: Naming,
    fields: &Fields,
    limits: Limits,
    requester: &str,
) -> Result<Generated> {
    let view = authority.view();
    let mut warnings = Vec::new();
    let key = KeyOrder::from_fields(fields, origin, &view, &mut warnings)?;
    let mut order = Order::from_fields(fields, key.kind(), naming, limits, authority)?;
    order.warnings.splice(..0, warnings);
    // Names are checked before the costly key, and again in the change itself.
    order.check_name_free(&view)?;
    let key = key.obtain(authority).await?;
    let serials = Arc::clone(&authority.tools().serials);
    let now = authority.tools().clock.now().unix_timestamp();
    let requester = requester.to_owned();
    let (mut generated, crls) = authority
        .change_and_crls(move |view| {
            let serial = view.new_serial(&*serials)?;
            order.clone().plan(view, &key, serial, now, &requester)
        })
        .await?;
    generated.warnings.extend(crls);
    Ok(generated)
}

/// Everything about the root that the request decides.
#[derive(Clone)]
struct Order {
    naming: Naming,
    issuer_name: String,
    request: IssueRequest,
    subject: Vec<u8>,
    common_name: String,
    validity: Validity,
    algorithm: SignatureAlgorithm,
    /// keyUsage, extKeyUsage, basicConstraints.
    head: Vec<u8>,
    san: Vec<u8>,
    name_constraints: Vec<u8>,
    warnings: Vec<String>,
}

impl Order {
    fn from_fields(
        fields: &Fields,
        kind: KeyKind,
        naming: Naming,
        limits: Limits,
        authority: &Authority,
    ) -> Result<Self> {
        let issuer_name = fields.text("issuer_name")?.unwrap_or_default();
        check_name("issuer_name", &issuer_name)?;
        let request = IssueRequest::from_fields(fields)?;
        let algorithm = SignatureAlgorithm::for_issuer(
            kind,
            ca_request::signature_bits(fields)?,
            fields.bool("use_pss")?.unwrap_or(false),
        )?;
        let (names, mut warnings) = names::unchecked(&request)?;
        let subject = ca_request::subject(fields, &names.common_name, &names.serial_number)?;
        ca_request::check_subject("common_name", &subject)?;
        warnings.extend(subject_bounds::of_subject(None, &subject));
        let san = extension::subject_alt_name(&subject_alt_names(&names)?, false);
        let (validity, more) = validity::for_root(
            request.ttl,
            request.not_after.as_deref(),
            request.not_before.as_deref(),
            fields.duration("not_before_duration")?.unwrap_or(Duration::from_secs(30)),
            limits,
            authority.tools().clock.now(),
        )?;
        warnings.extend(more);
        Ok(Self {
            head: head(fields, &mut warnings)?,
            name_constraints: ca_request::name_constraints(fields)?,
            common_name: names.common_name.clone(),
            naming,
            issuer_name,
            request,
            subject,
            validity,
            algorithm,
            san,
            warnings,
        })
    }

    fn check_name_free(&self, view: &View) -> Result<()> {
        if !self.issuer_name.is_empty() && view.signer(&self.issuer_name).is_some() {
            return Err(Error::invalid("issuer_name: issuer name already in use"));
        }
        Ok(())
    }

    /// Signs the root and puts it into the mount's state.
    fn plan(
        mut self,
        view: &View,
        key: &CaKey,
        serial: Serial,
        now: i64,
        requester: &str,
    ) -> Result<(Planned, Generated)> {
        if self.naming == Naming::NextIfFree && self.issuer_name.is_empty() && view.signer("next").is_none() {
            self.issuer_name = "next".to_owned();
        }
        let der = self.certificate(view, &key.key.private, &serial)?;
        let mut next = view.clone();
        let record = self.record(&key.key.id, &der, now);
        let mut writes = vec![PkiWrite::Certificate(CertificateRow {
            mount: view.mount,
            serial,
            issuer: record.id.clone(),
            role: None,
            common_name: (!self.common_name.is_empty()).then(|| self.common_name.clone()),
            not_before: self.validity.not_before.unix_timestamp(),
            not_after: self.validity.not_after.unix_timestamp(),
            issued_at: now,
            requester: requester.to_owned(),
            der: der.clone(),
        })];
        let data = self.data(&record, key, &der, &serial)?;
        let expiration = self.validity.not_after.unix_timestamp();
        writes.extend(key.put(&mut next)?);
        writes.extend(default_issuer(&mut next, &record.id));
        writes.push(next.put_issuer(record)?);
        let generated = Generated { data, expiration, warnings: self.warnings };
        Ok((Planned { view: next, writes, crls: true }, generated))
    }

    fn certificate(&mut self, view: &View, key: &Arc<PrivateKey>, serial: &Serial) -> Result<Vec<u8>> {
        let key_id = key.public().key_id();
        let locations = self.locations(&view.global_urls())?;
        let tail = [
            &extension::authority_key_id(&key_id)[..],
            &locations.authority_info,
            &self.san,
            &self.name_constraints,
            &locations.distribution_points,
            &locations.freshest_crl,
        ]
        .concat();
        let tbs = CertificateTbs {
            serial,
            algorithm: self.algorithm,
            issuer: &self.subject,
            not_before: self.validity.not_before,
            not_after: self.validity.not_after,
            subject: &self.subject,
            spki: key.public().spki(),
            extensions: &[&self.head, &extension::subject_key_id(&key_id), &tail],
        }
        .encode();
        let expected = Expected { algorithm: self.algorithm, issuer: &self.subject, key_id: &key_id };
        Ok(Prepared::certificate(tbs, Shape::Authority, &expected, &[], key)?.sign_here()?.der())
    }

    /// The mount's URLs as far as a root can carry them.
    fn locations(&mut self, urls: &Urls) -> Result<Locations> {
        if urls.is_empty() {
            self.warnings.push(NO_URLS.to_owned());
        } else if urls.names_issuer() {
            self.warnings.push(
                "authority information left out of the root: its URLs are templates, and the issuer's id is not known before it is signed"
                    .to_owned(),
            );
            return Ok(Locations::new(&Urls::default()));
        }
        Ok(Locations::new(&urls.for_issuer("")?))
    }

    fn record(&self, key_id: &str, der: &[u8], now: i64) -> IssuerRecord {
        use base64::Engine as _;
        IssuerRecord {
            id: crate::random::uuid(),
            name: self.issuer_name.clone(),
            key_id: key_id.to_owned(),
            certificate: base64::engine::general_purpose::STANDARD.encode(der),
            manual_chain: Vec::new(),
            leaf_not_after_behavior: LeafNotAfter::Err,
            usage: Usage::ALL,
            revocation_signature_algorithm: self.algorithm.name().to_owned(),
            urls: Default::default(),
            revoked_at: None,
            modified_at: now,
        }
    }

    fn data(&self, record: &IssuerRecord, key: &CaKey, der: &[u8], serial: &Serial) -> Result<PartlySecret> {
        let issuing_ca = match self.request.format {
            Format::Der => record.certificate.clone(),
            Format::Pem | Format::PemBundle => pem::encode("CERTIFICATE", der),
        };
        let mut data = Data::default();
        match (self.request.format, key.exported()) {
            (Format::PemBundle, Some(key)) => data.add_secret("certificate", &answer::beside(key, &issuing_ca)?)?,
            _ => data.add("certificate", &issuing_ca),
        }
        data.add("issuing_ca", &issuing_ca);
        data.add("serial_number", &serial.to_string());
        data.add("issuer_id", &record.id);
        data.add("issuer_name", &record.name);
        key.show(&mut data, self.request.format, self.request.private_key_format)?;
        Ok(data.finish())
    }
}

/// The new issuer becomes the default when there is none or the mount follows the latest.
fn default_issuer(view: &mut View, issuer_id: &str) -> Option<PkiWrite> {
    let mut config = view.issuers_config.value.clone();
    if !config.default.is_empty() && !config.default_follows_latest_issuer {
        return None;
    }
    config.default = issuer_id.to_owned();
    Some(view.set_issuers_config(config))
}

/// keyUsage, extKeyUsage, basicConstraints.
fn head(fields: &Fields, warnings: &mut Vec<String>) -> Result<Vec<u8>> {
    let path_length = ca_request::max_path_length(fields)?;
    if path_length == Some(0) {
        warnings.push("max_path_length is 0: this CA can sign leaf certificates only".to_owned());
    }
    let mut head = extension::key_usage(ca_request::key_usage(fields)?);
    head.extend(ca_request::ext_key_usage(fields)?);
    head.extend(extension::basic_constraints(true, path_length));
    Ok(head)
}

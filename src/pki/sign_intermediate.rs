//! `sign-intermediate`: certifies the key of a CSR as a certificate authority below an issuer.
//!
//! The operator says what the authority is called and may do; with `use_csr_values` the CSR's subject,
//! names and extensions are taken instead, except for what only the operator and the server can say:
//! basicConstraints, authorityKeyIdentifier and CRL URLs never come from a CSR, name constraints, key
//! identifier and other URLs only where nothing else sets them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::beside::Beside;
use super::issue::{Issued, Request, Tools, signer, subject_alt_names, usable_key, verified_csr};
use super::metrics::Stages;
use super::profile::Pieces;
use super::release::{Draft, Record, SubjectKeyId};
use super::request::IssueRequest;
use super::role::Role;
use super::structure::Shape;
use super::subject_bounds;
use super::urls::NO_URLS;
use super::view::{Signer, View};
use super::{answer, ca_request, names, validity, verbatim};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::csr::{Csr, OtherValue};
use crate::x509::extension::{self, KeyUsage, SubjectAltNames};
use crate::x509::{name, oid};

/// Body members.
pub const FIELDS: &[&str] = &ca_request::joined::<37>(&[
    &[
        "csr",
        "use_csr_values",
        "ttl",
        "not_after",
        "not_before",
        "not_before_duration",
        "enforce_leaf_not_after_behavior",
        "format",
        "max_path_length",
        "key_usage",
        "ext_key_usage",
        "ext_key_usage_oids",
        "signature_bits",
        "use_pss",
        "skid",
    ],
    &ca_request::NAME_FIELDS,
    &ca_request::CONSTRAINT_FIELDS,
    &ca_request::SUBJECT_FIELDS,
]);

/// Members that have no effect under `use_csr_values`; `other_sans` keep theirs.
fn overruled() -> impl Iterator<Item = &'static str> {
    let names = ca_request::NAME_FIELDS.into_iter().filter(|name| *name != "other_sans");
    names.chain(ca_request::SUBJECT_FIELDS)
}

/// Certifies an authority.
///
/// # Errors
/// `Invalid` naming field and rule; `Unavailable` when the record cannot be stored.
pub async fn sign(view: Arc<View>, tools: Tools, request: Request, stages: Stages) -> Result<Issued> {
    let started = Instant::now();
    let fields = &request.fields;
    let parsed = IssueRequest::from_fields(fields)?;
    let csr = verified_csr(fields)?;
    let signer = signer(&view, request.issuer_or("default"))?;
    let key = usable_key(&signer, tools.clock.now())?;
    let pieces = signer.pieces()?;
    let mut warnings = Vec::new();
    let path_length = path_length(fields, &signer, &mut warnings)?;
    let issuer = &signer.issuer;
    let naming = naming(fields, &parsed, &csr, &mut warnings)?;
    if naming.subject == issuer.certificate.subject() {
        warnings.push("common_name: the subject is the issuer's own, which confuses chain building".to_owned());
    }
    let enforce = fields.bool("enforce_leaf_not_after_behavior")?.unwrap_or(false);
    let behaviour = issuer.record.leaf_not_after_behavior.truncating_unless(enforce);
    let lifetimes = Role {
        not_before_duration: fields.duration("not_before_duration")?.unwrap_or(Duration::ZERO).as_secs(),
        ..Role::default()
    };
    let end = issuer.certificate.not_after();
    let (validity, more) = validity::for_leaf(&lifetimes, &parsed, request.limits, end, behaviour, tools.clock.now())?;
    warnings.extend(more);
    let locations = &pieces.locations;
    if [&locations.authority_info, &locations.distribution_points].iter().all(|l| l.is_empty()) {
        warnings.push(NO_URLS.to_owned());
    }
    let constraints = ca_request::name_constraints(fields)?;
    let (usages, copies, key_id) = usages_and_copies(fields, &csr, pieces, &naming, !constraints.is_empty())?;
    let draft = Draft {
        algorithm: SignatureAlgorithm::for_issuer(
            key.public().kind(),
            ca_request::signature_bits(fields)?,
            fields.bool("use_pss")?.unwrap_or(false),
        )?,
        key,
        shape: Shape::Authority,
        common_name: name::common_name(&naming.subject),
        subject: naming.subject,
        validity,
        head: [usages, extension::basic_constraints(true, path_length)].concat(),
        key_id,
        tail: [
            &pieces.authority_key_id[..],
            &locations.authority_info,
            &naming.san,
            &constraints,
            &locations.distribution_points,
            &locations.freshest_crl,
            &copies,
        ]
        .concat(),
        signer: Arc::clone(&signer),
    };
    stages.rules(started);
    let record =
        Record { role: None, requester: &request.requester.recorded_as, store: true, beside: Beside::default() };
    let issued = draft.release(&view, &tools, &csr.key, &record, &stages).await?;
    let json = answer::issued_authority(&signer, &parsed, &issued)?;
    Ok(Issued { json, dates: Some(issued.dates.of_authority()), warnings, lease: None })
}

/// The path length to write: as asked, or one less than the issuer's where that has one.
fn path_length(fields: &Fields, signer: &Signer, warnings: &mut Vec<String>) -> Result<Option<u32>> {
    let most = below(signer)?;
    let length = match (ca_request::max_path_length(fields)?, most) {
        (None, most) => most,
        (Some(asked), Some(most)) if asked > most => {
            return Err(Error::invalid(format!(
                "max_path_length: {asked} is more than the issuing chain allows, {most} (RFC 5280 4.2.1.9)"
            )));
        }
        (asked, _) => asked,
    };
    if length == Some(0) {
        warnings.push("the path length is 0: this CA can sign leaf certificates only".to_owned());
    }
    Ok(length)
}

/// How many authorities may follow below one that this issuer signs; `None` is any number.
///
/// # Errors
/// `Invalid` when the issuer may sign none.
pub(super) fn below(signer: &Signer) -> Result<Option<u32>> {
    match signer.path_length {
        Some(0) => {
            Err(Error::invalid("issuer_ref: issuer cannot sign further CAs: its path length is 0 (RFC 5280 4.2.1.9)"))
        }
        limit => Ok(limit.map(|n| n - 1)),
    }
}

/// What the authority is called, and what of the CSR counts.
struct Naming {
    /// The whole Name.
    subject: Vec<u8>,
    /// subjectAltName; empty without, and where the CSR's is copied.
    san: Vec<u8>,
    /// Whether extensions of the CSR are taken.
    from_csr: bool,
}

fn naming(fields: &Fields, parsed: &IssueRequest, csr: &Csr, warnings: &mut Vec<String>) -> Result<Naming> {
    let from_csr = fields.bool("use_csr_values")?.unwrap_or(false);
    let naming =
        if from_csr { of_csr(fields, parsed, csr, warnings)? } else { of_request(fields, parsed, csr, warnings)? };
    ca_request::check_subject(if from_csr { "csr" } else { "common_name" }, &naming.subject)?;
    warnings.extend(subject_bounds::of_subject(from_csr.then_some("csr"), &naming.subject));
    Ok(naming)
}

fn of_request(fields: &Fields, parsed: &IssueRequest, csr: &Csr, warnings: &mut Vec<String>) -> Result<Naming> {
    let mut asked = parsed.clone();
    if asked.common_name.is_empty() {
        asked.common_name = csr.common_name().trim().to_owned();
    }
    if asked.common_name.is_empty() {
        return Err(Error::invalid("common_name: must be given when the CSR has none"));
    }
    let (names, more) = names::unchecked(&asked)?;
    warnings.extend(more);
    let subject = ca_request::subject(fields, &names.common_name, &names.serial_number)?;
    let san = extension::subject_alt_name(&subject_alt_names(&names)?, name::is_empty(&subject));
    Ok(Naming { subject, san, from_csr: false })
}

fn of_csr(fields: &Fields, parsed: &IssueRequest, csr: &Csr, warnings: &mut Vec<String>) -> Result<Naming> {
    let overruled: Vec<_> =
        overruled().filter(|name| fields.text(name).is_ok_and(|t| t.is_some_and(|t| !t.is_empty()))).collect();
    if !overruled.is_empty() {
        warnings.push(format!("{} ignored: use_csr_values takes them from the CSR", overruled.join(", ")));
    }
    let subject = csr.subject.clone();
    if parsed.other_sans.is_empty() {
        return Ok(Naming { subject, san: Vec::new(), from_csr: true });
    }
    // otherNames of the request join the CSR's names in one extension.
    let only_other = IssueRequest { other_sans: parsed.other_sans.clone(), ..IssueRequest::default() };
    let (names, _) = names::unchecked(&only_other)?;
    let sans = csr.sans()?;
    if let Some(kind) = sans.unruled {
        return Err(Error::invalid(format!(
            "csr: subject alternative names of the kind {kind} cannot be joined with other_sans"
        )));
    }
    let mut other = subject_alt_names(&names)?.other;
    let mut known: HashSet<_> = other.iter().cloned().collect();
    for (oid, value) in sans.other {
        let OtherValue::Utf8(text) = value else {
            return Err(Error::invalid("csr: an otherName is not a UTF8String; it cannot be joined with other_sans"));
        };
        let name = (oid, text);
        if known.insert(name.clone()) {
            other.push(name);
        }
    }
    let all = SubjectAltNames { dns: sans.dns, emails: sans.emails, ips: sans.ips, uris: sans.uris, other };
    let san = extension::subject_alt_name(&all, name::is_empty(&subject));
    Ok(Naming { subject, san, from_csr: true })
}

/// keyUsage and extKeyUsage, the CSR's extensions that are copied, and the subject's key identifier.
fn usages_and_copies(
    fields: &Fields,
    csr: &Csr,
    pieces: &Pieces,
    naming: &Naming,
    constrained: bool,
) -> Result<(Vec<u8>, Vec<u8>, SubjectKeyId)> {
    let skid = skid(fields)?;
    let mut usages = extension::key_usage(ca_request::key_usage(fields)?);
    let purposes = ca_request::ext_key_usage(fields)?;
    if !naming.from_csr {
        usages.extend(purposes);
        return Ok((usages, Vec::new(), skid.map_or(SubjectKeyId::OfKey, SubjectKeyId::Given)));
    }
    let taken = |oid: &[u8]| match oid {
        oid::BASIC_CONSTRAINTS | oid::CRL_DISTRIBUTION_POINTS | oid::FRESHEST_CRL => false,
        oid::NAME_CONSTRAINTS => !constrained,
        oid::SUBJECT_KEY_ID => skid.is_none(),
        oid::SUBJECT_ALT_NAME => naming.san.is_empty(),
        _ => true,
    };
    // What the CSR lacks of an authority's usages is added to its own; a whole set is copied as it is.
    let wanting = csr.key_usage().filter(|usage| !usage.contains(KeyUsage::CERT_SIGN));
    let copied: Vec<_> = csr
        .extensions
        .iter()
        .filter(|e| taken(&e.oid) && verbatim::is_copied(e, &pieces.locations))
        .filter(|e| wanting.is_none() || e.oid != oid::KEY_USAGE)
        .collect();
    let has = |oid: &[u8]| copied.iter().any(|extension| extension.oid == oid);
    if let Some(usage) = wanting {
        usages = extension::key_usage(usage.union(ca_request::AUTHORITY));
    } else if has(oid::KEY_USAGE) {
        usages.clear();
    }
    if !has(oid::EXT_KEY_USAGE) {
        usages.extend(purposes);
    }
    let key_id = match skid {
        Some(octets) => SubjectKeyId::Given(octets),
        None if has(oid::SUBJECT_KEY_ID) => SubjectKeyId::Copied,
        None => SubjectKeyId::OfKey,
    };
    Ok((usages, copied.iter().flat_map(|e| e.raw.iter().copied()).collect(), key_id))
}

/// `skid`: hexadecimal octets, with or without separators.
fn skid(fields: &Fields) -> Result<Option<Vec<u8>>> {
    let text = fields.text("skid")?.unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(|b| !b": -".contains(b)).collect();
    if digits.is_empty() {
        return Ok(None);
    }
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let octets: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(value(*high)? << 4 | value(*low)?),
            _ => None,
        })
        .collect();
    match octets {
        Some(octets) if octets.len() <= 64 => Ok(Some(octets)),
        _ => Err(Error::invalid("skid: must be at most 64 octets in hexadecimal digits")),
    }
}

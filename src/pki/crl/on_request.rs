//! Lists that a caller words: `sign-revocation-list` from entries of any serial numbers, `resign-crls` from
//! other lists of the same key. Both are signed and handed out; nothing is stored, and what the mount
//! publishes does not know of them. Called by the handlers; refuses issuers that may not sign CRLs.

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::batch::Batch;
use super::config;
use super::entries::Entries;
use super::list::{Draft, Frame};
use crate::clock::parse_rfc3339;
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::pki::Authority;
use crate::x509::crl::{Crl, entry, entry_with_extensions};
use crate::x509::extension::{MAX_EXTENSIONS, extension};
use crate::x509::oid::{self, parse_oid};
use crate::x509::pem;
use crate::x509::profile;
use crate::x509::raw_extension::ExtensionRef;
use crate::x509::reader::Reader;
use crate::x509::serial::Serial;
use crate::x509::writer::ENUMERATED;

/// Fields of `sign-revocation-list`.
pub const SIGN_FIELDS: &[&str] =
    &["revoked_certs", "extensions", "crl_number", "delta_crl_base_number", "next_update", "format"];
/// Fields of `resign-crls`.
pub const RESIGN_FIELDS: &[&str] = &["crls", "crl_number", "delta_crl_base_number", "next_update", "format"];

/// Life of a list when the request names none.
const NEXT_UPDATE: &str = "72h";
/// Extensions that the server itself writes.
const RESERVED: [(&[u8], &str); 3] = [
    (oid::AUTHORITY_KEY_ID, "authorityKeyIdentifier"),
    (oid::CRL_NUMBER, "cRLNumber"),
    (oid::DELTA_CRL_INDICATOR, "deltaCRLIndicator"),
];
/// Most lists that are joined: the signature of each is checked.
const MAX_LISTS: usize = 100;
/// Longest entry, in octets.
const LONGEST_ENTRY: usize = 16 << 10;

/// A list made on request.
pub struct Made {
    /// PEM text, or base64 of DER.
    pub crl: String,
    /// What was left out of it.
    pub warnings: Vec<String>,
}

/// Signs a list of the entries that `fields` word, by the issuer that `reference` names.
///
/// # Errors
/// `NotFound` for an unknown issuer; `Invalid` naming field and rule.
pub async fn sign(authority: &Authority, reference: &str, fields: Fields) -> Result<Made> {
    make(authority, reference, fields, |fields, frame, _| {
        let (entries, extensions) = (revoked(fields, frame.base.is_some())?, list_extensions(fields)?);
        Ok((entries, extensions, Vec::new()))
    })
    .await
}

/// Signs one list with the entries of all `crls`, which the issuer's key must have signed.
///
/// # Errors
/// As [`sign`].
pub async fn resign(authority: &Authority, reference: &str, fields: Fields) -> Result<Made> {
    make(authority, reference, fields, |fields, _, authority_key| {
        let (entries, warnings) = union(fields, authority_key)?;
        Ok((entries, Vec::new(), warnings))
    })
    .await
}

/// Entries, further extensions of the list, and warnings.
type Parts = (Batch, Vec<Vec<u8>>, Vec<String>);

/// Reads, signs and writes off the worker: the request may be megabytes.
async fn make(
    authority: &Authority,
    reference: &str,
    fields: Fields,
    parts: impl FnOnce(&Fields, &Frame, &crate::x509::public_key::PublicKey) -> Result<Parts> + Send + 'static,
) -> Result<Made> {
    let signer = authority.view().signer(reference).cloned().ok_or_else(Error::not_found)?;
    if !signer.issuer.record.usage.crl {
        return Err(Error::invalid("issuer_ref: the issuer's usage has no crl-signing"));
    }
    if signer.key.is_none() {
        return Err(Error::invalid("issuer_ref: the issuer has no private key in this mount"));
    }
    let now = authority.tools().clock.now().unix_timestamp();
    let work = move || {
        let der = is_der(&fields)?;
        let frame = frame(&fields, now)?;
        let (batch, extensions, warnings) = parts(&fields, &frame, signer.issuer.certificate.key())?;
        let entries = Entries::default().with(batch);
        let extensions: Vec<&[u8]> = extensions.iter().map(Vec::as_slice).collect();
        let draft = Draft::new(&signer, &entries, frame, &extensions)?;
        let signature = draft.sign(&signer)?;
        let bytes: Vec<u8> = draft.finish(&signature).pieces().flatten().collect();
        let crl = if der { STANDARD.encode(&bytes) } else { pem::encode("X509 CRL", &bytes) };
        Ok(Made { crl, warnings })
    };
    tokio::task::spawn_blocking(work).await.map_err(Error::internal)?
}

fn is_der(fields: &Fields) -> Result<bool> {
    match fields.text("format")?.as_deref() {
        None | Some("" | "pem") => Ok(false),
        Some("der") => Ok(true),
        Some(_) => Err(Error::invalid("format: must be pem or der")),
    }
}

fn frame(fields: &Fields, now: i64) -> Result<Frame> {
    let number = fields.int("crl_number")?.ok_or_else(|| Error::invalid("crl_number: must be given"))?;
    let number = u64::try_from(number).map_err(|_| Error::invalid("crl_number: must not be negative"))?;
    let base = match fields.int("delta_crl_base_number")?.unwrap_or(-1) {
        -1 => None,
        base => Some(u64::try_from(base).map_err(|_| {
            Error::invalid("delta_crl_base_number: must be the number of a complete CRL, or -1 for none")
        })?),
    };
    if base.is_some_and(|base| base > number) {
        return Err(Error::invalid("delta_crl_base_number: must not be above crl_number (RFC 5280 5.2.4)"));
    }
    let text = fields.text("next_update")?.filter(|text| !text.is_empty()).unwrap_or_else(|| NEXT_UPDATE.to_owned());
    let life = config::lifetime("next_update", &text)?.as_secs();
    if life == 0 {
        return Err(Error::invalid("next_update: must be at least one second"));
    }
    Ok(Frame { number, base, this_update: now, next_update: now + life as i64 })
}

/// The elements of a field that is a list of JSON objects.
fn objects<'a>(fields: &'a Fields, name: &str) -> Result<&'a [Value]> {
    match fields.value(name) {
        None => Ok(&[]),
        Some(Value::Array(all)) => Ok(all),
        Some(_) => Err(Error::invalid(format!("{name}: must be a list of objects"))),
    }
}

/// A text member that must be there.
fn member<'a>(object: &'a Value, path: &str, name: &str) -> Result<&'a str> {
    let text = object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.ok_or_else(|| Error::invalid(format!("{path}: {name} must be given, as a text")))
}

fn revoked(fields: &Fields, is_delta: bool) -> Result<Batch> {
    let mut batch = Batch::default();
    let mut seen = HashSet::new();
    for (at, object) in objects(fields, "revoked_certs")?.iter().enumerate() {
        let path = format!("revoked_certs[{at}]");
        let refuse = |text: &str| Error::invalid(format!("{path}: {text}"));
        let serial = Serial::parse(member(object, &path, "serial_number")?).map_err(|e| refuse(e.text()))?;
        if !seen.insert(serial) {
            return Err(refuse("its serial_number is listed before"));
        }
        let extensions = extensions(object.get("extensions"), &path)?;
        extensions.iter().try_for_each(|(_, raw)| check_entry_extension(raw, &path, is_delta))?;
        let slices: Vec<&[u8]> = extensions.iter().map(|(_, raw)| raw.as_slice()).collect();
        let encoded = entry_with_extensions(&serial, time(object.get("revocation_time"), &path)?, &slices);
        if encoded.len() > LONGEST_ENTRY {
            return Err(refuse("the entry is above 16 KiB"));
        }
        batch.push(serial, &encoded, i64::MAX);
    }
    Ok(batch)
}

/// Entries are not read back before a list is signed: what a caller words is held here.
fn check_entry_extension(raw: &[u8], path: &str, is_delta: bool) -> Result<()> {
    let extension = ExtensionRef::next(&mut Reader::new(raw)).map_err(|e| e.of(path))?;
    oid::check_size(extension.oid).map_err(|e| e.of(&format!("{path}: extensions")))?;
    let Some(known) = profile::of_entry(extension.oid) else { return Ok(()) };
    known.hold(&format!("{path}: extensions"), extension.critical == Some(true), extension.value)?;
    if extension.oid == oid::REASON_CODE && extension.value == REMOVE_FROM_CRL && !is_delta {
        let text = format!("{path}: extensions: reasonCode: removeFromCRL stands in delta CRLs alone (RFC 5280 5.3.1)");
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// The reason with which an entry leaves the list, as an ENUMERATED.
const REMOVE_FROM_CRL: [u8; 3] = [ENUMERATED, 1, 8];

/// RFC 3339, or epoch seconds as a number or a text; fractions are cut off.
fn time(value: Option<&Value>, path: &str) -> Result<i64> {
    let field = format!("{path}: revocation_time");
    let seconds = match value {
        None | Some(Value::Null) => return Err(Error::invalid(format!("{field} must be given"))),
        Some(Value::Number(number)) => number.as_i64().or_else(|| number.as_f64().map(|n| n.floor() as i64)),
        Some(Value::String(text)) => match text.parse() {
            Ok(seconds) => Some(seconds),
            Err(_) => Some(parse_rfc3339(&field, text)?.unix_timestamp()),
        },
        Some(_) => None,
    };
    let range = crate::clock::Time::UNIX_EPOCH.unix_timestamp()..=253_402_300_799;
    seconds
        .filter(|seconds| range.contains(seconds))
        .ok_or_else(|| Error::invalid(format!("{field} must be RFC 3339 or epoch seconds, from 1970 to 9999")))
}

/// Extensions of an entry or a list: identifiers and whole SEQUENCEs, in their order.
fn extensions(value: Option<&Value>, path: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let all = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(all)) => all,
        Some(_) => return Err(Error::invalid(format!("{path}: extensions must be a list of objects"))),
    };
    if all.len() > MAX_EXTENSIONS {
        return Err(Error::invalid(format!("{path}: at most {MAX_EXTENSIONS} extensions are taken")));
    }
    let mut read: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(all.len());
    for (at, object) in all.iter().enumerate() {
        let path = format!("{path}: extensions[{at}]");
        let refuse = |text: &str| Error::invalid(format!("{path}: {text}"));
        let id = parse_oid(member(object, &path, "id")?).ok_or_else(|| refuse("id must be a dotted OID"))?;
        if read.iter().any(|(known, _)| *known == id) {
            return Err(refuse("its id is there before (RFC 5280 4.2)"));
        }
        let value = STANDARD.decode(member(object, &path, "value")?).map_err(|_| refuse("value must be base64"))?;
        let critical = match object.get("critical") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(critical)) => *critical,
            Some(_) => return Err(refuse("critical must be a boolean")),
        };
        let raw = extension(&id, critical, &value);
        read.push((id, raw));
    }
    Ok(read)
}

fn list_extensions(fields: &Fields) -> Result<Vec<Vec<u8>>> {
    let all = extensions(fields.value("extensions"), "extensions")?;
    if let Some((_, name)) = RESERVED.iter().find(|(oid, _)| all.iter().any(|(id, _)| id == oid)) {
        return Err(Error::invalid(format!("extensions: {name} is written by the server")));
    }
    Ok(all.into_iter().map(|(_, raw)| raw).collect())
}

/// The entries of all lists; of a serial that is on several the first revocation counts.
fn union(fields: &Fields, key: &crate::x509::public_key::PublicKey) -> Result<(Batch, Vec<String>)> {
    let mut entries: BTreeMap<Serial, i64> = BTreeMap::new();
    let (mut repeated, mut stripped) = (0, 0);
    let crls = fields.strings("crls")?.unwrap_or_default();
    if crls.len() > MAX_LISTS {
        return Err(Error::invalid(format!("crls: at most {MAX_LISTS} lists are taken")));
    }
    for (at, text) in crls.iter().enumerate() {
        let crl = read(text).map_err(|e| Error::invalid(format!("crls: CRL index {at}: {}", e.text())))?;
        if !crl.is_signed_by(key) {
            return Err(Error::invalid(format!("crls: CRL index {at} was not signed by the requested issuer")));
        }
        for listed in crl.entries() {
            stripped += usize::from(listed.has_extensions);
            let known = entries.entry(listed.serial).or_insert(i64::MAX);
            repeated += usize::from(*known != i64::MAX);
            *known = listed.revoked_at.min(*known);
        }
    }
    let mut warnings = Vec::new();
    if repeated > 0 {
        warnings.push(format!("{repeated} serial numbers are on several lists; the earliest revocation was kept"));
    }
    if stripped > 0 {
        warnings.push(format!("the extensions of {stripped} entries were dropped"));
    }
    let mut batch = Batch::default();
    for (serial, revoked_at) in entries {
        batch.push(serial, &entry(&serial, revoked_at, None, None), i64::MAX);
    }
    Ok((batch, warnings))
}

/// A list as PEM or as base64 of DER.
fn read(text: &str) -> Result<Crl> {
    if !text.contains("-----BEGIN") {
        let der = STANDARD.decode(text.split_ascii_whitespace().collect::<String>());
        return Crl::parse(&der.map_err(|_| Error::invalid("must be PEM or base64"))?);
    }
    match pem::blocks(text)?.as_slice() {
        [(label, der)] if label == "X509 CRL" => Crl::parse(der),
        _ => Err(Error::invalid("must be exactly one PEM block X509 CRL")),
    }
}

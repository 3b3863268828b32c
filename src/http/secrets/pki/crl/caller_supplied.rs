//! CRLs whose content is in the request: `sign-revocation-list` signs entries with any serial numbers, `resign-crls`
//! merges other CRLs of the same key. Requests may have megabytes, so they are parsed and rendered in the CPU queue.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::clock::{Time, parse_rfc3339};
use crate::error::{Error, Result, Warnings};
use crate::fields::Fields;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::pki::mount::settings::crl::parse_lifetime;
use crate::pki::revocation::caller_supplied_crl::{
    CallerSuppliedCrl, CallerSuppliedCrlSigner, CallerSuppliedCrlTerms, CallerSuppliedEntries, CallerSuppliedEntry,
    CallerSuppliedExtensions, CrlUnion, MAX_UNION_CRLS,
};
use crate::rationing::cpu;
use crate::x509::crl::Crl;
use crate::x509::extension::MAX_EXTENSIONS;
use crate::x509::oid::parse_oid;
use crate::x509::pem;
use crate::x509::serial::Serial;

/// Fields of `sign-revocation-list`.
pub(crate) const SIGN_FIELDS: &[&str] =
    &["revoked_certs", "extensions", "crl_number", "delta_crl_base_number", "next_update", "format"];
/// Fields of `resign-crls`.
pub(crate) const RESIGN_FIELDS: &[&str] = &["crls", "crl_number", "delta_crl_base_number", "next_update", "format"];

pub(crate) async fn sign(call: Call) -> Result<HandlerResponse> {
    parse_and_sign(call, parse_entries).await
}

pub(crate) async fn resign(call: Call) -> Result<HandlerResponse> {
    parse_and_sign(call, merge_crls).await
}

/// Parses a request body into the content of a CRL that the issuer will sign.
type CrlContentParser =
    fn(&Fields, CallerSuppliedCrlTerms, &CallerSuppliedCrlSigner) -> Result<(CallerSuppliedCrl, Warnings)>;

async fn parse_and_sign(mut call: Call, parse_content: CrlContentParser) -> Result<HandlerResponse> {
    let fields = std::mem::take(&mut call.fields);
    let signer = CallerSuppliedCrlSigner::of(&*call.authority().await?, call.param("issuer_ref"))?;
    let work = move || -> Result<_> {
        let is_der = is_der(&fields)?;
        let (list, warnings) = parse_content(&fields, read_terms(&fields)?, &signer)?;
        Ok((is_der, signer, list, warnings))
    };
    let (is_der, signer, list, warnings) = cpu::run(work).await??;
    let der = signer.sign(list).await?;
    let text = move || if is_der { STANDARD.encode(&der) } else { pem::encode(pem::CRL_LABEL, &der) };
    Ok(HandlerResponse::data(json!({ "crl": cpu::run(text).await? })).with_warnings(warnings))
}

fn is_der(fields: &Fields) -> Result<bool> {
    match fields.text("format")?.as_deref() {
        None | Some("" | "pem") => Ok(false),
        Some("der") => Ok(true),
        Some(_) => Err(Error::invalid("format: must be pem or der")),
    }
}

fn read_terms(fields: &Fields) -> Result<CallerSuppliedCrlTerms> {
    let number = fields.int("crl_number")?.ok_or_else(|| Error::invalid("crl_number: must be given"))?;
    let number = u64::try_from(number).map_err(|_| Error::invalid("crl_number: must not be negative"))?;
    let base = match fields.int("delta_crl_base_number")?.unwrap_or(-1) {
        -1 => None,
        base => Some(u64::try_from(base).map_err(|_| {
            Error::invalid("delta_crl_base_number: must be the number of a complete CRL, or -1 for none")
        })?),
    };
    let terms = CallerSuppliedCrlTerms::new(number, base)?;
    match fields.text("next_update")?.filter(|text| !text.is_empty()) {
        Some(text) => terms.with_lifetime(parse_lifetime("next_update", &text)?),
        None => Ok(terms),
    }
}

fn parse_entries(
    fields: &Fields,
    terms: CallerSuppliedCrlTerms,
    _: &CallerSuppliedCrlSigner,
) -> Result<(CallerSuppliedCrl, Warnings)> {
    let mut entries = CallerSuppliedEntries::of(&terms);
    let mut long = Vec::new();
    for (at, object) in read_objects(fields, "revoked_certs")?.iter().enumerate() {
        let path = format!("revoked_certs[{at}]");
        let serial = Serial::parse(required_text(object, &path, "serial_number")?)
            .map_err(|e| Error::invalid(format!("{path}: {}", e.text())))?;
        let extensions = read_extensions(object.get("extensions"), &path)?;
        let revoked_at = read_time(object.get("revocation_time"), &path)?;
        entries.push(&CallerSuppliedEntry { serial, revoked_at, extensions })?;
        long.extend(serial.is_too_long().then_some(at));
    }
    let extensions = read_extensions(fields.value("extensions"), "extensions")?;
    let warning = long.first().map(|first| {
        let count = long.len();
        format!(
            "revoked_certs: {count} serial numbers, the first in revoked_certs[{first}], have 21 octets in DER, and \
             RFC 5280 4.1.2.2 permits at most 20; some clients may reject the CRL"
        )
    });
    Ok((entries.into_crl(terms, extensions)?, warning.into_iter().collect()))
}

/// Merges the entries of all CRLs in the request into one CRL.
fn merge_crls(
    fields: &Fields,
    terms: CallerSuppliedCrlTerms,
    signer: &CallerSuppliedCrlSigner,
) -> Result<(CallerSuppliedCrl, Warnings)> {
    let crls = fields.strings("crls")?.unwrap_or_default();
    if crls.len() > MAX_UNION_CRLS {
        return Err(Error::invalid(format!("crls: at most {MAX_UNION_CRLS} CRLs are allowed")));
    }
    let mut union = CrlUnion::new(signer);
    for (at, text) in crls.iter().enumerate() {
        let crl = parse_crl(text).map_err(|e| Error::invalid(format!("crls: CRL index {at}: {}", e.text())))?;
        union.push(&crl)?;
    }
    let (entries, warnings) = union.into_batch();
    Ok((CallerSuppliedCrl { terms, entries, extensions: CallerSuppliedExtensions::default() }, warnings))
}

/// Parses a CRL in PEM, or in base64 of its DER.
fn parse_crl(text: &str) -> Result<Crl> {
    if !text.contains("-----BEGIN") {
        let der = STANDARD.decode(text.split_ascii_whitespace().collect::<String>());
        return Crl::parse(&der.map_err(|_| Error::invalid("must be PEM or base64"))?);
    }
    match pem::parse_blocks(text)?.as_slice() {
        [(label, der)] if label == pem::CRL_LABEL => Crl::parse(der),
        _ => Err(Error::invalid("must be exactly one PEM block of type X509 CRL")),
    }
}

/// Returns the elements of a field that must be a list of objects; empty if the field is absent.
fn read_objects<'a>(fields: &'a Fields, name: &str) -> Result<&'a [Value]> {
    match fields.value(name) {
        None => Ok(&[]),
        Some(Value::Array(all)) => Ok(all),
        Some(_) => Err(Error::invalid(format!("{name}: must be a list of objects"))),
    }
}

/// Returns the member `name` of `object`, which must be a non-empty string. Errors begin with `path`, the path of
/// `object` in the request.
fn required_text<'a>(object: &'a Value, path: &str, name: &str) -> Result<&'a str> {
    let text = object.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.ok_or_else(|| Error::invalid(format!("{path}: {name} must be a non-empty string")))
}

/// Parses a time in RFC 3339, or in epoch seconds as number or text, and truncates fractions.
fn read_time(value: Option<&Value>, path: &str) -> Result<i64> {
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
    let range = Time::UNIX_EPOCH.unix_timestamp()..=253_402_300_799;
    seconds
        .filter(|seconds| range.contains(seconds))
        .ok_or_else(|| Error::invalid(format!("{field} must be RFC 3339 or epoch seconds, from 1970 to 9999")))
}

/// Parses the extensions of an entry or a CRL, in order.
fn read_extensions(value: Option<&Value>, path: &str) -> Result<CallerSuppliedExtensions> {
    let all = match value {
        None | Some(Value::Null) => return Ok(CallerSuppliedExtensions::default()),
        Some(Value::Array(all)) => all,
        Some(_) => return Err(Error::invalid(format!("{path}: extensions must be a list of objects"))),
    };
    if all.len() > MAX_EXTENSIONS {
        return Err(Error::invalid(format!("{path}: at most {MAX_EXTENSIONS} extensions are allowed")));
    }
    let mut read = CallerSuppliedExtensions::default();
    for (at, object) in all.iter().enumerate() {
        let path = format!("{path}: extensions[{at}]");
        let refuse = |text: &str| Error::invalid(format!("{path}: {text}"));
        let id = parse_oid(required_text(object, &path, "id")?).ok_or_else(|| refuse("id must be a dotted OID"))?;
        let value =
            STANDARD.decode(required_text(object, &path, "value")?).map_err(|_| refuse("value must be base64"))?;
        let critical = match object.get("critical") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(critical)) => *critical,
            Some(_) => return Err(refuse("critical must be a boolean")),
        };
        read.push(&path, id, critical, &value)?;
    }
    Ok(read)
}

//! Warnings about parts of a CSR that the certificate lacks, so that the caller notices an incompletely granted
//! request.

use std::collections::HashSet;

use super::release::{CertificateDraft, SubjectKeyIdSource};
use crate::error::Warnings;
use crate::x509::csr::Csr;
use crate::x509::extension::{self, ParsedSans, RawExtension};
use crate::x509::oid;
use crate::x509::pieces::Extensions;
use crate::x509::profile;
use crate::x509::raw_extension::{ExtensionRef, read_basic_constraints, read_ext_key_usage, read_key_usage};
use crate::x509::reader::{DerReader, DerResult};
use crate::x509::usage::eku_text;

/// Maximum number of a CSR's parts that are listed in warnings.
const MAX_LISTED_PARTS: usize = 20;

/// OIDs and names of common CSR attributes.
const KNOWN_ATTRIBUTES: [(&str, &str); 7] = [
    ("1.2.840.113549.1.9.2", "unstructuredName"),
    ("1.2.840.113549.1.9.7", "challengePassword"),
    ("1.2.840.113549.1.9.8", "unstructuredAddress"),
    ("1.3.6.1.4.1.311.2.1.14", "Microsoft certificate extensions"),
    ("1.3.6.1.4.1.311.13.2.2", "Microsoft enrollment CSP"),
    ("1.3.6.1.4.1.311.13.2.3", "Microsoft OS version"),
    ("1.3.6.1.4.1.311.21.20", "Microsoft client information"),
];

/// Returns warnings about subject attributes, extensions and attributes of `csr` that `draft` lacks.
pub(super) fn warnings(draft: &CertificateDraft, csr: &Csr) -> Warnings {
    let mut warnings = Warnings::default();
    let missing = csr.subject.missing_in(&draft.subject);
    if !missing.is_empty() {
        warnings.add(format!("csr: subject not granted: {}", join_limited(&missing)));
    }
    let key_id_extension = match &draft.key_id {
        SubjectKeyIdSource::Derived if csr.extension(oid::SUBJECT_KEY_ID).is_some() => {
            extension::subject_key_id(&csr.key.key_id())
        }
        SubjectKeyIdSource::Given(octets) => extension::subject_key_id(octets),
        SubjectKeyIdSource::Derived | SubjectKeyIdSource::Copied => Extensions::default(),
    };
    let pieces = [&draft.leading_extensions, &key_id_extension, &draft.trailing_extensions];
    let mut missing = csr.extensions.iter().filter_map(|requested| describe_missing(requested, &pieces));
    warnings.extend(missing.by_ref().take(MAX_LISTED_PARTS).map(|part| format!("csr: extension not granted: {part}")));
    let more = missing.count();
    if more > 0 {
        warnings.add(format!("csr: {more} more extensions not granted"));
    }
    // Certificates never contain attributes of a CSR. Attribute values may be passwords, so they are not quoted.
    let attributes: Vec<String> = csr.other_attributes.iter().map(|oid| attribute_name(oid)).collect();
    if !attributes.is_empty() {
        warnings.add(format!("csr: attributes not granted: {}", join_limited(&attributes)));
    }
    warnings
}

fn attribute_name(oid: &[u8]) -> String {
    let dotted = extension::oid_text(oid);
    match KNOWN_ATTRIBUTES.iter().find(|(known, _)| *known == dotted) {
        Some((_, name)) => format!("{name} ({dotted})"),
        None => dotted,
    }
}

fn join_limited(names: &[String]) -> String {
    let more = names.len().saturating_sub(MAX_LISTED_PARTS);
    let names = names[..names.len() - more].join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}

/// Describes what the certificate lacks of a CSR's extension: the extension's name and, for lists, the missing entries.
fn describe_missing(requested: &RawExtension, pieces: &[&Extensions]) -> Option<String> {
    let Some(granted) = pieces.iter().find_map(|piece| find_extension(piece, &requested.oid)) else {
        let critical = if requested.critical { ", critical" } else { "" };
        return Some(format!("{}{critical}", describe_extension(requested)));
    };
    if granted.value == requested.value {
        return None;
    }
    match missing_entries(requested, granted.value) {
        Ok(Some(missing)) if missing.is_empty() => None,
        Ok(Some(missing)) => Some(format!("{}: {}", describe_extension(requested), join_limited(&missing))),
        _ => Some(format!("{}: the certificate has another value", describe_extension(requested))),
    }
}

fn describe_extension(requested: &RawExtension) -> String {
    let dotted = requested.oid_text();
    match profile::find_certificate_extension(&requested.oid) {
        Some(known) => format!("{} ({dotted})", known.name()),
        None => dotted,
    }
}

/// Finds the extension with this OID in a list of encoded extensions.
pub(super) fn find_extension<'a>(piece: &'a Extensions, oid: &[u8]) -> Option<ExtensionRef<'a>> {
    let mut extensions = DerReader::new(piece.as_der());
    while !extensions.is_empty() {
        let next = ExtensionRef::next(&mut extensions).ok()?;
        if next.oid == oid {
            return Some(next);
        }
    }
    None
}

/// Returns the entries of a requested extension that the `granted` value lacks; `None` for extensions that are compared
/// as a whole.
fn missing_entries(requested: &RawExtension, granted: &[u8]) -> DerResult<Option<Vec<String>>> {
    let missing = match requested.oid.as_slice() {
        oid::KEY_USAGE => {
            let beyond = read_key_usage(&requested.value)?.names_beyond(read_key_usage(granted)?);
            beyond.into_iter().map(str::to_owned).collect()
        }
        oid::EXT_KEY_USAGE => {
            let granted: HashSet<_> = read_ext_key_usage(granted)?.into_iter().collect();
            let requested = read_ext_key_usage(&requested.value)?;
            requested.iter().filter(|purpose| !granted.contains(*purpose)).map(|purpose| eku_text(purpose)).collect()
        }
        oid::BASIC_CONSTRAINTS => {
            let requested = read_basic_constraints(&requested.value)?;
            let granted = read_basic_constraints(granted)?;
            let differs = requested.path_length.is_some() && requested.path_length != granted.path_length;
            let cas = (requested.ca && !granted.ca).then(|| "cA".to_owned());
            cas.into_iter().chain(differs.then(|| "pathLenConstraint".to_owned())).collect()
        }
        oid::SUBJECT_ALT_NAME => {
            let granted: HashSet<String> = format_sans(ParsedSans::read(granted)?).into_iter().collect();
            format_sans(ParsedSans::read(&requested.value)?)
                .into_iter()
                .filter(|name| !granted.contains(name))
                .collect()
        }
        _ => return Ok(None),
    };
    Ok(Some(missing))
}

/// Formats subject alternative names for messages.
fn format_sans(sans: ParsedSans) -> Vec<String> {
    let mut all = sans.dns;
    all.extend(sans.emails);
    all.extend(sans.ips.iter().map(ToString::to_string));
    all.extend(sans.uris);
    all.extend(sans.other.iter().map(|(oid, value)| format!("otherName {} {value:?}", extension::oid_text(oid))));
    all.extend(sans.unsupported_name_kind.map(str::to_owned));
    all
}

//! Parsed extensions: raw bytes, and the few values that this server interprets.

use super::oid::{self, oid_text};
use super::pieces::Extensions;
use super::reader::{DerError, DerReader, DerResult};
use super::usage::{KeyUsage, OCSP_SIGNING};
use super::writer::{BIT_STRING, SEQUENCE, context};

/// Maximum number of extensions in a received certificate, CRL or request, and in anything to be signed.
pub const MAX_EXTENSIONS: usize = 100;

/// One extension of a certificate, CRL or request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawExtension {
    /// The OID, DER content bytes.
    pub oid: Vec<u8>,
    /// `true` if the extension is critical.
    pub critical: bool,
    /// The content of extnValue.
    pub value: Vec<u8>,
    /// The encoded `Extension`.
    pub raw: Extensions,
}

impl RawExtension {
    /// Reads the elements of an `Extensions` SEQUENCE, in order; rejects more than [`MAX_EXTENSIONS`].
    pub(crate) fn read_bounded(extensions: DerReader<'_>) -> DerResult<Vec<Self>> {
        Self::read_up_to(extensions, MAX_EXTENSIONS)
    }

    /// Reads the elements of an `Extensions` SEQUENCE, in order. Duplicate OIDs are rejected (RFC 5280 4.2).
    pub(crate) fn read_all(extensions: DerReader<'_>) -> DerResult<Vec<Self>> {
        Self::read_up_to(extensions, usize::MAX)
    }

    fn read_up_to(extensions: DerReader<'_>, max: usize) -> DerResult<Vec<Self>> {
        let all = ExtensionRef::list(extensions, max)?.into_iter().map(|extension| {
            let ExtensionRef { oid, critical, value, raw } = extension;
            // Explicit FALSE is not DER, but occurs in valid certificates of old authorities.
            let critical = critical.unwrap_or(false);
            Ok(Self { oid: oid.to_vec(), critical, value: value.to_vec(), raw: Extensions::from_der(raw)? })
        });
        all.collect()
    }

    /// The dotted OID, for messages.
    pub fn oid_text(&self) -> String {
        oid_text(&self.oid)
    }
}

pub(crate) const TOO_MANY_EXTENSIONS: DerError = DerError("more than 100 extensions");

/// An extension as slices of its encoding.
#[derive(Clone, Copy)]
pub struct ExtensionRef<'a> {
    /// The OID, DER content bytes.
    pub oid: &'a [u8],
    /// The encoded `critical`; `None` if it is absent, which means FALSE.
    pub critical: Option<bool>,
    /// The content of extnValue.
    pub value: &'a [u8],
    /// The encoded `Extension`.
    pub raw: &'a [u8],
}

impl<'a> ExtensionRef<'a> {
    /// Reads the elements of an `Extensions` SEQUENCE, in order; rejects more than `max` elements, and duplicate OIDs
    /// (RFC 5280 4.2).
    ///
    /// # Errors
    /// The violated rule.
    pub(crate) fn list(mut extensions: DerReader<'a>, max: usize) -> DerResult<Vec<Self>> {
        let mut all = Vec::with_capacity(8);
        while !extensions.is_empty() {
            if all.len() == max {
                return Err(TOO_MANY_EXTENSIONS);
            }
            all.push(Self::next(&mut extensions)?);
        }
        let mut oids: Vec<&[u8]> = all.iter().map(|extension| extension.oid).collect();
        oids.sort_unstable();
        if oids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(DerError("an extension appears twice (RFC 5280 4.2)"));
        }
        Ok(all)
    }

    /// Reads the next element of an `Extensions` SEQUENCE.
    ///
    /// # Errors
    /// The violated DER rule.
    pub fn next(extensions: &mut DerReader<'a>) -> DerResult<Self> {
        let whole = extensions.expect(SEQUENCE)?;
        let mut fields = whole.reader();
        let oid = fields.oid()?;
        let critical = fields.optional_boolean()?;
        let value = fields.octet_string()?;
        fields.done()?;
        Ok(Self { oid, critical, value, raw: whole.raw })
    }
}

/// Returns the extension with this OID.
pub fn find_extension<'a>(extensions: &'a [RawExtension], oid: &[u8]) -> Option<&'a RawExtension> {
    extensions.iter().find(|extension| extension.oid == oid)
}

/// `true` if the extensions of a certificate grant OCSPSigning (RFC 6960 4.2.2.2). If the key of such a certificate
/// signs an OCSP response, clients accept the response as if the certificate's issuer had signed it.
pub fn grants_ocsp_signing(extensions: &[RawExtension]) -> bool {
    let usage = find_extension(extensions, oid::EXT_KEY_USAGE).and_then(|usage| read_ext_key_usage(&usage.value).ok());
    usage.is_some_and(|purposes| purposes.contains(&OCSP_SIGNING))
}

/// The value of a basicConstraints extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BasicConstraints {
    /// `true` if the subject is a certificate authority.
    pub ca: bool,
    /// Number of further CA certificates that may follow below this one in a chain; `None` for no limit.
    pub path_length: Option<u32>,
}

/// Reads basicConstraints, if present (RFC 5280 4.2.1.9).
pub(crate) fn basic_constraints(extensions: &[RawExtension]) -> DerResult<Option<BasicConstraints>> {
    find_extension(extensions, oid::BASIC_CONSTRAINTS).map(|e| read_basic_constraints(&e.value)).transpose()
}

pub(crate) fn read_basic_constraints(value: &[u8]) -> DerResult<BasicConstraints> {
    let mut fields = DerReader::read_single(value, SEQUENCE)?.reader();
    let ca = fields.optional_boolean()?.unwrap_or(false);
    let path_length = if fields.is_empty() { None } else { Some(fields.read_u32()?) };
    fields.done()?;
    Ok(BasicConstraints { ca, path_length })
}

/// Reads keyUsage, if present (RFC 5280 4.2.1.3).
pub(crate) fn key_usage(extensions: &[RawExtension]) -> DerResult<Option<KeyUsage>> {
    find_extension(extensions, oid::KEY_USAGE).map(|e| read_key_usage(&e.value)).transpose()
}

pub(crate) fn read_key_usage(value: &[u8]) -> DerResult<KeyUsage> {
    let content = DerReader::read_single(value, BIT_STRING)?.content;
    KeyUsage::from_bit_string_content(content).ok_or(DerError("malformed keyUsage"))
}

/// Reads the value of extKeyUsage and returns the OIDs as DER content bytes.
pub(crate) fn read_ext_key_usage(value: &[u8]) -> DerResult<Vec<&[u8]>> {
    let mut purposes = DerReader::read_single(value, SEQUENCE)?.reader();
    let mut all = Vec::new();
    while !purposes.is_empty() {
        all.push(purposes.oid()?);
    }
    Ok(all)
}

/// Reads subjectKeyIdentifier, if present (RFC 5280 4.2.1.2).
pub(crate) fn subject_key_id(extensions: &[RawExtension]) -> DerResult<Option<Vec<u8>>> {
    let Some(extension) = find_extension(extensions, oid::SUBJECT_KEY_ID) else { return Ok(None) };
    DerReader::read_to_end(&extension.value, DerReader::octet_string).map(|id| Some(id.to_vec()))
}

/// Reads keyIdentifier of authorityKeyIdentifier, if present (RFC 5280 4.2.1.1).
pub(crate) fn authority_key_id(extensions: &[RawExtension]) -> DerResult<Option<Vec<u8>>> {
    let Some(extension) = find_extension(extensions, oid::AUTHORITY_KEY_ID) else { return Ok(None) };
    let mut fields = DerReader::read_single(&extension.value, SEQUENCE)?.reader();
    Ok(fields.optional(context(0))?.map(|id| id.content.to_vec()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::x509::extension;

    fn read(pieces: &[Extensions]) -> DerResult<Vec<RawExtension>> {
        RawExtension::read_all(DerReader::new(Extensions::joined(&pieces.iter().collect::<Vec<_>>()).as_der()))
    }

    #[test]
    fn encoded_extensions_read_back() {
        let all = read(&[
            extension::key_usage(KeyUsage::CERT_SIGN),
            extension::basic_constraints(true, Some(3)),
            extension::subject_key_id(&[1; 20]),
            extension::authority_key_id(&[2; 20]),
        ])
        .unwrap();
        assert_eq!(key_usage(&all), Ok(Some(KeyUsage::CERT_SIGN)));
        assert_eq!(basic_constraints(&all), Ok(Some(BasicConstraints { ca: true, path_length: Some(3) })));
        assert_eq!(subject_key_id(&all), Ok(Some(vec![1; 20])));
        assert_eq!(authority_key_id(&all), Ok(Some(vec![2; 20])));
        assert!(all[0].critical && !all[2].critical);
        assert_eq!(extension::extension(&all[1].oid, all[1].critical, &all[1].value), all[1].raw);
        assert_eq!(key_usage(&[]), Ok(None));
    }

    #[test]
    fn an_extension_that_appears_twice_is_refused() {
        let id = extension::subject_key_id(&[1]);
        assert!(read(&[id.clone(), id]).unwrap_err().0.contains("twice"));
    }

    #[test]
    fn received_extensions_are_counted_before_they_are_read() {
        let of = |n: usize| extension::extension(&[0x2a, 3, (n / 100) as u8, (n % 100) as u8], false, &[5, 0]);
        let many = |count: usize| (0..count).flat_map(|n| of(n).as_der().to_vec()).collect::<Vec<u8>>();
        assert_eq!(RawExtension::read_bounded(DerReader::new(&many(MAX_EXTENSIONS))).unwrap().len(), MAX_EXTENSIONS);
        assert_eq!(RawExtension::read_bounded(DerReader::new(&many(MAX_EXTENSIONS + 1))), Err(TOO_MANY_EXTENSIONS));
        // Data after the counted extensions is not read.
        let broken = [many(MAX_EXTENSIONS), vec![0x30, 0x80]].concat();
        assert_eq!(RawExtension::read_bounded(DerReader::new(&broken)), Err(TOO_MANY_EXTENSIONS));
        assert_eq!(
            RawExtension::read_all(DerReader::new(&many(10_000))).unwrap().len(),
            10_000,
            "what is stored is read"
        );
        assert!(TOO_MANY_EXTENSIONS.0.contains(&MAX_EXTENSIONS.to_string()));
    }

    #[test]
    fn an_explicit_false_is_read_as_false() {
        let explicit = [0x30, 13, 6, 3, 0x55, 0x1d, 14, 1, 1, 0, 4, 3, 4, 1, 9];
        let all = RawExtension::read_all(DerReader::new(&explicit)).unwrap();
        assert!(!all[0].critical);
        assert_eq!(subject_key_id(&all), Ok(Some(vec![9])));
    }

    proptest! {
        #[test]
        fn extension_values_of_any_bytes_do_not_panic(value in proptest::collection::vec(any::<u8>(), 0..20)) {
            for oid in [oid::BASIC_CONSTRAINTS, oid::KEY_USAGE, oid::SUBJECT_KEY_ID, oid::AUTHORITY_KEY_ID] {
                let all = read(&[extension::extension(oid, false, &value)]).unwrap();
                let _ = (basic_constraints(&all), key_usage(&all), subject_key_id(&all), authority_key_id(&all));
            }
        }
    }
}

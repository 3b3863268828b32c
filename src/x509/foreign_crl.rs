//! CRLs of other systems (RFC 5280 5), to import the revocations of another CA.
//!
//! A CRL may have millions of entries. It is kept as received, and entries are read in pages. CRLs that cannot be
//! interpreted as revocations of the issuer's own certificates are rejected: delta and indirect CRLs, CRLs that cover
//! only some reasons or only attribute certificates, and unknown critical extensions (5.2, 5.3). Version 1, missing CRL
//! numbers and SHA-1 signatures are accepted, because CAs have published such CRLs. The parsers of fields and
//! entries also serve [`Crl`](super::crl::Crl).

use std::ops::Range;

use super::oid::{self, oid_text};
use super::pieces::Name;
use super::public_key::PublicKey;
use super::raw_extension::{ExtensionRef, RawExtension, find_extension};
use super::reader::{DerError, DerReader, DerResult, to_u64};
use super::serial::Serial;
use super::signed::SignedDer;
use super::time;
use super::writer::{ENUMERATED, GENERALIZED_TIME, INTEGER, SEQUENCE, context, context_constructed};
use crate::error::{Error, Result};

/// Exclusive upper limit of imported CRL numbers, which leaves enough numbers for later CRLs.
pub const MAX_CRL_NUMBER: u64 = 1 << 62;
/// The reason certificateHold (5.3.1).
pub const CERTIFICATE_HOLD: u8 = 6;
/// The reason removeFromCRL, which only delta CRLs have.
const REMOVE_FROM_CRL: u8 = 8;

/// A CRL of another system.
#[derive(Debug)]
pub struct ForeignCrl {
    head: CrlHead,
    /// thisUpdate, epoch seconds.
    pub this_update: i64,
    /// nextUpdate, epoch seconds.
    pub next_update: Option<i64>,
    /// The CRL number (5.2.3), if present.
    pub number: Option<u64>,
    /// `true` if issuingDistributionPoint (5.2.5) states that the CRL does not cover all certificates of its issuer.
    pub is_partial: bool,
}

/// One revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignCrlEntry {
    /// The serial number.
    pub serial: Serial,
    /// Time of the revocation, epoch seconds.
    pub revoked_at: i64,
    /// The reason (5.3.1); `None` for unspecified.
    pub reason: Option<u8>,
    /// The invalidity date (5.3.2), epoch seconds.
    pub invalidity_date: Option<i64>,
}

impl ForeignCrl {
    /// Reads a CRL except for its entries.
    ///
    /// # Errors
    /// `Invalid`, naming `crl` and the rule.
    pub fn read(der: Vec<u8>) -> Result<Self> {
        let head = CrlHead::read(der)?;
        if head.signed.sha1_algorithm().is_none() {
            let refused = |e: Error| Error::invalid(format!("crl: its signature is not accepted: {}", e.text()));
            head.signed.algorithm().map_err(refused)?;
        }
        if find_extension(&head.extensions, oid::DELTA_CRL_INDICATOR).is_some() {
            return Err(Error::invalid("crl: delta CRLs are not supported; send the complete CRL"));
        }
        let number =
            find_extension(&head.extensions, oid::CRL_NUMBER).map(|number| read_number(&number.value)).transpose()?;
        let is_partial = read_is_partial(&head.extensions)?;
        Ok(Self { this_update: head.this_update, next_update: head.next_update, number, is_partial, head })
    }

    /// The issuer, with its original bytes.
    pub fn issuer(&self) -> &Name {
        &self.head.issuer
    }

    /// `true` if the signature is valid under `key`. Takes time proportional to the length of the CRL.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        self.head.signed.is_signed_by_any_hash(key)
    }

    /// `true` if the signature algorithm uses SHA-1.
    pub fn is_signed_over_sha1(&self) -> bool {
        self.head.signed.sha1_algorithm().is_some()
    }

    /// Reads the entries in pages of up to `max`. The caller must stop at the first error.
    ///
    /// # Errors
    /// `Invalid`, naming the rule and, if known, the serial number of the entry.
    pub fn pages(&self, max: usize) -> impl Iterator<Item = Result<Vec<ForeignCrlEntry>>> {
        let mut list = self.head.entry_list();
        std::iter::from_fn(move || {
            let entry = || (!list.is_empty()).then(|| CrlEntryFields::next(&mut list).and_then(ForeignCrlEntry::read));
            let page: Result<Vec<_>> = std::iter::from_fn(entry).take(max).collect();
            Some(page).filter(|page| !page.as_ref().is_ok_and(Vec::is_empty))
        })
    }
}

fn crl_error(error: DerError) -> Error {
    error.into_error("crl")
}

/// Returns the range of `part` within `whole`, of which it is a subslice.
fn range_of(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start + part.len()
}

/// A CRL that is parsed except for its entries.
#[derive(Clone, Debug)]
pub(super) struct CrlHead {
    pub(super) signed: SignedDer,
    pub(super) issuer: Name,
    pub(super) this_update: i64,
    pub(super) next_update: Option<i64>,
    pub(super) extensions: Vec<RawExtension>,
    /// The range of the content of revokedCertificates within the DER.
    entries: Range<usize>,
}

impl CrlHead {
    /// Reads a CRL except for its entries.
    ///
    /// # Errors
    /// `Invalid`, naming `crl` and the rule.
    pub(super) fn read(der: Vec<u8>) -> Result<Self> {
        SignedDer::read(der).and_then(Self::from_signed).map_err(crl_error)
    }

    fn from_signed(signed: SignedDer) -> DerResult<Self> {
        let mut fields = signed.fields();
        // The version is absent in version 1, which has no extensions.
        if fields.optional(INTEGER)?.is_some_and(|version| version.content != [1]) {
            return Err(DerError("the version must be 2, or absent (RFC 5280 5.1.2.1)"));
        }
        if fields.expect(SEQUENCE)?.raw != signed.algorithm_der() {
            return Err(DerError("the inner and outer signature algorithms must be equal (RFC 5280 5.1.1.2)"));
        }
        let issuer = Name::from_der(fields.expect(SEQUENCE)?.raw)?;
        let this_update = time::read(&mut fields)?;
        let next_update = time::read_optional(&mut fields)?;
        // A CRL without revokedCertificates also needs a range, so this is an empty slice of the input.
        let here = &fields.rest()[..0];
        let entries = fields.optional(SEQUENCE)?.map_or(here, |list| list.content);
        let entries = range_of(signed.der(), entries);
        let extensions = fields.optional_explicit(0, SEQUENCE)?;
        fields.done()?;
        let extensions = RawExtension::read_bounded(extensions.map_or(DerReader::new(&[]), |list| list.reader()))?;
        Ok(Self { issuer, this_update, next_update, extensions, entries, signed })
    }

    /// Returns a reader of the entries.
    pub(super) fn entry_list(&self) -> DerReader<'_> {
        DerReader::new(&self.signed.der()[self.entries.clone()])
    }
}

/// `true` if a CRL with these extensions does not cover all certificates of its issuer.
///
/// # Errors
/// `Invalid`, naming the rule, for an indirect CRL, for a CRL that covers only some reasons or only attribute
/// certificates, and for unknown critical extensions.
pub(super) fn read_is_partial(extensions: &[RawExtension]) -> Result<bool> {
    let known = [oid::CRL_NUMBER, oid::ISSUING_DISTRIBUTION_POINT, oid::DELTA_CRL_INDICATOR];
    let unknown = extensions.iter().find(|extension| extension.critical && !known.contains(&&extension.oid[..]));
    if let Some(extension) = unknown {
        let id = extension.oid_text();
        return Err(Error::invalid(format!("crl: critical extension {id} is not supported (RFC 5280 5.2)")));
    }
    let scope =
        find_extension(extensions, oid::ISSUING_DISTRIBUTION_POINT).map(|scope| read_distribution_scope(&scope.value));
    scope.transpose().map_err(crl_error).map(|partial| partial.unwrap_or(false))
}

fn read_number(value: &[u8]) -> Result<u64> {
    let octets = DerReader::read_to_end(value, DerReader::unsigned).map_err(crl_error)?;
    let number = to_u64(octets).filter(|number| *number < MAX_CRL_NUMBER);
    number.ok_or_else(|| Error::invalid("crl: CRL number must be below 2^62"))
}

/// Reads issuingDistributionPoint (5.2.5). Returns `true` if the CRL does not cover all certificates of the issuer.
fn read_distribution_scope(value: &[u8]) -> DerResult<bool> {
    let mut fields = DerReader::read_single(value, SEQUENCE)?.reader();
    let named = fields.optional(context_constructed(0))?.is_some();
    let users = fields.optional_flag(context(1))?;
    let authorities = fields.optional_flag(context(2))?;
    let reasons = fields.optional(context(3))?.is_some();
    let indirect = fields.optional_flag(context(4))?;
    let attributes = fields.optional_flag(context(5))?;
    fields.done()?;
    match (reasons, indirect, attributes) {
        (true, ..) => Err(DerError("onlySomeReasons is not supported; send a CRL for all reasons")),
        (_, Some(true), _) => {
            Err(DerError("indirect CRLs, which list certificates of other issuers, are not supported"))
        }
        (.., Some(true)) => Err(DerError("CRLs of attribute certificates are not supported")),
        _ => Ok(named || users == Some(true) || authorities == Some(true)),
    }
}

/// A CRL entry whose extensions are not read yet.
#[derive(Clone, Copy)]
pub(super) struct CrlEntryFields<'a> {
    pub(super) serial: Serial,
    pub(super) revoked_at: i64,
    pub(super) extensions: Option<DerReader<'a>>,
}

impl<'a> CrlEntryFields<'a> {
    /// Reads the next entry of a CRL.
    ///
    /// # Errors
    /// `Invalid`, naming `crl`, the entry and the rule.
    pub(super) fn next(list: &mut DerReader<'a>) -> Result<Self> {
        let mut fields = list.sequence().map_err(crl_error)?;
        let octets = fields.unsigned().map_err(crl_error)?;
        let serial = Serial::from_octets(octets)
            .map_err(|_| Error::invalid("crl: a serial number is longer than 20 octets (RFC 5280 5.1.2.6)"))?;
        let of_entry = |error: DerError| entry_error(serial, error.0);
        let revoked_at = time::read(&mut fields).map_err(of_entry)?;
        let extensions = fields.optional(SEQUENCE).map_err(of_entry)?.map(|list| list.reader());
        fields.done().map_err(of_entry)?;
        Ok(Self { serial, revoked_at, extensions })
    }
}

fn entry_error(serial: Serial, rule: &str) -> Error {
    Error::invalid(format!("crl: entry of serial number {serial}: {rule}"))
}

impl ForeignCrlEntry {
    /// Reads the extensions of a CRL entry.
    ///
    /// # Errors
    /// `Invalid`, naming `crl`, the entry and the rule.
    pub(super) fn read(fields: CrlEntryFields<'_>) -> Result<Self> {
        let CrlEntryFields { serial, revoked_at, extensions } = fields;
        let mut entry = Self { serial, revoked_at, reason: None, invalidity_date: None };
        let mut extensions = extensions.unwrap_or(DerReader::new(&[]));
        let of_entry = |error: DerError| entry_error(serial, error.0);
        let mut seen: Vec<&[u8]> = Vec::new();
        while !extensions.is_empty() {
            let extension = ExtensionRef::next(&mut extensions).map_err(of_entry)?;
            if seen.contains(&extension.oid) || seen.len() == MAX_ENTRY_EXTENSIONS {
                let rule = "an extension appears twice, or there are more than 16 (RFC 5280 4.2)";
                return Err(entry_error(serial, rule));
            }
            seen.push(extension.oid);
            let value = extension.value;
            match extension.oid {
                oid::REASON_CODE => entry.reason = read_reason(value).map_err(of_entry)?,
                oid::INVALIDITY_DATE => entry.invalidity_date = Some(read_invalidity_date(value).map_err(of_entry)?),
                oid::CERTIFICATE_ISSUER => {
                    return Err(entry_error(serial, "names another issuer; indirect CRLs are not supported"));
                }
                unknown if extension.critical == Some(true) => {
                    let id = oid_text(unknown);
                    let rule = format!("critical extension {id} is not supported (RFC 5280 5.3)");
                    return Err(entry_error(serial, &rule));
                }
                _ => {}
            }
        }
        Ok(entry)
    }
}

const MAX_ENTRY_EXTENSIONS: usize = 16;

fn read_invalidity_date(value: &[u8]) -> DerResult<i64> {
    if value.first() != Some(&GENERALIZED_TIME) {
        return Err(DerError("the invalidity date must be a GeneralizedTime (RFC 5280 5.3.2)"));
    }
    DerReader::read_to_end(value, time::read)
}

/// Reads the value of reasonCode; `None` for unspecified.
fn read_reason(value: &[u8]) -> DerResult<Option<u8>> {
    match DerReader::read_single(value, ENUMERATED)?.content {
        [0] => Ok(None),
        [REMOVE_FROM_CRL] => Err(DerError("removeFromCRL is allowed only in delta CRLs (RFC 5280 5.3.1)")),
        [code @ (1..=6 | 9 | 10)] => Ok(Some(*code)),
        _ => Err(DerError("the reason code is not one of RFC 5280 5.3.1")),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::x509::algorithm::SignatureAlgorithm;
    use crate::x509::crl::{CrlTbs, encode_entry, encode_entry_with_extensions};
    use crate::x509::extension::{crl_number, delta_crl_indicator, extension};
    use crate::x509::name;
    use crate::x509::pieces::Extensions;

    const TEST_ALGORITHM: SignatureAlgorithm = SignatureAlgorithm::Ed25519;

    fn serial(last: u8) -> Serial {
        Serial::from_octets(&[0x80, last]).unwrap()
    }

    fn list(entries: &[Vec<u8>], extensions: &[&Extensions]) -> Vec<u8> {
        let issuer = name::name(&[]);
        let entries = entries.iter().cloned().map(Bytes::from).collect();
        let tbs = CrlTbs { algorithm: TEST_ALGORITHM, issuer: &issuer, this_update: 5, next_update: 9, extensions };
        tbs.encode(entries).signed(TEST_ALGORITHM, &[0; 64]).concat()
    }

    fn list_with_number(entries: &[Vec<u8>]) -> Vec<u8> {
        list(entries, &[&crl_number(300)])
    }

    fn read_all_entries(der: Vec<u8>) -> Result<Vec<ForeignCrlEntry>> {
        let pages: Result<Vec<_>> = ForeignCrl::read(der)?.pages(2).collect();
        Ok(pages?.concat())
    }

    #[test]
    fn crl_entries_are_read_in_pages_with_reasons_and_dates() {
        let entries = [
            encode_entry(&serial(1), 1_700_000_001, None, None),
            encode_entry(&serial(2), 1_700_000_002, Some(1), Some(1_600_000_000)),
            encode_entry(&serial(3), 2_600_000_000, Some(10), None),
            encode_entry_with_extensions(&serial(4), 7, &extension(&[0x2a, 3, 4], false, &[5, 0])),
            encode_entry_with_extensions(&serial(5), 7, &extension(oid::REASON_CODE, false, &[ENUMERATED, 1, 0])),
        ];
        let read = read_all_entries(list_with_number(&entries)).unwrap();
        let of = |last, revoked_at, reason, invalidity_date| ForeignCrlEntry {
            serial: serial(last),
            revoked_at,
            reason,
            invalidity_date,
        };
        let expected = [
            of(1, 1_700_000_001, None, None),
            of(2, 1_700_000_002, Some(1), Some(1_600_000_000)),
            of(3, 2_600_000_000, Some(10), None),
            of(4, 7, None, None),
            of(5, 7, None, None),
        ];
        assert_eq!(read, expected);
        assert_eq!(read_all_entries(list_with_number(&[])).unwrap(), []);
        let head = ForeignCrl::read(list_with_number(&[])).unwrap();
        assert_eq!((head.number, head.this_update, head.next_update, head.is_partial), (Some(300), 5, Some(9), false));
        assert_eq!(ForeignCrl::read(list(&entries, &[])).unwrap().number, None);
    }

    #[test]
    fn crl_of_unsupported_scope_is_refused() {
        let number = crl_number(300);
        let scope = |fields: &[u8]| {
            let value = [&[SEQUENCE, fields.len() as u8], fields].concat();
            extension(oid::ISSUING_DISTRIBUTION_POINT, true, &value)
        };
        let refused =
            |extensions: &[&Extensions]| ForeignCrl::read(list(&[], extensions)).unwrap_err().text().to_owned();
        assert!(refused(&[&number, &delta_crl_indicator(1)]).starts_with("crl: delta CRLs are not supported"));
        assert!(refused(&[&number, &extension(&[0x2a, 3, 4], true, &[5, 0])]).contains("critical extension 1.2.3.4"));
        assert!(refused(&[&number, &scope(&[0x84, 1, 0xff])]).contains("indirect"));
        assert!(refused(&[&number, &scope(&[0x85, 1, 0xff])]).contains("attribute certificates"));
        assert!(refused(&[&number, &scope(&[0x83, 2, 1, 0x40])]).contains("onlySomeReasons"));
        assert!(refused(&[&number, &scope(&[0x81, 1, 7])]).contains("BOOLEAN"));
        assert!(refused(&[&number, &number]).contains("twice"));
        assert!(refused(&[&crl_number(MAX_CRL_NUMBER)]).contains("2^62"));
        assert!(
            refused(&[&extension(oid::CRL_NUMBER, false, &[INTEGER, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0])]).contains("2^62")
        );
        for (fields, partial) in
            [(&[][..], false), (&[0x82, 1, 0xff], true), (&[0x81, 1, 0xff], true), (&[0x81, 1, 0], false)]
        {
            assert_eq!(ForeignCrl::read(list(&[], &[&number, &scope(fields)])).unwrap().is_partial, partial);
        }
        // Version 1 has no version field and no extensions.
        let der = list_with_number(&[]);
        let at = der.windows(3).position(|three| three == [INTEGER, 1, 1]).unwrap();
        let mut first = der.clone();
        first[at + 2] = 0;
        assert!(ForeignCrl::read(first).unwrap_err().text().contains("the version must be 2, or absent"));
        assert!(ForeignCrl::read([&der[..], &[0]].concat()).is_err());
    }

    #[test]
    fn invalid_crl_entry_is_named_by_its_serial_number() {
        let refused = |entry: Vec<u8>| read_all_entries(list_with_number(&[entry])).unwrap_err().text().to_owned();
        let with = |oid: &[u8], critical, value: &[u8]| {
            encode_entry_with_extensions(&serial(7), 1, &extension(oid, critical, value))
        };
        let dated = |time: &[u8]| [&[SEQUENCE, 5 + time.len() as u8, INTEGER, 3, 0, 0x80, 7], time].concat();
        for (entry, rule) in [
            (with(oid::REASON_CODE, false, &[ENUMERATED, 1, 8]), "removeFromCRL"),
            (with(oid::REASON_CODE, false, &[ENUMERATED, 1, 7]), "not one of RFC 5280"),
            (with(oid::REASON_CODE, false, &[ENUMERATED, 2, 0, 1]), "not one of RFC 5280"),
            (with(oid::CERTIFICATE_ISSUER, true, &[SEQUENCE, 0]), "another issuer"),
            (with(oid::INVALIDITY_DATE, false, b"\x17\x0d700101000000Z"), "GeneralizedTime"),
            (with(oid::INVALIDITY_DATE, false, b"\x18\x0f00000101000000Z"), "year 0000"),
            (dated(b"\x18\x0f00000101000000Z"), "year 0000"),
            (with(&[0x2a, 3, 4], true, &[5, 0]), "critical extension 1.2.3.4"),
        ] {
            let text = refused(entry);
            assert!(text.starts_with("crl: entry of serial number 80:07: ") && text.contains(rule), "{text}");
        }
        let long = [&[SEQUENCE, 38, INTEGER, 21][..], &[1; 21], b"\x17\x0d700101000000Z"].concat();
        assert!(refused(long).contains("20 octets"));
    }

    proptest! {
        #[test]
        fn mutated_crls_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let entries = [encode_entry(&serial(1), 1, Some(1), Some(2)), encode_entry(&serial(2), 1, None, None)];
            let mut der = list_with_number(&entries);
            prop_assert!(ForeignCrl::read(der[..cut.index(der.len())].to_vec()).is_err());
            let at = at.index(der.len());
            der[at] = byte;
            let _ = read_all_entries(der);
        }
    }
}

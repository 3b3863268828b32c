//! Certificate revocation lists, version 2 (RFC 5280 5). Each entry is encoded once, when its certificate is revoked.
//! All CRLs share these encoded entries and add their own bytes before and after them.

use bytes::Bytes;

use super::algorithm::SignatureAlgorithm;
use super::foreign_crl::{CrlEntryFields, CrlHead, ForeignCrlEntry, read_is_partial};
use super::pieces::{Extensions, Name};
use super::public_key::PublicKey;
use super::raw_extension::RawExtension;
use super::serial::Serial;
use super::tbs::write_extensions;
use super::time::{self, TimeFormatter};
use super::writer::{
    DerWriter, ENUMERATED, GENERALIZED_TIME, INTEGER, OCTET_STRING, OID, SEQUENCE, UTC_TIME, build, tlv_len,
};
use crate::error::Result;

/// Encodes an element of revokedCertificates. Times are epoch seconds. Reason codes are those of RFC 5280 5.3.1; 0
/// (unspecified) is omitted, as the RFC advises.
pub fn encode_entry(serial: &Serial, revoked_at: i64, reason: Option<u8>, invalidity_date: Option<i64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(CrlEntryWriter::MAX_ENTRY_BYTES);
    CrlEntryWriter::default().write(&mut out, serial, revoked_at, reason, invalidity_date);
    out
}

/// Encodes many entries, each as [`encode_entry`] does. Consecutive entries of one day share the date conversion.
///
/// Fields are written directly to the output. Assembling an entry in a temporary buffer is several times slower,
/// because the copy waits for the preceding stores.
#[derive(Default)]
pub struct CrlEntryWriter(TimeFormatter);

impl CrlEntryWriter {
    /// Maximum number of bytes that one entry needs: a 20-byte serial number with a leading zero, GeneralizedTime,
    /// both extensions, and one byte that `append_prefix` writes beyond the end.
    pub const MAX_ENTRY_BYTES: usize = 2 + 23 + 17 + 2 + 12 + 26 + 1;

    /// Appends an entry, encoded as by [`encode_entry`].
    pub fn write(
        &mut self,
        out: &mut Vec<u8>,
        serial: &Serial,
        revoked_at: i64,
        reason: Option<u8>,
        invalidity_date: Option<i64>,
    ) {
        out.reserve(Self::MAX_ENTRY_BYTES);
        let reason = reason.filter(|&code| code != 0);
        let (number, octets) = serial.padded();
        let sign = usize::from(number[0] >= 0x80);
        let at = self.0.format(revoked_at);
        let time = if at.is_utc { 13 } else { 15 };
        let listed = if reason.is_some() { 12 } else { 0 } + if invalidity_date.is_some() { 26 } else { 0 };
        let extensions = if listed == 0 { 0 } else { 2 + listed };
        let content = 2 + sign + octets + 2 + time + extensions;
        append_prefix(out, &[SEQUENCE, content as u8, INTEGER, (sign + octets) as u8, 0], 4 + sign);
        append_prefix(out, number, octets);
        if at.is_utc {
            let [_, _, date @ ..] = at.date;
            append_prefix(out, &[UTC_TIME, 13], 2);
            append_prefix(out, &date, 6);
        } else {
            append_prefix(out, &[GENERALIZED_TIME, 15], 2);
            append_prefix(out, &at.date, 8);
        }
        append_prefix(out, &at.clock, 7);
        if listed > 0 {
            append_prefix(out, &[SEQUENCE, listed as u8], 2);
            write_extensions_of_entry(out, reason, invalidity_date);
        }
    }
}

fn write_extensions_of_entry(out: &mut Vec<u8>, reason: Option<u8>, invalidity_date: Option<i64>) {
    if let Some(code) = reason {
        append_prefix(out, &[SEQUENCE, 10, OID, 3, 0x55, 0x1d, 21, OCTET_STRING, 3, ENUMERATED, 1, code], 12);
    }
    if let Some(at) = invalidity_date {
        let at = TimeFormatter::default().format(at);
        append_prefix(out, &[SEQUENCE, 24, OID, 3, 0x55, 0x1d, 24, OCTET_STRING, 17, GENERALIZED_TIME, 15], 11);
        append_prefix(out, &at.date, 8);
        append_prefix(out, &at.clock, 7);
    }
}

/// Appends the first `used` bytes of `piece`. Copies the whole array and then truncates, because a copy of constant
/// length takes only a few instructions.
fn append_prefix<const N: usize>(out: &mut Vec<u8>, piece: &[u8; N], used: usize) {
    let end = out.len() + used;
    out.extend_from_slice(piece);
    out.truncate(end);
}

/// Encodes an element of revokedCertificates with these entry extensions. `revoked_at` is in epoch seconds.
pub fn encode_entry_with_extensions(serial: &Serial, revoked_at: i64, extensions: &Extensions) -> Vec<u8> {
    build(SEQUENCE, 40, |w| {
        w.unsigned(serial.octets());
        time::write(w, time::from_epoch(revoked_at));
        if !extensions.is_empty() {
            w.tlv(SEQUENCE, extensions.as_der());
        }
    })
}

/// A CRL to be signed (RFC 5280 5.1.2), without its entries.
pub struct CrlTbs<'a> {
    /// The signature algorithm.
    pub algorithm: SignatureAlgorithm,
    /// The issuer certificate's subject, with its original bytes.
    pub issuer: &'a Name,
    /// thisUpdate, epoch seconds.
    pub this_update: i64,
    /// nextUpdate, epoch seconds.
    pub next_update: i64,
    /// The CRL extensions, in order. Empty ones are skipped.
    pub extensions: &'a [&'a Extensions],
}

impl CrlTbs<'_> {
    /// Returns the bytes to sign. `entries` are concatenated results of [`encode_entry`], in ascending order of serial
    /// numbers; they are shared, not copied. Without entries, revokedCertificates is absent.
    pub fn encode(&self, entries: Vec<Bytes>) -> EncodedCrlTbs {
        let mut fields = DerWriter::with_capacity(self.issuer.as_der().len() + 128);
        fields.integer(1);
        fields.raw(self.algorithm.der());
        fields.raw(self.issuer.as_der());
        time::write(&mut fields, time::from_epoch(self.this_update));
        time::write(&mut fields, time::from_epoch(self.next_update));
        let mut tail = DerWriter::default();
        write_extensions(&mut tail, 0, self.extensions);
        let fields = fields.finish();
        let tail = tail.finish();
        let listed: usize = entries.iter().map(Bytes::len).sum();
        let list = if listed == 0 { 0 } else { tlv_len(listed) };
        let len = fields.len() + list + tail.len();
        let mut head = DerWriter::with_capacity(fields.len() + 16);
        head.header(SEQUENCE, len);
        head.raw(&fields);
        if listed > 0 {
            head.header(SEQUENCE, listed);
        }
        EncodedCrlTbs { head: head.finish(), entries, tail, len: tlv_len(len) }
    }
}

/// An encoded TBSCertList in pieces, so that a CRL with a million entries is never copied to one buffer.
pub struct EncodedCrlTbs {
    head: Vec<u8>,
    entries: Vec<Bytes>,
    tail: Vec<u8>,
    len: usize,
}

impl EncodedCrlTbs {
    /// Creates an encoded TBSCertList from parts that may not fit together, to test the checks.
    #[cfg(test)]
    pub(crate) fn from_parts(head: &[u8], entries: &[u8], tail: &[u8]) -> Self {
        let len = head.len() + entries.len() + tail.len();
        Self { head: head.to_vec(), entries: vec![Bytes::copy_from_slice(entries)], tail: tail.to_vec(), len }
    }

    /// The bytes before the entries, including the header of revokedCertificates.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The bytes after the entries.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Total length of the entries, in bytes.
    pub fn entries_len(&self) -> usize {
        self.len - self.head.len() - self.tail.len()
    }

    /// Iterates over all bytes of the TBSCertList, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let entries = self.entries.iter().map(|piece| &piece[..]);
        [&self.head[..]].into_iter().chain(entries).chain([&self.tail[..]])
    }

    /// Returns the signed CRL (RFC 5280 5.1.1), in pieces.
    pub fn signed(self, algorithm: SignatureAlgorithm, signature: &[u8]) -> Vec<Bytes> {
        let algorithm = algorithm.der();
        let len = self.len + algorithm.len() + tlv_len(signature.len() + 1);
        let mut head = DerWriter::with_capacity(self.head.len() + 8);
        head.header(SEQUENCE, len);
        head.raw(&self.head);
        let mut tail = DerWriter::with_capacity(self.tail.len() + algorithm.len() + signature.len() + 8);
        tail.raw(&self.tail);
        tail.raw(algorithm);
        tail.bit_string(signature);
        let mut pieces = Vec::with_capacity(self.entries.len() + 2);
        pieces.push(Bytes::from(head.finish()));
        pieces.extend(self.entries);
        pieces.push(Bytes::from(tail.finish()));
        pieces
    }
}

/// Iterates over concatenated results of [`encode_entry`]. Yields each serial number without leading zeros, and the
/// encoded entry.
pub fn iter_entries(mut entries: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || {
        let (serial, len) = first_entry(entries)?;
        let (one, rest) = entries.split_at_checked(len)?;
        entries = rest;
        Some((serial, one))
    })
}

/// Returns the serial number of the first of several encoded entries, and the length of that entry. The function does
/// not validate the entries, because this server encoded them and calls the function millions of times. For invalid
/// input the result is `None` or meaningless, but the function does not panic.
pub fn first_entry(entries: &[u8]) -> Option<(&[u8], usize)> {
    let (header, content) = match *entries.get(1)? {
        short @ ..0x80 => (2, usize::from(short)),
        long => {
            let octets = entries.get(2..2 + usize::from(long & 0x7f))?;
            (2 + octets.len(), octets.iter().fold(0, |len, &octet| len << 8 | usize::from(octet)))
        }
    };
    let serial = entries.get(header + 2..)?.get(..usize::from(*entries.get(header + 1)?))?;
    // DER adds a leading zero to a number whose first bit is set.
    let serial = if serial.len() > 1 && serial[0] == 0 { &serial[1..] } else { serial };
    Some((serial, content.saturating_add(header)))
}

/// A parsed CRL.
#[derive(Clone, Debug)]
pub struct Crl {
    head: CrlHead,
    entries: Vec<CrlEntry>,
    scope: Result<bool>,
}

/// An entry of a parsed CRL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrlEntry {
    /// The revoked serial number.
    pub serial: Serial,
    /// Time of the revocation, epoch seconds.
    pub revoked_at: i64,
    /// `true` if the entry has extensions.
    pub has_extensions: bool,
}

impl Crl {
    /// Reads one CRL in DER.
    ///
    /// # Errors
    /// `Invalid`, naming `crl` and the rule.
    pub fn parse(der: &[u8]) -> Result<Self> {
        let head = CrlHead::read(der.to_vec())?;
        let mut entries = Vec::new();
        let mut own_revocations = Ok(());
        let mut list = head.entry_list();
        while !list.is_empty() {
            let fields = CrlEntryFields::next(&mut list)?;
            let CrlEntryFields { serial, revoked_at, extensions } = fields;
            if extensions.is_some() && own_revocations.is_ok() {
                own_revocations = ForeignCrlEntry::read(fields).map(drop);
            }
            entries.push(CrlEntry { serial, revoked_at, has_extensions: extensions.is_some() });
        }
        let scope = own_revocations.and_then(|()| read_is_partial(&head.extensions));
        Ok(Self { head, entries, scope })
    }

    /// The issuer, with its original bytes.
    pub fn issuer(&self) -> &Name {
        &self.head.issuer
    }

    /// thisUpdate, epoch seconds.
    pub fn this_update(&self) -> i64 {
        self.head.this_update
    }

    /// nextUpdate, epoch seconds.
    pub fn next_update(&self) -> Option<i64> {
        self.head.next_update
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[CrlEntry] {
        &self.entries
    }

    /// The CRL extensions, in order.
    pub fn extensions(&self) -> &[RawExtension] {
        &self.head.extensions
    }

    /// `true` if the CRL does not cover all certificates of its issuer.
    ///
    /// # Errors
    /// `Invalid`, naming the rule, when some entries might not be revocations of the issuer's certificates: removals,
    /// entries of other issuers or of attribute certificates, and unknown critical extensions (RFC 5280 5.2, 5.3).
    pub fn is_partial(&self) -> Result<bool> {
        self.scope.clone()
    }

    /// `true` if the signature is valid under `key`. SHA-1 is accepted, because a forged CRL could only add
    /// revocations.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        self.head.signed.is_signed_by_any_hash(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::x509::certificate::Certificate;
    use crate::x509::tbs::encode_signed;
    use crate::x509::testing::{ISSUER_KEY_KINDS, OpenSsl, TestSigner, root};
    use crate::x509::{extension, name, oid, pem};

    fn list(root: &Certificate, algorithm: SignatureAlgorithm, entries: &[u8], delta: bool) -> Vec<u8> {
        let authority = extension::authority_key_id(&root.key().key_id());
        let base = if delta { extension::delta_crl_indicator(300) } else { Extensions::default() };
        let number = extension::crl_number(301);
        CrlTbs {
            algorithm,
            issuer: root.subject(),
            this_update: 1_700_000_000,
            next_update: 2_600_000_000,
            extensions: &[&authority, &number, &base],
        }
        .encode(if entries.is_empty() { Vec::new() } else { vec![Bytes::copy_from_slice(entries)] })
        .pieces()
        .collect::<Vec<_>>()
        .concat()
    }

    fn serial(last: u8) -> Serial {
        Serial::from_octets(&[0x80, last]).unwrap()
    }

    #[test]
    fn longest_entry_has_the_declared_maximum_size() {
        let serial = Serial::from_octets(&[0xff; 20]).unwrap();
        assert_eq!(encode_entry(&serial, 4_000_000_000, Some(10), Some(1)).len() + 1, CrlEntryWriter::MAX_ENTRY_BYTES);
    }

    #[test]
    fn crls_of_every_key_kind_satisfy_openssl_and_read_back() {
        let openssl = OpenSsl::new();
        let entries = [
            encode_entry(&serial(1), 1_700_000_001, None, None),
            encode_entry(&serial(2), 1_700_000_002, Some(1), Some(1_600_000_000)),
            encode_entry(&serial(3), 2_600_000_000, Some(0), None),
        ]
        .concat();
        for (key_type, bits) in ISSUER_KEY_KINDS {
            let (key, root) = root(key_type, *bits);
            let algorithm = root.signature_algorithm().unwrap();
            let tbs = list(&root, algorithm, &entries, true);
            let der = encode_signed(&tbs, algorithm, &key.signature(algorithm, &tbs));
            let ca = openssl.file("ca.pem", pem::encode("CERTIFICATE", root.der()));
            let file = openssl.file("crl.pem", pem::encode("X509 CRL", &der));
            let output = openssl.try_run(&["crl", "-in", &file, "-verify", "-CAfile", &ca, "-noout", "-text"]);
            let text = String::from_utf8(output.stdout).unwrap();
            let status = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success() && status.contains("verify OK"), "{key_type}: {status}");
            for expected in
                ["8001", "8002", "8003", "Key Compromise", "301", "Delta CRL Indicator: critical", "Version 2"]
            {
                assert!(text.contains(expected), "{expected}: {text}");
            }
            let crl = Crl::parse(&der).unwrap();
            assert!(crl.is_signed_by(root.key()));
            assert_eq!(crl.issuer(), root.subject());
            assert_eq!((crl.this_update(), crl.next_update()), (1_700_000_000, Some(2_600_000_000)));
            let flags: Vec<bool> = crl.entries().iter().map(|e| e.has_extensions).collect();
            assert_eq!(flags, [false, true, false], "reason 0 is left out, and no empty extension list is written");
            assert_eq!((crl.entries()[2].serial, crl.entries()[2].revoked_at), (serial(3), 2_600_000_000));
            assert_eq!(crl.extensions().len(), 3);
        }
    }

    #[test]
    fn revoked_certificates_field_is_absent_without_entries() {
        let openssl = OpenSsl::new();
        let (key, root) = root("ec", 256);
        let algorithm = root.signature_algorithm().unwrap();
        let tbs = list(&root, algorithm, &[], false);
        let der = encode_signed(&tbs, algorithm, &key.signature(algorithm, &tbs));
        let file = openssl.file("crl.pem", pem::encode("X509 CRL", &der));
        assert!(openssl.text(&["crl", "-in", &file, "-noout", "-text"]).contains("No Revoked Certificates"));
        assert!(Crl::parse(&der).unwrap().entries().is_empty());
        assert!(Crl::parse(&[&der[..], &[0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn entries_written_directly_equal_the_extension_encoder(
            octets in prop::collection::vec(any::<u8>(), 1..=20), at in -1_i64 << 33..1 << 38,
            reason in any::<Option<u8>>(), date in prop::option::of(-1_i64 << 33..1 << 38)
        ) {
            let serial = Serial::from_octets(&octets).unwrap();
            let code = reason.filter(|code| *code != 0).map(|code| extension::extension(oid::REASON_CODE, false, &[ENUMERATED, 1, code]));
            let date_value = |at: i64| {
                let mut w = DerWriter::default();
                time::write_generalized(&mut w, time::from_epoch(at));
                w.finish()
            };
            let invalid = date.map(|at| extension::extension(oid::INVALIDITY_DATE, false, &date_value(at)));
            let further = Extensions::joined(&code.iter().chain(&invalid).collect::<Vec<_>>());
            prop_assert_eq!(encode_entry(&serial, at, reason, date), encode_entry_with_extensions(&serial, at, &further));
        }

        #[test]
        fn joined_crl_entries_are_split(
            all in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..=20), any::<Option<u8>>(), 0..400_usize), 0..20)
        ) {
            let encoded: Vec<(Serial, Vec<u8>)> = all.iter().map(|(octets, reason, long)| {
                let serial = Serial::from_octets(octets).unwrap();
                let further = extension::extension(&[0x55, 0x1d, 99], false, &vec![7; *long]);
                let entry = match long {
                    0 => encode_entry(&serial, 1_700_000_000, *reason, None),
                    _ => encode_entry_with_extensions(&serial, 1_700_000_000, &further),
                };
                (serial, entry)
            }).collect();
            let joined = encoded.iter().flat_map(|(_, entry)| entry.clone()).collect::<Vec<u8>>();
            let found: Vec<(Serial, Vec<u8>)> =
                iter_entries(&joined).map(|(serial, raw)| (Serial::from_octets(serial).unwrap(), raw.to_vec())).collect();
            prop_assert_eq!(found, encoded);
        }

        #[test]
        fn crl_parts_of_any_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(iter_entries(&bytes).map(|(_, raw)| raw.len()).sum::<usize>() <= bytes.len());
        }

        #[test]
        fn mutated_crls_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let algorithm = SignatureAlgorithm::Ed25519;
            let entries = encode_entry(&serial(1), 1, Some(1), Some(2));
            let issuer = name::name(&[]);
            let number = extension::crl_number(1);
            let tbs = CrlTbs { algorithm, issuer: &issuer, this_update: 0, next_update: 1, extensions: &[&number] };
            let mut der = tbs.encode(vec![Bytes::from(entries)]).signed(algorithm, &[0; 64]).concat();
            prop_assert!(Crl::parse(&der).is_ok());
            prop_assert!(Crl::parse(&der[..cut.index(der.len())]).is_err());
            let at = at.index(der.len());
            der[at] = byte;
            let _ = Crl::parse(&der);
        }
    }
}

//! The last check before signing: parses the exact bytes to be signed and validates them against RFC 5280, regardless
//! of their origin. Each check is a function named after the rule it enforces. Only [`linted_tbs`](super::linted_tbs)
//! calls it, for every certificate, CRL and [OCSP response](ocsp). It rejects, and never modifies, the bytes.

pub(crate) mod ocsp;

use crate::error::Result;
use crate::x509::algorithm::SignatureAlgorithm;
use crate::x509::certificate::CertificateFields;
use crate::x509::crl::EncodedCrlTbs;
use crate::x509::pieces::Name;
use crate::x509::profile::{self, ExtensionProfile};
use crate::x509::raw_extension::{self, BasicConstraints, ExtensionRef, MAX_EXTENSIONS, TOO_MANY_EXTENSIONS};
use crate::x509::reader::{DerError, DerReader, DerResult, check_bit_string};
use crate::x509::time::MIN_UTC_EPOCH_SECONDS;
use crate::x509::usage::KeyUsage;
use crate::x509::writer::{GENERALIZED_TIME, INTEGER, SEQUENCE, UTC_TIME, context, context_constructed};
use crate::x509::{name, oid};

/// Kind of a certificate; selects the rules that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateKind {
    /// An end-entity certificate.
    Leaf,
    /// A CA certificate.
    Authority,
    /// Like `Leaf`, but from a template of the external policy engine, which chooses the serial number.
    TemplateLeaf,
    /// Like `Authority`, but from a template of the external policy engine, which chooses the serial number.
    TemplateAuthority,
    /// A CA certificate created elsewhere and signed unchanged. Its serial number, unique identifiers and missing key
    /// identifier are accepted.
    CrossSigned,
}

/// The request fields that the parts of a certificate or CRL come from, for error messages.
#[derive(Clone, Debug)]
pub(crate) struct FieldSources {
    rest: &'static str,
    subject: &'static str,
    /// Request field by OID of the extension.
    extensions: Vec<(&'static [u8], &'static str)>,
}

impl FieldSources {
    /// Creates sources in which every part comes from `field`.
    pub(crate) const fn all(field: &'static str) -> Self {
        Self { rest: field, subject: field, extensions: Vec::new() }
    }

    /// Sets the request field of the subject.
    pub(crate) fn with_subject(self, field: &'static str) -> Self {
        Self { subject: field, ..self }
    }

    /// Sets the request field of an extension.
    pub(crate) fn with_extension(mut self, oid: &'static [u8], field: &'static str) -> Self {
        self.extensions.insert(0, (oid, field));
        self
    }

    fn of(&self, part: CertificatePart<'_>) -> &'static str {
        match part {
            CertificatePart::Rest => self.rest,
            CertificatePart::Subject => self.subject,
            CertificatePart::Extension(oid) => {
                self.extensions.iter().find(|(known, _)| *known == oid).map_or(self.rest, |(_, field)| field)
            }
        }
    }
}

#[derive(Clone, Copy)]
enum CertificatePart<'a> {
    Subject,
    Extension(&'a [u8]),
    Rest,
}

/// Issuer data that a certificate or CRL must contain, and the request fields for error messages.
pub(crate) struct ExpectedIssuer<'a> {
    /// Signature algorithm of the issuer's key.
    pub(crate) algorithm: SignatureAlgorithm,
    /// Encoded subject of the issuer.
    pub(crate) issuer: &'a Name,
    /// Key identifier of the issuer.
    pub(crate) key_id: &'a [u8],
    /// Request fields named in error messages.
    pub(crate) sources: &'a FieldSources,
}

/// Checks a TBSCertificate.
///
/// # Errors
/// `Invalid`, naming the rule and its source.
pub(crate) fn lint_certificate_structure(
    tbs: &[u8],
    certificate_kind: CertificateKind,
    expected: &ExpectedIssuer<'_>,
) -> Result<()> {
    let sources = expected.sources;
    let of = |e: DerError| e.into_error(sources.rest);
    ensure(tbs.len() <= MAX_TBS_BYTES, "the signed part is longer than 46 KiB").map_err(of)?;
    let fields =
        DerReader::read_single(tbs, SEQUENCE).and_then(|tbs| CertificateFields::read(tbs.reader())).map_err(of)?;
    let extensions = ParsedExtensions::read(fields.extensions.unwrap_or(DerReader::new(&[]))).map_err(of)?;
    profile::validate_directory_name(fields.subject)
        .map_err(|e| e.into_error(&format!("{}: subject", sources.subject)))?;
    extensions.validate(sources, profile::find_certificate_extension)?;
    let candidate = ParsedCertificateTbs::new(fields, extensions, certificate_kind, expected).map_err(of)?;
    CERTIFICATE_CHECKS
        .iter()
        .try_for_each(|(part, check)| check(&candidate).map_err(|e| e.into_error(sources.of(*part))))
}

/// Checks a TBSCertList. The entries come from this server's encoder and are not parsed again, so the cost does not
/// depend on their number.
///
/// # Errors
/// `Invalid`, naming the rule and its source.
pub(crate) fn lint_crl_structure(tbs: &EncodedCrlTbs, expected: &ExpectedIssuer<'_>) -> Result<()> {
    let of = |e: DerError| e.into_error(expected.sources.rest);
    let list = ParsedCrlTbs::read(tbs, expected).map_err(of)?;
    list.extensions.validate(expected.sources, profile::find_crl_extension)?;
    CRL_CHECKS.iter().try_for_each(|check| check(&list)).map_err(of)
}

/// Maximum length of a TBSCertificate, in bytes. With the largest signature, the certificate in PEM still fits into a
/// request for revocation or import
/// ([`Certificate::parse_untrusted`](crate::x509::certificate::Certificate::parse_untrusted)).
const MAX_TBS_BYTES: usize = 46 << 10;

fn ensure(holds: bool, text: &'static str) -> DerResult<()> {
    if holds { Ok(()) } else { Err(DerError(text)) }
}

struct ParsedExtensions<'a>(Vec<ExtensionRef<'a>>);

impl<'a> ParsedExtensions<'a> {
    fn read(mut list: DerReader<'a>) -> DerResult<Self> {
        let mut all = Vec::with_capacity(12);
        while !list.is_empty() {
            if all.len() == MAX_EXTENSIONS {
                return Err(TOO_MANY_EXTENSIONS);
            }
            all.push(ExtensionRef::next(&mut list)?);
        }
        Ok(Self(all))
    }

    /// Checks the criticality and the value of each extension that has a profile.
    fn validate(&self, sources: &FieldSources, known: fn(&[u8]) -> Option<ExtensionProfile>) -> Result<()> {
        for extension in &self.0 {
            let field = sources.of(CertificatePart::Extension(extension.oid));
            oid::check_oid_size(extension.oid)
                .map_err(|e| e.into_error(&format!("{field}: an extension's identifier")))?;
            let Some(known) = known(extension.oid) else { continue };
            known.validate(field, extension.critical == Some(true), extension.value)?;
        }
        Ok(())
    }

    fn find(&self, oid: &[u8]) -> Option<&ExtensionRef<'a>> {
        self.0.iter().find(|extension| extension.oid == oid)
    }

    /// Rejects duplicate extensions (RFC 5280 4.2, 5.2). Pairwise comparison is faster than a set for so few
    /// extensions.
    fn check_no_duplicates(&self) -> DerResult<()> {
        let is_repeated = |(i, one): (usize, &ExtensionRef<'_>)| self.0[..i].iter().any(|other| other.oid == one.oid);
        ensure(!self.0.iter().enumerate().any(is_repeated), "an extension appears twice (RFC 5280 4.2)")
    }

    /// Rejects extensions with an encoded default value (X.690 11.5).
    fn check_no_encoded_defaults(&self) -> DerResult<()> {
        ensure(
            self.0.iter().all(|e| e.critical != Some(false)),
            "an extension encodes critical FALSE, which is the default (X.690 11.5)",
        )
    }

    /// Checks that keyIdentifier is the issuer's key identifier (RFC 5280 4.2.1.1, 5.2.1).
    fn check_authority_key_id(&self, key_id: &[u8]) -> DerResult<()> {
        let missing = DerError("authorityKeyIdentifier is missing (RFC 5280 4.2.1.1)");
        let extension = self.find(oid::AUTHORITY_KEY_ID).ok_or(missing)?;
        let mut fields = DerReader::read_single(extension.value, SEQUENCE)?.reader();
        let found = fields.optional(context(0))?.map(|id| id.content);
        ensure(found == Some(key_id), "authorityKeyIdentifier is not the issuer's key identifier (RFC 5280 4.2.1.1)")
    }
}

/// A parsed certificate to check.
struct ParsedCertificateTbs<'a> {
    certificate_kind: CertificateKind,
    expected: &'a ExpectedIssuer<'a>,
    fields: CertificateFields<'a>,
    extensions: ParsedExtensions<'a>,
    key_usage: Option<KeyUsage>,
    basic_constraints: Option<BasicConstraints>,
}

impl<'a> ParsedCertificateTbs<'a> {
    fn new(
        fields: CertificateFields<'a>,
        extensions: ParsedExtensions<'a>,
        certificate_kind: CertificateKind,
        expected: &'a ExpectedIssuer<'a>,
    ) -> DerResult<Self> {
        let value = |oid| extensions.find(oid).map(|e| e.value);
        Ok(Self {
            certificate_kind,
            expected,
            key_usage: value(oid::KEY_USAGE).map(raw_extension::read_key_usage).transpose()?,
            basic_constraints: value(oid::BASIC_CONSTRAINTS).map(raw_extension::read_basic_constraints).transpose()?,
            fields,
            extensions,
        })
    }

    /// `true` for a new CA certificate, as opposed to one created elsewhere.
    fn is_new_authority(&self) -> bool {
        matches!(self.certificate_kind, CertificateKind::Authority | CertificateKind::TemplateAuthority)
    }

    /// `true` if the key can only sign (Ed25519). `false` for certificates created elsewhere, which are signed
    /// unchanged.
    fn has_signing_only_key(&self) -> bool {
        let of_ed25519 = |spki| {
            DerReader::read_single(spki, SEQUENCE)
                .and_then(|spki| Ok(spki.reader().expect(SEQUENCE)?.reader().oid()? == oid::ED25519))
        };
        self.certificate_kind != CertificateKind::CrossSigned && of_ed25519(self.fields.spki).unwrap_or(false)
    }

    fn is_ca(&self) -> bool {
        !matches!(self.certificate_kind, CertificateKind::Leaf | CertificateKind::TemplateLeaf)
    }
}

/// Key usages that fit a key that can only sign.
const SIGNING_KEY_USAGES: [KeyUsage; 4] =
    [KeyUsage::DIGITAL_SIGNATURE, KeyUsage::CONTENT_COMMITMENT, KeyUsage::CERT_SIGN, KeyUsage::CRL_SIGN];

type CertificateCheck = fn(&ParsedCertificateTbs<'_>) -> DerResult<()>;

const CERTIFICATE_CHECKS: &[(CertificatePart<'static>, CertificateCheck)] = &[
    (CertificatePart::Rest, rfc5280_4_1_2_1_version),
    (CertificatePart::Rest, rfc5280_4_1_2_2_serial_number),
    (CertificatePart::Rest, cabf_br_7_1_serial_entropy),
    (CertificatePart::Rest, rfc5280_4_1_2_3_signature),
    (CertificatePart::Rest, rfc5280_4_1_2_4_issuer),
    (CertificatePart::Rest, rfc5280_4_1_2_5_validity),
    (CertificatePart::Subject, rfc5280_4_1_2_6_subject),
    (CertificatePart::Rest, rfc5280_4_1_2_8_unique_identifiers),
    (CertificatePart::Rest, rfc5280_4_2_extensions),
    (CertificatePart::Extension(oid::AUTHORITY_KEY_ID), rfc5280_4_2_1_1_authority_key_identifier),
    (CertificatePart::Extension(oid::SUBJECT_KEY_ID), rfc5280_4_2_1_2_subject_key_identifier),
    (CertificatePart::Extension(oid::KEY_USAGE), rfc5280_4_2_1_3_key_usage),
    (CertificatePart::Extension(oid::SUBJECT_ALT_NAME), rfc5280_4_2_1_6_subject_alternative_name),
    (CertificatePart::Extension(oid::BASIC_CONSTRAINTS), rfc5280_4_2_1_9_basic_constraints),
    (CertificatePart::Rest, rfc5280_4_2_1_ca_only_extensions),
    (CertificatePart::Extension(oid::NAME_CONSTRAINTS), rfc5280_4_2_1_10_name_constraints),
];

/// Extensions require version 3, and every certificate from this server has extensions.
fn rfc5280_4_1_2_1_version(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    ensure(c.fields.version_number == 2, "the version must be 3 (RFC 5280 4.1.2.1)")
}

fn rfc5280_4_1_2_2_serial_number(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    let octets = c.fields.serial;
    // If the first bit is set, DER adds a leading zero byte, because the INTEGER would otherwise be negative.
    let len = octets.len() + usize::from(octets[0] >= 0x80);
    ensure(octets != [0] && len <= 20, "the serial number must be positive and at most 20 octets (RFC 5280 4.1.2.2)")
}

/// Serial numbers need at least 64 bits from a CSPRNG. A generated serial number of fewer than 8 bytes is practically
/// impossible.
fn cabf_br_7_1_serial_entropy(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    ensure(
        !matches!(c.certificate_kind, CertificateKind::Leaf | CertificateKind::Authority) || c.fields.serial.len() >= 8,
        "the serial number must hold 64 random bits (CA/Browser Forum baseline requirements 7.1)",
    )
}

fn rfc5280_4_1_2_3_signature(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    let same = c.fields.algorithm == c.expected.algorithm.der();
    ensure(same, "the signature algorithm is not the signer's (RFC 5280 4.1.2.3)")
}

/// The issuer must not be empty, and must equal the issuer's subject byte for byte, so that every kind of name
/// comparison matches.
fn rfc5280_4_1_2_4_issuer(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    ensure(!name::is_empty(c.fields.issuer), "the issuer's name is empty (RFC 5280 4.1.2.4)")?;
    ensure(c.fields.issuer == c.expected.issuer.as_der(), "the issuer is not the signer's subject (RFC 5280 4.1.2.4)")
}

/// notBefore must be before notAfter. Times through 2049 must be UTCTime, times from 2050 on GeneralizedTime.
fn rfc5280_4_1_2_5_validity(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    check_times(c.fields.validity.reader())?;
    ensure(c.fields.not_before < c.fields.not_after, "notBefore must be before notAfter (RFC 5280 4.1.2.5)")
}

fn check_times(mut fields: DerReader<'_>) -> DerResult<()> {
    while !fields.is_empty() {
        check_time_form(&mut fields)?;
    }
    Ok(())
}

/// Times from 1950-01-01T00:00:00Z (inclusive) to 2050-01-01T00:00:00Z (exclusive), which UTCTime can represent; epoch
/// seconds.
const UTC_TIME_RANGE: std::ops::Range<i64> = MIN_UTC_EPOCH_SECONDS..2_524_608_000;

fn check_time_form(fields: &mut DerReader<'_>) -> DerResult<i64> {
    let mut ahead = *fields;
    let at = crate::x509::time::read(fields)?;
    let wanted = if UTC_TIME_RANGE.contains(&at) { UTC_TIME } else { GENERALIZED_TIME };
    ensure(
        ahead.any()?.tag == wanted,
        "a time must be UTCTime through 2049 and GeneralizedTime after (RFC 5280 4.1.2.5)",
    )?;
    Ok(at)
}

/// A leaf may have an empty subject if it has a SAN. The criticality of the SAN is checked below.
fn rfc5280_4_1_2_6_subject(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    if !name::has_no_text(c.fields.subject) {
        return Ok(());
    }
    ensure(!c.is_ca(), "a CA certificate must have a subject (RFC 5280 4.1.2.6)")?;
    let named = c.extensions.find(oid::SUBJECT_ALT_NAME).is_some();
    ensure(named, "the certificate has no name: without a subject, it must have a subjectAltName (RFC 5280 4.1.2.6)")
}

/// New certificates must not have unique identifiers. Those of certificates created elsewhere must be BIT STRINGs.
fn rfc5280_4_1_2_8_unique_identifiers(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    for id in c.fields.unique_ids.iter().filter(|id| !id.is_empty()) {
        ensure(
            c.certificate_kind == CertificateKind::CrossSigned,
            "unique identifiers must not be used (RFC 5280 4.1.2.8)",
        )?;
        let holds = check_bit_string(DerReader::new(id).any()?.content).is_ok();
        ensure(holds, "a unique identifier is not a valid DER BIT STRING (X.690 8.6.2, 11.2.1)")?;
    }
    Ok(())
}

fn rfc5280_4_2_extensions(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    ensure(!c.extensions.0.is_empty(), "the list of extensions is empty (RFC 5280 4.1.2.9)")?;
    c.extensions.check_no_encoded_defaults()?;
    c.extensions.check_no_duplicates()
}

fn rfc5280_4_2_1_1_authority_key_identifier(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    c.extensions.check_authority_key_id(c.expected.key_id)
}

fn rfc5280_4_2_1_2_subject_key_identifier(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    let has_key_id = c.extensions.find(oid::SUBJECT_KEY_ID).is_some();
    ensure(
        has_key_id || c.certificate_kind == CertificateKind::CrossSigned,
        "subjectKeyIdentifier is missing (RFC 5280 4.2.1.2)",
    )
}

fn rfc5280_4_2_1_3_key_usage(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    let Some(usage) = c.key_usage else {
        return ensure(!c.is_new_authority(), "a CA certificate must have keyUsage (RFC 5280 4.2.1.3)");
    };
    let cert_sign = usage.contains(KeyUsage::CERT_SIGN);
    ensure(!cert_sign || c.is_ca(), "keyCertSign needs cA TRUE (RFC 5280 4.2.1.3)")?;
    // RFC 9295 3 has stricter rules; enforce only that at least one usage suits the key. Further usages are harmless,
    // and clients send lists of usages that suit keys of every kind.
    ensure(
        !c.has_signing_only_key() || usage.is_empty() || SIGNING_KEY_USAGES.iter().any(|one| usage.contains(*one)),
        "keyUsage of an Ed25519 key must have digitalSignature, contentCommitment or cRLSign (RFC 9295 3)",
    )?;
    ensure(cert_sign || !c.is_ca(), "keyUsage of a CA certificate must have keyCertSign (RFC 5280 4.2.1.3)")
}

fn rfc5280_4_2_1_6_subject_alternative_name(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    let Some(extension) = c.extensions.find(oid::SUBJECT_ALT_NAME) else { return Ok(()) };
    ensure(
        !name::is_empty(c.fields.subject) || extension.critical == Some(true),
        "subjectAltName must be critical when the subject is empty (RFC 5280 4.1.2.6)",
    )
}

fn rfc5280_4_2_1_9_basic_constraints(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    let constraints = c.basic_constraints.unwrap_or_default();
    ensure(
        constraints.ca == c.is_ca(),
        "basicConstraints: cA must be TRUE for a CA and FALSE otherwise (RFC 5280 4.2.1.9)",
    )?;
    ensure(constraints.ca || constraints.path_length.is_none(), "a path length needs cA TRUE (RFC 5280 4.2.1.9)")?;
    let critical = c.extensions.find(oid::BASIC_CONSTRAINTS).is_some_and(|e| e.critical == Some(true));
    ensure(critical || !c.is_new_authority(), "basicConstraints of a CA must be critical (RFC 5280 4.2.1.9)")
}

/// Extensions that only CA certificates may have, each with the rule for the error message.
const CA_ONLY_EXTENSIONS: [(&[u8], &str); 4] = [
    (oid::POLICY_MAPPINGS, "policyMappings need cA TRUE (RFC 5280 4.2.1.5)"),
    (oid::NAME_CONSTRAINTS, "nameConstraints need cA TRUE (RFC 5280 4.2.1.10)"),
    (oid::POLICY_CONSTRAINTS, "policyConstraints need cA TRUE (RFC 5280 4.2.1.11)"),
    (oid::INHIBIT_ANY_POLICY, "inhibitAnyPolicy needs cA TRUE (RFC 5280 4.2.1.14)"),
];

fn rfc5280_4_2_1_ca_only_extensions(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    CA_ONLY_EXTENSIONS.iter().try_for_each(|(oid, text)| ensure(c.is_ca() || c.extensions.find(oid).is_none(), text))
}

fn rfc5280_4_2_1_10_name_constraints(c: &ParsedCertificateTbs<'_>) -> DerResult<()> {
    let Some(extension) = c.extensions.find(oid::NAME_CONSTRAINTS) else { return Ok(()) };
    let critical = extension.critical == Some(true) || c.certificate_kind == CertificateKind::CrossSigned;
    ensure(critical, "nameConstraints must be critical (RFC 5280 4.2.1.10)")
}

/// A parsed CRL to check.
struct ParsedCrlTbs<'a> {
    expected: &'a ExpectedIssuer<'a>,
    version: &'a [u8],
    algorithm: &'a [u8],
    issuer: &'a [u8],
    this_update: i64,
    next_update: i64,
    /// Content length of revokedCertificates according to its header, in bytes; `None` if the field is absent.
    entries: Option<usize>,
    encoded_entries_len: usize,
    extensions: ParsedExtensions<'a>,
}

impl<'a> ParsedCrlTbs<'a> {
    fn read(tbs: &'a EncodedCrlTbs, expected: &'a ExpectedIssuer<'a>) -> DerResult<Self> {
        let (len, mut fields) = DerReader::open(tbs.head(), SEQUENCE)?;
        let encoded_len = fields.rest().len() + tbs.entries_len() + tbs.tail().len();
        ensure(len == encoded_len, "the encoded length of the CRL is wrong (X.690 8.1.3)")?;
        let version = fields.expect(INTEGER)?.content;
        let algorithm = fields.expect(SEQUENCE)?.raw;
        let issuer = fields.expect(SEQUENCE)?.raw;
        let this_update = check_time_form(&mut fields)?;
        let next_update = check_time_form(&mut fields)?;
        let entries = match fields.rest() {
            [] => None,
            header => {
                let (len, after) = DerReader::open(header, SEQUENCE)?;
                after.done()?;
                Some(len)
            }
        };
        let explicit = DerReader::read_single(tbs.tail(), context_constructed(0))?;
        let extensions = ParsedExtensions::read(DerReader::read_single(explicit.content, SEQUENCE)?.reader())?;
        let encoded_entries_len = tbs.entries_len();
        Ok(Self {
            expected,
            version,
            algorithm,
            issuer,
            this_update,
            next_update,
            entries,
            encoded_entries_len,
            extensions,
        })
    }
}

const CRL_CHECKS: &[fn(&ParsedCrlTbs<'_>) -> DerResult<()>] = &[
    rfc5280_5_1_2_1_version,
    rfc5280_5_1_2_2_signature,
    rfc5280_5_1_2_3_issuer,
    rfc5280_5_1_2_5_next_update,
    rfc5280_5_1_2_6_revoked_certificates,
    rfc5280_5_2_extensions,
    rfc5280_5_2_3_crl_number,
    rfc5280_5_2_4_delta_indicator,
];

fn rfc5280_5_1_2_1_version(list: &ParsedCrlTbs<'_>) -> DerResult<()> {
    ensure(list.version == [1], "the version must be 2 (RFC 5280 5.1.2.1)")
}

fn rfc5280_5_1_2_2_signature(list: &ParsedCrlTbs<'_>) -> DerResult<()> {
    let same = list.algorithm == list.expected.algorithm.der();
    ensure(same, "the signature algorithm is not the signer's (RFC 5280 5.1.2.2)")
}

fn rfc5280_5_1_2_3_issuer(list: &ParsedCrlTbs<'_>) -> DerResult<()> {
    ensure(list.issuer == list.expected.issuer.as_der(), "the issuer is not the signer's subject (RFC 5280 5.1.2.3)")
}

fn rfc5280_5_1_2_5_next_update(list: &ParsedCrlTbs<'_>) -> DerResult<()> {
    ensure(list.this_update < list.next_update, "nextUpdate must lie after thisUpdate (RFC 5280 5.1.2.5)")
}

fn rfc5280_5_1_2_6_revoked_certificates(list: &ParsedCrlTbs<'_>) -> DerResult<()> {
    ensure(list.entries != Some(0), "revokedCertificates must be absent when empty (RFC 5280 5.1.2.6)")?;
    ensure(
        list.entries.unwrap_or(0) == list.encoded_entries_len,
        "the encoded length of revokedCertificates is wrong (X.690 8.1.3)",
    )
}

fn rfc5280_5_2_extensions(list: &ParsedCrlTbs<'_>) -> DerResult<()> {
    list.extensions.check_no_encoded_defaults()?;
    list.extensions.check_no_duplicates()?;
    list.extensions.check_authority_key_id(list.expected.key_id)
}

fn rfc5280_5_2_3_crl_number(list: &ParsedCrlTbs<'_>) -> DerResult<()> {
    ensure(list.extensions.find(oid::CRL_NUMBER).is_some(), "cRLNumber is missing (RFC 5280 5.2.3)")
}

fn rfc5280_5_2_4_delta_indicator(list: &ParsedCrlTbs<'_>) -> DerResult<()> {
    let number = |oid| list.extensions.find(oid).map(|e| DerReader::new(e.value).unsigned()).transpose();
    let Some(base) = number(oid::DELTA_CRL_INDICATOR)? else { return Ok(()) };
    let own = number(oid::CRL_NUMBER)?.unwrap_or_default();
    ensure(
        (base.len(), base) <= (own.len(), own),
        "the base CRL number is above the number of the delta CRL (RFC 5280 5.2.4)",
    )?;
    let freshest = list.extensions.find(oid::FRESHEST_CRL).is_some();
    ensure(!freshest, "freshestCRL must not be in a delta CRL (RFC 5280 5.2.6)")
}

#[cfg(test)]
mod tests;

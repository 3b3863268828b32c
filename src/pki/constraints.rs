//! Name constraints (RFC 5280 4.2.1.10) of the chains above a new certificate.
//!
//! Relying parties check every name against the constraints of the whole chain (6.1.4). A certificate that they would
//! reject is not signed. The names are parsed from the bytes to be signed, so no endpoint or template can bypass the
//! check. A wildcard counts as all names that it matches. The number of comparisons is limited as in relying parties.
//! `compare` compares a name with a subtree.

mod compare;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use self::compare::{ComparableName, SubtreeBase, UTF8_EMAIL_TAG, lossy_text};
use crate::error::{Error, Result};
use crate::x509::certificate::{Certificate, CertificateFields};
use crate::x509::extension::MAX_SUBTREES;
use crate::x509::general_name::{
    DIRECTORY_NAME, DNS_NAME, IP_ADDRESS, OTHER_NAME, RFC822_NAME, SMTP_UTF8_MAILBOX, URI_NAME,
};
use crate::x509::name::{self, Attribute};
use crate::x509::oid;
use crate::x509::raw_extension::ExtensionRef;
use crate::x509::reader::{DerError, DerReader, DerResult};
use crate::x509::writer::{IA5_STRING, SEQUENCE, UTF8_STRING, context_constructed};

/// Maximum number of comparisons for a certificate: Go and webpki reject chains that need more.
const MAX_COMPARISONS: usize = 250_000;

/// The name constraints of one certificate, by kind of name (tag of the GeneralName).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints(BTreeMap<u8, ConstrainedSubtrees>);

/// The permitted and excluded subtrees for one kind of name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ConstrainedSubtrees {
    permitted: Vec<SubtreeBase>,
    excluded: Vec<SubtreeBase>,
}

impl Constraints {
    /// Parses the name constraints of an issuer's certificate, if it has any.
    ///
    /// # Errors
    /// `Invalid` when they cannot be parsed; then nothing may be issued below them.
    pub fn of(certificate: &Certificate) -> Result<Option<Self>> {
        let Some(extension) = certificate.extension(oid::NAME_CONSTRAINTS) else { return Ok(None) };
        Self::read(&extension.value)
            .map(Some)
            .map_err(|e| e.into_error("issuer_ref: nameConstraints of the issuing chain"))
    }

    fn read(value: &[u8]) -> DerResult<Self> {
        let mut fields = DerReader::read_single(value, SEQUENCE)?.reader();
        let mut constraints = Self::default();
        if let Some(side) = fields.optional(context_constructed(0))? {
            parse_subtrees(side.reader(), |kind, base| constraints.subtrees_of_kind(kind).permitted.push(base))?;
        }
        if let Some(side) = fields.optional(context_constructed(1))? {
            parse_subtrees(side.reader(), |kind, base| constraints.subtrees_of_kind(kind).excluded.push(base))?;
        }
        fields.done()?;
        Ok(constraints)
    }

    fn subtrees_of_kind(&mut self, kind: u8) -> &mut ConstrainedSubtrees {
        self.0.entry(kind).or_default()
    }

    /// Returns how many comparisons a name of this kind needs.
    fn comparison_count(&self, kind: u8) -> usize {
        self.0.get(&kind).map_or(0, |sides| sides.permitted.len() + sides.excluded.len())
    }

    /// `true` if a name is outside all excluded subtrees and, if its kind has permitted subtrees, inside one of them.
    fn allows(&self, kind: u8, name: &ComparableName<'_>) -> bool {
        let Some(ConstrainedSubtrees { permitted, excluded }) = self.0.get(&kind) else { return true };
        !excluded.iter().any(|base| name.may_match(base))
            && (permitted.is_empty() || permitted.iter().any(|base| name.is_within(base)))
    }
}

fn parse_subtrees(mut list: DerReader<'_>, mut each: impl FnMut(u8, SubtreeBase)) -> DerResult<()> {
    let mut count = 0;
    while !list.is_empty() {
        count += 1;
        if count > MAX_SUBTREES {
            return Err(DerError("more than 1000 permitted or excluded subtrees"));
        }
        let mut subtree = list.sequence()?;
        let base = subtree.any()?;
        // RFC 5280 4.2.1.10: minimum is 0, which DER omits, and maximum is absent.
        subtree.done().map_err(|_| DerError("a subtree has a minimum or maximum, which RFC 5280 does not use"))?;
        if base.tag == IP_ADDRESS && !matches!(base.content.len(), 8 | 32) {
            return Err(DerError("a subtree of addresses must have 8 or 32 octets (RFC 5280 4.2.1.10)"));
        }
        each(base.tag, SubtreeBase::new(base.tag, base.content));
    }
    Ok(())
}

struct ConstrainedName<'a> {
    tag: u8,
    content: Cow<'a, [u8]>,
}

impl ConstrainedName<'_> {
    /// Returns the tag of the subtrees that the name is compared with.
    fn kind(&self) -> u8 {
        if self.tag == UTF8_EMAIL_TAG { RFC822_NAME } else { self.tag }
    }

    fn check_chain(&self, chain: &[ConstrainedChainLink]) -> Result<()> {
        let kind = self.kind();
        let name = ComparableName::new(self.tag, &self.content);
        let Some(refusing) = chain.iter().find(|link| !link.constraints.allows(kind, &name)) else { return Ok(()) };
        Err(Error::invalid(format!(
            "issuer_ref: the name constraints of the issuing chain do not allow {} (RFC 5280 4.2.1.10): see \
             nameConstraints of {}",
            self.describe_briefly(),
            refusing.description
        )))
    }

    fn describe_briefly(&self) -> String {
        self.describe().chars().take(300).collect()
    }

    fn describe(&self) -> String {
        match self.tag {
            RFC822_NAME | UTF8_EMAIL_TAG if self.content.is_empty() => "a mailbox that cannot be read".to_owned(),
            DNS_NAME | RFC822_NAME | UTF8_EMAIL_TAG | URI_NAME => lossy_text(&self.content).into_owned(),
            IP_ADDRESS => match self.content.len() {
                4 => self.content.iter().map(u8::to_string).collect::<Vec<_>>().join("."),
                _ => "an IPv6 address".to_owned(),
            },
            DIRECTORY_NAME => "the subject or a directoryName".to_owned(),
            _ => "a name of another kind".to_owned(),
        }
    }
}

/// The name constraints of a chain above a new certificate, including those of its issuer.
#[derive(Clone)]
pub struct ChainConstraints {
    /// Validity of the chain, epoch seconds.
    pub span: RangeInclusive<i64>,
    /// The certificates of the chain that have name constraints.
    pub links: Vec<ConstrainedChainLink>,
}

/// A certificate with name constraints.
#[derive(Clone)]
pub struct ConstrainedChainLink {
    /// Name constraints of the certificate.
    pub constraints: Arc<Constraints>,
    /// Description of the certificate for error messages.
    pub description: String,
}

/// Checks all names of a TBSCertificate against the constraints of the chains above it. At least one chain whose
/// validity overlaps the certificate's must allow all names. If no validity overlaps, all chains are considered.
///
/// # Errors
/// `Invalid` naming the first name that the first chain rejects, and the certificate of the chain that rejects it. Also
/// `Invalid` when there are more than [`MAX_COMPARISONS`] comparisons.
pub(super) fn check_name_constraints(tbs: &[u8], chains: &[ChainConstraints]) -> Result<()> {
    if chains.is_empty() {
        return Ok(());
    }
    let names = collect_names(tbs)?;
    let mut considered = read_validity(tbs).map_err(|e| e.into_error("certificate")).map(|validity| {
        let overlaps =
            |chain: &&ChainConstraints| chain.span.start() <= validity.end() && validity.start() <= chain.span.end();
        chains.iter().filter(overlaps).collect::<Vec<_>>()
    })?;
    if considered.is_empty() {
        considered = chains.iter().collect();
    }
    let mut comparisons = 0;
    let mut refused = None;
    for chain in considered {
        let of_name = |name: &ConstrainedName<'_>| -> usize {
            chain.links.iter().map(|link| link.constraints.comparison_count(name.kind())).sum()
        };
        comparisons += names.iter().map(of_name).sum::<usize>();
        let checked = if comparisons > MAX_COMPARISONS {
            Err(Error::invalid(format!(
                "certificate: more than {MAX_COMPARISONS} comparisons of names with the name constraints of the issuing chain"
            )))
        } else {
            names.iter().try_for_each(|name| name.check_chain(&chain.links))
        };
        match checked {
            Ok(()) => return Ok(()),
            Err(error) => drop(refused.get_or_insert(error)),
        }
        if comparisons > MAX_COMPARISONS {
            break;
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Checks the names of a CA certificate against constraints (RFC 5280 6.1.3), without treating its common name as a
/// host name.
///
/// # Errors
/// `Invalid` naming the first name that is not allowed.
pub(super) fn validate_ca_names(tbs: &[u8], constraints: &Constraints) -> Result<()> {
    let (subject, names) = parse_alternative_names(tbs).map_err(|e| e.into_error("certificate"))?;
    let names = add_subject_names(subject, names)?;
    let allows =
        |name: &&ConstrainedName<'_>| constraints.allows(name.kind(), &ComparableName::new(name.tag, &name.content));
    match names.iter().find(|name| !allows(name)) {
        Some(name) => Err(Error::invalid(format!("{} (RFC 5280 4.2.1.10)", name.describe_briefly()))),
        None => Ok(()),
    }
}

fn read_validity(tbs: &[u8]) -> DerResult<RangeInclusive<i64>> {
    let fields = CertificateFields::read(DerReader::read_single(tbs, SEQUENCE)?.reader())?;
    Ok(fields.not_before..=fields.not_after)
}

/// Returns all names of a TBSCertificate that relying parties may compare with name constraints.
fn collect_names(tbs: &[u8]) -> Result<Vec<ConstrainedName<'_>>> {
    let (subject, names) = parse_alternative_names(tbs).map_err(|e| e.into_error("certificate"))?;
    let has_host = names.iter().any(|name| name.tag == DNS_NAME);
    let mut names = add_subject_names(subject, names)?;
    if !has_host {
        // Without DNS names, some relying parties treat common names as host names.
        let hosts = name::values(subject, Attribute::CommonName)?.into_iter().filter(|name| is_host_like(name));
        names.extend(hosts.map(|host| ConstrainedName { tag: DNS_NAME, content: host.into_bytes().into() }));
    }
    Ok(names)
}

/// Adds the names of the subject to `names`, the subject alternative names.
fn add_subject_names<'a>(subject: &'a [u8], mut names: Vec<ConstrainedName<'a>>) -> Result<Vec<ConstrainedName<'a>>> {
    if !name::is_empty(subject) {
        names.push(ConstrainedName { tag: DIRECTORY_NAME, content: subject.into() });
    }
    // RFC 5280 4.2.1.10: the legacy emailAddress attribute counts as a mailbox. It is an IA5String (RFC 2985 5.2.1);
    // some relying parties cannot read other types.
    for (tag, mailbox) in name::tagged_values(subject, Attribute::EmailAddress).map_err(|e| e.into_error("subject"))? {
        names.push(ConstrainedName {
            tag: RFC822_NAME,
            content: if tag == IA5_STRING { mailbox.into() } else { Cow::default() },
        });
    }
    Ok(names)
}

/// Parses the subject and the subject alternative names.
fn parse_alternative_names(tbs: &[u8]) -> DerResult<(&[u8], Vec<ConstrainedName<'_>>)> {
    let fields = CertificateFields::read(DerReader::read_single(tbs, SEQUENCE)?.reader())?;
    let mut extensions = fields.extensions.unwrap_or(DerReader::new(&[]));
    let mut names = Vec::new();
    while !extensions.is_empty() {
        let extension = ExtensionRef::next(&mut extensions)?;
        if extension.oid != oid::SUBJECT_ALT_NAME {
            continue;
        }
        let mut sans = DerReader::read_single(extension.value, SEQUENCE)?.reader();
        while !sans.is_empty() {
            let name = sans.any()?;
            names.push(ConstrainedName { tag: name.tag, content: name.content.into() });
            if name.tag == OTHER_NAME {
                names.extend(parse_smtp_utf8_mailbox(name.reader())?);
            }
        }
    }
    Ok((fields.subject, names))
}

fn parse_smtp_utf8_mailbox(mut other: DerReader<'_>) -> DerResult<Option<ConstrainedName<'_>>> {
    if other.oid()? != SMTP_UTF8_MAILBOX {
        return Ok(None);
    }
    let value = other.expect(context_constructed(0))?.reader().any()?;
    let content = if value.tag == UTF8_STRING { value.content } else { b"" };
    Ok(Some(ConstrainedName { tag: UTF8_EMAIL_TAG, content: content.into() }))
}

fn is_host_like(name: &str) -> bool {
    name.contains('.') && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._*".contains(&b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::x509::extension::{self, NameConstraints};
    use crate::x509::name::rdn;

    fn constraints(permitted: &[(u8, &[u8])], excluded: &[(u8, &[u8])]) -> Constraints {
        let mut all = Constraints::default();
        permitted
            .iter()
            .for_each(|(kind, base)| all.subtrees_of_kind(*kind).permitted.push(SubtreeBase::new(*kind, base)));
        excluded
            .iter()
            .for_each(|(kind, base)| all.subtrees_of_kind(*kind).excluded.push(SubtreeBase::new(*kind, base)));
        all
    }

    fn allowed(constraints: &Constraints, tag: u8, content: &[u8]) -> bool {
        let named = ConstrainedName { tag, content: content.into() };
        constraints.allows(named.kind(), &ComparableName::new(tag, content))
    }

    #[test]
    fn dns_base_covers_itself_unless_it_begins_with_a_dot() {
        let permitted = constraints(&[(DNS_NAME, b"Example.com"), (DNS_NAME, b".dot.test")], &[]);
        for (name, ok) in [
            ("example.com", true),
            ("A.EXAMPLE.com", true),
            ("*.example.com", true),
            ("badexample.com", false),
            ("a.dot.test", true),
            ("dot.test", false),
            (".dot.test", false),
            ("other.test", false),
        ] {
            assert_eq!(allowed(&permitted, DNS_NAME, name.as_bytes()), ok, "{name}");
        }
        assert!(allowed(&permitted, RFC822_NAME, b"a@other.test"), "kinds without a permitted subtree stay free");
    }

    #[test]
    fn wildcard_covering_an_excluded_name_is_refused() {
        let excluded = constraints(&[], &[(DNS_NAME, b"foo.example.com")]);
        for (name, ok) in [
            ("*.example.com", false),
            ("f*.example.com", false),
            ("a.foo.example.com", false),
            ("*.com", true),
            ("bar.example.com", true),
            ("*.bar.example.com", true),
            ("*", true),
        ] {
            assert_eq!(allowed(&excluded, DNS_NAME, name.as_bytes()), ok, "{name}");
        }
        assert!(!allowed(&constraints(&[], &[(DNS_NAME, b"com")]), DNS_NAME, b"*"));
    }

    #[test]
    fn mailboxes_are_checked_against_mailbox_host_or_domain() {
        let sides =
            constraints(&[(RFC822_NAME, b"root@a.test"), (RFC822_NAME, b"b.test"), (RFC822_NAME, b".c.test")], &[]);
        for (name, ok) in [
            ("root@A.test", true),
            ("Root@a.test", false),
            ("x@b.test", true),
            ("x@y.b.test", false),
            ("x@y.c.test", true),
            ("x@c.test", false),
            ("no mailbox", false),
        ] {
            assert_eq!(allowed(&sides, RFC822_NAME, name.as_bytes()), ok, "{name}");
        }
    }

    #[test]
    fn utf8_mailboxes_are_checked_by_the_ascii_form_of_the_host() {
        let permitted = constraints(
            &[(RFC822_NAME, b"xn--bcher-kva.test"), (RFC822_NAME, b"a.test"), (RFC822_NAME, b"x@c.test")],
            &[],
        );
        let excluded = constraints(
            &[],
            &[(RFC822_NAME, b"xn--bcher-kva.test"), (RFC822_NAME, b".b.test"), (RFC822_NAME, b"@d.test")],
        );
        for (mailbox, inside, outside) in [
            ("jörg@bücher.test", true, false),
            ("jörg@xn--bcher-kva.test", true, false),
            ("jörg@a.test", true, true),
            // RFC 9598 allows only one form of this host, and this is another form, so relying parties may read it
            // differently.
            ("jörg@BÜCHER.test", false, false),
            ("jörg@evil.test", false, true),
            ("jörg@x.b.test", false, false),
            ("jörg@d.test", false, false),
            // A base with a local part does not apply to SmtpUTF8Mailbox.
            ("x@c.test", false, true),
            ("no mailbox", false, false),
        ] {
            assert_eq!(allowed(&permitted, UTF8_EMAIL_TAG, mailbox.as_bytes()), inside, "permitted {mailbox}");
            assert_eq!(allowed(&excluded, UTF8_EMAIL_TAG, mailbox.as_bytes()), outside, "excluded {mailbox}");
        }
    }

    #[test]
    fn excluded_names_are_refused_in_every_interpretation() {
        let excluded = constraints(
            &[],
            &[(DNS_NAME, b"a.test"), (DNS_NAME, b".b.test"), (RFC822_NAME, b"@c.test"), (URI_NAME, b"d.test")],
        );
        for (tag, name) in [
            (DNS_NAME, "a.test."),
            (DNS_NAME, ".a.test"),
            (DNS_NAME, "x.a.test."),
            (DNS_NAME, "x.b.test."),
            (DNS_NAME, ".b.test"),
            (RFC822_NAME, "x@c.test"),
            (RFC822_NAME, "x@c.test."),
            (RFC822_NAME, "c.test"),
            (URI_NAME, "https://d.test./"),
            (URI_NAME, "https://user@d.test/"),
            (URI_NAME, "x://d.test:1@evil.test/"),
            (URI_NAME, "https:/d.test"),
        ] {
            assert!(!allowed(&excluded, tag, name.as_bytes()), "{name}");
        }
        for (tag, name) in
            [(DNS_NAME, "b.test"), (DNS_NAME, "ba.test"), (RFC822_NAME, "x@y.c.test"), (URI_NAME, "https://x.d.test/")]
        {
            assert!(allowed(&excluded, tag, name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn permitted_names_must_be_permitted_in_every_interpretation() {
        let permitted =
            constraints(&[(URI_NAME, b"a.test"), (URI_NAME, b""), (RFC822_NAME, b""), (RFC822_NAME, b"@b.test")], &[]);
        for (tag, name) in [
            (URI_NAME, "https://user@a.test/"),
            (URI_NAME, "https://a.test?q"),
            (URI_NAME, "https:/a.test"),
            (URI_NAME, "https://a.test./"),
            (RFC822_NAME, "x@b.test"),
        ] {
            assert!(!allowed(&permitted, tag, name.as_bytes()), "{name}");
        }
        assert!(allowed(&permitted, URI_NAME, b"https://a.test:8443/"));
    }

    #[test]
    fn uris_are_checked_by_their_host_and_need_one() {
        let permitted = constraints(&[(URI_NAME, b"a.test"), (URI_NAME, b".b.test")], &[]);
        let excluded = constraints(&[], &[(URI_NAME, b"a.test")]);
        for (uri, inside, outside) in [
            ("https://a.test/x", true, false),
            ("spiffe://a.test/ns", true, false),
            ("https://x.b.test", true, true),
            ("https://b.test", false, true),
            ("urn:uuid:1", false, false),
            ("https://10.0.0.1/", false, false),
        ] {
            assert_eq!(allowed(&permitted, URI_NAME, uri.as_bytes()), inside, "permitted {uri}");
            assert_eq!(allowed(&excluded, URI_NAME, uri.as_bytes()), outside, "excluded {uri}");
        }
    }

    #[test]
    fn addresses_are_checked_by_network_and_family() {
        let sides =
            constraints(&[(IP_ADDRESS, &[10, 0, 0, 0, 255, 0, 0, 0])], &[(IP_ADDRESS, &[10, 1, 0, 0, 255, 255, 0, 0])]);
        for (address, ok) in
            [(&[10, 2, 3, 4][..], true), (&[10, 1, 3, 4], false), (&[11, 0, 0, 1], false), (&[0; 16], false)]
        {
            assert_eq!(allowed(&sides, IP_ADDRESS, address), ok, "{address:?}");
        }
    }

    #[test]
    fn directory_names_match_by_their_first_rdns_in_any_case() {
        let organization = rdn(Attribute::Organization, &["Example  Org".into()]);
        let base = name::name(&[&organization]);
        let sides = constraints(&[(DIRECTORY_NAME, base.as_der())], &[]);
        let other_case = rdn(Attribute::Organization, &["EXAMPLE org".into()]);
        let common_name = rdn(Attribute::CommonName, &["a".into()]);
        assert!(allowed(&sides, DIRECTORY_NAME, name::name(&[&other_case, &common_name]).as_der()));
        assert!(!allowed(&sides, DIRECTORY_NAME, name::name(&[&common_name, &organization]).as_der()));
        assert!(!allowed(&sides, DIRECTORY_NAME, name::name(&[&common_name]).as_der()));
    }

    #[test]
    fn constrained_name_types_without_a_comparison_are_refused() {
        let sides = [constraints(&[(0x88, &[0x2a])], &[]), constraints(&[], &[(0x88, &[0x2a])])];
        assert!(sides.iter().all(|side| !allowed(side, 0x88, &[0x2b]) && allowed(side, DNS_NAME, b"a.test")));
    }

    #[test]
    fn encoded_constraints_read_back_and_a_minimum_is_refused() {
        let mut sides = NameConstraints::default();
        sides.permitted.dns.push("a.test".into());
        sides.excluded.ips.push("10.0.0.0/8".parse().unwrap());
        let mut encoded = DerReader::new(&[]);
        let bytes = extension::name_constraints(&sides);
        encoded.clone_from(&DerReader::new(bytes.as_der()));
        let value = ExtensionRef::next(&mut encoded).unwrap().value;
        let read = Constraints::read(value).unwrap();
        assert_eq!(read, constraints(&[(DNS_NAME, b"a.test")], &[(IP_ADDRESS, &[10, 0, 0, 0, 255, 0, 0, 0])]));
        // permittedSubtrees { { dNSName "a", minimum 1 } }
        assert!(Constraints::read(&[0x30, 10, 0xa0, 8, 0x30, 6, 0x82, 1, b'a', 0x80, 1, 1]).is_err());
        // An address without its mask.
        assert!(Constraints::read(&[0x30, 10, 0xa0, 8, 0x30, 6, 0x87, 4, 10, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn constraints_of_any_bytes_do_not_panic(
            value in proptest::collection::vec(any::<u8>(), 0..60),
            tag in 0x80_u8..0x90,
            name in proptest::collection::vec(any::<u8>(), 0..30),
        ) {
            let subtree = [&[0x30, value.len() as u8 + 6, 0xa0, value.len() as u8 + 4, 0x30, value.len() as u8 + 2, tag, value.len() as u8], &value[..]].concat();
            for encoded in [&value, &subtree] {
                if let Ok(constraints) = Constraints::read(encoded) {
                    allowed(&constraints, tag, &name);
                }
            }
        }
    }
}

//! Name constraints (RFC 5280 4.2.1.10) of the chains above a new certificate.
//!
//! Relying parties check every name against the constraints of the whole chain (6.1.4). A certificate that they would
//! reject is not signed. The names are parsed from the bytes to be signed, so no endpoint or template can bypass the
//! check. A wildcard counts as all names that it matches. The number of comparisons is limited as in relying parties.
//! `compare` has the comparison of a name with a subtree.

mod compare;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use self::compare::{Base, Name, UTF8_EMAIL, text};
use crate::error::{Error, Result};
use crate::x509::certificate::{Certificate, CertificateFields};
use crate::x509::extension::MAX_SUBTREES;
use crate::x509::general_name::{DIRECTORY, DNS, EMAIL, IP, OTHER, SMTP_UTF8_MAILBOX, URI};
use crate::x509::name::{self, Attribute};
use crate::x509::oid;
use crate::x509::raw_extension::ExtensionRef;
use crate::x509::reader::{DerError, Read, Reader};
use crate::x509::writer::{IA5_STRING, SEQUENCE, UTF8_STRING, context_constructed};

/// Maximum number of comparisons for a certificate: Go and webpki reject chains that need more.
const MAX_COMPARISONS: usize = 250_000;

/// The constraints of one certificate by kind of name (tag of the GeneralName).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints(BTreeMap<u8, Sides>);

/// The subtrees of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sides {
    permitted: Vec<Base>,
    excluded: Vec<Base>,
}

impl Constraints {
    /// Parses the constraints of an issuer's certificate, if it has any.
    ///
    /// # Errors
    /// `Invalid` when they cannot be parsed; then nothing may be issued below them.
    pub fn of(certificate: &Certificate) -> Result<Option<Self>> {
        let Some(extension) = certificate.extension(oid::NAME_CONSTRAINTS) else { return Ok(None) };
        Self::read(&extension.value).map(Some).map_err(|e| e.of("issuer_ref: nameConstraints of the issuing chain"))
    }

    fn read(value: &[u8]) -> Read<Self> {
        let mut fields = Reader::only(value, SEQUENCE)?.reader();
        let mut constraints = Self::default();
        if let Some(side) = fields.optional(context_constructed(0))? {
            subtrees(side.reader(), |kind, base| constraints.of_kind(kind).permitted.push(base))?;
        }
        if let Some(side) = fields.optional(context_constructed(1))? {
            subtrees(side.reader(), |kind, base| constraints.of_kind(kind).excluded.push(base))?;
        }
        fields.done()?;
        Ok(constraints)
    }

    fn of_kind(&mut self, kind: u8) -> &mut Sides {
        self.0.entry(kind).or_default()
    }

    /// Number of comparisons for a name of this kind.
    fn comparisons(&self, kind: u8) -> usize {
        self.0.get(&kind).map_or(0, |sides| sides.permitted.len() + sides.excluded.len())
    }

    /// `true` if a name is outside all excluded subtrees and, if its kind has permitted subtrees, inside one of them.
    fn allow(&self, kind: u8, name: &Name<'_>) -> bool {
        let Some(Sides { permitted, excluded }) = self.0.get(&kind) else { return true };
        !excluded.iter().any(|base| name.touches(base))
            && (permitted.is_empty() || permitted.iter().any(|base| name.is_within(base)))
    }
}

fn subtrees(mut list: Reader<'_>, mut each: impl FnMut(u8, Base)) -> Read<()> {
    let mut count = 0;
    while !list.is_empty() {
        count += 1;
        if count > MAX_SUBTREES {
            return Err(DerError("more than 1000 subtrees on one side"));
        }
        let mut subtree = list.sequence()?;
        let base = subtree.any()?;
        // RFC 5280 4.2.1.10: minimum is 0, which DER omits, and maximum is absent.
        subtree.done().map_err(|_| DerError("a subtree has a minimum or maximum, which RFC 5280 does not use"))?;
        if base.tag == IP && !matches!(base.content.len(), 8 | 32) {
            return Err(DerError("a subtree of addresses must have 8 or 32 octets (RFC 5280 4.2.1.10)"));
        }
        each(base.tag, Base::new(base.tag, base.content));
    }
    Ok(())
}

struct Named<'a> {
    tag: u8,
    content: Cow<'a, [u8]>,
}

impl Named<'_> {
    /// Tag of the subtrees that the name is compared with.
    fn kind(&self) -> u8 {
        if self.tag == UTF8_EMAIL { EMAIL } else { self.tag }
    }

    fn hold(&self, chain: &[Link]) -> Result<()> {
        let (kind, name) = (self.kind(), Name::new(self.tag, &self.content));
        let Some(refusing) = chain.iter().find(|link| !link.constraints.allow(kind, &name)) else { return Ok(()) };
        Err(Error::invalid(format!(
            "issuer_ref: the name constraints of the issuing chain do not allow {} (RFC 5280 4.2.1.10): those of {}",
            self.shown_briefly(),
            refusing.of
        )))
    }

    fn shown_briefly(&self) -> String {
        self.shown().chars().take(300).collect()
    }

    fn shown(&self) -> String {
        match self.tag {
            EMAIL | UTF8_EMAIL if self.content.is_empty() => "a mailbox that cannot be read".to_owned(),
            DNS | EMAIL | UTF8_EMAIL | URI => text(&self.content).into_owned(),
            IP => match self.content.len() {
                4 => self.content.iter().map(u8::to_string).collect::<Vec<_>>().join("."),
                _ => "an IPv6 address".to_owned(),
            },
            DIRECTORY => "the subject or a directoryName".to_owned(),
            _ => "a name of another kind".to_owned(),
        }
    }
}

/// The name constraints of a chain above an issuer, including the issuer's own.
#[derive(Clone)]
pub struct ChainConstraints {
    /// Validity of the chain, epoch seconds.
    pub span: RangeInclusive<i64>,
    /// The certificates that have constraints.
    pub links: Vec<Link>,
}

/// A certificate with name constraints.
#[derive(Clone)]
pub struct Link {
    /// Its constraints.
    pub constraints: Arc<Constraints>,
    /// Its description for error messages.
    pub of: String,
}

/// Checks all names of a TBSCertificate against the constraints above it. At least one chain whose validity overlaps
/// the certificate's must allow all names. If no validity overlaps, all chains are considered.
///
/// # Errors
/// `Invalid` naming the first name rejected by the first chain and the rejecting certificate, or when there are more
/// than [`MAX_COMPARISONS`] comparisons.
pub(super) fn check(tbs: &[u8], chains: &[ChainConstraints]) -> Result<()> {
    if chains.is_empty() {
        return Ok(());
    }
    let names = names(tbs)?;
    let mut counted = validity(tbs).map_err(|e| e.of("certificate")).map(|validity| {
        let overlaps =
            |chain: &&ChainConstraints| chain.span.start() <= validity.end() && validity.start() <= chain.span.end();
        chains.iter().filter(overlaps).collect::<Vec<_>>()
    })?;
    if counted.is_empty() {
        counted = chains.iter().collect();
    }
    let (mut comparisons, mut refused) = (0, None);
    for chain in counted {
        let of_name = |name: &Named<'_>| -> usize {
            chain.links.iter().map(|link| link.constraints.comparisons(name.kind())).sum()
        };
        comparisons += names.iter().map(of_name).sum::<usize>();
        let held = if comparisons > MAX_COMPARISONS {
            Err(Error::invalid(format!(
                "certificate: more than {MAX_COMPARISONS} comparisons of names with the name constraints of the issuing chain"
            )))
        } else {
            names.iter().try_for_each(|name| name.hold(&chain.links))
        };
        match held {
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
pub(super) fn hold_authority(tbs: &[u8], constraints: &Constraints) -> Result<()> {
    let (subject, names) = alternative_names(tbs).map_err(|e| e.of("certificate"))?;
    let names = with_subject(subject, names)?;
    let allows = |name: &&Named<'_>| constraints.allow(name.kind(), &Name::new(name.tag, &name.content));
    match names.iter().find(|name| !allows(name)) {
        Some(name) => Err(Error::invalid(format!("{} (RFC 5280 4.2.1.10)", name.shown_briefly()))),
        None => Ok(()),
    }
}

fn validity(tbs: &[u8]) -> Read<RangeInclusive<i64>> {
    let fields = CertificateFields::read(Reader::only(tbs, SEQUENCE)?.reader())?;
    Ok(fields.not_before..=fields.not_after)
}

/// All names that relying parties may compare with constraints.
fn names(tbs: &[u8]) -> Result<Vec<Named<'_>>> {
    let (subject, names) = alternative_names(tbs).map_err(|e| e.of("certificate"))?;
    let has_host = names.iter().any(|name| name.tag == DNS);
    let mut names = with_subject(subject, names)?;
    if !has_host {
        // Without DNS names, some relying parties treat common names as host names.
        let hosts = name::values(subject, Attribute::CommonName)?.into_iter().filter(|name| is_host_like(name));
        names.extend(hosts.map(|host| Named { tag: DNS, content: host.into_bytes().into() }));
    }
    Ok(names)
}

/// Adds the names of the subject to alternative names.
fn with_subject<'a>(subject: &'a [u8], mut names: Vec<Named<'a>>) -> Result<Vec<Named<'a>>> {
    if !name::is_empty(subject) {
        names.push(Named { tag: DIRECTORY, content: subject.into() });
    }
    // RFC 5280 4.2.1.10: the legacy emailAddress attribute counts as a mailbox. It is an IA5String (RFC 2985 5.2.1);
    // some relying parties cannot read other types.
    for (tag, mailbox) in name::tagged_values(subject, Attribute::EmailAddress).map_err(|e| e.of("subject"))? {
        names.push(Named { tag: EMAIL, content: if tag == IA5_STRING { mailbox.into() } else { Cow::default() } });
    }
    Ok(names)
}

/// Parses the subject and the subject alternative names.
fn alternative_names(tbs: &[u8]) -> Read<(&[u8], Vec<Named<'_>>)> {
    let fields = CertificateFields::read(Reader::only(tbs, SEQUENCE)?.reader())?;
    let mut extensions = fields.extensions.unwrap_or(Reader::new(&[]));
    let mut names = Vec::new();
    while !extensions.is_empty() {
        let extension = ExtensionRef::next(&mut extensions)?;
        if extension.oid != oid::SUBJECT_ALT_NAME {
            continue;
        }
        let mut sans = Reader::only(extension.value, SEQUENCE)?.reader();
        while !sans.is_empty() {
            let name = sans.any()?;
            names.push(Named { tag: name.tag, content: name.content.into() });
            if name.tag == OTHER {
                names.extend(smtp_utf8_mailbox(name.reader())?);
            }
        }
    }
    Ok((fields.subject, names))
}

fn smtp_utf8_mailbox(mut other: Reader<'_>) -> Read<Option<Named<'_>>> {
    if other.oid()? != SMTP_UTF8_MAILBOX {
        return Ok(None);
    }
    let value = other.expect(context_constructed(0))?.reader().any()?;
    let content = if value.tag == UTF8_STRING { value.content } else { b"" };
    Ok(Some(Named { tag: UTF8_EMAIL, content: content.into() }))
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
        permitted.iter().for_each(|(kind, base)| all.of_kind(*kind).permitted.push(Base::new(*kind, base)));
        excluded.iter().for_each(|(kind, base)| all.of_kind(*kind).excluded.push(Base::new(*kind, base)));
        all
    }

    fn allowed(constraints: &Constraints, tag: u8, content: &[u8]) -> bool {
        let named = Named { tag, content: content.into() };
        constraints.allow(named.kind(), &Name::new(tag, content))
    }

    #[test]
    fn dns_names_lie_at_or_below_the_base_and_with_a_dot_below_it() {
        let permitted = constraints(&[(DNS, b"Example.com"), (DNS, b".dot.test")], &[]);
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
            assert_eq!(allowed(&permitted, DNS, name.as_bytes()), ok, "{name}");
        }
        assert!(allowed(&permitted, EMAIL, b"a@other.test"), "kinds without a permitted subtree stay free");
    }

    #[test]
    fn a_wildcard_is_refused_when_it_covers_something_excluded() {
        let excluded = constraints(&[], &[(DNS, b"foo.example.com")]);
        for (name, ok) in [
            ("*.example.com", false),
            ("f*.example.com", false),
            ("a.foo.example.com", false),
            ("*.com", true),
            ("bar.example.com", true),
            ("*.bar.example.com", true),
            ("*", true),
        ] {
            assert_eq!(allowed(&excluded, DNS, name.as_bytes()), ok, "{name}");
        }
        assert!(!allowed(&constraints(&[], &[(DNS, b"com")]), DNS, b"*"));
    }

    #[test]
    fn mailboxes_are_held_against_mailbox_host_or_domain() {
        let sides = constraints(&[(EMAIL, b"root@a.test"), (EMAIL, b"b.test"), (EMAIL, b".c.test")], &[]);
        for (name, ok) in [
            ("root@A.test", true),
            ("Root@a.test", false),
            ("x@b.test", true),
            ("x@y.b.test", false),
            ("x@y.c.test", true),
            ("x@c.test", false),
            ("no mailbox", false),
        ] {
            assert_eq!(allowed(&sides, EMAIL, name.as_bytes()), ok, "{name}");
        }
    }

    #[test]
    fn mailboxes_of_other_scripts_are_held_by_the_ascii_form_of_their_host() {
        let permitted = constraints(&[(EMAIL, b"xn--bcher-kva.test"), (EMAIL, b"a.test"), (EMAIL, b"x@c.test")], &[]);
        let excluded = constraints(&[], &[(EMAIL, b"xn--bcher-kva.test"), (EMAIL, b".b.test"), (EMAIL, b"@d.test")]);
        for (mailbox, inside, outside) in [
            ("jörg@bücher.test", true, false),
            ("jörg@xn--bcher-kva.test", true, false),
            ("jörg@a.test", true, true),
            // The host is not in its only valid form, so its meaning is ambiguous.
            ("jörg@BÜCHER.test", false, false),
            ("jörg@evil.test", false, true),
            ("jörg@x.b.test", false, false),
            ("jörg@d.test", false, false),
            // A base with a local part does not apply to SmtpUTF8Mailbox.
            ("x@c.test", false, true),
            ("no mailbox", false, false),
        ] {
            assert_eq!(allowed(&permitted, UTF8_EMAIL, mailbox.as_bytes()), inside, "permitted {mailbox}");
            assert_eq!(allowed(&excluded, UTF8_EMAIL, mailbox.as_bytes()), outside, "excluded {mailbox}");
        }
    }

    #[test]
    fn what_is_excluded_is_so_by_every_reading() {
        let excluded = constraints(&[], &[(DNS, b"a.test"), (DNS, b".b.test"), (EMAIL, b"@c.test"), (URI, b"d.test")]);
        for (tag, name) in [
            (DNS, "a.test."),
            (DNS, ".a.test"),
            (DNS, "x.a.test."),
            (DNS, "x.b.test."),
            (DNS, ".b.test"),
            (EMAIL, "x@c.test"),
            (EMAIL, "x@c.test."),
            (EMAIL, "c.test"),
            (URI, "https://d.test./"),
            (URI, "https://user@d.test/"),
            (URI, "x://d.test:1@evil.test/"),
            (URI, "https:/d.test"),
        ] {
            assert!(!allowed(&excluded, tag, name.as_bytes()), "{name}");
        }
        for (tag, name) in [(DNS, "b.test"), (DNS, "ba.test"), (EMAIL, "x@y.c.test"), (URI, "https://x.d.test/")] {
            assert!(allowed(&excluded, tag, name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn what_is_permitted_is_so_by_every_reading() {
        let permitted = constraints(&[(URI, b"a.test"), (URI, b""), (EMAIL, b""), (EMAIL, b"@b.test")], &[]);
        for (tag, name) in [
            (URI, "https://user@a.test/"),
            (URI, "https://a.test?q"),
            (URI, "https:/a.test"),
            (URI, "https://a.test./"),
            (EMAIL, "x@b.test"),
        ] {
            assert!(!allowed(&permitted, tag, name.as_bytes()), "{name}");
        }
        assert!(allowed(&permitted, URI, b"https://a.test:8443/"));
    }

    #[test]
    fn uris_are_held_by_their_host_and_need_one() {
        let permitted = constraints(&[(URI, b"a.test"), (URI, b".b.test")], &[]);
        let excluded = constraints(&[], &[(URI, b"a.test")]);
        for (uri, inside, outside) in [
            ("https://a.test/x", true, false),
            ("spiffe://a.test/ns", true, false),
            ("https://x.b.test", true, true),
            ("https://b.test", false, true),
            ("urn:uuid:1", false, false),
            ("https://10.0.0.1/", false, false),
        ] {
            assert_eq!(allowed(&permitted, URI, uri.as_bytes()), inside, "permitted {uri}");
            assert_eq!(allowed(&excluded, URI, uri.as_bytes()), outside, "excluded {uri}");
        }
    }

    #[test]
    fn addresses_are_held_by_network_and_family() {
        let sides = constraints(&[(IP, &[10, 0, 0, 0, 255, 0, 0, 0])], &[(IP, &[10, 1, 0, 0, 255, 255, 0, 0])]);
        for (address, ok) in
            [(&[10, 2, 3, 4][..], true), (&[10, 1, 3, 4], false), (&[11, 0, 0, 1], false), (&[0; 16], false)]
        {
            assert_eq!(allowed(&sides, IP, address), ok, "{address:?}");
        }
    }

    #[test]
    fn directory_names_are_held_by_their_first_rdns_in_any_letter_case() {
        let organization = rdn(Attribute::Organization, &["Example  Org".into()]);
        let base = name::name(&[&organization]);
        let sides = constraints(&[(DIRECTORY, base.as_der())], &[]);
        let other_case = rdn(Attribute::Organization, &["EXAMPLE org".into()]);
        let common_name = rdn(Attribute::CommonName, &["a".into()]);
        assert!(allowed(&sides, DIRECTORY, name::name(&[&other_case, &common_name]).as_der()));
        assert!(!allowed(&sides, DIRECTORY, name::name(&[&common_name, &organization]).as_der()));
        assert!(!allowed(&sides, DIRECTORY, name::name(&[&common_name]).as_der()));
    }

    #[test]
    fn kinds_that_cannot_be_compared_are_never_allowed_where_they_are_constrained() {
        let sides = [constraints(&[(0x88, &[0x2a])], &[]), constraints(&[], &[(0x88, &[0x2a])])];
        assert!(sides.iter().all(|side| !allowed(side, 0x88, &[0x2b]) && allowed(side, DNS, b"a.test")));
    }

    #[test]
    fn what_the_encoder_writes_is_read_and_a_minimum_is_refused() {
        let mut sides = NameConstraints::default();
        sides.permitted.dns.push("a.test".into());
        sides.excluded.ips.push("10.0.0.0/8".parse().unwrap());
        let mut encoded = Reader::new(&[]);
        let bytes = extension::name_constraints(&sides);
        encoded.clone_from(&Reader::new(bytes.as_der()));
        let value = ExtensionRef::next(&mut encoded).unwrap().value;
        let read = Constraints::read(value).unwrap();
        assert_eq!(read, constraints(&[(DNS, b"a.test")], &[(IP, &[10, 0, 0, 0, 255, 0, 0, 0])]));
        // permittedSubtrees { { dNSName "a", minimum 1 } }
        assert!(Constraints::read(&[0x30, 10, 0xa0, 8, 0x30, 6, 0x82, 1, b'a', 0x80, 1, 1]).is_err());
        // An address without its mask.
        assert!(Constraints::read(&[0x30, 10, 0xa0, 8, 0x30, 6, 0x87, 4, 10, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
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

//! Name constraints (RFC 5280 4.2.1.10): what the certificates above let a new one be called.
//!
//! Relying parties hold every name against the constraints of the whole chain (6.1.4). A certificate
//! that they would refuse is not signed in the first place: the names are read from the bytes that will
//! be signed, so no endpoint, request or template is a way around. A wildcard counts as everything that
//! it stands for.

use super::issuer::Issuer;
use crate::error::{Error, Result};
use crate::x509::certificate::CertificateFields;
use crate::x509::general_name::{DIRECTORY, DNS, EMAIL, IP, OTHER, URI};
use crate::x509::name::{self, Attribute, Letters};
use crate::x509::oid;
use crate::x509::raw_extension::ExtensionRef;
use crate::x509::reader::{DerError, Read, Reader};
use crate::x509::writer::{IA5_STRING, SEQUENCE, UTF8_STRING, context_constructed};

/// The constraints of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    permitted: Subtrees,
    excluded: Subtrees,
}

/// The bases of one side, by kind of name: its tag and its content octets.
type Subtrees = Vec<(u8, Vec<u8>)>;

impl Constraints {
    /// The constraints of an issuer's certificate, if it has any.
    ///
    /// # Errors
    /// `Invalid` when they cannot be read: nothing may be issued below them then.
    pub fn of(issuer: &Issuer) -> Result<Option<Self>> {
        let Some(extension) = issuer.certificate.extension(oid::NAME_CONSTRAINTS) else { return Ok(None) };
        Self::read(&extension.value).map(Some).map_err(|e| e.of("issuer_ref: nameConstraints of the issuing chain"))
    }

    fn read(value: &[u8]) -> Read<Self> {
        let mut fields = Reader::only(value, SEQUENCE)?.reader();
        let mut side =
            |tag| fields.optional(context_constructed(tag))?.map_or(Ok(Vec::new()), |s| subtrees(s.reader()));
        let constraints = Self { permitted: side(0)?, excluded: side(1)? };
        fields.done()?;
        Ok(constraints)
    }

    /// Whether a name may stand below this certificate: outside of everything excluded, and where its
    /// kind is constrained inside of something permitted.
    fn allow(&self, name: &Named<'_>) -> bool {
        let of_kind =
            |side: &'_ Subtrees| side.iter().filter(|(tag, _)| *tag == name.kind()).cloned().collect::<Vec<_>>();
        let (permitted, excluded) = (of_kind(&self.permitted), of_kind(&self.excluded));
        !excluded.iter().any(|(_, base)| name.touches(base))
            && (permitted.is_empty() || permitted.iter().any(|(_, base)| name.is_within(base)))
    }
}

fn subtrees(mut list: Reader<'_>) -> Read<Subtrees> {
    let mut all = Vec::new();
    while !list.is_empty() {
        let mut subtree = list.sequence()?;
        let base = subtree.any()?;
        // RFC 5280 4.2.1.10: minimum is 0, which DER leaves out, and maximum is absent.
        subtree.done().map_err(|_| DerError("a subtree has a minimum or maximum, which RFC 5280 does not use"))?;
        if base.tag == IP && !matches!(base.content.len(), 8 | 32) {
            return Err(DerError("a subtree of addresses must have 8 or 32 octets (RFC 5280 4.2.1.10)"));
        }
        all.push((base.tag, base.content.to_vec()));
    }
    Ok(all)
}

/// A name of the certificate to be.
struct Named<'a> {
    tag: u8,
    content: &'a [u8],
}

/// The tag given here to SmtpUTF8Mailbox, an otherName that is held against subtrees of mailboxes
/// (RFC 9598 6); no GeneralName has it.
const UTF8_EMAIL: u8 = 0;
/// id-on-SmtpUTF8Mailbox, 1.3.6.1.5.5.7.8.9.
const SMTP_UTF8_MAILBOX: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 8, 9];

impl Named<'_> {
    /// The tag of the subtrees that the name is held against.
    fn kind(&self) -> u8 {
        if self.tag == UTF8_EMAIL { EMAIL } else { self.tag }
    }

    /// Whether all that the name stands for lies in the subtree, by every reading of the name.
    fn is_within(&self, base: &[u8]) -> bool {
        match self.tag {
            DNS => in_domain(&lower(self.content), &lower(base)),
            EMAIL => Mailbox::read(self.content).is_some_and(|mailbox| mailbox.is_within(base)),
            // Not every relying party holds these against anything but a host.
            UTF8_EMAIL => {
                let is_host = !base.contains(&b'@') && !base.starts_with(b".");
                is_host && Mailbox::read(self.content).is_some_and(|mailbox| mailbox.is_within(base))
            }
            URI => {
                let uri = text(self.content);
                let host = uri_host(&uri).filter(|host| plain_host(&uri).as_ref() == Some(host));
                host.is_some_and(|host| host_within(&host, &lower(base)))
            }
            IP => in_network(self.content, base),
            DIRECTORY => directory_within(self.content, base, Letters::Ascii),
            // Kinds whose subtrees this server cannot compare: never inside of what is permitted.
            _ => false,
        }
    }

    /// Whether some of what the name stands for lies in the subtree, or may by some reading of the name.
    fn touches(&self, base: &[u8]) -> bool {
        match self.tag {
            DNS => {
                let (name, base) = (lower(self.content), lower(base));
                in_domain(name.trim_matches('.'), without_root(&base))
                    || may_end_in(&name, &base)
                    || wildcard_covers(&name, base.trim_start_matches('.'))
            }
            URI => {
                let uri = text(self.content);
                let (Some(host), Some(plain)) = (uri_host(&uri), plain_host(&uri)) else { return true };
                [host, plain].iter().any(|host| host_touches(host, &lower(base)))
            }
            EMAIL | UTF8_EMAIL => Mailbox::read(self.content).is_none_or(|mailbox| mailbox.touches(base)),
            IP => in_network(self.content, base),
            DIRECTORY => directory_within(self.content, base, Letters::Every),
            _ => true,
        }
    }

    /// For the refusal.
    fn shown(&self) -> String {
        match self.tag {
            EMAIL | UTF8_EMAIL if self.content.is_empty() => "a mailbox that cannot be read".to_owned(),
            DNS | EMAIL | UTF8_EMAIL | URI => text(self.content),
            IP => match self.content.len() {
                4 => self.content.iter().map(u8::to_string).collect::<Vec<_>>().join("."),
                _ => "an IPv6 address".to_owned(),
            },
            DIRECTORY => "the subject or a directoryName".to_owned(),
            _ => "a name of another kind".to_owned(),
        }
    }
}

fn text(content: &[u8]) -> String {
    String::from_utf8_lossy(content).into_owned()
}

fn lower(content: &[u8]) -> String {
    text(content).to_ascii_lowercase()
}

/// The name without the dot of the DNS root.
fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// The domain itself and everything below it; with a leading dot, everything below it alone.
fn in_domain(name: &str, base: &str) -> bool {
    if base.is_empty() {
        return true;
    }
    match base.strip_prefix('.') {
        Some(domain) => below(name, domain),
        None => name == base || below(name, base),
    }
}

fn below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// Whether `*.example.com` stands for a name at or below which the subtree begins: `foo.example.com`.
fn wildcard_covers(name: &str, base: &str) -> bool {
    let split = |name| str::split_once(name, '.').unwrap_or((name, ""));
    let ((label, parent), (_, above)) = (split(name), split(base));
    label.contains('*') && parent == above
}

/// Hosts of mailboxes and URIs: exactly the host, or with a leading dot everything below the domain.
fn host_within(host: &str, base: &str) -> bool {
    match base.strip_prefix('.') {
        Some(domain) => below(host, domain),
        None => host == base,
    }
}

/// As [`host_within`], by any reading of dots at the ends.
fn host_touches(host: &str, base: &str) -> bool {
    let base_host = without_root(base);
    base_host.is_empty() || host_within(host.trim_matches('.'), base_host) || may_end_in(host, base)
}

/// Whether the name ends in a base that begins with a dot, a name of nothing but that base too.
fn may_end_in(name: &str, base: &str) -> bool {
    base.starts_with('.') && name.ends_with(base)
}

/// A mailbox whose host is in its ASCII form.
struct Mailbox {
    local: String,
    host: String,
}

impl Mailbox {
    /// `None` for what is no mailbox, and for a host that is not in the one form which RFC 9598 3 allows.
    fn read(content: &[u8]) -> Option<Self> {
        let mailbox = text(content);
        let (local, host) = mailbox.rsplit_once('@')?;
        let ascii = if host.is_ascii() {
            host.to_ascii_lowercase()
        } else {
            let ascii = idna::domain_to_ascii(host).ok()?;
            (idna::domain_to_unicode(&ascii).0 == host).then_some(ascii)?
        };
        Some(Self { local: local.to_owned(), host: ascii })
    }

    /// A base is a mailbox, a host, or with a leading dot all hosts below a domain.
    fn is_within(&self, base: &[u8]) -> bool {
        let base = text(base);
        match base.rsplit_once('@') {
            Some((local, host)) => local == self.local && self.host == host.to_ascii_lowercase(),
            None => host_within(&self.host, &base.to_ascii_lowercase()),
        }
    }

    /// As [`Mailbox::is_within`]; a base without a local part before its `@` may stand for the host.
    fn touches(&self, base: &[u8]) -> bool {
        let base = text(base);
        match base.rsplit_once('@') {
            Some((local, host)) => {
                (local.is_empty() || local == self.local) && host_touches(&self.host, &host.to_ascii_lowercase())
            }
            None => host_touches(&self.host, &base.to_ascii_lowercase()),
        }
    }
}

/// The host of a URI as clients read it; `None` where it has none or an address, which RFC 5280 4.2.1.10
/// refuses below any constraint.
fn uri_host(uri: &str) -> Option<String> {
    match url::Url::parse(uri).ok()?.host()? {
        url::Host::Domain(domain) => Some(domain.to_ascii_lowercase()),
        // Hosts of schemes that the parser does not know stay as they are written.
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => None,
    }
}

/// The host of a URI as simpler relying parties read it: from `//` to the next colon or slash. Where it
/// differs from [`uri_host`] (user information, a query right behind the host), nobody knows what a
/// constraint is held against.
fn plain_host(uri: &str) -> Option<String> {
    let (_, rest) = uri.split_once(':')?;
    rest.strip_prefix("//")?.split([':', '/']).next().map(str::to_ascii_lowercase)
}

/// Address against address and mask, of one family.
fn in_network(address: &[u8], base: &[u8]) -> bool {
    let (network, mask) = base.split_at(base.len() / 2);
    base.len() == 2 * address.len() && address.iter().zip(network).zip(mask).all(|((a, n), m)| a & m == n & m)
}

/// Whether the subtree's RDNs are the first ones of the name.
fn directory_within(name: &[u8], base: &[u8], letters: Letters) -> bool {
    match (name::comparable(name, letters), name::comparable(base, letters)) {
        (Ok(name), Ok(base)) => name.starts_with(&base),
        _ => letters == Letters::Every,
    }
}

/// Holds every name of a TBSCertificate against the constraints of the chain above it.
///
/// # Errors
/// `Invalid` naming the first name that is not allowed.
pub(super) fn check(tbs: &[u8], chain: &[Constraints]) -> Result<()> {
    let (subject, names) = names(tbs).map_err(|e| e.of("certificate"))?;
    names.iter().try_for_each(|name| hold(name, chain))?;
    if !name::is_empty(subject) {
        hold(&Named { tag: DIRECTORY, content: subject }, chain)?;
    }
    // RFC 5280 4.2.1.10: the emailAddress attribute of old counts as a mailbox. RFC 2985 5.2.1 makes it
    // an IA5String; in any other type not every relying party can read it.
    for (tag, mailbox) in name::tagged_values(subject, Attribute::EmailAddress).map_err(|e| e.of("subject"))? {
        hold(&Named { tag: EMAIL, content: if tag == IA5_STRING { &mailbox } else { b"" } }, chain)?;
    }
    if names.iter().any(|name| name.tag == DNS) {
        return Ok(());
    }
    // Without DNS names some relying parties take the common names for them.
    for common_name in name::values(subject, Attribute::CommonName)?.iter().filter(|name| is_host_like(name)) {
        hold(&Named { tag: DNS, content: common_name.as_bytes() }, chain)?;
    }
    Ok(())
}

/// The subject and the subject alternative names.
fn names(tbs: &[u8]) -> Read<(&[u8], Vec<Named<'_>>)> {
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
            names.push(Named { tag: name.tag, content: name.content });
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
    Ok(Some(Named { tag: UTF8_EMAIL, content }))
}

fn hold(name: &Named<'_>, chain: &[Constraints]) -> Result<()> {
    if chain.iter().all(|constraints| constraints.allow(name)) {
        return Ok(());
    }
    let shown: String = name.shown().chars().take(300).collect();
    Err(Error::invalid(format!(
        "issuer_ref: the name constraints of the issuing chain do not allow {shown} (RFC 5280 4.2.1.10)"
    )))
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
        let own = |side: &[(u8, &[u8])]| side.iter().map(|(tag, base)| (*tag, base.to_vec())).collect();
        Constraints { permitted: own(permitted), excluded: own(excluded) }
    }

    fn allowed(constraints: &Constraints, tag: u8, content: &[u8]) -> bool {
        constraints.allow(&Named { tag, content })
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
            // Not the one form of the host: nobody knows what it is.
            ("jörg@BÜCHER.test", false, false),
            ("jörg@evil.test", false, true),
            ("jörg@x.b.test", false, false),
            ("jörg@d.test", false, false),
            // A whole mailbox is no base for these.
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
        let sides = constraints(&[(DIRECTORY, &base)], &[]);
        let other_case = rdn(Attribute::Organization, &["EXAMPLE org".into()]);
        let common_name = rdn(Attribute::CommonName, &["a".into()]);
        assert!(allowed(&sides, DIRECTORY, &name::name(&[&other_case, &common_name])));
        assert!(!allowed(&sides, DIRECTORY, &name::name(&[&common_name, &organization])));
        assert!(!allowed(&sides, DIRECTORY, &name::name(&[&common_name])));
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
        encoded.clone_from(&Reader::new(&bytes));
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

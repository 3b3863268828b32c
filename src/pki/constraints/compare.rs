//! One name held against one subtree, kind by kind (RFC 5280 4.2.1.10). Names and bases are taken apart once,
//! so that a comparison looks at what may be equal and at nothing else: there are many of them.
//!
//! What is permitted must be so by every reading of a name that a relying party may have; what is excluded
//! must not be so by any.

use std::borrow::Cow;

use crate::x509::general_name::{DIRECTORY, DNS, EMAIL, IP, URI};
use crate::x509::name::{self, ComparableRdn, Letters};

/// The tag given here to SmtpUTF8Mailbox, an otherName that is held against subtrees of mailboxes
/// (RFC 9598 6); no GeneralName has it.
pub(super) const UTF8_EMAIL: u8 = 0;

/// A subtree: everything at or below its base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// Of host names, or of the hosts of URIs: lower case, and what follows its first label.
    Host { text: String, above: String },
    /// Of mailboxes: what stands before the `@`, where there is one, and the host in lower case.
    Mailbox { local: Option<String>, host: String },
    /// Address and mask.
    Network(Vec<u8>),
    /// Of names of the directory.
    Directory(Directory),
    /// Of a kind that cannot be compared.
    Unknown,
}

impl Base {
    pub(super) fn new(kind: u8, content: &[u8]) -> Self {
        match kind {
            DNS | URI => {
                let text = lower(content);
                let above = split_label(text.trim_start_matches('.')).1.to_owned();
                Self::Host { text, above }
            }
            EMAIL => {
                let text = text(content);
                let (local, host) = text.rsplit_once('@').map_or((None, &*text), |(local, host)| (Some(local), host));
                Self::Mailbox { local: local.map(str::to_owned), host: host.to_ascii_lowercase() }
            }
            IP => Self::Network(content.to_vec()),
            DIRECTORY => Self::Directory(Directory::new(content)),
            _ => Self::Unknown,
        }
    }
}

/// A name of the certificate to be, ready to be compared.
pub(super) enum Name<'a> {
    /// A host name; of a wildcard what follows its first label.
    Dns { host: Host, parent: Option<String> },
    /// `None` for what is no mailbox.
    Mailbox(Option<Mailbox>),
    /// As [`Name::Mailbox`], of a SmtpUTF8Mailbox.
    Utf8Mailbox(Option<Mailbox>),
    /// The host by two readings; `None` for URIs that have none by one of them.
    Uri(Option<[Host; 2]>),
    /// An address.
    Ip(&'a [u8]),
    /// A name of the directory.
    Directory(Directory),
    /// Of a kind that cannot be compared.
    Unknown,
}

impl<'a> Name<'a> {
    pub(super) fn new(tag: u8, content: &'a [u8]) -> Self {
        match tag {
            DNS => {
                let host = Host::new(lower(content));
                let (label, parent) = split_label(&host.text);
                let parent = label.contains('*').then(|| parent.to_owned());
                Self::Dns { host, parent }
            }
            EMAIL => Self::Mailbox(Mailbox::read(content)),
            UTF8_EMAIL => Self::Utf8Mailbox(Mailbox::read(content)),
            URI => {
                let uri = text(content);
                let hosts = uri_host(&uri).zip(plain_host(&uri));
                Self::Uri(hosts.map(|(host, plain)| [Host::new(host), Host::new(plain)]))
            }
            IP => Self::Ip(content),
            DIRECTORY => Self::Directory(Directory::new(content)),
            _ => Self::Unknown,
        }
    }

    /// Whether all that the name stands for lies in the subtree, by every reading of the name.
    pub(super) fn is_within(&self, base: &Base) -> bool {
        match (self, base) {
            (Self::Dns { host, .. }, Base::Host { text, .. }) => in_domain(&host.text, text),
            (Self::Mailbox(Some(mailbox)), Base::Mailbox { local, host }) => mailbox.is_within(local.as_deref(), host),
            // Not every relying party holds these against anything but a host.
            (Self::Utf8Mailbox(Some(mailbox)), Base::Mailbox { local: None, host }) => {
                !host.starts_with('.') && mailbox.is_within(None, host)
            }
            (Self::Uri(Some([host, plain])), Base::Host { text, .. }) => {
                host.text == plain.text && host_within(&host.text, text)
            }
            (Self::Ip(address), Base::Network(base)) => in_network(address, base),
            (Self::Directory(name), Base::Directory(base)) => name.is_within(base),
            // Kinds whose subtrees this server cannot compare: never inside of what is permitted.
            _ => false,
        }
    }

    /// Whether some of what the name stands for lies in the subtree, or may by some reading of the name.
    pub(super) fn touches(&self, base: &Base) -> bool {
        match (self, base) {
            (Self::Dns { host, parent }, Base::Host { text, above }) => {
                in_domain(&host.trimmed, without_root(text))
                    || may_end_in(&host.text, text)
                    || parent.as_ref() == Some(above)
            }
            (Self::Uri(Some(hosts)), Base::Host { text, .. }) => hosts.iter().any(|host| host.touches(text)),
            (Self::Mailbox(Some(mailbox)) | Self::Utf8Mailbox(Some(mailbox)), Base::Mailbox { local, host }) => {
                mailbox.touches(local.as_deref(), host)
            }
            (Self::Ip(address), Base::Network(base)) => in_network(address, base),
            (Self::Directory(name), Base::Directory(base)) => name.touches(base),
            _ => true,
        }
    }
}

pub(super) fn text(content: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(content)
}

fn lower(content: &[u8]) -> String {
    text(content).to_ascii_lowercase()
}

/// The first label and what follows its dot.
fn split_label(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
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

/// Hosts of mailboxes and URIs: exactly the host, or with a leading dot everything below the domain.
fn host_within(host: &str, base: &str) -> bool {
    match base.strip_prefix('.') {
        Some(domain) => below(host, domain),
        None => host == base,
    }
}

/// Whether the name ends in a base that begins with a dot, a name of nothing but that base too.
fn may_end_in(name: &str, base: &str) -> bool {
    base.starts_with('.') && name.ends_with(base)
}

/// A host in lower case, as it is and without dots at its ends.
pub(super) struct Host {
    text: String,
    trimmed: String,
}

impl Host {
    fn new(text: String) -> Self {
        Self { trimmed: text.trim_matches('.').to_owned(), text }
    }

    /// As [`host_within`], by any reading of dots at the ends.
    fn touches(&self, base: &str) -> bool {
        let base_host = without_root(base);
        base_host.is_empty() || host_within(&self.trimmed, base_host) || may_end_in(&self.text, base)
    }
}

/// A mailbox whose host is in its ASCII form.
pub(super) struct Mailbox {
    local: String,
    host: Host,
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
        Some(Self { local: local.to_owned(), host: Host::new(ascii) })
    }

    /// A base is a mailbox, a host, or with a leading dot all hosts below a domain.
    fn is_within(&self, local: Option<&str>, host: &str) -> bool {
        match local {
            Some(local) => local == self.local && self.host.text == host,
            None => host_within(&self.host.text, host),
        }
    }

    /// As [`Mailbox::is_within`]; a base without a local part before its `@` may stand for the host.
    fn touches(&self, local: Option<&str>, host: &str) -> bool {
        local.is_none_or(|local| local.is_empty() || local == self.local) && self.host.touches(host)
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

/// A name of the directory in its comparable forms; `None` where it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    ascii: Option<Vec<ComparableRdn>>,
    every: Option<Vec<ComparableRdn>>,
}

impl Directory {
    fn new(content: &[u8]) -> Self {
        let form = |letters| name::comparable(content, letters).ok();
        Self { ascii: form(Letters::Ascii), every: form(Letters::Every) }
    }

    /// Whether the base's RDNs are the first ones of the name.
    fn is_within(&self, base: &Self) -> bool {
        matches!((&self.ascii, &base.ascii), (Some(name), Some(base)) if name.starts_with(base))
    }

    /// As [`Directory::is_within`], whatever the case of letters, and when nobody can say.
    fn touches(&self, base: &Self) -> bool {
        match (&self.every, &base.every) {
            (Some(name), Some(base)) => name.starts_with(base),
            _ => true,
        }
    }
}

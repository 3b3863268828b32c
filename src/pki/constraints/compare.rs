//! Comparison of a name with a subtree, by kind (RFC 5280 4.2.1.10). Names and bases are parsed once, because there are
//! many comparisons.
//!
//! Relying parties may interpret a name differently. A name counts as permitted only if every interpretation is within
//! a permitted subtree. It counts as excluded if any interpretation is within an excluded subtree.

use std::borrow::Cow;

use crate::x509::general_name::{DIRECTORY_NAME, DNS_NAME, IP_ADDRESS, RFC822_NAME, URI_NAME};
use crate::x509::name::{self, CaseFolding, ComparableRdn};

/// Internal tag for SmtpUTF8Mailbox, an otherName that is compared with mailbox subtrees (RFC 9598 6). No GeneralName
/// uses this tag.
pub(super) const UTF8_EMAIL_TAG: u8 = 0;

/// The base of a subtree, which covers the base and everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SubtreeBase {
    /// A host name, also for URIs: `text` in lower case, and `above`, the part of `text` after its first label.
    Host { text: String, above: String },
    /// Mailbox, host or domain of mailboxes: the local part, if any, and the host in lower case.
    Mailbox { local: Option<String>, host: String },
    /// Address and mask.
    Network(Vec<u8>),
    /// Directory name.
    Directory(ComparableDirectoryName),
    /// A kind of name that this server cannot compare.
    Unknown,
}

impl SubtreeBase {
    pub(super) fn new(kind: u8, content: &[u8]) -> Self {
        match kind {
            DNS_NAME | URI_NAME => {
                let text = lowercase_text(content);
                let above = split_first_label(text.trim_start_matches('.')).1.to_owned();
                Self::Host { text, above }
            }
            RFC822_NAME => {
                let text = lossy_text(content);
                let (local, host) = text.rsplit_once('@').map_or((None, &*text), |(local, host)| (Some(local), host));
                Self::Mailbox { local: local.map(str::to_owned), host: host.to_ascii_lowercase() }
            }
            IP_ADDRESS => Self::Network(content.to_vec()),
            DIRECTORY_NAME => Self::Directory(ComparableDirectoryName::new(content)),
            _ => Self::Unknown,
        }
    }
}

/// A parsed name of the new certificate.
pub(super) enum ComparableName<'a> {
    /// Host name; `parent` is the part of a wildcard name after its first label.
    Dns { host: ComparableHost, parent: Option<String> },
    /// Mailbox; `None` if invalid.
    Mailbox(Option<ComparableMailbox>),
    /// SmtpUTF8Mailbox; `None` if invalid.
    Utf8Mailbox(Option<ComparableMailbox>),
    /// The host of a URI in two interpretations; `None` if either finds no host.
    Uri(Option<[ComparableHost; 2]>),
    /// IP address.
    Ip(&'a [u8]),
    /// Directory name.
    Directory(ComparableDirectoryName),
    /// A kind of name that this server cannot compare.
    Unknown,
}

impl<'a> ComparableName<'a> {
    pub(super) fn new(tag: u8, content: &'a [u8]) -> Self {
        match tag {
            DNS_NAME => {
                let host = ComparableHost::new(lowercase_text(content));
                let (label, parent) = split_first_label(&host.text);
                let parent = label.contains('*').then(|| parent.to_owned());
                Self::Dns { host, parent }
            }
            RFC822_NAME => Self::Mailbox(ComparableMailbox::read(content)),
            UTF8_EMAIL_TAG => Self::Utf8Mailbox(ComparableMailbox::read(content)),
            URI_NAME => {
                let uri = lossy_text(content);
                let hosts = uri_host(&uri).zip(naive_uri_host(&uri));
                Self::Uri(hosts.map(|(host, plain)| [ComparableHost::new(host), ComparableHost::new(plain)]))
            }
            IP_ADDRESS => Self::Ip(content),
            DIRECTORY_NAME => Self::Directory(ComparableDirectoryName::new(content)),
            _ => Self::Unknown,
        }
    }

    /// `true` if the name, with everything that its wildcard matches, is in the subtree in every interpretation.
    pub(super) fn is_within(&self, base: &SubtreeBase) -> bool {
        match (self, base) {
            (Self::Dns { host, .. }, SubtreeBase::Host { text, .. }) => is_in_domain(&host.text, text),
            (Self::Mailbox(Some(mailbox)), SubtreeBase::Mailbox { local, host }) => {
                mailbox.is_within(local.as_deref(), host)
            }
            // Some relying parties compare an SmtpUTF8Mailbox only with bases that are hosts.
            (Self::Utf8Mailbox(Some(mailbox)), SubtreeBase::Mailbox { local: None, host }) => {
                !host.starts_with('.') && mailbox.is_within(None, host)
            }
            (Self::Uri(Some([host, plain])), SubtreeBase::Host { text, .. }) => {
                host.text == plain.text && is_host_within(&host.text, text)
            }
            (Self::Ip(address), SubtreeBase::Network(base)) => is_in_network(address, base),
            (Self::Directory(name), SubtreeBase::Directory(base)) => name.is_within(base),
            // Kinds of names that cannot be compared are never inside permitted subtrees.
            _ => false,
        }
    }

    /// `true` if the name, or anything that its wildcard matches, may be in the subtree in any interpretation.
    pub(super) fn may_match(&self, base: &SubtreeBase) -> bool {
        match (self, base) {
            (Self::Dns { host, parent }, SubtreeBase::Host { text, above }) => {
                is_in_domain(&host.trimmed, without_root_dot(text))
                    || ends_in_dotted_base(&host.text, text)
                    || parent.as_ref() == Some(above)
            }
            (Self::Uri(Some(hosts)), SubtreeBase::Host { text, .. }) => hosts.iter().any(|host| host.may_match(text)),
            (Self::Mailbox(Some(mailbox)) | Self::Utf8Mailbox(Some(mailbox)), SubtreeBase::Mailbox { local, host }) => {
                mailbox.may_match(local.as_deref(), host)
            }
            (Self::Ip(address), SubtreeBase::Network(base)) => is_in_network(address, base),
            (Self::Directory(name), SubtreeBase::Directory(base)) => name.may_match(base),
            _ => true,
        }
    }
}

pub(super) fn lossy_text(content: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(content)
}

fn lowercase_text(content: &[u8]) -> String {
    lossy_text(content).to_ascii_lowercase()
}

fn split_first_label(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or((name, ""))
}

/// Removes the trailing dot that stands for the DNS root.
fn without_root_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// `true` if `name` is the domain `base` or below it; if `base` begins with a dot, only if `name` is below it.
fn is_in_domain(name: &str, base: &str) -> bool {
    if base.is_empty() {
        return true;
    }
    match base.strip_prefix('.') {
        Some(domain) => is_below(name, domain),
        None => name == base || is_below(name, base),
    }
}

fn is_below(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// `true` if a host of a mailbox or URI equals `base` or, if `base` begins with a dot, is below that domain.
fn is_host_within(host: &str, base: &str) -> bool {
    match base.strip_prefix('.') {
        Some(domain) => is_below(host, domain),
        None => host == base,
    }
}

/// `true` if `base` begins with a dot and `name` ends with `base` or equals it.
fn ends_in_dotted_base(name: &str, base: &str) -> bool {
    base.starts_with('.') && name.ends_with(base)
}

/// A lower-case host: `text` as written, and `trimmed` without leading and trailing dots.
pub(super) struct ComparableHost {
    text: String,
    trimmed: String,
}

impl ComparableHost {
    fn new(text: String) -> Self {
        Self { trimmed: text.trim_matches('.').to_owned(), text }
    }

    /// Like [`is_host_within`], for any interpretation of leading and trailing dots.
    fn may_match(&self, base: &str) -> bool {
        let base_host = without_root_dot(base);
        base_host.is_empty() || is_host_within(&self.trimmed, base_host) || ends_in_dotted_base(&self.text, base)
    }
}

/// A mailbox whose host is in ASCII form.
pub(super) struct ComparableMailbox {
    local: String,
    host: ComparableHost,
}

impl ComparableMailbox {
    /// Returns `None` for an invalid mailbox, and for an international host that is not in the only form that RFC 9598
    /// 3 allows.
    fn read(content: &[u8]) -> Option<Self> {
        let mailbox = lossy_text(content);
        let (local, host) = mailbox.rsplit_once('@')?;
        let ascii = if host.is_ascii() {
            host.to_ascii_lowercase()
        } else {
            let ascii = idna::domain_to_ascii(host).ok()?;
            (idna::domain_to_unicode(&ascii).0 == host).then_some(ascii)?
        };
        Some(Self { local: local.to_owned(), host: ComparableHost::new(ascii) })
    }

    /// `true` if the mailbox is within a base: a mailbox, a host or, with a leading dot, all hosts below a domain.
    fn is_within(&self, local: Option<&str>, host: &str) -> bool {
        match local {
            Some(local) => local == self.local && self.host.text == host,
            None => is_host_within(&self.host.text, host),
        }
    }

    /// Like [`ComparableMailbox::is_within`], but in any interpretation: a base with an empty local part before the `@`
    /// may also mean the whole host.
    fn may_match(&self, local: Option<&str>, host: &str) -> bool {
        local.is_none_or(|local| local.is_empty() || local == self.local) && self.host.may_match(host)
    }
}

/// Returns the host of a URI as a URL parser reads it. `None` if there is none, or if it is an IP address, which RFC
/// 5280 4.2.1.10 rejects under any constraint.
fn uri_host(uri: &str) -> Option<String> {
    match url::Url::parse(uri).ok()?.host()? {
        url::Host::Domain(domain) => Some(domain.to_ascii_lowercase()),
        // The parser leaves hosts of unknown schemes unchanged.
        url::Host::Ipv4(_) | url::Host::Ipv6(_) => None,
    }
}

/// Returns the host of a URI as simpler relying parties read it: from `//` to the next colon or slash. If it differs
/// from [`uri_host`] (user information, or a query directly after the host), the host is ambiguous.
fn naive_uri_host(uri: &str) -> Option<String> {
    let (_, rest) = uri.split_once(':')?;
    rest.strip_prefix("//")?.split([':', '/']).next().map(str::to_ascii_lowercase)
}

fn is_in_network(address: &[u8], base: &[u8]) -> bool {
    let (network, mask) = base.split_at(base.len() / 2);
    base.len() == 2 * address.len() && address.iter().zip(network).zip(mask).all(|((a, n), m)| a & m == n & m)
}

/// A directory name in two comparable forms, each `None` if the name cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ComparableDirectoryName {
    /// Form in which the case of ASCII letters is ignored.
    ascii_form: Option<Vec<ComparableRdn>>,
    /// Form in which the case of all letters is ignored.
    unicode_form: Option<Vec<ComparableRdn>>,
}

impl ComparableDirectoryName {
    fn new(content: &[u8]) -> Self {
        let form = |letters| name::to_comparable(content, letters).ok();
        Self { ascii_form: form(CaseFolding::Ascii), unicode_form: form(CaseFolding::Unicode) }
    }

    /// `true` if the name begins with the RDNs of the base. The comparison ignores the case of ASCII letters only.
    fn is_within(&self, base: &Self) -> bool {
        matches!((&self.ascii_form, &base.ascii_form), (Some(name), Some(base)) if name.starts_with(base))
    }

    /// Like [`ComparableDirectoryName::is_within`], but ignores the case of all letters; also `true` if a name cannot
    /// be parsed.
    fn may_match(&self, base: &Self) -> bool {
        match (&self.unicode_form, &base.unicode_form) {
            (Some(name), Some(base)) => name.starts_with(base),
            _ => true,
        }
    }
}

//! The names of a certificate, classified by their form.
//!
//! A name that parses as an IP address is one. A name with `://` or the prefix `urn:` is a URI, a name with `@` is an
//! e-mail address, and any other is a DNS name. The server decides whether the role allows the names.

use std::net::IpAddr;

use crate::error::{Error, Result};
use crate::x509::csr::{Csr, ParsedSans};
use crate::x509::extension::{self, SubjectAltNames};
use crate::x509::name::{self, Attribute};
use crate::x509::pieces::{Extensions, Name};
use serde_json::{Value, json};

/// Maximum length of a common name (RFC 5280 appendix A.1, ub-common-name), in characters.
const MAX_COMMON_NAME_LENGTH: usize = 64;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TypedNames {
    pub(super) common_name: String,
    pub(super) dns: Vec<String>,
    pub(super) emails: Vec<String>,
    pub(super) ips: Vec<IpAddr>,
    pub(super) uris: Vec<String>,
}

enum TypedName {
    Dns(String),
    Email(String),
    Ip(IpAddr),
    Uri(String),
}

impl TypedName {
    fn of(text: &str) -> Result<Self> {
        let refuse = |rule: &str| Err(Error::invalid(format!("NAME: {text:?} {rule}")));
        if text.is_empty() || text.contains(|c: char| c.is_control() || c.is_whitespace() || c == ',') {
            return refuse("must be a name without blanks, commas and control characters");
        }
        if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Ok(Self::Ip(ip));
        }
        if text.contains("://") || text.to_ascii_lowercase().starts_with("urn:") {
            return match url::Url::parse(text) {
                Ok(_) if text.is_ascii() => Ok(Self::Uri(text.to_owned())),
                _ => refuse("is not a URI in ASCII"),
            };
        }
        if text.contains('@') {
            return if text.is_ascii() {
                Ok(Self::Email(text.to_owned()))
            } else {
                refuse("is not a mailbox in ASCII")
            };
        }
        if text.contains([':', '/', '\\']) {
            return refuse("is not a DNS name, an IP address, a URI or an e-mail address");
        }
        if text.is_ascii() {
            return Ok(Self::Dns(text.to_owned()));
        }
        idna::domain_to_ascii(text).map(Self::Dns).or_else(|_| refuse("is not an international DNS name"))
    }
}

impl TypedNames {
    /// Parses names, and preserves their order. The common name becomes the first DNS name or e-mail address of at most
    /// [`MAX_COMMON_NAME_LENGTH`] characters, or else the first IP address.
    ///
    /// # Errors
    /// `Invalid` for a text that is not a name.
    pub(super) fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self> {
        let mut names = Self::default();
        let mut first = None;
        for text in texts {
            match TypedName::of(text)? {
                TypedName::Dns(name) => {
                    first = first.or_else(|| fitting_common_name(&name));
                    names.dns.push(name);
                }
                TypedName::Email(name) => {
                    first = first.or_else(|| fitting_common_name(&name));
                    names.emails.push(name);
                }
                TypedName::Ip(ip) => names.ips.push(ip),
                TypedName::Uri(uri) => names.uris.push(uri),
            }
        }
        names.common_name = first.or_else(|| names.ips.first().map(ToString::to_string)).unwrap_or_default();
        Ok(names)
    }

    /// Returns the names in a certification request.
    ///
    /// # Errors
    /// `Invalid` for a request that cannot be read.
    pub(super) fn of_request(csr: &Csr) -> Result<Self> {
        Ok(Self::with(csr.common_name(), csr.sans()?))
    }

    pub(super) fn with(common_name: String, sans: ParsedSans) -> Self {
        let ParsedSans { dns, emails, ips, uris, .. } = sans;
        Self { common_name, dns, emails, ips, uris }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Sorts and deduplicates the alternative names.
    pub(super) fn sorted(mut self) -> Self {
        [&mut self.dns, &mut self.emails, &mut self.uris].into_iter().for_each(|names| {
            names.sort_unstable();
            names.dedup();
        });
        self.ips.sort_unstable();
        self.ips.dedup();
        self
    }

    /// Returns the alternative names of `self` that are not names in `others`.
    pub(super) fn difference(&self, others: &Self) -> Vec<String> {
        let lacks = |of: fn(&Self) -> &Vec<String>| {
            let has = |name: &str| {
                of(others).iter().chain([&others.common_name]).any(|other| other.eq_ignore_ascii_case(name))
            };
            of(self).iter().filter(|name| !has(name)).cloned().collect::<Vec<_>>()
        };
        let ips = self.ips.iter().filter(|ip| !others.ips.contains(ip)).map(ToString::to_string).collect();
        [lacks(|names| &names.dns), lacks(|names| &names.emails), lacks(|names| &names.uris), ips].concat()
    }

    /// Returns the names of `self` that a new certificate with the names `others` lacks. The common name may be an
    /// alternative name there.
    pub(super) fn lost_in(&self, others: &Self) -> Vec<String> {
        let mut lost = self.difference(others);
        let name = &self.common_name;
        let is_san = Self::of([name.as_str()]).is_ok_and(|name| name.difference(others).is_empty());
        if !name.is_empty() && *name != others.common_name && !is_san && !lost.contains(name) {
            lost.push(name.clone());
        }
        lost
    }

    pub(super) fn subject(&self) -> Name {
        name::name(&[&name::rdn(Attribute::CommonName, std::slice::from_ref(&self.common_name))])
    }

    pub(super) fn san_extension(&self) -> Extensions {
        let Self { dns, emails, ips, uris, .. } = self.clone();
        let names = SubjectAltNames { dns, emails, ips, uris, other: Vec::new() };
        extension::subject_alt_name(&names, self.common_name.is_empty())
    }

    pub(super) fn write_to_body(&self, body: &mut Value) {
        if !self.common_name.is_empty() {
            body["common_name"] = self.common_name.as_str().into();
        }
        let other = |name: &&String| **name != self.common_name;
        let alt_names: Vec<&String> = self.dns.iter().chain(&self.emails).filter(other).collect();
        for (field, names) in
            [("alt_names", json!(alt_names)), ("ip_sans", json!(self.ips)), ("uri_sans", json!(self.uris))]
        {
            if names.as_array().is_some_and(|names| !names.is_empty()) {
                body[field] = names;
            }
        }
    }

    /// Derives the base of the file names (NAME in NAME.pem) from the first name of the certificate.
    ///
    /// # Errors
    /// `Invalid` for a name that is not usable as a file name.
    pub(super) fn file_stem(first: &str) -> Result<String> {
        let name = match TypedName::of(first) {
            Ok(TypedName::Uri(_) | TypedName::Ip(_)) => {
                first.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_")
            }
            _ => first.replace('*', "_"),
        };
        if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\', '\0']) {
            return Err(Error::invalid(format!("NAME: {first:?} cannot be the name of a file")));
        }
        Ok(name)
    }
}

fn fitting_common_name(name: &str) -> Option<String> {
    (name.len() <= MAX_COMMON_NAME_LENGTH).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_classified_by_their_form() {
        let names = TypedNames::of([
            "10.0.0.7",
            "web.example.test",
            "ops@example.test",
            "spiffe://example.test/web",
            "[2001:db8::7]",
            "*.example.test",
            "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "b\u{fc}cher.example",
        ])
        .unwrap();
        assert_eq!(names.common_name, "web.example.test");
        assert_eq!(names.dns, ["web.example.test", "*.example.test", "xn--bcher-kva.example"]);
        assert_eq!(names.emails, ["ops@example.test"]);
        assert_eq!(names.ips, ["10.0.0.7", "2001:db8::7"].map(|ip| ip.parse::<IpAddr>().unwrap()));
        assert_eq!(names.uris.len(), 2);
        let mut body = json!({});
        names.write_to_body(&mut body);
        assert_eq!(body["alt_names"], json!(["*.example.test", "xn--bcher-kva.example", "ops@example.test"]));
        assert_eq!(body["ip_sans"], json!(["10.0.0.7", "2001:db8::7"]));
    }

    #[test]
    fn common_name_is_the_first_suitable_name() {
        let long = format!("{}.test", "a".repeat(62));
        assert_eq!(TypedNames::of([long.as_str(), "b.test"]).unwrap().common_name, "b.test");
        assert_eq!(TypedNames::of(["10.0.0.7"]).unwrap().common_name, "10.0.0.7");
        let only = TypedNames::of(["spiffe://example.test/web"]).unwrap();
        assert_eq!(only.common_name, "");
        assert!(only.subject().is_empty() && !only.san_extension().is_empty());
    }

    #[test]
    fn invalid_names_are_refused() {
        for text in ["", "a b", "a,b", "web.test:8443", "10.0.0.0/8", "http://", "\u{e4}@example.test", "a\\b"] {
            assert!(TypedNames::of([text]).unwrap_err().text().starts_with("NAME: "), "{text:?}");
        }
    }

    #[test]
    fn file_stem_of_a_name_contains_no_path_separator() {
        for (first, file) in
            [("*.web.test", "_.web.test"), ("2001:db8::7", "2001_db8__7"), ("spiffe://a/b", "spiffe___a_b")]
        {
            assert_eq!(TypedNames::file_stem(first).unwrap(), file);
        }
        for first in ["../web", "", ".web", "a/b", "a\\b"] {
            assert!(TypedNames::file_stem(first).is_err(), "{first:?}");
        }
    }
}

//! The mount's own addresses, as clients and relying parties reach it (`config/cluster`). URL templates refer to them.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::x509::profile;

/// Maximum length of a URL in a mount's configuration, bytes.
pub const MAX_URL_BYTES: usize = 2_048;

/// An absolute URL with a host; empty when not configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterUrl(String);

impl ClusterUrl {
    /// Parses a URL; an empty text is accepted.
    ///
    /// # Errors
    /// `Invalid` naming `field` when `url` is not absolute, has no host, has a query or fragment, or exceeds
    /// [`MAX_URL_BYTES`].
    pub fn new(field: &str, url: impl Into<String>) -> Result<Self> {
        let url = url.into();
        if url.len() > MAX_URL_BYTES {
            return Err(Error::invalid(format!("{field}: longer than {MAX_URL_BYTES} bytes")));
        }
        if !url.is_empty() && !is_absolute_url(&url) {
            return Err(Error::invalid(format!("{field}: must be an absolute URL with a scheme and a host")));
        }
        if url.contains(['?', '#']) {
            return Err(Error::invalid(format!(
                "{field}: must not have a query or fragment, because the server appends paths to it"
            )));
        }
        Ok(Self(url))
    }

    /// Returns the URL as text; empty when not configured.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The base URLs of a mount, as clients and relying parties reach it (`config/cluster`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// Base URL of the mount's API, such as `https://ca.example.test/v1/pki`.
    pub path: ClusterUrl,
    /// Base URL for authority information access (AIA); often plain HTTP.
    pub aia_path: ClusterUrl,
}

impl Cluster {
    /// Replaces the placeholders in `url` for which this configuration has a value.
    pub(crate) fn fill_placeholders(&self, url: &str) -> String {
        [(CLUSTER_PLACEHOLDERS[0], &self.path), (CLUSTER_PLACEHOLDERS[1], &self.aia_path)]
            .into_iter()
            .filter(|(_, value)| **value != ClusterUrl::default())
            .fold(url.to_owned(), |url, (placeholder, value)| url.replace(placeholder, value.as_str()))
    }
}

/// Returns a warning if relying parties may fail to fetch data from `url`, which certificates will contain. URLs with
/// placeholders are not checked.
pub(crate) fn relying_party_warning(url: &str) -> Option<&'static str> {
    let url = url::Url::parse(url).ok()?;
    let is_loopback = match url.host()? {
        url::Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        url::Host::Ipv4(address) => address.is_loopback(),
        url::Host::Ipv6(address) => address.is_loopback(),
    };
    if matches!(url.scheme(), "https" | "ldaps") {
        return Some(
            "https and ldaps should not be used for URLs in certificates: a verifier would first have to verify \
             another certificate (RFC 5280, section 8); use a plain HTTP URL, such as one on a public_listen address",
        );
    }
    is_loopback.then_some(
        "loopback addresses are only reachable from this machine; use an address that relying parties can reach",
    )
}

/// Placeholders in URLs that `config/cluster` fills.
pub(crate) const CLUSTER_PLACEHOLDERS: [&str; 2] = ["{{cluster_path}}", "{{cluster_aia_path}}"];

/// Returns `true` if the text is an absolute URL with a host, in visible ASCII, so that a certificate can hold it.
pub(crate) fn is_absolute_url(text: &str) -> bool {
    profile::validate_location_uri(text.as_bytes()).is_ok() && url::Url::parse(text).is_ok_and(|url| url.has_host())
}

/// Like [`is_absolute_url`], for URLs that are fetched: a directory URL (`ldap:///…`) may omit the host and leave it to
/// the relying party (RFC 5280 4.2.1.13, RFC 4516 2).
pub(crate) fn is_fetchable_url(text: &str) -> bool {
    let has_location = |url: url::Url| url.has_host() || url.scheme() == "ldap" && url.path().len() > 1;
    profile::validate_location_uri(text.as_bytes()).is_ok() && url::Url::parse(text).is_ok_and(has_location)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_urls_are_validated_and_replace_placeholders() {
        let one = Cluster { path: ClusterUrl::new("path", "https://ca.test/v1/pki").unwrap(), ..Cluster::default() };
        let both = Cluster { aia_path: ClusterUrl::new("aia_path", "http://aia.test").unwrap(), ..one.clone() };
        assert_eq!(both.fill_placeholders("{{cluster_aia_path}}/ca"), "http://aia.test/ca");
        assert_eq!(both.fill_placeholders("{{cluster_path}}/ca"), "https://ca.test/v1/pki/ca");
        assert_eq!(one.fill_placeholders("{{cluster_aia_path}}/ca"), "{{cluster_aia_path}}/ca");
        assert!(ClusterUrl::new("path", "").is_ok());
        for bad in ["http://ca.test/?q", "http://ca.test/#f"] {
            assert!(
                ClusterUrl::new("path", bad).unwrap_err().text().starts_with("path: must not have a query or fragment"),
                "{bad}"
            );
        }
        let long = format!("http://ca.test/{}", "x".repeat(MAX_URL_BYTES));
        for bad in ["ca.test", "/v1/pki", "http://", "https://ca.test/\u{e9}", "https://ca test", &long] {
            let error = ClusterUrl::new("path", bad).unwrap_err();
            assert!(error.text().starts_with("path: "), "{bad}: {error}");
        }
    }
}

//! The mount's own addresses, as clients and relying parties reach it (`config/cluster`). URLs that are
//! templates and, later, ACME are built on them.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::x509::profile;

/// Fields of `config/cluster`.
pub const FIELDS: &[&str] = &["path", "aia_path"];

/// Longest URL of a mount's configuration.
pub(super) const MAX_URL: usize = 2_048;

/// Where this mount is reached; an empty text is an address that is not configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    /// The API of the mount, such as `https://ca.example.test/v1/pki`.
    pub path: String,
    /// Where authority information is fetched; often plain HTTP.
    pub aia_path: String,
}

impl Cluster {
    /// Takes the addresses that `fields` has; absent ones stay, an empty text clears one.
    ///
    /// # Errors
    /// `Invalid` naming the field when an address is not an absolute URL with a host.
    pub fn merged(&self, fields: &Fields) -> Result<Self> {
        let mut cluster = self.clone();
        for (name, address) in [("path", &mut cluster.path), ("aia_path", &mut cluster.aia_path)] {
            let Some(given) = fields.text_within(name, MAX_URL)? else { continue };
            if !given.is_empty() && !is_absolute_url(&given) {
                return Err(Error::invalid(format!("{name}: must be an absolute URL with a scheme and a host")));
            }
            *address = given;
        }
        Ok(cluster)
    }

    /// A URL with the placeholders of this configuration replaced, as far as they have a value.
    pub(super) fn fill(&self, url: &str) -> String {
        [(PLACEHOLDERS[0], &self.path), (PLACEHOLDERS[1], &self.aia_path)]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .fold(url.to_owned(), |url, (placeholder, value)| url.replace(placeholder, value))
    }
}

/// What URLs may hold of this configuration.
pub(super) const PLACEHOLDERS: [&str; 2] = ["{{cluster_path}}", "{{cluster_aia_path}}"];

/// Whether a text is an absolute URL with a host, in visible ASCII, so that it fits into a certificate.
pub(super) fn is_absolute_url(text: &str) -> bool {
    profile::location(text.as_bytes()).is_ok() && url::Url::parse(text).is_ok_and(|url| url.has_host())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_merged_checked_and_filled_in() {
        let fields = |json: &str| Fields::parse(json.as_bytes()).unwrap();
        let one = Cluster::default().merged(&fields(r#"{"path":"https://ca.test/v1/pki"}"#)).unwrap();
        let both = one.merged(&fields(r#"{"aia_path":"http://aia.test"}"#)).unwrap();
        assert_eq!(both.fill("{{cluster_aia_path}}/ca"), "http://aia.test/ca");
        assert_eq!(both.fill("{{cluster_path}}/ca"), "https://ca.test/v1/pki/ca");
        assert_eq!(one.fill("{{cluster_aia_path}}/ca"), "{{cluster_aia_path}}/ca");
        let cleared = both.merged(&fields(r#"{"path":"","aia_path":null}"#)).unwrap();
        assert_eq!((cleared.path.as_str(), cleared.aia_path.as_str()), ("", "http://aia.test"));
        for bad in ["ca.test", "/v1/pki", "http://", "https://ca.test/\u{e9}", "https://ca test"] {
            for name in FIELDS {
                let mut fields = Fields::default();
                fields.set(name, bad);
                let error = both.merged(&fields).unwrap_err();
                assert!(error.text().starts_with(&format!("{name}: ")), "{bad}: {error}");
            }
        }
    }
}

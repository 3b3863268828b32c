//! Authority information URLs: where relying parties find the CA certificate, CRLs and OCSP
//! responders (RFC 5280 4.2.1.13, 4.2.2.1). A set stands in the mount's configuration and, when an
//! issuer has one of its own, wholly replaces it there.

use serde::{Deserialize, Serialize};

use super::cluster::{Cluster, PLACEHOLDERS, is_absolute_url};
use crate::error::{Error, Result};
use crate::fields::{Cap, Fields};

/// A set of authority information URLs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Urls {
    /// caIssuers of authorityInfoAccess.
    pub issuing_certificates: Vec<String>,
    /// cRLDistributionPoints, one per URL.
    pub crl_distribution_points: Vec<String>,
    /// freshestCRL, one per URL.
    pub delta_crl_distribution_points: Vec<String>,
    /// OCSP of authorityInfoAccess.
    pub ocsp_servers: Vec<String>,
    /// Whether `{{issuer_id}}` and the mount's own addresses are replaced in the URLs.
    pub templating: bool,
}

/// Every certificate carries them.
const MOST: Cap = Cap::new(16, 1024);

const ISSUER_ID: &str = "{{issuer_id}}";

/// The warning for whoever gets a certificate without any.
pub(super) const NO_URLS: &str = "no authority information URLs are configured for this mount";

/// The four lists, by field name.
pub const LIST_FIELDS: [&str; 4] =
    ["issuing_certificates", "crl_distribution_points", "delta_crl_distribution_points", "ocsp_servers"];

impl Urls {
    /// Whether there is no URL at all.
    pub fn is_empty(&self) -> bool {
        self.lists().iter().all(|(_, list)| list.is_empty())
    }

    fn lists(&self) -> [(&'static str, &Vec<String>); 4] {
        [
            (LIST_FIELDS[0], &self.issuing_certificates),
            (LIST_FIELDS[1], &self.crl_distribution_points),
            (LIST_FIELDS[2], &self.delta_crl_distribution_points),
            (LIST_FIELDS[3], &self.ocsp_servers),
        ]
    }

    /// Takes the lists that `fields` has; absent ones stay. `templating` is the name of the flag.
    ///
    /// # Errors
    /// `Invalid` naming the list and the rule when an entry is not an absolute URL with a host.
    pub fn merged(&self, fields: &Fields, templating: &str) -> Result<Self> {
        let mut urls = self.clone();
        for (name, list) in [
            (LIST_FIELDS[0], &mut urls.issuing_certificates),
            (LIST_FIELDS[1], &mut urls.crl_distribution_points),
            (LIST_FIELDS[2], &mut urls.delta_crl_distribution_points),
            (LIST_FIELDS[3], &mut urls.ocsp_servers),
        ] {
            if let Some(given) = fields.list_within(name, MOST)? {
                *list = given;
            }
        }
        if let Some(flag) = fields.bool(templating)? {
            urls.templating = flag;
        }
        // A dry run with any issuer id shows whether the texts are URLs once expanded.
        urls.expanded("00000000-0000-4000-8000-000000000000", true)?;
        Ok(urls)
    }

    /// The set with the mount's own addresses filled in, as far as they are configured.
    #[must_use]
    pub fn in_cluster(&self, cluster: &Cluster) -> Self {
        let mut urls = self.clone();
        if urls.templating {
            for list in [
                &mut urls.issuing_certificates,
                &mut urls.crl_distribution_points,
                &mut urls.delta_crl_distribution_points,
                &mut urls.ocsp_servers,
            ] {
                list.iter_mut().for_each(|url| *url = cluster.fill(url));
            }
        }
        urls
    }

    /// The set with its placeholders replaced for one issuer; [`Urls::in_cluster`] comes first.
    ///
    /// # Errors
    /// `Invalid` when an entry is no URL, or names a placeholder that has no value.
    pub fn for_issuer(&self, issuer_id: &str) -> Result<Self> {
        self.expanded(issuer_id, false)
    }

    fn expanded(&self, issuer_id: &str, dry_run: bool) -> Result<Self> {
        let expand = |(name, list): (&str, &Vec<String>)| {
            list.iter().map(|url| self.expand_one(name, url, issuer_id, dry_run)).collect::<Result<Vec<_>>>()
        };
        let [ca, crl, delta, ocsp] = self.lists();
        Ok(Self {
            issuing_certificates: expand(ca)?,
            crl_distribution_points: expand(crl)?,
            delta_crl_distribution_points: expand(delta)?,
            ocsp_servers: expand(ocsp)?,
            templating: self.templating,
        })
    }

    fn expand_one(&self, field: &str, url: &str, issuer_id: &str, dry_run: bool) -> Result<String> {
        let mut text = url.to_owned();
        if self.templating {
            text = text.replace(ISSUER_ID, issuer_id);
            for cluster in PLACEHOLDERS {
                if !text.contains(cluster) {
                    continue;
                }
                if !dry_run {
                    return Err(Error::invalid(format!("{field}: {cluster} has no value: cluster config missing")));
                }
                text = text.replace(cluster, "http://cluster.invalid");
            }
        }
        if !is_absolute_url(&text) {
            return Err(Error::invalid(format!(
                "{field}: every entry must be an absolute URL with a scheme and a host"
            )));
        }
        Ok(text)
    }

    /// Whether some URL holds the issuer's id, which a root does not have before it is signed.
    pub fn names_issuer(&self) -> bool {
        self.templating && self.lists().iter().any(|(_, list)| list.iter().any(|url| url.contains(ISSUER_ID)))
    }

    /// Whether some URL holds an address of the mount that is not filled in.
    pub fn unresolved(&self) -> bool {
        let open = |url: &String| PLACEHOLDERS.iter().any(|placeholder| url.contains(placeholder));
        self.templating && self.lists().iter().any(|(_, list)| list.iter().any(open))
    }

    /// The members of an answer; `templating` is the name of the flag there.
    pub fn to_json(&self, templating: &str) -> serde_json::Map<String, serde_json::Value> {
        let mut json: serde_json::Map<_, _> =
            self.lists().into_iter().map(|(name, list)| (name.to_owned(), list.clone().into())).collect();
        json.insert(templating.to_owned(), self.templating.into());
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Fields {
        Fields::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn entries_must_be_absolute_urls() {
        let good = fields(r#"{"ocsp_servers":"http://o.example.test/ocsp"}"#);
        assert!(Urls::default().merged(&good, "enable_templating").is_ok());
        for bad in ["example.test", "/v1/pki/ca", "http://", "http://{{issuer_id}}/x y z\u{e9}"] {
            let mut fields = Fields::default();
            fields.set("issuing_certificates", bad);
            let error = Urls::default().merged(&fields, "enable_templating").unwrap_err();
            assert!(error.text().contains("issuing_certificates"), "{bad}");
        }
    }

    #[test]
    fn absent_lists_stay_and_placeholders_are_replaced() {
        let first = Urls::default()
            .merged(
                &fields(r#"{"crl_distribution_points":"http://h/{{issuer_id}}/crl","enable_templating":true}"#),
                "enable_templating",
            )
            .unwrap();
        let second = first.merged(&fields(r#"{"ocsp_servers":"http://h/o"}"#), "enable_templating").unwrap();
        assert_eq!(second.for_issuer("abc").unwrap().crl_distribution_points, ["http://h/abc/crl"]);
        let cluster =
            first.merged(&fields(r#"{"ocsp_servers":"{{cluster_path}}/ocsp"}"#), "enable_templating").unwrap();
        assert!(cluster.for_issuer("abc").unwrap_err().text().contains("cluster config missing"));
        let filled = cluster.in_cluster(&Cluster { path: "https://c/v1/pki".to_owned(), aia_path: String::new() });
        assert_eq!(filled.for_issuer("abc").unwrap().ocsp_servers, ["https://c/v1/pki/ocsp"]);
        assert_eq!(cluster.for_issuer("abc").unwrap_err().kind(), crate::error::Kind::Invalid);
    }
}

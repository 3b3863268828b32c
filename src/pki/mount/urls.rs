//! Authority information URLs: locations of the CA certificate, CRLs and OCSP responders (RFC 5280 4.2.1.13, 4.2.2.1).
//! The mount has one set of URLs; an issuer's own set, if any, replaces the mount's set completely.

use serde::{Deserialize, Serialize};

use super::cluster::{CLUSTER_PLACEHOLDERS, Cluster, is_absolute_url, is_fetchable_url, relying_party_warning};
use crate::error::{Error, Result};
use crate::fields::{ListFieldSlot, ListLimit, Resource as _, resource};

/// Limits of each list of URLs. They are tight, because every certificate contains the URLs.
const URL_LIST_LIMITS: ListLimit = ListLimit::new(16, 1024);

resource! {
    /// A set of authority information URLs.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Urls {
        /// caIssuers URLs in authorityInfoAccess.
        list(URL_LIST_LIMITS) issuing_certificates;
        /// URLs in cRLDistributionPoints, each as its own distribution point.
        list(URL_LIST_LIMITS) crl_distribution_points;
        /// URLs in freshestCRL, each as its own distribution point.
        list(URL_LIST_LIMITS) delta_crl_distribution_points;
        /// OCSP URLs in authorityInfoAccess.
        list(URL_LIST_LIMITS) ocsp_servers;
        /// `true` if the placeholders `{{issuer_id}}`, `{{cluster_path}}` and `{{cluster_aia_path}}` in the URLs are
        /// replaced. The API names this field differently for a mount and for an issuer.
        stored templating: bool = false;
    }
}

const ISSUER_ID_PLACEHOLDER: &str = "{{issuer_id}}";

/// Warning for a certificate that is issued without any authority information URL.
pub(crate) const NO_URLS_WARNING: &str = "no authority information URLs are configured for this mount";

impl Urls {
    /// Returns `true` if all lists of URLs are empty.
    pub fn is_empty(&self) -> bool {
        self.lists().all(|(_, list)| list.is_empty())
    }

    /// Iterates over the lists of URLs with their field names.
    pub fn lists(&self) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
        Self::LISTS.iter().map(move |ListFieldSlot { slot, .. }| (slot.name, (slot.get)(self)))
    }

    /// Validates a set of URLs that replaces `before`: every entry must be an absolute URL with a host. Size limits
    /// apply only to changed lists, so that lists stored by an older version stay valid.
    ///
    /// # Errors
    /// `Invalid` naming the list and the rule.
    pub fn checked_after(self, before: &Self) -> Result<Self> {
        for ((name, list), (_, old)) in self.lists().zip(before.lists()) {
            if list != old {
                URL_LIST_LIMITS.check(name, list)?;
            }
        }
        // Expands the templates with an arbitrary issuer id, to check that the results are URLs.
        self.expanded("00000000-0000-4000-8000-000000000000", true)?;
        Ok(self)
    }

    /// Returns the URLs, with those placeholders replaced for which `cluster` has a value.
    #[must_use]
    pub fn with_cluster_urls(&self, cluster: &Cluster) -> Self {
        let mut urls = self.clone();
        if urls.templating {
            for ListFieldSlot { slot, .. } in Self::LISTS {
                (slot.get_mut)(&mut urls).iter_mut().for_each(|url| *url = cluster.fill_placeholders(url));
            }
        }
        urls
    }

    /// Returns the URLs with the placeholders replaced for one issuer. Call [`Urls::with_cluster_urls`] first.
    ///
    /// # Errors
    /// `Invalid` when an entry is not a URL, or has a placeholder without a value.
    pub fn for_issuer(&self, issuer_id: &str) -> Result<Self> {
        self.expanded(issuer_id, false)
    }

    fn expanded(&self, issuer_id: &str, dry_run: bool) -> Result<Self> {
        let mut urls = self.clone();
        for ListFieldSlot { slot, .. } in Self::LISTS {
            for url in (slot.get_mut)(&mut urls) {
                *url = self.expand_url(slot.name, url, issuer_id, dry_run)?;
            }
        }
        Ok(urls)
    }

    fn expand_url(&self, field: &str, url: &str, issuer_id: &str, dry_run: bool) -> Result<String> {
        let mut text = url.to_owned();
        if self.templating {
            text = text.replace(ISSUER_ID_PLACEHOLDER, issuer_id);
            for cluster in CLUSTER_PLACEHOLDERS {
                if !text.contains(cluster) {
                    continue;
                }
                if !dry_run {
                    return Err(Error::invalid(format!("{field}: {cluster} has no value: cluster config missing")));
                }
                text = text.replace(cluster, "http://cluster.invalid");
            }
        }
        // OCSP runs over HTTP (RFC 6960 A.1).
        let is_url = if field == "ocsp_servers" { is_absolute_url(&text) } else { is_fetchable_url(&text) };
        if !is_url {
            return Err(Error::invalid(format!(
                "{field}: every entry must be an absolute URL with a scheme and a host"
            )));
        }
        Ok(text)
    }

    /// Returns warnings about URLs that relying parties may be unable to use. Call [`Urls::with_cluster_urls`] first.
    pub fn relying_party_warnings(&self) -> Vec<String> {
        let of = |(name, list): (&'static str, &Vec<String>)| {
            let wrong = list.iter().find_map(|url| relying_party_warning(url));
            wrong.map(|why| format!("{name}: {why}"))
        };
        self.lists().filter_map(of).collect()
    }

    /// Returns `true` if a URL contains the issuer id, which a root does not have before it is signed.
    pub fn contains_issuer_id(&self) -> bool {
        self.templating && self.lists().any(|(_, list)| list.iter().any(|url| url.contains(ISSUER_ID_PLACEHOLDER)))
    }

    /// Returns `true` if a URL contains an unreplaced `{{cluster_aia_path}}`.
    pub fn needs_aia_path(&self) -> bool {
        self.templating && self.lists().any(|(_, list)| list.iter().any(|url| url.contains(CLUSTER_PLACEHOLDERS[1])))
    }

    /// Returns `true` if a URL contains an unreplaced placeholder of `config/cluster`.
    pub fn has_unresolved_placeholders(&self) -> bool {
        let open = |url: &String| CLUSTER_PLACEHOLDERS.iter().any(|placeholder| url.contains(placeholder));
        self.templating && self.lists().any(|(_, list)| list.iter().any(open))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(urls: Urls) -> Result<Urls> {
        urls.checked_after(&Urls::default())
    }

    fn single_url(url: &str) -> Vec<String> {
        vec![url.to_owned()]
    }

    #[test]
    fn urls_must_be_absolute() {
        assert!(checked(Urls { ocsp_servers: single_url("http://o.example.test/ocsp"), ..Urls::default() }).is_ok());
        for bad in ["example.test", "/v1/pki/ca", "http://", "http://{{issuer_id}}/x y z\u{e9}"] {
            let error = checked(Urls { issuing_certificates: single_url(bad), ..Urls::default() }).unwrap_err();
            assert!(error.text().starts_with("issuing_certificates: "), "{bad}: {error}");
        }
        let directory = || single_url("ldap:///CN=Corp%20CA,CN=CDP,DC=example?certificateRevocationList?base");
        checked(Urls { crl_distribution_points: directory(), ..Urls::default() }).unwrap();
        checked(Urls { issuing_certificates: directory(), ..Urls::default() }).unwrap();
        assert!(checked(Urls { ocsp_servers: directory(), ..Urls::default() }).is_err());
        assert!(checked(Urls { crl_distribution_points: single_url("ldap://"), ..Urls::default() }).is_err());
        assert!(checked(Urls { crl_distribution_points: single_url("http:///a.crl"), ..Urls::default() }).is_err());
    }

    #[test]
    fn list_limits_do_not_apply_to_stored_lists() {
        let long = Urls { ocsp_servers: vec!["http://a.test".to_owned(); 17], ..Urls::default() };
        let error = checked(long.clone()).unwrap_err();
        assert_eq!(error.text(), "ocsp_servers: at most 16 entries are allowed");
        assert!(Urls { templating: true, ..long.clone() }.checked_after(&long).is_ok());
        let url = format!("http://a.test/{}", "x".repeat(1024));
        let error = checked(Urls { crl_distribution_points: single_url(&url), ..Urls::default() }).unwrap_err();
        assert_eq!(error.text(), "crl_distribution_points: an entry is longer than 1024 bytes");
    }

    #[test]
    fn unreachable_urls_are_reported_once_per_list() {
        let urls = |crls: &[&str], ocsp: &str| Urls {
            crl_distribution_points: crls.iter().map(|url| (*url).to_owned()).collect(),
            ocsp_servers: single_url(ocsp),
            ..Urls::default()
        };
        assert_eq!(
            urls(&["http://a.test/crl", "ldap://a.test/cn=crl"], "http://[2001:db8::1]/ocsp").relying_party_warnings(),
            [""; 0]
        );
        let wrong = urls(&["http://a.test/crl", "HTTPS://a.test/crl", "https://b.test"], "http://127.0.0.2:80/o")
            .relying_party_warnings();
        assert!(wrong[0].starts_with("crl_distribution_points: https and ldaps should not"), "{wrong:?}");
        assert!(wrong[1].starts_with("ocsp_servers: loopback addresses are"), "{wrong:?}");
        assert_eq!(wrong.len(), 2);
        for loopback in ["http://localhost/o", "http://LocalHost:8080/o", "http://[::1]:80/o", "http://a.localhost/"] {
            assert_eq!(urls(&[], loopback).relying_party_warnings().len(), 1, "{loopback}");
        }
    }

    #[test]
    fn url_placeholders_are_replaced() {
        let first = Urls {
            crl_distribution_points: single_url("http://h/{{issuer_id}}/crl"),
            templating: true,
            ..Urls::default()
        };
        assert_eq!(first.for_issuer("abc").unwrap().crl_distribution_points, ["http://h/abc/crl"]);
        let cluster = checked(Urls { ocsp_servers: single_url("{{cluster_path}}/ocsp"), ..first }).unwrap();
        assert!(cluster.for_issuer("abc").unwrap_err().text().contains("cluster config missing"));
        let path = super::super::cluster::ClusterUrl::new("path", "https://c/v1/pki").unwrap();
        let filled = cluster.with_cluster_urls(&Cluster { path, ..Cluster::default() });
        assert_eq!(filled.for_issuer("abc").unwrap().ocsp_servers, ["https://c/v1/pki/ocsp"]);
        assert_eq!(cluster.for_issuer("abc").unwrap_err().kind(), crate::error::Kind::Invalid);
    }
}

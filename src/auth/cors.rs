//! Cross-origin requests: the origins in `sys/config/cors` from which web pages may call the secrets service.
//!
//! An origin is the value that a browser sends in `Origin` (RFC 6454, 6.2; the Fetch standard): scheme, host, and a
//! port other than the default, in lower case and without a path. Origins are compared byte for byte, so a value that
//! no browser would send is rejected. The settings are one document, published as one snapshot ([`Cors`]). CORS is
//! disabled until they are written.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use url::Url;

use super::Auth;
use super::store::{AuthStore, AuthWrite, config_document, config_write};
use crate::documents::retry_on_conflict;
use crate::error::{Error, Result};

const CORS_DOCUMENT: &str = "cors";
/// The entry in the list of allowed origins that matches every origin.
const ANY_ORIGIN: &str = "*";
/// The error text for an invalid origin. It does not quote the value, which may be a secret that was put in the wrong
/// field.
const ORIGIN_RULE: &str = "must be an origin (scheme://host[:port], lower case, without path and default port), such \
                      as https://console.example:8443";

/// The CORS settings, as one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    stored: Option<CorsSettings>,
    version: u64,
}

/// The stored CORS settings; they exist only while CORS is enabled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorsSettings {
    /// The allowed origins, or `*` alone for every origin.
    pub origins: Vec<String>,
    /// Request headers that cross-origin requests may contain, in addition to those that this server reads itself.
    pub headers: Vec<String>,
}

impl CorsSettings {
    /// `true` if web pages of `origin` may send requests to the secrets service.
    pub fn allows_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == ANY_ORIGIN || allowed == origin)
    }
}

impl Cors {
    /// The stored CORS settings; `None` while CORS is disabled.
    pub fn settings(&self) -> Option<&CorsSettings> {
        self.stored.as_ref()
    }
}

pub(super) async fn load(store: &dyn AuthStore) -> Result<Cors> {
    let (stored, version) = config_document(store, CORS_DOCUMENT).await?;
    Ok(Cors { stored, version })
}

impl Auth {
    /// Returns the current snapshot of the CORS settings.
    pub fn cors(&self) -> arc_swap::Guard<Arc<Cors>> {
        self.cors.load()
    }

    /// Enables CORS with these allowed origins. Replaces the allowed headers if `headers` is given.
    ///
    /// # Errors
    /// `Invalid` for an entry that is no origin or header name, for an empty list of origins, and for `*` together with
    /// other origins; store errors.
    pub async fn cors_write(&self, origins: Vec<String>, headers: Option<Vec<String>>) -> Result<()> {
        let origins = validate_origins(origins)?;
        let headers = headers.map(validate_headers).transpose()?;
        self.cors_change(|before| {
            let headers = headers.clone().or_else(|| Some(before?.headers.clone())).unwrap_or_default();
            Some(CorsSettings { origins: origins.clone(), headers })
        })
        .await
    }

    /// Disables CORS.
    ///
    /// # Errors
    /// Store errors.
    pub async fn cors_delete(&self) -> Result<()> {
        self.cors_change(|_| None).await
    }

    pub(super) async fn reload_cors(&self) -> Result<()> {
        self.cors.store(Arc::new(load(&*self.store).await?));
        Ok(())
    }

    async fn cors_change(&self, change: impl Fn(Option<&CorsSettings>) -> Option<CorsSettings>) -> Result<()> {
        let _one_writer = self.acquire_write_permit().await?;
        let attempt = async || {
            self.reload_cors().await?;
            let before = self.cors.load_full();
            let stored = change(before.settings());
            if stored == before.stored {
                return Ok(());
            }
            let version = if stored.is_some() { before.version + 1 } else { 0 };
            let write = config_write(CORS_DOCUMENT, before.version, stored.as_ref())?;
            self.commit_or_reload(vec![AuthWrite::Document(write)]).await?;
            self.cors.store(Arc::new(Cors { stored, version }));
            Ok(())
        };
        retry_on_conflict("cors", attempt).await
    }
}

fn validate_origins(origins: Vec<String>) -> Result<Vec<String>> {
    if origins.is_empty() {
        return Err(Error::invalid("allowed_origins: must contain at least one origin, or '*'"));
    }
    if origins.len() > 1 && origins.iter().any(|origin| origin == ANY_ORIGIN) {
        return Err(Error::invalid("allowed_origins: '*' cannot be combined with other origins"));
    }
    match origins.iter().position(|origin| origin != ANY_ORIGIN && !is_origin(origin)) {
        Some(at) => Err(Error::invalid(format!("allowed_origins: entry {}: {ORIGIN_RULE}", at + 1))),
        None => Ok(origins),
    }
}

fn is_origin(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let sent = match url.origin() {
        known @ url::Origin::Tuple(..) => known.ascii_serialization(),
        // The URL parser returns no origin for the URL schemes of browser extensions, but browsers send one.
        url::Origin::Opaque(_) => match url.host_str() {
            Some(host) => format!("{}://{}", url.scheme(), host.to_ascii_lowercase()),
            None => return false,
        },
    };
    sent == text && !text.contains(ANY_ORIGIN)
}

fn validate_headers(headers: Vec<String>) -> Result<Vec<String>> {
    let is_token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    // Browsers take `*` to mean every header except `Authorization`. Operators would not expect this exception, so `*`
    // is rejected.
    let is_name = |header: &String| !header.is_empty() && header != ANY_ORIGIN && header.bytes().all(is_token);
    match headers.iter().position(|header| !is_name(header)) {
        Some(at) => Err(Error::invalid(format!("allowed_headers: entry {}: must be the name of a header", at + 1))),
        None => Ok(headers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::TestStore;
    use crate::clock::Clock;
    use time::macros::datetime;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[tokio::test]
    async fn cors_is_disabled_before_write_and_after_delete() {
        let clock = Clock::manual(datetime!(2030-01-01 00:00 UTC));
        let auth = Auth::open(TestStore::open(&clock).await, clock).await.unwrap();
        assert_eq!(auth.cors().settings(), None);
        auth.cors_delete().await.unwrap();
        let origin = "https://console.example";
        for round in 1..3 {
            auth.cors_write(texts(&[origin]), Some(texts(&["X-Mine"]))).await.unwrap();
            auth.cors_write(texts(&["http://localhost:3000", origin]), None).await.unwrap();
            let shown = auth.cors().settings().cloned().unwrap();
            assert_eq!(shown.headers, ["X-Mine"], "{round}: a write without headers keeps them");
            assert!(
                shown.allows_origin(origin)
                    && !shown.allows_origin("https://console.example:8443")
                    && !shown.allows_origin("null")
            );
            // A node that starts on this store loads the same settings and version.
            assert_eq!(load(&*auth.store).await.unwrap(), **auth.cors());
            auth.cors_delete().await.unwrap();
            assert_eq!((auth.cors().settings(), load(&*auth.store).await.unwrap()), (None, Cors::default()));
        }
        auth.cors_write(texts(&["*"]), None).await.unwrap();
        let any = auth.cors().settings().cloned().unwrap();
        assert!(any.headers.is_empty() && any.allows_origin("null") && any.allows_origin(origin));
    }

    #[test]
    fn invalid_cors_origins_and_headers_are_refused() {
        for origin in [
            "https://a.example",
            "https://a.example:8443",
            "http://localhost",
            "http://[::1]:3000",
            "https://xn--bcher-kva.example",
            "moz-extension://0f8fad5b-d9cb-469f-a165-70867728950e",
            "*",
        ] {
            assert!(validate_origins(texts(&[origin])).is_ok(), "{origin}");
        }
        for origin in [
            "https://a.example/",
            "https://A.example",
            "https://a.example:443",
            "https://bücher.example",
            "https://u:p@a.example",
            "a.example",
            "null",
            "",
            "https://*.example",
            "data:text/html,x",
        ] {
            let refused = validate_origins(texts(&["https://fine.example", origin])).unwrap_err();
            assert_eq!(refused.text(), format!("allowed_origins: entry 2: {ORIGIN_RULE}"), "{origin}");
        }
        let combined = validate_origins(texts(&["*", "https://a.example"])).unwrap_err();
        assert_eq!(combined.text(), "allowed_origins: '*' cannot be combined with other origins");
        let none = validate_origins(Vec::new()).unwrap_err();
        assert_eq!(none.text(), "allowed_origins: must contain at least one origin, or '*'");
        for header in ["", "X Mine", "X-Mine:", "X-Mine\r\nSet-Cookie", "*", "X-Ä"] {
            let refused = validate_headers(texts(&["X-Fine", header])).unwrap_err();
            assert_eq!(refused.text(), "allowed_headers: entry 2: must be the name of a header", "{header}");
        }
    }
}

//! Sources from which an issuer's published keys are fetched.

use std::sync::Arc;

use serde::Deserialize;

use super::keys::{KeySet, PublishedKeySet};
use crate::error::{Error, Kind, Result};
use crate::outbound::{Outbound, RetryPolicy};

/// Maximum length of an issuer's name in a discovery document, in bytes.
const MAX_ISSUER_BYTES: usize = 2048;

pub(in crate::auth) enum KeySetSource {
    /// The URL of a key set.
    KeySet(String),
    /// The URL of a discovery document that names the key set, and a check that can reject the document.
    Discovery { url: String, accepts: DiscoveryCheck },
}

pub(in crate::auth) type DiscoveryCheck = Arc<dyn Fn(&DiscoveryDocument) -> Result<()> + Send + Sync>;

/// The members of a discovery document that this server reads (OpenID Connect Discovery 1.0, 3).
#[derive(Debug, Deserialize)]
pub(in crate::auth) struct DiscoveryDocument {
    pub(in crate::auth) issuer: String,
    pub(in crate::auth) jwks_uri: String,
}

pub(super) struct FetchedKeySet {
    pub(super) keys: KeySet,
    pub(super) issuer: Option<String>,
}

impl KeySetSource {
    /// Fetches the issuer's key set. `who` is the prefix of error messages.
    ///
    /// # Errors
    /// `Unavailable` unless the result is a key set with a usable key.
    pub(super) async fn fetch(&self, outbound: &Outbound, tries: RetryPolicy, who: &str) -> Result<FetchedKeySet> {
        let (url, issuer) = match self {
            Self::KeySet(url) => (url.clone(), None),
            Self::Discovery { url, accepts } => {
                let document: DiscoveryDocument =
                    outbound.fetch_published(url, tries, &format!("{who}: the issuer's discovery document")).await?;
                if document.issuer.is_empty() || document.issuer.len() > MAX_ISSUER_BYTES {
                    return Err(Error::new(
                        Kind::Unavailable,
                        format!(
                            "{who}: the issuer's discovery document: \"issuer\" must have 1 to {MAX_ISSUER_BYTES} bytes"
                        ),
                    ));
                }
                accepts(&document).map_err(|error| {
                    let text = format!("{who}: the issuer's discovery document was rejected: {}", error.text());
                    Error::new(Kind::Unavailable, text)
                })?;
                (document.jwks_uri, Some(document.issuer))
            }
        };
        let who = format!("{who}: the issuer's key set");
        let published: PublishedKeySet = outbound.fetch_published(&url, tries, &who).await?;
        Ok(FetchedKeySet { keys: KeySet::published(published, &who)?, issuer })
    }
}

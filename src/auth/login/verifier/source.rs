//! Where the keys of an issuer are published.

use std::sync::Arc;

use serde::Deserialize;

use super::keys::{KeySet, Published};
use crate::error::{Error, Kind, Result};
use crate::outbound::{Outbound, Tries};

/// Maximum length of an issuer in bytes.
const LONGEST: usize = 2048;

pub(in crate::auth) enum Source {
    /// URL of a key set.
    KeySet(String),
    /// URL of a discovery document, and a check that can reject it.
    Discovery { url: String, accepts: Accepts },
}

pub(in crate::auth) type Accepts = Arc<dyn Fn(&Document) -> Result<()> + Send + Sync>;

/// The used part of a discovery document (OpenID Connect Discovery 1.0, 3).
#[derive(Debug, Deserialize)]
pub(in crate::auth) struct Document {
    pub(in crate::auth) issuer: String,
    pub(in crate::auth) jwks_uri: String,
}

pub(super) struct Found {
    pub(super) keys: KeySet,
    pub(super) issuer: Option<String>,
}

impl Source {
    /// Fetches the keys.
    ///
    /// # Errors
    /// `Unavailable` unless the result is a key set with a usable key.
    pub(super) async fn find(&self, outbound: &Outbound, tries: Tries, who: &str) -> Result<Found> {
        let (url, issuer) = match self {
            Self::KeySet(url) => (url.clone(), None),
            Self::Discovery { url, accepts } => {
                let document: Document =
                    outbound.published(url, tries, &format!("{who}: the issuer's configuration")).await?;
                if document.issuer.is_empty() || document.issuer.len() > LONGEST {
                    return Err(Error::new(Kind::Unavailable, format!("{who}: the configuration names no issuer")));
                }
                accepts(&document).map_err(|error| {
                    let text = format!("{who}: the issuer's configuration is not believed: {}", error.text());
                    Error::new(Kind::Unavailable, text)
                })?;
                (document.jwks_uri, Some(document.issuer))
            }
        };
        let who = format!("{who}: the issuer's key set");
        let published: Published = outbound.published(&url, tries, &who).await?;
        Ok(Found { keys: KeySet::published(published, &who)?, issuer })
    }
}

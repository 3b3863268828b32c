//! The versions of Signet that have run on this store, and the condition of the store.

use serde::{Deserialize, Serialize};

use super::Auth;
use super::store::{AuthWrite, StoreCondition, config_document, config_write};
use crate::clock::Time;
use crate::documents::retry_on_conflict;
use crate::error::Result;

const VERSIONS_DOCUMENT: &str = "versions";
/// Maximum number of recorded versions.
const MAX_RECORDED_VERSIONS: usize = 128;

/// A version of Signet that has run on this store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramVersion {
    /// The version number.
    pub version: String,
    /// Time at which the version was first started on this store.
    #[serde(with = "super::instant")]
    pub since: Time,
}

impl Auth {
    /// Records that the version `version` of Signet has run on this store, if that is not recorded yet.
    ///
    /// # Errors
    /// Store errors.
    pub async fn record_version(&self, version: &str) -> Result<()> {
        let attempt = async || {
            let (mut versions, expected) = self.stored_versions().await?;
            if versions.iter().any(|known| known.version == version) {
                return Ok(());
            }
            versions.push(ProgramVersion { version: version.to_owned(), since: self.clock.now() });
            versions.drain(..versions.len().saturating_sub(MAX_RECORDED_VERSIONS));
            let write = config_write(VERSIONS_DOCUMENT, expected, Some(&versions))?;
            self.store.commit(vec![AuthWrite::Document(write)]).await.map(drop)
        };
        retry_on_conflict("versions", attempt).await
    }

    /// Returns the versions of Signet that have run on this store, in the order of their first start.
    ///
    /// # Errors
    /// Store errors.
    pub async fn versions(&self) -> Result<Vec<ProgramVersion>> {
        Ok(self.stored_versions().await?.0)
    }

    /// Returns the last restore of the store and the number of tokens that never expire.
    ///
    /// # Errors
    /// Store errors.
    pub async fn store_condition(&self) -> Result<StoreCondition> {
        self.store.condition().await
    }

    async fn stored_versions(&self) -> Result<(Vec<ProgramVersion>, u64)> {
        let (versions, version) = config_document(&*self.store, VERSIONS_DOCUMENT).await?;
        Ok((versions.unwrap_or_default(), version))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use time::macros::datetime;

    use super::*;
    use crate::auth::tests::TestStore;
    use crate::clock::Clock;

    #[tokio::test]
    async fn each_version_is_recorded_once_with_its_first_start() {
        let clock = Clock::manual(datetime!(2030-01-01 00:00 UTC));
        let auth = Auth::open(TestStore::open(&clock).await, clock.clone()).await.unwrap();
        for version in ["0.1.0", "0.1.0", "0.2.0", "0.1.0"] {
            auth.record_version(version).await.unwrap();
            clock.advance(Duration::from_secs(60));
        }
        let versions: Vec<_> = auth.versions().await.unwrap().into_iter().map(|v| (v.version, v.since)).collect();
        let at = |minute: u64| datetime!(2030-01-01 00:00 UTC) + Duration::from_secs(60 * minute);
        assert_eq!(versions, [("0.1.0".to_owned(), at(0)), ("0.2.0".to_owned(), at(2))]);
    }
}

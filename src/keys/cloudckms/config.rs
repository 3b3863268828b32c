//! The parameters of a key in Google Cloud KMS and their validation. All are texts; `""` means absent.

use serde::{Deserialize, Serialize};

use super::algorithm::CkmsAlgorithm;
use super::file::CredentialFile;
use crate::error::{Error, Result};
use crate::fields::resource;
use crate::keys::cloud::{CloudKeyConfig, CloudServices, rules};

pub(super) const TYPE_NAME: &str = "cloudckms";
/// The version number that the service gives to a new key.
const FIRST_KEY_VERSION: &str = "1";

resource! {
    /// The configuration of one key in Google Cloud KMS.
    #[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CloudCkmsConfig {
        /// Path of the credential file on the server.
        text credentials;
        /// Name of the key.
        text crypto_key;
        /// Version of the key; default: the first.
        text crypto_key_version;
        /// Name of the key ring.
        text key_ring;
        /// The project of the key ring; default: the project in the server's settings or environment.
        text project;
        /// The region of the key ring; default: the region in the server's settings or environment.
        text region;
        /// The signing algorithm by its name in Cloud KMS, such as `EC_SIGN_P256_SHA256`.
        text algorithm;
    }
}

impl CloudKeyConfig for CloudCkmsConfig {
    fn normalize(name: &str, text: String) -> String {
        if name == "algorithm" { text.to_ascii_uppercase() } else { text }
    }

    fn default_value(&self, name: &str) -> String {
        if name == "crypto_key_version" { FIRST_KEY_VERSION.to_owned() } else { String::new() }
    }
}

impl CloudCkmsConfig {
    /// Validates the parameters. `generate` allows generating the key. Only the path of a credential file is checked,
    /// not its content.
    ///
    /// # Errors
    /// `Invalid`, with the parameter and the rule.
    pub fn check(&self, generate: bool, services: &CloudServices) -> Result<()> {
        self.resource_names(services)?;
        self.algorithm()?;
        if generate && self.version() != FIRST_KEY_VERSION {
            return Err(Error::invalid("crypto_key_version must be 1 when allow_generate_key is true"));
        }
        CredentialFile::resolve(&self.credentials, &services.settings.google).map(drop)
    }

    /// The resource names of the key ring and the key.
    pub(super) fn resource_names(&self, services: &CloudServices) -> Result<(String, String)> {
        let settings = &services.settings.google;
        let or_default = |configured: &str, default: &Option<String>| match configured {
            "" => default.clone().unwrap_or_default(),
            configured => configured.to_owned(),
        };
        let project = or_default(&self.project, &settings.project);
        let region = or_default(&self.region, &settings.region);
        for (name, text) in
            [("crypto_key", &self.crypto_key), ("key_ring", &self.key_ring), ("project", &project), ("region", &region)]
        {
            rules::validate_url_part(name, text, "_-", 1..=63)?;
        }
        let version = self.version();
        if version.len() > 9 || !version.bytes().all(|b| b.is_ascii_digit()) || version.starts_with('0') {
            return Err(Error::invalid("crypto_key_version must be a decimal number"));
        }
        let ring = format!("projects/{project}/locations/{region}/keyRings/{}", self.key_ring);
        let key = format!("{ring}/cryptoKeys/{}", self.crypto_key);
        Ok((ring, key))
    }

    pub(super) fn version(&self) -> &str {
        if self.crypto_key_version.is_empty() { FIRST_KEY_VERSION } else { &self.crypto_key_version }
    }

    pub(super) fn algorithm(&self) -> Result<&'static CkmsAlgorithm> {
        rules::require_value("algorithm", &self.algorithm)?;
        CkmsAlgorithm::named(&self.algorithm)
            .ok_or_else(|| Error::invalid(format!("algorithm must be one of {}", CkmsAlgorithm::names())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::Clock;
    use crate::keys::cloud::{CloudSettings, GoogleSettings};

    fn services(google: GoogleSettings) -> Arc<CloudServices> {
        CloudServices::new(CloudSettings { google, ..CloudSettings::default() }, Clock::system()).unwrap()
    }

    fn valid_config() -> CloudCkmsConfig {
        CloudCkmsConfig {
            crypto_key: "key".to_owned(),
            key_ring: "ring".to_owned(),
            project: "project".to_owned(),
            region: "europe-west3".to_owned(),
            algorithm: "EC_SIGN_P256_SHA256".to_owned(),
            ..CloudCkmsConfig::default()
        }
    }

    #[test]
    fn invalid_parameters_are_refused() {
        type Edit = fn(&mut CloudCkmsConfig);
        let cases: [(Edit, bool, &str); 10] = [
            (|c| c.crypto_key.clear(), false, "crypto_key is required"),
            (|c| c.key_ring.clear(), false, "key_ring is required"),
            (|c| c.project.clear(), false, "project is required"),
            (|c| c.region.clear(), false, "region is required"),
            (|c| c.key_ring = "a/../b".into(), false, "key_ring: must be 1 to 63 letters, digits or any of _ -"),
            (|c| c.crypto_key_version = "latest".into(), false, "crypto_key_version must be a decimal number"),
            (|c| c.crypto_key_version = "1/x".into(), false, "crypto_key_version must be a decimal number"),
            (
                |c| c.crypto_key_version = "2".into(),
                true,
                "crypto_key_version must be 1 when allow_generate_key is true",
            ),
            (|c| c.algorithm.clear(), false, "algorithm is required"),
            (
                |c| c.credentials = "/etc/passwd".into(),
                false,
                "credentials: must be the file that the environment names, or a file in google_credentials_dir",
            ),
        ];
        let none = services(GoogleSettings::default());
        valid_config().check(true, &none).unwrap();
        for (edit, generate, text) in cases {
            let mut config = valid_config();
            edit(&mut config);
            assert_eq!(config.check(generate, &none).unwrap_err().text(), text);
        }
        let error =
            CloudCkmsConfig { algorithm: "EC_SIGN_P521_SHA512".to_owned(), ..valid_config() }.check(false, &none);
        assert!(error.unwrap_err().text().starts_with("algorithm must be one of EC_SIGN_P256_SHA256, "));
        let version = CloudCkmsConfig { crypto_key_version: "2".to_owned(), ..valid_config() };
        version.check(false, &none).unwrap();
    }

    #[test]
    fn project_and_region_default_to_the_environment() {
        let google = GoogleSettings {
            project: Some("other".to_owned()),
            region: Some("global".to_owned()),
            ..GoogleSettings::default()
        };
        let config = CloudCkmsConfig { project: String::new(), region: String::new(), ..valid_config() };
        let (_, key) = config.resource_names(&services(google.clone())).unwrap();
        assert_eq!(key, "projects/other/locations/global/keyRings/ring/cryptoKeys/key");
        assert!(
            valid_config()
                .resource_names(&services(google))
                .unwrap()
                .1
                .starts_with("projects/project/locations/europe-west3/")
        );
    }
}

//! The parameters of a key in AWS KMS and their validation. All are texts; `""` means absent.

use serde::{Deserialize, Serialize};

use super::endpoints::is_aws_endpoint;
use crate::error::{Error, Result};
use crate::fields::resource;
use crate::keys::cloud::{CloudKeyConfig, rules};
use crate::keys::redaction;
use crate::outbound::EgressPolicy;
use crate::secret::sealed;
use crate::x509::algorithm::{Curve, KeyKind};

pub(super) const TYPE_NAME: &str = "cloudakms";

resource! {
    /// The configuration of one key in AWS KMS.
    #[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CloudAkmsConfig {
        /// Access key ID. Without `access_key` and `secret_key`, the credential comes from the environment: variables,
        /// profile, container or machine.
        #[serde(with = "sealed")]
        secret access_key;
        /// Secret access key.
        #[serde(with = "sealed")]
        secret secret_key;
        /// Type of the key: `RSA` or `ECDSA`.
        text key_type;
        /// Size of an RSA key in bits, decimal.
        text key_bits;
        /// Curve of an ECDSA key: `P256`, `P384` or `P521`.
        text curve;
        /// The key in AWS KMS: key ID, key ARN, alias or alias ARN.
        text kms_key;
        /// URL of the service; overrides that of the region. Without `access_key` it must be an AWS endpoint, or on
        /// this machine if that is allowed, because the process's own credential is sent nowhere else.
        text endpoint;
        /// The region; default: that of the environment, or `us-east-1`.
        text region;
    }
}

impl CloudKeyConfig for CloudAkmsConfig {
    fn normalize(name: &str, text: String) -> String {
        match name {
            "key_type" => text.to_ascii_uppercase(),
            "key_bits" if text == "0" => String::new(),
            "curve" => text.to_ascii_uppercase().replace('-', ""),
            _ => text,
        }
    }
}

impl CloudAkmsConfig {
    /// Validates the parameters. `generate` allows generating the key; `egress_policy` restricts the endpoint.
    ///
    /// # Errors
    /// `Invalid`, with the parameter and the rule.
    pub fn check(&self, generate: bool, egress_policy: EgressPolicy) -> Result<()> {
        if redaction::is_set(&self.access_key) != redaction::is_set(&self.secret_key) {
            return Err(Error::invalid("access_key and secret_key must be set together"));
        }
        let is_rsa = match self.key_type.as_str() {
            "RSA" => true,
            "ECDSA" => false,
            "" => return Err(Error::invalid("key_type is required")),
            _ => return Err(Error::invalid("key_type must be RSA or ECDSA")),
        };
        rules::parse_rsa_bits(&self.key_bits, is_rsa)?;
        if !self.curve.is_empty() && self.curve().is_none() {
            return Err(Error::invalid("curve must be one of P256, P384, P521"));
        }
        if generate && !is_rsa && self.curve.is_empty() {
            return Err(Error::invalid("curve is required when allow_generate_key is true and key_type is ECDSA"));
        }
        self.check_kms_key(generate)?;
        if !self.endpoint.is_empty() {
            self.check_endpoint(egress_policy)?;
        }
        if self.region.is_empty() { Ok(()) } else { rules::validate_url_part("region", &self.region, "-", 1..=32) }
    }

    fn check_endpoint(&self, egress_policy: EgressPolicy) -> Result<()> {
        let url = egress_policy.validate_url("endpoint", &self.endpoint)?;
        if url.query().is_some() {
            return Err(Error::invalid("endpoint: must have no query"));
        }
        let is_trusted = is_aws_endpoint(url.host_str().unwrap_or_default()) || EgressPolicy::is_local_url(&url);
        if redaction::is_set(&self.access_key) || is_trusted {
            return Ok(());
        }
        Err(Error::invalid("endpoint: must be an endpoint of AWS KMS unless access_key is set"))
    }

    fn check_kms_key(&self, generate: bool) -> Result<()> {
        rules::validate_url_part("kms_key", &self.kms_key, ":/_-", 1..=rules::MAX_CLOUD_PARAMETER_BYTES)?;
        let is_alias = self.alias().is_some_and(|alias| !alias.starts_with("alias/aws/"));
        if generate && !is_alias {
            return Err(Error::invalid("kms_key must be an alias when allow_generate_key is true"));
        }
        Ok(())
    }

    /// The alias in `kms_key`, including `alias/`; `None` if it is not an alias.
    pub(super) fn alias(&self) -> Option<&str> {
        let name = match self.kms_key.starts_with("arn:") {
            // arn:partition:service:region:account:alias/name
            true => self.kms_key.splitn(6, ':').nth(5)?,
            false => &self.kms_key,
        };
        name.strip_prefix("alias/").filter(|name| !name.is_empty()).map(|_| name)
    }

    fn curve(&self) -> Option<Curve> {
        [("P256", Curve::P256), ("P384", Curve::P384), ("P521", Curve::P521)]
            .into_iter()
            .find_map(|(name, curve)| (name == self.curve).then_some(curve))
    }

    /// Type and size of the key; `None` if the curve or the size is missing or invalid.
    #[cfg_attr(not(feature = "keys-aws"), allow(dead_code))]
    pub(super) fn kind(&self) -> Option<KeyKind> {
        match self.key_type.as_str() {
            "RSA" => Some(KeyKind::Rsa { bits: rules::parse_rsa_bits(&self.key_bits, true).ok()? }),
            _ => self.curve().map(KeyKind::Ec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    const LOOPBACK_FORBIDDEN: EgressPolicy = EgressPolicy { loopback: false };

    fn rsa_config() -> CloudAkmsConfig {
        CloudAkmsConfig {
            key_type: "RSA".to_owned(),
            key_bits: "2048".to_owned(),
            kms_key: "alias/x".to_owned(),
            ..CloudAkmsConfig::default()
        }
    }

    #[test]
    fn generated_key_requires_an_alias() {
        for (kms_key, may) in [
            ("alias/x", true),
            ("alias/a/b_c-d", true),
            ("arn:aws:kms:us-east-1:000000000000:alias/x", true),
            ("alias/", false),
            ("alias/aws/x", false),
            ("arn:aws:kms:us-east-1:000000000000:alias/aws/x", false),
            ("arn:aws:kms:us-east-1:000000000000:key/1234abcd-12ab-34cd-56ef-1234567890ab", false),
            ("1234abcd-12ab-34cd-56ef-1234567890ab", false),
        ] {
            let config = CloudAkmsConfig { kms_key: kms_key.to_owned(), ..rsa_config() };
            config.check(false, LOOPBACK_FORBIDDEN).unwrap();
            match config.check(true, LOOPBACK_FORBIDDEN) {
                Ok(()) => assert!(may, "{kms_key}"),
                Err(error) => {
                    assert!(!may, "{kms_key}");
                    assert_eq!(error.text(), "kms_key must be an alias when allow_generate_key is true");
                }
            }
        }
        let arn = CloudAkmsConfig { kms_key: "arn:aws:kms:us-east-1:000000000000:alias/x".to_owned(), ..rsa_config() };
        assert_eq!(arn.alias(), Some("alias/x"));
    }

    #[test]
    fn invalid_parameters_are_refused() {
        type Edit = fn(&mut CloudAkmsConfig);
        let cases: [(Edit, bool, &str); 10] = [
            (|c| c.key_type.clear(), false, "key_type is required"),
            (|c| c.key_type = "DSA".into(), false, "key_type must be RSA or ECDSA"),
            (|c| c.key_bits.clear(), false, "key_bits must be one of 2048, 3072, 4096"),
            (|c| c.key_bits = "1024".into(), false, "key_bits must be one of 2048, 3072, 4096"),
            (|c| c.curve = "P224".into(), false, "curve must be one of P256, P384, P521"),
            (
                |c| c.key_type = "ECDSA".into(),
                true,
                "curve is required when allow_generate_key is true and key_type is ECDSA",
            ),
            (|c| c.kms_key.clear(), false, "kms_key is required"),
            (|c| c.kms_key = "alias/a b".into(), false, "kms_key: must be 1 to 2048 letters, digits or any of : / _ -"),
            (|c| c.access_key = Secret::new("a"), false, "access_key and secret_key must be set together"),
            (|c| c.region = "evil.example/".into(), false, "region: must be 1 to 32 letters, digits or -"),
        ];
        for (edit, generate, text) in cases {
            let mut config = rsa_config();
            edit(&mut config);
            assert_eq!(config.check(generate, LOOPBACK_FORBIDDEN).unwrap_err().text(), text);
        }
    }

    #[test]
    fn endpoint_must_follow_the_rules_for_caller_addresses() {
        const LOOPBACK_ALLOWED: EgressPolicy = EgressPolicy { loopback: true };
        let with = |endpoint: &str| CloudAkmsConfig {
            endpoint: endpoint.to_owned(),
            access_key: Secret::new("AK"),
            secret_key: Secret::new("SK"),
            ..rsa_config()
        };
        let refusal = |endpoint, egress_policy| {
            with(endpoint).check(false, egress_policy).err().map(|error| error.text().to_owned())
        };
        for good in ["https://kms.corp.example/base", "https://10.0.0.1:8443"] {
            assert_eq!(refusal(good, LOOPBACK_FORBIDDEN), None, "{good}");
        }
        for local in ["http://127.0.0.1:4566", "http://localhost:4566", "https://[::1]:1"] {
            assert_eq!(refusal(local, LOOPBACK_ALLOWED), None, "{local}");
            assert!(refusal(local, LOOPBACK_FORBIDDEN).is_some(), "{local}");
        }
        for (bad, rule) in [
            ("http://kms.example", "must be an absolute https URL without credentials"),
            ("kms", "must be an absolute https URL without credentials"),
            ("https://user@kms.example", "must be an absolute https URL without credentials"),
            ("https://kms.example/?a=b", "must have no query"),
            (
                "https://169.254.169.254",
                "the host's address is not permitted (loopback, link-local, multicast or metadata service)",
            ),
        ] {
            assert_eq!(refusal(bad, LOOPBACK_ALLOWED), Some(format!("endpoint: {rule}")), "{bad}");
        }
        // The process's own credential is sent only to AWS, or to this machine if that is allowed.
        let text = "endpoint: must be an endpoint of AWS KMS unless access_key is set";
        for (endpoint, is_refused) in [
            ("https://vpce-0-a.kms.eu-central-1.vpce.amazonaws.com", false),
            ("https://kms.corp.example", true),
            ("http://127.0.0.1:4566", false),
        ] {
            let config = CloudAkmsConfig { endpoint: endpoint.to_owned(), ..rsa_config() };
            let refusal = config.check(false, LOOPBACK_ALLOWED).err().map(|error| error.text().to_owned());
            assert_eq!(refusal, is_refused.then(|| text.to_owned()), "{endpoint}");
        }
    }

    #[test]
    fn stored_parameters_read_back() {
        let config = CloudAkmsConfig {
            key_type: "ECDSA".to_owned(),
            key_bits: String::new(),
            curve: "P256".to_owned(),
            access_key: Secret::new("AK"),
            secret_key: Secret::new("SK"),
            ..rsa_config()
        };
        config.check(true, LOOPBACK_FORBIDDEN).unwrap();
        assert_eq!(config.kind(), Some(KeyKind::Ec(Curve::P256)));
        let stored = serde_json::to_string(&config).unwrap();
        assert!(serde_json::from_str::<CloudAkmsConfig>(&stored).unwrap() == config);
    }
}

//! Parses and renders the parameters of a managed key at a cloud service. Each parameter is a text or a secret.

use serde_json::{Map, Value};

use super::write_body::ManagedKeyWriteBody;
use crate::error::{Error, Result};
use crate::keys::{CloudKeyConfig, MAX_CLOUD_PARAMETER_BYTES, redaction};

/// Merges a request into the stored parameters.
pub(super) fn read<C: CloudKeyConfig>(sent: &ManagedKeyWriteBody, stored: Option<&C>) -> Result<C> {
    let mut config = stored.cloned().unwrap_or_default();
    for slot in C::TEXTS {
        let text = sent.fields().text_within(slot.name, MAX_CLOUD_PARAMETER_BYTES)?;
        slot.set_if_given(&mut config, text.map(|text| C::normalize(slot.name, text)));
    }
    for slot in C::SECRETS {
        sent.merge_secret(slot.name, (slot.get_mut)(&mut config))?;
    }
    match C::SECRETS.iter().find(|slot| (slot.get)(&config).expose().len() > MAX_CLOUD_PARAMETER_BYTES) {
        Some(slot) => Err(Error::invalid(format!("{}: longer than {MAX_CLOUD_PARAMETER_BYTES} bytes", slot.name))),
        None => Ok(config),
    }
}

/// Renders the parameters. Secrets are redacted, and empty texts replaced by their defaults.
pub(super) fn to_json<C: CloudKeyConfig>(config: &C) -> Map<String, Value> {
    let mut members = config.to_members();
    for (name, text) in &mut members {
        if *text == "" {
            *text = config.default_value(name).into();
        }
    }
    for slot in C::SECRETS {
        members.insert(slot.name.to_owned(), redaction::redact((slot.get)(config)).into());
    }
    members
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields::Fields;
    use crate::keys::{CloudAkmsConfig, CloudBkeyvaultConfig, CloudCkmsConfig};

    fn written<C: CloudKeyConfig>(stored: Option<&C>, body: Value) -> Result<C> {
        let fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        read(&ManagedKeyWriteBody::new(fields, C::SECRETS.iter().map(|slot| slot.name).collect()).unwrap(), stored)
    }

    fn refusal<C: CloudKeyConfig>(stored: Option<&C>, body: Value) -> String {
        written(stored, body).err().unwrap().text().to_owned()
    }

    #[test]
    fn cloud_key_update_keeps_absent_fields_and_hides_secrets() {
        let body = json!({ "access_key": "AK", "secret_key": "SK", "key_type": "ecdsa", "curve": "p-256",
            "key_bits": 0, "kms_key": "alias/x" });
        let config: CloudAkmsConfig = written(None, body).unwrap();
        let config = written(Some(&config), json!({ "secret_key": "redacted", "region": "eu-central-1" })).unwrap();
        assert!(config.access_key.expose() == b"AK" && config.secret_key.expose() == b"SK");
        let shown = json!({ "access_key": "redacted", "secret_key": "redacted", "key_type": "ECDSA", "key_bits": "",
            "curve": "P256", "kms_key": "alias/x", "endpoint": "", "region": "eu-central-1" });
        assert_eq!(Value::Object(to_json(&config)), shown);
        assert!(refusal::<CloudAkmsConfig>(None, json!({ "access_key": "redacted" })).starts_with("access_key: "));
        for name in ["region", "secret_key"] {
            let text = refusal(Some(&config), json!({ name: "x".repeat(3000) }));
            assert_eq!(text, format!("{name}: longer than 2048 bytes"));
        }
    }

    #[test]
    fn spelling_is_normalized_and_absent_texts_have_defaults() {
        let body = json!({ "client_secret": "hunter2", "key_type": "rsa-hsm", "key_bits": 0 });
        let config: CloudBkeyvaultConfig = written(None, body).unwrap();
        assert_eq!((config.key_type.as_str(), config.key_bits.as_str()), ("RSA-HSM", ""));
        let shown = to_json(&config);
        assert_eq!(
            (&shown["environment"], &shown["resource"]),
            (&json!("AZUREPUBLICCLOUD"), &json!("vault.azure.net"))
        );
        assert_eq!(shown["client_secret"], "redacted");
        let body = json!({ "client_secret": "redacted", "environment": "azurechinacloud" });
        let config = written(Some(&config), body).unwrap();
        assert!(config.client_secret.expose() == b"hunter2");
        assert_eq!(to_json(&config)["resource"], "vault.azure.cn");
        let config: CloudCkmsConfig = written(None, json!({ "algorithm": "ec_sign_p256_sha256" })).unwrap();
        assert_eq!(to_json(&config)["crypto_key_version"], "1");
        assert_eq!(config.algorithm, "EC_SIGN_P256_SHA256");
    }
}

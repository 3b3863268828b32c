//! Members of `config/external-policy`. The client's private key is never returned.

use serde_json::{Map, Value, json};

use crate::clock::{Time, format_rfc3339};
use crate::error::Result;
use crate::fields::{Fields, Resource as _};
use crate::pki::mount::settings::external_policy::{ExternalPolicyConfig, MAX_CERTIFICATES_BYTES, MAX_TEXT_BYTES};
use crate::pki::policy_engine::tls::CLIENT_BUNDLE_FIELD;
use crate::pki::values::whole_seconds;
use crate::secret::Secret;

pub(crate) const FIELDS: &[&str] = ExternalPolicyConfig::FIELDS;

/// Merges the members in `fields`, and `bundle`, which was removed from them; absent members are unchanged.
///
/// # Errors
/// `Invalid` with the name of the member and the broken rule, without its value.
pub(crate) fn merged(
    stored: &ExternalPolicyConfig,
    fields: &Fields,
    bundle: Option<&Secret>,
) -> Result<ExternalPolicyConfig> {
    let within =
        |name: &str, old: &str, bytes| fields.text_within(name, bytes).map(|new| new.unwrap_or_else(|| old.to_owned()));
    let text = |name, old| within(name, old, MAX_TEXT_BYTES);
    let certificates = |name, old| within(name, old, MAX_CERTIFICATES_BYTES);
    Ok(ExternalPolicyConfig {
        enabled: fields.bool("enabled")?.unwrap_or(stored.enabled),
        url: text("external_service_url", &stored.url)?.trim().to_owned(),
        timeout: fields.duration("timeout")?.map_or(Ok(stored.timeout), |t| whole_seconds("timeout", t))?,
        trusted_ca: certificates("trusted_ca", &stored.trusted_ca)?,
        trusted_leaves: certificates("trusted_leaf_certificate_bundle", &stored.trusted_leaves)?,
        client_bundle: bundle.unwrap_or(&stored.client_bundle).clone(),
        entity_jmespath: text("entity_jmespath", &stored.entity_jmespath)?,
        group_jmespath: text("group_jmespath", &stored.group_jmespath)?,
        updated_at: stored.updated_at,
    })
}

/// Renders the members. Only the certificates of the client bundle are included.
pub(crate) fn to_json(config: &ExternalPolicyConfig) -> Map<String, Value> {
    let updated = Time::from_unix_timestamp(config.updated_at).ok().filter(|_| config.updated_at > 0);
    let mut members = config.to_members();
    let others = [
        ("external_service_url", json!(config.url)),
        ("trusted_leaf_certificate_bundle", json!(config.trusted_leaves)),
        (CLIENT_BUNDLE_FIELD, json!(config.client_certificates())),
        ("external_service_last_updated", json!(updated.map(format_rfc3339).unwrap_or_default())),
    ];
    members.extend(others.map(|(name, value)| (name.to_owned(), value)));
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(config: &ExternalPolicyConfig, body: Value) -> Result<ExternalPolicyConfig> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        let bundle = fields.take_secret(CLIENT_BUNDLE_FIELD).unwrap();
        merged(config, &fields, bundle.as_ref())?.checked()
    }

    #[test]
    fn external_policy_defaults_off_and_keeps_absent_members() {
        let first = write(&ExternalPolicyConfig::default(), json!({})).unwrap();
        assert!(!first.enabled && first.timeout == 15);
        let second = write(&first, json!({ "external_service_url": " https://e.test/x", "timeout": "3s" })).unwrap();
        let third = write(&second, json!({ "group_jmespath": "a.b" })).unwrap();
        assert_eq!((third.url.as_str(), third.timeout, third.group_jmespath.as_str()), ("https://e.test/x", 3, "a.b"));
        let members = to_json(&third);
        assert_eq!((&members["timeout"], &members["external_service_last_updated"]), (&json!(3), &json!("")));
        assert!(FIELDS.iter().all(|name| members.contains_key(*name)));
    }

    #[test]
    fn invalid_external_policy_fields_are_refused_by_name() {
        for (body, rule) in [
            (json!({ "timeout": 0 }), "timeout: must be"),
            (json!({ "timeout": "" }), "timeout: must be"),
            (json!({ "timeout": "61s" }), "timeout: must be"),
            (json!({ "timeout": "500ms" }), "timeout"),
            (json!({ "external_service_url": "e.test" }), "external_service_url: is not a URL"),
            (json!({ "service_client_cert_bundle": "x" }), "service_client_cert_bundle: "),
            (json!({ "enabled": true }), "external_service_url: must be set"),
            (json!({ "enabled": true, "external_service_url": "https://e.test" }), "trusted_ca: it or"),
        ] {
            let error = write(&ExternalPolicyConfig::default(), body.clone()).err().unwrap();
            assert!(error.text().starts_with(rule), "{body}: {error}");
        }
    }
}

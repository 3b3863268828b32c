//! External policy: its settings, and the endpoints at which the policy engine decides on each request.

use serde_json::{Value, json};

use super::issuing;
use super::json_with_members;
use super::rendering::{CertificateRendering, PASSWORD_FIELD};
use super::request_fields;
use crate::clock::{Time, format_rfc3339};
use crate::error::Result;
use crate::fields::{Fields, Resource as _};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::identity::rendering as identities;
use crate::http::secrets::route::Call;
use crate::pki::ca::changes;
use crate::pki::issue::external_policy::{ExternalPolicyRequest, PolicyCallerIdentity, PolicyOperation};
use crate::pki::issue::operation::IssuingOperation;
use crate::pki::issue::pipeline::CertificateRequest;
use crate::pki::mount::settings::external_policy::{ExternalPolicyConfig, max_text_bytes};
use crate::pki::policy_engine::tls::CLIENT_BUNDLE_FIELD;
use crate::pki::values::whole_seconds;
use crate::secret::Secret;

/// Fields of `config/external-policy`. The private key with which this server authenticates to the engine is never
/// returned.
pub(super) const FIELDS: &[&str] = ExternalPolicyConfig::FIELDS;
/// Fields of `issue` that this server reads; the policy engine receives the whole body.
pub(super) const ISSUE_FIELDS: &[&str] =
    &["format", PASSWORD_FIELD, "private_key_format", "remove_roots_from_chain", "key_type", "key_bits"];
/// Fields of `sign` and `sign-intermediate` that this server reads.
pub(super) const SIGN_FIELDS: &[&str] = &["csr", "format", "private_key_format", "remove_roots_from_chain"];

pub(super) async fn read_config(call: Call) -> Result<HandlerResponse> {
    let view = call.authority().await?.view();
    // Only requests of this server count, and only those after its start and after the latest change of the settings.
    let last_success = view.policy_engine().ok().and_then(|engine| engine.last_success());
    Ok(HandlerResponse::data(config_json(&view.external_policy.value, last_success)))
}

pub(super) async fn write_config(mut call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let mut fields = std::mem::take(&mut call.fields);
    let bundle = fields.take_secret(CLIENT_BUNDLE_FIELD)?;
    let merge = move |stored: &ExternalPolicyConfig| merged_config(stored, &fields, bundle.as_ref());
    changes::write_external_policy(&authority, merge).await?;
    read_config(call).await
}

pub(super) async fn issue(mut call: Call) -> Result<HandlerResponse> {
    // For other formats the password is an ordinary field, passed to the policy engine.
    let password = match call.fields.str("format") {
        Ok(Some("p12")) => call.fields.take_secret(PASSWORD_FIELD),
        _ => Ok(None),
    };
    let read = |call: &Call| {
        let rendering = CertificateRendering::of_issue(&call.fields)?;
        Ok((rendering, policy_request(call, PolicyOperation::Issue(request_fields::key(&call.fields)?))))
    };
    issuing::run_issuance(call, IssuingOperation::ExternalPolicy, read, issuing::render_leaf, password).await
}

pub(super) async fn sign(call: Call) -> Result<HandlerResponse> {
    let read = |call: &Call| {
        let rendering = CertificateRendering::of(&call.fields)?;
        Ok((rendering, policy_request(call, PolicyOperation::Sign(request_fields::csr(&call.fields)?))))
    };
    issuing::run_issuance(call, IssuingOperation::ExternalPolicy, read, issuing::render_leaf, Ok(None)).await
}

pub(super) async fn sign_intermediate(call: Call) -> Result<HandlerResponse> {
    let read = |call: &Call| {
        let rendering = CertificateRendering::of(&call.fields)?;
        Ok((rendering, policy_request(call, PolicyOperation::SignIntermediate(request_fields::csr(&call.fields)?))))
    };
    issuing::run_issuance(call, IssuingOperation::ExternalPolicy, read, issuing::render_authority, Ok(None)).await
}

fn policy_request(call: &Call, operation: PolicyOperation) -> CertificateRequest {
    CertificateRequest::ExternalPolicy(Box::new(ExternalPolicyRequest {
        operation,
        policy: call.param("policy").to_owned(),
        mount: call.mount.path.clone(),
        body: call.fields.clone().into_members().into(),
        caller: caller_identity(call),
    }))
}

/// Returns the caller's entity for the policy engine, in the form of `identity/entity/id/:id`.
fn caller_identity(call: &Call) -> Option<PolicyCallerIdentity> {
    let entity = call.caller.as_deref()?.entity.as_ref()?;
    Some(PolicyCallerIdentity {
        entity_id: entity.id.clone(),
        entity: identities::entity_json(entity, &call.state.auth.mounts()),
        groups: identities::groups_json(entity),
    })
}

/// Merges `fields` and `bundle` into the stored settings. `write_config` has removed the bundle from the fields. Absent
/// members are unchanged.
///
/// # Errors
/// `Invalid` with the name of the member and the broken rule, without its value.
fn merged_config(
    stored: &ExternalPolicyConfig,
    fields: &Fields,
    bundle: Option<&Secret>,
) -> Result<ExternalPolicyConfig> {
    let mut config = stored.clone();
    config.merge_flags(fields)?;
    for slot in ExternalPolicyConfig::TEXTS {
        slot.set_if_given(&mut config, fields.text_within(slot.name, max_text_bytes(slot.name))?);
    }
    config.external_service_url = config.external_service_url.trim().to_owned();
    config.timeout = fields.duration("timeout")?.map_or(Ok(stored.timeout), |t| whole_seconds("timeout", t))?;
    if let Some(bundle) = bundle {
        config.client_bundle.clone_from(bundle);
    }
    Ok(config)
}

/// Renders the settings. The client bundle is rendered without its private key.
fn config_json(config: &ExternalPolicyConfig, last_success: Option<Time>) -> Value {
    let updated = Time::from_unix_timestamp(config.updated_at).ok().filter(|_| config.updated_at > 0);
    let others = [
        (CLIENT_BUNDLE_FIELD, json!(config.client_certificates())),
        ("external_service_last_updated", json!(updated.map(format_rfc3339).unwrap_or_default())),
        ("external_service_validated", json!(last_success.is_some())),
        ("last_successful_request", json!(last_success.map(format_rfc3339).unwrap_or_default())),
    ];
    json_with_members(config.to_members(), others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(config: &ExternalPolicyConfig, body: Value) -> Result<ExternalPolicyConfig> {
        let mut fields = Fields::parse(body.to_string().as_bytes()).unwrap();
        let bundle = fields.take_secret(CLIENT_BUNDLE_FIELD).unwrap();
        merged_config(config, &fields, bundle.as_ref())?.checked()
    }

    #[test]
    fn external_policy_defaults_off_and_keeps_absent_members() {
        let first = write(&ExternalPolicyConfig::default(), json!({})).unwrap();
        assert!(!first.enabled && first.timeout == 15);
        let second = write(&first, json!({ "external_service_url": " https://e.test/x", "timeout": "3s" })).unwrap();
        let third = write(&second, json!({ "group_jmespath": "a.b" })).unwrap();
        assert_eq!(
            (third.external_service_url.as_str(), third.timeout, third.group_jmespath.as_str()),
            ("https://e.test/x", 3, "a.b")
        );
        let members = config_json(&third, None);
        assert_eq!((&members["timeout"], &members["external_service_last_updated"]), (&json!(3), &json!("")));
        assert!(FIELDS.iter().all(|name| members.get(*name).is_some()));
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

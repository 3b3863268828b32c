//! External policy: its settings, and the endpoints that the policy engine decides on.

mod config;

use serde_json::{Value, json};

pub(super) use self::config::FIELDS;
use super::issuing::{self, IssuedRenderer};
use super::rendering::{PASSWORD_FIELD, Rendering};
use super::request_fields;
use crate::clock::format_rfc3339;
use crate::error::Result;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::identity::rendering as identities;
use crate::http::secrets::route::Call;
use crate::pki::ca::changes;
use crate::pki::issue::external_policy::{ExternalPolicyRequest, PolicyCallerIdentity, PolicyOperation};
use crate::pki::issue::operation::IssuingOperation;
use crate::pki::issue::request::IssueContext;
use crate::pki::mount::settings::external_policy::ExternalPolicyConfig;
use crate::pki::policy_engine::tls::CLIENT_BUNDLE_FIELD;
use crate::secret::Secret;

/// Fields of `issue` that this server reads; the engine receives the whole body.
pub(super) const ISSUE_FIELDS: &[&str] =
    &["format", PASSWORD_FIELD, "private_key_format", "remove_roots_from_chain", "key_type", "key_bits"];
/// Fields of `sign` and `sign-intermediate` that this server reads.
pub(super) const SIGN_FIELDS: &[&str] = &["csr", "format", "private_key_format", "remove_roots_from_chain"];

pub(super) async fn read_config(call: Call) -> Result<HandlerResponse> {
    let view = call.authority().await?.view();
    let mut config = config::to_json(&view.external_policy.value);
    // For this server, since it started or the settings changed.
    let last = view.policy_engine().ok().and_then(|engine| engine.last_success());
    config.insert("external_service_validated".to_owned(), json!(last.is_some()));
    config.insert("last_successful_request".to_owned(), json!(last.map(format_rfc3339).unwrap_or_default()));
    Ok(HandlerResponse::data(Value::Object(config)))
}

pub(super) async fn write_config(mut call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let mut fields = std::mem::take(&mut call.fields);
    let bundle = fields.take_secret(CLIENT_BUNDLE_FIELD)?;
    let merge = move |stored: &ExternalPolicyConfig| config::merged(stored, &fields, bundle.as_ref());
    changes::write_external_policy(&authority, merge).await?;
    read_config(call).await
}

pub(super) async fn issue(mut call: Call) -> Result<HandlerResponse> {
    // With other formats the field belongs to the engine, as all other fields do.
    let password = match call.fields.str("format") {
        Ok(Some("p12")) => call.fields.take_secret(PASSWORD_FIELD),
        _ => Ok(None),
    };
    let read = |call: &Call| {
        Ok((Rendering::of_issue(&call.fields)?, PolicyOperation::Issue(request_fields::key(&call.fields)?)))
    };
    run(call, read, issuing::render_leaf, password).await
}

pub(super) async fn sign(call: Call) -> Result<HandlerResponse> {
    let read =
        |call: &Call| Ok((Rendering::of(&call.fields)?, PolicyOperation::Sign(request_fields::csr(&call.fields)?)));
    run(call, read, issuing::render_leaf, Ok(None)).await
}

pub(super) async fn sign_intermediate(call: Call) -> Result<HandlerResponse> {
    let read = |call: &Call| {
        Ok((Rendering::of(&call.fields)?, PolicyOperation::SignIntermediate(request_fields::csr(&call.fields)?)))
    };
    run(call, read, issuing::render_authority, Ok(None)).await
}

async fn run(
    mut call: Call,
    read: fn(&Call) -> Result<(Rendering, PolicyOperation)>,
    show: IssuedRenderer,
    password: Result<Option<Secret>>,
) -> Result<HandlerResponse> {
    let replica = call.replica().await?;
    let dialect = call.dialect;
    let (password, rendering, mode) = match issuing::with_password(password, read(&call)) {
        Ok(read) => read,
        Err(unreadable) => {
            IssuingOperation::ExternalPolicy.count_refusal(call.mount.meter());
            // The error for a missing engine takes precedence over errors in fields.
            return Err(call.authority().await?.view().policy_engine().err().unwrap_or(unreadable));
        }
    };
    let repeatable = issuing::idempotency_record(&call, matches!(mode, PolicyOperation::Issue(_)))?;
    if let Some(earlier) = issuing::recorded_response(&call, repeatable.as_deref()).await? {
        return issuing::build_response(earlier, show, &rendering, dialect);
    }
    let protected = Box::pin(rendering.derive_p12_keys(password)).await;
    let rendering = protected.inspect_err(|_| IssuingOperation::ExternalPolicy.count_refusal(call.mount.meter()))?;
    let body = std::mem::take(&mut call.fields).into_members().into();
    let policy = call.param("policy").to_owned();
    let mount = call.mount.path.clone();
    let request = ExternalPolicyRequest { mode, policy, mount, body, who: caller_identity(&call) };
    let issued = replica.run_external(IssueContext { repeatable, ..issuing::origin(call) }, request).await?;
    issuing::build_response(issued, show, &rendering, dialect)
}

/// Returns the caller's entity in the form of `identity/entity/id/:id`.
fn caller_identity(call: &Call) -> Option<PolicyCallerIdentity> {
    let entity = call.caller.as_deref()?.entity.as_ref()?;
    Some(PolicyCallerIdentity {
        entity_id: entity.id.clone(),
        entity: identities::entity(entity, &call.state.auth.mounts()),
        groups: identities::groups(entity),
    })
}

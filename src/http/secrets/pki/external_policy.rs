//! External policy: its settings, and the endpoints that the policy engine decides on.

mod config;

use serde_json::{Value, json};

pub(super) use self::config::FIELDS;
use super::asked;
use super::issuing::{self, Show};
use super::rendering::{PASSWORD, Rendering};
use crate::clock::rfc3339;
use crate::error::Result;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::identity::rendering as identities;
use crate::http::secrets::route::Call;
use crate::pki::ca::changes;
use crate::pki::issue::external_policy::{Mode, Request, Who};
use crate::pki::issue::operation::Operation;
use crate::pki::issue::request::Origin;
use crate::pki::mount::settings::external_policy::Config;
use crate::pki::policy_engine::tls::CLIENT_BUNDLE;
use crate::secret::Secret;

/// Fields of `issue` that this server reads; the engine receives the whole body.
pub(super) const ISSUE: &[&str] =
    &["format", PASSWORD, "private_key_format", "remove_roots_from_chain", "key_type", "key_bits"];
/// Fields of `sign` and `sign-intermediate` that this server reads.
pub(super) const SIGN: &[&str] = &["csr", "format", "private_key_format", "remove_roots_from_chain"];

pub(super) async fn read_config(call: Call) -> Result<Answer> {
    let view = call.authority().await?.view();
    let mut config = config::shown(&view.external_policy.value);
    // For this server, since it started or the settings changed.
    let last = view.policy_engine().ok().and_then(|engine| engine.last_success());
    config.insert("external_service_validated".to_owned(), json!(last.is_some()));
    config.insert("last_successful_request".to_owned(), json!(last.map(rfc3339).unwrap_or_default()));
    Ok(Answer::data(Value::Object(config)))
}

pub(super) async fn write_config(mut call: Call) -> Result<Answer> {
    let authority = call.authority().await?;
    let mut fields = std::mem::take(&mut call.fields);
    let bundle = fields.take_secret(CLIENT_BUNDLE)?;
    let merge = move |stored: &Config| config::merged(stored, &fields, bundle.as_ref());
    changes::write_external_policy(&authority, merge).await?;
    read_config(call).await
}

pub(super) async fn issue(mut call: Call) -> Result<Answer> {
    // With other formats the field belongs to the engine, as all other fields do.
    let password = match call.fields.str("format") {
        Ok(Some("p12")) => call.fields.take_secret(PASSWORD),
        _ => Ok(None),
    };
    let read = |call: &Call| Ok((Rendering::of_issue(&call.fields)?, Mode::Issue(asked::key(&call.fields)?)));
    run(call, read, issuing::leaf, password).await
}

pub(super) async fn sign(call: Call) -> Result<Answer> {
    let read = |call: &Call| Ok((Rendering::of(&call.fields)?, Mode::Sign(asked::csr(&call.fields)?)));
    run(call, read, issuing::leaf, Ok(None)).await
}

pub(super) async fn sign_intermediate(call: Call) -> Result<Answer> {
    let read = |call: &Call| Ok((Rendering::of(&call.fields)?, Mode::SignIntermediate(asked::csr(&call.fields)?)));
    run(call, read, issuing::authority, Ok(None)).await
}

async fn run(
    mut call: Call,
    read: fn(&Call) -> Result<(Rendering, Mode)>,
    show: Show,
    password: Result<Option<Secret>>,
) -> Result<Answer> {
    let (replica, dialect) = (call.replica().await?, call.dialect);
    let (password, rendering, mode) = match issuing::read_with(password, read(&call)) {
        Ok(read) => read,
        Err(unreadable) => {
            Operation::ExternalPolicy.count_refusal(call.mount.meter());
            // The error for a missing engine takes precedence over errors in fields.
            return Err(call.authority().await?.view().policy_engine().err().unwrap_or(unreadable));
        }
    };
    let repeatable = issuing::repeatable(&call, matches!(mode, Mode::Issue(_)))?;
    if let Some(earlier) = issuing::earlier(&call, repeatable.as_deref()).await? {
        return issuing::answer(earlier, show, &rendering, dialect);
    }
    let protected = Box::pin(rendering.protected_by(password)).await;
    let rendering = protected.inspect_err(|_| Operation::ExternalPolicy.count_refusal(call.mount.meter()))?;
    let body = std::mem::take(&mut call.fields).into_members().into();
    let (policy, mount) = (call.param("policy").to_owned(), call.mount.path.clone());
    let request = Request { mode, policy, mount, body, who: who(&call) };
    let issued = replica.run_external(Origin { repeatable, ..issuing::origin(call) }, request).await?;
    issuing::answer(issued, show, &rendering, dialect)
}

/// Returns the caller's entity in the form of `identity/entity/id/:id`.
fn who(call: &Call) -> Option<Who> {
    let entity = call.caller.as_deref()?.entity.as_ref()?;
    Some(Who {
        entity_id: entity.id.clone(),
        entity: identities::entity(entity, &call.state.auth.mounts()),
        groups: identities::groups(entity),
    })
}

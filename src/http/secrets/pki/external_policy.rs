//! External policy: its settings, and the endpoints that it decides about.

use serde_json::{Value, json};

use crate::clock::rfc3339;
use crate::error::Result;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::external_policy::{self, Mode, Request};

pub(super) async fn read_config(call: Call) -> Result<Answer> {
    let view = call.authority().await?.view();
    let mut config = view.external_policy.value.to_json();
    // Of this server, since it started or the settings changed.
    let last = view.policy_engine().ok().and_then(|engine| engine.last_success());
    config.insert("external_service_validated".to_owned(), json!(last.is_some()));
    config.insert("last_successful_request".to_owned(), json!(last.map(rfc3339).unwrap_or_default()));
    Ok(Answer::data(Value::Object(config)))
}

pub(super) async fn write_config(mut call: Call) -> Result<Answer> {
    let fields = std::mem::take(&mut call.fields);
    external_policy::write_config(&*call.authority().await?, fields).await?;
    read_config(call).await
}

pub(super) async fn issue(call: Call) -> Result<Answer> {
    run(call, Mode::Issue).await
}

pub(super) async fn sign(call: Call) -> Result<Answer> {
    run(call, Mode::Sign).await
}

pub(super) async fn sign_intermediate(call: Call) -> Result<Answer> {
    run(call, Mode::SignIntermediate).await
}

async fn run(call: Call, mode: Mode) -> Result<Answer> {
    let (replica, dialect) = (call.replica().await?, call.dialect);
    let request = Request {
        mode,
        policy: call.param("policy").to_owned(),
        mount: call.mount.path.clone(),
        issuer_ref: super::issuing::issuer_of_path(&call),
        limits: super::issuing::limits(&call),
        requester: super::issuing::requester(&call),
        path: call.full_path,
        fields: call.fields,
    };
    replica.run_external(request).await.map(|issued| super::issuing::answer(issued, dialect))
}

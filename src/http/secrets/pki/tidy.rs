//! The tidy endpoints: start, status, cancel, and `config/auto-tidy`.

mod members;

use serde_json::{Value, json};

pub(super) use self::members::{AUTO_FIELDS, FIELDS};
use crate::error::Result;
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::pki::mount::settings::tidy::{AutoTidyConfig, TidyConfig, task_fields};
use crate::pki::tidy;

pub(super) async fn start(call: Call) -> Result<HandlerResponse> {
    let config = members::merged(&TidyConfig::default(), &call.fields)?;
    let authority = call.authority().await?;
    if config.tasks.is_empty() {
        let warning = format!("nothing to tidy: set {}", task_fields());
        return Ok(HandlerResponse::empty().with_status(202).with_warnings([warning]));
    }
    let idle = config.tasks.iter().filter(|task| !task.has_effect());
    let idle: Vec<String> = idle.map(|task| format!("{}: has no effect on this server", task.field())).collect();
    if !authority.tidy(config).await? {
        let warning = "tidy: already running in this mount; nothing was started".to_owned();
        return Ok(HandlerResponse::empty().with_status(200).with_warnings([warning]));
    }
    let warning = "tidy: started in the background; tidy-status and the log show its progress";
    Ok(HandlerResponse::empty().with_status(202).with_warnings([warning.to_owned()]).with_warnings(idle))
}

pub(super) async fn status(call: Call) -> Result<HandlerResponse> {
    let mut members = members::status_json(&call.authority().await?.tidy_status().await?);
    members.insert("internal_backend_uuid".to_owned(), json!(call.mount.uuid));
    Ok(HandlerResponse::data(Value::Object(members)))
}

pub(super) async fn cancel(call: Call) -> Result<HandlerResponse> {
    if call.authority().await?.tidy_cancel().await? {
        return status(call).await;
    }
    Ok(HandlerResponse::empty().with_warnings(["tidy: not running in this mount".to_owned()]))
}

pub(super) async fn read_config(call: Call) -> Result<HandlerResponse> {
    let view = call.authority().await?.view();
    Ok(HandlerResponse::data(Value::Object(members::auto_tidy_json(&view.auto_tidy.value))))
}

pub(super) async fn write_config(mut call: Call) -> Result<HandlerResponse> {
    let fields = std::mem::take(&mut call.fields);
    let merge = move |stored: &AutoTidyConfig| members::merged_auto(stored, &fields);
    tidy::write_config(&*call.authority().await?, merge).await?;
    read_config(call).await
}

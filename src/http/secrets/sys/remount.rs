//! Moves mounts (`sys/remount`). A move is complete when its response is sent; its status always reports success.

use serde_json::json;

use super::super::handler_response::{HandlerResponse, ResponseBody};
use super::super::route::Call;
use super::run_detached;
use crate::error::{Error, Result};

pub(super) async fn remount(call: Call) -> Result<HandlerResponse> {
    let path = |name| call.fields.str(name).map(|path| path.filter(|path| !path.is_empty()).map(str::to_owned));
    let (Some(from), Some(to)) = (path("from")?, path("to")?) else {
        return Err(Error::invalid("both 'from' and 'to' path must be specified as a string"));
    };
    run_detached(async move {
        let made = call.state.mounts.remount(&from, &to).await?;
        Ok(ResponseBody::DataAndTop(json!({ "migration_id": made.id })))
    })
    .await
}

pub(super) async fn status(call: Call) -> Result<HandlerResponse> {
    let made = call.state.auth.mount_moved(call.param("migration_id")).await?.ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(json!({
        "migration_id": made.id,
        "migration_info": { "source_mount": made.from, "target_mount": made.to, "status": "success" },
    })))
}

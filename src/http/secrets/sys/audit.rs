//! The configured audit devices (`sys/audit`), and the hashes that audit entries contain instead of values
//! (`sys/audit-hash`).
//!
//! Devices cannot be created, changed or removed here, because a caller could write arbitrary files or disable the
//! audit (CVE-2025-6000, CVE-2025-54997).

use serde_json::{Map, Value, json};

use super::super::handler_response::HandlerResponse;
use super::super::route::Call;
use crate::audit::AuditWriter;
use crate::error::{Error, Result};

pub(super) const FIELDS: &[&str] = &["type", "description", "options", "local"];

pub(super) async fn list_devices(call: Call) -> Result<HandlerResponse> {
    let device = |writer: &AuditWriter| {
        let settings = writer.settings();
        let path = format!("{}/", writer.settings().name);
        let options: Map<String, Value> =
            settings.options().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        let device =
            json!({ "type": settings.kind_name(), "path": path, "description": "", "local": true, "options": options });
        (path, device)
    };
    let devices = call.state.audit.writers().iter().map(|writer| device(writer)).collect();
    Ok(HandlerResponse::data(Value::Object(devices)))
}

pub(super) async fn enable(_: Call) -> Result<HandlerResponse> {
    reject("enable")
}

pub(super) async fn disable(_: Call) -> Result<HandlerResponse> {
    reject("disable")
}

fn reject(what: &str) -> Result<HandlerResponse> {
    Err(Error::invalid(format!(
        "cannot {what} audit device via API; use declarative, config-based audit device management instead"
    )))
}

pub(super) async fn hash(call: Call) -> Result<HandlerResponse> {
    let input = call.fields.text("input")?.ok_or_else(|| Error::invalid("input: must be given"))?;
    let name = call.param("path").trim_end_matches('/');
    let writer = call.state.audit.writers().iter().find(|writer| writer.settings().name == name);
    let writer = writer.ok_or_else(|| Error::invalid("unknown audit backend"))?;
    Ok(HandlerResponse::data(json!({ "hash": writer.hash(&input) })))
}

//! The audit's devices (`sys/audit`), as they are configured, and the hashes that they write (`sys/audit-hash`).
//!
//! No device is made, changed or removed here: whoever may call this could have files written, and requests unrecorded
//! (CVE-2025-6000, CVE-2025-54997).

use serde_json::{Map, Value, json};

use super::super::answer::Answer;
use super::super::route::Call;
use crate::audit::Writer;
use crate::error::{Error, Result};

pub(super) const FIELDS: &[&str] = &["type", "description", "options", "local"];

/// `GET sys/audit`.
pub(super) async fn devices(call: Call) -> Result<Answer> {
    let device = |writer: &Writer| {
        let (settings, path) = (writer.settings(), format!("{}/", writer.settings().name));
        let options: Map<String, Value> =
            settings.options().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        let device =
            json!({ "type": settings.word(), "path": path, "description": "", "local": true, "options": options });
        (path, device)
    };
    let devices = call.state.audit.writers().iter().map(|writer| device(writer)).collect();
    Ok(Answer::data(Value::Object(devices)))
}

/// `POST sys/audit/:path`.
pub(super) async fn enable(_: Call) -> Result<Answer> {
    refused("enable")
}

/// `DELETE sys/audit/:path`.
pub(super) async fn disable(_: Call) -> Result<Answer> {
    refused("disable")
}

fn refused(what: &str) -> Result<Answer> {
    Err(Error::invalid(format!(
        "cannot {what} audit device via API; use declarative, config-based audit device management instead"
    )))
}

/// `POST sys/audit-hash/:path`.
pub(super) async fn hash(call: Call) -> Result<Answer> {
    let input = call.fields.text("input")?.ok_or_else(|| Error::invalid("input: is missing"))?;
    let name = call.param("path").trim_end_matches('/');
    let writer = call.state.audit.writers().iter().find(|writer| writer.settings().name == name);
    let writer = writer.ok_or_else(|| Error::invalid("unknown audit backend"))?;
    Ok(Answer::data(json!({ "hash": writer.hash(&input) })))
}

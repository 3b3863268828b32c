//! The lines of a setup about its steps.

use serde_json::json;
use signet::error::Result;

use crate::cli::output;

/// Prints one step that was done. A setup goes on when its reader has left.
pub(super) fn say(what: &str, about: &str) -> Result<()> {
    output::result(&json!({ "action": what, "about": about }), format!("{what}: {about}"))
}

//! Output for the completed steps of `signet setup`.

use crate::error::Result;
use serde_json::json;

use crate::cli::output;

/// Prints a completed step, such as `made` or `kept`, and its object. An output stream that the reader has closed is
/// not an error, so that the setup continues.
pub(super) fn print_step(what: &str, about: &str) -> Result<()> {
    output::print_result(&json!({ "action": what, "about": about }), format!("{what}: {about}"))
}

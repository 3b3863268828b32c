//! Output of the steps of a setup.

use crate::error::Result;
use serde_json::json;

use crate::cli::output;

/// Prints a completed step. If the reader has closed the output stream, the setup continues.
pub(super) fn print_step(what: &str, about: &str) -> Result<()> {
    output::print_result(&json!({ "action": what, "about": about }), format!("{what}: {about}"))
}

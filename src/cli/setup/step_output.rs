//! Output of the steps of a setup.

use serde_json::json;
use signet::error::Result;

use crate::cli::output;

/// Prints a completed step. A closed output stream does not end the setup.
pub(super) fn print_step(what: &str, about: &str) -> Result<()> {
    output::print_result(&json!({ "action": what, "about": about }), format!("{what}: {about}"))
}

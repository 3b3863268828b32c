//! What a setup tells of its steps.

use std::io::Write as _;

use signet::error::Result;

use crate::cli::output::told;

/// One line of what was done. A setup goes on when nobody reads it any more.
pub(super) fn say(what: &str, about: &str) -> Result<()> {
    told(writeln!(crate::cli::output::stdout(), "{what}: {about}"))
}

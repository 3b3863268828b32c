//! What a setup tells of its steps.

use std::io::Write as _;

use signet::error::{Error, Result};

/// One line of what was done.
pub(super) fn say(what: &str, about: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{what}: {about}").map_err(Error::internal)
}

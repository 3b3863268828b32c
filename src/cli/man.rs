//! `signet man`: manual pages, generated from the definition of the command line.

use std::path::PathBuf;

use signet::error::{Error, Result, describe_io_error};

#[derive(clap::Args)]
pub(crate) struct ManArguments {
    /// Existing folder for the pages, one for each command. Existing pages are replaced.
    folder: PathBuf,
}

pub(crate) fn run(arguments: &ManArguments, definition: clap::Command) -> Result<()> {
    let folder = &arguments.folder;
    clap_mangen::generate_to(definition, folder).map_err(|e| {
        Error::unavailable(format!("{}: cannot be written to ({})", folder.display(), describe_io_error(e.kind())), e)
    })
}

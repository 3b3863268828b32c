//! `signet man`: the manual pages of this command line, made from its definition.

use std::path::PathBuf;

use signet::error::{Error, Result, io_words};

/// The arguments of `signet man`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An existing folder for the pages, one for each command. Pages that are there are replaced.
    folder: PathBuf,
}

/// Writes the pages.
pub(crate) fn run(arguments: &Arguments, definition: clap::Command) -> Result<()> {
    let folder = &arguments.folder;
    clap_mangen::generate_to(definition, folder).map_err(|e| {
        Error::unavailable(format!("{}: cannot be written to ({})", folder.display(), io_words(e.kind())), e)
    })
}

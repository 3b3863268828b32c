//! `signet man`: manual pages, generated from the definition of the command line.

use std::path::PathBuf;

use signet::error::{Error, Result, io_words};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Existing folder for the pages, one for each command. Existing pages are replaced.
    folder: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, definition: clap::Command) -> Result<()> {
    let folder = &arguments.folder;
    clap_mangen::generate_to(definition, folder).map_err(|e| {
        Error::unavailable(format!("{}: cannot be written to ({})", folder.display(), io_words(e.kind())), e)
    })
}

//! `signet man`: manual pages, generated from the definition of the command line.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use clap::Command;
use clap_mangen::Man;

/// The empty date in the header of a manual page. Without the quotes, roff would read the next header field as the
/// date.
const EMPTY_PAGE_DATE: &str = "\"\"";

#[derive(clap::Args)]
pub(crate) struct ManArguments {
    /// Existing folder for the pages, one for each command. Existing pages are replaced.
    folder: PathBuf,
}

pub(crate) fn run(arguments: &ManArguments, definition: Command) -> Result<()> {
    let folder = &arguments.folder;
    let mut definition = definition.disable_help_subcommand(true);
    definition.build();
    write_pages(&definition, folder).map_err(|e| Error::of_io(folder.display(), "written to", e))
}

/// Writes the manual pages of a command and of its subcommands. The synopsis of a page is the usage line of `--help`.
fn write_pages(command: &Command, folder: &Path) -> std::io::Result<()> {
    for subcommand in command.get_subcommands() {
        write_pages(subcommand, folder)?;
    }
    let mut command = command.clone();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let page = Man::new(command.override_usage(usage)).date(EMPTY_PAGE_DATE);
    page.source(concat!("signet ", env!("BUILD_VERSION"))).manual("Signet Manual").generate_to(folder)?;
    Ok(())
}

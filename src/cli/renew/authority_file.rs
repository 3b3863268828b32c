//! The file of CA certificates (authorities) of `signet renew`, to which new authorities are added.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::x509::pem;

use super::super::certify::{PemCertificate, ReceivedCertificate};
use super::super::files::StagedFile;
use super::super::issue::{read_open_file, read_text};

/// Names, in messages, the argument for the file.
const CA_ARGUMENT: &str = "--ca";

/// The file of the authorities, and the temporary file for its next contents.
pub(super) struct AuthorityFile {
    file: PathBuf,
    text: String,
    known: Vec<(String, Vec<u8>)>,
    /// The temporary file. If it could not be created, this matters only if an authority must be added.
    next: Result<StagedFile>,
}

impl AuthorityFile {
    /// Reads the file. `next` is the temporary file that will replace it.
    ///
    /// # Errors
    /// Those of [`read_text`]; `Invalid` when it is not PEM.
    pub(super) fn read(file: &Path, next: Result<StagedFile>) -> Result<Self> {
        let text = match &next {
            Ok(next) => read_open_file(CA_ARGUMENT, next.open_original()?, file)?,
            Err(_) => read_text(CA_ARGUMENT, file)?,
        };
        let text = String::from_utf8_lossy(text.expose()).into_owned();
        let known = pem::parse_blocks(&text).map_err(|e| e.within(&file.display().to_string()))?;
        Ok(Self { file: file.to_owned(), text, known, next })
    }

    /// Adds new authorities of the chain and keeps the old ones, because older certificates are still in use. A failure
    /// is only a warning, because the new certificate is usable without it.
    pub(super) fn extend(self, issued: &mut ReceivedCertificate) {
        let Self { file, mut text, known, next } = self;
        let lacks = |link: &&PemCertificate| !known.iter().any(|(_, der)| der == link.certificate.der());
        let new: String = issued.chain.iter().filter(lacks).map(|link| link.text.as_str()).collect();
        if new.is_empty() {
            return;
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
        match next.and_then(|next| next.with_content(&[text.as_bytes(), new.as_bytes()])).and_then(StagedFile::persist)
        {
            Ok(()) => issued.warnings.push(format!("{}: a new authority was added", file.display())),
            Err(error) => {
                let missing = format!("{} lacks a new CA certificate: add it by hand", file.display());
                issued.warnings.push(format!("{error}; {missing}"));
            }
        }
    }
}

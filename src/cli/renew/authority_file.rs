//! The file of CA certificates (`--ca`) of `signet renew`, to which the CA certificates of renewed certificates are
//! added.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::x509::pem;

use super::super::certify::{PemCertificate, ReceivedCertificate};
use super::super::files::StagedFile;
use super::super::issue::{read_open_file, read_text};

/// Argument that error messages name for the file of CA certificates.
const CA_ARGUMENT: &str = "--ca";

/// The contents of the file of CA certificates, and the temporary file for its new contents.
pub(super) struct AuthorityFile {
    file: PathBuf,
    text: String,
    known: Vec<(String, Vec<u8>)>,
    /// The temporary file, or the error of its creation, which is reported only if a CA certificate must be added.
    next: Result<StagedFile>,
}

impl AuthorityFile {
    /// Reads a file of CA certificates. `next` is the temporary file that will replace it.
    ///
    /// # Errors
    /// Those of [`read_text`]; `Invalid` when the file is not PEM.
    pub(super) fn read(file: &Path, next: Result<StagedFile>) -> Result<Self> {
        let text = match &next {
            Ok(next) => read_open_file(CA_ARGUMENT, next.open_original()?, file)?,
            Err(_) => read_text(CA_ARGUMENT, file)?,
        };
        let text = String::from_utf8_lossy(text.expose()).into_owned();
        let known = pem::parse_blocks(&text).map_err(|e| e.within(&file.display().to_string()))?;
        Ok(Self { file: file.to_owned(), text, known, next })
    }

    /// Adds the CA certificates of the new chain that are missing in the file. Existing ones stay, because older
    /// certificates are still in use. A failure only adds a warning to `issued`, because the new certificate is usable
    /// anyway.
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

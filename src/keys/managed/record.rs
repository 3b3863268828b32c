//! A managed key as it is stored.

use serde::{Deserialize, Serialize};

use super::backend::{BackendConfig, BackendType};
use super::terms::Terms;
use super::usage::Usage;
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM};
use crate::error::{Error, Result};
use crate::keys::store::MANAGED_KEYS;
use crate::secret::{PartlySecret, Secret};

/// The configuration of one managed key.
#[derive(Clone, Serialize, Deserialize)]
pub struct Record {
    /// Made with the key, kept for as long as it is there, never used again.
    pub uuid: String,
    /// In lower case; there is no other key of this name, of whatever type.
    pub name: String,
    /// What all types have.
    pub terms: Terms,
    /// Its backend.
    pub backend: BackendConfig,
}

impl Record {
    /// Its type.
    pub fn kind(&self) -> BackendType {
        self.backend.kind()
    }

    /// Where the key is made when it is not there, if it may be.
    pub(super) fn place(&self) -> Option<String> {
        self.terms.allow_generate_key.then(|| self.backend.place())
    }

    /// That the key may be used like this.
    ///
    /// # Errors
    /// `Invalid`, naming the use.
    pub(super) fn check_usage(&self, usage: Usage) -> Result<()> {
        if self.terms.usages.contains(usage) {
            return Ok(());
        }
        Err(Error::invalid(format!("managed key {:?} does not allow usage {}", self.name, usage.word())))
    }

    /// Reads a stored one.
    pub(super) fn of(document: Document) -> Result<Self> {
        let record = document.parse();
        // Overwritten now that it has been read.
        drop(Secret::new(document.body));
        record
    }

    /// The write that puts it in the place of version `expected`.
    pub(super) fn write(&self, expected: u64) -> Result<DocumentWrite> {
        let mut body = PartlySecret::with_capacity(1024);
        body.secretly(|body| serde_json::to_writer(body, self)).map_err(Error::internal)?;
        Ok(DocumentWrite { key: key(&self.name), expected, body: Some(body.into_bytes()) })
    }

    /// The write that removes version `expected` of it.
    pub(super) fn removal(&self, expected: u64) -> DocumentWrite {
        DocumentWrite { key: key(&self.name), expected, body: None }
    }
}

/// The stored keys that are behind a library: their names, each with that of its library.
///
/// # Errors
/// `Internal` for a document that cannot be read.
pub fn libraries(documents: Vec<Document>) -> Result<Vec<(String, String)>> {
    let records = documents.into_iter().map(Record::of).collect::<Result<Vec<_>>>()?;
    let behind_one = records.into_iter().filter_map(|record| match record.backend {
        BackendConfig::Pkcs11(settings) => Some((record.name, settings.library)),
        _ => None,
    });
    Ok(behind_one.collect())
}

fn key(name: &str) -> DocumentKey {
    DocumentKey { mount: SYSTEM, kind: MANAGED_KEYS, name: name.to_owned() }
}

//! The stored form of a managed key.

use serde::{Deserialize, Serialize};

use super::backend::{BackendConfig, BackendType};
use super::key_permissions::KeyPermissions;
use super::usage::ManagedKeyUsage;
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM_MOUNT};
use crate::error::{Error, Result};
use crate::keys::store::MANAGED_KEY_DOCUMENT_KIND;
use crate::secret::{PartlySecret, Secret};

/// The configuration of one managed key.
#[derive(Clone, Serialize, Deserialize)]
pub struct ManagedKeyRecord {
    /// The UUID of the key: generated when the record is created, never changed and never reused.
    pub uuid: String,
    /// The name of the key, in lower case; unique across all types.
    pub name: String,
    /// The permissions of the key, which all types have.
    pub terms: KeyPermissions,
    /// The settings of the backend type.
    pub backend: BackendConfig,
}

impl ManagedKeyRecord {
    /// The backend type.
    pub fn kind(&self) -> BackendType {
        self.backend.kind()
    }

    /// The location at which a missing key is generated, if that is allowed.
    pub(super) fn location(&self) -> Option<String> {
        self.terms.allow_generate_key.then(|| self.backend.location())
    }

    /// Checks that the key allows a usage.
    ///
    /// # Errors
    /// `Invalid`, with the usage.
    pub(super) fn check_usage(&self, usage: ManagedKeyUsage) -> Result<()> {
        if self.terms.usages.contains(usage) {
            return Ok(());
        }
        Err(Error::invalid(format!("managed key {:?} does not allow usage {}", self.name, usage.name())))
    }

    pub(super) fn parse(document: Document) -> Result<Self> {
        let record = document.parse();
        // Zeroizes the body, which contains secrets.
        drop(Secret::new(document.body));
        record
    }

    /// Returns the write that replaces version `expected` of the stored record.
    pub(super) fn write(&self, expected: u64) -> Result<DocumentWrite> {
        let mut body = PartlySecret::with_capacity(1024);
        body.write_secret(|body| serde_json::to_writer(body, self)).map_err(Error::internal)?;
        Ok(DocumentWrite { key: document_key(&self.name), expected, body: Some(body.into_bytes()) })
    }

    pub(super) fn removal(&self, expected: u64) -> DocumentWrite {
        DocumentWrite { key: document_key(&self.name), expected, body: None }
    }
}

/// Returns the stored keys that use a PKCS #11 library, as pairs of key name and library name.
///
/// # Errors
/// `Internal` for a document that cannot be parsed.
pub fn libraries_by_key(documents: Vec<Document>) -> Result<Vec<(String, String)>> {
    let records = documents.into_iter().map(ManagedKeyRecord::parse).collect::<Result<Vec<_>>>()?;
    let library_pairs = records.into_iter().filter_map(|record| match record.backend {
        BackendConfig::Pkcs11(settings) => Some((record.name, settings.library)),
        _ => None,
    });
    Ok(library_pairs.collect())
}

fn document_key(name: &str) -> DocumentKey {
    DocumentKey { mount: SYSTEM_MOUNT, kind: MANAGED_KEY_DOCUMENT_KIND, name: name.to_owned() }
}

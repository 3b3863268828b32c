//! Sealing and unsealing of configuration documents.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::documents::{Document, DocumentKey, DocumentWrite, MountId, unreadable_document};
use crate::error::Result;
use crate::storage::backend::SealedDocument;
use crate::storage::keys::StoreKeys;
use crate::storage::seal::{DataKeyRing, document_context};

/// Seals the body of a document write. The seal covers the version under which the document will be stored.
pub(super) fn seal(write: &mut DocumentWrite, keys: &Arc<StoreKeys>) -> Result<()> {
    let DocumentWrite { key, expected, body } = write;
    let context = document_context(key.mount, key.kind, &key.name, expected.saturating_add(1));
    *body = body.take().map(|body| keys.seal(&context, body)).transpose()?;
    Ok(())
}

/// Unseals the documents of a mount; fails if a body does not decrypt. Loads data keys that other nodes have created.
pub(super) async fn open(keys: &StoreKeys, mount: MountId, sealed: Vec<SealedDocument>) -> Result<Vec<Document>> {
    keys.load_missing_keys(sealed.iter().map(|document| &document.body[..])).await?;
    open_with(keys.ring(), mount, sealed)
}

/// As [`open`], but does not load data keys that other nodes have created.
pub(super) fn open_with(ring: &DataKeyRing, mount: MountId, sealed: Vec<SealedDocument>) -> Result<Vec<Document>> {
    sealed.into_iter().map(|document| open_document(ring, mount, document)).collect()
}

fn open_document(ring: &DataKeyRing, mount: MountId, sealed: SealedDocument) -> Result<Document> {
    let SealedDocument { kind, name, version, body } = sealed;
    let opened = ring.open(&document_context(mount, &kind, &name, version), &body);
    let damaged = |_| unreadable_document(mount, &kind, &name, "its row was altered, moved or damaged");
    let body = opened.map_err(damaged)?;
    Ok(Document { key: DocumentKey { mount, kind: intern_kind(&kind), name }, version, body })
}

/// Interns the text of a document kind: the text stays in memory for the life of the process. Only called after the
/// body was decrypted, so only kinds that a server has written are interned.
fn intern_kind(kind: &str) -> &'static str {
    static INTERNED_KINDS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut words = INTERNED_KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    let words = words.get_or_insert_default();
    if let Some(word) = words.get(kind) {
        return word;
    }
    let word: &'static str = Box::leak(kind.to_owned().into_boxed_str());
    words.insert(word);
    word
}

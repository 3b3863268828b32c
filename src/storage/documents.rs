//! Sealing of configuration documents on their way in, opening on their way out.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::documents::{Document, DocumentKey, DocumentWrite, MountId};
use crate::error::Result;
use crate::storage::Inner;
use crate::storage::backend::{Reader, SealedDocument, Write};
use crate::storage::seal::{Ring, document_context};

impl Inner {
    /// The write with its body sealed for the version that it will be stored as.
    pub(super) fn seal_document(&self, write: DocumentWrite) -> Result<Write> {
        let DocumentWrite { key, expected, body } = write;
        let context = document_context(key.mount, key.kind, &key.name, expected.saturating_add(1));
        let body = body.map(|b| self.seal(&context, b)).transpose()?;
        Ok(Write::Document(DocumentWrite { key, expected, body }))
    }

    /// The documents of a mount, opened; an error when one of them does not open.
    pub(super) fn read_documents(
        &self,
        mount: MountId,
        kind: Option<&'static str>,
    ) -> BoxFuture<'static, Result<Vec<Document>>> {
        let (ring, reader) = (self.ring.clone(), self.reader.clone());
        async move {
            let sealed = reader.documents(mount, kind).await?;
            follow_rotation(&ring, &*reader, sealed.iter().map(|document| &document.body[..])).await?;
            sealed.into_iter().map(|document| open(&ring, mount, document)).collect()
        }
        .boxed()
    }
}

/// Looks for new data keys when one of the values is sealed with a key that is not known here: another
/// node has rotated.
pub(super) async fn follow_rotation(
    ring: &Ring,
    reader: &dyn Reader,
    mut sealed: impl Iterator<Item = &[u8]>,
) -> Result<()> {
    if sealed.any(|body| !ring.has_key_of(body)) {
        ring.learn(&reader.meta().await?)?;
    }
    Ok(())
}

fn open(ring: &Ring, mount: MountId, sealed: SealedDocument) -> Result<Document> {
    let SealedDocument { kind, name, version, body } = sealed;
    let body = ring.open(&document_context(mount, &kind, &name, version), &body)?;
    Ok(Document { key: DocumentKey { mount, kind: word(&kind), name }, version, body })
}

/// The static text of a kind. Called only with a kind that a sealed body vouches for, and those are
/// static words of the program: the set is small and closed.
fn word(kind: &str) -> &'static str {
    static WORDS: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let words = words.get_or_insert_default();
    if let Some(word) = words.get(kind) {
        return word;
    }
    let word: &'static str = Box::leak(kind.to_owned().into_boxed_str());
    words.insert(word);
    word
}

//! All managed keys at one moment, each with its actor.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use metrics::{Counter, counter};

use super::backend::Devices;
use super::record::Record;
use crate::documents::Document;
use crate::error::Result;
use crate::keys::actor::{Limits, SignerActor};
use crate::telemetry;

/// One key.
pub(super) struct Entry {
    pub(super) record: Arc<Record>,
    /// Of the stored document.
    pub(super) version: u64,
    /// `Err` where this server lacks what the configuration names.
    actor: Result<SignerActor>,
    _exported: telemetry::ExportedKey,
}

impl Entry {
    /// An entry for a version of a record. The actor of an earlier version goes on with the new configuration.
    pub(super) fn new(record: Record, version: u64, earlier: Option<&Self>, devices: &Devices) -> Self {
        let actor = record.backend.open(&record.name, &record.terms, devices).and_then(|opened| {
            let earlier = earlier.and_then(|entry| entry.actor.as_ref().ok());
            match earlier {
                Some(actor) => actor.configure(opened.backend, opened.max_parallel).map(|()| actor.clone()),
                None => Ok(SignerActor::start(&record.name, opened.backend, opened.max_parallel, Limits::default())),
            }
        });
        if let Err(error) = &actor {
            tracing::error!(key = record.name, "a managed key cannot be used: {error}");
            // There before it is counted: a counter that begins with the first refusal does not grow by it.
            refused(&record.name).increment(0);
        }
        let exported = telemetry::ExportedKey::new(&record.name);
        Self { record: Arc::new(record), version, actor, _exported: exported }
    }

    /// The way to its actor.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn actor(&self) -> Result<&SignerActor> {
        self.actor.as_ref().map_err(Clone::clone)
    }

    /// The way to its actor, for a use of the key; one that is refused is counted, as the actor counts those of a
    /// device that is out of reach.
    ///
    /// # Errors
    /// As [`Entry::actor`].
    pub(super) fn used(&self) -> Result<&SignerActor> {
        self.actor().inspect_err(|_| refused(&self.record.name).increment(1))
    }
}

fn refused(name: &str) -> Counter {
    counter!(telemetry::SIGNER_ERRORS, "key" => name.to_owned(), "kind" => "unavailable")
}

/// The keys by their names and by their UUIDs.
#[derive(Clone, Default)]
pub(super) struct View {
    by_name: BTreeMap<String, Arc<Entry>>,
    by_uuid: HashMap<String, Arc<Entry>>,
}

impl View {
    /// The view of what is stored. What did not change since `earlier` is taken over.
    ///
    /// # Errors
    /// `Internal` for a document that cannot be read.
    pub(super) fn load(documents: Vec<Document>, earlier: &Self, devices: &Devices) -> Result<Self> {
        let mut view = Self::default();
        for document in documents {
            let version = document.version;
            let record = Record::of(document)?;
            let known = earlier.by_uuid(&record.uuid);
            let entry = match known {
                Some(known) if known.version == version => Arc::clone(known),
                _ => Arc::new(Entry::new(record, version, known.map(Arc::as_ref), devices)),
            };
            view.insert(entry);
        }
        Ok(view)
    }

    fn insert(&mut self, entry: Arc<Entry>) {
        self.by_name.insert(entry.record.name.clone(), Arc::clone(&entry));
        self.by_uuid.insert(entry.record.uuid.clone(), entry);
    }

    /// This view with another entry in the place of the one of its name.
    pub(super) fn with(&self, entry: Entry) -> Self {
        let mut view = self.clone();
        view.insert(Arc::new(entry));
        view
    }

    /// This view, in which the keys that `again` says are opened again.
    pub(super) fn opened_again(&self, again: impl Fn(&Record) -> bool, devices: &Devices) -> Self {
        let mut view = self.clone();
        for entry in self.iter().filter(|entry| again(&entry.record)) {
            let record = Record::clone(&entry.record);
            view.insert(Arc::new(Entry::new(record, entry.version, Some(entry), devices)));
        }
        view
    }

    /// This view without an entry.
    pub(super) fn without(&self, entry: &Entry) -> Self {
        let mut view = self.clone();
        view.by_name.remove(&entry.record.name);
        view.by_uuid.remove(&entry.record.uuid);
        view
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&Arc<Entry>> {
        self.by_name.get(name)
    }

    pub(super) fn by_uuid(&self, uuid: &str) -> Option<&Arc<Entry>> {
        self.by_uuid.get(uuid)
    }

    /// All entries, in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.by_name.values()
    }
}

//! A snapshot of all managed keys, each with its actor.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use metrics::{Counter, counter};

use super::backend::Devices;
use super::record::ManagedKeyRecord;
use crate::documents::Document;
use crate::error::Result;
use crate::keys::actor::{SignerActor, SignerLimits};
use crate::telemetry;

pub(super) struct ManagedKeyEntry {
    pub(super) record: Arc<ManagedKeyRecord>,
    pub(super) version: u64,
    /// `Err` if the configuration names a library that is not configured on this server, or breaks a rule.
    actor: Result<SignerActor>,
    _exported: telemetry::ExportedKey,
}

impl ManagedKeyEntry {
    /// Creates the entry for a version of a record. The actor of an earlier version is reused with
    /// the new configuration.
    pub(super) fn new(record: ManagedKeyRecord, version: u64, earlier: Option<&Self>, devices: &Devices) -> Self {
        let actor = record.backend.open(&record.name, &record.terms, devices).and_then(|opened| {
            let earlier = earlier.and_then(|entry| entry.actor.as_ref().ok());
            match earlier {
                Some(actor) => actor.configure(opened.backend, opened.max_parallel).map(|()| actor.clone()),
                None => {
                    Ok(SignerActor::start(&record.name, opened.backend, opened.max_parallel, SignerLimits::default()))
                }
            }
        });
        if let Err(error) = &actor {
            tracing::error!(key = record.name, "a managed key cannot be used: {error}");
            // The counter is registered before the first failure, because a counter that starts at 1 shows no increase.
            unavailable_counter(&record.name).increment(0);
        }
        let exported = telemetry::ExportedKey::new(&record.name);
        Self { record: Arc::new(record), version, actor, _exported: exported }
    }

    /// Returns the actor.
    ///
    /// # Errors
    /// The reason why the key has no actor.
    pub(super) fn actor(&self) -> Result<&SignerActor> {
        self.actor.as_ref().map_err(Clone::clone)
    }

    /// Returns the actor for an operation with the key. If there is none, counts this in the metrics like an
    /// unreachable device.
    ///
    /// # Errors
    /// As [`ManagedKeyEntry::actor`].
    pub(super) fn actor_for_use(&self) -> Result<&SignerActor> {
        self.actor().inspect_err(|_| unavailable_counter(&self.record.name).increment(1))
    }
}

fn unavailable_counter(name: &str) -> Counter {
    counter!(telemetry::SIGNER_ERRORS, "key" => name.to_owned(), "kind" => "unavailable")
}

#[derive(Clone, Default)]
pub(super) struct ManagedKeysView {
    by_name: BTreeMap<String, Arc<ManagedKeyEntry>>,
    by_uuid: HashMap<String, Arc<ManagedKeyEntry>>,
}

impl ManagedKeysView {
    /// Builds the view of the stored documents. Reuses the entries of `earlier` that have not changed.
    ///
    /// # Errors
    /// `Internal` for a document that cannot be read.
    pub(super) fn load(documents: Vec<Document>, earlier: &Self, devices: &Devices) -> Result<Self> {
        let mut view = Self::default();
        for document in documents {
            let version = document.version;
            let record = ManagedKeyRecord::parse(document)?;
            let known = earlier.by_uuid(&record.uuid);
            let entry = match known {
                Some(known) if known.version == version => Arc::clone(known),
                _ => Arc::new(ManagedKeyEntry::new(record, version, known.map(Arc::as_ref), devices)),
            };
            view.insert(entry);
        }
        Ok(view)
    }

    fn insert(&mut self, entry: Arc<ManagedKeyEntry>) {
        self.by_name.insert(entry.record.name.clone(), Arc::clone(&entry));
        self.by_uuid.insert(entry.record.uuid.clone(), entry);
    }

    /// A copy of the view in which `entry` replaces the entry of the same name.
    pub(super) fn with_entry(&self, entry: ManagedKeyEntry) -> Self {
        let mut view = self.clone();
        view.insert(Arc::new(entry));
        view
    }

    /// A copy of the view in which the backends of the keys selected by `must_reopen` are reopened.
    pub(super) fn with_reopened(&self, must_reopen: impl Fn(&ManagedKeyRecord) -> bool, devices: &Devices) -> Self {
        let mut view = self.clone();
        for entry in self.iter().filter(|entry| must_reopen(&entry.record)) {
            let record = ManagedKeyRecord::clone(&entry.record);
            view.insert(Arc::new(ManagedKeyEntry::new(record, entry.version, Some(entry), devices)));
        }
        view
    }

    pub(super) fn without_entry(&self, entry: &ManagedKeyEntry) -> Self {
        let mut view = self.clone();
        view.by_name.remove(&entry.record.name);
        view.by_uuid.remove(&entry.record.uuid);
        view
    }

    pub(super) fn by_name(&self, name: &str) -> Option<&Arc<ManagedKeyEntry>> {
        self.by_name.get(name)
    }

    pub(super) fn by_uuid(&self, uuid: &str) -> Option<&Arc<ManagedKeyEntry>> {
        self.by_uuid.get(uuid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<ManagedKeyEntry>> {
        self.by_name.values()
    }
}

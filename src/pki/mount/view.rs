//! The published state of a mount: roles, issuers, keys, settings, and values derived from them.
//!
//! A [`MountView`] is immutable once published. Only the mount's control actor, the task that makes all changes,
//! publishes views; a request loads one and sees a consistent state throughout. A change clones the view (its parts are
//! shared), modifies the clone and returns it together with the documents to store.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::chains::{self, Issuers, Parents};
use super::cluster::Cluster;
use super::issuer::{self, Issuer, IssuerRecord, KeyRecord, MountKey};
use super::paths::CertificationPaths;
use super::profile::{EncodedIssuerParts, EncodedRole};
use super::responders::Responders;
use super::role::Role;
use super::settings::crl::CrlConfig;
use super::settings::external_policy;
use super::settings::tidy::AutoTidyConfig;
use super::signatures::IssuerSignatures;
use super::signer::IssuerSigner;
use super::urls::Urls;
use crate::documents::{Document, DocumentKey, DocumentWrite, MountId};
use crate::error::{Error, Result};
use crate::pki::policy_engine::PolicyEngine;
use crate::pki::store::PkiWrite;
use crate::secret::PartlySecret;
use crate::x509::certificate::Certificate;
use crate::x509::public_key::PublicKey;
use crate::x509::serial::Serial;

/// Maximum number of attempts to draw an unused serial number; in practice the first succeeds.
const MAX_SERIAL_DRAWS: usize = 8;

mod document_kind {
    pub(crate) const ROLE: &str = "role";
    pub(crate) const ISSUER: &str = "issuer";
    pub(crate) const KEY: &str = "key";
    pub(crate) const CONFIG: &str = "config";
}

/// A settings document with the version of its stored form (0: never written, defaults apply).
#[derive(Clone, Debug, Default)]
pub struct StoredSetting<T> {
    /// Contents of the settings document.
    pub value: T,
    version: u64,
}

/// The settings in `config/issuers`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IssuersConfig {
    /// Id of the default issuer, or empty.
    pub default: String,
    /// `true` if a new issuer becomes the default.
    pub default_follows_latest_issuer: bool,
    /// Time of the last change of the default or removal of an issuer, epoch seconds; 0 for never.
    pub changed_at: i64,
    /// Authority ids of deleted issuers by issuer id. The CRL of the same authority lists their revocations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub former: BTreeMap<String, String>,
}

/// The settings in `config/keys`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeysConfig {
    /// Id of the default key, or empty.
    pub default: String,
}

/// The state of a mount at one moment: an immutable snapshot.
#[derive(Clone)]
pub struct MountView {
    /// Id of the mount.
    pub mount: MountId,
    roles: BTreeMap<String, Arc<EncodedRole>>,
    issuers: Issuers,
    keys: BTreeMap<String, Arc<MountKey>>,
    /// `config/issuers`: the default issuer and deleted issuers.
    pub issuers_config: StoredSetting<IssuersConfig>,
    /// `config/keys`: the default key.
    pub keys_config: StoredSetting<KeysConfig>,
    /// The mount's authority information URLs.
    pub urls: StoredSetting<Urls>,
    /// The mount's own base URLs.
    pub cluster: StoredSetting<Cluster>,
    /// CRL and OCSP settings.
    pub crl_config: StoredSetting<CrlConfig>,
    /// Settings of the external policy engine, which decides on requests instead of roles.
    pub external_policy: StoredSetting<external_policy::ExternalPolicyConfig>,
    /// Client of the policy engine if external policy is enabled, or the error for requests that need the engine.
    policy_engine: Option<Result<Arc<PolicyEngine>, String>>,
    /// Schedule and tasks of automatic tidy.
    pub auto_tidy: StoredSetting<AutoTidyConfig>,
    parents: Parents,
    signers: BTreeMap<String, Arc<IssuerSigner>>,
    responders: Arc<Responders>,
    /// `true` while derived values are out of date, until [`MountView::end_batch`].
    is_batch_open: bool,
}

impl MountView {
    /// Builds the state from the documents of a mount.
    ///
    /// # Errors
    /// `Internal` when a document cannot be read.
    pub fn load(mount: MountId, documents: Vec<Document>) -> Result<Self> {
        Self::empty(mount).reloaded(documents)
    }

    /// Like [`MountView::load`], but keeps two things from this view: results of signature checks, and, if the settings
    /// of the policy engine are the same, its client with the health state.
    ///
    /// # Errors
    /// As [`MountView::load`].
    pub(crate) fn reloaded(&self, documents: Vec<Document>) -> Result<Self> {
        let mut view = Self::empty(self.mount);
        for document in documents {
            let named = Document { key: document.key.clone(), version: document.version, body: Vec::new() };
            view.insert_document(document).map_err(|error| named.unreadable_error(error))?;
        }
        view.parents = chains::compute_parents(&view.issuers, &self.parents);
        view.recompute();
        Ok(view.reuse_policy_engine(self))
    }

    /// Creates the state of a mount without documents.
    pub fn empty(mount: MountId) -> Self {
        Self {
            mount,
            roles: BTreeMap::new(),
            issuers: BTreeMap::new(),
            keys: BTreeMap::new(),
            issuers_config: StoredSetting::default(),
            keys_config: StoredSetting::default(),
            urls: StoredSetting::default(),
            cluster: StoredSetting::default(),
            crl_config: StoredSetting::default(),
            external_policy: StoredSetting::default(),
            auto_tidy: StoredSetting::default(),
            policy_engine: None,
            parents: BTreeMap::new(),
            signers: BTreeMap::new(),
            responders: Arc::default(),
            is_batch_open: false,
        }
    }

    fn insert_document(&mut self, document: Document) -> Result<()> {
        let name = document.key.name;
        let version = document.version;
        let body = &Zeroizing::new(document.body);
        match document.key.kind {
            document_kind::ROLE => {
                let entry = EncodedRole::new(parse_document(body)?, version)?;
                self.roles.insert(name, Arc::new(entry));
            }
            document_kind::ISSUER => {
                let issuer = Issuer::new(parse_document(body)?, version)?;
                self.issuers.insert(name, Arc::new(issuer));
            }
            document_kind::KEY => {
                let key = MountKey::new(&parse_document::<KeyRecord>(body)?, version, self.mount)?;
                self.keys.insert(name, Arc::new(key));
            }
            document_kind::CONFIG => match name.as_str() {
                "issuers" => self.issuers_config = StoredSetting { value: parse_document(body)?, version },
                "keys" => self.keys_config = StoredSetting { value: parse_document(body)?, version },
                "urls" => self.urls = StoredSetting { value: parse_document(body)?, version },
                "cluster" => self.cluster = StoredSetting { value: parse_document(body)?, version },
                "crl" => self.crl_config = StoredSetting { value: parse_document(body)?, version },
                "auto-tidy" => self.auto_tidy = StoredSetting { value: parse_document(body)?, version },
                "external-policy" => {
                    let config: external_policy::ExternalPolicyConfig = parse_document(body)?;
                    let engine = config.enabled.then(|| config.create_engine());
                    self.policy_engine = engine.map(|e| e.map(Arc::new).map_err(|e| e.text().to_owned()));
                    self.external_policy = StoredSetting { value: config, version };
                }
                _ => return Err(Error::internal(format!("unknown settings document {name}"))),
            },
            other => return Err(Error::internal(format!("unknown stored document kind {other}"))),
        }
        Ok(())
    }

    /// Begins a batch of changes. Signers and chains are not recomputed until [`MountView::end_batch`], because
    /// recomputing them after every change would take quadratic time.
    pub(crate) fn begin_batch(&mut self) {
        self.is_batch_open = true;
    }

    /// Ends a batch of changes: recomputes signers and chains.
    pub(crate) fn end_batch(&mut self) {
        self.is_batch_open = false;
        self.recompute();
    }

    /// Recomputes everything that is derived from documents.
    fn recompute(&mut self) {
        if self.is_batch_open {
            return;
        }
        self.signers = self
            .issuers
            .iter()
            .map(|(id, issuer)| {
                let paths = CertificationPaths::of(issuer, &self.issuers, &self.parents);
                let encoded_parts = self
                    .urls_of(issuer)
                    .map(|urls| EncodedIssuerParts::new(issuer, paths.constraints(), &urls))
                    .map_err(|e| e.text().to_owned());
                let key = self.keys.get(&issuer.record.key_id).cloned();
                let path_length = paths.path_length();
                (
                    id.clone(),
                    Arc::new(IssuerSigner { issuer: Arc::clone(issuer), key, paths, path_length, encoded_parts }),
                )
            })
            .collect();
        self.responders = Arc::new(Responders::new(&self.signers, &self.parents));
    }

    // --- Roles ---

    /// Finds a role by name.
    pub fn role(&self, name: &str) -> Option<&Arc<EncodedRole>> {
        self.roles.get(name)
    }

    /// Returns the names of all roles, in byte order.
    pub fn role_names(&self) -> impl Iterator<Item = &str> {
        self.roles.keys().map(String::as_str)
    }

    /// Returns the names of at most `limit` roles whose `issuer_ref` is `reference`.
    pub fn roles_using(&self, reference: &str, limit: usize) -> Vec<&str> {
        let uses = |entry: &&Arc<EncodedRole>| entry.role.issuer_ref == reference;
        self.roles.iter().filter(|(_, e)| uses(e)).map(|(n, _)| n.as_str()).take(limit).collect()
    }

    /// Adds or replaces a role in this view; returns the write for storage.
    pub fn put_role(&mut self, name: &str, role: Role) -> Result<PkiWrite> {
        let version = self.roles.get(name).map_or(0, |e| e.version);
        let write = self.document_write(document_kind::ROLE, name, version, Some(&role));
        self.roles.insert(name.to_owned(), Arc::new(EncodedRole::new(role, version + 1)?));
        Ok(write)
    }

    /// Removes a role from this view; returns the write for storage, or `None` when there is no such role.
    pub fn remove_role(&mut self, name: &str) -> Option<PkiWrite> {
        let version = self.roles.remove(name)?.version;
        Some(self.document_write::<Role>(document_kind::ROLE, name, version, None))
    }

    // --- Issuers ---

    /// Finds an issuer by reference: `default` in any letter case, an id, or a name.
    pub fn signer(&self, reference: &str) -> Option<&Arc<IssuerSigner>> {
        if reference.eq_ignore_ascii_case("default") {
            return self.signers.get(&self.issuers_config.value.default);
        }
        self.signers
            .get(reference)
            .or_else(|| self.signers.values().find(|s| !reference.is_empty() && s.issuer.record.name == reference))
    }

    /// Returns all issuers, by id.
    pub fn signers(&self) -> impl Iterator<Item = &Arc<IssuerSigner>> {
        self.signers.values()
    }

    /// Returns the time of the last change of any issuer, epoch seconds. A chain contains several issuers, so this
    /// covers changes of all chains.
    pub fn issuers_changed_at(&self) -> i64 {
        let records = self.issuers.values().map(|issuer| issuer.record.modified_at);
        records.max().unwrap_or(0).max(self.issuers_config.value.changed_at)
    }

    /// Returns the OCSP responders of the mount.
    pub fn responders(&self) -> &Responders {
        &self.responders
    }

    /// Returns `true` if `id` is the id of the default issuer.
    pub fn is_default_issuer(&self, id: &str) -> bool {
        self.issuers_config.value.default == id
    }

    /// Returns all issuers by id, including those of a batch that has not [ended](MountView::end_batch).
    pub(crate) fn issuers(&self) -> impl Iterator<Item = &Arc<Issuer>> {
        self.issuers.values()
    }

    /// Finds the issuer with this certificate; compares the DER encodings.
    pub fn issuer_with_der(&self, der: &[u8]) -> Option<&Arc<Issuer>> {
        self.issuers.values().find(|issuer| issuer.certificate.der() == der)
    }

    /// Finds the issuer that signed a certificate; of several with the same key, the first by id. May check the
    /// signature with the key of every issuer of that name.
    pub fn find_signing_issuer(&self, certificate: &Certificate) -> Option<&Arc<Issuer>> {
        chains::find_signing_issuer(certificate, self.signers.values().map(|signer| &signer.issuer))
    }

    /// Returns the authority id (of name and key) of an issuer, which may be deleted; `None` if the issuer is unknown.
    pub fn authority_id_of(&self, issuer: &str) -> Option<String> {
        let here = self.issuers.get(issuer).map(|issuer| issuer.authority_id());
        here.or_else(|| self.issuers_config.value.former.get(issuer).cloned())
    }

    /// Returns `true` if two issuers are known to differ in name or key, so that their serial numbers are independent.
    pub fn are_different_authorities(&self, one: &str, other: &str) -> bool {
        one != other && matches!((self.authority_id_of(one), self.authority_id_of(other)), (Some(a), Some(b)) if a != b)
    }

    /// Finds the issuer of this mount whose certificate was signed by `issuer` and has this serial number.
    pub fn find_issuer_certified_by(&self, issuer: &Issuer, serial: Serial) -> Option<&Arc<Issuer>> {
        let own = &issuer.certificate;
        self.issuers.values().find(|one| {
            let one = &one.certificate;
            one.serial() == serial && one.issuer().matches(own.subject()) && one.is_signed_by(own.key())
        })
    }

    /// Returns the ids of the other issuers that certify issuer `id`: self-signed ones first, each group sorted by id.
    pub fn parents(&self, id: &str) -> &[String] {
        self.parents.get(id).map_or(&[], Vec::as_slice)
    }

    /// Draws a serial number that no issuer certificate of the mount has, imported ones included. Storage detects
    /// duplicates among the issued certificates when it stores the new certificate.
    ///
    /// # Errors
    /// `Internal` when every draw yields a serial number in use.
    pub fn new_serial(&self, draw: &dyn Fn() -> Serial) -> Result<Serial> {
        let taken = |serial: &Serial| self.issuers.values().any(|i| i.certificate.serial() == *serial);
        (0..MAX_SERIAL_DRAWS).map(|_| draw()).find(|serial| !taken(serial)).ok_or_else(|| {
            Error::internal(format!("all {MAX_SERIAL_DRAWS} serial numbers drawn belong to issuers of the mount"))
        })
    }

    /// Adds or replaces an issuer in this view; returns the write for storage.
    ///
    /// # Errors
    /// `Invalid` when another issuer has the name, or when the mount or the subject has the maximum number of issuers.
    pub fn put_issuer(&mut self, record: IssuerRecord) -> Result<PkiWrite> {
        issuer::check_name("issuer_name", &record.name)?;
        let id = record.id.clone();
        let taken = |other: &Arc<Issuer>| {
            other.record.id != id && (other.record.name == record.name || other.record.id == record.name)
        };
        if !record.name.is_empty() && self.issuers.values().any(taken) {
            return Err(Error::invalid("issuer_name: issuer name already in use"));
        }
        let version = self.issuers.get(&id).map_or(0, |i| i.version);
        let mut issuer = match self.issuers.get(&id) {
            Some(known) => known.with_record(record, version + 1),
            None => {
                let new = Issuer::new(record, version + 1)?.with_shared_authority_id(self.issuers.values());
                self.check_issuer_limits(&new.certificate)?;
                chains::add_parents(&mut self.parents, &self.issuers, &new);
                new
            }
        };
        issuer.record.signatures = chains::check_signatures(&issuer, &self.issuers, &self.parents);
        let write = self.document_write(document_kind::ISSUER, &id, version, Some(&issuer.record));
        self.issuers.insert(id, Arc::new(issuer));
        self.recompute();
        Ok(write)
    }

    /// Returns the known results of an issuer's signature checks; empty for an unknown issuer.
    pub(crate) fn signatures(&self, id: &str) -> IssuerSignatures {
        let issuer = self.issuers.get(id);
        issuer.map(|issuer| chains::check_signatures(issuer, &self.issuers, &self.parents)).unwrap_or_default()
    }

    /// Rejects a new issuer that would exceed a limit of the mount.
    ///
    /// # Errors
    /// `Invalid` with the limit.
    pub(crate) fn check_issuer_limits(&self, certificate: &Certificate) -> Result<()> {
        chains::check_issuer_limits(&self.issuers, certificate)
    }

    /// Removes issuers; their keys remain. If the default issuer is among them, the mount has no default afterwards.
    pub fn remove_issuers(&mut self, ids: &[String], now: i64) -> Vec<PkiWrite> {
        let mut config = self.issuers_config.value.clone();
        let mut writes = Vec::with_capacity(ids.len() + 1);
        for id in ids {
            let Some(gone) = self.issuers.remove(id) else { continue };
            chains::remove_parents(&mut self.parents, id);
            writes.push(self.document_write::<IssuerRecord>(document_kind::ISSUER, id, gone.version, None));
            config.former.insert(id.clone(), gone.authority_id());
            if config.default == *id {
                config.default = String::new();
            }
        }
        if !writes.is_empty() {
            config.changed_at = now;
            writes.push(self.set_issuers_config(config));
            self.recompute();
        }
        writes
    }

    /// Removes every issuer and key from this view; returns the writes for storage.
    pub fn remove_all_issuers_and_keys(&mut self, now: i64) -> Vec<PkiWrite> {
        let ids: Vec<String> = self.issuers.keys().cloned().collect();
        let keys = std::mem::take(&mut self.keys);
        let mut writes = self.remove_issuers(&ids, now);
        self.recompute();
        writes.extend(
            keys.iter().map(|(id, k)| self.document_write::<KeyRecord>(document_kind::KEY, id, k.version, None)),
        );
        writes
    }

    // --- Keys ---

    /// Finds a key by reference: `default` in any letter case, an id, or a name.
    pub fn key(&self, reference: &str) -> Option<&Arc<MountKey>> {
        if reference.eq_ignore_ascii_case("default") {
            return self.keys.get(&self.keys_config.value.default);
        }
        self.keys.get(reference).or_else(|| self.keys.values().find(|k| !reference.is_empty() && k.name == reference))
    }

    /// Returns all keys, by id.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<MountKey>> {
        self.keys.values()
    }

    /// Finds the key with this public key.
    pub fn key_by_public_key(&self, public: &PublicKey) -> Option<&Arc<MountKey>> {
        self.keys.values().find(|key| key.public() == public)
    }

    /// Returns `true` if `id` is the id of the default key.
    pub fn is_default_key(&self, id: &str) -> bool {
        self.keys_config.value.default == id
    }

    /// Adds or replaces a key in this view; returns the write for storage.
    ///
    /// # Errors
    /// `Invalid` when another key has the name.
    pub fn put_key(&mut self, key: MountKey) -> Result<PkiWrite> {
        issuer::check_name("key_name", &key.name)?;
        let taken = |other: &Arc<MountKey>| other.id != key.id && (other.name == key.name || other.id == key.name);
        if !key.name.is_empty() && self.keys.values().any(taken) {
            return Err(Error::invalid("key_name: key name already in use"));
        }
        let version = self.keys.get(&key.id).map_or(0, |k| k.version);
        let write = self.document_write(document_kind::KEY, &key.id, version, Some(&key.record()?));
        self.keys.insert(key.id.clone(), Arc::new(MountKey { version: version + 1, ..key }));
        self.recompute();
        Ok(write)
    }

    /// Removes a key from this view; returns the write for storage, or `None` when there is no such key.
    pub fn remove_key(&mut self, id: &str) -> Option<PkiWrite> {
        let version = self.keys.remove(id)?.version;
        self.recompute();
        Some(self.document_write::<KeyRecord>(document_kind::KEY, id, version, None))
    }

    // --- Settings ---

    /// Replaces a settings document in this view, and returns the write for storage.
    fn set_config<T: Serialize>(
        &mut self,
        name: &str,
        setting: fn(&mut Self) -> &mut StoredSetting<T>,
        value: T,
    ) -> PkiWrite {
        let version = setting(self).version;
        let write = self.document_write(document_kind::CONFIG, name, version, Some(&value));
        *setting(self) = StoredSetting { value, version: version + 1 };
        write
    }

    /// Replaces `config/issuers` in this view; returns the write for storage.
    pub fn set_issuers_config(&mut self, value: IssuersConfig) -> PkiWrite {
        self.set_config("issuers", |view| &mut view.issuers_config, value)
    }

    /// Replaces `config/keys` in this view; returns the write for storage.
    pub fn set_keys_config(&mut self, value: KeysConfig) -> PkiWrite {
        self.set_config("keys", |view| &mut view.keys_config, value)
    }

    /// Replaces `config/urls` in this view; returns the write for storage.
    pub fn set_urls(&mut self, value: Urls) -> PkiWrite {
        let write = self.set_config("urls", |view| &mut view.urls, value);
        self.recompute();
        write
    }

    /// Replaces `config/cluster` in this view; returns the write for storage.
    pub fn set_cluster(&mut self, value: Cluster) -> PkiWrite {
        let write = self.set_config("cluster", |view| &mut view.cluster, value);
        self.recompute();
        write
    }

    /// Replaces `config/crl` in this view; returns the write for storage.
    pub fn set_crl_config(&mut self, value: CrlConfig) -> PkiWrite {
        self.set_config("crl", |view| &mut view.crl_config, value)
    }

    /// Returns the URLs of an issuer, or else of the mount, with placeholders replaced.
    ///
    /// # Errors
    /// `Invalid` when an entry is not a URL, or has a placeholder without a value.
    pub fn urls_of(&self, issuer: &Issuer) -> Result<Urls> {
        let own = &issuer.record.urls;
        let urls = if own.is_empty() { &self.urls.value } else { own };
        urls.with_cluster_urls(&self.cluster.value).for_issuer(&issuer.record.id)
    }

    /// Returns the mount's URLs with its own addresses filled in.
    pub fn global_urls(&self) -> Urls {
        self.urls.value.with_cluster_urls(&self.cluster.value)
    }

    /// Replaces `config/external-policy` in this view, and the engine's client if the settings changed.
    ///
    /// # Errors
    /// `Invalid` when no client can be created from the settings.
    pub fn set_external_policy(&mut self, value: external_policy::ExternalPolicyConfig) -> Result<PkiWrite> {
        if !value.equals_except_update_time(&self.external_policy.value) {
            let engine = value.enabled.then(|| value.create_engine()).transpose()?;
            self.policy_engine = engine.map(Arc::new).map(Ok);
        }
        Ok(self.set_config("external-policy", |view| &mut view.external_policy, value))
    }

    /// Replaces `config/auto-tidy` in this view; returns the write for storage.
    pub fn set_auto_tidy(&mut self, value: AutoTidyConfig) -> PkiWrite {
        self.set_config("auto-tidy", |view| &mut view.auto_tidy, value)
    }

    /// Takes over the policy engine's client of another view if the settings are the same.
    fn reuse_policy_engine(mut self, other: &Self) -> Self {
        let same = self.external_policy.value.equals_except_update_time(&other.external_policy.value);
        if same && matches!((&self.policy_engine, &other.policy_engine), (Some(Ok(_)), Some(Ok(_)))) {
            self.policy_engine.clone_from(&other.policy_engine);
        }
        self
    }

    /// Returns the client of the policy engine.
    ///
    /// # Errors
    /// `Invalid` when external policy is not enabled, or no client can be created from its settings.
    pub fn policy_engine(&self) -> Result<&Arc<PolicyEngine>> {
        match &self.policy_engine {
            Some(engine) => engine.as_ref().map_err(|text| Error::invalid(text.clone())),
            None => Err(Error::invalid("external policy is not configured")),
        }
    }

    fn document_write<T: Serialize>(
        &self,
        kind: &'static str,
        name: &str,
        expected: u64,
        value: Option<&T>,
    ) -> PkiWrite {
        let body = value.map(|v| {
            // The body may hold a private key. Storage zeroizes it after sealing it; `write_secret` leaves no copies
            // when the buffer grows.
            let mut body = PartlySecret::default();
            let written = body.write_secret(|body| serde_json::to_writer(body, v));
            written.expect("stored records always serialise");
            body.into_bytes()
        });
        PkiWrite::Document(DocumentWrite {
            key: DocumentKey { mount: self.mount, kind, name: name.to_owned() },
            expected,
            body,
        })
    }
}

fn parse_document<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    // The error names fields but never values: the body may hold a private key.
    serde_json::from_slice(body)
        .map_err(|e| Error::internal(format!("stored document: invalid at byte {}", e.column())))
}

#[cfg(test)]
mod tests;

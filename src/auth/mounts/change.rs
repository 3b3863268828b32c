//! Enabling, tuning and disabling mounts.
//!
//! Changes on this node run one at a time. A commit fails if another node has changed the stored document since it was
//! read. A change is committed, then published in the mount table, then acknowledged to the client.
//! [`mounts`](crate::mounts) calls this module and opens and closes engines.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::settings::MAX_DESCRIPTION_BYTES;
use super::{Mount, MountClass, MountKind, MountTable};
use crate::auth::Auth;
use crate::auth::store::{AuthStore, AuthWrite, config_document, config_write};
use crate::documents::{Document, DocumentKey, DocumentWrite, MountId, SYSTEM_MOUNT, retry_on_conflict};
use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::telemetry;

/// Kind of the stored documents of mounts; a document is named after the mount's path.
const MOUNT_DOCUMENT_KIND: &str = "mount";

/// Name of a document that prevents two nodes from making certain changes concurrently: enabling or moving a mount,
/// changing a mount's list of managed keys, and deleting a managed key. Each such change writes the document. The
/// second of two concurrent changes fails with a conflict on the document, and is checked again.
const MOUNT_ORDER_DOCUMENT: &str = "mount-order";

const MAX_MOUNT_PATH_BYTES: usize = 128;

/// Paths below which no secret engine can be mounted.
pub(super) const RESERVED_MOUNT_PATHS: [&str; 5] = ["auth/", "cubbyhole/", "identity/", "sys/", "audit/"];

/// Returns the canonical path of a secret engine, without the trailing slash.
///
/// # Errors
/// `Invalid` for a path that is malformed or reserved.
pub fn engine_path(path: &str) -> Result<String> {
    let path = canonical_engine_path(path)?;
    Ok(path.trim_end_matches('/').to_owned())
}

fn canonical_engine_path(path: &str) -> Result<String> {
    let path = canonical_path(path)?;
    match find_reserved_path(&path) {
        Some(reserved) => {
            Err(Error::invalid(format!("cannot mount \"{reserved}\": reserved for the system; choose another path")))
        }
        None => Ok(path),
    }
}

/// Returns the reserved path that contains `path`; `None` if there is none.
fn find_reserved_path(path: &str) -> Option<&'static str> {
    RESERVED_MOUNT_PATHS.into_iter().find(|reserved| path.starts_with(reserved))
}

impl Auth {
    /// Returns the current mount table.
    pub fn mounts(&self) -> Arc<MountTable> {
        self.mounts.load_full()
    }

    /// Mounts a secret engine at `path`, with the fields `type`, `description`, `config`, `options` and the boolean
    /// settings.
    ///
    /// # Errors
    /// `Invalid` with the violated rule.
    pub async fn mount_enable(&self, path: &str, fields: &Fields) -> Result<Arc<Mount>> {
        let path = canonical_engine_path(path)?;
        let kind = parse_kind(fields)?;
        self.enable(path, (kind, None), MountClass::Secrets, fields).await
    }

    /// Mounts an authentication method at `auth/<path>`, with the fields of [`Auth::mount_enable`]. `known_as` is an
    /// alternative name of the method, stored for the clients that use it.
    ///
    /// # Errors
    /// As [`Auth::mount_enable`].
    pub async fn auth_enable(&self, path: &str, fields: &Fields, known_as: Option<&str>) -> Result<Arc<Mount>> {
        let path = format!("auth/{}", canonical_path(path)?);
        let kind = parse_kind(fields)?;
        self.enable(path, (kind, known_as), MountClass::Methods, fields).await
    }

    async fn enable(
        &self,
        path: String,
        (kind, known_as): (MountKind, Option<&str>),
        class: MountClass,
        fields: &Fields,
    ) -> Result<Arc<Mount>> {
        match kind.class() {
            own if own == class => {}
            MountClass::BuiltIn => {
                return Err(Error::invalid(format!("mount type of \"{}\" is not mountable", kind.name())));
            }
            _ => {
                // The quoted type is truncated, so that the response does not grow with the request.
                let begin: String = kind.name().chars().take(64).collect();
                return Err(Error::invalid(format!("unknown mount type: {begin:?}")));
            }
        }
        let suffix = crate::random::bytes::<4>().map(|b| format!("{b:02x}")).concat();
        let mut mount = Mount::new(MountId::random(), &path, kind, &suffix, crate::random::uuid());
        mount.known_as = known_as.unwrap_or_default().to_owned();
        mount.description = fields.text_within("description", MAX_DESCRIPTION_BYTES)?.unwrap_or_default();
        for (name, to) in [
            ("local", &mut mount.local),
            ("seal_wrap", &mut mount.seal_wrap),
            ("external_entropy_access", &mut mount.external_entropy_access),
        ] {
            *to = fields.bool(name)?.unwrap_or(false);
        }
        let mut settings = parse_nested(fields, "config")?;
        if let Some(options) = fields.value("options") {
            settings.set("options", options.clone());
        }
        mount.apply_settings(&settings)?;
        let _one_writer = self.write_permit().await?;
        let attempt = async || {
            // The order document is read before the table, so that a mount enabled in between makes this attempt fail.
            let order = self.mount_order_write().await?;
            self.reload_mounts().await?;
            check_path_free(&self.mounts(), &path)?;
            let document = AuthWrite::Document(mount_document(&mount, 0)?);
            let unit = vec![AuthWrite::MountCreate(mount.id), document, AuthWrite::Document(order)];
            self.commit_mount(unit, &path, Some(mount.clone())).await
        };
        retry_on_conflict(format_args!("path {path}"), attempt).await?;
        Ok(Arc::new(mount))
    }

    /// Changes the settings of a mount; the path of an authentication method includes `auth/`.
    ///
    /// # Errors
    /// `Invalid` when the mount does not exist, or with the violated rule.
    pub async fn mount_tune(&self, path: &str, fields: &Fields) -> Result<()> {
        let _one_writer = self.write_permit().await?;
        let attempt = async || {
            let (known, version) = self.stored_mount(path).await?.ok_or_else(|| no_mount_error(path))?;
            let mut mount = known.clone();
            mount.apply_settings(fields)?;
            if mount == known {
                return Ok(());
            }
            let mut unit = vec![AuthWrite::Document(mount_document(&mount, version)?)];
            if mount.allowed_managed_keys != known.allowed_managed_keys {
                // If another request deletes a managed key concurrently, it conflicts on this document and checks the
                // lists again.
                unit.push(AuthWrite::Document(self.mount_order_write().await?));
            }
            self.commit_mount(unit, &known.path, Some(mount)).await
        };
        retry_on_conflict(format_args!("path {path}"), attempt).await
    }

    /// Unmounts a secret engine and deletes everything that the engine stored. Returns the former mount; `None` if
    /// there is none at `path`.
    ///
    /// # Errors
    /// `Invalid` for a built-in mount and for a reserved path: the right to unmount secret engines must not include the
    /// right to disable authentication methods.
    pub async fn mount_disable(&self, path: &str) -> Result<Option<Arc<Mount>>> {
        let path = format!("{}/", path.trim_matches('/'));
        let refusal = format!("cannot unmount \"{path}\": reserved for the system");
        if find_reserved_path(&path).is_some() {
            return Err(Error::invalid(refusal));
        }
        self.disable(&path, &refusal).await
    }

    /// Disables the authentication method at `auth/<path>`. Returns the former mount; `None` if there is none.
    ///
    /// # Errors
    /// `Invalid` for the token method.
    pub async fn auth_disable(&self, path: &str) -> Result<Option<Arc<Mount>>> {
        let path = path.trim_matches('/');
        self.disable(
            &format!("auth/{path}"),
            &format!("cannot disable \"auth/{path}/\": not an authentication method that can be disabled"),
        )
        .await
    }

    async fn disable(&self, path: &str, refusal: &str) -> Result<Option<Arc<Mount>>> {
        let _one_writer = self.write_permit().await?;
        let attempt = async || {
            let Some((mount, expected)) = self.stored_mount(path).await? else {
                return match path.trim_matches('/') == "auth" {
                    true => Err(Error::invalid(refusal.to_owned())),
                    false => Ok(None),
                };
            };
            if mount.is_built_in() {
                return Err(Error::invalid(refusal.to_owned()));
            }
            let delete = DocumentWrite { key: mount_key(&mount.path), expected, body: None };
            let unit = vec![AuthWrite::Document(delete), AuthWrite::MountDelete(mount.id)];
            self.commit_mount(unit, &mount.path, None).await?;
            if mount.is_auth() {
                // The commit has also revoked the tokens of the method's logins.
                self.tokens.clear();
            }
            Ok(Some(Arc::new(mount)))
        };
        retry_on_conflict(format_args!("path {path}"), attempt).await
    }

    /// Commits a change of one mount, and publishes a table in which the mount at `path` is replaced by `now`, or
    /// removed if `now` is `None`. Publishing cannot fail.
    async fn commit_mount(&self, unit: Vec<AuthWrite>, path: &str, now: Option<Mount>) -> Result<()> {
        self.commit_table(unit, |table| table.with_mount(path, now)).await
    }

    pub(super) async fn commit_table(
        &self,
        unit: Vec<AuthWrite>,
        then: impl FnOnce(&MountTable) -> MountTable,
    ) -> Result<()> {
        self.commit_or_reload(unit).await?;
        self.publish_mounts(then(&self.mounts.load()));
        Ok(())
    }

    /// Returns the paths of the mounts whose `allowed_managed_keys` contain the key `name`. Also returns a write that
    /// fails with `Conflict` if the list of any mount changes in the meantime.
    ///
    /// # Errors
    /// Store errors.
    pub async fn mounts_allowing_managed_key(&self, name: &str) -> Result<(Vec<String>, DocumentWrite)> {
        // The order document is read before the table, so that a list changed in between makes the write fail.
        let order = self.mount_order_write().await?;
        let mounts = load(&*self.store).await?;
        let lists = |mount: &&Arc<Mount>| mount.allowed_managed_keys.iter().any(|listed| listed == name);
        Ok((mounts.iter().filter(lists).map(|mount| mount.path.clone()).collect(), order))
    }

    /// Returns the write of the order document. Changes that two nodes must not make concurrently include this write: if
    /// two nodes enable different mounts, perhaps one inside the other, the second node gets a conflict and checks again.
    pub(super) async fn mount_order_write(&self) -> Result<DocumentWrite> {
        let (_, expected) = config_document::<IgnoredAny>(&*self.store, MOUNT_ORDER_DOCUMENT).await?;
        config_write(MOUNT_ORDER_DOCUMENT, expected, Some(&Map::<String, Value>::new()))
    }

    /// Reads the mount at `path` from the store, with the version of its document. The version is 0 for a built-in
    /// mount whose settings were never changed.
    pub(super) async fn stored_mount(&self, path: &str) -> Result<Option<(Mount, u64)>> {
        let wanted = mount_key(&format!("{}/", path.trim_matches('/')));
        let documents = self.store.documents(MOUNT_DOCUMENT_KIND).await?;
        if let Some(document) = documents.iter().find(|document| document.key == wanted) {
            return Ok(Some((document.parse()?, document.version)));
        }
        let mounts = self.mounts();
        Ok(mounts.get(path).filter(|mount| mount.is_built_in()).map(|mount| (Mount::clone(mount), 0)))
    }

    /// Reloads the stored mounts and publishes the mount table.
    pub(crate) async fn reload_mounts(&self) -> Result<()> {
        self.publish_mounts(load(&*self.store).await?);
        Ok(())
    }

    fn publish_mounts(&self, table: MountTable) {
        register_names(&table);
        self.mounts.store(Arc::new(table));
    }
}

/// Registers the paths of mounts with logs and metrics.
pub(crate) fn register_names(table: &MountTable) {
    for mount in table.iter() {
        let meter = mount.meter();
        if mount.kind == MountKind::Pki {
            meter.create_issuing_counters();
        }
    }
    telemetry::set_mount_paths(table.iter().map(|mount| (mount.id.0, mount.path.clone())));
}

/// Reads the stored mounts into a new mount table.
pub(crate) async fn load(store: &dyn AuthStore) -> Result<MountTable> {
    let documents = store.documents(MOUNT_DOCUMENT_KIND).await?;
    Ok(MountTable::new(documents.iter().map(Document::parse).collect::<Result<Vec<_>>>()?))
}

pub(super) fn mount_key(path: &str) -> DocumentKey {
    DocumentKey { mount: SYSTEM_MOUNT, kind: MOUNT_DOCUMENT_KIND, name: path.to_owned() }
}

pub(super) fn mount_document(mount: &Mount, expected: u64) -> Result<DocumentWrite> {
    let body = serde_json::to_vec(mount).map_err(Error::internal)?;
    Ok(DocumentWrite { key: mount_key(&mount.path), expected, body: Some(body) })
}

/// Validates a mount path, and returns it without slashes at its start and with exactly one at its end.
pub(super) fn canonical_path(path: &str) -> Result<String> {
    let path = path.trim_matches('/');
    let is_name = |segment: &str| {
        let plain = segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
        !segment.is_empty() && plain && segment != "." && segment != ".."
    };
    if path.len() > MAX_MOUNT_PATH_BYTES || !path.split('/').all(is_name) {
        return Err(Error::invalid(format!(
            "path: must be segments of letters, digits, '_', '.' and '-', joined by '/', with at most \
             {MAX_MOUNT_PATH_BYTES} bytes in all"
        )));
    }
    Ok(format!("{path}/"))
}

fn parse_kind(fields: &Fields) -> Result<MountKind> {
    match fields.text("type")? {
        Some(kind) if !kind.is_empty() => Ok(kind.into()),
        _ => Err(Error::invalid("backend type must be specified as a string")),
    }
}

/// Reads the JSON object in the field `name` as fields; an absent object has no fields.
fn parse_nested(fields: &Fields, name: &str) -> Result<Fields> {
    match fields.value(name) {
        None => Ok(Fields::default()),
        Some(object @ Value::Object(_)) => Fields::parse(object.to_string().as_bytes()),
        Some(_) => Err(Error::invalid(format!("{name}: must be an object"))),
    }
}

/// Rejects a new mount path that equals, contains or lies below the path of another mount.
pub(super) fn check_path_free(table: &MountTable, path: &str) -> Result<()> {
    if let Some((mount, _)) = table.route(path) {
        return Err(Error::invalid(format!("path is already in use at {}", mount.path)));
    }
    match table.iter().find(|mount| mount.path.starts_with(path)) {
        Some(mount) => Err(Error::invalid(format!("existing mount at {}", mount.path))),
        None => Ok(()),
    }
}

fn no_mount_error(path: &str) -> Error {
    let path = path.trim_matches('/');
    match path.strip_prefix("auth/") {
        Some(method) => Error::invalid(format!("No auth engine at {method}/")),
        None => Error::invalid(format!("No secret engine mount at {path}/")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::TestStore;
    use crate::clock::Clock;
    use crate::error::Kind;
    use serde_json::json;

    async fn open_auth() -> (Arc<Auth>, Arc<TestStore>) {
        let store = TestStore::open(&Clock::system()).await;
        (Auth::open(store.clone(), Clock::system()).await.unwrap(), store)
    }

    fn fields_of(value: Value) -> Fields {
        Fields::parse(value.to_string().as_bytes()).unwrap()
    }

    async fn enable_error(auth: &Auth, path: &str, value: Value) -> String {
        auth.mount_enable(path, &fields_of(value)).await.unwrap_err().text().to_owned()
    }

    async fn enable_pki(auth: &Auth, config: Value) -> Result<Arc<Mount>> {
        auth.mount_enable("pki", &fields_of(json!({ "type": "pki", "config": config }))).await
    }

    #[tokio::test]
    async fn mount_path_overlapping_another_mount_is_refused() {
        let (auth, _) = open_auth().await;
        let enabled = auth.mount_enable("/team/pki/", &fields_of(json!({ "type": "pki" }))).await.unwrap();
        assert_eq!(enabled.path, "team/pki/");
        assert!(enabled.accessor.starts_with("pki_") && enabled.accessor.len() == 12);
        let again = json!({ "type": "pki" });
        assert_eq!(enable_error(&auth, "team/pki", again.clone()).await, "path is already in use at team/pki/");
        assert_eq!(enable_error(&auth, "team/pki/x", again.clone()).await, "path is already in use at team/pki/");
        assert_eq!(enable_error(&auth, "team", again).await, "existing mount at team/pki/");
    }

    #[tokio::test]
    async fn reserved_mount_paths_and_types_are_refused() {
        let (auth, _) = open_auth().await;
        for path in ["sys", "sys/x", "auth/x", "cubbyhole", "identity", "audit"] {
            let text = enable_error(&auth, path, json!({ "type": "pki" })).await;
            assert!(text.starts_with("cannot mount \""), "{path}: {text}");
        }
        for path in ["a b", "a/../b", "", "a//b", "{{x}}", &"a".repeat(200)] {
            assert!(enable_error(&auth, path, json!({ "type": "pki" })).await.starts_with("path:"), "{path}");
        }
        assert_eq!(enable_error(&auth, "x", json!({})).await, "backend type must be specified as a string");
        assert_eq!(enable_error(&auth, "x", json!({ "type": "kv" })).await, "unknown mount type: \"kv\"");
        assert!(enable_error(&auth, "x", json!({ "type": "system" })).await.contains("not mountable"));
        for path in ["sys", "cubbyhole/", "identity", "auth/token", "auth", "auth/jwt", "/auth/none/", "audit/x"] {
            let text = auth.mount_disable(path).await.unwrap_err().text().to_owned();
            assert!(text.starts_with("cannot unmount \""), "{path}: {text}");
        }
        assert!(auth.auth_enable("x", &fields_of(json!({ "type": "token" })), None).await.is_err());
        assert!(auth.auth_disable("token").await.is_err());
        assert!(auth.mount_disable("absent").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn default_ttl_above_the_maximum_is_refused_naming_both() {
        let (auth, _) = open_auth().await;
        enable_pki(&auth, json!({ "max_lease_ttl": "10h" })).await.unwrap();
        for tune in [json!({ "default_lease_ttl": "11h" }), json!({ "default_lease_ttl": "9h", "max_lease_ttl": 60 })] {
            let text = auth.mount_tune("pki/", &fields_of(tune)).await.unwrap_err().text().to_owned();
            assert!(text.contains("default_lease_ttl") && text.contains("max_lease_ttl"), "{text}");
        }
        auth.mount_tune("pki", &fields_of(json!({ "default_lease_ttl": "9h" }))).await.unwrap();
        let tune = auth.mounts().get("pki").unwrap().tune_json();
        assert_eq!((&tune["default_lease_ttl"], &tune["max_lease_ttl"]), (&json!(32_400), &json!(36_000)));
        let text = auth.mount_tune("pki", &fields_of(json!({ "max_lease_ttl": "8h" }))).await.unwrap_err();
        assert!(text.text().contains("9h") && text.text().contains("8h"));
        let text = enable_pki(&auth, json!({ "default_lease_ttl": "769h" })).await.unwrap_err();
        assert!(text.text().contains("768h"));
        assert_eq!(
            auth.mount_tune("absent", &Fields::default()).await.unwrap_err().text(),
            "No secret engine mount at absent/"
        );
    }

    #[tokio::test]
    async fn mount_tuning_is_stored_and_reads_back() {
        let (auth, store) = open_auth().await;
        let config = json!({ "allowed_managed_keys": "One,two", "options": null, "force_no_cache": false });
        enable_pki(&auth, config).await.unwrap();
        let tune = json!({ "description": "web", "listing_visibility": "unauth", "allowed_managed_keys": ["k"],
            "passthrough_request_headers": ["X-Request-Id"], "options": { "a": "1", "b": "2" } });
        auth.mount_tune("pki", &fields_of(tune)).await.unwrap();
        auth.mount_tune("pki", &fields_of(json!({ "options": { "a": "" }, "force_no_cache": false }))).await.unwrap();
        let reopened = Auth::open(store, Clock::system()).await.unwrap();
        let mounts = reopened.mounts();
        let entry = mounts.get("pki").unwrap().to_json();
        assert_eq!(entry["config"]["allowed_managed_keys"], json!(["k"]));
        assert_eq!(entry["config"]["listing_visibility"], "unauth");
        assert_eq!((&entry["description"], &entry["options"]), (&json!("web"), &json!({ "b": "2" })));
        for bad in [
            json!({ "passthrough_request_headers": "x-request-id,Authorization" }),
            json!({ "listing_visibility": "all" }),
        ] {
            assert!(auth.mount_tune("pki", &fields_of(bad)).await.is_err());
        }
    }

    #[tokio::test]
    async fn mounts_allowing_a_key_are_returned_with_a_guarding_write() {
        let (auth, store) = open_auth().await;
        enable_pki(&auth, json!({ "allowed_managed_keys": "one,two" })).await.unwrap();
        assert_eq!(auth.mounts_allowing_managed_key("two").await.unwrap().0, ["pki/"]);
        let commit = async |write| store.commit(vec![AuthWrite::Document(write)]).await.map(drop);
        let changes = [
            json!({ "allowed_managed_keys": ["one"] }),
            json!({ "allowed_managed_keys": ["one", "four"] }),
            json!({ "allowed_managed_keys": [] }),
        ];
        for change in changes {
            let (paths, unchanged) = auth.mounts_allowing_managed_key("three").await.unwrap();
            assert_eq!(paths, [""; 0]);
            auth.mount_tune("pki", &fields_of(change)).await.unwrap();
            assert_eq!(commit(unchanged).await.unwrap_err().kind(), Kind::Conflict);
        }
        let (_, unchanged) = auth.mounts_allowing_managed_key("three").await.unwrap();
        auth.mount_enable("team", &fields_of(json!({ "type": "pki", "config": { "allowed_managed_keys": "three" } })))
            .await
            .unwrap();
        assert_eq!(commit(unchanged).await.unwrap_err().kind(), Kind::Conflict);
        let (paths, unchanged) = auth.mounts_allowing_managed_key("three").await.unwrap();
        assert_eq!(paths, ["team/"]);
        auth.mount_tune("pki", &fields_of(json!({ "description": "web" }))).await.unwrap();
        commit(unchanged).await.unwrap();
    }

    #[tokio::test]
    async fn tuned_ttl_distinguishes_zero_empty_and_system() {
        let (auth, _) = open_auth().await;
        enable_pki(&auth, json!({ "default_lease_ttl": "0s", "max_lease_ttl": "0s" })).await.unwrap();
        for (tune, default, max) in [
            (json!({ "default_lease_ttl": "1h", "max_lease_ttl": "87600h" }), 3600, 315_360_000),
            (json!({ "default_lease_ttl": "", "max_lease_ttl": "2h" }), 3600, 7200),
            (json!({ "default_lease_ttl": "system", "max_lease_ttl": "" }), 0, 7200),
            (json!({ "max_lease_ttl": 0 }), 0, 0),
        ] {
            auth.mount_tune("pki", &fields_of(tune)).await.unwrap();
            let mounts = auth.mounts();
            let mount = mounts.get("pki").unwrap();
            assert_eq!((mount.default_lease_ttl, mount.max_lease_ttl), (default, max));
        }
        for bad in [json!("-1h"), json!(-1), json!("soon")] {
            assert!(auth.mount_tune("pki", &fields_of(json!({ "max_lease_ttl": bad }))).await.is_err());
            let config = json!({ "type": "pki", "config": { "default_lease_ttl": bad } });
            assert!(enable_error(&auth, "other", config).await.contains("default_lease_ttl"));
        }
    }

    #[tokio::test]
    async fn disabled_mount_is_removed_from_table_and_storage() {
        let (auth, store) = open_auth().await;
        let mount = enable_pki(&auth, json!({})).await.unwrap();
        assert!(store.has_mount(mount.id).await);
        let other = Auth::open(store.clone(), Clock::system()).await.unwrap();
        assert_eq!(auth.mount_disable("pki/").await.unwrap().unwrap().id, mount.id);
        assert!(!store.has_mount(mount.id).await && auth.mounts().get("pki").is_none());
        assert!(other.mounts().get("pki").is_some());
        other.reload().await.unwrap();
        assert!(other.mounts().get("pki").is_none());
    }
}

//! A server over a store that fails on demand, and access to its database rows and its in-memory views.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::types::Value as Cell;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use signet::auth::Auth;
use signet::auth::mounts::MountKind;
use signet::documents::SYSTEM_MOUNT;
use signet::keys::managed::BackendType;
use signet::keys::{CloudServices, CloudSettings, Devices, ManagedKeys};
use signet::mounts::MountGrants;
use signet::pki::compromised::KeyHash;
use signet::pki::mount::view::MountView;
use time::macros::datetime;
use tokio::sync::OnceCell;

use super::double::Faults;
use crate::support::{Answer, App, Builder, no_module, wait_until};
use crate::v1::pki::external_policy::engine::{Engine, Reply, Template, consent_to};
use crate::v1::pki::external_policy::settings;

/// The rows of every table except `crl`: CRLs are derived from the others on demand.
pub type Rows = BTreeMap<String, BTreeSet<String>>;

/// Removed and added rows by table.
pub type Changes = BTreeMap<String, (usize, usize)>;

/// All rows of the embedded database. Waits until the rows of dropped mounts, removed in small steps, are gone.
pub fn rows(folder: &Path) -> Rows {
    let db = Connection::open_with_flags(folder.join("signet.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    wait_until("the removal of dropped mounts", || count("SELECT COUNT(*) FROM dropped_mount") == 0);
    let mut tables = db.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'crl'").unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    tables.into_iter().map(|table| (table.clone(), rows_of(&db, &table))).collect()
}

fn rows_of(db: &Connection, table: &str) -> BTreeSet<String> {
    let mut all = db.prepare(&format!("SELECT * FROM {table}")).unwrap();
    let columns = all.column_count();
    let cells = |row: &rusqlite::Row<'_>| {
        Ok((0..columns).map(|at| format!("{:?} ", row.get_unwrap::<_, Cell>(at))).collect::<String>())
    };
    all.query_map([], cells).unwrap().map(Result::unwrap).collect()
}

pub fn changes(before: &Rows, after: &Rows) -> Changes {
    let of = |(table, before): (&String, &BTreeSet<String>)| {
        let after = &after[table];
        let counts = (before.difference(after).count(), after.difference(before).count());
        (counts != (0, 0)).then(|| (table.clone(), counts))
    };
    before.iter().filter_map(of).collect()
}

pub fn assert_counters(folder: &Path) {
    let db = Connection::open_with_flags(folder.join("signet.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let pair = |sql: &str| db.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap();
    let counted = pair("SELECT COALESCE(SUM(certificates), 0), COALESCE(SUM(revocations), 0) FROM counter");
    let found = pair("SELECT (SELECT COUNT(*) FROM certificate), (SELECT COUNT(*) FROM revocation)");
    assert_eq!(counted, found, "counters and rows");
}

/// Like [`assert_counters`]; also asserts that no revocation is missing.
pub fn assert_counted(folder: &Path) {
    assert_counters(folder);
    let db = Connection::open_with_flags(folder.join("signet.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let pair = |sql: &str| db.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap();
    let (highest, count) = pair("SELECT COALESCE(MAX(seq), 0), COUNT(*) FROM revocation");
    assert_eq!(highest, count, "revocations are numbered without a gap");
}

pub struct Stage {
    pub app: App,
    pub faults: Arc<Faults>,
    policy: OnceCell<Engine>,
}

impl Stage {
    /// The clock is manual, so that a cached token expires only when the test moves the clock.
    pub async fn start() -> Self {
        let faults = Arc::new(Faults::default());
        let builder: Builder = App::builder().manual_clock(datetime!(2031-01-01 00:00 UTC)).faults(&faults);
        Self { app: builder.start().await, faults, policy: OnceCell::new() }
    }

    /// Like [`Stage::start`], with an issuer and a key named `root` and a role `web`.
    pub async fn with_authority() -> Self {
        let stage = Self::start().await;
        let root = json!({ "common_name": "Root", "issuer_name": "root", "key_name": "root", "key_type": "ec",
            "not_after": "2060-01-01T00:00:00Z" });
        stage.post("pki/root/generate/internal", root).await;
        let role = json!({ "allow_any_name": true, "key_type": "ec", "key_bits": 256, "ttl": "24h" });
        stage.post("pki/roles/web", role).await;
        stage
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        let answer = self.app.client.post(path, body).await;
        assert!(matches!(answer.status, 200 | 204), "{path}: {} {}", answer.status, answer.text);
        answer
    }

    /// Configures an external policy engine that approves every request and stores its certificate.
    pub async fn governed(&self) {
        let started = self.policy.get_or_init(|| async {
            let engine = Engine::start().await;
            let now = self.app.clock.now().unix_timestamp();
            engine.says(move |question| {
                let template = Template { not_before: now - 60, not_after: now + 3600, ..Template::default() };
                let mut consent = consent_to(question, &template);
                consent["store_certificate"] = json!(true);
                Reply::json(consent)
            });
            engine
        });
        self.post("pki/config/external-policy", settings(started.await)).await;
    }

    pub async fn stop(self) {
        self.app.stop().await;
        if let Some(engine) = self.policy.into_inner() {
            engine.stop().await;
        }
    }

    pub async fn issue(&self) -> String {
        let answer = self.post("pki/issue/web", json!({ "common_name": "a.test" })).await;
        answer.body["data"]["serial_number"].as_str().unwrap().to_owned()
    }

    /// Makes the next request read its token from the store.
    pub fn forget_tokens(&self) {
        self.app.clock.advance(Duration::from_secs(2));
    }

    pub fn folder(&self) -> PathBuf {
        self.app.folder().to_owned()
    }

    pub fn rows(&self) -> Rows {
        rows(self.app.folder())
    }

    /// Describes the differences between the in-memory views and the store.
    pub async fn differences(&self) -> Vec<String> {
        let shared = self.app.shared();
        let real = self.faults.real();
        let stored = Auth::open(Arc::clone(&real.auth), self.app.clock.clone()).await.unwrap();
        let mut found = Vec::new();
        let mut compare = |what: &str, served: Value, stored: Value| {
            if served != stored {
                found.push(format!("{what}: serves {served}, stores {stored}"));
            }
        };
        compare("policies and mounts", access(&shared.auth), access(&stored));
        let grants = Arc::new(MountGrants::new(Arc::clone(&stored)));
        let cloud = CloudServices::new(CloudSettings::default(), signet::clock::Clock::system()).unwrap();
        let devices = Devices::new(no_module(), cloud);
        let keys = ManagedKeys::open(Arc::clone(&real.managed_keys), devices, grants, signet::clock::Clock::system())
            .await
            .unwrap();
        compare("managed keys", managed(&shared.managed_keys), managed(&keys));
        let listed = real.pki.documents_of_kind(SYSTEM_MOUNT, "compromised-key").await.unwrap();
        let served: Vec<String> = shared.engine.compromised().hashes().iter().map(KeyHash::text).collect();
        let stored_hashes: Vec<&String> = listed.iter().map(|document| &document.key.name).collect();
        compare("compromised keys", json!(served), json!(stored_hashes));
        for mount in stored.mounts().iter().filter(|mount| mount.kind == MountKind::Pki) {
            if let Ok(authority) = shared.engine.authority(mount.id) {
                let documents = real.pki.documents(mount.id).await.unwrap();
                let view = MountView::load(mount.id, documents).unwrap();
                compare(&mount.path, shown(&authority.view()), shown(&view));
            }
        }
        found
    }

    pub async fn caught_up(&self) {
        let started = Instant::now();
        loop {
            let differences = self.differences().await;
            if differences.is_empty() {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{differences:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn access(auth: &Auth) -> Value {
    let mounts: Vec<_> = auth.mounts().iter().map(|mount| json!([mount.path, mount.id.0, mount.tune_json()])).collect();
    let policies: Vec<_> = auth.policy_names().iter().map(|name| auth.policy_read(name)).collect();
    let roles: Vec<_> = auth.token_roles().iter().map(|name| auth.token_role_read(name)).collect();
    let quotas: Vec<_> = auth.rate_limit_names().iter().map(|name| auth.rate_limit_read(name)).collect();
    let of_all = auth.quota_config();
    let roles = json!(roles);
    json!({ "mounts": mounts, "policies": policies, "token roles": roles, "quotas": quotas, "of all quotas": of_all })
}

fn managed(keys: &ManagedKeys) -> Value {
    let of = |name: String| keys.read(BackendType::Pkcs11, &name).map(|record| json!(*record));
    keys.names(BackendType::Pkcs11).into_iter().map(of).collect()
}

fn shown(view: &MountView) -> Value {
    let roles: BTreeMap<_, _> =
        view.role_names().map(|name| (name, view.role(name).map(|entry| json!(**entry.role)))).collect();
    let issuers = view.signers().map(|s| json!([s.issuer.record, s.issuer.version])).collect::<Vec<_>>();
    let keys: BTreeMap<_, _> = view.keys().map(|key| (&key.id, (&key.name, key.version))).collect();
    json!({
        "roles": roles,
        "issuers": issuers,
        "keys": keys,
        "default": [view.issuers_config.value, view.keys_config.value],
        "auto_tidy": view.auto_tidy.value,
        "urls": view.urls.value,
    })
}

//! Rate-limit quotas: limits on requests per client, by path or role.
//!
//! A quota applies to one role of a mount, one path, one mount, or all requests (`rule`). A request counts only against
//! the most specific quota that applies. A quota refers to its mount by accessor, so it still applies after the mount
//! is moved. All quotas are one stored document, compiled into one published snapshot ([`Quotas`]). Each node counts
//! separately. `limiter` has the limit of one quota, `rule` the configuration, `view` the snapshot.
//!
//! Requests are counted before the token is read. The projects API has a separate limit.

mod limiter;
mod rule;
mod view;

use std::sync::Arc;

use serde_json::{Value, json};

pub use self::limiter::RateDecision;
pub use self::rule::QuotaConfig;
use self::rule::RateLimit;
use self::view::StoredQuotas;
pub use self::view::{QuotaRequest, Quotas};
use super::Auth;
use super::mounts::{Mount, MountTable};
use super::store::{AuthStore, AuthWrite, config_document, config_write};
use crate::documents::retry_on_conflict;
use crate::error::{Error, Result};
use crate::fields::Fields;

const QUOTAS_DOCUMENT: &str = "quotas";
/// Maximum number of rate-limit quotas.
const MAX_QUOTAS: usize = 256;

/// Reads the stored quotas into a new snapshot. Quotas that are the same in the snapshot `before` keep their token
/// buckets.
pub(super) async fn load(store: &dyn AuthStore, before: Option<&Quotas>) -> Result<Quotas> {
    let (stored, version) = config_document::<StoredQuotas>(store, QUOTAS_DOCUMENT).await?;
    Ok(Quotas::compile(stored.unwrap_or_default(), version, before))
}

impl Auth {
    /// Returns the current snapshot of the quotas; `None` if there are no quotas.
    pub fn quotas(&self) -> Option<Arc<Quotas>> {
        let quotas = self.quotas.load();
        (!quotas.is_empty()).then(|| Arc::clone(&quotas))
    }

    /// Returns the role that the login request `sent` to `mount` names; `""` if the request names no role.
    pub fn login_role(&self, mount: &Mount, sent: &Fields) -> String {
        self.logins.any_mount(mount.id).and_then(|open| open.login_role_name(sent)).unwrap_or_default()
    }

    /// Returns the names of all rate-limit quotas, sorted.
    pub fn rate_limit_names(&self) -> Vec<String> {
        let quotas = self.quotas.load();
        let table = self.mounts();
        let existing = quotas.stored.rate_limits.iter().filter(|(_, rule)| mount_exists(rule, &table));
        existing.map(|(name, _)| name.clone()).collect()
    }

    /// Returns a rate-limit quota with its settings, as shown by the API; `interval` and `block_interval` are in
    /// seconds.
    pub fn rate_limit_read(&self, name: &str) -> Option<Value> {
        let quotas = self.quotas.load();
        let table = self.mounts();
        let rule = quotas.stored.rate_limits.get(name).filter(|rule| mount_exists(rule, &table))?;
        let mount = find_mount(rule, &table).map_or("", |mount| &mount.path);
        Some(json!({
            "name": name,
            "type": "rate-limit",
            "path": format!("{mount}{}", rule.scope.below),
            "role": rule.scope.role,
            "rate": rule.rate,
            "interval": rule.interval,
            "block_interval": rule.block_interval,
            "inheritable": rule.inheritable,
        }))
    }

    /// Creates a rate-limit quota, or changes the existing quota. Settings that are not given stay unchanged. The
    /// settings are `path`, `role`, `rate`, `interval`, `block_interval`, `inheritable`.
    ///
    /// # Errors
    /// `Invalid` for an invalid setting, for a scope that another quota has, and for too many quotas; store errors.
    pub async fn rate_limit_write(&self, name: &str, fields: &Fields) -> Result<()> {
        self.quotas_change(|stored, table| {
            let fresh = || RateLimit { inheritable: true, ..RateLimit::default() };
            let known = stored.rate_limits.get(name).cloned().unwrap_or_else(fresh);
            let rule = known.merged(fields, resolve_mount(fields, table)?)?;
            let mount = find_mount(&rule, table).map(Arc::as_ref);
            let rule = rule.with_validated_role(mount)?;
            let same = |(other, of): &(&String, &RateLimit)| *other != name && of.scope == rule.scope;
            if let Some((other, _)) = stored.rate_limits.iter().find(same) {
                let text = format!("quota rule with similar properties exists under the name {other:?}");
                return Err(Error::invalid(text));
            }
            if stored.rate_limits.len() >= MAX_QUOTAS && !stored.rate_limits.contains_key(name) {
                return Err(Error::invalid(format!(
                    "name: limit of {MAX_QUOTAS} quotas reached; delete a quota first"
                )));
            }
            stored.rate_limits.insert(name.to_owned(), rule);
            Ok(())
        })
        .await
    }

    /// Deletes a rate-limit quota; succeeds if the quota does not exist.
    ///
    /// # Errors
    /// Store errors.
    pub async fn rate_limit_delete(&self, name: &str) -> Result<()> {
        self.quotas_change(|stored, _| {
            stored.rate_limits.remove(name);
            Ok(())
        })
        .await
    }

    /// Returns the settings that all quotas share.
    pub fn quota_config(&self) -> QuotaConfig {
        self.quotas.load().config().clone()
    }

    /// Applies `change` to the settings that all quotas share.
    ///
    /// # Errors
    /// The errors of `change`; store errors.
    pub async fn quota_config_write(&self, change: impl Fn(&mut QuotaConfig) -> Result<()>) -> Result<()> {
        self.quotas_change(|stored, _| change(&mut stored.config)).await
    }

    /// Removes quotas of deleted mounts, and full buckets.
    pub(super) async fn sweep_quotas(&self) -> Result<()> {
        let quotas = self.quotas.load_full();
        let table = self.mounts();
        quotas.remove_full_buckets(self.clock.now());
        if quotas.stored.rate_limits.values().all(|rule| mount_exists(rule, &table)) {
            return Ok(());
        }
        self.quotas_change(|_, _| Ok(())).await
    }

    pub(super) async fn reload_quotas(&self) -> Result<()> {
        let before = self.quotas.load_full();
        self.quotas.store(Arc::new(load(&*self.store, Some(&before)).await?));
        Ok(())
    }

    /// Changes the stored quotas with `change`, deletes the quotas of deleted mounts, and publishes the result.
    async fn quotas_change(&self, change: impl Fn(&mut StoredQuotas, &MountTable) -> Result<()>) -> Result<()> {
        let _one_writer = self.acquire_write_permit().await?;
        let attempt = async || {
            // The quotas are read before the mount table, so that the table contains every mount to which these quotas
            // refer.
            self.reload_quotas().await?;
            self.reload_mounts().await?;
            let quotas = self.quotas.load_full();
            let table = self.mounts();
            let mut stored = quotas.stored.clone();
            stored.rate_limits.retain(|_, rule| mount_exists(rule, &table));
            change(&mut stored, &table)?;
            if stored == quotas.stored {
                return Ok(());
            }
            self.commit_quotas(&quotas, stored).await
        };
        retry_on_conflict("quotas", attempt).await
    }

    async fn commit_quotas(&self, before: &Quotas, stored: StoredQuotas) -> Result<()> {
        let write = config_write(QUOTAS_DOCUMENT, before.version, Some(&stored))?;
        self.commit_or_reload(vec![AuthWrite::Document(write)]).await?;
        self.quotas.store(Arc::new(Quotas::compile(stored, before.version + 1, Some(before))));
        Ok(())
    }
}

/// Returns the mount that the field `path` names, and the rest of that path; `None` for an empty field, which means all
/// requests.
fn resolve_mount<'t, 'f>(fields: &'f Fields, table: &'t MountTable) -> Result<Option<(&'t Mount, &'f str)>> {
    let path = fields.str("path")?.unwrap_or_default().trim_matches('/');
    if path.is_empty() {
        return Ok(None);
    }
    if path.strip_suffix('*').unwrap_or(path).contains('*') {
        return Err(Error::invalid("path: '*' is allowed only at the end"));
    }
    let nothing = || Error::invalid("invalid mount path: nothing is mounted there");
    let (mount, below) = table.route(path).ok_or_else(nothing)?;
    Ok(Some((&**mount, below)))
}

fn find_mount<'t>(rule: &RateLimit, table: &'t MountTable) -> Option<&'t Arc<Mount>> {
    let accessor = rule.scope.mount.as_ref()?;
    table.iter().find(|mount| mount.accessor == *accessor)
}

/// `true` if the quota applies to all requests or its mount exists.
fn mount_exists(rule: &RateLimit, table: &MountTable) -> bool {
    rule.scope.mount.is_none() || find_mount(rule, table).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::TestStore;
    use crate::clock::Clock;
    use std::net::IpAddr;
    use time::macros::datetime;

    async fn open_auth() -> Arc<Auth> {
        let clock = Clock::manual(datetime!(2030-01-01 00:00 UTC));
        let auth = Auth::open(TestStore::open(&clock).await, clock).await.unwrap();
        let fields = Fields::parse(br#"{"type":"pki"}"#).unwrap();
        auth.mount_enable("pki", &fields).await.unwrap();
        auth.mount_enable("team/ca", &fields).await.unwrap();
        auth
    }

    fn fields_of(value: Value) -> Fields {
        Fields::parse(value.to_string().as_bytes()).unwrap()
    }

    fn quota_of_path(path: &str, rate: f64) -> Fields {
        fields_of(json!({ "path": path, "rate": rate }))
    }

    fn quota_of_role(path: &str, role: &str, rate: f64) -> Fields {
        fields_of(json!({ "path": path, "role": role, "rate": rate }))
    }

    async fn quota_write_error(auth: &Auth, name: &str, fields: Fields) -> String {
        auth.rate_limit_write(name, &fields).await.unwrap_err().text().to_owned()
    }

    /// Returns the limit of the quota that a request counts against; 0 for no quota.
    fn applied_limit(auth: &Auth, path: &str, role: &str) -> u64 {
        let table = auth.mounts();
        let mount = table.route(path).map(|(mount, below)| (&**mount, below));
        let address = Some(IpAddr::from([192, 0, 2, 1]));
        let request = QuotaRequest { path, mount, role, address };
        auth.quotas().and_then(|quotas| quotas.count_request(&request, auth.clock.now())).map_or(0, |taken| taken.limit)
    }

    #[tokio::test]
    async fn only_the_most_specific_quota_is_charged() {
        let auth = open_auth().await;
        assert!(auth.quotas().is_none());
        for (name, path, rate) in [
            ("everything", "", 90.0),
            ("mount", "pki/", 80.0),
            ("begins", "pki/is*", 70.0),
            ("longer", "pki/issue/*", 60.0),
            ("exact", "/pki/issue/web/", 50.0),
            ("sys", "sys", 40.0),
        ] {
            auth.rate_limit_write(name, &quota_of_path(path, rate)).await.unwrap();
        }
        auth.rate_limit_write("role", &quota_of_role("pki", "ops", 10.0)).await.unwrap();
        for (path, role, rate) in [
            ("team/ca/issue/web", "", 90),
            ("nothing/here", "", 90),
            ("pki/roles/web", "", 80),
            ("pki/issuers", "", 70),
            ("pki/issue/other", "other", 60),
            ("pki/issue/web", "web", 50),
            ("pki/issue/ops", "ops", 10),
            ("pki/issue/OPS", "OPS", 60),
            ("sys/mounts", "", 40),
            ("sys/health", "", 0),
        ] {
            assert_eq!(applied_limit(&auth, path, role), rate, "{path}");
        }
        let table = auth.mounts();
        let asks = |path: &str| auth.quotas().unwrap().depends_on_role(table.get(path).unwrap());
        assert!(asks("pki") && !asks("team/ca"));
        auth.rate_limit_delete("everything").await.unwrap();
        assert_eq!(applied_limit(&auth, "team/ca/issue/web", ""), 0);
    }

    #[tokio::test]
    async fn quota_reads_back_and_a_partial_write_leaves_the_rest() {
        let auth = open_auth().await;
        let whole = fields_of(json!({ "path": "pki/issue/*", "rate": 2.5, "block_interval": 300 }));
        auth.rate_limit_write("q", &whole).await.unwrap();
        let shown = json!({ "name": "q", "type": "rate-limit", "path": "pki/issue/*", "role": "", "rate": 2.5,
            "interval": 1, "block_interval": 300, "inheritable": false });
        assert_eq!(auth.rate_limit_read("q"), Some(shown));
        auth.rate_limit_write("q", &fields_of(json!({ "rate": 7.0 }))).await.unwrap();
        let shown = auth.rate_limit_read("q").unwrap();
        assert_eq!(
            (&shown["rate"], &shown["path"], &shown["block_interval"]),
            (&json!(7.0), &json!("pki/issue/*"), &json!(300))
        );
        auth.rate_limit_write("all", &quota_of_path("", 1.0)).await.unwrap();
        assert_eq!(auth.rate_limit_read("all").unwrap()["inheritable"], json!(true));
        assert_eq!(auth.rate_limit_names(), ["all", "q"]);
        // A node that starts on this store loads the same quotas.
        let other = load(&*auth.store, None).await.unwrap();
        assert_eq!(other.stored, auth.quotas().unwrap().stored);
    }

    #[tokio::test]
    async fn invalid_quotas_are_refused_with_their_rule() {
        let auth = open_auth().await;
        auth.rate_limit_write("first", &quota_of_path("pki", 1.0)).await.unwrap();
        auth.rate_limit_write("role", &quota_of_role("pki", "web", 1.0)).await.unwrap();
        for (fields, text) in [
            (quota_of_path("none/x", 1.0), "invalid mount path: nothing is mounted there"),
            (quota_of_path("pki/*/x", 1.0), "path: '*' is allowed only at the end"),
            (quota_of_path("pki", 1.0), "quota rule with similar properties exists under the name \"first\""),
            (quota_of_role("pki", "web", 1.0), "quota rule with similar properties exists under the name \"role\""),
            (quota_of_path("pki", -1.0), "'rate' is invalid"),
            (
                quota_of_role("pki/issue", "web", 1.0),
                "Quotas cannot contain both a path suffix and a role: path must name a mount",
            ),
            (quota_of_role("sys", "web", 1.0), "Mount path \"sys/\" does not support use with role-based quotas"),
            (
                quota_of_role("auth/token", "web", 1.0),
                "Mount path \"auth/token/\" does not support use with role-based quotas",
            ),
            (quota_of_role("", "web", 1.0), "role: path must name a mount that has roles"),
        ] {
            assert_eq!(quota_write_error(&auth, "q", fields).await, text);
        }
        assert_eq!(quota_write_error(&auth, "q", fields_of(json!({ "path": "team/ca" }))).await, "'rate' is invalid");
        assert_eq!(auth.rate_limit_names(), ["first", "role"]);
        auth.rate_limit_write("first", &quota_of_path("pki", 2.0)).await.unwrap();
    }

    #[tokio::test]
    async fn number_of_quotas_is_limited() {
        let auth = open_auth().await;
        for n in 0..MAX_QUOTAS {
            auth.rate_limit_write(&format!("q{n}"), &quota_of_path(&format!("pki/p{n}"), 1.0)).await.unwrap();
        }
        assert!(quota_write_error(&auth, "more", quota_of_path("pki/more", 1.0)).await.contains("256 quotas"));
        auth.rate_limit_write("q0", &quota_of_path("pki/p0", 2.0)).await.unwrap();
    }

    #[tokio::test]
    async fn quotas_of_a_mount_are_deleted_with_the_mount() {
        let auth = open_auth().await;
        auth.rate_limit_write("q", &quota_of_path("pki", 1.0)).await.unwrap();
        auth.rate_limit_write("all", &quota_of_path("", 1.0)).await.unwrap();
        auth.mount_disable("pki").await.unwrap();
        assert_eq!((auth.rate_limit_names(), auth.rate_limit_read("q")), (vec!["all".to_owned()], None));
        auth.sweep_quotas().await.unwrap();
        let stored = load(&*auth.store, None).await.unwrap().stored;
        assert_eq!(stored.rate_limits.keys().collect::<Vec<_>>(), ["all"]);
        auth.mount_enable("pki", &Fields::parse(br#"{"type":"pki"}"#).unwrap()).await.unwrap();
        assert_eq!(auth.rate_limit_names(), ["all"], "another mount at the same path is another one");
    }

    #[tokio::test]
    async fn reload_keeps_buckets_of_unchanged_quotas() {
        let auth = open_auth().await;
        auth.rate_limit_write("q", &quota_of_path("pki", 2.0)).await.unwrap();
        auth.rate_limit_write("other", &quota_of_path("team/ca", 2.0)).await.unwrap();
        let remaining = |path: &str| {
            let table = auth.mounts();
            let mount = table.route(path).map(|(mount, below)| (&**mount, below));
            let request = QuotaRequest { path, mount, role: "", address: None };
            auth.quotas().unwrap().count_request(&request, auth.clock.now()).unwrap().remaining
        };
        assert_eq!((remaining("pki/ca"), remaining("team/ca/ca")), (1, 1));
        auth.rate_limit_write("other", &quota_of_path("team/ca", 3.0)).await.unwrap();
        auth.reload().await.unwrap();
        assert_eq!((remaining("pki/ca"), remaining("team/ca/ca")), (0, 2));
    }

    /// Counts a request of each client for `path` against its quota, and returns the number of rejected requests.
    fn count_refused(auth: &Auth, path: &str, clients: impl Iterator<Item = IpAddr>) -> usize {
        let quotas = auth.quotas().unwrap();
        let table = auth.mounts();
        let mount = table.route(path).map(|(mount, below)| (&**mount, below));
        let request = |client| QuotaRequest { path, mount, role: "", address: Some(client) };
        clients.filter(|client| !quotas.count_request(&request(*client), auth.clock.now()).unwrap().granted).count()
    }

    #[tokio::test]
    async fn quota_tracks_all_its_clients_despite_many_other_quotas() {
        let auth = open_auth().await;
        for n in 0..200 {
            auth.rate_limit_write(&format!("q{n}"), &quota_of_path(&format!("team/ca/p{n}"), 1.0)).await.unwrap();
        }
        let slow = fields_of(json!({ "path": "pki/ca", "rate": 1, "interval": 600 }));
        auth.rate_limit_write("slow", &slow).await.unwrap();
        let clients = || (0..4_000_u32).map(|n| IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
        assert_eq!(count_refused(&auth, "pki/ca", clients()), 0);
        assert_eq!(count_refused(&auth, "pki/ca", clients()), 4_000);
    }
}

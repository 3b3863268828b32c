//! Stored policies, and the snapshot of all policies by which requests are authorized.
//!
//! Each policy is a stored document. A change is published in this node's snapshot before it is acknowledged. A *union*
//! is the compiled combination of all policies of a caller; [`union_cache`] caches unions.

mod union_cache;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(super) use self::union_cache::VersionedTemplateValues;
use self::union_cache::{UnionCache, UnionKey};
use super::policy::{Acl, Policy, Spelling};
use super::store::{AuthStore, AuthWrite};
use super::{Auth, ROOT_POLICY, UnionCompiler};
use crate::clock::{Clock, Time, format_rfc3339, parse_rfc3339};
use crate::documents::{Document, DocumentKey, DocumentWrite, SYSTEM_MOUNT, retry_on_conflict};
use crate::error::{Error, Kind, Result, Warnings};
use crate::fields::{Fields, has_invisible};
use crate::rationing::{QueueCaller, cpu};
use crate::templates::TemplateValues;

const POLICY_DOCUMENT_KIND: &str = "policy";
/// Name of the policy that every token has unless its creator excludes the policy.
pub(crate) const DEFAULT_POLICY: &str = "default";
/// Name of the built-in policy of wrapping tokens. A wrapping token can be used once to fetch a wrapped response.
pub(super) const WRAPPING_POLICY_NAME: &str = "response-wrapping";
const WRAPPING_POLICY_TEXT: &str = "path \"cubbyhole/response\" { capabilities = [\"create\", \"read\"] }\n\
                             path \"sys/wrapping/unwrap\" { capabilities = [\"update\"] }\n";
static WRAPPING_POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::parse(WRAPPING_POLICY_TEXT).unwrap_or_default());
pub(crate) use crate::fields::MAX_NAME_LEN;
/// Maximum length in bytes of a policy text that a client sends.
const MAX_POLICY_BYTES: usize = 256 << 10;
/// If policy texts together have more than this number of bytes, they are parsed, compiled and searched in the queue
/// for CPU-bound work.
const MAX_INLINE_PARSE_BYTES: usize = 64 << 10;
/// Maximum total length of all policy texts in bytes. Every node holds all texts in memory.
const MAX_TOTAL_POLICY_BYTES: usize = 64 << 20;

#[derive(PartialEq, Serialize, Deserialize)]
struct StoredPolicy {
    text: String,
    #[serde(with = "super::instant")]
    modified: Time,
    #[serde(default)]
    cas_required: bool,
    #[serde(default, with = "super::instant::option")]
    expiration: Option<Time>,
}

struct PolicyEntry {
    stored: StoredPolicy,
    version: u64,
    policy: Policy,
}

/// An immutable snapshot of all stored policies.
pub(super) struct Policies {
    generation: u64,
    by_name: BTreeMap<String, Arc<PolicyEntry>>,
    unions: UnionCache,
}

impl Policies {
    fn new(generation: u64, by_name: BTreeMap<String, Arc<PolicyEntry>>) -> Self {
        Self { generation, by_name, unions: UnionCache::default() }
    }

    /// Returns the number of this snapshot, which increases with each published snapshot.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the compiled union of the named policies, with templates filled by values of `filler`. Names without a
    /// policy are ignored. A long union is compiled in the queue for CPU-bound work, so callers with short unions do
    /// not wait for it.
    ///
    /// # Errors
    /// `Internal` when the compilation panics.
    pub(super) async fn acl(
        self: &Arc<Self>,
        names: &[String],
        filler: Option<Arc<dyn VersionedTemplateValues + Send + Sync>>,
        clock: &Clock,
        compiler: &UnionCompiler,
    ) -> Result<Arc<Acl>> {
        let now = clock.now();
        let has_templates =
            |name: &String| self.live_entry(name, now).is_some_and(|entry| entry.policy.has_templates());
        let filler = filler.filter(|_| names.iter().any(has_templates));
        let key = UnionKey { names: names.into(), stamp: filler.as_ref().map(|filler| filler.version_stamp().into()) };
        if let Some(acl) = self.unions.get(&key, now) {
            return Ok(acl);
        }
        let policies = Arc::clone(self);
        let clock = clock.clone();
        // Another call may have compiled and cached the union while this call waited.
        let compile = move || {
            let unions = &policies.unions;
            let now = clock.now();
            unions.get(&key, now).unwrap_or_else(|| {
                let acl = policies.compile(&key.names, filler.as_deref(), now);
                unions.insert(key, acl)
            })
        };
        compiler.run(self.have_long_texts(names, now), compile).await
    }

    /// Returns `true` if a cache of unions was emptied since the last call. The token cache should then drop old
    /// callers too, because they keep the removed unions in memory.
    pub(super) fn take_emptied_flag(&self) -> bool {
        self.unions.take_emptied_flag()
    }

    pub(super) fn have_long_texts(&self, names: &[String], now: Time) -> bool {
        let texts = names.iter().filter_map(|name| self.live_entry(name, now)).map(|entry| entry.stored.text.len());
        texts.sum::<usize>() > MAX_INLINE_PARSE_BYTES
    }

    fn compile(
        &self,
        names: &[String],
        filler: Option<&(dyn VersionedTemplateValues + Send + Sync)>,
        now: Time,
    ) -> Acl {
        let ends = names.iter().filter_map(|name| self.live_entry(name, now)?.stored.expiration).min();
        let identity = filler.map(|filler| filler as &dyn TemplateValues);
        Acl::compile(self.existing_policies(names, now).map(|(_, policy)| policy), identity, now)
            .with_validity_until(ends)
    }

    /// `true` if the named policies are the same in both snapshots.
    pub(super) fn have_same_policies(&self, other: &Self, names: &[String]) -> bool {
        let same = |name: &String| match (self.by_name.get(name), other.by_name.get(name)) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        names.iter().all(same)
    }

    fn has_same_entries(&self, other: &Self) -> bool {
        let pairs = self.by_name.iter().zip(&other.by_name);
        self.by_name.len() == other.by_name.len()
            && pairs.into_iter().all(|(one, other)| one.0 == other.0 && Arc::ptr_eq(one.1, other.1))
    }

    fn entry(&self, name: &str) -> Option<&PolicyEntry> {
        self.by_name.get(name).map(Arc::as_ref)
    }

    /// Checks that the total length of all policy texts stays within the limit if the policy `name` gets this text.
    fn check_total_size(&self, name: &str, text: &str) -> Result<()> {
        let others = self.by_name.iter().filter(|(other, _)| *other != name);
        if others.map(|(_, entry)| entry.stored.text.len()).sum::<usize>() + text.len() > MAX_TOTAL_POLICY_BYTES {
            return Err(Error::invalid(format!(
                "policy: all policy texts together would exceed {MAX_TOTAL_POLICY_BYTES} bytes; delete unused policies"
            )));
        }
        Ok(())
    }

    /// Returns the policies with these names, each with its name. Omits policies that do not exist or have expired. The
    /// built-in `response-wrapping` always exists.
    pub(super) fn existing_policies<'p>(
        &'p self,
        names: &'p [String],
        now: Time,
    ) -> impl Iterator<Item = (&'p str, &'p Policy)> {
        let policy = move |name: &str| match name {
            WRAPPING_POLICY_NAME => Some(&*WRAPPING_POLICY),
            name => self.live_entry(name, now).map(|entry| &entry.policy),
        };
        names.iter().filter_map(move |name| Some((&name[..], policy(name)?)))
    }

    fn live_entry(&self, name: &str, now: Time) -> Option<&PolicyEntry> {
        self.by_name.get(name).map(Arc::as_ref).filter(|entry| entry.stored.expiration.is_none_or(|end| now < end))
    }
}

/// Stores the initial `default` policy if the store has none.
pub(super) async fn ensure_default_policy(store: &dyn AuthStore, clock: &Clock) -> Result<()> {
    if store.documents(POLICY_DOCUMENT_KIND).await?.iter().any(|document| document.key.name == DEFAULT_POLICY) {
        return Ok(());
    }
    let text = include_str!("policy/default.hcl").to_owned();
    let stored = StoredPolicy { text, modified: clock.now(), cas_required: false, expiration: None };
    match store.commit(vec![document_write(DEFAULT_POLICY, 0, Some(&stored))?]).await {
        // Another node stored the policy first.
        Err(error) if error.kind() == Kind::Conflict => Ok(()),
        other => other.map(drop),
    }
}

/// Reads all policies from the store into a new snapshot that follows `before`. Policies that did not change are not
/// parsed again. There may be many, so they are parsed in the queue for CPU-bound work, on behalf of the server,
/// because the requests of all callers wait for the result.
pub(super) async fn load(store: &dyn AuthStore, before: Option<Arc<Policies>>) -> Result<Policies> {
    let documents = store.documents(POLICY_DOCUMENT_KIND).await?;
    let read = move || {
        let known = |name: &str| before.as_ref()?.by_name.get(name);
        let by_name = documents.into_iter().map(|document| read_entry(document, known)).collect::<Result<_>>()?;
        Ok(Policies::new(before.as_ref().map_or(0, |before| before.generation + 1), by_name))
    };
    cpu::run_as(QueueCaller::server("policies"), read).await?
}

fn read_entry<'k>(
    document: Document,
    known: impl Fn(&str) -> Option<&'k Arc<PolicyEntry>>,
) -> Result<(String, Arc<PolicyEntry>)> {
    let stored: StoredPolicy = document.parse()?;
    let name = document.key.name;
    let version = document.version;
    if let Some(same) = known(&name).filter(|known| known.version == version && known.stored == stored) {
        let same = Arc::clone(same);
        return Ok((name, same));
    }
    let policy = Policy::parse(&stored.text).map_err(Error::internal)?;
    Ok((name, Arc::new(PolicyEntry { stored, version, policy })))
}

fn document_write(name: &str, expected: u64, stored: Option<&StoredPolicy>) -> Result<AuthWrite> {
    let body = stored.map(serde_json::to_vec).transpose().map_err(Error::internal)?;
    let key = DocumentKey { mount: SYSTEM_MOUNT, kind: POLICY_DOCUMENT_KIND, name: name.to_owned() };
    Ok(AuthWrite::Document(DocumentWrite { key, expected, body }))
}

/// Decodes and parses a policy text that a client sent. A long text is parsed in the queue for CPU-bound work.
async fn parse_text(sent: String) -> Result<(String, Policy)> {
    let read = |sent: String| {
        let text = Policy::text_of(&sent);
        Policy::parse(&text).map(|policy| (text, policy))
    };
    cpu::run_if(sent.len() > MAX_INLINE_PARSE_BYTES, move || read(sent)).await?
}

impl Auth {
    /// Returns the names of all policies, sorted, including `root`.
    pub fn policy_names(&self) -> Vec<String> {
        let policies = self.policies.load();
        let now = self.clock.now();
        let stored = policies.by_name.keys().filter(|name| policies.live_entry(name, now).is_some());
        let mut names: Vec<String> = stored.cloned().chain([ROOT_POLICY.to_owned()]).collect();
        names.sort();
        names
    }

    /// `true` if the policy exists and has not expired.
    pub(super) fn policy_exists(&self, name: &str) -> bool {
        name == ROOT_POLICY || self.policies.load().live_entry(name, self.clock.now()).is_some()
    }

    /// Returns a policy as shown by the API: `name`, `policy` (its text), `version`, `modified`, `cas_required`, and
    /// `expiration` if it has one. `name` is first converted to its canonical spelling, as in a write.
    pub fn policy_read(&self, name: &str) -> Option<Value> {
        let name = fold_policy_name(name);
        match name.as_str() {
            ROOT_POLICY => return Some(json!({ "name": ROOT_POLICY, "policy": "" })),
            WRAPPING_POLICY_NAME => {
                return Some(json!({ "name": WRAPPING_POLICY_NAME, "policy": WRAPPING_POLICY_TEXT }));
            }
            _ => {}
        }
        let policies = self.policies.load();
        let PolicyEntry { stored, version, .. } = policies.live_entry(&name, self.clock.now())?;
        let mut shown = json!({
            "name": name,
            "policy": stored.text,
            "version": version,
            "modified": format_rfc3339(stored.modified),
            "cas_required": stored.cas_required,
        });
        if let Some(end) = stored.expiration {
            shown["expiration"] = format_rfc3339(end).into();
        }
        Some(shown)
    }

    /// Creates or replaces a policy. Reads the fields `policy` (or the deprecated `rules`), `ttl` or `expiration`,
    /// `cas`, `cas_required`. The name is converted to its canonical spelling. Returns warnings.
    ///
    /// # Errors
    /// `Invalid` in these cases: the policy `name` cannot be written; the text cannot be parsed; the expiration is in
    /// the past, or is given for `default`; `cas` is required but missing, or differs from the stored version.
    pub async fn policy_write(&self, name: &str, fields: &Fields) -> Result<Warnings> {
        let requested_name = name;
        let name = validate_policy_name(name)?;
        let mut warnings = Warnings::default();
        if requested_name != name {
            warnings.add(Self::renamed_policy_warning(&name));
        }
        let mut text = fields.text_within("policy", MAX_POLICY_BYTES)?.unwrap_or_default();
        if text.trim().is_empty() {
            text = fields.text_within("rules", MAX_POLICY_BYTES)?.unwrap_or_default();
            if text.trim().is_empty() {
                return Err(Error::invalid("'policy' parameter not supplied or empty"));
            }
            warnings.add("'rules' is deprecated, please use 'policy' instead".to_owned());
        }
        let (text, policy) = parse_text(text).await?;
        let expiration = self.expiration_of(&name, fields)?;
        let cas = fields.int("cas")?;
        let cas_required = fields.bool("cas_required")?;
        let _one_writer = self.acquire_write_permit().await?;
        let attempt = async || {
            self.reload_policies().await?;
            let policies = self.policies.load_full();
            let known = policies.entry(&name);
            // To clients, an expired policy does not exist, but its document stays in the store until a sweep deletes
            // it.
            let live = policies.live_entry(&name, self.clock.now());
            check_cas(live, cas)?;
            policies.check_total_size(&name, &text)?;
            let cas_required = cas_required.unwrap_or(live.is_some_and(|entry| entry.stored.cas_required));
            let stored = StoredPolicy { text: text.clone(), modified: self.clock.now(), cas_required, expiration };
            let version = known.map_or(0, |entry| entry.version);
            let unit = vec![document_write(&name, version, Some(&stored))?];
            self.commit_policy(unit, &name, Some(PolicyEntry { stored, version: version + 1, policy: policy.clone() }))
                .await
        };
        retry_on_conflict(format_args!("policy {name:?}"), attempt).await?;
        Ok(warnings)
    }

    /// Returns the warning that a policy is stored under its canonical spelling `name` instead of the requested
    /// spelling.
    pub fn renamed_policy_warning(name: &str) -> String {
        format!("the policy is stored as {name:?}: names are lower case, without leading or trailing blanks")
    }

    /// Deletes a policy; succeeds if the policy does not exist.
    ///
    /// # Errors
    /// `Invalid` for `default`, `root` and `response-wrapping`.
    pub async fn policy_delete(&self, name: &str) -> Result<()> {
        let name = validate_policy_name(name)
            .map_err(|_| Error::invalid(format!("cannot delete {:?} policy", fold_policy_name(name))))?;
        if name == DEFAULT_POLICY {
            return Err(Error::invalid("cannot delete \"default\" policy"));
        }
        let _one_writer = self.acquire_write_permit().await?;
        let attempt = async || {
            self.reload_policies().await?;
            let Some(version) = self.policies.load().entry(&name).map(|entry| entry.version) else { return Ok(()) };
            self.commit_policy(vec![document_write(&name, version, None)?], &name, None).await
        };
        retry_on_conflict(format_args!("policy {name:?}"), attempt).await
    }

    pub(super) async fn sweep_policies(&self) -> Result<()> {
        let now = self.clock.now();
        let policies = self.policies.load_full();
        let ended = |name: &&String| policies.live_entry(name, now).is_none() && *name != DEFAULT_POLICY;
        for name in policies.by_name.keys().filter(ended) {
            let _one_writer = self.acquire_write_permit().await?;
            let unit = vec![document_write(name, policies.by_name[name].version, None)?];
            match self.commit_policy(unit, name, None).await {
                // A client wrote the policy again in the meantime.
                Err(error) if error.kind() == Kind::Conflict => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Commits a change of the policy `name`, and publishes a snapshot in which the policy is replaced by `now`, or
    /// removed if `now` is `None`. Publishing cannot fail.
    async fn commit_policy(&self, unit: Vec<AuthWrite>, name: &str, now: Option<PolicyEntry>) -> Result<()> {
        self.commit_or_reload(unit).await?;
        let policies = self.policies.load();
        let mut by_name = policies.by_name.clone();
        match now {
            Some(entry) => drop(by_name.insert(name.to_owned(), Arc::new(entry))),
            None => drop(by_name.remove(name)),
        }
        let generation = policies.generation + 1;
        self.policies.store(Arc::new(Policies::new(generation, by_name)));
        Ok(())
    }

    pub(super) async fn reload_policies(&self) -> Result<()> {
        let before = self.policies.load_full();
        let loaded = load(&*self.store, Some(Arc::clone(&before))).await?;
        if !loaded.has_same_entries(&before) {
            self.policies.store(Arc::new(loaded));
        }
        Ok(())
    }

    /// Returns the expiration that a request sets. Rejects a time in the past, because the write would only remove the
    /// current policy. Rejects any time for `default`, because this policy cannot be deleted.
    fn expiration_of(&self, name: &str, fields: &Fields) -> Result<Option<Time>> {
        match self.given_expiration(fields)? {
            Some(_) if name == DEFAULT_POLICY => {
                Err(Error::invalid("ttl, expiration: the policy \"default\" cannot be deleted and does not expire"))
            }
            Some(end) if end <= self.clock.now() => {
                Err(Error::invalid("refusing to update policy as expiration time has already elapsed"))
            }
            end => Ok(end),
        }
    }

    fn given_expiration(&self, fields: &Fields) -> Result<Option<Time>> {
        let ttl = fields.duration("ttl")?.filter(|ttl| *ttl > Duration::ZERO);
        let at = fields.nonempty_text("expiration")?;
        match (ttl, at) {
            (Some(_), Some(_)) => Err(Error::invalid("ttl, expiration: only one of them can be given")),
            (Some(ttl), None) => self
                .clock
                .now()
                .checked_add(time::Duration::try_from(ttl).unwrap_or(time::Duration::MAX))
                .map(Some)
                .ok_or_else(|| Error::invalid("ttl: too long; the policy would expire after the year 9999")),
            (None, Some(text)) => parse_rfc3339("expiration", &text).map(Some),
            (None, None) => Ok(None),
        }
    }
}

fn check_cas(known: Option<&PolicyEntry>, cas: Option<i64>) -> Result<()> {
    match (known, cas) {
        (Some(entry), None) if entry.stored.cas_required => {
            Err(Error::invalid("cas: required, because the policy has cas_required"))
        }
        // A `cas` of -1 or 0 means that the policy must not exist yet.
        (known, Some(cas)) if known.map_or(0, |entry| entry.version) != u64::try_from(cas).unwrap_or(0) => {
            Err(Error::invalid("cas: did not match the current version of the policy"))
        }
        _ => Ok(()),
    }
}

/// Returns the canonical spelling of a policy name.
pub(super) fn fold_policy_name(name: &str) -> String {
    Spelling::PolicyName.canonical(name).into_owned()
}

fn validate_policy_name(name: &str) -> Result<String> {
    let name = fold_policy_name(name);
    if name.is_empty() || name.len() > MAX_NAME_LEN || has_invisible(&name) || name != name.trim() {
        return Err(Error::invalid(format!(
            "name: must have 1 to {MAX_NAME_LEN} printable characters, without a blank or '/' at either end"
        )));
    }
    if name == ROOT_POLICY || name == WRAPPING_POLICY_NAME {
        return Err(Error::invalid(format!("cannot update {name:?} policy")));
    }
    Ok(name)
}

pub(super) fn is_assignable(name: &str) -> bool {
    name != WRAPPING_POLICY_NAME
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Caller;
    use crate::auth::policy::Operation;
    use crate::auth::tests::TestStore;
    use crate::auth::token::CreatePath;
    use time::macros::datetime;

    async fn open_auth() -> Arc<Auth> {
        let clock = Clock::manual(datetime!(2030-01-01 00:00 UTC));
        Auth::open(TestStore::open(&clock).await, clock).await.unwrap()
    }

    fn fields_of(value: Value) -> Fields {
        Fields::parse(value.to_string().as_bytes()).unwrap()
    }

    async fn policy_write_error(auth: &Auth, name: &str, value: Value) -> String {
        auth.policy_write(name, &fields_of(value)).await.unwrap_err().text().to_owned()
    }

    const TEXT: &str = "path \"a\" { capabilities = [\"read\"] }";

    #[tokio::test]
    async fn reserved_policy_names_cannot_be_written_or_deleted() {
        let auth = open_auth().await;
        for name in ["ROOT", "Root ", "root", "response-wrapping", "", " "] {
            policy_write_error(&auth, name, json!({ "policy": TEXT })).await;
        }
        for name in ["default", "Default", "root", "response-wrapping"] {
            let text = auth.policy_delete(name).await.unwrap_err().text().to_owned();
            assert!(text.contains(&name.to_lowercase()), "{text}");
        }
        auth.policy_delete("absent").await.unwrap();
    }

    #[tokio::test]
    async fn policy_names_are_folded_with_a_warning_and_cas_is_checked() {
        let auth = open_auth().await;
        let warnings = auth.policy_write("Team/App", &fields_of(json!({ "policy": TEXT }))).await.unwrap();
        assert_eq!(warnings.len(), 1);
        let shown = auth.policy_read("team/app").unwrap();
        assert_eq!((&shown["policy"], &shown["version"]), (&json!(TEXT), &json!(1)));
        assert!(policy_write_error(&auth, "team/app", json!({ "policy": TEXT, "cas": 7 })).await.contains("cas"));
        let again = json!({ "policy": TEXT, "cas": 1, "cas_required": true });
        assert!(auth.policy_write("team/app", &fields_of(again)).await.unwrap().is_empty());
        assert!(policy_write_error(&auth, "team/app", json!({ "policy": TEXT })).await.contains("cas"));
        assert!(policy_write_error(&auth, "team/app", json!({ "policy": TEXT, "cas": -1 })).await.contains("cas"));
        auth.policy_write("new", &fields_of(json!({ "policy": TEXT, "cas": -1 }))).await.unwrap();
        let negative = "path \"a\" { capabilities = [\"read\"] min_wrapping_ttl = \"-1s\" }";
        assert!(policy_write_error(&auth, "x", json!({ "policy": negative })).await.contains("min_wrapping_ttl"));
        auth.policy_delete("TEAM/app").await.unwrap();
        assert!(auth.policy_read("team/app").is_none());
    }

    #[tokio::test]
    async fn expiration_in_the_past_or_of_default_policy_is_refused() {
        let auth = open_auth().await;
        for name in ["web", "default"] {
            auth.policy_write(name, &fields_of(json!({ "policy": TEXT }))).await.unwrap();
        }
        for end in ["2001-01-01T00:00:00Z", "2030-01-01T00:00:00Z"] {
            let text = policy_write_error(&auth, "web", json!({ "policy": "path \"b\" {}", "expiration": end })).await;
            assert_eq!(text, "refusing to update policy as expiration time has already elapsed");
        }
        for end in [json!({ "ttl": "1h" }), json!({ "expiration": "2031-01-01T00:00:00Z" })] {
            let mut sent = fields_of(end);
            sent.set("policy", "path \"b\" {}");
            let text = auth.policy_write("Default", &sent).await.unwrap_err().text().to_owned();
            assert!(text.starts_with("ttl, expiration: the policy \"default\""), "{text}");
        }
        auth.policy_write("default", &fields_of(json!({ "policy": TEXT, "ttl": 0, "expiration": "" }))).await.unwrap();
        for name in ["web", "default"] {
            assert_eq!(auth.policy_read(name).unwrap()["policy"], TEXT);
        }
    }

    #[tokio::test]
    async fn expired_policy_is_replaced_by_a_new_one() {
        let auth = open_auth().await;
        for cas in [json!(0), json!(-1), Value::Null] {
            let first = json!({ "policy": TEXT, "ttl": "1h", "cas_required": true, "cas": 0 });
            auth.policy_write("web", &fields_of(first)).await.unwrap();
            auth.clock.advance(Duration::from_secs(3600));
            assert!(auth.policy_read("web").is_none());
            assert!(policy_write_error(&auth, "web", json!({ "policy": TEXT, "cas": 1 })).await.contains("cas"));
            auth.policy_write("web", &fields_of(json!({ "policy": TEXT, "cas": cas }))).await.unwrap();
            assert_eq!(auth.policy_read("web").unwrap()["cas_required"], false);
            auth.policy_delete("web").await.unwrap();
        }
    }

    #[tokio::test]
    async fn policy_write_accepts_old_field_base64_and_empty_text() {
        let auth = open_auth().await;
        let warnings = auth.policy_write("old", &fields_of(json!({ "rules": TEXT }))).await.unwrap();
        assert!(warnings[0].contains("'rules' is deprecated"));
        auth.policy_write("b", &fields_of(json!({ "policy": "cGF0aCAiYSIgeyBwb2xpY3kgPSAicmVhZCIgfQ==" })))
            .await
            .unwrap();
        assert_eq!(auth.policy_read("b").unwrap()["policy"], "path \"a\" { policy = \"read\" }");
        for value in [json!({}), json!({ "policy": " " })] {
            assert_eq!(policy_write_error(&auth, "x", value).await, "'policy' parameter not supplied or empty");
        }
        assert!(
            policy_write_error(&auth, "x", json!({ "policy": "path" }))
                .await
                .starts_with("failed to parse policy: line 1")
        );
    }

    #[tokio::test]
    async fn built_in_policies_exist() {
        let auth = open_auth().await;
        assert_eq!(auth.policy_names(), ["default", "root"]);
        assert_eq!(auth.policy_read("root").unwrap()["policy"], "");
        Policy::parse(WRAPPING_POLICY_TEXT).unwrap();
        let default = auth.policy_read("default").unwrap();
        let policy = Policy::parse(default["policy"].as_str().unwrap()).unwrap();
        assert!(policy.rules.iter().any(|rule| rule.path == "auth/token/renew-self"));
        auth.policy_write("default", &fields_of(json!({ "policy": TEXT }))).await.unwrap();
        assert_eq!(auth.policy_read("default").unwrap()["version"], 2);
    }

    #[tokio::test]
    async fn policy_write_on_a_stale_node_uses_the_stored_version() {
        let one = open_auth().await;
        let other = Auth::open(Arc::clone(&one.store), one.clock.clone()).await.unwrap();
        one.policy_write("a", &fields_of(json!({ "policy": TEXT }))).await.unwrap();
        assert!(policy_write_error(&other, "a", json!({ "policy": TEXT, "cas": 2 })).await.contains("cas"));
        other.policy_write("a", &fields_of(json!({ "policy": TEXT, "cas": 1 }))).await.unwrap();
        one.policy_write("a", &fields_of(json!({ "policy": TEXT }))).await.unwrap();
        assert_eq!(one.policy_read("a").unwrap()["version"], 3);
        one.policy_write("b", &fields_of(json!({ "policy": TEXT }))).await.unwrap();
        other.policy_delete("b").await.unwrap();
        one.reload().await.unwrap();
        assert!(one.policy_read("b").is_none());
    }

    #[tokio::test]
    async fn unchanged_policies_are_not_parsed_again() {
        let auth = open_auth().await;
        let entry = |name: &str| Arc::clone(&auth.policies.load().by_name[name]);
        for name in ["a", "b"] {
            auth.policy_write(name, &fields_of(json!({ "policy": TEXT }))).await.unwrap();
        }
        let a = entry("a");
        let b = entry("b");
        auth.policy_write("b", &fields_of(json!({ "policy": "path \"b\" {}" }))).await.unwrap();
        auth.reload().await.unwrap();
        assert!(Arc::ptr_eq(&a, &entry("a")) && !Arc::ptr_eq(&b, &entry("b")));
        assert_eq!(entry("b").policy.rules[0].path, "b");
    }

    #[tokio::test]
    async fn long_policies_are_compiled_once() {
        let auth = open_auth().await;
        let long = format!("{TEXT} # {}", "x".repeat(200_000));
        auth.policy_write("long", &fields_of(json!({ "policy": long }))).await.unwrap();
        let policies = auth.policies.load_full();
        let names = ["long".to_owned()];
        let now = auth.clock.now();
        assert!(policies.have_long_texts(&names, now) && !policies.have_long_texts(&["default".to_owned()], now));
        let acl = || policies.acl(&names, None, &auth.clock, &auth.union_compiler);
        let (one, other) = tokio::join!(acl(), acl());
        let one = one.unwrap();
        let other = other.unwrap();
        assert!(Arc::ptr_eq(&one, &other), "the second waits for the first");
        assert!(one.decide(Operation::Read, "a".into(), None).allowed);
    }

    #[tokio::test]
    async fn caller_waiting_for_a_slow_compile_gets_current_policies() {
        let auth = open_auth().await;
        let text = |path: &str| format!("path \"{path}\" {{ capabilities = [\"read\"] }} # {}", "x".repeat(100_000));
        auth.policy_write("long", &fields_of(json!({ "policy": text("a") }))).await.unwrap();
        let root = auth.recognise(&auth.root_token(None, "test").await.unwrap(), None).await.unwrap();
        let wanted = fields_of(json!({ "policies": ["long"], "no_default_policy": true }));
        let create_token = async || auth.create_token(&root, true, CreatePath::Child, &wanted).await.unwrap().0.token;
        let reads = |caller: &Caller, path: &str| caller.acl.decide(Operation::Read, path.into(), None).allowed;
        // The policy changes while the compilation waits.
        let token = create_token().await;
        let compiler = Arc::clone(&auth.union_compiler.0).lock_owned().await;
        let (recognised, ()) = tokio::join!(auth.recognise(token.expose_text().unwrap(), None), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            auth.policy_write("long", &fields_of(json!({ "policy": text("b") }))).await.unwrap();
            drop(compiler);
        });
        let caller = recognised.unwrap();
        assert!(reads(&caller, "b") && !reads(&caller, "a"));
        // The token is revoked while the compilation waits.
        auth.policy_write("long", &fields_of(json!({ "policy": text("c") }))).await.unwrap();
        let compiler = Arc::clone(&auth.union_compiler.0).lock_owned().await;
        let (recognised, ()) = tokio::join!(auth.recognise(token.expose_text().unwrap(), None), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            auth.revoke(token.expose_text().unwrap()).await.unwrap();
            drop(compiler);
        });
        assert_eq!(recognised.err().map(|error| error.kind()), Some(Kind::Forbidden));
    }

    #[test]
    fn total_policy_text_size_is_limited() {
        let modified = datetime!(2030-01-01 00:00 UTC);
        let policy = Policy::default();
        let stored = |text| StoredPolicy { text, modified, cas_required: false, expiration: None };
        let entry = |n| {
            (
                format!("p{n}"),
                Arc::new(PolicyEntry {
                    stored: stored("x".repeat(MAX_POLICY_BYTES)),
                    version: 1,
                    policy: policy.clone(),
                }),
            )
        };
        let policies = Policies::new(0, (0..MAX_TOTAL_POLICY_BYTES / MAX_POLICY_BYTES).map(entry).collect());
        assert!(
            policies.check_total_size("p1", &"y".repeat(MAX_POLICY_BYTES)).is_ok(),
            "in place of the previous text"
        );
        let refused = policies.check_total_size("other", "y").unwrap_err();
        assert_eq!(
            refused.text(),
            "policy: all policy texts together would exceed 67108864 bytes; delete unused policies"
        );
    }
}

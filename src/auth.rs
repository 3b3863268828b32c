//! PLACEHOLDER of the authentication branch: in memory, root and deny-all only. Replaced at merge.

pub mod mounts;
pub mod policy;
pub mod store;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::documents::MountId;
use crate::error::{Error, Kind, Result};
use crate::fields::Fields;
use mounts::{Mount, MountTable};
use policy::{Decision, Operation};

/// Who is calling.
pub struct Caller {
    /// The token's accessor.
    pub accessor: String,
    /// The token's display name.
    pub display_name: String,
    /// The entity, or empty.
    pub entity_id: String,
    /// Policies.
    pub policies: Vec<String>,
}

/// Tokens, policies, mounts.
pub struct Auth {
    tokens: Mutex<HashMap<String, Arc<Caller>>>,
    policies: Mutex<BTreeMap<String, String>>,
    mounts: Mutex<Arc<MountTable>>,
}

impl Auth {
    /// Opens.
    pub async fn open(_store: Arc<dyn store::AuthStore>, _clock: Clock) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            tokens: Mutex::default(),
            policies: Mutex::new(BTreeMap::from([("default".into(), String::new()), ("root".into(), String::new())])),
            mounts: Mutex::new(Arc::new(MountTable::builtin())),
        }))
    }

    /// Who holds `token`.
    pub async fn identify(&self, token: &str) -> Result<Arc<Caller>> {
        let found = self.tokens.lock().unwrap_or_else(|e| e.into_inner()).get(token).cloned();
        found.ok_or_else(|| Error::new(Kind::Unauthenticated, "permission denied"))
    }

    /// Whether the caller may.
    pub fn decide(&self, caller: &Caller, _operation: Operation, path: &str, _fields: &Fields) -> Decision {
        let root = caller.policies.iter().any(|p| p == "root");
        Decision { allowed: root || (path.starts_with("auth/token/") && path.ends_with("-self")), sudo: root }
    }

    /// A root token.
    pub async fn root_token(&self, given: Option<&str>, display_name: &str) -> Result<String> {
        let token = given.map_or_else(|| format!("s.{}", crate::random::base62(32)), str::to_owned);
        self.insert(&token, display_name, vec!["root".into()]);
        Ok(token)
    }

    fn insert(&self, token: &str, display_name: &str, policies: Vec<String>) -> Arc<Caller> {
        let caller = Arc::new(Caller {
            accessor: crate::random::base62(24),
            display_name: display_name.to_owned(),
            entity_id: String::new(),
            policies,
        });
        self.tokens.lock().unwrap_or_else(|e| e.into_inner()).insert(token.to_owned(), caller.clone());
        caller
    }

    /// A token.
    pub async fn create_token(&self, _caller: &Caller, _sudo: bool, fields: &Fields) -> Result<(Value, Vec<String>)> {
        fields.bool("renewable")?;
        fields.duration("ttl")?;
        let token = format!("s.{}", crate::random::base62(32));
        let caller = self.insert(&token, "token", fields.list("policies")?.unwrap_or_default());
        Ok((json!({ "client_token": token, "accessor": caller.accessor, "policies": caller.policies }), Vec::new()))
    }

    /// The caller's token.
    pub async fn lookup_self(&self, caller: &Caller, token: &str) -> Result<Value> {
        Ok(json!({ "id": token, "accessor": caller.accessor, "policies": caller.policies }))
    }

    /// Renews.
    pub async fn renew_self(
        &self,
        caller: &Caller,
        token: &str,
        _by: Option<Duration>,
    ) -> Result<(Value, Vec<String>)> {
        Ok((json!({ "client_token": token, "accessor": caller.accessor }), Vec::new()))
    }

    /// Revokes.
    pub async fn revoke(&self, token: &str) -> Result<bool> {
        Ok(self.tokens.lock().unwrap_or_else(|e| e.into_inner()).remove(token).is_some())
    }

    /// PLACEHOLDER.
    pub fn capabilities(&self, caller: &Caller, _path: &str) -> Vec<&'static str> {
        if caller.policies.iter().any(|p| p == "root") { vec!["root"] } else { vec!["deny"] }
    }

    /// PLACEHOLDER.
    pub async fn caller_by_token(&self, token: &str) -> Result<Option<Arc<Caller>>> {
        Ok(self.identify(token).await.ok())
    }

    /// PLACEHOLDER.
    pub async fn caller_by_accessor(&self, accessor: &str) -> Result<Option<Arc<Caller>>> {
        let tokens = self.tokens.lock().unwrap_or_else(|e| e.into_inner());
        Ok(tokens.values().find(|c| c.accessor == accessor).cloned())
    }

    /// PLACEHOLDER.
    pub async fn lookup(&self, token: &str) -> Result<Value> {
        let caller = self.identify(token).await.map_err(|_| Error::new(Kind::Forbidden, "bad token"))?;
        self.lookup_self(&caller, token).await
    }

    /// PLACEHOLDER.
    pub async fn lookup_accessor(&self, accessor: &str) -> Result<Value> {
        let caller = self.caller_by_accessor(accessor).await?.ok_or_else(|| Error::invalid("invalid accessor"))?;
        self.lookup_self(&caller, "").await
    }

    /// PLACEHOLDER.
    pub async fn renew(&self, token: &str, by: Option<Duration>) -> Result<(Value, Vec<String>)> {
        self.renew_self(&*self.identify(token).await?, token, by).await
    }

    /// PLACEHOLDER.
    pub async fn renew_accessor(&self, accessor: &str, by: Option<Duration>) -> Result<(Value, Vec<String>)> {
        let caller = self.caller_by_accessor(accessor).await?.ok_or_else(|| Error::invalid("invalid accessor"))?;
        self.renew_self(&caller, "", by).await
    }

    /// PLACEHOLDER.
    pub async fn revoke_accessor(&self, accessor: &str) -> Result<bool> {
        let mut tokens = self.tokens.lock().unwrap_or_else(|e| e.into_inner());
        let before = tokens.len();
        tokens.retain(|_, c| c.accessor != accessor);
        Ok(tokens.len() < before)
    }

    /// PLACEHOLDER.
    pub async fn auth_enable(&self, path: &str, fields: &Fields) -> Result<Arc<Mount>> {
        self.mount_enable(&format!("auth/{path}"), fields).await
    }

    /// PLACEHOLDER.
    pub async fn auth_disable(&self, path: &str) -> Result<Option<Arc<Mount>>> {
        self.mount_disable(&format!("auth/{path}")).await
    }

    /// Sweeps.
    pub async fn sweep(&self) -> Result<u32> {
        Ok(0)
    }

    /// Names.
    pub fn policy_names(&self) -> Vec<String> {
        self.policies.lock().unwrap_or_else(|e| e.into_inner()).keys().cloned().collect()
    }

    /// One policy.
    pub fn policy_read(&self, name: &str) -> Option<Value> {
        let text = self.policies.lock().unwrap_or_else(|e| e.into_inner()).get(name).cloned()?;
        Some(json!({ "name": name, "policy": text }))
    }

    /// Writes one.
    pub async fn policy_write(&self, name: &str, fields: &Fields) -> Result<Vec<String>> {
        let text = fields.text("policy")?.ok_or_else(|| Error::invalid("'policy' parameter not supplied or empty"))?;
        let folded = name.to_lowercase();
        let warnings = if folded == name { vec![] } else { vec!["policy name was converted to lower case".into()] };
        self.policies.lock().unwrap_or_else(|e| e.into_inner()).insert(folded, text);
        Ok(warnings)
    }

    /// Deletes one.
    pub async fn policy_delete(&self, name: &str) -> Result<()> {
        self.policies.lock().unwrap_or_else(|e| e.into_inner()).remove(name);
        Ok(())
    }

    /// The mount table.
    pub fn mounts(&self) -> Arc<MountTable> {
        self.mounts.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn replace(&self, change: impl FnOnce(&mut Vec<Arc<Mount>>)) {
        let mut table = self.mounts.lock().unwrap_or_else(|e| e.into_inner());
        let mut mounts = table.0.clone();
        change(&mut mounts);
        *table = Arc::new(MountTable(mounts));
    }

    /// Enables.
    pub async fn mount_enable(&self, path: &str, fields: &Fields) -> Result<Arc<Mount>> {
        let kind = fields.text("type")?.ok_or_else(|| Error::invalid("backend type must be specified as a string"))?;
        let mount = Arc::new(Mount::new(MountId::random(), &format!("{path}/"), &kind));
        self.replace(|mounts| mounts.push(mount.clone()));
        Ok(mount)
    }

    /// Tunes.
    pub async fn mount_tune(&self, _path: &str, fields: &Fields) -> Result<()> {
        fields.duration("default_lease_ttl")?;
        Ok(())
    }

    /// Disables.
    pub async fn mount_disable(&self, path: &str) -> Result<Option<Arc<Mount>>> {
        let found = self.mounts().0.iter().find(|m| m.path == format!("{path}/")).cloned();
        self.replace(|mounts| mounts.retain(|m| m.path != format!("{path}/")));
        Ok(found)
    }
}

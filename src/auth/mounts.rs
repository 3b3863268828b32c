//! The mount table: maps paths to engines.
//!
//! A [`Mount`] is one mounted engine with its settings; a [`MountTable`] is an immutable snapshot of all mounts, which
//! `change` replaces as a whole. Secret engines can be mounted at any path that is not reserved, authentication methods
//! below `auth/`. `sys/`, `identity/`, `cubbyhole/` and `auth/token/` always exist, and are stored only after an
//! operator has changed their settings. No mount lies inside another mount. [`MountKind`] lists the types.

mod change;
mod kind;
mod moves;
mod settings;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
pub use change::engine_path;
pub(super) use change::{load, register_names};
pub use kind::{MountClass, MountKind};
pub use moves::MountMove;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::documents::{MountId, PathScope, SYSTEM_MOUNT, path_below};
use crate::fields::{Resource as _, resource};
use crate::telemetry::{LazyMountMeter, MountMeter};
use settings::NAME_LIST_LIMITS;

/// Default and maximum lifetime of tokens and leases of a mount that has no setting for it: 32 days.
pub const SYSTEM_TTL: Duration = Duration::from_secs(768 * 3600);

/// Default lifetime of a CA certificate on a mount without lifetime settings: ten years.
const DEFAULT_AUTHORITY_TTL: Duration = Duration::from_secs(87_600 * 3600);

/// Path of the built-in token method.
pub const TOKEN_MOUNT_PATH: &str = "auth/token/";

/// Path, type and description of the built-in mounts.
const BUILT_IN_MOUNTS: [(&str, MountKind, &str); 4] = [
    ("sys/", MountKind::System, "system endpoints used for control, policy and debugging"),
    ("identity/", MountKind::Identity, "identity store"),
    ("cubbyhole/", MountKind::Cubbyhole, "per-token private secret storage"),
    (TOKEN_MOUNT_PATH, MountKind::Token, "token based credentials"),
];

resource! {
    /// One mounted engine. All members except the `stored` ones are settings that a client can change.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Mount {
        /// Id of the mount in the store; [`SYSTEM_MOUNT`] for all built-in mounts.
        #[serde(with = "mount_id")]
        stored id: MountId = SYSTEM_MOUNT;
        /// Path of the mount with a trailing `/`; begins with `auth/` for an authentication method.
        stored path: String;
        /// The type of the engine.
        stored kind: MountKind = MountKind::System;
        /// Alternative name of the type, if the client enabled the mount under such a name; empty for none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        stored known_as: String;
        /// Public handle of the mount, such as `pki_1a2b3c4d`; does not change when the mount moves.
        stored accessor: String;
        /// Public id of the mount, a UUID.
        stored uuid: String;
        /// Description of the mount, as free text.
        value description: String;
        /// Default lifetime of tokens and leases in seconds; 0 for the system's default.
        value default_lease_ttl: u64;
        /// Maximum lifetime of tokens and leases in seconds; 0 for the system's maximum.
        value max_lease_ttl: u64;
        /// Has no effect; stored and returned for compatibility.
        value force_no_cache: bool;
        /// Options that the client set for the engine; `None` for none.
        value options: Option<BTreeMap<String, String>>;
        /// Visibility of the mount in listings for clients without a token: `""`, `hidden` or `unauth`.
        text listing_visibility;
        /// Names of the managed keys that the mount may use.
        list(NAME_LIST_LIMITS) allowed_managed_keys;
        /// Names of request fields whose values the audit log contains in clear text instead of as HMAC.
        list(NAME_LIST_LIMITS) audit_non_hmac_request_keys;
        /// Names of response fields whose values the audit log contains in clear text instead of as HMAC.
        list(NAME_LIST_LIMITS) audit_non_hmac_response_keys;
        /// Names of request headers that are passed to the engine; never one that carries a credential.
        list(NAME_LIST_LIMITS) passthrough_request_headers;
        /// Names of response headers that the engine may set.
        list(NAME_LIST_LIMITS) allowed_response_headers;
        /// Type of the tokens that an authentication method issues; `""` for the method's default.
        text token_type;
        /// Has no effect; stored and returned for compatibility.
        stored local: bool;
        /// Has no effect, because the storage layer encrypts all secrets anyway; stored and returned for compatibility.
        stored seal_wrap: bool;
        /// Has no effect; stored and returned for compatibility.
        stored external_entropy_access: bool;
        /// Paths that the mount had before it was moved. The id of a lease and the record of a token contain the path
        /// that the mount had when they were created.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stored former_paths: Vec<String>;
        /// Metrics of the mount, created at first use.
        #[serde(skip)]
        stored meter: LazyMountMeter;
    }
}

pub(super) mod mount_id {
    //! Serde format of a mount id: a JSON number.
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::documents::MountId;

    pub(in crate::auth) fn serialize<S: Serializer>(id: &MountId, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_i64(id.0)
    }

    pub(in crate::auth) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<MountId, D::Error> {
        i64::deserialize(from).map(MountId)
    }
}

impl Mount {
    /// Creates a mount with default settings. `path` ends in `/`; `suffix` is the last part of the accessor.
    fn new(id: MountId, path: &str, kind: MountKind, suffix: &str, uuid: String) -> Self {
        let accessor = format!("{}_{suffix}", kind.name());
        Self { id, path: path.to_owned(), kind, accessor, uuid, ..Self::default() }
    }

    /// Returns the metrics of the mount.
    pub fn meter(&self) -> &MountMeter {
        self.meter.of(&self.path)
    }

    /// Returns the current path and all former paths of the mount, without a trailing `/`.
    fn stored_paths(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.path).chain(&self.former_paths).map(|path| path.trim_end_matches('/'))
    }

    /// Creates a built-in mount. Its accessor and UUID are derived from the path, so they are the same on all nodes.
    fn built_in(path: &str, kind: MountKind, description: &str) -> Self {
        let hash = digest::digest(&digest::SHA256, path.as_bytes());
        let mut seed = [0; 16];
        seed.copy_from_slice(&hash.as_ref()[..16]);
        let uuid = uuid::Builder::from_random_bytes(seed).into_uuid();
        let mut mount = Self::new(SYSTEM_MOUNT, path, kind, &uuid.simple().to_string()[..8], uuid.to_string());
        mount.description = description.to_owned();
        mount
    }

    /// `true` if the mount is an authentication method.
    pub fn is_auth(&self) -> bool {
        self.path.starts_with("auth/")
    }

    /// `true` for a mount that always exists and cannot be disabled.
    pub fn is_built_in(&self) -> bool {
        self.id == SYSTEM_MOUNT
    }

    /// Maximum lifetime of the mount's tokens and leases.
    pub fn max_ttl(&self) -> Duration {
        match self.max_lease_ttl {
            0 => SYSTEM_TTL,
            seconds => Duration::from_secs(seconds),
        }
    }

    /// Default lifetime of the mount's tokens and leases; at most [`Mount::max_ttl`].
    pub fn default_ttl(&self) -> Duration {
        match self.default_lease_ttl {
            0 => SYSTEM_TTL.min(self.max_ttl()),
            seconds => Duration::from_secs(seconds),
        }
    }

    /// Default lifetime of a CA certificate on the mount: the mount's default lifetime, else its maximum, else ten
    /// years. The system's lifetimes are meant for leaf certificates and are too short, because a CA certificate must
    /// outlive the certificates that it signs.
    pub fn authority_ttl(&self) -> Duration {
        match (self.default_lease_ttl, self.max_lease_ttl) {
            (0, 0) => DEFAULT_AUTHORITY_TTL,
            (0, _) => self.max_ttl(),
            _ => self.default_ttl(),
        }
    }

    /// Renders the mount's entry in a list of mounts, with TTLs as configured: 0 for the system's.
    pub fn to_json(&self) -> Value {
        let mut config = Map::new();
        config.insert("default_lease_ttl".into(), self.default_lease_ttl.into());
        config.insert("max_lease_ttl".into(), self.max_lease_ttl.into());
        config.insert("force_no_cache".into(), self.force_no_cache.into());
        self.add_optional_settings(&mut config);
        json!({
            "accessor": self.accessor,
            "type": self.kind.name(),
            "description": self.description,
            "uuid": self.uuid,
            "local": self.local,
            "seal_wrap": self.seal_wrap,
            "external_entropy_access": self.external_entropy_access,
            "options": self.options,
            "plugin_version": "",
            "running_plugin_version": "",
            "running_sha256": "",
            "deprecation_status": "supported",
            "config": config,
        })
    }

    /// Renders the response to a read of the mount's settings (`tune`), with the effective TTLs in seconds.
    pub fn tune_json(&self) -> Value {
        let mut tune = Map::new();
        tune.insert("default_lease_ttl".into(), self.default_ttl().as_secs().into());
        tune.insert("max_lease_ttl".into(), self.max_ttl().as_secs().into());
        tune.insert("description".into(), self.description.as_str().into());
        tune.insert("force_no_cache".into(), self.force_no_cache.into());
        if self.options.is_some() {
            tune.insert("options".into(), json!(self.options));
        }
        self.add_optional_settings(&mut tune);
        Value::Object(tune)
    }

    /// Adds to a response the settings that are shown only if they are set, and the token type of an authentication
    /// method.
    fn add_optional_settings(&self, to: &mut Map<String, Value>) {
        if self.is_auth() {
            to.insert("token_type".into(), "default-service".into());
        }
        to.extend(Self::TEXTS.iter().filter(|slot| !(slot.get)(self).is_empty()).map(|slot| slot.to_member(self)));
        let lists = Self::LISTS.iter().map(|list| &list.slot).filter(|slot| !(slot.get)(self).is_empty());
        to.extend(lists.map(|slot| slot.to_member(self)));
    }
}

/// An immutable snapshot of all mounts.
pub struct MountTable {
    /// The mounts by path, without the trailing `/`.
    by_path: HashMap<Box<str>, Arc<Mount>>,
    /// The mounts by id, without the built-in mounts, which all have the same id.
    by_id: HashMap<MountId, Arc<Mount>>,
    sorted: Vec<Arc<Mount>>,
    /// Number of segments of the longest mount path.
    max_segments: usize,
}

impl MountTable {
    /// Builds the table of the built-in and the stored mounts; a stored mount replaces the built-in one at its path.
    fn new(stored: impl IntoIterator<Item = Mount>) -> Self {
        let built_in = BUILT_IN_MOUNTS.iter().map(|(path, kind, text)| Mount::built_in(path, kind.clone(), text));
        let by_path: HashMap<Box<str>, Arc<Mount>> =
            built_in.chain(stored).map(|mount| (mount.path.trim_end_matches('/').into(), Arc::new(mount))).collect();
        let mut sorted: Vec<Arc<Mount>> = by_path.values().cloned().collect();
        sorted.sort_by(|a, b| a.path.cmp(&b.path));
        let max_segments = by_path.keys().map(|path| path.split('/').count()).max().unwrap_or(0);
        let by_id = sorted.iter().filter(|mount| !mount.is_built_in()).map(|mount| (mount.id, mount.clone())).collect();
        Self { by_path, by_id, sorted, max_segments }
    }

    /// Returns a copy of this table in which the mount at `path` is replaced by `mount`, or removed if `mount` is
    /// `None`.
    fn with_mount(&self, path: &str, mount: Option<Mount>) -> Self {
        let others = self.sorted.iter().filter(|known| known.path != path).map(|known| Mount::clone(known));
        Self::new(others.chain(mount))
    }

    /// Returns the mount that serves `path` (without leading `/`) and the rest of the path below the mount. `path` may
    /// be the path of a mount without its trailing `/`.
    pub fn route<'a>(&self, path: &'a str) -> Option<(&Arc<Mount>, &'a str)> {
        let slashes = path.bytes().enumerate().filter(|(_, b)| *b == b'/').map(|(at, _)| at);
        let mut found = None;
        for end in slashes.chain([path.len()]).take(self.max_segments) {
            if let Some(mount) = self.by_path.get(&path[..end]) {
                found = Some((mount, path.get(end + 1..).unwrap_or("")));
            }
        }
        found
    }

    /// Returns the mount at exactly this path; slashes at the start and end of `path` are ignored.
    pub fn get(&self, path: &str) -> Option<&Arc<Mount>> {
        self.by_path.get(path.trim_matches('/'))
    }

    /// Returns the mount with this id; `None` for the id of the built-in mounts.
    pub fn by_id(&self, id: MountId) -> Option<&Arc<Mount>> {
        self.by_id.get(&id)
    }

    /// Returns the stored path prefixes of the leases that are at or below `path` in the current table. A lease is
    /// stored under the path that its mount had when the lease was created, so a moved mount contributes its former
    /// paths too. If a mount was moved from a path below `path` to elsewhere, its leases are excluded. If `path` is at
    /// or below a former path of the mount, and no mount is there now, its leases are included.
    pub fn path_scopes(&self, path: &str) -> Vec<PathScope> {
        let path = path.trim_matches('/');
        if let Some((mount, rest)) = self.route(path).filter(|(mount, _)| !mount.is_built_in()) {
            let scope = |stored: &str| PathScope {
                mount: Some(mount.id),
                ..PathScope::of(format!("{stored}/{rest}").trim_end_matches('/'))
            };
            return mount.stored_paths().map(scope).collect();
        }
        let mut anywhere = PathScope::of(path);
        let mut scopes = Vec::new();
        for mount in self.sorted.iter().filter(|mount| !mount.former_paths.is_empty()) {
            let today = path_below(path, mount.path.trim_end_matches('/')).filter(|shown| !shown.is_empty());
            if today.is_none() && mount.stored_paths().any(|former| path_below(former, path).is_some()) {
                continue;
            }
            anywhere.left_out.extend(mount.stored_paths().map(|stored| (mount.id, stored.to_owned())));
            let scope = |stored: &str| PathScope {
                mount: Some(mount.id),
                shown: today.unwrap_or_default().to_owned(),
                ..PathScope::of(stored)
            };
            scopes.extend(mount.stored_paths().filter(|_| today.is_some()).map(scope));
        }
        scopes.insert(0, anywhere);
        scopes
    }

    /// Iterates over all mounts, authentication methods included, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Mount>> {
        self.sorted.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(paths: &[&str]) -> MountTable {
        MountTable::new(
            paths
                .iter()
                .map(|path| Mount::new(MountId::random(), path, MountKind::Pki, "00000000", crate::random::uuid())),
        )
    }

    #[test]
    fn path_is_routed_to_the_longest_matching_mount() {
        let table = table(&["pki/", "team/a/", "team/b/c/"]);
        for (path, mount, rest) in [
            ("pki/issue/web", Some("pki/"), "issue/web"),
            ("pki/", Some("pki/"), ""),
            ("pki", Some("pki/"), ""),
            ("pki2/issue", None, ""),
            ("team/a/x/y", Some("team/a/"), "x/y"),
            ("team/b/x", None, ""),
            ("team/b/c", Some("team/b/c/"), ""),
            ("auth/token/lookup-self", Some("auth/token/"), "lookup-self"),
            ("auth/other/login", None, ""),
            ("sys/mounts/pki/tune", Some("sys/"), "mounts/pki/tune"),
            ("", None, ""),
        ] {
            let found = table.route(path).map(|(m, rest)| (m.path.as_str(), rest));
            assert_eq!(found, mount.map(|m| (m, rest)), "{path}");
        }
    }

    proptest::proptest! {
        #[test]
        fn routing_finds_the_longest_of_all_prefixes(path in "(a|b|é|/|auth|token|sys){0,8}") {
            let table = table(&["a/", "a/b/", "b/a/b/"]);
            let slow = table.iter().filter(|mount| format!("{path}/").starts_with(&mount.path)).max_by_key(|m| m.path.len());
            let found = table.route(&path);
            proptest::prop_assert_eq!(found.map(|(mount, _)| &mount.path), slow.map(|mount| &mount.path));
            if let Some((mount, rest)) = found {
                let whole = format!("{}{rest}", mount.path);
                proptest::prop_assert!(whole == path || whole.strip_suffix('/') == Some(path.as_str()));
            }
        }
    }

    #[test]
    fn prefix_above_mounts_omits_moved_mounts() {
        let mount = |path: &str, former: &[&str]| Mount {
            former_paths: former.iter().map(|path| (*path).to_owned()).collect(),
            ..Mount::new(MountId::random(), path, MountKind::Pki, "00000000", crate::random::uuid())
        };
        let away = mount("prod/pki/", &["team/pki/"]);
        let within = mount("team/new/", &["old/", "team/old/"]);
        let stays = mount("team/stays/", &[]);
        let away_id = away.id;
        let within_id = within.id;
        let stays_id = stays.id;
        let table = MountTable::new([away, within, stays]);
        let found = |requested: &str, mount: MountId, path: &str| {
            let scopes = table.path_scopes(requested);
            let found: Vec<_> = scopes.iter().filter(|scope| scope.includes(Some(mount), path)).collect();
            assert!(found.len() < 2, "{requested} {path} {found:?}");
            found.first().and_then(|scope| scope.to_listed_path(path))
        };
        for (requested, mount, path, shown) in [
            ("team", stays_id, "team/stays/issue/web/1", Some("stays/issue/web/1")),
            ("team", away_id, "team/pki/issue/web/1", None),
            ("team/pki", away_id, "team/pki/issue/web/1", Some("issue/web/1")),
            ("team/pki/issue", away_id, "team/pki/issue/web/1", Some("web/1")),
            ("prod", away_id, "team/pki/issue/web/1", Some("pki/issue/web/1")),
            ("prod/pki/issue", away_id, "team/pki/issue/web/1", Some("web/1")),
            ("team", within_id, "old/issue/web/1", Some("new/issue/web/1")),
            ("team", within_id, "team/old/issue/web/1", Some("new/issue/web/1")),
            ("team", within_id, "team/new/issue/web/1", Some("new/issue/web/1")),
            ("old", within_id, "old/issue/web/1", Some("issue/web/1")),
            ("", away_id, "team/pki/issue/web/1", Some("prod/pki/issue/web/1")),
            // The mount of the token's login has moved, but the path of the request that created the token has not.
            ("", away_id, "auth/token/create", Some("auth/token/create")),
            ("tea", away_id, "team/pki/issue/web/1", None),
        ] {
            assert_eq!(found(requested, mount, path).as_deref(), shown, "{requested} {path}");
        }
    }

    #[test]
    fn built_in_mounts_always_exist() {
        let table = table(&["pki/"]);
        let paths: Vec<&str> = table.iter().map(|mount| &mount.path[..]).collect();
        assert_eq!(paths, ["auth/token/", "cubbyhole/", "identity/", "pki/", "sys/"]);
        let sys = table.get("sys").unwrap();
        assert!(sys.is_built_in() && sys.kind == MountKind::System);
        assert_eq!(**sys, Mount::built_in("sys/", MountKind::System, BUILT_IN_MOUNTS[0].2));
    }

    #[test]
    fn default_ttl_never_exceeds_max_ttl() {
        let mut mount = Mount::new(MountId(1), "pki/", MountKind::Pki, "00000000", String::new());
        assert_eq!((mount.default_ttl(), mount.max_ttl()), (SYSTEM_TTL, SYSTEM_TTL));
        assert_eq!(mount.authority_ttl(), DEFAULT_AUTHORITY_TTL);
        mount.max_lease_ttl = 3600;
        assert_eq!((mount.default_ttl(), mount.authority_ttl()), (mount.max_ttl(), mount.max_ttl()));
        mount.max_lease_ttl = 315_360_000;
        assert_eq!((mount.default_ttl(), mount.max_ttl()), (SYSTEM_TTL, Duration::from_secs(315_360_000)));
        assert_eq!(mount.tune_json()["default_lease_ttl"], json!(2_764_800));
        assert_eq!(mount.to_json()["config"]["default_lease_ttl"], json!(0));
    }
}

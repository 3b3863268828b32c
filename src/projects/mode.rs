//! Execution modes: attributes, inheritance, and validation, for organizations, projects and workspaces.
//!
//! The levels organization, project and workspace use the same rules ([`read_change`]) and differ in attribute names
//! ([`ModeLevel`]). A mode and its agent pool are always inherited as a pair.
//!
//! Clients send back the attributes that they have read. If a request sets `setting-overwrites` to `false`, its mode
//! and pool are therefore ignored: they are the inherited values. A value that equals the current one changes nothing.

use super::agent_scope::{self, PoolUser};
use super::attributes::{AttributeReader, AttributeValue, display_name};
use super::rejection::{Fault, WorkResult};
use super::tx::Tx;

/// An execution mode with its agent pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionMode {
    /// `remote`, `local` or `agent`.
    pub name: String,
    /// External id of the agent pool. `Some` if and only if the mode is `agent`.
    pub pool: Option<String>,
}

const MODE_NAMES: [&str; 3] = ["remote", "local", "agent"];

/// The attribute names and features of one level: organization, project or workspace.
pub struct ModeLevel {
    mode: &'static str,
    /// The name of the attribute or relationship for the pool, without the suffix `-id`. A flag in `setting-overwrites`
    /// has the same name.
    pool: &'static str,
    /// `true` if an attribute names the pool, `false` if a relationship does.
    pool_by_attribute: bool,
    inherits_mode: bool,
    /// `true` if the older attribute `operations` is supported.
    has_operations: bool,
}

/// The level of organizations, which always have a mode of their own. A relationship names the pool.
pub const ORGANIZATION_LEVEL: ModeLevel = ModeLevel {
    mode: "default-execution-mode",
    pool: "default-agent-pool",
    pool_by_attribute: false,
    inherits_mode: false,
    has_operations: false,
};
/// The level of projects, which may inherit the mode from the organization.
pub const PROJECT_LEVEL: ModeLevel = ModeLevel { pool_by_attribute: true, inherits_mode: true, ..ORGANIZATION_LEVEL };
/// The level of workspaces, which may inherit the mode from their project.
pub const WORKSPACE_LEVEL: ModeLevel = ModeLevel {
    mode: "execution-mode",
    pool: "agent-pool",
    pool_by_attribute: true,
    inherits_mode: true,
    has_operations: true,
};

/// The change that a request makes to an execution mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModeChange {
    /// The mode stays as it is. A new resource inherits its mode.
    Unchanged,
    /// The resource inherits the mode from its project or organization.
    Inherit,
    /// The resource gets this mode of its own.
    Own(ExecutionMode),
}

/// The values of the columns `execution_mode` and `agent_pool_id` to store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModeColumns {
    /// The execution mode; `None` to inherit it.
    pub mode: Option<String>,
    /// Row id of the agent pool.
    pub pool: Option<i64>,
}

impl ModeLevel {
    fn pool_attribute(&self) -> String {
        format!("{}-id", self.pool)
    }

    pub(super) fn pool_fault(&self, text: &str) -> Fault {
        let detail = format!("{} {text}", display_name(self.pool));
        match self.pool_by_attribute {
            true => Fault::attribute(&self.pool_attribute(), detail),
            false => Fault::at(format!("/data/relationships/{}", self.pool), detail),
        }
    }

    fn mode_fault(&self, text: &str) -> Fault {
        Fault::attribute(self.mode, format!("{} {text}", display_name(self.mode)))
    }
}

/// The modes of a resource before a request. Both are `None` for a resource to be created.
#[derive(Clone, Copy, Debug, Default)]
pub struct CurrentModes<'m> {
    /// The mode set on the resource itself; `None` if the resource inherits its mode.
    pub own: Option<&'m ExecutionMode>,
    /// The effective mode, set or inherited, which responses contain.
    pub effective: Option<&'m ExecutionMode>,
}

struct RequestedPool {
    requested: AttributeValue<String>,
    /// The pool that a relationship names, at a level where an attribute names the pool. It is used only if the mode
    /// needs a pool and the attribute is absent.
    fallback: Option<String>,
}

/// Reads the change of the execution mode from the attributes of a request. `related_pool` is the id of the pool in the
/// relationship.
pub fn read_change(
    attributes: &mut AttributeReader<'_>,
    level: &ModeLevel,
    related_pool: AttributeValue<String>,
    before: CurrentModes<'_>,
) -> ModeChange {
    let mode = read_mode(attributes, level, before.effective);
    let overwrites = if level.inherits_mode { read_overwrites(attributes, level) } else { Ok(None) };
    let (requested, fallback) = match level.pool_by_attribute {
        true => (attributes.text(&level.pool_attribute()), related_pool.value()),
        false => (related_pool, None),
    };
    // An empty pool id counts as null.
    let requested = if requested.as_value().is_some_and(String::is_empty) { AttributeValue::Null } else { requested };
    let (Ok(mode), Ok(overwrites)) = (mode, overwrites) else { return ModeChange::Unchanged };
    decide_change(level, mode, overwrites, RequestedPool { requested, fallback }, before.own).unwrap_or_else(|fault| {
        attributes.push(fault);
        ModeChange::Unchanged
    })
}

/// Reads the mode from its attribute or from the older attribute `operations`; null means absent. If the two contradict
/// each other, the one that differs from `shown`, the mode in the last response, counts.
fn read_mode(
    attributes: &mut AttributeReader<'_>,
    level: &ModeLevel,
    shown: Option<&ExecutionMode>,
) -> Result<Option<String>, ()> {
    let mode = attributes.text(level.mode).value();
    let operations = if level.has_operations { attributes.flag("operations").value() } else { None };
    let agrees = |remote: bool, name: &str| remote == (name != "local");
    let (mode, operations) = match (mode, operations, shown) {
        (Some(mode), Some(remote), _) if agrees(remote, &mode) => (Some(mode), None),
        (Some(mode), Some(remote), Some(shown)) if agrees(remote, &shown.name) => (Some(mode), None),
        (Some(mode), Some(remote), Some(shown)) if mode == shown.name => (None, Some(remote)),
        (mode, operations, _) => (mode, operations),
    };
    match (mode, operations) {
        (Some(_), Some(_)) => {
            attributes.fault("operations", format!("Operations must agree with {}", level.mode));
            Err(())
        }
        (Some(mode), None) if !MODE_NAMES.contains(&&mode[..]) => {
            attributes.push(level.mode_fault(&format!("must be one of {}", MODE_NAMES.join(", "))));
            Err(())
        }
        (mode, None) => Ok(mode),
        (None, Some(remote)) => Ok(Some(if remote { "remote" } else { "local" }.to_owned())),
    }
}

/// Reads `setting-overwrites`, whose two flags must be equal. A null flag counts as absent.
fn read_overwrites(attributes: &mut AttributeReader<'_>, level: &ModeLevel) -> Result<Option<bool>, ()> {
    const NAME: &str = "setting-overwrites";
    let AttributeValue::Value(flags) = attributes.object(NAME) else { return Ok(None) };
    let mut inner = AttributeReader::new(flags);
    let mode = inner.flag(level.mode).value();
    let pool = inner.flag(level.pool).value();
    if !inner.has_no_faults() {
        attributes.fault(NAME, "Setting overwrites must contain booleans");
        return Err(());
    }
    if mode.zip(pool).is_some_and(|(mode, pool)| mode != pool) {
        attributes.fault(
            NAME,
            "If agent-pool and execution-mode are both included in setting-overwrites, their values must be the same.",
        );
        return Err(());
    }
    Ok(mode.or(pool))
}

fn decide_change(
    level: &ModeLevel,
    mode: Option<String>,
    overwrites: Option<bool>,
    RequestedPool { requested: pool, fallback }: RequestedPool,
    stored: Option<&ExecutionMode>,
) -> Result<ModeChange, Fault> {
    let stray_pool = || level.pool_fault("must not be specified unless using 'agent' execution mode");
    if overwrites == Some(false) {
        return Ok(ModeChange::Inherit);
    }
    let stored_pool = stored.and_then(|stored| stored.pool.as_ref());
    let named = mode.is_some();
    let Some(name) = mode.or_else(|| stored.map(|stored| stored.name.clone())) else {
        return match (overwrites, pool) {
            (Some(true), _) => Err(level.mode_fault("must be specified when setting-overwrites are true")),
            (_, AttributeValue::Value(_)) => Err(stray_pool()),
            _ => Ok(ModeChange::Unchanged),
        };
    };
    if name != "agent" {
        return match pool {
            AttributeValue::Value(pool) if stored_pool != Some(&pool) => Err(stray_pool()),
            _ if named => Ok(ModeChange::Own(ExecutionMode { name, pool: None })),
            _ => Ok(ModeChange::Unchanged),
        };
    }
    // If the request names no pool, the mode `agent` keeps the stored pool.
    match pool.or_stored(fallback.or_else(|| stored_pool.cloned())) {
        Some(pool) => Ok(ModeChange::Own(ExecutionMode { name, pool: Some(pool) })),
        None => Err(level.pool_fault("must be specified when using 'agent' execution mode")),
    }
}

impl ModeChange {
    /// Returns the column values to store, or `None` for no change. Adds a fault if the pool is not in the
    /// organization, or if the request changes the pool to one that `user` may not use. `stored` is the mode before the
    /// request.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn columns(
        self,
        tx: &mut Tx<'_>,
        org_id: i64,
        level: &ModeLevel,
        attributes: &mut AttributeReader<'_>,
        (user, stored): (PoolUser<'_>, Option<&ExecutionMode>),
    ) -> WorkResult<Option<ModeColumns>> {
        let mode = match self {
            Self::Unchanged => return Ok(None),
            Self::Inherit => return Ok(Some(ModeColumns::default())),
            Self::Own(mode) => mode,
        };
        let mut columns = ModeColumns { mode: Some(mode.name), pool: None };
        if let Some(pool) = mode.pool {
            let is_stored = stored.is_some_and(|stored| stored.pool.as_ref() == Some(&pool));
            match agent_scope::find_usable(tx, org_id, &pool).await? {
                Some(pool) if is_stored => columns.pool = Some(pool.id),
                Some(pool) if !pool.admits(user) => attributes.push(level.pool_fault(out_of_scope_text(user))),
                Some(pool) if pool.excludes_inheriting_workspace(tx, org_id, user).await? => {
                    attributes.push(level.pool_fault(EXCLUDES_INHERITING_WORKSPACE));
                }
                Some(pool) => columns.pool = Some(pool.id),
                None => attributes.push(level.pool_fault("must be an agent pool of the organization")),
            }
        }
        Ok(Some(columns))
    }
}

/// The text of the fault for a pool that excludes a workspace which would inherit the pool.
pub(super) const EXCLUDES_INHERITING_WORKSPACE: &str = "must not exclude a workspace that would inherit it";

/// Returns the text of the fault for a pool whose scope does not include `user`.
pub(super) fn out_of_scope_text(user: PoolUser<'_>) -> &'static str {
    match user {
        PoolUser::Organization => "must be scoped to the organization",
        PoolUser::Project(_) => "project does not have access to use this agent pool",
        PoolUser::Workspace(..) => "workspace does not have access to use this agent pool",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::projects::rejection::WorkError;

    fn mode(name: &str, pool: Option<&str>) -> ExecutionMode {
        ExecutionMode { name: name.to_owned(), pool: pool.map(str::to_owned) }
    }

    fn read_all(
        level: &ModeLevel,
        body: &Value,
        stored: Option<&ExecutionMode>,
    ) -> Result<ModeChange, Vec<(String, String)>> {
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        let change = read_change(
            &mut attributes,
            level,
            AttributeValue::Absent,
            CurrentModes { own: stored, effective: stored },
        );
        match attributes.finish() {
            Ok(()) => Ok(change),
            Err(WorkError::Refused(refusal)) => {
                Err(refusal.faults.iter().map(|f| (format!("{:?}", f.source), f.detail.to_string())).collect())
            }
            Err(stop) => panic!("{stop:?}"),
        }
    }

    fn assert_refused(level: &ModeLevel, body: Value, stored: Option<&ExecutionMode>, pointer: &str, text: &str) {
        let faults = read_all(level, &body, stored).expect_err(&body.to_string());
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].0.contains(pointer) && faults[0].1.contains(text), "{body}: {faults:?}");
    }

    #[test]
    fn agent_mode_requires_a_pool() {
        let agent = mode("agent", Some("apool-1"));
        let body = json!({ "default-execution-mode": "agent", "default-agent-pool-id": "apool-1" });
        assert_eq!(read_all(&PROJECT_LEVEL, &body, None), Ok(ModeChange::Own(agent.clone())));
        let again = json!({ "default-execution-mode": "agent" });
        assert_eq!(
            read_all(&PROJECT_LEVEL, &again, Some(&agent)),
            Ok(ModeChange::Own(agent.clone())),
            "the agent mode keeps its pool"
        );
        let pool = "default-agent-pool-id";
        let unless = "must not be specified unless using 'agent'";
        let when = "must be specified when using 'agent'";
        assert_refused(
            &PROJECT_LEVEL,
            again,
            None,
            pool,
            "Default agent pool must be specified when using 'agent' execution mode",
        );
        assert_refused(
            &PROJECT_LEVEL,
            json!({ "default-execution-mode": "remote", pool: "apool-1" }),
            None,
            pool,
            unless,
        );
        assert_refused(&PROJECT_LEVEL, json!({ pool: "apool-1" }), None, pool, unless);
        assert_refused(&PROJECT_LEVEL, json!({ pool: "apool-1" }), Some(&mode("local", None)), pool, unless);
        assert_refused(&PROJECT_LEVEL, json!({ pool: null }), Some(&agent), pool, when);
        assert_refused(
            &WORKSPACE_LEVEL,
            json!({ "execution-mode": "agent", "agent-pool-id": "" }),
            None,
            "agent-pool-id",
            when,
        );
        let other = json!({ pool: "apool-2" });
        assert_eq!(
            read_all(&PROJECT_LEVEL, &other, Some(&agent)),
            Ok(ModeChange::Own(mode("agent", Some("apool-2")))),
            "another pool alone"
        );
        let remote = json!({ "default-execution-mode": "remote" });
        assert_eq!(read_all(&PROJECT_LEVEL, &remote, Some(&agent)), Ok(ModeChange::Own(mode("remote", None))));
        assert_refused(
            &PROJECT_LEVEL,
            json!({ "default-execution-mode": "fast" }),
            None,
            "default-execution-mode",
            "must be one of",
        );
    }

    #[test]
    fn setting_overwrites_choose_own_or_inherited_mode() {
        let flags = |mode: Value, pool: Value| json!({ "execution-mode": mode, "agent-pool": pool });
        let with = |flags: Value| json!({ "setting-overwrites": flags });
        let own = mode("local", None);
        for inherits in
            [flags(json!(false), json!(false)), flags(json!(false), Value::Null), json!({"agent-pool": false})]
        {
            assert_eq!(read_all(&WORKSPACE_LEVEL, &with(inherits), Some(&own)), Ok(ModeChange::Inherit));
        }
        for nothing in [json!({}), Value::Null, flags(Value::Null, Value::Null)] {
            assert_eq!(read_all(&WORKSPACE_LEVEL, &with(nothing), Some(&own)), Ok(ModeChange::Unchanged));
        }
        assert_eq!(
            read_all(&WORKSPACE_LEVEL, &with(flags(json!(true), json!(true))), Some(&own)),
            Ok(ModeChange::Unchanged)
        );
        let unequal = with(flags(json!(true), json!(false)));
        assert_refused(
            &WORKSPACE_LEVEL,
            unequal,
            None,
            "setting-overwrites",
            "If agent-pool and execution-mode are both included",
        );
        assert_refused(
            &WORKSPACE_LEVEL,
            with(flags(json!(true), json!(true))),
            None,
            "execution-mode",
            "must be specified",
        );
        let both = json!({ "execution-mode": "local", "setting-overwrites": { "execution-mode": false } });
        assert_eq!(read_all(&WORKSPACE_LEVEL, &both, Some(&own)), Ok(ModeChange::Inherit), "false wins");
        let pool = json!({ "agent-pool-id": "apool-1", "setting-overwrites": { "agent-pool": false } });
        assert_eq!(read_all(&WORKSPACE_LEVEL, &pool, None), Ok(ModeChange::Inherit));
        assert_refused(
            &WORKSPACE_LEVEL,
            with(json!({ "agent-pool": "x" })),
            None,
            "setting-overwrites",
            "contain booleans",
        );
        let true_and_mode = json!({ "execution-mode": "local", "setting-overwrites": { "execution-mode": true } });
        assert_eq!(read_all(&WORKSPACE_LEVEL, &true_and_mode, None), Ok(ModeChange::Own(own)));
    }

    #[test]
    fn operations_attribute_sets_the_mode_of_workspaces_only() {
        let of = |value: bool| json!({ "operations": value });
        assert_eq!(read_all(&WORKSPACE_LEVEL, &of(true), None), Ok(ModeChange::Own(mode("remote", None))));
        assert_eq!(read_all(&WORKSPACE_LEVEL, &of(false), None), Ok(ModeChange::Own(mode("local", None))));
        assert_eq!(read_all(&PROJECT_LEVEL, &of(false), None), Ok(ModeChange::Unchanged));
        let both = |operations: bool, mode: &str| json!({ "operations": operations, "execution-mode": mode });
        for (name, pool) in [("remote", None), ("local", None), ("agent", Some("apool-1"))] {
            let own = mode(name, pool);
            let same = read_all(&WORKSPACE_LEVEL, &both(name != "local", name), Some(&own));
            assert_eq!(same, Ok(ModeChange::Own(own)), "as documents show it");
        }
        assert_refused(&WORKSPACE_LEVEL, both(false, "remote"), None, "operations", "must agree with execution-mode");
        let remote = mode("remote", None);
        let local = mode("local", None);
        for (operations, named, stored, expected) in
            [(true, "local", &remote, &local), (false, "remote", &remote, &local), (true, "local", &local, &remote)]
        {
            let changed = read_all(&WORKSPACE_LEVEL, &both(operations, named), Some(stored));
            assert_eq!(changed, Ok(ModeChange::Own(expected.clone())), "one of the two differs from what is shown");
        }
    }

    #[test]
    fn agent_mode_takes_its_pool_from_the_relationship() {
        let read = |body: Value, own: Option<&ExecutionMode>| {
            let mut attributes = AttributeReader::new(body.as_object().unwrap());
            let change = read_change(
                &mut attributes,
                &PROJECT_LEVEL,
                AttributeValue::Value("apool-1".to_owned()),
                CurrentModes { own, effective: own },
            );
            attributes.finish().map(|()| change).map_err(drop)
        };
        let agent = mode("agent", Some("apool-1"));
        let named = |name: &str| json!({ "default-execution-mode": name });
        assert_eq!(read(named("agent"), None), Ok(ModeChange::Own(agent.clone())));
        assert_eq!(read(named("remote"), Some(&agent)), Ok(ModeChange::Own(mode("remote", None))));
        assert_eq!(read(json!({}), None), Ok(ModeChange::Unchanged));
        let body = json!({ "default-execution-mode": "remote", "default-agent-pool-id": "apool-1" });
        assert_eq!(
            read(body.clone(), Some(&agent)),
            Ok(ModeChange::Own(mode("remote", None))),
            "the relationship does not set the mode"
        );
        assert_eq!(read(body, None), Err(()));
    }

    #[test]
    fn organization_mode_has_a_pool_relationship_and_no_overwrites() {
        let body = json!({ "default-execution-mode": "agent", "setting-overwrites": { "agent-pool": false } });
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        let remote = mode("remote", None);
        let before = CurrentModes { own: Some(&remote), effective: Some(&remote) };
        let change =
            read_change(&mut attributes, &ORGANIZATION_LEVEL, AttributeValue::Value("apool-1".to_owned()), before);
        assert_eq!(change, ModeChange::Own(mode("agent", Some("apool-1"))));
        let nothing = json!({});
        let mut attributes = AttributeReader::new(nothing.as_object().unwrap());
        read_change(&mut attributes, &ORGANIZATION_LEVEL, AttributeValue::Value("apool-1".to_owned()), before);
        let Err(WorkError::Refused(refusal)) = attributes.finish() else { panic!("refused") };
        assert!(format!("{:?}", refusal.faults).contains("/data/relationships/default-agent-pool"));
    }

    proptest! {
        /// For any input, the resulting mode has a pool if and only if the mode is `agent`.
        #[test]
        fn pool_requires_agent_mode(
            named in prop::option::of(prop::sample::select(MODE_NAMES.to_vec())),
            pool in prop::option::of(prop::sample::select(vec!["", "apool-1"])),
            overwrites in prop::option::of(any::<bool>()),
            stored in prop::option::of(prop::sample::select(MODE_NAMES.to_vec())),
        ) {
            let mut body = serde_json::Map::new();
            named.map(|name| body.insert("execution-mode".into(), name.into()));
            pool.map(|pool| body.insert("agent-pool-id".into(), pool.into()));
            overwrites.map(|flag| body.insert("setting-overwrites".into(), json!({ "agent-pool": flag })));
            let stored = stored.map(|name| mode(name, (name == "agent").then_some("apool-0")));
            if let Ok(ModeChange::Own(own)) = read_all(&WORKSPACE_LEVEL, &Value::Object(body), stored.as_ref()) {
                prop_assert_eq!(own.name == "agent", own.pool.is_some());
            }
        }
    }
}

//! The mount table: secret engines (`sys/mounts`), authentication methods (`sys/auth`) and moves of mounts
//! (`sys/remount`).

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::dialect::Dialect;
use super::super::handler_response::{HandlerResponse, ResponseBody};
use super::super::index_of;
use super::super::route::Call;
use super::super::warnings::warn_unknown_fields;
use super::{IGNORED_FIELDS, run_detached};
use crate::auth::mounts::Mount;
use crate::error::{Error, Kind, Result, Warnings};
use crate::fields::{Fields, Resource as _};

/// Prefix of the paths of authentication methods.
const AUTH_PREFIX: &str = "auth/";

/// `false` for mounts that only [reserve their paths](crate::auth::mounts) and have no routes.
fn has_routes(mount: &Mount) -> bool {
    index_of(&mount.kind).is_some()
}

/// Const argument `OF_METHODS` for the handlers of `sys/mounts/…`. Clients also use `sys/mounts/auth/…`, which needs no
/// `sudo`, for authentication methods that they enabled.
pub(super) const SECRET_ENGINES: bool = false;
/// Const argument `OF_METHODS` for the handlers of `sys/auth/…`. The mount paths in these requests omit the prefix
/// `auth/`.
pub(super) const AUTH_METHODS: bool = true;

/// Returns the path of the mount that the request names.
fn mount_path<const OF_METHODS: bool>(call: &Call) -> String {
    format!("{}{}", if OF_METHODS { AUTH_PREFIX } else { "" }, call.param("path"))
}

/// `GET sys/mounts`: the secret engines by path. `GET sys/auth`: the authentication methods by path below `auth/`.
pub(super) async fn list<const OF_METHODS: bool>(call: Call) -> Result<HandlerResponse> {
    let table = call.state.auth.mounts();
    let shown = |mount: &Arc<Mount>| {
        let below_auth = mount.path.strip_prefix(AUTH_PREFIX);
        let path = if OF_METHODS { below_auth? } else { below_auth.is_none().then_some(&mount.path[..])? };
        Some((path.to_owned(), mount_json(mount, call.dialect)))
    };
    let entries = table.iter().filter(|mount| has_routes(mount)).filter_map(shown);
    Ok(ResponseBody::DataAndTop(Value::Object(entries.collect::<Map<_, _>>())).into())
}

fn mount_json(mount: &Mount, dialect: Dialect) -> Value {
    let mut entry = mount.to_json();
    entry["type"] = dialect.mount_type(mount).into();
    entry
}

pub(super) async fn read<const OF_METHODS: bool>(call: Call) -> Result<HandlerResponse> {
    Ok(ResponseBody::DataAndTop(mount_json(&*find_mount::<OF_METHODS>(&call)?, call.dialect)).into())
}

pub(super) async fn read_tuning<const OF_METHODS: bool>(call: Call) -> Result<HandlerResponse> {
    Ok(ResponseBody::DataAndTop(find_mount::<OF_METHODS>(&call)?.tune_json()).into())
}

pub(super) async fn tune<const OF_METHODS: bool>(call: Call) -> Result<HandlerResponse> {
    run_detached(async move {
        let mut warnings = call.state.mounts.tune(&mount_path::<OF_METHODS>(&call), &call.fields).await?;
        warnings.extend(ignored_field_warnings(&call.fields));
        Ok(warnings)
    })
    .await
}

/// `POST sys/mounts/:path`. The mount is available when the response is sent.
pub(super) async fn enable(call: Call) -> Result<HandlerResponse> {
    run_detached(async move {
        call.state.mounts.enable(call.param("path"), &call.fields).await?;
        Ok(ignored_field_warnings(&call.fields))
    })
    .await
}

/// `DELETE sys/mounts/:path`; also succeeds if the mount does not exist.
pub(super) async fn disable(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.mounts.disable(call.param("path")).await }).await
}

/// Returns warnings about ignored settings: unknown members of `config`, and fields without effect.
fn ignored_field_warnings(fields: &Fields) -> Warnings {
    let config = fields.value("config").and_then(Value::as_object);
    let members =
        config.into_iter().flatten().filter(|(name, value)| !Mount::FIELDS.contains(&&name[..]) && is_set(value));
    let members = members.map(|(name, _)| name.as_str());
    let fields = IGNORED_FIELDS.iter().copied().filter(|name| fields.value(name).is_some_and(is_set));
    warn_unknown_fields(fields.chain(members), Mount::FIELDS)
}

/// `true` if the value is not empty. Known clients send empty values for unset fields.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// The type by which a known client enables an authentication method, and the type of that method here.
const COMPAT_METHOD_NAMES: (&str, &str) = ("azure", "cloudb");

pub(super) async fn enable_auth_method(mut call: Call) -> Result<HandlerResponse> {
    let is_known = call.state.settings.compat && call.fields.text("type")?.as_deref() == Some(COMPAT_METHOD_NAMES.0);
    let known_as = is_known.then_some(COMPAT_METHOD_NAMES.0);
    if is_known {
        call.fields.set("type", COMPAT_METHOD_NAMES.1);
    }
    run_detached(async move {
        call.state.mounts.enable_method(call.param("path"), &call.fields, known_as).await?;
        Ok(ignored_field_warnings(&call.fields))
    })
    .await
}

/// `DELETE sys/auth/:path`; also succeeds if the mount does not exist.
pub(super) async fn disable_auth_method(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.mounts.disable_method(call.param("path")).await }).await
}

/// `GET sys/internal/ui/mounts`: the mounts that the caller may access in any way, and those that are listed for all
/// clients. Unauthenticated callers get fewer members of each mount.
pub(super) async fn list_visible(call: Call) -> Result<HandlerResponse> {
    let state = &call.state;
    let mut lists = [Map::new(), Map::new()];
    let caller = match &call.token {
        None => None,
        Some(token) => {
            state.nodes.require_fresh().await?;
            Some(state.auth.recognise(token.expose(), call.address).await?)
        }
    };
    for mount in state.auth.mounts().iter().filter(|mount| has_routes(mount)) {
        let reached = caller.as_ref().is_some_and(|caller| state.auth.grants_below_mount(caller, mount));
        if !reached && mount.listing_visibility != "unauth" {
            continue;
        }
        let entry = match &caller {
            Some(_) => mount_json(mount, call.dialect),
            None => {
                json!({ "type": call.dialect.mount_type(mount), "description": mount.description, "options": mount.options })
            }
        };
        let (list, path) = match mount.path.strip_prefix(AUTH_PREFIX) {
            Some(path) => (1, path),
            None => (0, &mount.path[..]),
        };
        lists[list].insert(path.to_owned(), entry);
    }
    let [secret, auth] = lists;
    Ok(HandlerResponse::data(json!({ "secret": secret, "auth": auth })))
}

/// `GET sys/internal/ui/mounts/:path`: the mount of a path, for callers with any access to that mount. The error is the
/// same for a missing mount and for a mount that the caller may not access.
pub(super) async fn preflight(call: Call) -> Result<HandlerResponse> {
    let path = call.param("path");
    let refused = || {
        let text = "preflight capability check returned 403, please ensure client's policies grant access to path";
        Error::new(Kind::Forbidden, format!("{text} \"{path}/\""))
    };
    let table = call.state.auth.mounts();
    let (mount, _) = table.route(path).filter(|(mount, _)| has_routes(mount)).ok_or_else(refused)?;
    if !call.state.auth.grants_below_mount(call.caller()?, mount) {
        return Err(refused());
    }
    let mut entry = mount_json(mount, call.dialect);
    entry["path"] = mount.path.clone().into();
    Ok(HandlerResponse::data(entry))
}

/// `POST sys/remount`: moves a mount. The move is complete when its response is sent.
pub(super) async fn remount(call: Call) -> Result<HandlerResponse> {
    let path = |name| call.fields.str(name).map(|path| path.filter(|path| !path.is_empty()).map(str::to_owned));
    let (Some(from), Some(to)) = (path("from")?, path("to")?) else {
        return Err(Error::invalid("both 'from' and 'to' path must be specified as a string"));
    };
    run_detached(async move {
        let completed = call.state.mounts.remount(&from, &to).await?;
        Ok(ResponseBody::DataAndTop(json!({ "migration_id": completed.id })))
    })
    .await
}

/// `GET sys/remount/status/:migration_id`: reports success for every known move, because a move is complete when
/// `sys/remount` returns its id.
pub(super) async fn remount_status(call: Call) -> Result<HandlerResponse> {
    let completed = call.state.auth.completed_move(call.param("migration_id")).await?.ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(json!({
        "migration_id": completed.id,
        "migration_info": { "source_mount": completed.from, "target_mount": completed.to, "status": "success" },
    })))
}

fn find_mount<const OF_METHODS: bool>(call: &Call) -> Result<Arc<Mount>> {
    let table = call.state.auth.mounts();
    let mount = table.get(&mount_path::<OF_METHODS>(call)).filter(|mount| has_routes(mount));
    mount.cloned().ok_or_else(|| {
        let what = if OF_METHODS { "No auth engine" } else { "No secret engine mount" };
        Error::invalid(format!("{what} at {}/", call.param("path")))
    })
}

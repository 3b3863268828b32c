//! Policies (`sys/policies/acl` and the older `sys/policy`) and the capabilities that they grant (`sys/capabilities…`).

use serde_json::{Map, Value, json};

use super::super::granted_capabilities;
use super::super::handler_response::{HandlerResponse, ResponseBody};
use super::super::page::PageParams;
use super::super::route::Call;
use super::run_detached;
use crate::auth::{Auth, Caller};
use crate::error::{Error, Result, Warnings};
use crate::fields::{Fields, ListLimit};

/// Limits on a list of paths. The length of each path is not limited here; [`MAX_TOTAL_PATH_BYTES`] limits the total
/// length.
const PATH_LIST_LIMIT: ListLimit = ListLimit { bytes: usize::MAX, ..ListLimit::LIST };

/// Maximum total length of the paths in a request, in bytes.
const MAX_TOTAL_PATH_BYTES: usize = 256 << 10;

pub(super) async fn list_names(call: Call) -> Result<HandlerResponse> {
    HandlerResponse::keys(page_names(&call.fields, call.state.auth.policy_names())?, None)
}

/// `LIST sys/policy`: the policy names, both in `keys` and in `policies` for older clients.
pub(super) async fn list_legacy(call: Call) -> Result<HandlerResponse> {
    let names = page_names(&call.fields, call.state.auth.policy_names())?;
    Ok(ResponseBody::DataAndTop(json!({ "keys": names, "policies": names })).into())
}

fn page_names(fields: &Fields, mut keys: Vec<String>) -> Result<Vec<String>> {
    keys.sort_unstable();
    Ok(PageParams::of(fields)?.take_page(keys.iter().map(String::as_str)))
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let policy = call.state.auth.policy_read(call.param("name"));
    policy.map(HandlerResponse::data).ok_or_else(Error::not_found)
}

/// `GET sys/policy/:name`: for older clients, `rules` repeats the text, and the top level repeats all members.
pub(super) async fn read_legacy(call: Call) -> Result<HandlerResponse> {
    let mut policy = call.state.auth.policy_read(call.param("name")).ok_or_else(Error::not_found)?;
    policy["rules"] = policy["policy"].clone();
    Ok(ResponseBody::DataAndTop(policy).into())
}

pub(super) async fn write(call: Call) -> Result<HandlerResponse> {
    run_detached(async move {
        let mut warnings = call.state.auth.policy_write(call.param("name"), &call.fields).await?;
        if call.was_normalized {
            warnings.add(Auth::renamed_policy_warning(call.param("name")));
        }
        Ok(warnings)
    })
    .await
}

/// `POST sys/policy/:name`: for older clients, accepts the text also as `rules`, with a warning.
pub(super) async fn write_legacy(mut call: Call) -> Result<HandlerResponse> {
    let mut warnings = Warnings::default();
    if let (false, Some(rules)) = (call.fields.has("policy"), call.fields.value("rules").cloned()) {
        call.fields.set("policy", rules);
        warnings.add("'rules' is deprecated, please use 'policy' instead".to_owned());
    }
    Ok(write(call).await?.with_warnings(warnings))
}

/// `DELETE sys/policies/acl/:name`; also succeeds if the policy does not exist.
pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    run_detached(async move { call.state.auth.policy_delete(call.param("name")).await }).await
}

/// `POST sys/capabilities-self`: the caller's capabilities on each path. The known command line client also sends a
/// `token` in the body, which is ignored.
pub(super) async fn capabilities_self(call: Call) -> Result<HandlerResponse> {
    list_capabilities(&call, call.caller()?).await
}

/// `POST sys/capabilities`: the capabilities of another token, given by its text.
pub(super) async fn capabilities(call: Call) -> Result<HandlerResponse> {
    let token = call.fields.text("token")?.ok_or_else(|| Error::invalid("token: must be given"))?;
    let holder = call.state.auth.caller_by_token(&token).await?;
    list_capabilities(&call, &*holder.ok_or_else(|| Error::invalid("token: not known"))?).await
}

/// `POST sys/capabilities-accessor`: the capabilities of another token, given by its accessor.
pub(super) async fn capabilities_accessor(call: Call) -> Result<HandlerResponse> {
    let accessor = call.fields.text("accessor")?.ok_or_else(|| Error::invalid("accessor: must be given"))?;
    let holder = call.state.auth.caller_by_accessor(&accessor).await?;
    list_capabilities(&call, &*holder.ok_or_else(|| Error::invalid("invalid accessor"))?).await
}

async fn list_capabilities(call: &Call, holder: &Caller) -> Result<HandlerResponse> {
    /// Number of paths that are evaluated before the worker may run other tasks.
    const PATHS_PER_YIELD: usize = 32;
    let mut paths = call.fields.list_within("paths", PATH_LIST_LIMIT)?.unwrap_or_default();
    paths.extend(call.fields.list_within("path", PATH_LIST_LIMIT)?.unwrap_or_default());
    if paths.is_empty() {
        return Err(Error::invalid("paths must be supplied"));
    }
    if paths.iter().map(String::len).sum::<usize>() > MAX_TOTAL_PATH_BYTES {
        // The limit is low because the response contains each path twice.
        return Err(Error::invalid(format!("paths: longer than {MAX_TOTAL_PATH_BYTES} bytes in total")));
    }
    let words = |path: &str| json!(granted_capabilities(&call.state, holder, path.trim_start_matches('/')));
    let mut data = Map::new();
    for some in paths.chunks(if holder.is_too_large_to_cache() { 1 } else { PATHS_PER_YIELD }) {
        data.extend(some.iter().map(|path| (path.clone(), words(path))));
        tokio::task::yield_now().await;
    }
    if let [only] = paths.as_slice() {
        data.insert("capabilities".to_owned(), words(only));
    }
    Ok(ResponseBody::DataAndTop(Value::Object(data)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_names_are_sorted_and_start_after_the_cursor() {
        let keys = || ["b", "a", "c"].map(str::to_owned).to_vec();
        let paged = |pairs: &[(&str, &str)]| {
            let fields = Fields::from_pairs(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
            page_names(&fields, keys())
        };
        assert_eq!(paged(&[]).unwrap(), ["a", "b", "c"]);
        assert_eq!(paged(&[("after", "a"), ("limit", "1")]).unwrap(), ["b"]);
        for all in ["0", "-1", "max"] {
            assert_eq!(paged(&[("limit", all)]).unwrap().len(), 3);
        }
        assert!(paged(&[("limit", "x")]).is_err());
    }
}

//! The system mount (`sys/`): health, mounts, policies, capabilities, quotas, CORS, leases, wrapped responses, managed
//! keys.

mod audit;
mod compromised_keys;
mod cors;
mod explain;
mod health;
mod leases;
mod managed_keys;
mod mounts;
mod policies;
mod quotas;
mod rotate;
mod versions;
mod wrapping;

use futures_util::future::LocalBoxFuture;

use self::mounts::{AUTH_METHODS, SECRET_ENGINES};
use super::handler_response::{HandlerResponse, ResponseBody};
use super::page::PAGE_FIELDS;
use super::route::{Call, Route, concat_fields, routes};
use crate::auth::mounts::Mount;
use crate::clock::format_rfc3339;
use crate::error::{Error, Result};
use crate::fields::Resource as _;
use crate::http::gauges;
use crate::rationing::{QueueCaller, cpu};
use crate::telemetry::{self, Exposition};

const HEALTH_FIELDS: &[&str] = &[
    "standbyok",
    "perfstandbyok",
    "activecode",
    "standbycode",
    "sealedcode",
    "uninitcode",
    "drsecondarycode",
    "performancestandbycode",
];

const MOUNT_FIELDS: &[&str] = &[
    "type",
    "description",
    "config",
    "options",
    "local",
    "seal_wrap",
    "external_entropy_access",
    "plugin_name",
    "plugin_version",
];

/// The fields of a request that tunes a mount. A request that creates a mount has them in the member `config`.
const TUNE_FIELDS: &[&str] = &concat_fields::<14>(&[Mount::FIELDS, &["user_lockout_config", "plugin_version"]]);

/// Mount fields that are accepted without effect; a non-empty value causes a warning.
const IGNORED_FIELDS: &[&str] = &["plugin_name", "plugin_version", "user_lockout_config"];

const POLICY_FIELDS: &[&str] = &["policy", "rules", "ttl", "expiration", "cas", "cas_required"];
const POLICY_SYNONYMS: &[(&str, &str)] = &[("rules", "policy")];
const PATH_SYNONYMS: &[(&str, &str)] = &[("path", "paths")];
const TOKEN_FIELDS: &[&str] = &["token"];
const LEASE_FIELDS: &[&str] = &["lease_id"];
const RENEW_FIELDS: &[&str] = &["lease_id", "increment"];
const REVOKE_FIELDS: &[&str] = &["lease_id", "sync"];

/// The routes below `sys/`.
pub static ROUTES: &[Route] = routes! {
    (open.unaudited()) Read "health" HEALTH_FIELDS => health::health;
    (open.unaudited()) Read "live" &[] => health::live;
    (open.unaudited()) Read "seal-status" &[] => health::seal_status;
    (open.unaudited()) Read "init" &[] => health::init;
    (open.unaudited()) Read "leader" &[] => health::leader;
    (token.compressible().unaudited()) Read "metrics" &["format"] => metrics;
    (token.compressible()) Read "mounts" &[] => mounts::list::<SECRET_ENGINES>;
    token Read "mounts/*path" &[] => mounts::read::<SECRET_ENGINES>;
    token Update "mounts/*path" MOUNT_FIELDS => mounts::enable;
    token Delete "mounts/*path" &[] => mounts::disable;
    token Read "mounts/*path/tune" &[] => mounts::read_tuning::<SECRET_ENGINES>;
    token Update "mounts/*path/tune" TUNE_FIELDS => mounts::tune::<SECRET_ENGINES>;
    (token.compressible()) Read "auth" &[] => mounts::list::<AUTH_METHODS>;
    sudo Read "auth/*path" &[] => mounts::read::<AUTH_METHODS>;
    sudo Update "auth/*path" MOUNT_FIELDS => mounts::enable_auth_method;
    sudo Delete "auth/*path" &[] => mounts::disable_auth_method;
    sudo Read "auth/*path/tune" &[] => mounts::read_tuning::<AUTH_METHODS>;
    sudo Update "auth/*path/tune" TUNE_FIELDS => mounts::tune::<AUTH_METHODS>;
    (sudo.compressible()) Read "audit" &[] => audit::list_devices;
    sudo Update "audit/*path" audit::FIELDS => audit::enable;
    sudo Delete "audit/*path" &[] => audit::disable;
    token Update "audit-hash/*path" &["input"] => audit::hash;
    sudo Update "remount" &["from", "to"] => mounts::remount;
    token Read "remount/status/:migration_id" &[] => mounts::remount_status;
    token Read "internal/status" &[] => versions::store_condition;
    (open.with_unvalidated_token()) Read "internal/ui/mounts" &[] => mounts::list_visible;
    (token.for_any_token()) Read "internal/ui/mounts/*path" &[] => mounts::preflight;
    token Read "internal/ui/resultant-acl" &[] => explain::resultant_acl;
    (token.with_body_limit(explain::MAX_BODY_BYTES)) Update
        "internal/explain" explain::FIELDS => explain::explain_other;
    (token.for_any_token().with_body_limit(explain::MAX_BODY_BYTES)) Update
        "internal/explain-self" explain::SELF_FIELDS => explain::explain_self;
    token List "policies/acl" PAGE_FIELDS => policies::list_names;
    (token.compressible()) Read "policies/acl" PAGE_FIELDS => policies::list_names;
    (token.compressible()) Read "policies/acl/*name" &[] => policies::read;
    (token.with_synonyms(POLICY_SYNONYMS)) Update "policies/acl/*name" POLICY_FIELDS => policies::write;
    token Delete "policies/acl/*name" &[] => policies::delete;
    token List "policy" PAGE_FIELDS => policies::list_legacy;
    (token.compressible()) Read "policy" PAGE_FIELDS => policies::list_legacy;
    (token.compressible()) Read "policy/*name" &[] => policies::read_legacy;
    (token.with_synonyms(POLICY_SYNONYMS)) Update "policy/*name" POLICY_FIELDS => policies::write_legacy;
    token Delete "policy/*name" &[] => policies::delete;
    (token.with_synonyms(PATH_SYNONYMS)) Update
        "capabilities-self" &["path", "paths", "token"] => policies::capabilities_self;
    (token.with_synonyms(PATH_SYNONYMS)) Update "capabilities" &["path", "paths", "token"] => policies::capabilities;
    (token.with_synonyms(PATH_SYNONYMS)) Update
        "capabilities-accessor" &["path", "paths", "accessor"] => policies::capabilities_accessor;
    sudo List "compromised-keys" PAGE_FIELDS => compromised_keys::list;
    sudo Update "compromised-keys" compromised_keys::ADD_FIELDS => compromised_keys::add;
    sudo Read "compromised-keys/:hash" &[] => compromised_keys::read;
    sudo Update "compromised-keys/:hash" compromised_keys::ADD_HASH_FIELDS => compromised_keys::add_hash;
    sudo Delete "compromised-keys/:hash" &[] => compromised_keys::remove;
    sudo Read "leases" &["type", "limit"] => leases::list_irrevocable;
    token List "quotas/rate-limit" PAGE_FIELDS => quotas::list;
    token Read "quotas/rate-limit/:name" &[] => quotas::read;
    token Update "quotas/rate-limit/:name" quotas::FIELDS => quotas::write;
    token Delete "quotas/rate-limit/:name" &[] => quotas::delete;
    token Read "quotas/config" &[] => quotas::read_config;
    token Update "quotas/config" quotas::CONFIG_FIELDS => quotas::write_config;
    sudo Read "config/cors" &[] => cors::read;
    sudo Update "config/cors" cors::FIELDS => cors::write;
    sudo Delete "config/cors" &[] => cors::delete;
    token Update "leases/lookup" LEASE_FIELDS => leases::lookup;
    sudo List "leases/lookup", "leases/lookup/*prefix" PAGE_FIELDS => leases::list;
    token Update "leases/renew", "leases/renew/*lease_id" RENEW_FIELDS => leases::renew;
    token Update "leases/revoke", "leases/revoke/*lease_id" REVOKE_FIELDS => leases::revoke;
    sudo Update "leases/revoke-prefix/*prefix" &["sync"] => leases::revoke_prefix;
    sudo Update "leases/revoke-force/*prefix" &[] => leases::revoke_force;
    token Read "leases/count" &["type"] => leases::count;
    token Update "leases/tidy" &[] => leases::tidy;
    token List "version-history" &[] => versions::history;
    token Read "key-status" &[] => rotate::key_status;
    sudo Update "rotate", "rotate/keyring" &[] => rotate::rotate;
    token Read "rotate/config" &[] => rotate::read_config;
    token Update "rotate/config" rotate::FIELDS => rotate::write_config;
    token Read "rotate/keyring/config" &[] => rotate::read_config;
    token Update "rotate/keyring/config" rotate::FIELDS => rotate::write_config;
    (token.with_verbatim_body()) Update "wrapping/wrap" &[] => wrapping::wrap;
    (open.with_unvalidated_token()) Update "wrapping/lookup" TOKEN_FIELDS => wrapping::lookup;
    (open.with_unvalidated_token()) Read "wrapping/lookup" &[] => wrapping::lookup;
    (open.with_unvalidated_token()) Update "wrapping/unwrap" TOKEN_FIELDS => wrapping::unwrap;
    token Update "wrapping/rewrap" TOKEN_FIELDS => wrapping::rewrap;
    token List "managed-keys/:backend" PAGE_FIELDS => managed_keys::list;
    token Read "managed-keys/:backend/:managed_key" &[] => managed_keys::read;
    (token.with_existence_check(managed_keys::exists)) Update
        "managed-keys/:backend/:managed_key" managed_keys::FIELDS => managed_keys::write;
    token Delete "managed-keys/:backend/:managed_key" &[] => managed_keys::delete;
    token Update
        "managed-keys/:backend/:managed_key/test/sign" managed_keys::TEST_SIGN_FIELDS => managed_keys::test_sign;
};

/// Runs a change in a separate task, which continues if the caller disconnects. A change that stops halfway could leave
/// the state in memory different from the stored one.
pub(super) async fn run_detached<T: Into<HandlerResponse> + 'static>(
    work: impl Future<Output = Result<T>> + 'static,
) -> Result<HandlerResponse> {
    // Boxed, so that the task is compiled once and not for each of the many changes.
    let work: LocalBoxFuture<'static, Result<HandlerResponse>> = Box::pin(async { work.await.map(Into::into) });
    tokio::task::spawn_local(QueueCaller::current().scope(work)).await.map_err(Error::internal)?
}

/// Returns the metrics as JSON, or in the Prometheus format with `format=prometheus`. A client that prefers OpenMetrics
/// gets OpenMetrics instead, unless it requests `format=json`.
async fn metrics(call: Call) -> Result<HandlerResponse> {
    let format = call.fields.text("format")?;
    match format.as_deref() {
        None | Some("") if call.exposition == Exposition::OpenMetrics => metrics_page(&call).await,
        None | Some("" | "json") => {
            let figures = gauges::collect_series(&call.state);
            let mut summary = cpu::run(move || telemetry::summarize_metrics(&figures)).await?;
            summary.insert("Timestamp".to_owned(), format_rfc3339(call.state.clock.now()).into());
            Ok(ResponseBody::Plain(serde_json::Value::Object(summary)).into())
        }
        Some("prometheus") => metrics_page(&call).await,
        Some(other) => {
            let begin: String = other.chars().take(64).collect();
            Err(Error::invalid(format!("format: must be json or prometheus, not {begin:?}")))
        }
    }
}

async fn metrics_page(call: &Call) -> Result<HandlerResponse> {
    let form = call.exposition;
    let figures = gauges::collect_series(&call.state);
    let page = cpu::run(move || telemetry::render_metrics(form, &figures)).await?;
    let mut answer = HandlerResponse::raw(form.media_type(), page);
    answer.headers.push(("vary", "accept".to_owned()));
    Ok(answer)
}

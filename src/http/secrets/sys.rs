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
mod remount;
mod rotate;
mod versions;
mod wrapping;

use super::handler_response::{HandlerResponse, ResponseBody};
use super::route::Operation::{Delete, List, Read, Update};
use super::route::{Call, Route, concat_fields};
use crate::clock::format_rfc3339;
use crate::error::{Error, Result};
use crate::fair_queue::{QueueCaller, cpu};
use crate::http::gauges;
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

/// Settings of a mount; at creation they are members of `config`.
const SETTING_FIELDS: &[&str] = &[
    "default_lease_ttl",
    "max_lease_ttl",
    "description",
    "force_no_cache",
    "options",
    "listing_visibility",
    "audit_non_hmac_request_keys",
    "audit_non_hmac_response_keys",
    "passthrough_request_headers",
    "allowed_response_headers",
    "allowed_managed_keys",
    "token_type",
];
const TUNE_FIELDS: &[&str] = &concat_fields::<14>(&[SETTING_FIELDS, &["user_lockout_config", "plugin_version"]]);

/// Mount fields that are accepted without effect; a non-empty value causes a warning.
const IGNORED_FIELDS: &[&str] = &["plugin_name", "plugin_version", "user_lockout_config"];

const POLICY_FIELDS: &[&str] = &["policy", "rules", "ttl", "expiration", "cas", "cas_required"];
const POLICY_SYNONYMS: &[(&str, &str)] = &[("rules", "policy")];
const PATH_SYNONYMS: &[(&str, &str)] = &[("path", "paths")];
const PAGE_FIELDS: &[&str] = &["after", "limit"];
const TOKEN_FIELDS: &[&str] = &["token"];
const LEASE_FIELDS: &[&str] = &["lease_id"];
const RENEW_FIELDS: &[&str] = &["lease_id", "increment"];
const REVOKE_FIELDS: &[&str] = &["lease_id", "sync"];

/// Routes below `sys/`.
pub static ROUTES: &[Route] = &[
    Route::open(Read, "health", HEALTH_FIELDS, |call| Box::pin(health::health(call))).unaudited(),
    Route::open(Read, "live", &[], |call| Box::pin(health::live(call))).unaudited(),
    Route::open(Read, "seal-status", &[], |call| Box::pin(health::seal_status(call))).unaudited(),
    Route::open(Read, "init", &[], |call| Box::pin(health::init(call))).unaudited(),
    Route::open(Read, "leader", &[], |call| Box::pin(health::leader(call))).unaudited(),
    Route::token(Read, "metrics", &["format"], |call| Box::pin(metrics(call))).compressible().unaudited(),
    Route::token(Read, "mounts", &[], |call| Box::pin(mounts::engines(call))).compressible(),
    Route::token(Read, "mounts/*path", &[], |call| Box::pin(mounts::engine(call))),
    Route::token(Update, "mounts/*path", MOUNT_FIELDS, |call| Box::pin(mounts::enable(call))),
    Route::token(Delete, "mounts/*path", &[], |call| Box::pin(mounts::disable(call))),
    Route::token(Read, "mounts/*path/tune", &[], |call| Box::pin(mounts::tuning(call))),
    Route::token(Update, "mounts/*path/tune", TUNE_FIELDS, |call| Box::pin(mounts::tune(call))),
    Route::token(Read, "auth", &[], |call| Box::pin(mounts::methods(call))).compressible(),
    Route::sudo(Read, "auth/*path", &[], |call| Box::pin(mounts::method(call))),
    Route::sudo(Update, "auth/*path", MOUNT_FIELDS, |call| Box::pin(mounts::enable_auth_method(call))),
    Route::sudo(Delete, "auth/*path", &[], |call| Box::pin(mounts::method_disable(call))),
    Route::sudo(Read, "auth/*path/tune", &[], |call| Box::pin(mounts::method_tuning(call))),
    Route::sudo(Update, "auth/*path/tune", TUNE_FIELDS, |call| Box::pin(mounts::tune_auth_method(call))),
    Route::sudo(Read, "audit", &[], |call| Box::pin(audit::devices(call))).compressible(),
    Route::sudo(Update, "audit/*path", audit::FIELDS, |call| Box::pin(audit::enable(call))),
    Route::sudo(Delete, "audit/*path", &[], |call| Box::pin(audit::disable(call))),
    Route::token(Update, "audit-hash/*path", &["input"], |call| Box::pin(audit::hash(call))),
    Route::sudo(Update, "remount", &["from", "to"], |call| Box::pin(remount::remount(call))),
    Route::token(Read, "remount/status/:migration_id", &[], |call| Box::pin(remount::status(call))),
    Route::token(Read, "internal/status", &[], |call| Box::pin(versions::condition(call))),
    Route::open(Read, "internal/ui/mounts", &[], |call| Box::pin(mounts::visible(call))).with_token_as_sent(),
    Route::token(Read, "internal/ui/mounts/*path", &[], |call| Box::pin(mounts::preflight(call))).for_callers(),
    Route::token(Read, "internal/ui/resultant-acl", &[], |call| Box::pin(explain::resultant_acl(call))),
    Route::token(Update, "internal/explain", explain::FIELDS, |call| Box::pin(explain::explain_other(call)))
        .with_body_limit(explain::MAX_BODY_BYTES),
    Route::token(Update, "internal/explain-self", explain::SELF_FIELDS, |call| Box::pin(explain::explain_self(call)))
        .for_callers()
        .with_body_limit(explain::MAX_BODY_BYTES),
    Route::token(List, "policies/acl", PAGE_FIELDS, |call| Box::pin(policies::names(call))),
    Route::token(Read, "policies/acl", PAGE_FIELDS, |call| Box::pin(policies::names(call))).compressible(),
    Route::token(Read, "policies/acl/*name", &[], |call| Box::pin(policies::read(call))).compressible(),
    Route::token(Update, "policies/acl/*name", POLICY_FIELDS, |call| Box::pin(policies::write(call)))
        .with_synonyms(POLICY_SYNONYMS),
    Route::token(Delete, "policies/acl/*name", &[], |call| Box::pin(policies::delete(call))),
    Route::token(List, "policy", PAGE_FIELDS, |call| Box::pin(policies::old_names(call))),
    Route::token(Read, "policy", PAGE_FIELDS, |call| Box::pin(policies::old_names(call))).compressible(),
    Route::token(Read, "policy/*name", &[], |call| Box::pin(policies::old_read(call))).compressible(),
    Route::token(Update, "policy/*name", POLICY_FIELDS, |call| Box::pin(policies::old_write(call)))
        .with_synonyms(POLICY_SYNONYMS),
    Route::token(Delete, "policy/*name", &[], |call| Box::pin(policies::delete(call))),
    Route::token(Update, "capabilities-self", &["path", "paths", "token"], |call| {
        Box::pin(policies::capabilities_self(call))
    })
    .with_synonyms(PATH_SYNONYMS),
    Route::token(Update, "capabilities", &["path", "paths", "token"], |call| Box::pin(policies::capabilities(call)))
        .with_synonyms(PATH_SYNONYMS),
    Route::token(Update, "capabilities-accessor", &["path", "paths", "accessor"], |call| {
        Box::pin(policies::capabilities_accessor(call))
    })
    .with_synonyms(PATH_SYNONYMS),
    Route::sudo(List, "compromised-keys", PAGE_FIELDS, |call| Box::pin(compromised_keys::list(call))),
    Route::sudo(Update, "compromised-keys", compromised_keys::ADD_FIELDS, |call| Box::pin(compromised_keys::add(call))),
    Route::sudo(Read, "compromised-keys/:hash", &[], |call| Box::pin(compromised_keys::read(call))),
    Route::sudo(Update, "compromised-keys/:hash", compromised_keys::ADD_HASH_FIELDS, |call| {
        Box::pin(compromised_keys::add_hash(call))
    }),
    Route::sudo(Delete, "compromised-keys/:hash", &[], |call| Box::pin(compromised_keys::remove(call))),
    Route::sudo(Read, "leases", &["type", "limit"], |call| Box::pin(leases::irrevocable(call))),
    Route::token(List, "quotas/rate-limit", PAGE_FIELDS, |call| Box::pin(quotas::list(call))),
    Route::token(Read, "quotas/rate-limit/:name", &[], |call| Box::pin(quotas::read(call))),
    Route::token(Update, "quotas/rate-limit/:name", quotas::FIELDS, |call| Box::pin(quotas::write(call))),
    Route::token(Delete, "quotas/rate-limit/:name", &[], |call| Box::pin(quotas::delete(call))),
    Route::token(Read, "quotas/config", &[], |call| Box::pin(quotas::config(call))),
    Route::token(Update, "quotas/config", quotas::CONFIG_FIELDS, |call| Box::pin(quotas::configure(call))),
    Route::sudo(Read, "config/cors", &[], |call| Box::pin(cors::read(call))),
    Route::sudo(Update, "config/cors", cors::FIELDS, |call| Box::pin(cors::write(call))),
    Route::sudo(Delete, "config/cors", &[], |call| Box::pin(cors::delete(call))),
    Route::token(Update, "leases/lookup", LEASE_FIELDS, |call| Box::pin(leases::lookup(call))),
    Route::sudo(List, "leases/lookup", PAGE_FIELDS, |call| Box::pin(leases::list(call))),
    Route::sudo(List, "leases/lookup/*prefix", PAGE_FIELDS, |call| Box::pin(leases::list(call))),
    Route::token(Update, "leases/renew", RENEW_FIELDS, |call| Box::pin(leases::renew(call))),
    Route::token(Update, "leases/renew/*lease_id", RENEW_FIELDS, |call| Box::pin(leases::renew(call))),
    Route::token(Update, "leases/revoke", REVOKE_FIELDS, |call| Box::pin(leases::revoke(call))),
    Route::token(Update, "leases/revoke/*lease_id", REVOKE_FIELDS, |call| Box::pin(leases::revoke(call))),
    Route::sudo(Update, "leases/revoke-prefix/*prefix", &["sync"], |call| Box::pin(leases::revoke_prefix(call))),
    Route::sudo(Update, "leases/revoke-force/*prefix", &[], |call| Box::pin(leases::revoke_force(call))),
    Route::token(Read, "leases/count", &["type"], |call| Box::pin(leases::count(call))),
    Route::token(Update, "leases/tidy", &[], |call| Box::pin(leases::tidy(call))),
    Route::token(List, "version-history", &[], |call| Box::pin(versions::history(call))),
    Route::token(Read, "key-status", &[], |call| Box::pin(rotate::key_status(call))),
    Route::sudo(Update, "rotate", &[], |call| Box::pin(rotate::rotate(call))),
    Route::sudo(Update, "rotate/keyring", &[], |call| Box::pin(rotate::rotate(call))),
    Route::token(Read, "rotate/config", &[], |call| Box::pin(rotate::settings(call))),
    Route::token(Update, "rotate/config", rotate::FIELDS, |call| Box::pin(rotate::configure(call))),
    Route::token(Read, "rotate/keyring/config", &[], |call| Box::pin(rotate::settings(call))),
    Route::token(Update, "rotate/keyring/config", rotate::FIELDS, |call| Box::pin(rotate::configure(call))),
    Route::token(Update, "wrapping/wrap", &[], |call| Box::pin(wrapping::wrap(call))).with_verbatim_body(),
    Route::open(Update, "wrapping/lookup", TOKEN_FIELDS, |call| Box::pin(wrapping::lookup(call))).with_token_as_sent(),
    Route::open(Read, "wrapping/lookup", &[], |call| Box::pin(wrapping::lookup(call))).with_token_as_sent(),
    Route::open(Update, "wrapping/unwrap", TOKEN_FIELDS, |call| Box::pin(wrapping::unwrap(call))).with_token_as_sent(),
    Route::token(Update, "wrapping/rewrap", TOKEN_FIELDS, |call| Box::pin(wrapping::rewrap(call))),
    Route::token(List, "managed-keys/:backend", PAGE_FIELDS, |call| Box::pin(managed_keys::list(call))),
    Route::token(Read, "managed-keys/:backend/:managed_key", &[], |call| Box::pin(managed_keys::read(call))),
    Route::token(Update, "managed-keys/:backend/:managed_key", managed_keys::FIELDS, |call| {
        Box::pin(managed_keys::write(call))
    })
    .making(managed_keys::exists),
    Route::token(Delete, "managed-keys/:backend/:managed_key", &[], |call| Box::pin(managed_keys::delete(call))),
    Route::token(Update, "managed-keys/:backend/:managed_key/test/sign", managed_keys::TEST_SIGN_FIELDS, |call| {
        Box::pin(managed_keys::test_sign(call))
    }),
];

/// Runs a change in a task of its own, which continues if the caller disconnects. Otherwise the stored and the
/// published state could differ.
pub(super) async fn run_detached<T: Into<HandlerResponse> + 'static>(
    work: impl Future<Output = Result<T>> + 'static,
) -> Result<HandlerResponse> {
    let done = tokio::task::spawn_local(QueueCaller::current().scope(work)).await.map_err(Error::internal)?;
    done.map(Into::into)
}

/// Returns the metrics as JSON, or as a page for Prometheus with `format=prometheus`. A client that prefers OpenMetrics
/// gets that, with or without `format`.
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
            Err(Error::invalid(format!("format: {begin:?} is not known; \"json\" and \"prometheus\" are")))
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

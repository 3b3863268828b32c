//! The metric catalogue: name, type, labels and help of every metric, declared once.
//!
//! All modules record through the constants declared here. Queues have two metrics: time spent waiting and time spent
//! working.

use super::bounds::{
    BACKGROUND_SECONDS_BOUNDS, BATCH_UNITS_BOUNDS, PUBLISH_SECONDS_BOUNDS, REQUEST_SECONDS_BOUNDS, RUN_SECONDS_BOUNDS,
};
pub use super::metric::{Metric, MetricKind};
use super::metric::{catalogue, counter, gauge, histogram};

/// The values of the label `operation` of issued certificates and refusals.
pub const ISSUING_OPERATIONS: [&str; 6] =
    ["issue", "sign", "sign_verbatim", "sign_intermediate", "sign_self_issued", "external_policy"];

/// Declares a histogram of the duration of a request, or of a part of one, in seconds.
const fn request_seconds(labels: &'static [&'static str]) -> Metric {
    histogram(labels, REQUEST_SECONDS_BOUNDS).in_seconds()
}

catalogue! {
    /// Completed requests, by mount, service, operation, route pattern and status.
    HTTP_REQUESTS = "signet_http_requests_total": counter(&["mount", "service", "operation", "route", "status"]);
    /// Time from a request's head to its response, by service, operation and route pattern.
    HTTP_SECONDS = "signet_http_request_seconds": request_seconds(&["service", "operation", "route"]);
    /// Request handlers and CPU jobs that panicked; each is a defect of the server.
    HANDLER_PANICS = "signet_handler_panics_total": counter(&[]);
    /// Version and commit of the program; always 1.
    BUILD_INFO = "signet_build_info": gauge(&["version", "commit"]).live();
    /// CPU time of all threads, seconds.
    PROCESS_CPU = "process_cpu_seconds_total": counter(&[]).in_seconds().live();
    /// Resident memory, bytes.
    PROCESS_MEMORY = "process_resident_memory_bytes": gauge(&[]).live();
    /// Open files and sockets of the process.
    PROCESS_OPEN_FDS = "process_open_fds": gauge(&[]).live();
    /// Maximum number of open files and sockets of the process.
    PROCESS_MAX_FDS = "process_max_fds": gauge(&[]).live();
    /// Threads of the process.
    PROCESS_THREADS = "process_threads": gauge(&[]).live();
    /// Start time of the process, epoch seconds.
    PROCESS_START = "process_start_time_seconds": gauge(&[]).in_seconds().live();
    /// 1 if the last probe of the store succeeded, else 0.
    STORE_UP = "signet_store_up": gauge(&[]);
    /// Log lines dropped because standard error was not read fast enough.
    LOG_LINES_DROPPED = "signet_log_lines_dropped_total": counter(&[]);
    /// notBefore of a listener's TLS certificate, epoch seconds; 0 without TLS.
    TLS_NOT_BEFORE = "signet_tls_certificate_not_before_seconds": gauge(&["listener"]).in_seconds();
    /// notAfter of a listener's TLS certificate, epoch seconds; 0 without TLS.
    TLS_NOT_AFTER = "signet_tls_certificate_not_after_seconds": gauge(&["listener"]).in_seconds();
    /// Open connections, by listener.
    CONNECTIONS_OPEN = "signet_connections_open": gauge(&["listener"]);
    /// Maximum number of connections, by listener.
    CONNECTIONS_LIMIT = "signet_connections_limit": gauge(&["listener"]);
    // The reason `flood`: the client sent too many resets or frames without payload.
    /// Connections closed by the server, by reason.
    CONNECTIONS_CLOSED = "signet_connections_closed_total":
        counter(&["reason"]).starting(&["idle", "head", "full", "address", "flood"]);
    /// Connections and concurrent requests that were rejected because there were too many, by reason.
    CONNECTIONS_REFUSED = "signet_connections_refused_total":
        counter(&["reason"]).starting(&["full", "address", "requests"]);
    /// Audit entries, by device and result: written, failed.
    AUDIT_ENTRIES = "signet_audit_entries_total": counter(&["device", "result"]);
    /// Requests answered 503 because no audit device recorded their entry.
    AUDIT_LOST = "signet_audit_lost_total": counter(&[]);
    /// Audit entries in the current write, by device.
    AUDIT_QUEUE = "signet_audit_queue": gauge(&["device"]);
    /// Time that audit entries waited to be written, by device.
    AUDIT_WAIT_SECONDS = "signet_audit_wait_seconds": request_seconds(&["device"]);
    /// Time of writes of audit entries, by device.
    AUDIT_WRITE_SECONDS = "signet_audit_write_seconds": request_seconds(&["device"]);
    /// Expired tokens that were removed.
    TOKENS_SWEPT = "signet_tokens_swept_total": counter(&[]);
    /// Fetches of the key set of a token issuer, by result.
    AUTH_KEY_SET_REFRESHES = "signet_auth_key_set_refreshes_total": counter(&["result"]).starting(&["done", "failed"]);
    /// Logins by the method cloudb, by mount and result: ok, bad_request, denied, provider_error.
    CLOUDB_LOGINS = "signet_cloudb_logins_total": counter(&["mount", "result"]);
    /// Time of one login by the method cloudb.
    CLOUDB_LOGIN_SECONDS = "signet_cloudb_login_seconds": request_seconds(&[]);
    /// Time of one call of the provider of the method cloudb, retries included, by call and status: ok, not_found,
    /// refused, failed.
    CLOUDB_PROVIDER_CALL_SECONDS = "signet_cloudb_provider_call_seconds": request_seconds(&["call", "status"]);
    /// Time of one stage of issuing (rules, key, sign, store until durable), by operation and stage.
    PKI_STAGE_SECONDS = "signet_pki_stage_seconds": request_seconds(&["operation", "stage"]);
    /// Certificates issued, by mount and operation.
    PKI_CERTIFICATES = "signet_pki_certificates_total": counter(&["mount", "operation"]);
    /// Issuing requests that were rejected or failed, by mount and operation.
    PKI_REFUSALS = "signet_pki_refusals_total": counter(&["mount", "operation"]);
    /// Panics caught in a mount's actors; each is a defect of the server.
    PKI_PANICS = "signet_pki_panics_total": counter(&[]);
    /// Revocations recorded.
    PKI_REVOCATIONS = "signet_pki_revocations_total": counter(&[]);
    /// Certificate leases created.
    PKI_LEASES = "signet_pki_leases_total": counter(&[]);
    /// Certificate leases that ended, by result: revoked with their certificate, or expired with it.
    PKI_LEASES_ENDED = "signet_pki_leases_ended_total": counter(&["result"]).starting(&["revoked", "expired"]);
    /// Time of one build of a mount's CRLs.
    PKI_CRL_BUILD_SECONDS = "signet_pki_crl_build_seconds": histogram(&[], BACKGROUND_SECONDS_BOUNDS).in_seconds();
    /// Builds of a mount's CRLs, by result.
    PKI_CRL_BUILDS = "signet_pki_crl_builds_total": counter(&["result"]).starting(&["done", "failed"]);
    /// OCSP responses, by result.
    PKI_OCSP_ANSWERS = "signet_pki_ocsp_answers_total":
        counter(&["result"])
        .starting(&["successful", "malformed_request", "internal_error", "try_later", "unauthorized"]);
    /// Certificates in signed OCSP responses, by result.
    PKI_OCSP_SIGNED = "signet_pki_ocsp_signed_total": counter(&["result"]).starting(&["good", "revoked", "unknown"]);
    /// OCSP requests for one certificate without a nonce, by result of the response cache: hit, miss.
    PKI_OCSP_KEPT = "signet_pki_ocsp_kept_total": counter(&["result"]).starting(&["hit", "miss"]);
    /// Time to build and sign an OCSP response.
    PKI_OCSP_SIGN_SECONDS = "signet_pki_ocsp_sign_seconds": request_seconds(&[]);
    /// Rows and issuers that tidy removed, by kind.
    PKI_TIDIED = "signet_pki_tidied_total":
        counter(&["kind"]).starting(&["certificate", "revocation", "metadata", "issuer"]);
    /// Completed runs of tidy, by result.
    PKI_TIDY_RUNS = "signet_pki_tidy_runs_total": counter(&["result"]).starting(&["done", "failed", "cancelled"]);
    /// Time of one run of tidy.
    PKI_TIDY_SECONDS = "signet_pki_tidy_seconds": histogram(&[], RUN_SECONDS_BOUNDS).in_seconds();
    /// Runs of tidy in progress.
    PKI_TIDY_RUNNING = "signet_pki_tidy_running": gauge(&[]);
    /// Time of the last successful run of tidy on this server, epoch seconds; 0 before the first.
    PKI_TIDY_LAST_SUCCESS = "signet_pki_tidy_last_success_timestamp_seconds": gauge(&[]).in_seconds();
    /// Stored certificates of the mounts whose auto-tidy publishes their number.
    PKI_STORED_CERTIFICATES = "signet_pki_stored_certificates": gauge(&[]);
    /// Stored revocations of the mounts whose auto-tidy publishes their number.
    PKI_STORED_REVOCATIONS = "signet_pki_stored_revocations": gauge(&[]);
    /// Entries of the largest published CRL, by mount.
    PKI_CRL_ENTRIES = "signet_pki_crl_entries": gauge(&["mount"]).live();
    /// Bytes of the largest published CRL, by mount.
    PKI_CRL_BYTES = "signet_pki_crl_bytes": gauge(&["mount"]).live();
    /// thisUpdate of the oldest published complete CRL, epoch seconds, by mount.
    PKI_CRL_THIS_UPDATE = "signet_pki_crl_this_update_seconds": gauge(&["mount"]).in_seconds().live();
    /// nextUpdate of the published complete CRL that expires first, epoch seconds, by mount.
    PKI_CRL_NEXT_UPDATE = "signet_pki_crl_next_update_seconds": gauge(&["mount"]).in_seconds().live();
    /// Time of the next rebuild of a published complete CRL, epoch seconds, by mount.
    PKI_CRL_RENEWAL = "signet_pki_crl_renewal_seconds": gauge(&["mount"]).in_seconds().live();
    /// notAfter of each issuer that is not revoked, epoch seconds, by mount and id of the issuer.
    PKI_ISSUER_NOT_AFTER = "signet_pki_issuer_not_after_seconds": gauge(&["mount", "issuer"]).in_seconds().live();
    /// Time from the first new revocation of a CRL to its publication.
    PKI_CRL_PUBLISH_SECONDS = "signet_pki_crl_publish_seconds": histogram(&[], PUBLISH_SECONDS_BOUNDS).in_seconds();
    /// Complete CRLs that were not published because they would withdraw published information, by rule.
    PKI_CRL_REFUSALS = "signet_pki_crl_refusals_total": counter(&["rule"]).starting(&["number", "covers", "entries"]);
    /// Calls to external policy engines, by result.
    PKI_POLICY_CALLS = "signet_pki_policy_calls_total":
        counter(&["result"]).starting(&["answered", "rejected", "malformed", "failed", "busy", "open"]);
    /// Time of one exchange with an external policy engine.
    PKI_POLICY_CALL_SECONDS = "signet_pki_policy_call_seconds": request_seconds(&[]);
    /// External policy engines that are not called at present, because of repeated failures.
    PKI_POLICY_BREAKERS = "signet_pki_policy_breakers_open": gauge(&[]);
    /// RSA keys that wait for a generator thread, by lane: small (to 2048 bits) and large.
    KEY_GENERATION_QUEUE = "signet_key_generation_queue": gauge(&["lane"]);
    /// Time that an RSA key waited for a generator thread, by lane.
    KEY_GENERATION_WAIT_SECONDS = "signet_key_generation_wait_seconds": request_seconds(&["lane"]);
    /// Time to generate an RSA key, by lane.
    KEY_GENERATION_WORK_SECONDS = "signet_key_generation_work_seconds": request_seconds(&["lane"]);
    /// RSA keys in stock, by size in bits.
    RSA_KEY_STOCK = "signet_rsa_key_stock": gauge(&["bits"]);
    /// RSA keys that were taken from the stock, by size in bits.
    RSA_KEY_STOCK_HITS = "signet_rsa_key_stock_hits_total": counter(&["bits"]).starting(&["2048", "3072", "4096"]);
    /// Requests for RSA keys of a stocked size that found the stock empty, by size in bits.
    RSA_KEY_STOCK_MISSES = "signet_rsa_key_stock_misses_total": counter(&["bits"]).starting(&["2048", "3072", "4096"]);
    /// Signatures that wait for a managed key, by key.
    SIGNER_QUEUE = "signet_signer_queue": gauge(&["key"]);
    /// Calls in progress at the backend of a managed key, stuck ones included, by key.
    SIGNER_RUNNING = "signet_signer_calls_running": gauge(&["key"]);
    /// Sessions of a managed key, by key and state: idle, busy, or stuck in a call that has timed out.
    SIGNER_SESSIONS = "signet_signer_sessions_open": gauge(&["key", "state"]);
    /// Time that a call waited for a session of its managed key, by key.
    SIGNER_WAIT_SECONDS = "signet_signer_wait_seconds": request_seconds(&["key"]);
    /// Time of a call to the backend of a managed key, by key.
    SIGNER_CALL_SECONDS = "signet_signer_call_seconds": request_seconds(&["key"]);
    /// Recoveries of the connection to a managed key, by key and cause: session, login, token, module, device.
    SIGNER_RECOVERIES = "signet_signer_recoveries_total": counter(&["key", "cause"]);
    /// Calls of managed keys that ended without a signature, by key and kind: busy, unavailable, refused, invalid,
    /// wrong, changed, internal.
    SIGNER_ERRORS = "signet_signer_errors_total": counter(&["key", "kind"]);
    /// Write units in one commit.
    COMMIT_BATCH_UNITS = "signet_commit_batch_units": histogram(&[], BATCH_UNITS_BOUNDS);
    /// Time from the admission of a unit to the start of its commit.
    COMMIT_WAIT_SECONDS = "signet_commit_wait_seconds": request_seconds(&[]);
    /// Time of one commit, until it is durable.
    COMMIT_SECONDS = "signet_commit_seconds": request_seconds(&[]);
    /// Admitted write units that are not committed yet.
    COMMIT_QUEUE = "signet_commit_queue": gauge(&[]);
    /// Write units that were not stored, by reason.
    COMMIT_FAILURES = "signet_commit_failures_total":
        counter(&["reason"]).starting(&["busy", "serial_taken", "conflict", "unavailable", "internal"]);
    /// Term (version number) of the data key that seals stored values.
    DATA_KEY_TERM = "signet_data_key_term": gauge(&[]);
    /// Age of the data key that seals stored values.
    DATA_KEY_AGE_SECONDS = "signet_data_key_age_seconds": gauge(&[]).in_seconds();
    /// Stored values sealed with earlier data keys, as of the last count.
    DATA_KEY_OLDER_VALUES = "signet_data_key_older_values": gauge(&[]);
    /// Time of the last successful backup reported to this server, epoch seconds; 0 before the first.
    BACKUP_LAST_SUCCESS = "signet_backup_last_success_timestamp_seconds": gauge(&[]).in_seconds();
    /// Requests to the project store, including waiting ones.
    PROJECTS_QUEUE = "signet_projects_queue": gauge(&[]);
    /// Reloads of the TLS certificate, by result.
    TLS_RELOADS = "signet_tls_reloads_total": counter(&["result"]).starting(&["done", "failed"]);
    /// Time of one transaction or read on PostgreSQL, by name.
    POSTGRES_TRANSACTION_SECONDS = "signet_postgres_transaction_seconds": request_seconds(&["name"]);
    /// Time that a read waited for a connection to PostgreSQL.
    POSTGRES_READ_WAIT_SECONDS = "signet_postgres_read_wait_seconds": request_seconds(&[]);
    /// PostgreSQL commits that were retried, by reason.
    POSTGRES_RETRIES = "signet_postgres_retries_total": counter(&["reason"]).starting(&["connection", "clash", "unit"]);
    /// Failed attempts to open a connection for writes to PostgreSQL.
    POSTGRES_CONNECT_FAILURES = "signet_postgres_connect_failures_total": counter(&[]);
    /// 1 if this node follows the changes of the other nodes, else 0.
    CHANGES_FOLLOWED = "signet_changes_followed": gauge(&[]);
    /// Age of changes when this node applied them.
    CHANGES_LAG_SECONDS = "signet_changes_lag_seconds": histogram(&[], BACKGROUND_SECONDS_BOUNDS).in_seconds();
    /// Change notifications from the database.
    CHANGES_NOTIFICATIONS = "signet_changes_notifications_total": counter(&[]);
    /// Polls of the change log, by result.
    CHANGES_POLLS = "signet_changes_polls_total": counter(&["result"]).starting(&["done", "failed"]);
    /// Reloads after changes in the log, by part.
    CHANGES_RELOADS = "signet_changes_reloads_total": counter(&["part"]).starting(&["system", "mount", "crls"]);
    /// Absolute difference between this machine's clock and the database's.
    CLOCK_SKEW_SECONDS = "signet_clock_skew_seconds": gauge(&[]).in_seconds();
}

#[cfg(test)]
mod tests {
    use metrics::Unit;

    use super::*;

    #[test]
    fn metric_names_are_unique_and_end_with_their_unit() {
        for metric in CATALOGUE {
            let suffixes: &[&str] = match (metric.kind, metric.unit) {
                (MetricKind::Counter, _) => &["_total"],
                (_, Unit::Seconds) => &["_seconds"],
                _ => &[
                    "_units",
                    "_bytes",
                    "_limit",
                    "_entries",
                    "_queue",
                    "_stock",
                    "_open",
                    "_running",
                    "_certificates",
                    "_revocations",
                    "_term",
                    "_values",
                    "_up",
                    "_followed",
                    "_info",
                    "_fds",
                    "_threads",
                ],
            };
            let prefixes = ["signet_", "process_"];
            assert!(prefixes.iter().any(|prefix| metric.name.starts_with(prefix)), "{}", metric.name);
            assert!(suffixes.iter().any(|suffix| metric.name.ends_with(suffix)), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            assert_eq!(CATALOGUE.iter().filter(|m| m.name == metric.name).count(), 1, "{}", metric.name);
        }
    }

    #[test]
    fn metrics_that_start_at_zero_are_counters_of_one_label() {
        for metric in CATALOGUE.iter().filter(|metric| !metric.initial_values.is_empty()) {
            assert_eq!((metric.kind, metric.labels.len()), (MetricKind::Counter, 1), "{}", metric.name);
        }
    }

    #[test]
    fn request_and_stage_histograms_have_the_same_bounds() {
        // Histograms of times that are not part of a request.
        const BACKGROUND_METRICS: [&str; 4] =
            [PKI_CRL_BUILD_SECONDS, PKI_CRL_PUBLISH_SECONDS, PKI_TIDY_SECONDS, CHANGES_LAG_SECONDS];
        for metric in CATALOGUE.iter().filter(|metric| metric.unit == Unit::Seconds) {
            if let MetricKind::Histogram(bounds) = metric.kind {
                assert_eq!(
                    bounds == REQUEST_SECONDS_BOUNDS,
                    !BACKGROUND_METRICS.contains(&metric.name),
                    "{}",
                    metric.name
                );
            }
        }
        let milliseconds = REQUEST_SECONDS_BOUNDS.iter().map(|bound| bound * 1e3).filter(|bound| *bound > 0.9);
        let expected =
            [1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 25.0, 35.0, 50.0, 75.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 10e3];
        assert!(milliseconds.zip(expected).all(|(bound, expected)| (bound - expected).abs() < 1e-9));
        assert_eq!(REQUEST_SECONDS_BOUNDS.iter().filter(|bound| **bound >= 1e-3).count(), expected.len());
    }

    #[test]
    fn histogram_bounds_grow() {
        for metric in CATALOGUE {
            if let MetricKind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted_by(|a, b| a < b), "{}", metric.name);
            }
        }
    }
}

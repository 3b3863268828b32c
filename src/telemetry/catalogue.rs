//! The metric catalogue: name, type, unit and help of every metric.
//!
//! All modules record through these names. Queues have two metrics: time spent waiting and time spent working.

use metrics::Unit;

use super::bounds::{
    BACKGROUND_SECONDS_BOUNDS, BATCH_UNITS_BOUNDS, PUBLISH_SECONDS_BOUNDS, REQUEST_SECONDS_BOUNDS, RUN_SECONDS_BOUNDS,
};
use super::metric::{InitialSeries, LabelNames, counter, gauge, histogram, seconds};
pub use super::metric::{Metric, MetricKind};

/// Completed requests, by mount, service, operation, route pattern and status.
pub const HTTP_REQUESTS: &str = "signet_http_requests_total";
/// Time from a request's head to its response, by service, operation and route pattern.
pub const HTTP_SECONDS: &str = "signet_http_request_seconds";
/// Handlers that panicked; each is a defect.
pub const HANDLER_PANICS: &str = "signet_handler_panics_total";
/// Open connections, by listener.
pub const CONNECTIONS_OPEN: &str = "signet_connections_open";
/// Connection limit of a listener.
pub const CONNECTIONS_LIMIT: &str = "signet_connections_limit";
/// Connections that the server closed, by reason. The reason `flood` means that the client sent too many resets
/// or frames without payload.
pub const CONNECTIONS_CLOSED: &str = "signet_connections_closed_total";
/// Connections that were rejected because all others were busy, and concurrent requests of a connection that were
/// rejected because there were too many (`requests`), by reason.
pub const CONNECTIONS_REFUSED: &str = "signet_connections_refused_total";
/// 1 if the last probe of the store succeeded, else 0.
pub const STORE_UP: &str = "signet_store_up";
/// Access log lines that were dropped because standard error was not read fast enough.
pub const LOG_LINES_DROPPED: &str = "signet_log_lines_dropped_total";
/// Version and commit of the program; always 1.
pub const BUILD_INFO: &str = "signet_build_info";
/// CPU time of all threads.
pub const PROCESS_CPU: &str = "process_cpu_seconds_total";
/// Resident memory.
pub const PROCESS_MEMORY: &str = "process_resident_memory_bytes";
/// Open file descriptors.
pub const PROCESS_OPEN_FDS: &str = "process_open_fds";
/// Limit on open file descriptors.
pub const PROCESS_MAX_FDS: &str = "process_max_fds";
/// Threads.
pub const PROCESS_THREADS: &str = "process_threads";
/// Start time of the process, epoch seconds.
pub const PROCESS_START: &str = "process_start_time_seconds";
/// notAfter of each unrevoked issuer, epoch seconds.
pub const PKI_ISSUER_NOT_AFTER: &str = "signet_pki_issuer_not_after_seconds";
/// notBefore of a listener's TLS certificate, epoch seconds; 0 without TLS.
pub const TLS_NOT_BEFORE: &str = "signet_tls_certificate_not_before_seconds";
/// notAfter of a listener's TLS certificate, epoch seconds; 0 without TLS.
pub const TLS_NOT_AFTER: &str = "signet_tls_certificate_not_after_seconds";
/// Audit entries, by device and result.
pub const AUDIT_ENTRIES: &str = "signet_audit_entries_total";
/// Requests that no audit device recorded; their status is 503.
pub const AUDIT_LOST: &str = "signet_audit_lost_total";
/// Audit entries in the current write, by device.
pub const AUDIT_QUEUE: &str = "signet_audit_queue";
/// Time that audit entries waited to be written, by device.
pub const AUDIT_WAIT_SECONDS: &str = "signet_audit_wait_seconds";
/// Time of writes of audit entries, by device.
pub const AUDIT_WRITE_SECONDS: &str = "signet_audit_write_seconds";
/// Term of the data key that seals stored values.
pub const DATA_KEY_TERM: &str = "signet_data_key_term";
/// Age of that key.
pub const DATA_KEY_AGE_SECONDS: &str = "signet_data_key_age_seconds";
/// Stored values sealed with earlier keys, as last counted.
pub const DATA_KEY_OLDER_VALUES: &str = "signet_data_key_older_values";
/// Expired tokens that were removed.
pub const TOKENS_SWEPT: &str = "signet_tokens_swept_total";
/// Requests that a quota counted in a bucket shared by several clients, because there were too many clients.
pub const QUOTA_SHARED: &str = "signet_quota_shared_requests_total";
/// Fetches of the key set of a token issuer, by result.
pub const AUTH_KEY_SET_REFRESHES: &str = "signet_auth_key_set_refreshes_total";
/// Logins of the method `cloudb`, by mount and result.
pub const CLOUDB_LOGINS: &str = "signet_cloudb_logins_total";
/// Time of a login of the method `cloudb`.
pub const CLOUDB_LOGIN_SECONDS: &str = "signet_cloudb_login_seconds";
/// Time of a provider call of the method `cloudb`, retries included, by call and status.
pub const CLOUDB_PROVIDER_CALL_SECONDS: &str = "signet_cloudb_provider_call_seconds";
/// Time of an issuing stage (rules, key, sign, store until durable), by operation and stage.
pub const PKI_STAGE_SECONDS: &str = "signet_pki_stage_seconds";
/// Certificates issued, by mount and operation.
pub const PKI_CERTIFICATES: &str = "signet_pki_certificates_total";
/// Issuing requests that were rejected or failed, by mount and operation.
pub const PKI_REFUSALS: &str = "signet_pki_refusals_total";
/// The values of the label `operation` of issued certificates and refusals.
pub const ISSUING_OPERATIONS: [&str; 6] =
    ["issue", "sign", "sign_verbatim", "sign_intermediate", "sign_self_issued", "external_policy"];
/// Panics caught in a mount's actors; each is a defect.
pub const PKI_PANICS: &str = "signet_pki_panics_total";
/// Revocations recorded.
pub const PKI_REVOCATIONS: &str = "signet_pki_revocations_total";
/// Leases created.
pub const PKI_LEASES: &str = "signet_pki_leases_total";
/// Leases that ended, by result: revoked with their certificate, or expired with it.
pub const PKI_LEASES_ENDED: &str = "signet_pki_leases_ended_total";
/// Time of a build of a mount's CRLs.
pub const PKI_CRL_BUILD_SECONDS: &str = "signet_pki_crl_build_seconds";
/// Builds of a mount's CRLs, by result.
pub const PKI_CRL_BUILDS: &str = "signet_pki_crl_builds_total";
/// Entries of the largest published CRL.
pub const PKI_CRL_ENTRIES: &str = "signet_pki_crl_entries";
/// OCSP responses, by result.
pub const PKI_OCSP_ANSWERS: &str = "signet_pki_ocsp_answers_total";
/// Certificates in signed OCSP responses, by result.
pub const PKI_OCSP_SIGNED: &str = "signet_pki_ocsp_signed_total";
/// OCSP requests for a single certificate without a nonce, by result: cache hit or miss.
pub const PKI_OCSP_KEPT: &str = "signet_pki_ocsp_kept_total";
/// Time to build and sign an OCSP response.
pub const PKI_OCSP_SIGN_SECONDS: &str = "signet_pki_ocsp_sign_seconds";
/// Rows and issuers that tidy removed, by kind.
pub const PKI_TIDIED: &str = "signet_pki_tidied_total";
/// Completed runs of tidy, by result.
pub const PKI_TIDY_RUNS: &str = "signet_pki_tidy_runs_total";
/// Time of a run of tidy.
pub const PKI_TIDY_SECONDS: &str = "signet_pki_tidy_seconds";
/// Runs of tidy in progress.
pub const PKI_TIDY_RUNNING: &str = "signet_pki_tidy_running";
/// Time of the last successful run of tidy on this server, epoch seconds; 0 before the first.
pub const PKI_TIDY_LAST_SUCCESS: &str = "signet_pki_tidy_last_success_timestamp_seconds";
/// Stored certificates of the mounts whose auto-tidy publishes their number.
pub const PKI_STORED_CERTIFICATES: &str = "signet_pki_stored_certificates";
/// Stored revocations of the mounts whose auto-tidy publishes their number.
pub const PKI_STORED_REVOCATIONS: &str = "signet_pki_stored_revocations";
/// Bytes of the largest published CRL.
pub const PKI_CRL_BYTES: &str = "signet_pki_crl_bytes";
/// thisUpdate of the oldest published complete CRL, epoch seconds; 0 without a CRL.
pub const PKI_CRL_THIS_UPDATE: &str = "signet_pki_crl_this_update_seconds";
/// Earliest nextUpdate of the published complete CRLs, epoch seconds; 0 without a CRL.
pub const PKI_CRL_NEXT_UPDATE: &str = "signet_pki_crl_next_update_seconds";
/// Earliest time at which a published complete CRL is due for renewal, epoch seconds; 0 without a CRL.
pub const PKI_CRL_RENEWAL: &str = "signet_pki_crl_renewal_seconds";
/// Time from the first new revocation in a CRL to the publication of the CRL.
pub const PKI_CRL_PUBLISH_SECONDS: &str = "signet_pki_crl_publish_seconds";
/// Complete CRLs that were not published because they would withdraw published information, by rule.
pub const PKI_CRL_REFUSALS: &str = "signet_pki_crl_refusals_total";
/// Calls to external policy engines, by result.
pub const PKI_POLICY_CALLS: &str = "signet_pki_policy_calls_total";
/// Time of a call of an external policy engine.
pub const PKI_POLICY_CALL_SECONDS: &str = "signet_pki_policy_call_seconds";
/// External policy engines that are not called at present because of repeated failures.
pub const PKI_POLICY_BREAKERS: &str = "signet_pki_policy_breakers_open";
/// RSA keys that wait for a generator thread, by lane (small, large).
pub const KEY_GENERATION_QUEUE: &str = "signet_key_generation_queue";
/// Time that an RSA key waited for a generator thread, by lane.
pub const KEY_GENERATION_WAIT_SECONDS: &str = "signet_key_generation_wait_seconds";
/// Time to generate an RSA key, by lane.
pub const KEY_GENERATION_WORK_SECONDS: &str = "signet_key_generation_work_seconds";
/// RSA keys that were generated in advance, by size in bits.
pub const RSA_KEY_STOCK: &str = "signet_rsa_key_stock";
/// RSA keys taken from the stock, by size in bits.
pub const RSA_KEY_STOCK_HITS: &str = "signet_rsa_key_stock_hits_total";
/// Requests for an RSA key of a stocked size that found the stock empty, by size in bits.
pub const RSA_KEY_STOCK_MISSES: &str = "signet_rsa_key_stock_misses_total";
/// Signatures that wait for a managed key, by key.
pub const SIGNER_QUEUE: &str = "signet_signer_queue";
/// Calls in progress at the backend of a managed key, stuck ones included, by key.
pub const SIGNER_RUNNING: &str = "signet_signer_calls_running";
/// Sessions of a managed key, by key and state.
pub const SIGNER_SESSIONS: &str = "signet_signer_sessions_open";
/// Time that a call waited for a session of a managed key, by key.
pub const SIGNER_WAIT_SECONDS: &str = "signet_signer_wait_seconds";
/// Time of a call to the backend of a managed key, by key.
pub const SIGNER_CALL_SECONDS: &str = "signet_signer_call_seconds";
/// Recoveries of the connection to a managed key, by key and cause.
pub const SIGNER_RECOVERIES: &str = "signet_signer_recoveries_total";
/// Calls of managed keys that failed, by key and kind.
pub const SIGNER_ERRORS: &str = "signet_signer_errors_total";
/// Write units in a commit.
pub const COMMIT_BATCH_UNITS: &str = "signet_commit_batch_units";
/// Time from the admission of a unit to the start of its commit.
pub const COMMIT_WAIT_SECONDS: &str = "signet_commit_wait_seconds";
/// Time of a commit, until it is durable.
pub const COMMIT_SECONDS: &str = "signet_commit_seconds";
/// Admitted units that are not committed yet.
pub const COMMIT_QUEUE: &str = "signet_commit_queue";
/// Units that were not stored, by reason.
pub const COMMIT_FAILURES: &str = "signet_commit_failures_total";
/// Time of a transaction or read on PostgreSQL, by name.
pub const POSTGRES_TRANSACTION_SECONDS: &str = "signet_postgres_transaction_seconds";
/// Time that a read waited for a connection to PostgreSQL.
pub const POSTGRES_READ_WAIT_SECONDS: &str = "signet_postgres_read_wait_seconds";
/// PostgreSQL commits that were retried, by reason.
pub const POSTGRES_RETRIES: &str = "signet_postgres_retries_total";
/// Failed attempts to open a connection for writes to PostgreSQL.
pub const POSTGRES_CONNECT_FAILURES: &str = "signet_postgres_connect_failures_total";
/// 1 if this node follows the changes of the other nodes or is the only one, else 0.
pub const CHANGES_FOLLOWED: &str = "signet_changes_followed";
/// Age of changes when this node applied them.
pub const CHANGES_LAG_SECONDS: &str = "signet_changes_lag_seconds";
/// Change notifications from the database.
pub const CHANGES_NOTIFICATIONS: &str = "signet_changes_notifications_total";
/// Polls of the change log, by result.
pub const CHANGES_POLLS: &str = "signet_changes_polls_total";
/// Reloads after changes in the log, by part.
pub const CHANGES_RELOADS: &str = "signet_changes_reloads_total";
/// Absolute difference between this machine's clock and the database's.
pub const CLOCK_SKEW_SECONDS: &str = "signet_clock_skew_seconds";
/// Time of the last successful backup reported to this server, epoch seconds; 0 before the first since the start.
pub const BACKUP_LAST_SUCCESS: &str = "signet_backup_last_success_timestamp_seconds";
/// Requests to the project store, waiting ones included.
pub const PROJECTS_QUEUE: &str = "signet_projects_queue";
/// Reloads of the TLS certificate, by result.
pub const TLS_RELOADS: &str = "signet_tls_reloads_total";

const CONNECTION_CLOSE_REASONS: InitialSeries =
    &[("reason", "idle"), ("reason", "head"), ("reason", "full"), ("reason", "address"), ("reason", "flood")];
const CONNECTION_REFUSAL_REASONS: InitialSeries = &[("reason", "full"), ("reason", "address"), ("reason", "requests")];
const POLICY_CALLS: InitialSeries = &[
    ("result", "answered"),
    ("result", "rejected"),
    ("result", "malformed"),
    ("result", "failed"),
    ("result", "busy"),
    ("result", "open"),
];
const OCSP_ANSWERS: InitialSeries = &[
    ("result", "successful"),
    ("result", "malformed_request"),
    ("result", "internal_error"),
    ("result", "try_later"),
    ("result", "unauthorized"),
];
const OCSP_STATUSES: InitialSeries = &[("result", "good"), ("result", "revoked"), ("result", "unknown")];
const OCSP_KEPT: InitialSeries = &[("result", "hit"), ("result", "miss")];
const KEY_BITS: InitialSeries = &[("bits", "2048"), ("bits", "3072"), ("bits", "4096")];
const LEASE_END_RESULTS: InitialSeries = &[("result", "revoked"), ("result", "expired")];
const TIDIED_KINDS: InitialSeries =
    &[("kind", "certificate"), ("kind", "revocation"), ("kind", "metadata"), ("kind", "issuer")];
const TIDY_RUN_RESULTS: InitialSeries = &[("result", "done"), ("result", "failed"), ("result", "cancelled")];
const DONE_OR_FAILED_RESULTS: InitialSeries = &[("result", "done"), ("result", "failed")];
const COMMIT_FAILURE_REASONS: InitialSeries = &[
    ("reason", "busy"),
    ("reason", "serial_taken"),
    ("reason", "conflict"),
    ("reason", "unavailable"),
    ("reason", "internal"),
];
const CRL_RULES: InitialSeries = &[("rule", "number"), ("rule", "covers"), ("rule", "entries")];
const RELOADED_PARTS: InitialSeries = &[("part", "system"), ("part", "mount"), ("part", "crls")];
const POSTGRES_RETRY_REASONS: InitialSeries = &[("reason", "connection"), ("reason", "clash"), ("reason", "unit")];

const MOUNT_LABEL: LabelNames = &["mount"];

/// All metrics of the program; no others are registered.
pub const CATALOGUE: &[Metric] = &[
    counter(
        HTTP_REQUESTS,
        &["mount", "service", "operation", "route", "status"],
        "Requests answered, by mount, service, operation, route pattern and status.",
    ),
    histogram(
        HTTP_SECONDS,
        &["service", "operation", "route"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time from a request's head to its response, by service, operation and route pattern.",
    ),
    counter(HANDLER_PANICS, &[], "Handlers that panicked; each is a defect."),
    gauge(BUILD_INFO, &["version", "commit"], "Version and commit of the program; always 1.").looked_up(),
    Metric { unit: Unit::Seconds, ..counter(PROCESS_CPU, &[], "Processor time of all threads, seconds.") }.looked_up(),
    gauge(PROCESS_MEMORY, &[], "Resident memory, bytes.").looked_up(),
    gauge(PROCESS_OPEN_FDS, &[], "Files and sockets that are open.").looked_up(),
    gauge(PROCESS_MAX_FDS, &[], "Maximum number of open files and sockets.").looked_up(),
    gauge(PROCESS_THREADS, &[], "Threads.").looked_up(),
    seconds(PROCESS_START, &[], "When the process started, epoch seconds.").looked_up(),
    gauge(STORE_UP, &[], "1 if the last check of the store succeeded, else 0."),
    counter(LOG_LINES_DROPPED, &[], "Access lines dropped because the log was not read fast enough."),
    seconds(
        TLS_NOT_BEFORE,
        &["listener"],
        "notBefore of the certificate that a listener shows, epoch seconds; 0 without TLS.",
    ),
    seconds(
        TLS_NOT_AFTER,
        &["listener"],
        "notAfter of the certificate that a listener shows, epoch seconds; 0 without TLS.",
    ),
    gauge(CONNECTIONS_OPEN, &["listener"], "Open connections, by listener."),
    gauge(CONNECTIONS_LIMIT, &["listener"], "Maximum number of connections, by listener."),
    counter(CONNECTIONS_CLOSED, &["reason"], "Connections closed by the server, by reason.")
        .starting(CONNECTION_CLOSE_REASONS),
    counter(
        CONNECTIONS_REFUSED,
        &["reason"],
        "Connections and concurrent requests that were rejected because there were too many, by reason.",
    )
    .starting(CONNECTION_REFUSAL_REASONS),
    counter(AUDIT_ENTRIES, &["device", "result"], "Audit entries, by device and result: written, failed."),
    counter(AUDIT_LOST, &[], "Requests answered 503 because no audit device recorded their entry."),
    gauge(AUDIT_QUEUE, &["device"], "Audit entries of the write in progress, by device."),
    histogram(
        AUDIT_WAIT_SECONDS,
        &["device"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "How long audit entries waited to be written, by device.",
    ),
    histogram(
        AUDIT_WRITE_SECONDS,
        &["device"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "How long writes of audit entries took, by device.",
    ),
    counter(TOKENS_SWEPT, &[], "Tokens removed because they had expired."),
    counter(
        QUOTA_SHARED,
        &[],
        "Requests that a quota counted together with those of other clients, because there were too many clients.",
    ),
    counter(AUTH_KEY_SET_REFRESHES, &["result"], "Requests for the keys of an issuer of tokens, by result.")
        .starting(DONE_OR_FAILED_RESULTS),
    counter(
        CLOUDB_LOGINS,
        &["mount", "result"],
        "Logins of the method cloudb, by mount and result: ok, bad_request, denied, provider_error.",
    ),
    histogram(
        CLOUDB_LOGIN_SECONDS,
        &[],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time of one login of the method cloudb.",
    ),
    histogram(
        CLOUDB_PROVIDER_CALL_SECONDS,
        &["call", "status"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time of one call of the provider of the method cloudb, repetitions included, by call and status: ok, \
         not_found, refused, failed.",
    ),
    histogram(
        PKI_STAGE_SECONDS,
        &["operation", "stage"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time of one stage of issuing (rules, key, sign, store until durable), by operation and stage.",
    ),
    counter(PKI_CERTIFICATES, &["mount", "operation"], "Certificates issued, by mount and operation."),
    counter(
        PKI_REFUSALS,
        &["mount", "operation"],
        "Requests to issue that were rejected or failed, by mount and operation.",
    ),
    counter(PKI_PANICS, &[], "Panics caught in a mount's actors; each is a defect."),
    counter(PKI_REVOCATIONS, &[], "Revocations recorded."),
    counter(PKI_LEASES, &[], "Leases created."),
    counter(
        PKI_LEASES_ENDED,
        &["result"],
        "Leases that ended, by result: revoked with their certificate, or expired with it.",
    )
    .starting(LEASE_END_RESULTS),
    histogram(
        PKI_CRL_BUILD_SECONDS,
        &[],
        Unit::Seconds,
        BACKGROUND_SECONDS_BOUNDS,
        "Time of one build of a mount's CRLs.",
    ),
    counter(PKI_CRL_BUILDS, &["result"], "Builds of a mount's CRLs, by result.").starting(DONE_OR_FAILED_RESULTS),
    counter(PKI_OCSP_ANSWERS, &["result"], "OCSP requests answered, by result.").starting(OCSP_ANSWERS),
    counter(PKI_OCSP_SIGNED, &["result"], "Certificates in signed OCSP responses, by result.").starting(OCSP_STATUSES),
    counter(
        PKI_OCSP_KEPT,
        &["result"],
        "OCSP requests for one certificate without a nonce, by whether the response was cached: hit, miss.",
    )
    .starting(OCSP_KEPT),
    histogram(
        PKI_OCSP_SIGN_SECONDS,
        &[],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time to build and sign an OCSP response.",
    ),
    counter(PKI_TIDIED, &["kind"], "Rows and issuers that tidy removed, by kind.").starting(TIDIED_KINDS),
    counter(PKI_TIDY_RUNS, &["result"], "Runs of tidy that ended, by result.").starting(TIDY_RUN_RESULTS),
    histogram(PKI_TIDY_SECONDS, &[], Unit::Seconds, RUN_SECONDS_BOUNDS, "Time of one run of tidy."),
    gauge(PKI_TIDY_RUNNING, &[], "Runs of tidy in progress."),
    seconds(
        PKI_TIDY_LAST_SUCCESS,
        &[],
        "When a run of tidy last succeeded on this server, epoch seconds; 0 before the first.",
    ),
    gauge(PKI_STORED_CERTIFICATES, &[], "Stored certificates of the mounts whose auto-tidy publishes their number."),
    gauge(PKI_STORED_REVOCATIONS, &[], "Stored revocations of the mounts whose auto-tidy publishes their number."),
    gauge(PKI_CRL_ENTRIES, MOUNT_LABEL, "Entries of the largest published CRL, by mount.").looked_up(),
    gauge(PKI_CRL_BYTES, MOUNT_LABEL, "Bytes of the largest published CRL, by mount.").looked_up(),
    seconds(
        PKI_CRL_THIS_UPDATE,
        MOUNT_LABEL,
        "thisUpdate of the oldest published complete CRL, epoch seconds, by mount.",
    )
    .looked_up(),
    seconds(
        PKI_CRL_NEXT_UPDATE,
        MOUNT_LABEL,
        "nextUpdate of the published complete CRL that expires first, epoch seconds, by mount.",
    )
    .looked_up(),
    seconds(
        PKI_CRL_RENEWAL,
        MOUNT_LABEL,
        "Time of the next rebuild of a published complete CRL, epoch seconds, by mount.",
    )
    .looked_up(),
    seconds(
        PKI_ISSUER_NOT_AFTER,
        &["mount", "issuer"],
        "notAfter of each issuer that is not revoked, epoch seconds, by mount and id of the issuer.",
    )
    .looked_up(),
    histogram(
        PKI_CRL_PUBLISH_SECONDS,
        &[],
        Unit::Seconds,
        PUBLISH_SECONDS_BOUNDS,
        "Time from the first new revocation of a CRL to its publication.",
    ),
    counter(
        PKI_CRL_REFUSALS,
        &["rule"],
        "Complete CRLs that were not published because they would undo part of the published CRL, by rule.",
    )
    .starting(CRL_RULES),
    counter(PKI_POLICY_CALLS, &["result"], "Calls to external policy engines, by result.").starting(POLICY_CALLS),
    histogram(
        PKI_POLICY_CALL_SECONDS,
        &[],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time of one exchange with an external policy engine.",
    ),
    gauge(
        PKI_POLICY_BREAKERS,
        &[],
        "External policy engines that are not called at present, because of repeated failures.",
    ),
    gauge(KEY_GENERATION_QUEUE, &["lane"], "RSA keys that wait for a thread, by lane: small (to 2048 bits) and large."),
    histogram(
        KEY_GENERATION_WAIT_SECONDS,
        &["lane"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time that an RSA key waited for a thread, by lane.",
    ),
    histogram(
        KEY_GENERATION_WORK_SECONDS,
        &["lane"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time to generate an RSA key, by lane.",
    ),
    gauge(RSA_KEY_STOCK, &["bits"], "RSA keys in stock, by size in bits."),
    counter(RSA_KEY_STOCK_HITS, &["bits"], "RSA keys that were taken from the stock, by size in bits.")
        .starting(KEY_BITS),
    counter(
        RSA_KEY_STOCK_MISSES,
        &["bits"],
        "Requests for RSA keys of a stocked size that found the stock empty, by size in bits.",
    )
    .starting(KEY_BITS),
    gauge(SIGNER_QUEUE, &["key"], "Signatures that wait for a managed key, by key."),
    gauge(SIGNER_RUNNING, &["key"], "Calls in progress at the backend of a managed key, stuck ones included, by key."),
    gauge(
        SIGNER_SESSIONS,
        &["key", "state"],
        "Sessions of a managed key, by key and state: idle, busy, or stuck in a call that has timed out.",
    ),
    histogram(
        SIGNER_WAIT_SECONDS,
        &["key"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time that a call waited for a session of its managed key, by key.",
    ),
    histogram(
        SIGNER_CALL_SECONDS,
        &["key"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time of a call to the backend of a managed key, by key.",
    ),
    counter(
        SIGNER_RECOVERIES,
        &["key", "cause"],
        "Recoveries of the connection to a managed key, by key and cause: session, login, token, module, device.",
    ),
    counter(
        SIGNER_ERRORS,
        &["key", "kind"],
        "Calls of managed keys that ended without a signature, by key and kind: busy, unavailable, refused, invalid, \
         wrong, changed, internal.",
    ),
    histogram(COMMIT_BATCH_UNITS, &[], Unit::Count, BATCH_UNITS_BOUNDS, "Write units in one commit."),
    histogram(
        COMMIT_WAIT_SECONDS,
        &[],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time from the admission of a unit to the start of its commit.",
    ),
    histogram(COMMIT_SECONDS, &[], Unit::Seconds, REQUEST_SECONDS_BOUNDS, "Time of one commit, until it is durable."),
    gauge(COMMIT_QUEUE, &[], "Admitted write units that are not committed yet."),
    counter(COMMIT_FAILURES, &["reason"], "Write units that were not stored, by reason.")
        .starting(COMMIT_FAILURE_REASONS),
    gauge(DATA_KEY_TERM, &[], "The number of the data key that stored values are sealed with."),
    seconds(DATA_KEY_AGE_SECONDS, &[], "Age of the data key that stored values are sealed with."),
    gauge(DATA_KEY_OLDER_VALUES, &[], "Stored values that are sealed with earlier data keys, since they were counted."),
    seconds(
        BACKUP_LAST_SUCCESS,
        &[],
        "Time of the last successful backup reported to this server, epoch seconds; 0 before the first.",
    ),
    gauge(PROJECTS_QUEUE, &[], "Requests to the project store, including waiting ones."),
    counter(TLS_RELOADS, &["result"], "Reloads of the TLS certificate, by result.").starting(DONE_OR_FAILED_RESULTS),
    histogram(
        POSTGRES_TRANSACTION_SECONDS,
        &["name"],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time of one transaction or read on PostgreSQL, by name.",
    ),
    histogram(
        POSTGRES_READ_WAIT_SECONDS,
        &[],
        Unit::Seconds,
        REQUEST_SECONDS_BOUNDS,
        "Time that a read waited for a connection to PostgreSQL.",
    ),
    counter(POSTGRES_RETRIES, &["reason"], "PostgreSQL commits that were retried, by reason.")
        .starting(POSTGRES_RETRY_REASONS),
    counter(POSTGRES_CONNECT_FAILURES, &[], "Failed attempts to open a connection for writes to PostgreSQL."),
    gauge(CHANGES_FOLLOWED, &[], "1 if this node follows the changes of the other nodes, else 0."),
    histogram(
        CHANGES_LAG_SECONDS,
        &[],
        Unit::Seconds,
        BACKGROUND_SECONDS_BOUNDS,
        "Age of changes when this node applied them.",
    ),
    counter(CHANGES_NOTIFICATIONS, &[], "Notifications of changes that the database sent."),
    counter(CHANGES_POLLS, &["result"], "Polls of the change log, by result.").starting(DONE_OR_FAILED_RESULTS),
    counter(CHANGES_RELOADS, &["part"], "Reloads after changes in the log, by part.").starting(RELOADED_PARTS),
    seconds(CLOCK_SKEW_SECONDS, &[], "Absolute difference between this machine's clock and the database's."),
];

#[cfg(test)]
mod tests {
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
        for metric in CATALOGUE.iter().filter(|metric| !metric.starts.is_empty()) {
            assert_eq!(metric.kind, MetricKind::Counter, "{}", metric.name);
            assert!(metric.starts.iter().all(|(label, _)| metric.labels == [*label]), "{}", metric.name);
        }
    }

    #[test]
    fn request_and_stage_histograms_have_the_same_bounds() {
        // Not part of any request.
        const BACKGROUND: [&str; 4] =
            [PKI_CRL_BUILD_SECONDS, PKI_CRL_PUBLISH_SECONDS, PKI_TIDY_SECONDS, CHANGES_LAG_SECONDS];
        for metric in CATALOGUE.iter().filter(|metric| metric.unit == Unit::Seconds) {
            if let MetricKind::Histogram(bounds) = metric.kind {
                assert_eq!(bounds == REQUEST_SECONDS_BOUNDS, !BACKGROUND.contains(&metric.name), "{}", metric.name);
            }
        }
        let milliseconds = REQUEST_SECONDS_BOUNDS.iter().map(|bound| bound * 1e3).filter(|bound| *bound > 0.9);
        let expected =
            [1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 25.0, 35.0, 50.0, 75.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 10e3];
        assert!(milliseconds.zip(expected).all(|(bound, expected)| (bound - expected).abs() < 1e-9));
        assert_eq!(REQUEST_SECONDS_BOUNDS.iter().filter(|bound| **bound >= 1e-3).count(), expected.len());
    }

    #[test]
    fn bounds_grow() {
        for metric in CATALOGUE {
            if let MetricKind::Histogram(bounds) = metric.kind {
                assert!(bounds.is_sorted_by(|a, b| a < b), "{}", metric.name);
            }
        }
    }
}

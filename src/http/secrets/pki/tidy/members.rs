//! Parses and renders the members of `tidy`, `config/auto-tidy` and `tidy-status`.

use serde_json::{Map, Value, json};

use crate::clock::{MAX_DURATION_TEXT_BYTES, Time, format_rfc3339};
use crate::error::Result;
use crate::fields::{Fields, Resource as _};
use crate::http::secrets::route::concat_fields;
use crate::pki::mount::settings::tidy::{
    AutoTidyConfig, TidyConfig, TidyTask, check_at_least_one_second, check_page_size, parse_pause,
};
use crate::pki::tidy::TidyStatus;
use crate::pki::tidy::report::{TidyCounts, TidyRunState};

/// Fields of `tidy` that select cleanup tasks.
const TASK_FIELDS: &[&str] = &[
    "tidy_cert_store",
    "tidy_revoked_certs",
    REVOKED_ALIAS,
    "tidy_revoked_cert_issuer_associations",
    "tidy_expired_issuers",
    "tidy_move_legacy_ca_bundle",
    "tidy_revocation_queue",
    "tidy_cross_cluster_revoked_certs",
    "tidy_acme",
    "tidy_cert_metadata",
    "tidy_invalid_certs",
];
/// Fields of `tidy`.
pub(crate) const FIELDS: &[&str] = &concat_fields::<18>(&[TASK_FIELDS, TidyConfig::FIELDS]);
/// Fields of `config/auto-tidy`: those of `tidy`, and those of the schedule.
pub(crate) const AUTO_FIELDS: &[&str] = &concat_fields::<24>(&[FIELDS, AutoTidyConfig::FIELDS]);
/// Deprecated name of the field `tidy_revoked_certs`.
const REVOKED_ALIAS: &str = "tidy_revocation_list";

/// Merges the members in `fields` into the stored settings; absent members are unchanged.
///
/// # Errors
/// `Invalid` naming the field and the rule.
pub(crate) fn merged(stored: &TidyConfig, fields: &Fields) -> Result<TidyConfig> {
    let mut config = stored.clone();
    for task in TidyTask::ALL {
        let mut wanted = fields.bool(task.field())?;
        if task == TidyTask::Revocations {
            wanted = wanted.or(fields.bool(REVOKED_ALIAS)?);
        }
        match wanted {
            Some(true) => drop(config.tasks.insert(task)),
            Some(false) => drop(config.tasks.remove(&task)),
            None => {}
        }
    }
    for slot in TidyConfig::SECONDS {
        slot.set_if_given(&mut config, seconds(fields, slot.name)?);
    }
    config.revoked_safety_buffer = seconds(fields, "revoked_safety_buffer")?.or(config.revoked_safety_buffer);
    if let Some(text) = fields.text_within("pause_duration", MAX_DURATION_TEXT_BYTES)? {
        config.pause_duration = parse_pause(text)?;
    }
    if let Some(size) = fields.int("page_size")? {
        config.page_size = check_page_size(size)?;
    }
    Ok(config)
}

/// As [`merged`], for the settings of `config/auto-tidy`.
///
/// # Errors
/// As [`merged`].
pub(crate) fn merged_auto(stored: &AutoTidyConfig, fields: &Fields) -> Result<AutoTidyConfig> {
    let mut config = stored.clone();
    config.merge_flags(fields)?;
    config.run_config = merged(&stored.run_config, fields)?;
    for slot in AutoTidyConfig::SECONDS {
        slot.set_if_given(&mut config, seconds(fields, slot.name)?);
    }
    Ok(config)
}

fn seconds(fields: &Fields, name: &str) -> Result<Option<u64>> {
    fields.duration(name)?.map(|duration| check_at_least_one_second(name, duration.as_secs())).transpose()
}

fn task_settings_json(config: &TidyConfig) -> Map<String, Value> {
    let tasks = TidyTask::ALL.iter().map(|task| (task.field().to_owned(), json!(config.tasks.contains(task))));
    let mut members = config.to_members();
    members.insert("revoked_safety_buffer".to_owned(), json!(config.revoked_safety_buffer_seconds()));
    members.insert("page_size".to_owned(), json!(config.page_size));
    members.extend(tasks);
    members
}

/// Renders the members of `config/auto-tidy`.
pub(crate) fn auto_tidy_json(config: &AutoTidyConfig) -> Map<String, Value> {
    let mut members = task_settings_json(&config.run_config);
    members.extend(config.to_members());
    members
}

/// Renders the members of `tidy-status`. Those of the latest run are null if tidy never ran.
pub(crate) fn status_json(status: &TidyStatus) -> Map<String, Value> {
    let report = status.report.as_ref();
    let time = |micros: i64| Time::from_unix_timestamp_nanos(i128::from(micros) * 1000).map(format_rfc3339).ok();
    let counts = report.map(|report| &report.counts);
    let count = |of: fn(&TidyCounts) -> u64| json!(counts.map(of));
    let nothing = json!(counts.map(|_| 0));
    let mut members = match report {
        Some(report) => task_settings_json(&report.config),
        None => task_settings_json(&TidyConfig::default()).into_iter().map(|(name, _)| (name, Value::Null)).collect(),
    };
    let own = [
        ("state", json!(report.map_or("Inactive", |report| state_name(report.state)))),
        ("error", json!(report.and_then(|report| report.error.as_deref()))),
        ("message", json!(report.and_then(|report| report.message.as_deref()))),
        ("time_started", json!(report.and_then(|report| time(report.started)))),
        ("time_finished", json!(report.and_then(|report| report.finished).and_then(time))),
        ("cert_store_deleted_count", count(|counts| counts.certificates)),
        ("revoked_cert_deleted_count", count(|counts| counts.revocations)),
        ("missing_issuer_cert_count", count(|counts| counts.missing_issuers)),
        ("cert_metadata_deleted_count", count(|counts| counts.metadata)),
        ("expired_issuer_deleted_count", count(|counts| counts.issuers)),
        ("revocation_queue_deleted_count", nothing.clone()),
        ("cross_revoked_cert_deleted_count", nothing.clone()),
        ("total_acme_account_count", nothing.clone()),
        ("acme_account_deleted_count", nothing.clone()),
        ("acme_account_revoked_count", nothing.clone()),
        ("acme_orders_deleted_count", nothing),
    ];
    members.extend(own.map(|(name, value)| (name.to_owned(), value)));
    if let Some(end) = report.and_then(|report| report.last_success).and_then(time) {
        members.insert("last_auto_tidy_finished".to_owned(), json!(end));
    }
    if let Some((certificates, revocations)) = status.stored {
        members.insert("current_cert_store_count".to_owned(), json!(certificates));
        members.insert("current_revoked_cert_count".to_owned(), json!(revocations));
    }
    members
}

fn state_name(state: TidyRunState) -> &'static str {
    match state {
        TidyRunState::Inactive => "Inactive",
        TidyRunState::Running => "Running",
        TidyRunState::Finished => "Finished",
        TidyRunState::Error => "Error",
        TidyRunState::Cancelling => "Cancelling",
        TidyRunState::Cancelled => "Cancelled",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pki::tidy::report::TidyReport;

    fn fields(body: &Value) -> Fields {
        Fields::parse(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn tidy_absent_fields_stay_and_the_old_name_is_accepted() {
        let first =
            merged(&TidyConfig::default(), &fields(&json!({ "tidy_revocation_list": true, "safety_buffer": "1h" })))
                .unwrap();
        assert_eq!((first.revoked_safety_buffer_seconds(), first.tasks.len()), (3600, 1));
        assert!(first.tasks.contains(&TidyTask::Revocations));
        let body = json!({ "tidy_revoked_certs": "false", "tidy_revocation_list": true,
            "revoked_safety_buffer": 7200, "pause_duration": 2, "page_size": -1, "safety_buffer": null });
        let second = merged(&first, &fields(&body)).unwrap();
        assert!(second.tasks.is_empty(), "tidy_revoked_certs overrides its old name");
        assert_eq!(
            (second.safety_buffer, second.revoked_safety_buffer_seconds(), second.pause()),
            (3600, 7200, Duration::from_secs(2))
        );
        assert_eq!(task_settings_json(&second)["pause_duration"], "2");
        let again: TidyConfig = serde_json::from_value(serde_json::to_value(&second).unwrap()).unwrap();
        assert_eq!(again, second);
    }

    #[test]
    fn every_response_field_is_accepted_in_a_write() {
        let shown = auto_tidy_json(&AutoTidyConfig::default());
        for name in shown.keys() {
            assert!(AUTO_FIELDS.contains(&name.as_str()), "{name}");
        }
        assert_eq!(shown.len() + 1, AUTO_FIELDS.len(), "every field except the old name is shown");
    }

    #[test]
    fn invalid_auto_tidy_fields_are_refused_by_name() {
        let refusal = |body: &Value| {
            let merged = merged_auto(&AutoTidyConfig::default(), &fields(body)).and_then(AutoTidyConfig::checked);
            merged.unwrap_err().text().to_owned()
        };
        for name in [
            "safety_buffer",
            "revoked_safety_buffer",
            "issuer_safety_buffer",
            "interval_duration",
            "revocation_queue_safety_buffer",
            "acme_account_safety_buffer",
            "min_startup_backoff_duration",
            "max_startup_backoff_duration",
        ] {
            for value in [json!(0), json!(""), json!("500ms"), json!("-1h"), json!("soon"), json!(-5), json!([1])] {
                let text = refusal(&json!({ (name): value }));
                assert!(text.contains(name), "{name} {value}: {text}");
            }
        }
        for (body, rule) in [
            (json!({ "pause_duration": "soon" }), "pause_duration: must be a duration"),
            (json!({ "pause_duration": "-1s" }), "pause_duration: must be a duration"),
            (json!({ "pause_duration": -1 }), "pause_duration: must be a duration"),
            (json!({ "page_size": 1 }), "page_size: must be at least 5"),
            (json!({ "page_size": "4" }), "page_size: must be at least 5"),
            (json!({ "page_size": "many" }), "field validation failed"),
            (json!({ "tidy_acme": "perhaps" }), "field validation failed"),
            (json!({ "enabled": true }), "enabled: no task is selected"),
            (json!({ "publish_stored_certificate_count_metrics": true }), "publish_stored_certificate_count_metrics: "),
            (json!({ "min_startup_backoff_duration": "1h" }), "max_startup_backoff_duration: must not be below"),
        ] {
            let text = refusal(&body);
            assert!(text.starts_with(rule), "{body}: {text}");
        }
    }

    #[test]
    fn tidy_status_without_a_run_is_null_except_state() {
        let mut report = TidyReport::begin(TidyConfig::default(), Time::UNIX_EPOCH, None);
        let of =
            |report: Option<&TidyReport>| status_json(&TidyStatus { report: report.cloned(), stored: Some((5, 6)) });
        assert!(!of(Some(&report)).contains_key("last_auto_tidy_finished"));
        report.last_success = Some(20_000_000);
        assert_eq!(of(Some(&report))["last_auto_tidy_finished"], "1970-01-01T00:00:20Z");
        assert_eq!(
            (&of(None)["current_cert_store_count"], &of(None)["current_revoked_cert_count"]),
            (&5.into(), &6.into())
        );
        for (name, value) in status_json(&TidyStatus { report: None, stored: None }) {
            assert_eq!(value, if name == "state" { json!("Inactive") } else { Value::Null }, "{name}");
        }
        for state in [
            TidyRunState::Inactive,
            TidyRunState::Running,
            TidyRunState::Finished,
            TidyRunState::Error,
            TidyRunState::Cancelling,
            TidyRunState::Cancelled,
        ] {
            assert_eq!(
                json!(state_name(state)),
                serde_json::to_value(state).unwrap(),
                "the shown state equals the stored one"
            );
        }
    }
}

//! Tasks of a tidy run (`tidy`), and the schedule of automatic runs (`config/auto-tidy`).

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::DurationText;
use crate::error::{Error, Result};
use crate::fields::{Resource as _, resource};

/// Minimum number of rows per step (`page_size`); fewer make a run too slow. 0 or less lets the server choose the
/// number.
const MIN_PAGE_SIZE: i64 = 5;

/// A task of a tidy run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TidyTask {
    /// Removes expired certificates.
    Certificates,
    /// Removes revoked certificates that are expired, with their revocations.
    Revocations,
    /// Assigns an issuer to revocations whose recorded issuer is not in the mount.
    Associations,
    /// Removes expired issuers except the default issuer; keys stay.
    Issuers,
    /// Has no effect: this server has no legacy CA bundle.
    LegacyBundle,
    /// Has no effect: there is no queue of revocations for other clusters.
    RevocationQueue,
    /// Has no effect: there are no revocations of other clusters.
    CrossCluster,
    /// Has no effect: there are no ACME accounts and orders.
    Acme,
    /// Removes metadata of expired certificates.
    Metadata,
    /// Removes stored certificates that do not parse.
    Unreadable,
}

impl TidyTask {
    /// All tidy tasks.
    pub const ALL: [Self; 10] = [
        Self::Certificates,
        Self::Revocations,
        Self::Associations,
        Self::Issuers,
        Self::LegacyBundle,
        Self::RevocationQueue,
        Self::CrossCluster,
        Self::Acme,
        Self::Metadata,
        Self::Unreadable,
    ];

    /// Returns the name of the request field that selects the task.
    pub fn field(self) -> &'static str {
        match self {
            Self::Certificates => "tidy_cert_store",
            Self::Revocations => "tidy_revoked_certs",
            Self::Associations => "tidy_revoked_cert_issuer_associations",
            Self::Issuers => "tidy_expired_issuers",
            Self::LegacyBundle => "tidy_move_legacy_ca_bundle",
            Self::RevocationQueue => "tidy_revocation_queue",
            Self::CrossCluster => "tidy_cross_cluster_revoked_certs",
            Self::Acme => "tidy_acme",
            Self::Metadata => "tidy_cert_metadata",
            Self::Unreadable => "tidy_invalid_certs",
        }
    }

    /// Returns `true` if this server stores data that the task could remove.
    pub fn has_effect(self) -> bool {
        !matches!(self, Self::LegacyBundle | Self::RevocationQueue | Self::CrossCluster | Self::Acme)
    }
}

resource! {
    /// Settings of a tidy run. A safety buffer is the number of seconds for which data is kept after its end of
    /// validity.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct TidyConfig {
        /// The tasks to run, each selected by [a field of its own](TidyTask::field).
        stored tasks: BTreeSet<TidyTask>;
        /// Safety buffer for certificates and their metadata.
        seconds safety_buffer = 72 * 3600;
        /// Safety buffer for revoked certificates and their revocations; `None` uses `safety_buffer`.
        value revoked_safety_buffer: Option<u64>;
        /// Safety buffer for issuers.
        seconds issuer_safety_buffer = 8760 * 3600;
        /// Has no effect, only stored and returned.
        seconds revocation_queue_safety_buffer = 48 * 3600;
        /// Has no effect, only stored and returned.
        seconds acme_account_safety_buffer = 720 * 3600;
        /// Pause for each certificate that a run processes, as written.
        duration pause_duration = DurationText::new("0s").expect("0s is a valid duration");
        /// Maximum number of rows per step of a run; 0 or less lets the server choose the number.
        value page_size: i64 = 1000;
    }
}

impl TidyConfig {
    /// Validates the settings.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule.
    pub fn checked(self) -> Result<Self> {
        for slot in Self::SECONDS {
            check_at_least_one_second(slot.name, *(slot.get)(&self))?;
        }
        check_at_least_one_second("revoked_safety_buffer", self.revoked_safety_buffer_seconds())?;
        check_page_size(self.page_size)?;
        Ok(self)
    }

    /// Returns the safety buffer for revoked certificates, seconds.
    pub fn revoked_safety_buffer_seconds(&self) -> u64 {
        self.revoked_safety_buffer.unwrap_or(self.safety_buffer)
    }

    /// Returns the pause for each certificate that a run processes.
    pub fn pause(&self) -> Duration {
        self.pause_duration.duration()
    }
}

resource! {
    /// Settings of automatic tidy runs (`config/auto-tidy`). Durations are in seconds.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct AutoTidyConfig {
        /// Enables automatic runs.
        flag enabled = false;
        /// Tasks and safety buffers of each run.
        #[serde(rename = "what")]
        stored run_config: TidyConfig;
        /// Time to the next run, counted from the end of the last run if it succeeded, else from its start.
        #[serde(rename = "interval")]
        seconds interval_duration = 12 * 3600;
        /// Minimum delay between server start and first run.
        #[serde(rename = "min_startup_backoff")]
        seconds min_startup_backoff_duration = 300;
        /// Maximum delay between server start and first run.
        #[serde(rename = "max_startup_backoff")]
        seconds max_startup_backoff_duration = 900;
        /// Includes the numbers of stored certificates and revocations in the tidy status.
        #[serde(rename = "maintain_counts")]
        flag maintain_stored_certificate_counts = false;
        /// Includes the numbers of stored certificates and revocations in the metrics.
        #[serde(rename = "publish_counts")]
        flag publish_stored_certificate_count_metrics = false;
    }
}

impl AutoTidyConfig {
    /// Validates the settings.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule.
    pub fn checked(self) -> Result<Self> {
        let config = Self { run_config: self.run_config.checked()?, ..self };
        for slot in Self::SECONDS {
            check_at_least_one_second(slot.name, *(slot.get)(&config))?;
        }
        if config.max_startup_backoff_duration < config.min_startup_backoff_duration {
            return Err(Error::invalid("max_startup_backoff_duration: must not be below min_startup_backoff_duration"));
        }
        if config.enabled && config.run_config.tasks.is_empty() {
            return Err(Error::invalid(format!("enabled: no task is selected; set {}", task_fields())));
        }
        if config.publish_stored_certificate_count_metrics && !config.maintain_stored_certificate_counts {
            return Err(Error::invalid(
                "publish_stored_certificate_count_metrics: needs maintain_stored_certificate_counts",
            ));
        }
        Ok(config)
    }
}

/// Returns the names of the request fields that select tasks, formatted for messages.
pub fn task_fields() -> String {
    format!("one of {}", TidyTask::ALL.map(TidyTask::field).join(", "))
}

/// Rejects zero: it would disable a safety buffer, or repeat runs without pause.
///
/// # Errors
/// `Invalid` naming `field`.
pub fn check_at_least_one_second(field: &str, seconds: u64) -> Result<u64> {
    if seconds == 0 {
        return Err(Error::invalid(format!("{field}: must be at least one second")));
    }
    Ok(seconds)
}

/// Parses the pause for each certificate that a tidy run processes.
///
/// # Errors
/// `Invalid` naming `pause_duration`.
pub fn parse_pause(text: impl Into<String>) -> Result<DurationText> {
    DurationText::new(text).ok_or_else(|| {
        Error::invalid("pause_duration: must be a duration, such as \"100ms\" or \"1s\", and not negative")
    })
}

/// Validates a page size, in rows; 0 or less lets the server choose.
///
/// # Errors
/// `Invalid` naming `page_size`.
pub fn check_page_size(size: i64) -> Result<i64> {
    if (1..MIN_PAGE_SIZE).contains(&size) {
        return Err(Error::invalid(format!(
            "page_size: must be at least {MIN_PAGE_SIZE}, or 0 to let the server choose"
        )));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_auto_tidy_config_is_refused_by_name() {
        let default = AutoTidyConfig::default;
        let with_run_config = |change: fn(&mut TidyConfig)| {
            let mut config = default();
            change(&mut config.run_config);
            config
        };
        for (config, rule) in [
            (with_run_config(|c| c.safety_buffer = 0), "safety_buffer: must be at least one second"),
            (
                with_run_config(|c| c.revoked_safety_buffer = Some(0)),
                "revoked_safety_buffer: must be at least one second",
            ),
            (with_run_config(|c| c.issuer_safety_buffer = 0), "issuer_safety_buffer: must be at least one second"),
            (with_run_config(|c| c.page_size = 4), "page_size: must be at least 5"),
            (AutoTidyConfig { interval_duration: 0, ..default() }, "interval_duration: must be at least one second"),
            (
                AutoTidyConfig { min_startup_backoff_duration: 901, ..default() },
                "max_startup_backoff_duration: must not be below",
            ),
            (AutoTidyConfig { enabled: true, ..default() }, "enabled: no task is selected"),
            (
                AutoTidyConfig { publish_stored_certificate_count_metrics: true, ..default() },
                "publish_stored_certificate_count_metrics: ",
            ),
        ] {
            let error = config.checked().unwrap_err();
            assert!(error.text().starts_with(rule), "{error}");
        }
        assert!(parse_pause("soon").unwrap_err().text().starts_with("pause_duration: "));
        assert!(default().checked().is_ok());
    }
}

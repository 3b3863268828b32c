//! What a run of tidy is to do (`tidy`), and when the server starts one by itself (`config/auto-tidy`).

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::pki::values::written::WrittenDuration;

/// The field of the shortest time from the start of the server to its first run.
pub const MIN_STARTUP_BACKOFF: &str = "min_startup_backoff_duration";
/// The field of the longest one.
pub const MAX_STARTUP_BACKOFF: &str = "max_startup_backoff_duration";
/// The smallest page; smaller ones would make a run longer than its use. 0 and less is the server's own choice.
const SMALLEST_PAGE: i64 = 5;

/// One thing that tidy can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Task {
    /// Removes certificates that have expired.
    Certificates,
    /// Removes revocations of certificates that have expired, and the certificates.
    Revocations,
    /// Finds the issuer of revocations whose issuer the mount does not have.
    Associations,
    /// Removes issuers that have expired, but for the default issuer; keys stay.
    Issuers,
    /// For stores of other programs; this one never had such a bundle.
    LegacyBundle,
    /// Revocations that wait for other clusters; there are none.
    RevocationQueue,
    /// Revocations of other clusters; there are none.
    CrossCluster,
    /// Accounts and orders of ACME; there are none.
    Acme,
    /// Removes what is attached to certificates that have expired.
    Metadata,
    /// Removes stored certificates that cannot be read.
    Unreadable,
}

impl Task {
    /// All of them.
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

    /// The field that asks for it.
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

    /// Whether this server keeps anything that it could remove.
    pub fn finds_anything(self) -> bool {
        !matches!(self, Self::LegacyBundle | Self::RevocationQueue | Self::CrossCluster | Self::Acme)
    }
}

/// What a run is to do. Buffers are the seconds that an end of validity must be past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// The things to do.
    pub tasks: BTreeSet<Task>,
    /// Of certificates and what is attached to them.
    pub safety_buffer: u64,
    /// Of revoked certificates and their revocations, where it is another.
    pub revoked_safety_buffer: Option<u64>,
    /// Of issuers.
    pub issuer_safety_buffer: u64,
    /// Kept for its reader; nothing is measured by it.
    pub revocation_queue_safety_buffer: u64,
    /// Kept for its reader; nothing is measured by it.
    pub acme_account_safety_buffer: u64,
    /// The pause between two certificates, as it was written.
    pub pause_duration: WrittenDuration,
    /// Most rows of a step; 0 and less leaves it to the server.
    pub page_size: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tasks: BTreeSet::new(),
            safety_buffer: 72 * 3600,
            revoked_safety_buffer: None,
            issuer_safety_buffer: 8760 * 3600,
            revocation_queue_safety_buffer: 48 * 3600,
            acme_account_safety_buffer: 720 * 3600,
            pause_duration: WrittenDuration::new("0s").expect("a duration"),
            page_size: 1000,
        }
    }
}

impl Config {
    /// This, when every buffer is one and a page has a size.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule.
    pub fn checked(self) -> Result<Self> {
        for (field, buffer) in [
            ("safety_buffer", self.safety_buffer),
            ("issuer_safety_buffer", self.issuer_safety_buffer),
            ("revocation_queue_safety_buffer", self.revocation_queue_safety_buffer),
            ("acme_account_safety_buffer", self.acme_account_safety_buffer),
            ("revoked_safety_buffer", self.revoked_buffer()),
        ] {
            whole_second(field, buffer)?;
        }
        check_page_size(self.page_size)?;
        Ok(self)
    }

    /// The buffer of revoked certificates, seconds.
    pub fn revoked_buffer(&self) -> u64 {
        self.revoked_safety_buffer.unwrap_or(self.safety_buffer)
    }

    /// The pause between two certificates.
    pub fn pause(&self) -> Duration {
        self.pause_duration.duration()
    }
}

/// `config/auto-tidy`: what the server does by itself, and when. Durations are seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AutoTidy {
    /// Whether it does.
    pub enabled: bool,
    /// What a run is to do.
    pub what: Config,
    /// From the end of a run to the begin of the next.
    pub interval: u64,
    /// Shortest time from the start of the server to its first run.
    pub min_startup_backoff: u64,
    /// Longest time from the start of the server to its first run.
    pub max_startup_backoff: u64,
    /// Whether the status shows how many certificates and revocations are stored.
    pub maintain_counts: bool,
    /// Whether the metrics show that.
    pub publish_counts: bool,
}

impl Default for AutoTidy {
    fn default() -> Self {
        Self {
            enabled: false,
            what: Config::default(),
            interval: 12 * 3600,
            min_startup_backoff: 300,
            max_startup_backoff: 900,
            maintain_counts: false,
            publish_counts: false,
        }
    }
}

impl AutoTidy {
    /// These settings, when they do not contradict each other.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule.
    pub fn checked(self) -> Result<Self> {
        let config = Self { what: self.what.checked()?, ..self };
        for (field, seconds) in [
            ("interval_duration", config.interval),
            (MIN_STARTUP_BACKOFF, config.min_startup_backoff),
            (MAX_STARTUP_BACKOFF, config.max_startup_backoff),
        ] {
            whole_second(field, seconds)?;
        }
        if config.max_startup_backoff < config.min_startup_backoff {
            return Err(Error::invalid(format!("{MAX_STARTUP_BACKOFF}: must not be below {MIN_STARTUP_BACKOFF}")));
        }
        if config.enabled && config.what.tasks.is_empty() {
            return Err(Error::invalid(format!("enabled: needs something to do; set {}", task_fields())));
        }
        if config.publish_counts && !config.maintain_counts {
            return Err(Error::invalid(
                "publish_stored_certificate_count_metrics: needs maintain_stored_certificate_counts",
            ));
        }
        Ok(config)
    }
}

/// The fields that ask for something, for people.
pub fn task_fields() -> String {
    format!("one of {}", Task::ALL.map(Task::field).join(", "))
}

/// A time of at least a second. Shorter ones, and zero, would switch a protection off, or a run on for ever.
///
/// # Errors
/// `Invalid` naming `field`.
pub fn whole_second(field: &str, seconds: u64) -> Result<u64> {
    if seconds == 0 {
        return Err(Error::invalid(format!("{field}: must be at least one second")));
    }
    Ok(seconds)
}

/// Reads the pause between two certificates.
///
/// # Errors
/// `Invalid` naming `pause_duration`.
pub fn pause(text: impl Into<String>) -> Result<WrittenDuration> {
    WrittenDuration::new(text).ok_or_else(|| {
        Error::invalid("pause_duration: must be a duration, such as \"100ms\" or \"1s\", and not negative")
    })
}

/// A page that is no smaller than the smallest; 0 and less leaves its size to the server.
///
/// # Errors
/// `Invalid` naming `page_size`.
pub fn check_page_size(size: i64) -> Result<i64> {
    if (1..SMALLEST_PAGE).contains(&size) {
        return Err(Error::invalid(format!(
            "page_size: must be at least {SMALLEST_PAGE}, or 0 to leave it to the server"
        )));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_breaks_a_rule_is_refused_by_its_name() {
        let default = AutoTidy::default;
        let what = |change: fn(&mut Config)| {
            let mut config = default();
            change(&mut config.what);
            config
        };
        for (config, rule) in [
            (what(|c| c.safety_buffer = 0), "safety_buffer: must be at least one second"),
            (what(|c| c.revoked_safety_buffer = Some(0)), "revoked_safety_buffer: must be at least one second"),
            (what(|c| c.issuer_safety_buffer = 0), "issuer_safety_buffer: must be at least one second"),
            (what(|c| c.page_size = 4), "page_size: must be at least 5"),
            (AutoTidy { interval: 0, ..default() }, "interval_duration: must be at least one second"),
            (AutoTidy { min_startup_backoff: 901, ..default() }, "max_startup_backoff_duration: must not be below"),
            (AutoTidy { enabled: true, ..default() }, "enabled: needs something to do"),
            (AutoTidy { publish_counts: true, ..default() }, "publish_stored_certificate_count_metrics: "),
        ] {
            let error = config.checked().unwrap_err();
            assert!(error.text().starts_with(rule), "{error}");
        }
        assert!(pause("soon").unwrap_err().text().starts_with("pause_duration: "));
        assert!(default().checked().is_ok());
    }
}

//! What a run of tidy is to do (`tidy`), and when the server starts one by itself (`config/auto-tidy`).

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::clock::{MAX_DURATION_TEXT, parse_duration};
use crate::error::{Error, Result};
use crate::fields::Fields;

/// Fields of `tidy`.
pub const FIELDS: &[&str] = &[
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
    "safety_buffer",
    "revoked_safety_buffer",
    "issuer_safety_buffer",
    "revocation_queue_safety_buffer",
    "acme_account_safety_buffer",
    "pause_duration",
    "page_size",
];
/// Fields of `config/auto-tidy`: those of `tidy`, and when.
pub const AUTO_FIELDS: &[&str] = &{
    let own = [
        "enabled",
        "interval_duration",
        "min_startup_backoff_duration",
        "max_startup_backoff_duration",
        "maintain_stored_certificate_counts",
        "publish_stored_certificate_count_metrics",
    ];
    let mut all = [""; FIELDS.len() + 6];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < FIELDS.len() { FIELDS[at] } else { own[at - FIELDS.len()] };
        at += 1;
    }
    all
};
/// The old name of `tidy_revoked_certs`.
const REVOKED_ALIAS: &str = "tidy_revocation_list";
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
    pub pause_duration: String,
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
            pause_duration: "0s".to_owned(),
            page_size: 1000,
        }
    }
}

impl Config {
    /// Takes what `fields` has; what is absent stays.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule.
    pub fn merged(&self, fields: &Fields) -> Result<Self> {
        let mut config = self.clone();
        for task in Task::ALL {
            let mut wanted = fields.bool(task.field())?;
            if task == Task::Revocations {
                wanted = wanted.or(fields.bool(REVOKED_ALIAS)?);
            }
            match wanted {
                Some(true) => drop(config.tasks.insert(task)),
                Some(false) => drop(config.tasks.remove(&task)),
                None => {}
            }
        }
        let buffers = [
            ("safety_buffer", &mut config.safety_buffer),
            ("issuer_safety_buffer", &mut config.issuer_safety_buffer),
            ("revocation_queue_safety_buffer", &mut config.revocation_queue_safety_buffer),
            ("acme_account_safety_buffer", &mut config.acme_account_safety_buffer),
        ];
        for (name, slot) in buffers {
            *slot = seconds(fields, name)?.unwrap_or(*slot);
        }
        config.revoked_safety_buffer = seconds(fields, "revoked_safety_buffer")?.or(config.revoked_safety_buffer);
        if let Some(text) = fields.text_within("pause_duration", MAX_DURATION_TEXT)? {
            parse_duration(&text).ok_or_else(|| {
                Error::invalid("pause_duration: must be a duration, such as \"100ms\" or \"1s\", and not negative")
            })?;
            config.pause_duration = text;
        }
        if let Some(size) = fields.int("page_size")? {
            if (1..SMALLEST_PAGE).contains(&size) {
                return Err(Error::invalid(format!(
                    "page_size: must be at least {SMALLEST_PAGE}, or 0 to leave it to the server"
                )));
            }
            config.page_size = size;
        }
        Ok(config)
    }

    /// The buffer of revoked certificates, seconds.
    pub fn revoked_buffer(&self) -> u64 {
        self.revoked_safety_buffer.unwrap_or(self.safety_buffer)
    }

    /// The pause between two certificates.
    pub fn pause(&self) -> Duration {
        parse_duration(&self.pause_duration).unwrap_or_default()
    }

    /// The members of an answer.
    pub fn to_json(&self) -> Map<String, Value> {
        let tasks = Task::ALL.iter().map(|task| (task.field().to_owned(), json!(self.tasks.contains(task))));
        let numbers = [
            ("safety_buffer", json!(self.safety_buffer)),
            ("revoked_safety_buffer", json!(self.revoked_buffer())),
            ("issuer_safety_buffer", json!(self.issuer_safety_buffer)),
            ("revocation_queue_safety_buffer", json!(self.revocation_queue_safety_buffer)),
            ("acme_account_safety_buffer", json!(self.acme_account_safety_buffer)),
            ("pause_duration", json!(self.pause_duration)),
            ("page_size", json!(self.page_size)),
        ];
        tasks.chain(numbers.map(|(name, value)| (name.to_owned(), value))).collect()
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
    /// Takes what `fields` has; what is absent stays.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule.
    pub fn merged(&self, fields: &Fields) -> Result<Self> {
        let (min, max) = ("min_startup_backoff_duration", "max_startup_backoff_duration");
        let config = Self {
            enabled: fields.bool("enabled")?.unwrap_or(self.enabled),
            what: self.what.merged(fields)?,
            interval: seconds(fields, "interval_duration")?.unwrap_or(self.interval),
            min_startup_backoff: seconds(fields, min)?.unwrap_or(self.min_startup_backoff),
            max_startup_backoff: seconds(fields, max)?.unwrap_or(self.max_startup_backoff),
            maintain_counts: fields.bool("maintain_stored_certificate_counts")?.unwrap_or(self.maintain_counts),
            publish_counts: fields.bool("publish_stored_certificate_count_metrics")?.unwrap_or(self.publish_counts),
        };
        if config.max_startup_backoff < config.min_startup_backoff {
            return Err(Error::invalid(format!("{max}: must not be below {min}")));
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

    /// The members of an answer.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut members = self.what.to_json();
        let own = [
            ("enabled", json!(self.enabled)),
            ("interval_duration", json!(self.interval)),
            ("min_startup_backoff_duration", json!(self.min_startup_backoff)),
            ("max_startup_backoff_duration", json!(self.max_startup_backoff)),
            ("maintain_stored_certificate_counts", json!(self.maintain_counts)),
            ("publish_stored_certificate_count_metrics", json!(self.publish_counts)),
        ];
        members.extend(own.map(|(name, value)| (name.to_owned(), value)));
        members
    }
}

/// The fields that ask for something, for people.
pub fn task_fields() -> String {
    format!("one of {}", Task::ALL.map(Task::field).join(", "))
}

/// A duration of at least a second. Shorter ones, and zero, would switch a protection off, or a run on
/// for ever.
fn seconds(fields: &Fields, name: &str) -> Result<Option<u64>> {
    match fields.duration(name)?.map(|duration| duration.as_secs()) {
        Some(0) => Err(Error::invalid(format!("{name}: must be at least one second"))),
        seconds => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(body: &Value) -> Fields {
        Fields::parse(body.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn absent_members_stay_and_the_old_name_is_taken() {
        let first = Config::default().merged(&fields(&json!({ "tidy_revocation_list": true, "safety_buffer": "1h" })));
        let first = first.unwrap();
        assert_eq!((first.revoked_buffer(), first.tasks.len()), (3600, 1));
        assert!(first.tasks.contains(&Task::Revocations));
        let second = first.merged(&fields(&json!({ "tidy_revoked_certs": "false", "tidy_revocation_list": true,
            "revoked_safety_buffer": 7200, "pause_duration": 2, "page_size": -1, "safety_buffer": null })));
        let second = second.unwrap();
        assert!(second.tasks.is_empty(), "the name itself counts");
        assert_eq!(
            (second.safety_buffer, second.revoked_buffer(), second.pause()),
            (3600, 7200, Duration::from_secs(2))
        );
        assert_eq!(second.to_json()["pause_duration"], "2");
        let again: Config = serde_json::from_value(serde_json::to_value(&second).unwrap()).unwrap();
        assert_eq!(again, second);
    }

    #[test]
    fn every_field_that_an_answer_has_is_taken() {
        let shown = AutoTidy::default().to_json();
        for name in shown.keys() {
            assert!(AUTO_FIELDS.contains(&name.as_str()), "{name}");
        }
        assert_eq!(shown.len() + 1, AUTO_FIELDS.len(), "all but the old name are shown");
    }

    #[test]
    fn what_breaks_a_rule_is_refused_by_its_name() {
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
                let error = AutoTidy::default().merged(&fields(&json!({ (name): value }))).unwrap_err();
                assert!(error.text().contains(name), "{name} {value}: {error}");
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
            (json!({ "enabled": true }), "enabled: needs something to do"),
            (json!({ "publish_stored_certificate_count_metrics": true }), "publish_stored_certificate_count_metrics: "),
            (json!({ "min_startup_backoff_duration": "1h" }), "max_startup_backoff_duration: must not be below"),
        ] {
            let error = AutoTidy::default().merged(&fields(&body)).unwrap_err();
            assert!(error.text().starts_with(rule), "{body}: {error}");
        }
    }
}

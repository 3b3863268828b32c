//! `config/crl`: lifetimes of CRLs and OCSP responses, and when CRLs are built. Contradictory settings are rejected on
//! write, so that readers need not check again.
//!
//! Durations are stored, and returned, as written.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{DurationText, parse_duration, violated_duration_rule};
use crate::error::{Error, Result};
use crate::fields::{Resource as _, resource};
use crate::pki::values::Keyword;

/// Maximum lifetime of a CRL or OCSP response. It keeps all times within the range that certificates can encode.
const MAX_LIFETIME: Duration = Duration::from_secs(100 * 366 * 86_400);

/// OCSP status for serial numbers that are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownSerialStatus {
    /// OCSP responses report `unknown`.
    Unknown,
    /// OCSP responses report `good`, for mounts whose roles do not store certificates.
    Good,
}

impl Keyword for UnknownSerialStatus {
    const FIELD: &'static str = "ocsp_unknown_serial";
    const KEYWORDS: &'static [(Self, &'static str)] = &[(Self::Unknown, "unknown"), (Self::Good, "good")];
}

resource! {
    /// The settings of a mount's CRLs and OCSP responses.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct CrlConfig {
        /// Lifetime of a CRL.
        duration expiry = duration_text("72h");
        /// Publishes empty complete CRLs. Revocations are still recorded and reported by OCSP.
        flag disable = false;
        /// Answers every OCSP request with `unauthorized`.
        flag ocsp_disable = false;
        /// Lifetime of an OCSP response.
        duration ocsp_expiry = duration_text("12h");
        /// OCSP status of serial numbers that are not stored.
        value ocsp_unknown_serial: UnknownSerialStatus = UnknownSerialStatus::Unknown;
        /// Builds CRLs by timer instead of on every revocation.
        flag auto_rebuild = false;
        /// With `auto_rebuild`, the time before nextUpdate at which a CRL is rebuilt.
        duration auto_rebuild_grace_period = duration_text("12h");
        /// Publishes new revocations in delta CRLs between complete CRLs.
        flag enable_delta = false;
        /// With `enable_delta`, the interval between delta CRLs.
        duration delta_rebuild_interval = duration_text("15m");
        /// Permits revocation of expired certificates.
        flag allow_expired_cert_revocation = false;
        /// Has no effect, only stored and returned: all nodes that share a database form one cluster.
        flag cross_cluster_revocation = false;
        /// Serves the mount's CRLs on the unified paths too. All nodes form one cluster, so the unified CRLs are the
        /// same.
        flag unified_crl = false;
        /// Has no effect, only stored and returned: the existing paths already serve the CRLs of the whole cluster.
        flag unified_crl_on_existing_paths = false;
        /// Maximum number of entries in a complete CRL; `None`, stored as -1, is unlimited.
        #[serde(with = "entry_limit")]
        value max_crl_entries: Option<u64> = None;
    }
}

/// Returns a duration from text that is known to be valid.
fn duration_text(text: &str) -> DurationText {
    DurationText::new(text).expect("the default text is a valid duration")
}

impl CrlConfig {
    /// Returns the lifetime of a CRL (nextUpdate − thisUpdate), at least one second.
    pub fn expiry(&self) -> Duration {
        self.expiry.duration()
    }

    /// Returns the lifetime of an OCSP response; zero omits nextUpdate.
    pub fn ocsp_expiry(&self) -> Duration {
        self.ocsp_expiry.duration()
    }

    /// Returns the time before nextUpdate at which a CRL is rebuilt, with `auto_rebuild`; shorter than
    /// [`Self::expiry`].
    pub fn auto_rebuild_grace_period(&self) -> Duration {
        self.auto_rebuild_grace_period.duration()
    }

    /// Returns the interval between delta CRLs, with `enable_delta`; shorter than [`Self::expiry`].
    pub fn delta_rebuild_interval(&self) -> Duration {
        self.delta_rebuild_interval.duration()
    }

    /// Returns the maximum number of entries in a complete CRL; `None` is unlimited.
    pub fn max_crl_entries(&self) -> Option<usize> {
        self.max_crl_entries.and_then(|max| usize::try_from(max).ok())
    }

    /// Validates the settings.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule.
    pub fn checked(self) -> Result<Self> {
        for slot in Self::DURATIONS {
            check_max_lifetime(slot.name, (slot.get)(&self).duration())?;
        }
        self.check().map(|()| self)
    }

    fn check(&self) -> Result<()> {
        let refuse = |text: &'static str| Err(Error::invalid(text));
        let expiry = self.expiry();
        // CRLs have times in whole seconds.
        if expiry < Duration::from_secs(1) {
            return refuse("expiry: must be at least one second");
        }
        if self.auto_rebuild && self.auto_rebuild_grace_period() >= expiry {
            return refuse("auto_rebuild_grace_period: must be shorter than expiry when auto_rebuild is on");
        }
        if self.enable_delta && self.delta_rebuild_interval() >= expiry {
            return refuse("delta_rebuild_interval: must be shorter than expiry when enable_delta is on");
        }
        for (name, flag) in [
            ("enable_delta", self.enable_delta),
            ("cross_cluster_revocation", self.cross_cluster_revocation),
            ("unified_crl", self.unified_crl),
        ] {
            if flag && !self.auto_rebuild {
                return Err(Error::invalid(format!("{name}: requires auto_rebuild")));
            }
        }
        if self.unified_crl_on_existing_paths && !self.unified_crl {
            return refuse("unified_crl_on_existing_paths: requires unified_crl");
        }
        Ok(())
    }
}

/// Parses a lifetime of at most 100 years.
///
/// # Errors
/// `Invalid` naming `field`.
pub fn parse_lifetime(field: &str, text: &str) -> Result<Duration> {
    let duration = parse_duration(text).ok_or_else(|| invalid_duration_error(field, text))?;
    check_max_lifetime(field, duration)?;
    Ok(duration)
}

/// Like [`parse_lifetime`], but returns the duration as written.
///
/// # Errors
/// As [`parse_lifetime`].
pub fn parse_lifetime_text(field: &str, text: String) -> Result<DurationText> {
    parse_lifetime(field, &text)?;
    DurationText::new(text.clone()).ok_or_else(|| invalid_duration_error(field, &text))
}

fn invalid_duration_error(field: &str, text: &str) -> Error {
    let form = "a duration such as 72h, 15m or a number of seconds";
    Error::invalid(format!("{field}: must be {}", violated_duration_rule(text, form)))
}

fn check_max_lifetime(field: &str, duration: Duration) -> Result<()> {
    if duration > MAX_LIFETIME {
        return Err(Error::invalid(format!("{field}: must be at most 100 years")));
    }
    Ok(())
}

/// Stored form of `max_crl_entries`: -1 for unlimited.
mod entry_limit {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(max: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match max {
            Some(max) => serializer.serialize_u64(*max),
            None => serializer.serialize_i64(-1),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        i64::deserialize(deserializer).map(|max| u64::try_from(max).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_crl_config_fills_missing_members_with_defaults() {
        let read: CrlConfig = serde_json::from_str(r#"{"expiry":"5h"}"#).unwrap();
        assert_eq!(read.expiry(), Duration::from_secs(5 * 3600));
        assert_eq!(read.ocsp_expiry(), Duration::from_secs(12 * 3600));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let default = CrlConfig::default;
        let auto = || CrlConfig { auto_rebuild: true, ..default() };
        for (config, field) in [
            (CrlConfig { expiry: duration_text("0"), ..default() }, "expiry"),
            (CrlConfig { ocsp_expiry: duration_text("200000d"), ..default() }, "ocsp_expiry"),
            (CrlConfig { auto_rebuild_grace_period: duration_text("72h"), ..auto() }, "auto_rebuild_grace_period"),
            (CrlConfig { enable_delta: true, ..default() }, "enable_delta"),
            (
                CrlConfig { enable_delta: true, delta_rebuild_interval: duration_text("72h"), ..auto() },
                "delta_rebuild_interval",
            ),
            (CrlConfig { cross_cluster_revocation: true, ..default() }, "cross_cluster_revocation"),
            (CrlConfig { unified_crl: true, ..default() }, "unified_crl"),
            (CrlConfig { unified_crl_on_existing_paths: true, ..auto() }, "unified_crl_on_existing_paths"),
        ] {
            let error = config.checked().unwrap_err();
            assert!(error.text().starts_with(&format!("{field}: ")), "{error}");
        }
        assert!(auto().checked().is_ok());
        assert!(parse_lifetime_text("f", "soon".to_owned()).unwrap_err().text().starts_with("f: must be a duration"));
    }
}

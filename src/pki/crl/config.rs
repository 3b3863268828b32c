//! `config/crl`: how long CRLs and OCSP answers live, what makes a list be built, and which lists there
//! are. Refuses settings that contradict each other, so that whoever reads one need not check again.
//!
//! Durations are kept as they were written and shown so.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::{MAX_DURATION_TEXT, parse_duration};
use crate::error::{Error, Result};
use crate::fields::Fields;

/// Fields of `config/crl`.
pub const FIELDS: &[&str] = &[
    "expiry",
    "disable",
    "ocsp_disable",
    "ocsp_expiry",
    "ocsp_unknown_serial",
    "auto_rebuild",
    "auto_rebuild_grace_period",
    "enable_delta",
    "delta_rebuild_interval",
    "allow_expired_cert_revocation",
    "cross_cluster_revocation",
    "unified_crl",
    "unified_crl_on_existing_paths",
    "max_crl_entries",
];

/// No limit to the entries of a list.
const UNLIMITED: i64 = -1;
/// Longest life of a list or answer: with it every time stays one that certificates can hold.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// A duration as it was written, such as `72h` or `90`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Written(String);

impl Written {
    fn duration(&self) -> Duration {
        // Only what can be read is taken in.
        parse_duration(&self.0).unwrap_or_default()
    }
}

/// What OCSP says of a serial number that is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownSerial {
    /// That it is not known: what was never issued is not vouched for.
    Unknown,
    /// That it is good: for mounts whose roles do not store what they issue.
    Good,
}

impl UnknownSerial {
    fn parse(word: &str) -> Result<Self> {
        match word {
            "unknown" => Ok(Self::Unknown),
            "good" => Ok(Self::Good),
            _ => Err(Error::invalid("ocsp_unknown_serial: must be unknown or good")),
        }
    }
}

/// The settings of a mount's CRLs and OCSP answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CrlConfig {
    expiry: Written,
    /// Complete CRLs are empty; revocations are recorded all the same, and OCSP answers them.
    pub disable: bool,
    /// OCSP answers nothing but that it will not.
    pub ocsp_disable: bool,
    ocsp_expiry: Written,
    /// What OCSP says of serial numbers that are not stored.
    pub ocsp_unknown_serial: UnknownSerial,
    /// CRLs are built by the timer in place of by every revocation.
    pub auto_rebuild: bool,
    auto_rebuild_grace_period: Written,
    /// New revocations are published in delta CRLs between the complete ones.
    pub enable_delta: bool,
    delta_rebuild_interval: Written,
    /// Certificates past their end may be revoked.
    pub allow_expired_cert_revocation: bool,
    /// Revocations of certificates that only other clusters have are queued for them.
    pub cross_cluster_revocation: bool,
    /// The lists of all clusters together are served too.
    pub unified_crl: bool,
    /// … in the place of this cluster's own.
    pub unified_crl_on_existing_paths: bool,
    max_crl_entries: i64,
}

impl Default for CrlConfig {
    fn default() -> Self {
        let written = |text: &str| Written(text.to_owned());
        Self {
            expiry: written("72h"),
            disable: false,
            ocsp_disable: false,
            ocsp_expiry: written("12h"),
            ocsp_unknown_serial: UnknownSerial::Unknown,
            auto_rebuild: false,
            auto_rebuild_grace_period: written("12h"),
            enable_delta: false,
            delta_rebuild_interval: written("15m"),
            allow_expired_cert_revocation: false,
            cross_cluster_revocation: false,
            unified_crl: false,
            unified_crl_on_existing_paths: false,
            max_crl_entries: UNLIMITED,
        }
    }
}

impl CrlConfig {
    /// Life of a CRL: nextUpdate − thisUpdate; at least a second.
    pub fn expiry(&self) -> Duration {
        self.expiry.duration()
    }

    /// Life of an OCSP answer; zero is an answer without nextUpdate.
    pub fn ocsp_expiry(&self) -> Duration {
        self.ocsp_expiry.duration()
    }

    /// With `auto_rebuild`: how long before its end a CRL is built again; shorter than [`Self::expiry`].
    pub fn auto_rebuild_grace_period(&self) -> Duration {
        self.auto_rebuild_grace_period.duration()
    }

    /// With `enable_delta`: how often delta CRLs take up what was revoked; shorter than [`Self::expiry`].
    pub fn delta_rebuild_interval(&self) -> Duration {
        self.delta_rebuild_interval.duration()
    }

    /// The most entries a complete CRL may have; `None` is any number.
    pub fn max_crl_entries(&self) -> Option<usize> {
        usize::try_from(self.max_crl_entries).ok()
    }

    /// Takes the settings that `fields` has; absent and null ones stay.
    ///
    /// # Errors
    /// `Invalid` naming the field and the rule.
    pub fn merged(&self, fields: &Fields) -> Result<Self> {
        let mut config = self.clone();
        for (name, flag) in config.flags_mut() {
            *flag = fields.bool(name)?.unwrap_or(*flag);
        }
        for (name, written) in config.durations_mut() {
            if let Some(text) = fields.text_within(name, MAX_DURATION_TEXT)? {
                *written = duration(name, text)?;
            }
        }
        if let Some(word) = fields.str("ocsp_unknown_serial")? {
            config.ocsp_unknown_serial = UnknownSerial::parse(word)?;
        }
        // Zero and other negative numbers say nothing.
        if let Some(most) = fields.int("max_crl_entries")?.filter(|&most| most > 0 || most == UNLIMITED) {
            config.max_crl_entries = most;
        }
        config.check()?;
        Ok(config)
    }

    fn flags_mut(&mut self) -> [(&'static str, &mut bool); 8] {
        [
            ("disable", &mut self.disable),
            ("ocsp_disable", &mut self.ocsp_disable),
            ("auto_rebuild", &mut self.auto_rebuild),
            ("enable_delta", &mut self.enable_delta),
            ("allow_expired_cert_revocation", &mut self.allow_expired_cert_revocation),
            ("cross_cluster_revocation", &mut self.cross_cluster_revocation),
            ("unified_crl", &mut self.unified_crl),
            ("unified_crl_on_existing_paths", &mut self.unified_crl_on_existing_paths),
        ]
    }

    fn durations_mut(&mut self) -> [(&'static str, &mut Written); 4] {
        [
            ("expiry", &mut self.expiry),
            ("ocsp_expiry", &mut self.ocsp_expiry),
            ("auto_rebuild_grace_period", &mut self.auto_rebuild_grace_period),
            ("delta_rebuild_interval", &mut self.delta_rebuild_interval),
        ]
    }

    fn check(&self) -> Result<()> {
        let refuse = |text: &'static str| Err(Error::invalid(text));
        let expiry = self.expiry();
        // Times on lists are whole seconds.
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

    /// The members of an answer.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn duration(name: &str, text: String) -> Result<Written> {
    lifetime(name, &text).map(|_| Written(text))
}

/// Reads how long something lives; the error names `name`.
pub(super) fn lifetime(name: &str, text: &str) -> Result<Duration> {
    match parse_duration(text) {
        Some(duration) if duration <= LONGEST => Ok(duration),
        Some(_) => Err(Error::invalid(format!("{name}: must be at most 100 years"))),
        None => Err(Error::invalid(format!("{name}: must be a duration such as 72h, 15m or a number of seconds"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(base: &CrlConfig, json: &str) -> Result<CrlConfig> {
        base.merged(&Fields::parse(json.as_bytes()).unwrap())
    }

    #[test]
    fn what_is_written_is_read_as_written_and_the_rest_stays() {
        let one = merged(&CrlConfig::default(), r#"{"expiry":72,"ocsp_expiry":0,"max_crl_entries":5}"#).unwrap();
        let json = one.to_json();
        assert_eq!(
            (&json["expiry"], &json["ocsp_expiry"], &json["max_crl_entries"]),
            (&"72".into(), &"0".into(), &5.into())
        );
        assert_eq!((one.expiry(), one.ocsp_expiry()), (Duration::from_secs(72), Duration::ZERO));
        let two = merged(&one, r#"{"disable":true,"max_crl_entries":0,"expiry":null}"#).unwrap();
        assert_eq!(two, CrlConfig { disable: true, ..one.clone() });
        assert_eq!(merged(&two, r#"{"max_crl_entries":-7}"#).unwrap().max_crl_entries(), Some(5));
        assert_eq!(merged(&two, r#"{"max_crl_entries":-1}"#).unwrap().max_crl_entries(), None);
        let names: Vec<String> = json.as_object().unwrap().keys().cloned().collect();
        let mut fields = FIELDS.to_vec();
        fields.sort_unstable();
        assert_eq!(names, fields);
    }

    #[test]
    fn a_stored_document_of_fewer_members_has_the_defaults_of_the_others() {
        let read: CrlConfig = serde_json::from_str(r#"{"expiry":"5h"}"#).unwrap();
        assert_eq!(read.expiry(), Duration::from_secs(5 * 3600));
        assert_eq!(read.ocsp_expiry(), Duration::from_secs(12 * 3600));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        for (json, field) in [
            (r#"{"expiry":"abc"}"#, "expiry"),
            (r#"{"expiry":"0"}"#, "expiry"),
            (r#"{"expiry":""}"#, "expiry"),
            (r#"{"expiry":"900ms"}"#, "expiry"),
            (r#"{"expiry":"-5h"}"#, "expiry"),
            (r#"{"expiry":"200000d"}"#, "expiry"),
            (r#"{"expiry":["a"]}"#, "expiry"),
            (r#"{"ocsp_expiry":-1}"#, "ocsp_expiry"),
            (r#"{"auto_rebuild":"maybe"}"#, "auto_rebuild"),
            (r#"{"auto_rebuild":true,"auto_rebuild_grace_period":"72h"}"#, "auto_rebuild_grace_period"),
            (r#"{"enable_delta":true}"#, "enable_delta"),
            (r#"{"auto_rebuild":true,"enable_delta":true,"delta_rebuild_interval":"72h"}"#, "delta_rebuild_interval"),
            (r#"{"cross_cluster_revocation":true}"#, "cross_cluster_revocation"),
            (r#"{"unified_crl":true}"#, "unified_crl"),
            (r#"{"auto_rebuild":true,"unified_crl_on_existing_paths":true}"#, "unified_crl_on_existing_paths"),
            (r#"{"max_crl_entries":"many"}"#, "max_crl_entries"),
        ] {
            let error = merged(&CrlConfig::default(), json).unwrap_err();
            assert!(error.text().contains(field), "{json}: {error}");
        }
        // Without the switch that it belongs to a value is only kept.
        let kept =
            merged(&CrlConfig::default(), r#"{"auto_rebuild_grace_period":"100h","delta_rebuild_interval":"90h"}"#);
        let kept = kept.unwrap();
        assert!(merged(&kept, r#"{"auto_rebuild":true}"#).is_err());
        assert!(merged(&kept, r#"{"auto_rebuild":true,"expiry":"200h","enable_delta":true}"#).is_ok());
    }
}

//! The settings in `config/crl`. Durations are returned in the form in which they were written.

use serde_json::{Value, json};

use crate::clock::MAX_DURATION_TEXT_BYTES;
use crate::error::Result;
use crate::fields::{Fields, Resource as _};
use crate::pki::mount::settings::crl::{CrlConfig, UnknownSerialStatus, parse_lifetime_text};
use crate::pki::values::Keyword as _;

pub(crate) const FIELDS: &[&str] = CrlConfig::FIELDS;

/// Value of `max_crl_entries` for an unlimited number of entries.
const UNLIMITED_ENTRIES: i64 = -1;

/// Merges the settings in `fields` into the stored ones; absent and null members are unchanged.
///
/// # Errors
/// `Invalid` naming the field and the rule.
pub(crate) fn merged(stored: &CrlConfig, fields: &Fields) -> Result<CrlConfig> {
    let mut config = stored.clone();
    config.merge_flags(fields)?;
    for slot in CrlConfig::DURATIONS {
        if let Some(text) = fields.text_within(slot.name, MAX_DURATION_TEXT_BYTES)? {
            *(slot.get_mut)(&mut config) = parse_lifetime_text(slot.name, text)?;
        }
    }
    if let Some(word) = fields.str("ocsp_unknown_serial")? {
        config.ocsp_unknown_serial = UnknownSerialStatus::parse(word)?;
    }
    match fields.int("max_crl_entries")? {
        Some(UNLIMITED_ENTRIES) => config.max_crl_entries = None,
        Some(max @ 1..) => config.max_crl_entries = u64::try_from(max).ok(),
        // Zero and negative numbers other than -1 are ignored.
        _ => {}
    }
    Ok(config)
}

/// Renders the CRL settings.
pub(crate) fn to_json(config: &CrlConfig) -> Value {
    let mut members = config.to_members();
    members.insert("ocsp_unknown_serial".to_owned(), json!(config.ocsp_unknown_serial.as_str()));
    members.insert(
        "max_crl_entries".to_owned(),
        config.max_crl_entries.map_or(json!(UNLIMITED_ENTRIES), |max| json!(max)),
    );
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn write(base: &CrlConfig, json: &str) -> Result<CrlConfig> {
        merged(base, &Fields::parse(json.as_bytes()).unwrap())?.checked()
    }

    #[test]
    fn crl_config_reads_back_as_written_and_the_rest_stays() {
        let one = write(&CrlConfig::default(), r#"{"expiry":72,"ocsp_expiry":0,"max_crl_entries":5}"#).unwrap();
        let json = to_json(&one);
        assert_eq!(
            (&json["expiry"], &json["ocsp_expiry"], &json["max_crl_entries"]),
            (&"72".into(), &"0".into(), &5.into())
        );
        assert_eq!((one.expiry(), one.ocsp_expiry()), (Duration::from_secs(72), Duration::ZERO));
        let two = write(&one, r#"{"disable":true,"max_crl_entries":0,"expiry":null}"#).unwrap();
        assert_eq!(two, CrlConfig { disable: true, ..one.clone() });
        assert_eq!(write(&two, r#"{"max_crl_entries":-7}"#).unwrap().max_crl_entries(), Some(5));
        let unlimited = write(&two, r#"{"max_crl_entries":-1}"#).unwrap();
        assert_eq!((unlimited.max_crl_entries(), &to_json(&unlimited)["max_crl_entries"]), (None, &json!(-1)));
        let names: Vec<String> = json.as_object().unwrap().keys().cloned().collect();
        let mut fields = FIELDS.to_vec();
        fields.sort_unstable();
        assert_eq!(names, fields);
    }

    #[test]
    fn crl_config_invalid_or_contradictory_values_are_refused() {
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
            let error = write(&CrlConfig::default(), json).unwrap_err();
            assert!(error.text().contains(field), "{json}: {error}");
        }
        // The settings of a feature that is not enabled are stored without validation.
        let kept = r#"{"auto_rebuild_grace_period":"100h","delta_rebuild_interval":"90h"}"#;
        let kept = write(&CrlConfig::default(), kept).unwrap();
        assert!(write(&kept, r#"{"auto_rebuild":true}"#).is_err());
        assert!(write(&kept, r#"{"auto_rebuild":true,"expiry":"200h","enable_delta":true}"#).is_ok());
    }
}

//! Settings of a mount, as a client sends them when it enables the mount (`config`) and when it tunes the mount.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::{Mount, SYSTEM_TTL};
use crate::auth::policy::lower;
use crate::clock::{format_duration, parse_duration, violated_duration_rule};
use crate::error::{Error, Result};
use crate::fields::{Fields, ListLimit, MAX_NAME_LEN, Resource as _};

/// Names of request headers that carry a credential. They are never passed to an engine.
const CREDENTIAL_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-service-token", "x-vault-token"];

pub(super) const MAX_DESCRIPTION_BYTES: usize = 4_096;
/// Limits on one list of names in the settings of a mount.
pub(super) const NAME_LIST_LIMITS: ListLimit = ListLimit::new(256, MAX_NAME_LEN);
/// Limits on the `options` of a mount.
const OPTION_LIMITS: ListLimit = ListLimit::new(64, 1_024);

impl Mount {
    /// Applies the given fields to the mount. An absent field changes nothing, and neither does an empty text for a
    /// duration.
    ///
    /// # Errors
    /// `Invalid`, naming the field and its rule. The mount may then be partly changed and must be discarded.
    pub(super) fn apply_settings(&mut self, fields: &Fields) -> Result<()> {
        read_ttl(&mut self.default_lease_ttl, fields, "default_lease_ttl")?;
        read_ttl(&mut self.max_lease_ttl, fields, "max_lease_ttl")?;
        self.check_ttls()?;
        // Clients send `false` even if they do not mean to change the setting, so only `true` changes it.
        self.force_no_cache |= fields.bool("force_no_cache")?.unwrap_or(false);
        let description = fields.text_within("description", MAX_DESCRIPTION_BYTES)?;
        self.description = description.unwrap_or_else(|| std::mem::take(&mut self.description));
        self.merge_options(fields)?;
        for (name, words, to) in [
            ("listing_visibility", &["", "hidden", "unauth"][..], &mut self.listing_visibility),
            ("token_type", &["", "service", "batch", "default-service", "default-batch"][..], &mut self.token_type),
        ] {
            if let Some(word) = fields.text(name)? {
                if !words.contains(&word.as_str()) {
                    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                    return Err(Error::invalid(format!("{name}: must be one of {}", quoted.join(", "))));
                }
                *to = word;
            }
        }
        self.merge_lists(fields)?;
        // The names of managed keys are stored in lower case.
        self.allowed_managed_keys.iter_mut().for_each(|name| *name = lower(name).into_owned());
        let mut listed = HashSet::new();
        self.allowed_managed_keys.retain(|name| listed.insert(name.clone()));
        self.check_headers()
    }

    fn check_ttls(&self) -> Result<()> {
        if self.default_lease_ttl > self.max_ttl().as_secs() {
            let text = |seconds| format_duration(std::time::Duration::from_secs(seconds));
            return Err(Error::invalid(format!(
                "default_lease_ttl: {} is greater than max_lease_ttl, which is {}{}",
                text(self.default_lease_ttl),
                text(self.max_ttl().as_secs()),
                if self.max_lease_ttl == 0 { " (the system's maximum)" } else { "" },
            )));
        }
        Ok(())
    }

    fn check_headers(&self) -> Result<()> {
        let refused = |name: &&String| CREDENTIAL_HEADERS.contains(&name.to_ascii_lowercase().as_str());
        match self.passthrough_request_headers.iter().find(refused) {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "passthrough_request_headers: {:?} carries a credential and is never passed on",
                name.to_ascii_lowercase()
            ))),
        }
    }

    /// Merges the given options into those of the mount; an empty value removes the option.
    fn merge_options(&mut self, fields: &Fields) -> Result<()> {
        let Some(given) = fields.map_within("options", OPTION_LIMITS)? else { return Ok(()) };
        let mut options: BTreeMap<String, String> = self.options.take().unwrap_or_default();
        options.extend(given);
        options.retain(|_, value| !value.is_empty());
        if options.len() > OPTION_LIMITS.entries {
            return Err(Error::invalid(format!("options: a mount can have at most {} options", OPTION_LIMITS.entries)));
        }
        self.options = (!options.is_empty()).then_some(options);
        Ok(())
    }
}

/// Reads the duration in a field into `to`, in seconds. An absent field or `""` changes nothing; `system` and 0 select
/// the system's duration.
fn read_ttl(to: &mut u64, fields: &Fields, name: &str) -> Result<()> {
    *to = match fields.value(name) {
        None => return Ok(()),
        Some(Value::String(text)) => match text.trim() {
            "" => return Ok(()),
            "system" => 0,
            other => parse_duration(other).ok_or_else(|| invalid_ttl_error(name, other))?.as_secs(),
        },
        Some(other) => {
            let duration = fields.duration(name).map_err(|_| invalid_ttl_error(name, &other.to_string()))?;
            duration.unwrap_or(SYSTEM_TTL).as_secs()
        }
    };
    Ok(())
}

fn invalid_ttl_error(name: &str, text: &str) -> Error {
    let form = "a duration, such as 90, \"90s\" or \"1h30m\", and not negative, or \"system\"";
    Error::invalid(format!("{name}: must be {}", violated_duration_rule(text, form)))
}

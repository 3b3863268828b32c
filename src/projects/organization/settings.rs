//! The attributes of an organization that are stored and returned, but have no effect.

use serde_json::{Map, Value};

use super::super::attributes::{AttributeReader, AttributeValue, display_name};

enum OrganizationSettingType {
    Flag(bool),
    Word(&'static str),
    /// A number of minutes, or null.
    Minutes,
    /// A string, or null.
    Text,
}

const ORGANIZATION_SETTINGS: &[(&str, OrganizationSettingType)] = &[
    ("cost-estimation-enabled", OrganizationSettingType::Flag(false)),
    ("assessments-enforced", OrganizationSettingType::Flag(false)),
    ("send-passing-statuses-for-untriggered-speculative-plans", OrganizationSettingType::Flag(false)),
    ("stacks-enabled", OrganizationSettingType::Flag(false)),
    ("global-module-sharing", OrganizationSettingType::Flag(false)),
    ("global-provider-sharing", OrganizationSettingType::Flag(false)),
    ("recoverable-items-enabled", OrganizationSettingType::Flag(false)),
    ("speculative-plan-management-enabled", OrganizationSettingType::Flag(true)),
    ("aggregated-commit-status-enabled", OrganizationSettingType::Flag(true)),
    ("collaborator-auth-policy", OrganizationSettingType::Word("password")),
    ("session-timeout", OrganizationSettingType::Minutes),
    ("session-remember", OrganizationSettingType::Minutes),
    ("owners-team-saml-role-id", OrganizationSettingType::Text),
];

/// Maximum length of an attribute of type string, in characters.
const MAX_SETTING_CHARS: usize = 256;

/// The attributes without effect that a request sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrganizationSettingsChange(Map<String, Value>);

impl OrganizationSettingsChange {
    /// Reads the attributes. Null clears nullable attributes and leaves others unchanged.
    pub fn read(attributes: &mut AttributeReader<'_>) -> Self {
        let mut named = Map::new();
        for (name, setting_type) in ORGANIZATION_SETTINGS {
            let given = match setting_type {
                OrganizationSettingType::Flag(_) => attributes.flag(name).value().map(Value::from),
                OrganizationSettingType::Word(_) => {
                    attributes.short_text(name, MAX_SETTING_CHARS).value().map(Value::from)
                }
                OrganizationSettingType::Minutes => to_nullable_json(attributes.number(name)),
                OrganizationSettingType::Text => to_nullable_json(attributes.short_text(name, MAX_SETTING_CHARS)),
            };
            if matches!(setting_type, OrganizationSettingType::Minutes)
                && given.as_ref().and_then(Value::as_i64).is_some_and(|n| n < 1)
            {
                attributes.fault(name, format!("{} must be at least 1 minute", display_name(name)));
            }
            if let Some(value) = given {
                named.insert((*name).to_owned(), value);
            }
        }
        Self(named)
    }

    /// Returns the stored JSON object after the change.
    pub fn apply_to(self, stored: &str) -> String {
        let mut all = parse(stored);
        all.extend(self.0);
        Value::from(all).to_string()
    }
}

fn to_nullable_json<T: Into<Value>>(given: AttributeValue<T>) -> Option<Value> {
    given.is_given().then(|| given.value().map_or(Value::Null, Into::into))
}

/// Returns all attributes without effect: with the value in `stored`, a JSON object, or the default.
pub fn with_defaults(stored: &str) -> Map<String, Value> {
    let mut stored = parse(stored);
    let with_default = |(name, setting_type): &(&str, OrganizationSettingType)| {
        let default = || match setting_type {
            OrganizationSettingType::Flag(flag) => Value::from(*flag),
            OrganizationSettingType::Word(word) => Value::from(*word),
            OrganizationSettingType::Minutes | OrganizationSettingType::Text => Value::Null,
        };
        ((*name).to_owned(), stored.remove(*name).unwrap_or_else(default))
    };
    ORGANIZATION_SETTINGS.iter().map(with_default).collect()
}

fn parse(stored: &str) -> Map<String, Value> {
    serde_json::from_str(stored).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn organization_settings_merge_change_stored_and_defaults() {
        let body = json!({ "stacks-enabled": true, "session-timeout": 20, "owners-team-saml-role-id": null, "x": 1 });
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        let stored = OrganizationSettingsChange::read(&mut attributes)
            .apply_to(r#"{"session-remember":5,"owners-team-saml-role-id":"a"}"#);
        assert!(attributes.has_no_faults());
        let all = with_defaults(&stored);
        assert_eq!(all.len(), ORGANIZATION_SETTINGS.len());
        for (name, value) in [
            ("stacks-enabled", json!(true)),
            ("session-timeout", json!(20)),
            ("session-remember", json!(5)),
            ("owners-team-saml-role-id", json!(null)),
            ("collaborator-auth-policy", json!("password")),
            ("aggregated-commit-status-enabled", json!(true)),
            ("cost-estimation-enabled", json!(false)),
        ] {
            assert_eq!(all[name], value, "{name}");
        }
    }
}

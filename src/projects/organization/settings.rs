//! The attributes of an organization that are stored and returned, but have no effect.

use serde_json::{Map, Value};

use super::super::attributes::{Attributes, Given, label};

enum Form {
    Flag(bool),
    Word(&'static str),
    /// Minutes, nullable.
    Minutes,
    /// A string, nullable.
    Text,
}

const SETTINGS: &[(&str, Form)] = &[
    ("cost-estimation-enabled", Form::Flag(false)),
    ("assessments-enforced", Form::Flag(false)),
    ("send-passing-statuses-for-untriggered-speculative-plans", Form::Flag(false)),
    ("stacks-enabled", Form::Flag(false)),
    ("global-module-sharing", Form::Flag(false)),
    ("global-provider-sharing", Form::Flag(false)),
    ("recoverable-items-enabled", Form::Flag(false)),
    ("speculative-plan-management-enabled", Form::Flag(true)),
    ("aggregated-commit-status-enabled", Form::Flag(true)),
    ("collaborator-auth-policy", Form::Word("password")),
    ("session-timeout", Form::Minutes),
    ("session-remember", Form::Minutes),
    ("owners-team-saml-role-id", Form::Text),
];

/// Maximum length of a string attribute, in characters.
const LONGEST: usize = 256;

/// The attributes that a request sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named(Map<String, Value>);

impl Named {
    /// Reads the attributes. Null clears nullable attributes and leaves others unchanged.
    pub fn read(attributes: &mut Attributes<'_>) -> Self {
        let mut named = Map::new();
        for (name, form) in SETTINGS {
            let given = match form {
                Form::Flag(_) => attributes.flag(name).value().map(Value::from),
                Form::Word(_) => attributes.short_text(name, LONGEST).value().map(Value::from),
                Form::Minutes => nullable(attributes.number(name)),
                Form::Text => nullable(attributes.short_text(name, LONGEST)),
            };
            if matches!(form, Form::Minutes) && given.as_ref().and_then(Value::as_i64).is_some_and(|n| n < 1) {
                attributes.fault(name, format!("{} must be 1 minute at least", label(name)));
            }
            if let Some(value) = given {
                named.insert((*name).to_owned(), value);
            }
        }
        Self(named)
    }

    /// Returns the stored JSON object with these attributes replaced.
    pub fn over(self, stored: &str) -> String {
        let mut all = parsed(stored);
        all.extend(self.0);
        Value::from(all).to_string()
    }
}

fn nullable<T: Into<Value>>(given: Given<T>) -> Option<Value> {
    given.is_given().then(|| given.value().map_or(Value::Null, Into::into))
}

/// Returns every attribute with its stored or default value.
pub fn all(stored: &str) -> Map<String, Value> {
    let mut stored = parsed(stored);
    let with_default = |(name, form): &(&str, Form)| {
        let default = || match form {
            Form::Flag(flag) => Value::from(*flag),
            Form::Word(word) => Value::from(*word),
            Form::Minutes | Form::Text => Value::Null,
        };
        ((*name).to_owned(), stored.remove(*name).unwrap_or_else(default))
    };
    SETTINGS.iter().map(with_default).collect()
}

fn parsed(stored: &str) -> Map<String, Value> {
    serde_json::from_str(stored).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_named_is_kept_and_the_rest_has_its_default() {
        let body = json!({ "stacks-enabled": true, "session-timeout": 20, "owners-team-saml-role-id": null, "x": 1 });
        let mut attributes = Attributes::new(body.as_object().unwrap());
        let stored = Named::read(&mut attributes).over(r#"{"session-remember":5,"owners-team-saml-role-id":"a"}"#);
        assert!(attributes.is_sound());
        let all = all(&stored);
        assert_eq!(all.len(), SETTINGS.len());
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

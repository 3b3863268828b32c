//! The settings of a workspace: attributes that are stored and returned but have no effect. The same holds for the
//! Terraform version, which this module validates.

use serde_json::{Map, Value, json};

use super::super::attributes::{AttributeReader, AttributeValue, display_name};

enum WorkspaceSettingType {
    Flag(bool),
    Text(Option<&'static str>),
    Texts,
}

const WORKSPACE_SETTINGS: &[(&str, WorkspaceSettingType)] = &[
    ("allow-destroy-plan", WorkspaceSettingType::Flag(true)),
    ("file-triggers-enabled", WorkspaceSettingType::Flag(true)),
    ("speculative-enabled", WorkspaceSettingType::Flag(true)),
    ("auto-apply", WorkspaceSettingType::Flag(false)),
    ("auto-apply-run-trigger", WorkspaceSettingType::Flag(false)),
    ("queue-all-runs", WorkspaceSettingType::Flag(false)),
    ("assessments-enabled", WorkspaceSettingType::Flag(false)),
    ("structured-run-output-enabled", WorkspaceSettingType::Flag(false)),
    (GLOBAL_REMOTE_STATE, WorkspaceSettingType::Flag(false)),
    (PROJECT_REMOTE_STATE, WorkspaceSettingType::Flag(false)),
    (TRIGGER_PREFIXES, WorkspaceSettingType::Texts),
    (TRIGGER_PATTERNS, WorkspaceSettingType::Texts),
    ("working-directory", WorkspaceSettingType::Text(Some(""))),
    ("source-name", WorkspaceSettingType::Text(None)),
    ("source-url", WorkspaceSettingType::Text(None)),
];
const GLOBAL_REMOTE_STATE: &str = "global-remote-state";
const PROJECT_REMOTE_STATE: &str = "project-remote-state";
const TRIGGER_PREFIXES: &str = "trigger-prefixes";
const TRIGGER_PATTERNS: &str = "trigger-patterns";

/// Maximum length of a string in a setting, in characters.
const MAX_TEXT_CHARS: usize = 4096;
/// Maximum number of elements of a setting of type list.
const MAX_LIST_ELEMENTS: usize = 256;
/// Maximum total length of the elements of one setting of type list, in characters. The length is limited because a
/// page contains the lists of up to 100 workspaces.
const MAX_LIST_CHARS: usize = 1 << 16;

/// The settings of a workspace that clients have set. Other settings have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceSettingValues(Map<String, Value>);

impl WorkspaceSettingValues {
    /// Parses the stored JSON text.
    pub fn parse(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }

    /// Returns the JSON text to store.
    pub fn text(&self) -> String {
        Value::from(self.0.clone()).to_string()
    }

    /// Returns all settings, with the value that is set or the default.
    pub fn with_defaults(&self) -> Map<String, Value> {
        let default_value = |setting_type: &WorkspaceSettingType| match setting_type {
            WorkspaceSettingType::Flag(flag) => json!(flag),
            WorkspaceSettingType::Text(text) => json!(text),
            WorkspaceSettingType::Texts => json!([]),
        };
        let value = |name: &str, setting_type| self.0.get(name).cloned().unwrap_or_else(|| default_value(setting_type));
        WORKSPACE_SETTINGS.iter().map(|(name, setting_type)| ((*name).to_owned(), value(name, setting_type))).collect()
    }

    /// Applies the attributes of a request and returns the new settings. Null resets a setting to its default. Setting
    /// trigger prefixes clears trigger patterns and vice versa; a request must not set both.
    pub fn with_changes(&self, attributes: &mut AttributeReader<'_>) -> Self {
        let mut settings = self.0.clone();
        let mut filled = Vec::new();
        for (name, setting_type) in WORKSPACE_SETTINGS {
            let given = match setting_type {
                WorkspaceSettingType::Flag(_) => to_json(attributes.flag(name)),
                WorkspaceSettingType::Text(_) => to_json(read_text(attributes, name)),
                WorkspaceSettingType::Texts => to_json(read_list(attributes, name)),
            };
            match given {
                AttributeValue::Absent => continue,
                AttributeValue::Null => drop(settings.remove(*name)),
                AttributeValue::Value(value) => drop(settings.insert((*name).to_owned(), value)),
            }
            if settings.get(*name).and_then(Value::as_array).is_some_and(|list: &Vec<_>| !list.is_empty()) {
                filled.push(*name);
            }
        }
        let is_set = |name: &str| settings.get(name) == Some(&Value::Bool(true));
        if is_set(GLOBAL_REMOTE_STATE) && is_set(PROJECT_REMOTE_STATE) {
            attributes
                .fault(PROJECT_REMOTE_STATE, "Project remote state must not be set together with global remote state");
        }
        match filled[..] {
            [TRIGGER_PREFIXES] => drop(settings.remove(TRIGGER_PATTERNS)),
            [TRIGGER_PATTERNS] => drop(settings.remove(TRIGGER_PREFIXES)),
            [] => {}
            _ => attributes.fault(TRIGGER_PATTERNS, "Trigger patterns must not be set together with trigger prefixes"),
        }
        Self(settings)
    }
}

fn to_json<T: Into<Value>>(given: AttributeValue<T>) -> AttributeValue<Value> {
    match given {
        AttributeValue::Absent => AttributeValue::Absent,
        AttributeValue::Null => AttributeValue::Null,
        AttributeValue::Value(value) => AttributeValue::Value(value.into()),
    }
}

pub(crate) fn read_text(attributes: &mut AttributeReader<'_>, name: &str) -> AttributeValue<String> {
    attributes.short_text(name, MAX_TEXT_CHARS)
}

fn read_list(attributes: &mut AttributeReader<'_>, name: &str) -> AttributeValue<Vec<String>> {
    let texts = attributes.texts(name, MAX_LIST_ELEMENTS, MAX_TEXT_CHARS);
    let together = texts.as_value().map_or(0, |texts| texts.iter().map(|text| text.chars().count()).sum());
    if together > MAX_LIST_CHARS {
        attributes.fault(name, format!("{} may have at most {MAX_LIST_CHARS} characters in total", display_name(name)));
    }
    texts
}

/// The default of the attribute `terraform-version`.
pub(crate) const LATEST_VERSION: &str = "latest";

/// Reads `terraform-version`: `latest`, a version, or version constraints.
pub(crate) fn read_version(attributes: &mut AttributeReader<'_>) -> AttributeValue<String> {
    const NAME: &str = "terraform-version";
    let version = attributes.text(NAME);
    if version.as_value().is_some_and(|text| text != LATEST_VERSION && !is_constraint(text)) {
        attributes
            .fault(NAME, "Terraform version must be latest, a version such as 1.5.7, or a constraint of versions");
    }
    version
}

/// `true` if the text is a comma-separated list of constraints, each an optional operator and a version.
fn is_constraint(text: &str) -> bool {
    const OPERATORS: [&str; 7] = ["~>", ">=", "<=", "!=", "=", ">", "<"];
    let one = |part: &str| {
        let part = part.trim_matches(' ');
        is_version(OPERATORS.iter().find_map(|operator| part.strip_prefix(operator)).unwrap_or(part).trim_matches(' '))
    };
    text.len() <= 256 && text.split(',').all(one)
}

/// `true` if the text is a version: one to three numbers separated by dots, with an optional prerelease after `-` and
/// build metadata after `+`.
fn is_version(text: &str) -> bool {
    let (text, metadata) = text.split_once('+').map_or((text, None), |(text, rest)| (text, Some(rest)));
    let (numbers, prerelease) = text.split_once('-').map_or((text, None), |(text, rest)| (text, Some(rest)));
    let number = |part: &str| !part.is_empty() && part.len() <= 9 && part.bytes().all(|b| b.is_ascii_digit());
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let mut words = [prerelease, metadata].into_iter().flatten().flat_map(|words| words.split('.'));
    numbers.split('.').count() <= 3 && numbers.split('.').all(number) && words.all(word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terraform_versions_and_constraints_are_validated() {
        for good in
            ["0.11.0", "1.5", "1", "~> 1.5", "~>1.5.0", ">= 1.2, < 2.0", "1.6.0-rc1", "1.0.0-alpha.1+b7", "!= 1.5.1"]
        {
            assert!(is_constraint(good), "{good}");
        }
        for bad in [
            "nonexisting",
            "",
            " ",
            "1.",
            ".1",
            "1.2.3.4",
            "~>",
            "~~> 1",
            "1.5,",
            "v1.5",
            "1..2",
            "1.5-",
            "1.5+",
            "1\n",
        ] {
            assert!(!is_constraint(bad), "{bad}");
        }
    }

    #[test]
    fn workspace_settings_override_the_defaults() {
        let body = json!({ "auto-apply": true, "trigger-prefixes": ["/a"], "source-name": null });
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        let settings = WorkspaceSettingValues::default().with_changes(&mut attributes);
        assert!(attributes.has_no_faults());
        let stored = WorkspaceSettingValues::parse(&settings.text());
        assert_eq!(stored, settings);
        let all = stored.with_defaults();
        assert_eq!((all.len(), &all["auto-apply"], &all["queue-all-runs"]), (15, &json!(true), &json!(false)));
        let body = json!({ "trigger-patterns": ["b"], "auto-apply": null });
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        let changed = stored.with_changes(&mut attributes).with_defaults();
        assert!(attributes.has_no_faults());
        let now = (&changed["auto-apply"], &changed[TRIGGER_PATTERNS], &changed[TRIGGER_PREFIXES]);
        assert_eq!(now, (&json!(false), &json!(["b"]), &json!([])), "patterns take the place of prefixes");
        let body = json!({ "trigger-patterns": ["b"], "trigger-prefixes": ["/a"] });
        let mut attributes = AttributeReader::new(body.as_object().unwrap());
        stored.with_changes(&mut attributes);
        assert!(!attributes.has_no_faults(), "patterns and prefixes are exclusive");
    }

    #[test]
    fn state_is_shared_with_the_organization_or_the_project() {
        let changed = |stored: &WorkspaceSettingValues, body: Value| {
            let mut attributes = AttributeReader::new(body.as_object().unwrap());
            let settings = stored.with_changes(&mut attributes);
            attributes.finish().map(|()| settings).map_err(drop)
        };
        let project = changed(
            &WorkspaceSettingValues::default(),
            json!({ PROJECT_REMOTE_STATE: true, GLOBAL_REMOTE_STATE: false }),
        )
        .unwrap();
        assert_eq!(project.with_defaults()[PROJECT_REMOTE_STATE], json!(true));
        assert!(changed(&project, json!({ GLOBAL_REMOTE_STATE: true })).is_err());
        assert!(changed(&project, json!({ GLOBAL_REMOTE_STATE: true, PROJECT_REMOTE_STATE: false })).is_ok());
    }

    #[test]
    fn text_list_size_is_limited() {
        let faults = |texts: Vec<String>| {
            let body = json!({ "trigger-patterns": texts });
            let mut attributes = AttributeReader::new(body.as_object().unwrap());
            WorkspaceSettingValues::default().with_changes(&mut attributes);
            attributes.finish().is_err()
        };
        assert!(!faults(vec!["ü".repeat(4096); 16]) && !faults(vec!["ü".repeat(256); 256]));
        assert!(faults(vec!["ü".repeat(4097)]) && faults(vec![String::new(); 257]));
        assert!(faults(vec!["ü".repeat(4096); 17]), "together");
    }

    proptest! {
        #[test]
        fn version_of_up_to_three_numbers_is_accepted(numbers in prop::collection::vec(0_u32..1000, 1..=3), operator in "(|~>|>=|<) ?") {
            let version = numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
            let constraint = format!("{operator}{version}");
            prop_assert!(is_constraint(&constraint));
            let twice = format!("{version}, {version}");
            prop_assert!(is_constraint(&twice));
        }

        #[test]
        fn reading_a_version_never_panics(text in "\\PC{0,20}") {
            let _ = is_constraint(&text);
        }
    }
}

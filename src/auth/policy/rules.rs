//! Converts the parsed tree of a policy text into rules: keys, capabilities, paths, parameter lists.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::MAX_RULE_PATH_BYTES;
use super::capabilities::Capabilities;
use super::parameters::ParameterLists;
use super::parse::{PolicyItem, PolicySyntaxError, PolicyTree};
use super::spelling::lower;
use super::terms::RuleTerms;
use crate::clock::{Time, parse_duration, parse_rfc3339};
use crate::templates::{Template, TemplateValues, UnfilledReason};

/// One `path` block of a policy text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Path without leading `/`. A final `*` matches any suffix, and a segment `+` matches any single segment.
    pub path: String,
    /// Terms of the rule, shared with compiled unions in which no other rule has this path.
    pub terms: Arc<RuleTerms>,
    /// Time from which the rule has no effect; `None` for never.
    pub expiration: Option<Time>,
    /// Comment of the rule, as free text.
    pub comment: Option<String>,
}

impl Rule {
    /// `true` if the path contains a template, which is filled with values of the caller's entity.
    pub fn is_template(&self) -> bool {
        self.path.contains("{{")
    }

    /// Returns the path with templates filled for a caller; `None` if `identity` cannot fill them. Logs a warning if a
    /// value of the identity is not safe to fill in.
    pub(super) fn path_for(&self, identity: Option<&dyn TemplateValues>) -> Option<Cow<'_, str>> {
        if !self.is_template() {
            return Some(Cow::Borrowed(&self.path));
        }
        let path = match Template::parse("path", &self.path).ok()?.fill(identity?) {
            Ok(path) => validate_path(&path).ok(),
            Err(UnfilledReason::Unknown) => return None,
            Err(UnfilledReason::Unsafe) => None,
        };
        if path.is_none() {
            tracing::warn!(
                path = self.path,
                "policy rule skipped for a caller: an identity value is unsafe in the path template"
            );
        }
        path.map(Cow::Owned)
    }
}

/// Interprets the items at the top level: `path` blocks, and `name`, which is ignored.
pub(super) fn read_rules(items: Vec<PolicyItem>) -> Result<Vec<Rule>, PolicySyntaxError> {
    let mut rules = Vec::new();
    for item in items {
        match item.key.as_str() {
            "name" => {}
            "path" => read_path(item, &mut rules)?,
            other => return Err(format!("line {}: unknown key {}", item.line, quote_name(other))),
        }
    }
    Ok(rules)
}

/// Interprets a `path "p" { … }` block, or an object that has paths as keys (in JSON also a list of such objects).
fn read_path(mut item: PolicyItem, rules: &mut Vec<Rule>) -> Result<(), PolicySyntaxError> {
    match (item.labels.len(), item.tree) {
        (1, PolicyTree::Object(body)) => {
            rules.push(read_rule(&item.labels.remove(0), body, item.line)?);
            Ok(())
        }
        // In JSON, `path "p" = [ { … } ]` represents a repeated block.
        (1, PolicyTree::List(bodies)) => bodies.into_iter().try_for_each(|tree| {
            let labels = item.labels.clone();
            let key = item.key.clone();
            read_path(PolicyItem { key, labels, tree, line: item.line }, rules)
        }),
        (0, PolicyTree::Object(paths)) => paths.into_iter().try_for_each(|path| {
            if !path.labels.is_empty() {
                return Err(format!("line {}: a path block must have exactly one label", path.line));
            }
            read_path(PolicyItem { labels: vec![path.key], key: item.key.clone(), ..path }, rules)
        }),
        (0, PolicyTree::List(objects)) => objects.into_iter().try_for_each(|tree| match tree {
            PolicyTree::Object(_) => {
                let labels = Vec::new();
                let key = item.key.clone();
                read_path(PolicyItem { key, labels, tree, line: item.line }, rules)
            }
            _ => Err(format!("line {}: path must be a block", item.line)),
        }),
        _ => Err(format!("line {}: path must be a block with one label", item.line)),
    }
}

fn read_rule(path: &str, body: Vec<PolicyItem>, line: usize) -> Result<Rule, PolicySyntaxError> {
    let mut rule = Rule { path: validate_path(path).map_err(|p| format!("line {line}: {p}"))?, ..Rule::default() };
    let mut terms = RuleTerms::default();
    let mut seen = BTreeSet::new();
    for item in body {
        let line = item.line;
        if !item.labels.is_empty() {
            return Err(format!("line {line}: {} takes no label", quote_name(&item.key)));
        }
        let key = item.key.clone();
        if !seen.insert(item.key.clone()) {
            return Err(format!("line {line}: {} is given twice", quote_name(&key)));
        }
        read_key(&mut rule, &mut terms, item).map_err(|problem| format!("line {line}: {problem}"))?;
    }
    if !terms.max_wrapping.is_zero() && terms.max_wrapping < terms.min_wrapping {
        return Err(format!("line {line}: max_wrapping_ttl is less than min_wrapping_ttl"));
    }
    Ok(Rule { terms: Arc::new(terms), ..rule })
}

fn read_key(rule: &mut Rule, terms: &mut RuleTerms, item: PolicyItem) -> Result<(), PolicySyntaxError> {
    let PolicyItem { key, tree, .. } = item;
    match key.as_str() {
        "capabilities" => {
            for word in read_strings(&key, tree)? {
                let one = Capabilities::parse(&word)
                    .ok_or_else(|| format!("capabilities: unknown capability {}", quote_name(&word)))?;
                terms.capabilities = terms.capabilities.or(one);
            }
        }
        "policy" => {
            let word = read_string(&key, tree)?;
            let set = Capabilities::parse_legacy(&word).ok_or_else(|| {
                format!("policy: unknown access level {}; use deny, read, write or sudo", quote_name(&word))
            })?;
            terms.capabilities = terms.capabilities.or(set);
        }
        "allowed_parameters" => terms.parameters.allowed = read_parameter_lists(&key, tree)?,
        "denied_parameters" => terms.parameters.denied = read_parameter_lists(&key, tree)?,
        "required_parameters" => {
            terms.parameters.required = read_strings(&key, tree)?.iter().map(|name| lower(name).into_owned()).collect()
        }
        "min_wrapping_ttl" => terms.min_wrapping = read_duration(&key, tree)?,
        "max_wrapping_ttl" => terms.max_wrapping = read_duration(&key, tree)?,
        "expiration" => {
            rule.expiration =
                Some(parse_rfc3339(&key, &read_string(&key, tree)?).map_err(|error| error.text().to_owned())?);
        }
        "comment" => rule.comment = Some(read_string(&key, tree)?),
        other => return Err(format!("unknown key {} in a path block", quote_name(other))),
    }
    Ok(())
}

fn validate_path(path: &str) -> Result<String, PolicySyntaxError> {
    let path = path.strip_prefix('/').unwrap_or(path);
    if path.is_empty() {
        return Err("path: must not be empty".to_owned());
    }
    if path.len() > MAX_RULE_PATH_BYTES {
        return Err(format!("path: longer than {MAX_RULE_PATH_BYTES} bytes"));
    }
    if path.contains("+*") {
        return Err(format!("path {}: \"+*\" is forbidden", quote_name(path)));
    }
    if path.contains("//") || path.contains("..") {
        return Err(format!("path {}: \"..\" and \"//\" are forbidden", quote_name(path)));
    }
    if path.matches("{{").count() != path.matches("}}").count() {
        return Err(format!("path {}: \"{{{{\" and \"}}}}\" do not match", quote_name(path)));
    }
    Ok(path.to_owned())
}

fn read_string(key: &str, tree: PolicyTree) -> Result<String, PolicySyntaxError> {
    match tree {
        PolicyTree::Scalar(Value::String(text)) => Ok(text),
        _ => Err(format!("{key}: must be a string")),
    }
}

fn read_strings(key: &str, tree: PolicyTree) -> Result<Vec<String>, PolicySyntaxError> {
    match tree {
        PolicyTree::List(items) => items.into_iter().map(|item| read_string(key, item)).collect(),
        _ => Err(format!("{key}: must be a list of strings")),
    }
}

fn read_duration(key: &str, tree: PolicyTree) -> Result<Duration, PolicySyntaxError> {
    let text = match tree {
        PolicyTree::Scalar(Value::String(text)) => text,
        PolicyTree::Scalar(Value::Number(number)) => number.to_string(),
        _ => String::from("-"),
    };
    parse_duration(&text).ok_or_else(|| format!("{key}: must be a duration, such as \"90s\", and not negative"))
}

fn read_parameter_lists(key: &str, tree: PolicyTree) -> Result<ParameterLists, PolicySyntaxError> {
    let wrong = || format!("{key}: must be an object of lists");
    let PolicyTree::Object(items) = tree else { return Err(wrong()) };
    let mut lists = ParameterLists::new();
    for item in items {
        let (true, PolicyTree::List(values)) = (item.labels.is_empty(), item.tree) else { return Err(wrong()) };
        let values = values.into_iter().map(read_value).collect::<Result<Vec<_>, _>>()?;
        if lists.insert(lower(&item.key).into_owned(), values).is_some() {
            return Err(format!("{key}: {} is given twice", quote_name(&item.key)));
        }
    }
    Ok(lists)
}

fn read_value(tree: PolicyTree) -> Result<Value, PolicySyntaxError> {
    match tree {
        PolicyTree::Scalar(scalar) => Ok(scalar),
        PolicyTree::List(items) => items.into_iter().map(read_value).collect::<Result<_, _>>().map(Value::Array),
        PolicyTree::Object(items) => items
            .into_iter()
            .map(|item| match item.labels.is_empty() {
                true => Ok((item.key, read_value(item.tree)?)),
                false => Err(format!("line {}: a value takes no label", item.line)),
            })
            .collect::<Result<_, _>>()
            .map(Value::Object),
    }
}

/// Quotes, escapes and truncates a name from the policy text for an error message.
fn quote_name(name: &str) -> String {
    const MAX_CHARACTERS: usize = 64;
    match name.char_indices().nth(MAX_CHARACTERS) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}…", &name[..end]),
    }
}

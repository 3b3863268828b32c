//! Interprets the tree of a policy text: keys, capabilities, paths, parameter lists.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::MAX_PATH;
use super::capabilities::Capabilities;
use super::parameters::ParameterLists;
use super::parse::{Item, Problem, Tree};
use super::spelling::lower;
use super::terms::Terms;
use crate::clock::{Time, parse_duration, parse_rfc3339};
use crate::templates::{Identity, Template, Unfilled};

/// One `path` block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Path without leading `/`; a final `*` matches any suffix, a segment `+` any one segment.
    pub path: String,
    /// Terms of the rule, shared with unions that have no other rule for this path.
    pub terms: Arc<Terms>,
    /// Time from which the rule is ignored.
    pub expiration: Option<Time>,
    /// Free text.
    pub comment: Option<String>,
}

impl Rule {
    /// `true` if the path contains a template, which is filled from the caller's entity.
    pub fn is_template(&self) -> bool {
        self.path.contains("{{")
    }

    /// Returns the path for a caller; `None` if it is a template that the identity cannot fill. Logs a warning if the
    /// identity has a value that must not be filled in.
    pub(super) fn path_for(&self, identity: Option<&dyn Identity>) -> Option<Cow<'_, str>> {
        if !self.is_template() {
            return Some(Cow::Borrowed(&self.path));
        }
        let path = match Template::parse("path", &self.path).ok()?.fill(identity?) {
            Ok(path) => checked_path(&path).ok(),
            Err(Unfilled::Unknown) => return None,
            Err(Unfilled::Unsafe) => None,
        };
        if path.is_none() {
            tracing::warn!(
                path = self.path,
                "a rule of a policy is left out for a caller: what it takes from the caller's identity could be read as more than one value"
            );
        }
        path.map(Cow::Owned)
    }
}

/// Interprets the top level: `path` blocks, and `name`, which is ignored.
pub(super) fn read(items: Vec<Item>) -> Result<Vec<Rule>, Problem> {
    let mut rules = Vec::new();
    for item in items {
        match item.key.as_str() {
            "name" => {}
            "path" => read_path(item, &mut rules)?,
            other => return Err(format!("line {}: unknown key {}", item.line, shown(other))),
        }
    }
    Ok(rules)
}

/// Interprets `path "p" { … }`, or an object with paths as keys (in JSON also a list of objects).
fn read_path(mut item: Item, rules: &mut Vec<Rule>) -> Result<(), Problem> {
    match (item.labels.len(), item.tree) {
        (1, Tree::Object(body)) => {
            rules.push(read_rule(&item.labels.remove(0), body, item.line)?);
            Ok(())
        }
        // In JSON, `path "p" = [ { … } ]` is the repeated block form.
        (1, Tree::List(bodies)) => bodies.into_iter().try_for_each(|tree| {
            let (labels, key) = (item.labels.clone(), item.key.clone());
            read_path(Item { key, labels, tree, line: item.line }, rules)
        }),
        (0, Tree::Object(paths)) => paths.into_iter().try_for_each(|path| {
            if !path.labels.is_empty() {
                return Err(format!("line {}: a path block has one label", path.line));
            }
            read_path(Item { labels: vec![path.key], key: item.key.clone(), ..path }, rules)
        }),
        (0, Tree::List(objects)) => objects.into_iter().try_for_each(|tree| match tree {
            Tree::Object(_) => {
                let (labels, key) = (Vec::new(), item.key.clone());
                read_path(Item { key, labels, tree, line: item.line }, rules)
            }
            _ => Err(format!("line {}: path must be a block", item.line)),
        }),
        _ => Err(format!("line {}: path must be a block with one label", item.line)),
    }
}

fn read_rule(path: &str, body: Vec<Item>, line: usize) -> Result<Rule, Problem> {
    let mut rule = Rule { path: checked_path(path).map_err(|p| format!("line {line}: {p}"))?, ..Rule::default() };
    let mut terms = Terms::default();
    let mut seen = BTreeSet::new();
    for item in body {
        let line = item.line;
        if !item.labels.is_empty() {
            return Err(format!("line {line}: {} takes no label", shown(&item.key)));
        }
        let key = item.key.clone();
        if !seen.insert(item.key.clone()) {
            return Err(format!("line {line}: {} is given twice", shown(&key)));
        }
        read_key(&mut rule, &mut terms, item).map_err(|problem| format!("line {line}: {problem}"))?;
    }
    if !terms.max_wrapping.is_zero() && terms.max_wrapping < terms.min_wrapping {
        return Err(format!("line {line}: max_wrapping_ttl is less than min_wrapping_ttl"));
    }
    Ok(Rule { terms: Arc::new(terms), ..rule })
}

fn read_key(rule: &mut Rule, terms: &mut Terms, item: Item) -> Result<(), Problem> {
    let Item { key, tree, .. } = item;
    match key.as_str() {
        "capabilities" => {
            for word in strings(&key, tree)? {
                let one =
                    Capabilities::word(&word).ok_or_else(|| format!("capabilities: unknown word {}", shown(&word)))?;
                terms.capabilities = terms.capabilities.or(one);
            }
        }
        "policy" => {
            let word = string(&key, tree)?;
            let set = Capabilities::old_word(&word).ok_or_else(|| format!("policy: unknown word {}", shown(&word)))?;
            terms.capabilities = terms.capabilities.or(set);
        }
        "allowed_parameters" => terms.parameters.allowed = parameter_lists(&key, tree)?,
        "denied_parameters" => terms.parameters.denied = parameter_lists(&key, tree)?,
        "required_parameters" => {
            terms.parameters.required = strings(&key, tree)?.iter().map(|name| lower(name).into_owned()).collect()
        }
        "min_wrapping_ttl" => terms.min_wrapping = duration(&key, tree)?,
        "max_wrapping_ttl" => terms.max_wrapping = duration(&key, tree)?,
        "expiration" => {
            rule.expiration = Some(parse_rfc3339(&key, &string(&key, tree)?).map_err(|error| error.text().to_owned())?);
        }
        "comment" => rule.comment = Some(string(&key, tree)?),
        other => return Err(format!("unknown key {} in a path block", shown(other))),
    }
    Ok(())
}

fn checked_path(path: &str) -> Result<String, Problem> {
    let path = path.strip_prefix('/').unwrap_or(path);
    if path.is_empty() {
        return Err("path: must not be empty".to_owned());
    }
    if path.len() > MAX_PATH {
        return Err(format!("path: longer than {MAX_PATH} bytes"));
    }
    if path.contains("+*") {
        return Err(format!("path {}: \"+*\" is forbidden", shown(path)));
    }
    if path.contains("//") || path.contains("..") {
        return Err(format!("path {}: \"..\" and \"//\" are forbidden", shown(path)));
    }
    if path.matches("{{").count() != path.matches("}}").count() {
        return Err(format!("path {}: a template is not closed", shown(path)));
    }
    Ok(path.to_owned())
}

fn string(key: &str, tree: Tree) -> Result<String, Problem> {
    match tree {
        Tree::Scalar(Value::String(text)) => Ok(text),
        _ => Err(format!("{key}: must be a string")),
    }
}

fn strings(key: &str, tree: Tree) -> Result<Vec<String>, Problem> {
    match tree {
        Tree::List(items) => items.into_iter().map(|item| string(key, item)).collect(),
        _ => Err(format!("{key}: must be a list of strings")),
    }
}

fn duration(key: &str, tree: Tree) -> Result<Duration, Problem> {
    let text = match tree {
        Tree::Scalar(Value::String(text)) => text,
        Tree::Scalar(Value::Number(number)) => number.to_string(),
        _ => String::from("-"),
    };
    parse_duration(&text).ok_or_else(|| format!("{key}: must be a duration, such as \"90s\", and not negative"))
}

fn parameter_lists(key: &str, tree: Tree) -> Result<ParameterLists, Problem> {
    let wrong = || format!("{key}: must be an object of lists");
    let Tree::Object(items) = tree else { return Err(wrong()) };
    let mut lists = ParameterLists::new();
    for item in items {
        let (true, Tree::List(values)) = (item.labels.is_empty(), item.tree) else { return Err(wrong()) };
        let values = values.into_iter().map(value).collect::<Result<Vec<_>, _>>()?;
        if lists.insert(lower(&item.key).into_owned(), values).is_some() {
            return Err(format!("{key}: {} is given twice", shown(&item.key)));
        }
    }
    Ok(lists)
}

fn value(tree: Tree) -> Result<Value, Problem> {
    match tree {
        Tree::Scalar(scalar) => Ok(scalar),
        Tree::List(items) => items.into_iter().map(value).collect::<Result<_, _>>().map(Value::Array),
        Tree::Object(items) => items
            .into_iter()
            .map(|item| match item.labels.is_empty() {
                true => Ok((item.key, value(item.tree)?)),
                false => Err(format!("line {}: a value takes no label", item.line)),
            })
            .collect::<Result<_, _>>()
            .map(Value::Object),
    }
}

/// Quotes, escapes and truncates a name from the text for an error.
fn shown(name: &str) -> String {
    const LONGEST: usize = 64;
    match name.char_indices().nth(LONGEST) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}…", &name[..end]),
    }
}

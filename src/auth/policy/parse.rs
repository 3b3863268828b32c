//! A recursive-descent parser for policy texts: JSON, and the part of HCL 1 that policies use.
//!
//! An item is `key = value`, `key { … }` or `key "label" { … }`; a value is a string, a number, a boolean, a list or an
//! object; `#`, `//` and `/* */` start comments. Heredocs and unquoted labels are not supported. JSON is parsed into
//! the same tree, with `:` for `=`, so repeated keys are detected. `rules` interprets the tree.

use serde_json::{Number, Value};

/// Maximum nesting of lists and objects.
const MAX_NESTING_DEPTH: usize = 16;

/// A syntax error in a policy text, described for the client, with its line.
pub(super) type PolicySyntaxError = String;

/// One item `key [label] = value` of an object or of the whole text.
pub(super) struct PolicyItem {
    pub key: String,
    pub labels: Vec<String>,
    pub tree: PolicyTree,
    pub line: usize,
}

/// A parsed value. An object may contain a key more than once.
pub(super) enum PolicyTree {
    Scalar(Value),
    List(Vec<PolicyTree>),
    Object(Vec<PolicyItem>),
}

pub(super) fn parse(text: &str) -> Result<Vec<PolicyItem>, PolicySyntaxError> {
    let mut parser = PolicyParser { text, position: 0, last_line: (0, 1) };
    parser.skip_blanks()?;
    if parser.peek() != Some(b'{') {
        return parser.parse_items(None, MAX_NESTING_DEPTH);
    }
    parser.position += 1;
    let items = parser.parse_items(Some(b'}'), MAX_NESTING_DEPTH)?;
    parser.skip_blanks()?;
    match parser.peek() {
        None => Ok(items),
        Some(_) => Err(parser.problem("unexpected text after the JSON object")),
    }
}

struct PolicyParser<'a> {
    text: &'a str,
    position: usize,
    /// The position up to which lines were counted, and its line number. Counting continues from there, so that the
    /// total cost is linear.
    last_line: (usize, usize),
}

impl PolicyParser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn line(&mut self) -> usize {
        let (from, line) = if self.last_line.0 <= self.position { self.last_line } else { (0, 1) };
        let more = self.text.as_bytes()[from..self.position].iter().filter(|b| **b == b'\n').count();
        self.last_line = (self.position, line + more);
        line + more
    }

    fn problem(&mut self, what: &str) -> PolicySyntaxError {
        format!("line {}: {what}", self.line())
    }

    fn skip_byte(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.position += usize::from(found);
        found
    }

    fn skip_blanks(&mut self) -> Result<(), PolicySyntaxError> {
        loop {
            let rest = &self.text.as_bytes()[self.position..];
            match rest {
                [b' ' | b'\t' | b'\r' | b'\n', ..] => self.position += 1,
                [b'#', ..] | [b'/', b'/', ..] => {
                    self.position += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                }
                [b'/', b'*', ..] => match self.text[self.position + 2..].find("*/") {
                    Some(end) => self.position += end + 4,
                    None => return Err(self.problem("a comment is not closed")),
                },
                _ => return Ok(()),
            }
        }
    }

    /// Parses items up to the character `close`, which is consumed, or for `None` to the end of the text.
    fn parse_items(&mut self, close: Option<u8>, depth: usize) -> Result<Vec<PolicyItem>, PolicySyntaxError> {
        let mut items = Vec::new();
        loop {
            self.skip_blanks()?;
            match (self.peek(), close) {
                (None, None) => return Ok(items),
                (None, Some(_)) => return Err(self.problem("a block is not closed")),
                (found, Some(_)) if found == close => {
                    self.position += 1;
                    return Ok(items);
                }
                _ => items.push(self.parse_item(depth)?),
            }
            self.skip_blanks()?;
            self.skip_byte(b',');
        }
    }

    fn parse_item(&mut self, depth: usize) -> Result<PolicyItem, PolicySyntaxError> {
        let line = self.line();
        let key = self.parse_key()?;
        let mut labels = Vec::new();
        loop {
            self.skip_blanks()?;
            match self.peek() {
                Some(b'"') => labels.push(self.parse_string()?),
                Some(b'{') => break,
                Some(b'=' | b':') => {
                    self.position += 1;
                    self.skip_blanks()?;
                    break;
                }
                _ => return Err(self.problem("expected '=' or '{' after a key")),
            }
        }
        Ok(PolicyItem { key, labels, tree: self.parse_tree(depth)?, line })
    }

    fn parse_key(&mut self) -> Result<String, PolicySyntaxError> {
        match self.peek() {
            Some(b'"') => self.parse_string(),
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => Ok(self.parse_word().to_owned()),
            _ => Err(self.problem("expected a key")),
        }
    }

    fn parse_word(&mut self) -> &str {
        let rest = &self.text[self.position..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-.+".contains(c))).unwrap_or(rest.len());
        self.position += end;
        &rest[..end]
    }

    fn parse_tree(&mut self, depth: usize) -> Result<PolicyTree, PolicySyntaxError> {
        let Some(inner) = depth.checked_sub(1) else {
            return Err(self.problem(&format!("more than {MAX_NESTING_DEPTH} levels of lists and objects")));
        };
        match self.peek() {
            Some(b'{') => {
                self.position += 1;
                self.parse_items(Some(b'}'), inner).map(PolicyTree::Object)
            }
            Some(b'[') => {
                self.position += 1;
                self.parse_list(inner).map(PolicyTree::List)
            }
            Some(b'"') => self.parse_string().map(|s| PolicyTree::Scalar(s.into())),
            _ => self.parse_bare().map(PolicyTree::Scalar),
        }
    }

    fn parse_list(&mut self, depth: usize) -> Result<Vec<PolicyTree>, PolicySyntaxError> {
        let mut list = Vec::new();
        loop {
            self.skip_blanks()?;
            if self.skip_byte(b']') {
                return Ok(list);
            }
            list.push(self.parse_tree(depth)?);
            self.skip_blanks()?;
            if !self.skip_byte(b',') && self.peek() != Some(b']') {
                return Err(self.problem("expected ',' or ']' in a list"));
            }
        }
    }

    fn parse_bare(&mut self) -> Result<Value, PolicySyntaxError> {
        let start = self.position;
        let value = match self.parse_word() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            number => number.parse::<Number>().ok().map(Value::Number),
        };
        value.ok_or_else(|| {
            self.position = start;
            self.problem("expected a string, a number, a boolean, a list or an object")
        })
    }

    fn parse_string(&mut self) -> Result<String, PolicySyntaxError> {
        let body = &self.text[self.position + 1..];
        let bytes = body.as_bytes();
        let mut end = 0;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(b'\n') | None => return Err(self.problem("a string is not closed on its line")),
                Some(_) => end += 1,
            }
        }
        // Strings have the escapes of JSON (RFC 8259 section 7); a raw tab is accepted too.
        let quoted = format!("\"{}\"", body[..end].replace('\t', "\\t"));
        let read = serde_json::from_str(&quoted).map_err(|_| self.problem("a string contains an invalid escape"));
        self.position += end + 2;
        read
    }
}

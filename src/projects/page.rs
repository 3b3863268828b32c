//! Pages of lists.

use super::store::Value;

/// Which page is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// From 1.
    pub number: i64,
    /// Most items, 1 to 100.
    pub size: i64,
}

impl Page {
    /// Items before it.
    pub fn offset(self) -> i64 {
        (self.number - 1).saturating_mul(self.size)
    }
}

/// One page of a list, and how long the list is.
#[derive(Debug)]
pub struct Listed<T> {
    /// The items.
    pub items: Vec<T>,
    /// Items on all pages.
    pub matching: i64,
}

/// The condition of a list, put together from parts whose parameters are numbered as they come.
pub struct Filter {
    text: String,
    /// The parameters so far.
    pub values: Vec<Value>,
}

impl Filter {
    /// Begins with a condition on one parameter, written with `{}` in its place.
    pub fn new(condition: &str, value: impl Into<Value>) -> Self {
        let mut filter = Self { text: String::new(), values: Vec::new() };
        filter.and(condition, value);
        filter
    }

    /// One more condition, with `{}` in the place of its parameter.
    pub fn and(&mut self, condition: &str, value: impl Into<Value>) {
        let place = self.parameter(value);
        self.join(&condition.replace("{}", &place));
    }

    /// One more condition without a parameter.
    pub fn join(&mut self, condition: &str) {
        if !self.text.is_empty() {
            self.text.push_str(" AND ");
        }
        self.text.push_str(condition);
    }

    /// The place of one more parameter. Parameters must be used in the order in which they are added.
    pub fn parameter(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    /// The whole condition.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// `text` as a pattern of LIKE … ESCAPE '\' that finds it anywhere, without case.
pub fn containing(text: &str) -> String {
    let mut pattern = String::from("%");
    for c in text.to_lowercase().chars() {
        if matches!(c, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_as_they_come() {
        let mut filter = Filter::new("p.org_id = {}", 7);
        filter.join("p.is_default");
        filter.and("p.name_lc = ANY({})", vec!["a".to_owned()]);
        assert_eq!(filter.text(), "p.org_id = $1 AND p.is_default AND p.name_lc = ANY($2)");
        assert_eq!(filter.parameter(20), "$3");
    }

    #[test]
    fn wildcards_are_found_as_they_are() {
        assert_eq!(containing("A_b%\\"), r"%a\_b\%\\%");
    }
}

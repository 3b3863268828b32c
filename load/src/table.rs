//! Tables of a report: members of JSON objects as aligned text and as HTML.

use std::fmt::Write as _;

use serde_json::Value;

use crate::format::{counts, escape, number};

/// Heading of a column, and the JSON pointer (RFC 6901) to the member that it shows.
pub(crate) type Column = (&'static str, &'static str);

/// A table with a heading for every column.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with one row for each of `objects`.
    pub(crate) fn new<'a>(
        title: impl Into<String>,
        columns: &[Column],
        objects: impl IntoIterator<Item = &'a Value>,
    ) -> Self {
        let row = |object: &Value| columns.iter().map(|(_, pointer)| cell(object.pointer(pointer))).collect();
        let head = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        Self { title: title.into(), head, rows: objects.into_iter().map(row).collect() }
    }

    /// Renders the table as text. Columns of numbers are aligned to the right.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<&Vec<String>> = std::iter::once(&self.head).chain(&self.rows).collect();
        let column = |n: usize| lines.iter().filter_map(move |line| line.get(n));
        let widths: Vec<usize> =
            (0..self.head.len()).map(|n| column(n).map(|text| text.chars().count()).max().unwrap_or(0)).collect();
        let is_number = |text: &String| text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let numeric: Vec<bool> = (0..self.head.len()).map(|n| column(n).skip(1).all(is_number)).collect();
        let mut text = format!("{}\n", self.title);
        for line in lines {
            let mut row = String::new();
            for ((cell, &width), numeric) in line.iter().zip(&widths).zip(&numeric) {
                let _ = if *numeric { write!(row, "  {cell:>width$}") } else { write!(row, "  {cell:<width$}") };
            }
            text += row.trim_end();
            text.push('\n');
        }
        text
    }

    /// Renders the table as HTML.
    pub(crate) fn html(&self) -> String {
        let mut html = String::new();
        if !self.title.is_empty() {
            let _ = writeln!(html, "<h2>{}</h2>", escape(&self.title));
        }
        html += "<table>\n<tr>";
        self.head.iter().for_each(|text| html += &format!("<th>{}</th>", escape(text)));
        html += "</tr>\n";
        for row in &self.rows {
            html += "<tr>";
            for text in row {
                let class = if matches!(text.as_str(), "held" | "missed") {
                    format!(" class=\"{text}\"")
                } else {
                    String::new()
                };
                let _ = write!(html, "<td{class}>{}</td>", escape(text));
            }
            html += "</tr>\n";
        }
        html + "</table>\n"
    }
}

/// Renders a member. A boolean says whether a limit was held; an object counts occurrences by name.
fn cell(member: Option<&Value>) -> String {
    match member {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::Bool(held)) => if *held { "held" } else { "missed" }.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(occurrences)) if occurrences.is_empty() => "none".to_owned(),
        Some(Value::Object(occurrences)) => counts(occurrences),
        Some(other) => other.as_f64().map_or_else(|| other.to_string(), number),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn table_text_is_aligned_and_renders_every_kind_of_member() {
        let objects = [
            json!({ "name": "a", "figures": { "p99": 1234.5 }, "errors": {}, "holds": true }),
            json!({ "name": "longer", "figures": {}, "errors": { "503": 3 }, "holds": false }),
        ];
        let columns = [("", "/name"), ("p99 ms", "/figures/p99"), ("errors", "/errors"), ("", "/holds")];
        let table = Table::new("title", &columns, &objects);
        let lines = [
            "title",
            "          p99 ms  errors",
            "  a        1,234  none     held",
            "  longer       -  3 × 503  missed",
        ];
        assert_eq!(table.text().lines().collect::<Vec<_>>(), lines);
    }
}

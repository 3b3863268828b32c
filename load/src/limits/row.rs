//! A measured figure and its limit.

use serde_json::{Value, json};

use crate::figures::Figures;
use crate::format::{counts, number};

/// A row of the table.
#[derive(Clone, Debug)]
pub(super) struct LimitRow {
    pub(super) name: String,
    /// `None` if it could not be measured; the note has the reason.
    pub(super) measured: Option<f64>,
    pub(super) limit: Option<f64>,
    pub(super) unit: &'static str,
    pub(super) note: String,
    /// `true` if requests failed; the limit then counts as exceeded.
    pub(super) failed: bool,
}

impl LimitRow {
    pub(super) fn new(
        name: impl Into<String>,
        measured: impl Into<Option<f64>>,
        limit: impl Into<Option<f64>>,
        unit: &'static str,
    ) -> Self {
        let measured = measured.into();
        let limit = limit.into();
        Self { name: name.into(), measured, limit, unit, note: String::new(), failed: false }
    }

    pub(super) fn with(self, note: String) -> Self {
        Self { note, ..self }
    }

    pub(super) fn not_measured(name: impl Into<String>, cause: String) -> Self {
        Self { name: name.into(), measured: None, limit: None, unit: "", note: cause, failed: false }
    }

    /// Marks the row as failed if requests of the run failed, and adds the causes to the note.
    pub(super) fn of(self, figures: &Figures) -> Self {
        if !figures.failed() {
            return self;
        }
        let causes = counts(figures.errors());
        Self { note: format!("{}; failed requests: {causes}", self.note), failed: true, ..self }
    }

    pub(super) fn verdict(&self) -> &'static str {
        match (self.measured, self.limit) {
            (Some(_), _) if self.failed => "missed",
            (Some(measured), Some(limit)) if measured <= limit => "held",
            (Some(_), Some(_)) => "missed",
            (Some(_), None) => "no limit",
            (None, _) => "not measured",
        }
    }

    /// Returns the figure for the progress of the command.
    pub(super) fn text(&self) -> String {
        let measured = self.measured.map_or_else(|| "-".to_owned(), number);
        format!("{}: {measured} {}, {}", self.name, self.unit, self.verdict())
    }

    pub(super) fn json(&self) -> Value {
        json!({ "name": self.name, "measured": self.measured, "limit": self.limit, "unit": self.unit,
            "verdict": self.verdict(), "note": self.note })
    }
}

/// Returns the number of rows whose limit was exceeded, and of rows that could not be measured.
pub(super) fn count_missed(rows: &[LimitRow]) -> (usize, usize) {
    let of = |verdict| rows.iter().filter(|row| row.verdict() == verdict).count();
    (of("missed"), of("not measured"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_verdict_is_held_up_to_its_limit_and_missed_above() {
        assert_eq!(LimitRow::new("a", 10.0, 10.0, "ms").verdict(), "held");
        assert_eq!(LimitRow::new("a", 10.01, 10.0, "ms").verdict(), "missed");
        assert_eq!(LimitRow::new("a", Option::<f64>::None, 10.0, "ms").verdict(), "not measured");
        assert_eq!(LimitRow::new("a", 10.0, None::<f64>, "ms").verdict(), "no limit");
        let rows = [
            LimitRow::new("a", 2.0, 1.0, ""),
            LimitRow::new("b", 1.0, 1.0, ""),
            LimitRow::not_measured("c", "why".to_owned()),
        ];
        assert_eq!(count_missed(&rows), (1, 1));
        assert_eq!((&rows[2].json()["verdict"], &rows[2].json()["note"]), (&json!("not measured"), &json!("why")));
    }

    #[test]
    fn row_with_errors_is_missed_regardless_of_its_value() {
        let mut figures = Figures::of_counts(&[1]);
        figures.classes[0].errors = [("503".to_owned(), 4)].into();
        let row = LimitRow::new("a", 1.0, 10.0, "ms").of(&figures);
        assert_eq!(row.verdict(), "missed");
        assert!(row.note.contains("4 × 503"), "{}", row.note);
    }
}

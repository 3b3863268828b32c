//! Findings of the check of a store, one line each.

/// Maximum number of finding lines that are kept. In a store that is damaged throughout, more lines would not help.
const MAX_FINDING_LINES: usize = 200;

/// The result of checking a store: its defects (the findings), and notes on what could not be checked.
#[derive(Default)]
pub struct Findings {
    lines: Vec<String>,
    more: usize,
    doubtful: usize,
    notes: Vec<String>,
}

impl Findings {
    /// Adds a finding.
    pub fn add(&mut self, line: impl Into<String>) {
        if self.lines.len() < MAX_FINDING_LINES {
            self.lines.push(line.into());
        } else {
            self.more += 1;
        }
    }

    /// Adds a finding that may also have a harmless cause.
    pub fn add_doubtful(&mut self, line: impl Into<String>) {
        self.doubtful += 1;
        self.add(line);
    }

    /// Adds a note, which is not a finding: something that could not be checked.
    pub fn note(&mut self, line: impl Into<String>) {
        if self.notes.len() < MAX_FINDING_LINES {
            self.notes.push(format!("note: {}", line.into()));
        }
    }

    /// Returns the findings, a line with the number of omitted ones, and the notes.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("and {} more findings", self.more));
        self.lines.iter().cloned().chain(more).chain(self.notes.iter().cloned())
    }

    /// Returns the number of findings, including the omitted ones.
    pub fn count(&self) -> usize {
        self.lines.len() + self.more
    }

    /// Returns the number of findings that cannot have a harmless cause.
    pub fn count_certain(&self) -> usize {
        self.count() - self.doubtful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_exclude_notes_and_count_doubtful_ones_apart() {
        let mut findings = Findings::default();
        findings.note("a list");
        assert_eq!((findings.count(), findings.count_certain()), (0, 0));
        (0..MAX_FINDING_LINES + 2).for_each(|n| findings.add(format!("line {n}")));
        findings.add_doubtful("perhaps");
        assert_eq!((findings.count(), findings.count_certain()), (MAX_FINDING_LINES + 3, MAX_FINDING_LINES + 2));
        let lines: Vec<String> = findings.lines().collect();
        assert_eq!(lines[MAX_FINDING_LINES..], ["and 3 more findings".to_owned(), "note: a list".to_owned()]);
    }
}

//! What was found wrong with a store, a line each.

/// Lines that are kept; a store that is broken throughout says so often enough with these.
const MOST: usize = 200;

/// What is wrong with a store, and what else there is to say of it.
#[derive(Default)]
pub struct Findings {
    lines: Vec<String>,
    more: usize,
    doubtful: usize,
    notes: Vec<String>,
}

impl Findings {
    /// Adds a line.
    pub fn add(&mut self, line: impl Into<String>) {
        if self.lines.len() < MOST {
            self.lines.push(line.into());
        } else {
            self.more += 1;
        }
    }

    /// Adds a line about what has a harmless cause, too.
    pub fn add_doubtful(&mut self, line: impl Into<String>) {
        self.doubtful += 1;
        self.add(line);
    }

    /// Adds a line that is no finding: what could not be looked at.
    pub fn note(&mut self, line: impl Into<String>) {
        if self.notes.len() < MOST {
            self.notes.push(format!("note: {}", line.into()));
        }
    }

    /// The lines, one that says how many there would be besides, and the notes.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("and {} more", self.more));
        self.lines.iter().cloned().chain(more).chain(self.notes.iter().cloned())
    }

    /// How many findings there are.
    pub fn count(&self) -> usize {
        self.lines.len() + self.more
    }

    /// How many of them have no harmless cause.
    pub fn count_certain(&self) -> usize {
        self.count() - self.doubtful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_told_and_not_counted_and_what_may_be_harmless_is_counted_apart() {
        let mut findings = Findings::default();
        findings.note("a list");
        assert_eq!((findings.count(), findings.count_certain()), (0, 0));
        (0..MOST + 2).for_each(|n| findings.add(format!("line {n}")));
        findings.add_doubtful("perhaps");
        assert_eq!((findings.count(), findings.count_certain()), (MOST + 3, MOST + 2));
        let lines: Vec<String> = findings.lines().collect();
        assert_eq!(lines[MOST..], ["and 3 more".to_owned(), "note: a list".to_owned()]);
    }
}

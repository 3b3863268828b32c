//! What was found wrong with a store, a line each.

/// Lines that are kept; a store that is broken throughout says so often enough with these.
const MOST: usize = 200;

/// What is wrong with a store.
#[derive(Default)]
pub struct Findings {
    lines: Vec<String>,
    more: usize,
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

    /// The lines, and one that says how many there would be besides.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let more = (self.more > 0).then(|| format!("and {} more", self.more));
        self.lines.iter().cloned().chain(more)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lines.len() + self.more
    }
}

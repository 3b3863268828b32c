//! Path patterns: rules whose path ends in `*` or has a segment `+`, compiled into a trie of segments.
//!
//! If several patterns match, these criteria are applied in order until one of them selects the deciding pattern: (a)
//! its first wildcard (`+` or final `*`) comes later, (b) it has no final `*`, (c) it has fewer `+`, (d) it is longer,
//! (e) its text is lexicographically greater. This order is total, so patterns are ranked at compile time and a lookup
//! keeps the best rank. A lookup visits each node of the trie at most once, for any set of patterns.

use std::cmp::Ordering;

/// `true` if the path of a rule is a pattern. Other paths are compared as text.
pub(super) fn is_pattern(path: &str) -> bool {
    path.ends_with('*') || path.split('/').any(|segment| segment == "+")
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Precedence<'a> {
    first_wild: usize,
    is_prefix: bool,
    pluses: usize,
    text: &'a str,
}

impl<'a> Precedence<'a> {
    pub(super) fn of(path: &'a str) -> Self {
        let text = path.strip_suffix('*').unwrap_or(path);
        let mut offset = 0;
        let mut first = text.len();
        let mut pluses = 0;
        for segment in text.split('/') {
            if segment == "+" {
                first = first.min(offset);
                pluses += 1;
            }
            offset += segment.len() + 1;
        }
        Self { first_wild: first, is_prefix: text.len() < path.len(), pluses, text }
    }

    /// Returns the reason why the pattern `other` takes precedence over this one.
    pub(super) fn reason_for_lower_rank(&self, other: &Self) -> &'static str {
        if self.first_wild != other.first_wild {
            "its first wildcard comes earlier"
        } else if self.is_prefix != other.is_prefix {
            "it ends in '*'"
        } else if self.pluses != other.pluses {
            "it has more '+'"
        } else if self.text.len() != other.text.len() {
            "it is shorter"
        } else {
            "its path sorts before that of the deciding rule"
        }
    }
}

impl Ord for Precedence<'_> {
    /// Compares two patterns that match the same path; the greater one decides.
    fn cmp(&self, other: &Self) -> Ordering {
        self.first_wild
            .cmp(&other.first_wild)
            .then(other.is_prefix.cmp(&self.is_prefix))
            .then(other.pluses.cmp(&self.pluses))
            .then(self.text.len().cmp(&other.text.len()))
            .then(self.text.cmp(other.text))
    }
}

impl PartialOrd for Precedence<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A compiled set of patterns, each with a value.
pub(super) struct PathPatterns<T> {
    nodes: Vec<PatternNode>,
    /// The values of the patterns by rank, highest precedence first.
    values: Vec<T>,
}

#[derive(Default)]
struct PatternNode {
    /// Child nodes by literal segment, sorted.
    literals: Vec<(Box<str>, usize)>,
    plus: Option<usize>,
    /// Rank of the pattern that ends at this node.
    end: Option<usize>,
    /// Ranks of the patterns that end with `*` after a prefix of the next segment, sorted by prefix.
    prefixes: Vec<(Box<[u8]>, usize)>,
    /// The different lengths of the prefixes in `prefixes`, longest first.
    lengths: Vec<usize>,
}

impl<T: Clone> PathPatterns<T> {
    /// Compiles patterns, no two of which have the same path.
    pub(super) fn compile(patterns: &[(&str, &T)]) -> Self {
        let mut order: Vec<_> = patterns.iter().map(|(path, value)| (Precedence::of(path), *path, *value)).collect();
        order.sort_unstable_by(|(a, ..), (b, ..)| b.cmp(a));
        let mut nodes = vec![PatternNode::default()];
        for (rank, (_, path, _)) in order.iter().enumerate() {
            insert_pattern(&mut nodes, path, rank);
        }
        for node in &mut nodes {
            node.prefixes.sort();
            node.lengths = node.prefixes.iter().map(|(prefix, _)| prefix.len()).collect();
            node.lengths.sort_unstable_by(|a, b| b.cmp(a));
            node.lengths.dedup();
        }
        Self { nodes, values: order.into_iter().map(|(.., value)| value.clone()).collect() }
    }

    /// Returns the value of the pattern that decides on `path`. If `list` is `true`, a final `+` also matches the empty
    /// last segment.
    pub(super) fn find(&self, path: &str, list: bool) -> Option<&T> {
        let mut best = usize::MAX;
        self.find_best_rank(0, Some(path), list, &mut best);
        self.values.get(best)
    }

    fn find_best_rank(&self, at: usize, rest: Option<&str>, list: bool, best: &mut usize) {
        let node = &self.nodes[at];
        let Some(rest) = rest else {
            *best = node.end.map_or(*best, |rank| rank.min(*best));
            return;
        };
        let (segment, tail) = rest.split_once('/').map_or((rest, None), |(segment, tail)| (segment, Some(tail)));
        if let Some(rank) = node.longest_prefix(segment.as_bytes()) {
            *best = rank.min(*best);
        }
        if let Ok(found) = node.literal_position(segment) {
            self.find_best_rank(node.literals[found].1, tail, list, best);
        }
        if let Some(next) = node.plus
            && (!segment.is_empty() || (list && tail.is_none()))
        {
            self.find_best_rank(next, tail, list, best);
        }
    }
}

impl PatternNode {
    /// Returns the rank of the pattern with the longest matching prefix. It takes precedence over the other patterns in
    /// `prefixes` by criterion (a) or (d) of this module.
    fn longest_prefix(&self, segment: &[u8]) -> Option<usize> {
        self.lengths.iter().find_map(|length| {
            let start = segment.get(..*length)?;
            let found = self.prefixes.binary_search_by(|(prefix, _)| (**prefix).cmp(start)).ok()?;
            Some(self.prefixes[found].1)
        })
    }

    fn literal_position(&self, segment: &str) -> Result<usize, usize> {
        self.literals.binary_search_by(|(text, _)| (**text).cmp(segment))
    }
}

fn insert_pattern(nodes: &mut Vec<PatternNode>, path: &str, rank: usize) {
    let mut node = 0;
    let mut segments = path.split('/').peekable();
    while let Some(segment) = segments.next() {
        if let (Some(prefix), true) = (segment.strip_suffix('*'), segments.peek().is_none()) {
            nodes[node].prefixes.push((prefix.as_bytes().into(), rank));
            return;
        }
        let fresh = nodes.len();
        let next = match segment {
            "+" => *nodes[node].plus.get_or_insert(fresh),
            text => match nodes[node].literal_position(text) {
                Ok(found) => nodes[node].literals[found].1,
                Err(index) => {
                    nodes[node].literals.insert(index, (text.into(), fresh));
                    fresh
                }
            },
        };
        if next == fresh {
            nodes.push(PatternNode::default());
        }
        node = next;
    }
    nodes[node].end = Some(rank);
}

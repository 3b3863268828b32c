//! Case-sensitive patterns in which `*` matches any number of characters, including none and including dots. Patterns
//! are parsed once and matched against every name of every request.

/// A pattern with at least one `*`.
#[derive(Clone, Debug)]
pub struct Glob {
    /// Text of the pattern, without adjacent `*`.
    pattern: Box<str>,
    /// Byte offset of the first `*`; `last` is the byte offset of the last one.
    first: usize,
    last: usize,
    /// Minimum length of a match: the number of bytes other than `*`.
    min_length: usize,
}

impl Glob {
    /// Parses a pattern; `None` for a text without `*`.
    pub fn new(text: &str) -> Option<Self> {
        let mut pattern = String::with_capacity(text.len());
        for c in text.chars() {
            if c != '*' || !pattern.ends_with('*') {
                pattern.push(c);
            }
        }
        let first = pattern.find('*')?;
        let last = pattern.rfind('*')?;
        let min_length = pattern.len() - pattern.matches('*').count();
        Some(Self { pattern: pattern.into(), first, last, min_length })
    }

    /// `true` if the pattern matches the whole text. Takes linear time: using the leftmost match of each part between
    /// two `*` suffices, so there is no backtracking.
    pub fn matches(&self, text: &str) -> bool {
        if text.len() < self.min_length {
            return false;
        }
        let Some(text) = text.strip_prefix(&self.pattern[..self.first]) else { return false };
        let Some(mut text) = text.strip_suffix(&self.pattern[self.last + 1..]) else { return false };
        if self.first == self.last {
            return true;
        }
        for piece in self.pattern[self.first + 1..self.last].split('*') {
            let Some(at) = text.find(piece) else { return false };
            text = &text[at + piece.len()..];
        }
        true
    }
}

/// A list of patterns and plain texts, any of which may match.
#[derive(Clone, Debug, Default)]
pub struct PatternList {
    /// Entries without `*`, in sorted order.
    plain: Box<[Box<str>]>,
    globs: Box<[Glob]>,
}

impl PatternList {
    /// Parses a list of patterns and plain texts.
    pub fn new<T: AsRef<str>>(list: &[T]) -> Self {
        let texts = || list.iter().map(AsRef::as_ref);
        let mut plain: Vec<Box<str>> = texts().filter(|text| !text.contains('*')).map(Box::from).collect();
        plain.sort_unstable();
        Self { plain: plain.into(), globs: texts().filter_map(Glob::new).collect() }
    }

    /// `true` if an entry equals or matches `text`.
    pub fn matches(&self, text: &str) -> bool {
        self.plain.binary_search_by(|plain| (**plain).cmp(text)).is_ok() || self.any_glob_matches(text)
    }

    /// `true` if an entry with a `*` matches `text`.
    pub fn any_glob_matches(&self, text: &str) -> bool {
        self.globs.iter().any(|glob| glob.matches(text))
    }

    /// Returns the number of entries with a `*`; matching each of them scans the whole text.
    pub fn glob_count(&self) -> usize {
        self.globs.len()
    }

    /// `true` if the list is empty, so that nothing matches.
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.globs.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn glob(pattern: &str, text: &str) -> bool {
        PatternList::new(&[pattern]).matches(text)
    }

    /// Reference implementation of pattern matching; exponential, so only for small inputs.
    pub(crate) fn reference_match(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|n| reference_match(rest, &text[n..])),
            Some((c, rest)) => text.first() == Some(c) && reference_match(rest, &text[1..]),
        }
    }

    #[test]
    fn glob_star_matches_any_run() {
        for (pattern, text, matches) in [
            ("foo", "foo", true),
            ("foo", "Foo", false),
            ("*", "", true),
            ("**", "", true),
            ("*.foo", "a.b.foo", true),
            ("*.foo", ".foo", true),
            ("*.foo", "foo", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("x*x.foo", "xylophone.files.pyrex.foo", true),
            ("*ab*ab*", "ab", false),
            ("*ü*", "aüb", true),
        ] {
            assert_eq!(glob(pattern, text), matches, "{pattern} on {text}");
        }
    }

    #[test]
    fn glob_takes_linear_time_on_long_inputs() {
        let pattern = "a*".repeat(50_000);
        let text = "a".repeat(100_000);
        assert!(!glob(&format!("{pattern}b"), &text));
        assert!(!glob(&format!("{pattern}b*"), &text));
        assert!(glob(&pattern, &text));
    }

    proptest! {
        #[test]
        fn glob_matches_like_the_reference(pattern in "[ab.*]{0,7}", text in "[ab.*]{0,9}") {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            prop_assert_eq!(glob(&pattern, &text), reference_match(&chars(&pattern), &chars(&text)));
        }

        #[test]
        fn pattern_list_matches_if_any_pattern_does(list in proptest::collection::vec("[ab*]{0,3}", 0..4), text in "[ab*]{0,4}") {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            let any = list.iter().any(|pattern| reference_match(&chars(pattern), &chars(&text)));
            prop_assert_eq!(PatternList::new(&list).matches(&text), any);
        }

        #[test]
        fn glob_of_any_text_does_not_panic(pattern in "\\PC{0,20}", text in "\\PC{0,20}") {
            let _ = glob(&pattern, &text);
        }
    }
}

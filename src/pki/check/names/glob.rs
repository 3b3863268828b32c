//! The one wildcard matcher of the rules.

/// Whether `text` matches `pattern`, in which `*` stands for any run of characters (also none, also
/// across dots) and every other character for itself, case-sensitively.
///
/// Linear in both lengths: between the first and the last piece the leftmost match of each piece is
/// always good enough, so nothing is tried twice.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(text) = text.strip_prefix(first) else { return false };
    let Some(mut text) = text.strip_suffix(last) else { return false };
    for piece in middle.split('*').filter(|piece| !piece.is_empty()) {
        let Some(at) = text.find(piece) else { return false };
        text = &text[at + piece.len()..];
    }
    true
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition, written down: exponential, fine for small inputs.
    pub(in crate::pki::check::names) fn naive(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|n| naive(rest, &text[n..])),
            Some((c, rest)) => text.first() == Some(c) && naive(rest, &text[1..]),
        }
    }

    #[test]
    fn stars_match_any_run() {
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
    fn long_inputs_stay_quick() {
        let pattern = "a*".repeat(50_000);
        assert!(!glob(&format!("{pattern}b"), &"a".repeat(100_000)));
        assert!(glob(&pattern, &"a".repeat(100_000)));
    }

    proptest! {
        #[test]
        fn equals_the_definition(pattern in "[ab.*]{0,7}", text in "[ab.*]{0,9}") {
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            prop_assert_eq!(glob(&pattern, &text), naive(&chars(&pattern), &chars(&text)));
        }

        #[test]
        fn never_panics(pattern in "\\PC{0,20}", text in "\\PC{0,20}") {
            let _ = glob(&pattern, &text);
        }
    }
}

//! Texts of reports: numbers, and escaping for HTML.

use std::fmt::Display;

/// Formats a number with thousands separators and significant decimals.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let groups: Vec<&str> = {
        let first = digits.len() % 3;
        let (head, tail) = digits.split_at(first);
        let tail = (0..tail.len() / 3).map(|n| &tail[3 * n..3 * n + 3]);
        std::iter::once(head).filter(|head| !head.is_empty()).chain(tail).collect()
    };
    let rest = rest.trim_end_matches('0');
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{rest}", groups.join(","))
}

/// Lists how often each response or error occurred.
pub(crate) fn counts<'a, N: Display + 'a>(of: impl IntoIterator<Item = (&'a String, &'a N)>) -> String {
    let counts: Vec<String> = of.into_iter().map(|(cause, count)| format!("{count} × {cause}")).collect();
    counts.join(", ")
}

/// Escapes a text for HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rendered_with_three_digits_and_separators() {
        let shown = [0.0, 0.012_34, 0.5, 1.0, 9.876, 123.4, 1_000.0, 21_300.4, 1_234_567.0, -2_500.0];
        let texts = ["0", "0.0123", "0.5", "1", "9.88", "123", "1,000", "21,300", "1,234,567", "-2,500"];
        assert_eq!(shown.map(number), texts.map(str::to_owned));
    }
}

//! Finds claims in a token, and compares them with the values that a role requires.

use serde_json::{Number, Value};

use crate::auth::login::verifier::VerifiedClaims;
use crate::auth::names::matches_glob;

/// Finds a claim by name, or by JSON pointer (RFC 6901) if the name begins with `/`.
pub(super) fn find_claim<'c>(claims: &'c VerifiedClaims, name: &str) -> Option<&'c Value> {
    let Some(path) = name.strip_prefix('/') else { return claims.get(name) };
    let end = path.find('/').unwrap_or(path.len());
    let (first, rest) = path.split_at(end);
    claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

pub(super) fn claim_values(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        value => std::slice::from_ref(value),
    }
}

/// `true` if one of the claim's values equals one of the values that the role requires. If `globs` is `true`, the
/// required values are patterns. Values of different types are never equal, and a blank text never matches.
pub(super) fn matches_bound(bound: &Value, claim: &Value, globs: bool) -> bool {
    claim_values(bound).iter().any(|bound| claim_values(claim).iter().any(|value| equals_bound(bound, value, globs)))
}

fn equals_bound(bound: &Value, value: &Value, globs: bool) -> bool {
    match (bound, value) {
        (Value::String(_), Value::String(text)) if text.trim().is_empty() => false,
        (Value::String(pattern), Value::String(text)) if globs => matches_glob(pattern, text),
        (Value::String(bound), Value::String(text)) => bound == text,
        (Value::Number(bound), Value::Number(number)) if !globs => equals_number(bound, number),
        (Value::Bool(bound), Value::Bool(value)) => !globs && bound == value,
        _ => false,
    }
}

/// Compares numbers by value: 1 equals 1.0. A comparison with a floating-point number is `false` from 2^53 on, where
/// such numbers are not exact.
fn equals_number(bound: &Number, number: &Number) -> bool {
    const EXACT_INTEGER_LIMIT: f64 = 9_007_199_254_740_992.0;
    let exact = |number: &Number| number.as_f64().filter(|number| number.abs() < EXACT_INTEGER_LIMIT);
    match (bound.is_f64(), number.is_f64()) {
        (false, false) => bound == number,
        _ => exact(bound).is_some_and(|bound| exact(number) == Some(bound)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn glob_star_matches_any_text() {
        for (pattern, text) in [
            ("a", "a"),
            ("*", "a"),
            ("a*", "a"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "ac"),
            ("a*b*c", "axxbyybzzc"),
            ("repo:me/*:ref:refs/heads/main", "repo:me/app:ref:refs/heads/main"),
            ("**", "a"),
            ("é*", "éa"),
        ] {
            assert!(matches_glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a", "A"),
            ("a", "ab"),
            ("a*c", "abd"),
            ("ab*ba", "aba"),
            ("a*b*c", "acb"),
            ("*x*", "abc"),
            ("a?c", "abc"),
        ] {
            assert!(!matches_glob(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn claim_values_of_different_types_are_not_equal() {
        for (bound, claim) in [
            (json!("a"), json!("a")),
            (json!(["a", "b"]), json!("b")),
            (json!("b"), json!(["a", "b"])),
            (json!(7), json!(7)),
            (json!(7), json!(7.0)),
            (json!(true), json!([false, true])),
        ] {
            assert!(matches_bound(&bound, &claim, false), "{bound} {claim}");
        }
        let others = [
            (json!("7"), json!(7)),
            (json!(7), json!("7")),
            (json!(7), json!(7.5)),
            (json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992_u64)),
            (json!("true"), json!(true)),
            (json!(1), json!(true)),
            (json!(" "), json!(" ")),
            (json!(""), json!("")),
            (json!("null"), json!(null)),
            (json!("a"), json!({"a": "a"})),
            (json!("a"), json!([["a"]])),
            (json!([]), json!([])),
            (json!("a*"), json!("ab")),
        ];
        for (bound, claim) in others {
            assert!(!matches_bound(&bound, &claim, false), "{bound} {claim}");
        }
        for claim in [json!(""), json!(" "), json!(7), json!(true), json!(null), json!([]), json!({"a": 1})] {
            assert!(!matches_bound(&json!("*"), &claim, true), "{claim}");
        }
    }
}

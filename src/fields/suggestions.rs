//! Suggests a known name for a misspelt name, for error messages.

/// Returns the known name that is closest to a misspelt one; `None` if none is close. Letter case and separators are
/// ignored, and up to a quarter of the characters may differ.
pub fn closest_name<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = normalize(name);
    let limit = plain.len() / 4;
    let similar = known.iter().filter_map(|known| {
        let other = self::normalize(known);
        // The difference in length is a cheap lower bound of the distance.
        let near = plain.len().abs_diff(other.len()) <= limit;
        near.then(|| (strsim::osa_distance(&plain, &other), *known)).filter(|(distance, _)| *distance <= limit)
    });
    similar.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// Returns the name in lower case and without separators.
fn normalize(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-' | '.' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_name_gives_the_closest_known_one() {
        const KNOWN: &[&str] = &["ttl", "max_ttl", "key_type", "allowed_domains", "bound_cidrs"];
        for (name, meant) in [
            ("keytype", Some("key_type")),
            ("keyType", Some("key_type")),
            ("KEY-TYPE", Some("key_type")),
            ("key_tyep", Some("key_type")),
            ("alowed_domain", Some("allowed_domains")),
            ("maxttl", Some("max_ttl")),
            ("TTL", Some("ttl")),
            ("tt", None),
            ("bogus", None),
            ("", None),
            ("\u{1F600}\u{1F600}", None),
        ] {
            assert_eq!(closest_name(name, KNOWN), meant, "{name}");
        }
        assert_eq!(closest_name("ttl_", &[]), None);
    }
}

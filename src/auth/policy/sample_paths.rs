//! Decides if a rule grants anything at or below a mount.
//!
//! A rule is tried on sample paths that it matches, at or below the mount. Segments that the rule leaves open are
//! filled with a text that no rule contains. For a prefix rule such as `secret/*`, there are samples of several
//! lengths, because other rules may deny the shorter ones. The rule grants something if a sample is allowed.

/// A segment that matches only wildcards; no request path contains it.
const WILDCARD_SEGMENT: &str = "\0";

/// Returns paths at or below `mount` that a rule matches; of up to `max_segments` segments for a prefix rule.
pub(super) fn sample_paths(rule: &str, mount: &str, max_segments: usize) -> impl Iterator<Item = String> {
    let first = sample_path(rule, mount);
    let max = if rule.ends_with('*') { max_segments } else { 0 };
    std::iter::successors(first, move |path| {
        (path.split('/').count() < max).then(|| format!("{path}/{WILDCARD_SEGMENT}"))
    })
}

/// Returns a path at or below `mount` (which ends in `/`) that a rule matches; `None` if there is none.
fn sample_path(rule: &str, mount: &str) -> Option<String> {
    let mount = mount.trim_end_matches('/');
    let mut rest = Some(rule);
    for segment in mount.split('/') {
        let (first, behind) = split_first_segment(rest?);
        match first.strip_suffix('*').filter(|_| behind.is_none()) {
            // A prefix of the mount's path: the rule matches the whole mount.
            Some(prefix) => return segment.starts_with(prefix).then(|| format!("{mount}/{WILDCARD_SEGMENT}")),
            None if first == "+" || first == segment => rest = behind,
            None => return None,
        }
    }
    let Some(rest) = rest else { return Some(mount.to_owned()) };
    let below = rest.split('/').map(|segment| if segment == "+" { WILDCARD_SEGMENT } else { segment });
    let below = below.collect::<Vec<_>>().join("/");
    let below = below.strip_suffix('*').map(|prefix| format!("{prefix}{WILDCARD_SEGMENT}")).unwrap_or(below);
    Some(format!("{mount}/{below}"))
}

fn split_first_segment(path: &str) -> (&str, Option<&str>) {
    path.split_once('/').map_or((path, None), |(first, behind)| (first, Some(behind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_reaches_mounts_at_above_or_below_its_path() {
        for (rule, mount, path) in [
            ("pki/issue/web", "pki/", Some("pki/issue/web")),
            ("pki", "pki/", Some("pki")),
            ("pki/", "pki/", Some("pki/")),
            ("pki/*", "pki/", Some("pki/\0")),
            ("pki/issue/*", "pki/", Some("pki/issue/\0")),
            ("p*", "pki/", Some("pki/\0")),
            ("*", "team/ca/", Some("team/ca/\0")),
            ("team/*", "team/ca/", Some("team/ca/\0")),
            ("team/c*", "team/ca/", Some("team/ca/\0")),
            ("+/issue/+", "pki/", Some("pki/issue/\0")),
            ("+", "pki/", Some("pki")),
            ("+/+/x", "team/ca/", Some("team/ca/x")),
            ("team", "team/ca/", None),
            ("team/+/x", "team/ca/b/", None),
            ("pki2/*", "pki/", None),
            ("q*", "pki/", None),
            ("team/d*", "team/ca/", None),
        ] {
            assert_eq!(sample_path(rule, mount).as_deref(), path, "{rule} {mount}");
        }
    }
}

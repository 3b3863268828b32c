//! Sample paths, with which [`Acl::grants_below_mount`](super::Acl::grants_below_mount) finds out if a caller has any right at or below a
//! mount.
//!
//! The samples of a rule are paths at or below the mount that the rule matches. A fixed text that no rule contains
//! stands for wildcards. A rule that ends in `*`, such as `secret/*`, has samples of several lengths, because other
//! rules may deny the shorter ones. The rule grants something if one of its samples is allowed.

/// A path segment that only wildcards match; no request path contains it.
const WILDCARD_SEGMENT: &str = "\0";

/// Returns paths at or below `mount` that `rule` matches. If the rule ends in `*`, there are samples of up to
/// `max_segments` segments.
pub(super) fn sample_paths(rule: &str, mount: &str, max_segments: usize) -> impl Iterator<Item = String> {
    let first = sample_path(rule, mount);
    let max = if rule.ends_with('*') { max_segments } else { 0 };
    std::iter::successors(first, move |path| {
        (path.split('/').count() < max).then(|| format!("{path}/{WILDCARD_SEGMENT}"))
    })
}

/// Returns a path at or below `mount` (which ends in `/`) that `rule` matches; `None` if the rule matches no such path.
fn sample_path(rule: &str, mount: &str) -> Option<String> {
    let mount = mount.trim_end_matches('/');
    let mut rest = Some(rule);
    for segment in mount.split('/') {
        let (first, behind) = split_first_segment(rest?);
        match first.strip_suffix('*').filter(|_| behind.is_none()) {
            // The rule is a prefix of the mount's path followed by `*`, so it matches the whole mount.
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

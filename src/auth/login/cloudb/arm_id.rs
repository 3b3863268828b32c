//! Parsed ids of the cloud provider's resources.
//!
//! An id from a client is never copied into a URL or searched as text: comparisons and URLs use the parsed segments.

use std::fmt;

use crate::error::{Error, Result};

/// Maximum length of a resource id in bytes.
const MAX_ARM_ID_BYTES: usize = 2048;
/// Maximum number of type and name pairs in a resource id, such as `virtualMachines/N`.
const MAX_TYPE_NAME_PAIRS: usize = 8;

/// The id of a resource in a resource group, such as
/// `/subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachines/N`.
#[derive(Clone, Debug)]
pub(super) struct ArmId {
    pub(super) subscription: String,
    pub(super) group: String,
    /// Namespace of the resource type, such as `Microsoft.Compute`.
    pub(super) namespace: String,
    /// Pairs of type and name, the outermost resource first; at least one pair.
    pairs: Vec<(String, String)>,
}

impl ArmId {
    /// Builds the id of a resource that is not nested in another resource.
    pub(super) fn of(subscription: &str, group: &str, namespace: &str, kind: &str, name: &str) -> Self {
        Self {
            subscription: subscription.to_owned(),
            group: group.to_owned(),
            namespace: namespace.to_owned(),
            pairs: vec![(kind.to_owned(), name.to_owned())],
        }
    }

    /// Parses a resource id. The fixed words, such as `subscriptions`, are case-insensitive; a trailing `/` is
    /// rejected.
    ///
    /// # Errors
    /// `Invalid` with the text `invalid resource_id`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        Self::parse_segments(text).ok_or_else(|| Error::invalid("invalid resource_id"))
    }

    fn parse_segments(text: &str) -> Option<Self> {
        if text.len() > MAX_ARM_ID_BYTES {
            return None;
        }
        let mut segments = text.strip_prefix('/')?.split('/');
        let subscription = segment_after("subscriptions", &mut segments)?;
        let group = segment_after("resourceGroups", &mut segments)?;
        let namespace = segment_after("providers", &mut segments)?;
        let mut pairs = Vec::new();
        while let Some(kind) = segments.next() {
            let name = segments.next()?;
            // A second `providers` segment denotes an extension resource, which has no identity.
            if pairs.len() == MAX_TYPE_NAME_PAIRS
                || !is_identifier(kind)
                || kind.eq_ignore_ascii_case("providers")
                || !is_resource_name(name)
            {
                return None;
            }
            pairs.push((kind.to_owned(), name.to_owned()));
        }
        let is_good =
            is_identifier(subscription) && is_resource_name(group) && is_identifier(namespace) && !pairs.is_empty();
        is_good.then(|| Self {
            subscription: subscription.to_owned(),
            group: group.to_owned(),
            namespace: namespace.to_owned(),
            pairs,
        })
    }

    pub(super) fn is_in_subscription(&self, subscription: &str) -> bool {
        self.subscription.eq_ignore_ascii_case(subscription)
    }

    pub(super) fn is_in_group(&self, group: &str) -> bool {
        self.group.eq_ignore_ascii_case(group)
    }

    /// Returns the names in the id if its namespace and types are exactly these, in any letter case; `kinds` is a list
    /// of nested types, such as `["virtualMachines"]`.
    pub(super) fn names_of(&self, namespace: &str, kinds: &[&str]) -> Option<Vec<&str>> {
        let is_of = |((kind, _), wanted): (&(String, String), &&str)| kind.eq_ignore_ascii_case(wanted);
        let fits = self.namespace.eq_ignore_ascii_case(namespace)
            && self.pairs.len() == kinds.len()
            && self.pairs.iter().zip(kinds).all(is_of);
        fits.then(|| self.pairs.iter().map(|(_, name)| name.as_str()).collect())
    }

    /// The type of the resource without the namespace, such as `virtualMachines`; the types of a nested resource are
    /// joined by `/`.
    pub(super) fn kind(&self) -> String {
        self.pairs.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>().join("/")
    }

    /// Renders the id as a URL path, with every segment percent-encoded.
    pub(super) fn path(&self) -> String {
        let head = ["subscriptions", &self.subscription, "resourceGroups", &self.group, "providers", &self.namespace];
        let pairs = self.pairs.iter().flat_map(|(kind, name)| [kind.as_str(), name]);
        head.into_iter().chain(pairs).map(|segment| format!("/{}", percent_encode(segment))).collect()
    }
}

fn segment_after<'t>(word: &str, segments: &mut std::str::Split<'t, char>) -> Option<&'t str> {
    segments.next().filter(|segment| segment.eq_ignore_ascii_case(word))?;
    segments.next()
}

/// Compares resource ids without regard to ASCII letter case.
impl PartialEq for ArmId {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&(String, String), &(String, String))| {
            a.0.eq_ignore_ascii_case(&b.0) && a.1.eq_ignore_ascii_case(&b.1)
        };
        self.is_in_subscription(&other.subscription)
            && self.is_in_group(&other.group)
            && self.namespace.eq_ignore_ascii_case(&other.namespace)
            && self.pairs.len() == other.pairs.len()
            && self.pairs.iter().zip(&other.pairs).all(same)
    }
}

/// Renders the resource id with its fixed words, such as `subscriptions`, in their usual spelling.
impl fmt::Display for ArmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subscription, group, namespace, pairs } = self;
        write!(f, "/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}")?;
        pairs.iter().try_for_each(|(kind, name)| write!(f, "/{kind}/{name}"))
    }
}

/// `true` for a segment with the form of a subscription, namespace or resource type.
fn is_identifier(segment: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=128).contains(&segment.len()) && segment.chars().all(plain) && !is_only_dots(segment)
}

/// `true` for a segment with the form of a resource or resource group name.
fn is_resource_name(segment: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')' | '~' | '@' | '!');
    (1..=260).contains(&segment.len()) && segment.chars().all(plain) && !is_only_dots(segment)
}

/// `true` for segments of dots, such as `..`, which URL parsers resolve as relative paths.
fn is_only_dots(segment: &str) -> bool {
    segment.bytes().all(|b| b == b'.')
}

/// Percent-encodes all bytes of a path segment except unreserved characters (RFC 3986 2.3).
pub(super) fn percent_encode(segment: &str) -> String {
    let octet = |b: u8| match b {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    segment.bytes().map(octet).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VM: &str = "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web";

    #[test]
    fn arm_id_is_parsed_case_insensitively() {
        let id = ArmId::parse(VM).unwrap();
        assert_eq!(id, ArmId::of("S1", "RG1", "microsoft.compute", "VIRTUALMACHINES", "WEB"));
        assert_eq!((id.to_string().as_str(), id.path().as_str(), id.kind().as_str()), (VM, VM, "virtualMachines"));
        assert_eq!(id.names_of("Microsoft.Compute", &["virtualMachines"]), Some(vec!["web"]));
        assert_eq!(id.names_of("Microsoft.Compute", &["virtualMachineScaleSets"]), None);
        assert_eq!(id.names_of("Microsoft.Compute", &["virtualMachines", "disks"]), None);
        let lower = VM.to_lowercase();
        assert_eq!(ArmId::parse(&lower).unwrap(), id);
        for other in ["web2", "we", "web/extensions/a"] {
            assert_ne!(ArmId::parse(&VM.replace("/web", &format!("/{other}"))).unwrap(), id);
        }
        let nested = ArmId::parse(&format!("{VM}/extensions/a")).unwrap();
        assert_eq!(nested.kind(), "virtualMachines/extensions");
    }

    #[test]
    fn resource_id_that_would_change_the_path_is_refused() {
        for bad in [
            "",
            "/",
            "subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web",
            "/subscriptions/s1",
            "/subscriptions/s1/resourceGroups/rg1",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines",
            "/subscriptions/s1/resourceGroups/rg1/../rg2/providers/Microsoft.Compute/virtualMachines/web",
            "/subscriptions/s1/resourceGroups/../providers/Microsoft.Compute/virtualMachines/web",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/.",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web?a=b",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web#a",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web%2fa",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web\n",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web\\a",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web/",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute//virtualMachines/web",
            "/subscriptions//resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web",
            "/subscriptions/s1/resourceGroups/rg1/providers/Microsoft.Compute/virtualMachines/web/providers/A.B",
            "https://evil.example/subscriptions/s1/resourceGroups/rg1/providers/A.B/c/d",
        ] {
            assert_eq!(ArmId::parse(bad).unwrap_err().text(), "invalid resource_id", "{bad}");
        }
        let pairs = "/a/b".repeat(MAX_TYPE_NAME_PAIRS);
        let deep = format!("/subscriptions/s1/resourceGroups/rg1/providers/A.B{pairs}");
        assert!(ArmId::parse(&deep).is_ok() && ArmId::parse(&format!("{deep}/a/b")).is_err());
    }

    #[test]
    fn arm_id_segment_is_kept_or_percent_encoded() {
        assert_eq!(percent_encode("a-b_c.d~9"), "a-b_c.d~9");
        assert_eq!(percent_encode("(ä)/?#% "), "%28%C3%A4%29%2F%3F%23%25%20");
    }

    proptest! {
        #[test]
        fn parsed_resource_id_reads_back_equal(text in "(/subscriptions/|/resourceGroups/|/RESOURCEGROUPS/|/providers/|[a-zA-Z0-9._()%?#ä-]{0,5}|/){0,14}") {
            if let Ok(id) = ArmId::parse(&text) {
                prop_assert!(text.eq_ignore_ascii_case(&id.to_string()));
                prop_assert_eq!(ArmId::parse(&id.to_string()).unwrap(), id);
            }
        }

        #[test]
        fn arm_id_path_has_its_segments_without_query_or_fragment(
            names in prop::collection::vec("[a-zA-Zä0-9._()~@!-]{1,8}", 3..10),
        ) {
            let (head, pairs) = names.split_at(2);
            let pairs: String = pairs.iter().map(|name| format!("/kind/{name}")).collect();
            let text = format!("/subscriptions/{}/resourceGroups/{}/providers/A.B{pairs}", head[0], head[1]);
            if let Ok(id) = ArmId::parse(&text) {
                let path = id.path();
                prop_assert_eq!(path.matches('/').count(), text.matches('/').count());
                prop_assert!(path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%".contains(&b)));
                prop_assert!(!path.split('/').skip(1).any(|segment| segment.is_empty() || is_only_dots(segment)));
                let url = url::Url::parse(&format!("https://arm.example{path}")).unwrap();
                prop_assert_eq!(url.path(), path.as_str());
                prop_assert!(url.query().is_none() && url.fragment().is_none());
            }
        }
    }
}

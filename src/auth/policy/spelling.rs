//! Canonical spelling of names that have several spellings.
//!
//! For example, `ADMIN` names the policy `admin`, `awskms` names the key type `cloudakms`, and `0A-0B` names the serial
//! number `0a:0b`. A request is authorized, executed and recorded under the canonical spelling of its path. Rules are
//! converted too, so a rule applies in every spelling. The route of a request, not the rule, determines which path
//! segments are such names (`+/acl/ADMIN` matches several routes). Rules are therefore converted for each set of name
//! positions ([`NameSegments`]).
//!
//! Different names of one object (the id and the name of an issuer) are not spellings: a policy must contain both.

use std::borrow::Cow;

use crate::x509::serial::{MAX_TEXT_BYTES, strip_hex_prefix};

/// A kind of name with several spellings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Name of a policy or an entity: lower case, trimmed. It may have several path segments.
    PolicyName,
    /// Name of a managed key or of an authentication method's role: lower case.
    KeyName,
    /// A serial number: lower-case bytes joined by `:`, without leading zero bytes.
    Serial,
    /// Type of a managed key, under the name that this server uses.
    KeyBackend,
    /// A reference to an object, such as an issuer, in which only the word `default` is case-insensitive.
    Reference,
}

/// The only case-insensitive word of [`Spelling::Reference`].
const DEFAULT_WORD: &str = "default";

impl Spelling {
    const ALL: [Self; 5] = [Self::PolicyName, Self::KeyName, Self::Serial, Self::KeyBackend, Self::Reference];

    /// Returns the canonical spelling of a name. A text that is no name of this kind is returned unchanged.
    pub fn canonical(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::PolicyName => canonical_policy_name(name),
            Self::KeyName => lower(name),
            Self::Serial => canonical_serial(name, true),
            Self::KeyBackend => Cow::Borrowed(canonical_key_backend(name)),
            Self::Reference if name.eq_ignore_ascii_case(DEFAULT_WORD) => Cow::Borrowed(DEFAULT_WORD),
            Self::Reference => Cow::Borrowed(name),
        }
    }

    /// `true` if the name may have spellings other than this one.
    pub fn has_other_spellings(self, name: &str) -> bool {
        match self {
            Self::Reference => name.eq_ignore_ascii_case(DEFAULT_WORD),
            Self::KeyBackend => KEY_BACKENDS.iter().any(|(known, own)| [known, own].contains(&&name)),
            _ => true,
        }
    }

    /// Returns the canonical spelling of a name in the path of a rule, like [`Spelling::canonical`]. A `+` stays
    /// unchanged. If the name ends in `*`, the text before the `*` is converted as the start of a name.
    fn canonical_in_rule(self, part: &str) -> Cow<'_, str> {
        let Some(begin) = part.strip_suffix('*') else {
            return self.canonical(part);
        };
        let canonical = match self {
            Self::PolicyName => canonical_policy_name_start(begin),
            Self::KeyName => lower(begin),
            Self::Serial => canonical_serial(begin, false),
            Self::KeyBackend => Cow::Borrowed(canonical_key_backend_start(begin)),
            // This prefix is compared only with paths in which the name is `default`.
            Self::Reference if is_start_of_default(begin) => Cow::Owned(begin.to_ascii_lowercase()),
            Self::Reference => Cow::Borrowed(begin),
        };
        if *canonical == *begin { Cow::Borrowed(part) } else { Cow::Owned(format!("{canonical}*")) }
    }
}

fn is_start_of_default(text: &str) -> bool {
    DEFAULT_WORD.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text))
}

/// Converts a text to lower case character by character, so that a prefix of a text stays a prefix. (Full case mapping
/// would convert a Greek sigma differently at the end of a word.)
pub fn lower(text: &str) -> Cow<'_, str> {
    match text.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase()) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.chars().flat_map(char::to_lowercase).collect()),
    }
}

/// Returns a policy name in lower case and trimmed. The name is not trimmed if the trimmed name would be empty, or
/// would begin or end with a slash.
fn canonical_policy_name(name: &str) -> Cow<'_, str> {
    let bare = name.trim();
    lower(if bare.is_empty() || bare.starts_with('/') || bare.ends_with('/') { name } else { bare })
}

/// Returns the canonical spelling of the start of a policy name, before a `*`; see [`canonical_policy_name`].
fn canonical_policy_name_start(begin: &str) -> Cow<'_, str> {
    let bare = begin.trim_start();
    lower(if bare.starts_with('/') { begin } else { bare })
}

/// Returns the canonical spelling of a serial number or, if `whole` is `false`, of the start of a serial number.
fn canonical_serial(text: &str, whole: bool) -> Cow<'_, str> {
    let digits = strip_hex_prefix(text);
    let is_serial = digits.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'-'));
    if digits.is_empty() || digits.len() > MAX_TEXT_BYTES || !is_serial {
        return Cow::Borrowed(text);
    }
    let mut joined = digits.to_ascii_lowercase().replace('-', ":");
    if joined.contains(':') {
        if whole && joined.split(':').any(|octet| octet.len() != 2) {
            return Cow::Borrowed(text);
        }
    } else {
        if whole && !joined.len().is_multiple_of(2) {
            joined.insert(0, '0');
        }
        let mut pairs = String::with_capacity(joined.len() * 3 / 2);
        for (at, digit) in joined.chars().enumerate() {
            if at > 0 && at % 2 == 0 {
                pairs.push(':');
            }
            pairs.push(digit);
        }
        joined = pairs;
    }
    let mut rest = &joined[..];
    while let Some(shorter) = rest.strip_prefix("00:").filter(|shorter| !shorter.is_empty()) {
        rest = shorter;
    }
    if rest == text { Cow::Borrowed(text) } else { Cow::Owned(rest.to_owned()) }
}

/// Names of managed key types as existing clients send them, each followed by this server's name.
const KEY_BACKENDS: [(&str, &str); 3] =
    [("awskms", "cloudakms"), ("azurekeyvault", "cloudbkeyvault"), ("gcpckms", "cloudckms")];

fn canonical_key_backend(word: &str) -> &str {
    KEY_BACKENDS.iter().find(|(known, _)| *known == word).map_or(word, |(_, own)| own)
}

/// Returns this server's name for the start of a managed key type's name, before a `*`. An ambiguous start is returned
/// unchanged.
fn canonical_key_backend_start(begin: &str) -> &str {
    let mut meant = KEY_BACKENDS.iter().filter(|(known, _)| !begin.is_empty() && known.starts_with(begin));
    match (meant.next(), meant.next()) {
        (Some((_, own)), None) => own,
        _ => begin,
    }
}

/// The position of a name in a path: the range of its segments, and the kind of spelling that applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameSegments {
    spelling: Spelling,
    from: usize,
    to: usize,
}

impl NameSegments {
    /// Creates the position of a name that begins at the segment `from`, counted from 0. A name that may have several
    /// segments extends to the end of the path, so that names of different lengths have the same position.
    pub fn of(spelling: Spelling, from: usize) -> Self {
        let to = if spelling == Spelling::PolicyName { usize::MAX } else { from + 1 };
        Self { spelling, from, to }
    }

    /// Returns the position of the name after `segments` segments are added at the start of the path.
    #[must_use]
    pub fn shifted(self, segments: usize) -> Self {
        Self::of(self.spelling, self.from + segments)
    }
}

/// `true` if converting a segment to a canonical spelling ([`Spelling::ALL`]) may change the path of a rule.
pub(super) fn may_have_other_spelling(rule: &str) -> bool {
    rule.split('/').any(|segment| {
        segment != "+" && Spelling::ALL.iter().any(|spelling| *spelling.canonical_in_rule(segment) != *segment)
    })
}

/// Returns the path of a rule, with the names at the positions `spelt` in canonical spelling.
pub(super) fn canonical_rule_path(rule: &str, spelt: &[NameSegments]) -> String {
    let segments: Vec<&str> = rule.split('/').collect();
    let mut out = Vec::new();
    let mut at = 0;
    for name in spelt.iter().filter(|name| name.from < segments.len()) {
        let end = segments.len().min(name.to);
        out.extend(segments[at..name.from].iter().map(|segment| Cow::Borrowed(*segment)));
        out.push(Cow::Owned(canonical_rule_part(&segments[name.from..end].join("/"), name.spelling)));
        at = end;
    }
    out.extend(segments[at..].iter().map(|segment| Cow::Borrowed(*segment)));
    out.join("/")
}

/// Converts a name in the path of a rule to canonical spelling. Leaves it unchanged if removing blanks would turn a `+`
/// or `*` into a wildcard.
fn canonical_rule_part(part: &str, spelling: Spelling) -> String {
    let canonical = spelling.canonical_in_rule(part);
    if count_wildcards(&canonical) == count_wildcards(part) { canonical.into_owned() } else { part.to_owned() }
}

/// Counts the wildcards in the path of a rule: `true` for a final `*`, and the number of `+` segments.
fn count_wildcards(text: &str) -> (bool, usize) {
    (text.ends_with('*'), text.split('/').filter(|segment| *segment == "+").count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn name_is_converted_to_its_canonical_spelling() {
        for (spelling, name, canonical) in [
            (Spelling::PolicyName, " Team/App ", "team/app"),
            (Spelling::PolicyName, "\u{212a}ilo", "kilo"),
            (Spelling::PolicyName, "ΑΣ", "ασ"),
            (Spelling::PolicyName, " ", " "),
            (Spelling::PolicyName, " /Admin", " /admin"),
            (Spelling::KeyName, "Web_1.A", "web_1.a"),
            (Spelling::Serial, "0A-0b:0C", "0a:0b:0c"),
            (Spelling::Serial, "00:00-0a", "0a"),
            (Spelling::Serial, "00", "00"),
            (Spelling::Serial, "00:", "00:"),
            (Spelling::Serial, "cafe", "ca:fe"),
            (Spelling::Serial, "CAF", "0c:af"),
            (Spelling::Serial, "0x00cafe", "ca:fe"),
            (Spelling::Serial, "0Xca:FE", "ca:fe"),
            (Spelling::Serial, "0x", "0x"),
            (Spelling::Serial, "00:0", "00:0"),
            (Spelling::Serial, "0A:B", "0A:B"),
            (Spelling::KeyBackend, "awskms", "cloudakms"),
            (Spelling::KeyBackend, "cloudakms", "cloudakms"),
            (Spelling::KeyBackend, "other", "other"),
            (Spelling::Serial, "Web", "Web"),
            (Spelling::Reference, "dEFAULT", "default"),
            (Spelling::Reference, "Defaults", "Defaults"),
        ] {
            assert_eq!(spelling.canonical(name), canonical, "{spelling:?} {name:?}");
        }
    }

    #[test]
    fn canonical_rule_path_changes_only_name_segments() {
        let spelt = |from, spelling| NameSegments::of(spelling, from);
        for (rule, name, canonical) in [
            ("sys/policies/acl/ADMIN", spelt(3, Spelling::PolicyName), "sys/policies/acl/admin"),
            ("Sys/+/ACL/Team/App*", spelt(3, Spelling::PolicyName), "Sys/+/ACL/team/app*"),
            ("sys/policies/acl/+/App", spelt(3, Spelling::PolicyName), "sys/policies/acl/+/app"),
            ("sys/policies/acl/ +", spelt(3, Spelling::PolicyName), "sys/policies/acl/ +"),
            ("sys/policies/acl/A* ", spelt(3, Spelling::PolicyName), "sys/policies/acl/A* "),
            ("sys/*", spelt(3, Spelling::PolicyName), "sys/*"),
            ("sys/managed-keys/pkcs11/WEB/test", spelt(3, Spelling::KeyName), "sys/managed-keys/pkcs11/web/test"),
            ("sys/managed-keys/pkcs11/W*", spelt(3, Spelling::KeyName), "sys/managed-keys/pkcs11/w*"),
            ("PKI/cert-metadata/00-0A*", spelt(2, Spelling::Serial), "PKI/cert-metadata/0a*"),
            ("pki/cert-metadata/00:*", spelt(2, Spelling::Serial), "pki/cert-metadata/00:*"),
            ("pki/cert-metadata/0x00caf*", spelt(2, Spelling::Serial), "pki/cert-metadata/ca:f*"),
            ("sys/managed-keys/awskms/web", spelt(2, Spelling::KeyBackend), "sys/managed-keys/cloudakms/web"),
            ("sys/managed-keys/gcp*", spelt(2, Spelling::KeyBackend), "sys/managed-keys/cloudckms*"),
            ("sys/managed-keys/a*", spelt(2, Spelling::KeyBackend), "sys/managed-keys/a*"),
            ("sys/managed-keys/*", spelt(2, Spelling::KeyBackend), "sys/managed-keys/*"),
            ("pki/issuer/DEF*", spelt(2, Spelling::Reference), "pki/issuer/def*"),
            ("pki/issuer/DEX*", spelt(2, Spelling::Reference), "pki/issuer/DEX*"),
            ("pki/issuer/Default/issue/Web", spelt(2, Spelling::Reference), "pki/issuer/default/issue/Web"),
        ] {
            assert_eq!(canonical_rule_path(rule, &[name]), canonical, "{rule}");
            assert!(rule == canonical || may_have_other_spelling(rule), "{rule}");
        }
        for rule in ["sys/policies/acl/admin", "pki/issue/web", "auth/token/+", "*", "pki/cert-metadata/0a:0b*"] {
            assert!(!may_have_other_spelling(rule), "{rule}");
        }
    }

    #[test]
    fn canonical_rule_path_preserves_a_blank_name_segment() {
        let name = [NameSegments::of(Spelling::PolicyName, 0)];
        assert_eq!(Spelling::PolicyName.canonical(" /A"), " /a");
        for (rule, spelt) in [(" /*", " /*"), (" /A*", " /a*"), (" A/*", "a/*"), (" A", "a")] {
            assert_eq!(canonical_rule_path(rule, &name), spelt, "{rule}");
        }
    }

    proptest! {
        #[test]
        fn lowercase_of_a_prefix_is_a_prefix_of_the_lowercase(begin in "[ΑΣσς.aİßſK]{0,4}|\\PC{0,4}", rest in "[ΑΣσς.a]{0,4}|\\PC{0,4}") {
            let (all, begin) = (format!("{begin}{rest}"), lower(&begin).into_owned());
            prop_assert!(lower(&all).starts_with(&begin));
            prop_assert_eq!(lower(&begin), begin.as_str());
        }

        #[test]
        fn canonical_spelling_is_idempotent(name in "[ A-Fa-f0:/+*-]{0,12}|\\PC{0,12}") {
            for spelling in Spelling::ALL {
                let canonical = spelling.canonical(&name).into_owned();
                prop_assert_eq!(spelling.canonical(&canonical), canonical.as_str());
                prop_assert_eq!(canonical.matches('/').count(), name.matches('/').count());
            }
        }

        #[test]
        fn canonical_rule_differs_only_in_letter_case(rule in "[ aA0:+*/-]{1,16}", from in 0usize..4) {
            for spelling in Spelling::ALL {
                let spelt = canonical_rule_path(&rule, &[NameSegments::of(spelling, from)]);
                prop_assert_eq!(count_wildcards(&spelt), count_wildcards(&rule));
                prop_assert_eq!(spelt.split('/').count(), rule.split('/').count());
                prop_assert!(spelt == rule || may_have_other_spelling(&rule));
            }
        }
    }
}

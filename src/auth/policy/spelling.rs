//! Names that have several spellings, in requests and in rules.
//!
//! `ADMIN` names the policy `admin`, `HSM` the managed key `hsm`, `awskms` its type `cloudakms`, `0A-0B` the serial
//! `0a:0b`, `DEFAULT` the default issuer. Each such name has one canonical spelling. A request is decided, acted on and recorded under its path in that
//! spelling. A rule is held against such a path as if it were written that way too, so a deny holds in
//! every spelling of either, and so does a grant. Which names these are is known by the route of the
//! request and not by the rule (`+/acl/ADMIN` matches paths of several routes): rules are therefore put
//! into canonical spelling for the [`Spelt`] places of a path, segment by segment, as a segment of a
//! rule matches one segment of a path and only a final `*` the rest.
//!
//! Two names of one thing are no spellings: an issuer has an id and perhaps a name, and a policy for it
//! has to say both.

use std::borrow::Cow;

use crate::x509::serial::{MAX_TEXT, without_prefix};

/// A kind of name with several spellings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// The name of a policy or an entity: in lower case, without blanks at its ends. May have several segments.
    PolicyName,
    /// The name of a managed key or of an authentication method's role: in lower case.
    KeyName,
    /// A serial number: lower-case octets joined by `:`, without leading zero octets.
    Serial,
    /// The type of a managed key: this server's word for it.
    KeyBackend,
    /// A reference of which the word `default` is known in any case; others are what they are.
    Reference,
}

/// The word that a [`Spelling::Reference`] has several spellings of.
const DEFAULT: &str = "default";

impl Spelling {
    const ALL: [Self; 5] = [Self::PolicyName, Self::KeyName, Self::Serial, Self::KeyBackend, Self::Reference];

    /// The canonical spelling of a name. What is no name of this kind stays as it is.
    pub fn canonical(self, name: &str) -> Cow<'_, str> {
        match self {
            Self::PolicyName => policy_name(name),
            Self::KeyName => lower(name),
            Self::Serial => serial(name, true),
            Self::KeyBackend => Cow::Borrowed(key_backend(name)),
            Self::Reference if name.eq_ignore_ascii_case(DEFAULT) => Cow::Borrowed(DEFAULT),
            Self::Reference => Cow::Borrowed(name),
        }
    }

    /// Whether a name of this kind may be spelt in another way.
    pub fn is_open_to(self, name: &str) -> bool {
        match self {
            Self::Reference => name.eq_ignore_ascii_case(DEFAULT),
            Self::KeyBackend => KEY_BACKENDS.iter().any(|(known, own)| [known, own].contains(&&name)),
            _ => true,
        }
    }

    /// As [`Spelling::canonical`], of the part of a rule that stands for such a name: a `+` stays, and
    /// before a final `*` there is the beginning of a name.
    fn canonical_in_rule(self, part: &str) -> Cow<'_, str> {
        let Some(begin) = part.strip_suffix('*') else {
            return self.canonical(part);
        };
        let canonical = match self {
            Self::PolicyName => policy_name_begin(begin),
            Self::KeyName => lower(begin),
            Self::Serial => serial(begin, false),
            Self::KeyBackend => Cow::Borrowed(key_backend_begin(begin)),
            // Only a path with `default` itself is held against this.
            Self::Reference if is_start_of_default(begin) => Cow::Owned(begin.to_ascii_lowercase()),
            Self::Reference => Cow::Borrowed(begin),
        };
        if *canonical == *begin { Cow::Borrowed(part) } else { Cow::Owned(format!("{canonical}*")) }
    }
}

fn is_start_of_default(text: &str) -> bool {
    DEFAULT.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text))
}

/// A text in lower case, each character by itself: what another text begins with begins it in lower case too. (In whole
/// words the Greek sigma has another form at the end, so that no beginning of a name would be found in it.)
pub fn lower(text: &str) -> Cow<'_, str> {
    match text.bytes().all(|b| b.is_ascii() && !b.is_ascii_uppercase()) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.chars().flat_map(char::to_lowercase).collect()),
    }
}

/// Blanks stay where a name without them would not be one, or would change the segments of its path.
fn policy_name(name: &str) -> Cow<'_, str> {
    let bare = name.trim();
    lower(if bare.is_empty() || bare.starts_with('/') || bare.ends_with('/') { name } else { bare })
}

/// As [`policy_name`], of how a name begins.
fn policy_name_begin(begin: &str) -> Cow<'_, str> {
    let bare = begin.trim_start();
    lower(if bare.starts_with('/') { begin } else { bare })
}

/// The canonical spelling of a serial number, or of its beginning when it is not `whole`.
fn serial(text: &str, whole: bool) -> Cow<'_, str> {
    let digits = without_prefix(text);
    let is_serial = digits.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'-'));
    if digits.is_empty() || digits.len() > MAX_TEXT || !is_serial {
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

/// What known clients call the types of managed keys, and this server's words.
const KEY_BACKENDS: [(&str, &str); 3] =
    [("awskms", "cloudakms"), ("azurekeyvault", "cloudbkeyvault"), ("gcpckms", "cloudckms")];

fn key_backend(word: &str) -> &str {
    KEY_BACKENDS.iter().find(|(known, _)| *known == word).map_or(word, |(_, own)| own)
}

/// As [`key_backend`], of how a word begins. What two of them begin with stays as it is.
fn key_backend_begin(begin: &str) -> &str {
    let mut meant = KEY_BACKENDS.iter().filter(|(known, _)| !begin.is_empty() && known.starts_with(begin));
    match (meant.next(), meant.next()) {
        (Some((_, own)), None) => own,
        _ => begin,
    }
}

/// Segments of a path that are a name with several spellings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spelt {
    spelling: Spelling,
    from: usize,
    to: usize,
}

impl Spelt {
    /// A name at segment `from`, counted from 0. One that may have several segments takes the rest of the
    /// path: how many there are must not make another place of it.
    pub fn of(spelling: Spelling, from: usize) -> Self {
        let to = if spelling == Spelling::PolicyName { usize::MAX } else { from + 1 };
        Self { spelling, from, to }
    }

    /// The same in a path with `segments` more before it.
    #[must_use]
    pub fn behind(self, segments: usize) -> Self {
        Self::of(self.spelling, self.from + segments)
    }
}

/// Whether the path of a rule could be another one in canonical spelling, whatever it is held against.
pub(super) fn may_change(rule: &str) -> bool {
    rule.split('/').any(|segment| {
        segment != "+" && Spelling::ALL.iter().any(|spelling| *spelling.canonical_in_rule(segment) != *segment)
    })
}

/// The path of a rule as it is held against paths with names at these places.
pub(super) fn of_rule(rule: &str, spelt: &[Spelt]) -> String {
    let segments: Vec<&str> = rule.split('/').collect();
    let (mut out, mut at) = (Vec::new(), 0);
    for place in spelt.iter().filter(|place| place.from < segments.len()) {
        let end = segments.len().min(place.to);
        out.extend(segments[at..place.from].iter().map(|segment| Cow::Borrowed(*segment)));
        out.push(Cow::Owned(part_of_rule(&segments[place.from..end].join("/"), place.spelling)));
        at = end;
    }
    out.extend(segments[at..].iter().map(|segment| Cow::Borrowed(*segment)));
    out.join("/")
}

/// Blanks around a `+` or `*` make it an ordinary character: it must not become a pattern without them.
fn part_of_rule(part: &str, spelling: Spelling) -> String {
    let canonical = spelling.canonical_in_rule(part);
    if wild(&canonical) == wild(part) { canonical.into_owned() } else { part.to_owned() }
}

/// What of a text may be a pattern.
fn wild(text: &str) -> (bool, usize) {
    (text.ends_with('*'), text.split('/').filter(|segment| *segment == "+").count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_have_one_canonical_spelling() {
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
    fn a_rule_changes_at_the_places_of_names_only() {
        let spelt = |from, spelling| Spelt::of(spelling, from);
        for (rule, place, canonical) in [
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
            assert_eq!(of_rule(rule, &[place]), canonical, "{rule}");
            assert!(rule == canonical || may_change(rule), "{rule}");
        }
        for rule in ["sys/policies/acl/admin", "pki/issue/web", "auth/token/+", "*", "pki/cert-metadata/0a:0b*"] {
            assert!(!may_change(rule), "{rule}");
        }
    }

    #[test]
    fn a_blank_segment_of_a_name_stays_in_a_rule_as_it_does_in_a_path() {
        let place = [Spelt::of(Spelling::PolicyName, 0)];
        assert_eq!(Spelling::PolicyName.canonical(" /A"), " /a");
        for (rule, spelt) in [(" /*", " /*"), (" /A*", " /a*"), (" A/*", "a/*"), (" A", "a")] {
            assert_eq!(of_rule(rule, &place), spelt, "{rule}");
        }
    }

    proptest! {
        #[test]
        fn a_name_in_lower_case_begins_as_it_began(begin in "[ΑΣσς.aİßſK]{0,4}|\\PC{0,4}", rest in "[ΑΣσς.a]{0,4}|\\PC{0,4}") {
            let (all, begin) = (format!("{begin}{rest}"), lower(&begin).into_owned());
            prop_assert!(lower(&all).starts_with(&begin));
            prop_assert_eq!(lower(&begin), begin.as_str());
        }

        #[test]
        fn a_canonical_spelling_is_its_own(name in "[ A-Fa-f0:/+*-]{0,12}|\\PC{0,12}") {
            for spelling in Spelling::ALL {
                let canonical = spelling.canonical(&name).into_owned();
                prop_assert_eq!(spelling.canonical(&canonical), canonical.as_str());
                prop_assert_eq!(canonical.matches('/').count(), name.matches('/').count());
            }
        }

        #[test]
        fn a_rule_stays_what_it_was_but_for_its_letters(rule in "[ aA0:+*/-]{1,16}", from in 0usize..4) {
            for spelling in Spelling::ALL {
                let spelt = of_rule(&rule, &[Spelt::of(spelling, from)]);
                prop_assert_eq!(wild(&spelt), wild(&rule));
                prop_assert_eq!(spelt.split('/').count(), rule.split('/').count());
                prop_assert!(spelt == rule || may_change(&rule));
            }
        }
    }
}

//! The lists of allowed names of a role, parsed once for fast checks. A list may have a thousand entries, and a
//! certificate as many names. Therefore plain texts are looked up in sorted lists, and only patterns are tried one by
//! one.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use ipnet::IpNet;

use super::Role;
use crate::pki::values::glob::PatternList;
use crate::pki::values::{parse_network, parse_other_name};
use crate::templates::TemplateValues;

/// A role with its parsed lists; dereferences to [`Role`].
pub struct CompiledRole {
    role: Role,
    /// The parsed lists of allowed names.
    pub allowed: AllowedNames,
}

impl Deref for CompiledRole {
    type Target = Role;

    fn deref(&self) -> &Role {
        &self.role
    }
}

impl From<Role> for CompiledRole {
    fn from(role: Role) -> Self {
        Self { allowed: AllowedNames::of(&role), role }
    }
}

impl CompiledRole {
    /// Returns the role with the templates in its lists filled in for a caller.
    pub fn filled_for(self: &Arc<Self>, identity: Option<&dyn TemplateValues>) -> Arc<Self> {
        self.role.filled_for(identity).map_or_else(|| Arc::clone(self), |filled| Arc::new(filled.into()))
    }
}

/// The parsed lists of allowed names of a role.
pub struct AllowedNames {
    /// Parsed `allowed_domains`.
    pub domains: AllowedDomains,
    /// Parsed `allowed_ip_sans_cidr`.
    pub networks: Vec<IpNet>,
    /// Parsed `allowed_uri_sans`.
    pub uris: PatternList,
    /// Parsed `allowed_other_sans` by OID; `None` allows all otherNames.
    pub other_names: Option<HashMap<String, PatternList>>,
    /// Parsed `allowed_serial_numbers`.
    pub serial_numbers: PatternList,
    /// Parsed `allowed_user_ids`, as patterns and as plain texts.
    pub user_ids: (PatternList, CaseInsensitiveTexts),
}

impl AllowedNames {
    fn of(role: &Role) -> Self {
        let any_other = role.allowed_other_sans == ["*"];
        Self {
            domains: AllowedDomains::new(&role.allowed_domains),
            networks: role.allowed_ip_sans_cidr.iter().filter_map(|text| parse_network(text)).collect(),
            uris: PatternList::new(&role.allowed_uri_sans),
            other_names: (!any_other).then(|| group_others_by_oid(&role.allowed_other_sans)),
            serial_numbers: PatternList::new(&role.allowed_serial_numbers),
            user_ids: (PatternList::new(&role.allowed_user_ids), CaseInsensitiveTexts::new(&role.allowed_user_ids)),
        }
    }
}

/// Groups otherName patterns by OID. Entries that do not parse allow nothing; writes reject them.
fn group_others_by_oid(entries: &[String]) -> HashMap<String, PatternList> {
    let mut by_oid: HashMap<String, Vec<String>> = HashMap::new();
    for (oid, pattern) in entries.iter().filter_map(|entry| parse_other_name("allowed_other_sans", entry).ok()) {
        by_oid.entry(oid).or_default().push(pattern);
    }
    by_oid.into_iter().map(|(oid, patterns)| (oid, PatternList::new(&patterns))).collect()
}

/// Texts compared without regard to the case of ASCII letters.
#[derive(Default)]
pub struct CaseInsensitiveTexts(Box<[Box<str>]>);

impl CaseInsensitiveTexts {
    fn new(list: &[String]) -> Self {
        let mut lower: Vec<Box<str>> = list.iter().map(|text| text.to_ascii_lowercase().into()).collect();
        lower.sort_unstable();
        Self(lower.into())
    }

    /// Returns `true` if the list contains `text`.
    pub fn contains(&self, text: &str) -> bool {
        let lower = || text.bytes().map(|byte| byte.to_ascii_lowercase());
        self.0.binary_search_by(|one| one.bytes().cmp(lower())).is_ok()
    }
}

/// The `allowed_domains` of a role, indexed for each kind of comparison.
pub struct AllowedDomains {
    /// The allowed domains, to find names that are equal to one.
    pub texts: CaseInsensitiveTexts,
    /// The reversed bytes of the domains, sorted, to find subdomains.
    reversed: Box<[Box<[u8]>]>,
    /// The allowed domains with a `*`, as patterns.
    pub patterns: PatternList,
}

impl AllowedDomains {
    fn new(list: &[String]) -> Self {
        let list: Vec<String> = list.iter().filter(|domain| !domain.is_empty()).cloned().collect();
        let mut reversed: Vec<Box<[u8]>> = list.iter().map(|domain| domain.bytes().rev().collect()).collect();
        reversed.sort_unstable();
        Self { texts: CaseInsensitiveTexts::new(&list), reversed: reversed.into(), patterns: PatternList::new(&list) }
    }

    /// Returns `true` if `name` ends with a dot followed by one of the domains; case-sensitive. Reads the name from its
    /// end and narrows the range of matching domains with each byte, in linear time.
    pub fn contain_parent_domain_of(&self, name: &str) -> bool {
        let mut left = &self.reversed[..];
        for (read, byte) in name.bytes().rev().enumerate() {
            // A domain that is read completely sorts before longer ones with the same ending.
            if byte == b'.' && left.first().is_some_and(|domain| domain.len() == read) {
                return true;
            }
            let next = |domain: &[u8]| domain.get(read).copied();
            let from = left.partition_point(|domain| next(domain) < Some(byte));
            let to = left.partition_point(|domain| next(domain) <= Some(byte));
            left = &left[from..to];
            if left.is_empty() {
                return false;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn indexed_lists_match_like_a_linear_search(
            list in proptest::collection::vec("[abA.*ü]{0,5}", 0..6),
            head in "[abA.]{0,3}",
            text in "[abA.*ü]{0,6}",
            pick in any::<proptest::sample::Index>(),
        ) {
            let domains = AllowedDomains::new(&list);
            let of_list = if list.is_empty() { String::new() } else { format!("{head}{}", pick.get(&list)) };
            for text in [&text, &of_list] {
                let known = || list.iter().filter(|domain| !domain.is_empty());
                let below = |domain: &String| text.strip_suffix(&**domain).is_some_and(|head| head.ends_with('.'));
                prop_assert_eq!(domains.contain_parent_domain_of(text), known().any(below), "{:?} {:?}", text, list);
                prop_assert_eq!(domains.texts.contains(text), known().any(|domain| domain.eq_ignore_ascii_case(text)));
            }
        }
    }
}

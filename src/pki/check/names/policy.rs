//! The name policy of a role: decides if a common name, DNS name or e-mail address is allowed.
//!
//! Critical for security. One rule set serves all kinds of names, from requests and CSRs. It takes linear time per
//! pattern and uses no regular expressions. Domain suffixes are compared with their leading dot, so that
//! `evilexample.com` does not match `example.com`. Case is ignored for ASCII letters only.

use super::hostname::{is_host_name, is_wildcard_label};
use crate::pki::mount::role::CompiledRole;

/// A role's name policy for one caller.
pub(super) struct NamePolicy<'a> {
    pub(super) role: &'a CompiledRole,
    /// The caller's display name, for `allow_token_displayname`.
    pub(super) display_name: &'a str,
}

/// A parsed name: `local@host`, or a host whose first label may contain a wildcard.
struct ParsedName<'n> {
    name: &'n str,
    is_email: bool,
    /// The host: the whole name, or what follows the `@` of an e-mail address.
    domain: &'n str,
    /// The first label of a wildcard name.
    wild_label: Option<&'n str>,
    /// `domain` without the wildcard label; `None` if the name is a wildcard label alone.
    rest: Option<&'n str>,
}

impl<'n> ParsedName<'n> {
    /// Parses a name. Returns `None` for two `@`, two `*`, a `*` outside the first label, or a `*` in the host of an
    /// e-mail address.
    fn of(name: &'n str) -> Option<Self> {
        let (is_email, domain) = match name.split_once('@') {
            None => (false, name),
            Some((_, host)) if !host.contains('@') => (true, host),
            Some(_) => return None,
        };
        if !domain.contains('*') {
            return Some(Self { name, is_email, domain, wild_label: None, rest: Some(domain) });
        }
        let (label, rest) = match domain.split_once('.') {
            Some((label, rest)) => (label, Some(rest)),
            None => (domain, None),
        };
        let single = label.matches('*').count() == 1 && !rest.is_some_and(|rest| rest.contains('*'));
        (single && !is_email).then_some(Self { name, is_email, domain, wild_label: Some(label), rest })
    }

    /// Returns the part of the name that is compared with the domains of the role.
    fn compared_domain(&self) -> &'n str {
        self.rest.unwrap_or_default()
    }

    fn is_wild(&self) -> bool {
        self.wild_label.is_some()
    }

    /// `true` if the host has valid syntax. A name may also be a wildcard label alone.
    fn has_host_syntax(&self) -> bool {
        self.rest.is_none_or(is_host_name) && self.wild_label.is_none_or(is_wildcard_label)
    }

    fn is_below(&self, domain: &str) -> bool {
        self.compared_domain().strip_suffix(domain).is_some_and(|head| head.ends_with('.'))
    }
}

/// Appended to "not allowed by this role" if the name is not a host name.
const NOT_A_HOST_NAME_SUFFIX: &str = ": it is not a host name, which the role's enforce_hostnames requires";

impl NamePolicy<'_> {
    /// Returns an explanation to append to the message for a name that is not allowed; empty unless the name breaks the
    /// host syntax.
    pub(super) fn refusal_detail(&self, name: &str) -> &'static str {
        let lacks_wildcard = |parsed: &ParsedName<'_>| parsed.is_wild() && !self.role.allow_wildcard_certificates;
        match ParsedName::of(name) {
            Some(parsed) if !lacks_wildcard(&parsed) && self.breaks_host_syntax(&parsed) => NOT_A_HOST_NAME_SUFFIX,
            _ => "",
        }
    }

    fn breaks_host_syntax(&self, parsed: &ParsedName<'_>) -> bool {
        self.role.enforce_hostnames && !parsed.has_host_syntax()
    }

    /// `true` if the role allows `name`.
    pub(super) fn allows(&self, name: &str) -> bool {
        let role = self.role;
        let Some(parsed) = ParsedName::of(name) else { return false };
        // `allow_any_name` lifts only the domain rules, so check wildcards and host syntax first.
        if parsed.is_wild() && !role.allow_wildcard_certificates {
            return false;
        }
        if self.breaks_host_syntax(&parsed) {
            return false;
        }
        role.allow_any_name
            || self.is_allowed_localhost(&parsed)
            || self.is_allowed_display_name(&parsed)
            || self.is_within_allowed_domains(&parsed)
    }

    fn is_allowed_localhost(&self, parsed: &ParsedName<'_>) -> bool {
        let local =
            |domain| parsed.compared_domain() == domain || (self.role.allow_subdomains && parsed.is_below(domain));
        self.role.allow_localhost && (local("localhost") || local("localdomain"))
    }

    fn is_allowed_display_name(&self, parsed: &ParsedName<'_>) -> bool {
        let display = self.display_name;
        if !self.role.allow_token_displayname || display.is_empty() {
            return false;
        }
        if parsed.name == display {
            return true;
        }
        if !self.role.allow_subdomains {
            return false;
        }
        let display_host = display.split_once('@').map(|(_, host)| host).filter(|host| is_host_name(host));
        parsed.is_below(display)
            || (parsed.is_wild() && parsed.compared_domain() == display)
            || (parsed.is_email && display_host.is_some_and(|host| parsed.is_below(host)))
    }

    fn is_within_allowed_domains(&self, parsed: &ParsedName<'_>) -> bool {
        let role = self.role;
        let domains = &self.role.allowed.domains;
        let texts = &domains.texts;
        let bare = || texts.contains(parsed.name) || (parsed.is_email && texts.contains(parsed.domain));
        let below = || {
            domains.contain_parent_domain_of(parsed.compared_domain())
                || (parsed.is_wild() && texts.contains(parsed.compared_domain()))
        };
        (role.allow_bare_domains && bare())
            || (role.allow_subdomains && below())
            || (role.allow_glob_domains && domains.patterns.any_glob_matches(parsed.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::mount::role::Role;
    use crate::pki::values::glob::tests::reference_match;
    use proptest::prelude::*;

    fn allows(role: &Role, display_name: &str, name: &str) -> bool {
        NamePolicy { role: &role.clone().into(), display_name }.allows(name)
    }

    #[test]
    fn display_name_of_the_caller_is_allowed_if_the_role_says_so() {
        let mut role = Role { allow_token_displayname: true, allow_localhost: false, ..Role::default() };
        assert!(allows(&role, "web.corp", "web.corp"));
        assert!(!allows(&role, "web.corp", "a.web.corp"));
        assert!(!allows(&role, "web.corp", "Web.corp"));
        assert!(!allows(&role, "", "a"));
        role.allow_subdomains = true;
        assert!(allows(&role, "web.corp", "a.web.corp"));
        assert!(allows(&role, "web.corp", "*.web.corp"));
        assert!(!allows(&role, "web.corp", "evilweb.corp"));
        assert!(allows(&role, "bob@corp", "x@a.corp"));
        assert!(!allows(&role, "bob@corp", "x@corp"));
        assert!(!allows(&role, "bob@corp", "a.corp"));
        role.allow_token_displayname = false;
        assert!(!allows(&role, "web.corp", "web.corp"));
    }

    #[test]
    fn address_without_host_part_is_refused() {
        let role = Role { allow_any_name: true, ..Role::default() };
        assert!(!allows(&role, "", "user@"));
        assert!(!allows(&role, "", "*."));
        assert!(allows(&role, "", "*"));
        assert!(allows(&role, "", "@x.com"));
        assert!(allows(&role, "", "*@x.com"));
    }

    #[test]
    fn case_is_ignored_for_ascii_letters_only() {
        let role = Role { allow_bare_domains: true, allowed_domains: vec!["k.com".into()], ..Role::default() };
        assert!(allows(&role, "", "K.com"));
        // U+212A KELVIN SIGN folds to k under Unicode rules.
        assert!(!allows(&Role { enforce_hostnames: false, ..role }, "", "\u{212a}.com"));
    }

    /// An independent implementation of the policy, whose results the tests compare with those of the real one. It is
    /// slow: it uses lists of labels and an exponential matcher.
    fn reference_allows(role: &Role, name: &str) -> bool {
        let pieces: Vec<&str> = name.split('@').collect();
        let (email, host) = match pieces.as_slice() {
            [host] => (false, *host),
            [_, host] => (true, *host),
            _ => return false,
        };
        let mut labels: Vec<String> = host.split('.').map(str::to_owned).collect();
        let stars = host.chars().filter(|c| *c == '*').count();
        let mut wild = None;
        if stars > 0 {
            if stars > 1 || email || !labels[0].contains('*') || !role.allow_wildcard_certificates {
                return false;
            }
            wild = Some(labels.remove(0));
        }
        let word = |l: &str| {
            let c: Vec<char> = l.chars().collect();
            (1..=63).contains(&c.len())
                && (0..c.len()).all(|i| c[i].is_ascii_alphanumeric() || (c[i] == '-' && i > 0 && i + 1 < c.len()))
        };
        if role.enforce_hostnames {
            if labels.join(".").len() > 253 || !labels.iter().all(|l| word(l)) {
                return false;
            }
            if let Some(wild) = &wild {
                let sides: Vec<&str> = wild.split('*').collect();
                if !sides.iter().all(|s| s.is_empty() || word(s)) {
                    return false;
                }
            }
        }
        if role.allow_any_name {
            return true;
        }
        let fold = |s: &str| s.to_lowercase();
        let below = |domain: &str| {
            let tail: Vec<&str> = domain.split('.').collect();
            labels.len() > tail.len() && labels[labels.len() - tail.len()..].iter().zip(&tail).all(|(a, b)| a == b)
        };
        let rest = labels.join(".");
        for local in ["localhost", "localdomain"] {
            if role.allow_localhost && (rest == local || role.allow_subdomains && below(local)) {
                return true;
            }
        }
        role.allowed_domains.iter().filter(|d| !d.is_empty()).any(|d| {
            let bare = fold(name) == fold(d) || email && fold(host) == fold(d);
            let sub = below(d) || wild.is_some() && fold(&rest) == fold(d);
            let chars = |s: &str| s.chars().collect::<Vec<_>>();
            let globbed = d.contains('*') && reference_match(&chars(d), &chars(name));
            role.allow_bare_domains && bare || role.allow_subdomains && sub || role.allow_glob_domains && globbed
        })
    }

    fn roles() -> impl Strategy<Value = Role> {
        let domains = proptest::collection::vec("([ab*]{0,2}\\.){0,2}[abA@]{1,2}|localhost|[ab.*@-]{0,4}", 0..3);
        (domains, proptest::collection::vec(any::<bool>(), 7)).prop_map(|(allowed_domains, flags)| Role {
            allowed_domains,
            allow_bare_domains: flags[0],
            allow_subdomains: flags[1],
            allow_glob_domains: flags[2],
            allow_any_name: flags[3] && flags[6],
            allow_wildcard_certificates: flags[4],
            enforce_hostnames: flags[5],
            allow_localhost: flags[6],
            ..Role::default()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn policy_agrees_with_an_independent_implementation(
            role in roles(),
            name in "([ab*-]{0,3}[.@]){0,3}[abA]{0,2}|([*a]{1,2}\\.)?localhost|[ab.*@_ -]{0,6}",
        ) {
            prop_assert_eq!(allows(&role, "", &name), reference_allows(&role, &name), "{:?} {:?}", name, role.allowed_domains);
        }

        #[test]
        fn policy_agrees_for_names_built_from_allowed_domains(role in roles(), head in "([ab*]{0,2}[.@]?){0,2}", pick in any::<proptest::sample::Index>()) {
            if !role.allowed_domains.is_empty() {
                let name = format!("{head}{}", pick.get(&role.allowed_domains));
                prop_assert_eq!(allows(&role, "", &name), reference_allows(&role, &name), "{:?} {:?}", name, role.allowed_domains);
            }
        }

        #[test]
        fn name_policy_of_any_text_does_not_panic(role in roles(), name in "\\PC{0,40}", display in "\\PC{0,10}") {
            let _ = allows(&role, &display, &name);
        }
    }
}

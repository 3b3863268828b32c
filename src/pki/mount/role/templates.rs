//! Identity templates in a role's lists, filled in for each caller.
//!
//! An entry is dropped for a request if the identity lacks a value for it, or if the value could be read as several
//! values. A dropped entry allows nothing.

use super::Role;
use crate::error::Result;
use crate::templates::{Template, TemplateValues, is_template};

impl Role {
    /// Checks the lists whose entries are identity templates.
    ///
    /// # Errors
    /// `Invalid` naming the field, for an entry that is not a valid template.
    pub(super) fn check_templates(&self) -> Result<()> {
        for (field, on, list) in [
            ("allowed_domains", self.allowed_domains_template, &self.allowed_domains),
            ("allowed_uri_sans", self.allowed_uri_sans_template, &self.allowed_uri_sans),
        ] {
            if on {
                list.iter().try_for_each(|entry| Template::parse(field, entry).map(drop))?;
            }
        }
        Ok(())
    }

    /// Returns `true` if the names that the role allows depend on the caller.
    pub fn has_templates(&self) -> bool {
        self.allowed_domains_template || self.allowed_uri_sans_template
    }

    /// Returns the role with templates filled in for a caller; `None` for a role without templates.
    pub(super) fn filled_for(&self, identity: Option<&dyn TemplateValues>) -> Option<Self> {
        if !self.has_templates() {
            return None;
        }
        let mut role = self.clone();
        if self.allowed_domains_template {
            role.allowed_domains = fill_templates(&self.allowed_domains, identity, |_, _| true);
        }
        if self.allowed_uri_sans_template {
            role.allowed_uri_sans = fill_templates(&self.allowed_uri_sans, identity, keeps_uri_components);
        }
        Some(role)
    }
}

fn fill_templates(
    list: &[String],
    identity: Option<&dyn TemplateValues>,
    fits: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let fill = |entry: &String| match is_template(entry) {
        true => Template::parse("", entry).ok()?.fill(identity?).ok().filter(|filled| fits(entry, filled)),
        false => Some(entry.clone()),
    };
    list.iter().filter_map(fill).collect()
}

/// Returns `true` if a filled-in URI has the components of its template: the value adds no delimiter that ends a host
/// or path, and no percent-encoding (RFC 3986 2.2 and 3).
fn keeps_uri_components(template: &str, filled: &str) -> bool {
    ['?', '#', '%', '\\', '@', ':'].iter().all(|end| template.matches(*end).count() == filled.matches(*end).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::templates::IdentitySelector;

    struct EntityName(&'static str);

    impl TemplateValues for EntityName {
        fn value(&self, of: &IdentitySelector) -> Option<&str> {
            (*of == IdentitySelector::Name).then_some(self.0)
        }
    }

    fn role() -> Role {
        let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect();
        Role {
            allowed_domains: list(&["plain.test", "{{identity.entity.name}}.x.com", "{{identity.entity.id}}.x.com"]),
            allowed_uri_sans: list(&["spiffe://x/{{identity.entity.name}}/*"]),
            allowed_domains_template: true,
            allowed_uri_sans_template: true,
            ..Role::default()
        }
    }

    #[test]
    fn templates_are_filled_for_one_identity_or_left_out() {
        let role = role();
        role.check_templates().unwrap();
        let bob = role.filled_for(Some(&EntityName("bob"))).unwrap();
        assert_eq!(bob.allowed_domains, ["plain.test", "bob.x.com"]);
        assert_eq!(bob.allowed_uri_sans, ["spiffe://x/bob/*"]);
        for value in ["*", "+", "a,b", "a/b", ""] {
            let filled = role.filled_for(Some(&EntityName(value))).unwrap();
            assert_eq!(filled.allowed_domains, ["plain.test"], "{value:?}");
            assert!(filled.allowed_uri_sans.is_empty());
        }
        for value in ["evil.com?", "admin#", "a%2Fb", "a\\b", "a@b", "a:1"] {
            assert!(role.filled_for(Some(&EntityName(value))).unwrap().allowed_uri_sans.is_empty(), "{value:?}");
        }
        assert_eq!(role.filled_for(None).unwrap().allowed_domains, ["plain.test"]);
    }

    #[test]
    fn lists_without_templates_are_unchanged() {
        let role = Role { allowed_domains_template: false, allowed_uri_sans_template: false, ..role() };
        assert!(role.filled_for(Some(&EntityName("bob"))).is_none());
        let only_uris = Role { allowed_uri_sans_template: true, ..role.clone() };
        assert_eq!(only_uris.filled_for(Some(&EntityName("bob"))).unwrap().allowed_domains, role.allowed_domains);
    }

    #[test]
    fn malformed_domain_templates_are_refused() {
        for entry in ["{{identity.entity.nme}}.x.com", "{{identity.entity.name", "x}}"] {
            let role = Role { allowed_domains: vec![entry.to_owned()], ..role() };
            assert!(role.check_templates().unwrap_err().text().starts_with("allowed_domains: "), "{entry}");
        }
    }
}

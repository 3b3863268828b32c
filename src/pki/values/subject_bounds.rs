//! String types and upper bounds of subject attributes (RFC 5280 appendix A.1). Subjects that violate them are issued
//! with a warning, because many private CAs have such subjects; roles with `strict_subject` reject them.
//!
//! Attributes without a bound in the appendix (street, postal code, user id) have none here.

use crate::error::{Error, Result};
use crate::x509::name::{self, Attribute};
use crate::x509::pieces::Name;
use crate::x509::writer::{IA5_STRING, PRINTABLE_STRING};

/// The string type and length limit of a subject attribute.
struct SubjectBound {
    attribute: Attribute,
    /// Name of the request field, or of the attribute if there is no field.
    field: &'static str,
    /// Maximum number of characters, and the name of this bound in RFC 5280 appendix A.1.
    max_characters: Option<(usize, &'static str)>,
    /// The only permitted string type; `None` for any type.
    tag: Option<u8>,
}

const fn text_bound(
    attribute: Attribute,
    field: &'static str,
    max_characters: usize,
    name: &'static str,
) -> SubjectBound {
    SubjectBound { attribute, field, max_characters: Some((max_characters, name)), tag: None }
}

const SUBJECT_BOUNDS: [SubjectBound; 11] = [
    SubjectBound { attribute: Attribute::Country, field: "country", max_characters: None, tag: Some(PRINTABLE_STRING) },
    text_bound(Attribute::Province, "province", 128, "ub-state-name"),
    text_bound(Attribute::Locality, "locality", 128, "ub-locality-name"),
    text_bound(Attribute::Organization, "organization", 64, "ub-organization-name"),
    text_bound(Attribute::OrganizationalUnit, "ou", 64, "ub-organizational-unit-name"),
    COMMON_NAME_BOUND,
    SERIAL_NUMBER_BOUND,
    text_bound(Attribute::Title, "title", 64, "ub-title"),
    text_bound(Attribute::Surname, "surname", 32768, "ub-name"),
    SubjectBound {
        tag: Some(IA5_STRING),
        ..text_bound(Attribute::EmailAddress, "emailAddress", 255, "ub-emailaddress-length")
    },
    SubjectBound {
        attribute: Attribute::DomainComponent,
        field: "domainComponent",
        max_characters: None,
        tag: Some(IA5_STRING),
    },
];
const COMMON_NAME_BOUND: SubjectBound = text_bound(Attribute::CommonName, "common_name", 64, "ub-common-name");
const SERIAL_NUMBER_BOUND: SubjectBound = SubjectBound {
    tag: Some(PRINTABLE_STRING),
    ..text_bound(Attribute::SerialNumber, "serial_number", 64, "ub-serial-number")
};

impl SubjectBound {
    /// Returns the rule that a value violates, if any; `tag` is the string type of the value.
    fn violated_rule(&self, tag: u8, value: &str) -> Option<String> {
        if self.attribute == Attribute::Country && !(value.len() == 2 && value.bytes().all(|b| b.is_ascii_alphabetic()))
        {
            return Some("must be two letters (RFC 5280 A.1, countryName; ISO 3166)".to_owned());
        }
        if self.tag.is_some_and(|only| only != tag) {
            let word = if self.tag == Some(IA5_STRING) { "IA5String" } else { "PrintableString" };
            return Some(format!("must be a {word} (RFC 5280 A.1)"));
        }
        // Compare bytes first: there are at least as many bytes as characters.
        let (max_characters, name) = self.max_characters?;
        let too_long = value.len() > max_characters && value.chars().count() > max_characters;
        too_long.then(|| format!("must be at most {max_characters} characters long (RFC 5280 A.1, {name})"))
    }

    /// Returns the first violation among values of this attribute that the server will encode.
    fn first_violation(&self, values: &[impl AsRef<str>]) -> Option<String> {
        let rule = values
            .iter()
            .map(AsRef::as_ref)
            .filter(|v| !v.is_empty())
            .find_map(|v| self.violated_rule(self.attribute.string_tag(v), v))?;
        Some(format!("{}: {rule}", self.field))
    }
}

/// Returns the violations in a role's subject, at most one per attribute. `values` has the order C, ST, L, O, OU.
pub(crate) fn role_violations(values: [&[String]; 5]) -> Vec<String> {
    SUBJECT_BOUNDS.iter().zip(values).filter_map(|(bound, values)| bound.first_violation(values)).collect()
}

/// Returns the violations in the subject attributes of a request.
pub(crate) fn name_violations(common_name: &str, serial_number: &str) -> Vec<String> {
    let own = [(&COMMON_NAME_BOUND, common_name), (&SERIAL_NUMBER_BOUND, serial_number)];
    own.into_iter().filter_map(|(bound, value)| bound.first_violation(&[value])).collect()
}

/// Returns the violations in a complete Name, at most one per attribute. `source` is the field that contains the Name,
/// if there is one.
pub(crate) fn subject_violations(source: Option<&str>, subject: &Name) -> Vec<String> {
    let violations = |bound: &SubjectBound| {
        // Values that cannot be read are rejected when the certificate is checked.
        let tags = name::tagged_values(subject.as_der(), bound.attribute).ok()?;
        let values = subject.values(bound.attribute).ok()?;
        let rule = tags.iter().zip(&values).find_map(|((tag, _), value)| bound.violated_rule(*tag, value))?;
        Some(match source {
            Some(source) => format!("{source}: {} {rule}", bound.field),
            None => format!("{}: {rule}", bound.field),
        })
    };
    SUBJECT_BOUNDS.iter().filter_map(violations).collect()
}

/// Returns the violations as warnings. With `strict_subject`, the first violation is an error.
///
/// # Errors
/// `Invalid` naming field and rule.
pub(crate) fn reject_if_strict(strict: bool, mut violations: Vec<String>) -> Result<Vec<String>> {
    if strict && !violations.is_empty() {
        return Err(Error::invalid(format!("{}: rejected by strict_subject", violations.remove(0))));
    }
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x509::name::rdn;

    fn violations(attribute: Attribute, values: &[&str]) -> Vec<String> {
        let values: Vec<String> = values.iter().map(|&v| v.to_owned()).collect();
        subject_violations(None, &name::name(&[&rdn(attribute, &values)]))
    }

    #[test]
    fn upper_bounds_count_characters_and_name_their_rule() {
        for bound in SUBJECT_BOUNDS.iter().filter(|b| b.tag.is_none()) {
            let (max_characters, name) = bound.max_characters.unwrap();
            assert!(violations(bound.attribute, &[&"ü".repeat(max_characters)]).is_empty(), "{name}");
            let texts = violations(bound.attribute, &["a", &"b".repeat(max_characters + 1)]);
            assert_eq!(texts.len(), 1, "{name}");
            assert!(texts[0].starts_with(bound.field) && texts[0].contains(name), "{texts:?}");
        }
        assert!(violations(Attribute::SerialNumber, &[&"1".repeat(64)]).is_empty());
        assert!(violations(Attribute::SerialNumber, &[&"1".repeat(65)])[0].contains("ub-serial-number"));
    }

    #[test]
    fn subject_string_types_match_rfc_5280_appendix_a() {
        for (attribute, good, bad) in [
            (Attribute::Country, "NZ", ["New Zealand", "N", "N1", "ÄÖ", "ü"].as_slice()),
            (Attribute::SerialNumber, "12-34", &["1_2", "ü", "a@b"]),
            (Attribute::DomainComponent, "example", &["bücher"]),
            (Attribute::EmailAddress, "a@b.test", &["ü@b.test"]),
        ] {
            assert!(violations(attribute, &[good]).is_empty(), "{good}");
            for bad in bad {
                assert_eq!(violations(attribute, &[good, bad]).len(), 1, "{bad}");
            }
        }
        assert!(violations(Attribute::UserId, &[&"ü".repeat(5000)]).is_empty());
        assert!(violations(Attribute::PostalCode, &[&"1".repeat(5000)]).is_empty());
        assert!(subject_violations(Some("csr"), &Name::from_der(b"\x30\x01a").unwrap()).is_empty());
    }
}

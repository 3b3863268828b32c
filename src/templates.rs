//! Templates with identity values, such as `{{identity.entity.name}}.example.com`. This module uses neither storage nor
//! the clock.
//!
//! Policies use templates in paths; roles of the certificate authority use them in allowed names. A [`Template`] is a
//! parsed text; a [`TemplateValues`] supplies the values. A value that could be read as more than one value (a pattern,
//! a list, several path segments) is not filled in, so that the name of an identity cannot widen a rule. Templates are:
//!
//! - `identity.entity.FIELD`, in which `FIELD` is `id`, `name` or `metadata.<key>`;
//! - `identity.entity.aliases.<accessor>.FIELD` with the same fields, for the alias at one mount;
//! - `identity.groups.…`, which is accepted, but no identity has a value for it.

use crate::error::{Error, Result};

/// Maximum length in bytes of a filled template: more than any name, URI or path of a rule may have.
const MAX_FILLED_BYTES: usize = 2_048;

/// The value of an identity that a template refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentitySelector {
    /// The id of the entity.
    Id,
    /// The name of the entity.
    Name,
    /// The value of the entity's metadata under this key.
    Metadata(String),
    /// A value of the entity's alias at one mount.
    Alias {
        /// Accessor of the mount to which the alias belongs.
        accessor: String,
        /// The value of the alias that the template refers to.
        of: AliasSelector,
    },
    /// A value of a group. Groups are not supported, so there is never such a value.
    Group,
}

/// The value of an alias that a template refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AliasSelector {
    /// The id of the alias.
    Id,
    /// The name of the entity at the mount.
    Name,
    /// The value of the alias's metadata under this key.
    Metadata(String),
}

/// An identity that supplies the values for templates.
pub trait TemplateValues: Send + Sync {
    /// Returns the value that `of` refers to; `None` if the identity has no such value.
    fn value(&self, of: &IdentitySelector) -> Option<&str>;
}

/// A parsed text that may contain templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<TemplatePiece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(String),
    Value(IdentitySelector),
}

/// The reason why a template could not be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfilledReason {
    /// The identity has no such value.
    Unknown,
    /// The value could be read as more than one value, such as a pattern or a list.
    Unsafe,
}

/// `true` if a text contains template braces (`{{` or `}}`).
pub fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("}}")
}

impl Template {
    /// Parses a text that may contain templates; errors name `field` and the violated rule.
    ///
    /// # Errors
    /// `Invalid` for unclosed braces and for an unknown selector.
    pub fn parse(field: &str, text: &str) -> Result<Self> {
        let refuse = |rule: &str| Error::invalid(format!("{field}: {rule}"));
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, opened)) = rest.split_once("{{") {
            let (inside, after) = opened.split_once("}}").ok_or_else(|| refuse("\"{{\" has no closing \"}}\""))?;
            pieces.push(TemplatePiece::Text(before.to_owned()));
            let selector = IdentitySelector::parse(inside.trim()).ok_or_else(|| {
                refuse(
                    "unknown template; known are identity.entity.id, .name, .metadata.KEY and .aliases.ACCESSOR.FIELD",
                )
            })?;
            pieces.push(TemplatePiece::Value(selector));
            rest = after;
        }
        pieces.push(TemplatePiece::Text(rest.to_owned()));
        let stray = |piece: &TemplatePiece| matches!(piece, TemplatePiece::Text(text) if text.contains("}}"));
        if pieces.iter().any(stray) {
            return Err(refuse("\"}}\" has no opening \"{{\""));
        }
        pieces.retain(|piece| !matches!(piece, TemplatePiece::Text(text) if text.is_empty()));
        Ok(Self(pieces))
    }

    /// Returns the text with all templates replaced by values of `identity`.
    ///
    /// # Errors
    /// The reason why a template cannot be filled.
    pub fn fill(&self, identity: &dyn TemplateValues) -> Result<String, UnfilledReason> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(text) => filled.push_str(text),
                TemplatePiece::Value(selector) => {
                    let value = identity.value(selector).ok_or(UnfilledReason::Unknown)?;
                    if filled.len() + value.len() > MAX_FILLED_BYTES {
                        return Err(UnfilledReason::Unsafe);
                    }
                    filled.push_str(Some(value).filter(|value| is_one_value(value)).ok_or(UnfilledReason::Unsafe)?);
                }
            }
        }
        Ok(filled)
    }
}

/// `true` if every context reads `value` as one value: it is not empty and contains no wildcard (`*`, `+`), path
/// separator (`/`), list separator (`,`), template, `..` or control character.
fn is_one_value(value: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '*' | '+' | '/' | ',' | '{' | '}');
    !value.is_empty() && value.chars().all(is_plain) && !value.contains("..")
}

impl IdentitySelector {
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("identity.")?;
        if let Some(group) = text.strip_prefix("groups.") {
            return (!group.is_empty()).then_some(Self::Group);
        }
        match text.strip_prefix("entity.")? {
            "id" => Some(Self::Id),
            "name" => Some(Self::Name),
            other => match other.split_once('.')? {
                ("metadata", key) => parse_key(key).map(Self::Metadata),
                ("aliases", alias) => {
                    let (accessor, of) = alias.split_once('.')?;
                    let of = match of {
                        "id" => AliasSelector::Id,
                        "name" => AliasSelector::Name,
                        other => AliasSelector::Metadata(parse_key(other.strip_prefix("metadata.")?)?),
                    };
                    (!accessor.is_empty()).then(|| Self::Alias { accessor: accessor.to_owned(), of })
                }
                _ => None,
            },
        }
    }
}

fn parse_key(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct FixedValues(&'static str);

    impl TemplateValues for FixedValues {
        fn value(&self, of: &IdentitySelector) -> Option<&str> {
            (*of != IdentitySelector::Group).then_some(self.0)
        }
    }

    fn fill_template(text: &str, value: &'static str) -> Result<String, UnfilledReason> {
        Template::parse("field", text).unwrap().fill(&FixedValues(value))
    }

    #[test]
    fn texts_are_filled_with_one_value_for_each_template() {
        assert_eq!(fill_template("plain", "bob").as_deref(), Ok("plain"));
        assert_eq!(fill_template("a/{{identity.entity.name}}/b*", "bob").as_deref(), Ok("a/bob/b*"));
        assert_eq!(fill_template("{{ identity.entity.id }}{{identity.entity.name}}", "bob").as_deref(), Ok("bobbob"));
        assert_eq!(fill_template("{{identity.groups.ids.1.name}}", "bob"), Err(UnfilledReason::Unknown));
    }

    #[test]
    fn template_refuses_values_with_special_characters() {
        for value in ["*", "a*", "+", "a/b", "a,b", "", "..", "a..b", "a\nb", "a\u{0}", "{{x}}", "a}"] {
            assert_eq!(
                fill_template("{{identity.entity.metadata.k}}", value),
                Err(UnfilledReason::Unsafe),
                "{value:?}"
            );
        }
        for value in ["bob", "bob@example.com", "a.b", "ü", "a b", "10.0.0.1", "a:b", "-"] {
            assert_eq!(fill_template("{{identity.entity.metadata.k}}", value).as_deref(), Ok(value));
        }
    }

    #[test]
    fn identity_selector_is_parsed_as_a_whole() {
        let alias = |of| Some(IdentitySelector::Alias { accessor: "jwt_1".to_owned(), of });
        for (text, selector) in [
            ("identity.entity.metadata.a.b", Some(IdentitySelector::Metadata("a.b".to_owned()))),
            ("identity.entity.aliases.jwt_1.id", alias(AliasSelector::Id)),
            ("identity.entity.aliases.jwt_1.name", alias(AliasSelector::Name)),
            ("identity.entity.aliases.jwt_1.metadata.a.b", alias(AliasSelector::Metadata("a.b".to_owned()))),
            ("identity.groups.names.x.id", Some(IdentitySelector::Group)),
            ("identity.groups.", None),
            ("identity.entity", None),
            ("identity.entity.", None),
            ("identity.entity.names", None),
            ("identity.entity.metadata.", None),
            ("identity.entity.aliases..name", None),
            ("identity.entity.aliases.jwt_1", None),
            ("identity.entity.aliases.jwt_1.metadata", None),
            ("Identity.entity.name", None),
            ("", None),
        ] {
            assert_eq!(IdentitySelector::parse(text), selector, "{text}");
        }
        for text in ["{{identity.entity.name", "identity.entity.name}}", "{{x}}", "{{{{identity.entity.name}}}}"] {
            assert!(is_template(text));
            assert!(Template::parse("field", text).unwrap_err().text().starts_with("field: "), "{text}");
        }
    }

    proptest! {
        #[test]
        fn template_value_adds_no_special_characters(text in "([a-z/*+,]|\\{\\{identity\\.entity\\.name\\}\\}){0,8}", value in "\\PC{0,6}|[a-z*+/,.]{0,3}") {
            struct OwnedValue(String);
            impl TemplateValues for OwnedValue {
                fn value(&self, _: &IdentitySelector) -> Option<&str> {
                    Some(&self.0)
                }
            }
            let template = Template::parse("field", &text).unwrap();
            if let Ok(filled) = template.fill(&OwnedValue(value)) {
                for sign in ['*', '+', '/', ','] {
                    prop_assert_eq!(filled.matches(sign).count(), text.matches(sign).count());
                }
            }
        }

        #[test]
        fn template_of_any_text_does_not_panic(text in "\\PC{0,40}|[{}a-z.]{0,30}") {
            let _ = Template::parse("field", &text);
        }
    }
}

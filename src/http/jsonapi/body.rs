//! The document of a request (JSON:API 1.1, section 7): shape, type, id.
//!
//! A body is parsed before its session begins ([`Document`]), and every list is counted before it is walked:
//! what somebody sends is never long where changes are committed.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::error::{Error, Kind};
use crate::fields;
use crate::projects::attributes::{Attributes, Given};
use crate::projects::refusal::{Fault, Faults, Outcome, Refusal};
use crate::projects::tag::{self, Named, Tag};

/// Most resources that one list of a body names. With it the longest legal document, an agent pool with its
/// three lists, has 9,012 values of the [`fields::MAX_VALUES`] that a body may have.
pub const MOST_NAMED: usize = 1000;

/// Longest id, characters: nothing here has a longer one, not even users, who are named by their names.
const LONGEST_ID: usize = 256;

/// A body as far as it reads. What is wrong with it is told when a handler asks for it: who may not act hears
/// that first.
#[derive(Clone, Debug, Default)]
pub struct Document(Option<Result<Value, (Kind, Fault)>>);

impl Document {
    /// Parses a body, at most as deep and with as many values as [`fields::bounded`] takes. Where there are more of
    /// them because a list has more than [`MOST_NAMED`] elements, it is the rule of lists that is broken.
    pub fn parse(body: &[u8]) -> Self {
        let told = |error: Error| (error.kind(), Fault::whole(error.text().to_owned()));
        let read = || fields::bounded_with_lists(body, fields::MAX_TEXT, MOST_NAMED).map_err(told);
        Self((!body.is_empty()).then(read))
    }

    /// Whether there was no body.
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// The member `data`.
    ///
    /// # Errors
    /// `Malformed` for what is absent, not JSON, or too complex; `Invalid` for another shape, or a list that goes on
    /// for longer than is read.
    pub fn data(&self) -> Outcome<&Value> {
        match &self.0 {
            None => Err(Refusal::new(Kind::Malformed, "request body: is missing").into()),
            Some(Err((kind, fault))) => Err(Refusal::of(*kind, vec![fault.clone()]).into()),
            Some(Ok(Value::Object(document))) => {
                document.get("data").ok_or_else(|| Refusal::at("/data", "data is missing").into())
            }
            Some(Ok(_)) => Err(Refusal::at("", "the document must be an object").into()),
        }
    }

    /// The elements of `data`, at most `most` of what `kind` calls them.
    ///
    /// # Errors
    /// As [`Document::data`]; `Invalid` for what is no array, or a longer one.
    pub fn list(&self, most: usize, kind: &str) -> Outcome<&[Value]> {
        match self.data()? {
            Value::Array(elements) if elements.len() <= most => Ok(elements),
            Value::Array(_) => Err(Refusal::at("/data", format!("data may have at most {most} {kind}")).into()),
            _ => Err(Refusal::at("/data", "data must be an array").into()),
        }
    }

    /// The tags of a body whose `data` is an array of bindings.
    ///
    /// # Errors
    /// As [`Document::list`]; `Invalid` for what is no tag.
    pub fn tag_bindings(&self) -> Outcome<Vec<Tag>> {
        self.tags(tag::read)
    }

    /// The tags of a body whose `data` is an array of flat tags.
    ///
    /// # Errors
    /// As [`Document::tag_bindings`].
    pub fn flat_tags(&self) -> Outcome<Vec<Tag>> {
        self.tags(tag::read_flat)
    }

    /// The flat tags that a body names to take them away.
    ///
    /// # Errors
    /// As [`Document::tag_bindings`].
    pub fn named_tags(&self) -> Outcome<Named> {
        self.tags(tag::read_named)
    }

    fn tags<T>(&self, read: impl FnOnce(&mut Attributes<'_>, &[Value], &str) -> T) -> Outcome<T> {
        let elements = self.list(tag::MOST_SENT, "tags")?;
        let mut faults = Attributes::new(&NONE);
        let tags = read(&mut faults, elements, "/data");
        faults.finish()?;
        Ok(tags)
    }
}

/// The primary resource of a request.
pub struct Resource<'c> {
    attributes: &'c Map<String, Value>,
    relationships: &'c Map<String, Value>,
}

/// What `data.type` must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeRule<'k> {
    /// Exactly this; absent is refused.
    Exact(&'k str),
    /// Anything: known clients send an empty one, or no body at all.
    Any,
}

/// The members of what is absent.
static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl<'c> Resource<'c> {
    /// The resource of a body. `id` is that of the resource which the path names, if it names one: a
    /// different one in the body is refused.
    ///
    /// # Errors
    /// As [`Document::data`]; `Conflict` for another type or id.
    pub fn read(document: &'c Document, rule: TypeRule<'_>, id: Option<&str>) -> Outcome<Self> {
        if document.is_absent() && rule == TypeRule::Any {
            return Ok(Self { attributes: &NONE, relationships: &NONE });
        }
        let Value::Object(data) = document.data()? else {
            return Err(Refusal::at("/data", "data must be an object").into());
        };
        if let TypeRule::Exact(kind) = rule {
            match data.get("type") {
                Some(Value::String(given)) if given == kind => {}
                Some(Value::String(_)) => {
                    let fault = Fault::at("/data/type", format!("type must be {kind}"));
                    return Err(Refusal::of(Kind::Conflict, vec![fault]).into());
                }
                Some(_) => return Err(Refusal::at("/data/type", "type must be a string").into()),
                None => return Err(Refusal::at("/data/type", "type is missing").into()),
            }
        }
        if let (Some(id), Some(given)) = (id, data.get("id").filter(|given| !given.is_null()))
            && given.as_str() != Some(id)
        {
            let fault = Fault::at("/data/id", "id must be that of the resource in the path");
            return Err(Refusal::of(Kind::Conflict, vec![fault]).into());
        }
        let member = |name: &'static str| match data.get(name) {
            None | Some(Value::Null) => Ok(&*NONE),
            Some(Value::Object(members)) => Ok(members),
            Some(_) => Err(Refusal::at(format!("/data/{name}"), format!("{name} must be an object"))),
        };
        Ok(Self { attributes: member("attributes")?, relationships: member("relationships")? })
    }

    /// The attributes.
    pub fn attributes(&self) -> &'c Map<String, Value> {
        self.attributes
    }

    /// The id that a relationship to one resource names: `None` when the relationship is absent, `Some(None)`
    /// when it is emptied.
    ///
    /// # Errors
    /// `Invalid` for another shape.
    pub fn to_one(&self, name: &str) -> Outcome<Option<Option<String>>> {
        let Some(relationship) = self.relationships.get(name) else { return Ok(None) };
        let pointer = format!("/data/relationships/{name}/data/id");
        match relationship.get("data") {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(data) => match id_of(data) {
                Some(id) => Ok(Some(Some(id.to_owned()))),
                None => Err(Refusal::at(pointer, format!("{name} must name one resource by its id")).into()),
            },
        }
    }

    /// As [`Resource::to_one`], for rules that tell what is absent from what is emptied.
    ///
    /// # Errors
    /// As [`Resource::to_one`].
    pub fn related(&self, name: &str) -> Outcome<Given<String>> {
        Ok(match self.to_one(name)? {
            None => Given::Absent,
            Some(None) => Given::Null,
            Some(Some(id)) => Given::Value(id),
        })
    }

    /// The elements of a relationship to at most `most` resources; `None` when the relationship is absent.
    ///
    /// # Errors
    /// `Invalid` for another shape, or more elements.
    pub fn to_many(&self, name: &str, most: usize) -> Outcome<Option<&'c [Value]>> {
        let Some(relationship) = self.relationships.get(name) else { return Ok(None) };
        let refused = |rule: String| Err(Refusal::at(format!("/data/relationships/{name}/data"), rule).into());
        match relationship.get("data") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(elements)) if elements.len() <= most => Ok(Some(elements)),
            Some(Value::Array(_)) => refused(format!("{name} may have at most {most} elements")),
            Some(_) => refused(format!("{name} must be an array")),
        }
    }

    /// The tags of the relationship `tag-bindings`; `None` when it is absent.
    ///
    /// # Errors
    /// `Invalid` for another shape; what is wrong with the tags is left in `attributes`.
    pub fn tag_bindings(&self, attributes: &mut Attributes<'_>) -> Outcome<Option<Vec<Tag>>> {
        let place = "/data/relationships/tag-bindings/data";
        let elements = self.to_many("tag-bindings", tag::MOST_SENT)?;
        Ok(elements.map(|elements| tag::read(attributes, elements, place)))
    }

    /// The flat tags of the relationship `tags`.
    ///
    /// # Errors
    /// As [`Resource::tag_bindings`].
    pub fn flat_tags(&self, attributes: &mut Attributes<'_>) -> Outcome<Vec<Tag>> {
        let elements = self.to_many("tags", tag::MOST_SENT)?.unwrap_or_default();
        Ok(tag::read_flat(attributes, elements, "/data/relationships/tags/data"))
    }
}

/// What is wrong where an element has no [`id_of`].
pub const NO_ID: &str = "id must be a string of at most 256 characters";

/// The id of a resource. The character NUL is in none: not every store can look for it.
pub fn id_of(resource: &Value) -> Option<&str> {
    let sound = |id: &&str| id.chars().nth(LONGEST_ID).is_none() && !id.contains('\0');
    resource.get("id").and_then(Value::as_str).filter(sound)
}

/// The ids of a body whose `data` is an array of resources of one type.
///
/// # Errors
/// As [`Document::list`]; `Invalid` for another type or no id of an element.
pub fn identifiers(document: &Document, kind: &str) -> Outcome<Vec<String>> {
    ids_of(document, TypeRule::Exact(kind), kind)
}

/// As [`identifiers`], whatever type the elements say they have.
///
/// # Errors
/// As [`identifiers`].
pub fn names(document: &Document) -> Outcome<Vec<String>> {
    ids_of(document, TypeRule::Any, "resources")
}

fn ids_of(document: &Document, rule: TypeRule<'_>, called: &str) -> Outcome<Vec<String>> {
    let elements = document.list(MOST_NAMED, called)?;
    let mut faults = Faults::default();
    let mut ids = Vec::with_capacity(elements.len());
    for (n, element) in elements.iter().enumerate() {
        if let TypeRule::Exact(kind) = rule
            && element.get("type").and_then(Value::as_str) != Some(kind)
        {
            faults.push(Fault::at(format!("/data/{n}/type"), format!("type must be {kind}")));
        }
        match id_of(element) {
            Some(id) => ids.push(id.to_owned()),
            None => faults.push(Fault::at(format!("/data/{n}/id"), NO_ID)),
        }
    }
    faults.finish(Kind::Invalid)?;
    Ok(ids)
}

//! Request documents (JSON:API 1.1, section 7): shape, type, id.
//!
//! A body is parsed before its session begins ([`RequestDocument`]), and the length of each list is limited, so that no
//! session spends time on long input.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::error::{Error, Kind};
use crate::fields;
use crate::projects::attributes::{AttributeReader, AttributeValue};
use crate::projects::rejection::{ApiRejection, Fault, Faults, WorkResult};
use crate::projects::tag::{self, Tag, TagSelection};

/// Maximum number of resources in one list of a body. The longest valid document (an agent pool with its three lists)
/// then has 9,012 values, which [`fields::MAX_VALUES`] allows.
pub const MAX_RESOURCES_PER_LIST: usize = 1000;

/// Maximum length of an id, in characters. The longest ids are user names.
const MAX_ID_CHARACTERS: usize = 256;

/// A parsed request body, or its parse error. The error is returned when a handler reads the document, so that an
/// unauthorized caller gets the authorization error first.
#[derive(Clone, Debug, Default)]
pub struct RequestDocument(Option<Result<Value, (Kind, Fault)>>);

impl RequestDocument {
    /// Parses a body with the limits of [`fields::parse_bounded`] on depth and values. A list with more than
    /// [`MAX_RESOURCES_PER_LIST`] elements gets a separate error.
    pub fn parse(body: &[u8]) -> Self {
        let as_fault = |error: Error| (error.kind(), Fault::without_source(error.text().to_owned()));
        let read =
            || fields::parse_with_list_limit(body, fields::MAX_TEXT_BYTES, MAX_RESOURCES_PER_LIST).map_err(as_fault);
        Self((!body.is_empty()).then(read))
    }

    /// `true` if the request had no body.
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the member `data`.
    ///
    /// # Errors
    /// `Malformed` if the body is missing, is not JSON or is too complex; `Invalid` if it has another shape, or a list
    /// that is too long.
    pub fn data(&self) -> WorkResult<&Value> {
        match &self.0 {
            None => Err(ApiRejection::new(Kind::Malformed, "request body: must be given").into()),
            Some(Err((kind, fault))) => Err(ApiRejection::of(*kind, vec![fault.clone()]).into()),
            Some(Ok(Value::Object(document))) => {
                document.get("data").ok_or_else(|| ApiRejection::at("/data", "data is missing").into())
            }
            Some(Ok(_)) => Err(ApiRejection::at("", "the document must be an object").into()),
        }
    }

    /// Returns the elements of `data`, at most `max`. `kind` is the word for them in error messages.
    ///
    /// # Errors
    /// As [`RequestDocument::data`]; `Invalid` if `data` is no array or too long.
    pub fn list(&self, max: usize, kind: &str) -> WorkResult<&[Value]> {
        match self.data()? {
            Value::Array(elements) if elements.len() <= max => Ok(elements),
            Value::Array(_) => Err(ApiRejection::at("/data", format!("data may have at most {max} {kind}")).into()),
            _ => Err(ApiRejection::at("/data", "data must be an array").into()),
        }
    }

    /// Returns the tags of a body whose `data` is an array of bindings.
    ///
    /// # Errors
    /// As [`RequestDocument::list`]; `Invalid` for an invalid tag.
    pub fn tag_bindings(&self) -> WorkResult<Vec<Tag>> {
        self.read_tags(tag::parse_bindings)
    }

    /// Returns the tags of a body whose `data` is an array of flat tags, which have no value.
    ///
    /// # Errors
    /// As [`RequestDocument::tag_bindings`].
    pub fn flat_tags(&self) -> WorkResult<Vec<Tag>> {
        self.read_tags(tag::read_flat)
    }

    /// Returns the flat tags to be removed, each named by its id, its name or both.
    ///
    /// # Errors
    /// As [`RequestDocument::tag_bindings`].
    pub fn named_tags(&self) -> WorkResult<TagSelection> {
        self.read_tags(tag::read_selection)
    }

    fn read_tags<T>(&self, read: impl FnOnce(&mut AttributeReader<'_>, &[Value], &str) -> T) -> WorkResult<T> {
        let elements = self.list(tag::MAX_TAGS_PER_REQUEST, "tags")?;
        let mut faults = AttributeReader::new(&NO_MEMBERS);
        let tags = read(&mut faults, elements, "/data");
        faults.finish()?;
        Ok(tags)
    }
}

/// The primary resource in a request document.
pub struct PrimaryResource<'c> {
    attributes: &'c Map<String, Value>,
    relationships: &'c Map<String, Value>,
}

/// Rule for the member `data.type` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeRule<'k> {
    /// Exactly this type, which must be present.
    Exact(&'k str),
    /// Any or no type: known clients send an empty type, or no body.
    Any,
}

static NO_MEMBERS: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl<'c> PrimaryResource<'c> {
    /// Reads the primary resource of a body. `id` is the id in the path, if any: an id in the body must be equal to it.
    ///
    /// # Errors
    /// As [`RequestDocument::data`]; `Conflict` if the body has another type or another id.
    pub fn read(document: &'c RequestDocument, rule: TypeRule<'_>, id: Option<&str>) -> WorkResult<Self> {
        if document.is_absent() && rule == TypeRule::Any {
            return Ok(Self { attributes: &NO_MEMBERS, relationships: &NO_MEMBERS });
        }
        let Value::Object(data) = document.data()? else {
            return Err(ApiRejection::at("/data", "data must be an object").into());
        };
        if let TypeRule::Exact(kind) = rule {
            match data.get("type") {
                Some(Value::String(given)) if given == kind => {}
                Some(Value::String(_)) => {
                    let fault = Fault::at("/data/type", format!("type must be {kind}"));
                    return Err(ApiRejection::of(Kind::Conflict, vec![fault]).into());
                }
                Some(_) => return Err(ApiRejection::at("/data/type", "type must be a string").into()),
                None => return Err(ApiRejection::at("/data/type", "type is missing").into()),
            }
        }
        if let (Some(id), Some(given)) = (id, data.get("id").filter(|given| !given.is_null()))
            && given.as_str() != Some(id)
        {
            let fault = Fault::at("/data/id", "id must be that of the resource in the path");
            return Err(ApiRejection::of(Kind::Conflict, vec![fault]).into());
        }
        let member = |name: &'static str| match data.get(name) {
            None | Some(Value::Null) => Ok(&*NO_MEMBERS),
            Some(Value::Object(members)) => Ok(members),
            Some(_) => Err(ApiRejection::at(format!("/data/{name}"), format!("{name} must be an object"))),
        };
        Ok(Self { attributes: member("attributes")?, relationships: member("relationships")? })
    }

    /// Returns the attributes of the resource.
    pub fn attributes(&self) -> &'c Map<String, Value> {
        self.attributes
    }

    /// Reads the attributes with `read`. All attributes are checked before an error is returned.
    ///
    /// # Errors
    /// `Invalid` with all faults of the attributes.
    pub fn read_attributes<T>(&self, read: impl FnOnce(&mut AttributeReader<'_>) -> T) -> WorkResult<T> {
        let mut attributes = AttributeReader::new(self.attributes);
        let value = read(&mut attributes);
        attributes.finish()?;
        Ok(value)
    }

    /// Returns the id in a to-one relationship: `None` when the relationship is absent, `Some(None)` when it is null.
    ///
    /// # Errors
    /// `Invalid` if the relationship has another shape.
    pub fn to_one(&self, name: &str) -> WorkResult<Option<Option<String>>> {
        let Some(relationship) = self.relationships.get(name) else { return Ok(None) };
        let pointer = format!("/data/relationships/{name}/data/id");
        match relationship.get("data") {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(data) => match id_of(data) {
                Some(id) => Ok(Some(Some(id.to_owned()))),
                None => Err(ApiRejection::at(pointer, format!("{name} must name one resource by its id")).into()),
            },
        }
    }

    /// As [`PrimaryResource::to_one`], for a relationship that a request must have.
    ///
    /// # Errors
    /// As [`PrimaryResource::to_one`], and `Invalid` when the relationship is absent or null.
    pub fn required_to_one(&self, name: &str) -> WorkResult<String> {
        let detail = format!("{name} must name one resource by its id");
        let missing = || ApiRejection::at(format!("/data/relationships/{name}"), detail);
        Ok(self.to_one(name)?.flatten().ok_or_else(missing)?)
    }

    /// As [`PrimaryResource::to_one`], but returns a type that distinguishes an absent relationship from a null one.
    ///
    /// # Errors
    /// As [`PrimaryResource::to_one`].
    pub fn related(&self, name: &str) -> WorkResult<AttributeValue<String>> {
        Ok(match self.to_one(name)? {
            None => AttributeValue::Absent,
            Some(None) => AttributeValue::Null,
            Some(Some(id)) => AttributeValue::Value(id),
        })
    }

    /// Returns the elements of a to-many relationship; `None` when it is absent.
    ///
    /// # Errors
    /// `Invalid` if the relationship has another shape or more than `max` elements.
    pub fn to_many(&self, name: &str, max: usize) -> WorkResult<Option<&'c [Value]>> {
        let Some(relationship) = self.relationships.get(name) else { return Ok(None) };
        let refused = |rule: String| Err(ApiRejection::at(format!("/data/relationships/{name}/data"), rule).into());
        match relationship.get("data") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(elements)) if elements.len() <= max => Ok(Some(elements)),
            Some(Value::Array(_)) => refused(format!("{name} may have at most {max} elements")),
            Some(_) => refused(format!("{name} must be an array")),
        }
    }

    /// Returns the tags of the relationship `tag-bindings`; `None` when it is absent.
    ///
    /// # Errors
    /// `Invalid` if the relationship has another shape. Errors in the tags are added to `attributes`.
    pub fn tag_bindings(&self, attributes: &mut AttributeReader<'_>) -> WorkResult<Option<Vec<Tag>>> {
        let pointer = "/data/relationships/tag-bindings/data";
        let elements = self.to_many("tag-bindings", tag::MAX_TAGS_PER_REQUEST)?;
        Ok(elements.map(|elements| tag::parse_bindings(attributes, elements, pointer)))
    }

    /// Returns the flat tags of the relationship `tags`.
    ///
    /// # Errors
    /// As [`PrimaryResource::tag_bindings`].
    pub fn flat_tags(&self, attributes: &mut AttributeReader<'_>) -> WorkResult<Vec<Tag>> {
        let elements = self.to_many("tags", tag::MAX_TAGS_PER_REQUEST)?.unwrap_or_default();
        Ok(tag::read_flat(attributes, elements, "/data/relationships/tags/data"))
    }
}

/// Error text for an element without a valid id.
pub const INVALID_ID_DETAIL: &str = "id must be a string of at most 256 characters";

/// Returns the id of a resource object; `None` if it is invalid. An id with a NUL is invalid, because some stores
/// cannot search for it.
pub fn id_of(resource: &Value) -> Option<&str> {
    let sound = |id: &&str| id.chars().nth(MAX_ID_CHARACTERS).is_none() && !id.contains('\0');
    resource.get("id").and_then(Value::as_str).filter(sound)
}

/// Returns the ids of a body whose `data` is an array of resources of one type.
///
/// # Errors
/// As [`RequestDocument::list`]; `Invalid` if a resource has another type or an invalid id.
pub fn read_typed_ids(document: &RequestDocument, kind: &str) -> WorkResult<Vec<String>> {
    read_ids(document, TypeRule::Exact(kind), kind)
}

/// As [`read_typed_ids`], for elements of any type.
///
/// # Errors
/// As [`read_typed_ids`].
pub fn read_untyped_ids(document: &RequestDocument) -> WorkResult<Vec<String>> {
    read_ids(document, TypeRule::Any, "resources")
}

fn read_ids(document: &RequestDocument, rule: TypeRule<'_>, resource_kind: &str) -> WorkResult<Vec<String>> {
    let elements = document.list(MAX_RESOURCES_PER_LIST, resource_kind)?;
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
            None => faults.push(Fault::at(format!("/data/{n}/id"), INVALID_ID_DETAIL)),
        }
    }
    faults.finish(Kind::Invalid)?;
    Ok(ids)
}

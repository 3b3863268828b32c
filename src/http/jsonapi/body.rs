//! The document of a request (JSON:API 1.1, section 7): shape, type, id.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::route::Call;
use crate::error::Kind;
use crate::projects::refusal::{Fault, Outcome, Refusal};

/// The primary resource of a request.
pub struct Resource {
    attributes: Map<String, Value>,
    relationships: Map<String, Value>,
}

/// What `data.type` must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeRule<'k> {
    /// Exactly this; absent is refused.
    Exact(&'k str),
    /// Anything: known clients send an empty one, or no body at all.
    Any,
}

impl Resource {
    /// The resource of a body. `id` is that of the resource which the path names, if it names one: a
    /// different one in the body is refused.
    ///
    /// # Errors
    /// `Malformed` for what is not JSON; `Invalid` for another shape; `Conflict` for another type or id.
    pub fn read(call: &Call, rule: TypeRule<'_>, id: Option<&str>) -> Outcome<Self> {
        if call.body.is_empty() && rule == TypeRule::Any {
            return Ok(Self { attributes: Map::new(), relationships: Map::new() });
        }
        let mut data = match data(&call.body)? {
            Value::Object(data) => data,
            _ => return Err(Refusal::at("/data", "data must be an object").into()),
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
        let mut member = |name: &'static str| match data.remove(name) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(members)) => Ok(members),
            Some(_) => Err(Refusal::at(format!("/data/{name}"), format!("{name} must be an object"))),
        };
        Ok(Self { attributes: member("attributes")?, relationships: member("relationships")? })
    }

    /// The attributes.
    pub fn attributes(&self) -> &Map<String, Value> {
        &self.attributes
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

    /// The elements of a relationship to several resources; `None` when the relationship is absent.
    ///
    /// # Errors
    /// `Invalid` for another shape.
    pub fn to_many(&self, name: &str) -> Outcome<Option<&[Value]>> {
        let Some(relationship) = self.relationships.get(name) else { return Ok(None) };
        match relationship.get("data") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(elements)) => Ok(Some(elements)),
            Some(_) => {
                let pointer = format!("/data/relationships/{name}/data");
                Err(Refusal::at(pointer, format!("{name} must be an array")).into())
            }
        }
    }
}

/// The id of a resource. The character NUL is in none: not every store can look for it.
pub fn id_of(resource: &Value) -> Option<&str> {
    resource.get("id").and_then(Value::as_str).filter(|id| !id.contains('\0'))
}

/// The ids of a body whose `data` is an array of resources of one type.
///
/// # Errors
/// `Malformed` for what is not JSON; `Invalid` for another shape or another type of an element.
pub fn identifiers(call: &Call, kind: &str) -> Outcome<Vec<String>> {
    ids_of(call, TypeRule::Exact(kind))
}

/// As [`identifiers`], whatever type the elements say they have.
///
/// # Errors
/// As [`identifiers`].
pub fn names(call: &Call) -> Outcome<Vec<String>> {
    ids_of(call, TypeRule::Any)
}

fn ids_of(call: &Call, rule: TypeRule<'_>) -> Outcome<Vec<String>> {
    let Value::Array(elements) = data(&call.body)? else {
        return Err(Refusal::at("/data", "data must be an array").into());
    };
    let mut faults = Vec::new();
    let mut ids = Vec::with_capacity(elements.len());
    for (n, element) in elements.iter().enumerate() {
        if let TypeRule::Exact(kind) = rule
            && element.get("type").and_then(Value::as_str) != Some(kind)
        {
            faults.push(Fault::at(format!("/data/{n}/type"), format!("type must be {kind}")));
        }
        match id_of(element) {
            Some(id) => ids.push(id.to_owned()),
            None => faults.push(Fault::at(format!("/data/{n}/id"), "id must be a string")),
        }
    }
    if faults.is_empty() { Ok(ids) } else { Err(Refusal::of(Kind::Invalid, faults).into()) }
}

/// The member `data` of a document.
pub fn data(body: &Bytes) -> Outcome<Value> {
    let document: Value =
        serde_json::from_slice(body).map_err(|_| Refusal::new(Kind::Malformed, "the body is not JSON"))?;
    let Value::Object(mut document) = document else {
        return Err(Refusal::at("", "the document must be an object").into());
    };
    document.remove("data").ok_or_else(|| Refusal::at("/data", "data is missing").into())
}

//! The input of a handler: the parsed request and its caller.
//!
//! Errors in a body are stored in the [`Document`] and returned when a handler reads it.

use std::ops::Deref;
use std::sync::Arc;

use super::body::Document;
use super::query::Query;
use crate::http::entity_tag::EntityTags;
use crate::projects::caller::Caller;
use crate::projects::workspace::Key;

/// A request with a known route.
pub struct Request {
    /// The path parameters, by name.
    pub params: Vec<(&'static str, String)>,
    /// The query.
    pub query: Query,
    /// The body.
    pub document: Document,
    /// The `If-Match` header: the resource to be changed must have one of these entity tags.
    pub if_match: Option<EntityTags>,
    /// `true` for a client that plans and applies (`X-Terraform-Integration`). Such a client decides where an operation
    /// runs.
    pub plans: bool,
    /// Scheme and authority of absolute links.
    pub origin: String,
    /// The absolute path, for the links of lists.
    pub path: String,
}

impl Request {
    /// Returns a path parameter; empty when the pattern has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(param, _)| *param == name).map_or("", |(_, value)| value)
    }

    /// Returns the key by which the path names a workspace.
    pub fn workspace(&self) -> Key<'_> {
        match self.param("workspace_id") {
            "" => Key::Name { organization: self.param("organization_name"), workspace: self.param("workspace_name") },
            id => Key::Id(id),
        }
    }
}

/// A request and its caller.
pub struct Call {
    /// The caller.
    pub caller: Caller,
    /// The request.
    pub request: Arc<Request>,
}

impl Call {
    /// A read of the resource to be changed, without included resources, which its entity tag does not cover.
    pub(super) fn before_the_change(&self) -> Self {
        let request = Request {
            params: self.params.clone(),
            query: self.query.without("include"),
            document: Document::default(),
            if_match: None,
            plans: self.plans,
            origin: self.origin.clone(),
            path: self.path.clone(),
        };
        Self { caller: self.caller.clone(), request: Arc::new(request) }
    }
}

impl Deref for Call {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

//! What a handler gets: a request as the worker has read it, and who asks.
//!
//! Body and query are parsed before a session is begun; what is wrong with a body is kept until it is asked for
//! ([`Document`]).

use std::ops::Deref;
use std::sync::Arc;

use super::body::Document;
use super::query::Query;
use crate::http::entity_tag::EntityTags;
use crate::projects::caller::Caller;
use crate::projects::workspace::Key;

/// A request that found its route.
pub struct Request {
    /// The values of the pattern's parameters, by name.
    pub params: Vec<(&'static str, String)>,
    /// The query.
    pub query: Query,
    /// The body.
    pub document: Document,
    /// The entity tags of which one must be that of what is changed, if any were demanded.
    pub if_match: Option<EntityTags>,
    /// Whether the client is one that plans and applies (`X-Terraform-Integration`): where an operation runs is
    /// for it alone to know.
    pub plans: bool,
    /// Scheme and authority of absolute links.
    pub origin: String,
    /// The path from the root, for links of lists.
    pub path: String,
}

impl Request {
    /// A parameter of the pattern; empty when the pattern has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(param, _)| *param == name).map_or("", |(_, value)| value)
    }

    /// What the path names a workspace by.
    pub fn workspace(&self) -> Key<'_> {
        match self.param("workspace_id") {
            "" => Key::Name { organization: self.param("organization_name"), workspace: self.param("workspace_name") },
            id => Key::Id(id),
        }
    }
}

/// A request and who asks.
pub struct Call {
    /// Who asks.
    pub caller: Caller,
    /// What was sent.
    pub request: Arc<Request>,
}

impl Call {
    /// The read of what is to be changed, without what was asked for beside it: an entity tag is of the resource alone.
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

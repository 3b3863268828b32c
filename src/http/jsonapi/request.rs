//! The input of a handler: the parsed request and its caller.
//!
//! Errors in a body are stored in the [`RequestDocument`] and returned when a handler reads it.

use std::ops::Deref;
use std::sync::Arc;

use super::body::RequestDocument;
use super::query::Query;
use crate::http::entity_tag::EntityTags;
use crate::projects::caller::ProjectsCaller;
use crate::projects::workspace::WorkspaceLocator;

/// A request whose route is resolved.
pub struct ProjectsRequest {
    /// The path parameters, by name.
    pub params: Vec<(&'static str, String)>,
    /// The parsed query.
    pub query: Query,
    /// The parsed body, or its parse error.
    pub document: RequestDocument,
    /// The `If-Match` header: the resource to be changed must have one of these entity tags.
    pub if_match: Option<EntityTags>,
    /// `true` if the client runs plans and applies (header `X-Terraform-Integration`). Such a client reads the
    /// execution mode of a workspace to decide whether it runs them locally or on this server.
    pub runs_terraform: bool,
    /// Scheme and authority of absolute links.
    pub origin: String,
    /// The absolute path, for pagination links.
    pub path: String,
}

impl ProjectsRequest {
    /// Returns a path parameter; empty if the route's pattern has none of that name.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(param, _)| *param == name).map_or("", |(_, value)| value)
    }

    /// Returns the locator of the workspace in the path: its id, or its organization and name.
    pub fn workspace(&self) -> WorkspaceLocator<'_> {
        match self.param("workspace_id") {
            "" => WorkspaceLocator::Name {
                organization: self.param("organization_name"),
                workspace: self.param("workspace_name"),
            },
            id => WorkspaceLocator::Id(id),
        }
    }
}

/// A request and its caller.
pub struct ProjectsCall {
    /// The caller.
    pub caller: ProjectsCaller,
    /// The request.
    pub request: Arc<ProjectsRequest>,
}

impl ProjectsCall {
    /// Returns this call as a read of the resource that it changes, to compute the entity tag. The read omits
    /// `include`, because included resources are not covered by the entity tag.
    pub(super) fn as_read(&self) -> Self {
        let request = ProjectsRequest {
            params: self.params.clone(),
            query: self.query.without("include"),
            document: RequestDocument::default(),
            if_match: None,
            runs_terraform: self.runs_terraform,
            origin: self.origin.clone(),
            path: self.path.clone(),
        };
        Self { caller: self.caller.clone(), request: Arc::new(request) }
    }
}

impl Deref for ProjectsCall {
    type Target = ProjectsRequest;

    fn deref(&self) -> &ProjectsRequest {
        &self.request
    }
}

//! Rejections of the projects API: a kind, and one fault for each problem of the request.

use std::borrow::Cow;

use crate::error::{Error, Kind};
use crate::sql::SqlError;
use crate::telemetry::outage;

/// The position of a fault in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultSource {
    /// A JSON pointer into the body (RFC 6901).
    Pointer(Cow<'static, str>),
    /// A query parameter.
    Parameter(Cow<'static, str>),
}

/// One problem of a request, reported to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The title, if it differs from the default title of the kind.
    pub title: Option<&'static str>,
    /// The text, which names the field, the problem and the rule.
    pub detail: Cow<'static, str>,
    /// The position, if the fault has one.
    pub source: Option<FaultSource>,
}

impl Fault {
    /// Creates a fault at an attribute. `name` is the attribute name of the request, such as `agent-pool-id`.
    pub fn attribute(name: &str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::at(format!("/data/attributes/{name}"), detail)
    }

    /// Creates a fault at a query parameter.
    pub fn parameter(name: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { title: None, detail: detail.into(), source: Some(FaultSource::Parameter(name.into())) }
    }

    /// Creates a fault of the request as a whole, without a position.
    pub fn without_source(detail: impl Into<Cow<'static, str>>) -> Self {
        Self { title: None, detail: detail.into(), source: None }
    }

    /// Creates a fault at a JSON pointer of the body.
    pub fn at(pointer: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { title: None, detail: detail.into(), source: Some(FaultSource::Pointer(pointer.into())) }
    }
}

/// Maximum number of faults that one response reports.
const MAX_FAULTS: usize = 100;

/// A collector of faults. It keeps the first `MAX_FAULTS`, so that the response does not grow with the request.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault.
    pub fn push(&mut self, fault: Fault) {
        if self.0.len() < MAX_FAULTS {
            self.0.push(fault);
        }
    }

    /// `true` if there is no fault so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rejects the request if there are faults.
    ///
    /// # Errors
    /// A rejection of this kind, with all faults, if there are any.
    pub fn finish(self, kind: Kind) -> WorkResult<()> {
        if self.0.is_empty() { Ok(()) } else { Err(ApiRejection::of(kind, self.0).into()) }
    }
}

/// Returns the first 64 characters of a client's text, for messages.
pub fn truncate_for_message(text: &str) -> String {
    const MAX_CHARACTERS: usize = 64;
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The rejection of a request. `faults` is never empty.
#[derive(Debug)]
pub struct ApiRejection {
    /// The kind, which determines the HTTP status.
    pub kind: Kind,
    /// The faults, in the order in which the rules are checked.
    pub faults: Vec<Fault>,
    /// Seconds to wait before a retry.
    pub retry_after: Option<f64>,
    /// The cause, for the log. It is never sent to the client.
    pub cause: Option<Error>,
}

impl ApiRejection {
    /// Creates a rejection with one fault.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(kind, vec![Fault::without_source(detail)])
    }

    /// Creates a rejection with these faults.
    pub fn of(kind: Kind, faults: Vec<Fault>) -> Self {
        Self { kind, faults, retry_after: None, cause: None }
    }

    /// Returns the text to log, or `None` for store outages, which are logged separately.
    pub fn log_text(&self) -> Option<String> {
        match &self.cause {
            Some(cause) => outage::describe_for_log(cause),
            None => {
                let detail = self.faults.first().map_or(Cow::Borrowed(""), |fault| fault.detail.clone());
                outage::describe_for_log(&Error::new(self.kind, detail))
            }
        }
    }

    /// The rejection for a resource that is absent or hidden from the caller. Both must look the same.
    pub fn not_found() -> Self {
        Self::new(Kind::NotFound, "the resource does not exist, or you may not act on it")
    }

    /// Checks a condition: rejects the request as [`ApiRejection::not_found`] unless `granted`.
    ///
    /// # Errors
    /// `NotFound` when `granted` is `false`.
    pub fn not_found_unless(granted: bool) -> WorkResult<()> {
        if granted { Ok(()) } else { Err(Self::not_found().into()) }
    }

    /// The rejection of an action that the caller may not perform, on a resource that the caller may see.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Forbidden, detail)
    }

    /// The rejection of a request that conflicts with the state of a resource, with status 409.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Conflict, detail)
    }

    /// The rejection of a request that conflicts with the state of a resource, in the form of an invalid attribute
    /// without a position. Known clients print the text of such a rejection.
    pub fn invalid_state(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Kind::Invalid, vec![Fault { title: Some("invalid attribute"), ..Fault::without_source(detail) }])
    }

    /// The rejection of one invalid attribute. `name` is the attribute name of the request, such as `agent-pool-id`.
    pub fn attribute(name: &str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Kind::Invalid, vec![Fault::attribute(name, detail)])
    }

    /// The rejection of an invalid value at a JSON pointer of the body.
    pub fn at(pointer: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Kind::Invalid, vec![Fault::at(pointer, detail)])
    }

    /// The rejection of a query parameter that cannot be parsed.
    pub fn parameter(name: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Kind::Malformed, vec![Fault::parameter(name, detail)])
    }
}

impl From<Error> for ApiRejection {
    fn from(error: Error) -> Self {
        let detail = error.text().to_owned();
        Self { cause: Some(error), ..Self::new(Kind::Internal, detail) }.with_kind_of_cause()
    }
}

impl From<ApiRejection> for Error {
    /// Keeps only the first fault, for code outside the projects API.
    fn from(refusal: ApiRejection) -> Self {
        let text = refusal.faults.into_iter().next().map(|fault| fault.detail);
        refusal.cause.unwrap_or_else(|| Self::new(refusal.kind, text.unwrap_or_default()))
    }
}

impl ApiRejection {
    fn with_kind_of_cause(mut self) -> Self {
        self.kind = self.cause.as_ref().map_or(self.kind, Error::kind);
        self
    }
}

/// The reason why the work in a session of the store failed.
#[derive(Debug)]
pub enum WorkError {
    /// A rule rejected the request.
    Refused(ApiRejection),
    /// The store failed.
    Store(SqlError),
}

/// The result of work in a session of the store.
pub type WorkResult<T> = Result<T, WorkError>;

impl From<ApiRejection> for WorkError {
    fn from(refusal: ApiRejection) -> Self {
        Self::Refused(refusal)
    }
}

impl From<SqlError> for WorkError {
    fn from(failure: SqlError) -> Self {
        Self::Store(failure)
    }
}

impl From<SqlError> for ApiRejection {
    fn from(failure: SqlError) -> Self {
        match failure {
            SqlError::Constraint(name) => constraint_violation_rejection(&name),
            SqlError::Timeout => {
                Self::new(Kind::Unavailable, "the query timed out; narrow the filters, or request an earlier page")
            }
            SqlError::SerializationConflict => Self::new(Kind::Unavailable, "concurrent modification; retry shortly"),
            SqlError::Engine(error) => error.into(),
            SqlError::Rejected => {
                Error::internal("defect: a projects transaction was rolled back without a recorded rejection").into()
            }
        }
    }
}

/// Returns the rejection for a violated database constraint. Only constraints enforce unique names and references:
/// concurrent changes could invalidate the result of a check before the write.
fn constraint_violation_rejection(name: &str) -> ApiRejection {
    match name {
        "organizations_name_lc_key"
        | "agent_pools_org_id_name_lc_key"
        | "projects_org_id_name_lc_key"
        | "workspaces_org_id_name_lc_key"
        | "teams_org_id_name_lc_key" => ApiRejection::attribute("name", "Name has already been taken"),
        "api_tokens_team_id_description_key" => {
            let detail = "Validation failed: Description has already been taken".into();
            ApiRejection::of(Kind::Invalid, vec![Fault { title: Some("invalid attributes"), detail, source: None }])
        }
        "team_project_access_team_id_project_id_key" => {
            ApiRejection::at("/data/relationships/team", "Team already has access to the project")
        }
        "team_workspace_access_team_id_workspace_id_key" => {
            ApiRejection::at("/data/relationships/team", "Team already has access to the workspace")
        }
        "organization_memberships_user_id_org_id_key" => {
            ApiRejection::attribute("email", "Email already belongs to a member")
        }
        "users_username_lc_key" => ApiRejection::attribute("username", "Username has already been taken"),
        "users_email_lc_key" => ApiRejection::attribute("email", "Email has already been taken"),
        "api_tokens_lookup_key" => ApiRejection::conflict("the token text is already in use"),
        "workspaces_project_fk" => ApiRejection::conflict("the project contains workspaces, or was deleted"),
        "projects_agent_pool_fk" | "workspaces_agent_pool_fk" | "organizations_agent_pool_fk" => {
            ApiRejection::conflict("the agent pool is in use, or no longer exists")
        }
        // PostgreSQL generates these names for unnamed foreign keys; SQLite reports no name.
        name if name == "foreign_key" || name.ends_with("_fkey") => {
            ApiRejection::conflict("the resource is in use, or a referenced resource was deleted")
        }
        _ => ApiRejection {
            cause: Some(Error::internal(format!("projects: the violated constraint has no error text: {name}"))),
            ..ApiRejection::new(Kind::Internal, "internal error")
        },
    }
}

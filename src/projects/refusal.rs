//! Why a request of the projects API is refused: one kind, and a fault for everything that is wrong.

use std::borrow::Cow;

use crate::error::{Error, Kind};
use crate::sql::Failure;
use crate::telemetry::outage;

/// Where a fault lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A JSON pointer into the body (RFC 6901).
    Pointer(Cow<'static, str>),
    /// A parameter of the query.
    Parameter(Cow<'static, str>),
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The title, where it is not that of the kind.
    pub title: Option<&'static str>,
    /// What is wrong: the field, the value's problem, the rule.
    pub detail: Cow<'static, str>,
    /// Where, if anywhere in the request.
    pub source: Option<Source>,
}

impl Fault {
    /// A fault of an attribute, by its hyphenated name.
    pub fn attribute(name: &str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::at(format!("/data/attributes/{name}"), detail)
    }

    /// A fault of a parameter of the query.
    pub fn parameter(name: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { title: None, detail: detail.into(), source: Some(Source::Parameter(name.into())) }
    }

    /// A fault of the request as a whole.
    pub fn whole(detail: impl Into<Cow<'static, str>>) -> Self {
        Self { title: None, detail: detail.into(), source: None }
    }

    /// A fault at a place of the body.
    pub fn at(pointer: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { title: None, detail: detail.into(), source: Some(Source::Pointer(pointer.into())) }
    }
}

/// Most faults that one answer tells.
const MOST: usize = 100;

/// Faults as they are found. The first `MOST` are kept: what is told does not grow with what was sent.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// One more.
    pub fn push(&mut self, fault: Fault) {
        if self.0.len() < MOST {
            self.0.push(fault);
        }
    }

    /// Whether there is none so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses with all of them.
    ///
    /// # Errors
    /// Of this kind, unless there is no fault.
    pub fn finish(self, kind: Kind) -> Outcome<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Refusal::of(kind, self.0).into()) }
    }
}

/// What a refusal repeats of a text that somebody sent: its begin.
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 64;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A refusal. Its faults are never empty.
#[derive(Debug)]
pub struct Refusal {
    /// The kind, for the status.
    pub kind: Kind,
    /// What is wrong, in the order of the rules.
    pub faults: Vec<Fault>,
    /// Wait this long before trying again, seconds.
    pub retry_after: Option<f64>,
    /// The cause, for the log; never shown.
    pub cause: Option<Error>,
}

impl Refusal {
    /// A refusal with one text.
    pub fn new(kind: Kind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(kind, vec![Fault::whole(detail)])
    }

    /// A refusal with these faults.
    pub fn of(kind: Kind, faults: Vec<Fault>) -> Self {
        Self { kind, faults, retry_after: None, cause: None }
    }

    /// What is to be logged of it; nothing of a failure of the store, which is told by itself.
    pub fn told(&self) -> Option<String> {
        match &self.cause {
            Some(cause) => outage::told(cause),
            None => {
                let detail = self.faults.first().map_or(Cow::Borrowed(""), |fault| fault.detail.clone());
                outage::told(&Error::new(self.kind, detail))
            }
        }
    }

    /// What is absent, or hidden from the caller: both look the same.
    pub fn not_found() -> Self {
        Self::new(Kind::NotFound, "the resource does not exist, or you may not act on it")
    }

    /// Lets pass what is granted; what is not looks as if the resource were not there.
    ///
    /// # Errors
    /// `NotFound` unless `granted`.
    pub fn hidden_unless(granted: bool) -> Outcome<()> {
        if granted { Ok(()) } else { Err(Self::not_found().into()) }
    }

    /// What a caller may see and not do.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Forbidden, detail)
    }

    /// Against the state of something.
    pub fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Conflict, detail)
    }

    /// Against the state of something, in the words that known clients print: of no place in the request.
    pub fn state(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Kind::Invalid, vec![Fault { title: Some("invalid attribute"), ..Fault::whole(detail) }])
    }

    /// One attribute, by its hyphenated name, breaks its rule.
    pub fn attribute(name: &str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Kind::Invalid, vec![Fault::attribute(name, detail)])
    }

    /// One place of the body breaks its rule.
    pub fn at(pointer: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Kind::Invalid, vec![Fault::at(pointer, detail)])
    }

    /// A parameter of the query that does not read.
    pub fn parameter(name: impl Into<Cow<'static, str>>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Kind::Malformed, vec![Fault::parameter(name, detail)])
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let detail = error.text().to_owned();
        Self { cause: Some(error), ..Self::new(Kind::Internal, detail) }.with_kind_of_cause()
    }
}

impl From<Refusal> for Error {
    /// For callers that are no clients of this API: the first fault.
    fn from(refusal: Refusal) -> Self {
        let text = refusal.faults.into_iter().next().map(|fault| fault.detail);
        refusal.cause.unwrap_or_else(|| Self::new(refusal.kind, text.unwrap_or_default()))
    }
}

impl Refusal {
    fn with_kind_of_cause(mut self) -> Self {
        self.kind = self.cause.as_ref().map_or(self.kind, Error::kind);
        self
    }
}

/// Why work stopped: refused by a rule, or by the store.
#[derive(Debug)]
pub enum Stop {
    /// By a rule.
    Refused(Refusal),
    /// By the store.
    Store(Failure),
}

/// The result of work in a session.
pub type Outcome<T> = Result<T, Stop>;

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Store(failure)
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Constraint(name) => of_constraint(&name),
            Failure::TooLong => {
                Self::new(Kind::Unavailable, "the query takes too long: narrow it down, or ask for an earlier page")
            }
            Failure::Clash => Self::new(Kind::Unavailable, "too many changes at once, try again shortly"),
            Failure::Engine(error) => error.into(),
            Failure::Refused => Error::internal("a refusal without a reason").into(),
        }
    }
}

/// What a violated constraint means to a caller. Nothing is checked first and trusted: the write decides,
/// whatever other nodes do meanwhile.
fn of_constraint(name: &str) -> Refusal {
    match name {
        "organizations_name_lc_key"
        | "agent_pools_org_id_name_lc_key"
        | "projects_org_id_name_lc_key"
        | "workspaces_org_id_name_lc_key"
        | "teams_org_id_name_lc_key" => Refusal::attribute("name", "Name has already been taken"),
        "api_tokens_team_id_description_key" => {
            let detail = "Validation failed: Description has already been taken".into();
            Refusal::of(Kind::Invalid, vec![Fault { title: Some("invalid attributes"), detail, source: None }])
        }
        "team_project_access_team_id_project_id_key" => {
            Refusal::at("/data/relationships/team", "Team already has access to the project")
        }
        "team_workspace_access_team_id_workspace_id_key" => {
            Refusal::at("/data/relationships/team", "Team already has access to the workspace")
        }
        "organization_memberships_user_id_org_id_key" => {
            Refusal::attribute("email", "Email is already that of a member")
        }
        "users_username_lc_key" => Refusal::attribute("username", "Username has already been taken"),
        "users_email_lc_key" => Refusal::attribute("email", "Email has already been taken"),
        "api_tokens_lookup_key" => Refusal::conflict("the text of the token is that of another one"),
        "workspaces_project_fk" => Refusal::conflict("the project holds workspaces, or is gone"),
        "projects_agent_pool_fk" | "workspaces_agent_pool_fk" | "organizations_agent_pool_fk" => {
            Refusal::conflict("the agent pool is in use, or is gone")
        }
        // PostgreSQL's own names of foreign keys without one; SQLite tells no name.
        name if name == "foreign_key" || name.ends_with("_fkey") => {
            Refusal::conflict("the resource is in use, or something that it names is gone")
        }
        _ => {
            Refusal { cause: Some(Error::internal(name.to_owned())), ..Refusal::new(Kind::Internal, "internal error") }
        }
    }
}

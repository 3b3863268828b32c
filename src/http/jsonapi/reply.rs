//! The results of handlers.
//!
//! A session's result must be `Send`, and rendered documents are not. So a handler returns values of the domain from
//! its session ([`HandlerResult`]). They are rendered after the session: on the worker, or in the CPU queue if there
//! are many rows.

use std::marker::PhantomData;
use std::rc::Rc;

use serde_json::{Value, json};

/// A rendered resource. It is not `Send`: it stays on the thread that rendered it.
///
/// ```compile_fail
/// fn leaves_its_thread<T: Send>() {}
/// leaves_its_thread::<signet::http::jsonapi::reply::Rendered>();
/// ```
#[derive(Debug)]
pub struct Rendered {
    value: Value,
    not_send: PhantomData<Rc<()>>,
}

impl From<Value> for Rendered {
    fn from(value: Value) -> Self {
        Self { value, not_send: PhantomData }
    }
}

impl Rendered {
    /// Returns the rendered JSON value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Replaces the value at `path`, a list of nested member names.
    #[must_use]
    pub fn with(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        let member = path.iter().fold(&mut self.value, |value, name| &mut value[*name]);
        *member = value.into();
        self
    }

    /// Returns the JSON value, to be embedded in a document.
    pub fn into_value(self) -> Value {
        self.value
    }
}

pub(super) fn array(resources: impl IntoIterator<Item = Rendered>) -> Value {
    resources.into_iter().map(Rendered::into_value).collect()
}

/// A rendered handler result: the status and its document.
#[derive(Debug)]
pub enum RenderedResult {
    /// 200 with a document.
    Document(Rendered),
    /// 201 with a document and the path of the created resource, if it has one.
    Created {
        /// The document.
        document: Rendered,
        /// The path of the resource.
        location: Option<String>,
    },
    /// 204 without content.
    Empty,
}

impl RenderedResult {
    /// 200 with one resource.
    pub fn resource(resource: Rendered) -> Self {
        Self::Document(json!({ "data": resource.into_value() }).into())
    }

    /// 200 with resources, without paging.
    pub fn resources(resources: impl IntoIterator<Item = Rendered>) -> Self {
        Self::Document(json!({ "data": array(resources) }).into())
    }

    /// 201 with one resource, whose `self` link is the location.
    pub fn created(resource: Rendered) -> Self {
        let location = resource.value()["links"]["self"].as_str().map(str::to_owned);
        Self::Created { document: json!({ "data": resource.into_value() }).into(), location }
    }

    /// Adds included resources, if they were requested.
    #[must_use]
    pub fn including(self, included: Option<Vec<Rendered>>) -> Self {
        let Some(included) = included else { return self };
        let included = array(included);
        match self {
            Self::Document(document) => Self::Document(document.with(&["included"], included)),
            Self::Created { document, location } => {
                Self::Created { document: document.with(&["included"], included), location }
            }
            Self::Empty => Self::Empty,
        }
    }
}

/// The result of a session, and the function that renders it.
pub struct HandlerResult {
    render: Box<dyn FnOnce() -> RenderedResult + Send>,
    /// Number of rows that the session read to build the result.
    rows: usize,
}

impl HandlerResult {
    /// Creates a result that `render` renders after the session.
    pub fn of<T: Send + 'static>(found: T, render: fn(T) -> RenderedResult) -> Self {
        Self { render: Box::new(move || render(found)), rows: 0 }
    }

    /// Sets the number of rows that the session read.
    #[must_use]
    pub fn with_row_count(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// Returns the number of rows that the session read, an estimate of the rendering time.
    pub fn row_count(&self) -> usize {
        self.rows
    }

    /// Renders the result on the current thread.
    pub fn render(self) -> RenderedResult {
        (self.render)()
    }
}

/// Renders a result without a document.
pub fn render_empty((): ()) -> RenderedResult {
    RenderedResult::Empty
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;
    use futures_util::future::LocalBoxFuture;
    use tokio::task::LocalSet;

    use super::*;
    use crate::clock::Clock;
    use crate::http::jsonapi::body::RequestDocument;
    use crate::http::jsonapi::query::Query;
    use crate::http::jsonapi::request::{ProjectsCall, ProjectsRequest};
    use crate::http::jsonapi::route::{ProjectsRoute, route};
    use crate::projects::caller::{ProjectsCaller, TokenSubject};
    use crate::projects::rejection::WorkResult;
    use crate::projects::store::{ApiTokenSeal, BoundToken, ProjectStore, SERVER_CALLER};
    use crate::projects::{Projects, SessionAccess, Tx};
    use crate::sql::{SqlError, SqlRow, SqlSession, SqlValue as Column, SqlWork};

    static SESSION_IS_OPEN: AtomicBool = AtomicBool::new(false);

    struct FlaggingStore;
    struct EmptySession;

    impl SqlSession for EmptySession {
        fn query<'s>(&'s mut self, _: &'s str, _: &'s [Column]) -> LocalBoxFuture<'s, Result<Vec<SqlRow>, SqlError>> {
            async { Ok(Vec::new()) }.boxed_local()
        }

        fn use_custom_plans(&mut self) {}

        fn execute<'s>(&'s mut self, _: &'s str, _: &'s [Column]) -> LocalBoxFuture<'s, Result<u64, SqlError>> {
            async { Ok(0) }.boxed_local()
        }
    }

    impl ProjectStore for FlaggingStore {
        fn run(
            &self,
            _: &'static str,
            _: SessionAccess,
            work: SqlWork,
        ) -> LocalBoxFuture<'static, Result<(), SqlError>> {
            async move {
                SESSION_IS_OPEN.store(true, Ordering::SeqCst);
                let ended = work(&mut EmptySession).await;
                SESSION_IS_OPEN.store(false, Ordering::SeqCst);
                ended
            }
            .boxed_local()
        }
    }

    impl ApiTokenSeal for FlaggingStore {
        fn seal(&self, _: &BoundToken<'_>) -> crate::error::Result<Vec<u8>> {
            unreachable!("the test creates no token")
        }

        fn is_sealed<'s>(&'s self, _: BoundToken<'s>, _: &'s [u8]) -> LocalBoxFuture<'s, crate::error::Result<bool>> {
            unreachable!("the test verifies no token")
        }

        fn seal_unsealed_tokens(&self) -> LocalBoxFuture<'_, crate::error::Result<()>> {
            async { Ok(()) }.boxed_local()
        }
    }

    async fn find_flag(tx: &mut Tx<'_>, _: &ProjectsCall) -> WorkResult<bool> {
        tx.rows("SELECT 1", &[]).await?;
        Ok(SESSION_IS_OPEN.load(Ordering::SeqCst))
    }

    fn render_flags(was_open: bool) -> RenderedResult {
        let is_open = SESSION_IS_OPEN.load(Ordering::SeqCst);
        RenderedResult::resource(json!({ "found in session": was_open, "rendered in session": is_open }).into())
    }

    #[test]
    fn session_ends_before_its_result_is_rendered() {
        const ROUTE: ProjectsRoute = route!(GET "rooms", "room_list", find_flag => render_flags);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reply = LocalSet::new().block_on(&runtime, async {
            let projects = Projects::start(Arc::new(FlaggingStore), Arc::new(FlaggingStore), Clock::system());
            let answer = projects.run(ROUTE.name, SessionAccess::Read(SERVER_CALLER), |mut tx| {
                async move { (ROUTE.handler)(&mut tx, &call()).await }.boxed_local()
            });
            answer.await.unwrap().render()
        });
        let RenderedResult::Document(document) = reply else { panic!("{reply:?}") };
        assert_eq!(document.value()["data"], json!({ "found in session": true, "rendered in session": false }));
    }

    fn call() -> ProjectsCall {
        let subject = TokenSubject::User { id: 1, ext_id: "user-1".to_owned(), username: "ada".to_owned() };
        let request = ProjectsRequest {
            params: Vec::new(),
            query: Query::default(),
            document: RequestDocument::default(),
            if_match: None,
            runs_terraform: false,
            origin: String::new(),
            path: String::new(),
        };
        ProjectsCall { caller: ProjectsCaller { token: 1, subject, last_used: None }, request: Arc::new(request) }
    }
}

//! The results of handlers.
//!
//! A session's result must be `Send`, and rendered documents are not. So a handler returns values of the domain from
//! its session ([`Answer`]). They are rendered after the session: on the worker, or in the CPU queue if there are many
//! rows.

use std::marker::PhantomData;
use std::rc::Rc;

use serde_json::{Value, json};

/// A rendered resource. It must not leave its thread.
///
/// ```compile_fail
/// fn leaves_its_thread<T: Send>() {}
/// leaves_its_thread::<signet::http::jsonapi::reply::Rendered>();
/// ```
#[derive(Debug)]
pub struct Rendered {
    value: Value,
    stays: PhantomData<Rc<()>>,
}

impl From<Value> for Rendered {
    fn from(value: Value) -> Self {
        Self { value, stays: PhantomData }
    }
}

impl Rendered {
    /// Returns the JSON value.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Replaces the value at a path of member names.
    #[must_use]
    pub fn with(mut self, place: &[&str], value: impl Into<Value>) -> Self {
        let member = place.iter().fold(&mut self.value, |value, name| &mut value[*name]);
        *member = value.into();
        self
    }

    /// Returns the JSON value for use in a document.
    pub fn into_value(self) -> Value {
        self.value
    }
}

pub(super) fn array(resources: impl IntoIterator<Item = Rendered>) -> Value {
    resources.into_iter().map(Rendered::into_value).collect()
}

/// A rendered result.
#[derive(Debug)]
pub enum Reply {
    /// 200 with a document.
    Document(Rendered),
    /// 201 with a document and the path of the created resource, if it has one.
    Created {
        /// The document.
        document: Rendered,
        /// The path of the resource.
        location: Option<String>,
    },
    /// 204 without a document.
    Empty,
}

impl Reply {
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
pub struct Answer {
    show: Box<dyn FnOnce() -> Reply + Send>,
    /// Number of rows that the session read for it.
    rows: usize,
}

impl Answer {
    /// `found`, to be rendered by `render`.
    pub fn of<T: Send + 'static>(found: T, render: fn(T) -> Reply) -> Self {
        Self { show: Box::new(move || render(found)), rows: 0 }
    }

    /// Sets the number of rows that were read.
    #[must_use]
    pub fn of_rows(self, rows: usize) -> Self {
        Self { rows, ..self }
    }

    /// Returns the number of rows that were read, an estimate of the rendering time.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Renders the result on this thread.
    pub fn render(self) -> Reply {
        (self.show)()
    }
}

/// Renders a result without a document.
pub fn empty((): ()) -> Reply {
    Reply::Empty
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
    use crate::http::jsonapi::body::Document;
    use crate::http::jsonapi::query::Query;
    use crate::http::jsonapi::request::{Call, Request};
    use crate::http::jsonapi::route::{Route, route};
    use crate::projects::caller::{Caller, Subject};
    use crate::projects::refusal::Outcome;
    use crate::projects::store::{Asker, BoundToken, ITSELF, ProjectStore, TokenSeal};
    use crate::projects::{Access, Projects, Tx};
    use crate::sql::{Failure, Row, Session, Value as Column, Work};

    static HELD: AtomicBool = AtomicBool::new(false);

    struct Sessions;
    struct Empty;

    impl Session for Empty {
        fn query<'s>(&'s mut self, _: &'s str, _: &'s [Column]) -> LocalBoxFuture<'s, Result<Vec<Row>, Failure>> {
            async { Ok(Vec::new()) }.boxed_local()
        }

        fn fit(&mut self) {}

        fn execute<'s>(&'s mut self, _: &'s str, _: &'s [Column]) -> LocalBoxFuture<'s, Result<u64, Failure>> {
            async { Ok(0) }.boxed_local()
        }
    }

    impl ProjectStore for Sessions {
        fn read(&self, _: &'static str, _: Asker, work: Work) -> LocalBoxFuture<'static, Result<(), Failure>> {
            async move {
                HELD.store(true, Ordering::SeqCst);
                let ended = work(&mut Empty).await;
                HELD.store(false, Ordering::SeqCst);
                ended
            }
            .boxed_local()
        }

        fn write(&self, name: &'static str, asker: Asker, work: Work) -> LocalBoxFuture<'static, Result<(), Failure>> {
            self.read(name, asker, work)
        }
    }

    impl TokenSeal for Sessions {
        fn seal(&self, _: &BoundToken<'_>) -> crate::error::Result<Vec<u8>> {
            unreachable!("no token is made")
        }

        fn is_sealed<'s>(&'s self, _: BoundToken<'s>, _: &'s [u8]) -> LocalBoxFuture<'s, crate::error::Result<bool>> {
            unreachable!("no token is looked at")
        }

        fn keep(&self) -> LocalBoxFuture<'_, crate::error::Result<()>> {
            async { Ok(()) }.boxed_local()
        }
    }

    async fn find(tx: &mut Tx<'_>, _: &Call) -> Outcome<bool> {
        tx.rows("SELECT 1", &[]).await?;
        Ok(HELD.load(Ordering::SeqCst))
    }

    fn shown(was_held: bool) -> Reply {
        let is_held = HELD.load(Ordering::SeqCst);
        Reply::resource(json!({ "found while held": was_held, "shown while held": is_held }).into())
    }

    #[test]
    fn a_session_is_over_when_what_it_found_is_shown() {
        const ROUTE: Route = route!(GET "rooms", "room_list", find => shown);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reply = LocalSet::new().block_on(&runtime, async {
            let projects = Projects::start(Arc::new(Sessions), Arc::new(Sessions), Clock::system());
            let answer = projects.run(ROUTE.name, Access::Read(ITSELF), |mut tx| {
                async move { (ROUTE.handler)(&mut tx, &call()).await }.boxed_local()
            });
            answer.await.unwrap().render()
        });
        let Reply::Document(document) = reply else { panic!("{reply:?}") };
        assert_eq!(document.value()["data"], json!({ "found while held": true, "shown while held": false }));
    }

    fn call() -> Call {
        let subject = Subject::User { id: 1, ext_id: "user-1".to_owned(), username: "ada".to_owned() };
        let request = Request {
            params: Vec::new(),
            query: Query::default(),
            document: Document::default(),
            if_match: None,
            plans: false,
            origin: String::new(),
            path: String::new(),
        };
        Call { caller: Caller { token: 1, subject, last_used: None }, request: Arc::new(request) }
    }
}

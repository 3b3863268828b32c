//! The projects API: organizations, users, teams and their tokens; projects, workspaces and who may do
//! what with them.
//!
//! [`Projects`] is the front door: it runs work in a session of the store, through the projects actor
//! ([`actor`]). A request is one session: the caller's rights are read where the rows are changed, so
//! that nothing is checked in one state and done in another. Rules and the SQL of a resource stand in one
//! file; the session is the seam to the store ([`store`]).
//!
//! Refuses by [`refusal::Refusal`]: everything that is wrong at once, each fault with its place. Called by
//! the wire (`http::jsonapi`) and by the commands that prepare a server.

pub mod actor;
pub mod agent_pool;
pub mod attributes;
pub mod caller;
pub mod escalation;
pub mod grants;
pub mod id;
pub mod last_use;
pub mod membership;
pub mod mode;
pub mod organization;
pub mod page;
pub mod project;
pub mod refusal;
pub mod rights;
pub mod store;
pub mod tag;
pub mod team;
pub mod team_access;
pub mod token;
pub mod user;
pub mod workspace;

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::clock::{Clock, Time};
use crate::error::Error;
use refusal::{Outcome, Refusal, Stop};
use store::{Column, Failure, ProjectStore, Row, Session, Value, Work};

/// A session at work, at one point in time.
pub struct Tx<'s> {
    session: &'s mut dyn Session,
    /// The time that everything in this session happens at.
    pub now: Time,
    holds: bool,
}

impl Tx<'_> {
    /// From here on a resource that is looked up to be changed is locked at once, so that what is then read
    /// of it still holds when it is changed. Only in sessions that write.
    pub fn hold(&mut self) {
        self.holds = true;
    }

    /// Whether what is looked up is to be locked.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Has the texts that follow planned for their values, as lists need it ([`Session::fit`]).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn fit(&mut self) -> Outcome<()> {
        Ok(self.session.fit().await?)
    }

    /// All rows of a text.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn rows(&mut self, sql: &str, values: &[Value]) -> Outcome<Vec<Row>> {
        Ok(self.session.query(sql, values).await?)
    }

    /// The first row of a text, if there is one.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn row(&mut self, sql: &str, values: &[Value]) -> Outcome<Option<Row>> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// The one row of a text that always has one.
    ///
    /// # Errors
    /// Those of the store; `Internal` when there is none.
    pub async fn one(&mut self, sql: &str, values: &[Value]) -> Outcome<Row> {
        let row = self.row(sql, values).await?;
        row.ok_or_else(|| Failure::Engine(Error::internal("a row is missing that is always there")).into())
    }

    /// Runs a text that gives no rows; how many rows it changed.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn execute(&mut self, sql: &str, values: &[Value]) -> Outcome<u64> {
        Ok(self.session.execute(sql, values).await?)
    }
}

impl From<Time> for Value {
    /// Epoch microseconds, rounded down.
    fn from(at: Time) -> Self {
        // Years up to 9999 are 2.6e17 µs: far inside the range.
        Self::Int(at.unix_timestamp_nanos().div_euclid(1000) as i64)
    }
}

impl Column for Time {
    fn read(value: Value) -> Option<Self> {
        let Value::Int(micros) = value else { return None };
        Self::from_unix_timestamp_nanos(i128::from(micros) * 1000).ok()
    }
}

/// What work does to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only reads.
    Read,
    /// It may write.
    Write,
}

/// The projects API of one server; clones are the same.
#[derive(Clone)]
pub struct Projects {
    link: actor::Link,
    clock: Clock,
    noted: last_use::Noted,
}

impl Projects {
    /// Starts the actor; an actix system must run.
    pub fn start(store: Arc<dyn ProjectStore>, clock: Clock) -> Self {
        Self { link: actor::Link::start(store), clock, noted: last_use::Noted::default() }
    }

    /// Runs `work` in one session. `name` is what the metrics call it. It may run more than once, so it
    /// changes nothing but its session.
    ///
    /// # Errors
    /// What the work refuses; what the store refuses, by the constraint that would be violated; `Busy` and
    /// `Unavailable` from the store.
    pub async fn run<T: Send + 'static>(
        &self,
        name: &'static str,
        access: Access,
        work: impl for<'t> Fn(Tx<'t>) -> LocalBoxFuture<'t, Outcome<T>> + Send + Sync + 'static,
    ) -> Result<T, Refusal> {
        let clock = self.clock.clone();
        let kept = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&kept);
        let keep = move |outcome| *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        let (work, keep) = (Arc::new(work), Arc::new(keep));
        let in_session: Work = Arc::new(move |session| {
            let (work, keep, now) = (Arc::clone(&work), Arc::clone(&keep), clock.now());
            async move {
                match work(Tx { session, now, holds: false }).await {
                    Ok(value) => {
                        keep(Ok(value));
                        Ok(())
                    }
                    Err(Stop::Refused(refusal)) => {
                        keep(Err(refusal));
                        Err(Failure::Refused)
                    }
                    Err(Stop::Store(failure)) => Err(failure),
                }
            }
            .boxed_local()
        });
        let ran = self.link.run(move |store| match access {
            Access::Read => store.read(name, in_session),
            Access::Write => store.write(name, in_session),
        });
        match ran.await? {
            Ok(()) | Err(Failure::Refused) => {
                let outcome = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
                outcome.unwrap_or_else(|| Err(Error::internal("work in a session that has no outcome").into()))
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

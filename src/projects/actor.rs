//! The projects actor: owns the store and how many requests may be at it, on a thread of its own.
//!
//! Requests run beside each other there; what one of them needs of the store never waits for another's.
//! A request that was begun runs to its end, whether or not its caller still waits, so that no session is
//! left in the middle of a transaction.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use actix::prelude::*;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::sync::{Semaphore, oneshot};

use super::store::ProjectStore;
use crate::error::{Error, Kind, Result};
use crate::telemetry;

/// Most requests at the store, waiting ones included.
const ADMITTED: usize = 512;

/// The way to the actor; clones share the limit.
#[derive(Clone)]
pub struct Link {
    run: Recipient<Run>,
    places: Arc<Semaphore>,
}

/// A request's part at the store.
type Job = Box<dyn FnOnce(Arc<dyn ProjectStore>) -> LocalBoxFuture<'static, ()> + Send>;

#[derive(Message)]
#[rtype(result = "()")]
struct Run(Job);

struct Projects {
    store: Arc<dyn ProjectStore>,
}

impl Actor for Projects {
    type Context = Context<Self>;
}

impl Handler<Run> for Projects {
    type Result = ();

    fn handle(&mut self, Run(job): Run, ctx: &mut Self::Context) {
        let work = AssertUnwindSafe(job(Arc::clone(&self.store))).catch_unwind();
        ctx.spawn(
            async move {
                if work.await.is_err() {
                    metrics::counter!(telemetry::PANICS).increment(1);
                }
            }
            .into_actor(self),
        );
    }
}

impl Link {
    /// Starts the actor; an actix system must run.
    pub fn start(store: Arc<dyn ProjectStore>) -> Self {
        let arbiter = Arbiter::new();
        let address = Projects::start_in_arbiter(&arbiter.handle(), |_| Projects { store });
        Self { run: address.recipient(), places: Arc::new(Semaphore::new(ADMITTED)) }
    }

    /// Runs `job` with the store and gives what it gives.
    ///
    /// # Errors
    /// `Busy` at once when too many requests are at the store; `Internal` when the job panics.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(Arc<dyn ProjectStore>) -> LocalBoxFuture<'static, T> + Send + 'static,
    ) -> Result<T> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| Error::new(Kind::Busy, "too many requests at the project store, try again"))?;
        let (answer, answered) = oneshot::channel();
        let admitted = metrics::gauge!(telemetry::PROJECTS_QUEUE);
        admitted.increment(1);
        let job: Job = Box::new(move |store| {
            async move {
                let _place = place;
                let _ = answer.send(job(store).await);
            }
            .boxed_local()
        });
        self.run.do_send(Run(job));
        let outcome = answered.await;
        admitted.decrement(1);
        outcome.map_err(|_| Error::internal("a request at the project store panicked"))
    }
}

//! SQL sessions ([`crate::sql`]) of the store itself, with the same SQL for both engines.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use crate::error::{Error, Kind, Result};
use crate::projects::store::{ITSELF, ProjectStore};
use crate::sql::{Failure, Session, Work};

#[derive(Clone)]
pub(super) struct Sessions(Arc<dyn ProjectStore>);

impl Sessions {
    pub(super) fn new(store: Arc<dyn ProjectStore>) -> Self {
        Self(store)
    }

    /// Runs read-only work and returns its result. `name` identifies it in the metrics.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'s> Fn(&'s mut dyn Session) -> LocalBoxFuture<'s, Result<T, Failure>> + Send + Sync + 'static,
    ) -> Result<T> {
        let (work, found) = kept(work);
        told(self.0.read(name, ITSELF, work).await, &found)
    }

    /// Runs work in one write transaction and returns its result.
    ///
    /// # Errors
    /// The errors of the store; `Conflict` when the work is refused.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl for<'s> Fn(&'s mut dyn Session) -> LocalBoxFuture<'s, Result<T, Failure>> + Send + Sync + 'static,
    ) -> Result<T> {
        let (work, found) = kept(work);
        told(self.0.write(name, ITSELF, work).await, &found)
    }
}

type Slot<T> = Arc<Mutex<Option<T>>>;

/// Wraps work so that its result is stored in a slot.
fn kept<T: Send + 'static>(
    work: impl for<'s> Fn(&'s mut dyn Session) -> LocalBoxFuture<'s, Result<T, Failure>> + Send + Sync + 'static,
) -> (Work, Slot<T>) {
    let slot: Slot<T> = Arc::default();
    let (work, keep) = (Arc::new(work), Arc::clone(&slot));
    let kept: Work = Arc::new(move |session| {
        let (work, keep) = (Arc::clone(&work), Arc::clone(&keep));
        async move {
            let found = work(session).await?;
            *keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            Ok(())
        }
        .boxed_local()
    });
    (kept, slot)
}

fn told<T>(ran: Result<(), Failure>, slot: &Slot<T>) -> Result<T> {
    match ran {
        Ok(()) => {}
        Err(Failure::Refused) => return Err(Error::new(Kind::Conflict, "storage: somebody else was faster")),
        Err(Failure::Engine(error)) => return Err(error),
        Err(Failure::Clash | Failure::TooLong) => {
            return Err(Error::new(Kind::Unavailable, "storage: a step took too long"));
        }
        Err(Failure::Constraint(name)) => return Err(Error::internal(format!("a constraint does not hold: {name}"))),
    }
    let found = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    found.ok_or_else(|| Error::internal("work that did not run"))
}

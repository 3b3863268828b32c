//! The entrance to the sessions: askers take turns, and one of them never has all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, Kind, Result};
use crate::projects::store::Asker;
use crate::storage::turns::Turns;

/// Sessions of one asker at once, of all that there are: a quarter is left to others.
fn of_one(places: usize) -> usize {
    (places - places / 4).max(1)
}

/// The entrance; clones are the same.
#[derive(Clone)]
pub(super) struct Entrance(Arc<Mutex<Turns<oneshot::Sender<Place>>>>);

/// A place at the sessions, given to the next one when this is dropped.
pub(super) struct Place {
    asker: Asker,
    entrance: Entrance,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.entrance.turns().ended(self.asker);
        self.entrance.let_in();
    }
}

impl Entrance {
    /// To so many sessions.
    pub(super) fn new(places: usize) -> Self {
        Self(Arc::new(Mutex::new(Turns::new(places, of_one(places)))))
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// `Busy` when none comes in this time.
    pub(super) async fn enter(&self, asker: Asker, longest: Duration) -> Result<Place> {
        let (give, given) = oneshot::channel();
        self.turns().push(asker, give);
        self.let_in();
        let place = tokio::time::timeout(longest, given).await;
        place.ok().and_then(|given| given.ok()).ok_or_else(|| Error::new(Kind::Busy, "storage: too many reads at once"))
    }

    /// Begins as many turns as there are places for. The place of somebody who has left is given on as it is dropped.
    fn let_in(&self) {
        while let Some((asker, give)) = self.next() {
            drop(give.send(Place { asker, entrance: self.clone() }));
        }
    }

    fn next(&self) -> Option<(Asker, oneshot::Sender<Place>)> {
        self.turns().take()
    }

    fn turns(&self) -> MutexGuard<'_, Turns<oneshot::Sender<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use futures_util::poll;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn whoever_comes_next_waits_for_no_more_than_a_turn_of_those_who_were_there_before() {
        let entrance = Entrance::new(8);
        let enter = |asker| entrance.enter(asker, LONG).now_or_never();
        let mut many: Vec<Place> = (0..6).map(|_| enter(1).unwrap().unwrap()).collect();
        let mut waits = Box::pin(entrance.enter(1, LONG));
        assert!(poll!(&mut waits).is_pending(), "one asker has six places of eight");
        let others = [enter(2).unwrap().unwrap(), enter(3).unwrap().unwrap()];
        let mut fourth = Box::pin(entrance.enter(4, LONG));
        assert!(poll!(&mut fourth).is_pending());
        many.pop();
        assert!(poll!(&mut waits).is_pending() && poll!(&mut fourth).is_ready(), "before what came earlier");
        drop((others, many));
        assert!(poll!(&mut waits).is_ready());
    }

    #[tokio::test]
    async fn whoever_leaves_takes_no_place_along() {
        let entrance = Entrance::new(1);
        let place = entrance.enter(1, LONG).await.unwrap();
        let left: Vec<_> = (0..100).map(|asker| entrance.enter(asker, LONG)).collect();
        for mut waiting in left.into_iter().map(Box::pin) {
            assert!(poll!(&mut waiting).is_pending());
        }
        let late = entrance.enter(7, Duration::from_millis(1)).await;
        assert_eq!(late.err().unwrap().kind(), Kind::Busy);
        drop(place);
        assert!(entrance.enter(8, LONG).await.is_ok());
        assert!(entrance.turns().waiting() == 0 && !entrance.turns().has_one());
    }
}

//! A line in which askers take turns: so many at once, and of one asker fewer, so that nobody keeps all others waiting.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Who waits: a number that tells one caller from others, as a rule.
pub type Asker = u64;

/// The number of a caller by what tells them from others, such as how records name them.
pub fn asker_of(caller: &(impl Hash + ?Sized)) -> Asker {
    let mut hasher = DefaultHasher::new();
    caller.hash(&mut hasher);
    hasher.finish()
}

/// The line, of whatever is done in a turn.
pub struct Turns<T> {
    /// Of those who wait, whose turn is next first, with what they wait for.
    askers: VecDeque<(Asker, VecDeque<T>)>,
    /// How much waits.
    waiting: usize,
    /// Whose turns are under way.
    running: Vec<Asker>,
    /// Most turns at once, and of one asker.
    places: usize,
    places_of_one: usize,
}

impl<T> Turns<T> {
    /// With so many turns at once, and so many of one asker.
    pub fn new(places: usize, places_of_one: usize) -> Self {
        Self { askers: VecDeque::new(), waiting: 0, running: Vec::new(), places, places_of_one }
    }

    /// From now on so many turns at once, and so many of one asker.
    pub fn allow(&mut self, places: usize, places_of_one: usize) {
        (self.places, self.places_of_one) = (places, places_of_one);
    }

    /// How much waits.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Puts something at the end of what an asker waits for.
    pub fn push(&mut self, asker: Asker, one: T) {
        self.waiting += 1;
        match self.askers.iter_mut().find(|(other, _)| *other == asker) {
            Some((_, waiting)) => waiting.push_back(one),
            None => self.askers.push_back((asker, VecDeque::from([one]))),
        }
    }

    /// Whether a turn may begin.
    pub fn has_one(&self) -> bool {
        self.next().is_some()
    }

    /// Where the asker is that may begin a turn: of those with the fewest under way the first.
    fn next(&self) -> Option<usize> {
        if self.running.len() >= self.places {
            return None;
        }
        let running = |(asker, _): &(Asker, _)| self.running.iter().filter(|one| *one == asker).count();
        let (at, fewest) = self.askers.iter().map(running).enumerate().min_by_key(|(_, running)| *running)?;
        (fewest < self.places_of_one).then_some(at)
    }

    /// Begins a turn; whoever has more waits behind the others.
    pub fn take(&mut self) -> Option<(Asker, T)> {
        let (asker, mut waiting) = self.askers.remove(self.next()?)?;
        let one = waiting.pop_front()?;
        if !waiting.is_empty() {
            self.askers.push_back((asker, waiting));
        }
        self.waiting -= 1;
        self.running.push(asker);
        Some((asker, one))
    }

    /// Ends a turn.
    pub fn ended(&mut self, asker: Asker) {
        if let Some(at) = self.running.iter().position(|one| *one == asker) {
            self.running.swap_remove(at);
        }
    }

    /// Takes everything that waits.
    pub fn clear(&mut self) -> Vec<VecDeque<T>> {
        self.waiting = 0;
        self.askers.drain(..).map(|(_, waiting)| waiting).collect()
    }
}

/// An entrance to places; clones are the same.
#[derive(Clone)]
pub struct Entrance(Arc<Mutex<Turns<oneshot::Sender<Place>>>>);

/// A place, given to the next one when this is dropped.
pub struct Place {
    asker: Asker,
    /// `None` of one that nobody has taken.
    entrance: Option<Entrance>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(entrance) = self.entrance.take() {
            entrance.turns().ended(self.asker);
            entrance.let_in();
        }
    }
}

impl Entrance {
    /// With so many places; one asker has three quarters of them at most.
    pub fn new(places: usize) -> Self {
        Self(Arc::new(Mutex::new(Turns::new(places, (places - places / 4).max(1)))))
    }

    /// To threads that may keep every second core busy: workers go on beside them.
    pub fn beside_workers() -> Self {
        Self::new(std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)))
    }

    /// Waits for a turn.
    pub async fn enter(&self, asker: Asker) -> Place {
        let (give, given) = oneshot::channel();
        self.turns().push(asker, give);
        self.let_in();
        // Nobody drops what waits but a turn that begins.
        given.await.unwrap_or(Place { asker, entrance: None })
    }

    /// Begins as many turns as there are places for. The turn of somebody who has left ends as it begins.
    fn let_in(&self) {
        while let Some((asker, give)) = self.next() {
            if let Err(mut untaken) = give.send(Place { asker, entrance: Some(self.clone()) }) {
                untaken.entrance = None;
                self.turns().ended(asker);
            }
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
    use futures_util::FutureExt as _;
    use futures_util::poll;

    use super::*;

    #[test]
    fn askers_take_turns_and_none_has_all_places() {
        let mut turns = Turns::new(4, 3);
        (0..10).for_each(|n| turns.push(1, n));
        let first: Vec<_> = std::iter::from_fn(|| turns.take()).collect();
        assert_eq!(first, [(1, 0), (1, 1), (1, 2)], "one place is left to others");
        assert!(!turns.has_one());
        (100..103).for_each(|n| turns.push(2, n));
        assert_eq!(turns.take(), Some((2, 100)));
        assert_eq!((turns.take(), turns.waiting()), (None, 9), "all places are taken");
        turns.ended(1);
        assert_eq!(turns.take(), Some((2, 101)), "whoever has fewer under way");
        turns.ended(1);
        // One each; whoever had a turn stands behind the other.
        turns.ended(2);
        assert_eq!((turns.take(), turns.take()), (Some((1, 3)), Some((2, 102))));
        assert_eq!(turns.clear().iter().map(VecDeque::len).sum::<usize>(), 6);
        assert_eq!(turns.waiting(), 0);
    }

    #[tokio::test]
    async fn whoever_comes_next_waits_for_no_more_than_a_turn_of_those_who_were_there_before() {
        let entrance = Entrance::new(8);
        let enter = |asker| entrance.enter(asker).now_or_never();
        let mut many: Vec<Place> = (0..6).map(|_| enter(1).unwrap()).collect();
        let mut waits = Box::pin(entrance.enter(1));
        assert!(poll!(&mut waits).is_pending(), "one asker has six places of eight");
        let others = [enter(2).unwrap(), enter(3).unwrap()];
        let mut fourth = Box::pin(entrance.enter(4));
        assert!(poll!(&mut fourth).is_pending());
        many.pop();
        assert!(poll!(&mut waits).is_pending() && poll!(&mut fourth).is_ready(), "before what came earlier");
        drop((others, many));
        assert!(poll!(&mut waits).is_ready());
    }

    #[tokio::test]
    async fn whoever_leaves_takes_no_place_along() {
        let entrance = Entrance::new(1);
        let place = entrance.enter(1).await;
        let left: Vec<_> = (0..100).map(|asker| entrance.enter(asker)).collect();
        for mut waiting in left.into_iter().map(Box::pin) {
            assert!(poll!(&mut waiting).is_pending());
        }
        drop(place);
        assert!(entrance.enter(8).now_or_never().is_some());
        assert!(entrance.turns().waiting() == 0 && !entrance.turns().has_one());
    }
}

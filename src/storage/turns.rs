//! A line in which askers take turns: so many at once, and of one asker fewer, so that nobody keeps all others waiting.

use std::collections::VecDeque;

use crate::projects::store::Asker;

/// The line, of whatever is done in a turn.
pub(super) struct Turns<T> {
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
    pub(super) fn new(places: usize, places_of_one: usize) -> Self {
        Self { askers: VecDeque::new(), waiting: 0, running: Vec::new(), places, places_of_one }
    }

    /// How much waits.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Puts something at the end of what an asker waits for.
    pub(super) fn push(&mut self, asker: Asker, one: T) {
        self.waiting += 1;
        match self.askers.iter_mut().find(|(other, _)| *other == asker) {
            Some((_, waiting)) => waiting.push_back(one),
            None => self.askers.push_back((asker, VecDeque::from([one]))),
        }
    }

    /// Whether a turn may begin.
    pub(super) fn has_one(&self) -> bool {
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
    pub(super) fn take(&mut self) -> Option<(Asker, T)> {
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
    pub(super) fn ended(&mut self, asker: Asker) {
        if let Some(at) = self.running.iter().position(|one| *one == asker) {
            self.running.swap_remove(at);
        }
    }

    /// Takes everything that waits.
    pub(super) fn clear(&mut self) -> Vec<VecDeque<T>> {
        self.waiting = 0;
        self.askers.drain(..).map(|(_, waiting)| waiting).collect()
    }
}

#[cfg(test)]
mod tests {
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
}

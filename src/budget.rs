//! A budget: so much of something for all at once, and no more of it for one than a share of what is left to the others.
//!
//! A share is a quarter of what is left: whoever has taken theirs leaves four fifths of all, ten of them leave a tenth. The first
//! thing of somebody is not held against the share: it may be large, and takes what is left if need be.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One has no more, of several things, than what is left divided by this.
const SHARE: usize = 4;

/// So much for all; clones are the same.
pub struct Budget<K>(Arc<Mutex<State<K>>>);

/// What is left, and what each has taken.
struct State<K> {
    left: usize,
    taken: HashMap<K, usize>,
}

/// What a budget lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// So much is not left, for anybody.
    Room,
    /// It would be more than the share of the one who asks.
    Share,
}

impl<K> Clone for Budget<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Eq + Hash> Budget<K> {
    /// `most` for all.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(State { left: most, taken: HashMap::new() })))
    }

    /// A part for one thing of somebody, with nothing in it yet.
    pub fn part(&self, of: K) -> Part<K> {
        Part { budget: self.clone(), of, amount: 0 }
    }

    /// How much is left.
    pub fn left(&self) -> usize {
        self.state().left
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one thing has taken of a budget. It is given back when this is dropped.
pub struct Part<K: Clone + Eq + Hash> {
    budget: Budget<K>,
    of: K,
    amount: usize,
}

impl<K: Clone + Eq + Hash> Part<K> {
    /// How much it has.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Takes as much as it lacks of `amount`.
    ///
    /// # Errors
    /// What the budget lacks; nothing is taken then.
    pub fn cover(&mut self, amount: usize) -> Result<(), Lack> {
        let more = amount.saturating_sub(self.amount);
        let mut state = self.budget.state();
        let before = state.taken.get(&self.of).copied().unwrap_or_default();
        let left = state.left.checked_sub(more).ok_or(Lack::Room)?;
        if before > self.amount && before + more > left / SHARE {
            return Err(Lack::Share);
        }
        state.left = left;
        state.taken.insert(self.of.clone(), before + more);
        self.amount += more;
        Ok(())
    }
}

impl<K: Clone + Eq + Hash> Drop for Part<K> {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.left += self.amount;
        if let Some(taken) = state.taken.get_mut(&self.of) {
            *taken -= self.amount;
            if *taken == 0 {
                state.taken.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_several_things_has_a_quarter_of_what_is_left() {
        let budget = Budget::new(512);
        let take = |of: u64| {
            let mut part = budget.part(of);
            part.cover(1).map(|()| part)
        };
        let all_of = |of| std::iter::from_fn(|| take(of).ok()).collect::<Vec<_>>();
        let mut first = all_of(1);
        assert_eq!((first.len(), take(1).err()), (102, Some(Lack::Share)));
        let others: Vec<_> = (2..12).map(all_of).collect();
        assert_eq!(others.iter().map(Vec::len).max(), Some(82));
        assert_eq!(take(1).err(), Some(Lack::Share), "what others have taken counts");
        let singles: Vec<_> = (12..).map_while(|of| take(of).ok()).collect();
        assert_eq!((budget.left(), take(1).err()), (0, Some(Lack::Room)));
        first.pop();
        assert!(take(99).is_ok() && take(1).is_err());
        drop((first, others, singles));
        assert_eq!((budget.left(), budget.state().taken.len()), (512, 0));
    }

    #[test]
    fn one_large_thing_may_take_all_there_is() {
        let budget = Budget::new(100);
        let (mut large, mut second, mut other) = (budget.part("a"), budget.part("a"), budget.part("b"));
        assert_eq!((large.cover(60), large.cover(101), large.amount()), (Ok(()), Err(Lack::Room), 60));
        assert_eq!((second.cover(1), other.cover(1)), (Err(Lack::Share), Ok(())));
        assert_eq!((large.cover(50), large.amount(), budget.left()), (Ok(()), 60, 39));
    }
}

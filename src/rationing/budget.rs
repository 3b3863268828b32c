//! A memory budget for the whole process, with a limit per key (for example per sender).
//!
//! A key that has a reservation and wants another one may reserve, in total, at most a quarter of what is left
//! afterwards. A key at its limit thus leaves four fifths of the budget, and ten such keys leave a tenth. The first
//! reservation of a key is exempt: it may be large, and may take all that is left.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Divisor of the per-key limit: one key may reserve at most the unreserved amount divided by this.
const KEY_LIMIT_DIVISOR: usize = 4;

/// A budget. Clones share it.
pub struct Budget<K>(Arc<Mutex<BudgetState<K>>>);

struct BudgetState<K> {
    /// The unreserved amount. It is negative if the budget was exceeded by reservations that cannot be refused, or by a
    /// reservation of [`Reservation::reserve_if_any_left`].
    left: isize,
    reserved: HashMap<K, usize>,
}

/// The reason why a reservation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhausted {
    /// The budget is used up.
    Total,
    /// The key would exceed its limit.
    PerCaller,
}

impl<K> Clone for Budget<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Clone + Eq + Hash> Budget<K> {
    /// A budget of `max` units.
    pub fn new(max: usize) -> Self {
        let left = isize::try_from(max).unwrap_or(isize::MAX);
        Self(Arc::new(Mutex::new(BudgetState { left, reserved: HashMap::new() })))
    }

    /// `true` if a key is within its limit. The key is computed only when there are reservations.
    pub fn is_within_limit(&self, key: impl FnOnce() -> K) -> bool {
        let state = self.lock();
        state.reserved.is_empty() || state.reserved_by(&key()) <= state.limit_per_key()
    }

    /// Returns the unreserved amount.
    pub fn left(&self) -> isize {
        self.lock().left
    }

    /// Returns the units that a key has reserved.
    pub fn reserved_by(&self, key: &K) -> usize {
        self.lock().reserved_by(key)
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState<K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> BudgetState<K> {
    fn reserved_by(&self, key: &K) -> usize {
        self.reserved.get(key).copied().unwrap_or_default()
    }

    fn limit_per_key(&self) -> usize {
        usize::try_from(self.left).unwrap_or_default() / KEY_LIMIT_DIVISOR
    }

    /// Adds `more` units to a reservation of `own_units` units, if at least `min_left` units are left.
    fn reserve(&mut self, key: &K, own_units: usize, more: usize, min_left: usize) -> Result<(), Exhausted> {
        let before = self.reserved_by(key);
        let wanted = isize::try_from(more).unwrap_or(isize::MAX);
        let left = self.left.saturating_sub(wanted);
        if self.left < isize::try_from(min_left).unwrap_or(isize::MAX) {
            return Err(Exhausted::Total);
        }
        if before > own_units && before + more > usize::try_from(left).unwrap_or_default() / KEY_LIMIT_DIVISOR {
            return Err(Exhausted::PerCaller);
        }
        self.add(key, more);
        Ok(())
    }

    fn add(&mut self, key: &K, more: usize) {
        self.left = self.left.saturating_sub_unsigned(more);
        *self.reserved.entry(key.clone()).or_default() += more;
    }

    fn release(&mut self, key: &K, units: usize) {
        self.left = self.left.saturating_add_unsigned(units);
        if let Some(reserved) = self.reserved.get_mut(key) {
            *reserved -= units;
            if *reserved == 0 {
                self.reserved.remove(key);
            }
        }
    }
}

/// A reservation. Dropping it returns the units to the budget.
pub struct Reservation<K: Clone + Eq + Hash> {
    holder: Option<(Budget<K>, K)>,
    units: usize,
}

impl<K: Clone + Eq + Hash> Default for Reservation<K> {
    fn default() -> Self {
        Self { holder: None, units: 0 }
    }
}

impl<K: Clone + Eq + Hash> Reservation<K> {
    /// Size of the reservation in units.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Grows the reservation to a number of units.
    ///
    /// # Errors
    /// The reason why the budget refuses it; the reservation is unchanged then.
    pub fn grow_to(&mut self, budget: &Budget<K>, key: impl FnOnce() -> K, units: usize) -> Result<(), Exhausted> {
        let lacking = units.saturating_sub(self.units);
        if lacking == 0 {
            return Ok(());
        }
        let (budget, key) = self.holder.get_or_insert_with(|| (budget.clone(), key()));
        budget.lock().reserve(key, self.units, lacking, lacking)?;
        self.units = units;
        Ok(())
    }

    /// Reserves units for an object that exists already, if any units are left. The reservation may exceed what is
    /// left.
    ///
    /// # Errors
    /// As [`Reservation::grow_to`].
    pub fn reserve_if_any_left(budget: &Budget<K>, key: K, units: usize) -> Result<Self, Exhausted> {
        budget.lock().reserve(&key, 0, units, 1)?;
        Ok(Self { holder: Some((budget.clone(), key)), units })
    }

    /// Reserves units even when the budget is used up.
    pub fn reserve_unchecked(budget: &Budget<K>, key: K, units: usize) -> Self {
        budget.lock().add(&key, units);
        Self { holder: Some((budget.clone(), key)), units }
    }

    /// Wraps `bytes` so that the reservation lasts until their last clone or slice is dropped.
    pub fn attach_to(self, bytes: Bytes) -> Bytes
    where
        K: Send + 'static,
    {
        if self.holder.is_some() { Bytes::from_owner(ReservedBytes { bytes, _reservation: self }) } else { bytes }
    }
}

impl<K: Clone + Eq + Hash> Drop for Reservation<K> {
    fn drop(&mut self) {
        if let Some((budget, key)) = &self.holder {
            budget.lock().release(key, self.units);
        }
    }
}

struct ReservedBytes<K: Clone + Eq + Hash> {
    bytes: Bytes,
    _reservation: Reservation<K>,
}

impl<K: Clone + Eq + Hash> AsRef<[u8]> for ReservedBytes<K> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
impl<K: Clone + Eq + Hash> Budget<K> {
    /// Number of keys with reservations.
    pub fn keys_with_reservations(&self) -> usize {
        self.lock().reserved.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_limits_a_caller_to_a_quarter_of_what_remains() {
        let budget = Budget::new(512);
        let take = |of: u64| {
            let mut reservation = Reservation::default();
            reservation.grow_to(&budget, || of, 1).map(|()| reservation)
        };
        let all_of = |of| std::iter::from_fn(|| take(of).ok()).collect::<Vec<_>>();
        let mut first = all_of(1);
        assert_eq!((first.len(), take(1).err()), (102, Some(Exhausted::PerCaller)));
        let others: Vec<_> = (2..12).map(all_of).collect();
        assert_eq!(others.iter().map(Vec::len).max(), Some(82));
        assert_eq!(take(1).err(), Some(Exhausted::PerCaller), "what others have taken counts");
        let singles: Vec<_> = (12..).map_while(|of| take(of).ok()).collect();
        assert_eq!((budget.left(), take(1).err()), (0, Some(Exhausted::Total)));
        first.pop();
        assert!(take(99).is_ok() && take(1).is_err());
        drop((first, others, singles));
        assert_eq!((budget.left(), budget.keys_with_reservations()), (512, 0));
    }

    #[test]
    fn first_reservation_of_a_key_may_use_the_whole_budget() {
        let budget = Budget::new(100);
        let [mut large, mut second, mut other] =
            [Reservation::default(), Reservation::default(), Reservation::default()];
        let mut cover = |units| large.grow_to(&budget, || "a", units);
        assert_eq!((cover(60), cover(101)), (Ok(()), Err(Exhausted::Total)));
        assert_eq!(
            (second.grow_to(&budget, || "a", 1), other.grow_to(&budget, || "b", 1)),
            (Err(Exhausted::PerCaller), Ok(()))
        );
        assert_eq!((cover(50), large.units(), budget.left()), (Ok(()), 60, 39));
    }
}

//! Limits on long lists, which are sent while their pages are read from the store.
//!
//! A list of more than one page takes one of [`MAX_LONG_LISTS`] slots. At most [`MAX_LONG_LISTS_PER_TOKEN`] slots are
//! in use by one token, and at most [`MAX_LONG_LISTS_PER_SENDER`] by one sender. A list without a slot is refused
//! before a status is sent. Only one list reads at a time, in fair order of the senders, so that other store
//! connections stay free. The first page of a list with details needs a permit too, because its rows are in memory
//! until the response is built. After [`MAX_LIST_AGE`] a list may not read any further page, and its slot is free
//! again. Slots are not counted by a [`Budget`](crate::rationing::Budget), because each slot counts for both a token
//! and a sender, and expires.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::sender::Sender;
use crate::auth::store::TokenHash;
use crate::error::{Error, Kind, Result};
use crate::rationing::{CallerId, FairSemaphore, Permit, caller_id};

/// Maximum number of concurrent long lists.
pub const MAX_LONG_LISTS: usize = 64;
/// Maximum number of concurrent long lists per token.
pub const MAX_LONG_LISTS_PER_TOKEN: usize = 8;
/// Maximum number of concurrent long lists per sender, over all its tokens.
pub const MAX_LONG_LISTS_PER_SENDER: usize = 16;
/// Maximum time for which a list may read pages from the store.
pub const MAX_LIST_AGE: Duration = Duration::from_secs(3600);

/// Registry of the long lists of a server. Clones share the same registry.
#[derive(Clone)]
pub struct LongLists(Arc<LongListState>);

struct LongListState {
    read_queue: FairSemaphore,
    /// Queue of lists with details that wait to read their first page.
    first_page_queue: FairSemaphore,
    slots: Mutex<ListSlots>,
}

#[derive(Default)]
struct ListSlots {
    last_id: u64,
    in_use: Vec<ListSlotInUse>,
}

/// A list slot that is in use until the list ends or the time `end` has passed.
struct ListSlotInUse {
    id: u64,
    token: TokenHash,
    sender: Sender,
    end: Instant,
}

impl Default for LongLists {
    fn default() -> Self {
        Self(Arc::new(LongListState {
            read_queue: FairSemaphore::new(1),
            first_page_queue: FairSemaphore::for_half_the_cores(),
            slots: Mutex::default(),
        }))
    }
}

impl LongLists {
    /// Reserves a slot for a list.
    ///
    /// # Errors
    /// `Quota` when the token or the sender is at its limit, `Busy` when all slots are in use.
    pub fn begin(&self, token: TokenHash, sender: Sender) -> Result<ListSlot> {
        self.begin_at(token, sender, Instant::now())
    }

    fn begin_at(&self, token: TokenHash, sender: Sender, now: Instant) -> Result<ListSlot> {
        let mut slots = self.lock();
        slots.in_use.retain(|slot| now < slot.end);
        let own = slots.in_use.iter().filter(|slot| slot.token == token).count();
        if own >= MAX_LONG_LISTS_PER_TOKEN {
            return Err(limit_error(Kind::Quota, MAX_LONG_LISTS_PER_TOKEN, " of this token"));
        }
        if slots.in_use.iter().filter(|slot| slot.sender == sender).count() >= MAX_LONG_LISTS_PER_SENDER {
            return Err(limit_error(Kind::Quota, MAX_LONG_LISTS_PER_SENDER, " of this caller"));
        }
        if slots.in_use.len() >= MAX_LONG_LISTS {
            return Err(limit_error(Kind::Busy, MAX_LONG_LISTS, ""));
        }
        slots.last_id += 1;
        let id = slots.last_id;
        let end = now + MAX_LIST_AGE;
        let caller_id = caller_id(&sender);
        slots.in_use.push(ListSlotInUse { id, token, sender, end });
        drop(slots);
        Ok(ListSlot { lists: self.clone(), id, end, caller_id })
    }

    /// Waits for a permit to read the first page of a list with details.
    ///
    /// # Errors
    /// `Busy` when too many lists of the caller wait.
    pub async fn wait_for_first_page(&self) -> Result<Permit> {
        self.0
            .first_page_queue
            .acquire_bounded("list: too many queued lists of this caller; retry, or request a page (limit)")
            .await
    }

    fn lock(&self) -> MutexGuard<'_, ListSlots> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn limit_error(kind: Kind, max: usize, whose: &str) -> Error {
    let text =
        format!("list: limit of {max} concurrent long lists{whose} reached; retry, or request a page (after, limit)");
    Error::new(kind, text)
}

/// A slot for a long list. Dropping it frees the slot.
pub struct ListSlot {
    lists: LongLists,
    id: u64,
    end: Instant,
    caller_id: CallerId,
}

impl ListSlot {
    /// Waits until this list may read its next page. It may read until the returned permit is dropped.
    ///
    /// # Errors
    /// `Busy` when the list has run for longer than [`MAX_LIST_AGE`].
    pub async fn wait_for_read_permit(&self) -> Result<Permit> {
        let late = || Error::new(Kind::Busy, "list: not complete after one hour; request pages (after, limit)");
        if self.end <= Instant::now() {
            return Err(late());
        }
        let permit = self.lists.0.read_queue.acquire(self.caller_id);
        tokio::time::timeout_at(self.end.into(), permit).await.map_err(|_| late())
    }
}

impl Drop for ListSlot {
    fn drop(&mut self) {
        self.lists.lock().in_use.retain(|slot| slot.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const FIRST_TOKEN: TokenHash = [1; 32];

    fn sender(n: usize) -> Sender {
        Sender::User(n as i64)
    }

    fn kind(refused: Result<ListSlot>) -> Kind {
        refused.err().unwrap().kind()
    }

    #[test]
    fn long_lists_are_limited_per_token_and_in_total() {
        let lists = LongLists::default();
        let mut own: Vec<ListSlot> =
            (0..MAX_LONG_LISTS_PER_TOKEN).map(|_| lists.begin(FIRST_TOKEN, sender(1)).unwrap()).collect();
        assert_eq!(kind(lists.begin(FIRST_TOKEN, sender(1))), Kind::Quota);
        let others = (MAX_LONG_LISTS_PER_TOKEN..MAX_LONG_LISTS)
            .map(|n| lists.begin([n as u8 / MAX_LONG_LISTS_PER_TOKEN as u8 + 9; 32], sender(n)).unwrap());
        let others: Vec<ListSlot> = others.collect();
        assert_eq!(kind(lists.begin([2; 32], sender(2))), Kind::Busy);
        own.pop();
        let late = lists.begin([2; 32], sender(2)).unwrap();
        assert_eq!(kind(lists.begin(FIRST_TOKEN, sender(1))), Kind::Busy);
        drop((others, late));
        own.push(lists.begin(FIRST_TOKEN, sender(1)).unwrap());
        assert_eq!(kind(lists.begin(FIRST_TOKEN, sender(1))), Kind::Quota);
    }

    #[test]
    fn long_lists_are_limited_per_sender_across_tokens() {
        let lists = LongLists::default();
        let one: Vec<ListSlot> =
            (0..MAX_LONG_LISTS_PER_SENDER).map(|n| lists.begin([n as u8 / 8; 32], sender(1)).unwrap()).collect();
        assert_eq!(kind(lists.begin([9; 32], sender(1))), Kind::Quota);
        assert!(lists.begin([9; 32], sender(2)).is_ok());
        drop(one);
        assert!(lists.begin([9; 32], sender(1)).is_ok());
    }

    #[actix_web::test]
    async fn long_list_older_than_an_hour_ends_and_frees_its_slot() {
        let lists = LongLists::default();
        let begun = Instant::now().checked_sub(MAX_LIST_AGE).unwrap();
        let old: Vec<ListSlot> =
            (0..MAX_LONG_LISTS_PER_TOKEN).map(|_| lists.begin_at(FIRST_TOKEN, sender(1), begun).unwrap()).collect();
        assert_eq!(old[0].wait_for_read_permit().await.err().unwrap().kind(), Kind::Busy);
        let young = lists.begin(FIRST_TOKEN, sender(1)).unwrap();
        // Dropping an expired slot does not free the slot of another list.
        drop(old);
        assert_eq!(lists.lock().in_use.len(), 1);
        assert!(young.wait_for_read_permit().await.is_ok());
    }

    #[actix_web::test]
    async fn only_one_long_list_reads_at_a_time() {
        let lists = LongLists::default();
        let one = lists.begin(FIRST_TOKEN, sender(1)).unwrap();
        let other = lists.begin(FIRST_TOKEN, sender(1)).unwrap();
        let permit = one.wait_for_read_permit().await.unwrap();
        assert!(other.wait_for_read_permit().now_or_never().is_none());
        drop(permit);
        assert!(other.wait_for_read_permit().now_or_never().unwrap().is_ok());
    }
}

//! Limits on long lists, which are streamed while they are read page by page from the store.
//!
//! At most [`MOST`] long lists run concurrently, [`MOST_OF_TOKEN`] per token and [`MOST_OF_SENDER`] per sender; others
//! are refused before a status is sent. Only one of them reads at a time, in fair order of their senders, so that other
//! store connections stay free. The first page of a detailed list needs a permit too, because its rows are in memory
//! until the response is made. After [`LONGEST`] a list may not read any more, and its slot is free. Lists of one page
//! need no slot.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::sender::Sender;
use crate::auth::store::TokenHash;
use crate::error::{Error, Kind, Result};
use crate::turns::{self, Entrance, asker_of};

/// Maximum number of concurrent long lists.
pub const MOST: usize = 64;
/// Maximum number of concurrent long lists per token.
pub const MOST_OF_TOKEN: usize = 8;
/// Maximum number of concurrent long lists per sender, over all its tokens.
pub const MOST_OF_SENDER: usize = 16;
/// Maximum age at which a list may still read.
pub const LONGEST: Duration = Duration::from_secs(3600);

/// Registry of the long lists of a server. Clones share it.
#[derive(Clone)]
pub struct Lists(Arc<Shared>);

struct Shared {
    reading: Entrance,
    /// Permits for first pages of detailed lists.
    first: Entrance,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    last_id: u64,
    taken: Vec<Taken>,
}

/// A slot in use, until the list ends or `end` has passed.
struct Taken {
    id: u64,
    token: TokenHash,
    sender: Sender,
    end: Instant,
}

impl Default for Lists {
    fn default() -> Self {
        Self(Arc::new(Shared {
            reading: Entrance::new(1),
            first: Entrance::beside_workers(),
            places: Mutex::default(),
        }))
    }
}

impl Lists {
    /// Reserves a slot for a list.
    ///
    /// # Errors
    /// `Quota` when the token or the sender is at its limit, `Busy` when all slots are in use.
    pub fn begin(&self, token: TokenHash, sender: Sender) -> Result<Place> {
        self.begin_at(token, sender, Instant::now())
    }

    fn begin_at(&self, token: TokenHash, sender: Sender, now: Instant) -> Result<Place> {
        let mut places = self.lock();
        places.taken.retain(|place| now < place.end);
        let own = places.taken.iter().filter(|place| place.token == token).count();
        if own >= MOST_OF_TOKEN {
            return Err(refused(Kind::Quota, MOST_OF_TOKEN, " of this token"));
        }
        if places.taken.iter().filter(|place| place.sender == sender).count() >= MOST_OF_SENDER {
            return Err(refused(Kind::Quota, MOST_OF_SENDER, " of tokens that count as one"));
        }
        if places.taken.len() >= MOST {
            return Err(refused(Kind::Busy, MOST, ""));
        }
        places.last_id += 1;
        let (id, end) = (places.last_id, now + LONGEST);
        let asker = asker_of(&sender);
        places.taken.push(Taken { id, token, sender, end });
        drop(places);
        Ok(Place { lists: self.clone(), id, end, asker })
    }

    /// Waits for a permit to read the first page of a detailed list.
    ///
    /// # Errors
    /// `Busy` when too many lists of the caller wait.
    pub async fn turn_for_first(&self) -> Result<turns::Place> {
        self.0
            .first
            .enter_bounded("list: too many lists of this caller wait; try again, or ask for a part (limit)")
            .await
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(kind: Kind, most: usize, whose: &str) -> Error {
    let text = format!("list: {most} long lists{whose} are under way; try again, or ask for a part (after, limit)");
    Error::new(kind, text)
}

/// The slot of a list; dropping it frees the slot.
pub struct Place {
    lists: Lists,
    id: u64,
    end: Instant,
    asker: turns::Asker,
}

impl Place {
    /// Waits until this list may read, which lasts until the result is dropped.
    ///
    /// # Errors
    /// `Busy` when the list has run for longer than [`LONGEST`].
    pub async fn turn(&self) -> Result<turns::Place> {
        let late = || Error::new(Kind::Busy, "a list took longer than an hour");
        if self.end <= Instant::now() {
            return Err(late());
        }
        let turn = self.lists.0.reading.enter(self.asker);
        tokio::time::timeout_at(self.end.into(), turn).await.map_err(|_| late())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lists.lock().taken.retain(|place| place.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const ONE: TokenHash = [1; 32];

    fn sender(n: usize) -> Sender {
        Sender::User(n as i64)
    }

    fn kind(refused: Result<Place>) -> Kind {
        refused.err().unwrap().kind()
    }

    #[test]
    fn a_token_has_some_places_and_all_together_have_more() {
        let lists = Lists::default();
        let mut own: Vec<Place> = (0..MOST_OF_TOKEN).map(|_| lists.begin(ONE, sender(1)).unwrap()).collect();
        assert_eq!(kind(lists.begin(ONE, sender(1))), Kind::Quota);
        let others =
            (MOST_OF_TOKEN..MOST).map(|n| lists.begin([n as u8 / MOST_OF_TOKEN as u8 + 9; 32], sender(n)).unwrap());
        let others: Vec<Place> = others.collect();
        assert_eq!(kind(lists.begin([2; 32], sender(2))), Kind::Busy);
        own.pop();
        let late = lists.begin([2; 32], sender(2)).unwrap();
        assert_eq!(kind(lists.begin(ONE, sender(1))), Kind::Busy);
        drop((others, late));
        own.push(lists.begin(ONE, sender(1)).unwrap());
        assert_eq!(kind(lists.begin(ONE, sender(1))), Kind::Quota);
    }

    #[test]
    fn tokens_that_count_as_one_share_their_places() {
        let lists = Lists::default();
        let one: Vec<Place> = (0..MOST_OF_SENDER).map(|n| lists.begin([n as u8 / 8; 32], sender(1)).unwrap()).collect();
        assert_eq!(kind(lists.begin([9; 32], sender(1))), Kind::Quota);
        assert!(lists.begin([9; 32], sender(2)).is_ok());
        drop(one);
        assert!(lists.begin([9; 32], sender(1)).is_ok());
    }

    #[actix_web::test]
    async fn after_an_hour_a_list_reads_no_more_and_has_no_place() {
        let lists = Lists::default();
        let begun = Instant::now().checked_sub(LONGEST).unwrap();
        let old: Vec<Place> = (0..MOST_OF_TOKEN).map(|_| lists.begin_at(ONE, sender(1), begun).unwrap()).collect();
        assert_eq!(old[0].turn().await.err().unwrap().kind(), Kind::Busy);
        let young = lists.begin(ONE, sender(1)).unwrap();
        // Dropping an expired slot does not free the slot of another list.
        drop(old);
        assert_eq!(lists.lock().taken.len(), 1);
        assert!(young.turn().await.is_ok());
    }

    #[actix_web::test]
    async fn one_list_reads_at_a_time() {
        let lists = Lists::default();
        let (one, other) = (lists.begin(ONE, sender(1)).unwrap(), lists.begin(ONE, sender(1)).unwrap());
        let turn = one.turn().await.unwrap();
        assert!(other.turn().now_or_never().is_none());
        drop(turn);
        assert!(other.turn().now_or_never().unwrap().is_ok());
    }
}

//! Limits on shared resources. A limit has an amount for all callers together, and a smaller amount for each caller.
//!
//! A new limit uses one of these primitives:
//!
//! | primitive | for | at the limit |
//! |---|---|---|
//! | [`FairQueue`] | jobs that an actor or a thread takes | the job waits; a full queue refuses it |
//! | [`FairSemaphore`] | async work that needs one of a few permits | the work waits, in the order of a fair queue |
//! | [`Budget`] | amounts held at a time: memory, requests | refused |
//! | [`TokenBuckets`] | amounts per unit of time: requests, bytes | refused until the bucket has refilled |
//!
//! Long CPU work runs in the fair queue of the process ([`cpu`]). A limit without an amount for each caller uses a
//! semaphore of tokio. A limit with a rule of its own says so in its module comment.

mod budget;
mod caller;
pub mod cpu;
mod fair_queue;
mod fair_semaphore;
mod token_buckets;

pub use self::budget::{Budget, Exhausted, Reservation};
pub use self::caller::{CallerId, CurrentCaller, QueueCaller, caller_id};
pub use self::fair_queue::{DisplacedJobs, FairQueue, MAX_WAITING_PER_CALLER};
pub use self::fair_semaphore::{FairSemaphore, Permit};
pub use self::token_buckets::{BucketRule, LEVEL_TOLERANCE, TokenBuckets, Withdrawal};

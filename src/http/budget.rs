//! Byte budgets of the process with a limit per sender ([`crate::budget`]).

use super::sender::Sender;
use crate::budget;
pub use crate::budget::Exhausted;

/// A budget of bytes with a limit per sender.
pub type SenderBudget = budget::Budget<Sender>;
/// Bytes reserved in a [`SenderBudget`].
pub type SenderReservation = budget::Reservation<Sender>;

//! What a long list goes on by: a place among the long lists, and the right of who asked for it.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::error::{Error, Kind, Result};
use crate::http::lists::Place;
use crate::http::secrets::placed;
use crate::http::secrets::route::{Access, Call, Operation};
use crate::http::sender::Sender;
use crate::turns::Place as Turn;

/// Asks whether a list may still be read.
type MayRead = Box<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// What a list has that does not end with its first page.
pub(super) struct Pass {
    place: Place,
    may_read: MayRead,
}

impl Pass {
    /// For a list in a place.
    pub(super) fn new(place: Place, may_read: MayRead) -> Self {
        Self { place, may_read }
    }

    /// For the list that is asked for.
    ///
    /// # Errors
    /// Those of [`Lists::begin`](crate::http::lists::Lists::begin).
    pub(super) fn of(call: &Call) -> Result<Self> {
        let (shared, caller) = (Arc::clone(call.state.shared()), Arc::clone(call.caller()?));
        let place = shared.lists.begin(caller.token_hash(), Sender::of_token(Some(&caller), None))?;
        let (path, address, sudo) = (call.full_path.clone(), call.address, call.route.access == Access::Sudo);
        let may_read = move || {
            let (shared, caller, path) = (Arc::clone(&shared), Arc::clone(&caller), path.clone());
            async move {
                shared.nodes.fresh().await?;
                let caller = shared.auth.again(&caller, address).await.map_err(without_right)?;
                let decision = placed(&shared, &path, |at| shared.auth.decide(&caller, Operation::List, at, None));
                let may = decision.allowed && (decision.sudo || !sudo);
                if may { Ok(()) } else { Err(without_right(Error::forbidden())) }
            }
            .boxed()
        };
        Ok(Self::new(place, Box::new(may_read)))
    }

    /// Waits until the list may read its next page.
    ///
    /// # Errors
    /// `Forbidden` when who asked for it may not list any more; `Busy` when it has taken too long.
    pub(super) async fn turn(&self) -> Result<Turn> {
        let turn = self.place.turn().await?;
        (self.may_read)().await?;
        Ok(turn)
    }
}

/// What the log is told of the end of a token or of its right.
fn without_right(error: Error) -> Error {
    match error.kind() {
        Kind::Forbidden | Kind::Unauthenticated => {
            Error::new(Kind::Forbidden, "who asked for it may not list any more")
        }
        _ => error,
    }
}

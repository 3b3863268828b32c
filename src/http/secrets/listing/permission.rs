//! The permission to read the next page of a long list: a list slot, and the caller's permission to list.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::error::{Error, Kind, Result};
use crate::http::long_lists::ListSlot;
use crate::http::secrets::route::{Call, Operation, RouteAccess};
use crate::http::secrets::with_canonical_path;
use crate::http::sender::Sender;
use crate::rationing::Permit;

/// Checks if the caller may still list.
type MayRead = Box<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>;

pub(super) struct ReadPermission {
    slot: ListSlot,
    may_read: MayRead,
}

impl ReadPermission {
    pub(super) fn new(slot: ListSlot, may_read: MayRead) -> Self {
        Self { slot, may_read }
    }

    /// Reserves a slot for the list that `call` requests.
    ///
    /// # Errors
    /// Those of [`LongLists::begin`](crate::http::long_lists::LongLists::begin).
    pub(super) fn of(call: &Call) -> Result<Self> {
        let shared = Arc::clone(call.state.shared());
        let caller = Arc::clone(call.caller()?);
        let slot = shared.long_lists.begin(caller.token_hash(), Sender::of_token(Some(&caller), None))?;
        let path = call.full_path.clone();
        let address = call.address;
        let sudo = call.route.access == RouteAccess::Sudo;
        let may_read = move || {
            let shared = Arc::clone(&shared);
            let caller = Arc::clone(&caller);
            let path = path.clone();
            async move {
                shared.nodes.require_fresh().await?;
                let caller = shared.auth.recheck_caller(&caller, address).await.map_err(permission_error)?;
                let decision =
                    with_canonical_path(&shared, &path, |at| shared.auth.decide(&caller, Operation::List, at, None));
                let may = decision.allowed && (decision.sudo || !sudo);
                if may { Ok(()) } else { Err(permission_error(Error::forbidden())) }
            }
            .boxed()
        };
        Ok(Self::new(slot, Box::new(may_read)))
    }

    /// Waits until the list may read its next page.
    ///
    /// # Errors
    /// `Forbidden` when the caller may no longer list; `Busy` when the list has run for too long.
    pub(super) async fn wait_for_read_permit(&self) -> Result<Permit> {
        let permit = self.slot.wait_for_read_permit().await?;
        (self.may_read)().await?;
        Ok(permit)
    }
}

/// Replaces the error for an expired token or a lost permission by one whose text states this cause in the log.
fn permission_error(error: Error) -> Error {
    match error.kind() {
        Kind::Forbidden | Kind::Unauthenticated => {
            Error::new(Kind::Forbidden, "list: the caller's token or permission ended while the list was sent")
        }
        _ => error,
    }
}

//! Private storage of a token (`cubbyhole/`). Only the token itself can access it, and it is deleted with the token.

use futures_util::future::LocalBoxFuture;

use super::handler_response::HandlerResponse;
use super::page::{PAGE_FIELDS, PageParams};
use super::route::{Call, ExistenceQuery, Route, routes};
use crate::error::{Error, Result};
use crate::secret::PartlySecret;

/// Maximum size of an entry in a cubbyhole, in bytes.
const MAX_ENTRY_BYTES: usize = 64 << 10;

/// The routes of the cubbyhole mount.
pub static ROUTES: &[Route] = routes! {
    (token.uncompressed()) List "", "*path" PAGE_FIELDS => list;
    token Read "*path" &[] => read;
    (token.with_verbatim_body().with_body_limit(MAX_ENTRY_BYTES).with_existence_check(exists)) Update
        "*path" &[] => write;
    token Delete "*path" &[] => delete;
};

/// `LIST cubbyhole/:path`: the names of the entries directly below the path.
async fn list(call: Call) -> Result<HandlerResponse> {
    let page = PageParams::of(&call.fields)?;
    let keys = call.state.auth.cubbyhole_keys(call.caller()?, call.param("path")).await?;
    HandlerResponse::keys(page.take_page(keys.iter().map(String::as_str)), None)
}

async fn read(call: Call) -> Result<HandlerResponse> {
    let entry = call.state.auth.cubbyhole_read(call.caller()?, call.param("path")).await?;
    let entry = entry.ok_or_else(Error::not_found)?;
    let mut json = PartlySecret::with_capacity(entry.expose().len());
    json.push_secret(entry.expose());
    Ok(HandlerResponse::rendered(json))
}

fn exists(named: ExistenceQuery<'_>) -> LocalBoxFuture<'_, Result<bool>> {
    Box::pin(async move { named.state.auth.cubbyhole_has(named.caller, named.param("path")).await })
}

/// `POST cubbyhole/:path`: replaces the whole entry.
async fn write(call: Call) -> Result<HandlerResponse> {
    let auth = &call.state.auth;
    let caller = call.caller()?;
    let members = call.fields.clone().into_members();
    auth.cubbyhole_write(caller, call.param("path"), &members).await.map(HandlerResponse::from)
}

/// `DELETE cubbyhole/:path`; also succeeds if the entry does not exist.
async fn delete(call: Call) -> Result<HandlerResponse> {
    call.state.auth.cubbyhole_delete(call.caller()?, call.param("path")).await.map(HandlerResponse::from)
}

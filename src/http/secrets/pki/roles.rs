//! Roles: `roles`, `roles/:name`.

mod members;
mod policies;

pub(super) use self::members::FIELDS;
use self::members::{read as role_of, role_json};
use super::{WriteMode, list_names};
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::pki::ca::changes;

pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    list_names(&call, call.authority().await?.view().role_names())
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let view = call.authority().await?.view();
    let entry = view.role(call.param("name")).ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(role_json(&entry.role, call.dialect)))
}

pub(super) async fn write(mut call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let write = WriteMode::of(&call);
    let fields = std::mem::take(&mut call.fields);
    let name = call.param("name").to_owned();
    let (role, warnings) = changes::write_role(&authority, call.param("name"), move |stored| match (write, stored) {
        (WriteMode::Replace, _) => role_of(&fields, None),
        (WriteMode::Merge, Some(stored)) => role_of(&fields, Some(stored)),
        (WriteMode::Merge, None) => Err(Error::invalid(format!("role does not exist: {name}"))),
    })
    .await?;
    Ok(HandlerResponse::data(role_json(&role, call.dialect)).with_warnings(warnings))
}

pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    changes::delete_role(&*call.authority().await?, call.param("name")).await.map(HandlerResponse::from)
}

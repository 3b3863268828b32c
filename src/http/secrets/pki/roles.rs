//! Roles: `roles`, `roles/:name`.

mod members;
mod policies;

pub(super) use self::members::FIELDS;
use self::members::{read as role_of, shown};
use super::{Write, page_of_names};
use crate::error::{Error, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::ca::changes;

pub(super) async fn list(call: Call) -> Result<Answer> {
    page_of_names(&call, call.authority().await?.view().role_names())
}

pub(super) async fn read(call: Call) -> Result<Answer> {
    let view = call.authority().await?.view();
    let entry = view.role(call.param("name")).ok_or_else(Error::not_found)?;
    Ok(Answer::data(shown(&entry.role, call.dialect)))
}

pub(super) async fn replace(call: Call) -> Result<Answer> {
    write(call, Write::Replace).await
}

pub(super) async fn merge(call: Call) -> Result<Answer> {
    write(call, Write::Merge).await
}

async fn write(mut call: Call, write: Write) -> Result<Answer> {
    let authority = call.authority().await?;
    let (fields, name) = (std::mem::take(&mut call.fields), call.param("name").to_owned());
    let (role, warnings) = changes::write_role(&authority, call.param("name"), move |stored| match (write, stored) {
        (Write::Replace, _) => role_of(&fields, None),
        (Write::Merge, Some(stored)) => role_of(&fields, Some(stored)),
        (Write::Merge, None) => Err(Error::invalid(format!("role does not exist: {name}"))),
    })
    .await?;
    Ok(Answer::data(shown(&role, call.dialect)).with_warnings(warnings))
}

pub(super) async fn delete(call: Call) -> Result<Answer> {
    changes::delete_role(&*call.authority().await?, call.param("name")).await?;
    Ok(Answer::empty())
}

//! Roles: `roles`, `roles/:name`.

use super::page_of_names;
use crate::error::{Error, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::changes::{self, Write};

pub(super) async fn list(call: Call) -> Result<Answer> {
    page_of_names(&call, call.authority().await?.view().role_names())
}

pub(super) async fn read(call: Call) -> Result<Answer> {
    let view = call.authority().await?.view();
    let entry = view.role(call.param("name")).ok_or_else(Error::not_found)?;
    Ok(Answer::data(call.dialect.role(&entry.role)))
}

pub(super) async fn replace(call: Call) -> Result<Answer> {
    write(call, Write::Replace).await
}

pub(super) async fn merge(call: Call) -> Result<Answer> {
    write(call, Write::Merge).await
}

async fn write(call: Call, write: Write) -> Result<Answer> {
    let (role, warnings) =
        changes::write_role(&*call.authority().await?, call.param("name"), &call.fields, write).await?;
    Ok(Answer::data(call.dialect.role(&role)).with_warnings(warnings))
}

pub(super) async fn delete(call: Call) -> Result<Answer> {
    changes::delete_role(&*call.authority().await?, call.param("name")).await?;
    Ok(Answer::empty())
}

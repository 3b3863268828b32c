//! CRLs and their settings: `config/crl`.

use crate::error::Result;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::changes;

pub(super) async fn read_config(call: Call) -> Result<Answer> {
    Ok(Answer::data(call.authority().await?.view().crl_config.value.to_json()))
}

pub(super) async fn write_config(call: Call) -> Result<Answer> {
    let warnings = changes::write_crl_config(&*call.authority().await?, &call.fields).await?;
    Ok(read_config(call).await?.with_warnings(warnings))
}

//! Importing: `intermediate/set-signed`, `issuers/import/…`, `config/ca`, `keys/import`.

use crate::error::Result;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::import::{self, Imported, PrivateKeys};

/// Certificates and keys.
pub(super) async fn bundle(call: Call) -> Result<Answer> {
    import(call, "pem_bundle", PrivateKeys::Allowed).await
}

/// Certificates without keys.
pub(super) async fn certificates(call: Call) -> Result<Answer> {
    import(call, "pem_bundle", PrivateKeys::Refused).await
}

/// The signed certificate of a request that was made here, with its parents; the key is here.
pub(super) async fn set_signed(call: Call) -> Result<Answer> {
    import(call, "certificate", PrivateKeys::Refused).await
}

async fn import(mut call: Call, field: &'static str, private_keys: PrivateKeys) -> Result<Answer> {
    let given = import::given(field, &mut call.fields)?;
    Ok(answer(import::bundle(&*call.authority().await?, field, given, private_keys).await?))
}

pub(super) async fn key(mut call: Call) -> Result<Answer> {
    let given = import::given("pem_bundle", &mut call.fields)?;
    Ok(answer(import::key(&*call.authority().await?, given, &call.fields).await?))
}

fn answer(imported: Imported) -> Answer {
    Answer::data(imported.data).with_warnings(imported.warnings)
}

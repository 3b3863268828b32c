//! Importing: `intermediate/set-signed`, `issuers/import/…`, `config/ca`, `keys/import`.

use serde_json::json;

use crate::error::{Error, Result};
use crate::fields::Fields;
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::ca::import::{self, PrivateKeys};
use crate::secret::Secret;

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
    let given = given(field, &mut call.fields)?;
    let imported = import::bundle(&*call.authority().await?, field, given, private_keys).await?;
    let data = json!({
        "imported_issuers": imported.imported_issuers,
        "imported_keys": imported.imported_keys,
        "existing_issuers": imported.existing_issuers,
        "existing_keys": imported.existing_keys,
        "mapping": imported.mapping,
    });
    Ok(Answer::data(data).with_warnings(imported.warnings))
}

pub(super) async fn key(mut call: Call) -> Result<Answer> {
    let given = given("pem_bundle", &mut call.fields)?;
    let authority = call.authority().await?;
    let name = call.fields.text("key_name")?.unwrap_or_default();
    let key = import::key(&authority, given, name).await?;
    let data = json!({ "key_id": key.id, "key_name": key.name, "key_type": key.kind.name() });
    Ok(Answer::data(data).with_warnings(key.warnings))
}

/// Takes what is to be imported out of the body, whatever becomes of the request.
fn given(field: &'static str, fields: &mut Fields) -> Result<Secret> {
    fields.take_secret(field)?.ok_or_else(|| Error::invalid(format!("{field}: must be given")))
}

//! Generating: roots, requests of intermediates, keys. The path's `:type` says where the key comes from.

use crate::error::{Error, Kind, Result};
use crate::http::secrets::answer::Answer;
use crate::http::secrets::route::Call;
use crate::pki::ca_key::{self, KeyOrigin};
use crate::pki::issue::Dates;
use crate::pki::root::Naming;
use crate::pki::validity::Limits;
use crate::pki::{intermediate, root};

fn origin(call: &Call) -> Result<KeyOrigin> {
    match call.param("type") {
        "internal" => Ok(KeyOrigin::Internal),
        "exported" => Ok(KeyOrigin::Exported),
        "existing" => Ok(KeyOrigin::Existing),
        "kms" => Err(Error::invalid("type: kms: managed keys are not supported by this server yet")),
        _ => Err(Error::new(Kind::NotFound, "unsupported path")),
    }
}

pub(super) async fn root(call: Call) -> Result<Answer> {
    new_root(call, Naming::AsGiven).await
}

/// As [`root`]; the issuer's name defaults to `next` while that is free.
pub(super) async fn rotated_root(call: Call) -> Result<Answer> {
    new_root(call, Naming::NextIfFree).await
}

async fn new_root(call: Call, naming: Naming) -> Result<Answer> {
    let origin = origin(&call)?;
    let authority = call.authority().await?;
    let limits = Limits { mount_default: call.mount.default_ttl(), mount_max: call.mount.max_ttl() };
    let generated = root::generate(&authority, origin, naming, &call.fields, limits, call.recorded_as()).await?;
    let dates = Dates { not_before: None, expiration: generated.expiration };
    let data = call.dialect.with_dates(generated.data, dates);
    Ok(Answer::rendered(data).with_warnings(generated.warnings))
}

pub(super) async fn intermediate(call: Call) -> Result<Answer> {
    let origin = origin(&call)?;
    new_intermediate(call, origin).await
}

/// As [`intermediate`], for a key that the mount has.
pub(super) async fn cross_sign(call: Call) -> Result<Answer> {
    new_intermediate(call, KeyOrigin::Existing).await
}

async fn new_intermediate(call: Call, origin: KeyOrigin) -> Result<Answer> {
    let (data, warnings) = intermediate::generate(&*call.authority().await?, origin, &call.fields).await?;
    Ok(Answer::rendered(data).with_warnings(warnings))
}

pub(super) async fn key(call: Call) -> Result<Answer> {
    let origin = origin(&call)?;
    if origin == KeyOrigin::Existing {
        return Err(Error::new(Kind::NotFound, "unsupported path"));
    }
    Ok(Answer::rendered(ca_key::generate(&*call.authority().await?, origin, &call.fields).await?))
}

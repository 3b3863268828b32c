//! Keys: `keys`, `key/:key_ref`, `config/keys`. Private keys are never returned.

use serde_json::{Map, Value, json};

use super::PageParams;
use super::rendering::colon_hex;
use crate::error::{Error, Result};
use crate::http::secrets::handler_response::HandlerResponse;
use crate::http::secrets::route::Call;
use crate::pki::ca::changes;
use crate::pki::mount::view::MountView;

pub(super) async fn list(call: Call) -> Result<HandlerResponse> {
    let view = call.authority().await?.view();
    let keys = PageParams::of(&call.fields)?.take_page(view.keys().map(|k| k.id.as_str()));
    let mut info = Map::new();
    for key in keys.iter().filter_map(|id| view.key(id)) {
        info.insert(key.id.clone(), json!({ "key_name": key.name, "is_default": view.is_default_key(&key.id) }));
    }
    HandlerResponse::keys(keys, Some(Value::Object(info)))
}

pub(super) async fn read(call: Call) -> Result<HandlerResponse> {
    let view = call.authority().await?.view();
    key_json(&view, call.param("key_ref")).map(HandlerResponse::data).ok_or_else(Error::not_found)
}

fn key_json(view: &MountView, reference: &str) -> Option<Value> {
    let key = view.key(reference)?;
    let mut json = json!({
        "key_id": key.id,
        "key_name": key.name,
        "key_type": key.public().kind().name(),
        "subject_key_id": colon_hex(&key.public().key_id()),
    });
    if let Some(managed) = key.signing.managed() {
        json["managed_key_id"] = managed.uuid.as_str().into();
        json["managed_key_name"] = managed.name.as_str().into();
    }
    Some(json)
}

pub(super) async fn rename(call: Call) -> Result<HandlerResponse> {
    let authority = call.authority().await?;
    let name = call.fields.text("key_name")?.unwrap_or_default();
    let id = changes::rename_key(&authority, call.param("key_ref"), &name).await?;
    let warnings = name.is_empty().then(|| "key_name: the key has no name now".to_owned());
    let json = key_json(&authority.view(), &id).ok_or_else(Error::not_found)?;
    Ok(HandlerResponse::data(json).with_warnings(warnings))
}

pub(super) async fn delete(call: Call) -> Result<HandlerResponse> {
    changes::delete_key(&*call.authority().await?, call.param("key_ref")).await.map(HandlerResponse::from)
}

pub(super) async fn read_config(call: Call) -> Result<HandlerResponse> {
    Ok(HandlerResponse::data(json!({ "default": call.authority().await?.view().keys_config.value.default })))
}

pub(super) async fn write_config(call: Call) -> Result<HandlerResponse> {
    changes::write_keys_config(&*call.authority().await?, call.fields.text("default")?).await?;
    read_config(call).await
}

//! Roles of `cloudb`.

use serde_json::{Value, json};

use super::World;
use crate::provider::S1;
use crate::support::tests_on;

tests_on!(enabled: World::start() =>
    role_is_read_back_ignoring_letter_case,
    role_without_effective_binding_is_rejected,
    role_with_group_but_no_subscription_warns,
    invalid_token_settings_are_rejected,
    last_effective_binding_cannot_be_cleared,
);

const EMPTY: &str = "must have at least one bound constraint when creating/updating a role";
const WIDE: &str = "expected specific bound_group_ids or bound_service_principal_ids; both cannot be empty or '*'";

async fn role_is_read_back_ignoring_letter_case(world: &World) {
    let client = &world.app.client;
    let body = json!({"policies": "b,a", "bound_service_principal_ids": "o1,o2", "token_ttl": "1h"});
    client.post("auth/cloudb/role/DevRole", body).await.assert_status(204);
    let data = client.get("auth/cloudb/role/devrole").await.body["data"].clone();
    assert_eq!((&data["policies"], &data["token_policies"]), (&json!(["a", "b"]), &json!(["a", "b"])));
    assert_eq!(data["bound_service_principal_ids"], json!(["o1", "o2"]));
    for name in
        ["bound_group_ids", "bound_subscription_ids", "bound_resource_groups", "bound_locations", "bound_scale_sets"]
    {
        assert_eq!(data[name], json!([]), "{name}");
    }
    assert_eq!((&data["token_ttl"], &data["token_type"]), (&json!(3600), &json!("default")));
    assert_eq!(client.list("auth/cloudb/role").await.body["data"]["keys"], json!(["devrole"]));
    assert_eq!(client.delete("auth/cloudb/role/DEVROLE").await.status, 204);
    assert_eq!(client.get("auth/cloudb/role/devrole").await.status, 404);
    assert_eq!(client.list("auth/cloudb/role").await.status, 404);
}

async fn role_without_effective_binding_is_rejected(world: &World) {
    for (body, text) in [
        (json!({"token_policies": "a"}), EMPTY),
        (json!({"bound_service_principal_ids": ["*"]}), WIDE),
        (json!({"bound_service_principal_ids": "*", "bound_group_ids": ["*"]}), WIDE),
        (json!({"bound_group_ids": ["*"], "bound_service_principal_ids": []}), WIDE),
    ] {
        world.app.client.post("auth/cloudb/role/r", body).await.assert_error(400, text);
    }
    assert_eq!(world.app.client.get("auth/cloudb/role/r").await.status, 404);
}

#[actix_web::test]
async fn stored_role_without_effective_binding_rejects_logins() {
    use signet::auth::store::AuthWrite;
    use signet::documents::{DocumentKey, DocumentWrite};
    use signet::storage;

    let world = World::start().await;
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    let mount = world.app.shared().auth.mounts().get("auth/cloudb").unwrap().id;
    let provider = world.provider.clone();
    let place = world.app.leave().await;
    let storage = storage::open(place.options().storage).await.unwrap();
    let store = storage.stores().auth;
    let documents = store.documents_of(mount, "role").await.unwrap();
    let role = documents.iter().find(|document| document.key.name == "r").unwrap();
    let mut body: Value = serde_json::from_slice(&role.body).unwrap();
    body["bound_service_principal_ids"] = json!(["*"]);
    let key = DocumentKey { mount, kind: "role", name: "r".to_owned() };
    let write = DocumentWrite { key, expected: role.version, body: Some(body.to_string().into_bytes()) };
    store.commit(vec![AuthWrite::Document(write)]).await.unwrap();
    storage.shutdown().await.unwrap();
    let app = place.start().await;
    let world = World { app, provider };
    world.with(json!({})).await.assert_error(403, WIDE);
}

async fn role_with_group_but_no_subscription_warns(world: &World) {
    let client = &world.app.client;
    let both = json!({"bound_subscription_ids": [S1], "bound_resource_groups": ["rg1"]});
    assert_eq!(client.post("auth/cloudb/role/r", both).await.status, 204);
    let answer = client.post("auth/cloudb/role/r2", json!({"bound_resource_groups": ["rg1"]})).await.assert_status(200);
    assert!(answer.body["warnings"][0].as_str().unwrap().starts_with("bound_subscription_ids: is empty"));
}

async fn invalid_token_settings_are_rejected(world: &World) {
    for (name, value, text) in [
        ("token_max_ttl", json!("1h"), "ttl should not be greater than max_ttl"),
        ("token_policies", json!(["ROOT "]), "auth methods cannot create root tokens"),
        ("token_num_uses", json!(-1), "token num uses cannot be negative"),
    ] {
        let body = json!({"bound_group_ids": "g", "token_ttl": "2h", name: value});
        world.app.client.post("auth/cloudb/role/r", body).await.assert_error(400, text);
    }
    let body = json!({"bound_group_ids": "g", "token_max_ttl": "9000h"});
    let answer = world.app.client.post("auth/cloudb/role/r", body).await.assert_status(200);
    assert!(answer.body["warnings"][0].as_str().unwrap().starts_with("max_ttl is greater than the system"));
}

async fn last_effective_binding_cannot_be_cleared(world: &World) {
    let client = &world.app.client;
    world.role(json!({"bound_group_ids": "g", "bound_service_principal_ids": "o1"})).await;
    world.role(json!({"bound_group_ids": ""})).await;
    let data = client.get("auth/cloudb/role/r").await.body["data"].clone();
    assert_eq!((&data["bound_group_ids"], &data["bound_service_principal_ids"]), (&json!([]), &json!(["o1"])));
    client.post("auth/cloudb/role/r", json!({"bound_service_principal_ids": []})).await.assert_error(400, EMPTY);
    client.post("auth/cloudb/role/r", json!({"bound_service_principal_ids": "*"})).await.assert_error(400, WIDE);
}

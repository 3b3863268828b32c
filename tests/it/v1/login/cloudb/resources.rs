//! Proof of a machine or another resource.

use serde_json::{Value, json};

use super::World;
use crate::provider::{S1, S2, id, id_in, identity};
use crate::support::tests_on;

tests_on!(enabled: World::start() =>
    machine_login_returns_a_token_with_proven_metadata,
    unproven_values_are_not_in_metadata,
    machine_does_not_match_one_with_its_name_as_prefix,
    cve_2025_3879_machine_in_another_group_is_rejected,
    subscription_must_match_the_claim,
    group_and_machine_must_be_in_one_claim,
    user_assigned_identity_must_be_on_the_claimed_machine,
    resource_must_match_the_claim,
    resource_id_with_path_traversal_is_rejected,
    empty_principal_matches_no_identity,
    missing_claims_and_parameters_are_named,
    groups_and_locations_ignore_letter_case,
    app_id_must_be_an_identity_of_the_proven_group,
);

fn vm(name: &str) -> Value {
    json!({ "vm_name": name })
}

async fn machine_login_returns_a_token_with_proven_metadata(world: &World) {
    let id = world.machine().await;
    let answer = world.at(json!({"xms_mirid": id, "groups": ["g1", ""]}), vm("web")).await.assert_status(200);
    let auth = &answer.body["auth"];
    assert_eq!(auth["policies"], json!(["default", "p"]));
    assert_eq!((&auth["renewable"], &auth["token_type"]), (&json!(true), &json!("service")));
    assert!(auth["accessor"].as_str().unwrap().len() > 8 && auth["lease_duration"].as_u64().unwrap() > 0);
    let metadata = json!({"role": "r", "subscription_id": S1, "resource_group_name": "rg1", "vm_name": "web"});
    assert_eq!(auth["metadata"], metadata);
    let own = world.app.client.with_token(auth["client_token"].as_str().unwrap()).get("auth/token/lookup-self").await;
    assert_eq!(own.body["data"]["display_name"], "cloudb-o1");
    assert_eq!(own.body["data"]["path"], "auth/cloudb/login");
    // One call for each machine login; all share one access token.
    assert_eq!(world.at(json!({ "xms_mirid": id }), vm("web")).await.status, 200);
    let state = world.provider.lock();
    assert_eq!((state.arm_calls(), state.count("oauth2")), (2, 1), "{:?}", state.asked);
}

async fn unproven_values_are_not_in_metadata(world: &World) {
    world.role(json!({"bound_service_principal_ids": "o1"})).await;
    let answer = world.at(json!({}), vm("web")).await;
    let metadata = json!({"role": "r", "subscription_id": "", "resource_group_name": ""});
    assert_eq!((answer.status, &answer.body["auth"]["metadata"]), (200, &metadata));
    assert_eq!(world.provider.lock().arm_calls(), 0);
}

async fn machine_does_not_match_one_with_its_name_as_prefix(world: &World) {
    let web = world.machine().await;
    let web2 = world.provider.machine("rg1", "web2", "o1", "westus");
    for (claim, name) in [(&web, "web2"), (&web2, "web")] {
        world.at(json!({ "xms_mirid": claim }), vm(name)).await.assert_error(403, "token claims do not match vm_name");
    }
    assert_eq!(world.provider.lock().arm_calls(), 0);
}

async fn cve_2025_3879_machine_in_another_group_is_rejected(world: &World) {
    let own = world.provider.machine("rg1", "web", "o1", "eastus");
    world.provider.machine("rg2", "web", "o1", "westus");
    world.role(json!({"bound_locations": "westus"})).await;
    let answer = world.at(json!({ "xms_mirid": own }), json!({"vm_name": "web", "resource_group_name": "rg2"})).await;
    answer.assert_error(403, "token claims do not match resource_group_name");
    assert_eq!(world.provider.lock().arm_calls(), 0);
    world.at(json!({ "xms_mirid": own }), vm("web")).await.assert_error(403, "location not authorized");
}

async fn subscription_must_match_the_claim(world: &World) {
    let own = world.machine().await;
    world.role(json!({"bound_subscription_ids": S2})).await;
    let elsewhere = id_in(S2, "rg1", "Microsoft.Compute/virtualMachines/web");
    world.provider.resource(&elsewhere, json!({"identity": {"principalId": "o1"}}));
    let answer = world.at(json!({ "xms_mirid": own }), json!({"vm_name": "web", "subscription_id": S2})).await;
    answer.assert_error(403, "token claims do not match subscription_id");
    world.at(json!({ "xms_mirid": own }), vm("web")).await.assert_error(403, "subscription not authorized");
    assert_eq!(world.provider.lock().arm_calls(), 0);
    let answer = world.at(json!({ "xms_mirid": elsewhere }), json!({"vm_name": "web", "subscription_id": S2})).await;
    answer.assert_status(200);
}

async fn group_and_machine_must_be_in_one_claim(world: &World) {
    world.machine().await;
    let machine = world.provider.machine("rg2", "web", "o9", "westus");
    let identity = id("rg1", "Microsoft.ManagedIdentity/userAssignedIdentities/i");
    let claims = json!({"xms_mirid": identity, "xms_az_rid": machine});
    world.at(claims, vm("web")).await.assert_error(403, "token claims do not match vm_name");
    assert_eq!(world.provider.lock().arm_calls(), 0);
}

async fn user_assigned_identity_must_be_on_the_claimed_machine(world: &World) {
    let machine = world.machine().await;
    let identity = id("rg1", "Microsoft.ManagedIdentity/userAssignedIdentities/i");
    let assigned = json!({ identity.clone(): {"principalId": "O5", "clientId": "c5"}, "/other": null });
    world.provider.resource(&machine, json!({"location": "westus", "identity": {"userAssignedIdentities": assigned}}));
    let claims = json!({"oid": "o5", "xms_mirid": identity, "xms_az_rid": machine});
    assert_eq!(world.at(claims.clone(), vm("web")).await.status, 200);
    let mut other = claims;
    other["oid"] = json!("o6");
    let text = "token object id does not match expected identities, and no app id was found";
    world.at(other, vm("web")).await.assert_error(403, text);
}

async fn resource_must_match_the_claim(world: &World) {
    world.role(json!({"bound_resource_groups": "rg1", "bound_locations": ["West US"]})).await;
    let site = id("rg1", "Microsoft.Web/sites/shop");
    world.provider.resource(&site, json!({"location": "westus", "identity": {"principalId": "o1"}}));
    let other = id("rg1", "Microsoft.Web/sites/shop2");
    world.provider.resource(&other, json!({"location": "westus", "identity": {"principalId": "o1"}}));
    let of = |resource: &str| json!({ "resource_id": resource });
    world.at(json!({ "xms_mirid": site }), of(&other)).await.assert_error(403, "token claims do not match resource_id");
    assert_eq!(world.provider.lock().arm_calls(), 0);
    for _ in 0..2 {
        let answer = world.at(json!({ "xms_mirid": site }), of(&site)).await.assert_status(200);
        assert_eq!(answer.body["auth"]["metadata"]["resource_id"], site);
    }
    // The API version of the type was fetched once.
    let state = world.provider.lock();
    assert_eq!((state.count("/providers/Microsoft.Web/sites/shop"), state.arm_calls()), (2, 3), "{:?}", state.asked);
}

async fn resource_id_with_path_traversal_is_rejected(world: &World) {
    let own = world.machine().await;
    let group = format!("/subscriptions/{S1}/resourceGroups/rg1");
    for bad in [
        format!("{group}/../rg2/providers/Microsoft.Web/sites/a"),
        format!("{group}/providers/Microsoft.Web/sites/a?api-version=1"),
        format!("{group}/providers/Microsoft.Web/sites/a#b"),
        format!("{group}/providers/Microsoft.Web/sites/a%2fb"),
        format!("{group}/providers/Microsoft.Web/sites/.."),
        "https://evil.example/".to_owned(),
    ] {
        let answer = world.at(json!({ "xms_mirid": own }), json!({ "resource_id": bad })).await;
        answer.assert_error(400, "invalid resource_id");
    }
    assert!(world.provider.lock().asked.is_empty());
}

async fn empty_principal_matches_no_identity(world: &World) {
    let machine = world.machine().await;
    world.provider.resource(&machine, json!({"identity": {"principalId": null}}));
    for oid in [json!(""), json!(null)] {
        world.at(json!({"oid": oid, "xms_mirid": machine}), vm("web")).await.assert_error(403, "token has no oid");
    }
    assert_eq!(world.as_machine(&machine).await.status, 403);
    world.provider.resource(&machine, json!({"location": "westus"}));
    world.as_machine(&machine).await.assert_error(403, "vm client did not return identity information");
}

async fn missing_claims_and_parameters_are_named(world: &World) {
    let machine = world.machine().await;
    let missing = "xms_az_rid and xms_mirid claims are missing from token";
    world.at(json!({}), vm("web")).await.assert_error(403, missing);
    let required = "subscription_id and resource_group_name are required";
    for name in ["subscription_id", "resource_group_name"] {
        let answer = world.at(json!({ "xms_mirid": machine }), json!({"vm_name": "web", name: ""})).await;
        answer.assert_error(400, required);
    }
    let selector = "one of vm_name, vmss_name or resource_id must be provided";
    world.at(json!({ "xms_mirid": machine }), json!({})).await.assert_error(400, selector);
    assert_eq!(world.provider.lock().arm_calls(), 0);
}

async fn groups_and_locations_ignore_letter_case(world: &World) {
    let machine = world.machine().await;
    world.role(json!({"bound_locations": ["East US", "West US"]})).await;
    let answer =
        world.at(json!({ "xms_mirid": machine }), json!({"vm_name": "WEB", "resource_group_name": "RG1"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    world.provider.resource(&machine, json!({"identity": {"principalId": "o1"}}));
    world.as_machine(&machine).await.assert_error(403, "location is empty");
}

async fn app_id_must_be_an_identity_of_the_proven_group(world: &World) {
    let machine = world.machine().await;
    world.role(json!({"bound_resource_groups": "rg1,rg2"})).await;
    let pages = |clients: &[&str]| clients.iter().map(|client| vec![identity(client)]).collect::<Vec<_>>();
    world.provider.lock().identities.insert(format!("{S1}/rg1"), pages(&["c1", "c2"]));
    world.provider.lock().identities.insert(format!("{S1}/rg2"), pages(&["c3"]));
    let with = |app: &str| json!({"oid": "o9", "appid": app, "xms_mirid": machine});
    let answer = world.at(with("C2"), vm("web")).await;
    assert_eq!((answer.status, &answer.body["auth"]["metadata"]["app_id"]), (200, &json!("C2")), "{}", answer.text);
    let neither = "neither token object id nor token app id match expected identities";
    world.at(with("c3"), vm("web")).await.assert_error(403, neither);
}

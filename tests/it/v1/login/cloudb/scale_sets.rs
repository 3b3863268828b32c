//! Scale sets.

use serde_json::{Value, json};

use super::World;
use crate::provider::{S1, id};
use crate::support::tests_on;

tests_on!(prepared: world() =>
    flexible_set_does_not_match_one_with_its_name_as_prefix,
    uniform_set_and_its_machines_match_the_set,
    set_takes_precedence_over_machine_and_bound_sets_need_one,
    principals_of_flexible_set_identities_are_looked_up,
);

fn compute(rest: &str) -> String {
    id("rg1", &format!("Microsoft.Compute/{rest}"))
}

fn vmss(name: &str) -> Value {
    json!({ "vmss_name": name })
}

async fn world() -> World {
    let world = World::start().await;
    world.role(json!({"bound_subscription_ids": S1, "bound_resource_groups": "rg1"})).await;
    let body = json!({"location": "westus", "identity": {"principalId": "o1"}});
    world.provider.resource(&compute("virtualMachineScaleSets/web"), body.clone());
    world.provider.resource(&compute("virtualMachineScaleSets/web_b"), body);
    world
}

async fn flexible_set_does_not_match_one_with_its_name_as_prefix(world: &World) {
    let claims = || json!({"xms_mirid": compute("virtualMachines/web_b_1a2b")});
    world.at(claims(), vmss("web")).await.assert_error(403, "token claims do not match vmss_name");
    assert_eq!(world.provider.lock().arm_calls(), 0);
    let answer = world.at(claims(), vmss("web_b")).await;
    assert_eq!((answer.status, &answer.body["auth"]["metadata"]["vmss_name"]), (200, &json!("web_b")));
}

async fn uniform_set_and_its_machines_match_the_set(world: &World) {
    for rest in ["virtualMachineScaleSets/web", "virtualMachineScaleSets/web/virtualMachines/3"] {
        let answer = world.at(json!({"xms_mirid": compute(rest)}), vmss("web")).await;
        assert_eq!(answer.status, 200, "{rest}: {}", answer.text);
    }
}

async fn set_takes_precedence_over_machine_and_bound_sets_need_one(world: &World) {
    let claims = || json!({"xms_mirid": compute("virtualMachineScaleSets/web")});
    let both = json!({"vmss_name": "web", "vm_name": "other"});
    let answer = world.at(claims(), both).await.assert_status(200);
    assert!(answer.body["auth"]["metadata"]["vm_name"].is_null());
    world.role(json!({"bound_scale_sets": "x"})).await;
    world.at(claims(), vmss("web")).await.assert_error(403, "scale set not authorized");
    let machine = world.provider.machine("rg1", "web", "o1", "westus");
    world.as_machine(&machine).await.assert_error(403, "bound scale set defined but this vm isn't in a scale set");
    let site = id("rg1", "Microsoft.Web/sites/a");
    let answer = world.at(json!({ "xms_mirid": site }), json!({ "resource_id": site })).await;
    answer.assert_error(400, "scale set requires the vmss_name field to be set");
}

async fn principals_of_flexible_set_identities_are_looked_up(world: &World) {
    let identity = id("rg-identities", "Microsoft.ManagedIdentity/userAssignedIdentities/i");
    let assigned = json!({ identity.clone(): {} });
    let set = json!({"location": "westus", "identity": {"userAssignedIdentities": assigned}});
    world.provider.resource(&compute("virtualMachineScaleSets/web"), set);
    world.provider.resource(&identity, json!({"properties": {"principalId": "o5", "clientId": "c5"}}));
    let claims = |oid: &str| json!({"oid": oid, "xms_mirid": compute("virtualMachines/web_1a2b")});
    world.at(claims("o5"), vmss("web")).await.assert_status(200);
    assert_eq!(world.provider.lock().count("userAssignedIdentities"), 1);
    assert_eq!(world.at(claims("o6"), vmss("web")).await.status, 403);
}

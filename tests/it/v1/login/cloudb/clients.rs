//! Unmodified clients.

use serde_json::json;

use super::World;
use crate::judges::judge;
use crate::provider::{CLIENT, RESOURCE, S1, SECRET, TENANT};

#[actix_web::test]
async fn hvac_configures_roles_and_logs_in() {
    let world = World::start().await;
    let machine = world.provider.machine("rg1", "web", "o1", "westus");
    let jwt = world.provider.mint(json!({ "xms_mirid": machine }));
    let address = world.app.shared().origin().to_owned();
    let token = world.app.client.token.clone();
    let run = move || {
        judge("hvac_azure.py", &[&address, &token, TENANT, RESOURCE, CLIENT, SECRET, &jwt, S1, "rg1", "web"]);
    };
    tokio::task::spawn_blocking(run).await.unwrap();
}

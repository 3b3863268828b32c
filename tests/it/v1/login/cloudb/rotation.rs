//! Rotation of the service's own secret.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::World;
use crate::faults::double;
use crate::provider::{Application, CLIENT, Fault, SECRET};
use crate::support::{Builder, tests_on, until};

tests_on!(still: World::still(|builder| builder) =>
    rotated_secret_is_used_after_a_minute_and_old_one_removed,
    new_secret_is_not_used_before_the_directory_accepts_it,
    rotation_error_names_missing_or_ambiguous_application,
    a_directory_that_refuses_leaves_no_rotation_behind,
);

const ROTATE: &str = "auth/cloudb/rotate-root";
const CONFIG: &str = "auth/cloudb/config";
const DATE: &str = "root_password_expiration_date";

impl World {
    fn keys(&self) -> Vec<String> {
        self.provider.lock().applications[0].keys().into_iter().map(str::to_owned).collect()
    }

    async fn rotate(&self) {
        self.app.client.post(ROTATE, json!({})).await.assert_status(204);
    }

    async fn date(&self) -> Value {
        self.app.client.get(CONFIG).await.body["data"][DATE].clone()
    }
}

async fn rotated_secret_is_used_after_a_minute_and_old_one_removed(world: &World) {
    let machine = world.machine().await;
    let login = async || world.as_machine(&machine).await.status;
    assert_eq!(login().await, 200);
    world.rotate().await;
    assert_eq!(world.keys(), ["by-hand", "made-1"]);
    world.app.client.post(ROTATE, json!({})).await.assert_error(400, "rotation already in progress");
    world.app.clock.advance(Duration::from_secs(59));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!((world.date().await, login().await), (Value::Null, 200));
    world.app.clock.advance(Duration::from_secs(2));
    until("the rotation proceeds", async || world.date().await.is_string()).await;
    // A manually created secret is not removed, but no longer needed.
    assert_eq!(world.keys(), ["by-hand", "made-1"]);
    world.provider.lock().applications[0].secrets.remove(0);
    assert_eq!(login().await, 200);
    let first = world.date().await;
    world.rotate().await;
    assert_eq!(world.keys(), ["made-1", "made-2"]);
    assert_eq!(login().await, 200);
    world.app.clock.advance(Duration::from_secs(61));
    until("the rotation proceeds", async || world.keys() == ["made-2"]).await;
    assert_eq!(login().await, 200);
    assert!(world.date().await.as_str() > first.as_str());
    let shown = world.app.client.get(CONFIG).await.text;
    assert!(!shown.contains("rotated-cloudb-canary") && !shown.contains(SECRET));
}

#[actix_web::test]
async fn rotation_survives_a_restart() {
    let mut world = World::still(|builder| builder).await;
    world.rotate().await;
    world.app = world.app.restart().await;
    world.app.clock.advance(Duration::from_secs(61));
    until("the rotation proceeds", async || world.date().await.is_string()).await;
}

#[actix_web::test]
async fn secret_that_could_not_be_stored_is_removed_later() {
    for n in 1.. {
        let faults = Arc::new(double::Faults::default());
        let world = World::still(|builder| builder.faults(&faults)).await;
        // It cannot be removed immediately either.
        world.provider.fault(Fault::status("removePassword", 4, 503));
        faults.arm(n, double::Fault::Before);
        let answer = world.app.client.post(ROTATE, json!({})).await;
        faults.disarm();
        if answer.status == 204 {
            if n > 2 {
                break;
            }
            continue;
        }
        world.provider.lock().faults.clear();
        world.app.clock.advance(Duration::from_secs(301));
        until("the rotation proceeds", async || world.keys() == ["by-hand"]).await;
        until("the rotation proceeds", async || world.app.client.post(ROTATE, json!({})).await.status == 204).await;
        assert_eq!(world.keys().len(), 2);
    }
}

async fn new_secret_is_not_used_before_the_directory_accepts_it(world: &World) {
    world.rotate().await;
    // The directory does not accept the new secret.
    let made = world.provider.lock().applications[0].secrets.remove(1);
    world.app.clock.advance(Duration::from_secs(61));
    let before = world.provider.lock().count("oauth2");
    until("the rotation proceeds", async || world.provider.lock().count("oauth2") > before).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.date().await, Value::Null);
    world.configure(json!({"client_secret": made.text})).await;
    world.provider.lock().applications[0].secrets.push(made);
    world.rotate().await;
}

async fn rotation_error_names_missing_or_ambiguous_application(world: &World) {
    let client = &world.app.client;
    world.provider.lock().applications[0].listed = false;
    client.post(ROTATE, json!({})).await.assert_error(400, "no application found");
    world.provider.lock().applications[0].listed = true;
    world.provider.lock().applications.push(Application::new(CLIENT, "other"));
    let text = "multiple applications found - double check your client_id";
    client.post(ROTATE, json!({})).await.assert_error(400, text);
    world.provider.lock().applications.pop();
    assert_eq!(client.post(CONFIG, json!({"client_id": "a' or 1 eq 1"})).await.status, 204);
    let text = "client_id: is required, and must be a GUID";
    client.post(ROTATE, json!({})).await.assert_error(400, text);
    assert_eq!(client.post(CONFIG, json!({"client_id": CLIENT, "client_secret": ""})).await.status, 204);
    client.post(ROTATE, json!({})).await.assert_error(400, "client_secret is required");
    assert_eq!(client.delete(CONFIG).await.status, 204);
    client.post(ROTATE, json!({})).await.assert_error(400, "config is nil");
    assert_eq!(world.provider.lock().count("addPassword"), 0);
}

async fn a_directory_that_refuses_leaves_no_rotation_behind(world: &World) {
    for (status, expected) in [(403, 502), (400, 400)] {
        world.provider.fault(Fault::status("addPassword", 1, status));
        assert_eq!(world.app.client.post(ROTATE, json!({})).await.status, expected, "{status}");
    }
    // Without a response the secret may have been created: the request is not repeated, and the result is found later.
    world.provider.fault(Fault::status("addPassword", 1, 503));
    assert_eq!(world.app.client.post(ROTATE, json!({})).await.status, 503);
    assert_eq!(world.provider.lock().count("addPassword"), 3);
    world.app.client.post(ROTATE, json!({})).await.assert_error(400, "rotation already in progress");
    world.app.clock.advance(Duration::from_secs(301));
    until("the rotation proceeds", async || world.app.client.post(ROTATE, json!({})).await.status == 204).await;
}

#[actix_web::test]
async fn two_nodes_rotate_once() {
    let world = World::still(Builder::postgres).await;
    let other = world.app.another().await;
    let (first, second) =
        futures_util::future::join(world.app.client.post(ROTATE, json!({})), other.client.post(ROTATE, json!({})))
            .await;
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 400], "{} {}", first.text, second.text);
    assert_eq!(world.keys(), ["by-hand", "made-1"]);
    world.app.clock.advance(Duration::from_secs(61));
    until("the rotation proceeds", async || world.date().await.is_string()).await;
    until("the other node sees it", async || other.client.get(CONFIG).await.body["data"][DATE].is_string()).await;
    assert_eq!(world.provider.lock().count("addPassword"), 1);
}

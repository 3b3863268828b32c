//! Audit entries of the projects API.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use signet::audit::{AuditDevice, AuditDeviceSettings};

use super::double::{Double, Mood};
use crate::support::{Answer, App, Builder, send};
use crate::v2::fixture::{Api, World, resource};

const PROJECTS: &str = "organizations/acme/projects";

async fn told(builder: Builder) -> (World, Arc<Double>) {
    let device = Double::new();
    let world = World::of(builder.audit([device.clone() as Arc<dyn AuditDevice>])).await;
    (world, device)
}

fn named(name: &str) -> Value {
    resource("projects", json!({ "name": name }))
}

fn with_body(api: &Api, body: impl ToString) -> reqwest::RequestBuilder {
    let request = api.request(Method::POST, PROJECTS).header("Content-Type", "application/vnd.api+json");
    request.body(body.to_string())
}

/// A body with many values is logged as one hash, also before it is validated; with few values, each value is hashed.
#[actix_web::test]
async fn long_body_is_logged_as_one_hash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let world = World::of(App::builder().audit_devices([AuditDeviceSettings::file("main", &path)])).await;
    for (octets, is_short, status) in [(200, true, 422), (4_000, false, 422), (400_000, false, 422)] {
        let before = std::fs::metadata(&path).unwrap().len();
        let answer = send(with_body(&world.owner, format!("[{}0]", "\"a\",".repeat(octets / 4)))).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        let all = std::fs::read_to_string(&path).unwrap();
        let line: Value = serde_json::from_str(all.lines().last().unwrap()).unwrap();
        let data = &line["request"]["data"];
        assert_eq!(data.is_array(), is_short, "{data}");
        assert!(is_short || (data["http_raw_body_size"] == octets + 3 && all.len() as u64 - before < 10_000));
    }
    world.app.stop().await;
}

#[actix_web::test]
async fn every_request_is_recorded_with_its_outcome() {
    let (world, device) = told(App::builder().settings(|settings| settings.max_body = 10_000)).await;
    let owner = &world.owner;
    let nobody = owner.with_token("");
    let unknown = owner.with_token("unknown.atlasv1.token");
    let outsider = world.outsider("otto").await.api;
    for (what, request, status, step) in [
        ("no token", nobody.request(Method::GET, PROJECTS), 401, "refusal"),
        ("a change without a token", with_body(&nobody, named("a")), 401, "refusal"),
        ("an unknown token", unknown.request(Method::GET, PROJECTS), 401, "refusal"),
        ("a change with an unknown token", with_body(&unknown, named("a")), 401, "refusal"),
        ("no such path", owner.request(Method::GET, "nothing/here"), 404, "refusal"),
        ("no such method", owner.request(Method::PUT, PROJECTS), 405, "refusal"),
        ("another media type", owner.request(Method::POST, PROJECTS).body("{}"), 415, "refusal"),
        ("a body that is too large", with_body(owner, "x".repeat(20_000)), 413, "refusal"),
        ("a query that does not read", owner.request(Method::GET, &format!("{PROJECTS}?a=%zz")), 400, "refusal"),
        // Errors in a body are reported only to callers who may send it.
        ("a body that does not read", with_body(owner, "{"), 400, "intent"),
        ("a page that does not read", owner.request(Method::GET, &format!("{PROJECTS}?page[size]=x")), 400, "intent"),
        ("a rule that is broken", with_body(owner, named("")), 422, "intent"),
        ("no right", with_body(&outsider, named("b")), 404, "intent"),
        ("a project", with_body(owner, named("web")), 201, "intent"),
        ("a list", owner.request(Method::GET, PROJECTS), 200, "intent"),
        ("its head", owner.request(Method::HEAD, PROJECTS), 200, "intent"),
        ("what is not there", owner.request(Method::GET, "projects/prj-none"), 404, "intent"),
        ("a removal", owner.request(Method::DELETE, "projects/prj-none"), 404, "intent"),
    ] {
        let answer = send(request).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text);
        device.assert_told(&answer, step, what);
    }
    let before = device.count();
    assert_eq!(nobody.get("ping").await.status, 204);
    assert_eq!(device.count(), before, "a ping is not recorded");
    world.app.stop().await;
}

#[actix_web::test]
async fn entries_contain_caller_request_and_response() {
    let (world, device) = told(App::builder()).await;
    let made = world.owner.post(PROJECTS, named("web")).await;
    let [intent, outcome] = <[_; 2]>::try_from(device.of(&made)).unwrap();
    for line in [&intent, &outcome] {
        assert_eq!((&line.operation[..], &line.path[..], &line.mount[..]), ("create", PROJECTS, ""));
        assert_eq!((&line.address[..], &line.token[..]), ("127.0.0.1", &world.owner.token[..]));
        assert_eq!(line.data, json!(["application/vnd.api+json", named("web").to_string()]));
        let (name, ..) = line.caller.as_ref().unwrap();
        assert!(name.starts_with("users/user-"), "{name}");
    }
    assert_eq!(outcome.answer, made.body);
    let broken = world.owner.post(PROJECTS, named("")).await;
    let told = &device.of(&broken)[1].errors;
    assert_eq!(told[0], broken.body["errors"][0]["detail"].as_str().unwrap());
    world.app.stop().await;
}

/// The names of the projects of `acme`; makes the device record again.
async fn names(world: &World, device: &Double) -> Vec<String> {
    device.set(Mood::Keep);
    let list = world.owner.get(PROJECTS).await;
    let name = |project: &Value| project["attributes"]["name"].as_str().unwrap().to_owned();
    list.body["data"].as_array().unwrap().iter().map(name).collect()
}

fn assert_held_back(answer: &Answer) {
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert_eq!(
        answer.body["errors"][0]["detail"],
        "audit: no audit device can record the request; see the server's log"
    );
}

#[actix_web::test]
async fn request_without_audit_entry_is_rejected_without_effect() {
    let (world, device) = told(App::builder()).await;
    let before = names(&world, &device).await;
    device.set(Mood::Refuse);
    assert_held_back(&world.owner.post(PROJECTS, named("web")).await);
    assert_held_back(&world.owner.get(PROJECTS).await);
    assert_held_back(&world.owner.with_token("").get(PROJECTS).await);
    assert_held_back(&world.owner.get("nothing/here").await);
    assert_eq!(world.owner.get("ping").await.status, 204);
    assert_eq!(names(&world, &device).await, before);
    device.set(Mood::RefuseOutcomes);
    assert_held_back(&world.owner.get(PROJECTS).await);
    world.app.stop().await;
}

#[actix_web::test]
async fn hanging_device_blocks_only_its_request() {
    let limit = Duration::from_secs(2);
    let (world, device) = told(App::builder().settings(|settings| settings.max_duration = limit)).await;
    let before = names(&world, &device).await;
    device.set(Mood::HangOn(PROJECTS));
    let started = Instant::now();
    let held = async {
        let read = world.owner.get(PROJECTS);
        let write = world.owner.post(PROJECTS, named("web"));
        let (read, write) = futures_util::future::join(read, write).await;
        assert_held_back(&read);
        assert_held_back(&write);
        started.elapsed()
    };
    let others = async {
        for name in ["one", "two", "three"] {
            let path = "organizations/acme";
            assert_eq!(world.owner.get(path).await.status, 200);
            let change =
                json!({ "data": { "type": "organizations", "attributes": { "email": format!("{name}@acme.test") } } });
            assert_eq!(world.owner.patch(path, change).await.status, 200);
        }
        started.elapsed()
    };
    let (held, others) = futures_util::future::join(held, others).await;
    assert!(held >= limit && held < limit + Duration::from_secs(2), "{held:?}");
    assert!(others < limit, "{others:?}");
    assert_eq!(names(&world, &device).await, before);
    world.app.stop().await;
}

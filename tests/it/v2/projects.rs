//! Projects.

use serde_json::json;
use signet::projects::rights::OrganizationRights;

use super::fixture::{World, assert_refused, attribute, on_both_stores, resource};

on_both_stores!(
    vectors_7_to_13_a_project_is_made_shown_and_listed,
    vectors_14_to_28_attributes_of_a_create,
    vectors_73_to_78_deleting,
);

const PATH: &str = "organizations/acme/projects";

async fn vectors_7_to_13_a_project_is_made_shown_and_listed(world: World) {
    let owner = &world.owner;
    let made = owner.post(PATH, resource("projects", json!({ "name": "Net" }))).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = made.body["data"]["id"].as_str().unwrap();
    assert!(id.starts_with("prj-") && id.len() == 20, "{id}");
    assert_eq!(made.header("location"), format!("/api/v2/projects/{id}"));
    assert_eq!(owner.get(&format!("projects/{id}")).await.body["data"], made.body["data"]);
    let list = owner.get(PATH).await;
    assert!(list.body["data"].as_array().unwrap().contains(&made.body["data"]), "{}", list.text);
    let member = world.member("mia", OrganizationRights::NONE).await;
    let outsider = world.outsider("xaver").await;
    let other = || resource("projects", json!({ "name": "Other" }));
    assert_eq!(member.api.post(PATH, other()).await.status, 403);
    let hidden = outsider.api.post(PATH, other()).await;
    let unknown = owner.post("organizations/nothing/projects", other()).await;
    assert_eq!((hidden.status, unknown.status), (404, 404));
    assert_eq!(hidden.body, unknown.body);
    let manager = world.member("mara", OrganizationRights::NONE.with("manage-projects", true)).await;
    assert_eq!(manager.api.post(PATH, other()).await.status, 201);
    world.app.stop().await;
}

async fn vectors_14_to_28_attributes_of_a_create(world: World) {
    let create = async |attributes| world.owner.post(PATH, resource("projects", attributes)).await;
    let name = "/data/attributes/name";
    assert_refused(&create(json!({ "name": "ab" })).await, 422, &[(name, "Name is too short")]);
    assert_eq!(create(json!({ "name": "a".repeat(40) })).await.status, 201);
    assert_refused(&create(json!({ "name": "a".repeat(41) })).await, 422, &[(name, "Name is too long")]);
    for good in ["abc", "a b", "___"] {
        assert_eq!(create(json!({ "name": good })).await.status, 201, "{good}");
    }
    for bad in [" abc", "abc ", "a/b", "ü12", "a\tb", "abc\n"] {
        assert_refused(&create(json!({ "name": bad })).await, 422, &[(name, "Name may only contain")]);
    }
    for blank in [json!({}), json!({ "name": null }), json!({ "name": "" })] {
        assert_refused(&create(blank).await, 422, &[(name, "Name can't be blank")]);
    }
    assert_refused(&create(json!({ "name": 123 })).await, 422, &[(name, "Name must be a string")]);
    for taken in ["abc", "ABC"] {
        assert_refused(&create(json!({ "name": taken })).await, 422, &[(name, "Name has already been taken")]);
    }
    let described =
        |n: usize, letter: &str| json!({ "name": format!("d{n}{}", letter.len()), "description": letter.repeat(n) });
    assert_eq!(create(described(256, "x")).await.status, 201);
    assert_eq!(create(described(256, "𝄞")).await.status, 201);
    let long = create(described(257, "x")).await;
    assert_refused(&long, 422, &[("/data/attributes/description", "Description is too long")]);
    for (n, good) in ["14d", "1h", "9999d", "0014d"].into_iter().enumerate() {
        let made = create(json!({ "name": format!("dur{n}"), "auto-destroy-activity-duration": good })).await;
        assert_eq!((made.status, attribute(&made, "auto-destroy-activity-duration")), (201, &json!(good)));
    }
    let duration = "/data/attributes/auto-destroy-activity-duration";
    let says = "Auto destroy activity duration has an incorrect format";
    for bad in ["0d", "0000h", "20m", "10000d", "14D", "14 d", ""] {
        let refused = create(json!({ "name": "durx", "auto-destroy-activity-duration": bad })).await;
        assert_refused(&refused, 422, &[(duration, says)]);
    }
    let both = create(json!({ "name": "a/b", "auto-destroy-activity-duration": "x" })).await;
    assert_refused(&both, 422, &[(name, "Name may only contain"), (duration, says)]);
    let unknown = create(json!({ "name": "unknown", "foo": "bar" })).await;
    assert!(unknown.status == 201 && !unknown.text.contains("foo"), "{}", unknown.text);
    world.app.stop().await;
}

async fn vectors_73_to_78_deleting(world: World) {
    let id = world.project("Two").await;
    let path = format!("projects/{id}");
    let deleted = world.owner.delete(&path).await;
    assert_eq!((deleted.status, &deleted.text[..]), (204, ""));
    assert_eq!(world.owner.get(&path).await.status, 404);
    assert_eq!(world.owner.delete(&path).await.status, 404);
    let default = world.owner.get(PATH).await.body["data"][0]["id"].as_str().unwrap().to_owned();
    assert_refused(&world.owner.delete(&format!("projects/{default}")).await, 409, &[("", "the default project")]);
    let list = world.owner.get(PATH).await;
    assert_eq!(list.body["meta"]["status-counts"], json!({ "total": 1, "matching": 1 }));
    world.app.stop().await;
}

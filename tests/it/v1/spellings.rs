//! Names with several spellings: rules apply to all of them.

use serde_json::json;

use super::rights::{granted, only};
use crate::support::{Answer, App, Client, assert_has, tests_on};

tests_on!(server: App::start() =>
    policy_deny_applies_to_every_spelling_of_its_name,
    policy_grant_applies_to_every_spelling_and_write_warns,
    serial_rule_applies_to_every_spelling,
    rule_for_default_issuer_or_key_ignores_letter_case,
    capabilities_use_the_same_normalized_path_as_requests,
);

async fn ways(client: &Client, path: &str) -> Vec<Answer> {
    let policy = json!({ "policy": granted("x", &["read"]) });
    vec![client.get(path).await, client.post(path, policy).await, client.delete(path).await]
}

async fn policy_deny_applies_to_every_spelling_of_its_name(app: &App) {
    for (prefix, denied) in [
        ("sys/policies/acl", "admin"),
        ("sys/policies/acl", "ADMIN"),
        ("sys/policy", "admin"),
        ("sys/policy", "Admin"),
        ("sys/policies/acl", "Adm*"),
        ("sys/policies/acl", "team/Admin"),
        ("sys/policies/acl", "team/ADM*"),
        ("sys/policies/acl", "+/Admin"),
        ("sys/policies/acl", "kilo"),
    ] {
        let all = granted(&format!("{prefix}/*"), &["create", "read", "update", "delete"]);
        let text = all + &granted(&format!("{prefix}/{denied}"), &["deny"]);
        let client = only(app, "writer", &text).await;
        let names: &[&str] = match denied.split_once('/') {
            Some(_) => &["team/admin", "Team/Admin", "TEAM/ADMIN", "%20team/admin", "team/admin%20"],
            // The third one is the Kelvin sign, whose lower case is `k`.
            None if denied == "kilo" => &["kilo", "KILO", "%E2%84%AAilo"],
            None => &["admin", "ADMIN", "Admin", "%20admin", "aDmin%20"],
        };
        for name in names {
            for answer in ways(&client, &format!("{prefix}/{name}")).await {
                assert_eq!(answer.status, 403, "{prefix}/{denied}, asked as {name}: {}", answer.text);
            }
        }
        let other = ways(&client, &format!("{prefix}/Other")).await;
        assert_eq!(other.iter().map(|a| a.status).collect::<Vec<_>>(), [404, 200, 204], "{prefix}/{denied}");
    }
}

async fn policy_grant_applies_to_every_spelling_and_write_warns(app: &App) {
    let client = only(app, "writer", &granted("sys/policies/acl/Team/App", &["read", "update"])).await;
    let text = granted("x", &["read"]);
    client.post("sys/policies/acl/team/app", json!({ "policy": text })).await.assert_status(204);
    let folded = client.post("sys/policies/acl/TEAM/app", json!({ "policy": text })).await.assert_status(200);
    assert!(folded.body["warnings"][0].as_str().unwrap().contains("\"team/app\""), "{}", folded.text);
    let read = client.get("sys/policies/acl/Team/App").await;
    assert_eq!(read.body["data"]["name"], "team/app", "{}", read.text);
    client.get("sys/policies/acl/team").await.assert_denied();
    for blank in ["%20", "%20/admin", "admin/%20"] {
        let answer = app.client.post(&format!("sys/policies/acl/{blank}"), json!({ "policy": text })).await;
        answer.assert_error_begins(400, "name: ");
    }
}

async fn serial_rule_applies_to_every_spelling(app: &App) {
    let spellings = ["0a:0b:0c", "0A-0b-0C", "0A:0B:0C", "00:0a:0b:0c", "00-0A-0b-0c"];
    let all = granted("pki/cert-metadata/*", &["read"]);
    for denied in spellings.into_iter().chain(["0A-0B*", "00:0A:0*"]) {
        let text = all.clone() + &granted(&format!("pki/cert-metadata/{denied}"), &["deny"]);
        let client = only(app, "reader", &text).await;
        for asked in spellings {
            let answer = client.get(&format!("pki/cert-metadata/{asked}")).await;
            assert_eq!(answer.status, 403, "{denied}, asked as {asked}: {}", answer.text);
        }
        assert_eq!(client.get("pki/cert-metadata/0B-0C").await.status, 404);
    }
    for given in spellings {
        let client = only(app, "reader", &granted(&format!("pki/cert-metadata/{given}"), &["read"])).await;
        for asked in spellings {
            assert_eq!(client.get(&format!("pki/cert-metadata/{asked}")).await.status, 404, "{given}, {asked}");
        }
        client.get("pki/cert-metadata/0B-0C").await.assert_denied();
    }
}

async fn rule_for_default_issuer_or_key_ignores_letter_case(app: &App) {
    let spellings = ["default", "DEFAULT", "Default"];
    for denied in ["default", "DEFAULT", "Def*"] {
        let text = granted("pki/*", &["read", "update", "delete"])
            + &granted(&format!("pki/issuer/{denied}"), &["deny"])
            + &granted(&format!("pki/issuer/{}/issue/web", denied.replace('*', "ault")), &["deny"])
            + &granted(&format!("pki/key/{denied}"), &["deny"]);
        let client = only(app, "user", &text).await;
        for asked in spellings {
            client.get(&format!("pki/issuer/{asked}")).await.assert_denied();
            client.delete(&format!("pki/key/{asked}")).await.assert_denied();
            let name = json!({ "common_name": "a.test" });
            client.post(&format!("pki/issuer/{asked}/issue/web"), name).await.assert_denied();
        }
        assert_eq!(client.get("pki/issuer/deflated").await.status, 404);
        assert_eq!(client.get("pki/key/Other").await.status, 404);
    }
    // Other references and role names are case-sensitive.
    let client = only(app, "user", &granted("pki/issuer/Web", &["read"])).await;
    assert_eq!(client.get("pki/issuer/Web").await.status, 404);
    client.get("pki/issuer/web").await.assert_denied();
    let client = only(app, "user", &granted("pki/roles/Default", &["read"])).await;
    assert_eq!(client.get("pki/roles/Default").await.status, 404);
    client.get("pki/roles/default").await.assert_denied();
}

async fn capabilities_use_the_same_normalized_path_as_requests(app: &App) {
    let text = granted("sys/policies/acl/*", &["read"])
        + &granted("sys/policies/acl/admin", &["deny"])
        + &granted("pki/cert-metadata/0a:0b", &["read"])
        + &granted("pki/issuer/DEFAULT", &["update"]);
    let client = only(app, "asker", &(text + &granted("sys/capabilities-self", &["update"]))).await;
    let words = json!({
        "sys/policies/acl/ADMIN": ["deny"], "/sys/policies/acl/Admin": ["deny"], "sys/policies/acl/Other": ["read"],
        "pki/cert-metadata/0A-0B": ["read"], "pki/issuer/default": ["update"], "pki/issuer/Default/": ["update"],
        "pki/roles/Default": ["deny"], "nothing/At/All": ["deny"],
    });
    let mut paths: Vec<&str> = words.as_object().unwrap().keys().map(String::as_str).collect();
    paths.extend(["", "//"]);
    for answer in [
        client.post("sys/capabilities-self", json!({ "paths": paths })).await,
        app.client.post("sys/capabilities", json!({ "paths": paths, "token": client.token })).await,
    ] {
        assert_has(&answer.body["data"], words.clone());
    }
}

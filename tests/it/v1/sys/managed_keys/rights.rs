//! The effect of a single right, in every spelling of a key's name.

use serde_json::json;

use super::{key, shown, with, with_key, write};
use crate::support::{Answer, Client};
use crate::v1::rights::{granted, only, rule};

const PATH: &str = "sys/managed-keys/pkcs11/web";

/// Sends each kind of request about the key `name`.
async fn ways(client: &Client, name: &str) -> Vec<(&'static str, Answer)> {
    let path = format!("sys/managed-keys/pkcs11/{name}");
    vec![
        ("list", client.list("sys/managed-keys/pkcs11").await),
        ("read", client.get(&path).await),
        ("update", client.post(&path, json!({})).await),
        ("test", client.post(&format!("{path}/test/sign"), json!({})).await),
        ("delete", client.delete(&path).await),
    ]
}

/// A way, and the path and the right that it needs.
const RIGHTS: [(&str, &str, &str); 5] = [
    ("list", "sys/managed-keys/pkcs11/", "list"),
    ("read", PATH, "read"),
    ("update", PATH, "update"),
    ("test", "sys/managed-keys/pkcs11/web/test/sign", "update"),
    ("delete", PATH, "delete"),
];

#[actix_web::test]
async fn one_right_lets_do_one_thing() {
    // This key has no usable module.
    for ((way, path, capability), status) in RIGHTS.into_iter().zip([200, 200, 204, 503, 204]) {
        let app = with_key().await;
        let client = only(&app, "single", &granted(path, &[capability])).await;
        for (word, answer) in ways(&client, "web").await {
            let expected = if word == way { status } else { 403 };
            assert_eq!(answer.status, expected, "{way}: {word}: {}", answer.text);
        }
        let denied = only(&app, "none", &granted("sys/managed-keys/*", &["deny"])).await;
        for (word, answer) in ways(&denied, "web").await {
            assert_eq!(answer.status, 403, "{word}");
        }
        app.stop().await;
    }
}

#[actix_web::test]
async fn all_rights_but_one_do_all_but_one_thing() {
    for (missing, ..) in RIGHTS {
        let app = with_key().await;
        let others = || RIGHTS.iter().filter(|(way, ..)| *way != missing);
        let on = |path: &str| others().filter(|(_, at, _)| *at == path).map(|(.., right)| *right).collect::<Vec<_>>();
        let paths = ["sys/managed-keys/pkcs11/", PATH, "sys/managed-keys/pkcs11/web/test/sign"];
        let paths = paths.into_iter().filter(|path| !on(path).is_empty());
        let rules: String = paths.map(|path| granted(path, &on(path))).collect();
        let client = only(&app, "most", &rules).await;
        for (word, answer) in ways(&client, "web").await {
            assert_eq!(answer.status == 403, word == missing, "without {missing}: {word}: {}", answer.text);
        }
        app.stop().await;
    }
}

#[actix_web::test]
async fn a_rule_for_a_key_holds_in_every_spelling_of_its_name() {
    let app = with_key().await;
    write(&app, "other", key()).await;
    let all = granted("sys/managed-keys/pkcs11/*", &["read", "update", "delete"]);
    for denied in ["web", "WEB", "We*"] {
        let rules = all.clone()
            + &granted(&format!("sys/managed-keys/pkcs11/{denied}"), &["deny"])
            + &granted(&format!("sys/managed-keys/pkcs11/{}/test/sign", denied.replace('*', "b")), &["deny"]);
        let client = only(&app, "limited", &rules).await;
        for name in ["web", "WEB", "Web"] {
            for (word, answer) in ways(&client, name).await {
                assert_eq!(answer.status, 403, "{denied}, {name}: {word}: {}", answer.text);
            }
        }
        assert_eq!(client.get("sys/managed-keys/pkcs11/Other").await.status, 200);
    }
    let client = only(&app, "reader", &granted("sys/managed-keys/pkcs11/WEB", &["read"])).await;
    for name in ["web", "WEB", "wEb"] {
        assert_eq!(shown(&client, name).await["name"], "web");
    }
    client.get("sys/managed-keys/pkcs11/other").await.assert_denied();
    app.stop().await;
}

#[actix_web::test]
async fn rules_for_parameters_hold_and_other_namespaces_have_no_keys() {
    let app = with_key().await;
    let text = "capabilities = [\"update\"] denied_parameters = { \"any_mount\" = [\"true\"], \"pin\" = [] }";
    let client = only(&app, "writer", &rule("sys/managed-keys/pkcs11/*", text)).await;
    for members in [json!({ "any_mount": true }), json!({ "any_mount": "true" }), json!({ "PIN": "1" })] {
        client.post(PATH, members).await.assert_denied();
    }
    assert_eq!(client.post(PATH, json!({ "any_mount": false, "max_parallel": 2 })).await.status, 204);
    client.post("sys/managed-keys/pkcs11/new", key()).await.assert_denied();
    for header in ["X-Service-Namespace", "X-Vault-Namespace"] {
        let request = app.client.request("POST", "sys/managed-keys/pkcs11/new").header(header, "team");
        crate::support::send(request.json(&with(key(), json!({})))).await.assert_error(404, "namespace not found");
    }
    assert_eq!(app.client.get("sys/managed-keys/pkcs11/new").await.status, 404);
    app.stop().await;
}

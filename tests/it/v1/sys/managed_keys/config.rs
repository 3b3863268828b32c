//! The parameters of keys: parsing, merging, validation, storage, and what a read returns.

use serde_json::{Value, json};

use super::{delete, key, refused, shown, test, with, with_key, write};
use crate::support::{App, NO_MODULE, send, tests_on, until};
use crate::v1::rights::{granted, only};

tests_on!(server: App::start() =>
    minimal_key_is_shown_with_defaults_and_a_stable_uuid,
    key_of_the_terraform_provider_reads_back_unchanged,
    invalid_parameters_are_rejected_by_name_and_not_stored,
    writes_warn_of_key_generation_mechanism_and_spelling,
    names_are_unique_over_types_and_unknown_types_are_rejected,
    lists_are_paged_and_writes_accept_every_form,
    concurrent_writes_of_one_key_are_serialized,
    metric_series_of_a_deleted_key_are_removed,
);

async fn minimal_key_is_shown_with_defaults_and_a_stable_uuid(app: &App) {
    app.client.post("sys/managed-keys/pkcs11/web", key()).await.assert_status(204);
    let data = shown(&app.client, "web").await;
    let expected = json!({
        "UUID": data["UUID"], "name": "web", "type": "pkcs11",
        "allow_generate_key": false, "allow_replace_key": false, "allow_store_key": false, "any_mount": false,
        "usages": ["sign", "verify"],
        "library": NO_MODULE, "key_label": "web", "key_id": "", "mechanism": 4161, "pin": "redacted", "slot": 0,
        "token_label": "one", "curve": "", "key_bits": 0, "force_rw_session": false, "max_parallel": 1, "public_key": "",
    });
    assert_eq!(data, expected);
    assert_eq!(data["UUID"].as_str().unwrap().len(), 36);
    let body =
        json!({ "slot": 7, "token_label": "", "any_mount": "true", "usages": "Sign", "force_rw_session": "true" });
    write(app, "web", with(body, json!({ "mechanism": "0X000d", "max_parallel": "4" }))).await;
    let updated = shown(&app.client, "web").await;
    let changed = json!({ "slot": 7, "token_label": "", "any_mount": true, "usages": ["sign"],
        "force_rw_session": true, "mechanism": 13, "max_parallel": 4 });
    assert_eq!(updated, with(data.clone(), changed), "what is absent stays, and the UUID too");
    // A later key of the same name is another key.
    delete(app, "web").await;
    delete(app, "web").await;
    write(app, "web", key()).await;
    assert_ne!(shown(&app.client, "web").await["UUID"], data["UUID"]);
}

/// The requests of the Terraform provider, which sends every member that is not an empty text.
async fn key_of_the_terraform_provider_reads_back_unchanged(app: &App) {
    let peers = async |method: &str, path: &str, body: Option<&Value>| {
        let request = app.client.with_token("").request(method, &format!("sys/managed-keys/{path}"));
        let request = request.header("X-Vault-Token", &app.client.token).header("X-Vault-Request", "true");
        send(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    };
    // The provider lists keys of every type first, and fails if a type is unknown.
    for kind in ["pkcs11", "awskms", "azurekeyvault", "gcpckms"] {
        assert_eq!(peers("LIST", kind, None).await.status, 404, "{kind}");
    }
    let unset = json!({ "allow_generate_key": false, "allow_replace_key": false, "allow_store_key": false,
        "any_mount": false });
    let own = json!({ "name": "web", "library": NO_MODULE, "key_label": "web", "mechanism": "0x1041", "pin": "4711",
        "token_label": "one", "max_parallel": 0 });
    let written = peers("PUT", "pkcs11/web", Some(&with(own.clone(), unset.clone()))).await;
    assert_eq!((written.status, &written.text[..]), (204, ""));
    let read = peers("GET", "pkcs11/web", None).await.body["data"].clone();
    let expected = json!({ "UUID": read["UUID"], "name": "web", "type": "pkcs11", "usages": ["sign", "verify"],
        "library": NO_MODULE, "key_label": "web", "key_id": "", "mechanism": "0x1041", "pin": "redacted",
        "token_label": "one", "curve": "", "public_key": "", "max_parallel": 1 });
    assert_eq!(read, with(expected, unset.clone()));
    let given = json!({ "slot": "0", "token_label": "", "key_bits": "2048", "force_rw_session": "true",
        "usages": "generate_random,sign,verify", "mechanism": "0x000d" });
    assert_eq!(peers("PUT", "pkcs11/web", Some(&with(own, given))).await.status, 204);
    let read = peers("GET", "pkcs11/web", None).await.body["data"].clone();
    let expected = json!({ "slot": 0, "key_bits": 2048, "force_rw_session": "true", "mechanism": "0x000d",
        "usages": ["sign", "verify", "generate_random"] });
    assert_eq!(with(read.clone(), expected), read);
    // The contract has other types; what the peers read can be written back.
    let shown = shown(&app.client, "web").await;
    let contract = (&shown["mechanism"], &shown["force_rw_session"], &shown["usages"][2]);
    assert_eq!(contract, (&json!(13), &json!(true), &json!("random")));
    let mut back = read.clone();
    for member in ["UUID", "pin"] {
        back.as_object_mut().unwrap().remove(member);
    }
    assert!(matches!(peers("PUT", "pkcs11/web", Some(&back)).await.status, 200 | 204));
    assert_eq!(peers("GET", "pkcs11/web", None).await.body["data"], read);
}

/// The type names of known clients lead to the same keys, in policies too.
#[actix_web::test]
async fn client_type_names_are_aliases_in_paths_and_policies() {
    let app = App::start().await;
    let client = &app.client;
    let body = json!({ "name": "Web", "type": "awskms", "access_key": "a", "secret_key": "s", "key_type": "RSA",
        "key_bits": "2048", "kms_key": "alias/web", "region": "eu-central-1" });
    client.post("sys/managed-keys/awskms/web", body).await.assert_status(204);
    for kind in ["awskms", "cloudakms"] {
        let read = shown(client, &format!("{kind}/web")).await;
        assert_eq!(json!([read["type"], read["kms_key"]]), json!(["cloudakms", "alias/web"]));
        assert_eq!(client.list(&format!("sys/managed-keys/{kind}")).await.body["data"]["keys"], json!(["web"]));
    }
    for (rule, other) in [("awskms", "cloudakms"), ("cloudakms", "awskms"), ("aws*", "cloudakms")] {
        let path = if rule.ends_with('*') { rule.to_owned() } else { format!("{rule}/*") };
        let some = only(&app, "only", &granted(&format!("sys/managed-keys/{path}"), &["read"])).await;
        for kind in [other, "awskms"] {
            assert_eq!(some.get(&format!("sys/managed-keys/{kind}/web")).await.status, 200, "{rule} {kind}");
        }
        some.get("sys/managed-keys/gcpckms/web").await.assert_denied();
        let deny = granted(&format!("sys/managed-keys/{path}"), &["deny"]);
        let none = only(&app, "not", &(granted("sys/managed-keys/*", &["read"]) + &deny)).await;
        for kind in [other, "awskms"] {
            none.get(&format!("sys/managed-keys/{kind}/web")).await.assert_denied();
        }
    }
    let app = app.restart_as(|builder| builder.settings(|settings| settings.compat = false)).await;
    app.client.get("sys/managed-keys/awskms/web").await.assert_error_has(400, "unknown managed key type");
    app.stop().await;
}

async fn invalid_parameters_are_rejected_by_name_and_not_stored(app: &App) {
    let hexadecimal = "mechanism must be a hexadecimal value with a 0x prefix";
    let bits = "key_bits must be one of 2048, 3072, 4096";
    let number = "mechanism must be an unsigned number of 32 bits";
    let replace = "allow_replace_key: must be false: this server never replaces a key that is in the backend";
    let curve = "curve is required when allow_generate_key is true and the mechanism is ECDSA";
    let generated = "key_bits must be one of 2048, 3072, 4096 when allow_generate_key is true";
    let file = "/usr/lib/softhsm/libsofthsm2.so";
    let no_file = format!("no kms_library configured with name {file:?}");
    let store = "allow_store_key: must be false: this server never copies a private key into the backend";
    for (members, text) in [
        (json!({ "slot": "5" }), "only one of slot or token_label can be set"),
        (json!({ "token_label": "" }), "either slot or token_label is required"),
        (json!({ "slot": "one", "token_label": "" }), "slot must be a decimal number"),
        (json!({ "slot": -1, "token_label": "" }), "slot must be a decimal number"),
        (json!({ "slot": "18446744073709551616", "token_label": "" }), "slot must be a decimal number"),
        (json!({ "key_label": "" }), "either key_label or key_id is required"),
        (json!({ "key_id": "xyz" }), "key_id must be the identifier in hexadecimal"),
        (json!({ "mechanism": null }), "missing mechanism"),
        (json!({ "mechanism": "1041" }), hexadecimal),
        (json!({ "mechanism": "4161" }), hexadecimal),
        (json!({ "mechanism": -1 }), number),
        (json!({ "mechanism": 4294967296_u64 }), number),
        (json!({ "mechanism": 1.5 }), number),
        (json!({ "slot": "0" }), "only one of slot or token_label can be set"),
        (json!({ "allow_replace_key": true }), replace),
        (json!({ "allow_store_key": "true" }), store),
        (json!({ "UUID": "x" }), "UUID: is assigned by the server; a new key must be written without it"),
        (json!({ "mechanism": "0xZZ" }), hexadecimal),
        (json!({ "mechanism": "0x123456789" }), hexadecimal),
        (json!({ "allow_generate_key": "true" }), curve),
        (json!({ "curve": "P224" }), "curve must be one of P256, P384, P521"),
        (json!({ "allow_generate_key": true, "mechanism": "0x1" }), generated),
        (json!({ "allow_generate_key": true, "mechanism": "0x1", "key_bits": 1024 }), bits),
        (json!({ "key_bits": "2049" }), bits),
        (json!({ "key_bits": -2048 }), bits),
        (json!({ "library": null }), "missing library"),
        (json!({ "library": "" }), "missing library"),
        (json!({ "library": "other" }), "no kms_library configured with name \"other\""),
        (json!({ "library": file }), no_file.as_str()),
        (json!({ "pin": null }), "pin is required"),
        (json!({ "pin": "" }), "pin is required"),
        (json!({ "pin": "redacted" }), "pin: \"redacted\" is a placeholder without a stored secret; send the secret"),
        (json!({ "max_parallel": 0 }), "max_parallel must be at least 1"),
        (json!({ "max_parallel": "-3" }), "max_parallel must be at least 1"),
        (json!({ "max_parallel": 1025 }), "max_parallel must be at most 1024"),
        (json!({ "usages": "sign,sigh" }), "invalid usage \"sigh\""),
        (json!({ "usages": ["sign", "SIGH"] }), "invalid usage \"SIGH\""),
        (json!({ "type": "cloudakms" }), "type: must be \"pkcs11\", as in the path"),
        (json!({ "name": "other" }), "name: must be \"web\", as in the path"),
    ] {
        refused(app, "web", with(key(), members), text).await;
    }
    for field in ["any_mount", "max_parallel", "pin", "library", "usages", "slot"] {
        let answer = app.client.post("sys/managed-keys/pkcs11/web", with(key(), json!({ field: { "a": 1 } }))).await;
        answer.assert_error_has(400, &format!("\"{field}\": must be"));
    }
    assert_eq!(app.client.get("sys/managed-keys/pkcs11/web").await.status, 404);
    for members in [
        json!({ "slot": "18446744073709551615", "token_label": "" }),
        json!({ "key_label": "", "key_id": "0x0A0b" }),
        json!({ "key_id": "0a0b", "mechanism": "0xffffffff" }),
        json!({ "library": "NONE", "type": "pkcs11", "name": "WEB" }),
        json!({ "usages": "", "max_parallel": 1024 }),
        json!({ "usages": "encrypt,decrypt,sign,verify,wrap,unwrap,mac,generate_random" }),
    ] {
        write(app, "web", with(key(), members)).await;
        delete(app, "web").await;
    }
}

#[actix_web::test]
async fn update_is_validated_together_with_stored_parameters() {
    let app = with_key().await;
    let curve = "curve is required when allow_generate_key is true and the mechanism is ECDSA";
    for (members, text) in [
        (json!({ "slot": 1 }), "only one of slot or token_label can be set"),
        (json!({ "slot": 0 }), "only one of slot or token_label can be set"),
        (json!({ "token_label": "" }), "either slot or token_label is required"),
        (json!({ "pin": "" }), "pin is required"),
        (json!({ "allow_generate_key": "1" }), curve),
    ] {
        refused(&app, "web", members, text).await;
    }
    let before = shown(&app.client, "web").await;
    for members in [json!({}), json!({ "pin": "redacted" }), json!({ "pin": null }), before.clone()] {
        write(&app, "web", members).await.assert_status(204);
        assert_eq!(shown(&app.client, "web").await, before);
    }
    let other = "UUID: is assigned by the server and cannot be changed";
    refused(&app, "web", json!({ "UUID": "00000000-0000-0000-0000-000000000000" }), other).await;
    // The same with a slot instead of a label; slot 0 is valid.
    for slot in [0, 7] {
        write(&app, "web", json!({ "slot": slot.to_string(), "token_label": "" })).await;
        let before = shown(&app.client, "web").await;
        write(&app, "web", before.clone()).await;
        assert_eq!((&before["slot"], shown(&app.client, "web").await), (&json!(slot), before.clone()));
    }
    app.stop().await;
}

async fn writes_warn_of_key_generation_mechanism_and_spelling(app: &App) {
    let warned = async |name: &str, body: Value| {
        let answer = write(app, name, body).await;
        assert_eq!((answer.status, &answer.body["data"]), (200, &Value::Null), "{}", answer.text);
        answer.body["warnings"].clone()
    };
    let body = with(key(), json!({ "allow_generate_key": "true", "curve": "p-384" }));
    assert_eq!(warned("web", body).await, json!(["disable allow_generate_key after initial creation"]));
    assert_eq!(shown(&app.client, "web").await["curve"], "P384");
    let warnings = warned("web", json!({ "allow_generate_key": "false", "mechanism": "0x1087" })).await;
    assert_eq!(warnings, json!(["mechanism 0x1087 is not supported for signing"]));
    let warnings = warned("Third", with(key(), json!({ "bogus": 1 }))).await;
    let unknown = "Endpoint ignored these unrecognized parameters: [bogus]";
    assert_eq!(warnings, json!(["the key name was changed to \"third\": names are in lower case", unknown]));
}

async fn names_are_unique_over_types_and_unknown_types_are_rejected(app: &App) {
    write(app, "K1", key()).await;
    for kind in ["cloudakms", "cloudbkeyvault", "cloudckms"] {
        let other = format!("{kind}/k1");
        refused(app, &other, key(), "a managed key named \"k1\" of type \"pkcs11\" already exists").await;
        assert_eq!(app.client.list(&format!("sys/managed-keys/{kind}")).await.text, "{\"errors\":[]}");
        app.client.get(&super::path(&other)).await.assert_status(404);
        delete(app, &other).await;
        let tested = test(app, &other, json!({})).await;
        assert_eq!((tested.status, tested.text.as_str()), (404, "{\"errors\":[]}"));
    }
    let list = app.client.list("sys/managed-keys/pkcs11").await;
    assert_eq!((&list.body["data"]["keys"], &list.body["keys"]), (&json!(["k1"]), &json!(["k1"])));
    assert_eq!(shown(&app.client, "K1").await["name"], "k1");
    for path in ["sys/managed-keys/hsm/k1", "sys/managed-keys/PKCS11/k1"] {
        let text = format!("unknown managed key type \"{}\"", path.split('/').nth(2).unwrap());
        for answer in [app.client.get(path).await, app.client.delete(path).await, app.client.post(path, key()).await] {
            answer.assert_error(400, &text);
        }
    }
    assert_eq!(app.client.list("sys/managed-keys/hsm").await.error(), "unknown managed key type \"hsm\"");
    for name in ["-web", "web-", "we b", "w/eb", "wéb"] {
        app.client.post(&format!("sys/managed-keys/pkcs11/{name}"), key()).await.assert_error(404, "unsupported path");
    }
    let long = "n".repeat(129);
    let text = "managed_key: longer than 128 characters";
    refused(app, &long, key(), text).await;
    write(app, &long[..128], key()).await;
}

async fn lists_are_paged_and_writes_accept_every_form(app: &App) {
    assert_eq!(app.client.list("sys/managed-keys/pkcs11").await.status, 404);
    for name in ["c", "a", "b.1"] {
        write(app, name, key()).await;
    }
    for (query, keys) in
        [("", json!(["a", "b.1", "c"])), ("&after=a&limit=1", json!(["b.1"])), ("&limit=2", json!(["a", "b.1"]))]
    {
        let page = app.client.get(&format!("sys/managed-keys/pkcs11?list=true{query}")).await;
        assert_eq!(page.body["data"]["keys"], keys, "{query}");
    }
    assert_eq!(app.client.get("sys/managed-keys/pkcs11?list=true&after=c").await.status, 404);
    let put = app.client.request("PUT", "sys/managed-keys/pkcs11/d").json(&key());
    assert_eq!(send(put).await.status, 204);
    let form = format!("library={NO_MODULE}&token_label=one&key_label=web&mechanism=0x1041&pin=4711&any_mount=true");
    let form = app.client.request("POST", "sys/managed-keys/pkcs11/e").body(form);
    assert_eq!(send(form.header("content-type", "application/x-www-form-urlencoded")).await.status, 204);
    assert_eq!(shown(&app.client, "e").await["any_mount"], true);
}

#[actix_web::test]
async fn keys_survive_a_restart_and_need_their_library() {
    let app = with_key().await;
    write(&app, "open", with(key(), json!({ "any_mount": true }))).await;
    let before = [shown(&app.client, "web").await, shown(&app.client, "open").await];
    let app = app.restart().await;
    assert_eq!([shown(&app.client, "web").await, shown(&app.client, "open").await], before);
    let place = app.leave().await;
    let options =
        signet::server::ServerOptions { pkcs11_libraries: signet::keys::Libraries::default(), ..place.options() };
    let running = signet::server::Server::open(options).await.unwrap().start().await.unwrap();
    let client = crate::support::Client::new(running.address(), &place.token);
    assert_eq!(shown(&client, "open").await, before[1]);
    let answer = client.post("sys/managed-keys/pkcs11/open/test/sign", json!({})).await;
    answer.assert_error(400, "configuration: no kms_library configured with name \"none\"");
    let answer = client.post("sys/managed-keys/pkcs11/open", json!({ "any_mount": false })).await;
    answer.assert_error(400, "no kms_library configured with name \"none\"");
    assert_eq!(client.delete("sys/managed-keys/pkcs11/open").await.status, 204);
    running.stop().await.unwrap();
}

async fn concurrent_writes_of_one_key_are_serialized(app: &App) {
    let writes = (1..=12).map(|n| write(app, "web", with(key(), json!({ "max_parallel": n }))));
    futures_util::future::join_all(writes).await;
    let list = app.client.list("sys/managed-keys/pkcs11").await;
    assert_eq!(list.body["keys"], json!(["web"]));
    let count = shown(&app.client, "web").await["max_parallel"].as_i64().unwrap();
    assert!((1..=12).contains(&count));
}

async fn metric_series_of_a_deleted_key_are_removed(app: &App) {
    let name = "exported-for-a-while";
    let series = async || {
        let page = app.client.page("/metrics").await.text;
        page.lines().filter(|line| line.contains(&format!("key=\"{name}\""))).count()
    };
    for _ in 0..2 {
        assert_eq!(series().await, 0);
        write(app, name, key()).await;
        assert!(series().await >= 7);
        delete(app, name).await;
        // Its actor ends in the background.
        until("the series end", async || series().await == 0).await;
    }
}

//! Explanations of a token's permissions: the server's responses, their visibility, and the command's output.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use time::macros::datetime;

use super::identity::{entity_id, login, method};
use super::rights::{granted, only, rule};
use crate::process::{dev, signet};
use crate::support::{Answer, App, Client, assert_has, send, tests_on};

tests_on!(server: App::start() =>
    parameters_are_checked_against_the_rule_and_limited,
    explanation_matches_the_actual_decision,
    batch_token_is_explained_while_it_is_valid,
    explanation_names_deciding_and_overridden_rules,
    token_of_disabled_entity_is_explained_as_such,
    the_rules_of_a_token_as_one_table,
    explanation_names_create_or_update_as_needed,
    permissions_of_a_wrapping_token_are_explained,
);

async fn own(client: &Client, method: &str, path: &str) -> Value {
    let body = json!({ "method": method, "path": path });
    client.post("sys/internal/explain-self", body).await.assert_status(200).body["data"].clone()
}

async fn with_parameters(client: &Client, parameters: Value) -> Answer {
    let body = json!({ "method": "POST", "path": "pki/roles/written", "parameters": parameters });
    client.post("sys/internal/explain-self", body).await
}

async fn parameters_are_checked_against_the_rule_and_limited(app: &App) {
    let terms = r#"required_parameters = ["ttl"] denied_parameters = { "no_store" = [] }"#;
    let text = rule("pki/roles/written", &format!(r#"capabilities = ["create", "update"] {terms}"#));
    let client = only(app, "some", &text).await;
    for (parameters, allowed, reason) in [
        (json!({ "ttl": "1h" }), true, "the rule grants"),
        (json!({}), false, "required_parameters: ttl is missing"),
        (json!({ "ttl": "1h", "no_store": true }), false, "denied_parameters: no_store or its value is denied"),
    ] {
        let answer = with_parameters(&client, parameters.clone()).await;
        let data = &answer.body["data"];
        let found = (data["allowed"].as_bool(), data["reason"].as_str().unwrap().contains(reason));
        assert_eq!(found, (Some(allowed), true), "{parameters}: {}", answer.text);
    }
    let answer = with_parameters(&client, json!("ttl")).await;
    answer.assert_error(400, "parameters: must be a JSON object whose members are the fields of the request");
    with_parameters(&client, json!({ "ttl": "x".repeat(64 << 10) })).await.assert_status(413);
}

async fn about(client: &Client, mut subject: Value, method: &str, path: &str) -> Answer {
    subject["method"] = method.into();
    subject["path"] = path.into();
    client.post("sys/internal/explain", subject).await
}

async fn explained(client: &Client, subject: Value, method: &str, path: &str) -> Value {
    about(client, subject, method, path).await.assert_status(200).body["data"].clone()
}

async fn explanation_matches_the_actual_decision(app: &App) {
    let text = [
        granted("pki/roles/*", &["read", "list"]),
        granted("pki/roles/secret", &["deny"]),
        granted("pki/root", &["delete"]),
        rule("pki/roles/written", "capabilities = [\"update\"] required_parameters = [\"ttl\"]"),
        granted("sys/auth/*", &["read", "sudo"]),
        granted("pki/", &["list"]),
    ];
    let client = only(app, "some", &text.concat()).await;
    let any = "any valid token may call this route; the response depends on its policies";
    for (method, path, allowed, reason) in [
        ("GET", "pki/roles/web", true, "the rule grants read"),
        ("GET", "/v1/pki/roles/web", true, "the rule grants read"),
        ("LIST", "pki/roles", true, "the rule grants list"),
        ("GET", "pki/roles/secret", false, "the rule denies everything"),
        ("POST", "pki/roles/web", false, "the rule does not grant update"),
        ("POST", "pki/roles/written", true, "the rule grants update, if the request's parameters satisfy the rule"),
        ("DELETE", "pki/root", false, "the rule grants delete, but this path needs sudo too"),
        ("GET", "sys/auth/token", true, "the rule grants read"),
        ("GET", "sys/mounts", false, "no rule of the token's policies matches the path"),
        ("GET", "pki/ca", true, "the route is open: no token is required"),
        ("GET", "sys/internal/ui/mounts/pki", true, any),
    ] {
        let told = own(&client, method, path).await;
        assert_eq!((&told["allowed"], &told["reason"]), (&json!(allowed), &json!(reason)), "{method} {path}");
        let path = path.trim_start_matches("/v1/");
        let answer = match method {
            "GET" => client.get(path).await,
            "LIST" => client.list(path).await,
            "DELETE" => client.delete(path).await,
            _ => client.post(path, json!({ "ttl": "1h" })).await,
        };
        assert_eq!(answer.status != 403, allowed, "{method} {path}: {}", answer.text);
    }
    let root = own(&app.client, "DELETE", "pki/root").await;
    assert_eq!(root["reason"], "the token holds the policy root, which grants everything");
}

async fn batch_token_is_explained_while_it_is_valid(app: &App) {
    app.policy("some", &granted("pki/roles/*", &["read"])).await;
    let parent = app.client.with_new_token(json!({ "policies": ["some"] })).await;
    app.policy("some", &(granted("pki/roles/*", &["read"]) + &granted("auth/token/create", &["update"]))).await;
    let made = parent.post("auth/token/create", json!({ "type": "batch", "ttl": "1h" })).await;
    let batch = &made.body["auth"]["client_token"];
    assert!(batch.as_str().unwrap().starts_with("b."), "{}", made.text);
    for (path, allowed) in [("pki/roles/web", true), ("pki/issue/web", false)] {
        let told = explained(&app.client, json!({ "token": batch }), "GET", path).await;
        assert_eq!(json!([told["allowed"], told["token"]["state"]]), json!([allowed, "live"]), "{told}");
        assert_eq!(own(&app.client.with_token(batch.as_str().unwrap()), "GET", path).await["allowed"], allowed);
    }
    let unknown = about(&app.client, json!({ "token": "s.unknown" }), "GET", "pki/ca").await;
    // A batch token ends with its parent, and is then unknown.
    assert_eq!(parent.post("auth/token/revoke-self", json!({})).await.status, 204);
    let ended = about(&app.client, json!({ "token": batch }), "GET", "pki/ca").await;
    ended.assert_error(unknown.status, unknown.error());
    assert!(ended.status >= 400);
}

async fn explanation_names_deciding_and_overridden_rules(app: &App) {
    app.policy("one", &(granted("pki/issue/web", &["read"]) + &granted("pki/issue/*", &["update"]))).await;
    app.policy("two", &rule("pki/issue/web", "capabilities = [\"list\"] comment = \"of two\"")).await;
    let client = app.with_policies(&["one", "two"]).await;
    let told = own(&client, "POST", "pki/issue/web").await;
    let written = json!([
        { "policy": "one", "path": "pki/issue/web" },
        { "policy": "two", "path": "pki/issue/web", "comment": "of two" },
    ]);
    assert_eq!(told["decided_by"], json!({ "capabilities": ["list", "read"], "written": written }));
    let lost = json!({ "capabilities": ["update"], "why_not": "it is a pattern, and an exact path takes precedence",
        "written": [{ "policy": "one", "path": "pki/issue/*" }] });
    assert_eq!(told["others"], json!([lost]));
    assert_eq!((&told["needs"], &told["token"]["state"]), (&json!(["update"]), &json!("live")));
    assert_eq!(told["token"]["policies"], json!(["default", "one", "two"]));
    assert_eq!(told.get("mount"), None, "nobody learns of a mount without a right to the path");
    let granted = own(&client, "POST", "pki/issue/other").await;
    assert_eq!((&granted["mount"], &granted["route"]), (&json!("pki/"), &json!("issue/:name")));
    assert_eq!(own(&app.client, "GET", "none/x").await["mount"], Value::Null);
}

#[actix_web::test]
async fn explaining_other_tokens_needs_a_right_and_covers_ended_ones() {
    let app = App::builder().manual_clock(datetime!(2031-01-01 00:00 UTC)).start().await;
    app.policy("reader", &granted("pki/roles/*", &["read"])).await;
    let body = json!({ "policies": ["reader"], "ttl": "10s", "num_uses": 1 });
    let made = app.client.post("auth/token/create", body).await.body["auth"].clone();
    let token = made["client_token"].as_str().unwrap();
    let accessor = made["accessor"].as_str().unwrap();
    let asker = only(&app, "asker", &granted("sys/internal/explain", &["update"])).await;
    let other = only(&app, "other", &granted("sys/internal/*", &["read", "list", "delete"])).await;
    for subject in [json!({ "accessor": accessor }), json!({ "token": token })] {
        about(&other, subject.clone(), "GET", "pki/roles/web").await.assert_denied();
        let told = about(&asker, subject, "GET", "pki/roles/web").await;
        assert_eq!((told.status, &told.body["data"]["allowed"]), (200, &json!(true)), "{}", told.text);
        assert_eq!(told.body["data"]["token"]["uses_left"], 1, "no use is taken");
        assert!(!told.text.contains(token) && !told.text.contains(accessor));
    }
    assert_eq!(app.client.with_token(token).get("pki/roles/web").await.status, 404);
    let told = about(&asker, json!({ "accessor": accessor }), "GET", "pki/roles/web").await;
    if told.status == 200 {
        assert_eq!(told.body["data"]["token"]["state"], "used up");
        assert_eq!(told.body["data"]["allowed"], false);
    } else {
        assert_eq!(told.error(), "invalid accessor");
    }
    let lived = app.client.post("auth/token/create", json!({ "policies": ["reader"], "ttl": "10s" })).await;
    let accessor = lived.body["auth"]["accessor"].as_str().unwrap();
    app.clock.advance(Duration::from_secs(10));
    let told = explained(&asker, json!({ "accessor": accessor }), "GET", "pki/roles/web").await;
    assert_has(&told, json!({ "allowed": false, "reason": "the token cannot be used any more: it is expired" }));
    assert_eq!(told["token"]["state"], "expired");
    for (subject, text) in [
        (json!({ "accessor": accessor, "address": "here" }), "address: must be an IP address"),
        (json!({}), "accessor, token: exactly one of them must be given"),
        (json!({ "accessor": accessor, "token": token }), "accessor, token: exactly one of them must be given"),
        (json!({ "accessor": "none" }), "invalid accessor"),
        (json!({ "token": "none" }), "token: not known"),
    ] {
        about(&asker, subject, "GET", "x").await.assert_error(400, text);
    }
    for (method, path, text) in [
        ("BREW", "x", "method: must be GET"),
        ("GET", "", "path: must be given"),
        ("GET", "a/../b", "path: empty, '.' and '..'"),
        ("POST", "a/", "path: must not end in '/'"),
    ] {
        let refused = app.client.post("sys/internal/explain-self", json!({ "method": method, "path": path })).await;
        assert!(refused.status == 400 && refused.error().starts_with(text), "{}", refused.text);
    }
    app.stop().await;
}

async fn token_of_disabled_entity_is_explained_as_such(app: &App) {
    method(app, "one").await;
    app.policy("reader", &granted("pki/roles/*", &["read"])).await;
    let bob = login(app, "one", "bob", json!({})).await;
    let path = format!("identity/entity/id/{}", entity_id(&bob).await);
    assert_eq!(app.client.post(&path, json!({ "policies": "reader" })).await.status, 204);
    let accessor = bob.get("auth/token/lookup-self").await.body["data"]["accessor"].clone();
    let asker = only(app, "asker", &granted("sys/internal/explain", &["update"])).await;
    for (disabled, state, allowed, reason) in [
        (false, "live", true, "the rule grants read"),
        (true, "entity disabled", false, "the token cannot be used: its entity is disabled"),
        (false, "live", true, "the rule grants read"),
    ] {
        assert_eq!(app.client.post(&path, json!({ "disabled": disabled })).await.status, 204);
        for subject in [json!({ "accessor": accessor }), json!({ "token": bob.token })] {
            let told = explained(&asker, subject, "GET", "pki/roles/web").await;
            assert_has(&told, json!({ "allowed": allowed, "reason": reason }));
            assert_eq!(told["token"]["state"], state);
        }
        assert_eq!(bob.get("pki/roles/web").await.status, if allowed { 404 } else { 403 });
    }
    assert_eq!(app.client.delete(&path).await.status, 204);
    about(&asker, json!({ "accessor": accessor }), "GET", "pki/roles/web").await.assert_error(400, "invalid accessor");
}

async fn the_rules_of_a_token_as_one_table(app: &App) {
    let text = [
        granted("pki/ca", &["read"]),
        granted("pki/none", &[]),
        rule(
            "pki/issue/*",
            r#"capabilities = ["update"] allowed_parameters = { "ttl" = ["1h"] } max_wrapping_ttl = "1m""#,
        ),
        granted("pki/+/web", &["list"]),
        granted("sys/internal/ui/resultant-acl", &["read"]),
    ];
    let client = only(app, "table", &text.concat()).await;
    let table = client.get("sys/internal/ui/resultant-acl").await;
    let exact = json!({
        "pki/ca": { "capabilities": ["read"] },
        "pki/none": { "capabilities": ["deny"] },
        "sys/internal/ui/resultant-acl": { "capabilities": ["read"] },
    });
    let globs = json!({
        "pki/issue/": { "capabilities": ["update"], "allowed_parameters": { "ttl": ["1h"] }, "max_wrapping_ttl": 60 },
        "pki/+/web": { "capabilities": ["list"] },
    });
    assert_eq!(table.body["data"], json!({ "root": false, "exact_paths": exact, "glob_paths": globs }));
    let root = app.client.get("sys/internal/ui/resultant-acl").await;
    assert_eq!(root.body["data"], json!({ "root": true, "exact_paths": {}, "glob_paths": {} }));
    // The default policy grants it to every token.
    let usual = app.with_policies(&["default"]).await.get("sys/internal/ui/resultant-acl").await;
    assert_eq!(usual.body["data"]["exact_paths"]["auth/token/lookup-self"], json!({ "capabilities": ["read"] }));
    let none = only(app, "none", &granted("pki/ca", &["read"])).await;
    none.get("sys/internal/ui/resultant-acl").await.assert_denied();
}

#[actix_web::test]
async fn command_prints_the_explanation_and_rejects_token_arguments() {
    let dev = dev(&[]);
    let client = dev.client();
    let policy = json!({ "policy": granted("pki/issue/*", &["update"]) });
    assert_eq!(client.post("sys/policies/acl/issuing", policy).await.status, 204);
    let made = client.post("auth/token/create", json!({ "policies": ["issuing"] })).await.body["auth"].clone();
    let token = made["client_token"].as_str().unwrap();
    let accessor = made["accessor"].as_str().unwrap();
    let run = |asker: &str, arguments: &[&str], input: &str| {
        let mut command = signet();
        command.args(["explain", "--address", &dev.address]).args(arguments);
        command.env("SIGNET_TOKEN", asker).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), out, err)
    };
    let by_accessor = run(&dev.token, &[accessor, "post", "/v1/pki/issue/dev"], "");
    assert!(by_accessor.0, "{}", by_accessor.2);
    let out = &by_accessor.1;
    assert!(out.starts_with("allowed: the rule grants update\n  request  POST pki/issue/dev (update)\n"), "{out}");
    assert!(out.contains("  decides  path \"pki/issue/*\" in policy issuing: update\n"), "{out}");
    let line = format!("{token}\n");
    let by_token = run(&dev.token, &["-", "POST", "pki/issue/dev"], &line);
    let of_itself = run("", &["-", "POST", "pki/issue/dev"], &line);
    assert_eq!((&by_token.1, &of_itself.1), (out, out), "{} {}", by_token.2, of_itself.2);
    let denied = run(&dev.token, &["--json", accessor, "GET", "pki/roles/dev"], "");
    let told: Value = serde_json::from_str(&denied.1).unwrap();
    assert_eq!(told["reason"], "no rule of the token's policies matches the path");
    let powerless = run(token, &[accessor, "GET", "x"], "");
    assert!(!powerless.0 && powerless.2.contains("needs update on sys/internal/explain"), "{}", powerless.2);
    for (arguments, text) in
        [([accessor, "GET", "x"], "SIGNET_TOKEN"), (["-", "GET", "x"], "standard input: must hold a token")]
    {
        let refused = run("", &arguments, "");
        assert!(!refused.0 && refused.2.contains(text), "{}", refused.2);
    }
    for (_, out, err) in [by_accessor, by_token, of_itself] {
        assert!(!out.contains(token) && !err.contains(token));
    }
}

#[test]
fn token_prompt_on_a_terminal_does_not_echo() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};
    let dev = dev(&[]);
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let screen = File::options().read(true).write(true).open(name).unwrap();
    let shows = || tcgetattr(&screen).unwrap().local_modes.contains(LocalModes::ECHO);
    let start = || {
        let mut command = signet();
        command.args(["explain", "--address", &dev.address, "-", "GET", "pki/roles"]);
        command.stdin(screen.try_clone().unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut prompt = [0; "token to explain: ".len()];
        child.stderr.as_mut().unwrap().read_exact(&mut prompt).unwrap();
        assert_eq!(prompt, *b"token to explain: ");
        assert!(!shows());
        child
    };
    assert!(shows());
    let child = start();
    let mut keyboard = File::from(terminal);
    keyboard.write_all(format!("{}\n", dev.token).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.stdout.starts_with(b"allowed: "), "{}", String::from_utf8_lossy(&output.stderr));
    let mut shown = [0; 64];
    let length = keyboard.read(&mut shown).unwrap();
    assert_eq!(&shown[..length], b"\r\n");
    assert!(shows());
    // The same if the command is interrupted.
    let child = start();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(!child.wait_with_output().unwrap().status.success());
    assert!(shows());
    dev.terminate();
}

async fn explanation_names_create_or_update_as_needed(app: &App) {
    app.client.enable("sys/auth/approle", "approle").await;
    app.client.post("auth/approle/role/there", json!({})).await.assert_status(204);
    app.client.post("auth/token/roles/there", json!({ "orphan": true })).await.assert_status(204);
    let asks = granted("sys/internal/explain", &["update"]);
    let blind = only(app, "blind", &asks).await;
    let reads = granted("auth/*", &["read"]) + &granted("cubbyhole/*", &["read"]);
    let reader = only(app, "reader", &(asks + &reads)).await;
    for (n, granted_only) in ["create", "update"].into_iter().enumerate() {
        let paths =
            ["auth/approle/role/+", "auth/token/roles/+", "cubbyhole/a"].map(|path| granted(path, &[granted_only]));
        let client = only(app, &format!("some-{n}"), &paths.concat()).await;
        let subject = json!({ "token": client.token });
        for (path, is_there) in [
            ("auth/approle/role/there", true),
            ("auth/approle/role/absent", false),
            ("auth/token/roles/there", true),
            ("auth/token/roles/absent", false),
        ] {
            let needed = if is_there { "update" } else { "create" };
            for told in [own(&client, "POST", path).await, explained(&reader, subject.clone(), "POST", path).await] {
                let allowed = needed == granted_only;
                assert_has(&told, json!({ "allowed": allowed, "needs": [needed], "operation": needed }));
                assert_eq!(told.get("route").is_some(), allowed, "{path}: {told}");
            }
            let told = explained(&blind, subject.clone(), "POST", path).await;
            assert_has(&told, json!({ "allowed": null, "needs": ["create", "update"] }));
            let reason = format!("the rule grants {granted_only}, and");
            assert!(told["reason"].as_str().unwrap().contains(&reason), "{path}: {told}");
        }
        // A token may explain its own cubbyhole.
        for is_there in [false, granted_only == "create"] {
            let told = own(&client, "POST", "cubbyhole/a").await;
            let needed = if is_there { "update" } else { "create" };
            assert_has(&told, json!({ "allowed": needed == granted_only, "needs": [needed] }));
            for asker in [&reader, &app.client] {
                let told = about(asker, subject.clone(), "POST", "cubbyhole/a").await;
                assert_has(&told.body["data"], json!({ "allowed": null }));
            }
            let status = client.post("cubbyhole/a", json!({ "b": "c" })).await.status;
            assert_eq!(status == 204, needed == granted_only);
        }
        // With neither right or with both, the requested operation is needed.
        assert_eq!(own(&client, "POST", "auth/approle/role/there/policies").await["needs"], json!(["update"]));
    }
}

async fn permissions_of_a_wrapping_token_are_explained(app: &App) {
    let wrapped = send(app.client.request("GET", "sys/mounts").header("X-Service-Wrap-TTL", "60s")).await;
    let token = &wrapped.body["wrap_info"]["token"];
    for (method, path, allowed) in
        [("GET", "cubbyhole/response", true), ("POST", "sys/wrapping/unwrap", true), ("GET", "cubbyhole/other", false)]
    {
        let told = explained(&app.client, json!({ "token": token }), method, path).await;
        assert_eq!(told["allowed"], allowed, "{path}: {told}");
        if allowed && path.starts_with("cubbyhole") {
            assert_eq!(told["decided_by"]["written"][0]["policy"], "response-wrapping", "{told}");
        }
    }
}

//! Accounts and tokens: of users, teams and organizations.

use std::time::Duration;

use futures_util::FutureExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use signet::projects::api_token::TOKEN_COLUMNS;
use signet::projects::token;
use time::macros::datetime;

use super::fixture::{
    ACME, Api, NONE, PROJECTS, TEAMS, World, assert_invalid, assert_refused, attribute, id_of, no_attributes,
    on_both_stores, path_of, resource, total, with_both_builders,
};
use crate::support::{Answer, App, Builder, send};
use crate::v1::bodies::Pending;

on_both_stores!(
    tokens_of_each_kind_are_created_and_shown,
    token_expiry_is_validated_and_shown,
    new_organization_token_replaces_its_own_kind,
    legacy_team_token_is_replaced_and_deleted,
    team_token_descriptions_are_unique,
    audit_tokens_have_their_own_slot,
    token_management_needs_membership_or_right,
    token_that_ends_during_the_body_is_rejected,
    account_shows_the_token_owner,
    a_token_that_the_api_did_not_store_is_refused,
    creator_organization_of_a_token_is_shown_by_name,
);

with_both_builders!(
    token_without_seal_is_rejected,
    last_use_is_recorded_once_a_minute,
    user_has_one_rate_bucket_for_all_tokens,
);

const ORGANIZATION: &str = "organizations/acme/authentication-token";

fn secret(answer: &Answer) -> &str {
    attribute(answer, "token").as_str().unwrap_or_else(|| panic!("{}", answer.text))
}

async fn own_tokens(api: &Api) -> String {
    format!("users/{}/authentication-tokens", id_of(&api.get("account/details").await))
}

/// Creates a team, and returns its path.
async fn team(world: &World) -> String {
    format!("teams/{}", world.team("builders").await)
}

/// Asserts that a read equals the response of the creation, without the token and its last use.
#[track_caller]
fn assert_shows(read: &Value, made: &Answer) {
    let mut read = read.clone();
    let mut expected = made.body["data"].clone();
    expected["attributes"]["token"] = Value::Null;
    read["attributes"]["last-used-at"] = Value::Null;
    assert_eq!(read, expected);
}

async fn tokens_of_each_kind_are_created_and_shown(world: &World) {
    let owner = &world.owner;
    let team = team(world).await;
    let account = id_of(&owner.get("account/details").await);
    for path in [own_tokens(owner).await, format!("{team}/authentication-token"), ORGANIZATION.to_owned()] {
        let made = owner.post(&path, no_attributes()).await.assert_status(201);
        assert_eq!(made.body["data"]["relationships"]["created-by"]["data"], json!({ "id": account, "type": "users" }));
        let of_team = &made.body["data"]["relationships"]["team"]["data"]["id"];
        assert_eq!(of_team.as_str().is_some_and(|id| team.ends_with(id)), path.contains("teams/"), "{path}");
        let [at, end] = ["created-at", "expired-at"].map(|name| attribute(&made, name).as_str().unwrap());
        let years = |text: &str| text[..4].parse::<i32>().unwrap();
        assert!(years(end) == years(at) + 2 && end[4..19] == at[4..19] && end.ends_with('Z'), "{at} {end}");
        let secret = secret(&made).to_owned();
        let parts: Vec<_> = secret.split('.').collect();
        assert_eq!((parts[0].len(), parts[1], parts[2].len()), (14, "pjv1", 43));
        assert_shows(&owner.get(&path_of(&made)).await.body["data"], &made);
        assert_eq!(owner.with_token(&secret).get("organizations").await.status, 200);
    }
    let list = owner.get(&own_tokens(owner).await).await;
    assert_eq!(total(&list), 2, "with the one of the installation: {}", list.text);
    assert!(!list.text.contains("pjv1"));
    assert_eq!(owner.post(&own_tokens(owner).await, Value::Null).await.status, 422, "a document, or nothing");
    let nothing = owner.send_text(Method::POST, &own_tokens(owner).await, String::new()).await.assert_status(201);
    let newest = owner.get(&own_tokens(owner).await).await;
    assert_shows(&newest.body["data"][0], &nothing);
}

async fn token_expiry_is_validated_and_shown(world: &World) {
    let path = own_tokens(&world.owner).await;
    let create = async |end: Value| world.owner.post(&path, resource("", json!({ "expired-at": end }))).await;
    for (end, shown) in [
        (json!("2130-01-02T03:04:05Z"), json!("2130-01-02T03:04:05Z")),
        (json!("2130-01-02T05:04:05.25+02:00"), json!("2130-01-02T03:04:05.25Z")),
        (Value::Null, Value::Null),
    ] {
        let made = create(end).await;
        assert_eq!((made.status, attribute(&made, "expired-at")), (201, &shown));
        assert_shows(&world.owner.get(&path_of(&made)).await.body["data"], &made);
    }
    assert_eq!(create(json!("2130-01-02T03:04:05.123456000Z")).await.status, 201);
    for (end, rule) in [
        ("2020-01-02T03:04:05Z", "Expired at must be in the future"),
        ("soon", "Expired at must be a time"),
        ("2130-01-02T03:04:05.1234567Z", "Expired at must have at most 6 fractional digits of seconds"),
        ("2130-12-31T23:59:60Z", "Expired at must have at most 6 fractional digits of seconds"),
    ] {
        assert_invalid(&create(json!(end)).await, "expired-at", rule);
    }
    let long = world.owner.post(&path, resource("", json!({ "description": "x".repeat(257) }))).await;
    assert_invalid(&long, "description", "Description is too long");
}

async fn token_that_ends_during_the_body_is_rejected(world: &World) {
    let owner = &world.owner;
    let of_team = async |name: &str| {
        let access = json!({ "name": name, "organization-access": { "manage-projects": true } });
        let team = path_of(&owner.add(TEAMS, access).await);
        let path = format!("{team}/authentication-token");
        (team, owner.post(&path, no_attributes()).await, path)
    };
    let own = own_tokens(owner).await;
    let user = owner.post(&own, no_attributes()).await;
    let by_id = path_of(&user);
    let organization = owner.post(ORGANIZATION, no_attributes()).await;
    let (_, first, its_token) = of_team("first").await;
    let (team, second, _) = of_team("second").await;
    for (token, ended, path, body) in [
        (&user, &by_id[..], &own[..], no_attributes()),
        (&organization, ORGANIZATION, ORGANIZATION, no_attributes()),
        (&first, &its_token, PROJECTS, resource("projects", json!({ "name": "Ghost" }))),
        (&second, &team, PROJECTS, resource("projects", json!({ "name": "Ghost" }))),
    ] {
        let headers = format!(
            "Authorization: Bearer {}\r\nContent-Type: application/vnd.api+json\r\nExpect: 100-continue\r\n",
            secret(token)
        );
        let line = format!("POST /api/v2/{path}");
        let pending = Pending::begin(&world.app, &line, &headers, body.to_string().into_bytes()).await.wanted().await;
        assert_eq!(owner.delete(ended).await.status, 204, "{ended}");
        let answer = pending.end().await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{ended}: {answer}");
    }
    assert_eq!(owner.get(ORGANIZATION).await.status, 404);
    assert_eq!(owner.get(PROJECTS).await.body["meta"]["status-counts"]["total"], 1);
}

async fn new_organization_token_replaces_its_own_kind(world: &World) {
    let owner = &world.owner;
    assert_eq!(owner.get(ORGANIZATION).await.status, 404);
    assert_eq!(owner.delete(ORGANIZATION).await.status, 404);
    let first = owner.post(ORGANIZATION, no_attributes()).await;
    let second = owner.with_token(secret(&first)).post(ORGANIZATION, no_attributes()).await;
    assert_eq!(second.status, 201, "its own token may replace itself: {}", second.text);
    let maker = json!({ "id": "acme", "type": "organizations" });
    assert_eq!(second.body["data"]["relationships"]["created-by"]["data"], maker);
    assert_eq!(owner.with_token(secret(&first)).get("organizations").await.status, 401);
    assert_eq!(owner.with_token(secret(&second)).get(PROJECTS).await.status, 200);
    assert_shows(&owner.get(ORGANIZATION).await.body["data"], &second);
    let project = resource("projects", json!({ "name": "Net" }));
    let of_it = owner.with_token(secret(&second));
    assert_eq!(of_it.post(PROJECTS, project).await.status, 201, "vector 10");
    assert_eq!(owner.delete(ORGANIZATION).await.status, 204);
    assert_eq!(of_it.get("organizations").await.status, 401);
}

async fn legacy_team_token_is_replaced_and_deleted(world: &World) {
    let owner = &world.owner;
    let path = format!("{}/authentication-token", team(world).await);
    assert_eq!((owner.get(&path).await.status, owner.delete(&path).await.status), (404, 404));
    let first = owner.post(&path, resource("", json!({ "description": "not kept" }))).await;
    assert_eq!((first.status, attribute(&first, "description")), (201, &Value::Null));
    let second = owner.post(&path, no_attributes()).await;
    assert_ne!(first.body["data"]["id"], second.body["data"]["id"]);
    assert_eq!(owner.with_token(secret(&first)).get("organizations").await.status, 401);
    assert_eq!(owner.with_token(secret(&second)).get("organizations").await.status, 200);
    assert_shows(&owner.get(&path).await.body["data"], &second);
    let by_id = path_of(&second);
    assert_eq!((owner.delete(&by_id).await.status, owner.delete(&by_id).await.status), (204, 404));
    assert_eq!((owner.get(&path).await.status, owner.delete(&path).await.status), (404, 404));
    assert_eq!(owner.with_token(secret(&second)).get("organizations").await.status, 401);
}

async fn team_token_descriptions_are_unique(world: &World) {
    let owner = &world.owner;
    let team = team(world).await;
    let plural = format!("{team}/authentication-tokens");
    let singular = format!("{team}/authentication-token");
    let described = |text: &str| resource("", json!({ "description": text }));
    let ci = owner.post(&plural, described("ci")).await;
    assert_eq!((ci.status, attribute(&ci, "description")), (201, &json!("ci")));
    let again = owner.post(&plural, described("ci")).await;
    assert_refused(&again, 422, &[("", "Validation failed: Description has already been taken")]);
    assert_eq!(again.body["errors"][0]["title"], "invalid attributes");
    let blank = owner.post(&plural, described("")).await;
    let legacy = owner.post(&singular, no_attributes()).await;
    for (made, description) in [(&blank, json!("")), (&legacy, Value::Null), (&ci, json!("ci"))] {
        assert_eq!(owner.with_token(secret(made)).get("organizations").await.status, 200);
        assert_eq!(attribute(&owner.get(&path_of(made)).await, "description"), &description);
    }
    let list = owner.get(&plural).await;
    assert_eq!(total(&list), 3);
    assert_shows(&list.body["data"][0], &legacy);
    let replaced = owner.post(&plural, no_attributes()).await;
    assert_eq!((replaced.status, attribute(&replaced, "description")), (201, &Value::Null));
    assert_eq!(owner.with_token(secret(&legacy)).get("organizations").await.status, 401, "the legacy one again");
}

async fn audit_tokens_have_their_own_slot(world: &World) {
    let owner = &world.owner;
    let audit = format!("{ORGANIZATION}?token=audit-trails");
    let plain = owner.post(ORGANIZATION, no_attributes()).await;
    let made = owner.post(&audit, no_attributes()).await.assert_status(201);
    assert_ne!(made.body["data"]["id"], plain.body["data"]["id"]);
    assert_shows(&owner.get(&audit).await.body["data"], &made);
    assert_shows(&owner.get(ORGANIZATION).await.body["data"], &plain);
    let auditor = owner.with_token(secret(&made));
    assert_eq!(auditor.get(PROJECTS).await.status, 404);
    assert_eq!(auditor.get("organizations").await.body["data"], json!([]));
    assert_eq!(owner.delete(&audit).await.status, 204);
    assert_eq!((owner.get(&audit).await.status, owner.delete(&audit).await.status), (404, 404));
    assert_eq!(auditor.get("organizations").await.status, 401);
    assert_eq!(owner.with_token(secret(&plain)).get("organizations").await.status, 200, "the plain one stays");
    let unknown = format!("{ORGANIZATION}?token=x");
    for other in [owner.post(&unknown, no_attributes()).await, owner.get(&unknown).await] {
        assert_refused(&other, 422, &[("token", "token must be audit-trails")]);
    }
}

async fn token_management_needs_membership_or_right(world: &World) {
    let owner = &world.owner;
    let mia = world.member("mia", NONE).await;
    let other = world.member("otto", NONE).await.api;
    let outsider = world.outsider("xaver").await.api;
    let path = format!("teams/{}/authentication-token", mia.team);
    let of_team = mia.api.post(&path, no_attributes()).await;
    assert_eq!(of_team.status, 201, "a member of the team: {}", of_team.text);
    let by_id = path_of(&of_team);
    let token = owner.with_token(secret(&of_team));
    for api in [&other, &outsider, &token] {
        assert_eq!((api.post(&path, no_attributes()).await.status, api.get(&by_id).await.status), (404, 404));
        assert_eq!((api.delete(&by_id).await.status, api.post(ORGANIZATION, no_attributes()).await.status), (404, 404));
    }
    assert_eq!(owner.get(&by_id).await.status, 200);
    let off = json!({ "allow-member-token-management": false });
    assert_eq!(owner.change(&format!("teams/{}", mia.team), off).await.status, 200);
    assert_eq!(mia.api.post(&path, no_attributes()).await.status, 404, "no more");
    assert_eq!(owner.post(&path, no_attributes()).await.status, 201);
    // Another user's list is empty, and so is a missing user's; nothing can be created there.
    let mias = own_tokens(&mia.api).await;
    let made = mia.api.post(&mias, no_attributes()).await;
    let by_id = path_of(&made);
    for path in [&mias[..], "users/user-x/authentication-tokens"] {
        let list = owner.get(path).await;
        assert_eq!((list.status, &list.body["data"]), (200, &json!([])), "{path}");
        assert_eq!(owner.post(path, no_attributes()).await.status, 404);
    }
    assert_eq!((owner.get(&by_id).await.status, owner.delete(&by_id).await.status), (404, 404));
    assert_eq!((mia.api.delete(&by_id).await.status, mia.api.delete(&by_id).await.status), (204, 404));
    assert_eq!(mia.api.get("authentication-tokens/nonexisting").await.status, 404);
}

/// Rows that were inserted or changed directly in the database.
async fn a_token_that_the_api_did_not_store_is_refused(world: &World) {
    let mia = world.member("mia", NONE).await;
    let made = mia.api.post(&own_tokens(&mia.api).await, no_attributes()).await;
    let token = mia.api.with_token(secret(&made));
    let is_this = format!("ext_id = '{}'", id_of(&made));
    let change = async |values: &str| world.execute(format!("UPDATE api_tokens SET {values} WHERE {is_this}")).await;
    assert!(is_token_accepted(&token).await);
    let user = |name: &str| format!("(SELECT id FROM users WHERE username = '{name}')");
    for (values, back) in [
        (format!("user_id = {}", user("olga")), format!("user_id = {}", user("mia"))),
        ("expired_at = expired_at + 1000000".to_owned(), "expired_at = expired_at - 1000000".to_owned()),
        (
            "user_id = NULL, org_id = (SELECT id FROM organizations WHERE name_lc = 'acme')".to_owned(),
            format!("org_id = NULL, user_id = {}", user("mia")),
        ),
    ] {
        assert_eq!(change(&values).await, 1);
        assert!(!is_token_accepted(&token).await, "{values}");
        assert_eq!(change(&back).await, 1);
        assert!(is_token_accepted(&token).await, "{back}");
    }
    let other = format!("(SELECT secret_sha256 FROM api_tokens WHERE NOT {is_this} LIMIT 1)");
    change(&format!("lookup = lookup || 'x', secret_sha256 = {other}")).await;
    assert!(!is_token_accepted(&token).await, "the secret of another token");
    // A forged row with the seal of another row, or without a seal.
    for body in ["NULL".to_owned(), format!("(SELECT body FROM api_tokens WHERE {is_this})")] {
        assert!(!is_token_accepted(&mia.api.with_token(&forge(world, &body).await)).await, "{body}");
    }
}

async fn is_token_accepted(api: &Api) -> bool {
    let status = api.get("account/details").await.status;
    assert!([200, 401].contains(&status), "{status}");
    status == 200
}

/// Inserts a token of the owner with this SQL expression as its sealed body, and returns its text.
async fn forge(world: &World, body: &str) -> String {
    let drawn = token::generate();
    let text = String::from_utf8(drawn.text.expose().to_vec()).unwrap();
    let insert = format!(
        "INSERT INTO api_tokens (ext_id, lookup, secret_sha256, user_id, created_by, created_at, body)
         SELECT $1, $2, $3, id, 'users/x', 0, {body} FROM users WHERE username = 'olga'"
    );
    let run = world.run(move |mut tx| {
        let insert = insert.clone();
        let drawn = drawn.clone();
        async move {
            let values = [signet::projects::id::new("at").into(), drawn.lookup.into(), drawn.hash.into()];
            assert_eq!(tx.execute(&insert, &values).await?, 1);
            Ok(())
        }
        .boxed_local()
    });
    run.await;
    text
}

/// Removes the seals and all facts that the server starts without, and inserts a token.
async fn token_without_seal_is_rejected(builder: Builder) {
    let world = World::of(builder).await;
    let forged = forge(&world, "NULL").await;
    world.execute("UPDATE api_tokens SET body = NULL").await;
    world.execute("DELETE FROM meta WHERE name NOT IN ('schema', 'installation') AND name NOT LIKE 'data-key/%'").await;
    let World { app, owner } = world;
    let app = app.restart().await;
    let owner = Api::new(&app, &owner.token);
    // Runs the maintenance of every 30 seconds.
    app.shared().projects.sweep().await.unwrap();
    for api in [owner.with_token(&forged), owner] {
        assert_eq!(api.get("account/details").await.status, 401);
    }
    app.stop().await;
}

async fn account_shows_the_token_owner(world: &World) {
    let account = world.owner.get("account/details").await;
    assert_eq!((account.status, &account.body["data"]["type"]), (200, &json!("users")), "{}", account.text);
    assert_eq!(attribute(&account, "username"), "olga");
    assert_eq!(attribute(&account, "email"), "olga@acme.test");
    assert!(!attribute(&account, "avatar-url").as_str().unwrap().is_empty());
    assert_eq!(attribute(&account, "is-service-account"), false);
    assert_eq!(attribute(&account, "two-factor"), &json!({ "enabled": false, "verified": false }));
    assert_eq!(attribute(&account, "permissions")["can-create-organizations"], true);
}

async fn until(api: &Api, path: &str, is: impl Fn(&Answer) -> bool) -> Answer {
    for _ in 0..500 {
        let answer = api.get(path).await;
        if is(&answer) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{path} does not change");
}

async fn last_use_is_recorded_once_a_minute(builder: Builder) {
    let world = World::of(builder.manual_clock(datetime!(2026-03-01 12:00 UTC))).await;
    let owner = &world.owner;
    let end = json!({ "expired-at": "2026-03-01T13:00:00Z" });
    let made = owner.post(&own_tokens(owner).await, resource("", end)).await;
    let path = path_of(&made);
    assert_eq!(attribute(&owner.get(&path).await, "last-used-at"), &Value::Null);
    let used = owner.with_token(secret(&made));
    let seen = async |at: &str| until(owner, &path, |answer| attribute(answer, "last-used-at") == at).await;
    assert_eq!(used.get("account/details").await.status, 200);
    seen("2026-03-01T12:00:00.000Z").await;
    world.app.clock.advance(Duration::from_secs(59));
    assert_eq!(used.get("account/details").await.status, 200);
    world.app.clock.advance(Duration::from_secs(1));
    assert_eq!(used.get("account/details").await.status, 200);
    seen("2026-03-01T12:01:00.000Z").await;
    world.app.clock.advance(Duration::from_secs(59 * 60));
    assert_eq!(used.get("account/details").await.status, 401, "it has ended");
    world.app.stop().await;
}

async fn user_has_one_rate_bucket_for_all_tokens(builder: Builder) {
    // The smallest limit, which even a slow machine exceeds.
    let world = World::of(builder.settings(|settings| settings.projects_rate_limit = 4)).await;
    let owner = &world.owner;
    let path = own_tokens(owner).await;
    let second = owner.with_token(secret(&owner.post(&path, no_attributes()).await));
    let first = owner.get("organizations").await;
    assert_eq!(first.header("x-ratelimit-limit"), "4");
    let refused = beyond(&[owner, &second]).await;
    let reset: f64 = refused.header("x-ratelimit-reset").parse().unwrap();
    // Less than half a millisecond is rendered as 0.
    assert!((0.0..=0.25).contains(&reset), "{reset}");
    assert_eq!((refused.header("x-ratelimit-remaining"), refused.header("retry-after")), ("0", "1"));
    let error = &refused.body["errors"][0];
    assert_eq!((&error["status"], &error["title"]), (&json!("429"), &json!("Too many requests")));
    let other = world.outsider("xaver").await.api.get("organizations").await;
    assert_eq!((other.status, other.header("x-ratelimit-remaining")), (200, "3"), "another user has their own");
    for (path, status) in [("ping", 204), ("no/such/path", 404)] {
        for _ in 0..8 {
            let told = owner.get(path).await;
            let header = |name| told.header(&format!("x-ratelimit-{name}")).to_owned();
            let expected = (status, "4".to_owned(), "4".to_owned(), "0.000".to_owned());
            assert_eq!((told.status, header("limit"), header("remaining"), header("reset")), expected, "{path}");
        }
    }
    let stranger = beyond(&[&owner.with_token("x")]).await;
    assert_eq!(stranger.header("x-ratelimit-limit"), "4", "told apart by address");
    world.app.stop().await;
}

#[actix_web::test]
async fn rate_limit_counts_an_ipv6_64_as_one_caller() {
    let builder = App::builder().settings(|settings| {
        settings.projects_rate_limit = 4;
        settings.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
    });
    let world = World::of(builder).await;
    let stranger = world.owner.with_token("x");
    let ask = |network: &'static str, host: usize| {
        let from = format!("2001:db8:0:{network}::{host:x}");
        send(stranger.request(Method::GET, "organizations").header("X-Forwarded-For", from))
    };
    for round in 0..50 {
        let answers = futures_util::future::join_all((1..=10).map(|n| ask("1", 10 * round + n))).await;
        if answers.iter().any(|answer| answer.status == 429) {
            let other = ask("2", 1).await;
            assert_eq!((other.status, other.header("x-ratelimit-remaining")), (401, "3"), "{}", other.text);
            return world.stop().await;
        }
    }
    panic!("nothing was refused");
}

/// Sends concurrent requests until one is rejected, and returns that response.
async fn beyond(apis: &[&Api]) -> Answer {
    for _ in 0..50 {
        let asked = apis.iter().flat_map(|api| (0..10).map(|_| api.get("organizations")));
        let answers = futures_util::future::join_all(asked).await;
        if let Some(refused) = answers.into_iter().find(|answer| answer.status == 429) {
            return refused;
        }
    }
    panic!("nothing was refused");
}

/// The creator is found by an index, however many organizations there are.
async fn creator_organization_of_a_token_is_shown_by_name(world: &World) {
    let its = world.owner.token_for(ACME).await;
    let made = its.post(&format!("{}/authentication-token", team(world).await), no_attributes()).await;
    let maker = &made.body["data"]["relationships"]["created-by"]["data"];
    assert_eq!(maker, &json!({ "id": "acme", "type": "organizations" }), "{}", made.text);
    let postgres = world.app.is_postgres();
    let plan: Vec<String> = world
        .run(move |mut tx| {
            async move {
                let sql = format!("SELECT {TOKEN_COLUMNS} WHERE t.id = ANY($1)");
                let one = || vec![vec![1_i64].into()];
                if postgres {
                    // PostgreSQL scans an empty table unless sequential scans are disabled.
                    tx.execute("SET LOCAL enable_seqscan = off", &[]).await?;
                    return tx.column(&format!("EXPLAIN {sql}"), &one()).await;
                }
                let mut steps = Vec::new();
                for mut row in tx.rows(&format!("EXPLAIN QUERY PLAN {sql}"), &one()).await? {
                    let _: (i64, i64, i64) = (row.get()?, row.get()?, row.get()?);
                    steps.push(row.get()?);
                }
                Ok(steps)
            }
            .boxed_local()
        })
        .await;
    let by_index = [
        "Index Cond: (ext_id = substr(t.created_by, 15))",
        "SEARCH o USING INDEX sqlite_autoindex_organizations_1 (ext_id=?)",
    ];
    assert!(plan.iter().any(|step| by_index.iter().any(|by| step.contains(by))), "{plan:#?}");
}

//! `signet operator new-user-token` creates an invited user's first token: with a running server, a stopped server and
//! a database, only with the seal key, and recorded in the audit.

use serde_json::{Value, json};

use crate::cluster;
use crate::process::{refused, token_of};
use crate::serve::{Served, Site};
use crate::support::until;

const FIRST: [&str; 5] = ["bootstrap", "--username", "ada", "--email", "ada@example.test"];
const MIA: [&str; 4] = ["operator", "new-user-token", "--user", "Mia@Example.test"];

async fn ask(served: &Served, token: &str, path: &str, body: Value) -> (u16, Value) {
    let url = served.url(&format!("api/v2/{path}"));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = if body.is_null() { client.get(url) } else { client.post(url).body(body.to_string()) };
    let request = request.bearer_auth(token).header("Content-Type", "application/vnd.api+json");
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap_or_default())
}

/// The user name of a token, and when the token expires.
async fn who(served: &Served, token: &str) -> Option<(Value, Value)> {
    let (status, account) = ask(served, token, "account/details", Value::Null).await;
    let id = account["data"]["id"].as_str().filter(|_| status == 200)?;
    let (_, tokens) = ask(served, token, &format!("users/{id}/authentication-tokens"), Value::Null).await;
    let last = tokens["data"].as_array().unwrap().last().unwrap();
    Some((account["data"]["attributes"]["username"].clone(), last["attributes"]["expired-at"].clone()))
}

async fn membership(served: &Served, ada: &str) -> Value {
    let (_, list) = ask(served, ada, "organizations/acme/organization-memberships?q=mia", Value::Null).await;
    list["data"][0]["attributes"]["status"].clone()
}

async fn invite(served: &Served, ada: &str) {
    let acme = json!({ "data": { "type": "organizations", "attributes": { "name": "acme", "email": "o@acme.test" } } });
    assert_eq!(ask(served, ada, "organizations", acme).await.0, 201);
    let mia = json!({ "data": { "type": "organization-memberships", "attributes": { "email": "mia@example.test" } } });
    let (status, made) = ask(served, ada, "organizations/acme/organization-memberships", mia).await;
    assert_eq!((status, &made["data"]["attributes"]["status"]), (201, &json!("invited")), "{made}");
}

/// Type, status and error of the command's audit entries.
fn told(site: &Site) -> Vec<(String, Value, Value)> {
    let text = std::fs::read_to_string(site.path("audit.log")).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own =
        lines.filter(|line| line["request"]["path"].as_str().unwrap().starts_with("sys/operator/new-user-token/"));
    own.map(|line| {
        assert_eq!(line["auth"]["display_name"], "operator");
        (line["type"].as_str().unwrap().to_owned(), line["response"]["status"].clone(), line["error"].clone())
    })
    .collect()
}

#[actix_web::test]
async fn invited_user_token_works_with_running_and_stopped_server() {
    let site = Site::new();
    let file = site.path("audit.log");
    site.configure(&format!("[[audit]]\ntype = \"file\"\nfile_path = \"{}\"\n", file.display()));
    site.init();
    let ada = token_of(&mut site.command(&FIRST));
    let none = refused(&mut site.command(&MIA));
    assert!(
        none.contains("user: no user of the projects API has the username or email address \"Mia@Example.test\""),
        "{none}"
    );
    let served = site.serve();
    assert_eq!(refused(&mut site.command(&MIA)), none, "the same beside a server");
    let refusals: Vec<Value> = told(&site).into_iter().filter(|line| line.0 == "response").map(|line| line.1).collect();
    assert_eq!(refusals, [json!(404), json!(404)]);

    invite(&served, &ada).await;
    let mia = token_of(&mut site.command(&MIA));
    assert_eq!(membership(&served, &ada).await, "invited", "until the first request");
    let (name, ends) = who(&served, &mia).await.unwrap();
    assert_eq!(name, "mia@example.test");
    let year = ends.as_str().unwrap()[..4].parse::<i32>().unwrap();
    assert_eq!(year, signet::clock::Clock::system().now().year() + 2, "{ends}");
    until("an active membership", async || membership(&served, &ada).await == "active").await;
    assert_eq!(told(&site)[4..].iter().map(|line| &line.1).collect::<Vec<_>>(), [&Value::Null, &json!(200)]);

    let wrong = refused(site.command(&MIA).env("SIGNET_SEAL_KEY", "77".repeat(32)));
    assert!(!wrong.contains(&"77".repeat(32)), "{wrong}");
    let count = async || {
        let (_, account) = ask(&served, &mia, "account/details", Value::Null).await;
        let path = format!("users/{}/authentication-tokens", account["data"]["id"].as_str().unwrap());
        ask(&served, &mia, &path, Value::Null).await.1["data"].as_array().unwrap().len()
    };
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    assert!(refused(site.command(&MIA).stdout(full)).contains(
        "the token was revoked; create another one with signet operator new-user-token --config FILE --user NAME"
    ));
    assert_eq!(count().await, 1);
    let again = token_of(&mut site.command(&["operator", "new-user-token", "--user", "ADA"]));
    assert_eq!(who(&served, &again).await.unwrap().0, "ada");
    served.terminate();

    let other = token_of(&mut site.command(&MIA));
    let served = site.serve();
    for token in [&mia, &other] {
        assert_eq!(who(&served, token).await.unwrap().0, "mia@example.test");
    }
    served.terminate();
    let kept = std::fs::read_to_string(&file).unwrap() + &std::fs::read_to_string(site.path("log")).unwrap();
    assert!([ada, mia, again, other].iter().all(|token| !kept.contains(&token[..])), "no token is written anywhere");
}

#[actix_web::test]
async fn new_user_token_works_on_a_database_with_running_nodes() {
    let site = Site::new();
    let database = cluster::shared().database();
    site.configure_database(&database.url(), "key", "");
    site.init();
    let ada = token_of(&mut site.command(&FIRST));
    let served = site.serve();
    invite(&served, &ada).await;
    let mia = token_of(&mut site.command(&MIA));
    assert_eq!(who(&served, &mia).await.unwrap().0, "mia@example.test");
    served.terminate();
}

//! Long lists in progress: their maximum number, rights during the transfer, and encodings.

use std::io::Read as _;

use flate2::read::GzDecoder;
use signet::auth::token::CreatePath;
use signet::fields::Fields;
use time::macros::datetime;

use super::*;
use crate::process::{dev_with, signet};
use crate::v1::pki::mount::until;

/// Rows that exceed the buffers of the system between the server and a client that does not read.
const LONG: usize = 150_000;

/// Maximum number of long lists per token, and in total.
const OF_TOKEN: usize = 8;
const MAX_LISTS: usize = 64;

async fn lists_only(app: &App) -> Client {
    app.policy("lists", "path \"pki/certs\" { capabilities = [\"list\"] }").await;
    app.with_policies(&["lists"]).await
}

#[actix_web::test]
async fn one_list_reads_at_a_time_and_other_requests_are_served() {
    let both = on_both().await;
    for (pki, faults) in &both {
        copies(&pki.app, LONG);
        let client = &pki.app.client;
        let readers = join_all((0..OF_TOKEN).map(|_| Slow::ask(client, "pki/certs"))).await;
        settled(|| faults.calls("serials")).await;
        let go = faults.hold("serials");
        let backoff: Vec<_> = readers.into_iter().map(|reader| actix_rt::spawn(reader.rest())).collect();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(faults.under_way(), 1);
        for _ in 0..20 {
            assert_eq!(client.get(&format!("pki/cert/{}", serial(7))).await.status, 200);
        }
        faults.disarm();
        go.notify_one();
        for rest in backoff {
            let (text, whole) = rest.await.unwrap();
            assert_eq!((whole, text.matches("\"7f:").count()), (true, LONG));
        }
    }
    stop(both).await;
}

#[actix_web::test]
async fn concurrent_long_lists_are_limited_per_token_and_in_total() {
    let pki = with_copies(LONG).await;
    let mut tokens = Vec::new();
    for _ in 0..=MAX_LISTS / OF_TOKEN {
        tokens.push(lists_only(&pki.app).await);
    }
    let mut readers = Vec::new();
    for token in &tokens[..MAX_LISTS / OF_TOKEN] {
        readers.push(join_all((0..OF_TOKEN).map(|_| Slow::ask(token, "pki/certs"))).await);
        let refused = token.list("pki/certs").await;
        assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
        assert!(refused.error().starts_with("list: limit of 8 concurrent long lists of this"), "{}", refused.text);
        // A list that fits into a page is not a long list.
        assert_eq!(token.list("pki/certs?limit=900").await.status, 200);
    }
    let late = tokens.last().unwrap();
    let refused = late.list("pki/certs").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"));
    assert!(refused.error().starts_with("list: limit of 64 concurrent long lists reached"), "{}", refused.text);
    assert_eq!(late.list("pki/certs?limit=900").await.status, 200);
    // A disconnect frees a slot.
    readers.pop();
    until("a free slot", async || late.list("pki/certs").await.status == 200).await;
    drop(readers);
    pki.stop().await;
}

#[actix_web::test]
async fn list_is_aborted_when_its_caller_loses_the_right() {
    let both = on_both().await;
    for (pki, _) in &both {
        let app = &pki.app;
        let client = &pki.app.client;
        copies(app, LONG);
        for lost in ["token", "policy", "right"] {
            let lists = lists_only(app).await;
            let reader = Slow::ask(&lists, "pki/certs").await;
            let done = match lost {
                "token" => client.post("auth/token/revoke", json!({ "token": lists.token })).await,
                "policy" => client.delete("sys/policies/acl/lists").await,
                _ => {
                    let other = "path \"pki/certs\" { capabilities = [\"read\"] }";
                    client.post("sys/policies/acl/lists", json!({ "policy": other })).await
                }
            };
            assert_eq!(done.status, 204, "{}", done.text);
            let (text, whole) = reader.rest().await;
            assert!(!whole && text.contains("\"7f:") && !text.contains("wrap_info"), "{lost}: {} octets", text.len());
        }
        // A token that ended with its last use still gets its list.
        lists_only(app).await;
        let once = json!({ "policies": ["lists"], "num_uses": 1 });
        let once = client.post("auth/token/create", once).await.body["auth"]["client_token"].clone();
        let listed = client.with_token(once.as_str().unwrap()).list("pki/certs").await;
        assert_eq!(keys(&listed.body).len(), LONG + 2);
    }
    stop(both).await;
}

#[actix_web::test]
async fn list_of_a_deleted_role_is_not_terminated() {
    const LIST: &str = "auth/approle/role/r/secret-id";
    let faults: [Arc<Faults>; 2] = [Arc::default(), Arc::default()];
    let apps =
        [App::builder().faults(&faults[0]).start().await, App::builder().faults(&faults[1]).postgres().start().await];
    for (app, faults) in apps.iter().zip(&faults) {
        let client = &app.client;
        with_secret_id(client).await;
        fill(app, 2_500, SECRET_IDS);
        assert_eq!(outcome(client, LIST).await, Some(200));
        // Delays only the check that the role still exists.
        let go = faults.hold("secret id role");
        let asked = faults.calls("secret id role");
        let asking = client.clone();
        let listing = actix_rt::spawn(async move { outcome(&asking, LIST).await });
        until("the end of the list", async || faults.calls("secret id role") > asked).await;
        let ended =
            "INSERT INTO ended_role (mount, role, ended_at_micros) SELECT DISTINCT mount, role, 0 FROM secret_id, n";
        fill(app, 1, ended);
        faults.disarm();
        go.notify_one();
        assert_eq!(listing.await.unwrap(), None);
    }
    for app in apps {
        app.stop().await;
    }
}

#[actix_web::test]
async fn accessor_list_skips_expired_tokens_in_full_pages() {
    const PATH: &str = "auth/token/accessors";
    let faults: Arc<Faults> = Arc::default();
    let app = App::builder().faults(&faults).manual_clock(datetime!(2030-01-01 00:00 UTC)).start().await;
    let auth = &app.shared().auth;
    let client = &app.client;
    let root = auth.recognise(&client.token, None).await.unwrap();
    let mut live = Vec::new();
    for (count, ttl) in [(9_300, "1h"), (1_200, "24h")] {
        let fields = Fields::parse(json!({ "policies": ["default"], "ttl": ttl }).to_string().as_bytes()).unwrap();
        for _ in (0..count).step_by(100) {
            let made = (0..100).map(|_| auth.create_token(&root, true, CreatePath::Child, &fields));
            for made in join_all(made).await {
                let (made, _) = made.map_err(|error| error.to_string()).unwrap();
                live.extend((ttl == "24h").then_some(made.accessor));
            }
        }
    }
    app.shared().clock.advance(Duration::from_secs(2 * 3600));
    let all = client.list(PATH).await;
    assert_eq!((all.status, all.header("transfer-encoding")), (200, "chunked"));
    let mut all = keys(&all.body);
    // One more is the token of the test itself.
    assert!((1_201..1_210).contains(&all.len()), "{}", all.len());
    all.sort();
    live.sort();
    assert!(live.iter().all(|accessor| all.binary_search(accessor).is_ok()));
    let middle = &all[600];
    let count = all.len() - 601;
    let mut above = keys(&client.list(&format!("{PATH}?after={middle}")).await.body);
    above.sort();
    assert_eq!((above.len(), &above[..]), (count, &all[601..]));
    // One in eight rows is listed; whole pages of 500 rows find them in a few reads.
    for (limit, most) in [(1, 3), (40, 4), (600, 14)] {
        let before = faults.calls("tokens");
        assert_eq!(keys(&client.list(&format!("{PATH}?limit={limit}")).await.body).len(), limit);
        assert!(faults.calls("tokens") - before <= most, "{limit}: {} reads", faults.calls("tokens") - before);
    }
    let mut listed = Vec::new();
    let mut after = String::new();
    loop {
        let page = client.list(&format!("{PATH}?limit=500&after={after}")).await;
        if page.status == 404 {
            break;
        }
        listed.extend(keys(&page.body));
        after.clone_from(listed.last().unwrap());
    }
    listed.sort();
    assert_eq!(listed, all);
    app.stop().await;
}

#[actix_web::test]
async fn long_list_is_gzipped_on_request() {
    let faults = Arc::default();
    let pki = Pki::on(App::builder().faults(&faults).start().await).await;
    pki.leaf().await;
    copies(&pki.app, 3_000);
    for path in ["pki/certs", "pki/certs/detailed"] {
        let plain = pki.app.client.list(path).await;
        let asked = || pki.app.client.request("LIST", path).header("Accept-Encoding", "gzip");
        let answer = asked().send().await.unwrap();
        let header = |name: &str| answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        assert_eq!((header("content-encoding"), header("transfer-encoding")), ("gzip".into(), "chunked".into()));
        assert_eq!((plain.header("vary"), header("vary")), ("accept-encoding", "accept-encoding".into()));
        let packed = answer.bytes().await.unwrap();
        let mut text = String::new();
        assert!(packed.len() * 3 < plain.text.len(), "{path}: {}", packed.len());
        GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["data"], plain.body["data"]);
        // A compressed list that breaks off is not terminated.
        faults.arm(4, Fault::Outage);
        let broken = asked().send().await;
        let whole = if let Ok(broken) = broken { broken.bytes().await.is_ok() } else { false };
        assert!(faults.disarm().is_some() && !whole, "{path}");
    }
    pki.stop().await;
}

#[actix_web::test]
async fn http_1_0_list_has_a_length_or_is_rejected() {
    let pki = with_copies(100_000).await;
    let token = &pki.app.client.token;
    let asked = async |method: &str, query: &str| {
        let path = format!("{method} /v1/pki/certs?list=true{query}");
        pki.app.raw(format!("{path} HTTP/1.0\r\nHost: t\r\nX-Service-Token: {token}\r\n\r\n")).await
    };
    let answer = asked("GET", "&limit=10000").await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK") && !head.contains("transfer-encoding"), "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    assert_eq!(keys(&serde_json::from_str(body).unwrap()).len(), 10_000);
    let refused = asked("GET", "").await;
    let text = "HTTP/1.0: the list exceeds 1048576 bytes; use HTTP/1.1 or HTTP/2, or request a page (after, limit)";
    assert!(refused.starts_with("HTTP/1.0 400 ") && refused.contains(text), "{refused}");
    let head = asked("HEAD", "").await;
    assert!(head.starts_with("HTTP/1.0 200 OK") && head.ends_with("\r\n\r\n"), "{head}");
    pki.stop().await;
}

#[actix_web::test]
async fn list_aborted_by_mount_deletion_logs_one_info_line() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let data = folder.path().join("data");
    let mut command = signet();
    command.env("SIGNET_LOG", "info").stderr(std::fs::File::create(&log).unwrap());
    let dev = dev_with(&mut command, &["--data-dir", data.to_str().unwrap()]);
    let client = dev.client();
    assert_eq!(client.post("pki/issue/dev", json!({ "common_name": "localhost" })).await.status, 200);
    fill_file(&data.join("signet.db"), LONG, COPIES);
    let reader = Slow::ask(&client, "pki/certs").await;
    assert_eq!(client.delete("sys/mounts/pki").await.status, 204);
    assert!(!reader.rest().await.1);
    dev.terminate();
    let log = std::fs::read_to_string(&log).unwrap();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("response aborted")).collect();
    let cause = "list: the mount was deleted while the list was read";
    assert!(told.len() == 1 && told[0].contains(" INFO ") && told[0].contains(cause), "{log}");
    assert!(told[0].contains("request=") && !log.contains("ERROR") && !log.contains("AbortedBody"), "{log}");
}

//! Clock steps under load: by a day, by a year, to a time after 2038, and back.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::json;
use signet::clock::Clock;
use signet::pki::crl::CrlBuildRequest;
use signet::x509::crl::Crl;

use super::clocks::FakeClock;
use super::seed::{Seed, is_long, rounds};
use super::site::{Site, Way};
use crate::cluster::Cluster;
use crate::crash::audit::number;
use crate::crash::place::Place;
use crate::model::BACKDATING;
use crate::support::{Answer, App, Client, http_client, send, until};

/// Forward steps. The last one passes 2038-01-19, the end of signed 32-bit seconds.
const FORTH: [&str; 3] = ["+1d", "+1y", "+13y"];
const ANY: [&str; 5] = ["+1d", "+1y", "+13y", "-1d", "-30d"];
/// Longer than the server's interval between two sweeps of expired data.
const SWEEPS: Duration = Duration::from_secs(35);

async fn ok(answer: Answer) -> Answer {
    assert!(answer.status < 300, "{}: {}", answer.status, answer.text);
    answer
}

/// Creates an authority that is still valid after every step.
async fn outlasting(client: &Client) {
    ok(client.post("sys/mounts/pki/tune", json!({ "max_lease_ttl": "360000h" })).await).await;
    let root = json!({ "common_name": "Lasting", "issuer_name": "lasting", "key_type": "ec", "ttl": "350000h" });
    ok(client.post("pki/root/generate/internal", root).await).await;
    ok(client.post("pki/config/issuers", json!({ "default": "lasting" })).await).await;
}

/// The true time, in Unix seconds.
fn now() -> i64 {
    Clock::system().now().unix_timestamp()
}

/// The time of a node, in Unix seconds.
async fn time_of(client: &Client) -> i64 {
    client.get("sys/health").await.body["server_time_utc"].as_i64().unwrap()
}

async fn crl(client: &Client) -> Crl {
    Crl::parse(&client.request("GET", "pki/crl").send().await.unwrap().bytes().await.unwrap()).unwrap()
}

/// Waits until a node's CRL is not from the future. After the clock is set back, the mount replaces such a CRL at its
/// next check, once a minute.
async fn list_has_begun(client: &Client) {
    let started = Instant::now();
    loop {
        let list = crl(client).await;
        let ahead = list.this_update() - now();
        if ahead <= 2 {
            return assert!(list.next_update().unwrap() > now());
        }
        assert!(started.elapsed() < Duration::from_secs(75), "a list of {ahead} s from now");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[actix_web::test]
async fn a_node_with_its_own_store_works_through_steps_of_its_clock() {
    let mut seed = Seed::new();
    let Some(clock) = FakeClock::new().map(Rc::new) else { return };
    let way = Way { url: None, clock: Some(Rc::clone(&clock)) };
    let mut site = Site::prepared(Place::embedded(), vec![way]).await;
    outlasting(&site.client(0)).await;
    site.load(0);
    let steps = seed.order(&FORTH, rounds(FORTH.len(), 10 * FORTH.len()));
    let rotates = seed.below(steps.len());
    let copies = seed.below(steps.len());
    for (round, step) in steps.into_iter().enumerate() {
        println!("{step}");
        site.works(10 + seed.below(20), 1);
        clock.step(step);
        assert!(time_of(&site.client(0)).await > now() + 23 * 3600, "{step}: the clock is not set");
        if round == rotates {
            site.rotate_meanwhile(0);
        }
        site.works(10 + seed.below(20), 1);
        if round == copies {
            site.copy();
        }
        if seed.coin() {
            site.rotated();
            site.kill(0);
            if seed.coin() {
                clock.step("+0");
            }
            site.restart(0);
            site.works(5, 1);
        }
        clock.step("+0");
    }
    site.works(10, 2);
    list_has_begun(&site.client(0)).await;
    site.judge().await;
}

#[actix_web::test]
async fn crl_from_the_future_is_rebuilt_after_clock_goes_back() {
    let begin = time::macros::datetime!(2031-01-01 00:00 UTC);
    let app = App::builder().manual_clock(begin).start().await;
    let root = json!({ "common_name": "Root", "key_type": "ec" });
    ok(app.client.post("pki/root/generate/internal", root).await).await;
    let mount = app.shared().auth.mounts().get("pki").unwrap().clone();
    let authority = app.shared().mounts.authority(&mount).await.unwrap();
    let first = crl(&app.client).await;
    app.clock.advance(Duration::from_secs(10 * 86_400));
    authority.build_crls(CrlBuildRequest::DUE).await.unwrap();
    let ahead = crl(&app.client).await;
    assert_eq!(ahead.this_update(), begin.unix_timestamp() + 10 * 86_400 - BACKDATING);
    // Clocks of nodes may differ by a minute.
    app.clock.set(begin + Duration::from_secs(10 * 86_400 - 60));
    authority.build_crls(CrlBuildRequest::DUE).await.unwrap();
    assert_eq!(number(&crl(&app.client).await), number(&ahead));
    app.clock.set(begin);
    authority.build_crls(CrlBuildRequest::DUE).await.unwrap();
    let back = crl(&app.client).await;
    assert_eq!(back.this_update(), begin.unix_timestamp());
    assert!(number(&first) < number(&ahead) && number(&ahead) < number(&back), "numbers grow all the same");
    app.stop().await;
}

struct Clocks {
    database: Rc<FakeClock>,
    nodes: Vec<Rc<FakeClock>>,
    site: Site,
}

impl Clocks {
    async fn start(count: usize) -> Option<Self> {
        let database = Rc::new(FakeClock::new()?);
        let cluster = Cluster::with_environment(&database.environment());
        let place = Place::postgres(cluster.database());
        let nodes: Vec<_> = (0..count).map(|_| Rc::new(FakeClock::new().unwrap())).collect();
        let ways = nodes.iter().map(|clock| Way { url: None, clock: Some(Rc::clone(clock)) }).collect();
        let mut site = Site::prepared(place, ways).await;
        outlasting(&site.client(0)).await;
        for at in 0..count {
            let read = async || {
                let issuer = site.client(at).get("pki/issuer/default").await;
                issuer.body["data"]["issuer_name"] == "lasting"
            };
            until("the issuer", read).await;
        }
        (0..count).for_each(|at| site.load(at));
        Some(Self { database, nodes, site })
    }

    fn all(&self) -> impl Iterator<Item = &Rc<FakeClock>> {
        self.nodes.iter().chain([&self.database])
    }
}

#[actix_web::test]
async fn nodes_work_through_steps_that_their_database_makes_too() {
    let mut seed = Seed::new();
    let Some(mut clocks) = Clocks::start(2).await else { return };
    let steps = seed.order(&FORTH, rounds(FORTH.len(), 10 * FORTH.len()));
    let rotates = seed.below(steps.len());
    let copies = seed.below(steps.len());
    for (round, step) in steps.into_iter().enumerate() {
        println!("{step}");
        clocks.site.works(10 + seed.below(20), 1);
        clocks.all().for_each(|clock| clock.step(step));
        for at in 0..2 {
            assert!(time_of(&clocks.site.client(at)).await > now() + 23 * 3600, "{step}: the clock is not set");
        }
        if round == rotates {
            clocks.site.rotate_meanwhile(seed.below(2));
        }
        clocks.site.works(10 + seed.below(20), 1);
        if round == copies {
            clocks.site.copy();
        }
        clocks.all().for_each(|clock| clock.step("+0"));
    }
    clocks.site.works(10, 2);
    for at in 0..2 {
        list_has_begun(&clocks.site.client(at)).await;
    }
    clocks.site.judge().await;
}

async fn refuses(site: &Site, at: usize) {
    let client = site.client(at);
    let dev = site.nodes[at].dev();
    until("a refusal", async || client.get("auth/token/lookup-self").await.status == 503).await;
    let issue = json!({ "common_name": "a.test" });
    let projects = http_client().get(format!("{}/api/v2/organizations/dev/projects", dev.address));
    let ocsp = client.with_token("").request("POST", "pki/ocsp").header("Content-Type", "application/ocsp-request");
    for (what, answer) in [
        ("issue", client.post("pki/issue/dev", issue).await),
        ("rotate", client.get("pki/crl/rotate").await),
        ("health", client.with_token("").get("sys/health").await),
        ("projects", send(projects.bearer_auth(&dev.token)).await),
        ("ocsp", answer_as_text(ocsp.body("0")).await),
    ] {
        assert_eq!((answer.status, answer.header("retry-after").is_empty()), (503, false), "{what}: {}", answer.text);
        assert!(matches!(what, "health" | "ocsp") || answer.text.contains("clock: "), "{what}: {}", answer.text);
    }
    let read = client.request("GET", "pki/crl").send().await.unwrap();
    assert_eq!(read.status(), 200, "what was signed before is still served");
}

/// A response whose body is not text.
async fn answer_as_text(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let url = response.url().clone();
    Answer { url, status, headers, text: String::new(), body: serde_json::Value::Null }
}

#[actix_web::test]
async fn a_clock_that_is_set_alone_stops_its_node_which_recovers() {
    let mut seed = Seed::new();
    let Some(mut clocks) = Clocks::start(3).await else { return };
    let made = json!({ "policies": ["default"], "ttl": "2h" });
    let made = ok(clocks.site.client(0).post("auth/token/create-orphan", made).await).await;
    let token = made.body["auth"]["client_token"].as_str().unwrap().to_owned();
    let victims = seed.order(&[0, 1, 2, 3], rounds(4, 24));
    let rotates = seed.below(victims.len());
    let copies = seed.below(victims.len());
    for (round, victim) in victims.into_iter().enumerate() {
        let by = ANY[seed.below(ANY.len())];
        println!("{by}, {victim}");
        clocks.site.works(10 + seed.below(20), 1);
        let clock = clocks.nodes.get(victim).unwrap_or(&clocks.database);
        let affected = if victim < 3 { vec![victim] } else { vec![0, 1, 2] };
        clock.step(by);
        for at in &affected {
            refuses(&clocks.site, *at).await;
        }
        if round == rotates {
            // On a node whose clock is right, or as soon as it is.
            clocks.site.rotate_meanwhile((victim + 1) % 3);
        }
        for (at, node) in clocks.site.nodes.iter().enumerate() {
            if affected.contains(&at) {
                node.ledger.wait_for(0, 0, 10);
            } else {
                node.ledger.wait_for(10, 1, 0);
            }
        }
        if is_long() {
            std::thread::sleep(SWEEPS);
        }
        clocks.nodes.get(victim).unwrap_or(&clocks.database).step("+0");
        clocks.site.works(5, 1);
        if round == copies {
            clocks.site.copy();
        }
    }
    clocks.site.rotated();
    for at in 0..3 {
        let client = clocks.site.client(at);
        until("health", async || client.with_token("").get("sys/health").await.status == 200).await;
        list_has_begun(&client).await;
        let kept = client.with_token(&token).get("auth/token/lookup-self").await;
        assert_eq!(kept.status, 200, "a token of two hours: {}", kept.text);
    }
    let dated = format!("SELECT count(*) FROM certificate WHERE not_before > {}", now());
    assert_eq!(clocks.site.place.scan(&dated), "0", "certificates of a time that has not come");
    clocks.site.judge().await;
}

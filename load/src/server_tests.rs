//! Scenarios, comparisons and searches against a [`Double`].

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser as _;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::double::{Double, MADE, Shape};
use crate::drive::{RequestClass, RunLimits, ServerAccess, drive};
use crate::figures::Figures;
use crate::order::{self, Order};
use crate::pace::Pace;
use crate::plan::MountContents;
use crate::proc::WatchedProcesses;
use crate::provision::Provisioner;
use crate::report::Outputs;
use crate::run_context::{self, CommandNotes, INTERRUPTED};
use crate::scenario::Scenario;
use crate::server::Launch;
use crate::target::Target;
use crate::{Cli, find_rate, login, preload, workload};

fn target(double: &Double) -> Target {
    Target { addr: double.addr.clone(), token: "root".to_owned(), ..Target::default() }
}

fn order(scenario: &str, more: &str, target: &str) -> Order {
    let plan =
        format!("scenario = \"{scenario}\"\nclients = 4\nrequests = 40\nseconds = 20\n{more}\n[target]\n{target}");
    let mut order = order::read(&plan, false).unwrap();
    order.plan.quiet = true;
    order
}

async fn run(order: &Order, target: &Target) -> Result<Figures, String> {
    let open = target.open(order.plan.scenario).await?;
    workload::run(&target.plan(&order.plan), &open.access(), open.watched).await
}

fn done(figures: &Figures) -> u64 {
    assert!(!figures.failed(), "{:?}", figures.classes.iter().map(|class| &class.errors).collect::<Vec<_>>());
    figures.classes[0].count()
}

#[tokio::test]
async fn supported_scenarios_run_against_a_vault_api() {
    let double = Double::start(Shape { issuer: true, ..Shape::default() });
    let addr = format!("addr = \"{}\"", double.addr);
    let with_token = |order: Order| Target { token: "root".to_owned(), ..order.target };
    for scenario in ["issue", "sign", "revoke", "crl-get", "health"] {
        let order = order(scenario, "", &addr);
        assert_eq!(done(&run(&order, &with_token(order.clone())).await.unwrap()), 40, "{scenario}");
    }
    // Every scenario but `health` needs a mount and a root; `revoke` first issues its forty certificates.
    let asked = [
        "POST /v1/sys/mounts/signet-load-",
        "/root/generate",
        "/issue/signet-load-",
        "/sign/signet-load-",
        "-1/revoke",
    ];
    assert_eq!(asked.map(|part| double.count_requests_containing(part)), [4, 4, 80, 40, 40]);
}

#[tokio::test]
async fn prepared_run_uses_the_given_header_mount_and_role() {
    let shape = Shape { header: "X-Own-Token", token: "t", ready: vec!["ca/int"], ..Shape::default() };
    let double = Double::start(shape);
    let whole = format!(
        "addr = \"{}\"\ntoken_header = \"x-own-token\"\nmount = \"ca/int\"\nrole = \"web\"\nprepared = true",
        double.addr
    );
    let order = order("issue", "", &whole);
    let given = Target { token: "t".to_owned(), ..order.target.clone() };
    assert_eq!(done(&run(&order, &given).await.unwrap()), 40);
    assert_eq!(double.count_requests("POST /v1/ca/int/issue/web"), 40);
    assert_eq!(double.count_requests("POST"), 40, "nothing else is made");
    // A token in another header is not recognized, and an unknown role is an error.
    let other = Target { token_header: None, ..given.clone() };
    assert_eq!(run(&order, &other).await.unwrap().classes[0].errors["403"], 40);
    let other = Target { role: Some("else".to_owned()), ..given.clone() };
    assert_eq!(run(&order, &other).await.unwrap().classes[0].errors["400"], 40);
    let refused = run(&order, &Target { token: "no".to_owned(), prepared: false, ..given }).await.err().unwrap();
    assert_eq!(refused, "signet: sys/mounts: 403 Forbidden; --prepared uses a mount, root and role that exist");
}

#[tokio::test]
async fn store_is_filled_by_lists_without_pages() {
    let double = Double::start(Shape::default());
    let open = target(&double).open(Scenario::Issue).await.unwrap();
    let mount = open.access().mount.to_owned();
    let wanted = MountContents { certificates: 60, revoked: 20 };
    preload::auto_rebuild(&open.access(), false).await.unwrap();
    assert_eq!(preload::fill(&open.access(), wanted, None, true).await.unwrap(), wanted);
    assert_eq!((double.stock(&mount), double.auto_rebuild(&mount)), ((60, 20), false));
    // A filled store is reused, and only missing certificates are issued.
    assert_eq!(preload::fill(&open.access(), wanted, None, true).await.unwrap(), wanted);
    assert_eq!(preload::revocation_bodies(&open.access(), 30, None, true).await.unwrap().0.len(), 30);
    assert_eq!(double.stock(&mount).0, 60);
    let (bodies, issued) = preload::revocation_bodies(&open.access(), 50, None, true).await.unwrap();
    assert_eq!((bodies.len(), issued), (50, 10));
    assert_eq!(double.stock(&mount).0, 70);
}

#[tokio::test]
async fn two_servers_alternate_and_ratios_and_runs_are_written() {
    let slow = Double::start(Shape { delay: |_| Duration::from_millis(8), ..Shape::default() });
    let fast = Double::start(Shape::default());
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs {
        json: Some(folder.path().join("out.json")),
        html: Some(folder.path().join("out.html")),
        commit: Some("abc123".to_owned()),
    };
    let mut order = order(
        "health",
        "rounds = 2",
        &format!("addr = \"{}\"\n[other]\naddr = \"{}\"\nstore = \"a store of its own\"\n", fast.addr, slow.addr),
    );
    order.target.token = "root".to_owned();
    order.other.as_mut().unwrap().token = "root".to_owned();
    crate::run_order(&order, &outputs).await.unwrap();
    assert_eq!((fast.count_requests("GET /v1/sys/health"), slow.count_requests("GET /v1/sys/health")), (81, 81));
    let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
    let turns: Vec<&str> = json["runs"].as_array().unwrap().iter().filter_map(|run| run["server"].as_str()).collect();
    assert_eq!(turns, ["signet", "other", "signet", "other"]);
    assert_eq!((&json["ratios"][0]["what"], &json["ratios"][1]["what"]), (&json!("rate"), &json!("p50")));
    assert!(json["ratios"][0]["ratio"].as_f64().unwrap() > 1.0, "{}", json["ratios"]);
    assert!(json["ratios"][1]["ratio"].as_f64().unwrap() < 1.0, "{}", json["ratios"]);
    // Both are processes of this machine, found by their ports: here the test process itself.
    assert_eq!(json["ratios"][4]["what"], "CPU per request");
    assert_eq!(json["commit"], "abc123");
    let here = format!("(pid {})", std::process::id());
    assert_eq!(json["servers"][1]["store"], "a store of its own");
    assert!(json["servers"][0]["process"].as_str().unwrap().ends_with(&here), "{}", json["servers"]);
    let environment = &json["environment"];
    for fact in ["command", "cores", "memory", "load average before", "when", "generator"] {
        assert!(environment[fact].is_string(), "{fact}: {environment}");
    }
    let html = std::fs::read_to_string(folder.path().join("out.html")).unwrap();
    assert!(html.contains("signet, round 2") && html.contains("other, round 2") && html.contains("abc123"));
    assert!(html.contains("a store of its own") && html.contains(&here));
    order.other.as_mut().unwrap().name = "signet".to_owned();
    assert!(crate::run_order(&order, &Outputs::default()).await.is_err_and(|cause| cause.starts_with("name: ")));
}

#[tokio::test]
async fn two_servers_can_be_loaded_concurrently() {
    static OTHER_ASKED: AtomicBool = AtomicBool::new(false);
    static TOGETHER: AtomicBool = AtomicBool::new(false);
    let slow = |_| match OTHER_ASKED.load(Ordering::SeqCst) {
        true => (TOGETHER.store(true, Ordering::SeqCst), Duration::ZERO).1,
        false => Duration::from_millis(50),
    };
    let quick = |_| (OTHER_ASKED.store(true, Ordering::SeqCst), Duration::ZERO).1;
    let first = Double::start(Shape { delay: slow, ..Shape::default() });
    let other = Double::start(Shape { delay: quick, ..Shape::default() });
    let servers = format!("addr = \"{}\"\n[other]\naddr = \"{}\"\n", first.addr, other.addr);
    let mut order = order("health", "rounds = 1\nat_once = true", &servers);
    order.target.token = "root".to_owned();
    order.other.as_mut().unwrap().token = "root".to_owned();
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs { json: Some(folder.path().join("out.json")), ..Outputs::default() };
    crate::run_order(&order, &outputs).await.unwrap();
    assert!(TOGETHER.load(Ordering::SeqCst), "the first one was done before the other received a request");
    let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
    assert_eq!((&json["at_once"], &json["runs"][0]["server"]), (&json!(true), &json!("signet")));
    assert_eq!((first.count_requests("GET /v1/sys/health"), other.count_requests("GET /v1/sys/health")), (41, 41));
}

/// Waits until no process listens on a port; another process may use it for a moment.
fn is_port_free(port: u16) -> bool {
    (0..200).any(|_| {
        let left = TcpStream::connect(("127.0.0.1", port)).is_err();
        std::thread::sleep(Duration::from_millis(if left { 0 } else { 50 }));
        left
    })
}

#[tokio::test]
async fn command_line_starts_the_server_and_its_failure_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    // A port that is free at this moment.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = "import http.server, sys\n\
        class Any(http.server.BaseHTTPRequestHandler):\n\
        \x20   protocol_version = 'HTTP/1.1'\n\
        \x20   def do_GET(self):\n\
        \x20       self.send_response(200); self.send_header('Content-Length', '2'); self.end_headers(); self.wfile.write(b'{}')\n\
        http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Any).serve_forever()\n";
    let file = folder.path().join("server.py");
    std::fs::write(&file, script).unwrap();
    let target = Target {
        name: "server".to_owned(),
        command: Some(format!("python3 {} {port}", file.display())),
        addr: format!("http://127.0.0.1:{port}"),
        launch: Launch { data_dir: folder.path().to_owned(), ..Launch::default() },
        prepared: true,
        role: Some("any".to_owned()),
        ..Target::default()
    };
    let order = order("health", "", &format!("addr = \"{}\"", target.addr));
    let open = target.open(Scenario::Health).await.unwrap();
    let figures = workload::run(&target.plan(&order.plan), &open.access(), open.watched).await.unwrap();
    assert_eq!(done(&figures), 40);
    assert!(figures.server_mib.is_some_and(|mib| mib > 1.0) && figures.cpu.server.is_some());
    let again = target.open(Scenario::Health).await.err().unwrap();
    assert_eq!(again, format!("server: 127.0.0.1:{port} is in use: another server answers there"));
    drop(open);
    assert!(is_port_free(port), "it was told to end");
    // With a compound command, the server is a child of the shell and must end with it.
    let command = format!("cd {} && A=1 python3 server.py {port}; true", folder.path().display());
    let below = Target { command: Some(command), ..target.clone() };
    let open = below.open(Scenario::Health).await.unwrap();
    assert!(open.process().is_some_and(|process| process.starts_with("python3")), "{:?}", open.process());
    drop(open);
    assert!(is_port_free(port), "it was told to end");
    let wrong = Target { command: Some("echo no such thing; exit 3".to_owned()), ..target };
    let cause = wrong.open(Scenario::Health).await.err().unwrap();
    assert!(cause.contains("has ended") && cause.contains("no such thing"), "{cause}");
}

async fn health(double: &Double, clients: usize, bounds: &RunLimits) -> Figures {
    let endpoint = target(double).endpoint().unwrap();
    let provisioner = Provisioner::new(&endpoint, "", false).unwrap();
    let access = ServerAccess { endpoint: &endpoint, token: "", mount: "pki", provisioner: &provisioner };
    let class = RequestClass { clients, path: "/v1/sys/health".to_owned(), ..RequestClass::default() };
    drive(&access, vec![class], bounds, WatchedProcesses::default()).await.unwrap()
}

fn bounds(rate: Option<f64>, requests: u64, millis: u64) -> RunLimits {
    let pace = Pace { rate, ramp: Duration::ZERO };
    RunLimits { requests, time: Duration::from_millis(millis), pace, quiet: true }
}

/// Delays one response by 400 ms: at 100 requests per second, about forty requests are due during that time.
fn delay_one_response(number: u64) -> Duration {
    Duration::from_millis(if number == 20 { 400 } else { 0 })
}

#[tokio::test]
async fn fixed_rate_counts_waiting_time_during_a_server_pause() {
    let double = Double::start(Shape { delay: delay_one_response, ..Shape::default() });
    let figures = health(&double, 1, &bounds(Some(100.0), 150, 10_000)).await;
    let class = &figures.classes[0];
    assert_eq!((class.count(), figures.unsent), (150, 0));
    // Of 150 requests, about 40 wait because of the pause, and 20 of those for more than half of it.
    assert!(class.latencies.percentile_ms(90.0) > 150.0, "{}", class.latencies.percentile_ms(90.0));
    assert!(class.latencies.percentile_ms(50.0) < 50.0, "{}", class.latencies.percentile_ms(50.0));
    assert!(figures.elapsed > Duration::from_millis(1480), "{:?}", figures.elapsed);
    // In a closed loop only one response is slow.
    let double = Double::start(Shape { delay: delay_one_response, ..Shape::default() });
    let figures = health(&double, 1, &bounds(None, 150, 10_000)).await;
    assert!(
        figures.classes[0].latencies.percentile_ms(90.0) < 100.0
            && figures.classes[0].latencies.percentile_ms(100.0) > 399.0
    );
}

#[tokio::test]
async fn unsent_requests_are_counted() {
    let double = Double::start(Shape { delay: |_| Duration::from_millis(50), ..Shape::default() });
    let figures = health(&double, 2, &bounds(Some(200.0), u64::MAX, 1000)).await;
    let done = figures.classes[0].count();
    // 200 requests are due, and two connections can send forty; each may have one more in flight at the end.
    assert!((20..=42).contains(&done), "{done}");
    assert_eq!(done + figures.unsent, 200);
    assert!(figures.classes[0].latencies.percentile_ms(100.0) > 500.0, "those that were sent have waited");
    let slots = &figures.classes[0].timeline.slots;
    assert_eq!(slots.iter().map(|slot| slot.latencies.count()).sum::<u64>(), done);
}

#[tokio::test]
async fn comparison_that_misses_the_rate_fails_after_its_report() {
    let slow = Double::start(Shape { delay: |_| Duration::from_millis(50), ..Shape::default() });
    let fast = Double::start(Shape::default());
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs { json: Some(folder.path().join("out.json")), ..Outputs::default() };
    let first = &fast.addr;
    let other = &slow.addr;
    let mut order = order::read(
        &format!(
            "scenario = \"health\"\nclients = 2\nrate = 100\nseconds = 2\nrounds = 1\n\
             [target]\naddr = \"{first}\"\n[other]\naddr = \"{other}\"\n"
        ),
        false,
    )
    .unwrap();
    order.plan.quiet = true;
    order.target.token = "root".to_owned();
    order.other.as_mut().unwrap().token = "root".to_owned();
    let refused = crate::run_order(&order, &outputs).await.err().unwrap();
    assert!(refused.contains("other, round 1: rate not reached: "), "{refused}");
    let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
    assert!(json["runs"][1]["figures"]["due_and_not_sent"].as_u64().unwrap() > 50, "{}", json["runs"][1]);
}

#[tokio::test]
async fn reports_contain_no_token() {
    const TOKEN: &str = "hvs.nobody-else-is-to-see-this";
    let double = Double::start(Shape { token: TOKEN, ..Shape::default() });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let json = folder.path().join("out.json");
    let html = folder.path().join("out.html");
    let outputs = Outputs { json: Some(json.clone()), html: Some(html.clone()), commit: None };
    let target = format!("addr = \"{}\"\ntoken_file = \"{}\"\n", double.addr, file.display());
    for other in [String::new(), format!("[other]\n{target}")] {
        let order = order("issue", "", &format!("{target}{other}"));
        crate::run_order(&order, &outputs).await.unwrap();
        for path in [&json, &html] {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains("issue") && !text.contains(TOKEN) && !text.contains(MADE), "{text}");
        }
    }
    assert!(double.count_requests("POST /v1/auth/token/create") > 1);
    // The error for a rejected token does not contain it either.
    let mut order = order("issue", "", &target);
    order.target.token = format!("{TOKEN}-wrong");
    let refused = crate::run_order(&order, &Outputs::default()).await.err().unwrap();
    assert!(refused.contains("403") && !refused.contains(TOKEN), "{refused}");
}

#[tokio::test]
async fn ramp_starts_no_connection_after_the_run() {
    let double = Double::start(Shape::default());
    let pace = Pace { rate: None, ramp: Duration::from_secs(60) };
    let figures = health(&double, 4, &RunLimits { pace, ..bounds(None, u64::MAX, 300) }).await;
    assert!(figures.elapsed < Duration::from_secs(5), "{:?}", figures.elapsed);
    assert!(figures.classes[0].count() > 0 && figures.classes[0].errors.is_empty());
}

#[tokio::test]
async fn ramp_starts_connections_one_after_the_other() {
    let double = Double::start(Shape { delay: |_| Duration::from_millis(20), ..Shape::default() });
    let pace = Pace { rate: None, ramp: Duration::from_millis(800) };
    let ramp = RunLimits { pace, ..bounds(None, u64::MAX, 800) };
    // A busy machine may delay one of the two runs: one of three attempts must show the ramp.
    let mut shares = Vec::new();
    for _ in 0..3 {
        let with = health(&double, 8, &ramp).await;
        let without = health(&double, 8, &bounds(None, u64::MAX, 800)).await;
        let share = with.classes[0].count() as f64 / without.classes[0].count() as f64;
        shares.push(share);
        if (0.3..0.8).contains(&share) {
            return;
        }
    }
    panic!("share of the requests that a ramp leaves: {shares:?}");
}

#[test]
fn unsupported_comparison_scenarios_are_rejected() {
    assert!(order::can_be_planned(Scenario::Revoke).is_ok());
    for scenario in [Scenario::Projects, Scenario::Crl, Scenario::Ocsp, Scenario::Preload] {
        let cause = order::can_be_planned(scenario).err().unwrap();
        assert!(cause.starts_with("scenario: must be one of issue,") && cause.ends_with(&scenario.name()), "{cause}");
    }
}

/// Runs a command and returns its output and notes. It is interrupted after 20 requests that contain `stop_at`.
async fn run_supervised<T>(
    double: &Arc<Double>,
    stop_at: Option<&'static str>,
    command: impl Future<Output = T>,
) -> (T, CommandNotes) {
    let (stop, stopped) = watch::channel(false);
    let watcher = stop_at.map(|part| {
        let (double, before) = (Arc::clone(double), double.count_requests_containing(part));
        std::thread::spawn(move || {
            while double.count_requests_containing(part) < before + 20 && !stop.is_closed() {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.send_replace(true);
        })
    });
    let ended = run_context::scope(stopped, command).await;
    if let Some(watcher) = watcher {
        watcher.join().unwrap();
    }
    ended
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[tokio::test]
async fn existing_mounts_and_roles_are_rejected_and_unchanged() {
    let double = Double::start(Shape { ready: vec!["pki"], ..Shape::default() });
    let before = double.configured();
    for scenario in ["issue", "sign", "revoke", "mixed", "crl-get", "ocsp-get"] {
        for (role, refusal) in [
            (Some("web"), "signet: role: the role web exists already; use --prepared to use it"),
            (Some("else"), "signet: mount: the mount pki exists already; use --prepared to use it"),
            (None, "signet: mount: the mount pki exists already; use --prepared to use it"),
        ] {
            let order = order(scenario, "", &format!("addr = \"{}\"\nmount = \"pki\"", double.addr));
            let given = Target { token: "root".to_owned(), role: role.map(str::to_owned), ..order.target.clone() };
            let refused = run(&order, &given).await.err().unwrap();
            assert!(refused.starts_with(refusal), "{scenario}: {refused}");
        }
    }
    assert_eq!((double.configured(), double.count_requests("POST"), double.count_requests("DELETE")), (before, 0, 0));
}

#[tokio::test]
async fn prepared_mount_is_not_reconfigured_even_while_it_is_filled() {
    let double = Double::start(Shape { ready: vec!["pki"], ..Shape::default() });
    let before = double.configured();
    let prepared = "mount = \"pki\"\nrole = \"web\"\nprepared = true";
    let mut order = order("revoke", "preload = 30\nrevoked = 10", &format!("addr = \"{}\"\n{prepared}", double.addr));
    order.target.token = "root".to_owned();
    crate::run_order(&order, &Outputs::default()).await.unwrap();
    assert_eq!((double.configured(), double.stock("pki").1), (before, 50));
    assert_eq!(double.count_requests_containing("config/crl"), 0);
}

#[tokio::test]
async fn objects_of_a_run_are_removed_after_success_and_failure() {
    for expired in [false, true] {
        let double = Arc::new(Double::start(Shape { ready: vec!["pki"], expired, ..Shape::default() }));
        let before = double.configured();
        for scenario in ["issue", "sign", "mixed", "revoke", "crl-get", "login", "health"] {
            let mut order = order(scenario, "", &format!("addr = \"{}\"", double.addr));
            order.target.token = "root".to_owned();
            let outcome = async { run(&order, &order.target).await?.outcome() };
            let (result, notes) = run_supervised(&double, None, outcome).await;
            assert_eq!(result.is_err(), expired && scenario == "revoke", "{scenario}: {result:?}");
            assert_eq!((double.configured(), notes.left.len()), (before.clone(), 0), "{scenario}");
        }
        let login = format!("signet-load login --requests 20 --clients 2 --quiet --token root --addr {}", double.addr);
        let cli = Cli::try_parse_from(login.split(' ')).unwrap();
        // A debug build may exceed the limit of a login.
        let _ = login::run(&cli.args).await;
        assert!(double.count_requests_containing("/login") >= 20);
        assert_eq!(double.configured(), before);
    }
}

#[tokio::test]
async fn interrupted_run_reports_its_figures_and_removes_its_objects() {
    let delay = |_| Duration::from_millis(2);
    let double = Arc::new(Double::start(Shape { ready: vec!["pki"], delay, ..Shape::default() }));
    let before = double.configured();
    let folder = tempfile::tempdir().unwrap();
    let outputs = Outputs { json: Some(folder.path().join("out.json")), ..Outputs::default() };
    for more in ["rate = 50", "", "rounds = 3"] {
        let other = format!("[other]\naddr = \"{}\"\n", double.addr);
        let other = if more.starts_with("rounds") { other } else { String::new() };
        let plan = format!(
            "scenario = \"issue\"\nclients = 4\nseconds = 600\n{more}\n[target]\naddr = \"{}\"\n{other}",
            double.addr
        );
        let mut order = order::read(&plan, false).unwrap();
        order.plan.quiet = true;
        order.target.token = "root".to_owned();
        order.other.iter_mut().for_each(|other| "root".clone_into(&mut other.token));
        let (result, notes) = run_supervised(&double, Some("/issue/"), crate::run_order(&order, &outputs)).await;
        assert!(result.is_err_and(|cause| cause.contains(INTERRUPTED)), "{more}");
        assert_eq!((double.configured(), notes.left.len()), (before.clone(), 0), "{more}");
        let json = read_json(outputs.json.as_ref().unwrap());
        let figures = if order.other.is_some() { &json["runs"][0]["figures"] } else { &json };
        assert_eq!(figures["interrupted"], true, "{more}");
        assert!(figures["classes"][0]["errors"].as_object().is_some_and(|errors| errors.is_empty()), "{figures}");
        std::fs::remove_file(outputs.json.as_ref().unwrap()).unwrap();
    }
}

#[tokio::test]
async fn objects_that_cannot_be_removed_are_named() {
    let double = Arc::new(Double::start(Shape { keeps_mounts: true, ..Shape::default() }));
    let mut order = order("issue", "", &format!("addr = \"{}\"", double.addr));
    order.target.token = "root".to_owned();
    let (result, notes) = run_supervised(&double, None, crate::run_order(&order, &Outputs::default())).await;
    assert_eq!(result, Ok(()));
    let [left] = &notes.left[..] else { panic!("{:?}", notes.left) };
    assert!(left.starts_with("the mount signet-load-") && left.ends_with(": 403 Forbidden"), "{left}");
    let concluded = crate::conclude(Ok(()), false, &notes);
    assert_eq!(concluded, Err("some objects were not removed from the server".to_owned()));
}

#[tokio::test]
async fn kept_objects_stay_and_their_token_is_revoked() {
    let double = Arc::new(Double::start(Shape::default()));
    let mut order =
        order("issue", "", &format!("addr = \"{}\"\nkeep = true\nmount = \"ca\"\nrole = \"web\"", double.addr));
    order.target.token = "root".to_owned();
    let (result, notes) = run_supervised(&double, None, crate::run_order(&order, &Outputs::default())).await;
    assert_eq!(result, Ok(()));
    assert_eq!(notes.kept.len(), 3, "mount, role and policy: {:?}", notes.kept);
    let configured = double.configured();
    assert!(configured[0]["ca"][0]["web"].is_object() && configured[3] == json!(["root"]), "{configured}");
    // The role exists now: the same run is rejected, and succeeds with `prepared`.
    assert!(
        crate::run_order(&order, &Outputs::default()).await.is_err_and(|cause| cause.contains("the role web exists"))
    );
    (order.target.keep, order.target.prepared) = (false, true);
    assert_eq!(crate::run_order(&order, &Outputs::default()).await, Ok(()));
    assert_eq!(double.configured(), configured);
}

#[test]
fn command_that_was_interrupted_fails_even_when_it_finished() {
    let notes = CommandNotes::default();
    assert_eq!(crate::conclude(Ok(()), false, &notes), Ok(()));
    assert_eq!(crate::conclude(Ok(()), true, &notes), Err("interrupted".to_owned()));
    let cause = crate::conclude(Err("2 limits missed".to_owned()), true, &notes);
    assert_eq!(cause, Err("interrupted: 2 limits missed".to_owned()));
}

#[tokio::test]
async fn reports_name_the_server_its_address_and_its_version() {
    let double = Arc::new(Double::start(Shape::default()));
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("out.json");
    let html = folder.path().join("out.html");
    let outputs = Outputs { json: Some(json.clone()), html: Some(html.clone()), commit: None };
    let order = order("health", "", &format!("addr = \"{}\"", double.addr));
    run_supervised(&double, None, crate::run_order(&order, &outputs)).await.0.unwrap();
    let servers = json!([{ "name": "signet", "address": double.addr, "version": "9.8.7" }]);
    assert_eq!(read_json(&json)["environment"]["servers"], servers);
    let page = std::fs::read_to_string(html).unwrap();
    for text in [format!("{}, 9.8.7", double.addr), "load average before".to_owned(), "command".to_owned()] {
        assert!(page.contains(&text), "{text}");
    }
}

#[tokio::test]
async fn rate_search_is_bounded_and_reports_each_step() {
    let double = Arc::new(Double::start(Shape { delay: |_| Duration::from_millis(5), ..Shape::default() }));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.json");
    for (p99, is_found) in [("60s", true), ("1us", false)] {
        let line = format!(
            "signet-load issue --find-rate --p99 {p99} --seconds 3 --clients 4 --quiet --token root --addr {} --json {}",
            double.addr,
            file.display()
        );
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        let (result, notes) = run_supervised(&double, None, find_rate::run(&cli.args)).await;
        let search = &read_json(&file)["find_rate"];
        let steps = search["steps"].as_array().unwrap();
        assert!((2..=12).contains(&steps.len()), "{steps:?}");
        assert!(steps[0]["rate"].is_null() && steps[1]["rate"].as_f64().unwrap() > 0.0, "{steps:?}");
        let highest = steps[1..].iter().filter(|step| step["held"] == true).filter_map(|step| step["rate"].as_f64());
        assert_eq!(search["requests_per_second"].as_f64(), highest.reduce(f64::max), "{search}");
        assert_eq!((result.is_ok(), notes.left.len()), (is_found, 0), "{search}");
    }
    assert_eq!(double.configured()[0], json!({}));
}

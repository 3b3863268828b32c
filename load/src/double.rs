//! A server in Vault's shape for the tests, on a socket of its own: mounts, a root, roles, policies, tokens, `issue`,
//! `sign`, `revoke`, lists and CRLs, as little of each as a client of them can tell. It is strict about what it is asked: the
//! header of the token, the mount and the role have to be right. Serials are stored with hyphens and shown with colons.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// How the tokens begin that are made.
pub(crate) const MADE: &str = "s.made-for-the-run-";

/// What the double is like.
#[derive(Clone)]
pub(crate) struct Shape {
    /// The header that it takes tokens in.
    pub(crate) header: &'static str,
    /// The token that may do everything.
    pub(crate) token: &'static str,
    /// Mounts with a root and the role `web` that are there already.
    pub(crate) ready: Vec<&'static str>,
    /// How long an answer takes to a request of a number.
    pub(crate) delay: fn(u64) -> Duration,
    /// Lists have pages: `after` is held against what is stored, octet by octet. Else they are given whole.
    pub(crate) pages: bool,
    /// All certificates have expired: whoever revokes one is answered with success and a warning.
    pub(crate) expired: bool,
    /// What is issued is not stored.
    pub(crate) forgets: bool,
    /// The first certificate is that of an issuer.
    pub(crate) issuer: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            header: "X-Vault-Token",
            token: "root",
            ready: Vec::new(),
            delay: |_| Duration::ZERO,
            pages: false,
            expired: false,
            forgets: false,
            issuer: false,
        }
    }
}

/// A mount.
#[derive(Default)]
struct Mount {
    root: bool,
    roles: BTreeSet<String>,
    certificates: BTreeSet<String>,
    revoked: BTreeSet<String>,
    auto_rebuild: bool,
}

#[derive(Default)]
struct State {
    mounts: BTreeMap<String, Mount>,
    tokens: BTreeSet<String>,
    /// Method and path of every request, in order.
    asked: Vec<String>,
}

/// The running double; it ends with the process of the tests.
pub(crate) struct Double {
    pub(crate) addr: String,
    state: Arc<Mutex<State>>,
}

impl Double {
    pub(crate) fn start(shape: Shape) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = format!("http://{}", listener.local_addr().unwrap());
        let mut state = State { tokens: [shape.token.to_owned()].into(), ..State::default() };
        for name in &shape.ready {
            let mount = Mount { root: true, roles: ["web".to_owned()].into(), ..Mount::default() };
            state.mounts.insert((*name).to_owned(), mount);
        }
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, shape) = (Arc::clone(&shared), shape.clone());
                std::thread::spawn(move || serve(stream, &state, &shape));
            }
        });
        Self { addr, state }
    }

    /// How many requests began so.
    pub(crate) fn asked(&self, begin: &str) -> usize {
        self.state.lock().unwrap().asked.iter().filter(|asked| asked.starts_with(begin)).count()
    }

    /// Certificates and revoked ones of a mount.
    pub(crate) fn stock(&self, mount: &str) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        state.mounts.get(mount).map_or((0, 0), |mount| (mount.certificates.len(), mount.revoked.len()))
    }

    /// Gives a mount so many certificates, the first of which are revoked.
    pub(crate) fn hold(&self, mount: &str, certificates: usize, revoked: usize) {
        let mut state = self.state.lock().unwrap();
        let mount = state.mounts.entry(mount.to_owned()).or_default();
        mount.root = true;
        mount.certificates.extend((0..certificates).map(|n| serial(1 << 20 | n)));
        mount.revoked.extend((0..revoked).map(|n| serial(1 << 20 | n)));
    }

    /// Whether a mount builds its CRLs by the timer.
    pub(crate) fn auto_rebuild(&self, mount: &str) -> bool {
        self.state.lock().unwrap().mounts[mount].auto_rebuild
    }
}

/// A serial number as it is stored.
fn serial(number: usize) -> String {
    let [.., a, b, c] = number.to_be_bytes();
    format!("17-{a:02x}-{b:02x}-{c:02x}")
}

fn serve(stream: TcpStream, state: &Mutex<State>, shape: &Shape) {
    let mut out = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if lines.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        let (mut length, mut token) = (0, String::new());
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            match name {
                name if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().unwrap(),
                name if name.eq_ignore_ascii_case(shape.header) => value.trim().clone_into(&mut token),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body).unwrap();
        let mut parts = first.split(' ');
        let (method, path) = (parts.next().unwrap().to_owned(), parts.next().unwrap().to_owned());
        let (number, (status, answer)) = {
            let mut state = state.lock().unwrap();
            state.asked.push(format!("{method} {path}"));
            let body = serde_json::from_slice(&body).unwrap_or_default();
            (state.asked.len() as u64 - 1, answer(&mut state, shape, &method, &path, &token, &body))
        };
        std::thread::sleep((shape.delay)(number));
        let head = format!("HTTP/1.1 {status} Any\r\nContent-Length: {}\r\n\r\n", answer.len());
        if out.write_all(&[head.as_bytes(), &answer].concat()).is_err() {
            return;
        }
    }
}

fn answer(state: &mut State, shape: &Shape, method: &str, path: &str, token: &str, body: &Value) -> (u16, Vec<u8>) {
    let json = |status, value: Value| (status, value.to_string().into_bytes());
    let refused = |status, cause: &str| json(status, json!({ "errors": [cause] }));
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let Some(path) = path.strip_prefix("/v1/") else { return refused(404, "no such path") };
    let mount = state.mounts.keys().find(|name| path.starts_with(&format!("{name}/"))).cloned();
    let of_mount = mount.as_deref().map(|name| &path[name.len() + 1..]);
    // Health, CRLs and CA certificates are for everybody.
    match (path, of_mount) {
        ("sys/health", _) => return json(200, json!({ "initialized": true })),
        (_, Some("crl")) => return (200, vec![0x30, 0]),
        (_, Some("ca")) if !state.mounts[mount.as_deref().unwrap()].root => return (204, Vec::new()),
        (_, Some("ca")) => return (200, vec![0x30, 0]),
        _ if !state.tokens.contains(token) => return refused(403, "permission denied"),
        _ => {}
    }
    let serial = serial(state.asked.len());
    match (method, &path.split('/').collect::<Vec<_>>()[..]) {
        ("GET", ["sys", "mounts"]) => {
            let mounts: BTreeMap<String, Value> =
                state.mounts.keys().map(|name| (format!("{name}/"), json!({ "type": "pki" }))).collect();
            return json(200, json!({ "data": mounts }));
        }
        ("POST", ["sys", "mounts", name @ ..]) => {
            state.mounts.insert(name.join("/"), Mount::default());
            return (204, Vec::new());
        }
        ("POST", ["sys", "policies", "acl", _]) => return (204, Vec::new()),
        ("POST", ["auth", "token", "create"]) => {
            let token = format!("{MADE}{}", state.tokens.len());
            state.tokens.insert(token.clone());
            return json(200, json!({ "auth": { "client_token": token } }));
        }
        _ => {}
    }
    let Some((mount, rest)) = mount.and_then(|name| Some((state.mounts.get_mut(&name)?, of_mount?))) else {
        return refused(404, "no handler for route");
    };
    let certified = |mount: &mut Mount| {
        if !shape.forgets {
            mount.certificates.insert(serial.clone());
        }
        let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        json(200, json!({ "data": { "certificate": certificate, "serial_number": serial.replace('-', ":") } }))
    };
    let list = |serials: &BTreeSet<String>| {
        let asked = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let (after, limit) = (asked("after").unwrap_or_default(), asked("limit").and_then(|text| text.parse().ok()));
        // Without pages whoever asks for more gets the same again.
        let (after, limit) = if shape.pages { (after, limit.unwrap_or(usize::MAX)) } else { ("", usize::MAX) };
        let page = serials.iter().filter(|serial| serial.as_str() > after).take(limit);
        let keys: Vec<String> = page.map(|serial| serial.replace('-', ":")).collect();
        if keys.is_empty() { refused(404, "nothing") } else { json(200, json!({ "data": { "keys": keys } })) }
    };
    match (method, &rest.split('/').collect::<Vec<_>>()[..]) {
        ("POST", ["root", "generate", "internal"]) => {
            mount.root = true;
            certified(mount)
        }
        ("POST", ["roles", role]) => {
            mount.roles.insert((*role).to_owned());
            (204, Vec::new())
        }
        ("POST", ["issue" | "sign", role]) if !mount.roles.contains(*role) => refused(400, "unknown role"),
        ("POST", ["issue", _]) if mount.root => certified(mount),
        ("POST", ["sign", _]) if mount.root && body["csr"].is_string() => certified(mount),
        ("POST", ["revoke"]) => {
            let serial = body["serial_number"].as_str().unwrap_or_default().replace(':', "-");
            if shape.expired {
                return json(200, json!({ "data": null, "warnings": ["certificate already expired"] }));
            }
            if !mount.certificates.contains(&serial) || !mount.revoked.insert(serial) {
                return refused(400, "no such certificate, or revoked");
            }
            json(200, json!({ "data": { "revocation_time": 1 } }))
        }
        ("GET", ["config", "crl"]) => json(200, json!({ "data": { "auto_rebuild": mount.auto_rebuild } })),
        ("POST", ["config", "crl"]) => {
            mount.auto_rebuild = body["auto_rebuild"].as_bool().unwrap_or(false);
            (204, Vec::new())
        }
        ("LIST", ["certs"]) => list(&mount.certificates),
        ("LIST", ["certs", "revoked"]) => list(&mount.revoked),
        ("LIST", ["issuers"]) if shape.issuer => {
            let serial = mount.certificates.first().map(|serial| serial.replace('-', ":"));
            json(200, json!({ "data": { "keys": ["i"], "key_info": { "i": { "serial_number": serial } } } }))
        }
        ("LIST", ["issuers"]) => refused(404, "nothing"),
        _ => refused(404, "unsupported path"),
    }
}

mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Scenario;
    use crate::drive::{Bounds, Class, Figures, Place, Watched, drive};
    use crate::order::{self, Order};
    use crate::pace::Pace;
    use crate::preload::{self, Stock};
    use crate::report::Outputs;
    use crate::scenario;
    use crate::target::Target;

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
        let open = target.open().await?;
        scenario::run(&target.plan(&order.plan), &open.place(), open.watched).await
    }

    fn done(figures: &Figures) -> u64 {
        assert!(!figures.failed(), "{:?}", figures.classes.iter().map(|class| &class.errors).collect::<Vec<_>>());
        figures.classes[0].count()
    }

    #[tokio::test]
    async fn every_scenario_that_makes_sense_runs_against_a_server_in_vaults_shape() {
        let double = Double::start(Shape::default());
        let addr = format!("addr = \"{}\"", double.addr);
        let with_token = |order: Order| Target { token: "root".to_owned(), ..order.target };
        for scenario in ["issue", "sign", "revoke", "crl-get", "health"] {
            let order = order(scenario, "", &addr);
            assert_eq!(done(&run(&order, &with_token(order.clone())).await.unwrap()), 40, "{scenario}");
        }
        // The mount and its root were made once, and forty were issued for each that needed some.
        assert_eq!((double.asked("POST /v1/sys/mounts/pki"), double.asked("POST /v1/pki/root/generate")), (1, 1));
        assert_eq!(double.asked("POST /v1/pki/issue/load"), 40);
        assert_eq!(double.asked("POST /v1/pki/sign/load"), 40);
        assert_eq!((double.asked("POST /v1/pki/revoke"), double.stock("pki").1), (40, 40));
    }

    #[tokio::test]
    async fn the_header_the_mount_and_the_role_are_those_that_were_given() {
        let shape = Shape { header: "X-Own-Token", token: "t", ready: vec!["ca/int"], ..Shape::default() };
        let double = Double::start(shape);
        let whole = format!(
            "addr = \"{}\"\ntoken_header = \"x-own-token\"\nmount = \"ca/int\"\nrole = \"web\"\nprepared = true",
            double.addr
        );
        let order = order("issue", "", &whole);
        let given = Target { token: "t".to_owned(), ..order.target.clone() };
        assert_eq!(done(&run(&order, &given).await.unwrap()), 40);
        assert_eq!(double.asked("POST /v1/ca/int/issue/web"), 40);
        assert_eq!(double.asked("POST"), 40, "nothing else is made");
        // The token in another header is none, and another role is not there.
        let other = Target { token_header: None, ..given.clone() };
        assert_eq!(run(&order, &other).await.unwrap().classes[0].errors["403"], 40);
        let other = Target { role: Some("else".to_owned()), ..given.clone() };
        assert_eq!(run(&order, &other).await.unwrap().classes[0].errors["400"], 40);
        let refused = run(&order, &Target { token: "no".to_owned(), prepared: false, ..given }).await.err().unwrap();
        assert_eq!(refused, "signet: sys/mounts: 403 Forbidden; prepared says that mount, root and role exist");
    }

    #[tokio::test]
    async fn a_store_is_filled_over_lists_without_pages() {
        let double = Double::start(Shape::default());
        let open = target(&double).open().await.unwrap();
        let wanted = Stock { certificates: 60, revoked: 20 };
        preload::auto_rebuild(&mut open.place().connect().await.unwrap(), "pki", false).await.unwrap();
        assert_eq!(preload::fill(&open.place(), wanted, None, true).await.unwrap(), wanted);
        assert_eq!((double.stock("pki"), double.auto_rebuild("pki")), ((60, 20), false));
        // Filled once, it stays; and what there is to revoke is not issued again.
        assert_eq!(preload::fill(&open.place(), wanted, None, true).await.unwrap(), wanted);
        assert_eq!(preload::to_revoke(&open.place(), 30, None, true).await.unwrap().0.len(), 30);
        assert_eq!(double.stock("pki").0, 60);
        let (bodies, issued) = preload::to_revoke(&open.place(), 50, None, true).await.unwrap();
        assert_eq!((bodies.len(), issued), (50, 10));
        assert_eq!(double.stock("pki").0, 70);
    }

    #[tokio::test]
    async fn two_servers_take_turns_and_the_ratios_and_runs_are_written() {
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
        order::run(&order, &outputs).await.unwrap();
        assert_eq!((fast.asked("GET /v1/sys/health"), slow.asked("GET /v1/sys/health")), (80, 80));
        let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
        let turns: Vec<&str> =
            json["runs"].as_array().unwrap().iter().filter_map(|run| run["server"].as_str()).collect();
        assert_eq!(turns, ["signet", "other", "signet", "other"]);
        assert_eq!((&json["ratios"][0]["what"], &json["ratios"][1]["what"]), (&json!("rate"), &json!("p50")));
        assert!(json["ratios"][0]["ratio"].as_f64().unwrap() > 1.0, "{}", json["ratios"]);
        assert!(json["ratios"][1]["ratio"].as_f64().unwrap() < 1.0, "{}", json["ratios"]);
        // Both are processes of this machine, found by their ports: here the tests themselves.
        assert_eq!(json["ratios"][4]["what"], "CPU per request");
        assert_eq!(json["commit"], "abc123");
        let here = format!("(pid {})", std::process::id());
        assert_eq!(json["servers"][1]["store"], "a store of its own");
        assert!(json["servers"][0]["process"].as_str().unwrap().ends_with(&here), "{}", json["servers"]);
        assert!(json["environment"]["cores"].is_string());
        let html = std::fs::read_to_string(folder.path().join("out.html")).unwrap();
        assert!(html.contains("signet, round 2") && html.contains("other, round 2") && html.contains("abc123"));
        assert!(html.contains("a store of its own") && html.contains(&here));
        order.other.as_mut().unwrap().name = "signet".to_owned();
        assert!(order::run(&order, &Outputs::default()).await.is_err_and(|cause| cause.starts_with("name: ")));
    }

    #[tokio::test]
    async fn two_servers_at_once_are_asked_side_by_side() {
        static OTHER_ASKED: AtomicBool = AtomicBool::new(false);
        static TOGETHER: AtomicBool = AtomicBool::new(false);
        let slow = |_| match OTHER_ASKED.load(Ordering::SeqCst) {
            true => (TOGETHER.store(true, Ordering::SeqCst), Duration::ZERO).1,
            false => Duration::from_millis(50),
        };
        let quick = |_| (OTHER_ASKED.store(true, Ordering::SeqCst), Duration::ZERO).1;
        let (first, other) = (
            Double::start(Shape { delay: slow, ..Shape::default() }),
            Double::start(Shape { delay: quick, ..Shape::default() }),
        );
        let servers = format!("addr = \"{}\"\n[other]\naddr = \"{}\"\n", first.addr, other.addr);
        let mut order = order("health", "rounds = 1\nat_once = true", &servers);
        order.target.token = "root".to_owned();
        order.other.as_mut().unwrap().token = "root".to_owned();
        let folder = tempfile::tempdir().unwrap();
        let outputs = Outputs { json: Some(folder.path().join("out.json")), ..Outputs::default() };
        order::run(&order, &outputs).await.unwrap();
        assert!(TOGETHER.load(Ordering::SeqCst), "the first one was done before the other was asked");
        let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
        assert_eq!((&json["at_once"], &json["runs"][0]["server"]), (&json!(true), &json!("signet")));
        assert_eq!((first.asked("GET /v1/sys/health"), other.asked("GET /v1/sys/health")), (40, 40));
    }

    /// Whether nobody listens there any more, soon: somebody else may have been given the port for a moment.
    fn is_left(port: u16) -> bool {
        (0..200).any(|_| {
            let left = TcpStream::connect(("127.0.0.1", port)).is_err();
            std::thread::sleep(Duration::from_millis(if left { 0 } else { 50 }));
            left
        })
    }

    #[tokio::test]
    async fn a_command_line_starts_the_server_and_one_that_fails_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        // A port that nobody has at this moment.
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
            command: Some(format!("python3 {} {port}", file.display())),
            addr: format!("http://127.0.0.1:{port}"),
            data_dir: folder.path().to_owned(),
            prepared: true,
            role: Some("any".to_owned()),
            ..Target::default()
        };
        let order = order("health", "", &format!("addr = \"{}\"", target.addr));
        let open = target.open().await.unwrap();
        let figures = scenario::run(&target.plan(&order.plan), &open.place(), open.watched).await.unwrap();
        assert_eq!(done(&figures), 40);
        assert!(figures.server_mib.is_some_and(|mib| mib > 1.0) && figures.cpu.server.is_some());
        let again = target.open().await.err().unwrap();
        assert_eq!(again, format!("server: somebody listens at 127.0.0.1:{port} already"));
        drop(open);
        assert!(is_left(port), "it was told to end");
        // A shell's line of more than one word: the server is its child, and ends with it.
        let command = format!("cd {} && A=1 python3 server.py {port}; true", folder.path().display());
        let below = Target { command: Some(command), ..target.clone() };
        let open = below.open().await.unwrap();
        assert!(open.process().is_some_and(|process| process.starts_with("python3")), "{:?}", open.process());
        drop(open);
        assert!(is_left(port), "it was told to end");
        let wrong = Target { command: Some("echo no such thing; exit 3".to_owned()), ..target };
        let cause = wrong.open().await.err().unwrap();
        assert!(cause.contains("has ended") && cause.contains("no such thing"), "{cause}");
    }

    async fn health(double: &Double, clients: usize, bounds: &Bounds) -> Figures {
        let peer = target(double).peer().unwrap();
        let place = Place { peer: &peer, token: "", mount: "pki" };
        let class = Class { clients, path: "/v1/sys/health".to_owned(), ..Class::default() };
        drive(&place, vec![class], bounds, Watched::default()).await.unwrap()
    }

    fn bounds(rate: Option<f64>, requests: u64, millis: u64) -> Bounds {
        let pace = Pace { rate, ramp: Duration::ZERO };
        Bounds { requests, time: Duration::from_millis(millis), pace, quiet: true }
    }

    /// One answer takes 400 ms, all others none: at 100 a second some forty requests come meanwhile.
    fn hesitates(number: u64) -> Duration {
        Duration::from_millis(if number == 20 { 400 } else { 0 })
    }

    #[tokio::test]
    async fn at_a_rate_who_would_have_come_while_the_server_hesitates_has_waited() {
        let double = Double::start(Shape { delay: hesitates, ..Shape::default() });
        let figures = health(&double, 1, &bounds(Some(100.0), 150, 10_000)).await;
        let class = &figures.classes[0];
        assert_eq!((class.count(), figures.unsent), (150, 0));
        // Of 150, some 20 waited for more than half of the pause, and 40 at all.
        assert!(class.percentile(90.0) > 150.0, "{}", class.percentile(90.0));
        assert!(class.percentile(50.0) < 50.0, "{}", class.percentile(50.0));
        assert!(figures.elapsed > Duration::from_millis(1480), "{:?}", figures.elapsed);
        // Who waits for the last answer before asking again sees one slow answer.
        let double = Double::start(Shape { delay: hesitates, ..Shape::default() });
        let figures = health(&double, 1, &bounds(None, 150, 10_000)).await;
        assert!(figures.classes[0].percentile(90.0) < 100.0 && figures.classes[0].percentile(100.0) > 399.0);
    }

    #[tokio::test]
    async fn what_cannot_be_sent_in_time_is_counted() {
        let double = Double::start(Shape { delay: |_| Duration::from_millis(50), ..Shape::default() });
        let figures = health(&double, 2, &bounds(Some(200.0), u64::MAX, 1000)).await;
        let done = figures.classes[0].count();
        // 200 are due, and two connections do forty at most; one each may be under way at the end.
        assert!((20..=42).contains(&done), "{done}");
        assert_eq!(done + figures.unsent, 200);
        assert!(figures.classes[0].percentile(100.0) > 500.0, "those that were sent have waited");
        let slots = &figures.classes[0].timeline.slots;
        assert_eq!(slots.iter().map(|slot| slot.latencies.count()).sum::<u64>(), done);
    }

    #[tokio::test]
    async fn a_comparison_at_a_rate_that_one_cannot_keep_is_an_error_after_it_is_written() {
        let slow = Double::start(Shape { delay: |_| Duration::from_millis(50), ..Shape::default() });
        let fast = Double::start(Shape::default());
        let folder = tempfile::tempdir().unwrap();
        let outputs = Outputs { json: Some(folder.path().join("out.json")), ..Outputs::default() };
        let (first, other) = (&fast.addr, &slow.addr);
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
        let refused = order::run(&order, &outputs).await.err().unwrap();
        assert!(refused.contains("other, round 1: the rate was not kept: "), "{refused}");
        let json: Value = serde_json::from_slice(&std::fs::read(folder.path().join("out.json")).unwrap()).unwrap();
        assert!(json["runs"][1]["figures"]["due_and_not_sent"].as_u64().unwrap() > 50, "{}", json["runs"][1]);
    }

    #[tokio::test]
    async fn a_token_is_in_no_report() {
        const TOKEN: &str = "hvs.nobody-else-is-to-see-this";
        let double = Double::start(Shape { token: TOKEN, ..Shape::default() });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, TOKEN).unwrap();
        let (json, html) = (folder.path().join("out.json"), folder.path().join("out.html"));
        let outputs = Outputs { json: Some(json.clone()), html: Some(html.clone()), commit: None };
        let target = format!("addr = \"{}\"\ntoken_file = \"{}\"\n", double.addr, file.display());
        for other in [String::new(), format!("[other]\n{target}")] {
            let order = order("issue", "", &format!("{target}{other}"));
            order::run(&order, &outputs).await.unwrap();
            for path in [&json, &html] {
                let text = std::fs::read_to_string(path).unwrap();
                assert!(text.contains("issue") && !text.contains(TOKEN) && !text.contains(MADE), "{text}");
            }
        }
        assert!(double.asked("POST /v1/auth/token/create") > 1);
        // Nor in what is said when the server refuses it.
        let mut order = order("issue", "", &target);
        order.target.token = format!("{TOKEN}-wrong");
        let refused = order::run(&order, &Outputs::default()).await.err().unwrap();
        assert!(refused.contains("403") && !refused.contains(TOKEN), "{refused}");
    }

    #[tokio::test]
    async fn no_connection_begins_after_the_end_of_its_run() {
        let double = Double::start(Shape::default());
        let pace = Pace { rate: None, ramp: Duration::from_secs(60) };
        let figures = health(&double, 4, &Bounds { pace, ..bounds(None, u64::MAX, 300) }).await;
        assert!(figures.elapsed < Duration::from_secs(5), "{:?}", figures.elapsed);
        assert!(figures.classes[0].count() > 0 && figures.classes[0].errors.is_empty());
    }

    #[tokio::test]
    async fn connections_begin_one_after_the_other_in_a_ramp() {
        let double = Double::start(Shape { delay: |_| Duration::from_millis(20), ..Shape::default() });
        let pace = Pace { rate: None, ramp: Duration::from_millis(800) };
        let ramp = Bounds { pace, ..bounds(None, u64::MAX, 800) };
        let (with, without) = (health(&double, 8, &ramp).await, health(&double, 8, &bounds(None, u64::MAX, 800)).await);
        let share = with.classes[0].count() as f64 / without.classes[0].count() as f64;
        assert!((0.3..0.8).contains(&share), "{share}");
    }

    #[test]
    fn what_a_comparison_cannot_do_is_refused() {
        assert!(order::can_be_planned(Scenario::Revoke).is_ok());
        for scenario in [Scenario::Projects, Scenario::Crl, Scenario::Ocsp, Scenario::Preload] {
            let cause = order::can_be_planned(scenario).err().unwrap();
            assert!(
                cause.starts_with("scenario: must be one of issue,") && cause.ends_with(&scenario.name()),
                "{cause}"
            );
        }
    }
}

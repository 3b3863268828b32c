//! A test server with the Vault API on its own socket: mounts, roots, roles, policies, tokens, authentication methods,
//! `issue`, `sign`, `revoke`, lists and CRLs. It validates token header, mount and role. Serial numbers are stored with
//! hyphens and returned with colons.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Prefix of the tokens that it creates.
pub(crate) const MADE: &str = "s.made-for-the-run-";

/// Behavior of the test server.
#[derive(Clone)]
pub(crate) struct Shape {
    /// Header of the tokens.
    pub(crate) header: &'static str,
    /// Token with all rights.
    pub(crate) token: &'static str,
    /// Mounts that exist at the start, with a root and the role `web`.
    pub(crate) ready: Vec<&'static str>,
    /// Delay of the response to the request with this number.
    pub(crate) delay: fn(u64) -> Duration,
    /// `true`: lists have pages, and `after` is compared byte by byte with the stored serials. `false`: lists are
    /// returned whole.
    pub(crate) pages: bool,
    /// `true`: all certificates have expired; a revocation returns success with a warning.
    pub(crate) expired: bool,
    /// `true`: issued certificates are not stored.
    pub(crate) forgets: bool,
    /// `true`: the first certificate is that of an issuer.
    pub(crate) issuer: bool,
    /// `true`: mounts cannot be removed.
    pub(crate) keeps_mounts: bool,
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
            keeps_mounts: false,
        }
    }
}

#[derive(Default)]
struct Mount {
    root: bool,
    roles: BTreeMap<String, Value>,
    certificates: BTreeSet<String>,
    revoked: BTreeSet<String>,
    auto_rebuild: bool,
}

#[derive(Default)]
struct State {
    mounts: BTreeMap<String, Mount>,
    policies: BTreeMap<String, Value>,
    methods: BTreeSet<String>,
    tokens: BTreeSet<String>,
    /// Method and path of every request, in order.
    requests: Vec<String>,
}

/// The running test server; it ends with the test process.
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
            let mount =
                Mount { root: true, roles: [("web".to_owned(), json!({ "max_ttl": 60 }))].into(), ..Mount::default() };
            state.mounts.insert((*name).to_owned(), mount);
        }
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                let shape = shape.clone();
                std::thread::spawn(move || serve(stream, &state, &shape));
            }
        });
        Self { addr, state }
    }

    /// Returns all configuration: mounts with their roles and CRL settings, policies, methods and tokens.
    pub(crate) fn configured(&self) -> Value {
        let state = self.state.lock().unwrap();
        let mount = |(name, of): (&String, &Mount)| (name.clone(), json!([of.roles, of.auto_rebuild]));
        let mounts: BTreeMap<String, Value> = state.mounts.iter().map(mount).collect();
        json!([mounts, state.policies, state.methods, state.tokens])
    }

    /// Counts the requests whose method and path start with `begin`.
    pub(crate) fn count_requests(&self, begin: &str) -> usize {
        self.state.lock().unwrap().requests.iter().filter(|request| request.starts_with(begin)).count()
    }

    /// Counts the requests whose method and path contain `part`.
    pub(crate) fn count_requests_containing(&self, part: &str) -> usize {
        self.state.lock().unwrap().requests.iter().filter(|request| request.contains(part)).count()
    }

    /// Returns the numbers of certificates and of revoked certificates of a mount.
    pub(crate) fn stock(&self, mount: &str) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        state.mounts.get(mount).map_or((0, 0), |mount| (mount.certificates.len(), mount.revoked.len()))
    }

    /// Adds certificates to a mount and revokes the first of them.
    pub(crate) fn hold(&self, mount: &str, certificates: usize, revoked: usize) {
        let mut state = self.state.lock().unwrap();
        let mount = state.mounts.entry(mount.to_owned()).or_default();
        mount.root = true;
        mount.certificates.extend((0..certificates).map(|n| serial(1 << 20 | n)));
        mount.revoked.extend((0..revoked).map(|n| serial(1 << 20 | n)));
    }

    /// `true` if the mount builds its CRLs by the timer.
    pub(crate) fn auto_rebuild(&self, mount: &str) -> bool {
        self.state.lock().unwrap().mounts[mount].auto_rebuild
    }
}

/// Returns a serial number in its stored form.
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
        let mut length = 0;
        let mut token = String::new();
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
        let method = parts.next().unwrap().to_owned();
        let path = parts.next().unwrap().to_owned();
        let (number, (status, answer)) = {
            let mut state = state.lock().unwrap();
            state.requests.push(format!("{method} {path}"));
            let body = serde_json::from_slice(&body).unwrap_or_default();
            (state.requests.len() as u64 - 1, answer(&mut state, shape, &method, &path, &token, &body))
        };
        std::thread::sleep((shape.delay)(number));
        let head = format!("HTTP/1.1 {status} Any\r\nContent-Length: {}\r\n\r\n", answer.len());
        if out.write_all(&[head.as_bytes(), &answer].concat()).is_err() {
            return;
        }
    }
}

/// Returns the response to a change that was made.
fn done<T>(_change: T) -> (u16, Vec<u8>) {
    (204, Vec::new())
}

fn answer(state: &mut State, shape: &Shape, method: &str, path: &str, token: &str, body: &Value) -> (u16, Vec<u8>) {
    let json = |status, value: Value| (status, value.to_string().into_bytes());
    let refused = |status, cause: &str| json(status, json!({ "errors": [cause] }));
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let Some(path) = path.strip_prefix("/v1/") else { return refused(404, "no such path") };
    let mount = state.mounts.keys().find(|name| path.starts_with(&format!("{name}/"))).cloned();
    let of_mount = mount.as_deref().map(|name| &path[name.len() + 1..]);
    // Health, CRLs and CA certificates need no token.
    match (path, of_mount) {
        // Logins need no token, but the method must exist.
        (path, _) if path.ends_with("/login") => {}
        ("sys/health", _) => return json(200, json!({ "initialized": true, "version": "9.8.7" })),
        (_, Some("crl")) => return (200, vec![0x30, 0]),
        (_, Some("ca")) if !state.mounts[mount.as_deref().unwrap()].root => return (204, Vec::new()),
        (_, Some("ca")) => return (200, vec![0x30, 0]),
        _ if !state.tokens.contains(token) => return refused(403, "permission denied"),
        _ => {}
    }
    let serial = serial(state.requests.len());
    match (method, &path.split('/').collect::<Vec<_>>()[..]) {
        ("GET", ["sys", "mounts"]) => {
            let mounts: BTreeMap<String, Value> =
                state.mounts.keys().map(|name| (format!("{name}/"), json!({ "type": "pki" }))).collect();
            return json(200, json!({ "data": mounts }));
        }
        ("POST", ["sys", "mounts", name @ ..]) if state.mounts.contains_key(&name.join("/")) => {
            return refused(400, "path is already in use");
        }
        ("POST", ["sys", "mounts", name @ ..]) => return done(state.mounts.insert(name.join("/"), Mount::default())),
        ("DELETE", ["sys", "mounts", ..]) if shape.keeps_mounts => return refused(403, "permission denied"),
        ("DELETE", ["sys", "mounts", name @ ..]) => return done(state.mounts.remove(&name.join("/"))),
        ("POST", ["sys", "policies", "acl", name]) => {
            return done(state.policies.insert((*name).to_owned(), body.clone()));
        }
        ("GET", ["sys", "policies", "acl", name]) => {
            return state
                .policies
                .get(*name)
                .map_or_else(|| refused(404, "nothing"), |policy| json(200, policy.clone()));
        }
        ("DELETE", ["sys", "policies", "acl", name]) => return done(state.policies.remove(*name)),
        ("POST", ["sys", "auth", name]) => return done(state.methods.insert((*name).to_owned())),
        ("DELETE", ["sys", "auth", name]) => return done(state.methods.remove(*name)),
        ("POST", ["auth", method, "config"] | ["auth", method, "role", _]) if state.methods.contains(*method) => {
            return done(());
        }
        ("POST", ["auth", method, "login"]) if state.methods.contains(*method) => {
            return json(200, json!({ "auth": { "client_token": "of a login" } }));
        }
        ("POST", ["auth", "token", "create"]) => {
            let token = format!("{MADE}{}", state.requests.len());
            state.tokens.insert(token.clone());
            return json(200, json!({ "auth": { "client_token": token, "accessor": "a-1" } }));
        }
        ("POST", ["auth", "token", "revoke"]) => {
            return done(state.tokens.remove(body["token"].as_str().unwrap_or_default()));
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
        let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        let after = parameter("after").unwrap_or_default();
        let limit = parameter("limit").and_then(|text| text.parse().ok());
        // Without pages, a request for the next page returns the whole list again.
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
        ("POST", ["roles", role]) => done(mount.roles.insert((*role).to_owned(), body.clone())),
        ("GET", ["roles", role]) => {
            mount.roles.get(*role).map_or_else(|| refused(404, "nothing"), |role| json(200, role.clone()))
        }
        ("DELETE", ["roles", role]) => done(mount.roles.remove(*role)),
        ("POST", ["issue" | "sign", role]) if !mount.roles.contains_key(*role) => refused(400, "unknown role"),
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

//! The scenario `projects`: the projects API with a million projects and workspaces in one organization, with a p99
//! limit of 20 ms.
//!
//! SQL statements create the rows directly in the database, because the API would take an hour. They match the rows
//! that the API creates, including the counters. Later runs reuse them.

use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use crate::Args;
use crate::client::{Client, Wire};
use crate::drive::{Bounds, Class, Figures, Place, drive};
use crate::pace::Pace;
use crate::run_context::{self, is_interrupted};
use crate::server::Started;

/// Default number of projects, and of workspaces.
const MANY: u64 = 1_000_000;
/// Workspaces of the first project; the others have at most one.
const LARGE: u64 = 100_000;
/// Projects that are granted to the team [`READERS`].
const GRANTS: u64 = 1_000;
/// Default number of connections, and of requests per part.
pub(crate) const CLIENTS: usize = 16;
const REQUESTS: u64 = 20_000;
/// p99 limit in milliseconds.
const MAX_P99_MS: f64 = 20.0;
const VARIETY: u64 = 2_000;

/// Multiplier that scatters the names (Knuth's multiplicative hash).
const SCATTER: u64 = 2_654_435_761;

const ORGANIZATION: &str = "load";
/// Team whose lists depend on its grants.
const READERS: &str = "team-loadreaderloadX";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// An owner: the user of the server's root token.
    Owner,
    /// The team [`READERS`].
    Reader,
}

struct Tokens {
    owner: String,
    reader: String,
}

impl Tokens {
    /// Creates the tokens by the API, which also stores them in the server.
    async fn make(server: &Started) -> Result<Self, String> {
        let mut client = Client::connect_as(&server.peer, &server.token, Wire::Projects).await?;
        let account = client.send(Method::GET, "/api/v2/account/details", Bytes::new()).await?;
        let account: Value = serde_json::from_slice(&account.body).map_err(|e| format!("the account: {e}"))?;
        let user = account["data"]["id"].as_str().ok_or("projects: the root token has no account")?;
        let provisioner = server.place().provisioner;
        let (id, owner) = made(&mut client, &format!("/api/v2/users/{user}/authentication-tokens")).await?;
        let remove = |what: &str, path| provisioner.remove_later(what.to_owned(), Wire::Projects, path);
        remove("the token of the owner", format!("/api/v2/authentication-tokens/{id}"));
        let path = format!("/api/v2/teams/{READERS}/authentication-token");
        let (_, reader) = made(&mut client, &path).await?;
        remove("the token of the team", path);
        Ok(Self { owner, reader })
    }

    fn of(&self, sender: Sender) -> &str {
        match sender {
            Sender::Owner => &self.owner,
            Sender::Reader => &self.reader,
        }
    }
}

struct Part {
    sender: Sender,
    /// The requests. Their paths are in the bodies, and the number of clients is that of the run.
    class: Class,
    /// `true`: the p99 limit applies. The other parts only report their cost.
    bounded: bool,
    /// `true`: a 503 is also valid, for lists that would read too many rows.
    may_be_refused: bool,
}

async fn made(client: &mut Client, path: &str) -> Result<(String, String), String> {
    let made = client.must(path, &json!({ "data": { "type": "authentication-tokens" } })).await?;
    let id = made["data"]["id"].as_str();
    let token = made["data"]["attributes"]["token"].as_str();
    let both = id.zip(token).map(|(id, token)| (id.to_owned(), token.to_owned()));
    both.ok_or_else(|| format!("{path}: no token was made"))
}

/// Size of the load.
pub(crate) struct Size {
    pub(crate) clients: usize,
    /// Requests of each part; `None` for the default.
    pub(crate) requests: Option<u64>,
    pub(crate) seconds: u64,
    pub(crate) quiet: bool,
}

/// Fills the store and measures every part with a limit. Returns the number of projects.
pub(crate) async fn bounded(
    server: &Started,
    many: u64,
    size: &Size,
    mut show: impl FnMut(&str, Figures),
) -> Result<u64, String> {
    let there = fill(server, many, size.quiet)?;
    server.settle()?;
    let tokens = Tokens::make(server).await?;
    for part in parts(there).into_iter().filter(|part| part.bounded && !is_interrupted()) {
        show(&part.class.name, measure(size, server, &tokens, &part).await?);
    }
    Ok(there)
}

/// Fills the store, runs every part and prints the verdict. Fails if a limit is exceeded.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let launch = args.launch()?;
    launch.postgres.ok_or("projects: --postgres must name PostgreSQL's programs, or auto")?;
    let server = Started::launch(&launch).await?;
    let many = if args.preload == 0 { MANY } else { args.preload };
    let there = fill(&server, many, args.quiet)?;
    server.settle()?;
    let tokens = Tokens::make(&server).await?;
    let mut lines = Vec::new();
    let mut missed = 0;
    title(&server.store()?, there);
    let clients = if args.clients == crate::CLIENTS { CLIENTS } else { args.clients.into() };
    let size = Size { clients, requests: args.requests, seconds: args.seconds, quiet: args.quiet };
    for part in parts(there) {
        if is_interrupted() {
            break;
        }
        let figures = measure(&size, &server, &tokens, &part).await?;
        missed += usize::from(!line(&part, &figures));
        lines.push(json_of(&part, &figures));
    }
    args.outputs
        .write_json(&json!({ "scenario": "projects", "store": server.store()?, "projects": there, "parts": lines }))?;
    if missed == 0 { Ok(()) } else { Err(format!("{missed} parts miss their bound")) }
}

/// Creates the organization if it is missing. Returns the number of its projects, at least `many`.
fn fill(server: &Started, many: u64, quiet: bool) -> Result<u64, String> {
    let there = format!("SELECT 1 FROM organizations WHERE name_lc = '{ORGANIZATION}'");
    if server.psql(&there)?.is_empty() {
        run_context::begun(quiet, &format!("making {many} projects"));
        // Statements that are sent together are one transaction.
        server.psql(&statements(many).join(";\n"))?;
    }
    let count = "SELECT count(*) FROM projects p JOIN organizations o ON o.id = p.org_id";
    enough(&server.psql(&format!("{count} WHERE o.name_lc = '{ORGANIZATION}'"))?, many)
}

/// Parses the number of projects; fails if there are fewer than `many`. None can be added, because names, workspaces
/// and grants depend on the number at creation.
fn enough(counted: &str, many: u64) -> Result<u64, String> {
    let there: u64 = counted.parse().map_err(|_| format!("projects: they cannot be counted: {counted}"))?;
    if there < many {
        return Err(format!(
            "projects: the database in the data folder has {there} projects, {many} requested; use another data folder"
        ));
    }
    Ok(there)
}

/// Returns SQL for the external id of a number. Base 58 has no 0.
fn external(prefix: &str, number: &str) -> String {
    format!("'{prefix}-' || translate(lpad(({number})::text, 16, 'z'), '0', 'A')")
}

fn statements(many: u64) -> Vec<String> {
    let now = "(extract(epoch FROM now()) * 1000000)::bigint";
    let org = format!("(SELECT id FROM organizations WHERE name_lc = '{ORGANIZATION}')");
    // The user of the server's root token.
    let owner = "(SELECT id FROM users WHERE username_lc = 'dev')";
    let team = |name: &str| format!("(SELECT id FROM teams WHERE name_lc = '{name}' AND org_id = {org})");
    let first = format!("(SELECT min(id) FROM projects WHERE org_id = {org})");
    vec![
        format!(
            "INSERT INTO organizations (ext_id, name, name_lc, email, project_count, workspace_count, created_at)
             VALUES ('org-loadloadloadload', '{ORGANIZATION}', '{ORGANIZATION}', 'o@load.test', {many}, {many}, {now})"
        ),
        format!(
            "INSERT INTO organization_memberships (ext_id, org_id, user_id, status, created_at)
             VALUES ('ou-loadloadloadload', {org}, {owner}, 'active', {now})"
        ),
        format!(
            "INSERT INTO teams (ext_id, org_id, name, name_lc, is_owners, org_access, user_count) VALUES
             ('team-loadownerloadXX', {org}, 'owners', 'owners', TRUE, 65535, 1),
             ('{READERS}', {org}, 'readers', 'readers', FALSE, 0, 0)"
        ),
        format!("INSERT INTO team_memberships (team_id, user_id) VALUES ({}, {owner})", team("owners")),
        format!(
            "INSERT INTO projects (ext_id, org_id, name, name_lc, is_default, workspace_count, team_count, created_at)
             SELECT {}, {org}, 'svc-' || h, 'svc-' || h, n = 1, CASE WHEN n = 1 THEN {large} WHEN n <= {large} THEN 0 ELSE 1 END,
                    CASE WHEN n % {every} = 0 THEN 1 ELSE 0 END, {now}
             FROM (SELECT n, to_hex(n::bigint * {SCATTER} % 4294967296) || '-' || n AS h FROM generate_series(1, {many}) n) s",
            external("prj", "n"),
            large = LARGE.min(many),
            every = (many / GRANTS).max(1),
        ),
        format!(
            "INSERT INTO workspaces (ext_id, org_id, project_id, name, name_lc, created_at, updated_at)
             SELECT {}, {org}, {first} + CASE WHEN n <= {} THEN 0 ELSE n - 1 END, 'ws-' || n, 'ws-' || n, {now}, {now}
             FROM generate_series(1, {many}) n",
            external("ws", "n"),
            LARGE.min(many),
        ),
        format!(
            "INSERT INTO team_project_access (ext_id, team_id, project_id, access, perm_bits)
             SELECT {}, {}, {first} + n - 1, CASE WHEN n % 2 = 0 THEN 'admin' ELSE 'read' END, CASE WHEN n % 2 = 0 THEN 63 ELSE 1 END
             FROM generate_series({every}, {many}, {every}) n",
            external("tprj", "n"),
            team("readers"),
            every = (many / GRANTS).max(1),
        ),
    ]
}

/// Returns the external id of a number, like [`external`].
fn id(prefix: &str, number: u64) -> String {
    let digits = number.to_string().replace('0', "A");
    format!("{prefix}-{digits:z>16}")
}

/// Returns the name of a project, like [`statements`].
fn name(number: u64) -> String {
    format!("svc-{:x}-{number}", number * SCATTER % (1 << 32))
}

fn part_of(name: &str) -> &str {
    name.get(4..11).unwrap_or(name)
}

/// Returns a request that moves the workspace of a small project to another project.
fn move_workspace(many: u64, n: u64) -> Bytes {
    let workspace = id("ws", many - n % (many / 2));
    let project = id("prj", many - (n * 31 + 17) % (many / 2));
    Bytes::from(format!(
        "/api/v2/projects/{project}/relationships/workspaces\n{}",
        json!({ "data": [{ "type": "workspaces", "id": workspace }] })
    ))
}

fn parts(many: u64) -> Vec<Part> {
    let spread = |n: u64| 1 + (n * 7_919) % many;
    let list = format!("/api/v2/organizations/{ORGANIZATION}/projects");
    let moves = (0..VARIETY * 10).map(|n| move_workspace(many, n)).collect();
    let get = |name: &str, path: &dyn Fn(u64) -> String| Part {
        sender: Sender::Owner,
        class: Class {
            bodies: (0..VARIETY).map(|n| Bytes::from(path(n))).collect(),
            plausible: |answer| answer["data"].is_array() || answer["data"].is_object(),
            ..Class::get(name, 0, "")
        },
        bounded: true,
        may_be_refused: false,
    };
    vec![
        get("first page", &|_| list.clone()),
        get("first page by name", &|_| format!("{list}?sort=name")),
        get("show", &|n| format!("/api/v2/projects/{}", id("prj", spread(n)))),
        get("filter[names], three names", &|n| {
            format!("{list}?filter%5Bnames%5D={},{},nothing", name(spread(n)), name(spread(n + 1)))
        }),
        get("q of seven letters", &|n| format!("{list}?q={}", part_of(&name(spread(n))))),
        Part { sender: Sender::Reader, ..get("first page by 1,000 grants", &|_| list.clone()) },
        Part {
            sender: Sender::Reader,
            ..get("filter[permissions][update] by 1,000 grants", &|_| {
                format!("{list}?filter%5Bpermissions%5D%5Bupdate%5D=true")
            })
        },
        Part {
            sender: Sender::Owner,
            class: Class::post("move of a workspace", 0, "", moves, |_| true),
            bounded: true,
            may_be_refused: false,
        },
        Part {
            bounded: false,
            may_be_refused: true,
            ..get("a page in the middle", &|n| {
                format!("{list}?page%5Bnumber%5D={}", (many / 40).saturating_sub(n % 100).max(1))
            })
        },
        Part { bounded: false, ..get("the last page", &|_| format!("{list}?page%5Bnumber%5D={}", many / 20)) },
        Part { bounded: false, may_be_refused: true, ..get("q of one letter", &|n| format!("{list}?q={:x}", n % 16)) },
    ]
}

async fn measure(size: &Size, server: &Started, tokens: &Tokens, part: &Part) -> Result<Figures, String> {
    let place = Place { token: tokens.of(part.sender), ..server.place() };
    let requests = size.requests.unwrap_or(if part.bounded { REQUESTS } else { REQUESTS / 100 });
    let bounds =
        Bounds { requests, time: Duration::from_secs(size.seconds.min(20)), pace: Pace::default(), quiet: size.quiet };
    let class = Class { clients: size.clients, ..part.class.clone() };
    drive(&place, vec![class], &bounds, server.watched()).await
}

fn holds(part: &Part, figures: &Figures) -> bool {
    let refused = |cause: &String| part.may_be_refused && cause == "503";
    figures.classes.iter().all(|class| {
        class.errors.keys().all(refused)
            && (!part.bounded || (class.percentile(99.0) <= MAX_P99_MS && class.count() > 0))
    })
}

fn title(store: &str, projects: u64) {
    println!("projects on {store}: {projects} projects and as many workspaces in one organization");
    println!("  {:<45}{:>9}{:>9}{:>9}{:>9}{:>11}", "", "requests", "per s", "p50 ms", "p99 ms", "CPU µs");
}

/// Prints a row. Returns `true` if the limit is met.
fn line(part: &Part, figures: &Figures) -> bool {
    let holds = holds(part, figures);
    for class in &figures.classes {
        let done = class.count();
        let cpu = figures.cpu.sum().map_or(0.0, |cpu| cpu * 1e6 / done.max(1) as f64);
        let verdict = match (part.bounded, holds) {
            (true, true) => format!("at most {MAX_P99_MS} ms: holds"),
            (true, false) => format!("at most {MAX_P99_MS} ms: MISSES"),
            (false, _) => "no bound".to_owned(),
        };
        println!(
            "  {:<45}{done:>9}{:>9.0}{:>9.2}{:>9.2}{cpu:>11.0}  {verdict}",
            part.class.name,
            done as f64 / figures.elapsed.as_secs_f64(),
            class.percentile(50.0),
            class.percentile(99.0),
        );
        for (cause, count) in &class.errors {
            println!("    {count} × {cause}");
        }
    }
    holds
}

fn json_of(part: &Part, figures: &Figures) -> Value {
    let classes = figures.classes.iter().map(|class| {
        json!({
            "requests": class.count(),
            "errors": class.errors,
            "p50_ms": class.known(50.0),
            "p99_ms": class.known(99.0),
        })
    });
    json!({ "part": part.class.name, "bounded": part.bounded, "holds": holds(part, figures), "classes": classes.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_that_the_database_makes() {
        assert_eq!(id("prj", 1_200), "prj-zzzzzzzzzzzz12AA");
        assert!(external("prj", "n").contains("lpad((n)::text, 16, 'z')"));
    }

    #[test]
    fn database_with_fewer_projects_than_requested_is_refused() {
        assert_eq!(enough("100000", 100_000), Ok(100_000));
        assert_eq!(enough("100000", 1_000), Ok(100_000));
        let refused = enough("100000", 1_000_000).err().unwrap();
        assert!(refused.contains("has 100000 projects, 1000000 requested"), "{refused}");
        assert!(enough("", 1).is_err());
    }

    #[test]
    fn every_part_has_requests_and_bounded_ones_allow_no_refusal() {
        for part in parts(1_000) {
            assert!(!part.class.bodies.is_empty() && !part.class.name.is_empty());
            assert!(!(part.bounded && part.may_be_refused), "{}", part.class.name);
        }
        assert_eq!(statements(1_000).len(), 7);
    }
}

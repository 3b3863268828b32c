//! The scenario `projects`: the projects API with a million projects and workspaces in one organization, with a p99
//! limit of 20 ms.
//!
//! SQL statements create the rows directly in the database, because the API would take an hour. They match the rows
//! that the API creates, including the counters. Later runs reuse them.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Api, Client};
use crate::drive::{RequestClass, RunLimits, ServerAccess, drive};
use crate::figures::{ClassFigures, Figures};
use crate::order::RunArgs;
use crate::pace::Pace;
use crate::report::Report;
use crate::run_context::{is_interrupted, print_progress};
use crate::server::Server;

/// Default number of projects, and of workspaces.
const DEFAULT_PROJECTS: u64 = 1_000_000;
/// Workspaces of the first project; the others have at most one.
const LARGEST_PROJECT_WORKSPACES: u64 = 100_000;
/// Projects that are granted to the team [`READERS`].
const READER_GRANTS: u64 = 1_000;
/// Default number of connections, and of requests per part.
pub(crate) const DEFAULT_CONNECTIONS: u16 = 16;
const REQUESTS_PER_PART: u64 = 20_000;
/// p99 limit in milliseconds.
const MAX_P99_MS: f64 = 20.0;
/// Number of different requests that a part sends in rotation.
const DIFFERENT_REQUESTS: u64 = 2_000;

/// Multiplier that scatters the names (Knuth's multiplicative hash).
const NAME_MULTIPLIER: u64 = 2_654_435_761;

const ORGANIZATION: &str = "load";
/// Team that sends some of the requests.
const READERS: &str = "team-loadreaderloadX";

/// Tokens of an owner, who is the user of the server's root token, and of the team [`READERS`].
struct ProjectTokens {
    owner: String,
    reader: String,
}

impl ProjectTokens {
    /// Creates the tokens through the API.
    async fn create(server: &Server) -> Result<Self, String> {
        let mut client = Client::connect_as(&server.endpoint, &server.token, Api::Projects).await?;
        let account = client.get_json("/api/v2/account/details").await?;
        let user = account["data"]["id"].as_str().ok_or("projects: the root token has no account")?;
        let provisioner = server.access().provisioner;
        let (id, owner) = create_token(&mut client, &format!("/api/v2/users/{user}/authentication-tokens")).await?;
        let remove = |what: &str, path| provisioner.remove_later(what.to_owned(), Api::Projects, path);
        remove("the token of the owner", format!("/api/v2/authentication-tokens/{id}"));
        let path = format!("/api/v2/teams/{READERS}/authentication-token");
        let (_, reader) = create_token(&mut client, &path).await?;
        remove("the token of the team", path);
        Ok(Self { owner, reader })
    }
}

struct ProjectsPart {
    /// `true`: the team [`READERS`] sends the requests, whose lists depend on its grants; `false`: an owner.
    by_reader: bool,
    /// The requests. Their paths are in the bodies, and the number of clients is that of the run.
    class: RequestClass,
    /// `true` if the p99 limit applies to this part. Other parts only report their cost.
    bounded: bool,
    /// `true`: a 503 is also valid, for lists that would read too many rows.
    may_be_refused: bool,
}

/// Creates a token. Returns its id and the token itself.
async fn create_token(client: &mut Client, path: &str) -> Result<(String, String), String> {
    let created = client.post(path, &json!({ "data": { "type": "authentication-tokens" } })).await?;
    let id = created["data"]["id"].as_str();
    let token = created["data"]["attributes"]["token"].as_str();
    let both = id.zip(token).map(|(id, token)| (id.to_owned(), token.to_owned()));
    both.ok_or_else(|| format!("{path}: the response has no token"))
}

/// Size of the load.
pub(crate) struct ProjectsLoad {
    /// Number of projects.
    pub(crate) many: u64,
    pub(crate) clients: u16,
    /// Requests of each part; `None` for the default.
    pub(crate) requests: Option<u64>,
    pub(crate) seconds: u64,
    pub(crate) quiet: bool,
}

/// Results of a part.
pub(crate) struct MeasuredPart {
    pub(crate) name: String,
    pub(crate) figures: Figures,
    bounded: bool,
    holds: bool,
}

impl ProjectsLoad {
    /// Fills the store and measures every part, or only those with a limit. Returns the number of projects, and the
    /// results.
    pub(crate) async fn measure(
        &self,
        server: &Server,
        only_bounded: bool,
    ) -> Result<(u64, Vec<MeasuredPart>), String> {
        let stored = fill(server, self.many, self.quiet)?;
        server.settle()?;
        let tokens = ProjectTokens::create(server).await?;
        let mut measured = Vec::new();
        for part in parts(stored).into_iter().filter(|part| part.bounded || !only_bounded) {
            if is_interrupted() {
                break;
            }
            print_progress(self.quiet, &part.class.name);
            let token = if part.by_reader { &tokens.reader } else { &tokens.owner };
            let access = ServerAccess { token, ..server.access() };
            let requests =
                self.requests.unwrap_or(if part.bounded { REQUESTS_PER_PART } else { REQUESTS_PER_PART / 100 });
            let time = Duration::from_secs(self.seconds.min(20));
            let bounds = RunLimits { requests, time, pace: Pace::default(), quiet: self.quiet };
            let class = RequestClass { clients: self.clients.into(), ..part.class.clone() };
            let figures = drive(&access, vec![class], &bounds, server.watched).await?;
            let holds = holds(&part, &figures);
            measured.push(MeasuredPart { name: part.class.name, figures, bounded: part.bounded, holds });
        }
        Ok((stored, measured))
    }
}

/// Fills the store, runs every part and prints the verdict. Fails if a limit is exceeded.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let launch = &args.target.launch;
    launch.postgres.as_ref().ok_or("projects: --postgres must name PostgreSQL's programs, or auto")?;
    let server = Server::launch(launch).await?;
    let plan = args.plan();
    let load = ProjectsLoad {
        many: if args.wanted.certificates == 0 { DEFAULT_PROJECTS } else { args.wanted.certificates },
        clients: args.clients_or(DEFAULT_CONNECTIONS),
        requests: plan.requests,
        seconds: plan.seconds,
        quiet: plan.quiet,
    };
    let (stored, parts) = load.measure(&server, false).await?;
    let parts_json: Vec<Value> = parts.iter().map(MeasuredPart::json).collect();
    let json = json!({ "scenario": "projects", "store": server.store()?, "projects": stored, "parts": parts_json });
    let columns = [
        ("part", "/part"),
        ("requests", "/classes/0/requests"),
        ("per second", "/classes/0/requests_per_second"),
        ("p50 ms", "/classes/0/p50_ms"),
        ("p99 ms", "/classes/0/p99_ms"),
        ("CPU µs", "/cpu_us_per_request"),
        ("", "/holds"),
        ("errors", "/classes/0/errors"),
    ];
    Report::new(server.title("projects")?, json)
        .fact("projects", format!("{stored}, and as many workspaces in one organization"))
        .fact("limit", format!("p99 of {MAX_P99_MS} ms, except for deep pages and the search for one letter"))
        .table("parts", "/parts", &columns)
        .publish(&args.outputs)?;
    let missed = parts.iter().filter(|part| !part.holds).count();
    if missed == 0 {
        Ok(())
    } else {
        Err(format!("the p99 of {missed} parts exceeds {MAX_P99_MS} ms, or requests failed"))
    }
}

impl MeasuredPart {
    fn json(&self) -> Value {
        let figures = &self.figures;
        let class_json = |class: &ClassFigures| {
            let mut json = class.part_json();
            json["requests_per_second"] = figures.rate(class).into();
            json
        };
        json!({ "part": self.name, "bounded": self.bounded, "holds": self.holds,
            "cpu_us_per_request": figures.per_request(figures.cpu.sum()),
            "classes": figures.classes.iter().map(class_json).collect::<Vec<_>>() })
    }
}

/// Creates the organization if it is missing. Returns the number of its projects, at least `many`.
fn fill(server: &Server, many: u64, quiet: bool) -> Result<u64, String> {
    let select = format!("SELECT 1 FROM organizations WHERE name_lc = '{ORGANIZATION}'");
    if server.psql(&select)?.is_empty() {
        print_progress(quiet, &format!("creating {many} projects"));
        server.psql(&statements(many))?;
    }
    let count = "SELECT count(*) FROM projects p JOIN organizations o ON o.id = p.org_id";
    parse_count(&server.psql(&format!("{count} WHERE o.name_lc = '{ORGANIZATION}'"))?, many)
}

/// Parses the number of projects; fails if there are fewer than `many`. None can be added, because names, workspaces
/// and grants depend on the number at creation.
fn parse_count(counted: &str, many: u64) -> Result<u64, String> {
    let stored: u64 =
        counted.parse().map_err(|_| format!("projects: the database returned no number of projects: {counted:?}"))?;
    if stored < many {
        return Err(format!(
            "projects: the database in the data folder has {stored} projects, {many} requested; use another data folder"
        ));
    }
    Ok(stored)
}

/// Returns the SQL statements that create the rows, as one transaction. `PARAMETERS` of the file are replaced.
fn statements(many: u64) -> String {
    let parameters = [
        ("ORGANIZATION", ORGANIZATION.to_owned()),
        ("READERS", READERS.to_owned()),
        ("MANY", many.to_string()),
        ("LARGE", LARGEST_PROJECT_WORKSPACES.min(many).to_string()),
        ("EVERY", (many / READER_GRANTS).max(1).to_string()),
        ("SCATTER", NAME_MULTIPLIER.to_string()),
    ];
    let file = include_str!("projects.sql").to_owned();
    parameters.iter().fold(file, |sql, (name, value)| sql.replace(&format!(":{name}"), value))
}

/// Returns the external id that the SQL statements derive from a number.
fn external_id(prefix: &str, number: u64) -> String {
    let digits = number.to_string().replace('0', "A");
    format!("{prefix}-{digits:z>16}")
}

/// Returns the name that the SQL statements give to the project with this number.
fn project_name(number: u64) -> String {
    format!("svc-{:x}-{number}", number * NAME_MULTIPLIER % (1 << 32))
}

/// Returns seven letters from within a project's name, as a search text.
fn seven_letters(name: &str) -> &str {
    name.get(4..11).unwrap_or(name)
}

/// Returns a request that moves the workspace of a small project to another project.
fn move_workspace(many: u64, n: u64) -> Bytes {
    let workspace = external_id("ws", many - n % (many / 2));
    let project = external_id("prj", many - (n * 31 + 17) % (many / 2));
    Bytes::from(format!(
        "/api/v2/projects/{project}/relationships/workspaces\n{}",
        json!({ "data": [{ "type": "workspaces", "id": workspace }] })
    ))
}

fn parts(many: u64) -> Vec<ProjectsPart> {
    let spread = |n: u64| 1 + (n * 7_919) % many;
    let list = format!("/api/v2/organizations/{ORGANIZATION}/projects");
    let moves = (0..DIFFERENT_REQUESTS * 10).map(|n| move_workspace(many, n)).collect();
    let get = |name: &str, path: &dyn Fn(u64) -> String| ProjectsPart {
        by_reader: false,
        class: RequestClass {
            bodies: (0..DIFFERENT_REQUESTS).map(|n| Bytes::from(path(n))).collect(),
            plausible: |answer| answer["data"].is_array() || answer["data"].is_object(),
            ..RequestClass::get(name, 0, "")
        },
        bounded: true,
        may_be_refused: false,
    };
    vec![
        get("first page", &|_| list.clone()),
        get("first page by name", &|_| format!("{list}?sort=name")),
        get("show", &|n| format!("/api/v2/projects/{}", external_id("prj", spread(n)))),
        get("filter[names], three names", &|n| {
            format!("{list}?filter%5Bnames%5D={},{},nothing", project_name(spread(n)), project_name(spread(n + 1)))
        }),
        get("q of seven letters", &|n| format!("{list}?q={}", seven_letters(&project_name(spread(n))))),
        ProjectsPart { by_reader: true, ..get("first page by 1,000 grants", &|_| list.clone()) },
        ProjectsPart {
            by_reader: true,
            ..get("filter[permissions][update] by 1,000 grants", &|_| {
                format!("{list}?filter%5Bpermissions%5D%5Bupdate%5D=true")
            })
        },
        ProjectsPart {
            by_reader: false,
            class: RequestClass::post("move of a workspace", 0, "", moves, |_| true),
            bounded: true,
            may_be_refused: false,
        },
        ProjectsPart {
            bounded: false,
            may_be_refused: true,
            ..get("a page in the middle", &|n| {
                format!("{list}?page%5Bnumber%5D={}", (many / 40).saturating_sub(n % 100).max(1))
            })
        },
        ProjectsPart { bounded: false, ..get("the last page", &|_| format!("{list}?page%5Bnumber%5D={}", many / 20)) },
        ProjectsPart {
            bounded: false,
            may_be_refused: true,
            ..get("q of one letter", &|n| format!("{list}?q={:x}", n % 16))
        },
    ]
}

fn holds(part: &ProjectsPart, figures: &Figures) -> bool {
    let refused = |cause: &String| part.may_be_refused && cause == "503";
    figures.classes.iter().all(|class| {
        class.errors.keys().all(refused)
            && (!part.bounded || (class.percentile_ms(99.0).is_some_and(|p99| p99 <= MAX_P99_MS)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_ids_match_the_sql() {
        assert_eq!(external_id("prj", 1_200), "prj-zzzzzzzzzzzz12AA");
        assert!(statements(1_000).contains("'prj-' || translate(lpad(n::text, 16, 'z'), '0', 'A')"));
    }

    #[test]
    fn database_with_fewer_projects_than_requested_is_rejected() {
        assert_eq!(parse_count("100000", 100_000), Ok(100_000));
        assert_eq!(parse_count("100000", 1_000), Ok(100_000));
        let refused = parse_count("100000", 1_000_000).err().unwrap();
        assert!(refused.contains("has 100000 projects, 1000000 requested"), "{refused}");
        assert!(parse_count("", 1).is_err());
    }

    #[test]
    fn every_part_has_requests_and_bounded_ones_allow_no_refusal() {
        for part in parts(1_000) {
            assert!(!part.class.bodies.is_empty() && !part.class.name.is_empty());
            assert!(!(part.bounded && part.may_be_refused), "{}", part.class.name);
        }
        assert!(!statements(1_000).contains(":M") && statements(1_000).contains("generate_series(1, 1000)"));
    }
}

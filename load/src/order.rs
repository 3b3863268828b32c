//! Orders: a scenario, its server, and optionally a second server to compare with. They come from the command line or
//! from a plan file: TOML, or JSON with the extension `.json`. The fields of a plan file are the options of the command
//! line, and clap validates both.
//!
//! An order is validated completely before anything starts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use serde_json::{Map, Value};

use crate::plan::{MountContents, Plan};
use crate::report::Outputs;
use crate::scenario::Scenario;
use crate::target::Target;

/// Scenarios for plans and comparisons; the others are separate commands.
const PLANNED_SCENARIOS: [Scenario; 9] = [
    Scenario::Issue,
    Scenario::Sign,
    Scenario::Revoke,
    Scenario::Mixed,
    Scenario::Login,
    Scenario::CrlGet,
    Scenario::OcspGet,
    Scenario::OcspNonce,
    Scenario::Health,
];

/// One run on one server, or several runs that alternate between two servers.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    pub(crate) target: Target,
    /// Server to compare with.
    pub(crate) other: Option<Target>,
    /// Number of runs on each server.
    pub(crate) rounds: u64,
    /// `true`: both servers run concurrently.
    pub(crate) at_once: bool,
    /// Required contents of the mounts before the run.
    pub(crate) wanted: MountContents,
}

impl Order {
    /// Rejects an order that cannot be run.
    fn check(&self) -> Result<(), String> {
        self.wanted.check()?;
        self.plan.check()?;
        self.target.check(self.plan.scenario, self.wanted)?;
        let Some(other) = &self.other else { return Ok(()) };
        other.check(self.plan.scenario, self.wanted).map_err(|cause| format!("other: {cause}"))
    }
}

/// Arguments of a run of one scenario.
#[derive(clap::Args, Debug)]
pub(crate) struct RunArgs {
    /// The scenario.
    #[arg(required = true)]
    scenario: Option<Scenario>,
    #[command(flatten)]
    pub(crate) target: Target,
    #[command(flatten)]
    pub(crate) wanted: MountContents,
    #[command(flatten)]
    plan: Plan,
    /// Search the highest rate that meets `--p99`: a closed loop, then at most 11 steps at a rate, `--seconds` in
    /// total.
    #[arg(long, requires = "p99", conflicts_with_all = ["rate", "ramp", "requests"])]
    pub(crate) find_rate: bool,
    /// With `--find-rate`: the p99 limit, such as 20ms.
    #[arg(long, value_name = "LATENCY", requires = "find_rate", value_parser = parse_latency)]
    pub(crate) p99: Option<Duration>,
    /// For `sign-managed`: a managed key of the running server, of any type (pkcs11, cloudakms, cloudbkeyvault or
    /// cloudckms).
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    pub(crate) managed_key: Option<String>,
    /// For `sign-managed`: sessions of each key in SoftHSM.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_parallel: u16,
    /// For `sign-managed`: path of SoftHSM's library.
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/softhsm/libsofthsm2.so")]
    pub(crate) softhsm: PathBuf,
    #[command(flatten)]
    pub(crate) outputs: Outputs,
}

impl RunArgs {
    /// Returns the scenario. clap requires one unless a subcommand is given.
    pub(crate) fn scenario(&self) -> Scenario {
        self.scenario.unwrap_or_default()
    }

    /// Returns the plan with the role and settings of the server.
    pub(crate) fn plan(&self) -> Plan {
        self.target.plan(&Plan { scenario: self.scenario(), ..self.plan.clone() })
    }

    /// Returns the number of connections, or `default` without `--clients`.
    pub(crate) fn clients_or(&self, default: u16) -> u16 {
        if self.plan.clients == crate::plan::CLIENTS { default } else { self.plan.clients }
    }

    /// Validates the arguments before anything starts, and returns the run.
    pub(crate) fn order(&self) -> Result<Order, String> {
        let plan = self.plan();
        let name = plan.scenario.name();
        if self.find_rate && !supports_any_rate(plan.scenario) {
            return Err(format!("--find-rate: cannot be used with {name}"));
        }
        let target = self.target.clone();
        let order = Order { name, plan, target, other: None, rounds: 1, at_once: false, wanted: self.wanted };
        order.check().map(|()| order)
    }
}

/// `true` if the requests of the scenario can be repeated at any rate.
fn supports_any_rate(scenario: Scenario) -> bool {
    scenario != Scenario::Revoke && can_be_planned(scenario).is_ok()
}

/// Parses a latency of the command line: `20ms`, `1.5s`, `500us`.
fn parse_latency(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let seconds_per_unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err("must end with us, ms or s".to_owned()),
    };
    let value: f64 = digits.parse().map_err(|_| "must be a number and us, ms or s".to_owned())?;
    let latency = Duration::try_from_secs_f64(value * seconds_per_unit).unwrap_or_default();
    let limits = Duration::from_micros(1)..=Duration::from_secs(60);
    if limits.contains(&latency) { Ok(latency) } else { Err("must be from 1us to 60s".to_owned()) }
}

/// Rejects scenarios that plans and comparisons do not support.
pub(crate) fn can_be_planned(scenario: Scenario) -> Result<(), String> {
    if PLANNED_SCENARIOS.contains(&scenario) {
        return Ok(());
    }
    let names = PLANNED_SCENARIOS.map(Scenario::name).join(", ");
    Err(format!("scenario: must be one of {names}, and is {}", scenario.name()))
}

/// Arguments of `run PLAN`.
#[derive(clap::Args, Debug)]
pub(crate) struct PlanArgs {
    /// The plan file.
    plan: PathBuf,
    /// Token of the target, if the plan has no token file.
    #[arg(long, env = "SIGNET_TOKEN", default_value = "", hide_env_values = true)]
    token: String,
    /// Token of the other server, if the plan has no token file.
    #[arg(long, env = "SIGNET_OTHER_TOKEN", default_value = "", hide_env_values = true)]
    other_token: String,
    #[command(flatten)]
    pub(crate) outputs: Outputs,
    /// No progress bar.
    #[arg(long)]
    quiet: bool,
}

/// Fields of a plan file besides its tables.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct PlanFields {
    #[arg(long)]
    name: Option<String>,
    #[arg(long)]
    scenario: Scenario,
    #[command(flatten)]
    plan: Plan,
    #[command(flatten)]
    wanted: MountContents,
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    #[arg(long)]
    at_once: bool,
}

/// Fields of a server in a plan file.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct TargetFields {
    #[arg(long)]
    name: Option<String>,
    #[arg(long)]
    command: Option<String>,
    #[arg(long)]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// Reads a plan file.
pub(crate) fn read_plan(args: &PlanArgs) -> Result<Order, String> {
    let failed = |cause: String| format!("{}: {cause}", args.plan.display());
    let text = std::fs::read_to_string(&args.plan).map_err(|e| failed(e.to_string()))?;
    let json = args.plan.extension().is_some_and(|end| end == "json");
    let mut order = read(&text, json).map_err(failed)?;
    order.plan.quiet = args.quiet;
    let targets = [Some((&mut order.target, &args.token)), order.other.as_mut().zip(Some(&args.other_token))];
    for (target, token) in targets.into_iter().flatten() {
        if target.token.is_empty() {
            target.token.clone_from(token);
        }
    }
    Ok(order)
}

/// Parses and validates a plan.
pub(crate) fn read(text: &str, json: bool) -> Result<Order, String> {
    let plan: Value = if json {
        serde_json::from_str(text).map_err(|e| e.to_string())?
    } else {
        toml::from_str(text).map_err(|e| e.to_string())?
    };
    let Value::Object(mut fields) = plan else {
        return Err("a plan must be a table (TOML) or an object (JSON)".to_owned());
    };
    let [target, other] = ["target", "other"].map(|name| fields.remove(name).map(|fields| read_target(name, fields)));
    let PlanFields { name, scenario, mut plan, wanted, rounds, at_once } = parsed(&fields)?;
    can_be_planned(scenario)?;
    if fields.contains_key("rsa_clients") && scenario != Scenario::Mixed {
        return Err("rsa_clients: only valid with the scenario mixed".to_owned());
    }
    plan.scenario = scenario;
    // A plan is limited by its time only, except for `revoke`, whose certificates exist before the run.
    plan.requests = plan.requests.or((scenario != Scenario::Revoke).then_some(u64::MAX));
    let target = target.transpose()?.ok_or("target: must be given")?;
    let other = other.transpose()?;
    if other.is_none() && (rounds.is_some() || at_once) {
        return Err("rounds, at_once: only valid with other, the server to compare with".to_owned());
    }
    let name = name.unwrap_or_else(|| scenario.name());
    let order = Order { name, plan, target, other, rounds: rounds.unwrap_or(3), at_once, wanted };
    order.check().map(|()| order)
}

/// Parses a server of a plan file. Takes no setting from the environment, because its variables may be meant for
/// another server.
fn read_target(table: &str, fields: Value) -> Result<Target, String> {
    let wrong = |cause: String| format!("{table}: {cause}");
    let Value::Object(fields) = fields else { return Err(wrong("must be a table".to_owned())) };
    if fields.contains_key("token") {
        return Err(wrong("token: a plan has no secrets; use token_file".to_owned()));
    }
    let is_launched = fields.contains_key("server");
    let only_running = ["addr", "command", "pid", "token_file"].into_iter().find(|field| fields.contains_key(*field));
    match only_running {
        Some(field) if is_launched => {
            return Err(wrong(format!("{field}: must not be combined with server, which is started here")));
        }
        _ if !is_launched && !fields.contains_key("addr") => {
            return Err(wrong("addr: must be given, or server".to_owned()));
        }
        _ => {}
    }
    let TargetFields { name, command, token_file, target } = parsed(&fields).map_err(wrong)?;
    let token = token_file.map_or(Ok(String::new()), |file| read_token(&file)).map_err(wrong)?;
    let target = Target { name: name.unwrap_or_else(|| default_name(table)), command, token, ..target };
    if !is_launched {
        target.endpoint().map_err(wrong)?;
    }
    Ok(target)
}

fn default_name(table: &str) -> String {
    if table == "target" { "signet" } else { table }.to_owned()
}

/// Parses fields as the options of the same name.
fn parsed<T: Parser>(fields: &Map<String, Value>) -> Result<T, String> {
    let option = |(name, value): (&String, &Value)| {
        let name = name.replace('_', "-");
        match value {
            Value::Bool(false) => None,
            Value::Bool(true) => Some(format!("--{name}")),
            Value::String(text) => Some(format!("--{name}={text}")),
            value => Some(format!("--{name}={value}")),
        }
    };
    T::try_parse_from(fields.iter().filter_map(option)).map_err(|e| {
        let text = e.to_string();
        let cause = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ");
        cause.split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

fn read_token(file: &Path) -> Result<String, String> {
    let token = std::fs::read_to_string(file).map_err(|e| format!("token_file: {}: {e}", file.display()))?;
    let token = token.trim().to_owned();
    if token.is_empty() { Err(format!("token_file: {} is empty", file.display())) } else { Ok(token) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Pace;
    use crate::plan::REQUESTS;

    const TARGET: &str = "[target]\naddr = \"http://127.0.0.1:8200\"\n";

    fn refusal(plan: &str) -> String {
        read(plan, false).err().unwrap_or_else(|| format!("taken: {plan}"))
    }

    #[test]
    fn plan_with_every_field_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "t.secret\n").unwrap();
        let text = format!(
            "name = \"night\"\nscenario = \"issue\"\nclients = 200\nrate = 1500.5\nramp_seconds = 10\nseconds = 600\n\
             requests = 900000\nkey_type = \"ec\"\nkey_bits = 384\nno_store = true\npreload = 1000\nrevoked = 10\nrounds = 2\nat_once = true\n\
             [target]\nserver = \"./signet\"\ndata_dir = \"/var/tmp/load\"\npostgres = \"auto\"\nrsa_stock = 9\n\
             [other]\nname = \"bao\"\naddr = \"http://127.0.0.1:8300\"\ntoken_file = \"{}\"\ntoken_header = \"X-Other\"\n\
             mount = \"ca/int\"\nrole = \"web\"\nprepared = true\npid = 7\ncommand = \"bao server\"\nstore = \"memory\"\n",
            file.display()
        );
        let order = read(&text, false).unwrap();
        let plan = &order.plan;
        assert_eq!((order.name.as_str(), order.rounds, order.at_once), ("night", 2, true));
        assert_eq!(plan.scenario, Scenario::Issue);
        assert_eq!((plan.clients, plan.max_requests(), plan.seconds, plan.key_bits), (200, 900_000, 600, 384));
        assert_eq!(plan.pace, Pace { rate: Some(1500.5), ramp: Duration::from_secs(10) });
        assert!(plan.no_store && !plan.auto_rebuild);
        assert_eq!(order.wanted, MountContents { certificates: 1000, revoked: 10 });
        assert_eq!((order.target.launch.server, order.target.launch.rsa_stock), (Some(PathBuf::from("./signet")), 9));
        let other = order.other.unwrap();
        assert_eq!((other.name.as_str(), other.token.as_str(), other.pid), ("bao", "t.secret", Some(7)));
        assert_eq!(
            (other.mount.as_deref(), other.role.as_deref(), other.prepared),
            (Some("ca/int"), Some("web"), true)
        );
        assert_eq!(other.store.as_deref(), Some("memory"));
    }

    #[test]
    fn plan_defaults_apply_and_json_is_read_alike() {
        let order = read(&format!("scenario = \"sign\"\n{TARGET}"), false).unwrap();
        assert_eq!((order.plan.clients, order.plan.seconds, order.plan.max_requests()), (64, 60, u64::MAX));
        assert_eq!((order.target.mount.as_deref(), order.other.is_none()), (None, true));
        let json = r#"{ "scenario": "sign", "target": { "addr": "http://127.0.0.1:8200" } }"#;
        assert_eq!(read(json, true).unwrap().target, order.target);
        assert_eq!(read(&format!("scenario = \"revoke\"\n{TARGET}"), false).unwrap().plan.max_requests(), REQUESTS);
    }

    #[test]
    fn invalid_plan_fields_are_rejected_with_their_rule() {
        for (plan, says) in [
            ("", "--scenario <SCENARIO>"),
            ("scenario = \"else\"", "invalid value 'else' for '--scenario <SCENARIO>'"),
            ("scenario = \"projects\"", "scenario: must be one of issue,"),
            ("scenario = 7", "invalid value '7' for '--scenario"),
            ("scenario = \"issue\"", "target: must be given"),
            ("scenario = \"issue\"\ntarget = 1", "target: must be a table"),
        ] {
            assert!(refusal(plan).contains(says), "{plan}: {}", refusal(plan));
        }
        for (line, says) in [
            ("clients = 0", "invalid value '0' for '--clients <CLIENTS>': 0 is not in 1..=65535"),
            ("clients = \"many\"", "invalid value 'many' for '--clients"),
            ("rate = 0", "'--rate <N>': must be from 0.001 to 1000000"),
            ("rate = -2.5", "'--rate <N>': must be from 0.001 to 1000000"),
            ("seconds = 90000", "'--seconds <SECONDS>': 90000 is not in 1..=86400"),
            ("seconds = 5\nramp_seconds = 6", "--ramp: must not be more than --seconds"),
            ("requests = 1.5", "invalid value '1.5' for '--requests"),
            ("key_type = \"dsa\"", "invalid value 'dsa' for '--key-type"),
            ("no_store = \"yes\"", "unexpected value 'yes' for '--no-store'"),
            ("revoked = 5", "--revoked: must not be more than --preload"),
            ("rsa_clients = 5", "rsa_clients: only valid with the scenario mixed"),
            ("rounds = 3", "only valid with other"),
            ("at_once = true", "only valid with other"),
            ("scenario = \"sign\"\nkey_type = \"rsa\"", "sign: the key type must be ec of 256 or 384 bits"),
            (
                "scenario = \"sign\"\nkey_bits = 521",
                "sign: the key type must be ec of 256 or 384 bits, or ed25519, and is ec",
            ),
            ("client = 5", "unexpected argument '--client' found"),
        ] {
            let scenario = if line.starts_with("scenario") { "" } else { "scenario = \"issue\"\n" };
            let refusal = refusal(&format!("{scenario}{line}\n{TARGET}"));
            assert!(refusal.contains(says), "{line}: {refusal}");
        }
        for (target, says) in [
            ("", "target: addr: must be given, or server"),
            ("addr = \"127.0.0.1\"", "target: addr: must be http://HOST:PORT or https://HOST:PORT, and is 127.0.0.1"),
            ("addr = \"https://a\"", "target: ca_file: an https address needs one"),
            ("addr = \"http://a\"\ntoken_header = \"X Y\"", "target: token_header: must be the name of a header"),
            ("addr = \"http://a\"\nprepared = true", "--role: must be given with --prepared for issue"),
            ("addr = \"http://a\"\nprepared = true\nrole = \"web\"\nkeep = true", "target: the argument '--"),
            (
                "addr = \"http://a\"\naccess_log = true",
                "target: the following required arguments were not provided: --server",
            ),
            ("addr = \"http://a\"\nmount = \"/pki\"", "must be a path without a slash"),
            ("addr = \"http://a\"\npostgres = \"auto\"", "--server"),
            ("addr = \"http://a\"\nrsa_stock = 9", "--server"),
            ("server = \"./signet\"\nstore = \"memory\"", "target: the argument"),
            ("addr = \"http://a\"\nserver = \"./signet\"", "target: addr: must not be combined with server"),
            ("addr = \"http://a\"\ntoken_file = \"/nowhere\"", "target: token_file: /nowhere: "),
            ("addr = \"http://a\"\ntoken = \"x\"", "target: token: a plan has no secrets; use token_file"),
        ] {
            let refusal = refusal(&format!("scenario = \"issue\"\n[target]\n{target}\n"));
            assert!(refusal.contains(says), "{target}: {refusal}");
        }
    }

    #[test]
    fn malformed_plan_is_rejected_with_its_location() {
        assert!(refusal("scenario = ").contains("line 1"));
        assert!(read("[]", true).is_err_and(|cause| cause == "a plan must be a table (TOML) or an object (JSON)"));
    }

    #[test]
    fn latency_option_needs_a_unit_and_has_limits() {
        assert_eq!(parse_latency("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(parse_latency("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_latency("500us"), Ok(Duration::from_micros(500)));
        for (wrong, says) in
            [("20", "us, ms or s"), ("ms", "a number"), ("0ms", "from 1us"), ("61s", "to 60s"), ("-1s", "from")]
        {
            assert!(
                parse_latency(wrong).is_err_and(|cause| cause.contains(says)),
                "{wrong}: {:?}",
                parse_latency(wrong)
            );
        }
    }
}

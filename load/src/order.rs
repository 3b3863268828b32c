//! Plan files: a scenario, its server, and optionally a second server to compare with. TOML, or JSON with the extension
//! `.json`.
//!
//! A plan is validated completely before anything starts; errors name the field and the rule.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::pace::Pace;
use crate::plan::{Plan, Stock};
use crate::report::Outputs;
use crate::target::{DATA_DIR, Target};
use crate::{CLIENTS, REQUESTS, Scenario};

/// Scenarios for plans and comparisons; the others are separate commands.
const SCENARIOS: [Scenario; 9] = [
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
/// Maximum duration of a run in seconds: one day.
pub(crate) const SECONDS: u64 = 86_400;
/// Maximum number of connections, and valid rates in requests per second.
const MAX_CLIENTS: u64 = 10_000;
const RATES: RangeInclusive<f64> = 0.001..=1_000_000.0;
/// Maximum number of certificates stored before a run, and of requests of a run.
const MAX_STORED_CERTIFICATES: u64 = 100_000_000;
const MAX_REQUESTS: u64 = 10_000_000_000;

/// A run, or several runs on two servers.
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
    pub(crate) wanted: Stock,
}

/// Arguments of `run PLAN`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
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

/// Reads a plan file.
pub(crate) fn read_plan(args: &Args) -> Result<Order, String> {
    let failed = |cause: String| format!("{}: {cause}", args.plan.display());
    let text = std::fs::read_to_string(&args.plan).map_err(|e| failed(e.to_string()))?;
    let json = args.plan.extension().is_some_and(|end| end == "json");
    let mut order = read(&text, json).map_err(failed)?;
    order.plan.quiet = args.quiet;
    token(&mut order.target, &args.token);
    if let Some(other) = &mut order.other {
        token(other, &args.other_token);
    }
    Ok(order)
}

fn token(target: &mut Target, given: &str) {
    if target.token.is_empty() {
        given.clone_into(&mut target.token);
    }
}

/// Parses a rate of the command line.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    let min = RATES.start();
    let max = RATES.end();
    if RATES.contains(&rate) { Ok(rate) } else { Err(format!("must be from {min} to {max}")) }
}

/// Rejects a ramp that is longer than the run. `names` are the names of both fields.
pub(crate) fn ramp_within(ramp: u64, seconds: u64, names: [&str; 2]) -> Result<(), String> {
    if ramp <= seconds { Ok(()) } else { Err(format!("{}: must not be more than {}", names[0], names[1])) }
}

fn planned(name: &str) -> Result<Scenario, String> {
    let found = SCENARIOS.into_iter().find(|scenario| scenario.name() == name);
    found.ok_or_else(|| {
        let names: Vec<String> = SCENARIOS.iter().map(|scenario| scenario.name()).collect();
        format!("scenario: must be one of {}, and is {name}", names.join(", "))
    })
}

/// Rejects scenarios that plans and comparisons do not support.
pub(crate) fn can_be_planned(scenario: Scenario) -> Result<Scenario, String> {
    planned(&scenario.name())
}

/// Parses and validates a plan.
pub(crate) fn read(text: &str, json: bool) -> Result<Order, String> {
    let plan: Value = if json {
        serde_json::from_str(text).map_err(|e| e.to_string())?
    } else {
        toml::from_str(text).map_err(|e| e.to_string())?
    };
    let Value::Object(fields) = plan else { return Err("a plan must be an object".to_owned()) };
    let mut fields = Fields { of: String::new(), left: fields };
    let name = fields.text("scenario")?.ok_or("scenario: must be given")?;
    let scenario = planned(&name)?;
    let rate = fields.number("rate", &RATES)?;
    let seconds = fields.whole("seconds", 1, SECONDS)?.unwrap_or(60);
    let ramp = fields.whole("ramp_seconds", 0, SECONDS)?.unwrap_or(0);
    ramp_within(ramp, seconds, ["ramp_seconds", "seconds"])?;
    // The certificates to revoke exist before the run.
    let max = if scenario == Scenario::Revoke { MAX_STORED_CERTIFICATES } else { MAX_REQUESTS };
    let requests = fields.whole("requests", 1, max)?;
    let unbounded = if scenario == Scenario::Revoke { REQUESTS } else { u64::MAX };
    let rsa_clients = fields.whole("rsa_clients", 1, MAX_CLIENTS)?;
    if rsa_clients.is_some() && scenario != Scenario::Mixed {
        return Err("rsa_clients: only valid with the scenario mixed".to_owned());
    }
    let plan = Plan {
        scenario,
        clients: fields.whole("clients", 1, MAX_CLIENTS)?.unwrap_or(CLIENTS.into()) as usize,
        rsa_clients: rsa_clients.unwrap_or(8) as usize,
        requests: requests.unwrap_or(unbounded),
        seconds,
        pace: Pace { rate, ramp: Duration::from_secs(ramp) },
        key_type: fields.one_of("key_type", &["ec", "ed25519", "rsa"])?.unwrap_or_else(|| "ec".to_owned()),
        key_bits: fields.whole("key_bits", 0, 8192)?.map_or(256, |bits| bits as u32),
        no_store: fields.flag("no_store")?,
        auto_rebuild: fields.flag("auto_rebuild")?,
        ..Plan::default()
    };
    plan.check()?;
    let wanted = Stock {
        certificates: fields.whole("preload", 0, MAX_STORED_CERTIFICATES)?.unwrap_or(0),
        revoked: fields.whole("revoked", 0, MAX_STORED_CERTIFICATES)?.unwrap_or(0),
    };
    wanted.check("")?;
    let own_name = fields.text("name")?.unwrap_or(name);
    let rounds = fields.whole("rounds", 1, 100)?;
    let at_once = fields.flag("at_once")?;
    let target = fields.table("target")?.ok_or("target: must be given")?.target("signet")?;
    let other = fields.table("other")?.map(|other| other.target("other")).transpose()?;
    target.check(scenario, wanted, "target.")?;
    other.as_ref().map_or(Ok(()), |other| other.check(scenario, wanted, "other."))?;
    if rounds.is_some() && other.is_none() {
        return Err("rounds: only valid with other, the server to compare with".to_owned());
    }
    if at_once && other.is_none() {
        return Err("at_once: only valid with other, the server to compare with".to_owned());
    }
    fields.end()?;
    Ok(Order { name: own_name, plan, target, other, rounds: rounds.unwrap_or(3), at_once, wanted })
}

/// Fields of a table that have not been read yet.
struct Fields {
    /// Prefix of field names in errors.
    of: String,
    left: Map<String, Value>,
}

impl Fields {
    /// Removes a field and parses it; `rule` describes its valid values.
    fn take<T>(&mut self, name: &str, rule: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, String> {
        let Some(value) = self.left.remove(name) else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| format!("{}{name}: must be {rule}, and is {value}", self.of))
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, String> {
        let read = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        self.take(name, "a text that is not empty", read)
    }

    fn one_of(&mut self, name: &str, known: &[&str]) -> Result<Option<String>, String> {
        let read = |value: &Value| value.as_str().filter(|text| known.contains(text)).map(str::to_owned);
        self.take(name, &format!("one of {}", known.join(", ")), read)
    }

    fn path(&mut self, name: &str) -> Result<Option<PathBuf>, String> {
        Ok(self.text(name)?.map(PathBuf::from))
    }

    fn flag(&mut self, name: &str) -> Result<bool, String> {
        Ok(self.take(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    fn whole(&mut self, name: &str, min: u64, max: u64) -> Result<Option<u64>, String> {
        let read = |value: &Value| value.as_u64().filter(|number| (min..=max).contains(number));
        self.take(name, &format!("a whole number from {min} to {max}"), read)
    }

    fn number(&mut self, name: &str, range: &RangeInclusive<f64>) -> Result<Option<f64>, String> {
        let read = |value: &Value| value.as_f64().filter(|number| range.contains(number));
        self.take(name, &format!("a number from {} to {}", range.start(), range.end()), read)
    }

    fn table(&mut self, name: &str) -> Result<Option<Self>, String> {
        let left = self.take(name, "a table", |value| value.as_object().cloned())?;
        Ok(left.map(|left| Self { of: format!("{name}."), left }))
    }

    fn target(mut self, name: &str) -> Result<Target, String> {
        let of = self.of.clone();
        let wrong = |field: &str, rule: &str| Err(format!("{of}{field}: {rule}"));
        let token = match self.path("token_file")? {
            Some(file) => read_token(&file).map_err(|cause| format!("{of}token_file: {cause}"))?,
            None => String::new(),
        };
        let rsa_stock = self.whole("rsa_stock", 0, u64::from(u32::MAX))?.map(|keys| keys as u32);
        let target = Target {
            name: self.text("name")?.unwrap_or_else(|| name.to_owned()),
            server: self.path("server")?,
            postgres: self.path("postgres")?,
            data_dir: self.path("data_dir")?.unwrap_or_else(|| DATA_DIR.into()),
            rsa_stock: rsa_stock.unwrap_or(0),
            access_log: self.flag("access_log")?,
            store: self.text("store")?,
            command: self.text("command")?,
            addr: self.text("addr")?.unwrap_or_default(),
            token,
            token_header: self.text("token_header")?,
            ca_file: self.path("ca_file")?,
            pid: self.whole("pid", 1, u64::from(u32::MAX))?.map(|pid| pid as u32),
            mount: self.text("mount")?,
            role: self.text("role")?,
            prepared: self.flag("prepared")?,
            keep: self.flag("keep")?,
        };
        self.end()?;
        if target.mount.as_deref().is_some_and(|mount| mount.starts_with('/') || mount.ends_with('/')) {
            return wrong("mount", "must be a path without a slash at its ends");
        }
        if target.prepared && target.keep {
            return wrong("keep", "must not be given with prepared, which creates nothing");
        }
        if target.server.is_some() {
            let not_beside = [
                ("addr", !target.addr.is_empty()),
                ("command", target.command.is_some()),
                ("ca_file", target.ca_file.is_some()),
                ("pid", target.pid.is_some()),
                ("token_file", !target.token.is_empty()),
                ("store", target.store.is_some()),
            ];
            return match not_beside.iter().find(|(_, given)| *given) {
                Some((field, _)) => wrong(field, "must not be combined with server, which is started here"),
                None => Ok(target),
            };
        }
        if target.postgres.is_some() {
            return wrong("postgres", "only valid with server, which is started here");
        }
        if rsa_stock.is_some() {
            return wrong("rsa_stock", "only valid with server, which is started here");
        }
        if target.access_log {
            return wrong("access_log", "only valid with server, which is started here");
        }
        if target.addr.is_empty() {
            return wrong("addr", "must be given, or server");
        }
        target.peer().map_err(|cause| format!("{of}{cause}"))?;
        Ok(target)
    }

    /// Rejects unknown fields.
    fn end(self) -> Result<(), String> {
        match self.left.keys().next() {
            Some(name) => Err(format!("{}{name}: there is no such field", self.of)),
            None => Ok(()),
        }
    }
}

fn read_token(file: &Path) -> Result<String, String> {
    let token = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let token = token.trim().to_owned();
    if token.is_empty() { Err(format!("{} is empty", file.display())) } else { Ok(token) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "[target]\naddr = \"http://127.0.0.1:8200\"\n";

    fn refusal(plan: &str) -> String {
        read(plan, false).err().unwrap_or_else(|| format!("taken: {plan}"))
    }

    #[test]
    fn a_plan_says_all_there_is_to_say() {
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
        assert_eq!((plan.clients, plan.requests, plan.seconds, plan.key_bits), (200, 900_000, 600, 384));
        assert_eq!(plan.pace, Pace { rate: Some(1500.5), ramp: Duration::from_secs(10) });
        assert!(plan.no_store && !plan.auto_rebuild);
        assert_eq!(order.wanted, Stock { certificates: 1000, revoked: 10 });
        assert_eq!((order.target.server, order.target.rsa_stock), (Some(PathBuf::from("./signet")), 9));
        let other = order.other.unwrap();
        assert_eq!((other.name.as_str(), other.token.as_str(), other.pid), ("bao", "t.secret", Some(7)));
        assert_eq!(
            (other.mount.as_deref(), other.role.as_deref(), other.prepared),
            (Some("ca/int"), Some("web"), true)
        );
        assert_eq!(other.store.as_deref(), Some("memory"));
    }

    #[test]
    fn little_is_enough_and_json_says_the_same() {
        let order = read(&format!("scenario = \"sign\"\n{TARGET}"), false).unwrap();
        assert_eq!((order.plan.clients, order.plan.seconds, order.plan.requests), (64, 60, u64::MAX));
        assert_eq!((order.target.mount.as_deref(), order.other.is_none()), (None, true));
        let json = r#"{ "scenario": "sign", "target": { "addr": "http://127.0.0.1:8200" } }"#;
        assert_eq!(read(json, true).unwrap().target, order.target);
        assert_eq!(read(&format!("scenario = \"revoke\"\n{TARGET}"), false).unwrap().plan.requests, REQUESTS);
    }

    #[test]
    fn invalid_plan_fields_are_named_with_their_rule() {
        for (plan, says) in [
            ("", "scenario: must be given"),
            ("scenario = \"else\"", "scenario: must be one of issue, sign, revoke, mixed, login, crl-get"),
            ("scenario = \"projects\"", "scenario: must be one of issue,"),
            ("scenario = 7", "scenario: must be a text that is not empty, and is 7"),
            ("scenario = \"issue\"", "target: must be given"),
            ("scenario = \"issue\"\ntarget = 1", "target: must be a table, and is 1"),
        ] {
            assert!(refusal(plan).starts_with(says), "{plan}: {}", refusal(plan));
        }
        for (line, says) in [
            ("clients = 0", "clients: must be a whole number from 1 to 10000, and is 0"),
            ("clients = \"many\"", "clients: must be a whole number from 1 to 10000, and is \"many\""),
            ("rate = 0", "rate: must be a number from 0.001 to 1000000, and is 0"),
            ("rate = -2.5", "rate: must be a number from 0.001 to 1000000, and is -2.5"),
            ("seconds = 90000", "seconds: must be a whole number from 1 to 86400, and is 90000"),
            ("seconds = 5\nramp_seconds = 6", "ramp_seconds: must not be more than seconds"),
            ("requests = 1.5", "requests: must be a whole number"),
            ("key_type = \"dsa\"", "key_type: must be one of ec, ed25519, rsa, and is \"dsa\""),
            ("no_store = \"yes\"", "no_store: must be true or false, and is \"yes\""),
            ("revoked = 5", "revoked: must not be more than preload"),
            ("rsa_clients = 5", "rsa_clients: only valid with the scenario mixed"),
            ("rounds = 3", "rounds: only valid with other"),
            ("at_once = true", "at_once: only valid with other"),
            ("scenario = \"sign\"\nkey_type = \"rsa\"", "sign: the key type must be ec of 256 or 384 bits"),
            (
                "scenario = \"sign\"\nkey_bits = 521",
                "sign: the key type must be ec of 256 or 384 bits, or ed25519, and is ec",
            ),
            ("client = 5", "client: there is no such field"),
        ] {
            let scenario = if line.starts_with("scenario") { "" } else { "scenario = \"issue\"\n" };
            let refusal = refusal(&format!("{scenario}{line}\n{TARGET}"));
            assert!(refusal.starts_with(says), "{line}: {refusal}");
        }
        for (target, says) in [
            ("", "target.addr: must be given, or server"),
            ("addr = \"127.0.0.1\"", "target.addr: must be http://HOST:PORT or https://HOST:PORT, and is 127.0.0.1"),
            ("addr = \"https://a\"", "target.ca_file: an https address needs one"),
            ("addr = \"http://a\"\ntoken_header = \"X Y\"", "target.token_header: must be the name of a header"),
            ("addr = \"http://a\"\nprepared = true", "target.role: must be given with target.prepared for issue"),
            ("addr = \"http://a\"\nprepared = true\nrole = \"web\"\nkeep = true", "target.keep: must not be given"),
            ("addr = \"http://a\"\naccess_log = true", "target.access_log: only valid with server"),
            ("addr = \"http://a\"\nmount = \"/pki\"", "target.mount: must be a path without a slash"),
            ("addr = \"http://a\"\npostgres = \"auto\"", "target.postgres: only valid with server"),
            ("addr = \"http://a\"\nrsa_stock = 9", "target.rsa_stock: only valid with server"),
            ("server = \"./signet\"\nstore = \"memory\"", "target.store: must not be combined with server"),
            ("addr = \"http://a\"\nserver = \"./signet\"", "target.addr: must not be combined with server"),
            ("addr = \"http://a\"\ntoken_file = \"/nowhere\"", "target.token_file: /nowhere: "),
            ("addr = \"http://a\"\ntoken = \"x\"", "target.token: there is no such field"),
        ] {
            let refusal = refusal(&format!("scenario = \"issue\"\n[target]\n{target}\n"));
            assert!(refusal.starts_with(says), "{target}: {refusal}");
        }
    }

    #[test]
    fn malformed_plan_is_refused_with_its_location() {
        assert!(refusal("scenario = ").contains("line 1"));
        assert!(read("[]", true).is_err_and(|cause| cause == "a plan must be an object"));
    }
}

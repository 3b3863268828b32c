//! The scenario `sign-managed`: `sign` by issuers with managed keys, compared with issuers that have software keys of
//! the same type.
//!
//! With `--server` the device is SoftHSM, with a token in the data folder. The limit for CPU per request is then the
//! figure in software, less a software signature, plus a bare call of the module and [`WAY`]. A managed key of a
//! running server (`--managed-key`) has no limit, because the cost of its module or service is unknown.

use hyper::Method;
use serde_json::{Value, json};

use crate::drive::{Figures, Place};
use crate::module::{self, Kind};
use crate::plan::Plan;
use crate::proc::Watched;
use crate::run_context::{INTERRUPTED, is_interrupted};
use crate::scenario;
use crate::server::{Launch, Started};
use crate::{Args, Scenario};

/// CPU microseconds that the path to a device and back may cost: two hops, the verification, and the overhead of the
/// call.
const WAY: f64 = 85.0;
/// Name of the library in the server's configuration.
const LIBRARY: &str = "softhsm";

struct Part {
    rate: f64,
    p50: f64,
    p99: f64,
    /// CPU microseconds per request; `None` if the server's process is unknown.
    cpu: Option<f64>,
}

struct Measured {
    name: String,
    software: Part,
    managed: Part,
    /// CPU microseconds of a signature in software and of one by the module.
    calls: Option<(f64, f64)>,
}

impl Measured {
    /// Returns the limit for the CPU per request with the managed key.
    fn at_most(&self) -> Option<f64> {
        let (signature, bare) = self.calls?;
        self.software.cpu.map(|cpu| cpu - signature + bare + WAY)
    }

    fn misses(&self) -> bool {
        self.managed.cpu.zip(self.at_most()).is_some_and(|(cpu, most)| cpu > most)
    }
}

/// Must be called first: SoftHSM reads its environment variable in the server and in this process.
pub(crate) fn in_its_environment(args: &Args) -> Result<(), String> {
    let own = args.scenario() == Scenario::SignManaged && args.managed_key.is_none();
    if own { module::in_its_environment(&args.target.data_dir) } else { Ok(()) }
}

/// Runs the parts and prints the figures. Fails if the limit is exceeded.
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let (store, all) = match &args.managed_key {
        Some(name) => (None, vec![own_key(args, name).await?]),
        None => {
            let (store, all) = softhsm(args).await?;
            (Some(store), all)
        }
    };
    print(store.as_deref(), &all);
    let keys: Vec<Value> = all.iter().map(json_of).collect();
    args.outputs.write_json(&json!({ "scenario": "sign-managed", "store": store, "keys": keys }))?;
    let missed: Vec<&str> = all.iter().filter(|of| of.misses()).map(|of| of.name.as_str()).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("CPU per request above its bound: {}", missed.join(", "))) }
}

async fn softhsm(args: &Args) -> Result<(String, Vec<Measured>), String> {
    let library = format!("{LIBRARY}={}", args.softhsm.display());
    let launch = Launch { arguments: &["--pkcs11-library", library.as_str()], ..args.launch()? };
    let server = Started::launch(&launch).await?;
    let place = server.place();
    let watched = server.watched();
    let mut all = Vec::new();
    for kind in [Kind::P256, Kind::Rsa2048] {
        match in_device(args, &place, watched, kind).await {
            Ok(measured) => all.push(measured),
            Err(_) if is_interrupted() => break,
            Err(cause) => return Err(cause),
        }
    }
    Ok((server.store()?, all))
}

async fn in_device(args: &Args, place: &Place<'_>, watched: Watched, kind: Kind) -> Result<Measured, String> {
    let key = register(place, kind, args.max_parallel).await?;
    let (key_type, bits) = kind.parameters();
    let (mut software, _) = Issuer::of_software(place, key_type, bits).measure(args, place, watched).await?;
    let (managed, _) = Issuer::of_managed(place, &key).measure(args, place, watched).await?;
    // Measured again afterwards, because the speed of the machine may have changed.
    let (again, _) = Issuer::of_software(place, key_type, bits).measure(args, place, watched).await?;
    software.cpu = software.cpu.zip(again.cpu).map(|(one, other)| (one + other) / 2.0);
    // As many concurrent calls as the server makes, so that the machine's cores are equally busy.
    let at_once = usize::from(args.max_parallel);
    let calls = (module::software(kind, at_once)?, module::bare_call(&args.softhsm, kind, at_once)?);
    Ok(Measured { name: kind.label().to_owned(), software, managed, calls: Some(calls) })
}

/// Registers the managed key and returns its name. The token generates the key at its first use.
async fn register(place: &Place<'_>, kind: Kind, max_parallel: u16) -> Result<String, String> {
    let mut body = json!({
        "library": LIBRARY,
        "token_label": module::TOKEN,
        "pin": module::PIN,
        "key_label": kind.label(),
        "allow_generate_key": "true",
        "max_parallel": max_parallel,
    });
    match kind {
        Kind::P256 => {
            body["mechanism"] = "0x1041".into();
            body["curve"] = "P256".into();
        }
        Kind::Rsa2048 => {
            body["mechanism"] = "0x0001".into();
            body["key_bits"] = 2048.into();
        }
    }
    let name = place.provisioner.fresh_name();
    let path = format!("/v1/sys/managed-keys/pkcs11/{name}");
    place.provisioner.create_absent("managed key", &name, &path, &body).await?;
    Ok(name)
}

/// Measures a managed key of the user, and a software key of its type: RSA-2048 or P-256.
async fn own_key(args: &Args, name: &str) -> Result<Measured, String> {
    let open = args.order()?.target.open(Scenario::SignManaged).await?;
    let place = open.place();
    let watched = open.watched;
    let (managed, key_type) = Issuer::of_managed(&place, name).measure(args, &place, watched).await?;
    let (key_type, bits) = match key_type.as_str() {
        "rsa" => Kind::Rsa2048.parameters(),
        "ec" => Kind::P256.parameters(),
        other => return Err(format!("sign-managed: keys of type {other} are not supported (rsa or ec)")),
    };
    let (software, _) = Issuer::of_software(&place, key_type, bits).measure(args, &place, watched).await?;
    Ok(Measured { name: format!("{name} ({key_type}; software: {bits})"), software, managed, calls: None })
}

/// An issuer in its own mount, which is removed after the run.
struct Issuer {
    mount: String,
    allowed: Vec<String>,
    /// Last segment of the path that generates the root.
    source: &'static str,
    key: Value,
}

impl Issuer {
    fn of_software(place: &Place<'_>, key_type: &str, bits: u32) -> Self {
        let key = json!({ "key_type": key_type, "key_bits": bits });
        Self { mount: place.provisioner.fresh_name(), allowed: Vec::new(), source: "internal", key }
    }

    fn of_managed(place: &Place<'_>, name: &str) -> Self {
        let key = json!({ "managed_key_name": name });
        Self { mount: place.provisioner.fresh_name(), allowed: vec![name.to_owned()], source: "kms", key }
    }

    /// Returns the results of its requests, and the type of its key.
    async fn measure(&self, args: &Args, place: &Place<'_>, watched: Watched) -> Result<(Part, String), String> {
        let place = Place { mount: &self.mount, ..*place };
        let key_type = self.make(&place).await?;
        let plan = Plan { scenario: Scenario::Sign, ..args.plan(Vec::new()) };
        let figures = scenario::run(&plan, &place, watched).await?;
        if figures.interrupted {
            figures.print_classes();
            return Err(INTERRUPTED.to_owned());
        }
        Ok((part(&figures)?, key_type))
    }

    async fn make(&self, place: &Place<'_>) -> Result<String, String> {
        let mount = &self.mount;
        let provisioner = place.provisioner;
        provisioner.mount(mount, &json!({ "type": "pki" })).await?;
        let tuned = json!({ "max_lease_ttl": scenario::ROOT_TTL, "allowed_managed_keys": self.allowed });
        provisioner.must(&format!("/v1/sys/mounts/{mount}/tune"), &tuned).await?;
        let mut root = self.key.clone();
        root["common_name"] = "Load root".into();
        root["ttl"] = scenario::ROOT_TTL.into();
        let made = provisioner.must(&format!("/v1/{mount}/root/generate/{}", self.source), &root).await?;
        let key = made["data"]["key_id"].as_str().ok_or("a root without a key was made")?;
        let path = format!("/v1/{mount}/key/{key}");
        let shown = place.connect().await?.send(Method::GET, &path, bytes::Bytes::new()).await?;
        let shown: Value = serde_json::from_slice(&shown.body).map_err(|e| format!("{path}: {e}"))?;
        shown["data"]["key_type"].as_str().map(str::to_owned).ok_or_else(|| format!("{path}: no key_type"))
    }
}

/// Returns the results of the only class. All of its requests must have succeeded.
fn part(figures: &Figures) -> Result<Part, String> {
    let class = figures.succeeded("sign")?;
    Ok(Part {
        rate: class.count() as f64 / figures.elapsed.as_secs_f64(),
        p50: class.percentile(50.0),
        p99: class.percentile(99.0),
        cpu: figures.per_request(figures.cpu.sum()),
    })
}

fn part_json(part: &Part) -> Value {
    let latency = json!({ "p50": part.p50, "p99": part.p99 });
    json!({ "requests_per_second": part.rate, "latency_ms": latency, "cpu_us_per_request": part.cpu })
}

fn json_of(of: &Measured) -> Value {
    json!({
        "key": of.name,
        "software": part_json(&of.software),
        "managed": part_json(&of.managed),
        "signature_us": of.calls.map(|(signature, _)| signature),
        "bare_call_us": of.calls.map(|(_, bare)| bare),
        "at_most_us": of.at_most(),
    })
}

fn print(store: Option<&str>, all: &[Measured]) {
    println!("sign-managed on {}", store.unwrap_or("a running server"));
    for of in all {
        println!("  {}", of.name);
        for (name, part) in [("software", &of.software), ("managed key", &of.managed)] {
            let cpu = part.cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.1}"));
            let Part { rate, p50, p99, .. } = part;
            println!("    {name:<13} {cpu} µs CPU per request; {rate:.0} per second, ms p50 {p50:.2} p99 {p99:.2}");
        }
        if let Some((signature, bare)) = of.calls {
            println!("    signature     {signature:.1} µs CPU in software, {bare:.1} µs by a bare call of the module");
        }
        if let Some(most) = of.at_most() {
            let verdict = if of.misses() { "missed" } else { "held" };
            println!(
                "    at most       {most:.1} µs: software less its signature, the bare call and {WAY} µs; {verdict}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(software: Option<f64>, managed: Option<f64>, calls: Option<(f64, f64)>) -> Measured {
        let part = |cpu| Part { rate: 1.0, p50: 1.0, p99: 1.0, cpu };
        Measured { name: "any".to_owned(), software: part(software), managed: part(managed), calls }
    }

    #[test]
    fn bound_replaces_the_software_signature_by_the_call_cost() {
        let calls = Some((30.0, 120.0));
        assert_eq!(measured(Some(400.0), None, calls).at_most(), Some(575.0));
        assert!(!measured(Some(400.0), Some(575.0), calls).misses());
        assert!(measured(Some(400.0), Some(575.1), calls).misses());
    }

    #[test]
    fn without_the_processes_or_the_module_there_is_no_bound() {
        assert_eq!(measured(None, Some(9_000.0), Some((30.0, 120.0))).at_most(), None);
        assert_eq!(measured(Some(400.0), Some(9_000.0), None).at_most(), None);
        assert!(!measured(Some(400.0), Some(9_000.0), None).misses());
        assert_eq!(json_of(&measured(Some(400.0), None, None))["at_most_us"], Value::Null);
    }
}

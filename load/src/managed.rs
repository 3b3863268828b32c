//! The scenario `sign-managed`: `sign` by issuers with managed keys, compared with issuers that have software keys of
//! the same type.
//!
//! With `--server` the device is SoftHSM, with a token in the data folder. The limit for CPU per request is then the
//! figure in software, less a software signature, plus a bare call of the module and [`DEVICE_PATH_MICROSECONDS`]. A
//! managed key of a running server (`--managed-key`) has no limit, because the cost of its module or service is
//! unknown.

use serde_json::{Value, json};

use crate::drive::ServerAccess;
use crate::figures::Figures;
use crate::module::{self, DeviceKeyType};
use crate::mount::ROOT_TTL;
use crate::order::RunArgs;
use crate::plan::Plan;
use crate::proc::WatchedProcesses;
use crate::report::{Report, print_interrupted};
use crate::run_context::{INTERRUPTED, is_interrupted};
use crate::scenario::Scenario;
use crate::server::{Launch, Server};
use crate::workload;

/// CPU microseconds that the path to a device and back may cost: two hops, the verification, and the overhead of the
/// call.
const DEVICE_PATH_MICROSECONDS: f64 = 85.0;
/// Name of the library in the server's configuration.
const LIBRARY: &str = "softhsm";

struct SignFigures {
    rate: f64,
    p50: Option<f64>,
    p99: Option<f64>,
    /// CPU microseconds per request; `None` if the server's process is unknown.
    cpu: Option<f64>,
}

struct ManagedKey {
    name: String,
    software: SignFigures,
    managed: SignFigures,
    /// CPU microseconds of a signature in software and of one by the module.
    calls: Option<(f64, f64)>,
}

impl ManagedKey {
    /// Returns the limit for the CPU per request with the managed key.
    fn max_cpu_us(&self) -> Option<f64> {
        let (signature, bare) = self.calls?;
        self.software.cpu.map(|cpu| cpu - signature + bare + DEVICE_PATH_MICROSECONDS)
    }

    fn exceeds_limit(&self) -> bool {
        self.managed.cpu.zip(self.max_cpu_us()).is_some_and(|(cpu, most)| cpu > most)
    }

    fn json(&self) -> Value {
        json!({
            "key": self.name,
            "software": self.software.json(),
            "managed": self.managed.json(),
            "signature_us": self.calls.map(|(signature, _)| signature),
            "bare_call_us": self.calls.map(|(_, bare)| bare),
            "at_most_us": self.max_cpu_us(),
        })
    }
}

/// Sets the environment variable of SoftHSM, which the server and this process read. Must be called first.
pub(crate) fn set_softhsm_environment(args: &RunArgs) -> Result<(), String> {
    let own = args.scenario() == Scenario::SignManaged && args.managed_key.is_none();
    if own { module::set_softhsm_environment(&args.target.launch.data_dir) } else { Ok(()) }
}

/// Runs the parts and prints the figures. Fails if the limit is exceeded.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let (server, all) = match &args.managed_key {
        Some(name) => {
            let server = args.order()?.target.open(Scenario::SignManaged).await?;
            let key = own_key(args, &server, name).await?;
            (server, vec![key])
        }
        None => softhsm(args).await?,
    };
    let keys: Vec<Value> = all.iter().map(ManagedKey::json).collect();
    let columns = [
        ("key", "/key"),
        ("software: CPU µs", "/software/cpu_us_per_request"),
        ("per second", "/software/requests_per_second"),
        ("p99 ms", "/software/latency_ms/p99"),
        ("managed key: CPU µs", "/managed/cpu_us_per_request"),
        ("at most", "/at_most_us"),
        ("per second", "/managed/requests_per_second"),
        ("p99 ms", "/managed/latency_ms/p99"),
        ("signature µs: software", "/signature_us"),
        ("module", "/bare_call_us"),
    ];
    // Only a server that was started here knows its store; the user's description is not part of this report.
    let store = if server.is_launched() { server.store()? } else { None };
    let json = json!({ "scenario": "sign-managed", "store": store, "keys": keys });
    Report::new(server.title("sign-managed")?, json).table("keys", "/keys", &columns).publish(&args.outputs)?;
    let missed: Vec<&str> = all.iter().filter(|of| of.exceeds_limit()).map(|of| of.name.as_str()).collect();
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("CPU per request above the limit, with the keys: {}", missed.join(", ")))
    }
}

async fn softhsm(args: &RunArgs) -> Result<(Server, Vec<ManagedKey>), String> {
    let library = format!("{LIBRARY}={}", args.softhsm.display());
    let arguments = vec!["--pkcs11-library".to_owned(), library];
    let server = Server::launch(&Launch { arguments, ..args.target.launch.clone() }).await?;
    let mut all = Vec::new();
    for kind in [DeviceKeyType::P256, DeviceKeyType::Rsa2048] {
        match in_device(args, &server.access(), server.watched, kind).await {
            Ok(measured) => all.push(measured),
            Err(_) if is_interrupted() => break,
            Err(cause) => return Err(cause),
        }
    }
    Ok((server, all))
}

async fn in_device(
    args: &RunArgs,
    access: &ServerAccess<'_>,
    watched: WatchedProcesses,
    kind: DeviceKeyType,
) -> Result<ManagedKey, String> {
    let key = register(access, kind, args.max_parallel).await?;
    let (key_type, bits) = kind.parameters();
    let (mut software, _) = MeasuredIssuer::of_software(access, key_type, bits).measure(args, access, watched).await?;
    let (managed, _) = MeasuredIssuer::of_managed(access, &key).measure(args, access, watched).await?;
    // Measured again afterwards, because the speed of the machine may have changed.
    let (again, _) = MeasuredIssuer::of_software(access, key_type, bits).measure(args, access, watched).await?;
    software.cpu = software.cpu.zip(again.cpu).map(|(one, other)| (one + other) / 2.0);
    // As many concurrent calls as the server makes, so that the machine's cores are equally busy.
    let at_once = usize::from(args.max_parallel);
    let calls = (module::software(kind, at_once)?, module::bare_call(&args.softhsm, kind, at_once)?);
    Ok(ManagedKey { name: kind.label().to_owned(), software, managed, calls: Some(calls) })
}

/// Registers the managed key and returns its name. The token generates the key at its first use.
async fn register(access: &ServerAccess<'_>, kind: DeviceKeyType, max_parallel: u16) -> Result<String, String> {
    let mut body = json!({
        "library": LIBRARY,
        "token_label": module::TOKEN,
        "pin": module::PIN,
        "key_label": kind.label(),
        "allow_generate_key": "true",
        "max_parallel": max_parallel,
    });
    match kind {
        DeviceKeyType::P256 => {
            body["mechanism"] = "0x1041".into();
            body["curve"] = "P256".into();
        }
        DeviceKeyType::Rsa2048 => {
            body["mechanism"] = "0x0001".into();
            body["key_bits"] = 2048.into();
        }
    }
    let name = access.provisioner.fresh_name();
    let path = format!("/v1/sys/managed-keys/pkcs11/{name}");
    access.provisioner.create_absent("managed key", &name, &path, &body).await?;
    Ok(name)
}

/// Measures a managed key of the user, and a software key of its type: RSA-2048 or P-256.
async fn own_key(args: &RunArgs, server: &Server, name: &str) -> Result<ManagedKey, String> {
    let access = server.access();
    let watched = server.watched;
    let (managed, key_type) = MeasuredIssuer::of_managed(&access, name).measure(args, &access, watched).await?;
    let (key_type, bits) = match key_type.as_str() {
        "rsa" => DeviceKeyType::Rsa2048.parameters(),
        "ec" => DeviceKeyType::P256.parameters(),
        other => return Err(format!("sign-managed: keys of type {other} are not supported (rsa or ec)")),
    };
    let (software, _) = MeasuredIssuer::of_software(&access, key_type, bits).measure(args, &access, watched).await?;
    Ok(ManagedKey { name: format!("{name} ({key_type}; software: {bits})"), software, managed, calls: None })
}

/// An issuer in its own mount, which is removed after the run.
struct MeasuredIssuer {
    mount: String,
    allowed: Vec<String>,
    /// Last segment of the path that generates the root.
    source: &'static str,
    key: Value,
}

impl MeasuredIssuer {
    fn of_software(access: &ServerAccess<'_>, key_type: &str, bits: u32) -> Self {
        let key = json!({ "key_type": key_type, "key_bits": bits });
        Self { mount: access.provisioner.fresh_name(), allowed: Vec::new(), source: "internal", key }
    }

    fn of_managed(access: &ServerAccess<'_>, name: &str) -> Self {
        let key = json!({ "managed_key_name": name });
        Self { mount: access.provisioner.fresh_name(), allowed: vec![name.to_owned()], source: "kms", key }
    }

    /// Returns the results of requests to this issuer, and the type of its key.
    async fn measure(
        &self,
        args: &RunArgs,
        access: &ServerAccess<'_>,
        watched: WatchedProcesses,
    ) -> Result<(SignFigures, String), String> {
        let access = ServerAccess { mount: &self.mount, ..*access };
        let key_type = self.make(&access).await?;
        let plan = Plan { scenario: Scenario::Sign, ..args.plan() };
        let figures = workload::run(&plan, &access, watched).await?;
        if figures.interrupted {
            print_interrupted(&figures);
            return Err(INTERRUPTED.to_owned());
        }
        Ok((sign_figures(&figures)?, key_type))
    }

    async fn make(&self, access: &ServerAccess<'_>) -> Result<String, String> {
        let mount = &self.mount;
        let provisioner = access.provisioner;
        provisioner.mount(mount, &json!({ "type": "pki" })).await?;
        let tuned = json!({ "max_lease_ttl": ROOT_TTL, "allowed_managed_keys": self.allowed });
        provisioner.post(&format!("/v1/sys/mounts/{mount}/tune"), &tuned).await?;
        let mut root = self.key.clone();
        root["common_name"] = "Load root".into();
        root["ttl"] = ROOT_TTL.into();
        let made = provisioner.post(&format!("/v1/{mount}/root/generate/{}", self.source), &root).await?;
        let key = made["data"]["key_id"].as_str().ok_or("root/generate: the response has no key_id")?;
        let path = format!("/v1/{mount}/key/{key}");
        let shown = access.connect().await?.get_json(&path).await?;
        shown["data"]["key_type"].as_str().map(str::to_owned).ok_or_else(|| format!("{path}: no key_type"))
    }
}

/// Returns the results of the only class. Fails if any of its requests failed.
fn sign_figures(figures: &Figures) -> Result<SignFigures, String> {
    let class = figures.succeeded("sign")?;
    Ok(SignFigures {
        rate: figures.rate(class),
        p50: class.percentile_ms(50.0),
        p99: class.percentile_ms(99.0),
        cpu: figures.per_request(figures.cpu.sum()),
    })
}

impl SignFigures {
    fn json(&self) -> Value {
        let latency = json!({ "p50": self.p50, "p99": self.p99 });
        json!({ "requests_per_second": self.rate, "latency_ms": latency, "cpu_us_per_request": self.cpu })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(software: Option<f64>, managed: Option<f64>, calls: Option<(f64, f64)>) -> ManagedKey {
        let part = |cpu| SignFigures { rate: 1.0, p50: Some(1.0), p99: Some(1.0), cpu };
        ManagedKey { name: "any".to_owned(), software: part(software), managed: part(managed), calls }
    }

    #[test]
    fn managed_key_limit_replaces_the_signature_by_the_call() {
        let calls = Some((30.0, 120.0));
        assert_eq!(measured(Some(400.0), None, calls).max_cpu_us(), Some(575.0));
        assert!(!measured(Some(400.0), Some(575.0), calls).exceeds_limit());
        assert!(measured(Some(400.0), Some(575.1), calls).exceeds_limit());
    }

    #[test]
    fn managed_key_without_process_or_module_has_no_limit() {
        assert_eq!(measured(None, Some(9_000.0), Some((30.0, 120.0))).max_cpu_us(), None);
        assert_eq!(measured(Some(400.0), Some(9_000.0), None).max_cpu_us(), None);
        assert!(!measured(Some(400.0), Some(9_000.0), None).exceeds_limit());
        assert_eq!(measured(Some(400.0), None, None).json()["at_most_us"], Value::Null);
    }
}

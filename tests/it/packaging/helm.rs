//! The Helm chart. The commands, flags, settings and paths in its text exist in the program. The objects rendered for
//! the values in `ci` are accepted by the program and by Kubernetes' own schemas.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use signet::config::SETTINGS;
use signet::http::secrets::all_routes;

use super::{documents, root, texts, yaml};
use crate::crash::left_out_anywhere;
use crate::process::{run, signet};
use crate::support::place_of;

const CHART: &str = "packaging/helm";
/// The oldest version that the chart supports.
const KUBERNETES: &str = "1.30.0";
/// APIs of operators, excluded from the validation: kubectl-validate knows only built-in kinds.
const CUSTOM: [&str; 2] = ["monitoring.coreos.com/v1", "cert-manager.io/v1"];

/// The value files and the kinds of the objects rendered with each, in alphabetical order.
const RENDERED: [(&str, &str); 6] = [
    ("embedded", "ConfigMap PersistentVolumeClaim Service ServiceAccount StatefulSet"),
    (
        "everything",
        "ConfigMap Deployment Job NetworkPolicy PodDisruptionBudget PrometheusRule Service Service \
         Service ServiceAccount ServiceMonitor",
    ),
    (
        "monitoring",
        "ConfigMap PersistentVolumeClaim PrometheusRule Service Service ServiceAccount ServiceMonitor \
         StatefulSet",
    ),
    ("postgresql-tls", "ConfigMap Deployment PodDisruptionBudget Service ServiceAccount"),
    ("public", "ConfigMap Service Service ServiceAccount StatefulSet"),
    ("setup", "ConfigMap Job PersistentVolumeClaim Service ServiceAccount StatefulSet"),
];

const COMMANDS: [(&str, &[&str]); 3] =
    [("setup.yaml", &["setup"]), ("workload.yaml", &["serve"]), ("_helpers.tpl", &["health"])];

/// Values that the schema rejects, on top of the embedded ones.
const REJECTED: [&str; 13] = [
    "bogus=1",
    "tls.secret=signet-tls",
    "image.repository=",
    "image.digest=sha256:12",
    "store.kind=mysql",
    "store.kind=postgresql",
    "store.embedded.accessMode=ReadWriteMany",
    "sealKey.secret.name=",
    "public.url=https://pki.example.test",
    "api.service.port=0",
    "log.format=xml",
    "metrics.serviceMonitor.enabled=true",
    "setup.enabled=true",
];

struct ChartFile {
    name: String,
    text: String,
}

fn chart_files() -> Vec<ChartFile> {
    let folders = ["", "templates", "examples", "ci"].map(|folder| root().join(CHART).join(folder));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    // The symbolic links lead to `grafana`, which has its own tests.
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file() && !path.is_symlink());
    paths
        .map(|path| ChartFile {
            name: path.file_name().unwrap().to_str().unwrap().to_owned(),
            text: std::fs::read_to_string(&path).unwrap(),
        })
        .collect()
}

fn chart_file(name: &str) -> String {
    chart_files().into_iter().find(|file| file.name == name).unwrap().text
}

/// Splits a text into runs of allowed characters.
fn words(text: &str, is_allowed: impl Fn(char) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |c| !is_allowed(c)).filter(|word| !word.is_empty())
}

/// The flags in a text, without the values behind `=`.
fn flags(text: &str) -> impl Iterator<Item = &str> {
    words(text, |c| c.is_ascii_lowercase() || c == '-')
        .filter(|word| word.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase())))
}

fn known_flags(command: &[&str]) -> BTreeSet<String> {
    flags(&run(signet().args(command).arg("--help")).0).map(str::to_owned).collect()
}

fn is_route(path: &str) -> bool {
    let path = path.trim_start_matches("/v1/").replace("auth/kubernetes", "auth/jwt");
    let wanted: Vec<&str> = path.split('/').collect();
    all_routes().any(|(kind, route)| {
        let pattern = format!("{}/{}", place_of(kind), route.pattern);
        let pattern: Vec<&str> = pattern.split('/').collect();
        let fits = |(part, segment): (&&str, &&str)| part == segment || part.starts_with([':', '*']);
        pattern.len() == wanted.len() && pattern.iter().zip(&wanted).all(fits)
    })
}

/// A tool in PATH, or in the folder that `tests/run` fills.
fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain([root().join("target/helm-tools")])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    if found.is_none() {
        left_out_anywhere(&format!("no {name} (tests/run installs it where there is go)"));
    }
    found
}

fn run_helm(helm: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(helm).args(arguments).current_dir(root().join(CHART)).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr))),
    }
}

fn values_file(name: &str) -> String {
    format!("ci/{name}-values.yaml")
}

fn render(helm: &Path, name: &str) -> Vec<Value> {
    let values = values_file(name);
    let arguments =
        ["template", "signet", ".", "--namespace", "pki", "--kube-version", KUBERNETES, "--values", &values];
    documents(&run_helm(helm, &arguments).unwrap())
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind)
}

fn pods(objects: &[Value]) -> Vec<&Value> {
    ["StatefulSet", "Deployment", "Job"]
        .into_iter()
        .filter_map(|kind| of_kind(objects, kind))
        .map(|object| &object["spec"]["template"]["spec"])
        .collect()
}

/// Containers that the chart itself defines.
fn own_containers(pod: &Value) -> Vec<&Value> {
    let containers = pod["containers"].as_array().unwrap();
    containers.iter().filter(|container| container["name"] != "audit-forwarder").collect()
}

fn assert_restricted(name: &str, pod: &Value) {
    assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
    assert_eq!(pod["enableServiceLinks"], false, "{name}");
    let security = &pod["securityContext"];
    assert_eq!(security["runAsNonRoot"], true, "{name}");
    assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault", "{name}");
    let containerfile = std::fs::read_to_string(root().join("packaging/Containerfile")).unwrap();
    let user = format!("USER {}:{}\n", security["runAsUser"], security["runAsGroup"]);
    assert!(containerfile.contains(&user), "{name}: the image has another user than {user}");
    for container in own_containers(pod) {
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(texts(&security["capabilities"]["drop"]), ["ALL"], "{name}");
        assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
    }
}

/// The command lines of the program in a pod: arguments of containers and commands of probes.
fn command_lines(pod: &Value) -> Vec<Vec<&str>> {
    let containers = pod["containers"].as_array().unwrap().iter();
    let own = containers.filter(|container| ["signet", "setup"].contains(&container["name"].as_str().unwrap()));
    own.flat_map(|container| {
        let probes = ["startupProbe", "livenessProbe", "readinessProbe"]
            .map(|probe| texts(&container[probe]["exec"]["command"]))
            .into_iter()
            .filter(|command| !command.is_empty())
            .map(|command| {
                assert_eq!(command[0], "/usr/bin/signet");
                command[1..].to_vec()
            });
        probes.chain([texts(&container["args"])])
    })
    .collect()
}

/// Asserts that the program accepts the rendered configuration with the container's environment.
fn assert_configuration(name: &str, objects: &[Value], pod: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("signet.toml");
    std::fs::write(&file, of_kind(objects, "ConfigMap").unwrap()["data"]["signet.toml"].as_str().unwrap()).unwrap();
    let mut check = signet();
    check.args(["check", "--file-only", "--config"]).arg(&file).env_remove("SIGNET_LOG");
    for variable in pod["containers"][0]["env"].as_array().into_iter().flatten() {
        let key = "5a".repeat(32);
        let value = match variable["name"].as_str().unwrap() {
            "SIGNET_DATABASE_URL" => "postgres://signet@127.0.0.1/signet",
            "SIGNET_SEAL_KEY" => &key,
            _ => variable["value"].as_str().unwrap(),
        };
        check.env(variable["name"].as_str().unwrap(), value);
    }
    let output = check.output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Liveness and startup must not depend on the store; only readiness may.
fn assert_probes(name: &str, pod: &Value) {
    let container = &pod["containers"][0];
    let has_tls = pod["volumes"].as_array().unwrap().iter().any(|volume| volume["name"] == "tls");
    for (probe, path) in [("startupProbe", "live"), ("livenessProbe", "live"), ("readinessProbe", "health")] {
        let probe = &container[probe];
        if has_tls {
            assert_eq!(probe["httpGet"]["path"], format!("/v1/sys/{path}"), "{name}");
            assert_eq!(probe["httpGet"]["scheme"], "HTTPS", "{name}");
        } else {
            let command = texts(&probe["exec"]["command"]);
            assert_eq!(command.contains(&"--live"), path == "live", "{name}: {command:?}");
        }
    }
}

/// Asserts that objects of built-in kinds are valid by Kubernetes' schemas.
fn assert_valid(validate: &Path, name: &str, objects: &[Value]) {
    let is_built_in = |object: &&Value| !CUSTOM.contains(&object["apiVersion"].as_str().unwrap());
    let built_in: Vec<String> = objects.iter().filter(is_built_in).map(Value::to_string).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("objects.yaml");
    std::fs::write(&file, built_in.join("\n---\n")).unwrap();
    let (version, _) = KUBERNETES.rsplit_once('.').unwrap();
    let output = Command::new(validate).args(["--version", version]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn helm_chart_variables_and_settings_exist() {
    for file in chart_files() {
        for name in words(&file.text, |c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') {
            // SIGNET_ADDR is a variable of clients, the bare prefix is part of a comment.
            let is_other = ["SIGNET_ADDR", "SIGNET_"].contains(&name) || !name.starts_with("SIGNET_");
            let is_known = SETTINGS.iter().any(|setting| setting.variable_name() == name);
            assert!(is_other || is_known, "{}: {name}", file.name);
        }
    }
    let template = chart_file("configmap.yaml");
    let names: BTreeSet<&str> = template.lines().filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    assert!(names.contains("seal_key_file") && names.contains("public_listen"), "{names:?}");
    for name in names {
        assert!(SETTINGS.iter().any(|setting| setting.name == name), "{name}: no setting");
    }
}

#[test]
fn helm_chart_flags_exist() {
    for (template, commands) in COMMANDS {
        let known: BTreeSet<String> = commands.iter().flat_map(|command| known_flags(&[command])).collect();
        let text = chart_file(template);
        assert!(flags(&text).count() > 0, "{template}");
        for flag in flags(&text) {
            assert!(known.contains(flag), "{template}: {commands:?} has no {flag}");
        }
    }
    let with_flags: BTreeSet<String> =
        chart_files().into_iter().filter(|file| flags(&file.text).next().is_some()).map(|file| file.name).collect();
    let others = ["NOTES.txt", "README.md", "everything-values.yaml", "values.yaml"];
    let named: BTreeSet<String> =
        COMMANDS.iter().map(|(template, _)| *template).chain(others).map(str::to_owned).collect();
    assert_eq!(with_flags, named, "a new file with flags needs a line in COMMANDS");
    for name in ["NOTES.txt", "README.md"] {
        let text = chart_file(name);
        let lines: Vec<&str> =
            text.split("/usr/bin/signet ").skip(1).map(|rest| rest.lines().next().unwrap()).collect();
        assert!(!lines.is_empty(), "{name}");
        for line in lines {
            let command: Vec<&str> = line.split(' ').take_while(|word| !word.starts_with('-')).collect();
            let known = known_flags(&command);
            assert!(flags(line).all(|flag| known.contains(flag)), "{name}: {line}");
        }
    }
}

#[test]
fn helm_chart_paths_exist_as_routes() {
    let mut found = BTreeSet::new();
    for file in chart_files() {
        for word in words(&file.text, |c| c.is_ascii_alphanumeric() || "/_-…".contains(c)) {
            let is_path = ["/v1/", "sys/", "auth/", "pki/"].iter().any(|start| word.starts_with(start));
            if !is_path || word.contains('…') {
                continue;
            }
            // The issuer of cert-manager is given the mount of the login.
            let path = if word == "/v1/auth/kubernetes" { "/v1/auth/kubernetes/login" } else { word };
            assert!(is_route(path), "{}: {word}: no route", file.name);
            found.insert(word.to_owned());
        }
    }
    for path in ["/v1/sys/live", "/v1/sys/health", "/v1/auth/kubernetes", "pki/sign/web"] {
        assert!(found.contains(path), "{path}: {found:?}");
    }
}

#[test]
fn helm_chart_versions_match_the_program() {
    let chart = yaml("packaging/helm/Chart.yaml");
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["kubeVersion"], format!(">={KUBERNETES}-0"));
}

#[test]
fn helm_chart_renders_valid_objects() {
    let (Some(helm), Some(validate)) = (tool("helm"), tool("kubectl-validate")) else { return };
    let files = std::fs::read_dir(root().join(CHART).join("ci")).unwrap().count();
    assert_eq!(files, RENDERED.len(), "each value file has a line in RENDERED");
    for (name, kinds) in RENDERED {
        run_helm(&helm, &["lint", ".", "--strict", "--values", &values_file(name)]).unwrap();
        let objects = render(&helm, name);
        let mut rendered: Vec<&str> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        rendered.sort_unstable();
        assert_eq!(rendered, kinds.split(' ').collect::<Vec<_>>(), "{name}");
        for pod in pods(&objects) {
            assert_restricted(name, pod);
            assert_configuration(name, &objects, pod);
            for line in command_lines(pod) {
                let known = known_flags(&line[..1]);
                assert!(flags(&line[1..].join(" ")).all(|flag| known.contains(flag)), "{name}: {line:?}");
            }
        }
        assert_probes(name, pods(&objects)[0]);
        assert_valid(&validate, name, &objects);
    }
}

#[test]
fn helm_example_for_cert_manager_is_valid() {
    let Some(validate) = tool("kubectl-validate") else { return };
    let objects = documents(&chart_file("cert-manager.yaml"));
    assert_eq!(objects.len(), 4);
    assert_valid(&validate, "cert-manager.yaml", &objects);
    let vault = &of_kind(&objects, "Issuer").unwrap()["spec"]["vault"];
    let account = &vault["auth"]["kubernetes"]["serviceAccountRef"]["name"];
    assert_eq!(&of_kind(&objects, "ServiceAccount").unwrap()["metadata"]["name"], account);
    assert_eq!(&of_kind(&objects, "Role").unwrap()["rules"][0]["resourceNames"][0], account);
}

#[test]
fn helm_store_kinds_and_setup_decide_the_workload() {
    let Some(helm) = tool("helm") else { return };
    let replicas = |name: &str, kind: &str| of_kind(&render(&helm, name), kind).unwrap()["spec"]["replicas"].clone();
    assert_eq!(replicas("embedded", "StatefulSet"), 1);
    assert_eq!(replicas("postgresql-tls", "Deployment"), 3);
    assert_eq!(replicas("setup", "StatefulSet"), 0, "the setup needs the store for itself");
    let upgrade = run_helm(
        &helm,
        &["template", "signet", ".", "--is-upgrade", "--kube-version", KUBERNETES, "--values", &values_file("setup")],
    );
    let objects = documents(&upgrade.unwrap());
    assert_eq!(of_kind(&objects, "StatefulSet").unwrap()["spec"]["replicas"], 1, "an upgrade never stops the server");
    let objects = render(&helm, "everything");
    let job = &of_kind(&objects, "Job").unwrap()["spec"]["template"];
    let service = objects.iter().find(|object| object["kind"] == "Service").unwrap();
    assert_ne!(
        job["metadata"]["labels"]["app.kubernetes.io/component"],
        service["spec"]["selector"]["app.kubernetes.io/component"],
        "no Service leads to the job"
    );
}

#[test]
fn helm_package_contains_the_alerting_rules() {
    let Some(helm) = tool("helm") else { return };
    let folder = tempfile::tempdir().unwrap();
    run_helm(&helm, &["package", ".", "--destination", folder.path().to_str().unwrap()]).unwrap();
    let package = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let values = values_file("monitoring");
    let arguments =
        ["template", "signet", package.to_str().unwrap(), "--kube-version", KUBERNETES, "--values", &values];
    let objects = documents(&run_helm(&helm, &arguments).unwrap());
    assert_eq!(of_kind(&objects, "PrometheusRule").unwrap()["spec"], yaml("grafana/alerts.yml"));
}

#[test]
fn helm_schema_rejects_unknown_keys_and_bad_values() {
    let Some(helm) = tool("helm") else { return };
    let values = values_file("embedded");
    for value in REJECTED {
        let arguments = ["template", "signet", ".", "--kube-version", KUBERNETES, "--values", &values, "--set", value];
        let error = run_helm(&helm, &arguments).expect_err(value);
        assert!(error.contains("don't meet the specifications of the schema"), "{value}: {error}");
    }
}

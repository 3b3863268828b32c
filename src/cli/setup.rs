//! `signet setup`: creates a complete certificate authority: seal key, configuration, store, root, intermediate, roles,
//! listener certificate, policies and an administrator's token.
//!
//! Existing parts are kept, so an interrupted setup can be repeated. If files of an earlier setup exist but the
//! store is empty, the setup fails: the volume of the store is probably not mounted, and a second authority would be
//! created. The steps send requests to a temporary server on the loopback (`api`), so that the server's rules and the
//! configured audit apply. `plan` contains the input from flags (`arguments`) or the terminal (`prompts`).

mod admin;
mod api;
mod arguments;
mod authority;
mod files;
mod plan;
mod prompts;
mod repeated_options;
mod step_output;

use std::io::Write as _;
use std::path::Path;

use crate::config::{self, Config, ConfigEnvironment};
use crate::error::{Error, Result};
use crate::server::{forbid_core_dumps, renewal};
use crate::storage::seal::SealKey;
use crate::storage::{IfMissing, inspection};
use crate::telemetry;
use serde_json::json;

use self::api::SetupApi;
use self::arguments::DEFAULT_MOUNT;
pub(crate) use self::arguments::SetupArguments;
use self::files::FileContent;
use self::plan::SetupPlan;
use self::step_output::print_step;
use super::output::ignore_broken_pipe;
use super::{installation, operator, output, owner};

/// The configuration file that the systemd unit of the package uses.
const UNIT_CONFIG: &str = "/etc/signet/signet.toml";
/// A folder that exists only if systemd is the init system of this machine.
const SYSTEMD_FOLDER: &str = "/run/systemd/system";

pub(crate) fn run(arguments: SetupArguments) -> Result<()> {
    forbid_core_dumps()?;
    let is_new = !arguments.config.exists();
    let listener_only = arguments.listener_only;
    if is_new && listener_only {
        let file = arguments.config.display();
        let text = "--listener-only needs the configuration and the seal key of the first node";
        return Err(Error::invalid(format!("--config: file does not exist: {file}: {text}")));
    }
    let (config, plan) = if is_new { create_installation(arguments)? } else { load_installation(arguments)? };
    let mut log = config.log.clone();
    if std::env::var_os("SIGNET_LOG").is_none() {
        "warn".clone_into(&mut log.filter);
    }
    telemetry::install_logs(&log)?;
    actix_rt::System::new().block_on(async {
        if !is_new {
            prepare_existing(&config, &plan, listener_only).await?;
        }
        run_with_api(&config, &plan, listener_only).await
    })
}

/// Creates the configuration file and the seal key of a new installation.
fn create_installation(mut arguments: SetupArguments) -> Result<(Config, SetupPlan)> {
    if prompts::can_prompt(arguments.yes) {
        prompts::prompt_missing(&mut arguments)?;
    }
    let plan = SetupPlan::new(arguments.wanted, &arguments.config)?;
    plan.domains()?;
    let environment = ConfigEnvironment::for_file(&arguments.config)?;
    let text = files::render_configuration(&arguments.config, &arguments.installation, &plan, &environment)?;
    // Parsing and the following checks reject invalid input before any file is created.
    let config = config::parse(&text, |name| environment.get(name))?;
    owner::require_owner_for_setup(&config, &arguments.config)?;
    let given_url = plan.public_url.clone();
    let plan = plan.with_public_url(&config)?;
    files::require_no_existing_files(&config, &plan)?;
    files::check_folders(&config, &plan, &arguments.installation)?;
    files::create_folders(&config, &arguments.config)?;
    if let config::SealKeySource::File(file) = &config.seal_key {
        if file.exists() {
            SealKey::from_file(file)?;
            print_step("kept", &file.display().to_string())?;
        } else {
            SealKey::create_file(file)?;
            print_step("made", &format!("{} (the seal key: keep a copy away from the data)", file.display()))?;
        }
    }
    // The configuration file is written with the mode of a secret, because the database URL may contain a password.
    files::write_new(&arguments.config, text.as_bytes(), FileContent::Secret)?;
    print_step("made", &format!("{} (the configuration)", arguments.config.display()))?;
    note_unserved_url(&config, given_url.as_deref())?;
    Ok((config, plan))
}

/// Loads the configuration of an existing installation, which the setup will complete.
fn load_installation(arguments: SetupArguments) -> Result<(Config, SetupPlan)> {
    let config = config::load(&arguments.config)?;
    let mut wanted = arguments.wanted;
    if let Some(renewal) = config.tls_renewal.as_ref().filter(|_| wanted.mount == DEFAULT_MOUNT) {
        wanted.mount.clone_from(&renewal.mount);
    }
    owner::require_owner_for_setup(&config, &arguments.config)?;
    let plan = SetupPlan::new(wanted, &arguments.config)?;
    repeated_options::check(&arguments.installation, &plan, &config)?;
    let given_url = plan.public_url.clone();
    let plan = plan.with_public_url(&config)?;
    if let (Some(pair), Some(_)) = (&config.tls, &config.tls_renewal) {
        files::check_tls_pair(pair)?;
    }
    if !arguments.listener_only {
        files::check_folders(&config, &plan, &arguments.installation)?;
    }
    print_step("kept", &format!("{} (the configuration)", arguments.config.display()))?;
    note_unserved_url(&config, given_url.as_deref())?;
    Ok((config, plan))
}

/// Prints a note if `--public-url` is given but this server has no public listener. This is not an error, because a
/// proxy may serve the URL.
fn note_unserved_url(config: &Config, given: Option<&str>) -> Result<()> {
    let Some(url) = given.filter(|_| config.public_listen.is_none()) else { return Ok(()) };
    let text = "this server has no public_listen (--public-listen), so another server must serve";
    print_step("note", &format!("--public-url: {text} {url}"))
}

/// Prepares an installation whose configuration file exists: creates the seal key for a new store, and missing folders.
/// Fails if files of an earlier setup exist but no store: the volume of the store is probably not mounted.
async fn prepare_existing(config: &Config, plan: &SetupPlan, listener_only: bool) -> Result<()> {
    let is_new = !inspection::store_exists(&installation::database(config)?).await?;
    if let Some(file) = files::existing_setup_files(plan).first().filter(|_| is_new && !listener_only) {
        return Err(files::missing_store_error(file, "there is no store", config));
    }
    // With `--listener-only`, no key is created: this is a further node, which uses the seal key of the first node.
    if !listener_only && let Some(file) = operator::create_seal_key(config)? {
        print_step("made", &format!("{} (the seal key: keep a copy away from the data)", file.display()))?;
    }
    files::create_folders(config, &plan.config)
}

async fn run_with_api(config: &Config, plan: &SetupPlan, listener_only: bool) -> Result<()> {
    // With `--listener-only`, the store must exist already.
    let api = SetupApi::start(config, if listener_only { IfMissing::Fail } else { IfMissing::Create }).await?;
    let done = match listener_only {
        true => ensure_listener_certificate(&api, config, true).await.map(|()| None),
        false => run_steps(&api, config, plan).await,
    };
    let ended = api.stop().await;
    let name = done?;
    ended?;
    if listener_only {
        return Ok(());
    }
    if output::is_json() {
        let next = json!({
            "config": plan.config,
            "admin_token_file": plan.admin_token_file,
            "root_ca_file": plan.root_file,
            "csr_file": name.is_none().then(|| plan.csr_file()),
            "mount": plan.mount,
            "role": plan.role,
            "example_name": name,
        });
        return output::print_result(&next, "");
    }
    ignore_broken_pipe(print_next_steps(config, plan, name))
}

/// Runs all steps of the setup. Returns an example of a name for which the intermediate issues certificates; `None`
/// while its own certificate must still be signed by an outside authority. The listener certificate comes before the
/// administrator, because the server cannot start without it.
async fn run_steps(api: &SetupApi, config: &Config, plan: &SetupPlan) -> Result<Option<String>> {
    authority::check(api, config, plan).await?;
    let issues = authority::ensure_authority(api, plan).await?;
    authority::ensure_roles(api, plan, config.tls_renewal.as_ref()).await?;
    ensure_listener_certificate(api, config, issues).await?;
    admin::ensure_admin(api, plan).await?;
    if issues { authority::example_name(api, plan).await.map(Some) } else { Ok(None) }
}

async fn ensure_listener_certificate(api: &SetupApi, config: &Config, issues: bool) -> Result<()> {
    let (Some(files), Some(renewed)) = (&config.tls, &config.tls_renewal) else {
        return print_step("left", "the listener's certificate: the configuration has no tls_renew");
    };
    if !issues {
        return Ok(());
    }
    if files.certificate.exists() && files.key.exists() {
        return print_step("kept", &format!("{} (the listener's certificate)", files.certificate.display()));
    }
    renewal::issue_first(api.shared(), renewed, files).await?;
    print_step(
        "made",
        &format!("{} (the listener's certificate, which the server renews)", files.certificate.display()),
    )
}

fn print_next_steps(config: &Config, plan: &SetupPlan, name: Option<String>) -> std::io::Result<()> {
    let mut out = crate::cli::output::stdout();
    writeln!(out)?;
    let Some(name) = name else {
        writeln!(
            out,
            "Have {} signed as a certificate authority, then continue with its certificate and those above it:",
            shell_quote(&plan.csr_file())
        )?;
        writeln!(out)?;
        writeln!(out, "    signet setup --config {} --signed FILE", shell_quote(&plan.config))?;
        return out.flush();
    };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let host = config.tls_renewal.as_ref().and_then(|renewal| {
        let address = || renewal.addresses.first().map(ToString::to_string);
        renewal.hosts.first().cloned().or_else(address)
    });
    let port = config.listen.port();
    let host = host.unwrap_or_else(|| config.listen.ip().to_string());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    writeln!(out, "Next, start the server, and request a first certificate from another terminal:")?;
    writeln!(out)?;
    writeln!(out, "    {}", start_command(&plan.config, Path::new(SYSTEMD_FOLDER).is_dir()))?;
    writeln!(out)?;
    writeln!(out, "    export SIGNET_ADDR={scheme}://{host}:{port} SIGNET_CACERT={}", shell_quote(&plan.root_file))?;
    writeln!(out, "    export SIGNET_TOKEN=$(cat {})", shell_quote(&plan.admin_token_file))?;
    writeln!(out, "    signet issue {name} --mount {} --role {}", plan.mount, plan.role)?;
    writeln!(out)?;
    writeln!(
        out,
        "The token in {} has the policy {}, no parent, and ends unless it is renewed within {}",
        shell_quote(&plan.admin_token_file),
        admin::ADMIN_POLICY,
        admin::ADMIN_TOKEN_PERIOD
    )?;
    writeln!(out, "(auth/token/renew-self). With the seal key you can create a root token:")?;
    writeln!(out)?;
    writeln!(out, "    signet operator new-root-token --config {}", shell_quote(&plan.config))?;
    out.flush()
}

/// Returns the shell command that starts the server: it starts the systemd unit if `config` is the unit's configuration
/// file, and otherwise runs `signet serve`.
fn start_command(config: &Path, has_systemd: bool) -> String {
    match has_systemd && config == Path::new(UNIT_CONFIG) {
        true => "systemctl enable --now signet".to_owned(),
        false => format!("signet serve --config {}", shell_quote(config)),
    }
}

/// Quotes a path for use in a shell command, if necessary.
fn shell_quote(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_with_systemd_starts_the_unit_of_its_configuration() {
        let command = |config: &str, has_systemd| start_command(Path::new(config), has_systemd);
        assert_eq!(command("/etc/signet/signet.toml", true), "systemctl enable --now signet");
        for (config, has_systemd) in
            [("/etc/signet/signet.toml", false), ("/etc/signet/second.toml", true), ("signet.toml", true)]
        {
            assert_eq!(command(config, has_systemd), format!("signet serve --config {config}"));
        }
    }
}

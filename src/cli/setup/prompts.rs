//! Prompts on the terminal for settings that are not given by flags. An empty line selects the default.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use crate::error::{Error, Result};

use super::arguments::SetupArguments;
use super::files;
use crate::cli::output;

/// `true` if the setup may prompt: without `--yes` and `--json`, and with a terminal for input and output.
pub(super) fn can_prompt(yes: bool) -> bool {
    !yes && !output::is_json() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

pub(super) fn prompt_missing(arguments: &mut SetupArguments) -> Result<()> {
    let installation = &mut arguments.installation;
    let wanted = &mut arguments.wanted;
    if installation.data_dir.is_none() && installation.database_url.is_none() {
        let default = files::default_data_dir(&arguments.config).display().to_string();
        installation.data_dir = Some(PathBuf::from(prompt("Folder of the data", &default)?));
    }
    while installation.listen.is_none() {
        installation.listen =
            prompt("Address and port to listen on, with TLS", files::DEFAULT_LISTEN_ADDRESS)?.parse().ok();
        check_rule(installation.listen.is_some(), "must be an address and a port, such as 127.0.0.1:8200")?;
    }
    if installation.name.is_empty() {
        let default = files::DEFAULT_HOST_NAMES.join(",");
        installation.name = split_list(&prompt("Names and addresses by which clients reach this server", &default)?);
    }
    if wanted.organization.is_none() {
        wanted.organization = Some(prompt("Organization in the names of the authorities", "")?);
    }
    while wanted.domain.is_empty() {
        wanted.domain = split_list(&prompt("Domains for which certificates may be issued", "")?);
        check_rule(
            !wanted.domain.is_empty(),
            "must be at least one domain, such as example.com; the role allows no other names",
        )?;
    }
    if wanted.csr.is_none()
        && prompt_choice(
            "Root CA: here, or outside (setup writes a certification request for it)",
            ["here", "outside"],
        )? == "outside"
    {
        let default = arguments.config.with_file_name("intermediate.csr").display().to_string();
        wanted.csr = Some(PathBuf::from(prompt("File of the certification request", &default)?));
    }
    if wanted.public_url.is_none() {
        let url = prompt("Plain http URL at which CRLs and CA certificates are found, if any", "")?;
        wanted.public_url = Some(url).filter(|url| !url.is_empty());
    }
    while wanted.public_url.is_some() && installation.public_listen.is_none() {
        let address = prompt("Address and port to serve that URL on, if this server does", "")?;
        if address.is_empty() {
            break;
        }
        installation.public_listen = address.parse().ok();
        check_rule(installation.public_listen.is_some(), "must be an address and a port, such as 0.0.0.0:8080")?;
    }
    Ok(())
}

fn split_list(text: &str) -> Vec<String> {
    text.split([',', ' ']).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// Prompts for one of the words; the first is the default. Repeats the question after any other input, because a wrong
/// guess could create an unintended root, which cannot be undone.
fn prompt_choice<const N: usize>(question: &str, words: [&'static str; N]) -> Result<&'static str> {
    loop {
        let given = prompt(question, words[0])?;
        if let Some(word) = words.into_iter().find(|word| given.eq_ignore_ascii_case(word)) {
            return Ok(word);
        }
        check_rule(false, &format!("must be {}", words.join(" or ")))?;
    }
}

/// Prints the rule for an input if `holds` is `false`, which means that the input violates it.
fn check_rule(holds: bool, rule: &str) -> Result<()> {
    if holds { Ok(()) } else { writeln!(crate::cli::output::stdout(), "  {rule}").map_err(Error::internal) }
}

fn prompt(question: &str, default: &str) -> Result<String> {
    let mut out = crate::cli::output::stdout();
    let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
    write!(out, "{question}{shown}: ").and_then(|()| out.flush()).map_err(Error::internal)?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).map_err(Error::internal)? == 0 {
        return Err(Error::invalid("setup: the terminal was closed; nothing was created"));
    }
    Ok(Some(line.trim()).filter(|line| !line.is_empty()).unwrap_or(default).to_owned())
}

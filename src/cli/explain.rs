//! `signet explain`: asks the server whether a token may send a request, and which policy rule allows or denies it.
//!
//! The token in question is given by its accessor, or read from standard input. It is never an argument itself, because
//! all users of the machine can see arguments.

use crate::error::{Error, Kind, Result};
use crate::secret::Secret;
use crate::server::Signals;
use serde_json::{Value, json};

use super::client::{ServerEndpoint, texts_in};
use super::{output, terminal, token};

#[derive(clap::Args)]
pub(crate) struct ExplainArguments {
    /// Accessor of the token in question, or `-` to read the token itself from standard input or the terminal. (If no
    /// other token, such as SIGNET_TOKEN, is given, that token explains itself, which needs no permission.)
    #[arg(value_name = "ACCESSOR")]
    subject: String,
    /// Method of the request: GET, LIST, POST, PUT, PATCH or DELETE.
    method: String,
    /// Path of the request, with or without `/v1/`.
    path: String,
    /// Fields of the request's body, which are checked with the parameter rules of policies.
    #[arg(value_name = "NAME=VALUE", value_parser = parse_parameter)]
    parameters: Vec<(String, String)>,
    /// Source address of the request: tokens may be bound to networks.
    #[arg(long, value_name = "IP")]
    from: Option<String>,
    #[command(flatten)]
    server: ServerEndpoint,
    #[command(flatten)]
    token: token::TokenArguments,
}

fn parse_parameter(text: &str) -> std::result::Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("must be NAME=VALUE, such as ttl=1h")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) async fn run(arguments: ExplainArguments) -> Result<()> {
    let mut signals = Signals::watch()?;
    let data = tokio::select! {
        data = request_explanation(&arguments) => data?,
        // Signals are handled here, because the default action would leave the terminal without echo while it prompts
        // for the token.
        () = signals.wait_for_stop() => return Err(Error::new(Kind::Unavailable, "explain: ended by a signal")),
    };
    output::print_result(&data, render_explanation(&data, &arguments.method.to_uppercase()).trim_end())
}

async fn request_explanation(arguments: &ExplainArguments) -> Result<Value> {
    let mut body = json!({ "method": arguments.method, "path": arguments.path });
    if let Some(address) = &arguments.from {
        body["address"] = address.as_str().into();
    }
    if !arguments.parameters.is_empty() {
        body["parameters"] = arguments.parameters.iter().cloned().collect();
    }
    let (path, token) = match (&arguments.subject[..], arguments.token.token_if_given()?) {
        ("-", own) => {
            let explained = read_token_in_question(own.is_some().then(|| arguments.token.source_name())).await?;
            match own.filter(|own| *own != explained || arguments.from.is_some()) {
                Some(own) => {
                    body["token"] = explained.expose_text().into();
                    ("sys/internal/explain", own)
                }
                None => ("sys/internal/explain-self", explained),
            }
        }
        (accessor, _) => {
            body["accessor"] = accessor.into();
            ("sys/internal/explain", arguments.token.token()?)
        }
    };
    let reply = arguments.server.post(path, token.expose_text().unwrap_or_default(), &body).await?;
    match reply.status {
        200 => Ok(reply.data()),
        403 => {
            let about_others = "to explain another token, the calling token needs update on sys/internal/explain";
            Err(reply.to_error(&format!(" (the token is not known to the server or has expired; {about_others})")))
        }
        _ => Err(reply.to_error("")),
    }
}

/// Reads the token to explain from standard input. `own` is the argument or variable of the caller's own token, for a
/// hint in the error.
async fn read_token_in_question(own: Option<String>) -> Result<Secret> {
    let line = terminal::read_secret("token to explain").await?;
    match line.expose_text().map(str::trim) {
        None | Some("") => {
            let example = "such as: printenv SIGNET_TOKEN | signet explain - METHOD PATH";
            let hint = own.map(|own| format!("; to ask about the token from {own}, send it there too, {example}"));
            Err(Error::invalid(format!("standard input: must hold a token{}", hint.unwrap_or_default())))
        }
        Some(token) => Ok(Secret::new(token)),
    }
}

fn render_explanation(data: &Value, method: &str) -> String {
    let verdict = match data["allowed"].as_bool() {
        Some(true) => "allowed",
        Some(false) => "denied",
        None => "it depends",
    };
    let token = &data["token"];
    let mut out = format!("{verdict}: {}\n", text_or_empty(&data["reason"]));
    let mut line = |name: &str, words: String| out.push_str(&format!("  {name:<9}{words}\n"));
    line("request", format!("{method} {} ({})", text_or_empty(&data["path"]), text_or_empty(&data["operation"])));
    if let (Some(mount), route) = (data["mount"].as_str(), &data["route"]) {
        let route = route.as_str().map_or_else(|| "nothing there".to_owned(), |route| format!("route {route}"));
        line("leads to", format!("mount {mount}, {route}"));
    }
    line("needs", Some(join_texts(&data["needs"])).filter(|words| !words.is_empty()).unwrap_or("nothing".to_owned()));
    let end = token["expire_time"].as_str().map(|end| format!(", until {end}")).unwrap_or_default();
    let uses = token["uses_left"].as_u64().map(|uses| format!(", uses left: {uses}")).unwrap_or_default();
    let bound = Some(join_texts(&token["bound_cidrs"])).filter(|networks| !networks.is_empty());
    let bound = bound.map(|networks| format!("; bound to: {networks}")).unwrap_or_default();
    line(
        "token",
        format!("{}{end}{uses}; policies: {}{bound}", text_or_empty(&token["state"]), join_texts(&token["policies"])),
    );
    if data["decided_by"].is_object() {
        line("decides", render_rule(&data["decided_by"]));
        for name in
            ["allowed_parameters", "denied_parameters", "required_parameters", "min_wrapping_ttl", "max_wrapping_ttl"]
        {
            if let Some(terms) = data["decided_by"].get(name) {
                line("", format!("{name} = {terms}"));
            }
        }
    }
    for other in data["others"].as_array().into_iter().flatten() {
        line("ignored", format!("{}; {}", render_rule(other), text_or_empty(&other["why_not"])));
    }
    if data["expired"].is_array() {
        line("expired", render_rule_sources(&data["expired"]));
    }
    out
}

fn render_rule(rule: &Value) -> String {
    format!("{}: {}", render_rule_sources(&rule["written"]), join_texts(&rule["capabilities"]))
}

/// Renders where a rule is written: the paths, each with the name of its policy.
fn render_rule_sources(written: &Value) -> String {
    let place = |place: &Value| {
        let comment = place["comment"].as_str().map(|text| format!(" ({text})")).unwrap_or_default();
        format!("path {:?} in policy {}{comment}", text_or_empty(&place["path"]), text_or_empty(&place["policy"]))
    };
    written.as_array().into_iter().flatten().map(place).collect::<Vec<_>>().join(" and ")
}

fn text_or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn join_texts(value: &Value) -> String {
    texts_in(value).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explain_response_is_rendered_as_lines() {
        let data = json!({
            "allowed": false,
            "reason": "the rule does not grant update",
            "operation": "update",
            "path": "pki/issue/web",
            "needs": ["update"],
            "token": { "state": "live", "policies": ["a", "default"], "expire_time": "2030-01-01T00:00:00Z", "uses_left": null },
            "decided_by": { "capabilities": ["read"], "required_parameters": ["ttl"],
                "written": [{ "policy": "a", "path": "pki/issue/+", "comment": "readers" }] },
            "others": [{ "capabilities": ["update"], "why_not": "it ends in '*'",
                "written": [{ "policy": "default", "path": "pki/*" }, { "policy": "a", "path": "/pki/*" }] }],
        });
        assert_eq!(
            render_explanation(&data, "POST"),
            "denied: the rule does not grant update\n\
             \x20 request  POST pki/issue/web (update)\n\
             \x20 needs    update\n\
             \x20 token    live, until 2030-01-01T00:00:00Z; policies: a, default\n\
             \x20 decides  path \"pki/issue/+\" in policy a (readers): read\n\
             \x20          required_parameters = [\"ttl\"]\n\
             \x20 ignored  path \"pki/*\" in policy default and path \"/pki/*\" in policy a: update; it ends in '*'\n"
        );
    }
}

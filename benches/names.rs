//! Cost of the name rules, which run for every certificate.

use signet::pki::check::names::{self, ValidatedNames};
use signet::pki::check::request::RequestedNames;
use signet::pki::mount::role::{CompiledRole, Role};

fn main() {
    divan::main();
}

fn role(json: &str) -> CompiledRole {
    let role: Role = serde_json::from_str(json).expect("benchmark inputs are sound");
    role.checked().expect("benchmark inputs are sound").0.into()
}

fn issue(role: &CompiledRole, request: &RequestedNames) -> ValidatedNames {
    let collected = names::collect_for_leaf(role, request, None).expect("benchmark inputs are sound");
    collected.validate(role, "token").expect("benchmark inputs are sound").0
}

fn request(common_name: &str, alt_names: Vec<String>) -> RequestedNames {
    RequestedNames { common_name: common_name.to_owned(), alt_names, ..RequestedNames::default() }
}

#[divan::bench]
fn two_subdomains(bencher: divan::Bencher<'_, '_>) {
    let role = role(r#"{"allowed_domains":["example.com","example.test"],"allow_subdomains":true}"#);
    let request = request("load.example.test", vec!["www.example.test".to_owned()]);
    bencher.bench(|| issue(&role, &request));
}

#[divan::bench]
fn hundred_names_under_globs(bencher: divan::Bencher<'_, '_>) {
    let role = role(r#"{"allowed_domains":["*.example.com","a*.*.example.test"],"allow_glob_domains":true}"#);
    let names: Vec<String> = (0..100).map(|i| format!("a{i}.b.example.test")).collect();
    let request = request("ab.c.example.test", names);
    bencher.bench(|| issue(&role, &request));
}

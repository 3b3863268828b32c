//! The name rules on their own: they run for every certificate.

use signet::fields::Fields;
use signet::pki::names;
use signet::pki::request::IssueRequest;
use signet::pki::role::Role;

fn main() {
    divan::main();
}

fn role(json: &str) -> Role {
    Role::from_fields(&Fields::parse(json.as_bytes()).expect("benchmark inputs are sound"))
        .expect("benchmark inputs are sound")
        .0
}

fn request(json: &str) -> IssueRequest {
    IssueRequest::from_fields(&Fields::parse(json.as_bytes()).expect("benchmark inputs are sound"))
        .expect("benchmark inputs are sound")
}

#[divan::bench]
fn two_subdomains(bencher: divan::Bencher<'_, '_>) {
    let role = role(r#"{"allowed_domains":["example.com","example.test"],"allow_subdomains":true}"#);
    let request = request(r#"{"common_name":"load.example.test","alt_names":"www.example.test"}"#);
    bencher.bench(|| names::for_issue(&role, &request, "token").expect("benchmark inputs are sound"));
}

#[divan::bench]
fn hundred_names_under_globs(bencher: divan::Bencher<'_, '_>) {
    let role = role(r#"{"allowed_domains":["*.example.com","a*.*.example.test"],"allow_glob_domains":true}"#);
    let names: Vec<String> = (0..100).map(|i| format!("a{i}.b.example.test")).collect();
    let request = request(&format!(r#"{{"common_name":"ab.c.example.test","alt_names":"{}"}}"#, names.join(",")));
    bencher.bench(|| names::for_issue(&role, &request, "token").expect("benchmark inputs are sound"));
}

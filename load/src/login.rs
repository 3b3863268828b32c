//! The scenario `login`: cost of a JWT login, compared with the verification of its signature alone.

use serde_json::{Value, json};

use crate::drive::{ServerAccess, drive};
use crate::jwt_login::prepare;
use crate::order::RunArgs;
use crate::plan::Plan;
use crate::report::Report;

/// Default number of logins. It is large enough that the log of the embedded store reaches its full size and is reused,
/// which makes writes cheaper.
const DEFAULT_LOGINS: u64 = 400_000;
/// CPU microseconds that a login may cost in addition to the verification, including the store.
const MAX_ADDED_CPU_MICROSECONDS: f64 = 45.0;

/// Runs the scenario and prints the verdict. Fails if a login exceeds its limit.
pub(crate) async fn run(args: &RunArgs) -> Result<(), String> {
    let order = args.order()?;
    let plan = Plan { requests: order.plan.requests.or(Some(DEFAULT_LOGINS)), ..order.plan };
    let server = order.target.open(plan.scenario).await?;
    let (class, verify_us) = prepare(&server.access(), plan.clients.into()).await?;
    server.settle()?;
    // A login needs no token, and the server ignores one.
    let access = ServerAccess { token: "", ..server.access() };
    let figures = drive(&access, vec![class], &plan.bounds(), server.watched).await?;
    let class = figures.succeeded("login")?;
    if class.count() == 0 && !figures.interrupted {
        return Err("login: no request was answered".to_owned());
    }
    let cost = LoginCost { login_us: figures.per_request(figures.cpu.sum()), verify_us };
    let mut json = cost.json(server.store()?.as_deref(), class.count());
    json["figures"] = figures.json();
    let mut report = Report::new(server.title("login")?, json).facts(plan.facts());
    if let Some(is_held) = cost.holds() {
        let verdict = if is_held { "held" } else { "missed" };
        let limit = format!("CPU per login at most {:.2} µs: RS256 {verify_us:.2} and 45", cost.max_login_us());
        report = report.fact("limit", format!("{limit}: {verdict}"));
    }
    report.run("login", &figures).publish(&args.outputs)?;
    figures.outcome()?;
    if cost.holds() == Some(false) { Err("the CPU time of a login exceeds the limit".to_owned()) } else { Ok(()) }
}

/// Cost of a login and of the verification, in CPU microseconds.
struct LoginCost {
    /// `None` if the server's process is unknown.
    login_us: Option<f64>,
    verify_us: f64,
}

impl LoginCost {
    fn max_login_us(&self) -> f64 {
        self.verify_us + MAX_ADDED_CPU_MICROSECONDS
    }

    fn holds(&self) -> Option<bool> {
        self.login_us.map(|cost| cost <= self.max_login_us())
    }

    fn json(&self, store: Option<&str>, requests: u64) -> Value {
        json!({ "scenario": "login", "store": store, "requests": requests, "cpu_us_per_login": self.login_us,
            "rs256_verify_us": self.verify_us, "at_most": self.max_login_us(), "holds": self.holds() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_cost_limit_is_verification_plus_an_allowance() {
        assert_eq!(LoginCost { login_us: Some(70.0), verify_us: 25.0 }.holds(), Some(true));
        assert_eq!(LoginCost { login_us: Some(70.1), verify_us: 25.0 }.holds(), Some(false));
        let json = LoginCost { login_us: Some(70.0), verify_us: 25.0 }.json(Some("SQLite"), 7);
        assert_eq!((&json["at_most"], &json["requests"], &json["holds"]), (&json!(70.0), &json!(7), &json!(true)));
    }

    #[test]
    fn unmeasured_login_cost_has_no_verdict() {
        let json = LoginCost { login_us: None, verify_us: 25.0 }.json(None, 7);
        assert_eq!((&json["holds"], &json["cpu_us_per_login"]), (&Value::Null, &Value::Null));
    }
}

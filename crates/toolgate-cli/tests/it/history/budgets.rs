//! Budgets show what is left, and prices show their date.

use std::fs;

use crate::history::{CommandResult, HistoryPlace};

const BUDGETS: &str = "
[[budget]]
name = 'a few calls'
scope = 'global'
period = 'total'
unit = 'calls'
limit = 4

[[budget]]
name = 'money'
scope = 'user'
period = 'month'
unit = 'usd'
limit = 2.5

[layers.budget]
on_unknown = 'free'
";

#[test]
fn spent_amounts_reduce_what_is_left() {
    let place = HistoryPlace::new();
    assert!(place.ends(0, &["budget"]).err.contains("no budgets"));
    let file = place.dir.path().join("budgets.toml");
    fs::write(&file, BUDGETS).expect("writes");
    let config = ["--config", file.to_str().expect("text")];
    let budgets = || place.json(&[&config[..], &["budget"]].concat());
    let of = |rows: &[serde_json::Value], name: &str| {
        rows.iter()
            .find(|row| row["budget"] == name)
            .cloned()
            .expect("is there")
    };
    let before = budgets();
    assert_eq!(of(&before, "a few calls")["left"], 4);
    assert_eq!(
        (
            of(&before, "money")["limit"].as_u64(),
            of(&before, "money")["unit"].as_str()
        ),
        (Some(2_500_000_000), Some("nano_usd"))
    );
    place.ends(
        0,
        &[&config[..], &["tools", "call", "list_dir", "path=."]].concat(),
    );
    let after = of(&budgets(), "a few calls");
    assert_eq!(
        (after["spent"].as_u64(), after["left"].as_u64()),
        (Some(1), Some(3)),
        "{after}"
    );
    let said = place
        .ends(0, &[&config[..], &["budget", "list"]].concat())
        .out;
    assert!(
        said.contains("a few calls")
            && said.contains("3 calls")
            && said.contains("25 %")
            && said.contains("$2.500000"),
        "{said}"
    );
}

#[test]
fn prices_are_listed_with_their_date_and_an_unknown_model_is_an_error() {
    let place = HistoryPlace::new();
    let all = place.json(&["budget", "prices"]);
    assert!(
        all.len() > 10 && all.iter().all(|row| row["as_of"].is_string()),
        "{}",
        all.len()
    );
    let one = all[0]["model"].as_str().expect("a name");
    assert_eq!(place.json(&["budget", "prices", one]), all[..1]);
    assert!(place.ends(0, &["budget", "prices"]).err.contains("as of"));
    let unknown = place.ends(2, &["budget", "prices", "acme:none"]);
    assert!(
        unknown.err.contains("is unknown") && unknown.err.contains("hint:"),
        "{unknown:?}"
    );
    place.ends(2, &["budget", "prices", "nonsense"]);
}

/// Writes a script and a configuration with a price of its model, and runs it with a budget.
fn run_within(place: &HistoryPlace, config: &str, budget: &str) -> CommandResult {
    fs::write(place.work().join("s.toml"), "[[reply]]\ntext = 'Done.'").expect("writes");
    place.configure(config);
    let arguments = ["run", "hi", "--model", "script:s.toml", "--budget", budget];
    place.ends(4, &arguments)
}

#[test]
fn a_request_that_could_exceed_a_budget_says_how_much_and_what_to_lower() {
    let place = HistoryPlace::new();
    let prices = "[providers.scripted.models.script]\ninput = 1000\noutput = 1000\n";
    fs::write(place.dir.path().join("prices.toml"), prices).expect("writes");
    let said = run_within(&place, "[run]\nprices = '../prices.toml'\n", "0.01").err;
    let needed = "but only $0.010000 is left of the budget --budget";
    assert!(
        said.contains("it would take $") && said.contains(needed),
        "{said}"
    );
    assert!(said.contains("lower `max_tokens` under [run]"), "{said}");
}

#[test]
fn a_model_without_a_price_is_named_with_the_line_that_adds_it() {
    let said = run_within(&HistoryPlace::new(), "", "0.01").err;
    let problem = "the price of scripted:script is not known";
    assert!(said.contains(problem), "{said}");
    let line = "[providers.scripted.models.\"script\"]";
    assert!(said.contains(line), "{said}");
}

#[test]
fn an_alert_of_a_tool_budget_is_an_event_of_a_run() {
    let place = HistoryPlace::new();
    let list = "[[reply]]\ncalls = [{ tool = 'list_dir', arguments = { path = '.' } }]\n";
    let script = format!("{list}[[reply]]\ntext = 'Done.'");
    fs::write(place.work().join("s.toml"), script).expect("writes");
    let budget = "[[budget]]\nname = 'a few calls'\nscope = 'global'\nunit = 'calls'\nlimit = 4\n";
    place.configure(&format!("{budget}alert_at = [20, 80]\n[layers.budget]\n"));
    let events = place.json(&["run", "hi", "--model", "script:s.toml"]);
    let alerts: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "budget_alert")
        .collect();
    assert_eq!(alerts.len(), 1, "{events:?}");
    assert_eq!(
        (
            &alerts[0]["percent"],
            &alerts[0]["level"],
            &alerts[0]["amounts"]
        ),
        (
            &20.into(),
            &"info".into(),
            &serde_json::json!({ "unit": "calls", "spent": 1, "limit": 4 })
        )
    );
}

//! Budgets show what is left, and prices show their date.

use std::fs;

use crate::history::HistoryPlace;

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

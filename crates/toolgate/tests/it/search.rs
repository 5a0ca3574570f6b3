//! Search through the front door: what a run did is found, indexed in the background, and redacted.

use toolgate::{
    Config, Gate,
    gate::gate_catalog,
    model::ScriptedModel,
    search::{SearchMode, SearchRequest, SearchSection},
    store::SessionFilter,
};
use toolgate_testkit::WordEmbedder;

fn gate() -> Gate {
    let builder = Gate::builder().in_memory().expect("keys");
    builder
        .embedder(WordEmbedder::new("test"))
        .build()
        .expect("opens")
}

async fn count(gate: &Gate, query: &str) -> usize {
    let request = SearchRequest::new(query).mode(SearchMode::Text);
    gate.search()
        .search(&request)
        .await
        .expect("searches")
        .hits
        .len()
}

#[tokio::test]
async fn what_a_run_did_is_indexed_in_the_background_after_its_end() {
    let gate = gate();
    let session = gate
        .session(ScriptedModel::new(["The walrus is here."]))
        .await
        .expect("opens");
    session.run("Find the walrus.").await.expect("runs");
    // Nothing searches here: only the task that the end of the run has started indexes.
    loop {
        let counts = gate.search().status().await.expect("counts").counts;
        if counts.stale_events == 0 && counts.embedded == 2 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&gate, "walrus").await, 2);
}

#[tokio::test]
async fn the_model_of_a_run_is_found_with_and_without_its_provider() {
    let gate = gate();
    let model = ScriptedModel::new(["The walrus is here."]);
    let session = gate.session(model).await.expect("opens");
    session.run("Find the walrus.").await.expect("runs");
    for (model, found) in [
        ("script", 1),
        ("scripted:script", 1),
        ("other:script", 0),
        ("scripted", 0),
    ] {
        let query = format!("walrus role:assistant model:{model}");
        assert_eq!(count(&gate, &query).await, found, "{model}");
        let filter = SessionFilter {
            model: Some(model.into()),
            ..SessionFilter::default()
        };
        let listed = gate.store().sessions(filter).await.expect("lists");
        assert_eq!(listed.len(), found, "{model}");
    }
}

#[tokio::test]
async fn a_secret_is_not_found_because_events_are_redacted() {
    let gate = gate();
    let secret = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB";
    let session = gate
        .session(ScriptedModel::new(["Noted."]))
        .await
        .expect("opens");
    session
        .run(format!("My token is {secret} for the walrus").as_str())
        .await
        .expect("runs");
    assert_eq!(count(&gate, "walrus").await, 1);
    assert_eq!(count(&gate, secret).await, 0);
    let request = SearchRequest::new("walrus").mode(SearchMode::Text);
    let answer = gate.search().search(&request).await.expect("searches");
    assert!(!format!("{answer:?}").contains(secret));
}

#[test]
fn the_section_search_accepts_three_kinds_of_embedders_and_no_other_word() {
    let parse = |text: &str| {
        let config = Config::parse_with_catalog("toolgate.toml", text, gate_catalog());
        config.and_then(|config| config.section::<SearchSection>())
    };
    for text in [
        "",
        "[search]\nembedder = 'local'",
        "[search]\nembedder = 'none'",
        "[search]\nembedder = { endpoint = { model = 'm', dimensions = 8, base_url = 'http://127.0.0.1:1' } }",
    ] {
        parse(text).expect(text);
    }
    for text in [
        "[search]\nembeder = 'local'",
        "[search]\nembedder = 'lokal'",
        "[search]\nembedder = { endpoint = { model = 'm', dimensions = 8, key = 'x' } }",
        "[serach]\nembedder = 'local'",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[tokio::test]
async fn without_an_embedder_search_by_meaning_falls_back_to_words_and_says_so() {
    let builder = Gate::builder().in_memory().expect("keys");
    let config = Config::parse_with_catalog(
        "toolgate.toml",
        "[search]\nembedder = 'none'",
        gate_catalog(),
    );
    let gate = builder
        .config(config.expect("valid"))
        .build()
        .expect("opens");
    let session = gate
        .session(ScriptedModel::new(["The walrus is here."]))
        .await
        .expect("opens");
    session.run("Find it.").await.expect("runs");
    let request = SearchRequest::new("walrus").mode(SearchMode::Semantic);
    let answer = gate.search().search(&request).await.expect("searches");
    assert_eq!(answer.hits.len(), 1);
    assert_eq!(answer.searched, Some(SearchMode::Text));
    assert!(
        answer.hints.iter().any(|hint| hint.contains("[search]")),
        "{:?}",
        answer.hints
    );
}

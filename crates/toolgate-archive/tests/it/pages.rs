//! HTML pages of hostile sessions: nothing of a session becomes an element, a script or a request.

use proptest::prelude::*;
use toolgate_archive::{ExportFormat, ExportRedaction, ForeignFormat};
use toolgate_testkit::{CountingIds, conformance::SampleSessions};

use crate::support::{empty_store, export, importer};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    futures::executor::block_on(work)
}

/// Returns the page of a session in which everything that a model or tool writes is `text`.
pub(crate) async fn page_of(text: &str) -> String {
    let lines = [
        serde_json::json!({ "type": "summary", "summary": text }),
        serde_json::json!({ "type": "user", "sessionId": "s", "cwd": text, "message": { "content": text } }),
        serde_json::json!({ "type": "assistant", "sessionId": "s", "message": { "model": text, "content": [
            { "type": "text", "text": text },
            { "type": "tool_use", "id": text, "name": text, "input": { "path": text, "old": text, "new": "x" } },
            { "type": "tool_use", "id": "c2", "name": "t", "input": { "patch": text } },
            { "type": "tool_use", "id": "c3", "name": "t", "input": { "command": text } },
        ] } }),
        serde_json::json!({ "type": "user", "sessionId": "s", "message": { "content": [
            { "type": "tool_result", "tool_use_id": "c3", "content": text },
        ] } }),
    ];
    let file: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let store = empty_store();
    let foreign = ForeignFormat::Claude
        .read(&file, "s")
        .expect("reads")
        .remove(0);
    let done = importer(&store)
        .import_foreign(&foreign)
        .await
        .expect("imports");
    export(
        &store,
        &[done.session],
        ExportFormat::Html,
        ExportRedaction::Raw,
    )
    .await
}

/// Returns the elements of a page, in order.
fn elements(page: &str) -> Vec<String> {
    let starts = page
        .split('<')
        .skip(1)
        .filter(|rest| !rest.starts_with('/'));
    let name = |rest: &str| {
        rest.chars()
            .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '!')
            .collect()
    };
    starts.map(name).collect()
}

const KNOWN: [&str; 44] = [
    "!DOCTYPE",
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "section",
    "header",
    "h1",
    "h2",
    "h3",
    "h4",
    "p",
    "span",
    "b",
    "details",
    "summary",
    "ol",
    "ul",
    "li",
    "a",
    "time",
    "main",
    "article",
    "div",
    "code",
    "pre",
    "dl",
    "dt",
    "dd",
    "footer",
    "em",
    "strong",
    "del",
    "br",
    "hr",
    "blockquote",
    "table",
    "tr",
    "th",
    "td",
    "img",
    "!",
];

pub(crate) const HOSTILE: [&str; 9] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "</title><svg onload=alert(1)>",
    "[x](javascript:alert(1)) ![y](https://evil.example/p.png) <https://evil.example>",
    "<!--><iframe srcdoc='<script>alert(1)</script>'>",
    "\u{202e}gnp.exe\u{0}\u{1b}[2J",
    "</pre></details><base href=https://evil.example><form action=//evil.example><input autofocus onfocus=alert(1)>",
];

fn check_page(page: &str) {
    for element in elements(page) {
        assert!(KNOWN.contains(&element.as_str()), "{element} in {page}");
    }
    let scripts = [
        "<script",
        "<iframe",
        "<svg",
        "<base",
        "<form",
        "<input",
        "<link",
        "<img src=x",
    ];
    for text in scripts {
        assert!(!page.contains(text), "{text}");
    }
    for control in ['\u{0}', '\u{1b}', '\u{202e}'] {
        assert!(!page.contains(control), "{control:?}");
    }
    assert!(page.contains("default-src 'none'; style-src 'sha256-"));
}

#[test]
fn hostile_text_is_only_text() {
    block_on(async {
        for text in HOSTILE {
            check_page(&page_of(text).await);
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_text_becomes_an_unknown_element(text in "([<>\"'&/=`\\[\\]()!*_#|\\-]|script|on|img|a|href|javascript:|\\n| ){0,40}") {
        block_on(async { check_page(&page_of(&text).await) });
    }
}

#[test]
fn a_page_shows_calls_with_status_timing_and_diffs() {
    block_on(async {
        let store = empty_store();
        let ids = CountingIds::new();
        let session = SampleSessions::new(&store, &ids, 3)
            .add_session(8)
            .await
            .expect("stores");
        let page = export(
            &store,
            &[session],
            ExportFormat::Html,
            ExportRedaction::Redact,
        )
        .await;
        check_page(&page);
        assert!(!page.contains(crate::support::SECRET));
        assert!(page.contains("<span class=\"badge good\">redacted</span>"));
        assert!(page.contains("done · 12 ms"));
        assert!(page.contains("<details class=\"call ok\""), "its colour");
        assert!(page.contains("Timeline"));
        let edit = page_of("one\ntwo").await;
        assert!(edit.contains("<span class=\"removed\">one"), "{edit}");
    });
}

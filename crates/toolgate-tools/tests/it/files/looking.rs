//! Tests of reading, listing, finding and searching files.

use serde_json::json;
use toolgate_tools::FileLimits;

use crate::files::common::TestSpace;

#[tokio::test]
async fn a_file_is_read_with_line_numbers_and_its_digest() {
    let space = TestSpace::new();
    space.write_file("src/a.rs", "fn a() {}\n\nfn b() {}");
    let settled = space
        .run_ok("read_file", json!({ "path": "src/a.rs" }))
        .await;
    let digest = toolgate_core::Digest::of_bytes(b"fn a() {}\n\nfn b() {}").to_string();
    let expected = format!(
        "[src/a.rs: 3 lines, {}]\n     1\tfn a() {{}}\n     2\t\n     3\tfn b() {{}}\n",
        &digest[..23]
    );
    assert_eq!(settled.model_text(), expected);
    assert_eq!(settled.value["digest"], digest.as_str());
    assert_eq!(settled.value["content"], "fn a() {}\n\nfn b() {}");
    let absolute = space.path("src/a.rs").canonicalize().expect("it exists");
    assert_eq!(
        space
            .run_ok("read_file", json!({ "path": absolute }))
            .await
            .value,
        settled.value
    );
}

#[tokio::test]
async fn a_long_file_is_read_in_parts_with_the_next_offset() {
    let space = TestSpace::new();
    let text: String = (1..=5000).map(|n| format!("line {n}\n")).collect();
    space.write_file("long.txt", &text);
    let mut back = String::new();
    let mut offset = json!(1);
    while !offset.is_null() {
        let value = space
            .run_ok("read_file", json!({ "path": "long.txt", "offset": offset }))
            .await
            .value;
        back.push_str(value["content"].as_str().expect("text"));
        offset = value["next_offset"].clone();
    }
    assert_eq!(back, text);
    let part = space
        .run_ok(
            "read_file",
            json!({ "path": "long.txt", "offset": 10, "limit": 2 }),
        )
        .await;
    assert!(
        part.model_text()
            .contains("lines 10 to 11 of 5000; continue with offset 12"),
        "{}",
        part.model_text()
    );
    assert!(
        space
            .run_error("read_file", json!({ "path": "long.txt", "offset": 5001 }))
            .await
            .contains("5000 lines")
    );
    space.write_file("empty", "");
    assert!(
        space
            .run_ok("read_file", json!({ "path": "empty" }))
            .await
            .model_text()
            .starts_with("[empty: empty, ")
    );
    space.write_file("wide", "x".repeat(1_000_000));
    let wide = space.run_ok("read_file", json!({ "path": "wide" })).await;
    assert!(
        wide.model_text().contains("998000 more characters") && wide.model_text().len() < 5_000
    );
}

#[tokio::test]
async fn text_in_other_encodings_is_decoded_and_named() {
    let space = TestSpace::new();
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("é\r\n".encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    for (bytes, encoding, text) in [
        (utf16, "UTF-16LE", "é"),
        (b"\xef\xbb\xbfone\n".to_vec(), "UTF-8 with BOM", "one"),
        (b"caf\xe9\n".to_vec(), "Windows-1252", "café"),
    ] {
        space.write_file("a.txt", bytes);
        let shown = space
            .run_ok("read_file", json!({ "path": "a.txt" }))
            .await
            .model_text()
            .into_owned();
        assert!(
            shown.contains(encoding) && shown.contains(&format!("     1\t{text}\n")),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn an_image_is_shown_and_other_binary_files_are_only_described() {
    let space = TestSpace::with_limits(FileLimits {
        image_bytes: 100,
        ..FileLimits::default()
    });
    let png = [b"\x89PNG\r\n\x1a\n".as_slice(), &[0; 50]].concat();
    space.write_file("a.png", &png);
    let settled = space.run_ok("read_file", json!({ "path": "a.png" })).await;
    assert_eq!(settled.value["content"][1]["mimeType"], "image/png");
    assert_eq!(settled.value["content"][1]["type"], "image");
    space.write_file("big.png", [png.as_slice(), &[0; 100]].concat());
    space.write_file("a.bin", b"\x7fELF\0\0\0");
    for (path, kind) in [
        ("big.png", "image/png, 158 bytes"),
        ("a.bin", "application/x-executable, 7 bytes"),
    ] {
        let settled = space.run_ok("read_file", json!({ "path": path })).await;
        assert!(settled.model_text().contains(kind) && settled.model_text().contains("not text"));
        assert_eq!(settled.value["binary"], true);
    }
}

#[tokio::test]
async fn a_missing_file_is_reported_with_a_suggestion() {
    let space = TestSpace::new();
    space.write_file("src/main.rs", "");
    space.write_file("lib/deep/util.rs", "");
    for (path, hint) in [
        (
            "src/mian.rs",
            "no such file: src/mian.rs; did you mean src/main.rs?",
        ),
        ("src/MAIN.RS", "; did you mean src/main.rs?"),
        ("util.rs", "; did you mean lib/deep/util.rs?"),
        (
            "nowhere/x.py",
            "; the directory nowhere does not exist either",
        ),
        ("zzz", "; check with list_dir or find_files"),
        ("src", "src is a directory; use list_dir"),
        ("src/main.rs/x", "is not a directory"),
    ] {
        let error = space.run_error("read_file", json!({ "path": path })).await;
        assert!(error.contains(hint), "{path}: {error}");
        let edit = json!({ "path": path, "edits": [{ "old": "a", "new": "b" }] });
        assert!(
            space.run_error("edit_file", edit).await.contains(hint),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_directory_is_listed_in_order_without_ignored_files() {
    let space = TestSpace::new();
    space.write_file(".gitignore", "target/\n*.log\n!keep.log\n");
    space.write_file("src/.gitignore", "/gen\n");
    for file in [
        "src/gen/x.rs",
        "src/b.rs",
        "src/a.rs",
        "target/x",
        "a.log",
        "keep.log",
        ".env",
        ".git/config",
    ] {
        space.write_file(file, "12345");
    }
    let text = space
        .run_ok("list_dir", json!({}))
        .await
        .model_text()
        .into_owned();
    assert_eq!(text, "keep.log (5)\nsrc/\n[5 hidden or ignored by git]");
    let text = space
        .run_ok("list_dir", json!({ "path": "src", "depth": 3 }))
        .await
        .model_text()
        .into_owned();
    assert_eq!(
        text,
        "src/a.rs (5)\nsrc/b.rs (5)\n[2 hidden or ignored by git]"
    );
    let text = space
        .run_ok("list_dir", json!({ "depth": 2, "hidden": true }))
        .await
        .model_text()
        .into_owned();
    let expected = ".env (5)\n.gitignore (24)\na.log (5)\nkeep.log (5)\nsrc/\nsrc/.gitignore (5)\nsrc/a.rs (5)\n\
         src/b.rs (5)\nsrc/gen/\ntarget/\ntarget/x (5)\n[1 hidden or ignored by git]";
    assert_eq!(text, expected);
    assert!(
        space
            .run_error("list_dir", json!({ "path": "src/a.rs" }))
            .await
            .contains("not a directory")
    );
    assert!(
        space
            .run_error("list_dir", json!({ "path": "srk" }))
            .await
            .contains("did you mean src?")
    );
}

#[tokio::test]
async fn a_truncated_list_counts_the_omitted_entries() {
    let space = TestSpace::new();
    for n in 0..1010 {
        space.write_file(&format!("f{n:04}"), "word\n");
    }
    let settled = space.run_ok("list_dir", json!({})).await;
    assert_eq!(
        (
            settled.value["entries"].as_array().map(Vec::len),
            &settled.value["left_out"]
        ),
        (Some(1000), &json!(10))
    );
    assert!(
        settled
            .model_text()
            .ends_with("[10 more not listed; narrow the request]")
    );
    let found = space.run_ok("find_files", json!({ "glob": "f*" })).await;
    assert_eq!(
        (
            found.value["files"].as_array().map(Vec::len),
            &found.value["left_out"]
        ),
        (Some(1000), &json!(10))
    );
    let searched = space
        .run_ok("search_text", json!({ "pattern": "word", "max": 3 }))
        .await;
    assert_eq!(
        (&searched.value["count"], &searched.value["left_out"]),
        (&json!(3), &json!(1007))
    );
    assert!(searched.model_text().contains("1007 more lines not shown"));
}

#[tokio::test]
async fn files_are_found_by_path_patterns() {
    let space = TestSpace::new();
    for file in [
        "a.rs",
        "src/b.rs",
        "src/deep/c.rs",
        "src/d.ts",
        "target/e.rs",
    ] {
        space.write_file(file, "");
    }
    space.write_file(".ignore", "target\n");
    for (arguments, expected) in [
        (json!({ "glob": "*.rs" }), "a.rs\nsrc/b.rs\nsrc/deep/c.rs"),
        (json!({ "glob": "src/*.rs" }), "src/b.rs"),
        (
            json!({ "glob": "./src/**/*.{rs,ts}" }),
            "src/b.rs\nsrc/d.ts\nsrc/deep/c.rs",
        ),
        (
            json!({ "glob": "*.rs", "path": "src" }),
            "src/b.rs\nsrc/deep/c.rs",
        ),
        (json!({ "glob": "deep/*", "path": "src" }), "src/deep/c.rs"),
        (
            json!({ "glob": "*.py" }),
            "[no file matches *.py]\n[2 hidden or ignored by git]",
        ),
    ] {
        assert_eq!(
            space
                .run_ok("find_files", arguments.clone())
                .await
                .model_text(),
            expected,
            "{arguments}"
        );
    }
    assert!(
        space
            .run_error("find_files", json!({ "glob": "a[" }))
            .await
            .contains("not valid")
    );
}

#[tokio::test]
async fn text_is_searched_with_context_and_only_in_the_selected_files() {
    let space = TestSpace::new();
    space.write_file("a.rs", "one\ntwo\nthree\nfour\nTwo\n");
    space.write_file("b.txt", "two\r\n");
    space.write_file("bin", b"two\0two\n");
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("two\n".encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    space.write_file("wide.txt", utf16);
    for (arguments, expected) in [
        (
            json!({ "pattern": "two" }),
            "a.rs\n     2:two\n\nb.txt\n     1:two\n\nwide.txt\n     1:two",
        ),
        (
            json!({ "pattern": "^t\\w+$", "glob": "*.rs" }),
            "a.rs\n     2:two\n     3:three",
        ),
        (
            json!({ "pattern": "two$", "path": "b.txt" }),
            "b.txt\n     1:two",
        ),
        (
            json!({ "pattern": "two", "glob": "*.rs", "case": "insensitive" }),
            "a.rs\n     2:two\n     5:Two",
        ),
        (
            json!({ "pattern": "Two", "glob": "*.rs", "case": "smart" }),
            "a.rs\n     5:Two",
        ),
        (
            json!({ "pattern": "two", "glob": "*.rs", "context": 1 }),
            "a.rs\n     1-one\n     2:two\n     3-three",
        ),
        (
            json!({ "pattern": "w.", "literal": true }),
            "[no line matches w. in 4 files]",
        ),
    ] {
        assert_eq!(
            space
                .run_ok("search_text", arguments.clone())
                .await
                .model_text(),
            expected,
            "{arguments}"
        );
    }
    let error = space
        .run_error("search_text", json!({ "pattern": "a(" }))
        .await;
    assert!(
        error.contains("not valid") && error.contains("literal"),
        "{error}"
    );
    assert!(
        space
            .run_error("search_text", json!({ "pattern": "" }))
            .await
            .contains("empty")
    );
    assert!(
        space
            .run_error("search_text", json!({ "pattern": "a", "path": "c.txt" }))
            .await
            .contains("did you mean b.txt?")
    );
}

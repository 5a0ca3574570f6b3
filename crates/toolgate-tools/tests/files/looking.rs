//! Reading, listing, finding, searching.

use serde_json::json;
use toolgate_tools::FileLimits;

use crate::common::Space;

#[tokio::test]
async fn a_file_is_read_with_line_numbers_and_its_digest() {
    let space = Space::new();
    space.put("src/a.rs", "fn a() {}\n\nfn b() {}");
    let settled = space.ok("read_file", json!({ "path": "src/a.rs" })).await;
    let digest = toolgate_core::Digest::of_bytes(b"fn a() {}\n\nfn b() {}").to_string();
    let expected = format!(
        "[src/a.rs: 3 lines, {}]\n     1\tfn a() {{}}\n     2\t\n     3\tfn b() {{}}\n",
        &digest[..23]
    );
    assert_eq!(settled.model_text(), expected);
    assert_eq!(settled.value["digest"], digest.as_str());
    assert_eq!(settled.value["content"], "fn a() {}\n\nfn b() {}");
    let absolute = space.path("src/a.rs").canonicalize().expect("there");
    assert_eq!(
        space
            .ok("read_file", json!({ "path": absolute }))
            .await
            .value,
        settled.value
    );
}

#[tokio::test]
async fn a_long_file_is_read_in_parts_that_say_where_to_go_on() {
    let space = Space::new();
    let text: String = (1..=5000).map(|n| format!("line {n}\n")).collect();
    space.put("long.txt", &text);
    let (mut back, mut offset) = (String::new(), json!(1));
    while !offset.is_null() {
        let value = space
            .ok("read_file", json!({ "path": "long.txt", "offset": offset }))
            .await
            .value;
        back.push_str(value["content"].as_str().expect("text"));
        offset = value["next_offset"].clone();
    }
    assert_eq!(back, text);
    let part = space
        .ok(
            "read_file",
            json!({ "path": "long.txt", "offset": 10, "limit": 2 }),
        )
        .await;
    assert!(
        part.model_text()
            .contains("lines 10 to 11 of 5000; go on with offset 12"),
        "{}",
        part.model_text()
    );
    assert!(
        space
            .error("read_file", json!({ "path": "long.txt", "offset": 5001 }))
            .await
            .contains("5000 lines")
    );
    space.put("empty", "");
    assert!(
        space
            .ok("read_file", json!({ "path": "empty" }))
            .await
            .model_text()
            .starts_with("[empty: empty, ")
    );
    space.put("wide", "x".repeat(1_000_000));
    let wide = space.ok("read_file", json!({ "path": "wide" })).await;
    assert!(
        wide.model_text().contains("998000 more characters") && wide.model_text().len() < 5_000
    );
}

#[tokio::test]
async fn text_in_other_encodings_is_read_and_named() {
    let space = Space::new();
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("é\r\n".encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    for (bytes, encoding, text) in [
        (utf16, "UTF-16LE", "é"),
        (b"\xef\xbb\xbfone\n".to_vec(), "UTF-8 with BOM", "one"),
        (b"caf\xe9\n".to_vec(), "Windows-1252", "café"),
    ] {
        space.put("a.txt", bytes);
        let shown = space
            .ok("read_file", json!({ "path": "a.txt" }))
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
async fn a_picture_is_shown_and_other_files_are_only_named() {
    let space = Space::small(FileLimits {
        image_bytes: 100,
        ..FileLimits::default()
    });
    let png = [b"\x89PNG\r\n\x1a\n".as_slice(), &[0; 50]].concat();
    space.put("a.png", &png);
    let settled = space.ok("read_file", json!({ "path": "a.png" })).await;
    assert_eq!(settled.value["content"][1]["mimeType"], "image/png");
    assert_eq!(settled.value["content"][1]["type"], "image");
    space.put("big.png", [png.as_slice(), &[0; 100]].concat());
    space.put("a.bin", b"\x7fELF\0\0\0");
    for (path, kind) in [
        ("big.png", "image/png, 158 bytes"),
        ("a.bin", "application/x-executable, 7 bytes"),
    ] {
        let settled = space.ok("read_file", json!({ "path": path })).await;
        assert!(settled.model_text().contains(kind) && settled.model_text().contains("not text"));
        assert_eq!(settled.value["binary"], true);
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_is_told_with_what_may_have_been_meant() {
    let space = Space::new();
    space.put("src/main.rs", "");
    space.put("lib/deep/util.rs", "");
    for (path, hint) in [
        (
            "src/mian.rs",
            "no such file: src/mian.rs; there is src/main.rs",
        ),
        ("src/MAIN.RS", "; there is src/main.rs"),
        ("util.rs", "; there is lib/deep/util.rs"),
        ("nowhere/x.py", "; there is no directory nowhere either"),
        ("zzz", "; look with list_dir or find_files"),
        ("src", "src is a directory; use list_dir"),
        ("src/main.rs/x", "is not a directory"),
    ] {
        let error = space.error("read_file", json!({ "path": path })).await;
        assert!(error.contains(hint), "{path}: {error}");
        let edit = json!({ "path": path, "edits": [{ "old": "a", "new": "b" }] });
        assert!(
            space.error("edit_file", edit).await.contains(hint),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_directory_is_listed_in_order_without_what_git_ignores() {
    let space = Space::new();
    space.put(".gitignore", "target/\n*.log\n!keep.log\n");
    space.put("src/.gitignore", "/gen\n");
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
        space.put(file, "12345");
    }
    let text = space
        .ok("list_dir", json!({}))
        .await
        .model_text()
        .into_owned();
    assert_eq!(text, "keep.log (5)\nsrc/\n[5 hidden or ignored by git]");
    let text = space
        .ok("list_dir", json!({ "path": "src", "depth": 3 }))
        .await
        .model_text()
        .into_owned();
    assert_eq!(
        text,
        "src/a.rs (5)\nsrc/b.rs (5)\n[2 hidden or ignored by git]"
    );
    let text = space
        .ok("list_dir", json!({ "depth": 2, "hidden": true }))
        .await
        .model_text()
        .into_owned();
    let expected = ".env (5)\n.gitignore (24)\na.log (5)\nkeep.log (5)\nsrc/\nsrc/.gitignore (5)\nsrc/a.rs (5)\n\
         src/b.rs (5)\nsrc/gen/\ntarget/\ntarget/x (5)\n[1 hidden or ignored by git]";
    assert_eq!(text, expected);
    assert!(
        space
            .error("list_dir", json!({ "path": "src/a.rs" }))
            .await
            .contains("not a directory")
    );
    assert!(
        space
            .error("list_dir", json!({ "path": "srk" }))
            .await
            .contains("there is src")
    );
}

#[tokio::test]
async fn a_list_that_is_too_long_says_how_much_was_left_out() {
    let space = Space::new();
    for n in 0..1010 {
        space.put(&format!("f{n:04}"), "word\n");
    }
    let settled = space.ok("list_dir", json!({})).await;
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
            .ends_with("[10 more left out; ask for less]")
    );
    let found = space.ok("find_files", json!({ "glob": "f*" })).await;
    assert_eq!(
        (
            found.value["files"].as_array().map(Vec::len),
            &found.value["left_out"]
        ),
        (Some(1000), &json!(10))
    );
    let searched = space
        .ok("search_text", json!({ "pattern": "word", "max": 3 }))
        .await;
    assert_eq!(
        (&searched.value["count"], &searched.value["left_out"]),
        (&json!(3), &json!(1007))
    );
    assert!(searched.model_text().contains("1007 more lines left out"));
}

#[tokio::test]
async fn files_are_found_by_patterns_for_their_paths() {
    let space = Space::new();
    for file in [
        "a.rs",
        "src/b.rs",
        "src/deep/c.rs",
        "src/d.ts",
        "target/e.rs",
    ] {
        space.put(file, "");
    }
    space.put(".ignore", "target\n");
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
            "[no file fits *.py]\n[2 hidden or ignored by git]",
        ),
    ] {
        assert_eq!(
            space.ok("find_files", arguments.clone()).await.model_text(),
            expected,
            "{arguments}"
        );
    }
    assert!(
        space
            .error("find_files", json!({ "glob": "a[" }))
            .await
            .contains("cannot be read")
    );
}

#[tokio::test]
async fn text_is_searched_with_context_and_in_the_files_that_are_asked_for() {
    let space = Space::new();
    space.put("a.rs", "one\ntwo\nthree\nfour\nTwo\n");
    space.put("b.txt", "two\r\n");
    space.put("bin", b"two\0two\n");
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("two\n".encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    space.put("wide.txt", utf16);
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
            "[nothing fits w. in 4 files]",
        ),
    ] {
        assert_eq!(
            space
                .ok("search_text", arguments.clone())
                .await
                .model_text(),
            expected,
            "{arguments}"
        );
    }
    let error = space.error("search_text", json!({ "pattern": "a(" })).await;
    assert!(
        error.contains("cannot be used") && error.contains("literal"),
        "{error}"
    );
    assert!(
        space
            .error("search_text", json!({ "pattern": "" }))
            .await
            .contains("empty")
    );
    assert!(
        space
            .error("search_text", json!({ "pattern": "a", "path": "c.txt" }))
            .await
            .contains("there is b.txt")
    );
}

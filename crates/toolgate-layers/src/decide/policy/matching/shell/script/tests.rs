use super::*;

/// Shows the commands of a text: words, then redirections. `?` marks what a shell expands.
fn show(text: &str) -> String {
    let word = |word: &ShellWord| format!("{}{}", word.text, if word.certain { "" } else { "?" });
    let command = |command: &ScriptCommand| {
        let words = command.words.iter().map(word);
        let writes = command.writes.iter().map(|it| format!(">{}", word(it)));
        let reads = command.reads.iter().map(|it| format!("<{}", word(it)));
        words
            .chain(writes)
            .chain(reads)
            .collect::<Vec<_>>()
            .join(" ")
    };
    let commands: Vec<String> = read_script(text).iter().map(command).collect();
    commands.join(" | ")
}

#[test]
fn commands_are_found_wherever_they_stand() {
    for (text, commands) in [
        ("a b; c && d | e", "a b | c | d | e"),
        ("X=1 a 'b c' \"d\"e f\\ g", "a b c de f g"),
        ("a > b 2>> c < d 2>&1 >&-", "a >b >c <d"),
        ("if a; then b; else c; fi", "a | b | c"),
        ("{ a; } && ! b", "a | b"),
        ("(a; b) > c", "a | b | >c"),
        ("a $(b `c`) d", "c | b `…`? | a $(b `c`)? d"),
        ("a # b 'c\nd", "a | d"),
        ("a \"x $(b 'y') z\"", "b y | a x $(b 'y') z?"),
        ("a <<E b\nx $(c)\nE\nd", "a b | c | d"),
        ("a <<'E'\nx $(c)\nE\nd", "a | d"),
        ("a <<-E\n\tx\n\tE\nb", "a | b"),
        ("sh -c 'a > $x'", "sh -c a > $x | a >$x?"),
        ("sh <<'E'\na\nE", "sh | a"),
        ("eval a '>' b", "eval a > b | a >b"),
        ("a <(b) >(c)", "b | c | a /dev/fd /dev/fd"),
        ("a $((1 + (2))) $$", "a $((…))? $$"),
        ("a ${b:-'}'} c", "a ${b:-'}'}? c"),
        ("a $HOME/x \"$PWD\"/y $HOME", "a $HOME/x $PWD/y $HOME?"),
        ("read HOME; a $HOME/x", "read HOME | a $HOME/x?"),
        ("a \\\n b", "a b"),
        (
            "case x in a) b;; c) d;; esac",
            "case x in a | b | c | d | esac",
        ),
    ] {
        assert_eq!(show(text), commands, "{text:?}");
    }
}

#[test]
fn what_is_nested_too_deeply_is_unknown() {
    let deep = "$(".repeat(40);
    let commands = read_script(&format!("a {deep}b > c"));
    let is_unknown = |command: &ScriptCommand| command.program().is_none();
    assert!(commands.iter().any(is_unknown));
}

#[test]
fn reading_is_bounded_for_texts_that_contain_each_other() {
    let mut text = "a".repeat(2_000);
    for number in 0..14 {
        text = format!("$(sh <<E{number}\n{text}\nE{number}\n)");
    }
    let commands = read_script(&text);
    assert!(commands.len() < 1_000, "{}", commands.len());
    for piece in [
        "$((",
        "${",
        "{",
        "`\\",
        "<<a\n",
        "$HOME/ ",
        "sh -c '",
        "\"$(",
        "case x in a)",
    ] {
        let commands = read_script(&piece.repeat(8_000));
        assert!(commands.len() < 20_000, "{piece}");
    }
}

use super::{possible_runs::*, *};

fn joined_commands(text: &str) -> Option<Vec<String>> {
    read_commands(text)
        .plain_commands()
        .map(|commands| commands.into_iter().map(|words| words.join("·")).collect())
}

#[test]
fn plain_lists_are_split_into_their_commands() {
    for (text, expected) in [
        ("git status", vec!["git·status"]),
        ("  ls -la\tsrc  ", vec!["ls·-la·src"]),
        (
            "a; b && c || d | e\nf\n\n",
            vec!["a", "b", "c", "d", "e", "f"],
        ),
        ("grep 'a;b|c' \"d e\" f''g", vec!["grep·a;b|c·d e·fg"]),
        ("cargo test 2>&1 | tail -5", vec!["cargo·test", "tail·-5"]),
        ("ls *.rs src/[ab]?.rs", vec!["ls·*.rs·src/[ab]?.rs"]),
        ("git diff HEAD^ a#b x=1", vec!["git·diff·HEAD^·a#b·x=1"]),
    ] {
        assert_eq!(
            joined_commands(text).as_deref(),
            Some(&expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]),
            "{text}"
        );
    }
}

#[test]
fn anything_beyond_plain_lists_is_not_certain() {
    for text in [
        "",
        "  ",
        "git $(x)",
        "git `x`",
        "git ${x}",
        "git $x",
        "git <(x)",
        "cat <<EOF\nx\nEOF",
        "cat < x",
        "ls > x",
        "ls >> x",
        "ls 2>x",
        "ls &> x",
        "ls 2>&1x",
        "ls &",
        "ls & x",
        "(ls)",
        "{ ls; }",
        "f() { ls; }",
        "git \"$(x)\"",
        "git \"`x`\"",
        "git 'x",
        "git \"x",
        "git x\\",
        "git \\\nx",
        "git status # x",
        "#ls",
        "!ls",
        "ls !!",
        "l? x",
        "* x",
        "[ x ]",
        "~/x",
        "FOO=bar ls",
        "PATH=. git status",
        "LD_PRELOAD=x ls",
        "'' x",
        "ls |& x",
        "ls ;; x",
        "; ls",
        "ls &&",
        "ls |",
        "ls &&& x",
        "ls\u{a0}x",
        "ls\rx",
        "ls\u{1b}x",
        "ls\0x",
        "if x; then y; fi",
        "for x in y; do z; done",
        "$'ls'",
        "-x",
        "{ls,x}",
    ] {
        assert_eq!(joined_commands(text), None, "{text:?}");
    }
}

#[test]
fn a_program_that_runs_another_one_is_not_certain() {
    for text in [
        "sh -c ls",
        "bash -lc ls",
        "/bin/sh x",
        "BASH x",
        "env ls",
        "env X=1 ls",
        "xargs rm",
        "ls | xargs rm",
        "sudo ls",
        "nohup ls",
        "timeout 5 ls",
        "find . -exec rm {} +",
        "find . -execdir x",
        "python -c x",
        "python3.12 -Ic x",
        "perl -e x",
        "node -e x",
        "node --eval=x",
        "awk x",
        "sed s/x/y/e f",
        "git -c alias.x=!sh x",
        "git --exec-path=/x status",
        "git rebase -x ls",
        "git bisect run ls",
        "eval ls",
        "exec ls",
        "source x",
        ". x",
        "alias ls=x",
        "export PATH=.",
        "command ls",
        "hash -p /x git",
        "printf -v PATH x",
        "tar --to-command=x -xf y",
        "npm exec x",
        "docker run x",
        "time ls",
    ] {
        assert!(read_commands(text).unread.is_some(), "{text:?}");
    }
}

#[test]
fn a_list_of_words_is_one_command_unless_a_shell_would_read_it_differently() {
    assert_eq!(
        read_argv(&["git", "status"]).plain_commands(),
        Some(vec![vec!["git".to_owned(), "status".to_owned()]])
    );
    assert_eq!(
        read_argv(&["git", "commit", "-m", "two words"])
            .plain_commands()
            .map(|all| all[0].len()),
        Some(4)
    );
    for words in [
        &["git", "; rm"][..],
        &["git", "$(x)"],
        &["sh", "-c", "ls"],
        &[],
        &["FOO=1", "ls"],
        &["git", "a\nb"],
    ] {
        assert_eq!(read_argv(words).plain_commands(), None, "{words:?}");
    }
}

#[test]
fn braces_are_expanded_up_to_a_limit() {
    assert_eq!(expand_braces("a{b,c}d").len(), 2);
    assert!(expand_braces(&"{a,b}".repeat(100)).len() < 200);
    assert!(
        possible_runs(&"{a,b}".repeat(8_000))
            .iter()
            .map(Vec::len)
            .sum::<usize>()
            < 50_000
    );
}

#[test]
fn a_word_is_found_in_any_disguise() {
    for text in [
        "rm x",
        "ls; rm x",
        "ls|rm",
        "$(rm x)",
        "`rm x`",
        "r'm' x",
        "r\\m x",
        "sh -c \"rm x\"",
        "sh -c\"rm x\"",
        "a\nrm",
        "a&&rm",
        "<(rm)",
        "rm$IFS-rf",
        "\"rm\"",
        "{ rm; }",
        "a\u{a0}rm",
        "r\\\nm x",
        "r$@m x",
        "r${x}m x",
        "r``m x",
        "r$()m x",
        "r{m,} x",
        "{r,}m x",
        "$'r\\x6d' x",
        "$'\\162m' x",
        "r+(m) x",
    ] {
        let found = possible_runs(text)
            .iter()
            .flatten()
            .any(|word| word == "rm");
        assert!(found, "{text:?}: {:?}", possible_runs(text));
    }
}

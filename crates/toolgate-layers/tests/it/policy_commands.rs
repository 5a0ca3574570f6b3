//! Judgements about commands: what cannot be read is asked about, what a pattern does not name is
//! not covered, and judging is bounded.

use std::{fs, process::Command};

use proptest::prelude::*;
use serde_json::{Value, json};
use toolgate_layers::{Policy, PolicyEffect};
use toolgate_testkit::call_with;

use crate::policy::{effect_of, policy_from};

/// Allows everything but two commands.
fn denying() -> Policy {
    policy_from(
        "default = \"allow\"\n[[rules]]\nname = \"no\"\neffect = \"deny\"\ncommand = [\"git push\", \"zap\"]",
    )
}

fn allowing(pattern: &str) -> Policy {
    policy_from(&format!(
        "default = \"ask\"\n[[rules]]\nname = \"yes\"\neffect = \"allow\"\ncommand = {pattern:?}"
    ))
}

fn effect(policy: &Policy, text: &str) -> PolicyEffect {
    effect_of(policy, "sh", json!({ "command": text }))
}

fn reason(policy: &Policy, text: &str) -> String {
    let call = call_with("sh", json!({ "command": text }));
    policy.judge(&call).reason.to_string()
}

/// Texts of which it cannot be told which commands run.
const UNREADABLE: &[&str] = &[
    // expansions
    "${x:-rm} -rf y",
    "${x:=a} b",
    "${!x} b",
    "${x#a} b",
    "$x b",
    "\"$x\" b",
    "$1",
    "$(echo ls) x",
    "`echo ls` x",
    "echo $(date)",
    "echo \"`date`\"",
    "echo $((a[0]))",
    "$'l\\x73' x",
    "echo $'\\'; x; \\''",
    "$\"ls\" x",
    "ls ${a[$(x)]}",
    // words assembled from pieces, patterns, braces, home directories
    "l\\s x",
    "/bin/l? x",
    "l[s] x",
    "{ls,x}",
    "l{s,} x",
    "~/bin/x",
    "~user/x",
    "l\\\ns x",
    // programs that run others
    "eval ls",
    "source x",
    ". x",
    "sh -c \"$x\"",
    "sh x",
    "echo bHM= | base64 -d | sh",
    "bash <<< ls",
    "python <<EOF\nx\nEOF",
    "echo x | python",
    "python3 -c x",
    "python3 -Wd -c x",
    "node -e x",
    "perl -e x",
    "awk 'BEGIN{system(\"x\")}'",
    "sed 's/a/b/e' x",
    "sed -n '1e x' y",
    "sed '1w x' y",
    "xargs ls",
    "find . -exec ls {} +",
    "find . -okdir ls",
    "env -S 'ls x'",
    "env ls",
    "command ls",
    "builtin echo x",
    "exec ls",
    "nohup ls",
    "busybox ls",
    "timeout 5 ls",
    "sudo ls",
    "time ls",
    "ssh host ls",
    "trap ls EXIT",
    "coproc ls",
    "alias l=ls",
    "l() { ls; }; l",
    "function l { ls; }; l",
    // aliases and settings
    "git -c alias.x='!zap-it' x",
    "git -calias.x=!ls x",
    "git --config-env=alias.x=Y x",
    "git --exec-path=/tmp x",
    "git config alias.x '!ls'",
    "git clone -c core.x=y z",
    "git clone --template=x y",
    "git grep -Ols x",
    "git fetch --upload-pack=ls x",
    "git clone 'ext::ls x' y",
    "git bisect run ls",
    "git rebase -xls",
    "rg --pre=ls x",
    "rg --hostname-bin ls x",
    "sort --compress-program=ls x",
    "tar xf a --to-command=ls",
    "tar cfI a ls b",
    "cargo --config x test",
    "go test -exec ls",
    "npm exec ls",
    "npm test --node-options=-rx",
    "make --eval=x",
    "make SHELL=ls",
    "gcc -B. x.c",
    "gcc @x",
    "docker run x",
    "fd -Hx ls",
    "test -v 'a[$(x)]'",
    "printf -v PATH x",
    "scp -oProxyCommand=x a b:c",
    "split --filter=x y",
    "cmake -P x",
    "hg --config alias.x='!y' x",
    "perl5.36 x",
    "bash-5.1 x",
    "sqlite3 db '.shell x'",
    "rustc -Clinker=x y",
    // abbreviated options
    "git clone --u=ls x y",
    "git ls-remote --u=ls x",
    "git fetch --up=ls x",
    "split --f=ls x",
    "sort --comp=ls x",
    "go test --toolexec=ls x",
    // variables and rules of make
    "make SHELL:=/bin/sh 'X!=id'",
    "make 'CC+=$(shell id)' m",
    "make CC?=x m",
    "make X::=y",
    "make -f -",
    "make -f- x",
    "make -sf /dev/stdin",
    "make --file=/dev/fd/0",
    "make --makefile=/proc/self/fd/0",
    // code after an option that is not known, and code from the input
    "python3 --check-hash-based-pycs default -c x",
    "python3 -m timeit x",
    "python3 -m http.server",
    "python3 -Bm x",
    "python3 /dev/stdin",
    "python3 /dev/fd/0",
    "python3 /proc/self/fd/0",
    "python3 -u -",
    "ipython -c x",
    "node --title x -e y",
    "node /dev/stdin",
    "nodejs -e x",
    "tsx -e x",
    "ruby --encoding utf-8 -e x",
    "lua -l os -e x",
    "luajit -e x",
    "php -c . -r x",
    "julia -t 2 -e x",
    "Rscript -e x",
    "R -e x",
    "deno eval x",
    "deno run -",
    "bun -e x",
    "bun x y",
    // shells for SQL
    "sqlite3 :memory: \"select edit('','ls')\"",
    "printf '.shell ls' | sqlite3 :memory:",
    "sqlite3 db < x",
    "sqlite3 --init x db",
    "duckdb db '.sh ls'",
    "psql db < x",
    "psql -f -",
    "mysql -e x",
    "mysql < x",
    "mysql -f < x",
    "printf '.shell ls' | sqlite3 --list db",
    "sqlite3 -separator --help db < x",
    "deno run data:text/javascript,x",
    // programs that start others
    "uv run ls",
    "uv tool run ls",
    "poetry run ls",
    "conda run -n x ls",
    "bundle exec ls",
    "pipenv run ls",
    "rye run ls",
    "hatch run ls",
    "rustup run nightly ls",
    "direnv exec . ls",
    "mise exec -- ls",
    "pyenv exec ls",
    "rbenv exec ls",
    "nvm exec 20 ls",
    "ccache ls",
    "/lib64/ld-linux-x86-64.so.2 /bin/ls",
    "ld-musl-x86_64.so.1 ls",
    "yash x",
    "posh -c ls",
    "nu -c ls",
    "bash-static -c ls",
    "busybox.nosuid ls",
    "original-awk x",
    "frob bash -c ls",
    "frob --with /usr/bin/env ls",
    "frob python3 -c x",
    "git remote-ext x ls",
    "git shell -c ls",
    "git for-each-repo --config=x ls",
    "fzf --preview ls",
    "bat --pager ls x",
    "cargo watch -s ls",
    "less +!ls x",
    "man -P ls x",
    "tar xf host:x",
    "DEBIAN_FRONTEND=x ls",
    "> o $x",
    // the environment of later commands
    "PATH=. ls",
    "X=1 ls",
    "LD_PRELOAD=x ls",
    "IFS=x; ls",
    "RUST_LOG=$(x) ls",
    "export PATH=.; ls",
    "set -f; ls",
    "hash -p x ls",
    // syntax
    "(ls)",
    "{ ls; }",
    "if ls; then x; fi",
    "for a in b; do ls; done",
    "while ls; do x; done",
    "case a in *) ls;; esac",
    "! ls",
    "[[ a ]]",
    "((a))",
    "ls <(x)",
    "ls >(x)",
    "cat <<EOF\nx\nEOF",
    "cat <<-E\nx\nE",
    "cat <<< x",
    "ls &> x",
    "ls |& x",
    "ls # x",
    "ls\rx",
    "ls\0x",
    "ls\u{a0}x",
    "ls 'x",
    "ls \"x",
    "ls x\\",
    "ls; ; x",
    "@(ls|x)",
    "ls +(a)",
    "",
];

#[test]
fn a_command_that_cannot_be_read_needs_approval_if_a_rule_is_about_commands() {
    let asking = policy_from("default = \"allow\"\n[[rules]]\neffect = \"ask\"\ncommand = \"zap\"");
    let by_tool = policy_from(
        "default = \"ask\"\n[[rules]]\neffect = \"allow\"\ntool = \"sh\"\n[[rules]]\neffect = \"deny\"\ncommand = \"zap\"",
    );
    let strict = policy_from("default = \"deny\"\n[[rules]]\neffect = \"deny\"\ncommand = \"zap\"");
    for text in UNREADABLE {
        for policy in [&asking, &by_tool] {
            assert_eq!(effect(policy, text), PolicyEffect::Ask, "{text:?}");
        }
        assert_eq!(effect(&strict, text), PolicyEffect::Deny, "{text:?}");
    }
    for (text, piece) in [
        ("${x:-rm} -rf y", "`${x:-rm}`"),
        ("git -c alias.x='!ls' x", "`git -c`"),
        ("sh -c \"$x\"", "`sh`"),
        ("ls; PATH=. ls", "`PATH=.`"),
        ("echo $(date +%s)", "`$(date +%s)`"),
        ("ls\rx", "`ls`"),
    ] {
        let expected = format!("cannot tell which command this runs: {piece}");
        // It may be a command that writes a file, too.
        let reason = reason(&asking, text);
        assert!(reason.starts_with(&expected), "{text:?}: {reason}");
    }
}

#[test]
fn an_unreadable_command_is_not_asked_about_without_a_rule_about_commands() {
    let other = policy_from(
        "default = \"allow\"\n[[rules]]\neffect = \"deny\"\ntool = \"other\"\ncommand = \"zap\"\n\
         [[rules]]\neffect = \"deny\"\npath = \"x/**\"",
    );
    for text in ["$x y", "echo $(date)", "sh -c ls", "(ls)"] {
        assert_eq!(effect(&other, text), PolicyEffect::Allow, "{text}");
        assert_eq!(effect(&denying(), text), PolicyEffect::Ask, "{text}");
    }
}

#[test]
fn a_command_that_can_be_read_is_not_asked_about() {
    for text in [
        "ls",
        "git status",
        "git -C . status",
        "git -C sub/dir --no-pager log --oneline",
        "git commit -m \"fix: it's (done) & more!\"",
        "git commit -m 'a $(b) `c`'",
        "git switch -c new",
        "cargo test > out.txt 2>&1",
        "cargo test 2> errors.txt < input >> log",
        "cd x && make -j4 test",
        "echo \"$HOME\" $USER ${SHELL} $? > x",
        "grep -n a\\.b src/*.rs | head -5",
        "grep 'x$' y; grep x$ y",
        "RUST_LOG=debug CI=1 cargo test",
        "sleep 5 & ls",
        "python script.py -c x",
        "python -m pytest -x",
        "python3 -m unittest -v",
        "python3 -Bu script.py",
        "node x.js -e y",
        "node --test",
        "node --max-old-space-size=4096 x.js",
        "deno run x.ts",
        "deno test --quiet",
        "psql --version",
        "git diff | less",
        "man zap",
        "which zap",
        "git commit -m 'zap old files, then git push'",
        "grep -rn 'git push' docs",
        "rg zap src",
        "git rm zap",
        "git log --grep='git push'",
        "echo zap > zap.txt",
        "systemctl start x",
        "sed -n '1,20p' x",
        "sed 's/a/b/g' x",
        "find . -name '*.rs' -type f",
        "tar xzf a.tar",
        "npm test",
        "docker ps -a",
        "echo git",
    ] {
        assert_eq!(effect(&denying(), text), PolicyEffect::Allow, "{text}");
    }
}

#[test]
fn a_certain_deny_stays_a_deny() {
    for text in [
        "zap x",
        "ls; zap x",
        "$(zap x)",
        "sh -c 'zap x'",
        "z''ap x",
        "z\\ap x",
        "sudo zap",
        "zap $x",
        "zap > $(x)",
        "git -C . push",
        "git --no-pager push",
        "git -c a=b push",
        "git-push",
        "git-push origin main",
        "/usr/lib/git-core/git-push",
        "sudo git-push --tags",
        "sh -c git-push",
        "ls; env A=b git-push; $(x)",
        "x=zap; $x",
        // Words with blanks.
        "git -C \"a b\" push origin x",
        "git -C a\\ b push",
        "git -C 'a b' push",
        "git --namespace 'a b' push",
        "git -C \"$x y\" push",
        "ls; git --no-pager -C 'a b c' push --tags",
        "time git -C 'a b' push",
        "git -C 'a b' push; $(x)",
        "$(x); git -C \"a b\" push",
        "sh -c 'git -C \"a b\" push'",
        "# it's\ngit -C 'a b' push",
    ] {
        assert_eq!(effect(&denying(), text), PolicyEffect::Deny, "{text}");
    }
    for words in [
        json!(["git", "-C", "a b", "push"]),
        json!(["git", "-C", "a push"]),
        json!(["git", "--namespace", "a b", "push", "x"]),
    ] {
        let judged = effect_of(&denying(), "sh", json!({ "argv": words }));
        assert_eq!(judged, PolicyEffect::Deny, "{words}");
    }
}

#[test]
fn a_denied_option_is_found_in_its_abbreviations() {
    let policy = policy_from(
        "default = \"allow\"\n[[rules]]\neffect = \"deny\"\ncommand = [\"git reset --hard\", \"git commit --no-verify\", \"x --mode=all\"]",
    );
    for text in [
        "git reset --hard",
        "git reset --har",
        "git reset --h HEAD^",
        "git reset HEAD^ --ha",
        "git commit --no-verif -m x",
        "git commit -m x --no-v",
        "x --mo=all",
    ] {
        assert_eq!(effect(&policy, text), PolicyEffect::Deny, "{text}");
    }
    for text in [
        "git reset --soft",
        "git reset -- hard",
        "git commit --no-edit",
        "x --mode=one",
        "x --mode-all",
    ] {
        assert_eq!(effect(&policy, text), PolicyEffect::Allow, "{text}");
    }
}

#[test]
fn a_text_that_cannot_be_read_is_not_denied_for_the_name_of_a_program_alone() {
    for text in [
        "time git status",
        "X=1 git status",
        "git status # x",
        "git config user.name",
        "git submodule status",
        "git commit -m \"$MSG\"",
        "git log | xargs echo",
        "timeout 5 git fetch",
        "git --git-dir=.git log",
        "git add $(ls)",
    ] {
        assert_eq!(effect(&denying(), text), PolicyEffect::Ask, "{text}");
    }
    assert_ne!(effect(&denying(), "git add *.rs"), PolicyEffect::Deny);
}

#[test]
fn an_operand_that_names_a_denied_program_needs_approval_unless_the_program_leaves_it_alone() {
    for text in [
        "frob zap x",
        "frob 'zap x'",
        "frob --with=zap",
        "frob 'z\"\"ap x'",
        "pnpm zap y",
        "frob /usr/bin/zap",
        "cp zap x",
        "ln -s /usr/bin/zap x; ./x",
        "mv /opt/zap y",
        "cat /bin/zap > x",
        "frob git push",
    ] {
        assert_eq!(effect(&denying(), text), PolicyEffect::Ask, "{text}");
    }
}

#[test]
fn a_denied_path_with_blanks_is_seen_in_a_command() {
    let policy =
        policy_from("default = \"allow\"\n[[rules]]\neffect = \"deny\"\npath = \"my vault/**\"");
    for text in [
        "cat \"my vault/plan.txt\"",
        "cat 'my vault/plan.txt'",
        "cat my\\ vault/plan.txt",
        "cat my' 'vault/plan.txt",
        "cat < 'my vault/plan.txt'",
        "echo x > \"my vault/plan.txt\"",
        "cd 'my vault'; cat plan.txt",
        "tar -C 'my vault' -cf - plan.txt",
        "$(x); cat 'my vault/plan.txt'",
        "sh -c 'cat \"my vault/plan.txt\"'",
        "frob --file='my vault/plan.txt'",
    ] {
        assert_eq!(effect(&policy, text), PolicyEffect::Deny, "{text}");
    }
    for words in [
        json!(["cat", "my vault/plan.txt"]),
        json!(["sudo", "cat", "my vault/x"]),
    ] {
        let judged = effect_of(&policy, "sh", json!({ "argv": words }));
        assert_eq!(judged, PolicyEffect::Deny, "{words}");
    }
    for text in [
        "cat 'my vaults/plan.txt'",
        "cat my/vault",
        "echo 'my vault'",
    ] {
        assert_eq!(effect(&policy, text), PolicyEffect::Allow, "{text}");
    }
}

#[test]
fn an_argument_that_may_expand_to_a_denied_word_needs_approval() {
    let policy = policy_from(
        "default = \"allow\"\n[[rules]]\neffect = \"deny\"\ncommand = [\"rm -rf\", \"kube delete\"]",
    );
    for text in [
        "rm $x",
        "rm \"$x\" y",
        "rm *",
        "rm -* x",
        "kube $x",
        "kube ${x} y",
        "kube {a,b}",
        "rm ~",
    ] {
        assert_eq!(effect(&policy, text), PolicyEffect::Ask, "{text}");
    }
    for text in [
        "rm x",
        "rm ./*",
        "ls *",
        "ls $x",
        "kube get $x",
        "echo rm $x",
    ] {
        assert_eq!(effect(&policy, text), PolicyEffect::Allow, "{text}");
    }
}

#[test]
fn arguments_beside_a_command_that_change_it_need_approval() {
    for arguments in [
        json!({ "command": "ls", "env": { "PATH": "." } }),
        json!({ "command": ["ls", "$x"] }),
        json!({ "argv": ["sh", "-c", "ls"] }),
        json!({ "command": "ls", "args": ["a", 1] }),
        json!({ "command": { "run": "ls" } }),
        json!({ "commands": ["ls", "$x"] }),
    ] {
        assert_eq!(
            effect_of(&denying(), "sh", arguments.clone()),
            PolicyEffect::Ask,
            "{arguments}"
        );
    }
    for arguments in [
        json!({ "argv": ["ls", "-l"] }),
        json!({ "command": "ls", "args": ["a"] }),
        json!({ "commands": ["ls", "pwd"] }),
    ] {
        assert_eq!(
            effect_of(&denying(), "sh", arguments.clone()),
            PolicyEffect::Allow,
            "{arguments}"
        );
    }
}

// ---- what a pattern covers ----

#[test]
fn a_pattern_covers_no_option_that_runs_loads_or_writes_something_else() {
    for (pattern, text) in [
        ("gcc", "gcc @x"),
        ("gcc", "gcc -o x y.c"),
        ("gcc", "gcc -fplugin=x y.c"),
        ("gcc", "gcc -wrapper x y.c"),
        ("gcc", "gcc -specs=x y.c"),
        ("gcc-12", "gcc-12 -B. x.c"),
        ("sqlite3", "sqlite3 db '.shell x'"),
        ("sqlite3", "sqlite3 db .shell"),
        ("sqlite3", "sqlite3 -cmd x db"),
        ("sqlite3", "sqlite3 -init x db"),
        ("git clone", "git clone --template=x y"),
        ("git clone", "git clone --template x y"),
        ("git clone", "git clone -c a=b y"),
        ("git clone", "git clone --config a=b y"),
        ("git clone", "git clone --separate-git-dir=x y"),
        ("git clone", "git clone 'fd::1' y"),
        ("git", "git -c a=b status"),
        ("git", "git --git-dir=x status"),
        ("git log", "git log --output=x"),
        ("git log", "git log \"\"*"),
        ("git log", "git log ''?-output=x"),
        ("find", "find d ''[-]*"),
        ("git log", "git log --outp x"),
        ("git log", "git log --abbrev --output=x"),
        ("git log", "git log -n --output=x"),
        ("git diff", "git diff --no-index --output=x a b"),
        ("git diff", "git diff --ext-diff"),
        ("git diff", "git diff --textconv"),
        ("git grep", "git grep -Ox y"),
        ("git push", "git push --force"),
        ("git push", "git push -f"),
        ("git push", "git push origin +main"),
        ("git push", "git push --receive-pack=x"),
        ("git commit", "git commit -F x"),
        ("git rebase", "git rebase --exec x main"),
        ("rg", "rg --pre x y"),
        ("rg", "rg --hostname-bin x y"),
        ("rg", "rg --hostname-bin=x y"),
        ("rg", "rg --ignore-file x y"),
        ("npm", "npm test --node-options=x"),
        ("npm test", "npm test --script-shell x"),
        ("npm", "npm exec x"),
        ("npm", "npm --prefix x test"),
        ("npm test", "npm test -- --config x"),
        ("tar", "tar xf a --to-command=x"),
        ("tar", "tar -xf a --checkpoint-action=exec=x"),
        ("tar", "tar -I x -xf a"),
        ("tar", "tar xf a -C /"),
        ("find", "find . -delete"),
        ("find", "find . -exec x"),
        ("find", "find . -fprint x"),
        ("find", "find -- . -delete"),
        ("sort", "sort -o x y"),
        ("sort", "sort -ox y"),
        ("sort", "sort --output=x y"),
        ("sort", "sort --compress-program=x y"),
        ("sort", "sort -T x y"),
        ("uniq", "uniq a b"),
        ("make", "make -f x"),
        ("make", "make -C x"),
        ("make", "make CC=x"),
        ("make", "make -j SHELL=x"),
        ("make", "make --eval=x"),
        ("make", "make SHELL:=/bin/sh 'X!=id'"),
        ("make", "make 'CC+=$(shell id)' m"),
        ("make", "make X?=y"),
        ("make", "make X::=y"),
        ("make", "make 'a b=c'"),
        ("make", "make -j 'X!=id'"),
        ("tar", "tar tf host:x"),
        ("tar", "tar -xfhost:x"),
        ("tar", "tar cf /etc/x y"),
        ("tar", "tar -rf x y"),
        ("unzip", "unzip -d /etc x"),
        ("unzip", "unzip -qd/etc x"),
        ("go test", "go test -memprofile x"),
        ("go test", "go test -cpuprofile=x"),
        ("go test", "go test -pgo x"),
        ("go build", "go build -pkgdir x"),
        ("go build", "go build --toolexec x"),
        ("deno test", "deno test -c x"),
        ("php", "php -c . x.php"),
        ("cargo test", "cargo test --target x.json"),
        ("curl", "curl -H@x https://y"),
        ("curl", "curl --header=@x https://y"),
        ("git worktree", "git worktree add x"),
        ("git", "git worktree remove x"),
        ("git remote", "git remote set-url origin x"),
        ("git stash", "git stash clear"),
        ("git stash", "git stash drop"),
        ("eslint", "eslint --format x y"),
        ("sqlite3", "printf '.shell x' | sqlite3 :memory:"),
        ("cargo test", "cargo test --config x"),
        ("cargo test", "cargo test --manifest-path=x"),
        ("cargo", "cargo --config x test"),
        ("cargo test", "cargo test --target-dir=/x"),
        ("cargo test", "cargo test -- --logfile x"),
        ("cargo", "cargo +x test"),
        ("go test", "go test -exec x"),
        ("go test", "go test -toolexec=x"),
        ("go test", "go test -o x"),
        ("go build", "go build -ldflags=x"),
        ("curl", "curl -o x https://y"),
        ("curl", "curl -K x"),
        ("curl", "curl --config x"),
        ("curl", "curl -sO https://y"),
        ("curl", "curl -d @x https://y"),
        ("curl", "curl -H @x https://y"),
        ("curl", "curl -x p https://y"),
        ("wget", "wget -O x https://y"),
        ("wget", "wget -e a=b https://y"),
        ("python", "python -m x"),
        ("pytest", "pytest -p x"),
        ("pytest", "pytest -c x"),
        ("pytest", "pytest --rootdir=x"),
        ("pytest", "pytest @x"),
        ("docker", "docker run -v /:/x y"),
        ("docker ps", "docker -H x ps"),
        ("kubectl get", "kubectl get --kubeconfig=x pods"),
        ("kubectl get", "kubectl get -s http://x pods"),
        ("kubectl get", "kubectl get -shttp://x pods"),
        ("kubectl get", "kubectl get --server=http://x pods"),
        ("kubectl get", "kubectl get --token=x pods"),
        ("kubectl get", "kubectl get -o go-template-file=x pods"),
        ("rsync", "rsync -e x a b"),
        ("rsync", "rsync --files-from=x a b"),
        ("psql", "psql -c x"),
        ("psql", "psql db '\\! x'"),
        ("jq", "jq -L x . y"),
        ("rm", "rm -rf x"),
        ("rm", "rm -- -rf *"),
        ("pip install", "pip install -r x"),
        ("eslint", "eslint --rulesdir x y"),
        ("eslint", "eslint -c x y"),
        ("rustfmt", "rustfmt --config-path x y"),
        ("tsc", "tsc @x"),
        ("tsc", "tsc --outDir x"),
        // Programs that are not in the table.
        ("frob", "frob -x"),
        ("frob", "frob --quiet y"),
        ("frob", "frob @x"),
        ("frob", "frob +x"),
        ("frob", "frob a=b"),
        ("frob", "frob -- -x"),
        ("frob", "frob *"),
    ] {
        assert_eq!(
            effect(&allowing(pattern), text),
            PolicyEffect::Ask,
            "{pattern}: {text}"
        );
    }
}

#[test]
fn a_pattern_covers_operands_and_harmless_options() {
    for (pattern, text) in [
        ("git status", "git status -sb --porcelain=v2"),
        (
            "git log",
            "git log --oneline -5 --author=ann --since='2 days ago' -- src",
        ),
        ("git log", "git log -n 3 --format=%h"),
        ("git diff", "git diff --stat HEAD~1 -- -odd-name"),
        ("git commit", "git commit -am 'x = y'"),
        ("cargo test", "cargo test -p core --lib -- --nocapture name"),
        ("cargo", "cargo clippy --all-targets"),
        ("ls", "ls -la *.rs"),
        ("grep", "grep -rn --include='*.rs' x src"),
        ("rg", "rg -n -g '*.rs' -C3 x"),
        ("find", "find . -name '*.rs' -size +5k -mtime -5"),
        ("sort", "sort -rn -k2,2 x"),
        ("tar", "tar xzf a.tar.gz"),
        ("tar", "tar -tvf a.tar"),
        ("make", "make -j 4 test"),
        ("npm", "npm test --silent"),
        ("npm install", "npm install @scope/x"),
        ("pytest", "pytest -x -k name tests"),
        ("python -m pytest", "python -m pytest -x"),
        ("uv run pytest", "uv run pytest -x"),
        ("curl", "curl -sSL -H 'accept: x' https://y"),
        ("curl", "curl -s 'https://y/?a=b'"),
        ("git remote", "git remote -v"),
        ("git stash", "git stash list"),
        ("git worktree", "git worktree list"),
        ("go test", "go test -race -run=X -count 1 ./..."),
        ("tar", "tar --file=a.tar --list"),
        ("jq", "jq -r '.a = 1' x"),
        ("date", "date +%F"),
        ("frob", "frob x y"),
        ("frob --quiet", "frob --quiet y"),
        // The pattern says so.
        ("rg --pre cat", "rg --pre cat x"),
        ("git -c core.pager=cat log", "git -c core.pager=cat log x"),
        ("npm exec tsc", "npm exec tsc"),
        ("sort -o", "sort -o x y"),
        ("find . -delete", "find . -delete"),
        ("docker run", "docker run x"),
    ] {
        assert_eq!(
            effect(&allowing(pattern), text),
            PolicyEffect::Allow,
            "{pattern}: {text}"
        );
    }
}

#[test]
fn the_reason_names_the_option_that_is_not_covered_and_a_pattern_that_is() {
    for (pattern, text, word, wider) in [
        (
            "git log",
            "git log --oneline --output=x",
            "--output",
            "git log --oneline --output=*",
        ),
        (
            "git push",
            "git push --force",
            "--force",
            "git push --force",
        ),
        ("sort", "sort -n -o x", "-o", "sort -n -o"),
        (
            "cargo test",
            "cargo test --config x",
            "--config",
            "cargo test --config",
        ),
        ("frob", "frob --deep=1 x", "--deep", "frob --deep=*"),
        ("make", "make CC=x", "CC=x", "make CC=x"),
    ] {
        let expected = format!(
            "no rule allows this: rule \"yes\" does not cover `{word}`; the pattern `{wider}` would"
        );
        assert_eq!(reason(&allowing(pattern), text), expected);
        assert_eq!(
            effect(&allowing(wider), text),
            PolicyEffect::Allow,
            "{wider}"
        );
    }
    // Words that cannot be part of a pattern are not offered.
    let reason = reason(&allowing("frob"), "frob 'a b' -x");
    assert_eq!(
        reason,
        "no rule allows this: rule \"yes\" does not cover `-x`"
    );
}

// ---- bounds ----

#[test]
fn a_command_beyond_the_limit_needs_approval_and_its_beginning_is_still_judged() {
    let long = |text: &str, unit: &str| format!("{text} {}", unit.repeat((4 << 20) / unit.len()));
    let policy = denying();
    for unit in ["x", "x ", "; ", "\\", "$(", "{a,", "'", "\n"] {
        let text = long("echo", unit);
        assert_eq!(effect(&policy, &text), PolicyEffect::Ask, "{unit:?}");
    }
    assert_eq!(effect(&policy, &long("zap;", "x ")), PolicyEffect::Deny);
    assert_eq!(
        effect(&policy, &long("cat .env;", "x ")),
        PolicyEffect::Deny
    );
    let off = policy_from("default = \"allow\"\nsecrets_files = false\nacting_files = false");
    assert_eq!(effect(&off, &long("echo", "x ")), PolicyEffect::Allow);
}

#[test]
fn a_call_that_names_more_than_can_be_checked_needs_approval() {
    let many = |make: fn(usize) -> Value| (0..20_000).map(make).collect::<Value>();
    let policy =
        policy_from("default = \"allow\"\n[[rules]]\neffect = \"deny\"\ndomain = \"evil.com\"");
    for arguments in [
        json!({ "paths": many(|n| json!(format!("a/{n}"))) }),
        json!({ "anything": many(|n| json!(format!("a/{n}"))) }),
        json!({ "urls": many(|n| json!(format!("https://h{n}.com/"))) }),
        json!({ "commands": many(|n| json!(format!("ls {n}"))) }),
        json!({ "commands": many(|n| json!(format!("curl https://h{n}.com/"))) }),
        json!({ "patch": "--- a/x\n+++ b/y\n".repeat(3) + &(0..20_000).map(|n| format!("--- a/{n}\n")).collect::<String>() }),
    ] {
        let size = arguments.to_string().len();
        assert_eq!(
            effect_of(&policy, "x", arguments),
            PolicyEffect::Ask,
            "{size}"
        );
    }
    let first = json!({ "paths": [json!(".env"), many(|n| json!(format!("a/{n}")))] });
    assert_eq!(effect_of(&policy, "x", first), PolicyEffect::Deny);
}

// ---- against a real shell ----

/// Returns pieces of commands: programs that exist only here, and everything that can hide one.
fn any_piece() -> impl Strategy<Value = String> {
    let pieces = [
        "zap",
        "za",
        "p",
        "z",
        "ap",
        "say",
        " ",
        " ",
        " ",
        ";",
        "&&",
        "||",
        "|",
        "&",
        "\n",
        "'",
        "\"",
        "\\",
        "$",
        "`",
        "(",
        ")",
        "{",
        "}",
        ",",
        "$(",
        "${x}",
        "${x:-zap}",
        "$x",
        "x=zap",
        "x=",
        "$'",
        "$\"",
        "\\x7a",
        "\\\n",
        "#",
        "~",
        "*",
        "?",
        "[z]",
        "!",
        "<",
        ">",
        "<<E\n",
        "\nE\n",
        "<<<",
        ">o",
        "2>&1",
        "eval ",
        "exec ",
        "command ",
        "env ",
        "sh -c ",
        "set -- ",
        "f() ",
        "if ",
        "then ",
        "fi",
        "=",
        "-c",
        "\t",
        "\r",
        "echo ",
        "trap ",
        " EXIT",
        "alias a=",
        "read x",
        "printf ",
        "test ",
        ".",
        "/",
        "|&",
        "&>",
        ">&",
        "time ",
        "case x in x) ",
        ";;",
        "esac",
        "$@",
        "$0",
        "$((1))",
        "IFS=",
        "PATH=",
        "[ ",
        " ]",
        "[[ ",
        "coproc ",
        ">(",
        "<(",
    ];
    prop::sample::select(pieces.map(str::to_owned).to_vec())
}

/// Returns whether a shell runs `zap` for a text.
fn shell_zaps(shell: &str, text: &str) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).expect("created");
    for (name, script) in [
        ("zap", "#!/bin/sh\n: > \"$MARK\"\n"),
        ("say", "#!/bin/sh\n:\n"),
    ] {
        let path = bin.join(name);
        fs::write(&path, script).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).expect("executable");
    }
    let mark = dir.path().join("mark");
    let status = Command::new(shell)
        .args(["-c", text])
        .current_dir(dir.path())
        .env_clear()
        .env("PATH", &bin)
        .env("MARK", &mark)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
    status.expect("a shell");
    mark.exists()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_shell_would_run_under_a_deny_is_allowed(pieces in prop::collection::vec(any_piece(), 1..9)) {
        let text: String = pieces.concat();
        let policy = policy_from("default = \"allow\"\nsecrets_files = false\n[[rules]]\neffect = \"deny\"\ncommand = \"zap\"");
        // A NUL cannot be passed to a process; everything else is run by the real shells.
        if effect(&policy, &text) == PolicyEffect::Allow {
            for shell in ["/bin/sh", "/bin/bash"].into_iter().filter(|shell| fs::exists(shell).unwrap_or(false)) {
                prop_assert!(!shell_zaps(shell, &text), "{shell}: {text:?}");
            }
        }
    }
}

#[test]
fn a_doubt_about_the_program_of_a_rule_names_the_program() {
    // Only the rule about commands: a git command that is not known may also change a file that acts later.
    let pushes = policy_from(
        "default = \"allow\"\nacting_files = false\n[[rules]]\neffect = \"deny\"\ncommand = \"git push\"",
    );
    for (text, piece) in [
        ("git $x", "`git $x`"),
        ("git -c alias.x=push x", "`git -c`"),
    ] {
        assert_eq!(effect(&pushes, text), PolicyEffect::Ask, "{text}");
        let expected = format!("cannot tell which git command this is: {piece}");
        assert_eq!(reason(&pushes, text), expected, "{text}");
    }
    let other = "cannot tell which command this runs: `sh`";
    assert_eq!(reason(&pushes, "sh -c \"$x\""), other);
}

#[test]
fn another_repository_is_asked_about_and_the_reason_names_it() {
    // The settings of another repository can name a program that `git status` runs (core.fsmonitor).
    let status = policy_from(
        "[[rules]]\nname = \"look\"\neffect = \"allow\"\ncommand = [\"git status\", \"git log\"]",
    );
    for (text, option, pattern) in [
        ("git -C other status", "-C other", "git -C other status"),
        (
            "git -C /x status --short",
            "-C /x",
            "git -C /x status --short",
        ),
        ("git -C a -C b log -3", "-C a -C b", "git -C a -C b log -3"),
    ] {
        assert_eq!(effect(&status, text), PolicyEffect::Ask, "{text}");
        let reason = reason(&status, text);
        let expected = format!(
            "rule \"look\" covers it only without `{option}`, which chooses a repository with its own settings and hooks; the pattern `{pattern}` would"
        );
        assert!(reason.ends_with(&expected), "{text}: {reason}");
        let wider = policy_from(&format!(
            "[[rules]]\neffect = \"allow\"\ncommand = \"{pattern}\""
        ));
        assert_eq!(effect(&wider, text), PolicyEffect::Allow, "{text}");
    }
    for text in ["git -C other push", "git -C other", "ls -C other"] {
        let reason = reason(&status, text);
        assert!(!reason.contains("repository"), "{text}: {reason}");
    }
}

#[test]
fn a_directory_that_changes_nothing_does_not_hide_the_command() {
    let status = policy_from("[[rules]]\neffect = \"allow\"\ncommand = \"git status\"");
    let pushes =
        policy_from("default = \"allow\"\n[[rules]]\neffect = \"deny\"\ncommand = \"git push\"");
    for text in ["git -C . status", "git -C ./ -C . status --short"] {
        assert_eq!(effect(&status, text), PolicyEffect::Allow, "{text}");
        assert_eq!(effect(&pushes, text), PolicyEffect::Allow, "{text}");
    }
    assert_eq!(effect(&pushes, "git -C . push"), PolicyEffect::Deny);
    for text in [
        "git -C /x status",
        "git -C .. status",
        "git -C .",
        "git -C . push",
    ] {
        assert_eq!(effect(&status, text), PolicyEffect::Ask, "{text}");
    }
}

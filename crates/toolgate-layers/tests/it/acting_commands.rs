//! Commands that may change a file that acts later without naming it.

use serde_json::json;
use toolgate_layers::{
    Configurable, Judgement, PathBase, Policy, PolicyEffect, PolicyOptions, Resources,
};
use toolgate_testkit::call_with;

/// Judges a command under a policy, in an empty workspace.
fn judge_under(policy: &str, command: &str) -> Judgement {
    let dir = tempfile::tempdir().expect("a directory");
    let options: PolicyOptions = toml::from_str(policy).expect("a policy");
    let parts = Resources::new().with(PathBase::new(dir.path()));
    let policy = Policy::configure(options, &parts).expect("a valid policy");
    policy.judge(&call_with("run", json!({ "command": command })))
}

fn judge(command: &str) -> Judgement {
    judge_under("default = \"allow\"\nsecrets_files = false", command)
}

/// Checks that every command is asked about each time, whatever is allowed.
#[track_caller]
fn assert_asked(commands: &[&str], because: &str) {
    let is_missed = |command: &&&str| {
        let judged = judge(command);
        let is_asked = judged.effect == PolicyEffect::Ask && judged.each_time;
        !is_asked || !judged.reason.contains(because)
    };
    let missed: Vec<&&str> = commands.iter().filter(is_missed).collect();
    assert!(missed.is_empty(), "not asked about: {missed:#?}");
}

#[track_caller]
fn assert_allowed(commands: &[&str]) {
    let judged = commands.iter().map(|command| (command, judge(command)));
    let stopped: Vec<_> = judged
        .filter(|(_, judged)| judged.effect != PolicyEffect::Allow)
        .collect();
    assert!(stopped.is_empty(), "not allowed: {stopped:#?}");
}

const UNREAD: &str = "may change a file that acts later: cannot tell which file this writes";

#[test]
fn a_redirection_to_a_file_that_cannot_be_read_is_asked_about() {
    assert_asked(
        &[
            "F=AGENTS; echo x > $F.md",
            "echo x > \"$(printf .env)rc\"",
            "echo x > ${x:-.g}it/hooks/pre-commit",
            "echo x >> `cat name`",
            "echo x >| $F",
            "echo x &> $F",
            "echo x >& \"$F\"",
            "exec 3<> $F",
            "echo x > *",
            "echo x > {A,B}",
            "> $F",
            "cat > \"$F\" <<'EOF'\nit's text\nEOF",
            "if true; then echo x > $F; fi",
            "for i in 1 2; do echo x > \"$i\"; done",
            "(echo x) > $F",
            "{ echo x; } > $F",
            "f() { echo x > \"$1\"; }; f y",
            "x=$(echo y > $F)",
            "echo \"a $(case b in b) echo x > $F;; esac) c\"",
            "echo \"${x:-$(echo y > $F)}\"",
            "echo `echo x > \\$F`",
            "sh -c 'echo x > $0' name",
            "sh -c \"$X\"",
            "eval 'echo x >' '$F'",
            "eval \"$X\"",
            "bash <<'EOF'\necho x > $F\nEOF",
            "bash <<EOF\n$X\nEOF",
            "bash <<< \"$X\"",
            "echo 'echo x > $F' | sh",
            "cat <<EOF\n$(echo x > $F)\nEOF",
            "echo \"$(cat <<'EOF'\ndon't\nEOF\n)\"; echo x > $F",
            "echo $((echo x) > $F; (true))",
            "echo x > $'\\x41GENTS.md'",
            "HOME=$X; echo y > $HOME/config",
            "cd \"$D\" && echo x > config",
            "trap 'echo x > $F' EXIT",
            "echo x > @(AGENTS).md",
            "true # it's\necho x > $F",
            "diff <(echo x > $F) y",
        ],
        UNREAD,
    );
}

#[test]
fn an_operand_of_a_program_that_writes_is_asked_about_if_it_cannot_be_read() {
    assert_asked(
        &[
            "echo x | tee $F",
            "echo x | sudo tee -a \"$F\"",
            "'te'e $F",
            "/usr/bin/tee $F",
            "busybox tee $F",
            "env A=b nice -n 5 tee $F",
            "timeout 5 tee $F",
            "cp a $X",
            "cp $X .",
            "cp -t \"$D\" a",
            "cp --target-directory=$D a",
            "mv a \"$(cat name)\"",
            "install -m 644 a $X",
            "ln -sf a $X",
            "dd if=a of=$X",
            "sed -i s/a/b/ $F",
            "sed -Ei \"s/$A/$B/\" \"$F\"",
            "sed --in-place -e s/a/b/ $F",
            "perl -pi -e s/a/b/ $F",
            "touch $F",
            "truncate -s 0 $F",
            "rsync a $X",
            "tar -xf a.tar -C $D",
            "tar -x --directory=\"$D\" -f a.tar",
            "unzip a.zip -d $D",
            "curl -o $F example.com",
            "curl -sSLo $F example.com",
            "curl --output=$F example.com",
            "curl -sO $U",
            "wget -O $F example.com",
            "wget -qO$F example.com",
            "wget $U",
            "git apply $P",
            "git -C $D apply x.patch",
            "git checkout HEAD -- $F",
            "git restore $F",
            "sort -o $F a",
            "ls | xargs touch",
            "ls | xargs -I {} cp a {}",
            "find . -name x -exec sed -i s/a/b/ '{}' +",
            "$T $F",
            "cd $D && cp ../x config",
            "cp a AGENT{R..T}.md",
            "for f in a b; do cp x $f; done",
            "function w { tee $1; }; w y",
            "tee <<'EOF' $F\nx\nEOF",
        ],
        UNREAD,
    );
}

#[test]
fn a_name_that_can_be_read_and_a_command_that_only_reads_are_not_asked_about() {
    assert_allowed(&[
        "echo x > out.txt",
        "echo \"$X\" > out.txt",
        "cargo test 2>&1 | tail -n 5 > log.txt",
        "cargo build > /dev/null 2>&1",
        "make &> build.log",
        "for f in *.rs; do rustfmt $f; done",
        "for f in *.rs; do echo $f; done > list.txt",
        "echo $HOME",
        "echo x > \"$HOME/notes.txt\"",
        "echo x > ${TMPDIR}/a",
        "echo x > /tmp/a.$$",
        "cat $F",
        "grep -r \"$X\" src",
        "gcc -c $f -o x.o",
        "n=$(wc -l < a.txt); echo $n",
        "echo $(( $a + $b ))",
        "echo $(( $a > $b ))",
        "if [ \"$a\" = \"$b\" ]; then echo same; fi",
        "cat > notes.txt <<'EOF'\nuse `x` > $y or it's \"late\"\nEOF",
        "cat > notes.txt <<EOF\ncosts $x > 5\nEOF",
        "git commit -m \"$(cat <<'EOF'\nDon't write > $x\nEOF\n)\"",
        "git checkout \"$BRANCH\"",
        "sed -i \"s/$A/$B/\" a.txt",
        "sed -i '' -e \"s/$A/$B/\" a.txt",
        "sed -n \"s/$A/$B/p\" $F",
        "touch -d \"$D\" a.txt",
        "touch -r $R a.txt",
        "truncate -s $N a.txt",
        "curl -s -o /dev/null -w '%{http_code}' $U",
        "curl -s $U | tee out.json",
        "wget -qO- $U",
        "wget -O a.zip $U",
        "tar -xzf $A -C out",
        "dd if=$X of=out.img",
        "sudo apt-get install -y $P",
        "npm install $P",
        "cp *.txt backup/",
        "mv a{,.bak}",
        "find . -name '*.rs' -exec grep -l x '{}' +",
        "ls | xargs grep x",
        "ls | xargs sed -n 1p",
        "$PYTHON -m pytest",
        "\"$BIN\" --version",
        "bash \"$DIR/build.sh\"",
        "command -v bash",
        "cd \"$D\" && cargo test",
        "cd \"$D\" && ls > /tmp/list",
        "cd src && echo x > out.txt",
        "case $x in a|b) echo y;; esac",
        "while read -r line; do echo \"$line\"; done < in.txt",
        "awk '{ print $1 > 0 }' a.txt",
        "python3 -c 'print(1)' > out.txt",
        "echo x > 'a$b.txt'",
        "echo x > a\\$b.txt",
        "git diff HEAD > out.txt",
        "git reset --soft HEAD",
        "git show HEAD | tee out.txt",
        "echo Jenkinsfile > list.txt",
        "sort -o sorted HEAD",
    ]);
}

#[test]
fn a_target_that_cannot_be_read_is_asked_about_only_with_the_rule_about_acting_files() {
    let off = "default = \"allow\"\nacting_files = false";
    let judged = judge_under(off, "echo x > $F");
    assert_eq!(judged.effect, PolicyEffect::Allow);
}

#[test]
fn a_file_that_is_named_in_another_way_is_asked_about_by_its_name() {
    assert_asked(
        &[
            "echo x > AGENT?.md",
            "echo x > AGENT[S].md",
            "cd .github/workflows && echo x > ci.yml",
            "printf x >> .git/../.git/config",
            "cat > .envrc <<EOF\nx\nEOF",
            "tee .git//hooks/./pre-commit <<< x",
            "(cd .git && cat > hooks/pre-push) < a",
            "pushd .vscode; echo x > tasks.json",
            "cp a CLAUDE{,.local}.md",
            // Names without the sign of a path.
            "echo x > Jenkinsfile",
            "cp a HEAD",
            "tee crontab < a",
            "dd if=a of=HEAD",
            "curl -oJenkinsfile example.com",
            "curl -sSLoJenkinsfile example.com",
            "wget --output-document=Jenkinsfile example.com",
            "sort -o Jenkinsfile a",
            "sh -c 'echo x > Jenkinsfile'",
            "if true; then mv a rust-toolchain; fi",
            "echo x > ~/.local/bin/ls",
            "echo x > .devcontainer.json",
            "echo x > rust-toolchain.toml",
        ],
        "the built-in rule \"files that act later\" asks",
    );
}

#[test]
fn a_command_that_installs_a_hook_or_a_setting_that_runs_a_program_is_asked_about() {
    assert_asked(
        &[
            "git init --template=../x",
            "git init --templ ../x sub",
            "git clone --template x https://example.com/r",
            "git init --separate-git-dir=x",
            "git submodule add https://example.com/r",
            "git -C sub submodule update --init",
            "git submodule foreach 'touch x'",
            "git lfs install",
            "git-lfs install --force",
            "git worktree add ../y",
            "git remote add x 'ext::sh -c touch% y'",
            "git remote set-url origin \"$U\"",
            "git hook run pre-commit",
            "git maintenance start",
            "git crypt init",
            "git $X",
            "sudo git lfs install",
            "cd sub && git submodule init > /dev/null",
            "sh -c 'git lfs install'",
            "scalar register",
            "pre-commit install",
            "pre-commit install --hook-type pre-push",
            "python3 -m pre_commit install",
            "uvx pre-commit install",
            "uv run pre-commit install",
            "husky",
            "npx husky install",
            "npx --yes husky init",
            "pnpm exec husky",
            "lefthook install",
            "overcommit --install",
            "npm pkg set scripts.prepare=husky",
            "npm pkg set \"$K=x\"",
            "npm set-script prepare husky",
            "npm config set script-shell ./x",
            "go env -w GOFLAGS=-toolexec=x",
            "direnv allow",
            "mise trust",
            "gh alias set x '!touch y'",
            "crontab x",
            "systemctl --user enable x",
            "code --install-extension x",
            "claude mcp add x -- ./x",
        ],
        "a hook, or a setting that runs a program",
    );
    assert_allowed(&[
        "git init",
        "git clone https://example.com/r",
        "git submodule status",
        "git worktree list",
        "git lfs ls-files",
        "git remote add x https://example.com/r",
        "git remote -v",
        "git maintenance run",
        "git commit -m 'git lfs install'",
        "echo 'run git lfs install' > notes.txt",
        "pre-commit run --all-files",
        "npm install husky",
        "pip install pre-commit",
        "npm pkg set name=x",
        "npm pkg get scripts",
        "npm config get registry",
        "npm run \"$X\"",
        "npx eslint .",
        "go env GOFLAGS",
        "crontab -l",
        "systemctl status x",
        "gh pr list",
    ]);
}

#[test]
fn a_text_of_more_commands_than_are_read_is_asked_about() {
    let lines = |count: usize| "m\n".repeat(count);
    let document = |count: usize| format!("cat <<EOF\n{}EOF\n", "$(m)\n".repeat(count));
    for text in [
        format!("{}git lfs install", lines(2_000)),
        format!("{}git lfs install", "m; ".repeat(2_000)),
        format!("{}git lfs install", "m && ".repeat(2_000)),
        format!("{}git lfs install", "m | ".repeat(2_000)),
        format!("echo \"$({}git lfs install)\"", lines(2_000)),
        format!("sh -c '{}git lfs install'", lines(2_000)),
        format!("if true; then {}git lfs install; fi", lines(2_000)),
        format!("{}{}git lfs install", lines(600), document(600)),
        format!("{}git lfs install", document(2_000)),
        lines(2_000),
    ] {
        let judged = judge(&text);
        let is_asked = judged.effect == PolicyEffect::Ask && judged.each_time;
        assert!(is_asked, "{}: {}", &text[..20], judged.reason);
    }
    assert_eq!(judge(&lines(900)).effect, PolicyEffect::Allow);
}

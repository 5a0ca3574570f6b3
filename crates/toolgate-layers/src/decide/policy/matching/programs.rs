//! What is known of the options of the most used programs. This file is data only; the functions
//! that use it are in `program_runners` and `program_options`.
//!
//! An option is harmless if it changes only what is shown or which inputs are used. An option that
//! runs another program, loads code, reads a configuration, or writes to a place that it names is
//! not, and is in none of the lists `flags` and `values`: a rule that allows has to name it. If in
//! doubt, leave it out: then a person is asked.
//!
//! Lists are words with blanks between them. `-#` stands for any number, `*` for every option.

/// One program, or several that have the same options.
pub(crate) struct Program {
    /// Its names, without a version: `python` stands for `python3.12`.
    pub(crate) names: &'static str,
    /// Options before the subcommand that change neither which program runs nor its configuration.
    pub(crate) globals: &'static str,
    /// The same, with a value.
    pub(crate) global_values: &'static str,
    /// Harmless options.
    pub(crate) flags: &'static str,
    /// Harmless options with a value, in the same word or the next one.
    pub(crate) values: &'static str,
    /// Options that make it run another program or code of the command line, and subcommands and
    /// beginnings of operands (`SHELL=`, `@`) that do.
    pub(crate) runs: &'static str,
    /// Harmless options after `--`, if the words there go to another program.
    pub(crate) passes: Option<&'static str>,
    /// Signs that operands may begin with, or contain as in `NAME=value`, and that mean nothing.
    pub(crate) operand_signs: &'static str,
    /// Maximum number of operands that are not code.
    pub(crate) max_operands: usize,
    pub(crate) subcommands: &'static [Subcommand],
}

/// One subcommand, or several that have the same options.
pub(crate) struct Subcommand {
    pub(crate) names: &'static str,
    pub(crate) flags: &'static str,
    pub(crate) values: &'static str,
    pub(crate) runs: &'static str,
    /// Operands that make it change or remove something: `git remote set-url`.
    pub(crate) changes: &'static str,
}

const fn program(names: &'static str) -> Program {
    Program {
        names,
        globals: "",
        global_values: "",
        flags: "",
        values: "",
        runs: "",
        passes: None,
        operand_signs: "",
        max_operands: usize::MAX,
        subcommands: &[],
    }
}

const fn subcommand(names: &'static str, flags: &'static str, values: &'static str) -> Subcommand {
    Subcommand {
        names,
        flags,
        values,
        runs: "",
        changes: "",
    }
}

impl Subcommand {
    const fn changing(mut self, changes: &'static str) -> Self {
        self.changes = changes;
        self
    }

    const fn running(mut self, runs: &'static str) -> Self {
        self.runs = runs;
        self
    }
}

/// Options of all `git` commands that show commits or differences.
macro_rules! git_shows {
    () => {
        "-p -u --patch -s --no-patch --stat --shortstat --numstat --name-only --name-status --summary --oneline \
         --graph --decorate --no-decorate --all --branches --tags --remotes --merges --no-merges --first-parent \
         --reverse --follow --cached --staged --color --no-color --abbrev-commit --no-abbrev-commit --raw -w -b \
         --ignore-all-space --ignore-space-change --ignore-blank-lines --word-diff --minimal --patience --histogram \
         --check --quiet --exit-code --no-ext-diff --no-textconv --no-renames -M -C -R -z -i -E -F -# \
         --full-diff --topo-order --date-order --left-right --cherry-pick --boundary --no-prefix --relative"
    };
}

macro_rules! git_show_values {
    () => {
        "-n --max-count --skip --since --until --after --before --author --committer --grep -S -G -L --format \
         --pretty --date --abbrev --decorate --color -U --unified --stat --diff-filter --diff-algorithm --word-diff \
         --find-renames --inter-hunk-context --submodule --ignore-submodules --dirstat --encoding"
    };
}

/// The programs, sorted by how they are used: version control, builds, files and texts, network.
pub(crate) const PROGRAMS: &[Program] = &[
    Program {
        globals: "--no-pager -P --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs \
                  --icase-pathspecs --no-replace-objects --bare --version --help -v -h --html-path --man-path --info-path",
        global_values: "-C --namespace",
        flags: "-h --help -q --quiet -v --verbose",
        runs: "--exec --upload-pack --receive-pack --ext-diff --extcmd --open-files-in-pager --textconv --template --config \
               --use-askpass config bisect difftool mergetool submodule filter-branch send-email daemon instaweb gui gitk svn p4 \
               hook maintenance credential interpret-trailers remote-ext remote-fd shell for-each-repo ext::",
        operand_signs: "@=",
        subcommands: &[
            subcommand("log show diff shortlog whatchanged reflog range-diff", git_shows!(), git_show_values!()),
            subcommand("status", "-s --short -b --branch --porcelain --long -z --ignored --show-stash --ahead-behind \
                        --no-ahead-behind --renames --no-renames -u -uno -uall -unormal", "--porcelain --ignored --untracked-files"),
            subcommand("branch tag", "-a --all -r --remotes -l --list -vv --show-current --merged --no-merged --color --no-color \
                        -n --no-column", "--sort --format --contains --points-at --merged --no-merged --color"),
            subcommand("add", "-A --all -u --update -n --dry-run -N --intent-to-add", ""),
            subcommand("commit", "-a --all -s --signoff --no-edit --dry-run --short --branch -z --allow-empty", "-m --message --date"),
            subcommand("fetch pull", "-a --all -p --prune -t --tags -n --no-tags --dry-run --ff-only --progress --no-progress \
                        --no-rebase --stat --no-stat -4 -6", "--depth --deepen --jobs -j"),
            subcommand("push", "-n --dry-run -u --set-upstream --progress --no-progress --tags --follow-tags --porcelain --atomic -4 -6", ""),
            subcommand("clone", "--bare --progress --no-tags --single-branch --no-single-branch --shallow-submodules -n --no-checkout \
                        -4 -6", "--depth -b --branch --jobs -j").running("-u -c"),
            subcommand("checkout switch restore", "--progress --no-progress --detach -d --staged --worktree -S -W --ours --theirs \
                        --track -t --no-track --guess --no-guess", "-b -c --create --source"),
            subcommand("stash", "-u --include-untracked -k --keep-index -p --patch --stat", "-m --message").changing("clear drop"),
            subcommand("rev-parse rev-list describe merge-base ls-tree cat-file for-each-ref name-rev symbolic-ref show-ref",
                       "--show-toplevel --abbrev-ref --short --verify --git-dir --is-inside-work-tree --is-bare-repository --symbolic \
                        --symbolic-full-name --tags --all --always --dirty --long --count --left-right --is-ancestor --octopus -r -t -p -e -s \
                        --name-only --name-status --full-name --full-tree --heads --exact-match --contains --show-prefix --show-cdup",
                       "--short --abbrev --match --exclude --format --sort --count --max-count -n --points-at"),
            subcommand("ls-files ls-remote", "-c --cached -d --deleted -m --modified -o --others -i --ignored -s --stage -t -z --full-name \
                        --exclude-standard --error-unmatch --deduplicate --heads --tags --refs", "-x --exclude --sort"),
            subcommand("blame annotate", "-w -e --show-email -s -l -t -f --show-name -n --show-number --porcelain --line-porcelain -M -C -b \
                        --root", "-L --since --abbrev --date"),
            subcommand("grep", "-n --line-number -i --ignore-case -w --word-regexp -v --invert-match -l --files-with-matches -L \
                        --files-without-match --name-only -c --count -E --extended-regexp -G -P --perl-regexp -F --fixed-strings -h -H \
                        --heading --break -o --only-matching --cached --untracked --no-index --recurse-submodules -a --text -I --all-match \
                        --and --or --not --color --no-color --full-name -p -W -#", "-e -A -B -C --max-depth --threads --max-count -m").running("-O"),
            subcommand("rebase", "--continue --abort --skip --quit --show-current-patch --stat -n --no-stat", "").running("-x"),
            subcommand("remote", "-n --all", "").changing("add rename remove rm set-head set-branches set-url prune update"),
            subcommand("rm mv clean", "-n --dry-run --cached -r", ""),
            subcommand("merge cherry-pick revert", "--ff-only --ff --no-ff --abort --continue --no-commit -n --no-edit --stat --squash --quit", "-m"),
            subcommand("worktree", "--porcelain -z", "").changing("add lock move prune remove repair unlock"),
        ],
        ..program("git")
    },
    Program {
        globals: "-q --quiet -v --verbose --offline --locked --frozen --version -V --list --help -h -vv",
        global_values: "--color",
        flags: "-q --quiet -v --verbose -vv --offline --locked --frozen -h --help --workspace --all --lib --bins --examples --tests \
                --benches --doc --all-targets --all-features --no-default-features --release -r --no-run --no-fail-fast --keep-going \
                --no-deps --timings --future-incompat-report --no-capture --nocapture --open",
        values: "-p --package --exclude --bin --example --test --bench -F --features --profile -j --jobs --message-format \
                 --color",
        runs: "--config watch make script",
        passes: Some("--nocapture --no-capture --show-output --ignored --include-ignored --exact --list --quiet -q --test --bench \
                      --skip --test-threads --color --format -D -W -A --check --deny --warn --allow"),
        subcommands: &[
            subcommand("fmt", "--check --all", ""),
            subcommand("tree metadata", "-d --duplicates -i --no-dedupe", "-e --edges --prefix --charset -f --format --depth --invert --format-version"),
            subcommand("nextest", "", "-E --filterset --partition --test-threads --retries"),
        ],
        ..program("cargo")
    },
    Program {
        flags: "-s --silent -q --quiet --json --long --parseable --all -a --depth --offline --no-audit --no-fund --if-present -v --version \
                -w --workspaces --production --dev --no-color --verbose --if-present",
        values: "--depth --workspace",
        runs: "exec x dlx explore --node-options --script-shell --shell -c --call -e --eval --preload --require --onload-script --git \
               --init-module config set-script pkg create init",
        passes: Some("--watch=false --coverage --verbose --silent --ci"),
        operand_signs: "@",
        ..program("npm pnpm yarn")
    },
    Program {
        flags: "-h --help -v --version",
        runs: "x exec repl create -e -p -r -c --eval --print --preload --require --import --config --define - data: http: https:",
        operand_signs: "@",
        ..program("bun")
    },
    Program {
        flags: "-v -x -s -q -l -vv -ra --lf --last-failed --ff --failed-first --collect-only --co --no-header --no-summary -h --help --version \
                --showlocals --durations --exitfirst --disable-warnings --strict-markers",
        values: "-k -m --maxfail --tb --durations -n --numprocesses --timeout --deselect --color --verbosity -r",
        ..program("pytest")
    },
    Program {
        flags: "-V --version -h --help -u -B -I -E -s -O -q -v -b",
        runs: "-c - -i -x -W -X",
        ..program("python pypy ipython")
    },
    Program {
        flags: "-v --version -h --help --check -c --test --watch --no-warnings --trace-warnings",
        values: "--test-name-pattern --max-old-space-size",
        runs: "-e -r -p -i -C --eval --print --require --import --loader --experimental-loader --interactive --preload -",
        ..program("node nodejs tsx")
    },
    Program {
        flags: "-h --help -V --version -q --quiet --check --no-check --no-lock --watch",
        runs: "eval repl jupyter task install compile upgrade -e -p --eval --preload --import --require - data: http: https:",
        ..program("deno")
    },
    Program {
        flags: "-v --version -h --help -w -c --verbose",
        runs: "-e -E -r -p -n -x -S -I -C -i -s -d - --eval --require",
        ..program("ruby")
    },
    Program {
        flags: "-v --version -h --help -l -n",
        runs: "-r -B -R -E -a -d -z -S -t -c -F -f -",
        ..program("php")
    },
    Program {
        flags: "-v --version -h --help",
        runs: "-e -E -l -i -L -p -t -J -H -P --eval --print --load -",
        ..program("lua luajit julia rscript")
    },
    Program {
        flags: "-v -x -race -short -cover -json -count -failfast -vet=off -i -a -m -u -s -w -l -d -e -n -mod=readonly -mod=vendor -trimpath -benchmem -h -help",
        values: "-run -bench -count -timeout -tags -parallel -cpu -p -benchtime -skip -list -covermode -f",
        runs: "-exec -toolexec -vettool -overlay -gccgoflags -ldflags -gcflags -asmflags -compiler",
        operand_signs: "@",
        ..program("go")
    },
    Program {
        flags: "-k --keep-going -n --dry-run --just-print -s --silent --quiet -B --always-make -j -i --ignore-errors -q --question -t --touch \
                -w --print-directory --no-print-directory --trace -h --help -v --version -p --print-data-base -r -R",
        values: "-j --jobs -l --load-average -O --output-sync",
        // A variable can be a command, and `-f -` reads the rules from the input.
        runs: "-E --eval = -",
        ..program("make gmake")
    },
    Program {
        flags: "-c -S -E -g -O -O0 -O1 -O2 -O3 -Os -Og -Wall -Wextra -Werror -Wpedantic -pedantic -w -v -pipe -shared -static -fPIC -fpic -pthread \
                --version --help -M -MM -fsyntax-only -m32 -m64",
        values: "-std -D -U -l",
        runs: "-B -wrapper -fplugin -specs --specs -fuse-ld -load -Xclang @",
        ..program("gcc g++ clang clang++ cc c++")
    },
    Program {
        flags: "-a --all -q --quiet --no-trunc -s --size -l --latest --digests --no-stream -h --help -t --timestamps",
        values: "--filter --format -n --last --tail --since --until",
        globals: "-v --version --help -D --debug",
        runs: "exec run create build buildx compose plugin debug attach container --entrypoint --config",
        ..program("docker podman")
    },
    // `-s` names another server, which gets the credentials.
    Program {
        flags: "-A --all-namespaces -h --help -w --watch --show-labels --no-headers --timestamps",
        values: "-n --namespace -l --selector --tail --since",
        globals: "--help",
        runs: "exec run create debug attach edit alpha krew plugin cp proxy port-forward config --kubeconfig --config -s --server --token --as",
        ..program("kubectl")
    },
    Program {
        flags: "-v -V --version --help -h -q --quiet --no-input --disable-pip-version-check --user -U --upgrade --pre --no-deps --outdated -o --uptodate",
        values: "--format",
        ..program("pip pip3")
    },
    // Programs that only read files or write to the terminal: no option of theirs does more.
    Program {
        flags: "*",
        operand_signs: "@=+",
        ..program("ls cat head tail wc cut tr echo pwd true false basename dirname realpath readlink stat du df nl tac rev paste comm \
                   md5sum sha1sum sha256sum sha512sum cksum b2sum seq sleep whoami id uname which whereis fold expand column od hexdump \
                   cmp printenv tty users groups uptime nproc free lsblk")
    },
    Program {
        flags: "*",
        runs: "-v",
        operand_signs: "@=+",
        ..program("printf")
    },
    // A shell evaluates numbers as expressions, and an expression can run a command.
    Program {
        flags: "-e -f -d -r -w -x -s -L -h -n -z -b -c -p -S -t -u -g -k -O -G -nt -ot -ef -a -o",
        runs: "-v -R -eq -ne -lt -le -gt -ge",
        operand_signs: "@=+",
        ..program("test")
    },
    Program {
        flags: "-n -i -v -w -x -l -L -c -o -q -s -r -R -E -F -G -P -H -h -a -I -U -z -b --line-number --ignore-case --invert-match --word-regexp \
                --line-regexp --files-with-matches --files-without-match --count --only-matching --quiet --silent --no-messages --recursive \
                --dereference-recursive --extended-regexp --fixed-strings --basic-regexp --perl-regexp --with-filename --no-filename --text --null \
                --color --colour --help --version --byte-offset -#",
        values: "-e --regexp -A -B -C --after-context --before-context --context -m --max-count --include --exclude --exclude-dir --color --binary-files -f --file",
        operand_signs: "@=+",
        ..program("grep egrep fgrep zgrep")
    },
    Program {
        flags: "-n -N -i -S -s -v -w -x -l -c -o -q -F -P -U -u -uu -uuu -a -H -I -L -0 -p --line-number --no-line-number --ignore-case --smart-case \
                --case-sensitive --invert-match --word-regexp --line-regexp --files-with-matches --files-without-match --count --count-matches \
                --only-matching --quiet --fixed-strings --pcre2 --multiline --multiline-dotall --files --hidden -. --no-ignore --no-ignore-vcs --no-heading \
                --heading --with-filename --no-filename --column --json --stats --trim --type-list --version --help -h -V --vimgrep --text --no-config \
                --no-messages --debug --null --sort-files --follow --passthru --pretty --crlf --one-file-system --unrestricted -#",
        values: "-e --regexp -A -B -C --after-context --before-context --context -m --max-count -g --glob --iglob -t --type -T --type-not --color --max-depth -d \
                 -M --max-columns -j --threads --sort --sortr --max-filesize --encoding -E --colors -r --replace",
        runs: "--pre --hostname-bin",
        operand_signs: "@=+",
        ..program("rg")
    },
    Program {
        flags: "-L -H -P -print -print0 -o -a -not ! ( ) -empty -daystart -depth -d -follow -mount -xdev -noleaf -prune -quit -readable -writable -executable \
                -true -false -ls -nouser -nogroup -help -version",
        values: "-name -iname -path -ipath -wholename -regex -iregex -type -xtype -size -mtime -mmin -atime -amin -ctime -cmin -newer -maxdepth -mindepth -perm \
                 -user -group -uid -gid -links -inum -samefile -regextype -printf -fstype -lname -ilname -anewer -cnewer -newermt -used",
        runs: "-exec -execdir -ok -okdir",
        operand_signs: "@=+",
        ..program("find gfind")
    },
    Program {
        flags: "-H --hidden -I --no-ignore -u -s --case-sensitive -i --ignore-case -g --glob -F --fixed-strings -a --absolute-path -l --list-details -L --follow \
                -p --full-path -0 --print0 -q --quiet --prune -1 -h --help -V --version --strip-cwd-prefix --no-ignore-vcs",
        values: "-d --max-depth --min-depth --exact-depth -t --type -e --extension -E --exclude -S --size --changed-within --changed-before -o --owner -c --color \
                 -j --threads --max-results",
        runs: "-x -X --exec --exec-batch",
        ..program("fd fdfind")
    },
    Program {
        flags: "-b -d -f -g -h -i -M -n -R -r -V -c -C -m -s -u -z --ignore-leading-blanks --dictionary-order --ignore-case --general-numeric-sort \
                --human-numeric-sort --month-sort --numeric-sort --random-sort --reverse --version-sort --check --merge --stable --unique --zero-terminated \
                --help --version --debug",
        values: "-k --key -t --field-separator --parallel --sort",
        runs: "--compress-program",
        operand_signs: "@=",
        ..program("sort gsort")
    },
    Program {
        flags: "-c --count -d --repeated -D -i --ignore-case -u --unique -z --zero-terminated",
        values: "-f --skip-fields -s --skip-chars -w --check-chars",
        // The second operand is a file that it writes.
        max_operands: 1,
        ..program("uniq")
    },
    Program {
        flags: "-u -r -q -s -N -a -b -B -w -i -E -Z -y -t -d --unified --recursive --brief --report-identical-files --new-file --text --ignore-all-space \
                --ignore-space-change --ignore-blank-lines --ignore-case --side-by-side --minimal --color --no-dereference -p -#",
        values: "-U -C --unified --context -x --exclude -W --width --label -L --color -I",
        operand_signs: "@=+",
        ..program("diff colordiff")
    },
    Program {
        flags: "-a -d -f -i -s -h -p -u -t -D -F -L -N -C -J -X --dirsfirst --noreport --du --gitignore --prune -#",
        values: "-L -P -I --filelimit --sort --charset --matchdirs",
        ..program("tree")
    },
    Program {
        flags: "-p --parents -v --verbose",
        values: "-m --mode",
        ..program("mkdir")
    },
    Program {
        flags: "-v --verbose -n --no-clobber -i --interactive -u --update -p --preserve",
        ..program("cp mv touch ln rmdir")
    },
    Program {
        flags: "-v --verbose -i -I --interactive",
        ..program("rm")
    },
    Program {
        flags: "-r -c -e -s -n -a -S -C -M -j -R --raw-output --compact-output --exit-status --slurp --null-input --ascii-output --sort-keys --color-output \
                --monochrome-output --join-output --tab --raw-input --help --version --seq --stream",
        values: "--indent",
        operand_signs: "@=+",
        ..program("jq")
    },
    Program {
        flags: "-x -v -z -j -J -t -p -k -a -h -o --list --extract --gzip --bzip2 --xz --zstd --verbose --keep-old-files --no-same-owner --totals -f --file",
        values: "--strip-components --exclude -f --file",
        runs: "-I -F -T --use-compress-program --to-command --checkpoint-action --checkpoint --info-script --new-volume-script --rsh-command --rmt-command \
               --files-from :",
        ..program("tar gtar bsdtar")
    },
    Program {
        flags: "-r -q -v -o -l -t -n -j -9 -1",
        values: "-x",
        runs: "-T --unzip-command --test-command",
        ..program("zip unzip")
    },
    Program {
        flags: "-a -v -z -r -n -h -t -i -u -c -P -q -l -p -g -D --archive --verbose --compress --recursive --dry-run --progress --stats --times --checksum \
                --human-readable --partial --itemize-changes --quiet",
        values: "--exclude --include --bwlimit --timeout --max-size --min-size",
        runs: "-e -M --rsh --rsync-path --remote-option",
        ..program("rsync")
    },
    Program {
        flags: "-s -S -f -L -i -I -v -k -g -4 -6 -N -# --silent --show-error --fail --fail-with-body --location --include --head --verbose --compressed --globoff \
                --http1.1 --http2 --no-progress-meter -V --version --tlsv1.2",
        values: "-H --header -A --user-agent -X --request -m --max-time --connect-timeout --retry --retry-delay --max-redirs -e --referer",
        operand_signs: "=",
        ..program("curl")
    },
    Program {
        flags: "-q -nv -v -S -4 -6 --quiet --no-verbose --verbose --spider --server-response --no-check-certificate",
        values: "-T --timeout -t --tries --wait -U --user-agent --header --max-redirect",
        runs: "-e --execute --use-askpass",
        operand_signs: "=",
        ..program("wget")
    },
    Program {
        flags: "-readonly -header -noheader -csv -json -line -column -table -box -markdown -list -html -tabs -quote -version -help -batch -echo -bail",
        values: "-separator -nullvalue -newline",
        runs: "-cmd -init -interactive . -",
        // Every operand after the database is SQL or a command such as `.shell`.
        max_operands: 1,
        ..program("sqlite3 sqlite duckdb")
    },
    Program {
        flags: "-l -q -t -A -x -w -E -X -V -? --list --quiet --tuples-only --no-align --expanded --no-password --no-psqlrc --version --help -1",
        values: "-h --host -p --port -U --username -d --dbname",
        runs: "-c --command -v --set --variable -e --execute --pager --init-command -",
        ..program("psql mysql mariadb")
    },
    Program {
        flags: "-u -d -R -I --utc --universal --rfc-email",
        values: "--date --iso-8601 --rfc-3339 -r --reference",
        operand_signs: "+",
        ..program("date")
    },
    Program {
        flags: "-r -p -q -v -C -4 -6 -B",
        values: "-P -l",
        runs: "-S -o -F -J -D",
        ..program("scp sftp")
    },
    // Programs without harmless options in this table, and the options of theirs that run code.
    Program {
        runs: "-E -P -C",
        ..program("cmake")
    },
    Program {
        runs: "--filter --strip-program --rsh-command --pipe --eval -E",
        ..program("split csplit install cpio rpm")
    },
    Program {
        runs: "--config --config-option --config-dir --editor-cmd --diff-cmd --diff3-cmd --ssh --remotecmd",
        ..program("hg svn")
    },
    Program {
        runs: "-o -c --option --config-file --pre-invoke --post-invoke",
        ..program("apt apt-get aptitude dpkg")
    },
    Program {
        runs: "-C --codegen -Z -XX -agentlib -agentpath -javaagent -D -I --init-script",
        ..program("rustc java mvn gradle")
    },
    Program {
        runs: "-z",
        ..program("tcpdump")
    },
    Program {
        runs: "--preview --bind --with-shell --listen",
        ..program("fzf sk")
    },
    Program {
        runs: "--pager --config-file",
        ..program("bat batcat")
    },
    Program {
        flags: "-e -f -a -u -x -l -A -w -h --forest --no-headers",
        values: "-o -p -C --sort --pid --ppid -U -G",
        ..program("ps pgrep")
    },
    Program {
        flags: "--noEmit -p=. --pretty --strict -v --version -h --help --listFiles --skipLibCheck",
        values: "--target --module",
        ..program("tsc")
    },
    Program {
        flags: "--check --fix-dry-run -v --version -h --help --quiet -q --no-color --color --verbose -l --diff",
        values: "--edition --color --max-warnings --line-length -l",
        ..program("rustfmt eslint prettier black ruff mypy flake8 isort gofmt")
    },
];

/// Shells, and programs that contain one.
pub(crate) const SHELL_PROGRAMS: &str = "sh bash zsh dash ksh mksh lksh pdksh oksh loksh fish csh tcsh ash rbash rksh rzsh yash posh sash nu \
    xonsh elvish osh ysh busybox toybox pwsh powershell cmd git-shell git-remote-ext";

/// Words that a shell understands itself.
pub(crate) const SHELL_BUILTINS: &str = "eval exec \
    source . trap alias unalias builtin command enable hash set unset shopt export declare typeset readonly local let read \
    mapfile readarray getopts bind complete compgen jobs fc coproc wait if then else elif fi for while until do done case esac select \
    function in time [[ suspend emulate autoload zmodload noglob nocorrect repeat foreach end";

/// Programs that start another one.
pub(crate) const STARTER_PROGRAMS: &str = "env xargs sudo doas su runuser nohup timeout gtimeout nice ionice chrt taskset setsid stdbuf strace \
    ltrace watch parallel flock chroot unshare nsenter systemd-run script entr ssh fakeroot proot firejail bwrap xvfb-run at \
    batch crontab caffeinate unbuffer setpriv prlimit numactl cgexec chpst daemonize tmux screen expect gdb start npx bunx uvx \
    pipx setarch linux32 linux64 i386 x86_64 pkexec sg newgrp run-parts start-stop-daemon dbus-run-session catchsegv valgrind perf \
    hyperfine faketime rlwrap socat nc ncat netcat telnet open xdg-open rundll32 wsl osascript ld.so lldb arch \
    chronic ifne pee cpulimit choom capsh sshpass autossh mosh rsh ansible nodemon nix-shell vagrant \
    ccache sccache distcc icecc eatmydata pnpx";

/// Programs whose arguments are a program.
pub(crate) const INTERPRETER_PROGRAMS: &str = "awk gawk mawk nawk goawk original-awk r sed gsed perl ed ex vi vim vimdiff view rvim rview gvim nvim emacs less more \
    man tclsh wish m4 dc bc gnuplot scala groovy jshell irb ghci ocaml guile sbcl elixir erl iex swift kotlin clojure";

/// Programs whose operand `run` or `exec` starts another one.
pub(crate) const RUNNER_PROGRAMS: &str = "bundle poetry uv pipenv hatch rye pdm conda mamba micromamba nix opam ip cargo-make rustup direnv mise rtx asdf pyenv rbenv nodenv \
     jenv nvm fnm volta rvm devbox pixi";

/// Names of programs that are also usual words of a command line.
pub(crate) const AMBIGUOUS_NAMES: &str = "start open watch at batch script screen view more less arch perf expect man r nu ed ex sg cmd swift";

/// Programs that can give another program a second name, or that run an operand which is no command
/// of theirs.
pub(crate) const PASSING_PROGRAMS: &str = "cp mv ln install dd rsync pnpm yarn bun";

/// The first names of programs that run a script.
pub(crate) const SCRIPT_PROGRAMS: &str = "python node ruby php lua";

/// The first names of programs that run statements, from the command line or from the input.
pub(crate) const SQL_PROGRAMS: &str = "sqlite3 psql";

/// Modules of Python that run the code of the project and nothing of the command line.
pub(crate) const CHECKER_MODULES: &str = "pytest unittest mypy black ruff flake8 isort pylint pyright pyflakes pycodestyle bandit \
    compileall py_compile json.tool";

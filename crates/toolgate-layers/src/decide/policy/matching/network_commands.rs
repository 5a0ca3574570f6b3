//! Commands that can reach a host which cannot be read in their text.

use crate::decide::policy::matching::{
    host_words::connects,
    program_runners::lists,
    shell::{ScriptCommand, ShellWord, base_name},
};

/// Options with which a program reads hosts from a file: its name, and the options.
const HOST_FILES: &[(&str, &str)] = &[
    ("curl", "-K --config"),
    ("wget", "-i --input-file --config -e --execute"),
    ("aria2c", "-i --input-file --conf-path"),
    ("ssh scp sftp rsync ssh-copy-id mosh", "-F --files-from"),
    ("nmap", "-iL"),
    ("dig", "-f"),
    ("lftp", "-f"),
    ("pip pip3 pipx", "-r --requirement -c --constraint"),
];

/// Programs that download what their words name.
const DOWNLOADERS: &str = "pip pip3 pipx uv npm npx pnpm yarn bun bunx cargo go gem brew docker podman conda mamba openssl";

/// Interpreters, each with the options whose value is code.
const INLINE_CODE: &[(&str, &str)] = &[
    ("python python2 python3 pypy pypy3", "-c"),
    ("node nodejs bun", "-e --eval -p --print"),
    ("deno", "eval"),
    ("perl", "-e -E"),
    ("ruby", "-e"),
    ("php", "-r"),
    ("lua luajit", "-e"),
    ("tclsh wish", ""),
];

/// Parts of code that can open a connection, run a program, or hide that it does. Without one of
/// them, code in these languages computes and prints.
const REACHING_CODE: &[&str] = &[
    "socket",
    "http",
    "url",
    "request",
    "ftp",
    "smtp",
    "imap",
    "telnet",
    "ssh",
    "asyncio",
    "exec",
    "eval",
    "__",
    "getattr",
    "importlib",
    "import(",
    "system",
    "popen",
    "subprocess",
    "spawn",
    "fetch",
    "net",
    "require",
    "chr(",
    "decode",
    "b64",
    "base64",
    "fromhex",
    "compile",
    "vars(",
    "globals",
    "\\x",
    "\\u",
    "pickle",
    "pty",
    "ctypes",
    "qx",
    "`",
    "sock",
    "file_get",
    "uri",
    "process",
    "function(",
    "loadstring",
    "dofile",
    "pack(",
    "|",
];

/// Returns the options that a list has for a program.
fn find_options(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let known = list.iter().find(|(names, _)| lists(names, name));
    known.map(|(_, options)| *options)
}

/// Returns the first piece of a text because of which it cannot be told which host it reaches.
pub(crate) fn find_unread_host(commands: &[ScriptCommand]) -> Option<&str> {
    commands.iter().find_map(|command| {
        unread_socket(command)
            .or_else(|| unread_operand(command))
            .or_else(|| host_file(command))
            .or_else(|| remote_of_git(command))
            .or_else(|| reaching_code(command))
    })
}

/// Returns a file of bash that is a connection: `/dev/tcp/$HOST/80`.
fn unread_socket(command: &ScriptCommand) -> Option<&str> {
    let files = command
        .writes
        .iter()
        .chain(&command.reads)
        .chain(&command.words);
    let is_socket = |word: &&ShellWord| {
        let is_device = word.text.contains("/dev/tcp") || word.text.contains("/dev/udp");
        is_device && !word.certain
    };
    { files }.find(is_socket).map(|word| word.text.as_str())
}

/// Returns an operand of a program that connects which a shell or another program decides.
fn unread_operand(command: &ScriptCommand) -> Option<&str> {
    let is_unknown = |word: &&ShellWord| !word.certain;
    let first = command.words.first()?;
    if !first.certain {
        return Some(&first.text);
    }
    let is_network = |name: &str| connects([name]) || lists(DOWNLOADERS, name);
    let words = command.find_program(is_network)?;
    let passed = || Some(first).filter(|_| command.passes_unknown_words());
    let unknown = words.iter().find(is_unknown).or_else(passed);
    unknown.map(|word| word.text.as_str())
}

/// Returns the option with which a command reads hosts from a file.
fn host_file(command: &ScriptCommand) -> Option<&str> {
    let options_of = |name: &str| find_options(HOST_FILES, name);
    let words = command.find_program(|name| options_of(name).is_some())?;
    let options = options_of(&base_name(&words[0].text))?;
    let is_given = |word: &&ShellWord| {
        let mut options = options.split(' ');
        options.any(|option| match option.strip_prefix("--") {
            Some(_) => word.text.split('=').next() == Some(option),
            // `-K file`, `-Kfile`, `-sK file`
            None => {
                let is_cluster = word.text.starts_with('-') && !word.text.starts_with("--");
                word.text.starts_with(option)
                    || is_cluster && option.len() == 2 && word.text.ends_with(&option[1..])
            }
        })
    };
    { words[1..].iter() }
        .find(is_given)
        .map(|word| word.text.as_str())
}

/// Returns the command of git that connects to a remote of the configuration.
fn remote_of_git(command: &ScriptCommand) -> Option<&str> {
    const CONNECTING: &str = "fetch pull push ls-remote clone lfs submodule";
    let words = command.find_program(|name| name == "git")?;
    let at = words
        .iter()
        .position(|word| lists(CONNECTING, &word.text))?;
    let after = &words[at + 1..];
    let is_unknown = after.iter().any(|word| !word.certain);
    // A URL, an address such as `git@host:path`, or a directory.
    let is_named =
        |word: &ShellWord| word.text.contains(':') || word.text.starts_with(['.', '/', '~']);
    let verb = words[at].text.as_str();
    let only_shows = verb == "submodule" && !after.iter().any(|it| lists("add update", &it.text))
        || verb == "lfs" && !after.iter().any(|it| lists("fetch pull push", &it.text));
    let is_readable = after.iter().any(is_named) && !is_unknown;
    (!is_readable && !only_shows).then_some(verb)
}

/// Returns the interpreter whose code may connect to any host.
fn reaching_code(command: &ScriptCommand) -> Option<&str> {
    let options_of = |name: &str| find_options(INLINE_CODE, name);
    let words = command.find_program(|name| options_of(name).is_some())?;
    let (program, arguments) = words.split_first()?;
    let options = options_of(&base_name(&program.text))?;
    let takes_code = |word: &ShellWord| {
        let letters = word
            .text
            .strip_prefix('-')
            .filter(|it| !it.starts_with('-'));
        let is_cluster = |option: &str| {
            let letter = option.strip_prefix('-').filter(|it| it.len() == 1);
            letter.is_some_and(|letter| letters.is_some_and(|letters| letters.contains(letter)))
        };
        lists(options, &word.text) || options.split(' ').any(is_cluster)
    };
    let at = arguments.iter().position(takes_code);
    let code = at.map_or(&[][..], |at| &arguments[at..]);
    let names_file = |word: &ShellWord| !word.text.starts_with('-');
    let has_file = at.is_none() && arguments.iter().any(names_file);
    let shows = arguments
        .iter()
        .any(|word| lists("-V -v --version -h --help -m", &word.text));
    // Without a file it runs its input.
    let is_fed = at.is_none() && !has_file && !shows;
    let inputs = command.inputs.iter().filter(|_| !has_file);
    let reaches = code.iter().chain(inputs).any(|word| {
        let text = word.text.to_lowercase();
        !word.certain || REACHING_CODE.iter().any(|part| text.contains(part))
    });
    let is_unseen = is_fed && command.inputs.is_empty();
    (reaches || is_unseen).then_some(program.text.as_str())
}

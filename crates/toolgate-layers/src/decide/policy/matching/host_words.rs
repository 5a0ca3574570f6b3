//! Tells hosts from file names among the words of a command: `example.com` and `README.md` look
//! alike.

use crate::decide::policy::matching::{
    hosts::{may_be_host, possible_hosts},
    shell::{CommandWords, base_name},
};

/// Programs that connect to the hosts among their words, whatever these look like.
const NETWORK_PROGRAMS: &str = "aria2c axel curl dig drill ftp host http https httpie invoke-webrequest irm iwr lftp lynx mosh \
    nc ncat netcat nmap nslookup ping ping6 rsync scp sftp socat ssh ssh-copy-id telnet tftp tracepath traceroute w3m \
    websocat wget whois xh";

/// Endings of file names. Some are also top-level domains, but a program that connects to a host
/// is known by its name.
const FILE_ENDINGS: &str = "7z a asc avi awk bak bash bat bin bmp bz2 c cc cfg clj cmake cmd conf cpp cs css csv cxx d dat db \
    dbg def diff dll doc docx dot dylib elf env erb erl ex exe exs fish gif go gradle graphql gz h hh hpp hs htm html ico \
    in inc ini ipynb jar java jl jpeg jpg js json json5 jsonl jsx key kt kts less list lock log lua m map markdown md mdx \
    mjs mk ml mov mp3 mp4 mts nix o odt old orig out patch pdf pem php pid pl plist pm png po pot ppt pptx properties proto \
    ps1 psd py pyc pyi qml r rb rej rlib rmd rs rst rtf s sass sbt scala scss sh snap so sock sql sqlite sqlite3 sum svelte \
    svg swift swp tar tcl tex tf tgz tif tiff tmp toml ts tsv tsx ttf txt vim vue wasm wav webp woff woff2 xhtml xls xlsx \
    xml xz yaml yml zig zip zsh zst";

/// Returns the hosts that a run of words contacts: every host among the words of a program that
/// connects to one, and otherwise what has the form of a host and not of a file name.
pub(crate) fn hosts_in_run(run: &CommandWords) -> Vec<String> {
    let words = run.iter().filter(|word| may_be_host(word));
    let sockets = run.iter().filter_map(|word| socket_host(word));
    let sockets = sockets.flat_map(possible_hosts);
    if connects(run.iter().map(String::as_str)) {
        return words
            .flat_map(|word| possible_hosts(word))
            .chain(sockets)
            .collect();
    }
    let class = main_class(run);
    words
        .filter(|word| !word.starts_with('.') && class != Some(word.as_str()))
        .flat_map(|word| {
            let hosts = possible_hosts(word).into_iter();
            hosts.filter(|name| has_host_form(name, word))
        })
        .chain(sockets)
        .collect()
}

/// Returns the host of a file that is a connection, to bash or to awk: `/dev/tcp/host/80`,
/// `/inet/tcp/0/host/80`.
fn socket_host(word: &str) -> Option<&str> {
    let mut parts = word.split('/').filter(|part| !matches!(*part, "" | "."));
    let first = parts.next()?;
    let protocol = parts.next()?;
    let skipped = match first {
        "dev" => 0,
        "inet" | "inet4" | "inet6" => 1,
        _ => return None,
    };
    matches!(protocol, "tcp" | "udp").then(|| parts.nth(skipped))?
}

/// Checks whether a program that connects to hosts is among the words.
pub(crate) fn connects<'w>(words: impl IntoIterator<Item = &'w str>) -> bool {
    words.into_iter().any(|word| {
        let name = base_name(word);
        NETWORK_PROGRAMS
            .split_whitespace()
            .any(|known| known == name)
    })
}

/// Returns the class that `java` starts: its first operand, which is no host.
fn main_class(run: &CommandWords) -> Option<&str> {
    const WITH_VALUE: [&str; 5] = ["-cp", "-classpath", "--class-path", "-p", "--module-path"];
    let (program, words) = run.split_first()?;
    let mut words = words.iter().map(String::as_str);
    if base_name(program) != "java" {
        return None;
    }
    loop {
        match words.next()? {
            "-jar" | "-m" | "--module" => return None,
            option if WITH_VALUE.contains(&option) => drop(words.next()),
            option if option.starts_with(['-', '@']) => {}
            class => return Some(class),
        }
    }
}

/// Checks whether a name in a word has the form of a host rather than that of a number, a version or
/// a file.
fn has_host_form(name: &str, word: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    // `5` and `1.2.3` are addresses to some parsers, but only after a program that connects.
    let is_address = word.contains(name) && name.parse::<std::net::Ipv4Addr>().is_ok();
    let letters = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-';
    // `main..dev` is a range of commits.
    let is_domain = name.contains('.')
        && !name.contains("..")
        && (last.starts_with("xn--") || last.len() > 1 && last.bytes().all(letters));
    // A user has an account on a host, not in a file: `ann@build.sh:x`.
    let is_file = || {
        let mut endings = FILE_ENDINGS.split_whitespace();
        !word.contains('@') && endings.any(|ending| ending == last)
    };
    name.starts_with('[') || is_address || has_port(name, word) || (is_domain && !is_file())
}

/// Checks whether a name without dots has a port behind it: `--connect=intranet:443`.
fn has_port(name: &str, word: &str) -> bool {
    let Some((before, port)) = word.rsplit_once(':') else {
        return false;
    };
    let is_port = (2..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let host = before.rsplit(['=', '@', '/']).next().unwrap_or(before);
    is_port
        && host.eq_ignore_ascii_case(name)
        && !name.contains('.')
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(command: &str) -> Vec<String> {
        hosts_in_run(&command.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn a_file_name_a_version_or_a_number_is_not_a_host() {
        for command in [
            "cat README.md",
            "head -n 5 Cargo.toml",
            "python3 scripts/run.py --level=3",
            "make -j8 lib.so.1",
            "git add README.md src/lib.rs",
            "npm install left-pad@1.2.3",
            "grep -rn foo.bar src/main.rs:12",
            "tool --version=1.2.3",
            "ls .env.example ./a.com ../x.org",
            "git log main..dev",
            "git diff v1...origin",
            "java com.example.Main",
            "java -cp target/classes -Xmx1g com.example.Main",
        ] {
            let found = hosts(command);
            let found: Vec<&String> = found.iter().filter(|host| *host != "foo.bar").collect();
            assert!(found.is_empty(), "{command}: {found:?}");
        }
    }

    #[test]
    fn a_host_is_found_after_a_program_that_connects_and_by_its_form() {
        for (command, host) in [
            ("curl evil.md", "evil.md"),
            ("sudo /usr/bin/wget -q evil.rs/x", "evil.rs"),
            ("ssh -p 22 ann@build.sh", "build.sh"),
            ("nc 2130706433 80", "127.0.0.1"),
            ("ping localhost", "127.0.0.1"),
            ("python3 fetch.py evil.com", "evil.com"),
            ("./fetch 10.0.0.7", "10.0.0.7"),
            ("./fetch ann@evil.com:x", "evil.com"),
            ("git clone git@build.sh:x", "build.sh"),
            ("./fetch --to=evil.com", "evil.com"),
            ("java com.example.Main evil.com", "evil.com"),
            ("java -jar fetch.jar evil.com", "evil.com"),
            ("sh -c java evil.com", "evil.com"),
            ("./fetch xn--bcher-kva.xn--p1ai", "xn--bcher-kva.xn--p1ai"),
        ] {
            let found = hosts(command);
            assert!(
                found.iter().any(|name| name == host),
                "{command}: {found:?}"
            );
        }
    }
}

//! Checks an archive as a user gets it: installed by the script, from a directory and over HTTP, and run where
//! there is nothing but libc.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use serde_json::Value;

use super::{copy_file, create_directory, host_target, run_program};

/// Libraries that every system with glibc has.
const LIBC: [&str; 7] = [
    "ld-linux",
    "libc.so",
    "libm.so",
    "libgcc_s.so",
    "libpthread.so",
    "libdl.so",
    "librt.so",
];

/// Checks the archive in `out`.
pub(crate) fn check(out: &Path) -> Result<(), String> {
    let work = out.join("check");
    remove_directory(&work)?;
    create_directory(&work)?;
    let archive = format!("toolgate-{}.tar.gz", host_target()?);
    check_installed(&work, out)?;
    check_download(&work, out)?;
    check_damaged(&work, out, &archive)?;
    check_units(&work)?;
    check_in_chroot(&work, &out.join(&archive))?;
    remove_directory(&work)
}

/// Installs from a directory or an address below `prefix`.
fn install(out: &Path, from: &str, prefix: &Path) -> Result<Output, String> {
    let mut script = Command::new("sh");
    script
        .arg(out.join("install.sh"))
        .args(["--from", from, "--prefix"])
        .arg(prefix);
    // The script is tested with what every system has, and without the settings of this account.
    script
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", prefix);
    script
        .output()
        .map_err(|error| format!("install.sh could not be started: {error}"))
}

fn require(condition: bool, problem: impl Into<String>) -> Result<(), String> {
    if condition {
        Ok(())
    } else {
        Err(problem.into())
    }
}

fn check_installed(work: &Path, out: &Path) -> Result<(), String> {
    let prefix = work.join("local");
    let ran = install(out, &out.display().to_string(), &prefix)?;
    require(
        ran.status.success(),
        format!("install.sh failed: {}", text_of(&ran)),
    )?;
    let program = prefix.join("bin/toolgate");
    let version = run_program(Command::new(&program).arg("--version"), "toolgate")?;
    require(
        version.starts_with("toolgate "),
        format!("--version printed {version}"),
    )?;
    for file in [
        "share/man/man1/toolgate-init.1",
        "share/bash-completion/completions/toolgate",
        "share/zsh/site-functions/_toolgate",
        "share/fish/vendor_completions.d/toolgate.fish",
        "share/doc/toolgate/LICENSE-MIT",
        super::MODEL_NOTICE,
    ] {
        require(
            prefix.join(file).is_file(),
            format!("{file} is not in the archive"),
        )?;
    }
    let symbols = read_file(&program)?;
    let has_symbols = symbols.windows(8).any(|bytes| bytes == b".symtab\0");
    require(!has_symbols, "the program is not stripped")?;
    let documents = prefix.join("share/doc/toolgate");
    let licenses = read_file(&documents.join("THIRD-PARTY-LICENSES.txt"))?;
    let licenses = String::from_utf8_lossy(&licenses);
    require(
        licenses.contains("rusqlite@") && licenses.contains("Permission is hereby granted"),
        "the licences of dependencies are missing",
    )?;
    check_components(&documents.join("toolgate.cdx.json"))?;
    println!("install.sh: installed from a directory, {}", version.trim());
    Ok(())
}

/// Checks that the list has what is compiled in, and nothing that only tests use.
fn check_components(path: &Path) -> Result<(), String> {
    let list: Value = serde_json::from_slice(&read_file(path)?)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let components = list["components"].as_array().cloned().unwrap_or_default();
    let find = |name: &str| {
        components
            .iter()
            .find(|component| component["name"] == name)
    };
    let rusqlite = find("rusqlite").ok_or("rusqlite is not in the list of components")?;
    require(
        rusqlite["hashes"][0]["content"].is_string(),
        "rusqlite has no checksum",
    )?;
    require(
        find("proptest").is_none(),
        "proptest is in the list of components",
    )?;
    let unlicensed = components
        .iter()
        .find(|component| component["licenses"].is_null());
    require(
        unlicensed.is_none(),
        format!("a component has no licence: {unlicensed:?}"),
    )?;
    let references: Vec<&Value> = components
        .iter()
        .map(|component| &component["bom-ref"])
        .collect();
    let uses = list["dependencies"].as_array().into_iter().flatten();
    let mut uses =
        uses.flat_map(|dependency| dependency["dependsOn"].as_array().into_iter().flatten());
    let unknown = uses.find(|used| !references.contains(used));
    require(
        unknown.is_none(),
        format!("a dependency is no component: {unknown:?}"),
    )
}

fn check_download(work: &Path, out: &Path) -> Result<(), String> {
    let address = serve_directory(out)?;
    let prefix = work.join("downloaded");
    let ran = install(out, &address, &prefix)?;
    require(
        ran.status.success(),
        format!("install.sh failed: {}", text_of(&ran)),
    )?;
    require(
        prefix.join("bin/toolgate").is_file(),
        "install.sh installed nothing",
    )?;
    let ran = install(out, "http://192.0.2.1", &work.join("plain"))?;
    require(
        !ran.status.success() && text_of(&ran).contains("is not encrypted"),
        "install.sh downloads without encryption",
    )?;
    println!("install.sh: installed over HTTP from loopback");
    Ok(())
}

fn check_damaged(work: &Path, out: &Path, archive: &str) -> Result<(), String> {
    let damaged = work.join("damaged");
    create_directory(&damaged)?;
    let checksum = format!("{archive}.sha256");
    copy_file(&out.join(&checksum), &damaged.join(&checksum))?;
    let mut bytes = read_file(&out.join(archive))?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(damaged.join(archive), bytes).map_err(|error| error.to_string())?;
    let prefix = work.join("nothing");
    let ran = install(out, &damaged.display().to_string(), &prefix)?;
    require(
        !ran.status.success() && text_of(&ran).contains("the checksum of"),
        format!(
            "install.sh does not notice a damaged archive: {}",
            text_of(&ran)
        ),
    )?;
    require(
        !prefix.exists(),
        "install.sh installed something of a damaged archive",
    )?;
    println!("install.sh: a damaged archive is rejected, and nothing is installed");
    Ok(())
}

fn check_units(work: &Path) -> Result<(), String> {
    let units = work.join("local/share/systemd/user");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["--user", "--man=no", "verify"]);
    verify.env("HOME", work).env("XDG_RUNTIME_DIR", work);
    // `%h/.local/bin` of the unit is where the script installs.
    symlink(work.join("local"), work.join(".local")).map_err(|error| error.to_string())?;
    verify.arg(units.join("toolgate-verify.service"));
    match verify.arg(units.join("toolgate-verify.timer")).output() {
        Err(_) => println!("units: not checked, because systemd-analyze is not installed"),
        Ok(ran) if ran.status.success() => println!("units: valid"),
        Ok(ran) => return Err(format!("the units are not valid: {}", text_of(&ran))),
    }
    Ok(())
}

/// Runs the program where there is nothing but libc and what the archive brings.
fn check_in_chroot(work: &Path, archive: &Path) -> Result<(), String> {
    if !cfg!(target_os = "linux") || !rustix::process::geteuid().is_root() {
        println!("empty root: not checked, because that takes root on Linux");
        return Ok(());
    }
    let empty = work.join("empty");
    create_directory(&empty.join("work"))?;
    let mut unpack = Command::new("tar");
    unpack
        .arg("-xzf")
        .arg(archive)
        .args(["--strip-components=1", "-C"])
        .arg(&empty);
    run_program(&mut unpack, "tar")?;
    for library in list_libraries(&empty.join("bin/toolgate"))? {
        let name = library
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        require(
            LIBC.iter().any(|known| name.starts_with(known)),
            format!("the program needs {name}, which is not part of libc"),
        )?;
        let inside = empty.join(library.strip_prefix("/").unwrap_or(&library));
        create_directory(inside.parent().unwrap_or(&empty))?;
        copy_file(&library, &inside)?;
    }
    let toolgate = |arguments: &[&str]| {
        let mut command = Command::new("chroot");
        command
            .arg(&empty)
            .arg("/bin/toolgate")
            .args(["-C", "/work"])
            .args(arguments);
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("TOOLGATE_HOME", "/state")
            .env("HOME", "/");
        run_program(
            &mut command,
            &format!("toolgate {arguments:?} in an empty root"),
        )
    };
    toolgate(&["--version"])?;
    toolgate(&["init", "--yes"])?;
    toolgate(&[
        "tools",
        "call",
        "write_file",
        "path=a.txt",
        "content=one",
        "--approve",
        "yes",
    ])?;
    require(
        empty.join("work/a.txt").is_file(),
        "write_file wrote nothing",
    )?;
    let verified = toolgate(&["receipts", "verify", "--json"])?;
    println!(
        "empty root: a call, its receipt and the database work with libc alone\n{}",
        verified.trim()
    );
    Ok(())
}

/// Returns the libraries that the program is linked with.
fn list_libraries(program: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = run_program(Command::new("ldd").arg(program), "ldd")?;
    let path = |line: &str| {
        line.split_whitespace()
            .find(|word| word.starts_with('/'))
            .map(PathBuf::from)
    };
    Ok(listed.lines().filter_map(path).collect())
}

/// Serves the files of a directory on loopback until the process ends, and returns the address.
fn serve_directory(directory: &Path) -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let directory = directory.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that leaves early must not stop the server.
            let _ = serve_file(stream, &directory);
        }
    });
    Ok(format!("http://{address}"))
}

fn serve_file(stream: TcpStream, directory: &Path) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let name = request.split(' ').nth(1).unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    let stream = reader.get_mut();
    match fs::read(directory.join(name)) {
        Ok(bytes) => {
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                bytes.len()
            )?;
            stream.write_all(&bytes)
        }
        Err(_) => write!(
            stream,
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        ),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn remove_directory(path: &Path) -> Result<(), String> {
    if !path.exists() {
        return Ok(());
    }
    fs::remove_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn text_of(ran: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    )
}

//! A PostgreSQL for the tests: from local binaries, in a temporary directory, on a socket only,
//! deleted afterwards.

use std::{
    fs,
    os::unix::{
        fs::chown,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The environment variable that names a server for the tests.
pub(crate) const VARIABLE: &str = "TOOLGATE_TEST_POSTGRES";

/// Runs the server until its input ends, which happens when the task that started it ends in any
/// way.
const KEEPER: &str = r#"
dir=$1; shift
"$@" </dev/null >"$dir/log" 2>&1 &
server=$!
read -r _
kill -INT "$server"
wait "$server"
rm -rf "$dir"
"#;

/// A server that runs as long as this value exists. It is stopped and deleted even if this process
/// is killed.
pub(crate) struct Postgres {
    url: String,
    keeper: Option<Child>,
}

impl Postgres {
    /// Returns the server that the environment names, or else starts one.
    pub(crate) fn given_or_started() -> Result<Self, String> {
        match std::env::var(VARIABLE) {
            Ok(url) if !url.is_empty() => Ok(Self::given(url)),
            _ => Self::start(),
        }
    }

    /// Returns a server that runs already.
    pub(crate) fn given(url: String) -> Self {
        Self { url, keeper: None }
    }

    /// Starts a new server.
    pub(crate) fn start() -> Result<Self, String> {
        Self::start_from(&Binaries::find_or_install()?, "postgres")
    }

    /// Starts a new server from these programs, in a directory with this name.
    pub(crate) fn start_from(binaries: &Binaries, name: &str) -> Result<Self, String> {
        let user = User::to_run_as()?;
        let dir = directory(&user, name)?;
        let started = Self::start_in(&dir, binaries, &user);
        if started.is_err() {
            // The keeper may have deleted it first.
            let _ = fs::remove_dir_all(&dir);
        }
        started
    }

    fn start_in(dir: &Path, binaries: &Binaries, user: &User) -> Result<Self, String> {
        let data = dir.join("data");
        let mut initdb = user.command(&binaries.initdb);
        initdb.arg("-D").arg(&data).args([
            "-U",
            "toolgate",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        let made = initdb
            .current_dir(dir)
            .output()
            .map_err(|error| format!("initdb could not be started: {error}"))?;
        if !made.status.success() {
            return Err(format!(
                "initdb failed:\n{}",
                String::from_utf8_lossy(&made.stderr)
            ));
        }
        let mut server = user.command(&binaries.postgres);
        // The tests are about durability, so writes are synced as in production.
        server.arg("-D").arg(&data).arg("-k").arg(dir).args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=on",
        ]);
        server.args(["-c", "max_connections=200"]);
        let mut keeper = Command::new("sh");
        keeper
            .args(["-c", KEEPER, "keeper"])
            .arg(dir)
            .arg(server.get_program())
            .args(server.get_args());
        // A separate group: Ctrl-C reaches this process, and the keeper cleans up once it is gone.
        keeper
            .current_dir(dir)
            .stdin(Stdio::piped())
            .process_group(0);
        let keeper = keeper
            .spawn()
            .map_err(|error| format!("the server could not be started: {error}"))?;
        let url = format!(
            "postgres://toolgate@localhost/postgres?host={}",
            dir.display()
        );
        let started = Self {
            url,
            keeper: Some(keeper),
        };
        wait_until_ready(dir).map(|()| started)
    }

    /// Returns the connection URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }
}

/// Runs a server for interactive use until Ctrl-C, and prints how tests find it.
pub(crate) fn run_until_stopped(variable: &str, postgres: &Postgres) -> ! {
    println!("export {variable}='{}'", postgres.url());
    eprintln!("PostgreSQL runs until you press Ctrl-C.");
    loop {
        std::thread::park();
    }
}

/// The programs of a server.
pub(crate) struct Binaries {
    initdb: PathBuf,
    postgres: PathBuf,
}

impl Binaries {
    fn find_or_install() -> Result<Self, String> {
        if let Some(found) = Self::find() {
            return Ok(found);
        }
        let hint = format!(
            "hint: install PostgreSQL, put its `initdb` and `postgres` on the PATH, or set {VARIABLE} to a server"
        );
        if !Path::new("/etc/debian_version").exists() || !is_root()? {
            return Err(format!(
                "the tests need PostgreSQL and it is not installed\n{hint}"
            ));
        }
        println!("== PostgreSQL is not installed; installing Debian's package");
        let mut install = Command::new("apt-get");
        install.args(["install", "--yes", "--no-install-recommends", "postgresql"]);
        install.env("DEBIAN_FRONTEND", "noninteractive");
        match install.status() {
            Ok(status) if status.success() => Self::find()
                .ok_or_else(|| format!("the package brought no `initdb` and `postgres`\n{hint}")),
            Ok(status) => Err(format!(
                "`apt-get install postgresql` failed ({})\n{hint}",
                said(status)
            )),
            Err(error) => Err(format!("`apt-get` could not be started: {error}\n{hint}")),
        }
    }

    /// Searches the PATH, then Debian's directories, newest version first.
    fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                Some((
                    entry.file_name().to_str()?.parse().ok()?,
                    entry.path().join("bin"),
                ))
            })
            .collect();
        versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
        let mut directories =
            std::env::split_paths(&path).chain(versions.into_iter().map(|(_, bin)| bin));
        directories.find_map(|bin| Self::in_folder(&bin))
    }

    /// Returns the programs in a folder, if both are there.
    pub(crate) fn in_folder(bin: &Path) -> Option<Self> {
        let binaries = Self {
            initdb: bin.join("initdb"),
            postgres: bin.join("postgres"),
        };
        (binaries.initdb.is_file() && binaries.postgres.is_file()).then_some(binaries)
    }
}

/// The user that the server runs as. PostgreSQL does not run as root.
enum User {
    Me,
    Other {
        name: &'static str,
        ids: (u32, u32),
        switch: &'static str,
    },
}

impl User {
    fn to_run_as() -> Result<Self, String> {
        if !is_root()? {
            return Ok(Self::Me);
        }
        let switch = ["setpriv", "runuser"].into_iter().find(|tool| {
            Command::new(tool)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok()
        });
        let switch = switch.ok_or(
            "PostgreSQL does not run as root, and neither `setpriv` nor `runuser` is installed\nhint: run as another user",
        )?;
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| Some(Self::Other { name, ids: (id("-u", name)?, id("-g", name)?), switch }))
            .ok_or_else(|| {
                "there is no user `postgres` or `nobody` to run PostgreSQL as\nhint: run as another user".into()
            })
    }

    fn command(&self, program: &Path) -> Command {
        match self {
            Self::Me => Command::new(program),
            Self::Other {
                name,
                switch: "runuser",
                ..
            } => {
                let mut command = Command::new("runuser");
                command.args(["-u", name, "--"]).arg(program);
                command
            }
            Self::Other {
                ids: (user, group),
                switch,
                ..
            } => {
                let mut command = Command::new(switch);
                command
                    .arg(format!("--reuid={user}"))
                    .arg(format!("--regid={group}"))
                    .arg("--clear-groups");
                command.arg("--").arg(program);
                command
            }
        }
    }
}

/// Checks whether this process runs as root.
pub(crate) fn is_root() -> Result<bool, String> {
    let me = Command::new("id")
        .arg("-u")
        .output()
        .map_err(|error| format!("`id` could not be started: {error}"))?;
    Ok(me.stdout.trim_ascii() == b"0")
}

fn id(which: &str, name: &str) -> Option<u32> {
    let found = Command::new("id")
        .args([which, name])
        .output()
        .ok()
        .filter(|found| found.status.success())?;
    String::from_utf8(found.stdout).ok()?.trim().parse().ok()
}

/// Creates a directory that belongs to the user, with a short name: the path of a socket is limited
/// to about 100 bytes.
fn directory(user: &User, name: &str) -> Result<PathBuf, String> {
    let temporary = Some(std::env::temp_dir()).filter(|dir| dir.as_os_str().len() < 60);
    let dir = temporary
        .unwrap_or_else(|| "/tmp".into())
        .join(format!("toolgate-{name}-{}", std::process::id()));
    let problem = |error| format!("{} could not be made: {error}", dir.display());
    fs::create_dir(&dir).map_err(problem)?;
    if let User::Other {
        ids: (user, group), ..
    } = user
    {
        chown(&dir, Some(*user), Some(*group)).map_err(problem)?;
    }
    Ok(dir)
}

/// Waits until the server reports in its own file that it accepts connections.
fn wait_until_ready(dir: &Path) -> Result<(), String> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        let state = fs::read_to_string(dir.join("data/postmaster.pid")).unwrap_or_default();
        if state
            .lines()
            .nth(7)
            .is_some_and(|line| line.trim() == "ready")
        {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    Err(format!(
        "PostgreSQL did not start within 30 s; its log says:\n{log}"
    ))
}

fn said(status: std::process::ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

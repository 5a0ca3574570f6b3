//! A PostgreSQL server of its own for a test that stops, kills or pauses it.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::MetadataExt, fs::chown, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// Runs the server; stops it with the signal of each line that it reads and starts it again with
/// the next line. It ends with its input, which happens when the test ends in any way.
const KEEPER: &str = r#"
dir=$1; shift
start() { "$@" </dev/null >>"$dir/log" 2>&1 & server=$!; }
start "$@"
while read -r signal; do
    kill -"$signal" "$server"; wait "$server"; rm -f "$dir/data/postmaster.pid"; echo stopped
    read -r _ || break
    start "$@"
done
kill -QUIT "$server"; wait "$server"; rm -rf "$dir"
"#;

/// A PostgreSQL server that runs as long as this value exists, on a socket only. It is stopped and
/// deleted even if the test is killed.
#[derive(Debug)]
pub struct PostgresServer {
    dir: PathBuf,
    keeper: Child,
    stopped: BufReader<ChildStdout>,
}

impl PostgresServer {
    /// Starts a server; says so and returns `None` if the programs are not installed.
    ///
    /// # Panics
    ///
    /// Panics if they are installed and the server does not start.
    pub fn start() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Some(bin) = find_programs() else {
            println!("initdb and postgres are not installed: nothing is tested on a server");
            return None;
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tg-server-{}-{number}", std::process::id());
        // A short name: the path of a socket is limited to about 100 bytes.
        let dir = Path::new("/tmp").join(name);
        fs::create_dir(&dir).expect("a new directory");
        let mut switch = Vec::new();
        // PostgreSQL does not run as root.
        if fs::metadata(&dir).expect("exists").uid() == 0 {
            let owner = user_ids("postgres").or_else(|| user_ids("nobody"))?;
            chown(&dir, Some(owner.0), Some(owner.1)).expect("changes the owner");
            switch = vec![
                "setpriv".to_owned(),
                format!("--reuid={}", owner.0),
                format!("--regid={}", owner.1),
                "--clear-groups".to_owned(),
            ];
        }
        let data = dir.join("data").display().to_string();
        let command = |program: &str, arguments: &[&str]| {
            let program = bin.join(program).display().to_string();
            let mut words = switch.clone();
            words.push(program);
            words.extend(arguments.iter().map(|word| (*word).to_owned()));
            words
        };
        let initdb = command(
            "initdb",
            &[
                "-D",
                &data,
                "-U",
                "toolgate",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "--no-instructions",
            ],
        );
        let made = Command::new(&initdb[0])
            .args(&initdb[1..])
            .current_dir(&dir)
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "{made:?}");
        let socket = dir.display().to_string();
        let server = command(
            "postgres",
            &["-D", &data, "-k", &socket, "-c", "listen_addresses="],
        );
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper", &socket])
            .args(server)
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("starts");
        let stopped = BufReader::new(keeper.stdout.take().expect("it was piped"));
        let server = Self {
            dir,
            keeper,
            stopped,
        };
        server.wait_until_ready();
        Some(server)
    }

    /// Returns the address of its database.
    pub fn url(&self) -> String {
        format!(
            "postgres://toolgate@localhost/postgres?host={}",
            self.dir.display()
        )
    }

    /// Stops the server with a signal, such as `INT` or `KILL`, and starts it again.
    ///
    /// # Panics
    ///
    /// Panics if it does not start again.
    pub fn restart(&mut self, signal: &str) {
        self.tell(signal);
        let mut line = String::new();
        self.stopped.read_line(&mut line).expect("is stopped");
        self.tell("start");
        self.wait_until_ready();
    }

    /// Stops all processes of the server where they are, until [`resume`](Self::resume).
    ///
    /// # Panics
    ///
    /// Panics if the server does not run.
    pub fn pause(&self) {
        self.send_signal(Signal::STOP);
    }

    /// Lets a paused server continue.
    ///
    /// # Panics
    ///
    /// Panics if the server does not run.
    pub fn resume(&self) {
        self.send_signal(Signal::CONT);
    }

    fn send_signal(&self, signal: Signal) {
        let file = fs::read_to_string(self.dir.join("data/postmaster.pid")).expect("it runs");
        let main: i32 = file.lines().next().expect("its id").parse().expect("an id");
        let main = Pid::from_raw(main).expect("an id");
        // The main process first: it starts no others any more.
        kill_process(main, signal).expect("it runs");
        for child in child_processes(main) {
            // One that has ended by now needs no signal.
            let _ = kill_process(child, signal);
        }
    }

    fn tell(&mut self, line: &str) {
        let input = self.keeper.stdin.as_mut().expect("it was piped");
        writeln!(input, "{line}").expect("is read");
    }

    /// Waits until the server reports in its own file that it accepts connections.
    fn wait_until_ready(&self) {
        let start = Instant::now();
        let file = self.dir.join("data/postmaster.pid");
        let is_ready = |text: String| {
            text.lines()
                .nth(7)
                .is_some_and(|line| line.trim() == "ready")
        };
        while !fs::read_to_string(&file).is_ok_and(is_ready) {
            let log = || fs::read_to_string(self.dir.join("log"));
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // A paused process could not end.
        if self.dir.join("data/postmaster.pid").exists() {
            self.resume();
        }
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Returns the directory of the programs: Debian's newest version, or one of the PATH.
fn find_programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    directories.sort();
    directories.reverse();
    directories.extend(std::env::split_paths(&path));
    let has_both = |bin: &Path| bin.join("initdb").is_file() && bin.join("postgres").is_file();
    directories.into_iter().find(|bin| has_both(bin))
}

/// Returns the processes that a process has started.
fn child_processes(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().to_string();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let children = all.filter_map(|entry| {
        let id: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name of the program, in parentheses, may contain spaces.
        let (_, after_name) = stat.rsplit_once(") ")?;
        let is_child = after_name.split(' ').nth(1) == Some(&parent);
        is_child.then(|| Pid::from_raw(id)).flatten()
    });
    children.collect()
}

/// Returns the ids of a user and its group.
fn user_ids(name: &str) -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

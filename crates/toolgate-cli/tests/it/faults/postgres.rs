//! A PostgreSQL server that goes away or stops to answer under the program. A proxy stands between
//! them, so that other users of the server notice nothing.

use std::{
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{exit_code, finish, send_signal, start, wait_until};
use crate::run::world::{RunWorld, to_text};

const WORK: &str = r#"
    [[reply]]
    text = "I look first."
    calls = [{ tool = "run_shell", arguments = { command = "echo up > up.txt; while [ ! -e go.txt ]; do sleep 0.01; done" } }]
    [[reply]]
    repeat = "always"
    text = "That is all."
"#;

const OPEN: u8 = 0;
const PAUSED: u8 = 1;
const AWAY: u8 = 2;

/// A socket that forwards to the server while it is open.
struct Proxy {
    dir: tempfile::TempDir,
    state: Arc<AtomicU8>,
}

impl Proxy {
    fn start(server: PathBuf) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).expect("binds");
        let state = Arc::new(AtomicU8::new(OPEN));
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.load(Ordering::SeqCst) == AWAY {
                    continue;
                }
                let Ok(server) = UnixStream::connect(&server) else {
                    continue;
                };
                forward(&client, &server, &shared);
                forward(&server, &client, &shared);
            }
        });
        Self { dir, state }
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
    }
}

fn forward(from: &UnixStream, to: &UnixStream, state: &Arc<AtomicU8>) {
    let mut from = from.try_clone().expect("a socket");
    let mut to = to.try_clone().expect("a socket");
    let state = state.clone();
    thread::spawn(move || {
        let mut bytes = [0; 8192];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            while state.load(Ordering::SeqCst) == PAUSED {
                thread::sleep(Duration::from_millis(5));
            }
            if state.load(Ordering::SeqCst) == AWAY || to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = from.shutdown(std::net::Shutdown::Both);
    });
}

/// A database of its own on the server for tests.
struct FaultDatabase {
    server: String,
    name: String,
}

impl FaultDatabase {
    /// Creates the database, if there is a server for tests.
    fn create() -> Option<Self> {
        let server = std::env::var("TOOLGATE_TEST_POSTGRES").ok()?;
        let id = toolgate::value::SessionId::from_source(&toolgate::value::TimeOrderedIds);
        let name = format!("fault_{id}").replace('-', "_");
        let database = Self { server, name };
        database.execute(format!("create database {}", database.name));
        Some(database)
    }

    /// Returns the socket of the server.
    fn socket(&self) -> PathBuf {
        let (_, host) = self.server.split_once("host=").expect("a socket");
        Path::new(host.split('&').next().expect("a path")).join(".s.PGSQL.5432")
    }

    fn execute(&self, statement: String) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut connection = PgConnection::connect(&self.server).await.expect("connects");
            let executed = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection);
            executed.await.expect("is executed");
        });
    }
}

impl Drop for FaultDatabase {
    fn drop(&mut self) {
        self.execute(format!("drop database {} with (force)", self.name));
    }
}

/// Starts a run on a server behind a proxy, and waits until its command runs.
fn start_run(world: &mut RunWorld, proxy: &Proxy, database: &FaultDatabase) -> std::process::Child {
    let address = format!(
        "postgres://toolgate@localhost/{}?host={}",
        database.name,
        proxy.dir.path().display()
    );
    world.set_variable("TOOLGATE_DB", &address);
    let child = start(&mut world.command(&["x", "--approve", "yes"]));
    wait_until("the command runs", || world.work().join("up.txt").exists());
    child
}

#[test]
fn a_server_that_stays_away_ends_the_run_with_its_own_message() {
    let Some(database) = FaultDatabase::create() else {
        return;
    };
    let proxy = Proxy::start(database.socket());
    let mut world = RunWorld::new(WORK);
    world.set_variable("TOOLGATE_DB_PATIENCE", "2s");
    let child = start_run(&mut world, &proxy, &database);
    proxy.set(AWAY);
    world.write("go.txt", "");
    let output = finish(child);
    let stderr = to_text(&output.stderr);
    assert_eq!(exit_code(output.status), 10, "{stderr}");
    assert!(
        stderr.contains("hint:") && !stderr.contains("panicked"),
        "{stderr}"
    );
    proxy.set(OPEN);
    let output = world.run_plain(&["--resume", "--approve", "yes"]);
    assert_eq!(exit_code(output.status), 0, "{}", to_text(&output.stderr));
}

#[test]
fn a_server_that_does_not_answer_does_not_keep_the_program_from_ending() {
    let Some(database) = FaultDatabase::create() else {
        return;
    };
    let proxy = Proxy::start(database.socket());
    let mut world = RunWorld::new(WORK);
    let child = start_run(&mut world, &proxy, &database);
    proxy.set(PAUSED);
    // Two signals of one kind may arrive as one.
    send_signal(&child, Signal::INT);
    send_signal(&child, Signal::TERM);
    let output = finish(child);
    let code = exit_code(output.status);
    assert!(
        matches!(code, 130 | 143),
        "{code}: {}",
        to_text(&output.stderr)
    );
    proxy.set(AWAY);
    proxy.set(OPEN);
    let output = world.run_plain(&["--resume", "--approve", "yes"]);
    assert_eq!(exit_code(output.status), 0, "{}", to_text(&output.stderr));
}

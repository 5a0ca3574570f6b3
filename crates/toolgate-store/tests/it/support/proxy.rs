//! A proxy in front of a PostgreSQL server that loses the answer to a commit, or is away.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    task::JoinSet,
};

/// What happens to the next commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitLoss {
    /// It never reaches the server.
    Query,
    /// The server performs it, and its answer is lost.
    Answer,
    /// The connection is closed as soon as it was sent; the server may still work on it.
    Closed,
}

/// A proxy that runs as long as this value exists.
pub(crate) struct LossyProxy {
    port: u16,
    database: String,
    next: Arc<Mutex<Option<CommitLoss>>>,
    lost: Arc<AtomicUsize>,
    server: UpstreamServer,
    connections: JoinSet<()>,
}

/// The server behind a proxy.
#[derive(Clone)]
enum UpstreamServer {
    Socket(PathBuf),
    Host(String),
}

impl LossyProxy {
    /// Starts a proxy in front of the server of `url`.
    pub(crate) async fn start(url: &str) -> Self {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (server, database) = address.rsplit_once('/').expect("a database");
        let server = match query.strip_prefix("host=") {
            Some(directory) => {
                UpstreamServer::Socket(PathBuf::from(directory).join(".s.PGSQL.5432"))
            }
            None => {
                let host = server.rsplit_once(['@', '/']).expect("a host").1;
                UpstreamServer::Host(if host.contains(':') {
                    host.to_owned()
                } else {
                    format!("{host}:5432")
                })
            }
        };
        let mut proxy = Self {
            port: 0,
            database: database.to_owned(),
            next: Arc::default(),
            lost: Arc::default(),
            server,
            connections: JoinSet::new(),
        };
        proxy.listen().await;
        proxy
    }

    /// Returns the address of the database through this proxy.
    pub(crate) fn url(&self) -> String {
        let Self { port, database, .. } = self;
        format!("postgres://toolgate@127.0.0.1:{port}/{database}?sslmode=disable")
    }

    /// Loses the next commit.
    pub(crate) fn lose_next_commit(&self, loss: CommitLoss) {
        *self.next.lock().expect("no panic") = Some(loss);
    }

    /// Returns the number of commits that were lost.
    pub(crate) fn lost_count(&self) -> usize {
        self.lost.load(Ordering::SeqCst)
    }

    /// Ends all connections and accepts no new ones.
    pub(crate) async fn go_away(&mut self) {
        self.connections.shutdown().await;
    }

    /// Accepts connections again, at the same address.
    pub(crate) async fn come_back(&mut self) {
        self.listen().await;
    }

    async fn listen(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port))
            .await
            .expect("the port is free");
        self.port = listener.local_addr().expect("has an address").port();
        let server = self.server.clone();
        let next = self.next.clone();
        let lost = self.lost.clone();
        self.connections.spawn(async move {
            // Dropped with this task, which ends them.
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let next = next.clone();
                let lost = lost.clone();
                let server = server.clone();
                open.spawn(async move {
                    match server {
                        UpstreamServer::Socket(path) => {
                            let server = UnixStream::connect(path).await.expect("it runs");
                            forward(client, server, &next, &lost).await;
                        }
                        UpstreamServer::Host(host) => {
                            let server = TcpStream::connect(host).await.expect("it runs");
                            forward(client, server, &next, &lost).await;
                        }
                    }
                });
            }
        });
    }
}

/// Forwards bytes in both directions until one side closes, or a commit is lost.
async fn forward(
    mut client: TcpStream,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    next: &Mutex<Option<CommitLoss>>,
    lost: &AtomicUsize,
) {
    let mut asked = vec![0; 64 * 1024];
    let mut answered = vec![0; 64 * 1024];
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Some(count) = read.ok().filter(|count| *count > 0) else { return };
                let bytes = &asked[..count];
                let is_commit = bytes.windows(6).any(|text| text == b"COMMIT");
                let loss = if is_commit { next.lock().expect("no panic").take() } else { None };
                if let Some(loss) = loss {
                    lost.fetch_add(1, Ordering::SeqCst);
                    if loss != CommitLoss::Query {
                        server.write_all(bytes).await.expect("is sent");
                    }
                    if loss == CommitLoss::Answer {
                        let answer = server.read(&mut answered).await;
                        assert!(answer.expect("is read") > 0);
                    }
                    return;
                }
                if server.write_all(bytes).await.is_err() { return }
            }
            read = server.read(&mut answered) => {
                let Some(count) = read.ok().filter(|count| *count > 0) else { return };
                if client.write_all(&answered[..count]).await.is_err() { return }
            }
        }
    }
}

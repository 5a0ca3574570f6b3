//! Tests of links that are swapped in between check and use.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use toolgate_core::Status;

use crate::files::common::TestSpace;

/// Swaps two entries as fast as it can, until it is dropped.
struct SwapThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl SwapThread {
    /// Starts to swap `a` and `b`. Before each swap `mend` restores what the tools have changed.
    fn start(a: PathBuf, b: PathBuf, mend: impl Fn() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::Relaxed) {
                mend();
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).expect("both exist");
                swaps += 1;
            }
            swaps
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    fn stop_and_count(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .expect("running")
            .join()
            .expect("no panic")
    }
}

impl Drop for SwapThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

const ITERATIONS: usize = 1_500;

#[tokio::test]
async fn a_directory_that_turns_into_a_link_never_leads_outside() {
    let space = TestSpace::new();
    space.write_file("dir/secret", "inside\n");
    symlink("..", space.path("other")).expect("linked");
    fs::create_dir(space.outside_path("only")).expect("created");
    let swapping = SwapThread::start(space.path("dir"), space.path("other"), || ());
    let mut done = 0;
    let mut refused = 0;
    for round in 0..ITERATIONS {
        let read = space
            .run("read_file", json!({ "path": "dir/secret" }))
            .await;
        assert!(
            !read.model_text().contains("hunter2"),
            "{}",
            read.model_text()
        );
        let content = format!("round {round}\n");
        let write = space
            .run(
                "write_file",
                json!({ "path": "dir/secret", "content": content }),
            )
            .await;
        let made = space
            .run(
                "write_file",
                json!({ "path": format!("dir/new{}", round % 7), "content": "x" }),
            )
            .await;
        let found = space
            .run(
                "search_text",
                json!({ "path": "dir", "pattern": "hunter2" }),
            )
            .await;
        assert!(
            !found.model_text().contains(":hunter2"),
            "{}",
            found.model_text()
        );
        for settled in [read, write, made] {
            if settled.status == Status::Ok {
                done += 1
            } else {
                refused += 1
            }
        }
    }
    let swaps = swapping.stop_and_count();
    assert_eq!(
        fs::read_to_string(space.outside_path("secret")).expect("it exists"),
        "hunter2\n"
    );
    let mut outside: Vec<_> = fs::read_dir(space.outside_path(""))
        .expect("readable")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    outside.sort();
    assert_eq!(
        outside,
        ["only", "secret", "work"],
        "nothing was created outside"
    );
    assert!(
        done > 0 && refused > 0 && swaps > 0,
        "{done} succeeded, {refused} failed, {swaps} swaps"
    );
}

#[tokio::test]
async fn a_file_that_turns_into_a_link_is_never_written_or_read_through_it() {
    let space = TestSpace::new();
    space.write_file("a.txt", "inside\n");
    symlink("../secret", space.path("link")).expect("linked");
    let a = space.path("a.txt");
    let link = space.path("link");
    let fresh = space.path("fresh");
    let swapping = SwapThread::start(a.clone(), link.clone(), move || {
        // A write at the right moment replaces the link by its file.
        if !a.is_symlink() && !link.is_symlink() {
            symlink("../secret", &fresh).expect("linked");
            fs::rename(&fresh, &link).expect("renamed");
        }
    });
    let mut done = 0;
    let mut refused = 0;
    for round in 0..ITERATIONS {
        let read = space.run("read_file", json!({ "path": "a.txt" })).await;
        assert!(
            !read.model_text().contains("hunter2"),
            "{}",
            read.model_text()
        );
        let edit = json!({ "path": "a.txt", "edits": [{ "old": "hunter2", "new": "x" }] });
        assert_ne!(space.run("edit_file", edit).await.status, Status::Ok);
        let settled = match round % 4 {
            0 => {
                space
                    .run(
                        "write_file",
                        json!({ "path": "a.txt", "content": format!("round {round}\n") }),
                    )
                    .await
            }
            _ => read,
        };
        if settled.status == Status::Ok {
            done += 1
        } else {
            refused += 1
        }
    }
    let swaps = swapping.stop_and_count();
    assert_eq!(
        fs::read_to_string(space.outside_path("secret")).expect("it exists"),
        "hunter2\n"
    );
    assert!(
        done > 0 && refused > 0 && swaps > 0,
        "{done} succeeded, {refused} failed, {swaps} swaps"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_of_one_file_leave_one_whole_version() {
    let space = Arc::new(TestSpace::new());
    space.write_file("a.txt", "0\n".repeat(1000));
    let writers = (1..=8).map(|n| {
        let space = space.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                let content = format!("{n}\n").repeat(1000);
                space
                    .run_ok("write_file", json!({ "path": "a.txt", "content": content }))
                    .await;
                let text = space.read_text("a.txt");
                assert!(
                    text.len() == 2000
                        && text.lines().all(|line| Some(line) == text.lines().next()),
                    "torn"
                );
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("no panic");
    }
    assert_eq!(space.list_names(), ["a.txt"]);
}

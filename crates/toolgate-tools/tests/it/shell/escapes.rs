//! Tests that no attack from inside the sandbox succeeds, as the current user and as the user
//! `nobody`.

use std::{
    collections::BTreeSet,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::{SocketAddr, UnixListener},
        },
    },
    process::Command,
};

use serde_json::Value;
use toolgate_tools::{
    KernelFeatures, NamespaceSupport, NetworkAccess, Sandbox, SandboxMode, ShellOptions,
};

use crate::shell::{
    attacks::{ATTACKS, HARMLESS, is_silent, read_contents},
    host::{this_program, with_this_program},
    support::{ShellBench, kernels},
};

/// Targets outside: listening sockets of every kind.
struct OutsideListeners {
    tcp: TcpListener,
    udp: UdpSocket,
    _unix: UnixListener,
    _name: UnixListener,
    name: String,
}

/// Runs all attacks from inside, and returns the names of those that succeeded.
async fn run_attacks(bench: &ShellBench, harmless: bool) -> BTreeSet<String> {
    let name = format!(
        "toolgate-test-{}-{}",
        std::process::id(),
        bench.workspace_dir().display()
    );
    let targets = OutsideListeners {
        tcp: TcpListener::bind("127.0.0.1:0").expect("bound"),
        udp: UdpSocket::bind("127.0.0.1:0").expect("bound"),
        _unix: UnixListener::bind(bench.workspace_dir().join("daemon")).expect("bound"),
        _name: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("fits"))
            .expect("bound"),
        name,
    };
    let report = bench.run(&attack_command(bench, &targets, harmless)).await;
    let output = report["output"].as_str().expect("text");
    let tried = output
        .lines()
        .filter(|line| line.starts_with("held: ") || line.starts_with("BROKEN: "))
        .count();
    let expected = if harmless {
        HARMLESS.len()
    } else {
        ATTACKS.len()
    };
    assert_eq!(tried, expected, "all were tried: {output}");
    let names = output
        .lines()
        .filter_map(|line| line.strip_prefix("BROKEN: "))
        .map(str::to_owned)
        .collect();
    println!("{output}");
    if report["sandbox"]["network"] == "off" {
        assert!(is_silent(&targets.udp));
    }
    names
}

fn attack_command(bench: &ShellBench, targets: &OutsideListeners, harmless: bool) -> String {
    let harmless = if harmless { "ATTACK_HARMLESS=1" } else { "" };
    let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("bound").port();
    format!(
        "{harmless} ATTACK_GUARD=$PPID ATTACK_OUTSIDE={} ATTACK_PID={} ATTACK_TCP={} ATTACK_UDP={} ATTACK_UNIX={} ATTACK_NAME={} {} --exact \
         shell::attacks::tries_every_way_out --nocapture </dev/null",
        bench.outside_dir().display(),
        std::process::id(),
        port(targets.tcp.local_addr()),
        port(targets.udp.local_addr()),
        bench.workspace_dir().join("daemon").display(),
        targets.name,
        this_program().display(),
    )
}

/// Runs all attacks, checks that nothing outside has changed, and returns those that succeeded.
async fn attack_and_check(kernel: KernelFeatures, options: ShellOptions) -> BTreeSet<String> {
    let bench = ShellBench::with_kernel(kernel, options);
    let secret = bench.outside_dir().join("secret");
    let before = std::fs::metadata(&secret).expect("it exists");
    let broken = run_attacks(&bench, false).await;
    assert_eq!(read_contents(&secret), "CANARY-OUTSIDE");
    assert_eq!(
        std::fs::read_dir(bench.outside_dir())
            .expect("it exists")
            .count(),
        1
    );
    if !broken.iter().any(|name| name.starts_with("change the")) {
        let after = std::fs::metadata(&secret).expect("it exists");
        assert_eq!(
            (before.mode(), before.ctime_nsec()),
            (after.mode(), after.ctime_nsec())
        );
    }
    broken
}

#[tokio::test]
async fn no_way_out_is_open_with_namespaces_or_without() {
    for kernel in kernels() {
        let broken = attack_and_check(kernel.clone(), with_this_program()).await;
        assert_eq!(broken, BTreeSet::new(), "{kernel:?}");
    }
}

/// Shows that the attacks would succeed without a sandbox.
#[tokio::test]
async fn without_a_sandbox_the_same_attacks_succeed() {
    let bench = ShellBench::new(ShellOptions {
        sandbox: SandboxMode::Off,
        ..with_this_program()
    });
    let broken = run_attacks(&bench, true).await;
    let held: Vec<_> = HARMLESS
        .iter()
        .filter(|name| !broken.contains(**name))
        .collect();
    assert_eq!(held, Vec::<&&str>::new());
}

#[tokio::test]
async fn no_file_of_ours_is_open_in_a_command() {
    for kernel in kernels() {
        // The fourth is the directory that `ls` has open.
        let report = ShellBench::with_kernel(kernel, ShellOptions::default())
            .run("ls /proc/self/fd")
            .await;
        assert_eq!(report["output"], "0\n1\n2\n3\n");
    }
}

#[tokio::test]
async fn best_effort_on_an_older_kernel_blocks_what_it_can() {
    let mut kernel = Sandbox::check().clone();
    kernel.namespaces = NamespaceSupport::None;
    kernel.landlock = 3;
    let options = ShellOptions {
        sandbox: SandboxMode::BestEffort,
        ..with_this_program()
    };
    let broken = attack_and_check(kernel, options).await;
    let open: BTreeSet<String> = [
        "signal the tool",
        "change the mode of a file outside",
        "change the owner of a file outside",
        "change the times of a file outside",
        "change the attributes of a file outside",
        "let others write a program of the toolchain",
    ]
    .map(str::to_owned)
    .into();
    assert!(
        broken.is_subset(&open) && broken.contains("signal the tool"),
        "{broken:?}"
    );
}

#[tokio::test]
async fn a_private_network_reaches_no_other_process() {
    let options = ShellOptions {
        network: NetworkAccess::Loopback,
        ..with_this_program()
    };
    let broken = attack_and_check(Sandbox::check().clone(), options).await;
    // It may listen and send, but only on its private network.
    let own: BTreeSet<String> = ["listen by TCP", "send by UDP"].map(str::to_owned).into();
    assert_eq!(broken, own);
}

#[tokio::test]
async fn with_the_network_on_only_tcp_and_udp_are_open() {
    let options = ShellOptions {
        network: NetworkAccess::On,
        ..with_this_program()
    };
    for kernel in kernels() {
        let broken = attack_and_check(kernel, options.clone()).await;
        let open: BTreeSet<String> = ["connect by TCP", "listen by TCP", "send by UDP"]
            .map(str::to_owned)
            .into();
        assert_eq!(broken, open);
    }
}

#[tokio::test]
async fn unix_sockets_are_open_only_if_configured() {
    let options = ShellOptions {
        unix_sockets: true,
        ..with_this_program()
    };
    for kernel in kernels() {
        let broken = attack_and_check(kernel, options.clone()).await;
        let open = [
            "connect to a UNIX socket by path",
            "listen on a UNIX socket",
            "send datagrams from a pair of sockets",
        ];
        assert_eq!(
            broken,
            open.map(str::to_owned).into(),
            "an abstract one stays closed"
        );
    }
}

#[tokio::test]
async fn only_configured_paths_can_be_read_or_written() {
    for kernel in kernels() {
        let extra = tempfile::tempdir().expect("a directory");
        std::fs::write(extra.path().join("data"), "shared").expect("written");
        for (write, expected) in [(false, "shared\nrefused\n"), (true, "shared\nwritten\n")] {
            let paths = vec![extra.path().to_owned()];
            let (read, write) = if write {
                (vec![], paths)
            } else {
                (paths, vec![])
            };
            let bench = ShellBench::with_kernel(
                kernel.clone(),
                ShellOptions {
                    read,
                    write,
                    ..ShellOptions::default()
                },
            );
            let dir = extra.path().display();
            let command = format!(
                "cat {dir}/data; echo; if (: > {dir}/new) 2>/dev/null; then echo written; else echo refused; fi"
            );
            assert_eq!(bench.run(&command).await["output"], expected);
        }
    }
}

/// Runs the same tests without privileges, if the current user is root.
#[test]
fn as_nobody_it_all_holds_as_well() {
    if !rustix::process::geteuid().is_root()
        || Command::new("setpriv").arg("--version").output().is_err()
    {
        return;
    }
    // A directory from which the user `nobody` may run this program.
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))
        .expect("our directory");
    let program = dir.path().join("shell");
    std::fs::copy(this_program(), &program).expect("copied");
    let mut nobody = Command::new("setpriv");
    nobody
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program);
    nobody
        .args(["--skip", "as_nobody_it_all_holds_as_well"])
        .current_dir("/")
        .env_remove("CARGO_HOME");
    let output = nobody
        .env("HOME", "/nonexistent")
        .env("PATH", "/usr/bin:/bin")
        .output()
        .expect("run");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("no_way_out_is_open_with_namespaces_or_without ... ok"),
        "{text}"
    );
}

#[tokio::test]
async fn the_report_names_the_enforced_restrictions() {
    for kernel in kernels() {
        let report = ShellBench::with_kernel(kernel.clone(), ShellOptions::default())
            .run("true")
            .await;
        let said: &Value = &report["sandbox"];
        assert_eq!(said["mode"], "required");
        assert_eq!(said["landlock"], kernel.landlock);
        assert_eq!(
            (&said["seccomp"], &said["network"]),
            (&Value::Bool(true), &Value::from("off"))
        );
        let apart = kernel.namespaces != NamespaceSupport::None;
        assert_eq!(said["namespaces"] != "none", apart);
    }
}

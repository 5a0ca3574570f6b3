//! Nothing inside the sandbox reaches what is outside: as whoever runs the tests, and as nobody.

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
use toolgate_tools::{Kernel, Namespaces, Network, Sandbox, SandboxMode, ShellOptions};

use crate::{
    attacks::{ATTACKS, HARMLESS, contents, is_silent},
    host::{this_program, with_this_program},
    support::{Bench, kernels},
};

/// Targets outside: sockets of every kind that somebody listens on.
struct Targets {
    tcp: TcpListener,
    udp: UdpSocket,
    _unix: UnixListener,
    _name: UnixListener,
    name: String,
}

/// Runs all attacks from inside, and returns the names of those that succeeded.
async fn broken(bench: &Bench, harmless: bool) -> BTreeSet<String> {
    let name = format!(
        "toolgate-test-{}-{}",
        std::process::id(),
        bench.work().display()
    );
    let targets = Targets {
        tcp: TcpListener::bind("127.0.0.1:0").expect("bound"),
        udp: UdpSocket::bind("127.0.0.1:0").expect("bound"),
        _unix: UnixListener::bind(bench.work().join("daemon")).expect("bound"),
        _name: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).expect("fits"))
            .expect("bound"),
        name,
    };
    let report = bench.run(&attack(bench, &targets, harmless)).await;
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

fn attack(bench: &Bench, targets: &Targets, harmless: bool) -> String {
    let harmless = if harmless { "ATTACK_HARMLESS=1" } else { "" };
    let port = |address: std::io::Result<std::net::SocketAddr>| address.expect("bound").port();
    format!(
        "{harmless} ATTACK_GUARD=$PPID ATTACK_OUTSIDE={} ATTACK_PID={} ATTACK_TCP={} ATTACK_UDP={} ATTACK_UNIX={} ATTACK_NAME={} {} --exact \
         attacks::tries_every_way_out --nocapture </dev/null",
        bench.outside().display(),
        std::process::id(),
        port(targets.tcp.local_addr()),
        port(targets.udp.local_addr()),
        bench.work().join("daemon").display(),
        targets.name,
        this_program().display(),
    )
}

/// Attacks everything, and sees for itself that nothing outside has changed.
async fn attacked(kernel: Kernel, options: ShellOptions) -> BTreeSet<String> {
    let bench = Bench::on(kernel, options);
    let secret = bench.outside().join("secret");
    let before = std::fs::metadata(&secret).expect("there");
    let broken = broken(&bench, false).await;
    assert_eq!(contents(&secret), "CANARY-OUTSIDE");
    assert_eq!(
        std::fs::read_dir(bench.outside()).expect("there").count(),
        1
    );
    if !broken.iter().any(|name| name.starts_with("change the")) {
        let after = std::fs::metadata(&secret).expect("there");
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
        let broken = attacked(kernel.clone(), with_this_program()).await;
        assert_eq!(broken, BTreeSet::new(), "{kernel:?}");
    }
}

/// What shows that the attacks would succeed if nothing held them.
#[tokio::test]
async fn without_a_sandbox_the_same_attacks_succeed() {
    let bench = Bench::new(ShellOptions {
        sandbox: SandboxMode::Off,
        ..with_this_program()
    });
    let broken = broken(&bench, true).await;
    let held: Vec<_> = HARMLESS
        .iter()
        .filter(|name| !broken.contains(**name))
        .collect();
    assert_eq!(held, Vec::<&&str>::new());
}

#[tokio::test]
async fn no_file_of_ours_is_open_in_a_command() {
    for kernel in kernels() {
        // The fourth is the directory that is listed.
        let report = Bench::on(kernel, ShellOptions::default())
            .run("ls /proc/self/fd")
            .await;
        assert_eq!(report["output"], "0\n1\n2\n3\n");
    }
}

#[tokio::test]
async fn a_kernel_with_less_holds_what_it_can_and_only_if_asked() {
    let mut kernel = Sandbox::check().clone();
    (kernel.namespaces, kernel.landlock) = (Namespaces::None, 3);
    let options = ShellOptions {
        sandbox: SandboxMode::BestEffort,
        ..with_this_program()
    };
    let broken = attacked(kernel, options).await;
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
async fn a_network_of_its_own_reaches_nobody_else() {
    let options = ShellOptions {
        network: Network::Loopback,
        ..with_this_program()
    };
    let broken = attacked(Sandbox::check().clone(), options).await;
    // It may listen and send, but only to itself.
    let own: BTreeSet<String> = ["listen by TCP", "send by UDP"].map(str::to_owned).into();
    assert_eq!(broken, own);
}

#[tokio::test]
async fn with_the_network_on_only_tcp_and_udp_are_open() {
    let options = ShellOptions {
        network: Network::On,
        ..with_this_program()
    };
    for kernel in kernels() {
        let broken = attacked(kernel, options.clone()).await;
        let open: BTreeSet<String> = ["connect by TCP", "listen by TCP", "send by UDP"]
            .map(str::to_owned)
            .into();
        assert_eq!(broken, open);
    }
}

#[tokio::test]
async fn unix_sockets_are_open_only_if_asked_for() {
    let options = ShellOptions {
        unix_sockets: true,
        ..with_this_program()
    };
    for kernel in kernels() {
        let broken = attacked(kernel, options.clone()).await;
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
async fn what_is_configured_can_be_read_or_written_and_no_more() {
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
            let bench = Bench::on(
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

/// The same tests once more without any privilege, if there is one to give up.
#[test]
fn as_nobody_it_all_holds_as_well() {
    if !rustix::process::geteuid().is_root()
        || Command::new("setpriv").arg("--version").output().is_err()
    {
        return;
    }
    // A place from which nobody may run this program.
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
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
async fn what_was_enforced_is_said() {
    for kernel in kernels() {
        let report = Bench::on(kernel.clone(), ShellOptions::default())
            .run("true")
            .await;
        let said: &Value = &report["sandbox"];
        assert_eq!(said["mode"], "required");
        assert_eq!(said["landlock"], kernel.landlock);
        assert_eq!(
            (&said["seccomp"], &said["network"]),
            (&Value::Bool(true), &Value::from("off"))
        );
        let apart = kernel.namespaces != Namespaces::None;
        assert_eq!(said["namespaces"] != "none", apart);
    }
}

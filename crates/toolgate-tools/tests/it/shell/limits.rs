//! Tests of the resource limits of commands.

use serde_json::json;
use toolgate_tools::{NamespaceSupport, Sandbox, ShellOptions};

use crate::shell::support::{ShellBench, kernels};

#[tokio::test]
async fn a_gigabyte_of_output_is_counted_but_not_stored() {
    let bench = ShellBench::new(ShellOptions {
        output_bytes: 1000,
        ..ShellOptions::default()
    });
    let report = bench
        .run("echo first; head -c 1073741824 /dev/zero | tr '\\0' x; echo; echo last")
        .await;
    let output = report["output"].as_str().expect("text");
    assert!(
        output.starts_with("first\nxxx") && output.ends_with("xxx\nlast\n"),
        "{output}"
    );
    assert!(output.len() < 1100, "{}", output.len());
    let total = (1_u64 << 30) + "first\n\nlast\n".len() as u64;
    assert_eq!(report["output_bytes"], total);
    assert_eq!(report["omitted_bytes"], total - 1000);
}

#[tokio::test]
async fn a_file_grows_to_its_limit_and_no_further() {
    for kernel in kernels() {
        let bench = ShellBench::with_kernel(
            kernel,
            ShellOptions {
                file_bytes: 1 << 20,
                ..ShellOptions::default()
            },
        );
        let report = bench
            .run("ulimit -f unlimited 2>/dev/null; head -c 5000000 /dev/zero > big; echo $?")
            .await;
        assert_ne!(report["output"], "0\n");
        assert_eq!(
            std::fs::metadata(bench.workspace_dir().join("big"))
                .expect("it exists")
                .len(),
            1 << 20
        );
    }
}

#[tokio::test]
async fn the_temporary_directory_is_private_limited_and_deleted() {
    let bench = ShellBench::new(ShellOptions {
        temp_bytes: 1 << 20,
        ..ShellOptions::default()
    });
    if Sandbox::check().namespaces == NamespaceSupport::None {
        return;
    }
    let fill = "for i in 1 2 3 4 5; do head -c 500000 /dev/zero > $TMPDIR/f$i || echo full; done 2>/dev/null; ls $TMPDIR";
    let report = bench.run(fill).await;
    assert!(
        report["output"]
            .as_str()
            .expect("text")
            .starts_with("full\nfull\nfull\n"),
        "{report}"
    );
    let report = bench
        .run("ls $TMPDIR; echo $HOME; touch $HOME/x && ls -a $HOME")
        .await;
    assert!(
        !report["output"].as_str().expect("text").contains("f1"),
        "{report}"
    );
    assert_eq!(report["exit_code"], 0);
}

#[tokio::test]
async fn without_namespaces_the_temporary_directory_is_deleted_too() {
    let [_, apart] = kernels();
    let report = ShellBench::with_kernel(apart, ShellOptions::default())
        .run("echo x > $TMPDIR/y; echo $TMPDIR")
        .await;
    let temp = report["output"].as_str().expect("text").trim();
    assert!(
        temp.contains("toolgate-") && !std::path::Path::new(temp).exists(),
        "{temp}"
    );
}

#[tokio::test]
async fn the_number_of_processes_is_limited() {
    if Sandbox::check().namespaces == NamespaceSupport::None {
        return;
    }
    let bench = ShellBench::new(ShellOptions {
        processes: 320,
        ..ShellOptions::default()
    });
    let report = bench
        .run("for i in $(seq 1000); do sleep 600 & done; echo all")
        .await;
    let output = report["output"].as_str().expect("text");
    assert!(
        !output.contains("all") && output.to_lowercase().contains("fork"),
        "{report}"
    );
    let left = report["left_running"].as_u64().expect("counted");
    assert!((1..320).contains(&left), "{report}");
}

#[tokio::test]
async fn memory_is_limited_if_configured() {
    for kernel in kernels() {
        let bench = ShellBench::with_kernel(
            kernel,
            ShellOptions {
                memory_bytes: Some(64 << 20),
                ..ShellOptions::default()
            },
        );
        let report = bench
            .run("head -c 300000000 /dev/zero | tail -c 250000000 | wc -c")
            .await;
        assert_ne!(report["output"].as_str().expect("text").trim(), "250000000");
    }
}

#[tokio::test]
async fn no_core_is_dumped() {
    for kernel in kernels() {
        let report = ShellBench::with_kernel(kernel, ShellOptions::default())
            .run("ulimit -c; ulimit -Hc")
            .await;
        assert_eq!(report["output"], json!("0\n0\n"));
    }
}

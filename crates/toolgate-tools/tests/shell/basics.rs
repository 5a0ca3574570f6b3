//! What a model gets back from an ordinary command.

use serde_json::json;
use toolgate_tools::ShellOptions;

use crate::support::Bench;

#[tokio::test]
async fn a_command_is_run_in_the_workspace_and_its_output_comes_back() {
    let bench = Bench::new(ShellOptions::default());
    let report = bench.run("pwd; echo err >&2; echo $((6*7)); echo made > file").await;
    let work = bench.work().canonicalize().expect("there");
    assert_eq!(report["output"], format!("{}\nerr\n42\n", work.display()), "{report}");
    assert_eq!(report["exit_code"], 0);
    assert_eq!(std::fs::read_to_string(bench.work().join("file")).expect("written"), "made\n");
    println!("{report:#}");
}

#[tokio::test]
async fn a_command_that_fails_is_a_result_with_its_exit_code() {
    let bench = Bench::new(ShellOptions::default());
    let settled = bench.call(json!({ "command": "echo no; exit 3" })).await;
    assert_eq!(settled.value.as_value()["exit_code"], 3);
    assert_eq!(settled.model_text(), "no\n[exit code 3]");
}

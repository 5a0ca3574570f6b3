//! The project and the script of `toolgate demo`.

use std::{fs, io, path::Path};

use toolgate::{
    AnyLayer, Band, Call, Layer, Next, Outcome,
    models::{Scripted, ScenarioError},
};

/// What the person asks for.
pub(crate) const TASK: &str = "The tests of this project fail. Find out why and mend it.";

/// The files of the project, except those that hold a secret.
const FILES: [(&str, &str); 7] = [
    ("README.md", include_str!("project/README.md")),
    ("invoice.sh", include_str!("project/invoice.sh")),
    ("test.sh", include_str!("project/test.sh")),
    ("toolgate.toml", include_str!("project/toolgate.toml")),
    ("orders/single.csv", include_str!("project/orders/single.csv")),
    ("orders/several.csv", include_str!("project/orders/several.csv")),
    ("orders/none.csv", include_str!("project/orders/none.csv")),
];

/// The tool in the middle of which the doomed process dies.
const FATAL: &str = "edit_file";

/// Writes the project into an empty directory, with a secret that exists nowhere else.
pub(crate) fn write_project(root: &Path, secret: &str) -> io::Result<()> {
    fs::create_dir_all(root.join("orders"))?;
    for (path, text) in FILES {
        fs::write(root.join(path), text)?;
    }
    fs::write(root.join("shop.ini"), format!("[shop]\nname = Lamps and more\napi_key = {secret}\n"))?;
    fs::write(root.join(".env"), format!("SHOP_API_KEY={secret}\n"))
}

/// A secret that exists nowhere else.
pub(crate) fn new_secret() -> String {
    format!("sk_live_{}", uuid::Uuid::new_v4().simple())
}

/// The model: a script that goes by what the tools answer.
pub(crate) fn model() -> Result<Scripted, ScenarioError> {
    Scripted::from_toml(include_str!("script.toml"))
}

/// Kills the process (SIGKILL) when the edit has happened and nobody knows yet: the worst moment there is.
pub(crate) fn killer() -> AnyLayer {
    AnyLayer::new(Killer)
}

struct Killer;

impl Layer for Killer {
    async fn handle(&self, call: Call, next: Next) -> Outcome {
        let fatal = call.tool.as_str() == FATAL && !call.is_rehearsal();
        let outcome = next.run(call).await;
        if fatal {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
        outcome
    }

    fn band(&self) -> Band {
        Band::Bound
    }
}

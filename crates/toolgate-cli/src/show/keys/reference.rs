//! The reference page of the keys.

use std::fmt::Write;

use super::{BINDINGS, KeyContext};

/// Renders the reference page of the keys.
pub fn render_reference() -> String {
    let mut page =
        "# Keys of `toolgate chat`\n\nGenerated from the table of keys by `cargo xtask generate`. F1 and \
         `?` in an empty message show the same on the screen; Ctrl-P finds a command by its name. The letters of \
         approvals mean the same in `toolgate run`.\n"
            .to_owned();
    for place in KeyContext::ALL {
        let _ = write!(
            page,
            "\n## {}\n\n| Keys | Action |\n|---|---|\n",
            place.title()
        );
        for binding in BINDINGS.iter().filter(|binding| binding.place == place) {
            let keys = binding
                .key_labels()
                .into_iter()
                .map(|key| format!("`{key}`"))
                .collect::<Vec<_>>()
                .join(", ");
            let _ = writeln!(page, "| {keys} | {} |", binding.does);
        }
    }
    page
}

//! The tools that read, search and change files.

pub(crate) mod apply_hunks;
pub(crate) mod apply_patch;
pub(crate) mod edit_file;
pub(crate) mod find_files;
pub(crate) mod list_dir;
pub(crate) mod read_file;
pub(crate) mod report;
pub(crate) mod search_text;
pub(crate) mod text;
pub(crate) mod undo_changes;
pub(crate) mod write_file;

//! A directory that cannot be left.
//!
//! Every file is opened relative to a handle on the directory, so neither `..`, nor an absolute
//! path, nor a link that is swapped in at the last moment leads outside. Device files, pipes and
//! sockets are opened without waiting for them.
//!
//! ```
//! use toolgate_rooted::{RootedDir, RootedPath};
//!
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! std::fs::write(folder.join("a.txt"), "one")?;
//! let dir = RootedDir::open(folder)?;
//! let file = dir.open_file(&RootedPath::parse("a.txt", &[])?)?;
//! assert_eq!(file.read_bounded(100)?, Some(b"one".to_vec()));
//! assert!(RootedPath::parse("../secret", &[]).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The types to know are [`RootedDir`] and [`RootedPath`]. What an error means to a model or a user,
//! and every change of a file, is left to the callers.

mod dir;
mod path;

pub use dir::{OpenedFile, RootedDir, is_link_error};
pub use path::{InvalidPath, RootedPath, display_path};

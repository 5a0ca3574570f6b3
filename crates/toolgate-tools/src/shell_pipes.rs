//! The pipes between us and a command.

use std::{
    io::{self, PipeWriter},
    os::fd::OwnedFd,
    process::Stdio,
};

use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe::{Receiver, Sender},
};

/// Our end of what a command writes, and the ends that are its output and its errors. There is one pipe for both, so
/// that everything comes in the order in which it was written.
pub(crate) fn output() -> io::Result<(Receiver, PipeWriter, PipeWriter)> {
    let (ours, theirs) = io::pipe()?;
    let errors = theirs.try_clone()?;
    Ok((
        Receiver::from_owned_fd(OwnedFd::from(ours))?,
        theirs,
        errors,
    ))
}

/// What a command reads: nothing, or what is fed to it.
pub(crate) fn input(text: Option<String>) -> io::Result<(Stdio, Feed)> {
    let Some(text) = text else {
        return Ok((Stdio::null(), Feed(None)));
    };
    let (theirs, ours) = io::pipe()?;
    let ours = Sender::from_owned_fd(OwnedFd::from(ours))?;
    Ok((Stdio::from(theirs), Feed(Some((ours, text)))))
}

/// A text that a command is to read.
pub(crate) struct Feed(Option<(Sender, String)>);

impl Feed {
    /// Writes all of it, or as much as the command wants.
    pub(crate) async fn write(self) {
        if let Some((mut pipe, text)) = self.0 {
            // Whoever stops reading has had enough.
            let _ = pipe.write_all(text.as_bytes()).await;
        }
    }
}

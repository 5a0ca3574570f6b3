//! The pipes between this process and a command.

use std::{
    io::{self, PipeWriter},
    os::fd::OwnedFd,
    process::Stdio,
};

use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe::{Receiver, Sender},
};

/// Creates the output pipe: our end, and the ends for standard output and standard error. Both share
/// one pipe, so that the order in which they were written is preserved.
pub(crate) fn output_pipe() -> io::Result<(Receiver, PipeWriter, PipeWriter)> {
    let (ours, theirs) = io::pipe()?;
    let errors = theirs.try_clone()?;
    Ok((
        Receiver::from_owned_fd(OwnedFd::from(ours))?,
        theirs,
        errors,
    ))
}

/// Creates the standard input of a command: empty, or a pipe that is fed with `text`.
pub(crate) fn input_pipe(text: Option<String>) -> io::Result<(Stdio, StdinFeed)> {
    let Some(text) = text else {
        // Never our own input: a prompt of the command would read what the user types to us.
        return Ok((Stdio::null(), StdinFeed(None)));
    };
    let (theirs, ours) = io::pipe()?;
    let ours = Sender::from_owned_fd(OwnedFd::from(ours))?;
    Ok((Stdio::from(theirs), StdinFeed(Some((ours, text)))))
}

/// The text for the standard input of a command.
pub(crate) struct StdinFeed(Option<(Sender, String)>);

impl StdinFeed {
    /// Writes all of the text, or as much as the command reads.
    pub(crate) async fn write_text(self) {
        if let Some((mut pipe, text)) = self.0 {
            // An error means that the command has closed its input, which is not a failure.
            let _ = pipe.write_all(text.as_bytes()).await;
        }
    }
}

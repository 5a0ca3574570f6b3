//! Writes to the terminal without a buffer.

use std::{
    io::{self, Write},
    os::fd::BorrowedFd,
};

/// Standard output, a system call for each write.
///
/// [`io::Stdout`] keeps what follows the last line feed back until it is flushed, and so makes two
/// writes of one text. In a frame, that is the code that returns the cursor to the beginning of the open
/// part: a terminal that is resized between the two has moved the rows, and one of them can stay behind.
#[derive(Debug)]
pub(crate) struct TerminalWriter(BorrowedFd<'static>);

impl TerminalWriter {
    /// Returns a writer to the terminal of the program.
    pub(crate) fn stdout() -> Self {
        // What was printed before is not overtaken. A terminal that is gone fails the first frame.
        let _ = io::stdout().flush();
        Self(rustix::stdio::stdout())
    }
}

impl Write for TerminalWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixDatagram,
    };

    use super::*;

    #[test]
    fn a_text_of_several_lines_is_one_write() {
        let (ours, theirs) = UnixDatagram::pair().expect("a pair of sockets");
        // The socket lives as long as the test program: the writer borrows it for ever.
        let ours: &'static OwnedFd = Box::leak(Box::new(OwnedFd::from(ours)));
        let text = "one\r\ntwo\r\n\u{1b}[2A";
        TerminalWriter(ours.as_fd())
            .write_all(text.as_bytes())
            .expect("is written");
        let mut received = [0; 64];
        let length = theirs.recv(&mut received).expect("is received");
        assert_eq!(&received[..length], text.as_bytes());
    }
}

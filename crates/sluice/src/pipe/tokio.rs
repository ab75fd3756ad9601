// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::endpoint::{Reader, Writer};

/// A [`Reader`] in a tokio runtime.
///
/// Open a reader in `tokio::task::spawn_blocking`, because a blocking open waits for the other side and would stall the runtime. One that
/// was opened nonblocking reads the end of the stream until a writer has come.
///
/// ```no_run
/// use tokio::io::AsyncReadExt as _;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let open = || sluice::Pipe::named("frames").reader();
/// let mut reader = sluice::pipe::AsyncReader::new(tokio::task::spawn_blocking(open).await??)?;
/// let mut frame = [0; 1024];
/// reader.read_exact(&mut frame).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncReader {
    end: AsyncFd<Reader>,
}

/// A [`Writer`] in a tokio runtime; see [`AsyncReader`] for how to open it.
///
/// Shutdown does nothing: readers see the end of the stream when the writer is dropped.
#[derive(Debug)]
pub struct AsyncWriter {
    end: AsyncFd<Writer>,
}

impl AsyncReader {
    /// Makes the endpoint nonblocking and registers it. Needs a runtime with I/O enabled.
    pub fn new(reader: Reader) -> io::Result<Self> {
        set_nonblocking(reader.as_fd())?;
        // SAFETY: an endpoint owns its descriptor and keeps it until it is dropped.
        let end = unsafe { AsyncFd::register_with_interest(reader, Interest::READABLE) }?;
        Ok(Self { end })
    }

    /// Returns the endpoint, which stays nonblocking.
    pub fn into_inner(self) -> Reader {
        self.end.into_inner()
    }
}

impl AsyncWriter {
    /// Makes the endpoint nonblocking and registers it. Needs a runtime with I/O enabled.
    pub fn new(writer: Writer) -> io::Result<Self> {
        set_nonblocking(writer.as_fd())?;
        // SAFETY: an endpoint owns its descriptor and keeps it until it is dropped.
        let end = unsafe { AsyncFd::register_with_interest(writer, Interest::WRITABLE) }?;
        Ok(Self { end })
    }

    /// Returns the endpoint, which stays nonblocking.
    pub fn into_inner(self) -> Writer {
        self.end.into_inner()
    }
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: neither command takes an address.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl AsyncRead for AsyncReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.end.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            // On WouldBlock the guard has cleared the readiness, and the next iteration waits.
            if let Ok(outcome) = guard.try_io(|end| end.get_ref().read(room)) {
                buffer.advance(outcome?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for AsyncWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.end.poll_write_ready(context))?;
            if let Ok(outcome) = guard.try_io(|end| end.get_ref().write(bytes)) {
                return Poll::Ready(outcome);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Transfers more than the buffer holds, so that both tasks have to wait for each other in one thread.
    #[tokio::test]
    async fn a_waiting_task_does_not_stall_the_other() {
        let (reader, writer) = UnixStream::pair().unwrap();
        let mut reader = AsyncReader::new(OwnedFd::from(reader).into()).unwrap();
        let mut writer = AsyncWriter::new(OwnedFd::from(writer).into()).unwrap();
        let sent: Vec<u8> = (0..8_000_000u32).map(|n| n as u8).collect();
        let copy = sent.clone();
        let sending = tokio::spawn(async move { writer.write_all(&copy).await });
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.unwrap();
        sending.await.unwrap().unwrap();
        assert!(received == sent, "received {} bytes", received.len());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Unix socket of a ring: connection, handshake messages, wake-ups and hang-up.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, ioctl_fionbio, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with, socketpair,
};

use super::hang_up::has_hung_up;
use crate::ring::carrier::Drained;
use crate::ring::error::SetupError;
use crate::shared::setup_process::SetupProcess;
use crate::system_error::SystemError;
use crate::wait::{Wait, wait_readable};

/// The limit of pending connections, equal to that of the kernel before 5.4.
const BACKLOG: i32 = 128;

/// How often a connect with a limit is repeated while too many connections are pending.
const CONNECT_PAUSE: Duration = Duration::from_millis(1);

/// A listening socket at a path, over which rings are set up. Dropping it removes the socket.
#[derive(Debug)]
pub struct Listener {
    /// Nonblocking, because several threads may wait for a connection that one of them accepts.
    socket: OwnedFd,
    /// Absolute: after a chdir(2) the path that was bound may name another file.
    path: PathBuf,
    /// The process that listens. A drop in its children has no effect.
    process: SetupProcess,
}

impl Listener {
    /// Creates the socket. One at the path at which no process listens any more, as after a kill, is replaced. The mode of the socket,
    /// which the umask decides, and then the allowed users in [`SocketOptions`](crate::ring::SocketOptions) decide which peers may connect.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, SetupError> {
        let path = path.as_ref();
        let bound = || -> io::Result<Self> {
            Ok(Self {
                path: std::path::absolute(path)?,
                socket: match listen_at(path) {
                    Err(Errno::ADDRINUSE) => replace_stale(path)?,
                    other => other?,
                },
                process: SetupProcess::current(),
            })
        };
        bound().map_err(|source| SetupError::Listen {
            path: path.to_owned(),
            source,
        })
    }

    /// Waits for the next connection.
    pub fn accept(&self) -> Result<Socket, SetupError> {
        self.accept_within(Wait::Forever)
    }

    /// As [`accept`](Self::accept), but waits for the given time, and then fails with [`io::ErrorKind::WouldBlock`].
    pub fn accept_within(&self, wait: impl Into<Wait>) -> Result<Socket, SetupError> {
        let wait = wait.into();
        let began = Instant::now();
        loop {
            let left = wait.left(began);
            let accepted = retry_on_intr(|| accept_with(&self.socket, SocketFlags::CLOEXEC));
            // Another thread may have accepted the connection for which this one has waited.
            let waited = match accepted {
                Err(Errno::AGAIN) if !left.is_over() => {
                    wait_readable(self.as_fd(), left.limit().unwrap_or(Duration::MAX))
                }
                accepted => {
                    let failed = SetupError::system("accepting a connection");
                    return accepted.map(Socket).map_err(failed);
                }
            };
            waited.map_err(SetupError::system("waiting for a connection"))?;
        }
    }
}

impl AsFd for Listener {
    /// Readable when a connection can be accepted.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.process.is_current() {
            // Another process may have removed it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn listen_at(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    bind(&socket, &address(path)?)?;
    listen(&socket, BACKLOG)?;
    ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// An empty path would be that of a name outside of the file system.
fn address(path: &Path) -> Result<SocketAddrUnix, Errno> {
    match path.as_os_str().is_empty() {
        true => Err(Errno::INVAL),
        false => SocketAddrUnix::new(path),
    }
}

/// Listens at the path of a socket whose process has ended. The lock on its directory prevents that another process does the same
/// meanwhile and its socket is removed.
fn replace_stale(path: &Path) -> Result<OwnedFd, Errno> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(parent.unwrap_or(Path::new("."))).map_err(|_| Errno::ADDRINUSE)?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive).map_err(|_| Errno::ADDRINUSE)?;
    if !is_stale(path) {
        return Err(Errno::ADDRINUSE);
    }
    fs::remove_file(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    listen_at(path)
}

/// Whether no process has the socket at the path. A connection of another type never succeeds, and so disturbs no listener: it fails with
/// EPROTOTYPE where a socket is bound.
fn is_stale(path: &Path) -> bool {
    let is_socket =
        fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    let probe = || -> Result<(), Errno> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        connect(&socket, &SocketAddrUnix::new(path)?)
    };
    is_socket && probe() == Err(Errno::CONNREFUSED)
}

/// A connection to the peer, over which [`SocketOptions`](crate::ring::SocketOptions) set up a ring.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Connects to a [`Listener`]. Waits while too many connections are pending.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, SetupError> {
        Self::connect_with(path.as_ref(), false)
    }

    /// As [`connect`](Self::connect), but fails with [`io::ErrorKind::WouldBlock`] instead of waiting.
    pub fn try_connect(path: impl AsRef<Path>) -> Result<Self, SetupError> {
        Self::connect_with(path.as_ref(), true)
    }

    /// As [`connect`](Self::connect), but waits for the given time, and then fails with [`io::ErrorKind::WouldBlock`].
    pub fn connect_within(
        path: impl AsRef<Path>,
        wait: impl Into<Wait>,
    ) -> Result<Self, SetupError> {
        let wait = wait.into();
        if wait == Wait::Forever {
            return Self::connect(path);
        }
        let began = Instant::now();
        loop {
            match Self::try_connect(&path) {
                Err(SetupError::Connect { source, .. })
                    if source.kind() == io::ErrorKind::WouldBlock
                        && !wait.left(began).is_over() =>
                {
                    thread::sleep(CONNECT_PAUSE);
                }
                connected => return connected,
            }
        }
    }

    fn connect_with(path: &Path, nonblocking: bool) -> Result<Self, SetupError> {
        let open = || -> Result<OwnedFd, Errno> {
            let socket = new_socket()?;
            ioctl_fionbio(&socket, nonblocking)?;
            let address = address(path)?;
            retry_on_intr(|| connect(&socket, &address))?;
            ioctl_fionbio(&socket, false)?;
            Ok(socket)
        };
        let failed = |errno: Errno| SetupError::Connect {
            path: path.to_owned(),
            source: errno.into(),
        };
        open().map(Self).map_err(failed)
    }

    /// A connected pair, for a process and its child, or for two threads.
    pub fn pair() -> Result<(Self, Self), SetupError> {
        socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map(|(one, other)| (Self(one), Self(other)))
        .map_err(SetupError::system("making a pair of sockets"))
    }

    /// The user of the peer at the time when it connected, or listened.
    pub fn peer_user(&self) -> Result<u32, SetupError> {
        peer_user(&self.0)
    }
}

/// The descriptor must be that of a connected Unix socket of type SOCK_SEQPACKET.
impl From<OwnedFd> for Socket {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The user of the peer. rustix cannot be used: it fails for a peer in another PID namespace, whose process ID is 0 here.
pub(super) fn peer_user(socket: &OwnedFd) -> Result<u32, SetupError> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut size = size_of_val(&credentials) as libc::socklen_t;
    // SAFETY: the structure has `size` bytes, and any bytes are a valid value.
    let asked = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut size,
        )
    };
    match asked {
        0 => Ok(credentials.uid),
        _ => Err(SystemError::new("getsockopt(SO_PEERCRED)", io::Error::last_os_error()).into()),
    }
}

fn new_socket() -> Result<OwnedFd, Errno> {
    socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends one message, with an optional file. Never waits: a handshake fits into every socket buffer.
pub(super) fn send(socket: &OwnedFd, message: &[u8], file: Option<&OwnedFd>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(message)], &mut control, flags))?;
    Ok(())
}

/// A received message.
pub(super) struct Received {
    pub bytes: usize,
    pub file: Option<OwnedFd>,
    /// It was longer than the buffer, or had more than one file.
    pub too_much: bool,
    /// There is no message, and none will follow: the peer has hung up.
    pub ended: bool,
}

/// Waits for one message until a deadline, then returns none.
pub(super) fn receive(
    socket: &OwnedFd,
    message: &mut [u8],
    until: Instant,
) -> io::Result<Option<Received>> {
    if !readable(socket, until)? {
        return Ok(None);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got =
        retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(message)], &mut control, flags))?;
    let mut files = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten();
    let file = files.next();
    let truncated = got
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Some(Received {
        bytes: got.bytes,
        // The aligned space for one file has room for two.
        too_much: truncated || files.next().is_some(),
        ended: got.bytes == 0 && file.is_none() && has_hung_up(socket)?,
        file,
    }))
}

fn readable(socket: &OwnedFd, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match poll_readable(socket, Some(left)) {
            Ok(readable) => return Ok(readable),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Waits until there is a message or a hang-up. Returns false after the limit.
pub(super) fn poll_readable(socket: &OwnedFd, limit: Option<Duration>) -> Result<bool, Errno> {
    // A limit that overflows is no limit.
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut asked = [PollFd::new(socket, PollFlags::IN)];
    Ok(poll(&mut asked, limit.as_ref())? > 0)
}

/// Reads wake-ups, with a limit per call, because the peer may send without end.
pub(super) fn drain(socket: &OwnedFd) -> Drained {
    const MESSAGES: u32 = 16;
    let mut bytes = [0; 64];
    for _ in 0..MESSAGES {
        match rustix::net::recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) if has_hung_up(socket).unwrap_or(true) => return Drained::HungUp,
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Drained::Empty,
            Err(_) => return Drained::HungUp,
        }
    }
    Drained::More
}

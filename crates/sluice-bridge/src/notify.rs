// SPDX-License-Identifier: MIT OR Apache-2.0
//! sd_notify(3): messages to the service manager, if there is one, and descriptors that it keeps for the next process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt as _;
use std::process::{self, Command};
use std::thread::sleep;
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::pipe2;

/// Milliseconds to wait until the service manager has taken the descriptors.
const BARRIER: u16 = 5000;
/// The first descriptor that is passed.
const FIRST: RawFd = 3;
/// The pause between attempts to use a number that another thread is about to use, and the most attempts.
const BUSY: Duration = Duration::from_millis(1);
const BUSY_MAX: u32 = 1000;

/// The service manager, and what it keeps, for a program that replaces this one.
#[derive(Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    kept: RefCell<Kept>,
}

impl Manager {
    /// `kept`: the descriptors of the last process.
    pub fn from_environment(kept: &Kept) -> io::Result<Self> {
        let socket = env::var_os("NOTIFY_SOCKET");
        let socket = socket.map(|path| connect(&path)).transpose()?;
        let clone = |(name, fd): (&String, &OwnedFd)| Ok((name.clone(), fd.try_clone()?));
        let kept = kept.iter().map(clone).collect::<io::Result<Kept>>()?;
        Ok(Self {
            socket,
            kept: kept.into(),
        })
    }

    pub fn send(&self, message: &str) -> io::Result<()> {
        self.send_with(message, &[])
    }

    /// Keeps a duplicate of the descriptor. Returns when it has it.
    pub fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let duplicate = descriptor.try_clone_to_owned()?;
        self.kept.borrow_mut().insert(name.to_owned(), duplicate);
        self.send_with(&format!("FDSTORE=1\nFDNAME={name}"), &[descriptor])?;
        self.barrier()
    }

    /// Closes the descriptor of this name.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.kept.borrow_mut().remove(name);
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"))
    }

    /// Replaces this program by a new start of it, which has the descriptors as if the service manager had started it. Returns if that
    /// fails; then descriptors of this process may be others.
    pub fn restart(&self) -> io::Error {
        let kept = self.kept.take();
        let last = FIRST + kept.len() as RawFd;
        let mut names = Vec::new();
        let mut arguments = env::args_os();
        let mut command = Command::new(arguments.next().unwrap_or_default());
        // Above the numbers that they get.
        let above = |(name, fd): (String, OwnedFd)| {
            names.push(name);
            fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(last))
        };
        let above: Result<Vec<RawFd>, _> = kept.into_iter().map(above).collect();
        let above = match above {
            Ok(above) => above,
            Err(errno) => return errno.into(),
        };
        let mut busy = 0;
        for (number, fd) in (FIRST..).zip(above) {
            // SAFETY: whatever has this number is not used any more.
            while unsafe { libc::dup2(fd, number) } < 0 {
                let error = io::Error::last_os_error();
                // Another thread is opening it, such as one that accepts a connection for metrics.
                if error.kind() != io::ErrorKind::ResourceBusy || busy == BUSY_MAX {
                    return error;
                }
                busy += 1;
                sleep(BUSY);
            }
        }
        command
            .args(arguments)
            .env("LISTEN_PID", process::id().to_string())
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .exec()
    }

    /// The service manager closes the descriptor when it has taken all messages before.
    fn barrier(&self) -> io::Result<()> {
        if self.socket.is_none() {
            return Ok(());
        }
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        self.send_with("BARRIER=1", &[write.as_fd()])?;
        drop(write);
        let mut fds = [PollFd::new(read.as_fd(), PollFlags::empty())];
        match poll(&mut fds, PollTimeout::from(BARRIER))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }

    fn send_with(&self, message: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        let numbers: Vec<RawFd> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = &rights[..usize::from(!numbers.is_empty())];
        let parts = [IoSlice::new(message.as_bytes())];
        sendmsg::<()>(
            socket.as_raw_fd(),
            &parts,
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(())
    }
}

fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

/// Descriptors by their names.
pub type Kept = HashMap<String, OwnedFd>;

/// The descriptors that the service manager has kept. To be called once, before anything else opens one.
pub fn kept_descriptors() -> Kept {
    let variable = |name| env::var(name).unwrap_or_default();
    if variable("LISTEN_PID") != process::id().to_string() {
        return Kept::new();
    }
    let count: RawFd = variable("LISTEN_FDS").parse().unwrap_or(0);
    let names = variable("LISTEN_FDNAMES");
    let numbers = FIRST..FIRST.saturating_add(count);
    // Names and descriptors are as many, or the name is unknown.
    let names = names.split(':').chain(std::iter::repeat(""));
    let take = |(number, name): (RawFd, &str)| {
        // SAFETY: it is only asked whether it is open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
        fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
        // SAFETY: it is open, and the service manager passed it to this process, in which nothing else uses it.
        Some((name.to_owned(), unsafe { OwnedFd::from_raw_fd(number) }))
    };
    numbers.zip(names).filter_map(take).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{IoSliceMut, Read as _, Write as _, pipe};

    use nix::sys::socket::{ControlMessageOwned, recvmsg};

    use super::*;

    fn managed() -> (Manager, UnixDatagram) {
        let (socket, manager) = UnixDatagram::pair().unwrap();
        let socket = Some(socket);
        let manager_of = Manager {
            socket,
            ..Manager::default()
        };
        (manager_of, manager)
    }

    /// The next message, and a descriptor that came with it.
    fn receive(manager: &UnixDatagram) -> (String, Option<OwnedFd>) {
        let mut bytes = [0; 256];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut control = nix::cmsg_space!(RawFd);
        let fd = manager.as_raw_fd();
        let message = recvmsg::<()>(fd, &mut parts, Some(&mut control), MsgFlags::empty()).unwrap();
        let len = message.bytes;
        let received = message.cmsgs().unwrap().find_map(|control| match control {
            // SAFETY: the kernel has just created it.
            ControlMessageOwned::ScmRights(fds) => Some(unsafe { OwnedFd::from_raw_fd(fds[0]) }),
            _ => None,
        });
        (String::from_utf8(bytes[..len].to_vec()).unwrap(), received)
    }

    #[test]
    fn a_descriptor_is_kept_before_the_call_returns() {
        let (manager, socket) = managed();
        let (mut reader, mut writer) = pipe().unwrap();
        let keeper = std::thread::spawn(move || {
            let (message, kept) = receive(&socket);
            assert_eq!(message, "FDSTORE=1\nFDNAME=window-1");
            assert_eq!(receive(&socket).0, "BARRIER=1");
            kept.unwrap()
        });
        manager.store("window-1", reader.as_fd()).unwrap();
        writer.write_all(b"kept").unwrap();
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "kept");
        drop(keeper.join().unwrap());
    }

    #[test]
    fn without_a_manager_nothing_is_sent() {
        let manager = Manager::default();
        manager.send("READY=1").unwrap();
        manager.store("a", io::stdin().as_fd()).unwrap();
        let (manager, socket) = managed();
        manager.remove("a").unwrap();
        assert_eq!(receive(&socket).0, "FDSTOREREMOVE=1\nFDNAME=a");
    }
}

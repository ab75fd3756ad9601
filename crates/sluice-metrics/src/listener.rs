// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address at which the metrics are served.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(String),
    Path(PathBuf),
}

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        match port {
            _ if text.contains('/') => Ok(Self::Path(text.into())),
            Some(Ok(_)) => Ok(Self::Tcp(text.to_owned())),
            _ => Err("give HOST:PORT, such as 127.0.0.1:9750, or a path with a slash"),
        }
    }
}

impl Address {
    /// The listener, and where the metrics are.
    pub fn bind(&self) -> Result<(Listener, String)> {
        match self {
            Self::Tcp(address) => {
                let listener = TcpListener::bind(address).with_context(|| {
                    format!(
                        "cannot listen at {address}; give a free port and an address of this host"
                    )
                })?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr().context("the socket has no address")?;
                Ok((Listener::Tcp(listener), format!("http://{address}/metrics")))
            }
            Self::Path(path) => {
                let listener = bind_path(path).with_context(|| {
                    format!(
                        "cannot listen at {}; give a path that can be created",
                        path.display()
                    )
                })?;
                listener.set_nonblocking(true)?;
                let page = format!("/metrics of the socket {}", path.display());
                Ok((Listener::Unix(listener), page))
            }
        }
    }

    /// Removes the socket of a listener that is not needed any more.
    pub fn release(&self) -> Result<()> {
        match self {
            Self::Tcp(_) => Ok(()),
            Self::Path(path) => Ok(fs::remove_file(path)?),
        }
    }
}

/// A socket to which nobody listens any more is replaced.
fn bind_path(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind(path).or_else(|error| {
        if error.kind() != ErrorKind::AddrInUse || !is_abandoned_socket(path) {
            return Err(error);
        }
        fs::remove_file(path)?;
        UnixListener::bind(path)
    })
}

fn is_abandoned_socket(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    // Other files refuse a connection, too.
    is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

impl Listener {
    /// Waits for a connection, but not in accept(2), which reserves the number of a descriptor while it waits: a dup2(2) to this number
    /// would fail. The result has the type of a Unix socket, also for TCP: only calls are used that both have.
    pub fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let accepted = match self {
                Self::Tcp(listener) => listener.accept().map(|(tcp, _)| OwnedFd::from(tcp).into()),
                Self::Unix(listener) => listener.accept().map(|(unix, _)| unix),
            };
            match accepted {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(),
                accepted => return accepted,
            }
        }
    }

    /// Waits until there may be a connection. The next accept reports a failure.
    fn wait(&self) {
        let descriptor = match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        };
        let mut fds = [PollFd::new(descriptor, PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::NONE);
    }
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    #[test]
    fn an_address_is_a_port_or_a_path() {
        let tcp = |text: &str| Ok(Address::Tcp(text.to_owned()));
        assert_eq!("127.0.0.1:9750".parse(), tcp("127.0.0.1:9750"));
        assert_eq!("[::1]:9750".parse(), tcp("[::1]:9750"));
        assert_eq!("./m:1".parse(), Ok(Address::Path("./m:1".into())));
        for bad in ["9750", "localhost", "localhost:http", ""] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_socket_without_a_listener_is_replaced() {
        let path = std::env::temp_dir().join(format!("sluice-metrics-{}", process::id()));
        let first = bind_path(&path).unwrap();
        assert!(bind_path(&path).is_err());
        drop(first);
        drop(bind_path(&path).unwrap());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(bind_path(&path).is_err());
        fs::remove_file(&path).unwrap();
    }
}

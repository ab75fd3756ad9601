// SPDX-License-Identifier: MIT OR Apache-2.0
//! sd_notify(3): tells the service manager that the daemon is ready, if it wants to know.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub fn ready() -> io::Result<()> {
    match env::var_os("NOTIFY_SOCKET") {
        Some(socket) => send(&socket, b"READY=1"),
        None => Ok(()),
    }
}

fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?
        .send_to_addr(message, &address)
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory::TestDirectory;

    #[test]
    fn the_message_arrives() {
        let directory = TestDirectory::new();
        let path = directory.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), b"READY=1").unwrap();
        let mut buffer = [0; 16];
        let len = receiver.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"READY=1");
    }

    #[test]
    fn an_abstract_socket_begins_with_an_at_sign() {
        let name = format!("@sluiced-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        let receiver = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&name), b"READY=1").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 7);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of a ring, by operation.

mod setup;
mod transfer;

pub use setup::SetupError;
pub(super) use transfer::WaitError;
pub use transfer::{RecvError, SendError};

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;
    use crate::system_error::SystemError;

    #[test]
    fn a_failed_call_names_the_next_step() {
        let of = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            SetupError::from(SystemError::new("mapping the ring", source))
        };
        for (errno, word) in [
            (libc::EMFILE, "ulimit -n"),
            (libc::ENFILE, "file-max"),
            (libc::ENOMEM, "memory.max"),
            (libc::EAGAIN, "pids.max"),
            (libc::EPERM, "seccomp"),
            (libc::EIO, "sluice doctor"),
        ] {
            let said = crate::explain(&of(errno));
            assert!(said.starts_with("mapping the ring failed: "), "{said}");
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn errors_become_those_of_io_and_keep_their_text() {
        let error = io::Error::from(RecvError::Empty);
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert_eq!(error.to_string(), RecvError::Empty.to_string());
        let error = io::Error::from(SendError::Closed);
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        // A death has the same number for both sides, and another one than a close.
        for error in [SendError::PeerDied.into(), RecvError::PeerDied.into()] {
            let error: io::Error = error;
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        let error = io::Error::from(SetupError::PeerNotAllowed { uid: 7 });
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }
}

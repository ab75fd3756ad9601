// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use crate::bus::error::{RecvError, SendError};
use crate::diagnosis::{Diagnose as _, Diagnosis, diagnosed};

/// Why a request has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The bus exists, but no server has it open. Where nobody has created the bus, the client cannot be opened.
    #[error("the bus has no server")]
    NoServer,

    /// The server that was asked has closed the bus, was killed or was evicted. It may have received the request, and may have done what
    /// was asked.
    #[doc(alias = "ServerDied")]
    #[error("server {server} has ended without a reply")]
    ServerEnded { server: u64 },

    /// The client has not received for so long that others needed the room of its replies. The server may have done what was asked.
    #[error("the client has lost {count} messages, and the reply may be among them")]
    ReplyLost { count: u64 },

    /// There was no reply within this time. The server may have received the request, and goes on with it.
    #[error("timeout: no reply within {0:?}")]
    TimedOut(Duration),

    /// The request was not sent. Never [`SendError::NoSubscriber`] nor [`SendError::TimedOut`]: these are [`NoServer`](Self::NoServer)
    /// and [`TimedOut`](Self::TimedOut).
    #[error(transparent)]
    Send(SendError),

    /// No reply can be received any more: the bus was destroyed, or this client was evicted. Never [`RecvError::TimedOut`].
    #[error(transparent)]
    Recv(#[from] RecvError),
}

impl From<SendError> for CallError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::NoSubscriber => Self::NoServer,
            error => Self::Send(error),
        }
    }
}

impl CallError {
    /// The error of a call whose steps had parts of this time.
    pub(super) fn of_call(self, timeout: Duration) -> Self {
        match self {
            Self::TimedOut(_)
            | Self::Send(SendError::TimedOut(_))
            | Self::Recv(RecvError::TimedOut(_)) => Self::TimedOut(timeout),
            error => error,
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::NoServer => (
                libc::ENOTCONN,
                "start a server in the same cgroup, and call again",
            ),
            Self::ServerEnded { .. } => (
                libc::ECONNRESET,
                "call again if the request may be done twice",
            ),
            Self::ReplyLost { .. } => (
                libc::ENOBUFS,
                "call again if the request may be done twice, or create a larger bus",
            ),
            Self::TimedOut(_) => (
                libc::ETIMEDOUT,
                "use a longer timeout, or check that the servers run",
            ),
            Self::Send(error) => return error.diagnose(),
            Self::Recv(error) => return error.diagnose(),
        };
        Diagnosis::new(errno, hint)
    }
}

/// Why a server has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    #[error(transparent)]
    Recv(#[from] RecvError),

    /// Of the last request.
    #[error(transparent)]
    Reply(#[from] SendError),
}

impl ServeError {
    fn diagnosis(&self) -> Diagnosis {
        match self {
            Self::Recv(error) => error.diagnose(),
            Self::Reply(error) => error.diagnose(),
        }
    }
}

diagnosed!(CallError, ServeError);

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;

    #[test]
    fn errors_become_those_of_io() {
        for (error, kind) in [
            (
                CallError::from(SendError::NoSubscriber),
                ErrorKind::NotConnected,
            ),
            (
                CallError::ServerEnded { server: 1 },
                ErrorKind::ConnectionReset,
            ),
            (CallError::TimedOut(Duration::ZERO), ErrorKind::TimedOut),
            (
                CallError::from(RecvError::Evicted),
                ErrorKind::ConnectionAborted,
            ),
        ] {
            let text = error.to_string();
            let error = io::Error::from(error);
            assert_eq!((error.kind(), error.to_string()), (kind, text));
        }
    }
}

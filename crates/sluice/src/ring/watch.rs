// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who hears that the other side of a ring is gone: one thread for all rings of the process, asleep until one of their sockets hangs
//! up. It tells the side that is awake by a flag, and wakes the one that sleeps.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::thread::futex;
use sluice_ring::sync::AtomicU32;
use sluice_ring::{Ctrl, Memory};

use super::error::{Error, Result};
use super::handshake::Role;
use super::mapping::Mapping;

/// What is known of the other side's process.
#[derive(Debug)]
pub(super) struct Peer {
    id: u64,
    mapping: Mapping,
    role: Role,
    gone: AtomicBool,
    asleep: AtomicBool,
}

impl Peer {
    /// Watched until it is dropped. The socket is this side's end of the connection.
    pub fn watch(socket: &OwnedFd, mapping: &Mapping, own: Role) -> Result<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let peer = Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            mapping: mapping.clone(),
            role: own,
            gone: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
        });
        let watch = Watch::get()?;
        watch.peers().insert(peer.id, Arc::downgrade(&peer));
        let event = epoll::EventData::new_u64(peer.id);
        let flags = epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
        epoll::add(&watch.epoll, socket, event, flags)
            .map_err(Error::system("watching the other end"))?;
        Ok(peer)
    }

    #[inline]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Somebody else has heard it first.
    #[cfg(feature = "tokio")]
    pub fn has_hung_up(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Sleeps while the peer's wake_seq is what was seen, for so long at most, and not at all if it is gone.
    pub fn sleep(&self, seen: u32, limit: Option<Duration>) -> std::result::Result<(), Errno> {
        let timeout = limit
            .map(futex::Timespec::try_from)
            .transpose()
            .map_err(|_| Errno::INVAL)?;
        self.asleep.store(true, Ordering::SeqCst);
        let ended = match self.gone.load(Ordering::SeqCst) {
            true => Ok(()),
            false => futex::wait(
                self.wake_seq(),
                futex::Flags::empty(),
                seen,
                timeout.as_ref(),
            ),
        };
        self.asleep.store(false, Ordering::SeqCst);
        match ended {
            Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
            other => other,
        }
    }

    fn wake_seq(&self) -> &AtomicU32 {
        &self.theirs().wake_seq
    }

    fn theirs(&self) -> &Ctrl {
        match self.role {
            Role::Producer => self.mapping.consumer(),
            Role::Consumer => self.mapping.producer(),
        }
    }

    /// A sleeper that has looked whether it is gone, and does not sleep yet, misses the first call: hence again until it is up.
    fn is_lost(&self) {
        self.gone.store(true, Ordering::SeqCst);
        while self.asleep.load(Ordering::SeqCst) {
            // It fails only for an address that is not mapped.
            let _ = futex::wake(self.wake_seq(), futex::Flags::empty(), u32::MAX);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The socket leaves the epoll instance when it is closed.
        if let Ok(watch) = Watch::get() {
            watch.peers().remove(&self.id);
        }
    }
}

struct Watch {
    epoll: OwnedFd,
    peers: Mutex<HashMap<u64, Weak<Peer>>>,
}

impl Watch {
    fn get() -> Result<&'static Self> {
        static WATCH: OnceLock<io::Result<Watch>> = OnceLock::new();
        let failed = |error: &io::Error| Error::System {
            what: "starting the thread that watches the other end",
            source: match error.raw_os_error() {
                Some(errno) => io::Error::from_raw_os_error(errno),
                None => io::Error::from(error.kind()),
            },
        };
        WATCH.get_or_init(Self::start).as_ref().map_err(failed)
    }

    fn start() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        thread::Builder::new()
            .name("sluice-ring".into())
            .spawn(|| {
                if let Ok(watch) = Self::get() {
                    watch.keep();
                }
            })?;
        Ok(Self {
            epoll,
            peers: Mutex::default(),
        })
    }

    fn peers(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Weak<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self) {
        let mut events = [MaybeUninit::uninit(); 16];
        loop {
            let Ok((happened, _)) = epoll::wait(&self.epoll, &mut events, None) else {
                // Only a signal ends it without an event.
                continue;
            };
            for event in happened {
                let lost = self.peers().get(&event.data.u64()).and_then(Weak::upgrade);
                if let Some(peer) = lost {
                    peer.is_lost();
                }
            }
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of libzmq that are used. It is loaded at run time: building does not need it, and without it only its results are
//! missing.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::LazyLock;

use anyhow::{Context, Result, anyhow};
use libloading::Library;
use nix::errno::Errno;

use super::link::ensure_fits;

const DONTWAIT: c_int = 1;
// Socket options, with the numbers of the library.
const SUBSCRIBE: c_int = 6;
/// The interval between attempts to connect, in milliseconds.
const RECONNECT_INTERVAL: c_int = 18;
/// Every subscription is received, also one that another receiver has, too.
const XPUB_VERBOSE: c_int = 40;
/// Sending waits for a receiver at its high-water mark.
const XPUB_NODROP: c_int = 69;

/// The socket type, with the numbers of the library.
#[derive(Clone, Copy)]
pub enum Kind {
    Sub = 2,
    Req = 3,
    Rep = 4,
    Pull = 7,
    Push = 8,
    XPub = 9,
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        pub struct Zmq {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// The functions are part of it.
            _library: Library,
        }

        impl Zmq {
            fn load() -> Result<Self> {
                // SAFETY: loading runs only the initializers of the library, which have no requirements.
                let library = unsafe { Library::new("libzmq.so.5") }?;
                Ok(Self {
                    // SAFETY: the types are the types of zmq.h since 4.0.
                    $($name: *unsafe { library.get(concat!("zmq_", stringify!($name)).as_bytes()) }?,)*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    ctx_new() -> *mut c_void;
    socket(*mut c_void, c_int) -> *mut c_void;
    close(*mut c_void) -> c_int;
    setsockopt(*mut c_void, c_int, *const c_void, usize) -> c_int;
    bind(*mut c_void, *const c_char) -> c_int;
    connect(*mut c_void, *const c_char) -> c_int;
    send(*mut c_void, *const c_void, usize, c_int) -> c_int;
    recv(*mut c_void, *mut c_void, usize, c_int) -> c_int;
    version(*mut c_int, *mut c_int, *mut c_int) -> ();
}

type Open = unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int;

pub fn zmq() -> Result<&'static Zmq> {
    static ZMQ: LazyLock<Result<Zmq>> = LazyLock::new(Zmq::load);
    let loaded = ZMQ.as_ref();
    loaded.map_err(|error| anyhow!("{error:#}; install libzmq5"))
}

fn retry(mut call: impl FnMut() -> c_int) -> Result<usize, Errno> {
    loop {
        match Errno::result(call()) {
            Err(Errno::EINTR) => {}
            other => return other.map(|value| value as usize),
        }
    }
}

/// The context of this process, whose threads all of its sockets share, as the library's guide advises. It ends with the process.
fn context(zmq: &Zmq) -> Result<*mut c_void> {
    thread_local! {
        static CONTEXT: Cell<*mut c_void> = const { Cell::new(null_mut()) };
    }
    if CONTEXT.get().is_null() {
        // SAFETY: it has no arguments.
        CONTEXT.set(created(unsafe { (zmq.ctx_new)() })?);
    }
    Ok(CONTEXT.get())
}

fn created(pointer: *mut c_void) -> Result<*mut c_void> {
    match pointer.is_null() {
        true => Err(Errno::last()).context("cannot create a ZeroMQ socket"),
        false => Ok(pointer),
    }
}

/// Create it after the fork, because threads start with it.
pub struct Socket {
    socket: *mut c_void,
    zmq: &'static Zmq,
}

impl Socket {
    pub fn new(kind: Kind) -> Result<Self> {
        let zmq = zmq()?;
        // SAFETY: the context is valid.
        let socket = created(unsafe { (zmq.socket)(context(zmq)?, kind as c_int) })?;
        let socket = Self { socket, zmq };
        let one = 1_i32.to_ne_bytes();
        socket.set(RECONNECT_INTERVAL, &one)?;
        match kind {
            Kind::XPub => {
                socket.set(XPUB_VERBOSE, &one)?;
                socket.set(XPUB_NODROP, &one)?;
            }
            Kind::Sub => socket.set(SUBSCRIBE, b"")?,
            Kind::Req | Kind::Rep | Kind::Pull | Kind::Push => {}
        }
        Ok(socket)
    }

    /// The value is a c_int or a prefix.
    fn set(&self, option: c_int, value: &[u8]) -> Result<()> {
        let (start, len) = (value.as_ptr().cast(), value.len());
        // SAFETY: the socket is open, and the library copies `len` bytes.
        let set = retry(|| unsafe { (self.zmq.setsockopt)(self.socket, option, start, len) });
        set.map(drop)
            .context("cannot set an option of a ZeroMQ socket")
    }

    pub fn bind(self, endpoint: &str) -> Result<Self> {
        let bind = self.zmq.bind;
        let bound = self.open(bind, endpoint);
        bound.with_context(|| format!("cannot bind {endpoint}"))
    }

    /// Connects now, or once the peer has bound its socket.
    pub fn connect(self, endpoint: &str) -> Result<Self> {
        let connect = self.zmq.connect;
        let connected = self.open(connect, endpoint);
        connected.with_context(|| format!("cannot connect to {endpoint}"))
    }

    fn open(self, function: Open, endpoint: &str) -> Result<Self> {
        let name = CString::new(endpoint)?;
        // SAFETY: the socket is open and the string is NUL-terminated.
        retry(|| unsafe { function(self.socket, name.as_ptr()) })?;
        Ok(self)
    }

    pub fn send(&self, message: &[u8]) -> Result<()> {
        let (start, len) = (message.as_ptr().cast(), message.len());
        // SAFETY: the socket is open, and the library reads at most `len` bytes.
        let sent = retry(|| unsafe { (self.zmq.send)(self.socket, start, len, 0) });
        sent.map(drop).context("cannot send a message")
    }

    pub fn receive(&self, message: &mut [u8]) -> Result<usize> {
        let received = self.receive_with(message, 0)?;
        received.context("a call that waits returned without a message")
    }

    pub fn receive_now(&self, message: &mut [u8]) -> Result<Option<usize>> {
        self.receive_with(message, DONTWAIT)
    }

    fn receive_with(&self, message: &mut [u8], flags: c_int) -> Result<Option<usize>> {
        let (start, len) = (message.as_mut_ptr().cast(), message.len());
        // SAFETY: the socket is open, and the library writes at most `len` bytes.
        let received = retry(|| unsafe { (self.zmq.recv)(self.socket, start, len, flags) });
        if received == Err(Errno::EAGAIN) {
            return Ok(None);
        }
        let received = received.context("cannot receive a message")?;
        ensure_fits(received, len)?;
        Ok(Some(received))
    }
}

impl Drop for Socket {
    /// Its sender waits for the delivery of its messages before.
    fn drop(&mut self) {
        // SAFETY: it was created once and is closed once.
        unsafe { (self.zmq.close)(self.socket) };
    }
}

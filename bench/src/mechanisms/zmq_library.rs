// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of libzmq that are used.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::rc::{Rc, Weak};
use std::sync::LazyLock;

use anyhow::{Context as _, Result, anyhow};
use nix::errno::Errno;

use super::library::library;
use super::link::ensure_fits;

const RECONNECT_MS: c_int = 1;
/// How long closing waits until all messages are sent, where all must be delivered.
const DELIVERY_MS: c_int = 10_000;
/// The flag of a call that does not wait.
const DONTWAIT: c_int = 1;

// Socket options, with the numbers of the library.
const SUBSCRIBE: c_int = 6;
/// How long closing waits for unsent messages, in milliseconds.
const LINGER: c_int = 17;
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

// The types of zmq.h since 4.0.
library! {
    Zmq, "libzmq.so.5", "zmq_";
    ctx_new() -> *mut c_void;
    ctx_term(*mut c_void) -> c_int;
    socket(*mut c_void, c_int) -> *mut c_void;
    close(*mut c_void) -> c_int;
    setsockopt(*mut c_void, c_int, *const c_void, usize) -> c_int;
    bind(*mut c_void, *const c_char) -> c_int;
    connect(*mut c_void, *const c_char) -> c_int;
    send(*mut c_void, *const c_void, usize, c_int) -> c_int;
    recv(*mut c_void, *mut c_void, usize, c_int) -> c_int;
    version(*mut c_int, *mut c_int, *mut c_int);
}

/// Binds or connects a socket.
type Open = unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int;

/// The library, or the reason why it cannot be loaded.
pub fn zmq() -> Result<&'static Zmq> {
    static ZMQ: LazyLock<Result<Zmq>> = LazyLock::new(Zmq::load);
    let loaded = ZMQ.as_ref();
    loaded.map_err(|error| anyhow!("{error:#}; install libzmq5"))
}

/// Repeats the call after EINTR.
fn retry(mut call: impl FnMut() -> c_int) -> Result<usize> {
    loop {
        match Errno::result(call()) {
            Ok(value) => return Ok(value.try_into()?),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The threads of a process, which its sockets share, as the library's guide advises.
struct Context {
    zmq: &'static Zmq,
    context: *mut c_void,
}

impl Context {
    /// The context of this process, which starts with its first socket.
    fn shared() -> Result<Rc<Self>> {
        thread_local! {
            static SHARED: RefCell<Weak<Context>> = const { RefCell::new(Weak::new()) };
        }
        if let Some(context) = SHARED.with_borrow(Weak::upgrade) {
            return Ok(context);
        }
        let zmq = zmq()?;
        // SAFETY: it has no arguments.
        let context = unsafe { (zmq.ctx_new)() };
        if context.is_null() {
            return Err(Errno::last()).context("cannot create a ZeroMQ context");
        }
        let context = Rc::new(Self { zmq, context });
        SHARED.set(Rc::downgrade(&context));
        Ok(context)
    }
}

impl Drop for Context {
    /// Every socket has been closed.
    fn drop(&mut self) {
        // SAFETY: it was created once and is ended once.
        let end = || unsafe { (self.zmq.ctx_term)(self.context) };
        let _ = retry(end);
    }
}

/// Create it after the fork, because threads start with it.
pub struct Socket {
    socket: *mut c_void,
    zmq: &'static Zmq,
    _context: Rc<Context>,
}

impl Socket {
    pub fn new(kind: Kind) -> Result<Self> {
        let context = Context::shared()?;
        let zmq = context.zmq;
        // SAFETY: the context is valid.
        let socket = unsafe { (zmq.socket)(context.context, kind as c_int) };
        if socket.is_null() {
            return Err(Errno::last()).context("cannot create a ZeroMQ socket");
        }
        let socket = Self {
            socket,
            zmq,
            _context: context,
        };
        socket.set(LINGER, &0_i32.to_ne_bytes())?;
        Ok(socket)
    }

    /// The value is a c_int or a prefix.
    fn set(&self, option: c_int, value: &[u8]) -> Result<()> {
        let (start, len) = (value.as_ptr().cast(), value.len());
        // SAFETY: the socket is open, and the library copies `len` bytes.
        let set = || unsafe { (self.zmq.setsockopt)(self.socket, option, start, len) };
        let set = retry(set).map(drop);
        set.context("cannot set an option of a ZeroMQ socket")
    }

    /// All subscriptions are received, and messages are neither dropped for a slow receiver nor when the socket is closed.
    /// Of a publishing socket.
    pub fn deliver_all(&self) -> Result<()> {
        for (option, value) in [(XPUB_VERBOSE, 1), (XPUB_NODROP, 1), (LINGER, DELIVERY_MS)] {
            self.set(option, &value.to_ne_bytes())?;
        }
        Ok(())
    }

    pub fn subscribe_to_all(&self) -> Result<()> {
        self.set(SUBSCRIBE, b"")
    }

    pub fn bind(self, endpoint: &str) -> Result<Self> {
        let bound = self.open(self.zmq.bind, endpoint);
        bound.with_context(|| format!("cannot bind {endpoint}"))?;
        Ok(self)
    }

    /// Connects now, or once the peer has bound its socket.
    pub fn connect(self, endpoint: &str) -> Result<Self> {
        self.set(RECONNECT_INTERVAL, &RECONNECT_MS.to_ne_bytes())?;
        let connected = self.open(self.zmq.connect, endpoint);
        connected.with_context(|| format!("cannot connect to {endpoint}"))?;
        Ok(self)
    }

    fn open(&self, function: Open, endpoint: &str) -> Result<()> {
        let name = CString::new(endpoint)?;
        // SAFETY: the socket is open and the string is NUL-terminated.
        let open = || unsafe { function(self.socket, name.as_ptr()) };
        retry(open).map(drop)
    }

    pub fn send(&self, message: &[u8]) -> Result<()> {
        let (start, len) = (message.as_ptr().cast(), message.len());
        // SAFETY: the socket is open, and the library reads at most `len` bytes.
        let send = || unsafe { (self.zmq.send)(self.socket, start, len, 0) };
        let sent = retry(send).map(drop);
        sent.context("cannot send a message")
    }

    pub fn receive(&self, message: &mut [u8]) -> Result<usize> {
        let received = self.receive_with(message, 0);
        let len = received.context("cannot receive a message")?;
        ensure_fits(len, message.len())?;
        Ok(len)
    }

    /// None: there is no message.
    pub fn receive_now(&self, message: &mut [u8]) -> Result<Option<usize>> {
        let len = match self.receive_with(message, DONTWAIT) {
            Err(error) if error.downcast_ref() == Some(&Errno::EAGAIN) => return Ok(None),
            other => other.context("cannot receive a message")?,
        };
        ensure_fits(len, message.len())?;
        Ok(Some(len))
    }

    fn receive_with(&self, message: &mut [u8], flags: c_int) -> Result<usize> {
        let (start, len) = (message.as_mut_ptr().cast(), message.len());
        // SAFETY: the socket is open, and the library writes at most `len` bytes.
        let receive = || unsafe { (self.zmq.recv)(self.socket, start, len, flags) };
        retry(receive)
    }
}

impl Drop for Socket {
    /// Unsent messages are discarded; the sender waits for their delivery before.
    fn drop(&mut self) {
        // SAFETY: it was created once and is closed once.
        unsafe { (self.zmq.close)(self.socket) };
    }
}

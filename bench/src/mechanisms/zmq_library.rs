// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of libzmq that are used.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::process;
use std::rc::{Rc, Weak};

use super::library::library;
use super::link::ensure_fits;
use anyhow::{Context, Result, anyhow, ensure};

const RECONNECT_MS: c_int = 1;
/// How long closing waits until all messages are sent, where all must be delivered.
const DELIVERY_MS: c_int = 10_000;
/// The flag of a call that does not wait.
const DONTWAIT: c_int = 1;

/// Socket options, with the numbers of the library.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Setting {
    Subscribe = 6,
    /// How long closing waits for unsent messages, in milliseconds.
    Linger = 17,
    /// The interval between attempts to connect, in milliseconds.
    ReconnectInterval = 18,
    /// Every subscription is received, also one that another receiver has, too.
    XPubVerbose = 40,
    /// Sending waits for a receiver at its high-water mark.
    XPubNoDrop = 69,
}

/// The socket type, with the numbers of the library.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Kind {
    Sub = 2,
    Req = 3,
    Rep = 4,
    Pull = 7,
    Push = 8,
    XPub = 9,
}

// The types are those of zmq.h since 4.0.
library! {
    Functions, "libzmq.so.5", "zmq_";
    ctx_new() -> *mut c_void;
    ctx_term(*mut c_void) -> c_int;
    socket(*mut c_void, c_int) -> *mut c_void;
    close(*mut c_void) -> c_int;
    setsockopt(*mut c_void, c_int, *const c_void, usize) -> c_int;
    bind(*mut c_void, *const c_char) -> c_int;
    connect(*mut c_void, *const c_char) -> c_int;
    send(*mut c_void, *const c_void, usize, c_int) -> c_int;
    recv(*mut c_void, *mut c_void, usize, c_int) -> c_int;
    errno() -> c_int;
    strerror(c_int) -> *const c_char;
    version(*mut c_int, *mut c_int, *mut c_int);
}

pub struct Zmq {
    functions: Functions,
    /// Of the process with this id; a child needs its own.
    context: RefCell<(u32, Weak<ZmqContext>)>,
}

impl Zmq {
    pub fn load() -> Result<Self> {
        Ok(Self {
            functions: Functions::load()?,
            context: RefCell::default(),
        })
    }

    pub fn version(&self) -> String {
        let [mut major, mut minor, mut patch] = [0; 3];
        // SAFETY: it writes a number to each of the three.
        unsafe { (self.functions.version)(&mut major, &mut minor, &mut patch) };
        format!("{major}.{minor}.{patch}")
    }

    fn errno(&self) -> c_int {
        // SAFETY: it has no arguments and returns a number of this thread.
        unsafe { (self.functions.errno)() }
    }

    fn failure(&self) -> anyhow::Error {
        // SAFETY: the library returns a static string for every number.
        let text = unsafe { CStr::from_ptr((self.functions.strerror)(self.errno())) };
        anyhow!("{}", text.to_string_lossy())
    }

    /// Repeats the call after EINTR.
    fn retry(&self, mut call: impl FnMut() -> c_int) -> Result<usize> {
        loop {
            match usize::try_from(call()) {
                Ok(value) => return Ok(value),
                Err(_) if self.errno() == libc::EINTR => {}
                Err(_) => return Err(self.failure()),
            }
        }
    }
}

/// The threads of a process, which its sockets share, as the library's guide advises.
struct ZmqContext {
    zmq: Rc<Zmq>,
    context: *mut c_void,
}

impl ZmqContext {
    /// That of this process, which starts with its first socket.
    fn of(zmq: &Rc<Zmq>) -> Result<Rc<Self>> {
        let (owner, known) = &mut *zmq.context.borrow_mut();
        if *owner == process::id() {
            if let Some(context) = known.upgrade() {
                return Ok(context);
            }
        }
        // SAFETY: it has no arguments.
        let context = unsafe { (zmq.functions.ctx_new)() };
        ensure!(
            !context.is_null(),
            "cannot create a ZeroMQ context: {}",
            zmq.failure()
        );
        let zmq = Rc::clone(zmq);
        let context = Rc::new(Self { zmq, context });
        (*owner, *known) = (process::id(), Rc::downgrade(&context));
        Ok(context)
    }
}

impl Drop for ZmqContext {
    /// Every socket has been closed.
    fn drop(&mut self) {
        let zmq = &self.zmq;
        // SAFETY: it was created once and is ended once.
        let _ = zmq.retry(|| unsafe { (zmq.functions.ctx_term)(self.context) });
    }
}

/// Create it after the fork, because threads start with it.
pub struct Socket {
    socket: *mut c_void,
    context: Rc<ZmqContext>,
}

impl Socket {
    pub fn new(zmq: Rc<Zmq>, kind: Kind) -> Result<Self> {
        let context = ZmqContext::of(&zmq)?;
        // SAFETY: the context is valid.
        let socket = unsafe { (zmq.functions.socket)(context.context, kind as c_int) };
        ensure!(
            !socket.is_null(),
            "cannot create a ZeroMQ socket: {}",
            zmq.failure()
        );
        let socket = Self { socket, context };
        socket.set(Setting::Linger, 0)?;
        Ok(socket)
    }

    fn call(&self, mut function: impl FnMut(&Zmq, *mut c_void) -> c_int) -> Result<usize> {
        let zmq = &*self.context.zmq;
        zmq.retry(|| function(zmq, self.socket))
    }

    fn set(&self, setting: Setting, value: c_int) -> Result<()> {
        self.set_bytes(setting, &value.to_ne_bytes())
    }

    fn set_bytes(&self, setting: Setting, value: &[u8]) -> Result<()> {
        let (number, start, len) = (setting as c_int, value.as_ptr().cast(), value.len());
        // SAFETY: the socket is open, and the library copies `len` bytes, which are a c_int or a prefix.
        let set = self
            .call(|zmq, socket| unsafe { (zmq.functions.setsockopt)(socket, number, start, len) });
        set.map(drop)
            .context("cannot set an option of a ZeroMQ socket")
    }

    /// All subscriptions are received, and messages are neither dropped for a slow receiver nor when the socket is closed.
    /// Of a publishing socket.
    pub fn deliver_all(&self) -> Result<()> {
        self.set(Setting::XPubVerbose, 1)?;
        self.set(Setting::XPubNoDrop, 1)?;
        self.set(Setting::Linger, DELIVERY_MS)
    }

    pub fn subscribe_to_all(&self) -> Result<()> {
        self.set_bytes(Setting::Subscribe, b"")
    }

    pub fn bind(&self, endpoint: &str) -> Result<()> {
        let name = CString::new(endpoint)?;
        // SAFETY: the socket is open and the string is NUL-terminated.
        self.call(|zmq, socket| unsafe { (zmq.functions.bind)(socket, name.as_ptr()) })
            .with_context(|| format!("cannot bind {endpoint}"))?;
        Ok(())
    }

    /// Connects now, or once the peer has bound its socket.
    pub fn connect(&self, endpoint: &str) -> Result<()> {
        self.set(Setting::ReconnectInterval, RECONNECT_MS)?;
        let name = CString::new(endpoint)?;
        // SAFETY: the socket is open and the string is NUL-terminated.
        self.call(|zmq, socket| unsafe { (zmq.functions.connect)(socket, name.as_ptr()) })
            .with_context(|| format!("cannot connect to {endpoint}"))?;
        Ok(())
    }

    pub fn send(&self, message: &[u8]) -> Result<()> {
        let (start, len) = (message.as_ptr().cast(), message.len());
        // SAFETY: the socket is open, and the library reads at most `len` bytes.
        let sent = self.call(|zmq, socket| unsafe { (zmq.functions.send)(socket, start, len, 0) });
        sent.map(drop).context("cannot send a message")
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
            Err(_) if self.context.zmq.errno() == libc::EAGAIN => return Ok(None),
            other => other.context("cannot receive a message")?,
        };
        ensure_fits(len, message.len())?;
        Ok(Some(len))
    }

    fn receive_with(&self, message: &mut [u8], flags: c_int) -> Result<usize> {
        let (start, len) = (message.as_mut_ptr().cast(), message.len());
        // SAFETY: the socket is open, and the library writes at most `len` bytes.
        self.call(|zmq, socket| unsafe { (zmq.functions.recv)(socket, start, len, flags) })
    }
}

impl Drop for Socket {
    /// Unsent messages are discarded; the sender waits for their delivery before.
    fn drop(&mut self) {
        // SAFETY: it was created once and is closed once.
        unsafe { (self.context.zmq.functions.close)(self.socket) };
    }
}

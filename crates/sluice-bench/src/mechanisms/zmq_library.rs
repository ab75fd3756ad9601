// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few functions of libzmq that are used, loaded when the program runs: whoever builds it needs no ZeroMQ, and whoever
//! measures without one misses only its row.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};
use libloading::Library;

const FILE: &str = "libzmq.so.5";
const SOON_MS: c_int = 10;

/// Options of sockets, as the library numbers them.
#[derive(Clone, Copy)]
#[repr(i32)]
enum Setting {
    /// How long closing waits for what has not gone out, in milliseconds.
    Linger = 17,
    /// How soon to connect again, in milliseconds.
    ReconnectInterval = 18,
}

/// What a socket is for, as the library numbers it.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Kind {
    Pull = 7,
    Push = 8,
}

pub struct Zmq {
    ctx_new: unsafe extern "C" fn() -> *mut c_void,
    ctx_term: unsafe extern "C" fn(*mut c_void) -> c_int,
    socket: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
    setsockopt: unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize) -> c_int,
    bind: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    connect: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    send: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> c_int,
    recv: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int) -> c_int,
    errno: unsafe extern "C" fn() -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    /// Last: the functions are only there while it is.
    _library: Library,
}

impl Zmq {
    pub fn load() -> Result<Self> {
        // SAFETY: what runs on loading is the library's own setting up, which asks nothing of us.
        let library = unsafe { Library::new(FILE) }?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the types above are those that zmq.h has declared since 4.0.
                *unsafe { library.get($name) }?
            };
        }
        Ok(Self {
            ctx_new: function!(b"zmq_ctx_new\0"),
            ctx_term: function!(b"zmq_ctx_term\0"),
            socket: function!(b"zmq_socket\0"),
            close: function!(b"zmq_close\0"),
            setsockopt: function!(b"zmq_setsockopt\0"),
            bind: function!(b"zmq_bind\0"),
            connect: function!(b"zmq_connect\0"),
            send: function!(b"zmq_send\0"),
            recv: function!(b"zmq_recv\0"),
            errno: function!(b"zmq_errno\0"),
            strerror: function!(b"zmq_strerror\0"),
            _library: library,
        })
    }

    fn errno(&self) -> c_int {
        // SAFETY: it takes nothing and returns a number of this thread.
        unsafe { (self.errno)() }
    }

    fn failure(&self) -> anyhow::Error {
        // SAFETY: the library returns a text that lives as long as it does, for every number.
        let text = unsafe { CStr::from_ptr((self.strerror)(self.errno())) };
        anyhow!("{}", text.to_string_lossy())
    }

    /// Again and again while a signal comes in between.
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

/// With a context of its own, whose threads begin with it: to be made after the fork.
pub struct Socket {
    zmq: Rc<Zmq>,
    context: *mut c_void,
    socket: *mut c_void,
}

impl Socket {
    pub fn new(zmq: Rc<Zmq>, kind: Kind) -> Result<Self> {
        // SAFETY: it takes nothing.
        let context = unsafe { (zmq.ctx_new)() };
        if context.is_null() {
            return Err(zmq.failure()).context("cannot make a ZeroMQ context");
        }
        // SAFETY: the context was just made.
        let socket = unsafe { (zmq.socket)(context, kind as c_int) };
        if socket.is_null() {
            let failure = zmq.failure();
            // SAFETY: the context was just made and has no socket.
            unsafe { (zmq.ctx_term)(context) };
            return Err(failure).context("cannot make a ZeroMQ socket");
        }
        let socket = Self {
            zmq,
            context,
            socket,
        };
        socket.set(Setting::Linger, 0)?;
        Ok(socket)
    }

    fn set(&self, setting: Setting, value: c_int) -> Result<()> {
        // SAFETY: each of these settings is one c_int, of which the library makes a copy.
        let set = self.zmq.retry(|| unsafe {
            (self.zmq.setsockopt)(
                self.socket,
                setting as c_int,
                (&raw const value).cast(),
                size_of::<c_int>(),
            )
        });
        set.context("cannot set up a ZeroMQ socket")?;
        Ok(())
    }

    pub fn bind(&self, endpoint: &str) -> Result<()> {
        self.attach(self.zmq.bind, endpoint)
            .with_context(|| format!("cannot bind {endpoint}"))
    }

    /// Now, or soon after the other side binds.
    pub fn connect(&self, endpoint: &str) -> Result<()> {
        self.set(Setting::ReconnectInterval, SOON_MS)?;
        self.attach(self.zmq.connect, endpoint)
            .with_context(|| format!("cannot connect to {endpoint}"))
    }

    fn attach(
        &self,
        function: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
        endpoint: &str,
    ) -> Result<()> {
        let endpoint = CString::new(endpoint)?;
        // SAFETY: the socket is open and the text ends with zero.
        self.zmq
            .retry(|| unsafe { function(self.socket, endpoint.as_ptr()) })
            .map(drop)
    }

    pub fn send(&self, message: &[u8]) -> Result<()> {
        // SAFETY: the socket is open, and the library reads as many bytes as there are.
        let sent = self.zmq.retry(|| unsafe {
            (self.zmq.send)(self.socket, message.as_ptr().cast(), message.len(), 0)
        });
        sent.context("cannot send a message")?;
        Ok(())
    }

    pub fn receive(&self, message: &mut [u8]) -> Result<usize> {
        // SAFETY: the socket is open, and the library writes no more bytes than there are.
        let received = self.zmq.retry(|| unsafe {
            (self.zmq.recv)(self.socket, message.as_mut_ptr().cast(), message.len(), 0)
        });
        let len = received.context("cannot receive a message")?;
        ensure!(
            len <= message.len(),
            "a message of {len} bytes does not fit where {} were expected",
            message.len()
        );
        Ok(len)
    }
}

impl Drop for Socket {
    /// Whoever needs what was sent to arrive waits for that before.
    fn drop(&mut self) {
        // SAFETY: both were made once and end here.
        unsafe { (self.zmq.close)(self.socket) };
        // SAFETY: as above.
        let _ = self
            .zmq
            .retry(|| unsafe { (self.zmq.ctx_term)(self.context) });
    }
}

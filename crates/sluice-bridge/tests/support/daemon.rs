// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon; the test is its service manager.

#![allow(dead_code, reason = "each program of tests uses a part")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{IoSliceMut, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::unistd::Pid;

use super::{Server, until};

/// A daemon, and what a service manager does for it.
pub struct Bridge {
    id: String,
    urls: Vec<String>,
    config: PathBuf,
    log: PathBuf,
    notify: PathBuf,
    pub kept: Arc<Mutex<BTreeMap<String, OwnedFd>>>,
    is_ready: Arc<AtomicBool>,
    child: Option<Child>,
}

impl Bridge {
    /// With these lines after the server.
    pub fn start(server: &Server, id: &str, rules: &str) -> Self {
        let log = server.directory().join(format!("{id}-log"));
        Self::with(server.directory(), log, id, &[server.url()], rules)
    }

    /// `directory` is for its files, without the log.
    pub fn with(directory: &Path, log: PathBuf, id: &str, urls: &[String], rules: &str) -> Self {
        let path = |name: &str| directory.join(format!("{id}-{name}"));
        let socket = UnixDatagram::bind(path("notify")).unwrap();
        let mut bridge = Self {
            id: id.to_owned(),
            urls: urls.to_vec(),
            config: path("bridge.toml"),
            log,
            notify: path("notify"),
            kept: Arc::default(),
            is_ready: Arc::default(),
            child: None,
        };
        let (kept, is_ready) = (Arc::clone(&bridge.kept), Arc::clone(&bridge.is_ready));
        thread::spawn(move || manage(&socket, &kept, &is_ready));
        bridge.configure(rules);
        bridge.restart();
        bridge
    }

    pub fn configure(&self, rules: &str) {
        let (id, urls) = (&self.id, &self.urls);
        let text = format!("id = \"{id}\"\nserver = {{ urls = {urls:?} }}\n{rules}");
        fs::write(&self.config, text).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    }

    /// Limits the addresses of the process to those that it has and this number of bytes.
    pub fn limit_memory(&self, more: Option<u64>) {
        let pid = self.child.as_ref().unwrap().id();
        let used = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        let pages: u64 = used.split(' ').next().unwrap().parse().unwrap();
        let limit = more.map_or(libc::RLIM_INFINITY, |more| pages * 4096 + more);
        let limit = libc::rlimit {
            rlim_cur: limit,
            rlim_max: libc::RLIM_INFINITY,
        };
        let (pid, old) = (pid as libc::pid_t, std::ptr::null_mut());
        // SAFETY: the limit is valid.
        let changed = unsafe { libc::prlimit(pid, libc::RLIMIT_AS, &limit, old) };
        assert_eq!(changed, 0);
    }

    pub fn reload(&self) {
        self.is_ready.store(false, Ordering::SeqCst);
        self.signal(Signal::SIGHUP);
        until("the bridge is ready", || {
            self.is_ready.load(Ordering::SeqCst)
        });
    }

    /// As the service manager starts it: with the descriptors that it has kept from 3 on.
    pub fn restart(&mut self) {
        self.is_ready.store(false, Ordering::SeqCst);
        let kept = self.kept.lock().unwrap();
        let names: Vec<&str> = kept.keys().map(String::as_str).collect();
        let high = |fd: &OwnedFd| fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(100)).unwrap();
        let passed: Vec<RawFd> = kept.values().map(high).collect();
        let log = File::options()
            .append(true)
            .create(true)
            .open(&self.log)
            .unwrap();
        // Only the shell knows its process before it becomes the daemon.
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "LISTEN_PID=$$ exec \"$0\" run --config \"$1\"",
            env!("CARGO_BIN_EXE_sluice-bridge"),
        ]);
        command
            .arg(&self.config)
            .env("NOTIFY_SOCKET", &self.notify)
            .stderr(log);
        command
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"));
        let duplicated = passed.clone();
        // SAFETY: dup2(2) may be called between fork and exec.
        unsafe {
            command.pre_exec(move || {
                for (target, fd) in (3..).zip(&duplicated) {
                    libc::dup2(*fd, target);
                }
                Ok(())
            });
        }
        self.child = Some(command.spawn().unwrap());
        for fd in passed {
            // SAFETY: this is a duplicate of this function's own.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        drop(kept);
        let is_ready = Arc::clone(&self.is_ready);
        until("the bridge is ready", || is_ready.load(Ordering::SeqCst));
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends it as the service manager does, and returns its log.
    pub fn stop(mut self) -> String {
        self.signal(Signal::SIGTERM);
        let mut child = self.child.take().unwrap();
        let status = child.wait().unwrap();
        let log = self.log();
        assert!(status.success(), "{status}: {log}");
        log
    }

    pub fn log(&self) -> String {
        let mut log = String::new();
        File::open(&self.log)
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        log
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
            eprintln!("{}", self.log());
        }
    }
}

/// The side of the service manager of sd_notify(3).
fn manage(socket: &UnixDatagram, kept: &Mutex<BTreeMap<String, OwnedFd>>, is_ready: &AtomicBool) {
    loop {
        let mut bytes = [0; 4096];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut control = nix::cmsg_space!([RawFd; 4]);
        let Ok(message) = recvmsg::<()>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut control),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) else {
            return;
        };
        let len = message.bytes;
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for control in message.cmsgs().unwrap() {
            if let ControlMessageOwned::ScmRights(fds) = control {
                // SAFETY: the kernel has just created them.
                descriptors.extend(
                    fds.into_iter()
                        .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                );
            }
        }
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::to_owned)
        };
        let name = value("FDNAME=").unwrap_or_default();
        let mut kept = kept.lock().unwrap();
        if value("FDSTORE=").is_some() {
            kept.extend(descriptors.pop().map(|fd| (name, fd)));
        } else if value("FDSTOREREMOVE=").is_some() {
            kept.remove(&name);
        } else if value("READY=").is_some() {
            is_ready.store(true, Ordering::SeqCst);
        }
    }
}

/// The metrics of a bridge at this socket.
pub fn metrics(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Runs a function as another user, whom the kernel knows as the opener of what it opens.
pub fn as_user<T: Send + 'static>(uid: u32, function: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        // SAFETY: of this thread only, which ends. The C library would change all threads.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
        assert_eq!(changed, 0);
        function()
    });
    thread.join().unwrap()
}

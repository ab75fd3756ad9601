// SPDX-License-Identifier: MIT OR Apache-2.0
//! POSIX message queues. They do not report the death of the peer, so a sender blocks after its receiver died until the
//! harness kills it. There are two depths: the maximum without privileges, 10 messages by default, and 1 MiB of messages,
//! for which the limits are raised.

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use nix::mqueue::{
    MQ_OFlag, MqAttr, MqdT, mq_attr_member_t, mq_close, mq_open, mq_receive, mq_send, mq_unlink,
};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::stat::Mode;

use super::link::MarksEnd;
use super::mechanism::failure;
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

const MAX_BYTES: &str = "fs.mqueue.msgsize_max";
const MAX_MESSAGES: &str = "fs.mqueue.msg_max";
const PRIORITY: u32 = 0;
/// The total size of messages in a deep queue.
const CAPACITY: usize = 1 << 20;
/// The most messages that the kernel allows in a queue with privileges.
const MOST_MESSAGES: usize = 65_536;
const FEWEST_MESSAGES: usize = 10;

pub fn mechanisms() -> [Mechanism; 2] {
    let deep = of_queues("posix-mq-deep", deep_queue).labelled("posix-mq-deep (1 MiB)");
    [of_queues("posix-mq", default_queue), deep]
}

fn default_queue(size: usize) -> Result<Queue> {
    // A privileged process could exceed it.
    let most = limit(MAX_BYTES)?;
    ensure!(
        size <= most,
        "its messages are limited to {most} bytes; raise the limit with sysctl {MAX_BYTES}={size}"
    );
    Queue::new(size, limit(MAX_MESSAGES)?)
}

fn of_queues(name: &'static str, queue: fn(usize) -> Result<Queue>) -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(move |task| failure(queue(task.size))),
        ..Mechanism::new(name, Waiting::Sleep, move |size| {
            let sender = |queue| Ok(MarksEnd(queue));
            Ok(Link::new(queue(size)?, sender, Ok))
        })
    }
}

/// The limit of the bytes in queues is raised meanwhile, as far as this process may.
fn deep_queue(size: usize) -> Result<Queue> {
    let depth = (CAPACITY / size).clamp(FEWEST_MESSAGES, MOST_MESSAGES);
    let (soft, hard) = getrlimit(Resource::RLIMIT_MSGQUEUE)?;
    let raised = setrlimit(Resource::RLIMIT_MSGQUEUE, RLIM_INFINITY, RLIM_INFINITY);
    let queue = Queue::new(size, depth);
    if raised.is_ok() {
        setrlimit(Resource::RLIMIT_MSGQUEUE, soft, hard)?;
    }
    queue
}

fn limit(name: &str) -> Result<usize> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    let text = fs::read_to_string(path).with_context(|| {
        format!("there is no {name}; use a kernel that has it, and mount /proc")
    })?;
    Ok(text.trim().parse()?)
}

struct Queue(MqdT);

impl Queue {
    /// Without a name: both processes inherit the descriptor.
    fn new(size: usize, depth: usize) -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let unique = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("/sluice-bench-{}-{unique}", std::process::id());
        let number = mq_attr_member_t::try_from;
        let attributes = MqAttr::new(0, number(depth)?, number(size)?, 0);
        let flags = MQ_OFlag::O_CREAT | MQ_OFlag::O_EXCL | MQ_OFlag::O_RDWR;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let queue = mq_open(name.as_str(), flags, mode, Some(&attributes)).with_context(|| {
            format!(
                "cannot create a queue of {depth} messages of {size} bytes; it needs CAP_SYS_RESOURCE, or \
                 'sysctl {MAX_MESSAGES}={depth} {MAX_BYTES}={size}' and more bytes by 'ulimit -q'"
            )
        })?;
        let queue = Self(queue);
        mq_unlink(name.as_str()).context("cannot remove the name of a message queue")?;
        Ok(queue)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: self owns the descriptor and is not used again.
        let queue = unsafe { MqdT::from_raw_fd(self.0.as_raw_fd()) };
        mq_close(queue).expect("the descriptor is open");
    }
}

impl Sender for Queue {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        mq_send(&self.0, message, PRIORITY).context("cannot send a message")
    }
}

impl Receiver for Queue {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        mq_receive(&self.0, message, &mut 0).context("cannot receive a message")
    }
}

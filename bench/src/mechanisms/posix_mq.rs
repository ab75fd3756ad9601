// SPDX-License-Identifier: MIT OR Apache-2.0
//! POSIX message queues. They do not report the death of the peer: an empty message marks the end, and a sender blocks
//! after its receiver died until the harness kills it. There are two depths: the maximum without privileges, 10 messages
//! by default, and 1 MiB of messages, for which the limits are raised.

use std::os::fd::{AsRawFd, FromRawFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mqueue::{
    MQ_OFlag, MqAttr, MqdT, mq_attr_member_t, mq_close, mq_open, mq_receive, mq_send, mq_unlink,
};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::stat::Mode;

use super::mechanism::no_file;
use super::temp_paths::unique_name;
use super::{Link, Mechanism, Receiver, Sender, sysctl};
use crate::harness::waiting::Waiting;

const MAX_BYTES: &str = "fs.mqueue.msgsize_max";
const MAX_MESSAGES: &str = "fs.mqueue.msg_max";
const PRIORITY: u32 = 0;
/// The total size of messages in a deep queue.
const CAPACITY: usize = 1 << 20;
/// The most messages that the kernel allows in a queue with privileges.
const MOST_MESSAGES: usize = 65_536;
const FEWEST_MESSAGES: usize = 10;

pub fn deep() -> Mechanism {
    Mechanism {
        label: "posix-mq-deep (1 MiB)".into(),
        unsupported_reason: Box::new(|task| {
            no_file(task).or_else(|| {
                let error = Queue::deep(&unique_name(), task.size).err()?;
                Some(format!("{error:#}"))
            })
        }),
        ..Mechanism::new("posix-mq-deep", Waiting::Sleep, |size| {
            Ok(link(Queue::deep(&unique_name(), size)?))
        })
    }
}

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|task| {
            no_file(task).or_else(|| sysctl::unsupported_reason(&[MAX_BYTES], task.size))
        }),
        ..Mechanism::new("posix-mq", Waiting::Sleep, |size| {
            Ok(link(Queue::new(&unique_name(), size)?))
        })
    }
}

fn link(queue: Queue) -> Link {
    Link::new(queue, |queue| Ok(Input(queue)), |queue| Ok(Output(queue)))
}

struct Queue(MqdT);

impl Queue {
    fn new(name: &str, size: usize) -> Result<Self> {
        let depth = sysctl::read(MAX_MESSAGES)
            .with_context(|| format!("cannot read {MAX_MESSAGES}; check that /proc is mounted"))?;
        Self::create(name, size, depth)
    }

    /// Beyond the limits of processes without privileges, unless they were raised.
    fn deep(name: &str, size: usize) -> Result<Self> {
        let depth = (CAPACITY / size).clamp(FEWEST_MESSAGES, MOST_MESSAGES);
        let _raised = RaisedLimit::of_bytes();
        Self::create(name, size, depth)
    }

    fn create(name: &str, size: usize, depth: usize) -> Result<Self> {
        let attributes = MqAttr::new(
            0,
            mq_attr_member_t::try_from(depth)?,
            mq_attr_member_t::try_from(size)?,
            0,
        );
        let flags = MQ_OFlag::O_CREAT | MQ_OFlag::O_EXCL | MQ_OFlag::O_RDWR;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let queue = mq_open(name, flags, mode, Some(&attributes))
            .map_err(|errno| open_error(errno, depth, size))?;
        // Both processes inherit the descriptor; the name is not needed.
        mq_unlink(name).context("cannot remove the name of a message queue")?;
        Ok(Self(queue))
    }
}

fn open_error(errno: Errno, depth: usize, size: usize) -> anyhow::Error {
    let advice = match errno {
        Errno::EMFILE => "; raise the limit of bytes in queues with 'ulimit -q'".into(),
        Errno::ENOSPC => "; raise the limit of queues with 'sysctl fs.mqueue.queues_max'".into(),
        Errno::EINVAL => too_low(depth, size),
        _ => String::new(),
    };
    anyhow::Error::new(errno).context(format!(
        "cannot create a queue of {depth} messages of {size} bytes{advice}"
    ))
}

/// Names the limits that are too low.
fn too_low(depth: usize, size: usize) -> String {
    let needed = [(MAX_MESSAGES, depth), (MAX_BYTES, size)];
    let exceeded = needed
        .iter()
        .filter(|(limit, needed)| sysctl::read(limit).is_some_and(|most| most < *needed))
        .map(|(limit, needed)| format!(" {limit}={needed}"));
    let exceeded: String = exceeded.collect();
    format!("; it needs CAP_SYS_RESOURCE, or 'sysctl{exceeded}'")
}

/// No limit of the bytes in queues, as far as this process may raise it, until it is dropped.
struct RaisedLimit {
    before: Option<(rlim_t, rlim_t)>,
}

impl RaisedLimit {
    fn of_bytes() -> Self {
        let before = getrlimit(Resource::RLIMIT_MSGQUEUE).ok();
        let raised = setrlimit(Resource::RLIMIT_MSGQUEUE, RLIM_INFINITY, RLIM_INFINITY);
        Self {
            before: before.filter(|_| raised.is_ok()),
        }
    }
}

impl Drop for RaisedLimit {
    /// Lowering it is always allowed.
    fn drop(&mut self) {
        if let Some((soft, hard)) = self.before {
            let _ = setrlimit(Resource::RLIMIT_MSGQUEUE, soft, hard);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: self owns the descriptor and is not used again.
        let queue = unsafe { MqdT::from_raw_fd(self.0.as_raw_fd()) };
        mq_close(queue).expect("the descriptor is open");
    }
}

struct Input(Queue);

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        mq_send(&self.0.0, message, PRIORITY).context("cannot send a message")
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // An error means that the receiver has ended.
        let _ = self.send(&[]);
    }
}

struct Output(Queue);

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        mq_receive(&self.0.0, message, &mut 0).context("cannot receive a message")
    }
}

#[cfg(test)]
mod tests {
    use nix::mqueue::mq_getattr;

    use super::*;

    #[test]
    fn a_queue_has_the_maximum_depth_and_no_name() {
        let name = unique_name();
        let queue = Queue::new(&name, 100).unwrap();
        let attributes = mq_getattr(&queue.0).unwrap();
        assert_eq!(attributes.msgsize(), 100);
        assert_eq!(
            attributes.maxmsg() as usize,
            sysctl::read(MAX_MESSAGES).unwrap()
        );
        let again = mq_open(name.as_str(), MQ_OFlag::O_RDWR, Mode::empty(), None);
        assert_eq!(again.unwrap_err(), Errno::ENOENT);
    }

    #[test]
    fn a_deep_queue_is_deeper_or_says_what_to_raise() {
        let limit = || getrlimit(Resource::RLIMIT_MSGQUEUE).unwrap();
        let before = limit();
        match Queue::deep(&unique_name(), 1024) {
            Ok(queue) => assert_eq!(mq_getattr(&queue.0).unwrap().maxmsg(), 1024),
            Err(error) => assert!(format!("{error:#}").contains("sysctl"), "{error:#}"),
        }
        assert_eq!(limit(), before);
    }

    #[test]
    fn the_limits_of_queues_are_named() {
        let invalid = format!("{:#}", open_error(Errno::EINVAL, usize::MAX, 1));
        assert!(invalid.contains("sysctl fs.mqueue.msg_max="), "{invalid}");
        assert!(!invalid.contains("msgsize_max"), "{invalid}");
        let too_much = format!("{:#}", open_error(Errno::EMFILE, 10, 100_000));
        assert!(too_much.contains("ulimit -q"), "{too_much}");
    }
}

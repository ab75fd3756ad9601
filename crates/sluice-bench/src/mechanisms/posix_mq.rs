// SPDX-License-Identifier: MIT OR Apache-2.0
//! A POSIX message queue, as deep as everyone may have it. It knows nothing of who is at its other side: an empty message is
//! the end, and a sender whose receiver is dead waits until it is ended.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mqueue::{
    MQ_OFlag, MqAttr, MqdT, mq_attr_member_t, mq_close, mq_open, mq_receive, mq_send, mq_unlink,
};
use nix::sys::stat::Mode;

use super::{Link, Mechanism, Receiver, Sender, Task, Waiting, no_file, sysctl};

const MOST_BYTES: &str = "fs.mqueue.msgsize_max";
const MOST_MESSAGES: &str = "fs.mqueue.msg_max";
const PRIORITY: u32 = 0;

pub struct PosixMq;

impl Mechanism for PosixMq {
    fn name(&self) -> &'static str {
        "posix-mq"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        no_file(task).or_else(|| sysctl::obstacle(&[MOST_BYTES], task.size))
    }

    fn link(&self, size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(Queue::new(&fresh_name(), size)?))
    }
}

fn fresh_name() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("/sluice-bench-{}-{count}", std::process::id())
}

struct Queue(MqdT);

impl Queue {
    fn new(name: &str, size: usize) -> Result<Self> {
        let depth = sysctl::read(MOST_MESSAGES)
            .with_context(|| format!("cannot read {MOST_MESSAGES}; is /proc mounted?"))?;
        let attributes = MqAttr::new(
            0,
            mq_attr_member_t::try_from(depth)?,
            mq_attr_member_t::try_from(size)?,
            0,
        );
        let flags = MQ_OFlag::O_CREAT | MQ_OFlag::O_EXCL | MQ_OFlag::O_RDWR;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let queue = mq_open(name, flags, mode, Some(&attributes))
            .map_err(|errno| refusal(errno, depth, size))?;
        // Both processes inherit it; nobody needs its name.
        mq_unlink(name).context("cannot remove the name of a message queue")?;
        Ok(Self(queue))
    }
}

fn refusal(errno: Errno, depth: usize, size: usize) -> anyhow::Error {
    let advice = match errno {
        Errno::EMFILE => "; raise the limit on the bytes of this user's queues with 'ulimit -q'",
        Errno::ENOSPC => "; raise the limit on queues with 'sysctl fs.mqueue.queues_max'",
        _ => "",
    };
    anyhow::Error::new(errno).context(format!(
        "cannot make a queue of {depth} messages of {size} bytes{advice}"
    ))
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: self owns the descriptor and is not used again.
        let queue = unsafe { MqdT::from_raw_fd(self.0.as_raw_fd()) };
        mq_close(queue).expect("the descriptor is ours");
    }
}

impl Link for Queue {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(Input(*self)))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        Ok(Box::new(Output(*self)))
    }
}

struct Input(Queue);

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        mq_send(&self.0.0, message, PRIORITY).context("cannot send a message")
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // An error here means that no queue is left to say it in.
        let _ = self.send(&[]);
    }
}

struct Output(Queue);

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        mq_receive(&self.0.0, message, &mut 0).context("cannot receive a message")
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use nix::mqueue::mq_getattr;

    use super::*;

    #[test]
    fn a_queue_is_as_deep_as_it_may_be_and_has_no_name() {
        let name = fresh_name();
        let queue = Queue::new(&name, 100).unwrap();
        let attributes = mq_getattr(&queue.0).unwrap();
        assert_eq!(attributes.msgsize(), 100);
        assert_eq!(
            attributes.maxmsg() as usize,
            sysctl::read(MOST_MESSAGES).unwrap()
        );
        let again = mq_open(name.as_str(), MQ_OFlag::O_RDWR, Mode::empty(), None);
        assert_eq!(again.unwrap_err(), Errno::ENOENT);
    }

    #[test]
    fn a_queue_that_the_user_may_not_have_is_refused_with_advice() {
        let too_much = format!("{:#}", refusal(Errno::EMFILE, 10, 100_000));
        assert!(too_much.contains("ulimit -q"), "{too_much}");
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of entries that a thread reads from the store while the kernel takes the page before: a restoration of a large map then
//! needs the time of the slower one instead of that of both.
//!
//! The thread works on one page at a time, which is the one after the last that was asked for. What it has read is valid until the
//! next commit.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use crate::store::{MapId, PageLimit, StoredEntry};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub map: MapId,
    /// The key before the page.
    pub after: Vec<u8>,
    pub limit: PageLimit,
}

pub struct ReadAhead {
    /// None: the thread ends.
    requests: Option<Sender<Wanted>>,
    /// In the order of the requests. None: the page was not read.
    pages: Receiver<Option<Vec<StoredEntry>>>,
    /// What the thread reads or has read.
    pending: Option<Wanted>,
    /// Whether it is from before a commit.
    is_stale: bool,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// None: there is no thread.
    pub fn start(
        mut read: impl FnMut(&Wanted) -> Option<Vec<StoredEntry>> + Send + 'static,
    ) -> Option<Self> {
        let (requests, wanted) = channel::<Wanted>();
        let (results, pages) = channel();
        let work = move || {
            for wanted in wanted {
                if results.send(read(&wanted)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("read-ahead".into()).spawn(work);
        Some(Self {
            requests: Some(requests),
            pages,
            pending: None,
            is_stale: false,
            thread: Some(thread.ok()?),
        })
    }

    /// Begins to read a page, unless the thread still has another one.
    pub fn request(&mut self, wanted: Wanted) {
        if self.pending.is_some() {
            return;
        }
        let requests = self.requests.as_ref();
        if requests.is_some_and(|requests| requests.send(wanted.clone()).is_ok()) {
            self.pending = Some(wanted);
            self.is_stale = false;
        }
    }

    /// The page, if it was requested and is valid. Waits until it is read.
    pub fn take(&mut self, wanted: &Wanted) -> Option<Vec<StoredEntry>> {
        let pending = self.pending.take()?;
        let page = self.pages.recv().ok()?;
        page.filter(|_| pending == *wanted && !self.is_stale)
    }

    /// A commit may change what was read.
    pub fn invalidate(&mut self) {
        self.is_stale = true;
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it has been reported.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: PageLimit = PageLimit {
        entries: 2,
        bytes: 100,
    };

    fn wanted(map: i64, after: &str) -> Wanted {
        Wanted {
            map: MapId(map),
            after: after.into(),
            limit: LIMIT,
        }
    }

    /// A page with one entry that tells what was read.
    fn page(wanted: &Wanted) -> Vec<StoredEntry> {
        vec![StoredEntry {
            key: wanted.after.clone(),
            value: Vec::new(),
            version: wanted.map.0 as u64,
            expires_ns: 0,
        }]
    }

    fn started() -> ReadAhead {
        ReadAhead::start(|wanted| (wanted.map.0 != 9).then(|| page(wanted))).unwrap()
    }

    #[test]
    fn a_requested_page_is_taken_once() {
        let mut ahead = started();
        assert_eq!(ahead.take(&wanted(1, "a")), None);
        for after in ["a", "b"] {
            let wanted = wanted(1, after);
            ahead.request(wanted.clone());
            assert_eq!(ahead.take(&wanted), Some(page(&wanted)));
            assert_eq!(ahead.take(&wanted), None);
        }
    }

    #[test]
    fn another_page_is_not_taken_for_it() {
        let mut ahead = started();
        for other in [wanted(1, "b"), wanted(2, "a")] {
            ahead.request(wanted(1, "a"));
            assert_eq!(ahead.take(&other), None);
        }
        let wanted = wanted(1, "c");
        ahead.request(wanted.clone());
        assert_eq!(ahead.take(&wanted), Some(page(&wanted)));
    }

    #[test]
    fn a_page_from_before_a_commit_is_not_taken() {
        let mut ahead = started();
        let wanted = wanted(1, "a");
        ahead.request(wanted.clone());
        ahead.invalidate();
        assert_eq!(ahead.take(&wanted), None);
        ahead.request(wanted.clone());
        assert_eq!(ahead.take(&wanted), Some(page(&wanted)));
    }

    #[test]
    fn a_page_that_was_not_read_is_none() {
        let mut ahead = started();
        ahead.request(wanted(9, "a"));
        assert_eq!(ahead.take(&wanted(9, "a")), None);
        ahead.request(wanted(1, "a"));
        assert!(ahead.take(&wanted(1, "a")).is_some());
    }
}

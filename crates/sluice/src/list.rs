// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;
use std::vec;

use sluice_abi as abi;

use crate::error::{Error, Result};
use crate::info::ChannelInfo;
use crate::scope::Scope;
use crate::sys::Control;

/// Lists the channels of a scope, sorted by kind and name.
///
/// ```no_run
/// for channel in sluice::list(&sluice::Scope::own())? {
///     println!("{}", channel?.name);
/// }
/// # Ok::<(), sluice::Error>(())
/// ```
pub fn list(scope: &Scope) -> Result<List> {
    Ok(List {
        control: Control::open()?,
        scope: scope.clone(),
        cursor: Cursor::START,
        page: Vec::new().into_iter(),
        ended: false,
    })
}

/// The iterator that [`list`] returns. Every channel appears once; one that is created or removed during the iteration may be
/// missing, because the kernel returns a page of channels per call.
#[derive(Debug)]
pub struct List {
    control: Control,
    scope: Scope,
    cursor: Cursor,
    page: vec::IntoIter<abi::ChannelInfo>,
    ended: bool,
}

#[derive(Clone, Copy, Debug)]
struct Cursor {
    kind: u32,
    name: [u8; abi::NAME_SIZE],
}

impl Cursor {
    const START: Self = Self {
        kind: 0,
        name: [0; abi::NAME_SIZE],
    };
}

impl List {
    fn next_page(&mut self) -> Result<()> {
        let mut entries = vec![abi::ChannelInfo::EMPTY; abi::LIST_MAX];
        let Cursor { kind, name } = self.cursor;
        let count = self
            .control
            .list(self.scope.scope_fd(), kind, name, &mut entries)
            .map_err(|error| self.error(error))?;
        entries.truncate(count);
        self.ended = count == 0;
        if let Some(last) = entries.last() {
            self.cursor = Cursor {
                kind: last.kind,
                name: last.name,
            };
        }
        self.page = entries.into_iter();
        Ok(())
    }

    fn error(&self, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::EACCES) => Error::OutsideScope {
                scope: self.scope.to_string(),
            },
            Some(libc::EBADF) => self.scope.not_a_cgroup_directory(),
            _ => Error::io(format!("listing {}", self.scope), error),
        }
    }
}

/// An error ends the iteration.
impl Iterator for List {
    type Item = Result<ChannelInfo>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0 && !self.ended {
            if let Err(error) = self.next_page() {
                self.ended = true;
                return Some(Err(error));
            }
        }
        self.page.next().map(|info| Ok(info.into()))
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels of all kinds: their list, their state, and their removal.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use sluice::{ChannelInfo, Kind, List};

use crate::error::Result;
use crate::input::{given, text};
use crate::module::{
    SLUICE_KIND_BUS, SLUICE_KIND_FEED, SLUICE_KIND_MAP, SLUICE_KIND_PIPE, SLUICE_KIND_RING,
};
use crate::options::scope_at;
use crate::result::{call, give, put, put_next};

/// The state of a channel of any kind.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ChannelState {
    /// SLUICE_KIND_PIPE and others, or the number of a kind that this library does not know.
    pub kind: u32,
    /// Permission bits.
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    /// 1 if it exists without endpoints until it is unlinked.
    pub persistent: u32,
    /// Endpoints open for reading; of a ring or a feed, its consumer; of a bus, its subscribers.
    pub readers: u32,
    /// Endpoints open for writing; of a ring, its producer; of a feed, its publisher; of a bus, its senders.
    pub writers: u32,
    /// Calls that sleep on it.
    pub waiting: u32,
    /// Bytes.
    pub capacity: u64,
    /// Bytes written and not yet read; of a map, of its entries.
    pub bytes: u64,
    /// Since creation: messages of a bus, packets of a feed, changes of a map.
    pub messages: u64,
    /// Bytes that have passed, of a pipe or a ring.
    pub total_bytes: u64,
    /// Since creation: messages, packets or changes that receivers have lost.
    pub lost: u64,
    /// Messages that the receiver furthest behind has not received; of a durable map, changes that are not stored.
    pub lag: u64,
    /// 1 to 63 bytes and a zero.
    pub name: [c_char; 64],
    pub reserved: [u64; 4],
}

impl From<ChannelInfo> for ChannelState {
    fn from(info: ChannelInfo) -> Self {
        let mut name = [0; 64];
        for (to, from) in name.iter_mut().zip(info.name.as_bytes()) {
            *to = *from as c_char;
        }
        Self {
            kind: number(info.kind),
            permissions: info.mode,
            uid: info.uid,
            gid: info.gid,
            persistent: info.persistent.into(),
            readers: info.readers,
            writers: info.writers,
            waiting: info.waiting,
            capacity: info.capacity,
            bytes: info.bytes,
            messages: info.messages,
            total_bytes: info.total_bytes,
            lost: info.lost,
            lag: info.lag,
            name,
            reserved: [0; 4],
        }
    }
}

fn number(kind: Kind) -> u32 {
    match kind {
        Kind::Pipe => SLUICE_KIND_PIPE,
        Kind::Ring => SLUICE_KIND_RING,
        Kind::Feed => SLUICE_KIND_FEED,
        Kind::Bus => SLUICE_KIND_BUS,
        Kind::Map => SLUICE_KIND_MAP,
        Kind::Other(number) => number,
        _ => 0,
    }
}

/// # Safety
/// The name and the scope are NULL or texts.
unsafe fn channel(kind: u32, name: *const c_char, scope: *const c_char) -> Result<sluice::Channel> {
    // SAFETY: as the caller guarantees.
    let (name, scope) = unsafe { (text(name)?, scope_at(scope)?) };
    let channel = sluice::Channel::new(kind.into(), name)?;
    Ok(match scope {
        Some(scope) => channel.in_scope(scope),
        None => channel,
    })
}

/// Queries the state of a channel, which is not opened for it. The scope has the meaning of `scope` in struct sluice_channel. Feeds are in
/// the root scope, which NULL means for them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_channel_query(
    kind: u32,
    name: *const c_char,
    scope: *const c_char,
    state: Option<&mut MaybeUninit<ChannelState>>,
) -> c_int {
    put(state, || {
        // SAFETY: the conventions.
        Ok(unsafe { channel(kind, name, scope) }?.info()?)
    })
}

/// Removes the name. Open endpoints stay connected; a channel without endpoints is freed. The removal of a durable map waits
/// until the daemon has deleted its entries from the store, up to the deadline of the map.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_channel_unlink(
    kind: u32,
    name: *const c_char,
    scope: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        Ok(unsafe { channel(kind, name, scope) }?.unlink()?)
    })
}

/// Removes the name as sluice_channel_unlink() does, and ends the channel for the processes that have it open: their calls fail with
/// -EPIPE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_channel_destroy(
    kind: u32,
    name: *const c_char,
    scope: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        Ok(unsafe { channel(kind, name, scope) }?.destroy()?)
    })
}

/// A list of channels. One thread at a time may use it.
pub struct ChannelList(List);

/// Lists the channels of a scope, sorted by kind and name. The scope has the meaning of `scope` in struct sluice_channel; feeds are
/// in "/".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_channel_list_open(
    scope: *const c_char,
    list: Option<&mut MaybeUninit<*mut ChannelList>>,
) -> c_int {
    give(list, || {
        // SAFETY: the conventions.
        let scope = unsafe { scope_at(scope) }?.unwrap_or_else(sluice::Scope::own);
        Ok(ChannelList(sluice::list(&scope)?))
    })
}

/// The next channel: 1, or 0 after the last one. Every channel appears once; one that is created or removed meanwhile may be missing.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_channel_list_next(
    list: Option<&mut ChannelList>,
    state: Option<&mut MaybeUninit<ChannelState>>,
) -> c_int {
    put_next(state, || Ok(given(list)?.0.next().transpose()?))
}

/// Frees the list.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_channel_list_close(list: Option<Box<ChannelList>>) {
    drop(list);
}

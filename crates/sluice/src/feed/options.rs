// SPDX-License-Identifier: MIT OR Apache-2.0
use sluice_abi::{self as abi, feed};

use super::Feed;
use super::info::FeedInfo;
use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::options::{self, ChannelKind, sealed};
use crate::sys::Params;

/// The options to open a feed with. It has none: its publisher, a kernel module, creates it in the root scope, and destroys it.
pub type Options = options::Options<Feed>;

impl sealed::Sealed for Feed {}

impl ChannelKind for Feed {
    const KIND: Kind = Kind::Feed;
    type Info = FeedInfo;
    type OpenError = Error;
    type Own = ();

    fn query(channel: &Channel) -> Result<FeedInfo> {
        channel.state::<feed::Info>().map(FeedInfo::from)
    }
}

impl Feed {
    /// The feed of this name.
    pub fn named(name: impl AsRef<[u8]>) -> Options {
        Options::new(name)
    }
}

impl Options {
    /// Opens the feed.
    pub fn open(&self) -> Result<Feed> {
        self.open_endpoint(abi::OPEN_READ, 0, Params::None)
            .map(Feed::from)
    }
}

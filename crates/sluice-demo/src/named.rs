// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inside a container: channels of its own with a secret in each, and the search for those of another container.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sluice::{Channel, Error, Reader, Scope, Writer};

use crate::protocol::{Answer, Event, Findings};
use crate::worker::CGROUPS;

/// Channels that this container made, by name, each with an open end for both directions so that it stays.
#[derive(Default)]
pub struct Named {
    kept: Vec<(Channel, Reader, Writer)>,
}

impl Named {
    pub fn make(&mut self, names: &[String], secret: &str) -> Result<Event> {
        for name in names {
            let channel = Channel::new(name)?;
            let options = channel.options().nonblocking(true).create(true);
            let reader = options.reader()?;
            let mut writer = options.writer()?;
            writer
                .write_all(secret.as_bytes())
                .with_context(|| format!("cannot put bytes into the channel {name}"))?;
            self.kept.push((channel, reader, writer));
        }
        Ok(Event::Held)
    }

    /// Everything that could lead to the other's channels. Removes the shared name at the end.
    pub fn search(&self, shared: &str, theirs: &str) -> Result<Event> {
        let places = places()?;
        let findings = Findings {
            names: names(&Scope::own())?,
            places: places.len(),
            names_there: places
                .iter()
                .filter_map(|scope| names(scope).ok())
                .collect(),
            text: read_what_is_there(Channel::new(shared)?.options().nonblocking(true).reader()?)?,
            look_up: answer(Channel::new(theirs)?.info()),
            open: answer(Channel::new(theirs)?.options().nonblocking(true).reader()),
            remove: answer(Channel::new(theirs)?.unlink()),
            remove_shared: answer(Channel::new(shared)?.unlink()),
        };
        Ok(Event::Searched { findings })
    }

    pub fn recall(&self, name: &str) -> Result<Event> {
        let mut kept = self.kept.iter();
        let (_, reader, _) = kept
            .find(|(channel, _, _)| channel.name().as_bytes() == name.as_bytes())
            .with_context(|| format!("no channel {name} was made"))?;
        let text = read_what_is_there(reader)?;
        Ok(Event::Taken { text })
    }
}

pub fn look_up(name: &str) -> Result<Event> {
    let answer = answer(Channel::new(name)?.info());
    Ok(Event::LookedUp { answer })
}

fn answer<T>(result: Result<T, Error>) -> Answer {
    match result {
        Ok(_) => Answer::Done,
        Err(Error::NotFound { .. }) => Answer::NoSuchChannel,
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn names(scope: &Scope) -> Result<Vec<String>> {
    let names = sluice::list(scope)?.map(|channel| Ok(channel?.name.to_string()));
    names.collect()
}

/// Whatever could be the directory of a cgroup: what is in and above the mounted hierarchy, and all that is open.
fn places() -> Result<Vec<Scope>> {
    let mut folders: Vec<PathBuf> = Path::new(CGROUPS).ancestors().map(Path::to_owned).collect();
    folders.push(Path::new(CGROUPS).join(".."));
    folders.extend(folders_below(Path::new(CGROUPS))?);
    let mut places = folders
        .iter()
        .map(Scope::at)
        .collect::<sluice::Result<Vec<_>>>()?;
    places.extend(open_files()?);
    Ok(places)
}

fn folders_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(folders_below(&entry.path())?);
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn open_files() -> Result<Vec<Scope>> {
    let listed = fs::read_dir("/proc/self/fd").context("cannot list what is open")?;
    let numbers: Vec<RawFd> = listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    // The one that listed them is closed again.
    let open = numbers
        .into_iter()
        .filter(|number| Path::new(&format!("/proc/self/fd/{number}")).exists());
    open.map(|number| {
        // SAFETY: it was open a moment ago, and this process has one thread.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        Ok(Scope::from(fd.try_clone_to_owned()?))
    })
    .collect()
}

fn read_what_is_there(mut reader: impl Read) -> Result<String> {
    let mut bytes = vec![0; 4096];
    match reader.read(&mut bytes) {
        Ok(n) => bytes.truncate(n),
        Err(error) if error.kind() == ErrorKind::WouldBlock => bytes.clear(),
        Err(error) => return Err(error).context("cannot read from the channel"),
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

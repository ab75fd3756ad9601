// SPDX-License-Identifier: MIT OR Apache-2.0
//! The naive store of keys and values that the benchmark compares with. A comparison is only valid if it returns what was
//! set, and if no user can hang or crash the kernel.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn};
use crate::support::credentials::{NOBODY, become_user, drop_capabilities};
use crate::support::kernel::LoadedModule;
use crate::support::random::stream_bytes;
use crate::support::shared_map::{
    Answer, Client, GET, HEADER, MAX_ENTRIES, MAX_KEY, MAX_VALUE, SET, header,
};

topic!(
    "shared_map",
    fifo: [],
    pipe_only: [
        values_are_returned_unchanged,
        several_processes_get_whole_values_with_either_lock,
        invalid_requests_are_errors,
        keys_that_cannot_name_a_file_are_errors,
        only_an_administrator_may_use_it,
        the_number_of_entries_is_limited,
        values_are_written_to_files_and_loaded_from_them,
        files_that_it_cannot_load_are_skipped,
        a_link_is_not_written_through,
        without_the_directory_values_end_with_the_module,
        it_unloads_only_when_no_socket_is_open,
    ],
);

const PARAMETERS: &str = "/sys/module/shared_map/parameters";

fn load(context: &Context, directory: &Path) -> Result<LoadedModule> {
    let parameters = CString::new(format!("directory={}", directory.display()))?;
    LoadedModule::load(context.baseline("shared_map")?, c"shared_map", &parameters)?
        .context("loading the store")
}

/// Loads it without a directory; returns it with a client.
fn loaded(context: &Context) -> Result<(LoadedModule, Client)> {
    let module = load(context, &context.scratch.join("absent"))?;
    Ok((module, connect()?))
}

/// Loads it with an empty directory, which is returned, too.
fn loaded_with_files(context: &Context) -> Result<(LoadedModule, Client, PathBuf)> {
    let directory = context.scratch.join("values");
    fs::create_dir(&directory).context("creating the directory")?;
    Ok((load(context, &directory)?, connect()?, directory))
}

fn connect() -> Result<Client> {
    Client::connect().context("creating a socket")
}

fn expect_value(client: &mut Client, key: &[u8], value: &[u8]) -> Result<()> {
    match client.get(key)? {
        Answer::Value(bytes) => expect_bytes("the value", bytes, value),
        other => expect("the answer", other, Answer::Value(value)),
    }
}

fn values_are_returned_unchanged(context: &Context) -> Result<()> {
    let (_module, mut client) = loaded(context)?;
    let longest = vec![b'k'; MAX_KEY];
    for (number, key) in [&b"k"[..], b"a key, \xff\n..", &longest]
        .into_iter()
        .enumerate()
    {
        expect("a get before a set", client.get(key)?, Answer::NotFound)?;
        let lengths = [1, 0, 100, MAX_VALUE, 8];
        for (round, length) in lengths.into_iter().enumerate() {
            let value = stream_bytes(number as u64, round as u64, length);
            let answer = match round {
                0 => Answer::Created,
                _ => Answer::Updated,
            };
            expect("a set", client.set(key, &value)?, answer)?;
            expect_value(&mut client, key, &value)?;
            expect_value(&mut connect()?, key, &value)?;
        }
    }
    expect_value(&mut client, b"k", &stream_bytes(0, 4, 8))
}

fn set_parameter(name: &str, value: &str) -> Result<()> {
    fs::write(format!("{PARAMETERS}/{name}"), value).with_context(|| format!("setting {name}"))
}

/// Sets and gets the same keys as other processes. Each value is a repeated byte.
fn use_shared_keys(process: u8) -> Result<()> {
    const ROUNDS: usize = 80;
    let mut client = connect()?;
    for round in 0..ROUNDS {
        let key = format!("key {}", round % 3);
        let value = vec![process; MAX_VALUE - round];
        let answer = client.set(key.as_bytes(), &value)?;
        let set = matches!(answer, Answer::Created | Answer::Updated);
        ensure!(set, "a set: {answer:?}");
        match client.get(key.as_bytes())? {
            Answer::Value(bytes) => {
                ensure!(
                    bytes.iter().all(|byte| *byte == bytes[0]),
                    "parts of two values"
                );
            }
            other => ensure!(false, "a get: {other:?}"),
        }
    }
    Ok(())
}

fn spawn_users() -> Result<Vec<Child<()>>> {
    let users = (0..4).map(|process| spawn("a user", move || use_shared_keys(process)));
    users.collect()
}

fn several_processes_get_whole_values_with_either_lock(context: &Context) -> Result<()> {
    // Files make the lock be held for long, so that processes wait for it.
    let (_module, mut client, _) = loaded_with_files(context)?;
    for rwsem in ["N", "Y"] {
        set_parameter("rwsem", rwsem)?;
        let users = spawn_users()?;
        users.into_iter().try_for_each(Child::finish)?;
    }
    // The lock changes under the processes.
    let users = spawn_users()?;
    while !users[0].has_ended()? {
        set_parameter("rwsem", "N")?;
        set_parameter("rwsem", "Y")?;
    }
    users.into_iter().try_for_each(Child::finish)?;
    expect("a set", client.set(b"key 0", b"!")?, Answer::Updated)?;
    expect_value(&mut client, b"key 0", b"!")
}

fn expect_error(client: &mut Client, what: &str, parts: &[&[u8]], error: Errno) -> Result<()> {
    expect(what, client.exchange(parts)?, Answer::Error(error))
}

fn invalid_requests_are_errors(context: &Context) -> Result<()> {
    let (_module, mut client) = loaded(context)?;
    let whole = header(SET, 4, 5);
    for length in [0, 1, HEADER - 1] {
        expect_error(
            &mut client,
            "a short request",
            &[&whole[..length]],
            Errno::EINVAL,
        )?;
    }
    let key_and_value = b"key\0value";
    for (kind, key_length, value_length) in [
        (SET, 4, 4),
        (SET, 4, 6),
        (SET, 3, 6),
        (SET, 5, 4),
        (SET, 0, 9),
        (SET, -1, 10),
        (SET, 10, -1),
        (SET, i32::MIN, 9),
        (SET, 9, 0),
        (GET, 4, 5),
        (0, 4, 5),
        (3, 4, 5),
        (-1, 4, 5),
        (i32::MAX, 4, 5),
    ] {
        let header = header(kind, key_length, value_length);
        let what = format!("type {kind}, lengths {key_length} and {value_length}");
        expect_error(&mut client, &what, &[&header, key_and_value], Errno::EINVAL)?;
    }
    for (key_length, value_length, error) in [
        (4, i32::MAX, Errno::EMSGSIZE),
        (i32::MAX, 4, Errno::ENAMETOOLONG),
        (i32::MAX, i32::MAX, Errno::ENAMETOOLONG),
    ] {
        let header = header(SET, key_length, value_length);
        expect_error(
            &mut client,
            "long lengths",
            &[&header, key_and_value],
            error,
        )?;
    }
    let long_value = client.set(b"key", &vec![0; MAX_VALUE + 1])?;
    expect(
        "a value that is too long",
        long_value,
        Answer::Error(Errno::EMSGSIZE),
    )?;
    let long_key = client.set(&vec![b'k'; MAX_KEY + 1], b"")?;
    expect(
        "a key that is too long",
        long_key,
        Answer::Error(Errno::ENAMETOOLONG),
    )?;
    expect("a get", client.get(b"key")?, Answer::NotFound)
}

fn keys_that_cannot_name_a_file_are_errors(context: &Context) -> Result<()> {
    let (_module, mut client, directory) = loaded_with_files(context)?;
    for key in [&b""[..], b".", b"..", b"/", b"../escaped", b"a/b", b"k\0ey"] {
        let what = format!("key {}", key.escape_ascii());
        let answer = client.set(key, b"value")?;
        expect(&what, answer, Answer::Error(Errno::EINVAL))?;
        expect(&what, client.get(key)?, Answer::Error(Errno::EINVAL))?;
    }
    // A name that only looks like the parent directory.
    expect("key ...", client.set(b"...", b"value")?, Answer::Created)?;
    let files = fs::read_dir(&directory)?.count();
    expect("files in the directory", files, 1)?;
    expect(
        "whether a file is outside",
        context.scratch.join("escaped").exists(),
        false,
    )
}

fn only_an_administrator_may_use_it(context: &Context) -> Result<()> {
    let (_module, mut client) = loaded(context)?;
    expect("a set", client.set(b"key", b"value")?, Answer::Created)?;
    for drop_rights in [|| become_user(NOBODY), drop_capabilities] {
        let user = spawn("a user", move || {
            drop_rights()?;
            let mut client = connect()?;
            let answers = [
                matches!(client.get(b"key")?, Answer::Error(Errno::EPERM)),
                matches!(client.set(b"key", b"")?, Answer::Error(Errno::EPERM)),
            ];
            Ok(answers)
        })?;
        expect("whether both are EPERM", user.finish()?, [true, true])?;
    }
    let heir = spawn(
        "a process without rights with a socket of one with them",
        || {
            let mut client = connect()?;
            become_user(NOBODY)?;
            Ok(matches!(client.get(b"key")?, Answer::Error(Errno::EPERM)))
        },
    )?;
    expect("whether it is EPERM", heir.finish()?, true)?;
    expect_value(&mut client, b"key", b"value")
}

fn the_number_of_entries_is_limited(context: &Context) -> Result<()> {
    let (mut module, mut client) = loaded(context)?;
    for number in 0..MAX_ENTRIES {
        let key = number.to_string();
        expect("a set", client.set(key.as_bytes(), b"")?, Answer::Created)?;
    }
    let answer = client.set(b"one more", b"")?;
    expect("one more", answer, Answer::Error(Errno::ENOSPC))?;
    expect("an update", client.set(b"0", b"new")?, Answer::Updated)?;
    expect_value(&mut client, b"0", b"new")?;
    drop(client);
    module.unload().context("unloading")
}

fn values_are_written_to_files_and_loaded_from_them(context: &Context) -> Result<()> {
    let (mut module, mut client, directory) = loaded_with_files(context)?;
    let long = stream_bytes(1, 0, MAX_VALUE);
    let values = [("one", &b"first"[..]), ("other", &long), ("empty", b"")];
    for (key, value) in values {
        // What is longer before is truncated.
        client.set(key.as_bytes(), &[b'.'; 1000])?;
        expect(key, client.set(key.as_bytes(), value)?, Answer::Updated)?;
        let path = directory.join(key);
        expect_bytes(key, &fs::read(&path)?, value)?;
        let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
        expect("mode of the file", mode, 0o600)?;
    }
    set_parameter("files", "N")?;
    client.set(b"not written", b"value")?;
    drop(client);
    module.unload().context("unloading")?;
    let mut module = load(context, &directory)?;
    let mut client = connect()?;
    for (key, value) in values {
        expect_value(&mut client, key.as_bytes(), value)?;
    }
    let absent = client.get(b"not written")?;
    expect("what was not written", absent, Answer::NotFound)?;
    drop(client);
    module.unload().context("unloading again")
}

fn files_that_it_cannot_load_are_skipped(context: &Context) -> Result<()> {
    let directory = context.scratch.join("values");
    fs::create_dir(&directory)?;
    fs::write(directory.join("good"), b"value")?;
    fs::write(directory.join("long"), vec![0; MAX_VALUE + 1])?;
    fs::create_dir(directory.join("directory"))?;
    mkfifo(&directory.join("fifo"), Mode::S_IRWXU)?;
    symlink(directory.join("good"), directory.join("link"))?;
    let _module = load(context, &directory)?;
    let mut client = connect()?;
    expect_value(&mut client, b"good", b"value")?;
    for key in ["long", "directory", "fifo", "link"] {
        expect(key, client.get(key.as_bytes())?, Answer::NotFound)?;
    }
    for (key, error) in [
        ("directory", Errno::EISDIR),
        ("fifo", Errno::ENXIO),
        ("link", Errno::ELOOP),
    ] {
        let answer = client.set(key.as_bytes(), b"value")?;
        expect(key, answer, Answer::Error(error))?;
        // It is set all the same.
        expect_value(&mut client, key.as_bytes(), b"value")?;
    }
    Ok(())
}

fn a_link_is_not_written_through(context: &Context) -> Result<()> {
    let (_module, mut client, directory) = loaded_with_files(context)?;
    let target = context.scratch.join("target");
    fs::write(&target, b"unharmed")?;
    symlink(&target, directory.join("key"))?;
    let answer = client.set(b"key", b"value")?;
    expect("a set", answer, Answer::Error(Errno::ELOOP))?;
    expect_bytes("the target", &fs::read(&target)?, b"unharmed")
}

fn without_the_directory_values_end_with_the_module(context: &Context) -> Result<()> {
    let directory = context.scratch.join("absent");
    let (mut module, mut client) = loaded(context)?;
    expect("a set", client.set(b"key", b"value")?, Answer::Created)?;
    ensure!(!directory.exists(), "the directory was created");
    drop(client);
    module.unload().context("unloading")?;
    let (_module, mut client) = loaded(context)?;
    expect("a get", client.get(b"key")?, Answer::NotFound)
}

fn it_unloads_only_when_no_socket_is_open(context: &Context) -> Result<()> {
    let (mut module, mut client) = loaded(context)?;
    client.set(b"key", b"left behind")?;
    expect("unloading", module.unload(), Err(Errno::EWOULDBLOCK))?;
    drop(client);
    module.unload().context("unloading")?;
    let refused = Client::connect().err();
    let expected = Some(Errno::EPROTONOSUPPORT);
    expect("a socket without the module", refused, expected)
}

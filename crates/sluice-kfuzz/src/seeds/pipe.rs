// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::KIND_PIPE;

use super::calls::*;
use crate::program::{Call, Content, Value};

pub fn all() -> Vec<Vec<Call>> {
    vec![
        calls_of_a_pipe(),
        splices(),
        splices_that_wait(),
        readers_that_wait(),
        writers_that_wait(),
        signals(),
        faults(),
    ]
}

fn calls_of_a_pipe() -> Vec<Call> {
    vec![
        open(1, KIND_PIPE, READ | WRITE | CREATE | NONBLOCK, None),
        write(1, Content::Fill(b'p', 5000), 5000),
        poll(1),
        read(1, 4096),
        ioctl("SLUICE_PIPE_SET_CAPACITY", 1, &[("value", n(65536))]),
        ioctl("SLUICE_PIPE_SET_SPIN", 1, &[("value", n(1000))]),
        ioctl("SLUICE_PIPE_INFO", 1, &[]),
        ioctl("SLUICE_ENDPOINT_INFO", 1, &[]),
        state(KIND_PIPE, "sluice_pipe_info"),
        list(),
        ioctl("SLUICE_CTL_USAGE", 0, &[]),
        ioctl("SLUICE_CTL_FEATURES", 0, &[]),
        on_thread(1, read(1, 9000)),
        on_thread(2, write(1, Content::Fill(b'q', 20000), 20000)),
        remove(KIND_PIPE, "SLUICE_CTL_DESTROY"),
    ]
}

/// Moves pages or copies.
fn splice(from: u8, to: u8, length: u64, flags: u32) -> Call {
    let arguments = vec![
        Value::File(from),
        n(0),
        Value::File(to),
        n(0),
        n(length),
        n(flags.into()),
    ];
    call("splice", 0, arguments)
}

/// A pipe of the system in the slots 2 and 3.
fn system_pipe() -> Call {
    call("pipe2", 2, vec![at(Content::Fill(0, 8)), n(0)])
}

/// Gives whole pages to the pipe of the system.
fn give_pages(length: u64) -> Call {
    let vector = [("base", Value::Mapping(0, 0)), ("length", n(length))];
    let arguments = vec![
        Value::File(3),
        at(structure("iovec", &vector)),
        n(1),
        n(libc::SPLICE_F_GIFT.into()),
    ];
    call("vmsplice", 0, arguments)
}

fn splices() -> Vec<Call> {
    let flags = libc::SPLICE_F_NONBLOCK;
    vec![
        open(1, KIND_PIPE, READ | WRITE | CREATE, None),
        system_pipe(),
        write(1, Content::Fill(b'p', 9000), 9000),
        splice(1, 3, 8192, flags),
        splice(2, 1, 8192, flags),
        call(
            "tee",
            0,
            vec![Value::File(1), Value::File(3), n(4096), n(2)],
        ),
        read(1, 4096),
        fresh_memory(0, 16384),
        give_pages(16384),
        splice(2, 1, 16384, flags | libc::SPLICE_F_MOVE),
        read(1, 100),
        ioctl("SLUICE_PIPE_SET_CAPACITY", 1, &[("value", n(65536))]),
        splice(1, 3, 1000, flags | libc::SPLICE_F_MOVE),
        splice(1, 3, 16384, flags | libc::SPLICE_F_MOVE),
        ioctl("SLUICE_PIPE_INFO", 1, &[]),
        open(4, KIND_PIPE, READ | WRITE, None),
        splice(1, 4, 4096, flags),
    ]
}

fn splices_that_wait() -> Vec<Call> {
    vec![
        open(1, KIND_PIPE, READ | WRITE | CREATE, None),
        system_pipe(),
        on_thread(1, splice(1, 3, 4096, 0)),
        pause(),
        write(1, Content::Fill(b'p', 4096), 4096),
        fresh_memory(0, 65536),
        give_pages(32768),
        on_thread(1, splice(2, 1, 32768, 0)),
        pause(),
        read(1, 9000),
        pause(),
        remove(KIND_PIPE, "SLUICE_CTL_DESTROY"),
        splice(2, 1, 4096, 0),
    ]
}

fn readers_that_wait() -> Vec<Call> {
    vec![
        open(1, KIND_PIPE, READ | WRITE | CREATE, None),
        on_thread(1, read(1, 4096)),
        on_thread(2, read(1, 4096)),
        pause(),
        write(1, Content::Fill(b'p', 100), 100),
        write(1, Content::Fill(b'p', 100), 100),
        on_thread(1, read(1, 4096)),
        pause(),
        close(1),
        open(1, KIND_PIPE, READ | WRITE | CREATE, None),
        on_thread(2, read(1, 4096)),
        pause(),
        remove(KIND_PIPE, "SLUICE_CTL_DESTROY"),
    ]
}

fn writers_that_wait() -> Vec<Call> {
    let large = || write(1, Content::Fill(b'p', 40000), 40000);
    vec![
        open(1, KIND_PIPE, READ | WRITE | CREATE, None),
        on_thread(1, large()),
        on_thread(2, large()),
        pause(),
        read(1, 20000),
        pause(),
        read(1, 20000),
        ioctl("SLUICE_PIPE_SET_CAPACITY", 1, &[("value", n(4096))]),
        poll(1),
        pause(),
        remove(KIND_PIPE, "SLUICE_CTL_DESTROY"),
        large(),
    ]
}

/// SIGIO, which ends the process unless its number is that of SIGALRM.
fn signals() -> Vec<Call> {
    let set = |command: i32, value: i32| {
        let arguments = vec![Value::File(1), n(command as u64), n(value as u64)];
        call("fcntl", 0, arguments)
    };
    const F_SETSIG: i32 = 10;
    vec![
        open(1, KIND_PIPE, READ | WRITE | CREATE | NONBLOCK, None),
        set(F_SETSIG, libc::SIGALRM),
        set(libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK),
        write(1, Content::Fill(b'p', 100), 100),
        read(1, 100),
        set(libc::F_SETFL, libc::O_NONBLOCK),
        set(libc::F_SETFL, libc::O_ASYNC),
        close(1),
    ]
}

fn faults() -> Vec<Call> {
    vec![
        fresh_memory(0, 65536),
        open(1, KIND_PIPE, READ | WRITE | CREATE | NONBLOCK, None),
        write_from(1, 0, 9000),
        read_to(1, 0, 4096),
        fresh_memory(0, 65536),
        read_to(1, 0, 9000),
    ]
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of programs, beside the ioctls of the description: their numbers and what each argument is.

use crate::values::FileKind;

/// What an argument is.
#[derive(Clone, Copy)]
pub enum Kind {
    File(FileKind),
    /// One of these numbers; the last ones may be invalid.
    One(&'static [u64]),
    /// A sum of these.
    Bits(&'static [u64]),
    Number,
    Length,
    /// The length of the content of the argument before, or another one.
    LengthBefore,
    /// The number of structures in the argument before, or another one.
    CountBefore,
    /// Bytes to read or to write.
    Buffer,
    /// What write(2) takes: bytes, or frames of a bus.
    Messages,
    Structure(&'static str),
    /// Several of them.
    Array(&'static str),
    /// One of PATHS.
    Path,
    /// The beginning of the space of a mapping.
    Space,
    /// An address in it.
    Address,
    /// Requests of netlink.
    Requests,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    System(i64),
    Special(Special),
}

/// What is more than a system call.
#[derive(Clone, Copy, PartialEq)]
pub enum Special {
    /// fork(2); the child exits after so many milliseconds.
    Fork,
    /// Writes this number, of this many bytes, at an address.
    Store,
    /// Reads so many bytes at an address.
    Load,
    /// Enters the cgroup with this path.
    Enter,
    /// Reads the messages of a keeper, and answers them if the second argument is not 0.
    Answer,
    /// A request of io_uring.
    Submit,
    /// Waits for completions of io_uring.
    Complete,
}

pub struct Form {
    pub name: &'static str,
    pub way: Way,
    pub arguments: &'static [Kind],
    /// What it opens.
    pub opens: FileKind,
    /// How often it is chosen.
    pub weight: u32,
}

/// Paths that programs open. The cgroups are in the folder CGROUPS.
pub const CGROUPS: &str = "/sys/fs/cgroup/kfuzz";
pub const PATHS: [&str; 15] = [
    "/dev/sluice/pipe",
    "/dev/sluice/pipe",
    "/dev/sluice/feed",
    "/dev/sluice/ctl",
    "/dev/sluice/ctl",
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/kfuzz/root",
    "/sys/fs/cgroup/kfuzz/user",
    "/sys/fs/cgroup/kfuzz/root/a",
    "/sys/fs/cgroup/kfuzz/user/a",
    "/proc/self/fd/100",
    "/proc/self/fd/101",
    "/proc/self/fd/102",
    "/proc/self/fdinfo/101",
    "/dev/null",
];

const fn system(
    name: &'static str,
    number: i64,
    arguments: &'static [Kind],
    opens: FileKind,
    weight: u32,
) -> Form {
    Form {
        name,
        way: Way::System(number),
        arguments,
        opens,
        weight,
    }
}

const fn special(
    name: &'static str,
    what: Special,
    arguments: &'static [Kind],
    weight: u32,
) -> Form {
    Form {
        name,
        way: Way::Special(what),
        arguments,
        opens: FileKind::None,
        weight,
    }
}

use FileKind::{Any, Cgroup, Endpoint, Epoll, Keeper, Netlink, None, Other, Socket, SystemPipe};
use Kind::{
    Address, Array, Bits, Buffer, CountBefore, File, Length, LengthBefore, Messages, Number, One,
    Path, Requests, Space, Structure,
};

const OPEN_FLAGS: Kind = Bits(&[0, 1, 2, 2, 2, 0o4000, 0o4000, 0o10000, 0o2000, 0o10000000]);
const RWF: Kind = One(&[0, 0, 8, 8, 4, 1, 2, 16, 64]);
/// Of preadv2(2) and pwritev2(2).
const VECTORS_AT: &[Kind] = &[
    File(Any),
    Array("iovec"),
    CountBefore,
    One(&[u64::MAX, 0]),
    One(&[0]),
    RWF,
];
const SPLICE: Kind = Bits(&[1, 2, 4, 8]);
const EVENTS: Kind = Bits(&[1, 4, 0x10, 0x2000, 1 << 28, 1 << 29, 1 << 30, 1 << 31]);
const PROTECTION: Kind = One(&[1, 3, 1, 3, 0, 2, 4, 5, 7]);
const MAP_LENGTH: Kind = One(&[
    4096,
    4096,
    8192,
    8192,
    16384,
    32768,
    65536,
    131072,
    2 << 20,
    12288,
    1,
    0,
    1 << 28,
]);
const MAP_OFFSET: Kind = One(&[0, 1 << 20, 2 << 20, 0, 1 << 20, 2 << 20, 4096, 1 << 40]);
/// MAP_SHARED, MAP_PRIVATE and MAP_SHARED_VALIDATE at the fixed address of the space; MAP_POPULATE, MAP_LOCKED, MAP_ANONYMOUS.
const MAP_FLAGS: Kind = One(&[0x11, 0x11, 0x11, 0x8011, 0x12, 0x13, 0x2011, 0x32]);
const NULL: Kind = One(&[0]);
/// IORING_OP: NOP, READV, WRITEV, POLL_ADD, POLL_REMOVE, ASYNC_CANCEL, LINK_TIMEOUT, CLOSE, READ, WRITE, SPLICE, TEE, URING_CMD,
/// READ_MULTISHOT.
const OPERATIONS: Kind = One(&[
    22, 22, 22, 23, 23, 6, 6, 6, 7, 14, 14, 1, 2, 0, 15, 19, 30, 33, 46, 49,
]);

pub const FORMS: &[Form] = &[
    system(
        "openat",
        libc::SYS_openat,
        &[One(&[u64::MAX - 99]), Path, OPEN_FLAGS, One(&[0])],
        Any,
        8,
    ),
    system(
        "read",
        libc::SYS_read,
        &[File(Endpoint), Buffer, LengthBefore],
        None,
        30,
    ),
    system(
        "write",
        libc::SYS_write,
        &[File(Endpoint), Messages, LengthBefore],
        None,
        40,
    ),
    system(
        "read_keeper",
        libc::SYS_read,
        &[File(Keeper), Buffer, LengthBefore],
        None,
        2,
    ),
    system(
        "pread64",
        libc::SYS_pread64,
        &[File(Any), Buffer, LengthBefore, Number],
        None,
        1,
    ),
    system(
        "pwrite64",
        libc::SYS_pwrite64,
        &[File(Any), Messages, LengthBefore, Number],
        None,
        1,
    ),
    system(
        "readv",
        libc::SYS_readv,
        &[File(Endpoint), Array("iovec"), CountBefore],
        None,
        5,
    ),
    system(
        "writev",
        libc::SYS_writev,
        &[File(Endpoint), Array("iovec"), CountBefore],
        None,
        5,
    ),
    system("preadv2", libc::SYS_preadv2, VECTORS_AT, None, 6),
    system("pwritev2", libc::SYS_pwritev2, VECTORS_AT, None, 6),
    system(
        "lseek",
        libc::SYS_lseek,
        &[File(Any), Number, One(&[0, 1, 2, 3, 4])],
        None,
        1,
    ),
    system("fsync", libc::SYS_fsync, &[File(Any)], None, 1),
    system(
        "fallocate",
        libc::SYS_fallocate,
        &[File(Any), One(&[0, 1, 3]), Number, Number],
        None,
        1,
    ),
    system(
        "ftruncate",
        libc::SYS_ftruncate,
        &[File(Any), Number],
        None,
        1,
    ),
    system("fstat", libc::SYS_fstat, &[File(Any), Buffer], None, 1),
    system(
        "ioctl",
        libc::SYS_ioctl,
        &[
            File(Any),
            One(&[0x541b, 0x5421, 0x5452, 0xc700, 0xc7ff, 0xc720, 0xc756]),
            Buffer,
        ],
        None,
        3,
    ),
    // F_SETPIPE_SZ, F_GETPIPE_SZ, F_SETFL, F_GETFL, F_SETOWN, F_SETSIG, F_ADD_SEALS, F_SETLEASE, F_DUPFD_CLOEXEC.
    system(
        "fcntl",
        libc::SYS_fcntl,
        &[
            File(Any),
            One(&[4, 4, 4, 3, 1031, 1031, 1032, 8, 10, 1033, 1024]),
            One(&[0, 0o4000, 0o4000, 0o20000, 4096, 65536, 1 << 20, 1]),
        ],
        None,
        6,
    ),
    system(
        "splice",
        libc::SYS_splice,
        &[File(Any), NULL, File(SystemPipe), NULL, Length, SPLICE],
        None,
        6,
    ),
    system(
        "splice_in",
        libc::SYS_splice,
        &[File(SystemPipe), NULL, File(Endpoint), NULL, Length, SPLICE],
        None,
        5,
    ),
    system(
        "splice_endpoints",
        libc::SYS_splice,
        &[File(Endpoint), NULL, File(Endpoint), NULL, Length, SPLICE],
        None,
        4,
    ),
    system(
        "tee",
        libc::SYS_tee,
        &[File(Any), File(Any), Length, SPLICE],
        None,
        3,
    ),
    system(
        "vmsplice",
        libc::SYS_vmsplice,
        &[File(SystemPipe), Array("iovec"), CountBefore, SPLICE],
        None,
        3,
    ),
    system(
        "sendfile",
        libc::SYS_sendfile,
        &[File(Any), File(Any), NULL, Length],
        None,
        2,
    ),
    system(
        "copy_file_range",
        libc::SYS_copy_file_range,
        &[File(Any), NULL, File(Any), NULL, Length, NULL],
        None,
        1,
    ),
    system(
        "poll",
        libc::SYS_poll,
        &[Array("pollfd"), CountBefore, One(&[0, 0, 1, 5])],
        None,
        6,
    ),
    system(
        "epoll_create1",
        libc::SYS_epoll_create1,
        &[One(&[0, 0x80000])],
        Epoll,
        3,
    ),
    system(
        "epoll_ctl",
        libc::SYS_epoll_ctl,
        &[
            File(Epoll),
            One(&[1, 1, 1, 2, 3]),
            File(Any),
            Structure("epoll_event"),
        ],
        None,
        6,
    ),
    system(
        "epoll_wait",
        libc::SYS_epoll_wait,
        &[File(Epoll), Buffer, One(&[1, 8]), One(&[0, 0, 5])],
        None,
        5,
    ),
    system("dup", libc::SYS_dup, &[File(Any)], Any, 3),
    system("close", libc::SYS_close, &[File(Any)], None, 10),
    system(
        "pipe2",
        libc::SYS_pipe2,
        &[Buffer, One(&[0, 0o4000])],
        SystemPipe,
        3,
    ),
    system(
        "memfd_create",
        libc::SYS_memfd_create,
        &[Path, One(&[0, 2])],
        Other,
        1,
    ),
    system(
        "socketpair",
        libc::SYS_socketpair,
        &[One(&[1]), One(&[1, 2, 5]), NULL, Buffer],
        Socket,
        2,
    ),
    system(
        "sendmsg",
        libc::SYS_sendmsg,
        &[File(Socket), Structure("msghdr"), One(&[0, 0x40])],
        None,
        3,
    ),
    system(
        "recvmsg",
        libc::SYS_recvmsg,
        &[File(Socket), Structure("msghdr"), One(&[0x40, 0x40000040])],
        None,
        3,
    ),
    system(
        "netlink",
        libc::SYS_socket,
        &[One(&[16]), One(&[3, 2]), One(&[16])],
        Netlink,
        4,
    ),
    system(
        "request",
        libc::SYS_sendto,
        &[File(Netlink), Requests, LengthBefore, NULL, NULL, NULL],
        None,
        22,
    ),
    system(
        "receive",
        libc::SYS_recvfrom,
        &[
            File(Netlink),
            Buffer,
            One(&[32768, 32768, 100, 0]),
            One(&[0x40, 0x40, 0x42]),
            NULL,
            NULL,
        ],
        None,
        9,
    ),
    // NETLINK_CAP_ACK, NETLINK_EXT_ACK; SO_RCVBUF, SO_RCVBUFFORCE.
    system(
        "setsockopt",
        libc::SYS_setsockopt,
        &[
            File(Netlink),
            One(&[270, 1]),
            One(&[10, 11, 8, 33]),
            Structure("timespec"),
            One(&[4]),
        ],
        None,
        2,
    ),
    system(
        "mmap",
        libc::SYS_mmap,
        &[
            Space,
            MAP_LENGTH,
            PROTECTION,
            MAP_FLAGS,
            File(Endpoint),
            MAP_OFFSET,
        ],
        None,
        22,
    ),
    system("munmap", libc::SYS_munmap, &[Address, MAP_LENGTH], None, 5),
    system(
        "mprotect",
        libc::SYS_mprotect,
        &[Address, MAP_LENGTH, PROTECTION],
        None,
        4,
    ),
    system(
        "mremap",
        libc::SYS_mremap,
        &[Space, MAP_LENGTH, MAP_LENGTH, One(&[3, 3, 0, 7]), Space],
        None,
        4,
    ),
    // MADV_DONTNEED, _REMOVE, _DONTFORK, _WILLNEED, _COLD, _PAGEOUT, _POPULATE_READ, _POPULATE_WRITE, _HUGEPAGE.
    system(
        "madvise",
        libc::SYS_madvise,
        &[Space, MAP_LENGTH, One(&[4, 9, 10, 3, 20, 21, 22, 23, 14])],
        None,
        4,
    ),
    system("mlock", libc::SYS_mlock, &[Space, MAP_LENGTH], None, 1),
    system(
        "msync",
        libc::SYS_msync,
        &[Space, MAP_LENGTH, One(&[4])],
        None,
        1,
    ),
    // CLONE_NEWCGROUP, _NEWUSER, _NEWIPC, _NEWPID, _NEWNET.
    system(
        "unshare",
        libc::SYS_unshare,
        &[One(&[
            0x02000000, 0x10000000, 0x12000000, 0x20000000, 0x40000000,
        ])],
        None,
        2,
    ),
    system(
        "setfsuid",
        libc::SYS_setfsuid,
        &[One(&[1000, 0, 1])],
        None,
        1,
    ),
    system("mkdir", libc::SYS_mkdir, &[Path, One(&[0o755])], None, 2),
    system("rmdir", libc::SYS_rmdir, &[Path], None, 3),
    system(
        "cgroup",
        libc::SYS_openat,
        &[One(&[u64::MAX - 99]), Path, One(&[0o200000, 0o10200000])],
        Cgroup,
        5,
    ),
    system(
        "nanosleep",
        libc::SYS_nanosleep,
        &[Structure("timespec"), NULL],
        None,
        1,
    ),
    special("fork", Special::Fork, &[One(&[0, 0, 1, 10])], 3),
    special(
        "store",
        Special::Store,
        &[Address, Number, One(&[4, 8])],
        12,
    ),
    special("load", Special::Load, &[Address, One(&[1, 4096, 65536])], 5),
    special("enter", Special::Enter, &[Path], 2),
    special(
        "answer",
        Special::Answer,
        &[File(Keeper), One(&[1, 1, 1, 0])],
        8,
    ),
    special(
        "submit",
        Special::Submit,
        &[
            OPERATIONS,
            File(Any),
            Messages,
            LengthBefore,
            One(&[u64::MAX, 0]),
            Bits(&[4, 8, 16, 64]),
            One(&[1, 2, 3]),
            EVENTS,
        ],
        20,
    ),
    special("complete", Special::Complete, &[One(&[0, 1, 1, 2])], 8),
];

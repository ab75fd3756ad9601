// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares every structure and number with the header, as a C compiler sees it.

use std::fmt::Write as _;
use std::fs;
use std::iter;
use std::path::Path;
use std::process::Command;

use super::spec::Structure;
use super::*;

/// A C expression and its expected value.
pub(super) type Fact = (String, u64);
/// The C name of a constant, and its value.
pub(super) type Constant = (&'static str, i128);

/// The size of a structure and the offset of each of its fields.
fn layout(structure: &Structure) -> Vec<Fact> {
    let name = structure.name;
    let size = (format!("sizeof(struct {name})"), structure.size as u64);
    let offsets = structure.fields.iter().map(|field| {
        let expression = format!("offsetof(struct {name}, {})", field.name);
        (expression, field.offset as u64)
    });
    iter::once(size).chain(offsets).collect()
}

macro_rules! numbers {
    ($($rust:path = $c:literal),* $(,)?) => {
        vec![$(($c, $rust as i128)),*]
    };
}

pub(super) fn number(name: &str) -> String {
    format!("(unsigned long long)(unsigned int)({name})")
}

pub(super) fn structures() -> Vec<Structure> {
    vec![
        Setting::layout(),
        PipeInfo::layout(),
        Open::layout(),
        Unlink::layout(),
        ChannelInfo::layout(),
        Info::layout(),
        List::layout(),
        Features::layout(),
        Usage::layout(),
        ring::Header::layout(),
        ring::Ctrl::layout(),
        ring::Hello::layout(),
        ring::Reply::layout(),
        RingParams::layout(),
        RingInfo::layout(),
        RingWait::layout(),
        feed::Packet::layout(),
        feed::Start::layout(),
        feed::Info::layout(),
        bus::Params::layout(),
        bus::Frame::layout(),
        bus::Info::layout(),
        bus::Entry::layout(),
        bus::Receive::layout(),
        bus::SubscriberInfo::layout(),
        bus::Subscribers::layout(),
        map::Params::layout(),
        map::Op::layout(),
        map::Step::layout(),
        map::Batch::layout(),
        map::Cursor::layout(),
        map::Record::layout(),
        map::Dump::layout(),
        map::Event::layout(),
        map::Info::layout(),
        map::Header::layout(),
        map::Bucket::layout(),
        map::Cell::layout(),
        keeper::Keep::layout(),
        keeper::Message::layout(),
        keeper::Map::layout(),
        keeper::Create::layout(),
        keeper::Entry::layout(),
        keeper::Restore::layout(),
        keeper::Ready::layout(),
        keeper::Ack::layout(),
        keeper::End::layout(),
    ]
}

fn constants() -> Vec<Constant> {
    numbers![
        NAME_SIZE = "SLUICE_NAME_SIZE",
        KIND_PIPE = "SLUICE_KIND_PIPE",
        KIND_RING = "SLUICE_KIND_RING",
        KIND_FEED = "SLUICE_KIND_FEED",
        KIND_BUS = "SLUICE_KIND_BUS",
        KIND_MAP = "SLUICE_KIND_MAP",
        SCOPE_SELF = "SLUICE_SCOPE_SELF",
        SCOPE_ROOT = "SLUICE_SCOPE_ROOT",
        OPEN_READ = "SLUICE_OPEN_READ",
        OPEN_WRITE = "SLUICE_OPEN_WRITE",
        OPEN_CREATE = "SLUICE_OPEN_CREATE",
        OPEN_EXCL = "SLUICE_OPEN_EXCL",
        OPEN_PERSIST = "SLUICE_OPEN_PERSIST",
        OPEN_NONBLOCK = "SLUICE_OPEN_NONBLOCK",
        OPEN_ANY_OWNER = "SLUICE_OPEN_ANY_OWNER",
        CHANNEL_PERSISTENT = "SLUICE_CHANNEL_PERSISTENT",
        LIST_MAX = "SLUICE_LIST_MAX",
        ABI = "SLUICE_ABI",
        SETTING_SIZE_VER0 = "SLUICE_SETTING_SIZE_VER0",
        PIPE_INFO_SIZE_VER0 = "SLUICE_PIPE_INFO_SIZE_VER0",
        OPEN_SIZE_VER0 = "SLUICE_OPEN_SIZE_VER0",
        UNLINK_SIZE_VER0 = "SLUICE_UNLINK_SIZE_VER0",
        CHANNEL_INFO_SIZE_VER0 = "SLUICE_CHANNEL_INFO_SIZE_VER0",
        INFO_SIZE_VER0 = "SLUICE_INFO_SIZE_VER0",
        LIST_SIZE_VER0 = "SLUICE_LIST_SIZE_VER0",
        FEATURES_SIZE_VER0 = "SLUICE_FEATURES_SIZE_VER0",
        USAGE_SIZE_VER0 = "SLUICE_USAGE_SIZE_VER0",
        RING_PARAMS_SIZE_VER0 = "SLUICE_RING_PARAMS_SIZE_VER0",
        RING_INFO_SIZE_VER0 = "SLUICE_RING_INFO_SIZE_VER0",
        RING_WAIT_SIZE_VER0 = "SLUICE_RING_WAIT_SIZE_VER0",
        PIPE_SET_CAPACITY = "SLUICE_PIPE_SET_CAPACITY",
        PIPE_SET_SPIN = "SLUICE_PIPE_SET_SPIN",
        PIPE_INFO = "SLUICE_PIPE_INFO",
        CTL_OPEN = "SLUICE_CTL_OPEN",
        CTL_UNLINK = "SLUICE_CTL_UNLINK",
        CTL_INFO = "SLUICE_CTL_INFO",
        CTL_LIST = "SLUICE_CTL_LIST",
        CTL_FEATURES = "SLUICE_CTL_FEATURES",
        CTL_DESTROY = "SLUICE_CTL_DESTROY",
        ENDPOINT_INFO = "SLUICE_ENDPOINT_INFO",
        CTL_USAGE = "SLUICE_CTL_USAGE",
        CTL_KEEP = "SLUICE_CTL_KEEP",
        RING_WAKE = "SLUICE_RING_WAKE",
        RING_WAIT = "SLUICE_RING_WAIT",
        RING_DETACH = "SLUICE_RING_DETACH",
        RING_INFO = "SLUICE_RING_INFO",
        ring::VERSION = "SLUICE_RING_VERSION",
        ring::CAPACITY_MIN = "SLUICE_RING_CAPACITY_MIN",
        ring::CAPACITY_MAX = "SLUICE_RING_CAPACITY_MAX",
        ring::RECORD_READY = "SLUICE_RING_RECORD_READY",
        ring::WAKE_FUTEX = "SLUICE_RING_WAKE_FUTEX",
        ring::WAKE_FD = "SLUICE_RING_WAKE_FD",
        ring::NEED_FENCE = "SLUICE_RING_NEED_FENCE",
        ring::WAIT_SEQ_SHIFT = "SLUICE_RING_WAIT_SEQ_SHIFT",
        ring::PRODUCER = "SLUICE_RING_PRODUCER",
        ring::CONSUMER = "SLUICE_RING_CONSUMER",
        ring::F_MEMBARRIER = "SLUICE_RING_F_MEMBARRIER",
        ring::F_UNSEALED = "SLUICE_RING_F_UNSEALED",
        ring::MAGIC = "SLUICE_RING_MAGIC",
        ring::CLOSED = "SLUICE_RING_CLOSED",
        ring::DIED = "SLUICE_RING_DIED",
        ring::DESTROYED = "SLUICE_RING_DESTROYED",
        ring::REJECTED = "SLUICE_RING_REJECTED",
        ring::MMAP_PRODUCER = "SLUICE_RING_MMAP_PRODUCER",
        ring::MMAP_CONSUMER = "SLUICE_RING_MMAP_CONSUMER",
        ring::MMAP_DATA = "SLUICE_RING_MMAP_DATA",
        ring::NODE_ANY = "SLUICE_RING_NODE_ANY",
        ring::ROLE_VACANT = "SLUICE_RING_ROLE_VACANT",
        ring::ROLE_TAKEN = "SLUICE_RING_ROLE_TAKEN",
        ring::ROLE_CLOSED = "SLUICE_RING_ROLE_CLOSED",
        ring::ROLE_DIED = "SLUICE_RING_ROLE_DIED",
        ring::ROLE_DESTROYED = "SLUICE_RING_ROLE_DESTROYED",
        feed::PACKET_MAX = "SLUICE_FEED_PACKET_MAX",
        feed::CPU_ANY = "SLUICE_FEED_CPU_ANY",
        feed::CONSUMER_NONE = "SLUICE_FEED_CONSUMER_NONE",
        feed::CONSUMER_READS = "SLUICE_FEED_CONSUMER_READS",
        feed::CONSUMER_MAPS = "SLUICE_FEED_CONSUMER_MAPS",
        feed::START_SIZE_VER0 = "SLUICE_FEED_START_SIZE_VER0",
        feed::INFO_SIZE_VER0 = "SLUICE_FEED_INFO_SIZE_VER0",
        feed::START = "SLUICE_FEED_START",
        feed::STOP = "SLUICE_FEED_STOP",
        feed::INFO = "SLUICE_FEED_INFO",
        feed::SET_SPIN = "SLUICE_FEED_SET_SPIN",
        feed::CLAIM = "SLUICE_FEED_CLAIM",
        bus::CAPACITY_MIN = "SLUICE_BUS_CAPACITY_MIN",
        bus::CAPACITY_MAX = "SLUICE_BUS_CAPACITY_MAX",
        bus::MESSAGE_MAX = "SLUICE_BUS_MESSAGE_MAX",
        bus::BROADCAST = "SLUICE_BUS_BROADCAST",
        bus::MULTICAST = "SLUICE_BUS_MULTICAST",
        bus::UNICAST = "SLUICE_BUS_UNICAST",
        bus::DROP = "SLUICE_BUS_DROP",
        bus::BLOCK = "SLUICE_BUS_BLOCK",
        bus::EVICT = "SLUICE_BUS_EVICT",
        bus::MAPPABLE = "SLUICE_BUS_MAPPABLE",
        bus::MAPPED = "SLUICE_BUS_MAPPED",
        bus::MONITOR = "SLUICE_BUS_MONITOR",
        bus::ADDRESSED = "SLUICE_BUS_ADDRESSED",
        bus::RAW = "SLUICE_BUS_RAW",
        bus::FRAMED = "SLUICE_BUS_FRAMED",
        bus::BATCHED = "SLUICE_BUS_BATCHED",
        bus::MMAP_DATA = "SLUICE_BUS_MMAP_DATA",
        bus::RECEIVE_MAX = "SLUICE_BUS_RECEIVE_MAX",
        bus::SUBSCRIBERS_MAX = "SLUICE_BUS_SUBSCRIBERS_MAX",
        bus::PARAMS_SIZE_VER0 = "SLUICE_BUS_PARAMS_SIZE_VER0",
        bus::FRAME_SIZE_VER0 = "SLUICE_BUS_FRAME_SIZE_VER0",
        bus::INFO_SIZE_VER0 = "SLUICE_BUS_INFO_SIZE_VER0",
        bus::ENTRY_SIZE_VER0 = "SLUICE_BUS_ENTRY_SIZE_VER0",
        bus::SUBSCRIBER_INFO_SIZE_VER0 = "SLUICE_BUS_SUBSCRIBER_INFO_SIZE_VER0",
        bus::RECEIVE_SIZE_VER0 = "SLUICE_BUS_RECEIVE_SIZE_VER0",
        bus::SUBSCRIBERS_SIZE_VER0 = "SLUICE_BUS_SUBSCRIBERS_SIZE_VER0",
        bus::SET_FORMAT = "SLUICE_BUS_SET_FORMAT",
        bus::SET_SPIN = "SLUICE_BUS_SET_SPIN",
        bus::INFO = "SLUICE_BUS_INFO",
        bus::RECEIVE = "SLUICE_BUS_RECEIVE",
        bus::SUBSCRIBERS = "SLUICE_BUS_SUBSCRIBERS",
        bus::TURN = "SLUICE_BUS_TURN",
        map::CAPACITY_MAX = "SLUICE_MAP_CAPACITY_MAX",
        map::NOW = "SLUICE_MAP_NOW",
        map::KEY_MAX = "SLUICE_MAP_KEY_MAX",
        map::VALUE_MAX = "SLUICE_MAP_VALUE_MAX",
        map::EVENTS_MAX = "SLUICE_MAP_EVENTS_MAX",
        map::DURABLE = "SLUICE_MAP_DURABLE",
        map::INTERVAL = "SLUICE_MAP_INTERVAL",
        map::REFUSE = "SLUICE_MAP_REFUSE",
        map::MAPPED = "SLUICE_MAP_MAPPED",
        map::MMAP_HEADER = "SLUICE_MAP_MMAP_HEADER",
        map::MMAP_TABLE = "SLUICE_MAP_MMAP_TABLE",
        map::TABLE_MAX = "SLUICE_MAP_TABLE_MAX",
        map::CELL_MIN = "SLUICE_MAP_CELL_MIN",
        map::CELL_MAX = "SLUICE_MAP_CELL_MAX",
        map::BUCKET_CELLS = "SLUICE_MAP_BUCKET_CELLS",
        map::PROBES = "SLUICE_MAP_PROBES",
        map::HASH_FACTOR = "SLUICE_MAP_HASH_FACTOR",
        map::CELL_ASK = "SLUICE_MAP_CELL_ASK",
        map::IF_VERSION = "SLUICE_MAP_IF_VERSION",
        map::NOWAIT = "SLUICE_MAP_NOWAIT",
        map::STEP_GET = "SLUICE_MAP_STEP_GET",
        map::STEP_SET = "SLUICE_MAP_STEP_SET",
        map::STEP_DELETE = "SLUICE_MAP_STEP_DELETE",
        map::BATCH_MAX = "SLUICE_MAP_BATCH_MAX",
        map::KEYS = "SLUICE_MAP_KEYS",
        map::CREATED = "SLUICE_MAP_CREATED",
        map::UPDATED = "SLUICE_MAP_UPDATED",
        map::DELETED = "SLUICE_MAP_DELETED",
        map::EXPIRED = "SLUICE_MAP_EXPIRED",
        map::PARAMS_SIZE_VER0 = "SLUICE_MAP_PARAMS_SIZE_VER0",
        map::OP_SIZE_VER0 = "SLUICE_MAP_OP_SIZE_VER0",
        map::STEP_SIZE_VER0 = "SLUICE_MAP_STEP_SIZE_VER0",
        map::BATCH_SIZE_VER0 = "SLUICE_MAP_BATCH_SIZE_VER0",
        map::DUMP_SIZE_VER0 = "SLUICE_MAP_DUMP_SIZE_VER0",
        map::INFO_SIZE_VER0 = "SLUICE_MAP_INFO_SIZE_VER0",
        map::GET = "SLUICE_MAP_GET",
        map::SET = "SLUICE_MAP_SET",
        map::DELETE = "SLUICE_MAP_DELETE",
        map::BATCH = "SLUICE_MAP_BATCH",
        map::DUMP = "SLUICE_MAP_DUMP",
        map::WATCH = "SLUICE_MAP_WATCH",
        map::INFO = "SLUICE_MAP_INFO",
        map::SYNC = "SLUICE_MAP_SYNC",
    ]
}

fn keeper_constants() -> Vec<Constant> {
    numbers![
        keeper::OPEN = "SLUICE_KEEP_OPEN",
        keeper::RESUME = "SLUICE_KEEP_RESUME",
        keeper::SET = "SLUICE_KEEP_SET",
        keeper::DELETE = "SLUICE_KEEP_DELETE",
        keeper::EXPIRE = "SLUICE_KEEP_EXPIRE",
        keeper::UNLINK = "SLUICE_KEEP_UNLINK",
        keeper::CLOSED = "SLUICE_KEEP_CLOSED",
        keeper::SYNC = "SLUICE_KEEP_SYNC",
        keeper::RESTORE_MAX = "SLUICE_KEEP_RESTORE_MAX",
        keeper::TABLES = "SLUICE_KEEP_TABLES",
        keeper::UNLINKED = "SLUICE_KEEP_UNLINKED",
        keeper::KEEP_SIZE_VER0 = "SLUICE_KEEP_SIZE_VER0",
        keeper::MAP_SIZE_VER0 = "SLUICE_KEEP_MAP_SIZE_VER0",
        keeper::CREATE_SIZE_VER0 = "SLUICE_KEEP_CREATE_SIZE_VER0",
        keeper::ENTRY_SIZE_VER0 = "SLUICE_KEEP_ENTRY_SIZE_VER0",
        keeper::RESTORE_SIZE_VER0 = "SLUICE_KEEP_RESTORE_SIZE_VER0",
        keeper::READY_SIZE_VER0 = "SLUICE_KEEP_READY_SIZE_VER0",
        keeper::ACK_SIZE_VER0 = "SLUICE_KEEP_ACK_SIZE_VER0",
        keeper::END_SIZE_VER0 = "SLUICE_KEEP_END_SIZE_VER0",
        keeper::CREATE = "SLUICE_KEEP_CREATE",
        keeper::RESTORE = "SLUICE_KEEP_RESTORE",
        keeper::READY = "SLUICE_KEEP_READY",
        keeper::ACK = "SLUICE_KEEP_ACK",
        keeper::END = "SLUICE_KEEP_END",
    ]
}

fn netlink_constants() -> Vec<Constant> {
    numbers![
        netlink::VERSION = "SLUICE_NL_VERSION",
        netlink::VALUE_MAX = "SLUICE_NL_VALUE_MAX",
        netlink::HANDLES_MAX = "SLUICE_NL_HANDLES_MAX",
        netlink::STEPS_MAX = "SLUICE_NL_STEPS_MAX",
        netlink::MAP_OPEN = "SLUICE_NL_CMD_MAP_OPEN",
        netlink::MAP_CLOSE = "SLUICE_NL_CMD_MAP_CLOSE",
        netlink::MAP_GET = "SLUICE_NL_CMD_MAP_GET",
        netlink::MAP_SET = "SLUICE_NL_CMD_MAP_SET",
        netlink::MAP_DELETE = "SLUICE_NL_CMD_MAP_DELETE",
        netlink::MAP_BATCH = "SLUICE_NL_CMD_MAP_BATCH",
        netlink::MAP_DUMP = "SLUICE_NL_CMD_MAP_DUMP",
        netlink::MAP_WATCH = "SLUICE_NL_CMD_MAP_WATCH",
        netlink::MAP_INFO = "SLUICE_NL_CMD_MAP_INFO",
        netlink::MAP_EVENT = "SLUICE_NL_CMD_MAP_EVENT",
        netlink::attr::PAD = "SLUICE_NL_A_PAD",
        netlink::attr::NAME = "SLUICE_NL_A_NAME",
        netlink::attr::SCOPE_FD = "SLUICE_NL_A_SCOPE_FD",
        netlink::attr::HANDLE = "SLUICE_NL_A_HANDLE",
        netlink::attr::FLAGS = "SLUICE_NL_A_FLAGS",
        netlink::attr::MODE = "SLUICE_NL_A_MODE",
        netlink::attr::CAPACITY = "SLUICE_NL_A_CAPACITY",
        netlink::attr::ENTRIES_MAX = "SLUICE_NL_A_ENTRIES_MAX",
        netlink::attr::EVENTS = "SLUICE_NL_A_EVENTS",
        netlink::attr::KEY = "SLUICE_NL_A_KEY",
        netlink::attr::VALUE = "SLUICE_NL_A_VALUE",
        netlink::attr::VALUE_LENGTH = "SLUICE_NL_A_VALUE_LENGTH",
        netlink::attr::VERSION = "SLUICE_NL_A_VERSION",
        netlink::attr::IF_VERSION = "SLUICE_NL_A_IF_VERSION",
        netlink::attr::TTL_NS = "SLUICE_NL_A_TTL_NS",
        netlink::attr::CREATED = "SLUICE_NL_A_CREATED",
        netlink::attr::KEYS = "SLUICE_NL_A_KEYS",
        netlink::attr::STEP = "SLUICE_NL_A_STEP",
        netlink::attr::COMMAND = "SLUICE_NL_A_COMMAND",
        netlink::attr::RESULT = "SLUICE_NL_A_RESULT",
        netlink::attr::AFTER = "SLUICE_NL_A_AFTER",
        netlink::attr::SEQUENCE = "SLUICE_NL_A_SEQUENCE",
        netlink::attr::CHANGE = "SLUICE_NL_A_CHANGE",
        netlink::attr::MISSED = "SLUICE_NL_A_MISSED",
        netlink::attr::BYTES = "SLUICE_NL_A_BYTES",
        netlink::attr::ENTRIES = "SLUICE_NL_A_ENTRIES",
        netlink::attr::EXPIRED = "SLUICE_NL_A_EXPIRED",
        netlink::attr::WATCHERS = "SLUICE_NL_A_WATCHERS",
        netlink::attr::DESTROYED = "SLUICE_NL_A_DESTROYED",
        netlink::attr::STORED = "SLUICE_NL_A_STORED",
        netlink::attr::PENDING = "SLUICE_NL_A_PENDING",
        netlink::attr::MAX = "SLUICE_NL_A_MAX",
    ]
}

pub(super) fn all_constants() -> Vec<Constant> {
    [constants(), keeper_constants(), netlink_constants()].concat()
}

pub(super) fn facts() -> Vec<Fact> {
    let layouts = structures()
        .into_iter()
        .flat_map(|structure| layout(&structure));
    let constants = all_constants()
        .into_iter()
        .map(|(name, value)| fact(name, value));
    layouts.chain(constants).collect()
}

/// Negative numbers have 32 bits.
fn fact(name: &str, value: i128) -> Fact {
    match u32::try_from(value) {
        Err(_) if value > 0 => (format!("(unsigned long long)({name})"), value as u64),
        _ => (number(name), u64::from(value as u32)),
    }
}

/// A C program that prints the value of each expression, one per line.
fn program(facts: &[Fact]) -> String {
    let mut text =
        String::from("#include <stddef.h>\n#include <stdio.h>\n#include <linux/sluice.h>\n");
    text += "int main(void)\n{\n";
    for (expression, _) in facts {
        writeln!(
            text,
            "printf(\"%llu\\n\", (unsigned long long)({expression}));"
        )
        .unwrap();
    }
    text + "return 0;\n}\n"
}

/// Compiles and runs the program. None without a C compiler.
fn ask_the_compiler(facts: &[Fact], directory: &Path) -> Option<Vec<u64>> {
    let (source, binary) = (directory.join("facts.c"), directory.join("facts"));
    fs::write(&source, program(facts)).unwrap();
    // Copied, so that all other headers are those of the system.
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/uapi/linux/sluice.h");
    fs::create_dir_all(directory.join("include/linux")).unwrap();
    fs::copy(header, directory.join("include/linux/sluice.h")).unwrap();
    // These options reject compiler extensions in the header.
    let compiled = Command::new("cc")
        .args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(directory.join("include"))
        .arg("-o")
        .args([&binary, &source])
        .output()
        .ok()?;
    let complaints = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "cc failed: {complaints}");
    let values = Command::new(&binary).output().unwrap();
    let values = String::from_utf8(values.stdout).unwrap();
    Some(values.lines().map(|line| line.parse().unwrap()).collect())
}

#[test]
fn the_structures_and_numbers_are_those_of_the_header() {
    let facts = facts();
    let directory = std::env::temp_dir().join(format!("sluice-abi-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let values = ask_the_compiler(&facts, &directory);
    fs::remove_dir_all(&directory).unwrap();
    let Some(values) = values else {
        eprintln!(
            "NOT TESTED: the ABI against the header, since there is no 'cc'; install a C compiler"
        );
        return;
    };
    assert_eq!(values.len(), facts.len());
    for ((expression, ours), theirs) in facts.iter().zip(values) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}

#[test]
fn every_number_of_the_header_is_compared() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/uapi/linux/sluice.h");
    let header = fs::read_to_string(header).unwrap();
    let constants = all_constants();
    let defined = header.lines().filter_map(|line| {
        let line = line.strip_prefix("#define ").unwrap_or(line.trim_start());
        let end = line.find(|c: char| c != '_' && !c.is_ascii_alphanumeric())?;
        let is_number = line.starts_with("SLUICE_") && [" ", ",", "\t"].contains(&&line[end..=end]);
        is_number.then(|| &line[..end])
    });
    let missing: Vec<_> = defined
        .filter(|name| constants.iter().all(|(known, _)| known != name))
        .collect();
    let no_numbers_of_the_abi = [
        "SLUICE_IOCTL_TYPE",
        "SLUICE_NL_FAMILY",
        "SLUICE_NL_CMD_UNSPEC",
        "SLUICE_NL_CMD_MAX",
        "SLUICE_NL_A_UNSPEC",
    ];
    assert_eq!(missing, no_numbers_of_the_abi);
}

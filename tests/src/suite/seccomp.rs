// SPDX-License-Identifier: MIT OR Apache-2.0
//! Channels of all kinds without calls that the default seccomp profiles of container runtimes refuse.

use std::fs::File;

use anyhow::Result;
use serde_json::{Value, json};

use crate::registry::{Context, topic};
use crate::support::cli::tools;
use crate::support::crun::{self, Runtime};

topic!(
    "seccomp",
    fifo: [],
    pipe_only: [
        all_kinds_work_without_the_calls_that_docker_or_podman_refuses,
    ],
);

/// What a profile of Docker or of podman refuses to a container without capabilities, of what channels or their users
/// may want; docs/containers.md has the versions. The errors are those of podman: a call that it does not name is
/// ENOSYS.
fn profile() -> Value {
    let refused = [
        "bpf",
        "get_mempolicy",
        "kcmp",
        "mbind",
        "membarrier",
        "migrate_pages",
        "move_pages",
        "perf_event_open",
        "pidfd_getfd",
        "process_vm_readv",
        "process_vm_writev",
        "ptrace",
        "set_mempolicy",
        "userfaultfd",
        "vmsplice",
    ];
    let unknown = ["io_uring_enter", "io_uring_register", "io_uring_setup"];
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            { "names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": libc::EPERM },
            { "names": unknown, "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS },
        ],
    })
}

const SCRIPT: &str = include_str!("../../guest/every-kind");

fn all_kinds_work_without_the_calls_that_docker_or_podman_refuses(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    home.create_child("host")?.enter()?;
    let runtime = Runtime::new(&context.scratch, home)?;
    let script = format!("PATH={}:$PATH\n{SCRIPT}", tools()?.display());
    let start = runtime.prepare_with_seccomp("filtered", "/dev/sluice", profile(), &script)?;
    let (input, output) = (
        File::open("/dev/null")?,
        File::create(context.scratch.join("out"))?,
    );
    crun::expect_success(crun::shell(
        &format!("exec {start}"),
        input.into(),
        output.into(),
    )?)
}

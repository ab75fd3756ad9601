// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ordinary programs, unaware of Sluice, combined in a shell.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::write;

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::random::stream_bytes;
use crate::support::shell::{bash, expect_success};

topic!(
    "shell_programs",
    fifo: [
        cat_to_cat_copies_a_file,
        dd_to_sha256sum_preserves_the_checksum,
        tar_to_tar_copies_a_tree,
        pv_to_pv_copies_a_file,
        socat_to_socat_copies_a_file,
        head_ends_an_endless_writer,
        a_shell_reads_line_by_line,
        a_writer_gets_epipe_when_cat_is_killed,
    ],
    pipe_only: [],
);

/// Runs a script with the path of the pipe in $PIPE, and that of the shell's program, many times the size of the pipe,
/// in $BASH; returns its output.
fn shell(context: &Context, script: &str) -> Result<String> {
    let output = bash(script)
        .env("PIPE", context.channel.path()?)
        .current_dir(&context.scratch)
        .stdin(Stdio::null())
        .output()
        .context("running bash")?;
    expect_success(&output)?;
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned())
}

/// Fails unless `copy`, in the scratch directory, has the bytes of the original.
fn expect_copied(context: &Context, original: &str) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let copy = read(&context.scratch.join("copy"))?;
    expect_bytes("the copy", &copy, &read(Path::new(original))?)
}

fn cat_to_cat_copies_a_file(context: &Context) -> Result<()> {
    let script = r#"cat "$BASH" > "$PIPE" & cat "$PIPE" > copy; wait $!; echo "$BASH""#;
    expect_copied(context, &shell(context, script)?)
}

fn dd_to_sha256sum_preserves_the_checksum(context: &Context) -> Result<()> {
    let script = r#"
        dd if="$BASH" of="$PIPE" bs=64k status=none &
        sha256sum < "$PIPE"
        wait $!
        sha256sum < "$BASH""#;
    let sums = shell(context, script)?;
    let (sent, original) = sums.split_once('\n').context("two sums")?;
    expect("the sum", sent, original)
}

fn tar_to_tar_copies_a_tree(context: &Context) -> Result<()> {
    let (from, to) = (context.scratch.join("from"), context.scratch.join("to"));
    let content = stream_bytes(0, 0, 5 * CAPACITY + 1);
    fs::create_dir_all(from.join("deep/er")).context("creating a tree")?;
    fs::create_dir(&to).context("creating a directory")?;
    fs::write(from.join("deep/large"), &content).context("writing a large file")?;
    fs::write(from.join("deep/er/small"), b"x").context("writing a small file")?;
    symlink("large", from.join("deep/link")).context("creating a link")?;
    let script = r#"tar -C from -cf - . > "$PIPE" & tar -C to -xf - < "$PIPE"; wait $!"#;
    shell(context, script)?;
    let copied = |name: &str| fs::read(to.join(name)).with_context(|| format!("reading {name}"));
    expect_bytes("the large file", &copied("deep/large")?, &content)?;
    expect_bytes("the small file", &copied("deep/er/small")?, b"x")?;
    let link = fs::read_link(to.join("deep/link")).context("reading the link")?;
    expect("where the link points", link, PathBuf::from("large"))
}

fn pv_to_pv_copies_a_file(context: &Context) -> Result<()> {
    let script = r#"pv -q "$BASH" > "$PIPE" & pv -q "$PIPE" > copy; wait $!; echo "$BASH""#;
    expect_copied(context, &shell(context, script)?)
}

fn socat_to_socat_copies_a_file(context: &Context) -> Result<()> {
    let script = r#"
        socat -u OPEN:"$BASH",rdonly OPEN:"$PIPE",wronly &
        socat -u OPEN:"$PIPE",rdonly CREATE:copy
        wait $!
        echo "$BASH""#;
    expect_copied(context, &shell(context, script)?)
}

fn head_ends_an_endless_writer(context: &Context) -> Result<()> {
    let script = r#"
        yes > "$PIPE" &
        head -c 200000 "$PIPE" | wc -c
        status=0; wait $! || status=$?
        echo $status"#;
    // 141 is the shell's status for SIGPIPE.
    expect(
        "bytes, and the end of yes",
        shell(context, script)?,
        "200000\n141".to_owned(),
    )
}

/// A shell reads byte by byte from a file that it cannot seek.
fn a_shell_reads_line_by_line(context: &Context) -> Result<()> {
    let script = r#"
        seq 500 > "$PIPE" &
        sum=0
        while read -r number; do sum=$((sum + number)); done < "$PIPE"
        wait $!
        echo $sum"#;
    expect(
        "the sum of all lines",
        shell(context, script)?,
        "125250".to_owned(),
    )
}

fn a_writer_gets_epipe_when_cat_is_killed(context: &Context) -> Result<()> {
    let path = context.channel.path()?;
    let mut cat = Command::new("cat")
        .stdin(File::open("/dev/null").context("opening /dev/null")?)
        .arg(path)
        .stdout(Stdio::null())
        .spawn()
        .context("running cat")?;
    let writer = context.channel.open_writer()?;
    write_all(&writer, b"the last bytes that it reads")?;
    cat.kill().context("killing cat")?;
    let status = cat.wait().context("waiting for cat")?;
    expect(
        "the signal that ended cat",
        status.signal(),
        Some(Signal::SIGKILL as i32),
    )?;
    expect(
        "a write after that",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `sluice ring …` on device rings.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::{Value, json};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{
    NAME_TAKEN, NO_CHANNEL, NO_PERMISSION, TIMED_OUT, expect_destroyed, expect_output,
    expect_table, script, shell, sluice,
};
use crate::support::memcg::{account_memory_of_children, set_memory_max};
use crate::support::ring::{Rings, Role};

topic!(
    "ring_cli",
    fifo: [],
    pipe_only: [
        a_ring_is_created_shown_listed_and_removed,
        a_created_ring_is_on_its_memory_node,
        records_arrive_whichever_side_starts_first,
        a_ring_is_created_by_either_side_and_ends_with_both,
        records_of_any_bytes_arrive_in_frames,
        a_process_in_a_descendant_cgroup_opens_a_ring_by_scope_directory,
        records_of_a_killed_sender_wait_in_a_persistent_ring,
        a_missing_ring_is_status_3,
        a_wait_for_the_ring_and_for_the_other_side_is_limited,
        a_wait_ends_when_the_ring_and_the_other_side_come,
        a_side_prints_what_it_waits_for,
        an_idle_sender_is_not_reported_as_missing,
        a_taken_role_is_status_4,
        an_existing_ring_is_status_4,
        permission_denied_by_a_ring_is_status_5,
        a_larger_ring_than_allowed_is_rejected,
        a_killed_receiver_fails_the_sender,
        a_killed_sender_fails_the_receiver_after_its_records,
        a_destroyed_ring_ends_both_sides,
        both_sides_print_a_summary,
        passed_endpoints_carry_records,
        another_descriptor_is_rejected_as_an_endpoint,
        a_ring_over_a_path_carries_records_in_huge_pages,
        a_ring_over_a_path_that_does_not_fit_in_the_cgroup_is_refused,
    ],
);

fn expect_no_channels(context: &Context) -> Result<()> {
    let left = sluice(context, "ls --json")?.json()?;
    expect("the channels", left, json!([]))
}

fn a_ring_is_created_shown_listed_and_removed(context: &Context) -> Result<()> {
    let channel = json!({
        "kind": "ring", "name": "frames", "mode": "0640", "uid": 0, "gid": 0, "readers": 0, "writers": 0,
        "bytes": 0, "capacity": 131072, "persistent": true,
    });
    let mut ring = channel.clone();
    for (key, value) in [
        ("producer", json!("vacant")),
        ("consumer", json!("vacant")),
        ("node", Value::Null),
        ("published", json!(0)),
        ("released", json!(0)),
    ] {
        ring[key] = value;
    }
    let json = |arguments| sluice(context, arguments)?.json();
    let made = json("ring create frames --permissions 640 --capacity 100K --json")?;
    expect("made", made, ring.clone())?;
    expect("shown", json("ring info frames --json")?, ring)?;
    for list in ["ls --json", "ring ls --json"] {
        expect(list, json(list)?, json!([channel]))?;
    }
    expect("pipes", json("pipe ls --json")?, json!([]))?;
    expect_ring(context)?;
    let removed = sluice(context, "ring rm frames")?.stdout()?;
    expect("output of rm", removed, String::new())?;
    expect_no_channels(context)
}

/// The tables of the new ring `frames`.
fn expect_ring(context: &Context) -> Result<()> {
    let headings = "KIND MODE USER GROUP READERS WRITERS BYTES CAPACITY PERSISTENT NAME";
    let row = |root| format!("ring 0640 {root} {root} 0 0 0 131072 yes frames");
    let (by_name, by_number) = (row("root"), row("0"));
    let state = "PRODUCER CONSUMER NODE PUBLISHED RELEASED";
    let vacant = "vacant vacant any 0 0";
    for (arguments, lines) in [
        ("ls", &[headings, &by_name][..]),
        ("ring ls --numeric", &[headings, &by_number]),
        ("ring info frames", &[headings, &by_name, "", state, vacant]),
        (
            "ring info -n frames",
            &[headings, &by_number, "", state, vacant],
        ),
    ] {
        expect_table(&sluice(context, arguments)?, lines)?;
    }
    Ok(())
}

fn a_created_ring_is_on_its_memory_node(context: &Context) -> Result<()> {
    let made = sluice(context, "ring create frames --node 0 --json")?.json()?;
    let found = (&made["node"], &made["capacity"]);
    expect("its node and capacity", found, (&json!(0), &json!(4 << 20)))?;
    let words = ["no memory node 77"];
    sluice(context, "ring create others --node 77")?.expect_failure(1, &words)
}

fn records_arrive_whichever_side_starts_first(context: &Context) -> Result<()> {
    let sender_first = r#"
        sluice ring create frames
        printf 'one\n\nthree' | sluice ring send frames &
        await ring frames producer taken
        sluice ring recv frames
        wait $!"#;
    let receiver_first = r#"
        sluice ring create frames
        sluice ring recv frames &
        await ring frames consumer taken
        printf 'one\n\nthree' | sluice ring send frames
        wait $!"#;
    for order in [sender_first, receiver_first] {
        expect_output(context, order, "one\n\nthree\n")?;
        // The ring is persistent, and both roles are vacant again.
        let left = sluice(context, "ring info frames --json")?.json()?;
        let roles = (&left["producer"], &left["consumer"]);
        expect("the roles", roles, (&json!("vacant"), &json!("vacant")))?;
        sluice(context, "ring rm frames")?.stdout()?;
    }
    Ok(())
}

fn a_ring_is_created_by_either_side_and_ends_with_both(context: &Context) -> Result<()> {
    for (first, second) in [("send", "recv"), ("recv", "send")] {
        let script = format!(
            r#"
            sluice ring {first} frames --create --permissions 640 --capacity 64K <<< hello &
            until sluice ring info frames --json > info 2> /dev/null; do sleep 0.05; done
            sluice ring {second} frames --create --capacity 1M <<< hello
            wait $!
            cat info"#
        );
        let printed = shell(context, &script)?.stdout()?;
        let info = printed.strip_prefix("hello\n");
        let info = info.with_context(|| format!("no record before the info: {printed}"))?;
        let info: Value = serde_json::from_str(info).context("no JSON")?;
        let found = (&info["mode"], &info["capacity"], &info["persistent"]);
        let expected = (&json!("0640"), &json!(65536), &json!(false));
        expect("the ring", found, expected)?;
        expect_no_channels(context)?;
    }
    Ok(())
}

fn records_of_any_bytes_arrive_in_frames(context: &Context) -> Result<()> {
    let text = r#"
        for record in 1 2 3 4; do
            printf '\x00\x10\x00\x00'
            head -c 4096 "$BASH"
        done > sent
        sluice ring recv frames --create --framing length > received &
        sluice ring send frames --create --framing length --lock --spin 0 < sent
        wait $!
        cmp sent received && echo same"#;
    expect_output(context, text, "same\n")
}

fn a_process_in_a_descendant_cgroup_opens_a_ring_by_scope_directory(
    context: &Context,
) -> Result<()> {
    let text = r#"
        mkdir "$SCOPE/below"
        sluice ring create frames
        (echo "$BASHPID" > "$SCOPE/below/cgroup.procs"
         if sluice ring send frames <<< hello 2> /dev/null; then exit 9; fi
         exec sluice ring send frames --scope "$SCOPE" <<< hello) &
        sluice ring recv frames
        wait $!"#;
    expect_output(context, text, "hello\n")
}

fn records_of_a_killed_sender_wait_in_a_persistent_ring(context: &Context) -> Result<()> {
    let text = r#"
        sluice ring send frames --create --persist <<< hello &
        until sluice ring info frames --json 2> /dev/null | grep -q '"published": 16'; do sleep 0.05; done
        kill -KILL $!
        wait $! || true
        await ring frames producer died
        sluice ring recv frames 2> log || echo $?
        cat log"#;
    let printed = script(context, text)?.stdout()?;
    let expected = "hello\n1\nsluice: the sender failed or died after 1 records";
    ensure!(printed.starts_with(expected), "{printed}");
    Ok(())
}

fn a_missing_ring_is_status_3(context: &Context) -> Result<()> {
    let words = ["no ring named 'frames' in", "sluice ring create frames"];
    for arguments in [
        "recv frames",
        "send frames",
        "info frames",
        "rm frames",
        "rm --destroy frames",
    ] {
        sluice(context, &format!("ring {arguments}"))?.expect_failure(NO_CHANNEL, &words)?;
    }
    Ok(())
}

fn a_wait_for_the_ring_and_for_the_other_side_is_limited(context: &Context) -> Result<()> {
    for (verb, peer, other) in [("recv", "a sender", "send"), ("send", "a receiver", "recv")] {
        let command = format!("ring {verb} frames --wait 1s");
        let words = [
            "timeout after 1s waiting for the ring 'frames' in",
            "run 'sluice ring create frames' there",
        ];
        sluice(context, &command)?.expect_failure(TIMED_OUT, &words)?;
        sluice(context, "ring create frames")?.stdout()?;
        let awaited = format!("timeout after 1s waiting for {peer} at 'frames' in");
        let next_step = format!("run 'sluice ring {other} frames' there");
        let words = [&*awaited, &*next_step];
        sluice(context, &command)?.expect_failure(TIMED_OUT, &words)?;
        let left = sluice(context, "ring info frames --json")?.json()?;
        let found = (&left["producer"], &left["consumer"], &left["published"]);
        let vacant = json!("vacant");
        expect("afterwards", found, (&vacant, &vacant, &json!(0)))?;
        sluice(context, "ring rm frames")?.stdout()?;
    }
    Ok(())
}

fn a_wait_ends_when_the_ring_and_the_other_side_come(context: &Context) -> Result<()> {
    for (first, second) in [("send", "recv"), ("recv", "send")] {
        let text = format!(
            r#"
            sluice ring {first} frames --wait 100s <<< hello 2> log &
            until grep -q "the ring 'frames'" log; do sleep 0.05; done
            sluice ring create frames
            sluice ring {second} frames --wait 100s <<< hello
            wait $!
            sluice ring rm frames"#
        );
        expect_output(context, &text, "hello\n")?;
    }
    Ok(())
}

fn a_side_prints_what_it_waits_for(context: &Context) -> Result<()> {
    for (verb, peer, other) in [("recv", "a sender", "send"), ("send", "a receiver", "recv")] {
        let text = format!(
            r#"
            sluice ring {verb} frames --create <<< hello 2> log &
            until grep -q "waiting for {peer} at 'frames' in" log; do sleep 0.1; done
            grep -q "run 'sluice ring {other} frames' there" log
            sluice ring {other} frames <<< hello
            wait $!"#
        );
        expect_output(context, &text, "hello\n")?;
    }
    Ok(())
}

/// The receiver has waited for records for longer than the delay of the notice.
fn an_idle_sender_is_not_reported_as_missing(context: &Context) -> Result<()> {
    let text = r#"
        mkfifo stdin
        sluice ring create frames
        sluice ring send frames < stdin 2> log.send &
        exec 3> stdin
        await ring frames producer taken
        sluice ring recv frames 2> log.recv 3>&- &
        await ring frames consumer taken
        sleep 1.5
        echo hello >&3
        exec 3>&-
        wait
        cat log.recv"#;
    expect_output(context, text, "hello\n")
}

fn a_taken_role_is_status_4(context: &Context) -> Result<()> {
    let (rings, roles) = (Rings::new()?, [Role::Producer, Role::Consumer]);
    let [producer, consumer] = roles.map(|role| rings.side("frames", role));
    let _sides = (producer?, consumer?);
    for (verb, role) in [("send", "producer"), ("recv", "consumer")] {
        let words = [&*format!("the ring has a {role} already"), "another name"];
        for wait in ["", "--wait 100s"] {
            let command = format!("ring {verb} frames {wait}");
            sluice(context, &command)?.expect_failure(NAME_TAKEN, &words)?;
        }
    }
    Ok(())
}

fn an_existing_ring_is_status_4(context: &Context) -> Result<()> {
    sluice(context, "pipe create frames")?.stdout()?;
    sluice(context, "ring create frames")?.stdout()?;
    let words = [
        "the ring 'frames' already exists in",
        "sluice ring rm frames",
    ];
    sluice(context, "ring create frames")?.expect_failure(NAME_TAKEN, &words)
}

/// As root without the administrator's capability.
fn permission_denied_by_a_ring_is_status_5(context: &Context) -> Result<()> {
    let unprivileged = |arguments: &str| {
        let unprivileged = "setpriv --bounding-set=-sys_admin,-sys_resource sluice";
        shell(context, &format!("{unprivileged} {arguments}"))
    };
    sluice(context, "ring create frames --permissions 000")?.stdout()?;
    let words = ["permission denied for the ring 'frames'"];
    for verb in ["send", "recv"] {
        for wait in ["", "--wait 100s"] {
            let denied = unprivileged(&format!("ring {verb} frames {wait}"))?;
            denied.expect_failure(NO_PERMISSION, &words)?;
        }
    }
    unprivileged("ring info frames")?.stdout()?;
    unprivileged("ring rm frames")?.stdout().map(drop)
}

fn a_larger_ring_than_allowed_is_rejected(context: &Context) -> Result<()> {
    sluice(context, "ring create frames --capacity 128K")?.stdout()?;
    let words = ["131072 bytes", "allows 65536"];
    let command = "ring recv frames --max-capacity 64K";
    sluice(context, command)?.expect_failure(1, &words)
}

fn a_killed_receiver_fails_the_sender(context: &Context) -> Result<()> {
    let text = r#"
        sluice ring create frames
        sluice ring recv frames > received &
        receiver=$!
        (until [[ -s received ]]; do sleep 0.05; done; kill -KILL $receiver) &
        yes | sluice ring send frames
        status=$?
        wait 2> /dev/null # until it is gone
        exit $status"#;
    let words = ["the receiver died after", "restart it and send again"];
    script(context, text)?.expect_failure(1, &words)
}

fn a_killed_sender_fails_the_receiver_after_its_records(context: &Context) -> Result<()> {
    let text = r#"
        mkfifo stdin
        sluice ring create frames
        sluice ring send frames < stdin &
        sender=$!
        exec 3> stdin
        echo hello >&3
        (until grep -q hello received; do sleep 0.05; done 2> /dev/null; kill -KILL $sender) 3>&- &
        sluice ring recv frames > received
        status=$?
        wait 2> /dev/null # until it is gone
        exit $status"#;
    let words = ["the sender failed or died after 1 records, which were written"];
    script(context, text)?.expect_failure(1, &words)
}

fn a_destroyed_ring_ends_both_sides(context: &Context) -> Result<()> {
    let error = "the ring was destroyed after 1 records";
    expect_destroyed(context, "ring", "frames", error)
}

fn both_sides_print_a_summary(context: &Context) -> Result<()> {
    let text = r#"
        sluice ring create frames --capacity 64K
        printf 'one\ntwo\n' | sluice ring send frames --summary 2> sent &
        sluice ring recv frames --json --summary > records 2> received
        wait $!
        cat records sent received"#;
    let printed = script(context, text)?.stdout()?;
    let objects = "{\"record\":\"one\"}\n{\"record\":\"two\"}\n";
    let summaries = printed.strip_prefix(objects);
    let printed = summaries.with_context(|| format!("no objects of records: {printed}"))?;
    let summaries = serde_json::Deserializer::from_str(printed).into_iter::<Value>();
    let summaries = summaries.collect::<Result<Vec<_>, _>>();
    let summaries = summaries.with_context(|| format!("no JSON: {printed}"))?;
    expect("the number of summaries", summaries.len(), 2)?;
    for summary in summaries {
        let found = [&summary["records"], &summary["bytes"], &summary["capacity"]];
        expect("it", found, [&json!(2), &json!(6), &json!(65536)])?;
    }
    Ok(())
}

/// The number of an endpoint that programs inherit.
fn inherited(endpoint: &OwnedFd) -> Result<i32> {
    fcntl(endpoint, FcntlArg::F_SETFD(FdFlag::empty())).context("F_SETFD")?;
    Ok(endpoint.as_raw_fd())
}

fn passed_endpoints_carry_records(context: &Context) -> Result<()> {
    let rings = Rings::new()?;
    let roles = [Role::Producer, Role::Consumer];
    let [producer, consumer] = roles.map(|role| rings.role("frames", role));
    let (producer, consumer) = (producer?, consumer?);
    // Passing does not depend on the name.
    rings.unlink("frames")?;
    let (send, recv) = (inherited(&producer)?, inherited(&consumer)?);
    let text = format!(
        r#"
        sluice ring send --endpoint {send} --wait 100s {recv}>&- <<< hello &
        sluice ring recv --endpoint {recv} --wait 100s {send}>&-
        wait $!
        if sluice ring recv --endpoint {recv}; then exit 9; fi"#
    );
    let run = shell(context, &text)?;
    expect("received", run.stdout()?, "hello\n".to_owned())?;
    let words = "this side of the ring has ended";
    ensure!(run.stderr().contains(words), "{}", run.stderr());
    Ok(())
}

fn another_descriptor_is_rejected_as_an_endpoint(context: &Context) -> Result<()> {
    let producer = Rings::new()?.role("frames", Role::Producer)?;
    let producer = inherited(&producer)?;
    for (command, word) in [
        (
            format!("recv --endpoint {producer}"),
            "that of the producer",
        ),
        (
            "recv --endpoint 9 9< /dev/null".to_owned(),
            "not an endpoint of a ring",
        ),
        ("send --endpoint 99".to_owned(), "cannot use descriptor 99"),
    ] {
        let run = shell(context, &format!("sluice ring {command}"))?;
        run.expect_failure(1, &[word])?;
    }
    Ok(())
}

/// In the VM, where huge pages can be reserved: one for the control region and one for the data.
fn a_ring_over_a_path_carries_records_in_huge_pages(context: &Context) -> Result<()> {
    let path = context.scratch.join("ring");
    let path = path.display();
    let text = format!(
        "echo 4 > /proc/sys/vm/nr_hugepages
         echo sent | sluice ring send --huge-pages --capacity 2M --socket {path} &
         sluice ring recv --socket {path}
         wait $!
         echo $? of the sender
         echo 0 > /proc/sys/vm/nr_hugepages"
    );
    let printed = shell(context, &text)?.stdout()?;
    expect("the output", printed, "sent\n0 of the sender\n".to_owned())
}

/// The kernel would kill it, and another process of the cgroup, when the ring has more pages than that may have.
fn a_ring_over_a_path_that_does_not_fit_in_the_cgroup_is_refused(context: &Context) -> Result<()> {
    let _controller = account_memory_of_children(context.cgroup()?)?;
    let small = context.cgroup()?.create_child("small")?;
    set_memory_max(&small, 8 << 20)?;
    let path = context.scratch.join("ring");
    let path = path.display();
    let records = "head -c 48M /dev/zero | tr '\\0' x | fold -w 1000000";
    let text = format!(
        "sluice ring recv --socket {path} > /dev/null 2>&1 &
         receiver=$!
         inside() {{ echo $BASHPID > {}/cgroup.procs; exec \"$@\"; }}
         inside sleep 100 &
         other=$!
         status=0
         {records} | (inside sluice ring send --capacity 64M --socket {path}) 2> error || status=$?
         echo $status
         grep -c '/small/memory.max leaves' error || true
         kill $other
         wait $other || echo $?
         kill $receiver
         wait",
        small.path().display()
    );
    let printed = shell(context, &text)?.stdout()?;
    expect("the output", printed, "1\n1\n143\n".to_owned())
}

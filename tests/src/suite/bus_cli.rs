// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `sluice bus`, run as from a shell.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::registry::{Context, topic};
use crate::support::bus::longest;
use crate::support::check::expect;
use crate::support::cli::{
    NAME_TAKEN, NO_CHANNEL, NO_PERMISSION, TIMED_OUT, expect_output, expect_table, script, shell,
    sluice,
};

topic!(
    "bus_cli",
    fifo: [],
    pipe_only: [
        a_bus_is_created_shown_listed_and_removed,
        a_list_of_all_channels_has_buses,
        every_subscriber_prints_all_messages,
        each_job_is_printed_once,
        messages_of_any_bytes_arrive_in_frames_and_as_a_whole,
        an_object_tells_sender_sequence_and_losses,
        a_message_is_sent_to_one_subscriber,
        both_sides_print_a_summary,
        a_signal_ends_a_subscriber_after_its_summary,
        a_sender_waits_for_the_bus_and_a_subscriber,
        a_subscriber_prints_what_it_waits_for,
        a_destroyed_bus_ends_its_subscribers,
        an_evicted_subscriber_fails,
        a_request_is_answered_by_a_command,
        servers_take_requests_in_turn,
        a_command_knows_its_client,
        a_request_without_a_reply_fails,
        what_concerns_one_client_does_not_end_the_server,
        a_command_need_not_read_nor_end_its_streams,
        failures_have_their_status,
    ],
);

fn new_bus() -> Value {
    json!({
        "kind": "bus", "name": "frames", "mode": "0640", "uid": 0, "gid": 0, "readers": 0, "writers": 0,
        "bytes": 0, "capacity": 131_072, "persistent": true, "delivery": "broadcast", "policies": "drop,block",
        "mappable": true, "message_max": 65_472, "sent": 0, "unsubscribed": 0, "lag": 0, "lost": 0, "evicted": 0,
    })
}

fn a_bus_is_created_shown_listed_and_removed(context: &Context) -> Result<()> {
    let json = |arguments: &str| sluice(context, arguments)?.json();
    let options = "--permissions 640 --capacity 100K --policies block,drop --mappable --json";
    let made = json(&format!("bus create frames {options}"))?;
    expect("made", made, new_bus())?;
    expect("shown", json("bus info frames --json")?, new_bus())?;
    expect("listed", json("bus ls --json")?, json!([new_bus()]))?;
    expect("rings", json("ring ls --json")?, json!([]))?;
    let headings = "KIND MODE USER GROUP READERS WRITERS BYTES CAPACITY PERSISTENT NAME";
    let row = "bus 0640 root root 0 0 0 131072 yes frames";
    let state = "DELIVERY POLICIES MAPPABLE LARGEST SENT UNSUBSCRIBED LAG LOST EVICTED";
    let values = "broadcast drop,block yes 65472 0 0 0 0 0";
    let shown = sluice(context, "bus info frames")?;
    expect_table(&shown, &[headings, row, "", state, values])?;
    let listed = sluice(context, "bus ls")?;
    let columns = "USER DELIVERY SUBSCRIBERS SENDERS SENT LAG LOST EVICTED NAME";
    expect_table(&listed, &[columns, "root broadcast 0 0 0 0 0 0 frames"])?;
    let all = json("bus ls --all --json")?;
    let own = context.cgroup()?.path();
    let found = all.as_array().into_iter().flatten();
    let found = found.filter(|bus| bus["scope"] == json!(own));
    let found: Vec<_> = found.map(|bus| (&bus["name"], &bus["lag"])).collect();
    expect("of all cgroups", found, vec![(&json!("frames"), &json!(0))])?;
    let removed = sluice(context, "bus rm frames")?.stdout()?;
    expect("output of rm", removed, String::new())?;
    expect("the channels", json("ls --json")?, json!([]))
}

fn a_list_of_all_channels_has_buses(context: &Context) -> Result<()> {
    sluice(context, "bus create frames --mode unicast")?.stdout()?;
    sluice(context, "ring create frames")?.stdout()?;
    shell(context, "sluice bus pub frames <<< hello")?.stdout()?;
    let listed = sluice(context, "ls --json")?.json()?;
    let kinds = [&listed[0]["kind"], &listed[1]["kind"]];
    expect("the kinds", kinds, [&json!("ring"), &json!("bus")])?;
    let buses = sluice(context, "bus ls --json")?.json()?;
    let bus = &buses[0];
    let seen = (&bus["sent"], &bus["lag"], &bus["policies"]);
    expect("the bus", seen, (&json!(1), &json!(1), &json!("none")))?;
    expect("buses", buses.as_array().map(Vec::len), Some(1))
}

fn every_subscriber_prints_all_messages(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus sub frames --create --count 3 > first &
        sluice bus sub frames --create --count 3 > second &
        await bus frames readers 2
        printf 'one\n\nthree' | sluice bus pub frames
        wait
        cat first second"#;
    expect_output(context, text, "one\n\nthree\none\n\nthree\n")
}

fn each_job_is_printed_once(context: &Context) -> Result<()> {
    for mode in ["unicast", "multicast --policies block"] {
        let text = format!(
            r#"
            sluice bus create frames --mode {mode}
            sluice bus sub frames > first &
            sluice bus sub frames > second &
            await bus frames readers 2
            seq 1000 | sluice bus pub frames
            until sluice bus info frames --json | grep -q '"lag": 0,'; do sleep 0.05; done
            sluice bus rm --destroy frames
            wait
            sort -n first second > all
            seq 1000 | cmp - all
            echo same"#
        );
        expect_output(context, &text, "same\n")?;
    }
    Ok(())
}

fn messages_of_any_bytes_arrive_in_frames_and_as_a_whole(context: &Context) -> Result<()> {
    let length = 100_000.min(longest());
    let text = r#"
        length=LENGTH
        for message in 1 2 3 4; do
            printf '\x00\x10\x00\x00'
            head -c 4096 "$BASH"
        done > sent
        head -c $length "$BASH" > whole
        sluice bus sub frames --create --count 4 --framing length > received &
        sluice bus sub frames --create --count 5 --raw > raw &
        await bus frames readers 2
        sluice bus pub frames --framing length < sent
        sluice bus pub frames --raw < whole
        wait
        cmp sent received
        tail -c $length raw | cmp - whole
        stat -c %s raw"#;
    let text = text.replace("LENGTH", &length.to_string());
    expect_output(context, &text, &format!("{}\n", 4 * 4096 + length))
}

fn an_object_tells_sender_sequence_and_losses(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus sub frames --create --count 3 --json > received &
        await bus frames readers 1
        (exec sluice bus pub frames one) &
        sender=$!
        wait $sender
        sluice bus pub frames -- -two
        printf '\xff' | sluice bus pub frames --raw
        wait
        echo $sender
        cat received"#;
    let printed = script(context, text)?.stdout()?;
    let mut lines = printed.lines();
    let pid = lines.next().context("no pid")?.parse::<u32>()?;
    let objects = lines.map(serde_json::from_str::<Value>);
    let objects = objects.collect::<Result<Vec<_>, _>>()?;
    expect("the number of objects", objects.len(), 3)?;
    expect("the pid", &objects[0]["pid"], &json!(pid))?;
    let texts = [
        &objects[0]["message"],
        &objects[1]["message"],
        &objects[2]["message_base64"],
    ];
    expect(
        "the messages",
        texts,
        [&json!("one"), &json!("-two"), &json!("/w==")],
    )?;
    for (sequence, object) in objects.iter().enumerate() {
        expect("its sequence", &object["sequence"], &json!(sequence))?;
        let counts = (&object["lost"], &object["target"]);
        expect("its counts", counts, (&json!(0), &Value::Null))?;
        let credentials = (&object["uid"], &object["gid"]);
        expect("its credentials", credentials, (&json!(0), &json!(0)))?;
        ensure!(object["sender"].as_u64() > Some(0), "no sender in {object}");
    }
    Ok(())
}

fn a_message_is_sent_to_one_subscriber(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus create frames
        sluice bus sub frames --count 1 > first &
        await bus frames readers 1
        sluice bus sub frames --count 2 > second &
        await bus frames readers 2
        sluice bus info frames --subscribers --json > info
        id=$(grep -o '"id": [0-9]*' info | tail -n 1 | grep -o '[0-9]*')
        sluice bus pub frames --to "$id" <<< private
        sluice bus pub frames <<< public
        wait
        cat first second
        sluice bus pub frames --to "$id" <<< late || echo $?"#;
    expect_output(context, text, "public\nprivate\npublic\n3\n")
}

fn both_sides_print_a_summary(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus sub frames --create --count 2 --summary > messages 2> received &
        await bus frames readers 1
        printf 'one\ntwo\n' | sluice bus pub frames --summary 2> sent
        wait $!
        cat sent received"#;
    let printed = script(context, text)?.stdout()?;
    let summaries = serde_json::Deserializer::from_str(&printed).into_iter::<Value>();
    let summaries = summaries.collect::<Result<Vec<_>, _>>();
    let summaries = summaries.with_context(|| format!("no JSON: {printed}"))?;
    expect("the number of summaries", summaries.len(), 2)?;
    for summary in summaries {
        let found = [&summary["messages"], &summary["bytes"], &summary["lost"]];
        expect("it", found, [&json!(2), &json!(6), &json!(0)])?;
        ensure!(summary["id"].as_u64() > Some(0), "no id in {summary}");
    }
    Ok(())
}

/// By SIGTERM, because a shell without job control starts its jobs with SIGINT ignored.
fn a_signal_ends_a_subscriber_after_its_summary(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus sub frames --create --summary > messages 2> summary &
        subscriber=$!
        await bus frames readers 1
        printf 'one\ntwo\n' | sluice bus pub frames
        until grep -q two messages; do sleep 0.05; done
        kill $subscriber
        wait $subscriber || echo $? > status
        [ "$(cat status)" = 143 ] && cat summary"#;
    let summary = script(context, text)?.json()?;
    let found = [&summary["messages"], &summary["bytes"], &summary["lost"]];
    expect("the summary", found, [&json!(2), &json!(6), &json!(0)])
}

fn a_sender_waits_for_the_bus_and_a_subscriber(context: &Context) -> Result<()> {
    let late = sluice(context, "bus pub frames --wait 1s")?;
    late.expect_failure(
        TIMED_OUT,
        &["timeout after 1s waiting for the bus 'frames'"],
    )?;
    let text = r#"
        sluice bus pub frames --wait 100s <<< hello 2> log &
        until grep -q "waiting for the bus 'frames'" log; do sleep 0.05; done
        sluice bus create frames
        until grep -q "waiting for a subscriber of 'frames'" log; do sleep 0.05; done
        sluice bus sub frames --count 1
        wait $!"#;
    expect_output(context, text, "hello\n")
}

fn a_subscriber_prints_what_it_waits_for(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus sub frames --create --count 1 2> log &
        until grep -q "waiting for a sender of 'frames' in" log; do sleep 0.1; done
        grep -q "run 'sluice bus pub frames' there; 'sudo sluice ls --all' lists other cgroups" log
        sluice bus pub frames <<< hello
        wait $!"#;
    expect_output(context, text, "hello\n")
}

fn a_destroyed_bus_ends_its_subscribers(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus sub frames --create > received &
        subscriber=$!
        await bus frames readers 1
        sluice bus pub frames <<< hello
        until grep -q hello received; do sleep 0.05; done
        sluice bus rm --destroy frames
        wait $subscriber"#;
    let words = ["the bus was destroyed after 1 messages"];
    script(context, text)?.expect_failure(1, &words)
}

/// The reader of its output does not read.
fn an_evicted_subscriber_fails(context: &Context) -> Result<()> {
    let text = r#"
        mkfifo output
        sluice bus create frames --capacity 4K
        sluice bus sub frames --policy evict > output &
        subscriber=$!
        exec 3< output
        await bus frames readers 1
        seq 100000 | sluice bus pub frames
        await bus frames readers 0
        cat <&3 > /dev/null &
        copy=$!
        wait $subscriber || status=$?
        wait $copy
        exit $status"#;
    script(context, text)?.expect_failure(1, &["evicted", "receive faster"])
}

fn a_request_is_answered_by_a_command(context: &Context) -> Result<()> {
    let length = 100_000.min(longest());
    let text = r#"
        sluice bus reply sums --create --count 4 -- tr a-z A-Z &
        sluice bus request sums --wait 20s hello
        echo
        echo from input | sluice bus request sums
        sluice bus request sums ''
        head -c LENGTH /dev/zero | tr '\0' x > long
        sluice bus request sums < long | tr X x | cmp - long
        wait
        echo ended"#;
    let text = text.replace("LENGTH", &length.to_string());
    expect_output(context, &text, "HELLO\nFROM INPUT\nended\n")
}

fn servers_take_requests_in_turn(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus reply sums --create --count 2 -- echo first &
        sluice bus reply sums --create --count 2 -- echo second &
        await bus sums readers 2
        for i in 1 2 3 4; do sluice bus request sums x; done | sort
        wait"#;
    expect_output(context, text, "first\nfirst\nsecond\nsecond\n")
}

fn a_command_knows_its_client(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus reply sums --create --count 1 -- \
            sh -c 'echo $SLUICE_UID $SLUICE_GID $((SLUICE_PID > 0)) $((SLUICE_CLIENT > 0))' &
        sluice bus request sums --wait 20s x
        wait"#;
    expect_output(context, text, "0 0 1 1\n")
}

fn a_request_without_a_reply_fails(context: &Context) -> Result<()> {
    let failure = |arguments: &str, status, words: &[&str]| {
        sluice(context, arguments)?.expect_failure(status, words)
    };
    failure("bus request sums x", NO_CHANNEL, &["'sums'"])?;
    sluice(
        context,
        "bus create sums --mode multicast --policies drop,block",
    )?
    .stdout()?;
    failure(
        "bus request sums x",
        NO_CHANNEL,
        &["no server", "start a server"],
    )?;
    failure(
        "bus request sums x --wait 20ms",
        TIMED_OUT,
        &["a server of 'sums'"],
    )?;
    let slow = r#"
        sluice bus reply sums -- sh -c '
            case $(cat) in
            die) kill -KILL $PPID;;
            *) sleep 0.5;;
            esac' &
        await bus sums readers 1
        sluice bus request sums slow --timeout 20ms || echo $?
        sluice bus request sums die --timeout 60s || echo $?
        wait"#;
    let run = script(context, slow)?;
    expect("the statuses", run.stdout()?, "8\n1\n".to_owned())?;
    let errors = run.stderr();
    for words in ["no reply within 20ms", "has ended without a reply"] {
        ensure!(errors.contains(words), "{errors}");
    }
    sluice(context, "bus create news")?.stdout()?;
    failure("bus request news x", 1, &["broadcast bus has no requests"])
}

fn what_concerns_one_client_does_not_end_the_server(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus reply sums --create --capacity 64K --count 4 -- sh -c '
            read -r request; case $request in
            long) head -c 100000 /dev/zero;;
            fail) echo failed; exit 3;;
            *) echo fine;;
            esac' 2> errors &
        sluice bus request sums --wait 20s fail
        sluice bus request sums long --timeout 1s 2> /dev/null || echo $?
        head -c 20000 /dev/zero | sluice bus request sums
        sluice bus request sums x
        wait
        grep -c 'exit status: 3 for client' errors
        grep -c 'no reply to client' errors"#;
    expect_output(context, text, "failed\n8\nfine\nfine\n1\n1\n")?;
    let missing = "sluice bus reply sums --create -- /no/command & sluice bus request sums --wait 20s x || wait $!";
    shell(context, missing)?.expect_failure(1, &["cannot run '/no/command'", "has ended"])
}

fn a_command_need_not_read_nor_end_its_streams(context: &Context) -> Result<()> {
    // More than its pipe holds, where the bus permits that.
    let length = 400_000.min(longest());
    let text = r#"
        sluice bus reply sums --create --count 3 -- sh -c 'sleep 2 & echo fine' 2> errors &
        head -c LENGTH /dev/zero > long
        sluice bus request sums --wait 20s --timeout 60s < long
        sluice bus request sums x --timeout 60s
        sluice bus request sums x --timeout 60s
        wait
        sluice bus reply sums --create --count 1 -- yes 2> errors &
        sluice bus request sums x --wait 20s --timeout 2s 2> /dev/null || echo $?
        wait
        grep -c 'no reply to client' errors
        # Until the processes that were left have ended.
        sleep 2"#;
    let text = text.replace("LENGTH", &length.to_string());
    expect_output(context, &text, "fine\nfine\nfine\n1\n1\n")
}

fn failures_have_their_status(context: &Context) -> Result<()> {
    let words = ["no bus named 'frames' in", "sluice bus create frames"];
    for arguments in ["pub frames", "sub frames", "info frames", "rm frames"] {
        sluice(context, &format!("bus {arguments}"))?.expect_failure(NO_CHANNEL, &words)?;
    }
    sluice(
        context,
        "bus create frames --mode multicast --permissions 000",
    )?
    .stdout()?;
    let words = ["the bus 'frames' already exists in", "sluice bus rm frames"];
    sluice(context, "bus create frames")?.expect_failure(NAME_TAKEN, &words)?;
    let words = ["does not permit the policy 'block'"];
    let refused = sluice(context, "bus sub frames --policy block")?;
    refused.expect_failure(NO_PERMISSION, &words)?;
    let lonely = shell(context, "sluice bus pub frames <<< hello")?;
    lonely.expect_failure(NO_CHANNEL, &["no subscriber"])?;
    let late = sluice(context, "bus sub frames --timeout 1s")?;
    late.expect_failure(TIMED_OUT, &["timeout", "no sender has the bus"])?;
    let unprivileged = |arguments: &str| {
        let unprivileged = "setpriv --bounding-set=-sys_admin,-sys_resource sluice bus";
        shell(context, &format!("{unprivileged} {arguments}"))
    };
    let denied = unprivileged("sub frames")?;
    denied.expect_failure(NO_PERMISSION, &["permission denied for the bus 'frames'"])?;
    sluice(context, "bus create open")?.stdout()?;
    let denied = unprivileged("sub open --monitor")?;
    denied.expect_failure(NO_PERMISSION, &["CAP_SYS_ADMIN"])?;
    sluice(context, "bus create small --capacity 4K")?.stdout()?;
    let long = shell(
        context,
        "head -c 1985 /dev/zero | sluice bus pub small --raw",
    )?;
    long.expect_failure(1, &["1985 bytes", "1984"])?;
    let invalid = sluice(context, "bus create jobs --mode unicast --policies drop")?;
    invalid.expect_failure(1, &["a unicast bus has no policies"])?;
    let invalid = sluice(context, "bus sub open --timeout 5")?;
    invalid.expect_failure(2, &["a time has a unit", "5s"])
}

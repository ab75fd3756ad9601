// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice top` and `sluice metrics`: the channels, their rates and their processes, and the keys on a terminal.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{Run, expect_output, script};

topic!(
    "cli_top",
    fifo: [],
    pipe_only: [
        top_shows_rates_and_processes_of_a_bus,
        top_shows_a_call_that_sleeps,
        top_prints_objects_until_its_output_is_closed,
        top_shows_another_user_no_other_scope_and_process,
        top_needs_a_terminal,
        keys_sort_filter_and_quit,
        the_terminal_is_restored,
        metrics_grow,
        metrics_are_served,
        the_first_process_of_a_container_ends_by_a_signal,
    ],
);

/// The rows that the script prints at its end.
fn rows(run: &Run) -> Result<Vec<Value>> {
    let rows = run.json()?.as_array().cloned();
    rows.with_context(|| format!("no array: {}", run.stderr()))
}

/// The only row that the script prints.
fn row(context: &Context, text: &str) -> Result<Value> {
    let rows = rows(&script(context, text)?)?;
    ensure!(rows.len() == 1, "not one channel: {rows:?}");
    Ok(rows[0].clone())
}

fn top_shows_rates_and_processes_of_a_bus(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus sub --create frames > received &
        subscriber=$!
        await bus frames readers 1
        { while sleep 0.01; do echo hello; done; } | sluice bus pub frames &
        until [[ -s received ]]; do sleep 0.05; done
        until
            sluice top --once --json --interval 500ms --kind bus --filter "$SCOPE" > rows
            grep -Eq '"messages_per_second": (0\.)?[1-9]' rows
        do :; done
        kill $subscriber %2
        wait
        sed "s/\"pid\": $subscriber,/\"pid\": 1,/" rows"#;
    let row = row(context, text)?;
    let positive = |member: &str| row[member].as_f64().is_some_and(|number| number > 0.0);
    for member in ["messages", "messages_per_second", "capacity", "time"] {
        ensure!(positive(member), "{member} is not positive: {row}");
    }
    expect("the name", row["name"].as_str(), Some("frames"))?;
    let scope = context.cgroup()?.path().display().to_string();
    expect("the scope", row["scope"].as_str(), Some(scope.as_str()))?;
    expect(
        "the losses per second",
        row["lost_per_second"].as_f64(),
        Some(0.0),
    )?;
    ensure!(row["total_bytes"].is_null(), "a bus counts no bytes: {row}");
    let processes = row["processes"].as_array().cloned().unwrap_or_default();
    let has = |access: &str, pid: Option<u64>| {
        processes.iter().any(|process| {
            process["access"] == access
                && process["command"] == "sluice"
                && pid.is_none_or(|pid| process["pid"] == pid)
        })
    };
    ensure!(has("r", Some(1)) && has("w", None), "not both sides: {row}");
    Ok(())
}

fn top_shows_a_call_that_sleeps(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus sub --create frames &
        await bus frames readers 1
        until sluice top --once --json --interval 100ms --scope "$SCOPE" > rows; grep -q '"waiting": 1,' rows; do :; done
        kill %1
        wait
        cat rows"#;
    let row = row(context, text)?;
    expect("the rate", row["messages_per_second"].as_f64(), Some(0.0))?;
    expect("the readers", row["readers"].as_u64(), Some(1))?;
    expect("the lag", row["lag"].as_u64(), Some(0))
}

fn top_prints_objects_until_its_output_is_closed(context: &Context) -> Result<()> {
    let text = r#"
        sluice pipe create frames
        sluice top --json --interval 100ms --scope "$SCOPE" | head -n 2 > rows
        grep -c '^{"time":.*"name":"frames".*"bytes_per_second":0.0,.*}$' rows"#;
    expect_output(context, text, "2\n")
}

/// Descriptor 9 is the program, whose directory the user may not be able to search.
fn top_shows_another_user_no_other_scope_and_process(context: &Context) -> Result<()> {
    context.cgroup()?.create_child("other")?;
    let text = r#"
        exec 9< "$(command -v sluice)"
        sluice pipe create --scope "$SCOPE/other" hidden
        sluice bus sub --create shown > /dev/null &
        await bus shown readers 1
        top() {
            "$@" top --once --json --interval 100ms --filter "$SCOPE" > rows
            grep -E '"(name|command)"' rows | tr -d ' ",' | sort
        }
        top sluice
        echo
        top setpriv --reuid=65534 --regid=65534 --clear-groups /proc/self/fd/9
        kill %1
        wait"#;
    let expected = "command:sluice\nname:hidden\nname:shown\n\nname:shown\n";
    expect_output(context, text, expected)
}

fn top_needs_a_terminal(context: &Context) -> Result<()> {
    script(context, "sluice top")?.expect_failure(1, &["not a terminal", "--once"])
}

/// `type` types into a terminal of 80 columns with a shell, and `shows` waits until the screen contains a line.
const TERMINAL: &str = r#"
    export LC_ALL=C.UTF-8
    for name in alpha beta; do sluice pipe create $name; done
    sluice bus create gamma
    echo 'set -g status off' > config
    terminal() { tmux -S terminal -f config "$@"; }
    type() { terminal send-keys "$@"; }
    shows() { until terminal capture-pane -p | grep -Eq -- "$1"; do sleep 0.05; done; }
    names() { terminal capture-pane -p | awk '/^(pipe|bus) +[a-z]+ +[/…]/ { printf "%s ", $2 } END { print "" }'; }
    terminal new-session -d -x 80 -y 24 'exec bash --norc --noprofile'
    processes=$(terminal display-message -p '/proc/#{pid}/status /proc/#{pane_pid}/status')
    end() { terminal kill-server; while grep -qs '^State:.[^Z]' $processes; do sleep 0.05; done; }
    trap end EXIT
    start() { type "sluice top --scope '$SCOPE' --sort name --interval 100ms; echo status \$?" Enter; shows '^KIND NAME +SCOPE'; }
"#;

fn keys_sort_filter_and_quit(context: &Context) -> Result<()> {
    let text = TERMINAL.to_owned()
        + r#"
        start
        names
        type r; shows '^by name, reversed;'; names
        type '>'; shows '^by scope, reversed;'
        type / lph Enter; shows 'filter: lph;'; names
        type Escape; shows '^by scope, reversed; \? help'; type '<' r; shows '^by name;'; names
        type '?'; shows '^Keys of sluice top'
        type x; shows '^KIND NAME'
        type p; shows ', paused'
        type q; shows '^status 0'
        terminal capture-pane -p | grep -c '^KIND' || :"#;
    let expected = "alpha beta gamma \ngamma beta alpha \nalpha \nalpha beta gamma \n0\n";
    expect_output(context, &text, expected)
}

fn the_terminal_is_restored(context: &Context) -> Result<()> {
    let text = TERMINAL.to_owned()
        + r#"
        modes() { type "stty -a > $1.new; mv $1.new $1" Enter; until [[ -e $1 ]]; do sleep 0.05; done; }
        modes before
        start
        type C-z; shows Stopped
        modes stopped
        type 'clear; fg; echo status $?' Enter; shows '^KIND NAME'
        type C-c; shows '^status 0'
        modes quit
        type clear Enter
        start
        kill "$(pgrep -f "^sluice top --scope $SCOPE ")"
        shows '^status 143'
        modes killed
        for state in stopped quit killed; do cmp before $state; done"#;
    expect_output(context, &text, "")
}

fn metrics_grow(context: &Context) -> Result<()> {
    let text = r#"
        sluice bus sub --create --count 3 frames > /dev/null &
        await bus frames readers 1
        metrics() {
            sluice metrics --scope "$SCOPE" --kind bus > metrics
            sed -n "s|^\(sluice_channel_$1\){kind=\"bus\",name=\"frames\",scope=\"$SCOPE\",uid=\"0\"}|\1|p" metrics
        }
        metrics messages_total
        sluice bus pub frames a
        sluice bus pub frames b
        metrics messages_total
        metrics readers
        grep -x 'sluice_up 1' metrics
        grep -c '^sluice_scope_channels{scope="'"$SCOPE"'"} 1$' metrics
        tail -n 1 metrics
        sluice bus pub frames c
        wait $!"#;
    let expected = "\
sluice_channel_messages_total 0
sluice_channel_messages_total 2
sluice_channel_readers 1
sluice_up 1
1
# EOF
";
    expect_output(context, text, expected)
}

fn metrics_are_served(context: &Context) -> Result<()> {
    let text = r#"
        sluice pipe create frames
        sluice metrics --scope "$SCOPE" --listen ./socket &> log &
        server=$!
        until grep -qs '^sluice: metrics at /metrics of the socket ./socket$' log; do sleep 0.05; done
        get() { printf 'GET %s HTTP/1.1\r\nHost: a\r\n\r\n' "$1" | socat -t 10 - UNIX-CONNECT:socket | tr -d '\r'; }
        get /metrics > response
        head -n 2 response
        grep -c 'kind="pipe",name="frames"' response
        tail -n 1 response
        get / | head -n 1
        sluice metrics --listen ./socket 2> error || echo "status $?"
        grep -o 'give a path' error
        kill $server
        wait $server || echo "status $?"
        ls"#;
    let expected = "\
HTTP/1.1 200 OK
Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8
6
# EOF
HTTP/1.1 404 Not Found
status 1
give a path
status 143
error
log
response
";
    expect_output(context, text, expected)
}

/// The kernel ignores signals without a handler that are sent to the first process of a PID namespace.
fn the_first_process_of_a_container_ends_by_a_signal(context: &Context) -> Result<()> {
    let text = r#"
        for address in 127.0.0.1:0 ./socket; do
            unshare --pid --fork sluice metrics --listen $address 2> log &
            until grep -qs '^sluice: metrics at ' log; do sleep 0.05; done
            kill "$(pgrep -P $!)"
            wait $! || echo "status $?"
            rm log
        done
        ls"#;
    expect_output(context, text, "status 143\nstatus 143\n")
}

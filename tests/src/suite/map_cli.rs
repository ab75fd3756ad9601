// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `sluice map`, run as from a shell.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::cli::{
    NAME_TAKEN, NO_CHANNEL, NO_PERMISSION, TIMED_OUT, expect_output, expect_table, script, shell,
    sluice,
};

topic!(
    "map_cli",
    fifo: [],
    pipe_only: [
        a_map_is_created_shown_listed_and_removed,
        a_list_of_all_channels_has_maps,
        a_value_is_an_argument_a_file_or_standard_input,
        values_of_any_bytes_are_printed_unchanged,
        keys_are_given_as_they_are_listed,
        the_keys_of_a_map_are_listed,
        an_entry_is_shown_as_json,
        a_version_decides_a_change,
        an_absent_key_is_status_3,
        an_entry_expires,
        each_change_is_printed,
        a_watch_reports_what_it_has_missed,
        a_destroyed_map_ends_its_watchers,
        a_signal_ends_a_watcher_after_its_report,
        an_export_is_imported,
        an_import_ends_at_an_invalid_line,
        an_import_ends_when_the_map_is_full,
        an_import_prints_a_summary,
        a_terminal_shows_the_progress_of_an_export,
        failures_have_their_status,
    ],
);

fn create(context: &Context) -> Result<()> {
    sluice(context, "map create entries")?.stdout().map(drop)
}

/// The object of a map without its bytes, which depend on the kernel.
fn without_bytes(mut map: Value) -> Result<Value> {
    let object = map.as_object_mut().context("no object")?;
    let bytes = object.remove("bytes");
    let bytes = bytes.context("no bytes")?.as_u64();
    ensure!(bytes > Some(0), "bytes: {bytes:?}");
    Ok(map)
}

fn a_map_is_created_shown_listed_and_removed(context: &Context) -> Result<()> {
    let json = |arguments: &str| sluice(context, arguments)?.json();
    let expected = json!({
        "kind": "map", "name": "entries", "mode": "0640", "uid": 0, "gid": 0, "readers": 0, "writers": 0,
        "capacity": 131_072, "persistent": true, "entries": 0, "entries_max": 100, "sequence": 0, "expired": 0,
        "watchers": 0, "events": 64, "missed": 0, "durable": null, "table": null, "cell": null,
    });
    let options = "--permissions 640 --capacity 128K --entries 100 --events 64 --json";
    let made = json(&format!("map create entries {options}"))?;
    expect("made", without_bytes(made)?, expected.clone())?;
    let shown = json("map info entries --json")?;
    expect("shown", without_bytes(shown)?, expected.clone())?;
    let listed = json("map ls --json")?;
    let maps = listed.as_array().context("no array")?.clone();
    let maps = maps.into_iter().map(without_bytes);
    expect("listed", maps.collect::<Result<_>>()?, vec![expected])?;
    expect("buses", json("bus ls --json")?, json!([]))?;
    let shown = sluice(context, "map info entries")?.stdout()?;
    let state = "ENTRIES LIMIT SEQUENCE EXPIRED WATCHERS EVENTS MISSED TABLE CELL";
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = shown.lines().map(words).collect();
    expect("lines", lines.len(), 5)?;
    let rest = [&lines[2][..], &lines[3], &lines[4]];
    expect(
        "the second table",
        rest,
        ["", state, "0 100 0 0 0 64 0 none none"],
    )?;
    let listed = sluice(context, "map ls")?.stdout()?;
    ensure!(listed.starts_with("USER  ENTRIES  BYTES"), "{listed}");
    let all = sluice(context, "map ls --all")?.stdout()?;
    let heading = format!("{}:\nUSER  ENTRIES", context.cgroup()?.path().display());
    ensure!(all.contains(&heading), "no '{heading}' in {all}");
    let removed = sluice(context, "map rm entries")?.stdout()?;
    expect("output of rm", removed, String::new())?;
    expect_table(
        &sluice(context, "map ls")?,
        &["USER ENTRIES BYTES CAPACITY SEQUENCE WATCHERS DURABLE NAME"],
    )?;
    // 16 blocks of 16 cells.
    let made = json("map create table --mapped 100 --cell 200 --json")?;
    let table = (made["table"].as_u64(), made["cell"].as_u64());
    expect("a table", table, (Some(16 * 16 * 256), Some(256)))?;
    let refused = sluice(context, "map create durable --mapped 100 --durable")?;
    ensure!(refused.stdout().is_err(), "a durable map has a table");
    Ok(())
}

fn a_list_of_all_channels_has_maps(context: &Context) -> Result<()> {
    create(context)?;
    sluice(context, "bus create entries")?.stdout()?;
    sluice(context, "map set entries key value")?.stdout()?;
    let listed = sluice(context, "ls --json")?.json()?;
    let kinds = [&listed[0]["kind"], &listed[1]["kind"]];
    expect("the kinds", kinds, [&json!("bus"), &json!("map")])?;
    let maps = sluice(context, "map ls --json")?.json()?;
    let map = &maps[0];
    let seen = (&map["entries"], &map["sequence"], &map["entries_max"]);
    expect("the map", seen, (&json!(1), &json!(1), &Value::Null))?;
    expect("maps", maps.as_array().map(Vec::len), Some(1))
}

fn a_value_is_an_argument_a_file_or_standard_input(context: &Context) -> Result<()> {
    create(context)?;
    let text = r#"
        printf file > file
        sluice map set entries one argument
        sluice map set entries two --file file
        printf input | sluice map set entries three
        printf input | sluice map set entries four --file -
        sluice map set entries five ''
        sluice map set entries six -17
        for key in one two three four five six; do
            printf '%s=%s\n' $key "$(sluice map get entries $key)"
        done"#;
    let expected = "one=argument\ntwo=file\nthree=input\nfour=input\nfive=\nsix=-17\n";
    expect_output(context, text, expected)
}

fn values_of_any_bytes_are_printed_unchanged(context: &Context) -> Result<()> {
    create(context)?;
    let text = r#"
        head -c 1048576 "$BASH" > value
        [ "$(stat -c %s value)" = 1048576 ]
        sluice map set entries key --file value
        sluice map get entries key | cmp - value
        sluice map set entries key < value
        sluice map get entries key | cmp - value
        printf '\0\n\377' > short
        sluice map set entries key -f short
        sluice map get entries key | cmp - short
        echo x >> value
        sluice map set entries key -f value 2> errors || echo $?
        cat errors"#;
    let error = "1\nsluice: the value has more than 1048576 bytes, the limit; split it\n";
    expect_output(context, text, error)
}

fn keys_are_given_as_they_are_listed(context: &Context) -> Result<()> {
    create(context)?;
    let keys = r"a\x00b\xff \\ \n\r\t grüße \x1b";
    let text = format!(
        r#"
        sluice map set -e entries '{keys}' 'one\x00two'
        sluice map set entries '{keys}' 'as it is'
        sluice map ls entries | tail -n +2 | cut -c 23- | sort
        sluice map get -e entries '{keys}' | od -An -c | tr -s ' '
        sluice map get entries '{keys}'
        echo
        sluice map del entries '{keys}' --escapes
        sluice map get -e entries '{keys}' || echo $?"#
    );
    let run = script(context, &text)?;
    let twice = keys.replace('\\', r"\\");
    let printed = run.stdout()?;
    let lines: Vec<_> = printed.lines().map(str::trim_start).collect();
    // In the order of sort(1), whichever that is.
    let (listed, rest) = lines.split_at_checked(2).context("no list")?;
    ensure!(listed.contains(&keys), "no {keys} in {printed}");
    ensure!(listed.contains(&&twice[..]), "no {twice} in {printed}");
    let expected = [r"o n e \0 t w o", "as it is", "3"];
    expect("the values", rest, &expected[..])
}

fn the_keys_of_a_map_are_listed(context: &Context) -> Result<()> {
    create(context)?;
    let text = r#"
        sluice map set entries beta second
        sluice map set entries alpha first
        sluice map set entries alpha again"#;
    script(context, text)?.stdout()?;
    let listed = sluice(context, "map ls entries")?;
    let headings = "VERSION TTL LENGTH KEY";
    expect_table(&listed, &[headings, "3 none 5 alpha", "1 none 6 beta"])?;
    let listed = sluice(context, "map ls entries --values")?;
    let headings = "VERSION TTL LENGTH KEY VALUE";
    let rows = ["3 none 5 alpha again", "1 none 6 beta second"];
    expect_table(&listed, &[headings, rows[0], rows[1]])?;
    let listed = sluice(context, "map ls entries --json")?.json()?;
    let keys = json!([
        { "key": "alpha", "length": 5, "version": 3, "ttl_ns": null },
        { "key": "beta", "length": 6, "version": 1, "ttl_ns": null },
    ]);
    expect("the keys", listed, keys)?;
    let listed = sluice(context, "map ls entries --values --json")?.json()?;
    let entries = json!([
        { "key": "alpha", "value": "again", "version": 3, "ttl_ns": null },
        { "key": "beta", "value": "second", "version": 1, "ttl_ns": null },
    ]);
    expect("the entries", listed, entries)
}

fn an_entry_is_shown_as_json(context: &Context) -> Result<()> {
    create(context)?;
    let set = shell(context, "sluice map set entries key --json <<< value")?.json()?;
    expect("a set", set, json!({ "created": true, "version": 1 }))?;
    let set = shell(
        context,
        r"sluice map set entries -e '\xff' '\xfe\x00' --ttl 1h --json",
    )?;
    expect(
        "a set",
        set.json()?,
        json!({ "created": true, "version": 2 }),
    )?;
    let entry = sluice(context, "map get entries key --json")?.json()?;
    let expected = json!({ "key": "key", "value": "value\n", "version": 1, "ttl_ns": null });
    expect("the first", entry, expected)?;
    let entry = shell(context, r"sluice map get entries -e '\xff' --json")?.json()?;
    let members = (
        &entry["key_base64"],
        &entry["value_base64"],
        &entry["version"],
    );
    let expected = (&json!("/w=="), &json!("/gA="), &json!(2));
    expect("the second", members, expected)?;
    let left = entry["ttl_ns"].as_u64().context("no time to live")?;
    let hour = 3_600_000_000_000;
    ensure!(left > hour / 2 && left <= hour, "{left}");
    let deleted = sluice(context, "map del entries key --json")?.json()?;
    expect("a delete", deleted, json!({ "version": 3 }))
}

fn a_version_decides_a_change(context: &Context) -> Result<()> {
    create(context)?;
    let text = r#"
        sluice map cas entries key 7 early || echo $?
        sluice map cas entries key 0 created
        sluice map cas entries key 0 again || echo $?
        sluice map cas entries key 2 wrong || echo $?
        printf changed | sluice map cas entries key 1 --json
        sluice map del entries key --if-version 1 || echo $?
        sluice map get entries key
        sluice map del entries key --if-version 2
        sluice map del entries key --if-version 2 || echo $?"#;
    let run = script(context, text)?;
    let json = "{\n  \"created\": false,\n  \"version\": 2\n}\n";
    let expected = format!("3\n4\n4\n{json}4\nchanged3\n");
    expect("the output", run.stdout()?, expected)?;
    for words in [
        "cannot set 'key' in 'entries': there is no entry, and version 7 is required",
        "cannot set 'key' in 'entries': the entry exists",
        "cannot set 'key' in 'entries': the entry has version 1, and 2 is required",
        "cannot delete 'key' in 'entries': the entry has version 2, and 1 is required",
    ] {
        ensure!(run.stderr().contains(words), "no {words}: {}", run.stderr());
    }
    Ok(())
}

fn an_absent_key_is_status_3(context: &Context) -> Result<()> {
    create(context)?;
    let words = ["no key 'key' in the map 'entries'", "sluice map ls entries"];
    for arguments in [
        "get entries key",
        "get entries key --json",
        "del entries key",
    ] {
        sluice(context, &format!("map {arguments}"))?.expect_failure(NO_CHANNEL, &words)?;
    }
    let output = sluice(context, "map get entries key")?.output;
    expect("the output", output.stdout.len(), 0)
}

fn an_entry_expires(context: &Context) -> Result<()> {
    create(context)?;
    let text = r#"
        sluice map watch entries --count 2 > changes &
        await map entries watchers 1
        sluice map set entries key value --ttl 50ms
        wait
        cat changes
        sluice map get entries key || echo $?
        sluice map ls entries | wc -l"#;
    expect_output(context, text, "1 created 0 key\n2 expired 0 key\n3\n1\n")
}

fn each_change_is_printed(context: &Context) -> Result<()> {
    let text = r#"
        sluice map watch entries --create --count 4 > text &
        await map entries watchers 1
        sluice map watch entries --count 4 --timeout 60s --json > json &
        await map entries watchers 2
        sluice map set entries key one
        sluice map set entries key two
        sluice map del entries key
        sluice map set entries -e 'a\nb\xff' three
        wait
        cat text json
        sluice map ls --json"#;
    let text_lines = r"1 created 0 key
2 updated 0 key
3 deleted 0 key
4 created 0 a\nb\xff
";
    let objects = r#"{"sequence":1,"change":"created","missed":0,"version":1,"key":"key"}
{"sequence":2,"change":"updated","missed":0,"version":2,"key":"key"}
{"sequence":3,"change":"deleted","missed":0,"version":2,"key":"key"}
{"sequence":4,"change":"created","missed":0,"version":4,"key_base64":"YQpi/w=="}
"#;
    // The map ends with its watchers.
    expect_output(context, text, &format!("{text_lines}{objects}[]\n"))
}

fn a_watch_reports_what_it_has_missed(context: &Context) -> Result<()> {
    let text = r#"
        sluice map create entries --events 8
        for number in $(seq 20); do sluice map set entries "key $number" ''; done
        sluice map watch entries --after 0 --count 2
        sluice map watch entries --after 18 --count 2"#;
    let run = script(context, text)?;
    let of_a_prefix = "map watch entries --prefix key\\ 2 --after 18 --count 1";
    let of_a_prefix = shell(context, &format!("sluice {of_a_prefix}"))?.stdout()?;
    expect(
        "of a prefix",
        of_a_prefix,
        "20 created 0 key 20\n".to_owned(),
    )?;
    let listed = shell(context, r"sluice map ls entries --prefix key\ 2")?.stdout()?;
    expect("the lines of a prefix", listed.lines().count(), 3)?;
    let expected =
        "13 created 12 key 13\n14 created 0 key 14\n19 created 0 key 19\n20 created 0 key 20\n";
    expect("the output", run.stdout()?, expected.to_owned())?;
    let reported = "sluice: 12 changes were missed, because the map does not keep them\n";
    expect("the report", run.stderr(), reported.to_owned())?;
    let late = sluice(context, "map watch entries --timeout 1s")?;
    let words = ["watching ended after 0 changes: timeout", "no event for 1s"];
    late.expect_failure(TIMED_OUT, &words)?;
    let future = sluice(context, "map watch entries --after 21")?;
    future.expect_failure(1, &["the map has no change 21 yet"])
}

fn a_destroyed_map_ends_its_watchers(context: &Context) -> Result<()> {
    let text = r#"
        sluice map watch entries --create > changes &
        watcher=$!
        await map entries watchers 1
        sluice map set entries key value
        until grep -q key changes; do sleep 0.05; done
        sluice map rm --destroy entries
        wait $watcher"#;
    let words = ["the map was destroyed after 1 changes"];
    script(context, text)?.expect_failure(1, &words)
}

/// By SIGTERM, because a shell without job control starts its jobs with SIGINT ignored.
fn a_signal_ends_a_watcher_after_its_report(context: &Context) -> Result<()> {
    let text = r#"
        sluice map create entries --events 1
        sluice map set entries first ''
        sluice map set entries second ''
        sluice map watch entries --after 0 > changes 2> report &
        watcher=$!
        until grep -q second changes; do sleep 0.05; done
        kill $watcher
        wait $watcher || echo $? > status
        cat status report changes"#;
    let report = "sluice: 1 changes were missed, because the map does not keep them";
    let expected = format!("143\n{report}\n2 created 1 second\n");
    expect_output(context, text, &expected)
}

/// Lines of an export without what another map has of its own, sorted.
const PLAIN: &str = r#"
    plain() {
        sluice map export "$1" | sed 's/"version":[0-9]*,//; s/"ttl_ns":[0-9][0-9]*/"ttl_ns":1/' | sort
    }"#;

fn an_export_is_imported(context: &Context) -> Result<()> {
    create(context)?;
    let text = format!(
        r#"{PLAIN}
        for number in $(seq 300); do printf '{{"key":"key %s","value":"value %s"}}\n' $number $number; done > generated
        sluice map import entries generated
        head -c 500000 "$BASH" | sluice map set entries long
        sluice map set entries -e 'a\x00\xff' 'b\x01\xfe' --ttl 1h
        sluice map set entries empty ''
        sluice map export entries all.jsonl
        sluice map import copy all.jsonl --create --persist --capacity 8M
        sluice map export entries - | sluice map import piped --create --persist
        wc -l < all.jsonl
        plain entries > expected
        for map in copy piped; do
            plain $map | cmp - expected
            sluice map get $map long | cmp - <(head -c 500000 "$BASH")
        done
        grep -c '"ttl_ns":1' expected
        sluice map ls copy --json | grep -c '"ttl_ns": null'
        sluice map get copy 'key 300'"#
    );
    expect_output(context, &text, "303\n1\n302\nvalue 300")
}

fn an_import_ends_at_an_invalid_line(context: &Context) -> Result<()> {
    create(context)?;
    let text = r#"
        printf '{"key":"one","value":"1"}\n\n{"key":"two","value":"2"}\n{"key":"three"}\n' > lines
        sluice map import entries lines"#;
    let run = script(context, text)?;
    let words = [
        "import ended after 2 entries",
        "line 4 is invalid; see sluice-map(1)",
        "neither or both of the members value and value_base64",
    ];
    run.expect_failure(1, &words)?;
    let listed = sluice(context, "map ls entries")?;
    let rows = ["1 none 1 one", "2 none 1 two"];
    expect_table(&listed, &["VERSION TTL LENGTH KEY", rows[0], rows[1]])?;
    let empty_key = shell(
        context,
        r#"sluice map import entries <<< '{"key":"","value":""}'"#,
    )?;
    let words = ["cannot set the entry of line 1", "invalid key of 0 bytes"];
    empty_key.expect_failure(1, &words)?;
    let missing = sluice(context, "map import entries nowhere")?;
    missing.expect_failure(1, &["cannot open nowhere", "readable"])
}

fn an_import_ends_when_the_map_is_full(context: &Context) -> Result<()> {
    let text = r#"
        sluice map create entries --entries 300
        for number in $(seq 1000); do printf '{"key":"%s","value":""}\n' $number; done |
            sluice map import entries"#;
    let words = [
        "import ended after 300 entries",
        "cannot set the entry of line 301",
        "the map is full",
    ];
    script(context, text)?.expect_failure(1, &words)
}

fn an_import_prints_a_summary(context: &Context) -> Result<()> {
    let text = r#"
        printf '{"key":"one","value":"1"}\n{"key":"two","value":"22"}\n' |
            sluice map import entries --create --summary 2>&1"#;
    let summary = script(context, text)?.json()?;
    let counts = (&summary["entries"], &summary["bytes"]);
    expect("the counts", counts, (&json!(2), &json!(9)))?;
    ensure!(summary["seconds"].as_f64() >= Some(0.0), "{summary}");
    // The map ended with the import.
    expect("maps", sluice(context, "map ls --json")?.json()?, json!([]))
}

/// The reader of the output does not read at first.
fn a_terminal_shows_the_progress_of_an_export(context: &Context) -> Result<()> {
    create(context)?;
    let text = r#"
        for number in $(seq 40); do
            printf '{"key":"key %s","value":"%050000d"}\n' $number 0
        done | sluice map import entries
        mkfifo output
        script --quiet --return --command 'sluice map export entries output' screen < /dev/null > /dev/null &
        { sleep 0.5; wc -l; } < output
        wait $!
        cat screen"#;
    let screen = script(context, text)?.stdout()?;
    ensure!(screen.starts_with("40\n"), "not all lines: {screen:?}");
    for shown in ["/40 entries", " left"] {
        ensure!(
            screen.contains(shown),
            "no {shown:?} on the screen: {screen:?}"
        );
    }
    Ok(())
}

fn failures_have_their_status(context: &Context) -> Result<()> {
    let words = ["no map named 'entries' in", "sluice map create entries"];
    for arguments in [
        "get entries key",
        "set entries key value",
        "cas entries key 0 value",
        "del entries key",
        "ls entries",
        "info entries",
        "rm entries",
        "watch entries",
        "export entries",
        "import entries",
    ] {
        sluice(context, &format!("map {arguments}"))?.expect_failure(NO_CHANNEL, &words)?;
    }
    sluice(context, "map create entries --permissions 400")?.stdout()?;
    let words = [
        "the map 'entries' already exists in",
        "sluice map rm entries",
    ];
    sluice(context, "map create entries")?.expect_failure(NAME_TAKEN, &words)?;
    let unprivileged = |arguments: &str| {
        let unprivileged = "setpriv --bounding-set=-sys_admin,-sys_resource sluice map";
        shell(context, &format!("{unprivileged} {arguments}"))
    };
    let denied = unprivileged("set entries key value")?;
    denied.expect_failure(
        NO_PERMISSION,
        &["permission denied for the map 'entries'", "permissions 400"],
    )?;
    unprivileged("ls entries")?.stdout()?;
    sluice(context, "map set entries key value")?.stdout()?;
    expect(
        "the value",
        unprivileged("get entries key")?.stdout()?,
        "value".to_owned(),
    )?;
    let invalid = shell(context, r"sluice map get -e entries 'a\q'")?;
    invalid.expect_failure(1, &["invalid KEY: invalid escape '\\q'"])?;
    let empty = shell(context, "sluice map get entries ''")?;
    empty.expect_failure(1, &["invalid key of 0 bytes; use 1 to 4096 bytes"])?;
    let small = sluice(context, "map create small --capacity 4K")?;
    small.expect_failure(1, &["invalid options for the map", "give a capacity of up"])?;
    let usage = sluice(context, "map set entries key value --capacity 1M")?;
    usage.expect_failure(2, &["--create"])
}

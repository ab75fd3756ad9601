// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `sluice`; its manual is docs/man/sluice.1.

mod args;
mod bench;
mod bus;
mod cdi;
mod cgroup;
mod channel_row;
mod channels;
mod completion;
mod copy;
mod defaults;
mod doctor;
mod exit;
mod feed;
mod holders;
mod ls;
#[cfg(test)]
mod manual;
mod map;
mod metrics;
mod output;
mod pipe;
mod progress;
mod ring;
mod rm;
mod signals;
mod store;
mod stream;
mod table;
mod text;
mod top;
mod unload;
mod wait_notice;

use std::io;
use std::process::{self, ExitCode};

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Move data between processes through named pipes, shared-memory rings, message buses or maps
#[derive(Parser)]
#[command(name = "sluice", version)]
struct Cli {
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Subcommand)]
enum Noun {
    /// Send and receive through pipes, and manage them
    #[command(subcommand)]
    Pipe(pipe::Verb),
    /// Send and receive records through shared memory, with or without the kernel module, and manage rings
    #[command(subcommand)]
    Ring(ring::Verb),
    /// Send and receive messages between many processes, and manage buses
    #[command(subcommand)]
    Bus(bus::Verb),
    /// Get, set and watch keys and values that many processes share, and manage maps
    #[command(subcommand)]
    Map(map::Verb),
    /// Receive packets of kernel modules, and measure how long they take
    #[command(subcommand)]
    Feed(feed::Verb),
    /// Restore, drop and delete the maps that the daemon sluiced stores
    #[command(subcommand)]
    Store(store::Verb),
    /// List the channels of a scope
    #[command(alias = "list")]
    Ls(ls::Arguments),
    /// Show the channels with their rates, backlogs, losses and processes, again and again
    Top(top::Arguments),
    /// Print the state of the channels as metrics for Prometheus, or serve them over HTTP
    Metrics(metrics::Arguments),
    /// Measure Sluice and other IPC mechanisms, or compare two measurements
    Bench(bench::Arguments),
    /// Check whether this system can run Sluice
    Doctor(doctor::Arguments),
    /// Unload the kernel module, or show what uses it; needs root
    Unload(unload::Arguments),
    /// Describe the device nodes to container runtimes
    #[command(subcommand)]
    Cdi(cdi::Verb),
    /// Print the completion script for a shell
    Completion(completion::Arguments),
}

/// Columns of a help text, which is wrapped at the width of the terminal. A longer line is hard to read.
const HELP_WIDTH_MAX: usize = 100;

/// The command line with all of its help texts.
fn command() -> Command {
    defaults::insert(Cli::command()).max_term_width(HELP_WIDTH_MAX)
}

/// Completes the help texts only if one may be printed, because that takes longer than to parse without them.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|_| {
        let matches = command().try_get_matches();
        let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
        parsed.unwrap_or_else(|error| exit_with(&error))
    })
}

/// Prints an error of the usage, or the requested help, which may not be writable.
fn exit_with(error: &clap::Error) -> ! {
    let printed = match error.use_stderr() {
        true => Ok(()),
        false => stream::require_open(&io::stdout(), "output"),
    };
    let printed = printed.and_then(|()| match error.print() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context(output::UNWRITTEN)
        }
        _ => Ok(()),
    });
    let code = match printed {
        Ok(()) => error.exit_code(),
        Err(unwritten) => {
            output::note(&format!("sluice: {}", sluice::explain(unwritten.as_ref())));
            1
        }
    };
    process::exit(code)
}

fn main() -> ExitCode {
    if completion::answer() {
        return ExitCode::SUCCESS;
    }
    let cli = parse();
    match run(&cli) {
        Ok(code) => code,
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&format!("sluice: {}", sluice::explain(error.as_ref())));
            exit::status(&error)
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode> {
    match &cli.noun {
        Noun::Pipe(verb) => pipe::run(verb)?,
        Noun::Ring(verb) => ring::run(verb)?,
        Noun::Bus(verb) => bus::run(verb)?,
        Noun::Map(verb) => map::run(verb)?,
        Noun::Feed(verb) => feed::run(verb)?,
        Noun::Store(verb) => store::run(verb)?,
        Noun::Ls(arguments) => ls::run(arguments)?,
        Noun::Top(arguments) => top::run(arguments)?,
        Noun::Metrics(arguments) => metrics::run(arguments)?,
        Noun::Bench(arguments) => bench::run(arguments)?,
        Noun::Doctor(arguments) => return doctor::run(arguments),
        Noun::Unload(arguments) => unload::run(arguments)?,
        Noun::Cdi(verb) => cdi::run(verb)?,
        Noun::Completion(arguments) => completion::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parses(line: &str) -> bool {
        Cli::try_parse_from(line.split_whitespace()).is_ok()
    }

    #[test]
    fn the_options_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn help_fits_into_narrow_terminals() {
        fn check(command: &Command, path: &[&str]) {
            let path = [path, &[command.get_name()]].concat();
            for (width, option) in [(60, "-h"), (60, "--help"), (80, "-h"), (80, "--help")] {
                let line = [&path[..], &[option]].concat();
                let parsed = super::command()
                    .term_width(width)
                    .try_get_matches_from(&line);
                let help = parsed.map(drop).unwrap_err().to_string();
                assert!(help.contains("Usage: "), "{line:?}: {help}");
                for text in help.lines() {
                    assert!(text.chars().count() <= width, "{line:?}: {text}");
                }
            }
            command
                .get_subcommands()
                .for_each(|verb| check(verb, &path));
        }
        let bench = "bench";
        let root = command();
        let others = root
            .get_subcommands()
            .filter(|noun| noun.get_name() != bench);
        others.for_each(|noun| check(noun, &["sluice"]));
    }

    #[test]
    fn valid_command_lines_are_accepted() {
        for line in [
            "sluice pipe send",
            "sluice pipe recv frames out.bin",
            "sluice pipe send frames - --create --persist --permissions 660 --capacity 1M",
            "sluice pipe recv frames --create --permissions 660",
            "sluice pipe create frames --permissions 660",
            "sluice pipe create frames --scope /sys/fs/cgroup/a --json",
            "sluice pipe rm frames",
            "sluice pipe rm --destroy frames --scope /sys/fs/cgroup/a",
            "sluice pipe info frames --json",
            "sluice ring send --socket /run/prices --capacity 16M --huge-pages --lock --node 0 --spin 0",
            "sluice ring send --listen --socket prices --framing length --wait 5s --summary",
            "sluice ring recv --socket prices --connect --allow-user 1000 --allow-user 1001",
            "sluice ring recv --socket prices --allow-everyone --max-capacity 64K",
            "sluice ring send prices --spin 50us --lock --framing length --wait 0 --summary",
            "sluice ring send prices --create --persist --permissions 660 --capacity 16M --node 0",
            "sluice ring recv prices --scope /sys/fs/cgroup/a --max-capacity 64K",
            "sluice ring recv prices --create --capacity 16M --node 0",
            "sluice ring send --endpoint 3 --wait 5s",
            "sluice ring recv --endpoint 3 --json",
            "sluice ring recv prices --create --permissions 660",
            "sluice ring create prices --permissions 660 --capacity 16M --node 0 --json",
            "sluice ring ls --numeric",
            "sluice ring rm --destroy prices",
            "sluice ring info prices --scope /sys/fs/cgroup/a --json",
            "sluice feed run --interval 50us --size 64 --count 9 --cpu 1 --read --pin 0 --json",
            "sluice feed run --map --spin 2ms",
            "sluice feed ls -n --json",
            "sluice feed info",
            "sluice feed info frames --json",
            "sluice feed recv frames --framing length --count 3 --summary",
            "sluice feed recv --json",
            "sluice bus create prices --permissions 660 --mode multicast --policies drop,block --capacity 1M --json",
            "sluice bus create prices --capacity 64K --mappable --policies block",
            "sluice bus ls --json",
            "sluice bus rm --destroy prices --scope /sys/fs/cgroup/a",
            "sluice bus info prices --subscribers -n --json",
            "sluice bus pub prices --to 3 --count 5 --wait 1s --framing length --summary",
            "sluice bus pub prices 17.5 --to 3",
            "sluice bus pub prices -17.5",
            "sluice bus pub prices --create --mode unicast --raw",
            "sluice bus sub prices --policy evict --limit 4K --count 3 --timeout 1s --raw --summary",
            "sluice bus sub prices --json",
            "sluice bus sub prices --create --persist --permissions 660 --policies block --monitor",
            "sluice map create sessions --permissions 660 --capacity 1M --entries 1000 --events 64 --json",
            "sluice map create sessions --permissions 660 --capacity 64K",
            "sluice map create jobs --durable",
            "sluice map create jobs --durable --sync always --deadline 500ms --refuse --json",
            "sluice map create jobs --durable --sync interval --interval 200ms",
            "sluice map create jobs --durable --interval 5s --deadline 30s",
            "sluice map set jobs 4711 queued --nowait --json",
            "sluice map set jobs 4711 queued --create --durable --sync interval --interval 200ms --deadline 5s --refuse",
            "sluice map cas jobs 4711 0 queued --create --durable --persist",
            "sluice map watch jobs --create --durable --sync always",
            "sluice map import jobs --create --durable --interval 1s",
            "sluice map cas jobs 4711 7 queued --nowait",
            "sluice map del jobs 4711 --nowait --if-version 7",
            "sluice map sync jobs",
            "sluice map sync jobs 17 --json --scope /sys/fs/cgroup/a",
            "sluice map ls",
            "sluice map ls --json --scope /sys/fs/cgroup/a",
            "sluice map ls sessions --prefix user/ --values --json",
            "sluice map rm --destroy sessions",
            "sluice map info sessions -n --json",
            "sluice map get sessions 4711",
            "sluice map get -e sessions 4711 --json --scope /sys/fs/cgroup/a",
            "sluice map get sessions -1",
            "sluice map set sessions 4711 alice --ttl 30s --json",
            "sluice map set sessions 4711",
            "sluice map set sessions 4711 -17",
            "sluice map set sessions 4711 --file alice.bin",
            "sluice map set sessions 4711 -f - --create --persist --permissions 660 --capacity 1M --entries 9 --events 9",
            "sluice map cas sessions 4711 0 alice --ttl 30s",
            "sluice map cas sessions 4711 7 -e -f - --json",
            "sluice map del sessions 4711 --if-version 7 -e --json",
            "sluice map watch sessions --prefix -1 --after 0 --count 3 --timeout 1s --json --create",
            "sluice map export sessions",
            "sluice map export sessions sessions.jsonl --scope /sys/fs/cgroup/a",
            "sluice map import sessions - --summary --create --persist --capacity 64K",
            "sluice store attach sessions --scope /a/b --socket /tmp/sluiced.sock",
            "sluice store attach --all",
            "sluice store detach sessions",
            "sluice store detach --all --socket /tmp/sluiced.sock",
            "sluice store status -n --json --socket /tmp/sluiced.sock",
            "sluice store forget sessions --scope /a/b",
            "sluice ls --json",
            "sluice ls -n",
            "sluice ls --all --json",
            "sluice pipe ls --numeric",
            "sluice pipe info frames -n",
            "sluice top --interval 500ms --scope /sys/fs/cgroup/a --kind bus --kind map --sort lost-rate --reverse",
            "sluice top --once --json --filter prices",
            "sluice metrics --scope /sys/fs/cgroup/a --kind bus",
            "sluice metrics --listen 127.0.0.1:9750",
            "sluice metrics --listen ./metrics.sock",
            "sluice bench --quick --suite rtt",
            "sluice bench compare a.json b.json",
            "sluice bench --help",
            "sluice doctor",
            "sluice unload",
            "sluice unload --wait --detach --remove-channels --json",
            "sluice unload --wait=30s",
            "sluice cdi generate",
            "sluice cdi generate --output /etc/cdi/sluice.json",
            "sluice completion bash",
        ] {
            assert!(parses(line), "{line}");
        }
    }

    #[test]
    fn a_path_as_the_name_of_a_ring_names_the_option_for_it() {
        let parsed = command().try_get_matches_from(["sluice", "ring", "send", "/tmp/prices"]);
        let text = parsed.unwrap_err().to_string();
        assert!(text.contains("--socket"), "{text}");
    }

    #[test]
    fn invalid_command_lines_are_rejected() {
        for line in [
            "sluice",
            "sluice pipe info",
            "sluice pipe send --create",
            "sluice pipe send --scope /sys/fs/cgroup/a",
            "sluice pipe send frames --persist",
            "sluice pipe send frames --create --mode 600",
            "sluice pipe send frames --permissions 600",
            "sluice pipe create frames --permissions 1777",
            "sluice pipe create frames --permissions rw",
            "sluice pipe create frames --capacity 0",
            "sluice pipe create a/b",
            "sluice ring",
            "sluice ring send",
            "sluice ring send --create",
            "sluice ring send --socket prices --listen --connect",
            "sluice ring send prices --socket prices",
            "sluice ring send prices --endpoint 3",
            "sluice ring send --socket prices --scope /sys/fs/cgroup/a",
            "sluice ring send --socket prices --create",
            "sluice ring send prices --listen",
            "sluice ring send prices --allow-everyone",
            "sluice ring send prices --huge-pages",
            "sluice ring send prices --capacity 1M",
            "sluice ring send prices --node 0",
            "sluice ring send prices --permissions 660",
            "sluice ring send prices --persist",
            "sluice ring send a/b",
            "sluice ring send --endpoint 3 --capacity 1M",
            "sluice ring send --endpoint 3 --create",
            "sluice ring recv prices --capacity 1M",
            "sluice ring recv prices --connect",
            "sluice ring recv prices --allow-user 1000",
            "sluice ring recv --endpoint 2",
            "sluice ring create",
            "sluice ring create prices --capacity 0",
            "sluice ring info",
            "sluice ring send --socket prices --capacity 0",
            "sluice ring send prices --framing words",
            "sluice ring recv --socket prices --capacity 1M",
            "sluice ring recv --socket prices --huge-pages",
            "sluice ring recv prices --wait -1s",
            "sluice ring recv prices --wait 5",
            "sluice ring recv --socket prices --allow-user 0 --allow-everyone",
            "sluice bus",
            "sluice bus create",
            "sluice bus create prices --policies fast",
            "sluice bus create prices --mode anycast",
            "sluice bus pub",
            "sluice bus pub prices --policy drop",
            "sluice bus pub prices --mode unicast",
            "sluice bus pub prices --to 0",
            "sluice bus pub prices --raw --framing lines",
            "sluice bus pub prices --json",
            "sluice bus pub prices 17.5 --raw",
            "sluice bus sub prices --raw --json",
            "sluice bus sub prices --capacity 1M",
            "sluice bus sub prices --monitor --policy drop",
            "sluice bus sub prices --count 0",
            "sluice bus sub prices --timeout 0s",
            "sluice map",
            "sluice map create",
            "sluice map create sessions --entries 0",
            "sluice map create sessions --events 65537",
            "sluice map create jobs --sync always",
            "sluice map create jobs --interval 200ms",
            "sluice map create jobs --deadline 30s",
            "sluice map create jobs --refuse",
            "sluice map create jobs --durable --sync never",
            "sluice map set jobs 4711 queued --durable",
            "sluice map set jobs 4711 queued --create --sync always",
            "sluice map get jobs 4711 --create --durable",
            "sluice map create jobs --durable --interval 0",
            "sluice map create jobs --durable --deadline 2h",
            "sluice map sync",
            "sluice map sync jobs 0",
            "sluice map sync jobs last",
            "sluice map get jobs 4711 --nowait",
            "sluice map ls --values",
            "sluice map ls --prefix a",
            "sluice ls --all --scope /a",
            "sluice map get sessions",
            "sluice map set sessions",
            "sluice map set sessions 4711 alice --file alice.bin",
            "sluice map set sessions 4711 alice --ttl 0s",
            "sluice map set sessions 4711 alice --persist",
            "sluice map set sessions 4711 alice --capacity 1M",
            "sluice map set sessions 4711 alice bob",
            "sluice map cas sessions 4711",
            "sluice map cas sessions 4711 first alice",
            "sluice map del sessions",
            "sluice map del sessions 4711 --if-version 0",
            "sluice map watch",
            "sluice map watch sessions --count 0",
            "sluice map export",
            "sluice map import",
            "sluice feed",
            "sluice store attach",
            "sluice store attach sessions --all",
            "sluice store detach --all --scope /a",
            "sluice store forget --all",
            "sluice store status sessions",
            "sluice feed run frames",
            "sluice feed run --read --map",
            "sluice feed run --size 4097",
            "sluice feed run --interval 1us",
            "sluice feed ls --scope /sys/fs/cgroup",
            "sluice feed recv frames --count 0",
            "sluice metrics --listen 9750",
            "sluice top --interval 2",
            "sluice top --interval 10ms",
            "sluice top --sort size",
            "sluice top --kind fifo",
            "sluice unload --wait 30s",
            "sluice unload sluice",
            "sluice cdi",
        ] {
            assert!(!parses(line), "{line}");
        }
    }
}

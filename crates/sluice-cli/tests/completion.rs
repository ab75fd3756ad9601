// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion at the prompt, without the module: the scripts of shells, and the candidates that they ask for.

use std::process::{Command, Output, Stdio};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("no process")
}

/// The candidates of a real bash for the last word of a line.
fn complete_in_bash(line: &str) -> Vec<String> {
    let script = r#"
        source <("$0" completion bash)
        [[ $(complete -p sluice) == *' -F _clap_complete_sluice sluice' ]] || exit 9
        IFS=' ' read -r -a COMP_WORDS <<<"$1"
        [[ $1 != *' ' ]] || COMP_WORDS+=('')
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _clap_complete_sluice sluice "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let completed = run(Command::new("bash")
        .args(["-c", script, SLUICE, line])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")));
    let stderr = String::from_utf8_lossy(&completed.stderr);
    assert!(
        completed.status.success() && stderr.is_empty(),
        "{line}: {stderr}"
    );
    let lines = String::from_utf8(completed.stdout).unwrap();
    lines
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_completes_commands_options_values_and_files() {
    let nouns = [
        "pipe",
        "ring",
        "bus",
        "map",
        "feed",
        "store",
        "ls",
        "top",
        "metrics",
        "bench",
        "doctor",
        "unload",
        "cdi",
        "completion",
    ];
    assert_eq!(complete_in_bash("sluice "), nouns);
    for (line, expected) in [
        ("sluice pi", &["pipe"][..]),
        ("sluice map get jobs 4711 --sc", &["--scope"]),
        ("sluice ring send --framing ", &["lines", "length"]),
        ("sluice bus create news --mode m", &["multicast"]),
        ("sluice pipe send jobs comp", &["completion.rs"]),
        ("sluice ls --scope ri", &["ring/"]),
        ("sluice pipe create jo", &[]),
        ("sluice map set jobs 4711 co", &[]),
    ] {
        assert_eq!(complete_in_bash(line), expected, "{line}");
    }
}

/// No name is found in a directory that is not a cgroup, whether the module is loaded or not.
#[test]
fn without_names_there_is_neither_a_candidate_nor_an_error() {
    for line in [
        "sluice pipe rm --scope / j",
        "sluice ring recv --scope / j",
        "sluice bus sub --scope / j",
        "sluice map get --scope / jobs 4",
        "sluice map get --scope /nowhere jobs 4",
    ] {
        assert!(complete_in_bash(line).is_empty(), "{line}");
    }
    assert!(!complete_in_bash("sluice pipe rm --scope / ").contains(&"-".to_owned()));
}

/// As the scripts of the shells do: zsh gives the index, and fish has the word to complete at the end.
#[test]
fn every_shell_gets_candidates() {
    for (shell, index) in [
        ("bash", "2"),
        ("zsh", "2"),
        ("elvish", "2"),
        ("powershell", "2"),
        ("fish", ""),
    ] {
        let script = run(Command::new(SLUICE).args(["completion", shell]));
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(
            script.contains("SLUICE_COMPLETE") && script.contains(SLUICE),
            "{shell}: {script}"
        );
        let mut command = Command::new(SLUICE);
        command.envs([
            ("SLUICE_COMPLETE", shell),
            ("_CLAP_COMPLETE_INDEX", index),
            ("_CLAP_IFS", "\n"),
        ]);
        let candidates = run(command.args(["--", "sluice", "pipe", "in"]));
        let text = String::from_utf8(candidates.stdout).unwrap();
        assert!(text.starts_with("info"), "{shell}: {text}");
        assert!(candidates.stderr.is_empty(), "{shell}");
    }
}

#[test]
fn a_request_that_cannot_be_answered_prints_nothing() {
    for (shell, words) in [("none", "sluice"), ("bash", "")] {
        let mut command = Command::new(SLUICE);
        command.envs([("SLUICE_COMPLETE", shell), ("_CLAP_COMPLETE_INDEX", "9")]);
        let answer = run(command.args(["--", words]));
        assert!(
            answer.stdout.is_empty() && answer.stderr.is_empty(),
            "{shell} {words}"
        );
    }
}

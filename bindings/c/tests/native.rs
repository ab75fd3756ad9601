// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the test programs, as far as they need no module. tests/build says how the rest runs in the VM.

use std::path::Path;
use std::process::Command;

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{command:?}: {}\n{stdout}{stderr}",
        output.status
    );
    stdout.into_owned()
}

#[test]
fn the_programs_in_c_and_cpp_pass() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c");
    output(Command::new(source.join("tests/build")).arg(&target));
    output(Command::new(source.join("check")).arg(&target));
    for program in ["test", "test-shared", "test-calls"] {
        let mut test = Command::new(target.join(program));
        let text = output(test.args(["errors", "memfd", "inline"]));
        assert!(text.ends_with(" passed, 0 failed\n"), "{text}");
    }
    output(&mut Command::new(target.join("test-cpp")));
}

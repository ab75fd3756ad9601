// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice cdi generate`: the device nodes as devices of the Container Device Interface, by which container runtimes find them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand, ValueHint};
use serde_json::{Value, json};

use crate::output;

/// The first version, which every runtime knows.
const VERSION: &str = "0.3.0";
const KIND: &str = "sluice/node";

#[derive(Subcommand)]
pub enum Verb {
    /// Print the specification of the devices sluice/node=all, ctl, pipe and feed
    Generate(Arguments),
}

#[derive(Args)]
pub struct Arguments {
    /// Write it to this file, such as /etc/cdi/sluice.json
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

pub fn run(verb: &Verb) -> Result<()> {
    let Verb::Generate(arguments) = verb;
    match &arguments.output {
        Some(path) => write(path),
        None => output::print_json(&specification()),
    }
}

/// Writes it to a file, which may exist.
fn write(path: &Path) -> Result<()> {
    ensure!(
        fs::symlink_metadata(path).map_or(true, |existing| existing.is_file()),
        "{} is not a file; without --output, standard output gets the specification",
        path.display()
    );
    let new = path.with_extension("json.new");
    replace(path, &new).with_context(|| {
        // It may be there.
        let _ = fs::remove_file(&new);
        let directory = path.parent().unwrap_or(path).display();
        format!(
            "cannot write {}; run 'sudo mkdir -p {directory}' and this with sudo",
            path.display()
        )
    })
}

/// Runtimes watch the directory: they find the whole file or none, and ignore names that do not end with .json.
fn replace(path: &Path, new: &Path) -> io::Result<()> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(new)?;
    file.write_all(format!("{:#}\n", specification()).as_bytes())?;
    fs::rename(new, path)
}

/// Without numbers of devices: runtimes look them up when a container starts, so that the file stays right when the module is loaded
/// with others.
fn specification() -> Value {
    let node = |name: &str, mode: u32| {
        let path = format!("/dev/sluice/{name}");
        json!({ "path": path, "type": "c", "permissions": "rw", "fileMode": mode })
    };
    let device = |name, nodes: &[&Value]| json!({ "name": name, "containerEdits": { "deviceNodes": nodes } });
    let (ctl, pipe, feed) = (node("ctl", 0o666), node("pipe", 0o666), node("feed", 0o660));
    json!({
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": [
            device("all", &[&ctl, &pipe]),
            device("ctl", &[&ctl]),
            device("pipe", &[&pipe]),
            device("feed", &[&feed]),
        ],
    })
}

#[cfg(test)]
mod tests {
    use std::{env, process};

    use super::*;

    #[test]
    fn the_specification_has_the_names_and_fields_of_cdi() {
        let specification = specification();
        let members: Vec<_> = specification.as_object().unwrap().keys().collect();
        assert_eq!(members, ["cdiVersion", "devices", "kind"]);
        let (vendor, class) = KIND.split_once('/').unwrap();
        for name in [vendor, class] {
            assert!(name.chars().all(|letter| letter.is_ascii_lowercase()));
        }
        let all = &specification["devices"][0];
        assert_eq!(all["name"], "all");
        let nodes = &all["containerEdits"]["deviceNodes"];
        assert_eq!(
            nodes[1],
            json!({ "path": "/dev/sluice/pipe", "type": "c", "permissions": "rw", "fileMode": 438 })
        );
        assert_eq!(nodes.as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_file_is_written_whole_and_an_error_names_the_directory() {
        let path = env::temp_dir().join(format!("sluice-cdi-{}.json", process::id()));
        write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            specification()
        );
        let error = write(Path::new("/dev/null")).unwrap_err();
        assert!(error.to_string().contains("not a file"), "{error}");
        let error = write(Path::new("/nonexistent/sluice.json")).unwrap_err();
        assert!(
            error.to_string().contains("mkdir -p /nonexistent"),
            "{error}"
        );
    }
}

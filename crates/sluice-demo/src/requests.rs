// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows requests over a bus: both containers have a server of the same name, and each client gets the reply of its own. Then one server
//! is killed while it handles a request, and the call ends.

use anyhow::{Result, ensure};

use crate::at_once::at_once;
use crate::container::Container;
use crate::isolation::secret;
use crate::process::Process;
use crate::story::detail;

/// Each container has a bus of this name.
const NAME: &str = "sums";
/// The command that answers kills its server, the parent, for one of the requests.
const SERVE_SCRIPT: &str = "exec sluice bus reply --create \"$1\" -- sh -c '
    case $(cat) in
    die) kill -KILL $PPID;;
    *) echo \"$0 for user $SLUICE_UID\";;
    esac' \"$2\"";
/// Much longer than the call takes.
const TIMEOUT: &str = "600s";

pub fn show(containers: &[Container; 2]) -> Result<String> {
    detail!(
        "Requests: each container has a server '{NAME}', which replies with a secret and the user that the kernel names:"
    );
    let servers = at_once(containers, serve_and_request)?;
    let [first, _] = containers;
    let killed = first.run(&[
        "sluice",
        "bus",
        "request",
        "--timeout",
        TIMEOUT,
        NAME,
        "die",
    ])?;
    ensure!(
        killed.status.code() == Some(1) && killed.stderr.contains("has ended without a reply"),
        "the request to a killed server ended with {} and printed '{}'; report this as a bug",
        killed.status,
        killed.stderr
    );
    detail!(
        "  the server in container {} is killed (SIGKILL) while it has a request: {}",
        first.name,
        killed.stderr.trim()
    );
    for (container, server) in containers.iter().zip(servers) {
        if !std::ptr::eq(container, first) {
            container.run_success(&["sluice", "bus", "rm", "--destroy", NAME])?;
        }
        server.wait()?;
    }
    detail!("");
    Ok(format!(
        "'{NAME}' is another service in each container; the call to a server that is killed meanwhile ends at once"
    ))
}

fn serve_and_request(container: &Container) -> Result<Process> {
    let secret = secret()?;
    let server = container.exec(&["sh", "-c", SERVE_SCRIPT, "sh", NAME, &secret])?;
    let request = [
        "sluice",
        "bus",
        "request",
        "--wait",
        TIMEOUT,
        "--timeout",
        TIMEOUT,
    ];
    let reply = container.run_success(&[&request[..], &[NAME, "who?"]].concat())?;
    let expected = format!("{secret} for user {}", crate::bundle::USER);
    ensure!(
        reply.trim() == expected,
        "the reply in container {} is '{reply}' instead of '{expected}'; report this as a bug",
        container.name
    );
    detail!(
        "  the reply in container {}: {}",
        container.name,
        reply.trim()
    );
    Ok(server)
}

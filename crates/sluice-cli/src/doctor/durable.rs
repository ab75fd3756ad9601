// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the daemon of durable maps runs, and stores them. A host without durable maps has none, and containers do not see its
//! socket, so its absence is no problem.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use sluiced_protocol::{Request, Response, SOCKET, Status, call_within};

use super::Finding;
use super::system::System;

const CHECK: &str = "durable maps";
/// The daemon answers between two commits.
const LIMIT: Duration = Duration::from_secs(5);

const STORE: &str = "/var/lib/sluice/maps.db";
const UNITS: &str = "/etc/systemd/system";
const UNIT: &str = "sluiced.service";
const START: &str = "run 'sudo systemctl start sluiced'; if it fails, see 'journalctl -u sluiced'";

pub fn durable_maps(system: &System) -> Finding {
    match call_within(LIMIT, Path::new(SOCKET), &Request::Status) {
        Err(error) if error.kind() == ErrorKind::NotFound => stopped(system),
        answer => finding(answer),
    }
}

/// That no daemon runs is a problem if the service is enabled, or if maps are stored. The store is visible to root only.
fn stopped(system: &System) -> Finding {
    if system.exists(STORE) {
        let found = format!("sluiced does not run, so that the maps in {STORE} are not restored");
        return Finding::problem(CHECK, found, START);
    }
    let units = system.names(UNITS).into_iter();
    let mut wanted = units.filter(|name| name.ends_with(".wants"));
    // A link, perhaps to nothing.
    match wanted.any(|name| {
        system
            .names(&format!("{UNITS}/{name}"))
            .contains(&UNIT.to_owned())
    }) {
        true => Finding::problem(
            CHECK,
            "the service sluiced is enabled, but does not run",
            START,
        ),
        false => Finding::ok(
            CHECK,
            "no sluiced runs here; to use them, run 'sudo systemctl start sluiced' on the host",
        ),
    }
}

fn finding(answer: io::Result<Response>) -> Finding {
    match answer {
        Ok(Response::Status(status)) => of_status(&status),
        Ok(_) => Finding::problem(
            CHECK,
            "the response of sluiced is not one to this request",
            "install both of one version",
        ),
        Err(error) => of_error(&error),
    }
}

fn of_status(status: &Status) -> Finding {
    let maps = status.maps.len();
    if let Some(error) = &status.error {
        // The error names the fix.
        return Finding::problem(CHECK, "sluiced cannot store changes", error);
    }
    match status
        .maps
        .iter()
        .filter(|map| map.reason.is_some())
        .count()
    {
        0 => Finding::ok(CHECK, format!("sluiced runs, stored maps: {maps}")),
        bad => Finding::problem(
            CHECK,
            format!("{bad} of {maps} stored maps cannot be attached or changed"),
            "run 'sudo sluice store status', which has the reasons",
        ),
    }
}

fn of_error(error: &io::Error) -> Finding {
    match error.kind() {
        ErrorKind::PermissionDenied => Finding::ok(
            CHECK,
            "not checked, because only root may query sluiced: run 'sudo sluice doctor'",
        ),
        ErrorKind::ConnectionRefused => Finding::problem(CHECK, "sluiced was killed", START),
        _ => Finding::problem(
            CHECK,
            format!("no response from sluiced at {SOCKET}: {error}"),
            "see 'journalctl -u sluiced'",
        ),
    }
}

#[cfg(test)]
mod tests {
    use sluiced_protocol::MapStatus;

    use super::super::system::tests::tree;
    use super::*;
    use crate::store::tests::stored_map;

    fn map(reason: Option<&str>) -> MapStatus {
        MapStatus {
            reason: reason.map(str::to_owned),
            ..stored_map()
        }
    }

    fn of(error: Option<&str>, maps: Vec<MapStatus>) -> Finding {
        let error = error.map(str::to_owned);
        finding(Ok(Response::Status(Status { error, maps })))
    }

    #[test]
    fn a_daemon_that_stores_all_maps_is_ok() {
        assert!(of(None, Vec::new()).ok);
        let found = of(None, vec![map(None), map(None)]);
        assert!(found.ok && found.found.ends_with(" 2"), "{}", found.found);
    }

    #[test]
    fn a_map_or_a_store_that_does_not_work_is_a_problem() {
        let found = of(None, vec![map(None), map(Some("over quota"))]);
        assert!(!found.ok && found.found.starts_with("1 of 2"));
        let found = of(Some("full; free space there"), vec![map(Some("full"))]);
        assert!(!found.ok);
        assert_eq!(found.fix.as_deref(), Some("full; free space there"));
        assert!(!finding(Ok(Response::Done(Vec::new()))).ok);
    }

    #[test]
    fn a_daemon_that_may_not_be_queried_is_no_problem_but_one_that_fails_is() {
        for (kind, ok, word) in [
            (ErrorKind::PermissionDenied, true, "sudo sluice doctor"),
            (ErrorKind::ConnectionRefused, false, "killed"),
            (ErrorKind::WouldBlock, false, "no response"),
        ] {
            let found = finding(Err(kind.into()));
            assert_eq!(found.ok, ok, "{kind}");
            assert_eq!(found.fix.is_some(), !ok, "{kind}");
            assert!(found.found.contains(word), "{}", found.found);
        }
    }
    #[test]
    fn a_daemon_that_is_stopped_is_a_problem_if_something_needs_it() {
        let link = "/etc/systemd/system/multi-user.target.wants/sluiced.service";
        for (file, found) in [
            (link, "the service sluiced is enabled, but does not run"),
            (STORE, "are not restored"),
        ] {
            let finding = stopped(&tree(&[(file, "")]).system);
            assert!(finding.found.contains(found), "{}", finding.found);
            assert!(finding.fix.unwrap().contains("systemctl start sluiced"));
        }
        assert!(stopped(&tree(&[]).system).ok);
    }
}

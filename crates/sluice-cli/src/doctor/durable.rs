// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the daemon of durable maps runs, and stores them. A host without durable maps has none, and containers do not see its
//! socket, so its absence is no problem.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use sluiced_protocol::{Request, Response, SOCKET, Status, call_within};

use super::Finding;

const CHECK: &str = "durable maps";
/// The daemon answers between two commits.
const LIMIT: Duration = Duration::from_secs(5);

pub fn durable_maps() -> Finding {
    finding(call_within(LIMIT, Path::new(SOCKET), &Request::Status))
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
            "see 'sluice store status'",
        ),
    }
}

fn of_error(error: &io::Error) -> Finding {
    match error.kind() {
        ErrorKind::NotFound => Finding::ok(
            CHECK,
            format!(
                "no sluiced at {SOCKET}; to use them, run 'sudo systemctl start sluiced' on the host"
            ),
        ),
        ErrorKind::PermissionDenied => Finding::ok(
            CHECK,
            "not checked, because only root and the user of sluiced may query it",
        ),
        ErrorKind::ConnectionRefused => Finding::problem(
            CHECK,
            "sluiced was killed",
            "see its log, and run 'sudo systemctl start sluiced'",
        ),
        _ => Finding::problem(
            CHECK,
            format!("no response from sluiced at {SOCKET}: {error}"),
            "see its log",
        ),
    }
}

#[cfg(test)]
mod tests {
    use sluiced_protocol::{MapName, MapState, MapStatus, SyncMode};

    use super::*;

    fn map(reason: Option<&str>) -> MapStatus {
        MapStatus {
            map: MapName {
                path: "/a".into(),
                name: "x".into(),
            },
            uid: 0,
            gid: 0,
            state: MapState::Attached,
            reason: reason.map(str::to_owned),
            entries: 0,
            bytes: 0,
            stored: 0,
            sync: SyncMode::Always,
            interval_ms: None,
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
    fn a_daemon_that_is_not_visible_is_no_problem() {
        for (kind, ok, word) in [
            (ErrorKind::NotFound, true, "systemctl start sluiced"),
            (ErrorKind::PermissionDenied, true, "only root"),
            (ErrorKind::ConnectionRefused, false, "killed"),
            (ErrorKind::WouldBlock, false, "no response"),
        ] {
            let found = finding(Err(kind.into()));
            assert_eq!(found.ok, ok, "{kind}");
            assert_eq!(found.fix.is_some(), !ok, "{kind}");
            assert!(found.found.contains(word), "{}", found.found);
        }
    }
}

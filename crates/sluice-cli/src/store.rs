// SPDX-License-Identifier: MIT OR Apache-2.0
//! `sluice store …`: the stored maps of the daemon sluiced.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args, Subcommand, ValueHint};
use sluice::Name;
use sluiced_protocol::{
    Bytes, Failure, FailureKind, MapName, MapState, MapStatus, Outcome, Request, Response, SILENCE,
    SOCKET, Selection, Status, SyncMode,
};

use crate::table::{Column, Columns, Row, Value, table};
use crate::{args, cgroup, output};

/// How long [`status_soon`] waits.
const SOON: Duration = Duration::from_secs(2);

/// Where the hierarchy is usually mounted.
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

#[derive(Subcommand)]
pub enum Verb {
    /// List the stored maps of all cgroups
    #[command(aliases = ["ls", "list"])]
    Status(StatusArgs),
    /// Restore a stored map into the kernel
    Attach(SelectionArgs),
    /// Drop the kernel's copy of a durable map, which stays stored
    Detach(SelectionArgs),
    /// Delete a stored map that is not attached
    Forget(ForgetArgs),
}

#[derive(Args)]
struct DaemonArgs {
    /// The socket of sluiced
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    socket: PathBuf,
}

impl Default for DaemonArgs {
    fn default() -> Self {
        Self {
            socket: SOCKET.into(),
        }
    }
}

/// Also of a cgroup that has been removed, whose maps are still stored.
#[derive(Args)]
struct ScopeArgs {
    /// The cgroup of the map [default: the cgroup of this process]
    ///
    /// Its directory, such as /sys/fs/cgroup/a, or its path, such as /a, as "store status" prints it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    scope: Option<PathBuf>,
}

/// The arguments of `attach` and `detach`.
#[derive(Args)]
#[command(group(ArgGroup::new("selection").args(["name", "all"]).required(true)))]
pub struct SelectionArgs {
    /// The name of the map
    #[arg(value_parser = args::name())]
    name: Option<Name>,

    /// All maps of all cgroups instead of one
    ///
    /// To attach: all that are not attached and whose cgroup exists. To detach: all that are attached.
    #[arg(long, conflicts_with = "scope")]
    all: bool,

    #[command(flatten)]
    scope: ScopeArgs,

    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Args)]
pub struct ForgetArgs {
    /// The name of the map
    #[arg(value_parser = args::name())]
    name: Name,

    #[command(flatten)]
    scope: ScopeArgs,

    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    daemon: DaemonArgs,

    /// Print user IDs instead of names
    #[arg(short, long)]
    numeric: bool,

    /// Print a JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Why the daemon did not execute a request.
#[derive(Debug)]
pub enum DaemonError {
    NotRunning(PathBuf),
    NotPermitted(PathBuf),
    Silent,
    Failed(Failure),
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRunning(socket) => write!(
                f,
                "sluiced does not run, or not with the socket {}; start it with 'systemctl start sluiced', or give its --socket",
                socket.display()
            ),
            Self::NotPermitted(socket) => write!(
                f,
                "only root and the user of sluiced may use {}; run it with sudo",
                socket.display()
            ),
            Self::Silent => write!(
                f,
                "sluiced has not answered for {} s: it is stopped, or waits for its disk; see 'systemctl status sluiced'",
                SILENCE.as_secs()
            ),
            Self::Failed(failure) => f.write_str(&failure.text),
        }
    }
}

impl std::error::Error for DaemonError {}

/// sluice-map(1) describes them.
impl Columns for MapStatus {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("USER", "uid", |map| Value::User(map.uid)),
        Column::new("STATE", "state", |map| {
            Value::Text(map.state.as_str().to_owned())
        }),
        Column::new("ENTRIES", "entries", |map| Value::Number(map.entries)),
        Column::new("BYTES", "bytes", |map| Value::Number(map.bytes)),
        Column::new("STORED", "stored", |map| Value::Number(map.stored)),
        Column::new("SYNC", "sync", |map| Value::Text(sync_mode(map))),
        Column::new("CGROUP", "path", |map| {
            Value::Text(map.map.path.to_string())
        }),
        Column::new("NAME", "name", |map| Value::Text(map.map.name.to_string())),
    ];
}

fn sync_mode(map: &MapStatus) -> String {
    match (map.sync, map.interval_ms) {
        (SyncMode::Interval, Some(milliseconds)) => format!("{milliseconds}ms"),
        (SyncMode::Interval, None) => "interval".to_owned(),
        (SyncMode::Always, _) => "always".to_owned(),
    }
}

pub fn run(verb: &Verb) -> Result<()> {
    let (daemon, request) = match verb {
        Verb::Status(arguments) => return status(arguments),
        Verb::Attach(arguments) => (&arguments.daemon, Request::Attach(arguments.selection()?)),
        Verb::Detach(arguments) => (&arguments.daemon, Request::Detach(arguments.selection()?)),
        Verb::Forget(arguments) => {
            let map = arguments.scope.map(&arguments.name)?;
            (&arguments.daemon, Request::Forget(map))
        }
    };
    change(daemon, &request)
}

fn status(arguments: &StatusArgs) -> Result<()> {
    let status = match arguments.daemon.call(&Request::Status)? {
        Response::Status(status) => status,
        _ => return unexpected(),
    };
    match arguments.json {
        true => output::print_json(&status),
        false => output::print(&text(&status, arguments.numeric)),
    }
}

/// The table, and below it what does not work.
fn text(status: &Status, numeric: bool) -> String {
    let rows: Vec<_> = status.maps.iter().map(Row::from).collect();
    let mut text = table(&rows, numeric);
    let reasons = status.maps.iter().filter_map(|map| {
        let reason = map.reason.as_ref().filter(|_| status.error.is_none())?;
        Some(format!(
            "'{}' of {}: {reason}\n",
            map.map.name, map.map.path
        ))
    });
    let store = status.error.iter().map(|error| format!("{error}\n"));
    let lines: String = store.chain(reasons).collect();
    if !lines.is_empty() {
        text += &format!("\n{lines}");
    }
    text
}

/// Prints the maps with which it failed.
fn change(daemon: &DaemonArgs, request: &Request) -> Result<()> {
    let outcomes = match daemon.call(request)? {
        Response::Done(outcomes) => outcomes,
        _ => return unexpected(),
    };
    let errors: Vec<String> = outcomes.iter().filter_map(error_of).collect();
    match errors.as_slice() {
        [] => Ok(()),
        [error] => bail!("{error}"),
        [others @ .., last] => {
            for error in others {
                output::note(&format!("sluice: {error}"));
            }
            bail!("{last}")
        }
    }
}

/// Detaches all durable maps.
pub fn detach_all() -> Result<()> {
    change(&DaemonArgs::default(), &Request::Detach(Selection::All))
}

fn error_of(outcome: &Outcome) -> Option<String> {
    let error = outcome.error.as_ref()?;
    Some(format!("{}: {error}", outcome.map))
}

fn unexpected<T>() -> Result<T> {
    bail!("the response of sluiced is not one to this request; install both of one version")
}

impl DaemonArgs {
    fn call(&self, request: &Request) -> Result<Response> {
        match sluiced_protocol::call(&self.socket, request) {
            Ok(Response::Failed(failure)) => Err(DaemonError::Failed(failure).into()),
            Ok(response) => Ok(response),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: io::Error) -> anyhow::Error {
        let socket = self.socket.clone();
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                DaemonError::NotRunning(socket).into()
            }
            ErrorKind::PermissionDenied => DaemonError::NotPermitted(socket).into(),
            ErrorKind::WouldBlock => DaemonError::Silent.into(),
            _ => anyhow::Error::new(error).context(format!(
                "no response from sluiced at {}; see its log",
                socket.display()
            )),
        }
    }
}

impl SelectionArgs {
    fn selection(&self) -> Result<Selection> {
        match &self.name {
            Some(name) => self.scope.map(name).map(Selection::Map),
            None => Ok(Selection::All),
        }
    }
}

impl ScopeArgs {
    fn map(&self, name: &Name) -> Result<MapName> {
        let path = match &self.scope {
            Some(path) if path.is_relative() => {
                from_root(&path.canonicalize().with_context(|| {
                    format!(
                        "no directory {}; give that of a cgroup, such as /sys/fs/cgroup/a",
                        path.display()
                    )
                })?)
            }
            Some(path) => from_root(path),
            None => own_cgroup()?,
        };
        let name = name.as_bytes().into();
        Ok(MapName { path, name })
    }
}

/// A directory of the hierarchy stands for its cgroup.
fn from_root(path: &Path) -> Bytes {
    let path = path.strip_prefix(CGROUP_ROOT).unwrap_or(path);
    // Without slashes at the end.
    let path: PathBuf = Path::new("/").join(path).components().collect();
    Bytes(path.into_os_string().into_vec())
}

/// The state of a map in the store of sluiced; none if it is not stored.
pub fn state(name: &Name, directory: Option<&Path>) -> Result<Option<MapState>> {
    let scope = ScopeArgs {
        scope: directory.map(Path::to_owned),
    };
    let map = scope.map(name)?;
    let status = match DaemonArgs::default().call(&Request::Status)? {
        Response::Status(status) => status,
        _ => return unexpected(),
    };
    let mut maps = status.maps.into_iter();
    Ok(maps.find(|one| one.map == map).map(|one| one.state))
}

/// None if the daemon does not answer soon, or not to this user.
pub fn status_soon() -> Option<Status> {
    match sluiced_protocol::call_within(SOON, Path::new(SOCKET), &Request::Status) {
        Ok(Response::Status(status)) => Some(status),
        _ => None,
    }
}

fn own_cgroup() -> Result<Bytes> {
    let table = std::fs::read_to_string("/proc/self/cgroup")
        .context("cannot read /proc/self/cgroup; give --scope")?;
    cgroup::unified_path(&table)
        .map(Bytes::from)
        .context("this process has no cgroup of version 2; give --scope")
}

/// For the exit status.
pub fn failure_kind(error: &DaemonError) -> Option<FailureKind> {
    match error {
        DaemonError::Failed(failure) => Some(failure.kind),
        DaemonError::NotRunning(_) | DaemonError::NotPermitted(_) | DaemonError::Silent => None,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A map of root that works.
    pub fn stored_map() -> MapStatus {
        MapStatus {
            map: MapName {
                path: "/a".into(),
                name: "x".into(),
            },
            uid: 0,
            gid: 0,
            state: MapState::Attached,
            reason: None,
            entries: 0,
            bytes: 0,
            stored: 0,
            sync: SyncMode::Always,
            interval_ms: None,
        }
    }

    #[test]
    fn a_cgroup_is_its_path_or_its_directory() {
        for (given, path) in [
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b"),
            ("/", "/"),
            ("/sys/fs/cgroup/a", "/a"),
            ("/sys/fs/cgroup", "/"),
            ("/sys/fs/cgroups", "/sys/fs/cgroups"),
        ] {
            assert_eq!(from_root(Path::new(given)), path.into(), "{given}");
        }
    }

    fn map(state: MapState, reason: Option<&str>) -> MapStatus {
        MapStatus {
            map: MapName {
                path: "/a".into(),
                name: "x".into(),
            },
            uid: 1000,
            gid: 1000,
            state,
            reason: reason.map(str::to_owned),
            entries: 2,
            bytes: 30,
            stored: 400,
            sync: SyncMode::Interval,
            interval_ms: Some(500),
        }
    }

    #[test]
    fn reasons_follow_the_table() {
        let mut status = Status {
            error: None,
            maps: vec![
                map(MapState::Attached, None),
                map(MapState::OverQuota, Some("remove some")),
            ],
        };
        let rows = "\
USER  STATE       ENTRIES  BYTES  STORED  SYNC   CGROUP  NAME
1000  attached    2        30     400     500ms  /a      x
1000  over-quota  2        30     400     500ms  /a      x
";
        let expected = format!("{rows}\n'x' of /a: remove some\n");
        assert_eq!(text(&status, true), expected);
        status.error = Some("no space".to_owned());
        assert_eq!(text(&status, true), format!("{rows}\nno space\n"));
        status.error = None;
        status.maps.pop();
        assert!(text(&status, true).ends_with("x\n"));
    }

    #[test]
    fn a_daemon_that_does_not_run_is_named_with_what_to_do() {
        let daemon = DaemonArgs {
            socket: "/nonexistent/sluiced.sock".into(),
        };
        let error = daemon.call(&Request::Status).unwrap_err().to_string();
        assert!(error.contains("systemctl start sluiced"), "{error}");
    }

    #[test]
    fn an_outcome_names_its_map() {
        let outcome = |error: Option<&str>| Outcome {
            map: map(MapState::Stored, None).map,
            error: error.map(str::to_owned),
        };
        assert_eq!(error_of(&outcome(None)), None);
        let error = error_of(&outcome(Some("no cgroup")));
        assert_eq!(error.as_deref(), Some("map 'x' of /a: no cgroup"));
    }
}

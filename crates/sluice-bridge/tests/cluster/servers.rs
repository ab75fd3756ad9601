// SPDX-License-Identifier: MIT OR Apache-2.0
//! Three servers. Each has a disk of its own, and is connected with the others, and with the bridges, by proxies.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::proxy::{Network, Proxy};
use crate::support::until;

pub const SERVERS: usize = 3;
/// Of a disk, which is in memory.
const DISK: &str = "size=200m";

pub struct Servers {
    members: Vec<Member>,
    /// From a server to another one.
    routes: Vec<(usize, usize, Proxy)>,
    /// From each bridge to each server.
    clients: [Vec<Proxy>; 2],
}

struct Member {
    child: Option<Child>,
    port: u16,
    config: PathBuf,
    disk: PathBuf,
    log: PathBuf,
}

impl Servers {
    /// `logs` is a directory that outlives the test.
    pub fn start(directory: &Path, logs: &Path) -> Self {
        let ports = free_ports();
        let [port, route] = [&ports[..SERVERS], &ports[SERVERS..]];
        let mut routes = Vec::new();
        for (from, to) in (0..SERVERS).flat_map(|from| (0..SERVERS).map(move |to| (from, to))) {
            if from != to {
                routes.push((from, to, Proxy::new(route[to])));
            }
        }
        let proxies = || port.iter().map(|port| Proxy::new(*port)).collect();
        let mut servers = Self {
            members: Vec::new(),
            clients: [proxies(), proxies()],
            routes,
        };
        for index in 0..SERVERS {
            let name = server_name(index);
            let member = Member {
                child: None,
                port: port[index],
                config: directory.join(format!("{name}.conf")),
                disk: directory.join(&name),
                log: logs.join(format!("{name}.log")),
            };
            member.prepare(&servers.config(index, &member, route[index]));
            servers.members.push(member);
            servers.restart(index);
        }
        servers
    }

    /// Without `no_advertise` the servers would tell clients, and with another `advertise` each other, how to avoid the proxies.
    fn config(&self, index: usize, member: &Member, route: u16) -> String {
        let from_here = self.routes.iter().filter(|(from, _, _)| *from == index);
        let routes = from_here.map(|(_, _, proxy)| format!("nats://127.0.0.1:{}", proxy.port()));
        let routes: Vec<String> = routes.collect();
        let Member { port, disk, .. } = member;
        format!(
            r#"server_name: {name}
listen: "127.0.0.1:{port}"
max_payload: 65536
jetstream {{ store_dir: {disk:?}, sync_interval: always, max_file_store: 180MB }}
accounts {{
  TEST {{ jetstream: enabled, users: [{{ user: test, password: test }}] }}
  SYS {{ users: [{{ user: sys, password: sys }}] }}
}}
system_account: SYS
no_auth_user: test
cluster {{ name: test, listen: "127.0.0.1:{route}", advertise: "127.0.0.1:{closed}", no_advertise: true, pool_size: 1, routes: {routes:?} }}
"#,
            name = server_name(index),
            closed = index + 1,
        )
    }

    /// Without proxies, for the test itself.
    pub fn urls(&self) -> Vec<String> {
        let ports = self.members.iter().map(|member| member.port);
        ports.map(url).collect()
    }

    pub fn bridge_urls(&self, bridge: usize) -> Vec<String> {
        let proxies = self.clients[bridge].iter();
        proxies.map(|proxy| url(proxy.port())).collect()
    }

    pub fn restart(&mut self, index: usize) {
        let member = &mut self.members[index];
        if member.child.is_some() {
            return;
        }
        let program = std::env::var_os("SLUICE_NATS_SERVER")
            .expect("tests/bridge-cluster gives SLUICE_NATS_SERVER");
        let log = File::options().append(true).create(true).open(&member.log);
        let child = Command::new(program)
            .arg("--config")
            .arg(&member.config)
            .stderr(log.unwrap())
            .stdout(Stdio::null())
            .spawn();
        member.child = Some(child.unwrap());
        until("the server listens", || {
            TcpStream::connect(("127.0.0.1", member.port)).is_ok()
        });
    }

    /// Also one that is stopped.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut child) = self.members[index].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// As an upgrade does.
    pub fn terminate(&mut self, index: usize) {
        self.signal(index, Signal::SIGTERM);
        if let Some(mut child) = self.members[index].child.take() {
            child.wait().unwrap();
        }
    }

    pub fn signal(&self, index: usize, signal: Signal) {
        if let Some(child) = &self.members[index].child {
            kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        }
    }

    /// Separates a server from the others.
    pub fn isolate(&self, index: usize, network: Network) {
        for (from, to, proxy) in &self.routes {
            if [*from, *to].contains(&index) {
                proxy.set(network);
            }
        }
    }

    /// Separates a bridge from all servers.
    pub fn cut_bridge(&self, bridge: usize, network: Network) {
        for proxy in &self.clients[bridge] {
            proxy.set(network);
        }
    }

    pub fn fill_disk(&self, index: usize) {
        let mut file = File::create(self.filler(index)).unwrap();
        // Until there is no room.
        while file.write_all(&[0; 1 << 16]).is_ok() {}
        while file.write_all(&[0; 1 << 8]).is_ok() {}
    }

    pub fn empty_disk(&self, index: usize) {
        fs::remove_file(self.filler(index)).unwrap();
    }

    fn filler(&self, index: usize) -> PathBuf {
        self.members[index].disk.join("filler")
    }
}

impl Member {
    fn prepare(&self, config: &str) {
        fs::write(&self.config, config).unwrap();
        fs::create_dir_all(&self.disk).unwrap();
        let (tmpfs, options) = (Some("tmpfs"), Some(DISK));
        mount(tmpfs, &self.disk, tmpfs, MsFlags::empty(), options).unwrap();
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            self.kill(index);
            let _ = umount2(&self.members[index].disk, MntFlags::MNT_DETACH);
        }
    }
}

pub fn server_name(index: usize) -> String {
    format!("server-{index}")
}

fn url(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}

/// Two for each server.
fn free_ports() -> Vec<u16> {
    let listeners = [(); 2 * SERVERS].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    listeners.iter().map(port).collect()
}

/// For what a cluster does after a failure, such as elections, on a machine that emulates the VM.
pub const RECOVERY: Duration = Duration::from_secs(120);

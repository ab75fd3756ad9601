// SPDX-License-Identifier: MIT OR Apache-2.0
//! A proxy in front of a TCP port, which partitions those who connect through it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Whole = 0,
    /// Connections break, and others are refused.
    Cut = 1,
    /// Nothing arrives, and nobody is told.
    Silent = 2,
}

pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    network: AtomicU8,
    connections: Mutex<Vec<Weak<TcpStream>>>,
}

impl Proxy {
    pub fn new(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                // Either may be gone.
                if let (Ok(client), Ok(server)) =
                    (client, TcpStream::connect(("127.0.0.1", target)))
                {
                    of_thread.connect(client, server);
                }
            }
        });
        Self { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, network: Network) {
        let mut connections = self.shared.connections.lock().unwrap();
        self.shared.network.store(network as u8, Ordering::SeqCst);
        if network == Network::Cut {
            for connection in connections.drain(..).filter_map(|weak| weak.upgrade()) {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Shared {
    fn is(&self, network: Network) -> bool {
        self.network.load(Ordering::SeqCst) == network as u8
    }

    fn connect(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let mut connections = self.connections.lock().unwrap();
        if self.is(Network::Cut) {
            return;
        }
        let ends = [client, server].map(Arc::new);
        connections.retain(|connection| connection.strong_count() > 0);
        for (from, to) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
            connections.push(Arc::downgrade(from));
            // A message is seldom longer than a packet, and is waited for.
            let _ = from.set_nodelay(true);
            let (shared, from, to) = (Arc::clone(self), Arc::clone(from), Arc::clone(to));
            thread::spawn(move || shared.copy(&from, &to));
        }
    }

    fn copy(&self, mut from: &TcpStream, mut to: &TcpStream) {
        let mut bytes = [0; 16384];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            while self.is(Network::Silent) {
                thread::sleep(Duration::from_millis(20));
            }
            if to.write_all(&bytes[..len]).is_err() {
                break;
            }
        }
        for end in [from, to] {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

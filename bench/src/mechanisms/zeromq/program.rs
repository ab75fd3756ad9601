// SPDX-License-Identifier: MIT OR Apache-2.0
//! As the first programs of the library's guide: a REQ and a REP socket for round trips, which its latency benchmark uses as
//! well; and a PUSH and a PULL socket for streams, as in its throughput benchmark.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::{Result, anyhow};

use crate::mechanisms::own_program::Program;
use crate::mechanisms::temp_paths::TempPaths;
use crate::mechanisms::zmq_library::{Kind, Socket, Zmq};

pub struct Guide {
    pub zmq: Rc<Zmq>,
    pub paths: Rc<TempPaths>,
}

pub struct Shared {
    zmq: Rc<Zmq>,
    path: PathBuf,
    size: usize,
}

impl Shared {
    fn connect(self, kind: Kind) -> Result<End> {
        let end = End::new(self.zmq, kind, self.size)?;
        end.socket
            .connect(&format!("ipc://{}", self.path.display()))?;
        Ok(end)
    }

    fn bind(self, kind: Kind) -> Result<End> {
        let end = End::new(self.zmq, kind, self.size)?;
        end.socket.bind(&format!("ipc://{}", self.path.display()))?;
        Ok(end)
    }
}

pub struct End {
    socket: Socket,
    message: Vec<u8>,
}

impl End {
    fn new(zmq: Rc<Zmq>, kind: Kind, size: usize) -> Result<Self> {
        Ok(Self {
            socket: Socket::new(zmq, kind)?,
            message: vec![0xab; size],
        })
    }

    fn send(&self) -> Result<()> {
        self.socket.send(&self.message)
    }

    fn receive(&mut self) -> Result<()> {
        match self.socket.receive(&mut self.message)? {
            len if len == self.message.len() => Ok(()),
            len => Err(anyhow!(
                "a message has {len} bytes instead of {}",
                self.message.len()
            )),
        }
    }
}

impl Program for Guide {
    type Shared = Shared;
    type Requester = End;
    type Replier = End;
    type Source = End;
    type Sink = End;

    fn share(&self, size: usize) -> Result<Shared> {
        Ok(Shared {
            zmq: Rc::clone(&self.zmq),
            path: self.paths.next_path()?,
            size,
        })
    }

    fn requester(shared: Shared) -> Result<End> {
        shared.connect(Kind::Req)
    }

    fn replier(shared: Shared) -> Result<End> {
        shared.bind(Kind::Rep)
    }

    fn request(end: &mut End) -> Result<()> {
        end.send()?;
        end.receive()
    }

    fn reply(end: &mut End) -> Result<u64> {
        end.receive()?;
        end.send()?;
        Ok(1)
    }

    fn source(shared: Shared) -> Result<End> {
        shared.connect(Kind::Push)
    }

    fn sink(shared: Shared) -> Result<End> {
        shared.bind(Kind::Pull)
    }

    fn put(end: &mut End) -> Result<()> {
        end.send()
    }

    fn take(end: &mut End) -> Result<u64> {
        end.receive()?;
        Ok(1)
    }
}

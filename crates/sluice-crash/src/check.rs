// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares a map with the history of it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::Verdict;
use crate::history::History;
use crate::model::Model;
use crate::store::{self, Store};
use crate::target;

/// Compares a store with what was answered, after a crash or while the daemon is stopped; or the map in the kernel
#[derive(Args)]
pub struct Check {
    /// What `write` has recorded
    #[arg(long, value_name = "FILE")]
    history: PathBuf,

    /// The name of the map
    #[arg(long, value_name = "NAME")]
    map: String,

    /// The directory of the store; without it the map in the kernel is compared, which nothing may change meanwhile
    #[arg(long, value_name = "DIRECTORY")]
    store: Option<PathBuf>,
}

impl Check {
    pub fn run(&self) -> Result<Verdict> {
        let model = Model::new(&History::read(&self.history)?)?;
        let contents = match &self.store {
            Some(directory) => store::map(Store::open(directory)?.as_ref(), &self.map)?,
            None => Some(target::read(&self.map)?),
        };
        let faults = model.check(contents.as_ref(), Some(model.end));
        for fault in &faults {
            println!("FAILED: {fault}");
        }
        if !faults.is_empty() {
            return Ok(Verdict::Wrong);
        }
        let contents = contents.unwrap_or_default();
        println!(
            "{} entries are right; change {} is the last one applied, {} the last one acknowledged",
            contents.entries.len(),
            contents.applied,
            model.end.stored
        );
        Ok(Verdict::Right)
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start, signals and end.

use std::env;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{interval, timeout};

use crate::config::Config;
use crate::counters::Counters;
use crate::engine::Engine;
use crate::engine::nats::NatsEngine;
use crate::log;
use crate::notify::{Manager, kept_descriptors};
use crate::rule::{self, Context, Kept};

/// Messages of the server itself among those of a subscription.
const STATUSES: usize = 16;
/// For the messages that were received, after SIGTERM.
const END: Duration = Duration::from_secs(5);
/// Between reports to the service manager.
const STATUS: Duration = Duration::from_secs(10);

/// What the service manager has kept of the last process. To be called once, before anything opens a descriptor.
pub fn kept() -> Kept {
    kept_descriptors().into_iter().collect()
}

pub fn run(config: Config, kept: Kept) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    LocalSet::new().block_on(&runtime, async {
        let capacity = config
            .buses
            .iter()
            .map(|rule| rule.in_flight() as usize)
            .max();
        let engine = NatsEngine::connect(
            &config.server,
            config.id(),
            capacity.unwrap_or(0) + STATUSES,
        )
        .await?;
        Bridge::start(config, engine, kept)?.run().await
    })
}

struct Bridge<E> {
    contexts: Vec<Rc<Context<E>>>,
    tasks: JoinSet<Result<()>>,
    manager: Rc<Manager>,
    stop: watch::Sender<bool>,
    signals: [Signal; 2],
}

impl<E: Engine> Bridge<E> {
    fn start(config: Config, engine: E, mut kept: Kept) -> Result<Self> {
        let manager =
            Manager::from_environment().context("NOTIFY_SOCKET is no socket; unset it")?;
        let mut bridge = Self {
            contexts: Vec::new(),
            tasks: JoinSet::new(),
            manager: Rc::new(manager),
            stop: watch::Sender::new(false),
            signals: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
            ],
        };
        let id: Rc<str> = config.id().into();
        for rule in config.buses {
            let of_rule = rule::names(&rule).into_iter().filter(|_| rule.is_out());
            let of_rule: Kept = of_rule
                .filter_map(|name| kept.remove_entry(&name))
                .collect();
            let context = Rc::new(Context {
                rule,
                bridge: Rc::clone(&id),
                engine: engine.clone(),
                counters: Counters::default(),
            });
            bridge.contexts.push(Rc::clone(&context));
            let (manager, stop) = (Rc::clone(&bridge.manager), bridge.stop.subscribe());
            bridge
                .tasks
                .spawn_local(rule::run(context, manager, of_rule, stop));
        }
        for name in kept.keys() {
            log::line(format_args!(
                "{name} of the last process is of no rule any more; its subscription ends"
            ));
            bridge.manager.remove(name)?;
        }
        Ok(bridge)
    }

    async fn run(mut self) -> Result<()> {
        self.notify("READY=1");
        log::line(format_args!("started with {} buses", self.contexts.len()));
        let mut status = interval(watchdog().map_or(STATUS, |limit| STATUS.min(limit / 2)));
        let [terminate, interrupt] = &mut self.signals;
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = status.tick() => {
                    let totals = totals(&self.contexts);
                    self.manager.send(&format!("WATCHDOG=1\nSTATUS={totals}")).ok();
                }
                Some(ended) = self.tasks.join_next() => {
                    ended.context("a rule has failed; report it as a bug")??;
                    return Err(anyhow!("a rule has ended; report it as a bug"));
                }
            }
        }
        self.end().await
    }

    async fn end(mut self) -> Result<()> {
        self.notify("STOPPING=1");
        self.stop.send_replace(true);
        let ended = async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.context("a rule has failed; report it as a bug")??;
            }
            Ok::<(), anyhow::Error>(())
        };
        match timeout(END, ended).await {
            Ok(ended) => ended?,
            Err(_) => log::line(format_args!(
                "the server has not acknowledged all messages; those that the service manager keeps are published at the next start"
            )),
        }
        for context in &self.contexts {
            log::line(format_args!(
                "{}: {}",
                context.rule.channel(),
                context.counters
            ));
        }
        Ok(())
    }

    fn notify(&self, message: &str) {
        if let Err(error) = self.manager.send(message) {
            log::line(format_args!(
                "cannot notify the service manager: {error}; check NOTIFY_SOCKET"
            ));
        }
    }
}

/// Of all rules.
fn totals<E>(contexts: &[Rc<Context<E>>]) -> String {
    let sum = |count: fn(&Counters) -> u64| -> u64 {
        contexts
            .iter()
            .map(|context| count(&context.counters))
            .sum()
    };
    let (out, incoming) = (
        sum(|counters| counters.out.get()),
        sum(|counters| counters.incoming.get()),
    );
    format!(
        "{} buses, {out} messages out, {incoming} in",
        contexts.len()
    )
}

/// After this time without a message the service manager ends the process.
fn watchdog() -> Option<Duration> {
    let limit: u64 = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    Some(Duration::from_micros(limit))
}

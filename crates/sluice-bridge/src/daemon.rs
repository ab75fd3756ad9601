// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start, signals and end.

use std::env;
use std::future::pending;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use sluice_metrics::Address;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{interval, timeout};

use crate::config::Config;
use crate::counters::{Counter, Counters};
use crate::engine::Engine;
use crate::engine::bucket::CHANGES_MAX;
use crate::engine::nats::NatsEngine;
use crate::log;
use crate::map_counters::MapCounters;
use crate::map_task::{self, MapContext};
use crate::metrics;
use crate::notify::{Kept, Manager};
use crate::requests;
use crate::rule::{self, Context};

/// Messages of the server itself among those of a subscription.
const STATUSES: usize = 16;
/// For the messages that were received, after SIGTERM.
const END: Duration = Duration::from_secs(5);
/// Then for the client to send what it holds for the server.
const FLUSH: Duration = Duration::from_secs(1);
/// Between reports to the service manager.
const STATUS: Duration = Duration::from_secs(10);

/// `path` is that of the configuration, which is read again at SIGHUP.
pub fn run(path: &Path, config: Config, kept: Kept) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    LocalSet::new().block_on(&runtime, async {
        let capacity = config
            .buses
            .iter()
            .map(|rule| rule.in_flight() as usize)
            .max();
        let of_maps = config.maps.first().map_or(0, |_| CHANGES_MAX);
        let capacity = capacity.unwrap_or(0).max(of_maps);
        let engine = NatsEngine::connect(&config.server, config.id(), capacity + STATUSES).await?;
        let check = || NatsEngine::check(&Config::read(path)?.server);
        Bridge::start(config, engine, kept)?.run(check).await
    })
}

struct Bridge<E> {
    engine: E,
    contexts: Vec<Rc<Context<E>>>,
    maps: Vec<Rc<MapContext<E>>>,
    tasks: JoinSet<Result<()>>,
    manager: Rc<Manager>,
    stop: watch::Sender<bool>,
    /// Closed when each rule has tried to open its bus.
    opened: mpsc::Receiver<()>,
    /// To end, to end, and to read the configuration again.
    signals: [Signal; 3],
    metrics: Option<(Address, mpsc::Receiver<metrics::Reply>)>,
}

impl<E: Engine> Bridge<E> {
    fn start(config: Config, engine: E, mut kept: Kept) -> Result<Self> {
        let manager =
            Manager::from_environment(&kept).context("NOTIFY_SOCKET is no socket; unset it")?;
        let (opening, opened) = mpsc::channel(1);
        let mut bridge = Self {
            engine,
            contexts: Vec::new(),
            maps: Vec::new(),
            tasks: JoinSet::new(),
            manager: Rc::new(manager),
            stop: watch::Sender::new(false),
            opened,
            signals: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::hangup())?,
            ],
            metrics: None,
        };
        if let Some(address) = config.metrics() {
            let requests = metrics::serve(&address)?;
            bridge.metrics = Some((address, requests));
        }
        let id: Rc<str> = config.id().into();
        for rule in config.buses {
            let keeps = rule.is_out() && rule.request_timeout().is_none();
            let of_rule = rule::names(&rule).into_iter().filter(|_| keeps);
            let of_rule: Kept = of_rule
                .filter_map(|name| kept.remove_entry(&name))
                .collect();
            let context = Rc::new(Context {
                rule,
                bridge: Rc::clone(&id),
                engine: bridge.engine.clone(),
                counters: Counters::default(),
            });
            bridge.contexts.push(Rc::clone(&context));
            let (manager, stop) = (Rc::clone(&bridge.manager), bridge.stop.subscribe());
            let opening = opening.clone();
            match context.rule.request_timeout() {
                Some(_) => bridge
                    .tasks
                    .spawn_local(requests::run(context, stop, opening)),
                None => bridge
                    .tasks
                    .spawn_local(rule::run(context, manager, of_rule, stop, opening)),
            };
        }
        for rule in config.maps {
            let of_rule = map_task::take_kept(&rule, &mut kept);
            let context = Rc::new(MapContext {
                rule,
                engine: bridge.engine.clone(),
                counters: MapCounters::default(),
                changing: Mutex::default(),
            });
            bridge.maps.push(Rc::clone(&context));
            let (manager, stop) = (Rc::clone(&bridge.manager), bridge.stop.subscribe());
            bridge.tasks.spawn_local(map_task::run(
                context,
                manager,
                of_rule,
                stop,
                opening.clone(),
            ));
        }
        for (name, descriptor) in kept {
            let lost = match rule::messages(&name, descriptor) {
                Ok(0) | Err(_) => String::new(),
                Ok(count) => format!("; {count} messages are lost"),
            };
            log::line(format_args!(
                "{name} of the last process is of no rule any more, and is closed{lost}"
            ));
            bridge.manager.remove(&name)?;
        }
        Ok(bridge)
    }

    /// `check` tells whether the configuration is valid now.
    async fn run(mut self, check: impl Fn() -> Result<()>) -> Result<()> {
        // Who starts after the bridge finds it subscribed.
        self.opened.recv().await;
        self.notify("READY=1");
        let (buses, maps) = (self.contexts.len(), self.maps.len());
        log::line(format_args!("started with {buses} buses and {maps} maps"));
        let mut status = interval(watchdog().map_or(STATUS, |limit| STATUS.min(limit / 2)));
        let engine = self.engine.clone();
        let mut failed = pin!(engine.failed());
        loop {
            let [terminate, interrupt, hangup] = &mut self.signals;
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => match check() {
                    Ok(()) => return self.restart().await,
                    Err(error) => log::line(format_args!(
                        "the configuration stays as it was: {}",
                        sluice::explain(error.as_ref())
                    )),
                },
                () = &mut failed => {
                    log::line(format_args!("the client of the server has failed; starting again"));
                    return self.restart().await;
                }
                _ = status.tick() => {
                    let totals = totals(&self.contexts, &self.maps);
                    self.manager.send(&format!("WATCHDOG=1\nSTATUS={totals}")).ok();
                }
                Some(reply) = requested(&mut self.metrics) => {
                    // A client may have gone.
                    let _ = reply.send(self.snapshot());
                }
                Some(ended) = self.tasks.join_next() => {
                    ended.context("a rule has failed; report it as a bug")??;
                    return Err(anyhow!("a rule has ended; report it as a bug"));
                }
            }
        }
        self.notify("STOPPING=1");
        self.end().await
    }

    /// Begins again with the configuration as it is now. Unacknowledged messages are kept.
    async fn restart(mut self) -> Result<()> {
        self.notify("RELOADING=1");
        self.end().await?;
        Err(self.manager.restart()).context("cannot start again; start the bridge")
    }

    async fn end(&mut self) -> Result<()> {
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
                "the server has not acknowledged all messages; those that are kept are published at the next start"
            )),
        }
        // This sends the last acknowledgements of received messages.
        if self.engine.is_connected() {
            let _ = timeout(FLUSH, self.engine.flush()).await;
        }
        for context in &self.contexts {
            log::line(format_args!(
                "{}: {}",
                context.rule.channel(),
                context.counters
            ));
        }
        for context in &self.maps {
            let (channel, counters) = (context.rule.channel(), &context.counters);
            log::line(format_args!("{channel}: {counters}"));
        }
        if let Some((address, _)) = &self.metrics {
            address
                .release()
                .context("cannot remove the socket of the metrics")?;
        }
        Ok(())
    }

    fn snapshot(&self) -> metrics::Snapshot {
        let mut snapshot = metrics::Snapshot::new(self.engine.is_connected());
        for context in &self.contexts {
            snapshot.add(&context.rule, &context.counters);
        }
        for context in &self.maps {
            snapshot.add_map(&context.rule, &context.counters);
        }
        snapshot
    }

    fn notify(&self, message: &str) {
        if let Err(error) = self.manager.send(message) {
            log::line(format_args!(
                "cannot notify the service manager: {error}; check NOTIFY_SOCKET"
            ));
        }
    }
}

async fn requested(
    metrics: &mut Option<(Address, mpsc::Receiver<metrics::Reply>)>,
) -> Option<metrics::Reply> {
    match metrics {
        Some((_, requests)) => requests.recv().await,
        None => pending().await,
    }
}

/// Of all rules.
fn totals<E>(contexts: &[Rc<Context<E>>], maps: &[Rc<MapContext<E>>]) -> String {
    let sum = |count: fn(&Counters) -> &Counter| -> u64 {
        let counts = contexts.iter();
        counts.map(|context| count(&context.counters).get()).sum()
    };
    let sum_of_maps = |count: fn(&MapCounters) -> &Counter| -> u64 {
        let counts = maps.iter();
        counts.map(|context| count(&context.counters).get()).sum()
    };
    format!(
        "{} buses, {} messages out, {} in; {} maps, {} changes out, {} in",
        contexts.len(),
        sum(|counters| &counters.out),
        sum(|counters| &counters.incoming),
        maps.len(),
        sum_of_maps(|counters| &counters.out),
        sum_of_maps(|counters| &counters.incoming),
    )
}

/// After this time without a message the service manager ends the process.
fn watchdog() -> Option<Duration> {
    let limit: u64 = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (limit > 0).then_some(Duration::from_micros(limit))
}

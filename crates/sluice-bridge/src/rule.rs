// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rule of the configuration as a task: opens the bus, or takes the subscription of the last process, and bridges until the bus ends,
//! again and again.

use std::future::pending;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use sluice::bus::{AsyncSender, BusInfo, Mode, Options, Policy, Sender, Subscriber};
use tokio::sync::{mpsc, watch};

use crate::backoff::Backoff;
use crate::bus_rule::{BusRule, Full};
use crate::counters::Counters;
use crate::engine::Engine;
use crate::incoming;
use crate::log;
use crate::notify::{Kept, Manager};
use crate::outgoing::{End, Outgoing};
use crate::window::{self, Window};

const REOPEN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// Of the subject, the headers and the protocol, beside the body of a message.
const HEADERS: u64 = 1024;

/// What all of a rule uses.
pub struct Context<E> {
    pub rule: BusRule,
    pub bridge: Rc<str>,
    pub engine: E,
    pub counters: Counters,
}

/// An open bus.
#[derive(Default)]
struct Endpoint {
    sender: Option<Sender>,
    subscriber: Option<OwnedFd>,
    window: Option<Window>,
    /// Of the messages that the bus permits, if it was opened for those that go out.
    message_max: Option<u64>,
}

/// An open bus that has no window yet.
type Subscribed = (Option<Sender>, Subscriber);

/// The names of a rule's descriptors at the service manager.
pub fn names(rule: &BusRule) -> [String; 2] {
    let hash = window::hash(&rule.channel());
    ["window", "bus"].map(|kind| format!("{kind}-{hash:016x}"))
}

/// Until `stop` is true. `opening` is dropped after the first attempt to open the bus.
pub async fn run<E: Engine>(
    context: Rc<Context<E>>,
    manager: Rc<Manager>,
    kept: Kept,
    mut stop: watch::Receiver<bool>,
    opening: mpsc::Sender<()>,
) -> Result<()> {
    let mut opening = Some(opening);
    let channel = context.rule.channel();
    let mut backoff = Backoff::new(REOPEN.0, REOPEN.1);
    let mut endpoint = restore(&context.rule, kept);
    let mut subscribed = None;
    let mut told = String::new();
    while !*stop.borrow() {
        let opened = match endpoint.take() {
            Some(endpoint) => Ok(endpoint),
            None => open(&context, &manager, &mut subscribed),
        };
        drop(opening.take());
        match opened {
            Ok(endpoint) => {
                told.clear();
                backoff.reset();
                if bridge(&context, endpoint, &mut stop).await? == End::Stopped {
                    return Ok(());
                }
                log::line(format_args!(
                    "{channel}: the bus has ended; opening it again"
                ));
                remove(&context.rule, &manager);
            }
            Err(error) => {
                let text = sluice::explain(error.as_ref());
                if text != told {
                    log::line(format_args!("{channel}: {text}; trying again"));
                    told = text;
                }
            }
        }
        tokio::select! {
            () = backoff.wait() => {}
            _ = stop.changed() => {}
        }
    }
    Ok(())
}

/// Until the bus ends and the engine has its messages, or `stop` is true.
async fn bridge<E: Engine>(
    context: &Rc<Context<E>>,
    endpoint: Endpoint,
    stop: &mut watch::Receiver<bool>,
) -> Result<End> {
    let sender = endpoint.sender.map(AsyncSender::new).transpose()?;
    let incoming = async {
        match &sender {
            Some(sender) => incoming::run(context, sender).await,
            None => pending().await,
        }
    };
    let Some(window) = endpoint.window else {
        return Ok(tokio::select! {
            () = incoming => End::Bus,
            _ = stop.wait_for(|stop| *stop) => End::Stopped,
        });
    };
    let mut outgoing = Outgoing::new(Rc::clone(context), window, endpoint.subscriber)?;
    let warning = async {
        if let Some(max) = endpoint.message_max {
            warn_of_long_messages(context, max).await;
        }
    };
    // The end of the bus ends these, too; what has come in is on the bus.
    let others = async {
        tokio::join!(incoming, warning);
        pending().await
    };
    tokio::select! {
        end = outgoing.run(stop) => end,
        () = others => unreachable!("they are pending for ever"),
    }
}

/// `subscribed`: what an earlier call has opened before it failed. Messages that were sent since are in it.
fn open<E: Engine>(
    context: &Context<E>,
    manager: &Manager,
    subscribed: &mut Option<Subscribed>,
) -> Result<Endpoint> {
    let rule = &context.rule;
    if !rule.is_out() {
        return Ok(Endpoint {
            sender: Some(rule.bus()?.sender()?),
            ..Endpoint::default()
        });
    }
    let (sender, subscriber) = match subscribed.take() {
        Some(both) => both,
        None => subscribe(rule, &rule.bus()?)?,
    };
    let info = subscriber.info()?;
    let window = match Window::new(window_size(rule, &info), &rule.channel(), subscriber.id()) {
        Ok(window) => window,
        Err(error) => {
            *subscribed = Some((sender, subscriber));
            return Err(error);
        }
    };
    let subscriber = OwnedFd::from(subscriber);
    // Those of the last process, if they were not used.
    remove(rule, manager);
    let kept = [window.as_fd(), subscriber.as_fd()];
    for (name, descriptor) in names(rule).iter().zip(kept) {
        // Without, a restart ends the subscription.
        if let Err(error) = manager.store(name, descriptor) {
            let channel = rule.channel();
            log::line(format_args!(
                "{channel}: the service manager does not keep the subscription: {error}; check NOTIFY_SOCKET"
            ));
        }
    }
    Ok(Endpoint {
        sender,
        subscriber: Some(subscriber),
        window: Some(window),
        message_max: Some(info.message_max),
    })
}

fn subscribe(rule: &BusRule, options: &Options) -> Result<Subscribed> {
    // A unicast bus has no policies. Of one that does not exist the open tells.
    let mode = match options.info() {
        Ok(info) => info.mode,
        Err(_) => rule.created_mode().unwrap_or_default(),
    };
    let policy = match rule.full() {
        Full::Block => Policy::Block,
        Full::Drop => Policy::Drop,
    };
    let options = match mode {
        Mode::Unicast => options.clone(),
        _ => options.clone().policy(policy),
    };
    if mode == Mode::Unicast && rule.full() == Full::Drop {
        bail!("a unicast bus loses no messages; write full = \"block\"");
    }
    if !rule.is_in() {
        return Ok((None, options.subscriber()?));
    }
    ensure!(
        mode == Mode::Broadcast,
        "a {mode} bus gives a message to one receiver, which the bridge would be itself; write direction = \"in\" or \"out\""
    );
    let (sender, subscriber) = options.endpoint()?;
    Ok((Some(sender), subscriber))
}

/// Two of the longest messages of the bus in any case.
fn window_size(rule: &BusRule, info: &BusInfo) -> usize {
    let longest = info.message_max + HEADERS;
    usize::try_from(rule.in_flight_bytes().max(2 * longest)).unwrap_or(usize::MAX)
}

/// The server tells its maximum when it is connected.
async fn warn_of_long_messages<E: Engine>(context: &Context<E>, message_max: u64) {
    if let Some(max) = shorter_message_max(&context.engine, message_max).await {
        let channel = context.rule.channel();
        log::line(format_args!(
            "{channel}: the bus permits messages of {message_max} bytes, the server {max} with headers; longer ones do not go out"
        ));
    }
}

/// The maximum of the server, if the bus permits longer messages.
async fn shorter_message_max<E: Engine>(engine: &E, message_max: u64) -> Option<usize> {
    engine.connected().await;
    let max = engine.message_max()?;
    ((max as u64) < message_max + HEADERS).then_some(max)
}

/// The subscription and the window of the last process.
fn restore(rule: &BusRule, mut kept: Kept) -> Option<Endpoint> {
    let [window, bus] = names(rule).map(|name| kept.remove(&name));
    let channel = rule.channel();
    let window = window.and_then(|file| {
        let window = Window::restore(file, &channel);
        window.map_err(|error| note_lost(&channel, &error)).ok()
    });
    let restored = bus.map(|bus| restore_bus(rule, bus, window.as_ref()));
    match (restored, window) {
        (None, None) => None,
        // It was stored after the window, so there is one.
        (Some(Ok(endpoint)), Some(window)) => Some(Endpoint {
            window: Some(window),
            ..endpoint
        }),
        (restored, window) => {
            if let Some(Err(error)) = restored {
                note_lost(&channel, &error);
            }
            // What the last process received is published before the bus is opened.
            window.map(|window| Endpoint {
                window: Some(window),
                ..Endpoint::default()
            })
        }
    }
}

/// The number of messages in a descriptor of a rule that was removed.
pub fn messages(name: &str, descriptor: OwnedFd) -> Result<u64> {
    match name.split_once('-') {
        Some(("window", _)) => Window::messages(descriptor),
        Some(("bus", _)) => {
            let endpoint = Subscriber::attach(descriptor)?.info()?.endpoint;
            Ok(endpoint.map_or(0, |endpoint| endpoint.lag))
        }
        _ => Ok(0),
    }
}

fn note_lost(channel: &str, error: &anyhow::Error) {
    let text = sluice::explain(error.as_ref());
    log::line(format_args!(
        "{channel}: what the last process has left is not used: {text}"
    ));
}

/// An endpoint without its window.
fn restore_bus(rule: &BusRule, bus: OwnedFd, window: Option<&Window>) -> Result<Endpoint> {
    let sender = match rule.is_in() {
        true => Some(Sender::attach(bus.try_clone()?)?),
        false => None,
    };
    let subscriber = Subscriber::attach(bus)?;
    let info = subscriber.info()?;
    let policy = info.endpoint.and_then(|endpoint| endpoint.policy);
    let expected = match rule.full() {
        Full::Block => Policy::Block,
        Full::Drop => Policy::Drop,
    };
    let lag = info.endpoint.map_or(0, |endpoint| endpoint.lag);
    // None: a unicast bus.
    ensure!(
        policy.is_none_or(|policy| policy == expected),
        "full was changed in the configuration; {lag} messages that were not received are lost"
    );
    ensure!(
        window.is_some_and(|window| window.subscriber() == subscriber.id()),
        "the messages in flight are of another subscription"
    );
    Ok(Endpoint {
        sender,
        subscriber: Some(subscriber.into()),
        window: None,
        message_max: Some(info.message_max),
    })
}

/// The service manager closes the descriptors of an ended bus.
fn remove(rule: &BusRule, manager: &Manager) {
    if !rule.is_out() {
        return;
    }
    for name in names(rule) {
        if let Err(error) = manager.remove(&name) {
            log::line(format_args!(
                "cannot notify the service manager: {error}; check NOTIFY_SOCKET"
            ));
        }
    }
}

#[cfg(test)]
pub mod tests {
    use futures_util::FutureExt as _;
    use tokio::task::{LocalSet, spawn_local};
    use tokio::time::timeout;

    use super::*;
    use crate::config::tests::rule;
    use crate::engine::memory::{MESSAGE_MAX, MemoryEngine};

    /// Of a rule with these lines, for the bus `orders`.
    pub fn context<E>(lines: &str, engine: E) -> Rc<Context<E>> {
        Rc::new(Context {
            rule: rule(&format!("name = \"orders\"\n{lines}")),
            bridge: "a".into(),
            engine,
            counters: Counters::default(),
        })
    }

    #[test]
    fn a_maximum_of_the_server_is_known_after_it_is_connected() {
        let engine = MemoryEngine::default();
        engine.disconnect();
        for bus_max in [MESSAGE_MAX as u64, 0] {
            assert!(
                shorter_message_max(&engine, bus_max)
                    .now_or_never()
                    .is_none()
            );
        }
        engine.connect();
        let shorter = |bus_max| {
            shorter_message_max(&engine, bus_max)
                .now_or_never()
                .unwrap()
        };
        assert_eq!(shorter(MESSAGE_MAX as u64), None);
        assert_eq!(
            shorter(MESSAGE_MAX as u64 + 1),
            Some(MESSAGE_MAX + HEADERS as usize)
        );
    }

    #[test]
    fn the_start_waits_for_one_attempt_to_open_the_bus() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async {
            let lines = "scope = \"/nonexistent\"\ndirection = \"out\"\nsubject = \"orders\"";
            let context = context(lines, MemoryEngine::default());
            let (stop, stopped) = watch::channel(false);
            let (opening, mut opened) = mpsc::channel(1);
            let manager = Rc::new(Manager::default());
            let task = spawn_local(run(context, manager, Kept::default(), stopped, opening));
            let waited = timeout(Duration::from_secs(10), opened.recv()).await;
            assert_eq!(waited, Ok(None));
            // It goes on to try.
            assert!(!task.is_finished());
            stop.send(true).unwrap();
            task.await.unwrap().unwrap();
        });
    }

    #[test]
    fn descriptors_have_names_that_the_service_manager_permits() {
        let rule = rule("name = \"a:b\"\nscope = \"/x y\"\ndirection = \"out\"\nsubject = \"a\"");
        for name in names(&rule) {
            let is_permitted = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            assert!(name.bytes().all(is_permitted), "{name}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows that names are apart as well: two containers that use the same name do not find each other, until the host hands
//! both an end of a channel.

use anyhow::{Result, bail, ensure};
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units::megabytes;

use crate::crew::{Crew, NAMES};
use crate::handing;
use crate::isolation::secret;
use crate::protocol::{Answer, Event, Findings, Order};
use crate::rounds::Delivery;
use crate::staging::Staged;
use crate::talk;

const SHARED: &str = "frames";
/// Which each container alone has.
const OWN: [&str; 2] = ["for-a-only", "for-b-only"];

/// Both make channels of the same name, and each then looks for the other's by every call.
pub fn show_secrecy(crew: &mut Crew) -> Result<()> {
    eprintln!(
        "Channels by name: both containers make one named {SHARED} and one that the other has not, {} or {}, and put a\n\
         secret into both. Each then looks for what the other has, with every call that there is:\n",
        OWN[0], OWN[1]
    );
    let secrets = [secret()?, secret()?];
    for (index, secret) in secrets.iter().enumerate() {
        make(crew, index, secret)?;
    }
    let findings = [search(crew, 0)?, search(crew, 1)?];
    for index in [0, 1] {
        check(index, &findings[index], &secrets)?;
        let kept = recall(crew, index)?;
        ensure!(
            kept == secrets[index],
            "container {} no longer has its secret: it reads '{kept}'",
            NAMES[index]
        );
    }
    let table = table(&findings).to_string();
    let lines = table.lines().map(|line| format!("  {line}\n"));
    eprintln!("{}", lines.collect::<String>());
    Ok(())
}

fn make(crew: &mut Crew, index: usize, secret: &str) -> Result<()> {
    let order = Order::Make {
        names: [SHARED, OWN[index]].map(str::to_string).into(),
        secret: secret.to_string(),
    };
    match ask(crew, index, &order)? {
        Event::Held => Ok(()),
        event => bail!("container {} answered {event:?}", NAMES[index]),
    }
}

fn search(crew: &mut Crew, index: usize) -> Result<Findings> {
    let order = Order::Search {
        shared: SHARED.to_string(),
        theirs: OWN[1 - index].to_string(),
    };
    match ask(crew, index, &order)? {
        Event::Searched { findings } => Ok(findings),
        event => bail!("container {} answered {event:?}", NAMES[index]),
    }
}

fn recall(crew: &mut Crew, index: usize) -> Result<String> {
    let order = Order::Recall {
        name: OWN[index].to_string(),
    };
    match ask(crew, index, &order)? {
        Event::Taken { text } => Ok(text),
        event => bail!("container {} answered {event:?}", NAMES[index]),
    }
}

fn ask(crew: &mut Crew, index: usize, order: &Order) -> Result<Event> {
    crew.order(index, order)?;
    crew.next_of(index)
}

/// Fails if a container found anything but its own.
fn check(index: usize, findings: &Findings, secrets: &[String; 2]) -> Result<()> {
    let name = NAMES[index];
    let own = [OWN[index].to_string(), SHARED.to_string()];
    ensure!(
        findings.names == own,
        "container {name} lists other channels than its own two: {:?}",
        findings.names
    );
    ensure!(
        !findings.names_there.is_empty() && findings.names_there.iter().all(|names| *names == own),
        "container {name} found channels in a directory or open file, or not even its own: {:?}",
        findings.names_there
    );
    ensure!(
        findings.text == secrets[index],
        "container {name} read '{}' from its {SHARED}, which is not its own secret",
        findings.text
    );
    for (call, answer) in [
        ("looked up", &findings.look_up),
        ("opened", &findings.open),
        ("removed", &findings.remove),
    ] {
        ensure!(
            *answer == Answer::NoSuchChannel,
            "container {name} {call} {}, which is the other's: {answer:?}",
            OWN[1 - index]
        );
    }
    ensure!(
        findings.remove_shared == Answer::Done,
        "container {name} could not remove its own {SHARED}: {:?}",
        findings.remove_shared
    );
    Ok(())
}

/// What was checked before.
fn table(findings: &[Findings; 2]) -> Table {
    let mut table = Table::new(&[
        ("asked for", Align::Left),
        ("container a", Align::Left),
        ("container b", Align::Left),
    ]);
    let mut row = |asked: &str, answer: &dyn Fn(&Findings) -> String| {
        let [a, b] = findings;
        table.row([asked.to_string(), answer(a), answer(b)]);
    };
    row("all channels in its scope", &|found| found.names.join(", "));
    row("those in any directory or open file", &|found| {
        format!("its own ({} looked at)", found.places)
    });
    row(&format!("what {SHARED} holds"), &|found| {
        format!("its own secret, {} bytes", found.text.len())
    });
    row("the state of the other's for-…-only", &|found| {
        describe(&found.look_up)
    });
    row("to open the other's for-…-only", &|found| {
        describe(&found.open)
    });
    row("to remove the other's for-…-only", &|found| {
        describe(&found.remove)
    });
    row(&format!("to remove {SHARED}"), &|_| {
        "its own goes".to_string()
    });
    row("its own secret at the end", &|_| "still there".to_string());
    table
}

fn describe(answer: &Answer) -> String {
    match answer {
        Answer::Done => "it".to_string(),
        Answer::NoSuchChannel => "no such channel".to_string(),
        Answer::Failed(message) => message.clone(),
    }
}

/// The host has opened a channel above both: container a, which is given the write end now, sends its file to container b,
/// which was started with the read end.
pub fn show_handing(crew: &mut Crew, staged: &[Staged; 2], write_size: usize) -> Result<()> {
    eprintln!(
        "To let them talk, the host opens a channel named {} in the scope above both and hands each an end, an open file:\n  \
         container b was started with the read end (crun run --preserve-fds 1)\n  \
         container a gets the write end now, over a Unix socket (SCM_RIGHTS)",
        handing::NAME
    );
    for index in [0, 1] {
        look_in_vain(crew, index)?;
    }
    eprintln!("  neither finds it by its name: no such channel");
    let file = &staged[0];
    let delivery = hand_and_talk(crew, write_size)?;
    talk::verify(&delivery, file)?;
    eprintln!(
        "  a sends {}, {}; b receives SHA-256 {}, as sha256sum says\n",
        file.name,
        megabytes(file.bytes),
        file.sha256
    );
    Ok(())
}

fn look_in_vain(crew: &mut Crew, index: usize) -> Result<()> {
    let order = Order::LookUp {
        name: handing::NAME.to_string(),
    };
    match ask(crew, index, &order)? {
        Event::LookedUp {
            answer: Answer::NoSuchChannel,
        } => Ok(()),
        event => bail!(
            "container {} looked for the host's channel and answered {event:?}",
            NAMES[index]
        ),
    }
}

fn hand_and_talk(crew: &mut Crew, write_size: usize) -> Result<Delivery> {
    let receive = Order::ReceiveHanded {
        read_size: write_size,
    };
    crew.order(1, &receive)?;
    crew.order(0, &Order::SendHanded { write_size })?;
    crew.hand_over()?;
    talk::collect(crew)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> [String; 2] {
        ["one".to_string(), "two".to_string()]
    }

    /// What container a has to find.
    fn findings() -> Findings {
        let names = vec![OWN[0].to_string(), SHARED.to_string()];
        Findings {
            names: names.clone(),
            places: 9,
            names_there: vec![names],
            text: "one".into(),
            look_up: Answer::NoSuchChannel,
            open: Answer::NoSuchChannel,
            remove: Answer::NoSuchChannel,
            remove_shared: Answer::Done,
        }
    }

    #[test]
    fn only_the_own_channels_pass() {
        check(0, &findings(), &secrets()).unwrap();
    }

    #[test]
    fn anything_of_the_others_is_found() {
        let all = vec![OWN[0].to_string(), OWN[1].to_string(), SHARED.to_string()];
        let refused = Answer::Failed("permission denied".into());
        for wrong in [
            Findings {
                names: all.clone(),
                ..findings()
            },
            Findings {
                names_there: vec![all],
                ..findings()
            },
            Findings {
                names_there: vec![],
                ..findings()
            },
            Findings {
                text: "two".into(),
                ..findings()
            },
            Findings {
                text: String::new(),
                ..findings()
            },
            Findings {
                look_up: Answer::Done,
                ..findings()
            },
            Findings {
                open: Answer::Done,
                ..findings()
            },
            // That something is there is already more than it should learn.
            Findings {
                remove: refused,
                ..findings()
            },
            Findings {
                remove_shared: Answer::NoSuchChannel,
                ..findings()
            },
        ] {
            assert!(check(0, &wrong, &secrets()).is_err(), "{wrong:?}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of the module, and how much of them is used by the own cgroup, the cgroups that contain it, and the user.

use std::io;

use sluice::{Account, Scope};

use super::Finding;
use super::cgroups;
use super::module::MODULE;
use super::system::System;

pub fn limits(system: &System) -> Finding {
    const CHECK: &str = "limits";
    const PARAMETERS: [&str; 6] = [
        "pipe_max_size",
        "spin_limit_us",
        "scope_max_channels",
        "scope_max_bytes",
        "user_max_channels",
        "user_max_bytes",
    ];
    let read = |name| {
        let value = system.text(&format!("{MODULE}/parameters/{name}"))?;
        Ok(format!("{name} {value}"))
    };
    match PARAMETERS
        .into_iter()
        .map(read)
        .collect::<io::Result<Vec<_>>>()
    {
        Ok(limits) => Finding::ok(CHECK, limits.join(", ")),
        Err(error) => Finding::problem(
            CHECK,
            format!("cannot read a parameter in {MODULE}/parameters: {error}"),
            "run 'sudo mount -t sysfs sysfs /sys', or load the current module",
        ),
    }
}

const CHECK: &str = "usage";
/// The parameters with the limits of channels and of bytes.
const USER: [&str; 2] = ["user_max_channels", "user_max_bytes"];
const SCOPE: [&str; 2] = ["scope_max_channels", "scope_max_bytes"];

/// A limit, and how much of it is used.
struct Part {
    whose: String,
    /// The parameter of the module with the limit.
    parameter: &'static str,
    used: u64,
    limit: u64,
}

pub fn usage(system: &System) -> Finding {
    let own = match sluice::usage(&Scope::own()) {
        Ok(usage) => usage,
        Err(error) => return Finding::problem(CHECK, error.to_string(), error.hint()),
    };
    let mut used = parts("this user", USER, &own.user);
    used.extend(parts("this cgroup", SCOPE, &own.scope));
    let directory = cgroups::directory(system);
    for path in directory.iter().flat_map(|path| path.ancestors().skip(1)) {
        // Above the root of the hierarchy, or of this container's.
        let Ok(usage) = Scope::at(path).and_then(|scope| sluice::usage(&scope)) else {
            break;
        };
        let whose = format!("the cgroup {}", path.display());
        used.extend(parts(&whose, SCOPE, &usage.scope));
    }
    judge(&used)
}

/// Those that have a limit.
fn parts(whose: &str, parameters: [&'static str; 2], account: &Account) -> Vec<Part> {
    let counts = [
        (account.channels, account.channels_max),
        (account.bytes, account.bytes_max),
    ];
    let parts = parameters.into_iter().zip(counts);
    let part = |(parameter, (used, limit))| {
        Some(Part {
            whose: whose.to_owned(),
            parameter,
            used,
            limit: limit?,
        })
    };
    parts.filter_map(part).collect()
}

/// The fullest one decides; of two that are equally full, the first.
fn judge(parts: &[Part]) -> Finding {
    let percent = |part: &Part| u128::from(part.used) * 100 / u128::from(part.limit.max(1));
    let fuller = |a, b| if percent(b) > percent(a) { b } else { a };
    let Some(fullest) = parts.iter().reduce(fuller) else {
        return Finding::ok(CHECK, "there is no limit");
    };
    let Part {
        whose,
        parameter,
        used,
        limit,
    } = fullest;
    if used < limit {
        let percent = percent(fullest);
        return Finding::ok(
            CHECK,
            format!("at most {percent} %: {whose}, of {parameter}"),
        );
    }
    Finding::problem(
        CHECK,
        format!("{whose} has used up {parameter}: {used} of {limit}"),
        format!(
            "remove channels that 'sudo sluice ls --all' lists, or run 'echo {} | sudo tee {MODULE}/parameters/{parameter}'",
            u128::from(*used.max(limit)) * 2,
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::tree;
    use super::*;

    fn part(whose: &str, parameter: &'static str, used: u64, limit: u64) -> Part {
        Part {
            whose: whose.to_owned(),
            parameter,
            used,
            limit,
        }
    }

    #[test]
    fn the_fullest_account_is_shown() {
        let bytes = part("this user", USER[1], 91, 100);
        let finding = judge(&[part("this user", USER[0], 1, 10), bytes]);
        assert!(finding.ok);
        assert_eq!(finding.found, "at most 91 %: this user, of user_max_bytes");
        assert_eq!(judge(&[]).found, "there is no limit");
    }

    #[test]
    fn a_full_account_names_whose_it_is_and_its_limit() {
        let free = || part("this user", USER[0], 9, 10);
        for (full, parameter) in [
            (part("this user", USER[1], 10, 10), "user_max_bytes"),
            (part("this cgroup", SCOPE[0], 10, 9), "scope_max_channels"),
            (part("the cgroup /a", SCOPE[1], 10, 0), "scope_max_bytes"),
        ] {
            let found = format!(
                "{} has used up {parameter}: 10 of {}",
                full.whose, full.limit
            );
            let finding = judge(&[free(), full]);
            assert_eq!(finding.found, found);
            let fix = finding.fix.unwrap();
            let expected = format!("echo 20 | sudo tee /sys/module/sluice/parameters/{parameter}");
            assert!(fix.contains(&expected), "{fix}");
        }
    }

    #[test]
    fn a_limit_that_cannot_be_read_is_a_problem() {
        assert!(!limits(&tree(&[]).system).ok);
    }
}

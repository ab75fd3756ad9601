// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that the administrator sets.

use std::fs;
use std::path::Path;

/// None where the kernel was built without what it limits.
pub fn read(name: &str) -> Option<usize> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Why messages of this size do not go, if these limits on them are too low.
pub fn obstacle(limits: &[&str], size: usize) -> Option<String> {
    let mut most = usize::MAX;
    let mut advice = String::new();
    for name in limits {
        let Some(limit) = read(name) else {
            return Some(format!(
                "there is no {name} here; use a kernel that was built with it, and mount /proc"
            ));
        };
        if limit < size {
            most = most.min(limit);
            advice += &format!(" {name}={size}");
        }
    }
    (!advice.is_empty())
        .then(|| format!("its messages hold at most {most} bytes here; for more: sysctl{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_an_obstacle_beyond_it_and_not_at_it() {
        let limit = read("kernel.pid_max").unwrap();
        assert_eq!(obstacle(&["kernel.pid_max"], limit), None);
        let reason = obstacle(&["kernel.pid_max"], limit + 1).unwrap();
        let advice = format!("sysctl kernel.pid_max={}", limit + 1);
        assert!(reason.ends_with(&advice), "{reason}");
    }

    #[test]
    fn all_limits_that_are_too_low_are_named_at_once() {
        let names = ["kernel.pid_max", "kernel.threads-max"];
        let limits = names.map(|name| read(name).unwrap());
        let reason = obstacle(&names, usize::MAX).unwrap();
        assert!(names.iter().all(|name| reason.contains(name)), "{reason}");
        let most = format!("at most {} bytes", limits[0].min(limits[1]));
        assert!(reason.contains(&most), "{reason}");
    }

    #[test]
    fn what_is_not_there_is_an_obstacle() {
        assert_eq!(read("kernel.hamster"), None);
        assert!(obstacle(&["kernel.hamster"], 1).is_some());
    }
}

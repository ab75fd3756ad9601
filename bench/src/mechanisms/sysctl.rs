// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits that sysctl(8) sets.

use std::fs;
use std::path::Path;

/// None if the kernel was built without the limited feature.
pub fn read(name: &str) -> Option<usize> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The reason why messages of this size are not supported, if these limits are too low.
pub fn unsupported_reason(limits: &[&str], size: usize) -> Option<String> {
    let mut most = usize::MAX;
    let mut advice = String::new();
    for name in limits {
        let Some(limit) = read(name) else {
            return Some(format!(
                "there is no {name}; use a kernel that has it, and mount /proc"
            ));
        };
        if limit < size {
            most = most.min(limit);
            advice += &format!(" {name}={size}");
        }
    }
    (!advice.is_empty()).then(|| {
        format!("its messages are limited to {most} bytes; raise the limit with sysctl{advice}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_at_the_limit_is_supported_and_beyond_it_is_not() {
        let limit = read("kernel.pid_max").unwrap();
        assert_eq!(unsupported_reason(&["kernel.pid_max"], limit), None);
        let reason = unsupported_reason(&["kernel.pid_max"], limit + 1).unwrap();
        let advice = format!("sysctl kernel.pid_max={}", limit + 1);
        assert!(reason.ends_with(&advice), "{reason}");
    }

    #[test]
    fn all_limits_that_are_too_low_are_named_at_once() {
        let names = ["kernel.pid_max", "kernel.threads-max"];
        let limits = names.map(|name| read(name).unwrap());
        let reason = unsupported_reason(&names, usize::MAX).unwrap();
        assert!(names.iter().all(|name| reason.contains(name)), "{reason}");
        let most = format!("limited to {} bytes", limits[0].min(limits[1]));
        assert!(reason.contains(&most), "{reason}");
    }

    #[test]
    fn a_missing_limit_is_a_reason() {
        assert_eq!(read("kernel.no_such_limit"), None);
        assert!(unsupported_reason(&["kernel.no_such_limit"], 1).is_some());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a function for several containers in parallel, because starting programs is slow on an emulated processor.

use std::panic::resume_unwind;
use std::thread;

use anyhow::Result;

/// The results are in the order of the items. All end before the first error is returned.
pub fn at_once<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    run: impl Fn(I) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let run = &run;
    thread::scope(|scope| {
        let items = items.into_iter();
        let threads: Vec<_> = items.map(|item| scope.spawn(move || run(item))).collect();
        let results = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        results.collect::<Vec<_>>().into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn results_are_in_order_and_an_error_is_returned() {
        assert_eq!(at_once([1, 2, 3], |n| Ok(n * 2)).unwrap(), [2, 4, 6]);
        let error = at_once([1, 2], |n| match n {
            1 => Ok(()),
            _ => bail!("two"),
        });
        assert_eq!(error.unwrap_err().to_string(), "two");
    }
}

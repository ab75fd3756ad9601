// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the diagnosis is found in an error of any type.

use std::error::Error as StdError;
use std::io;

use crate::diagnosis::{Diagnose, Diagnosis};
use crate::{bus, feed, map, ring};

impl Diagnosis {
    /// Finds the diagnosis in an error of this library, in what caused an error of another type, or in an [`io::Error`] to which one
    /// was converted.
    ///
    /// ```
    /// let error = std::io::Error::from(sluice::ring::SendError::Full);
    /// let diagnosis = sluice::Diagnosis::of(&error).expect("it is an error of this library");
    /// assert_eq!(diagnosis.kind, std::io::ErrorKind::WouldBlock);
    /// println!("{error}; {}", diagnosis.hint);
    /// ```
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        chain(error).find_map(|error| FINDERS.iter().find_map(|find| find(error)))
    }
}

/// The message of an error, its causes, and what to do about it if it is one of this library, in one line.
///
/// ```
/// let text = sluice::explain(&sluice::ring::SendError::Full);
/// assert_eq!(text, "the ring is full; try again later, or use a blocking call");
/// ```
pub fn explain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    for cause in chain(error).skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    match Diagnosis::of(error) {
        Some(diagnosis) => format!("{text}; {}", diagnosis.hint),
        None => text,
    }
}

/// The error and its causes. An [`io::Error`] that was made of another error names only the causes of that as its own.
fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error = *error;
        match error.downcast_ref::<io::Error>() {
            Some(error) => error.get_ref().map(|error| error as _),
            None => error.source(),
        }
    })
}

type Finder = fn(&(dyn StdError + 'static)) -> Option<Diagnosis>;

fn find<E: Diagnose>(error: &(dyn StdError + 'static)) -> Option<Diagnosis> {
    error.downcast_ref::<E>().map(E::diagnose)
}

/// For each type of [`diagnosed!`].
const FINDERS: &[Finder] = &[
    find::<crate::Error>,
    find::<bus::OpenError>,
    find::<bus::SendError>,
    find::<bus::RecvError>,
    find::<bus::CallError>,
    find::<bus::ServeError>,
    find::<map::OpenError>,
    find::<map::ReadError>,
    find::<map::WriteError>,
    find::<map::SyncError>,
    find::<map::WatchError>,
    find::<crate::StoreError>,
    #[cfg(feature = "serde")]
    find::<crate::CodecError>,
    #[cfg(feature = "serde")]
    find::<crate::TypedError<map::ReadError>>,
    #[cfg(feature = "serde")]
    find::<crate::TypedError<map::WriteError>>,
    #[cfg(feature = "serde")]
    find::<crate::TypedError<ring::SendError>>,
    #[cfg(feature = "serde")]
    find::<crate::TypedError<ring::RecvError>>,
    #[cfg(feature = "serde")]
    find::<crate::TypedError<bus::SendError>>,
    #[cfg(feature = "serde")]
    find::<crate::TypedError<bus::RecvError>>,
    find::<ring::SetupError>,
    find::<ring::SendError>,
    find::<ring::RecvError>,
    find::<crate::SystemError>,
    find::<feed::RecvError>,
    find::<feed::SimulatorError>,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn failed() -> Error {
        Error::io("opening", io::Error::from_raw_os_error(libc::EIO))
    }

    #[test]
    fn a_diagnosis_is_found_below_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("no configuration")]
        struct Outer(#[source] io::Error);

        let direct = failed();
        let errors: [&(dyn StdError + 'static); 3] = [
            &direct,
            &io::Error::from(failed()),
            &Outer(io::Error::from(failed())),
        ];
        for error in errors {
            let diagnosis = Diagnosis::of(error).unwrap();
            assert_eq!(diagnosis.raw_os_error, Some(libc::EIO));
            assert!(diagnosis.hint.contains("doctor"), "{diagnosis:?}");
        }
        assert_eq!(Diagnosis::of(&io::Error::other("text")), None);
    }

    #[test]
    fn an_explanation_has_each_part_once() {
        let os = io::Error::from_raw_os_error(libc::EIO);
        let expected = format!("opening failed: {os}; run 'sluice doctor'");
        assert_eq!(explain(&failed()), expected);
        assert_eq!(explain(&io::Error::from(failed())), expected);
        assert_eq!(explain(&io::Error::other("text")), "text");
    }
}

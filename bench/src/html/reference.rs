// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the ratios of the page refer to, which the rows say.

use super::groups::distinct;
use crate::harness::rows::Row;
use crate::reports::durable;

/// It does not wait for the disk, as the reference of its suite does: a ratio of the two shows no advantage.
const WITHOUT_RIVAL: &str = durable::INTERVAL;

/// The rival that a row of Sluice is compared with. None if the reference is Sluice itself, for example with fewer names.
pub fn rival<'a>(row: &Row, rows: &'a [Row]) -> Option<&'a Row> {
    let reference = row.reference(rows)?;
    let has_rival = row.is_sluice() && row.mechanism != WITHOUT_RIVAL;
    (has_rival && !reference.is_sluice()).then_some(reference)
}

/// The name of the references of these rows.
pub fn name<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let to = rows.filter_map(|row| Some(row.ratio.as_ref()?.to.as_str()));
    match distinct(to)[..] {
        [to] => to.into(),
        _ => "the reference".into(),
    }
}

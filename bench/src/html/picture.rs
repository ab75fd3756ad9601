// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice relative to the reference in a few conditions, as a file for pages that cannot contain the report.

use minijinja::context;
use minijinja::value::Serde;

use super::highlights;
use super::page::{STYLE, templates};
use super::series_style::SeriesStyles;
use super::takeaways;
use crate::harness::rows::Results;

const ATTRIBUTES: &str = r#" xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" style="background: var(--paper)""#;

/// None without a result of Sluice relative to another mechanism.
pub fn picture(results: &Results) -> Option<String> {
    let takeaways = takeaways::takeaways(&results.rows);
    let plot = highlights::brief(&takeaways, &SeriesStyles::of(results))?;
    let text = templates().render_named_str(
        "picture.html",
        "{%- from \"plot.html\" import svg -%}{{ svg(plot, attributes, style) }}",
        context! { plot => Serde(plot), attributes => ATTRIBUTES, style => STYLE },
    );
    let text = text.expect("the template suits the data, which tests show");
    Some(format!(
        "<!-- SPDX-License-Identifier: MIT OR Apache-2.0 -->\n{text}\n"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::rounds::Metric;
    use crate::harness::rounds::tests::outcome;
    use crate::harness::rows::rows;
    use sluice_testkit::host::Host;

    fn results(rows: Vec<crate::harness::rows::Row>) -> Results {
        Results {
            host: Host::probe(),
            clock_ns: 40,
            versions: BTreeMap::new(),
            rows,
            date: String::new(),
        }
    }

    #[test]
    fn a_picture_needs_no_other_file() {
        let rows = rows(&outcome(Metric::Latency, &[2.0], &[1.0]));
        let picture = picture(&results(rows)).unwrap();
        assert!(
            picture.contains("xmlns=") && picture.contains("--sluice: #"),
            "{picture}"
        );
        assert!(picture.contains("class=\"name\"") && picture.ends_with("</svg>\n"));
    }

    #[test]
    fn rows_name_their_references_if_these_differ() {
        let pipes = rows(&outcome(Metric::Latency, &[2.0], &[1.0]));
        let mut stores = outcome(Metric::Operations, &[1.0], &[2.0]);
        (stores.suite, stores.reference) = ("map", Some("naive-store".into()));
        let [store, map] = &mut stores.series[..] else {
            panic!("two series");
        };
        (store.subject.mechanism, store.subject.label) = ("naive-store", "naive-store".into());
        (map.subject.mechanism, map.subject.label) = ("sluice-map", "sluice-map".into());
        let alone = picture(&results(pipes.clone())).unwrap();
        assert!(!alone.contains(" vs "), "{alone}");
        let both = picture(&results([pipes, rows(&stores)].concat())).unwrap();
        for expected in ["sluice-pipe vs pipe", "sluice-map vs naive-store"] {
            assert!(both.contains(expected), "{both}");
        }
    }

    #[test]
    fn without_a_comparison_there_is_no_picture() {
        assert!(picture(&results(Vec::new())).is_none());
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! An SVG plot of medians and their rounds, in rows.

use super::drawing::{Axis, Drawing, Element, Path};
use super::series_style::SeriesStyle;

const WIDTH: f64 = 560.0;
const LEFT: f64 = 30.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 4.0;
const BOTTOM: f64 = 50.0;
const STEP: f64 = 13.0;
/// Space above a group, for its label.
const LABEL: f64 = 21.0;

pub struct Interval {
    pub series: usize,
    pub name: String,
    pub style: SeriesStyle,
    pub median: f64,
    pub range: [f64; 2],
    pub noisy: bool,
}

pub struct Group {
    pub label: String,
    pub intervals: Vec<Interval>,
}

pub struct Plot {
    pub title: String,
    pub axis: Axis,
    /// A value that is marked by a line.
    pub level: Option<f64>,
    pub groups: Vec<Group>,
}

impl Plot {
    pub fn draw(&self) -> Drawing {
        let mut top = TOP;
        let mut drawn = Vec::new();
        for group in &self.groups {
            drawn.extend(self.group(group, top));
            top += group.intervals.len() as f64 * STEP + LABEL;
        }
        let mut elements = self.grid(top + 6.0);
        elements.extend(drawn);
        Drawing {
            title: self.title.clone(),
            width: WIDTH,
            height: top + BOTTOM,
            elements,
        }
    }

    fn left_of(&self, value: f64) -> f64 {
        LEFT + self.axis.scale.position(value) * (WIDTH - LEFT - RIGHT)
    }

    fn grid(&self, bottom: f64) -> Vec<Element> {
        let vertical = |class, value: f64| {
            let left = self.left_of(value);
            Element::Path(Path::vertical(class, left, TOP, bottom))
        };
        let label = |&tick: &f64| {
            let at = [self.left_of(tick), bottom + 18.0];
            let text = Element::text("tick", at, "middle", (self.axis.format)(tick));
            [vertical("grid", tick), text]
        };
        let level = self.level.map(|level| vertical("level", level));
        let at = [WIDTH - RIGHT, bottom + 40.0];
        let title = Element::text("axis", at, "end", self.axis.title() + " →");
        let labels = self.axis.scale.ticks.iter().flat_map(label);
        labels.chain(level).chain([title]).collect()
    }

    fn group(&self, group: &Group, top: f64) -> Vec<Element> {
        let text_at = [LEFT + 4.0, top + LABEL - 6.0];
        let mut elements = vec![
            Element::Path(Path::horizontal("grid", top, LEFT, WIDTH - RIGHT)),
            Element::text("name", text_at, "start", &group.label),
        ];
        for (number, interval) in group.intervals.iter().enumerate() {
            let height = top + LABEL + (number as f64 + 0.5) * STEP;
            elements.push(self.interval(interval, height));
        }
        elements
    }

    fn interval(&self, interval: &Interval, height: f64) -> Element {
        let [from, to] = interval.range.map(|end| self.left_of(end));
        let middle = self.left_of(interval.median);
        Element::Series {
            classes: interval.style.classes(),
            number: interval.series,
            name: interval.name.clone(),
            paths: vec![
                Path::horizontal("line bar", height, from, to),
                interval.style.marker(middle, height, interval.noisy),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::svg;
    use super::super::scale::Scale;
    use super::*;

    #[test]
    fn the_plot_is_high_enough_for_all_intervals() {
        let interval = |series| Interval {
            series,
            name: "x".into(),
            style: SeriesStyle::numbered(series),
            median: 2.0,
            range: [1.0, 4.0],
            noisy: false,
        };
        let plot = Plot {
            title: "t".into(),
            axis: Axis {
                scale: Scale::logarithmic([1.0, 4.0].into_iter(), 7).unwrap(),
                label: "times".into(),
                format: |value| value.to_string(),
            },
            level: Some(1.0),
            groups: vec![Group {
                label: "<g>".into(),
                intervals: vec![interval(0), interval(1)],
            }],
        };
        let svg = svg(plot.draw());
        assert_eq!(svg.matches("class=\"mark\"").count(), 2);
        let height = TOP + LABEL + 2.0 * STEP + BOTTOM;
        assert!(svg.contains(&format!("0 0 {WIDTH} {height}")), "{svg}");
        assert!(svg.contains("&lt;g&gt;") && svg.contains("class=\"level\""));
    }
}

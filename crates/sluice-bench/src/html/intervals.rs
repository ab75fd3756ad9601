// SPDX-License-Identifier: MIT OR Apache-2.0
//! An SVG plot of medians and their rounds, in rows.

use super::lines::Axis;
use super::series_style::SeriesStyle;
use super::text::escape;

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
    pub fn svg(&self) -> String {
        let mut top = TOP;
        let mut drawn = String::new();
        for group in &self.groups {
            drawn += &self.group(group, top);
            top += group.intervals.len() as f64 * STEP + LABEL;
        }
        let height = top + BOTTOM;
        format!(
            concat!(
                r#"<svg class="plot" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">"#,
                "{grid}{drawn}</svg>"
            ),
            width = WIDTH,
            height = height,
            title = escape(&self.title),
            grid = self.grid(top + 6.0),
            drawn = drawn,
        )
    }

    fn left_of(&self, value: f64) -> f64 {
        LEFT + self.axis.scale.position(value) * (WIDTH - LEFT - RIGHT)
    }

    fn grid(&self, bottom: f64) -> String {
        let vertical = |class: &str, value: f64| {
            let left = self.left_of(value);
            format!(r#"<path class="{class}" d="M{left:.1} {TOP}V{bottom:.1}"/>"#)
        };
        let label = |&tick: &f64| {
            format!(
                r#"{}<text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                vertical("grid", tick),
                self.left_of(tick),
                bottom + 18.0,
                escape(&(self.axis.format)(tick))
            )
        };
        let labels: String = self.axis.scale.ticks.iter().map(label).collect();
        let level = self.level.map(|level| vertical("level", level));
        format!(
            r#"{labels}{}<text class="axis" x="{}" y="{:.1}" text-anchor="end">{} →</text>"#,
            level.unwrap_or_default(),
            WIDTH - RIGHT,
            bottom + 40.0,
            escape(&self.axis.title())
        )
    }

    fn group(&self, group: &Group, top: f64) -> String {
        let label = format!(
            r#"<path class="grid" d="M{LEFT} {top:.1}H{}"/><text class="name" x="{}" y="{:.1}">{}</text>"#,
            WIDTH - RIGHT,
            LEFT + 4.0,
            top + LABEL - 6.0,
            escape(&group.label)
        );
        let heights = (0..).map(|number| top + LABEL + (number as f64 + 0.5) * STEP);
        let intervals = group.intervals.iter().zip(heights);
        label
            + &intervals
                .map(|(interval, height)| self.interval(interval, height))
                .collect::<String>()
    }

    fn interval(&self, interval: &Interval, height: f64) -> String {
        let [from, to] = interval.range.map(|end| self.left_of(end));
        format!(
            concat!(
                r#"<g class="series {classes}" data-series="{series}"><title>{name}</title>"#,
                r#"<path class="line bar" d="M{from:.1} {height:.1}H{to:.1}"/>{mark}</g>"#
            ),
            classes = interval.style.classes(),
            series = interval.series,
            name = escape(&interval.name),
            from = from,
            height = height,
            to = to,
            mark = interval
                .style
                .marker(self.left_of(interval.median), height, interval.noisy),
        )
    }
}

#[cfg(test)]
mod tests {
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
        let svg = plot.svg();
        assert_eq!(svg.matches("class=\"mark\"").count(), 2);
        let height = TOP + LABEL + 2.0 * STEP + BOTTOM;
        assert!(svg.contains(&format!("0 0 {WIDTH} {height}")), "{svg}");
        assert!(svg.contains("&lt;g&gt;") && svg.contains("class=\"level\""));
    }
}

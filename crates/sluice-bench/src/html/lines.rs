// SPDX-License-Identifier: MIT OR Apache-2.0
//! An SVG plot of lines.

use super::scale::Scale;
use super::series_style::{SeriesRole, SeriesStyle};
use super::text::escape;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 406.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 58.0;

/// The maximum number of labels of a logarithmic axis.
pub const MAX_TICKS_X: usize = 7;
pub const MAX_TICKS_Y: usize = 12;

pub struct Axis {
    pub scale: Scale,
    /// The quantity and its unit.
    pub label: String,
    pub format: fn(f64) -> String,
}

impl Axis {
    /// A logarithmic axis is labelled as such.
    pub fn title(&self) -> String {
        match self.scale.is_logarithmic() {
            true => format!("{}, logarithmic", self.label),
            false => self.label.clone(),
        }
    }
}

pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The smallest and the largest round.
    pub range: Option<[f64; 2]>,
    /// None for the points of a distribution function.
    pub mark: Option<Mark>,
}

#[derive(Clone, Copy)]
pub struct Mark {
    pub noisy: bool,
}

pub struct Line {
    /// The number of the series, the same as in the table.
    pub series: usize,
    pub name: String,
    pub style: SeriesStyle,
    pub points: Vec<Point>,
}

pub struct Plot {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    /// A value of y that is marked by a line.
    pub level: Option<f64>,
    pub lines: Vec<Line>,
}

impl Plot {
    pub fn svg(&self) -> String {
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        // The most important lines are drawn last, above the others.
        lines.sort_by_key(|line| match line.style.role {
            SeriesRole::Other => 0,
            SeriesRole::Reference => 1,
            SeriesRole::Sluice => 2,
        });
        let drawn: String = lines.iter().map(|line| self.line(line)).collect();
        let level = self.level.map(|level| self.level_line(level));
        format!(
            concat!(
                r#"<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">"#,
                "{grid}{labels}{level}{drawn}</svg>"
            ),
            WIDTH = WIDTH,
            HEIGHT = HEIGHT,
            title = escape(&self.title),
            grid = self.grid(),
            labels = self.labels(),
            level = level.unwrap_or_default(),
            drawn = drawn,
        )
    }

    fn left_of(&self, x: f64) -> f64 {
        LEFT + self.x.scale.position(x) * (WIDTH - LEFT - RIGHT)
    }

    fn top_of(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.scale.position(y) * (HEIGHT - TOP - BOTTOM)
    }

    fn grid(&self) -> String {
        let vertical = |class: &str, x: f64| {
            let left = self.left_of(x);
            let bottom = HEIGHT - BOTTOM;
            format!(r#"<path class="{class}" d="M{left:.1} {TOP}V{bottom}"/>"#)
        };
        let horizontal = |class: &str, y: f64| {
            let (top, right) = (self.top_of(y), WIDTH - RIGHT);
            format!(r#"<path class="{class}" d="M{LEFT} {top:.1}H{right}"/>"#)
        };
        let minor_x = self.x.scale.minor_ticks().into_iter();
        let minor_y = self.y.scale.minor_ticks().into_iter();
        let (x, y) = (self.x.scale.ticks.iter(), self.y.scale.ticks.iter());
        minor_x
            .map(|tick| vertical("minor", tick))
            .chain(minor_y.map(|tick| horizontal("minor", tick)))
            .chain(x.map(|&tick| vertical("grid", tick)))
            .chain(y.map(|&tick| horizontal("grid", tick)))
            .collect()
    }

    fn labels(&self) -> String {
        let x_label = |&tick: &f64| {
            let (left, top) = (self.left_of(tick), HEIGHT - BOTTOM + 24.0);
            let text = escape(&(self.x.format)(tick));
            format!(
                r#"<text class="tick" x="{left:.1}" y="{top}" text-anchor="middle">{text}</text>"#
            )
        };
        let y_label = |&tick: &f64| {
            let (left, top) = (LEFT - 7.0, self.top_of(tick) + 4.5);
            let text = escape(&(self.y.format)(tick));
            format!(r#"<text class="tick" x="{left}" y="{top:.1}" text-anchor="end">{text}</text>"#)
        };
        let x_labels: String = self.x.scale.ticks.iter().map(x_label).collect();
        let y_labels: String = self.y.scale.ticks.iter().map(y_label).collect();
        format!(
            concat!(
                "{x_labels}{y_labels}",
                r#"<text class="axis" x="{right}" y="{bottom}" text-anchor="end">{x} →</text>"#,
                r#"<text class="axis" x="4" y="16">↑ {y}</text>"#
            ),
            x_labels = x_labels,
            y_labels = y_labels,
            right = WIDTH - RIGHT,
            bottom = HEIGHT - 9.0,
            x = escape(&self.x.title()),
            y = escape(&self.y.title()),
        )
    }

    fn level_line(&self, level: f64) -> String {
        let (top, right) = (self.top_of(level), WIDTH - RIGHT);
        format!(r#"<path class="level" d="M{LEFT} {top:.1}H{right}"/>"#)
    }

    fn line(&self, line: &Line) -> String {
        let positions: Vec<(f64, f64)> = line
            .points
            .iter()
            .map(|point| (self.left_of(point.x), self.top_of(point.y)))
            .collect();
        let steps: Vec<String> = positions
            .iter()
            .map(|(left, top)| format!("{left:.1} {top:.1}"))
            .collect();
        let marks: String = line
            .points
            .iter()
            .zip(&positions)
            .map(|(point, &(left, top))| self.whisker(point, left) + &mark(line, point, left, top))
            .collect();
        format!(
            concat!(
                r#"<g class="series {classes}" data-series="{series}"><title>{name}</title>"#,
                r#"<path class="line" d="M{steps}"/>{marks}</g>"#
            ),
            classes = line.style.classes(),
            series = line.series,
            name = escape(&line.name),
            steps = steps.join("L"),
            marks = marks,
        )
    }

    fn whisker(&self, point: &Point, left: f64) -> String {
        let Some([least, most]) = point.range else {
            return String::new();
        };
        let (from, to) = (self.top_of(least), self.top_of(most));
        format!(r#"<path class="whisker" d="M{left:.1} {from:.1}V{to:.1}"/>"#)
    }
}

fn mark(line: &Line, point: &Point, left: f64, top: f64) -> String {
    point
        .mark
        .map(|mark| line.style.marker(left, top, mark.noisy))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<Point>) -> Plot {
        let axis = |label: &str| Axis {
            scale: Scale::logarithmic([1.0, 100.0].into_iter(), MAX_TICKS_X).unwrap(),
            label: label.into(),
            format: |value| value.to_string(),
        };
        Plot {
            title: "a <plot>".into(),
            x: axis("size"),
            y: axis("rate"),
            level: None,
            lines: vec![Line {
                series: 3,
                name: "one & only".into(),
                style: SeriesStyle::numbered(0),
                points,
            }],
        }
    }

    #[test]
    fn a_line_has_its_points_ranges_and_marks() {
        let svg = plot(vec![Point {
            x: 1.0,
            y: 100.0,
            range: Some([10.0, 100.0]),
            mark: Some(Mark { noisy: true }),
        }])
        .svg();
        assert!(svg.contains(&format!(r#"<path class="line" d="M{LEFT:.1} {TOP:.1}"/>"#)));
        assert!(svg.contains(r#"class="whisker""#) && svg.contains(r#"class="mark noisy""#));
        assert!(svg.contains("one &amp; only") && svg.contains("a &lt;plot&gt;"));
    }

    #[test]
    fn logarithmic_axes_say_so() {
        let svg = plot(Vec::new()).svg();
        assert!(svg.contains("size, logarithmic") && svg.contains("rate, logarithmic"));
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! An SVG plot of lines.

use super::drawing::{Axis, Drawing, Element, Path};
use super::series_style::{SeriesRole, SeriesStyle};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 406.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 58.0;

/// The maximum number of labels of a logarithmic axis.
pub const MAX_TICKS_X: usize = 7;
pub const MAX_TICKS_Y: usize = 12;

pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The smallest and the largest round.
    pub range: Option<[f64; 2]>,
    pub mark: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A point of a distribution function.
    None,
    Steady,
    Noisy,
}

impl Mark {
    pub fn of(noisy: bool) -> Self {
        match noisy {
            true => Self::Noisy,
            false => Self::Steady,
        }
    }
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
    pub fn draw(&self) -> Drawing {
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        // The most important lines are drawn last, above the others.
        lines.sort_by_key(|line| match line.style.role {
            SeriesRole::Other => 0,
            SeriesRole::Reference => 1,
            SeriesRole::Sluice => 2,
        });
        let mut elements = self.grid();
        elements.extend(self.labels());
        let level = self.level.map(|level| self.across("level", level));
        elements.extend(level);
        elements.extend(lines.iter().map(|line| self.line(line)));
        Drawing {
            title: self.title.clone(),
            width: WIDTH,
            height: HEIGHT,
            elements,
        }
    }

    fn left_of(&self, x: f64) -> f64 {
        LEFT + self.x.scale.position(x) * (WIDTH - LEFT - RIGHT)
    }

    fn top_of(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.scale.position(y) * (HEIGHT - TOP - BOTTOM)
    }

    /// A line at this value of y.
    fn across(&self, class: &'static str, y: f64) -> Element {
        let top = self.top_of(y);
        Element::Path(Path::horizontal(class, top, LEFT, WIDTH - RIGHT))
    }

    fn grid(&self) -> Vec<Element> {
        let vertical = |class, x: f64| {
            let left = self.left_of(x);
            Element::Path(Path::vertical(class, left, TOP, HEIGHT - BOTTOM))
        };
        let (x, y) = (&self.x.scale, &self.y.scale);
        let minor_x = x.minor_ticks().into_iter();
        let minor_y = y.minor_ticks().into_iter();
        minor_x
            .map(|tick| vertical("minor", tick))
            .chain(minor_y.map(|tick| self.across("minor", tick)))
            .chain(x.ticks.iter().map(|&tick| vertical("grid", tick)))
            .chain(y.ticks.iter().map(|&tick| self.across("grid", tick)))
            .collect()
    }

    fn labels(&self) -> Vec<Element> {
        let x_label = |&tick: &f64| {
            let at = [self.left_of(tick), HEIGHT - BOTTOM + 24.0];
            Element::text("tick", at, "middle", (self.x.format)(tick))
        };
        let y_label = |&tick: &f64| {
            let at = [LEFT - 7.0, self.top_of(tick) + 4.5];
            Element::text("tick", at, "end", (self.y.format)(tick))
        };
        let (right, up) = (self.x.title() + " →", format!("↑ {}", self.y.title()));
        let titles = [
            Element::text("axis", [WIDTH - RIGHT, HEIGHT - 9.0], "end", right),
            Element::text("axis", [4.0, 16.0], "start", up),
        ];
        let x_labels = self.x.scale.ticks.iter().map(x_label);
        let y_labels = self.y.scale.ticks.iter().map(y_label);
        x_labels.chain(y_labels).chain(titles).collect()
    }

    fn line(&self, line: &Line) -> Element {
        let mut steps = Vec::new();
        let mut paths = Vec::new();
        for point in &line.points {
            let (left, top) = (self.left_of(point.x), self.top_of(point.y));
            steps.push(format!("{left:.1} {top:.1}"));
            if let Some([least, most]) = point.range {
                let (from, to) = (self.top_of(least), self.top_of(most));
                paths.push(Path::vertical("whisker", left, from, to));
            }
            if point.mark != Mark::None {
                let noisy = point.mark == Mark::Noisy;
                paths.push(line.style.marker(left, top, noisy));
            }
        }
        let d = format!("M{}", steps.join("L"));
        paths.insert(0, Path { class: "line", d });
        Element::Series {
            classes: line.style.classes(),
            number: line.series,
            name: line.name.clone(),
            paths,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::svg;
    use super::super::scale::Scale;
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
        let plot = plot(vec![Point {
            x: 1.0,
            y: 100.0,
            range: Some([10.0, 100.0]),
            mark: Mark::Noisy,
        }]);
        let svg = svg(plot.draw());
        assert!(svg.contains(&format!(r#"<path class="line" d="M{LEFT:.1} {TOP:.1}"/>"#)));
        assert!(svg.contains(r#"class="whisker""#) && svg.contains(r#"class="mark noisy""#));
        assert!(svg.contains("one &amp; only") && svg.contains("a &lt;plot&gt;"));
    }

    #[test]
    fn logarithmic_axes_say_so() {
        let svg = svg(plot(Vec::new()).draw());
        assert!(svg.contains("size, logarithmic") && svg.contains("rate, logarithmic"));
    }
}

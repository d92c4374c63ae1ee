//! Panels with axes and lines, as SVG.

use std::{error::Error, ops::Range};

use plotters::{
    coord::{
        Shift,
        ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
    },
    prelude::*,
};

use crate::throughput::stats::{median, range};

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(super) type Drawn = Result<(), Box<dyn Error>>;

const SIZE: (u32, u32) = (1000, 470);
const TITLE: u32 = 34;
const FOOTER: u32 = 48;
const FONT: &str = "sans-serif";
pub(super) const GREY: RGBColor = RGBColor(110, 110, 110);
const PALE: RGBColor = RGBColor(225, 225, 225);
/// Colours that readers with red-green blindness can distinguish.
pub(super) const COLOURS: [RGBColor; 4] =
    [RGBColor(213, 94, 0), RGBColor(0, 114, 178), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// One line of a panel: positions with all samples, and its appearance.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) colour: RGBColor,
    pub(super) points: Vec<(f64, Vec<f64>)>,
    /// Whether each point has a mark and a bar.
    has_marks: bool,
}

impl Line {
    pub(super) fn new(name: String, colour: RGBColor, points: Vec<(f64, Vec<f64>)>) -> Self {
        Self { name, colour, points, has_marks: true }
    }

    /// A line without marks at its points.
    pub(super) fn plain(name: String, colour: RGBColor, points: Vec<(f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| (x, vec![y])).collect();
        Self { name, colour, points, has_marks: false }
    }
}

#[derive(Clone)]
pub(super) struct Axis {
    pub(super) name: &'static str,
    pub(super) is_log: bool,
    pub(super) ends: (f64, f64),
    pub(super) labels: Vec<f64>,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        if self.is_log { value.log10() } else { value }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let (least, most) = (self.place(self.ends.0), self.place(self.ends.1));
        let part = (self.place(*value) - least) / (most - least);
        from + (part * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.labels.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends.0..self.ends.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let rounded = (value * 100.0).round() / 100.0;
        format!("{rounded}")
    }
}

/// An axis of chain lengths.
pub(super) fn lengths(most: f64) -> Axis {
    let labels = (1..=most as u32).map(f64::from).collect();
    Axis { name: "members of the chain", is_log: false, ends: (0.7, most + 0.3), labels }
}

/// Some round numbers from 0 to about `most`.
pub(super) fn steps(most: f64) -> Vec<f64> {
    let decade = 10f64.powf((most.max(0.001) / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade).into_iter().find(|step| most / step <= 7.0);
    let step = step.unwrap_or(10.0 * decade);
    (0..=(most / step) as usize).map(|n| n as f64 * step).collect()
}

/// A picture: a title, panels side by side, and the origin of the figures below them.
pub(super) fn picture(
    title: &str,
    footer: &[String],
    panels: usize,
    draw: impl FnOnce(&[Area<'_>]) -> Drawn,
) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let text = |size: u32, colour: RGBColor| (FONT, size).into_font().color(&colour);
        root.draw_text(title, &text(18, BLACK), (12, 10))?;
        for (line, words) in footer.iter().enumerate() {
            root.draw_text(words, &text(11, GREY), (12, (SIZE.1 - FOOTER) as i32 + 4 + 14 * line as i32))?;
        }
        let middle = root.margin(TITLE, FOOTER, 4, 8);
        draw(&middle.split_evenly((1, panels.max(1))))?;
        root.present()?;
    }
    Ok(svg)
}

pub(super) fn panel(
    area: &Area<'_>,
    caption: &str,
    x: &Axis,
    y: &Axis,
    lines: &[Line],
    ideal: Option<(&str, [(f64, f64); 2])>,
) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .caption(caption, (FONT, 14).into_font().color(&GREY))
        .margin(6)
        .x_label_area_size(38)
        .y_label_area_size(54)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .bold_line_style(PALE)
        .light_line_style(TRANSPARENT)
        .axis_style(GREY)
        .label_style((FONT, 12))
        .x_desc(x.name)
        .y_desc(y.name)
        .draw()?;
    if let Some((name, ideal)) = ideal {
        let dashes = DashedLineSeries::new(ideal, 6, 5, GREY.stroke_width(1));
        chart.draw_series(dashes)?.label(name).legend(|at| key(at, GREY));
    }
    for Line { name, colour, points, has_marks } in lines {
        let medians: Vec<_> = points.iter().map(|(at, samples)| (*at, median(samples))).collect();
        let colour = *colour;
        chart
            .draw_series(LineSeries::new(medians.iter().copied(), colour.stroke_width(2)))?
            .label(name.as_str())
            .legend(move |at| key(at, colour));
        if !has_marks {
            continue;
        }
        chart.draw_series(medians.iter().map(|&at| Circle::new(at, 3, colour.filled())))?;
        let bars: Vec<_> = points.iter().map(|(at, samples)| (*at, range(samples))).collect();
        let bar = |&(at, (least, most)): &_| PathElement::new([(at, least), (at, most)], colour.stroke_width(1));
        chart.draw_series(bars.iter().map(bar))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(PALE)
        .label_font((FONT, 12))
        .draw()?;
    Ok(())
}

fn key((x, y): (i32, i32), colour: RGBColor) -> PathElement<(i32, i32)> {
    PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greater_is_higher_and_logarithms_are_even() {
        let axis = Axis { name: "", is_log: true, ends: (1.0, 100.0), labels: vec![1.0, 10.0] };
        assert_eq!([1.0, 10.0, 100.0].map(|value| axis.map(&value, (400, 0))), [400, 200, 0]);
        let axis = Axis { is_log: false, ..axis };
        assert_eq!([1.0, 100.0].map(|value| axis.map(&value, (0, 99))), [0, 99]);
        assert_eq!(axis.format_ext(&2.5), "2.5");
    }

    #[test]
    fn steps_are_round_and_few() {
        assert_eq!(steps(118.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(steps(5.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        for most in [0.0, 0.3, 7.0, 49.9, 2500.0] {
            assert!((1..=9).contains(&steps(most).len()), "{most}");
        }
    }
}

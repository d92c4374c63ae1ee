//! Renders screens as an animated SVG picture. Programs without animation show the last screen.

use std::fmt::Write;

use ratatui::{
    buffer::{Buffer, Cell},
    style::{Color, Modifier},
};

/// Width and height of a cell in pixels.
const WIDE: u32 = 8;
const HIGH: u32 = 17;
/// Seconds per screen.
const SHOWN: u32 = 1;

/// Shows one screen after the other, in an endless loop.
pub(super) fn animated(screens: &[Buffer]) -> String {
    let Some(first) = screens.first() else { return String::new() };
    let (width, height) = (u32::from(first.area.width) * WIDE + 16, u32::from(first.area.height) * HIGH + 16);
    let count = screens.len() as u32;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"13\">\n\
         <style>text{{fill:#d8d8d8}}g{{visibility:hidden;animation:s {}s step-end infinite}}\
         g:last-of-type{{visibility:visible}}\
         @keyframes s{{0%{{visibility:visible}}{:.3}%{{visibility:hidden}}}}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#16181d\"/>\n",
        count * SHOWN,
        100.0 / f64::from(count)
    );
    for (at, screen) in screens.iter().enumerate() {
        // A negative delay begins every animation at once, so the still screen isn't shown before its turn. Writing to a
        // string can't fail, here and below.
        let _ = writeln!(svg, "<g style=\"animation-delay:-{}s\">", (count - at as u32) * SHOWN);
        (0..screen.area.height).for_each(|y| line(screen, y, &mut svg));
        svg.push_str("</g>\n");
    }
    svg + "</svg>\n"
}

/// Writes each word, and each run of line-drawing characters, as a text element at its own place. Some renderers, such as
/// librsvg, collapse spaces, ignore `textLength`, and take line-drawing characters from a font of another width.
fn line(screen: &Buffer, y: u16, svg: &mut String) {
    let mut x = 0;
    while x < screen.area.width {
        let first = kind(&screen[(x, y)]);
        let end = (x..screen.area.width).find(|&at| kind(&screen[(at, y)]) != first).unwrap_or(screen.area.width);
        if let Some((look, _)) = first {
            let text: String = (x..end).map(|at| screen[(at, y)].symbol()).collect();
            let (left, down) = (u32::from(x) * WIDE + 8, (u32::from(y) + 1) * HIGH + 4);
            let wide = u32::from(end - x) * WIDE;
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            let _ = writeln!(svg, "<text x=\"{left}\" y=\"{down}\" textLength=\"{wide}\"{look}>{text}</text>");
        }
        x = end;
    }
}

/// The appearance of a cell, and whether its character is a line-drawing one; `None` for a space.
fn kind(cell: &Cell) -> Option<(String, bool)> {
    let symbol = cell.symbol();
    (!symbol.trim().is_empty()).then(|| (style(cell), !symbol.is_ascii()))
}

fn style(cell: &Cell) -> String {
    let fill = match cell.fg {
        Color::Red => " style=\"fill:#ff6b6b\"",
        Color::Green => " style=\"fill:#69db7c\"",
        Color::Blue => " style=\"fill:#74a9ff\"",
        Color::Yellow => " style=\"fill:#ffd43b\"",
        Color::Cyan => " style=\"fill:#66d9e8\"",
        _ => "",
    };
    let weight = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let dim = if cell.modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
    format!("{fill}{weight}{dim}")
}

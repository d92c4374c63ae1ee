//! Draws a cluster: the chains with their arrows, the reads by kind, and recent events.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::Line,
    widgets::{Block, Cell, Paragraph, Row, Table, Widget},
};

use super::snapshot::{Chain, KINDS, Member, Snapshot, reads_per_second, writes_per_second};

const BOX_LINES: u16 = 7;
/// Lines of a chain: the heading, the boxes, the watermark below them and an empty line.
const CHAIN_LINES: u16 = BOX_LINES + 3;
/// Columns between two boxes. The next two constants limit the width of a box.
const ARROW: u16 = 7;
const NARROWEST: u16 = 16;
const WIDEST: u16 = 26;

pub(super) struct Picture<'a> {
    /// The previous snapshot, for rates per second.
    pub(super) before: Option<&'a Snapshot>,
    pub(super) now: &'a Snapshot,
    /// Recent events, the newest last.
    pub(super) events: &'a [String],
    pub(super) trouble: Option<&'a str>,
}

impl Widget for &Picture<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let chains = self.now.chains.iter().map(|chain| Constraint::Length(self.lines(chain, area.width)));
        let reads = Constraint::Length(self.now.nodes.len() as u16 + 3);
        let constraints: Vec<_> = chains.chain([reads, Constraint::Min(3), Constraint::Length(1)]).collect();
        let rooms = Layout::vertical(constraints).split(area);
        for (chain, &room) in self.now.chains.iter().zip(rooms.iter()) {
            self.chain(chain, room, buffer);
        }
        let below = self.now.chains.len();
        self.reads(rooms[below], buffer);
        self.events(rooms[below + 1], buffer);
        let (text, style) = match self.trouble {
            Some(why) => (format!(" {why}"), Style::new().fg(Color::Red)),
            None => (format!(" {} s · q quits", self.now.at.as_secs()), dim()),
        };
        Paragraph::new(text).style(style).render(rooms[below + 2], buffer);
    }
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// The width of a box; `None` if the boxes don't fit next to each other.
fn box_width(members: usize, width: u16) -> Option<u16> {
    let members = u16::try_from(members.max(1)).ok()?;
    let left = width.checked_sub(2 + ARROW.checked_mul(members - 1)?)?;
    Some(left / members).filter(|&each| each >= NARROWEST).map(|each| each.min(WIDEST))
}

impl Picture<'_> {
    fn lines(&self, chain: &Chain, width: u16) -> u16 {
        match box_width(chain.members.len(), width) {
            Some(_) => CHAIN_LINES,
            None => chain.members.len() as u16 + 2,
        }
    }

    fn chain(&self, chain: &Chain, area: Rect, buffer: &mut Buffer) {
        let writes = writes_per_second(self.before, self.now, chain);
        let heading = Line::styled(
            format!(
                " chain {} · epoch {} · {} copies · {} writes/s",
                chain.number,
                chain.epoch,
                chain.copies,
                writes.map_or_else(|| "?".to_owned(), |writes| writes.to_string())
            ),
            bold(),
        );
        heading.render(Rect { height: 1.min(area.height), ..area }, buffer);
        let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area }.intersection(area);
        match box_width(chain.members.len(), area.width) {
            Some(width) => boxes(chain, width, writes.is_some_and(|writes| writes > 0), below, buffer),
            None => list(chain, below, buffer),
        }
    }

    fn reads(&self, area: Rect, buffer: &mut Buffer) {
        let shown = |rate: Option<u64>| rate.map_or_else(|| "?".to_owned(), |rate| rate.to_string());
        let row = |node| {
            let rates = reads_per_second(self.before, self.now, node).map(|rate| Cell::from(shown(rate)));
            Row::new([Cell::from(node.name.clone()), Cell::from(node.role.clone())].into_iter().chain(rates))
        };
        let heads = ["node", "role"].into_iter().chain(KINDS);
        let widths = [Constraint::Length(21), Constraint::Length(8)].into_iter();
        let widths = widths.chain(KINDS.map(|kind| Constraint::Length(kind.len() as u16)));
        Table::new(self.now.nodes.iter().map(row), widths)
            .header(Row::new(heads).style(dim()))
            .block(Block::new().title(Line::styled(" reads per second", bold())).padding(left()))
            .render(area, buffer);
    }

    fn events(&self, area: Rect, buffer: &mut Buffer) {
        let room = area.height.saturating_sub(1) as usize;
        let latest = &self.events[self.events.len().saturating_sub(room)..];
        let lines: Vec<_> = latest.iter().map(|event| Line::raw(event.as_str())).collect();
        Paragraph::new(lines)
            .block(Block::new().title(Line::styled(" events", bold())).padding(left()))
            .render(area, buffer);
    }
}

fn left() -> ratatui::widgets::Padding {
    ratatui::widgets::Padding::left(1)
}

/// Boxes from head to tail, with updates flowing to the right and the watermark back to the left.
fn boxes(chain: &Chain, width: u16, moves: bool, area: Rect, buffer: &mut Buffer) {
    let mut x = area.x + 1;
    for (at, member) in chain.members.iter().enumerate() {
        let room = Rect { x, y: area.y, width, height: BOX_LINES }.intersection(area);
        member_box(member, room, buffer);
        if let Some(next) = chain.members.get(at + 1) {
            let room = Rect { x: x + width, y: area.y, width: ARROW, height: BOX_LINES }.intersection(area);
            arrow(member, next, moves, room, buffer);
        }
        x += width + ARROW;
    }
    let line = Rect { y: area.y + BOX_LINES, height: 1, ..area }.intersection(area);
    if chain.members.len() > 1 && !line.is_empty() {
        let serving = chain.members.iter().filter(|member| member.role != "syncing").count().max(1) as u16;
        let whole = (width + ARROW) * (serving - 1) + width - 2;
        let watermark =
            chain.members.iter().filter_map(|member| member.state.as_ref().ok()).map(|state| state.watermark);
        let text = format!(" watermark {} ", watermark.max().unwrap_or_default());
        let text = format!("◀{text:─^0$}", whole.saturating_sub(1) as usize);
        let width = line.width.saturating_sub(2) as usize;
        buffer.set_stringn(line.x + 2, line.y, text, width, Style::new().fg(Color::Cyan));
    }
}

fn color(member: &Member) -> Color {
    match (&member.state, member.role.as_str()) {
        (Err(_), _) => Color::Red,
        (Ok(state), _) if state.halted.is_some() || !state.open => Color::Red,
        (_, "head") => Color::Green,
        (_, "tail") => Color::Blue,
        (_, "syncing") => Color::Yellow,
        _ => Color::Reset,
    }
}

fn member_box(member: &Member, area: Rect, buffer: &mut Buffer) {
    let lines = match &member.state {
        Ok(state) => {
            let lease = state.lease.map_or_else(|| "endless".to_owned(), |left| format!("{left} ms"));
            let note = match &state.halted {
                Some(_) => "halted".to_owned(),
                None if state.unreplicated > 0 => format!("unrepl. {}", state.unreplicated),
                None if !state.open => "not open".to_owned(),
                None => String::new(),
            };
            vec![
                Line::styled(member.role.clone(), bold()),
                Line::raw(format!("newest {}", state.last)),
                Line::raw(format!("dirty  {}", state.dirty)),
                Line::raw(format!("lease  {lease}")),
                Line::styled(note, Style::new().fg(Color::Red)),
            ]
        }
        Err(why) => vec![Line::styled(member.role.clone(), bold()), Line::raw(why.as_str())],
    };
    let frame = Block::bordered().title(format!(" {} ", member.name)).border_style(color(member));
    Paragraph::new(lines).block(frame).render(area, buffer);
}

/// The next member's lag behind this one, and a dot that moves with the updates.
fn arrow(from: &Member, to: &Member, moves: bool, area: Rect, buffer: &mut Buffer) {
    let last = |member: &Member| member.state.as_ref().ok().map(|state| state.last);
    let behind = last(from).zip(last(to)).map(|(from, to)| from.saturating_sub(to));
    if area.height < 4 {
        return;
    }
    let mut line: Vec<char> = "─────▶".chars().collect();
    if moves {
        line[last(from).unwrap_or_default() as usize % 5] = '●';
    }
    let line: String = line.into_iter().collect();
    buffer.set_stringn(area.x, area.y + 2, line, area.width as usize, Style::new());
    let width = area.width.saturating_sub(1) as usize;
    buffer.set_stringn(area.x, area.y + 1, "lag", width, dim());
    buffer.set_stringn(area.x, area.y + 3, behind.map_or_else(|| "?".to_owned(), short), width, dim());
}

/// A number in at most six columns.
fn short(number: u64) -> String {
    match number {
        0..1_000_000 => number.to_string(),
        1_000_000..1_000_000_000 => format!("{} M", number / 1_000_000),
        _ => "> 10⁹".to_owned(),
    }
}

/// The chain as a list, when the boxes don't fit.
fn list(chain: &Chain, area: Rect, buffer: &mut Buffer) {
    for (member, y) in chain.members.iter().zip(area.y..area.bottom()) {
        let text = match &member.state {
            Ok(state) => {
                let lag = state.lag.map_or_else(|| "?".to_owned(), |lag| lag.to_string());
                format!("▼ {} {} · newest {} · lag {lag} · dirty {}", member.name, member.role, state.last, state.dirty)
            }
            Err(why) => format!("▼ {} {} · {why}", member.name, member.role),
        };
        let style = Style::new().fg(color(member));
        buffer.set_stringn(area.x + 1, y, text, area.width.saturating_sub(1) as usize, style);
    }
}

//! `ctl status --watch`: takes snapshots repeatedly. On a terminal it draws them; otherwise it prints a block for each
//! change.

use std::{
    collections::VecDeque,
    fmt::Write,
    io::{self, IsTerminal},
    time::Duration,
};

use artillery_ddata::Client;
use artillery_programs::exit::{self, Failure};
use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{events, gather, picture::Picture, snapshot::Snapshot};
use crate::output::Output;

const PERIOD: Duration = Duration::from_millis(500);
const KEYS: Duration = Duration::from_millis(50);
/// Maximum number of events to keep: more than any terminal shows.
const EVENTS: usize = 200;

/// Runs until it is stopped, or standard output is closed.
pub(super) async fn run(client: &Client, timeout: Duration, output: Output) -> Result<u8, Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        draw(client, timeout).await
    } else {
        print(client, timeout, output).await
    }
}

/// The terminal, restored on drop; on a panic ratatui restores it.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> Result<Self, Failure> {
        ratatui::try_init()
            .map(Self)
            .map_err(|error| Failure::failed(format!("could not draw on the terminal: {error}")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

struct WatchState {
    began: Instant,
    before: Option<Snapshot>,
    now: Snapshot,
    events: VecDeque<String>,
    trouble: Option<String>,
}

impl WatchState {
    fn new() -> Self {
        let began = Instant::now();
        Self { began, before: None, now: Snapshot::default(), events: VecDeque::new(), trouble: None }
    }

    fn take(&mut self, whole: &gather::ClusterReport) -> Vec<String> {
        let now = Snapshot::of(whole, self.began.elapsed());
        let before = std::mem::replace(&mut self.now, now);
        self.trouble = None;
        if before.chains.is_empty() {
            return vec![format!("cluster {}", whole.routing.cluster)];
        }
        let changes = events::between(&before, &self.now);
        self.before = Some(before);
        let seconds = self.now.at.as_secs();
        self.events.extend(changes.iter().map(|change| format!("{seconds:>4} s  {change}")));
        self.events.drain(..self.events.len().saturating_sub(EVENTS));
        changes
    }

    fn show(&mut self, screen: &mut Screen) -> Result<(), Failure> {
        let picture = Picture {
            before: self.before.as_ref(),
            now: &self.now,
            events: self.events.make_contiguous(),
            trouble: self.trouble.as_deref(),
        };
        let drawn = screen.0.draw(|frame| frame.render_widget(&picture, frame.area()));
        drawn.map(drop).map_err(Failure::failed)
    }
}

async fn draw(client: &Client, timeout: Duration) -> Result<u8, Failure> {
    // The first snapshot is taken before the terminal is initialized: if it fails, the error is printed as usual.
    let mut seen = WatchState::new();
    seen.take(&gather::gather(client, timeout).await?);
    let mut screen = Screen::take()?;
    seen.show(&mut screen)?;
    let (mut looks, mut keys) = (interval(PERIOD), interval(KEYS));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let look = async {
            looks.tick().await;
            gather::gather(client, timeout).await
        };
        tokio::pin!(look);
        let looked = loop {
            tokio::select! {
                looked = &mut look => break looked,
                _ = keys.tick() => match key()? {
                    Key::End => return Ok(exit::DONE),
                    Key::Redraw => seen.show(&mut screen)?,
                    Key::Nothing => {}
                },
            }
        };
        match looked {
            Ok(whole) => drop(seen.take(&whole)),
            Err(failure) => seen.trouble = Some(failure.to_string()),
        }
        seen.show(&mut screen)?;
    }
}

enum Key {
    End,
    Redraw,
    Nothing,
}

/// Reads the pending terminal events without waiting, and returns the resulting command.
fn key() -> Result<Key, Failure> {
    let mut key = Key::Nothing;
    while event::poll(Duration::ZERO).map_err(Failure::failed)? {
        match event::read().map_err(Failure::failed)? {
            Event::Key(pressed) if pressed.kind != KeyEventKind::Release => {
                let interrupted =
                    pressed.modifiers.contains(KeyModifiers::CONTROL) && pressed.code == KeyCode::Char('c');
                if interrupted || matches!(pressed.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(Key::End);
                }
            }
            Event::Resize(..) => key = Key::Redraw,
            _ => {}
        }
    }
    Ok(key)
}

async fn print(client: &Client, timeout: Duration, output: Output) -> Result<u8, Failure> {
    let mut seen = WatchState::new();
    let mut looks = interval(PERIOD);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        match gather::gather(client, timeout).await {
            Ok(whole) => {
                let changes = seen.take(&whole);
                if !changes.is_empty() && !output.bytes(block(&seen.now, &changes).as_bytes()) {
                    return Ok(exit::DONE);
                }
            }
            Err(failure) => {
                let failure = failure.to_string();
                // A persistent failure is reported once.
                if seen.trouble.as_ref() != Some(&failure) {
                    eprintln!("{failure}");
                }
                seen.trouble = Some(failure);
            }
        }
    }
}

fn block(now: &Snapshot, changes: &[String]) -> String {
    let mut text = changes.join("\n");
    for chain in &now.chains {
        // Writing to a string can't fail.
        let _ = write!(text, "\n  {}", Snapshot::line(chain));
    }
    text + "\n"
}

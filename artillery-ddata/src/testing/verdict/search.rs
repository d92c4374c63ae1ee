//! Searches for an order of the writes of one key that explains every answer about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::{
    Makers,
    actions::apply,
    content::Content,
    passing::pass,
    points::{Hidden, KnownKey, Point, What},
    scripts,
};
use crate::{Version, api::Write, rpc::observer::book::text};

/// The maximum number of states that a search visits for one key.
const BUDGET: usize = 200_000;
/// The version of a hidden write while its effect is computed. No condition can name it: it didn't exist when the write
/// was requested.
const HIDDEN: Version = Version::new(u64::MAX, u64::MAX);

/// An order of the writes up to a point.
#[derive(Clone)]
struct SearchState {
    at: usize,
    used: Rc<BTreeSet<usize>>,
    content: Content,
    /// The hidden writes that made observed versions, the last one first.
    made: Option<Rc<Made>>,
    /// The writes in `made` that change other keys too.
    shared: Rc<Shared>,
}

/// By version, the hidden write that made it, if that write changes other keys too.
type Shared = BTreeMap<Version, usize>;

struct Made {
    version: Version,
    entry: usize,
    before: Option<Rc<Made>>,
}

/// The parts of a state that determine what may follow: states with equal parts are visited once.
type MetState = (usize, Rc<BTreeSet<usize>>, Content, Rc<Shared>);

/// A search that yields the orders that explain a key, one after another.
pub(super) struct Search<'a> {
    known: &'a KnownKey<'a>,
    /// The makers of keys that are already explained: a write made the same version of all its keys.
    makers: Makers,
    states: Vec<SearchState>,
    met: BTreeSet<MetState>,
    /// Orders that were yielded, by the part that matters to other keys.
    found: BTreeSet<Rc<Shared>>,
    /// Whether some script may have left more contents than were tried.
    undecided: bool,
    /// The furthest point at which an order got stuck, and the reason.
    furthest: Option<(usize, String)>,
}

impl<'a> Search<'a> {
    pub(super) fn new(known: &'a KnownKey<'a>, makers: Makers) -> Self {
        let content = Content::default();
        let start = SearchState { at: 0, used: Rc::default(), content, made: None, shared: Rc::default() };
        let (met, found) = (BTreeSet::new(), BTreeSet::new());
        Self { known, makers, states: vec![start], met, found, undecided: false, furthest: None }
    }

    /// The makers of the versions of this key and of earlier keys. Each call yields another explanation. `None`: no
    /// other explanation exists, or the budget is used up.
    pub(super) fn next(&mut self) -> Option<Makers> {
        while let Some(state) = self.states.pop() {
            let Some(point) = self.known.points.get(state.at) else {
                if self.found.insert(state.shared.clone()) {
                    return Some(self.makers_of(&state));
                }
                continue;
            };
            let key = (state.at, state.used.clone(), state.content.clone(), state.shared.clone());
            if self.met.len() < BUDGET && self.met.insert(key) {
                self.step(&state, point);
            }
        }
        None
    }

    pub(super) fn why(&self) -> String {
        let name = text(&self.known.key);
        if self.met.len() >= BUDGET || self.undecided {
            return format!("key {name:?}: not decided, too many writes of unknown outcome");
        }
        let (at, why) = self.furthest.clone().unwrap_or_default();
        let version = self.known.points.get(at).map_or(Version::NONE, |point| point.version);
        format!("key {name:?}: no order of the writes explains the value seen at version {version}: {why}")
    }

    fn step(&mut self, state: &SearchState, point: &Point<'_>) {
        // The state pushed last is visited first: push the states that pass this point last.
        if state.content.expires.is_some_and(|expires| expires <= point.known_by) {
            self.states.push(SearchState { content: Content::default(), ..state.clone() });
        }
        for index in self.candidates(point, state) {
            let after = self.with(state, index, None);
            self.states.extend(after);
        }
        match &point.what {
            What::Somebody => {
                let before = self.states.len();
                for index in self.candidates(point, state) {
                    let after = self.with(state, index, Some(point));
                    self.states.extend(after);
                }
                if self.states.len() == before {
                    self.stuck(state.at, || format!("{:?} was seen, which nobody wrote there", point.seen));
                }
            }
            _ => match pass(point, &self.known.key, &state.content, self.known.clock) {
                Ok(contents) => {
                    self.undecided |= contents.len() + 1 >= scripts::MAX_CONTENTS;
                    let next = |content| SearchState { at: state.at + 1, content, ..state.clone() };
                    self.states.extend(contents.into_iter().map(next));
                }
                Err(why) => self.stuck(state.at, || why),
            },
        }
    }

    /// The states after a hidden write, which made the version of `point` if one is given. There are several if the
    /// write is a script, since it isn't known which of its groups failed.
    fn with(&mut self, state: &SearchState, index: usize, point: Option<&Point<'_>>) -> Vec<SearchState> {
        let Hidden { entry, is_shared, version, .. } = self.known.hidden[index];
        let of_another = self.makers.iter().find(|(_, maker)| **maker == entry).map(|((_, version), _)| *version);
        let elsewhere = version.or(of_another);
        let is_anothers = |version| self.makers.iter().any(|((_, made), maker)| *made == version && *maker != entry);
        if elsewhere.is_some_and(|version| !self.may_be(version, state, point))
            || point.is_some_and(|point| is_anothers(point.version))
        {
            return Vec::new();
        }
        let contents = self.effects(index, &state.content);
        let mut used = BTreeSet::clone(&state.used);
        used.insert(index);
        let used = Rc::new(used);
        let after = |content: Content| {
            let used = used.clone();
            let Some(point) = point else {
                return Some(SearchState { used, content: Content { version, ..content }, ..state.clone() });
            };
            let content = content.shown(point.seen).filter(|content| content.value.is_some())?;
            let made = Some(Rc::new(Made { version: point.version, entry, before: state.made.clone() }));
            let mut shared = state.shared.clone();
            if is_shared {
                Rc::make_mut(&mut shared).insert(point.version, entry);
            }
            let content = Content { version: Some(point.version), ..content };
            Some(SearchState { at: state.at + 1, used, content, made, shared })
        };
        contents.into_iter().filter_map(after).collect()
    }

    /// The possible contents after a hidden write, if it changes the key.
    fn effects(&mut self, index: usize, content: &Content) -> Vec<Content> {
        let Hidden { write, began, .. } = self.known.hidden[index];
        let terms = self.known.clock.terms(HIDDEN, began);
        let mut contents = match write {
            Write::Script(script) => scripts::perhaps(script, &self.known.key, content, &terms),
            write => apply(write, &self.known.key, content, &terms),
        };
        contents.retain(|after| after.version == Some(HIDDEN));
        self.undecided |= contents.len() + 1 >= scripts::MAX_CONTENTS;
        contents
    }

    /// Whether a write of this version can be placed next: at `point`, if one is given, else between two points.
    fn may_be(&self, version: Version, state: &SearchState, point: Option<&Point<'_>>) -> bool {
        match point {
            Some(point) => version == point.version,
            None => {
                let points = &self.known.points;
                let before = state.at.checked_sub(1).and_then(|at| points.get(at));
                before.is_none_or(|before| before.version < version)
                    && points.get(state.at).is_none_or(|next| version < next.version)
            }
        }
    }

    fn makers_of(&self, state: &SearchState) -> Makers {
        let mut makers = self.makers.clone();
        let mut next = state.made.clone();
        while let Some(made) = next {
            makers.insert((self.known.key.clone(), made.version), made.entry);
            next = made.before.clone();
        }
        makers
    }

    /// The unused hidden writes that may be placed before or at a point: their calls precede the first answer that
    /// showed this point or a later one.
    fn candidates(&self, point: &Point<'_>, state: &SearchState) -> Vec<usize> {
        let may = |(index, hidden): (usize, &Hidden<'_>)| {
            (hidden.called < point.known_by && !state.used.contains(&index)).then_some(index)
        };
        self.known.hidden.iter().enumerate().filter_map(may).collect()
    }

    fn stuck(&mut self, at: usize, why: impl FnOnce() -> String) {
        if self.furthest.as_ref().is_none_or(|(furthest, _)| *furthest < at) {
            self.furthest = Some((at, why()));
        }
    }
}

//! Links between nodes: delay, loss, duplication, reordering, one-way cuts, and connections that break and recover.

use crate::{
    faults::Fault,
    rng::{Concern, Rng},
};

/// The behaviour of links without faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Minimum delay of a frame, in nanoseconds.
    pub delay: u64,
    /// Maximum additional delay, in nanoseconds.
    pub jitter: u64,
    /// Bytes in flight on one link before its sender must wait.
    pub room: usize,
    /// Whether some links are several times slower than others.
    pub uneven: bool,
    /// Whether frames of a broken connection may still arrive instead of being lost.
    pub nasty: bool,
}

/// One copy of a frame in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flight {
    /// When it arrives, or would have arrived if it is lost.
    pub at: u64,
    /// The state number of the connection that carries it.
    pub generation: u64,
    /// Whether it never arrives.
    pub lost: bool,
    /// The bytes of the link's capacity that it occupies.
    pub counted: usize,
}

/// How many times each fault had an effect.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Effects {
    /// Frames, requests and replies lost by chance.
    pub lost: u64,
    /// Frames sent twice.
    pub duplicated: u64,
    /// Frames held back so that later ones could overtake them.
    pub reordered: u64,
    /// Frames, requests and replies delayed by [`Fault::Delay`].
    pub delayed: u64,
    /// Frames dropped by a cut.
    pub cut: u64,
    /// Connections broken.
    pub broken: u64,
    /// Frames from or to a far node ([`Fault::Far`]).
    pub far: u64,
}

#[derive(Debug)]
struct Link {
    rng: Rng,
    /// Factor on the delay of the profile.
    length: u64,
    /// Additional factor of a [`Fault::Far`].
    far: u64,
    cut: bool,
    under_way: usize,
    latest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    up: bool,
    generation: u64,
}

/// All links of a world.
#[derive(Debug)]
pub struct Network {
    nodes: usize,
    profile: Profile,
    links: Vec<Link>,
    connections: Vec<Connection>,
    client_links: Vec<Rng>,
    loss: u32,
    duplication: u32,
    reorder: u32,
    factor: u64,
    undialable: Vec<bool>,
    /// The effects of faults up to now.
    pub effects: Effects,
}

impl Network {
    /// Links among `nodes` nodes and from `clients` clients. All connections are down.
    pub fn new(seed: u64, nodes: usize, clients: usize, profile: Profile) -> Self {
        let links = (0..nodes * nodes)
            .map(|n| {
                let mut rng = Rng::new(seed, Concern::Link { from: n / nodes, to: n % nodes });
                let length = if profile.uneven { rng.pick(&[1, 1, 2, 8]) } else { 1 };
                Link { rng, length, far: 1, cut: false, under_way: 0, latest: 0 }
            })
            .collect();
        Self {
            nodes,
            profile,
            links,
            connections: vec![Connection { up: false, generation: 0 }; nodes * nodes],
            client_links: (0..clients).map(|client| Rng::new(seed, Concern::ClientLink(client))).collect(),
            loss: 0,
            duplication: 0,
            reorder: 0,
            factor: 1,
            undialable: vec![false; nodes],
            effects: Effects::default(),
        }
    }

    /// Replaces the faults in force by `faults`. Connections are changed by [`set_up`](Self::set_up).
    pub fn set_faults(&mut self, faults: impl Iterator<Item = Fault>) {
        (self.loss, self.duplication, self.reorder, self.factor) = (0, 0, 0, 1);
        self.links.iter_mut().for_each(|link| (link.cut, link.far) = (false, 1));
        self.undialable.fill(false);
        for fault in faults {
            match fault {
                Fault::Loss(permille) => self.loss = self.loss.max(permille),
                Fault::Duplication(permille) => self.duplication = self.duplication.max(permille),
                Fault::Reorder(permille) => self.reorder = self.reorder.max(permille),
                Fault::Delay(factor) => self.factor = self.factor.max(factor),
                Fault::Cut(from, to) => self.links[from * self.nodes + to].cut = true,
                Fault::Isolate(node) => {
                    for other in 0..self.nodes {
                        self.links[node * self.nodes + other].cut = true;
                        self.links[other * self.nodes + node].cut = true;
                    }
                }
                Fault::Undialable(node) => self.undialable[node] = true,
                Fault::Far(node, factor) => {
                    for other in 0..self.nodes {
                        self.links[node * self.nodes + other].far = factor;
                        self.links[other * self.nodes + node].far = factor;
                    }
                }
                Fault::Break(..)
                | Fault::Slow(..)
                | Fault::SlowDisk(..)
                | Fault::Crash(_)
                | Fault::Restart(_)
                | Fault::Replace(_)
                | Fault::Pause(_)
                | Fault::Play(_)
                | Fault::Order(_)
                | Fault::Drain(_)
                | Fault::Leave(_)
                | Fault::Outage(_)
                | Fault::Young(_)
                | Fault::Halt(_) => {}
            }
        }
    }

    /// Whether the connection of `a` and `b` is up, and the number of its current state.
    pub fn connection(&self, a: usize, b: usize) -> (bool, u64) {
        let Connection { up, generation } = self.connections[self.pair(a, b)];
        (up, generation)
    }

    /// Breaks or restores a connection. Returns the number of its new state, or `None` if nothing changed.
    pub fn set_up(&mut self, a: usize, b: usize, up: bool) -> Option<u64> {
        let pair = self.pair(a, b);
        let connection = &mut self.connections[pair];
        if connection.up == up {
            return None;
        }
        connection.up = up;
        connection.generation += 1;
        let generation = connection.generation;
        if !up {
            self.effects.broken += 1;
        }
        for (from, to) in [(a, b), (b, a)] {
            let link = &mut self.links[from * self.nodes + to];
            link.under_way = 0;
            link.latest = 0;
        }
        Some(generation)
    }

    /// Whether the connection of `a` and `b` is up and cut in neither direction.
    pub fn joins(&self, a: usize, b: usize) -> bool {
        self.connections[self.pair(a, b)].up && !self.is_cut(a, b)
    }

    /// Whether `from` gets an answer from `to` on a connection that `from` dialled.
    pub fn calls(&self, from: usize, to: usize) -> bool {
        self.joins(from, to) && !self.undialable[to]
    }

    /// Whether no other node can dial this one.
    pub fn is_undialable(&self, node: usize) -> bool {
        self.undialable[node]
    }

    /// Whether frames between `a` and `b` are dropped in at least one direction, connected or not.
    pub fn is_cut(&self, a: usize, b: usize) -> bool {
        let cut = |from: usize, to: usize| self.links[from * self.nodes + to].cut;
        cut(a, b) || cut(b, a)
    }

    /// Bytes that `from` may send to `to` now.
    pub fn room(&self, from: usize, to: usize) -> usize {
        self.profile.room.saturating_sub(self.links[from * self.nodes + to].under_way)
    }

    /// Sends `bytes` from `from` to `to` at `now`. `generation` is the connection state that `from` knows of. Returns
    /// the frame's flight and, if the frame is duplicated, that of its copy.
    pub fn send(
        &mut self,
        now: u64,
        from: usize,
        to: usize,
        generation: u64,
        bytes: usize,
    ) -> (Flight, Option<Flight>) {
        let nowhere = self.undialable[to];
        self.carry(now, from, to, generation, bytes, nowhere)
    }

    /// Sends an answer. It travels on the connection that the other side dialled.
    pub fn answer(&mut self, now: u64, from: usize, to: usize, generation: u64) -> (Flight, Option<Flight>) {
        let nowhere = self.undialable[from];
        self.carry(now, from, to, generation, 0, nowhere)
    }

    fn carry(
        &mut self,
        now: u64,
        from: usize,
        to: usize,
        generation: u64,
        bytes: usize,
        nowhere: bool,
    ) -> (Flight, Option<Flight>) {
        let profile = self.profile;
        let Connection { up, generation: current } = self.connections[self.pair(from, to)];
        let link = &mut self.links[from * self.nodes + to];
        // The number of draws is constant, so that a fault does not shift later draws.
        let jitter = link.rng.below(profile.jitter + 1);
        let (lost, doubled, held) =
            (link.rng.chance(self.loss), link.rng.chance(self.duplication), link.rng.chance(self.reorder));
        let (hold, echo) = (link.rng.below(20), link.rng.below(20));

        let step = (profile.delay * link.length + jitter) * self.factor * link.far;
        let mut at = now + step;
        if held {
            at += hold * (profile.delay + profile.jitter);
            self.effects.reordered += 1;
        } else {
            // A stream preserves order unless a fault reorders it.
            at = at.max(link.latest);
            link.latest = at;
        }
        let nowhere = nowhere || !up || generation != current;
        self.effects.delayed += u64::from(self.factor > 1);
        self.effects.far += u64::from(link.far > 1);
        self.effects.cut += u64::from(link.cut);
        self.effects.lost += u64::from(lost);
        link.under_way += bytes;
        let first = Flight { at, generation: current, lost: lost || link.cut || nowhere, counted: bytes };
        let second = (doubled && !link.cut && !nowhere).then(|| {
            self.effects.duplicated += 1;
            Flight { at: at + echo * (profile.delay + profile.jitter), generation: current, lost: false, counted: 0 }
        });
        (first, second)
    }

    /// Whether a copy that is due is delivered.
    pub fn arrives(&self, from: usize, to: usize, flight: Flight) -> bool {
        let current = self.connections[self.pair(from, to)].generation == flight.generation;
        !flight.lost && (current || self.profile.nasty)
    }

    /// Releases the capacity that a copy occupied, once it was received or lost.
    pub fn release(&mut self, from: usize, to: usize, flight: Flight) {
        if flight.counted > 0 && self.connections[self.pair(from, to)].generation == flight.generation {
            let link = &mut self.links[from * self.nodes + to];
            link.under_way = link.under_way.saturating_sub(flight.counted);
        }
    }

    /// The delay of a client's request or reply. `None`: it is lost.
    pub fn client_delay(&mut self, client: usize) -> Option<u64> {
        let rng = &mut self.client_links[client];
        let jitter = rng.below(self.profile.delay + self.profile.jitter + 1);
        let lost = rng.chance(self.loss / 4);
        self.effects.delayed += u64::from(self.factor > 1);
        self.effects.lost += u64::from(lost);
        (!lost).then_some((self.profile.delay / 2 + jitter) * self.factor)
    }

    fn pair(&self, a: usize, b: usize) -> usize {
        a.min(b) * self.nodes + a.max(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        Network::new(1, 2, 1, Profile { delay: 100, jitter: 50, room: 1000, uneven: false, nasty: false })
    }

    #[test]
    fn good_link_keeps_order_and_bounds_bytes_under_way() {
        let mut network = network();
        let generation = network.set_up(0, 1, true).unwrap();
        let mut latest = 0;
        for now in 0..50 {
            let (flight, copy) = network.send(now, 0, 1, generation, 10);
            assert!(!flight.lost && copy.is_none() && flight.at >= latest && flight.at >= now + 100);
            latest = flight.at;
        }
        assert_eq!(network.room(0, 1), 500);
        let flight = Flight { at: latest, generation, lost: false, counted: 10 };
        assert!(network.arrives(0, 1, flight));
        network.release(0, 1, flight);
        assert_eq!(network.room(0, 1), 510);
        assert_eq!(network.room(1, 0), 1000, "each direction is a link of its own");
    }

    #[test]
    fn a_broken_connection_loses_what_is_under_way() {
        let mut network = network();
        let generation = network.set_up(0, 1, true).unwrap();
        let (flight, _) = network.send(0, 0, 1, generation, 10);
        assert_eq!(network.set_up(1, 0, false), Some(generation + 1));
        assert_eq!(network.set_up(1, 0, false), None);
        assert!(!network.arrives(0, 1, flight));
        assert!(network.send(0, 0, 1, generation, 10).0.lost);
        let again = network.set_up(0, 1, true).unwrap();
        assert!(network.send(0, 0, 1, generation, 10).0.lost, "the sender has not noticed the break yet");
        assert!(!network.send(0, 0, 1, again, 10).0.lost);
        network.profile.nasty = true;
        assert!(network.arrives(0, 1, flight), "a late frame of the broken connection arrives");
    }

    #[test]
    fn each_fault_has_its_effect() {
        let mut network = network();
        let generation = network.set_up(0, 1, true).unwrap();
        let all = [Fault::Loss(500), Fault::Duplication(500), Fault::Reorder(500), Fault::Delay(3), Fault::Cut(1, 0)];
        network.set_faults(all.into_iter());
        for now in 0..100 {
            network.send(now, 0, 1, generation, 1);
            assert!(network.send(now, 1, 0, generation, 1).0.lost, "cut");
        }
        let Effects { lost, duplicated, reordered, delayed, cut, broken, far: _ } = network.effects;
        assert!(lost > 50 && duplicated > 20 && reordered > 50 && delayed == 200 && cut == 100 && broken == 0);
        network.set_faults([].into_iter());
        assert!((0..100).all(|now| !network.send(now, 1, 0, generation, 1).0.lost));
    }
}

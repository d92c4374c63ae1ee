// The picture of a chain, from head to tail. It is drawn again when members or widths change; otherwise only texts change.
const BOX = { low: 164, high: 340, height: 92, gap: 46, rows: 34 };
const ROLES = { head: "HEAD", middle: "MIDDLE", tail: "TAIL", syncing: "JOINING", spare: "SPARE" };
const STATES = { alive: "alive", suspect: "suspected", down: "lost", left: "has left", unknown: "unknown" };
const isLost = state => state !== "alive" && state !== "suspect";
const stateText = state => STATES[state] || state;

function makeChain(chain) {
  const view = { title: el("b"), strip: el("span", { class: "strip" }), alarm: el("span", { class: "tag" }), facts: el("span", { class: "note" }) };
  view.picture = svg("svg", { role: "img" });
  view.figure = el("div", { class: "figure" }, view.picture);
  view.node = el("details", { class: "chain" }, el("summary", {}, view.title, view.strip, view.alarm, view.facts), view.figure);
  view.node.addEventListener("toggle", () => { if (view.chain) drawChain(view, view.chain); });
  return view;
}

function chainProblem(chain) {
  const serving = chain.members.filter(seat => seat.role !== "syncing");
  const living = serving.filter(seat => !isLost(seat.state));
  if (serving.length === 0) return "no member serves";
  if (living.length < serving.length) return `${plural(serving.length - living.length, "member")} lost`;
  if (serving.length < chain.fewest) return "too few members: writes are refused";
  if (serving.some(seat => seat.halted)) return "a member halted";
  const full = serving.find(seat => seat.full);
  return full ? `${full.full} is full` : "";
}

function updateChain(view, chain) {
  chain.rate = chainRate(view.chain, chain);
  view.chain = chain;
  const serving = chain.members.filter(seat => seat.role !== "syncing");
  const copies = serving.filter(seat => !isLost(seat.state)).length;
  const problem = chainProblem(chain);
  setText(view.title, `Chain ${chain.chain}`);
  setText(view.strip, chain.members.map(seat => seat.node).join(" → "));
  setText(view.alarm, problem);
  setAttribute(view.alarm, "class", problem ? "tag bad" : "tag");
  const rate = chain.rate.value === null ? "" : ` · ${short(chain.rate.value)} writes/s`;
  setText(view.facts, `${copies} of ${plural(serving.length, "copy").replace("copys", "copies")} · epoch ${chain.epoch}${chain.mode === "craq" ? "" : ` · ${chain.mode}`}${rate}`);
  drawChain(view, chain);
}

// Commits per second, from the highest known watermark.
function chainRate(before, chain) {
  const marks = chain.members.map(seat => seat.watermark).filter(mark => mark !== undefined);
  const now = { mark: marks.length ? Math.max(...marks) : null, at: chain.at, value: null };
  const then = before && before.rate;
  if (!then || then.mark === null || now.mark === null) return now;
  // The clock may have been set back.
  if (now.at < then.at) return now;
  if (now.at - then.at < 900) return then;
  return { ...now, value: Math.max(0, (now.mark - then.mark) * 1000 / (now.at - then.at)) };
}

function drawChain(view, chain) {
  if (!view.node.open) return;
  const width = view.figure.clientWidth;
  if (width < 80) return; // not laid out yet
  const shape = JSON.stringify([width, chain.members.map(seat => [seat.node, seat.role])]);
  if (view.shape !== shape) {
    view.shape = shape;
    placeSeats(view, chain, width);
  }
  chain.members.forEach((seat, at) => updateSeat(view.seats[at], seat, chain));
  chain.members.slice(1).forEach((seat, at) => {
    const before = chain.members[at];
    const gap = seat.lag !== undefined && before.lag !== undefined && seat.lag !== null && before.lag !== null ? seat.lag - before.lag : 0;
    const isCut = isLost(seat.state) || isLost(before.state);
    const kind = isCut ? "off" : seat.role === "syncing" ? "joins" : chain.rate.value > 0 ? "flows" : "";
    setAttribute(view.arrows[at].path, "class", `arrow ${kind}`);
    setText(view.arrows[at].label, gap > 0 ? `−${short(gap)}` : "");
  });
  setAttribute(view.picture, "aria-label", `Chain ${chain.chain}, from head to tail: ${chain.members.map(describeSeat).join("; ")}`);
}

const describeSeat = seat => `${seat.node}, ${seat.role}, ${stateText(seat.state)}${seat.lag ? `, ${plural(seat.lag, "update")} behind the head` : ""}`;

function placeSeats(view, chain, width) {
  const all = chain.members.length;
  const columns = Math.max(1, Math.min(all, Math.floor((width + BOX.gap) / (BOX.low + BOX.gap))));
  const wide = columns === 1 ? width : Math.min(BOX.high, (width - (columns - 1) * BOX.gap) / columns);
  const x = at => (at % columns) * (wide + BOX.gap), y = at => 2 + Math.floor(at / columns) * (BOX.height + BOX.rows);
  const height = y(all - 1) + BOX.height + 2;
  view.seats = chain.members.map((seat, at) => makeSeat(seat, x(at), y(at), wide));
  view.arrows = chain.members.slice(1).map((seat, at) => makeArrow(x(at), y(at), x(at + 1), y(at + 1), wide));
  view.picture.replaceChildren(...view.arrows.map(arrow => arrow.node), ...view.seats.map(seat => seat.node));
  setAttribute(view.picture, "height", height);
  setAttribute(view.picture, "viewBox", `0 0 ${width} ${height}`);
}

function makeArrow(x, y, nextX, nextY, wide) {
  const path = svg("path", { class: "arrow" }), tip = svg("path", { class: "tip" }), label = svg("text", { class: "behind" });
  if (y === nextY) {
    const middle = y + BOX.height / 2;
    setAttribute(path, "d", `M${x + wide + 3} ${middle}H${nextX - 9}`);
    setAttribute(tip, "d", `M${nextX - 3} ${middle}l-9 -5v10z`);
    add(label, { x: x + wide + BOX.gap / 2, y: middle - 9 }, []);
  } else {
    const from = x + wide / 2, to = nextX + wide / 2, below = y + BOX.height + BOX.rows / 2;
    setAttribute(path, "d", from === to ? `M${from} ${y + BOX.height + 3}V${nextY - 9}` : `M${from} ${y + BOX.height + 3}V${below}H${to}V${nextY - 9}`);
    setAttribute(tip, "d", `M${to} ${nextY - 3}l-5 -9h10z`);
    add(label, { x: to + 32, y: nextY - 10 }, []);
  }
  return { path, label, node: svg("g", {}, path, tip, label) };
}

function makeSeat(seat, x, y, wide) {
  const text = (cls, at, line) => svg("text", { class: cls, x: at, y: y + line });
  const inner = wide - 28;
  const view = {
    inner,
    role: text("role", x + 14, 22), mark: text("mark end", x + wide - 14, 22), name: text("name", x + 14, 45),
    left: text("", x + 14, 66), right: text("end", x + wide - 14, 66), title: svg("title"),
    meter: svg("rect", { class: "meter", x: x + 14, y: y + 77, width: 0, height: 4, rx: 2 }),
  };
  const box = svg("rect", { class: "box", x: x + 1, y, width: wide - 2, height: BOX.height, rx: 10 });
  const track = svg("rect", { class: "track", x: x + 14, y: y + 77, width: inner, height: 4, rx: 2 });
  view.node = svg("g", {}, view.title, box, track, view.meter, view.role, view.mark, view.name, view.left, view.right);
  return view;
}

function updateSeat(view, seat, chain) {
  const lost = isLost(seat.state), joins = seat.role === "syncing";
  const warns = seat.state === "suspect" || seat.halted || seat.full || seat.open === false || seat.lease_ms === 0;
  const kind = lost ? "lost" : joins ? "joins" : warns ? "warn" : "";
  setAttribute(view.node, "class", `seat ${kind} ${seat.is_this ? "this" : ""}`);
  setText(view.role, ROLES[seat.role] || seat.role);
  setText(view.mark, seatMark(seat));
  setText(view.name, fit(seat.node, view.inner, "650 15.5px"));
  const [left, right, part] = seatFigures(seat, chain);
  setText(view.left, fit(left, view.inner - (right ? 84 : 0), "12.5px"));
  setText(view.right, right);
  setAttribute(view.meter, "width", Math.max(0, Math.min(1, part)) * view.inner);
  setText(view.title, `${describeSeat(seat)}${seat.halted ? `, halted: ${seat.halted}` : ""}${seat.error ? `, ${seat.error}` : ""}`);
}

function seatMark(seat) {
  if (seat.state !== "alive") return stateText(seat.state);
  if (seat.halted) return "halted";
  if (seat.full) return `${seat.full} full`;
  return seat.is_this ? "this node" : "";
}

// The two texts below the name, and the part of the meter that is filled: of a lease, or of a copy in progress.
function seatFigures(seat, chain) {
  if (seat.error) return [isLost(seat.state) ? "no answer" : seat.error, "", 0];
  if (seat.role === "syncing") {
    const head = chain.members.find(other => other.keys);
    const records = seat.received_records ?? seat.keys;
    const part = head && records ? records / head.keys : 0;
    return [`${plural(records, "record")} copied`, part ? `${Math.min(99, Math.floor(part * 100))} %` : "", part];
  }
  const lag = seat.lag === null ? "lag unknown" : seat.lag === 0 ? "no lag" : `lag ${short(seat.lag)}`;
  if (seat.lease_ms === null) return [lag, "", 1];
  longestLease = Math.max(longestLease, seat.lease_ms);
  return [lag, seat.lease_ms ? `lease ${(seat.lease_ms / 1000).toFixed(1)} s` : "no lease", seat.lease_ms / longestLease];
}
let longestLease = 1000;

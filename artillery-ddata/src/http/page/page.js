// Receives the stream of `/events`, and shows it.
const EVENTS = 100;
// The node sends a message each second.
const SILENCE = 5000;
const page = { snapshot: null, samples: [], events: [], link: null, heard: 0, tries: 0, timer: 0, isDue: false };

const graphs = [
  makeGraph({ title: "Reads", format: short, note: "per second, this node", series: [
    { key: "local_clean", name: "clean, local", help: "served from this node's memory, without a message" },
    { key: "dirty", name: "dirty", help: "served after the tail's answer or a later watermark" },
    { key: "through_chain", name: "through chain", help: "served behind a barrier" },
    { key: "several_keys", name: "several keys", help: "reads of several keys, and pages of scans" },
    { key: "forwarded", name: "forwarded", help: "reads and writes that were passed to another node" },
  ] }),
  makeGraph({ title: "Writes", format: short, note: "per second, this node", series: [
    { key: "committed", name: "committed", help: "updates committed in the chains that this node serves" },
    { key: "writes", name: "requested here", help: "writes that callers requested from this node" },
  ] }),
  makeGraph({ title: "Latency", format: milliseconds, floor: 0.1, note: "of requests to this node", series: [
    { key: "write_p50_ms", name: "writes, p50" }, { key: "write_p99_ms", name: "writes, p99" },
    { key: "read_p50_ms", name: "reads, p50", help: "without local clean reads, which are not timed" },
    { key: "read_p99_ms", name: "reads, p99", help: "without local clean reads, which are not timed" },
  ] }),
];

function showNode({ node, loading, version }) {
  const state = nodeState(node, loading);
  setText(byId("cluster"), node && node.cluster ? node.cluster : "Artillery");
  setText(byId("name"), node ? node.node : "This node");
  setText(byId("role"), node && node.cluster_id ? node.role : "");
  setText(byId("state"), state.text);
  setAttribute(byId("state"), "class", `pill ${state.kind}`);
  document.title = node ? `${state.text}: ${node.node}${node.cluster ? `, ${node.cluster}` : ""}` : `${state.text}: Artillery`;
  const reasons = node ? node.waiting_for : [];
  keep(byId("reasons"), node && node.ready ? [] : reasons, text => text, text => ({ node: el("li", {}, text) }), () => {});
  const facts = [];
  if (loading) {
    const part = loading.total_bytes ? Math.floor(loading.read_bytes * 100 / loading.total_bytes) : 0;
    facts.push(["Directory", `${loading.step === "check" ? "checking" : "loading"}, ${part} %`], ["Records", `${short(loading.records)}, ${short(loading.records_per_second)}/s`]);
    facts.push(["Time left", loading.left_ms === null ? "not known yet" : `about ${duration(loading.left_ms)}`]);
  }
  if (node) {
    facts.push(["Address", node.addr], ["Leader", node.leader || "unknown"], ["Cluster id", node.cluster_id ? node.cluster_id.slice(0, 8) : "not formed"]);
    facts.push(["Memory", bytes(node.memory_bytes) + (node.max_memory_bytes ? ` of ${bytes(node.max_memory_bytes)}` : "")]);
    facts.push(["One other node may stop", node.unsettled ? `no: ${node.unsettled}` : node.ready ? "yes" : "unknown", node.unsettled ? "long" : ""]);
    if (node.age_ms > SILENCE) facts.push(["Figures", `${duration(node.age_ms)} old: a chain is busy`]);
  }
  keep(byId("facts"), facts, fact => fact[0], ([name]) => { const value = el("dd"); return { node: el("div", {}, el("dt", {}, name), value), value }; }, (view, fact) => {
    setText(view.value, fact[1]);
    setAttribute(view.value, "title", fact[1]);
    setAttribute(view.node, "class", fact[2] || null);
  });
  setText(byId("version"), `Artillery ${version}`);
}

function nodeState(node, loading) {
  if (node && node.ready) return { text: "Serving", kind: "good" };
  if (loading) return { text: "Loading", kind: "warn" };
  return node ? { text: "Not ready", kind: "bad" } : { text: "Starting", kind: "warn" };
}

function showChains({ chains, nodes, sample }) {
  const few = chains.length <= 4;
  for (const chain of chains) chain.at = sample.at_ms;
  keep(byId("chains"), chains, chain => chain.chain, chain => { const view = makeChain(chain); view.node.open = few; return view; }, updateChain);
  byId("no-chains").hidden = chains.length > 0;
  const problems = chains.filter(chainProblem).length;
  setText(byId("chains-note"), few && !problems ? "" : `${plural(chains.length, "chain")}${problems ? `, ${problems} with a problem` : ""}`);
  const seated = new Set(chains.flatMap(chain => chain.members.map(seat => seat.node)));
  const others = chains.length ? nodes.filter(node => !seated.has(node.node)) : [];
  keep(byId("bench"), others, node => node.node, () => { const view = { name: el("b"), what: el("span") }; view.node = el("li", {}, view.name, view.what); return view; }, (view, node) => {
    const lost = isLost(node.state);
    setText(view.name, node.node);
    setText(view.what, lost ? ` ${stateText(node.state)}` : node.state === "suspect" ? " spare, suspected" : " spare");
    setAttribute(view.node, "class", node.state === "down" ? "bad" : "");
  });
}

const STATE_KINDS = { alive: "good", suspect: "warn", down: "bad" };

function showNodes({ nodes, chains }) {
  const living = nodes.filter(node => !isLost(node.state)).length;
  setText(byId("nodes-note"), nodes.length ? `${living} of ${nodes.length} alive` : "");
  keep(byId("nodes"), nodes, node => node.node, () => {
    const view = { name: el("b"), role: el("span", { class: "note" }), state: el("span"), addr: el("span", { class: "addr" }) };
    view.node = el("li", {}, view.name, view.role, view.state, view.addr);
    return view;
  }, (view, node) => {
    setText(view.name, node.node);
    setText(view.role, isLost(node.state) || !chains.length ? "" : node.role);
    setText(view.state, stateText(node.state));
    setAttribute(view.state, "class", `pill ${STATE_KINDS[node.state] || ""}`);
    setText(view.addr, node.addr + (node.is_this ? ", this node" : ""));
  });
}

const KINDS = { good: "Good", bad: "Loss", orderly: "Planned" };

function showEvents() {
  const newest = [...page.events].reverse();
  byId("no-events").hidden = newest.length > 0;
  // Numbers begin again when the node restarts.
  keep(byId("events"), newest, event => `${event.number} ${event.at_ms}`, event => ({
    node: el("li", {}, el("time", { datetime: new Date(event.at_ms).toISOString() }, clock(event.at_ms)), el("span", { class: `tag ${event.kind}` }, KINDS[event.kind] || event.kind), el("span", {}, event.text)),
  }), () => {});
}

function show() {
  page.isDue = false;
  const { snapshot } = page;
  if (!snapshot) return;
  showNode(snapshot);
  showChains(snapshot);
  showNodes(snapshot);
  showEvents();
  for (const graph of graphs) drawGraph(graph, page.samples);
  setAttribute(byId("main"), "aria-busy", "false");
}

function showSoon() {
  if (!page.isDue) { page.isDue = true; requestAnimationFrame(show); }
}

const RECEIVERS = {
  history({ samples, events }) { page.samples = samples; page.events = events; },
  event(event) {
    const last = page.events[page.events.length - 1];
    if (!last || event.number > last.number) page.events = [...page.events, event].slice(-EVENTS);
  },
  snapshot(snapshot) {
    page.snapshot = snapshot;
    const { sample } = snapshot, last = page.samples[page.samples.length - 1];
    if (sample.at_ms && (!last || sample.at_ms > last.at_ms)) page.samples.push(sample);
    page.samples = page.samples.filter(past => past.at_ms > snapshot.at_ms - SPAN && past.at_ms <= snapshot.at_ms);
  },
};

function receive(message) {
  const fields = Object.fromEntries(message.split("\n").map(line => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]));
  const receiver = Object.hasOwn(RECEIVERS, fields.event || "") && RECEIVERS[fields.event];
  if (receiver) { receiver(JSON.parse(fields.data)); showSoon(); }
}

// The address of a route without credentials, which `fetch` refuses, and with the path at which the routes are nested.
const urlOf = route => `${location.origin}${location.pathname.replace(/\/?$/, "/")}${route}`;

// A stream that is read by `fetch` shows why it was refused, which an EventSource doesn't.
async function follow(link) {
  const response = await fetch(urlOf("events"), { signal: link.signal, cache: "no-store", headers: { accept: "text/event-stream" } });
  if (!response.ok) throw Object.assign(new Error((await response.text()).trim()), { status: response.status });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the node ended the stream");
    page.heard = Date.now();
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    messages.forEach(receive);
    if (page.tries !== -1 && messages.length) { page.tries = -1; connected(); }
  }
}

function connected() {
  setText(byId("link"), "Live");
  setAttribute(byId("link"), "class", "pill good");
  byId("lost").replaceChildren();
  byId("main").classList.remove("stale");
}

function lost(error) {
  page.tries = Math.max(page.tries, 0) + 1;
  setText(byId("link"), error.status === 503 ? "Waiting" : "Connection lost");
  setAttribute(byId("link"), "class", "pill bad");
  byId("main").classList.toggle("stale", page.snapshot !== null);
  const since = page.heard ? ` since ${clock(page.heard)}` : "";
  if (error.status === 401) {
    const again = el("button", { type: "button" }, "Sign in");
    again.addEventListener("click", () => location.reload());
    byId("lost").replaceChildren("The node refuses the password.", again);
  } else {
    setText(byId("lost"), error.status ? `The node answered: ${error.message}. Trying again.` : `No connection to this node${since}. Trying again.`);
  }
}

// Hidden pages have no connection: browsers permit six per host.
function connect() {
  clearTimeout(page.timer);
  if (page.link) page.link.abort();
  page.link = null;
  if (document.hidden) return;
  const link = page.link = new AbortController();
  page.heard = page.heard || 0;
  page.began = Date.now();
  follow(link).catch(error => {
    if (page.link !== link) return;
    page.link = null;
    lost(error);
    // The same password would be refused again.
    if (error.status !== 401) page.timer = setTimeout(connect, Math.min(5000, 250 * 2 ** page.tries));
  });
}

// Also after this machine has slept.
setInterval(() => {
  if (page.link && Date.now() - Math.max(page.heard, page.began) > SILENCE) {
    lost(new Error("silence"));
    connect();
  }
}, 1000);
document.addEventListener("visibilitychange", connect);
addEventListener("online", connect);
for (const link of document.querySelectorAll("footer a")) link.href = urlOf(link.getAttribute("href"));
byId("graphs").append(...graphs.map(graph => graph.node));
new ResizeObserver(showSoon).observe(byId("main"));
connect();

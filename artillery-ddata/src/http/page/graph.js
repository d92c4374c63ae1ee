// Graphs of the last five minutes. The legend shows the newest values, or those below the pointer.
const SPAN = 300000;
const GRAPH = { height: 140, top: 8, bottom: 20 };
// Samples further apart than this aren't connected.
const HOLE = 12000;

// `floor`: the lowest value of a logarithmic scale, `null` for a linear one.
function makeGraph({ title, format, note, series, floor = null }) {
  const id = `graph-${title.replace(/\W/g, "")}`;
  const view = { series, format, floor, samples: [], at: null, when: el("span", { class: "note" }) };
  view.lines = series.map((_, at) => svg("path", { class: `s${at}` }));
  view.rules = [0, 1, 2].map(() => ({ line: svg("line", { class: "grid", x1: 0 }), label: svg("text", { x: 0 }) }));
  view.cursor = svg("line", { class: "cursor", y1: GRAPH.top, y2: GRAPH.height - GRAPH.bottom });
  view.then = svg("text", { x: 0, y: GRAPH.height - 4 }, "5 min ago");
  view.now = svg("text", { class: "now", y: GRAPH.height - 4 }, "now");
  view.picture = svg("svg", { role: "img" }, ...view.rules.map(rule => rule.line), ...view.lines, ...view.rules.map(rule => rule.label), view.cursor, view.then, view.now);
  view.values = series.map(() => el("b"));
  const entry = (of, at) => el("li", { title: of.help || of.name }, svg("svg", { viewBox: "0 0 20 4", "aria-hidden": "true" }, svg("line", { class: `s${at}`, x2: 20, y1: 2, y2: 2 })), el("span", {}, of.name), view.values[at]);
  view.node = el("section", { class: "card graph", "aria-labelledby": id },
    el("div", { class: "head" }, el("h2", { id }, title), el("span", { class: "note" }, note), view.when),
    view.picture, el("ul", { class: "legend" }, ...series.map(entry)));
  view.picture.addEventListener("pointermove", event => {
    const box = view.picture.getBoundingClientRect();
    view.at = (event.clientX - box.left) / box.width;
    drawGraph(view, view.samples);
  });
  view.picture.addEventListener("pointerleave", () => { view.at = null; drawGraph(view, view.samples); });
  return view;
}

// The highest value of a scale, and the part of the height at which a value is. A linear scale ends at 1, 2, 5, 10, …; a
// logarithmic one has a power of ten in its middle.
function scale(highest, floor) {
  if (floor !== null) {
    let top = floor * 100;
    while (top < highest) top *= 100;
    return { top, middle: Math.sqrt(top * floor), part: value => Math.log(Math.max(value, floor) / floor) / Math.log(top / floor) };
  }
  const power = 10 ** Math.floor(Math.log10(highest || 1));
  const top = [1, 2, 5, 10].map(step => step * power).find(step => step >= highest * 0.999);
  return { top, middle: top / 2, part: value => value / top };
}

function drawGraph(view, samples) {
  view.samples = samples;
  const width = view.picture.clientWidth, newest = samples.length ? samples[samples.length - 1].at_ms : 0;
  const highest = Math.max(0, ...samples.flatMap(sample => view.series.map(of => sample[of.key] || 0)));
  const { top, middle, part } = scale(highest, view.floor);
  const low = GRAPH.height - GRAPH.bottom;
  const x = at => width - 1 - (newest - at) / SPAN * (width - 1);
  const y = value => low - part(value) * (low - GRAPH.top);
  setAttribute(view.picture, "viewBox", `0 0 ${width} ${GRAPH.height}`);
  view.rules.forEach(({ line, label }, at) => {
    const value = [view.floor || 0, middle, top][at];
    for (const name of ["y1", "y2"]) setAttribute(line, name, Math.round(y(value)) + 0.5);
    setAttribute(line, "x2", width);
    setAttribute(label, "y", at === 2 ? y(value) + 11 : y(value) - 3);
    setText(label, at ? view.format(value) : "");
  });
  setAttribute(view.now, "x", width - 1);
  view.series.forEach((of, at) => setAttribute(view.lines[at], "d", trace(samples, of.key, x, y)));
  showValues(view, samples, x, newest, width);
}

function trace(samples, key, x, y) {
  let path = "", before = null;
  for (const sample of samples) {
    const value = sample[key];
    if (value === null || value === undefined) { before = null; continue; }
    const joined = before !== null && sample.at_ms - before < HOLE;
    path += `${joined ? "L" : "M"}${x(sample.at_ms).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!joined) path += "h.5";
    before = sample.at_ms;
  }
  return path;
}

function showValues(view, samples, x, newest, width) {
  let shown = samples[samples.length - 1];
  if (view.at !== null && samples.length) {
    const time = newest - (1 - view.at) * SPAN;
    shown = samples.reduce((best, sample) => Math.abs(sample.at_ms - time) < Math.abs(best.at_ms - time) ? sample : best);
  }
  const isPast = view.at !== null && shown;
  setText(view.when, isPast ? `at ${clock(shown.at_ms)}` : "");
  setAttribute(view.cursor, "visibility", isPast ? "visible" : "hidden");
  if (isPast) for (const name of ["x1", "x2"]) setAttribute(view.cursor, name, x(shown.at_ms));
  const texts = view.series.map((of, at) => {
    const value = shown ? shown[of.key] : null;
    const text = value === null || value === undefined ? "–" : view.format(value);
    setText(view.values[at], text);
    return `${of.name} ${text}`;
  });
  if (view.at === null) setAttribute(view.picture, "aria-label", `Last five minutes; now ${texts.join(", ")}`);
}

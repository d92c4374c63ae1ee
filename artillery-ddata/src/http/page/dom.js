// Elements, and texts for people. Names are free text: they only ever become text nodes and attributes.
const SVG = "http://www.w3.org/2000/svg";
const byId = id => document.getElementById(id);

function add(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}
const el = (tag, attributes = {}, ...children) => add(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => add(document.createElementNS(SVG, tag), attributes, children);

// Unchanged nodes aren't touched, so that screen readers and selections aren't disturbed once a second.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// Makes the children of `parent` those of `items`, and keeps the element of each key.
function keep(parent, items, keyOf, make, update) {
  const known = parent.views || (parent.views = new Map());
  const keys = new Set(items.map(keyOf));
  for (const [key, view] of known) {
    if (!keys.has(key)) { view.node.remove(); known.delete(key); }
  }
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    if (!known.has(key)) known.set(key, make(item));
    const view = known.get(key);
    update(view, item);
    if (view.node === place) place = place.nextSibling;
    else parent.insertBefore(view.node, place);
  }
}

const count = n => Math.round(n).toLocaleString("en");
const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
function short(n) {
  if (n === 0) return "0";
  if (n < 10) return n.toFixed(n < 0.995 ? 2 : 1).replace(/\.?0+$/, "");
  if (n < 10000) return count(n);
  return n < 1e6 ? `${(n / 1e3).toFixed(n < 1e5 ? 1 : 0)} k` : `${(n / 1e6).toFixed(1)} M`;
}
const milliseconds = ms => ms < 1000 ? `${short(ms)} ms` : `${short(ms / 1000)} s`;
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < 4) { n /= 1024; unit += 1; }
  return `${n < 10 && unit ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}
function duration(ms) {
  if (ms < 10000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}
const clock = ms => new Date(ms).toLocaleTimeString("en-GB");

// The beginning of a text that fits into a width, by the font of the page.
const pen = document.createElement("canvas").getContext("2d");
function fit(text, width, font) {
  pen.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  const letters = [...text].slice(0, 200);
  if (letters.length === [...text].length && pen.measureText(text).width <= width) return text;
  let low = 0, high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(`${letters.slice(0, middle).join("")}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return `${letters.slice(0, low).join("")}…`;
}

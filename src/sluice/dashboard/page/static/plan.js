/** The view of the plan: streams, operators and queries, with what went along their edges. */

import { colour, element, heatShades, hideTip, shadeOf, showTip } from "./dom.js";
import { bytes, count, rows, seconds, share } from "./format.js";
import { ask } from "./store.js";

const [WIDE, HIGH, ACROSS, DOWN] = [180, 58, 134, 18];
const IN_SIGHT = 7; // boxes that a screen has one below the other: columns of fewer are centred in them

function svg(name, attributes, ...children) {
  const one = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.append(...children);
  return one;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export class PlanView {
  constructor(root) {
    this.heading = element("h3", {}, "Plan");
    this.note = element("span", { class: "note" });
    this.holder = element("div", { class: "table", tabindex: "0", "aria-label": "The plan as a graph" });
    root.append(element("section", { class: "card" }, element("div", { class: "bar" }, this.heading, this.note), this.holder));
    this.graph = null;
  }

  async update() {
    const graph = await ask("/api/plan");
    if (graph === null) return;
    this.graph = graph;
    this.redraw();
  }

  redraw() {
    const { graph } = this;
    if (graph === null) return;
    this.heading.textContent = `Plan in epoch ${count(graph.epoch)}`;
    this.note.textContent = [
      "an operator's colour is its share of the processor time",
      graph.left_out ? `${count(graph.left_out)} more queries are in the table` : "",
    ].filter(Boolean).join("; ");
    if (!graph.nodes.length) {
      this.holder.replaceChildren(element("p", { class: "empty" }, "The checkpoint does not say what this query computes."));
      return;
    }
    const places = place(graph);
    const width = Math.max(...[...places.values()].map(({ x }) => x)) + WIDE + 8;
    const height = Math.max(...[...places.values()].map(({ y }) => y)) + HIGH + 8;
    const shades = heatShades();
    const most = Math.max(1, ...graph.edges.map((edge) => edge.rows));
    const arrivals = arrive(graph, places);
    this.holder.replaceChildren(svg("svg", { class: "plan", width, height, viewBox: `0 0 ${width} ${height}`, role: "img" },
      ...graph.edges.map((edge) => drawEdge(edge, places, arrivals.get(edge), most)),
      ...graph.nodes.map((node) => drawNode(node, places.get(node.id), shades))));
  }
}

/** Columns from streams to queries; within one, each is near those that it gets rows from. */
function place(graph) {
  const columns = new Map();
  for (const node of graph.nodes) columns.set(node.level, [...(columns.get(node.level) ?? []), node]);
  const tallest = Math.max(...[...columns.values()].map((nodes) => nodes.length));
  const places = new Map();
  const sources = new Map(graph.nodes.map((node) => [node.id, []]));
  for (const edge of graph.edges) sources.get(edge.target).push(edge.source);
  for (const level of [...columns.keys()].sort((a, b) => a - b)) {
    const nodes = columns.get(level);
    const centre = (node) => {
      const ys = sources.get(node.id).map((id) => places.get(id)?.y ?? 0);
      return ys.length ? ys.reduce((a, b) => a + b, 0) / ys.length : 0;
    };
    if (level > 0) nodes.sort((a, b) => centre(a) - centre(b));
    const free = Math.max(0, Math.min(tallest, IN_SIGHT) - nodes.length) * (HIGH + DOWN);
    nodes.forEach((node, n) => places.set(node.id, { x: 4 + level * (WIDE + ACROSS), y: 4 + free / 2 + n * (HIGH + DOWN) }));
  }
  return places;
}

/** How far down its target's side each edge arrives: in the order of their sources, so that none crosses another. */
function arrive(graph, places) {
  const into = new Map();
  for (const edge of graph.edges) into.set(edge.target, [...(into.get(edge.target) ?? []), edge]);
  const arrivals = new Map();
  for (const edges of into.values()) {
    edges.sort((a, b) => places.get(a.source).y - places.get(b.source).y);
    const sides = edges.length === 2 ? [0.15, 0.85] : edges.map((_, n) => (n + 1) / (edges.length + 1));
    edges.forEach((edge, n) => arrivals.set(edge, HIGH * sides[n]));
  }
  return arrivals;
}

function drawNode(node, { x, y }, shades) {
  const details = node.kind === "operator"
    ? [`${seconds(node.seconds)} · ${share(node.busy)} busy`, `${bytes(node.state_bytes)} of state`]
    : [`${rows(node.rows)} rows`, node.kind];
  const stripe = node.kind === "operator" ? shades[shadeOf(node.busy, 1)] : colour(node.kind === "stream" ? "series-2" : "series-8");
  const box = svg("g", { class: "node", transform: `translate(${x},${y})` },
    svg("rect", { width: WIDE, height: HIGH, rx: 8, fill: colour("paper") }),
    svg("rect", { width: 8, height: HIGH, rx: 3, fill: stripe }),
    svg("text", { x: 16, y: 19, "font-weight": 600 }, cut(node.name, 22)),
    svg("text", { x: 16, y: 36, class: "soft" }, details[0]),
    svg("text", { x: 16, y: 50, class: "soft" }, details[1]));
  box.addEventListener("pointermove", (event) => showTip(`${node.name}\n${node.says}\n${rows(node.rows)} rows out`, event.clientX, event.clientY));
  box.addEventListener("pointerleave", hideTip);
  return box;
}

function drawEdge(edge, places, arrival, most) {
  const [from, to] = [places.get(edge.source), places.get(edge.target)];
  const [x1, y1, x2, y2] = [from.x + WIDE, from.y + HIGH / 2, to.x, to.y + arrival];
  const middle = (x1 + x2) / 2;
  const wide = 1 + 5 * Math.sqrt(edge.rows / most);
  const label = edge.bytes === null ? `${rows(edge.rows)} rows` : `${rows(edge.rows)} rows, ≈ ${bytes(edge.bytes)}`;
  const below = y1 < y2 - 1; // the line comes from above: there is room below it
  const line = svg("g", {},
    svg("path", { class: "edge", d: `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`, "stroke-width": wide }),
    svg("text", { class: "edge-text", x: x2 - 8, y: below ? y2 + 11 + wide / 2 : y2 - 4 - wide / 2, "text-anchor": "end" }, label));
  return line;
}

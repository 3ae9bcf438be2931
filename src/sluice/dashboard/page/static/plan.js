/** The view of the plan: streams, operators and queries, with what went along their edges. */

import { colour, element, heatShades, shadeOf, showTip, tellAt } from "./dom.js";
import { bytes, count, rows, seconds, share } from "./format.js";
import { ask } from "./store.js";

const [WIDE, HIGH, ACROSS, DOWN] = [180, 58, 150, 18];
const GAP = 14; // for an edge that passes a column
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
    const ways = findWays(graph);
    const places = place(graph, ways);
    const width = Math.max(...[...places.values()].map(({ x }) => x)) + WIDE + 8;
    const height = Math.max(...[...places.values()].map(({ y, high }) => y + high)) + 8;
    const shades = heatShades();
    const most = Math.max(1, ...graph.edges.map((edge) => edge.rows));
    const arrivals = arrive(graph, (edge) => places.get(ways.get(edge).at(-2)));
    this.holder.replaceChildren(svg("svg", { class: "plan", width, height, viewBox: `0 0 ${width} ${height}`, role: "img" },
      ...graph.edges.map((edge) => drawEdge(edge, ways.get(edge).map((id) => places.get(id)), arrivals.get(edge), most)),
      ...graph.nodes.map((node) => drawNode(node, places.get(node.id), shades))));
  }
}

/** The ids that each edge goes by: its source, a gap in each column between, and its target. */
function findWays(graph) {
  const levels = new Map(graph.nodes.map((node) => [node.id, node.level]));
  return new Map(graph.edges.map((edge, number) => {
    const between = levels.get(edge.target) - levels.get(edge.source) - 1;
    return [edge, [edge.source, ...Array.from({ length: between }, (_, n) => `${number} ${n}`), edge.target]];
  }));
}

/** Columns from streams to queries; within one, boxes and gaps for edges are each near those that lead to them. */
function place(graph, ways) {
  const levels = new Map(graph.nodes.map((node) => [node.id, node.level]));
  const columns = new Map();
  const sources = new Map();
  const add = (id, level, high) => {
    columns.set(level, [...(columns.get(level) ?? []), { id, high }]);
    sources.set(id, []);
  };
  for (const node of graph.nodes) add(node.id, node.level, HIGH);
  for (const way of ways.values()) {
    way.slice(1, -1).forEach((id, n) => add(id, levels.get(way[0]) + 1 + n, GAP));
    way.slice(1).forEach((id, n) => sources.get(id).push(way[n]));
  }
  const tall = (column) => column.reduce((sum, { high }) => sum + high + DOWN, 0);
  const tallest = Math.min(Math.max(...[...columns.values()].map(tall)), IN_SIGHT * (HIGH + DOWN));
  const places = new Map();
  for (const level of [...columns.keys()].sort((a, b) => a - b)) {
    const column = columns.get(level);
    const centre = ({ id }) => {
      const ys = sources.get(id).map((source) => places.get(source)).map(({ y, high }) => y + high / 2);
      return ys.length ? ys.reduce((a, b) => a + b, 0) / ys.length : 0;
    };
    if (level > 0) column.sort((a, b) => centre(a) - centre(b));
    let y = 4 + Math.max(0, tallest - tall(column)) / 2;
    for (const { id, high } of column) {
      places.set(id, { x: 4 + level * (WIDE + ACROSS), y, high });
      y += high + DOWN;
    }
  }
  return places;
}

/** How far down its target's side each edge arrives: in the order in which they come, so that none crosses another. */
function arrive(graph, lastBefore) {
  const into = new Map();
  for (const edge of graph.edges) into.set(edge.target, [...(into.get(edge.target) ?? []), edge]);
  const arrivals = new Map();
  for (const edges of into.values()) {
    edges.sort((a, b) => lastBefore(a).y - lastBefore(b).y);
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
  tellAt(box, (event) => showTip(`${node.name}\n${node.says}\n${rows(node.rows)} rows out`, event.clientX, event.clientY));
  return box;
}

function drawEdge(edge, way, arrival, most) {
  const to = way.at(-1);
  const ends = way.slice(1).map(({ x, y, high }) => [x, y + high / 2]);
  const [x2, y2] = ends[ends.length - 1] = [to.x, to.y + arrival];
  const parts = ends.map(([x, y], n) => {
    const from = way[n].y + way[n].high / 2;
    const middle = (way[n].x + WIDE + x) / 2;
    return `L${way[n].x + WIDE},${from} C${middle},${from} ${middle},${y} ${x},${y}`;
  });
  const y1 = way.at(-2).y + way.at(-2).high / 2;
  const wide = 1 + 5 * Math.sqrt(edge.rows / most);
  const label = edge.bytes === null ? `${rows(edge.rows)} rows` : `${rows(edge.rows)} rows, ≈ ${bytes(edge.bytes)}`;
  const below = y1 < y2 - 1; // the line comes from above: there is room below it
  const line = svg("g", {},
    svg("path", { class: "edge", d: `M${parts.join(" ").slice(1)}`, "stroke-width": wide }),
    svg("text", { class: "edge-text", x: x2 - 8, y: below ? y2 + 11 + wide / 2 : y2 - 4 - wide / 2, "text-anchor": "end" }, label));
  return line;
}

/** The map over time: a line a site, a column an epoch, and marks of what was decided. */

import { colour, fit, heatShades, hideTip, shadeOf, showTip, tellAt } from "./dom.js";
import { clock, count } from "./format.js";
import { epochOf, markText } from "./marks.js";
import { choose, current, store } from "./store.js";

const BOTTOM = 20;
const MOST_MARKS = 600;
const GLYPHS = { move: "↷", split: "◆", merge: "◇", share: "●", release: "○", freeze: "■", "clean up": "□", scale: "▲", spill: "▼", fetch: "△" };
/** Of the line of a move, by what has become of it. */
const DASHES = { done: [], waiting: [1.5, 3], refused: [4, 3], abandoned: [4, 3] };

export class Strip {
  constructor(canvas, metric) {
    this.canvas = canvas;
    this.metric = metric;
    this.marks = [];
    this.spots = [];
    tellAt(canvas, (event) => this.point(event));
    canvas.addEventListener("click", (event) => {
      const strip = this.columnAt(event.offsetX);
      if (strip !== undefined) choose(strip.epoch);
    });
  }

  get sites() {
    return Math.max(1, ...store.strips.map((strip) => strip.sites));
  }

  most() {
    if (this.metric.key === "memory") return 1;
    return Math.max(0, ...store.strips.map((strip) => Math.max(0, ...strip[this.metric.key])));
  }

  draw() {
    const strips = store.strips;
    const sites = this.sites;
    const height = Math.round(Math.min(300, Math.max(84, sites * 16)));
    const context = fit(this.canvas, height + BOTTOM);
    const width = this.canvas.clientWidth;
    context.font = "11px system-ui, sans-serif";
    this.left = Math.ceil(context.measureText(`site ${sites - 1}`).width) + 8;
    this.across = (width - this.left) / Math.max(strips.length, 30);
    this.down = height / sites;
    context.clearRect(0, 0, width, height + BOTTOM);
    const shades = heatShades();
    const most = this.most();
    const gap = this.across > 5 ? 1 : 0;
    const lineGap = this.down > 5 ? 1 : 0;
    strips.forEach((strip, column) => {
      const left = this.left + column * this.across;
      strip[this.metric.key].forEach((value, line) => {
        const top = line * strip.group * this.down;
        const tall = Math.min(strip.group, strip.sites - line * strip.group) * this.down;
        context.fillStyle = shades[shadeOf(value, most)];
        context.fillRect(left, top, this.across - gap, Math.max(0.6, tall - lineGap));
      });
    });
    this.drawAxes(context, height);
    this.drawMarks(context, height);
    this.drawChoice(context, height);
  }

  drawAxes(context, height) {
    context.fillStyle = colour("soft");
    context.textBaseline = "middle";
    context.textAlign = "right";
    const every = Math.ceil(this.sites / Math.max(1, Math.floor(height / 14)));
    for (let site = 0; site < this.sites; site += every) {
      context.fillText(`site ${site}`, this.left - 5, Math.max(6, (site + 0.5) * this.down));
    }
    context.textAlign = "left";
    const each = Math.ceil(60 / this.across);
    store.strips.forEach((strip, column) => {
      if (column % each === 0) context.fillText(String(strip.epoch), this.left + column * this.across, height + 12);
    });
  }

  drawMarks(context, height) {
    this.spots = [];
    const columns = new Map(store.strips.map((strip, column) => [strip.epoch, column]));
    const [ink, bad, card] = [colour("ink"), colour("bad"), colour("card")];
    for (const mark of this.marks.slice(-MOST_MARKS)) {
      const column = columns.get(epochOf(mark));
      if (column === undefined) continue;
      const x = this.left + (column + 0.5) * this.across;
      const row = mark.site === null ? 0 : Math.min(mark.site, this.sites - 1);
      const y = Math.min(height - 4, Math.max(4, (row + 0.5) * this.down));
      const isRefused = mark.fate === "refused" || mark.fate === "abandoned";
      const line = isRefused ? bad : ink;
      const look = { line, inside: mark.fate === "waiting" ? card : line, edge: card, dashes: DASHES[mark.fate] };
      const moved = mark.verb === "move" && mark.came_from !== null && mark.came_from !== mark.site;
      if (moved) drawMove(context, x, (mark.came_from + 0.5) * this.down, y, look);
      else drawGlyph(context, GLYPHS[mark.verb] ?? "●", x, y, look);
      if (isRefused) strikeOut(context, x, y, look);
      this.spots.push({ x, y, mark });
    }
  }

  drawChoice(context, height) {
    const at = store.strips.findIndex((strip) => strip.epoch === current()?.epoch);
    if (at < 0) return;
    context.strokeStyle = colour("accent");
    context.lineWidth = 2;
    context.strokeRect(this.left + at * this.across - 1, 1, Math.max(3, this.across + 1), height - 2);
  }

  columnAt(x) {
    return store.strips[Math.floor((x - this.left) / this.across)];
  }

  point(event) {
    const { offsetX: x, offsetY: y } = event;
    const near = this.spots.filter((spot) => Math.hypot(spot.x - x, spot.y - y) < 9).at(-1);
    if (near) return showTip(markText(near.mark), event.clientX, event.clientY);
    const strip = this.columnAt(x);
    const site = Math.floor(y / this.down);
    if (x < this.left || strip === undefined || site < 0 || site >= strip.sites) return hideTip();
    const line = Math.floor(site / strip.group);
    const last = Math.min(strip.sites, (line + 1) * strip.group) - 1;
    const which = strip.group === 1 ? `site ${site}` : `sites ${line * strip.group} to ${last}, the highest`;
    const time = store.points.find((point) => point.epoch === strip.epoch)?.committed_at;
    const value = this.metric.text(strip[this.metric.key][line]);
    return showTip(`epoch ${count(strip.epoch)}, ${clock(time)}\n${which}: ${value}`, event.clientX, event.clientY);
  }
}

/** Strokes what `trace` draws, with an edge around it, so that it is seen on cells of any colour. */
function strokeWithEdge(context, look, trace) {
  for (const [style, width, dashes] of [[look.edge, 3.6, []], [look.line, 1.3, look.dashes]]) {
    context.strokeStyle = style;
    context.lineWidth = width;
    context.setLineDash(dashes);
    trace();
  }
  context.setLineDash([]);
}

/** From the site that held the unit to the one that it goes to. */
function drawMove(context, x, from, to, look) {
  const bulge = Math.min(26, 4 + Math.abs(to - from) / 5);
  strokeWithEdge(context, look, () => {
    context.beginPath();
    context.moveTo(x, from);
    context.quadraticCurveTo(x + bulge, (from + to) / 2, x, to);
    context.stroke();
  });
  strokeWithEdge(context, { ...look, dashes: [] }, () => {
    context.beginPath();
    context.arc(x, to, 3.2, 0, 7);
    context.fillStyle = look.inside;
    context.stroke();
    context.fill();
  });
}

function drawGlyph(context, glyph, x, y, look) {
  context.font = `${glyph === GLYPHS.move ? 15 : 10}px system-ui, sans-serif`; // an arrow is thinner than a shape
  context.textAlign = "center";
  context.textBaseline = "middle";
  strokeWithEdge(context, { ...look, dashes: [] }, () => context.strokeText(glyph, x, y));
  context.fillStyle = look.inside;
  context.fillText(glyph, x, y);
}

function strikeOut(context, x, y, look) {
  strokeWithEdge(context, { ...look, dashes: [] }, () => {
    context.beginPath();
    context.moveTo(x - 8, y);
    context.lineTo(x + 8, y);
    context.stroke();
  });
}

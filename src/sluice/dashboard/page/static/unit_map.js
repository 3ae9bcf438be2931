/** The map of an epoch: a box a site, a square a unit; units fly to where they went. */

import { colour, fit, heatShades, hideTip, shadeOf, showTip, tellAt } from "./dom.js";
import { bytes, rows, seconds } from "./format.js";
import { arrange, boxOf, placeUnits } from "./unit_frame.js";

const FLIGHT = 900; // milliseconds
const MOST_FLIGHTS = 400;
const SMALLEST = 1; // a square of less is not drawn: its site is

export class UnitMap {
  constructor(canvas, metric) {
    this.canvas = canvas;
    this.metric = metric;
    this.frame = null;
    tellAt(canvas, (event) => this.point(event));
  }

  /** Show a frame and its sites' part of the strip; what moved since the epoch before flies, if that was shown. */
  show(frame, strip, before, marks) {
    const last = this.frame;
    this.strip = strip;
    this.sites = Math.max(strip.sites, 1);
    this.frame = frame;
    this.marks = marks;
    this.arrivals = before === null ? [] : arrivals(frame, before);
    const isNext = last !== null && before !== null && last.epoch === before.epoch && last.epoch !== frame.epoch;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    cancelAnimationFrame(this.flight);
    this.layOut();
    if (!isNext || calm || !this.arrivals.length || this.arrivals.length > MOST_FLIGHTS) return this.draw(1);
    const began = performance.now();
    const fly = (now) => {
      const part = Math.min(1, (now - began) / FLIGHT);
      this.draw(part);
      if (part < 1) this.flight = requestAnimationFrame(fly);
    };
    this.flight = requestAnimationFrame(fly);
  }

  layOut() {
    const most = mostUnits(this.frame, this.sites);
    this.height = Math.round(Math.min(Math.max(150, this.sites * 46), Math.max(320, innerHeight * 0.5)));
    this.context = fit(this.canvas, this.height);
    this.layout = arrange(this.sites, most, this.canvas.clientWidth, this.height);
    this.places = placeUnits(this.frame, this.sites, this.layout);
    this.most = this.frame[this.metric.unit].reduce((most, value) => Math.max(most, value), 0);
    this.shades = heatShades();
  }

  redraw() {
    if (this.frame === null) return;
    this.layOut();
    this.draw(1);
  }

  draw(part) {
    const { context, layout, frame, places } = this;
    context.clearRect(0, 0, this.canvas.clientWidth, this.height);
    this.drawBoxes();
    if (layout.size < SMALLEST) return;
    const size = layout.size > 4 ? layout.size - 1 : Math.max(0.8, layout.size * 0.9);
    const flying = part < 1 ? new Set(this.arrivals.map((one) => one.unit)) : new Set();
    const values = frame[this.metric.unit];
    let last = -1;
    for (let unit = 0; unit < frame.count; unit += 1) {
      if (flying.has(unit)) continue;
      const shade = this.shadeOf(values[unit]);
      if (shade !== last) context.fillStyle = this.shades[(last = shade)];
      context.fillRect(places.x[unit], places.y[unit], size, size);
    }
    this.drawShared(size);
    this.drawArrivals(part, size);
  }

  /** Units differ a lot: by the root of their share, the many that have little can be told apart, too. */
  shadeOf(value) {
    return shadeOf(Math.sqrt(value), Math.sqrt(this.most));
  }

  drawBoxes() {
    const { context, layout, places } = this;
    const tiny = layout.size < SMALLEST;
    const values = this.strip[this.metric.key]; // a shared unit's work is at each of its holders, its square at one
    const valueOf = (site) => values[Math.floor(site / this.strip.group)];
    const most = values.reduce((a, b) => Math.max(a, b), 0);
    const [rule, soft] = [colour("rule"), colour("soft")];
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "left";
    for (let site = 0; site < this.sites; site += 1) {
      const [left, top] = boxOf(site, layout);
      if (tiny) {
        context.fillStyle = this.shades[shadeOf(valueOf(site), most)];
        context.fillRect(left, top, layout.boxWidth, layout.boxHeight);
      } else if (layout.gap > 1) {
        context.strokeStyle = rule;
        context.strokeRect(left + 0.5, top + 0.5, layout.boxWidth - 1, layout.boxHeight - 1);
      }
      if (!layout.head) continue;
      context.fillStyle = soft;
      const long = `site ${site} · ${places.units[site]} units · ${this.metric.text(valueOf(site))}`;
      context.fillText(layout.boxWidth > 165 ? long : `${site}`, left + 5, top + 10, layout.boxWidth - 8);
    }
  }

  /** A dot on units with several holders. */
  drawShared(size) {
    if (size < 5) return;
    this.context.fillStyle = colour("card");
    for (let unit = 0; unit < this.frame.count; unit += 1) {
      if (this.frame.holders[unit] < 2) continue;
      this.context.beginPath();
      this.context.arc(this.places.x[unit] + size / 2, this.places.y[unit] + size / 2, size / 5, 0, 7);
      this.context.fill();
    }
  }

  drawArrivals(part, size) {
    const { context, places, frame } = this;
    const eased = 1 - (1 - part) ** 3;
    const values = frame[this.metric.unit];
    for (const { unit, from } of this.arrivals.slice(0, MOST_FLIGHTS)) {
      const [x, y] = [places.x[unit], places.y[unit]];
      context.strokeStyle = colour(from === null ? "series-2" : "series-5");
      context.lineWidth = Math.min(2, Math.max(1, size / 5));
      if (from === null) {
        context.strokeRect(x, y, size, size);
        continue;
      }
      const [left, top] = boxOf(Math.min(from, this.sites - 1), this.layout);
      const [fromX, fromY] = [left + this.layout.boxWidth / 2, top + this.layout.boxHeight / 2];
      context.globalAlpha = 0.55;
      context.beginPath();
      context.moveTo(fromX, fromY);
      context.quadraticCurveTo((fromX + x) / 2, Math.min(fromY, y) - 22, x + size / 2, y + size / 2);
      context.stroke();
      context.globalAlpha = 1;
      const at = [fromX + (x - fromX) * eased, fromY + (y - fromY) * eased - 30 * Math.sin(Math.PI * part)];
      context.fillStyle = this.shades[this.shadeOf(values[unit])];
      context.fillRect(...(part < 1 ? at : [x, y]), size, size);
      context.strokeRect(...(part < 1 ? at : [x, y]), size, size);
    }
  }

  /** The place of the unit that is drawn there, -1 if there is none. */
  placeAt(left, top) {
    if (this.frame === null || this.layout.size < SMALLEST) return -1;
    const reach = Math.max(this.layout.size, 3);
    const { x, y } = this.places;
    for (let unit = this.frame.count - 1; unit >= 0; unit -= 1) {
      if (left >= x[unit] && left < x[unit] + reach && top >= y[unit] && top < y[unit] + reach) return unit;
    }
    return -1;
  }

  /** The id of the unit that is drawn there, null if there is none. */
  unitAt(left, top) {
    const place = this.placeAt(left, top);
    return place < 0 ? null : this.frame.id[place];
  }

  point(event) {
    const near = this.placeAt(event.offsetX, event.offsetY);
    if (near < 0) return hideTip();
    const { id, site, holders, seconds: spent, memory, pending } = this.frame;
    const held = holders[near] > 1 ? `, ${holders[near]} holders` : "";
    const lines = [
      `unit ${id[near]} at site ${site[near]}${held}`,
      `${seconds(spent[near])} busy · ${bytes(memory[near])} in memory · ${rows(pending[near])} rows wait`,
    ];
    const why = this.marks.find((mark) => mark.unit === id[near]);
    if (why) lines.push(`${why.action} (${why.policy}): ${why.reason}; ${why.outcome}`);
    showTip(lines.join("\n"), event.clientX, event.clientY);
  }
}

/** The places of units that were elsewhere in the frame before, with the site there; null where there was none. */
function arrivals(frame, before) {
  const sites = new Map();
  for (let unit = 0; unit < before.count; unit += 1) sites.set(before.id[unit], before.site[unit]);
  const moved = [];
  for (let unit = 0; unit < frame.count; unit += 1) {
    const from = sites.get(frame.id[unit]);
    if (from !== frame.site[unit]) moved.push({ unit, from: from ?? null });
  }
  return moved;
}

function mostUnits(frame, sites) {
  const counts = new Uint32Array(sites);
  for (let unit = 0; unit < frame.count; unit += 1) counts[Math.min(frame.site[unit], sites - 1)] += 1;
  return counts.reduce((a, b) => Math.max(a, b), 1);
}

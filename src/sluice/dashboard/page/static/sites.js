/** The view of sites: who is short of time or memory, and which units are hot. */

import { element } from "./dom.js";
import { bytes, count, rows, seconds } from "./format.js";
import { ask, current } from "./store.js";
import { SortedTable } from "./tables.js";

const NEARLY_FULL = 0.9;

function memoryMeter(row) {
  const whole = Math.max(row.memory_limit, row.memory_bytes + row.disk_bytes, 1);
  const part = (size) => `width:${(100 * size) / whole}%`;
  const full = row.memory_limit > 0 && row.memory_bytes >= NEARLY_FULL * row.memory_limit;
  return element("span", { class: full ? "meter full" : "meter", title: `${bytes(row.memory_bytes)} in memory, ${bytes(row.disk_bytes)} on disk` },
    element("i", { style: part(row.memory_bytes) }), element("i", { class: "disk", style: part(row.disk_bytes) }));
}

function busyMeter(row) {
  return element("span", { class: "meter" }, element("i", { style: `width:${100 * row.busy_share}%` }));
}

const number = (name, column, text, title) => ({ name, title, value: (row) => row[column], cell: (row) => text(row[column]) });

export class SitesView {
  constructor(root) {
    this.sites = new SortedTable([
      { name: "site", value: (row) => row.site },
      number("units", "units", count),
      number("busy", "busy_seconds", seconds),
      { name: "", title: "by the busiest", value: (row) => row.busy_seconds, cell: busyMeter },
      number("rows in", "rows_in", rows),
      number("rows out", "rows_out", rows),
      number("state rows", "rows", rows),
      number("memory", "memory_bytes", bytes),
      { name: "", title: "memory, and disk behind it", value: (row) => row.memory_bytes / Math.max(1, row.memory_limit), cell: memoryMeter },
      number("of", "memory_limit", bytes, "memory that it may use"),
      number("disk", "disk_bytes", bytes),
      number("durable", "durable_bytes", bytes, "the checkpoint's copy"),
      number("frozen", "frozen_bytes", bytes),
      number("spilled units", "spilled_units", count),
      number("backlog", "pending_rows", rows, "rows that wait"),
      { name: "executor", value: (row) => row.executor, words: true },
    ], { sortBy: 2, search: "site or executor", label: "Sites" });
    this.hot = new SortedTable([
      { name: "unit", value: (row) => row.unit },
      { name: "site", value: (row) => row.site, cell: (row) => (row.holders > 1 ? `${row.site} and ${row.holders - 1} more` : String(row.site)) },
      number("seconds", "seconds", seconds),
      number("rows in", "rows", rows),
      number("results", "results", rows),
      number("memory", "memory", bytes),
      number("disk", "disk", bytes),
      number("backlog", "pending", rows),
    ], { sortBy: 2, label: "Hottest units" });
    this.over = element("span", { class: "note" });
    root.append(
      element("section", { class: "card" }, element("div", { class: "bar" }, element("h3", {}, "Sites")), this.sites.root),
      element("section", { class: "card" }, element("div", { class: "bar" }, element("h3", {}, "Hottest units"), this.over), this.hot.root));
  }

  redraw() {}

  async update() {
    const point = current();
    if (point === undefined) return;
    const [sites, hot] = await Promise.all([ask(`/api/sites/${point.epoch}`), ask(`/api/hot/${point.epoch}`)]);
    if (sites === null || hot === null || current()?.epoch !== point.epoch) return;
    const longest = Math.max(1e-9, ...sites.busy_seconds);
    this.sites.show(asRows(sites, sites.executor.length).map((row, site) => ({ ...row, site, busy_share: row.busy_seconds / longest })));
    this.hot.show(asRows(hot, hot.unit.length));
    this.over.textContent = `over the last ${hot.epochs} epochs`;
  }
}

/** Columns as rows. */
function asRows(columns, length) {
  const lists = Object.entries(columns).filter(([, values]) => Array.isArray(values));
  return Array.from({ length }, (_, at) => Object.fromEntries(lists.map(([name, values]) => [name, values[at]])));
}

/** The view of queries: what each costs, and the pieces that it is made of. */

import { element } from "./dom.js";
import { bytes, count, ratio, rows, seconds } from "./format.js";
import { ask } from "./store.js";
import { SortedTable } from "./tables.js";

const number = (name, column, text, title) => ({ name, title, value: (row) => row[column], cell: (row) => text(row[column]) });

export class QueriesView {
  constructor(root) {
    this.pieces = [];
    this.table = new SortedTable([
      { name: "query", value: (row) => row.name, words: true, cell: (row) => this.details(row) },
      number("rows in", "rows_in", rows, "of its operators; what queries share is divided among them"),
      number("results", "results", rows),
      number("time", "seconds", seconds, "processor time of its operators; what queries share is divided among them"),
      number("delay", "delay", seconds, "from seeing rows until its last operator was through"),
      number("ratio", "ratio", ratio, "performance ratio: the delay by what its operators take alone"),
      number("own state", "own_bytes", bytes),
      number("shared state", "shared_bytes", bytes, "its part of what it shares"),
      number("sites", "sites", count),
      { name: "sink", value: (row) => row.sink, words: true },
      { name: "error", value: (row) => row.error, words: true, cell: (row) => row.error ?? "" },
    ], { sortBy: 3, search: "query or sink", label: "Queries" });
    this.heading = element("h3", {}, "Queries");
    root.append(element("section", { class: "card" },
      element("div", { class: "bar" }, this.heading, element("span", { class: "note" }, "over the last ten epochs; a query's name shows its pieces")),
      this.table.root));
  }

  redraw() {}

  async update() {
    const answer = await ask("/api/queries");
    if (answer === null) return;
    this.pieces = answer.pieces;
    this.heading.textContent = `${count(answer.queries.length)} ${answer.queries.length === 1 ? "query" : "queries"}`;
    if (!this.table.root.querySelector("details[open]")) this.table.show(answer.queries);
    this.table.rows = answer.queries;
  }

  /** A query's name, and behind it what it computes and its pieces. */
  details(row) {
    const holder = element("details", {}, element("summary", {}, row.name));
    holder.addEventListener("toggle", () => {
      if (!holder.open || holder.childElementCount > 1) return;
      holder.append(element("pre", {}, row.says), ...row.pieces.map((place) => {
        const piece = this.pieces[place];
        const others = piece.queries > 1 ? `, shared with ${count(piece.queries - 1)} more` : "";
        return element("div", { class: "note" }, element("pre", {}, piece.says),
          `${count(piece.units)} units at sites ${piece.sites}${others}`);
      }));
    });
    return holder;
  }
}

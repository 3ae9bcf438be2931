/** Tables that can be sorted and searched; of many rows the first are drawn. */

import { element } from "./dom.js";

const DRAWN = 200;

/**
 * A table of rows. A column has a `name`, a `value(row)` to sort by, and a `cell(row)`: a text or an element;
 * `words` are left-aligned; those of a `wide` one have a line of their own on a phone. What was sorted by and
 * searched for stays when rows are replaced.
 */
export class SortedTable {
  constructor(columns, { sortBy = 0, descending = true, search = "", label = "" } = {}) {
    this.columns = columns;
    this.rows = [];
    this.by = sortBy;
    this.descending = descending;
    this.heads = columns.map((column, number) =>
      element("th", { scope: "col", class: styles(column) },
        element("button", { type: "button", title: column.title, onclick: () => this.sort(number) }, column.name)));
    this.body = element("tbody");
    this.rest = element("p", { class: "note" });
    this.query = "";
    const find = element("input", {
      type: "search", placeholder: search, "aria-label": search,
      oninput: (event) => { this.query = event.target.value.toLowerCase(); this.draw(); },
    });
    this.root = element("div", {},
      search ? element("div", { class: "bar" }, find) : null,
      element("div", { class: "table" },
        element("table", { "aria-label": label }, element("thead", {}, element("tr", {}, ...this.heads)), this.body)),
      this.rest);
  }

  sort(number) {
    this.descending = this.by === number ? !this.descending : !this.columns[number].words;
    this.by = number;
    this.draw();
  }

  show(rows) {
    this.rows = rows;
    this.draw();
  }

  draw() {
    const { value } = this.columns[this.by];
    const sign = this.descending ? -1 : 1;
    const matching = this.query
      ? this.rows.filter((row) => this.columns.some((one) => String(one.value(row) ?? "").toLowerCase().includes(this.query)))
      : this.rows;
    const sorted = [...matching].sort((a, b) => sign * compare(value(a), value(b)));
    this.heads.forEach((head, number) => {
      if (number === this.by) head.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.body.replaceChildren(...sorted.slice(0, DRAWN).map((row) => element("tr", {},
      ...this.columns.map((one) => element("td", { class: styles(one) }, one.cell ? one.cell(row) : String(one.value(row)))))));
    const left = sorted.length - DRAWN;
    this.rest.textContent = left > 0 ? `and ${left.toLocaleString("en")} more: sort or search to see others` : "";
  }
}

const styles = ({ words, wide }) => [words && "words", wide && "wide"].filter(Boolean).join(" ");

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : 1;
}

/** Decisions, newest first. */
export function decisionTable() {
  return new SortedTable([
    { name: "epoch", value: (one) => one.epoch },
    { name: "by", value: (one) => one.policy, words: true },
    { name: "decision", value: (one) => one.action, words: true },
    { name: "because", value: (one) => one.reason, words: true, wide: true },
    { name: "outcome", value: (one) => one.outcome, words: true, cell: (one) => element("span", { class: one.fate }, one.outcome) },
  ], { label: "Decisions" });
}

/** The view of decisions: what was done and refused, and what a policy would do now. */

import { element } from "./dom.js";
import { count } from "./format.js";
import { loadMarks } from "./marks.js";
import { ask, newest, store } from "./store.js";
import { decisionTable } from "./tables.js";

const ADVICE_SHOWN = 20;
let asked = "load";

export class DecisionsView {
  constructor(root) {
    this.choice = element("select", { "aria-label": "Policy", onchange: (event) => { asked = event.target.value; this.advise(); } });
    this.advice = element("div", { "aria-live": "polite" });
    this.only = element("select", { "aria-label": "Which decisions", onchange: () => this.list() },
      ...[["", "all"], ["refused", "refused"], ["waiting", "under way"], ["done", "done"], ["abandoned", "abandoned"]]
        .map(([value, text]) => element("option", { value }, text)));
    this.table = decisionTable();
    this.nothing = element("p", { class: "empty" }, "Nothing was decided.");
    this.heading = element("h3", {}, "Decisions");
    this.marks = [];
    root.append(
      element("section", { class: "card" },
        element("div", { class: "bar" }, element("h3", {}, "What would it do now?"), this.choice,
          element("span", { class: "note" }, "a policy with its usual settings; nothing is done")),
        this.advice),
      element("section", { class: "card" }, element("div", { class: "bar" }, this.heading, this.only), this.nothing, this.table.root));
  }

  redraw() {}

  async update() {
    if (this.choice.childElementCount !== store.advisers.length) {
      this.choice.replaceChildren(...store.advisers.map((name) => element("option", { value: name, selected: name === asked }, name)));
    }
    this.marks = await loadMarks();
    this.list();
    await this.advise();
  }

  list() {
    const shown = this.marks.filter((mark) => !this.only.value || mark.fate === this.only.value);
    this.heading.textContent = `${count(shown.length)} decisions in the newest ${count(store.points.length)} epochs`;
    this.nothing.hidden = shown.length > 0;
    this.table.root.hidden = !shown.length;
    this.table.show(shown);
  }

  async advise() {
    if (newest() === undefined) return;
    const answer = await ask(`/api/advice/${encodeURIComponent(asked)}`);
    if (answer?.policy !== asked) return; // another was chosen meanwhile
    const wanted = answer.decisions;
    const waits = answer.waits_for ? `A running policy would first wait for what is under way: ${answer.waits_for}.` : "";
    const over = answer.epochs ? `Asked about the last ${answer.epochs} epochs.` : "";
    const nothing = answer.why_nothing ? `${answer.policy} would do nothing: ${answer.why_nothing}.` : "";
    const list = wanted.slice(0, ADVICE_SHOWN).map((one) => element("li", {},
      element("b", {}, `${one.action}${one.unit === null ? "" : ` unit ${one.unit}`}${one.site === null ? "" : `, site ${one.site}`}`),
      `: ${one.reason}`,
      one.refused === null ? "" : element("span", { class: "refused" }, ` — refused: ${one.refused}`)));
    const more = wanted.length > ADVICE_SHOWN ? `and ${count(wanted.length - ADVICE_SHOWN)} more` : "";
    this.advice.replaceChildren(...[
      waits && element("p", {}, waits), nothing && element("p", {}, nothing),
      wanted.length && element("ul", {}, ...list), more && element("p", { class: "note" }, more),
      over && element("p", { class: "note" }, over),
    ].filter(Boolean));
  }
}

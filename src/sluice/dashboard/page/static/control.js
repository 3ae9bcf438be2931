/** Asking for something: move, split, merge, share, release or freeze a unit, scale to so many sites. */

import { element } from "./dom.js";
import { store } from "./store.js";

const VERBS = [
  { name: "move", type: "Move", fields: ["unit", "site"] },
  { name: "split", type: "Split", fields: ["unit"] },
  { name: "merge", type: "Merge", fields: ["unit"] },
  { name: "share", type: "Share", fields: ["unit", "site"], more: { evenly: true } },
  { name: "release", type: "Release", fields: ["unit", "site"] },
  { name: "freeze", type: "Freeze", fields: ["unit"] },
  { name: "scale", type: "Scale", fields: ["sites"] },
];
const FIELDS = ["unit", "site", "sites"];

export class Control {
  constructor() {
    this.verb = element("select", { "aria-label": "What to do", onchange: () => this.offer() },
      ...VERBS.map((one) => element("option", {}, one.name)));
    this.inputs = Object.fromEntries(FIELDS.map((name) => [name, element("input", { type: "number", min: 0, step: 1, required: true, name })]));
    this.labels = Object.fromEntries(FIELDS.map((name) => [name, element("label", {}, `${name} `, this.inputs[name])]));
    this.answer = element("p", { role: "status" });
    this.root = element("form", { class: "card control", onsubmit: (event) => { event.preventDefault(); this.ask(); } },
      element("div", { class: "bar" }, element("h3", {}, "Ask for"), this.verb, ...Object.values(this.labels),
        element("button", {}, "Ask"), element("span", { class: "note" }, "a click on a unit chooses it")),
      this.answer);
    this.offer();
  }

  get chosen() {
    return VERBS[this.verb.selectedIndex];
  }

  offer() {
    for (const name of FIELDS) {
      const offered = this.chosen.fields.includes(name);
      this.labels[name].hidden = !offered;
      this.inputs[name].disabled = !offered;
    }
  }

  choose(unit) {
    this.inputs.unit.value = unit;
  }

  async ask() {
    const { type, fields, more = {} } = this.chosen;
    const numbers = Object.fromEntries(fields.map((name) => [name, Number(this.inputs[name].value)]));
    const body = JSON.stringify({ type, ...numbers, ...more, reason: "" });
    this.tell("asking …", "");
    const response = await fetch("/api/requests", { method: "POST", headers: { "content-type": "application/json" }, body }).catch(() => null);
    if (response === null) return this.tell("The page's server does not answer.", "refused");
    if (!response.ok) return this.tell((await response.text()).trim(), "refused");
    const { refused } = await response.json();
    return refused === null
      ? this.tell(`Asked for after epoch ${store.points.at(-1)?.epoch ?? "–"}: the next epochs carry it out, and the decisions tell.`, "done")
      : this.tell(`Refused: ${refused}`, "refused");
  }

  tell(text, kind) {
    this.answer.textContent = text;
    this.answer.className = kind;
  }
}

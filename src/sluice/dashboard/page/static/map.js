/** The view of the map: where state is, how it came there, and why. */

import { Control } from "./control.js";
import { element } from "./dom.js";
import { bytes, count, rows, seconds, share } from "./format.js";
import { epochOf, loadMarks } from "./marks.js";
import { before, current, store } from "./store.js";
import { Strip } from "./strip.js";
import { decisionTable } from "./tables.js";
import { loadUnits } from "./unit_frame.js";
import { UnitMap } from "./unit_map.js";

const METRICS = [
  { key: "load", unit: "seconds", name: "Load", text: (v) => `${seconds(v)} busy`, unitText: seconds },
  { key: "memory", unit: "memory", name: "Memory", text: (v) => `${share(v)} of its memory`, unitText: bytes },
  { key: "backlog", unit: "pending", name: "Backlog", text: (v) => `${rows(v)} rows wait`, unitText: rows },
];

let metric = METRICS[0];

export class MapView {
  constructor(root) {
    this.buttons = METRICS.map((one) =>
      element("button", { type: "button", "aria-pressed": String(one === metric), onclick: () => this.colourBy(one) }, one.name));
    this.legend = element("span", { class: "legend" });
    this.unitLegend = element("span", { class: "legend" });
    const strip = element("canvas", { role: "img", "aria-label": "Sites by epochs, with a mark for each decision", id: "strip" });
    const units = element("canvas", { role: "img", "aria-label": "Units by sites in the chosen epoch", id: "units" });
    this.summary = element("p", { class: "note", "aria-live": "polite" });
    this.decided = element("h3");
    this.decisions = decisionTable();
    this.card = element("section", { class: "card", hidden: true }, this.decided, this.decisions.root);
    this.control = store.control ? new Control() : null;
    root.append(
      element("section", { class: "card" },
        element("div", { class: "bar" }, element("h3", {}, "Sites over time"),
          element("span", { class: "choice", role: "group", "aria-label": "Colour" }, ...this.buttons), this.legend,
          element("span", { class: "note" }, "↷ moved   ◆ split   ● shared   ■ frozen   ▼ spilled   ▲ scaled   hollow: waits   struck out: refused")),
        strip),
      element("section", { class: "card" },
        element("div", { class: "bar" }, this.heading = element("h3"), this.unitLegend, this.summary), units),
      ...(this.control ? [this.control.root] : []),
      this.card,
    );
    this.strip = new Strip(strip, metric);
    this.units = new UnitMap(units, metric);
    units.addEventListener("click", (event) => {
      const unit = this.units.unitAt(event.offsetX, event.offsetY);
      if (unit !== null) this.control?.choose(unit);
    });
  }

  nextColour() {
    this.colourBy(METRICS[(METRICS.indexOf(metric) + 1) % METRICS.length]);
  }

  colourBy(chosen) {
    metric = this.strip.metric = this.units.metric = chosen;
    this.buttons.forEach((button, n) => button.setAttribute("aria-pressed", String(METRICS[n] === chosen)));
    this.redraw();
  }

  redraw() {
    this.strip.draw();
    this.units.redraw();
    this.tellScale();
  }

  tellScale() {
    const scale = (most) => ["0", element("i"), most];
    const most = this.strip.most();
    this.legend.replaceChildren(...scale(metric.key === "memory" ? "100 % of a site's memory" : metric.text(most)));
    if (this.units.frame) this.unitLegend.replaceChildren(...scale(`${metric.unitText(this.units.most)} a unit`));
  }

  async update() {
    const point = current();
    if (point === undefined) return;
    this.strip.draw();
    this.tellScale();
    const earlier = before(point.epoch);
    const follows = earlier !== undefined && earlier.epoch === point.epoch - 1;
    const [marks, frame, last] = await Promise.all([
      loadMarks(), loadUnits(point.epoch), follows ? loadUnits(earlier.epoch) : null,
    ]);
    const strip = store.strips.find((one) => one.epoch === point.epoch);
    if (current()?.epoch !== point.epoch || frame === null || strip === undefined) return;
    this.strip.marks = marks;
    this.strip.draw();
    const here = marks.filter((mark) => mark.epoch === point.epoch || epochOf(mark) === point.epoch);
    this.units.show(frame, strip, last, here);
    this.tellScale();
    this.heading.textContent = `${count(point.units)} units at ${count(point.sites)} sites in epoch ${count(point.epoch)}`;
    const refused = here.filter((mark) => mark.fate === "refused").length;
    const moved = this.units.arrivals.filter((one) => one.from !== null).length;
    const begun = this.units.arrivals.length - moved;
    this.summary.textContent = [
      moved ? `${moved} moved` : "nothing moved", begun ? `${begun} new` : "",
      point.shared_units ? `${point.shared_units} shared` : "", refused ? `${refused} refused` : "",
      point.under_way ? `${point.under_way} under way` : "",
    ].filter(Boolean).join(" · ");
    this.card.hidden = !here.length;
    this.decided.textContent = `Decisions of epoch ${count(point.epoch)}`;
    this.decisions.show(here.slice(-30));
    this.units.canvas.dataset.epoch = point.epoch;
  }
}

/** The page: its head, its views, its keys, and the epoch that is shown. */

import { ChartsView } from "./charts.js";
import { DecisionsView } from "./decisions.js";
import { element, hideTip } from "./dom.js";
import * as text from "./format.js";
import { MapView } from "./map.js";
import { PlanView } from "./plan.js";
import { QueriesView } from "./queries.js";
import { SitesView } from "./sites.js";
import { choose, current, isReport, listen, newest, step, store, subscribe } from "./store.js";

const VIEWS = { map: MapView, charts: ChartsView, sites: SitesView, plan: PlanView, queries: QueriesView, decisions: DecisionsView };
const LATELY = 10;
const get = (id) => document.getElementById(id);
let view = null;
let viewProblem = "";

function show(name) {
  const known = name in VIEWS ? name : "map";
  for (const tab of get("tabs").children) {
    const chosen = tab.dataset.view === known;
    tab.setAttribute("aria-selected", String(chosen));
    if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  view?.destroy?.();
  hideTip();
  get("view").replaceChildren();
  view = new VIEWS[known](get("view"));
  if (location.hash !== `#${known}`) history.replaceState(null, "", `#${known}`);
  update();
}

/** Have the view show what is there now; what it cannot get is said at the top. */
async function update() {
  drawHead();
  if (newest() === undefined) return;
  const updated = view;
  try {
    await updated.update();
    viewProblem = "";
  } catch (problem) {
    viewProblem = problem.message;
  }
  if (updated === view) drawProblem();
}

function drawProblem() {
  const lost = store.connected || !store.name ? "" : "The page's server does not answer; trying again.";
  const problem = [...new Set([store.problem, viewProblem, lost])].filter(Boolean).join("\n");
  get("problem").textContent = problem;
  get("problem").hidden = !problem;
}

function drawHead() {
  const last = newest();
  get("name").textContent = get("name").title = store.name || "Sluice";
  document.title = store.name ? `${store.name} · Sluice` : "Sluice";
  drawProblem();
  drawStanding();
  const slider = get("epoch");
  slider.disabled = last === undefined;
  if (last === undefined) {
    get("tiles").replaceChildren();
    if (store.name) get("view").replaceChildren(element("p", { class: "empty" }, `No epoch has committed yet.${isReport ? "" : " The page shows the first one when it does."}`));
    return;
  }
  if (get("view").querySelector(":scope > .empty")) return show(location.hash.slice(1));
  const point = current();
  slider.min = store.points[0].epoch;
  slider.max = last.epoch;
  slider.value = point.epoch;
  slider.setAttribute("aria-valuetext", `epoch ${point.epoch} of ${last.epoch}`);
  get("chosen").textContent = `epoch ${text.count(point.epoch)}`;
  get("chosen").title = `${new Date(1000 * point.committed_at).toLocaleString()}; the journal keeps ${store.points.length} epochs`;
  get("live").setAttribute("aria-pressed", String(store.chosen === null));
  get("tiles").replaceChildren(...tiles(point).map(([what, value, more]) =>
    element("div", {}, element("dt", {}, what), element("dd", {}, value, element("small", {}, more)))));
}

function drawStanding() {
  const last = newest();
  const age = last === undefined ? "" : `epoch ${text.count(last.epoch)}, committed ${text.ago(last.committed_at, Date.now() / 1000)}`;
  get("standing").textContent = !store.name ? "connecting …" : age || "waiting for the first epoch";
  get("standing").title = store.checkpoint;
}

/** What a person wants to know first, at the chosen epoch. */
function tiles(point) {
  const at = store.points.indexOf(point);
  const lately = store.points.slice(Math.max(0, at - LATELY + 1), at + 1);
  const sum = (value) => lately.reduce((total, one) => total + value(one), 0);
  const timed = lately.filter((one) => one !== store.points[0] || lately.length === 1);
  const period = Math.max(1e-6, timed.reduce((total, one) => total + one.period, 0));
  const perSecond = (value) => timed.reduce((total, one) => total + value(one), 0) / period;
  const over = lately.length === 1 ? "this epoch" : `over ${lately.length} epochs`;
  const lags = point.streams.map((stream) => stream.lag).filter((lag) => lag !== null);
  const lag = Math.max(...lags);
  const late = sum((one) => one.late);
  return [
    ["Rows in", text.rate(perSecond((one) => one.rows_in)), over],
    ["Results", text.rate(perSecond((one) => one.results)), late ? `${text.rows(late)} late rows` : "no late rows"],
    ["Latency", text.seconds(point.latency), `epoch ${text.seconds(point.seconds)}`],
    ["Watermark lag", lags.length ? text.seconds(Math.abs(lag)) : "–", lag < 0 ? "ahead of the clock" : "behind the clock"],
    ["Backlog", `${text.rows(point.backlog_rows)}`, "rows that wait"],
    ["Imbalance", text.ratio(point.imbalance), `${text.count(point.sites)} sites, ${text.count(point.units)} units`],
    ["State", text.bytes(point.memory_bytes + point.disk_bytes), `${text.share(point.memory_bytes / Math.max(1, point.memory_limit))} of memory`],
    ["Moved", text.count(sum((one) => one.moves)), point.under_way ? `${point.under_way} under way` : over],
  ];
}

function wear(theme) {
  document.documentElement.dataset.theme = theme;
  view?.redraw();
}

const system = matchMedia("(prefers-color-scheme: dark)");
const theme = () => localStorage.getItem("theme") ?? (system.matches ? "dark" : "light");

function otherTheme() {
  localStorage.setItem("theme", theme() === "dark" ? "light" : "dark");
  wear(theme());
}

const KEYS = {
  ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => choose(store.points[0]?.epoch ?? null), End: () => choose(null),
  c: () => view.nextColour?.(), t: otherTheme, "?": () => get("keys").showModal(),
  ...Object.fromEntries(Object.keys(VIEWS).map((name, n) => [String(n + 1), () => show(name)])),
};

addEventListener("keydown", (event) => {
  const typing = event.target.closest("input[type=search], select, textarea, dialog");
  const action = KEYS[event.key];
  if (typing || event.ctrlKey || event.metaKey || event.altKey || action === undefined) return;
  event.preventDefault();
  action();
});

get("tabs").addEventListener("click", (event) => event.target.dataset.view && show(event.target.dataset.view));
get("epoch").addEventListener("input", (event) => choose(Number(event.target.value)));
get("back").addEventListener("click", () => step(-1));
get("forth").addEventListener("click", () => step(1));
get("live").addEventListener("click", () => choose(store.chosen === null ? newest()?.epoch - 1 : null));
get("theme").addEventListener("click", otherTheme);
get("help").addEventListener("click", () => get("keys").showModal());
addEventListener("hashchange", () => show(location.hash.slice(1)));
system.addEventListener("change", () => wear(theme()));
addEventListener("pointerdown", hideTip);
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => view?.redraw(), 120);
});

let begun = false;
if (isReport) get("live").textContent = "Newest";
wear(theme());
subscribe((what) => {
  if (what === "connection") return drawProblem();
  if (begun) return update();
  begun = true; // what the page can do is known now
  return show(location.hash.slice(1));
});
show(location.hash.slice(1));
listen();
setInterval(drawStanding, 1000);

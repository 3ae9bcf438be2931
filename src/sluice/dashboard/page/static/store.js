/** What the page knows: the newest epochs, which of them is chosen, and who wants to hear of changes. */

const KEPT = 100; // as many epochs as the journal keeps

export const store = {
  name: "",
  checkpoint: "",
  problem: "",
  advisers: [],
  control: false,
  connected: false,
  points: [],
  strips: [],
  chosen: null, // an epoch, or null: the newest one
};

const listeners = new Set();

/** Call back with "epochs" when there are new ones, with "chosen" when another one is chosen. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function tell(what) {
  for (const listener of [...listeners]) listener(what);
}

export function newest() {
  return store.points.at(-1);
}

export function current() {
  if (store.chosen === null) return newest();
  return store.points.find((point) => point.epoch === store.chosen) ?? newest();
}

export function before(epoch) {
  return store.points.findLast((point) => point.epoch < epoch);
}

/** Choose an epoch; null follows the newest. One that is gone becomes the oldest there is. */
export function choose(epoch) {
  const last = newest();
  if (epoch !== null && last !== undefined) {
    const first = store.points[0].epoch;
    epoch = epoch >= last.epoch ? null : Math.max(first, epoch);
    if (epoch !== null) epoch = store.points.findLast((point) => point.epoch <= epoch).epoch;
  }
  if (epoch === store.chosen) return;
  store.chosen = epoch;
  tell("chosen");
}

export function step(by) {
  const at = store.points.indexOf(current());
  const next = store.points[Math.max(0, at + by)];
  choose(next === undefined ? null : next.epoch);
}

function merge(known, added) {
  const first = added.length ? added[0].epoch : Infinity;
  return [...known.filter((one) => one.epoch < first), ...added].slice(-KEPT);
}

function take(news) {
  if (news.anew) {
    store.points = [];
    store.strips = [];
    store.chosen = null;
  }
  Object.assign(store, {
    name: news.name, checkpoint: news.checkpoint, problem: news.problem, advisers: news.advisers, control: news.control, connected: true,
    points: merge(store.points, news.points), strips: merge(store.strips, news.strips),
  });
  if (store.chosen !== null && store.points.length && store.chosen < store.points[0].epoch) {
    store.chosen = store.points[0].epoch;
  }
  tell("epochs");
}

/** A report has the answers of the page's server inside. */
const inside = document.getElementById("answers");
export const isReport = inside !== null;
const answers = isReport ? unpack(inside.textContent) : null;

async function unpack(text) {
  const packed = await fetch(`data:application/gzip;base64,${text}`);
  return new Response(packed.body.pipeThrough(new DecompressionStream("gzip"))).json();
}

/** An answer of a report; a text stands for bytes. */
async function answerInside(path) {
  const answer = (await answers)[path];
  if (answer?.refused !== undefined) throw new Error(answer.refused);
  return typeof answer === "string" ? (await fetch(`data:;base64,${answer}`)).arrayBuffer() : answer;
}

/** Hear of new epochs until the page is closed; the browser connects again by itself. A report has those it was made of. */
export async function listen() {
  if (isReport) return take(await answerInside("/events"));
  const source = new EventSource("/events");
  source.addEventListener("epochs", (event) => take(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    store.connected = false;
    tell("connection");
  });
  source.addEventListener("open", () => {
    store.connected = true;
    tell("connection");
  });
}

/** A view's answer; null if it cannot be had now, with the reason as the problem. */
export async function ask(path) {
  if (isReport) return answerInside(path);
  const response = await fetch(path).catch(() => null);
  if (response === null) return null;
  if (!response.ok) throw new Error((await response.text()).trim());
  return response.headers.get("content-type").startsWith("application/json") ? response.json() : response.arrayBuffer();
}

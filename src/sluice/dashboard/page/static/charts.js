/** The view of charts: whether the query keeps up, and where its time goes. */

import { colour, element, series } from "./dom.js";
import { bytes, clock, ratio, rate, rows, seconds } from "./format.js";
import { choose, current, store } from "./store.js";

const HEIGHT = 160;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
const POWERS = Array.from({ length: 52 }, (_, n) => 2 ** n);

/** A line for each stream that there is in these epochs. */
function byStream(points, value) {
  const names = [...new Set(points.flatMap((point) => point.streams.map((stream) => stream.name)))];
  return names.map((name) => ({
    name,
    values: points.map((point) => value(point.streams.find((stream) => stream.name === name) ?? null, point)),
  }));
}

/** Of the oldest of several epochs nobody knows how long its rows took to come. */
const perSecond = (value, point) => (point === store.points[0] && store.points.length > 1 ? null : value / point.period);

const one = (name, value) => (points) => [{ name, values: points.map(value) }];

const CHARTS = [
  { title: "Rows in per second", text: rate, stacked: true,
    lines: (points) => byStream(points, (stream, point) => perSecond(stream?.rows ?? 0, point)) },
  { title: "Results per second", text: rate, lines: one("results", (point) => perSecond(point.results, point)) },
  { title: "Latency", text: seconds, note: "from seeing rows until the last operator was through with them",
    lines: one("latency", (point) => point.latency) },
  { title: "Epoch time by phase", text: seconds, stacked: true, note: "exchange is Spark's part, and waiting for the busiest site",
    lines: (points) => Object.keys(points.at(-1).phases)
      .map((name) => ({ name, values: points.map((point) => point.phases[name] ?? 0) }))
      .filter((line) => line.values.some((value) => value > 0)) },
  { title: "Watermark lag", text: seconds, note: "how far event time is behind the clock; below 0 it is ahead",
    lines: (points) => byStream(points, (stream) => stream?.lag ?? null) },
  { title: "Late rows", text: rows, note: "dropped and counted",
    lines: (points) => byStream(points, (stream) => stream?.late ?? 0) },
  { title: "Backlog", text: rows, note: "rows that wait for their unit's turn", lines: one("rows", (point) => point.backlog_rows) },
  { title: "Imbalance", text: ratio, note: "the busiest site's time by that of the average one: 1 is even",
    lines: one("max / mean", (point) => point.imbalance) },
  { title: "State by tier", text: bytes, note: "the durable copy is in the checkpoint",
    lines: (points) => [["memory", "memory_bytes"], ["disk", "disk_bytes"], ["durable", "durable_bytes"], ["frozen", "frozen_bytes"]]
      .map(([name, column]) => ({ name, values: points.map((point) => point[column]) }))
      .filter((line) => line.name !== "frozen" || line.values.some((value) => value > 0)) },
  { title: "What moved", text: rows, note: "units to another site, to disk, and back from it",
    lines: (points) => ["moves", "spills", "fetches"].map((name) => ({ name, values: points.map((point) => point[name]) })) },
  { title: "Bytes between sites", text: bytes, lines: one("bytes", (point) => point.bytes_between_sites) },
  { title: "Sites and units", text: rows,
    lines: (points) => ["sites", "units"].map((name) => ({ name, values: points.map((point) => point[name]) })) },
];

export class ChartsView {
  constructor(root) {
    this.root = element("div", { class: "plots" });
    root.append(this.root);
    this.charts = CHARTS.map((chart) => {
      const holder = element("div");
      this.root.append(element("section", { class: "card" },
        element("h3", {}, chart.title), element("p", { class: "note" }, chart.note ?? " "), holder));
      return { ...chart, holder, plot: null, shape: "" };
    });
  }

  /** Draw all anew, in other colours or another size. */
  redraw() {
    for (const chart of this.charts) chart.shape = "";
    this.update();
  }

  update() {
    if (!store.points.length) return;
    for (const chart of this.charts) this.draw(chart);
  }

  draw(chart) {
    const lines = chart.lines(store.points);
    chart.shown = lines;
    const shape = JSON.stringify(lines.map((line) => line.name));
    const epochs = store.points.map((point) => point.epoch);
    const data = [epochs, ...(chart.stacked ? stack(lines) : lines.map((line) => line.values))];
    if (shape !== chart.shape) {
      chart.plot?.destroy();
      chart.plot = new uPlot(options(chart, lines), data, chart.holder);
      chart.shape = shape;
    } else {
      chart.plot.setData(data);
    }
    chart.plot.setLegend({ idx: epochs.length - 1 }, false);
  }

  destroy() {
    for (const chart of this.charts) chart.plot?.destroy();
  }
}

/** Lines on top of each other: each is the sum of itself and all after it, so the first is drawn behind. */
function stack(lines) {
  const sums = lines.length ? lines[0].values.map(() => 0) : [];
  return [...lines].reverse().map((line) => line.values.map((value, i) => (value === null ? null : (sums[i] += value)))).reverse();
}

function options(chart, lines) {
  const soft = colour("soft");
  const axis = { stroke: soft, grid: { stroke: colour("rule"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return {
    width: Math.max(200, chart.holder.clientWidth),
    height: HEIGHT,
    scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.08 : 1] } },
    cursor: { sync: { key: "epochs" }, points: { size: 6 }, drag: { x: false, y: false } },
    legend: { live: true },
    axes: [
      { ...axis, size: 24, incrs: WHOLE, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en")) },
      { ...axis, size: 62, ...(chart.text === bytes ? { incrs: POWERS } : {}), values: (_, ticks) => ticks.map((tick) => chart.text(tick)) },
    ],
    series: [
      { label: "epoch", value: (_, epoch) => (epoch === null ? "–" : `${epoch.toLocaleString("en")}, ${timeOf(epoch)}`) },
      ...lines.map((line, n) => ({
        label: line.name,
        stroke: series(n),
        width: 1.6,
        fill: chart.stacked ? `${series(n)}${lines.length > 1 ? "cc" : "33"}` : undefined,
        points: { show: store.points.length < 2 },
        value: (_, __, number, at) => (at === null || at === undefined ? "–" : chart.text(chart.shown[number - 1]?.values[at])),
      })),
    ],
    hooks: {
      draw: [markChosen],
      setLegend: [(plot) => plot.legend.idx ?? plot.setLegend({ idx: plot.data[0].length - 1 }, false)],
      ready: [(plot) => plot.over.addEventListener("click", () => plot.cursor.idx !== null && choose(plot.data[0][plot.cursor.idx]))],
    },
  };
}

function timeOf(epoch) {
  const point = store.points.find((one) => one.epoch === epoch);
  return point ? clock(point.committed_at) : "";
}

function markChosen(plot) {
  if (store.chosen === null) return;
  const x = Math.round(plot.valToPos(current().epoch, "x", true));
  plot.ctx.save();
  plot.ctx.strokeStyle = colour("accent");
  plot.ctx.lineWidth = 2;
  plot.ctx.beginPath();
  plot.ctx.moveTo(x, plot.bbox.top);
  plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
  plot.ctx.stroke();
  plot.ctx.restore();
}

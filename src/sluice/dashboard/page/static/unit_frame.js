/** All units of an epoch as columns, as the server packs them, and where each is drawn. */

import { ask } from "./store.js";

const KEPT = 6;
const LARGEST = 32; // a unit's square
const frames = new Map();

/** The units of an epoch: id, site, holders, seconds, memory, pending; null if it is gone. */
export async function loadUnits(epoch) {
  if (!frames.has(epoch)) {
    const packed = await ask(`/api/units/${epoch}`).catch(() => null);
    if (packed === null) return null;
    const count = packed.byteLength / 24;
    const [id, site, holders] = [0, 1, 2].map((n) => new Uint32Array(packed, 4 * n * count, count));
    const [seconds, memory, pending] = [3, 4, 5].map((n) => new Float32Array(packed, 4 * n * count, count));
    frames.set(epoch, { epoch, count, id, site, holders, seconds, memory, pending });
    if (frames.size > KEPT) frames.delete(frames.keys().next().value);
  }
  return frames.get(epoch);
}

/** Boxes of sites, as large as they can be for squares of one size. */
export function arrange(sites, mostUnits, width, height) {
  let best = { worth: -Infinity, size: 0 };
  const roomy = sites <= 120;
  const gap = roomy ? 6 : 1;
  for (let columns = 1; columns <= sites; columns += 1) {
    const lines = Math.ceil(sites / columns);
    const boxWidth = width / columns - gap;
    const boxHeight = height / lines - gap;
    const head = roomy && boxHeight >= 40 ? 18 : 0;
    const [inner, tall] = [boxWidth - 2 * Math.min(gap, 4), boxHeight - head - 2 * Math.min(gap, 4)];
    if (inner <= 0 || tall <= 0) continue;
    let size = Math.min(LARGEST, Math.sqrt((inner * tall) / Math.max(1, mostUnits)));
    for (let tries = 0; tries < 40 && Math.ceil(mostUnits / Math.max(1, Math.floor(inner / size))) * size > tall; tries += 1) {
      size *= 0.95;
    }
    const legible = roomy && boxWidth < 150 ? 0.8 : 1; // a label has to fit
    const worth = size * legible - Math.abs(Math.log(boxWidth / boxHeight / 2)) / 10
      - (lines * columns - sites) / sites; // of equal ones the squarest, with no gaps
    if (worth > best.worth) best = { worth, size, columns, lines, boxWidth, boxHeight, head, inner, gap };
  }
  return best;
}

/** Where each unit of a frame is drawn. */
export function placeUnits(frame, sites, layout) {
  const [x, y] = [new Float32Array(frame.count), new Float32Array(frame.count)];
  const across = Math.max(1, Math.floor(layout.inner / layout.size));
  const next = new Uint32Array(sites);
  const margin = Math.min(layout.gap, 4);
  for (let unit = 0; unit < frame.count; unit += 1) {
    const site = Math.min(frame.site[unit], sites - 1);
    const [left, top] = boxOf(site, layout);
    const slot = next[site];
    next[site] += 1;
    x[unit] = left + margin + (slot % across) * layout.size;
    y[unit] = top + layout.head + margin + Math.floor(slot / across) * layout.size;
  }
  return { x, y, units: next };
}

export function boxOf(site, layout) {
  const column = site % layout.columns;
  const line = Math.floor(site / layout.columns);
  return [column * (layout.boxWidth + layout.gap), line * (layout.boxHeight + layout.gap)];
}

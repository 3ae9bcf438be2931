/** What was decided, by epoch: fetched once for an epoch, for the map and the table. */

import { ask, newest } from "./store.js";

let marks = [];
let known = null;

/** All marks after the newest epoch, oldest first. */
export async function loadMarks() {
  const last = newest();
  const stamp = last === undefined ? null : `${last.epoch} ${last.committed_at}`;
  if (stamp !== known) {
    marks = (await ask("/api/marks")) ?? marks;
    known = stamp;
  }
  return marks;
}

/** The epoch that a mark stands at: with which it was done, or decided. */
export const epochOf = (mark) => mark.ended ?? mark.epoch;

export function markText(mark) {
  return `epoch ${mark.epoch}: ${mark.policy}: ${mark.action}\n${mark.reason}\n${mark.outcome}`;
}

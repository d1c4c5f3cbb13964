// Draws all panels: their books, then their other cards, then their charts, in a separate frame each, so that no frame is
// long on a slow computer. Functions that read the layout (positions of rows) run first: text written before would make
// the browser compute it again.

import { now } from "./clock.js";

const STAGES = ["drawBook", "drawCards", "drawCharts"];
const due = STAGES.map(() => new Set()); // panels by their next stage
let requested = false;

/** Draw a panel in the next frames: `measure(now)` and `drawBook(now)`, then `drawCards(now)`, then `drawCharts(now)`. */
export function drawSoon(panel) {
  due[0].add(panel);
  request();
}

function request() {
  if (requested) return;
  requested = true;
  requestAnimationFrame(() => draw(now()));
}

/** Draw the last stage that is due: a book's stages are finished before the next book is drawn. */
function draw(nowMs) {
  requested = false;
  const stage = due.findLastIndex((panels) => panels.size);
  const panels = [...due[stage]];
  due[stage].clear();
  if (stage === 0) for (const panel of panels) panel.measure(nowMs);
  for (const panel of panels) panel[STAGES[stage]](nowMs);
  for (const panel of panels) due[stage + 1]?.add(panel);
  if (due.some((each) => each.size)) request();
}

// Draws all panels: first their books, then their other cards, then their charts, each in a frame of its own, so that on a
// slow computer no frame takes long. Functions that read the layout (positions of rows) run first: text written before
// would make the browser compute it again.

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

/** Draw one stage, the last one that is due: what began is finished before newer books are drawn. */
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

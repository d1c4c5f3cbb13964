// One drawing a frame for all panels. What asks for the layout comes first, which is where rows stand
// and the axes of charts: texts written before would make the browser compute it once more.

import { now } from "./clock.js";

const due = new Set();

/** Draw a panel in the next frame: `measure(now)`, then `write(now)`. */
export function drawSoon(panel) {
  due.add(panel);
  if (due.size === 1) requestAnimationFrame(() => draw(now()));
}

function draw(nowMs) {
  const panels = [...due];
  due.clear();
  for (const panel of panels) panel.measure(nowMs);
  for (const panel of panels) panel.write(nowMs);
}

// Draws all panels once per frame. Functions that read the layout (positions of rows, axes of charts)
// run first: text written before would make the browser compute it again.

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

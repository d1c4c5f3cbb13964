// One drawing a frame for all panels. What asks for the layout comes first, which is where rows stand
// and the axes of charts: texts written before would make the browser compute it once more.

const due = new Set();

/** Draw a panel in the next frame: `measure(now)`, then `write(now)`. */
export function drawSoon(panel) {
  due.add(panel);
  if (due.size === 1) requestAnimationFrame(draw);
}

function draw(now) {
  const panels = [...due];
  due.clear();
  for (const panel of panels) panel.measure(now);
  for (const panel of panels) panel.write(now);
}
